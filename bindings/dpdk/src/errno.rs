//! DPDK's error numbers.

use core::{ffi::CStr, fmt};

use dpdk_sys as sys;

/// A positive error number: of `errno.h`, or one of DPDK's own from 1001 on (`rte_errno.h`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// From a number of either sign, as DPDK returns negative ones and stores positive ones.
    pub const fn new(number: i32) -> Self {
        Self(number.saturating_abs())
    }

    /// Its positive number.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// What `rte_errno` holds on this thread.
    pub(crate) fn last() -> Self {
        // SAFETY: reads a thread-local integer.
        Self::new(unsafe { sys::shim_errno() })
    }

    /// A return code that is negative on failure, as a result.
    pub(crate) fn check(code: i32) -> Result<(), Self> {
        if code < 0 { Err(Self::new(code)) } else { Ok(()) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: `rte_strerror` takes any number and gives a terminated string in a buffer of this thread, which is
        // read before this thread calls it again.
        let text = unsafe { CStr::from_ptr(sys::rte_strerror(self.0)) };
        write!(f, "{} (error {})", text.to_string_lossy(), self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_signs_give_the_text() {
        assert_eq!(Errno::new(-libc::ENODEV).to_string(), "No such device (error 19)");
        assert_eq!(Errno::new(libc::ENODEV), Errno::new(-libc::ENODEV));
        assert_eq!(Errno::check(-libc::EEXIST), Err(Errno::new(libc::EEXIST)));
        assert_eq!(Errno::check(0), Ok(()));
        assert_eq!(Errno::new(i32::MIN).number(), i32::MAX);
    }
}
