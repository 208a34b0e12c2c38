//! Rules at random, made to nest, to touch and to repeat, with several pairs and services each.

use proptest::collection::vec;
use proptest::prelude::*;
use tables::classifier::{Classifier, Key, Rule, Service, Span};
use tables::prefix::{Address, Prefix};

use crate::scan::{Bits, Header, Wanted};

/// A few bits that differ, at both ends and around the middle of each family.
fn bits() -> impl Strategy<Value = u128> {
    let near = any::<u128>().prop_map(|bits| bits & (0b11 << 126 | 0b11 << 63 | 0b11 << 31 | 0b11));
    prop_oneof![6 => near, 1 => any::<u128>(), 1 => Just(0), 1 => Just(u128::MAX)]
}

fn len() -> impl Strategy<Value = u8> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(2),
        Just(31),
        Just(32),
        Just(64),
        Just(65),
        Just(127),
        Just(128),
        0..=128_u8
    ]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(79),
        Just(80),
        Just(81),
        Just(u16::MAX - 1),
        Just(u16::MAX),
        any::<u16>()
    ]
}

/// Around the edges of ports, of queue pairs, of 32 bits.
fn value() -> impl Strategy<Value = u32> {
    let edges = vec![0, 80, 81, 0xffff, 0x1_0000, 0x1_ffff, 0x2_0000, 0xff_ffff, 0x100_0000, u32::MAX];
    prop_oneof![4 => prop::sample::select(edges), 1 => any::<u32>()]
}

fn protocol() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(6), Just(7), Just(17), Just(58), any::<u8>()]
}

fn service() -> impl Strategy<Value = Asked> {
    let mask = prop_oneof![4 => Just(0xff), 2 => Just(0), 1 => any::<u8>()];
    let sorted = |(a, b): (u16, u16)| (a.min(b), a.max(b));
    let ports = prop_oneof![2 => Just((0, u16::MAX)), 1 => (port(), port()).prop_map(sorted), 1 => port().prop_map(|p| (p, p))];
    let values = (value(), value()).prop_map(|(a, b)| (a.min(b), a.max(b)));
    ((protocol(), mask), ports, prop_oneof![values, value().prop_map(|v| (v, v)), Just((0, u32::MAX))])
}

/// Protocol and mask, source ports, values.
type Asked = ((u8, u8), (u16, u16), (u32, u32));

type Pair = ((u128, u8), (u128, u8));

/// Pairs and services of one rule.
type Written = (Vec<Pair>, Vec<Asked>);

fn rule() -> impl Strategy<Value = Written> {
    let pair = || ((bits(), len()), (bits(), len()));
    (
        prop_oneof![6 => vec(pair(), 1), 2 => vec(pair(), 0..4)],
        prop_oneof![4 => vec(service(), 1), 2 => vec(service(), 0..12)],
    )
}

fn header() -> impl Strategy<Value = Header<u128>> {
    (bits(), bits(), port(), value(), protocol()).prop_map(|(src, dst, src_port, value, protocol)| Header {
        src,
        dst,
        src_port,
        value,
        protocol,
    })
}

/// The rule as 5-tuples, one for each pair and service, for the scan.
fn five_tuples<A: Bits>(rule: &Written, address: impl Fn((u128, u8)) -> (A, u8)) -> Vec<Wanted<A>> {
    let of = |pair: &Pair| {
        let (src, dst) = (address(pair.0), address(pair.1));
        rule.1.iter().map(move |&(protocol, src_ports, values)| Wanted {
            src,
            dst,
            src_ports,
            values,
            protocol,
        })
    };
    rule.0.iter().flat_map(of).collect()
}

fn compiled<A: Address>(rule: &Written, address: impl Fn((u128, u8)) -> (A, u8)) -> Rule<A> {
    let prefix = |end| {
        let (bits, len) = address(end);
        Prefix::new(bits, len)
    };
    let service = |&((protocol, mask), src_ports, values): &Asked| Service {
        protocol,
        mask,
        src_ports: Span { first: src_ports.0, last: src_ports.1 },
        values: Span { first: values.0, last: values.1 },
    };
    Rule {
        pairs: rule.0.iter().map(|pair| (prefix(pair.0), prefix(pair.1))).collect(),
        services: rule.1.iter().map(service).collect(),
    }
}

fn check<A: Bits>(
    rules: &[Written],
    headers: &[Header<A>],
    from: u32,
    address: impl Fn((u128, u8)) -> (A, u8) + Copy,
) -> Result<(), TestCaseError> {
    let written: Vec<Vec<Wanted<A>>> = rules.iter().map(|rule| five_tuples(rule, address)).collect();
    let compiled: Vec<Rule<A>> = rules.iter().map(|rule| compiled(rule, address)).collect();
    let classifier = Classifier::build(&compiled).unwrap();
    let edges = written
        .iter()
        .flatten()
        .flat_map(|rule| crate::scan::headers_at_edges(core::slice::from_ref(rule), 1));
    let headers: Vec<Header<A>> = headers.iter().copied().chain(edges.take(600)).collect();
    let scan = |header: &Header<A>, from: u32| {
        let mut later = (0..).zip(&written).skip(from as usize);
        later
            .find(|(_, rule)| rule.iter().any(|five| five.matches(header)))
            .map(|(number, _): (u32, _)| number)
    };
    let keys: Vec<Key<A>> = headers.iter().map(Header::key).collect();
    let mut found = vec![None; keys.len()];
    classifier.first_of(&keys, &mut found);
    for (header, found) in headers.iter().zip(found) {
        prop_assert_eq!(found, scan(header, 0), "{:?}", header);
        prop_assert_eq!(classifier.first(&header.key(), from), scan(header, from), "{:?}", header);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn agrees_with_a_scan(
        rules in vec(rule(), 0..24),
        headers in vec(header(), 1..64),
        from in 0..24_u32,
    ) {
        check(&rules, &headers, from, |end| end)?;
        let four = |bits: u128| (bits >> 96) as u32 ^ bits as u32;
        let short = |(bits, len): (u128, u8)| (four(bits), len % 33);
        let headers: Vec<Header<u32>> = headers.iter().map(|header| Header {
            src: four(header.src),
            dst: four(header.dst),
            src_port: header.src_port,
            value: header.value,
            protocol: header.protocol,
        }).collect();
        check(&rules, &headers, from, short)?;
    }
}
