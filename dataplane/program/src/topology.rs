//! Who is where: devices, uplink, tunnel endpoints, tenants, their ports and their addresses.

use std::net::IpAddr;

use ipnet::IpNet;
use wire::Mac;

use crate::{Hop, PortId, RuleListId, TenantId, Vni, VtepId};

/// A device that the daemon opens at start, under the name that policy files use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The name in policy files, metrics and `show`.
    pub name: String,
    /// What to open: `dpdk:<devargs>`, `tap:<interface>`, `pcap:rx=<file>,tx=<file>` or `memory:`.
    pub device: String,
    /// Largest IP packet that it carries, in bytes.
    pub mtu: u16,
}

/// What becomes of the tunnel's DSCP (RFC 2983: uniform or pipe model).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DscpMode {
    /// The outer header takes the inner value.
    #[default]
    Copy,
    /// The outer header takes this value, 0 to 63.
    Fixed(u8),
}

/// The port towards the fabric, and the tunnel endpoint that this box is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// Which device.
    pub port: PortId,
    /// Addresses of the local tunnel endpoint with the length of the on-link prefix: at most one of each family.
    pub addresses: Vec<IpNet>,
    /// Next hops for tunnel endpoints that are not on link: at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// How outer DSCP is chosen.
    pub dscp: DscpMode,
}

/// A remote tunnel endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vtep {
    /// The name in policy files.
    pub name: String,
    /// Where its tunnels end.
    pub address: IpAddr,
    /// The address to resolve on the uplink: its own when on link, else a gateway.
    pub next_hop: IpAddr,
    /// The next hop's MAC when the files give it; else it is resolved by ARP or ND.
    pub mac: Option<Mac>,
}

/// One tenant: a VNI, a gateway, and where its addresses live.
#[derive(Clone, PartialEq, Debug)]
pub struct Tenant {
    /// Its own index.
    pub id: TenantId,
    /// The name in policy files.
    pub name: String,
    /// The tenant's segment on the fabric.
    pub vni: Vni,
    /// The MAC that floodway answers with for the gateway's addresses.
    pub gateway_mac: Mac,
    /// Addresses of the tenant's gateway, which floodway plays.
    pub gateways: Vec<IpAddr>,
    /// Every host of the tenant, here and elsewhere, sorted by address; an address occurs once.
    pub endpoints: Vec<Endpoint>,
    /// Prefixes behind remote hosts, longest first, each once; asked after `endpoints`.
    pub routes: Vec<Route>,
    /// Most flow entries of this tenant in all workers together.
    pub flow_quota: u32,
    /// Most datagrams of this tenant in one worker of which some fragments have come.
    pub fragment_quota: u32,
    /// How strictly its TCP connections are followed.
    pub connections: Connections,
    /// Most queue pairs of this tenant that all workers together know.
    pub queue_pair_quota: u32,
    /// How its RoCEv2 is treated beyond its rules.
    pub roce: Roce,
}

/// How strictly TCP connections are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Connections {
    /// What becomes of a connection whose beginning was not seen.
    pub mid_stream: MidStream,
    /// What becomes of a segment outside the windows.
    pub windows: Windows,
}

/// What becomes of a TCP connection whose beginning was not seen: the daemon was started anew, or its entry is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MidStream {
    /// Rules decide, and its windows are not checked.
    #[default]
    Accept,
    /// Its segments are dropped: the hosts have to open it anew.
    Deny,
}

/// What becomes of a TCP segment outside the windows of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Windows {
    /// It is dropped.
    #[default]
    Strict,
    /// It is counted and passes; the connection's windows are not checked from then on.
    Loose,
}

/// What a tenant asks for its RoCEv2 beyond its rules. Rules are asked first: nothing here lets in what they refuse.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Roce {
    /// How queue pairs become known.
    pub learn: Learn,
    /// What becomes of a packet that rules allow and that belongs to no known queue pair.
    pub unknown_qp: UnknownQp,
    /// What becomes of a packet whose opcode does not follow that of the packet before it.
    pub order: Order,
}

/// How queue pairs become known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Learn {
    /// From the connection manager's messages, and from requests that rules allow.
    #[default]
    Traffic,
    /// From the connection manager's messages alone.
    ConnectionManager,
}

/// What becomes of a packet to an unknown queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum UnknownQp {
    /// Rules suffice.
    #[default]
    Accept,
    /// It is dropped.
    Deny,
}

/// What becomes of a packet out of order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Order {
    /// It is counted.
    #[default]
    Count,
    /// It is counted and dropped.
    Drop,
}

impl Tenant {
    /// The host of that address.
    pub fn endpoint(&self, address: IpAddr) -> Option<&Endpoint> {
        let index = self.endpoints.binary_search_by_key(&address, |endpoint| endpoint.address).ok()?;
        Some(&self.endpoints[index])
    }

    /// Where packets to `address` may go: to the host of that address, else to one of the hops of the longest prefix
    /// that holds it. Nowhere when there is none; [`crate::Flow::choose`] says which of several.
    pub fn locate(&self, address: IpAddr) -> &[Hop] {
        let route = || self.routes.iter().find(|route| route.prefix.contains(&address));
        match self.endpoint(address) {
            Some(endpoint) => std::slice::from_ref(&endpoint.hop),
            None => route().map_or(&[], |route| &route.hops),
        }
    }
}

/// Where a host of a tenant is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Behind a port of this box.
    Port(PortId),
    /// Behind a remote tunnel endpoint.
    Vtep(VtepId),
}

/// A host of a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its MAC and where it is.
    pub hop: Hop,
}

/// A prefix behind remote hosts of a tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The addresses meant.
    pub prefix: IpNet,
    /// The remote hosts, of which each flow takes one: at least one, at most [`crate::limit::HOPS`].
    pub hops: Vec<Hop>,
}

/// A tenant's port on this box.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its own index.
    pub id: PortId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The only source MAC that it may use.
    pub mac: Mac,
    /// The only source addresses that it may use.
    pub addresses: Vec<IpAddr>,
    /// Largest IP packet that it takes, in bytes.
    pub mtu: u16,
    /// Rules for what the port sends.
    pub egress: RuleListId,
    /// Rules for what the port is sent.
    pub ingress: RuleListId,
}
