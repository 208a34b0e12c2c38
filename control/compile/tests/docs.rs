//! What `docs/policy.md` says in numbers is what the code does, and its example is read.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{fs, path::Path};

use policy::{Source, limit};

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy.md")).unwrap()
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

#[test]
fn the_bounds_are_those_of_the_code() {
    let page = page();
    let row = |name: &str| {
        let start = format!("| {name}");
        page.lines()
            .find(|line| line.starts_with(&start))
            .unwrap_or_else(|| panic!("no row {name}"))
            .to_string()
    };
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    assert!(row("files of a directory").contains(&thousands(limit::FILES_MAX)));
    let bytes = format!("{}, {}", mib(limit::FILE_BYTES_MAX), mib(limit::TOTAL_BYTES_MAX));
    assert!(row("bytes of a file").contains(&bytes));
    assert!(row("documents of a file").contains(&thousands(limit::DOCUMENTS_MAX)));
    assert!(row("values of a file").contains(&thousands(limit::NODES_MAX)));
    assert!(row("lists and maps").contains(&limit::DEPTH_MAX.to_string()));
    assert!(row("diagnostics told").contains(&thousands(policy::DIAGNOSTICS_MAX)));
    assert_eq!(limit::TENANT_PORTS_MAX, program::limit::PORTS);
    assert!(row("ports of a Fabric").contains(&program::limit::PORTS.to_string()));
    assert_eq!(program::limit::TENANTS, program::limit::VTEPS);
    assert!(row("tenants; remote").contains(&thousands(program::limit::TENANTS)));
    assert!(row("peers and services compared").contains(&thousands(limit::SHADOW_COMPARISONS_MAX)));
    assert!(row("rules of all tenants").contains(&thousands(program::limit::RULES)));
    assert!(row("`quota.flows`").contains(&policy::FLOW_QUOTA_DEFAULT.to_string()));
    assert!(row("`quota.flows`").contains(&policy::FLOW_QUOTA_MAX.to_string()));
    assert!(row("`quota.fragments`").contains(&policy::FRAGMENT_QUOTA_DEFAULT.to_string()));
    assert!(row("`quota.fragments`").contains(&policy::FRAGMENT_QUOTA_MAX.to_string()));
    assert!(row("`quota.queuePairs`").contains(&policy::QUEUE_PAIR_QUOTA_DEFAULT.to_string()));
    assert!(row("`quota.queuePairs`").contains(&policy::QUEUE_PAIR_QUOTA_MAX.to_string()));
    assert!(row("`ports[].mtu`").contains(&format!(
        "{} to {}",
        policy::MTU_BYTES_MIN,
        policy::MTU_BYTES_MAX
    )));
}

#[test]
fn the_example_lacks_nothing_but_its_tenant_and_fabric() {
    let page = page();
    let example = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let errors = policy::parse(&[Source { name: "a.yaml".into(), bytes: example.into() }]).unwrap_err();
    let messages: Vec<&str> = errors.list.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(messages, ["no document is of kind Fabric; a policy has exactly one", "unknown tenant red"]);
}
