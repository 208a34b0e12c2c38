//! Pools of mbufs, and when their memory may go.

use core::ptr::NonNull;
use std::{ffi::CString, sync::Arc};

use arrayvec::ArrayVec;
use dpdk_sys as sys;

use crate::{
    Errno,
    eal::{Eal, Shared},
    mbuf::{Mbuf, OwnsUniqueMbuf, UniqueMbuf},
};

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Its name, unique in the process, of at most 25 bytes.
    pub name: String,
    /// How many mbufs it has; a power of two less one uses memory best.
    pub mbufs: u32,
    /// How many of them each lcore may keep for itself: at most 512, and at most two thirds of `mbufs`.
    pub cache: u32,
    /// Bytes of packet per mbuf, beside its headroom of `RTE_PKTMBUF_HEADROOM` (128 unless DPDK was built otherwise).
    pub room_bytes: u16,
}

impl PoolConfig {
    /// A pool of `mbufs` with room for frames of 2,048 bytes and caches of 256.
    pub fn new(name: impl Into<String>, mbufs: u32) -> Self {
        Self { name: name.into(), mbufs, cache: 256.min(mbufs / 2), room_bytes: 2048 }
    }
}

/// Why there is no pool.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PoolError {
    /// Another pool has this name, or had it and waits for its last mbufs.
    #[error("an mbuf pool named \"{0}\" exists already: choose another name")]
    NameTaken(String),
    /// The configuration cannot work.
    #[error("mbuf pool \"{name}\": {why}")]
    Invalid {
        /// The pool.
        name: String,
        /// The limit that it breaks.
        why: &'static str,
    },
    /// The memory that EAL has does not hold it.
    #[error(
        "mbuf pool \"{name}\": no memory for {mbufs} mbufs of {room_bytes} bytes: ask for fewer, or give DPDK more hugepages"
    )]
    NoMemory {
        /// The pool.
        name: String,
        /// How many were asked for.
        mbufs: u32,
        /// And how large.
        room_bytes: u16,
    },
    /// Anything else that DPDK reports.
    #[error("mbuf pool \"{name}\": DPDK refuses it: {errno}")]
    Refused {
        /// The pool.
        name: String,
        /// Why.
        errno: Errno,
    },
}

/// Fewer mbufs were left (or the burst had less room) than were asked for; none was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pool has fewer mbufs left than were asked for")]
pub struct Exhausted;

/// Where a pool's mbufs are: `available + in_use` is its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// In the pool, the lcores' caches among it.
    pub available: u32,
    /// Out: in somebody's hands, or in a port's rings.
    pub in_use: u32,
}

/// A pool of mbufs, shared by counting: threads may take from it and give back at once.
///
/// When the last handle goes while mbufs are out, the pool's memory stays until they are back.
#[derive(Clone)]
pub struct Mempool(Arc<Inner>);

struct Inner {
    pool: NonNull<sys::rte_mempool>,
    eal: Arc<Shared>,
}

// SAFETY: DPDK's pools take get and put from any number of threads at once; each lcore has a cache of its own.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Mempool {
    /// Makes a pool, on the NUMA node of the calling thread if it can.
    pub fn new(eal: &Eal, config: &PoolConfig) -> Result<Self, PoolError> {
        let name = config.valid_name()?;
        let room = config
            .room_bytes
            .checked_add(headroom_bytes())
            .ok_or(config.invalid("room_bytes plus headroom must fit in 16 bits"))?;
        let shared = eal.shared();
        let mut control = shared.control();
        let (pool, _) = control.log.during(|| {
            // SAFETY: EAL has started; `name` is terminated and copied by DPDK; -1 means any NUMA node.
            unsafe { sys::rte_pktmbuf_pool_create(name.as_ptr(), config.mbufs, config.cache, 0, room, -1) }
        });
        let Some(pool) = NonNull::new(pool) else { return Err(config.refused(Errno::last())) };
        control.pools.push(pool);
        drop(control);
        Ok(Self(Arc::new(Inner { pool, eal: shared })))
    }

    /// One empty mbuf with headroom; `None` when all are out.
    #[inline]
    pub fn alloc(&self) -> Option<UniqueMbuf> {
        // SAFETY: the pool lives as long as `self`; null means none is left.
        let mbuf = NonNull::new(unsafe { sys::shim_pktmbuf_alloc(self.as_ptr()) })?;
        // SAFETY: a fresh mbuf has one owner, one segment and no attached buffer.
        Some(unsafe { UniqueMbuf::from_raw(mbuf) })
    }

    /// Appends `count` empty mbufs to `burst`, or none of them.
    pub fn alloc_bulk<U: OwnsUniqueMbuf, const N: usize>(
        &self,
        burst: &mut ArrayVec<U, N>,
        count: usize,
    ) -> Result<(), Exhausted> {
        if count > burst.remaining_capacity() {
            return Err(Exhausted);
        }
        let len = burst.len();
        // SAFETY: `burst` has room for `count` pointers after its `len`; `U` is one non-null mbuf pointer, and DPDK writes
        // all `count` of them (fresh, so unique) when it returns 0, and none that is read otherwise.
        unsafe {
            let spare = burst.as_mut_ptr().add(len).cast();
            if sys::shim_pktmbuf_alloc_bulk(self.as_ptr(), spare, count as u32) != 0 {
                return Err(Exhausted);
            }
            burst.set_len(len + count);
        }
        Ok(())
    }

    /// A copy of `mbuf` in one segment; `None` when all mbufs are out or one has no room for it.
    pub fn copy(&self, mbuf: &Mbuf) -> Option<UniqueMbuf> {
        if mbuf.len() > self.room_bytes() as usize {
            return None;
        }
        // SAFETY: both live; DPDK copies bytes and metadata of the whole packet to a fresh mbuf of this pool, in one
        // segment because it fits in one, or returns null.
        let copy = NonNull::new(unsafe { sys::rte_pktmbuf_copy(mbuf.as_ptr(), self.as_ptr(), 0, u32::MAX) })?;
        // SAFETY: the copy is fresh.
        unsafe { Mbuf::from_raw(copy) }.into_unique().ok()
    }

    /// How many mbufs are in and out. Exact when no other thread takes or gives meanwhile.
    pub fn level(&self) -> Level {
        // SAFETY: the pool lives; counting is safe at any time.
        let (size, available) =
            unsafe { (sys::shim_mempool_size(self.as_ptr()), sys::rte_mempool_avail_count(self.as_ptr())) };
        Level { available, in_use: size.saturating_sub(available) }
    }

    /// Bytes of packet that fit into one mbuf beside its headroom.
    pub fn room_bytes(&self) -> u16 {
        // SAFETY: the pool lives, and was made as a packet pool.
        unsafe { sys::shim_pktmbuf_room(self.as_ptr()) }.saturating_sub(headroom_bytes())
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.0.pool.as_ptr()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.eal.retire(self.pool);
    }
}

impl PoolConfig {
    fn valid_name(&self) -> Result<CString, PoolError> {
        let name = CString::new(self.name.as_str()).map_err(|_| self.invalid("its name has a zero byte"))?;
        match () {
            () if self.name.is_empty() || self.name.len() > 25 => {
                Err(self.invalid("its name must have 1 to 25 bytes"))
            }
            () if self.mbufs == 0 => Err(self.invalid("it must have at least one mbuf")),
            () if self.cache > sys::RTE_MEMPOOL_CACHE_MAX_SIZE => {
                Err(self.invalid("a cache holds at most 512 mbufs"))
            }
            () if u64::from(self.cache) * 3 > u64::from(self.mbufs) * 2 => {
                Err(self.invalid("a cache may have at most two thirds of the mbufs"))
            }
            () => Ok(name),
        }
    }

    fn invalid(&self, why: &'static str) -> PoolError {
        PoolError::Invalid { name: self.name.clone(), why }
    }

    fn refused(&self, errno: Errno) -> PoolError {
        let name = self.name.clone();
        match errno.number() {
            libc::EEXIST => PoolError::NameTaken(name),
            libc::ENOMEM => PoolError::NoMemory { name, mbufs: self.mbufs, room_bytes: self.room_bytes },
            _ => PoolError::Refused { name, errno },
        }
    }
}

fn headroom_bytes() -> u16 {
    sys::RTE_PKTMBUF_HEADROOM as u16
}
