//! Ports over DPDK: a card's uplinks and representors, or virtual devices of the host.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use backends::dpdk::{DpdkAllocator, DpdkBackend, DpdkPort, DpdkPortConfig};
use dpdk::{Eal, LcoreGuard, Mempool, PoolConfig};
use edge::Facts;
use engine::{Layout, WorkerId, WorkerPorts};
use program::{Device, PoolReport, Program};
use wire::Mac;

use super::{DPDK, World};
use crate::args::{Args, Memory};
use crate::clock::TscClock;
use crate::plane::PoolLevel;

/// Bytes of a frame beside its IP packet: Ethernet header, VLAN tag and FCS.
const FRAME_OVERHEAD: u16 = 22;
/// A PCI address that no device has.
const NO_DEVICE: &str = "0000:00:00.0";
/// Ordinary memory for DPDK when there are no hugepages, in MiB.
const NO_HUGE_MIB: u32 = 512;

/// Open ports. Buffers and DPDK itself are dropped after them.
pub struct DpdkPorts {
    ports: Vec<DpdkPort>,
    pool: Mempool,
    eal: Arc<Eal>,
}

impl Drop for DpdkPorts {
    /// Last opened, first closed: a card's uplink must outlive its representors.
    fn drop(&mut self) {
        while self.ports.pop().is_some() {}
    }
}

/// Starts DPDK and opens every device of the program.
pub fn open(args: &Args, program: &Program) -> anyhow::Result<DpdkPorts> {
    let eal = Arc::new(start_eal(args, &program.devices).context("DPDK does not start")?);
    let pool = Mempool::new(&eal, &pool_config(args, &program.devices)).context("no packet buffers")?;
    let mut opened = DpdkPorts { ports: Vec::new(), pool, eal };
    for device in &program.devices {
        check_interface_mtu(device)?;
        let config = DpdkPortConfig { queues: args.workers(), pool: opened.pool.clone(), mtu: device.mtu };
        let port = DpdkPort::open(&opened.eal, devargs(device), config)
            .with_context(|| format!("port {:?}", device.name))?;
        let mac = Mac(port.facts().mac);
        tracing::info!(port = device.name, device = device.device, driver = port.facts().driver, %mac, queues = port.queues(), "open");
        opened.ports.push(port);
    }
    Ok(opened)
}

/// Buffers that hold the largest frame of any port.
fn pool_config(args: &Args, devices: &[Device]) -> PoolConfig {
    let standard = PoolConfig::new("floodway", args.buffers());
    let frame = devices.iter().map(|device| device.mtu.saturating_add(FRAME_OVERHEAD)).max().unwrap_or(0);
    PoolConfig { room_bytes: standard.room_bytes.max(frame), ..standard }
}

fn start_eal(args: &Args, devices: &[Device]) -> anyhow::Result<Eal> {
    let builder = Eal::builder().lcores([main_cpu()?]);
    let builder = match args.memory {
        Memory::Anonymous => builder.in_memory(),
        Memory::Hugetlbfs => builder.file_prefix(&args.file_prefix),
        Memory::NoHuge => builder.no_huge(NO_HUGE_MIB).no_shconf().file_prefix(&args.file_prefix),
    };
    let builder = match devices.iter().any(|device| is_pci(devargs(device))) {
        false => builder.no_pci(),
        // EAL itself takes no PCI device from the kernel: it is told to look at one that does not exist. Each that the
        // Fabric names is probed when its port is opened, with the arguments given there.
        true => builder.allow(NO_DEVICE),
    };
    let builder = args.eal_args.iter().fold(builder, |builder, arg| builder.arg(arg));
    Ok(builder.init()?)
}

/// The CPU that the daemon runs on now; the workers have their own.
fn main_cpu() -> anyhow::Result<usize> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).context("no CPU affinity")?;
    let count = nix::sched::CpuSet::count();
    (0..count).find(|cpu| allowed.is_set(*cpu).unwrap_or(false)).ok_or_else(|| anyhow!("no CPU to run on"))
}

/// An `net_af_packet` port carries what its interface does, and says nothing of what it loses.
fn check_interface_mtu(device: &Device) -> anyhow::Result<()> {
    let arguments = devargs(device);
    let Some(interface) = arguments.split(',').find_map(|argument| argument.strip_prefix("iface=")) else {
        return Ok(());
    };
    let mtu = std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu"));
    let mtu: Option<u32> = mtu.ok().and_then(|text| text.trim().parse().ok());
    match mtu {
        Some(mtu) if arguments.starts_with("net_af_packet") && mtu < u32::from(device.mtu) => Err(anyhow!(
            "port {:?}: interface {interface} has an MTU of {mtu}, and the Fabric says {}: ip link set {interface} mtu {}",
            device.name,
            device.mtu,
            device.mtu
        )),
        _ => Ok(()),
    }
}

fn devargs(device: &Device) -> &str {
    device.device.strip_prefix(DPDK).unwrap_or(&device.device)
}

/// `0000:03:00.0`, `03:00.0` or `auxiliary:mlx5_core.sf.4`, with arguments or without.
fn is_pci(devargs: &str) -> bool {
    let name = devargs.split(',').next().unwrap_or_default();
    name.starts_with("auxiliary:")
        || name.ends_with(|c: char| c.is_ascii_digit()) && name.contains(':') && name.contains('.')
}

impl World for DpdkPorts {
    type Backend = DpdkBackend;
    type Clock = TscClock;
    type ThreadGuard = LcoreGuard;

    fn facts(&self) -> Vec<Facts> {
        self.ports.iter().map(|port| Facts { mac: Mac(port.facts().mac) }).collect()
    }

    fn queues(&self) -> Vec<u16> {
        self.ports.iter().map(DpdkPort::queues).collect()
    }

    fn take_ports(&mut self, layout: &Layout, worker: WorkerId) -> WorkerPorts<DpdkBackend> {
        let take = |(index, port): (usize, &mut DpdkPort)| {
            layout.queue(index, worker).and_then(|queue| port.take(queue))
        };
        let queues = self.ports.iter_mut().enumerate().map(take).collect();
        WorkerPorts { queues, allocator: DpdkAllocator::new(self.pool.clone()) }
    }

    fn pool(&self) -> PoolLevel {
        let pool = self.pool.clone();
        Box::new(move || {
            let level = pool.level();
            PoolReport {
                buffers: u64::from(level.available) + u64::from(level.in_use),
                free: level.available.into(),
            }
        })
    }

    fn clock(&self) -> TscClock {
        TscClock::start(&self.eal)
    }

    fn thread_entry(&self) -> impl FnOnce() -> anyhow::Result<LcoreGuard> + Send + 'static {
        let eal = self.eal.clone();
        move || Ok(LcoreGuard::register(&eal)?)
    }
}

#[cfg(test)]
mod tests {
    use super::is_pci;

    #[test]
    fn pci_devices_are_told_from_virtual_ones() {
        for name in ["0000:03:00.0", "03:00.1,representor=vf0", "auxiliary:mlx5_core.sf.4,dv_flow_en=2"] {
            assert!(is_pci(name), "{name}");
        }
        for name in ["net_tap0,iface=red0", "net_af_packet0,iface=a:b.0", "net_null0"] {
            assert!(!is_pci(name), "{name}");
        }
    }
}
