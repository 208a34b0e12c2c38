//! Public bugs of other data planes (corpus, bugs.tsv), each as a test of the same input here. Others that this slice
//! concerns are in the tests of their theme: B008, B031, B097 and B125 in `corpus_tables`, B042 and B056 in `state`,
//! B058 in `reload`. RoCE, resources, clocks, counters and layer 2 are in `bugs_of_resources`.

use std::collections::HashSet;

use program::DropReason;
use scenarios::frames::{Ends, tunnel, untunnel};
use scenarios::frames6::{extend, untunnel6};
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, RED, RED_GATEWAY, RED_LOCAL, RED6, demo, from_fabric, outer, with};
use wire::L4;

/// Rules of red's, each list as YAML.
fn rules(egress: &str, ingress: &str) -> String {
    format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: rules}}\n\
         spec: {{tenant: red, egress: [{egress}], ingress: [{ingress}]}}\n"
    )
}

const ANY: &str = "{action: Accept}";

fn open() -> Rig {
    with(&[FABRIC, TENANTS, &rules(ANY, ANY)])
}

/// The inner frames that leave red's port by tunnel for one frame.
fn out(rig: &mut Rig, frame: &[u8]) -> Vec<Vec<u8>> {
    rig.pass("red0", frame, "uplink0").iter().map(|frame| untunnel(frame).inner).collect()
}

/// Recomputes lengths and checksums after headers were put in.
fn mended(mut frame: Vec<u8>) -> Vec<u8> {
    let len = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
    frame
}

#[test]
fn b003_rocev2_behind_an_extension_header() {
    let mut rig = with(&[
        FABRIC,
        TENANTS,
        &rules("{action: Accept, services: [{protocol: RoCEv2, queuePairs: 17}]}", ""),
    ]);
    let hop_by_hop = [17, 0, 1, 4, 0, 0, 0, 0];
    for (qp, passes) in [(17, true), (18, false)] {
        let frame = extend(&RED6.roce(50_000, qp, b"payload8"), 0, &hop_by_hop);
        assert_eq!(wire::parse(&frame).unwrap().l4, L4::Roce);
        assert_eq!(!out(&mut rig, &frame).is_empty(), passes);
    }
    rig.assert_balanced();
}

#[test]
fn b005_port_zero() {
    let mut rig = open();
    for frame in [RED.udp((0, 5201), b"x"), RED.tcp((0, 0), "S", b"")] {
        assert_eq!(out(&mut rig, &frame), [frame]);
    }
    let mut rig = demo();
    assert!(out(&mut rig, &RED.tcp((0, 0), "S", b"")).is_empty());
    rig.assert_balanced();
}

#[test]
fn b006_b007_what_stands_before_tcp() {
    let web = "{action: Accept, services: [{protocol: TCP, port: 80}]}";
    let mut rig = with(&[FABRIC, TENANTS, &rules(web, "")]);
    let authentication = [6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    for (port, passes) in [(80, true), (22, false)] {
        let behind = extend(&RED6.syn((40_000, port)), 51, &authentication);
        assert_eq!(
            !out(&mut rig, &behind).is_empty(),
            passes,
            "behind an authentication header, port {port}"
        );
        let unknown = extend(&RED6.syn((40_000, port)), 253, &[6, 0, 0, 0, 0, 0, 0, 0]);
        assert!(out(&mut rig, &unknown).is_empty(), "behind an unknown header");
    }
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 3);
    rig.assert_balanced();
}

#[test]
fn b009_frames_of_no_bytes() {
    let mut rig = demo();
    for port in ["red0", "uplink0"] {
        for len in [0, 1, 6, 13] {
            assert!(rig.pass(port, &vec![0; len], port).is_empty());
        }
    }
    assert_eq!(rig.dropped(DropReason::Malformed), 8);
    rig.assert_balanced();
}

#[test]
fn b011_an_ipv6_traffic_class_is_no_version() {
    let mut rig = open();
    let mut frame = RED6.udp((7, 8), b"x");
    frame[14] = 0x6f;
    frame[15] |= 0xf0;
    assert_eq!(out(&mut rig, &frame), [frame]);
    rig.assert_balanced();
}

#[test]
fn b012_an_echo_request_that_carries_a_packet_is_no_error() {
    let mut rig = demo();
    assert_eq!(rig.pass("blue0", &BLUE.tcp((40_000, 5201), "S", b""), "uplink0").len(), 1);
    let mut request = BLUE.reversed().ping(0, 0, 64);
    request.truncate(42);
    request.extend_from_slice(&BLUE.tcp((40_000, 5201), "S", b"")[14..]);
    let mut request = mended(request);
    let parsed = wire::parse(&request).unwrap();
    assert!(wire::checksum::fill_l4(&mut request, &parsed));
    assert!(rig.pass("uplink0", &from_fabric(200, &request), "blue0").is_empty());
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 1);
    rig.assert_balanced();
}

#[test]
fn b013_b014_priority_tags() {
    let mut rig = open();
    // 60 bytes with a tag of VID 0 and priority 0: what is below it leaves whole, without the padding.
    let frame = RED.udp((7, 8), b"0123456789");
    let mut tagged = frame[..12].to_vec();
    tagged.extend_from_slice(&[0x81, 0, 0, 0]);
    tagged.extend_from_slice(&frame[12..]);
    tagged.resize(60, 0);
    assert_eq!(out(&mut rig, &tagged), [frame]);
    let request = RED.arp_request([10, 1, 0, 1]);
    let mut tagged = request[..12].to_vec();
    tagged.extend_from_slice(&[0x81, 0, 5 << 5, 0]);
    tagged.extend_from_slice(&request[12..]);
    let seen = rig.pass("red0", &tagged, "red0");
    assert_eq!((seen.len(), seen[0].len(), &seen[0][22..28]), (1, 60, &RED_GATEWAY.0[..]));
    rig.assert_balanced();
}

/// A fragment with these flags and offset; `data` is all behind the IPv4 header.
fn fragment(protocol: u8, id: u16, field: u16, data: &[u8]) -> Vec<u8> {
    let mut frame = RED.udp((7, 8), b"")[..34].to_vec();
    frame.extend_from_slice(data);
    frame[18..20].copy_from_slice(&id.to_be_bytes());
    frame[20..22].copy_from_slice(&field.to_be_bytes());
    frame[23] = protocol;
    mended(frame)
}

/// Three fragments of a datagram to a UDP port.
fn datagram(id: u16, port: u16) -> [Vec<u8>; 3] {
    let mut first = vec![0, 7];
    first.extend_from_slice(&port.to_be_bytes());
    first.extend_from_slice(&[0, 49, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    first.extend_from_slice(&[0; 4]);
    [fragment(17, id, 0x2000, &first), fragment(17, id, 0x2003, &[1; 24]), fragment(17, id, 6, b"x")]
}

#[test]
fn b021_a_denied_port_denies_later_fragments() {
    let deny = format!("{{action: Deny, services: [{{protocol: UDP, port: 7001}}]}}, {ANY}");
    let mut rig = with(&[FABRIC, TENANTS, &rules(&deny, "")]);
    for frame in datagram(1, 7001) {
        assert!(out(&mut rig, &frame).is_empty());
    }
    assert_eq!(rig.dropped(DropReason::PolicyDeny), 3);
    rig.assert_balanced();
}

#[test]
fn b026_fragments_of_one_datagram_take_one_path() {
    let mut rig = open();
    for id in 0..50 {
        let [first, second, third] = datagram(id, 7000 + id);
        // The last one first: it waits.
        let mut pass = |frame| rig.pass("red0", frame, "uplink0");
        assert!(pass(&third).is_empty());
        let seen = [pass(&first), pass(&second)].concat();
        let ports: HashSet<u16> = seen.iter().map(|frame| untunnel(frame).src_port).collect();
        assert_eq!((seen.len(), ports.len()), (3, 1), "{ports:?}");
    }
    rig.assert_balanced();
}

#[test]
fn b028_b030_fragments_keep_no_buffer() {
    let mut rig = open();
    let level = rig.pool.level();
    for id in 0..10_000 {
        rig.pass("red0", &fragment(255, id, 0x2000, &[0; 16]), "uplink0");
    }
    assert!(out(&mut rig, &fragment(17, 1, 0x2001, &[])).is_empty(), "without data");
    assert_eq!(rig.dropped(DropReason::Malformed), 1);
    assert_eq!(rig.pool.level(), level);
    rig.assert_balanced();
}

#[test]
fn b034_every_icmpv6_error_is_known() {
    let mut rig = demo();
    let sent = RED6.udp((7, 5201), b"x");
    assert_eq!(out(&mut rig, &sent).len(), 1);
    let mut body = vec![0, 0, 5, 0];
    body.extend_from_slice(&sent[14..]);
    for (kind, passes) in [(1, true), (2, true), (3, true), (4, true), (137, false)] {
        let error = RED6.reversed().icmpv6(kind, 0, &body, 64);
        assert_eq!(!rig.pass("uplink0", &from_fabric(100, &error), "red0").is_empty(), passes, "type {kind}");
    }
    let other = RED6.udp((8, 5201), b"x");
    body.truncate(4);
    body.extend_from_slice(&other[14..]);
    let error = RED6.reversed().icmpv6(2, 0, &body, 64);
    assert!(rig.pass("uplink0", &from_fabric(100, &error), "red0").is_empty(), "about no flow");
    assert_eq!(rig.dropped(DropReason::UnrelatedIcmpError), 1);
    rig.assert_balanced();
}

#[test]
fn b035_pings_are_told_apart_by_identifier() {
    let mut rig = demo();
    assert_eq!(out(&mut rig, &RED.ping(1, 1, 64)).len(), 1);
    let mut reply = |id| rig.pass("uplink0", &from_fabric(100, &RED.reversed().pong(id, 1)), "red0").len();
    assert_eq!((reply(1), reply(2)), (1, 0));
    rig.assert_balanced();
}

#[test]
fn b036_two_pings_between_two_local_ports() {
    let mut rig = demo();
    for sequence in 1..=2 {
        assert_eq!(rig.pass("red0", &RED_LOCAL.ping(1, sequence, 64), "red1").len(), 1, "{:?}", rig.drops());
        let pong = RED_LOCAL.reversed().pong(1, sequence);
        assert_eq!(rig.pass("red1", &pong, "red0"), [pong]);
    }
    rig.assert_balanced();
}

#[test]
fn b037_an_inner_address_of_nobody() {
    let mut rig = open();
    let nobody = Ends { dst: [172, 31, 0, 1], ..RED.reversed() };
    rig.send("uplink0", &from_fabric(100, &nobody.udp((7, 8), b"x")));
    rig.settle();
    for port in ["uplink0", "red0", "red1", "blue0"] {
        assert!(rig.take(port).is_empty());
    }
    assert_eq!(rig.dropped(DropReason::NoRoute), 1);
    rig.assert_balanced();
}

#[test]
fn b047_repeated_syn_and_reset() {
    let mut rig = demo();
    for flags in ["S", "S", "R", "S"] {
        assert_eq!(out(&mut rig, &RED.tcp((40_000, 5201), flags, b"")).len(), 1);
    }
    for flags in ["SA", "SA", "R"] {
        let back = RED.reversed().tcp((5201, 40_000), flags, b"");
        assert_eq!(rig.pass("uplink0", &from_fabric(100, &back), "red0").len(), 1);
    }
    rig.assert_balanced();
}

#[test]
fn b048_an_address_with_a_new_holder() {
    let by_port = |address_of_0: &str, address_of_1: &str| {
        TENANTS
            .replacen("addresses: [10.1.0.10, \"fd00::10\"]", &format!("addresses: [{address_of_0}]"), 1)
            .replacen("addresses: [10.1.0.11]", &format!("addresses: [{address_of_1}]"), 1)
    };
    let web = "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {name: web}\n\
               spec: {tenant: red, ports: [red0], ingress: [{action: Accept, services: [{protocol: TCP, port: 80}]}]}\n";
    let mut rig = with(&[FABRIC, &by_port("10.1.0.50", "10.1.0.60"), web]);
    let to = |mac| Ends { dst: [10, 1, 0, 50], dst_mac: mac, ..RED.reversed() };
    let (old, new) = (to(RED.src_mac), to(RED_LOCAL.dst_mac));
    let request = from_fabric(100, &old.tcp((40_000, 80), "A", b""));
    assert_eq!(rig.pass("uplink0", &request, "red0").len(), 1);
    rig.apply(&[FABRIC, &by_port("10.1.0.60", "10.1.0.50"), web]);
    for ends in [old, new] {
        rig.send("uplink0", &from_fabric(100, &ends.tcp((40_000, 80), "A", b"")));
        rig.settle();
        assert!(rig.take("red0").is_empty() && rig.take("red1").is_empty());
    }
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 2);
    rig.assert_balanced();
}

#[test]
fn b049_b050_except_takes_from_its_own_block_alone() {
    let egress = "{action: Accept, to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.1.0.0/24]}}]}, \
                  {action: Accept, to: [{ipBlock: {cidr: 10.1.0.0/24}}], services: [{protocol: TCP, port: 9090}]}, \
                  {action: Accept, to: [{ipBlock: {cidr: 10.1.0.30/32}}]}";
    let mut rig = with(&[FABRIC, TENANTS, &rules(egress, "")]);
    assert!(out(&mut rig, &RED.tcp((1, 22), "S", b"")).is_empty());
    assert_eq!(out(&mut rig, &RED.tcp((1, 9090), "S", b"")).len(), 1);
    let excepted = Ends { dst: [10, 1, 0, 30], dst_mac: RED_GATEWAY, ..RED };
    assert_eq!(out(&mut rig, &excepted.tcp((1, 22), "S", b"")).len(), 1);
    let far = Ends { dst: [10, 9, 0, 1], dst_mac: RED_GATEWAY, ..RED };
    assert_eq!(out(&mut rig, &far.tcp((1, 22), "S", b"")).len(), 1);
    rig.assert_balanced();
}

#[test]
fn b052_sctp_has_ports() {
    let sctp = "{action: Accept, services: [{protocol: SCTP, port: 3301}]}";
    let mut rig = with(&[FABRIC, TENANTS, &rules(sctp, "")]);
    for (port, passes) in [(3301_u16, true), (3302, false)] {
        let mut header = vec![0, 9];
        header.extend_from_slice(&port.to_be_bytes());
        // A tag, as only an INIT has none, and a DATA chunk.
        header.extend_from_slice(&[0, 0, 0, 7, 0, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0]);
        assert_eq!(!out(&mut rig, &fragment(132, 1, 0x4000, &header)).is_empty(), passes);
    }
    rig.assert_balanced();
}

#[test]
fn b054_a_selector_of_nobody_allows_nobody() {
    let mut rig = with(&[FABRIC, TENANTS, &rules("{action: Accept, to: []}", "")]);
    assert!(out(&mut rig, &RED.tcp((1, 5201), "S", b"")).is_empty());
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 1);
    rig.assert_balanced();
}

#[test]
fn b057_one_of_two_policies_is_deleted() {
    let (first, second) = (
        rules("{action: Accept, services: [{protocol: UDP, port: 1}]}", ""),
        rules("{action: Accept, services: [{protocol: UDP, port: 2}]}", ""),
    );
    let second = second.replace("name: rules", "name: more");
    let mut rig = with(&[FABRIC, TENANTS, &first, &second]);
    let both =
        |rig: &mut Rig| (out(rig, &RED.udp((7, 1), b"x")).len(), out(rig, &RED.udp((7, 2), b"x")).len());
    assert_eq!((both(&mut rig), both(&mut rig)), ((1, 1), (1, 1)));
    rig.apply(&[FABRIC, TENANTS, &first]);
    assert_eq!((both(&mut rig), both(&mut rig)), ((1, 0), (1, 0)));
    rig.assert_balanced();
}

#[test]
fn b063_tunnel_ports_are_a_tenants_to_use() {
    let mut rig = open();
    for port in [4789, 1000, 4791, 8472] {
        let frame =
            if port == 4791 { RED_LOCAL.roce(9, 5, b"payload8") } else { RED_LOCAL.udp((9, port), b"x") };
        assert_eq!(rig.pass("red0", &frame, "red1"), [frame]);
    }
    let mut rig = demo();
    assert!(rig.pass("red0", &RED_LOCAL.udp((9, 4789), b"x"), "red1").is_empty());
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 1);
    rig.assert_balanced();
}

#[test]
fn b086_the_checksum_covers_all_options() {
    let mut rig = open();
    let plain = Ends { dst_mac: RED_GATEWAY, ..RED }.udp((7, 8), b"x");
    let mut frame = plain[..34].to_vec();
    frame.extend_from_slice(&[1; 40]);
    frame.extend_from_slice(&plain[34..]);
    frame[14] = 0x4f;
    let frame = mended(frame);
    let seen = out(&mut rig, &frame);
    assert_eq!((seen[0][22], &seen[0][26..]), (63, &frame[26..]));
    assert!(wire::checksum::ipv4_header_is_right(&seen[0][14..]));
    rig.assert_balanced();
}

#[test]
fn b087_padding_is_not_size() {
    let mut rig = open();
    let largest = RED.udp((7, 8), &[5; 1522]);
    let mut padded = largest.clone();
    padded.extend_from_slice(&[0; 80]);
    assert_eq!(out(&mut rig, &padded), [largest]);
    assert_eq!(rig.dropped(DropReason::TooBig), 0);
    rig.assert_balanced();
}

#[test]
fn b090_every_bit_of_the_vni() {
    for vni in [1, 4096, 0x00ff_fffe, 0x00ff_ffff, 0x0012_3456] {
        let tenants = TENANTS.replace("vni: 100", &format!("vni: {vni}"));
        let mut rig = with(&[FABRIC, &tenants, RULES]);
        let frame = RED.udp((7, 5201), b"x");
        let seen = untunnel(&rig.pass("red0", &frame, "uplink0")[0]);
        assert_eq!((seen.vni, seen.inner), (vni, frame));
        let back = RED.reversed().udp((5201, 7), b"y");
        assert_eq!(rig.pass("uplink0", &from_fabric(vni, &back), "red0"), [back]);
        rig.assert_balanced();
    }
}

const FABRIC6: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: rig}
spec:
  ports:
    - {name: uplink0, device: "memory:", mtu: 1600}
    - {name: red0, device: "memory:"}
    - {name: blue0, device: "memory:"}
    - {name: red1, device: "memory:"}
  uplink: {port: uplink0, addresses: ["2001:db8::1/64"]}
  vteps:
    - {name: fabric, address: "2001:db8::2", mac: "02:ee:00:00:00:02"}
    - {name: other, address: "2001:db8::3", mac: "02:ee:00:00:00:03"}
"#;

#[test]
fn b091_the_outer_ipv6_payload_length() {
    let mut rig = Rig::new(&[FABRIC6, TENANTS, RULES]);
    // Padded to the 46 bytes that Ethernet wants; the length is checked by `untunnel6`.
    let mut padded = RED.udp((7, 5201), b"x");
    let frame = padded.clone();
    padded.resize(60, 0x55);
    for (sent, inner) in [(padded, frame), (RED6.udp((7, 5201), b"odd"), RED6.udp((7, 5201), b"odd"))] {
        assert_eq!(untunnel6(&rig.pass("red0", &sent, "uplink0")[0]).inner, inner);
    }
    rig.assert_balanced();
}

#[test]
fn b092_each_mode_has_its_own_mtu() {
    // IPv4 takes 20 + 8 + 8 + 14 bytes, IPv6 twenty more.
    for (fabric, mtu) in [(FABRIC, 1550), (FABRIC6, 1530)] {
        let mut rig = with(&[fabric, TENANTS, RULES]);
        let udp = |len: usize| RED.udp((7, 5201), &vec![5; len - 28]);
        assert_eq!(rig.pass("red0", &udp(mtu), "uplink0").len(), 1, "{:?}", rig.drops());
        assert!(rig.pass("red0", &udp(mtu + 1), "uplink0").is_empty());
        let told = rig.take("red0");
        assert_eq!(told[0][34..42], [3, 4, told[0][36], told[0][37], 0, 0, (mtu >> 8) as u8, mtu as u8]);
        rig.assert_balanced();
    }
}

#[test]
fn b093_b095_entropy_is_spread_and_stable() {
    let mut rig = demo();
    let mut ports = HashSet::new();
    for qp in 0..1000 {
        let frame = RED.roce(50_000, qp, b"payload8");
        let mut port = || untunnel(&rig.pass("red0", &frame, "uplink0")[0]).src_port;
        // The first packet has no entry yet, the second has.
        let (first, second) = (port(), port());
        assert_eq!(first, second);
        assert!(first >= 49_152);
        ports.insert(first);
    }
    assert!(ports.len() > 930, "{}", ports.len());
    rig.apply(DEMO);
    let after = untunnel(&rig.pass("red0", &RED.roce(50_000, 3, b"payload8"), "uplink0")[0]).src_port;
    let again = untunnel(&rig.pass("red0", &RED.roce(50_000, 3, b"payload8"), "uplink0")[0]).src_port;
    assert!(after == again && ports.contains(&after), "a swap keeps the path");
    rig.assert_balanced();
}

#[test]
fn b094_a_vni_means_nothing_without_its_endpoint() {
    let mut rig = open();
    let frame = RED.reversed().udp((7, 8), b"x");
    let from = |last| tunnel(Ends { src: [192, 0, 2, last], ..outer() }, 0, 100, &frame);
    assert_eq!(rig.pass("uplink0", &from(2), "red0").len(), 1);
    assert!(rig.pass("uplink0", &from(3), "red0").is_empty(), "a known endpoint, but not this host's");
    assert!(rig.pass("uplink0", &from(9), "red0").is_empty(), "an unknown one");
    assert_eq!((rig.dropped(DropReason::SpoofedAddress), rig.dropped(DropReason::UnknownVtep)), (1, 1));
    rig.assert_balanced();
}
