//! Device strings: what they open, and what is said about wrong ones.

use backends::{
    host::{self, HostRx, OpenError},
    memory::Pool,
    pcap::{CaptureWriter, Precision},
};
use packet::{Buf, Burst, Nanos, RxQueue, TxQueue};

#[test]
fn memory_ports_have_a_wire_and_a_steady_mac() {
    let pool = Pool::new(8);
    let mut red = host::open("memory:red", 1500, &pool).unwrap();
    let blue = host::open("memory:blue", 1500, &pool).unwrap();
    let again = host::open("memory:red", 1500, &pool).unwrap();
    assert_eq!(red.facts, again.facts);
    assert_ne!(red.facts.mac, blue.facts.mac);
    assert_eq!(red.facts.mac.0[0], 2);
    let wire = red.wire.unwrap();
    wire.send(b"hello").unwrap();
    let mut burst = Burst::new();
    assert_eq!(red.io.rx.receive(&mut burst), 1);
    assert_eq!(red.io.tx.transmit(&mut burst), 1);
    assert_eq!(wire.receive().unwrap().bytes(), b"hello");
    let counts = red.counters.read();
    assert_eq!((counts.rx_packets, counts.rx_bytes, counts.tx_packets, counts.tx_bytes), (1, 5, 1, 5));
    assert_eq!(pool.level().free, 8);
}

#[test]
fn capture_files_open_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("1.pcap"), folder.path().join("2.pcap"));
    let pool = Pool::new(8);
    let mut writer = host::open(&format!("pcap:tx={}", first.display()), 1500, &pool).unwrap();
    let mut burst = Burst::new();
    let mut buf = pool.take().unwrap();
    assert!(buf.fill(b"frame"));
    burst.push(buf);
    assert_eq!(writer.io.tx.transmit(&mut burst), 1);
    drop(writer);
    let device = format!("pcap:rx={},tx={},loop", first.display(), second.display());
    let mut port = host::open(&device, 1500, &pool).unwrap();
    assert_eq!(port.io.rx.receive(&mut burst), 8);
    assert!(burst.iter().all(|buf| buf.bytes() == b"frame"));
    assert!(matches!(&port.io.rx, HostRx::Pcap(rx) if !rx.is_finished()));
    drop(burst);
    assert_eq!(pool.level().free, 8);
}

#[test]
fn wrong_devices_are_named_with_what_to_write() {
    let pool = Pool::new(1);
    let error = |device: &str| host::open(device, 1500, &pool).err().unwrap();
    for device in ["", "eth0", "memory", "tun:x", ":"] {
        assert!(matches!(error(device), OpenError::Unknown { .. }), "{device}");
    }
    assert!(matches!(error("dpdk:net_null0"), OpenError::Dpdk { .. }));
    for (device, problem) in [
        ("pcap:", "\"\" is not understood"),
        ("pcap:rx=", "rx names no file"),
        ("pcap:loop", "it names neither rx nor tx"),
        ("pcap:tx=a,loop", "there is no rx to loop over"),
        ("pcap:rx=a,rx=b", "\"rx=b\" is the second of its kind"),
        ("pcap:rx=a,tx=a", "rx and tx are the same file"),
        ("pcap:rx=a,speed=1", "\"speed=1\" is not understood"),
    ] {
        let text = error(device).to_string();
        assert!(text.contains(problem) && text.contains("write pcap:rx=<file>"), "{text}");
    }
    assert!(matches!(error("pcap:rx=no/such.pcap"), OpenError::File(_)));
    assert!(matches!(error("tap:a/b"), OpenError::Tap(_)));
}

#[test]
fn a_failed_open_leaves_the_file_to_write_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (long, kept) = (folder.path().join("long.pcap"), folder.path().join("kept.pcap"));
    let mut writer = CaptureWriter::create(&long, Precision::Microseconds).unwrap();
    assert_eq!(writer.write(Nanos(0), &[0; 65]), 0);
    drop(writer);
    std::fs::write(&kept, b"kept").unwrap();
    let device = format!("pcap:rx={},tx={}", long.display(), kept.display());
    let error = host::open(&device, 1500, &Pool::with_room(1, 64)).err().unwrap();
    assert!(error.to_string().ends_with("packet 1 has 65 bytes, a packet buffer has 64"), "{error}");
    assert_eq!(std::fs::read(&kept).unwrap(), b"kept");
}
