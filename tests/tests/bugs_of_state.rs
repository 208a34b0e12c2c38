//! Public bugs of other data planes (corpus, bugs.tsv) with state, each as a test of the same input here. Most are of address
//! translation, which floodway has not: what is asked is what a translator broke, of flows as they are.

use engine::Gauge;
use packet::Nanos;
use program::DropReason;
use scenarios::crew::{Card, Crew};
use scenarios::cuts;
use scenarios::frames::Ends;
use scenarios::frames6::extend;
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, PEER_VTEP_MAC, RED, RED6, demo, from_fabric, with};

/// TCP to the port that both tenants may reach.
const PORTS: (u16, u16) = (40_000, 5201);
const BACK: (u16, u16) = (5201, 40_000);

fn blue_alone() -> [String; 3] {
    let behind = |text: &str| text.split_once("---\n").expect("two documents").1.to_owned();
    [FABRIC.to_owned(), behind(TENANTS), behind(RULES)]
}

/// The inner frames that leave red's port by tunnel for one frame.
fn out(rig: &mut Rig, frame: &[u8]) -> Vec<Vec<u8>> {
    let seen = rig.pass("red0", frame, "uplink0");
    seen.iter().map(|frame| scenarios::frames::untunnel(frame).inner).collect()
}

/// What leaves red's port for one frame in red's tunnel.
fn inwards(rig: &mut Rig, frame: &[u8]) -> Vec<Vec<u8>> {
    rig.pass("uplink0", &from_fabric(100, frame), "red0")
}

/// Lets time pass and everything that is over be forgotten.
fn wait(rig: &mut Rig, time: Nanos) {
    rig.now = rig.now + time;
    for _ in 0..200 {
        rig.now = rig.now + Nanos::from_millis(1);
        rig.settle();
    }
    rig.take("uplink0");
}

/// "Fragmentation needed" about a packet, of which `quoted` bytes behind its IPv4 header are quoted.
fn frag_needed(ends: Ends, about: &[u8], quoted: usize) -> Vec<u8> {
    let mut frame = ends.unreachable(&about[..34 + quoted]);
    frame[35] = 4;
    frame[40..42].copy_from_slice(&1400_u16.to_be_bytes());
    let parsed = wire::parse(&frame).expect("a right frame");
    assert!(wire::checksum::fill_l4(&mut frame, &parsed));
    frame
}

#[test]
fn b020_fragments_keep_the_checksum_of_the_whole() {
    let mut rig = demo();
    let words: Vec<u8> = (0..3000_u16).map(|number| number as u8).collect();
    let whole = RED.udp((7, 5201), &words);
    let seen: Vec<Vec<u8>> =
        cuts::cut(&whole, 9, &[1480, 2960]).iter().flat_map(|frame| out(&mut rig, frame)).collect();
    assert_eq!(seen.len(), 3);
    // The data of the datagram, UDP header and checksum included.
    assert_eq!(cuts::joined(&seen).as_deref(), Some(&whole[34..]));
    rig.assert_balanced();
}

#[test]
fn b032_b033_quotes_stay_as_they_are_however_short() {
    let mut rig = demo();
    let sent = RED.tcp(PORTS, "S", b"");
    assert_eq!(out(&mut rig, &sent).len(), 1);
    // Eight bytes of TCP end before its checksum: there is none to be mended.
    for quoted in [8, 12, 16, 18, 20] {
        let error = frag_needed(RED.reversed(), &sent, quoted);
        assert_eq!(inwards(&mut rig, &error), [error], "{quoted} bytes: {:?}", rig.drops());
    }
    // RFC 792 quotes eight bytes: without the sequence number it could be made by anybody who guesses the ports.
    for quoted in [0, 4, 7] {
        let error = frag_needed(RED.reversed(), &sent, quoted);
        assert!(inwards(&mut rig, &error).is_empty(), "{quoted} bytes");
    }
    assert_eq!(rig.dropped(DropReason::UnrelatedIcmpError), 3);
    rig.assert_balanced();
}

/// The sequence number is where the quoted TCP header is, not where it would be without extension headers.
#[test]
fn b033_a_quote_with_extension_headers() {
    let mut rig = demo();
    let numbered = |sequence: u32| {
        let mut frame = extend(&RED6.syn(PORTS), 60, &[6, 0, 1, 4, 0, 0, 0, 0]);
        frame[66..70].copy_from_slice(&sequence.to_be_bytes());
        frame
    };
    let sent = numbered(0x0a0b_0c0d);
    assert_eq!(out(&mut rig, &sent).len(), 1);
    let mut answer = RED6.reversed().syn(BACK);
    answer[62..66].copy_from_slice(&0x0a0b_0c0e_u32.to_be_bytes());
    answer[67] = 0x12;
    assert_eq!(inwards(&mut rig, &answer).len(), 1, "{:?}", rig.drops());
    let error = RED6.reversed().unreachable(&sent);
    assert_eq!(inwards(&mut rig, &error), [error], "{:?}", rig.drops());
    let forged = RED6.reversed().unreachable(&numbered(0x7a0b_0c0d));
    assert!(inwards(&mut rig, &forged).is_empty(), "it was never sent");
    assert_eq!(rig.dropped(DropReason::UnrelatedIcmpError), 1);
    rig.assert_balanced();
}

#[test]
fn b038_nothing_comes_in_before_something_went_out() {
    let mut rig = demo();
    for flags in ["S", "SA", "A", "FA"] {
        assert!(inwards(&mut rig, &RED.reversed().tcp(BACK, flags, b"")).is_empty(), "{flags}");
    }
    assert_eq!(rig.dropped(DropReason::PolicyDefault), 4);
    assert_eq!(out(&mut rig, &RED.tcp(PORTS, "S", b"")).len(), 1);
    assert_eq!(inwards(&mut rig, &RED.reversed().tcp(BACK, "SA", b"")).len(), 1);
    rig.assert_balanced();
}

#[test]
fn b039_replies_go_to_the_tenant_that_asked() {
    let mut rig = demo();
    let asks = |rig: &mut Rig, port: &str, ends: Ends| {
        assert_eq!(rig.pass(port, &ends.tcp(PORTS, "S", b""), "uplink0").len(), 1);
    };
    let ways = [("red0", RED, 100), ("blue0", BLUE, 200)];
    // The first asks alone, then both: the same addresses and ports.
    asks(&mut rig, "red0", RED);
    let early = from_fabric(200, &BLUE.reversed().tcp(BACK, "SA", b""));
    assert!(rig.pass("uplink0", &early, "blue0").is_empty());
    asks(&mut rig, "blue0", BLUE);
    for (port, ends, vni) in ways {
        let reply = ends.reversed().tcp(BACK, "SA", b"");
        rig.send("uplink0", &from_fabric(vni, &reply));
        rig.settle();
        for other in ["red0", "blue0", "red1"] {
            let expected = if other == port { vec![reply.clone()] } else { vec![] };
            assert_eq!(rig.take(other), expected, "{other}");
        }
    }
    rig.assert_balanced();
}

#[test]
fn b040_sessions_that_end_give_their_room_back() {
    const AT_ONCE: u16 = 250;
    let quota = TENANTS.replace("  ports:\n", "  quota: {flows: 600}\n  ports:\n");
    let mut rig = with(&[FABRIC, &quota, RULES]);
    let burst = |rig: &mut Rig, from: &str, to: &str, frames: &mut dyn Iterator<Item = Vec<u8>>| {
        frames.for_each(|frame| rig.send(from, &frame));
        rig.settle();
        rig.take(to).len()
    };
    for _ in 0..2 {
        for first in (0..65_000).step_by(AT_ONCE.into()) {
            let ports = first..first + AT_ONCE;
            let red = |flags| move |port| RED.tcp((port, 5201), flags, b"");
            let peer = |port| from_fabric(100, &RED.reversed().tcp((5201, port), "SA", b""));
            let each = [
                burst(&mut rig, "red0", "uplink0", &mut ports.clone().map(red("S"))),
                burst(&mut rig, "uplink0", "red0", &mut ports.clone().map(peer)),
                burst(&mut rig, "red0", "uplink0", &mut ports.clone().map(red("R"))),
            ];
            assert_eq!(each, [usize::from(AT_ONCE); 3], "{ports:?}: {:?}", rig.drops());
        }
        assert_eq!(rig.ledger.gauge(Gauge::Uncached), 0);
    }
    wait(&mut rig, Nanos::from_secs(11));
    assert_eq!(rig.ledger.gauge(Gauge::Flows), 0);
    rig.assert_balanced();
}

#[test]
fn b043_a_tenant_goes_while_its_last_session_ends() {
    let mut rig = demo();
    let back = RED.reversed();
    assert_eq!(out(&mut rig, &RED.tcp(PORTS, "S", b"")).len(), 1);
    assert_eq!(inwards(&mut rig, &back.tcp(BACK, "SA", b"")).len(), 1);
    assert_eq!(out(&mut rig, &RED.tcp(PORTS, "FA", b"")).len(), 1);
    let alone = blue_alone();
    rig.apply(&alone.each_ref().map(String::as_str));
    assert!(inwards(&mut rig, &back.tcp(BACK, "FA", b"")).is_empty());
    assert!(out(&mut rig, &RED.tcp(PORTS, "A", b"")).is_empty());
    assert_eq!((rig.dropped(DropReason::UnknownVni), rig.dropped(DropReason::NoTenant)), (1, 1));
    wait(&mut rig, Nanos::from_secs(8_000));
    assert_eq!(rig.ledger.gauge(Gauge::Flows), 0);
    rig.apply(DEMO);
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
    assert!(inwards(&mut rig, &back.tcp(BACK, "A", b"")).is_empty(), "nothing is left of the session");
    assert_eq!(out(&mut rig, &RED.tcp(PORTS, "S", b"")).len(), 1);
    rig.assert_balanced();
}

#[test]
fn b044_ten_thousand_inbound_flows_leave_nothing_behind() {
    let mut rig = demo();
    let back = RED.reversed();
    for first in (0..10_000).step_by(500) {
        for flags in ["S", "FA"] {
            for port in first..first + 500 {
                rig.send("uplink0", &from_fabric(100, &back.tcp((port, 80), flags, b"")));
            }
            rig.settle();
            assert_eq!(rig.take("red0").len(), 500, "{:?}", rig.drops());
            let answer = if flags == "S" { "SA" } else { "FA" };
            for port in first..first + 500 {
                rig.send("red0", &RED.tcp((80, port), answer, b""));
            }
            rig.settle();
            assert_eq!(rig.take("uplink0").len(), 500, "{:?}", rig.drops());
        }
    }
    rig.now = rig.now + Nanos::from_millis(2);
    rig.settle();
    assert_eq!(rig.ledger.gauge(Gauge::Flows), 20_000, "both directions of each");
    wait(&mut rig, Nanos::from_secs(31));
    assert_eq!(rig.ledger.gauge(Gauge::Flows), 0);
    rig.assert_balanced();
}

#[test]
fn b045_a_reset_and_a_fin_of_one_flow_by_two_workers() {
    let crew = Crew { workers: 2, card: Card::Lopsided, ..Crew::ONE };
    let mut rig = Rig::with_crew(DEMO, edge::Limits::default(), crew);
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
    let back = RED.reversed();
    for port in 0..2000 {
        let (to, from) = ((port, 5201), (5201, port));
        assert_eq!(out(&mut rig, &RED.tcp(to, "S", b"")).len(), 1);
        assert_eq!(inwards(&mut rig, &back.tcp(from, "SA", b"")).len(), 1);
        rig.send("red0", &RED.tcp(to, "R", b""));
        rig.send("uplink0", &from_fabric(100, &back.tcp(from, "FA", b"")));
        rig.settle();
        assert_eq!(rig.take("uplink0").len(), 1, "{:?}", rig.drops());
        rig.take("red0");
    }
    assert!(rig.ledger.gauge(Gauge::HandedOver) > 0, "the two directions came to two workers");
    wait(&mut rig, Nanos::from_secs(31));
    assert_eq!(rig.ledger.gauge(Gauge::Flows), 0);
    rig.assert_balanced();
}

#[test]
fn b046_the_last_port_of_a_range_is_of_the_range() {
    for (first, last) in [(1024, 1024), (1024, 2047), (65_535, 65_535), (1, 65_535)] {
        let rules = format!(
            "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: rules}}\n\
             spec: {{tenant: red, egress: [{{action: Accept, \
             services: [{{protocol: TCP, port: {first}, endPort: {last}}}]}}]}}\n"
        );
        let mut rig = with(&[FABRIC, TENANTS, &rules]);
        for port in [first, last] {
            assert_eq!(out(&mut rig, &RED.tcp((40_000, port), "S", b"")).len(), 1, "{port}");
            assert_eq!(inwards(&mut rig, &RED.reversed().tcp((port, 40_000), "SA", b"")).len(), 1, "{port}");
        }
        for port in [first - 1, last.wrapping_add(1)] {
            assert!(out(&mut rig, &RED.tcp((40_000, port), "S", b"")).is_empty(), "{port}");
        }
        rig.assert_balanced();
    }
}
