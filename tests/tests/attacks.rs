//! One tenant attacks: scans, random flows, fragments without end, connections beyond its quota. The other loses nothing, no
//! table grows beyond its bound, nothing is allocated, and the counters say who it was.

use allocation_counter::measure;
use engine::{Account, Gauge};
use packet::Nanos;
use program::{DropReason, PortId};
use scenarios::crew::Seeded;
use scenarios::cuts::fragment;
use scenarios::frames::Ends;
use scenarios::policies::{FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, RED, RED_GATEWAY, RED6, from_fabric, with};

const FLOW_QUOTA: u64 = 1000;
const DATAGRAM_QUOTA: u64 = 100;
/// Of a tenant; [`edge::FragmentBounds`].
const MOST_HELD: usize = 64;
/// Blue's connections.
const VICTIMS: u16 = 32;
const BURST: u64 = 32;

const OPEN: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: open}
spec: {tenant: red, egress: [{action: Accept}]}
"#;

/// A tenant, and its first port.
fn accounts(rig: &Rig, name: &str) -> [Account; 2] {
    let program = rig.program();
    let tenant = program.tenants.iter().flatten().find(|tenant| tenant.name == name).expect("a tenant").id;
    let port = program.devices.iter().position(|device| device.name == format!("{name}0")).expect("a port");
    [Account::Tenant(tenant), Account::Port(PortId(port as u16))]
}

/// Red attacks, blue works.
struct Siege {
    rig: Rig,
    /// A tenant's drops are counted on its port until it has a way to go, and on the tenant from there.
    red: [Account; 2],
    blue: [Account; 2],
    allocated: u64,
}

impl Siege {
    /// Red may send what `rules` say, blue to TCP 5201.
    fn new(rules: &str) -> Self {
        let quota = format!("  quota: {{flows: {FLOW_QUOTA}, fragments: {DATAGRAM_QUOTA}}}\n  ports:\n");
        let mut rig = with(&[FABRIC, &TENANTS.replacen("  ports:\n", &quota, 1), RULES, rules]);
        let (red, blue) = (accounts(&rig, "red"), accounts(&rig, "blue"));
        for port in 0..VICTIMS {
            assert_eq!(rig.pass("blue0", &BLUE.tcp((port, 5201), "S", b""), "uplink0").len(), 1);
            let answer = from_fabric(200, &BLUE.reversed().tcp((5201, port), "SA", b""));
            assert_eq!(rig.pass("uplink0", &answer, "blue0").len(), 1);
            assert_eq!(rig.pass("blue0", &BLUE.tcp((port, 5201), "A", b""), "uplink0").len(), 1);
        }
        Self { rig, red, blue, allocated: 0 }
    }

    /// Red sends so many packets; with each burst of them one of blue's goes each way, and arrives.
    fn withstands(&mut self, packets: u64, mut attack: impl FnMut(u64) -> Vec<u8>) {
        for round in 0..packets / BURST {
            for number in 0..BURST {
                self.rig.send("red0", &attack(round * BURST + number));
            }
            let port = (round % u64::from(VICTIMS)) as u16;
            self.rig.send("blue0", &BLUE.tcp((port, 5201), "A", b"work"));
            self.rig.send("uplink0", &from_fabric(200, &BLUE.reversed().tcp((5201, port), "A", b"more")));
            let (mut received, mut allocated) = (1, 0);
            while received > 0 {
                allocated += measure(|| received = self.rig.poll()).count_total;
            }
            // The first bursts make what is kept for good.
            self.allocated += if round < 64 { 0 } else { allocated };
            let work = self.rig.take("uplink0").into_iter().filter(|frame| frame.ends_with(b"work")).count();
            assert_eq!((work, self.rig.take("blue0").len()), (1, 1), "round {round}: {:?}", self.rig.drops());
            self.rig.take("red0");
        }
        self.assert_bounded();
    }

    fn assert_bounded(&mut self) {
        self.rig.now = self.rig.now + Nanos::from_millis(2);
        self.rig.settle();
        let gauge = |gauge| self.rig.ledger.gauge(gauge);
        let flows = gauge(Gauge::Flows);
        assert!(flows <= FLOW_QUOTA + 2 * u64::from(VICTIMS), "{flows} flows");
        assert!(gauge(Gauge::Datagrams) <= DATAGRAM_QUOTA && self.rig.held() <= MOST_HELD);
        assert_eq!(self.allocated, 0, "allocations under attack");
        let lost = DropReason::ALL.iter().map(|reason| self.dropped(self.blue, *reason)).sum::<u64>();
        assert_eq!(lost, 0, "blue loses nothing");
        self.rig.assert_balanced();
    }

    fn dropped(&self, accounts: [Account; 2], reason: DropReason) -> u64 {
        accounts.iter().map(|account| self.rig.ledger.dropped(*account, reason)).sum()
    }
}

#[test]
fn a_scan_of_ports() {
    let mut siege = Siege::new("");
    let scan = |number: u64| RED.tcp(((number >> 16) as u16 + 40_000, number as u16), "S", b"");
    siege.withstands(200_000, scan);
    // Three rounds over all ports and a part of a fourth; one port is allowed, one denied by name.
    assert_eq!(siege.dropped(siege.red, DropReason::PolicyDefault), 200_000 - 3 - 3);
    assert_eq!(siege.dropped(siege.red, DropReason::PolicyDeny), 3);
}

#[test]
fn random_flows() {
    let mut siege = Siege::new(OPEN);
    let mut seeded = Seeded(7);
    let mut random = |_| {
        let [a, b, c, d, e, f, g, _] = seeded.word().to_be_bytes();
        let ends = Ends { dst: [10, 9, a, b], dst_mac: RED_GATEWAY, ..RED };
        let ports = (u16::from_be_bytes([c, d]), u16::from_be_bytes([e, f]));
        match g & 1 {
            0 => ends.udp(ports, b"x"),
            _ => ends.tcp(ports, "S", b""),
        }
    };
    siege.withstands(200_000, &mut random);
    let sent = siege.rig.ledger.traffic(siege.red[0]).tx_packets;
    assert!(sent > 190_000, "its own packets pass, by its own rules: {sent}");
}

#[test]
fn fragments_of_a_million_datagrams() {
    let mut siege = Siege::new(OPEN);
    let whole = RED6.udp((7, 5201), &[1; 96]);
    let mut kinds = [fragment(&whole, 0, 0..24), fragment(&whole, 0, 24..104)];
    siege.withstands(1_000_000, |number| {
        let frame = &mut kinds[number as usize % 2];
        frame[58..62].copy_from_slice(&(number as u32).to_be_bytes());
        frame.clone()
    });
    assert!(siege.dropped(siege.red, DropReason::FragmentLimit) > 400_000, "{:?}", siege.rig.drops());
}

#[test]
fn connections_beyond_a_quota() {
    let mut siege = Siege::new(OPEN);
    // Open connections, none of which gives way to another: twice what the quota holds.
    for port in 0..FLOW_QUOTA as u16 {
        for (frame, from, to) in [
            (RED.tcp((port, 80), "S", b""), "red0", "uplink0"),
            (from_fabric(100, &RED.reversed().tcp((80, port), "SA", b"")), "uplink0", "red0"),
            (RED.tcp((port, 80), "A", b""), "red0", "uplink0"),
        ] {
            let seen = siege.rig.pass(from, &frame, to).len();
            assert!(seen == 1 || port >= FLOW_QUOTA as u16 / 2, "{port}: {:?}", siege.rig.drops());
        }
    }
    siege.withstands(100_000, |number| RED.tcp(((number % FLOW_QUOTA) as u16, 80), "A", b"x"));
    let flows = siege.rig.flows();
    let of = |name: &str| flows.iter().filter(|flow| flow.tenant == name).count() as u64;
    assert_eq!((of("red"), of("blue")), (FLOW_QUOTA, 2 * u64::from(VICTIMS)), "show flows says who");
    assert!(siege.rig.ledger.gauge(Gauge::Uncached) > 0);
}
