//! `floodway`: checks policy files, hands them to the daemon, and shows what it does. `docs/cli.md` is the user's view.
//!
//! Each command gives an [`Outcome`]; only `main` writes and ends.
#![forbid(unsafe_code)]

mod apply;
mod arguments;
mod capture;
mod check;
mod doctor;
mod explain;
mod import;
mod lifecycle;
mod outcome;
mod pcapng;
mod plan;
mod show;
mod table;
mod trace;
mod verify;

use std::process::ExitCode;

use agent::client::Client;
use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command};
use outcome::Outcome;

/// For editors and for whoever writes policy files by program.
const SCHEMA: &str = include_str!("../../../deploy/schema/floodway.schema.json");

fn main() -> ExitCode {
    // Usage errors end here, with code 2.
    let arguments = Arguments::parse();
    run(arguments).finish()
}

fn run(arguments: Arguments) -> Outcome {
    let Arguments { command, socket, output } = arguments;
    let client = Client::new(socket);
    match command {
        Command::Check { directory } => check::run(&directory, output),
        Command::Apply { directory, expect_generation, confirm, unproven } => {
            let how = apply::How { expect_generation, confirm_s: confirm, unproven };
            apply::run(&client, &directory, how, output)
        }
        Command::Confirm { generation } => lifecycle::confirm(&client, generation, output),
        Command::Rollback { generation } => lifecycle::rollback(&client, generation, output),
        Command::History => lifecycle::history(&client, output),
        Command::Plan { directory, against } => plan::run(&client, &directory, against.as_deref(), output),
        Command::Explain { packet, policy } => explain::run(&client, packet, policy.as_deref(), output),
        Command::Import { format, files, tenant, out } => {
            import::run(format.into(), &files, tenant.as_deref(), out.as_deref(), output)
        }
        Command::Schema => Outcome::good(SCHEMA),
        Command::Verify { directory, statements } => verify::run(&directory, statements.as_deref(), output),
        Command::Doctor { setup } => doctor::run(&client, setup, output),
        Command::Show { what } => show::run(&client, what, output),
        Command::Trace { packets, write } => trace::run(&client, packets, write.as_deref(), output),
        Command::Capture { packets, at, snap, write } => {
            trace::capture(&client, packets, at, snap, &write, output)
        }
        Command::Completion { shell } => completion(shell),
        Command::Man => man(),
    }
}

fn completion(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "floodway", &mut script);
    Outcome::good(String::from_utf8_lossy(&script))
}

fn man() -> Outcome {
    let mut page = Vec::new();
    match clap_mangen::Man::new(Arguments::command()).render(&mut page) {
        Ok(()) => Outcome::good(String::from_utf8_lossy(&page)),
        Err(error) => Outcome::unwritable(&error),
    }
}
