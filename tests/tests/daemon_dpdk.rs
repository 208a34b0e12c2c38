//! floodwayd over DPDK when it cannot start: one sentence with the fix. It needs root and a floodwayd with DPDK, in the
//! folder that the environment variable `FLOODWAY_DPDK_PROGRAMS` names; `make test` sets it.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// So that hugepages, or their lack, change nothing.
const ORDINARY_PAGES: &[&str] = &["--memory", "no-huge"];

/// The floodwayd under test, or `None` and a printed reason.
fn floodwayd() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("FLOODWAY_DPDK_PROGRAMS") else {
        println!("skipped: FLOODWAY_DPDK_PROGRAMS names no folder with a floodwayd over DPDK");
        return None;
    };
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: not root");
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    Some(fs::canonicalize(folder.join("floodwayd")).unwrap())
}

/// A policy over two devices, in a folder that everybody may read.
fn policy(uplink: &str, port: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        r#"apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {{name: test}}
spec:
  ports:
    - {{name: uplink0, device: "{uplink}"}}
    - {{name: red0, device: "{port}"}}
  uplink: {{port: uplink0, addresses: [192.0.2.1/24]}}
"#
    );
    fs::write(folder.path().join("fabric.yaml"), text).unwrap();
    folder
}

/// The sentence of a daemon that has to end by itself; `before` is what runs it.
fn sentence(before: &[&str], floodwayd: &Path, policy: &TempDir, arguments: &[&str]) -> String {
    let socket = policy.path().join("sock");
    let mut words: Vec<&str> = before.to_vec();
    // It must end by itself; the bound is for the case that it does not.
    words.extend(["timeout", "60", floodwayd.to_str().unwrap()]);
    words.extend(["--policy", policy.path().to_str().unwrap(), "--socket", socket.to_str().unwrap()]);
    words.extend(arguments);
    let Output { status, stderr, .. } = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let log = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(1), "{log}");
    let said: Vec<&str> = log.lines().filter(|line| line.starts_with("floodwayd: ")).collect();
    assert_eq!(said.len(), 1, "one sentence in:\n{log}");
    assert!(!socket.exists(), "the socket is left");
    println!("{}", said[0]);
    said[0].to_owned()
}

#[test]
fn a_kernel_interface_that_does_not_exist() {
    let Some(floodwayd) = floodwayd() else { return };
    let policy = policy("dpdk:net_af_packet0,iface=fw-no-such", "dpdk:net_null0");
    let said = sentence(&[], &floodwayd, &policy, ORDINARY_PAGES);
    assert!(said.contains(r#"port "uplink0""#) && said.contains("fw-no-such"), "{said}");
}

#[test]
fn a_driver_that_does_not_exist() {
    let Some(floodwayd) = floodwayd() else { return };
    let policy = policy("dpdk:net_nonsense0", "dpdk:net_null0");
    let said = sentence(&[], &floodwayd, &policy, ORDINARY_PAGES);
    assert!(said.contains(r#"port "uplink0""#) && said.contains("net_nonsense0"), "{said}");
}

#[test]
fn hugetlbfs_that_is_not_mounted() {
    let Some(floodwayd) = floodwayd() else { return };
    // In a mount namespace of its own, so that nobody else misses them.
    let unmounted = "awk '$3 == \"hugetlbfs\" {print $2}' /proc/mounts | xargs -r umount && exec \"$@\"";
    let before = ["unshare", "--mount", "sh", "-c", unmounted, "sh"];
    let prefix = format!("floodway-test-{}", std::process::id());
    let arguments = ["--memory", "hugetlbfs", "--file-prefix", &prefix];
    let said = sentence(&before, &floodwayd, &policy("dpdk:net_null0", "dpdk:net_null1"), &arguments);
    let _ = fs::remove_dir_all(Path::new("/run/dpdk").join(&prefix));
    assert!(
        said.contains("hugepages") && (said.contains("mount -t hugetlbfs") || said.contains("nr_hugepages")),
        "{said}"
    );
}

#[test]
fn no_hugepages() {
    let Some(floodwayd) = floodwayd() else { return };
    let policy = policy("dpdk:net_null0", "dpdk:net_null1");
    // The kernel's figures, as they are without any; seen by this daemon only.
    let figures = policy.path().join("hugepages/hugepages-2048kB");
    fs::create_dir_all(&figures).unwrap();
    for figure in ["nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages"] {
        fs::write(figures.join(figure), "0\n").unwrap();
    }
    let hidden = format!(
        "mount --bind {} /sys/kernel/mm/hugepages && exec \"$@\"",
        figures.parent().unwrap().display()
    );
    let said = sentence(&["unshare", "--mount", "sh", "-c", &hidden, "sh"], &floodwayd, &policy, &[]);
    assert!(
        said.contains("no hugepages: reserve some with `echo 512 > /proc/sys/vm/nr_hugepages`"),
        "{said}"
    );
}

#[test]
fn no_permission() {
    let Some(floodwayd) = floodwayd() else { return };
    let policy = policy("dpdk:net_tap0,iface=fw-test-perm", "dpdk:net_null0");
    fs::set_permissions(policy.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // Where nobody may read it.
    let copy = policy.path().join("floodwayd");
    fs::copy(&floodwayd, &copy).unwrap();
    let before = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let said = sentence(&before, &copy, &policy, ORDINARY_PAGES);
    assert!(said.contains("fw-test-perm") && said.contains("needs root"), "{said}");
}
