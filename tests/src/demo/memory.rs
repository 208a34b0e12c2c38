//! The demo without root and without DPDK: the same pipeline and the same policy on memory ports, in virtual time. The
//! hosts are smoltcp's, the far end of the tunnels is [`VxlanPeer`].

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering},
};

use backends::memory::{self, MemoryBackend, Pool, Wire};
use edge::{Edge, Facts, Limits, Record, Tables};
use engine::{Account, Dump, DumpRequest, Dumped, Gauge, Ledger, LedgerReader, Subject, Worker, WorkerPorts};
use nix::sys::signal::Signal;
use packet::Nanos;
use policy::Source;
use program::{
    Device, DropCount, DropReason, FlowRecord, PortId, PortReport, Program, Report, TenantReport, Traffic,
    WorkerReport, limit,
};
use quiescent::{Publisher, SharedWords};
use wire::Mac;

use super::{
    Paths,
    world::{Answer, BULK_PORT, Bulk, FABRIC_VTEP, HOST, Outcome, Place, REMOTE, Tenant, VTEP, World},
};
use crate::{
    daemon::Daemon,
    host::{Host, HostConfig, TransferId},
    rig::port_mac,
    vxlan_peer::VxlanPeer,
};

mod recorder;
use recorder::Recorder;

/// Frames that a port or a cable holds.
const DEPTH: usize = 1024;
/// Packet buffers.
const BUFFERS: usize = 16_384;
/// Bytes of a bulk transfer.
const BULK_BYTES: u64 = 8 << 20;
/// Of which this many are through when it counts as running.
const UNDER_WAY_BYTES: u64 = 1 << 20;
/// Virtual time that anything may take.
const PATIENCE: Nanos = Nanos::from_secs(30);
/// As long as the namespaces' attempt: time for one more SYN.
const CONNECT_TIME: Nanos = Nanos::from_millis(1300);
/// MAC of the fabric's router.
const FABRIC_MAC: Mac = Mac([2, 0, 0, 0, 0x0f, 2]);

/// The worker and everybody around it.
pub struct Memory {
    why: String,
    paths: Paths,
    interrupted: Arc<AtomicBool>,
    worker: Worker<MemoryBackend, Edge>,
    publisher: Publisher<Tables>,
    facts: Vec<Facts>,
    ledger: LedgerReader,
    dump: DumpRequest<Record>,
    hosts: BTreeMap<Place, Host>,
    peer: VxlanPeer,
    recorders: BTreeMap<Place, Recorder>,
    bulk: Option<RunningBulk>,
    pings: u16,
    connections: u16,
    now: Nanos,
}

struct RunningBulk {
    tenant: Tenant,
    sender: TransferId,
    receiver: TransferId,
    start: Nanos,
}

/// Everybody around the worker.
struct Around {
    hosts: BTreeMap<Place, Host>,
    peer: VxlanPeer,
    recorders: BTreeMap<Place, Recorder>,
}

impl Around {
    /// Joins them to the wires of the worker's ports, which come in the order of `devices`.
    fn new(pool: &Pool, devices: &[Device], wires: Vec<Wire>) -> Outcome<Self> {
        let mut wires: BTreeMap<&str, Wire> =
            devices.iter().map(|device| device.name.as_str()).zip(wires).collect();
        let mut take =
            |port: &str| wires.remove(port).ok_or_else(|| format!("the policy has no port {port}"));
        let mut recorders = BTreeMap::new();
        let mut record = |place, inside| {
            let (recorder, outside) = Recorder::new(inside, pool, DEPTH);
            recorders.insert(place, recorder);
            outside
        };
        let uplink = record(Place::Fabric, take("uplink0")?);
        let mut peer = VxlanPeer::new(FABRIC_MAC, vec![FABRIC_VTEP.into()], uplink);
        let mut hosts = BTreeMap::new();
        for tenant in Tenant::ALL {
            let here = record(Place::Host(tenant), take(tenant.port())?);
            hosts.insert(Place::Host(tenant), host(tenant.mac(), HOST, here));
            let (of_peer, of_host) = memory::cable(pool, DEPTH);
            peer.attach(tenant.vni(), VTEP.into(), of_peer);
            let there = record(Place::Remote(tenant), of_host);
            hosts.insert(Place::Remote(tenant), host(tenant.remote_mac(), REMOTE, there));
        }
        Ok(Self { hosts, peer, recorders })
    }
}

impl Memory {
    /// Starts; `why` says in a sentence why it is not the namespaces.
    pub fn start(paths: &Paths, why: String, interrupted: Arc<AtomicBool>) -> Outcome<Self> {
        let sources = read_policy(&paths.policy)?;
        let program =
            agent::compile_sources(&sources, None).map_err(|errors| errors.render(&sources))?.program;
        let pool = Pool::new(BUFFERS);
        let (queues, wires): (Vec<_>, Vec<_>) =
            program.devices.iter().map(|_| memory::port(&pool, DEPTH)).unzip();
        let Around { hosts, peer, recorders } = Around::new(&pool, &program.devices, wires)?;
        let facts: Vec<Facts> = (0..queues.len()).map(|index| Facts { mac: port_mac(index) }).collect();
        let (ledger, ledger_reader) = Ledger::new();
        let tables = Tables::build(Arc::new(program), &facts).map_err(|error| error.to_string())?;
        let mut publisher = Publisher::new(Box::new(tables));
        let edge = Edge::new(Limits::default(), 1, Arc::new(SharedWords::new(limit::VTEPS)));
        let (dump, request) = Dump::new(DEPTH);
        let ports = WorkerPorts { queues: queues.into_iter().map(Some).collect(), allocator: pool };
        let worker = Worker::new(ports, edge, publisher.reader(), ledger, dump);
        let mut world = Self {
            why,
            paths: paths.clone(),
            interrupted,
            worker,
            publisher,
            facts,
            ledger: ledger_reader,
            dump: request,
            hosts,
            peer,
            recorders,
            bulk: None,
            pings: 0,
            connections: 0,
            now: Nanos::from_secs(1),
        };
        world.warm_up()?;
        Ok(world)
    }

    /// The tunnel endpoint answers ARP, and so do the neighbours: smoltcp sends no reply to a host that it must look for
    /// first, where the kernel would keep it.
    fn warm_up(&mut self) -> Outcome<()> {
        for place in Place::ALL.into_iter().filter(|place| *place != Place::Fabric) {
            let target = if matches!(place, Place::Host(_)) { REMOTE } else { HOST };
            if !self.host(place).ping(target.into(), 0, 0, &[]) {
                return Err("a host cannot ping".into());
            }
        }
        self.run(Nanos::from_secs(3), |_| false);
        Ok(())
    }

    /// Runs until `done`, at most for `span` of virtual time; true when it was done.
    fn run(&mut self, span: Nanos, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + span;
        while self.now <= end {
            let (moved, due) = self.step();
            if done(self) {
                return true;
            }
            let soon = self.now + Nanos::from_micros(1);
            self.now = if moved > 0 { soon } else { due.max(soon).min(end + Nanos::from_micros(1)) };
        }
        false
    }

    /// Everybody has a turn; the frames that were moved, and when somebody wants the next turn if nothing arrives.
    fn step(&mut self) -> (usize, Nanos) {
        let mut moved = self.worker.poll(self.now).received + self.peer.poll();
        let mut due = self.worker.next_deadline();
        moved += self.recorders.values_mut().map(Recorder::pass).sum::<usize>();
        for host in self.hosts.values_mut() {
            due = due.min(host.poll(self.now));
        }
        moved += self.recorders.values_mut().map(Recorder::pass).sum::<usize>();
        (moved, due)
    }

    /// Runs until nothing is under way.
    fn settle(&mut self) {
        while self.step().0 > 0 {
            self.now = self.now + Nanos::from_micros(1);
        }
    }

    fn host(&mut self, place: Place) -> &mut Host {
        self.hosts.get_mut(&place).expect("every tenant has a host here and a remote one")
    }

    fn program(&self) -> Arc<Program> {
        self.publisher.current().program.clone()
    }

    fn drops(&self, account: Account) -> Vec<DropCount> {
        let count = |reason: &DropReason| DropCount {
            reason: reason.name().into(),
            packets: self.ledger.dropped(account, *reason),
        };
        DropReason::ALL.iter().map(count).filter(|drop| drop.packets > 0).collect()
    }

    fn port_report(&self, program: &Program, index: usize) -> PortReport {
        let id = PortId(index as u16);
        let tenant = program.port(id).and_then(|port| program.tenant(port.tenant));
        PortReport {
            name: program.devices[index].name.clone(),
            device: "memory:".into(),
            tenant: tenant.map_or_else(String::new, |tenant| tenant.name.clone()),
            traffic: self.ledger.traffic(Account::Port(id)),
            originated: self.ledger.originated(id),
            drops: self.drops(Account::Port(id)),
        }
    }

    fn tenant_report(&self, program: &Program, tenant: &program::Tenant) -> TenantReport {
        let mut packets: BTreeMap<String, u64> = BTreeMap::new();
        let ports = program.ports.iter().flatten().filter(|port| port.tenant == tenant.id);
        let accounts = ports.map(|port| Account::Port(port.id)).chain([Account::Tenant(tenant.id)]);
        for drop in accounts.flat_map(|account| self.drops(account)) {
            *packets.entry(drop.reason).or_default() += drop.packets;
        }
        TenantReport {
            name: tenant.name.clone(),
            vni: tenant.vni.0,
            fabric: self.ledger.traffic(Account::Tenant(tenant.id)),
            ports: Traffic::default(),
            drops: packets.into_iter().map(|(reason, packets)| DropCount { reason, packets }).collect(),
            log: self.ledger.log(Account::Tenant(tenant.id)),
            room: self.ledger.room(tenant.id),
        }
    }
}

impl World for Memory {
    fn describe(&self) -> String {
        format!(
            "World: memory, because {}. The same pipeline and policy, one worker on memory ports in virtual time, and \
             smoltcp's hosts.",
            self.why
        )
    }

    fn ping(&mut self, tenant: Tenant, target: [u8; 4], count: u16, pattern: u8) -> Outcome<u16> {
        self.pings += 1;
        let (id, place) = (self.pings, Place::Host(tenant));
        let mut answered = 0;
        for sequence in 0..count {
            if !self.host(place).ping(IpAddr::from(target), id, sequence, &[pattern; 56]) {
                return Err("the host cannot ping".into());
            }
            answered +=
                u16::from(self.run(Nanos::from_secs(1), |world| world.host(place).pong(id).is_some()));
        }
        Ok(answered)
    }

    fn start_bulk(&mut self, tenant: Tenant) -> Outcome<()> {
        self.connections += 1;
        let remote = SocketAddr::from((REMOTE, BULK_PORT));
        let port = 40_000 + self.connections;
        let receiver = self.host(Place::Remote(tenant)).tcp_receive(BULK_PORT);
        let sender = self.host(Place::Host(tenant)).tcp_send(remote, port, BULK_BYTES);
        self.bulk = Some(RunningBulk { tenant, sender, receiver, start: self.now });
        let place = Place::Remote(tenant);
        let under_way =
            self.run(PATIENCE, |world| world.host(place).transfer(receiver).bytes > UNDER_WAY_BYTES);
        if under_way { Ok(()) } else { Err("the transfer does not get going".into()) }
    }

    fn finish_bulk(&mut self) -> Outcome<Bulk> {
        let RunningBulk { tenant, sender, receiver, start } = self.bulk.take().ok_or("no transfer runs")?;
        let complete = self.run(PATIENCE, |world| {
            world.host(Place::Host(tenant)).transfer(sender).complete
                && world.host(Place::Remote(tenant)).transfer(receiver).complete
        });
        self.settle();
        let sent = self.host(Place::Host(tenant)).transfer(sender);
        let received = self.host(Place::Remote(tenant)).transfer(receiver);
        if !complete || sent.digest != received.digest {
            return Err(format!(
                "{} of {BULK_BYTES} bytes arrived, or not as they were sent",
                received.bytes
            ));
        }
        let seconds = self.now.since(start).0 as f64 / 1e9;
        let rate_mbps = received.bytes as f64 * 8.0 / seconds / 1e6;
        Ok(Bulk { rate_mbps, bytes: received.bytes, note: "smoltcp, virtual time; contents equal".into() })
    }

    fn connect(&mut self, tenant: Tenant, port: u16) -> Outcome<bool> {
        self.connections += 1;
        let local = 40_000 + self.connections;
        let place = Place::Host(tenant);
        let id = self.host(place).tcp_send(SocketAddr::from((REMOTE, port)), local, 1);
        let connected = self.run(CONNECT_TIME, |world| world.host(place).transfer(id).connected);
        // It would send SYNs for ever.
        self.host(place).abandon(id);
        Ok(connected)
    }

    fn inject(&mut self, tenant: Tenant, frames: &[Vec<u8>]) -> Outcome<()> {
        for frame in frames {
            self.host(Place::Host(tenant)).raw_send(frame).map_err(|error| error.to_string())?;
            self.settle();
        }
        Ok(())
    }

    fn listen(&mut self, places: &[Place]) -> Outcome<()> {
        for place in places {
            self.recorders.get_mut(place).ok_or("no such place")?.listen();
        }
        Ok(())
    }

    fn heard(&mut self, place: Place) -> Outcome<Vec<Vec<u8>>> {
        Ok(self.recorders.get_mut(&place).ok_or("no such place")?.heard())
    }

    fn report(&mut self) -> Outcome<Report> {
        if self.bulk.is_none() {
            self.settle();
        }
        let program = self.program();
        let worker = WorkerReport {
            generation: self.ledger.gauge(Gauge::Generation) as u32,
            flows: self.ledger.gauge(Gauge::Flows),
            ..WorkerReport::default()
        };
        Ok(Report {
            generation: program.generation.0,
            digest: agent::digest(&program),
            workers: vec![worker],
            ports: (0..program.devices.len()).map(|index| self.port_report(&program, index)).collect(),
            tenants: program
                .tenants
                .iter()
                .flatten()
                .map(|tenant| self.tenant_report(&program, tenant))
                .collect(),
            ..Report::default()
        })
    }

    fn flows(&mut self) -> Outcome<Vec<FlowRecord>> {
        self.dump.ask(Subject::Flows);
        let mut records = Vec::new();
        loop {
            self.step();
            while let Some(answer) = self.dump.answer() {
                match answer {
                    Dumped::Record(record) => records.push(record),
                    Dumped::End => {
                        let tables = self.publisher.current();
                        return Ok(records
                            .iter()
                            .filter_map(|record: &Record| record.flow(tables))
                            .collect());
                    }
                }
            }
            self.now = self.now + Nanos::from_micros(1);
        }
    }

    fn apply(&mut self, directory: &Path) -> Outcome<Answer> {
        let sources = read_policy(directory)?;
        let compiled = match agent::compile_sources(&sources, Some(&self.program())) {
            Ok(compiled) => compiled,
            Err(errors) => return Ok(Answer { code: 1, text: errors.render(&sources) }),
        };
        let tables =
            Tables::build(Arc::new(compiled.program), &self.facts).map_err(|error| error.to_string())?;
        let epoch = self.publisher.publish(Box::new(tables));
        self.step();
        if self.publisher.acknowledged() < epoch {
            return Ok(Answer { code: 4, text: "the worker does not run the program".into() });
        }
        self.publisher.reclaim();
        Ok(Answer { code: 0, text: String::new() })
    }

    /// The pipeline here is no process, so floodwayd is started on memory ports for this.
    fn stop(&mut self) -> Outcome<(i32, Vec<String>)> {
        stop_a_daemon(&self.paths)
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

fn host(mac: Mac, address: [u8; 4], wire: Wire) -> Host {
    let address = Ipv4Addr::from(address);
    let net = ipnet::Ipv4Net::new(address, 24).expect("24 is a prefix length");
    let seed = u64::from(mac.0[4]) << 8 | u64::from(mac.0[5]);
    Host::new(HostConfig { mac, addresses: vec![net.into()], gateways: vec![], mtu: 1500, seed }, wire)
}

fn read_policy(directory: &Path) -> Outcome<Vec<Source>> {
    agent::files::read_directory(directory).map_err(|error| error.to_string())
}

fn stop_a_daemon(paths: &Paths) -> Outcome<(i32, Vec<String>)> {
    let policy = memory_policy(paths)?;
    let socket = paths.scratch.join("floodwayd.sock");
    let program = paths.program("floodwayd");
    let mut command = Command::new(&program);
    command.arg("--policy").arg(policy).arg("--socket").arg(&socket).args(["--idle-sleep-us", "50"]);
    if !program.exists() {
        return Err(format!("there is no {}: build floodwayd first", program.display()));
    }
    let daemon = Daemon::start(command, &socket, &paths.scratch.join("floodwayd.log"));
    let mut daemon = daemon.map_err(|ended| format!("floodwayd ended with {}: {}", ended.code, ended.log))?;
    let code = daemon.end(Signal::SIGTERM)?;
    let left = socket.exists().then(|| format!("socket {} is left", socket.display()));
    Ok((code, left.into_iter().collect()))
}

/// The demo's policy with memory ports in place of DPDK's.
fn memory_policy(paths: &Paths) -> Outcome<PathBuf> {
    let directory = paths.scratch.join("memory");
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    for source in read_policy(&paths.policy)? {
        let text = String::from_utf8_lossy(&source.bytes).into_owned();
        let mut parts = text.split("\"dpdk:");
        let mut edited = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.split_once('"').map_or("", |(_, rest)| rest);
            edited += &format!("\"memory:\"{rest}");
        }
        let name = Path::new(&source.name).file_name().unwrap_or_default();
        std::fs::write(directory.join(name), edited).map_err(|error| error.to_string())?;
    }
    Ok(directory)
}
