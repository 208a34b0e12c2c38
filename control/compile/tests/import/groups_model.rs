//! Security groups in the words of their API: a port accepts what any rule of any of its groups means.

use std::net::IpAddr;

use ipnet::IpNet;
use program::Service;
use proptest::{collection::vec, option, prelude::*, sample::select};

const HOSTS: [[&str; 2]; 2] = [["10.1.0.10", "fd00::10"], ["10.1.0.11", "fd00::11"]];
const PEERS: [&str; 7] =
    ["10.1.0.10", "10.1.0.11", "10.2.0.1", "203.0.113.1", "fd00::10", "fd00::11", "2001:db8::1"];
const PORTS: [u16; 6] = [1, 79, 80, 81, 4791, 65535];

#[derive(Clone, Debug)]
enum Remote {
    Anybody,
    Prefix(&'static str),
    Group(usize),
}

#[derive(Clone, Debug)]
enum What {
    Anything,
    Whole(&'static str, u8),
    Ports(&'static str, u8, u16, u16),
    Icmp(u8, Option<u8>),
}

#[derive(Clone, Debug)]
pub struct Rule {
    is_egress: bool,
    is_v6: bool,
    remote: Remote,
    what: What,
}

/// Rules of each group, and the groups of each of two ports.
#[derive(Clone, Debug)]
pub struct World {
    groups: Vec<Vec<Rule>>,
    members: [Vec<usize>; 2],
}

#[derive(Clone, Debug)]
pub struct Packet {
    pub port: usize,
    pub is_egress: bool,
    pub peer: IpAddr,
    pub service: Service,
}

impl World {
    pub fn is_accepted(&self, packet: &Packet) -> bool {
        let groups = self.members[packet.port].iter();
        groups.flat_map(|group| &self.groups[*group]).any(|rule| self.matches(rule, packet))
    }

    fn matches(&self, rule: &Rule, packet: &Packet) -> bool {
        let within = match rule.remote {
            Remote::Anybody => true,
            Remote::Prefix(net) => net.parse::<IpNet>().unwrap().contains(&packet.peer),
            Remote::Group(group) => (0..2).any(|port| {
                let is_it = |host: &&str| host.parse::<IpAddr>().unwrap() == packet.peer;
                self.members[port].contains(&group) && HOSTS[port].iter().any(is_it)
            }),
        };
        rule.is_egress == packet.is_egress
            && rule.is_v6 == packet.peer.is_ipv6()
            && within
            && rule.what.means(packet.service, rule.is_v6)
    }

    pub fn text(&self) -> String {
        let groups = self.groups.iter().enumerate().map(|(index, rules)| {
            let rules: Vec<String> = rules.iter().map(Rule::text).collect();
            format!(
                "{{\"id\": \"id{index}\", \"name\": \"g{index}\", \"security_group_rules\": [{}]}}",
                rules.join(",\n")
            )
        });
        let ports = self.members.iter().enumerate().map(|(index, members)| {
            let ids: Vec<String> = members.iter().map(|group| format!("\"id{group}\"")).collect();
            let [v4, v6] = HOSTS[index];
            format!(
                "{{\"id\": \"p{index}\", \"name\": \"host{index}\", \"security_groups\": [{}], \"fixed_ips\": \
                 [{{\"ip_address\": \"{v4}\"}}, {{\"ip_address\": \"{v6}\"}}]}}",
                ids.join(",")
            )
        });
        let (groups, ports): (Vec<String>, Vec<String>) = (groups.collect(), ports.collect());
        format!("{{\"security_groups\": [{}], \"ports\": [{}]}}", groups.join(",\n"), ports.join(",\n"))
    }
}

impl What {
    fn means(&self, service: Service, is_v6: bool) -> bool {
        let (protocol, port) = match service {
            Service::Tcp(port) => (6, port),
            Service::Udp(port) => (17, port),
            Service::Roce(_) => (17, 4791),
            Service::Sctp(port) => (132, port),
            Service::Icmp(kind, code) => return self.means_icmp(1, kind, code, is_v6),
            Service::Icmpv6(kind, code) => return self.means_icmp(58, kind, code, is_v6),
            Service::Opaque(protocol) => (protocol, 0),
        };
        match self {
            Self::Anything => true,
            Self::Whole(_, whole) => *whole == protocol,
            Self::Ports(_, whole, first, last) => *whole == protocol && (*first..=*last).contains(&port),
            Self::Icmp(..) => false,
        }
    }

    /// Of IPv6, the name `icmp` means ICMPv6.
    fn means_icmp(&self, protocol: u8, kind: u8, code: u8, is_v6: bool) -> bool {
        match self {
            Self::Anything => true,
            Self::Whole(_, 1) if is_v6 => protocol == 58,
            Self::Whole(_, whole) => *whole == protocol,
            Self::Ports(..) => false,
            Self::Icmp(its, its_code) => *its == kind && its_code.is_none_or(|its| its == code),
        }
    }
}

impl Rule {
    fn text(&self) -> String {
        let direction = if self.is_egress { "egress" } else { "ingress" };
        let family = if self.is_v6 { "IPv6" } else { "IPv4" };
        let remote = match self.remote {
            Remote::Anybody => "\"remote_ip_prefix\": null".into(),
            Remote::Prefix(net) => format!("\"remote_ip_prefix\": \"{net}\""),
            Remote::Group(group) => format!("\"remote_group_id\": \"id{group}\""),
        };
        let what = match self.what {
            What::Anything => "\"protocol\": null".into(),
            What::Whole(name, _) => format!("\"protocol\": \"{name}\""),
            What::Ports(name, _, first, last) => {
                format!("\"protocol\": \"{name}\", \"port_range_min\": {first}, \"port_range_max\": {last}")
            }
            What::Icmp(kind, code) => {
                let code = code.map_or("null".into(), |code| code.to_string());
                format!("\"protocol\": \"icmp\", \"port_range_min\": {kind}, \"port_range_max\": {code}")
            }
        };
        format!("{{\"direction\": \"{direction}\", \"ethertype\": \"{family}\", {remote}, {what}}}")
    }
}

fn rule(groups: usize) -> impl Strategy<Value = Rule> {
    let what = prop_oneof![
        Just(What::Anything),
        select(vec![("tcp", 6), ("17", 17), ("gre", 47), ("icmp", 1), ("SCTP", 132)])
            .prop_map(|(name, number)| What::Whole(name, number)),
        (select(vec![("tcp", 6), ("udp", 17), ("132", 132)]), select(PORTS.to_vec()), select(PORTS.to_vec()))
            .prop_map(|((name, number), a, b)| What::Ports(name, number, a.min(b), a.max(b))),
        (select(vec![0u8, 8]), option::of(select(vec![0u8, 1])))
            .prop_map(|(kind, code)| What::Icmp(kind, code)),
    ];
    let remote =
        (any::<bool>(), 0..3u8, 0..groups).prop_map(|(is_narrow, kind, group)| (is_narrow, kind, group));
    (any::<bool>(), any::<bool>(), remote, what).prop_map(
        |(is_egress, is_v6, (is_narrow, kind, group), what)| {
            let remote = match (kind, is_v6, is_narrow) {
                (0, _, _) => Remote::Anybody,
                (1, _, _) => Remote::Group(group),
                (_, false, false) => Remote::Prefix("10.0.0.0/8"),
                (_, false, true) => Remote::Prefix("10.1.0.11/32"),
                (_, true, false) => Remote::Prefix("fd00::/16"),
                (_, true, true) => Remote::Prefix("::/0"),
            };
            Rule { is_egress, is_v6, remote, what }
        },
    )
}

pub fn world() -> impl Strategy<Value = World> {
    let members = || proptest::sample::subsequence(vec![0usize, 1, 2], 0..=3);
    (vec(vec(rule(3), 0..5), 3), [members(), members()])
        .prop_map(|(groups, members)| World { groups, members })
}

pub fn packet() -> impl Strategy<Value = Packet> {
    let service = prop_oneof![
        select(PORTS.to_vec()).prop_map(Service::Tcp),
        select(PORTS.to_vec()).prop_map(|port| if port == 4791 {
            Service::Roce(9)
        } else {
            Service::Udp(port)
        }),
        select(PORTS.to_vec()).prop_map(Service::Sctp),
        (select(vec![0u8, 8, 13]), 0..2u8).prop_map(|(kind, code)| Service::Icmp(kind, code)),
        select(vec![47u8, 50]).prop_map(Service::Opaque),
    ];
    (0..2usize, any::<bool>(), select(PEERS.to_vec()), service).prop_map(
        |(port, is_egress, peer, service)| {
            let peer: IpAddr = peer.parse().unwrap();
            let service = match service {
                Service::Icmp(kind, code) if peer.is_ipv6() => Service::Icmpv6(kind, code),
                other => other,
            };
            Packet { port, is_egress, peer, service }
        },
    )
}
