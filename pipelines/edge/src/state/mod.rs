//! What a flow's packets may do next: the state of its protocol, kept in its entry.
//!
//! An entry is one direction. The entries of both directions know each other, and the state of each is that of its
//! sender. It is read by the protocol that the key names, so nothing in it says which.

mod sctp;
mod tcp;

use program::{DropReason, TenantId};
use tables::connection::Followed;
use tables::connection::echo::Requests;
use tables::flow::{Entry, Slot, Timeout};
use wire::L4;

use crate::action::Action;
use crate::judge::Reverses;
use crate::lane::Lane;
use crate::{Edge, Tables};

pub(crate) use tcp::opens_connection;

/// How long a flow may be idle before its entry goes. A flow that is still allowed is simply decided anew.
///
/// What may be idle for a minute at most gives way to new flows when the tenant has no room: see [`tables::flow`].
pub(crate) mod idle {
    use tables::connection::Stage;
    use tables::flow::Timeout;

    /// UDP of which one side has spoken, and protocols that nobody follows.
    pub(crate) const ONE_WAY: Timeout = Timeout::from_secs(60);
    /// UDP of which both sides have spoken (RFC 4787, REQ-5), and RoCEv2.
    pub(crate) const DATAGRAMS: Timeout = Timeout::from_secs(300);
    /// ICMP echo (RFC 5508, REQ-1).
    pub(crate) const ICMP: Timeout = Timeout::from_secs(60);
    /// A refusal that is remembered.
    pub(crate) const REFUSED: Timeout = Timeout::from_secs(5);

    /// TCP connections (RFC 5382, REQ-5: 2 h 4 min when open, 4 min else, which is for translators: here a packet that
    /// comes later is decided anew).
    pub(crate) const fn of_tcp(stage: Stage) -> Timeout {
        match stage {
            Stage::Opening => Timeout::from_secs(60),
            Stage::Open => Timeout::from_secs(7_440),
            Stage::HalfClosed => Timeout::from_secs(900),
            Stage::Closing => Timeout::from_secs(30),
            Stage::Closed => Timeout::from_secs(10),
        }
    }

    /// SCTP associations, which are kept open by heartbeats every 30 s (RFC 9260, section 16).
    pub(crate) const fn of_sctp(stage: Stage) -> Timeout {
        match stage {
            Stage::Opening => Timeout::from_secs(60),
            Stage::Open => Timeout::from_secs(300),
            Stage::HalfClosed | Stage::Closing => Timeout::from_secs(30),
            Stage::Closed => Timeout::from_secs(10),
        }
    }
}

/// The state of one direction of a flow: 16 bytes of its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct State {
    /// What the protocol keeps of the sender.
    pub(crate) words: [u32; 3],
    /// The entry of the other direction: its slot and one; zero for none.
    peer: u32,
}

impl State {
    /// Of a direction that knows of no other.
    pub(crate) const fn alone(words: [u32; 3]) -> Self {
        Self { words, peer: 0 }
    }
}

impl Edge {
    /// Lets a packet of an allowed flow change the state of the flow, or says why it may not pass.
    #[inline(always)]
    pub(crate) fn track(
        &mut self,
        tables: &Tables,
        slot: Slot,
        lane: &Lane,
        frame: &[u8],
    ) -> Result<(), DropReason> {
        match lane.parsed.l4 {
            L4::Tcp => self.track_tcp(tables, slot, lane, frame),
            L4::Sctp => self.track_sctp(slot, lane, frame),
            L4::Icmp | L4::Icmpv6 => self.track_echo(slot, lane, frame),
            // RoCEv2 has a pair to follow, refused or not: see `crate::roce`.
            _ => Ok(()),
        }
    }

    /// An answer to an echo request has been asked for.
    #[cold]
    fn track_echo(&mut self, slot: Slot, lane: &Lane, frame: &[u8]) -> Result<(), DropReason> {
        let l4 = usize::from(lane.parsed.l4_offset);
        let Some(&[kind, _, _, _, _, _, high, low]) = frame.get(l4..).and_then(|l4| l4.first_chunk()) else {
            return Ok(());
        };
        let sequence = u16::from_be_bytes([high, low]);
        match (kind, self.peer(slot)) {
            (8 | 128, _) => {
                let word = &mut self.flows.entry_mut(slot).state.words[0];
                let mut requests = Requests::from_word(*word);
                requests.ask(sequence);
                *word = requests.to_word();
                Ok(())
            }
            (0 | 129, Some(peer)) => {
                let requests = Requests::from_word(self.flows.entry(peer).state.words[0]);
                match requests.answer(sequence) {
                    Followed::OutOfWindow => Err(DropReason::UnaskedEchoReply),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Makes the entries of both directions know each other; both have spoken then.
    pub(crate) fn introduce(&mut self, reverses: &Reverses, slot: Slot) {
        let Some(peer) = reverses.iter().find_map(|(hash, key)| self.flows.find(*hash, key)) else { return };
        let is_refused = |slot| self.flows.entry(slot).action.refusal().is_some();
        if peer == slot || is_refused(slot) || is_refused(peer) {
            return;
        }
        if let Some(before) = self.peer(peer).filter(|before| *before != slot) {
            self.succeed(slot, before);
        }
        self.flows.entry_mut(slot).state.peer = peer.0 + 1;
        self.flows.entry_mut(peer).state.peer = slot.0 + 1;
        if self.flows.entry(slot).timeout() == idle::ONE_WAY {
            self.set_timeouts(slot, Some(peer), idle::DATAGRAMS);
        }
    }

    /// A direction whose packets come by another hop now goes on where it was: it has one entry, and one state.
    fn succeed(&mut self, slot: Slot, before: Slot) {
        let old = self.flows.entry(before);
        let (words, timeout, packets, bytes) = (old.state.words, old.timeout(), old.packets, old.bytes);
        let entry = self.flows.entry_mut(slot);
        entry.state.words = words;
        (entry.packets, entry.bytes) = (entry.packets + packets, entry.bytes + bytes);
        self.flows.set_timeout(slot, timeout);
        self.flows.remove(before);
    }

    /// The entry of the other direction, if it is still there: the slot may have gone to another flow, which does not
    /// know this one.
    #[inline(always)]
    fn peer(&self, slot: Slot) -> Option<Slot> {
        let peer = Slot(self.flows.entry(slot).state.peer.checked_sub(1)?);
        (self.flows.entry(peer).state.peer == slot.0 + 1).then_some(peer)
    }

    /// Asks for the state of the other direction of what is most likely a packet's flow.
    #[inline(always)]
    pub(crate) fn prefetch_peer(&self, slot: Slot) {
        if let Some(peer) = self.flows.entry(slot).state.peer.checked_sub(1) {
            self.flows.prefetch_state(Slot(peer));
        }
    }

    /// The entries of a flow and of its other direction; `None` when either is not there.
    #[inline(always)]
    fn both_directions(&mut self, slot: Slot) -> Option<[&mut Entry<Action, State>; 2]> {
        let peer = Slot(self.flows.entry(slot).state.peer.checked_sub(1)?);
        self.flows.both_mut(slot, peer).filter(|[_, other]| other.state.peer == slot.0 + 1)
    }

    fn set_timeouts(&mut self, slot: Slot, peer: Option<Slot>, timeout: Timeout) {
        self.flows.set_timeout(slot, timeout);
        if let Some(peer) = peer {
            self.flows.set_timeout(peer, timeout);
        }
    }
}

/// How long a flow may be idle after its first packet.
pub(crate) fn first_timeout(l4: L4) -> Timeout {
    match l4 {
        L4::Icmp | L4::Icmpv6 => idle::ICMP,
        L4::Roce => idle::DATAGRAMS,
        // TCP and SCTP go on to what their state asks for.
        _ => idle::ONE_WAY,
    }
}

/// What the program says of a tenant's connections.
fn settings(tables: &Tables, tenant: TenantId) -> program::Connections {
    tables.program.tenant(tenant).map(|tenant| tenant.connections).unwrap_or_default()
}
