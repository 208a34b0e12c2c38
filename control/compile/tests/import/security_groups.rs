//! Security groups.

use policy::Format;
use program::Service;
use proptest::prelude::*;

use super::{
    compiled, error,
    groups_model::{packet, world},
    import, is_accepted,
};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn groups_decide_as_the_source_does(world in world(), packets in prop::collection::vec(packet(), 40)) {
        let (program, text) = compiled(&import(Format::SecurityGroups, &world.text()).unwrap());
        for packet in &packets {
            let port = format!("host{}", packet.port);
            let is_accepted = is_accepted(&program, &port, packet.is_egress, packet.peer, packet.service);
            prop_assert_eq!(is_accepted, world.is_accepted(packet), "{:?}\n{}\n{}", packet, world.text(), text);
        }
    }
}

/// A group `a` with this rule and an empty group `b`, without any ports.
fn group(extra: &str, rule: &str) -> String {
    format!(
        "{{\"security_groups\": [{{\"id\": \"1\", \"name\": \"a\", {extra}\n\"security_group_rules\": [\n{{{rule}}}]}},\n\
         {{\"id\": \"2\", \"name\": \"b\", \"security_group_rules\": [{{\"direction\": \"egress\"}}]}}]}}"
    )
}

#[test]
fn without_ports_groups_are_labels() {
    let text = group("", r#""direction": "ingress", "remote_group_id": "2", "protocol": "tcp""#);
    let imported = import(Format::SecurityGroups, &text).unwrap();
    assert_eq!(imported.warnings.list.len(), 1, "{}", imported.warnings);
    assert!(imported.warnings.list[0].help.as_ref().unwrap().contains("the label security-group/b"));
    let (program, _) = compiled(&imported);
    let accepted = |peer: &str| is_accepted(&program, "host0", false, peer.parse().unwrap(), Service::Tcp(1));
    assert!(accepted("10.1.0.11"));
    assert!(!accepted("10.1.0.10"));
}

#[test]
fn what_has_no_equivalent_is_left_out_and_said() {
    let stateless = group("\"stateful\": false,", r#""direction": "ingress""#);
    let cases = [
        (stateless, "security group `a` is stateless; its rules are left out"),
        (
            group("", r#""direction": "ingress", "protocol": "foo""#),
            "protocol `foo` is not known; the rule is left out",
        ),
        (
            group(
                "",
                r#""direction": "ingress", "protocol": "dccp", "port_range_min": 1, "port_range_max": 2"#,
            ),
            "native rules cannot ask for ports of protocol 33; the rule is left out",
        ),
        (
            group("", r#""direction": "ingress", "remote_address_group_id": "9""#),
            "rule `without id` has `remote_address_group_id`, which is not known; it is left out",
        ),
    ];
    for (text, expected) in cases {
        let imported = import(Format::SecurityGroups, &text).unwrap();
        let messages: Vec<&str> = imported.warnings.list.iter().map(|one| one.message.as_str()).collect();
        assert_eq!(messages, [expected]);
        let (program, yaml) = compiled(&imported);
        for service in [Service::Tcp(1), Service::Opaque(33), Service::Icmp(8, 0)] {
            assert!(!is_accepted(&program, "host0", false, "10.1.0.11".parse().unwrap(), service), "{yaml}");
        }
    }
    let zero =
        group("", r#""direction": "ingress", "protocol": "tcp", "port_range_min": 0, "port_range_max": 9"#);
    let imported = import(Format::SecurityGroups, &zero).unwrap();
    assert_eq!(
        imported.warnings.list[0].message,
        "native rules cannot ask for port 0; the rule accepts what is above it"
    );
    let (program, _) = compiled(&imported);
    let accepted =
        |port| is_accepted(&program, "host0", false, "10.1.0.11".parse().unwrap(), Service::Tcp(port));
    assert!(
        [(0, false), (1, true), (9, true), (10, false)]
            .iter()
            .all(|(port, expected)| accepted(*port) == *expected)
    );
}

#[test]
fn what_is_wrong_is_refused_with_its_place_and_the_fix() {
    let ranged = |min: u32, max: u32| {
        format!(
            "\"direction\": \"ingress\", \"protocol\": \"tcp\", \"port_range_min\": {min}, \"port_range_max\": {max}"
        )
    };
    let cases = [
        (
            ranged(9, 8),
            "the range of ports ends at 8, below its start 9\n  help: write 8 as `port_range_min` and 9 as `port_range_max`",
        ),
        (ranged(1, 65536), "expected a number from 0 to 65535, found `65536`"),
        (r#""direction": "in""#.into(), "expected a direction (ingress, egress), found `in`"),
        (r#""protocol": "tcp""#.into(), "a security group rule has no `direction`"),
        (
            r#""direction": "ingress", "ethertype": "IPv5""#.into(),
            "expected an ethertype (IPv4, IPv6), found `IPv5`\n  help: did you mean `IPv4`?",
        ),
        (
            r#""direction": "ingress", "remote_ip_prefix": "10.0.0.1/8""#.into(),
            "prefix 10.0.0.1/8 has host bits set\n  help: write 10.0.0.0/8, or 10.0.0.1/32 for this one address",
        ),
        (r#""direction": "ingress", "remote_ip_prefix": "fd00::/16""#.into(), "prefix fd00::/16 is not IPv4"),
        (
            r#""direction": "ingress", "remote_ip_prefix": ["10.0.0.0/8"]"#.into(),
            "expected a prefix, found a list",
        ),
        (
            r#""direction": "ingress", "remote_group_id": "9""#.into(),
            "there is no security group `9`\n  help: import the file that holds it as well",
        ),
        (
            r#""direction": "ingress", "protocol": "tcp", "port_range_min": 1"#.into(),
            "a range of ports has `port_range_min` and `port_range_max`; one of them is not there",
        ),
        (
            r#""direction": "ingress", "port_range_min": 1, "port_range_max": 1"#.into(),
            "a range of ports needs a `protocol`",
        ),
        (
            r#""direction": "ingress", "protocol": "icmp", "port_range_min": 256"#.into(),
            "256 is no type or code of ICMP: these go up to 255",
        ),
        (r#""direction": "ingress", "direction": "egress""#.into(), "field `direction` is given twice"),
    ];
    for (rule, expected) in cases {
        let error = error(Format::SecurityGroups, &group("", &rule));
        let (place, message) = error.split_once(": error: ").unwrap();
        assert!(place.starts_with("in.json:3:"), "{error}");
        assert!(message.starts_with(expected), "{message}\n{expected}");
    }
    let twice = "{\"security_groups\": [], \"ports\": [{\"id\": \"1\"}, {\"id\": \"1\"}]}";
    let error = error(Format::SecurityGroups, twice);
    assert_eq!(
        error,
        "in.json:1:48: error: a port `1` is given twice\n  note: in.json:1:35: it is given here first"
    );
}

/// Two groups may have one name; the id tells them apart.
#[test]
fn groups_of_one_name_get_their_ids() {
    let text = r#"{"security_groups": [{"id": "aaaaaaaa-1", "name": "default"}, {"id": "bbbbbbbb-2", "name": "default"}]}"#;
    let text = import(Format::SecurityGroups, text).unwrap().files.remove(0).text;
    assert!(
        text.contains("name: \"default-aaaaaaaa\"") && text.contains("name: \"default-bbbbbbbb\""),
        "{text}"
    );
}

/// Rules in a list of their own, in another file.
#[test]
fn rules_find_their_groups_across_files() {
    let file = |name: &str, text: &str| policy::Source { name: name.into(), bytes: text.into() };
    let files = [
        file(
            "r.json",
            r#"{"security_group_rules": [{"id": "r", "security_group_id": "1", "direction": "egress"}]}"#,
        ),
        file("g.json", r#"{"security_groups": [{"id": "1", "name": "a", "project_id": "Red"}]}"#),
    ];
    let imported = policy::import(Format::SecurityGroups, &files, None).unwrap();
    assert_eq!((imported.files[0].name.as_str(), imported.files[0].rules), ("red-security-groups.yaml", 1));
    assert!(imported.files[0].text.contains("# r.json:1 `rule r of a`"), "{}", imported.files[0].text);
}
