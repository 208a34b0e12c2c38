//! Safe wrappers of DPDK: the rules that its API states in prose are types here, or are checked.
//!
//! | Rule of DPDK | How it is kept |
//! |---|---|
//! | EAL starts once per process and ends after everything else | [`Eal`] is counted by all that depends on it; a second start is [`InitError::StartedBefore`] |
//! | a queue is polled by one thread at a time | [`RxQueue`] and [`TxQueue`] are handed out once, are not `Sync` or `Clone`, and take `&mut self` |
//! | a thread that polls is an lcore | [`LcoreGuard`]; polling without one panics at the first call |
//! | an mbuf is freed once | [`Mbuf`] is owned: dropping frees it, sending moves it into the port |
//! | only a sole owner may write to an mbuf | [`UniqueMbuf`] alone has `&mut` access; [`Mbuf::into_unique`] checks |
//! | a pool outlives its mbufs | a [`Mempool`] whose mbufs are out is kept until they are back; ports hold their pool and close before it |
//!
//! # Ruled out by types
//! A queue cannot be copied:
//! ```compile_fail,E0599
//! fn two(queue: dpdk::RxQueue) -> (dpdk::RxQueue, dpdk::RxQueue) { (queue.clone(), queue) }
//! ```
//! ```compile_fail,E0382
//! fn two(queue: dpdk::TxQueue) -> (dpdk::TxQueue, dpdk::TxQueue) { (queue, queue) }
//! ```
//! nor be shared by threads:
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<dpdk::RxQueue>();
//! ```
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<dpdk::TxQueue>();
//! ```
//! though it can move to one:
//! ```
//! fn moved<T: Send>() {}
//! moved::<dpdk::RxQueue>();
//! moved::<dpdk::TxQueue>();
//! ```
//! An mbuf that may have other owners cannot be written to:
//! ```compile_fail,E0599
//! fn write(mut mbuf: dpdk::Mbuf) { mbuf.bytes_mut()[0] = 1; }
//! ```
//! nor can one be copied, and so be freed twice:
//! ```compile_fail,E0382
//! fn twice(mbuf: dpdk::UniqueMbuf) { drop(mbuf); drop(mbuf); }
//! ```
//! Nor can what was sent be touched again, as sending moves it out of the burst:
//! ```compile_fail,E0502
//! fn send(tx: &mut dpdk::TxQueue, burst: &mut arrayvec::ArrayVec<dpdk::UniqueMbuf, 32>) {
//!     let first = &burst[0];
//!     tx.transmit(burst);
//!     first.bytes();
//! }
//! ```
//! A registration as an lcore stays on its thread:
//! ```compile_fail,E0277
//! fn moved<T: Send>() {}
//! moved::<dpdk::LcoreGuard>();
//! ```

#[cfg(feature = "acl")]
mod acl;
mod clock;
mod eal;
mod errno;
mod lcore;
mod mbuf;
mod mempool;
mod port;
mod queue;

#[cfg(feature = "acl")]
pub use acl::{Acl, AclKey, AclRule};
pub use clock::{tsc, tsc_hz};
pub use dpdk_sys::VERSION;
pub use eal::{Eal, EalBuilder, InitError};
pub use errno::Errno;
pub use lcore::{LcoreError, LcoreGuard};
pub use mbuf::{Mbuf, OwnsMbuf, OwnsUniqueMbuf, TooManySegments, UniqueMbuf, free_burst};
pub use mempool::{Exhausted, Level, Mempool, PoolConfig, PoolError};
pub use port::{EthDev, Link, OpenError, Port, PortConfig, PortStats, PortWatch, Rss, StartError};
pub use queue::{Repairs, RxQueue, TxQueue};
