//! Addresses of both families as plain numbers, and prefixes of them.

use core::fmt::Debug;
use core::hash::Hash;

/// An address as a number: [`u32`] for IPv4, [`u128`] for IPv6.
pub trait Address: Copy + Ord + Hash + Debug + Default + Send + Sync + 'static {
    /// How many bits it has.
    const BITS: u8;

    /// The lowest address of the prefix of that length; the address itself when it has no so many bits.
    fn first(self, len: u8) -> Self;

    /// The highest address of the prefix of that length.
    fn last(self, len: u8) -> Self;

    /// The address after it; `None` for the highest.
    fn next(self) -> Option<Self>;

    /// The same with the bit at `index` from the top set.
    fn with_bit(self, index: u8) -> Self;

    /// Its bits, for hashing.
    fn fold(self) -> u64;
}

macro_rules! address {
    ($number:ty, $fold:expr) => {
        impl Address for $number {
            const BITS: u8 = <$number>::BITS as u8;

            #[inline(always)]
            fn first(self, len: u8) -> Self {
                self & !host_bits::<$number>(len)
            }

            #[inline(always)]
            fn last(self, len: u8) -> Self {
                self | host_bits::<$number>(len)
            }

            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            fn with_bit(self, index: u8) -> Self {
                self | (1 << (Self::BITS - 1)) >> index
            }

            #[inline(always)]
            fn fold(self) -> u64 {
                $fold(self)
            }
        }

        impl HostBits for $number {
            #[inline(always)]
            fn host_bits(len: u8) -> Self {
                Self::MAX.checked_shr(len.into()).unwrap_or(0)
            }
        }
    };
}

trait HostBits {
    fn host_bits(len: u8) -> Self;
}

#[inline(always)]
fn host_bits<A: HostBits>(len: u8) -> A {
    A::host_bits(len)
}

address!(u32, u64::from);
address!(u128, |address: u128| (address >> 64) as u64 ^ (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));

/// The addresses that agree in their upper `len` bits. Ordered by lowest address, wider ones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Prefix<A> {
    bits: A,
    len: u8,
}

impl<A: Address> Prefix<A> {
    /// Every address.
    pub fn all() -> Self {
        Self::default()
    }

    /// The prefix of that length that `address` is in: bits beyond `len` do not count. `len` is at most
    /// [`Address::BITS`].
    pub fn new(address: A, len: u8) -> Self {
        let len = len.min(A::BITS);
        Self { bits: address.first(len), len }
    }

    /// Its lowest address.
    #[inline]
    pub fn first(self) -> A {
        self.bits
    }

    /// Its highest address.
    #[inline]
    pub fn last(self) -> A {
        self.bits.last(self.len)
    }

    /// How many bits agree.
    #[inline]
    pub fn length(self) -> u8 {
        self.len
    }

    /// True when the address is in it.
    #[inline]
    pub fn contains(self, address: A) -> bool {
        address.first(self.len) == self.bits
    }

    /// True when every address of `other` is in it.
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.bits)
    }

    /// Adds to `parts` the fewest prefixes that hold what of this one is in none of `excepts`. An exception costs at
    /// most one prefix for each bit that it is longer.
    pub fn without(self, excepts: &[Self], parts: &mut Vec<Self>) {
        if excepts.iter().any(|except| except.covers(self)) {
            return;
        }
        let inside: Vec<Self> = excepts.iter().copied().filter(|except| self.covers(*except)).collect();
        if inside.is_empty() {
            return parts.push(self);
        }
        // What is inside is longer, so there are halves.
        let len = self.len + 1;
        Self { bits: self.bits, len }.without(&inside, parts);
        Self { bits: self.bits.with_bit(self.len), len }.without(&inside, parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Prefixes and addresses that meet: few bits differ, at both ends.
    fn near() -> impl Strategy<Value = (u32, u8)> {
        (any::<u32>(), 0..=32_u8).prop_map(|(bits, len)| (bits & 0xc000_0007, len))
    }

    #[test]
    fn the_ends_of_lengths() {
        assert_eq!((u32::MAX.first(0), 0_u32.last(0), 7_u32.first(32), 7_u32.last(32)), (0, u32::MAX, 7, 7));
        assert_eq!(
            (u128::MAX.first(0), 0_u128.last(0), 7_u128.first(128), 7_u128.last(128)),
            (0, u128::MAX, 7, 7)
        );
        assert_eq!(Prefix::new(0xffff_ffff_u32, 8), Prefix::new(0xff00_0000, 8));
        assert_eq!(Prefix::new(1_u32, 200).length(), 32);
        assert_eq!((0_u32.with_bit(0), 0_u32.with_bit(31)), (0x8000_0000_u32, 1_u32));
    }

    #[test]
    fn an_exception_costs_a_prefix_for_each_bit() {
        let mut parts = Vec::new();
        Prefix::all().without(&[Prefix::new(0x0a00_0003_u32, 32)], &mut parts);
        assert_eq!(parts.len(), 32);
        let mut parts = Vec::new();
        Prefix::all().without(&[Prefix::new(1_u128, 128), Prefix::new(0, 128)], &mut parts);
        assert_eq!(parts.len(), 127);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn what_is_left_is_the_whole_without_the_exceptions(
            whole in near(),
            excepts in prop::collection::vec(near(), 0..5),
            address in near(),
        ) {
            let whole = Prefix::new(whole.0, whole.1);
            let excepts: Vec<Prefix<u32>> = excepts.into_iter().map(|(bits, len)| Prefix::new(bits, len)).collect();
            let mut parts = Vec::new();
            whole.without(&excepts, &mut parts);
            let left = whole.contains(address.0) && !excepts.iter().any(|except| except.contains(address.0));
            let holding = parts.iter().filter(|part| part.contains(address.0)).count();
            prop_assert_eq!(holding, usize::from(left), "each address in one part at most");
        }
    }
}
