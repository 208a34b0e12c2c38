//! Capture files: what is written is read back by someone else's parser, and damaged files are named.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::{
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use backends::{
    counts::PortCounters,
    memory::Pool,
    pcap::{self, Capture, CaptureWriter, PcapError, Precision, Source},
};
use packet::{Buf, Burst, Nanos, PortIo, RxQueue, TxQueue};
use pcap_parser::{LegacyPcapSlice, PcapBlockOwned};
use proptest::prelude::*;

fn clock() -> Nanos {
    Nanos(1_700_000_000_123_456_789)
}

fn write(path: &Path, precision: Precision, frames: &[Vec<u8>]) {
    let mut writer = CaptureWriter::create(path, precision).unwrap();
    for frame in frames {
        assert_eq!(writer.write(clock(), frame), 0);
    }
}

fn port(
    rx: Option<(Capture, bool)>,
    tx: Option<&Path>,
    pool: &Pool,
) -> (PortIo<pcap::PcapBackend>, Arc<PortCounters>) {
    let counters = Arc::<PortCounters>::default();
    let source = rx.map(|(capture, repeat)| Source { capture, repeat });
    let writer = tx.map(|path| CaptureWriter::create(path, Precision::Nanoseconds).unwrap());
    (pcap::port(source, writer, pool, clock, Arc::clone(&counters)).unwrap(), counters)
}

/// Sends all that the port receives out of it again.
fn forward(io: &mut PortIo<pcap::PcapBackend>) {
    while !io.rx.is_finished() {
        let mut burst = Burst::new();
        assert!(io.rx.receive(&mut burst) > 0);
        io.tx.transmit(&mut burst);
        assert!(burst.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_capture_forwarded_is_the_same_capture(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2049), 0..80),
        micros in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from.pcap"), folder.path().join("to.pcap"));
        write(&from, if micros { Precision::Microseconds } else { Precision::Nanoseconds }, &frames);
        let pool = Pool::new(32);
        let (mut io, counters) = port(Some((Capture::load(&from).unwrap(), false)), Some(&to), &pool);
        forward(&mut io);
        drop(io);
        let copy = Capture::load(&to).unwrap();
        prop_assert_eq!(copy.frames().collect::<Vec<_>>(), frames.iter().map(Vec::as_slice).collect::<Vec<_>>());
        prop_assert_eq!(copy.truncated(), 0);
        let counts = counters.read();
        prop_assert_eq!((counts.rx_packets, counts.tx_packets, counts.tx_errors),
            (frames.len() as u64, frames.len() as u64, 0));
        prop_assert_eq!(counts.rx_bytes, counts.tx_bytes);
        prop_assert_eq!(pool.level().free, 32);
    }

    #[test]
    fn hostile_files_never_panic(
        ng in any::<bool>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut content = if ng { pcapng() } else { pcap_be() };
        for (index, byte) in edits {
            let at = index.index(content.len());
            content[at] = byte;
        }
        content.truncate(cut.index(content.len() + 1));
        let _ = Capture::parse("hostile", &content);
    }
}

#[test]
fn the_header_and_the_time_are_what_the_format_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    for (precision, magic, fraction) in
        [(Precision::Microseconds, 0xa1b2_c3d4, 123_456), (Precision::Nanoseconds, 0xa1b2_3c4d, 123_456_789)]
    {
        write(&path, precision, &[b"frame".to_vec()]);
        let content = std::fs::read(&path).unwrap();
        let mut slice = LegacyPcapSlice::from_slice(&content).unwrap();
        assert_eq!((slice.header.magic_number, slice.header.network.0), (magic, 1));
        assert_eq!((slice.header.version_major, slice.header.version_minor), (2, 4));
        let Some(Ok(PcapBlockOwned::Legacy(block))) = slice.next() else { panic!("no packet") };
        assert_eq!((block.ts_sec, block.ts_usec), (1_700_000_000, fraction));
        assert_eq!((block.caplen, block.origlen, block.data), (5, 5, &b"frame"[..]));
        assert!(slice.next().is_none());
    }
}

/// A big-endian microsecond file of two packets, the second one truncated.
fn pcap_be() -> Vec<u8> {
    let mut file = Vec::new();
    for field in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 1, 1, 2, 4, 4, 0x0102_0304, 1, 3, 2, 90] {
        file.extend(field.to_be_bytes());
    }
    file.extend([5, 6]);
    file
}

/// A little-endian pcapng file: one interface with snapshot length 6, an enhanced and a simple packet.
fn pcapng() -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let len = (body.len() + 12) as u32;
        for part in [&kind.to_le_bytes()[..], &len.to_le_bytes(), body, &len.to_le_bytes()] {
            file.extend(part);
        }
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    block(1, &words(&[1, 6]));
    block(6, &[&words(&[0, 0, 0, 5, 5])[..], &[1, 2, 3, 4, 5, 0, 0, 0]].concat());
    block(3, &[&words(&[60])[..], &[1, 2, 3, 4, 5, 6, 0, 0]].concat());
    file
}

#[test]
fn other_writers_formats_are_read() {
    let capture = Capture::parse("be", &pcap_be()).unwrap();
    assert_eq!(capture.frames().collect::<Vec<_>>(), [&[1, 2, 3, 4][..], &[5, 6]]);
    assert_eq!(capture.truncated(), 1);
    let capture = Capture::parse("ng", &pcapng()).unwrap();
    assert_eq!(capture.frames().collect::<Vec<_>>(), [&[1, 2, 3, 4, 5][..], &[1, 2, 3, 4, 5, 6]]);
    assert_eq!(capture.truncated(), 1);
}

#[test]
fn errors_name_file_and_packet() {
    let message = |content: &[u8]| Capture::parse("some.pcap", content).unwrap_err().to_string();
    let whole = pcap_be();
    assert_eq!(message(&whole[..whole.len() - 1]), "some.pcap: damaged at packet 2 (the first is 1)");
    assert_eq!(message(&whole[..30]), "some.pcap: damaged at packet 1 (the first is 1)");
    let whole = pcapng();
    assert_eq!(message(&whole[..whole.len() - 1]), "some.pcap: damaged at packet 2 (the first is 1)");
    for content in [&b""[..], b"#!/bin/sh\n", &[0; 64]] {
        assert_eq!(message(content), "some.pcap is not a pcap or pcapng file");
    }
    let mut raw_ip = pcap_be();
    raw_ip[23] = 101;
    assert!(message(&raw_ip).contains("packet 1 is of link type 101"));
    let missing = Capture::load(Path::new("no/such.pcap")).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read no/such.pcap: "));
    let folder = CaptureWriter::create(Path::new("no/such.pcap"), Precision::Nanoseconds).unwrap_err();
    assert!(folder.to_string().starts_with("cannot create no/such.pcap: "));
}

#[test]
fn a_packet_longer_than_a_buffer_is_refused_at_open() {
    let capture = Capture::parse("be", &pcap_be()).unwrap();
    let source = Some(Source { capture, repeat: false });
    let error = pcap::port(source, None, &Pool::with_room(1, 3), clock, Arc::default()).err();
    assert!(matches!(error, Some(PcapError::TooLong { packet: 1, len: 4, room: 3, .. })));
}

#[test]
fn a_loop_starts_again_and_stops_at_the_end_of_the_pool() {
    let pool = Pool::new(5);
    let (mut io, counters) = port(Some((Capture::parse("be", &pcap_be()).unwrap(), true)), None, &pool);
    let mut burst = Burst::new();
    assert_eq!(io.rx.receive(&mut burst), 5);
    assert_eq!(burst.iter().map(|buf| buf.bytes().len()).collect::<Vec<_>>(), [4, 2, 4, 2, 4]);
    assert_eq!(counters.read().rx_no_buffer, 1);
    burst.clear();
    io.rx.receive(&mut burst);
    assert_eq!(burst[0].bytes(), [5, 6]);
    assert!(!io.rx.is_finished());
    // Without a file to write, packets are discarded.
    assert_eq!(io.tx.transmit(&mut burst), 5);
    assert_eq!(pool.level().free, 5);
}

#[test]
fn packets_lost_to_a_write_error_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let reader = options.read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let pool = Pool::new(4);
    let (mut io, counters) =
        port(Some((Capture::parse("be", &pcap_be()).unwrap(), false)), Some(&path), &pool);
    drop(reader);
    forward(&mut io);
    assert_eq!((counters.read().tx_packets, counters.read().tx_errors), (2, 0));
    io.tx.flush();
    assert_eq!((counters.read().tx_packets, counters.read().tx_errors), (2, 2));
}

#[test]
fn a_full_disk_leaves_whole_packets() {
    let thread = std::thread::spawn(|| {
        use nix::{mount, sched};
        let flags = mount::MsFlags::MS_REC | mount::MsFlags::MS_PRIVATE;
        let folder = tempfile::tempdir().unwrap();
        let none = None::<&str>;
        let small = sched::unshare(sched::CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount::mount(none, "/", none, flags, none))
            .and_then(|()| {
                mount::mount(none, folder.path(), Some("tmpfs"), mount::MsFlags::empty(), Some("size=128k"))
            });
        if let Err(errno) = small {
            return println!("skipped: cannot mount a small file system ({errno}); run it as root");
        }
        let path = folder.path().join("x.pcap");
        let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).unwrap();
        let mut lost: usize = (0..1_000).map(|_| writer.write(clock(), &[7; 1_000])).sum();
        lost += writer.flush();
        assert!(lost > 0);
        let capture = Capture::load(&path).unwrap();
        assert_eq!(capture.len() + lost, 1_000);
        assert!(capture.frames().all(|frame| frame == [7; 1_000]));
        drop(writer);
        mount::umount(folder.path()).unwrap();
    });
    thread.join().unwrap();
}

/// The corpus beside the checkout, or where FLOODWAY_CORPUS says.
fn corpus() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FLOODWAY_CORPUS") {
        return Some(path.into());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|folder| folder.join("shared/corpus")).find(|path| path.is_dir())
}

#[test]
fn every_capture_of_the_corpus_is_read_or_refused_in_words() {
    let Some(corpus) = corpus() else { return println!("skipped: no shared/corpus beside the checkout") };
    let (mut read, mut packets) = (0, 0);
    for folder in ["pcap", "pcap_made"] {
        for entry in std::fs::read_dir(corpus.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if !path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng") {
                continue;
            }
            match Capture::load(&path) {
                Ok(capture) => {
                    read += 1;
                    packets += capture.len();
                }
                Err(error) => println!("{error}"),
            }
        }
    }
    println!("{read} captures, {packets} packets");
    assert!(read > 20 && packets > 1_000);
}
