//! Kind `Tenant`: a VNI, a gateway, and where the tenant's addresses live.

use std::net::IpAddr;

use ipnet::IpNet;
use wire::Mac;

use crate::{
    Labels, Name, Position, Spanned,
    limit::TENANT_PORTS_MAX,
    read::{Fields, Read, Report},
    yaml::Node,
};

/// Flow entries of one tenant in one worker, unless given.
pub const FLOW_QUOTA_DEFAULT: u32 = 65_536;
/// Most flow entries of one tenant in one worker that can be asked for.
pub const FLOW_QUOTA_MAX: u32 = 1 << 24;

const VNI_MAX: u32 = 0xff_ffff;

/// One tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its name.
    pub name: Spanned<Name>,
    /// Its segment on the fabric, 1 to 0xffffff.
    pub vni: Spanned<u32>,
    /// The gateway that floodway plays for it.
    pub gateway: Gateway,
    /// Its ports on this card.
    pub ports: Vec<TenantPort>,
    /// Its hosts elsewhere.
    pub remotes: Vec<Remote>,
    /// Most flow entries in one worker.
    pub flow_quota: u32,
    /// Nothing in it was left out because of an error.
    pub(crate) is_whole: bool,
}

/// The gateway that floodway plays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gateway {
    /// Its MAC; by default made from the VNI, see [`default_gateway_mac`].
    pub mac: Spanned<Mac>,
    /// Its addresses; none means that the tenant has no gateway.
    pub addresses: Vec<Spanned<IpAddr>>,
}

/// A tenant's port on this card, and the host behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantPort {
    /// Name of a port of the Fabric.
    pub port: Spanned<Name>,
    /// The host's MAC, the only one that it may send from.
    pub mac: Spanned<Mac>,
    /// The host's addresses, the only ones that it may send from.
    pub addresses: Vec<Spanned<IpAddr>>,
    /// What policies select it by.
    pub labels: Labels,
}

/// A tenant's host behind a remote tunnel endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The name that policies use.
    pub name: Option<Spanned<Name>>,
    /// Name of an endpoint of the Fabric.
    pub vtep: Spanned<Name>,
    /// The host's MAC.
    pub mac: Spanned<Mac>,
    /// The host's addresses.
    pub addresses: Vec<Spanned<IpAddr>>,
    /// Prefixes that are routed to the host.
    pub prefixes: Vec<Spanned<IpNet>>,
    /// Where it was written.
    pub at: Position,
}

/// `02:fd:vv:vv:vv:01` with the three bytes of the VNI: locally administered, and different for each tenant.
pub const fn default_gateway_mac(vni: u32) -> Mac {
    let [_, high, middle, low] = vni.to_be_bytes();
    Mac([0x02, 0xfd, high, middle, low, 0x01])
}

impl Tenant {
    /// The port of that name.
    pub fn port(&self, name: &str) -> Option<&TenantPort> {
        self.ports.iter().find(|port| &**port.port == name)
    }

    /// The remote host of that name.
    pub fn remote(&self, name: &str) -> Option<&Remote> {
        self.remotes.iter().find(|remote| remote.name.as_ref().is_some_and(|own| &***own == name))
    }

    pub(crate) fn read(name: Spanned<Name>, spec: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(spec, "the spec of a Tenant", report)?;
        let vni = fields.required_number("vni", 1..=VNI_MAX);
        let gateway: Option<GivenGateway> = fields.optional("gateway");
        let ports = read_ports(&mut fields);
        let remotes = fields.list("remotes");
        let quota = fields.optional("quota").unwrap_or(Quota { flows: FLOW_QUOTA_DEFAULT });
        let is_whole = fields.finish();
        let vni = vni?;
        let gateway = gateway.unwrap_or_default().of(vni);
        Some(Self { name, vni, gateway, ports, remotes, flow_quota: quota.flows, is_whole })
    }
}

fn read_ports(fields: &mut Fields) -> Vec<TenantPort> {
    let mut ports: Vec<TenantPort> = fields.list("ports");
    if let Some(port) = ports.get(TENANT_PORTS_MAX) {
        let message = format!(
            "a tenant has at most {TENANT_PORTS_MAX} ports on one card; this one has {}",
            ports.len()
        );
        fields.report.error(port.port.at, message);
        ports.truncate(TENANT_PORTS_MAX);
    }
    ports
}

/// The gateway as written.
#[derive(Default)]
struct GivenGateway {
    mac: Option<Spanned<Mac>>,
    addresses: Vec<Spanned<IpAddr>>,
}

impl GivenGateway {
    fn of(self, vni: Spanned<u32>) -> Gateway {
        let mac = self.mac.unwrap_or(Spanned { value: default_gateway_mac(*vni), at: vni.at });
        Gateway { mac, addresses: self.addresses }
    }
}

impl Read for GivenGateway {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "the gateway", report)?;
        let mac = fields.optional("mac");
        let addresses = fields.required("addresses");
        fields.finish();
        Some(Self { mac, addresses: addresses? })
    }
}

impl Read for TenantPort {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a tenant's port", report)?;
        let port = fields.required("port");
        let mac = fields.required("mac");
        let addresses = fields.required("addresses");
        let labels = fields.optional("labels").unwrap_or_default();
        fields.finish();
        Some(Self { port: port?, mac: mac?, addresses: addresses?, labels })
    }
}

impl Read for Remote {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a remote", report)?;
        let name = fields.optional("name");
        let vtep = fields.required("vtep");
        let mac = fields.required("mac");
        let addresses = fields.required("addresses");
        let prefixes = fields.list("prefixes");
        let at = fields.at();
        fields.finish();
        Some(Self { name, vtep: vtep?, mac: mac?, addresses: addresses?, prefixes, at })
    }
}

struct Quota {
    flows: u32,
}

impl Read for Quota {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "the quota", report)?;
        let flows = fields.required_number("flows", 1..=FLOW_QUOTA_MAX);
        fields.finish();
        Some(Self { flows: *flows? })
    }
}
