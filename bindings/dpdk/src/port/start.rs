//! Configuring a port and its queues.

use core::{ffi::CStr, ptr};

use dpdk_sys as sys;

use super::Device;
use crate::{Errno, mempool::Mempool};

/// Bytes of a frame around its MTU: Ethernet header and FCS.
const FRAME_OVERHEAD_BYTES: u32 = 18;

/// How a port runs.
#[derive(Clone)]
pub struct PortConfig {
    /// Number of its receive and of its transmit queues.
    pub queues: u16,
    /// Where its received packets are put. One mbuf must hold a whole frame.
    pub pool: Mempool,
    /// Bytes of a frame without its Ethernet header.
    pub mtu: u16,
    /// Receive ring length; the driver may round it.
    pub rx_descriptors: u16,
    /// Transmit ring length; the driver may round it.
    pub tx_descriptors: u16,
    /// Take frames for other MAC addresses too, if the port can.
    pub promiscuous: bool,
}

impl PortConfig {
    /// `queues` queues of 1,024 descriptors each, promiscuous, MTU 1,500.
    pub fn new(queues: u16, pool: Mempool) -> Self {
        Self { queues, pool, mtu: 1500, rx_descriptors: 1024, tx_descriptors: 1024, promiscuous: true }
    }
}

/// Why a port does not start; each text is one sentence with what to do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StartError {
    /// More queues than it has, or none.
    #[error("port {port} cannot have {asked} queues: it can have 1 to {most}")]
    Queues {
        /// The port.
        port: String,
        /// How many were asked for.
        asked: u16,
        /// How many it has.
        most: u16,
    },
    /// Frames larger or smaller than it can.
    #[error("port {port} cannot have an MTU of {asked}: it can have {least} to {most}")]
    Mtu {
        /// The port.
        port: String,
        /// The MTU asked for.
        asked: u16,
        /// Its smallest.
        least: u16,
        /// Its largest.
        most: u16,
    },
    /// Frames larger than the pool's mbufs.
    #[error(
        "port {port} with MTU {mtu} needs mbufs of {needed} bytes, and its pool's have {room}: give the pool more room per mbuf"
    )]
    Room {
        /// The port.
        port: String,
        /// The MTU asked for.
        mtu: u16,
        /// Bytes of its largest frame.
        needed: u32,
        /// Bytes that an mbuf holds.
        room: u16,
    },
    /// DPDK refused a step.
    #[error("port {port}: cannot {step}: {errno}{said}", said = if said.is_empty() { String::new() } else { format!("; its driver says: {said}") })]
    Step {
        /// The port.
        port: String,
        /// What was tried.
        step: &'static str,
        /// Why not.
        errno: Errno,
        /// The driver's words, if any.
        said: String,
    },
}

/// On failure the device is dropped, so closed.
pub(super) fn start(mut device: Device, config: &PortConfig) -> Result<Device, StartError> {
    let name = device.name();
    // Rings may hold mbufs from the first set-up on.
    device.pools.push(config.pool.clone());
    let eal = device.eal.clone();
    let control = eal.control();
    let (result, log) = control.log.during(|| steps(&device, config, &name));
    drop(control);
    match result {
        Ok(()) => Ok(device),
        Err(Stop::Refused(error)) => Err(error),
        Err(Stop::Failed(step, errno)) => Err(StartError::Step {
            port: name,
            step,
            errno,
            said: crate::eal::cause(&log).unwrap_or_default(),
        }),
    }
}

enum Stop {
    Refused(StartError),
    Failed(&'static str, Errno),
}

fn steps(device: &Device, config: &PortConfig, name: &str) -> Result<(), Stop> {
    let port = device.port;
    let info = device.info().map_err(|errno| Stop::Failed("read its abilities", errno))?;
    let config = &as_the_driver_can(&info, config);
    check(&info, config, name).map_err(Stop::Refused)?;
    let step = |what: &'static str, code: i32| Errno::check(code).map_err(|errno| Stop::Failed(what, errno));
    let (mut rx_descriptors, mut tx_descriptors) = (config.rx_descriptors, config.tx_descriptors);
    // SAFETY: the port is open and stopped, and the control lock is held; DPDK copies what pointers give; null asks for the
    // driver's default; the device holds the pool until it is closed.
    unsafe {
        step(
            "configure it",
            sys::rte_eth_dev_configure(port, config.queues, config.queues, &configuration(&info, config)),
        )?;
        step(
            "size its rings",
            sys::rte_eth_dev_adjust_nb_rx_tx_desc(port, &mut rx_descriptors, &mut tx_descriptors),
        )?;
        // -1, any NUMA node, is what virtual ports give.
        let node = sys::rte_eth_dev_socket_id(port) as u32;
        for queue in 0..config.queues {
            let pool = config.pool.as_ptr();
            step(
                "set up a receive queue",
                sys::rte_eth_rx_queue_setup(port, queue, rx_descriptors, node, ptr::null(), pool),
            )?;
            step(
                "set up a transmit queue",
                sys::rte_eth_tx_queue_setup(port, queue, tx_descriptors, node, ptr::null()),
            )?;
        }
        // Configuring has noted the MTU; this tells the netdev or the card, where there is one.
        if !leaves_mtu_to_kernel(&info) {
            step("set its MTU", unless_unsupported(sys::rte_eth_dev_set_mtu(port, config.mtu)))?;
        }
        step("start it", sys::rte_eth_dev_start(port))?;
        if config.promiscuous {
            step("make it promiscuous", unless_unsupported(sys::rte_eth_promiscuous_enable(port)))?;
        }
    }
    Ok(())
}

/// `net_af_packet` tells of 1,518 bytes, and carries what its interface and its `framesz` (2,048) do.
fn as_the_driver_can(info: &sys::rte_eth_dev_info, config: &PortConfig) -> PortConfig {
    let told = info.max_rx_pktlen.saturating_sub(FRAME_OVERHEAD_BYTES).min(u32::from(u16::MAX)) as u16;
    let mtu = if leaves_mtu_to_kernel(info) { config.mtu.min(told) } else { config.mtu };
    PortConfig { mtu, ..config.clone() }
}

fn leaves_mtu_to_kernel(info: &sys::rte_eth_dev_info) -> bool {
    // SAFETY: a driver's name is a string constant of it, or null.
    !info.driver_name.is_null() && unsafe { CStr::from_ptr(info.driver_name) } == c"net_af_packet"
}

fn check(info: &sys::rte_eth_dev_info, config: &PortConfig, name: &str) -> Result<(), StartError> {
    let port = name.to_string();
    let most = info.max_rx_queues.min(info.max_tx_queues);
    if config.queues == 0 || config.queues > most {
        return Err(StartError::Queues { port, asked: config.queues, most });
    }
    let longest = info.max_rx_pktlen.saturating_sub(FRAME_OVERHEAD_BYTES).min(u32::from(u16::MAX)) as u16;
    let (least, most) = (info.min_mtu, info.max_mtu.min(longest));
    if config.mtu < least || config.mtu > most {
        return Err(StartError::Mtu { port, asked: config.mtu, least, most });
    }
    let (needed, room) = (u32::from(config.mtu) + FRAME_OVERHEAD_BYTES, config.pool.room_bytes());
    if needed > u32::from(room) {
        return Err(StartError::Room { port, mtu: config.mtu, needed, room });
    }
    Ok(())
}

fn configuration(info: &sys::rte_eth_dev_info, config: &PortConfig) -> sys::rte_eth_conf {
    let mut conf = sys::rte_eth_conf::default();
    conf.rxmode.mtu = config.mtu.into();
    let flows = info.flow_type_rss_offloads & sys::SHIM_RSS_FLOWS;
    if config.queues > 1 && flows != 0 {
        conf.rxmode.mq_mode = sys::RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = flows;
    }
    conf
}

fn unless_unsupported(code: i32) -> i32 {
    if code == -libc::ENOTSUP { 0 } else { code }
}
