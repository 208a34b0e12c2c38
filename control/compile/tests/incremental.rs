//! A change costs what it changes, and comes to the same as all from the start.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{collections::BTreeMap, sync::Arc};

use compile::{Compiled, Compiler};
use policy::{DIAGNOSTICS_MAX, Diagnostics, Reader, Source};
use program::{Program, RuleSet};
use proptest::{collection::vec, prelude::*};

const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

fn source(name: &str, text: String) -> Source {
    Source { name: name.into(), bytes: text.into() }
}

fn fabric() -> Source {
    let ports = ["up", "a", "b", "c"].map(|name| format!("{{name: {name}, device: 'memory:'}}")).join(", ");
    let spec = format!("{{ports: [{ports}], uplink: {{port: up, addresses: [192.0.2.1/24]}}}}");
    source("fabric.yaml", format!("{HEAD}kind: Fabric\nmetadata: {{name: box}}\nspec: {spec}\n"))
}

/// A tenant with one port of its own name, which may send to this TCP port and be sent anything.
fn tenant(name: &str, vni: u32, port: u16) -> Source {
    let tenant =
        format!("{{vni: {vni}, ports: [{{port: {name}, mac: 02:00:00:00:00:01, addresses: [10.0.0.1]}}]}}");
    let egress = format!("[{{action: Accept, services: [{{protocol: TCP, port: {port}}}]}}]");
    let policy = format!("{{tenant: {name}, egress: {egress}, ingress: [{{action: Accept}}]}}");
    let text = format!(
        "{HEAD}kind: Tenant\nmetadata: {{name: {name}}}\nspec: {tenant}\n---\n{HEAD}kind: TenantPolicy\nmetadata: {{name: p}}\nspec: {policy}\n"
    );
    source(&format!("{name}.yaml"), text)
}

fn compile(sources: &[Source], previous: Option<&Program>) -> Program {
    let parsed = policy::parse(sources).unwrap_or_else(|errors| panic!("{}", errors.render(sources)));
    compile::compile(&parsed.policy, previous).unwrap().program
}

fn set<'p>(program: &'p Program, name: &str) -> &'p Arc<RuleSet> {
    let id = program.tenants.iter().flatten().find(|tenant| tenant.name == name).unwrap().id;
    &program.rules.placed().iter().find(|placed| placed.tenant == id).unwrap().set
}

/// Tenants come and go before them by name, so that every id shifts.
#[test]
fn rules_that_stay_are_shared_whatever_becomes_of_other_tenants() {
    let first = compile(&[fabric(), tenant("b", 2, 80), tenant("c", 3, 80)], None);
    let second =
        compile(&[fabric(), tenant("a", 1, 80), tenant("b", 2, 81), tenant("c", 3, 80)], Some(&first));
    assert!(!Arc::ptr_eq(set(&first, "b"), set(&second, "b")));
    assert!(Arc::ptr_eq(set(&first, "c"), set(&second, "c")));
    let third = compile(&[fabric(), tenant("c", 3, 80)], Some(&second));
    assert!(Arc::ptr_eq(set(&first, "c"), set(&third, "c")));
    let ids = [&first, &second, &third].map(|program| program.ports[3].as_ref().unwrap().egress.0);
    assert_eq!(ids, [2, 4, 0]);
    // Nothing that comes back under a name that was gone is taken for what it was.
    let back = compile(&[fabric(), tenant("b", 2, 80), tenant("c", 3, 80)], Some(&third));
    assert!(!Arc::ptr_eq(set(&first, "b"), set(&back, "b")));
    assert_eq!(set(&first, "b"), set(&back, "b"));
}

/// Where a rule stands is part of it: `explain` says so.
#[test]
fn a_rule_that_moves_in_its_file_is_another() {
    let mut moved = tenant("a", 1, 80);
    let first = compile(&[fabric(), moved.clone()], None);
    moved.bytes.splice(0..0, *b"# a line more\n");
    let second = compile(&[fabric(), moved], Some(&first));
    assert!(!Arc::ptr_eq(set(&first, "a"), set(&second, "a")));
    let origin = |program: &Program| program.origin(program.rules.placed()[0].first_rule);
    assert_eq!([&first, &second].map(origin), ["a.yaml:9", "a.yaml:10"]);
}

/// What the daemon keeps from one change to the next.
#[derive(Default)]
struct Kept {
    reader: Reader,
    compiler: Compiler,
    /// The program that runs.
    program: Option<Program>,
}

impl Kept {
    /// Takes a version of the files; says how many files were parsed and tenants compiled.
    #[track_caller]
    fn take(&mut self, sources: &[Source]) -> (usize, usize) {
        let again = compile_with(&mut self.reader, &mut self.compiler, sources, self.program.as_ref());
        let parsed = self.reader.parsed_files();
        let whole =
            compile_with(&mut Reader::default(), &mut Compiler::default(), sources, self.program.as_ref());
        let says = |result: &Result<(Diagnostics, Compiled), Diagnostics>| match result {
            Ok((warnings, compiled)) => (warnings.clone(), Some(compiled.program.clone())),
            Err(diagnostics) => (diagnostics.clone(), None),
        };
        assert_eq!(says(&again), says(&whole));
        let recompiled = again.map_or(0, |(_, compiled)| {
            self.program = Some(compiled.program);
            compiled.recompiled
        });
        (parsed, recompiled)
    }
}

fn compile_with(
    reader: &mut Reader,
    compiler: &mut Compiler,
    sources: &[Source],
    previous: Option<&Program>,
) -> Result<(Diagnostics, Compiled), Diagnostics> {
    let policy::Parsed { policy, warnings } = reader.parse(sources)?;
    Ok((warnings, compiler.compile(&policy, previous)?))
}

#[test]
fn a_change_of_one_tenant_compiles_that_tenant() {
    let mut kept = Kept::default();
    let mut sources = vec![fabric(), tenant("a", 1, 80), tenant("b", 2, 80), tenant("c", 3, 80)];
    assert_eq!(kept.take(&sources), (4, 3));
    assert_eq!(kept.take(&sources), (0, 0));
    sources[2] = tenant("b", 2, 81);
    assert_eq!(kept.take(&sources), (1, 1));
    // A file is gone, and one comes before all others.
    sources.remove(2);
    assert_eq!(kept.take(&sources), (0, 0));
    let mut b = tenant("b", 2, 81);
    b.name = "0.yaml".into();
    sources.push(b);
    assert_eq!(kept.take(&sources), (1, 1));
    // The Fabric is in no rule.
    let text = String::from_utf8(sources[0].bytes.clone()).unwrap();
    sources[0].bytes = text.replace("192.0.2.1/24", "192.0.2.2/24").into();
    assert_eq!(kept.take(&sources), (1, 0));
    // It moves; then it is called otherwise.
    sources[1].bytes.splice(0..0, *b"\n");
    assert_eq!(kept.take(&sources), (1, 1));
    sources[1].name = "d.yaml".into();
    assert_eq!(kept.take(&sources), (1, 1));
}

/// The tenants of one file are told apart, as long as the lines of the others stay.
#[test]
fn a_change_in_a_file_of_many_tenants_compiles_one_of_them() {
    let all = |port| {
        let tenants = [tenant("a", 1, 80), tenant("b", 2, port), tenant("c", 3, 80)];
        let texts = tenants.map(|source| String::from_utf8(source.bytes).unwrap());
        [fabric(), source("all.yaml", texts.join("---\n"))]
    };
    let mut kept = Kept::default();
    assert_eq!(kept.take(&all(80)), (2, 3));
    assert_eq!(kept.take(&all(81)), (1, 1));
}

#[test]
fn tags_and_policies_of_the_operator_reach_those_that_they_concern() {
    let tag = |prefix: &str, comment: &str| {
        let text = format!(
            "{comment}{HEAD}kind: PrefixTag\nmetadata: {{name: lan}}\nspec: {{prefixes: [{prefix}]}}\n"
        );
        source("tag.yaml", text)
    };
    let cluster = |name: &str| {
        let head = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n";
        let subject = format!("{{namespaces: {{matchLabels: {{kubernetes.io/metadata.name: {name}}}}}}}");
        let rule = "{action: Deny, to: [{networks: [10.3.0.0/16]}]}";
        source(
            "cluster.yaml",
            format!(
                "{head}metadata: {{name: c}}\nspec: {{tier: Admin, priority: 1, subject: {subject}, egress: [{rule}]}}\n"
            ),
        )
    };
    let mut user = tenant("c", 3, 80);
    let text = String::from_utf8(user.bytes).unwrap();
    user.bytes =
        text.replace("ingress: [{action: Accept}]", "ingress: [{action: Accept, from: [{tag: lan}]}]").into();
    let mut kept = Kept::default();
    let mut sources = vec![fabric(), tenant("a", 1, 80), tenant("b", 2, 80), user, tag("10.1.0.0/16", "")];
    assert_eq!(kept.take(&sources), (5, 3));
    sources[4] = tag("10.2.0.0/16", "");
    assert_eq!(kept.take(&sources), (1, 1));
    // Where it stands is told by no rule.
    sources[4] = tag("10.2.0.0/16", "# a comment\n");
    assert_eq!(kept.take(&sources), (1, 0));
    sources.push(cluster("a"));
    assert_eq!(kept.take(&sources), (1, 1));
    sources[5] = cluster("b");
    assert_eq!(kept.take(&sources), (1, 2));
    sources.pop();
    assert_eq!(kept.take(&sources), (0, 1));
}

/// Whatever is told when not all can be, is told by whoever reads all.
#[test]
fn more_diagnostics_than_are_kept_are_the_same_ones() {
    let rules: String =
        (0..DIAGNOSTICS_MAX).map(|n| format!("    - {{action: Accept, prot: {n}}}\n")).collect();
    let head = format!("{HEAD}kind: TenantPolicy\nmetadata: {{name: q}}\nspec:\n  tenant: b\n  egress:\n");
    let mut kept = Kept::default();
    let mut sources = vec![fabric(), tenant("a", 1, 80), tenant("b", 2, 80)];
    kept.take(&sources);
    sources.push(source("q.yaml", head.clone() + &rules));
    kept.take(&sources);
    sources.push(source("more.yaml", head + &rules));
    kept.take(&sources);
    sources.truncate(3);
    assert_eq!(kept.take(&sources), (3, 0));
}

/// Files of a directory that is edited at random: for each slot a few versions, good ones and others.
fn versions() -> Vec<Vec<Source>> {
    let fabric = fabric();
    let mut others = vec![tags(), clusters(), networks()];
    let mut slots = vec![vec![fabric]];
    for (name, vni) in [("a", 1), ("b", 2), ("c", 3)] {
        slots.push(tenants(name, vni));
    }
    slots.append(&mut others);
    slots
}

fn text_of(source: &Source) -> String {
    String::from_utf8(source.bytes.clone()).unwrap()
}

fn tenants(name: &str, vni: u32) -> Vec<Source> {
    let good = text_of(&tenant(name, vni, 80));
    let everything = "ingress: [{action: Accept}]";
    let with = |ingress: &str| good.replace(everything, &format!("ingress: [{ingress}]"));
    let mut texts = vec![
        good.clone(),
        good.replace("port: 80", "port: 81"),
        format!("# moved\n\n{good}"),
        good.replace(&format!("vni: {vni}"), "vni: 7"),
        good.replace("metadata: {name: p}", "metadata: {name: p"),
        good.replace("action", "acton"),
        good.replace(&format!("tenant: {name}"), "tenant: d"),
        good.replace(&format!("name: {name}"), "name: d").replace(&format!("tenant: {name}"), "tenant: d"),
        good.replace(&format!("vni: {vni}"), &format!("vni: {vni}, remotes: 7")),
        good.replace("vni", "labels: {team: x}\n  vni"),
        with("{action: Accept}, {action: Deny}"),
        with("{action: Accept, from: [{tag: lan}]}"),
        with("{action: Accept, from: [{tag: lam}]}"),
        with("{action: Accept, from: [{tenant: a}, {tenant: b}]}"),
        with("{action: Accept, from: [{remote: far}]}"),
        with("{action: Accept, from: [{ports: {matchLabels: {role: db}}}]}"),
    ];
    texts.push(good.split("---").next().unwrap().into());
    let named = |file: &str, text: &String| source(file, text.clone());
    let file = format!("{name}.yaml");
    let renamed = format!("z-{name}.yaml");
    let mut all: Vec<Source> = texts.iter().map(|text| named(&file, text)).collect();
    all.extend(texts[..2].iter().map(|text| named(&renamed, text)));
    all
}

fn tags() -> Vec<Source> {
    let tag =
        |name: &str, spec: &str| format!("{HEAD}kind: PrefixTag\nmetadata: {{name: {name}}}\nspec: {spec}\n");
    let lan = |net: &str| tag("lan", &format!("{{prefixes: [{net}]}}"));
    let texts = [
        lan("10.1.0.0/16"),
        lan("10.2.0.0/16"),
        format!("# moved\n{}", lan("10.1.0.0/16")),
        format!("{}---\n{}", tag("idle", "{prefixes: []}"), lan("10.1.0.0/16")),
        lan("10.1.0.1/16"),
        format!("{}---\n{}", lan("10.1.0.0/16"), lan("10.2.0.0/16")),
    ];
    texts.map(|text| source("tags.yaml", text)).into()
}

fn clusters() -> Vec<Source> {
    let policy = |tier: &str, subject: &str, peer: &str| {
        let head = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n";
        let rule = format!("{{action: Pass, to: [{peer}]}}");
        format!(
            "{head}metadata: {{name: c}}\nspec: {{tier: {tier}, priority: 1, subject: {{namespaces: {subject}}}, egress: [{rule}]}}\n"
        )
    };
    let net = "{networks: [10.3.0.0/16]}";
    let texts = [
        policy("Admin", "{}", net),
        policy("Baseline", "{}", net),
        policy("Admin", "{matchLabels: {kubernetes.io/metadata.name: a}}", net),
        policy("Admin", "{matchLabels: {team: x}}", "{pods: {podSelector: {matchLabels: {role: db}}}}"),
        policy("Amin", "{}", net),
    ];
    texts.map(|text| source("cluster.yaml", text)).into()
}

fn networks() -> Vec<Source> {
    let policy = |tenant: &str, name: &str, spec: &str| {
        let head = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n";
        format!("{head}metadata: {{name: {name}, namespace: {tenant}}}\nspec: {spec}\n")
    };
    let texts = [
        policy("a", "n", "{podSelector: {}}"),
        format!(
            "{}---\n{}",
            policy("a", "n", "{podSelector: {}}"),
            policy("b", "n", "{podSelector: {}, policyTypes: [Egress]}")
        ),
        policy("b", "m", "{podSelector: {matchLabels: {role: db}}, ingress: [{}]}"),
        policy("c", "n", "{podSelector: {}, ingress: [{ports: [{port: web}]}]}"),
        policy("a", "n", "{podSelector: 7}"),
    ];
    texts.map(|text| source("network.yaml", text)).into()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Program and diagnostics are those of a compile from the start after each edit, and what is parsed and compiled is
    /// no more than what was touched.
    #[test]
    fn edits_come_to_what_all_files_come_to(edits in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..8u8), 1..16)) {
        let versions = versions();
        let mut files: Vec<Option<&Source>> = versions.iter().map(|slot| slot.first()).collect();
        let mut kept = Kept::default();
        let sources = |files: &[Option<&Source>]| files.iter().flatten().map(|file| (*file).clone()).collect::<Vec<_>>();
        kept.take(&sources(&files));
        // What the rules of each tenant were made of when that was looked at last.
        let mut known: BTreeMap<String, Vec<Option<&Source>>> = BTreeMap::new();
        for (slot, version, remove) in &edits {
            let slot = slot.index(versions.len());
            let before = files[slot];
            files[slot] = (*remove > 0).then(|| version.get(&versions[slot]));
            let generation = kept.program.as_ref().map(|program| program.generation);
            let (parsed, recompiled) = kept.take(&sources(&files));
            prop_assert!(parsed <= usize::from(files[slot] != before));
            let Some(program) = kept.program.as_ref().filter(|program| Some(program.generation) != generation) else {
                continue;
            };
            // Tenants' files are those of the slots 1 to 3; all others may concern anybody.
            let mut touched = 0;
            let mut now = BTreeMap::new();
            for tenant in program.tenants.iter().flatten() {
                let is_its = |file: &&Source| text_of(file).contains(&format!("name: {}}}", tenant.name));
                let mut inputs: Vec<Option<&Source>> = files[4..].to_vec();
                inputs.extend(files[1..4].iter().flatten().filter(|file| is_its(file) || text_of(file).contains(&format!("tenant: {},", tenant.name))).map(|file| Some(*file)));
                touched += usize::from(known.get(&tenant.name) != Some(&inputs));
                now.insert(tenant.name.clone(), inputs);
            }
            prop_assert!(recompiled <= touched, "{recompiled} of {touched}");
            known = now;
        }
    }
}
