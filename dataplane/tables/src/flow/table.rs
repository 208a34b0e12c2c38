//! The table: entries, quotas and ageing over the index.

use super::entry::{Entry, Timeout};
use super::index::{Index, Place};
use super::key::{FlowHash, FlowKey, Secret};
use crate::wheel::{Timed, Wheels};
use packet::Nanos;
use packet::arch::{on_large_pages, prefetch_read};

/// Marks the end of the free list.
const NONE: u32 = u32::MAX;
/// Entries that one insert looks at for one that gives way: those that were seen since they were put into the wheel are
/// put back, and the next one is looked at.
const EVICTION_LOOKS: usize = 8;
/// Wheels that one call of `expire` turns.
const WHEELS_PER_CALL: usize = 64;
/// The part of a call's budget that one tenant may use before the next has its turn: one in so many.
const TURNS_PER_BUDGET: usize = 4;
/// A clock that goes back so far has been set, and flows are looked at that it says will have been seen.
const SET_BACK: Nanos = Nanos::from_secs(1);
/// Tenants looked at, at each insert into a full table, for the one that has most flows.
const TENANTS_PER_LOOK: usize = 8;

/// The number of an entry in its table. It names the same flow until the next `insert`, `remove` or `expire`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Slot(pub u32);

/// Why an insert was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// The tenant has as many flows as its quota allows and none of them gives way, or there is no such tenant.
    Quota,
    /// The table is at its capacity, and the tenant that has most flows has none that gives way.
    Table,
    /// Both buckets of the key are full.
    Bucket,
}

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Quota => "the tenant's flow quota is used up",
            Self::Table => "the flow table is full",
            Self::Bucket => "both buckets of the flow are full",
        })
    }
}

impl core::error::Error for Full {}

/// A tenant's share of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Flows in the table.
    pub in_use: u32,
    /// Most flows that it may have.
    pub quota: u32,
    /// Flows that gave way to others of the tenant, so far.
    pub evicted: u64,
    /// Flows that gave way to another tenant's, since the table was full and this tenant had most, so far.
    pub displaced: u64,
    /// Flows that found no room, so far.
    pub refused: u64,
}

/// An exact-match table of at most `capacity` flows, each with an action `A` and a protocol state `S`.
pub struct FlowTable<A, S = ()> {
    secret: Secret,
    index: Index,
    entries: Box<[Entry<A, S>]>,
    tenants: Box<[Share]>,
    /// Of each tenant, which of its flows expires first.
    wheels: Wheels,
    /// The tenant that was seen to have most flows.
    heaviest: usize,
    /// Head of the list of entries that were used and are free again.
    free: u32,
    /// Entries from here on were never used.
    fresh: u32,
    len: u32,
    /// Tenants from here on never had a flow.
    used: usize,
    /// The tenant whose wheel `expire` turns next.
    hand: usize,
    /// The tenant that is compared with the heaviest next.
    weighed: usize,
    /// The latest time that `expire` was told since the clock was set back.
    latest: Nanos,
    /// Entries from here on are yet to be looked at, since it was.
    recheck: u32,
}

impl<A: Copy + Default, S: Copy + Default> FlowTable<A, S> {
    /// A table for `capacity` flows (at least 1, at most 2^24) of `tenants` tenants (at most 2^16), numbered from 0.
    ///
    /// All memory is taken now: 128 bytes an entry with an action and a state of 16 each, and 13 to 27 bytes an entry for the index.
    /// And 1 KiB a tenant for its wheel, once it has flows. `seed` must be unknown to whoever sends packets. No tenant has
    /// a quota at first.
    pub fn new(capacity: usize, tenants: usize, seed: u64) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        let share = Share { in_use: 0, quota: u32::MAX, evicted: 0, displaced: 0, refused: 0 };
        let tenants = tenants.min(1 << 16);
        Self {
            secret: Secret::new(seed),
            index: Index::new(capacity),
            entries: free_entries(capacity),
            tenants: vec![share; tenants].into_boxed_slice(),
            wheels: Wheels::new(tenants),
            heaviest: 0,
            free: NONE,
            fresh: 0,
            len: 0,
            used: 0,
            hand: 0,
            weighed: 0,
            latest: Nanos(0),
            recheck: NONE,
        }
    }

    /// Flows in the table, idle ones that nothing has removed yet among them.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most flows it can hold.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// The hash of `key` in this table.
    #[inline(always)]
    pub fn hash(&self, key: &FlowKey) -> FlowHash {
        self.secret.hash(key)
    }

    /// Step 1 of a bulk lookup: asks for the bucket of `hash`.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: FlowHash) {
        self.index.prefetch(hash);
    }

    /// Before an insert: asks for the bucket that [`FlowTable::prefetch_bucket`] did not ask for.
    #[inline(always)]
    pub fn prefetch_vacancy(&self, hash: FlowHash) {
        self.index.prefetch_other(hash);
    }

    /// Step 2 of a bulk lookup: the entry that probably has the key of `hash`, by its tag alone; asks for its two
    /// cache lines. `None` is a sure miss, as long as nothing is inserted.
    #[inline(always)]
    pub fn candidate(&self, hash: FlowHash) -> Option<Slot> {
        let number = self.index.first(hash)?;
        let entry = &self.entries[number as usize];
        prefetch_read(&entry.key);
        prefetch_read(&entry.last_seen);
        Some(Slot(number))
    }

    /// Step 3 of a bulk lookup: true when the candidate has this very key. When false, [`FlowTable::find`] knows.
    #[inline(always)]
    pub fn confirm(&self, slot: Slot, key: &FlowKey) -> bool {
        self.entries[slot.0 as usize].key == *key
    }

    /// Asks for the second cache line of an entry: what it did, and its state.
    #[inline(always)]
    pub fn prefetch_state(&self, slot: Slot) {
        prefetch_read(&self.entries[slot.0 as usize].last_seen);
    }

    /// The complete answer. Time plays no part in it: [`Entry::is_expired`] says whether it is a miss nevertheless, to be
    /// decided anew and inserted.
    pub fn find(&self, hash: FlowHash, key: &FlowKey) -> Option<Slot> {
        self.index.tagged(hash).find(|&number| self.entries[number as usize].key == *key).map(Slot)
    }

    /// Counts a packet of `bytes` on the entry and makes it fresh.
    #[inline(always)]
    pub fn count(&mut self, slot: Slot, now: Nanos, bytes: u64) {
        let entry = &mut self.entries[slot.0 as usize];
        entry.packets += 1;
        entry.bytes = entry.bytes.wrapping_add(bytes);
        entry.last_seen = entry.last_seen.max(now);
    }

    /// The entry in `slot`; panics when the slot is of a larger table.
    #[inline(always)]
    pub fn entry(&self, slot: Slot) -> &Entry<A, S> {
        &self.entries[slot.0 as usize]
    }

    /// As [`FlowTable::entry`], to change its action or state.
    #[inline(always)]
    pub fn entry_mut(&mut self, slot: Slot) -> &mut Entry<A, S> {
        &mut self.entries[slot.0 as usize]
    }

    /// Two entries at once; `None` when they are one, or a slot is of a larger table.
    #[inline(always)]
    pub fn both_mut(&mut self, one: Slot, other: Slot) -> Option<[&mut Entry<A, S>; 2]> {
        self.entries.get_disjoint_mut([one.0 as usize, other.0 as usize]).ok()
    }

    /// Sets how long a flow may be idle from its last packet on.
    pub fn set_timeout(&mut self, slot: Slot, timeout: Timeout) {
        let entry = &mut self.entries[slot.0 as usize];
        let before = core::mem::replace(&mut entry.timeout, timeout);
        // A later time is found out when the earlier one has come.
        if timeout < before && entry.link().is_in() {
            let (tenant, deadline) = (usize::from(entry.tenant), entry.deadline());
            self.wheels.schedule(tenant, &mut self.entries, slot.0, deadline);
        }
    }

    /// Adds a flow, last seen `now`, with no packet counted yet. An entry with the same key is removed first, whatever
    /// the outcome. Both its cache lines are written anew.
    ///
    /// Who is out of room makes some: beyond its quota, a tenant's flow that would expire first gives way, if it does
    /// (opening, closing and refused ones do; others when they have been idle for a sixteenth of their timeout). In a
    /// full table that is a flow of the tenant that has most. In two full buckets it is what has expired.
    pub fn insert(
        &mut self,
        hash: FlowHash,
        key: &FlowKey,
        action: A,
        tenant: u16,
        now: Nanos,
        timeout: Timeout,
    ) -> Result<Slot, Full> {
        if let Some(old) = self.find(hash, key) {
            self.remove(old);
        }
        let place = match self.make_room(hash, tenant, now) {
            Ok(place) => place,
            Err(full) => {
                if let Some(share) = self.tenants.get_mut(usize::from(tenant)) {
                    share.refused += 1;
                }
                return Err(full);
            }
        };
        let number = self.take_free();
        let home = self.index.put(place, hash, number);
        self.entries[number as usize] = Entry {
            key: *key,
            action,
            last_seen: now,
            timeout,
            home,
            place: place.bucket,
            tenant,
            lane: place.lane,
            ..Entry::free()
        };
        self.charge(usize::from(tenant));
        let deadline = self.entries[number as usize].deadline();
        self.wheels.wind(usize::from(tenant), now);
        self.wheels.schedule(usize::from(tenant), &mut self.entries, number, deadline);
        Ok(Slot(number))
    }

    /// Removes a flow and returns its action; `None` when there is none in `slot`.
    pub fn remove(&mut self, slot: Slot) -> Option<A> {
        let entry = self.entries.get(slot.0 as usize).filter(|entry| entry.link().is_in())?;
        let (tenant, action) = (usize::from(entry.tenant), entry.action);
        self.wheels.cancel(tenant, &mut self.entries, slot.0);
        self.release(slot.0);
        Some(action)
    }

    /// Frees an entry that is in no wheel any more.
    fn release(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        self.index.clear(Place { bucket: entry.place, lane: entry.lane }, entry.home);
        self.tenants[usize::from(entry.tenant)].in_use -= 1;
        // No key has ones here: a candidate that was found before this is not confirmed after it.
        entry.key.zero = [0xff; 6];
        entry.state = S::default();
        entry.place = self.free;
        self.free = number;
        self.len -= 1;
    }

    /// Sets how many flows a tenant may have; false when there is no such tenant. Flows beyond it stay until they end.
    pub fn set_quota(&mut self, tenant: u16, flows: usize) -> bool {
        let found = self.tenants.get_mut(usize::from(tenant));
        found.map(|tenant| tenant.quota = u32::try_from(flows).unwrap_or(u32::MAX)).is_some()
    }

    /// Flows of a tenant in the table; zero when there is no such tenant.
    pub fn in_use(&self, tenant: u16) -> usize {
        self.share(tenant).map_or(0, |share| share.in_use as usize)
    }

    /// What a tenant has of the table; `None` when there is no such tenant.
    pub fn share(&self, tenant: u16) -> Option<&Share> {
        self.tenants.get(usize::from(tenant))
    }

    /// Removes flows that have expired, looking at `budget` entries at most, and returns how many went.
    ///
    /// Turns 64 wheels at most, of tenants that ever had a flow, and goes on with the next ones at the next call. Each has a
    /// quarter of the budget, and what is left when all have had their turn: nobody waits for another's backlog. What has
    /// expired is gone two ticks (2 ms) and `tenants / 64` calls later, if the budget suffices; until then it is a miss to
    /// `touch`.
    ///
    /// When the clock has been set back, flows that were seen later than `now` count as seen now: a quarter of the budget
    /// goes to finding them, from the first entry to the last.
    pub fn expire(&mut self, now: Nanos, budget: usize) -> usize {
        let (before, mut left) = (self.len, budget);
        let share = (budget / TURNS_PER_BUDGET).max(1);
        left -= self.recall(now, share.min(left));
        // Tenants in a row that had nothing more to do.
        let mut idle = 0;
        for _ in 0..WHEELS_PER_CALL {
            if left == 0 || idle == self.used {
                break;
            }
            let share = share.min(left);
            let looks = self.turn(self.hand, now, share);
            left -= looks;
            idle = if looks < share { idle + 1 } else { 0 };
            self.hand = (self.hand + 1) % self.used;
        }
        (before - self.len) as usize
    }

    /// Looks at `budget` entries, when the clock has been set back, for those that were seen later than `now`; returns how
    /// many it looked at.
    fn recall(&mut self, now: Nanos, budget: usize) -> usize {
        if self.latest.since(now) >= SET_BACK {
            (self.latest, self.recheck) = (now, 0);
        }
        self.latest = self.latest.max(now);
        let from = self.recheck.min(self.fresh);
        let to = self.fresh.min(from.saturating_add(u32::try_from(budget).unwrap_or(u32::MAX)));
        for number in from..to {
            let entry = &mut self.entries[number as usize];
            if entry.link().is_in() && entry.last_seen > now {
                entry.last_seen = now;
                let (tenant, deadline) = (usize::from(entry.tenant), entry.deadline());
                self.wheels.wind(tenant, now);
                self.wheels.schedule(tenant, &mut self.entries, number, deadline);
            }
        }
        self.recheck = if to == self.fresh { NONE } else { to };
        (to - from) as usize
    }

    /// Turns a tenant's wheel to `now`, as far as `budget` looks go; returns how many it took.
    fn turn(&mut self, tenant: usize, now: Nanos, budget: usize) -> usize {
        for looks in 0..budget {
            let Some(number) = self.wheels.due(tenant, &mut self.entries, now) else { return looks };
            let entry = &self.entries[number as usize];
            if entry.is_expired(now) {
                self.release(number);
            } else {
                let deadline = entry.deadline();
                self.wheels.schedule(tenant, &mut self.entries, number, deadline);
            }
        }
        budget
    }

    /// Slots that were ever in use: a dump need not look beyond.
    pub fn slots(&self) -> usize {
        self.fresh as usize
    }

    /// The flows in `count` slots from `from` on, for a dump in bounded steps: go on at `from + count` until that
    /// reaches [`FlowTable::slots`].
    pub fn iter(&self, from: Slot, count: usize) -> impl Iterator<Item = (Slot, &Entry<A, S>)> {
        let used = self.fresh as usize;
        let from = (from.0 as usize).min(used);
        let to = from.saturating_add(count).min(used);
        let slots = from as u32..;
        slots.map(Slot).zip(&self.entries[from..to]).filter(|(_, entry)| entry.link().is_in())
    }

    /// Where a new entry goes, after somebody has made room if there was none.
    fn make_room(&mut self, hash: FlowHash, tenant: u16, now: Nanos) -> Result<Place, Full> {
        let tenant = usize::from(tenant);
        if tenant >= self.tenants.len() {
            return Err(Full::Quota);
        }
        let place = match self.index.vacancy(hash) {
            Some(place) => place,
            None => {
                self.reclaim(hash, now);
                self.index.vacancy(hash).ok_or(Full::Bucket)?
            }
        };
        // Twice: a quota that was lowered is come to in small steps.
        for _ in 0..2 {
            if self.is_over_quota(tenant) && self.evict(tenant, now) {
                self.tenants[tenant].evicted += 1;
            }
        }
        if self.is_over_quota(tenant) {
            return Err(Full::Quota);
        }
        if self.len() == self.capacity() {
            let heaviest = self.weigh();
            if !self.evict(heaviest, now) {
                return Err(Full::Table);
            }
            let share = &mut self.tenants[heaviest];
            *(if heaviest == tenant { &mut share.evicted } else { &mut share.displaced }) += 1;
        }
        // Whoever gave way since has taken no lane.
        Ok(place)
    }

    fn is_over_quota(&self, tenant: usize) -> bool {
        self.tenants[tenant].in_use >= self.tenants[tenant].quota
    }

    /// Removes that flow of a tenant which expires first, if it gives way; false when it does not, or there is none.
    fn evict(&mut self, tenant: usize, now: Nanos) -> bool {
        let in_use = self.tenants[tenant].in_use;
        self.turn(tenant, now, EVICTION_LOOKS);
        if self.tenants[tenant].in_use < in_use {
            return true;
        }
        for _ in 0..EVICTION_LOOKS {
            let Some(number) = self.wheels.first(tenant) else { return false };
            let (slot, deadline) = (Slot(number), self.entries[number as usize].deadline());
            let before = self.entries[number as usize].link();
            self.wheels.schedule(tenant, &mut self.entries, number, deadline);
            if self.entries[number as usize].link().slot == before.slot {
                return self.evict_if_it_gives_way(slot, now);
            }
        }
        let first = self.wheels.first(tenant).map(Slot);
        first.is_some_and(|slot| self.evict_if_it_gives_way(slot, now))
    }

    fn evict_if_it_gives_way(&mut self, slot: Slot, now: Nanos) -> bool {
        let entry = &self.entries[slot.0 as usize];
        let gives_way = entry.is_expired(now) || entry.gives_way(now);
        gives_way && self.remove(slot).is_some()
    }

    fn charge(&mut self, tenant: usize) {
        self.tenants[tenant].in_use += 1;
        self.used = self.used.max(tenant + 1);
        if self.tenants[tenant].in_use > self.tenants[self.heaviest].in_use {
            self.heaviest = tenant;
        }
    }

    /// The tenant that has most flows. One that has fewer than before may be taken for it for some inserts more.
    fn weigh(&mut self) -> usize {
        for _ in 0..TENANTS_PER_LOOK {
            self.weighed = (self.weighed + 1) % self.tenants.len();
            if self.tenants[self.weighed].in_use > self.tenants[self.heaviest].in_use {
                self.heaviest = self.weighed;
            }
        }
        self.heaviest
    }

    /// Removes what has expired in both buckets of `hash`.
    fn reclaim(&mut self, hash: FlowHash, now: Nanos) {
        for number in self.index.neighbours(hash).into_iter().flatten() {
            if self.entries[number as usize].is_expired(now) {
                self.remove(Slot(number));
            }
        }
    }

    /// A free entry: one that was used lately, or else the next fresh one. There is one: `room` has looked.
    fn take_free(&mut self) -> u32 {
        self.len += 1;
        if self.free == NONE {
            self.fresh += 1;
            return self.fresh - 1;
        }
        let number = self.free;
        self.free = self.entries[number as usize].place;
        number
    }
}

fn free_entries<A: Default, S: Default>(count: usize) -> Box<[Entry<A, S>]> {
    let mut entries = on_large_pages(count);
    entries.resize_with(count, Entry::free);
    entries.into_boxed_slice()
}

#[cfg(test)]
impl<A: Copy + Default, S: Copy + Default> FlowTable<A, S> {
    pub(super) fn buckets(&self) -> usize {
        self.index.buckets()
    }

    pub(super) fn sharing_buckets(&self, hash: FlowHash) -> impl Iterator<Item = Slot> {
        self.index.neighbours(hash).into_iter().flatten().map(Slot)
    }

    /// Every flow is where it says, nothing else is in the index, and buckets know who is away.
    pub(super) fn assert_index_is_sound(&self) {
        let mut away = vec![0; self.index.buckets()];
        for (slot, entry) in self.iter(Slot(0), usize::MAX) {
            assert_eq!(self.index.at(Place { bucket: entry.place, lane: entry.lane }), Some(slot.0));
            away[entry.home as usize] += u32::from(entry.home != entry.place);
        }
        assert_eq!((self.index.away(), self.index.used_lanes()), (away, self.len()));
    }
}
