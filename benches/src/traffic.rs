//! The traffic of a measurement: frames of a number of flows, as a capture file that `net_pcap` replays for ever.
//!
//! Flow `n` is its own block of sixteen addresses first, then address, destination port and source port, so that 10,000
//! rules (see [`crate::scene`]) are all met once there are as many flows.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use wire::roce::{self, opcode};
use wire::vxlan;

/// Fewest packets in a capture: 1,000 flows occur eight times each.
pub const PACKETS: u32 = 8192;
/// Most flows that can be told apart.
pub const MAX_FLOWS: u32 = 1 << 20;
/// Destination ports of the traffic, from the first on.
pub const DST_PORTS: std::ops::Range<u16> = 5201..5204;

pub(crate) const SRC_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 0x10];
const DST_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 0x20];
const SRC: [u8; 4] = [10, 1, 0, 10];
const UPLINK: [u8; 4] = [192, 0, 2, 1];
const VTEP: [u8; 4] = [192, 0, 2, 2];
const VTEP_MAC: [u8; 6] = [0x02, 0xee, 0, 0, 0, 2];
const VNI: u32 = 100;
/// The queue pair of flow 0; those below 2 are for management.
const FIRST_QP: u32 = 0x100;
const BLOCKS: u32 = 4096;

/// What one frame says.
struct What {
    flow: u32,
    /// The PSN of RoCEv2.
    nth: u32,
    segment: Segment,
}

/// The part of a TCP header from the sequence number to the window.
type Segment = [u8; 12];

/// Sequence 1, acknowledgement 1, 20 bytes of header, ACK, a window of 65,535.
const SEGMENT: Segment = [0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff];
/// Sequence 0.
const SYN: Segment = [0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff];
/// Sequence 0, acknowledgement 1: of the SYN, not of what fills the frame behind it.
const SYN_ACK: Segment = [0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x12, 0xff, 0xff];

/// What the frames carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Transport {
    /// UDP without a checksum.
    Udp,
    /// TCP segments of open connections: ACK, the same sequence numbers each time, as after a loss.
    Tcp,
    /// RoCEv2: whole messages (SEND only) of reliable connections, each flow to its own queue pair, PSN by PSN.
    Roce,
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
            file.write_all(&self.nth_frame(*flow, number as u32 / self.flows))?;
        }
        file.flush()
    }

    /// The frame of a flow that its host sends after `nth` others.
    pub fn nth_frame(&self, flow: u32, nth: u32) -> Vec<u8> {
        let (src, dst) = ((SRC, src_port(flow)), (dst(flow), dst_port(flow)));
        self.packet([DST_MAC, SRC_MAC], src, dst, What { flow, nth, segment: SEGMENT })
    }

    /// The first frame of a flow: for TCP its SYN.
    pub fn opening(&self, flow: u32) -> Vec<u8> {
        let (src, dst) = ((SRC, src_port(flow)), (dst(flow), dst_port(flow)));
        self.packet([DST_MAC, SRC_MAC], src, dst, What { flow, nth: 0, segment: SYN })
    }

    /// One frame of what answers a flow, as it comes out of the fabric: in VXLAN over IPv4 from the far endpoint, whose
    /// packets go to `uplink_mac`. What answers RoCEv2 is not made here.
    pub fn answer(&self, flow: u32, uplink_mac: [u8; 6]) -> Vec<u8> {
        tunnelled(&self.inner_answer(flow, SEGMENT), uplink_mac)
    }

    /// What answers [`Traffic::opening`].
    pub fn first_answer(&self, flow: u32, uplink_mac: [u8; 6]) -> Vec<u8> {
        tunnelled(&self.inner_answer(flow, SYN_ACK), uplink_mac)
    }

    fn inner_answer(&self, flow: u32, segment: Segment) -> Vec<u8> {
        let (src, dst) = ((dst(flow), dst_port(flow)), (SRC, src_port(flow)));
        self.packet([SRC_MAC, DST_MAC], src, dst, What { flow, nth: 0, segment })
    }

    fn packet(&self, macs: [[u8; 6]; 2], src: ([u8; 4], u16), dst: ([u8; 4], u16), what: What) -> Vec<u8> {
        let ip_len = (self.frame_len - 14) as u16;
        let mut frame = Vec::with_capacity(self.frame_len);
        frame.extend(macs.concat());
        frame.extend([0x08, 0x00]);
        frame.extend(ipv4(ip_len, if self.transport == Transport::Tcp { 6 } else { 17 }, src.0, dst.0));
        frame.extend(src.1.to_be_bytes());
        frame.extend(if self.transport == Transport::Roce { roce::PORT } else { dst.1 }.to_be_bytes());
        match self.transport {
            Transport::Udp => frame.extend((ip_len - 20).to_be_bytes()),
            Transport::Tcp => frame.extend(what.segment),
            Transport::Roce => {
                frame.extend((ip_len - 20).to_be_bytes());
                frame.extend([0, 0, opcode::SEND_ONLY, 0, 0xff, 0xff, 0]);
                frame.extend(&(FIRST_QP + what.flow).to_be_bytes()[1..]);
                frame.extend(what.nth.to_be_bytes());
            }
        }
        frame.resize(self.frame_len, 0);
        let parsed = wire::parse(&frame).unwrap_or(wire::Parsed::EMPTY);
        match self.transport {
            Transport::Udp => {}
            // Who tracks connections may ask for it.
            Transport::Tcp => drop(wire::checksum::fill_l4(&mut frame, &parsed)),
            // Nobody learns a queue pair from a packet that a receiver would throw away.
            Transport::Roce => drop(wire::icrc::fill(&mut frame, &parsed)),
        }
        frame
    }
}

/// An IPv4 header without options, 20 bytes.
fn ipv4(ip_len: u16, protocol: u8, src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend(ip_len.to_be_bytes());
    header.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    header.extend([src, dst].concat());
    wire::checksum::fill_ipv4_header(&mut header);
    header
}

/// From the far endpoint to this one, in the network of the policy's tenant.
fn tunnelled(inner: &[u8], uplink_mac: [u8; 6]) -> Vec<u8> {
    let udp_len = (8 + vxlan::HEADER_LEN + inner.len()) as u16;
    let mut frame = [uplink_mac, VTEP_MAC].concat();
    frame.extend([0x08, 0x00]);
    frame.extend(ipv4(20 + udp_len, 17, VTEP, UPLINK));
    frame.extend(0xc000_u16.to_be_bytes());
    frame.extend(vxlan::PORT.to_be_bytes());
    frame.extend(udp_len.to_be_bytes());
    frame.extend([0, 0, vxlan::FLAG_VNI, 0, 0, 0]);
    frame.extend((VNI << 8).to_be_bytes());
    frame.extend(inner);
    frame
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
