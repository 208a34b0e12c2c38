//! Two hosts that speak TCP as they should, over a network that loses, repeats and reorders: nothing that they say may
//! be refused, wherever the box stands and however their numbers wrap.

use proptest::prelude::*;

use wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::connection::tcp::{self, Segment, Side};
use crate::connection::{Followed, Stage};

const MSS: u32 = 1460;

/// One host: what it has sent and received, in the terms of RFC 9293, section 3.3.1.
#[derive(Clone, Debug)]
struct Host {
    first: u32,
    unacknowledged: u32,
    next: u32,
    /// Right edge of the window that it was offered.
    allowed: u32,
    expected: Option<u32>,
    /// Right edge of the window that it has offered: never moved back.
    offered: u32,
    scale: Option<u8>,
    /// What it multiplies a window field by.
    their_shift: u8,
    our_shift: u8,
    finished: bool,
}

impl Host {
    fn new(first: u32, scale: Option<u8>) -> Self {
        Self {
            first,
            unacknowledged: first,
            next: first,
            allowed: first,
            expected: None,
            offered: 0,
            scale,
            their_shift: 0,
            our_shift: 0,
            finished: false,
        }
    }

    fn is_open(&self) -> bool {
        self.expected.is_some() && self.unacknowledged != self.first
    }

    fn segment(&mut self, seq: u32, len: u32, flags: u8, room: u32) -> Segment {
        let syn = flags & SYN != 0;
        let shift = if syn { 0 } else { self.our_shift };
        let expected = self.expected.unwrap_or(0);
        let edge = expected.wrapping_add(room.min(0xffff << shift) >> shift << shift);
        if self.expected.is_some() && edge.wrapping_sub(self.offered) < 1 << 31 {
            self.offered = edge;
        }
        let left = self.offered.wrapping_sub(expected).min(0xffff << shift);
        let window = if self.expected.is_some() { left >> shift } else { room.min(0xffff) };
        let ack = if self.expected.is_some() { ACK } else { 0 };
        Segment {
            seq,
            ack: expected,
            window: window as u16,
            flags: flags | ack,
            len: len as u16,
            scale: if syn { self.scale } else { None },
        }
    }

    /// The first thing that it says, and says again until it is acknowledged.
    fn synchronise(&mut self, room: u32) -> Segment {
        self.next = self.first.wrapping_add(1);
        self.segment(self.first, 0, SYN, room)
    }

    /// New data, as much as is allowed; a probe when nothing is.
    fn send(&mut self, len: u32, room: u32) -> Option<Segment> {
        let left = self.allowed.wrapping_sub(self.next);
        if self.finished || left > 1 << 30 {
            return None;
        }
        let len = if left == 0 { 1 } else { len.min(left) };
        let seq = self.next;
        // A probe is sent until it is answered, so it does not count as sent here.
        if left != 0 {
            self.next = self.next.wrapping_add(len);
        }
        Some(self.segment(seq, len, 0, room))
    }

    fn send_again(&mut self, room: u32) -> Option<Segment> {
        let len = self.next.wrapping_sub(self.unacknowledged).min(MSS);
        if len == 0 || self.finished {
            return None;
        }
        Some(self.segment(self.unacknowledged, len, 0, room))
    }

    fn finish(&mut self, room: u32) -> Option<Segment> {
        if !self.finished {
            let left = self.allowed.wrapping_sub(self.next);
            if left == 0 || left > 1 << 30 {
                return None;
            }
            self.finished = true;
            self.next = self.next.wrapping_add(1);
        }
        Some(self.segment(self.next.wrapping_sub(1), 0, FIN, room))
    }

    /// Takes a segment in; what it answers.
    fn hear(&mut self, segment: &Segment, room: u32) -> Option<Segment> {
        let syn = segment.flags & SYN != 0;
        if syn && self.expected.is_some() {
            // A copy: nothing in it counts (RFC 9293, section 3.10.7.4).
            let again = self.unacknowledged == self.first;
            return Some(if again { self.synchronise(room) } else { self.segment(self.next, 0, 0, room) });
        }
        if syn {
            self.expected = Some(segment.seq.wrapping_add(1));
            self.offered = segment.seq.wrapping_add(1);
            if self.scale.is_some() && segment.scale.is_some() {
                self.our_shift = self.scale.unwrap_or(0);
                self.their_shift = segment.scale.unwrap_or(0);
            }
        }
        let expected = self.expected?;
        if segment.flags & ACK != 0 {
            let newer = segment.ack.wrapping_sub(self.unacknowledged);
            if newer <= self.next.wrapping_sub(self.unacknowledged) {
                self.unacknowledged = segment.ack;
                let shift = if syn { 0 } else { self.their_shift };
                let edge = segment.ack.wrapping_add(u32::from(segment.window) << shift);
                if edge.wrapping_sub(self.allowed) < 1 << 31 || self.allowed == self.first {
                    self.allowed = edge;
                }
            }
        }
        let room_left = self.offered.wrapping_sub(expected);
        let len = u32::from(segment.len).min(room_left);
        if !syn && segment.seq == expected {
            let fin = u32::from(segment.flags & FIN != 0 && len == u32::from(segment.len));
            self.expected = Some(expected.wrapping_add(len).wrapping_add(fin));
        }
        if syn && self.unacknowledged == self.first {
            return Some(self.synchronise(room));
        }
        let says_something = syn || segment.len > 0 || segment.flags & FIN != 0;
        says_something.then(|| self.segment(self.next, 0, 0, room))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send { who: usize, len: u32 },
    Again { who: usize },
    Deliver { which: usize, room: u32 },
    Repeat { which: usize },
    Lose { which: usize },
    Finish { who: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let room = prop_oneof![Just(0_u32), 1..3_000_u32, 0..200_000_u32, Just(1 << 29)];
    prop_oneof![
        60 => (0..2_usize, 1..MSS).prop_map(|(who, len)| Step::Send { who, len }),
        20 => (0..2_usize).prop_map(|who| Step::Again { who }),
        120 => (0..8_usize, room).prop_map(|(which, room)| Step::Deliver { which, room }),
        10 => (0..8_usize).prop_map(|which| Step::Repeat { which }),
        10 => (0..8_usize).prop_map(|which| Step::Lose { which }),
        1 => (0..2_usize).prop_map(|who| Step::Finish { who }),
    ]
}

/// The hosts, what is on its way, and the box, which stands next to host 0.
struct World {
    hosts: [Host; 2],
    way: Vec<(usize, Segment)>,
    sides: [Side; 2],
}

impl World {
    fn pass_box(&mut self, from: usize, segment: &Segment) -> Followed {
        let [a, b] = &mut self.sides;
        if from == 0 { tcp::follow(a, b, segment) } else { tcp::follow(b, a, segment) }
    }

    fn emit(&mut self, from: usize, segment: Segment) {
        if from == 0 {
            let followed = self.pass_box(0, &segment);
            assert!(is_let_through(followed), "{followed:?} {segment:?} {:?}", self.sides);
        }
        self.way.push((from, segment));
    }

    fn deliver(&mut self, which: usize, room: u32) {
        if self.way.is_empty() {
            return;
        }
        let (from, segment) = self.way.remove(which % self.way.len());
        if from == 1 {
            let followed = self.pass_box(1, &segment);
            assert!(is_let_through(followed), "{followed:?} {segment:?} {:?}", self.sides);
        }
        if let Some(answer) = self.hosts[1 - from].hear(&segment, room) {
            self.emit(1 - from, answer);
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Send { who, len } if self.hosts[who].is_open() => {
                if let Some(segment) = self.hosts[who].send(len, 64_000) {
                    self.emit(who, segment);
                }
            }
            Step::Send { who: 0, .. } | Step::Again { who: 0 }
                if self.hosts[0].unacknowledged == self.hosts[0].first =>
            {
                let syn = self.hosts[0].synchronise(60_000);
                self.emit(0, syn);
            }
            Step::Again { who } if self.hosts[who].is_open() => {
                if let Some(segment) = self.hosts[who].send_again(64_000) {
                    self.emit(who, segment);
                }
            }
            Step::Deliver { which, room } => self.deliver(which, room),
            Step::Repeat { which } if !self.way.is_empty() => {
                let copy = self.way[which % self.way.len()];
                self.way.push(copy);
            }
            Step::Lose { which } if !self.way.is_empty() => {
                let _ = self.way.remove(which % self.way.len());
            }
            Step::Finish { who } if self.hosts[who].is_open() => {
                if let Some(fin) = self.hosts[who].finish(64_000) {
                    self.emit(who, fin);
                }
            }
            _ => {}
        }
    }
}

fn is_let_through(followed: Followed) -> bool {
    matches!(followed, Followed::Same | Followed::Changed | Followed::Odd)
}

fn scale() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![Just(None), (0..=14_u8).prop_map(Some)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_proper_hosts_say_passes(
        firsts in (any::<u32>(), prop_oneof![any::<u32>(), Just(u32::MAX), Just(0), Just(1 << 31)]),
        scales in (scale(), scale()),
        steps in prop::collection::vec(step(), 1..400),
        // In the middle as well: the box may have been started anew.
        restart in prop::option::of(0..400_usize),
    ) {
        let hosts = [Host::new(firsts.0, scales.0), Host::new(firsts.1, scales.1)];
        let mut world = World { hosts, way: Vec::new(), sides: Default::default() };
        for (number, step) in steps.iter().enumerate() {
            if restart == Some(number) {
                world.sides = Default::default();
            }
            world.take(step);
        }
    }

    #[test]
    fn what_nobody_said_does_not_pass_and_changes_nothing(
        firsts in (any::<u32>(), any::<u32>()),
        scales in (scale(), scale()),
        steps in prop::collection::vec(step(), 1..200),
        far in (1_u32 << 30) + 70_000..(1 << 31) - 70_000,
    ) {
        let hosts = [Host::new(firsts.0, scales.0), Host::new(firsts.1, scales.1)];
        let mut world = World { hosts, way: Vec::new(), sides: Default::default() };
        for step in steps.iter().filter(|step| !matches!(step, Step::Finish { .. })) {
            world.take(step);
        }
        let [a, b] = world.sides;
        prop_assume!(tcp::stage(&a, &b) == Stage::Open && !a.is_silent() && !b.is_silent());
        let host = world.hosts[0].clone();
        let genuine = Segment { seq: host.next, ack: host.expected.unwrap(), window: 1, flags: ACK, len: 10, scale: None };
        for forged in [
            Segment { seq: genuine.seq.wrapping_add(far), ..genuine },
            Segment { seq: genuine.seq.wrapping_sub(far), ..genuine },
            Segment { ack: genuine.ack.wrapping_add(far), ..genuine },
            Segment { ack: genuine.ack.wrapping_sub(far), ..genuine },
            Segment { seq: genuine.seq.wrapping_add(far), flags: RST, ..genuine },
        ] {
            let (mut own, mut other) = (a, b);
            prop_assert_eq!(tcp::follow(&mut own, &mut other, &forged), Followed::OutOfWindow);
            prop_assert_eq!((own, other), (a, b));
        }
    }
}
