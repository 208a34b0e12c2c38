//! Ids outlive programs: edits, removals and returns, and what cannot change while the daemon runs.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{fmt::Write, sync::Arc};

use policy::{Diagnostics, Policy, Source};
use program::{Generation, PortId, Program, TenantId, VtepId, limit};
use proptest::{prelude::*, sample::subsequence};

const PORTS: &str =
    "{name: up, device: 'memory:'}, {name: a0, device: 'memory:'}, {name: b0, device: 'memory:'}";

fn documents(ports: &str, tenants: &[u32], vteps: &[u32]) -> Policy {
    let head = "apiVersion: floodway.dev/v1alpha1\n";
    let vteps: Vec<String> =
        vteps.iter().map(|n| format!("{{name: v{n}, address: 10.0.{}.{}}}", n / 250, n % 250 + 1)).collect();
    let mut text = format!(
        "{head}kind: Fabric\nmetadata: {{name: box}}\nspec:\n  ports: [{ports}]\n  uplink: {{port: up, addresses: [10.0.255.1/16]}}\n  vteps: [{}]\n",
        vteps.join(", ")
    );
    for n in tenants {
        write!(text, "---\n{head}kind: Tenant\nmetadata: {{name: t{n}}}\nspec: {{vni: {}}}\n", n + 1)
            .unwrap();
    }
    let sources = [Source { name: "all.yaml".into(), bytes: text.into() }];
    policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources))).policy
}

fn compile(tenants: &[u32], vteps: &[u32], previous: Option<&Program>) -> Program {
    compile::compile(&documents(PORTS, tenants, vteps), previous).unwrap().program
}

fn tenant_ids(program: &Program) -> Vec<(String, TenantId)> {
    program.tenants.iter().flatten().map(|tenant| (tenant.name.clone(), tenant.id)).collect()
}

#[test]
fn what_stays_keeps_its_id_and_what_goes_leaves_a_hole() {
    let first = compile(&[1, 2, 3], &[1, 2, 3], None);
    assert_eq!(first.generation, Generation(1));
    let second = compile(&[0, 1, 3], &[3, 0, 1], Some(&first));
    assert_eq!(second.generation, Generation(2));
    let ids = [("t1".into(), TenantId(0)), ("t3".into(), TenantId(2)), ("t0".into(), TenantId(3))];
    assert_eq!(tenant_ids(&second), ids);
    assert!(second.tenants[1].is_none());
    let names: Vec<Option<&str>> = second.vteps.iter().map(|v| v.as_ref().map(|v| v.name.as_str())).collect();
    assert_eq!(names, [Some("v1"), None, Some("v3"), Some("v0")]);
}

#[test]
fn a_name_that_comes_back_is_new() {
    let first = compile(&[1, 2], &[1], None);
    let without = compile(&[1], &[], Some(&first));
    let back = compile(&[1, 2], &[1], Some(&without));
    assert_eq!(tenant_ids(&back), [("t1".into(), TenantId(0)), ("t2".into(), TenantId(2))]);
    assert_eq!(back.vteps[0], None);
    assert_eq!(back.vtep(VtepId(1)).unwrap().name, "v1");
}

#[test]
fn an_endpoint_is_its_address_and_not_its_name() {
    let first = compile(&[], &[7], None);
    let mut policy = documents(PORTS, &[], &[7]);
    Arc::make_mut(&mut policy.fabric).vteps[0].name =
        documents(PORTS, &[], &[8]).fabric.vteps[0].name.clone();
    let second = compile::compile(&policy, Some(&first)).unwrap().program;
    assert_eq!(second.vteps.len(), 1);
    assert_eq!(second.vtep(VtepId(0)).unwrap().name, "v8");
}

#[test]
fn the_first_program_after_the_empty_one_is_generation_1() {
    assert_eq!(compile(&[], &[], Some(&Program::default())).generation, Generation(1));
}

#[test]
fn the_same_documents_have_the_same_digest_and_others_another() {
    let first = compile(&[1], &[1], None);
    let again = compile(&[1], &[1], Some(&first));
    assert_eq!(first.digest, again.digest);
    assert_eq!(Program { generation: Generation(1), ..again }, first);
    assert_ne!(compile(&[2], &[1], None).digest, first.digest);
}

fn refuse(ports: &str) -> String {
    let first = compile(&[], &[], None);
    let errors: Diagnostics = compile::compile(&documents(ports, &[], &[]), Some(&first)).unwrap_err();
    errors.to_string().lines().next().unwrap().into()
}

#[test]
fn devices_cannot_change_while_the_daemon_runs() {
    let (up, a0, b0) =
        ("{name: up, device: 'memory:'}", "{name: a0, device: 'memory:'}", "{name: b0, device: 'memory:'}");
    let restart = "ports are opened at start: restart floodwayd";
    assert_eq!(
        refuse(&format!("{up}, {a0}")),
        format!("all.yaml:3:18: error: port b0 (memory:, mtu 1500) is gone; {restart}")
    );
    assert_eq!(
        refuse(&format!("{up}, {a0}, {b0}, {{name: c0, device: 'memory:'}}")),
        format!("all.yaml:5:111: error: port c0 (memory:, mtu 1500) is new; {restart}")
    );
    assert_eq!(
        refuse(&format!("{up}, {b0}, {a0}")),
        format!("all.yaml:5:49: error: port b0 (memory:, mtu 1500) was a0 (memory:, mtu 1500); {restart}")
    );
    assert_eq!(
        refuse(&format!("{up}, {a0}, {{name: b0, device: 'tap:b0'}}")),
        format!("all.yaml:5:80: error: port b0 (tap:b0, mtu 1500) was b0 (memory:, mtu 1500); {restart}")
    );
    assert_eq!(
        refuse(&format!("{up}, {a0}, {{name: b0, device: 'memory:', mtu: 1400}}")),
        format!("all.yaml:5:80: error: port b0 (memory:, mtu 1400) was b0 (memory:, mtu 1500); {restart}")
    );
}

#[test]
fn ids_run_out_with_an_error_and_not_by_being_used_again() {
    let all: Vec<u32> = (0..limit::TENANTS as u32).collect();
    let full = compile(&all, &[], None);
    assert_eq!(full.tenants.len(), limit::TENANTS);
    let fits = compile(&all[..10], &[], Some(&full));
    assert_eq!(fits.tenants.len(), limit::TENANTS);
    let errors = compile::compile(&documents(PORTS, &[5000], &[]), Some(&fits)).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "all.yaml:11:18: error: no id is left: floodwayd has had 4096 tenants since it started\n  help: restart floodwayd to number them anew\n"
    );
    let all: Vec<u32> = (0..limit::VTEPS as u32 + 1).collect();
    let errors = compile::compile(&documents(PORTS, &[], &all), None).unwrap_err();
    assert!(errors.to_string().contains("has had 4096 tunnel endpoints"), "{errors}");
}

#[test]
fn a_card_has_at_most_512_ports() {
    let ports = |count: usize| -> String {
        let others: Vec<String> = (1..count).map(|n| format!("{{name: p{n}, device: 'memory:'}}")).collect();
        format!("{{name: up, device: 'memory:'}}, {}", others.join(", "))
    };
    let most = compile::compile(&documents(&ports(limit::PORTS), &[], &[]), None).unwrap().program;
    assert_eq!(most.devices.len(), 512);
    assert_eq!(most.uplink.unwrap().port, PortId(0));
    let errors = compile::compile(&documents(&ports(limit::PORTS + 1), &[], &[]), None).unwrap_err();
    assert!(errors.to_string().contains("a Fabric has at most 512 ports; this one has 513"), "{errors}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The model: who had an id once never has another while it stays, and nobody gets an id that was in use before.
    #[test]
    fn ids_are_stable_over_any_edits(
        edits in prop::collection::vec((subsequence((0..8u32).collect::<Vec<_>>(), 0..=8), subsequence((0..8u32).collect::<Vec<_>>(), 0..=8)), 1..12)
    ) {
        let mut program: Option<Program> = None;
        let mut ever_used = 0;
        for (tenants, vteps) in &edits {
            let next = compile(tenants, vteps, program.as_ref());
            prop_assert_eq!(next.tenants.iter().flatten().count(), tenants.len());
            prop_assert_eq!(next.vteps.iter().flatten().count(), vteps.len());
            let old = program.as_ref().map(tenant_ids).unwrap_or_default();
            for (name, id) in tenant_ids(&next) {
                match old.iter().find(|(old, _)| *old == name) {
                    Some((_, kept)) => prop_assert_eq!(id, *kept),
                    None => prop_assert!(id.0 >= ever_used),
                }
                prop_assert_eq!(next.tenant(id).unwrap().id, id);
            }
            ever_used = next.tenants.len() as u16;
            program = Some(next);
        }
    }
}
