//! The captures beside the checkout: `shared/corpus`, or where FLOODWAY_CORPUS points.
#![allow(dead_code, reason = "each test binary uses its own part")]

use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::{
    env, fs,
    io::Cursor,
    path::{Path, PathBuf},
};

/// One capture's Ethernet frames.
pub struct Capture {
    pub name: String,
    pub frames: Vec<Vec<u8>>,
}

/// The corpus, or `None` with a printed reason to skip.
pub fn dir() -> Option<PathBuf> {
    let found = match env::var_os("FLOODWAY_CORPUS") {
        Some(path) => Some(PathBuf::from(path)),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|above| above.join("shared/corpus"))
            .find(|path| path.is_dir()),
    };
    if found.is_none() {
        println!("skipped: no shared/corpus beside the checkout, and FLOODWAY_CORPUS is not set");
    }
    found
}

/// Every capture in `pcap` and `pcap_made`.
pub fn captures(dir: &Path) -> Vec<Capture> {
    let mut paths: Vec<_> = ["pcap", "pcap_made"]
        .iter()
        .flat_map(|folder| fs::read_dir(dir.join(folder)).expect("a corpus folder"))
        .map(|entry| entry.expect("a corpus file").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "pcap" || ext == "pcapng"))
        .collect();
    paths.sort();
    assert!(paths.len() > 100, "the corpus is not whole: {} captures", paths.len());
    paths.iter().map(|path| capture(path)).collect()
}

/// The frames of `pcap_made/{name}.pcap`.
pub fn made(dir: &Path, name: &str) -> Vec<Vec<u8>> {
    capture(&dir.join("pcap_made").join(name).with_extension("pcap")).frames
}

/// The frames of one capture; those of other link types than Ethernet are left out, with a note.
pub fn capture(path: &Path) -> Capture {
    let name = path.file_name().expect("a file").to_string_lossy().into_owned();
    let bytes = fs::read(path).expect("a readable capture");
    let mut frames = Vec::new();
    let mut links: Vec<Linktype> = Vec::new();
    let mut reader = create_reader(bytes.len() + 65_536, Cursor::new(bytes)).expect("a capture");
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => links.push(header.network),
                    PcapBlockOwned::Legacy(packet) => push(&mut frames, &links, 0, packet.data),
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                        links.push(interface.linktype)
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let data = &packet.data[..packet.caplen as usize];
                        push(&mut frames, &links, packet.if_id as usize, data);
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                        push(&mut frames, &links, 0, packet.data)
                    }
                    PcapBlockOwned::NG(_) => {}
                }
                reader.consume(offset);
            }
            Err(PcapError::Eof) => break,
            // The whole file is in the buffer. Some captures are cut on purpose: what was read before counts.
            Err(PcapError::Incomplete(_)) => {
                if !reader.data().is_empty() {
                    println!("{name}: {} bytes behind the last whole packet", reader.data().len());
                }
                break;
            }
            Err(error) => {
                println!("{name}: ends early after {} frames: {error:?}", frames.len());
                break;
            }
        }
    }
    if let Some(link) = links.iter().find(|link| **link != Linktype::ETHERNET) {
        println!("{name}: frames of link type {link} are left out");
    }
    Capture { name, frames }
}

fn push(frames: &mut Vec<Vec<u8>>, links: &[Linktype], interface: usize, data: &[u8]) {
    if links.get(interface) == Some(&Linktype::ETHERNET) {
        frames.push(data.to_vec());
    }
}
