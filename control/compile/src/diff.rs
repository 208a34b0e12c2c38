//! What one program changes about another: tenants and their parts, tables in use, and verdicts.
//!
//! Verdicts are compared exactly, not by samples: see [`classes`](self::classes). A class speaks of what one port's
//! rules say; its example is judged from end to end.

mod classes;
mod flows;
mod moves;
mod parts;
mod shared;

use policy::Diagnostics;
use program::{FlowRecord, Program, limit};
use serde::{Deserialize, Serialize};

use self::shared::Shared;

pub use classes::{
    AddressRange, Class, Classes, Example, PEERS_SHOWN_MAX, Protocol, ServiceRange, compare as classes,
};
pub use flows::{FLOW_CHANGES_MAX, FlowChange, FlowChanges, flows, service_of};
pub use moves::{Move, Moves};
pub use parts::{Change, Part, TenantChange};

/// What would change.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// False when the two programs are the same but for generation and files.
    pub changed: bool,
    /// Devices, uplink and tunnel endpoints.
    pub fabric: Vec<Part>,
    /// Tenants that change, by name.
    pub tenants: Vec<TenantChange>,
    /// Tables in use.
    pub capacity: Vec<Capacity>,
    /// Packets that rules would judge otherwise.
    pub classes: Classes,
    /// Addresses whose packets would go elsewhere.
    #[serde(default)]
    pub moves: Moves,
    /// Open flows that would be judged otherwise.
    pub flows: FlowChanges,
    /// Tenants whose rules were compiled for the answer: the others are as they were compiled before.
    #[serde(default)]
    pub recompiled: usize,
    /// Tenants whose rules were compared for the answer: the two programs share those of the others.
    #[serde(default)]
    pub compared: usize,
    /// What somebody should look at in the files.
    #[serde(default, skip_serializing_if = "Diagnostics::is_empty")]
    pub warnings: Diagnostics,
}

/// How much of a bounded table is in use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// Its name.
    pub table: String,
    /// Entries now, holes among them.
    pub before: usize,
    /// Entries then.
    pub after: usize,
    /// Entries at most; absent where nothing but the size of the files bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<usize>,
}

/// Compares two programs. Flows, warnings and what was recompiled are the caller's to add.
pub fn diff(old: &Program, new: &Program) -> Plan {
    let fabric = parts::fabric(old, new);
    let shared = Shared::of(old, new);
    let (tenants, compared) = parts::tenants(old, new, &shared);
    let classes = classes::compare_unless(old, new, &shared);
    let moves = moves::compare(old, new);
    let changed = !(fabric.is_empty() && tenants.is_empty() && classes.list.is_empty());
    Plan {
        changed,
        fabric,
        tenants,
        capacity: capacity(old, new),
        classes,
        moves,
        compared,
        ..Plan::default()
    }
}

/// Adds how many flows of each tenant that changes are open, of how many that it may have then.
pub fn count_flows(plan: &mut Plan, new: &Program, records: &[FlowRecord]) {
    for change in &mut plan.tenants {
        let open = records.iter().filter(|record| record.tenant == change.tenant).count();
        let quota = new.tenants.iter().flatten().find(|tenant| tenant.name == change.tenant);
        let bound = quota.map(|tenant| tenant.flow_quota as usize);
        let after = bound.map_or(0, |bound| open.min(bound));
        change.capacity.push(Capacity { table: "flows".into(), before: open, after, bound });
    }
}

fn capacity(old: &Program, new: &Program) -> Vec<Capacity> {
    let row = |table: &str, count: fn(&Program) -> usize, bound| Capacity {
        table: table.into(),
        before: count(old),
        after: count(new),
        bound: Some(bound),
    };
    vec![
        row("ports", |program| program.devices.len(), limit::PORTS),
        row("tenants", |program| program.tenants.len(), limit::TENANTS),
        row("vteps", |program| program.vteps.len(), limit::VTEPS),
        row("rules", |program| program.rules.len(), limit::RULES),
    ]
}
