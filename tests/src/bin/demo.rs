//! `make demo`: two tenants, real traffic, and a table of what was expected and what was seen.
//!
//! Exit code 0 when everything is as expected, 1 when something differs or could not be set up, 2 for wrong usage.

use std::{
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use scenarios::demo::{
    self, Paths,
    memory::Memory,
    namespaces::{Namespaces, Refusal},
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

const USAGE: &str =
    "usage: demo [--world namespaces|memory]   (namespaces where they can be had, else memory)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let wanted = match arguments[..] {
        [] => None,
        ["--world", world @ ("namespaces" | "memory")] => Some(world),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match show(wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(wanted: Option<&str>) -> Result<bool, String> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let registered = signal_hook::flag::register(signal, interrupted.clone());
        registered.map_err(|error| format!("cannot take signals: {error}"))?;
    }
    let scratch = tempfile::Builder::new().prefix("floodway-demo-").tempdir();
    let scratch = scratch.map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let paths = Paths::new(scratch.path());
    let why = match wanted {
        Some("memory") => "it was asked for".to_owned(),
        _ => match show_namespaces(&paths, &interrupted) {
            Ok(as_expected) => return Ok(as_expected),
            Err(Refusal::Failed(error)) => return Err(error),
            Err(Refusal::NotHere(why)) if wanted.is_some() => return Err(why),
            Err(Refusal::NotHere(why)) => why,
        },
    };
    let mut world = Memory::start(&paths, why, interrupted)?;
    Ok(demo::run(&mut world, &paths))
}

fn show_namespaces(paths: &Paths, interrupted: &Arc<AtomicBool>) -> Result<bool, Refusal> {
    let mut world = Namespaces::start(paths, interrupted.clone())?;
    Ok(demo::run(&mut world, paths))
}
