//! What packets a connection allows: TCP by its windows, SCTP by its tags, echo by its requests; and what a flood of new
//! ones costs others.

use engine::Gauge;
use packet::Nanos;
use program::DropReason;
use scenarios::frames::Ends;
use scenarios::policies::{FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, RED, demo, from_fabric, with};

fn goes_out(rig: &mut Rig, frame: &[u8]) -> bool {
    rig.pass("red0", frame, "uplink0").len() == 1
}

fn comes_in(rig: &mut Rig, frame: &[u8]) -> bool {
    rig.pass("uplink0", &from_fabric(100, frame), "red0").len() == 1
}

/// A TCP segment with these numbers.
fn segment(ends: Ends, ports: (u16, u16), flags: &str, numbers: (u32, u32)) -> Vec<u8> {
    let mut frame = ends.tcp(ports, flags, b"");
    frame[38..42].copy_from_slice(&numbers.0.to_be_bytes());
    frame[42..46].copy_from_slice(&numbers.1.to_be_bytes());
    frame
}

/// Red's host to its remote one, and back.
const THERE: (Ends, (u16, u16)) = (RED, (40_000, 5201));

fn out(flags: &str, numbers: (u32, u32)) -> Vec<u8> {
    segment(THERE.0, THERE.1, flags, numbers)
}

fn back(flags: &str, numbers: (u32, u32)) -> Vec<u8> {
    segment(RED.reversed(), (5201, 40_000), flags, numbers)
}

fn open(rig: &mut Rig) {
    assert!(goes_out(rig, &out("S", (1000, 0))));
    assert!(comes_in(rig, &back("SA", (5000, 1001))));
    assert!(goes_out(rig, &out("A", (1001, 5001))));
}

/// Tenants whose connections are followed so.
fn with_connections(settings: &str) -> Rig {
    let tenants = TENANTS.replace("  ports:\n", &format!("  connections: {{{settings}}}\n  ports:\n"));
    with(&[FABRIC, &tenants, RULES])
}

#[test]
fn what_is_outside_the_windows_is_dropped() {
    let mut rig = demo();
    open(&mut rig);
    let forged = [
        back("A", (9_000_000, 1001)),
        back("A", (5001, 2_000_000)),
        back("R", (9_000_000, 0)),
        back("FA", (4_000_000_000, 1001)),
    ];
    for frame in &forged {
        assert!(!comes_in(&mut rig, frame));
    }
    assert_eq!(rig.dropped(DropReason::TcpWindow), 4);
    assert_eq!(rig.ledger.gauge(Gauge::OutOfWindow), 4);
    assert!(comes_in(&mut rig, &back("A", (5001, 1001))), "the connection is as it was");
    rig.assert_balanced();
}

/// Whoever forges segments neither keeps a connection's entry alive nor is counted as a part of it.
#[test]
fn what_a_connection_refuses_keeps_nothing_alive() {
    let mut rig = demo();
    open(&mut rig);
    let packets = |rig: &mut Rig| rig.flows().iter().map(|flow| flow.packets).collect::<Vec<_>>();
    assert_eq!(packets(&mut rig), [2, 1]);
    for _ in 0..7 {
        rig.now = rig.now + Nanos::from_secs(1000);
        assert!(!comes_in(&mut rig, &back("A", (9_000_000, 1001))));
    }
    assert_eq!(packets(&mut rig), [2, 1]);
    rig.now = rig.now + Nanos::from_secs(441);
    rig.settle();
    assert_eq!(packets(&mut rig), [0; 0], "idle for 2 h 4 min");
    rig.assert_balanced();
}

#[test]
fn an_answer_to_another_syn_is_dropped() {
    let mut rig = demo();
    assert!(goes_out(&mut rig, &out("S", (1000, 0))));
    assert!(!comes_in(&mut rig, &back("SA", (5000, 7777))));
    assert!(!comes_in(&mut rig, &back("RA", (0, 7777))));
    assert!(comes_in(&mut rig, &back("SA", (5000, 1001))));
    assert_eq!(rig.dropped(DropReason::TcpWindow), 2);
    rig.assert_balanced();
}

#[test]
fn loose_windows_count_and_pass() {
    let mut rig = with_connections("windows: Loose");
    open(&mut rig);
    assert!(comes_in(&mut rig, &back("A", (9_000_000, 1001))));
    assert_eq!((rig.dropped(DropReason::TcpWindow), rig.ledger.gauge(Gauge::OutOfWindow)), (0, 1));
    rig.assert_balanced();
}

#[test]
fn a_connection_met_in_its_middle_is_picked_up_or_not() {
    for (settings, picked_up) in [("midStream: Accept", true), ("midStream: Deny", false)] {
        let mut rig = with_connections(settings);
        assert_eq!(goes_out(&mut rig, &out("A", (1001, 5001))), picked_up);
        assert_eq!(comes_in(&mut rig, &back("A", (5001, 1001))), picked_up);
        assert_eq!(rig.dropped(DropReason::NoConnection), u64::from(!picked_up));
        // Without one, a new connection opens as always.
        if !picked_up {
            open(&mut rig);
        }
        rig.assert_balanced();
    }
}

#[test]
fn ports_are_used_again_after_the_end() {
    let mut rig = demo();
    for round in 0..3_u32 {
        let (own, other) = (1000 + round * 500_000, 5000 + round * 700_000);
        assert!(goes_out(&mut rig, &out("S", (own, 0))));
        assert!(comes_in(&mut rig, &back("SA", (other, own + 1))));
        assert!(goes_out(&mut rig, &out("A", (own + 1, other + 1))));
        assert!(goes_out(&mut rig, &out("FA", (own + 1, other + 1))));
        assert!(comes_in(&mut rig, &back("FA", (other + 1, own + 2))));
        assert!(goes_out(&mut rig, &out("A", (own + 2, other + 2))));
    }
    assert_eq!(rig.dropped(DropReason::TcpWindow), 0);
    rig.assert_balanced();
}

#[test]
fn flags_that_exclude_each_other_are_dropped() {
    let mut rig = demo();
    assert!(!goes_out(&mut rig, &out("SF", (1000, 0))));
    assert!(!goes_out(&mut rig, &out("SR", (1000, 0))));
    assert_eq!(rig.dropped(DropReason::NoConnection), 2);
    rig.assert_balanced();
}

#[test]
fn an_echo_reply_answers_a_request_of_late() {
    let mut rig = demo();
    assert!(goes_out(&mut rig, &RED.ping(7, 100, 64)));
    assert!(comes_in(&mut rig, &RED.reversed().pong(7, 100)));
    assert!(!comes_in(&mut rig, &RED.reversed().pong(7, 101)), "not asked yet");
    assert!(goes_out(&mut rig, &RED.ping(7, 101, 64)));
    assert!(comes_in(&mut rig, &RED.reversed().pong(7, 101)));
    assert_eq!(rig.dropped(DropReason::UnaskedEchoReply), 1);
    rig.assert_balanced();
}

/// A scan of a million connections and one of a million datagrams by red: blue's connection goes on, and red's own too.
#[test]
fn a_flood_of_new_flows_pushes_out_nobody() {
    let quota = TENANTS.replace("  ports:\n", "  quota: {flows: 1000}\n  ports:\n");
    let mut rig = with(&[FABRIC, &quota, RULES]);
    open(&mut rig);
    let blue = |flags: &str, numbers| segment(BLUE, (40_000, 5201), flags, numbers);
    let to_blue =
        |flags: &str, numbers| from_fabric(200, &segment(BLUE.reversed(), (5201, 40_000), flags, numbers));
    assert_eq!(rig.pass("blue0", &blue("S", (1000, 0)), "uplink0").len(), 1);
    assert_eq!(rig.pass("uplink0", &to_blue("SA", (5000, 1001)), "blue0").len(), 1);
    assert_eq!(rig.pass("blue0", &blue("A", (1001, 5001)), "uplink0").len(), 1);
    for round in 0..20_u16 {
        for port in 0..1000 {
            let syn = segment(RED, (1000 + port, 5201), "S", (u32::from(round), 0));
            rig.send("red0", &syn);
            rig.send("red0", &RED.udp((round * 1000 + port, 5201), b"x"));
            if port % 16 == 15 {
                rig.settle();
                rig.take("uplink0");
            }
        }
        rig.now = rig.now + Nanos::from_millis(3);
        rig.settle();
        rig.take("uplink0");
    }
    assert!(rig.ledger.gauge(Gauge::Flows) <= 1002, "{}", rig.ledger.gauge(Gauge::Flows));
    let misses = rig.ledger.gauge(Gauge::Misses);
    assert_eq!(rig.pass("blue0", &blue("A", (1001, 5001)), "uplink0").len(), 1);
    assert!(comes_in(&mut rig, &back("A", (5001, 1001))));
    assert!(goes_out(&mut rig, &out("A", (1001, 5001))));
    assert_eq!(rig.ledger.gauge(Gauge::Misses), misses, "each of them still has its entry");
    rig.assert_balanced();
}
