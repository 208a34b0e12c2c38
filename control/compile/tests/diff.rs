//! The classes of packets that `plan` names are those whose verdict changes: asked packet by packet.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

#[allow(dead_code)] // the evaluator's test uses all of it
mod model;

use std::net::IpAddr;

use compile::diff::{self, Change, Class, service_of};
use compile::explain::Side;
use model::{World, packet, world};
use policy::Source;
use program::{Program, Service, Verdict};
use proptest::prelude::*;

fn compile(world: &World) -> Program {
    program(&world.sources())
}

fn program(sources: &[Source]) -> Program {
    let parsed = policy::parse(sources).unwrap_or_else(|errors| panic!("{}", errors.render(sources)));
    compile::compile(&parsed.policy, None).unwrap().program
}

/// What a port's list says; a port that is not there has none.
fn accepts(program: &Program, name: &str, side: Side, peer: IpAddr, service: Service) -> bool {
    let port = program.ports.iter().flatten().find(|port| program.port_name(port.id) == name);
    let list = port.map(|port| if side == Side::Egress { port.egress } else { port.ingress });
    list.is_some_and(|list| program.decide(list, peer, service).verdict == Verdict::Accept)
}

fn names(programs: [&Program; 2]) -> Vec<String> {
    let name = |program: &Program| -> Vec<String> {
        program.ports.iter().flatten().map(|port| program.port_name(port.id).to_owned()).collect()
    };
    let mut names: Vec<String> = programs.into_iter().flat_map(name).collect();
    names.sort();
    names.dedup();
    names
}

fn covering<'a>(
    classes: &'a [Class],
    name: &str,
    side: Side,
    peer: IpAddr,
    service: Service,
) -> Vec<&'a Class> {
    let is_it = |class: &&Class| class.port == name && class.side == side && class.covers(peer, service);
    classes.iter().filter(is_it).collect()
}

/// Packets at the edges of what classes say, beside those that are drawn.
fn edges(classes: &[Class]) -> Vec<(IpAddr, Service)> {
    let edge = |class: &Class| {
        let addresses: Vec<IpAddr> = class.peers.iter().flat_map(|range| [range.first, range.last]).collect();
        let services: Vec<Service> = class
            .services
            .iter()
            .flat_map(|range| [range.first.saturating_sub(1), range.first, range.last, range.last + 1])
            .flat_map(|number| {
                let port = number.min(65_535) as u16;
                let byte = number.min(255) as u8;
                let udp = if port == 4791 { Service::Roce(0) } else { Service::Udp(port) };
                let roce = Service::Roce(number.min(0xff_ffff));
                [
                    Service::Tcp(port),
                    udp,
                    Service::Sctp(port),
                    roce,
                    Service::Icmp(byte, 0),
                    Service::Icmpv6(byte, 0),
                    Service::Opaque(byte),
                ]
            })
            .collect();
        addresses
            .into_iter()
            .flat_map(move |a| services.clone().into_iter().map(move |s| (a, s)))
            .filter(|(address, service)| service.fits(*address))
            .collect::<Vec<_>>()
    };
    classes.iter().take(12).flat_map(edge).take(4000).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_differ_exactly_within_the_classes(
        old in world(),
        new in world(),
        packets in prop::collection::vec(packet(), 60),
    ) {
        let (old, new) = (compile(&old), compile(&new));
        let plan = diff::diff(&old, &new);
        prop_assert!(!plan.classes.is_cut);
        let classes = &plan.classes.list;
        let mut asked: Vec<(IpAddr, Service)> = packets.iter().map(|p| (p.peer, p.service())).collect();
        asked.extend(edges(classes));
        for name in names([&old, &new]) {
            for side in [Side::Egress, Side::Ingress] {
                for &(peer, service) in &asked {
                    let word = |accepts: bool| if accepts { "accept" } else { "deny" };
                    let before = word(accepts(&old, &name, side, peer, service));
                    let after = word(accepts(&new, &name, side, peer, service));
                    let found = covering(classes, &name, side, peer, service);
                    prop_assert_eq!(found.len(), usize::from(before != after), "{} {:?} {} {:?}", name, side, peer, service);
                    prop_assert!(found.iter().all(|class| class.before == before && class.after == after));
                }
            }
        }
    }

    #[test]
    fn nothing_changes_between_a_program_and_itself(one in world()) {
        let one = compile(&one);
        let plan = diff::diff(&one, &one);
        prop_assert!(!plan.changed, "{:?}", plan);
        prop_assert!(plan.classes.list.is_empty() && plan.tenants.is_empty() && plan.fabric.is_empty());
    }

    /// Every example is of its class, and the two programs' lists do disagree about it.
    #[test]
    fn ranges_print_as_prefixes_or_as_their_ends(first in any::<u32>(), len in 0_u8..=32) {
        let net = ipnet::Ipv4Net::new(first.into(), len).unwrap().trunc();
        let range = diff::AddressRange { first: net.network().into(), last: net.broadcast().into() };
        let text = if len == 32 { net.addr().to_string() } else { net.to_string() };
        prop_assert_eq!(range.to_string(), text);
    }
}

const FABRIC: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: box}
spec:
  ports: [{name: up, device: "memory:", mtu: 1600}, {name: red0, device: "memory:"}, {name: blue0, device: "memory:"}]
  uplink: {port: up, addresses: [192.0.2.1/24]}
  vteps: [{name: fabric, address: 192.0.2.2}]
"#;

fn tenant(name: &str, vni: u32, rest: &str) -> String {
    format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: {name}}}\nspec:\n  vni: {vni}\n  \
         gateway: {{addresses: [10.1.0.1]}}\n  ports: [{{port: {name}0, mac: \"02:00:00:00:0a:10\", addresses: [10.1.0.10]}}]\n  \
         remotes: [{{name: far, vtep: fabric, mac: \"02:00:00:00:0a:20\", addresses: [10.1.0.20]}}]\n---\n\
         apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: rules}}\nspec: {{tenant: {name}, {rest}}}\n"
    )
}

fn of(documents: &[String]) -> Program {
    let mut sources = vec![Source { name: "fabric.yaml".into(), bytes: FABRIC.into() }];
    sources.extend(
        documents
            .iter()
            .enumerate()
            .map(|(index, text)| Source { name: format!("{index}.yaml"), bytes: text.clone().into_bytes() }),
    );
    program(&sources)
}

#[test]
fn a_rule_that_comes_is_one_part_and_one_class_with_an_example() {
    let old = of(&[tenant("red", 100, "egress: [{action: Accept}]")]);
    let rules = "egress: [{action: Deny, services: [{protocol: TCP, port: 23}]}, {action: Accept}]";
    let new = of(&[tenant("red", 100, rules)]);
    let plan = diff::diff(&old, &new);
    assert!(plan.changed);
    assert_eq!(plan.tenants.len(), 1);
    let parts: Vec<_> =
        plan.tenants[0].parts.iter().map(|p| (p.change, p.kind.as_str(), p.after.as_str())).collect();
    assert_eq!(parts, [(Change::Added, "rule", "egress deny tcp/23 to any")]);
    let [class] = &plan.classes.list[..] else { panic!("{:?}", plan.classes) };
    let services: Vec<String> = class.services.iter().map(ToString::to_string).collect();
    let peers: Vec<String> = class.peers.iter().map(ToString::to_string).collect();
    // A rule that denies ports denies the fragments that do not show any.
    assert_eq!(services, ["tcp/23", "protocol 6"]);
    assert_eq!(peers, ["0.0.0.0/0", "::/0"]);
    assert_eq!((class.port.as_str(), class.side, class.before.as_str()), ("red0", Side::Egress, "accept"));
    let example = &class.example;
    assert_eq!((example.peer, example.is_reachable), ("10.1.0.20".parse().unwrap(), true));
    assert_eq!(example.before.as_deref(), Some("accept"));
    assert_eq!(example.after.as_deref(), Some("policy-deny"));
}

#[test]
fn tenants_come_and_go_and_rules_change_places() {
    let deny = "{action: Deny, services: [{protocol: TCP}]}";
    let rules = |a: &str, b: &str| format!("egress: [{a}, {b}]");
    let accept = "{action: Accept}";
    let red = |text: &str| tenant("red", 100, text);
    let old = of(&[red(&rules(deny, accept))]);
    let new = of(&[red(&rules(accept, deny)), tenant("blue", 200, "egress: []")]);
    let plan = diff::diff(&old, &new);
    let changes: Vec<_> = plan.tenants.iter().map(|t| (t.tenant.as_str(), t.change)).collect();
    assert_eq!(changes, [("blue", Change::Added), ("red", Change::Changed)]);
    let red = &plan.tenants[1].parts;
    assert_eq!((red.len(), red[0].kind.as_str(), red[0].name.as_str()), (1, "order", "egress of red0"));
    let back = diff::diff(&new, &old);
    assert_eq!(back.tenants[0].change, Change::Removed);
    assert_eq!(plan.capacity[1].after, 2);
}

#[test]
fn a_rule_that_is_logged_from_now_on_changes_no_verdict() {
    let rules = |log: &str| of(&[tenant("red", 100, &format!("egress: [{{action: Accept{log}}}]"))]);
    let plan = diff::diff(&rules(""), &rules(", log: true"));
    let parts: Vec<_> = plan.tenants[0].parts.iter().map(|p| (p.change, p.after.as_str())).collect();
    assert_eq!(parts, [(Change::Removed, ""), (Change::Added, "egress accept any to any log")]);
    assert!(plan.changed && plan.classes.list.is_empty() && plan.moves.list.is_empty());
}

#[test]
fn a_tenants_share_of_the_tables_is_counted() {
    let used = |plan: &diff::Plan| -> Vec<(String, usize, usize, Option<usize>)> {
        let rows = plan.tenants[0].capacity.iter();
        rows.map(|row| (row.table.clone(), row.before, row.after, row.bound)).collect()
    };
    let old = of(&[tenant("red", 100, "egress: [{action: Accept}]")]);
    let rules = "egress: [{action: Deny, services: [{protocol: TCP}]}, {action: Accept}], ingress: [{action: Accept}]";
    let quota = |text: String| text.replace("vni: 100", "vni: 100\n  quota: {flows: 3}");
    let new = of(&[quota(tenant("red", 100, rules))]);
    let mut plan = diff::diff(&old, &new);
    let expected = [
        ("ports", 1, 1, Some(512)),
        ("rules", 1, 3, Some(1 << 20)),
        ("hosts", 2, 2, None),
        ("routes", 0, 0, None),
        ("flow quota", 65_536, 3, Some(16_777_216)),
    ];
    assert_eq!(used(&plan), expected.map(|(table, a, b, bound)| (table.to_owned(), a, b, bound)));
    let record = |tenant: &str| program::FlowRecord {
        tenant: tenant.into(),
        from: "red0".into(),
        src: "10.1.0.10".parse().unwrap(),
        dst: "10.1.0.20".parse().unwrap(),
        service: "tcp 1 > 2".into(),
        answers: String::new(),
        verdict: "accept".into(),
        stage: String::new(),
        rule: String::new(),
        to: "fabric".into(),
        packets: 1,
        bytes: 60,
    };
    let open = [record("red"), record("blue"), record("red"), record("red"), record("red"), record("red")];
    diff::count_flows(&mut plan, &new, &open);
    assert_eq!(used(&plan).last(), Some(&("flows".to_owned(), 5, 3, Some(3))));
    let gone = diff::diff(&new, &of(&[]));
    assert_eq!(used(&gone)[1], ("rules".to_owned(), 3, 0, Some(1 << 20)));
}

/// The rules of a tenant that stays are one allocation in both programs; compiled apart they are not, and all is compared.
#[test]
fn rules_that_both_programs_share_are_not_compared() {
    let blue = || tenant("blue", 200, "egress: [{action: Accept}], ingress: [{action: Deny}]");
    let old = of(&[tenant("red", 100, "egress: [{action: Accept}]"), blue()]);
    let denied = [tenant("red", 100, "egress: [{action: Deny}]"), blue()];
    let mut sources = vec![Source { name: "fabric.yaml".into(), bytes: FABRIC.into() }];
    let named = (0..).zip(&denied).map(|(index, text)| (format!("{index}.yaml"), text.clone().into_bytes()));
    sources.extend(named.map(|(name, bytes)| Source { name, bytes }));
    let policy = policy::parse(&sources).unwrap().policy;
    let (after, apart) = (compile::compile(&policy, Some(&old)).unwrap().program, of(&denied));
    let plan = diff::diff(&old, &after);
    let all = diff::diff(&old, &apart);
    assert_eq!((plan.compared, all.compared), (1, 2));
    assert!(!plan.classes.list.is_empty());
    assert_eq!(plan, diff::Plan { compared: 1, ..all });

    // The same rules, asked by another port: what its packets are told differs all the same.
    let mut moved = after.clone();
    let port = moved.ports.iter_mut().flatten().find(|port| port.id.0 == 2).unwrap();
    port.egress = port.ingress;
    let plan = diff::diff(&after, &moved);
    assert_eq!((plan.compared, plan.tenants.len()), (1, 1));
    assert!(plan.classes.list.iter().all(|class| class.port == "blue0") && !plan.classes.list.is_empty());
}

/// Hosts and prefixes of a tenant: for each whether it is there, and behind which of two endpoints.
type Homes = Vec<Option<bool>>;

const HOME_HOSTS: [&str; 4] = ["10.1.0.20", "10.1.0.21", "10.2.0.7", "fd00::20"];
const HOME_PREFIXES: [&str; 5] = ["0.0.0.0/0", "10.2.0.0/16", "10.2.0.0/24", "fd00::/64", "10.1.0.16/28"];

fn homes() -> impl Strategy<Value = Homes> {
    prop::collection::vec(prop::option::of(any::<bool>()), HOME_HOSTS.len() + HOME_PREFIXES.len())
}

fn settled(homes: &Homes) -> Program {
    let vteps = "vteps: [{name: one, address: 192.0.2.2}, {name: two, address: 192.0.2.3}]";
    let fabric = FABRIC.replace("vteps: [{name: fabric, address: 192.0.2.2}]", vteps);
    let list = |second: bool, names: &[&str], homes: &[Option<bool>]| {
        let there = names.iter().zip(homes).filter(|(_, home)| **home == Some(second));
        there.map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    };
    let remote = |second: bool| {
        let (hosts, prefixes) = homes.split_at(HOME_HOSTS.len());
        format!(
            "{{vtep: {}, mac: \"02:00:00:00:00:{}\", addresses: [{}], prefixes: [{}]}}",
            if second { "two" } else { "one" },
            if second { "22" } else { "11" },
            list(second, &HOME_HOSTS, hosts),
            list(second, &HOME_PREFIXES, prefixes),
        )
    };
    let red = format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: red}}\nspec:\n  vni: 100\n  ports: [{{port: red0, mac: \"02:00:00:00:0a:10\", addresses: [10.1.0.10]}}]\n  remotes: [{}, {}]\n",
        remote(false),
        remote(true)
    );
    let source = |name: &str, text: String| Source { name: name.into(), bytes: text.into_bytes() };
    program(&[source("fabric.yaml", fabric), source("red.yaml", red)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against the program's own word on each address, at and around every boundary.
    #[test]
    fn addresses_move_exactly_where_the_programs_say(a in homes(), b in homes(), more in prop::collection::vec(any::<u32>(), 20)) {
        let (old, new) = (settled(&a), settled(&b));
        let moves = diff::diff(&old, &new).moves;
        prop_assert!(!moves.is_cut);
        let place = |program: &Program, address: IpAddr| {
            program.tenants[0].as_ref().unwrap().locate(address).to_vec()
        };
        let ends = HOME_PREFIXES.map(|text| text.parse::<ipnet::IpNet>().unwrap());
        let mut asked: Vec<IpAddr> = ends.iter().flat_map(|net| [net.network(), net.broadcast()]).collect();
        asked.extend(HOME_HOSTS.map(|text| text.parse::<IpAddr>().unwrap()));
        let near = asked.clone().into_iter().flat_map(|address| match address {
            IpAddr::V4(v4) => [1, u32::MAX].map(|by| IpAddr::from(u32::from(v4).wrapping_add(by).to_be_bytes())),
            IpAddr::V6(v6) => [1, u128::MAX].map(|by| IpAddr::from(u128::from(v6).wrapping_add(by).to_be_bytes())),
        });
        asked.extend(near.collect::<Vec<_>>());
        asked.extend(more.into_iter().map(|bits| IpAddr::from(bits.to_be_bytes())));
        for address in asked {
            let (before, after) = (place(&old, address), place(&new, address));
            let covering = moves.list.iter().filter(|one| one.covers(address)).count();
            prop_assert_eq!(covering, usize::from(before != after), "{} {:?} {:?} {:?}", address, before, after, moves);
        }
    }
}

#[test]
fn a_host_that_moves_is_told_with_both_places() {
    let at = |host: Option<bool>, prefix: Option<bool>| {
        let mut homes = vec![None; HOME_HOSTS.len() + HOME_PREFIXES.len()];
        (homes[0], homes[HOME_HOSTS.len() + 1]) = (host, prefix);
        settled(&homes)
    };
    let moves = diff::diff(&at(Some(false), Some(false)), &at(Some(true), None)).moves.list;
    let words: Vec<String> = moves
        .iter()
        .map(|one| {
            let ranges: Vec<String> = one.addresses.iter().map(ToString::to_string).collect();
            format!("{} {}: {} -> {}", one.tenant, ranges.join(","), one.before, one.after)
        })
        .collect();
    assert_eq!(
        words,
        [
            "red 10.2.0.0/16: one mac 02:00:00:00:00:11 -> nowhere",
            "red 10.1.0.20: one mac 02:00:00:00:00:11 -> two mac 02:00:00:00:00:22",
        ]
    );
}

#[test]
fn open_flows_are_judged_by_the_new_program() {
    let record = |service: &str, verdict: &str| program::FlowRecord {
        tenant: "red".into(),
        from: "red0".into(),
        src: "10.1.0.10".parse().unwrap(),
        dst: "10.1.0.20".parse().unwrap(),
        service: service.into(),
        answers: String::new(),
        verdict: verdict.into(),
        stage: String::new(),
        rule: String::new(),
        to: "fabric".into(),
        packets: 9,
        bytes: 900,
    };
    let rules = "egress: [{action: Deny, services: [{protocol: TCP, port: 23}]}, {action: Accept, services: [{protocol: TCP}]}]";
    let new = of(&[tenant("red", 100, rules)]);
    let records = [
        record("tcp 40000 > 23", "accept"),
        record("tcp 40000 > 24", "accept"),
        record("tcp 40000 > 25", "policy-deny"),
        // Nothing of this box opens it: an answer to the far side stays, since there is no list at its end.
        record("udp 53 > 40000", "accept (reply)"),
        record("gibberish", "accept"),
        program::FlowRecord { tenant: "green".into(), ..record("tcp 1 > 2", "accept") },
    ];
    let changes = diff::flows(&new, &records, false);
    assert_eq!((changes.judged, changes.unjudged, changes.changed), (5, 1, 4));
    let after: Vec<&str> = changes.list.iter().map(|change| change.after.as_str()).collect();
    assert_eq!(after, ["policy-deny", "accept", "policy-default", "no-tenant"]);
}

#[test]
fn services_are_read_as_they_are_listed() {
    for (text, expected) in [
        ("tcp 1 > 2", Some((Service::Tcp(2), 1))),
        ("udp 1 > 2", Some((Service::Udp(2), 1))),
        ("udp 1 -> 2", None),
        ("icmp type 8 code 0 id 7", Some((Service::Icmp(8, 0), 0))),
        ("icmpv6 type 128 code 0", Some((Service::Icmpv6(128, 0), 0))),
        ("rocev2 qp 0x1f", Some((Service::Roce(31), 0))),
        ("protocol 47", Some((Service::Opaque(47), 0))),
        ("udp 1 > 2 fragment", Some((Service::Udp(2), 1))),
        ("protocol 17 fragment", Some((Service::Opaque(17), 0))),
        ("tcp 1 > 65536", None),
        ("rocev2 qp 31", None),
        ("", None),
    ] {
        assert_eq!(service_of(text), expected, "{text}");
    }
}
