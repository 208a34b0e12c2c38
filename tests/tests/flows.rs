//! The list of flows: what is remembered, in the policy's names, with the rule that said so.

use engine::Gauge;
use program::{Flow, FlowRecord, Ingress, Place, PortId, Service, TenantId};
use scenarios::frames::Ends;
use scenarios::policies::{DEMO, FABRIC, RULES, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, RED, RED_LOCAL, RED6, demo, from_fabric};

fn sorted(rig: &mut Rig) -> Vec<FlowRecord> {
    let mut flows = rig.flows();
    flows.sort_by(|a, b| (&a.service, &a.tenant, &a.from).cmp(&(&b.service, &b.tenant, &b.from)));
    flows
}

fn line_of(text: &str, nth: usize) -> usize {
    let lines = RULES.lines().zip(1..).filter(|(line, _)| line.contains(text));
    lines.map(|(_, number)| number).nth(nth).expect("a line of the rules")
}

#[test]
fn flows_are_listed_in_the_policys_names() {
    let mut rig = demo();
    assert_eq!(rig.flows(), [], "neighbours are no flows");
    for _ in 0..3 {
        rig.pass("red0", &RED.tcp((40_000, 5201), "A", b"x"), "uplink0");
    }
    rig.pass("uplink0", &from_fabric(100, &RED.reversed().tcp((5201, 40_000), "A", b"yy")), "red0");
    rig.pass("red0", &RED.roce(50_000, 17, b"payload8"), "uplink0");
    rig.pass("red0", &RED6.ping(9, 1, 64), "uplink0");
    rig.pass("red0", &RED.tcp((40_000, 9999), "S", b""), "uplink0");
    rig.pass("blue0", &BLUE.tcp((40_000, 22), "S", b""), "uplink0");
    rig.pass("red0", &RED_LOCAL.ping(4, 1, 64), "red1");
    let deny = format!("2.yaml:{}", line_of("action: Deny", 0));
    let accept = format!("2.yaml:{}", line_of("action: Accept", 0));
    let ingress = format!("2.yaml:{}", line_of("action: Accept", 1));
    let expected = [
        ("red", "red0", "icmp type 8 code 0 id 4", "accept", ingress.as_str(), "red1", 1),
        ("red", "red0", "icmpv6 type 128 code 0 id 9", "accept", &accept, "fabric", 1),
        ("red", "red0", "rocev2 qp 0x11", "accept", &accept, "fabric", 1),
        ("blue", "blue0", "tcp 40000 > 22", "policy-default", "", "fabric", 1),
        ("red", "red0", "tcp 40000 > 5201", "accept", &accept, "fabric", 3),
        ("red", "red0", "tcp 40000 > 9999", "policy-deny", &deny, "fabric", 1),
        ("red", "fabric", "tcp 5201 > 40000", "accept (reply)", &accept, "red0", 1),
    ];
    let flows = sorted(&mut rig);
    let seen: Vec<_> = flows
        .iter()
        .map(|flow| {
            let FlowRecord { tenant, from, service, verdict, rule, to, packets, .. } = flow;
            (&tenant[..], &from[..], &service[..], &verdict[..], &rule[..], &to[..], *packets)
        })
        .collect();
    assert_eq!(seen, expected);
    let reply = flows.last().unwrap();
    assert_eq!((reply.src.to_string(), reply.dst.to_string()), ("10.1.0.20".into(), "10.1.0.10".into()));
    assert_eq!(reply.bytes, 56, "Ethernet frames without FCS");
    rig.assert_balanced();
}

#[test]
fn the_list_is_whole_however_long_and_under_traffic() {
    let mut rig = demo();
    for port in 0..500 {
        rig.send("red0", &RED.udp((1000 + port, 5201), b"x"));
    }
    rig.settle();
    assert_eq!(rig.flows().len(), 500);
    for port in 0..500 {
        rig.send("red0", &RED.udp((1000 + port, 5201), b"x"));
    }
    let flows = rig.flows();
    assert_eq!(flows.len(), 500);
    rig.settle();
    assert!(sorted(&mut rig).iter().all(|flow| flow.packets == 2));
    rig.take("uplink0");
    rig.assert_balanced();
}

#[test]
fn a_list_after_a_swap_speaks_of_the_new_rules() {
    let mut rig = demo();
    rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0");
    let moved = format!("# one more line\n{RULES}");
    rig.apply(&[FABRIC, TENANTS, &moved]);
    let accept = format!("2.yaml:{}", line_of("action: Accept", 0) + 1);
    assert_eq!(rig.flows()[0].rule, accept, "before its next packet too");
    rig.apply(DEMO);
    rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0");
    assert_eq!(rig.flows().len(), 1);
    rig.assert_balanced();
}

/// An entry serves no flow but its own: whatever bit of a flow's identity differs, the program is asked anew.
#[test]
fn no_entry_is_wider_than_what_was_looked_at() {
    let mut rig = demo();
    let own = (40_000, 5201);
    assert_eq!(rig.pass("red0", &RED.tcp(own, "A", b""), "uplink0").len(), 1);
    let red0 = rig.program().devices.iter().position(|device| device.name == "red0").unwrap();
    let judged = |rig: &Rig, ends: &Ends, ports: (u16, u16)| {
        let flow = Flow {
            tenant: TenantId(0),
            ingress: Ingress::Port(PortId(red0 as u16)),
            src: ends.src.into(),
            dst: ends.dst.into(),
            service: Service::Tcp(ports.1),
            src_port: ports.0,
        };
        rig.program().judge(&flow).is_ok_and(|allowed| matches!(allowed.place, Place::Vtep(_)))
    };
    let (src, dst) = own;
    let by_port = (0..16).flat_map(|bit| [(RED, (src ^ 1 << bit, dst)), (RED, (src, dst ^ 1 << bit))]);
    let by_address = (0..32).map(|bit| {
        let address = u32::from_be_bytes(RED.dst) ^ 1 << bit;
        (Ends { dst: address.to_be_bytes(), ..RED }, own)
    });
    let (mut forwarded, mut refused) = (0, 0);
    for (ends, ports) in by_port.chain(by_address) {
        let misses = rig.ledger.gauge(Gauge::Misses);
        let sent = rig.pass("red0", &ends.tcp(ports, "A", b""), "uplink0").len();
        assert_eq!(sent == 1, judged(&rig, &ends, ports), "{ends:?} {ports:?}");
        assert_eq!(rig.ledger.gauge(Gauge::Misses), misses + 1, "{ends:?} {ports:?}");
        (forwarded, refused) = (forwarded + sent, refused + 1 - sent);
    }
    assert!(forwarded >= 16 && refused >= 16, "{forwarded} forwarded, {refused} refused");
    rig.assert_balanced();
}

/// The stage is the connection's, in the entries of both directions; what has none says none.
#[test]
fn the_stage_of_a_connection_is_listed() {
    let mut rig = demo();
    let back = |flags: &str| from_fabric(100, &RED.reversed().tcp((5201, 40_000), flags, b""));
    let stages = |rig: &mut Rig| -> Vec<String> { sorted(rig).into_iter().map(|flow| flow.stage).collect() };
    rig.pass("red0", &RED.tcp((40_000, 5201), "S", b""), "uplink0");
    rig.pass("red0", &RED.tcp((40_000, 9999), "S", b""), "uplink0");
    rig.pass("red0", &RED.udp((7, 5201), b"x"), "uplink0");
    assert_eq!(stages(&mut rig), ["opening", "", ""]);
    rig.pass("uplink0", &back("SA"), "red0");
    rig.pass("red0", &RED.tcp((40_000, 5201), "A", b""), "uplink0");
    assert_eq!(stages(&mut rig), ["open", "", "open", ""]);
    rig.pass("red0", &RED.tcp((40_000, 5201), "FA", b""), "uplink0");
    assert_eq!(stages(&mut rig), ["half-closed", "", "half-closed", ""]);
    rig.assert_balanced();
}

/// Who gave way to whom is told of each tenant, and how many queue pairs it has.
#[test]
fn the_room_of_each_tenant_is_told() {
    let tenants = TENANTS.replacen("  ports:\n", "  quota: {flows: 4}\n  ports:\n", 1);
    let mut rig = scenarios::scene::with(&[FABRIC, &tenants, RULES]);
    for port in 0..10 {
        rig.pass("red0", &RED.udp((1000 + port, 5201), b"x"), "uplink0");
    }
    rig.pass("blue0", &scenarios::verbs::data(BLUE, 0x2000, wire::roce::opcode::SEND_ONLY, 7, 0), "uplink0");
    rig.now = rig.now + packet::Nanos::from_millis(2);
    rig.settle();
    let tenant = |name: &str| {
        let of_name = |tenant: &&program::Tenant| tenant.name == name;
        rig.program().tenants.iter().flatten().find(of_name).expect("a tenant").id
    };
    // Several workers have a part of the quota each, and these hosts are one worker's.
    let quota = 4_u64.div_ceil(rig.workers() as u64);
    let red = program::RoomCount { flows: quota, evicted: 10 - quota, ..Default::default() };
    assert_eq!(rig.ledger.room(tenant("red")), red);
    let blue = program::RoomCount { flows: 1, queue_pairs: 1, ..Default::default() };
    assert_eq!(rig.ledger.room(tenant("blue")), blue);
}
