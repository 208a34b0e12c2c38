//! The namespaces and what joins them: the uplink is a veth, whose far side is in a namespace that plays the fabric; there
//! the kernel's own VXLAN device and a bridge for each tenant lead to a namespace with the tenant's remote host.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

use nix::sched::{CloneFlags, setns};

use crate::demo::world::{Outcome, Place, Tenant};

const FABRIC: &str = "fw-fabric";
const UPLINK: &str = "fw-uplink";
const NAMESPACES: [&str; 5] = [FABRIC, "fw-red", "fw-blue", "fw-red-remote", "fw-blue-remote"];
/// Programs that the demo runs, and the packages that have them.
const TOOLS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
    ("timeout", "coreutils"),
];
/// Segmentation and checksums that the kernel leaves to a card which is none.
const NO_OFFLOADS: &str = "tx off tso off gso off gro off";

/// The namespaces exist as long as this does.
pub struct Layout {
    built: bool,
}

/// The namespace and the interface of a place.
pub fn namespace_of(place: Place) -> (String, String) {
    match place {
        Place::Host(tenant) => (format!("fw-{}", tenant.name()), format!("fw-{}0", tenant.name())),
        Place::Remote(tenant) => (format!("fw-{}-remote", tenant.name()), "eth0".into()),
        Place::Fabric => (FABRIC.into(), "fab0".into()),
    }
}

/// An error, in a sentence, when this machine cannot have the namespaces.
pub fn check_machine() -> Outcome<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err("only root can make network namespaces".into());
    }
    for (tool, package) in TOOLS {
        let found =
            Command::new("sh").args(["-c", &format!("command -v {tool}")]).stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(format!("there is no {tool} (package {package})"));
        }
    }
    let probe = "fw-probe";
    run(&format!("ip netns add {probe}"))
        .map_err(|error| format!("network namespaces cannot be made: {error}"))?;
    run(&format!("ip netns del {probe}"))
}

/// Runs `act` on a thread in that namespace. Sockets that it opens stay there.
pub fn run_inside<T: Send + 'static>(
    namespace: &str,
    act: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let namespace = namespace.to_owned();
    let enter = move || {
        let file =
            File::open(format!("/run/netns/{namespace}")).map_err(|error| format!("{namespace}: {error}"))?;
        setns(file, CloneFlags::CLONE_NEWNET)
            .map_err(|error| format!("cannot enter {namespace}: {error}"))?;
        act()
    };
    std::thread::spawn(enter).join().unwrap_or_else(|_| Err("a thread ended by a panic".into()))
}

impl Layout {
    /// Makes everything but the tenants' ports, which are floodway's. Whatever an earlier demo left when it was killed is
    /// removed before.
    pub fn build() -> Outcome<Self> {
        for tenant in Tenant::ALL {
            let (namespace, interface) = namespace_of(Place::Host(tenant));
            if run(&format!("ip -n {namespace} link show {interface}")).is_ok() {
                return Err(format!("a floodwayd serves {interface} in {namespace}: another demo runs"));
            }
        }
        remove();
        println!(
            "- namespaces {}: veth {UPLINK}, a VXLAN device and a bridge per tenant",
            NAMESPACES.join(", ")
        );
        let layout = Self { built: true };
        for namespace in NAMESPACES {
            run(&format!("ip netns add {namespace}"))?;
            quiet(namespace, "default")?;
            run(&format!("ip -n {namespace} link set lo up"))?;
        }
        build_uplink()?;
        for tenant in Tenant::ALL {
            build_remote(tenant)?;
        }
        Ok(layout)
    }

    /// Moves the tenant's port, a TAP of net_tap, to the tenant and configures it as its policy says.
    pub fn give_port(&self, tenant: Tenant) -> Outcome<()> {
        let (namespace, interface) = namespace_of(Place::Host(tenant));
        println!("- {interface} moves to {namespace}: 10.1.0.10/24, {}", tenant.mac());
        run(&format!("ip link set {interface} netns {namespace}"))?;
        quiet(&namespace, &interface)?;
        // A TAP has no GRO and TSO to switch off, in some kernels.
        run(&format!("ip netns exec {namespace} ethtool -K {interface} tx off"))?;
        run(&format!("ip -n {namespace} link set {interface} address {} mtu 1500", tenant.mac()))?;
        run(&format!("ip -n {namespace} addr add 10.1.0.10/24 dev {interface}"))?;
        run(&format!("ip -n {namespace} link set {interface} up"))
    }

    /// The tenants' ports that are still there.
    pub fn find_ports(&self) -> Vec<String> {
        let places = Tenant::ALL.map(|tenant| namespace_of(Place::Host(tenant)));
        let is_there = |(namespace, interface): &(String, String)| {
            run(&format!("ip -n {namespace} link show {interface}")).is_ok()
        };
        places
            .iter()
            .filter(|place| is_there(place))
            .map(|(_, interface)| format!("TAP {interface} is left"))
            .collect()
    }

    /// Takes everything down.
    pub fn remove(&mut self) {
        if std::mem::take(&mut self.built) {
            remove();
        }
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        self.remove();
    }
}

/// What of the demo's is still there.
pub fn find_leftovers() -> Vec<String> {
    let namespaces = NAMESPACES.iter().filter(|name| Path::new("/run/netns").join(name).exists());
    let links = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let links = links.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let links = links.filter(|name| name.starts_with("fw-"));
    namespaces
        .map(|name| format!("namespace {name} is left"))
        .chain(links.map(|name| format!("link {name} is left")))
        .collect()
}

fn build_uplink() -> Outcome<()> {
    run(&format!("ip link add {UPLINK} type veth peer name fab0 netns {FABRIC}"))?;
    let no_ipv6 = format!("/proc/sys/net/ipv6/conf/{UPLINK}/disable_ipv6");
    if Path::new(&no_ipv6).exists() {
        std::fs::write(&no_ipv6, "1").map_err(|error| format!("{no_ipv6}: {error}"))?;
    }
    run(&format!("ip link set {UPLINK} mtu 1600 up"))?;
    run(&format!("ethtool -K {UPLINK} {NO_OFFLOADS}"))?;
    quiet(FABRIC, "fab0")?;
    run(&format!("ip -n {FABRIC} link set fab0 mtu 1600 up"))?;
    run(&format!("ip -n {FABRIC} addr add 192.0.2.2/24 dev fab0"))?;
    run(&format!("ip netns exec {FABRIC} ethtool -K fab0 {NO_OFFLOADS}"))
}

fn build_remote(tenant: Tenant) -> Outcome<()> {
    let (name, vni, mac) = (tenant.name(), tenant.vni(), tenant.remote_mac());
    let (remote, _) = namespace_of(Place::Remote(tenant));
    let vxlan = format!("id {vni} local 192.0.2.2 remote 192.0.2.1 dstport 4789 dev fab0");
    run(&format!("ip -n {FABRIC} link add vx-{name} type vxlan {vxlan}"))?;
    run(&format!("ip -n {FABRIC} link add br-{name} type bridge"))?;
    run(&format!("ip -n {FABRIC} link add v-{name} type veth peer name eth0 netns {remote}"))?;
    for link in [format!("vx-{name}"), format!("v-{name}"), format!("br-{name}")] {
        quiet(FABRIC, &link)?;
        let master = if link.starts_with("br-") { String::new() } else { format!("master br-{name} ") };
        run(&format!("ip -n {FABRIC} link set {link} mtu 1500 {master}up"))?;
    }
    quiet(&remote, "eth0")?;
    run(&format!("ip -n {remote} link set eth0 address {mac} mtu 1500 up"))?;
    run(&format!("ip -n {remote} addr add 10.1.0.20/24 dev eth0"))?;
    run(&format!("ip netns exec {remote} ethtool -K eth0 {NO_OFFLOADS}"))
}

/// Keeps the kernel from sending what nobody asked for: router solicitations, multicast reports.
fn quiet(namespace: &str, interface: &str) -> Outcome<()> {
    let file = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    run_inside(namespace, move || {
        if !Path::new("/proc/sys/net/ipv6").exists() {
            return Ok(());
        }
        std::fs::write(&file, "1").map_err(|error| format!("{file}: {error}"))
    })
}

fn remove() {
    // Devices go with their namespaces. What is not there cannot be removed: that is no error.
    for namespace in NAMESPACES {
        let _ = run(&format!("ip netns del {namespace}"));
    }
    if Path::new("/sys/class/net").join(UPLINK).exists() {
        let _ = run(&format!("ip link del {UPLINK}"));
    }
}

fn run(command: &str) -> Outcome<()> {
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output().map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
