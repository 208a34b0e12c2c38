//! TCP segment by segment: opening, closing, and what hosts may settle between them.

use proptest::prelude::*;
use wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::connection::tcp::{Segment, Side, follow, follow_odd, follow_ordinary, stage};
use crate::connection::{Followed, Stage};

/// What each side says in turn, and what becomes of it.
struct Talk {
    a: Side,
    b: Side,
}

impl Talk {
    fn new() -> Self {
        Self { a: Side::default(), b: Side::default() }
    }

    /// After a handshake without options: a has sent up to 1001, b up to 5001.
    fn open() -> Self {
        let mut talk = Self::new();
        assert_eq!(talk.a(segment(1000, 0, SYN, 0)), Followed::Changed);
        assert_eq!(talk.b(segment(5000, 1001, SYN | ACK, 0)), Followed::Changed);
        assert_eq!(talk.stage(), Stage::Opening);
        assert_eq!(talk.a(segment(1001, 5001, ACK, 0)), Followed::Changed);
        assert_eq!(talk.stage(), Stage::Open);
        talk
    }

    fn a(&mut self, segment: Segment) -> Followed {
        follow(&mut self.a, &mut self.b, &segment)
    }

    fn b(&mut self, segment: Segment) -> Followed {
        follow(&mut self.b, &mut self.a, &segment)
    }

    fn stage(&self) -> Stage {
        assert_eq!(stage(&self.a, &self.b), stage(&self.b, &self.a));
        stage(&self.a, &self.b)
    }
}

fn segment(seq: u32, ack: u32, flags: u8, len: u16) -> Segment {
    Segment { seq, ack, window: 10_000, flags, len, scale: None }
}

#[test]
fn it_closes_in_either_order() {
    let mut talk = Talk::open();
    assert_eq!(talk.a(segment(1001, 5001, FIN | ACK, 10)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::HalfClosed);
    // The other side goes on for as long as it likes.
    assert_eq!(talk.b(segment(5001, 1012, ACK, 100)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::HalfClosed);
    assert_eq!(talk.b(segment(5101, 1012, FIN | ACK, 0)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::Closing);
    assert_eq!(talk.a(segment(1012, 5102, ACK, 0)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::Closing);
}

#[test]
fn a_new_connection_between_the_same_ports_follows_one_that_has_ended() {
    let mut talk = Talk::open();
    let _ = talk.a(segment(1001, 5001, FIN | ACK, 0));
    let _ = talk.b(segment(5001, 1002, FIN | ACK, 0));
    // An old SYN is not a new connection (RFC 9293, section 3.6.1).
    assert_eq!(talk.a(segment(900, 0, SYN, 0)), Followed::Odd);
    assert_eq!(talk.a(segment(70_000, 0, SYN, 0)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::Opening);
    assert_eq!(talk.b(segment(90_000, 70_001, SYN | ACK, 0)), Followed::Changed);
    assert_eq!(talk.a(segment(70_001, 90_001, ACK, 1000)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::Open);
}

#[test]
fn only_the_exact_reset_ends_a_connection() {
    let mut talk = Talk::open();
    assert_eq!(talk.a(segment(1001, 5001, ACK, 500)), Followed::Same);
    // In the window, yet not the next byte: the host challenges it (RFC 5961, section 3.2), and so it goes on.
    assert_eq!(talk.a(segment(2000, 5001, RST | ACK, 0)), Followed::Odd);
    assert_eq!(
        talk.a(segment(1501_u32.wrapping_sub(10_001), 0, RST, 0)),
        Followed::OutOfWindow,
        "older than any window"
    );
    assert_eq!(talk.a(segment(900_000, 0, RST, 0)), Followed::OutOfWindow);
    assert_eq!(talk.stage(), Stage::Open);
    assert_eq!(talk.a(segment(1501, 0, RST, 0)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::Closed);
    // What follows may be a challenge and its answer, and then a new connection.
    assert_eq!(talk.b(segment(5001, 1501, ACK, 0)), Followed::Odd);
    assert_eq!(talk.a(segment(100, 0, SYN, 0)), Followed::Changed);
}

#[test]
fn a_refused_connection_is_closed_at_once_and_by_the_right_reset_only() {
    let mut talk = Talk::new();
    let _ = talk.a(segment(1000, 0, SYN, 0));
    assert_eq!(talk.b(segment(0, 77, RST | ACK, 0)), Followed::OutOfWindow);
    assert_eq!(talk.b(segment(0, 1001, RST, 0)), Followed::OutOfWindow);
    assert_eq!(talk.stage(), Stage::Opening);
    assert_eq!(talk.b(segment(0, 1001, RST | ACK, 0)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::Closed);
}

#[test]
fn an_answer_to_another_syn_is_none() {
    let mut talk = Talk::new();
    let _ = talk.a(segment(1000, 0, SYN, 0));
    for ack in [1000, 1002, 20_000, 0] {
        assert_eq!(talk.b(segment(5000, ack, SYN | ACK, 0)), Followed::OutOfWindow, "{ack}");
    }
    assert_eq!(talk.stage(), Stage::Opening);
}

#[test]
fn a_syn_is_repeated_and_tried_anew() {
    let mut talk = Talk::new();
    assert_eq!(talk.a(segment(1000, 0, SYN, 0)), Followed::Changed);
    assert_eq!(talk.a(segment(1000, 0, SYN, 0)), Followed::Changed);
    assert_eq!(talk.a(segment(400_000, 0, SYN, 0)), Followed::Changed);
    assert_eq!(talk.b(segment(5000, 400_001, SYN | ACK, 0)), Followed::Changed);
    assert_eq!(talk.b(segment(5000, 400_001, SYN | ACK, 0)), Followed::Odd, "once more");
    assert_eq!(talk.a(segment(400_001, 5001, ACK, 0)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::Open);
}

#[test]
fn both_sides_may_open_at_once() {
    let mut talk = Talk::new();
    assert_eq!(talk.a(segment(1000, 0, SYN, 0)), Followed::Changed);
    assert_eq!(talk.b(segment(5000, 0, SYN, 0)), Followed::Changed);
    assert_eq!(talk.a(segment(1000, 5001, SYN | ACK, 0)), Followed::Changed);
    assert_eq!(talk.b(segment(5000, 1001, SYN | ACK, 0)), Followed::Changed);
    assert_eq!(talk.a(segment(1001, 5001, ACK, 10)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::Open);
}

#[test]
fn a_host_that_has_forgotten_opens_anew() {
    let mut talk = Talk::open();
    let _ = talk.a(segment(1001, 5001, ACK, 1000));
    // It was restarted, and the other one as well.
    assert_eq!(talk.a(segment(3_000_000_000, 0, SYN, 0)), Followed::Odd);
    assert_eq!(talk.b(segment(7_000_000, 3_000_000_001, SYN | ACK, 0)), Followed::Changed);
    assert_eq!(talk.a(segment(3_000_000_001, 7_000_001, ACK, 100)), Followed::Changed);
    assert_eq!(talk.b(segment(7_000_001, 3_000_000_101, ACK, 100)), Followed::Same);
    assert_eq!(talk.stage(), Stage::Open);
}

#[test]
fn a_late_copy_of_the_handshake_changes_nothing() {
    let mut talk = Talk::open();
    for n in 0..20 {
        assert_eq!(talk.a(segment(1001 + n * 1000, 5001, ACK, 1000)), Followed::Same);
        let _ = talk.b(segment(5001, 2001 + n * 1000, ACK, 0));
    }
    assert_eq!(talk.b(segment(5000, 1001, SYN | ACK, 0)), Followed::Odd);
    // A SYN that the host challenges.
    assert_eq!(talk.a(segment(1000, 0, SYN, 0)), Followed::Odd);
    assert_eq!(talk.b(segment(5001, 21_001, ACK, 0)), Followed::Same);
    assert_eq!(talk.b(segment(5000, 1001, SYN | ACK, 0)), Followed::Odd);
    assert_eq!(talk.a(segment(21_001, 5001, ACK, 1000)), Followed::Same);
}

#[test]
fn windows_are_scaled_when_both_sides_said_so() {
    for (theirs, allowed) in [(Some(7), 10_000 << 7), (None, 10_000)] {
        let mut talk = Talk::new();
        let _ = talk.a(Segment { scale: Some(3), ..segment(1000, 0, SYN, 0) });
        let _ = talk.b(Segment { scale: theirs, ..segment(5000, 1001, SYN | ACK, 0) });
        let _ = talk.a(segment(1001, 5001, ACK, 0));
        let _ = talk.b(segment(5001, 1001, ACK, 0));
        assert_eq!(talk.a(segment(1002 + allowed, 5001, ACK, 1)), Followed::OutOfWindow);
        assert_eq!(talk.a(segment(1001 + allowed, 5001, ACK, 1)), Followed::Same);
    }
}

#[test]
fn flags_that_exclude_each_other_open_nothing() {
    for flags in [SYN | FIN, SYN | RST, SYN | ACK | RST] {
        assert_eq!(Talk::new().a(segment(1, 1, flags, 0)), Followed::OutOfState);
    }
}

#[test]
fn a_connection_met_in_its_middle_is_followed_without_checks() {
    let mut talk = Talk::new();
    assert_eq!(talk.a(segment(1000, 5000, ACK, 100)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::Open);
    assert_eq!(talk.b(segment(5000, 1100, ACK, 60_000)), Followed::Changed);
    assert_eq!(talk.a(segment(1100, 5_000_000, ACK, 100)), Followed::Same);
    assert_eq!(talk.a(segment(1200, 65_000, FIN | ACK, 0)), Followed::Changed);
    assert_eq!(talk.stage(), Stage::HalfClosed);
}

#[test]
fn an_error_quotes_what_is_on_its_way() {
    let mut talk = Talk::open();
    let _ = talk.a(segment(1001, 5001, ACK, 1000));
    assert!(talk.a.may_be_quoted(&talk.b, 1001));
    assert!(talk.a.may_be_quoted(&talk.b, 2001));
    assert!(!talk.a.may_be_quoted(&talk.b, 2002));
    assert!(!talk.a.may_be_quoted(&talk.b, 1001_u32.wrapping_sub(20_000)));

    let mut half_open = Talk::new();
    let _ = half_open.a(segment(1000, 0, SYN, 0));
    assert!(half_open.a.may_be_quoted(&half_open.b, 1000), "its SYN");
    assert!(!half_open.a.may_be_quoted(&half_open.b, 999));
    assert!(!half_open.a.may_be_quoted(&half_open.b, 1002));
}

/// Words of a side: every phase and scale, sequence numbers near those of the segments.
fn words() -> impl Strategy<Value = [u32; 3]> {
    let number = prop_oneof![0_u32..300, 65_000_u32..70_000, (u32::MAX - 300)..];
    let scale = prop_oneof![3 => Just(0_u8), 3 => Just(0x43_u8), 1 => any::<u8>()];
    (number.clone(), number, any::<u16>(), prop_oneof![4 => Just(2_u8), 1 => 0_u8..6], scale).prop_map(
        |(end, limit, window, phase, scale)| {
            let [low, high] = window.to_le_bytes();
            [end, limit, u32::from_le_bytes([low, high, phase, scale])]
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The short way of ordinary segments comes to what the long way does.
    #[test]
    fn what_is_ordinary_is_followed_as_anything_else(
        (own, other) in (words(), words()),
        (seq, ack) in (0_u32..70_000, 0_u32..70_000),
        (window, len) in (any::<u16>(), 0_u16..1500),
        flags in prop_oneof![4 => Just(ACK), 1 => any::<u8>()],
    ) {
        let segment = Segment { seq, ack, window, flags, len, scale: None };
        let sides = (Side::of(own), Side::of(other));
        let (mut short, mut long) = (sides, sides);
        let followed = follow(&mut short.0, &mut short.1, &segment);
        prop_assert_eq!(followed, follow_odd(&mut long.0, &mut long.1, &segment));
        // What is refused changes nothing on either way.
        prop_assert_eq!(short, long);
        let mut shortest = sides;
        let ordinary = follow_ordinary(&mut shortest.0, &mut shortest.1, &segment);
        prop_assert_eq!(shortest, if ordinary { short } else { sides });
        prop_assert!(!ordinary || followed == Followed::Same);
    }
}
