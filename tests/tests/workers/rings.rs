//! The rings between workers: full, slow, at the end, and with a program swapped while packets are in them.

use edge::Limits;
use engine::Gauge;
use packet::Nanos;
use program::DropReason;
use scenarios::crew::{Card, Crew, Seeded};
use scenarios::frames::{Ends, untunnel};
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{PEER_VTEP_MAC, RED, from_fabric};

/// Next hops resolved.
pub(crate) fn rig(texts: &[&str], crew: Crew) -> Rig {
    let mut rig = Rig::with_crew(texts, Limits::default(), crew);
    rig.resolve_next_hops("uplink0", PEER_VTEP_MAC);
    rig
}

/// Two workers, red's port received by the second, and an address of red's whose packets the first owns.
fn receiver_and_owner(ring_depth: usize) -> (Rig, Ends) {
    let mut rig = rig(DEMO, Crew { workers: 2, ring_depth, ..Crew::ONE });
    let owned_by_first = (1..=254).map(|host| Ends { dst: [10, 9, 0, host], ..far() }).find(|ends| {
        let before = rig.ledger.0[0].gauge(Gauge::Misses);
        rig.pass("red0", &ends.udp((1, 5201), b"x"), "uplink0");
        rig.ledger.0[0].gauge(Gauge::Misses) > before
    });
    (rig, owned_by_first.expect("one of both has it"))
}

/// Red's host towards what is behind its remote host `far`.
pub(crate) fn far() -> Ends {
    Ends { dst_mac: scenarios::scene::RED_GATEWAY, ..RED }
}

fn tagged(ends: Ends, tag: u32) -> Vec<u8> {
    ends.udp((1, 5201), &tag.to_be_bytes())
}

fn tags(frames: &[Vec<u8>]) -> Vec<u32> {
    frames.iter().map(|frame| u32::from_be_bytes(*frame.last_chunk().expect("a tag"))).collect()
}

#[test]
fn a_full_ring_drops_what_it_has_no_room_for() {
    let (mut rig, ends) = receiver_and_owner(8);
    (0..20).for_each(|tag| rig.send("red0", &tagged(ends, tag)));
    assert_eq!(rig.step(1), 20);
    assert_eq!((rig.dropped(DropReason::HandOverFull), rig.ledger.in_rings()), (12, 8));
    assert_eq!(rig.ledger.held(), 0, "whoever looks now finds every packet: in the ring or dropped");
    rig.step(0);
    assert_eq!(tags(&rig.take("uplink0")), (0..8).collect::<Vec<_>>());
    rig.assert_balanced();
    assert_eq!(rig.traffic("red0").rx_packets, 20 + rig.ledger.gauge(Gauge::Misses), "each counted once");
}

#[test]
fn a_slow_worker_keeps_the_order_and_loses_nothing_that_fits() {
    let (mut rig, ends) = receiver_and_owner(1024);
    for first in (0..640).step_by(32) {
        (first..first + 32).for_each(|tag| rig.send("red0", &tagged(ends, tag)));
        rig.step(1);
    }
    assert_eq!(rig.ledger.in_rings(), 640);
    let own = RED.udp((9, 5201), b"mine");
    rig.send("uplink0", &from_fabric(100, &RED.reversed().udp((5201, 9), b"nobody asked")));
    assert_eq!(rig.step(0), 641, "all that waits, and its own port as well");
    assert_eq!(tags(&rig.take("uplink0")), (0..640).collect::<Vec<_>>());
    rig.pass("red0", &own, "uplink0");
    rig.assert_balanced();
}

#[test]
fn what_is_in_a_ring_at_the_end_is_counted_and_given_back() {
    for first_to_go in [0, 1] {
        let (mut rig, ends) = receiver_and_owner(1024);
        let level = rig.pool.level();
        (0..20).for_each(|tag| rig.send("red0", &tagged(ends, tag)));
        rig.step(1);
        assert_eq!(rig.ledger.in_rings(), 20);
        let mut closing: Vec<_> = rig.hire_out().into_iter().map(Some).collect();
        let mut first = closing[first_to_go].take().map(engine::Worker::close).expect("a worker");
        assert!(!first.drain(), "the other one may still hand over");
        let mut second = closing[1 - first_to_go].take().map(engine::Worker::close).expect("a worker");
        assert!(second.drain() && first.drain());
        assert_eq!(rig.dropped(DropReason::Shutdown), 20);
        rig.assert_balanced();
        assert_eq!(rig.pool.level(), level);
    }
}

#[test]
fn two_threads_end_with_every_packet_accounted_for() {
    let mut rig = rig(DEMO, Crew { workers: 2, ring_depth: 64, ..Crew::ONE });
    let now = rig.now;
    let workers = rig.hire_out();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut worker in workers {
            let done = &done;
            scope.spawn(move || {
                let mut now = now;
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    now = now + Nanos::from_micros(1);
                    worker.poll(now);
                }
                let mut closing = worker.close();
                while !closing.drain() {
                    std::thread::yield_now();
                }
            });
        }
        let mut seeded = Seeded(3);
        for tag in 0..20_000 {
            let ends = Ends { dst: [10, 9, 0, 1 + seeded.below(250) as u8], ..far() };
            // A full port or an empty pool is the far side's loss.
            let _ = rig.wire("red0").send(&tagged(ends, tag));
            while rig.wire("uplink0").receive().is_some() {}
        }
        done.store(true, std::sync::atomic::Ordering::Release);
    });
    while rig.wire("uplink0").receive().is_some() {}
    let unread = rig.wire("red0").unread();
    assert_eq!((rig.ledger.held(), rig.ledger.in_rings()), (0, 0), "{:?}", rig.drops());
    assert_eq!(rig.pool.level().free + unread, rig.pool.level().capacity);
    assert!(rig.ledger.gauge(Gauge::HandedOver) > 0 && rig.traffic("uplink0").tx_packets > 0);
}

/// Red and blue change VNIs. A frame for red's host is red's in one program, and in the other a frame for blue's host with
/// a MAC that is not its own: whoever took the tenant from one and the rest from the other would do a third thing.
#[test]
fn no_packet_in_a_ring_is_judged_by_two_programs() {
    let open = "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {name: open}\n\
                spec: {tenant: red, ingress: [{action: Accept}]}\n---\n\
                apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {name: open}\n\
                spec: {tenant: blue, ingress: [{action: Accept}]}\n";
    let swapped =
        TENANTS.replace("vni: 100", "vni: X").replace("vni: 200", "vni: 100").replace("vni: X", "vni: 200");
    let programs = [[FABRIC, TENANTS, open], [FABRIC, &swapped, open]];
    for seed in 0..4 {
        let crew = Crew { workers: 4, seed, card: Card::Lopsided, ..Crew::ONE };
        let (mut rig, mut seeded) = (rig(&programs[0], crew), Seeded(seed));
        let (mut delivered, mut refused) = (0, 0);
        for round in 1..200_usize {
            let frame = from_fabric(100, &RED.reversed().udp((5201, round as u16), b"red's"));
            (0..8).for_each(|_| rig.send("uplink0", &frame));
            for _ in 0..seeded.below(4) {
                rig.step(seeded.below(4));
            }
            rig.apply(&programs[round % 2]);
            rig.settle();
            delivered += rig.take("red0").len();
            assert!(rig.take("blue0").is_empty() && rig.take("red1").is_empty());
            refused = rig.dropped(DropReason::UnknownDestinationMac) as usize;
            assert_eq!(delivered + refused, 8 * round, "{:?}", rig.drops());
        }
        assert!(delivered > 100 && refused > 100, "{delivered} {refused}");
        rig.assert_balanced();
    }
}

#[test]
fn a_worker_sends_by_another_where_it_has_no_queue() {
    let mut rig = rig(&[FABRIC, TENANTS, RULES], Crew { workers: 4, ..Crew::ONE });
    // Ports 0 to 3 have one queue each, of the worker with their number.
    for host in 1..=64 {
        let ends = Ends { dst: [10, 9, 0, host], ..far() };
        let out = rig.pass("red0", &ends.udp((1, 5201), b"x"), "uplink0");
        assert_eq!(untunnel(&out[0]).inner[30..34], [10, 9, 0, host]);
    }
    let judged: Vec<u64> = rig.ledger.0.iter().map(|ledger| ledger.gauge(Gauge::Misses)).collect();
    assert!(judged.iter().all(|misses| *misses > 4), "{judged:?}");
    assert_eq!(rig.traffic("uplink0").tx_packets, 64 + rig.ledger.originated(program::PortId(0)));
    rig.assert_balanced();
}
