//! The environment abstraction layer: DPDK's start, its end, and what must happen in between under one lock.

use core::ptr::NonNull;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use dpdk_sys as sys;

use crate::lcore;

mod builder;
mod diagnosis;
mod log;

pub use builder::EalBuilder;
pub use diagnosis::InitError;

use log::Capture;
pub(crate) use log::cause;

/// EAL does not start again in a process, not even after its end.
static STARTED: AtomicBool = AtomicBool::new(false);

/// DPDK, running. It ends (`rte_eal_cleanup`) when this and all pools, ports and lcores made from it are gone.
pub struct Eal {
    shared: Arc<Shared>,
    startup_log: String,
}

impl Eal {
    /// What to start with.
    pub fn builder() -> EalBuilder {
        EalBuilder::default()
    }

    /// What DPDK printed while it started, which goes nowhere else.
    pub fn startup_log(&self) -> &str {
        &self.startup_log
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Once `rte_eal_init` has succeeded on this thread.
    fn started(log: Capture, startup_log: String) -> Self {
        lcore::this_is_the_main_lcore();
        let control = Control { pools: Vec::new(), retired: Vec::new(), claimed: Vec::new(), log };
        Self { shared: Arc::new(Shared { control: Mutex::new(control) }), startup_log }
    }
}

/// What keeps DPDK running.
pub(crate) struct Shared {
    control: Mutex<Control>,
}

/// DPDK's control functions are not safe to call at once on one device or one name; the lock around this serialises them.
pub(crate) struct Control {
    /// Pools that have handles.
    pub(crate) pools: Vec<NonNull<sys::rte_mempool>>,
    /// Pools without handles, some of whose mbufs are out.
    retired: Vec<NonNull<sys::rte_mempool>>,
    /// Ports that an `EthDev` owns.
    pub(crate) claimed: Vec<u16>,
    /// Where DPDK's log goes while something is tried.
    pub(crate) log: Capture,
}

// SAFETY: the pointers are to DPDK's pools, which belong to no thread.
unsafe impl Send for Control {}

impl Shared {
    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        // What a panic can leave half done here (a name or number missing in a list) does no harm.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a pool whose last handle is gone, and frees it now or when its last mbuf is back.
    pub(crate) fn retire(&self, pool: NonNull<sys::rte_mempool>) {
        let mut control = self.control();
        control.pools.retain(|other| *other != pool);
        control.retired.push(pool);
        control.flush_and_sweep();
    }

    /// Gives back what the calling lcore holds of any pool.
    pub(crate) fn flush_caches(&self) {
        self.control().flush_and_sweep();
    }
}

impl Control {
    /// A retired pool is freed only when its common ring holds all mbufs. Those in an lcore's cache do not count: that
    /// lcore may be inside the call that put them there. The ring's tail, by contrast, moves as the last act of a put.
    fn flush_and_sweep(&mut self) {
        for pool in self.pools.iter().chain(&self.retired) {
            // SAFETY: pools in the lists live; the cache that is flushed is the calling lcore's own, if it is one.
            unsafe { sys::shim_mempool_flush_cache(pool.as_ptr()) };
        }
        self.retired.retain(|pool| {
            // SAFETY: the pool lives.
            let whole =
                unsafe { sys::shim_mempool_uncached(pool.as_ptr()) == sys::shim_mempool_size(pool.as_ptr()) };
            if whole {
                // SAFETY: it has no handle, no mbuf is out, and nobody is inside a call that uses it.
                unsafe { sys::rte_mempool_free(pool.as_ptr()) };
            }
            !whole
        });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let control = self.control.get_mut().unwrap_or_else(PoisonError::into_inner);
        control.flush_and_sweep();
        // Mbufs that are still out point into memory that the end of EAL would unmap: the process keeps it then.
        if control.retired.is_empty() {
            // SAFETY: no port, pool, lcore or mbuf is left.
            unsafe { sys::rte_eal_cleanup() };
        }
    }
}

/// The right to start EAL, which a process has once.
fn claim_start() -> Result<(), InitError> {
    if STARTED.swap(true, Ordering::SeqCst) { Err(InitError::StartedBefore) } else { Ok(()) }
}
