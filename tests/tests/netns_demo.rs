//! The demo itself: in memory on any machine, and in network namespaces where `FLOODWAY_DPDK_PROGRAMS` names a folder with
//! programs over DPDK (`make test` sets it).

use std::path::{Path, PathBuf};
use std::process::Command;

use scenarios::daemon::programs;

fn show(demo: &Path, world: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output =
        Command::new(demo).args(["--world", world]).current_dir(root).output().expect("the demo runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success(), "{}", output.status);
    assert!(text.contains(" expectations hold"));
}

#[test]
fn in_memory_all_expectations_hold() {
    programs();
    show(Path::new(env!("CARGO_BIN_EXE_demo")), "memory");
}

#[test]
fn in_namespaces_all_expectations_hold() {
    let Some(folder) = std::env::var_os("FLOODWAY_DPDK_PROGRAMS") else {
        return println!("skipped: FLOODWAY_DPDK_PROGRAMS names no folder with programs over DPDK");
    };
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: not root");
    }
    show(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("demo"), "namespaces");
}

#[test]
fn wrong_usage_is_told() {
    let demo = Command::new(env!("CARGO_BIN_EXE_demo")).arg("--wrold").output().expect("the demo runs");
    assert_eq!(demo.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&demo.stderr).starts_with("usage: demo"));
}
