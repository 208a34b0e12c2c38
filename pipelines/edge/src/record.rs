//! Flow entries as they are listed: raw in the worker, named by whoever asked.

use program::{DropReason, FlowRecord, Ingress, Place, Program, TenantId};
use tables::flow::{FlowKey, FlowTable, Slot};

use crate::Tables;
use crate::action::{Action, Target};
use crate::decide::{decide, opener};
use crate::key;
use crate::state::State;

/// One flow entry, copied out.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    key: FlowKey,
    action: Action,
    packets: u64,
    bytes: u64,
}

impl Record {
    /// In the names of the program that `tables` were built from. The rule is found by asking the program again, so
    /// that list and data plane cannot disagree.
    pub fn name(&self, tables: &Tables) -> FlowRecord {
        FlowRecord {
            verdict: self.verdict().to_owned(),
            rule: self.rule(tables),
            packets: self.packets,
            bytes: self.bytes,
            ..describe(&tables.program, &self.key)
        }
    }

    fn verdict(&self) -> &'static str {
        match self.action.target() {
            Target::Drop(reason) => reason.name(),
            _ if self.action.is_reply() => "accept (reply)",
            _ => "accept",
        }
    }

    fn rule(&self, tables: &Tables) -> String {
        let key =
            if self.action.is_reply() { opener(tables, &self.key).unwrap_or(self.key) } else { self.key };
        let rule = match decide(tables, &key) {
            Ok(allowed) => allowed.rule,
            Err(refused) if refused.reason == DropReason::PolicyDeny => refused.rule,
            Err(_) => None,
        };
        rule.map_or_else(String::new, |rule| tables.program.origin(rule))
    }
}

/// Whose flow a key is, and between whom, without what is said of it.
pub(crate) fn describe(program: &Program, key: &FlowKey) -> FlowRecord {
    let tenant = program.tenant(TenantId(key.tenant));
    let place = |place| match place {
        Place::Port(port) => program.port_name(port).to_owned(),
        Place::Vtep(vtep) => program.vtep(vtep).map_or("?", |vtep| &vtep.name).to_owned(),
    };
    let from = match key::ingress(key) {
        Ingress::Port(port) => Place::Port(port),
        Ingress::Vtep(vtep) => Place::Vtep(vtep),
    };
    let to = tenant.and_then(|tenant| tenant.locate(key::dst(key)));
    FlowRecord {
        tenant: tenant.map_or("?", |tenant| &tenant.name).to_owned(),
        from: place(from),
        src: key::src(key),
        dst: key::dst(key),
        service: key::service_text(key),
        verdict: String::new(),
        rule: String::new(),
        to: to.map_or_else(|| "-".to_owned(), |(to, _)| place(to)),
        packets: 0,
        bytes: 0,
    }
}

/// Slots looked at in one step, so that a nearly empty table is listed soon and a poll stays short.
const SLOTS_PER_STEP: usize = 512;

pub(crate) fn dump(
    flows: &FlowTable<Action, State>,
    from: usize,
    count: usize,
    sink: &mut dyn FnMut(Record),
) -> Option<usize> {
    let mut next = from + SLOTS_PER_STEP;
    for (index, (slot, entry)) in flows.iter(Slot(from as u32), SLOTS_PER_STEP).enumerate() {
        if index == count {
            next = slot.0 as usize;
            break;
        }
        sink(Record { key: *entry.key(), action: entry.action, packets: entry.packets, bytes: entry.bytes });
    }
    (next < flows.slots()).then_some(next)
}
