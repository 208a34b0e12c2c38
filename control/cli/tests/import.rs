//! `floodway import`: exact output, files and exit codes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Accepts one thing, in one direction of one family.
const DASH: &str = r#"{"DASH_ENI_TABLE:host0": {"vnet": "Red"},
"DASH_ACL_OUT_TABLE:host0:1": {"v4_acl_group_id": "g", "v6_acl_group_id": "h"},
"DASH_ACL_IN_TABLE:host0:1": {"v4_acl_group_id": "g", "v6_acl_group_id": "h"},
"DASH_ACL_GROUP_TABLE:g": {"ip_version": "ipv4"}, "DASH_ACL_GROUP_TABLE:h": {"ip_version": "ipv6"},
"DASH_ACL_RULE_TABLE:h:r": {"priority": 2, "action": "deny", "terminating": true},
"DASH_ACL_RULE_TABLE:g:r": {"priority": 1, "action": "allow", "terminating": true, "protocol": "6", "dst_port": "80-90,443"EXTRA}}"#;

const YAML: &str = r#"# Imported by floodway import: a rule stands below its place in the source.
---
# acl.json:1 `ENI host0`
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata:
  name: "host0"
spec:
  tenant: "red"
  ports: ["host0"]
  egress:
    # acl.json:6 `g:r`
    - action: Accept
      to: [{ipBlock: {cidr: 0.0.0.0/0}}]
      services: [{protocol: TCP, port: 80, endPort: 90}, {protocol: TCP, port: 443}]
    # acl.json:5 `h:r`
    - action: Deny
      to: [{ipBlock: {cidr: "::/0"}}]
  ingress:
    # acl.json:6 `g:r`
    - action: Accept
      from: [{ipBlock: {cidr: 0.0.0.0/0}}]
      services: [{protocol: TCP, port: 80, endPort: 90}, {protocol: TCP, port: 443}]
    # acl.json:5 `h:r`
    - action: Deny
      from: [{ipBlock: {cidr: "::/0"}}]
"#;

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_floodway")).args(arguments).current_dir(folder).output().unwrap()
}

fn folder(extra: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("acl.json"), DASH.replace("EXTRA", extra)).unwrap();
    folder
}

#[track_caller]
fn assert_ends(output: &Output, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout);
    assert_eq!(output.status.code(), Some(code));
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn documents_go_to_stdout() {
    let folder = folder("");
    assert_ends(&run(folder.path(), &["import", "dash", "acl.json"]), 0, YAML, "");
    let answer = json(&run(folder.path(), &["import", "dash", "acl.json", "--output", "json"]));
    let file = serde_json::json!({"path": "red-dash.yaml", "policies": 1, "rules": 4, "text": YAML});
    assert_eq!(answer["files"], serde_json::json!([file]));
}

#[test]
fn files_are_written_and_only_imported_ones_replaced() {
    let folder = folder("");
    let line = "p/blue-dash.yaml: 1 policy, 4 rules\n";
    let arguments = ["import", "dash", "acl.json", "--tenant", "blue", "--out", "p"];
    for _ in 0..2 {
        assert_ends(&run(folder.path(), &arguments), 0, line, "");
        let text = fs::read_to_string(folder.path().join("p/blue-dash.yaml")).unwrap();
        assert_eq!(text, YAML.replace("\"red\"", "\"blue\""));
    }
    fs::write(folder.path().join("p/blue-dash.yaml"), "mine\n").unwrap();
    let refused = "floodway: p/blue-dash.yaml is there and was not imported; remove it first\n";
    assert_ends(&run(folder.path(), &arguments), 5, "", refused);
    assert_eq!(fs::read_to_string(folder.path().join("p/blue-dash.yaml")).unwrap(), "mine\n");
}

#[test]
fn what_has_no_equivalent_ends_with_a_code_of_its_own() {
    let folder = folder(", \"src_port\": 9");
    let output = run(folder.path(), &["import", "dash", "acl.json", "--out", "p"]);
    let warning = "\
acl.json:6:1: warning: rule g:r: native rules cannot ask for source ports; it accepts, and is left out
 6 | \"DASH_ACL_RULE_TABLE:g:r\": {\"priority\": 1, \"action\": \"allow\", \"terminating\": true, \"protocol\": \"6\",\x20
   | ^
";
    assert_ends(&output, 8, "p/red-dash.yaml: 1 policy, 2 rules\n", warning);
    let output = run(folder.path(), &["import", "dash", "acl.json", "--output", "json"]);
    assert_eq!(output.status.code(), Some(8));
    assert_eq!(json(&output)["warnings"]["list"][0]["line"], 6);
}

#[test]
fn what_is_wrong_writes_nothing() {
    let folder = folder(", \"dst_addr\": \"10.0.0.1/8\"");
    let output = run(folder.path(), &["import", "dash", "acl.json", "--out", "p"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("prefix 10.0.0.1/8 has host bits set"), "{stderr}");
    assert!(stderr.ends_with("floodway: nothing is imported\n"), "{stderr}");
    assert!(!folder.path().join("p").exists());
    let answer = json(&run(folder.path(), &["import", "dash", "acl.json", "-o", "json"]));
    assert_eq!(answer["error"], "nothing is imported");
}

#[test]
fn files_that_cannot_be_read_and_wrong_usage_have_the_usual_codes() {
    let folder = folder("");
    let output = run(folder.path(), &["import", "dash", "none.json"]);
    assert_ends(&output, 1, "", "floodway: cannot read none.json: no such file or directory\n");
    assert_ends(
        &run(folder.path(), &["import", "dash", "."]),
        1,
        "",
        "floodway: . is a directory, not a regular file\n",
    );
    let large = fs::File::create(folder.path().join("large.json")).unwrap();
    large.set_len(100 << 20).unwrap();
    let output = run(folder.path(), &["import", "security-groups", "large.json"]);
    assert_ends(&output, 1, "", "floodway: large.json is larger than 8 MiB\n");
    assert_eq!(run(folder.path(), &["import", "dash"]).status.code(), Some(2));
    assert_eq!(run(folder.path(), &["import", "iptables", "acl.json"]).status.code(), Some(2));
}

const ACL: &str = r#"{"headings":["_uuid","action","direction","log","match","name","priority"],
"data":[[["uuid","a"],"allow-related","to-lport",true,"outport == \"host0\" && ip4.src == 10.0.0.0/8 && tcp.dst == {80, 443}EXTRA","web",5]]}"#;
const SWITCHES: &str = r#"[{"headings":["_uuid","name","ports","acls","qos_rules"],
"data":[[["uuid","s"],"Red",["set",[["uuid","p"],["uuid","q"]]],["uuid","a"],["set",[]]]]},
{"headings":["_uuid","name","addresses","port_security"],
"data":[[["uuid","p"],"host0","02:00:00:00:00:10 10.1.0.10",["set",[]]],[["uuid","q"],"host1","unknown",["set",[]]]]},
{"headings":["nb_cfg","options"],"data":[[0,["map",[["default_acl_drop","true"]]]]]}]"#;

const OVN_YAML: &str = r#"# Imported by floodway import: a rule stands below its place in the source.
---
# s.json:2 `switch Red`
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata:
  name: "host0"
spec:
  tenant: "red"
  ports: ["host0"]
  egress:
    # s.json:2 `what no ACL of switch Red decides`
    - action: Deny
      to: [{ipBlock: {cidr: 0.0.0.0/0}}]
    # s.json:2 `what no ACL of switch Red decides`
    - action: Deny
      to: [{ipBlock: {cidr: "::/0"}}]
  ingress:
    # acl.json:2 `ACL web`
    - action: Accept
      from: [{ipBlock: {cidr: 10.0.0.0/8}}]
      services: [{protocol: TCP, port: 80}, {protocol: TCP, port: 443}]
      log: true
    # s.json:2 `what no ACL of switch Red decides`
    - action: Deny
      from: [{ipBlock: {cidr: 0.0.0.0/0}}]
    # s.json:2 `what no ACL of switch Red decides`
    - action: Deny
      from: [{ipBlock: {cidr: "::/0"}}]
"#;

#[test]
fn tables_of_ovn_are_read_and_a_wrong_match_is_told_by_its_character() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("s.json", SWITCHES);
    write("acl.json", &ACL.replace("EXTRA", ""));
    let arguments = ["import", "ovn", "acl.json", "s.json"];
    let output = run(folder.path(), &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    // The other port has a policy of its own: an ACL names the first one.
    assert!(text.starts_with(OVN_YAML), "{text}");
    assert_eq!((output.status.code(), text.matches("kind: TenantPolicy").count()), (Some(0), 2));
    write("acl.json", &ACL.replace("EXTRA", " || udp"));
    let output = run(folder.path(), &arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let expected = "acl.json:2:55: error: the match, at character 69: `&&` and `||` stand side by side\n";
    assert!(stderr.starts_with(expected), "{stderr}");
    assert!(stderr.contains("help: put the parts that belong together in parentheses\n"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn groups_of_nico_become_policies_for_labels() {
    let folder = tempfile::tempdir().unwrap();
    let rule = |direction: &str| {
        format!(
            r#"{{"name": "{direction}", "direction": "{direction}", "protocol": "ANY", "action": "PERMIT", "priority": 1,
            "sourcePrefix": "0.0.0.0/0", "destinationPrefix": "0.0.0.0/0"}}"#
        )
    };
    let text = format!(
        r#"{{"id": "1", "name": "Web", "tenantId": "red", "rules": [{}, {}]}}"#,
        rule("INGRESS"),
        rule("EGRESS")
    );
    fs::write(folder.path().join("g.json"), text).unwrap();
    let output = run(folder.path(), &["import", "nico", "g.json", "--out", "p"]);
    assert_ends(&output, 0, "p/red-nico.yaml: 1 policy, 2 rules\n", "");
    let text = fs::read_to_string(folder.path().join("p/red-nico.yaml")).unwrap();
    assert!(text.contains("ports: {matchLabels: {\"network-security-group/web\": member}}"), "{text}");
}
