//! What the language has no word for and every processor does.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_reference_will_do() {
        let values = [1_u64, 2, 3];
        prefetch_read(&values[2]);
        prefetch_read(&values[3..]);
        prefetch_read("");
        assert_eq!(values, [1, 2, 3]);
    }
}
