//! Hugepages for packet buffers, and large pages for tables.

use crate::{
    Machine, Setup,
    finding::{Found, fail, ok, skipped, warn},
};

/// DPDK's buffer: its structure, its headroom and the pool's own header, in bytes (`rte_mbuf.h`, `rte_mempool.h`).
const BUFFER_HEAD_BYTES: u64 = 128 + 128 + 64;
/// Room for a frame in a buffer of a Fabric with an MTU of 1500.
const ROOM_BYTES_MIN: u64 = 2048;
/// Bytes of a frame beside its IP packet: Ethernet header, VLAN tag and FCS.
const FRAME_OVERHEAD_BYTES: u64 = 22;
/// Queues, rings and DPDK's own structures, generously.
const OTHER_BYTES: u64 = 32 << 20;

const ALL: &str = "/sys/kernel/mm/hugepages";

/// Pages of all sizes below one folder, in bytes.
struct Pages {
    reserved: u64,
    free: u64,
    text: String,
}

pub(crate) fn hugepages(machine: &Machine, setup: &Setup) -> Found {
    let pages = pages(machine, ALL);
    let seen = format!("{ALL}: {}", pages.text);
    if setup.program.is_some() && setup.dpdk().next().is_none() {
        return skipped(seen, "no port of the Fabric is opened by DPDK");
    }
    let need = need_bytes(setup);
    let fix = format!("sysctl -w vm.nr_hugepages={}", need.div_ceil(2 << 20));
    // What a running daemon has taken is not free, and is its own.
    let have = if setup.is_running() { pages.reserved } else { pages.free };
    if pages.reserved == 0 {
        fail(seen, format!("no hugepage is reserved; packet buffers need {}", mib(need)), fix)
    } else if have < need {
        fail(seen, format!("packet buffers need {}, and {} are to be had", mib(need), mib(have)), fix)
    } else {
        ok(format!("{seen}; {} needed", mib(need)))
    }
}

pub(crate) fn hugepages_numa(machine: &Machine, setup: &Setup) -> Found {
    let nodes: Vec<u32> = setup.pci().iter().filter_map(|address| machine.node(address)).collect();
    let Some(node) = nodes.first() else {
        return skipped("numa_node of the ports' cards", "no card of the Fabric says its NUMA node");
    };
    let folder = format!("/sys/devices/system/node/node{node}/hugepages");
    let pages = pages(machine, &folder);
    let seen = format!("{folder}: {}", pages.text);
    let need = need_bytes(setup);
    let have = if setup.is_running() { pages.reserved } else { pages.free };
    if have >= need {
        return ok(seen);
    }
    warn(
        seen,
        format!("the card is at node {node}, which has {} of the {} for its buffers", mib(have), mib(need)),
        format!("echo {} > {folder}/hugepages-2048kB/nr_hugepages", need.div_ceil(2 << 20)),
    )
}

pub(crate) fn hugetlbfs(machine: &Machine, setup: &Setup) -> Found {
    let mounts = machine.read("/proc/mounts").unwrap_or_default();
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "hugetlbfs").then(|| place.to_owned())
    });
    match mounted {
        Some(place) => ok(format!("/proc/mounts: hugetlbfs on {place}")),
        None if setup.hugetlbfs => fail(
            "/proc/mounts: no hugetlbfs",
            "--memory hugetlbfs has nowhere to put its files",
            "mkdir -p /dev/hugepages && mount -t hugetlbfs none /dev/hugepages",
        ),
        None => skipped("/proc/mounts: no hugetlbfs", "--memory in-memory, the default, needs none"),
    }
}

pub(crate) fn thp(machine: &Machine, _: &Setup) -> Found {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let Some(modes) = machine.read(path) else {
        return skipped(path, "this kernel has no transparent hugepages");
    };
    let seen = format!("{path}: {modes}");
    if modes.contains("[never]") {
        let problem = "flow tables get small pages: a lookup in a large one misses the TLB";
        return warn(seen, problem, format!("echo madvise > {path}"));
    }
    ok(seen)
}

/// What the packet buffers of the Fabric take.
fn need_bytes(setup: &Setup) -> u64 {
    let mtu = setup.devices().iter().map(|device| u64::from(device.mtu)).max().unwrap_or(0);
    let room = (mtu + FRAME_OVERHEAD_BYTES).max(ROOM_BYTES_MIN);
    let buffer = (BUFFER_HEAD_BYTES + room).next_multiple_of(64);
    u64::from(setup.buffers) * buffer + OTHER_BYTES
}

fn pages(machine: &Machine, folder: &str) -> Pages {
    let mut pages = Pages { reserved: 0, free: 0, text: String::new() };
    for size in machine.list(folder) {
        let kib = size.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB"));
        let Some(kib) = kib.and_then(|kib| kib.parse::<u64>().ok()) else { continue };
        let count =
            |what: &str| machine.number(&format!("{folder}/{size}/{what}_hugepages")).unwrap_or(0_u64);
        let (reserved, free) = (count("nr"), count("free"));
        pages.reserved += reserved.saturating_mul(kib << 10);
        pages.free += free.saturating_mul(kib << 10);
        let comma = if pages.text.is_empty() { "" } else { ", " };
        pages.text += &format!("{comma}{free} of {reserved} free of {kib} KiB");
    }
    if pages.text.is_empty() {
        pages.text = "none".into();
    }
    pages
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}
