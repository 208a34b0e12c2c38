//! Kind `Tenant`: a VNI, a gateway, and where the tenant's addresses live.

use std::net::IpAddr;

use ipnet::IpNet;
use program::{Connections, MidStream, Windows};
use wire::Mac;

use crate::{
    Labels, Name, Position, Protocol, Roce, Spanned,
    kinds::network_policy::is_port_name,
    limit::TENANT_PORTS_MAX,
    read::{Fields, Read, Report, quote, word},
    yaml::Node,
};

/// Flow entries of one tenant in one worker, unless given.
pub const FLOW_QUOTA_DEFAULT: u32 = 65_536;
/// Most flow entries of one tenant in one worker that can be asked for.
pub const FLOW_QUOTA_MAX: u32 = 1 << 24;
/// Datagrams in fragments of one tenant in one worker, unless given.
pub const FRAGMENT_QUOTA_DEFAULT: u32 = 1_024;
/// Most datagrams in fragments of one tenant in one worker that can be asked for.
pub const FRAGMENT_QUOTA_MAX: u32 = 8_192;

/// Queue pairs of one tenant that one worker knows, unless given.
pub const QUEUE_PAIR_QUOTA_DEFAULT: u32 = 4_096;
/// Most queue pairs of one tenant that one worker can be asked to know.
pub const QUEUE_PAIR_QUOTA_MAX: u32 = 1 << 24;

/// The label that every tenant has: its name.
pub const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

const VNI_MAX: u32 = 0xff_ffff;

/// One tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its name.
    pub name: Spanned<Name>,
    /// What policies of Kubernetes select it by, [`NAMESPACE_LABEL`] among them.
    pub labels: Labels,
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
    /// Most datagrams in fragments in one worker.
    pub fragment_quota: u32,
    /// How strictly its TCP connections are followed.
    pub connections: Connections,
    /// Most queue pairs that one worker knows.
    pub queue_pair_quota: u32,
    /// How its RoCEv2 is treated beyond its rules.
    pub roce: Roce,
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
    /// Names for what its host listens on.
    pub named_ports: Vec<NamedPort>,
}

/// A name for a port that a host listens on, as `containerPort` has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedPort {
    /// The name, unique on its host.
    pub name: Spanned<String>,
    /// The protocol.
    pub protocol: Protocol,
    /// The number.
    pub port: u16,
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
    /// What policies of Kubernetes select it by. Without labels it is none of their pods.
    pub labels: Option<Labels>,
    /// Names for what it listens on.
    pub named_ports: Vec<NamedPort>,
    /// Where it was written.
    pub at: Position,
}

/// A host of a tenant, as policies of Kubernetes see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pod<'a> {
    /// Its addresses.
    pub addresses: &'a [Spanned<IpAddr>],
    /// What it is selected by.
    pub labels: &'a Labels,
    /// Names for what it listens on.
    pub named_ports: &'a [NamedPort],
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

    /// What policies of Kubernetes see of the tenant: its ports, and its remotes that have labels.
    pub fn pods(&self) -> impl Iterator<Item = Pod<'_>> {
        let ports = self.ports.iter().map(|port| Pod {
            addresses: &port.addresses,
            labels: &port.labels,
            named_ports: &port.named_ports,
        });
        let remotes = self.remotes.iter().filter_map(|remote| {
            let labels = remote.labels.as_ref()?;
            Some(Pod { addresses: &remote.addresses, labels, named_ports: &remote.named_ports })
        });
        ports.chain(remotes)
    }

    /// The remote host of that name.
    pub fn remote(&self, name: &str) -> Option<&Remote> {
        self.remotes.iter().find(|remote| remote.name.as_ref().is_some_and(|own| &***own == name))
    }

    pub(crate) fn read(
        name: Spanned<Name>,
        mut labels: Labels,
        spec: &Node,
        report: &mut Report,
    ) -> Option<Self> {
        labels.insert(NAMESPACE_LABEL.into(), name.to_string());
        let mut fields = Fields::of(spec, "the spec of a Tenant", report)?;
        let vni = fields.required_number("vni", 1..=VNI_MAX);
        let gateway: Option<GivenGateway> = fields.optional("gateway");
        let ports = read_ports(&mut fields);
        let remotes = fields.list("remotes");
        let Quota { flows: flow_quota, fragments: fragment_quota, queue_pairs: queue_pair_quota } =
            fields.optional("quota").unwrap_or_default();
        let connections = fields.optional("connections").map_or_else(Connections::default, |Given(it)| it);
        let roce = fields.optional("roce").unwrap_or_default();
        let is_whole = fields.finish();
        let vni = vni?;
        let gateway = gateway.unwrap_or_default().of(vni);
        Some(Self {
            name,
            labels,
            vni,
            gateway,
            ports,
            remotes,
            flow_quota,
            fragment_quota,
            queue_pair_quota,
            connections,
            roce,
            is_whole,
        })
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
        let named_ports = fields.list("namedPorts");
        fields.finish();
        Some(Self { port: port?, mac: mac?, addresses: addresses?, labels, named_ports })
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
        let labels = fields.optional("labels");
        let named_ports = fields.list("namedPorts");
        let at = fields.at();
        fields.finish();
        Some(Self { name, vtep: vtep?, mac: mac?, addresses: addresses?, prefixes, labels, named_ports, at })
    }
}

impl Read for NamedPort {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a named port", report)?;
        let name: Option<Spanned<String>> = fields.required("name");
        let protocol = fields.required("protocol");
        let port = fields.required_number("port", 1..=u16::MAX.into());
        fields.finish();
        let name = name?;
        if !is_port_name(&name.value) {
            report
                .error(name.at, format!("{} cannot be a port's name", quote(&name.value)))
                .help("use up to 15 lower-case letters, digits and `-`, with a letter among them");
            return None;
        }
        Some(Self { name, protocol: protocol?, port: u16::try_from(*port?).ok()? })
    }
}

/// `connections` as a file gives it.
struct Given(Connections);

impl Read for Given {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "the connections", report)?;
        let mid_stream = fields.optional("midStream").map(|MidStreamWord(word)| word).unwrap_or_default();
        let windows = fields.optional("windows").map(|WindowsWord(word)| word).unwrap_or_default();
        fields.finish();
        Some(Self(Connections { mid_stream, windows }))
    }
}

struct MidStreamWord(MidStream);

impl Read for MidStreamWord {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let words = [("Accept", MidStream::Accept), ("Deny", MidStream::Deny)];
        word(node, "what becomes of a connection met in its middle", &words, report).map(Self)
    }
}

struct WindowsWord(Windows);

impl Read for WindowsWord {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let words = [("Strict", Windows::Strict), ("Loose", Windows::Loose)];
        word(node, "what becomes of a segment outside the windows", &words, report).map(Self)
    }
}

struct Quota {
    flows: u32,
    fragments: u32,
    queue_pairs: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            flows: FLOW_QUOTA_DEFAULT,
            fragments: FRAGMENT_QUOTA_DEFAULT,
            queue_pairs: QUEUE_PAIR_QUOTA_DEFAULT,
        }
    }
}

impl Read for Quota {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "the quota", report)?;
        let flows = fields.number("flows", 1..=FLOW_QUOTA_MAX);
        let fragments = fields.number("fragments", 1..=FRAGMENT_QUOTA_MAX);
        let queue_pairs = fields.number("queuePairs", 1..=QUEUE_PAIR_QUOTA_MAX);
        fields.finish();
        let or = |given: Option<Spanned<u32>>, default| given.map_or(default, |given| given.value);
        Some(Self {
            flows: or(flows, FLOW_QUOTA_DEFAULT),
            fragments: or(fragments, FRAGMENT_QUOTA_DEFAULT),
            queue_pairs: or(queue_pairs, QUEUE_PAIR_QUOTA_DEFAULT),
        })
    }
}
