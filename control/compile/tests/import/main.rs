//! What `policy::import` yields, compiled, decides as the source says: slow evaluators of the sources' own words, which
//! share no code with the reader, are held against it on random configurations. And every thing that has no equivalent
//! is said, and opens nothing.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

mod corpus;
mod dash;
mod dash_model;
mod groups_model;
mod nico;
mod nico_model;
mod ovn;
mod ovn_model;
mod packet;
mod security_groups;

use std::net::IpAddr;

use policy::{Diagnostics, Format, Imported, Source};
use program::{Program, Service, Verdict};

/// Two hosts of a tenant, called as the sources of the tests call them.
const TOPOLOGY: &str = "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: box}
spec:
  ports:
    - {name: up, device: 'memory:', mtu: 9000}
    - {name: host0, device: 'memory:'}
    - {name: host1, device: 'memory:'}
  uplink: {port: up, addresses: [192.0.2.1/24]}
  vteps: [{name: far, address: 192.0.2.2}]
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 100
  ports:
    - {port: host0, mac: 02:00:00:00:00:10, addresses: [10.1.0.10, 'fd00::10'], labels: {security-group/a: member,
       network-security-group/a: member, network-security-group/web: member}}
    - {port: host1, mac: 02:00:00:00:00:11, addresses: [10.1.0.11, 'fd00::11'], labels: {security-group/b: member}}
";

fn source(name: &str, text: &str) -> Source {
    Source { name: name.into(), bytes: text.into() }
}

fn import(format: Format, text: &str) -> Result<Imported, Diagnostics> {
    policy::import(format, &[source("in.json", text)], Some("red"))
}

/// The program of what was imported, and the text of it.
fn compiled(imported: &Imported) -> (Program, String) {
    let text: String = imported.files.iter().map(|file| file.text.clone()).collect();
    let sources = [source("topology.yaml", TOPOLOGY), source("imported.yaml", &text)];
    let parsed =
        policy::parse(&sources).unwrap_or_else(|errors| panic!("{}\n{text}", errors.render(&sources)));
    (compile::compile(&parsed.policy, None).unwrap().program, text)
}

fn is_accepted(program: &Program, port: &str, is_egress: bool, peer: IpAddr, service: Service) -> bool {
    let port = program.ports.iter().flatten().find(|one| program.port_name(one.id) == port).unwrap();
    let list = if is_egress { port.egress } else { port.ingress };
    program.decide(list, peer, service).verdict == Verdict::Accept
}

/// The only error of a refused file.
#[track_caller]
fn error(format: Format, text: &str) -> String {
    let diagnostics = import(format, text).unwrap_err();
    assert_eq!(diagnostics.list.len(), 1, "{diagnostics}");
    diagnostics.list[0].to_string()
}

#[test]
fn what_is_no_json_is_refused_at_its_place() {
    for format in [Format::Dash, Format::SecurityGroups, Format::Ovn, Format::Nico] {
        assert_eq!(error(format, "{\"a\": 1"), "in.json:1:7: error: not JSON: EOF while parsing an object");
        assert_eq!(error(format, "{\n  \"a\": 1,\n}"), "in.json:3:1: error: not JSON: key must be a string");
        assert_eq!(error(format, ""), "in.json:1:1: error: not JSON: EOF while parsing a value");
        assert_eq!(error(format, "a: 1\n"), "in.json:1:1: error: not JSON: expected value");
        assert!(error(format, &"[".repeat(100)).contains("not JSON"), "unclosed");
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(error(format, &deep).contains("nested deeper than 32 levels"));
        let large = format!("\"{}\"", "a".repeat(policy::limit::FILE_BYTES_MAX));
        assert!(error(format, &large).contains("at most 8388608 are read"));
    }
}

#[test]
fn a_tenant_that_is_no_name_is_refused() {
    let refused = policy::import(Format::Dash, &[source("in.json", "{}")], Some("Red!")).unwrap_err();
    assert_eq!(refused.list[0].message, "`Red!` cannot be the name of a tenant");
}

#[test]
fn tabs_and_byte_order_marks_are_read() {
    let imported =
        import(Format::Dash, "\u{feff}{\n\t\"DASH_ACL_GROUP_TABLE:g\": {\"ip_version\": \"ipv4\"}\n}")
            .unwrap();
    assert_eq!(imported.warnings.list.len(), 1, "{}", imported.warnings);
}

/// Nothing of the source but names, numbers and addresses becomes YAML.
#[test]
fn no_text_of_the_source_becomes_a_document() {
    let evil = r#"x\n---\nkind: Tenant\u2028\u0085"#;
    let text = format!(
        r#"{{"security_groups": [{{"id": "{evil}", "name": "{evil}", "security_group_rules":
            [{{"id": "{evil}", "direction": "egress"}}]}}]}}"#
    );
    let imported = import(Format::SecurityGroups, &text).unwrap();
    let text = &imported.files[0].text;
    assert_eq!(text.lines().filter(|line| line.starts_with("---")).count(), 1, "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("kind:")).count(), 1, "{text}");
}
