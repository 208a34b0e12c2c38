//! Isolation is proven of the shipped program, and of no program that was broken in one place.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{fs, path::Path};

use compile::verify::{self, Answer, End, Expect, Fact, Isolation, Prover, Question};
use policy::Source;
use program::{
    Endpoint, Hop, Ingress, Place, PortId, Program, Route, Rule, RuleSet, RuleSets, TenantId, Verdict, Vni,
    VtepId,
};

const RED: usize = 0;
const BLUE: usize = 1;
const UPLINK: PortId = PortId(0);
const RED0: PortId = PortId(1);
const BLUE0: PortId = PortId(2);

/// The demo, with rules that let everything through: only the structure keeps the tenants apart.
fn open() -> Program {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/policies/demo");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    let source = |path: &std::path::PathBuf| Source {
        name: path.file_name().unwrap().to_str().unwrap().into(),
        bytes: fs::read(path).unwrap(),
    };
    let sources: Vec<Source> = files.iter().map(source).collect();
    let parsed = policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources)));
    let mut program = compile::compile(&parsed.policy, None).unwrap().program;
    // Blue comes first by name; the tests say red and blue.
    program.tenants.swap(0, 1);
    for (index, tenant) in program.tenants.iter_mut().flatten().enumerate() {
        tenant.id = TenantId(index as u16);
    }
    for port in program.ports.iter_mut().flatten() {
        port.tenant = TenantId(1 - port.tenant.0);
    }
    let (tier, origin) = Default::default();
    let all = Rule { tier, verdict: Verdict::Accept, peers: None, services: vec![], log: false, origin };
    let lists = vec![vec![0]; program.rules.list_count()];
    program.rules = one_set(RuleSet { rules: vec![all], lists });
    program
}

fn one_set(set: RuleSet) -> RuleSets {
    let mut sets = RuleSets::default();
    sets.push(TenantId(0), set.into());
    sets
}

fn change_rules(program: &mut Program, change: impl Fn(&mut RuleSet)) {
    let mut set = (*program.rules.placed()[0].set).clone();
    change(&mut set);
    program.rules = one_set(set);
}

fn tenant(program: &mut Program, index: usize) -> &mut program::Tenant {
    program.tenants[index].as_mut().unwrap()
}

fn facts(isolation: &Isolation) -> Vec<Fact> {
    isolation.broken.iter().map(|broken| broken.fact).collect()
}

/// What is broken after the change, its sentence, and whether a packet shows it.
#[track_caller]
fn assert_broken(change: impl FnOnce(&mut Program), fact: Fact, message: &str, has_example: bool) -> Program {
    let mut program = open();
    change(&mut program);
    let isolation = verify::isolation(&program);
    let broken = isolation.broken.iter().find(|broken| broken.fact == fact);
    let broken = broken.unwrap_or_else(|| panic!("{fact:?} is not among {:?}", isolation.broken));
    assert_eq!(broken.message, message);
    assert!(!isolation.is_proven());
    assert_eq!(broken.example.is_some(), has_example, "{:?}", broken.example);
    if let Some(example) = broken.example {
        assert_eq!(program.judge(&example.flow), example.judged);
        assert!(example.judged.is_ok());
    }
    program
}

#[test]
fn the_demo_is_isolated_whatever_its_rules_say() {
    let program = open();
    assert_eq!(verify::isolation(&program), Isolation::default());
    let names: Vec<&str> = program.tenants.iter().flatten().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["red", "blue"]);
    let mut prover = Prover::new(&program);
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to) = (End::all(TenantId(from)), End::all(TenantId(to)));
        let question = Question { expect: Expect::Deny, from, to, services: None };
        assert_eq!(prover.answer(&question), Answer::Proven);
    }
}

#[test]
fn a_host_at_anothers_port_is_a_leak() {
    let change = |program: &mut Program| {
        let host =
            tenant(program, RED).endpoints.iter_mut().find(|host| host.address.to_string() == "10.1.0.20");
        host.unwrap().hop.place = Place::Port(BLUE0);
    };
    let message = "host 10.1.0.20 of tenant red is at port blue0 of tenant blue";
    let program = assert_broken(change, Fact::Places, message, true);
    let example = verify::isolation(&program).broken[0].example.unwrap();
    assert_eq!((example.flow.tenant, example.flow.ingress), (TenantId(0), Ingress::Port(RED0)));
    assert_eq!(example.judged.unwrap().place, Place::Port(BLUE0));
    let question = Question {
        expect: Expect::Deny,
        from: End::all(TenantId(0)),
        to: End::all(TenantId(1)),
        services: None,
    };
    assert!(matches!(Prover::new(&program).answer(&question), Answer::False(_)));
}

#[test]
fn a_leak_that_rules_happen_to_stop_is_still_one() {
    let change = |program: &mut Program| {
        change_rules(program, |set| set.rules[0].verdict = Verdict::Deny);
        let red = tenant(program, RED);
        red.endpoints.iter_mut().for_each(|host| host.hop.place = Place::Port(BLUE0));
    };
    assert_broken(
        change,
        Fact::Places,
        "host 10.1.0.10 of tenant red is at port blue0 of tenant blue",
        false,
    );
}

#[test]
fn a_port_that_changes_hands_takes_its_hosts_along() {
    let change = |program: &mut Program| {
        program.ports[usize::from(RED0.0)].as_mut().unwrap().tenant = TenantId(1);
    };
    // From the tunnel of red's VNI to the port that is blue's now.
    assert_broken(change, Fact::Places, "host 10.1.0.10 of tenant red is at port red0 of tenant blue", true);
}

#[test]
fn a_host_at_the_uplink_or_at_no_port_has_no_place() {
    for (port, name) in [(UPLINK, "uplink0"), (PortId(9), "?")] {
        let change = |program: &mut Program| tenant(program, RED).endpoints[0].hop.place = Place::Port(port);
        let message = format!("host 10.1.0.10 of tenant red is at port {name}, which is no tenant's");
        assert_broken(change, Fact::Places, &message, false);
    }
}

#[test]
fn two_tenants_of_one_vni_are_one() {
    let change = |program: &mut Program| tenant(program, BLUE).vni = Vni(100);
    assert_broken(change, Fact::Vnis, "tenants red and blue have one VNI, 100", true);
    for vni in [0, 1 << 24] {
        let change = |program: &mut Program| tenant(program, BLUE).vni = Vni(vni);
        assert_broken(change, Fact::Vnis, &format!("tenant blue has VNI {vni}, which is none"), false);
    }
}

#[test]
fn tunnels_end_at_other_boxes_that_exist() {
    let route = |vtep| Route {
        prefix: "10.9.0.0/16".parse().unwrap(),
        hops: vec![Hop { mac: "02:00:00:00:00:01".parse().unwrap(), place: Place::Vtep(VtepId(vtep)) }],
    };
    let message = "10.9.0.0/16 of tenant red is behind tunnel endpoint 7, which does not exist";
    assert_broken(|program| tenant(program, RED).routes.push(route(7)), Fact::Tunnels, message, false);
    let host = |program: &mut Program| {
        let blue = tenant(program, BLUE);
        let host = blue.endpoints.iter_mut().find(|host| matches!(host.hop.place, Place::Vtep(_)));
        host.unwrap().hop.place = Place::Vtep(VtepId(1));
    };
    let message = "10.1.0.20/32 of tenant blue is behind tunnel endpoint 1, which does not exist";
    assert_broken(host, Fact::Tunnels, message, false);
    let ours =
        |program: &mut Program| program.vteps[0].as_mut().unwrap().address = "192.0.2.1".parse().unwrap();
    assert_broken(ours, Fact::Tunnels, "tunnel endpoint fabric is this box, 192.0.2.1", false);
    let twice = |program: &mut Program| program.vteps.push(program.vteps[0].clone());
    assert_broken(twice, Fact::Tunnels, "tunnel endpoints fabric and fabric are both 192.0.2.2", false);
}

#[test]
fn devices_are_apart() {
    let change = |program: &mut Program| program.devices[2].device = program.devices[1].device.clone();
    assert_broken(change, Fact::Devices, "ports red0 and blue0 are one device", false);
    let change = |program: &mut Program| program.uplink.as_mut().unwrap().port = BLUE0;
    assert_broken(change, Fact::Devices, "the uplink blue0 is a port of tenant blue", false);
    let mut memory = open();
    memory.devices.iter_mut().for_each(|device| device.device = "memory:".into());
    assert!(verify::isolation(&memory).is_proven());
}

#[test]
fn ids_lead_where_they_should() {
    let change = |program: &mut Program| tenant(program, BLUE).id = TenantId(0);
    assert_broken(change, Fact::Ids, "tenant blue is entry 1 and has id 0", false);
    let change = |program: &mut Program| program.ports[2].as_mut().unwrap().id = RED0;
    assert_broken(change, Fact::Ids, "port red0 is entry 2 and has id 1", false);
    let change = |program: &mut Program| program.ports[2].as_mut().unwrap().tenant = TenantId(5);
    assert_broken(change, Fact::Ids, "port blue0 is of tenant 5, which does not exist", false);
}

#[test]
fn what_is_looked_up_is_what_was_proven() {
    let change = |program: &mut Program| tenant(program, RED).endpoints.reverse();
    let message = "the hosts of tenant red are out of order: 10.1.0.20, 10.1.0.10";
    assert_broken(change, Fact::Lookup, message, false);
    let change = |program: &mut Program| {
        let red = tenant(program, RED);
        let first: Endpoint = red.endpoints[0];
        red.endpoints.insert(0, first);
    };
    let message = "the hosts of tenant red are out of order: 10.1.0.10, 10.1.0.10";
    assert_broken(change, Fact::Lookup, message, false);
}

#[test]
fn what_is_not_told_is_counted() {
    let mut program = open();
    let hosts = (0..250u32).map(|last| Endpoint {
        address: std::net::Ipv4Addr::from_bits(0x0a02_0000 + last).into(),
        hop: Hop { mac: "02:00:00:00:00:01".parse().unwrap(), place: Place::Port(BLUE0) },
    });
    tenant(&mut program, RED).endpoints.extend(hosts);
    let isolation = verify::isolation(&program);
    assert_eq!((isolation.broken.len(), isolation.omitted), (verify::BROKEN_MAX, 150));
    assert_eq!(facts(&isolation), vec![Fact::Places; verify::BROKEN_MAX]);
}

#[test]
fn a_list_that_names_no_rule_is_no_proof() {
    let mut program = open();
    change_rules(&mut program, |set| set.lists.iter_mut().for_each(|list| list.push(7)));
    let all = || End::all(TenantId(0));
    let question = Question { expect: Expect::Deny, from: all(), to: all(), services: None };
    let answer = Prover::new(&program).answer(&question);
    assert_eq!(answer, Answer::Undecided(verify::Undecided::BrokenList));
}
