//! Random programs and random packets against an oracle that is slow and obvious.

mod oracle;
mod world;

use std::net::Ipv6Addr;

use program::DropReason;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};
use scenarios::frames::{Ends, tunnel, untunnel};
use scenarios::frames6::{Ends6, extend, tunnel6, untunnel6};
use scenarios::rig::{Rig, port_mac as device_mac};
use wire::Mac;

use oracle::{Fate, Oracle};
use world::{Addr, DstMac, PORTS, Packet, Place, Program, Step, What};

const PEER_MAC: Mac = Mac([2, 0xee, 0, 0, 0, 2]);

/// A rig that runs a program, and the oracle beside it.
struct Stage {
    rig: Rig,
    program: Program,
    oracle: Oracle,
    sent: Vec<Packet>,
}

/// What left the box for one packet: where, in whose tunnel, and the (inner) frame.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Seen {
    place: Place,
    vni: Option<u32>,
    frame: Vec<u8>,
}

impl Stage {
    fn new(program: Program) -> Self {
        let mut rig = Rig::with_limits(
            &[&world::text(&program)],
            edge::Limits { flows: 1 << 12, ..edge::Limits::default() },
        );
        rig.settle();
        Self { rig, program, oracle: Oracle::default(), sent: Vec::new() }
    }

    fn play(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Send(packet, own) => self.send(self.sourced(*packet, *own)),
            Step::Again(index) => match self.earlier(*index) {
                Some(packet) => self.send(packet),
                None => Ok(()),
            },
            Step::Answer(index) => match self.earlier(*index).and_then(|packet| self.answer(&packet)) {
                Some(packet) => self.send(packet),
                None => Ok(()),
            },
            Step::Error(index, from, ends) => match self.error(*index, *from, *ends) {
                Some(packet) => self.send(packet),
                None => Ok(()),
            },
            Step::Cut(index, len) => match self.earlier(*index) {
                Some(packet) => self.send_cut(&packet, *len),
                None => Ok(()),
            },
            Step::Damage(index, at, bits) => match self.earlier(*index) {
                Some(packet) => self.send_damaged(&packet, *at, *bits),
                None => Ok(()),
            },
            Step::Swap(program) => {
                self.program = program.clone();
                self.apply()
            }
            Step::Edit(tenant, list, rule) => {
                self.program.edit(*tenant, *list, *rule);
                self.apply()
            }
        }
    }

    fn apply(&mut self) -> Result<(), TestCaseError> {
        self.rig.apply(&[&world::text(&self.program)]);
        Ok(())
    }

    fn earlier(&self, index: usize) -> Option<Packet> {
        (!self.sent.is_empty()).then(|| self.sent[index % self.sent.len()])
    }

    /// The packet from the nth host of its tenant to the nth of those that it could reach, as far as there are any.
    fn sourced(&self, packet: Packet, own: Option<(usize, usize)>) -> Packet {
        let (Some((src, dst)), Some(tenant)) = (own, self.program.tenants.get(packet.vni_of)) else {
            return packet;
        };
        let all = (1..=world::HOSTS).map(Addr::Host).chain([Addr::Behind(1)]);
        let placed: Vec<(Addr, Place)> = all.filter_map(|addr| Some((addr, tenant.locate(addr)?))).collect();
        let Some(&(src, entry)) = placed.get(src % placed.len().max(1)) else { return packet };
        let is_remote = |place| matches!(place, Place::Vtep(_));
        let reachable =
            |(_, place): &&(Addr, Place)| *place != entry && !(is_remote(*place) && is_remote(entry));
        let others: Vec<Addr> = placed.iter().filter(reachable).map(|(addr, _)| *addr).collect();
        let dst = others.get(dst % others.len().max(1)).copied().unwrap_or(packet.dst);
        Packet { entry, src, dst, ..packet }
    }

    /// What the receiver of a packet would send back, from where it is now.
    fn answer(&self, packet: &Packet) -> Option<Packet> {
        let tenant = Oracle::tenant(&self.program, packet).ok()?;
        let entry = self.program.tenants[tenant].locate(packet.dst)?;
        let what = match packet.what {
            What::Tcp(src, dst) => What::Tcp(dst, src),
            What::Udp(src, dst) => What::Udp(dst, src),
            What::Echo(id, request) => What::Echo(id, !request),
            What::First(src, dst) => What::First(dst, src),
            What::Error(_) => return None,
            other => other,
        };
        let (src, dst) = (packet.dst, packet.src);
        Some(Packet { entry, vni_of: tenant, src, dst, what, spoofed_mac: false, last_hop: false, ..*packet })
    }

    /// An ICMP error about an earlier packet; `None` when that is one itself or there is none.
    fn error(&self, index: usize, from: usize, ends: Option<(Addr, Addr)>) -> Option<Packet> {
        let quoted = self.earlier(index)?;
        let number = index % self.sent.len();
        let vni_of = Oracle::tenant(&self.program, &quoted).ok()?;
        let tenant = &self.program.tenants[vni_of];
        let entry = tenant.locate(quoted.dst)?;
        let there = (1..=world::HOSTS).map(Addr::Host).filter(|addr| tenant.locate(*addr) == Some(entry));
        let there: Vec<Addr> = there.collect();
        let honest = (there.get(from % there.len().max(1)).copied().unwrap_or(quoted.dst), quoted.src);
        let (src, dst) = ends.unwrap_or(honest);
        let what = match quoted.what {
            What::Error(_) => return None,
            // The quote says of no fragment whose it is.
            What::First(..) | What::Later => return None,
            _ => What::Error(number),
        };
        let dst_mac = DstMac::Right;
        Some(Packet { entry, vni_of, src, dst, what, dst_mac, spoofed_mac: false, last_hop: false, ..quoted })
    }

    /// Sends a packet and compares its fate with the oracle's word.
    fn send(&mut self, packet: Packet) -> Result<(), TestCaseError> {
        self.sent.push(packet);
        let (inner, drops) = (self.frame(&packet), self.rig.drops());
        let fate = match packet.what {
            What::Error(number) => self.oracle.judge_error(&self.program, &packet, &self.sent[number]),
            _ => self.oracle.judge(&self.program, &packet),
        };
        let seen = self.pass(&packet, &wrap(&packet, &inner));
        let counted = risen(&drops, &self.rig.drops());
        self.check_strangers(&packet, &seen)?;
        let context = format!("{packet:?}: expected {fate:?}, counted {counted:?}, seen {seen:x?}");
        match fate {
            Fate::Forwarded(place) => {
                prop_assert!(counted.is_empty() && seen.len() == 1, "{}", context);
                prop_assert_eq!(seen[0].place, place, "{}", context);
                self.check_frame(&packet, &inner, &seen[0].frame)?;
            }
            Fate::Answered => {
                prop_assert!(counted.is_empty() && seen.len() == 1, "{}", context);
                prop_assert_eq!(seen[0].place, packet.entry, "{}", context);
            }
            Fate::Dropped(reason) => {
                prop_assert_eq!(&counted[..], &[(reason.name(), 1)][..], "{}", context);
                // A limited number of these is answered, to the sender alone.
                let answers = usize::from(reason == DropReason::TtlExpired);
                prop_assert!(seen.len() <= answers, "{}", context);
                prop_assert!(seen.iter().all(|seen| seen.place == packet.entry), "{}", context);
            }
        }
        Ok(())
    }

    fn send_cut(&mut self, packet: &Packet, len: usize) -> Result<(), TestCaseError> {
        let inner = self.frame(packet);
        let frame = wrap(packet, &inner[..len.min(inner.len() - 1)]);
        let drops = self.rig.drops();
        let seen = self.pass(packet, &frame);
        prop_assert!(seen.is_empty(), "{:?} cut to {} bytes left: {:x?}", packet, len, seen);
        prop_assert_eq!(risen(&drops, &self.rig.drops()).len(), 1);
        Ok(())
    }

    fn send_damaged(&mut self, packet: &Packet, at: usize, bits: u8) -> Result<(), TestCaseError> {
        let mut frame = wrap(packet, &self.frame(packet));
        let at = at % frame.len();
        frame[at] ^= bits;
        let seen = self.pass(packet, &frame);
        // What it claims to be may have changed, and with a byte of the VNI even whose it is.
        let vni = matches!(packet.entry, Place::Vtep(_)) && packet_vni_at(packet).contains(&at);
        if !vni { self.check_strangers(packet, &seen) } else { Ok(()) }
    }

    /// Nothing reaches another tenant, by port or by VNI.
    fn check_strangers(&self, packet: &Packet, seen: &[Seen]) -> Result<(), TestCaseError> {
        let tenant = Oracle::tenant(&self.program, packet).ok();
        for seen in seen {
            match (seen.place, seen.vni) {
                (Place::Port(port), _) => prop_assert_eq!(self.program.owner(port), tenant),
                (Place::Vtep(_), Some(vni)) => prop_assert_eq!(Some(vni), tenant.map(world::vni)),
                (Place::Vtep(_), None) => prop_assert!(matches!(packet.entry, Place::Vtep(_))),
            }
        }
        Ok(())
    }

    /// The receiver's MAC, and nothing changed behind it but one hop and its checksum when routed.
    fn check_frame(&self, packet: &Packet, sent: &[u8], seen: &[u8]) -> Result<(), TestCaseError> {
        let tenant = Oracle::tenant(&self.program, packet).expect("it was forwarded");
        let routed = matches!(packet.dst_mac, DstMac::Gateway);
        let mut expected = sent.to_vec();
        let mac = self.program.tenants[tenant].mac(tenant, packet.dst).expect("it was forwarded");
        expected[..6].copy_from_slice(&mac.0);
        if routed {
            expected[6..12].copy_from_slice(&world::gateway_mac(tenant).0);
            expected[if packet.six { 21 } else { 22 }] -= 1;
            if !packet.six {
                prop_assert!(wire::checksum::fill_ipv4_header(&mut expected[14..]));
            }
        }
        prop_assert_eq!(seen, &expected[..]);
        Ok(())
    }

    fn pass(&mut self, packet: &Packet, frame: &[u8]) -> Vec<Seen> {
        self.flush(&mut vec![(*packet, frame.to_vec())])
    }

    /// Sends all frames, then polls; returns what has left.
    fn flush(&mut self, burst: &mut Vec<(Packet, Vec<u8>)>) -> Vec<Seen> {
        for (packet, frame) in burst.drain(..) {
            match packet.entry {
                Place::Port(port) => self.rig.send(&format!("p{port}"), &frame),
                Place::Vtep(_) => self.rig.send("uplink0", &frame),
            }
        }
        self.rig.settle();
        let mut seen: Vec<Seen> = self.rig.take("uplink0").iter().map(|frame| unwrap(frame)).collect();
        for port in 0..PORTS {
            let frames = self.rig.take(&format!("p{port}"));
            seen.extend(frames.into_iter().map(|frame| Seen { place: Place::Port(port), vni: None, frame }));
        }
        seen
    }

    /// The (inner) frame of a packet.
    fn frame(&self, packet: &Packet) -> Vec<u8> {
        let quoted = match packet.what {
            What::Error(number) => self.frame(&self.sent[number]),
            _ => Vec::new(),
        };
        let index = Oracle::tenant(&self.program, packet).unwrap_or(0);
        let tenant = &self.program.tenants[index];
        let nobody = Mac([2, 0x66, 0, 0, 0, 0x66]);
        let src_mac = match packet.entry {
            Place::Port(port) if !packet.spoofed_mac => world::port_mac(port),
            Place::Vtep(_) => tenant.mac(index, packet.src).unwrap_or(nobody),
            Place::Port(_) => nobody,
        };
        let dst_mac = match packet.dst_mac {
            DstMac::Right => tenant.mac(index, packet.dst).unwrap_or(nobody),
            DstMac::Gateway => world::gateway_mac(index),
            DstMac::Wrong => Mac([2, 0x66, 0, 0, 0, 0x67]),
        };
        let mut frame = if packet.six {
            let (src, dst) = (Ipv6Addr::from(world::v6(packet.src)), Ipv6Addr::from(world::v6(packet.dst)));
            frame6(Ends6 { src_mac, dst_mac, src, dst }, packet.what, &quoted)
        } else {
            frame4(
                Ends { src_mac, dst_mac, src: world::v4(packet.src), dst: world::v4(packet.dst) },
                packet.what,
                &quoted,
            )
        };
        if packet.last_hop {
            frame[if packet.six { 21 } else { 22 }] = 1;
            if !packet.six {
                assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
            }
        }
        frame
    }
}

fn frame4(ends: Ends, what: What, quoted: &[u8]) -> Vec<u8> {
    match what {
        What::Tcp(src, dst) => ends.tcp((src, dst), "A", b"data"),
        What::Udp(src, dst) => ends.udp((src, dst), b"data"),
        What::Roce { qp, entropy } => ends.roce(entropy, qp, b"payload8"),
        What::Echo(id, true) => ends.ping(id, 1, 64),
        What::Echo(id, false) => ends.pong(id, 1),
        What::First(src, dst) => cut4(ends.udp((src, dst), b"8 bytes."), 0x2000),
        What::Later => cut4(ends.udp((1, 2), b"8 bytes."), 2),
        What::Error(_) => ends.unreachable(quoted),
    }
}

/// Makes an IPv4 frame a fragment, by the field's value.
fn cut4(mut frame: Vec<u8>, field: u16) -> Vec<u8> {
    frame[20..22].copy_from_slice(&field.to_be_bytes());
    assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
    frame
}

fn frame6(ends: Ends6, what: What, quoted: &[u8]) -> Vec<u8> {
    match what {
        What::Tcp(src, dst) => ends.syn((src, dst)),
        What::Udp(src, dst) => ends.udp((src, dst), b"data"),
        What::Roce { qp, entropy } => ends.roce(entropy, qp, b"payload8"),
        What::Echo(id, true) => ends.ping(id, 1, 64),
        What::Echo(id, false) => ends.pong(id, 1),
        What::First(src, dst) => extend(&ends.udp((src, dst), b"8 bytes."), 44, &[17, 0, 0, 1, 0, 0, 0, 9]),
        What::Later => extend(&ends.udp((1, 2), b"8 bytes."), 44, &[17, 0, 0, 16, 0, 0, 0, 9]),
        What::Error(_) => ends.unreachable(quoted),
    }
}

const UNDERLAY6: Ends6 = Ends6 {
    src_mac: PEER_MAC,
    dst_mac: Mac([2, 0xff, 0, 0, 0, 0]),
    src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
};

/// Puts a frame into the tunnel that it comes out of.
fn wrap(packet: &Packet, inner: &[u8]) -> Vec<u8> {
    let outer = |last| Ends {
        src_mac: PEER_MAC,
        dst_mac: device_mac(0),
        src: [192, 0, 2, last],
        dst: [192, 0, 2, 1],
    };
    match packet.entry {
        Place::Port(_) => inner.to_vec(),
        Place::Vtep(1) => tunnel6(UNDERLAY6, world::vni(packet.vni_of), inner),
        Place::Vtep(0) => tunnel(outer(2), 0, world::vni(packet.vni_of), inner),
        Place::Vtep(_) => tunnel(outer(77), 0, world::vni(packet.vni_of), inner),
    }
}

/// Where the VNI is in a packet out of a tunnel.
fn packet_vni_at(packet: &Packet) -> std::ops::Range<usize> {
    if packet.entry == Place::Vtep(1) { 66..69 } else { 46..49 }
}

/// Takes a frame on the uplink out of its tunnel.
fn unwrap(frame: &[u8]) -> Seen {
    match frame[12..14] {
        [8, 0] if frame[36..38] == 4789_u16.to_be_bytes() => {
            let seen = untunnel(frame);
            Seen { place: Place::Vtep(0), vni: Some(seen.vni), frame: seen.inner }
        }
        [0x86, 0xdd] if frame[56..58] == 4789_u16.to_be_bytes() => {
            let seen = untunnel6(frame);
            Seen { place: Place::Vtep(1), vni: Some(seen.vni), frame: seen.inner }
        }
        // A damaged tunnel may have become a question to this box.
        _ => Seen { place: Place::Vtep(0), vni: None, frame: frame.to_vec() },
    }
}

/// The reasons whose counts have risen, and by how much.
fn risen(before: &[(&'static str, u64)], after: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let old = |name: &str| before.iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count);
    after.iter().map(|(name, count)| (*name, count - old(name))).filter(|(_, count)| *count > 0).collect()
}

proptest! {
    #![proptest_config(Config { cases: 512, failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_packet_meets_the_oracles_fate((program, steps) in world::story()) {
        let mut stage = Stage::new(program);
        for step in &steps {
            stage.play(step)?;
        }
        stage.rig.assert_balanced();
    }
}

/// Plays the packets of a story, those from one device in a row as one burst if `bursts`; returns all that left, sorted,
/// and what was dropped.
fn play_blindly(program: &Program, steps: &[Step], bursts: bool) -> (Vec<Seen>, Vec<(&'static str, u64)>) {
    let mut stage = Stage::new(program.clone());
    let (mut seen, mut burst): (Vec<Seen>, Vec<(Packet, Vec<u8>)>) = (Vec::new(), Vec::new());
    for step in steps {
        let packet = match step {
            Step::Send(packet, own) => Some(stage.sourced(*packet, *own)),
            Step::Again(index) => stage.earlier(*index),
            Step::Answer(index) => stage.earlier(*index).and_then(|packet| stage.answer(&packet)),
            Step::Error(index, from, ends) => stage.error(*index, *from, *ends),
            _ => None,
        };
        let device = |packet: &Packet| if let Place::Port(port) = packet.entry { Some(port) } else { None };
        let goes_on = packet
            .is_some_and(|packet| burst.last().is_some_and(|(last, _)| device(last) == device(&packet)));
        if !(bursts && goes_on) {
            seen.extend(stage.flush(&mut burst));
        }
        match packet {
            Some(packet) => {
                stage.sent.push(packet);
                burst.push((packet, wrap(&packet, &stage.frame(&packet))));
            }
            None => stage.play(step).expect("no packet, no verdict"),
        }
    }
    seen.extend(stage.flush(&mut burst));
    stage.rig.assert_balanced();
    seen.sort();
    (seen, stage.rig.drops())
}

proptest! {
    #![proptest_config(Config { cases: 128, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_burst_is_judged_as_its_packets_are((program, steps) in world::story()) {
        let steps: Vec<Step> =
            steps.into_iter().filter(|step| !matches!(step, Step::Cut(..) | Step::Damage(..))).collect();
        prop_assert_eq!(play_blindly(&program, &steps, true), play_blindly(&program, &steps, false));
    }
}

#[test]
fn the_stories_reach_what_they_are_about() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut forwarded, mut hits, mut reasons) = (0, 0, std::collections::HashSet::new());
    for _ in 0..80 {
        let (program, steps) = world::story().new_tree(&mut runner).unwrap().current();
        let mut stage = Stage::new(program);
        for step in &steps {
            stage.play(step).unwrap();
        }
        reasons.extend(stage.rig.drops().into_iter().map(|(name, _)| name));
        let ports = (0..PORTS).map(|port| format!("p{port}")).chain(["uplink0".into()]);
        forwarded += ports.map(|port| stage.rig.traffic(&port).tx_packets).sum::<u64>();
        hits += stage.rig.ledger.gauge(engine::Gauge::Hits);
    }
    assert!(forwarded > 400 && hits > 200, "{forwarded} forwarded, {hits} hits");
    for reason in [
        "policy-deny",
        "policy-default",
        "spoofed-address",
        "spoofed-mac",
        "no-route",
        "ttl-expired",
        "unrelated-icmp-error",
    ] {
        assert!(reasons.contains(reason), "{reason} in {reasons:?}");
    }
}
