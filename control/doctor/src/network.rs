//! The ports of the Fabric as the kernel has them.

use std::net::IpAddr;

use program::Device;

use crate::{
    Machine, Setup,
    finding::{Found, fail, ok, skipped, warn},
    machine::{Netdev, pci_address},
};

/// The kernel's device below a port of the Fabric.
fn below<'a>(device: &Device, netdevs: &'a [Netdev]) -> Option<&'a Netdev> {
    let named = |name: &str| netdevs.iter().find(|netdev| netdev.name == name);
    if let Some(interface) = device.device.strip_prefix("tap:") {
        return named(interface);
    }
    let arguments = device.device.strip_prefix("dpdk:")?;
    if let Some(interface) = value(arguments, "iface=") {
        return named(interface);
    }
    let card = pci_address(arguments)?;
    let representor = value(arguments, "representor=");
    netdevs.iter().filter(|netdev| netdev.pci.as_ref() == Some(&card)).find(|netdev| {
        match (representor, &netdev.port_name) {
            (Some(wanted), Some(name)) => name.ends_with(wanted) && name.starts_with("pf"),
            (Some(_), None) => false,
            (None, name) => name.as_ref().is_none_or(|name| !name.starts_with("pf")),
        }
    })
}

fn value<'a>(arguments: &'a str, key: &str) -> Option<&'a str> {
    arguments.split(',').find_map(|argument| argument.strip_prefix(key))
}

pub(crate) fn representors(machine: &Machine, setup: &Setup) -> Found {
    let netdevs = machine.netdevs();
    let wanted = setup.devices().iter().filter(|device| device.device.contains("representor="));
    let found: Vec<_> = wanted.map(|device| (device, below(device, &netdevs))).collect();
    let seen: Vec<_> = netdevs
        .iter()
        .filter_map(|netdev| Some(format!("{} {}", netdev.name, netdev.port_name.as_ref()?)))
        .collect();
    let seen = format!(
        "/sys/class/net/*/phys_port_name: {}",
        if seen.is_empty() { "none".into() } else { seen.join(", ") }
    );
    match found.iter().find(|(_, netdev)| netdev.is_none()) {
        _ if found.is_empty() => skipped(seen, "no port of the Fabric is a representor"),
        Some((device, _)) => fail(
            seen,
            format!("port {:?} is {}, and there is no such representor", device.name, device.device),
            "on the host: echo 2 > /sys/class/net/<pf>/device/sriov_numvfs   # as many as the Fabric names",
        ),
        None => ok(seen),
    }
}

pub(crate) fn mtu(machine: &Machine, setup: &Setup) -> Found {
    let Some(program) = &setup.program else {
        return skipped("/sys/class/net/*/mtu", "no policy directory says what the MTUs are to be");
    };
    if let Some(found) = tunnel_mtu(program) {
        return found;
    }
    let netdevs = machine.netdevs();
    let mut seen = Vec::new();
    for device in &program.devices {
        let Some(netdev) = below(device, &netdevs) else { continue };
        let Some(mtu) = netdev.mtu else { continue };
        seen.push(format!("{} {mtu}", netdev.name));
        if mtu < u32::from(device.mtu) {
            return fail(
                format!("/sys/class/net/{}/mtu: {mtu}", netdev.name),
                format!("port {:?} of the Fabric has {}: larger packets are lost", device.name, device.mtu),
                format!("ip link set {} mtu {}", netdev.name, device.mtu),
            );
        }
    }
    match seen.is_empty() {
        true => skipped("/sys/class/net/*/mtu", "no port of the Fabric has a device of the kernel below it"),
        false => ok(format!("/sys/class/net/*/mtu: {}", seen.join(", "))),
    }
}

/// The tunnel's headers have to fit beside the largest packet of a tenant.
fn tunnel_mtu(program: &program::Program) -> Option<Found> {
    let uplink = program.devices.get(usize::from(program.uplink.as_ref()?.port.0))?;
    // Inner Ethernet, VXLAN, UDP and outer IP (RFC 7348, section 5).
    let overhead = |address: IpAddr| if address.is_ipv4() { 50_u16 } else { 70 };
    let overhead = program.vteps.iter().flatten().map(|vtep| overhead(vtep.address)).max()?;
    let ports = program.ports.iter().flatten().map(|port| &program.devices[usize::from(port.id.0)]);
    let widest = ports.max_by_key(|device| device.mtu)?;
    let need = widest.mtu.saturating_add(overhead);
    (uplink.mtu < need).then(|| {
        warn(
            format!("the Fabric: uplink {}, port {:?} {}", uplink.mtu, widest.name, widest.mtu),
            format!("the tunnel takes {overhead} bytes: what the port may send does not fit, and is refused as too-big"),
            format!("set mtu: {need} of port {:?} in the Fabric, or lower that of {:?}", uplink.name, widest.name),
        )
    })
}

pub(crate) fn rss(machine: &Machine, setup: &Setup) -> Found {
    let netdevs = machine.netdevs();
    let cards = setup.devices().iter().filter(|device| device.device.starts_with("dpdk:"));
    let below: Vec<_> = cards.filter_map(|device| below(device, &netdevs)).collect();
    let workers = setup.lcores.len().max(1);
    let queues = |netdev: &Netdev| {
        let said = machine.command("ethtool", &["-l", &netdev.name]);
        let most = said.as_deref().and_then(most_combined);
        let names = machine.list(&format!("/sys/class/net/{}/queues", netdev.name));
        most.unwrap_or_else(|| names.iter().filter(|name| name.starts_with("rx-")).count())
    };
    let counted: Vec<_> =
        below.iter().map(|netdev| (netdev, queues(netdev))).filter(|(_, count)| *count > 0).collect();
    let Some((netdev, least)) = counted.iter().min_by_key(|(_, count)| *count) else {
        return skipped(
            "ethtool -l, /sys/class/net/*/queues",
            "no port of the Fabric has a card's device below it",
        );
    };
    let seen = format!("{}: {least} receive queues, {workers} workers", netdev.name);
    match *least < workers {
        false => ok(seen),
        true => warn(
            seen,
            "the card cannot spread packets over all workers: they hand them to each other",
            format!("ethtool -L {} combined {workers}   # or start with {least} workers", netdev.name),
        ),
    }
}

/// The line `Combined:` below `Pre-set maximums:`.
fn most_combined(said: &str) -> Option<usize> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("Pre-set maximums"));
    lines.find_map(|line| line.strip_prefix("Combined:")?.trim().parse().ok())
}
