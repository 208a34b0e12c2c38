//! Publication and counters on real threads, bounded by iterations.
#![cfg(not(loom))]

use proptest::prelude::*;
use quiescent::counters::Counters;
use quiescent::ring::{PopError, PushError, RingBuffer};
use quiescent::{Epoch, Publisher, Reader, SharedWords};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const PUBLICATIONS: u64 = if cfg!(miri) { 40 } else { 20_000 };
const ADDITIONS: u64 = if cfg!(miri) { 200 } else { 200_000 };

/// Says when it is dropped, and lets a reader see that it was not.
struct Tracked {
    number: u64,
    echo: u64,
    drops: Arc<AtomicUsize>,
}

impl Tracked {
    fn boxed(number: u64, drops: &Arc<AtomicUsize>) -> Box<Self> {
        Box::new(Self { number, echo: !number, drops: Arc::clone(drops) })
    }

    fn number(&self) -> u64 {
        assert_eq!(self.number, !self.echo, "torn or freed");
        self.number
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.number();
        self.echo = self.number;
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn publisher() -> (Publisher<Tracked>, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    (Publisher::new(Tracked::boxed(1, &drops)), drops)
}

fn dropped(drops: &AtomicUsize) -> usize {
    drops.load(Ordering::Relaxed)
}

#[test]
fn two_workers_under_a_stream_of_publications() {
    let (mut publisher, drops) = publisher();
    let readers = [publisher.reader(), publisher.reader()];
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for (worker, mut reader) in readers.into_iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                let mut last = 0;
                for round in 0_u64.. {
                    let number = reader.load().number();
                    assert!(number >= last, "never an older value than before");
                    last = number;
                    if worker == 1 && round % 7 == 0 {
                        reader.offline();
                    }
                    if done.load(Ordering::Relaxed) && number == PUBLICATIONS {
                        break;
                    }
                }
            });
        }
        for number in 2..=PUBLICATIONS {
            assert_eq!(publisher.publish(Tracked::boxed(number, &drops)), Epoch(number));
            publisher.reclaim();
            assert!(publisher.acknowledged() <= Epoch(number));
        }
        done.store(true, Ordering::Relaxed);
    });
    publisher.reclaim();
    assert_eq!((publisher.waiting(), dropped(&drops) as u64), (0, PUBLICATIONS - 1));
    drop(publisher);
    assert_eq!(dropped(&drops) as u64, PUBLICATIONS);
}

#[test]
fn a_value_is_held_while_other_fields_change() {
    struct Worker {
        program: Reader<Tracked>,
        packets: u64,
    }
    let (mut publisher, drops) = publisher();
    let mut worker = Worker { program: publisher.reader(), packets: 0 };
    let program = worker.program.load();
    publisher.publish(Tracked::boxed(2, &drops));
    worker.packets += 1;
    assert_eq!((publisher.reclaim(), program.number(), worker.packets), (0, 1, 1));
    assert_eq!(worker.program.load().number(), 2);
    assert_eq!((publisher.reclaim(), dropped(&drops)), (1, 1));
}

#[test]
fn a_stuck_reader_is_named_and_holds_up_reclaim_until_it_moves() {
    let (mut publisher, drops) = publisher();
    let (mut stuck, mut lively, idle) = (publisher.reader(), publisher.reader(), publisher.reader());
    stuck.load();
    lively.load();
    publisher.publish(Tracked::boxed(2, &drops));
    publisher.publish(Tracked::boxed(3, &drops));
    lively.load();
    assert_eq!(
        (publisher.acknowledged(), publisher.epoch(), publisher.current().number()),
        (Epoch(1), Epoch(3), 3)
    );
    let expected = vec![(stuck.id(), Some(Epoch(1))), (lively.id(), Some(Epoch(3))), (idle.id(), None)];
    assert_eq!(publisher.readers(), expected);
    assert_eq!((publisher.reclaim(), publisher.waiting()), (0, 2));
    stuck.load();
    assert_eq!((publisher.acknowledged(), publisher.reclaim(), dropped(&drops)), (Epoch(3), 2, 2));
}

#[test]
fn offline_and_dropped_readers_hold_up_nothing() {
    let (mut publisher, drops) = publisher();
    let (mut away, mut gone) = (publisher.reader(), publisher.reader());
    away.load();
    gone.load();
    publisher.publish(Tracked::boxed(2, &drops));
    away.offline();
    assert_eq!(publisher.reclaim(), 0, "the other one still reads");
    drop(gone);
    assert_eq!((publisher.reclaim(), publisher.readers()), (1, vec![(away.id(), None)]));
    assert_eq!(away.load().number(), 2);
}

#[test]
fn whoever_is_last_frees_the_rest() {
    let (mut publisher, drops) = publisher();
    let mut reader = publisher.reader();
    let value = reader.load();
    publisher.publish(Tracked::boxed(2, &drops));
    publisher.publish(Tracked::boxed(3, &drops));
    drop(publisher);
    assert_eq!((value.number(), dropped(&drops)), (1, 0));
    assert_eq!(reader.load().number(), 3);
    drop(reader);
    assert_eq!(dropped(&drops), 3);
}

#[derive(Clone, Debug)]
enum Op {
    Publish,
    Reclaim,
    Load(usize),
    Offline(usize),
    Replace(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Publish),
        2 => Just(Op::Reclaim),
        4 => (0..3_usize).prop_map(Op::Load),
        1 => (0..3_usize).prop_map(Op::Offline),
        1 => (0..3_usize).prop_map(Op::Replace),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Against a model that keeps, of each reader, the epoch it holds: exactly what is older than all of them is freed.
    #[test]
    #[cfg_attr(miri, ignore = "proptest takes minutes there; the tests around it run")]
    fn reclaim_frees_exactly_what_nobody_can_see(ops in prop::collection::vec(op(), 1..60)) {
        let (mut publisher, drops) = publisher();
        let mut readers = [publisher.reader(), publisher.reader(), publisher.reader()];
        let mut held = [None; 3];
        let (mut newest, mut freed) = (1_u64, 0);
        for op in ops {
            match op {
                Op::Publish => {
                    newest += 1;
                    publisher.publish(Tracked::boxed(newest, &drops));
                }
                Op::Reclaim => {
                    publisher.reclaim();
                    freed = freed.max(held.iter().flatten().min().unwrap_or(&newest) - 1);
                }
                Op::Load(n) => {
                    prop_assert_eq!(readers[n].load().number(), newest);
                    held[n] = Some(newest);
                }
                Op::Offline(n) => {
                    readers[n].offline();
                    held[n] = None;
                }
                Op::Replace(n) => {
                    readers[n] = publisher.reader();
                    held[n] = None;
                }
            }
            prop_assert_eq!(dropped(&drops) as u64, freed);
            prop_assert_eq!(publisher.acknowledged().0, *held.iter().flatten().min().unwrap_or(&newest));
            prop_assert_eq!(publisher.waiting() as u64, newest - 1 - freed);
        }
        drop((publisher, readers));
        prop_assert_eq!(dropped(&drops) as u64, newest);
    }
}

#[test]
fn counters_are_read_while_they_count() {
    let (writer, reader) = Counters::new(3, 5);
    thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..ADDITIONS {
                writer.add(1, 0, 1);
                writer.add(2, 4, n & 1);
            }
        });
        let mut last = [0; 5];
        while last[0] < ADDITIONS {
            let mut now = [0; 5];
            reader.row_into(1, &mut now);
            assert!(now[0] >= last[0] && now[1..] == [0; 4]);
            last = now;
        }
    });
    assert_eq!((reader.get(1, 0), reader.get(2, 4), reader.get(0, 0)), (ADDITIONS, ADDITIONS / 2, 0));
    assert_eq!((reader.rows(), reader.columns(), reader.overflow()), (3, 5, 0));
}

#[test]
fn counters_out_of_range_read_as_zero_and_touch_no_other_cell() {
    let (writer, reader) = Counters::new(2, 9);
    writer.add(1, 8, u64::MAX);
    writer.add(1, 8, 2);
    assert_eq!(
        (reader.get(1, 8), reader.get(2, 0), reader.get(0, 9), reader.get(usize::MAX, 0)),
        (1, 0, 0, 0)
    );
    let mut row = [7; 12];
    reader.row_into(1, &mut row);
    assert_eq!(row, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.add(0, 9, 5)));
    assert_eq!(
        (outcome.is_err(), reader.overflow()),
        if cfg!(debug_assertions) { (true, 0) } else { (false, 5) }
    );
    assert_eq!((0..9).map(|column| reader.get(0, column)).sum::<u64>(), 0);
}

#[test]
fn an_empty_block_has_an_overflow_cell_only() {
    let (_writer, reader) = Counters::new(0, 0);
    assert_eq!((reader.get(0, 0), reader.overflow()), (0, 0));
}

#[test]
fn words_are_shared_and_bounded() {
    let words = Arc::new(SharedWords::new(2));
    let mut copy = [7; 3];
    assert_eq!((words.stamp(), words.copy(&mut copy)), (0, None), "nothing was ever stored");
    let theirs = Arc::clone(&words);
    thread::scope(|scope| {
        scope.spawn(move || theirs.replace(5, [0x0200_0000_0001, 2, 3]));
    });
    assert_eq!((words.load(0), words.load(1), words.load(2), words.len()), (0x0200_0000_0001, 2, 0, 2));
    assert_eq!((words.stamp(), words.copy(&mut copy), copy), (5, Some(5), [0x0200_0000_0001, 2, 0]));
    words.replace(6, [9]);
    assert_eq!((words.copy(&mut copy), copy, words.is_empty()), (Some(6), [9, 0, 0], false));
}

#[test]
fn words_of_two_replacements_are_never_copied_together() {
    let words = SharedWords::new(3);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (words, done) = (&words, &done);
        scope.spawn(move || {
            (1..=ADDITIONS).for_each(|number| words.replace(number, [number; 3]));
            done.store(true, Ordering::Release);
        });
        let (mut copy, mut last) = ([0; 3], 0);
        while !done.load(Ordering::Acquire) {
            if let Some(stamp) = words.copy(&mut copy) {
                assert!(copy == [stamp; 3] && last <= stamp, "{copy:?} under {stamp} after {last}");
                last = stamp;
            }
        }
        assert_eq!((words.copy(&mut copy), copy), (Some(ADDITIONS), [ADDITIONS; 3]));
    });
}

#[test]
fn a_full_ring_hands_the_command_back() {
    let (mut commands, mut worker) = RingBuffer::new(1);
    assert_eq!(commands.push(1), Ok(()));
    assert_eq!(commands.push(2), Err(PushError::Full(2)));
    assert_eq!((worker.pop(), worker.pop()), (Ok(1), Err(PopError::Empty)));
    drop(commands);
    assert!(worker.is_abandoned());
}
