//! Why EAL did not start, told from its error number and its log.

use crate::Errno;

/// Why DPDK did not start; each text is one sentence with what to do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InitError {
    /// A process starts EAL once, whether or not that went well.
    #[error("DPDK was started in this process before: keep the first Eal, it cannot start twice")]
    StartedBefore,
    /// Arguments that contradict each other or cannot be passed.
    #[error("DPDK arguments: {0}")]
    Arguments(&'static str),
    /// An lcore was asked for on a CPU that this process does not have.
    #[error("there is no CPU {cpu} for an lcore: this process may run on {online:?}")]
    NoSuchCpu {
        /// The first that is missing.
        cpu: usize,
        /// Those that are not.
        online: Vec<usize>,
    },
    /// The kernel has none.
    #[error(
        "no hugepages: reserve some with `echo 512 > /proc/sys/vm/nr_hugepages`, or start without them (no-huge, slower)"
    )]
    NoHugepages,
    /// The kernel has no free one.
    #[error(
        "all {total} hugepages are taken: stop the process that has them, or reserve more in /proc/sys/vm/nr_hugepages"
    )]
    HugepagesTaken {
        /// How many there are.
        total: u64,
    },
    /// Nowhere to put their files.
    #[error("no hugetlbfs is mounted: start in-memory, or `mount -t hugetlbfs nodev /dev/hugepages`")]
    NoHugetlbfs,
    /// More memory was asked for than the hugepages give.
    #[error(
        "not enough memory for DPDK: reserve more in /proc/sys/vm/nr_hugepages, or ask for less ({said})"
    )]
    NoMemory {
        /// DPDK's words.
        said: String,
    },
    /// The kernel refuses.
    #[error("no permission to start DPDK: run as root, or grant hugepages and devices to this user ({said})")]
    NoPermission {
        /// DPDK's words.
        said: String,
    },
    /// The other process with this file prefix lives.
    #[error(
        "another DPDK process runs with the file prefix \"{prefix}\": stop it, choose another prefix, or start in-memory"
    )]
    PrefixInUse {
        /// The prefix.
        prefix: String,
    },
    /// A device of the arguments cannot be had.
    #[error("a device that DPDK was started with does not work: correct it or leave it out ({said})")]
    Device {
        /// DPDK's words.
        said: String,
    },
    /// Something else.
    #[error("DPDK does not start: {errno} ({said})")]
    Other {
        /// Its error number.
        errno: Errno,
        /// DPDK's words.
        said: String,
    },
}

/// From what a failed `rte_eal_init` leaves. Words of the log come first: the number is often stale or unspecific.
pub(super) fn diagnose(errno: Errno, log: &str, prefix: &str) -> InitError {
    let saying = |words: &[&str]| {
        log.lines().find(|line| words.iter().any(|w| line.contains(w))).map(|line| line.trim().to_string())
    };
    let last = || log.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_string();
    let said =
        saying(&["rror", "annot", "ould not", "ouldn't", "ailed", "nvalid", "nable to"]).unwrap_or_else(last);
    if saying(&["Is another primary process running"]).is_some() {
        return InitError::PrefixInUse { prefix: prefix.into() };
    }
    if let Some(said) = saying(&["Permission denied", "Operation not permitted"]) {
        return InitError::NoPermission { said };
    }
    if let Some(said) = saying(&[
        "failed to initialize",
        "failed to parse device",
        "Cannot probe",
        "Unable to parse device",
        "probe failed",
        "cannot be found",
    ]) {
        return InitError::Device { said };
    }
    if let Some(said) =
        saying(&["Cannot allocate memory", "not enough memory", "Not enough memory", "Cannot init memory"])
    {
        return InitError::NoMemory { said };
    }
    match errno.number() {
        libc::EACCES | libc::EPERM => InitError::NoPermission { said },
        libc::ENOMEM => InitError::NoMemory { said },
        _ => InitError::Other { errno, said },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_believed_before_the_number() {
        let of = |number, log: &str| diagnose(Errno::new(number), log, "fw");
        let locked =
            "EAL: Cannot create lock on '/var/run/dpdk/fw/config'. Is another primary process running?\n";
        assert_eq!(of(0, locked), InitError::PrefixInUse { prefix: "fw".into() });
        let vdev = "EAL: Detected CPU lcores: 2\nEAL: failed to parse device \"net_foo0\"\n";
        assert_eq!(
            of(libc::EINVAL, vdev),
            InitError::Device { said: "EAL: failed to parse device \"net_foo0\"".into() }
        );
        let little = "EAL: Not enough memory available! Requested: 8000MB, available: 1024MB\n";
        assert!(of(libc::EACCES, little).to_string().starts_with("not enough memory for DPDK"));
        let denied = "EAL: couldn't create runtime dir '/var/run/dpdk': Permission denied\n";
        assert!(of(libc::ENOMEM, denied).to_string().starts_with("no permission to start DPDK"));
        assert!(matches!(of(libc::EPERM, ""), InitError::NoPermission { .. }));
        assert_eq!(
            of(libc::EINVAL, "a\n\nb\n"),
            InitError::Other { errno: Errno::new(libc::EINVAL), said: "b".into() }
        );
    }
}
