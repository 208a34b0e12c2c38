//! Timing wheels: what is to be looked at, and when, in steps that cost the same however much there is.
//!
//! A wheel has four levels of 64 slots. A slot of the first holds what is due within one tick (about a millisecond), one of
//! the next 64 ticks, and so on, up to nearly five hours; later times are looked at then and put off. An item comes out
//! when the slot that it is in begins: at its time or earlier, for a slot is as coarse as its level. Whoever takes it
//! out knows its time and puts it back until that has come. So a time may be moved without touching the wheel, as long
//! as it is moved to later.
//!
//! The items are linked through themselves (Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987, scheme 7).

use packet::Nanos;

const LEVELS: usize = 4;
const SLOTS: usize = 64;
const SLOT_BITS: u32 = 6;
/// A tick is 2^20 ns.
const TICK_BITS: u32 = 20;

/// An item's place in its wheel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The item behind it in the same slot, in a circle.
    pub next: u32,
    /// The item before it.
    pub prev: u32,
    /// Level and slot.
    pub slot: u8,
}

impl Link {
    /// Of an item that is in no wheel. No item has the number `u32::MAX`.
    pub const NONE: Self = Self { next: u32::MAX, prev: u32::MAX, slot: 0 };

    /// True when it is in a wheel.
    #[inline(always)]
    pub fn is_in(self) -> bool {
        self.next != u32::MAX
    }
}

/// Something that can be in a wheel.
pub trait Timed {
    /// Where it is.
    fn link(&self) -> Link;
    /// Puts it elsewhere.
    fn set_link(&mut self, link: Link);
}

/// A number of wheels over one array of items; an item is in one of them at most.
pub struct Wheels {
    /// Of each wheel and slot, its first item's number and one; zero for an empty slot.
    heads: Box<[u32]>,
    /// Of each wheel and level, which slots are not empty.
    marks: Box<[[u64; LEVELS]]>,
    /// Of each wheel, the tick that it has come to.
    ticks: Box<[u64]>,
}

const _: () = assert!(LEVELS * SLOTS <= 1 << u8::BITS);

impl Wheels {
    /// So many wheels, all empty. Memory is taken now and touched when used: 1 KiB a wheel.
    pub fn new(count: usize) -> Self {
        Self {
            heads: vec![0; count * LEVELS * SLOTS].into_boxed_slice(),
            marks: vec![[0; LEVELS]; count].into_boxed_slice(),
            ticks: vec![0; count].into_boxed_slice(),
        }
    }

    /// Lets a wheel that is empty come to `now` at once: to be called before the first item goes in. One that is ahead goes
    /// back with the clock: what is in it comes out as early as before or earlier, for its slots are taken for the next of
    /// their kind.
    pub fn wind(&mut self, wheel: usize, now: Nanos) {
        let now = tick(now);
        if self.is_empty(wheel) || now < self.ticks[wheel] {
            self.ticks[wheel] = now;
        }
    }

    /// Puts an item where it is looked at not later than one tick after `at`, and takes it from where it was.
    pub fn schedule<T: Timed>(&mut self, wheel: usize, items: &mut [T], item: u32, at: Nanos) {
        let slot = self.slot_for(wheel, at);
        let link = items[item as usize].link();
        if link.is_in() && link.slot == slot {
            return;
        }
        self.cancel(wheel, items, item);
        let head = &mut self.heads[wheel * LEVELS * SLOTS + usize::from(slot)];
        let (next, prev) = match *head {
            0 => (item, item),
            head => (head - 1, items[head as usize - 1].link().prev),
        };
        if *head == 0 {
            *head = item + 1;
            self.marks[wheel][usize::from(slot) / SLOTS] |= 1 << (usize::from(slot) % SLOTS);
        }
        items[item as usize].set_link(Link { next, prev, slot });
        if next != item {
            let link = items[prev as usize].link();
            items[prev as usize].set_link(Link { next: item, ..link });
            let link = items[next as usize].link();
            items[next as usize].set_link(Link { prev: item, ..link });
        }
    }

    /// Takes an item out, if it is in.
    pub fn cancel<T: Timed>(&mut self, wheel: usize, items: &mut [T], item: u32) {
        let link = items[item as usize].link();
        let Link { next, prev, slot } = link;
        if !link.is_in() {
            return;
        }
        items[item as usize].set_link(Link::NONE);
        let head = &mut self.heads[wheel * LEVELS * SLOTS + usize::from(slot)];
        if next == item {
            *head = 0;
            self.marks[wheel][usize::from(slot) / SLOTS] &= !(1 << (usize::from(slot) % SLOTS));
            return;
        }
        if *head == item + 1 {
            *head = next + 1;
        }
        let link = items[prev as usize].link();
        items[prev as usize].set_link(Link { next, ..link });
        let link = items[next as usize].link();
        items[next as usize].set_link(Link { prev, ..link });
    }

    /// Takes out the next item whose slot has begun by `now`; `None` when there is none, and the wheel has come to `now`.
    /// With a `now` before the last one the wheel goes back, as [`Wheels::wind`] says.
    pub fn due<T: Timed>(&mut self, wheel: usize, items: &mut [T], now: Nanos) -> Option<u32> {
        self.wind(wheel, now);
        let now = tick(now);
        match self.earliest(wheel) {
            Some((begin, slot)) if begin <= now => {
                self.ticks[wheel] = self.ticks[wheel].max(begin);
                let item = self.heads[wheel * LEVELS * SLOTS + slot] - 1;
                self.cancel(wheel, items, item);
                Some(item)
            }
            _ => {
                self.ticks[wheel] = now;
                None
            }
        }
    }

    /// The item that is looked at first, whenever that is.
    pub fn first(&self, wheel: usize) -> Option<u32> {
        let (_, slot) = self.earliest(wheel)?;
        Some(self.heads[wheel * LEVELS * SLOTS + slot] - 1)
    }

    /// True when nothing is in the wheel.
    pub fn is_empty(&self, wheel: usize) -> bool {
        self.marks[wheel] == [0; LEVELS]
    }

    /// When the first slot that is not empty begins, and which it is.
    fn earliest(&self, wheel: usize) -> Option<(u64, usize)> {
        let mut earliest: Option<(u64, usize)> = None;
        for (level, &marks) in self.marks[wheel].iter().enumerate() {
            if marks == 0 {
                continue;
            }
            let shift = SLOT_BITS * level as u32;
            let block = self.ticks[wheel] >> shift;
            let ahead = marks.rotate_right((block % SLOTS as u64) as u32).trailing_zeros();
            let begin = (block + u64::from(ahead)) << shift;
            let slot = level * SLOTS + ((block + u64::from(ahead)) % SLOTS as u64) as usize;
            if earliest.is_none_or(|(known, _)| begin < known) {
                earliest = Some((begin, slot));
            }
        }
        earliest
    }

    /// The finest slot that reaches as far as `at`: always a slot that has not begun.
    fn slot_for(&self, wheel: usize, at: Nanos) -> u8 {
        let now = self.ticks[wheel];
        // The end of the tick that `at` is in: not before it, whatever is left of that tick.
        let at = (tick(at) + 1).max(now + 1);
        for level in 0..LEVELS {
            let shift = SLOT_BITS * level as u32;
            let ahead = (at >> shift) - (now >> shift);
            if ahead < SLOTS as u64 {
                return (level * SLOTS) as u8 + ((at >> shift) % SLOTS as u64) as u8;
            }
        }
        let shift = SLOT_BITS * (LEVELS as u32 - 1);
        (SLOTS * (LEVELS - 1)) as u8 + (((now >> shift) + SLOTS as u64 - 1) % SLOTS as u64) as u8
    }
}

fn tick(at: Nanos) -> u64 {
    at.0 >> TICK_BITS
}

#[cfg(test)]
mod tests;
