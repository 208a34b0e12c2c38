//! `floodway check`: what the daemon would say of the files, without one.

use std::path::Path;

use agent::api::Counts;
use policy::Diagnostics;
use serde::Serialize;

use crate::{arguments::Output, outcome::Outcome};

/// The answer for programs.
#[derive(Serialize)]
struct Checked {
    digest: String,
    counts: Counts,
    warnings: Diagnostics,
}

pub(crate) fn run(directory: &Path, output: Output) -> Outcome {
    let sources = match agent::files::read_directory(directory) {
        Ok(sources) => sources,
        Err(error) => return Outcome::files(output, &error),
    };
    let compiled = match agent::compile_sources(&sources, None) {
        Ok(compiled) => compiled,
        Err(diagnostics) => return Outcome::policy(output, diagnostics, &sources),
    };
    let counts = agent::counts(&compiled.program);
    let checked = Checked { digest: agent::digest(&compiled.program), counts, warnings: compiled.warnings };
    Outcome::answer(output, &checked, |checked| format!("ok: {}\n", summary(checked.counts)))
        .with_note(output, &checked.warnings.render(&sources))
}

/// `2 tenants, 3 ports, 14 rules`.
pub(crate) fn summary(counts: Counts) -> String {
    let Counts { tenants, ports, rules } = counts;
    format!("{}, {}, {}", plural(tenants, "tenant"), plural(ports, "port"), plural(rules, "rule"))
}

pub(crate) fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
