//! Threads of ours that DPDK knows as lcores.

use core::{cell::Cell, marker::PhantomData};
use std::sync::Arc;

use dpdk_sys as sys;

use crate::{
    Errno,
    eal::{Eal, Shared},
};

/// What `rte_lcore_id` gives on a thread that DPDK does not know (`LCORE_ID_ANY`).
const NOT_AN_LCORE: u32 = u32::MAX;

thread_local! {
    /// Mirrors `rte_lcore_id() != LCORE_ID_ANY`: one load of the executable's own, where DPDK's takes a call.
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Keeps this thread registered as an lcore, with mempool caches of its own; it stays on this thread.
///
/// Pin the thread before or after: registering leaves its affinity alone.
pub struct LcoreGuard {
    eal: Arc<Shared>,
    id: u32,
    _this_thread_only: PhantomData<*const ()>,
}

/// Why a thread cannot be an lcore.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LcoreError {
    /// It is one.
    #[error("this thread is registered as lcore {0} already: register a thread once and keep its guard")]
    RegisteredBefore(u32),
    /// DPDK has no more.
    #[error("DPDK has no lcore left for this thread ({0}): run at most {max} lcores per process", max = sys::RTE_MAX_LCORE)]
    NoneLeft(Errno),
}

impl LcoreGuard {
    /// Registers the calling thread (`rte_thread_register`). The thread that started EAL is the main lcore already.
    pub fn register(eal: &Eal) -> Result<Self, LcoreError> {
        if let Some(id) = current() {
            return Err(LcoreError::RegisteredBefore(id));
        }
        // SAFETY: EAL has started, and this thread is no lcore.
        if unsafe { sys::rte_thread_register() } != 0 {
            return Err(LcoreError::NoneLeft(Errno::last()));
        }
        REGISTERED.set(true);
        Ok(Self { eal: eal.shared(), id: current().unwrap_or(NOT_AN_LCORE), _this_thread_only: PhantomData })
    }

    /// Its number, unique among the process's lcores while the guard lives.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for LcoreGuard {
    fn drop(&mut self) {
        // Else the mbufs in this lcore's caches would be out of reach until another thread gets its number.
        self.eal.flush_caches();
        REGISTERED.set(false);
        // SAFETY: this thread registered itself, and the guard cannot have left it.
        unsafe { sys::rte_thread_unregister() };
    }
}

/// The calling thread's lcore, if it is one.
pub(crate) fn current() -> Option<u32> {
    // SAFETY: reads a thread-local integer.
    let id = unsafe { sys::shim_lcore_id() };
    (id != NOT_AN_LCORE).then_some(id)
}

/// The thread that starts EAL becomes its main lcore.
pub(crate) fn this_is_the_main_lcore() {
    REGISTERED.set(true);
}

/// A poll from a thread that is no lcore is a mistake in the caller's code, and drivers may index arrays by lcore.
#[inline]
pub(crate) fn must_be_registered() {
    if !REGISTERED.get() {
        unregistered();
    }
}

#[cold]
fn unregistered() -> ! {
    panic!("a thread that polls a DPDK queue must hold an LcoreGuard: call LcoreGuard::register on it first")
}
