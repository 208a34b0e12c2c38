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

/// Which of eight numbers equal `wanted`: bit n for the n-th.
#[inline(always)]
pub fn equal_lanes(lanes: &[u16; 8], wanted: u16) -> u8 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
            _mm_setzero_si128,
        };
        // SAFETY: sixteen bytes are read, which are those of `lanes`, at whatever alignment; SSE2 is part of x86_64.
        let lanes = unsafe { _mm_loadu_si128(lanes.as_ptr().cast()) };
        // SAFETY: SSE2 is part of x86_64.
        unsafe {
            let equal = _mm_cmpeq_epi16(lanes, _mm_set1_epi16(wanted.cast_signed()));
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u8
        }
    }
    #[cfg(any(miri, not(target_arch = "x86_64")))]
    equal_lanes_of_words(lanes, wanted)
}

/// The same in words of 64 bits, for processors without a mask of lanes. Compilers make worse of eight comparisons.
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
fn equal_lanes_of_words(lanes: &[u16; 8], wanted: u16) -> u8 {
    const LOW_BITS: u64 = 0x7fff_7fff_7fff_7fff;
    let word = |at: usize| {
        let [a, b, c, d] = [lanes[at], lanes[at + 1], lanes[at + 2], lanes[at + 3]].map(u64::from);
        let different = (a | b << 16 | c << 32 | d << 48) ^ (u64::from(wanted) * 0x0001_0001_0001_0001);
        // Adding carries into a lane's top bit when any of its other bits is set, and never into the next lane.
        let equal = !(((different & LOW_BITS) + LOW_BITS) | different | LOW_BITS);
        // One bit each, of 15, 31, 47 and 63, to the four lowest.
        ((equal >> 15).wrapping_mul(0x0001_0002_0004_0008) >> 48) as u8 & 0xf
    };
    word(0) | word(4) << 4
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
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Few values and their neighbours, so that lanes match and carries would show.
        #[test]
        fn equal_lanes_are_those_that_compare_equal(
            lanes in prop::array::uniform8(prop::sample::select(&[0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xffff])),
            wanted in prop::sample::select(&[0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xffff]),
        ) {
            let expected = (0..8).filter(|&n| lanes[n] == wanted).fold(0, |mask, n| mask | 1 << n);
            prop_assert_eq!(equal_lanes(&lanes, wanted), expected);
            prop_assert_eq!(equal_lanes_of_words(&lanes, wanted), expected);
        }
    }

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
