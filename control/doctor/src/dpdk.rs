//! DPDK's libraries and the drivers that it loads.

use crate::{
    Machine, Setup,
    finding::{Found, fail, ok, skipped},
};

/// Folders of libraries; those of one architecture are a level below.
const FOLDERS: [&str; 5] =
    ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/opt/mellanox/dpdk/lib"];

fn folders(machine: &Machine) -> impl Iterator<Item = String> {
    FOLDERS.into_iter().flat_map(|folder| {
        let below = machine.list(folder).into_iter().filter(|name| name.contains("-linux-gnu"));
        let below: Vec<_> = below.map(|name| format!("{folder}/{name}")).collect();
        [folder.to_owned()].into_iter().chain(below)
    })
}

/// DPDK is linked by its release: a library of another one is not taken.
pub(crate) fn library(machine: &Machine, setup: &Setup) -> Found {
    if setup.program.is_some() && setup.dpdk().next().is_none() {
        return skipped("ports of the Fabric", "none is opened by DPDK");
    }
    let found = folders(machine).find_map(|folder| {
        let version = machine.read(&format!("{folder}/pkgconfig/libdpdk.pc")).and_then(|text| {
            text.lines().find_map(|line| Some(line.strip_prefix("Version:")?.trim().to_owned()))
        });
        let names = machine.list(&folder);
        let library = names.into_iter().find(|name| name.starts_with("librte_eal.so"))?;
        Some((format!("{folder}/{library}"), version))
    });
    match found {
        Some((library, Some(version))) => ok(format!("{library}, version {version}")),
        Some((library, None)) => ok(format!("{library}, without libdpdk.pc")),
        None => fail(
            format!("librte_eal.so in {}", FOLDERS.join(", ")),
            "DPDK is not installed",
            "apt-get install libdpdk-dev",
        ),
    }
}

pub(crate) fn mlx5(machine: &Machine, setup: &Setup) -> Found {
    let wants = setup.dpdk().any(|arguments| {
        arguments.starts_with("auxiliary:mlx5")
            || crate::machine::pci_address(arguments).is_some_and(|address| machine.is_mellanox(&address))
    });
    if !wants {
        return skipped("ports of the Fabric", "none is of a card for the driver mlx5");
    }
    let found = folders(machine).find_map(|folder| {
        let plugins = machine.list(&format!("{folder}/dpdk"));
        let plugins = plugins.into_iter().filter(|name| name.starts_with("pmds-"));
        let places = plugins.map(|plugins| format!("{folder}/dpdk/{plugins}")).chain([folder.clone()]);
        let mut places = places.map(|place| format!("{place}/librte_net_mlx5.so"));
        places.find(|driver| machine.exists(driver))
    });
    match found {
        Some(driver) => ok(driver),
        None => fail(
            "librte_net_mlx5.so beside DPDK's libraries",
            "DPDK's driver of ConnectX and BlueField is not installed",
            "apt-get install librte-net-mlx5-23 libibverbs1 ibverbs-providers   # the number is that of your DPDK",
        ),
    }
}
