//! Arms the workers for one trace at a time, and reads what they put down. They never wait for it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent::TraceError;
use edge::{Filter, Order, TapHandle, Trace, TraceRecord};
use packet::Nanos;
use program::{Program, TraceReport, TraceRequest, TraceStarted, TracedPacket};

use crate::log::Programs;

/// Records that wait in each worker's ring, of about a kibibyte.
pub const DEPTH: usize = 512;
/// Packets in one answer.
const PACKETS_AT_ONCE: usize = 1024;
/// How long an answer waits for the first packet.
const ANSWER_AFTER: Duration = Duration::from_millis(200);
/// Between two looks at the rings.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long after its end somebody may fetch what is left of a trace, in the names of its programs.
const GRACE: Duration = Duration::from_secs(5);

/// The trace that runs, and the ends of the workers' rings.
#[derive(Default)]
pub struct Traces(Mutex<State>);

#[derive(Default)]
struct State {
    taps: Vec<TapHandle>,
    last: u64,
    current: Option<Current>,
}

/// A trace that was begun, until the next one is.
struct Current {
    number: u64,
    by: String,
    begun: Instant,
    begun_unix_ns: u64,
    lasts: Duration,
    left: u32,
    is_ended: bool,
    untraced_before: u64,
}

impl Current {
    fn is_over(&self) -> bool {
        self.is_ended || self.left == 0 || self.begun.elapsed() >= self.lasts
    }
}

impl Traces {
    /// Takes the next worker's ring.
    pub fn add(&self, tap: TapHandle) {
        self.state().taps.push(tap);
    }

    /// Whether a record may still be of a program that runs no more.
    pub fn need_programs(&self) -> bool {
        self.state().current.as_ref().is_some_and(|current| current.begun.elapsed() < current.lasts + GRACE)
    }

    /// Arms every worker. `untraced` is what they have not looked at so far.
    pub fn begin(
        &self,
        request: &TraceRequest,
        program: &Program,
        untraced: u64,
    ) -> Result<TraceStarted, TraceError> {
        let filter = Filter::new(request, program)
            .map_err(|error| TraceError::Impossible { reason: error.to_string() })?;
        let mut state = self.state();
        if let Some(current) = state.current.as_ref().filter(|current| !current.is_over()) {
            return Err(TraceError::Busy { by: current.by.clone(), since: current.begun.elapsed() });
        }
        state.last += 1;
        let number = state.last;
        let lasts = Nanos::from_millis(request.timeout_ms.into());
        let order = Order::Arm(Trace { number, filter, count: request.count, lasts, snap: request.snap });
        for tap in &mut state.taps {
            // What is left of the trace before takes room.
            while tap.take().is_some() {}
            if !tap.order(order) {
                return Err(TraceError::Impossible { reason: "a worker takes no orders".into() });
            }
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        state.current = Some(Current {
            number,
            by: request.by.clone(),
            begun: Instant::now(),
            begun_unix_ns: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
            lasts: Duration::from_millis(request.timeout_ms.into()),
            left: request.count,
            is_ended: false,
            untraced_before: untraced,
        });
        Ok(TraceStarted { trace: number })
    }

    /// Packets of that trace since the last call; waits a moment when there is none. `None` when it is not the last one.
    pub fn read(&self, number: u64, programs: &Programs, untraced: impl Fn() -> u64) -> Option<TraceReport> {
        let asked = Instant::now();
        loop {
            let report = self.state().read(number, programs, &untraced)?;
            if !report.packets.is_empty() || report.ended || asked.elapsed() >= ANSWER_AFTER {
                return Some(report);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Ends that trace; false when it is not the last one.
    pub fn end(&self, number: u64) -> bool {
        let mut state = self.state();
        let current = state.current.as_mut().filter(|current| current.number == number);
        let is_known = current.map(|current| current.is_ended = true).is_some();
        if is_known {
            state.disarm();
        }
        is_known
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn read(&mut self, number: u64, programs: &Programs, untraced: &impl Fn() -> u64) -> Option<TraceReport> {
        let Self { taps, current, .. } = self;
        let current = current.as_mut().filter(|current| current.number == number)?;
        // Asked first: what is put down before it is over is in the rings by then.
        let was_over = current.is_over();
        let mut packets = Vec::new();
        for (worker, tap) in taps.iter_mut().enumerate() {
            while current.left > 0
                && packets.len() < PACKETS_AT_ONCE
                && let Some(record) = tap.take()
            {
                if record.trace == number
                    && let Some(packet) = name(&record, worker, current.begun_unix_ns, programs)
                {
                    current.left -= 1;
                    packets.push(packet);
                }
            }
        }
        let untraced = untraced().saturating_sub(current.untraced_before);
        let ended = current.left == 0 || (was_over && packets.is_empty());
        if ended && !current.is_ended {
            current.is_ended = true;
            self.disarm();
        }
        Some(TraceReport { packets, untraced, ended })
    }

    /// A worker that takes no orders ends by itself, after its time.
    fn disarm(&mut self) {
        for tap in &mut self.taps {
            tap.order(Order::Disarm);
        }
    }
}

fn name(
    record: &TraceRecord,
    worker: usize,
    begun_unix_ns: u64,
    programs: &Programs,
) -> Option<TracedPacket> {
    let program = programs.of(record.generation)?;
    Some(record.name(&program, worker as u32, begun_unix_ns))
}
