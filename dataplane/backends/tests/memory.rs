//! Memory ports: order, bounds and lengths; buffers against a plain `Vec<u8>`; two threads.

use backends::memory::{self, HEADROOM, Level, MAX_ROOM, MemoryBuf, Pool, SendError};
use packet::{Buf, Burst, RxQueue, TxQueue};
use proptest::prelude::*;

fn full(pool: &Pool) {
    let Level { free, capacity } = pool.level();
    assert_eq!(free, capacity, "buffers leaked");
}

#[test]
fn frames_of_every_length_pass_in_order() {
    let pool = Pool::with_room(64, MAX_ROOM);
    let (mut io, wire) = memory::port(&pool, 40);
    for len in [0, 1, 13, 14, 60, 1514, MAX_ROOM] {
        let frame: Vec<u8> = (0..len).map(|i| i as u8).collect();
        wire.send(&frame).unwrap();
        let mut burst = Burst::new();
        assert_eq!(io.rx.receive(&mut burst), 1);
        assert_eq!(burst[0].bytes(), frame);
        assert_eq!(io.tx.transmit(&mut burst), 1);
        assert!(burst.is_empty());
        assert_eq!(wire.receive().unwrap().bytes(), frame);
    }
    assert!(wire.receive().is_none());
    full(&pool);
}

#[test]
fn a_full_queue_leaves_the_rest_in_the_burst_in_order() {
    let pool = Pool::new(16);
    let (mut io, wire) = memory::port(&pool, 4);
    let mut burst = Burst::new();
    for i in 0..6_u8 {
        let mut buf = pool.take().unwrap();
        assert!(buf.fill(&[i]));
        burst.push(buf);
    }
    assert_eq!(io.tx.transmit(&mut burst), 4);
    assert_eq!(burst.iter().map(|b| b.bytes()[0]).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(io.tx.transmit(&mut burst), 0);
    assert_eq!(wire.receive().unwrap().bytes(), [0]);
    assert_eq!(io.tx.transmit(&mut burst), 1);
    assert_eq!(burst.len(), 1);
    drop(burst);
    drop((io, wire));
    full(&pool);
}

#[test]
fn the_wire_says_why_it_refuses() {
    let pool = Pool::new(3);
    let (mut io, wire) = memory::port(&pool, 2);
    assert_eq!(wire.send(&[0; 2049]), Err(SendError::TooLong { len: 2049, room: 2048 }));
    wire.send(b"a").unwrap();
    wire.send(b"b").unwrap();
    assert!(!wire.can_send());
    assert_eq!(wire.send(b"c"), Err(SendError::Full { depth: 2 }));
    let mut burst = Burst::new();
    assert_eq!(io.rx.receive(&mut burst), 2);
    wire.send(b"c").unwrap();
    assert_eq!(wire.send(b"d"), Err(SendError::NoBuffer { capacity: 3 }));
    assert_eq!((wire.counts().sent, wire.counts().refused), (3, 3));
    drop((burst, io, wire));
    full(&pool);
}

#[test]
fn receive_fills_only_the_room_of_the_burst() {
    let pool = Pool::new(128);
    let (mut io, wire) = memory::port(&pool, 64);
    for i in 0..40_u8 {
        wire.send(&[i]).unwrap();
    }
    let mut burst = Burst::new();
    assert_eq!(io.rx.receive(&mut burst), 32);
    assert_eq!(io.rx.receive(&mut burst), 0);
    burst.clear();
    assert_eq!(io.rx.receive(&mut burst), 8);
    assert_eq!(burst[0].bytes(), [32]);
}

#[test]
fn a_cable_joins_two_wires() {
    let pool = Pool::new(4);
    let (left, right) = memory::cable(&pool, 2);
    left.send(b"ping").unwrap();
    assert_eq!(right.receive().unwrap().bytes(), b"ping");
    right.send(b"pong").unwrap();
    assert_eq!(left.receive().unwrap().bytes(), b"pong");
    assert!(left.receive().is_none() && right.receive().is_none());
    full(&pool);
}

#[test]
fn two_threads_lose_and_reorder_nothing() {
    const PACKETS: u32 = 100_000;
    let pool = Pool::new(256);
    let (mut io, wire) = memory::port(&pool, 64);
    let worker = std::thread::spawn(move || {
        let (mut burst, mut seen) = (Burst::new(), 0);
        while seen < PACKETS {
            seen += io.rx.receive(&mut burst) as u32;
            io.tx.transmit(&mut burst);
            std::thread::yield_now();
        }
        while !burst.is_empty() {
            io.tx.transmit(&mut burst);
            std::thread::yield_now();
        }
    });
    let (mut sent, mut received) = (0_u32, 0_u32);
    while received < PACKETS {
        if sent < PACKETS && wire.send(&sent.to_be_bytes()).is_ok() {
            sent += 1;
        }
        match wire.receive() {
            Some(buf) => {
                assert_eq!(buf.bytes(), received.to_be_bytes());
                received += 1;
            }
            None => std::thread::yield_now(),
        }
    }
    worker.join().unwrap();
    full(&pool);
}

#[derive(Clone, Debug)]
enum Op {
    Fill(Vec<u8>),
    Prepend(usize),
    Append(usize),
    TrimFront(usize),
    Truncate(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..80).prop_map(Op::Fill),
        (0..200_usize).prop_map(Op::Prepend),
        prop_oneof![0..200_usize, Just(usize::MAX)].prop_map(Op::Append),
        prop_oneof![0..200_usize, Just(usize::MAX)].prop_map(Op::TrimFront),
        prop_oneof![0..200_usize, Just(usize::MAX)].prop_map(Op::Truncate),
    ]
}

/// Applies `op` to a buffer, and to a vector with its free bytes counted in front and behind.
fn apply(op: Op, buf: &mut MemoryBuf, model: &mut Vec<u8>, front: &mut usize, back: &mut usize) {
    match op {
        Op::Fill(frame) => {
            let fits = frame.len() <= 64;
            assert_eq!(buf.fill(&frame), fits);
            if fits {
                (*front, *back) = (HEADROOM, 64 - frame.len());
                *model = frame;
            }
        }
        Op::Prepend(count) => {
            assert_eq!(buf.prepend(count), count <= *front);
            if count <= *front {
                buf.bytes_mut()[..count].fill(0xaa);
                model.splice(0..0, std::iter::repeat_n(0xaa, count));
                *front -= count;
            }
        }
        Op::Append(count) => {
            assert_eq!(buf.append(count), count <= *back);
            if count <= *back {
                let len = model.len();
                buf.bytes_mut()[len..].fill(0xbb);
                model.resize(len + count, 0xbb);
                *back -= count;
            }
        }
        Op::TrimFront(count) => {
            buf.trim_front(count);
            let count = count.min(model.len());
            model.drain(..count);
            *front += count;
        }
        Op::Truncate(len) => {
            buf.truncate(len);
            *back += model.len().saturating_sub(len);
            model.truncate(len);
        }
    }
}

proptest! {
    #[test]
    fn a_buffer_is_a_vector_with_bounds(ops in proptest::collection::vec(op(), 0..40)) {
        let pool = Pool::with_room(1, 64);
        let mut buf = pool.take().unwrap();
        let (mut model, mut front, mut back) = (Vec::new(), HEADROOM, 64);
        for op in ops {
            apply(op, &mut buf, &mut model, &mut front, &mut back);
            prop_assert_eq!(buf.bytes(), &model[..]);
            prop_assert_eq!(model.len() + front + back, HEADROOM + 64);
        }
        prop_assert!(pool.take().is_none());
        drop(buf);
        prop_assert_eq!(pool.level().free, 1);
    }
}
