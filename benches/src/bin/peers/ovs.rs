//! Open vSwitch with its DPDK datapath, run from a folder of its own: database, switch, one bridge, one poll thread.
//!
//! It and its bridges' interfaces live in a network namespace of their own.
//!
//! It takes packets from `net_pcap` and gives them to `net_null`, as the others do. Its own counters say how many
//! packets came and how many missed; the time is that of its poll thread.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use benches::scene::rule_of;
use benches::traffic::{Traffic, Transport, dst, dst_port, src_port};

use crate::Args;
use crate::thread_time::named_thread_nanos;

const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const SOURCE: &str = "source";
const DRAIN: &str = "drain";
const TUNNEL: &str = "tunnel";
/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What it is told to do with the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// One rule a flow, by its 5-tuple: out of the drain.
    Forward,
    /// The same, by VXLAN.
    Encapsulate,
    /// Connection tracking, then out of the drain.
    Track,
    /// Connection tracking, then by VXLAN.
    TrackAndEncapsulate,
    /// So many rules of a prefix and a port; each packet opens a flow (an upcall).
    Miss(u32),
}

impl Work {
    fn has_tunnel(self) -> bool {
        matches!(self, Self::Encapsulate | Self::TrackAndEncapsulate)
    }
}

/// Cycles per packet of one run; of [`Work::Miss`], per upcall.
pub fn run(args: &Args, hz: f64, traffic: &Traffic, work: Work, capture: &Path) -> Result<f64, String> {
    let ovs = Ovs::start(args)?;
    ovs.add_ports(work)?;
    ovs.program(traffic, work)?;
    ovs.add_source(capture)?;
    let settle = if matches!(work, Work::Miss(_)) { Duration::ZERO } else { Duration::from_secs(2) };
    std::thread::sleep(settle);
    let column =
        if matches!(work, Work::Miss(_)) { "miss with success upcall:" } else { "packets received:" };
    let (first, begin) = (ovs.count(column)?, ovs.poll_nanos()?);
    std::thread::sleep(Duration::from_secs(args.seconds));
    let (last, end) = (ovs.count(column)?, ovs.poll_nanos()?);
    if last <= first {
        return Err(format!("OVS counted nothing as \"{column}\""));
    }
    if ovs.sent()? == 0 {
        return Err("OVS sent nothing".into());
    }
    Ok((end - begin) as f64 / 1e9 * hz / (last - first) as f64)
}

/// Database and switch, ended when dropped.
struct Ovs {
    dir: PathBuf,
    namespace: String,
    database: Child,
    switch: Option<Child>,
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for child in self.switch.iter_mut().chain([&mut self.database]) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The bridges' interfaces outlive a switch that is killed; they go with the namespace.
        let _ = Command::new("ip").args(["netns", "delete", &self.namespace]).status();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Ovs {
    fn start(args: &Args) -> Result<Self, String> {
        let namespace = format!("floodway-ovs-{}", std::process::id());
        let dir = std::env::temp_dir().join(&namespace);
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let db = dir.join("conf.db");
        run_once(Command::new("ovsdb-tool").arg("create").arg(&db).arg(SCHEMA))?;
        let database = quiet(
            in_folder(Command::new("ovsdb-server"), &dir)
                .arg(&db)
                .arg(format!("--remote=punix:{}", dir.join("db.sock").display()))
                .arg(format!("--unixctl={}", dir.join("db.ctl").display())),
        )?;
        run_once(Command::new("ip").args(["netns", "add", &namespace]))?;
        let mut ovs = Self { dir, namespace, database, switch: None };
        ovs.wait_for("db.sock")?;
        let other = usize::from(args.cpu == 0);
        let dpdk = [
            "other_config:dpdk-init=true".to_string(),
            format!("other_config:dpdk-lcore-mask={:#x}", 1 << other),
            format!("other_config:pmd-cpu-mask={:#x}", 1 << args.cpu),
            format!("other_config:dpdk-extra=--no-pci --in-memory --file-prefix=ovs{}", std::process::id()),
        ];
        ovs.vsctl(&["--no-wait", "init"])?;
        let words =
            ["--no-wait", "set", "Open_vSwitch", "."].into_iter().chain(dpdk.iter().map(String::as_str));
        ovs.vsctl(&words.collect::<Vec<_>>())?;
        ovs.switch = Some(quiet(
            in_folder(ovs.inside(SWITCH), &ovs.dir)
                .arg(format!("unix:{}", ovs.dir.join("db.sock").display()))
                .arg(format!("--unixctl={}", ovs.dir.join("switch.ctl").display())),
        )?);
        ovs.wait_for("switch.ctl")?;
        Ok(ovs)
    }

    fn add_ports(&self, work: Work) -> Result<(), String> {
        self.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"])?;
        let bridge = if work.has_tunnel() { "underlay" } else { "br0" };
        if work.has_tunnel() {
            self.vsctl(&["add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"])?;
        }
        let drain = "options:dpdk-devargs=net_null7,no-rx=1";
        self.vsctl(&[
            "add-port",
            bridge,
            DRAIN,
            "--",
            "set",
            "Interface",
            DRAIN,
            "type=dpdk",
            drain,
            "ofport_request=2",
        ])?;
        if !work.has_tunnel() {
            return Ok(());
        }
        // The bridge's own interface carries the tunnel's source address. It lives as long as the switch.
        run_once(self.inside("ip").args(["address", "add", "192.0.2.1/24", "dev", bridge]))?;
        run_once(self.inside("ip").args(["link", "set", bridge, "up"]))?;
        self.vsctl(&[
            "add-port",
            "br0",
            TUNNEL,
            "--",
            "set",
            "Interface",
            TUNNEL,
            "type=vxlan",
            "options:remote_ip=192.0.2.2",
            "options:key=100",
            "ofport_request=2",
        ])?;
        std::thread::sleep(Duration::from_secs(1));
        self.appctl(&["tnl/neigh/set", bridge, "192.0.2.2", "02:ee:00:00:00:02"])?;
        Ok(())
    }

    fn program(&self, traffic: &Traffic, work: Work) -> Result<(), String> {
        let protocol = if traffic.transport == Transport::Udp { "udp" } else { "tcp" };
        let address = |[a, b, c, d]: [u8; 4]| format!("{a}.{b}.{c}.{d}");
        let lines: Vec<String> = match work {
            Work::Forward | Work::Encapsulate => (0..traffic.flows)
                .map(|flow| {
                    let (dst, to, from) = (address(dst(flow)), dst_port(flow), src_port(flow));
                    format!(
                        "in_port=1,{protocol},nw_src=10.1.0.10,nw_dst={dst},tp_src={from},tp_dst={to},actions=output:2"
                    )
                })
                .collect(),
            Work::Track | Work::TrackAndEncapsulate => [
                "table=0,in_port=1,ip,ct_state=-trk,actions=ct(table=1)",
                "table=1,ip,ct_state=+trk+new,actions=ct(commit),output:2",
                "table=1,ip,ct_state=+trk+est,actions=output:2",
            ]
            .map(String::from)
            .into(),
            Work::Miss(rules) => (0..rules)
                .map(|rule| {
                    let (third, fourth, port) = rule_of(rule);
                    format!("in_port=1,udp,nw_dst=10.2.{third}.{fourth}/28,tp_dst={port},actions=output:2")
                })
                // So that a cached entry is of one flow, as it is where rules look at source ports.
                .chain(["priority=40000,in_port=1,udp,nw_dst=203.0.113.1,tp_src=9,actions=drop".to_string()])
                .collect(),
        };
        let mut child = in_folder(Command::new("ovs-ofctl"), &self.dir)
            .args(["add-flows", &format!("unix:{}", self.dir.join("br0.mgmt").display()), "-"])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| format!("ovs-ofctl: {error}"))?;
        let mut input = child.stdin.take().ok_or("ovs-ofctl takes no input")?;
        self.del_flows()?;
        input.write_all((lines.join("\n") + "\n").as_bytes()).map_err(|error| error.to_string())?;
        drop(input);
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err("ovs-ofctl add-flows failed".into()) }
    }

    fn del_flows(&self) -> Result<(), String> {
        let bridge = format!("unix:{}", self.dir.join("br0.mgmt").display());
        run_once(in_folder(Command::new("ovs-ofctl"), &self.dir).args(["del-flows", &bridge])).map(drop)
    }

    /// Packets come from here on.
    fn add_source(&self, capture: &Path) -> Result<(), String> {
        let devargs =
            format!("options:dpdk-devargs=\"net_pcap0,rx_pcap={},infinite_rx=1\"", capture.display());
        let words = [
            "add-port",
            "br0",
            SOURCE,
            "--",
            "set",
            "Interface",
            SOURCE,
            "type=dpdk",
            &devargs,
            "ofport_request=1",
        ];
        self.vsctl(&words).map(drop)
    }

    /// A counter of the poll thread.
    fn count(&self, name: &str) -> Result<u64, String> {
        let text = self.appctl(&["dpif-netdev/pmd-stats-show"])?;
        let of_poll_thread = text.split("main thread:").next().unwrap_or("");
        let line = of_poll_thread.lines().find_map(|line| line.trim().strip_prefix(name));
        let value = line.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse().ok());
        value.ok_or_else(|| format!("no \"{name}\" in OVS's statistics"))
    }

    /// Packets that have left by the drain. The database hears of them every five seconds only, the datapath knows.
    fn sent(&self) -> Result<u64, String> {
        let text = self.appctl(&["dpctl/show", "--statistics"])?;
        let of_drain = text.split(&format!(": {DRAIN} ")).nth(1).unwrap_or("");
        let value = of_drain.split("TX packets:").nth(1).and_then(|rest| rest.split_whitespace().next());
        value.and_then(|word| word.parse().ok()).ok_or_else(|| format!("no port {DRAIN} in {text}"))
    }

    fn poll_nanos(&self) -> Result<u64, String> {
        let pid = self.switch.as_ref().map_or(0, Child::id);
        named_thread_nanos(pid, "pmd-c").ok_or_else(|| "OVS has no poll thread".to_string())
    }

    fn vsctl(&self, words: &[&str]) -> Result<String, String> {
        let db = format!("--db=unix:{}", self.dir.join("db.sock").display());
        run_once(in_folder(Command::new("ovs-vsctl"), &self.dir).args(["--timeout=20", &db]).args(words))
    }

    fn appctl(&self, words: &[&str]) -> Result<String, String> {
        let target = self.dir.join("switch.ctl");
        run_once(in_folder(Command::new("ovs-appctl"), &self.dir).arg("-t").arg(target).args(words))
    }

    /// A command that runs in the namespace.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]);
        command
    }

    fn wait_for(&self, socket: &str) -> Result<(), String> {
        let start = Instant::now();
        while !self.dir.join(socket).exists() {
            if start.elapsed() > PATIENCE {
                return Err(format!("OVS did not open {socket}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Everything that OVS would put into the system's folders goes into `dir`.
fn in_folder(mut command: Command, dir: &Path) -> Command {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(name, dir);
    }
    command
}

fn quiet(command: &mut Command) -> Result<Child, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    silent.spawn().map_err(|error| format!("{name}: {error}; install the package openvswitch-switch-dpdk"))
}

fn run_once(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}; install the package openvswitch-switch-dpdk"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
