//! SCTP by its tags and echo by its requests, packet by packet.

use crate::connection::echo::Requests;
use crate::connection::sctp::{Packet, Side, follow, stage};
use crate::connection::{Followed, Stage};

fn packet(chunk: u8, tag: u32, initiate_tag: u32) -> Packet {
    Packet { tag, chunk, reflected: false, initiate_tag }
}

/// INIT, INIT ACK, COOKIE ECHO, COOKIE ACK: a's packets carry 200, b's 100.
fn open() -> (Side, Side) {
    let (mut a, mut b) = (Side::default(), Side::default());
    assert_eq!(follow(&mut a, &mut b, &packet(1, 0, 100)), Followed::Changed);
    assert_eq!(follow(&mut b, &mut a, &packet(2, 101, 200)), Followed::OutOfWindow);
    assert_eq!(follow(&mut b, &mut a, &packet(2, 100, 200)), Followed::Changed);
    assert_eq!(follow(&mut a, &mut b, &packet(10, 200, 0)), Followed::Same);
    assert_eq!(stage(&a, &b), Stage::Opening);
    assert_eq!(follow(&mut b, &mut a, &packet(11, 100, 0)), Followed::Changed);
    assert_eq!(stage(&a, &b), Stage::Open);
    (a, b)
}

#[test]
fn an_association_opens_and_closes_by_its_tags() {
    let (mut a, mut b) = open();
    assert_eq!(follow(&mut a, &mut b, &packet(0, 200, 0)), Followed::Same);
    assert_eq!(follow(&mut a, &mut b, &packet(0, 100, 0)), Followed::OutOfWindow, "the other side's tag");
    assert_eq!(follow(&mut a, &mut b, &packet(6, 5, 0)), Followed::OutOfWindow, "a forged ABORT");
    assert_eq!(stage(&a, &b), Stage::Open);
    assert_eq!(follow(&mut a, &mut b, &packet(7, 200, 0)), Followed::Changed);
    assert_eq!(stage(&a, &b), Stage::Closing);
    assert_eq!(follow(&mut b, &mut a, &packet(8, 100, 0)), Followed::Changed);
    assert_eq!(follow(&mut a, &mut b, &packet(14, 200, 0)), Followed::Changed);
    assert_eq!(stage(&a, &b), Stage::Closed);
}

#[test]
fn an_abort_may_reflect_the_tag() {
    let (mut a, mut b) = open();
    let abort = Packet { reflected: true, ..packet(6, 100, 0) };
    assert_eq!(
        follow(&mut a, &mut b, &Packet { reflected: true, ..packet(0, 100, 0) }),
        Followed::OutOfWindow
    );
    assert_eq!(follow(&mut a, &mut b, &abort), Followed::Changed);
    assert_eq!(stage(&b, &a), Stage::Closed);
}

#[test]
fn an_init_begins_anew_and_carries_no_tag() {
    let (mut a, mut b) = open();
    assert_eq!(follow(&mut a, &mut b, &packet(1, 200, 300)), Followed::OutOfWindow);
    assert_eq!(follow(&mut a, &mut b, &packet(1, 0, 0)), Followed::OutOfWindow);
    assert_eq!(follow(&mut a, &mut b, &packet(1, 0, 300)), Followed::Changed);
    assert_eq!(follow(&mut b, &mut a, &packet(2, 300, 400)), Followed::Changed);
    assert_eq!(follow(&mut a, &mut b, &packet(10, 400, 0)), Followed::Same);
}

#[test]
fn one_met_in_its_middle_keeps_the_tag_that_it_has() {
    let (mut a, mut b) = (Side::default(), Side::default());
    assert_eq!(follow(&mut a, &mut b, &packet(0, 7, 0)), Followed::Changed);
    assert_eq!(follow(&mut a, &mut b, &packet(0, 8, 0)), Followed::OutOfWindow);
    assert_eq!(follow(&mut a, &mut b, &packet(0, 0, 0)), Followed::OutOfWindow);
    assert_eq!(stage(&a, &b), Stage::Open);
    assert_eq!(Side::from_words(a.to_words()), a);
}

#[test]
fn an_echo_is_answered_when_it_was_asked() {
    let mut requests = Requests::default();
    assert_eq!(requests.answer(0), Followed::OutOfWindow);
    requests.ask(65_535);
    requests.ask(3);
    for (sequence, followed) in [
        (3, Followed::Same),
        (0, Followed::Same),
        (65_535, Followed::Same),
        (4, Followed::OutOfWindow),
        (30_000, Followed::OutOfWindow),
    ] {
        assert_eq!(requests.answer(sequence), followed, "{sequence}");
    }
    assert_eq!(Requests::from_word(requests.to_word()), requests);
}
