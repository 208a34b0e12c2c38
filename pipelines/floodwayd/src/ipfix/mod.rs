//! Flow export: what the flow tables hold, to a collector, as IPFIX over UDP (RFC 7011).
//!
//! The tables are read as `show flows` reads them, a few entries in each poll of a worker; all else is on a thread of its
//! own, so that no packet waits for a collector.

mod elements;
mod message;

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent::DataPlane;
use anyhow::{Context, anyhow};
use edge::{Exported, FlowIdentity};
use program::{Ingress, Program};

use crate::background::Background;
use crate::plane::Plane;
use elements::Flow;
use message::Messages;

/// Between two looks at whether the daemon ends.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Records are sent in so many portions a second, so that a collector's socket buffer holds each.
const PORTIONS_PER_SECOND: u32 = 50;

/// Where flows are exported to, and how.
#[derive(clap::Args, Clone, Debug)]
pub struct IpfixArgs {
    /// Export flows to this collector, as IPFIX over UDP.
    #[arg(long, value_name = "HOST:PORT")]
    pub ipfix: Option<String>,

    /// Seconds between two records of a flow whose packets go on.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub ipfix_active_timeout: u32,

    /// Records a second at most; a round that takes longer than the active timeout delays the next.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(50..=10_000_000))]
    pub ipfix_rate: u32,

    /// Largest message in bytes, without UDP and IP headers.
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = clap::value_parser!(u16).range(512..=8900))]
    pub ipfix_message_bytes: u16,

    /// Private enterprise number of floodway's own information elements; the default is the one for documentation.
    #[arg(long, value_name = "N", default_value_t = 32_473)]
    pub ipfix_enterprise: u32,

    /// Observation domain of this daemon's records.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub ipfix_domain: u32,
}

/// Starts the thread that exports, when there is a collector. It is stopped while the workers still run, for they are asked
/// for what is left.
pub fn start(args: &IpfixArgs, plane: Arc<Plane>) -> anyhow::Result<Background> {
    const WHAT: &str = "the export of flows";
    let Some(collector) = &args.ipfix else { return Ok(Background::none(WHAT)) };
    let socket = connect(collector).with_context(|| format!("cannot export flows to {collector}"))?;
    let mut export = Export::new(args, socket);
    let every = Duration::from_secs(args.ipfix_active_timeout.into());
    Background::start("ipfix", WHAT, move |stop| {
        let mut last = Instant::now();
        while !stop.load(Ordering::Acquire) {
            if last.elapsed() >= every {
                last = Instant::now();
                export.round(&plane, stop);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        // What has not been told yet goes out with the daemon, as far as it is still there.
        export.round(&plane, stop);
        let Sent { records, datagrams, refused } = export.sent;
        tracing::info!(records, datagrams, refused, "flows were exported");
    })
}

fn connect(collector: &str) -> anyhow::Result<UdpSocket> {
    let address = collector.to_socket_addrs()?.next().ok_or_else(|| anyhow!("it has no address"))?;
    let own = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(own)?;
    socket.connect(address)?;
    Ok(socket)
}

/// What went out so far.
#[derive(Clone, Copy, Default, Debug)]
struct Sent {
    records: u64,
    datagrams: u64,
    /// Datagrams that the kernel did not take: the collector is gone, or nobody routes to it.
    refused: u64,
}

/// What is told of flows, and what was.
struct Export {
    socket: UdpSocket,
    messages: Messages,
    portion: usize,
    /// Counters of each entry when it was exported last.
    told: HashMap<FlowIdentity, (u64, u64)>,
    sent: Sent,
}

impl Export {
    fn new(args: &IpfixArgs, socket: UdpSocket) -> Self {
        Self {
            socket,
            messages: Messages::new(
                args.ipfix_domain,
                args.ipfix_enterprise,
                args.ipfix_message_bytes.into(),
            ),
            portion: (args.ipfix_rate / PORTIONS_PER_SECOND).max(1) as usize,
            told: HashMap::new(),
            sent: Sent::default(),
        }
    }

    /// A record of each flow that had packets since the last one. When the daemon ends, nothing is waited for.
    fn round(&mut self, plane: &Plane, stop: &AtomicBool) {
        let (entries, is_whole) = plane.exported();
        let changed = self.changed(entries, is_whole);
        let program = plane.running();
        // Templates are sent again and again, for UDP loses them (RFC 7011, section 8.4).
        let templates = self.messages.templates(now().as_secs());
        self.send(&templates);
        for portion in changed.chunks(self.portion) {
            for entry in portion {
                let flow = flow(entry, &program);
                if let Some(message) = self.messages.push(&flow, now().as_secs()) {
                    self.send(&message);
                }
                self.sent.records += 1;
            }
            if let Some(message) = self.messages.finish(now().as_secs()) {
                self.send(&message);
            }
            if !stop.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_secs(1) / PORTIONS_PER_SECOND);
            }
        }
    }

    /// Entries with what they counted since they were told of, without those that counted nothing.
    fn changed(&mut self, entries: Vec<Exported>, is_whole: bool) -> Vec<Exported> {
        let before = std::mem::take(&mut self.told);
        let mut changed = Vec::new();
        for mut entry in entries {
            let told = before.get(&entry.identity).copied();
            self.told.insert(entry.identity, (entry.packets, entry.bytes));
            // A counter that went back is that of another flow of the same identity.
            let (packets, bytes) =
                told.filter(|told| told.0 <= entry.packets && told.1 <= entry.bytes).unwrap_or_default();
            (entry.packets, entry.bytes) = (entry.packets - packets, entry.bytes - bytes);
            if entry.packets > 0 {
                changed.push(entry);
            }
        }
        if !is_whole {
            // A worker did not answer in time: its entries are there all the same, and are not to be told of twice.
            for (identity, counts) in before {
                self.told.entry(identity).or_insert(counts);
            }
        }
        changed
    }

    fn send(&mut self, message: &[u8]) {
        match self.socket.send(message) {
            Ok(_) => self.sent.datagrams += 1,
            Err(error) => {
                if self.sent.refused == 0 {
                    tracing::warn!("a datagram of flow records is lost: {error}");
                }
                self.sent.refused += 1;
            }
        }
    }
}

fn flow<'a>(entry: &Exported, program: &'a Program) -> Flow<'a> {
    let tenant = program.tenant(entry.tenant);
    let uplink = program.uplink.as_ref().map_or(0, |uplink| uplink.port.0);
    let port = match entry.ingress {
        Ingress::Port(port) => port.0,
        Ingress::Vtep(_) => uplink,
    };
    Flow {
        src: entry.src,
        dst: entry.dst,
        protocol: entry.protocol,
        ports: entry.ports,
        icmp: entry.icmp,
        packets: entry.packets,
        bytes: entry.bytes,
        read_ms: u64::try_from(now().as_millis()).unwrap_or(u64::MAX),
        interface: u32::from(port) + 1,
        vni: tenant.map_or(0, |tenant| tenant.vni.0),
        dropped: entry.dropped,
        queue_pair: entry.queue_pair,
        tenant: tenant.map_or("?", |tenant| &tenant.name),
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
