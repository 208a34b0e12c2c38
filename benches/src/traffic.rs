//! The traffic of a measurement: frames of a number of flows, as a capture file that `net_pcap` replays for ever.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Packets in a capture: enough that 1,000 flows occur eight times each, few enough for the port's mbufs.
pub const PACKETS: usize = 8192;

const SRC_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 0x10];
const DST_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 0x20];
const SRC: [u8; 4] = [10, 1, 0, 10];
const DST: [u8; 4] = [10, 1, 0, 20];

/// Writes [`PACKETS`] UDP frames of `len` bytes (without FCS), in which `flows` source ports take turns.
pub fn write_capture(path: &Path, flows: u16, len: usize) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    // Classic pcap: magic, version 2.4, zone, accuracy, snap length, Ethernet.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.write_all(&word.to_ne_bytes())?;
    }
    for number in 0..PACKETS {
        let frame = frame(1024 + number as u16 % flows, len);
        for word in [0, number as u32, len as u32, len as u32] {
            file.write_all(&word.to_ne_bytes())?;
        }
        file.write_all(&frame)?;
    }
    file.flush()
}

fn frame(src_port: u16, len: usize) -> Vec<u8> {
    let ip_len = (len - 14) as u16;
    let mut frame = Vec::with_capacity(len);
    frame.extend_from_slice(&DST_MAC);
    frame.extend_from_slice(&SRC_MAC);
    frame.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
    frame.extend_from_slice(&ip_len.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&SRC);
    frame.extend_from_slice(&DST);
    wire::checksum::fill_ipv4_header(&mut frame[14..]);
    frame.extend_from_slice(&src_port.to_be_bytes());
    frame.extend_from_slice(&5201_u16.to_be_bytes());
    frame.extend_from_slice(&(ip_len - 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.resize(len, 0);
    frame
}
