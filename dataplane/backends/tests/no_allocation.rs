//! A million packets through a memory port allocate nothing.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use backends::memory::{self, Pool};
use packet::{Allocator, Buf, Burst, RxQueue, TxQueue};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract of `GlobalAlloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, and `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

// The only test of this file: another one beside it would be counted too.
#[test]
fn a_million_packets_allocate_nothing() {
    const PACKETS: u64 = 1_000_000;
    let mut pool = Pool::new(128);
    let (mut io, wire) = memory::port(&pool, 64);
    let frame = [0x5a_u8; 60];
    let before = ALLOCATIONS.load(Relaxed);
    let mut received = 0;
    while received < PACKETS {
        for _ in 0..32 {
            wire.send(&frame).unwrap();
        }
        let mut burst = Burst::new();
        io.rx.receive(&mut burst);
        for buf in &mut burst {
            assert!(buf.prepend(50));
        }
        let own = pool.allocate();
        io.tx.transmit(&mut burst);
        drop(own);
        while let Some(buf) = wire.receive() {
            received += u64::from(buf.bytes().len() == 110);
        }
    }
    assert_eq!(ALLOCATIONS.load(Relaxed), before);
    assert_eq!(pool.level().free, 128);
    // The counter counts.
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.load(Relaxed), before + 1);
}
