//! DASH as its behavioural model has it: a stage at a time, a table look-up in each.

use std::{fmt::Write, net::IpAddr};

use ipnet::IpNet;
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::packet::Packet;

/// Of IPv4; IPv6 is the same with other letters.
const NETS: [&str; 5] = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16", "10.2.0.7/32"];
const PEERS: [&str; 4] = ["10.1.0.99", "10.2.0.7", "10.2.0.8", "203.0.113.1"];
const NETS_V6: [&str; 3] = ["::/0", "fd00::/16", "fd00:2::/32"];
const PEERS_V6: [&str; 3] = ["fd00::99", "fd00:2::1", "2001:db8::1"];
const PORTS: [u16; 7] = [1, 79, 80, 81, 90, 4791, 65535];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    Deny,
    DenyAndContinue,
    PermitAndContinue,
    Permit,
}

#[derive(Clone, Debug)]
pub struct Rule {
    priority: u32,
    action: Action,
    src: Option<Vec<String>>,
    dst: Option<Vec<String>>,
    protocols: Option<Vec<u8>>,
    src_ports: Option<Vec<(u16, u16)>>,
    dst_ports: Option<Vec<(u16, u16)>>,
}

/// Up to three stages for each direction and family; `None` is a stage without a group.
#[derive(Clone, Debug)]
pub struct World {
    stages: [[[Option<Vec<Rule>>; 3]; 2]; 2],
}

impl Rule {
    fn matches(&self, packet: &Packet) -> bool {
        let (src, dst) = packet.ends();
        let has_ports = matches!(packet.protocol, 6 | 17);
        let port = |port| if has_ports { port } else { 0 };
        let within = |nets: &Option<Vec<String>>, address: IpAddr| match nets {
            None => true,
            Some(nets) => nets.iter().any(|net| net.parse::<IpNet>().unwrap().contains(&address)),
        };
        let among = |ranges: &Option<Vec<(u16, u16)>>, port: u16| match ranges {
            None => true,
            Some(ranges) => ranges.iter().any(|(first, last)| (*first..=*last).contains(&port)),
        };
        within(&self.src, src)
            && within(&self.dst, dst)
            && self.protocols.as_ref().is_none_or(|all| all.contains(&packet.protocol))
            && among(&self.src_ports, port(packet.src_port))
            && among(&self.dst_ports, port(packet.dst_port))
    }
}

impl World {
    /// Where no group at all is bound, DASH accepts and floodway's default denies: that is said, and expected here.
    pub fn is_accepted(&self, packet: &Packet) -> bool {
        let stages = &self.stages[usize::from(packet.is_egress)][usize::from(packet.peer.is_ipv6())];
        if stages.iter().all(Option::is_none) {
            return false;
        }
        let mut is_dropped = false;
        for rules in stages.iter().flatten() {
            // Of equal priorities, the order is open; what lets less through is expected first.
            let found = rules
                .iter()
                .filter(|rule| rule.matches(packet))
                .min_by_key(|rule| (rule.priority, rule.action.strictness()));
            match found.map(|rule| rule.action) {
                None => return false,
                Some(Action::Permit) => return !is_dropped,
                Some(Action::Deny) => return false,
                Some(Action::PermitAndContinue) => {}
                Some(Action::DenyAndContinue) => is_dropped = true,
            }
        }
        !is_dropped
    }

    pub fn text(&self) -> String {
        let mut records = vec![];
        for (direction, table) in ["IN", "OUT"].into_iter().enumerate() {
            for (family, version) in ["ipv4", "ipv6"].into_iter().enumerate() {
                for (stage, rules) in self.stages[direction][family].iter().enumerate() {
                    let Some(rules) = rules else { continue };
                    let group = format!("{table}{version}{stage}");
                    let field = ["v4_acl_group_id", "v6_acl_group_id"][family];
                    records.push(format!(
                        "{{\"DASH_ACL_GROUP_TABLE:{group}\": {{\"ip_version\": \"{version}\"}}}}"
                    ));
                    let stage = stage * 2 + 1;
                    // The two families of one stage are one record.
                    let key = format!("{{\"DASH_ACL_{table}_TABLE:host0:{stage}\": {{");
                    match records.iter_mut().find(|record| record.starts_with(&key)) {
                        Some(record) => {
                            *record = record.replacen(&key, &format!("{key}\"{field}\": \"{group}\", "), 1)
                        }
                        None => records.push(format!("{key}\"{field}\": \"{group}\"}}}}")),
                    }
                    records.extend(rules.iter().enumerate().map(|(index, rule)| rule.text(&group, index)));
                }
            }
        }
        // Every ENI is told, with or without groups.
        records.push("{\"DASH_ENI_TABLE:host0\": {\"vnet\": \"Red\"}, \"OP\": \"SET\"}".into());
        format!("[{}]", records.join(",\n"))
    }
}

impl Action {
    const fn strictness(self) -> u8 {
        match self {
            Self::Deny | Self::DenyAndContinue => 0,
            Self::PermitAndContinue => 1,
            Self::Permit => 2,
        }
    }
}

impl Rule {
    fn text(&self, group: &str, index: usize) -> String {
        let (action, terminating) = match self.action {
            Action::Permit => ("allow", true),
            Action::PermitAndContinue => ("allow", false),
            Action::Deny => ("deny", true),
            Action::DenyAndContinue => ("deny", false),
        };
        let mut out = format!(
            "{{\"DASH_ACL_RULE_TABLE:{group}:r{index}\": {{\"priority\": {}, \"action\": \"{action}\", \"terminating\": \"{terminating}\"",
            self.priority
        );
        let mut field = |name: &str, items: Option<Vec<String>>| {
            items.iter().for_each(|items| write!(out, ", \"{name}\": \"{}\"", items.join(",")).unwrap());
        };
        let ranges = |all: &Option<Vec<(u16, u16)>>| {
            let text = |(first, last): &(u16, u16)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            };
            all.as_ref().map(|all| all.iter().map(text).collect())
        };
        field("src_addr", self.src.clone());
        field("dst_addr", self.dst.clone());
        field("protocol", self.protocols.as_ref().map(|all| all.iter().map(u8::to_string).collect()));
        field("src_port", ranges(&self.src_ports));
        field("dst_port", ranges(&self.dst_ports));
        out + "}}"
    }
}

fn nets(is_v6: bool) -> BoxedStrategy<Option<Vec<String>>> {
    let all: Vec<String> =
        if is_v6 { NETS_V6.map(String::from).to_vec() } else { NETS.map(String::from).to_vec() };
    option::weighted(0.7, vec(select(all), 1..3)).boxed()
}

fn range(lowest: u16) -> BoxedStrategy<(u16, u16)> {
    let port = move || select([&[lowest], &PORTS[..]].concat());
    prop_oneof![3 => (port(), port()).prop_map(|(a, b)| (a.min(b), a.max(b))), 1 => Just((0, u16::MAX))]
        .boxed()
}

fn sometimes<T: std::fmt::Debug + Clone + 'static>(
    is_it: bool,
    strategy: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    if is_it { option::weighted(0.3, strategy).boxed() } else { Just(None).boxed() }
}

/// `is_sayable` leaves out what native rules have no words for.
fn rule(is_egress: bool, is_v6: bool, is_sayable: bool) -> BoxedStrategy<Rule> {
    let lowest = u16::from(is_sayable);
    let action =
        select(vec![Action::Deny, Action::DenyAndContinue, Action::PermitAndContinue, Action::Permit]);
    let protocols = option::weighted(0.5, vec(select(vec![1u8, 6, 17, 47, 58]), 1..3));
    let own = sometimes(!is_sayable, nets(is_v6)).prop_map(Option::flatten);
    let src_ports = sometimes(!is_sayable, vec(range(lowest), 1..3));
    let dst_ports = option::weighted(0.4, vec(range(lowest), 1..3));
    (0..6u32, action, nets(is_v6), own, protocols, src_ports, dst_ports)
        .prop_map(move |(priority, action, far, own, protocols, src_ports, dst_ports)| {
            let (src, dst) = if is_egress { (own, far) } else { (far, own) };
            Rule { priority, action, src, dst, protocols, src_ports, dst_ports }
        })
        .boxed()
}

pub fn world(is_sayable: bool) -> impl Strategy<Value = World> {
    let stages = move |is_egress, is_v6| {
        let stage = move || option::weighted(0.7, vec(rule(is_egress, is_v6, is_sayable), 0..5));
        [stage(), stage(), stage()]
    };
    let families = move |is_egress| [stages(is_egress, false), stages(is_egress, true)];
    [families(false), families(true)].prop_map(|stages| World { stages })
}

pub fn packet() -> impl Strategy<Value = Packet> {
    let peer = select([&PEERS[..], &PEERS_V6[..]].concat());
    let ports = (select(PORTS.to_vec()), select(PORTS.to_vec()));
    (any::<bool>(), peer, select(vec![1u8, 6, 17, 47, 58, 132]), ports).prop_map(
        |(is_egress, peer, protocol, (src_port, dst_port))| {
            let peer: IpAddr = peer.parse().unwrap();
            // ICMP of the other family is none.
            let protocol = match (protocol, peer.is_ipv6()) {
                (1, true) => 58,
                (58, false) => 1,
                (other, _) => other,
            };
            Packet { is_egress, peer, protocol, src_port, dst_port }
        },
    )
}
