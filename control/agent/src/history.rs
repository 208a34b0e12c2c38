//! What ran: the files of the last programs, in memory, and on disk when there is a state directory.
//!
//! A disk that fails does not stop an apply: the texts stay in memory, the status says so, and each warning goes to
//! whoever applied.

use std::{collections::VecDeque, path::Path, sync::Arc};

use policy::Source;

use crate::{
    api::{HistoryEntry, Outcome, StateStatus},
    history_files::{Saved, StateDirectory, StateError},
};

/// Bytes of texts that are kept, of all generations together; the newest two are kept whatever their size.
const TEXT_BYTES_KEPT: usize = 256 << 20;
/// The program that runs and the one before it.
const GENERATIONS_KEPT_MIN: usize = 2;

/// Programs by their numbers, oldest first.
#[derive(Debug)]
pub(crate) struct History {
    records: VecDeque<Record>,
    kept: usize,
    next: u32,
    state: Option<StateDirectory>,
    /// Why the newest change is not on disk.
    error: Option<String>,
}

#[derive(Debug)]
struct Record {
    entry: HistoryEntry,
    text_bytes: usize,
    /// `None`: to be read from the disk.
    sources: Option<Arc<[Source]>>,
}

impl History {
    /// Keeps nothing on disk.
    pub(crate) fn in_memory(kept: usize) -> Self {
        let kept = kept.max(GENERATIONS_KEPT_MIN);
        Self { records: VecDeque::new(), kept, next: 1, state: None, error: None }
    }

    /// Takes the directory and reads what is there. Damaged files are left where they are, and out of the history.
    pub(crate) fn open(path: &Path, kept: usize) -> Result<Self, StateError> {
        let state = StateDirectory::open(path)?;
        let mut history = Self::in_memory(kept);
        for number in state.generations()? {
            history.next = number.wrapping_add(1).max(1);
            match state.generation(number) {
                Ok(saved) if saved.entry.generation == number => history.records.push_back(Record {
                    text_bytes: text_bytes(&saved.sources),
                    entry: saved.entry,
                    sources: None,
                }),
                Ok(saved) => {
                    let found = saved.entry.generation;
                    tracing::warn!(
                        number,
                        found,
                        "a state file is not the generation that it is named after"
                    );
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
        history.state = Some(state);
        history.prune();
        Ok(history)
    }

    pub(crate) fn entries(&self) -> Vec<HistoryEntry> {
        self.records.iter().map(|record| record.entry.clone()).collect()
    }

    pub(crate) fn newest(&self) -> Option<&HistoryEntry> {
        self.records.back().map(|record| &record.entry)
    }

    /// The number of the next program.
    pub(crate) fn next_generation(&self) -> u32 {
        self.next
    }

    pub(crate) fn state(&self) -> Option<StateStatus> {
        let directory = self.state.as_ref()?.path().display().to_string();
        Some(StateStatus { directory, error: self.error.clone() })
    }

    /// What was confirmed last. A damaged file is warned of, and the newest confirmed generation is taken instead.
    pub(crate) fn last_good(&self) -> Option<Saved> {
        let state = self.state.as_ref()?;
        match state.last_good() {
            Ok(found) => return found,
            Err(error) => tracing::error!("{error}; looking for the newest generation that was confirmed"),
        }
        let confirmed = self.entries().into_iter().rev().filter(|entry| entry.outcome == Outcome::Confirmed);
        confirmed.filter_map(|entry| state.generation(entry.generation).ok()).next()
    }

    /// The newest program with this digest, when it was published to be confirmed, and was not.
    pub(crate) fn unconfirmed(&self, digest: &str) -> Option<u32> {
        let newest =
            self.records.iter().rev().map(|record| &record.entry).find(|entry| entry.digest == digest)?;
        let is_unconfirmed = matches!(newest.outcome, Outcome::Unconfirmed | Outcome::RolledBack);
        is_unconfirmed.then_some(newest.generation)
    }

    pub(crate) fn sources(&self, generation: u32) -> Result<Arc<[Source]>, Missing> {
        let record = self.records.iter().find(|record| record.entry.generation == generation);
        let record = record.ok_or_else(|| Missing::Unknown { kept: self.numbers() })?;
        match (&record.sources, &self.state) {
            (Some(sources), _) => Ok(sources.clone()),
            (None, Some(state)) => Ok(state.generation(generation)?.sources.into()),
            (None, None) => Err(Missing::Unknown { kept: self.numbers() }),
        }
    }

    /// The newest confirmed program before the newest one that has other files.
    pub(crate) fn before(&self) -> Option<u32> {
        let running = self.newest()?;
        let is_other =
            |entry: &&HistoryEntry| entry.digest != running.digest && entry.outcome == Outcome::Confirmed;
        let mut earlier = self.records.iter().rev().skip(1).map(|record| &record.entry);
        earlier.find(is_other).map(|entry| entry.generation)
    }

    /// Adds the program that runs now, or is about to. A confirmed one becomes last-good.
    pub(crate) fn push(&mut self, entry: HistoryEntry, sources: Arc<[Source]>) {
        self.next = entry.generation.wrapping_add(1).max(1);
        self.records.push_back(Record { entry, text_bytes: text_bytes(&sources), sources: Some(sources) });
        self.save_newest_texts();
        self.prune();
    }

    /// Says what became of a program.
    pub(crate) fn set_outcome(&mut self, generation: u32, outcome: Outcome) {
        let Some(index) = self.records.iter().position(|record| record.entry.generation == generation) else {
            return;
        };
        self.records[index].entry.outcome = outcome;
        let result = self.save(index);
        self.note(result);
    }

    /// Takes back a program that the data plane did not take.
    pub(crate) fn remove(&mut self, generation: u32) {
        self.records.retain(|record| record.entry.generation != generation);
        self.next = generation;
        let result = self.state.as_ref().map_or(Ok(()), |state| state.remove_generation(generation));
        self.note(result);
    }

    fn save_newest_texts(&mut self) {
        let Some(newest) = self.records.len().checked_sub(1) else { return };
        let result = self.save(newest);
        let is_saved = result.is_ok();
        self.note(result);
        // The texts of the newest stay in memory, whatever happens to the disk.
        if let Some(before) = newest.checked_sub(1).filter(|_| is_saved) {
            self.release(before);
        }
    }

    /// Gives up the texts in memory, if they can be had from the disk.
    fn release(&mut self, index: usize) {
        let Some(state) = &self.state else { return };
        let record = &mut self.records[index];
        if state.generation(record.entry.generation).is_ok_and(|saved| saved.entry == record.entry) {
            record.sources = None;
        }
    }

    /// `last-good` first: when the second write does not happen, the files are those of last-good all the same.
    fn save(&self, index: usize) -> Result<(), StateError> {
        let Some(state) = &self.state else { return Ok(()) };
        let entry = self.records[index].entry.clone();
        let sources = match self.sources(entry.generation) {
            Ok(sources) => sources.to_vec(),
            Err(Missing::State(error)) => return Err(error),
            Err(Missing::Unknown { .. }) => return Ok(()),
        };
        let saved = Saved { entry, sources };
        if saved.entry.outcome == Outcome::Confirmed {
            state.save_last_good(&saved)?;
        }
        state.save_generation(&saved)
    }

    fn note(&mut self, result: Result<(), StateError>) {
        self.error = result.err().map(|error| error.to_string());
        if let Some(error) = &self.error {
            tracing::error!("{error}; what runs now is not what a restart would fall back on");
        }
    }

    fn prune(&mut self) {
        while self.records.len() > self.kept || self.holds_too_much() {
            let Some(oldest) = self.records.pop_front() else { return };
            if let Some(Err(error)) =
                self.state.as_ref().map(|s| s.remove_generation(oldest.entry.generation))
            {
                tracing::warn!("{error}");
            }
        }
    }

    fn holds_too_much(&self) -> bool {
        let bytes: usize = self.records.iter().map(|record| record.text_bytes).sum();
        self.records.len() > GENERATIONS_KEPT_MIN && bytes > TEXT_BYTES_KEPT
    }

    fn numbers(&self) -> Vec<u32> {
        self.records.iter().map(|record| record.entry.generation).collect()
    }
}

/// Why the files of a generation are not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Missing {
    #[error("it is not kept; kept are {}", list(kept))]
    Unknown { kept: Vec<u32> },
    #[error(transparent)]
    State(#[from] StateError),
}

fn list(numbers: &[u32]) -> String {
    match numbers {
        [] => "none".into(),
        numbers => numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn text_bytes(sources: &[Source]) -> usize {
    sources.iter().map(|source| source.bytes.len()).sum()
}
