//! The captures beside the checkout: `shared/corpus`, or where FLOODWAY_CORPUS points; and policies for their addresses.

use std::path::{Path, PathBuf};

use backends::pcap::{Capture, PcapError};

/// The corpus, or `None` with a printed reason to skip.
pub fn dir() -> Option<PathBuf> {
    let found = match std::env::var_os("FLOODWAY_CORPUS") {
        Some(path) => Some(PathBuf::from(path)),
        None => {
            let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
            above.map(|above| above.join("shared/corpus")).find(|path| path.is_dir())
        }
    };
    if found.is_none() {
        println!("skipped: no shared/corpus beside the checkout, and FLOODWAY_CORPUS is not set");
    }
    found
}

/// The frames of `pcap_made/{name}.pcap`; frame n of its table is at n - 1.
///
/// # Panics
/// When it cannot be read.
pub fn made(dir: &Path, name: &str) -> Vec<Vec<u8>> {
    frames(&dir.join("pcap_made").join(name).with_extension("pcap")).expect("a readable capture")
}

/// The frames of `pcap/{name}.pcap`; frame n is at n - 1.
///
/// # Panics
/// When it cannot be read.
pub fn captured(dir: &Path, name: &str) -> Vec<Vec<u8>> {
    frames(&dir.join("pcap").join(name).with_extension("pcap")).expect("a readable capture")
}

/// What the table beside a made capture expects of each frame, in its words; frame n at n - 1.
///
/// # Panics
/// When it cannot be read, or has no such column.
pub fn expectations(dir: &Path, name: &str) -> Vec<String> {
    let path = dir.join("pcap_made").join(name).with_extension("expect.tsv");
    let table = std::fs::read_to_string(path).expect("a readable table");
    let expected = |line: &str| line.split('\t').nth(3).expect("a fourth column").to_owned();
    table.lines().skip(1).map(expected).collect()
}

/// Whether a frame passes, as those words have it; `None` where they leave it to rules, or speak of something else.
pub fn passes(expected: &str) -> Option<bool> {
    let words = expected.to_lowercase();
    let begins = |with: &[&str]| with.iter().any(|start| words.starts_with(start));
    if words.contains("never pass") {
        return Some(false);
    }
    if words.contains(" or ") || words.contains("by rule") {
        return None;
    }
    if begins(&["drop", "deny", "malformed", "not decapsulated"]) {
        return Some(false);
    }
    begins(&["pass", "allow", "deliver", "related", "native", "as untagged", "ok"]).then_some(true)
}

/// The frames of every capture that is Ethernet and whole, with the captures' names.
///
/// # Panics
/// When a folder cannot be read, or most captures cannot.
pub fn every_capture(dir: &Path) -> Vec<(String, Vec<Vec<u8>>)> {
    let folders = ["pcap", "pcap_made"].map(|folder| dir.join(folder));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a corpus folder"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a corpus file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "pcap" || ext == "pcapng"));
    paths.sort();
    let mut all = Vec::new();
    for path in &paths {
        match frames(path) {
            Ok(frames) => all.push((path.file_name().unwrap_or_default().to_string_lossy().into(), frames)),
            Err(error) => println!("left out: {error}"),
        }
    }
    assert!(all.len() * 10 > paths.len() * 7, "{} of {} captures", all.len(), paths.len());
    all
}

fn frames(path: &Path) -> Result<Vec<Vec<u8>>, PcapError> {
    Ok(Capture::load(path)?.frames().map(<[u8]>::to_vec).collect())
}

/// A host of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Its MAC.
    pub mac: &'a str,
    /// Its addresses, comma-separated.
    pub addresses: &'a str,
    /// Prefixes behind it, comma-separated; only of a remote host.
    pub prefixes: &'a str,
}

/// Two tenants, `one` (VNI 100, port `one0`) and `two` (VNI 200, port `two0`), with the same hosts: `local` on the port,
/// `remote` behind the endpoint `fabric` of that address. `rules` is the body of a policy for both.
pub fn policy(uplink: &str, vtep: &str, local: Host, remote: Host, gateway: &str, rules: &str) -> String {
    let mut text = format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: Fabric\nmetadata: {{name: rig}}\nspec:\n  ports:\n    \
         - {{name: uplink0, device: \"memory:\", mtu: 1600}}\n    - {{name: one0, device: \"memory:\"}}\n    \
         - {{name: two0, device: \"memory:\"}}\n  \
         uplink: {{port: uplink0, addresses: [{uplink}]}}\n  \
         vteps: [{{name: fabric, address: \"{vtep}\", mac: \"02:00:00:00:f0:01\"}}]\n"
    );
    for (name, vni) in [("one", 100), ("two", 200)] {
        text.push_str(&format!(
            "---\napiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: {name}}}\nspec:\n  \
             vni: {vni}\n  gateway: {{addresses: [{gateway}]}}\n  \
             ports: [{{port: {name}0, mac: \"{}\", addresses: [{}]}}]\n  \
             remotes: [{{vtep: fabric, mac: \"{}\", addresses: [{}], prefixes: [{}]}}]\n---\n\
             apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: rules}}\n\
             spec: {{tenant: {name}, {rules}}}\n",
            local.mac,
            quoted_list(local.addresses),
            remote.mac,
            quoted_list(remote.addresses),
            quoted_list(remote.prefixes),
        ));
    }
    text
}

fn quoted_list(list: &str) -> String {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join(", ")
}
