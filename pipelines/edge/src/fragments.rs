//! Fragments: the first is judged as a whole packet is, the others get its verdict, in whatever order they come.
//!
//! Nothing is put together here. A later fragment is given the flow key of its first and goes the way of that flow as it
//! is at that moment: after a new program it is decided again like any packet of the flow, and no later fragment passes
//! by what was decided once. One that comes before its first is held ([`engine::Hold`]) and judged right behind it.

use engine::{Hold, Io, Ledger, Queue};
use packet::{Backend, Buf, Nanos};
use program::{Answers, DropReason};
use tables::flow::FlowKey;
use tables::fragments::{Later, Loss, Piece};
use wire::Fragment;

use crate::lane::{Fate, Lane};
use crate::{DATAGRAM_BUDGET, Edge, Tables, decide, key};

impl Edge {
    /// Ends a lane of [`Fate::Fragment`].
    #[cold]
    pub(crate) fn fragment<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &mut Lane,
        buf: B::Buf,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let key = lane.key;
        if decide::is_for_gateway(tables, &key) {
            return self.for_gateway(tables, lane, buf, io);
        }
        // What has no way at all takes no room.
        if let Err(reason) = tables.way(&key::flow(&key)) {
            return io.ledger.dropped(lane.account, reason);
        }
        let parsed = &lane.parsed;
        let Some(part) = parsed.part(buf.bytes()) else {
            return io.ledger.dropped(lane.account, DropReason::Malformed);
        };
        // Routers send the fragments of one datagram by several hops: later ones show no ports.
        let id = key::datagram(&decide::by_any_hop(tables, &key), part.id);
        let piece = Piece { offset: part.offset, len: part.len, more: part.more };
        match parsed.fragment {
            Fragment::Later => self.later_fragment(tables, lane, buf, (&id, piece), io, now),
            _ => self.first_fragment(tables, lane, buf, (&id, piece), io, now),
        }
    }

    fn first_fragment<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &mut Lane,
        buf: B::Buf,
        (id, piece): (&FlowKey, Piece),
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let flow = lane.key;
        let mut gone = |queue, loss| drop_all(queue, loss, &mut io.hold, &mut io.ledger);
        let mut queue = match self.datagrams.first(id, piece, &flow, now, &mut gone) {
            Ok(queue) => queue,
            Err(loss) => return io.ledger.dropped(lane.account, reason(loss)),
        };
        lane.fate = Fate::LookUp;
        self.judge(tables, lane, buf, io, now);
        while let Some(held) = io.hold.pop(&mut queue) {
            lane.account = held.account;
            // It was parsed when it came; the lane has been the first fragment's since.
            match wire::parse_into(held.buf.bytes(), &mut lane.parsed) {
                Ok(()) => self.follow(tables, lane, held.buf, &flow, io, now),
                Err(_) => io.ledger.dropped(held.account, DropReason::Malformed),
            }
        }
    }

    fn later_fragment<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &mut Lane,
        buf: B::Buf,
        (id, piece): (&FlowKey, Piece),
        io: &mut Io<B>,
        now: Nanos,
    ) {
        let account = lane.account;
        let mut gone = |queue, loss| drop_all(queue, loss, &mut io.hold, &mut io.ledger);
        match self.datagrams.later(id, piece, now, &mut gone) {
            Ok(Later::Follows(flow)) => self.follow(tables, lane, buf, &flow, io, now),
            Ok(Later::Waits(queue)) => {
                if io.hold.push(queue, buf, account).is_err() {
                    io.ledger.dropped(account, DropReason::FragmentLimit);
                }
            }
            Err(loss) => io.ledger.dropped(account, reason(loss)),
        }
    }

    /// Sends a later fragment the way of its first one's flow, and counts it there. It makes no entry and moves no state
    /// but that of an entry that is there: it shows nothing of the connection.
    fn follow<B: Backend>(
        &mut self,
        tables: &Tables,
        lane: &mut Lane,
        buf: B::Buf,
        flow: &FlowKey,
        io: &mut Io<B>,
        now: Nanos,
    ) {
        lane.key = *flow;
        let slot = self.flows.find(self.flows.hash(flow), flow);
        let known =
            slot.and_then(|slot| self.hit_after_all(tables, slot, lane, buf.bytes(), &mut io.ledger, now));
        let action = known.unwrap_or_else(|| self.settle(tables, flow, now));
        self.forward(tables, lane, buf, action, io, now);
    }

    /// Lets go of datagrams whose time is over. Nothing is sent for them.
    pub(crate) fn expire_datagrams<B: Backend>(&mut self, io: &mut Io<B>, now: Nanos) {
        let mut gone = |queue, loss| drop_all(queue, loss, &mut io.hold, &mut io.ledger);
        let unfinished = self.datagrams.expire(now, DATAGRAM_BUDGET, &mut gone);
        io.ledger.count(engine::Gauge::Unfinished, unfinished as u64);
        io.ledger.set(engine::Gauge::Datagrams, self.datagrams.len() as u64);
    }
}

fn drop_all<B: Buf>(mut queue: Queue, loss: Loss, hold: &mut Hold<B>, ledger: &mut Ledger) {
    while let Some(held) = hold.pop(&mut queue) {
        ledger.dropped(held.account, reason(loss));
    }
}

const fn reason(loss: Loss) -> DropReason {
    match loss {
        Loss::Overlap => DropReason::FragmentOverlap,
        Loss::Duplicate => DropReason::FragmentDuplicate,
        Loss::Limit => DropReason::FragmentLimit,
        Loss::Timeout => DropReason::FragmentTimeout,
    }
}
