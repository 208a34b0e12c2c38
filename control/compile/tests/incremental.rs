//! What a change leaves as it was, programs share.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::sync::Arc;

use policy::Source;
use program::{Program, RuleSet};

const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

fn source(name: &str, text: String) -> Source {
    Source { name: name.into(), bytes: text.into() }
}

fn fabric() -> Source {
    let ports = ["up", "a", "b", "c"].map(|name| format!("{{name: {name}, device: 'memory:'}}")).join(", ");
    let spec = format!("{{ports: [{ports}], uplink: {{port: up, addresses: [192.0.2.1/24]}}}}");
    source("fabric.yaml", format!("{HEAD}kind: Fabric\nmetadata: {{name: box}}\nspec: {spec}\n"))
}

/// A tenant with one port of its own name, which may send to this TCP port and be sent anything.
fn tenant(name: &str, vni: u32, port: u16) -> Source {
    let tenant =
        format!("{{vni: {vni}, ports: [{{port: {name}, mac: 02:00:00:00:00:01, addresses: [10.0.0.1]}}]}}");
    let egress = format!("[{{action: Accept, services: [{{protocol: TCP, port: {port}}}]}}]");
    let policy = format!("{{tenant: {name}, egress: {egress}, ingress: [{{action: Accept}}]}}");
    let text = format!(
        "{HEAD}kind: Tenant\nmetadata: {{name: {name}}}\nspec: {tenant}\n---\n{HEAD}kind: TenantPolicy\nmetadata: {{name: p}}\nspec: {policy}\n"
    );
    source(&format!("{name}.yaml"), text)
}

fn compile(sources: &[Source], previous: Option<&Program>) -> Program {
    let parsed = policy::parse(sources).unwrap_or_else(|errors| panic!("{}", errors.render(sources)));
    compile::compile(&parsed.policy, previous).unwrap().program
}

fn set<'p>(program: &'p Program, name: &str) -> &'p Arc<RuleSet> {
    let id = program.tenants.iter().flatten().find(|tenant| tenant.name == name).unwrap().id;
    &program.rules.placed().iter().find(|placed| placed.tenant == id).unwrap().set
}

/// Tenants come and go before them by name, so that every id shifts.
#[test]
fn rules_that_stay_are_shared_whatever_becomes_of_other_tenants() {
    let first = compile(&[fabric(), tenant("b", 2, 80), tenant("c", 3, 80)], None);
    let second =
        compile(&[fabric(), tenant("a", 1, 80), tenant("b", 2, 81), tenant("c", 3, 80)], Some(&first));
    assert!(!Arc::ptr_eq(set(&first, "b"), set(&second, "b")));
    assert!(Arc::ptr_eq(set(&first, "c"), set(&second, "c")));
    let third = compile(&[fabric(), tenant("c", 3, 80)], Some(&second));
    assert!(Arc::ptr_eq(set(&first, "c"), set(&third, "c")));
    let ids = [&first, &second, &third].map(|program| program.ports[3].as_ref().unwrap().egress.0);
    assert_eq!(ids, [2, 4, 0]);
    // Nothing that comes back under a name that was gone is taken for what it was.
    let back = compile(&[fabric(), tenant("b", 2, 80), tenant("c", 3, 80)], Some(&third));
    assert!(!Arc::ptr_eq(set(&first, "b"), set(&back, "b")));
    assert_eq!(set(&first, "b"), set(&back, "b"));
}

/// Where a rule stands is part of it: `explain` says so.
#[test]
fn a_rule_that_moves_in_its_file_is_another() {
    let mut moved = tenant("a", 1, 80);
    let first = compile(&[fabric(), moved.clone()], None);
    moved.bytes.splice(0..0, *b"# a line more\n");
    let second = compile(&[fabric(), moved], Some(&first));
    assert!(!Arc::ptr_eq(set(&first, "a"), set(&second, "a")));
    let origin = |program: &Program| program.origin(program.rules.placed()[0].first_rule);
    assert_eq!([&first, &second].map(origin), ["a.yaml:9", "a.yaml:10"]);
}
