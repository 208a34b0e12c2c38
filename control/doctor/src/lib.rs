//! What is wrong with a machine that is to run floodway, or with the daemon that runs there, and the command that puts it
//! right. Everything is read below a root folder, so that a made tree can be examined as well.
#![forbid(unsafe_code)]

mod cards;
mod cpus;
mod daemon;
mod dpdk;
mod ecn;
mod finding;
mod iommu;
mod machine;
mod memory;
mod network;
mod time;

pub use daemon::Daemon;
pub use finding::{Finding, Verdict};
pub use machine::Machine;

use finding::Found;
use program::{Device, Program};

/// What the daemon is to be started with.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// What the policy directory compiles to; without it, what hangs on its ports is skipped.
    pub program: Option<Program>,
    /// CPUs of the workers; empty when nobody has said.
    pub lcores: Vec<usize>,
    /// Packet buffers of all workers.
    pub buffers: u32,
    /// The daemon takes its hugepages from a hugetlbfs.
    pub hugetlbfs: bool,
    /// What a daemon said, or why none did; `None` when none was asked.
    pub daemon: Option<Result<Daemon, String>>,
}

impl Setup {
    fn devices(&self) -> &[Device] {
        self.program.as_ref().map_or(&[], |program| &program.devices)
    }

    /// Arguments of the devices that DPDK opens.
    fn dpdk(&self) -> impl Iterator<Item = &str> {
        self.devices().iter().filter_map(|device| device.device.strip_prefix("dpdk:"))
    }

    /// PCI addresses among them, each once, with the domain.
    fn pci(&self) -> Vec<String> {
        let mut all: Vec<String> = self.dpdk().filter_map(machine::pci_address).collect();
        all.sort();
        all.dedup();
        all
    }

    fn is_running(&self) -> bool {
        matches!(self.daemon, Some(Ok(_)))
    }
}

type Check = fn(&Machine, &Setup) -> Found;

/// Every check there is, in the order in which one hangs on the other.
const CHECKS: &[(&str, Check)] = &[
    ("hugepages", memory::hugepages),
    ("hugepages-numa", memory::hugepages_numa),
    ("hugetlbfs", memory::hugetlbfs),
    ("thp", memory::thp),
    ("iommu", iommu::iommu),
    ("vfio", iommu::vfio),
    ("libdpdk", dpdk::library),
    ("mlx5-pmd", dpdk::mlx5),
    ("devices", cards::devices),
    ("firmware", cards::firmware),
    ("switchdev", cards::switchdev),
    ("representors", network::representors),
    ("mtu", network::mtu),
    ("rss", network::rss),
    ("clocksource", time::clocksource),
    ("tsc", time::tsc),
    ("time-sync", time::sync),
    ("numa", cpus::numa),
    ("isolation", cpus::isolation),
    ("governor", cpus::governor),
    ("ecn-roce", ecn::roce),
    ("ecn-tunnel", ecn::tunnel),
    ("ecn-end-to-end", ecn::end_to_end),
    ("daemon", daemon::answers),
    ("workers", daemon::workers),
    ("policy", daemon::policy),
    ("losses", daemon::losses),
];

/// The names of the checks, in their order.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|(name, _)| *name)
}

/// A finding of each check. Nothing is changed, and nothing is sent.
pub fn examine(machine: &Machine, setup: &Setup) -> Vec<Finding> {
    CHECKS.iter().map(|(name, check)| check(machine, setup).of(name)).collect()
}
