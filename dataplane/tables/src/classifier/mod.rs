//! First match among many rules: addresses, ports, protocol, in the order of the list.
//!
//! Rules are sorted into **tuples**, by the lengths of their two prefixes. In one tuple all rules have equally long
//! prefixes, so those of a packet are found by hash: a **pair** of prefixes, and behind it the services that rules ask
//! for between them, in the order of the rules. Asking every tuple would be slow. So the longest prefix of the source and
//! that of the destination ([`Lpm`](crate::lpm::Lpm)) each know, as a set of bits, which tuples have a rule that holds
//! the address; only tuples in both sets are asked, those with the earliest rules first, until none of the others has a
//! rule as early as the match in hand.
//!
//! Why this and not a decision tree or the tries of `rte_acl`: nothing is ever replicated, so that no set of rules can make
//! it large, and building is little more than sorting. A changed list is built anew; nothing wears out by updates, and
//! a reader never sees half of one.
//!
//! Bounds, for `n` address pairs and `s` services of all pairs together:
//! - memory: [`memory_bytes`](Classifier::memory_bytes), at most 352 bytes a pair for IPv4 and 432 for IPv6, 18 bytes a
//!   service and 1 KiB;
//! - a look-up: two searches of `log2(2 n + 1)` steps, and in the worst case every rule that holds both addresses. No
//!   set is slower than its list, up to a constant: what the worst is, [`Shape`] says;
//! - beyond [`PAIRS_MAX`] or [`SERVICES_MAX`] a build is refused with [`TooLarge`].
//!
//! It only reads: what is looked up leaves no trace, so nobody can fill it or slow it down by packets.

mod build;
mod services;

use packet::arch::prefetch_read;

use crate::lpm::Lpm;
use crate::prefix::{Address, Prefix};
use services::Services;

pub use build::{PAIRS_MAX, SERVICES_MAX, TooLarge};

/// An inclusive range; nothing is in one whose first is above its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span<T> {
    /// Lowest.
    pub first: T,
    /// Highest.
    pub last: T,
}

impl Span<u16> {
    /// Every source port.
    pub const ALL: Self = Self { first: 0, last: u16::MAX };
}

impl Span<u32> {
    /// Every service.
    pub const ALL: Self = Self { first: 0, last: u32::MAX };
}

/// What a rule asks of a packet's transport. All of it is to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// The IP protocol, of which the bits in `mask` count.
    pub protocol: u8,
    /// Zero for any protocol, 0xff for this one.
    pub mask: u8,
    /// Source ports.
    pub src_ports: Span<u16>,
    /// Destination ports, or whatever 32-bit number the user of the classifier puts in their place.
    pub values: Span<u32>,
}

impl Service {
    /// Everything.
    pub const ANY: Self =
        Self { protocol: 0, mask: 0, src_ports: Span::<u16>::ALL, values: Span::<u32>::ALL };
}

/// One rule: it matches a packet whose addresses are in one of the pairs and whose transport is one of the services.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule<A> {
    /// Source and destination prefixes.
    pub pairs: Vec<(Prefix<A>, Prefix<A>)>,
    /// Services.
    pub services: Vec<Service>,
}

/// What is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Key<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Destination port, or what stands in its place.
    pub value: u32,
    /// Source port.
    pub src_port: u16,
    /// IP protocol.
    pub protocol: u8,
}

/// How a classifier turned out, which bounds its look-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Pairs of prefix lengths: at most as many hashes are looked up.
    pub tuples: usize,
    /// Pairs of prefixes.
    pub pairs: usize,
    /// Services, once those that pairs share are counted once.
    pub services: usize,
    /// Most services of one pair: they are compared eight at a time.
    pub longest: usize,
}

/// Most words of a set of tuples.
const WORDS_MAX: usize = 16;

/// One address of the key: which tuples have a rule that holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Dimension<A> {
    lpm: Lpm<A>,
    /// By the number of the prefix: the set of tuples of the prefix and of all around it; last an empty set. A set is a
    /// bit for each group of tuples, [`Classifier::words`] words.
    sets: Box<[u64]>,
}

impl<A: Address> Dimension<A> {
    /// For each address where its set begins.
    #[inline(always)]
    fn sets_of<const N: usize>(&self, addresses: &[A; N], words: usize) -> [usize; N] {
        let none = self.sets.len() - words;
        self.lpm.longest_of(addresses).map(|number| none.min(number as usize * words))
    }
}

/// The rules with prefixes of these lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tuple {
    src_len: u8,
    dst_len: u8,
    /// The first of its rules.
    earliest: u32,
}

/// Two prefixes of a tuple, and the run of services that rules ask for between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pair<A> {
    src: A,
    dst: A,
    tuple: u32,
    start: u32,
    len: u32,
}

/// A place of the hash table; `pair` is [`FREE`] where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    tag: u32,
    pair: u32,
}

const FREE: u32 = u32::MAX;

/// After all rules.
const NO_RULE: u32 = u32::MAX;

/// Rules of one family, in the form in which packets are looked up. Never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Classifier<A> {
    src: Dimension<A>,
    dst: Dimension<A>,
    /// Those with the earliest rules first.
    tuples: Box<[Tuple]>,
    /// Words of a set of tuples, at most [`WORDS_MAX`].
    words: usize,
    /// Tuples that share one bit of a set; one, unless there are more than the bits of [`WORDS_MAX`] words.
    tuples_per_group: usize,
    /// A power of two, more than half of them free.
    places: Box<[Place]>,
    pairs: Box<[Pair<A>]>,
    services: Services,
}

/// Packets that [`Classifier::first_of`] takes through each step together.
const LANES: usize = 16;

impl<A: Address> Classifier<A> {
    /// The number of the first rule, from `from` on, that matches.
    #[inline]
    pub fn first(&self, key: &Key<A>, from: u32) -> Option<u32> {
        let [src] = self.src.sets_of(&[key.src], self.words);
        let [dst] = self.dst.sets_of(&[key.dst], self.words);
        self.first_among(src, dst, key, from)
    }

    /// The first rule that matches each key, in the order of the keys; their cache misses overlap. `found` is as long
    /// as `keys`.
    pub fn first_of(&self, keys: &[Key<A>], found: &mut [Option<u32>]) {
        for (keys, found) in keys.chunks(LANES).zip(found.chunks_mut(LANES)) {
            let Ok(keys) = <&[Key<A>; LANES]>::try_from(keys) else {
                for (key, found) in keys.iter().zip(found) {
                    *found = self.first(key, 0);
                }
                continue;
            };
            let src = self.src.sets_of(&keys.each_ref().map(|key| key.src), self.words);
            let dst = self.dst.sets_of(&keys.each_ref().map(|key| key.dst), self.words);
            for lane in 0..LANES {
                self.prefetch_first(src[lane], dst[lane], &keys[lane]);
            }
            for lane in 0..LANES {
                found[lane] = self.first_among(src[lane], dst[lane], &keys[lane], 0);
            }
        }
    }

    /// The groups of tuples in both sets, the earliest first.
    #[inline(always)]
    fn groups(&self, src: usize, dst: usize) -> impl Iterator<Item = usize> {
        let src = &self.src.sets[src..src + self.words];
        let dst = &self.dst.sets[dst..dst + self.words];
        let both = src.iter().zip(dst).map(|(src, dst)| src & dst);
        both.enumerate().flat_map(|(word, bits)| Bits(bits).map(move |bit| word * 64 + bit))
    }

    /// Asks for the place of the first tuple in both sets.
    #[inline(always)]
    fn prefetch_first(&self, src: usize, dst: usize, key: &Key<A>) {
        let Some(group) = self.groups(src, dst).next() else { return };
        let number = group * self.tuples_per_group;
        let tuple = &self.tuples[number];
        let hash = hash(number as u32, key.src.first(tuple.src_len), key.dst.first(tuple.dst_len));
        prefetch_read(&self.places[hash as usize & (self.places.len() - 1)]);
    }

    #[inline(always)]
    fn first_among(&self, src: usize, dst: usize, key: &Key<A>, from: u32) -> Option<u32> {
        let mut found = NO_RULE;
        'tuples: for group in self.groups(src, dst) {
            let start = group * self.tuples_per_group;
            for number in start..self.tuples.len().min(start + self.tuples_per_group) {
                let tuple = &self.tuples[number];
                if tuple.earliest >= found {
                    break 'tuples;
                }
                let (src, dst) = (key.src.first(tuple.src_len), key.dst.first(tuple.dst_len));
                if let Some(pair) = self.pair(number as u32, src, dst) {
                    found = self.services.first(pair.start, pair.len, key, from..found);
                }
            }
        }
        (found != NO_RULE).then_some(found)
    }

    #[inline(always)]
    fn pair(&self, tuple: u32, src: A, dst: A) -> Option<&Pair<A>> {
        let hash = hash(tuple, src, dst);
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let place = self.places[at];
            if place.pair == FREE {
                return None;
            }
            if place.tag == tag(hash) {
                let pair = &self.pairs[place.pair as usize];
                if (pair.src, pair.dst, pair.tuple) == (src, dst, tuple) {
                    return Some(pair);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// How it turned out.
    pub fn shape(&self) -> Shape {
        Shape {
            tuples: self.tuples.len(),
            pairs: self.pairs.len(),
            services: self.services.len(),
            longest: self.pairs.iter().map(|pair| pair.len as usize).max().unwrap_or(0),
        }
    }

    /// Bytes that it takes beside itself.
    pub fn memory_bytes(&self) -> usize {
        let dimensions = [&self.src, &self.dst];
        let dimensions =
            dimensions.map(|dimension| dimension.lpm.memory_bytes() + size_of_val(&*dimension.sets));
        dimensions.iter().sum::<usize>()
            + size_of_val(&*self.tuples)
            + size_of_val(&*self.places)
            + size_of_val(&*self.pairs)
            + self.services.memory_bytes()
    }
}

/// The bits that are set, by number.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    }
}

/// Where a pair is looked for (the low bits), and its tag.
#[inline(always)]
fn hash<A: Address>(tuple: u32, src: A, dst: A) -> u64 {
    let product = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product >> 64) as u64 ^ product as u64
    };
    let word = src.fold().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ dst.fold() ^ u64::from(tuple) << 40;
    product(word, 0xa076_1d64_78bd_642f)
}

#[inline(always)]
const fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}
