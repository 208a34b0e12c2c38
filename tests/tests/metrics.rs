//! Metrics of a running floodwayd: over TCP, by `floodway show metrics`, and as a real Prometheus understands them. Its tests
//! run where Debian's package `prometheus` is installed.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use packet::Nanos;
use scenarios::{
    daemon::{Daemon, programs},
    frames::write_capture,
    policies::{ONE_TENANT, one_tenant_fabric},
    scene::RED,
};
use serde_json::Value;
use tempfile::TempDir;

const PINGS: usize = 5;
/// Of these no rule says anything.
const UNDECLARED: usize = 3;
/// Longest wait for what has to come.
const PATIENCE: Duration = Duration::from_secs(30);

const RULES: &str = "apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: red}
spec:
  tenant: red
  egress: [{action: Accept, services: [{protocol: ICMP}]}]
";

/// A daemon whose tenant's port has received some packets.
struct Bench {
    folder: TempDir,
    daemon: Daemon,
    metrics: SocketAddr,
}

impl Bench {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let pings = (0..PINGS).map(|n| RED.ping(7, n as u16, 64));
        let undeclared = (0..UNDECLARED).map(|_| RED.udp((40_000, 53), b"?"));
        write_capture(&at("red.pcap"), Nanos::from_secs(1), pings.chain(undeclared));
        fs::create_dir(at("policy")).unwrap();
        let red = format!("pcap:rx={},tx={}", at("red.pcap").display(), at("red.out").display());
        let fabric = one_tenant_fabric("memory:", &red);
        fs::write(at("policy/all.yaml"), format!("{fabric}---\n{ONE_TENANT}{RULES}")).unwrap();
        let mut command = Command::new(programs().join("floodwayd"));
        command.arg("--policy").arg(at("policy")).arg("--socket").arg(at("sock")).arg("--watch");
        command.args(["--idle-sleep-us", "200", "--flows", "1024", "--buffers", "1024"]);
        command.args(["--metrics", "127.0.0.1:0"]);
        let daemon = Daemon::start(command, &at("sock"), &at("log")).unwrap();
        let log = daemon.log();
        let metrics = log.lines().find_map(|line| line.split_once("metrics address=")).unwrap().1;
        let bench = Self { metrics: metrics.trim().parse().unwrap(), folder, daemon };
        let start = Instant::now();
        while bench.daemon.client().report().unwrap().ports[1].traffic.rx_packets
            < (PINGS + UNDECLARED) as u64
        {
            assert!(start.elapsed() < PATIENCE, "the packets do not come");
            std::thread::sleep(Duration::from_millis(2));
        }
        bench
    }

    fn scrape(&self, accept: &str) -> String {
        let (head, text) = get(self.metrics, "/metrics", accept);
        assert_eq!(head.split(' ').nth(1), Some("200"), "{head}");
        text
    }
}

/// Head and body of the answer. By HTTP/1.0, so that the body is whole and the connection ends with it.
fn get(address: SocketAddr, route: &str, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {route} HTTP/1.0\r\nhost: {address}\r\naccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn sample<'a>(text: &'a str, series: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

#[test]
fn a_scrape_says_what_the_packets_were() {
    let bench = Bench::start();
    let text = bench.scrape("application/openmetrics-text");
    for (series, value) in [
        (r#"floodway_port_receive_packets_total{port="red0",tenant="red"}"#, PINGS + UNDECLARED),
        (r#"floodway_port_transmit_packets_total{port="uplink0",tenant=""}"#, PINGS),
        (r#"floodway_tenant_transmit_packets_total{tenant="red",side="fabric"}"#, PINGS),
        (r#"floodway_tenant_dropped_packets_total{tenant="red",reason="policy-default"}"#, UNDECLARED),
        (r#"floodway_dropped_packets_total{reason="policy-default"}"#, UNDECLARED),
        (r#"floodway_dropped_packets_total{reason="martian"}"#, 0),
        (r#"floodway_tenant_flows{tenant="red"}"#, 2),
        (r#"floodway_neighbour_resolved{address="192.0.2.2"}"#, 1),
        ("floodway_pool_buffers", 1024),
        ("floodway_policy_watch_polling", 0),
        ("floodway_generation", 1),
    ] {
        assert_eq!(sample(&text, series), Some(value.to_string().as_str()), "{series} in\n{text}");
    }
    let free: u64 = sample(&text, "floodway_pool_free_buffers").unwrap().parse().unwrap();
    assert!((1..=1024).contains(&free), "{free}");
}

#[test]
fn the_command_prints_the_series_that_are_scraped() {
    let bench = Bench::start();
    let mut command = Command::new(programs().join("floodway"));
    let output =
        command.arg("--socket").arg(bench.daemon.socket()).args(["show", "metrics"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let names = |text: &str| -> Vec<String> {
        let is_steady =
            |line: &&str| !line.starts_with('#') && !line.contains("floodway_api_requests_total{");
        text.lines().filter(is_steady).map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.ends_with("# EOF\n"), "{printed}");
    assert_eq!(names(&printed), names(&bench.scrape("*/*")));
}

#[test]
fn an_address_that_is_none_or_not_to_be_had_is_said() {
    for wrong in ["9600", "localhost:9600", "127.0.0.1", "127.0.0.1:66000"] {
        let mut command = Command::new(programs().join("floodwayd"));
        let output = command.args(["--policy", "x", "--metrics", wrong]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--metrics <ADDR:PORT>") && said.contains(wrong), "{said}");
    }
    let bench = Bench::start();
    let mut command = Command::new(programs().join("floodwayd"));
    command.arg("--policy").arg(bench.folder.path().join("policy"));
    let socket = bench.folder.path().join("second");
    command.arg("--socket").arg(&socket).args(["--metrics", &bench.metrics.to_string()]);
    let ended = Daemon::start(command, &socket, &bench.folder.path().join("second.log")).err().unwrap();
    let said = format!("floodwayd: cannot answer for metrics on {}: address already in use\n", bench.metrics);
    assert_eq!(ended.code, 1);
    assert!(ended.log.contains(&said), "{}", ended.log);
    assert!(!socket.exists(), "the socket is left");
}

#[test]
fn the_port_goes_with_the_daemon() {
    let mut bench = Bench::start();
    assert_eq!(bench.daemon.end(Signal::SIGTERM), Ok(0));
    assert!(TcpStream::connect(bench.metrics).is_err());
}

fn repository(path: &str) -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// False, and a printed reason, where there is no such program.
fn is_installed(program: &str) -> bool {
    let is_there =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        println!("skipped: no {program}; Debian's package prometheus has it");
    }
    is_there
}

fn assert_good(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn promtool_finds_nothing_wrong() {
    if !is_installed("promtool") {
        return;
    }
    let alerts = repository("deploy/prometheus/alerts.yaml");
    let checked =
        Command::new("promtool").args(["check", "rules", "--lint=all", "--lint-fatal"]).arg(alerts).output();
    assert_good(&checked.unwrap());
    let tests = repository("deploy/prometheus/alerts.test.yaml");
    assert_good(&Command::new("promtool").args(["test", "rules"]).arg(tests).output().unwrap());
    let bench = Bench::start();
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(bench.scrape("text/plain").as_bytes()).unwrap();
    assert_good(&promtool.wait_with_output().unwrap());
}

/// A Prometheus that scrapes one daemon; it is ended when dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(bench: &Bench) -> Self {
        let folder = bench.folder.path();
        // Given back at once; nobody else is likely to take it before Prometheus does.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{job_name: floodway, static_configs: [{{targets: [\"{}\"]}}]}}]\n",
            repository("deploy/prometheus/alerts.yaml").display(),
            bench.metrics
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let log = folder.join("prometheus.log");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
        command.arg(format!("--web.listen-address={address}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        Self { child: command.spawn().unwrap(), address, log }
    }

    /// What it answers, or `None` while it does not.
    fn ask(&self, route: &str) -> Option<Value> {
        TcpStream::connect(self.address).ok()?;
        let (head, body) = get(self.address, route, "application/json");
        let answer: Option<Value> = serde_json::from_str(&body).ok();
        let is_ready = head.split(' ').nth(1) == Some("200");
        assert!(!head.contains(" 400 ") && !head.contains(" 422 "), "{route}: {body}");
        answer.filter(|answer| is_ready && answer["status"] == "success")
    }

    fn query(&self, expression: &str) -> Option<Value> {
        let quoted: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        Some(self.ask(&format!("/api/v1/query?query={quoted}"))?["data"]["result"].take())
    }

    #[track_caller]
    fn wait_for<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            let log = || fs::read_to_string(&self.log).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "no {what}; Prometheus says:\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn value(&self, expression: &str) -> Option<String> {
        Some(self.query(expression)?.get(0)?["value"][1].as_str()?.to_owned())
    }
}

#[test]
fn a_real_prometheus_reads_the_right_values_and_takes_alerts_and_dashboard() {
    if !is_installed("prometheus") {
        return;
    }
    let bench = Bench::start();
    let prometheus = Prometheus::start(&bench);
    let up = prometheus.wait_for("scrape", || prometheus.value("up{job=\"floodway\"} == 1"));
    assert_eq!(up, "1");
    for (expression, expected) in [
        (r#"floodway_port_receive_packets_total{port="red0"}"#, PINGS + UNDECLARED),
        (r#"floodway_tenant_dropped_packets_total{tenant="red",reason="policy-default"}"#, UNDECLARED),
        ("sum(floodway_dropped_packets_total)", UNDECLARED),
        ("floodway_build_info", 1),
    ] {
        let found = prometheus.wait_for(expression, || prometheus.value(expression));
        assert_eq!(found, expected.to_string(), "{expression}");
    }
    // The rule files are evaluated without an error, and nothing fires.
    let groups = prometheus.wait_for("evaluation", || {
        let groups = prometheus.ask("/api/v1/rules")?["data"]["groups"].take();
        let rules = groups[0]["rules"].as_array()?.clone();
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    assert!(groups.len() > 10);
    for rule in &groups {
        assert_eq!((&rule["health"], &rule["state"]), (&"ok".into(), &"inactive".into()), "{rule}");
    }
    let dashboard = fs::read_to_string(repository("deploy/grafana/floodway.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    for target in panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten()) {
        let expression = target["expr"].as_str().unwrap();
        let expression = expression.replace("$__rate_interval", "1m");
        let expression =
            ["$job", "$instance", "$tenant"].iter().fold(expression, |e, name| e.replace(name, ".*"));
        assert!(prometheus.query(&expression).is_some(), "{expression}");
    }
}
