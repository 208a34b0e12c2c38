//! Models of the protocols, run through every interleaving that loom knows of.
//!
//! A tracked value notes in a loom cell that it was read or dropped, so loom reports a drop that does not happen after
//! every read: the use after free that the protocol is there to rule out.

use crate::publish::{Publisher, Reader};
use crate::{SharedWords, counters::Counters};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

struct Tracked {
    number: UnsafeCell<u64>,
    drops: StdArc<AtomicUsize>,
}

// SAFETY: `number` is written only by drop; loom checks that no read is concurrent with it.
unsafe impl Sync for Tracked {}

impl Tracked {
    fn boxed(number: u64, drops: &StdArc<AtomicUsize>) -> Box<Self> {
        Box::new(Self { number: UnsafeCell::new(number), drops: StdArc::clone(drops) })
    }

    fn number(&self) -> u64 {
        // SAFETY: nobody writes while `self` is borrowed.
        self.number.with(|number| unsafe { *number })
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        // SAFETY: drop has the value to itself.
        self.number.with_mut(|number| unsafe { *number = u64::MAX });
        self.drops.fetch_add(1, SeqCst);
    }
}

/// Runs a model and checks that exactly `values` were dropped at the end of each interleaving.
fn model(values: usize, check: impl Fn(Publisher<Tracked>, StdArc<AtomicUsize>) + Send + Sync + 'static) {
    bounded_model(values, None, check);
}

/// As [`model`], but a thread that could go on is interrupted at most `preemptions` times.
fn bounded_model(
    values: usize,
    preemptions: Option<usize>,
    check: impl Fn(Publisher<Tracked>, StdArc<AtomicUsize>) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let drops = StdArc::new(AtomicUsize::new(0));
        check(Publisher::new(Tracked::boxed(1, &drops)), StdArc::clone(&drops));
        assert_eq!(drops.load(SeqCst), values, "every published value is dropped once");
    });
}

fn read(reader: &mut Reader<Tracked>) -> u64 {
    let value = reader.load();
    let number = value.number();
    assert_eq!(number, reader.epoch().0, "a value and its epoch stay together");
    number
}

#[test]
fn loom_a_value_in_use_is_not_freed() {
    model(3, |mut publisher, drops| {
        let mut reader = publisher.reader();
        let worker = thread::spawn(move || {
            let first = read(&mut reader);
            let second = read(&mut reader);
            assert!(first <= second, "never an older value than before");
        });
        for number in 2..=3 {
            publisher.publish(Tracked::boxed(number, &drops));
            publisher.reclaim();
        }
        worker.join().unwrap();
    });
}

#[test]
fn loom_coming_online_races_with_reclaim() {
    model(2, |mut publisher, drops| {
        let mut reader = publisher.reader();
        let worker = thread::spawn(move || {
            read(&mut reader);
            reader.offline();
            read(&mut reader);
        });
        publisher.publish(Tracked::boxed(2, &drops));
        publisher.reclaim();
        worker.join().unwrap();
        publisher.reclaim();
        assert_eq!((drops.load(SeqCst), publisher.waiting()), (1, 0), "nobody is left to wait for");
    });
}

#[test]
fn loom_two_readers_hold_up_the_publisher_each() {
    // Three threads have too many interleavings to try them all in seconds.
    bounded_model(2, Some(2), |mut publisher, drops| {
        let readers = [publisher.reader(), publisher.reader()];
        let workers = readers.map(|mut reader| thread::spawn(move || read(&mut reader)));
        publisher.publish(Tracked::boxed(2, &drops));
        publisher.reclaim();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn loom_the_publisher_may_go_first() {
    model(2, |mut publisher, drops| {
        let mut reader = publisher.reader();
        let worker = thread::spawn(move || {
            read(&mut reader);
            read(&mut reader);
        });
        publisher.publish(Tracked::boxed(2, &drops));
        drop(publisher);
        worker.join().unwrap();
    });
}

#[test]
fn loom_acknowledged_means_in_force() {
    model(2, |mut publisher, drops| {
        let mut reader = publisher.reader();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&acknowledged);
        let worker = thread::spawn(move || {
            read(&mut reader);
            let floor = seen.load(Ordering::Relaxed);
            assert!(read(&mut reader) >= floor, "acknowledged, and yet an older value was loaded");
        });
        publisher.publish(Tracked::boxed(2, &drops));
        acknowledged.store(publisher.acknowledged().0, Ordering::Relaxed);
        worker.join().unwrap();
    });
}

#[test]
fn loom_a_counter_never_goes_back() {
    loom::model(|| {
        let (writer, reader) = Counters::new(1, 1);
        let worker = thread::spawn(move || {
            writer.add(0, 0, 1);
            writer.add(0, 0, 1);
        });
        let (first, second) = (reader.get(0, 0), reader.get(0, 0));
        assert!(first <= second && second <= 2);
        worker.join().unwrap();
        assert_eq!(reader.get(0, 0), 2);
    });
}

#[test]
fn loom_words_are_copied_of_one_stamp() {
    loom::model(|| {
        let words = Arc::new(SharedWords::new(2));
        words.replace(1, [1, 1]);
        let theirs = Arc::clone(&words);
        let writer = thread::spawn(move || theirs.replace(2, [2, 2]));
        let mut copy = [0; 2];
        if let Some(stamp) = words.copy(&mut copy) {
            assert_eq!(copy, [stamp; 2]);
        }
        writer.join().unwrap();
        assert_eq!((words.copy(&mut copy), copy), (Some(2), [2, 2]));
    });
}
