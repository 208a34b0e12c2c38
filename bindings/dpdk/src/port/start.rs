//! Configuring a port and its queues.

use core::{ffi::CStr, ptr};

use dpdk_sys as sys;

use super::Device;
use crate::{Errno, mempool::Mempool};

/// Bytes of a frame around its MTU: Ethernet header and FCS.
const FRAME_OVERHEAD_BYTES: u32 = 18;
/// Repeated, the key under which both directions have one hash (Woo and Park, 2012).
const SYMMETRIC_KEY: [u8; 2] = [0x6d, 0x5a];
/// Bytes of a key where the driver says nothing.
const KEY_LEN: usize = 40;

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
    /// How it spreads packets over several queues, if it can.
    pub rss: Rss,
}

/// Receive side scaling by source and destination address, of what is inside tunnels where the port can look there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rss {
    /// Repeated, it is the key of the Toeplitz hash.
    pub key: [u8; 2],
    /// Queue by the low bits of the hash; a port with a longer table has it several times. Empty: the driver's own.
    pub table: Vec<u16>,
}

impl PortConfig {
    /// `queues` queues of 1,024 descriptors each, promiscuous, MTU 1,500, RSS under a symmetric key.
    pub fn new(queues: u16, pool: Mempool) -> Self {
        let rss = Rss { key: SYMMETRIC_KEY, table: Vec::new() };
        Self { queues, pool, mtu: 1500, rx_descriptors: 1024, tx_descriptors: 1024, promiscuous: true, rss }
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
    let mut key = rss_key(&info, &config.rss);
    let configuration = configuration(&info, config, &mut key);
    // SAFETY: the port is open and stopped, and the control lock is held; DPDK copies what pointers give (the key lives as
    // long as the configuration); null asks for the driver's default; the device holds the pool until it is closed.
    unsafe {
        step("configure it", sys::rte_eth_dev_configure(port, config.queues, config.queues, &configuration))?;
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
        if is_spread(&info, config) && !config.rss.table.is_empty() {
            let (table, len) = (config.rss.table.as_ptr(), config.rss.table.len() as u16);
            // A port that keeps its own table delivers to other queues: that costs time, and nothing else.
            let _ = sys::shim_rss_table(port, info.reta_size, table, len);
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

/// True for a port that can spread packets over its queues, and has several.
fn is_spread(info: &sys::rte_eth_dev_info, config: &PortConfig) -> bool {
    config.queues > 1 && info.flow_type_rss_offloads & sys::SHIM_RSS_ADDRESSES != 0
}

/// As long as the driver wants it.
fn rss_key(info: &sys::rte_eth_dev_info, rss: &Rss) -> Vec<u8> {
    let len = if info.hash_key_size == 0 { KEY_LEN } else { usize::from(info.hash_key_size) };
    rss.key.iter().copied().cycle().take(len).collect()
}

/// It points to `key`.
fn configuration(info: &sys::rte_eth_dev_info, config: &PortConfig, key: &mut [u8]) -> sys::rte_eth_conf {
    let mut conf = sys::rte_eth_conf::default();
    conf.rxmode.mtu = config.mtu.into();
    if is_spread(info, config) {
        conf.rxmode.mq_mode = sys::RTE_ETH_MQ_RX_RSS;
        let rss = &mut conf.rx_adv_conf.rss_conf;
        rss.rss_key = key.as_mut_ptr();
        rss.rss_key_len = key.len() as u8;
        rss.rss_hf = info.flow_type_rss_offloads & (sys::SHIM_RSS_ADDRESSES | sys::SHIM_RSS_INNERMOST);
    }
    conf
}

fn unless_unsupported(code: i32) -> i32 {
    if code == -libc::ENOTSUP { 0 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_repeats_as_long_as_the_driver_wants() {
        let rss = Rss { key: SYMMETRIC_KEY, table: Vec::new() };
        for (asked, len) in [(0, 40), (40, 40), (52, 52)] {
            let info = sys::rte_eth_dev_info { hash_key_size: asked, ..Default::default() };
            let key = rss_key(&info, &rss);
            assert_eq!(key.len(), len);
            assert!(key.chunks(2).all(|pair| pair == SYMMETRIC_KEY));
        }
    }
}
