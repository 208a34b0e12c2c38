//! The daemon's arguments.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Parser, ValueEnum};

/// Packet buffers for each worker, unless the arguments say how many there are.
const BUFFERS_PER_WORKER: u32 = 16_384;

/// The data plane of floodway: steers, isolates, tunnels and counts the packets of the tenants that a policy
/// directory describes.
#[derive(Parser, Debug)]
#[command(version, name = "floodwayd")]
pub struct Args {
    /// Directory of policy files to start with; `floodway apply` changes it while the daemon runs.
    #[arg(long, value_name = "DIR")]
    pub policy: PathBuf,

    /// Apply what changes in the policy directory, as `floodway apply` does.
    #[arg(long)]
    pub watch: bool,

    /// Directory that keeps what ran, for a start with a broken policy directory and for `floodway rollback`; without
    /// it only this process remembers.
    #[arg(long, value_name = "DIR", env = "FLOODWAY_STATE")]
    pub state: Option<PathBuf>,

    /// Generations that are kept.
    #[arg(long, value_name = "N", default_value_t = agent::GENERATIONS_KEPT_DEFAULT as u32, value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub history: u32,

    /// Unix socket to answer on.
    #[arg(long, value_name = "PATH", default_value = agent::DEFAULT_SOCKET)]
    pub socket: PathBuf,

    /// Address and port on which Prometheus may scrape metrics, such as 127.0.0.1:9600; nowhere but on the socket when not
    /// given. Whoever reaches it reads them.
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,

    /// Workers. As many as --lcores names, or one, when not given; with more workers than CPUs they take turns, and should
    /// sleep (--idle-sleep-us).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: Option<u16>,

    /// CPUs that workers are pinned to, in turn; the last ones of this process when not given.
    #[arg(long, alias = "lcore", value_name = "CPU,...", value_delimiter = ',')]
    pub lcores: Vec<usize>,

    /// Flow entries of each worker, of all tenants together.
    #[arg(long, value_name = "N", default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(1024..=16_777_216))]
    pub flows: u32,

    /// Queue pairs of RoCEv2 that a worker knows, of all tenants together.
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(64..=16_777_216))]
    pub queue_pairs: u32,

    /// Packet buffers; 16384 for each worker when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1024..=4_194_304))]
    pub buffers: Option<u32>,

    /// Microseconds that a worker without work sleeps at a time; 0 polls without a pause.
    ///
    /// A packet may wait this long when it is the first after a pause. On a machine whose CPUs do other work too, a
    /// worker that never sleeps starves it.
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub idle_sleep_us: u32,

    /// Where DPDK takes its memory from.
    #[arg(long, value_enum, default_value_t = Memory::Anonymous)]
    pub memory: Memory,

    /// Prefix of DPDK's files, so that several daemons can run beside each other; unused with `--memory in-memory`.
    #[arg(long, value_name = "NAME", default_value = "floodway")]
    pub file_prefix: String,

    /// One more argument for DPDK's EAL, as it is; may be given several times.
    #[arg(long = "eal-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub eal_args: Vec<String>,

    /// Where flows are exported to.
    #[command(flatten)]
    pub ipfix: crate::ipfix::IpfixArgs,

    /// What to log, in tracing's filter language.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "FLOODWAY_LOG")]
    pub log: String,
}

impl Args {
    /// How many workers there are to be.
    pub fn workers(&self) -> u16 {
        self.workers.unwrap_or(self.lcores.len().clamp(1, 64) as u16)
    }

    /// How many packet buffers there are to be.
    pub fn buffers(&self) -> u32 {
        self.buffers.unwrap_or(BUFFERS_PER_WORKER * u32::from(self.workers()))
    }
}

/// Where DPDK takes its memory from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Memory {
    /// Hugepages without files: nothing is left behind, no hugetlbfs need be mounted.
    #[value(name = "in-memory")]
    Anonymous,
    /// Hugepages with files in a hugetlbfs, as secondary processes need them.
    Hugetlbfs,
    /// Ordinary pages: for virtual devices only, at half the speed.
    NoHuge,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Args {
        let all = ["floodwayd", "--policy", "p"].iter().chain(arguments);
        Args::try_parse_from(all).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn workers_follow_from_lcores_unless_they_are_given() {
        let count = |arguments: &[&str]| (parse(arguments).workers(), parse(arguments).buffers());
        assert_eq!(count(&[]), (1, 16_384));
        assert_eq!(count(&["--lcores", "1,2,5"]), (3, 49_152));
        assert_eq!(count(&["--lcores", "1,2", "--workers", "4"]), (4, 65_536));
        assert_eq!(count(&["--lcore", "7", "--buffers", "2048"]), (1, 2048));
        assert!(Args::try_parse_from(["floodwayd", "--policy", "p", "--workers", "0"]).is_err());
    }
}
