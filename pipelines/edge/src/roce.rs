//! RoCEv2 by its queue pairs: which pair a flow belongs to, what passes by its pair alone, and the connection manager's
//! messages, from which pairs are learned.
//!
//! Rules are asked about the side that opened a pair, in its direction. What answers it passes without a rule of its
//! own: all that the other side sends if a connection was agreed on, responses and notifications only if the pair was
//! learned from traffic, since then nobody has agreed to anything.

use engine::{Gauge, Ledger};
use packet::Nanos;
use program::{DropReason, Learn, Order, Roce, TenantId, UnknownQp};
use tables::flow::{FlowKey, Slot};
use tables::qp::{Found, Heard, Hosts, Link, Packet, Refusal};
use wire::icrc::{Check, verify};
use wire::roce::{BTH_LEN, cm};
use wire::{Fragment, L4, Parsed, udp};

use crate::action::{Action, Target};
use crate::decide::{self, decide};
use crate::judge::Remembered;
use crate::lane::Lane;
use crate::state::{State, idle};
use crate::{Edge, Tables, key};

/// What a flow remembers of its queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Membership {
    link: Link,
    /// Only responses and notifications pass.
    answers_only: bool,
    /// Packets out of order are dropped.
    strict: bool,
}

const ANSWERS_ONLY: u32 = 1;
const STRICT: u32 = 2;

impl From<State> for Membership {
    #[inline(always)]
    fn from(State { words: [end, serial, flags], .. }: State) -> Self {
        let link = Link::from_words([end, serial]);
        Self { link, answers_only: flags & ANSWERS_ONLY != 0, strict: flags & STRICT != 0 }
    }
}

impl From<Membership> for State {
    fn from(member: Membership) -> Self {
        let [end, serial] = member.link.words();
        let answers_only = if member.answers_only { ANSWERS_ONLY } else { 0 };
        let strict = if member.strict { STRICT } else { 0 };
        Self::alone([end, serial, answers_only | strict])
    }
}

/// True for RoCEv2 to the queue pairs of management, which belong to no pair.
#[inline(always)]
fn is_management(parsed: &Parsed) -> bool {
    parsed.l4 == L4::Roce && parsed.dest_qp <= cm::QP
}

impl Edge {
    /// A packet of a known flow.
    #[inline(always)]
    pub(crate) fn follow_roce(
        &mut self,
        tables: &Tables,
        slot: Slot,
        lane: &Lane,
        frame: &[u8],
        ledger: &mut Ledger,
        now: Nanos,
    ) -> Option<Action> {
        let action = self.flows.entry(slot).action;
        let member = Membership::from(self.flows.entry(slot).state);
        let packet = read(frame, &lane.parsed);
        let refusal = if action.generation == tables.generation() {
            match self.qps.record(member.link, &packet, member.answers_only, member.strict, now) {
                Ok(_) => {
                    self.flows.count(slot, now, frame.len() as u64);
                    return Some(action);
                }
                Err(refusal) => Some(refusal),
            }
        } else {
            None
        };
        self.follow_roce_on(tables, slot, lane, frame, refusal, ledger, now)
    }

    /// What is no data of a flow whose pair is known and lives: why its pair refused it, or `None` when the program has
    /// changed.
    #[cold]
    #[allow(clippy::too_many_arguments)] // long: one call site, and every argument is another fact of the packet
    fn follow_roce_on(
        &mut self,
        tables: &Tables,
        slot: Slot,
        lane: &Lane,
        frame: &[u8],
        refusal: Option<Refusal>,
        ledger: &mut Ledger,
        now: Nanos,
    ) -> Option<Action> {
        match refusal {
            Some(Refusal::OutOfOrder) => {
                return Some(Action::drop(tables.generation(), DropReason::RoceOrder));
            }
            Some(Refusal::NotAnAnswer) => {
                return Some(Action::drop(tables.generation(), DropReason::PolicyDefault));
            }
            _ => self.flows.count(slot, now, frame.len() as u64),
        }
        let mut action = self.flows.entry(slot).action;
        if is_management(&lane.parsed) {
            if refusal.is_none() {
                action = self.decide_again(tables, slot, now)?;
            }
            return Some(self.manage_roce(tables, lane, frame, action, ledger, now));
        }
        match refusal {
            None => Some(self.decide_roce_again(tables, slot, lane, frame, ledger, now)),
            // What belonged to no pair may be an answer by now.
            Some(Refusal::Stale) if Membership::from(self.flows.entry(slot).state).link.is_none() => {
                let packet = read(frame, &lane.parsed);
                match self.may_be_answer(&lane.key, &packet) {
                    true => Some(self.decide_roce_again(tables, slot, lane, frame, ledger, now)),
                    false => Some(action),
                }
            }
            // Its pair has ended: whatever has the queue pair now is another flow.
            Some(_) => {
                self.flows.remove(slot);
                None
            }
        }
    }

    /// Decides a flow of data again where it is: a flow that goes on keeps its counts.
    fn decide_roce_again(
        &mut self,
        tables: &Tables,
        slot: Slot,
        lane: &Lane,
        frame: &[u8],
        ledger: &mut Ledger,
        now: Nanos,
    ) -> Action {
        let old = self.flows.entry(slot).action;
        let (action, member) = self.settle_roce(tables, lane, frame, ledger, now);
        let action = decide::keep_hop(tables, &lane.key, action, old);
        let timeout = match action.target() {
            Target::Drop(_) if !action.is_policy_drop() => {
                self.flows.remove(slot);
                return action;
            }
            Target::Drop(_) => idle::REFUSED,
            _ => idle::DATAGRAMS,
        };
        let entry = self.flows.entry_mut(slot);
        (entry.action, entry.state) = (action, member.into());
        self.flows.set_timeout(slot, timeout);
        action
    }

    /// True when deciding a flow without a pair anew may find one that it answers.
    fn may_be_answer(&self, key: &FlowKey, packet: &Packet) -> bool {
        let hosts = hosts(key);
        !packet.is_request() && (self.qps.find(&hosts, key.l4).is_some() || self.qps.is_asked(&hosts, packet))
    }

    /// A packet without an entry.
    pub(crate) fn miss_roce(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        frame: &[u8],
        ledger: &mut Ledger,
        now: Nanos,
    ) -> Action {
        let (key, hash) = (lane.key, lane.hash);
        let manages = is_management(&lane.parsed);
        let (action, member) = if manages {
            (self.settle(tables, &key, now), Membership::default())
        } else {
            self.settle_roce(tables, lane, frame, ledger, now)
        };
        if let Some(log) = self.log.as_mut().filter(|_| tables.has_logs) {
            log.note(tables, &key, action, ledger, now);
        }
        match self.remember(tables, hash, &key, action, idle::DATAGRAMS, now) {
            Remembered::At(slot) => {
                self.flows.entry_mut(slot).state = member.into();
                self.flows.count(slot, now, frame.len() as u64);
            }
            Remembered::NotWorthIt => {}
            Remembered::NoRoom => ledger.count(Gauge::Uncached, 1),
        }
        if manages { self.manage_roce(tables, lane, frame, action, ledger, now) } else { action }
    }

    /// Decides a flow of RoCEv2 data by rules and by its pair.
    fn settle_roce(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        frame: &[u8],
        ledger: &mut Ledger,
        now: Nanos,
    ) -> (Action, Membership) {
        let (key, parsed) = (lane.key, lane.parsed);
        let drop = |reason| (Action::drop(tables.generation(), reason), Membership::default());
        let setting =
            tables.program.tenant(TenantId(key.tenant)).map_or(Roce::default(), |tenant| tenant.roce);
        let packet = read(frame, &parsed);
        let whole = parsed.fragment == Fragment::None;
        let sound = || verify(frame, &parsed) == Check::Right;
        let hosts = hosts(&key);
        let mut found = if whole { self.qps.find(&hosts, key.l4) } else { None };
        if found.is_none() && whole && packet.is_response() && setting.learn == Learn::Traffic {
            let link = if self.qps.is_asked(&hosts, &packet) && sound() {
                self.qps.answer(&hosts, key.l4, &packet)
            } else {
                None
            };
            found = link.and_then(|link| self.qps.follow(link));
        }
        let rules = decide(tables, &key);
        let member = |found: Found, answers_only| Membership {
            link: found.link,
            answers_only,
            strict: setting.order == Order::Drop,
        };
        let settled = match (rules, found) {
            (Ok(allowed), Some(found)) => {
                self.qps.establish(found.link);
                (allowed.action(tables, &key), member(found, false))
            }
            (Ok(allowed), None) => {
                let opens = whole && packet.is_request() && setting.learn == Learn::Traffic;
                let link =
                    if opens && sound() { self.open_pair(&hosts, &key, &packet, ledger, now) } else { None };
                match link.and_then(|link| self.qps.follow(link)) {
                    Some(found) => (allowed.action(tables, &key), member(found, false)),
                    None if setting.unknown_qp == UnknownQp::Deny => drop(DropReason::UnknownQueuePair),
                    None => (allowed.action(tables, &key), Membership::default()),
                }
            }
            (Err(refused), Some(found)) if is_by_policy(refused.reason) => {
                let answers_only = found.state.is_learned();
                let passes = !found.is_opener && (!answers_only || packet.is_answer());
                let opened = found.opened_qp.filter(|_| passes);
                let allowed = opened.is_some_and(|qp| may_open(tables, &key, qp));
                match decide::deliver_reply(tables, &key) {
                    Ok(reply) if allowed => {
                        (reply.action(tables, &key).as_reply(), member(found, answers_only))
                    }
                    _ => drop(refused.reason),
                }
            }
            (Err(refused), _) => drop(refused.reason),
        };
        self.first_of_pair(tables, settled, &packet, now)
    }

    /// The packet that made the decision is the first that its pair sees of the flow.
    fn first_of_pair(
        &mut self,
        tables: &Tables,
        (action, member): (Action, Membership),
        packet: &Packet,
        now: Nanos,
    ) -> (Action, Membership) {
        match self.qps.record(member.link, packet, member.answers_only, member.strict, now) {
            Err(Refusal::OutOfOrder) => {
                (Action::drop(tables.generation(), DropReason::RoceOrder), Membership::default())
            }
            _ => (action, member),
        }
    }

    fn open_pair(
        &mut self,
        hosts: &Hosts,
        key: &FlowKey,
        packet: &Packet,
        ledger: &mut Ledger,
        now: Nanos,
    ) -> Option<Link> {
        let opened = self.qps.open(hosts, key.l4, packet, now);
        if opened.is_err() {
            ledger.count(Gauge::Untracked, 1);
        }
        opened.ok()
    }

    /// A packet to a queue pair of management, which rules have judged: the connection manager's answers pass by the
    /// pair that they are about, and what passes is heard.
    #[cold]
    fn manage_roce(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        frame: &[u8],
        action: Action,
        ledger: &mut Ledger,
        now: Nanos,
    ) -> Action {
        let (key, parsed) = (lane.key, lane.parsed);
        let Some(message) = cm::message(frame, &parsed).filter(|_| verify(frame, &parsed) == Check::Right)
        else {
            return action;
        };
        let hosts = hosts(&key);
        let mut action = action;
        if action.is_policy_drop() && self.qps.is_answer(&hosts, &message) {
            let allowed = may_open(tables, &key, cm::QP);
            let reply = decide::deliver_reply(tables, &key).ok().filter(|_| allowed);
            action = reply.map_or(action, |reply| reply.action(tables, &key).as_reply());
        }
        if action.refusal().is_some() {
            return action;
        }
        match self.qps.hear(&hosts, &message, now) {
            Heard::Connected { opener, responder } => {
                self.forget_flow(&FlowKey { l4: opener, ..key });
                for back in reversed(tables, &key) {
                    self.forget_flow(&FlowKey { l4: responder, ..back });
                }
            }
            Heard::Full(_) => ledger.count(Gauge::Untracked, 1),
            Heard::Requested | Heard::Released | Heard::Known | Heard::Unrelated => {}
        }
        action
    }

    /// A flow that was decided before its pair was known is decided anew.
    fn forget_flow(&mut self, key: &FlowKey) {
        if let Some(slot) = self.flows.find(self.flows.hash(key), key) {
            self.flows.remove(slot);
        }
    }

    /// The queue pair that the opener of a reply's pair sends to.
    pub(crate) fn answered_qp(&self, slot: Slot) -> Option<u32> {
        let found = self.qps.follow(Membership::from(self.flows.entry(slot).state).link)?;
        found.opened_qp.filter(|_| !found.is_opener)
    }
}

fn is_by_policy(reason: DropReason) -> bool {
    matches!(reason, DropReason::PolicyDeny | DropReason::PolicyDefault)
}

/// What of a packet its pair looks at; the parser has seen the whole BTH.
#[inline(always)]
fn read(frame: &[u8], parsed: &Parsed) -> Packet {
    let at = usize::from(parsed.l4_offset) + udp::HEADER_LEN;
    let bth = frame.get(at..at + BTH_LEN + 1).and_then(|bytes| bytes.first_chunk::<{ BTH_LEN + 1 }>());
    let Some(bth) = bth else {
        return Packet { opcode: 0xff, psn: 0, syndrome: 0, has_becn: false, bytes: 0 };
    };
    let psn = u32::from_be_bytes([0, bth[9], bth[10], bth[11]]);
    let (has_becn, bytes) = (bth[4] & 0x40 != 0, frame.len() as u32);
    Packet { opcode: bth[0], psn, syndrome: bth[BTH_LEN], has_becn, bytes }
}

fn hosts(key: &FlowKey) -> Hosts {
    Hosts { tenant: key.tenant, is_ipv6: key::src(key).is_ipv6(), src: key.src, dst: key.dst }
}

/// The keys of packets in the other direction, without their queue pair: one for each hop that they may come from.
fn reversed<'t>(tables: &'t Tables, key: &FlowKey) -> impl Iterator<Item = FlowKey> + use<'t> {
    decide::place_sender(tables, &FlowKey { src: key.dst, dst: key.src, ..*key })
}

/// True when rules allow the flow that a packet answers: what its receiver sends to that queue pair.
fn may_open(tables: &Tables, key: &FlowKey, qp: u32) -> bool {
    reversed(tables, key).any(|opener| decide(tables, &FlowKey { l4: qp, ..opener }).is_ok())
}
