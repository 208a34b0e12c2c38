//! What a trace tells of a packet is what was done with it: held against the wires and the books.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::collections::BTreeMap;

use edge::Limits;
use engine::Gauge;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use packet::Nanos;
use program::{TraceOutcome, TraceRequest, TracedFrame, TracedPacket, TracedStep};
use proptest::prelude::*;
use scenarios::crew::Crew;
use scenarios::cuts::cut;
use scenarios::frames::{Ends, tunnel, untunnel};
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::{Rig, TRACE_DEPTH};
use scenarios::scene::{BLUE, PEER_VTEP_MAC, RED, RED_GATEWAY, RED_LOCAL, RED6, from_fabric, outer};
use wire::Mac;

const PORTS: [&str; 4] = ["uplink0", "red0", "blue0", "red1"];

fn scene() -> Rig {
    let mut rig = Rig::with_crew(DEMO, Limits::default(), Crew::ONE);
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
    rig
}

fn everything() -> TraceRequest {
    TraceRequest { count: 10_000, ..TraceRequest::default() }
}

/// The scene with a trace of everything.
fn traced() -> Rig {
    let mut rig = scene();
    rig.trace(&everything()).unwrap();
    rig
}

/// The trace of one frame, the only one.
fn one(rig: &mut Rig, port: &str, frame: &[u8]) -> TracedPacket {
    rig.send(port, frame);
    rig.settle();
    let mut packets = rig.traced();
    assert_eq!(packets.len(), 1, "{packets:#?}");
    packets.remove(0)
}

fn bytes(frame: &TracedFrame) -> Vec<u8> {
    let digits: Vec<char> = frame.bytes.chars().collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn reasons(packet: &TracedPacket) -> Vec<&str> {
    let dropped = packet.steps.iter().filter_map(|step| match step {
        TracedStep::Dropped { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    dropped.collect()
}

fn sent(packet: &TracedPacket) -> Vec<(&str, &str, Vec<u8>)> {
    let sent = packet.steps.iter().filter_map(|step| match step {
        TracedStep::Sent { port, tunnel, frame } => {
            Some((port.as_str(), tunnel.as_str(), bytes(frame.as_ref().unwrap())))
        }
        _ => None,
    });
    sent.collect()
}

/// One of everything: the port, the frame, and the reason for which it is dropped on an empty table; `""` for none.
fn one_of_each() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let syn = |port| RED.tcp((40_000, port), "S", b"");
    let gateway = Ends { dst: [10, 1, 0, 1], dst_mac: RED_GATEWAY, ..RED };
    let routed = Ends { dst_mac: RED_GATEWAY, ..RED };
    let with = |mut frame: Vec<u8>, at: usize, byte: u8| {
        frame[at] = byte;
        frame
    };
    let tagged = [&syn(5201)[..12], &[0x81, 0, 0, 5], &syn(5201)[12..]].concat();
    let reply = RED.reversed().tcp((5201, 40_000), "SA", b"");
    vec![
        ("red0", syn(5201), ""),
        ("red0", RED.ping(1, 1, 64), ""),
        ("red0", RED6.udp((7, 5201), b"six"), ""),
        ("red0", RED.roce(50_000, 0x77, &[1; 32]), ""),
        ("red0", gateway.ping(1, 1, 64), ""),
        ("red0", RED.arp_request([10, 1, 0, 20]), ""),
        ("red0", RED_LOCAL.ping(1, 2, 64), ""),
        ("blue0", BLUE.tcp((40_000, 5201), "S", b""), ""),
        ("uplink0", from_fabric(100, &RED.reversed().ping(4, 4, 64)), ""),
        ("uplink0", outer().reversed().reversed().ping(9, 9, 64), ""),
        ("red0", syn(5201)[..30].to_vec(), "malformed"),
        ("red0", with(with(syn(5201), 12, 0x88), 13, 0xcc), "unsupported-ethertype"),
        ("red0", tagged, "unexpected-vlan"),
        ("red0", BLUE.ping(1, 1, 64), "spoofed-mac"),
        ("red0", Ends { src: [10, 1, 0, 11], ..RED }.ping(1, 1, 64), "spoofed-address"),
        ("red0", syn(9999), "policy-deny"),
        ("red0", syn(22), "policy-default"),
        ("red0", Ends { dst: [10, 77, 0, 1], ..routed }.udp((7, 5201), b"x"), "no-route"),
        ("red0", gateway.udp((7, 7), b"x"), "no-service"),
        ("red0", Ends { dst_mac: BLUE.dst_mac, ..RED }.udp((7, 5201), b"x"), "unknown-destination-mac"),
        ("red0", routed.ping(1, 1, 1), "ttl-expired"),
        ("red0", RED.udp((7, 5201), &[5; 1523]), "too-big"),
        ("red0", Ends { dst_mac: Mac([0xff; 6]), ..RED }.udp((7, 5201), b"x"), "group"),
        ("red0", RED.reversed().arp_request([10, 1, 0, 10]), "spoofed-mac"),
        ("red0", RED.unreachable(&RED.udp((1, 2), b"never sent")), "unrelated-icmp-error"),
        ("uplink0", from_fabric(300, &reply), "unknown-vni"),
        ("uplink0", tunnel(Ends { src: [192, 0, 2, 99], ..outer() }, 0, 100, &reply), "unknown-vtep"),
        ("uplink0", tunnel(Ends { dst: [192, 0, 2, 9], ..outer() }, 0, 100, &reply), "not-for-us"),
        ("uplink0", from_fabric(100, &reply), "policy-default"),
        ("uplink0", outer().udp((7, 7), b"x"), "no-service"),
        ("uplink0", with(from_fabric(100, &reply), 42, 0), "vxlan-flags"),
    ]
}

#[test]
fn a_trace_says_what_the_wires_and_the_books_say() {
    for (port, frame, reason) in one_of_each() {
        let mut rig = traced();
        let before: BTreeMap<_, _> = rig.drops().into_iter().collect();
        let packet = one(&mut rig, port, &frame);
        assert_eq!((packet.port.as_str(), packet.received.length as usize), (port, frame.len()));
        assert_eq!(bytes(&packet.received), frame[..frame.len().min(256)], "as it came");
        let expected: Vec<&str> = if reason.is_empty() { Vec::new() } else { vec![reason] };
        assert_eq!(reasons(&packet), expected, "{packet:#?}");
        let counted = rig.drops().into_iter().filter(|(name, count)| before.get(name) != Some(count));
        assert_eq!(counted.map(|(name, _)| name).collect::<Vec<_>>(), expected, "the books");
        let on_wires: Vec<_> = PORTS
            .iter()
            .flat_map(|port| rig.take(port).into_iter().map(move |frame| (*port, frame)))
            .collect();
        let told = sent(&packet);
        assert_eq!(told.len(), on_wires.len(), "{packet:#?}");
        for ((port, tunnel, bytes), (wire, frame)) in told.iter().zip(&on_wires) {
            assert_eq!((*port, &bytes[..]), (*wire, &frame[..frame.len().min(256)]), "as it left");
            let is_tunnelled = *wire == "uplink0" && frame[23] == 17;
            assert_eq!(*tunnel, if is_tunnelled { "fabric" } else { "" });
        }
        assert!(!packet.steps.is_empty(), "each packet ends somehow");
        rig.assert_balanced();
    }
}

#[test]
fn a_miss_a_hit_and_the_reply_bear_their_rule() {
    let mut rig = traced();
    let syn = RED.tcp((40_000, 5201), "S", b"");
    let miss = one(&mut rig, "red0", &syn);
    let hit = one(&mut rig, "red0", &syn);
    let reply = from_fabric(100, &RED.reversed().tcp((5201, 40_000), "SA", b""));
    let reply = one(&mut rig, "uplink0", &reply);
    let reply_hit =
        one(&mut rig, "uplink0", &from_fabric(100, &RED.reversed().tcp((5201, 40_000), "SA", b"")));
    let rule = rig.flows()[0].rule.clone();
    assert!(rule.starts_with("2.yaml:"), "{rule}");
    let facts = [&miss, &hit, &reply, &reply_hit].map(|packet| {
        let lookup = packet.lookup.as_ref().unwrap();
        let entry = lookup.entry.as_ref().unwrap();
        let decision = packet.decision.as_ref().unwrap();
        assert_eq!((packet.tenant.as_str(), packet.class.as_str()), ("red", "flow"));
        assert_eq!((&decision.rule, entry.generation, packet.generation), (&rule, 1, 1));
        (lookup.hit, entry.reply, entry.stage.as_str(), decision.verdict.as_str())
    });
    assert_eq!(
        facts,
        [
            (false, false, "opening", "accept"),
            (true, false, "opening", "accept"),
            (false, true, "opening", "accept (reply)"),
            (true, true, "opening", "accept (reply)"),
        ]
    );
    let flow = miss.flow.unwrap();
    assert_eq!((flow.from.as_str(), flow.service.as_str()), ("red0", "tcp 40000 > 5201"));
    assert_eq!(reply.flow.unwrap().from, "fabric");
    let denied = one(&mut rig, "red0", &RED.tcp((40_000, 9999), "S", b""));
    let decision = denied.decision.unwrap();
    assert_eq!((decision.verdict.as_str(), decision.rule.is_empty()), ("policy-deny", false));
}

#[test]
fn fragments_are_held_and_set_free_by_their_first() {
    let mut rig = traced();
    let whole = RED.udp((7, 5201), &[1; 70]);
    let pieces = cut(&whole, 9, &[24, 40]);
    let later = one(&mut rig, "red0", &pieces[1]);
    assert_eq!((later.class.as_str(), later.steps.as_slice()), ("fragment", &[TracedStep::Held][..]));
    assert_eq!(later.flow.unwrap().service, "later fragment of protocol 17");
    let first = one(&mut rig, "red0", &pieces[0]);
    let inner: Vec<_> = sent(&first).iter().map(|(_, _, frame)| untunnel(frame).inner).collect();
    assert_eq!(inner, pieces[..2]);
    assert_eq!(first.flow.unwrap().service, "udp 7 > 5201");
    let last = one(&mut rig, "red0", &pieces[2]);
    assert!(last.lookup.unwrap().hit, "it goes the way of its first");
    rig.assert_balanced();
}

#[test]
fn an_answer_of_its_own_is_told_apart() {
    let mut rig = traced();
    let packet = one(&mut rig, "red0", &RED.udp((7, 5201), &[5; 1523]));
    assert!(matches!(
        packet.steps.as_slice(),
        [TracedStep::Dropped { .. }, TracedStep::Originated { port }, TracedStep::Sent { .. }] if port == "red0"
    ));
}

#[test]
fn a_full_ring_slows_nothing_and_is_counted() {
    let (mut rig, mut plain) = (traced(), scene());
    let count = TRACE_DEPTH * 3 + 5;
    for rig in [&mut rig, &mut plain] {
        for number in 0..count {
            rig.send("red0", &RED.ping(1, number as u16, 64));
        }
        rig.settle();
    }
    assert_eq!(rig.take("uplink0"), plain.take("uplink0"), "forwarding is as without a trace");
    assert_eq!(rig.ledger.gauge(Gauge::Untraced) as usize, count - TRACE_DEPTH);
    assert_eq!(rig.traced().len(), TRACE_DEPTH);
    // There is room again.
    one(&mut rig, "red0", &RED.ping(1, 0, 64));
    rig.assert_balanced();
}

#[test]
fn a_trace_ends_by_count_by_time_and_when_the_clock_goes_back() {
    let ping = |rig: &mut Rig, number| {
        rig.send("red0", &RED.ping(1, number, 64));
        rig.settle();
        rig.traced().len()
    };
    let mut rig = scene();
    rig.trace(&TraceRequest { count: 2, ..everything() }).unwrap();
    assert_eq!([1, 2, 3].map(|number| ping(&mut rig, number)), [1, 1, 0]);
    rig.trace(&TraceRequest { timeout_ms: 5, ..everything() }).unwrap();
    assert_eq!(ping(&mut rig, 4), 1);
    rig.now = rig.now + Nanos::from_millis(6);
    rig.poll();
    assert_eq!(ping(&mut rig, 5), 0);
    rig.trace(&everything()).unwrap();
    assert_eq!(ping(&mut rig, 6), 1);
    rig.now = Nanos(rig.now.0 - 5_000_000);
    rig.poll();
    assert_eq!((ping(&mut rig, 7), rig.ledger.gauge(Gauge::Untraced)), (0, 0));
    rig.assert_balanced();
}

#[test]
fn a_new_program_in_the_middle_is_told_by_generation() {
    let mut rig = traced();
    let old = one(&mut rig, "red0", &RED.udp((7, 5201), b"x"));
    let closed = RULES.replace("        - {protocol: UDP, port: 5201}\n", "");
    rig.apply(&[FABRIC, TENANTS, &closed]);
    let new = one(&mut rig, "red0", &RED.udp((7, 5201), b"x"));
    assert_eq!((old.generation, reasons(&old).len()), (1, 0));
    assert_eq!((new.generation, reasons(&new)), (2, vec!["policy-default"]));
    assert_eq!(new.decision.unwrap().verdict, "policy-default");
}

#[test]
fn workers_that_hand_over_are_all_seen() {
    let mut rig = Rig::with_crew(DEMO, Limits::default(), Crew { workers: 2, ..Crew::ONE });
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
    rig.trace(&everything()).unwrap();
    for port in 0..32 {
        rig.send("red0", &RED.udp((port, 5201), b"x"));
    }
    rig.send("red1", &Ends { src_mac: RED_LOCAL.dst_mac, src: RED_LOCAL.dst, ..RED }.udp((7, 5201), b"x"));
    rig.settle();
    let packets = rig.traced();
    assert_eq!(packets.len(), 33);
    let away = |packet: &TracedPacket| match &packet.steps[..] {
        [TracedStep::Sent { port, .. } | TracedStep::HandedOver { port, .. }] => port == "uplink0",
        _ => false,
    };
    assert!(packets.iter().all(away), "{packets:#?}");
    assert_eq!(rig.take("uplink0").len(), 33);
    rig.assert_balanced();
}

#[test]
fn what_is_not_there_is_refused() {
    let mut rig = scene();
    let ask = |change: fn(&mut TraceRequest)| {
        let mut request = everything();
        change(&mut request);
        request
    };
    for (request, says) in [
        (ask(|r| r.tenant = Some("green".into())), "green"),
        (ask(|r| r.protocol = Some("tpc".into())), "tpc"),
        (ask(|r| r.reason = Some("whim".into())), "whim"),
        (ask(|r| r.qp = Some(1 << 24)), "0x1000000"),
        (ask(|r| r.count = 0), "count"),
        (ask(|r| r.count = 10_001), "10001"),
        (ask(|r| r.timeout_ms = 600_001), "timeoutMs"),
        (ask(|r| r.snap = 257), "snap"),
    ] {
        let error = rig.trace(&request).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// What a filter asks for, read from the frame as it was sent by a decoder that is not ours.
fn naive(request: &TraceRequest, received: &[u8], packet: &TracedPacket) -> bool {
    let whole = SlicedPacket::from_ethernet(received).ok();
    let is_vxlan = packet.port == "uplink0" && !packet.tenant.is_empty();
    let inner = if is_vxlan { Some(untunnel(received).inner) } else { None };
    let sliced = match &inner {
        Some(inner) => SlicedPacket::from_ethernet(inner).ok(),
        // A tunnel that is not opened says nothing of what is inside, and is nobody's.
        None if packet.port == "uplink0" && received.get(36..38) == Some(&[0x12, 0xb5]) => None,
        None => whole,
    };
    let sliced = sliced.filter(|_| reasons(packet) != ["malformed"]);
    let net = sliced.as_ref().and_then(|sliced| match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => Some((
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
            ip.header().protocol().0,
        )),
        Some(NetSlice::Ipv6(ip)) => Some((
            std::net::IpAddr::from(ip.header().source_addr()),
            std::net::IpAddr::from(ip.header().destination_addr()),
            ip.header().next_header().0,
        )),
        _ => None,
    });
    let ports = sliced.as_ref().and_then(|sliced| match &sliced.transport {
        Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
        Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
        _ => None,
    });
    let qp = sliced.as_ref().and_then(|sliced| match &sliced.transport {
        Some(TransportSlice::Udp(udp)) if udp.destination_port() == 4791 => {
            let bth = udp.payload();
            Some(u32::from_be_bytes([0, bth[5], bth[6], bth[7]]))
        }
        _ => None,
    });
    let number = |name: &str| match name {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        other => other.parse().unwrap(),
    };
    request.tenant.as_ref().is_none_or(|tenant| *tenant == packet.tenant)
        && request.from.is_none_or(|from| net.is_some_and(|(src, ..)| from.contains(&src)))
        && request.to.is_none_or(|to| net.is_some_and(|(_, dst, _)| to.contains(&dst)))
        && request.port.is_none_or(|port| ports.is_some_and(|(src, dst)| src == port || dst == port))
        && request.qp.is_none_or(|wanted| qp == Some(wanted))
        && request.protocol.as_deref().is_none_or(|protocol| match protocol {
            "rocev2" => qp.is_some(),
            name => qp.is_none() && net.is_some_and(|(.., protocol)| protocol == number(name)),
        })
        && request.reason.as_ref().is_none_or(|reason| reasons(packet).contains(&reason.as_str()))
        && match request.outcome {
            TraceOutcome::Any => true,
            TraceOutcome::Sent => !sent(packet).is_empty(),
            TraceOutcome::Dropped => !reasons(packet).is_empty(),
        }
}

fn requests() -> impl Strategy<Value = TraceRequest> {
    let some = |values: &[&str]| {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        prop::option::weighted(0.3, prop::sample::select(values))
    };
    let nets = ["10.1.0.10/32", "10.1.0.0/24", "10.1.0.20/32", "fd00::/64", "192.0.2.0/24", "0.0.0.0/0"];
    let net =
        || prop::option::weighted(0.3, prop::sample::select(nets.map(|net| net.parse().unwrap()).to_vec()));
    let outcome = prop::sample::select(vec![TraceOutcome::Any, TraceOutcome::Sent, TraceOutcome::Dropped]);
    (
        some(&["red", "blue"]),
        net(),
        net(),
        prop::option::weighted(0.3, prop::sample::select(vec![5201_u16, 40_000, 7, 0, 4791])),
        some(&["tcp", "udp", "icmp", "rocev2", "58", "0"]),
        prop::option::weighted(0.1, prop::sample::select(vec![0x77_u32, 0])),
        outcome,
        some(&["policy-deny", "policy-default", "spoofed-mac", "malformed"]),
    )
        .prop_map(|(tenant, from, to, port, protocol, qp, outcome, reason)| TraceRequest {
            tenant,
            from,
            to,
            port,
            protocol,
            qp,
            outcome: if reason.is_some() && outcome == TraceOutcome::Sent {
                TraceOutcome::Any
            } else {
                outcome
            },
            reason,
            ..everything()
        })
}

/// What the trace of a request says of one of each.
fn all_of_each(request: &TraceRequest) -> Vec<TracedPacket> {
    let mut rig = scene();
    rig.trace(request).unwrap();
    for (port, frame, _) in one_of_each() {
        rig.send(port, &frame);
        rig.settle();
    }
    rig.traced()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_filter_takes_what_a_naive_one_takes(request in requests()) {
        let all = all_of_each(&everything()).into_iter().zip(one_of_each());
        let expected: Vec<_> =
            all.filter(|(packet, (_, frame, _))| naive(&request, frame, packet)).map(|(packet, _)| packet).collect();
        prop_assert_eq!(all_of_each(&request), expected);
    }
}
