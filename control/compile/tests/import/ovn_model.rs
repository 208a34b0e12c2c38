//! ACLs of OVN as ovn-nb(5) and ovn-sb(5) tell it: the expression is asked about the packet as it stands, tier by tier.

use std::net::IpAddr;

use ipnet::IpNet;
use program::Service;
use proptest::{collection::vec, prelude::*, sample::select};

const HOSTS: [[&str; 2]; 2] = [["10.1.0.10", "fd00::10"], ["10.1.0.11", "fd00::11"]];
const PEERS: [&str; 7] =
    ["10.1.0.10", "10.1.0.11", "10.2.0.7", "203.0.113.1", "fd00::11", "fd00:2::1", "2001:db8::1"];
const PORTS: [u16; 6] = [1, 79, 80, 81, 4791, 65535];
/// Members of the port groups `pg0` to `pg2`.
const GROUPS: [&[usize]; 3] = [&[0], &[0, 1], &[]];
const SET_V4: [&str; 2] = ["10.2.0.0/16", "10.1.0.11"];
const SET_V6: [&str; 1] = ["fd00:2::/32"];

#[derive(Clone, Debug)]
pub enum Expression {
    Is(bool),
    Flag(&'static str),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
    /// Field, comparison, constants as they are written.
    Test(&'static str, &'static str, Vec<String>),
    /// Lowest, field, highest.
    Range(u16, &'static str, u16),
}

#[derive(Clone, Debug)]
pub struct Acl {
    /// `None` is the switch.
    group: Option<usize>,
    is_egress: bool,
    tier: u8,
    priority: u16,
    action: &'static str,
    is_after_lb: bool,
    expression: Expression,
}

#[derive(Clone, Debug)]
pub struct World {
    acls: Vec<Acl>,
    is_drop_default: bool,
}

#[derive(Clone, Debug)]
pub struct Packet {
    pub port: usize,
    pub is_egress: bool,
    pub peer: IpAddr,
    protocol: u8,
    src_port: u16,
    dst_port: u16,
    icmp: (u8, u8),
    is_new: bool,
}

impl Packet {
    pub fn service(&self) -> Service {
        match self.protocol {
            6 => Service::Tcp(self.dst_port),
            17 if self.dst_port == 4791 => Service::Roce(17),
            17 => Service::Udp(self.dst_port),
            132 => Service::Sctp(self.dst_port),
            1 => Service::Icmp(self.icmp.0, self.icmp.1),
            58 => Service::Icmpv6(self.icmp.0, self.icmp.1),
            other => Service::Opaque(other),
        }
    }

    fn ends(&self) -> (IpAddr, IpAddr) {
        let own = HOSTS[self.port][usize::from(self.peer.is_ipv6())].parse().unwrap();
        if self.is_egress { (own, self.peer) } else { (self.peer, own) }
    }

    fn flag(&self, name: &str) -> bool {
        let (is_v4, protocol) = (self.peer.is_ipv4(), self.protocol);
        match name {
            "ip" => true,
            "ip4" => is_v4,
            "ip6" => !is_v4,
            "tcp" => protocol == 6,
            "udp" => protocol == 17,
            "sctp" => protocol == 132,
            "icmp4" => is_v4 && protocol == 1,
            "icmp6" => !is_v4 && protocol == 58,
            "icmp" => self.flag("icmp4") || self.flag("icmp6"),
            "arp" => false,
            "ct.new" => self.is_new,
            _ => panic!("{name}"),
        }
    }

    /// The value of a numeric field, and what the field presupposes.
    fn number(&self, field: &str) -> (bool, u16) {
        match field {
            "ip.proto" => (true, self.protocol.into()),
            "tcp.dst" => (self.flag("tcp"), self.dst_port),
            "udp.dst" => (self.flag("udp"), self.dst_port),
            "sctp.dst" => (self.flag("sctp"), self.dst_port),
            "tcp.src" => (self.flag("tcp"), self.src_port),
            "icmp4.type" => (self.flag("icmp4"), self.icmp.0.into()),
            "icmp4.code" => (self.flag("icmp4"), self.icmp.1.into()),
            "icmp6.type" => (self.flag("icmp6"), self.icmp.0.into()),
            _ => panic!("{field}"),
        }
    }
}

fn holds(set: &[&str], address: IpAddr) -> bool {
    set.iter().any(|net| {
        net.parse::<IpNet>()
            .map_or_else(|_| net.parse::<IpAddr>().unwrap() == address, |net| net.contains(&address))
    })
}

fn address_is(address: IpAddr, constant: &str) -> bool {
    match constant {
        "$as4" => holds(&SET_V4, address),
        "$as6" => holds(&SET_V6, address),
        "$pg1_ip4" => holds(&[HOSTS[0][0], HOSTS[1][0]], address),
        "$pg0_ip6" => holds(&[HOSTS[0][1]], address),
        net => holds(&[net], address),
    }
}

impl Expression {
    /// `!` turns comparisons around and leaves what their fields presuppose.
    fn matches(&self, packet: &Packet, is_negated: bool) -> bool {
        match self {
            Self::Is(is) => *is != is_negated,
            Self::Flag(name) => packet.flag(name) != is_negated,
            Self::Not(inner) => inner.matches(packet, !is_negated),
            Self::All(parts) if !is_negated => parts.iter().all(|part| part.matches(packet, false)),
            Self::Any(parts) if is_negated => parts.iter().all(|part| part.matches(packet, true)),
            Self::All(parts) | Self::Any(parts) => parts.iter().any(|part| part.matches(packet, is_negated)),
            Self::Range(low, field, high) => {
                let (is_there, number) = packet.number(field);
                is_there && ((*low..=*high).contains(&number) != is_negated)
            }
            Self::Test(field, comparison, constants) => {
                let (is_there, is) = Self::test(field, comparison, constants, packet);
                is_there && is != is_negated
            }
        }
    }

    /// Whether the packet has the field, and whether the comparison holds.
    fn test(field: &str, comparison: &str, constants: &[String], packet: &Packet) -> (bool, bool) {
        let (src, dst) = packet.ends();
        let is_equal = |constant: &String| match field {
            "inport" | "outport" => match constant.strip_prefix("@pg") {
                Some(group) => GROUPS[group.parse::<usize>().unwrap()].contains(&packet.port),
                None => *constant == format!("\"host{}\"", packet.port),
            },
            "ip4.src" | "ip6.src" => address_is(src, constant),
            "ip4.dst" | "ip6.dst" => address_is(dst, constant),
            field => packet.number(field).1 == constant.parse::<u16>().unwrap(),
        };
        let is_there = match field {
            "inport" | "outport" => true,
            "ip4.src" | "ip4.dst" => packet.peer.is_ipv4(),
            "ip6.src" | "ip6.dst" => packet.peer.is_ipv6(),
            field => packet.number(field).0,
        };
        let number = || (packet.number(field).1, constants[0].parse::<u16>().unwrap());
        let is = match comparison {
            "==" => constants.iter().any(is_equal),
            "!=" => !constants.iter().any(is_equal),
            "<" => number().0 < number().1,
            "<=" => number().0 <= number().1,
            ">" => number().0 > number().1,
            ">=" => number().0 >= number().1,
            _ => panic!("{comparison}"),
        };
        (is_there, is)
    }

    fn text(&self) -> String {
        let several = |parts: &[Self], mark: &str| {
            let parts: Vec<String> = parts.iter().map(|part| format!("({})", part.text())).collect();
            parts.join(mark)
        };
        match self {
            Self::Is(is) => u8::from(*is).to_string(),
            Self::Flag(name) => (*name).into(),
            Self::Not(inner) => format!("!({})", inner.text()),
            Self::All(parts) => several(parts, " && "),
            Self::Any(parts) => several(parts, "||"),
            Self::Range(low, field, high) => format!("{low} <= {field} <= {high}"),
            Self::Test(field, comparison, constants) => match constants.as_slice() {
                // The sides of an equality may be exchanged.
                [one] if *comparison == "==" && one.len() % 2 == 0 => format!("{one} == {field}"),
                [one] => format!("{field} {comparison} {one}"),
                several => format!("{field} {comparison} {{{}}}", several.join(", ")),
            },
        }
    }
}

impl World {
    /// Where no ACL is allow-related no state is kept, and nothing is let through; where there is none, neither.
    pub fn has_state(&self) -> bool {
        self.applied().any(|acl| acl.action == "allow-related")
    }

    /// The group without ports is on no switch.
    fn applied(&self) -> impl Iterator<Item = &Acl> {
        self.acls.iter().filter(|acl| acl.group.is_none_or(|group| !GROUPS[group].is_empty()))
    }

    pub fn is_accepted(&self, packet: &Packet) -> bool {
        let after_lb = |is_after_lb| {
            let its = move |acl: &&Acl| acl.is_after_lb == is_after_lb && acl.is_egress == packet.is_egress;
            self.applied().filter(its)
        };
        let passes = |is_after_lb| {
            for tier in 0..4 {
                // Of equal priorities, the order is open; what lets less through is expected first.
                let found = after_lb(is_after_lb)
                    .filter(|acl| acl.tier == tier && acl.expression.matches(packet, false))
                    .min_by_key(|acl| (std::cmp::Reverse(acl.priority), strictness(acl.action)));
                match found.map(|acl| acl.action) {
                    None | Some("pass") => {}
                    Some(action) => return action.starts_with("allow"),
                }
            }
            !self.is_drop_default
        };
        passes(false) && (after_lb(true).next().is_none() || passes(true))
    }

    pub fn text(&self) -> String {
        let uuid = |kind: &str, index: usize| format!("[\"uuid\", \"{kind}{index}\"]");
        let set = |all: Vec<String>| format!("[\"set\", [{}]]", all.join(", "));
        let acls_of = |group: Option<usize>| {
            let its = self.acls.iter().enumerate().filter(|(_, acl)| acl.group == group);
            set(its.map(|(index, _)| uuid("acl", index)).collect())
        };
        let ports: Vec<String> = HOSTS
            .iter()
            .enumerate()
            .map(|(index, [v4, v6])| {
                let address = format!("\"02:00:00:00:00:1{index} {v4} {v6}\"");
                format!("[{}, \"host{index}\", {address}, {}, \"\"]", uuid("port", index), set(vec![]))
            })
            .collect();
        let groups = GROUPS.iter().enumerate().map(|(index, members)| {
            let members = set(members.iter().map(|port| uuid("port", *port)).collect());
            format!("[{}, \"pg{index}\", {members}, {}]", uuid("pg", index), acls_of(Some(index)))
        });
        let sets = [("as4", &SET_V4[..]), ("as6", &SET_V6[..])].into_iter().enumerate();
        let sets = sets.map(|(index, (name, nets))| {
            let nets = set(nets.iter().map(|net| format!("\"{net}\"")).collect());
            format!("[{}, \"{name}\", {nets}]", uuid("as", index))
        });
        let acls = self.acls.iter().enumerate().map(|(index, acl)| acl.text(&uuid("acl", index)));
        let both = set((0..2).map(|port| uuid("port", port)).collect());
        let switch = format!("[{}, \"Red\", {both}, {}, [\"set\", []]]", uuid("ls", 0), acls_of(None));
        let options = format!("[\"map\", [[\"default_acl_drop\", \"{}\"]]]", self.is_drop_default);
        let table = |headings: &str, rows: Vec<String>| {
            let headings: Vec<String> = headings.split(' ').map(|name| format!("\"{name}\"")).collect();
            format!("{{\"headings\": [{}], \"data\": [\n{}]}}", headings.join(","), rows.join(",\n"))
        };
        [
            table("_uuid name addresses port_security type", ports),
            table("_uuid name ports acls qos_rules", vec![switch]),
            table("_uuid name ports acls", groups.collect()),
            table("_uuid name addresses", sets.collect()),
            table("nb_cfg options", vec![format!("[0, {options}]")]),
            table("_uuid action direction log match priority tier options", acls.collect()),
        ]
        .join(",\n")
    }
}

const fn strictness(action: &str) -> u8 {
    match action.as_bytes() {
        b"drop" | b"reject" => 0,
        b"pass" => 1,
        _ => 2,
    }
}

impl Acl {
    fn text(&self, uuid: &str) -> String {
        let direction = if self.is_egress { "from-lport" } else { "to-lport" };
        let expression = self.expression.text().replace('"', "\\\"");
        let options = if self.is_after_lb { "[[\"apply-after-lb\", \"true\"]]" } else { "[]" };
        format!(
            "[{uuid}, \"{}\", \"{direction}\", false, \"{expression}\", {}, {}, [\"map\", {options}]]",
            self.action, self.priority, self.tier
        )
    }
}

fn test(
    field: &'static str,
    comparisons: &'static [&'static str],
    constants: Vec<String>,
    most: usize,
) -> BoxedStrategy<Expression> {
    (select(comparisons), vec(select(constants), 1..=most))
        .prop_map(move |(comparison, constants)| Expression::Test(field, comparison, constants))
        .boxed()
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_string()).collect()
}

fn numbers(all: &[u16]) -> Vec<String> {
    all.iter().map(u16::to_string).collect()
}

/// What may be negated and still be said.
fn leaf(is_egress: bool) -> BoxedStrategy<Expression> {
    const BOTH: &[&str] = &["==", "!="];
    let (port, far4, far6) =
        if is_egress { ("inport", "ip4.dst", "ip6.dst") } else { ("outport", "ip4.src", "ip6.src") };
    let flags = ["ip", "ip4", "ip6", "tcp", "udp", "sctp", "icmp4", "icmp6", "icmp", "arp"];
    prop_oneof![
        1 => any::<bool>().prop_map(Expression::Is),
        4 => select(flags.to_vec()).prop_map(Expression::Flag),
        4 => test(port, BOTH, texts(&["@pg0", "@pg1", "@pg2", "\"host0\"", "\"host1\"", "\"none\""]), 2),
        4 => test(far4, BOTH, texts(&["10.0.0.0/8", "10.1.0.11", "0.0.0.0/0", "$as4", "$pg1_ip4"]), 3),
        4 => test(far6, BOTH, texts(&["fd00::/16", "fd00::11", "$as6", "$pg0_ip6"]), 2),
        2 => test("ip.proto", BOTH, numbers(&[1, 6, 17, 47, 58]), 2),
    ]
    .boxed()
}

/// What may not: its complement has port 0, or too many types and codes.
fn positive() -> BoxedStrategy<Expression> {
    let range = |field: &'static str| {
        (select(PORTS.to_vec()), select(PORTS.to_vec()))
            .prop_map(move |(a, b)| Expression::Range(a.min(b), field, a.max(b)))
    };
    prop_oneof![
        test("tcp.dst", &["==", ">=", ">"], numbers(&PORTS), 1),
        test("udp.dst", &["=="], numbers(&PORTS), 3),
        range("sctp.dst"),
        range("tcp.dst"),
        test("icmp4.type", &["=="], numbers(&[0, 8]), 2),
        test("icmp6.type", &["=="], numbers(&[128]), 1),
        Just(Expression::All(vec![
            Expression::Test("icmp4.type", "==", numbers(&[8])),
            Expression::Test("icmp4.code", "==", numbers(&[1])),
        ])),
    ]
    .boxed()
}

/// What has no equivalent, or not always.
fn unsayable(is_egress: bool) -> BoxedStrategy<Expression> {
    let own = if is_egress { "ip4.src" } else { "ip4.dst" };
    prop_oneof![
        Just(Expression::Flag("ct.new")),
        test("tcp.src", &["==", "!=", "<"], numbers(&PORTS), 1),
        test(own, &["==", "!="], texts(&["10.1.0.10", "10.1.0.0/16"]), 1),
        test("tcp.dst", &["!=", "<", "<="], numbers(&PORTS), 1),
        test("icmp4.code", &["!="], numbers(&[0]), 1),
    ]
    .boxed()
}

fn nested(leaf: BoxedStrategy<Expression>, is_negatable: bool) -> BoxedStrategy<Expression> {
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let all = vec(inner.clone(), 2..4).prop_map(Expression::All);
        let any = vec(inner.clone(), 2..4).prop_map(Expression::Any);
        if is_negatable {
            prop_oneof![all, any, inner.prop_map(|inner| Expression::Not(inner.into()))].boxed()
        } else {
            prop_oneof![all, any].boxed()
        }
    })
    .boxed()
}

fn acl(is_sayable: bool) -> impl Strategy<Value = Acl> {
    (any::<bool>(), any::<bool>()).prop_flat_map(move |(is_egress, is_after_lb)| {
        let negatable = nested(leaf(is_egress), true);
        let expression = if is_sayable {
            nested(prop_oneof![negatable, positive()].boxed(), false)
        } else {
            nested(prop_oneof![leaf(is_egress), positive(), unsayable(is_egress)].boxed(), true)
        };
        let mut actions = vec!["allow", "allow-related", "allow-related", "drop", "reject", "pass"];
        if !is_sayable {
            actions.push("allow-stateless");
        }
        let group = prop_oneof![2 => Just(None), 3 => (0..GROUPS.len()).prop_map(Some)];
        (group, 0..3u8, 0..4u16, select(actions), expression, 0..4u8).prop_map(
            move |(group, tier, priority, action, expression, rarely)| Acl {
                group,
                is_egress,
                tier,
                priority,
                action,
                is_after_lb: !is_sayable && is_egress && is_after_lb && rarely == 0,
                expression,
            },
        )
    })
}

pub fn world(is_sayable: bool) -> impl Strategy<Value = World> {
    (vec(acl(is_sayable), 1..8), any::<bool>())
        .prop_map(|(acls, is_drop_default)| World { acls, is_drop_default })
}

pub fn packet() -> impl Strategy<Value = Packet> {
    let ports = (select(PORTS.to_vec()), select(PORTS.to_vec()));
    let icmp = (select(vec![0u8, 8, 128]), 0..2u8);
    let what = (select(PEERS.to_vec()), select(vec![1u8, 6, 17, 47, 58, 132]), ports, icmp);
    (0..2usize, any::<bool>(), any::<bool>(), what).prop_map(
        |(port, is_egress, is_new, (peer, protocol, (src_port, dst_port), icmp))| {
            let peer: IpAddr = peer.parse().unwrap();
            // ICMP of the other family is none.
            let protocol = match (protocol, peer.is_ipv6()) {
                (1, true) => 58,
                (58, false) => 1,
                (other, _) => other,
            };
            Packet { port, is_egress, peer, protocol, src_port, dst_port, icmp, is_new }
        },
    )
}
