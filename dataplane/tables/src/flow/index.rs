//! Buckets of tags: from a hash to the few entries that may hold its key.

use super::FlowHash;
use packet::arch::{equal_lanes, on_large_pages, prefetch_read};

/// Entries in a bucket.
pub(super) const LANES: usize = 8;

/// At most this share of the lanes is in use when the table is at its capacity.
pub const MAX_LOAD_PERCENT: usize = 60;

/// A key leaves its home for its other bucket when its home has this many entries and the other has fewer.
///
/// Lower means fewer refusals and more searches that need a second bucket. Refusals per million inserts at full load
/// ([`MAX_LOAD_PERCENT`]) under random churn, measured: 5 with 4, 7 with 5, 29 with 6. None of 4 million while filling.
const CROWDED: u32 = 5;

/// One lane of one bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub bucket: u32,
    pub lane: u8,
}

/// One cache line. Tag zero marks a free lane.
#[derive(Clone, Default)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u16; LANES],
    entries: [u32; LANES],
    /// How many keys call this bucket home and live in their other one; while zero, a search ends here.
    away: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    #[inline(always)]
    fn matches(&self, tag: u16) -> Lanes {
        Lanes(equal_lanes(&self.tags, tag))
    }

    #[inline(always)]
    fn entry(&self, lane: usize) -> u32 {
        self.entries[lane % LANES]
    }
}

/// A set of lanes: lane n is bit n.
#[derive(Clone, Copy)]
struct Lanes(u8);

impl Lanes {
    #[inline(always)]
    fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl Iterator for Lanes {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(lane)
    }
}

pub(super) struct Index {
    buckets: Box<[Bucket]>,
    mask: u32,
}

impl Index {
    /// As many buckets, a power of two, as keep `capacity` entries within [`MAX_LOAD_PERCENT`].
    pub fn new(capacity: usize) -> Self {
        let lanes = capacity * 100 / MAX_LOAD_PERCENT + 1;
        let buckets = lanes.div_ceil(LANES).next_power_of_two();
        let mut empty = on_large_pages(buckets);
        empty.resize(buckets, Bucket::default());
        Self { buckets: empty.into_boxed_slice(), mask: buckets as u32 - 1 }
    }

    #[inline(always)]
    pub fn prefetch(&self, hash: FlowHash) {
        prefetch_read(self.bucket(self.home(hash)));
    }

    #[inline(always)]
    pub fn prefetch_other(&self, hash: FlowHash) {
        prefetch_read(self.bucket(self.other(hash)));
    }

    /// The first entry whose tag is that of `hash`, home bucket first.
    #[inline(always)]
    pub fn first(&self, hash: FlowHash) -> Option<u32> {
        let home = self.bucket(self.home(hash));
        match home.matches(tag(hash)).next() {
            Some(lane) => Some(home.entry(lane)),
            None if home.away == 0 => None,
            None => self.first_away(hash),
        }
    }

    #[inline(never)]
    fn first_away(&self, hash: FlowHash) -> Option<u32> {
        let other = self.bucket(self.other(hash));
        other.matches(tag(hash)).next().map(|lane| other.entry(lane))
    }

    /// All entries whose tag is that of `hash`.
    pub fn tagged(&self, hash: FlowHash) -> impl Iterator<Item = u32> {
        let (home, other) = (self.home(hash), self.other(hash));
        let others = (other != home && self.bucket(home).away != 0).then_some(other);
        [Some(home), others].into_iter().flatten().flat_map(move |number| {
            let bucket = self.bucket(number);
            bucket.matches(tag(hash)).map(|lane| bucket.entry(lane))
        })
    }

    /// The entries in both buckets of `hash`, whatever their tags; `None` for a free lane.
    pub fn neighbours(&self, hash: FlowHash) -> [Option<u32>; 2 * LANES] {
        let (home, other) = (self.home(hash), self.other(hash));
        core::array::from_fn(|n| {
            let number = if n < LANES { home } else { other };
            let bucket = self.bucket(number);
            let used = bucket.tags[n % LANES] != 0 && (n < LANES || other != home);
            used.then(|| bucket.entries[n % LANES])
        })
    }

    /// A free lane for a new entry; `None` when both buckets are full.
    pub fn vacancy(&self, hash: FlowHash) -> Option<Place> {
        let (home, other) = (self.home(hash), self.other(hash));
        let (at_home, at_other) = (self.occupancy(home), self.occupancy(other));
        let bucket = if at_home >= CROWDED && at_other < at_home { other } else { home };
        self.bucket(bucket).matches(0).next().map(|lane| Place { bucket, lane: lane as u8 })
    }

    /// Puts `entry` in a lane that [`Index::vacancy`] found; returns its home.
    pub fn put(&mut self, place: Place, hash: FlowHash, entry: u32) -> u32 {
        let home = self.home(hash);
        let bucket = self.bucket_mut(place.bucket);
        bucket.tags[usize::from(place.lane) % LANES] = tag(hash);
        bucket.entries[usize::from(place.lane) % LANES] = entry;
        if place.bucket != home {
            self.bucket_mut(home).away += 1;
        }
        home
    }

    /// Frees the lane of an entry whose home is `home`.
    pub fn clear(&mut self, place: Place, home: u32) {
        self.bucket_mut(place.bucket).tags[usize::from(place.lane) % LANES] = 0;
        if place.bucket != home {
            self.bucket_mut(home).away -= 1;
        }
    }

    #[cfg(test)]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The entry in a lane; `None` when it is free.
    #[cfg(test)]
    pub fn at(&self, place: Place) -> Option<u32> {
        let bucket = self.bucket(place.bucket);
        (bucket.tags[usize::from(place.lane)] != 0).then(|| bucket.entries[usize::from(place.lane)])
    }

    /// Keys away from home, by home bucket.
    #[cfg(test)]
    pub fn away(&self) -> Vec<u32> {
        self.buckets.iter().map(|bucket| bucket.away).collect()
    }

    #[cfg(test)]
    pub fn used_lanes(&self) -> usize {
        self.buckets.iter().map(|bucket| LANES - bucket.matches(0).count() as usize).sum()
    }

    fn occupancy(&self, bucket: u32) -> u32 {
        LANES as u32 - self.bucket(bucket).matches(0).count()
    }

    #[inline(always)]
    fn home(&self, hash: FlowHash) -> u32 {
        hash.0 as u32 & self.mask
    }

    /// The other bucket: not the home, unless there is only one.
    #[inline(always)]
    fn other(&self, hash: FlowHash) -> u32 {
        let home = self.home(hash);
        let other = (hash.0 >> 24) as u32 & self.mask;
        if other == home { (home ^ 1) & self.mask } else { other }
    }

    #[inline(always)]
    fn bucket(&self, number: u32) -> &Bucket {
        &self.buckets[number as usize]
    }

    fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        &mut self.buckets[number as usize]
    }
}

/// From bits that choose no bucket; zero is taken.
#[inline(always)]
fn tag(hash: FlowHash) -> u16 {
    ((hash.0 >> 48) as u16).max(1)
}
