//! The one path by which a program becomes the one that runs: apply, watch, confirm, roll-back and the timer take it,
//! one after the other.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use compile::Compiled;
use policy::{Diagnostic, Diagnostics, Place, Severity, Source};
use program::{Generation, Program};
use tokio::{sync::watch, time::Instant};

use crate::{
    DataPlane, PublishError,
    api::{
        Applied, ApplyRequest, By, Confirmed, HistoryEntry, Outcome, PolicyStatus, RefusedFiles, StateStatus,
    },
    apply::{self, Refusal, counts, digest, is_change},
    history::{History, Missing},
    recompile::{Recompiler, Shared},
};

/// Bounds of `confirmSeconds`.
const CONFIRM_S_MAX: u32 = 3600;
/// After a roll-back that the data plane did not take, until the next try.
const RETRY: Duration = Duration::from_secs(5);

/// A program that is rolled back at a deadline.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) generation: u32,
    pub(crate) deadline: Instant,
    before: Arc<[Source]>,
}

impl Pending {
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// How files are to be applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) by: By,
    /// Rolled back after so long, unless somebody confirms.
    pub(crate) confirm: Option<Duration>,
    /// Also when something that the files state is not proven.
    pub(crate) is_unproven_taken: bool,
}

/// How a change ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Applied,
    Unchanged,
    Refused,
    Stuck,
}

impl Ending {
    const ALL: [Self; 4] = [Self::Applied, Self::Unchanged, Self::Refused, Self::Stuck];

    fn of(result: &Result<Applied, Refusal>) -> Self {
        match result {
            Ok(applied) if applied.changed => Self::Applied,
            Ok(_) => Self::Unchanged,
            Err(Refusal::Stuck { .. }) => Self::Stuck,
            Err(_) => Self::Refused,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Stuck => "stuck",
        }
    }
}

/// How changes have ended so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// By who asked for it, as [`Tally::ASKERS`] has them, and by [`Ending`].
    counts: [[u64; Ending::ALL.len()]; Tally::ASKERS.len()],
    /// When files were applied or found to run already, by the wall clock.
    pub(crate) succeeded_at_unix_s: u64,
}

impl Tally {
    const ASKERS: [(By, &'static str); 3] =
        [(By::Apply, "apply"), (By::Watch, "watch"), (By::Rollback, "rollback")];

    fn add(&mut self, by: By, ending: Ending) {
        if let Some(asker) = Self::ASKERS.iter().position(|(asker, _)| *asker == by) {
            self.counts[asker][ending as usize] += 1;
        }
        if matches!(ending, Ending::Applied | Ending::Unchanged) {
            self.succeeded_at_unix_s = wall_clock_s();
        }
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, Ending, u64)> {
        let of = |((_, by), counts): (&(By, &'static str), [u64; Ending::ALL.len()])| {
            let by = *by;
            Ending::ALL.into_iter().map(move |ending| (by, ending, counts[ending as usize]))
        };
        Self::ASKERS.iter().zip(self.counts).flat_map(of)
    }
}

/// What others see of the applier while it works.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) entries: Vec<HistoryEntry>,
    pub(crate) pending: Option<Pending>,
    pub(crate) refused: Option<RefusedFiles>,
    pub(crate) state: Option<StateStatus>,
    pub(crate) tally: Tally,
}

impl Seen {
    pub(crate) fn policy(&self) -> PolicyStatus {
        match self.entries.last() {
            Some(HistoryEntry { by: By::LastGood, .. }) => PolicyStatus::LastGood,
            _ => PolicyStatus::Current,
        }
    }
}

/// What one change leaves to the next. Whoever holds it is the only one that changes what runs.
#[derive(Debug)]
pub(crate) struct Applier {
    /// The generation that some worker did not acknowledge, when that was the last one.
    stuck: Option<Generation>,
    history: History,
    pending: Option<Pending>,
    refused: Option<RefusedFiles>,
    seen: watch::Sender<Seen>,
    recompiler: Shared,
    tally: Tally,
}

impl Applier {
    pub(crate) fn new(history: History, refused: Option<RefusedFiles>, recompiler: Recompiler) -> Self {
        let recompiler = Shared::of(recompiler);
        let seen = watch::Sender::default();
        let tally = Tally::default();
        let applier = Self { stuck: None, history, pending: None, refused, seen, recompiler, tally };
        applier.show();
        applier
    }

    pub(crate) fn recompiler(&self) -> Shared {
        self.recompiler.clone()
    }

    pub(crate) fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Compiles the files and publishes the program, unless it is the one that runs.
    pub(crate) fn apply(
        &mut self,
        plane: &dyn DataPlane,
        request: ApplyRequest,
        by: By,
    ) -> Result<Applied, Refusal> {
        let running = plane.running().generation;
        if let Some(expected) = request.expect_generation.filter(|expected| *expected != running.0) {
            return Err(Refusal::Conflict { expected, running });
        }
        if request.confirm_s.is_some_and(|seconds| !(1..=CONFIRM_S_MAX).contains(&seconds)) {
            let text = format!("the time to confirm is 1 to {CONFIRM_S_MAX} seconds; nothing was changed");
            return Err(Refusal::OutOfBounds(text));
        }
        let how = How {
            by,
            confirm: request.confirm_s.map(|seconds| Duration::from_secs(seconds.into())),
            is_unproven_taken: request.unproven,
        };
        self.apply_sources(plane, apply::named(request.sources)?, how)
    }

    /// As [`Applier::apply`], without a request.
    pub(crate) fn apply_sources(
        &mut self,
        plane: &dyn DataPlane,
        sources: Vec<Source>,
        how: How,
    ) -> Result<Applied, Refusal> {
        if let Some(pending) = &self.pending {
            return Err(Refusal::Waiting { generation: pending.generation, left: pending.left() });
        }
        let result = self.change(plane, sources.into(), how);
        self.show();
        result
    }

    /// Keeps the program that waits for it.
    pub(crate) fn confirm(
        &mut self,
        plane: &dyn DataPlane,
        generation: Option<u32>,
    ) -> Result<Confirmed, Refusal> {
        let waits = self.pending.as_ref().map(|pending| pending.generation);
        let Some(waits) = waits.filter(|waits| generation.is_none_or(|asked| asked == *waits)) else {
            return Err(Refusal::Impossible(nothing_to_confirm(waits, generation)));
        };
        // It cannot be kept before it runs.
        self.refuse_if_still_stuck(plane, Generation(waits))?;
        self.pending = None;
        self.history.set_outcome(waits, Outcome::Confirmed);
        tracing::info!(generation = waits, "confirmed");
        self.show();
        Ok(Confirmed { generation: waits, warnings: self.disk_warnings() })
    }

    /// Publishes the files of an earlier generation again. What waits to be confirmed waits no longer.
    pub(crate) fn rollback(&mut self, plane: &dyn DataPlane, to: Option<u32>) -> Result<Applied, Refusal> {
        let sources = match (to, &self.pending) {
            (None, Some(pending)) => pending.before.clone(),
            (None, None) => {
                let nothing = || "no generation with other files is kept; nothing was changed".to_owned();
                let before = self.history.before().ok_or_else(|| Refusal::Impossible(nothing()))?;
                self.kept(before)?
            }
            (Some(to), _) => self.kept(to)?,
        };
        let result = self.roll_back_to(plane, sources);
        self.show();
        result
    }

    /// Rolls back when the deadline has passed.
    pub(crate) fn expire(&mut self, plane: &dyn DataPlane) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.left().is_zero()) else { return };
        let (generation, before) = (pending.generation, pending.before.clone());
        tracing::warn!(generation, "nobody confirmed it in time: rolling back");
        // Should this fail in whatever way, it is tried again, and not at once.
        pending.deadline = Instant::now() + RETRY;
        self.show();
        if let Err(refusal) = self.roll_back_to(plane, before) {
            self.refuse(format!("rolling back from generation {generation}: {refusal}"), &refusal);
        }
        self.show();
    }

    /// Logs what nobody is there to be told, and keeps it for the status.
    pub(crate) fn refuse(&mut self, error: String, refusal: &Refusal) {
        let diagnostics = match refusal {
            Refusal::Policy(diagnostics) | Refusal::Unproven(diagnostics) => diagnostics.clone(),
            _ => Diagnostics::default(),
        };
        self.refused = Some(refused(error, diagnostics));
        self.show();
    }

    /// As [`Applier::refuse`], of a directory that cannot be read, so that there is nothing to apply.
    pub(crate) fn refuse_unread(&mut self, error: String, refusal: &Refusal, by: By) {
        self.tally.add(by, Ending::Refused);
        self.refuse(error, refusal);
    }

    /// The program that the daemon started with runs.
    pub(crate) fn started(&mut self, entry: HistoryEntry, sources: Arc<[Source]>) {
        if entry.by == By::Start {
            self.tally.succeeded_at_unix_s = wall_clock_s();
        }
        match self.history.newest() {
            Some(newest) if newest.generation == entry.generation => {
                self.history.set_outcome(entry.generation, Outcome::Confirmed);
            }
            _ => self.history.push(entry, sources),
        }
        self.show();
    }

    fn kept(&self, generation: u32) -> Result<Arc<[Source]>, Refusal> {
        self.history.sources(generation).map_err(|missing: Missing| {
            Refusal::Impossible(format!(
                "no way back to generation {generation}: {missing}; nothing was changed"
            ))
        })
    }

    /// What was pending ends when other files are published, and only then.
    fn roll_back_to(&mut self, plane: &dyn DataPlane, sources: Arc<[Source]>) -> Result<Applied, Refusal> {
        let pending = self.pending.as_ref().map(|pending| pending.generation);
        // They ran before, whatever they state: a way back is not to be shut.
        let how = How { by: By::Rollback, confirm: None, is_unproven_taken: true };
        let result = self.change(plane, sources, how);
        let is_published = match &result {
            Ok(applied) => applied.changed,
            Err(refusal) => matches!(refusal, Refusal::Stuck { .. }),
        };
        if let Some(generation) = pending.filter(|_| is_published) {
            self.pending = None;
            self.history.set_outcome(generation, Outcome::RolledBack);
        }
        result
    }

    fn change(
        &mut self,
        plane: &dyn DataPlane,
        sources: Arc<[Source]>,
        how: How,
    ) -> Result<Applied, Refusal> {
        let result = self.change_uncounted(plane, sources, how);
        self.tally.add(how.by, Ending::of(&result));
        result
    }

    fn change_uncounted(
        &mut self,
        plane: &dyn DataPlane,
        sources: Arc<[Source]>,
        how: How,
    ) -> Result<Applied, Refusal> {
        let How { by, confirm, is_unproven_taken } = how;
        let running = plane.running();
        let compiled = apply::prove(&self.recompiler, &sources, &running, is_unproven_taken)?;
        let Compiled { program, warnings, recompiled } = compiled;
        let mut applied = Applied {
            changed: is_change(&program, &running),
            generation: running.generation.0,
            digest: digest(&program),
            took_us: 0,
            counts: counts(&program),
            recompiled,
            warnings,
        };
        if !applied.changed {
            self.refuse_if_still_stuck(plane, running.generation)?;
            self.refused = None;
            return Ok(applied);
        }
        applied.generation = program.generation.0;
        let before = confirm.map(|_| self.way_back(running.generation)).transpose()?;
        let entry = entry(&program, by, Outcome::Confirmed);
        let took = match before.zip(confirm) {
            Some((before, time)) => self.publish_unconfirmed(plane, program, entry, sources, before, time),
            None => self.publish_confirmed(plane, program, entry, sources),
        }?;
        self.refused = None;
        applied.took_us = took.as_micros().try_into().unwrap_or(u64::MAX);
        self.disk_warnings().list.into_iter().for_each(|warning| applied.warnings.push(warning));
        Ok(applied)
    }

    fn way_back(&self, running: Generation) -> Result<Arc<[Source]>, Refusal> {
        if self.history.newest().is_none_or(|newest| newest.generation != running.0) {
            let text = "there are no files to roll back to, so nothing can wait to be confirmed";
            return Err(Refusal::Impossible(format!("{text}; nothing was changed")));
        }
        self.kept(running.0)
    }

    fn publish_confirmed(
        &mut self,
        plane: &dyn DataPlane,
        program: Program,
        entry: HistoryEntry,
        sources: Arc<[Source]>,
    ) -> Result<Duration, Refusal> {
        let result = self.publish(plane, program);
        match &result {
            Ok(_) => self.history.push(entry, sources),
            // It runs, but does not become last-good.
            Err(Refusal::Stuck { .. }) => {
                self.history.push(HistoryEntry { outcome: Outcome::Stuck, ..entry }, sources);
            }
            Err(_) => {}
        }
        result
    }

    /// On disk it is unconfirmed before it runs: should it take the daemon down, it is not started with again.
    fn publish_unconfirmed(
        &mut self,
        plane: &dyn DataPlane,
        program: Program,
        entry: HistoryEntry,
        sources: Arc<[Source]>,
        before: Arc<[Source]>,
        time: Duration,
    ) -> Result<Duration, Refusal> {
        let generation = entry.generation;
        self.history.push(HistoryEntry { outcome: Outcome::Unconfirmed, ..entry }, sources);
        let result = self.publish(plane, program);
        match &result {
            Ok(_) | Err(Refusal::Stuck { .. }) => {
                self.pending = Some(Pending { generation, deadline: Instant::now() + time, before });
            }
            Err(_) => self.history.remove(generation),
        }
        result
    }

    fn publish(&mut self, plane: &dyn DataPlane, program: Program) -> Result<Duration, Refusal> {
        let generation = program.generation;
        let digest = digest(&program);
        match plane.publish(program) {
            Ok(published) => {
                self.stuck = None;
                tracing::info!(%generation, %digest, took_us = published.took.as_micros(), "applied");
                Ok(published.took)
            }
            Err(PublishError::Stuck { workers, waited }) => {
                self.stuck = Some(generation);
                tracing::error!(%generation, %digest, ?workers, "published, but workers do not run it");
                Err(Refusal::Stuck { generation, workers, waited })
            }
            Err(error @ PublishError::Rejected { .. }) => Err(Refusal::Rejected(error)),
        }
    }

    /// Applying the same files again is no way to be told that all is well.
    fn refuse_if_still_stuck(&mut self, plane: &dyn DataPlane, running: Generation) -> Result<(), Refusal> {
        if self.stuck != Some(running) {
            return Ok(());
        }
        let behind = plane.report().workers.into_iter().filter(|worker| worker.generation != running.0);
        let workers: Vec<u32> = behind.map(|worker| worker.worker).collect();
        if workers.is_empty() {
            self.stuck = None;
            if self.pending.is_none() {
                self.history.set_outcome(running.0, Outcome::Confirmed);
            }
            return Ok(());
        }
        Err(Refusal::Stuck { generation: running, workers, waited: Duration::ZERO })
    }

    fn disk_warnings(&self) -> Diagnostics {
        let mut warnings = Diagnostics::default();
        if let Some(error) = self.history.state().and_then(|state| state.error) {
            let text = format!("{error}; a restart would not know of this change");
            warnings.push(Diagnostic::new(Severity::Warning, Place::NOWHERE, text));
        }
        warnings
    }

    fn show(&self) {
        self.seen.send_replace(Seen {
            entries: self.history.entries(),
            pending: self.pending.clone(),
            refused: self.refused.clone(),
            state: self.history.state(),
            tally: self.tally,
        });
    }
}

fn nothing_to_confirm(waits: Option<u32>, asked: Option<u32>) -> String {
    match (waits, asked) {
        (Some(waits), Some(asked)) => format!("generation {waits} waits to be confirmed, not {asked}"),
        (_, Some(asked)) => {
            format!("generation {asked} does not wait to be confirmed; `floodway history` says more")
        }
        _ => "nothing waits to be confirmed".into(),
    }
}

/// The program as it is kept.
pub(crate) fn entry(program: &Program, by: By, outcome: Outcome) -> HistoryEntry {
    HistoryEntry {
        generation: program.generation.0,
        digest: digest(program),
        at_unix_s: wall_clock_s(),
        by,
        outcome,
    }
}

/// For the status, and logged with every place.
pub(crate) fn refused(error: String, diagnostics: Diagnostics) -> RefusedFiles {
    tracing::error!("{error}");
    diagnostics.list.iter().for_each(|diagnostic| tracing::error!("{diagnostic}"));
    RefusedFiles { at_unix_s: wall_clock_s(), error, diagnostics }
}

/// Only shown: nothing is decided by it.
fn wall_clock_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
