//! floodwayd over DPDK when it cannot start: one sentence with the fix; and with more workers than one. It needs root and a
//! floodwayd with DPDK, in the folder that the environment variable `FLOODWAY_DPDK_PROGRAMS` names; `make test` sets it.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use nix::sys::signal::Signal;
use packet::Nanos;
use program::Report;
use scenarios::{
    daemon::{Daemon, over_dpdk},
    frames::{Ends, write_capture},
    scene::{RED, RED_GATEWAY},
};
use tempfile::TempDir;

/// So that hugepages, or their lack, change nothing.
const ORDINARY_PAGES: &[&str] = &["--memory", "no-huge"];

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
    let Some(floodwayd) = over_dpdk() else { return };
    let policy = policy("dpdk:net_af_packet0,iface=fw-no-such", "dpdk:net_null0");
    let said = sentence(&[], &floodwayd, &policy, ORDINARY_PAGES);
    assert!(said.contains(r#"port "uplink0""#) && said.contains("fw-no-such"), "{said}");
}

#[test]
fn a_driver_that_does_not_exist() {
    let Some(floodwayd) = over_dpdk() else { return };
    let policy = policy("dpdk:net_nonsense0", "dpdk:net_null0");
    let said = sentence(&[], &floodwayd, &policy, ORDINARY_PAGES);
    assert!(said.contains(r#"port "uplink0""#) && said.contains("net_nonsense0"), "{said}");
}

#[test]
fn hugetlbfs_that_is_not_mounted() {
    let Some(floodwayd) = over_dpdk() else { return };
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
    let Some(floodwayd) = over_dpdk() else { return };
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
    let Some(floodwayd) = over_dpdk() else { return };
    let policy = policy("dpdk:net_tap0,iface=fw-test-perm", "dpdk:net_null0");
    fs::set_permissions(policy.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // Where nobody may read it.
    let copy = policy.path().join("floodwayd");
    fs::copy(&floodwayd, &copy).unwrap();
    let before = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let said = sentence(&before, &copy, &policy, ORDINARY_PAGES);
    assert!(said.contains("fw-test-perm") && said.contains("needs root"), "{said}");
}

/// Red's port replays a capture without end. It has one queue, and so one worker receives; the fabric's port has a queue
/// for each.
const SEVERAL: &str = r#"apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: test}
spec:
  ports:
    - {name: uplink0, device: "dpdk:net_null0,no-rx=1", mtu: 1600}
    - {name: red0, device: "dpdk:net_pcap0,rx_pcap=CAPTURE,infinite_rx=1"}
  uplink: {port: uplink0, addresses: [192.0.2.1/24]}
  vteps:
    - {name: other, address: 192.0.2.3, mac: "02:ee:00:00:00:03"}
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 100
  gateway: {addresses: [10.1.0.1]}
  ports:
    - {port: red0, mac: "02:00:00:00:0a:10", addresses: [10.1.0.10]}
  remotes:
    - {name: far, vtep: other, mac: "02:00:00:00:0a:30", addresses: [10.1.0.30], prefixes: [10.9.0.0/16]}
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: open}
spec:
  tenant: red
  egress: [{action: Accept, services: [{protocol: UDP, port: 5201}]}]
"#;

/// Frames to as many hosts, one in four of which no rule allows.
fn to_many_hosts() -> impl Iterator<Item = Vec<u8>> {
    (0..=255).map(|host| {
        let ends = Ends { dst: [10, 9, 0, host], dst_mac: RED_GATEWAY, ..RED };
        ends.udp((7, if host % 4 == 3 { 53 } else { 5201 }), b"capture")
    })
}

/// Received, and what became of it.
fn balance(report: &Report) -> (u64, u64) {
    let received: u64 = report.ports.iter().map(|port| port.traffic.rx_packets).sum();
    let originated: u64 = report.ports.iter().map(|port| port.originated).sum();
    let sent: u64 = report.ports.iter().map(|port| port.traffic.tx_packets).sum();
    let dropped = report.ports.iter().flat_map(|port| &port.drops);
    let dropped: u64 = dropped.map(|drop| drop.packets).sum();
    (received + originated, sent + dropped)
}

#[test]
fn four_workers_on_fewer_cpus_share_what_one_receives() {
    let Some(floodwayd) = over_dpdk() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_capture(&path("frames.pcap"), Nanos(0), to_many_hosts());
    fs::create_dir(path("policy")).unwrap();
    let text = SEVERAL.replace("CAPTURE", path("frames.pcap").to_str().unwrap());
    fs::write(path("policy/all.yaml"), text).unwrap();
    let mut command = Command::new(floodwayd);
    command.arg("--policy").arg(path("policy")).arg("--socket").arg(path("sock"));
    command.args(["--workers", "4", "--lcores", "0,1", "--idle-sleep-us", "200", "--flows", "1024"]);
    command.args(ORDINARY_PAGES);
    let mut daemon = Daemon::start(command, &path("sock"), &path("log")).unwrap();
    let report = loop {
        let report = daemon.client().report().unwrap();
        if report.workers.iter().all(|worker| worker.hits > 1_000) {
            break report;
        }
    };
    assert_eq!(report.workers.len(), 4);
    // All that comes is received by the second worker; none has what another has handed over.
    for worker in &report.workers {
        let receives = worker.worker == 1;
        assert_eq!((worker.handed_over > 0, worker.taken_over > 0), (receives, !receives), "{report:?}");
        assert!(worker.flows > 0 || worker.misses > 0, "{report:?}");
    }
    let status = daemon.client().apply(&apply(&path("policy/all.yaml"), "port: 53")).unwrap();
    assert_eq!(status.generation, 2, "all four run it");
    assert_eq!(daemon.end(Signal::SIGTERM).unwrap(), 0);
    let log = fs::read_to_string(path("log")).unwrap();
    assert!(log.contains("every packet is accounted for"), "{log}");
    assert!(log.contains("worker 3 polls"), "{log}");
    let (came, went) = balance(&report);
    // Figures of one report are a moment apart.
    assert!(came > 4_000 && went > 4_000, "{came} {went}");
}

/// The same files with another port allowed.
fn apply(file: &Path, port: &str) -> agent::api::ApplyRequest {
    let text = fs::read_to_string(file).unwrap().replace("port: 5201", port);
    let sources = vec![agent::api::SourceText { name: "all.yaml".into(), text }];
    agent::api::ApplyRequest { sources, expect_generation: None, confirm_s: None, unproven: false }
}
