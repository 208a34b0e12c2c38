//! Flows that a rule asks to be logged: a worker writes no text, it puts what a line is made of into a ring.

use engine::{Account, Ledger, Logged};
use packet::Nanos;
use program::{Answers, DropReason, FlowRecord, Generation, Program, RuleId, TenantId, limit};
use quiescent::ring::{Consumer, Producer, RingBuffer};
use tables::bucket::RateLimit;
use tables::flow::FlowKey;

use crate::Tables;
use crate::action::{Action, Target};
use crate::{key, record};

/// Lines a second that one tenant may cause in one worker.
pub const LINES_PER_SECOND: u32 = 100;
/// And how many at once.
pub const LINES_AT_ONCE: u32 = 100;

/// The first packet of a flow that a rule with `log` decides.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord {
    /// The program that decided: [`Self::line`] needs it.
    pub generation: Generation,
    rule: RuleId,
    key: FlowKey,
    refused: Option<DropReason>,
}

const _: () = assert!(size_of::<LogRecord>() == 64, "one cache line");

impl LogRecord {
    /// In the names of the program of its generation, with counts of zero.
    pub fn line(&self, program: &Program) -> FlowRecord {
        let verdict = self.refused.map_or("accept", DropReason::name);
        FlowRecord {
            verdict: verdict.into(),
            rule: program.origin(self.rule),
            ..record::describe(program, &self.key, None)
        }
    }
}

/// The worker's end of the ring, and what each tenant may still put into it.
pub struct Log {
    ring: Producer<LogRecord>,
    limits: Vec<RateLimit>,
}

impl Log {
    /// Both ends; `depth` records wait for whoever writes them down.
    pub fn new(depth: usize) -> (Self, Consumer<LogRecord>) {
        let (ring, records) = RingBuffer::new(depth);
        let limits = vec![RateLimit::new(LINES_PER_SECOND, LINES_AT_ONCE); limit::TENANTS];
        (Self { ring, limits }, records)
    }

    /// Puts down a flow that has just been decided, if a rule asks for it. Answers are not: no rule decides them.
    #[cold]
    pub(crate) fn note(
        &mut self,
        tables: &Tables,
        key: &FlowKey,
        action: Action,
        ledger: &mut Ledger,
        now: Nanos,
    ) {
        if action.is_reply() {
            return;
        }
        let Some(rule) = tables.logged(&key::flow(key)) else { return };
        let Some(limit) = self.limits.get_mut(usize::from(key.tenant)) else { return };
        let refused = match action.target() {
            Target::Drop(reason) => Some(reason),
            Target::Port(_) | Target::Tunnel(_) => None,
        };
        let record = LogRecord { generation: tables.generation(), rule, key: *key, refused };
        let what = match limit.allow(now) {
            false => Logged::Suppressed,
            true if self.ring.push(record).is_err() => Logged::Lost,
            true => Logged::Written,
        };
        ledger.logged(Account::Tenant(TenantId(key.tenant)), what);
    }
}
