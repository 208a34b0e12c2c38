//! What the language has no word for, and every processor or system does.

/// Bytes from which on a table is worth large pages: one of them.
const LARGE_PAGE: usize = 2 << 20;

/// Asks the processor to fetch the cache line where `target` begins, to be read soon.
///
/// A hint: it changes no state that a program can see. Does nothing where no instruction for it is known.
#[inline(always)]
pub fn prefetch_read<T: ?Sized>(target: &T) {
    let address = core::ptr::from_ref(target).cast::<i8>();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: PREFETCHT0 never faults and writes nothing, whatever the address; SSE is part of x86_64.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address);
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM never faults and writes nothing, whatever the address; it touches no flags and no stack.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// An empty vector with room for `capacity` items, on large pages where the system has any to give (Linux: transparent
/// hugepages, which most distributions give to whoever asks).
///
/// For tables that are read at random: with small pages each read also costs a walk of the page table. Where there are
/// no large pages it is a vector as any other.
pub fn on_large_pages<T>(capacity: usize) -> Vec<T> {
    let vector = Vec::with_capacity(capacity);
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let bytes = vector.capacity() * size_of::<T>();
        let address = vector.as_ptr() as usize;
        let first = address.next_multiple_of(LARGE_PAGE);
        let len = (address + bytes).saturating_sub(first) / LARGE_PAGE * LARGE_PAGE;
        if len > 0 {
            // SAFETY: the range lies within the vector's own allocation; the advice changes no byte that is there, and
            // that it is not taken changes nothing.
            unsafe { libc::madvise(first as *mut libc::c_void, len, libc::MADV_HUGEPAGE) };
        }
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pages_hold_what_is_put_in() {
        for capacity in [0, 1, LARGE_PAGE / 8, LARGE_PAGE] {
            let mut vector = on_large_pages(capacity);
            assert!(vector.is_empty() && vector.capacity() >= capacity);
            vector.extend(0..capacity as u64);
            assert!(vector.iter().copied().eq(0..capacity as u64));
        }
    }

    #[test]
    fn any_reference_will_do() {
        let values = [1_u64, 2, 3];
        prefetch_read(&values[2]);
        prefetch_read(&values[3..]);
        prefetch_read("");
        assert_eq!(values, [1, 2, 3]);
    }
}
