//! Finding a port, or making its device while EAL runs.

use core::ffi::CStr;
use std::ffi::CString;

use dpdk_sys as sys;

use super::Device;
use crate::{
    Errno,
    eal::{Eal, cause},
};

/// Why a port cannot be opened; each text is one sentence with what to do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OpenError {
    /// Not a device's name with arguments.
    #[error(
        "\"{0}\" names no port: give a device such as net_tap0,iface=red0 or 0000:03:00.0,representor=vf0"
    )]
    Name(String),
    /// Somebody has it.
    #[error("port \"{0}\" is open already: open each port once")]
    OpenBefore(String),
    /// No driver or bus feels responsible.
    #[error(
        "port \"{0}\" does not exist: no device or driver of that name is here (check the spelling, that the driver is installed, and that DPDK was not told to leave its bus alone)"
    )]
    NotFound(String),
    /// Its driver tried, and failed.
    #[error("port \"{devargs}\" cannot be made: {said}{hint}", hint = if *as_root { "" } else { " (making one needs root, or CAP_NET_ADMIN and CAP_NET_RAW)" })]
    Probe {
        /// What was asked for.
        devargs: String,
        /// The driver's words, or its error number where it has none.
        said: String,
        /// Whether this process is root's.
        as_root: bool,
    },
    /// The device is there, and has no such port.
    #[error(
        "device \"{0}\" is there, but has no such port: check its arguments (and for a representor, that the card is in switchdev mode)"
    )]
    NoPort(String),
}

pub(super) fn open(eal: &Eal, devargs: &str) -> Result<Device, OpenError> {
    let name = devargs.split(',').next().unwrap_or_default();
    let (Ok(c_devargs), Ok(c_name), false) = (CString::new(devargs), CString::new(name), name.is_empty())
    else {
        return Err(OpenError::Name(devargs.into()));
    };
    let shared = eal.shared();
    let mut control = shared.control();
    let (port, made) = match find(&c_devargs, &c_name) {
        Some(port) => (port, false),
        None => {
            // SAFETY: EAL has started, the lock is held, and the string is terminated.
            let (code, log) = control.log.during(|| unsafe { sys::rte_dev_probe(c_devargs.as_ptr()) });
            Errno::check(code).map_err(|errno| failed(devargs, errno, &log))?;
            (find(&c_devargs, &c_name).ok_or_else(|| OpenError::NoPort(devargs.into()))?, true)
        }
    };
    if control.claimed.contains(&port) {
        return Err(OpenError::OpenBefore(devargs.into()));
    }
    control.claimed.push(port);
    drop(control);
    // A card's device carries other ports too, so only virtual devices are removed with their port.
    let made = (made && on_virtual_bus(port)).then_some(c_name);
    Ok(Device { port, made, pools: Vec::new(), eal: shared })
}

/// The port of this name, or the first that the arguments describe. A representor goes by its card's name, so for it the
/// arguments come first.
fn find(devargs: &CStr, name: &CStr) -> Option<u16> {
    let by_name = || {
        let mut port = 0;
        // SAFETY: EAL has started; the string is terminated, the integer is written on success.
        (unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &mut port) } == 0).then_some(port)
    };
    let by_devargs = || {
        // SAFETY: EAL has started, the control lock is held; the string is terminated.
        let port = unsafe { sys::shim_port_by_devargs(devargs.as_ptr()) };
        (u32::from(port) < sys::RTE_MAX_ETHPORTS).then_some(port)
    };
    match devargs.to_bytes().windows(12).any(|w| w == b"representor=") {
        true => by_devargs(),
        false => by_name().or_else(|| name.to_bytes().contains(&b':').then(by_devargs).flatten()),
    }
}

fn on_virtual_bus(port: u16) -> bool {
    // SAFETY: the port is open; a bus's name lives as long as the bus.
    let bus = unsafe { sys::shim_bus_name(port) };
    // SAFETY: it is a terminated string unless null.
    !bus.is_null() && unsafe { CStr::from_ptr(bus) } == c"vdev"
}

fn failed(devargs: &str, errno: Errno, log: &str) -> OpenError {
    let unknown = [
        "failed to parse device",
        "Unable to parse",
        "Cannot find device",
        "No driver",
        "no driver",
        "unable to find device",
        "Cannot find bus",
    ];
    if errno.number() == libc::ENODEV
        || log.lines().any(|line| unknown.iter().any(|words| line.contains(words)))
    {
        return OpenError::NotFound(devargs.into());
    }
    // Drivers of virtual devices return -1 for anything, which as an error number would mislead.
    let number =
        if errno.number() == 1 { "its driver refuses its arguments".into() } else { errno.to_string() };
    let said = cause(log).map_or(number, |line| format!("its driver says \"{line}\""));
    // SAFETY: reads the process's user.
    OpenError::Probe { devargs: devargs.into(), said, as_root: unsafe { libc::geteuid() } == 0 }
}
