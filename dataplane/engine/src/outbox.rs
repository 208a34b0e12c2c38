//! Packets on their way out, gathered per port so that each port is sent whole bursts.

use arrayvec::ArrayVec;
use packet::{BURST, Backend, Burst, TxQueue};
use program::{DropReason, PortId, TenantId};

use crate::journal::Event;
use crate::layout::WorkerId;
use crate::peers::{Handed, Outward};
use crate::{Account, Ledger, Tally};

/// How often a burst that the port did not take whole is offered again before the rest is dropped.
const TX_ATTEMPTS: usize = 4;

/// The transmit side of a worker's ports, and its way to other workers.
pub struct Outbox<B: Backend> {
    lanes: Vec<Option<Lane<B>>>,
    /// Ports that have something to send, each once.
    waiting: Vec<PortId>,
    /// `None` for an only worker.
    others: Option<Others<B>>,
}

/// What leads to other workers.
struct Others<B: Backend> {
    outward: Outward<B::Buf>,
    /// By port: who sends what this worker has no queue for.
    senders: Vec<WorkerId>,
}

struct Lane<B: Backend> {
    tx: B::Tx,
    burst: Burst<B::Buf>,
    /// Of each packet of the burst.
    charges: ArrayVec<Charge, BURST>,
}

/// Whom a packet is charged to besides the port: the tenant in whose tunnel it goes, by the inner frame's bytes.
#[derive(Clone, Copy)]
pub(crate) struct Charge {
    tenant: Option<TenantId>,
    bytes: u32,
}

impl<B: Backend> Outbox<B> {
    /// The queues by port id; an id that is not there drops what is pushed to it.
    pub fn new(queues: Vec<Option<B::Tx>>) -> Self {
        let lanes = queues.into_iter().map(|queue| queue.map(Lane::new));
        let lanes: Vec<_> = lanes.collect();
        Self { waiting: Vec::with_capacity(lanes.len()), lanes, others: None }
    }

    /// Adds the way to other workers, who send for this one where it has no queue: `senders`, by port.
    pub(crate) fn join(&mut self, outward: Outward<B::Buf>, senders: Vec<WorkerId>) {
        self.others = Some(Others { outward, senders });
    }

    /// Gives a packet to its owner, untouched, as received from `port`.
    #[inline]
    pub(crate) fn hand_over(&mut self, owner: WorkerId, port: PortId, buf: B::Buf, ledger: &mut Ledger) {
        match &mut self.others {
            Some(others) => others.outward.push(owner, Handed::Received { port, buf }, ledger),
            None => ledger.dropped(Account::Port(port), DropReason::HandOverFull),
        }
    }

    /// Adds a packet for `port`; sends the port's burst when it is full.
    #[inline]
    pub fn push(&mut self, port: PortId, buf: B::Buf, ledger: &mut Ledger) {
        self.push_charged(port, buf, Charge { tenant: None, bytes: 0 }, ledger);
    }

    /// Adds a packet that carries an inner frame of `inner_len` bytes of a tenant. The tenant is charged what the port
    /// has taken, or the drop when it has not.
    #[inline]
    pub fn push_tunnelled(
        &mut self,
        port: PortId,
        buf: B::Buf,
        tenant: TenantId,
        inner_len: usize,
        ledger: &mut Ledger,
    ) {
        // A frame's length has 16 bits.
        let charge = Charge { tenant: Some(tenant), bytes: inner_len as u32 };
        self.push_charged(port, buf, charge, ledger);
    }

    #[inline(always)]
    pub(crate) fn push_charged(&mut self, port: PortId, buf: B::Buf, charge: Charge, ledger: &mut Ledger) {
        let Some(Some(lane)) = self.lanes.get_mut(usize::from(port.0)) else {
            return self.push_to_sender(port, buf, charge, ledger);
        };
        if lane.burst.is_empty() {
            self.waiting.push(port);
        }
        lane.burst.push(buf);
        lane.charges.push(charge);
        if lane.burst.len() == BURST {
            lane.flush(port, ledger);
            self.waiting.retain(|waiting| *waiting != port);
        }
    }

    /// Gives a packet to the worker that sends on that port; without one it is dropped.
    #[cold]
    fn push_to_sender(&mut self, port: PortId, buf: B::Buf, charge: Charge, ledger: &mut Ledger) {
        let others = self.others.as_mut();
        match others.and_then(|others| Some((*others.senders.get(usize::from(port.0))?, others))) {
            Some((sender, others)) => {
                if let Some(journal) = &mut ledger.journal {
                    journal.note(Event::HandedOver { worker: sender, port });
                }
                others.outward.push(sender, Handed::Outgoing { port, buf, charge }, ledger);
            }
            None => ledger.dropped(charge.account(port), DropReason::TxFull),
        }
    }

    /// Sends everything; what the ports do not take is dropped and counted, so that nothing is held afterwards.
    pub fn flush(&mut self, ledger: &mut Ledger) {
        while let Some(port) = self.waiting.pop() {
            if let Some(Some(lane)) = self.lanes.get_mut(usize::from(port.0)) {
                lane.flush(port, ledger);
            }
        }
        if let Some(others) = &mut self.others {
            others.outward.flush(ledger);
        }
    }
}

impl Charge {
    pub(crate) fn account(self, port: PortId) -> Account {
        self.tenant.map_or(Account::Port(port), Account::Tenant)
    }
}

impl<B: Backend> Lane<B> {
    fn new(tx: B::Tx) -> Self {
        Self { tx, burst: Burst::new(), charges: ArrayVec::new() }
    }

    fn flush(&mut self, port: PortId, ledger: &mut Ledger) {
        let bytes =
            |burst: &Burst<B::Buf>| burst.iter().map(|buf| packet::Buf::bytes(buf).len() as u64).sum::<u64>();
        let mut sent = Tally { packets: 0, bytes: bytes(&self.burst) };
        let first = ledger.journal.as_mut().map(|journal| journal.offer(&self.burst));
        for _ in 0..TX_ATTEMPTS {
            sent.packets += self.tx.transmit(&mut self.burst) as u64;
            if self.burst.is_empty() {
                break;
            }
        }
        // A port takes the front of a burst.
        let (taken, refused) = self.charges.split_at(self.charges.len() - self.burst.len());
        charge_sent(taken, ledger);
        if let (Some(journal), Some(first)) = (&mut ledger.journal, first) {
            journal.sent(port, taken.iter().map(|charge| charge.tenant), first);
        }
        if !self.burst.is_empty() {
            sent.bytes -= bytes(&self.burst);
            refused.iter().for_each(|charge| ledger.dropped(charge.account(port), DropReason::TxFull));
            self.burst.clear();
        }
        self.charges.clear();
        ledger.sent(Account::Port(port), sent);
    }
}

/// Counts what tenants have sent into their tunnels, one count for each run of one tenant's packets.
fn charge_sent(taken: &[Charge], ledger: &mut Ledger) {
    for run in taken.chunk_by(|one, next| one.tenant == next.tenant) {
        let Some(tenant) = run[0].tenant else { continue };
        let bytes = run.iter().map(|charge| u64::from(charge.bytes)).sum();
        ledger.sent(Account::Tenant(tenant), Tally { packets: run.len() as u64, bytes });
    }
}
