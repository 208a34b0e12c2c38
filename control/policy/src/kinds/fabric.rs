//! Kind `Fabric`: the card's ports, its uplink and the remote tunnel endpoints.

use std::net::IpAddr;

use ipnet::IpNet;
use wire::Mac;

use crate::{
    Name, Position, Spanned,
    read::{Fields, Read, Report, not_a_host, number, quote, text, unexpected},
    suggest::did_you_mean,
    yaml::{Node, Value},
};

/// Smallest MTU in bytes: what every IPv4 host must take (RFC 791, section 3.1).
pub const MTU_BYTES_MIN: u16 = 576;
/// Largest MTU in bytes: the usual jumbo frame.
pub const MTU_BYTES_MAX: u16 = 9216;

const PORT_MTU_BYTES: u16 = 1500;
const UPLINK_MTU_BYTES: u16 = 1600;

/// One card: exactly one such document is needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fabric {
    /// Its name.
    pub name: Spanned<Name>,
    /// The devices that the daemon opens; the index is the port's id.
    pub ports: Vec<FabricPort>,
    /// The port towards the fabric.
    pub uplink: Uplink,
    /// Remote tunnel endpoints.
    pub vteps: Vec<Vtep>,
    /// Nothing in it was left out because of an error.
    pub(crate) is_whole: bool,
}

/// A device that the daemon opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricPort {
    /// The name that other documents use.
    pub name: Spanned<Name>,
    /// `dpdk:<devargs>`, `tap:<interface>`, `pcap:rx=<file>,tx=<file>` or `memory:`.
    pub device: Spanned<String>,
    /// Largest IP packet in bytes, when given; see [`Fabric::mtu_bytes`].
    pub mtu: Option<Spanned<u32>>,
}

/// The port towards the fabric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// Name of one of the ports.
    pub port: Spanned<Name>,
    /// Addresses of the local tunnel endpoint with the length of the on-link prefix.
    pub addresses: Vec<Spanned<InterfaceAddress>>,
    /// Next hops for endpoints that are not on link.
    pub gateways: Vec<Spanned<IpAddr>>,
    /// How the tunnel's DSCP is chosen.
    pub dscp: Dscp,
    /// Where it was written.
    pub at: Position,
}

/// An address of this box with the length of its on-link prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceAddress(pub IpNet);

/// How the tunnel's DSCP is chosen (RFC 2983).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dscp {
    /// From the inner header.
    #[default]
    Copy,
    /// Always this value, 0 to 63.
    Fixed(u8),
}

/// A remote tunnel endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vtep {
    /// The name that tenants use.
    pub name: Spanned<Name>,
    /// Where its tunnels end.
    pub address: Spanned<IpAddr>,
    /// The next hop's MAC; resolved by ARP or ND when absent.
    pub mac: Option<Spanned<Mac>>,
}

impl Fabric {
    /// The port of that name and its index.
    pub fn port(&self, name: &str) -> Option<(usize, &FabricPort)> {
        self.ports.iter().enumerate().find(|(_, port)| &**port.name == name)
    }

    /// The endpoint of that name.
    pub fn vtep(&self, name: &str) -> Option<&Vtep> {
        self.vteps.iter().find(|vtep| &**vtep.name == name)
    }

    /// True for the uplink's port.
    pub fn is_uplink(&self, port: &FabricPort) -> bool {
        *port.name == *self.uplink.port
    }

    /// Largest IP packet of a port, in bytes: 1500, or 1600 for the uplink, unless given.
    pub fn mtu_bytes(&self, port: &FabricPort) -> u16 {
        let default = if self.is_uplink(port) { UPLINK_MTU_BYTES } else { PORT_MTU_BYTES };
        port.mtu.and_then(|mtu| u16::try_from(*mtu).ok()).unwrap_or(default)
    }

    /// The address to resolve for packets to `endpoint`: its own when on link, else the gateway of its family. `None`
    /// when the uplink has no address of the family, or no gateway where one is needed.
    pub fn next_hop(&self, endpoint: IpAddr) -> Option<IpAddr> {
        let local = self.uplink.address_like(endpoint)?;
        if local.contains(&endpoint) {
            return Some(endpoint);
        }
        self.uplink.gateways.iter().map(|gateway| **gateway).find(|gateway| same_family(*gateway, endpoint))
    }
}

impl Uplink {
    /// The local address of the same family.
    pub fn address_like(&self, other: IpAddr) -> Option<IpNet> {
        self.addresses.iter().map(|address| address.value.0).find(|net| same_family(net.addr(), other))
    }
}

fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

impl Fabric {
    pub(crate) fn read(name: Spanned<Name>, spec: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(spec, "the spec of a Fabric", report)?;
        let ports = fields.required("ports");
        let uplink = fields.required("uplink");
        let vteps = fields.list("vteps");
        let is_whole = fields.finish();
        Some(Self { name, ports: ports?, uplink: uplink?, vteps, is_whole })
    }
}

impl Read for FabricPort {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a port", report)?;
        let name = fields.required("name");
        let device = fields.required_node("device");
        let mtu = fields.number("mtu", MTU_BYTES_MIN.into()..=MTU_BYTES_MAX.into());
        fields.finish();
        Some(Self { name: name?, device: read_device(device?, report)?, mtu })
    }
}

/// Checks the scheme; the rest belongs to the backend that opens it.
fn read_device(node: &Node, report: &mut Report) -> Option<Spanned<String>> {
    const EXPECTED: &str = "a device: dpdk:<devargs>, tap:<interface>, pcap:rx=<file>,tx=<file> or memory:";
    let text = text(node, EXPECTED, report)?;
    let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
    let problem = match scheme {
        "dpdk" if rest.is_empty() => {
            Some("a dpdk device needs devargs, such as dpdk:net_tap0,iface=red0".into())
        }
        "tap" if !is_interface(rest) => {
            Some("a tap device needs an interface name of 1 to 15 characters".into())
        }
        "pcap" if !rest.split(',').all(is_pcap_file) => {
            Some("a pcap device needs rx=<file>, tx=<file> or both, joined by a comma".into())
        }
        "memory" if !rest.is_empty() => Some("a memory device takes nothing after `memory:`".into()),
        "dpdk" | "tap" | "pcap" | "memory" if text.contains(':') => None,
        other => {
            let help = did_you_mean(other, ["dpdk", "tap", "pcap", "memory"]);
            report.error(node.at, format!("expected {EXPECTED}, found {}", quote(text))).help_if(help);
            return None;
        }
    };
    match problem {
        None => Some(Spanned { value: text.into(), at: node.at }),
        Some(problem) => {
            let problem: String = problem;
            report.error(node.at, problem);
            None
        }
    }
}

/// What Linux takes for the name of an interface (IFNAMSIZ, `dev_valid_name`).
fn is_interface(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':')
}

fn is_pcap_file(part: &str) -> bool {
    part.strip_prefix("rx=").or_else(|| part.strip_prefix("tx=")).is_some_and(|file| !file.is_empty())
}

impl Read for Uplink {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "the uplink", report)?;
        let port = fields.required("port");
        let addresses = fields.required("addresses");
        let gateways = fields.list("gateways");
        let dscp = fields.optional("dscp").unwrap_or_default();
        let at = fields.at();
        fields.finish();
        Some(Self { port: port?, addresses: addresses?, gateways, dscp, at })
    }
}

impl Read for InterfaceAddress {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        const EXPECTED: &str = "an address with its prefix length, such as 192.0.2.1/24";
        let text = text(node, EXPECTED, report)?;
        let Ok(net) = text.parse::<IpNet>() else { return unexpected(node, EXPECTED, report) };
        let is_network = net.addr() == net.network() && net.prefix_len() < net.max_prefix_len() - 1;
        let is_broadcast = net.addr().is_ipv4()
            && net.addr() == net.broadcast()
            && net.prefix_len() < net.max_prefix_len() - 1;
        let why = match not_a_host(net.addr()) {
            Some(why) => Some(why),
            None if is_network => Some("the address of the whole prefix"),
            None if is_broadcast => Some("the broadcast address of its prefix"),
            None => None,
        };
        match why {
            None => Some(Self(net)),
            Some(why) => {
                report.error(node.at, format!("address {} is {why}; no single host has it", net.addr()));
                None
            }
        }
    }
}

impl Read for Dscp {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Plain(text) | Value::Quoted(text) if text == "copy" => Some(Self::Copy),
            Value::Plain(text) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                number(node, 0..=63, report).map(|value| Self::Fixed(*value as u8))
            }
            _ => unexpected(node, "`copy` or a number from 0 to 63", report),
        }
    }
}

impl Read for Vtep {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a vtep", report)?;
        let name = fields.required("name");
        let address = fields.required("address");
        let mac = fields.optional("mac");
        fields.finish();
        Some(Self { name: name?, address: address?, mac })
    }
}
