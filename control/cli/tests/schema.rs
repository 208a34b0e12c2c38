//! The schema that is shipped says of documents what the reader says: every example is taken by both, what the schema
//! has no room for is refused by both, and both know the same field names.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use jsonschema::Validator;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schema() -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_floodway")).arg("schema").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn validator() -> Validator {
    jsonschema::draft202012::new(&schema()).unwrap()
}

fn documents(yaml: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

#[test]
fn it_is_a_sound_schema() {
    jsonschema::draft202012::meta::validate(&schema()).unwrap();
}

#[test]
fn every_shipped_policy_validates() {
    let validator = validator();
    let mut seen = 0;
    let [policies, statements] =
        ["deploy/policies", "deploy/statements"].map(|path| fs::read_dir(root().join(path)).unwrap());
    for directory in policies.chain(statements) {
        for file in fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let documents = documents(&fs::read_to_string(&path).unwrap());
            for document in documents.into_iter().filter(is_own) {
                let errors: Vec<String> =
                    validator.iter_errors(&document).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{}: {errors:?}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "{seen} documents");
}

/// Kubernetes' kinds have Kubernetes' own schema.
fn is_own(document: &Value) -> bool {
    document["apiVersion"] == "floodway.dev/v1alpha1"
}

fn tenant(spec: Value) -> Value {
    json!({"apiVersion": "floodway.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "red"}, "spec": spec})
}

fn policy(spec: Value) -> Value {
    json!({"apiVersion": "floodway.dev/v1alpha1", "kind": "TenantPolicy", "metadata": {"name": "p"}, "spec": spec})
}

fn tag(spec: Value) -> Value {
    json!({"apiVersion": "floodway.dev/v1alpha1", "kind": "PrefixTag", "metadata": {"name": "t"}, "spec": spec})
}

fn statement(spec: Value) -> Value {
    json!({"apiVersion": "floodway.dev/v1alpha1", "kind": "Statement", "metadata": {"name": "s"}, "spec": spec})
}

fn from_red(mut more: Value) -> Value {
    let fields = more.as_object_mut().unwrap();
    fields.entry("expect").or_insert(json!("deny"));
    fields.entry("from").or_insert(json!({"tenant": "red"}));
    fields.entry("to").or_insert(json!({}));
    statement(more)
}

fn rule(rule: Value) -> Value {
    policy(json!({"tenant": "red", "egress": [rule]}))
}

fn service(service: Value) -> Value {
    rule(json!({"action": "Accept", "services": [service]}))
}

/// What the reader says of a document beside a fabric and a tenant.
fn reader_takes(document: &Value) -> bool {
    let fabric = "apiVersion: floodway.dev/v1alpha1\nkind: Fabric\nmetadata: {name: box}\nspec: {ports: [{name: up, \
                  device: 'memory:'}, {name: red0, device: 'memory:'}], uplink: {port: up, addresses: \
                  [192.0.2.1/24]}, vteps: [{name: far, address: 192.0.2.2}]}\n";
    let source = |name: &str, text: String| policy::Source { name: name.into(), bytes: text.into_bytes() };
    let mut sources = vec![source("a.yaml", fabric.into()), source("b.json", document.to_string())];
    if document["kind"] != "Tenant" {
        let mac = "02:00:00:00:00:01";
        let ports = json!([{"port": "red0", "mac": mac, "addresses": ["10.0.0.1"], "labels": {"a": "b"}}]);
        let remotes =
            json!([{"name": "peer", "vtep": "far", "mac": "02:00:00:00:00:02", "addresses": ["10.0.0.2"]}]);
        let tenant = tenant(json!({"vni": 7, "ports": ports, "remotes": remotes}));
        sources.push(source("c.json", tenant.to_string()));
    }
    if document["metadata"]["name"] != "t" {
        sources.push(source("d.json", tag(json!({"prefixes": ["10.8.0.0/16"]})).to_string()));
    }
    policy::parse(&sources).is_ok()
}

const MAC: &str = "02:00:00:00:00:01";

/// Documents that both take.
fn good() -> Vec<Value> {
    let port = json!({"port": "red0", "mac": MAC, "addresses": ["10.0.0.1"], "labels": {"a": "b"}});
    vec![
        tenant(json!({"vni": 1})),
        tenant(json!({"vni": 0xff_ffff, "ports": [port], "quota": {"flows": 1, "fragments": 8192}})),
        tenant(json!({"vni": 7, "quota": {}})),
        tenant(
            json!({"vni": 7, "quota": {"queuePairs": 1}, "roce": {"learn": "ConnectionManager", "unknownQp": "Deny", "order": "Drop"}}),
        ),
        tenant(json!({"vni": 7, "gateway": {"mac": MAC, "addresses": ["10.0.0.254", "fd00::1"]}})),
        tenant(
            json!({"vni": 7, "remotes": [{"vtep": "far", "mac": MAC, "addresses": ["10.0.0.3"], "prefixes": ["10.9.0.0/16"]}]}),
        ),
        policy(json!({"tenant": "red", "priority": 0, "ports": ["red0"]})),
        policy(
            json!({"tenant": "red", "ports": {"matchLabels": {"a": "b"}}, "ingress": [{"action": "Deny"}]}),
        ),
        rule(
            json!({"action": "Accept", "to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}),
        ),
        rule(json!({"action": "Accept", "to": [{"remote": "peer"}, {"ports": {"matchLabels": {"a": "b"}}}]})),
        service(json!({"protocol": "TCP", "port": 1, "endPort": 65535})),
        service(json!({"protocol": "ICMP", "type": 0, "code": 255})),
        service(json!({"protocol": "RoCEv2", "queuePairs": "16-31"})),
        service(json!({"protocol": "RoCEv2", "queuePairs": 16})),
        service(json!({"protocol": 47})),
        rule(json!({"action": "Pass"})),
        rule(json!({"action": "Deny", "log": true})),
        rule(json!({"action": "Accept", "log": false})),
        rule(json!({"action": "Accept", "to": [{"tag": "t"}, {"tenant": "red"}]})),
        tag(json!({"prefixes": ["10.0.0.0/8", "fd00::/64"]})),
        tag(json!({"prefixes": []})),
        labelled(json!({"team": "a", "number": "7"})),
        tenant(json!({"vni": 7, "ports": [named(json!({"name": "http", "protocol": "TCP", "port": 80}))]})),
        from_red(json!({})),
        from_red(json!({"expect": "allow", "to": {"ports": ["red0"]}, "services": [{"protocol": "TCP"}]})),
        from_red(
            json!({"from": {"tenant": "red", "remote": "peer"}, "to": {"ports": {"matchLabels": {"a": "b"}}}}),
        ),
        from_red(
            json!({"to": {"tenant": "red", "ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}}),
        ),
    ]
}

/// Documents that both refuse.
fn bad() -> Vec<Value> {
    vec![
        json!({"apiVersion": "floodway.dev/v2", "kind": "Tenant", "metadata": {"name": "red"}, "spec": {"vni": 1}}),
        json!({"apiVersion": "floodway.dev/v1alpha1", "kind": "Tenant", "spec": {"vni": 1}}),
        tenant(json!({})),
        tenant(json!({"vni": 0})),
        tenant(json!({"vni": 0x100_0000})),
        tenant(json!({"vni": "7"})),
        tenant(json!({"vni": 7, "vnis": []})),
        tenant(json!({"vni": 7, "quota": {"fragments": 8193}})),
        tenant(json!({"vni": 7, "quota": {"queuePairs": 0}})),
        tenant(json!({"vni": 7, "roce": {"learn": "traffic"}})),
        tenant(json!({"vni": 7, "roce": {"unknownQp": "Drop"}})),
        tenant(json!({"vni": 7, "ports": [{"port": "red0", "mac": "02:00", "addresses": ["10.0.0.1"]}]})),
        tenant(json!({"vni": 7, "ports": [{"port": "Red0", "mac": MAC, "addresses": ["10.0.0.1"]}]})),
        policy(json!({"tenant": "red", "priority": 65536})),
        policy(json!({"tenant": "red", "ports": "red0"})),
        rule(json!({"action": "Allow"})),
        rule(json!({"action": "Accept", "from": []})),
        rule(json!({"action": "Accept", "to": [{}]})),
        rule(json!({"action": "Accept", "to": [{"remote": "peer", "ports": {"matchLabels": {}}}]})),
        rule(json!({"action": "Accept", "to": [{"ipBlock": {"cidr": "10.0.0.0"}}]})),
        service(json!({"protocol": "tcp"})),
        service(json!({"protocol": "TCP", "port": 0})),
        service(json!({"protocol": "TCP", "endPort": 7})),
        service(json!({"protocol": "TCP", "type": 7})),
        service(json!({"protocol": "ICMP", "code": 7})),
        service(json!({"protocol": "ICMP", "port": 7})),
        service(json!({"protocol": "RoCEv2", "port": 7})),
        service(json!({"protocol": 256})),
        rule(json!({"action": "Deny", "log": "true"})),
        rule(json!({"action": "Deny", "log": 1})),
        rule(json!({"action": "Accept", "to": [{"tag": "T"}]})),
        tag(json!({})),
        tag(json!({"prefixes": ["10.0.0.0"]})),
        tag(json!({"prefixes": [], "name": "t"})),
        labelled(json!(["team"])),
        tenant(json!({"vni": 7, "ports": [named(json!({"name": "80", "protocol": "TCP", "port": 80}))]})),
        tenant(json!({"vni": 7, "ports": [named(json!({"name": "http", "protocol": "ICMP", "port": 80}))]})),
        tenant(json!({"vni": 7, "ports": [named(json!({"name": "http", "protocol": "TCP", "port": 0}))]})),
        from_red(json!({"expect": "Deny"})),
        from_red(json!({"from": {}})),
        from_red(json!({"to": {"remote": "peer", "ports": ["red0"]}})),
        from_red(json!({"services": [{"protocol": "TCP", "type": 1}]})),
        statement(json!({"expect": "deny", "from": {"tenant": "red"}})),
    ]
}

#[test]
fn schema_and_reader_agree_on_single_documents() {
    let validator = validator();
    for document in &good() {
        assert!(validator.is_valid(document), "the schema refuses {document}");
        assert!(reader_takes(document), "the reader refuses {document}");
    }
    for document in &bad() {
        assert!(!validator.is_valid(document), "the schema takes {document}");
        assert!(!reader_takes(document), "the reader takes {document}");
    }
}

fn labelled(labels: Value) -> Value {
    let mut document = tenant(json!({"vni": 7}));
    document["metadata"]["labels"] = labels;
    document
}

fn named(port: Value) -> Value {
    json!({"port": "red0", "mac": "02:00:00:00:00:01", "addresses": ["10.0.0.1"], "namedPorts": [port]})
}

/// The names under `properties`, wherever they stand.
fn properties(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                if key == "properties" {
                    names.extend(value.as_object().unwrap().keys().cloned());
                    value.as_object().unwrap().values().for_each(|value| properties(value, names));
                } else {
                    properties(value, names);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| properties(item, names)),
        _ => {}
    }
}

/// Readers of Kubernetes' kinds.
const FOREIGN: [&str; 4] = ["cluster_network_policy.rs", "kubernetes.rs", "network_policy.rs", "selector.rs"];

/// The names that the reader asks for, out of its source: calls of the methods of `Fields`, and rules' peers.
fn asked() -> BTreeSet<String> {
    let policy = root().join("control/policy/src");
    let mut paths = vec![policy.join("documents.rs")];
    let kinds = fs::read_dir(policy.join("kinds")).unwrap().map(|entry| entry.unwrap());
    let own = kinds.filter(|entry| !FOREIGN.contains(&entry.file_name().to_str().unwrap()));
    paths.extend(own.map(|entry| entry.path()));
    let methods = ["required", "optional", "list", "node", "required_node", "number", "required_number"];
    let mut names = BTreeSet::new();
    for path in paths {
        let source: String = fs::read_to_string(path).unwrap().split_whitespace().collect();
        for method in methods {
            for call in source.split(&format!("fields.{method}(\"")).skip(1) {
                names.insert(call.split('"').next().unwrap().to_owned());
            }
        }
        for call in source.split("read_rule(fields,\"").skip(1) {
            names.insert(call.split('"').next().unwrap().to_owned());
        }
    }
    // Of Kubernetes' List.
    names.remove("items");
    names
}

#[test]
fn schema_and_reader_know_the_same_fields() {
    let mut names = BTreeSet::new();
    properties(&schema(), &mut names);
    assert_eq!(names, asked());
}
