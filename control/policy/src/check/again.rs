//! What need not be checked again: a tenant that is as it was, and a policy that is as it was, of a tenant that is as it
//! was, whose names still mean something.

use std::{collections::BTreeMap, mem, sync::Arc};

use super::{rules::Scope, shadow::Shadows};
use crate::{
    Diagnostics, Fabric, Name, NetworkPolicy, Peer, Rule, Tenant, TenantPolicy, documents::Documents,
    read::Report,
};

/// What was checked, by its address: as long as it is held, nothing else has that.
#[derive(Default, Debug)]
pub(crate) struct Checked {
    policies: BTreeMap<usize, Kept<TenantPolicy>>,
    network_policies: BTreeMap<usize, Kept<NetworkPolicy>>,
    tenants: BTreeMap<usize, (Arc<Tenant>, Diagnostics)>,
    /// With which the tenants were checked.
    fabric: Option<Arc<Fabric>>,
}

/// What checking a policy came to, and what that hangs on.
#[derive(Debug)]
struct Kept<P> {
    policy: Arc<P>,
    tenant: Arc<Tenant>,
    tags: Vec<Name>,
    tenants: Vec<Name>,
    /// Taken from what may be compared in search of shadowed rules.
    comparisons: usize,
    warnings: Diagnostics,
}

/// One pass over the policies of a kind. Those that it does not meet are forgotten.
pub(super) struct Round<'c, P> {
    before: BTreeMap<usize, Kept<P>>,
    /// Where to keep what was checked, if anywhere.
    now: Option<&'c mut BTreeMap<usize, Kept<P>>>,
}

impl Checked {
    /// Checks each tenant by itself, unless it and the Fabric are as they were and nothing was wrong.
    pub(super) fn tenants(
        checked: Option<&mut Self>,
        documents: &Documents,
        fabric: Option<&Arc<Fabric>>,
        report: &mut Report,
        work: impl Fn(&Tenant, &mut Report),
    ) {
        let Some(checked) = checked else {
            return documents.tenants.iter().for_each(|tenant| work(tenant, report));
        };
        let mut before = mem::take(&mut checked.tenants);
        let is_same = match (&checked.fabric, fabric) {
            (Some(before), Some(fabric)) => Arc::ptr_eq(before, fabric),
            (before, fabric) => before.is_none() && fabric.is_none(),
        };
        // A name that is not there may stand in what could not be read.
        if !is_same || documents.unread.fabrics {
            before.clear();
        }
        checked.fabric = fabric.cloned();
        for tenant in &documents.tenants {
            let address = Arc::as_ptr(tenant).addr();
            let warnings = match before.remove(&address) {
                Some((_, warnings)) => {
                    warnings.list.iter().cloned().for_each(|warning| report.diagnostics.push(warning));
                    warnings
                }
                None => report.part(|report| work(tenant, report)),
            };
            if !warnings.has_errors() && !documents.unread.fabrics {
                checked.tenants.insert(address, (tenant.clone(), warnings));
            }
        }
    }

    pub(super) fn rounds(checked: Option<&mut Self>) -> (Round<'_, TenantPolicy>, Round<'_, NetworkPolicy>) {
        let (policies, network_policies) =
            checked.map(|checked| (&mut checked.policies, &mut checked.network_policies)).unzip();
        (Round::new(policies), Round::new(network_policies))
    }
}

impl<'c, P> Round<'c, P> {
    fn new(mut kept: Option<&'c mut BTreeMap<usize, Kept<P>>>) -> Self {
        let before = kept.as_mut().map(|kept| mem::take(*kept)).unwrap_or_default();
        Self { before, now: kept }
    }

    /// Checks a policy of a tenant, unless it is known what that comes to.
    pub fn check<'a, 'r>(
        &mut self,
        (policy, tenant): (&Arc<P>, &Name),
        rules: impl Iterator<Item = &'r Rule>,
        scope: &mut Scope<'a>,
        shadows: &mut Shadows,
        report: &mut Report,
        work: impl FnOnce(&P, &mut Scope<'a>, &mut Shadows, &mut Report),
    ) {
        let Some(now) = &mut self.now else { return work(policy, scope, shadows, report) };
        let address = Arc::as_ptr(policy).addr();
        if let Some(kept) = self.before.remove(&address).filter(|kept| kept.holds(policy, scope, shadows)) {
            shadows.spend(kept.comparisons);
            kept.tags.iter().for_each(|tag| scope.use_tag(tag));
            kept.warnings.list.iter().cloned().for_each(|warning| report.diagnostics.push(warning));
            now.insert(address, kept);
            return;
        }
        let before = shadows.comparisons_left();
        let warnings = report.part(|report| work(policy, scope, shadows, report));
        // Whoever has nothing left has not compared all.
        let (Some(tenant), 1..) = (scope.tenant(tenant), shadows.comparisons_left()) else { return };
        let (tags, tenants) = named(rules);
        let comparisons = before - shadows.comparisons_left();
        let (policy, tenant) = (policy.clone(), tenant.clone());
        let kept = Kept { policy, tenant, tags, tenants, comparisons, warnings };
        if !kept.warnings.has_errors() && kept.names_mean_something(scope) {
            now.insert(address, kept);
        }
    }
}

impl<P> Kept<P> {
    fn holds(&self, policy: &Arc<P>, scope: &Scope, shadows: &Shadows) -> bool {
        Arc::ptr_eq(&self.policy, policy)
            && self.comparisons < shadows.comparisons_left()
            && self.names_mean_something(scope)
    }

    fn names_mean_something(&self, scope: &Scope) -> bool {
        scope.tenant(&self.tenant.name).is_some_and(|tenant| Arc::ptr_eq(tenant, &self.tenant))
            && self.tags.iter().all(|tag| scope.has_tag(tag))
            && self.tenants.iter().all(|tenant| scope.tenant(tenant).is_some())
    }
}

/// The tags and tenants that rules name.
fn named<'r>(rules: impl Iterator<Item = &'r Rule>) -> (Vec<Name>, Vec<Name>) {
    let (mut tags, mut tenants) = (Vec::new(), Vec::new());
    for peer in rules.flat_map(|rule| rule.peers.iter().flatten()) {
        match peer {
            Peer::Tag(name) => tags.push(name.value.clone()),
            Peer::Tenant(name) => tenants.push(name.value.clone()),
            _ => {}
        }
    }
    for names in [&mut tags, &mut tenants] {
        names.sort_unstable();
        names.dedup();
    }
    (tags, tenants)
}
