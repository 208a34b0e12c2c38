//! A data plane that records what it is given, and a server in front of it on a socket of its own.
#![allow(dead_code, missing_docs, clippy::unwrap_used, reason = "each test file uses its part")]

use std::{
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use agent::{
    DataPlane, Lifecycle, PublishError, Published, Shutdown, Start, TraceError,
    api::{ApplyRequest, SourceText, Status},
    client::Client,
};
use program::{
    DropCount, FlowRecord, LogCount, NakCounts, NeighbourReport, PoolReport, PortReport, Program,
    QueuePairRecord, QueuePairSide, Report, RoomCount, TenantReport, TraceReport, TraceRequest, TraceStarted,
    Traffic, WorkerReport,
};

pub const FABRIC: &str = "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata:
  name: box
spec:
  ports:
    - {name: uplink0, device: \"memory:\", mtu: 1600}
    - {name: red0, device: \"memory:\", mtu: 1500}
  uplink:
    port: uplink0
    addresses: [192.0.2.1/24]
  vteps:
    - {name: fabric, address: 192.0.2.2}
";

/// A tenant with one port and two rules: deny a port, accept all else.
pub fn tenant(denied_port: u16) -> String {
    format!(
        "apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata:
  name: red
spec:
  vni: 100
  gateway:
    addresses: [10.1.0.1]
  ports:
    - port: red0
      mac: 02:00:00:00:0a:10
      addresses: [10.1.0.10]
  remotes:
    - name: red-remote
      vtep: fabric
      mac: 02:00:00:00:0a:20
      addresses: [10.1.0.20]
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata:
  name: red
spec:
  tenant: red
  egress:
    - action: Deny
      services: [{{protocol: TCP, port: {denied_port}}}]
    - action: Accept
  ingress:
    - action: Accept
      from: [{{remote: red-remote}}]
"
    )
}

pub fn apply(denied_port: u16) -> ApplyRequest {
    ApplyRequest { sources: sources(denied_port), expect_generation: None, confirm_s: None, unproven: false }
}

pub fn sources(denied_port: u16) -> Vec<SourceText> {
    let source = |name: &str, text: &str| SourceText { name: name.into(), text: text.into() };
    vec![source("p/fabric.yaml", FABRIC), source("p/red.yaml", &tenant(denied_port))]
}

/// Two workers. Counts that no test sets are made up and stay.
#[derive(Default)]
pub struct Fake {
    programs: Mutex<Vec<Arc<Program>>>,
    published: Condvar,
    stuck: Mutex<Vec<u32>>,
    tracing: Mutex<Option<TraceRequest>>,
    rejects: AtomicBool,
    is_publishing: AtomicBool,
    overlapped: AtomicBool,
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

/// Holds the next publication.
pub struct Gate {
    entered: Receiver<()>,
    open: Sender<()>,
}

impl Gate {
    pub fn wait_until_publishing(&self) {
        self.entered.recv().unwrap();
    }

    pub fn open(self) {
        self.open.send(()).unwrap();
    }
}

/// Longest wait for what has to come.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl Fake {
    /// One that runs `program`.
    pub fn running(program: Program) -> Self {
        let fake = Self::default();
        fake.programs.lock().unwrap().push(Arc::new(program));
        fake
    }

    /// The tenant of that name in the program that runs.
    pub fn running_tenant(&self, name: &str) -> program::Tenant {
        let running = DataPlane::running(self);
        running.tenants.iter().flatten().find(|tenant| tenant.name == name).unwrap().clone()
    }

    /// Returns once this generation was published, and gives its digest.
    #[track_caller]
    pub fn wait_for(&self, generation: u32) -> String {
        let programs = self.programs.lock().unwrap();
        let is_missing = |programs: &mut Vec<Arc<Program>>| {
            programs.last().is_none_or(|program| program.generation.0 < generation)
        };
        let (programs, _) = self.published.wait_timeout_while(programs, PATIENCE, is_missing).unwrap();
        let found = programs.iter().find(|program| program.generation.0 == generation);
        agent::digest(found.expect("the generation is not published"))
    }

    pub fn generations(&self) -> Vec<u32> {
        self.programs.lock().unwrap().iter().map(|program| program.generation.0).collect()
    }

    pub fn overlapped(&self) -> bool {
        self.overlapped.load(Ordering::SeqCst)
    }

    pub fn set_stuck(&self, workers: &[u32]) {
        *self.stuck.lock().unwrap() = workers.to_vec();
    }

    pub fn set_rejects(&self, rejects: bool) {
        self.rejects.store(rejects, Ordering::SeqCst);
    }

    pub fn hold_next_publication(&self) -> Gate {
        let (enter, entered) = channel();
        let (open, opened) = channel();
        *self.gate.lock().unwrap() = Some((enter, opened));
        Gate { entered, open }
    }

    fn worker(&self, worker: u32) -> WorkerReport {
        let generation = DataPlane::running(self).generation.0;
        let is_stuck = self.stuck.lock().unwrap().contains(&worker);
        WorkerReport {
            worker,
            generation: if is_stuck { generation - 1 } else { generation },
            polls: 1000,
            idle_polls: 250,
            flows: 3,
            flow_capacity: 65_536,
            hits: 90,
            misses: 10,
            uncached: 0,
            taken_over: 30,
            handed_over: 32,
            held: 0,
            datagrams: 0,
            unfinished: 0,
            scanned_lists: 0,
            queue_pairs: 1,
            queue_pair_capacity: 16_384,
            untracked: 0,
        }
    }
}

impl DataPlane for Fake {
    fn running(&self) -> Arc<Program> {
        self.programs.lock().unwrap().last().cloned().unwrap_or_default()
    }

    fn publish(&self, program: Program) -> Result<Published, PublishError> {
        self.overlapped.fetch_or(self.is_publishing.swap(true, Ordering::SeqCst), Ordering::SeqCst);
        let gate = self.gate.lock().unwrap().take();
        if let Some((enter, opened)) = gate {
            enter.send(()).unwrap();
            opened.recv().unwrap();
        }
        let generation = program.generation;
        let result = if self.rejects.load(Ordering::SeqCst) {
            Err(PublishError::Rejected { reason: "there is no memory for it".into() })
        } else {
            self.programs.lock().unwrap().push(Arc::new(program));
            self.published.notify_all();
            match self.stuck.lock().unwrap().clone() {
                workers if workers.is_empty() => {
                    Ok(Published { generation, took: Duration::from_micros(37) })
                }
                workers => Err(PublishError::Stuck { workers, waited: Duration::from_millis(1000) }),
            }
        };
        self.is_publishing.store(false, Ordering::SeqCst);
        result
    }

    /// One at a time, number 7, with no packets.
    fn begin_trace(&self, request: &TraceRequest) -> Result<TraceStarted, TraceError> {
        let mut tracing = self.tracing.lock().unwrap();
        if let Some(first) = &*tracing {
            return Err(TraceError::Busy { by: first.by.clone(), since: Duration::from_secs(3) });
        }
        *tracing = Some(request.clone());
        Ok(TraceStarted { trace: 7 })
    }

    fn traced(&self, trace: u64) -> Option<TraceReport> {
        let request = self.tracing.lock().unwrap().clone().filter(|_| trace == 7)?;
        Some(TraceReport { packets: Vec::new(), untraced: request.count.into(), ended: true })
    }

    fn end_trace(&self, trace: u64) -> bool {
        trace == 7 && self.tracing.lock().unwrap().take().is_some()
    }

    fn report(&self) -> Report {
        let running = DataPlane::running(self);
        let drop = |reason: &str, packets| DropCount { reason: reason.into(), packets };
        let traffic = Traffic { rx_packets: 7, rx_bytes: 700, tx_packets: 5, tx_bytes: 500 };
        Report {
            generation: running.generation.0,
            digest: agent::digest(&running),
            workers: vec![self.worker(0), self.worker(1)],
            ports: vec![
                PortReport {
                    name: "uplink0".into(),
                    device: "memory:".into(),
                    tenant: String::new(),
                    traffic,
                    originated: 0,
                    drops: vec![drop("unknown-vni", 3), drop("spoofed-mac", 1)],
                },
                PortReport {
                    name: "red0".into(),
                    device: "memory:".into(),
                    tenant: "red".into(),
                    traffic,
                    originated: 1,
                    drops: vec![drop("spoofed-mac", 2), drop("martian", 0)],
                },
            ],
            tenants: vec![TenantReport {
                name: "red".into(),
                vni: 100,
                fabric: traffic,
                ports: traffic,
                drops: vec![drop("spoofed-mac", 2), drop("policy-deny", 4)],
                log: LogCount { written: 3, suppressed: 2, lost: 1 },
                room: RoomCount { flows: 9, evicted: 5, displaced: 4, refused: 6, queue_pairs: 8 },
            }],
            neighbours: vec![NeighbourReport { address: "192.0.2.2".parse().unwrap(), mac: String::new() }],
            pool: PoolReport { buffers: 16_384, free: 15_000 },
        }
    }

    fn queue_pairs(&self, limit: usize) -> Vec<QueuePairRecord> {
        let side = |address: &str, qp, packets| QueuePairSide {
            address: address.parse().unwrap(),
            qp,
            request_psn: Some(7_010_278),
            response_psn: None,
            packets,
            bytes: packets * 1000,
            gaps: 1,
            retries: 2,
            out_of_order: 0,
            cnps: 3,
            rnr_naks: 4,
            naks: NakCounts { psn_sequence: 5, ..NakCounts::default() },
        };
        let pair = QueuePairRecord {
            tenant: "red".into(),
            service: "rc".into(),
            state: "open".into(),
            opener: side("10.1.0.10", Some(0x139), 12),
            peer: side("10.1.0.20", Some(0x169), 9),
        };
        vec![pair; limit.min(1)]
    }

    fn flows(&self, limit: usize) -> Vec<FlowRecord> {
        let flow = |port: u16| FlowRecord {
            tenant: "red".into(),
            from: "red0".into(),
            src: "10.1.0.10".parse().unwrap(),
            dst: "10.1.0.20".parse().unwrap(),
            service: format!("tcp {port} > 5201"),
            answers: String::new(),
            verdict: "accept".into(),
            stage: "open".into(),
            rule: "p/red.yaml:31".into(),
            to: "fabric".into(),
            packets: 9,
            bytes: 900,
        };
        (40_000..40_003).map(flow).take(limit).collect()
    }

    fn flows_wanted(&self, wanted: &dyn Fn(&FlowRecord) -> bool, limit: usize) -> Vec<FlowRecord> {
        self.flows(usize::MAX).into_iter().filter(|flow| wanted(flow)).take(limit).collect()
    }
}

/// A server that ends with the test.
pub struct Server {
    pub directory: tempfile::TempDir,
    pub socket: PathBuf,
    pub plane: Arc<Fake>,
    pub shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(Fake::default(), Lifecycle::default())
    }

    /// Starts as floodwayd does.
    pub fn start_from(start: &Start) -> Self {
        let (program, _, lifecycle) = Lifecycle::start(start).unwrap();
        Self::start_with(Fake::running(program), lifecycle)
    }

    pub fn start_with(plane: Fake, lifecycle: Lifecycle) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("floodwayd.sock");
        let plane = Arc::new(plane);
        let shutdown = Shutdown::new();
        // From here on connections are taken in, so that nobody has to wait for the thread.
        let listening = agent::bind(&socket).unwrap();
        let thread = std::thread::spawn({
            let (plane, shutdown) = (plane.clone(), shutdown.clone());
            move || listening.serve_with(plane, lifecycle, &shutdown)
        });
        Self { directory, socket, plane, shutdown, thread: Some(thread) }
    }

    pub fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    /// Returns once the status is as wanted.
    #[track_caller]
    pub fn wait_for(&self, is_wanted: impl Fn(&Status) -> bool) -> Status {
        let start = Instant::now();
        loop {
            let status = self.client().status().unwrap();
            if is_wanted(&status) {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "{status:?}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Returns when the server has ended.
    pub fn stop(&mut self) {
        self.shutdown.trigger();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
