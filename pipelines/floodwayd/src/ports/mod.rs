//! Opens what the Fabric names: all of it over DPDK, or all of it without.

#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod host;

use anyhow::bail;
use edge::Facts;
use engine::{Layout, WorkerId, WorkerPorts};
use packet::Backend;
use program::Program;

use crate::clock::Clock;
use crate::plane::PoolLevel;

/// Scheme of the devices that DPDK drives.
const DPDK: &str = "dpdk:";

/// Open ports of one backend, and what workers need beside them.
pub trait World {
    /// The backend.
    type Backend: Backend;
    /// What a worker reads the time from.
    type Clock: Clock;
    /// Whatever has to live on a worker's thread while it runs.
    type ThreadGuard;

    /// What is known of each port, by port id.
    fn facts(&self) -> Vec<Facts>;

    /// How many queue pairs each port has, by port id: at most one for each worker.
    fn queues(&self) -> Vec<u16>;

    /// A worker's queues; given out once.
    fn take_ports(&mut self, layout: &Layout, worker: WorkerId) -> WorkerPorts<Self::Backend>;

    /// Tells how full the pool of packet buffers is.
    fn pool(&self) -> PoolLevel;

    /// A clock that starts now.
    fn clock(&self) -> Self::Clock;

    /// What makes the thread that calls it one that may poll these ports.
    fn thread_entry(&self) -> impl FnOnce() -> anyhow::Result<Self::ThreadGuard> + Send + 'static;
}

/// True when the devices are DPDK's; an error when only some are.
pub fn want_dpdk(program: &Program) -> anyhow::Result<bool> {
    let is_dpdk = |device: &program::Device| device.device.starts_with(DPDK);
    match (program.devices.iter().find(|d| is_dpdk(d)), program.devices.iter().find(|d| !is_dpdk(d))) {
        (Some(dpdk), Some(other)) => bail!(
            "port {:?} is a DPDK device and port {:?} is not: one daemon has one kind; for a kernel interface use \
             dpdk:net_af_packet0,iface=<name> or dpdk:net_tap0,iface=<name>",
            dpdk.name,
            other.name
        ),
        (dpdk, _) => Ok(dpdk.is_some()),
    }
}
