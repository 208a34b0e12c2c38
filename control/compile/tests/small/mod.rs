//! Small programs and questions about them. Every boundary of theirs lies among a few addresses and services, so that
//! these few are representatives of all.

use std::{cmp::Reverse, net::IpAddr};

use compile::verify::{End, Expect, Question};
use ipnet::IpNet;
use program::{
    Device, Endpoint, Hop, Origin, PeerBlock, Place, Port, PortId, PortRange, Program, QpRange, Route, Rule,
    RuleListId, RuleSet, Service, ServiceMatch, Tenant, TenantId, Tier, Verdict, Vni, VtepId,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use wire::Mac;

const QP_MAX: u32 = 0xff_ffff;
const LISTS: u32 = 4;

/// The addresses of hosts and prefixes, one behind them, and those that are not for sources.
pub fn addresses() -> Vec<IpAddr> {
    let hosts = host_texts();
    let others = ["9.255.255.255", "10.0.0.8", "127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0"];
    let v6 = ["fcff::", "fd00::2", "::1", "ff02::1"];
    hosts.iter().map(String::as_str).chain(others).chain(v6).map(|text| text.parse().unwrap()).collect()
}

fn host_texts() -> Vec<String> {
    (0..8).map(|last| format!("10.0.0.{last}")).chain((0..2).map(|last| format!("fd00::{last}"))).collect()
}

fn prefixes() -> Vec<IpNet> {
    let hosts = host_texts();
    let single = hosts.iter().map(|host| IpNet::from(host.parse::<IpAddr>().unwrap()));
    let wide = [
        "10.0.0.0/29",
        "10.0.0.0/30",
        "10.0.0.4/30",
        "10.0.0.2/31",
        "10.0.0.6/31",
        "0.0.0.0/0",
        "::/0",
        "fd00::/127",
    ];
    single.chain(wide.map(|text| text.parse().unwrap())).collect()
}

/// Services with their source ports; what the other family alone has is left out, as are packets that cannot be.
pub fn services(is_v4: bool) -> Vec<(Service, u16)> {
    let ports = [0, 1, 79, 80, 81, 82, 4789, 4790, 4791, 4792, 4793, 65534, 65535];
    let mut all: Vec<(Service, u16)> =
        ports.iter().flat_map(|port| [(Service::Tcp(*port), 7), (Service::Sctp(*port), 7)]).collect();
    all.extend(ports.iter().filter(|port| **port != 4791).map(|port| (Service::Udp(*port), 7)));
    for port in [68, 546] {
        all.extend([7, 67, 547].map(|src_port| (Service::Udp(port), src_port)));
    }
    all.extend([0, 1, 15, 16, 17, QP_MAX - 1, QP_MAX].map(|qp| (Service::Roce(qp), 0)));
    all.extend([1, 6, 17, 50, 58, 99, 132].map(|protocol| (Service::Opaque(protocol), 0)));
    for kind in [0, 1, 7, 8, 9, 255] {
        for code in [0, 1, 2, 255] {
            all.push((if is_v4 { Service::Icmp(kind, code) } else { Service::Icmpv6(kind, code) }, 0));
        }
    }
    all
}

/// Two tenants: the ports 1 and 2 are of the first, 3 is of the second, 0 is the uplink. Some programs are broken: hosts at
/// ports of others or at none, ports that own what lives elsewhere, one VNI for both.
pub fn program() -> impl Strategy<Value = Program> {
    let tenants = (tenant(vec![1, 2]), tenant(vec![3]), prop::bool::weighted(0.2));
    let lists = vec(vec(rule(), 0..6), LISTS as usize);
    let ports = vec((0..LISTS, 0..LISTS, option::weighted(0.2, host())), 3);
    (tenants, lists, ports).prop_map(|((first, second, is_shared), lists, ports)| {
        let mut program = Program { vteps: vec![None; 2], ..Program::default() };
        for (index, mut tenant) in [first, second].into_iter().enumerate() {
            tenant.id = TenantId(index as u16);
            tenant.vni = Vni(if is_shared { 7 } else { 7 + index as u32 });
            program.tenants.push(Some(tenant));
        }
        let mut set = RuleSet::default();
        for mut rules in lists {
            // A list never goes back to an earlier tier.
            rules.sort_by_key(|rule| rule.tier);
            let first = set.rules.len() as u32;
            set.lists.push((first..first + rules.len() as u32).collect());
            set.rules.extend(rules);
        }
        program.rules.push(TenantId(0), set.into());
        program.ports.push(None);
        for (index, (egress, ingress, stray)) in ports.into_iter().enumerate() {
            let id = PortId(index as u16 + 1);
            let tenant = TenantId(u16::from(index == 2));
            let lives = |host: &&Endpoint| host.hop.place == Place::Port(id);
            let hosts = program.tenant(tenant).unwrap().endpoints.iter().filter(lives);
            program.ports.push(Some(Port {
                id,
                tenant,
                mac: Mac([2, 0, 0, 0, 0, 1]),
                addresses: hosts.map(|host| host.address).chain(stray).collect(),
                mtu: 1500,
                egress: RuleListId(egress),
                ingress: RuleListId(ingress),
            }));
        }
        let device = |index| Device { name: format!("p{index}"), device: "memory:".into(), mtu: 1500 };
        program.devices = (0..4).map(device).collect();
        program
    })
}

fn tenant(ports: Vec<u16>) -> impl Strategy<Value = Tenant> {
    let place = prop_oneof![
        6 => select(ports).prop_map(|port| Place::Port(PortId(port))),
        3 => (0..2u16).prop_map(|vtep| Place::Vtep(VtepId(vtep))),
        1 => (0..5u16).prop_map(|port| Place::Port(PortId(port))),
    ];
    let endpoint = (host(), place)
        .prop_map(|(address, place)| Endpoint { address, hop: Hop { mac: Mac([2, 0, 0, 0, 0, 1]), place } });
    let hop = |vtep: u16| Hop { mac: Mac([2, 0, 0, 0, 1, vtep as u8]), place: Place::Vtep(VtepId(vtep)) };
    let hops = prop_oneof![Just(vec![0]), Just(vec![1]), Just(vec![0, 1])];
    let route = (select(prefixes()), hops)
        .prop_map(move |(prefix, hops)| Route { prefix, hops: hops.into_iter().map(hop).collect() });
    (vec(endpoint, 0..6), vec(route, 0..3)).prop_map(|(mut endpoints, mut routes)| {
        endpoints.sort_by_key(|endpoint| endpoint.address);
        endpoints.dedup_by_key(|endpoint| endpoint.address);
        routes.sort_by_key(|route| (Reverse(route.prefix.prefix_len()), route.prefix));
        Tenant {
            id: TenantId(0),
            name: "t".into(),
            vni: Vni(1),
            gateway_mac: Mac([2, 0, 0, 0, 0, 9]),
            gateways: vec![],
            endpoints,
            routes,
            flow_quota: 1,
            fragment_quota: 1,
            connections: Default::default(),
            queue_pair_quota: 1,
            roce: program::Roce::default(),
        }
    })
}

fn host() -> impl Strategy<Value = IpAddr> {
    select(host_texts()).prop_map(|text| text.parse().unwrap())
}

fn rule() -> impl Strategy<Value = Rule> {
    let verdict = prop_oneof![6 => Just(Verdict::Accept), 2 => Just(Verdict::Deny), 1 => Just(Verdict::Pass)];
    let tier = select(vec![Tier::Admin, Tier::Tenant, Tier::Baseline, Tier::Default]);
    (tier, verdict, option::weighted(0.6, blocks()), vec(service(), 0..3)).prop_map(
        |(tier, verdict, peers, services)| Rule {
            tier,
            verdict,
            peers,
            services,
            log: false,
            origin: Origin::default(),
        },
    )
}

/// Now and then one of sources that no packet has.
fn net() -> impl Strategy<Value = IpNet> {
    let martian = ["127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::1/128", "ff00::/8"];
    let martian = select(martian.map(|text| text.parse().unwrap()).to_vec());
    prop_oneof![12 => select(prefixes()), 1 => martian]
}

fn blocks() -> impl Strategy<Value = Vec<PeerBlock>> {
    let block = (net(), vec(net(), 0..3)).prop_map(|(net, except)| PeerBlock { net, except });
    vec(block, 0..4)
}

fn service() -> impl Strategy<Value = ServiceMatch> {
    let port = || select(vec![0u16, 80, 81, 4790, 4791, 4792, u16::MAX]);
    let range = || {
        prop_oneof![
            3 => (port(), port()).prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) }),
            1 => Just(PortRange::ALL),
        ]
    };
    let qp = || select(vec![0, 16, QP_MAX]);
    let kind = || option::of(select(vec![0u8, 8]));
    let code = || option::of(select(vec![0u8, 1]));
    prop_oneof![
        range().prop_map(ServiceMatch::Tcp),
        range().prop_map(ServiceMatch::Udp),
        range().prop_map(ServiceMatch::Sctp),
        (kind(), code()).prop_map(|(kind, code)| ServiceMatch::Icmp(kind, code)),
        (kind(), code()).prop_map(|(kind, code)| ServiceMatch::Icmpv6(kind, code)),
        (qp(), qp()).prop_map(|(a, b)| ServiceMatch::Roce(QpRange { first: a.min(b), last: a.max(b) })),
        select(vec![1u8, 6, 17, 50, 58, 132]).prop_map(ServiceMatch::Protocol),
    ]
}

/// Of the first tenant, to either.
pub fn question() -> impl Strategy<Value = Question> {
    let expect = select(vec![Expect::Allow, Expect::Deny]);
    let to = prop_oneof![4 => Just(TenantId(0)), 1 => Just(TenantId(1))];
    (expect, end(Just(TenantId(0))), end(to), option::of(vec(service(), 0..3)))
        .prop_map(|(expect, from, to, services)| Question { expect, from, to, services })
}

fn end(tenant: impl Strategy<Value = TenantId>) -> impl Strategy<Value = End> {
    let ports = option::weighted(0.3, vec((1..4u16).prop_map(PortId), 0..3));
    (tenant, ports, option::weighted(0.4, blocks())).prop_map(|(tenant, ports, blocks)| End {
        tenant,
        ports,
        blocks,
    })
}
