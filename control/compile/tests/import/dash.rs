//! ACLs of DASH.

use policy::{Format, Source};
use program::Service;
use proptest::prelude::*;

use super::{
    compiled,
    dash_model::{packet, world},
    error, import, is_accepted,
};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_can_be_said_decides_as_the_source_does(world in world(true), packets in prop::collection::vec(packet(), 40)) {
        let (program, text) = compiled(&import(Format::Dash, &world.text()).unwrap());
        for packet in &packets {
            let is_accepted = is_accepted(&program, "host0", packet.is_egress, packet.peer, packet.service());
            prop_assert_eq!(is_accepted, world.is_accepted(packet), "{:?}\n{}\n{}", packet, world.text(), text);
        }
    }

    #[test]
    fn what_cannot_be_said_opens_nothing(world in world(false), packets in prop::collection::vec(packet(), 40)) {
        let (program, text) = compiled(&import(Format::Dash, &world.text()).unwrap());
        for packet in &packets {
            if is_accepted(&program, "host0", packet.is_egress, packet.peer, packet.service()) {
                prop_assert!(world.is_accepted(packet), "{:?}\n{}\n{}", packet, world.text(), text);
            }
        }
    }

    /// The order of files and of records says nothing.
    #[test]
    fn the_result_does_not_depend_on_the_order_of_files(world in world(true)) {
        let files = [world.text(), "{\"DASH_VNET_TABLE:Red\": {}}".into()];
        let source = |(name, text): (&str, &String)| Source { name: name.into(), bytes: text.clone().into() };
        let [a, b] = [source(("a.json", &files[0])), source(("b.json", &files[1]))];
        let first = policy::import(Format::Dash, &[a.clone(), b.clone()], None).unwrap();
        prop_assert_eq!(&first, &policy::import(Format::Dash, &[b, a], None).unwrap());
        let name = first.files.first().map(|file| file.name.as_str());
        prop_assert!(matches!(name, None | Some("red-dash.yaml")));
    }
}

/// One IPv4 group, bound outbound at stage 1, with these rules.
fn group(rules: &[&str]) -> String {
    let rules: String = rules
        .iter()
        .enumerate()
        .map(|(index, rule)| format!(",\n\"DASH_ACL_RULE_TABLE:g:{index}\": {{{rule}}}"))
        .collect();
    format!(
        "{{\"DASH_ENI_TABLE:host0\": {{}}, \"DASH_ACL_OUT_TABLE:host0:1\": {{\"v4_acl_group_id\": \"g\"}},\n\
         \"DASH_ACL_GROUP_TABLE:g\": {{\"ip_version\": \"ipv4\"}}{rules}}}"
    )
}

const HEAD: &str = r#""priority": 1, "action": "allow", "terminating": true"#;

/// Warnings of an import, without those of the directions and families that `group` leaves unbound.
fn warnings(text: &str) -> Vec<String> {
    let imported = import(Format::Dash, text).unwrap();
    let all = imported.warnings.list.iter().map(|one| format!("{}:{}", one.line, one.message));
    all.filter(|message| !message.contains("group is bound to ENI")).collect()
}

#[test]
fn what_has_no_equivalent_is_said() {
    let cases = [
        (
            r#""src_addr": "10.0.0.0/8""#,
            "native rules cannot ask for addresses of the port's own host; it accepts, and is left out",
        ),
        (r#""src_port": "5""#, "native rules cannot ask for source ports; it accepts, and is left out"),
        (r#""vlan": 3"#, "native rules cannot ask for `vlan`; it accepts, and is left out"),
        (
            r#""dst_port": "0-80""#,
            "native rules cannot ask for port 0, nor for packets that have no port at all; it accepts only what can be said",
        ),
        (
            r#""protocol": "47", "dst_port": "80""#,
            "only TCP and UDP have ports: of protocol 47 it matches nothing; it accepts only what can be said",
        ),
    ];
    for (extra, expected) in cases {
        let found = warnings(&group(&[&format!("{HEAD}, {extra}")]));
        assert_eq!(found, [format!("3:rule g:0: {expected}")], "{extra}");
    }
    let deny = r#""priority": 1, "action": "deny", "terminating": true, "src_port": "5""#;
    let expected =
        "3:rule g:0: native rules cannot ask for source ports; it denies, and denies without that condition";
    assert_eq!(warnings(&group(&[deny])), [expected]);
    let soft = r#""priority": 1, "action": "deny", "terminating": false"#;
    assert_eq!(
        warnings(&group(&[soft])),
        ["3:this rule denies and does not terminate; it is read as one that denies"]
    );
}

#[test]
fn records_that_are_no_acls_and_groups_that_decide_nothing_are_said() {
    let text = r#"[{"DASH_VNET_TABLE:v": {}}, {"DASH_VNET_TABLE:w": {}}, {"DASH_ENI_TABLE:host0": {}},
        {"DASH_ACL_GROUP_TABLE:g": {"ip_version": "ipv4"}}, {"DASH_PREFIX_TAG_TABLE:t": {"prefix_list": ""}}]"#;
    let imported = import(Format::Dash, text).unwrap();
    let messages: Vec<&str> = imported.warnings.list.iter().map(|one| one.message.as_str()).collect();
    let expected = [
        "2 records of `DASH_VNET_TABLE` left out: only ACLs are imported",
        "no ACL group is bound to ENI `host0`",
        "ACL group `g` is bound to no ENI; its rules are left out",
        "prefix tag `t` is used by no rule, and left out",
    ];
    assert_eq!(messages, expected);
    assert_eq!(imported.files, []);
}

/// A group that is bound to two ENIs is warned of once, and so is an unknown one that is bound for both families.
#[test]
fn each_thing_is_said_once() {
    let text = group(&[&format!("{HEAD}, \"src_port\": \"5\"")]).replacen(
        '{',
        "{\"DASH_ENI_TABLE:host1\": {}, \"DASH_ACL_OUT_TABLE:host1:1\": {\"v4_acl_group_id\": \"g\"}, ",
        1,
    );
    assert_eq!(warnings(&text).len(), 1, "{:?}", warnings(&text));
    let unknown = "{\"DASH_ENI_TABLE:host0\": {}, \"DASH_ACL_OUT_TABLE:host0:1\": {\"acl_group_id\": \"g\"}}";
    assert!(error_beside_warnings(unknown).contains("there is no ACL group `g`"));
}

#[test]
fn a_tag_without_prefixes_is_nobody() {
    let tag = "\"DASH_PREFIX_TAG_TABLE:t\": {\"ip_version\": \"ipv4\", \"prefix_list\": []}";
    let text = group(&[&format!("{HEAD}, \"dst_tag\": \"t\"")]).replacen('{', &format!("{{{tag}, "), 1);
    let (program, text) = compiled(&import(Format::Dash, &text).unwrap());
    let peer = "10.1.0.11".parse().unwrap();
    assert!(!is_accepted(&program, "host0", true, peer, Service::Tcp(80)), "{text}");
}

#[test]
fn tags_and_prefixes_are_united() {
    let tag =
        "\"DASH_PREFIX_TAG_TABLE:t\": {\"ip_version\": \"ipv4\", \"prefix_list\": \"10.7.0.0/16,10.8.0.1\"}";
    let rule = format!("{HEAD}, \"dst_tag\": \"t\", \"dst_addr\": [\"10.9.0.0/16\"]");
    let text = group(&[&rule]).replacen('{', &format!("{{{tag}, "), 1);
    let (program, _) = compiled(&import(Format::Dash, &text).unwrap());
    for (peer, expected) in [
        ("10.7.3.3", true),
        ("10.8.0.1", true),
        ("10.8.0.2", false),
        ("10.9.0.0", true),
        ("10.1.0.11", false),
    ] {
        let peer = peer.parse().unwrap();
        assert_eq!(is_accepted(&program, "host0", true, peer, Service::Tcp(80)), expected, "{peer}");
    }
}

#[test]
fn what_is_wrong_is_refused_with_its_place_and_the_fix() {
    let cases = [
        (
            r#""dst_addr": "10.0.0.1/8""#,
            "prefix 10.0.0.1/8 has host bits set\n  help: write 10.0.0.0/8, or 10.0.0.1/32 for this one address",
        ),
        (r#""dst_addr": "fd00::/16""#, "prefix fd00::/16 is not IPv4, as its group is"),
        (r#""dst_addr": """#, "expected prefixes, found an empty list\n  help: remove the field to mean all"),
        (r#""dst_addr": {"ip": 1}"#, "expected prefixes, found a map of fields"),
        (r#""dst_port": "90-80""#, "the range of ports ends at 80, below its start 90\n  help: write 80-90"),
        (r#""dst_port": "65536""#, "expected a port or a range such as 80-90, up to 65535, found `65536`"),
        (r#""dst_port": true"#, "expected a port or a range such as 80-90, up to 65535, found `true`"),
        (r#""protocol": "tcp""#, "expected the number of an IP protocol, found `tcp`"),
        (r#""dst_tag": "t""#, "there is no prefix tag `t`"),
    ];
    for (extra, expected) in cases {
        let error = error_beside_warnings(&group(&[&format!("{HEAD}, {extra}")]));
        let (place, message) = error.split_once(": error: ").unwrap();
        assert!(place.starts_with("in.json:3:"), "{error}");
        assert_eq!(message, expected);
    }
    for (head, expected) in [
        (r#""action": "allow", "terminating": true"#, "an ACL rule has no `priority`"),
        (
            r#""priority": -1, "action": "allow", "terminating": true"#,
            "expected a priority from 0 to 4294967295, found `-1`",
        ),
        (r#""priority": 1, "action": "alow", "terminating": true"#, "did you mean `allow`?"),
        (
            r#""priority": 1, "action": "allow", "terminating": 1"#,
            "expected `terminating` (true or false), found `1`",
        ),
    ] {
        assert!(error_beside_warnings(&group(&[head])).contains(expected), "{head}");
    }
}

fn error_beside_warnings(text: &str) -> String {
    let refused = import(Format::Dash, text).unwrap_err();
    let mut errors = refused.list.iter().filter(|one| one.severity == policy::Severity::Error);
    let error = errors.next().unwrap().to_string();
    assert_eq!(errors.next(), None, "{refused}");
    error
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let rule = format!("{{\"DASH_ACL_RULE_TABLE:g:0\": {{{HEAD}}}}}");
    let twice = format!("[{},\n{rule},\n{rule}]", group(&[]));
    let error = error_beside_warnings(&twice);
    assert!(error.contains("DASH_ACL_RULE `g:0` is given twice\n  note: in.json:3:"), "{error}");
    let cases = [
        (
            "{\"DASH_ACL_OUT_TABLE:host0:6\": {\"acl_group_id\": \"g\"}}",
            "is no ENI and stage such as `eni0:1`, up to 5",
        ),
        ("{\"DASH_ACL_OUT_TABLE:host0:1\": {\"acl_group_id\": \"g\"}}", "there is no ACL group `g`"),
        ("[{\"DASH_ACL_RULE_TABLE:g:0\": {}, \"OP\": \"DEL\"}]", "only the operation SET is read"),
        ("{\"DASH_ACL_GROUP_TABEL\": 1}", "did you mean `DASH_ACL_GROUP_TABLE`?"),
        ("[1]", "expected a record as an object, found `1`"),
        (
            "[{\"type\": \"SAI_OBJECT_TYPE_ENI\", \"op\": \"remove\", \"name\": \"e\", \"attributes\": []}]",
            "only the operation create is read",
        ),
        (
            "[{\"type\": \"SAI_OBJECT_TYPE_ENI\", \"name\": \"e\", \"attributes\": [\"a\"]}]",
            "the last one has no value",
        ),
    ];
    for (text, expected) in cases {
        let refused = import(Format::Dash, text).unwrap_err().to_string();
        assert!(refused.contains(expected), "{text}: {refused}");
    }
    let two = "{\"DASH_ENI_TABLE:Eni_0\": {}, \"DASH_ENI_TABLE:eni-0\": {},
        \"DASH_ACL_OUT_TABLE:Eni_0:1\": {\"acl_group_id\": \"g\"}, \"DASH_ACL_OUT_TABLE:eni-0:1\": {\"acl_group_id\": \"g\"},
        \"DASH_ACL_GROUP_TABLE:g\": {\"ip_version\": \"ipv6\"}}";
    assert!(error_beside_warnings(two).contains("`Eni_0` and `eni-0` would both be called eni-0"));
}

#[test]
fn without_a_vnet_the_tenant_must_be_told() {
    let text = group(&[HEAD]);
    let source = Source { name: "in.json".into(), bytes: text.into() };
    let refused = policy::import(Format::Dash, &[source], None).unwrap_err().to_string();
    assert!(
        refused.contains("nothing says which VNet ENI `host0` is in\n  help: give `--tenant`"),
        "{refused}"
    );
}

#[test]
fn stages_that_unfold_to_too_much_are_refused() {
    let mut records = vec!["\"DASH_ENI_TABLE:host0\": {}".to_string()];
    for stage in 1..=3 {
        records.push(format!("\"DASH_ACL_OUT_TABLE:host0:{stage}\": {{\"acl_group_id\": \"g{stage}\"}}"));
        records.push(format!("\"DASH_ACL_GROUP_TABLE:g{stage}\": {{\"ip_version\": \"ipv4\"}}"));
        for rule in 0..60 {
            records.push(format!(
                "\"DASH_ACL_RULE_TABLE:g{stage}:{rule}\": {{\"priority\": {rule}, \"action\": \"allow\", \"terminating\": false, \"dst_port\": \"{}\"}}",
                ["1-65535", "1-60000", "2-65535"][stage - 1]
            ));
        }
    }
    let error = error_beside_warnings(&format!("{{{}}}", records.join(",")));
    assert!(error.contains("the outbound IPv4 groups of ENI `host0` unfold to too many rules"), "{error}");
}

#[test]
fn records_of_sai_are_read() {
    let text = r#"[
      {"type": "SAI_OBJECT_TYPE_DASH_ACL_GROUP", "op": "create", "name": "g",
       "attributes": ["SAI_DASH_ACL_GROUP_ATTR_IP_ADDR_FAMILY", "SAI_IP_ADDR_FAMILY_IPV4"]},
      {"type": "SAI_OBJECT_TYPE_DASH_ACL_RULE", "op": "create", "name": "r", "attributes": [
        "SAI_DASH_ACL_RULE_ATTR_DASH_ACL_GROUP_ID", "$g", "SAI_DASH_ACL_RULE_ATTR_PRIORITY", "10",
        "SAI_DASH_ACL_RULE_ATTR_ACTION", "SAI_DASH_ACL_RULE_ACTION_PERMIT", "SAI_DASH_ACL_RULE_ATTR_PROTOCOL", "1:6",
        "SAI_DASH_ACL_RULE_ATTR_DIP", "2:10.7.0.0/16,10.8.0.1", "SAI_DASH_ACL_RULE_ATTR_DST_PORT", "1:80,90"]},
      {"type": "SAI_OBJECT_TYPE_ENI", "op": "create", "name": "host0", "attributes": [
        "SAI_ENI_ATTR_OUTBOUND_V4_STAGE1_DASH_ACL_GROUP_ID", "$g",
        "SAI_ENI_ATTR_OUTBOUND_V4_STAGE2_DASH_ACL_GROUP_ID", "0"]}]"#;
    let (program, yaml) = compiled(&import(Format::Dash, text).unwrap());
    for (peer, port, expected) in
        [("10.7.0.1", 80, true), ("10.8.0.1", 90, true), ("10.8.0.2", 90, false), ("10.7.0.1", 91, false)]
    {
        let peer = peer.parse().unwrap();
        assert_eq!(
            is_accepted(&program, "host0", true, peer, Service::Tcp(port)),
            expected,
            "{peer} {port}\n{yaml}"
        );
    }
    assert_eq!(
        error(Format::Dash, r#"[{"type": "SAI_OBJECT_TYPE_DASH_ACL_GROUP", "name": "g", "attributes": []}]"#),
        "in.json:1:53: error: an ACL group has no `SAI_DASH_ACL_GROUP_ATTR_IP_ADDR_FAMILY`"
    );
}
