//! A million packets through a memory port, and thousands through capture files, allocate nothing.

use std::sync::Arc;

use backends::{
    allocations::{CountingAllocator, on_this_thread},
    counts::PortCounters,
    memory::{self, Pool},
    pcap::{self, Capture, CaptureWriter, Precision, Source},
};
use packet::{Allocator, Buf, Burst, Nanos, RxQueue, TxQueue};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn through_memory(packets: u64) {
    let mut pool = Pool::new(128);
    let (mut io, wire) = memory::port(&pool, 64);
    let frame = [0x5a_u8; 60];
    let before = on_this_thread();
    let mut received = 0;
    while received < packets {
        for _ in 0..32 {
            assert!(wire.send(&frame).is_ok());
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
    assert_eq!(on_this_thread(), before);
    assert_eq!(pool.level().free, 128);
}

fn through_capture_files(packets: u64) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let (from, to) = (folder.path().join("from.pcap"), folder.path().join("to.pcap"));
    let mut writer = CaptureWriter::create(&from, Precision::Nanoseconds)?;
    for len in 0..100 {
        assert_eq!(writer.write(Nanos(0), &[7; 100][..len]), 0);
    }
    drop(writer);
    let (pool, counters) = (Pool::new(64), Arc::<PortCounters>::default());
    let source = Source { capture: Capture::load(&from)?, repeat: true };
    let writer = CaptureWriter::create(&to, Precision::Nanoseconds)?;
    let mut io = pcap::port(Some(source), Some(writer), &pool, || Nanos(0), Arc::clone(&counters))?;
    let before = on_this_thread();
    while counters.read().tx_packets < packets {
        let mut burst = Burst::new();
        io.rx.receive(&mut burst);
        io.tx.transmit(&mut burst);
    }
    assert_eq!(on_this_thread(), before);
    Ok(())
}

#[test]
fn memory_ports_allocate_nothing() {
    through_memory(1_000_000);
}

#[test]
fn capture_file_ports_allocate_nothing() {
    through_capture_files(100_000).unwrap();
}

#[test]
fn the_counter_counts() {
    let before = on_this_thread();
    let mut bytes = std::hint::black_box(Vec::<u8>::with_capacity(1));
    bytes.reserve_exact(100);
    assert_eq!(on_this_thread(), before + 2);
}
