//! The shape of the sources: sizes, names, headers, where unsafe code may be, and what manifests may say.

mod functions;
mod manifests;
mod text;
mod unsafe_code;

use std::{path::Path, process::Command};

use anyhow::{Context, Result, ensure};

/// A tracked file that is text; its path is relative to the workspace, with `/`.
pub struct Source {
    path: String,
    text: String,
}

/// Checks all tracked files of the checkout at `root`.
pub fn run(root: &Path) -> Result<Vec<String>> {
    Ok(check(&tracked(root)?))
}

/// All checks, in a fixed order.
fn check(sources: &[Source]) -> Vec<String> {
    let rust = || sources.iter().filter(|source| source.path.ends_with(".rs"));
    let manifests = sources.iter().filter(|source| manifests::is_member(&source.path));
    let mut violations = text::sizes(rust());
    violations.extend(rust().flat_map(text::check));
    violations.extend(rust().flat_map(functions::check));
    violations.extend(rust().flat_map(unsafe_code::check));
    violations.extend(manifests.flat_map(manifests::check));
    violations.extend(sources.iter().flat_map(text::machine_paths));
    violations
}

/// The files that git tracks or would add; those that are not UTF-8 are data, not sources.
fn tracked(root: &Path) -> Result<Vec<Source>> {
    let mut command = Command::new("git");
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = command.output().context("cannot run git")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim());
    let paths = String::from_utf8(listed.stdout).context("a file name is not UTF-8")?;
    let read = |path: &str| {
        // A file that was deleted and not yet committed is still listed.
        let text = std::fs::read_to_string(root.join(path)).ok()?;
        Some(Source { path: path.into(), text })
    };
    Ok(paths.split_terminator('\0').filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn each_check_is_made_and_clean_sources_pass() {
        assert_eq!(check(&[source("a/src/lib.rs", "//! A.\n\nfn f() {}\n")]), [] as [String; 0]);
        let bad = [
            source("a/src/util.rs", "fn f() {} \n"),
            source("a/src/wrong.rs", "//! A.\nfn {\n"),
            source("a/src/danger.rs", "//! A.\nunsafe fn f() {}\n"),
            source("a/Cargo.toml", "[package]\n"),
            source("notes.md", concat!("see /", "root/x\n")),
        ];
        let found = check(&bad).join("\n");
        for part in
            ["`util`", "ends in white space", "`//!`", "does not parse", "unsafe", "[lints]", "machine"]
        {
            assert!(found.contains(part), "{part} in:\n{found}");
        }
    }

    #[test]
    fn this_checkout_is_read() {
        let root = crate::root().unwrap();
        if !root.join(".git").exists() {
            return println!("skipped: not a git checkout");
        }
        let sources = tracked(&root).unwrap();
        assert!(sources.iter().any(|source| source.path == "xtask/src/tidy/mod.rs"));
    }
}
