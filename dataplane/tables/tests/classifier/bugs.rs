//! Faults that other classifiers have had, by their number in the list of bugs. B068 is with the longest prefix match.

use tables::classifier::{Classifier, Key, Rule, Service, Span};
use tables::flow::{FlowKey, FlowTable, Full, Timeout};
use tables::prefix::Prefix;

use crate::scan::{self, Header, Wanted};
use crate::{TRACED, classbench};

const ANY: Wanted<u128> =
    Wanted { src: (0, 0), dst: (0, 0), src_ports: (0, u16::MAX), values: (0, u32::MAX), protocol: (0, 0) };

/// B064 (OVN): a match on a few bits made a cache entry for each IPv6 destination. Here what is looked up leaves no
/// trace, and 10,000 destinations under one rule meet the same one pair.
#[test]
fn b064_ten_thousand_destinations_under_one_rule() {
    let net = 0x2001_0db8_0000_0001_u128 << 64;
    let rules = [Wanted { dst: (net, 64), ..ANY }, Wanted { src: (net, 64), protocol: (6, 0xff), ..ANY }];
    let classifier = scan::classifier(&rules);
    let before = classifier.clone();
    assert!(classifier.shape().pairs == 2 && classifier.shape().longest == 1);
    for host in 0..10_000_u128 {
        let key = Key {
            dst: net | host.wrapping_mul(0x9e37_79b9_7f4a_7c15) & u128::from(u64::MAX),
            ..Key::default()
        };
        assert_eq!(classifier.first(&key, 0), Some(0));
    }
    assert_eq!(classifier, before);
}

/// B065 (DPDK bug 307): a range of 32 bits, in a trie that was built for 16.
#[test]
fn b065_a_range_of_32_bits() {
    let rules =
        [Wanted { values: (0x1_0000, 0x1_ffff), ..ANY }, Wanted { values: (0xff_0000, 0xffff_fffe), ..ANY }];
    let classifier = scan::classifier(&rules);
    let edges =
        [0, 0xffff, 0x1_0000, 0x1_0001, 0x1_fffe, 0x1_ffff, 0x2_0000, 0x101_0000, u32::MAX - 1, u32::MAX];
    let expected = [None, None, Some(0), Some(0), Some(0), Some(0), None, Some(1), Some(1), None];
    for (value, expected) in edges.into_iter().zip(expected) {
        assert_eq!(classifier.first(&Key { value, ..Key::default() }, 0), expected, "{value:#x}");
    }
}

/// B066 (DPDK bug 673): fields of 8 bytes. Prefixes that end in either half of an IPv6 address, and between them.
#[test]
fn b066_fields_of_eight_bytes() {
    let address = 0x2001_0db8_0011_2233_4455_6677_8899_aabb_u128;
    for len in 1..=128_u8 {
        let rules = [Wanted { dst: (address, len), ..ANY }];
        let classifier = scan::classifier(&rules);
        for bit in 0..128 {
            let header = Header { src: 0, dst: address ^ 1 << bit, src_port: 0, value: 0, protocol: 0 };
            let expected = (bit < 128 - u32::from(len)).then_some(0);
            assert_eq!(classifier.first(&header.key(), 0), expected, "/{len} bit {bit}");
        }
    }
}

/// B067 (VPP): fast and slow path disagreed, with local and remote ports swapped and IPv6 left out. Every header of
/// every trace, the same with its ends swapped, and the same as IPv6, both ways.
#[test]
fn b067_every_header_both_ways() {
    let Some(dir) = classbench::dir() else { return };
    let high = 0x2001_0db8_u128 << 96;
    for name in TRACED {
        let rules = classbench::set(&dir, name).rules;
        let four = scan::classifier(&rules);
        let wide = |(bits, len): (u32, u8)| (high | u128::from(bits), if len == 0 { 0 } else { len + 96 });
        let widened = |rule: &Wanted<u32>| Wanted {
            src: wide(rule.src),
            dst: wide(rule.dst),
            src_ports: rule.src_ports,
            values: rule.values,
            protocol: rule.protocol,
        };
        let rules6: Vec<Wanted<u128>> = rules.iter().map(widened).collect();
        let six = scan::classifier(&rules6);
        for (header, expected) in classbench::trace(&dir, name).into_iter().step_by(4) {
            let swapped = Header {
                src: header.dst,
                dst: header.src,
                src_port: header.value as u16,
                value: header.src_port.into(),
                ..header
            };
            for (header, expected) in [(header, expected), (swapped, scan::first(&rules, &swapped, 0))] {
                assert_eq!(four.first(&header.key(), 0), expected, "{name}: {header:?}");
                let Header { src, dst, src_port, value, protocol } = header;
                let (src, dst) = (high | u128::from(src), high | u128::from(dst));
                let key = Header { src, dst, src_port, value, protocol }.key();
                assert_eq!(six.first(&key, 0), expected, "{name} as IPv6: {header:?}");
            }
        }
    }
}

/// B069 (DPDK bug 261): a table that was once filled beyond its nominal count never got all its places back.
#[test]
fn b069_fill_empty_and_fill_again() {
    let capacity = 1 << 12;
    let mut table: FlowTable<u32> = FlowTable::new(capacity, 1, 7);
    let key = |number: usize| FlowKey { l4: number as u32, protocol: 17, ..FlowKey::default() };
    for round in 0..3 {
        let mut slots = Vec::new();
        for number in 0.. {
            let key = key(round * 100_000 + number);
            let inserted = table.insert(table.hash(&key), &key, 0, 0, packet::Nanos(1), Timeout::NEVER);
            match inserted {
                Ok(slot) => slots.push(slot),
                Err(Full::Bucket) => {}
                Err(_) => break,
            }
        }
        assert_eq!((slots.len(), table.len()), (capacity, capacity), "round {round}");
        slots.into_iter().for_each(|slot| {
            table.remove(slot);
        });
        assert!(table.is_empty());
    }
    // The classifier has no entries to free: that of a list that shrank and grew again is the same as before.
    let rules = |count: u32| {
        let rule = |host: u32| Rule {
            pairs: vec![(Prefix::all(), Prefix::new(host, 32))],
            services: vec![Service { values: Span { first: host, last: host }, ..Service::ANY }],
        };
        (0..count).map(rule).collect::<Vec<_>>()
    };
    let full = Classifier::build(&rules(1000)).unwrap();
    assert_eq!(Classifier::build(&rules(0)).unwrap().first(&Key::default(), 0), None);
    assert_eq!(Classifier::build(&rules(1000)).unwrap(), full);
}
