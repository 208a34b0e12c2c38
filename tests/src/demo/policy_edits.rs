//! Policy directories made from the demo's own: one with a rule more, one with errors.

use std::fs;
use std::path::{Path, PathBuf};

use super::world::Outcome;

/// Lines put in front of a tenant's egress rules.
const DENY_PING: &str = "    - action: Deny\n      services:\n        - {protocol: ICMP}\n";

/// An edited directory and what is to be known of it.
pub struct Edited {
    /// Where it is.
    pub directory: PathBuf,
    /// `file:line` of the rule that was added.
    pub origin: String,
}

/// A copy in which tenant red may no longer ping.
pub fn deny_ping(policy: &Path, directory: PathBuf) -> Outcome<Edited> {
    copy(policy, &directory)?;
    let file = directory.join("red.yaml");
    let line = edit(&file, "  egress:\n", &format!("  egress:\n{DENY_PING}"))?.0 + 1;
    Ok(Edited { origin: format!("{}:{line}", file.display()), directory })
}

/// A copy with an error in each file, and where diagnostics have to name them.
pub fn with_errors(policy: &Path, directory: PathBuf) -> Outcome<(PathBuf, Vec<String>)> {
    copy(policy, &directory)?;
    let mut places = Vec::new();
    for (file, from, to, wrong) in [
        ("red.yaml", "{protocol: TCP, port: 5201}", "{protocol: TPC, port: 5201}", "TPC"),
        ("blue.yaml", "vni: 200", "vni: 16777216", "16777216"),
        ("fabric.yaml", "mtu: 1600", "mut: 1600", "mut"),
    ] {
        let path = directory.join(file);
        let (line, text) = edit(&path, from, to)?;
        let column = text.find(wrong).map_or(0, |byte| byte + 1);
        places.push(format!("{}:{line}:{column}", path.display()));
    }
    Ok((directory, places))
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    let failed = |error| format!("cannot copy {} to {}: {error}", from.display(), to.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        fs::copy(entry.path(), to.join(entry.file_name())).map_err(failed)?;
    }
    Ok(())
}

/// Replaces the first `from`; returns the number of its line, from 1, and the line as it is now.
fn edit(file: &Path, from: &str, to: &str) -> Outcome<(usize, String)> {
    let failed = |error| format!("cannot edit {}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(failed)?;
    let start = text.find(from).ok_or_else(|| format!("{} has no {from:?}", file.display()))?;
    let text = text.replacen(from, to, 1);
    let line = text[..start].matches('\n').count() + 1;
    fs::write(file, &text).map_err(failed)?;
    Ok((line, text.lines().nth(line - 1).unwrap_or_default().to_owned()))
}
