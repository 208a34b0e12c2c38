//! A world of two tenants as plain data, its documents, and the slow evaluator.

use std::{fmt::Write, net::IpAddr};

use policy::Source;
use program::Service;
use proptest::{collection::vec, option, prelude::*};

#[derive(Clone, Debug)]
pub struct World {
    pub tenants: Vec<Tenant>,
}

#[derive(Clone, Debug)]
pub struct Tenant {
    /// The label `role` of each port.
    pub ports: Vec<u8>,
    pub policies: Vec<Policy>,
}

#[derive(Clone, Debug)]
pub struct Policy {
    priority: u16,
    ports: Option<Select>,
    egress: Vec<Rule>,
    ingress: Vec<Rule>,
}

#[derive(Clone, Debug)]
enum Select {
    Names(Vec<bool>),
    Role(u8),
}

#[derive(Clone, Debug)]
struct Rule {
    accept: bool,
    peers: Option<Vec<Peer>>,
    services: Option<Vec<Wanted>>,
}

#[derive(Clone, Debug)]
enum Peer {
    /// Family, address bits of the last two bytes, prefix length counted from 16 bits before the end, exceptions as
    /// prefixes of the same address.
    Block {
        v6: bool,
        bits: u16,
        len: u8,
        except: Vec<u8>,
    },
    Role(u8),
    Remote,
}

#[derive(Clone, Debug)]
enum Wanted {
    /// Protocol (6, 17 or 132) and ports.
    Ports(u8, Option<(u16, u16)>),
    /// Protocol (1 or 58), type and code.
    Icmp(u8, Option<(u8, Option<u8>)>),
    Roce(Option<(u32, u32)>),
    Number(u8),
}

/// What a rule looks at.
#[derive(Clone, Debug)]
pub struct Packet {
    pub peer: IpAddr,
    protocol: u8,
    /// Destination port; or type and code; or queue pair.
    port: u16,
    icmp: (u8, u8),
    queue_pair: u32,
    is_fragment: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Side {
    Egress,
    Ingress,
}

pub fn world() -> impl Strategy<Value = World> {
    vec(tenant(), 1..3).prop_map(|tenants| World { tenants })
}

fn tenant() -> impl Strategy<Value = Tenant> {
    (vec(0..2u8, 1..4), vec(policy(), 0..5)).prop_map(|(ports, policies)| Tenant { ports, policies })
}

fn policy() -> impl Strategy<Value = Policy> {
    let select = prop_oneof![vec(any::<bool>(), 3).prop_map(Select::Names), (0..3u8).prop_map(Select::Role)];
    (0..3u16, option::of(select), vec(rule(), 0..5), vec(rule(), 0..5))
        .prop_map(|(priority, ports, egress, ingress)| Policy { priority, ports, egress, ingress })
}

fn rule() -> impl Strategy<Value = Rule> {
    (any::<bool>(), option::of(vec(peer(), 0..3)), option::of(vec(wanted(), 0..4)))
        .prop_map(|(accept, peers, services)| Rule { accept, peers, services })
}

fn peer() -> impl Strategy<Value = Peer> {
    let except = vec(0..=16u8, 0..3);
    prop_oneof![
        3 => (any::<bool>(), bits(), 0..=16u8, except).prop_map(|(v6, bits, len, except)| Peer::Block { v6, bits, len, except }),
        1 => (0..3u8).prop_map(Peer::Role),
        1 => Just(Peer::Remote),
    ]
}

/// Few addresses, so that packets and rules meet.
fn bits() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0x0010), Just(0x0011), Just(0x0020), Just(0x0200), Just(0x02ff), 0..0x400u16]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let range = (port(), port()).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let queue_pairs = (0..40u32, 0..40u32).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        4 => (prop::sample::select(vec![6u8, 17, 132]), option::of(range)).prop_map(|(p, range)| Wanted::Ports(p, range)),
        2 => (prop::sample::select(vec![1u8, 58]), option::of((0..3u8, option::of(0..3u8)))).prop_map(|(p, kind)| Wanted::Icmp(p, kind)),
        2 => option::of(queue_pairs).prop_map(Wanted::Roce),
        1 => protocol().prop_map(Wanted::Number),
    ]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![Just(80u16), Just(443), Just(4790), Just(4791), Just(4792), Just(65535), 1..=65535u16]
}

fn protocol() -> impl Strategy<Value = u8> {
    prop_oneof![Just(6u8), Just(17), Just(132), Just(1), Just(58), Just(47), any::<u8>()]
}

pub fn packet() -> impl Strategy<Value = Packet> {
    (any::<bool>(), bits(), protocol(), port(), (0..3u8, 0..3u8), 0..40u32, any::<bool>()).prop_map(
        |(v6, bits, protocol, port, icmp, queue_pair, is_fragment)| Packet {
            peer: address(v6, bits),
            protocol,
            port,
            icmp,
            queue_pair,
            is_fragment,
        },
    )
}

fn address(v6: bool, bits: u16) -> IpAddr {
    let [high, low] = bits.to_be_bytes();
    if v6 { format!("fd00::{bits:x}").parse().unwrap() } else { IpAddr::from([10, 1, high, low]) }
}

impl Packet {
    pub fn service(&self) -> Service {
        match self.protocol {
            _ if self.is_fragment => Service::Opaque(self.protocol),
            6 => Service::Tcp(self.port),
            17 if self.port == 4791 => Service::Roce(self.queue_pair),
            17 => Service::Udp(self.port),
            132 => Service::Sctp(self.port),
            1 if self.peer.is_ipv4() => Service::Icmp(self.icmp.0, self.icmp.1),
            58 if self.peer.is_ipv6() => Service::Icmpv6(self.icmp.0, self.icmp.1),
            other => Service::Opaque(other),
        }
    }

    /// True for a packet of which no more than the protocol can be seen.
    fn is_opaque(&self) -> bool {
        let icmp = if self.peer.is_ipv4() { 1 } else { 58 };
        self.is_fragment || !matches!(self.protocol, 6 | 17 | 132) && self.protocol != icmp
    }
}

pub fn port_name(tenant: usize, port: usize) -> String {
    format!("t{tenant}p{port}")
}

const REMOTE: u16 = 0x0020;
/// 10.1.2.0/24 and fd00::200/120 are behind the remote.
const ROUTED: u16 = 0x0200;

fn port_bits(port: usize) -> u16 {
    0x0010 + port as u16
}

impl World {
    /// Verdict, and `file:line` of the rule that gave it.
    pub fn decide(&self, tenant: usize, port: usize, side: Side, packet: &Packet) -> (bool, Option<String>) {
        let own = &self.tenants[tenant];
        let mut order: Vec<usize> =
            (0..own.policies.len()).filter(|index| own.selects(*index, port)).collect();
        // Policies are named in the order of their index.
        order.sort_by_key(|index| own.policies[*index].priority);
        for index in order {
            let policy = &own.policies[index];
            let rules = if side == Side::Egress { &policy.egress } else { &policy.ingress };
            for (number, rule) in rules.iter().enumerate() {
                if own.matches(rule, packet) {
                    return (rule.accept, Some(self.line_of(tenant, index, side, number)));
                }
            }
        }
        (false, None)
    }

    fn line_of(&self, tenant: usize, policy: usize, side: Side, number: usize) -> String {
        let mark = mark(policy, side, number);
        let file = format!("t{tenant}.yaml");
        let text =
            String::from_utf8(self.sources().iter().find(|s| s.name == file).unwrap().bytes.clone()).unwrap();
        let line = text.lines().position(|line| line.ends_with(&mark)).unwrap() + 1;
        format!("{file}:{line}")
    }

    pub fn sources(&self) -> Vec<Source> {
        let mut ports = String::from("    - {name: up, device: 'memory:', mtu: 9000}\n");
        for (index, tenant) in self.tenants.iter().enumerate() {
            for port in 0..tenant.ports.len() {
                writeln!(ports, "    - {{name: {}, device: 'memory:'}}", port_name(index, port)).unwrap();
            }
        }
        let fabric = format!(
            "{HEAD}kind: Fabric\nmetadata: {{name: box}}\nspec:\n  ports:\n{ports}  uplink: {{port: up, addresses: [192.0.2.1/24]}}\n  vteps: [{{name: far, address: 192.0.2.2}}]\n"
        );
        let tenants = self.tenants.iter().enumerate();
        let tenants = tenants.map(|(index, tenant)| (format!("t{index}.yaml"), tenant.document(index)));
        let files = std::iter::once(("fabric.yaml".to_string(), fabric)).chain(tenants);
        files.map(|(name, text)| Source { name, bytes: text.into() }).collect()
    }
}

const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

/// A comment that finds the rule's line again.
fn mark(policy: usize, side: Side, number: usize) -> String {
    format!("# {policy} {side:?} {number}")
}

impl Tenant {
    fn selects(&self, policy: usize, port: usize) -> bool {
        match &self.policies[policy].ports {
            None => true,
            Some(Select::Names(chosen)) => chosen[port],
            Some(Select::Role(role)) => self.ports[port] == *role,
        }
    }

    fn matches(&self, rule: &Rule, packet: &Packet) -> bool {
        let peer =
            rule.peers.as_ref().is_none_or(|peers| peers.iter().any(|peer| self.is_peer(peer, packet.peer)));
        let services = rule.services.as_ref();
        peer && services
            .is_none_or(|wanted| wanted.iter().any(|wanted| is_wanted(wanted, packet, rule.accept)))
    }

    fn is_peer(&self, peer: &Peer, address: IpAddr) -> bool {
        match peer {
            Peer::Block { v6, bits, len, except } => {
                let has = |len: u8| in_prefix(address, *v6, *bits, len);
                has(*len) && !except.iter().any(|more| has((*len).max(*more)))
            }
            Peer::Role(role) => (0..self.ports.len()).any(|port| {
                self.ports[port] == *role
                    && [true, false].iter().any(|v6| self::address(*v6, port_bits(port)) == address)
            }),
            Peer::Remote => [true, false]
                .iter()
                .any(|v6| self::address(*v6, REMOTE) == address || in_prefix(address, *v6, ROUTED, 8)),
        }
    }

    fn document(&self, index: usize) -> String {
        let mut text = format!(
            "{HEAD}kind: Tenant\nmetadata: {{name: t{index}}}\nspec:\n  vni: {}\n  ports:\n",
            index + 1
        );
        for (port, role) in self.ports.iter().enumerate() {
            let (v4, v6) = (address(false, port_bits(port)), address(true, port_bits(port)));
            let name = port_name(index, port);
            writeln!(
                text,
                "    - {{port: {name}, mac: 02:00:00:00:00:1{port}, addresses: [{v4}, '{v6}'], labels: {{role: r{role}}}}}"
            )
            .unwrap();
        }
        let (v4, v6) = (address(false, REMOTE), address(true, REMOTE));
        writeln!(
            text,
            "  remotes: [{{name: far, vtep: far, mac: 02:00:00:00:00:20, addresses: [{v4}, '{v6}'], prefixes: [10.1.2.0/24, 'fd00::200/120']}}]"
        )
        .unwrap();
        for (number, policy) in self.policies.iter().enumerate() {
            text += &policy.document(index, number, self.ports.len());
        }
        text
    }
}

/// True when the upper bits of the last 16 agree; all others are the same for every address here.
fn in_prefix(address: IpAddr, v6: bool, bits: u16, len: u8) -> bool {
    let (is_v6, low) = match address {
        IpAddr::V4(v4) => (false, (u32::from(v4) & 0xffff) as u16),
        IpAddr::V6(v6) => (true, (u128::from(v6) & 0xffff) as u16),
    };
    is_v6 == v6 && (0..len).all(|bit| (low ^ bits) & (0x8000 >> bit) == 0)
}

fn is_wanted(wanted: &Wanted, packet: &Packet, accept: bool) -> bool {
    let of_protocol = |protocol: u8| packet.protocol == protocol;
    // What cannot be seen is denied by a rule that asks for it, and accepted only by one that does not.
    let unseen = |asks: bool| !asks || !accept;
    match wanted {
        Wanted::Number(number) => of_protocol(*number),
        Wanted::Ports(protocol, range) if packet.is_opaque() => {
            of_protocol(*protocol) && unseen(range.is_some())
        }
        Wanted::Ports(protocol, range) => {
            of_protocol(*protocol) && range.is_none_or(|(first, last)| (first..=last).contains(&packet.port))
        }
        Wanted::Icmp(protocol, kind) if packet.is_opaque() => {
            of_protocol(*protocol) && unseen(kind.is_some())
        }
        Wanted::Icmp(protocol, kind) => {
            of_protocol(*protocol)
                && kind.is_none_or(|(kind, code)| {
                    kind == packet.icmp.0 && code.is_none_or(|code| code == packet.icmp.1)
                })
        }
        Wanted::Roce(_) if packet.is_opaque() => of_protocol(17) && unseen(true),
        Wanted::Roce(range) => {
            of_protocol(17)
                && packet.port == 4791
                && range.is_none_or(|(first, last)| (first..=last).contains(&packet.queue_pair))
        }
    }
}

impl Policy {
    fn document(&self, tenant: usize, number: usize, ports: usize) -> String {
        let mut text = format!(
            "---\n{HEAD}kind: TenantPolicy\nmetadata: {{name: p{number}}}\nspec:\n  tenant: t{tenant}\n  priority: {}\n",
            self.priority
        );
        match &self.ports {
            None => {}
            Some(Select::Role(role)) => {
                writeln!(text, "  ports: {{matchLabels: {{role: r{role}}}}}").unwrap()
            }
            Some(Select::Names(chosen)) => {
                let names = (0..ports).filter(|port| chosen[*port]).map(|port| port_name(tenant, port));
                writeln!(text, "  ports: [{}]", names.collect::<Vec<_>>().join(", ")).unwrap();
            }
        }
        for (side, rules) in [(Side::Egress, &self.egress), (Side::Ingress, &self.ingress)] {
            let (field, peers) = if side == Side::Egress { ("egress", "to") } else { ("ingress", "from") };
            if rules.is_empty() {
                continue;
            }
            writeln!(text, "  {field}:").unwrap();
            for (index, rule) in rules.iter().enumerate() {
                writeln!(text, "    - {} {}", rule.text(peers), mark(number, side, index)).unwrap();
            }
        }
        text
    }
}

impl Rule {
    fn text(&self, field: &str) -> String {
        let mut text = format!("{{action: {}", if self.accept { "Accept" } else { "Deny" });
        if let Some(peers) = &self.peers {
            let peers: Vec<String> = peers.iter().map(Peer::text).collect();
            write!(text, ", {field}: [{}]", peers.join(", ")).unwrap();
        }
        if let Some(services) = &self.services {
            let services: Vec<String> = services.iter().map(Wanted::text).collect();
            write!(text, ", services: [{}]", services.join(", ")).unwrap();
        }
        text + "}"
    }
}

impl Peer {
    fn text(&self) -> String {
        match self {
            Self::Remote => "{remote: far}".into(),
            Self::Role(role) => format!("{{ports: {{matchLabels: {{role: r{role}}}}}}}"),
            Self::Block { v6, bits, len, except } => {
                let except: Vec<String> =
                    except.iter().map(|more| prefix(*v6, *bits, (*len).max(*more))).collect();
                format!(
                    "{{ipBlock: {{cidr: {}, except: [{}]}}}}",
                    prefix(*v6, *bits, *len),
                    except.join(", ")
                )
            }
        }
    }
}

fn prefix(v6: bool, bits: u16, len: u8) -> String {
    let kept = if len == 0 { 0 } else { bits & (0xffff << (16 - len)) };
    format!("'{}/{}'", address(v6, kept), u16::from(len) + if v6 { 112 } else { 16 })
}

impl Wanted {
    fn text(&self) -> String {
        let name = |protocol: u8| match protocol {
            1 => "ICMP",
            6 => "TCP",
            17 => "UDP",
            58 => "ICMPv6",
            _ => "SCTP",
        };
        match self {
            Self::Number(number) => format!("{{protocol: {number}}}"),
            Self::Ports(protocol, None) => format!("{{protocol: {}}}", name(*protocol)),
            Self::Ports(protocol, Some((first, last))) if first == last => {
                format!("{{protocol: {}, port: {first}}}", name(*protocol))
            }
            Self::Ports(protocol, Some((first, last))) => {
                format!("{{protocol: {}, port: {first}, endPort: {last}}}", name(*protocol))
            }
            Self::Icmp(protocol, None) => format!("{{protocol: {}}}", name(*protocol)),
            Self::Icmp(protocol, Some((kind, None))) => {
                format!("{{protocol: {}, type: {kind}}}", name(*protocol))
            }
            Self::Icmp(protocol, Some((kind, Some(code)))) => {
                format!("{{protocol: {}, type: {kind}, code: {code}}}", name(*protocol))
            }
            Self::Roce(None) => "{protocol: RoCEv2}".into(),
            Self::Roce(Some((first, last))) if first == last => {
                format!("{{protocol: RoCEv2, queuePairs: {first}}}")
            }
            Self::Roce(Some((first, last))) => format!("{{protocol: RoCEv2, queuePairs: {first}-{last}}}"),
        }
    }
}
