//! The made captures over DPDK: floodwayd with capture devices of DPDK's for ports answers every frame, byte by byte, and
//! counts every drop as memory ports do, whose answers `corpus_tables` compares with the tables. The devices offload no
//! checksum. It needs what `daemon_dpdk` needs.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use backends::pcap::Capture;
use nix::sys::signal::Signal;
use packet::Nanos;
use program::Report;
use scenarios::corpus::{self, Host};
use scenarios::daemon::Daemon;
use scenarios::frames::write_capture;
use scenarios::rig::{Rig, port_mac};

const A: Host = Host { mac: "02:00:00:00:0a:01", addresses: "10.0.1.1, fd00:1::1", prefixes: "" };
const B: Host =
    Host { mac: "02:00:00:00:0b:02", addresses: "10.0.2.2, fd00:2::2", prefixes: "10.0.9.0/24, fd00:9::/64" };
const ALL: &str = "egress: [{action: Accept}], ingress: [{action: Accept}]";
const ONLY_80: &str = "egress: [{action: Accept, services: [{protocol: TCP, port: 80}]}]";
/// Of the first capture device that a process makes.
const UPLINK_MAC: [u8; 6] = [2, b'p', b'c', b'a', b'p', 0];

/// What one run has to show: frames that left the uplink and the port, and drops by reason.
#[derive(PartialEq, Debug)]
struct Seen {
    uplink: Vec<Vec<u8>>,
    port: Vec<Vec<u8>>,
    drops: BTreeMap<String, u64>,
    held: u64,
}

/// A capture, the policy for its addresses, and the port that it comes in by.
struct Case {
    name: &'static str,
    policy: String,
    entry: &'static str,
}

fn cases() -> Vec<Case> {
    let on_port = |name, local, remote, gateway, rules| Case {
        name,
        policy: corpus::policy("192.0.2.1/24", "192.0.2.2", local, remote, gateway, rules),
        entry: "one0",
    };
    let out_of_tunnel = |name, local, remote, gateway, rules| Case {
        name,
        policy: corpus::policy("192.0.2.2/24", "192.0.2.1", local, remote, gateway, rules),
        entry: "uplink0",
    };
    let spoofed = Host { addresses: "10.0.2.2, fd00:1::2", ..B };
    let (tagged, peer) =
        (Host { addresses: "172.16.0.10", ..A }, Host { addresses: "172.16.0.20", prefixes: "", ..B });
    let local = Host { mac: "02:aa:00:00:00:20", addresses: "172.16.0.20", prefixes: "" };
    let remote = Host { mac: "02:aa:00:00:00:10", addresses: "172.16.0.10", prefixes: "" };
    let roce = "ingress: [{action: Accept, services: [{protocol: RoCEv2}]}]";
    let web = "ingress: [{action: Accept, services: [{protocol: TCP, port: 80}]}]";
    let gateway = "10.0.1.254";
    vec![
        on_port("antispoof", A, spoofed, gateway, ALL),
        on_port("roce_opcodes_v4", A, B, gateway, ALL),
        on_port("roce_opcodes_v6", A, B, gateway, ALL),
        on_port("roce_malformed", A, B, gateway, ALL),
        on_port("roce_cnp", A, B, gateway, ALL),
        on_port("roce_ecn_ttl", A, B, gateway, ALL),
        on_port("roce_nak", A, B, gateway, ALL),
        on_port("lengths_padding", A, B, gateway, ALL),
        on_port("vlan_tags", tagged, peer, "172.16.0.1", ALL),
        on_port("ipv6_ext_bypass", A, B, gateway, ONLY_80),
        on_port("ipv4_fragments", A, B, gateway, ONLY_80),
        out_of_tunnel("vxlan_isolation", local, remote, "172.16.0.1", web),
        out_of_tunnel("rfc6040_vxlan_decap", Host { prefixes: "", ..B }, A, "10.0.2.254", roce),
    ]
}

/// The frames as they come in; outer ones are for the uplink, whatever MAC it has.
fn frames(dir: &Path, case: &Case, uplink: [u8; 6]) -> Vec<Vec<u8>> {
    let mut frames = corpus::made(dir, case.name);
    for frame in frames.iter_mut().filter(|frame| frame.get(..6) == Some(&[2, 0, 0, 0, 0xf0, 2])) {
        frame[..6].copy_from_slice(&uplink);
    }
    // A capture device gives no frame of no bytes.
    frames.retain(|frame| !frame.is_empty());
    frames
}

/// On memory ports, one by one.
fn in_memory(case: &Case, frames: &[Vec<u8>]) -> Seen {
    let mut rig = Rig::new(&[&case.policy]);
    rig.settle();
    for frame in frames {
        rig.send(case.entry, frame);
        rig.settle();
    }
    let drops = rig.drops().into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    assert!(rig.take("two0").is_empty() || case.name == "vxlan_isolation");
    let uplink = rig.take("uplink0").into_iter().map(|frame| comparable(frame, port_mac(0).0)).collect();
    Seen { uplink, port: rig.take("one0"), drops, held: rig.held() as u64 }
}

/// Without the uplink's own MAC, and the UDP source port of a tunnel.
fn comparable(mut frame: Vec<u8>, uplink: [u8; 6]) -> Vec<u8> {
    assert_eq!(frame[6..12], uplink);
    frame[6..12].fill(0);
    if frame[12..14] == [8, 0] {
        frame[34..36].fill(0);
    }
    frame
}

fn drops(report: &Report) -> BTreeMap<String, u64> {
    // A tenant's are those of its ports too.
    let ports = report.ports.iter().filter(|port| port.tenant.is_empty()).flat_map(|port| &port.drops);
    let mut sums = BTreeMap::new();
    for drop in ports.chain(report.tenants.iter().flat_map(|tenant| &tenant.drops)) {
        *sums.entry(drop.reason.clone()).or_default() += drop.packets;
    }
    sums.retain(|_, packets| *packets > 0);
    sums
}

/// By the daemon, over capture devices.
fn over_dpdk(floodwayd: &Path, case: &Case, frames: &[Vec<u8>]) -> Seen {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    write_capture(Path::new(&path("in.pcap")), Nanos(0), frames.iter().cloned());
    let mut policy = case.policy.clone();
    for (index, port) in ["uplink0", "one0", "two0"].into_iter().enumerate() {
        let from = if port == case.entry { format!(",rx_pcap={}", path("in.pcap")) } else { String::new() };
        let device = format!("dpdk:net_pcap{index}{from},tx_pcap={}", path(&format!("{port}.pcap")));
        policy = policy.replacen("\"memory:\"", &format!("\"{device}\""), 1);
    }
    fs::create_dir(path("policy")).unwrap();
    fs::write(path("policy/all.yaml"), policy).unwrap();
    let mut command = Command::new(floodwayd);
    command.args(["--policy", &path("policy"), "--socket", &path("sock"), "--memory", "no-huge"]);
    command.args([
        "--file-prefix",
        &format!("floodway-tables-{}", std::process::id()),
        "--idle-sleep-us",
        "200",
    ]);
    let mut daemon = Daemon::start(command, Path::new(&path("sock")), Path::new(&path("log")))
        .unwrap_or_else(|ended| panic!("{}: {}", case.name, ended.log));
    let received = |report: &Report| report.ports.iter().map(|port| port.traffic.rx_packets).sum::<u64>();
    let report = loop {
        let report = daemon.client().report().unwrap();
        if received(&report) >= frames.len() as u64 {
            // Counted once more, when the last burst is judged.
            std::thread::sleep(Duration::from_millis(20));
            break daemon.client().report().unwrap();
        }
    };
    assert_eq!(daemon.end(Signal::SIGTERM).unwrap(), 0);
    let left = |port: &str| -> Vec<Vec<u8>> {
        let capture = Capture::load(Path::new(&path(&format!("{port}.pcap")))).unwrap();
        capture.frames().map(<[u8]>::to_vec).collect()
    };
    let uplink = left("uplink0").into_iter().map(|frame| comparable(frame, UPLINK_MAC)).collect();
    let held = report.workers.iter().map(|worker| worker.held).sum();
    Seen { uplink, port: left("one0"), drops: drops(&report), held }
}

#[test]
fn b083_b084_dpdk_ports_without_offloads_do_what_memory_ports_do() {
    let Some(floodwayd) = scenarios::daemon::over_dpdk() else { return };
    let Some(dir) = corpus::dir() else { return };
    for case in cases() {
        let here = in_memory(&case, &frames(&dir, &case, port_mac(0).0));
        let there = over_dpdk(&floodwayd, &case, &frames(&dir, &case, UPLINK_MAC));
        assert_eq!(there, here, "{}", case.name);
    }
}
