//! A small world to draw from: tenants with overlapping addresses on four ports and two tunnel endpoints, their rules,
//! and packets among them. Policy text and frames are written from these values, and the oracle reads them directly.

use std::fmt::Write;

use proptest::collection::vec;
use proptest::prelude::*;
use wire::Mac;

/// Tenant ports, `p0` to `p3`.
pub const PORTS: usize = 4;
/// Hosts of a tenant, 10.0.0.1 to 10.0.0.6 and fd00::1 to fd00::6.
pub const HOSTS: u8 = 6;
/// The gateway's last byte.
pub const GATEWAY: u8 = 0x40;

/// Where a host is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    Port(usize),
    Vtep(usize),
}

/// One policy: who has which port, and what each tenant has.
#[derive(Clone, Debug)]
pub struct Program {
    pub tenants: Vec<Tenant>,
}

#[derive(Clone, Debug)]
pub struct Tenant {
    /// By host number less one.
    pub hosts: [Option<Place>; HOSTS as usize],
    /// 10.9.0.0/16 and fd00:9::/64 are behind the first host that is remote.
    pub has_prefix: bool,
    pub ports: Vec<usize>,
    pub egress: Vec<Rule>,
    pub ingress: Vec<Rule>,
    /// Asked last, by its first port only.
    pub first_port: Vec<Rule>,
}

#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub accept: bool,
    pub peer: Peer,
    pub service: Service,
}

#[derive(Clone, Copy, Debug)]
pub enum Peer {
    Any,
    /// One host by both addresses.
    One(u8),
    /// Hosts 1 to 3 over IPv4.
    Low4,
    /// Hosts 1 to 3 over IPv6.
    Low6,
    /// The prefix, both families.
    Prefix,
}

#[derive(Clone, Copy, Debug)]
pub enum Service {
    Any,
    Tcp(u16, u16),
    Udp(u16, u16),
    AllUdp,
    Echo(Option<bool>),
    Roce(u32, u32),
}

/// An address of the tenant's world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addr {
    Host(u8),
    Gateway,
    /// In the prefix.
    Behind(u8),
    Nobody,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum What {
    Tcp(u16, u16),
    Udp(u16, u16),
    Roce {
        qp: u32,
        entropy: u16,
    },
    /// Echo with an identifier: request, or reply.
    Echo(u16, bool),
    /// The first fragment of a UDP datagram.
    First(u16, u16),
    /// Any other fragment of one.
    Later,
    /// An ICMP error that quotes what an earlier packet of the story was, by its number.
    Error(usize),
}

#[derive(Clone, Copy, Debug)]
pub enum DstMac {
    Right,
    Gateway,
    Wrong,
}

/// A packet of a tenant, well-formed.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// A port, or an endpoint; endpoint 2 is not in any policy.
    pub entry: Place,
    /// Of a packet out of a tunnel: whose VNI; beyond the tenants it is nobody's.
    pub vni_of: usize,
    pub six: bool,
    pub src: Addr,
    pub dst: Addr,
    pub spoofed_mac: bool,
    pub dst_mac: DstMac,
    pub last_hop: bool,
    pub what: What,
}

/// What happens next.
#[derive(Clone, Debug)]
pub enum Step {
    /// From the nth host of the tenant to the nth that it could reach, if that is given: most random packets go
    /// nowhere.
    Send(Packet, Option<(usize, usize)>),
    /// An answer to the nth packet sent so far, from where its receiver is now.
    Answer(usize),
    /// An ICMP error about the nth packet: from the nth host where that went, and to its sender, or from and to
    /// anybody.
    Error(usize, usize, Option<(Addr, Addr)>),
    /// The nth packet once more.
    Again(usize),
    /// The nth packet, cut.
    Cut(usize, usize),
    /// The nth packet with one byte changed: only at the end, since nobody can say what it has become.
    Damage(usize, usize, u8),
    Swap(Program),
    /// One rule says the opposite: of which tenant, in which list, which one.
    Edit(usize, usize, usize),
}

impl Tenant {
    /// Where an address is.
    pub fn locate(&self, addr: Addr) -> Option<Place> {
        match addr {
            Addr::Host(number) => *self.hosts.get(usize::from(number) - 1)?,
            Addr::Behind(_) if self.has_prefix => self.first_remote().map(|(_, place)| place),
            _ => None,
        }
    }

    pub fn first_remote(&self) -> Option<(u8, Place)> {
        let placed = (1..).zip(self.hosts).filter_map(|(number, place)| Some((number, place?)));
        placed.into_iter().find(|(_, place)| matches!(place, Place::Vtep(_)))
    }

    /// The MAC that packets to an address are to have.
    pub fn mac(&self, tenant: usize, addr: Addr) -> Option<Mac> {
        let number = match addr {
            Addr::Host(number) => number,
            _ => self.first_remote()?.0,
        };
        Some(match self.locate(addr)? {
            Place::Port(port) => port_mac(port),
            Place::Vtep(_) => Mac([2, 0, 0, tenant as u8, 2, number]),
        })
    }
}

impl Program {
    /// Turns a rule around; a list without any gets one for all.
    pub fn edit(&mut self, tenant: usize, list: usize, rule: usize) {
        let tenant = &mut self.tenants[tenant];
        let rules = [&mut tenant.egress, &mut tenant.ingress, &mut tenant.first_port].into_iter().nth(list);
        let rules = rules.expect("one of three lists");
        match rules.len() {
            0 => rules.push(OPEN),
            len => rules[rule % len].accept ^= true,
        }
    }

    /// Whose port it is.
    pub fn owner(&self, port: usize) -> Option<usize> {
        self.tenants.iter().position(|tenant| tenant.ports.contains(&port))
    }
}

/// The MAC of the host behind a port.
pub fn port_mac(port: usize) -> Mac {
    Mac([2, 0, 0, 0xaa, 1, port as u8])
}

pub fn vni(tenant: usize) -> u32 {
    1000 + tenant as u32
}

pub fn gateway_mac(tenant: usize) -> Mac {
    Mac([2, 0xfe, 0, 0, 0, tenant as u8])
}

pub fn v4(addr: Addr) -> [u8; 4] {
    match addr {
        Addr::Host(number) => [10, 0, 0, number],
        Addr::Gateway => [10, 0, 0, GATEWAY],
        Addr::Behind(number) => [10, 9, 1, number],
        Addr::Nobody => [10, 77, 0, 1],
    }
}

pub fn v6(addr: Addr) -> [u8; 16] {
    let (net, last) = match addr {
        Addr::Host(number) => (0, number),
        Addr::Gateway => (0, GATEWAY),
        Addr::Behind(number) => (9, number),
        Addr::Nobody => (0x77, 1),
    };
    [0xfd, 0, 0, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

/// The policy's text.
pub fn text(program: &Program) -> String {
    let mut out = String::from(
        "apiVersion: floodway.dev/v1alpha1\nkind: Fabric\nmetadata: {name: world}\nspec:\n  ports:\n    \
         - {name: uplink0, device: \"memory:\", mtu: 1600}\n",
    );
    for port in 0..PORTS {
        let _ = writeln!(out, "    - {{name: p{port}, device: \"memory:\"}}");
    }
    out.push_str(
        "  uplink: {port: uplink0, addresses: [192.0.2.1/24, \"2001:db8::1/64\"]}\n  vteps:\n    \
         - {name: v0, address: 192.0.2.2, mac: \"02:ee:00:00:00:02\"}\n    \
         - {name: v1, address: \"2001:db8::2\", mac: \"02:ee:00:00:00:02\"}\n",
    );
    for (index, tenant) in program.tenants.iter().enumerate() {
        write_tenant(&mut out, index, tenant);
        write_rules(&mut out, index, "a", "", &tenant.egress, &tenant.ingress);
        if let Some(port) = tenant.ports.first() {
            let only = format!("ports: [p{port}], ");
            write_rules(&mut out, index, "b", &only, &tenant.first_port, &tenant.first_port);
        }
    }
    out
}

fn write_tenant(out: &mut String, index: usize, tenant: &Tenant) {
    let _ = write!(
        out,
        "---\napiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: t{index}}}\nspec:\n  vni: {}\n  \
         gateway: {{mac: \"{}\", addresses: [10.0.0.{GATEWAY}, \"fd00::{GATEWAY:x}\"]}}\n  ports: [",
        vni(index),
        gateway_mac(index),
    );
    for &port in &tenant.ports {
        let own = addresses(tenant, Place::Port(port), None);
        let _ = write!(out, "{{port: p{port}, mac: \"{}\", addresses: [{own}]}}, ", port_mac(port));
    }
    out.push_str("]\n  remotes: [");
    let first = tenant.first_remote().map(|(number, _)| number);
    for number in 1..=HOSTS {
        let Some(Place::Vtep(vtep)) = tenant.locate(Addr::Host(number)) else { continue };
        let mac = tenant.mac(index, Addr::Host(number)).expect("it is placed");
        let own = addresses(tenant, Place::Vtep(vtep), Some(number));
        let behind = tenant.has_prefix && first == Some(number);
        let prefixes = if behind { "10.9.0.0/16, \"fd00:9::/64\"" } else { "" };
        let _ =
            write!(out, "{{vtep: v{vtep}, mac: \"{mac}\", addresses: [{own}], prefixes: [{prefixes}]}}, ");
    }
    out.push_str("]\n");
}

/// Addresses at a place, of one host or of all; a port without any gets one that no packet uses.
fn addresses(tenant: &Tenant, place: Place, only: Option<u8>) -> String {
    let here = (1..=HOSTS).filter(|number| {
        tenant.locate(Addr::Host(*number)) == Some(place) && only.is_none_or(|only| only == *number)
    });
    let list: Vec<String> = here.map(|number| format!("10.0.0.{number}, \"fd00::{number}\"")).collect();
    match (place, list.is_empty()) {
        (Place::Port(port), true) => format!("10.99.0.{}", port + 1),
        _ => list.join(", "),
    }
}

fn write_rules(out: &mut String, tenant: usize, name: &str, only: &str, egress: &[Rule], ingress: &[Rule]) {
    let list = |key: &str, rules: &[Rule]| {
        let rules: Vec<String> = rules.iter().map(|rule| rule_text(key, rule)).collect();
        rules.join(", ")
    };
    let _ = write!(
        out,
        "---\napiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: {name}}}\n\
         spec: {{tenant: t{tenant}, {only}egress: [{}], ingress: [{}]}}\n",
        list("to", egress),
        list("from", ingress),
    );
}

fn rule_text(key: &str, rule: &Rule) -> String {
    let action = if rule.accept { "Accept" } else { "Deny" };
    let block = |cidr: &str| format!("{{ipBlock: {{cidr: \"{cidr}\"}}}}");
    let peers = match rule.peer {
        Peer::Any => None,
        Peer::One(number) => Some(format!(
            "{}, {}",
            block(&format!("10.0.0.{number}/32")),
            block(&format!("fd00::{number}/128"))
        )),
        Peer::Low4 => Some(block("10.0.0.0/30")),
        Peer::Low6 => Some(block("fd00::/126")),
        Peer::Prefix => Some(format!("{}, {}", block("10.9.0.0/16"), block("fd00:9::/64"))),
    };
    let services = match rule.service {
        Service::Any => None,
        Service::Tcp(a, b) => Some(format!("{{protocol: TCP, port: {a}, endPort: {b}}}")),
        Service::Udp(a, b) => Some(format!("{{protocol: UDP, port: {a}, endPort: {b}}}")),
        Service::AllUdp => Some("{protocol: UDP}".into()),
        Service::Echo(None) => Some("{protocol: ICMP}, {protocol: ICMPv6}".into()),
        Service::Echo(Some(true)) => Some("{protocol: ICMP, type: 8}, {protocol: ICMPv6, type: 128}".into()),
        Service::Echo(Some(false)) => Some("{protocol: ICMP, type: 0}, {protocol: ICMPv6, type: 129}".into()),
        Service::Roce(a, b) => Some(format!("{{protocol: RoCEv2, queuePairs: {a}-{b}}}")),
    };
    let peers = peers.map_or(String::new(), |peers| format!(", {key}: [{peers}]"));
    let services = services.map_or(String::new(), |services| format!(", services: [{services}]"));
    format!("{{action: {action}{peers}{services}}}")
}

fn service() -> impl Strategy<Value = Service> {
    let range = (1_u16..5, 0_u16..3);
    prop_oneof![
        3 => Just(Service::Any),
        2 => range.clone().prop_map(|(first, more)| Service::Tcp(first, first + more)),
        1 => range.prop_map(|(first, more)| Service::Udp(first, first + more)),
        1 => Just(Service::AllUdp),
        2 => any::<Option<bool>>().prop_map(Service::Echo),
        2 => (0_u32..4, 0_u32..3).prop_map(|(first, more)| Service::Roce(first, first + more)),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let peer = prop_oneof![
        6 => Just(Peer::Any),
        2 => (1..=HOSTS).prop_map(Peer::One),
        1 => Just(Peer::Low4),
        1 => Just(Peer::Low6),
        1 => Just(Peer::Prefix),
    ];
    (prop::bool::weighted(0.75), peer, service()).prop_map(|(accept, peer, service)| Rule {
        accept,
        peer,
        service,
    })
}

const OPEN: Rule = Rule { accept: true, peer: Peer::Any, service: Service::Any };

/// Places of the hosts, whether there is a prefix, and the three lists of rules.
type DrawnTenant = (Vec<u8>, bool, [Vec<Rule>; 3]);

/// Where the numbered hosts are: on the nth of the tenant's ports, behind an endpoint, or nowhere.
fn tenant() -> impl Strategy<Value = DrawnTenant> {
    let rules = || {
        (vec(rule(), 0..5), prop::bool::weighted(0.4)).prop_map(|(mut rules, open)| {
            rules.extend(open.then_some(OPEN));
            rules
        })
    };
    (vec(0_u8..9, usize::from(HOSTS)), any::<bool>(), [rules(), rules(), rules()])
}

/// A program of so many tenants.
pub fn program(tenants: usize) -> impl Strategy<Value = Program> {
    let owners = vec(0..=tenants, PORTS);
    (owners, vec(tenant(), tenants)).prop_map(|(owners, drawn)| {
        let build = |(index, (places, has_prefix, rules)): (usize, DrawnTenant)| {
            let ports: Vec<usize> = (0..PORTS).filter(|port| owners[*port] == index).collect();
            let place = |drawn: u8| match drawn {
                0..4 => ports.get(usize::from(drawn) % ports.len().max(1)).copied().map(Place::Port),
                4..8 => Some(Place::Vtep(usize::from(drawn % 2))),
                _ => None,
            };
            let mut hosts = [None; HOSTS as usize];
            hosts.iter_mut().zip(&places).for_each(|(host, drawn)| *host = place(*drawn));
            let [egress, ingress, first_port] = rules;
            Tenant { hosts, has_prefix, ports, egress, ingress, first_port }
        };
        Program { tenants: drawn.into_iter().enumerate().map(build).collect() }
    })
}

fn addr() -> impl Strategy<Value = Addr> {
    prop_oneof![
        8 => (1..=HOSTS).prop_map(Addr::Host),
        1 => Just(Addr::Gateway),
        1 => (1_u8..3).prop_map(Addr::Behind),
        1 => Just(Addr::Nobody),
    ]
}

fn packet(tenants: usize) -> impl Strategy<Value = Packet> {
    let entry = prop_oneof![
        6 => (0..PORTS).prop_map(Place::Port),
        6 => (0_usize..2).prop_map(Place::Vtep),
        1 => Just(Place::Vtep(2)),
    ];
    let what = prop_oneof![
        (1_u16..4, 1_u16..5).prop_map(|(src, dst)| What::Tcp(src, dst)),
        (1_u16..4, 1_u16..5).prop_map(|(src, dst)| What::Udp(src, dst)),
        (0_u32..4, 50_000_u16..50_004).prop_map(|(qp, entropy)| What::Roce { qp, entropy }),
        (0_u16..2, any::<bool>()).prop_map(|(id, request)| What::Echo(id, request)),
        prop_oneof![(1_u16..4, 1_u16..5).prop_map(|(src, dst)| What::First(src, dst)), Just(What::Later)],
    ];
    let dst_mac = prop_oneof![6 => Just(DstMac::Right), 3 => Just(DstMac::Gateway), 1 => Just(DstMac::Wrong)];
    let vni_of = prop_oneof![12 => 0..tenants, 1 => Just(tenants)];
    let ends = (entry, vni_of, any::<bool>(), addr(), addr());
    let rest = (prop::bool::weighted(0.04), dst_mac, prop::bool::weighted(0.05), what);
    (ends, rest).prop_map(|((entry, vni_of, six, src, dst), (spoofed_mac, dst_mac, last_hop, what))| Packet {
        entry,
        vni_of,
        six,
        src,
        dst,
        spoofed_mac,
        dst_mac,
        last_hop,
        what,
    })
}

/// A first program and what happens to it, with damage at the end.
pub fn story() -> impl Strategy<Value = (Program, Vec<Step>)> {
    (2_usize..5).prop_flat_map(|tenants| {
        let own = prop_oneof![5 => (0_usize..6, 0_usize..6).prop_map(Some), 1 => Just(None)];
        let step = prop_oneof![
            10 => (packet(tenants), own).prop_map(|(packet, own)| Step::Send(packet, own)),
            8 => (0_usize..1000).prop_map(Step::Answer),
            5 => (0_usize..1000).prop_map(Step::Again),
            3 => (0_usize..1000, 0_usize..6, prop::option::weighted(0.3, (addr(), addr())))
                .prop_map(|(index, from, ends)| Step::Error(index, from, ends)),
            1 => (0_usize..1000, 0_usize..90).prop_map(|(index, len)| Step::Cut(index, len)),
            1 => program(tenants).prop_map(Step::Swap),
            2 => (0..tenants, 0_usize..3, 0_usize..5).prop_map(|(a, b, c)| Step::Edit(a, b, c)),
        ];
        let damage = (0_usize..1000, 0_usize..150, 1..=u8::MAX)
            .prop_map(|(index, at, bits)| Step::Damage(index, at, bits));
        let steps = (vec(step, 10..60), vec(damage, 0..10));
        let steps = steps.prop_map(|(mut steps, damage)| {
            steps.extend(damage);
            steps
        });
        (program(tenants), steps)
    })
}
