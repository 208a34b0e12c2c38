//! Public bug reports of other policy engines, by their row in the corpus's bugs.tsv.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{fmt::Write, net::IpAddr};

use policy::Source;
use program::{Place, Port, PortId, Program, RuleId, Service, Verdict, VtepId};

const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

const TOPOLOGY: &str = "kind: Fabric
metadata: {name: box}
spec:
  ports:
    - {name: up, device: 'memory:', mtu: 9000}
    - {name: web0, device: 'memory:'}
    - {name: db0, device: 'memory:'}
  uplink: {port: up, addresses: [192.0.2.1/24]}
  vteps: [{name: far, address: 192.0.2.2}]
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 100
  ports:
    - {port: web0, mac: 02:00:00:00:00:10, addresses: [10.1.0.10, 'fd00::10'], labels: {role: web}}
    - {port: db0, mac: 02:00:00:00:00:11, addresses: [10.1.0.11, 'fd00::11'], labels: {role: db}}
  remotes:
    - {name: far, vtep: far, mac: 02:00:00:00:00:20, addresses: [10.1.0.20, 'fd00::20'], prefixes: [10.9.0.0/16, 'fd00:9::/64']}
";

/// A program of one tenant with these policies, each a name, a priority and what else its spec holds.
fn compile(policies: &[(&str, u16, &str)]) -> Program {
    let mut text = format!("{HEAD}{TOPOLOGY}");
    for (name, priority, rest) in policies {
        write!(
            text,
            "---\n{HEAD}kind: TenantPolicy\nmetadata: {{name: {name}}}\nspec: {{tenant: red, priority: {priority}, {rest}}}\n"
        )
        .unwrap();
    }
    let sources = [Source { name: "all.yaml".into(), bytes: text.into() }];
    let parsed = policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources)));
    compile::compile(&parsed.policy, None).unwrap().program
}

fn web(program: &Program) -> &Port {
    program.port(PortId(1)).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn egress(program: &Program, peer: &str, service: Service) -> Verdict {
    program.decide(web(program).egress, ip(peer), service).verdict
}

#[test]
fn b049_except_of_one_rule_opens_no_ports_of_another() {
    let program = compile(&[(
        "one",
        0,
        "egress: [
            {action: Accept, to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]},
            {action: Accept, to: [{ipBlock: {cidr: 10.0.0.0/8}}], services: [{protocol: TCP, port: 9090}]}]",
    )]);
    assert_eq!(egress(&program, "10.1.1.1", Service::Tcp(22)), Verdict::Deny);
    assert_eq!(egress(&program, "10.1.1.1", Service::Tcp(9090)), Verdict::Accept);
    assert_eq!(egress(&program, "11.1.1.1", Service::Tcp(22)), Verdict::Accept);
}

#[test]
fn b050_except_of_one_policy_denies_nothing_to_another() {
    let one = "egress: [{action: Accept, to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.3.0/24]}}]}]";
    let two = "egress: [{action: Accept, to: [{ipBlock: {cidr: 10.0.3.209/32}}]}]";
    for order in [[("one", 1, one), ("two", 2, two)], [("one", 2, one), ("two", 1, two)]] {
        let program = compile(&order);
        assert_eq!(egress(&program, "10.0.3.209", Service::Tcp(80)), Verdict::Accept);
        assert_eq!(egress(&program, "10.0.3.208", Service::Tcp(80)), Verdict::Deny);
    }
}

#[test]
fn b052_sctp_has_ports_too() {
    let program =
        compile(&[("one", 0, "egress: [{action: Accept, services: [{protocol: SCTP, port: 3301}]}]")]);
    assert_eq!(egress(&program, "10.1.0.20", Service::Sctp(3301)), Verdict::Accept);
    assert_eq!(egress(&program, "10.1.0.20", Service::Sctp(3302)), Verdict::Deny);
    assert_eq!(egress(&program, "10.1.0.20", Service::Tcp(3301)), Verdict::Deny);
}

#[test]
fn b053_many_priorities_keep_their_order() {
    // Two policies for each destination port, dense at both ends of the range; the lower priority is to win.
    let names: Vec<String> = (0..1000).map(|n| format!("p{:03}", (n * 7919) % 1000)).collect();
    let rest: Vec<String> = (0..1000)
        .map(|n| {
            let action = if n < 500 { "Accept" } else { "Deny" };
            format!("egress: [{{action: {action}, services: [{{protocol: TCP, port: {}}}]}}]", n % 500 + 1)
        })
        .collect();
    let priority = |n: u16| match n {
        0..250 => n,
        250..500 => 65_036 + n,
        // As early or as late as its twin, one step after for the first half and before for the second.
        500..750 => n - 500 + 1000,
        _ => 65_035 - (n - 750),
    };
    let policies: Vec<(&str, u16, &str)> = (0..1000u16)
        .map(|n| (names[usize::from(n)].as_str(), priority(n), rest[usize::from(n)].as_str()))
        .collect();
    let program = compile(&policies);
    let mut sorted: Vec<u16> = (0..1000).collect();
    sorted.sort_by_key(|n| (priority(*n), &names[usize::from(*n)]));
    for port in 1..=500u16 {
        let first = sorted.iter().find(|n| **n % 500 + 1 == port).unwrap();
        let expected = if *first < 500 { Verdict::Accept } else { Verdict::Deny };
        assert_eq!(egress(&program, "10.1.0.20", Service::Tcp(port)), expected, "port {port}");
    }
}

#[test]
fn b054_a_peer_that_is_nobody_allows_nobody() {
    let nobody = "egress: [{action: Accept, to: [{ports: {matchLabels: {role: cache}}}]}]";
    let program = compile(&[("one", 0, nobody)]);
    for peer in ["10.1.0.11", "10.1.0.20", "8.8.8.8", "fd00::11"] {
        assert_eq!(egress(&program, peer, Service::Tcp(80)), Verdict::Deny, "{peer}");
    }
    assert_eq!(program.rule(RuleId(0)).unwrap().peers, Some(vec![]));
    let program = compile(&[("one", 0, "egress: [{action: Accept, to: []}]")]);
    assert_eq!(egress(&program, "10.1.0.11", Service::Tcp(80)), Verdict::Deny);
}

#[test]
fn b062_both_families_of_one_port_and_one_remote_are_kept() {
    let both = "ingress: [{action: Accept, from: [{ipBlock: {cidr: 10.9.0.0/16}}, {ipBlock: {cidr: 'fd00:9::/64'}}]}]";
    let program = compile(&[("one", 0, both)]);
    let ingress = |peer| program.decide(web(&program).ingress, ip(peer), Service::Tcp(80)).verdict;
    assert_eq!((ingress("10.9.3.4"), ingress("fd00:9::34")), (Verdict::Accept, Verdict::Accept));
    assert_eq!((ingress("10.8.3.4"), ingress("fd00:8::34")), (Verdict::Deny, Verdict::Deny));
    assert_eq!(web(&program).addresses, [ip("10.1.0.10"), ip("fd00::10")]);
    let tenant = program.tenants[0].as_ref().unwrap();
    for address in ["10.9.3.4", "fd00:9::34", "10.1.0.20", "fd00::20"] {
        assert_eq!(tenant.locate(ip(address))[0].place, Place::Vtep(VtepId(0)), "{address}");
    }
    assert_eq!(tenant.locate(ip("fd00:8::34")), []);
}

#[test]
fn a_peer_by_label_or_remote_is_all_addresses_of_it() {
    let rules = "egress: [{action: Accept, to: [{ports: {matchLabels: {role: db}}}, {remote: far}]}]";
    let program = compile(&[("one", 0, rules)]);
    for peer in ["10.1.0.11", "fd00::11", "10.1.0.20", "fd00::20", "10.9.1.1", "fd00:9::1"] {
        assert_eq!(egress(&program, peer, Service::Tcp(80)), Verdict::Accept, "{peer}");
    }
    assert_eq!(egress(&program, "10.1.0.10", Service::Tcp(80)), Verdict::Deny);
}

#[test]
fn ports_with_the_same_rules_share_one_list() {
    let program = compile(&[
        ("all", 5, "egress: [{action: Accept}]"),
        ("web", 4, "ports: [web0], ingress: [{action: Deny}]"),
    ]);
    let (web, db) = (web(&program), program.port(PortId(2)).unwrap());
    assert_eq!(web.egress, db.egress);
    assert_ne!(web.ingress, db.ingress);
    assert_eq!(program.rules.len(), 2);
}
