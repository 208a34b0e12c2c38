//! The policy directories that are shipped compile without a warning and say what they are meant to say.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{fs, net::IpAddr, path::Path};

use policy::Source;
use program::{Hop, Place, PortId, Program, Service, Verdict, VtepId};

fn sources(directory: &str) -> Vec<Source> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/policies").join(directory);
    let entries = fs::read_dir(&folder).unwrap();
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            Source {
                name: path.file_name().unwrap().to_str().unwrap().into(),
                bytes: fs::read(&path).unwrap(),
            }
        })
        .collect()
}

fn program(directory: &str) -> Program {
    let sources = sources(directory);
    let parsed = policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources)));
    assert_eq!(parsed.warnings.render(&sources), "");
    compile::compile(&parsed.policy, None).unwrap_or_else(|errors| panic!("{errors}")).program
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn every_shipped_directory_is_tested_here() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/policies");
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["bluefield", "demo", "kubernetes"]);
}

#[test]
fn demo_is_the_scenario_of_make_demo() {
    let program = program("demo");
    let names: Vec<&str> = program.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["uplink0", "red0", "blue0"]);
    assert_eq!(program.devices.iter().map(|device| device.mtu).collect::<Vec<_>>(), [1600, 1500, 1500]);
    let uplink = program.uplink.as_ref().unwrap();
    assert_eq!((uplink.port, uplink.addresses[0].to_string().as_str()), (PortId(0), "192.0.2.1/24"));
    let vtep = program.vtep(VtepId(0)).unwrap();
    assert_eq!((vtep.address, vtep.next_hop, vtep.mac), (ip("192.0.2.2"), ip("192.0.2.2"), None));
    for (name, vni, port, mac, remote_mac) in [
        ("red", 100, 1, "02:00:00:00:0a:10", "02:00:00:00:0a:20"),
        ("blue", 200, 2, "02:00:00:00:0b:10", "02:00:00:00:0b:20"),
    ] {
        let tenant = program.tenants.iter().flatten().find(|tenant| tenant.name == name).unwrap();
        assert_eq!((tenant.vni.0, tenant.gateways.as_slice()), (vni, &[ip("10.1.0.1")][..]));
        let hop = |place, mac: &str| Hop { mac: mac.parse().unwrap(), place };
        assert_eq!(tenant.locate(ip("10.1.0.10")), [hop(Place::Port(PortId(port)), mac)]);
        assert_eq!(tenant.locate(ip("10.1.0.20")), [hop(Place::Vtep(VtepId(0)), remote_mac)]);
    }
}

#[test]
fn demo_allows_and_denies_what_the_demo_shows() {
    let program = program("demo");
    for port in program.ports.iter().flatten() {
        let ask = |list, peer, service| program.decide(list, ip(peer), service);
        for service in [Service::Icmp(8, 0), Service::Tcp(5201), Service::Roce(17)] {
            assert_eq!(ask(port.egress, "10.1.0.20", service).verdict, Verdict::Accept, "{service:?}");
            let elsewhere = ask(port.egress, "10.1.0.21", service);
            assert_eq!((elsewhere.verdict, elsewhere.rule), (Verdict::Deny, None), "{service:?}");
        }
        let denied = ask(port.egress, "10.1.0.20", Service::Tcp(9999));
        assert_eq!(denied.verdict, Verdict::Deny);
        let file = if program.port_name(port.id) == "red0" { "red.yaml:29" } else { "blue.yaml:29" };
        assert_eq!(program.origin(denied.rule.unwrap()), file);
        for service in [Service::Icmp(8, 0), Service::Tcp(5201)] {
            assert_eq!(ask(port.ingress, "10.1.0.20", service).verdict, Verdict::Accept, "{service:?}");
        }
        for service in [Service::Icmp(5, 0), Service::Tcp(22), Service::Roce(17)] {
            assert_eq!(ask(port.ingress, "10.1.0.20", service).rule, None, "{service:?}");
        }
    }
}

#[test]
fn bluefield_reaches_both_families() {
    let program = program("bluefield");
    assert_eq!(program.vtep(VtepId(0)).unwrap().next_hop, ip("198.51.100.10"));
    assert_eq!(program.vtep(VtepId(1)).unwrap().next_hop, ip("fe80::1"));
    let inference = program.tenants.iter().flatten().find(|tenant| tenant.name == "inference").unwrap();
    let hop = |vtep, mac: &str| Hop { mac: mac.parse().unwrap(), place: Place::Vtep(VtepId(vtep)) };
    let hops = [hop(1, "02:20:00:00:01:fd"), hop(0, "02:20:00:00:01:fe")];
    assert_eq!(inference.locate(ip("10.64.3.4")), hops);
    let port = program.ports.iter().flatten().find(|port| program.port_name(port.id) == "pf0vf1").unwrap();
    let ask = |peer, service| program.decide(port.egress, ip(peer), service).verdict;
    assert_eq!(ask("10.64.3.4", Service::Roce(16)), Verdict::Accept);
    assert_eq!(ask("10.64.3.4", Service::Roce(15)), Verdict::Deny);
    assert_eq!(ask("10.64.255.4", Service::Roce(16)), Verdict::Deny);
}

#[test]
fn kubernetes_says_what_its_policies_say() {
    let program = program("kubernetes");
    let (web, db) = (program.port(PortId(1)).unwrap(), program.port(PortId(2)).unwrap());
    let ask = |list, peer, service| {
        let decision = program.decide(list, ip(peer), service);
        (decision.verdict == Verdict::Accept, decision.rule.map(|rule| program.origin(rule)))
    };
    let said = |is_accepted, origin: &str| (is_accepted, Some(origin.to_owned()));
    assert_eq!(ask(web.ingress, "8.8.8.8", Service::Tcp(8080)), said(true, "network-policies.yaml:20"));
    assert_eq!(ask(web.ingress, "8.8.8.8", Service::Tcp(80)), said(false, "network-policies.yaml:5"));
    assert_eq!(ask(db.ingress, "10.3.0.10", Service::Tcp(5432)), said(true, "network-policies.yaml:32"));
    assert_eq!(ask(db.ingress, "8.8.8.8", Service::Tcp(5432)), said(false, "network-policies.yaml:26"));
    assert_eq!(ask(db.ingress, "10.3.0.20", Service::Tcp(9100)), said(true, "operator.yaml:12"));
    assert_eq!(ask(db.egress, "8.8.8.8", Service::Tcp(25)), said(false, "operator.yaml:34"));
    assert_eq!(ask(db.egress, "8.8.8.8", Service::Tcp(443)), said(true, "network-policies.yaml:26"));
}
