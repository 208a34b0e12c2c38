//! RoCEv2: a capture of one packet for each opcode, replayed by red to its remote host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use backends::pcap::Capture;
use wire::icrc::Check as Icrc;

use super::{
    Demo,
    checks::Seen,
    world::{Outcome, Place, REMOTE, Tenant, VTEP},
};
use crate::frames::untunnel;

/// CC0; all of its ICRCs are right.
const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/roce_opcodes_v4.pcap");
/// Queue pairs that the capture is replayed to.
const QUEUE_PAIRS: [u32; 8] = [0x12, 0x13, 0x400, 0x401, 0x1234, 0x1_0000, 0xab_cdef, 0xff_fffe];

const IP: usize = 14;
const UDP: usize = IP + 20;
const BTH: usize = UDP + 8;
const ROCE_PORT: [u8; 2] = 4791_u16.to_be_bytes();

/// What was sent and what came of it.
pub struct Replay {
    sent: Vec<Vec<u8>>,
    arrived: Vec<Vec<u8>>,
    outers: Vec<Outer>,
}

/// A RoCEv2 packet in its tunnel.
struct Outer {
    src_port: u16,
    queue_pair: u32,
}

impl Replay {
    /// Replays, and looks at what arrives.
    pub fn arrives(demo: &mut Demo) -> Outcome<Seen> {
        let replay = Self::run(demo)?;
        let Self { sent, arrived, .. } = demo.roce.insert(replay);
        let same = sent == arrived;
        let right = arrived.iter().filter(|frame| icrc(frame) == Icrc::Right).count();
        let order = if same { "byte for byte, in order" } else { "not as they were sent" };
        let text =
            format!("{} sent, {} arrived {order}, {right} with a right ICRC", sent.len(), arrived.len());
        Ok(Seen::new(same && right == sent.len(), text))
    }

    /// The sender chose several; each packet has its own still.
    pub fn keeps_source_port(demo: &mut Demo) -> Outcome<Seen> {
        let Self { sent, arrived, .. } = demo.roce.as_ref().ok_or("nothing was replayed")?;
        let kept =
            sent.iter().zip(arrived).filter(|(sent, arrived)| src_port(sent) == src_port(arrived)).count();
        let ports: BTreeSet<u16> = arrived.iter().map(|frame| src_port(frame)).collect();
        let text = format!("{kept} of {} kept theirs, {} different ones", sent.len(), ports.len());
        Ok(Seen::new(kept == sent.len() && ports.len() > 1, text))
    }

    /// The fabric spreads by QP: whatever the inner source port, a QP keeps to one path.
    pub fn outer_ports(demo: &mut Demo) -> Outcome<Seen> {
        let Self { sent, outers, .. } = demo.roce.as_ref().ok_or("nothing was replayed")?;
        let mut of_queue_pair: BTreeMap<u32, BTreeSet<u16>> = BTreeMap::new();
        for outer in outers {
            of_queue_pair.entry(outer.queue_pair).or_default().insert(outer.src_port);
        }
        let constant = of_queue_pair.values().all(|ports| ports.len() == 1);
        let ports: BTreeSet<u16> = of_queue_pair.into_values().flatten().collect();
        let (low, high) = (ports.first().copied().unwrap_or(0), ports.last().copied().unwrap_or(0));
        let constant_text = if constant { "one port each" } else { "several ports each" };
        let text = format!(
            "{} packets of {} QPs: {constant_text}, {} different, {low} to {high}",
            outers.len(),
            QUEUE_PAIRS.len(),
            ports.len()
        );
        // Two of eight QPs may share one of 16,384 ports; all eight never do.
        let apart = ports.len() >= QUEUE_PAIRS.len() - 1;
        Ok(Seen::new(outers.len() == sent.len() && constant && apart && low >= 49_152, text))
    }

    fn run(demo: &mut Demo) -> Outcome<Self> {
        let sent = frames()?;
        demo.world.listen(&[Place::Remote(Tenant::Red), Place::Fabric])?;
        demo.world.inject(Tenant::Red, &sent)?;
        demo.world.ping(Tenant::Red, REMOTE, 1, Tenant::Red.pattern())?;
        let mut arrived = demo.world.heard(Place::Remote(Tenant::Red))?;
        arrived.retain(|frame| is_roce(frame));
        let mut outers = Vec::new();
        for frame in demo.world.heard(Place::Fabric)?.iter().filter(|frame| is_from_box(frame)) {
            let tunnelled = untunnel(frame);
            if is_roce(&tunnelled.inner) && tunnelled.vni == Tenant::Red.vni() {
                outers.push(Outer { src_port: tunnelled.src_port, queue_pair: queue_pair(&tunnelled.inner) });
            }
        }
        Ok(Self { sent, arrived, outers })
    }
}

/// The capture, once for each queue pair, between red's ends.
fn frames() -> Outcome<Vec<Vec<u8>>> {
    let capture = Capture::load(Path::new(CAPTURE)).map_err(|error| error.to_string())?;
    let mut frames = Vec::new();
    for queue_pair in QUEUE_PAIRS {
        for (index, frame) in capture.frames().enumerate() {
            if icrc(frame) != Icrc::Right {
                return Err(format!("packet {} of {CAPTURE} has no right ICRC", index + 1));
            }
            frames.push(readdress(frame, 49_152 + index as u16 % 7, queue_pair)?);
        }
    }
    Ok(frames)
}

/// Gives a captured packet red's ends, a source port and a queue pair, and the ICRC that goes with them.
fn readdress(frame: &[u8], src_port: u16, queue_pair: u32) -> Outcome<Vec<u8>> {
    let ends = Tenant::Red.ends();
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&ends.dst_mac.0);
    frame[6..12].copy_from_slice(&ends.src_mac.0);
    let (mut ip, _) = etherparse::Ipv4Header::from_slice(&frame[IP..]).map_err(|error| error.to_string())?;
    (ip.source, ip.destination) = (ends.src, ends.dst);
    ip.header_checksum = ip.calc_header_checksum();
    frame[IP..UDP].copy_from_slice(&ip.to_bytes());
    frame[UDP..UDP + 2].copy_from_slice(&src_port.to_be_bytes());
    // No checksum, as annex A17 allows: the ICRC covers more.
    frame[UDP + 6..UDP + 8].fill(0);
    frame[BTH + 5..BTH + 8].copy_from_slice(&queue_pair.to_be_bytes()[1..]);
    let parsed = wire::parse(&frame).map_err(|error| format!("the capture: {error:?}"))?;
    if wire::icrc::fill(&mut frame, &parsed) {
        Ok(frame)
    } else {
        Err("the capture holds more than RoCEv2".into())
    }
}

fn icrc(frame: &[u8]) -> Icrc {
    wire::parse(frame).map_or(Icrc::Unknown, |parsed| wire::icrc::verify(frame, &parsed))
}

fn is_roce(frame: &[u8]) -> bool {
    frame.len() >= BTH + 12
        && frame[12..14] == [8, 0]
        && frame[23] == 17
        && frame[UDP + 2..UDP + 4] == ROCE_PORT
}

/// An outer frame that floodway sent.
fn is_from_box(frame: &[u8]) -> bool {
    frame.len() > BTH && frame[12..14] == [8, 0] && frame[23] == 17 && frame[IP + 12..IP + 16] == VTEP
}

fn src_port(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[UDP], frame[UDP + 1]])
}

fn queue_pair(frame: &[u8]) -> u32 {
    u32::from_be_bytes([0, frame[BTH + 5], frame[BTH + 6], frame[BTH + 7]])
}
