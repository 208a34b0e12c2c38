//! What the daemon starts with: the policy directory, or what ran last when the directory is no good.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use compile::Compiled;
use policy::{Diagnostics, Source};
use program::{Generation, Program};

use crate::{
    api::{By, HistoryEntry, Outcome, RefusedFiles},
    applier::{Applier, entry, refused},
    apply::{digest, warn},
    files::{FilesError, read_directory},
    history::History,
    history_files::{Saved, StateError},
    recompile::Recompiler,
};

/// Generations that are kept unless told otherwise.
pub const GENERATIONS_KEPT_DEFAULT: usize = 16;

/// What to start with, and what to keep.
#[derive(Clone, Debug)]
pub struct Start {
    /// The policy directory.
    pub policy: PathBuf,
    /// Where programs are kept over restarts; in memory only without it.
    pub state: Option<PathBuf>,
    /// Apply what changes in the policy directory.
    pub watch: bool,
    /// Generations that are kept, 2 or more.
    pub generations_kept: usize,
}

/// Why the daemon has nothing to start with.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The policy directory cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The policy files are wrong.
    #[error("the policy in {} is refused\n{diagnostics}", directory.display())]
    Policy {
        /// The policy directory.
        directory: PathBuf,
        /// What is wrong.
        diagnostics: Diagnostics,
    },
    /// The policy directory is no good, and this daemon does not take what ran last.
    #[error("{error}\nand the last good policy is refused as well\n{diagnostics}")]
    LastGood {
        /// What is wrong with the directory.
        error: Box<StartError>,
        /// What is wrong with the last good policy.
        diagnostics: Diagnostics,
    },
    /// The policy files state what is not proven. Only ever logged: there is a last good policy then.
    #[error("the policy in {} states what is not proven\n{diagnostics}", directory.display())]
    Unproven {
        /// The policy directory.
        directory: PathBuf,
        /// What is not.
        diagnostics: Diagnostics,
    },
    /// The files were applied to be confirmed, and nobody did. Only ever logged: there is a last good policy then.
    #[error("the policy in {} was applied as generation {generation}, and not confirmed", directory.display())]
    Unconfirmed {
        /// The policy directory.
        directory: PathBuf,
        /// Under this number.
        generation: u32,
    },
}

/// What the daemon remembers and watches, for [`crate::Listening::serve_with`].
#[derive(Debug)]
pub struct Lifecycle {
    history: History,
    first: Option<(HistoryEntry, Arc<[Source]>)>,
    refused: Option<RefusedFiles>,
    /// With what it was compiled, so that the first change costs no more than the next ones.
    recompiler: Recompiler,
    /// What to watch, and what was found there.
    pub(crate) watch: Option<(PathBuf, Found)>,
}

/// The digest of the files in a directory, or why there is none.
pub(crate) type Found = Result<u64, String>;

pub(crate) fn found(read: &Result<Vec<Source>, FilesError>) -> Found {
    match read {
        Ok(sources) => Ok(policy::digest(sources)),
        Err(error) => Err(error.to_string()),
    }
}

impl Default for Lifecycle {
    /// Remembers in memory, from the first apply on; watches nothing.
    fn default() -> Self {
        let history = History::in_memory(GENERATIONS_KEPT_DEFAULT);
        Self { history, first: None, refused: None, recompiler: Recompiler::default(), watch: None }
    }
}

impl Lifecycle {
    /// Finds the program to start with. Nothing is kept before it runs.
    ///
    /// # Errors
    /// The state directory cannot be used, or the policy directory is no good and there is nothing else.
    pub fn start(start: &Start) -> Result<(Program, Diagnostics, Self), StartError> {
        let history = match &start.state {
            Some(state) => History::open(state, start.generations_kept)?,
            None => History::in_memory(start.generations_kept),
        };
        let read = read_directory(&start.policy);
        let found = found(&read);
        let mut recompiler = Recompiler::default();
        let (by, sources, mut compiled, refused) = choose(read, &start.policy, &history, &mut recompiler)?;
        compiled.program.generation = Generation(number(&history, &compiled.program, by));
        let first = entry(&compiled.program, by, Outcome::Confirmed);
        let watch = start.watch.then(|| (start.policy.clone(), found));
        let lifecycle = Self { history, first: Some((first, sources.into())), refused, recompiler, watch };
        Ok((compiled.program, compiled.warnings, lifecycle))
    }

    /// The program that was started with runs: from here on it is the last good one.
    pub(crate) fn into_applier(self) -> Applier {
        let mut applier = Applier::new(self.history, self.refused, self.recompiler);
        if let Some((entry, sources)) = self.first {
            applier.started(entry, sources);
        }
        applier
    }
}

type Choice = (By, Vec<Source>, Compiled, Option<RefusedFiles>);

fn choose(
    read: Result<Vec<Source>, FilesError>,
    directory: &Path,
    history: &History,
    recompiler: &mut Recompiler,
) -> Result<Choice, StartError> {
    let error = match compile_directory(read, directory, recompiler) {
        Ok((sources, mut compiled, diagnostics)) => {
            let error = unconfirmed(directory, history, &compiled.program)
                .or_else(|| unproven(directory, history, &compiled.program, &diagnostics));
            match error {
                None => {
                    warn(&mut compiled.warnings, diagnostics);
                    return Ok((By::Start, sources, compiled, None));
                }
                Some(error) => error,
            }
        }
        Err(error) => error,
    };
    let Some(Saved { entry, sources }) = history.last_good() else { return Err(error) };
    let compiled = match recompiler.compile_sources(&sources, None) {
        Ok(compiled) => compiled,
        Err(diagnostics) => return Err(StartError::LastGood { error: error.into(), diagnostics }),
    };
    let text = match &error {
        StartError::Policy { directory, .. } => format!("the policy in {} is refused", directory.display()),
        StartError::Unproven { directory, .. } => {
            format!("the policy in {} states what is not proven", directory.display())
        }
        error => error.to_string(),
    };
    let text = format!("{text}; starting with the last good policy, generation {}", entry.generation);
    let diagnostics = match error {
        StartError::Policy { diagnostics, .. } | StartError::Unproven { diagnostics, .. } => diagnostics,
        _ => Diagnostics::default(),
    };
    Ok((By::LastGood, sources, compiled, Some(refused(text, diagnostics))))
}

/// The program, and what of the files is not proven.
fn compile_directory(
    read: Result<Vec<Source>, FilesError>,
    directory: &Path,
    recompiler: &mut Recompiler,
) -> Result<(Vec<Source>, Compiled, Diagnostics), StartError> {
    let sources = read?;
    match recompiler.read_sources(&sources, None) {
        Ok((policy, compiled)) => {
            let unproven = compile::verify::unproven(&policy, &compiled.program);
            Ok((sources, compiled, unproven))
        }
        Err(diagnostics) => Err(StartError::Policy { directory: directory.into(), diagnostics }),
    }
}

/// Files that an apply would refuse are not started with, if there are others. Those that ran last were taken all the same.
fn unproven(
    directory: &Path,
    history: &History,
    program: &Program,
    diagnostics: &Diagnostics,
) -> Option<StartError> {
    let is_other = history.last_good().is_some_and(|last_good| last_good.entry.digest != digest(program));
    (is_other && !diagnostics.is_empty())
        .then(|| StartError::Unproven { directory: directory.into(), diagnostics: diagnostics.clone() })
}

/// Files that nobody confirmed are not started with, if there are others.
fn unconfirmed(directory: &Path, history: &History, program: &Program) -> Option<StartError> {
    let digest = digest(program);
    let generation = history.unconfirmed(&digest)?;
    let is_other = history.last_good().is_some_and(|last_good| last_good.entry.digest != digest);
    is_other.then(|| StartError::Unconfirmed { directory: directory.into(), generation })
}

/// The same files that ran last keep their number, so that restarts do not fill the history.
fn number(history: &History, program: &Program, by: By) -> u32 {
    let is_same = |newest: &&HistoryEntry| {
        let is_known = newest.by == by || by == By::Start && newest.by != By::LastGood;
        newest.digest == digest(program) && newest.outcome == Outcome::Confirmed && is_known
    };
    history.newest().filter(is_same).map_or(history.next_generation(), |newest| newest.generation)
}
