//! The documents that a tenant's rules are made of, and whether they are those of the last time.

use std::{collections::BTreeSet, iter::once, sync::Arc};

use policy::{
    ClusterNetworkPolicy, Direction, Name, NetworkPolicy, Peer, Policy, Position, PrefixTag, Tenant,
    TenantPolicy,
};

use crate::{hosts::Tags, ids::ByKey};

/// The documents that speak of one tenant, each in its order.
pub(crate) struct Documents<'a> {
    pub tenant: &'a Arc<Tenant>,
    pub policies: &'a [Arc<TenantPolicy>],
    pub networks: &'a [Arc<NetworkPolicy>],
    pub clusters: Vec<&'a Arc<ClusterNetworkPolicy>>,
}

/// The documents of a policy, told apart by whose they are.
pub(crate) struct ByTenant<'a> {
    policies: ByKey<&'a Name, &'a [Arc<TenantPolicy>]>,
    networks: ByKey<&'a Name, &'a [Arc<NetworkPolicy>]>,
    clusters: &'a [Arc<ClusterNetworkPolicy>],
}

impl<'a> ByTenant<'a> {
    pub fn of(policy: &'a Policy) -> Self {
        Self {
            policies: grouped(&policy.policies, |policy| &policy.tenant.value),
            networks: grouped(&policy.network_policies, |policy| &policy.tenant.value),
            clusters: &policy.cluster_policies,
        }
    }
}

/// The parts of a list that is sorted by tenant.
fn grouped<T>(list: &[Arc<T>], tenant: impl Fn(&T) -> &Name) -> ByKey<&Name, &[Arc<T>]> {
    let groups = list.chunk_by(|a, b| tenant(a) == tenant(b));
    groups.filter_map(|group| Some((tenant(group.first()?), group))).collect()
}

impl<'a> Documents<'a> {
    pub fn of(all: &ByTenant<'a>, tenant: &'a Arc<Tenant>) -> Self {
        let name = &tenant.name.value;
        let clusters = all.clusters.iter();
        Self {
            tenant,
            policies: all.policies.get(name).copied().unwrap_or_default(),
            networks: all.networks.get(name).copied().unwrap_or_default(),
            clusters: clusters.filter(|policy| policy.tenants.selects(&tenant.labels)).collect(),
        }
    }

    /// Where each stands.
    fn positions(&self) -> impl Iterator<Item = Position> {
        let policies = self.policies.iter().map(|policy| policy.name.at);
        let networks = self.networks.iter().map(|policy| policy.name.at);
        let clusters = self.clusters.iter().map(|policy| policy.name.at);
        once(self.tenant.name.at).chain(policies).chain(networks).chain(clusters)
    }

    /// The tags that the rules name, by name.
    fn tags<'t>(&self, tags: &Tags<'t>) -> Vec<&'t Arc<PrefixTag>> {
        let both = [Direction::Egress, Direction::Ingress];
        let policies = self.policies.iter().flat_map(|policy| both.map(|direction| policy.rules(direction)));
        let clusters = self.clusters.iter().flat_map(|policy| both.map(|direction| policy.rules(direction)));
        let rules = policies.chain(clusters).flatten();
        let named = rules.flat_map(|rule| rule.peers.iter().flatten()).filter_map(|peer| match peer {
            Peer::Tag(name) => Some(&*name.value),
            _ => None,
        });
        let names: BTreeSet<&str> = named.collect();
        names.into_iter().filter_map(|name| tags.get(name).copied()).collect()
    }
}

/// Everything that the rules of a tenant are made of.
#[derive(Debug)]
pub(crate) struct Inputs {
    tenant: Arc<Tenant>,
    policies: Vec<Arc<TenantPolicy>>,
    networks: Vec<Arc<NetworkPolicy>>,
    clusters: Vec<Arc<ClusterNetworkPolicy>>,
    tags: Vec<Arc<PrefixTag>>,
    /// The files of the documents but for the tags: a position has a number only.
    files: Vec<Arc<str>>,
}

impl Inputs {
    pub fn of(policy: &Policy, documents: &Documents, tags: &Tags) -> Self {
        Self {
            tenant: documents.tenant.clone(),
            policies: documents.policies.to_vec(),
            networks: documents.networks.to_vec(),
            clusters: documents.clusters.iter().copied().cloned().collect(),
            tags: documents.tags(tags).into_iter().cloned().collect(),
            files: documents.positions().map(|at| policy.sources[at.source as usize].clone()).collect(),
        }
    }

    /// True when these documents say the same and stand in the same places.
    pub fn are(&self, policy: &Policy, documents: &Documents, tags: &Tags) -> bool {
        let is_tag = |own: &Arc<PrefixTag>| tags.get(&*own.name.value).is_some_and(|tag| says_same(own, tag));
        is_same(&self.tenant, documents.tenant)
            && all_same(&self.policies, documents.policies.iter())
            && all_same(&self.networks, documents.networks.iter())
            && all_same(&self.clusters, documents.clusters.iter().copied())
            && self.tags.iter().all(is_tag)
            && self.files.iter().eq(documents.positions().map(|at| &policy.sources[at.source as usize]))
    }
}

fn all_same<'a, T: PartialEq + 'a>(
    own: &[Arc<T>],
    others: impl ExactSizeIterator<Item = &'a Arc<T>>,
) -> bool {
    own.len() == others.len() && own.iter().zip(others).all(|(own, other)| is_same(own, other))
}

/// Where a tag stands is told by no rule.
fn says_same(a: &Arc<PrefixTag>, b: &Arc<PrefixTag>) -> bool {
    let values = |tag: &'_ PrefixTag| tag.prefixes.iter().map(|prefix| prefix.value).collect::<Vec<_>>();
    Arc::ptr_eq(a, b) || values(a) == values(b)
}

/// A file that is read again gives documents that say what they said.
fn is_same<T: PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}
