//! Every capture, whole and cut at every byte, through the parser and everything that takes its answer.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod corpus;

use wire::{L3, L4, Malformed, Parsed, checksum, ecn, icrc, nd, parse, roce, vxlan};

/// Calls everything that reads a frame by a [`Parsed`], and says what must hold between the answers.
fn exercise(frame: &[u8], parsed: &Parsed) {
    let len = frame.len();
    let (l3, l4, end) =
        (usize::from(parsed.l3_offset), usize::from(parsed.l4_offset), usize::from(parsed.end));
    assert!(14 <= l3 && l3 <= l4 && l4 <= end && end <= len, "{parsed:?} in {len} bytes");
    let views = [
        parsed.arp(frame).is_some(),
        parsed.ipv4(frame).is_some(),
        parsed.ipv6(frame).is_some(),
        parsed.l3 == L3::Other,
    ];
    assert_eq!(views.iter().filter(|is| **is).count(), 1, "one L3 each: {parsed:?}");
    assert_eq!(parsed.tcp(frame).is_some(), parsed.l4 == L4::Tcp);
    assert_eq!(parsed.udp(frame).is_some(), parsed.is_udp());
    assert_eq!(parsed.sctp(frame).is_some(), parsed.l4 == L4::Sctp);
    assert_eq!(parsed.icmp(frame).is_some(), matches!(parsed.l4, L4::Icmp | L4::Icmpv6));
    assert_eq!(parsed.bth(frame).is_some(), parsed.l4 == L4::Roce);
    assert_eq!(parsed.bth(frame).map_or(0, roce::Bth::dest_qp), parsed.dest_qp);
    assert_eq!(parsed.tos(frame).is_some(), parsed.ttl(frame).is_some());
    assert!(parsed.ethernet(frame).is_some());
    assert!(parsed.udp_payload(frame).len() + 8 <= parsed.l4_bytes(frame).len() || !parsed.is_udp());
    assert!(parsed.tcp_payload(frame).len() + 20 <= parsed.l4_bytes(frame).len() || parsed.l4 != L4::Tcp);
    if let Some(bth) = parsed.bth(frame) {
        let known = roce::headers(bth.opcode).is_some() && parsed.fragment == wire::Fragment::None;
        assert_eq!(parsed.roce_payload(frame).is_some(), known, "{bth:?}");
    }
    let _ = parsed.roce_header::<roce::Reth>(frame, roce::Headers::RETH);
    let _ = (parsed.icmp_identifier(frame), checksum::verify_l4(frame, parsed), icrc::verify(frame, parsed));
    let _ = vxlan::decap(frame, parsed).map(|inner| parse(&frame[inner.offset.into()..inner.end.into()]));
    if let Ok(Some(quoted)) = parsed.quoted(frame) {
        assert!(quoted.ipv4(frame).is_some() || quoted.ipv6(frame).is_some());
    }
    if let Ok(Some(message)) = nd::Message::parse(parsed.l4_bytes(frame)) {
        assert!(message.options().count() <= len / 8 + 1);
    }
    rewrite(frame, parsed);
}

/// What changes a frame leaves it one that parses alike.
fn rewrite(frame: &[u8], parsed: &Parsed) {
    let mut copy = frame.to_vec();
    let had = checksum::ipv4_header_is_right(parsed.l3_bytes(frame));
    let is_ip = matches!(parsed.l3, L3::Ipv4 | L3::Ipv6);
    assert_eq!(ecn::set_tos(&mut copy, parsed, 0xff), is_ip);
    assert_eq!(parsed.tos(&copy), is_ip.then_some(0xff));
    if parsed.l3 == L3::Ipv4 {
        assert_eq!(checksum::ipv4_header_is_right(parsed.l3_bytes(&copy)), had);
        assert!(checksum::fill_ipv4_header(&mut copy[parsed.l3_offset.into()..]));
        assert!(checksum::ipv4_header_is_right(parsed.l3_bytes(&copy)));
    }
    if checksum::fill_l4(&mut copy, parsed) {
        assert_eq!(checksum::verify_l4(&copy, parsed), checksum::Check::Right);
    }
    if icrc::fill(&mut copy, parsed) {
        assert_eq!(icrc::verify(&copy, parsed), icrc::Check::Right);
    }
    assert_eq!(parse(&copy), Ok(*parsed));
}

#[test]
fn whole_frames() {
    let Some(dir) = corpus::dir() else { return };
    let (mut good, mut bad) = (0, 0);
    for capture in corpus::captures(&dir) {
        for frame in &capture.frames {
            match parse(frame) {
                Ok(parsed) => {
                    good += 1;
                    exercise(frame, &parsed);
                    // The answer for another frame must not lead astray either.
                    let _ =
                        (parsed.ttl(&frame[..frame.len() / 2]), parsed.bth(&[]), parsed.quoted(&frame[..20]));
                }
                Err(_) => bad += 1,
            }
        }
    }
    println!("{good} frames parsed, {bad} refused");
    assert!(good > 3_000 && bad > 50, "{good} frames parsed, {bad} refused");
}

#[test]
fn cut_at_every_byte() {
    let Some(dir) = corpus::dir() else { return };
    for capture in corpus::captures(&dir) {
        for frame in &capture.frames {
            // Past the headers a cut changes only lengths: the last 64 bytes stand for all.
            let cuts = (0..frame.len().min(512)).chain(frame.len().saturating_sub(64)..frame.len());
            for len in cuts {
                if let Ok(parsed) = parse(&frame[..len]) {
                    exercise(&frame[..len], &parsed);
                }
            }
        }
    }
}

#[test]
fn longer_than_any_offset() {
    assert_eq!(parse(&vec![0; 65_536]), Err(Malformed::FrameLong));
    assert!(parse(&vec![0; 65_535]).is_ok());
}

/// Frames of a capture whose ICRC is right, wrong.
fn icrcs(frames: &[Vec<u8>]) -> (usize, usize) {
    let checks =
        frames.iter().filter_map(|frame| parse(frame).ok().map(|parsed| icrc::verify(frame, &parsed)));
    let checks: Vec<_> = checks.collect();
    let count = |wanted| checks.iter().filter(|check| **check == wanted).count();
    (count(icrc::Check::Right), count(icrc::Check::Wrong))
}

#[test]
fn icrc_of_real_captures() {
    let Some(dir) = corpus::dir() else { return };
    // The counts are the corpus manifest's. Frames a capture's snap length cut are refused, not checked.
    for (name, right) in [
        ("nvme_rdma_discover_io", 61),
        ("nvme_rdma_echo", 45),
        ("nvme_rdma_idle", 4),
        ("roce_ib_send_bw", 10),
        ("roce_proxy_cm", 105),
        ("roce_read_ibdump", 13),
        ("roce_write_ibdump", 17),
        ("rocev1_test", 301),
        ("rocev2_test", 708),
    ] {
        let frames = corpus::capture(&dir.join("pcap").join(name).with_extension("pcap")).frames;
        assert_eq!(icrcs(&frames), (right, 0), "{name}");
    }
    for (name, right, wrong) in [
        ("roce_opcodes_v4", 32, 0),
        ("roce_opcodes_v6", 32, 0),
        ("roce_ecn_ttl", 11, 0),
        ("roce_nak", 10, 0),
        ("roce_real_hw_frames", 1, 0),
        ("roce_cnp", 7, 1),
    ] {
        assert_eq!(icrcs(&corpus::made(&dir, name)), (right, wrong), "{name}");
    }
}

#[test]
fn icrc_vectors() {
    let Some(dir) = corpus::dir() else { return };
    let text = std::fs::read_to_string(dir.join("vectors/roce_icrc.json")).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut seen = 0;
    for case in vectors["cases"].as_array().unwrap() {
        let (kind, bytes) = (case["kind"].as_str().unwrap(), hex(case["frame"].as_str().unwrap()));
        let packet = if kind.contains("no Ethernet") { &bytes[..] } else { &bytes[14..] };
        let l4_offset = if packet[0] >> 4 == 4 { usize::from(packet[0] & 15) * 4 } else { 40 };
        let (covered, icrc) = packet.split_last_chunk::<4>().unwrap();
        if kind.starts_with("v2") {
            assert_eq!(icrc::compute(covered, l4_offset), Some(*icrc), "{case}");
            assert_eq!(icrc[..], hex(case["icrc_wire"].as_str().unwrap()));
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} vectors");
}

#[test]
fn ce_marking_vectors() {
    let Some(dir) = corpus::dir() else { return };
    let text = std::fs::read_to_string(dir.join("vectors/ipv4_ce_checksum.json")).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let mut packet = hex(case["before"].as_str().unwrap());
        let tos = ecn::Ecn::Ce.in_tos(packet[1]);
        assert!(ecn::set_tos_ipv4(&mut packet, tos));
        assert_eq!(packet, hex(case["after"].as_str().unwrap()), "{case}");
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
