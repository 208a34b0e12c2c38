//! What the peers of a tenant's rules mean, as prefixes.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use policy::{Labels, Peer, Pod, PrefixTag, Remote, Selector, Spanned, Tenant, TenantPort, has_labels};
use program::PeerBlock;

/// Tags, by name.
pub(crate) type Tags<'a> = BTreeMap<&'a str, &'a Arc<PrefixTag>>;

/// What the rules of a tenant can name.
pub(crate) struct Hosts<'a> {
    pub tenant: &'a Tenant,
    remotes: BTreeMap<&'a str, &'a Remote>,
    tags: &'a Tags<'a>,
}

impl<'a> Hosts<'a> {
    pub fn of(tenant: &'a Tenant, tags: &'a Tags<'a>) -> Self {
        let named = |remote: &'a Remote| remote.name.as_ref().map(|name| (&***name, remote));
        Self { tenant, remotes: tenant.remotes.iter().filter_map(named).collect(), tags }
    }

    /// The addresses that a peer means.
    pub fn blocks(&self, peer: &Peer) -> Vec<PeerBlock> {
        let whole = |net| PeerBlock { net, except: Vec::new() };
        match peer {
            Peer::IpBlock { cidr, except } => {
                vec![PeerBlock { net: cidr.value, except: except.iter().map(|part| part.value).collect() }]
            }
            Peer::Ports(labels) => {
                nets(self.ports(labels).flat_map(|port| &port.addresses)).map(whole).collect()
            }
            Peer::Remote(name) => {
                let remote = self.remotes.get(&*name.value).into_iter();
                remote.flat_map(|remote| remote_nets(remote)).map(whole).collect()
            }
            Peer::Tag(name) => self.tag(name).iter().map(|prefix| whole(prefix.value)).collect(),
            Peer::Tenant(name) if name.value == self.tenant.name.value => {
                let ports = nets(self.tenant.ports.iter().flat_map(|port| &port.addresses));
                ports.chain(self.tenant.remotes.iter().flat_map(remote_nets)).map(whole).collect()
            }
            Peer::Tenant(_) => Vec::new(),
            Peer::Pods { tenants, pods, .. } => {
                nets(self.pods(tenants.as_ref(), pods).flat_map(|pod| pod.addresses)).map(whole).collect()
            }
        }
    }

    /// How many prefixes and exceptions [`Self::blocks`] gives.
    pub fn count(&self, peer: &Peer) -> usize {
        let of_remote = |remote: &Remote| remote.addresses.len() + remote.prefixes.len();
        match peer {
            Peer::IpBlock { except, .. } => 1 + except.len(),
            Peer::Ports(labels) => self.ports(labels).map(|port| port.addresses.len()).sum(),
            Peer::Remote(name) => self.remotes.get(&*name.value).map_or(0, |remote| of_remote(remote)),
            Peer::Tag(name) => self.tag(name).len(),
            Peer::Tenant(name) if name.value == self.tenant.name.value => {
                let ports = self.tenant.ports.iter().map(|port| port.addresses.len());
                ports.chain(self.tenant.remotes.iter().map(of_remote)).sum()
            }
            Peer::Tenant(_) => 0,
            Peer::Pods { tenants, pods, .. } => {
                self.pods(tenants.as_ref(), pods).map(|pod| pod.addresses.len()).sum()
            }
        }
    }

    fn tag(&self, name: &str) -> &'a [Spanned<IpNet>] {
        self.tags.get(name).map_or(&[], |tag| &tag.prefixes)
    }

    fn ports(&self, labels: &'a Labels) -> impl Iterator<Item = &'a TenantPort> {
        self.tenant.ports.iter().filter(move |port| has_labels(&port.labels, labels))
    }

    /// Pods of this tenant: no packet comes from another one.
    fn pods(&self, tenants: Option<&Selector>, pods: &Selector) -> impl Iterator<Item = Pod<'a>> {
        let is_own = tenants.is_none_or(|wanted| wanted.selects(&self.tenant.labels));
        self.tenant.pods().filter(move |pod| is_own && pods.selects(pod.labels))
    }
}

fn nets<'a>(addresses: impl Iterator<Item = &'a Spanned<IpAddr>>) -> impl Iterator<Item = IpNet> {
    addresses.map(|address| address.value.into())
}

fn remote_nets(remote: &Remote) -> impl Iterator<Item = IpNet> {
    nets(remote.addresses.iter()).chain(remote.prefixes.iter().map(|prefix| prefix.value))
}
