//! Network security groups of NICo as its cards carry them out: lists without state, and replies to some egress.

use std::net::IpAddr;

use ipnet::IpNet;
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::packet::Packet;

const NETS: [&str; 4] = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.2.0.7/32"];
const NETS_V6: [&str; 2] = ["::/0", "fd00::/16"];
const PEERS: [&str; 5] = ["10.1.0.99", "10.2.0.7", "203.0.113.1", "fd00::99", "2001:db8::1"];
const PORTS: [u16; 5] = [1, 80, 81, 4791, 65535];

#[derive(Clone, Debug)]
pub struct Rule {
    is_egress: bool,
    is_v6: bool,
    priority: u32,
    is_permit: bool,
    protocol: &'static str,
    src: &'static str,
    dst: &'static str,
    src_ports: Option<(u16, u16)>,
    dst_ports: Option<(u16, u16)>,
}

#[derive(Clone, Debug)]
pub struct World {
    rules: Vec<Rule>,
    is_stateful: bool,
}

impl Rule {
    fn matches(&self, packet: &Packet) -> bool {
        let (src, dst) = packet.ends();
        let within = |net: &str, address: IpAddr| net.parse::<IpNet>().unwrap().contains(&address);
        let among = |range: Option<(u16, u16)>, port| {
            range.is_none_or(|(first, last)| (first..=last).contains(&port))
        };
        let protocol = match self.protocol {
            "ANY" => packet.protocol,
            "TCP" => 6,
            "UDP" => 17,
            "ICMP" => 1,
            _ => 58,
        };
        self.is_egress == packet.is_egress
            && self.is_v6 == packet.peer.is_ipv6()
            && protocol == packet.protocol
            && within(self.src, src)
            && within(self.dst, dst)
            && among(self.src_ports, packet.src_port)
            && among(self.dst_ports, packet.dst_port)
    }

    fn text(&self, index: usize) -> String {
        let range = |name: &str, range: Option<(u16, u16)>| {
            range.map_or(format!("\"{name}\": null"), |(first, last)| {
                format!("\"{name}\": \"{first}-{last}\"")
            })
        };
        format!(
            "{{\"name\": \"r{index}\", \"direction\": \"{}\", {}, {}, \"protocol\": \"{}\", \"action\": \"{}\", \"priority\": {}, \
             \"sourcePrefix\": \"{}\", \"destinationPrefix\": \"{}\"}}",
            if self.is_egress { "EGRESS" } else { "INGRESS" },
            range("sourcePortRange", self.src_ports),
            range("destinationPortRange", self.dst_ports),
            self.protocol,
            if self.is_permit { "PERMIT" } else { "DENY" },
            self.priority,
            self.src,
            self.dst,
        )
    }

    /// As the card's agent has it.
    const fn can_be_stateful(&self) -> bool {
        self.is_egress && !self.is_v6 && self.dst_ports.is_some() && self.src_ports.is_none()
    }
}

impl World {
    /// Of equal priorities, the order is open; the one that denies is expected first.
    fn first(&self, packet: &Packet) -> Option<&Rule> {
        let its = self.rules.iter().filter(|rule| rule.matches(packet));
        its.min_by_key(|rule| (rule.priority, rule.is_permit))
    }

    pub fn is_accepted(&self, packet: &Packet) -> bool {
        self.first(packet).is_some_and(|rule| rule.is_permit)
    }

    /// Whether the reply to a packet that is accepted comes through.
    pub fn is_answered(&self, packet: &Packet) -> bool {
        let has_state = self.is_stateful && self.first(packet).is_some_and(Rule::can_be_stateful);
        self.first(&packet.reply()).map_or(has_state, |rule| rule.is_permit)
    }

    pub fn text(&self) -> String {
        let rules: Vec<String> =
            self.rules.iter().enumerate().map(|(index, rule)| rule.text(index)).collect();
        format!(
            "{{\"id\": \"1\", \"name\": \"a\", \"tenantId\": \"red\", \"statefulEgress\": {}, \"rules\": [{}]}}",
            self.is_stateful,
            rules.join(",\n")
        )
    }
}

fn rule(is_plain: bool) -> impl Strategy<Value = Rule> {
    let ports = || option::weighted(0.5, (select(PORTS.to_vec()), select(PORTS.to_vec())));
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.8));
    (flags, 0..4u32, 0..4usize, 0..8usize, ports(), ports()).prop_map(
        move |((is_egress, is_v6, is_permit), priority, protocol, nets, src_ports, dst_ports)| {
            let protocol = ["ANY", if is_v6 { "ICMP6" } else { "ICMP" }, "TCP", "UDP"][protocol];
            let has_ports = matches!(protocol, "TCP" | "UDP");
            let sorted =
                |ports: Option<(u16, u16)>| ports.filter(|_| has_ports).map(|(a, b)| (a.min(b), a.max(b)));
            let all = if is_v6 { &NETS_V6[..] } else { &NETS[..] };
            let far = all[nets % all.len()];
            let own = if is_plain || nets < 6 { all[0] } else { all[1] };
            let (src, dst) = if is_egress { (own, far) } else { (far, own) };
            let src_ports = sorted(src_ports).filter(|_| !is_plain);
            let dst_ports = sorted(dst_ports);
            Rule { is_egress, is_v6, priority, is_permit, protocol, src, dst, src_ports, dst_ports }
        },
    )
}

pub fn world(is_plain: bool) -> impl Strategy<Value = World> {
    let rules = vec(rule(is_plain), 0..6);
    (rules, any::<bool>(), any::<bool>()).prop_map(|(mut rules, is_stateful, is_open)| {
        for (is_egress, is_v6) in [(true, false), (false, false), (true, true), (false, true)] {
            let all = if is_v6 { NETS_V6[0] } else { NETS[0] };
            let open = Rule {
                is_egress,
                is_v6,
                priority: 9,
                is_permit: true,
                protocol: "ANY",
                src: all,
                dst: all,
                src_ports: None,
                dst_ports: None,
            };
            rules.extend(is_open.then_some(open));
        }
        World { rules, is_stateful }
    })
}

pub fn packet() -> impl Strategy<Value = Packet> {
    let ports = (select(PORTS.to_vec()), select(PORTS.to_vec()));
    (any::<bool>(), select(PEERS.to_vec()), select(vec![1u8, 6, 17, 47]), ports).prop_map(
        |(is_egress, peer, protocol, (src_port, dst_port))| {
            let peer: IpAddr = peer.parse().unwrap();
            let protocol = if protocol == 1 && peer.is_ipv6() { 58 } else { protocol };
            Packet { is_egress, peer, protocol, src_port, dst_port }
        },
    )
}
