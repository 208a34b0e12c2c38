//! One burst on its way through the passes: per packet what has been found out so far, as structure of arrays.

use engine::Account;
use packet::BURST;
use program::{DropReason, Ingress, PortId, TenantId};
use tables::flow::{FlowHash, FlowKey, Slot};
use wire::Parsed;

use crate::Edge;
use crate::key;

/// What the first pass made of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// An ordinary packet of a tenant: its key is to be looked up.
    LookUp,
    /// A fragment of a tenant's: its first is looked up, the others follow it.
    Fragment,
    /// A tenant's packet that the flow table does not decide: neighbour discovery, ICMP errors, groups.
    Special,
    /// For this box itself, on the uplink.
    Underlay,
    /// Dropped.
    Drop(DropReason),
}

/// The lanes of one burst.
pub(crate) struct Lanes {
    /// The port that the burst came from.
    pub(crate) port: PortId,
    pub(crate) fate: [Fate; BURST],
    /// Of the tenant's packet: behind the outer headers, if it had any.
    pub(crate) parsed: [Parsed; BURST],
    /// Tenant and ingress are always set; the rest for [`Fate::LookUp`].
    pub(crate) key: [FlowKey; BURST],
    /// Whom drops are charged to.
    pub(crate) account: [Account; BURST],
    pub(crate) hash: [FlowHash; BURST],
    pub(crate) candidate: [Option<Slot>; BURST],
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self {
            port: PortId(0),
            fate: [Fate::LookUp; BURST],
            parsed: [Parsed::EMPTY; BURST],
            key: [FlowKey::default(); BURST],
            account: [Account::Port(PortId(0)); BURST],
            hash: [FlowHash::default(); BURST],
            candidate: [None; BURST],
        }
    }

    /// The tenant of a packet.
    pub(crate) fn tenant(&self, lane: usize) -> TenantId {
        TenantId(self.key[lane].tenant)
    }

    /// Where a tenant's packet came in.
    pub(crate) fn ingress(&self, lane: usize) -> Ingress {
        key::ingress(&self.key[lane])
    }
}

impl Edge {
    /// Hashes every key, fetches the buckets, then the entries whose tag fits: three passes, so that one packet's
    /// memory arrives while another is worked on.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, count: usize) {
        let lanes = &mut *self.lanes;
        for lane in 0..count.min(BURST) {
            lanes.hash[lane] = self.flows.hash(&lanes.key[lane]);
            self.flows.prefetch_bucket(lanes.hash[lane]);
        }
        for lane in 0..count.min(BURST) {
            lanes.candidate[lane] = self.flows.candidate(lanes.hash[lane]);
        }
    }
}
