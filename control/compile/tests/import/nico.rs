//! Network security groups of NICo.

use policy::Format;
use program::Service;
use proptest::prelude::*;

use super::{
    compiled, error, import, is_accepted,
    nico_model::{packet, world},
};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_warnings_a_group_decides_as_the_source_does(world in world(true), packets in prop::collection::vec(packet(), 40)) {
        let imported = import(Format::Nico, &world.text()).unwrap();
        let (program, text) = compiled(&imported);
        let told = imported.warnings.to_string();
        let is_whole = !["left out", "it denies", "and so is this"].iter().any(|part| told.contains(part));
        for packet in &packets {
            let is_accepted = is_accepted(&program, "host0", packet.is_egress, packet.peer, packet.service());
            if is_whole || is_accepted {
                prop_assert_eq!(is_accepted, world.is_accepted(packet), "{:?}\n{}\n{}", packet, world.text(), text);
            }
        }
    }

    /// Neither a packet nor a reply to it passes that does not pass in the source.
    #[test]
    fn no_group_opens_anything(world in world(false), packets in prop::collection::vec(packet(), 40)) {
        let (program, text) = compiled(&import(Format::Nico, &world.text()).unwrap());
        for packet in &packets {
            if is_accepted(&program, "host0", packet.is_egress, packet.peer, packet.service()) {
                prop_assert!(world.is_accepted(packet), "{:?}\n{}\n{}", packet, world.text(), text);
                prop_assert!(world.is_answered(packet), "reply to {:?}\n{}\n{}", packet, world.text(), text);
            }
        }
    }
}

/// A group with this rule, of the direction and protocol that it says.
fn group(rules: &[&str]) -> String {
    let rules: Vec<String> = rules
        .iter()
        .map(|rule| format!("{{\"name\": \"r\", \"priority\": 1, \"action\": \"PERMIT\", {rule}}}"))
        .collect();
    format!(
        "{{\"id\": \"1\", \"name\": \"a\", \"statefulEgress\": true, \"rules\": [\n{}]}}",
        rules.join(",\n")
    )
}

const ANY: &str = r#""sourcePrefix": "0.0.0.0/0", "destinationPrefix": "0.0.0.0/0""#;

fn accepts(text: &str, is_egress: bool, service: Service) -> bool {
    let (program, _) = compiled(&import(Format::Nico, text).unwrap());
    is_accepted(&program, "host0", is_egress, "10.2.0.1".parse().unwrap(), service)
}

#[test]
fn what_would_let_replies_through_is_left_out_and_said() {
    let web = format!(r#""direction": "INGRESS", "protocol": "TCP", "destinationPortRange": "443", {ANY}"#);
    let answers = format!(r#""direction": "EGRESS", "protocol": "TCP", "sourcePortRange": "443-443", {ANY}"#);
    let stateful =
        format!(r#""direction": "EGRESS", "protocol": "UDP", "destinationPortRange": "53", {ANY}"#);
    let text = group(&[&web]);
    let imported = import(Format::Nico, &text).unwrap();
    assert_eq!(
        imported.warnings.list[0].to_string(),
        "in.json:2:1: warning: rule r: replies to what it accepts are not let through; it denies\n  \
         help: floodway keeps state, and would let them through"
    );
    assert!(!accepts(&text, false, Service::Tcp(443)));
    assert!(accepts(&group(&[&web, &answers]), false, Service::Tcp(443)));
    assert!(accepts(&group(&[&stateful]), true, Service::Udp(53)));
    assert!(!accepts(&group(&[&stateful]).replace("true", "false"), true, Service::Udp(53)));
    let denied = |source: &str| {
        let deny =
            format!(r#""direction": "INGRESS", "protocol": "UDP", {}"#, ANY.replacen("0.0.0.0/0", source, 1));
        group(&[&stateful, &deny]).replacen("PERMIT", "permit", 1).replace("PERMIT", "DENY")
    };
    assert!(!accepts(&denied("10.2.0.0/16"), true, Service::Udp(53)));
    assert!(accepts(&denied("10.3.0.0/16"), true, Service::Udp(53)));
    let told = import(Format::Nico, &denied("10.3.0.0/16")).unwrap().warnings.to_string();
    let expected = "in.json:2:1: warning: rule r: replies to some of what it accepts are denied, and so is this\n  \
        note: in.json:3:1: this rule denies them\n";
    assert!(told.starts_with(expected), "{told}");
}

/// What the core has in other words means the same.
#[test]
fn the_form_of_the_core_is_read() {
    let rule = |direction: &str, ports: &str| {
        format!(
            r#"{{"id": "r", "direction": "{direction}", "ipv6": false, {ports} "protocol": "Tcp", "action": "NSG_RULE_ACTION_PERMIT",
            "priority": 5, "src_net": {{"Prefix": "0.0.0.0/0"}}, "dst_prefix": "0.0.0.0/0"}}"#
        )
    };
    let text = format!(
        r#"{{"network_security_groups": [{{"id": "1", "tenant_organization_id": "red", "metadata": {{"name": "a"}},
        "attributes": {{"stateful_egress": false, "rules": [{}, {}]}}}}]}}"#,
        rule("NSG_RULE_DIRECTION_INGRESS", r#""dst_port_start": 80, "dst_port_end": 81,"#),
        rule("Egress", ""),
    );
    for (port, expected) in [(79, false), (80, true), (81, true), (82, false)] {
        assert_eq!(accepts(&text, false, Service::Tcp(port)), expected, "{port}");
    }
}

#[test]
fn what_is_wrong_is_refused_with_its_place_and_the_fix() {
    let cases = [
        (format!(r#""direction": "IN", "protocol": "TCP", {ANY}"#), "expected a direction (INGRESS, EGRESS), found `IN`"),
        (format!(r#""direction": "EGRESS", "protocol": "SCTP", {ANY}"#), "expected a protocol (ANY, ICMP, ICMP6, TCP, UDP), found `SCTP`"),
        (format!(r#""direction": "EGRESS", {ANY}"#), "a rule has no `protocol`"),
        (
            format!(r#""direction": "EGRESS", "protocol": "ANY", "destinationPortRange": "80", {ANY}"#),
            "ports need the protocol TCP or UDP",
        ),
        (
            format!(r#""direction": "EGRESS", "protocol": "TCP", "destinationPortRange": "90-80", {ANY}"#),
            "the range of ports ends at 80, below its start 90\n  help: write 80-90",
        ),
        (
            format!(r#""direction": "EGRESS", "protocol": "TCP", "dst_port_start": 80, {ANY}"#),
            "a range of ports has `dst_port_start` and `dst_port_end`",
        ),
        (
            r#""direction": "EGRESS", "protocol": "ANY", "sourcePrefix": "0.0.0.0/0""#.into(),
            "a rule has no `destinationPrefix`",
        ),
        (
            r#""direction": "EGRESS", "protocol": "ANY", "sourcePrefix": "0.0.0.0/0", "destinationPrefix": "::/0""#.into(),
            "the source of a rule is IPv4 and its destination is not",
        ),
        (
            r#""direction": "EGRESS", "protocol": "ANY", "sourcePrefix": "1.0.0.0/0", "destinationPrefix": "0.0.0.0/0""#.into(),
            "prefix 1.0.0.0/0 has host bits set\n  help: write 0.0.0.0/0, or 1.0.0.0/32 for this one address",
        ),
    ];
    for (rule, expected) in cases {
        let error = error(Format::Nico, &group(&[&rule]));
        let (place, message) = error.split_once(": error: ").unwrap();
        assert!(place.starts_with("in.json:2:"), "{error}");
        assert_eq!(message, expected);
    }
    let twice = format!("[{0},\n{0}]", group(&[]));
    assert!(error(Format::Nico, &twice).contains("network security group `1` is given twice"));
    let source = policy::Source { name: "in.json".into(), bytes: group(&[]).into() };
    let refused = policy::import(Format::Nico, &[source], None).unwrap_err().to_string();
    assert!(
        refused.contains("nothing says whose network security group `1` is\n  help: give `--tenant`"),
        "{refused}"
    );
}

#[test]
fn fields_that_are_not_known_are_conditions() {
    let rule = format!(r#""direction": "INGRESS", "protocol": "ANY", "vpc": "x", {ANY}"#);
    let back = format!(r#""direction": "EGRESS", "protocol": "ANY", {ANY}"#);
    let imported = import(Format::Nico, &group(&[&rule, &back])).unwrap();
    let told = imported.warnings.to_string();
    assert!(
        told.contains("rule r: native rules cannot ask for `vpc`; it accepts, and is left out"),
        "{told}"
    );
}
