//! Programs have bounds, and what exceeds them is refused at the rule that does.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::sync::Arc;

use policy::{Policy, Source};
use program::limit;

const DOCUMENTS: &str = "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: box}
spec:
  ports: [{name: up, device: 'memory:'}, {name: a0, device: 'memory:'}]
  uplink: {port: up, addresses: [192.0.2.1/24]}
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 100
  ports: [{port: a0, mac: 02:00:00:00:00:10, addresses: [ADDRESSES]}]
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: p}
spec:
  tenant: red
  egress:
    - {action: Accept, to: [{ports: {matchLabels: {}}}]}
  ingress:
    - {action: Deny}
";

/// One tenant with a port of so many addresses, one egress rule to all of them and one ingress rule.
fn policy(addresses: usize) -> Policy {
    let addresses: Vec<String> =
        (0..addresses).map(|n| format!("10.1.{}.{}", n / 250, n % 250 + 1)).collect();
    let text = DOCUMENTS.replace("ADDRESSES", &addresses.join(", "));
    let sources = [Source { name: "all.yaml".into(), bytes: text.into() }];
    policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources))).policy
}

fn repeat<T: Clone>(list: &mut Vec<T>, count: usize) {
    *list = vec![list[0].clone(); count];
}

#[test]
fn the_number_of_rules_is_bounded() {
    let mut policy = policy(1);
    repeat(&mut Arc::make_mut(&mut policy.policies[0]).ingress, limit::RULES - 1);
    let program = compile::compile(&policy, None).unwrap().program;
    assert_eq!(program.rules.len(), limit::RULES);
    repeat(&mut Arc::make_mut(&mut policy.policies[0]).ingress, limit::RULES);
    let errors = compile::compile(&policy, None).unwrap_err();
    assert_eq!(errors.to_string(), "all.yaml:23:7: error: more than 1048576 rules\n");
}

#[test]
fn a_few_bytes_cannot_stand_for_any_number_of_addresses() {
    let mut policy = policy(1 << 12);
    repeat(&mut Arc::make_mut(&mut policy.policies[0]).egress, (1 << 10) + 1);
    let errors = compile::compile(&policy, None).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "all.yaml:21:7: error: the peers of all rules come to more than 4194304 prefixes\n"
    );
    repeat(&mut Arc::make_mut(&mut policy.policies[0]).egress, 1 << 10);
    assert!(compile::compile(&policy, None).is_ok());
}

#[test]
fn rules_without_services_are_left_out() {
    let mut policy = policy(1);
    Arc::make_mut(&mut policy.policies[0]).ingress[0].services = Some(vec![]);
    let program = compile::compile(&policy, None).unwrap().program;
    assert_eq!(program.rules.len(), 1);
    assert_eq!(program.rules.list(program.ports[1].as_ref().unwrap().ingress).len(), 0);
}
