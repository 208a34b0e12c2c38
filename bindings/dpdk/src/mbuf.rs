//! Packet buffers, owned: [`Mbuf`] may have other owners or segments, [`UniqueMbuf`] has neither and can be written.

use core::{
    fmt,
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicU16, AtomicU64, Ordering, fence},
};

use arrayvec::ArrayVec;
use dpdk_sys as sys;

/// One reference to a packet, given up on drop. The packet may have other owners and several segments, so it is read-only.
#[repr(transparent)]
pub struct Mbuf(NonNull<sys::rte_mbuf>);

// SAFETY: an mbuf is not tied to a thread: pools take mbufs back on any, and owner counts are atomic.
unsafe impl Send for Mbuf {}
// SAFETY: all that `&Mbuf` offers reads, or raises the atomic owner count.
unsafe impl Sync for Mbuf {}

/// A packet with one owner and one segment, whose bytes nobody else can reach.
#[repr(transparent)]
pub struct UniqueMbuf(Mbuf);

/// Types that are one owned mbuf and nothing else, so that a burst of them is an array of mbuf pointers.
///
/// # Safety
/// The type must be `repr(transparent)` over [`Mbuf`] or [`UniqueMbuf`].
pub unsafe trait OwnsMbuf: Sized {}

/// Those among them that hold a [`UniqueMbuf`].
///
/// # Safety
/// The type must be `repr(transparent)` over [`UniqueMbuf`].
pub unsafe trait OwnsUniqueMbuf: OwnsMbuf {}

// SAFETY: it is `Mbuf`.
unsafe impl OwnsMbuf for Mbuf {}
// SAFETY: it is `repr(transparent)` over `Mbuf`, and is `UniqueMbuf`.
unsafe impl OwnsMbuf for UniqueMbuf {}
// SAFETY: as above.
unsafe impl OwnsUniqueMbuf for UniqueMbuf {}

/// A chain would have more segments than an mbuf can count; both packets come back.
#[derive(Debug, thiserror::Error)]
#[error("a packet of that many segments does not fit in one chain")]
pub struct TooManySegments(pub Mbuf, pub UniqueMbuf);

/// Gives all mbufs of `burst` back to their pools in one go.
pub fn free_burst<M: OwnsMbuf, const N: usize>(burst: &mut ArrayVec<M, N>) {
    let count = burst.len();
    if count == 0 {
        return;
    }
    // SAFETY: the elements are forgotten before DPDK takes their ownership over, and are mbuf pointers (`OwnsMbuf`).
    unsafe {
        burst.set_len(0);
        sys::rte_pktmbuf_free_bulk(burst.as_mut_ptr().cast(), count as u32);
    }
}

impl Mbuf {
    /// # Safety
    /// `mbuf` is valid, and the caller hands over one reference to it.
    pub(crate) unsafe fn from_raw(mbuf: NonNull<sys::rte_mbuf>) -> Self {
        Self(mbuf)
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::rte_mbuf {
        self.0.as_ptr()
    }

    /// Bytes of the whole packet, over all segments.
    pub fn len(&self) -> usize {
        self.field::<u32>(sys::SHIM_MBUF_PKT_LEN) as usize
    }

    /// True when it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of its segments, one at least.
    #[inline]
    pub fn segments(&self) -> u16 {
        self.field(sys::SHIM_MBUF_NB_SEGS)
    }

    /// Number of its owners. Another owner may change it at any time.
    #[inline]
    pub fn owners(&self) -> u16 {
        // SAFETY: the field lies in the mbuf, is aligned, and is accessed atomically by everybody while it is shared.
        unsafe { AtomicU16::from_ptr(self.0.as_ptr().byte_add(sys::SHIM_MBUF_REFCNT as usize).cast()) }
            .load(Ordering::Acquire)
    }

    /// The bytes of its first segment.
    pub fn first_segment(&self) -> &[u8] {
        // SAFETY: DPDK keeps `data_len` bytes at `data` inside the segment's buffer, initialised (it is mapped memory), and
        // nobody writes to a packet that this reference may share.
        unsafe { slice::from_raw_parts(self.data(), self.field::<u16>(sys::SHIM_MBUF_DATA_LEN) as usize) }
    }

    /// Copies the bytes from `offset` on, over all segments, into all of `out`; false when the packet is shorter.
    #[must_use]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        let (Ok(offset), Ok(len)) = (u32::try_from(offset), u32::try_from(out.len())) else { return false };
        // The C function adds them in 32 bits.
        if u64::from(offset) + u64::from(len) > self.len() as u64 {
            return false;
        }
        // SAFETY: the range lies in the packet, `out` has `len` bytes.
        unsafe { sys::shim_pktmbuf_read(self.as_ptr(), offset, len, out.as_mut_ptr().cast()) == 0 }
    }

    /// The port that it came in at (`RTE_MBUF_PORT_INVALID`, 65535, if at none).
    pub fn port(&self) -> u16 {
        self.field(sys::SHIM_MBUF_PORT)
    }

    /// The hash that the port computed over its headers, if it did.
    pub fn rss_hash(&self) -> Option<u32> {
        let hashed = self.field::<u64>(sys::SHIM_MBUF_OL_FLAGS) & sys::SHIM_F_RX_RSS_HASH != 0;
        hashed.then(|| self.field(sys::SHIM_MBUF_RSS_HASH))
    }

    /// One more owner of the same packet: for mirrors and multicast. `None` when it has 32,768 already.
    #[must_use]
    pub fn share(&self) -> Option<Self> {
        // The count has 16 bits; the upper half is room for threads that pass this check at the same time.
        if self.owners() > u16::MAX / 2 {
            return None;
        }
        // SAFETY: this reference keeps the mbuf alive while the count rises.
        unsafe { sys::shim_pktmbuf_share(self.as_ptr()) };
        Some(Self(self.0))
    }

    /// Appends `tail` as further segments; the head must not be shared, lest another owner see it grow.
    pub fn chain(self, tail: UniqueMbuf) -> Result<Self, TooManySegments> {
        // Appending writes to the last segment.
        // SAFETY: on success the chain owns the tail, so it is forgotten; on failure DPDK changed nothing.
        if self.owners() != 1 || unsafe { sys::shim_pktmbuf_chain(self.as_ptr(), tail.0.as_ptr()) } != 0 {
            return Err(TooManySegments(self, tail));
        }
        core::mem::forget(tail);
        Ok(self)
    }

    /// True when nobody else can reach its bytes and they are in one piece.
    #[inline]
    pub fn is_unique(&self) -> bool {
        let plain = self.oddities() == 0;
        // What other owners did before they gave it up happened before what this one does next.
        fence(Ordering::Acquire);
        plain || self.is_sole_owner_of_external()
    }

    /// Zero for an mbuf of one owner, one segment and its own buffer: two loads and no branch, as every received packet
    /// is looked at.
    #[inline]
    pub(crate) fn oddities(&self) -> u64 {
        const { assert!(sys::SHIM_MBUF_DATA_OFF.is_multiple_of(8), "the rearm word is aligned") };
        // SAFETY: the word lies in the mbuf and is aligned; the owner count in it is accessed atomically by everybody.
        let rearm =
            unsafe { AtomicU64::from_ptr(self.0.as_ptr().byte_add(sys::SHIM_MBUF_DATA_OFF as usize).cast()) };
        let counts = rearm.load(Ordering::Relaxed) & rearm_word(u16::MAX, u16::MAX);
        let attached =
            self.field::<u64>(sys::SHIM_MBUF_OL_FLAGS) & (sys::SHIM_F_INDIRECT | sys::SHIM_F_EXTERNAL);
        (counts ^ rearm_word(1, 1)) | attached
    }

    /// Drivers attach strips of larger buffers (mlx5's multi-packet rings); those count owners of their own.
    #[cold]
    fn is_sole_owner_of_external(&self) -> bool {
        // SAFETY: the flag says that `shinfo` is there.
        self.oddities() == sys::SHIM_F_EXTERNAL
            && unsafe { sys::shim_pktmbuf_external_refcnt(self.as_ptr()) } == 1
    }

    /// The same packet, writable, if it has one owner and one segment; else itself.
    #[inline]
    pub fn into_unique(self) -> Result<UniqueMbuf, Self> {
        if self.is_unique() { Ok(UniqueMbuf(self)) } else { Err(self) }
    }

    #[inline]
    fn data(&self) -> *mut u8 {
        let buffer = self.field::<*mut u8>(sys::SHIM_MBUF_BUF_ADDR);
        // SAFETY: `data_off` lies within the buffer.
        unsafe { buffer.add(self.field::<u16>(sys::SHIM_MBUF_DATA_OFF) as usize) }
    }

    /// `T` must be the type that `rte_mbuf_core.h` gives the field at `offset`.
    #[inline]
    fn field<T: Copy>(&self, offset: u32) -> T {
        // SAFETY: `offset` is `offsetof` the field, as the C compiler gave it for this target, so it is in the mbuf and
        // aligned; fields other than the owner count are not written while the mbuf is shared.
        unsafe { self.0.as_ptr().byte_add(offset as usize).cast::<T>().read() }
    }
}

/// The mbuf's eight bytes from `data_off` on with these owner and segment counts, and zero elsewhere.
const fn rearm_word(owners: u16, segments: u16) -> u64 {
    const fn put(word: u64, value: u16, at: u32) -> u64 {
        let byte = (at - sys::SHIM_MBUF_DATA_OFF) * 8;
        word | (value as u64) << if cfg!(target_endian = "little") { byte } else { 48 - byte }
    }
    put(put(0, owners, sys::SHIM_MBUF_REFCNT), segments, sys::SHIM_MBUF_NB_SEGS)
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` owns one reference, and gives it up here, once.
        unsafe { sys::shim_pktmbuf_free(self.as_ptr()) };
    }
}

impl UniqueMbuf {
    /// # Safety
    /// As [`Mbuf::from_raw`], and [`Mbuf::is_unique`] holds.
    pub(crate) unsafe fn from_raw(mbuf: NonNull<sys::rte_mbuf>) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Mbuf::from_raw(mbuf) })
    }

    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.0.first_segment()
    }

    /// The packet, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `first_segment`; one owner and one segment, so that nobody else reaches these bytes.
        unsafe { slice::from_raw_parts_mut(self.0.data(), self.len()) }
    }

    /// Its bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.field::<u16>(sys::SHIM_MBUF_DATA_LEN) as usize
    }

    /// True when it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it can grow by at its front.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.0.field::<u16>(sys::SHIM_MBUF_DATA_OFF) as usize
    }

    /// Bytes that it can grow by at its end.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.0.field::<u16>(sys::SHIM_MBUF_BUF_LEN) as usize - self.headroom() - self.len()
    }

    /// Grows by `count` unspecified bytes at the front; false, and nothing changed, when there is no headroom.
    #[inline]
    #[must_use]
    pub fn prepend(&mut self, count: usize) -> bool {
        let fits = count <= self.headroom();
        if fits {
            self.place(self.headroom() - count, self.len() + count);
        }
        fits
    }

    /// Grows by `count` unspecified bytes at the end; false, and nothing changed, when there is no tailroom.
    #[inline]
    #[must_use]
    pub fn append(&mut self, count: usize) -> bool {
        let fits = count <= self.tailroom();
        if fits {
            self.place(self.headroom(), self.len() + count);
        }
        fits
    }

    /// Removes `count` bytes from the front; all of them when there are fewer.
    #[inline]
    pub fn trim_front(&mut self, count: usize) {
        let count = count.min(self.len());
        self.place(self.headroom() + count, self.len() - count);
    }

    /// Shortens it to `len` bytes; nothing happens when it is not longer.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.place(self.headroom(), len);
        }
    }

    /// Replaces its bytes; false, and nothing changed, when they do not fit behind its headroom.
    #[must_use]
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.len() + self.tailroom();
        if fits {
            self.place(self.headroom(), bytes.len());
            self.bytes_mut().copy_from_slice(bytes);
        }
        fits
    }

    /// The port that it came in at, as [`Mbuf::port`].
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// As [`Mbuf::rss_hash`].
    pub fn rss_hash(&self) -> Option<u32> {
        self.0.rss_hash()
    }

    /// Asks the processor to fetch the packet's first cache line.
    #[inline]
    pub fn prefetch(&self) {
        let data = self.0.data();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching touches no memory that the program can see.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(data.cast())
        };
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{}]", in(reg) data, options(readonly, nostack, preserves_flags))
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = data;
    }

    /// Gives up the right to write.
    pub fn into_mbuf(self) -> Mbuf {
        self.0
    }

    /// Sets where the packet lies in the buffer; the callers keep it inside, and one segment has both lengths.
    #[inline]
    fn place(&mut self, offset: usize, len: usize) {
        // SAFETY: the fields lie in the mbuf, and `self` is its one owner.
        unsafe {
            let mbuf = self.0.as_ptr();
            mbuf.byte_add(sys::SHIM_MBUF_DATA_OFF as usize).cast::<u16>().write(offset as u16);
            mbuf.byte_add(sys::SHIM_MBUF_DATA_LEN as usize).cast::<u16>().write(len as u16);
            mbuf.byte_add(sys::SHIM_MBUF_PKT_LEN as usize).cast::<u32>().write(len as u32);
        }
    }
}

impl From<UniqueMbuf> for Mbuf {
    fn from(mbuf: UniqueMbuf) -> Self {
        mbuf.into_mbuf()
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mbuf({} bytes, {} segments, {} owners)", self.len(), self.segments(), self.owners())
    }
}

impl fmt::Debug for UniqueMbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueMbuf({} bytes)", self.len())
    }
}
