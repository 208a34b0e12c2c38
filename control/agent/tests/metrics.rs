//! `GET /metrics`: what a scraper reads is what the report says, in a text that follows OpenMetrics; and what speaks of
//! metrics elsewhere (the page, the dashboard, the alerts) knows them by their names.
#![allow(missing_docs, clippy::unwrap_used)]

mod exposition;
mod fake;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::Arc,
    thread::JoinHandle,
};

use agent::{Lifecycle, Shutdown, api::ApplyRequest, client::Client, metrics};
use exposition::Exposition;
use fake::{Fake, Server, apply};
use program::DropReason;
use serde_json::Value;

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A server that also answers over TCP.
struct Scraped {
    address: SocketAddr,
    client: Client,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Scraped {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("sock");
        let mut listening = agent::bind(&socket).unwrap();
        let address = listening.answer_metrics("127.0.0.1:0".parse().unwrap()).unwrap();
        let shutdown = Shutdown::new();
        let thread = std::thread::spawn({
            let shutdown = shutdown.clone();
            move || listening.serve_with(Arc::new(Fake::default()), Lifecycle::default(), &shutdown)
        });
        let client = Client::new(&socket);
        Self { address, client, shutdown, thread: Some(thread), _directory: directory }
    }

    /// Status, content type and body. The server closes the connection by itself.
    fn send(&self, method: &str, route: &str, accept: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head =
            format!("{method} {route} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), kind.into(), body.into())
    }
}

impl Drop for Scraped {
    fn drop(&mut self) {
        self.shutdown.trigger();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn scrape(server: &Server) -> Exposition {
    Exposition::read(&server.client().metrics().unwrap())
}

#[test]
fn every_metric_of_the_table_is_told_as_the_table_says() {
    let server = Server::start();
    server.client().apply(&apply(9999)).unwrap();
    let exposition = scrape(&server);
    let told: BTreeSet<&str> = exposition.families.keys().map(String::as_str).collect();
    for metric in metrics::all() {
        let (base, kind) = match metric.kind {
            metrics::Kind::Counter => (metric.name.strip_suffix("_total").unwrap(), "counter"),
            metrics::Kind::Gauge => (metric.name, "gauge"),
            metrics::Kind::Info => (metric.name.strip_suffix("_info").unwrap(), "info"),
        };
        let family = exposition.families.get(base).unwrap_or_else(|| panic!("{base} in {told:?}"));
        assert_eq!(
            (family.kind.as_str(), family.unit.as_str(), family.help.as_str()),
            (kind, metric.unit, metric.help)
        );
        for sample in &family.samples {
            assert_eq!(sample.name, metric.name);
            let labels: Vec<&str> = sample.labels.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(labels, metric.labels, "{}", metric.name);
        }
    }
    assert_eq!(told.len(), metrics::all().count());
}

#[test]
fn values_are_those_of_the_report() {
    let server = Server::start();
    server.client().apply(&apply(9999)).unwrap();
    let exposition = scrape(&server);
    for (name, labels, value) in [
        ("floodway_port_receive_packets_total", &["red0", "red"][..], 7),
        ("floodway_port_receive_bytes_total", &["uplink0", ""], 700),
        ("floodway_port_transmit_packets_total", &["red0", "red"], 5),
        ("floodway_port_transmit_bytes_total", &["red0", "red"], 500),
        ("floodway_port_originated_packets_total", &["red0", "red"], 1),
        ("floodway_port_dropped_packets_total", &["uplink0", "", "unknown-vni"], 3),
        ("floodway_tenant_dropped_packets_total", &["red", "policy-deny"], 4),
        ("floodway_tenant_receive_bytes_total", &["red", "fabric"], 700),
        ("floodway_tenant_transmit_packets_total", &["red", "ports"], 5),
        ("floodway_tenant_flows", &["red"], 9),
        ("floodway_tenant_flows_evicted_total", &["red"], 5),
        ("floodway_tenant_flows_displaced_total", &["red"], 4),
        ("floodway_tenant_flows_refused_total", &["red"], 6),
        ("floodway_tenant_queue_pairs", &["red"], 8),
        ("floodway_tenant_log_lines_total", &["red", "written"], 3),
        ("floodway_tenant_log_lines_total", &["red", "lost"], 1),
        ("floodway_worker_polls_total", &["1"], 1000),
        ("floodway_worker_idle_polls_total", &["0"], 250),
        ("floodway_worker_flow_capacity", &["0"], 65_536),
        ("floodway_worker_generation", &["1"], 1),
        // Each worker took over 30 and handed over 32.
        ("floodway_held_packets", &[], 4),
        ("floodway_pool_buffers", &[], 16_384),
        ("floodway_pool_free_buffers", &[], 15_000),
        ("floodway_neighbour_resolved", &["192.0.2.2"], 0),
        ("floodway_generation", &[], 1),
        ("floodway_program_rules", &[], 3),
        ("floodway_build_info", &[env!("CARGO_PKG_VERSION")], 1),
        // A packet that red0 dropped is counted by tenant red as well, and once here.
        ("floodway_dropped_packets_total", &["spoofed-mac"], 3),
        ("floodway_dropped_packets_total", &["no-route"], 0),
    ] {
        assert_eq!(exposition.value(name, labels), Some(value), "{name}{labels:?}");
    }
    let tenant = server.plane.running_tenant("red");
    assert_eq!(exposition.value("floodway_tenant_flow_quota", &["red"]), Some(tenant.flow_quota.into()));
    assert_eq!(
        exposition.value("floodway_tenant_queue_pair_quota", &["red"]),
        Some(tenant.queue_pair_quota.into())
    );
    // Every reason is there from the start, and beside a port only what it has dropped.
    assert_eq!(exposition.families["floodway_dropped_packets"].samples.len(), DropReason::COUNT);
    assert_eq!(exposition.value("floodway_port_dropped_packets_total", &["red0", "red", "martian"]), None);
}

#[test]
fn changes_and_requests_are_counted_by_how_they_ended() {
    let server = Server::start();
    let client = server.client();
    assert_eq!(scrape(&server).value("floodway_policy_last_success_timestamp_seconds", &[]), Some(0));
    client.apply(&apply(1)).unwrap();
    client.apply(&apply(1)).unwrap();
    client.apply(&apply(2)).unwrap();
    let broken = ApplyRequest { sources: vec![], ..apply(1) };
    assert!(client.apply(&broken).is_err());
    server.plane.set_stuck(&[1]);
    assert!(client.apply(&apply(3)).is_err());
    server.plane.set_stuck(&[]);
    client.rollback(&agent::api::RollbackRequest { generation: None }).unwrap();
    let exposition = scrape(&server);
    let changes = |by, result| exposition.value("floodway_policy_changes_total", &[by, result]).unwrap();
    let of = |by| ["applied", "unchanged", "refused", "stuck"].map(|result| changes(by, result));
    assert_eq!([of("apply"), of("watch"), of("rollback")], [[2, 1, 1, 1], [0; 4], [1, 0, 0, 0]]);
    let requests = |route, status| exposition.value("floodway_api_requests_total", &[route, status]);
    assert_eq!(requests("/v1/apply", "200"), Some(3));
    assert_eq!((requests("/v1/apply", "422"), requests("/v1/apply", "504")), (Some(1), Some(1)));
    // The one before this one: this one is not answered yet.
    assert_eq!(requests("/metrics", "200"), Some(1));
    assert!(exposition.value("floodway_policy_last_success_timestamp_seconds", &[]).unwrap() > 1_700_000_000);
    assert_eq!(exposition.value("floodway_policy_refused", &[]), Some(0));
    assert_eq!(exposition.value("floodway_policy_watch_reads_total", &[]), None);
}

#[test]
fn what_the_watch_is_given_is_counted_too() {
    let root = tempfile::tempdir().unwrap();
    let policy = root.path().join("p");
    fs::create_dir(&policy).unwrap();
    let sources = fake::sources(1);
    sources.iter().for_each(|file| fs::write(root.path().join(&file.name), &file.text).unwrap());
    // At one stroke, so that nobody reads half a file.
    let put_red = |text: &str| {
        fs::write(root.path().join("red"), text).unwrap();
        fs::rename(root.path().join("red"), policy.join("red.yaml")).unwrap();
    };
    let start = agent::Start { policy: policy.clone(), state: None, watch: true, generations_kept: 16 };
    let server = Server::start_from(&start);
    server.wait_for(|status| status.watch.is_some());
    put_red("kind: Nonsense");
    server.wait_for(|status| status.refused.is_some());
    let exposition = scrape(&server);
    let watch = |exposition: &Exposition, result| {
        exposition.value("floodway_policy_changes_total", &["watch", result]).unwrap()
    };
    assert_eq!(
        (watch(&exposition, "refused"), exposition.value("floodway_policy_refused", &[])),
        (1, Some(1))
    );
    put_red(&fake::tenant(1));
    server.wait_for(|status| status.refused.is_none());
    assert_eq!(watch(&scrape(&server), "unchanged"), 1);
    // A directory that is gone is refused as well, though there is nothing to compile.
    fs::remove_dir_all(&policy).unwrap();
    server
        .wait_for(|status| status.refused.as_ref().is_some_and(|refused| refused.error.contains("no such")));
    let exposition = scrape(&server);
    assert!(watch(&exposition, "refused") >= 2, "{exposition:?}");
    assert!(exposition.value("floodway_policy_watch_reads_total", &[]).unwrap() >= 3);
}

#[test]
fn over_tcp_there_is_nothing_but_metrics() {
    let server = Scraped::start();
    let (status, kind, text) =
        server.send("GET", "/metrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert_eq!((status, kind.as_str()), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert_eq!(Exposition::read(&text).value("floodway_generation", &[]), Some(0));
    for (method, route, expected) in [
        ("GET", "/", 404),
        ("GET", "/v1/report", 404),
        ("GET", "/v1/status", 404),
        ("POST", "/v1/apply", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/metrics", 405),
    ] {
        assert_eq!(server.send(method, route, "*/*").0, expected, "{method} {route}");
    }
    // Whoever made up a route has made no label.
    let exposition = Exposition::read(&server.client.metrics().unwrap());
    assert_eq!(exposition.value("floodway_api_requests_total", &["none", "404"]), Some(4));
    assert_eq!(exposition.value("floodway_api_requests_total", &["/metrics", "405"]), Some(2));
    assert_eq!(exposition.families["floodway_api_requests"].samples.len(), 3);
}

#[test]
fn who_knows_only_the_older_text_gets_it() {
    let server = Scraped::start();
    let (status, kind, text) = server.send("GET", "/metrics", "text/plain;version=0.0.4");
    assert_eq!((status, kind.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    assert!(text.contains("# TYPE floodway_dropped_packets_total counter\n"), "{text}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    let (_, kind, _) = server.send("GET", "/metrics", "text/html,*/*");
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
}

#[test]
fn strangers_who_stall_do_not_keep_the_control_socket_busy() {
    let server = Scraped::start();
    let stalled: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert_eq!(server.client.report().unwrap().generation, 0);
    drop(stalled);
    assert_eq!(server.send("GET", "/metrics", "*/*").0, 200);
}

#[test]
fn a_port_that_is_taken_is_a_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut listening = agent::bind(&directory.path().join("sock")).unwrap();
    let error = listening.answer_metrics(address).unwrap_err().to_string();
    assert_eq!(error, format!("cannot answer for metrics on {address}: address already in use"));
}

#[test]
fn the_page_is_what_the_table_says() {
    let (path, page) = (root("docs/metrics.md"), metrics::markdown());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert!(
        fs::read_to_string(path).is_ok_and(|there| there == page),
        "UPDATE_DOCS=1 writes docs/metrics.md anew"
    );
}

#[test]
fn names_follow_the_conventions() {
    let mut seen = BTreeSet::new();
    for metric in metrics::all() {
        let name = metric.name;
        assert!(seen.insert(name), "{name} twice");
        assert!(name.starts_with("floodway_"), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == metrics::Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_info"), metric.kind == metrics::Kind::Info, "{name}");
        let stem = name.strip_suffix("_total").unwrap_or(name);
        for unit in ["bytes", "seconds"] {
            assert_eq!(stem.ends_with(unit), metric.unit == unit, "{name}");
        }
        let is_sentence = metric.help.ends_with('.') && !metric.help.contains(['\n', '\\', '|']);
        assert!(is_sentence, "{name}: {}", metric.help);
    }
    assert_eq!(metrics::all().last().unwrap().name, "floodway_metrics_omitted_series");
}

/// Every word of a text that looks like a metric.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("floodway_")).collect()
}

#[track_caller]
fn assert_known(text: &str) {
    let known: BTreeSet<&str> = metrics::all().map(|metric| metric.name).collect();
    let unknown: Vec<_> = named(text).difference(&known).copied().collect();
    assert!(unknown.is_empty(), "no such metric: {unknown:?}");
}

#[test]
fn alerts_ask_for_metrics_and_reasons_that_exist() {
    let text = fs::read_to_string(root("deploy/prometheus/alerts.yaml")).unwrap();
    let alerts: Value = serde_saphyr::from_str(&text).unwrap();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    for rule in rules {
        let expression = rule["expr"].as_str().unwrap();
        assert!(!named(expression).is_empty() || expression.starts_with("up{"), "{expression}");
        assert_known(expression);
        for reason in expression.split("reason=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(DropReason::ALL.iter().any(|known| known.name() == reason), "{reason}");
        }
        for field in ["summary", "description"] {
            assert!(rule["annotations"][field].is_string(), "{field} of {}", rule["alert"]);
        }
    }
    assert!(rules.len() > 10, "{}", rules.len());
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let text = fs::read_to_string(root("deploy/grafana/floodway.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    assert_known(&text);
    let panels = dashboard["panels"].as_array().unwrap();
    let asked = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let asked: Vec<&str> = asked.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(asked.len() > 20 && asked.iter().all(|expression| !named(expression).is_empty()));
}
