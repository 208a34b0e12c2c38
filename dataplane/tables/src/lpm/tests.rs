//! Held to a scan of the prefixes.

use super::*;
use proptest::prelude::*;

/// The obviously right way.
fn scan<A: Address>(prefixes: &[Prefix<A>], address: A) -> Option<u32> {
    let holding = (0..prefixes.len()).filter(|index| prefixes[*index].contains(address));
    let longest = holding.max_by_key(|index| (prefixes[*index].length(), core::cmp::Reverse(*index)));
    longest.map(|index| index as u32)
}

/// Few bits that differ, at both ends and in the middle: prefixes nest, touch and repeat.
fn bits() -> impl Strategy<Value = u128> {
    let near = any::<u128>().prop_map(|bits| bits & (0b11 << 126 | 0b101 << 63 | 0b111 << 30 | 0b11));
    prop_oneof![4 => near, 1 => any::<u128>(), 1 => Just(0), 1 => Just(u128::MAX)]
}

fn length() -> impl Strategy<Value = u8> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(31),
        Just(32),
        Just(63),
        Just(64),
        Just(65),
        Just(127),
        Just(128),
        0..=128_u8
    ]
}

fn check<A: Address>(prefixes: &[Prefix<A>], addresses: &[A]) -> Result<(), TestCaseError> {
    let lpm = Lpm::build(prefixes);
    let edges = prefixes.iter().flat_map(|prefix| {
        let before = A::default().first(0);
        [prefix.first(), prefix.last(), prefix.last().next().unwrap_or(before)]
    });
    for address in edges.chain(addresses.iter().copied()) {
        let expected = scan(prefixes, address);
        prop_assert_eq!(lpm.longest(address), expected, "{:?}", address);
        prop_assert_eq!(lpm.longest_of(&[address; 3]), [expected.unwrap_or(NONE); 3]);
    }
    prop_assert!(lpm.memory_bytes() <= (2 * prefixes.len() + 1) * (size_of::<A>() + 4));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn agrees_with_a_scan(
        prefixes in prop::collection::vec((bits(), length()), 0..40),
        addresses in prop::collection::vec(bits(), 1..40),
    ) {
        let six: Vec<Prefix<u128>> = prefixes.iter().map(|(bits, len)| Prefix::new(*bits, *len)).collect();
        check(&six, &addresses)?;
        let four = |bits: u128| (bits >> 96) as u32 | bits as u32;
        let short: Vec<Prefix<u32>> =
            prefixes.iter().map(|(bits, len)| Prefix::new(four(*bits), len % 33)).collect();
        check(&short, &addresses.iter().map(|bits| four(*bits)).collect::<Vec<_>>())?;
    }
}

#[test]
fn an_empty_table_holds_nothing() {
    let lpm = Lpm::<u32>::build(&[]);
    assert_eq!((lpm.longest(0), lpm.longest(u32::MAX)), (None, None));
}

#[test]
fn wider_ones_are_entered_before_narrower() {
    let prefixes = [
        Prefix::new(0x0a00_0000_u32, 8),
        Prefix::new(0x0a01_0000, 16),
        Prefix::new(0, 0),
        Prefix::new(0x0a01_0000, 16),
    ];
    let mut entered = Vec::new();
    Lpm::build_nested(&prefixes, |number, outer| entered.push((number, outer)));
    assert_eq!(entered, [(2, None), (0, Some(2)), (1, Some(0))]);
}

/// B068 (DPDK bugs 1160 and 1272): a default route that is added first is lost, since its range wraps to zero.
#[test]
fn b068_a_default_route_added_first() {
    let four = Lpm::build(&[Prefix::new(0_u32, 0)]);
    assert_eq!([0, 1, 0x7fff_ffff, u32::MAX].map(|address| four.longest(address)), [Some(0); 4]);
    let six = Lpm::build(&[Prefix::new(0_u128, 0), Prefix::new(1 << 127, 1)]);
    assert_eq!([0, 1, u128::MAX >> 1].map(|address| six.longest(address)), [Some(0); 3]);
    assert_eq!([1 << 127, u128::MAX].map(|address| six.longest(address)), [Some(1); 2]);
}
