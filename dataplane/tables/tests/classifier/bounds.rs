//! What makes other classifiers large or slow: here it is bounded by the number of rules, whatever they say.

use tables::classifier::{Classifier, Key, PAIRS_MAX, Rule, SERVICES_MAX, Service, Span, TooLarge};
use tables::prefix::{Address, Prefix};

use crate::scan::{self, Header, Wanted};

/// The bound that the classifier's documentation states.
fn within_bound<A: Address>(classifier: &Classifier<A>, pairs: usize) {
    let per_pair = if A::BITS == 32 { 352 } else { 432 };
    let bound = 1024 + pairs * per_pair + classifier.shape().services * 18;
    assert!(classifier.memory_bytes() <= bound, "{} > {bound}", classifier.memory_bytes());
}

fn wanted<A>(src: (A, u8), dst: (A, u8)) -> Wanted<A> {
    Wanted { src, dst, src_ports: (0, u16::MAX), values: (0, u32::MAX), protocol: (0, 0) }
}

/// Every pair of lengths: all 1,089 tuples of IPv4, in which all rules hold one address. Trees and cross products of such
/// prefixes grow without bound.
#[test]
fn prefixes_that_nest_in_both_addresses() {
    let lens = || 0..=32_u8;
    let mut rules: Vec<Wanted<u32>> =
        lens().flat_map(|src| lens().map(move |dst| wanted((!0, src), (!0, dst)))).collect();
    // The longest first, else the first rule would be the answer to everything.
    rules.reverse();
    let classifier = scan::classifier(&rules);
    assert_eq!(classifier.shape().tuples, 1089);
    within_bound(&classifier, rules.len());
    for bit in 0..=32 {
        for other in [0, 1, 16, 31, 32] {
            let address = |bit: u32| if bit == 32 { !0 } else { !0 ^ 1 << bit };
            let header =
                Header { src: address(bit), dst: address(other), src_port: 1, value: 2, protocol: 3 };
            assert_eq!(classifier.first(&header.key(), 0), scan::first(&rules, &header, 0), "{header:?}");
        }
    }
}

/// The most memory for a pair: in every tuple prefixes that no other pair has, each with a set as wide as there are tuples.
#[test]
fn prefixes_of_all_lengths_that_nobody_shares() {
    let lens = || 8..=32_u8;
    let of = |(src, dst): (u8, u8), host: u32| {
        let seed = (u32::from(src) << 16 | u32::from(dst) << 8 | host).wrapping_mul(0x9e37_79b1);
        wanted((seed, src), (seed.rotate_left(16), dst))
    };
    let pairs = || lens().flat_map(|src| lens().map(move |dst| (src, dst)));
    let rules: Vec<Wanted<u32>> = pairs().flat_map(|pair| (0..16).map(move |host| of(pair, host))).collect();
    let classifier = scan::classifier(&rules);
    assert_eq!(classifier.shape().tuples, 625);
    within_bound(&classifier, rules.len());
    assert!(
        classifier.memory_bytes() > rules.len() * 192,
        "this set is not the worst: {}",
        classifier.memory_bytes()
    );
    for header in scan::headers_at_edges(&rules, 200) {
        assert_eq!(classifier.first(&header.key(), 0), scan::first(&rules, &header, 0), "{header:?}");
    }
}

/// IPv6 has 16,641 pairs of lengths, and all of them are asked for an address that all rules hold but none takes.
#[test]
fn every_pair_of_lengths_of_ipv6() {
    let lens = || 0..=128_u8;
    let mut rules: Vec<Wanted<u128>> =
        lens().flat_map(|src| lens().map(move |dst| wanted((!0, src), (!0, dst)))).collect();
    rules.reverse();
    let classifier = scan::classifier(&rules);
    assert_eq!(classifier.shape().tuples, 16_641);
    within_bound(&classifier, rules.len());
    for bit in [0, 1, 63, 64, 65, 127] {
        let header = Header { src: !0 ^ 1 << bit, dst: !0, src_port: 1, value: 2, protocol: 3 };
        assert_eq!(classifier.first(&header.key(), 0), scan::first(&rules, &header, 0), "{header:?}");
    }
}

/// Ranges that all overlap each other: `n` of them cut the numbers into `2 n` parts, with up to `n` rules in each.
#[test]
fn ranges_that_overlap() {
    let rule = |number: u32| Wanted {
        values: (number, 100_000 - number),
        src_ports: (number as u16, u16::MAX - number as u16),
        ..wanted((0_u32, 0), (0, 0))
    };
    let rules: Vec<Wanted<u32>> = (0..20_000).rev().map(rule).collect();
    let classifier = scan::classifier(&rules);
    assert_eq!((classifier.shape().pairs, classifier.shape().longest), (1, 20_000));
    within_bound(&classifier, rules.len());
    for value in [0, 1, 19_999, 20_000, 50_000, 80_000, 80_001, 80_002, 100_000, 100_001] {
        let header = Header { src: 1, dst: 2, src_port: value as u16, value, protocol: 6 };
        assert_eq!(classifier.first(&header.key(), 0), scan::first(&rules, &header, 0), "{header:?}");
    }
}

/// A rule of many addresses and many services takes their sum, not their product.
#[test]
fn many_addresses_and_many_services() {
    let pairs = (0..10_000).map(|host: u128| (Prefix::all(), Prefix::new(host << 1, 128))).collect();
    let service = |port: u32| Service { values: Span { first: port * 2, last: port * 2 }, ..Service::ANY };
    let rule = Rule { pairs, services: (0..1_000).map(service).collect() };
    let classifier = Classifier::build(&[rule]).unwrap();
    assert_eq!((classifier.shape().pairs, classifier.shape().services), (10_000, 1_000));
    within_bound(&classifier, 10_000);
    let first = |dst: u128, value| classifier.first(&Key { dst, value, ..Key::default() }, 0);
    assert_eq!((first(19_998, 1_998), first(19_997, 1_998), first(19_998, 1_997)), (Some(0), None, None));
}

/// Unlike the pairs of one rule, those of many may each have services of its own.
#[test]
fn what_is_too_large_is_refused() {
    let hosts =
        |count: u32| (0..count).map(|host| (Prefix::all(), Prefix::new(host, 32))).collect::<Vec<_>>();
    let one = |pairs, services| Rule { pairs, services };
    let rules =
        [one(hosts(PAIRS_MAX as u32 / 2 + 1), vec![Service::ANY]), one(hosts(PAIRS_MAX as u32 / 2), vec![])];
    assert_eq!(Classifier::build(&rules).unwrap_err(), TooLarge::Pairs);
    // Host n is asked for by rules n and later: no two hosts have the same rules.
    let many = |number: u32| one(hosts(number + 1), vec![Service::ANY; 64]);
    let rules: Vec<Rule<u32>> = (0..260).map(many).collect();
    const { assert!(260 * 261 / 2 * 64 > SERVICES_MAX) };
    assert_eq!(Classifier::build(&rules).unwrap_err(), TooLarge::Services);
}

#[test]
fn nothing_matches_no_rules() {
    let classifier = Classifier::<u32>::build(&[]).unwrap();
    assert_eq!(classifier.first(&Key::default(), 0), None);
    within_bound(&classifier, 0);
    let empty = Rule { pairs: vec![], services: vec![Service::ANY] };
    let without = Rule { pairs: vec![(Prefix::<u32>::all(), Prefix::all())], services: vec![] };
    assert_eq!(Classifier::build(&[empty, without]).unwrap().first(&Key::default(), 0), None);
}
