//! Documents that are taken: defaults, odd spellings, warnings, and diagnostics as JSON.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use policy::{Diagnostics, Dscp, Parsed, PortSelector, Service, Source, parse};

const FABRIC: &str = "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: box}
spec:
  ports:
    - {name: up, device: 'memory:'}
    - {name: a0, device: 'memory:'}
    - {name: b0, device: 'memory:', mtu: 1551}
  uplink: {port: up, addresses: [192.0.2.1/24, 'fd00::1/64']}
  vteps: [{name: v4, address: 192.0.2.2}, {name: v6, address: 'fd00::2'}]
";

fn read(documents: &str) -> Parsed {
    let sources = [
        Source { name: "fabric.yaml".into(), bytes: FABRIC.into() },
        Source { name: "more.yaml".into(), bytes: documents.into() },
    ];
    parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources)))
}

#[test]
fn defaults_are_those_of_the_page() {
    let parsed = read(
        "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {name: t}\nspec: {vni: 1193046}\n---\n\
         apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {name: p}\nspec: {tenant: t}\n",
    );
    assert!(parsed.warnings.is_empty());
    let policy = parsed.policy;
    let fabric = &policy.fabric;
    let mtus: Vec<u16> = fabric.ports.iter().map(|port| fabric.mtu_bytes(port)).collect();
    assert_eq!(mtus, [1600, 1500, 1551]);
    assert_eq!(fabric.uplink.dscp, Dscp::Copy);
    let tenant = policy.tenant("t").unwrap();
    assert_eq!(tenant.gateway.mac.to_string(), "02:fd:12:34:56:01");
    assert_eq!(
        (tenant.flow_quota, tenant.fragment_quota, tenant.gateway.addresses.len()),
        (65_536, 1_024, 0)
    );
    assert_eq!((tenant.queue_pair_quota, tenant.roce), (4_096, policy::Roce::default()));
    assert_eq!((policy.policies[0].priority, &policy.policies[0].ports), (1000, &PortSelector::All));
}

#[test]
fn json_and_yaml_say_the_same() {
    let yaml = "apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata:
  name: no
spec:
  vni: 7
  ports:
  - port: a0
    mac: 02:00:00:00:00:01
    addresses:
    - 10.0.0.1
    labels: {on: yes, rate: 1e3, when: 12:30:45}
";
    let json = r#"{"apiVersion": "floodway.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "no"},
      "spec": {"vni": 7, "ports": [{"port": "a0", "mac": "02:00:00:00:00:01", "addresses": ["10.0.0.1"],
      "labels": {"on": "yes", "rate": "1e3", "when": "12:30:45"}}]}}"#;
    let labels = |documents| read(documents).policy.tenant("no").unwrap().ports[0].labels.clone();
    assert_eq!(labels(yaml), labels(json));
    assert_eq!(labels(yaml)["on"], "yes");
}

#[test]
fn a_bom_and_foreign_line_ends_are_taken() {
    let text = "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {name: t}\nspec: {vni: 5}\n";
    for documents in [format!("\u{feff}{text}"), text.replace('\n', "\r\n"), text.replace('\n', "\r")] {
        let tenant = read(&documents).policy.tenant("t").unwrap().clone();
        assert_eq!((tenant.vni.value, tenant.vni.at.line, tenant.vni.at.column), (5, 4, 13));
    }
}

#[test]
fn services_are_read_in_every_form() {
    let parsed = read(
        "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {name: t}\nspec: {vni: 5}\n---\n\
         apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {name: p}\nspec:\n  tenant: t\n  egress:\n  - action: Deny\n    \
         services: [{protocol: RoCEv2, queuePairs: '16-31'}, {protocol: RoCEv2, queuePairs: 7}, {protocol: RoCEv2}, {protocol: 0}, {protocol: ICMP, type: 3}]\n",
    );
    let rule = &parsed.policy.policies[0].egress[0];
    assert_eq!((rule.at.line, rule.at.column), (12, 5));
    let expected = [
        Service::Roce(16, 31),
        Service::Roce(7, 7),
        Service::Roce(0, 0xff_ffff),
        Service::Number(0),
        Service::Icmp(Some(3), None),
    ];
    assert_eq!(rule.services.as_deref(), Some(&expected[..]));
}

#[test]
fn a_port_that_does_not_fit_its_tunnel_is_warned_of() {
    let tenant = |port: &str, vtep: &str| {
        format!(
            "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: t}}\nspec:\n  vni: 5\n  ports: [{{port: {port}, mac: 02:00:00:00:00:01, addresses: [10.0.0.1]}}]\n  remotes: [{{vtep: {vtep}, mac: 02:00:00:00:00:02, addresses: [10.0.0.2]}}]\n"
        )
    };
    assert!(read(&tenant("a0", "v4")).warnings.is_empty());
    assert!(read(&tenant("a0", "v6")).warnings.is_empty());
    assert_eq!(
        read(&tenant("b0", "v4")).warnings.to_string(),
        "more.yaml:6:18: warning: port b0 has an MTU of 1551 bytes; tunnels carry 1550\n  help: raise the uplink's mtu to 1601 or lower the port's to 1550\n"
    );
    assert!(read(&tenant("b0", "v6")).warnings.to_string().contains("tunnels carry 1530"));
}

#[test]
fn rules_below_one_without_conditions_are_warned_of() {
    let policy = |rules: &str| {
        let head = "apiVersion: floodway.dev/v1alpha1\n";
        format!(
            "{head}kind: Tenant\nmetadata: {{name: t}}\nspec: {{vni: 5}}\n---\n{head}kind: TenantPolicy\nmetadata: {{name: p}}\nspec:\n  tenant: t\n  ingress:\n{rules}"
        )
    };
    let all = "  - {action: Accept}\n";
    let some = "  - {action: Deny, services: [{protocol: TCP}]}\n";
    let other = "  - {action: Deny, services: [{protocol: UDP}]}\n";
    assert!(read(&policy(&format!("{some}{other}{all}"))).warnings.is_empty());
    assert_eq!(
        read(&policy(&format!("{some}{all}{some}{some}"))).warnings.to_string(),
        "more.yaml:14:5: warning: no packet comes to this rule, nor to those below it\n  note: more.yaml:13:5: this rule decides every packet\n"
    );
}

#[test]
fn diagnostics_travel_as_json() {
    let source = Source { name: "a.yaml".into(), bytes: b"kind: Fabrik\nkind: Fabric\n".to_vec() };
    let diagnostics = parse(&[source]).unwrap_err();
    let json = serde_json::to_value(&diagnostics).unwrap();
    assert_eq!(json["list"][0]["severity"], "error");
    assert_eq!(serde_json::from_value::<Diagnostics>(json).unwrap(), diagnostics);
    assert!(diagnostics.list.iter().any(|one| one.help.is_some() && one.related.is_none()));
    assert!(diagnostics.list.iter().any(|one| one.related.is_some()));
}

/// Warnings of a policy with these egress rules, for a tenant with one port and one remote.
fn warnings(rules: &[&str]) -> String {
    let head = "apiVersion: floodway.dev/v1alpha1\n";
    let rules: String = rules.iter().map(|rule| format!("  - {rule}\n")).collect();
    let tenant = "spec:\n  vni: 5\n  ports: [{port: a0, mac: 02:00:00:00:00:01, addresses: [10.0.0.1], labels: {role: web}}]\n";
    let tag = "kind: PrefixTag\nmetadata: {name: lab}\nspec: {prefixes: [10.7.0.0/16]}\n";
    read(&format!(
        "{head}kind: Tenant\nmetadata: {{name: t}}\n{tenant}---\n{head}{tag}---\n{head}kind: TenantPolicy\nmetadata: {{name: p}}\nspec:\n  tenant: t\n  egress:\n  - {{action: Accept, to: [{{tag: lab}}]}}\n{rules}"
    ))
    .warnings
    .to_string()
}

#[test]
fn a_rule_that_one_earlier_rule_covers_is_warned_of_with_both_places() {
    let shadowed = |first: &str, second: &str| {
        let said = warnings(&[first, second]);
        let expected = "more.yaml:21:5: warning: no packet comes to this rule\n  note: more.yaml:20:5: this rule decides all that it matches\n";
        assert!(said.is_empty() || said == expected, "{said}");
        !said.is_empty()
    };
    let net = |cidr: &str, rest: &str| format!("{{action: Deny, to: [{{ipBlock: {{cidr: {cidr}}}}}]{rest}}}");
    let except = |cidr: &str, except: &str| {
        format!("{{action: Accept, to: [{{ipBlock: {{cidr: {cidr}, except: [{except}]}}}}]}}")
    };
    let tcp = |rest: &str| format!("{{action: Accept, services: [{{protocol: TCP{rest}}}]}}");
    for (first, second, is_shadowed) in [
        (net("10.0.0.0/8", ""), net("10.1.0.0/16", ""), true),
        (net("10.1.0.0/16", ""), net("10.0.0.0/8", ""), false),
        (net("10.0.0.0/8", ""), net("10.1.0.0/16", ", services: [{protocol: TCP}]"), true),
        (net("10.0.0.0/8", ", services: [{protocol: TCP}]"), net("10.1.0.0/16", ""), false),
        (except("10.0.0.0/8", "10.1.0.0/16"), net("10.1.2.0/24", ""), false),
        (except("10.0.0.0/8", "10.1.0.0/16"), net("10.0.0.0/15", ""), false),
        (except("10.0.0.0/8", "10.1.0.0/16"), net("10.2.0.0/16", ""), true),
        (except("10.0.0.0/8", "10.1.0.0/16"), except("10.0.0.0/15", "10.1.0.0/16"), true),
        (except("10.0.0.0/8", "10.1.0.0/16"), except("10.0.0.0/15", "10.1.2.0/24"), false),
        (tcp(", port: 80, endPort: 90"), tcp(", port: 80"), true),
        (tcp(", port: 80"), tcp(", port: 80, endPort: 90"), false),
        (tcp(", port: 80"), tcp(""), false),
        (
            "{action: Accept, services: [{protocol: UDP, port: 4791}]}".into(),
            "{action: Deny, services: [{protocol: RoCEv2, queuePairs: 7}]}".into(),
            true,
        ),
        (
            "{action: Accept, services: [{protocol: RoCEv2}]}".into(),
            "{action: Deny, services: [{protocol: UDP, port: 4791}]}".into(),
            false,
        ),
        (
            "{action: Pass, to: [{ports: {matchLabels: {}}}]}".into(),
            "{action: Deny, to: [{ports: {matchLabels: {role: web}}}]}".into(),
            true,
        ),
    ] {
        assert_eq!(shadowed(&first, &second), is_shadowed, "{first} {second}");
    }
}

#[test]
fn tags_and_tenants_are_peers() {
    let said = warnings(&["{action: Deny, to: [{tenant: t}]}"]);
    assert_eq!(said, "");
    let parsed = read(
        "apiVersion: floodway.dev/v1alpha1\nkind: PrefixTag\nmetadata: {name: lab}\nspec: {prefixes: [10.7.0.0/16]}\n",
    );
    assert_eq!(parsed.warnings.to_string(), "more.yaml:3:18: warning: no rule uses tag lab\n");
    assert_eq!(parsed.policy.tags[0].prefixes[0].value.to_string(), "10.7.0.0/16");
}

#[test]
fn settings_of_rocev2() {
    let tenant = |settings: &str| {
        let parsed = read(&format!(
            "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: t}}\nspec: {{vni: 7, {settings}}}\n"
        ));
        parsed.policy.tenant("t").unwrap().clone()
    };
    let strict =
        tenant("roce: {learn: ConnectionManager, unknownQp: Deny, order: Drop}, quota: {queuePairs: 9}");
    let expected = policy::Roce {
        learn: policy::Learn::ConnectionManager,
        unknown_qp: policy::UnknownQp::Deny,
        order: policy::Order::Drop,
    };
    assert_eq!((strict.roce, strict.queue_pair_quota, strict.flow_quota), (expected, 9, 65_536));
    assert_eq!(tenant("roce: {order: Count}").roce, policy::Roce::default());
}
