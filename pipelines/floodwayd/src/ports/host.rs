//! Ports without DPDK: memory, TAP and capture files. Each has one queue pair: whatever else the kernel would spread, it
//! would not keep in order.

use anyhow::Context;
use backends::host::{self, HostBackend};
use backends::memory::{Pool, Wire};
use edge::Facts;
use engine::{Layout, WorkerId, WorkerPorts};
use packet::PortIo;
use program::{PoolReport, Program};

use super::World;
use crate::args::Args;
use crate::clock::MonotonicClock;
use crate::plane::PoolLevel;

/// Open ports.
pub struct HostPorts {
    queues: Vec<Option<PortIo<HostBackend>>>,
    facts: Vec<Facts>,
    pool: Pool,
    /// Kept open: a memory port whose other end is gone takes no more packets.
    far_ends: Vec<Wire>,
}

/// Opens every device of the program.
pub fn open(args: &Args, program: &Program) -> anyhow::Result<HostPorts> {
    let mtu = program.devices.iter().map(|device| device.mtu).max().unwrap_or(0);
    // One byte more than the longest frame, by which a TAP knows of a longer one.
    let pool = Pool::with_room(args.buffers() as usize, usize::from(mtu) + backends::FRAME_OVERHEAD + 1);
    let mut ports = HostPorts { queues: Vec::new(), facts: Vec::new(), pool, far_ends: Vec::new() };
    for device in &program.devices {
        let opened = host::open(&device.device, device.mtu, &ports.pool)
            .with_context(|| format!("port {:?}", device.name))?;
        tracing::info!(port = device.name, device = device.device, mac = %opened.facts.mac, "open");
        ports.facts.push(Facts { mac: opened.facts.mac });
        ports.queues.push(Some(opened.io));
        ports.far_ends.extend(opened.wire);
    }
    Ok(ports)
}

impl World for HostPorts {
    type Backend = HostBackend;
    type Clock = MonotonicClock;
    type ThreadGuard = ();

    fn facts(&self) -> Vec<Facts> {
        self.facts.clone()
    }

    fn queues(&self) -> Vec<u16> {
        vec![1; self.queues.len()]
    }

    fn take_ports(&mut self, layout: &Layout, worker: WorkerId) -> WorkerPorts<HostBackend> {
        let take = |(port, io): (usize, &mut Option<_>)| layout.queue(port, worker).and_then(|_| io.take());
        let queues = self.queues.iter_mut().enumerate().map(take).collect();
        WorkerPorts { queues, allocator: self.pool.clone() }
    }

    fn pool(&self) -> PoolLevel {
        let pool = self.pool.clone();
        Box::new(move || {
            let level = pool.level();
            PoolReport { buffers: level.capacity as u64, free: level.free as u64 }
        })
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock::start()
    }

    fn thread_entry(&self) -> impl FnOnce() -> anyhow::Result<()> + Send + 'static {
        || Ok(())
    }
}
