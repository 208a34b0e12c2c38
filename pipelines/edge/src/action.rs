//! What a flow entry says to do, compiled to 16 bytes.

use program::{DropReason, Generation, PortId};
use wire::Mac;

/// A decided flow's action: one quarter of its entry's first cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Action {
    /// The generation that it was decided under.
    pub generation: Generation,
    /// Target kind (2 bits), reply (1), drop reason (8), index (20), from the top.
    packed: u32,
    /// The receiver's MAC.
    pub dst_mac: Mac,
    /// The outer UDP source port, so that a flow keeps one path.
    pub entropy: u16,
}

/// Where a decided flow goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Nowhere.
    Drop(DropReason),
    /// To a port of this box.
    Port(PortId),
    /// Into a tunnel: an index into [`crate::Tables::tunnels`].
    Tunnel(u32),
}

const KIND_SHIFT: u32 = 30;
const REPLY: u32 = 1 << 29;
const REASON_SHIFT: u32 = 20;
const INDEX_MASK: u32 = (1 << REASON_SHIFT) - 1;

/// Most tunnels that an action can name.
pub const MAX_TUNNELS: usize = 1 << REASON_SHIFT;

impl Action {
    /// Drops for that reason.
    pub fn drop(generation: Generation, reason: DropReason) -> Self {
        Self { generation, packed: (reason as u32) << REASON_SHIFT, ..Self::default() }
    }

    /// Forwards to `target` with the receiver's MAC.
    pub fn forward(generation: Generation, target: Target, dst_mac: Mac, entropy: u16) -> Self {
        let packed = match target {
            Target::Drop(reason) => (reason as u32) << REASON_SHIFT,
            Target::Port(port) => 1 << KIND_SHIFT | u32::from(port.0),
            Target::Tunnel(index) => 2 << KIND_SHIFT | index & INDEX_MASK,
        };
        Self { generation, packed, dst_mac, entropy }
    }

    /// The same, to another target and receiver's MAC.
    pub fn towards(self, target: Target, dst_mac: Mac) -> Self {
        let reply = self.packed & REPLY;
        let other = Self::forward(self.generation, target, dst_mac, self.entropy);
        Self { packed: other.packed | reply, ..other }
    }

    /// The same, allowed as a reply to a flow that the other side may not have opened itself.
    pub fn as_reply(mut self) -> Self {
        self.packed |= REPLY;
        self
    }

    /// True for an action that is allowed as a reply only.
    pub fn is_reply(self) -> bool {
        self.packed & REPLY != 0
    }

    /// Where to.
    #[inline]
    pub fn target(self) -> Target {
        match self.packed >> KIND_SHIFT {
            1 => Target::Port(PortId((self.packed & INDEX_MASK) as u16)),
            2 => Target::Tunnel(self.packed & INDEX_MASK),
            _ => Target::Drop(self.reason()),
        }
    }

    /// Why it drops, if it does.
    #[inline]
    pub fn refusal(self) -> Option<DropReason> {
        if let Target::Drop(reason) = self.target() { Some(reason) } else { None }
    }

    /// True when a rule, or the lack of one, drops the flow.
    pub fn is_policy_drop(self) -> bool {
        matches!(self.target(), Target::Drop(DropReason::PolicyDeny | DropReason::PolicyDefault))
    }

    fn reason(self) -> DropReason {
        let number = (self.packed >> REASON_SHIFT) as u8;
        DropReason::ALL.get(usize::from(number)).copied().unwrap_or(DropReason::NoRoute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_quarter_of_a_cache_line() {
        assert_eq!(size_of::<Action>(), 16);
    }

    #[test]
    fn every_target_comes_back() {
        let generation = Generation(7);
        for &reason in DropReason::ALL {
            assert_eq!(Action::drop(generation, reason).target(), Target::Drop(reason));
        }
        for target in [Target::Port(PortId(511)), Target::Tunnel(0), Target::Tunnel(INDEX_MASK)] {
            let action = Action::forward(generation, target, Mac([1, 2, 3, 4, 5, 6]), 50_000);
            assert_eq!((action.target(), action.is_reply()), (target, false));
            assert_eq!((action.as_reply().target(), action.as_reply().is_reply()), (target, true));
        }
    }
}
