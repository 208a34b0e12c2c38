//! The traffic of a measurement: frames of a number of flows, as a capture file that `net_pcap` replays for ever.
//!
//! Flow `n` is its own block of sixteen addresses first, then address, destination port and source port, so that 10,000
//! rules (see [`crate::scene`]) are all met once there are as many flows.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Fewest packets in a capture: 1,000 flows occur eight times each.
pub const PACKETS: u32 = 8192;
/// Most flows that can be told apart.
pub const MAX_FLOWS: u32 = 1 << 20;
/// Destination ports of the traffic, from the first on.
pub const DST_PORTS: std::ops::Range<u16> = 5201..5204;

pub(crate) const SRC_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 0x10];
const DST_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 0x20];
const SRC: [u8; 4] = [10, 1, 0, 10];
const BLOCKS: u32 = 4096;

/// What the frames carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Transport {
    /// UDP without a checksum.
    Udp,
    /// TCP segments of open connections: ACK, the same sequence numbers each time, as after a loss.
    Tcp,
}

/// Traffic of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Different 5-tuples, at most [`MAX_FLOWS`].
    pub flows: u32,
    /// Bytes of a frame without FCS, at least 60.
    pub frame_len: usize,
    /// What the frames carry.
    pub transport: Transport,
}

impl Traffic {
    /// Packets of its capture: each flow at least once.
    pub fn packets(&self) -> u32 {
        PACKETS.max(self.flows)
    }

    /// Writes the capture: all flows once in shuffled order, then the same again as often as it fits.
    pub fn write_capture(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        // Classic pcap: magic, version 2.4, zone, accuracy, snap length, Ethernet.
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
            file.write_all(&word.to_ne_bytes())?;
        }
        let order = shuffled(self.flows);
        let len = self.frame_len as u32;
        for (number, flow) in order.iter().cycle().take(self.packets() as usize).enumerate() {
            for word in [0, number as u32, len, len] {
                file.write_all(&word.to_ne_bytes())?;
            }
            file.write_all(&self.frame(*flow))?;
        }
        file.flush()
    }

    /// One frame of a flow.
    pub fn frame(&self, flow: u32) -> Vec<u8> {
        let ip_len = (self.frame_len - 14) as u16;
        let protocol = if self.transport == Transport::Udp { 17 } else { 6 };
        let mut frame = Vec::with_capacity(self.frame_len);
        frame.extend_from_slice(&DST_MAC);
        frame.extend_from_slice(&SRC_MAC);
        frame.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
        frame.extend_from_slice(&ip_len.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend_from_slice(&SRC);
        frame.extend_from_slice(&dst(flow));
        wire::checksum::fill_ipv4_header(&mut frame[14..]);
        frame.extend_from_slice(&src_port(flow).to_be_bytes());
        frame.extend_from_slice(&dst_port(flow).to_be_bytes());
        match self.transport {
            Transport::Udp => frame.extend_from_slice(&(ip_len - 20).to_be_bytes()),
            // Sequence 1, acknowledgement 1, 20 bytes of header, ACK, a window of 65,535.
            Transport::Tcp => {
                frame.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff]);
            }
        }
        frame.resize(self.frame_len, 0);
        if self.transport == Transport::Tcp {
            // Who tracks connections may ask for it.
            let parsed = wire::parse(&frame).unwrap_or(wire::Parsed::EMPTY);
            wire::checksum::fill_l4(&mut frame, &parsed);
        }
        frame
    }
}

/// Destination address of a flow: 10.2.0.0/16, a block of sixteen after the other.
pub fn dst(flow: u32) -> [u8; 4] {
    let host = flow % BLOCKS * 16 + flow / BLOCKS % 16;
    [10, 2, (host >> 8) as u8, host as u8]
}

/// Destination port of a flow.
pub fn dst_port(flow: u32) -> u16 {
    DST_PORTS.start + (flow / (BLOCKS * 16)) as u16 % DST_PORTS.len() as u16
}

/// Source port of a flow.
pub fn src_port(flow: u32) -> u16 {
    1024 + (flow / (BLOCKS * 16)) as u16 / DST_PORTS.len() as u16
}

/// Flow numbers in an order that says nothing of where a table keeps them (Fisher and Yates, a fixed seed).
fn shuffled(flows: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..flows).collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for last in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(last, (state % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_flow_is_another_and_occurs() {
        let tuples: HashSet<_> =
            (0..MAX_FLOWS).map(|flow| (dst(flow), dst_port(flow), src_port(flow))).collect();
        assert_eq!(tuples.len(), MAX_FLOWS as usize);
        let mut order = shuffled(1000);
        assert_ne!(order, (0..1000).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<_>>());
    }
}
