//! The last pass: each packet meets its flow entry, or the program when it has none, and goes its way.

use arrayvec::ArrayVec;
use engine::{Gauge, Io, Ledger};
use packet::{Backend, Buf, Nanos};
use program::{DropReason, TenantId, limit};
use tables::flow::{FlowHash, FlowKey, Slot, Timeout};
use wire::L4;

use crate::action::{Action, Target};
use crate::decide::{self, decide};
use crate::lane::{Fate, Lane};
use crate::state::{first_timeout, idle, opens_connection};
use crate::{Edge, Tables};

impl Edge {
    /// Ends one lane: the packet is sent on, answered, or dropped and counted. Always in line: the compiler would not, with
    /// callers beside the hot one.
    #[inline(always)]
    pub(crate) fn judge<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &mut Lane,
        buf: B::Buf,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        match lane.fate {
            Fate::LookUp => {
                let known = lane.candidate.filter(|slot| self.flows.confirm(*slot, &lane.key));
                let action = match known
                    .and_then(|slot| self.hit(tables, slot, lane, buf.bytes(), &mut io.ledger, now))
                {
                    Some(action) => action,
                    None => match self.miss(tables, lane, buf.bytes(), io, now) {
                        Some(action) => action,
                        None => return self.for_gateway(tables, lane, buf, io),
                    },
                };
                self.forward(tables, lane, buf, action, io, now);
            }
            Fate::Fragment => self.fragment(tables, lane, buf, io, now),
            Fate::Special => self.special(tables, lane, buf, io, now),
            Fate::Underlay => self.underlay(tables, lane, buf, io, now),
            Fate::Drop(reason) => io.ledger.dropped(lane.account, reason),
        }
    }

    /// A packet of a known flow; `None` when the flow has been idle for too long, or when a new program says the
    /// opposite of what it remembers, which makes it a miss.
    #[inline(always)]
    fn hit(
        &mut self,
        tables: &Tables,
        slot: Slot,
        lane: &Lane,
        frame: &[u8],
        ledger: &mut Ledger,
        now: Nanos,
    ) -> Option<Action> {
        let entry = self.flows.entry(slot);
        if entry.is_expired(now) {
            return None;
        }
        if lane.parsed.l4 == L4::Roce {
            let action = self.follow_roce(tables, slot, lane, frame, ledger, now);
            self.hits += u64::from(action.is_some());
            return action;
        }
        let mut action = entry.action;
        if action.generation != tables.generation() {
            action = self.decide_again(tables, slot, now)?;
        }
        self.hits += 1;
        Some(self.tracked(tables, action, slot, lane, frame, now))
    }

    /// As [`Edge::hit`], for those who ask seldom: the hot path has its own copy in line.
    #[inline(never)]
    pub(crate) fn hit_after_all(
        &mut self,
        tables: &Tables,
        slot: Slot,
        lane: &Lane,
        frame: &[u8],
        ledger: &mut Ledger,
        now: Nanos,
    ) -> Option<Action> {
        self.hit(tables, slot, lane, frame, ledger, now)
    }

    /// The action, with the packet counted on its flow, or the drop of a packet that does not fit the flow's state: that one
    /// keeps nothing alive.
    #[inline(always)]
    fn tracked(
        &mut self,
        tables: &Tables,
        action: Action,
        slot: Slot,
        lane: &Lane,
        frame: &[u8],
        now: Nanos,
    ) -> Action {
        if action.refusal().is_none()
            && let Err(reason) = self.track(tables, slot, lane, frame)
        {
            return Action::drop(action.generation, reason);
        }
        self.flows.count(slot, now, frame.len() as u64);
        action
    }

    /// A packet without an entry: the program decides, the table remembers. `None` when it is for the gateway that
    /// floodway plays.
    #[cold]
    fn miss<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &Lane,
        frame: &[u8],
        io: &mut Io<B>,
        now: Nanos,
    ) -> Option<Action> {
        let (key, hash) = (lane.key, lane.hash);
        if let Some(slot) = self.flows.find(hash, &key)
            && let Some(action) = self.hit_after_all(tables, slot, lane, frame, &mut io.ledger, now)
        {
            // An earlier packet of this burst made the entry, or its tag hid behind another's.
            return Some(action);
        }
        io.ledger.count(Gauge::Misses, 1);
        if decide::is_for_gateway(tables, &key) {
            return None;
        }
        let parsed = &lane.parsed;
        if parsed.l4 == L4::Roce {
            return Some(self.miss_roce(tables, lane, frame, &mut io.ledger, now));
        }
        // Asked for now, looked at when the program has decided: in a large table each is a wait for memory.
        let reverses = self.reverses(tables, &key);
        self.flows.prefetch_vacancy(hash);
        let mut action = self.settle(tables, &key, now);
        let refused = action.refusal().is_some();
        let has_reverse = reverses.iter().any(|(hash, key)| self.flows.find(*hash, key).is_some());
        if !refused && has_reverse && self.answered(tables, &key, now).is_some() {
            // An answer is one even if rules allow it as well: it does not open what it answers.
            action = action.as_reply();
        }
        if let Some(log) = self.log.as_mut().filter(|_| tables.has_logs) {
            log.note(tables, &key, action, &mut io.ledger, now);
        }
        let parsed = &lane.parsed;
        // A TCP connection begins with a SYN, unless the tenant's are picked up in their middle; what comes from the other
        // side of one that is known begins nothing.
        let may_open =
            || parsed.l4 != L4::Tcp || has_reverse || opens_connection(tables, &key, frame, parsed);
        if !refused && !may_open() {
            return Some(Action::drop(action.generation, DropReason::NoConnection));
        }
        let timeout = first_timeout(parsed.l4);
        if !refused && has_reverse {
            self.forget_refused_replies(&reverses);
        }
        match self.remember(tables, hash, &key, action, timeout, now) {
            Remembered::At(slot) => {
                if has_reverse {
                    self.introduce(&reverses, slot);
                }
                action = self.tracked(tables, action, slot, lane, frame, now);
            }
            Remembered::NotWorthIt => {}
            Remembered::NoRoom => io.ledger.count(Gauge::Uncached, 1),
        }
        Some(action)
    }

    /// The keys of a flow's other direction, their buckets asked for.
    fn reverses(&self, tables: &Tables, key: &FlowKey) -> Reverses {
        let hashed = |key: FlowKey| {
            let hash = self.flows.hash(&key);
            self.flows.prefetch_bucket(hash);
            (hash, key)
        };
        decide::reverses(tables, key).map(hashed).take(limit::HOPS).collect()
    }

    /// Puts a decision into the table, if it is worth it and there is room.
    pub(crate) fn remember(
        &mut self,
        tables: &Tables,
        hash: FlowHash,
        key: &FlowKey,
        action: Action,
        timeout: Timeout,
        now: Nanos,
    ) -> Remembered {
        let timeout = match action.target() {
            Target::Drop(_) if !action.is_policy_drop() || !self.may_remember_refusal(tables, key) => {
                return Remembered::NotWorthIt;
            }
            Target::Drop(_) => idle::REFUSED,
            _ => timeout,
        };
        match self.flows.insert(hash, key, action, key.tenant, now, timeout) {
            Ok(slot) => Remembered::At(slot),
            Err(_) => Remembered::NoRoom,
        }
    }

    /// Refusals may use half of a tenant's share, so that a scan does not push the tenant's own connections out.
    fn may_remember_refusal(&self, tables: &Tables, key: &FlowKey) -> bool {
        let quota = tables.program.tenant(TenantId(key.tenant)).map_or(0, |tenant| tenant.flow_quota);
        self.flows.in_use(key.tenant) < self.share(quota) as usize / 2
    }

    /// A flow that was refused while nobody had opened it the other way may now be an answer.
    fn forget_refused_replies(&mut self, replies: &Reverses) {
        for (hash, key) in replies {
            if let Some(slot) = self.flows.find(*hash, key)
                && self.flows.entry(slot).action.is_policy_drop()
            {
                self.flows.remove(slot);
            }
        }
    }

    /// Decides a known flow again, since the program has changed. `None`, and the entry gone, when it was allowed and
    /// is not any more, or the other way round: what a miss does about timeouts, quota and replies is to be done then.
    #[cold]
    pub(crate) fn decide_again(&mut self, tables: &Tables, slot: Slot, now: Nanos) -> Option<Action> {
        let (key, old) = (*self.flows.entry(slot).key(), self.flows.entry(slot).action);
        let mut action = self.settle(tables, &key, now);
        if action.is_policy_drop() && old.is_reply() {
            // Its opener's entry may be gone: that the opener would still be allowed is what counts.
            let opener = decide::openers(tables, &key).any(|opener| decide(tables, &opener).is_ok());
            let reply = if opener { decide::deliver_reply(tables, &key).ok() } else { None };
            action = reply.map_or(action, |reply| reply.action(tables, &key));
        }
        let same = match action.target() {
            Target::Drop(_) => old.is_policy_drop() && action.is_policy_drop(),
            _ => !old.is_policy_drop(),
        };
        if !same {
            self.flows.remove(slot);
            return None;
        }
        // Once a reply, always a reply: else it would keep a flow open that the program has closed.
        let action = if old.is_reply() { action.as_reply() } else { action };
        let action = decide::keep_hop(tables, &key, action, old);
        self.flows.entry_mut(slot).action = action;
        Some(action)
    }

    /// The program's word on a flow, or that of the flow which it answers.
    pub(crate) fn settle(&self, tables: &Tables, key: &FlowKey, now: Nanos) -> Action {
        let refused = match decide(tables, key) {
            Ok(allowed) => return allowed.action(tables, key),
            Err(refused) => refused,
        };
        let by_policy = matches!(refused.reason, DropReason::PolicyDeny | DropReason::PolicyDefault);
        let opener = if by_policy { self.answered(tables, key, now) } else { None };
        let reply = match opener {
            Some(opener) if decide(tables, &opener).is_ok() => decide::deliver_reply(tables, key).ok(),
            _ => None,
        };
        match reply {
            Some(reply) => reply.action(tables, key).as_reply(),
            None => Action::drop(tables.generation(), refused.reason),
        }
    }

    /// The flow that this one is the other direction of, when that was opened first.
    fn answered(&self, tables: &Tables, key: &FlowKey, now: Nanos) -> Option<FlowKey> {
        decide::openers(tables, key).find(|opener| self.was_opened(opener, now))
    }

    /// True when that flow has been opened by its own side and the program still allows it.
    pub(crate) fn is_open(&self, tables: &Tables, key: &FlowKey, now: Nanos) -> bool {
        self.was_opened(key, now) && decide(tables, key).is_ok()
    }

    /// True when that flow has been opened by its own side, whatever the program says now.
    fn was_opened(&self, key: &FlowKey, now: Nanos) -> bool {
        let Some(slot) = self.flows.find(self.flows.hash(key), key) else { return false };
        let entry = self.flows.entry(slot);
        let refused = entry.action.refusal().is_some();
        !refused && !entry.action.is_reply() && !entry.is_expired(now)
    }
}

/// The other direction of a flow: most often one key, else one for each hop that it may come from.
pub(crate) type Reverses = ArrayVec<(FlowHash, FlowKey), { limit::HOPS }>;

/// What became of a decision.
pub(crate) enum Remembered {
    /// The table has it.
    At(Slot),
    /// The next packet is decided anew, at no great cost.
    NotWorthIt,
    /// The table, or the tenant's share of it, is full.
    NoRoom,
}
