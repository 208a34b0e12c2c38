//! The edge pipeline, by the program `edge` beside this one.

use std::path::{Path, PathBuf};
use std::process::Command;

use benches::traffic::{Traffic, Transport};

use crate::Args;

/// What is measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Rules that each accept a part of the traffic.
    pub rules: u32,
    /// Each packet opens a flow.
    pub misses: bool,
}

/// Cycles per packet of one run.
pub fn run(args: &Args, traffic: &Traffic, work: Work, capture: &Path) -> Result<f64, String> {
    let program = beside_this("edge")?;
    let mut command = Command::new(&program);
    command.arg("--capture").arg(capture).args(["--cpu", &args.cpu.to_string()]);
    command.args(["--seconds", &args.seconds.to_string(), "--flows", &traffic.flows.to_string()]);
    command.args(["--frame-len", &traffic.frame_len.to_string(), "--rules", &work.rules.to_string()]);
    let transport = match traffic.transport {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
        Transport::Roce => "roce",
    };
    command.args(["--transport", transport]);
    if work.misses {
        command.arg("--misses");
    }
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}; build it with --features dpdk", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.split_whitespace().skip_while(|word| *word != "cycles_per_packet").nth(1);
    value
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("the edge benchmark failed: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The rate of the time stamp counter, as the edge benchmark measures in.
pub fn tsc_hz() -> Result<f64, String> {
    let program = beside_this("edge")?;
    let output = Command::new(&program).arg("--print-hz").output().map_err(|error| error.to_string())?;
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .map_err(|_| format!("no TSC rate: {}", String::from_utf8_lossy(&output.stderr)))
}

fn beside_this(name: &str) -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(this.with_file_name(name))
}
