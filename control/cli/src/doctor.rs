//! `floodway doctor`: what is wrong with this machine and with the daemon on it, and the command that puts it right.

use std::{fmt::Write, path::PathBuf, time::Duration};

use agent::client::{Client, ClientError};
use doctor::{Daemon, Finding, Machine, Setup, Verdict};
use serde::Serialize;

use crate::{arguments::Output, outcome::Outcome};

/// Between two looks at the workers' polls: longer than the longest sleep of an idle one (`--idle-sleep-us`).
const BETWEEN: Duration = Duration::from_millis(200);
/// As floodwayd has them for each worker unless it is told otherwise.
const BUFFERS_PER_WORKER: usize = 16_384;

/// What floodwayd is to be started with.
#[derive(clap::Args, Debug)]
pub(crate) struct DoctorArguments {
    /// Policy directory: with it, ports are looked at too
    #[arg(long, value_name = "DIRECTORY")]
    policy: Option<PathBuf>,
    /// CPUs of the workers
    #[arg(long, value_name = "CPU,...", value_delimiter = ',')]
    lcores: Vec<usize>,
    /// Packet buffers; 16384 for each of --lcores unless given
    #[arg(long, value_name = "N")]
    buffers: Option<u32>,
    /// floodwayd runs with --memory hugetlbfs
    #[arg(long)]
    hugetlbfs: bool,
    /// Look at the /proc, /sys and /usr below this folder, run no commands, and ask no daemon
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
}

/// The answer for programs.
#[derive(Serialize)]
struct Examined {
    /// The worst of all.
    verdict: Verdict,
    findings: Vec<Finding>,
}

pub(crate) fn run(client: &Client, arguments: DoctorArguments, output: Output) -> Outcome {
    let DoctorArguments { policy, lcores, buffers, hugetlbfs, root } = arguments;
    let program = match policy.map(|directory| agent::files::read_directory(&directory)).transpose() {
        Err(error) => return Outcome::files(output, &error),
        Ok(None) => None,
        Ok(Some(sources)) => match agent::compile_sources(&sources, None) {
            Err(diagnostics) => return Outcome::policy(output, diagnostics, &sources),
            Ok(compiled) => Some(compiled.program),
        },
    };
    let daemon = root.is_none().then(|| ask(client).map_err(|error| error.to_string()));
    let machine = root.map_or_else(Machine::here, Machine::at);
    let each = u32::try_from(BUFFERS_PER_WORKER * lcores.len().max(1)).unwrap_or(u32::MAX);
    let setup = Setup { program, lcores, buffers: buffers.unwrap_or(each), hugetlbfs, daemon };
    let findings = doctor::examine(&machine, &setup);
    let verdict = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok);
    let outcome = Outcome::answer(output, &Examined { verdict, findings }, text);
    match verdict {
        Verdict::Fail => outcome.ill(),
        Verdict::Warn => outcome.unwell(),
        Verdict::Ok | Verdict::Skipped => outcome,
    }
}

fn ask(client: &Client) -> Result<Daemon, ClientError> {
    let (status, before) = (client.status()?, client.report()?);
    std::thread::sleep(BETWEEN);
    Ok(Daemon { status, before, after: client.report()? })
}

/// A line for each check; below it what is wrong, and the way out.
fn text(examined: &Examined) -> String {
    let mut out = String::new();
    for Finding { check, verdict, seen, problem, fix } in &examined.findings {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{:<7}  {check:<14}  {seen}", verdict.name());
        if !problem.is_empty() {
            let _ = writeln!(out, "{:25}{problem}", "");
        }
        if !fix.is_empty() {
            let _ = writeln!(
                out,
                "{:25}{}: {fix}",
                "",
                if *verdict == Verdict::Skipped { "by hand" } else { "fix" }
            );
        }
    }
    let count = |verdict| examined.findings.iter().filter(|one| one.verdict == verdict).count();
    let parts = [Verdict::Ok, Verdict::Warn, Verdict::Fail, Verdict::Skipped];
    let parts = parts.map(|verdict| format!("{} {}", count(verdict), verdict.name()));
    out + &parts.join(", ") + "\n"
}
