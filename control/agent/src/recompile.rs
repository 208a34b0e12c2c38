//! Files to a program, at the cost of what has changed in them.

use std::{
    num::NonZero,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use compile::{Compiled, Compiler};
use policy::{Diagnostics, Policy, Reader, Source};
use program::Program;

/// What was read and compiled last: see [`Reader`] and [`Compiler`].
#[derive(Default, Debug)]
pub struct Recompiler {
    reader: Reader,
    compiler: Compiler,
}

impl Recompiler {
    /// As [`compile_sources`], and with the same result but for [`Compiled::recompiled`].
    ///
    /// # Errors
    /// As [`compile_sources`].
    pub fn compile_sources(
        &mut self,
        sources: &[Source],
        previous: Option<&Program>,
    ) -> Result<Compiled, Diagnostics> {
        self.read_sources(sources, previous).map(|(_, compiled)| compiled)
    }

    /// As [`Recompiler::compile_sources`], with the policy, which states what is to be proven.
    pub(crate) fn read_sources(
        &mut self,
        sources: &[Source],
        previous: Option<&Program>,
    ) -> Result<(Policy, Compiled), Diagnostics> {
        let policy::Parsed { policy, mut warnings } = self.reader.parse_by(sources, &[], parse_by_all)?;
        match self.compiler.compile(&policy, previous) {
            Ok(Compiled { program, warnings: more, recompiled }) => {
                more.list.into_iter().for_each(|warning| warnings.push(warning));
                warnings.omitted += more.omitted;
                Ok((policy, Compiled { program, warnings: warnings.sorted(), recompiled }))
            }
            Err(errors) => {
                errors.list.into_iter().for_each(|error| warnings.push(error));
                warnings.omitted += errors.omitted;
                Err(warnings.sorted())
            }
        }
    }
}

/// On as many threads as there are processors for, when there is more than one file to parse.
fn parse_by_all(files: &mut [&mut policy::Task<'_>]) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(files.len());
    if threads < 2 {
        return;
    }
    let share = files.len().div_ceil(threads);
    thread::scope(|scope| {
        for files in files.chunks_mut(share) {
            scope.spawn(|| files.iter_mut().for_each(|file| file.run()));
        }
    });
}

/// [`policy::parse`] and [`compile::compile`] with the warnings of both.
///
/// # Errors
/// All diagnostics, warnings among them, when at least one is an error.
pub fn compile_sources(sources: &[Source], previous: Option<&Program>) -> Result<Compiled, Diagnostics> {
    Recompiler::default().compile_sources(sources, previous)
}

/// One for all that compile what the daemon is given.
#[derive(Clone, Default, Debug)]
pub(crate) struct Shared(Arc<Mutex<Recompiler>>);

impl Shared {
    pub(crate) fn of(recompiler: Recompiler) -> Self {
        Self(Arc::new(Mutex::new(recompiler)))
    }

    /// Waits for whoever compiles. What a panic left is not built upon.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Recompiler> {
        self.0.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            let mut recompiler = poisoned.into_inner();
            *recompiler = Recompiler::default();
            self.0.clear_poison();
            recompiler
        })
    }
}
