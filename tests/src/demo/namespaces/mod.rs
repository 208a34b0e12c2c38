//! The demo as it is shipped: floodwayd over DPDK, and the kernel's hosts in network namespaces.

mod daemon;
mod layout;
mod packet_socket;

use std::{
    collections::BTreeMap,
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use nix::fcntl::{Flock, FlockArg};
use program::{FlowRecord, Report};
use serde_json::Value;

use self::{
    daemon::Shown,
    layout::{Layout, namespace_of},
    packet_socket::PacketSocket,
};
use super::{
    Paths, counts,
    world::{Answer, BULK_PORT, Bulk, Outcome, Place, REMOTE, Tenant, World},
};

/// Longest wait for something that takes a moment.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at it.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How long a bulk transfer sends, in seconds.
const BULK_S: &str = "3";
/// Packets after which a bulk transfer runs for certain.
const UNDER_WAY: u64 = 1000;
/// Long enough for a SYN and, a second later, another one.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1300);

/// Why the demo cannot be shown here.
#[derive(Debug)]
pub enum Refusal {
    /// This machine lacks something that the memory world does without.
    NotHere(String),
    /// It should have worked.
    Failed(String),
}

/// Namespaces, floodwayd, and what runs in them. Dropping it takes everything down.
pub struct Namespaces {
    daemon: Shown,
    layout: Layout,
    _lock: Lock,
    senders: BTreeMap<Tenant, PacketSocket>,
    listeners: BTreeMap<Place, PacketSocket>,
    bulk: Option<(Child, Child)>,
    interrupted: Arc<AtomicBool>,
}

/// One demo at a time on a machine: the names of namespaces and ports are the policy's.
struct Lock(Flock<File>);

impl Lock {
    const FILE: &str = "/run/floodway-demo.lock";

    fn take() -> Result<Self, Refusal> {
        let file =
            File::create(Self::FILE).map_err(|error| Refusal::Failed(format!("{}: {error}", Self::FILE)))?;
        let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        locked.map(Self).map_err(|_| Refusal::Failed("another demo runs on this machine".into()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Held still: who has opened it meanwhile is refused, who comes later makes a new one.
        let _ = std::fs::remove_file(Self::FILE);
        let _ = self.0.relock(FlockArg::Unlock);
    }
}

impl Namespaces {
    /// Sets everything up.
    ///
    /// # Errors
    /// [`Refusal::NotHere`] without root, namespaces, tools or DPDK.
    pub fn start(paths: &Paths, interrupted: Arc<AtomicBool>) -> Result<Self, Refusal> {
        layout::check_machine().map_err(Refusal::NotHere)?;
        let lock = Lock::take()?;
        let layout = Layout::build().map_err(Refusal::Failed)?;
        let daemon = Shown::start(paths)?;
        let mut world = Self {
            daemon,
            layout,
            _lock: lock,
            senders: BTreeMap::new(),
            listeners: BTreeMap::new(),
            bulk: None,
            interrupted,
        };
        world.finish_start().map_err(Refusal::Failed)?;
        Ok(world)
    }

    fn finish_start(&mut self) -> Outcome<()> {
        for tenant in Tenant::ALL {
            self.layout.give_port(tenant)?;
            let (namespace, interface) = namespace_of(Place::Host(tenant));
            self.senders.insert(tenant, PacketSocket::open(&namespace, &interface)?);
        }
        let daemon = &self.daemon;
        let resolved =
            || daemon.report().map(|report| report.neighbours.iter().all(|next| !next.mac.is_empty()));
        wait_until("the fabric's tunnel endpoint to answer ARP", resolved)
    }
}

impl World for Namespaces {
    fn describe(&self) -> String {
        format!("World: network namespaces. {}", self.daemon.describe())
    }

    fn ping(&mut self, tenant: Tenant, target: [u8; 4], count: u16, pattern: u8) -> Outcome<u16> {
        let target = Ipv4Addr::from(target);
        let arguments = format!("ping -n -q -c {count} -i 0.05 -W 1 -p {pattern:02x} {target}");
        let output =
            inside(Place::Host(tenant), &arguments).output().map_err(|error| format!("ping: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let received = words.windows(2).find(|pair| pair[1].starts_with("received"));
        let received = received.and_then(|pair| pair[0].parse().ok());
        received.ok_or_else(|| format!("ping says {text}{}", String::from_utf8_lossy(&output.stderr)))
    }

    fn start_bulk(&mut self, tenant: Tenant) -> Outcome<()> {
        let failed = |error| format!("iperf3: {error}");
        let address = Ipv4Addr::from(REMOTE);
        let server = format!("timeout 30 iperf3 -s -1 -B {address} -p {BULK_PORT}");
        let mut server = inside(Place::Remote(tenant), &server);
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed)?;
        let listening = format!(":{BULK_PORT:04X} 00000000:0000 0A");
        let table = format!("/proc/{}/net/tcp", server.id());
        wait_until("iperf3 to listen", || Ok(read(&table).contains(&listening)))?;
        let before = counts::received(&self.report()?, tenant.port());
        let client =
            format!("timeout 20 iperf3 -J -t {BULK_S} --connect-timeout 3000 -c {address} -p {BULK_PORT}");
        let client = inside(Place::Host(tenant), &client).stdout(Stdio::piped()).spawn().map_err(failed)?;
        self.bulk = Some((client, server));
        let daemon = &self.daemon;
        let under_way = || Ok(counts::received(&daemon.report()?, tenant.port()) > before + UNDER_WAY);
        wait_until("iperf3 to send", under_way)
    }

    fn finish_bulk(&mut self) -> Outcome<Bulk> {
        let (client, mut server) = self.bulk.take().ok_or("no transfer runs")?;
        let output = client.wait_with_output().map_err(|error| format!("iperf3: {error}"))?;
        server.wait().map_err(|error| format!("iperf3: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let json: Value =
            serde_json::from_str(&text).map_err(|error| format!("iperf3 says {text:?}: {error}"))?;
        if let Some(error) = json["error"].as_str() {
            return Err(format!("iperf3: {error}"));
        }
        let end = &json["end"];
        let rate_bps = end["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0);
        let bytes = end["sum_received"]["bytes"].as_u64().unwrap_or(0);
        let retransmits = end["sum_sent"]["retransmits"].as_u64().unwrap_or(0);
        Ok(Bulk { rate_mbps: rate_bps / 1e6, bytes, note: format!("iperf3, {retransmits} retransmits") })
    }

    fn connect(&mut self, tenant: Tenant, port: u16) -> Outcome<bool> {
        let (namespace, _) = namespace_of(Place::Host(tenant));
        let remote = SocketAddr::from((REMOTE, port));
        layout::run_inside(&namespace, move || {
            Ok(TcpStream::connect_timeout(&remote, CONNECT_TIMEOUT).is_ok())
        })
    }

    fn inject(&mut self, tenant: Tenant, frames: &[Vec<u8>]) -> Outcome<()> {
        let before = counts::received(&self.report()?, tenant.port());
        let sender = self.senders.get(&tenant).ok_or("the tenant has no port")?;
        for frame in frames {
            sender.send(frame)?;
        }
        let daemon = &self.daemon;
        let expected = before + frames.len() as u64;
        let all = || Ok(counts::received(&daemon.report()?, tenant.port()) >= expected);
        wait_until("floodway to receive the frames", all)
    }

    fn listen(&mut self, places: &[Place]) -> Outcome<()> {
        for place in places {
            let (namespace, interface) = namespace_of(*place);
            self.listeners.insert(*place, PacketSocket::open(&namespace, &interface)?);
        }
        Ok(())
    }

    fn heard(&mut self, place: Place) -> Outcome<Vec<Vec<u8>>> {
        self.listeners.remove(&place).ok_or("nobody listens there")?.drain()
    }

    fn report(&mut self) -> Outcome<Report> {
        self.daemon.report()
    }

    fn flows(&mut self) -> Outcome<Vec<FlowRecord>> {
        let answer = self.daemon.floodway(&["show", "flows", "--output", "json"])?;
        let flows: agent::api::Flows =
            serde_json::from_str(&answer.text).map_err(|error| format!("floodway show flows: {error}"))?;
        Ok(flows.flows)
    }

    fn apply(&mut self, directory: &Path) -> Outcome<Answer> {
        let directory = directory.to_str().ok_or("the directory's name is not UTF-8")?;
        let answer = self.daemon.floodway(&["apply", directory])?;
        for line in answer.text.lines() {
            println!("        | {line}");
        }
        Ok(answer)
    }

    fn stop(&mut self) -> Outcome<(i32, Vec<String>)> {
        self.senders.clear();
        self.listeners.clear();
        let (code, mut left) = self.daemon.stop()?;
        left.extend(self.layout.find_ports());
        self.layout.remove();
        left.extend(layout::find_leftovers());
        left.extend(self.daemon.find_leftovers());
        Ok((code, left))
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for child in self.bulk.iter_mut().flat_map(|(client, server)| [client, server]) {
            // Both are bounded by `timeout` too; whoever has ended already cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A command in the namespace of that place.
fn inside(place: Place, arguments: &str) -> Command {
    let (namespace, _) = namespace_of(place);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace]).args(arguments.split(' '));
    command
}

/// Waits until it is so, and no longer than [`PATIENCE`].
fn wait_until(what: &str, mut is_so: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > PATIENCE {
            return Err(format!("waited {} s for {what}", PATIENCE.as_secs()));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// A file of the kernel's, or nothing.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
