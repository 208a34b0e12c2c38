//! The same packets, with one worker and with several: the same packets out, in the same order within a flow, and the same
//! drops, with programs swapped in between.

use std::collections::BTreeMap;

use scenarios::crew::{Card, Crew, Seeded};
use scenarios::frames::Ends;
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::scene::{BLUE, RED, RED_GATEWAY, RED_LOCAL, RED6, from_fabric, outer};
use wire::Mac;

use crate::rings::{far, rig};

const PORTS: [&str; 4] = ["uplink0", "red0", "red1", "blue0"];
/// Rounds of a run; packets of a round are judged in any order, so none of them answers another of the same round.
const ROUNDS: u32 = 12;
const PACKETS: u32 = 60;
/// Begins a tag: which flow, and which packet of it.
const MARK: [u8; 4] = *b"FLOW";

/// What came of a run.
struct Outcome {
    /// By port, sorted.
    frames: BTreeMap<&'static str, Vec<Vec<u8>>>,
    /// By port and flow, in order.
    order: BTreeMap<(&'static str, u32), Vec<u32>>,
    drops: Vec<(&'static str, u64)>,
}

impl Outcome {
    /// In a line, the first thing that is not as in `other`.
    fn difference(&self, other: &Self) -> Option<String> {
        let counts = |outcome: &Self| -> Vec<_> {
            outcome.frames.iter().map(|(port, frames)| (*port, frames.len())).collect()
        };
        let order = self.order.iter().find(|(flow, numbers)| other.order.get(flow) != Some(numbers));
        match () {
            () if self.drops != other.drops => Some(format!("{:?}, not {:?}", self.drops, other.drops)),
            () if counts(self) != counts(other) => {
                Some(format!("{:?}, not {:?}", counts(self), counts(other)))
            }
            () if self.frames != other.frames => Some("as many frames, and not the same".into()),
            () => {
                order.map(|(flow, numbers)| format!("{flow:?}: {numbers:?}, not {:?}", other.order.get(flow)))
            }
        }
    }
}

fn tag(flow: u32, number: u32) -> [u8; 12] {
    let mut tag = [0; 12];
    tag[..4].copy_from_slice(&MARK);
    tag[4..8].copy_from_slice(&flow.to_be_bytes());
    tag[8..].copy_from_slice(&number.to_be_bytes());
    tag
}

/// Which packet of which flow, if it has a tag.
fn read_tag(frame: &[u8]) -> Option<(u32, u32)> {
    let tag: &[u8; 12] = frame.last_chunk()?;
    let word = |at: usize| u32::from_be_bytes([tag[at], tag[at + 1], tag[at + 2], tag[at + 3]]);
    (tag[..4] == MARK).then(|| (word(4), word(8)))
}

/// A packet out of the host in even rounds, into it in odd ones, or one that is nobody's.
fn packet(seeded: &mut Seeded, round: u32, number: u32) -> (&'static str, Vec<u8>) {
    let outward = round.is_multiple_of(2);
    let host = 1 + seeded.below(6) as u8;
    let remote = Ends { dst: [10, 9, 0, host], ..far() };
    let source_port = 1000 + seeded.below(3) as u16;
    let kind = seeded.below(12);
    let flow = (kind.max(4) as u32) << 24 | u32::from(host) << 16 | u32::from(source_port);
    let tag = tag(flow, number);
    let other_port = [5201, 5201, 5201, 9999, 53][seeded.below(5)];
    let in_tunnel = |vni, frame: Vec<u8>| ("uplink0", from_fabric(vni, &frame));
    let from_far = |frame: Vec<u8>| {
        let outer = Ends { src: [192, 0, 2, 3], ..outer() };
        ("uplink0", scenarios::frames::tunnel(outer, 0, 100, &frame))
    };
    match (kind, outward) {
        (0..=4, true) if other_port == 9999 => ("red0", remote.tcp((source_port, 9999), "S", &tag)),
        (0..=4, true) => ("red0", remote.udp((source_port, other_port), &tag)),
        (0..=4, false) => from_far(remote.reversed().udp((other_port, source_port), &tag)),
        (5, true) => ("blue0", BLUE.tcp((source_port, 5201), "A", &tag)),
        (5, false) => in_tunnel(200, BLUE.reversed().tcp((5201, source_port), "A", &tag)),
        (6, true) => ("red0", RED6.udp((source_port, 5201), &tag)),
        (6, false) => in_tunnel(100, RED6.reversed().udp((5201, source_port), &tag)),
        (7, true) => ("red0", RED.roce(source_port, 17, b"payload8")),
        (7, false) => in_tunnel(100, RED.reversed().roce(source_port, 17, b"payload8")),
        (8, true) => ("red0", RED_LOCAL.ping(source_port, 1, 64)),
        (8, false) => from_far(remote.reversed().unreachable(&remote.udp((source_port, 5201), &tag))),
        (9, _) => ("red0", RED.arp_request([10, 1, 0, 1])),
        (10, true) => ("red0", Ends { dst: [10, 1, 0, 1], dst_mac: RED_GATEWAY, ..RED }.ping(1, 1, 64)),
        (10, false) => in_tunnel(77, RED.reversed().udp((1, 1), &tag)),
        (_, true) => ("red0", Ends { src_mac: Mac([2, 9, 9, 9, 9, 9]), ..RED }.udp((1, 1), &tag)),
        (_, false) => ("uplink0", outer().ping(1, 1, 64)),
    }
}

/// One run. `seed` says what is sent, the crew's own whose turn it is.
fn run(seed: u64, crew: Crew) -> Outcome {
    let closed = RULES.replace("protocol: UDP, port: 5201", "protocol: UDP, port: 5202");
    let programs = [DEMO, &[FABRIC, TENANTS, &closed]];
    let (mut rig, mut traffic, mut turns) = (rig(DEMO, crew), Seeded(seed), Seeded(crew.seed));
    let mut frames: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    let mut order: BTreeMap<(&str, u32), Vec<u32>> = BTreeMap::new();
    for round in 0..ROUNDS {
        for number in 0..PACKETS {
            let (port, frame) = packet(&mut traffic, round, round * PACKETS + number);
            rig.send(port, &frame);
            if turns.below(3) == 0 {
                rig.step(turns.below(usize::from(crew.workers)));
            }
        }
        rig.settle();
        for port in PORTS {
            for frame in rig.take(port) {
                if let Some((flow, number)) = read_tag(&frame) {
                    order.entry((port, flow)).or_default().push(number);
                }
                frames.entry(port).or_default().push(frame);
            }
        }
        if traffic.below(2) == 0 {
            rig.apply(programs[traffic.below(2)]);
        }
    }
    rig.assert_balanced();
    frames.values_mut().for_each(|frames| frames.sort_unstable());
    Outcome { frames, order, drops: rig.drops() }
}

#[test]
fn several_workers_do_what_one_does() {
    let mut seen = BTreeMap::new();
    for seed in 0..12 {
        let alone = run(seed, Crew::ONE);
        for (workers, card) in [
            (2, Card::OneQueue),
            (2, Card::Lopsided),
            (3, Card::Lopsided),
            (4, Card::OneQueue),
            (4, Card::Symmetric),
        ] {
            let together = run(seed, Crew { workers, card, seed: seed ^ 0x5eed, ..Crew::ONE });
            let difference = together.difference(&alone);
            assert_eq!(difference, None, "seed {seed}, {workers} workers, {card:?}");
        }
        assert!(alone.order.values().all(|numbers| numbers.is_sorted()), "seed {seed}");
        alone.drops.iter().for_each(|(name, count)| *seen.entry(*name).or_insert(0) += count);
        *seen.entry("sent").or_insert(0) += alone.frames.values().map(Vec::len).sum::<usize>() as u64;
    }
    for kind in
        ["sent", "policy-deny", "policy-default", "spoofed-mac", "unknown-vni", "unrelated-icmp-error"]
    {
        assert!(seen.get(kind).is_some_and(|count| *count > 20), "{kind} was among them: {seen:?}");
    }
}
