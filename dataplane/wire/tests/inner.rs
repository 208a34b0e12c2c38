//! What lies inside: VXLAN, the packets that ICMP errors quote, neighbour discovery options, and RFC 6040.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod corpus;

use wire::{
    L3, L4, Mac, Malformed, Parsed, checksum, ecn, icrc,
    nd::{Message, NeighbourAdvertisement, option},
    parse, roce, vxlan,
};

fn good(frame: &[u8]) -> Parsed {
    parse(frame).unwrap()
}

#[test]
fn vxlan_headers() {
    let Some(dir) = corpus::dir() else { return };
    let frames = corpus::made(&dir, "vxlan_isolation");
    let decap = |row: usize| vxlan::decap(&frames[row - 1], &good(&frames[row - 1]));
    // GBP flag (row 7) and reserved bits (row 8) do not matter.
    for (row, vni) in [(1, 100), (2, 200), (3, 300), (4, 0), (5, 0xff_ffff), (7, 100), (8, 100), (10, 100)] {
        let inner = decap(row).unwrap();
        assert_eq!(inner.vni.get(), vni, "row {row}");
        assert_eq!(usize::from(inner.end), frames[row - 1].len());
        let parsed = good(&frames[row - 1][inner.offset.into()..inner.end.into()]);
        assert_eq!((parsed.l3, parsed.l4), (L3::Ipv4, L4::Tcp), "row {row}");
    }
    assert_eq!(decap(6), Err(Malformed::VxlanFlags), "I flag clear");
    assert_eq!(parse(&frames[21]), Err(Malformed::FragmentUnaligned), "an outer fragment");
    let inner = |row: usize| {
        let inner = decap(row).unwrap();
        parse(&frames[row - 1][inner.offset.into()..inner.end.into()])
    };
    assert_eq!(inner(11).unwrap().vlan.outer().unwrap().vid(), 7, "inner frame with a tag");
    assert_eq!(inner(14), Err(Malformed::Ipv4Cut), "inner frame cut");
    assert_eq!(inner(15), Err(Malformed::FrameShort), "no inner frame");
    assert_eq!(inner(16).unwrap().dst_port, vxlan::PORT, "VXLAN in VXLAN is a tenant's UDP");
    assert_eq!(inner(19).unwrap().l3, L3::Arp);
    let check = |row: usize| checksum::verify_l4(&frames[row - 1], &good(&frames[row - 1]));
    assert_eq!(check(1), checksum::Check::Absent);
    assert_eq!(check(9), checksum::Check::Wrong);
    assert_eq!(check(10), checksum::Check::Right);
}

#[test]
fn an_outer_fragment_is_not_opened() {
    let Some(dir) = corpus::dir() else { return };
    let mut frame = corpus::made(&dir, "vxlan_isolation").remove(0);
    // MF, and a payload of 64 bytes: a right first fragment.
    frame[20] = 0x20;
    frame[17] = 84;
    assert_eq!(vxlan::decap(&frame, &good(&frame)), Err(Malformed::VxlanFragment));
}

#[test]
fn rfc_6040_decap() {
    let Some(dir) = corpus::dir() else { return };
    let expected = std::fs::read_to_string(dir.join("pcap_made/rfc6040_vxlan_decap.expect.tsv")).unwrap();
    let frames = corpus::made(&dir, "rfc6040_vxlan_decap");
    assert_eq!(frames.len(), 16);
    for (mut frame, line) in frames.into_iter().zip(expected.lines().skip(1)) {
        let outer_tos = good(&frame).tos(&frame).unwrap();
        let inner = vxlan::decap(&frame, &good(&frame)).unwrap();
        let inner = &mut frame[inner.offset.into()..inner.end.into()];
        let parsed = good(inner);
        let tos = parsed.tos(inner).unwrap();
        let result = if ecn::apply_decap(inner, &parsed, outer_tos) {
            match ecn::Ecn::of(parsed.tos(inner).unwrap()) {
                ecn::Ecn::NotEct => "inner ECN becomes Not-ECT;",
                ecn::Ecn::Ect0 => "inner ECN becomes ECT(0);",
                ecn::Ecn::Ect1 => "inner ECN becomes ECT(1);",
                ecn::Ecn::Ce => "inner ECN becomes CE;",
            }
        } else {
            "DROP"
        };
        assert!(line.contains(result), "{result}, but {line}");
        assert_eq!(parsed.tos(inner).unwrap() >> 2, tos >> 2, "DSCP kept: {line}");
        assert!(checksum::ipv4_header_is_right(parsed.l3_bytes(inner)), "{line}");
        assert_eq!(icrc::verify(inner, &parsed), icrc::Check::Right, "{line}");
    }
}

#[test]
fn quoted_packets() {
    let Some(dir) = corpus::dir() else { return };
    let frames = corpus::made(&dir, "icmp_related");
    let quoted = |row: usize| good(&frames[row - 1]).quoted(&frames[row - 1]);
    for row in [2, 4, 7, 8, 9, 10, 11, 12, 15] {
        let found = quoted(row).unwrap().unwrap();
        assert_eq!((found.l4, found.src_port, found.dst_port), (L4::Tcp, 40000, 80), "row {row}");
        assert_eq!(found.ipv4(&frames[row - 1]).unwrap().src, [10, 0, 1, 1], "row {row}");
    }
    assert_eq!(quoted(5).unwrap().unwrap().l4, L4::None, "the quoted IP header only");
    assert_eq!(quoted(6), Err(Malformed::QuoteCut), "quoted header cut");
    assert_eq!(quoted(1), Ok(None), "TCP");
    assert_eq!(quoted(13), Ok(None), "an echo");
    let ipv6 = quoted(16).unwrap().unwrap();
    assert_eq!((ipv6.l3, ipv6.l4), (L3::Ipv6, L4::Tcp));
    assert!(ipv6.ipv6(&frames[15]).is_some());
    assert_eq!(quoted(17).unwrap().unwrap().l4, L4::Tcp, "behind a quoted fragment header");
    let roce = quoted(19).unwrap().unwrap();
    assert_eq!((roce.l4, roce.src_port, roce.dest_qp), (L4::Roce, 0xd123, None), "8 bytes hold no QP");
    let check = |row: usize| checksum::verify_l4(&frames[row - 1], &good(&frames[row - 1]));
    assert_eq!(check(15), checksum::Check::Wrong);
    for row in [1, 2, 4, 9, 13, 16] {
        assert_eq!(check(row), checksum::Check::Right, "row {row}");
    }
}

#[test]
fn neighbour_discovery() {
    let Some(dir) = corpus::dir() else { return };
    let frames = corpus::made(&dir, "antispoof");
    let message = |row: usize| {
        let frame = &frames[row - 1];
        Message::parse(good(frame).l4_bytes(frame)).unwrap().unwrap()
    };
    let source = |row: usize| message(row).options().link_layer(option::SOURCE_LINK_LAYER);
    let own = Mac([2, 0, 0, 0, 0x0a, 1]);
    assert_eq!(source(10), Ok(Some(own)));
    assert_eq!(source(11), Ok(None));
    assert!(source(12).unwrap().is_some_and(|mac| mac != own));
    assert_eq!(source(16), Err(Malformed::NdOption), "option length 0");
    assert_eq!(good(&frames[14]).ttl(&frames[14]), Some(64), "hop limit");
    let Message::NeighbourAdvertisement(advertisement, options) = message(18) else {
        panic!("an advertisement")
    };
    let flags = NeighbourAdvertisement::SOLICITED | NeighbourAdvertisement::OVERRIDE;
    assert_eq!(advertisement.flags.get(), flags);
    assert_eq!(options.link_layer(option::TARGET_LINK_LAYER), Ok(Some(own)));
    // Plain, behind hop-by-hop options, behind destination options.
    for row in [19, 20, 21] {
        assert!(matches!(message(row), Message::RouterAdvertisement(..)), "row {row}");
    }
}

#[test]
fn roce_headers() {
    let Some(dir) = corpus::dir() else { return };
    for capture in ["roce_opcodes_v4", "roce_opcodes_v6"] {
        let expected = std::fs::read_to_string(dir.join(format!("pcap_made/{capture}.expect.tsv"))).unwrap();
        let frames = corpus::made(&dir, capture);
        for (frame, line) in frames.iter().zip(expected.lines().skip(1)) {
            let parsed = good(frame);
            let bth = parsed.bth(frame).unwrap();
            assert!(line.contains(&format!("opcode {:#04x},", bth.opcode)), "{line}");
            assert!(roce::headers(bth.opcode).is_some(), "{line}");
            let payload = parsed.roce_payload(frame).unwrap().len();
            let expected_payload = match bth.opcode {
                roce::opcode::CNP => 16,
                0x0c | 0x11..=0x14 => 0,
                _ => 64,
            };
            assert_eq!(payload, expected_payload, "{line}");
            let reth: Option<&roce::Reth> = parsed.roce_header(frame, roce::Headers::RETH);
            assert_eq!(
                reth.is_some(),
                line.contains("WRITE first") || line.contains("WRITE only") || line.contains("READ request"),
                "{line}"
            );
            let deth: Option<&roce::Deth> = parsed.roce_header(frame, roce::Headers::DETH);
            assert_eq!(deth.is_some(), line.contains("UD "), "{line}");
            if line.contains("UDP sum right") {
                assert_eq!(checksum::verify_l4(frame, &parsed), checksum::Check::Right, "{line}");
            }
        }
    }
}

#[test]
fn roce_acknowledges() {
    use roce::Syndrome::{Ack, Nak, Reserved, RnrNak};
    let Some(dir) = corpus::dir() else { return };
    let found = corpus::made(&dir, "roce_nak").into_iter().map(|frame| {
        let aeth: &roce::Aeth = good(&frame).roce_header(&frame, roce::Headers::AETH).unwrap();
        aeth.syndrome()
    });
    let found: Vec<_> = found.collect();
    // The corpus: ACK without credits, ACK with 10, RNR 0 and 12, five NAKs, a reserved one.
    assert!(matches!(found[0], Ack(0 | 31)), "{found:?}");
    assert_eq!(found[1..9], [Ack(10), RnrNak(0), RnrNak(12), Nak(0), Nak(1), Nak(2), Nak(3), Nak(4)]);
    assert!(matches!(found[9], Reserved(_)), "{found:?}");
}

#[test]
fn congestion_notifications() {
    let Some(dir) = corpus::dir() else { return };
    for (row, frame) in corpus::made(&dir, "roce_cnp").iter().enumerate().filter(|(row, _)| *row != 5) {
        // Row 5 (index 4) has the opcode without the BECN bit: no CNP, see `Bth::is_cnp`.
        assert_eq!(good(frame).bth(frame).unwrap().is_cnp(), row != 4, "row {}", row + 1);
    }
}
