//! The last pass: each packet meets its flow entry, or the program when it has none, and goes its way.

use engine::{Gauge, Io};
use packet::{Backend, Buf, Nanos};
use program::DropReason;
use tables::flow::{FlowHash, FlowKey, Slot};
use wire::L4;

use crate::action::{Action, Target};
use crate::decide::{self, decide};
use crate::lanes::Fate;
use crate::{Edge, Tables};

const TCP_FIN: u8 = 0x01;
const TCP_SYN: u8 = 0x02;
const TCP_RST: u8 = 0x04;

/// How long a flow may be idle before its entry goes. A flow that is still allowed is simply decided anew.
mod idle {
    use packet::Nanos;

    /// An open TCP connection (RFC 5382, REQ-5).
    pub(super) const TCP_OPEN: Nanos = Nanos::from_secs(7_440);
    /// TCP that is opening, or closing (RFC 5382, REQ-5 allows 4 minutes).
    pub(super) const TCP_TRANSIENT: Nanos = Nanos::from_secs(60);
    /// UDP, RoCEv2 and the rest (RFC 4787, REQ-5).
    pub(super) const DATAGRAMS: Nanos = Nanos::from_secs(300);
    /// ICMP echo (RFC 5508, REQ-1).
    pub(super) const ICMP: Nanos = Nanos::from_secs(60);
    /// A refusal that is remembered.
    pub(super) const REFUSED: Nanos = Nanos::from_secs(5);
}

impl Edge {
    /// Ends one lane: the packet is sent on, answered, or dropped and counted.
    #[inline]
    pub(crate) fn judge<B: Backend>(
        &mut self, tables: &Tables, lane: usize, buf: B::Buf, io: &mut Io<B>, now: Nanos,
    ) {
        match self.lanes.fate[lane] {
            Fate::LookUp => {
                let action = match self.lanes.candidate[lane] {
                    Some(slot) if self.flows.confirm(slot, &self.lanes.key[lane]) => {
                        self.hit(tables, slot, lane, buf.bytes(), io, now)
                    }
                    _ => match self.miss(tables, lane, buf.bytes(), io, now) {
                        Some(action) => action,
                        None => return self.for_gateway(tables, lane, buf, io),
                    },
                };
                self.forward(tables, lane, buf, action, io, now);
            }
            Fate::Special => self.special(tables, lane, buf, io, now),
            Fate::Underlay => self.underlay(tables, lane, buf, io, now),
            Fate::Drop(reason) => io.ledger.dropped(self.lanes.account[lane], reason),
        }
    }

    /// A packet of a known flow.
    #[inline]
    fn hit<B: Backend>(
        &mut self, tables: &Tables, slot: Slot, lane: usize, frame: &[u8], io: &mut Io<B>, now: Nanos,
    ) -> Action {
        io.ledger.count(Gauge::Hits, 1);
        let entry = self.flows.entry(slot);
        let mut action = entry.action;
        if action.generation != tables.generation() || entry.is_idle(now) {
            action = self.decide_again(tables, slot, lane, now);
        }
        self.flows.touch(slot, now, frame.len());
        let parsed = &self.lanes.parsed[lane];
        if parsed.l4 == L4::Tcp {
            let flags = tcp_flags(frame, parsed.l4_offset);
            if flags & (TCP_FIN | TCP_RST | TCP_SYN) != 0 || self.flows.entry(slot).timeout() == idle::TCP_TRANSIENT {
                self.follow_tcp(slot, flags);
            }
        }
        action
    }

    /// A packet without an entry: the program decides, the table remembers. `None` when it is for the gateway that
    /// floodway plays.
    #[cold]
    fn miss<B: Backend>(
        &mut self, tables: &Tables, lane: usize, frame: &[u8], io: &mut Io<B>, now: Nanos,
    ) -> Option<Action> {
        let (key, hash) = (self.lanes.key[lane], self.lanes.hash[lane]);
        if let Some(slot) = self.flows.find(hash, &key) {
            // An earlier packet of this burst made it, or its tag hid behind another's.
            return Some(self.hit(tables, slot, lane, frame, io, now));
        }
        io.ledger.count(Gauge::Misses, 1);
        if decide::is_for_gateway(tables, &key) {
            return None;
        }
        let action = self.settle(tables, &key, now);
        if !self.remember(tables, hash, &key, action, frame, lane, now) {
            io.ledger.count(Gauge::Uncached, 1);
        }
        Some(action)
    }

    /// Puts a decision into the table, if it is worth it and there is room; false when there was none.
    #[allow(clippy::too_many_arguments)]
    fn remember(
        &mut self, tables: &Tables, hash: FlowHash, key: &FlowKey, action: Action, frame: &[u8], lane: usize,
        now: Nanos,
    ) -> bool {
        let tenant = usize::from(key.tenant);
        let timeout = match action.target() {
            // Refusals may use half of a tenant's share, so that a scan does not push its own connections out.
            Target::Drop(_) if !action.is_policy_drop() || self.flows.in_use(tenant) * 2 >= self.flows.quota(tenant) => {
                return true;
            }
            Target::Drop(_) => idle::REFUSED,
            _ => first_timeout(self.lanes.parsed[lane].l4, frame, self.lanes.parsed[lane].l4_offset),
        };
        if !matches!(action.target(), Target::Drop(_)) {
            self.forget_refused_reply(tables, key);
        }
        match self.flows.insert(hash, *key, action, tenant, now, timeout) {
            Ok(slot) => self.flows.touch(slot, now, frame.len()),
            Err(_full) => return false,
        }
        true
    }

    /// A flow that was refused while nobody had opened it the other way may now be an answer.
    fn forget_refused_reply(&mut self, tables: &Tables, key: &FlowKey) {
        let Some(reply) = decide::opener(tables, key) else { return };
        if let Some(slot) = self.flows.find(self.flows.hash(&reply), &reply)
            && self.flows.entry(slot).action.is_policy_drop()
        {
            self.flows.remove(slot);
        }
    }

    /// Decides a known flow again: the program has changed, or the flow has been idle for too long.
    #[cold]
    fn decide_again(&mut self, tables: &Tables, slot: Slot, lane: usize, now: Nanos) -> Action {
        let key = self.lanes.key[lane];
        let entry = self.flows.entry(slot);
        let (old, idle) = (entry.action, entry.is_idle(now));
        let mut action = self.settle(tables, &key, now);
        let refused = action.is_policy_drop();
        if refused && old.is_reply() && !idle && decide::opener(tables, &key).is_some_and(|opener| decide(tables, &opener).is_ok()) {
            // Its opener's entry may be gone or elsewhere; that the opener would still be allowed is what counts.
            action = decide::deliver_reply(tables, &key).map_or(action, |reply| reply.action(tables, &key).as_reply());
        }
        self.flows.entry_mut(slot).action = action;
        action
    }

    /// The program's word on a flow, or that of the flow which it answers.
    fn settle(&self, tables: &Tables, key: &FlowKey, now: Nanos) -> Action {
        match decide(tables, key) {
            Ok(allowed) => allowed.action(tables, key),
            Err(refused) => {
                let by_policy = matches!(refused.reason, DropReason::PolicyDeny | DropReason::PolicyDefault);
                let reply = if by_policy && self.answers(tables, key, now) { decide::deliver_reply(tables, key).ok() } else { None };
                match reply {
                    Some(reply) => reply.action(tables, key).as_reply(),
                    None => Action::drop(tables.generation(), refused.reason),
                }
            }
        }
    }

    /// True when the flow is the other direction of one that was opened and is still allowed.
    fn answers(&self, tables: &Tables, key: &FlowKey, now: Nanos) -> bool {
        let Some(opener) = decide::opener(tables, key) else { return false };
        self.is_open(tables, &opener, now)
    }

    /// True when that flow has been opened by its own side and the program still allows it.
    pub(crate) fn is_open(&self, tables: &Tables, key: &FlowKey, now: Nanos) -> bool {
        let Some(slot) = self.flows.find(self.flows.hash(key), key) else { return false };
        let entry = self.flows.entry(slot);
        if entry.is_idle(now) || entry.action.is_reply() {
            return false;
        }
        if entry.action.generation == tables.generation() {
            !matches!(entry.action.target(), Target::Drop(_))
        } else {
            decide(tables, key).is_ok()
        }
    }

    /// How long a TCP flow may be idle depends on whether it is open.
    #[cold]
    fn follow_tcp(&mut self, slot: Slot, flags: u8) {
        let ends = flags & (TCP_FIN | TCP_RST) != 0;
        let opens = flags & TCP_SYN != 0;
        let timeout = if ends || opens { idle::TCP_TRANSIENT } else { idle::TCP_OPEN };
        self.flows.set_timeout(slot, timeout);
    }
}

fn first_timeout(l4: L4, frame: &[u8], l4_offset: u16) -> Nanos {
    match l4 {
        L4::Tcp if tcp_flags(frame, l4_offset) & (TCP_SYN | TCP_FIN | TCP_RST) != 0 => idle::TCP_TRANSIENT,
        L4::Tcp => idle::TCP_OPEN,
        L4::Icmp | L4::Icmpv6 => idle::ICMP,
        _ => idle::DATAGRAMS,
    }
}

/// The parser has seen the whole TCP header.
fn tcp_flags(frame: &[u8], l4_offset: u16) -> u8 {
    frame.get(usize::from(l4_offset) + 13).copied().unwrap_or(0)
}
