//! Statements stand among the policy files, or in a directory of their own that holds nothing else.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use policy::{Expect, Hosts, Parsed, Peer, PortSelector, Service, Source, parse, parse_with_statements};

const POLICY: &str = "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: box}
spec:
  ports: [{name: up, device: 'memory:'}, {name: red0, device: 'memory:'}]
  uplink: {port: up, addresses: [192.0.2.1/24]}
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec: {vni: 1, ports: [{port: red0, mac: 02:00:00:00:00:01, addresses: [10.0.0.1]}]}
";

const STATEMENTS: &str = "apiVersion: floodway.dev/v1alpha1
kind: Statement
metadata: {name: b}
spec: {expect: deny, from: {tenant: red, ports: [red0]}, to: {ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}}
---
apiVersion: floodway.dev/v1alpha1
kind: Statement
metadata: {name: a}
spec: {expect: allow, from: {tenant: red}, to: {tenant: red}, services: [{protocol: ICMP}]}
";

fn source(name: &str, text: &str) -> Source {
    Source { name: name.into(), bytes: text.into() }
}

fn check(parsed: &Parsed) {
    let statements = &parsed.policy.statements;
    let names: Vec<&str> = statements.iter().map(|statement| &*statement.name.value).collect();
    assert_eq!(names, ["b", "a"]);
    let (first, second) = (&statements[0], &statements[1]);
    assert_eq!((first.expect, second.expect), (Expect::Deny, Expect::Allow));
    assert_eq!((&*first.to.tenant.value, first.services.as_ref()), ("red", None));
    assert!(
        matches!(&first.from.hosts, Hosts::Ports(PortSelector::Named(names)) if &*names[0].value == "red0")
    );
    let Hosts::Peer(Peer::IpBlock { cidr, except }) = &first.to.hosts else { panic!("{:?}", first.to) };
    assert_eq!((cidr.to_string(), except[0].to_string()), ("10.0.0.0/8".into(), "10.1.0.0/16".into()));
    assert_eq!((&second.to.hosts, &second.services), (&Hosts::All, &Some(vec![Service::Icmp(None, None)])));
    assert_eq!(parsed.policy.place(second.name.at).line, 8);
}

#[test]
fn statements_stand_in_either_place_and_the_digest_is_that_of_the_policy() {
    let apart = parse_with_statements(&[source("p.yaml", POLICY)], &[source("s.yaml", STATEMENTS)]).unwrap();
    let among = parse(&[source("p.yaml", POLICY), source("s.yaml", STATEMENTS)]).unwrap();
    check(&apart);
    check(&among);
    assert_eq!(apart.policy.digest, parse(&[source("p.yaml", POLICY)]).unwrap().policy.digest);
}

#[test]
fn a_directory_of_statements_adds_nothing_else() {
    let tenant = "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {name: blue}\nspec: {vni: 2}\n";
    let errors = parse_with_statements(&[source("p.yaml", POLICY)], &[source("s.yaml", tenant)]).unwrap_err();
    assert_eq!(errors.list.len(), 1);
    assert_eq!(
        errors.list[0].to_string(),
        "s.yaml:1:1: error: only a Statement may stand here\n  help: the policy is the other directory"
    );
}
