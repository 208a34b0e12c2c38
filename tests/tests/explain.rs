//! What `explain` says of a frame is what the data plane does with it: random programs and packets, and every capture.
//!
//! Explanations speak of packets that open their flow; what is open is remembered here by their headers.

#[allow(dead_code)] // the model's test uses all of it
#[path = "model/world.rs"]
mod world;

use std::collections::HashMap;
use std::net::Ipv6Addr;

use compile::explain::{Concern, Explanation, Live, Outcome, explain_frame, live};
use program::PortId;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};
use scenarios::corpus::{self, Host};
use scenarios::frames::{Ends, tunnel, untunnel};
use scenarios::frames6::{Ends6, extend, tunnel6, untunnel6};
use scenarios::rig::{Rig, port_mac as device_mac};
use wire::Mac;

use world::{Addr, DstMac, PORTS, Packet, Place, Program, Step, What};

const PEER_MAC: Mac = Mac([2, 0xee, 0, 0, 0, 2]);

/// Lengths of frames that a memory port takes.
const ROOM: std::ops::RangeInclusive<usize> = 14..=1900;

/// Where a frame left: the port, or the tunnel's outer destination and VNI.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Left {
    Port(String),
    Tunnel(String, u32),
}

/// Who opened a flow, by the words of its headers and where it came in.
#[derive(Default)]
struct Flows(HashMap<(String, String, String), bool>);

impl Flows {
    fn key(told: &Explanation) -> Option<(String, String, String)> {
        let headers = told.headers.as_ref()?;
        let tenant = told.tenant.clone()?;
        let words = format!("{} {} {}", headers.src, headers.dst, headers.service);
        Some((tenant, told.from.clone(), words))
    }

    fn is_opened(&self, key: Option<&(String, String, String)>) -> bool {
        key.is_some_and(|key| self.0.get(key) == Some(&true))
    }
}

struct Stage {
    rig: Rig,
    program: Program,
    flows: Flows,
    sent: Vec<Packet>,
    /// How often each verdict was compared.
    verdicts: HashMap<String, usize>,
}

impl Stage {
    fn new(program: Program) -> Self {
        let limits = edge::Limits { flows: 1 << 10, ..Default::default() };
        let mut rig = Rig::with_limits(&[&world::text(&program)], limits);
        rig.settle();
        Self { rig, program, flows: Flows::default(), sent: Vec::new(), verdicts: HashMap::new() }
    }

    /// A stage for frames by hand.
    fn of_text(text: &str) -> Self {
        let mut rig = Rig::with_limits(&[text], edge::Limits { flows: 1 << 4, ..Default::default() });
        rig.settle();
        let program = Program { tenants: Vec::new() };
        Self { rig, program, flows: Flows::default(), sent: Vec::new(), verdicts: HashMap::new() }
    }

    fn play(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let packet = match step {
            Step::Send(packet, own) => Some(self.sourced(*packet, *own)),
            Step::Again(index) => self.earlier(*index),
            Step::Answer(index) => self.earlier(*index).and_then(|packet| self.answer(&packet)),
            Step::Error(index, from, ends) => self.error(*index, *from, *ends),
            _ => None,
        };
        match packet {
            Some(packet) => self.send(packet),
            None => Ok(()),
        }
    }

    fn earlier(&self, index: usize) -> Option<Packet> {
        (!self.sent.is_empty()).then(|| self.sent[index % self.sent.len()])
    }

    /// From the nth host of the tenant to the nth other one: most random packets go nowhere.
    fn sourced(&self, packet: Packet, own: Option<(usize, usize)>) -> Packet {
        let (Some((src, dst)), Some(tenant)) = (own, self.program.tenants.get(packet.vni_of)) else {
            return packet;
        };
        let all = (1..=world::HOSTS).map(Addr::Host).chain([Addr::Behind(1)]);
        let placed: Vec<(Addr, Place)> = all.filter_map(|addr| Some((addr, tenant.locate(addr)?))).collect();
        let Some(&(src, entry)) = placed.get(src % placed.len().max(1)) else { return packet };
        let others: Vec<Addr> =
            placed.iter().filter(|(_, place)| *place != entry).map(|(addr, _)| *addr).collect();
        let dst = others.get(dst % others.len().max(1)).copied().unwrap_or(packet.dst);
        Packet { entry, src, dst, ..packet }
    }

    /// The packet with its ends changed, from where its receiver is.
    fn answer(&self, packet: &Packet) -> Option<Packet> {
        let tenant = self.tenant(packet)?;
        let entry = self.program.tenants[tenant].locate(packet.dst)?;
        let what = match packet.what {
            What::Tcp(src, dst) => What::Tcp(dst, src),
            What::Udp(src, dst) => What::Udp(dst, src),
            What::Echo(id, request) => What::Echo(id, !request),
            other => other,
        };
        let (src, dst) = (packet.dst, packet.src);
        Some(Packet { entry, vni_of: tenant, src, dst, what, spoofed_mac: false, last_hop: false, ..*packet })
    }

    /// An ICMP error about an earlier packet that is none itself, from a host where that went or from anybody.
    fn error(&self, index: usize, from: usize, ends: Option<(Addr, Addr)>) -> Option<Packet> {
        let quoted = self.earlier(index).filter(|quoted| !matches!(quoted.what, What::Error(_)))?;
        let vni_of = self.tenant(&quoted)?;
        let tenant = &self.program.tenants[vni_of];
        let entry = tenant.locate(quoted.dst)?;
        let there: Vec<Addr> =
            (1..=world::HOSTS).map(Addr::Host).filter(|addr| tenant.locate(*addr) == Some(entry)).collect();
        let honest = there.get(from % there.len().max(1)).copied().unwrap_or(quoted.dst);
        let (src, dst) = ends.unwrap_or((honest, quoted.src));
        let what = What::Error(index % self.sent.len());
        Some(Packet { entry, vni_of, src, dst, what, spoofed_mac: false, ..quoted })
    }

    fn tenant(&self, packet: &Packet) -> Option<usize> {
        match packet.entry {
            Place::Port(port) => self.program.owner(port),
            Place::Vtep(_) => (packet.vni_of < self.program.tenants.len()).then_some(packet.vni_of),
        }
    }

    /// Explains a packet, sends it, and compares.
    fn send(&mut self, packet: Packet) -> Result<(), TestCaseError> {
        self.sent.push(packet);
        let inner = self.of_its_own(self.frame(&packet));
        let port = match packet.entry {
            Place::Port(port) => format!("p{port}"),
            Place::Vtep(_) => "uplink0".into(),
        };
        self.compare(&port, &wrap(&packet, &inner), echo_id(packet.what), &format!("{packet:?}"))
    }

    /// Makes a fragment one of a datagram that no other is of, so that it meets only what its headers say.
    fn of_its_own(&self, mut frame: Vec<u8>) -> Vec<u8> {
        let id = self.sent.len() as u16;
        match wire::parse(&frame) {
            Ok(parsed) if parsed.fragment == wire::Fragment::None => {}
            Ok(parsed) if parsed.l3 == wire::L3::Ipv4 => {
                frame[18..20].copy_from_slice(&id.to_be_bytes());
                assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
            }
            // The fragment header is the first behind the fixed one.
            _ => frame[60..62].copy_from_slice(&id.to_be_bytes()),
        }
        frame
    }

    fn compare(&mut self, port: &str, frame: &[u8], id: u16, context: &str) -> Result<(), TestCaseError> {
        let told = explain(self.rig.program(), port, frame);
        let live = self.live(&told);
        let passes = live.as_ref().is_some_and(|live| live.passes);
        let key = Flows::key(&told).map(|key| with_id(key, id));
        let reversed = reversed(&self.rig, &told).map(|key| with_id(key, id));
        let before = self.rig.drops();
        self.rig.send(port, frame);
        self.rig.settle();
        let counted = risen(&before, &self.rig.drops());
        let left = self.left();
        let is_answer = self.flows.is_opened(reversed.as_ref());
        let context = format!("{context}: {told:#?}, {live:#?}, counted {counted:?}, left {left:?}");
        let by_state = told.passes_as_answer && is_answer;
        prop_assert!(told.verdict != Outcome::Dropped || passes == by_state, "{}", context);
        match told.verdict {
            Outcome::Dropped if by_state => {
                // Whether it fits and may travel on comes behind the rules that it was spared.
                prop_assert!(!counted.iter().any(|(name, _)| name.starts_with("policy-")), "{}", context);
            }
            Outcome::Dropped => {
                let reason = told.reason.as_ref().map(|reason| reason.name.as_str());
                prop_assert_eq!(reason, counted.first().map(|(name, _)| *name), "{}", context);
                prop_assert_eq!(counted.len(), 1, "{}", context);
            }
            Outcome::Forwarded => {
                prop_assert_eq!(&left, &[expected(&told)], "{}", context);
                prop_assert!(counted.is_empty() && passes, "{}", context);
            }
            Outcome::Answered => {
                prop_assert_eq!(&left, &[Left::Port(port.into())], "{}", context);
                prop_assert!(counted.is_empty(), "{}", context);
            }
            Outcome::ByState if passes => {
                prop_assert_eq!(&left, &[expected(&told)], "{}", context);
                prop_assert!(counted.is_empty(), "{}", context);
            }
            Outcome::ByState => {
                let reason = told.reason.as_ref().map_or("", |reason| &reason.name);
                let is_one = |(name, count)| (name == "unrelated-icmp-error" || name == reason) && count == 1;
                prop_assert!(counted.len() == 1 && is_one(counted[0]), "{}", context);
            }
            Outcome::Follows => {
                // At its bound a tenant loses what has waited longest.
                prop_assert!(counted.iter().all(|(name, _)| *name == "fragment-limit"), "{}", context);
                prop_assert!(left.is_empty(), "{}", context);
            }
            Outcome::Neighbour | Outcome::Local => {
                prop_assert!(!counted.iter().any(|(name, _)| name.starts_with("policy-")), "{}", context);
            }
        }
        let is_decided = told.verdict != Outcome::Follows && (by_state || told.way.is_some());
        if let (Some(key), true) = (key, is_decided) {
            self.flows.0.entry(key).or_insert(!by_state && !is_answer);
        }
        *self
            .verdicts
            .entry(match told.verdict {
                Outcome::Dropped if by_state => "Dropped as answer".into(),
                Outcome::ByState if passes => "ByState passes".into(),
                verdict => format!("{verdict:?}"),
            })
            .or_default() += 1;
        Ok(())
    }

    /// What the flow table adds.
    fn live(&mut self, told: &Explanation) -> Option<Live> {
        let flows = self.rig.flows();
        let program = self.rig.program();
        let concern = Concern::of(program, told);
        let flows = flows.into_iter().filter(|flow| concern.covers(program, flow)).collect();
        live(program, told, &concern, flows)
    }

    /// `plan` reads every flow as it is listed, and a program changes no flow that was decided under itself.
    fn check_flows(&mut self) -> Result<(), TestCaseError> {
        let flows = self.rig.flows();
        let changes = compile::diff::flows(self.rig.program(), &flows, false);
        prop_assert_eq!((changes.judged, changes.unjudged), (flows.len(), 0), "{:?}", flows);
        prop_assert!(changes.list.is_empty(), "{:?}", changes.list);
        Ok(())
    }

    fn left(&mut self) -> Vec<Left> {
        let mut left: Vec<Left> =
            self.rig.take("uplink0").iter().filter_map(|frame| tunnelled(frame)).collect();
        let ports: Vec<String> =
            self.rig.program().devices.iter().map(|device| device.name.clone()).skip(1).collect();
        for port in ports {
            left.extend(self.rig.take(&port).iter().map(|_| Left::Port(port.clone())));
        }
        left
    }

    /// The (inner) frame of a packet.
    fn frame(&self, packet: &Packet) -> Vec<u8> {
        let quoted = match packet.what {
            What::Error(number) => self.frame(&self.sent[number]),
            _ => Vec::new(),
        };
        let index = self.tenant(packet).unwrap_or(0);
        let tenant = &self.program.tenants[index];
        let nobody = Mac([2, 0x66, 0, 0, 0, 0x66]);
        let src_mac = match packet.entry {
            Place::Port(port) if !packet.spoofed_mac => world::port_mac(port),
            _ => nobody,
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
            let (src, dst) = (world::v4(packet.src), world::v4(packet.dst));
            frame4(Ends { src_mac, dst_mac, src, dst }, packet.what, &quoted)
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

fn explain(program: &program::Program, port: &str, frame: &[u8]) -> Explanation {
    let index = program.devices.iter().position(|device| device.name == port).expect("a port");
    explain_frame(program, PortId(index as u16), frame)
}

/// The key of the flow in the other direction, by words.
fn reversed(rig: &Rig, told: &Explanation) -> Option<(String, String, String)> {
    let (headers, program) = (told.headers.as_ref()?, rig.program());
    let tenant =
        program.tenants.iter().flatten().find(|tenant| Some(&tenant.name) == told.tenant.as_ref())?;
    let from = match tenant.locate(headers.dst).first()?.place {
        program::Place::Port(port) => program.port_name(port).to_owned(),
        program::Place::Vtep(vtep) => program.vtep(vtep)?.name.clone(),
    };
    let words: Vec<&str> = headers.service.split(' ').collect();
    let service = match words[..] {
        _ if told.verdict == Outcome::Follows => return None,
        [protocol, src, ">", dst] => format!("{protocol} {dst} > {src}"),
        // An echo request answers nothing.
        ["icmp", "type", "0", "code", code] => format!("icmp type 8 code {code}"),
        ["icmpv6", "type", "129", "code", code] => format!("icmpv6 type 128 code {code}"),
        ["protocol", number] => format!("protocol {number}"),
        _ => return None,
    };
    Some((tenant.name.clone(), from, format!("{} {} {service}", headers.dst, headers.src)))
}

/// An echo's identifier tells flows apart, and is nothing that rules see.
fn with_id((tenant, from, words): (String, String, String), id: u16) -> (String, String, String) {
    (tenant, from, format!("{words} id {id}"))
}

fn echo_id(what: What) -> u16 {
    if let What::Echo(id, _) = what { id } else { 0 }
}

fn expected(told: &Explanation) -> Left {
    let way = told.way.as_ref().expect("a packet that is sent on has a way");
    match &way.tunnel {
        Some(tunnel) => Left::Tunnel(tunnel.dst.to_string(), tunnel.vni),
        None => Left::Port(way.to.clone()),
    }
}

fn tunnelled(frame: &[u8]) -> Option<Left> {
    match frame[12..14] {
        [8, 0] if frame[36..38] == 4789_u16.to_be_bytes() => {
            let seen = untunnel(frame);
            Some(Left::Tunnel(std::net::Ipv4Addr::from(seen.ends.1).to_string(), seen.vni))
        }
        [0x86, 0xdd] if frame[56..58] == 4789_u16.to_be_bytes() => {
            let dst: [u8; 16] = frame[38..54].try_into().expect("sixteen bytes");
            Some(Left::Tunnel(Ipv6Addr::from(dst).to_string(), untunnel6(frame).vni))
        }
        // This box asks for its next hops.
        _ => None,
    }
}

fn risen(before: &[(&'static str, u64)], after: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let old = |name: &str| before.iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count);
    after.iter().map(|(name, count)| (*name, count - old(name))).filter(|(_, count)| *count > 0).collect()
}

fn frame4(ends: Ends, what: What, quoted: &[u8]) -> Vec<u8> {
    match what {
        What::Tcp(src, dst) => ends.tcp((src, dst), "A", b"data"),
        What::Udp(src, dst) => ends.udp((src, dst), b"data"),
        What::Roce { qp, entropy } => ends.roce(entropy, qp, b"payload8"),
        What::Echo(id, true) => ends.ping(id, 1, 64),
        What::Echo(id, false) => ends.pong(id, 1),
        What::First(src, dst) => cut(ends.udp((src, dst), b"8 bytes."), 0x2000),
        What::Later => cut(ends.udp((1, 2), b"8 bytes."), 2),
        What::Error(_) => ends.unreachable(quoted),
    }
}

/// Makes an IPv4 frame a fragment, by the field's value.
fn cut(mut frame: Vec<u8>, field: u16) -> Vec<u8> {
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

/// Puts a frame into the tunnel that it comes out of.
fn wrap(packet: &Packet, inner: &[u8]) -> Vec<u8> {
    let outer = |last| Ends {
        src_mac: PEER_MAC,
        dst_mac: device_mac(0),
        src: [192, 0, 2, last],
        dst: [192, 0, 2, 1],
    };
    let outer6 = Ends6 {
        src_mac: PEER_MAC,
        dst_mac: device_mac(0),
        src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    };
    let vni = world::vni(packet.vni_of);
    match packet.entry {
        Place::Port(_) => inner.to_vec(),
        Place::Vtep(1) => tunnel6(outer6, vni, inner),
        Place::Vtep(0) => tunnel(outer(2), 0, vni, inner),
        Place::Vtep(_) => tunnel(outer(77), 0, vni, inner),
    }
}

proptest! {
    #![proptest_config(Config { cases: 256, failure_persistence: None, ..Config::default() })]

    #[test]
    fn explain_agrees_with_the_data_plane((program, steps) in world::story()) {
        let mut stage = Stage::new(program);
        for step in &steps {
            stage.play(step)?;
        }
        stage.check_flows()?;
    }
}

/// The property above is about something: all verdicts that random packets can have do occur.
#[test]
fn the_stories_reach_every_verdict() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut verdicts = HashMap::<String, usize>::new();
    for _ in 0..80 {
        let (program, steps) = world::story().new_tree(&mut runner).expect("a story").current();
        let mut stage = Stage::new(program);
        for step in &steps {
            stage.play(step).expect("explain agrees");
        }
        for (verdict, count) in stage.verdicts {
            *verdicts.entry(verdict).or_default() += count;
        }
    }
    for (verdict, least) in [
        ("Forwarded", 200),
        ("Dropped", 200),
        ("Dropped as answer", 10),
        ("ByState passes", 10),
        ("ByState", 10),
        ("Answered", 1),
        ("Follows", 10),
    ] {
        assert!(verdicts.get(verdict).is_some_and(|count| *count >= least), "{verdict} in {verdicts:?}");
    }
}

/// Frames of somebody else, whatever is in them, from a tenant's port and out of a tunnel.
#[test]
fn explain_agrees_on_every_capture() {
    let Some(dir) = corpus::dir() else { return };
    let mut compared = 0;
    for (name, frames) in corpus::every_capture(&dir) {
        for (number, frame) in frames.iter().enumerate().filter(|(_, frame)| ROOM.contains(&frame.len())) {
            // The port's host is whoever sent the first frame; both ends of it are everybody's.
            let mac = |at: usize| Mac(frame[at..at + 6].try_into().expect("six bytes")).to_string();
            let Some((src, dst)) = ends(frame) else { continue };
            if frame[6] & 1 != 0 || frame[..6] == frame[6..12] || src == dst {
                continue;
            }
            let local = Host { mac: &mac(6), addresses: &src, prefixes: "" };
            let remote_mac = if frame[0] & 1 != 0 { "02:00:00:00:00:77".into() } else { mac(0) };
            let remote = Host { mac: &remote_mac, addresses: &dst, prefixes: "" };
            let rules = "egress: [{action: Deny, services: [{protocol: TCP, port: 443}]}, {action: Accept}]";
            let text = corpus::policy("192.0.2.1/24", "192.0.2.2", local, remote, "192.0.2.254", rules);
            let source = policy::Source { name: "0.yaml".into(), bytes: text.clone().into_bytes() };
            // Addresses that no policy takes, such as groups.
            if policy::parse(&[source]).is_err() {
                continue;
            }
            let mut stage = Stage::of_text(&text);
            stage
                .compare("one0", frame, 0, &format!("{name}, frame {}", number + 1))
                .unwrap_or_else(|error| panic!("{error}"));
            compared += 1;
        }
    }
    assert!(compared > 500, "{compared} frames compared");
}

/// ICMP between IPv6 addresses is no message of IPv6, and the other way round: a rule sees the protocol alone, so that one
/// which asks for types does not let it through, and one which denies a type does not either.
#[test]
fn icmp_of_the_other_family_shows_no_type() {
    let (src_mac, dst_mac) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let ends = Ends { src_mac, dst_mac, src: [10, 0, 0, 1], dst: [10, 0, 0, 2] };
    let ends6 = Ends6 {
        src_mac,
        dst_mac,
        src: Ipv6Addr::from(0xfd_u128 << 120 | 1),
        dst: Ipv6Addr::from(0xfd_u128 << 120 | 2),
    };
    // Messages that would be an echo reply, an echo request and an error of the family that they are not of.
    let message = |six: bool, kind: u8| {
        let mut frame = if six { ends6.ping(7, 1, 64) } else { ends.ping(7, 1, 64) };
        if six {
            (frame[20], frame[54]) = (1, kind);
        } else {
            (frame[23], frame[34]) = (58, kind);
            assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
        }
        frame
    };
    let own = |six: bool| if six { "ICMP" } else { "ICMPv6" };
    for six in [false, true] {
        let (name, other) = (own(six), own(!six));
        let cases = [
            (format!("[{{action: Accept, services: [{{protocol: {name}, type: 0}}]}}]"), Outcome::Dropped),
            (format!("[{{action: Accept, services: [{{protocol: {other}}}]}}]"), Outcome::Dropped),
            (format!("[{{action: Accept, services: [{{protocol: {name}}}]}}]"), Outcome::Forwarded),
            (
                format!(
                    "[{{action: Deny, services: [{{protocol: {name}, type: 200}}]}}, {{action: Accept}}]"
                ),
                Outcome::Dropped,
            ),
            (
                format!("[{{action: Deny, services: [{{protocol: {other}, type: 8}}]}}, {{action: Accept}}]"),
                Outcome::Forwarded,
            ),
        ];
        let (src, dst) = if six { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
        for (rules, expected) in &cases {
            let local = Host { mac: &src_mac.to_string(), addresses: src, prefixes: "" };
            let remote = Host { mac: &dst_mac.to_string(), addresses: dst, prefixes: "" };
            let text = corpus::policy(
                "192.0.2.1/24",
                "192.0.2.2",
                local,
                remote,
                "192.0.2.254",
                &format!("egress: {rules}"),
            );
            let mut stage = Stage::of_text(&text);
            stage.rig.resolve_next_hops("uplink0", PEER_MAC);
            for kind in [0, 8, 3, 128, 129, 1] {
                let frame = message(six, kind);
                let told = explain(stage.rig.program(), "one0", &frame);
                assert_eq!(told.verdict, *expected, "{rules}, type {kind}: {told:#?}");
                stage.compare("one0", &frame, 0, rules).unwrap_or_else(|error| panic!("{error}"));
            }
            stage.rig.assert_balanced();
        }
    }
}

/// Addresses of an untagged IP frame, as text.
fn ends(frame: &[u8]) -> Option<(String, String)> {
    let parsed = wire::parse(frame).ok()?;
    if let Some(header) = parsed.ipv4(frame) {
        return Some((
            std::net::Ipv4Addr::from(header.src).to_string(),
            std::net::Ipv4Addr::from(header.dst).to_string(),
        ));
    }
    let header = parsed.ipv6(frame)?;
    Some((Ipv6Addr::from(header.src).to_string(), Ipv6Addr::from(header.dst).to_string()))
}

/// Every port of the model's world exists, so that the comparison above looks at all of them.
#[test]
fn the_world_has_its_ports() {
    let text = world::text(&Program { tenants: Vec::new() });
    let rig = Rig::new(&[&text]);
    assert_eq!(rig.program().devices.len(), PORTS + 1);
}
