//! The command line.

use std::{net::IpAddr, path::PathBuf};

use agent::api::{LIMIT_DEFAULT, LIMIT_MAX};
use clap::{Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use program::{TRACE_COUNT_MAX, TRACE_SNAP_MAX, TRACE_TIMEOUT_MAX_MS};

/// Checks policy files, hands them to floodwayd, and shows what it does.
#[derive(Parser, Debug)]
#[command(name = "floodway", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// The socket of floodwayd
    #[arg(long, global = true, value_name = "PATH", env = "FLOODWAY_SOCKET", default_value = agent::DEFAULT_SOCKET)]
    pub(crate) socket: PathBuf,

    /// How to print
    #[arg(long, short, global = true, value_name = "FORM", default_value = "table")]
    pub(crate) output: Output,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the policy files are refused
  2  wrong usage
  3  floodwayd cannot be reached, or did not do it
  4  the program is published, but a worker does not run it
  5  the output cannot be written
  6  plan: something would change
  7  verify: a statement, or the isolation of tenants, is not proven
  8  import: something has no equivalent, and was left out or denied more
  9  doctor: something could be better
  10 doctor: something is wrong";

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For programs: one JSON value on stdout, errors too
    Json,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Check a policy directory; needs no daemon
    Check {
        /// Holds the policy files: *.yaml, *.yml and *.json
        directory: PathBuf,
    },
    /// Hand a policy directory to floodwayd; returns when every worker runs it
    Apply {
        /// Holds the policy files: *.yaml, *.yml and *.json
        directory: PathBuf,
        /// Refuse unless this generation runs
        #[arg(long, value_name = "NUMBER")]
        expect_generation: Option<u32>,
        /// Roll back unless `floodway confirm` comes within this time, such as 30s or 5m
        #[arg(long, value_name = "TIME", value_parser = crate::lifecycle::seconds)]
        confirm: Option<u32>,
        /// Take the files even when a Statement in them is not proven, or tenants are not apart
        #[arg(long)]
        unproven: bool,
    },
    /// Keep what `apply --confirm` published
    Confirm {
        /// Refuse unless it is this generation that waits
        generation: Option<u32>,
    },
    /// Publish the files of an earlier generation again
    Rollback {
        /// Which, of those that `floodway history` lists; the one before when left out
        generation: Option<u32>,
    },
    /// List the generations that the daemon keeps the files of
    History,
    /// Say what a policy directory would change, and which packets and open flows would be judged otherwise
    Plan {
        /// Holds the policy files: *.yaml, *.yml and *.json
        directory: PathBuf,
        /// Compare with this directory, not with the running program; needs no daemon
        #[arg(long, value_name = "DIRECTORY")]
        against: Option<PathBuf>,
    },
    /// Say why a packet gets its verdict, rule by rule
    Explain {
        /// Which packet.
        #[command(flatten)]
        packet: PacketArguments,
        /// Ask these policy files, not the running program; needs no daemon
        #[arg(long, value_name = "DIRECTORY")]
        policy: Option<PathBuf>,
    },
    /// Turn access lists of other systems into policy files; needs no daemon
    Import {
        /// What the files are
        format: ImportFormat,
        /// JSON files, which are one configuration together
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Whose everything is; without it, the files must say so
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Write a file for each tenant into this directory, not the documents to stdout
        #[arg(long, value_name = "DIRECTORY")]
        out: Option<PathBuf>,
    },
    /// Print the JSON Schema of policy files
    Schema,
    /// Prove the statements of a policy directory over all packets, and that tenants are apart; needs no daemon
    Verify {
        /// Holds the policy files: *.yaml, *.yml and *.json
        directory: PathBuf,
        /// Holds files of more statements
        #[arg(long, value_name = "DIRECTORY")]
        statements: Option<PathBuf>,
    },
    /// Say what is wrong with this machine and its floodwayd, and the command that puts it right
    Doctor {
        /// What is to run here.
        #[command(flatten)]
        setup: crate::doctor::DoctorArguments,
    },
    /// Show what floodwayd does
    Show {
        /// What of it.
        #[command(subcommand)]
        what: What,
    },
    /// Show packets as the workers see them, stage by stage
    Trace {
        /// Which packets.
        #[command(flatten)]
        packets: TraceArguments,
        /// Write their frames into this file too, as pcapng: as received and as sent
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
    /// Write frames into a pcapng file, as they came or as they left, with what was decided as comments
    Capture {
        /// Which packets.
        #[command(flatten)]
        packets: TraceArguments,
        /// Which of their frames
        #[arg(long, value_name = "PLACE")]
        at: At,
        /// Keep so many bytes of each frame
        #[arg(long, value_name = "BYTES", default_value_t = TRACE_SNAP_MAX, value_parser = clap::value_parser!(u16).range(1..=i64::from(TRACE_SNAP_MAX)))]
        snap: u16,
        /// The file
        #[arg(long, value_name = "FILE")]
        write: PathBuf,
    },
    /// Print the completion script of a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// What a foreign file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ImportFormat {
    /// ACLs of SONiC DASH: tables of its APP_DB, or records of SAI
    Dash,
    /// Security groups of OpenStack Networking, which OVN carries out
    SecurityGroups,
    /// ACLs of OVN's Northbound database: tables as `ovn-nbctl --format=json list` prints them
    Ovn,
    /// Network security groups of NVIDIA's Infra Controller (NICo)
    Nico,
}

impl From<ImportFormat> for policy::Format {
    fn from(format: ImportFormat) -> Self {
        match format {
            ImportFormat::Dash => Self::Dash,
            ImportFormat::SecurityGroups => Self::SecurityGroups,
            ImportFormat::Ovn => Self::Ovn,
            ImportFormat::Nico => Self::Nico,
        }
    }
}

/// Which frames of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum At {
    /// As it came from its port, before anything was changed
    Received,
    /// As it left, and answers to it
    Sent,
    /// As it came, of those that were dropped
    Dropped,
}

/// Which packets to trace: those to which all of it applies.
#[derive(clap::Args, Debug)]
pub(crate) struct TraceArguments {
    /// Whose packets
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Source address or prefix, inside of a tunnel
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    pub(crate) from: Option<IpNet>,
    /// Destination address or prefix, inside of a tunnel
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    pub(crate) to: Option<IpNet>,
    /// Source or destination port
    #[arg(long, value_name = "NUMBER")]
    pub(crate) port: Option<u16>,
    /// tcp, udp, sctp, icmp, icmpv6, rocev2, or the number of an IP protocol
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) protocol: Option<String>,
    /// Destination queue pair of RoCEv2
    #[arg(long, value_name = "NUMBER")]
    pub(crate) qp: Option<u32>,
    /// Only packets that are dropped
    #[arg(long)]
    pub(crate) drops: bool,
    /// Only packets that are dropped for this reason; `floodway show drops --all` lists them
    #[arg(long, value_name = "REASON")]
    pub(crate) reason: Option<String>,
    /// End after so many packets
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(TRACE_COUNT_MAX)))]
    pub(crate) count: u32,
    /// End after this time, such as 10s or 5m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = trace_seconds)]
    pub(crate) timeout: u32,
}

/// A packet by its headers, or a frame of a capture.
#[derive(clap::Args, Debug)]
pub(crate) struct PacketArguments {
    /// Port or tunnel endpoint that it comes from; for a frame the port, the uplink among them
    #[arg(long, visible_alias = "port", value_name = "NAME")]
    pub(crate) from: String,
    /// Whose packet it is; needed from a tunnel endpoint
    #[arg(long, value_name = "NAME", conflicts_with = "pcap")]
    pub(crate) tenant: Option<String>,
    /// Source address; the port's own unless given
    #[arg(long, value_name = "ADDRESS", conflicts_with = "pcap")]
    pub(crate) src: Option<IpAddr>,
    /// Destination address
    #[arg(long, value_name = "ADDRESS", required_unless_present = "pcap", conflicts_with = "pcap")]
    pub(crate) dst: Option<IpAddr>,
    /// tcp, udp, sctp, icmp, icmpv6, rocev2, or the number of an IP protocol
    #[arg(long, value_name = "PROTOCOL", required_unless_present = "pcap", conflicts_with = "pcap")]
    pub(crate) protocol: Option<String>,
    /// Source port
    #[arg(long, value_name = "NUMBER", conflicts_with = "pcap")]
    pub(crate) sport: Option<u16>,
    /// Destination port
    #[arg(long, value_name = "NUMBER", conflicts_with = "pcap")]
    pub(crate) dport: Option<u16>,
    /// ICMP type; an echo request unless given
    #[arg(long = "type", value_name = "NUMBER", conflicts_with = "pcap")]
    pub(crate) kind: Option<u8>,
    /// ICMP code; 0 unless given
    #[arg(long, value_name = "NUMBER", conflicts_with = "pcap")]
    pub(crate) code: Option<u8>,
    /// Destination queue pair of RoCEv2
    #[arg(long, value_name = "NUMBER", conflicts_with = "pcap")]
    pub(crate) qp: Option<u32>,
    /// A capture, pcap or pcapng, with the frame
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Which frame of the capture; the first is 1
    #[arg(long, value_name = "NUMBER", requires = "pcap", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frame: Option<u64>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum What {
    /// The running program, its workers and totals
    Status,
    /// Tenants and their traffic
    Tenants,
    /// Ports and their traffic
    Ports,
    /// Packets dropped, by reason and place
    Drops {
        /// Reasons without a packet too
        #[arg(long)]
        all: bool,
    },
    /// Flow entries
    Flows {
        /// At most so many
        #[arg(long, value_name = "NUMBER", default_value_t = LIMIT_DEFAULT, value_parser = limit)]
        limit: usize,
    },
    /// Queue pairs of RoCEv2 that talk to each other
    Qps {
        /// At most so many
        #[arg(long, value_name = "NUMBER", default_value_t = LIMIT_DEFAULT, value_parser = limit)]
        limit: usize,
    },
    /// Rules, where they were written and which ports ask them
    Rules {
        /// At most so many
        #[arg(long, value_name = "NUMBER", default_value_t = LIMIT_DEFAULT, value_parser = limit)]
        limit: usize,
    },
    /// Next hops on the uplink
    Neighbours,
    /// Workers, their load and their flow tables
    Workers,
    /// All metrics, as Prometheus scrapes them
    Metrics,
}

fn prefix(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address).ok_or_else(|| "neither an address nor a prefix".to_owned())
}

fn trace_seconds(text: &str) -> Result<u32, String> {
    let most = TRACE_TIMEOUT_MAX_MS / 1000;
    let seconds = crate::lifecycle::seconds(text).ok().filter(|seconds| *seconds <= most);
    seconds.ok_or_else(|| format!("not a time from 1s to {most}s, such as 10s or 5m"))
}

fn limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| format!("not a number from 1 to {LIMIT_MAX}"))
}
