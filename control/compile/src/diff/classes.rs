//! Classes of packets that two programs' rules judge differently, computed exactly.
//!
//! The boundaries of all prefixes of both lists of a port cut the addresses into atoms within which no rule can tell
//! two of them apart, those of ports, types and queue pairs cut the services. Each pair of atoms is judged once by each
//! program, at its first element. Atoms with the same change are put together again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use program::{
    Decision, Flow, Ingress, Place, Port, Program, Rule, RuleId, Service, ServiceMatch, Tenant, Verdict,
};
use serde::{Deserialize, Serialize};

use super::shared::Shared;
use crate::explain::Side;

/// Rules looked at before the rest is left out.
const CHECKS_MAX: usize = 200_000_000;
/// Most classes of one comparison.
const CLASSES_MAX: usize = 1000;
/// Address ranges of a class that people are shown.
pub const PEERS_SHOWN_MAX: usize = 8;

/// All classes, as far as they were looked for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Classes {
    /// By port and side.
    pub list: Vec<Class>,
    /// True when there may be more: the lists are too long to be compared whole, or too much changes.
    pub is_cut: bool,
}

/// Packets of one port and side that change their verdict in the same way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Class {
    /// Whose port.
    pub tenant: String,
    /// The port.
    pub port: String,
    /// Which of its lists.
    pub side: Side,
    /// Addresses of the far side.
    pub peers: Vec<AddressRange>,
    /// Kinds of packets.
    pub services: Vec<ServiceRange>,
    /// What the rules say of them: `accept` or `deny`.
    pub before: String,
    /// What the other program's rules say.
    pub after: String,
    /// One of them.
    pub example: Example,
}

/// One packet of a class.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Example {
    /// The far side.
    pub peer: IpAddr,
    /// What kind of packet, with zero for a source port.
    pub service: String,
    /// True when the peer is a host of the tenant, or behind one.
    pub is_reachable: bool,
    /// From end to end, as it opens a flow: `accept`, or a drop reason; absent when there is no such flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The same in the other program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Inclusive, of one family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct AddressRange {
    /// Lowest.
    pub first: IpAddr,
    /// Highest.
    pub last: IpAddr,
}

/// What a number in a [`ServiceRange`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP destination ports.
    Tcp,
    /// UDP destination ports, without that of RoCEv2.
    Udp,
    /// SCTP destination ports.
    Sctp,
    /// ICMP types.
    Icmp,
    /// ICMPv6 types.
    Icmpv6,
    /// Queue pairs of RoCEv2.
    Roce,
    /// IP protocols of which no more is read; of the protocols above: their later fragments, and the other family's ICMP.
    Other,
}

/// Kinds of packets. Ranges are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ServiceRange {
    /// What the numbers are.
    pub protocol: Protocol,
    /// Lowest ICMP code; else 0.
    pub code_first: u8,
    /// Highest ICMP code; else 0.
    pub code_last: u8,
    /// Lowest.
    pub first: u32,
    /// Highest.
    pub last: u32,
}

impl Class {
    /// True when such a packet belongs to it.
    pub fn covers(&self, peer: IpAddr, service: Service) -> bool {
        self.peers.iter().any(|range| range.contains(peer))
            && self.services.iter().any(|range| range.contains(service))
    }
}

impl AddressRange {
    /// True when it holds the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.first <= address && address <= self.last
    }
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { first, last } = self;
        let (low, high) = (number(*first), number(*last));
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let host = (low ^ high).checked_add(1).map_or(128, u128::trailing_zeros);
        let is_prefix = (low ^ high) & (low ^ high).wrapping_add(1) == 0 && low & (low ^ high) == 0;
        match is_prefix {
            _ if first == last => write!(f, "{first}"),
            true => write!(f, "{first}/{}", bits - host),
            false => write!(f, "{first}-{last}"),
        }
    }
}

impl ServiceRange {
    /// True when it holds the service.
    pub fn contains(&self, service: Service) -> bool {
        let (protocol, number, code) = split(service);
        self.protocol == protocol
            && (self.first..=self.last).contains(&number)
            && (self.code_first..=self.code_last).contains(&code)
    }

    /// Its first element.
    fn example(&self) -> Service {
        let (number, code) = (self.first, self.code_first);
        match self.protocol {
            Protocol::Tcp => Service::Tcp(number as u16),
            Protocol::Udp => Service::Udp(number as u16),
            Protocol::Sctp => Service::Sctp(number as u16),
            Protocol::Icmp => Service::Icmp(number as u8, code),
            Protocol::Icmpv6 => Service::Icmpv6(number as u8, code),
            Protocol::Roce => Service::Roce(number),
            Protocol::Other => Service::Opaque(number as u8),
        }
    }
}

impl std::fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { protocol, first, last, code_first, code_last } = *self;
        let (name, max) = match protocol {
            Protocol::Tcp => ("tcp", 0xffff),
            Protocol::Udp => ("udp", 0xffff),
            Protocol::Sctp => ("sctp", 0xffff),
            Protocol::Icmp => ("icmp", 255),
            Protocol::Icmpv6 => ("icmpv6", 255),
            Protocol::Roce => ("roce/qp ", 0xff_ffff),
            Protocol::Other => ("protocol ", 255),
        };
        let slash = if name.ends_with(' ') { "" } else { "/" };
        match (first, last) {
            (0, last) if last == max && protocol == Protocol::Roce => f.write_str("roce")?,
            (0, last) if last == max && protocol != Protocol::Other => f.write_str(name)?,
            (first, last) if first == last => write!(f, "{name}{slash}{first}")?,
            _ => write!(f, "{name}{slash}{first}-{last}")?,
        }
        match (code_first, code_last) {
            _ if !matches!(protocol, Protocol::Icmp | Protocol::Icmpv6) => Ok(()),
            (0, 255) => Ok(()),
            (first, last) if first == last => write!(f, " code {first}"),
            (first, last) => write!(f, " code {first}-{last}"),
        }
    }
}

fn split(service: Service) -> (Protocol, u32, u8) {
    match service {
        Service::Tcp(port) => (Protocol::Tcp, port.into(), 0),
        Service::Udp(port) => (Protocol::Udp, port.into(), 0),
        Service::Sctp(port) => (Protocol::Sctp, port.into(), 0),
        Service::Icmp(kind, code) => (Protocol::Icmp, kind.into(), code),
        Service::Icmpv6(kind, code) => (Protocol::Icmpv6, kind.into(), code),
        Service::Roce(qp) => (Protocol::Roce, qp, 0),
        Service::Opaque(protocol) => (Protocol::Other, protocol.into(), 0),
    }
}

/// Compares the rules of all ports that either program has.
pub fn compare(old: &Program, new: &Program) -> Classes {
    compare_unless(old, new, &Shared::default())
}

/// As [`compare`], without the ports whose rules are known to be shared.
pub(super) fn compare_unless(old: &Program, new: &Program, shared: &Shared) -> Classes {
    let mut classes = Classes::default();
    let mut budget = CHECKS_MAX;
    let names = |program: &Program| -> BTreeSet<String> {
        let names = program.ports.iter().flatten().map(|port| program.port_name(port.id));
        names.filter(|name| !shared.has_port(name)).map(ToOwned::to_owned).collect()
    };
    for name in &names(old) | &names(new) {
        for side in [Side::Egress, Side::Ingress] {
            let pair =
                Pair { name: &name, side, old: View::of(old, &name, side), new: View::of(new, &name, side) };
            pair.compare(&mut classes, &mut budget);
        }
    }
    classes
}

/// One port's list in one program; a port that is not there has none, which denies everything.
struct View<'a> {
    program: &'a Program,
    port: Option<&'a Port>,
    rules: Vec<&'a Rule>,
}

impl<'a> View<'a> {
    fn of(program: &'a Program, name: &str, side: Side) -> Self {
        let port = program.ports.iter().flatten().find(|port| program.port_name(port.id) == name);
        let list = match (port, side) {
            (None, _) => None,
            (Some(port), Side::Egress) => Some(port.egress),
            (Some(port), Side::Ingress) => Some(port.ingress),
        };
        let rules = list.into_iter().flat_map(|list| program.rules.list(list));
        let rules = rules.filter_map(|(_, rule)| rule).collect();
        Self { program, port, rules }
    }

    fn tenant(&self) -> Option<&'a Tenant> {
        self.program.tenant(self.port?.tenant)
    }
}

struct Pair<'a> {
    name: &'a str,
    side: Side,
    old: View<'a>,
    new: View<'a>,
}

/// By what becomes of them and which services: where.
type Changes = BTreeMap<(bool, Vec<usize>), Vec<AddressRange>>;

impl Pair<'_> {
    fn compare(&self, classes: &mut Classes, budget: &mut usize) {
        let says = |rule: &&Rule| (rule.tier, rule.verdict, rule.peers.clone(), rule.services.clone());
        if self.old.rules.iter().map(says).eq(self.new.rules.iter().map(says)) {
            return;
        }
        let services = services(self.rules());
        let mut changes = Changes::new();
        for range in addresses(self.rules()) {
            let (old, new) = (asked(&self.old.rules, range.first), asked(&self.new.rules, range.first));
            let cost = (old.len() + new.len() + 1) * services.len();
            if cost > *budget {
                classes.is_cut = true;
                break;
            }
            *budget -= cost;
            for (accepts, which) in changed(&old, &new, range.first, &services) {
                extend(changes.entry((accepts, which)).or_default(), range);
            }
        }
        for ((accepts, which), peers) in changes {
            if classes.list.len() == CLASSES_MAX {
                classes.is_cut = true;
                return;
            }
            classes.list.push(self.class(accepts, join(which.iter().map(|&index| services[index])), peers));
        }
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> + Clone {
        self.old.rules.iter().chain(&self.new.rules).copied()
    }

    fn class(&self, accepts: bool, services: Vec<ServiceRange>, peers: Vec<AddressRange>) -> Class {
        let words = if accepts { ("deny", "accept") } else { ("accept", "deny") };
        let tenant = self.new.tenant().or(self.old.tenant());
        let example = self.example(&peers, services[0].example());
        Class {
            tenant: tenant.map_or("?", |tenant| &tenant.name).into(),
            port: self.name.into(),
            side: self.side,
            peers,
            services,
            before: words.0.into(),
            after: words.1.into(),
            example,
        }
    }

    /// One packet of the class, from or to a host of the tenant if there is one.
    fn example(&self, peers: &[AddressRange], service: Service) -> Example {
        let known = [&self.new, &self.old].into_iter().filter_map(View::tenant);
        let hosts = known.flat_map(|tenant| {
            let hosts = tenant.endpoints.iter().map(|endpoint| endpoint.address);
            hosts.chain(tenant.routes.iter().map(|route| route.prefix.addr()))
        });
        let own = |address: &IpAddr| {
            [&self.new, &self.old]
                .into_iter()
                .filter_map(|view| view.port)
                .any(|port| port.addresses.contains(address))
        };
        let is_in = |address: &IpAddr| peers.iter().any(|range| range.contains(*address)) && !own(address);
        let found = hosts.into_iter().find(is_in);
        let peer = found.unwrap_or(peers[0].first);
        let is_reachable = [&self.new, &self.old]
            .into_iter()
            .filter_map(View::tenant)
            .any(|tenant| !tenant.locate(peer).is_empty());
        Example {
            peer,
            service: service.text(0),
            is_reachable,
            before: self.judge(&self.old, peer, service),
            after: self.judge(&self.new, peer, service),
        }
    }

    /// From end to end.
    fn judge(&self, view: &View, peer: IpAddr, service: Service) -> Option<String> {
        let (port, tenant) = (view.port?, view.tenant()?);
        let own = *port.addresses.iter().find(|own| own.is_ipv4() == peer.is_ipv4())?;
        let (ingress, src, dst) = match self.side {
            Side::Egress => (Ingress::Port(port.id), own, peer),
            Side::Ingress => (Ingress::from(tenant.locate(peer).first()?.place), peer, own),
        };
        // A packet to the own address goes nowhere.
        if tenant.locate(dst).iter().any(|hop| hop.place == Place::Port(port.id)) && self.side == Side::Egress
        {
            return None;
        }
        let flow = Flow { tenant: tenant.id, ingress, src, dst, service, src_port: 0 };
        Some(match view.program.judge(&flow) {
            Ok(_) => "accept".into(),
            Err(refused) => refused.reason.name().into(),
        })
    }
}

/// The rules that speak of a peer.
fn asked<'a>(rules: &[&'a Rule], peer: IpAddr) -> Vec<&'a Rule> {
    let speaks = |rule: &&Rule| {
        rule.peers.as_ref().is_none_or(|blocks| blocks.iter().any(|block| block.contains(peer)))
    };
    rules.iter().copied().filter(speaks).collect()
}

/// Services whose verdict changes for a peer: those that become accepted, those that become denied.
fn changed(
    old: &[&Rule],
    new: &[&Rule],
    peer: IpAddr,
    services: &[ServiceRange],
) -> impl Iterator<Item = (bool, Vec<usize>)> {
    let (mut accepted, mut denied) = (Vec::new(), Vec::new());
    for (index, range) in services.iter().enumerate() {
        let service = range.example();
        if !service.fits(peer) {
            continue;
        }
        let accepts = |rules: &[&Rule]| {
            let numbered = rules.iter().enumerate().map(|(index, rule)| (RuleId(index as u32), *rule));
            Decision::among(numbered, peer, service).verdict == Verdict::Accept
        };
        match (accepts(old), accepts(new)) {
            (false, true) => accepted.push(index),
            (true, false) => denied.push(index),
            _ => {}
        }
    }
    [(true, accepted), (false, denied)].into_iter().filter(|(_, which)| !which.is_empty())
}

/// Atoms of the addresses of both families, in order.
fn addresses<'a>(rules: impl Iterator<Item = &'a Rule> + Clone) -> Vec<AddressRange> {
    let blocks = rules.filter_map(|rule| rule.peers.as_ref()).flatten();
    atoms_of(blocks.flat_map(|block| std::iter::once(block.net).chain(block.except.iter().copied())))
}

/// All addresses of both families, in order, cut where any of the prefixes begins or ends.
pub(super) fn atoms_of(nets: impl Iterator<Item = IpNet>) -> Vec<AddressRange> {
    let (mut v4, mut v6) = (BTreeSet::from([0_u128]), BTreeSet::from([0_u128]));
    for net in nets {
        let starts = if net.addr().is_ipv4() { &mut v4 } else { &mut v6 };
        starts.insert(number(net.network()));
        starts.extend(number(net.broadcast()).checked_add(1));
    }
    let of = |number: u128, is_v4: bool| match is_v4 {
        true => IpAddr::V4(Ipv4Addr::from(number as u32)),
        false => IpAddr::V6(Ipv6Addr::from(number)),
    };
    let range = |is_v4: bool| {
        move |(first, last): (u128, u128)| AddressRange { first: of(first, is_v4), last: of(last, is_v4) }
    };
    let v4 = atoms(v4, u32::MAX.into()).map(range(true));
    v4.chain(atoms(v6, u128::MAX).map(range(false))).collect()
}

/// Neighbouring starts to inclusive ranges, up to `max`.
fn atoms(starts: BTreeSet<u128>, max: u128) -> impl Iterator<Item = (u128, u128)> {
    let starts: Vec<u128> = starts.into_iter().filter(|start| *start <= max).collect();
    let ends: Vec<u128> = starts.iter().skip(1).map(|start| start - 1).chain([max]).collect();
    starts.into_iter().zip(ends)
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Atoms of the services.
fn services<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<ServiceRange> {
    let roce = u128::from(wire::roce::PORT);
    let mut starts: BTreeMap<Protocol, BTreeSet<u128>> = BTreeMap::new();
    let mut codes: BTreeMap<Protocol, BTreeSet<u128>> = BTreeMap::new();
    let mut cut = |protocol, first: u32, last: u32| {
        let starts = starts.entry(protocol).or_insert_with(|| BTreeSet::from([0]));
        starts.extend([u128::from(first), u128::from(last) + 1]);
    };
    cut(Protocol::Udp, wire::roce::PORT.into(), wire::roce::PORT.into());
    for protocol in [1, 6, 17, 58, 132] {
        cut(Protocol::Other, protocol, protocol);
    }
    for service in rules.flat_map(|rule| &rule.services) {
        let mut icmp = |protocol, kind: Option<u8>, code: Option<u8>| {
            kind.into_iter().for_each(|kind| cut(protocol, kind.into(), kind.into()));
            let codes = codes.entry(protocol).or_insert_with(|| BTreeSet::from([0]));
            code.into_iter().for_each(|code| codes.extend([u128::from(code), u128::from(code) + 1]));
        };
        match *service {
            ServiceMatch::Tcp(range) => cut(Protocol::Tcp, range.first.into(), range.last.into()),
            ServiceMatch::Udp(range) => cut(Protocol::Udp, range.first.into(), range.last.into()),
            ServiceMatch::Sctp(range) => cut(Protocol::Sctp, range.first.into(), range.last.into()),
            ServiceMatch::Icmp(kind, code) => icmp(Protocol::Icmp, kind, code),
            ServiceMatch::Icmpv6(kind, code) => icmp(Protocol::Icmpv6, kind, code),
            ServiceMatch::Roce(range) => cut(Protocol::Roce, range.first, range.last),
            ServiceMatch::Protocol(protocol) => cut(Protocol::Other, protocol.into(), protocol.into()),
        }
    }
    let mut all = Vec::new();
    for (protocol, max) in [
        (Protocol::Tcp, 0xffff),
        (Protocol::Udp, 0xffff),
        (Protocol::Sctp, 0xffff),
        (Protocol::Icmp, 255),
        (Protocol::Icmpv6, 255),
        (Protocol::Roce, 0xff_ffff),
        (Protocol::Other, 255),
    ] {
        let is_icmp = matches!(protocol, Protocol::Icmp | Protocol::Icmpv6);
        let codes = codes.remove(&protocol).unwrap_or_else(|| BTreeSet::from([0]));
        for (code_first, code_last) in atoms(codes, if is_icmp { 255 } else { 0 }) {
            let numbers = starts.get(&protocol).cloned().unwrap_or_else(|| BTreeSet::from([0]));
            all.extend(
                atoms(numbers, max).filter(|(first, _)| (protocol, *first) != (Protocol::Udp, roce)).map(
                    |(first, last)| ServiceRange {
                        protocol,
                        code_first: code_first as u8,
                        code_last: code_last as u8,
                        first: first as u32,
                        last: last as u32,
                    },
                ),
            );
        }
    }
    all
}

/// Adds a range, which is behind those that are there; neighbours become one.
pub(super) fn extend(ranges: &mut Vec<AddressRange>, range: AddressRange) {
    match ranges.last_mut() {
        Some(last)
            if last.last.is_ipv4() == range.first.is_ipv4()
                && number(last.last).checked_add(1) == Some(number(range.first)) =>
        {
            last.last = range.last;
        }
        _ => ranges.push(range),
    }
}

/// Neighbouring services become one.
fn join(services: impl Iterator<Item = ServiceRange>) -> Vec<ServiceRange> {
    let mut joined: Vec<ServiceRange> = Vec::new();
    for range in services {
        match joined.last_mut() {
            Some(last)
                if last.protocol == range.protocol
                    && (last.code_first, last.code_last) == (range.code_first, range.code_last)
                    && last.last + 1 == range.first =>
            {
                last.last = range.last;
            }
            _ => joined.push(range),
        }
    }
    joined
}
