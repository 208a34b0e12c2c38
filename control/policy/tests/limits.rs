//! Files that are too large, too deep or no text are refused with one clear sentence, whatever their size.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use policy::{DIAGNOSTICS_MAX, Diagnostics, Source, limit, parse};

fn refuse(bytes: impl Into<Vec<u8>>) -> Diagnostics {
    parse(&[Source { name: "a.yaml".into(), bytes: bytes.into() }]).unwrap_err()
}

/// The first diagnostic of a file.
fn first(bytes: impl Into<Vec<u8>>) -> String {
    let diagnostics = refuse(bytes);
    diagnostics.list.iter().find(|diagnostic| !diagnostic.source.is_empty()).unwrap().to_string()
}

#[test]
fn bytes_that_are_not_utf8_are_named_by_place_and_offset() {
    assert_eq!(
        first(b"kind: Tenant\nspec: \xc3\x28\n".as_slice()),
        "a.yaml:2:7: error: the file is not UTF-8: byte 0xc3 at offset 19"
    );
    let with_bom = b"\xef\xbb\xbfa\r\nb\xff".as_slice();
    assert_eq!(first(with_bom), "a.yaml:2:2: error: the file is not UTF-8: byte 0xff at offset 7");
    let utf16 = b"\xff\xfek\0i\0".as_slice();
    assert_eq!(first(utf16), "a.yaml:1:1: error: the file is not UTF-8: byte 0xff at offset 0");
}

#[test]
fn a_control_character_does_not_end_the_file_in_silence() {
    assert_eq!(first("a: 1\nb: \0\nc: [\n"), "a.yaml:2:4: error: control character U+0000");
    assert_eq!(first("a: \u{1b}[31m\n"), "a.yaml:1:4: error: control character U+001B");
}

#[test]
fn a_file_has_a_largest_size() {
    let text = first(vec![b'#'; limit::FILE_BYTES_MAX + 1]);
    assert_eq!(text, "a.yaml:1:1: error: the file has 8388609 bytes; at most 8388608 are read");
}

#[test]
fn a_directory_has_a_largest_size_and_number_of_files() {
    let file = |bytes| Source { name: "a.yaml".into(), bytes: vec![b'#'; bytes] };
    let large = parse(&vec![file(limit::FILE_BYTES_MAX); 9]).unwrap_err();
    let expected = "error: the files have 75497472 bytes together; at most 67108864 are read\n";
    assert_eq!(large.to_string(), expected);
    let many = parse(&vec![file(1); limit::FILES_MAX + 1]).unwrap_err();
    assert_eq!(many.to_string(), "error: there are 4097 files; at most 4096 are read\n");
}

#[test]
fn depth_is_bounded_in_every_style() {
    assert_eq!(first("[".repeat(100)), "a.yaml:1:33: error: nested deeper than 32 levels");
    assert_eq!(first("{a: ".repeat(100)), "a.yaml:1:129: error: nested deeper than 32 levels");
    // The scanner looks ahead, and has a bound of its own.
    assert_eq!(first("[".repeat(100_000)), "a.yaml:1:256: error: not YAML: recursion limit exceeded");
    assert_eq!(first("- ".repeat(100_000)), "a.yaml:1:65: error: nested deeper than 32 levels");
    let block: String = (0..1000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(first(block), "a.yaml:33:33: error: nested deeper than 32 levels");
    let fits = format!("{}{}", "[".repeat(limit::DEPTH_MAX), "]".repeat(limit::DEPTH_MAX));
    assert_eq!(first(fits), "a.yaml:1:1: error: expected a document with fields, found a list");
}

#[test]
fn the_number_of_values_is_bounded_over_all_documents_of_a_file() {
    let items = limit::NODES_MAX / 2;
    let list = |count| format!("[{}]\n", "1,".repeat(count));
    let text = format!("{}---\n{}", list(items), list(items));
    let diagnostics = refuse(text.as_str());
    let told = diagnostics.list.iter().filter(|one| one.message == "more than 1048576 values in one file");
    assert_eq!(told.map(|one| one.line).collect::<Vec<_>>(), [3]);
    assert_eq!(refuse(list(items)).list.len(), 1);
}

#[test]
fn the_number_of_documents_is_bounded() {
    let document = "--- {}\n";
    let text = document.repeat(limit::DOCUMENTS_MAX + 7);
    let diagnostics = refuse(text);
    assert_eq!(diagnostics.list.len(), DIAGNOSTICS_MAX);
    // Each of the first 10,000 lacks four fields, and one more diagnostic says that there are too many.
    assert_eq!(diagnostics.omitted, 4 * limit::DOCUMENTS_MAX + 1 - DIAGNOSTICS_MAX);
    assert!(diagnostics.render(&[]).ends_with("and 39001 more\n"));
}

#[test]
fn a_bomb_of_aliases_costs_nothing() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    let diagnostics = refuse(text);
    let refused = diagnostics.list.iter().filter(|one| one.message.starts_with("aliases are not read"));
    assert_eq!(refused.count(), 29 * 9);
}

#[test]
fn an_error_is_kept_among_any_number_of_warnings() {
    let rules = "    - {action: Accept, to: []}\n".repeat(2 * DIAGNOSTICS_MAX);
    let text = format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: p}}\nspec:\n  tenant: red\n  egress:\n{rules}    - {{action: Acept}}\n"
    );
    let diagnostics = refuse(text);
    assert_eq!(diagnostics.list.len(), DIAGNOSTICS_MAX);
    assert!(diagnostics.has_errors());
}

#[test]
fn a_long_line_is_shown_in_part() {
    let text = format!("{{\"kind\": {}5}}", " ".repeat(100_000));
    let source = Source { name: "a.json".into(), bytes: text.into() };
    let rendered = parse(std::slice::from_ref(&source)).unwrap_err().render(&[source]);
    assert!(rendered.contains("a.json:1:100010: error: expected a kind"), "{rendered}");
    assert!(rendered.lines().all(|line| line.len() < 120), "{rendered}");
}

#[test]
fn a_tenant_has_no_more_ports_than_a_card() {
    let port = "{port: a0, mac: 02:00:00:00:00:01, addresses: []}, ";
    let document = |count| {
        format!(
            "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: t}}\nspec: {{vni: 5, ports: [{}]}}\n",
            port.repeat(count)
        )
    };
    let message = "a tenant has at most 512 ports on one card; this one has 513";
    assert!(refuse(document(513)).list.iter().any(|one| one.message == message));
    assert!(!refuse(document(512)).list.iter().any(|one| one.message.contains("at most 512")));
}

#[test]
fn the_search_for_shadowed_rules_is_bounded_and_says_where_it_ends() {
    let rule = |port| format!("    - {{action: Accept, services: [{{protocol: TCP, port: {port}}}]}}\n");
    // Each pair costs three: one for itself, one for its peers and one for its services.
    let rules: String = (1..=4000).map(rule).collect();
    let text = format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: p}}\nspec:\n  tenant: red\n  egress:\n{rules}"
    );
    let diagnostics = refuse(text);
    let told = diagnostics.list.iter().filter(|one| one.message.starts_with("rules from here on"));
    let lines: Vec<u32> = told.map(|one| one.line).collect();
    // The first rule is on line 7, and rule n is compared with n - 1 others.
    let pairs = limit::SHADOW_COMPARISONS_MAX / 3;
    let searched = (1..).find(|n| n * (n - 1) / 2 > pairs).unwrap();
    assert_eq!(lines, [6 + searched as u32 + 1]);
}
