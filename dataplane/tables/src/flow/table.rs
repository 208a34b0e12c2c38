//! The table: entries, quotas and ageing over the index.

use super::entry::{Entry, Timeout};
use super::index::{Index, Place};
use super::key::{FlowHash, FlowKey, Secret};
use packet::Nanos;
use packet::arch::prefetch_read;

/// Marks the end of the free list.
const NONE: u32 = u32::MAX;

/// The number of an entry in its table. It names the same flow until the next `insert`, `remove` or `expire`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Slot(pub u32);

/// Why an insert was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// The tenant has as many flows as its quota allows, or there is no such tenant.
    Quota,
    /// The table is at its capacity.
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

#[derive(Clone, Copy)]
struct Tenant {
    in_use: u32,
    quota: u32,
}

/// An exact-match table of at most `capacity` flows, each with an action `A` and a protocol state `S`.
pub struct FlowTable<A, S = ()> {
    secret: Secret,
    index: Index,
    entries: Box<[Entry<A, S>]>,
    tenants: Box<[Tenant]>,
    /// Head of the list of entries that were used and are free again.
    free: u32,
    /// Entries from here on were never used.
    fresh: u32,
    len: u32,
    /// The next entry that `expire` looks at.
    hand: u32,
}

impl<A: Copy + Default, S: Copy + Default> FlowTable<A, S> {
    /// A table for `capacity` flows (at least 1, at most 2^24) of `tenants` tenants (at most 2^16), numbered from 0.
    ///
    /// All memory is taken now: 128 bytes an entry with an action and a state of 16 each, and 13 to 27 bytes an entry for the index.
    /// `seed` must be unknown to whoever sends packets. No tenant has a quota at first.
    pub fn new(capacity: usize, tenants: usize, seed: u64) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        let tenant = Tenant { in_use: 0, quota: u32::MAX };
        Self {
            secret: Secret::new(seed),
            index: Index::new(capacity),
            entries: core::iter::repeat_with(Entry::free).take(capacity).collect(),
            tenants: vec![tenant; tenants.min(1 << 16)].into_boxed_slice(),
            free: NONE,
            fresh: 0,
            len: 0,
            hand: 0,
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

    /// The complete answer. Time plays no part in it: [`FlowTable::touch`] says whether the entry has expired.
    pub fn find(&self, hash: FlowHash, key: &FlowKey) -> Option<Slot> {
        self.index.tagged(hash).find(|&number| self.entries[number as usize].key == *key).map(Slot)
    }

    /// Counts a packet of `bytes` on the entry and makes it fresh.
    ///
    /// False, and nothing counted, when the entry has expired: the packet is a miss, to be decided anew and inserted.
    #[inline(always)]
    #[must_use = "an expired entry is a miss"]
    pub fn touch(&mut self, slot: Slot, now: Nanos, bytes: u64) -> bool {
        let entry = &mut self.entries[slot.0 as usize];
        if entry.is_expired(now) {
            return false;
        }
        entry.packets += 1;
        entry.bytes = entry.bytes.wrapping_add(bytes);
        entry.last_seen = entry.last_seen.max(now);
        true
    }

    /// The entry in `slot`; panics when the slot is of a larger table.
    #[inline(always)]
    pub fn entry(&self, slot: Slot) -> &Entry<A, S> {
        &self.entries[slot.0 as usize]
    }

    /// As [`FlowTable::entry`], to change its action or timeout.
    #[inline(always)]
    pub fn entry_mut(&mut self, slot: Slot) -> &mut Entry<A, S> {
        &mut self.entries[slot.0 as usize]
    }

    /// Adds a flow, last seen `now`, with no packet counted yet. An entry with the same key is removed first, whatever
    /// the outcome. Before it refuses for want of room it removes the expired entries in the key's two buckets.
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
        let place = match self.room(hash, tenant) {
            Ok(place) => place,
            Err(_) => {
                self.reclaim(hash, now);
                self.room(hash, tenant)?
            }
        };
        let number = self.take_free();
        let home = self.index.put(place, hash, number);
        self.tenants[usize::from(tenant)].in_use += 1;
        self.entries[number as usize] = Entry {
            key: *key,
            action,
            last_seen: now,
            created: now,
            packets: 0,
            bytes: 0,
            timeout,
            home,
            place: place.bucket,
            tenant,
            lane: place.lane,
            live: true,
            state: S::default(),
        };
        Ok(Slot(number))
    }

    /// Removes a flow and returns its action; `None` when there is none in `slot`.
    pub fn remove(&mut self, slot: Slot) -> Option<A> {
        let entry = self.entries.get_mut(slot.0 as usize).filter(|entry| entry.live)?;
        self.index.clear(Place { bucket: entry.place, lane: entry.lane }, entry.home);
        self.tenants[usize::from(entry.tenant)].in_use -= 1;
        entry.live = false;
        // No key has ones here: a candidate that was found before this is not confirmed after it.
        entry.key.zero = [0xff; 6];
        entry.place = self.free;
        self.free = slot.0;
        self.len -= 1;
        Some(entry.action)
    }

    /// Sets how many flows a tenant may have; false when there is no such tenant. Flows beyond it stay until they end.
    pub fn set_quota(&mut self, tenant: u16, flows: usize) -> bool {
        let found = self.tenants.get_mut(usize::from(tenant));
        found.map(|tenant| tenant.quota = u32::try_from(flows).unwrap_or(u32::MAX)).is_some()
    }

    /// Flows of a tenant in the table; zero when there is no such tenant.
    pub fn in_use(&self, tenant: u16) -> usize {
        self.tenants.get(usize::from(tenant)).map_or(0, |tenant| tenant.in_use as usize)
    }

    /// Looks at the next `budget` entries, going round, and removes those that have expired; returns how many.
    ///
    /// Never looks at more than were ever in use at once, and at each of them once. A flow is thus gone at the latest
    /// `capacity / budget` calls after it expired; until then it is a miss to `touch`.
    pub fn expire(&mut self, now: Nanos, budget: usize) -> usize {
        let before = self.len;
        for _ in 0..budget.min(self.fresh as usize) {
            let entry = &self.entries[self.hand as usize];
            if entry.live && entry.is_expired(now) {
                self.remove(Slot(self.hand));
            }
            self.hand = if self.hand + 1 < self.fresh { self.hand + 1 } else { 0 };
        }
        (before - self.len) as usize
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
        slots.map(Slot).zip(&self.entries[from..to]).filter(|(_, entry)| entry.live)
    }

    /// Where a new entry could go, and why it could not.
    fn room(&self, hash: FlowHash, tenant: u16) -> Result<Place, Full> {
        let tenant = self.tenants.get(usize::from(tenant)).ok_or(Full::Quota)?;
        if tenant.in_use >= tenant.quota {
            return Err(Full::Quota);
        }
        if self.len() == self.capacity() {
            return Err(Full::Table);
        }
        self.index.vacancy(hash).ok_or(Full::Bucket)
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
