//! The corpus's policies of others, against the verdicts that their authors state: NetworkPolicy recipes, cyclonus and
//! policy-assistant examples, and the conformance files of network-policy-api.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

mod conformance;
mod network_policies;
mod world;

use std::collections::BTreeSet;

/// Files that are not run, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("cilium/cidr.yaml", "CiliumNetworkPolicy is no kind that is read"),
    ("cilium/egress-deny.yaml", "CiliumNetworkPolicy is no kind that is read"),
    ("cilium/icmp.yaml", "CiliumNetworkPolicy is no kind that is read"),
    ("cyclonus/test-runs.md", "results of generated cases, without the cases' documents"),
    ("npapi_conformance/manifests.yaml", "namespaces and pods; the world of the cases has them as ports"),
    ("policy_assistant/demos_kubecon-eu-2024_demo-probe.json", "input of the tool: pods and probes"),
    (
        "policy_assistant/demos_walkthrough_demo-deployment-a.yaml",
        "a Deployment; the world of the cases has its pod",
    ),
    ("policy_assistant/demos_walkthrough_demo-pod-b.yaml", "a Pod; the world of the cases has it"),
    ("policy_assistant/demos_walkthrough_traffic.json", "input of the tool: flows without verdicts"),
    ("policy_assistant/probe.json", "input of the tool: pods and probes"),
    ("policy_assistant/targets.json", "input of the tool: pods"),
    ("policy_assistant/traffic.json", "input of the tool: flows without verdicts"),
    ("recipes/08-allow-external-traffic_1.yaml", "the inner part of a document"),
    ("recipes/09-allow-traffic-only-to-a-port_1.yaml", "the inner part of a document"),
    ("recipes/09-allow-traffic-only-to-a-port_2.yaml", "the inner part of a Pod"),
];

/// Folders of the corpus that are no policies of the kinds here.
const OTHER_FOLDERS: [&str; 1] = ["dash"];

#[test]
fn every_file_is_run_or_left_out_for_a_reason() {
    let Some(folder) = world::corpus() else { return };
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if OTHER_FOLDERS.contains(&name.as_str()) {
            continue;
        }
        for file in std::fs::read_dir(folder.join(&name)).unwrap() {
            found.insert(format!("{name}/{}", file.unwrap().file_name().to_str().unwrap()));
        }
    }
    let run = network_policies::files().chain(conformance::files()).map(str::to_owned);
    let known: Vec<String> = run.chain(LEFT_OUT.iter().map(|(file, _)| (*file).to_owned())).collect();
    let unique: BTreeSet<String> = known.iter().cloned().collect();
    assert_eq!(unique, found);
    assert!(LEFT_OUT.iter().all(|(_, reason)| !reason.is_empty()));
}
