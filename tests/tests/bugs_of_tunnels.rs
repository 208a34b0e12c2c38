//! Public bugs of other data planes (corpus, bugs.tsv) with tunnels, checksums and buffers, each as a test of the same input
//! here.

use packet::Nanos;
use policy::Source;
use program::DropReason;
use scenarios::crew::Crew;
use scenarios::frames::{Ends, tunnel, untunnel};
use scenarios::frames6::{Ends6, untunnel6};
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::{Rig, compile_texts};
use scenarios::scene::{PEER_VTEP_MAC, RED, RED_GATEWAY, RED_GATEWAY6, RED6, demo, from_fabric, outer, with};
use wire::checksum::{Check, verify_l4};

/// The uplink has an address of each family; who is on the fabric has a MAC, so that nobody is asked.
fn fabric(addresses: &str, vtep: &str) -> String {
    FABRIC
        .replace("[192.0.2.1/24]", &format!("[{addresses}]"))
        .replace("192.0.2.2}", &format!("\"{vtep}\", mac: \"02:ee:00:00:00:02\"}}"))
        .replace("192.0.2.3}", "192.0.2.3, mac: \"02:ee:00:00:00:03\"}")
}

const BOTH: &str = "192.0.2.1/24, \"2001:db8::1/64\"";

#[test]
fn b029_what_leaves_is_never_cut_so_no_identification_is_shared() {
    let mut rig = with(&[FABRIC, TENANTS, RULES]);
    for port in 0..100 {
        let seen = rig.pass("red0", &RED.udp((port, 5201), &[1; 1000]), "uplink0");
        // RFC 6864, section 4.1: don't fragment, so that the identification means nothing.
        assert_eq!(seen[0][18..22], [0, 0, 0x40, 0]);
    }
    assert!(rig.pass("red0", &RED.udp((7, 5201), &[1; 1600]), "uplink0").is_empty());
    assert_eq!(rig.dropped(DropReason::TooBig), 1);
    let mut rig = with(&[&fabric(BOTH, "2001:db8::2"), TENANTS, RULES]);
    let seen = rig.pass("red0", &RED.udp((7, 5201), &[1; 1000]), "uplink0");
    assert_eq!(seen[0][20], 17, "no fragment header of IPv6 either");
    rig.assert_balanced();
}

#[test]
fn b082_an_inner_checksum_that_is_not_there_yet() {
    // What a sender leaves whose card is to finish the checksum: the sum of the pseudo-header, nothing, or all ones.
    for checksum in [[0x2b, 0x3c], [0, 0], [0xff, 0xff]] {
        let mut frame = RED.udp((7, 5201), b"to be finished");
        frame[40..42].copy_from_slice(&checksum);
        let mut rig = with(&[&fabric(BOTH, "2001:db8::2"), TENANTS, RULES]);
        // `untunnel6` compares the outer checksum, which covers the inner one.
        assert_eq!(untunnel6(&rig.pass("red0", &frame, "uplink0")[0]).inner, frame);
        let mut rig = demo();
        assert_eq!(untunnel(&rig.pass("red0", &frame, "uplink0")[0]).inner, frame);
        rig.assert_balanced();
    }
}

#[test]
fn b083_b084_every_sum_is_right_when_it_leaves() {
    let mut rig = with(&[&fabric(BOTH, "2001:db8::2"), TENANTS, RULES]);
    let routed = Ends { dst_mac: RED_GATEWAY, ..RED };
    for len in (0..600).chain([1400]) {
        let frame = routed.udp((7, 5201), &vec![len as u8; len]);
        let inner = untunnel6(&rig.pass("red0", &frame, "uplink0")[0]).inner;
        let parsed = wire::parse(&inner).expect("a right frame");
        assert!(wire::checksum::ipv4_header_is_right(&inner[14..]), "with its TTL less one");
        assert_eq!(verify_l4(&inner, &parsed), Check::Right);
    }
    rig.assert_balanced();
}

#[test]
fn b085_answers_of_our_own_have_right_sums() {
    let mut rig = demo();
    let gateway = Ends { dst: [10, 1, 0, 1], dst_mac: RED_GATEWAY, ..RED };
    let gateway6 = Ends6 { dst: RED_GATEWAY6, dst_mac: RED_GATEWAY, ..RED6 };
    let mut answered = |frame: &[u8]| {
        let seen = rig.pass("red0", frame, "red0");
        assert_eq!(seen.len(), 1, "{:?}", rig.drops());
        let parsed = wire::parse(&seen[0]).expect("a right frame");
        assert_eq!(verify_l4(&seen[0], &parsed), Check::Right, "{:02x?}", seen[0]);
        rig.now = rig.now + Nanos::from_millis(1);
    };
    for number in 0..=u16::from(u8::MAX) {
        answered(&gateway.ping(number, 0xffff - number, 64));
        answered(&gateway6.ping(number, 0xffff - number, 64));
        // ICMP errors, about packets of every length.
        answered(&RED.udp((number, 5201), &vec![number as u8; 1600 + usize::from(number)]));
        answered(&RED6.udp((number, 5201), &vec![number as u8; 1600 + usize::from(number)]));
    }
    answered(&RED6.solicit(RED6.dst));
    rig.assert_balanced();
}

#[test]
fn b088_the_inner_tag_is_not_the_outer_frames() {
    let mut rig = demo();
    let frame = RED.udp((7, 5201), b"x");
    let tagged = |vid: u8| [&frame[..12], &[0x81, 0, 5 << 5, vid], &frame[12..]].concat();
    let seen = rig.pass("red0", &tagged(0), "uplink0");
    // Untagged, to the endpoint's next hop, and the inner frame without its priority tag.
    assert_eq!(seen[0][12..14], [8, 0]);
    let outside = untunnel(&seen[0]);
    assert_eq!(
        (outside.macs.0, outside.ends.1, outside.inner),
        (PEER_VTEP_MAC, [192, 0, 2, 2], frame.clone())
    );
    assert!(rig.pass("red0", &tagged(10), "uplink0").is_empty());
    assert_eq!(rig.dropped(DropReason::UnexpectedVlan), 1);
    rig.assert_balanced();
}

#[test]
fn b089_the_outer_source_is_the_uplinks_of_that_family() {
    let mut rig = with(&[&fabric(BOTH, "2001:db8::2"), TENANTS, RULES]);
    let six = untunnel6(&rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0")[0]);
    assert_eq!(six.ends.0.to_string(), "2001:db8::1");
    let mut rig = with(&[&fabric(BOTH, "192.0.2.2"), TENANTS, RULES]);
    let four = untunnel(&rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0")[0]);
    assert_eq!(four.ends.0, [192, 0, 2, 1]);
    // Two of one family would leave open which it is.
    let two = fabric("\"2001:db8::1/64\", \"2001:db8::9/64\"", "2001:db8::2");
    let texts = [two.as_str(), TENANTS, RULES];
    let source = |text: &&str| Source { name: "0.yaml".into(), bytes: text.as_bytes().to_vec() };
    let said =
        policy::parse(&texts.iter().map(source).collect::<Vec<_>>()).err().map(|errors| errors.to_string());
    assert!(
        said.as_ref().is_some_and(|said| said.contains("a second IPv6 address of the uplink")),
        "{said:?}"
    );
}

#[test]
fn b098_a_mark_of_the_first_tunnel_is_seen_in_the_second() {
    let mut rig = demo();
    assert_eq!(rig.pass("red0", &RED.roce(9, 17, b"payload8"), "uplink0").len(), 1);
    let mut frame = RED.reversed().roce(9, 17, b"payload8");
    frame[15] = 26 << 2 | 2;
    assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
    let seen = rig.pass("uplink0", &tunnel(outer(), 3, 100, &frame), "red0");
    assert_eq!(seen[0][15], 26 << 2 | 3, "congestion experienced, and the class is kept");
    // A host that forwards what it got.
    let mut again = seen[0].clone();
    again[..12].copy_from_slice(&RED.roce(9, 17, b"")[..12]);
    again[26..34].copy_from_slice(&RED.roce(9, 17, b"")[26..34]);
    assert_eq!(untunnel(&rig.pass("red0", &again, "uplink0")[0]).tos, 26 << 2 | 3);
    rig.assert_balanced();
}

#[test]
fn b107_a_burst_of_the_whole_pool_then_silence_then_a_packet() {
    const BUFFERS: usize = 512;
    let fabric = fabric(BOTH, "192.0.2.2");
    let texts = [fabric.as_str(), TENANTS, RULES];
    let program = std::sync::Arc::new(compile_texts(&texts, None));
    let mut rig = Rig::running(program, edge::Limits::default(), Crew::ONE, BUFFERS);
    let frame = RED.udp((7, 5201), b"x");
    for _ in 0..3 {
        let sent = (0..=BUFFERS).take_while(|_| rig.wire("red0").send_to(0, &frame).is_ok()).count();
        assert_eq!((sent, rig.pool.level().free), (BUFFERS, 0));
        rig.settle();
        rig.now = rig.now + Nanos::from_secs(3_600);
        rig.settle();
        assert_eq!(rig.take("uplink0").len(), BUFFERS);
        assert_eq!(rig.pass("red0", &frame, "uplink0").len(), 1, "{:?}", rig.drops());
    }
    rig.assert_balanced();
}

#[test]
fn b127_each_udp_port_of_the_box_is_its_own() {
    let mut rig = with(DEMO);
    assert_eq!(rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0").len(), 1);
    let inner = RED.reversed().udp((5201, 7), b"y");
    let to_port = |port: u16| {
        let mut frame = from_fabric(100, &inner);
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    };
    assert_eq!(rig.pass("uplink0", &to_port(4789), "red0"), std::slice::from_ref(&inner));
    // None of them is another's; 5000 and 693 are 4789 and 1000 with bits changed.
    for port in [1000, 4788, 4790, 4791, 693, 5000, 0] {
        assert!(rig.pass("uplink0", &to_port(port), "red0").is_empty(), "{port}");
    }
    assert_eq!(rig.dropped(DropReason::NoService), 7);
    rig.assert_balanced();
}
