//! Checks that the compiler and clippy do not make: `cargo xtask tidy` and `cargo xtask layers`.
//!
//! Each prints one sentence per violation and exits with 1 when there is any.

mod layers;
mod tidy;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    match run() {
        Ok(violations) if violations.is_empty() => ExitCode::SUCCESS,
        Ok(violations) => {
            for violation in &violations {
                eprintln!("{violation}");
            }
            eprintln!("{} violation(s)", violations.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Vec<String>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("tidy"), None) => tidy::run(&root()?),
        (Some("layers"), None) => layers::run(&root()?),
        _ => bail!("write `cargo xtask tidy` or `cargo xtask layers`"),
    }
}

/// The workspace's folder: the one above this crate's.
fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).context("xtask is not within the workspace")
}
