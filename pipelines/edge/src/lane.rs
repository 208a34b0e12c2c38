//! One packet of a burst on its way through the passes: what has been found out about it so far.

use engine::Account;
use packet::BURST;
use program::{DropReason, Ingress, PortId, TenantId};
use tables::flow::{FlowHash, FlowKey, Slot};
use wire::{L4, Parsed};

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

/// What is known of one packet.
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct Lane {
    /// Tenant and ingress are always set; the rest for [`Fate::LookUp`].
    pub(crate) key: FlowKey,
    /// Of the tenant's packet: behind the outer headers, if it had any.
    pub(crate) parsed: Parsed,
    pub(crate) hash: FlowHash,
    pub(crate) candidate: Option<Slot>,
    /// Whom drops are charged to.
    pub(crate) account: Account,
    pub(crate) fate: Fate,
}

impl Lane {
    /// A lane for each packet of a burst.
    pub(crate) fn burst() -> Vec<Self> {
        vec![Self::empty(); BURST]
    }

    /// Of a packet of which nothing is known.
    pub(crate) fn empty() -> Self {
        Self {
            key: FlowKey::default(),
            parsed: Parsed::EMPTY,
            hash: FlowHash::default(),
            candidate: None,
            account: Account::Port(PortId(0)),
            fate: Fate::LookUp,
        }
    }

    /// The tenant of a packet.
    pub(crate) fn tenant(&self) -> TenantId {
        TenantId(self.key.tenant)
    }

    /// Where a tenant's packet came in.
    pub(crate) fn ingress(&self) -> Ingress {
        key::ingress(&self.key)
    }
}

impl Edge {
    /// Hashes every key, fetches the buckets, then the entries whose tag fits, then what those of connections know of
    /// the other direction: passes, so that one packet's
    /// memory arrives while another is worked on.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, lanes: &mut [Lane]) {
        for lane in lanes.iter_mut() {
            lane.hash = self.flows.hash(&lane.key);
            self.flows.prefetch_bucket(lane.hash);
        }
        for lane in lanes.iter_mut() {
            lane.candidate = self.flows.candidate(lane.hash);
        }
        for lane in lanes.iter().filter(|lane| lane.parsed.l4 == L4::Tcp) {
            if let Some(slot) = lane.candidate {
                self.prefetch_peer(slot);
            }
        }
    }
}
