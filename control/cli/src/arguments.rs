//! The command line.

use std::path::PathBuf;

use agent::api::{LIMIT_DEFAULT, LIMIT_MAX};
use clap::{Parser, Subcommand, ValueEnum};

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
  5  the output cannot be written";

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
    /// Show what floodwayd does
    Show {
        /// What of it.
        #[command(subcommand)]
        what: What,
    },
    /// Print the completion script of a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
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
}

fn limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| format!("not a number from 1 to {LIMIT_MAX}"))
}
