//! From the texts of a request to a program, and why one is refused.

use std::{collections::HashSet, fmt, time::Duration};

use compile::Compiled;
use policy::{Diagnostic, Diagnostics, Severity, Source};
use program::{Generation, Program};

use crate::{
    DataPlane, PublishError,
    api::{CheckRequest, Checked, Counts, SourceText},
    recompile::Shared,
};

/// Of a bad source name as much is repeated.
const NAME_CHARS_SHOWN: usize = 64;

/// Why a request changed nothing, or not all that it was to change.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A name that diagnostics cannot point with.
    Name(String),
    /// The files are wrong; the program that runs stays.
    Policy(Diagnostics),
    /// Statements in the files are not proven; the program that runs stays.
    Unproven(Diagnostics),
    /// Another generation runs than the request expects.
    Conflict { expected: u32, running: Generation },
    /// Published, but these workers do not run it.
    Stuck { generation: Generation, workers: Vec<u32>, waited: Duration },
    /// The data plane cannot run it; the program that runs stays.
    Rejected(PublishError),
    /// Another program waits to be confirmed.
    Waiting { generation: u32, left: Duration },
    /// The state of the daemon does not allow it; the text says why.
    Impossible(String),
    /// The request has a value out of bounds; the text says which.
    OutOfBounds(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                write!(f, "the source name {name:?} is empty, given twice or has control characters")
            }
            Self::Policy(_) => f.write_str("the policy files are refused; the running program stays"),
            Self::Unproven(_) => f.write_str(
                "the policy files are refused, since what they state is not proven; the running program stays",
            ),
            Self::Conflict { expected, running } => {
                write!(f, "generation {running} runs, not {expected} as expected; nothing was changed")
            }
            Self::Stuck { generation, workers, waited } => write!(
                f,
                "generation {generation} is published, but after {} ms these workers do not run it: {}",
                waited.as_millis(),
                workers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            ),
            Self::Rejected(error) => write!(f, "{error}; the running program stays"),
            Self::Waiting { generation, left } => write!(
                f,
                "generation {generation} waits {} s more to be confirmed: `floodway confirm` keeps it, \
                 `floodway rollback` ends it; nothing was changed",
                left.as_secs()
            ),
            Self::Impossible(text) | Self::OutOfBounds(text) => f.write_str(text),
        }
    }
}

/// Compiles the files against the program that runs, and changes nothing.
pub(crate) fn check(
    plane: &dyn DataPlane,
    recompiler: &Shared,
    request: CheckRequest,
) -> Result<Checked, Refusal> {
    let running = plane.running();
    let Compiled { program, warnings, .. } = compile(recompiler, &named(request.sources)?, &running)?;
    let changed = is_change(&program, &running);
    Ok(Checked { changed, digest: digest(&program), counts: counts(&program), warnings })
}

pub(crate) fn compile(
    recompiler: &Shared,
    sources: &[Source],
    running: &Program,
) -> Result<Compiled, Refusal> {
    recompiler.lock().compile_sources(sources, Some(running)).map_err(Refusal::Policy)
}

/// As [`compile`], and what the files state is true of all packets, unless `is_unproven_taken`.
pub(crate) fn prove(
    recompiler: &Shared,
    sources: &[Source],
    running: &Program,
    is_unproven_taken: bool,
) -> Result<Compiled, Refusal> {
    let (policy, mut compiled) =
        recompiler.lock().read_sources(sources, Some(running)).map_err(Refusal::Policy)?;
    if !is_change(&compiled.program, running) {
        return Ok(compiled);
    }
    let unproven = compile::verify::unproven(&policy, &compiled.program);
    match unproven.is_empty() {
        true => Ok(compiled),
        false if is_unproven_taken => {
            warn(&mut compiled.warnings, unproven);
            Ok(compiled)
        }
        false => Err(Refusal::Unproven(unproven)),
    }
}

/// What is not proven, as something that somebody should look at.
pub(crate) fn warn(warnings: &mut Diagnostics, unproven: Diagnostics) {
    for diagnostic in unproven.list {
        warnings.push(Diagnostic { severity: Severity::Warning, ..diagnostic });
    }
    warnings.omitted += unproven.omitted;
}

/// The files of a request.
pub(crate) fn named(sources: Vec<SourceText>) -> Result<Vec<Source>, Refusal> {
    refuse_bad_names(&sources)?;
    let source = |SourceText { name, text }| Source { name, bytes: text.into_bytes() };
    Ok(sources.into_iter().map(source).collect())
}

/// Names come from file systems as a rule; whoever makes them up is to make them fit to be printed.
fn refuse_bad_names(sources: &[SourceText]) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    let is_bad = |name: &str| name.is_empty() || name.contains(char::is_control);
    match sources.iter().find(|source| is_bad(&source.name) || !seen.insert(&source.name)) {
        Some(source) => Err(Refusal::Name(source.name.chars().take(NAME_CHARS_SHOWN).collect())),
        None => Ok(()),
    }
}

/// The digest is that of the files. Generation 0 is no compiled program, whatever its digest.
pub(crate) fn is_change(program: &Program, running: &Program) -> bool {
    running.generation == Generation::default() || program.digest != running.digest
}

/// The digest as the API and the reports spell it.
pub fn digest(program: &Program) -> String {
    format!("{:016x}", program.digest)
}

/// Sizes of a program, holes not counted.
pub fn counts(program: &Program) -> Counts {
    Counts {
        tenants: program.tenants.iter().flatten().count(),
        ports: program.ports.iter().flatten().count(),
        rules: program.rules.len(),
    }
}
