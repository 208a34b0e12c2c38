//! Statements of files, against policies of files: the shipped ones, the page's, and a thousand tenants.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{fmt::Write, fs, path::Path};

use compile::verify::{self, Answer, Prover};
use policy::{Parsed, Source};
use program::{DropReason, Ingress, Place, PortId, Program, Service, VtepId};

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn directory(path: &str) -> Vec<Source> {
    let mut files: Vec<_> =
        fs::read_dir(root().join(path)).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    let source = |file: &std::path::PathBuf| Source {
        name: file.file_name().unwrap().to_str().unwrap().into(),
        bytes: fs::read(file).unwrap(),
    };
    files.iter().map(source).collect()
}

fn compiled(sources: &[Source], statements: &[Source]) -> (Parsed, Program) {
    let parsed = policy::parse_with_statements(sources, statements);
    let parsed = parsed.unwrap_or_else(|errors| panic!("{}", errors.render(&[sources, statements].concat())));
    let program = compile::compile(&parsed.policy, None).unwrap_or_else(|errors| panic!("{errors}")).program;
    (parsed, program)
}

fn answers(sources: &[Source], statements: &[Source]) -> Vec<(String, Answer)> {
    let (parsed, program) = compiled(sources, statements);
    let mut prover = Prover::new(&program);
    let questions = verify::questions(&parsed.policy, &program);
    questions
        .iter()
        .map(|(statement, question)| (statement.name.to_string(), prover.answer(question)))
        .collect()
}

/// Statements of the demo, each a line of `spec`.
fn of_demo(specs: &[&str]) -> Vec<Answer> {
    let mut text = String::new();
    for (index, spec) in specs.iter().enumerate() {
        let head = format!("apiVersion: {}\nkind: Statement", policy::API_VERSION);
        writeln!(text, "---\n{head}\nmetadata: {{name: s{index}}}\nspec: {{{spec}}}").unwrap();
    }
    let statements = [Source { name: "s.yaml".into(), bytes: text.into_bytes() }];
    answers(&directory("deploy/policies/demo"), &statements).into_iter().map(|(_, answer)| answer).collect()
}

#[test]
fn every_shipped_statement_is_proven() {
    let folders = fs::read_dir(root().join("deploy/statements")).unwrap();
    let names = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap());
    let mut count = 0;
    for name in names {
        let policy = directory(&format!("deploy/policies/{name}"));
        for (statement, answer) in answers(&policy, &directory(&format!("deploy/statements/{name}"))) {
            assert_eq!(answer, Answer::Proven, "{statement}");
            count += 1;
        }
    }
    assert_eq!(count, 4);
}

#[test]
fn every_shipped_policy_keeps_its_tenants_apart() {
    for name in ["demo", "bluefield"] {
        let (_, program) = compiled(&directory(&format!("deploy/policies/{name}")), &[]);
        assert_eq!(verify::isolation(&program), verify::Isolation::default(), "{name}");
    }
}

#[test]
fn a_counter_example_says_which_packet_and_which_rule() {
    let allowed = of_demo(&["expect: deny, from: {tenant: red}, to: {}, services: [{protocol: TCP}]"]);
    let Answer::False(example) = &allowed[0] else { panic!("{allowed:?}") };
    let (_, program) = compiled(&directory("deploy/policies/demo"), &[]);
    let flow = example.flow;
    assert_eq!((flow.ingress, flow.service), (Ingress::Port(PortId(1)), Service::Tcp(5201)));
    assert_eq!((flow.src.to_string(), flow.dst.to_string()), ("10.1.0.10".into(), "10.1.0.20".into()));
    let judged = example.judged.unwrap();
    assert_eq!(judged.place, Place::Vtep(VtepId(0)));
    assert_eq!(program.origin(judged.rule.unwrap()), "red.yaml:32");

    let services = "services: [{protocol: TCP, port: 9999}]";
    let denied =
        of_demo(&[&format!("expect: allow, from: {{tenant: red, ports: [red0]}}, to: {{}}, {services}")]);
    let Answer::False(example) = &denied[0] else { panic!("{denied:?}") };
    let refused = example.judged.unwrap_err();
    assert_eq!(
        (refused.reason, program.origin(refused.rule.unwrap())),
        (DropReason::PolicyDeny, "red.yaml:29".into())
    );
}

#[test]
fn statements_mean_what_the_page_says() {
    let port = "from: {tenant: red, ports: [red0]}";
    let tcp = "services: [{protocol: TCP, port: 5201}]";
    let answers = of_demo(&[
        // Nobody has 10.1.0.21.
        &format!("expect: allow, {port}, to: {{ipBlock: {{cidr: 10.1.0.20/31}}}}, {tcp}"),
        &format!("expect: allow, {port}, to: {{ipBlock: {{cidr: 10.1.0.20/32}}}}, {tcp}"),
        // Without addresses, only those that somebody has are meant.
        &format!("expect: allow, {port}, to: {{}}, {tcp}"),
        // The port may not send from there.
        &format!("expect: allow, from: {{tenant: red, ipBlock: {{cidr: 10.1.0.11/32}}}}, to: {{}}, {tcp}"),
        // What stays behind one tunnel endpoint does not come here.
        &format!(
            "expect: deny, from: {{tenant: red, remote: red-remote}}, to: {{remote: red-remote}}, {tcp}"
        ),
        // A later fragment of UDP is never accepted by a rule for RoCEv2.
        &format!("expect: deny, {port}, to: {{}}, services: [{{protocol: UDP, port: 1, endPort: 4790}}]"),
        "expect: deny, from: {tenant: red}, to: {tenant: blue, ipBlock: {cidr: 10.1.0.10/32}}",
        "expect: deny, from: {tenant: red}, to: {tenant: blue, ports: {matchLabels: {role: none}}}",
    ]);
    let Answer::False(example) = &answers[0] else { panic!("{answers:?}") };
    assert_eq!(example.flow.dst.to_string(), "10.1.0.21");
    assert_eq!(example.judged.unwrap_err().reason, DropReason::NoRoute);
    let [proven, vacuous] = [Answer::Proven, Answer::Vacuous];
    let expected = [&proven, &proven, &vacuous, &vacuous, &proven, &proven, &vacuous];
    assert_eq!(answers[1..].iter().collect::<Vec<_>>(), expected);
}

#[test]
fn the_page_gives_the_bound_and_an_example_that_is_read() {
    let page = fs::read_to_string(root().join("docs/verify.md")).unwrap();
    let digits = verify::REGIONS_MAX.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
    assert!(page.contains(&format!("no more than {} regions", groups.join(","))));
    for fact in verify::Fact::ALL {
        assert!(page.contains(&format!("| `{}` |", fact.name())));
    }
    let example = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let statements = [Source { name: "s.yaml".into(), bytes: example.into() }];
    let answers = answers(&directory("deploy/policies/demo"), &statements);
    assert_eq!(answers, [("no-ssh-from-the-remote".into(), Answer::Proven)]);
}

/// A Fabric, and tenants with 100 rules and a statement each; the first 500 have a port. A file for each tenant.
fn many(tenants: usize) -> (Vec<Source>, Source) {
    let ports = tenants.min(500);
    let api = policy::API_VERSION;
    let source = |name: String, text: String| Source { name, bytes: text.into_bytes() };
    let mut fabric = format!("apiVersion: {api}\nkind: Fabric\nmetadata: {{name: box}}\nspec:\n  ports:\n");
    let names = (0..ports).map(|port| format!("p{port}")).chain(["up".into()]);
    names.for_each(|name| writeln!(fabric, "    - {{name: {name}, device: 'memory:'}}").unwrap());
    fabric += "  uplink: {port: up, addresses: [192.0.2.1/24]}\n  vteps: [{name: far, address: 192.0.2.2}]\n";
    let mut files = vec![source("fabric.yaml".into(), fabric)];
    let mut statements = String::new();
    for tenant in 0..tenants {
        let head =
            |kind| format!("---\napiVersion: {api}\nkind: {kind}\nmetadata: {{name: t{tenant}}}\nspec:\n");
        let mut text = format!("{}  vni: {}\n", head("Tenant"), tenant + 1);
        if tenant < ports {
            writeln!(text, "  ports: [{{port: p{tenant}, mac: 02:00:00:00:00:01, addresses: [10.0.0.1]}}]")
                .unwrap();
        }
        let remote = "vtep: far, mac: 02:00:00:00:00:02, addresses: [10.0.0.2], prefixes: [10.64.0.0/16]";
        writeln!(text, "  remotes: [{{name: store, {remote}}}]").unwrap();
        writeln!(text, "{}  tenant: t{tenant}\n  egress:", head("TenantPolicy")).unwrap();
        (0..100).for_each(|rule| writeln!(text, "    - {}", rule_of_many(rule)).unwrap());
        files.push(source(format!("t{tenant}.yaml"), text));
        let services = "services: [{protocol: TCP, port: 1, endPort: 999}, {protocol: UDP}]";
        let ends = format!("from: {{tenant: t{tenant}}}\n  to: {{}}");
        writeln!(statements, "{}  expect: deny\n  {ends}\n  {services}", head("Statement")).unwrap();
    }
    (files, source("statements.yaml".into(), statements))
}

/// Prefixes that two rules share, and ranges of ports that overlap.
fn rule_of_many(rule: usize) -> String {
    let action = if rule.is_multiple_of(3) { "Deny" } else { "Accept" };
    let (net, first, last) = (rule % 50, 1000 + 7 * rule, 1090 + 7 * rule);
    let peer = format!("{{ipBlock: {{cidr: 10.64.{net}.0/24, except: [10.64.{net}.9/32]}}}}");
    format!(
        "{{action: {action}, to: [{peer}], services: [{{protocol: TCP, port: {first}, endPort: {last}}}]}}"
    )
}

/// As large as the aim of the compile step.
#[test]
fn a_thousand_tenants_of_a_hundred_rules_are_proven() {
    let (policy, statements) = many(1000);
    let (parsed, program) = compiled(&policy, &[statements]);
    assert_eq!((program.rules.len(), parsed.policy.statements.len()), (100_000, 1000));
    assert!(verify::isolation(&program).is_proven());
    let mut prover = Prover::new(&program);
    let mut counts = [0; 2];
    for (statement, question) in verify::questions(&parsed.policy, &program) {
        match prover.answer(&question) {
            Answer::Proven => counts[0] += 1,
            // Without a port here, there is nobody to receive what comes from the remote.
            Answer::Vacuous => counts[1] += 1,
            other => panic!("{}: {other:?}", statement.name.value),
        }
    }
    assert_eq!(counts, [500, 500]);
}
