//! `floodway verify` as it is built: exact output and exit codes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const POLICY: &str = "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: box}
spec:
  ports: [{name: up, device: 'memory:'}, {name: a0, device: 'memory:'}, {name: a1, device: 'memory:'}]
  uplink: {port: up, addresses: [192.0.2.1/24]}
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 1
  ports:
    - {port: a0, mac: 02:00:00:00:00:01, addresses: [10.0.0.1]}
    - {port: a1, mac: 02:00:00:00:00:02, addresses: [10.0.0.2]}
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: p}
spec:
  tenant: red
  egress: [{action: Accept}]
  ingress:
    - {action: Deny, services: [{protocol: TCP, port: 23}]}
    - {action: Accept, services: [{protocol: TCP}, {protocol: ICMP}]}
";

/// A name, and a `spec`.
fn statements(list: &[(&str, &str)]) -> String {
    let one = |(name, spec): &(&str, &str)| {
        format!(
            "---\napiVersion: floodway.dev/v1alpha1\nkind: Statement\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
        )
    };
    list.iter().map(one).collect()
}

/// Runs in a directory with the policy in `p` and the statements in `s`.
fn verify(list: &[(&str, &str)], arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    for (folder, text) in [("p", POLICY), ("s", &statements(list))] {
        fs::create_dir(directory.path().join(folder)).unwrap();
        fs::write(directory.path().join(folder).join("a.yaml"), text).unwrap();
    }
    run(directory.path(), arguments)
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodway"));
    command
        .arg("verify")
        .args(arguments)
        .current_dir(directory)
        .env_remove("FLOODWAY_SOCKET")
        .output()
        .unwrap()
}

#[track_caller]
fn assert_ends(output: &Output, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout);
    assert_eq!(output.status.code(), Some(code));
}

const ISOLATED: &str = "proven    tenants are apart (ids, devices, vnis, places, tunnels, lookup)\n";
const GOOD: (&str, &str) =
    ("ping", "expect: allow, from: {tenant: red}, to: {}, services: [{protocol: ICMP}]");
const BAD: (&str, &str) =
    ("no-telnet", "expect: allow, from: {tenant: red, ports: [a0]}, to: {}, services: [{protocol: TCP}]");
const EMPTY: (&str, &str) = ("nobody", "expect: deny, from: {tenant: red, ports: []}, to: {}");

#[test]
fn isolation_is_proven_without_a_statement() {
    assert_ends(&verify(&[], &["p"]), 0, &format!("{ISOLATED}0 statements\n"), "");
}

#[test]
fn what_is_proven_or_vacuous_is_good() {
    let stdout = format!(
        "{ISOLATED}\
proven    ping (allow, s/a.yaml:4)
vacuous   nobody (deny, s/a.yaml:9)
            it speaks of no packet
2 statements: 1 proven, 1 vacuous
"
    );
    assert_ends(&verify(&[GOOD, EMPTY], &["p", "--statements", "s"]), 0, &stdout, "");
}

#[test]
fn what_is_false_has_its_code_and_a_packet() {
    let stdout = format!(
        "{ISOLATED}\
proven    ping (allow, s/a.yaml:4)
FALSE     no-telnet (allow, s/a.yaml:9)
            packet: tenant red, port:a0, 10.0.0.1 > 10.0.0.2, tcp 49152 > 23
            denied by p/a.yaml:24: policy-deny
2 statements: 1 proven, 1 false
"
    );
    assert_ends(&verify(&[GOOD, BAD], &["p", "--statements", "s"]), 7, &stdout, "");
    let output = verify(&[GOOD, BAD], &["p", "--statements", "s", "--output", "json"]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(7), 0));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["proven"], &answer["isolation"]["verdict"]), (&false.into(), &"proven".into()));
    assert_eq!(answer["statements"][0]["verdict"], "proven");
    let expected = serde_json::json!({
        "name": "no-telnet", "source": "s/a.yaml", "line": 9, "column": 18, "expect": "allow", "verdict": "false",
        "packet": {
            "tenant": "red", "ingress": "port:a0", "src": "10.0.0.1", "dst": "10.0.0.2",
            "service": "tcp 49152 > 23",
            "judged": {"verdict": "deny", "reason": "policy-deny", "rule": "p/a.yaml:24"},
        },
    });
    assert_eq!(answer["statements"][1], expected);
}

#[test]
fn files_that_are_refused_have_theirs() {
    let output = verify(&[("x", "expect: deny, from: {tenant: rde}, to: {}")], &["p", "--statements", "s"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("s/a.yaml:5:37: error: unknown tenant rde\n"), "{stderr}");
    assert!(stderr.ends_with("\nfloodway: the policy files are refused\n"), "{stderr}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let output = verify(&[], &["p", "--statements", "p"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("only a Statement may stand here"));
    let missing = "floodway: cannot read the directory none: no such file or directory\n";
    assert_ends(&verify(&[], &["p", "--statements", "none"]), 1, "", missing);
}
