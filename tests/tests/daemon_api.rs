//! The built floodway against the built floodwayd: what it applies, refuses and shows. The packets come from a capture file,
//! and go to others.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::{fs, path::PathBuf, process::Command, time::Duration};

use agent::api::{Drop, Flows, ProgramSummary, Rules};
use backends::pcap::Capture;
use nix::sys::signal::Signal;
use packet::Nanos;
use program::{NeighbourReport, PortReport, Report, TenantReport, WorkerReport};
use scenarios::{
    daemon::{Daemon, programs},
    frames::{untunnel, write_capture},
    policies::{ONE_TENANT, one_tenant_fabric},
    scene::RED,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

const PINGS: usize = 4;
const SYNS: usize = 3;
const UNDECLARED: usize = 2;
const PACKETS: usize = PINGS + SYNS + UNDECLARED;

struct Bench {
    folder: TempDir,
    daemon: Daemon,
}

/// What `floodway` said.
struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Bench {
    /// A daemon whose tenant port has received all packets of the capture.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let pings = (0..PINGS).map(|n| RED.ping(7, n as u16, 64));
        let denied = (0..SYNS).map(|_| RED.tcp((40_000, 9999), "S", &[]));
        let undeclared = (0..UNDECLARED).map(|_| RED.udp((40_000, 53), b"?"));
        let at_once = Nanos::from_secs(1);
        write_capture(&at("red.pcap"), at_once, pings.chain(denied).chain(undeclared));
        write_capture(&at("nothing.pcap"), at_once, []);
        fs::create_dir(at("policy")).unwrap();
        let device = |rx: &str, tx: &str| format!("pcap:rx={},tx={}", at(rx).display(), at(tx).display());
        let fabric = one_tenant_fabric(&device("nothing.pcap", "uplink.out"), &device("red.pcap", "red.out"));
        fs::write(at("policy/fabric.yaml"), fabric).unwrap();
        fs::write(at("policy/red.yaml"), tenant()).unwrap();
        let mut command = Command::new(programs().join("floodwayd"));
        command.arg("--policy").arg(at("policy")).arg("--socket").arg(at("sock"));
        command.args(["--idle-sleep-us", "200", "--flows", "1024", "--buffers", "1024"]);
        let daemon = Daemon::start(command, &at("sock"), &at("log")).unwrap();
        let bench = Self { folder, daemon };
        bench.wait_for_packets();
        bench
    }

    fn wait_for_packets(&self) {
        let received = || self.daemon.client().report().unwrap().ports[1].traffic.rx_packets;
        let start = std::time::Instant::now();
        while received() < PACKETS as u64 {
            assert!(start.elapsed() < Duration::from_secs(30), "{} packets came", received());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn floodway(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(programs().join("floodway"));
        let output = command.arg("--socket").arg(self.daemon.socket()).args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    fn show(&self, what: &str) -> String {
        let said = self.floodway(&["show", what]);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "show {what}");
        said.stdout
    }

    fn show_json<T: DeserializeOwned>(&self, what: &str) -> T {
        let said = self.floodway(&["show", what, "--output", "json"]);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "show {what}");
        serde_json::from_str(&said.stdout)
            .unwrap_or_else(|error| panic!("show {what}: {error}: {}", said.stdout))
    }

    fn generation(&self) -> u32 {
        self.daemon.client().report().unwrap().generation
    }
}

/// The tenant's file.
fn tenant() -> String {
    format!("{ONE_TENANT}{RULES}")
}

const RULES: &str = r#"apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: red-egress}
spec:
  tenant: red
  egress:
    - action: Deny
      services: [{protocol: TCP, port: 9999}]
    - action: Accept
      services: [{protocol: ICMP}]
"#;
/// Lines of the rules, behind the tenant's.
const DENY_LINE: u32 = 15;
const ACCEPT_LINE: u32 = 17;

#[test]
fn every_kind_is_shown_as_json_and_as_a_table() {
    let bench = Bench::start();
    let status: Value = bench.show_json("status");
    let report: Report = serde_json::from_value(status["report"].clone()).unwrap();
    let program: ProgramSummary = serde_json::from_value(status["program"].clone()).unwrap();
    assert_eq!((report.generation, program.generation, report.workers.len()), (1, 1, 1));
    let tenants: Vec<TenantReport> = bench.show_json("tenants");
    assert_eq!((tenants[0].name.as_str(), tenants[0].fabric.tx_packets), ("red", PINGS as u64));
    let ports: Vec<PortReport> = bench.show_json("ports");
    assert_eq!((ports[1].tenant.as_str(), ports[1].traffic.rx_packets), ("red", PACKETS as u64));
    assert_eq!(ports[0].traffic.tx_packets, PINGS as u64);
    let workers: Vec<WorkerReport> = bench.show_json("workers");
    assert!(workers[0].generation == 1 && workers[0].polls > 0);
    let neighbours: Vec<NeighbourReport> = bench.show_json("neighbours");
    assert_eq!(neighbours[0].mac, "02:00:00:00:0f:02");
    let drops: Vec<Drop> = bench.show_json("drops");
    let of = |reason: &str| drops.iter().find(|drop| drop.reason == reason).map_or(0, |drop| drop.packets);
    assert_eq!((of("policy-deny"), of("policy-default")), (SYNS as u64, UNDECLARED as u64));
    for (what, parts) in [
        ("status", &["generation"][..]),
        ("tenants", &["red", "100"]),
        ("ports", &["uplink0", "red0", "pcap:"]),
        ("drops", &["policy-deny", "policy-default", "red"]),
        ("flows", &["tcp 40000 > 9999", "policy-deny", "red.yaml:15"]),
        ("rules", &["tcp/9999", "icmp", "red.yaml:17"]),
        ("neighbours", &["192.0.2.2", "02:00:00:00:0f:02"]),
        ("workers", &["0"]),
    ] {
        let table = bench.show(what);
        for part in parts {
            assert!(table.contains(part), "{part} in show {what}:\n{table}");
        }
    }
}

#[test]
fn flows_and_rules_name_file_and_line() {
    let bench = Bench::start();
    let file = bench.path("policy/red.yaml");
    let origin = |line: u32| format!("{}:{line}", file.display());
    let flows: Flows = bench.show_json("flows");
    let flow = |service: &str| {
        let found = flows.flows.iter().find(|flow| flow.service.contains(service));
        let flow = found.unwrap_or_else(|| panic!("{service} in {:?}", flows.flows));
        (flow.verdict.clone(), flow.rule.clone(), flow.packets)
    };
    assert_eq!(flow("9999"), ("policy-deny".into(), origin(DENY_LINE), SYNS as u64));
    assert_eq!(flow("icmp type 8"), ("accept".into(), origin(ACCEPT_LINE), PINGS as u64));
    assert_eq!(flow("53"), ("policy-default".into(), String::new(), UNDECLARED as u64));
    let rules: Rules = bench.show_json("rules");
    let rules: Vec<_> = rules.rules.iter().map(|rule| (rule.verdict.as_str(), rule.origin.clone())).collect();
    assert_eq!(rules, [("deny", origin(DENY_LINE)), ("accept", origin(ACCEPT_LINE))]);
}

#[test]
fn a_directory_is_applied_left_as_it_is_or_refused_whole() {
    let bench = Bench::start();
    let policy = bench.path("policy");
    let policy = policy.to_str().unwrap();
    let file = bench.path("policy/red.yaml");
    let apply = || bench.floodway(&["apply", policy]);
    let said = apply();
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(said.stdout.starts_with("unchanged: generation 1 "), "{}", said.stdout);

    fs::write(&file, tenant().replace("port: 9999", "port: 9998")).unwrap();
    let said = apply();
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(said.stdout.starts_with("applied: generation 2 "), "{}", said.stdout);
    let report = bench.daemon.client().report().unwrap();
    assert!(report.workers.iter().all(|worker| worker.generation == 2));

    fs::write(&file, tenant().replace("TCP", "TPC").replace("vni", "vxi").replace("Accept", "Acept"))
        .unwrap();
    let said = apply();
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    for place in ["5:3: error", "16:29: error", "17:15: error"] {
        assert!(said.stderr.contains(&format!("{}:{place}", file.display())), "{place} in:\n{}", said.stderr);
    }
    assert_eq!(bench.generation(), 2);
    let said = bench.floodway(&["apply", policy, "--output", "json"]);
    let refused: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, said.stderr.as_str()), (1, ""));
    assert!(refused["diagnostics"]["list"].as_array().unwrap().len() >= 3);

    fs::write(&file, tenant()).unwrap();
    let said = bench.floodway(&["apply", policy, "--expect-generation", "1"]);
    assert_eq!((said.code, bench.generation()), (3, 2), "{}", said.stderr);
    let said = bench.floodway(&["apply", policy, "--expect-generation", "2"]);
    assert_eq!((said.code, bench.generation()), (0, 3), "{}", said.stderr);
}

#[test]
fn devices_stay_what_they_were() {
    let bench = Bench::start();
    let file = bench.path("policy/fabric.yaml");
    let text = fs::read_to_string(&file).unwrap().replace("mtu: 1500", "mtu: 1400");
    fs::write(&file, text).unwrap();
    let policy = bench.path("policy");
    let said = bench.floodway(&["apply", policy.to_str().unwrap()]);
    assert_eq!((said.code, bench.generation()), (1, 1), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains("fabric.yaml:"), "{}", said.stderr);
}

#[test]
fn the_program_is_told_and_what_left_is_in_the_capture() {
    let mut bench = Bench::start();
    let program: ProgramSummary = bench.daemon.client().program().unwrap();
    assert_eq!(program.uplink.as_deref(), Some("uplink0"));
    assert_eq!(program.sources.len(), 2);
    assert_eq!(bench.daemon.end(Signal::SIGTERM), Ok(0));
    let capture = Capture::load(&bench.path("uplink.out")).unwrap();
    let inner: Vec<Vec<u8>> = capture.frames().map(|frame| untunnel(frame).inner).collect();
    let pings: Vec<Vec<u8>> = (0..PINGS).map(|n| RED.ping(7, n as u16, 64)).collect();
    assert_eq!(inner, pings);
    let said = bench.floodway(&["show", "status"]);
    assert_eq!(said.code, 3);
    assert!(said.stderr.contains("no floodwayd answers on"), "{}", said.stderr);
}
