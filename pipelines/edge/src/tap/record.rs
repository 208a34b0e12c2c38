//! One traced packet: raw as the worker puts it down, and in the names of the program that judged it.

use engine::{Account, Event, Head, Journal};
use packet::Nanos;
use program::{
    DropReason, Generation, Ingress, PortId, Program, RuleId, TenantId, TracedDecision, TracedEntry,
    TracedFlow, TracedFrame, TracedLookup, TracedPacket, TracedStep,
};
use tables::connection::Stage;
use tables::flow::FlowKey;

use crate::action::Action;
use crate::lane::Fate;
use crate::{Tables, key, record};

/// What the first pass made of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Flow,
    Fragment,
    Control,
    Underlay,
    Refused,
}

impl Class {
    pub(super) fn of(fate: Fate) -> Self {
        match fate {
            Fate::LookUp => Self::Flow,
            Fate::Fragment => Self::Fragment,
            Fate::Special => Self::Control,
            Fate::Underlay => Self::Underlay,
            Fate::Drop(_) => Self::Refused,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Fragment => "fragment",
            Self::Control => "control",
            Self::Underlay => "underlay",
            Self::Refused => "refused",
        }
    }
}

/// A flow's entry, copied out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) slot: u32,
    pub(super) action: Action,
    pub(super) stage: Option<Stage>,
}

/// What the program says of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    refused: Option<DropReason>,
    reply: bool,
    rule: Option<RuleId>,
}

impl Decision {
    /// Of a reply it is what the program says of its opener.
    pub(super) fn of(tables: &Tables, flow: &FlowKey, entry: Option<&Entry>) -> Self {
        let reply = entry.is_some_and(|entry| entry.action.is_reply());
        let refused = match entry {
            Some(entry) => entry.action.refusal(),
            None => crate::decide(tables, flow).err().map(|refused| refused.reason),
        };
        Self { refused, reply, rule: record::rule(tables, flow, reply) }
    }

    fn name(&self, program: &Program) -> TracedDecision {
        TracedDecision {
            verdict: record::verdict(self.refused, self.reply).into(),
            rule: self.rule.map_or_else(String::new, |rule| program.origin(rule)),
        }
    }
}

/// One packet of a trace. [`Self::name`] puts it in words.
#[derive(Clone, Debug)]
pub struct TraceRecord {
    /// The trace that it is of.
    pub trace: u64,
    /// When it was judged, from when the worker armed the trace.
    pub after: Nanos,
    /// The program that judged it: [`Self::name`] needs it.
    pub generation: Generation,
    pub(super) port: PortId,
    pub(super) received: Head,
    pub(super) tenant: Option<TenantId>,
    pub(super) key: Option<FlowKey>,
    pub(super) is_later_fragment: bool,
    pub(super) class: Class,
    pub(super) hit: Option<bool>,
    pub(super) entry: Option<Entry>,
    pub(super) decision: Option<Decision>,
    pub(super) snap: u16,
    pub(super) journal: Journal,
}

impl TraceRecord {
    /// In the names of the program of its generation. The caller knows which worker's it is, and when the trace was armed:
    /// nanoseconds since 1970.
    pub fn name(&self, program: &Program, worker: u32, armed_unix_ns: u64) -> TracedPacket {
        let lookup = |hit| TracedLookup { hit, entry: self.entry.as_ref().map(name_entry) };
        TracedPacket {
            at_unix_ns: armed_unix_ns.saturating_add(self.after.0),
            worker,
            generation: self.generation.0,
            port: program.port_name(self.port).to_owned(),
            received: name_frame(&self.received, self.snap),
            tenant: self.tenant.map_or_else(String::new, |tenant| tenant_name(program, tenant)),
            class: self.class.name().into(),
            flow: self.key.as_ref().map(|key| self.name_flow(program, key)),
            lookup: self.hit.map(lookup),
            decision: self.decision.as_ref().map(|decision| decision.name(program)),
            steps: self.journal.events.iter().map(|event| self.name_step(program, event)).collect(),
            steps_omitted: self.journal.omitted,
        }
    }

    fn name_flow(&self, program: &Program, key: &FlowKey) -> TracedFlow {
        let service = match self.is_later_fragment {
            true => format!("later fragment of protocol {}", key.protocol),
            false => key::service_text(key),
        };
        let from = match key::ingress(key) {
            Ingress::Port(port) => program.port_name(port),
            Ingress::Vtep(vtep) => program.vtep(vtep).map_or("?", |vtep| &vtep.name),
        };
        TracedFlow { from: from.to_owned(), src: key::src(key), dst: key::dst(key), service }
    }

    fn name_step(&self, program: &Program, event: &Event) -> TracedStep {
        let port_name = |port| program.port_name(port).to_owned();
        match *event {
            Event::Dropped { account, reason } => TracedStep::Dropped {
                reason: reason.name().into(),
                meaning: reason.meaning().trim().into(),
                account: match account {
                    Account::Port(port) => port_name(port),
                    Account::Tenant(tenant) => tenant_name(program, tenant),
                },
            },
            Event::Originated { port } => TracedStep::Originated { port: port_name(port) },
            Event::HandedOver { worker, port } => {
                TracedStep::HandedOver { worker: worker.0.into(), port: port_name(port) }
            }
            Event::Held => TracedStep::Held,
            Event::Sent { port, tenant, frame } => {
                let frame = frame.and_then(|at| self.journal.frames.get(usize::from(at)));
                let tunnel = tenant.and(frame).map_or_else(String::new, |frame| tunnel_name(program, frame));
                TracedStep::Sent {
                    port: port_name(port),
                    tunnel,
                    frame: frame.map(|frame| name_frame(frame, self.snap)),
                }
            }
        }
    }
}

fn tenant_name(program: &Program, tenant: TenantId) -> String {
    program.tenant(tenant).map_or("?", |tenant| &tenant.name).to_owned()
}

/// The endpoint that an outer header goes to, which is at the beginning of what is kept.
fn tunnel_name(program: &Program, frame: &Head) -> String {
    let l3 = wire::ethernet::HEADER_LEN;
    let dst = frame.bytes().get(l3..).and_then(outer_destination);
    let vtep = program.vteps.iter().flatten().find(|vtep| Some(vtep.address) == dst);
    match (vtep, dst) {
        (Some(vtep), _) => vtep.name.clone(),
        (None, Some(dst)) => dst.to_string(),
        (None, None) => "?".into(),
    }
}

/// Of an IP header as floodway writes them: neither options nor extensions.
fn outer_destination(packet: &[u8]) -> Option<std::net::IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?.into()),
        6 => Some(<[u8; 16]>::try_from(packet.get(24..40)?).ok()?.into()),
        _ => None,
    }
}

fn name_entry(entry: &Entry) -> TracedEntry {
    TracedEntry {
        slot: entry.slot,
        generation: entry.action.generation.0,
        reply: entry.action.is_reply(),
        stage: entry.stage.map_or("", Stage::name).into(),
    }
}

fn name_frame(head: &Head, snap: u16) -> TracedFrame {
    let kept = &head.bytes()[..head.bytes().len().min(snap.into())];
    let bytes = kept.iter().map(|byte| format!("{byte:02x}")).collect();
    TracedFrame { length: head.frame_len() as u32, bytes }
}
