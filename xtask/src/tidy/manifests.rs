//! Versions and lints are said once, in the workspace's manifest.

use super::Source;

/// True for the manifest of a crate in the workspace; `fuzz` is a workspace of its own, as cargo-fuzz wants it.
pub fn is_member(path: &str) -> bool {
    path.ends_with("/Cargo.toml") && !path.starts_with("fuzz/")
}

/// One crate's manifest, line by line: a table or an inline table per dependency, none over many lines.
pub fn check(Source { path, text }: &Source) -> Vec<String> {
    let mut violations = Vec::new();
    let (mut section, mut lints) = ("", false);
    for (line, number) in text.lines().zip(1..) {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let Some((key, value)) = line.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
            continue;
        };
        lints |= (section, key, value) == ("lints", "workspace", "true");
        lints |= (section, key, value) == ("", "lints.workspace", "true");
        if let Some(problem) = dependency_problem(section, key, value) {
            violations.push(format!("{path}:{number}: {key} {problem}"));
        }
    }
    if !lints {
        violations.push(format!("{path}: write `workspace = true` under [lints]"));
    }
    violations
}

/// What is wrong with one line of a table of dependencies.
fn dependency_problem(section: &str, key: &str, value: &str) -> Option<&'static str> {
    let table = section.rsplit('.').next().unwrap_or_default();
    if table.ends_with("dependencies") {
        let inherits = (key.ends_with(".workspace") && value == "true")
            || value.replace(' ', "").contains("workspace=true")
            || key.contains(".features")
            || key.ends_with(".optional");
        return (!inherits).then_some("takes its version from the workspace: write `workspace = true`");
    }
    // [dependencies.name]
    let named = section.rsplit_once('.').is_some_and(|(before, _)| before.ends_with("dependencies"));
    (named && ["version", "path", "git"].contains(&key))
        .then_some("belongs into the workspace's [workspace.dependencies]")
        .or((section == "package" && key == "version")
            .then_some("belongs into the workspace: write `version.workspace = true`"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    const GOOD: &str = "\
[package]
name = \"a\"
version.workspace = true

[lints]
workspace = true

[dependencies]
b.workspace = true
c = { workspace = true, optional = true } # why
# d = \"1\"

[target.\"cfg(loom)\".dependencies]
loom.workspace = true

[dependencies.e]
workspace = true
features = [\"x\"]

[features]
dpdk = [\"dep:c\"]
";

    fn found(text: &str) -> Vec<String> {
        check(&source("a/Cargo.toml", text))
    }

    #[test]
    fn what_inherits_passes() {
        assert_eq!(found(GOOD), [] as [String; 0]);
    }

    #[test]
    fn versions_and_paths_of_its_own_do_not() {
        for (from, to) in [
            ("b.workspace = true", "b = \"1\""),
            ("b.workspace = true", "b = { path = \"../b\" }"),
            ("b.workspace = true", "b = { version = \"1\", features = [] }"),
            ("loom.workspace = true", "loom = \"0.7\""),
            ("features = [\"x\"]", "version = \"1\""),
            ("version.workspace = true", "version = \"0.1.0\""),
            ("[lints]\nworkspace = true\n", ""),
            ("[lints]\nworkspace = true\n", "[lints.rust]\nunsafe_code = \"deny\"\n"),
        ] {
            assert!(GOOD.contains(from));
            assert_eq!(found(&GOOD.replacen(from, to, 1)).len(), 1, "{to}");
        }
        assert!(
            found(&GOOD.replace("b.workspace = true", "b = \"1\""))[0].starts_with("a/Cargo.toml:9: b takes")
        );
    }

    #[test]
    fn the_workspace_itself_and_fuzz_are_no_members() {
        assert!(is_member("xtask/Cargo.toml") && is_member("a/b/Cargo.toml"));
        assert!(!is_member("Cargo.toml") && !is_member("fuzz/Cargo.toml"));
    }
}
