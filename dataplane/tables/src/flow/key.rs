//! What identifies a flow, and its seeded hash.

use std::hash::{Hash, Hasher};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The identity of a flow: 48 bytes, every one of which counts.
///
/// The table gives no meaning to its fields beyond equality.
#[derive(Clone, Copy, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(16))]
pub struct FlowKey {
    /// Source address in wire order; IPv4 in the first four bytes and zeros after it.
    pub src: [u8; 16],
    /// Destination address, as `src`.
    pub dst: [u8; 16],
    /// Source port << 16 | destination port; ICMP identifier; RoCEv2 destination QP.
    pub l4: u32,
    /// Index of the tenant.
    pub tenant: u16,
    /// Port or VTEP that the packet came in by.
    pub ingress: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Flags that keep kinds of flow apart (IPv6, RoCE, from the fabric, fragment), owned by the pipeline.
    pub kind: u8,
    /// Zeros.
    pub zero: [u8; 6],
}

const _: () = assert!(size_of::<FlowKey>() == 48 && align_of::<FlowKey>() == 16);

impl FlowKey {
    #[inline(always)]
    fn words(&self) -> &[u64; 6] {
        zerocopy::transmute_ref!(self)
    }
}

impl PartialEq for FlowKey {
    /// All six words without a branch between them: a candidate is nearly always right.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.words(), other.words());
        (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]) | (a[5] ^ b[5]) == 0
    }
}

impl Hash for FlowKey {
    /// By the words that are compared, for the maps of others than [`FlowTable`](super::FlowTable).
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words().hash(state);
    }
}

/// The hash of a key under one table's seed; it means nothing to another table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct FlowHash(pub u64);

/// The secret of one table: whoever does not know it cannot aim keys at one bucket.
#[derive(Clone)]
pub(crate) struct Secret([u64; 8]);

impl Secret {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        Self([(); 8].map(|()| split_mix(&mut state)))
    }

    /// Three folds of two words each that do not wait for one another, and a fourth over their results.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &FlowKey) -> FlowHash {
        let (w, s) = (key.words(), &self.0);
        let source = fold(w[0] ^ s[0], w[1] ^ s[1]);
        let destination = fold(w[2] ^ s[2], w[3] ^ s[3]);
        let rest = fold(w[4] ^ s[4], w[5] ^ s[5]);
        FlowHash(fold(source ^ destination.rotate_left(23) ^ s[6], rest ^ s[7]))
    }
}

/// The 128-bit product's halves, one laid over the other (as wyhash and foldhash mix).
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): one seed into many words.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
