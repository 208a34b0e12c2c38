//! Flows that a rule asks to be logged: the first packet of each, whoever else decides, and no more than a tenant may.

use edge::{LINES_AT_ONCE, LINES_PER_SECOND};
use engine::Account;
use packet::Nanos;
use program::{FlowRecord, LogCount, TenantId};
use scenarios::frames::Ends;
use scenarios::policies::{FABRIC, TENANTS};
use scenarios::rig::{LOG_DEPTH, Rig};
use scenarios::scene::{BLUE, RED, RED_LOCAL, from_fabric, with};

/// Red's rules: three that are logged among some that are not.
const RULES: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: rules}
spec:
  tenant: red
  egress:
    - {action: Deny, log: true, services: [{protocol: TCP, port: 23}]}
    - {action: Deny, services: [{protocol: TCP, port: 22}]}
    - {action: Accept, log: true, services: [{protocol: TCP, port: 443}]}
    - {action: Accept, log: false}
  ingress:
    - {action: Accept, log: true, services: [{protocol: TCP, port: 80}]}
    - {action: Deny, services: [{protocol: TCP, port: 443}]}
    - {action: Accept, services: [{protocol: UDP}]}
"#;

fn scene() -> Rig {
    with(&[FABRIC, TENANTS, RULES])
}

/// Where the nth rule that holds the text stands.
fn rule(text: &str) -> String {
    let line = RULES.lines().position(|line| line.contains(text)).expect("a rule") + 1;
    format!("2.yaml:{line}")
}

fn words(lines: &[FlowRecord]) -> Vec<(&str, &str, &str, &str)> {
    lines
        .iter()
        .map(|line| (line.from.as_str(), line.service.as_str(), line.verdict.as_str(), line.rule.as_str()))
        .collect()
}

fn count(rig: &Rig, tenant: u16) -> LogCount {
    rig.ledger.log(Account::Tenant(TenantId(tenant)))
}

/// Red's id: tenants are numbered by name.
const RED_ID: u16 = 1;
const BLUE_ID: u16 = 0;

#[test]
fn the_first_packet_of_a_flow_is_logged_by_the_rule_that_decides_it() {
    let mut rig = scene();
    for _ in 0..3 {
        rig.pass("red0", &RED.tcp((40_000, 443), "S", b""), "uplink0");
        rig.pass("red0", &RED.tcp((40_000, 23), "S", b""), "uplink0");
        rig.pass("red0", &RED.tcp((40_000, 22), "S", b""), "uplink0");
        rig.pass("red0", &RED.udp((40_000, 53), b"x"), "uplink0");
        // The answer is of the same connection, and no rule decides it.
        let answer = RED.reversed().tcp((443, 40_000), "SA", b"");
        assert_eq!(rig.pass("uplink0", &from_fabric(100, &answer), "red0").len(), 1);
    }
    let (https, telnet) = (rule("Accept, log: true, services: [{protocol: TCP, port: 443"), rule("port: 23"));
    assert_eq!(
        words(&rig.logged()),
        [("red0", "tcp 40000 > 443", "accept", &*https), ("red0", "tcp 40000 > 23", "policy-deny", &telnet)]
    );
    rig.pass("red0", &RED.tcp((40_001, 443), "S", b""), "uplink0");
    let lines = rig.logged();
    let FlowRecord { tenant, from, to, src, dst, packets, .. } = &lines[0];
    assert_eq!((tenant.as_str(), from.as_str(), to.as_str(), *packets), ("red", "red0", "fabric", 0));
    assert_eq!((src.to_string(), dst.to_string()), ("10.1.0.10".into(), "10.1.0.20".into()));
    assert_eq!(count(&rig, RED_ID), LogCount { written: 3, suppressed: 0, lost: 0 });
    rig.assert_balanced();
}

#[test]
fn of_two_ends_the_one_that_decides_is_asked() {
    let mut rig = scene();
    // The sender's rule accepts without a word, the receiver's is logged.
    assert_eq!(rig.pass("red0", &RED_LOCAL.tcp((40_000, 80), "S", b""), "red1").len(), 1);
    // The sender's would be logged, but it is the receiver's that refuses.
    assert!(rig.pass("red0", &RED_LOCAL.tcp((40_000, 443), "S", b""), "red1").is_empty());
    // Nobody's rule refuses: the default does.
    assert!(rig.pass("red0", &RED_LOCAL.tcp((40_000, 81), "S", b""), "red1").is_empty());
    assert_eq!(words(&rig.logged()), [("red0", "tcp 40000 > 80", "accept", &*rule("port: 80"))]);
    rig.assert_balanced();
}

#[test]
fn a_flow_that_a_new_program_judges_alike_is_logged_once() {
    let mut rig = scene();
    let flow = RED.tcp((40_000, 443), "S", b"");
    rig.pass("red0", &flow, "uplink0");
    rig.apply(&[FABRIC, TENANTS, &format!("# one line more\n{RULES}")]);
    rig.pass("red0", &flow, "uplink0");
    assert_eq!(rig.logged().len(), 1, "still the same flow");
    rig.apply(&[FABRIC, TENANTS, &RULES.replace("Accept, log: true", "Deny, log: true")]);
    rig.pass("red0", &flow, "uplink0");
    assert_eq!(words(&rig.logged()), [("red0", "tcp 40000 > 443", "policy-deny", &*rule("port: 443"))]);
    rig.assert_balanced();
}

/// Refusals that are not remembered are flows of one packet: a scan.
fn scan(rig: &mut Rig, ends: Ends, port: &str, first: u16, packets: u32) -> usize {
    let mut lines = 0;
    for number in 0..packets {
        rig.send(port, &ends.tcp((first + number as u16, 23), "S", b""));
        rig.settle();
        if number % 64 == 0 {
            lines += rig.logged().len();
        }
    }
    lines + rig.logged().len()
}

#[test]
fn a_tenant_has_so_many_lines_at_once_and_so_many_a_second() {
    let blue = RULES.replace("tenant: red", "tenant: blue").replace("name: rules", "name: blue-rules");
    let mut rig = with(&[FABRIC, TENANTS, RULES, &blue]);
    rig.now = Nanos::from_secs(10);
    let packets = 5 * LINES_AT_ONCE;
    // All within 2 ms: not one line is earned meanwhile.
    assert!(packets * LINES_PER_SECOND < 1_000_000);
    assert_eq!(scan(&mut rig, RED, "red0", 1000, packets), LINES_AT_ONCE as usize);
    let LogCount { written, suppressed, lost } = count(&rig, RED_ID);
    assert_eq!((written, suppressed, lost), (LINES_AT_ONCE.into(), u64::from(packets - LINES_AT_ONCE), 0));
    // The other tenant has its own share.
    assert_eq!(scan(&mut rig, BLUE, "blue0", 1000, 7), 7);
    assert_eq!(count(&rig, BLUE_ID), LogCount { written: 7, suppressed: 0, lost: 0 });
    rig.now = rig.now + Nanos::from_millis(100);
    assert_eq!(scan(&mut rig, RED, "red0", 3000, packets), LINES_PER_SECOND as usize / 10);
    rig.assert_balanced();
}

#[test]
fn a_ring_that_nobody_empties_loses_lines_and_no_packets() {
    let mut rig = scene();
    let mut sent = 0;
    while sent < LOG_DEPTH as u64 + 40 {
        // As fast as the tenant may.
        rig.now = rig.now + Nanos(1_000_000_000 / u64::from(LINES_PER_SECOND));
        rig.pass("red0", &RED.tcp((1000 + sent as u16, 443), "S", b""), "uplink0");
        sent += 1;
    }
    assert_eq!(count(&rig, RED_ID), LogCount { written: LOG_DEPTH as u64, suppressed: 0, lost: 40 });
    assert_eq!(rig.traffic("red0").rx_packets, sent);
    assert_eq!(rig.logged().len(), LOG_DEPTH);
    rig.pass("red0", &RED.tcp((999, 443), "S", b""), "uplink0");
    assert_eq!(rig.logged().len(), 1, "there is room again");
    rig.assert_balanced();
}

/// Against `explain`: a line for each flow that a logged rule decides, for every end and many services.
#[test]
fn lines_are_those_that_explain_names() {
    let mut rig = scene();
    let logged: Vec<String> = RULES
        .lines()
        .zip(1..)
        .filter(|(line, _)| line.contains("log: true"))
        .map(|(_, number)| format!("2.yaml:{number}"))
        .collect();
    let (mut seen, mut silent) = (0, 0);
    for (number, port) in [22, 23, 53, 80, 81, 443].into_iter().enumerate() {
        for (from, ends) in [("red0", RED), ("red0", RED_LOCAL), ("uplink0", RED.reversed())] {
            for tcp in [true, false] {
                let source = 50_000 + number as u16;
                let inner =
                    if tcp { ends.tcp((source, port), "S", b"") } else { ends.udp((source, port), b"x") };
                let frame = if from == "uplink0" { from_fabric(100, &inner) } else { inner };
                let index = rig.program().devices.iter().position(|device| device.name == from).unwrap();
                let told =
                    compile::explain::explain_frame(rig.program(), program::PortId(index as u16), &frame);
                rig.send(from, &frame);
                rig.settle();
                let refusing = told.lists.iter().find(|list| !list.accepts);
                let deciding = told.lists.iter().filter(|list| refusing.is_none_or(|one| one == *list));
                let origins = deciding.filter(|list| !list.is_default).filter_map(|list| list.rules.last());
                let expected = origins.map(|rule| rule.origin.clone()).find(|at| logged.contains(at));
                let lines: Vec<String> = rig.logged().into_iter().map(|line| line.rule).collect();
                assert_eq!(lines, expected.clone().into_iter().collect::<Vec<_>>(), "{told:#?}");
                seen += usize::from(expected.is_some());
                silent += usize::from(expected.is_none());
            }
        }
    }
    assert!(seen >= 5 && silent >= 20, "{seen} lines, {silent} flows without one");
}
