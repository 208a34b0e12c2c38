//! Checks of policies: what they name exists, and what they select is somebody.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Seen, again::Checked, shadow::Shadows, unknown};
use crate::{
    ClusterNetworkPolicy, Direction, Name, NetworkPolicy, Peer, PortSelector, PrefixTag, Protocol, Rule,
    Selector, Service, Spanned, Tenant, TenantPolicy, documents::Documents, has_labels, read::Report,
};

const BOTH: [Direction; 2] = [Direction::Egress, Direction::Ingress];

pub(super) fn all(documents: &Documents, checked: Option<&mut Checked>, report: &mut Report) {
    let mut scope = Scope::of(documents);
    let mut shadows = Shadows::new();
    names_are_unique(documents, report);
    let (mut of_tenants, mut of_kubernetes) = Checked::rounds(checked);
    for policy in &documents.policies {
        let rules = BOTH.iter().flat_map(|direction| policy.rules(*direction));
        of_tenants.check((policy, &policy.tenant), rules, &mut scope, &mut shadows, report, tenant_policy);
    }
    for policy in &documents.network_policies {
        let rules = BOTH.iter().flat_map(|direction| policy.rules(*direction).unwrap_or_default());
        of_kubernetes.check(
            (policy, &policy.tenant),
            rules,
            &mut scope,
            &mut shadows,
            report,
            network_policy,
        );
    }
    for policy in &documents.cluster_policies {
        BOTH.iter().for_each(|direction| shadows.look_for(policy.rules(*direction), report));
        cluster_policy(policy, documents, &mut scope, report);
    }
    scope.unused_tags(report);
}

fn names_are_unique(documents: &Documents, report: &mut Report) {
    let mut names = Seen::new();
    for TenantPolicy { tenant, name, .. } in documents.policies.iter().map(|policy| &**policy) {
        let what = || format!("policy {} of tenant {} is given twice", name.value, tenant.value);
        names.claim((&tenant.value, &name.value), name.at, what, report);
    }
    let mut names = Seen::new();
    for NetworkPolicy { tenant, name, .. } in documents.network_policies.iter().map(|policy| &**policy) {
        let what = || format!("NetworkPolicy {} of tenant {} is given twice", name.value, tenant.value);
        names.claim((&tenant.value, &name.value), name.at, what, report);
    }
    let mut names = Seen::new();
    for ClusterNetworkPolicy { name, .. } in documents.cluster_policies.iter().map(|policy| &**policy) {
        let what = || format!("ClusterNetworkPolicy {} is given twice", name.value);
        names.claim(&name.value, name.at, what, report);
    }
    let mut names = Seen::new();
    for PrefixTag { name, .. } in documents.tags.iter().map(|tag| &**tag) {
        names.claim(&name.value, name.at, || format!("tag {} is given twice", name.value), report);
    }
}

fn tenant_policy(policy: &TenantPolicy, scope: &mut Scope, shadows: &mut Shadows, report: &mut Report) {
    BOTH.iter().for_each(|direction| shadows.look_for(policy.rules(*direction), report));
    let Some(hosts) = scope.tenant_of(&policy.tenant, report) else { return };
    if hosts.tenant.is_whole {
        selected_ports(policy, hosts.tenant, report);
        scope.peers(BOTH.iter().flat_map(|direction| policy.rules(*direction)), &[hosts], report);
    }
}

fn network_policy(policy: &NetworkPolicy, scope: &mut Scope, _: &mut Shadows, report: &mut Report) {
    let Some(hosts) = scope.tenant_of(&policy.tenant, report) else { return };
    if hosts.tenant.is_whole {
        selected_pods(policy, hosts.tenant, report);
        let rules = BOTH.iter().flat_map(|direction| policy.rules(*direction).unwrap_or_default());
        scope.peers(rules, &[hosts], report);
    }
}

/// What the rules of a tenant can name.
#[derive(Clone, Copy)]
struct Hosts<'a> {
    tenant: &'a Arc<Tenant>,
}

impl<'a> Hosts<'a> {
    fn remotes(self) -> impl Iterator<Item = &'a str> + Clone {
        self.tenant.remotes.iter().filter_map(|remote| remote.name.as_ref()).map(|name| &***name)
    }
}

/// What rules can name, and what they have named.
pub(super) struct Scope<'a> {
    documents: &'a Documents,
    tenants: BTreeMap<&'a str, Hosts<'a>>,
    /// Of the tenants of which a rule has named one.
    remotes: BTreeMap<&'a str, BTreeSet<&'a str>>,
    tags: BTreeMap<&'a str, &'a Arc<PrefixTag>>,
    used_tags: BTreeSet<String>,
}

impl<'a> Scope<'a> {
    fn of(documents: &'a Documents) -> Self {
        let tenants: BTreeMap<&str, Hosts> =
            documents.tenants.iter().map(|tenant| (&**tenant.name, Hosts { tenant })).collect();
        let tags = documents.tags.iter().map(|tag| (&**tag.name, tag)).collect();
        Self { documents, tenants, remotes: BTreeMap::new(), tags, used_tags: BTreeSet::new() }
    }

    /// The tenant of that name, if it could be read.
    pub fn tenant(&self, name: &str) -> Option<&'a Arc<Tenant>> {
        self.tenants.get(name).map(|hosts| hosts.tenant)
    }

    /// True when there is a tag of that name.
    pub fn has_tag(&self, name: &str) -> bool {
        self.tags.contains_key(name)
    }

    /// A rule uses the tag.
    pub fn use_tag(&mut self, name: &str) {
        if !self.used_tags.contains(name) {
            self.used_tags.insert(name.into());
        }
    }

    fn tenant_of(&self, name: &Spanned<Name>, report: &mut Report) -> Option<Hosts<'a>> {
        let found = self.tenants.get(&*name.value).copied();
        if found.is_none() && !self.documents.unread.tenants {
            unknown("tenant", name, self.tenants.keys().copied(), "no document is of kind Tenant", report);
        }
        found
    }

    /// Peers and services of rules that are asked for these tenants.
    fn peers<'r>(
        &mut self,
        rules: impl Iterator<Item = &'r Rule>,
        subjects: &[Hosts<'a>],
        report: &mut Report,
    ) {
        for rule in rules {
            rule.peers.iter().flatten().for_each(|peer| self.peer(peer, subjects, report));
            rule.services.iter().flatten().for_each(|service| named_port(rule, service, subjects, report));
        }
    }

    fn peer(&mut self, peer: &Peer, subjects: &[Hosts<'a>], report: &mut Report) {
        match peer {
            Peer::IpBlock { .. } => {}
            Peer::Tag(name) => self.tag(name, report),
            Peer::Tenant(name) => self.tenant_peer(name, subjects, report),
            Peer::Pods { at, tenants, pods } => {
                if let Some(why) = nobody(tenants.as_ref(), pods, subjects) {
                    report.warning(*at, format!("{why}: the peer is nobody"));
                }
            }
            Peer::Remote(name) => {
                for Hosts { tenant } in subjects {
                    let known = self.remotes.entry(&*tenant.name.value);
                    let known = known.or_insert_with(|| Hosts { tenant }.remotes().collect());
                    if !known.contains(&*name.value) {
                        let what = format!("remote of tenant {}:", tenant.name.value);
                        unknown(&what, name, known.iter().copied(), "the tenant names none", report);
                    }
                }
            }
            Peer::Ports(labels) => {
                for Hosts { tenant } in subjects {
                    if !tenant.ports.iter().any(|port| has_labels(&port.labels, labels)) {
                        let name = &tenant.name.value;
                        let message =
                            format!("no port of tenant {name} has these labels: the peer is nobody");
                        report.warning(labels.at, message);
                    }
                }
            }
        }
    }

    fn tag(&mut self, name: &Spanned<Name>, report: &mut Report) {
        if !self.tags.contains_key(&*name.value) && !self.documents.unread.tags {
            unknown("tag", name, self.tags.keys().copied(), "no document is of kind PrefixTag", report);
        }
        self.use_tag(name);
    }

    fn tenant_peer(&self, name: &Spanned<Name>, subjects: &[Hosts], report: &mut Report) {
        if self.tenant_of(name, report).is_some()
            && !subjects.iter().any(|hosts| hosts.tenant.name.value == name.value)
        {
            let message = format!("tenant {} cannot be reached from another: the peer is nobody", name.value);
            report.warning(name.at, message);
        }
    }

    fn unused_tags(&self, report: &mut Report) {
        if self.documents.unread.policies {
            return;
        }
        for tag in self.tags.values().filter(|tag| !self.used_tags.contains(&*tag.name.value)) {
            report.warning(tag.name.at, format!("no rule uses tag {}", tag.name.value));
        }
    }
}

/// Why pods that are selected so are none.
fn nobody(tenants: Option<&Selector>, pods: &Selector, subjects: &[Hosts]) -> Option<String> {
    let own = |hosts: &&Hosts| tenants.is_none_or(|wanted| wanted.selects(&hosts.tenant.labels));
    let mut reached = subjects.iter().filter(own).peekable();
    if subjects.is_empty() {
        return None;
    }
    if reached.peek().is_none() {
        return Some("pods of another tenant cannot be reached, and this is none of the rule's own".into());
    }
    let is_somebody = |hosts: &Hosts| hosts.tenant.pods().any(|pod| pods.selects(pod.labels));
    if reached.any(is_somebody) {
        return None;
    }
    match subjects {
        [hosts] => Some(format!("no pod of tenant {} has these labels", hosts.tenant.name.value)),
        _ => Some("no pod of these tenants has these labels".into()),
    }
}

fn named_port(rule: &Rule, service: &Service, subjects: &[Hosts], report: &mut Report) {
    let Service::Named(protocol, name) = service else { return };
    let fits = |own: &Protocol| protocol.is_none_or(|wanted| wanted == *own);
    let mut pods = subjects.iter().flat_map(|hosts| hosts.tenant.pods());
    let is_there =
        pods.any(|pod| pod.named_ports.iter().any(|own| own.name.value == *name && fits(&own.protocol)));
    if !is_there && !subjects.is_empty() {
        let message = format!("no pod names a port {name}: the rule matches nothing by it");
        report.warning(rule.at, message).help("give the name in `namedPorts` of the tenant's port");
    }
}

fn cluster_policy(
    policy: &ClusterNetworkPolicy,
    documents: &Documents,
    scope: &mut Scope<'_>,
    report: &mut Report,
) {
    let is_subject = |hosts: &&Hosts| policy.tenants.selects(&hosts.tenant.labels);
    let subjects: Vec<Hosts> = scope.tenants.values().filter(is_subject).copied().collect();
    let is_all = !documents.unread.tenants && documents.tenants.iter().all(|tenant| tenant.is_whole);
    if !is_all {
        return;
    }
    let selects = |hosts: &Hosts| hosts.tenant.ports.iter().any(|port| policy.pods.selects(&port.labels));
    if !subjects.iter().any(selects) {
        report.warning(policy.name.at, "its subject is no port of any tenant: no rule here applies");
    }
    scope.peers(BOTH.iter().flat_map(|direction| policy.rules(*direction)), &subjects, report);
}

fn selected_pods(policy: &NetworkPolicy, tenant: &Tenant, report: &mut Report) {
    if !tenant.ports.iter().any(|port| policy.pods.selects(&port.labels)) {
        let message =
            format!("its podSelector is no port of tenant {}: no rule here applies", tenant.name.value);
        report.warning(policy.name.at, message);
    }
}

fn selected_ports(policy: &TenantPolicy, tenant: &Tenant, report: &mut Report) {
    match &policy.ports {
        PortSelector::All => {}
        PortSelector::Named(names) => {
            for name in names.iter().filter(|name| tenant.port(name).is_none()) {
                unknown_port_of(tenant, name, report);
            }
        }
        PortSelector::Labelled(labels) => {
            if !tenant.ports.iter().any(|port| has_labels(&port.labels, labels)) {
                let message =
                    format!("no port of tenant {} has these labels: no rule here applies", tenant.name.value);
                report.warning(labels.at, message);
            }
        }
    }
}

fn unknown_port_of(tenant: &Tenant, name: &Spanned<Name>, report: &mut Report) {
    let known = tenant.ports.iter().map(|port| &**port.port);
    unknown(&format!("port of tenant {}:", tenant.name.value), name, known, "the tenant lists none", report);
}
