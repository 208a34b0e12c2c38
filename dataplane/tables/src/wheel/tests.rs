//! The wheels and a map that is scanned: they must agree, within a tick, on what is due and when.

use std::collections::HashMap;

use packet::Nanos;
use proptest::prelude::*;

use super::{Link, Timed, Wheels};

const TICK: u64 = 1 << 20;

#[derive(Clone)]
struct Item(Link);

impl Timed for Item {
    fn link(&self) -> Link {
        self.0
    }

    fn set_link(&mut self, link: Link) {
        self.0 = link;
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Due so long after the time that the clock shows.
    Schedule {
        item: u32,
        wheel: usize,
        after: u64,
    },
    Cancel {
        item: u32,
    },
    /// The clock moves, perhaps back, and everything that has come is taken out.
    Clock {
        step: i64,
    },
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![0..4 * TICK, 0..300 * TICK, 0..(TICK << 13), 0..(TICK << 19), 0..(TICK << 25)]
}

fn op(items: u32) -> impl Strategy<Value = Op> {
    let step = prop_oneof![3 => span().prop_map(|span| span as i64), 1 => span().prop_map(|span| -(span as i64 / 2))];
    prop_oneof![
        5 => (0..items, 0..2_usize, prop_oneof![9 => span(), 1 => Just(u64::MAX / 2)]).prop_map(|(item, wheel, after)| Op::Schedule { item, wheel, after }),
        1 => (0..items).prop_map(|item| Op::Cancel { item }),
        3 => step.prop_map(|step| Op::Clock { step }),
    ]
}

struct Pair {
    wheels: Wheels,
    items: Vec<Item>,
    due: HashMap<u32, (usize, u64)>,
    now: u64,
}

impl Pair {
    fn new(items: u32, now: u64) -> Self {
        let items = vec![Item(Link::NONE); items as usize];
        Self { wheels: Wheels::new(2), items, due: HashMap::new(), now }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Schedule { item, wheel, after } => {
                if let Some((old, _)) = self.due.insert(item, (wheel, self.now.saturating_add(after)))
                    && old != wheel
                {
                    self.wheels.cancel(old, &mut self.items, item);
                }
                self.wheels.wind(wheel, Nanos(self.now));
                self.wheels.schedule(wheel, &mut self.items, item, Nanos(self.now.saturating_add(after)));
            }
            Op::Cancel { item } => {
                if let Some((wheel, _)) = self.due.remove(&item) {
                    self.wheels.cancel(wheel, &mut self.items, item);
                }
                assert!(!self.items[item as usize].0.is_in());
            }
            Op::Clock { step } => {
                self.now = self.now.saturating_add_signed(step);
                self.take_due(0, step.unsigned_abs());
                self.take_due(1, step.unsigned_abs());
            }
        }
    }

    /// As an owner does: what comes out before its time goes back in.
    fn take_due(&mut self, wheel: usize, step: u64) {
        let mut looks = 0;
        // At its level and at each finer one, and whenever the last level has gone round.
        let most = (6 + (step / (TICK << 23)) as usize) * self.items.len();
        while let Some(item) = self.wheels.due(wheel, &mut self.items, Nanos(self.now)) {
            let (of, at) = self.due[&item];
            assert_eq!(of, wheel);
            if at <= self.now {
                self.due.remove(&item);
            } else {
                self.wheels.schedule(wheel, &mut self.items, item, Nanos(at));
            }
            looks += 1;
            assert!(looks <= most, "{looks} looks");
        }
        // Nothing is left that came more than a tick ago.
        let late = |(of, at): &(usize, u64)| *of == wheel && *at + 2 * TICK <= self.now;
        assert!(!self.due.values().any(late), "{:?} at {}", self.due, self.now);
    }

    fn check(&self) {
        for wheel in 0..2 {
            let inside = self.due.values().filter(|(of, _)| *of == wheel).count();
            assert_eq!(self.wheels.is_empty(wheel), inside == 0);
            assert_eq!(self.wheels.first(wheel).is_some(), inside > 0);
        }
        for (number, item) in self.items.iter().enumerate() {
            assert_eq!(item.0.is_in(), self.due.contains_key(&(number as u32)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    #[test]
    fn agrees_with_a_map_that_is_scanned(
        start in prop_oneof![Just(0_u64), (0..1_u64 << 62), Just((TICK << 24) - 1)],
        ops in (1..40_u32).prop_flat_map(|items| (Just(items), prop::collection::vec(op(items), 1..300))),
    ) {
        let mut pair = Pair::new(ops.0, start);
        for op in &ops.1 {
            pair.apply(op);
            pair.check();
        }
    }
}

#[test]
fn items_of_one_slot_come_out_in_the_order_in_which_they_went_in() {
    let mut wheels = Wheels::new(1);
    let mut items = vec![Item(Link::NONE); 10];
    for item in [3, 1, 4, 5, 9, 2, 6] {
        wheels.schedule(0, &mut items, item, Nanos(50 * TICK));
    }
    wheels.cancel(0, &mut items, 4);
    wheels.cancel(0, &mut items, 3);
    assert_eq!(wheels.due(0, &mut items, Nanos(49 * TICK)), None);
    let out: Vec<u32> = std::iter::from_fn(|| wheels.due(0, &mut items, Nanos(60 * TICK))).collect();
    assert_eq!(out, [1, 5, 9, 2, 6]);
}

/// A pause of a century, as after a suspend: one look at each item, not one at each slot that has gone by.
#[test]
fn a_jump_costs_what_there_is_to_look_at() {
    let mut wheels = Wheels::new(1);
    let mut items = vec![Item(Link::NONE); 3];
    for (item, at) in [(0, 5), (1, 70_000), (2, 1 << 40)] {
        wheels.schedule(0, &mut items, item, Nanos(at * TICK));
    }
    let century = Nanos(100 * 365 * 86_400 * 1_000_000_000);
    let out: Vec<u32> = std::iter::from_fn(|| wheels.due(0, &mut items, century)).collect();
    assert_eq!(out, [0, 1, 2]);
    // And back: what was put in then, and what is put in now, is looked at in its time by the clock as it is.
    wheels.schedule(0, &mut items, 1, Nanos(century.0 + 5 * TICK));
    assert_eq!(wheels.due(0, &mut items, Nanos(5 * TICK)), None);
    wheels.schedule(0, &mut items, 0, Nanos(10 * TICK));
    wheels.schedule(0, &mut items, 1, Nanos(40 * TICK));
    assert_eq!(wheels.due(0, &mut items, Nanos(9 * TICK)), None);
    assert_eq!(wheels.due(0, &mut items, Nanos(12 * TICK)), Some(0));
    assert_eq!(wheels.due(0, &mut items, Nanos(39 * TICK)), None);
    assert_eq!(wheels.due(0, &mut items, Nanos(42 * TICK)), Some(1));
}
