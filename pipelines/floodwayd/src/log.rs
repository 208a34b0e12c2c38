//! Writes down the flows that rules ask to be logged. The workers never wait for it: a ring that is full loses lines,
//! which are counted.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use edge::LogRecord;
use program::{FlowRecord, Generation, Program};
use quiescent::ring::Consumer;

use crate::background::Background;
use crate::plane::Plane;

/// Records that wait to be written: what a hundred tenants may ask for at once, in 100 ms.
pub const DEPTH: usize = 1 << 14;
/// Between two looks at the ring.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The programs that a record may be of: the running one, and those before it that some worker may still have run when
/// the ring was last looked at.
pub struct Programs(Mutex<Vec<Arc<Program>>>);

impl Programs {
    /// Those of a daemon that starts.
    pub fn new(program: Arc<Program>) -> Self {
        Self(Mutex::new(vec![program]))
    }

    /// To be called before the first worker can run it.
    pub fn add(&self, program: Arc<Program>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(program);
    }

    /// Lets go of those before `settled`, of which no record is left.
    fn forget_before(&self, settled: Generation) {
        let mut programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = programs.iter().position(|program| program.generation == settled) {
            programs.drain(..at);
        }
    }

    /// The program of that generation.
    pub fn of(&self, generation: Generation) -> Option<Arc<Program>> {
        let programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        programs.iter().find(|program| program.generation == generation).cloned()
    }

    fn line(&self, record: &LogRecord) -> Option<FlowRecord> {
        Some(record.line(&*self.of(record.generation)?))
    }
}

/// Starts the thread that writes. When it is stopped, once the workers have, it writes what is left.
pub fn start(plane: Arc<Plane>, mut records: Records) -> anyhow::Result<Background> {
    Background::start("log", "the log of flows", move |stop| {
        while !stop.load(Ordering::Acquire) {
            drain(&plane, &mut records);
            std::thread::sleep(LOOK_AGAIN);
        }
        drain(&plane, &mut records);
    })
}

/// What each worker has logged.
pub type Records = Vec<Consumer<LogRecord>>;

/// Writes everything that is there. What every worker runs is asked first: records of programs before that are in the
/// ring by then.
fn drain(plane: &Plane, records: &mut Records) {
    let settled = plane.settled();
    for ring in records {
        while let Ok(record) = ring.pop() {
            if let Some(line) = plane.programs.line(&record) {
                write(&line);
            }
        }
    }
    if let Some(settled) = settled.filter(|_| !plane.traces.need_programs()) {
        plane.programs.forget_before(settled);
    }
}

fn write(line: &FlowRecord) {
    let FlowRecord { tenant, from, to, src, dst, service, verdict, rule, .. } = line;
    tracing::info!(target: "flow", tenant, from, to, %src, %dst, service, verdict, rule, "flow");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(generation: u32) -> Arc<Program> {
        Arc::new(Program { generation: Generation(generation), ..Program::default() })
    }

    fn kept(programs: &Programs) -> Vec<u32> {
        programs.0.lock().unwrap().iter().map(|program| program.generation.0).collect()
    }

    #[test]
    fn a_program_is_kept_until_no_record_can_be_of_it() {
        let programs = Programs::new(program(1));
        programs.add(program(2));
        programs.add(program(3));
        programs.forget_before(Generation(2));
        assert_eq!(kept(&programs), [2, 3]);
        // Nothing is known of it: nothing is let go.
        programs.forget_before(Generation(9));
        assert_eq!(kept(&programs), [2, 3]);
        programs.forget_before(Generation(3));
        assert_eq!(kept(&programs), [3]);
    }
}
