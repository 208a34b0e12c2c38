//! The straight line and the general parser must agree on everything.

use super::{Parsed, general::general, parse};
use proptest::prelude::*;
use std::{vec, vec::Vec};

/// A frame the straight line takes or nearly takes: a right one, with a few bytes changed and perhaps cut.
fn near_plain() -> impl Strategy<Value = Vec<u8>> {
    let ip = prop_oneof![
        (
            Just(vec![0x08, 0x00]),
            Just(vec![0x45, 0, 0, 46, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])
        ),
        (Just(vec![0x86, 0xdd]), Just([&[0x60, 0, 0, 0, 0, 26, 17, 64][..], &[0xfd; 32]].concat())),
    ];
    let l4 = prop_oneof![
        Just([&[0x80, 0, 0, 53, 0, 26, 0, 0][..], &[0x11; 18]].concat()),
        Just([&[0xc0, 0, 0x12, 0xb7, 0, 26, 0, 0][..], &[0x11; 1], &[0; 17]].concat()),
        Just([&[0x80, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2][..], &[0; 12]].concat()),
    ];
    let protocol = prop_oneof![4 => Just(None), 1 => prop_oneof![Just(6u8), Just(17), Just(1), any::<u8>()].prop_map(Some)];
    let changes = proptest::collection::vec((12usize..80, any::<u8>()), 0..4);
    let tags = prop_oneof![2 => Just(vec![]), 1 => Just(vec![0x81, 0, 0, 10]), 1 => Just(vec![0x88, 0xa8, 0, 9, 0x81, 0, 0, 8])];
    (ip, l4, protocol, changes, 0usize..100, tags).prop_map(
        |((ether_type, header), l4, protocol, changes, cut, tags)| {
            let mut frame = [&[2; 12][..], &tags, &ether_type, &header, &l4, &[0; 20]].concat();
            if let Some(protocol) = protocol {
                frame[tags.len() + if header.len() == 20 { 23 } else { 20 }] = protocol;
            }
            for (at, byte) in changes {
                if let Some(slot) = frame.get_mut(at) {
                    *slot = byte;
                }
            }
            if cut < 40 {
                frame.truncate(frame.len() - cut.min(frame.len()));
            }
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn the_straight_line_answers_as_the_general_parser(frame in near_plain()) {
        let mut whole = Parsed::EMPTY;
        prop_assert_eq!(parse(&frame), general(&frame, &mut whole).map(|()| whole));
    }
}
