//! DPDK's log, caught while something is tried, so that a failure can be told in one sentence.

use std::{
    fs::File,
    io,
    os::{fd::FromRawFd, unix::fs::FileExt},
    ptr,
};

use dpdk_sys as sys;

/// A file in memory that DPDK can log to. It stays open for the process's life, as DPDK's own threads may be in the
/// middle of a line when the log goes elsewhere again.
pub(crate) struct Capture {
    stream: *mut libc::FILE,
    file: File,
}

impl Capture {
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: plain calls; each result is checked, and each descriptor gets one owner.
        unsafe {
            let fd = libc::memfd_create(c"dpdk-log".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let file = File::from_raw_fd(fd);
            let writer = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0);
            if writer < 0 || libc::fcntl(writer, libc::F_SETFL, libc::O_APPEND) < 0 {
                return Err(io::Error::last_os_error());
            }
            let stream = libc::fdopen(writer, c"a".as_ptr());
            if stream.is_null() {
                return Err(io::Error::last_os_error());
            }
            libc::setvbuf(stream, ptr::null_mut(), libc::_IONBF, 0);
            Ok(Self { stream, file })
        }
    }

    /// Runs `attempt`; its result, and what DPDK logged meanwhile.
    pub(crate) fn during<T>(&self, attempt: impl FnOnce() -> T) -> (T, String) {
        let start = self.len();
        // SAFETY: the stream is never closed; null gives the log back to DPDK's default.
        unsafe { sys::rte_openlog_stream(self.stream.cast()) };
        let result = attempt();
        // SAFETY: as above.
        unsafe { sys::rte_openlog_stream(ptr::null_mut()) };
        let mut bytes = vec![0; self.len().saturating_sub(start) as usize];
        let read = self.file.read_at(&mut bytes, start).unwrap_or(0);
        bytes.truncate(read);
        (result, String::from_utf8_lossy(&bytes).into_owned())
    }

    fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }
}

/// The first line of a driver's own, without the function that it comes from: drivers log from the inside out, and EAL
/// adds lines that tell nothing more.
pub(crate) fn cause(log: &str) -> Option<String> {
    let line = log
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("EAL:") && !line.starts_with("TELEMETRY:"))?;
    Some(line.split_once("(): ").map_or(line, |(_function, text)| text).trim_end_matches('.').to_string())
}

#[cfg(test)]
mod tests {
    use super::cause;

    #[test]
    fn a_drivers_first_line_is_the_cause() {
        let log = "EAL: something\ntun_alloc(): Unable to set TUNSETIFF for x: Operation not permitted\neth_dev_tap_create(): TAP Unable to initialize net_tap0\nEAL: Driver cannot attach the device (net_tap0)\n";
        assert_eq!(cause(log).as_deref(), Some("Unable to set TUNSETIFF for x: Operation not permitted"));
        assert_eq!(cause("EAL: Failed to attach device on primary process\n\n"), None);
    }
}
