//! Ethernet ports, from opening to closing.

use core::ffi::CStr;
use std::{ffi::CString, sync::Arc};

use dpdk_sys as sys;

use crate::{
    Errno,
    eal::{Eal, Shared},
    mempool::Mempool,
    queue::{Repairs, RxQueue, TxQueue},
};

mod open;
mod start;

pub use open::OpenError;
pub use start::{PortConfig, Rss, StartError};

/// A port that is open and stopped. Dropping it closes it, and removes its device if opening made it.
pub struct EthDev(Device);

/// A port that is started. Dropping it and all its queues stops and closes it.
///
/// A stopped net_tap does not start again once its netdev has moved to another network namespace: start it first, then
/// move it, and leave it running.
pub struct Port {
    started: Arc<Started>,
    rx: Vec<Option<RxQueue>>,
    tx: Vec<Option<TxQueue>>,
}

/// Reads a started port's counters, from any thread; it keeps the port open.
#[derive(Clone)]
pub struct PortWatch(Arc<Started>);

/// What a port counted since it started (`rte_eth_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the port dropped because its receive rings were full.
    pub rx_missed: u64,
    /// Packets received wrong.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Mbufs that the port could not get from its pool.
    pub rx_no_mbuf: u64,
}

/// A port's link. A net_tap whose netdev has moved to another namespace reads as down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether it carries.
    pub up: bool,
    /// Its speed in Mbit/s, if it has one.
    pub speed_mbps: Option<u32>,
}

/// An open port: closed on drop, before the pools that its rings may hold mbufs of.
struct Device {
    port: u16,
    /// The device to remove, if opening made it.
    made: Option<CString>,
    pools: Vec<Mempool>,
    eal: Arc<Shared>,
}

/// A running port. Fields are dropped in order: it stops, then its device closes.
pub(crate) struct Started {
    running: Running,
    device: Device,
    repairs: Vec<Arc<Repairs>>,
}

/// Stops the port on drop.
struct Running(u16);

impl Started {
    #[inline]
    pub(crate) fn port(&self) -> u16 {
        self.running.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: the port is open, and its queues are gone, as they keep `Started` alive. A failure to stop (a net_tap in
        // another namespace) leaves closing to do the work.
        unsafe { sys::rte_eth_dev_stop(self.0) };
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut control = self.eal.control();
        // SAFETY: the port is open and stopped, and this is its one owner; DPDK copies the names.
        let _ = control.log.during(|| unsafe {
            sys::rte_eth_dev_close(self.port);
            if let Some(name) = &self.made {
                sys::rte_eal_hotplug_remove(c"vdev".as_ptr(), name.as_ptr());
            }
        });
        control.claimed.retain(|port| *port != self.port);
    }
}

impl EthDev {
    /// Opens a port by its name or its device's arguments, such as `net_tap0,iface=red0` or
    /// `0000:03:00.0,representor=vf0`; makes the device if it is not there yet. A port is open once at a time.
    pub fn open(eal: &Eal, devargs: &str) -> Result<Self, OpenError> {
        open::open(eal, devargs).map(Self)
    }

    /// Configures the port and its queues, and starts it. A port that does not start is closed.
    pub fn start(self, config: &PortConfig) -> Result<Port, StartError> {
        let device = start::start(self.0, config)?;
        let repairs: Vec<Arc<Repairs>> = (0..config.queues).map(|_| Arc::default()).collect();
        let started = Arc::new(Started { running: Running(device.port), device, repairs });
        let rx = |queue| {
            RxQueue::new(started.clone(), queue, config.pool.clone(), started.repairs[queue as usize].clone())
        };
        let rx = (0..config.queues).map(|queue| Some(rx(queue))).collect();
        let tx = (0..config.queues).map(|queue| Some(TxQueue::new(started.clone(), queue))).collect();
        Ok(Port { started, rx, tx })
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// Its MAC address, in wire order.
    pub fn mac(&self) -> Result<[u8; 6], Errno> {
        self.0.mac()
    }

    /// The name of its driver, such as `net_tap` or `mlx5_pci`.
    pub fn driver(&self) -> Result<String, Errno> {
        self.0.driver()
    }

    /// Most queue pairs that it can have.
    pub fn max_queues(&self) -> Result<u16, Errno> {
        let info = self.0.info()?;
        Ok(info.max_rx_queues.min(info.max_tx_queues))
    }
}

impl Port {
    /// A receive queue; `None` when it was taken before, or there is none of this number.
    pub fn take_rx(&mut self, queue: u16) -> Option<RxQueue> {
        self.rx.get_mut(usize::from(queue))?.take()
    }

    /// A transmit queue, likewise.
    pub fn take_tx(&mut self, queue: u16) -> Option<TxQueue> {
        self.tx.get_mut(usize::from(queue))?.take()
    }

    /// Stops the port. It comes back as it was when a queue or watch of it is out somewhere.
    pub fn stop(self) -> Result<EthDev, Self> {
        let queues = self.rx.iter().flatten().count() + self.tx.iter().flatten().count();
        if Arc::strong_count(&self.started) != queues + 1 {
            return Err(self);
        }
        let Self { started, rx, tx } = self;
        drop((rx, tx));
        match Arc::try_unwrap(started) {
            Ok(Started { running, device, .. }) => {
                drop(running);
                Ok(EthDev(device))
            }
            // Only a queue or watch makes references, and none was out.
            Err(started) => Err(Self { started, rx: Vec::new(), tx: Vec::new() }),
        }
    }

    /// A reader of its counters.
    pub fn watch(&self) -> PortWatch {
        PortWatch(self.started.clone())
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.started.device.name()
    }

    /// Its MAC address, in wire order.
    pub fn mac(&self) -> Result<[u8; 6], Errno> {
        self.started.device.mac()
    }

    /// The name of its driver.
    pub fn driver(&self) -> Result<String, Errno> {
        self.started.device.driver()
    }

    /// Its redirection table: the queue by the low bits of the hash; empty where it has none.
    pub fn rss_table(&self) -> Result<Vec<u16>, Errno> {
        let mut table = vec![0; usize::from(self.started.device.info()?.reta_size)];
        // SAFETY: the port is open, and the table has the length that it is said to have.
        let code =
            unsafe { sys::shim_rss_table_read(self.started.port(), table.len() as u16, table.as_mut_ptr()) };
        Errno::check(code).map(|_| table)
    }

    /// Its MTU: bytes of a frame without its Ethernet header.
    pub fn mtu(&self) -> Result<u16, Errno> {
        self.started.device.mtu()
    }
}

impl PortWatch {
    /// Its counters.
    pub fn stats(&self) -> Result<PortStats, Errno> {
        let mut raw = sys::rte_eth_stats::default();
        // SAFETY: the port is open; DPDK fills the structure.
        Errno::check(unsafe { sys::rte_eth_stats_get(self.0.port(), &mut raw) })?;
        Ok(PortStats {
            rx_packets: raw.ipackets,
            tx_packets: raw.opackets,
            rx_bytes: raw.ibytes,
            tx_bytes: raw.obytes,
            rx_missed: raw.imissed,
            rx_errors: raw.ierrors,
            tx_errors: raw.oerrors,
            rx_no_mbuf: raw.rx_nombuf,
        })
    }

    /// Its link, without waiting for one that is coming up.
    pub fn link(&self) -> Result<Link, Errno> {
        let (mut speed_mbps, mut up) = (0, 0);
        // SAFETY: the port is open; both integers are written.
        Errno::check(unsafe { sys::shim_link(self.0.port(), &mut speed_mbps, &mut up) })?;
        Ok(Link {
            up: up != 0,
            speed_mbps: (speed_mbps != u32::MAX && speed_mbps != 0).then_some(speed_mbps),
        })
    }

    /// What a receive queue did with packets that were not unique; `None` when there is no such queue.
    pub fn repairs(&self, queue: u16) -> Option<&Repairs> {
        self.0.repairs.get(usize::from(queue)).map(Arc::as_ref)
    }
}

impl Device {
    fn name(&self) -> String {
        let mut name = [0; sys::RTE_ETH_NAME_MAX_LEN as usize];
        // SAFETY: the buffer has the length that DPDK wants, and stays terminated if DPDK fails.
        unsafe {
            sys::rte_eth_dev_get_name_by_port(self.port, name.as_mut_ptr());
            CStr::from_ptr(name.as_ptr())
        }
        .to_string_lossy()
        .into_owned()
    }

    fn mac(&self) -> Result<[u8; 6], Errno> {
        let mut mac = sys::rte_ether_addr::default();
        // SAFETY: the port is open; DPDK fills the structure.
        Errno::check(unsafe { sys::rte_eth_macaddr_get(self.port, &mut mac) })?;
        Ok(mac.addr_bytes)
    }

    fn mtu(&self) -> Result<u16, Errno> {
        let mut mtu = 0;
        // SAFETY: the port is open; DPDK writes the integer.
        Errno::check(unsafe { sys::rte_eth_dev_get_mtu(self.port, &mut mtu) })?;
        Ok(mtu)
    }

    fn driver(&self) -> Result<String, Errno> {
        let info = self.info()?;
        if info.driver_name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: a driver's name is a terminated string that lives as long as the driver, so as the port.
        Ok(unsafe { CStr::from_ptr(info.driver_name) }.to_string_lossy().into_owned())
    }

    fn info(&self) -> Result<sys::rte_eth_dev_info, Errno> {
        let mut info = sys::rte_eth_dev_info::default();
        // SAFETY: the port is open; DPDK fills the structure.
        Errno::check(unsafe { sys::rte_eth_dev_info_get(self.port, &mut info) })?;
        Ok(info)
    }
}
