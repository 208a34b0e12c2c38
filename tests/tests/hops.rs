//! Several hops for one prefix: each flow takes one and keeps it, and what answers may come from any of them.

use std::collections::BTreeMap;

use program::{DropReason, Program};
use scenarios::cuts::cut;
use scenarios::frames::{Ends, tunnel, untunnel};
use scenarios::policies::{FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{PEER_VTEP_MAC, RED, RED_GATEWAY, outer, with};
use scenarios::verbs::data;
use wire::Mac;

/// The last bytes of the endpoints' addresses, and of their hops' MACs.
const HOPS: [(u8, u8); 3] = [(2, 0x42), (3, 0x43), (4, 0x44)];
/// An endpoint of red's behind which the prefix is not.
const STRANGER: u8 = 5;

/// Red's hosts to one behind the hops, through the gateway.
const FAR: Ends = Ends { dst: [10, 9, 0, 7], dst_mac: RED_GATEWAY, ..RED };

fn texts(hops: &[u8], rules: &str) -> [String; 3] {
    let fabric = format!(
        "{FABRIC}    - {{name: third, address: 192.0.2.4}}\n    - {{name: stranger, address: 192.0.2.5}}\n"
    );
    let names = BTreeMap::from([(2, "fabric"), (3, "other"), (4, "third")]);
    let hop = |last: &u8| {
        let (name, mac) = (names[last], 0x40 + last);
        format!(
            "    - {{vtep: {name}, mac: \"02:00:00:00:0a:{mac:02x}\", addresses: [], prefixes: [10.9.0.0/16]}}\n"
        )
    };
    let hops: String = hops.iter().map(hop).collect();
    let stranger = "    - {vtep: stranger, mac: \"02:00:00:00:0a:50\", addresses: [10.1.0.50]}\n";
    let tenants = TENANTS.replace(", prefixes: [10.9.0.0/16]", "");
    let tenants = tenants.replacen("---\n", &format!("{hops}{stranger}---\n"), 1);
    [fabric, tenants, rules.into()]
}

fn scene(hops: &[u8]) -> Rig {
    let texts = texts(hops, RULES);
    with(&texts.each_ref().map(String::as_str))
}

fn apply(rig: &mut Rig, hops: &[u8]) {
    let texts = texts(hops, RULES);
    rig.apply(&texts.each_ref().map(String::as_str));
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
}

/// The endpoint that a frame leaves to, whose inner MAC is that of the hop there.
fn hop_of(rig: &mut Rig, frame: &[u8]) -> u8 {
    let seen = rig.pass("red0", frame, "uplink0");
    let [seen] = &seen[..] else { panic!("one frame, not {}: {:?}", seen.len(), rig.drops()) };
    let seen = untunnel(seen);
    let hop = seen.ends.1[3];
    let mac = HOPS.iter().find(|(last, _)| *last == hop).expect("an endpoint of the prefix").1;
    assert_eq!(seen.inner[..6], Mac([2, 0, 0, 0, 0x0a, mac]).0);
    hop
}

/// What an endpoint sends in red's tunnel, and what red's host sees of it.
fn from_hop(rig: &mut Rig, last: u8, inner: &[u8]) -> usize {
    let from = Ends { src: [192, 0, 2, last], ..outer() };
    rig.pass("uplink0", &tunnel(from, 0, 100, inner), "red0").len()
}

/// Drops of a tenant's packets: answers of next hops that were heard are none.
fn lost(rig: &Rig) -> Vec<(&'static str, u64)> {
    rig.drops().into_iter().filter(|(name, _)| *name != "neighbour-heard").collect()
}

/// An answer, from the hop's MAC to red's host.
fn back(ends: Ends, last: u8) -> Ends {
    Ends { src_mac: Mac([2, 0, 0, 0, 0x0a, 0x40 + last]), dst_mac: ends.src_mac, ..ends.reversed() }
}

fn flows() -> impl Iterator<Item = (u16, Vec<u8>)> {
    (0..600).map(|port| (port, FAR.udp((10_000 + port, 5201), b"x")))
}

fn placed(rig: &mut Rig) -> BTreeMap<u16, u8> {
    flows().map(|(port, frame)| (port, hop_of(rig, &frame))).collect()
}

/// Within a quarter of its fair share: 600 flows, three hops. Five standard deviations are 58 flows.
#[test]
fn flows_spread_over_the_hops_and_stay() {
    let mut rig = scene(&[2, 3, 4]);
    let first = placed(&mut rig);
    for (hop, _) in HOPS {
        let count = first.values().filter(|own| **own == hop).count();
        assert!((150..=250).contains(&count), "{count} of 600 flows at {hop}");
    }
    assert_eq!(placed(&mut rig), first, "each packet goes as the first of its flow");
    // Neither the order in the files nor another daemon makes a difference.
    assert_eq!(placed(&mut scene(&[4, 2, 3])), first);
    rig.assert_balanced();
}

#[test]
fn queue_pairs_spread_and_the_source_port_says_nothing() {
    let mut rig = scene(&[2, 3, 4]);
    let mut counts = BTreeMap::<u8, usize>::new();
    for qp in 0x100..0x140 {
        let hop = hop_of(&mut rig, &FAR.roce(50_000, qp, b"payload8"));
        assert_eq!(hop_of(&mut rig, &FAR.roce(60_000, qp, b"payload8")), hop);
        *counts.entry(hop).or_default() += 1;
    }
    assert!(counts.len() == 3 && counts.values().all(|count| *count >= 10), "{counts:?}");
    rig.assert_balanced();
}

#[test]
fn a_hop_that_goes_takes_its_own_flows_along_and_no_others() {
    let mut rig = scene(&[2, 3, 4]);
    let before = placed(&mut rig);
    apply(&mut rig, &[2, 4]);
    let without = placed(&mut rig);
    for (port, hop) in &before {
        match hop {
            3 => assert_ne!(without[port], 3),
            _ => assert_eq!(without[port], *hop, "flow {port} has its hop still"),
        }
    }
    // The hop is back: who has an open flow keeps where it is, a new flow goes by the hash.
    apply(&mut rig, &[2, 3, 4]);
    assert_eq!(placed(&mut rig), without);
    let listed = rig.flows();
    let to = |port: u16| {
        let service = format!("udp {} > 5201", 10_000 + port);
        listed.iter().find(|flow| flow.service == service).expect("its entry").to.clone()
    };
    let names = BTreeMap::from([(2, "fabric"), (3, "other"), (4, "third")]);
    assert!(
        without.iter().all(|(port, hop)| to(*port) == names[hop]),
        "the list names the hop that is taken"
    );
    let fresh = placed(&mut scene(&[2, 3, 4]));
    assert_eq!(fresh, before);
    rig.assert_balanced();
}

/// A remote that moves to another endpoint is the same hop: its flows go there, and no other moves.
#[test]
fn a_hop_is_known_by_its_mac() {
    let mut rig = scene(&[2, 3]);
    let before = placed(&mut rig);
    let moved = texts(&[2, 3], RULES).map(|text| {
        text.replace("{vtep: other, mac: \"02:00:00:00:0a:43\"", "{vtep: third, mac: \"02:00:00:00:0a:43\"")
    });
    rig.apply(&moved.each_ref().map(String::as_str));
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
    for (port, frame) in flows() {
        let seen = untunnel(&rig.pass("red0", &frame, "uplink0")[0]);
        let expected = if before[&port] == 3 { (4, 0x43) } else { (2, 0x42) };
        assert_eq!((seen.ends.1[3], seen.inner[5]), expected);
    }
}

#[test]
fn an_answer_comes_from_any_hop_and_from_no_other_endpoint() {
    let mut rig = scene(&[2, 3, 4]);
    for (hop, _) in HOPS {
        let ports = (20_000 + u16::from(hop), 5201);
        hop_of(&mut rig, &FAR.udp(ports, b"x"));
        let answer = back(FAR, hop).udp((ports.1, ports.0), b"y");
        assert_eq!(from_hop(&mut rig, hop, &answer), 1, "hop {hop}: {:?}", rig.drops());
        assert_eq!(from_hop(&mut rig, STRANGER, &answer), 0);
    }
    assert_eq!(lost(&rig), [("spoofed-address", 3)]);
    // Not asked for: rules decide, whichever hop it comes by.
    for (hop, _) in HOPS {
        assert_eq!(from_hop(&mut rig, hop, &back(FAR, hop).udp((5201, 30_000), b"y")), 0);
    }
    assert_eq!(lost(&rig), [("spoofed-address", 3), ("policy-default", 3)]);
    rig.assert_balanced();
}

fn segment(ends: Ends, ports: (u16, u16), flags: &str, numbers: (u32, u32)) -> Vec<u8> {
    let mut frame = ends.tcp(ports, flags, b"");
    frame[38..42].copy_from_slice(&numbers.0.to_be_bytes());
    frame[42..46].copy_from_slice(&numbers.1.to_be_bytes());
    frame
}

/// The connection's windows are those of its hosts, whichever hop brings the segments; one direction has one entry.
#[test]
fn a_connection_goes_on_when_its_answers_change_hops() {
    let mut rig = scene(&[2, 3, 4]);
    let out = |flags, numbers| segment(FAR, (40_000, 5201), flags, numbers);
    let answer = |hop, flags, numbers| segment(back(FAR, hop), (5201, 40_000), flags, numbers);
    hop_of(&mut rig, &out("S", (1000, 0)));
    assert_eq!(from_hop(&mut rig, 2, &answer(2, "SA", (5000, 1001))), 1);
    hop_of(&mut rig, &out("A", (1001, 5001)));
    for hop in [3, 4, 4, 2, 3] {
        assert_eq!(from_hop(&mut rig, hop, &answer(hop, "A", (5001, 1001))), 1, "{:?}", rig.drops());
        let forged = answer(hop, "A", (9_000_000, 1001));
        assert_eq!(from_hop(&mut rig, hop, &forged), 0, "its windows are checked behind hop {hop}");
    }
    assert_eq!(lost(&rig), [("tcp-window", 5)]);
    let mut flows = rig.flows();
    flows.sort_by(|a, b| a.service.cmp(&b.service));
    let seen: Vec<_> = flows.iter().map(|flow| (&*flow.from, &*flow.service, flow.packets)).collect();
    assert_eq!(
        seen,
        [("red0", "tcp 40000 > 5201", 2), ("other", "tcp 5201 > 40000", 6)],
        "what was forged is not its"
    );
    rig.assert_balanced();
}

/// Opened from behind a hop: red's answers pass, and more of its packets by another hop are the same flow.
#[test]
fn a_flow_that_is_opened_from_behind_a_hop_is_answered() {
    let mut rig = scene(&[2, 3, 4]);
    let ask = |hop| segment(back(FAR, hop), (40_000, 80), "S", (1000, 0));
    assert_eq!(from_hop(&mut rig, 3, &ask(3)), 1);
    let answer = segment(FAR, (80, 40_000), "SA", (5000, 1001));
    let hop = hop_of(&mut rig, &answer);
    assert_eq!(from_hop(&mut rig, 4, &segment(back(FAR, 4), (40_000, 80), "A", (1001, 5001))), 1);
    assert_eq!(hop_of(&mut rig, &segment(FAR, (80, 40_000), "A", (5001, 1001))), hop);
    assert_eq!(lost(&rig), []);
    assert_eq!(rig.flows().iter().filter(|flow| flow.verdict == "accept (reply)").count(), 1);
    rig.assert_balanced();
}

#[test]
fn an_error_about_a_flow_comes_from_any_hop() {
    let mut rig = scene(&[2, 3, 4]);
    let sent = FAR.udp((21_000, 5201), b"x");
    hop_of(&mut rig, &sent);
    for (hop, _) in HOPS {
        let router = Ends { src: [10, 9, 255, 1], ..back(FAR, hop) };
        assert_eq!(from_hop(&mut rig, hop, &router.unreachable(&sent)), 1, "{:?}", rig.drops());
    }
    let stranger = Ends { src: [10, 1, 0, 50], ..back(FAR, STRANGER) };
    assert_eq!(from_hop(&mut rig, STRANGER, &stranger.unreachable(&sent)), 0);
    assert_eq!(lost(&rig), [("unrelated-icmp-error", 1)]);
    rig.assert_balanced();
}

/// Routers see ports in the first fragment only: the others may come by another hop.
#[test]
fn fragments_of_one_datagram_come_by_several_hops() {
    let mut rig = scene(&[2, 3, 4]);
    hop_of(&mut rig, &FAR.udp((22_000, 5201), b"x"));
    let answer = back(FAR, 2).udp((5201, 22_000), &[7; 80]);
    let parts = cut(&answer, 9, &[32, 64]);
    assert_eq!(from_hop(&mut rig, 4, &parts[1]), 0, "it waits for the first");
    assert_eq!(from_hop(&mut rig, 2, &parts[0]), 2, "{:?}", rig.drops());
    assert_eq!(from_hop(&mut rig, 3, &parts[2]), 1);
    assert_eq!((lost(&rig), rig.held()), (vec![], 0));
    rig.assert_balanced();
}

/// RoCEv2 that was learned from red's requests is answered by any hop.
#[test]
fn a_queue_pair_is_answered_by_any_hop() {
    let mut rig = scene(&[2, 3, 4]);
    let request = data(FAR, 0x2000, wire::roce::opcode::SEND_ONLY, 7, 0);
    hop_of(&mut rig, &request);
    let kept: Vec<_> = rig.queue_pairs();
    assert_eq!(kept.len(), 1);
    for hop in [3, 2, 4] {
        let answer = scenarios::verbs::acknowledge(back(FAR, hop), 0x2001, 7);
        assert_eq!(from_hop(&mut rig, hop, &answer), 1, "hop {hop}: {:?}", rig.drops());
    }
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 0);
    rig.assert_balanced();
}

/// What `explain` says of a packet is where it goes.
#[test]
fn explain_names_the_hop_that_is_taken() {
    let mut rig = scene(&[2, 3, 4]);
    let program: Program = rig.program().clone();
    let red0 = program::PortId(1);
    let names = BTreeMap::from([("fabric", 2), ("other", 3), ("third", 4)]);
    for (_, frame) in flows().take(64) {
        let told = compile::explain::explain_frame(&program, red0, &frame);
        let way = told.way.expect("a way");
        assert_eq!(hop_of(&mut rig, &frame), names[&*way.to]);
        let hops: Vec<(&str, &str)> = way.hops.iter().map(|hop| (&*hop.to, &*hop.dst_mac)).collect();
        let expected = [("fabric", "42"), ("other", "43"), ("third", "44")];
        assert_eq!(
            hops,
            expected
                .map(|(name, mac)| (name, format!("02:00:00:00:0a:{mac}")))
                .each_ref()
                .map(|(name, mac)| (*name, mac.as_str()))
        );
    }
    let told = compile::explain::explain_frame(&program, red0, &RED.udp((7, 5201), b"x"));
    assert!(told.way.expect("a way").hops.is_empty(), "a host is no choice");
}
