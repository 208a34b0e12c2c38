//! Receive and transmit queues: what lcores poll.

use core::{cell::Cell, marker::PhantomData};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering, fence},
};

use arrayvec::ArrayVec;
use dpdk_sys as sys;

use crate::{
    lcore::must_be_registered,
    mbuf::{Mbuf, OwnsMbuf, OwnsUniqueMbuf, UniqueMbuf},
    mempool::Mempool,
    port::Started,
};

/// What a receive queue did with packets that were shared or segmented, when its owner asked for unique ones.
#[derive(Debug, Default)]
pub struct Repairs {
    linearised: AtomicU64,
    too_long: AtomicU64,
    no_mbuf: AtomicU64,
}

impl Repairs {
    /// Packets copied into one mbuf of their own.
    pub fn linearised(&self) -> u64 {
        self.linearised.load(Ordering::Relaxed)
    }

    /// Packets dropped because no mbuf of the queue's pool has room for them.
    pub fn dropped_too_long(&self) -> u64 {
        self.too_long.load(Ordering::Relaxed)
    }

    /// Packets dropped because the queue's pool had no mbuf left to copy them to.
    pub fn dropped_no_mbuf(&self) -> u64 {
        self.no_mbuf.load(Ordering::Relaxed)
    }
}

/// A receive queue of a started port; the port hands it out once, and it keeps the port open.
pub struct RxQueue {
    started: Arc<Started>,
    queue: u16,
    pool: Mempool,
    repairs: Arc<Repairs>,
    _not_sync: PhantomData<Cell<()>>,
}

impl RxQueue {
    pub(crate) fn new(started: Arc<Started>, queue: u16, pool: Mempool, repairs: Arc<Repairs>) -> Self {
        Self { started, queue, pool, repairs, _not_sync: PhantomData }
    }

    /// Appends packets as they come to `burst`, as many as there are and as it has room for; returns how many.
    ///
    /// # Panics
    /// On a thread without an [`crate::LcoreGuard`].
    #[inline]
    pub fn receive<const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        self.fill(burst)
    }

    /// As [`RxQueue::receive`], with packets that are not unique copied into fresh mbufs, or dropped and counted in
    /// [`RxQueue::repairs`]. So fewer packets than were received may be appended.
    ///
    /// # Panics
    /// On a thread without an [`crate::LcoreGuard`].
    #[inline]
    pub fn receive_unique<U: OwnsUniqueMbuf, const N: usize>(&mut self, burst: &mut ArrayVec<U, N>) -> usize {
        let before = burst.len();
        let received = self.fill(burst);
        let oddities = burst[before..].iter().fold(0, |all, packet| {
            // SAFETY: `U` is one mbuf pointer, as `Mbuf` is, and reading through `Mbuf` asks for no uniqueness.
            all | unsafe { &*core::ptr::from_ref(packet).cast::<Mbuf>() }.oddities()
        });
        // As in `Mbuf::is_unique`, once for all.
        fence(Ordering::Acquire);
        if oddities == 0 { received } else { self.repair(burst, before) }
    }

    /// Counts of this queue; readable elsewhere by [`crate::PortWatch::repairs`].
    pub fn repairs(&self) -> &Repairs {
        &self.repairs
    }

    /// Its number on its port.
    pub fn number(&self) -> u16 {
        self.queue
    }

    /// The new elements of `burst` are owned mbufs, yet not known to be unique.
    #[inline]
    fn fill<M: OwnsMbuf, const N: usize>(&mut self, burst: &mut ArrayVec<M, N>) -> usize {
        must_be_registered();
        let (len, room) = (burst.len(), burst.remaining_capacity().min(u16::MAX as usize));
        // SAFETY: the port is started as long as `self.started` lives, this queue is in one thread's hands (`&mut`, handed
        // out once), the thread is an lcore, and DPDK writes at most `room` mbuf pointers, which it hands over.
        unsafe {
            let spare = burst.as_mut_ptr().add(len).cast();
            let received = sys::shim_rx_burst(self.started.port(), self.queue, spare, room as u16) as usize;
            burst.set_len(len + received);
            received
        }
    }

    #[cold]
    fn repair<U: OwnsUniqueMbuf, const N: usize>(
        &mut self,
        burst: &mut ArrayVec<U, N>,
        before: usize,
    ) -> usize {
        let end = burst.len();
        // SAFETY: the elements from `before` on are moved out as plain mbufs, each once, and those that are put back are
        // unique and fewer or as many; should anything panic between, the rest leaks.
        unsafe {
            burst.set_len(before);
            let base = burst.as_mut_ptr();
            for index in before..end {
                let packet = base.add(index).cast::<Mbuf>().read();
                if let Ok(unique) = packet.into_unique().or_else(|shared| self.linearise(shared)) {
                    base.add(burst.len()).cast::<UniqueMbuf>().write(unique);
                    burst.set_len(burst.len() + 1);
                }
            }
        }
        burst.len() - before
    }

    fn linearise(&self, packet: Mbuf) -> Result<UniqueMbuf, Dropped> {
        let copy = self.pool.copy(&packet);
        let counter = match &copy {
            Some(_) => &self.repairs.linearised,
            None if packet.len() > usize::from(self.pool.room_bytes()) => &self.repairs.too_long,
            None => &self.repairs.no_mbuf,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        copy.ok_or(Dropped)
    }
}

/// A packet could not be repaired; it is freed and counted.
struct Dropped;

/// A transmit queue of a started port; the port hands it out once, and it keeps the port open.
pub struct TxQueue {
    started: Arc<Started>,
    queue: u16,
    _not_sync: PhantomData<Cell<()>>,
}

impl TxQueue {
    pub(crate) fn new(started: Arc<Started>, queue: u16) -> Self {
        Self { started, queue, _not_sync: PhantomData }
    }

    /// Sends from the front of `burst`, and moves what it sent out of it; returns how many. The port frees those; the
    /// rest stay the caller's, in order.
    ///
    /// # Panics
    /// On a thread without an [`crate::LcoreGuard`].
    #[inline]
    pub fn transmit<M: OwnsMbuf, const N: usize>(&mut self, burst: &mut ArrayVec<M, N>) -> usize {
        must_be_registered();
        let count = burst.len().min(u16::MAX as usize);
        // SAFETY: the port is started as long as `self.started` lives, this queue is in one thread's hands, the thread is
        // an lcore, and elements are mbuf pointers (`OwnsMbuf`) of which DPDK takes the first `sent` over. The burst is
        // empty while the rest moves to its front, so that no element is ever owned twice.
        unsafe {
            let sent =
                sys::shim_tx_burst(self.started.port(), self.queue, burst.as_mut_ptr().cast(), count as u16)
                    as usize;
            let rest = burst.len() - sent;
            burst.set_len(0);
            if rest > 0 {
                let base = burst.as_mut_ptr();
                base.copy_from(base.add(sent), rest);
                burst.set_len(rest);
            }
            sent
        }
    }

    /// Its number on its port.
    pub fn number(&self) -> u16 {
        self.queue
    }
}
