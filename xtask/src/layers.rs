//! Which crate may depend on which: wire <- packet <- tables, quiescent <- engine <- pipelines <- floodwayd, with the
//! control plane beside it, which sees `program` and never the engine.
//!
//! Development dependencies are free, for they do not ship.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// What a crate of this workspace may depend on within it, directly.
const ALLOWED: &[(&str, &[&str])] = &[
    ("dpdk-sys", &[]),
    ("dpdk", &["dpdk-sys"]),
    ("wire", &[]),
    ("packet", &["wire"]),
    ("quiescent", &["packet", "wire"]),
    ("tables", &["packet", "wire"]),
    ("program", &["wire"]),
    ("engine", &["packet", "program", "quiescent", "tables", "wire"]),
    ("backends", &["dpdk", "packet", "wire"]),
    ("edge", &["engine", "packet", "program", "quiescent", "tables", "wire"]),
    ("policy", &["program", "wire"]),
    ("compile", &["policy", "program", "wire"]),
    ("agent", &["compile", "policy", "program", "wire"]),
    ("doctor", &["agent", "program"]),
    ("cli", &["agent", "compile", "doctor", "policy", "program", "wire"]),
    (
        "floodwayd",
        &[
            "agent",
            "backends",
            "compile",
            "dpdk",
            "edge",
            "engine",
            "packet",
            "policy",
            "program",
            "quiescent",
            "tables",
            "wire",
        ],
    ),
];

/// These test, measure or simulate the others, and nobody depends on them.
const FREE: &[&str] = &["scenarios", "benches", "sim", "xtask"];

/// Crates from outside that only some may depend on, directly.
const RESERVED: &[(&str, &[&str])] = &[
    ("tokio", &["agent"]),
    ("axum", &["agent"]),
    ("hyper", &["agent"]),
    ("hyper-util", &["agent"]),
    ("anyhow", &["cli", "floodwayd", "xtask"]),
];

/// Licences that a shipped program could not carry along.
const REFUSED_LICENCES: [&str; 2] = ["GPL", "MPL"];

/// A direct dependency.
struct Arrow<'a> {
    from: &'a str,
    to: &'a str,
    kind: DependencyKind,
}

/// Checks the workspace at `root` as cargo sees it.
pub fn run(root: &Path) -> Result<Vec<String>> {
    let mut command = MetadataCommand::new();
    command.manifest_path(root.join("Cargo.toml"));
    let metadata = command.exec().context("cannot read the workspace")?;
    let members = metadata.workspace_packages();
    let names: Vec<&str> = members.iter().map(|package| package.name.as_str()).collect();
    let arrows: Vec<Arrow> = members.iter().flat_map(|package| arrows(package)).collect();
    let mut violations = check(&names, &arrows);
    let outside = metadata.packages.iter().filter(|package| !names.contains(&package.name.as_str()));
    violations.extend(outside.filter_map(|package| check_licence(&package.name, package.license.as_deref())));
    Ok(violations)
}

fn arrows(package: &Package) -> impl Iterator<Item = Arrow<'_>> {
    let from = package.name.as_str();
    package.dependencies.iter().map(move |to| Arrow { from, to: &to.name, kind: to.kind })
}

/// One sentence per member without a row and per arrow that no row allows.
fn check(members: &[&str], arrows: &[Arrow]) -> Vec<String> {
    let unknown = members.iter().filter(|name| !FREE.contains(name) && allowed(name).is_none());
    let unknown = unknown.map(|name| format!("{name} has no row in the table of layers: add one to xtask"));
    let shipped = arrows.iter().filter(|arrow| arrow.kind != DependencyKind::Development);
    unknown.chain(shipped.filter_map(|arrow| check_arrow(members, arrow))).collect()
}

fn check_arrow(members: &[&str], &Arrow { from, to, .. }: &Arrow) -> Option<String> {
    let reserved = RESERVED.iter().find(|(name, _)| *name == to);
    if let Some((_, users)) = reserved
        && !users.contains(&from)
    {
        return Some(format!("{from} depends on {to}, which is only for {}", users.join(", ")));
    }
    if FREE.contains(&from) || !members.contains(&to) {
        return None;
    }
    let row = allowed(from)?;
    match (row.contains(&to), row.is_empty()) {
        (true, _) => None,
        (false, true) => Some(format!("{from} depends on {to}, but it stands below all others")),
        (false, false) => Some(format!("{from} depends on {to}, but may only depend on {}", row.join(", "))),
    }
}

fn allowed(name: &str) -> Option<&'static [&'static str]> {
    ALLOWED.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, row)| *row)
}

/// A sentence when no alternative of the licence expression is free of the refused ones.
fn check_licence(name: &str, licence: Option<&str>) -> Option<String> {
    let refused = |choice: &str| REFUSED_LICENCES.iter().any(|refused| choice.contains(refused));
    match licence {
        None => Some(format!("{name} does not say its licence")),
        Some(licence) => licence
            .split(" OR ")
            .flat_map(|choices| choices.split('/'))
            .all(refused)
            .then(|| format!("{name} is under {licence}, which is not used here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: &[&str] =
        &["wire", "packet", "engine", "policy", "agent", "backends", "dpdk", "scenarios", "cli"];

    fn found(from: &str, to: &str) -> Vec<String> {
        check(MEMBERS, &[Arrow { from, to, kind: DependencyKind::Normal }])
    }

    #[test]
    fn arrows_the_wrong_way_are_sentences() {
        assert_eq!(found("wire", "packet"), ["wire depends on packet, but it stands below all others"]);
        assert_eq!(found("packet", "engine"), ["packet depends on engine, but may only depend on wire"]);
        for (from, to) in [
            ("policy", "engine"),
            ("agent", "packet"),
            ("agent", "backends"),
            ("engine", "backends"),
            ("engine", "dpdk"),
            ("cli", "engine"),
            ("engine", "scenarios"),
        ] {
            assert_eq!(found(from, to).len(), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn arrows_the_right_way_and_those_of_tests_pass() {
        for (from, to) in
            [("packet", "wire"), ("backends", "dpdk"), ("scenarios", "engine"), ("wire", "zerocopy")]
        {
            assert_eq!(found(from, to), [] as [String; 0], "{from} -> {to}");
        }
        let kind = DependencyKind::Development;
        assert_eq!(check(MEMBERS, &[Arrow { from: "wire", to: "engine", kind }]), [] as [String; 0]);
        let kind = DependencyKind::Build;
        assert_eq!(check(MEMBERS, &[Arrow { from: "wire", to: "engine", kind }]).len(), 1);
    }

    #[test]
    fn runtimes_stay_with_the_agent() {
        assert_eq!(found("agent", "tokio"), [] as [String; 0]);
        assert_eq!(found("cli", "tokio"), ["cli depends on tokio, which is only for agent"]);
        assert_eq!(found("scenarios", "axum").len(), 1);
        assert_eq!(found("wire", "anyhow").len(), 1);
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        assert!(check(&["novel"], &[])[0].starts_with("novel has no row"));
    }

    #[test]
    fn rows_name_crates_that_have_rows_and_there_is_no_way_round() {
        for (position, (name, row)) in ALLOWED.iter().enumerate() {
            for to in *row {
                let lower = ALLOWED.iter().position(|(other, _)| other == to);
                assert!(lower.is_some_and(|lower| lower < position), "{name} -> {to}");
            }
        }
    }

    #[test]
    fn licences() {
        assert_eq!(check_licence("a", Some("MIT OR Apache-2.0")), None);
        assert_eq!(check_licence("a", Some("MIT OR Apache-2.0 OR LGPL-2.1-or-later")), None);
        assert_eq!(check_licence("a", Some("MIT/GPL-2.0")), None);
        for licence in [None, Some("MPL-2.0"), Some("GPL-2.0 OR GPL-3.0"), Some("(MIT AND GPL-2.0)")] {
            assert!(check_licence("a", licence).is_some(), "{licence:?}");
        }
    }
}
