//! The time stamp counter, which lcores read once per poll.

use dpdk_sys as sys;

use crate::Eal;

/// The counter now, in ticks of [`tsc_hz`]; constant-rate, and the same on all cores of the machines DPDK supports.
///
/// `rdtsc` on x86-64, `cntvct_el0` (or the PMU's counter, if DPDK was built so) on Arm.
#[inline]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading the counter has no precondition; Linux does not disable it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: reading the counter has no precondition.
    return unsafe { sys::shim_rdtsc() };
}

/// Ticks per second of [`tsc`], measured when EAL started.
pub fn tsc_hz(_started: &Eal) -> u64 {
    // SAFETY: EAL has started, so the rate is known; it does not change any more.
    unsafe { sys::rte_get_tsc_hz() }
}
