//! The cards: there at all, driven, with firmware, and switching in hardware.

use crate::{
    Machine, Setup,
    finding::{Found, fail, ok, skipped},
};

const DEVICES: &str = "/sys/bus/pci/devices";

pub(crate) fn devices(machine: &Machine, setup: &Setup) -> Found {
    let all = machine.list(DEVICES);
    let cards: Vec<_> = all.iter().filter(|address| machine.is_mellanox(address)).collect();
    let describe = |address: &String| {
        let device = machine.pci(address, "device").unwrap_or_default();
        format!("{address} {} driver {}", model(&device), driver(machine, address))
    };
    let described: Vec<String> = cards.iter().map(|address| describe(address)).collect();
    let seen = match described.as_slice() {
        [] => format!("{DEVICES}: {} devices, none of vendor 15b3", all.len()),
        some => format!("{DEVICES}: {}", some.join("; ")),
    };
    if let Some(missing) = setup.pci().iter().find(|address| !all.contains(address)) {
        let fix = "lspci -D -d 15b3:   # and write that address into the Fabric's device";
        return fail(seen, format!("the Fabric names {missing}, which is not there"), fix);
    }
    match cards.iter().find(|address| driver(machine, address) != "mlx5_core") {
        Some(address) => fail(
            seen,
            format!("{address} is not driven by mlx5_core, which DPDK's mlx5 works beside"),
            format!("modprobe mlx5_core; echo {address} > /sys/bus/pci/drivers/mlx5_core/bind"),
        ),
        None if cards.is_empty() => skipped(seen, "no BlueField and no ConnectX"),
        None => ok(seen),
    }
}

pub(crate) fn firmware(machine: &Machine, _: &Setup) -> Found {
    let cards: Vec<_> =
        machine.list(DEVICES).into_iter().filter(|address| machine.is_mellanox(address)).collect();
    if cards.is_empty() {
        return skipped("/sys/class/infiniband", "no BlueField and no ConnectX");
    }
    let rdma = |card: &str| machine.list(&crate::machine::pci_path(card, "infiniband")).into_iter().next();
    let mut versions = Vec::new();
    for card in &cards {
        let version = rdma(card).and_then(|name| {
            Some(format!("{name} {}", machine.read(&format!("/sys/class/infiniband/{name}/fw_ver"))?))
        });
        match version {
            Some(version) => versions.push(format!("{card}: {version}")),
            None => {
                return fail(
                    format!("/sys/class/infiniband/*/fw_ver of {card}: none"),
                    "the card has no RDMA device, without which DPDK's mlx5 finds no port",
                    "modprobe mlx5_ib",
                );
            }
        }
    }
    ok(format!("/sys/class/infiniband/*/fw_ver: {}", versions.join("; ")))
}

pub(crate) fn switchdev(machine: &Machine, setup: &Setup) -> Found {
    let mut cards = setup.pci();
    cards.retain(|address| machine.is_mellanox(address));
    let wants = setup.dpdk().any(|arguments| arguments.contains("representor="));
    let Some(card) = cards.first().filter(|_| wants) else {
        return skipped("ports of the Fabric", "none is a representor");
    };
    let device = format!("pci/{card}");
    let said = machine.command("devlink", &["dev", "eswitch", "show", &device]);
    let mode = said.as_deref().and_then(|said| {
        let mut words = said.split_whitespace().skip_while(|word| *word != "mode");
        words.nth(1).map(str::to_owned)
    });
    // Without devlink: only ports of a switch say which.
    let switch = machine.netdevs().into_iter().find(|netdev| {
        netdev.pci.as_ref() == Some(card) && netdev.switch_id.is_some() && netdev.port_name.is_some()
    });
    let seen = match (&mode, &switch) {
        (Some(mode), _) => format!("devlink dev eswitch show {device}: mode {mode}"),
        (None, Some(netdev)) => {
            let id = netdev.switch_id.as_deref().unwrap_or_default();
            format!("/sys/class/net/{}/phys_switch_id: {id}", netdev.name)
        }
        (None, None) => format!("/sys/class/net/*/phys_switch_id of {card}: none"),
    };
    let is_on = mode.map_or(switch.is_some(), |mode| mode == "switchdev" || mode == "switchdev_inactive");
    match is_on {
        true => ok(seen),
        false => fail(
            seen,
            "the card's switch is not in switchdev mode: there are no representors",
            format!("devlink dev eswitch set {device} mode switchdev"),
        ),
    }
}

fn driver(machine: &Machine, address: &str) -> String {
    machine.driver(address).unwrap_or_else(|| "none".into())
}

/// The family of a device id (pci.ids, vendor 15b3).
fn model(device: &str) -> &str {
    match device {
        "0x1017" | "0x1018" => "ConnectX-5",
        "0x1019" | "0x101a" => "ConnectX-5 Ex",
        "0x101b" | "0x101c" => "ConnectX-6",
        "0x101d" => "ConnectX-6 Dx",
        "0x101e" => "VF",
        "0x101f" => "ConnectX-6 Lx",
        "0x1021" => "ConnectX-7",
        "0x1023" => "ConnectX-8",
        "0xa2d2" | "0xa2d3" => "BlueField",
        "0xa2d6" => "BlueField-2",
        "0xa2dc" => "BlueField-3",
        other => other,
    }
}
