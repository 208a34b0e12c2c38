//! Metrics of the daemon beside the data plane: what runs, whence it is, what was asked.

use super::{Kind, Metric, Rows, Snapshot};
use crate::api::{PolicyStatus, Status};

/// In the order in which they are told.
pub(super) const TABLE: &[Metric] = &[
    Metric {
        name: "floodway_build_info",
        kind: Kind::Info,
        unit: "",
        labels: &["version"],
        help: "The version of floodwayd.",
        read: |_, rows| rows.put([env!("CARGO_PKG_VERSION")], 1),
    },
    Metric::gauge("floodway_uptime_seconds", &[], "Time since the daemon answers.", |s, rows| {
        rows.put([""; 0], s.uptime_s);
    })
    .of_unit("seconds"),
    Metric::gauge("floodway_generation", &[], "The generation that was published last.", |s, rows| {
        rows.put([""; 0], s.report.generation.into());
    }),
    Metric::gauge("floodway_program_tenants", &[], "Tenants of the running program.", |s, rows| {
        rows.put([""; 0], crate::counts(&s.program).tenants as u64);
    }),
    Metric::gauge(
        "floodway_program_ports",
        &[],
        "Tenant ports of the running program, without the uplink.",
        |s, rows| rows.put([""; 0], crate::counts(&s.program).ports as u64),
    ),
    Metric::gauge("floodway_program_rules", &[], "Rules of the running program.", |s, rows| {
        rows.put([""; 0], crate::counts(&s.program).rules as u64);
    }),
    Metric::counter(
        "floodway_policy_changes_total",
        &["by", "result"],
        "Policy files that were to run: by `apply`, `watch` or `rollback`, and whether they were `applied`, `unchanged`, \
         `refused`, or published and `stuck` on their way to some worker.",
        |s, rows| {
            for (by, ending, count) in s.tally.counts() {
                rows.put([by, ending.name()], count);
            }
        },
    ),
    Metric::gauge(
        "floodway_policy_last_success_timestamp_seconds",
        &[],
        "When files were applied last, or found to run already, by the wall clock; 0 while it is not known.",
        |s, rows| rows.put([""; 0], s.tally.succeeded_at_unix_s),
    )
    .of_unit("seconds"),
    Metric::gauge(
        "floodway_policy_last_good",
        &[],
        "1 while the daemon runs what it ran before it was started with a broken policy directory, else 0.",
        |s, rows| status(s, rows, |status| status.policy == PolicyStatus::LastGood),
    ),
    Metric::gauge(
        "floodway_policy_refused",
        &[],
        "1 while what the start, the watch or a roll-back was given last is refused, else 0.",
        |s, rows| status(s, rows, |status| status.refused.is_some()),
    ),
    Metric::gauge(
        "floodway_policy_unconfirmed",
        &[],
        "1 while a generation waits to be confirmed, else 0.",
        |s, rows| status(s, rows, |status| status.unconfirmed.is_some()),
    ),
    Metric::gauge(
        "floodway_policy_state_error",
        &[],
        "1 while the newest program cannot be kept in the state directory, else 0.",
        |s, rows| {
            status(s, rows, |status| status.state.as_ref().is_some_and(|state| state.error.is_some()));
        },
    ),
    Metric::counter(
        "floodway_policy_watch_reads_total",
        &[],
        "Times that the watch read the policy directory; absent without `--watch`.",
        |s, rows| {
            if let Some(watch) = s.status.as_ref().and_then(|status| status.watch.as_ref()) {
                rows.put([""; 0], watch.reads);
            }
        },
    ),
    Metric::gauge(
        "floodway_policy_watch_polling",
        &[],
        "1 while changes of the policy directory are not heard and it is looked at every two seconds, else 0; absent \
         without `--watch`.",
        |s, rows| {
            if let Some(watch) = s.status.as_ref().and_then(|status| status.watch.as_ref()) {
                rows.put([""; 0], watch.polling.is_some().into());
            }
        },
    ),
    Metric::counter(
        "floodway_api_requests_total",
        &["route", "status"],
        "Requests that were answered, by route (`none` when there is none such) and HTTP status.",
        |s, rows| {
            for request in &s.requests {
                rows.put([request.route.clone(), request.status.to_string()], request.count);
            }
        },
    ),
    Metric::gauge(
        "floodway_metrics_omitted_series",
        &["metric"],
        "Series that this scrape left out of a metric, since it had too many; absent when there are none.",
        |s, rows| s.omitted.iter().for_each(|&(metric, series)| rows.put([metric], series)),
    ),
];

fn status(snapshot: &Snapshot, rows: &mut Rows, is_so: fn(&Status) -> bool) {
    if let Some(status) = &snapshot.status {
        rows.put([""; 0], is_so(status).into());
    }
}
