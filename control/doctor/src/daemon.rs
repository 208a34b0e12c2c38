//! The daemon that runs here.

use agent::api::{PolicyStatus, Status};
use program::Report;

use crate::{
    Machine, Setup,
    finding::{Found, fail, ok, skipped, warn},
};

/// Reasons that speak of too little machine, not of packets that somebody should not have sent.
const TOO_LITTLE: [&str; 4] = ["no-buffer", "tx-full", "hand-over-full", "unresolved-next-hop"];

/// What a daemon said.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// Its status.
    pub status: Status,
    /// Its counters.
    pub before: Report,
    /// Its counters at least 100 ms later.
    pub after: Report,
}

fn with(setup: &Setup, look: impl FnOnce(&Daemon) -> Found) -> Found {
    match &setup.daemon {
        Some(Ok(daemon)) => look(daemon),
        _ => skipped("floodwayd", "none answers"),
    }
}

pub(crate) fn answers(_: &Machine, setup: &Setup) -> Found {
    match &setup.daemon {
        None => skipped("floodwayd", "not asked"),
        Some(Err(why)) => warn("GET /v1/status", why, "systemctl start floodwayd"),
        Some(Ok(daemon)) => {
            ok(format!("generation {}, {} workers", daemon.after.generation, daemon.after.workers.len()))
        }
    }
}

pub(crate) fn workers(_: &Machine, setup: &Setup) -> Found {
    with(setup, |Daemon { before, after, .. }| {
        let polls = |worker: u32| before.workers.iter().find(|one| one.worker == worker).map(|one| one.polls);
        let stands = |one: &&program::WorkerReport| polls(one.worker) == Some(one.polls);
        let behind = |one: &&program::WorkerReport| one.generation != after.generation;
        let seen = "GET /v1/report, twice";
        let fix = "systemctl restart floodwayd   # and send us its log";
        if let Some(worker) = after.workers.iter().find(stands) {
            return fail(seen, format!("worker {} does not poll: it forwards nothing", worker.worker), fix);
        }
        match after.workers.iter().find(behind) {
            Some(worker) => fail(
                seen,
                format!(
                    "worker {} runs generation {}, not {}",
                    worker.worker, worker.generation, after.generation
                ),
                fix,
            ),
            None => ok(format!("{seen}: all poll, and run generation {}", after.generation)),
        }
    })
}

pub(crate) fn policy(_: &Machine, setup: &Setup) -> Found {
    with(setup, |Daemon { status, .. }| {
        let seen = "GET /v1/status";
        let state_error = status.state.as_ref().and_then(|state| state.error.as_ref());
        if status.policy == PolicyStatus::LastGood {
            let problem = "the policy directory was broken at the start: last-good runs";
            return fail(seen, problem, "floodway history   # says why; then floodway apply DIR");
        }
        if let Some(refused) = &status.refused {
            return warn(seen, format!("files were refused: {}", refused.error), "floodway check DIR");
        }
        if let Some(error) = state_error {
            return warn(seen, format!("what runs is not on disk: {error}"), "df -h /var/lib/floodway");
        }
        match &status.unconfirmed {
            Some(waits) => {
                let problem =
                    format!("generation {} is rolled back in {} ms", waits.generation, waits.left_ms);
                warn(seen, problem, "floodway confirm   # or floodway rollback")
            }
            None => ok(format!("{seen}: what was applied last runs")),
        }
    })
}

pub(crate) fn losses(_: &Machine, setup: &Setup) -> Found {
    with(setup, |Daemon { after, .. }| {
        let drops = after.ports.iter().flat_map(|port| port.drops.iter().map(move |drop| (&port.name, drop)));
        let lost: Vec<_> = drops
            .filter(|(_, drop)| TOO_LITTLE.contains(&&*drop.reason))
            .map(|(port, drop)| format!("{port} {} {}", drop.packets, drop.reason))
            .collect();
        match lost.is_empty() {
            true => ok(format!("drops of floodwayd: none of {}", TOO_LITTLE.join(", "))),
            false => warn(
                format!("drops of floodwayd: {}", lost.join("; ")),
                "packets were lost for want of buffers, queues, CPUs or neighbours",
                "floodway show drops   # and docs/operations.md, Workers",
            ),
        }
    })
}
