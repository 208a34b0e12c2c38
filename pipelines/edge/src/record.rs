//! Flow entries and queue pairs as they are listed: raw in the worker, named by whoever asked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use program::{
    DropReason, FlowRecord, Ingress, Place, Program, QueuePairRecord, QueuePairSide, RuleId, Service,
    TenantId,
};
use tables::connection::{Stage, sctp, tcp};
use tables::flow::{FlowKey, Slot};
use tables::qp::{self, Side, State, View};
use wire::Mac;

use crate::action::Action;
use crate::decide::{decide, openers};
use crate::key;
use crate::{Edge, Tables};

/// One of what a worker remembers, copied out.
#[derive(Clone, Copy, Debug)]
pub enum Record {
    /// A flow entry.
    Flow(FlowEntry),
    /// A pair of queue pairs.
    QueuePair(QueuePairEntry),
}

impl Record {
    /// A flow's, in the names of the program that `tables` were built from.
    pub fn flow(&self, tables: &Tables) -> Option<FlowRecord> {
        if let Self::Flow(entry) = self { Some(entry.name(tables)) } else { None }
    }

    /// A flow's, as it is exported.
    pub fn exported(&self) -> Option<Exported> {
        if let Self::Flow(entry) = self { Some(entry.exported()) } else { None }
    }

    /// A pair's, in the names of the program that `tables` were built from.
    pub fn queue_pair(&self, tables: &Tables) -> Option<QueuePairRecord> {
        if let Self::QueuePair(entry) = self { Some(entry.name(tables)) } else { None }
    }
}

/// What makes a flow entry that flow and no other, for whoever compares two lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowIdentity(FlowKey);

/// A flow entry in the terms of a flow record.
#[derive(Clone, Copy, Debug)]
pub struct Exported {
    /// Which flow.
    pub identity: FlowIdentity,
    /// Whose.
    pub tenant: TenantId,
    /// Where it comes in.
    pub ingress: Ingress,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source and destination port of TCP, UDP and SCTP; zeros for others, RoCEv2 among them.
    pub ports: (u16, u16),
    /// ICMP type and code; zeros for others.
    pub icmp: (u8, u8),
    /// Destination queue pair of RoCEv2.
    pub queue_pair: Option<u32>,
    /// Why its packets are dropped, if they are.
    pub dropped: Option<DropReason>,
    /// Packets so far.
    pub packets: u64,
    /// Bytes so far, of inner Ethernet frames without FCS.
    pub bytes: u64,
}

/// One flow entry, copied out.
#[derive(Clone, Copy, Debug)]
pub struct FlowEntry {
    key: FlowKey,
    action: Action,
    /// The queue pair of the flow that it answers.
    answers: Option<u32>,
    stage: Option<Stage>,
    packets: u64,
    bytes: u64,
}

impl FlowEntry {
    /// In the names of the program that `tables` were built from. The rule is found by asking the program again, so
    /// that list and data plane cannot disagree.
    pub fn name(&self, tables: &Tables) -> FlowRecord {
        FlowRecord {
            answers: self
                .answers
                .map_or_else(String::new, |qp| key::service_text(&FlowKey { l4: qp, ..self.key })),
            verdict: self.verdict().to_owned(),
            stage: self.stage.map_or_else(String::new, |stage| stage.name().to_owned()),
            rule: self.rule(tables),
            packets: self.packets,
            bytes: self.bytes,
            ..describe(&tables.program, &self.key, Some(self.action.dst_mac))
        }
    }

    fn exported(&self) -> Exported {
        let key = &self.key;
        let (ports, icmp, queue_pair) = match key::service(key) {
            Service::Tcp(port) | Service::Udp(port) | Service::Sctp(port) => {
                ((key::src_port(key), port), (0, 0), None)
            }
            Service::Icmp(kind, code) | Service::Icmpv6(kind, code) => ((0, 0), (kind, code), None),
            Service::Roce(qp) => ((0, 0), (0, 0), Some(qp)),
            Service::Opaque(_) => ((0, 0), (0, 0), None),
        };
        Exported {
            identity: FlowIdentity(*key),
            tenant: TenantId(key.tenant),
            ingress: key::ingress(key),
            src: key::src(key),
            dst: key::dst(key),
            protocol: key.protocol,
            ports,
            icmp,
            queue_pair,
            dropped: self.action.refusal(),
            packets: self.packets,
            bytes: self.bytes,
        }
    }

    fn verdict(&self) -> &'static str {
        verdict(self.action.refusal(), self.action.is_reply())
    }

    fn rule(&self, tables: &Tables) -> String {
        let rule = rule(tables, &self.key, self.action.is_reply());
        rule.map_or_else(String::new, |rule| tables.program.origin(rule))
    }
}

/// The word for what was decided.
pub(crate) fn verdict(refused: Option<DropReason>, reply: bool) -> &'static str {
    match refused {
        Some(reason) => reason.name(),
        None if reply => "accept (reply)",
        None => "accept",
    }
}

/// The rule that decides a flow, or for a reply the flow that it answers; `None` where no rule does.
pub(crate) fn rule(tables: &Tables, key: &FlowKey, reply: bool) -> Option<RuleId> {
    let key = if reply { openers(tables, key).next()? } else { *key };
    match decide(tables, &key) {
        Ok(allowed) => allowed.rule,
        Err(refused) if refused.reason == DropReason::PolicyDeny => refused.rule,
        Err(_) => None,
    }
}

/// Whose flow a key is, and between whom, without what is said of it. Of several hops it goes to that of `mac`, which it may
/// have kept from another program, else to the one that is its by hash.
pub(crate) fn describe(program: &Program, key: &FlowKey, mac: Option<Mac>) -> FlowRecord {
    let tenant = program.tenant(TenantId(key.tenant));
    let place = |place| match place {
        Place::Port(port) => program.port_name(port).to_owned(),
        Place::Vtep(vtep) => program.vtep(vtep).map_or("?", |vtep| &vtep.name).to_owned(),
    };
    let from = match key::ingress(key) {
        Ingress::Port(port) => Place::Port(port),
        Ingress::Vtep(vtep) => Place::Vtep(vtep),
    };
    let hops = tenant.map_or(&[][..], |tenant| tenant.locate(key::dst(key)));
    let kept = hops.iter().find(|hop| Some(hop.mac) == mac);
    let to = kept.or_else(|| key::flow(key).choose(hops));
    FlowRecord {
        tenant: tenant.map_or("?", |tenant| &tenant.name).to_owned(),
        from: place(from),
        src: key::src(key),
        dst: key::dst(key),
        service: key::service_text(key),
        answers: String::new(),
        verdict: String::new(),
        stage: String::new(),
        rule: String::new(),
        to: to.map_or_else(|| "-".to_owned(), |hop| place(hop.place)),
        packets: 0,
        bytes: 0,
    }
}

/// Slots looked at in one step, so that a nearly empty table is listed soon and a poll stays short.
const SLOTS_PER_STEP: usize = 512;

impl Edge {
    pub(crate) fn dump_flows(
        &self,
        from: usize,
        count: usize,
        sink: &mut dyn FnMut(Record),
    ) -> Option<usize> {
        let mut next = from + SLOTS_PER_STEP;
        for (index, (slot, entry)) in self.flows.iter(Slot(from as u32), SLOTS_PER_STEP).enumerate() {
            if index == count {
                next = slot.0 as usize;
                break;
            }
            let (key, action) = (*entry.key(), entry.action);
            let answers = if action.is_reply() && key::is_roce(&key) { self.answered_qp(slot) } else { None };
            let (packets, bytes) = (entry.packets, entry.bytes);
            let stage = self.stage(slot, &key, action);
            sink(Record::Flow(FlowEntry { key, action, answers, stage, packets, bytes }));
        }
        (next < self.flows.slots()).then_some(next)
    }

    /// How far the connection of an allowed flow is; `None` where there is none to follow.
    pub(crate) fn stage(&self, slot: Slot, key: &FlowKey, action: Action) -> Option<Stage> {
        match key::service(key) {
            _ if action.refusal().is_some() => None,
            Service::Tcp(_) => {
                let (own, other) = self.tcp_sides(slot);
                Some(tcp::stage(&own, &other))
            }
            Service::Sctp(_) => {
                let (own, other) = self.sctp_sides(slot);
                Some(sctp::stage(&own, &other))
            }
            _ => None,
        }
    }

    pub(crate) fn dump_queue_pairs(
        &self,
        from: usize,
        count: usize,
        sink: &mut dyn FnMut(Record),
    ) -> Option<usize> {
        let mut next = from + SLOTS_PER_STEP;
        for (taken, (index, view)) in self.qps.iter(from, SLOTS_PER_STEP).enumerate() {
            if taken == count {
                next = index;
                break;
            }
            sink(Record::QueuePair(QueuePairEntry::of(&view)));
        }
        (next < self.qps.slots()).then_some(next)
    }
}

/// One pair of queue pairs, copied out.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairEntry {
    tenant: TenantId,
    addresses: [IpAddr; 2],
    state: State,
    service: qp::Service,
    sides: [Side; 2],
}

impl QueuePairEntry {
    fn of(view: &View) -> Self {
        let address = |bytes: [u8; 16]| match view.pair.is_ipv6 {
            true => IpAddr::V6(Ipv6Addr::from(bytes)),
            false => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        };
        Self {
            tenant: TenantId(view.pair.tenant),
            addresses: view.pair.addresses.map(address),
            state: view.pair.state,
            service: view.pair.service,
            sides: view.sides,
        }
    }

    fn name(&self, tables: &Tables) -> QueuePairRecord {
        let tenant = tables.program.tenant(self.tenant);
        let side = |side: usize| {
            let Side { qp, request_psn, response_psn, counts, naks } = self.sides[side];
            let [psn_sequence, invalid_request, remote_access, remote_operational, invalid_rd] = naks.by_code;
            QueuePairSide {
                address: self.addresses[side],
                qp,
                request_psn,
                response_psn,
                packets: counts.packets,
                bytes: counts.bytes,
                gaps: counts.gaps,
                retries: counts.retries,
                out_of_order: counts.out_of_order,
                cnps: counts.cnps,
                rnr_naks: naks.rnr,
                naks: program::NakCounts {
                    psn_sequence,
                    invalid_request,
                    remote_access,
                    remote_operational,
                    invalid_rd,
                    reserved: naks.reserved,
                },
            }
        };
        QueuePairRecord {
            tenant: tenant.map_or("?", |tenant| &tenant.name).to_owned(),
            service: match self.service {
                qp::Service::Rc => "rc",
                qp::Service::Uc => "uc",
                qp::Service::Xrc => "xrc",
                qp::Service::Ud => "ud",
            }
            .to_owned(),
            state: self.state.name().to_owned(),
            opener: side(0),
            peer: side(1),
        }
    }
}
