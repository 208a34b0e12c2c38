//! The corner cases of `docs/policy.md` that have no test elsewhere, each by the row that names it, and that every row
//! names a test there is.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{fs, net::IpAddr, path::Path};

use policy::Source;
use program::{DropReason, Flow, Ingress, PortId, Program, Service, TenantId, Verdict};

const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

const WORLD: &str = "kind: Fabric
metadata: {name: box}
spec:
  ports: [{name: up, device: 'memory:', mtu: 9000}, {name: a0, device: 'memory:'}, {name: b0, device: 'memory:'}]
  uplink: {port: up, addresses: [192.0.2.1/24]}
  vteps: [{name: far, address: 192.0.2.2}]
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 100
  ports:
    - {port: a0, mac: 02:00:00:00:00:10, addresses: [10.1.0.10, 'fd00::10'], labels: {app: a}}
    - {port: b0, mac: 02:00:00:00:00:11, addresses: [], labels: {app: b}}
  remotes:
    - {vtep: far, mac: 02:00:00:00:00:20, addresses: [10.1.0.20, 'fd00::20'], prefixes: [10.9.0.0/16], labels: {app: c}, namedPorts: [{name: web, protocol: TCP, port: 80}]}
";

/// The policy red, and its warnings or what is wrong with it.
fn parsed(documents: &[String]) -> Result<(Program, String), String> {
    let text = format!("{HEAD}{WORLD}{}", documents.concat());
    let sources = [Source { name: "all.yaml".into(), bytes: text.into() }];
    let parsed = policy::parse(&sources).map_err(|errors| errors.to_string())?;
    Ok((compile::compile(&parsed.policy, None).unwrap().program, parsed.warnings.to_string()))
}

fn compiled(documents: &[String]) -> (Program, String) {
    parsed(documents).unwrap_or_else(|errors| panic!("{errors}"))
}

fn own(name: &str, spec: &str) -> String {
    format!("---\n{HEAD}kind: TenantPolicy\nmetadata: {{name: {name}}}\nspec: {{tenant: red, {spec}}}\n")
}

fn network(spec: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: n, namespace: red}}\nspec: {spec}\n"
    )
}

/// What a0 says of what it sends to `peer`, and of what `peer` sends it.
fn both(program: &Program, peer: &str, service: Service) -> [bool; 2] {
    let (port, peer) = (program.port(PortId(1)).unwrap(), peer.parse().unwrap());
    [port.egress, port.ingress].map(|list| program.decide(list, peer, service).verdict == Verdict::Accept)
}

fn sends(program: &Program, peer: &str, service: Service) -> bool {
    both(program, peer, service)[0]
}

const PEER: &str = "10.1.0.20";
const SERVICES: [Service; 4] = [Service::Tcp(80), Service::Udp(53), Service::Icmp(8, 0), Service::Roce(7)];

#[test]
fn without_a_policy_everything_is_denied() {
    let (program, _) = compiled(&[]);
    assert!(SERVICES.iter().all(|service| both(&program, PEER, *service) == [false, false]));
}

#[test]
fn egress_alone_leaves_ingress_to_the_others() {
    let sending = own("a", "egress: [{action: Accept}]");
    assert_eq!(both(&compiled(std::slice::from_ref(&sending)).0, PEER, SERVICES[0]), [true, false]);
    let other = own("b", "ingress: [{action: Accept}]");
    assert_eq!(both(&compiled(&[sending, other]).0, PEER, SERVICES[0]), [true, true]);
}

#[test]
fn what_is_left_out_is_everything_and_what_is_empty_is_nothing() {
    let (program, warnings) = compiled(&[own("a", "egress: [{action: Accept}]")]);
    assert!(SERVICES.iter().all(|service| sends(&program, PEER, *service)) && warnings.is_empty());
    for (rule, warning) in [
        ("{action: Accept, to: []}", "`to` is an empty list: nobody is meant"),
        ("{action: Accept, services: []}", "`services` is an empty list: no packet is meant"),
    ] {
        let (program, warnings) = compiled(&[own("a", &format!("egress: [{rule}]"))]);
        assert!(!SERVICES.iter().any(|service| sends(&program, PEER, *service)), "{rule}");
        assert!(warnings.contains(warning), "{warnings}");
    }
}

#[test]
fn labels_that_no_port_has_are_nobody() {
    let peer = own("a", "egress: [{action: Accept, to: [{ports: {matchLabels: {app: z}}}]}]");
    let (program, warnings) = compiled(&[peer]);
    assert!(!sends(&program, PEER, SERVICES[0]));
    assert!(warnings.contains("has these labels: the peer is nobody"), "{warnings}");
    let subject = own("a", "ports: {matchLabels: {app: z}}, egress: [{action: Accept}]");
    let (program, warnings) = compiled(&[subject]);
    assert!(!sends(&program, PEER, SERVICES[0]));
    assert!(warnings.contains("has these labels: no rule here applies"), "{warnings}");
}

#[test]
fn a_policy_for_no_ports_says_nothing() {
    let (program, _) = compiled(&[own("a", "ports: [], egress: [{action: Accept}]")]);
    assert!(!sends(&program, PEER, SERVICES[0]));
}

#[test]
fn a_rule_that_does_not_match_leaves_the_packet_to_the_next() {
    let tcp = own("a", "egress: [{action: Accept, services: [{protocol: TCP, port: 80}]}]");
    let udp = own("b", "egress: [{action: Accept, services: [{protocol: UDP}]}]");
    let (program, _) = compiled(&[tcp, udp]);
    assert_eq!(SERVICES.map(|service| sends(&program, PEER, service)), [true, true, false, true]);
}

#[test]
fn empty_lists_of_a_network_policy_are_everybody_and_everything() {
    let spec = "{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{to: [], ports: []}], ingress: [{from: [], ports: []}]}";
    let (program, _) = compiled(&[network(spec)]);
    assert!(SERVICES.iter().all(|service| both(&program, PEER, *service) == [true, true]));
    let closed = network("{podSelector: {}, policyTypes: [Ingress], ingress: []}");
    assert_eq!(both(&compiled(&[closed]).0, PEER, SERVICES[0]), [true, false]);
}

#[test]
fn a_network_policy_for_no_pod_opens_its_tenant() {
    let (program, warnings) = compiled(&[network("{podSelector: {matchLabels: {app: z}}}")]);
    assert_eq!(both(&program, PEER, SERVICES[0]), [true, true]);
    assert!(warnings.contains("its podSelector is no port of tenant red"), "{warnings}");
}

#[test]
fn a_pass_that_meets_no_rule_is_the_default() {
    let pass = own("a", "egress: [{action: Pass}]");
    assert!(!sends(&compiled(&[pass]).0, PEER, SERVICES[0]));
}

#[test]
fn what_a_rule_that_passes_on_decides_is_not_logged() {
    let rules = "egress: [{action: Pass, log: true}, {action: Deny, log: true}, {action: Deny, log: false}]";
    let (program, warnings) = compiled(&[own("a", rules)]);
    assert_eq!(program.rules.iter().map(|(_, rule)| rule.log).collect::<Vec<_>>(), [true, true, false]);
    assert!(
        warnings.contains("`log` says nothing here: a rule that passes on decides no flow"),
        "{warnings}"
    );
    assert_eq!(warnings.matches("`log` says nothing").count(), 1);
    for bad in ["yes", "1", "\"true\"", "True", "[]"] {
        let error = parsed(&[own("a", &format!("egress: [{{action: Deny, log: {bad}}}]"))]).unwrap_err();
        assert!(error.contains("expected `true` or `false`"), "{error}");
    }
}

#[test]
fn pods_are_hosts_with_labels_and_no_prefixes() {
    let to = |peer: &str| {
        network(&format!("{{podSelector: {{}}, policyTypes: [Egress], egress: [{{to: [{peer}]}}]}}"))
    };
    let (program, _) = compiled(&[to("{namespaceSelector: {}}")]);
    assert!(sends(&program, PEER, SERVICES[0]));
    assert!(!sends(&program, "10.9.0.1", SERVICES[0]), "a prefix is no pod");
    assert!(!sends(&program, "172.16.0.1", SERVICES[0]), "nor is an address of nobody");
    let (program, _) = compiled(&[to("{ipBlock: {cidr: 10.9.0.0/16}}")]);
    assert!(sends(&program, "10.9.0.1", SERVICES[0]));
}

#[test]
fn a_named_port_with_a_block_is_that_of_pods_in_it() {
    let spec = |cidr: &str| {
        network(&format!(
            "{{podSelector: {{}}, policyTypes: [Egress], egress: [{{to: [{{ipBlock: {{cidr: {cidr}}}}}], ports: [{{port: web}}]}}]}}"
        ))
    };
    for (cidr, is_open) in [("10.1.0.0/24", true), ("10.1.0.0/28", false)] {
        let (program, _) = compiled(&[spec(cidr)]);
        assert_eq!(sends(&program, PEER, Service::Tcp(80)), is_open);
        assert!(!sends(&program, PEER, Service::Tcp(81)) && !sends(&program, "10.1.0.21", Service::Tcp(80)));
    }
}

#[test]
fn host_bits_are_read_away_for_kubernetes_and_an_error_in_ours() {
    let (program, warnings) = compiled(&[network(
        "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.1/8}}]}]}",
    )]);
    assert!(sends(&program, "10.200.0.1", SERVICES[0]) && !sends(&program, "11.0.0.1", SERVICES[0]));
    assert!(warnings.contains("it is read as 10.0.0.0/8"), "{warnings}");
    let error = parsed(&[own("a", "egress: [{action: Accept, to: [{ipBlock: {cidr: 10.0.0.1/8}}]}]")]);
    assert!(error.unwrap_err().contains("prefix 10.0.0.1/8 has host bits set"));
}

#[test]
fn between_equal_priorities_the_name_decides() {
    for (denying, accepting, is_open) in [("a", "b", false), ("b", "a", true), ("p10", "p2", false)] {
        let deny = own(denying, "priority: 5, egress: [{action: Deny}]");
        let accept = own(accepting, "priority: 5, egress: [{action: Accept}]");
        assert_eq!(sends(&compiled(&[accept, deny]).0, PEER, SERVICES[0]), is_open, "{denying} {accepting}");
    }
}

#[test]
fn a_peer_is_compared_with_packets_of_its_own_family() {
    let peers = "[{ipBlock: {cidr: 10.1.0.0/24}}, {ipBlock: {cidr: 'fd00::/64'}}]";
    let (program, _) = compiled(&[own("a", &format!("egress: [{{action: Accept, to: {peers}}}]"))]);
    for (peer, is_open) in [(PEER, true), ("fd00::20", true), ("10.2.0.1", false), ("fd01::20", false)] {
        assert_eq!(sends(&program, peer, Service::Tcp(80)), is_open, "{peer}");
    }
    let rule =
        "egress: [{action: Accept, to: [{ipBlock: {cidr: 'fd00::/64'}}], services: [{protocol: ICMP}]}]";
    let (program, _) = compiled(&[own("a", rule)]);
    assert!(!sends(&program, "fd00::20", Service::Icmpv6(128, 0)) && !sends(&program, PEER, SERVICES[2]));
}

#[test]
fn udp_holds_rocev2_and_rocev2_no_udp() {
    let ask = |service: &str| {
        let (program, _) =
            compiled(&[own("a", &format!("egress: [{{action: Accept, services: [{service}]}}]"))]);
        [Service::Roce(7), Service::Udp(53)].map(|service| sends(&program, PEER, service))
    };
    assert_eq!(ask("{protocol: UDP, port: 4791}"), [true, false]);
    assert_eq!(ask("{protocol: RoCEv2}"), [true, false]);
    assert_eq!(ask("{protocol: UDP, port: 53}"), [false, true]);
    assert_eq!(ask("{protocol: 17}"), [true, true]);
}

#[test]
fn a_remote_without_a_name_cannot_be_named() {
    let error = parsed(&[own("a", "egress: [{action: Accept, to: [{remote: far}]}]")]).unwrap_err();
    assert!(error.contains("unknown remote of tenant red: far"), "{error}");
}

#[test]
fn a_port_without_addresses_sends_from_none() {
    let (program, _) = compiled(&[own("a", "egress: [{action: Accept}]")]);
    let [src, dst]: [IpAddr; 2] = ["10.1.0.11", PEER].map(|address| address.parse().unwrap());
    let (tenant, ingress) = (TenantId(0), Ingress::Port(PortId(2)));
    let flow = Flow { tenant, ingress, src, dst, service: Service::Tcp(80), src_port: 7 };
    assert_eq!(program.judge(&flow).unwrap_err().reason, DropReason::SpoofedAddress);
}

#[test]
fn an_address_has_one_host_and_a_prefix_several_hops() {
    let tenant = |field: &str| {
        let remote = |mac: u8| format!("{{vtep: far, mac: '02:00:00:00:00:{mac:02x}', {field}}}");
        let remotes = format!("remotes: [{}, {}]", remote(0x30), remote(0x31));
        format!("---\n{HEAD}kind: Tenant\nmetadata: {{name: blue}}\nspec: {{vni: 200, {remotes}}}\n")
    };
    let errors = parsed(&[tenant("addresses: [10.1.0.20]")]).unwrap_err();
    assert!(errors.contains("address 10.1.0.20 is owned twice in tenant blue"), "{errors}");
    let (program, _) = compiled(&[tenant("addresses: [], prefixes: [10.1.0.20/32]")]);
    let blue = program.tenants.iter().flatten().find(|tenant| tenant.name == "blue").unwrap();
    assert_eq!(blue.routes.iter().map(|route| route.hops.len()).collect::<Vec<_>>(), [2]);
}

/// `file::test` or `folder/file::test`, one or more a row.
#[test]
fn every_corner_of_the_page_names_a_test_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/policy.md")).unwrap();
    let table = page.split("## Corner cases").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(rows.len() > 30, "{} rows", rows.len());
    for row in rows {
        let tests = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap();
        let names: Vec<&str> = tests.split(", ").map(|name| name.trim_matches('`')).collect();
        for name in names {
            let (file, test) = name.split_once("::").unwrap_or_else(|| panic!("no test in: {row}"));
            let source = fs::read_to_string(root.join(format!("{file}.rs")));
            let source = source.unwrap_or_else(|_| panic!("no file {file}.rs, of: {row}"));
            assert!(source.contains(&format!("fn {test}(")), "no test {test} in {file}.rs, of: {row}");
        }
    }
}
