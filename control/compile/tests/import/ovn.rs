//! ACLs of OVN.

use policy::{Format, Source};
use program::Service;
use proptest::prelude::*;

use super::{
    compiled, error, import, is_accepted,
    ovn_model::{packet, world},
};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_can_be_said_decides_as_the_source_does(world in world(true), packets in prop::collection::vec(packet(), 40)) {
        let text = format!("[{}]", world.text());
        let imported = import(Format::Ovn, &text).unwrap();
        let said = imported.warnings.to_string();
        prop_assert!(!said.contains("cannot ask"), "{}", said);
        let (program, yaml) = compiled(&imported);
        for packet in &packets {
            let port = format!("host{}", packet.port);
            let is_accepted = is_accepted(&program, &port, packet.is_egress, packet.peer, packet.service());
            let expected = world.has_state() && world.is_accepted(packet);
            prop_assert_eq!(is_accepted, expected, "{:?}\n{}\n{}", packet, text, yaml);
        }
    }

    #[test]
    fn what_cannot_be_said_opens_nothing(world in world(false), packets in prop::collection::vec(packet(), 40)) {
        let text = format!("[{}]", world.text());
        let (program, yaml) = compiled(&import(Format::Ovn, &text).unwrap());
        for packet in &packets {
            let port = format!("host{}", packet.port);
            if is_accepted(&program, &port, packet.is_egress, packet.peer, packet.service()) {
                prop_assert!(world.is_accepted(packet), "{:?}\n{}\n{}", packet, text, yaml);
            }
        }
    }

    /// Each warning is given once, and the order of tables says nothing.
    #[test]
    fn nothing_is_said_twice(world in world(false)) {
        let tables: Vec<String> = serde_json::from_str::<Vec<serde_json::Value>>(&format!("[{}]", world.text()))
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        let files = |name: &dyn Fn(usize) -> usize| -> Vec<Source> {
            let each = tables.iter().enumerate();
            each.map(|(index, table)| Source { name: format!("{}.json", name(index)), bytes: table.clone().into() }).collect()
        };
        let imported = policy::import(Format::Ovn, &files(&|index| index), None).unwrap();
        let mut told: Vec<String> = imported.warnings.list.iter().map(ToString::to_string).collect();
        let count = told.len();
        told.dedup();
        prop_assert_eq!(told.len(), count);
        let other = policy::import(Format::Ovn, &files(&|index| 9 - index), None).unwrap();
        let rules = |imported: &policy::Imported| imported.files.iter().map(|file| file.rules).sum::<usize>();
        prop_assert_eq!(rules(&imported), rules(&other));
    }

    /// Any text is read or refused.
    #[test]
    fn no_match_is_too_strange(text in "[ a-z0-9.$@\"!&|(){}<>=,:/\\[\\]]{0,60}") {
        let _ = import(Format::Ovn, &acl(&text, "drop"));
    }
}

/// A switch with one port and one ACL to it, beside one that keeps state. The match stands in line 2.
fn acl(text: &str, action: &str) -> String {
    let text = serde_json::Value::from(text);
    format!(
        r#"[{{"headings": ["_uuid", "action", "direction", "log", "match", "priority", "name"], "data": [
[["uuid", "a"], "{action}", "to-lport", false, {text}, 5, "web"],
[["uuid", "b"], "allow-related", "from-lport", false, "0", 0, ["set", []]]]}},
{{"headings": ["_uuid", "name", "ports", "acls", "qos_rules"],
 "data": [[["uuid", "s"], "red", ["uuid", "p"], ["set", [["uuid", "a"], ["uuid", "b"]]], ["set", []]]]}},
{{"caption": "Logical_Switch_Port table", "headings": ["_uuid", "name", "addresses"],
 "data": [[["uuid", "p"], "host0", "02:00:00:00:00:10 10.1.0.10"]]}}]"#
    )
}

fn warnings(text: &str) -> Vec<String> {
    let imported = import(Format::Ovn, text).unwrap();
    imported.warnings.list.iter().map(|one| format!("{}:{}", one.line, one.message)).collect()
}

#[test]
fn what_has_no_equivalent_is_said_and_opens_nothing() {
    let accepts = "it accepts, and is left out";
    let cases = [
        ("ct.est && tcp", "allow", format!("native rules cannot ask for `ct.est`; {accepts}")),
        ("!ct.est", "allow", format!("native rules cannot ask for `ct.est`; {accepts}")),
        ("tcp.src == 5", "allow", format!("native rules cannot ask for source ports; {accepts}")),
        (
            "eth.src == 02:00:00:00:00:01",
            "allow",
            format!("native rules cannot ask for `eth.src`; {accepts}"),
        ),
        ("reg0[3..5] == 1", "allow", format!("native rules cannot ask for `reg0[3..5]`; {accepts}")),
        ("inport == \"x\"", "allow", format!("native rules cannot ask for `inport`; {accepts}")),
        (
            "is_chassis_resident(\"x\")",
            "allow",
            format!("native rules cannot ask for `is_chassis_resident()`; {accepts}"),
        ),
        (
            "ip4.dst == 10.1.0.10",
            "allow",
            format!("native rules cannot ask for addresses of the port's own host; {accepts}"),
        ),
        (
            "icmp4.code != 0",
            "allow",
            format!("native rules cannot ask for more than 256 types and codes; {accepts}"),
        ),
        (
            "ct.inv",
            "drop",
            "native rules cannot ask for `ct.inv`; it denies, and denies without that condition".into(),
        ),
    ];
    for (text, action, expected) in cases {
        let text = acl(text, action);
        let mut found = warnings(&text);
        found.retain(|warning| warning.starts_with("2:"));
        // Both families say the same, once.
        assert_eq!(found, [format!("2:rule ACL web: {expected}")], "{text}");
    }
    for (action, expected) in [
        ("reject", "2:ACL web rejects: floodway drops, and sends neither a reset nor an ICMP error"),
        ("allow-stateless", "2:ACL web is allow-stateless; it denies"),
    ] {
        assert_eq!(warnings(&acl("tcp", action)), [expected]);
        let (program, _) = compiled(&import(Format::Ovn, &acl("tcp", action)).unwrap());
        let peer = "10.2.0.1".parse().unwrap();
        assert!(!is_accepted(&program, "host0", false, peer, Service::Tcp(1)));
        assert!(is_accepted(&program, "host0", false, peer, Service::Udp(1)), "accepted by default");
    }
}

#[test]
fn what_is_wrong_is_refused_with_its_place_and_the_fix() {
    let deep = "(".repeat(100);
    let cases = [
        ("tcp &&", "at character 7: expected a constant"),
        (
            "tcp && udp || sctp",
            "at character 12: `&&` and `||` stand side by side\n  help: put the parts that belong together in parentheses",
        ),
        (
            "!ip4.src == 10.0.0.1",
            "at character 21: `!` before a comparison\n  help: put what `!` negates in parentheses",
        ),
        ("(tcp", "at character 5: expected `)`"),
        ("tcp)", "at character 4: expected the end, `&&` or `||`"),
        ("tcp.dst == 70000", "at character 12: expected a number up to 65535"),
        ("tcp.dst == 0x1ffff", "at character 12: expected a number up to 65535"),
        (
            "ip4.src == fd00::1",
            "at character 12: expected an IPv4 address, a prefix or `$` and an address set",
        ),
        ("ip4.src == 10.0.0.1/8", "at character 12: prefix 10.0.0.1/8 has host bits set; write 10.0.0.0/8"),
        ("ip4.src == $none", "at character 12: there is no address set `none`"),
        ("outport == @none", "at character 12: there is no port group `none`"),
        ("outport == 5", "at character 12: expected the name of a port in quotes, or `@` and a port group"),
        ("outport == \"x", "at character 12: this string has no end"),
        ("tcp.dst > {1, 2}", "at character 11: only `==` and `!=` compare with several values"),
        (
            "1 == tcp.dst < 5",
            "at character 6: only a range such as `80 <= tcp.dst <= 90` has two comparisons",
        ),
        ("tcp # udp", "at character 5: `#` does not belong here"),
        (&deep, "at character 33: nested deeper than 32 levels"),
    ];
    for (text, expected) in cases {
        let error = error(Format::Ovn, &acl(text, "drop"));
        let (place, message) = error.split_once(": error: ").unwrap();
        assert!(place.starts_with("in.json:2:"), "{error}");
        assert_eq!(message, format!("the match, {expected}"), "{text}");
    }
    let large = "1".repeat((1 << 16) + 1);
    assert!(error(Format::Ovn, &acl(&large, "drop")).contains("it has 65537 bytes; at most 65536 are read"));
    assert!(error(Format::Ovn, &acl("tcp", "dorp")).contains("did you mean `drop`?"));
}

/// 2 to the power of 12 alternatives are not made.
#[test]
fn a_match_that_unfolds_to_too_much_is_refused() {
    let part = |index: u32| format!("(ip4.src == 10.{index}.0.0/16 && ip.proto == {})", 100 + index);
    let parts: Vec<String> = (0..12).map(part).collect();
    let error = error(Format::Ovn, &acl(&format!("!({})", parts.join(" || ")), "drop"));
    assert!(error.contains("the ACLs of switch `red` unfold to too many rules"), "{error}");
}

#[test]
fn tables_that_are_missing_or_contradict_each_other_are_refused() {
    let whole = acl("tcp", "drop");
    let cases = [
        ("[]".to_string(), "there is no table ACL: add what `ovn-nbctl --format=json list ACL` prints"),
        (
            whole.replace("[\"uuid\", \"p\"], \"host0\"", "[\"uuid\", \"q\"], \"host0\""),
            "there is no port `p`\n  help: import all of Logical_Switch_Port",
        ),
        (
            whole.replace("[[\"uuid\", \"a\"], [\"uuid\", \"b\"]]", "[[\"uuid\", \"c\"]]"),
            "ACL `c` of switch `red` is not there",
        ),
        (
            whole.replace("[[\"uuid\", \"b\"], \"allow", "[[\"uuid\", \"a\"], \"allow"),
            "a row of ACL is given twice",
        ),
        (
            whole.replace("\"to-lport\", false, \"tcp\", 5, \"web\"]", "\"to-lport\"]"),
            "a row of ACL has 3 cells for 7 columns",
        ),
        (
            whole.replace("\"tcp\", 5,", "\"tcp\", 40000,"),
            "expected a priority from 0 to 32767, found `40000`",
        ),
        (whole.replace("\"tcp\", 5,", "\"\", 5,"), "this row has no `match`"),
    ];
    for (text, expected) in cases {
        let refused = import(Format::Ovn, &text).unwrap_err().to_string();
        assert!(refused.contains(expected), "{expected}\n{refused}");
    }
}

/// Without one ACL that is allow-related OVN keeps no state, and floodway would let replies through.
#[test]
fn a_switch_without_state_lets_nothing_through() {
    let text = acl("tcp", "allow").replace("allow-related", "drop");
    let imported = import(Format::Ovn, &text).unwrap();
    assert_eq!(
        imported.warnings.list[0].message,
        "no ACL of switch `red` is allow-related, so it keeps no state"
    );
    let (program, _) = compiled(&imported);
    for is_egress in [true, false] {
        assert!(!is_accepted(&program, "host0", is_egress, "10.2.0.1".parse().unwrap(), Service::Tcp(1)));
    }
}

/// A column that is not known may narrow an ACL.
#[test]
fn unknown_columns_are_conditions() {
    let text = acl("tcp", "allow")
        .replace("\"name\"], \"data\": [\n", "\"name\", \"network_function_group\"], \"data\": [\n")
        .replace("\"web\"]", "\"web\", [\"uuid\", \"n\"]]")
        .replace("0, [\"set\", []]", "0, [\"set\", []], [\"set\", []]");
    let found = warnings(&text);
    assert_eq!(
        found,
        ["2:rule ACL web: native rules cannot ask for `network_function_group`; it accepts, and is left out"]
    );
}

#[test]
fn equal_priorities_are_said() {
    let text =
        acl("tcp", "drop").replace("\"from-lport\", false, \"0\", 0", "\"to-lport\", false, \"tcp\", 5");
    assert_eq!(warnings(&text), ["3:ACL b has the priority of another one"]);
    let (program, _) = compiled(&import(Format::Ovn, &text).unwrap());
    assert!(!is_accepted(&program, "host0", false, "10.2.0.1".parse().unwrap(), Service::Tcp(1)));
}

#[test]
fn the_log_is_taken_over() {
    let text = acl("tcp.dst == 80", "allow-related").replacen("\"to-lport\", false", "\"to-lport\", true", 1);
    let (program, yaml) = compiled(&import(Format::Ovn, &text).unwrap());
    assert_eq!(yaml.matches("log: true").count(), 2, "{yaml}");
    assert!(is_accepted(&program, "host0", false, "10.2.0.1".parse().unwrap(), Service::Tcp(80)));
}
