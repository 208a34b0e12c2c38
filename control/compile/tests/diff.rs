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
                    Service::Opaque(byte),
                ]
            })
            .collect();
        addresses
            .into_iter()
            .flat_map(move |a| services.clone().into_iter().map(move |s| (a, s)))
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
fn open_flows_are_judged_by_the_new_program() {
    let record = |service: &str, verdict: &str| program::FlowRecord {
        tenant: "red".into(),
        from: "red0".into(),
        src: "10.1.0.10".parse().unwrap(),
        dst: "10.1.0.20".parse().unwrap(),
        service: service.into(),
        answers: String::new(),
        verdict: verdict.into(),
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
        ("udp 1 -> 2", Some((Service::Udp(2), 1))),
        ("icmp type 8 code 0 id 7", Some((Service::Icmp(8, 0), 0))),
        ("icmpv6 type 128 code 0", Some((Service::Icmpv6(128, 0), 0))),
        ("rocev2 qp 0x1f", Some((Service::Roce(31), 0))),
        ("protocol 47", Some((Service::Opaque(47), 0))),
        ("tcp 1 > 65536", None),
        ("rocev2 qp 31", None),
        ("", None),
    ] {
        assert_eq!(service_of(text), expected, "{text}");
    }
}
