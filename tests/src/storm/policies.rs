//! The programs between which a run changes: compiled once, each from the one before, so that ids stay.

use std::sync::{Arc, OnceLock};

use crate::policies::{FABRIC, RULES, TENANTS};
use crate::rig::compile_texts;
use program::{Generation, Program};

const OPEN: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: red-open}
spec: {tenant: red, egress: [{action: Accept, log: true}], ingress: [{action: Accept}]}
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: blue-open}
spec: {tenant: blue, egress: [{action: Accept}], ingress: [{action: Accept}]}
"#;

/// One of the programs, as of that generation.
pub(super) fn program(choice: u8, generation: u32) -> Arc<Program> {
    static ALL: OnceLock<Vec<Program>> = OnceLock::new();
    let all = ALL.get_or_init(compiled);
    let chosen = &all[usize::from(choice) % all.len()];
    Arc::new(Program { generation: Generation(generation), ..chosen.clone() })
}

fn compiled() -> Vec<Program> {
    // One endpoint's next hop is known, the other's is asked for.
    let fabric = FABRIC.replace("192.0.2.2}", "192.0.2.2, mac: \"02:ee:00:00:00:02\"}");
    let quota = "quota: {flows: 24, fragments: 5, queuePairs: 8}";
    let narrow = TENANTS.replace("  vni: 100\n", &format!("  vni: 100\n  {quota}\n"));
    let strict = TENANTS.replace(
        "  vni: 100\n",
        "  vni: 100\n  connections: {midStream: Deny}\n  roce: {learn: ConnectionManager, unknownQp: Deny, order: Drop}\n",
    );
    // A port of red's becomes blue's.
    let (red1, rest) =
        ("    - {port: red1, mac: \"02:00:00:00:0a:11\", addresses: [10.1.0.11]}\n", "  remotes:\n");
    let mut moved = TENANTS.replace(red1, "");
    let at = moved.rfind(rest).expect("blue's remotes");
    moved.insert_str(at, red1);
    let red_alone = TENANTS.split("---").next().expect("red").to_owned();
    let red_rules = "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {name: red}\n\
                     spec: {tenant: red, egress: [{action: Accept}]}\n";
    let texts: [[&str; 3]; 5] = [
        [&fabric, &narrow, OPEN],
        [&fabric, &strict, OPEN],
        [&fabric, TENANTS, RULES],
        [&fabric, &moved, OPEN],
        [&fabric, &red_alone, red_rules],
    ];
    let mut all = Vec::<Program>::new();
    for text in texts {
        let next = compile_texts(&text, all.last());
        all.push(next);
    }
    all
}
