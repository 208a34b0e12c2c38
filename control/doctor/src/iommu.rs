//! IOMMU and VFIO, which devices need whose driver is not the kernel's own. NVIDIA's cards are driven beside the kernel's
//! driver, and need neither.

use crate::{
    Machine, Setup,
    finding::{Found, fail, ok, skipped, warn},
};

/// Where VFIO says that it works without an IOMMU.
const NO_IOMMU: &str = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode";

/// Cards of the Fabric that are handed to DPDK whole.
fn handed_over(machine: &Machine, setup: &Setup) -> Vec<String> {
    let mut cards = setup.pci();
    cards.retain(|address| !machine.is_mellanox(address));
    cards
}

fn is_unsafe(machine: &Machine) -> bool {
    machine.read(NO_IOMMU).is_some_and(|value| matches!(value.as_str(), "Y" | "1"))
}

pub(crate) fn iommu(machine: &Machine, setup: &Setup) -> Found {
    let groups = machine.list("/sys/kernel/iommu_groups").len();
    let line = machine.read("/proc/cmdline").unwrap_or_default();
    let asked = line.split(' ').filter(|word| word.contains("iommu") || word.starts_with("arm-smmu"));
    let asked: Vec<&str> = asked.collect();
    let seen = format!("/sys/kernel/iommu_groups: {groups}; /proc/cmdline: {}", or_none(&asked.join(" ")));
    if groups > 0 {
        return ok(seen);
    }
    let cards = handed_over(machine, setup);
    if cards.is_empty() {
        return skipped(seen, "no IOMMU, and no card of the Fabric is handed over by VFIO");
    }
    let problem = format!("{} would reach all memory by DMA, or is refused by VFIO", cards.join(", "));
    let intel = machine.read("/proc/cpuinfo").is_some_and(|text| text.contains("GenuineIntel"));
    let fix = match intel {
        true => "add intel_iommu=on iommu=pt to the kernel's command line, and boot again",
        false => {
            "switch on the IOMMU (AMD-Vi, or the SMMU of an Arm machine) in the firmware, and boot again"
        }
    };
    if is_unsafe(machine) { warn(seen + "; no-IOMMU mode", problem, fix) } else { fail(seen, problem, fix) }
}

pub(crate) fn vfio(machine: &Machine, setup: &Setup) -> Found {
    let cards = handed_over(machine, setup);
    let Some(first) = cards.first() else {
        return skipped(
            "cards of the Fabric",
            "none is handed over by VFIO: mlx5 works beside the kernel's driver",
        );
    };
    let is_loaded = machine.exists("/sys/module/vfio_pci");
    let seen = format!("/sys/module/vfio_pci: {}", if is_loaded { "loaded" } else { "not loaded" });
    if !is_loaded {
        return fail(seen, "no driver can hand cards over", "modprobe vfio-pci");
    }
    let drivers: Vec<_> = cards.iter().map(|card| (card, machine.driver(card))).collect();
    let is_bound = |driver: &Option<String>| driver.as_deref() == Some("vfio-pci");
    match drivers.iter().find(|(_, driver)| !is_bound(driver)) {
        Some((card, driver)) => fail(
            format!("{seen}; {card}: {}", driver.as_deref().unwrap_or("no driver")),
            format!("{card} is not bound to vfio-pci"),
            format!("dpdk-devbind.py --bind=vfio-pci {card}"),
        ),
        None if is_unsafe(machine) => warn(
            format!("{seen}; {NO_IOMMU}: Y"),
            format!("{first} reaches all memory by DMA"),
            format!("switch on the IOMMU, then echo N > {NO_IOMMU}"),
        ),
        None => ok(format!("{seen}; {} bound to vfio-pci", cards.join(", "))),
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "nothing of it" } else { text }
}
