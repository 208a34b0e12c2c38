//! What a flow's packets may do next: the state of its protocol, kept in its entry.
//!
//! An entry is one direction. Its state is read by the protocol that the key names, so nothing in it says which.

use packet::Nanos;
use program::DropReason;
use tables::flow::{Slot, Timeout};
use wire::L4;

use crate::Edge;

const TCP_FIN: u8 = 0x01;
const TCP_SYN: u8 = 0x02;
const TCP_RST: u8 = 0x04;

/// How long a flow may be idle before its entry goes. A flow that is still allowed is simply decided anew.
pub(crate) mod idle {
    use tables::flow::Timeout;

    /// An open TCP connection (RFC 5382, REQ-5).
    pub(crate) const TCP_OPEN: Timeout = Timeout::from_secs(7_440);
    /// TCP that is opening (RFC 5382, REQ-5 allows 4 minutes).
    pub(crate) const TCP_OPENING: Timeout = Timeout::from_secs(60);
    /// TCP that is closing; another value than that of opening, since it tells the two apart.
    pub(crate) const TCP_CLOSING: Timeout = Timeout::from_secs(30);
    /// UDP, RoCEv2 and the rest (RFC 4787, REQ-5).
    pub(crate) const DATAGRAMS: Timeout = Timeout::from_secs(300);
    /// ICMP echo (RFC 5508, REQ-1).
    pub(crate) const ICMP: Timeout = Timeout::from_secs(60);
    /// A refusal that is remembered.
    pub(crate) const REFUSED: Timeout = Timeout::from_secs(5);
}

/// The state of one direction of a flow: 16 bytes of its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub(crate) struct State(pub(crate) [u32; 4]);

impl Edge {
    /// Lets a packet of an allowed flow change the state of the flow, or says why it may not pass.
    #[inline(always)]
    pub(crate) fn track(
        &mut self,
        slot: Slot,
        lane: usize,
        frame: &[u8],
        _now: Nanos,
    ) -> Result<(), DropReason> {
        let parsed = &self.lanes.parsed[lane];
        match parsed.l4 {
            L4::Tcp => self.track_tcp(slot, tcp_flags(frame, parsed.l4_offset)),
            // RoCEv2 has a pair to follow, refused or not: see `crate::roce`.
            _ => Ok(()),
        }
    }

    /// How long a TCP flow may be idle depends on whether it is open.
    #[inline]
    fn track_tcp(&mut self, slot: Slot, flags: u8) -> Result<(), DropReason> {
        let entry = self.flows.entry_mut(slot);
        if entry.timeout == idle::TCP_OPENING || flags & (TCP_FIN | TCP_RST | TCP_SYN) != 0 {
            entry.timeout = tcp_timeout(flags);
        }
        Ok(())
    }
}

/// How long a flow may be idle after its first packet.
pub(crate) fn first_timeout(l4: L4, frame: &[u8], l4_offset: u16) -> Timeout {
    match l4 {
        L4::Tcp => tcp_timeout(tcp_flags(frame, l4_offset)),
        L4::Icmp | L4::Icmpv6 => idle::ICMP,
        _ => idle::DATAGRAMS,
    }
}

fn tcp_timeout(flags: u8) -> Timeout {
    match flags {
        _ if flags & (TCP_FIN | TCP_RST) != 0 => idle::TCP_CLOSING,
        _ if flags & TCP_SYN != 0 => idle::TCP_OPENING,
        _ => idle::TCP_OPEN,
    }
}

/// The parser has seen the whole TCP header.
fn tcp_flags(frame: &[u8], l4_offset: u16) -> u8 {
    frame.get(usize::from(l4_offset) + 13).copied().unwrap_or(0)
}
