//! Packets that a pipeline keeps for later: queues of them in one fixed store, so that what is held is known.

use packet::Buf;

use crate::Account;

/// No slot.
const NONE: u32 = u32::MAX;

/// A packet that is held, and whom it is charged to should it be dropped.
#[derive(Debug)]
pub struct Held<B> {
    /// The packet, as far as it has been judged.
    pub buf: B,
    /// Whom its drop is charged to.
    pub account: Account,
}

/// Packets of one [`Hold`] in the order in which they came. A queue that is let go of with packets in it keeps their slots
/// until the worker ends: empty it with [`Hold::pop`].
#[derive(Debug)]
#[must_use]
pub struct Queue {
    head: u32,
    tail: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

struct Slot<B> {
    held: Option<Held<B>>,
    /// The next in its queue; of a free slot, the next free one.
    next: u32,
}

/// At most a fixed number of packets, so that they cannot use up the pool that they come from.
pub struct Hold<B> {
    slots: Box<[Slot<B>]>,
    free: u32,
    len: usize,
    /// Packets that were ever held.
    pushed: u64,
}

impl<B: Buf> Hold<B> {
    /// Room for `capacity` packets; all memory for keeping them is taken now.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(NONE as usize);
        let next = |slot: usize| if slot + 1 < capacity { slot as u32 + 1 } else { NONE };
        let slots = (0..capacity).map(|slot| Slot { held: None, next: next(slot) }).collect();
        Self { slots, free: if capacity > 0 { 0 } else { NONE }, len: 0, pushed: 0 }
    }

    /// Packets that are held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Packets that were ever held.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most packets that can be held.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Adds a packet to the end of a queue.
    ///
    /// # Errors
    /// Gives it back when there is no room.
    pub fn push(&mut self, queue: &mut Queue, buf: B, account: Account) -> Result<(), B> {
        let number = self.free;
        let Some(slot) = self.slots.get_mut(number as usize) else { return Err(buf) };
        self.free = slot.next;
        *slot = Slot { held: Some(Held { buf, account }), next: NONE };
        match self.slots.get_mut(queue.tail as usize) {
            Some(last) => last.next = number,
            None => queue.head = number,
        }
        queue.tail = number;
        self.len += 1;
        self.pushed += 1;
        Ok(())
    }

    /// Takes the packet at the front of a queue.
    pub fn pop(&mut self, queue: &mut Queue) -> Option<Held<B>> {
        let number = queue.head;
        let slot = self.slots.get_mut(number as usize)?;
        queue.head = slot.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        slot.next = self.free;
        self.free = number;
        self.len -= 1;
        slot.held.take()
    }

    /// Takes everything, in no order, and holds nothing from now on: no queue of it may be used any more.
    pub(crate) fn close(&mut self) -> impl Iterator<Item = Held<B>> {
        let slots = core::mem::take(&mut self.slots);
        (self.free, self.len) = (NONE, 0);
        slots.into_iter().filter_map(|slot| slot.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::TenantId;

    /// A packet that is a number.
    #[derive(PartialEq, Eq, Debug)]
    struct Numbered(u8);

    impl Buf for Numbered {
        fn bytes(&self) -> &[u8] {
            std::slice::from_ref(&self.0)
        }
        fn bytes_mut(&mut self) -> &mut [u8] {
            std::slice::from_mut(&mut self.0)
        }
        fn prepend(&mut self, _count: usize) -> bool {
            false
        }
        fn append(&mut self, _count: usize) -> bool {
            false
        }
        fn trim_front(&mut self, _count: usize) {}
        fn truncate(&mut self, _len: usize) {}
    }

    const ACCOUNT: Account = Account::Tenant(TenantId(7));

    fn pop(hold: &mut Hold<Numbered>, queue: &mut Queue) -> Option<u8> {
        let held = hold.pop(queue)?;
        assert_eq!(held.account, ACCOUNT);
        Some(held.buf.0)
    }

    #[test]
    fn queues_keep_their_order_and_share_the_room() {
        let mut hold = Hold::new(3);
        let (mut one, mut other) = (Queue::default(), Queue::default());
        for round in 0..10 {
            assert!(hold.push(&mut one, Numbered(round), ACCOUNT).is_ok());
            assert!(hold.push(&mut other, Numbered(100 + round), ACCOUNT).is_ok());
            assert!(hold.push(&mut one, Numbered(round + 1), ACCOUNT).is_ok());
            assert_eq!(hold.push(&mut one, Numbered(9), ACCOUNT), Err(Numbered(9)), "full");
            assert_eq!(hold.len(), 3);
            assert_eq!([pop(&mut hold, &mut one), pop(&mut hold, &mut one)], [Some(round), Some(round + 1)]);
            assert_eq!(pop(&mut hold, &mut one), None);
            assert_eq!(pop(&mut hold, &mut other), Some(100 + round));
            assert!(hold.is_empty());
        }
    }

    #[test]
    fn closing_gives_back_what_is_left() {
        let mut hold = Hold::new(4);
        let mut queue = Queue::default();
        for number in 0..3 {
            assert!(hold.push(&mut queue, Numbered(number), ACCOUNT).is_ok());
        }
        pop(&mut hold, &mut queue);
        let left: Vec<u8> = hold.close().map(|held| held.buf.0).collect();
        assert_eq!((left, hold.len(), hold.capacity()), (vec![1, 2], 0, 0));
        assert_eq!(pop(&mut hold, &mut queue), None, "a queue from before");
        assert_eq!(hold.push(&mut Queue::default(), Numbered(5), ACCOUNT), Err(Numbered(5)));
    }
}
