//! `docs/metrics.md`, made of the table.

use std::fmt::Write as _;

use super::{Kind, Metric, SERIES_MAX, all};

const HEAD: &str = "\
# Metrics of floodwayd

This page is made of the table in the code: `UPDATE_DOCS=1 cargo test -p agent --test metrics` writes it anew.
[operations.md](operations.md#metrics) says how to have them scraped.

";

/// The page.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    page += &rules();
    page += "\n| Metric | Kind | Unit | Labels | Meaning |\n|---|---|---|---|---|\n";
    all().for_each(|metric| page += &row(metric));
    page
}

fn rules() -> String {
    format!(
        "\
Counters are 64 bits and count up from the start of the daemon. All are read at the scrape from what the workers count
anyway, as `GET /v1/report` does; a scrape asks no worker anything. Bytes are those of Ethernet frames without FCS.

Series are bounded. A `port`, a `tenant`, a `worker` and an `address` is one that the running program has: at most {ports}
ports, {tenants} tenants, 64 workers and {vteps} next hops. A `reason` is one of the {reasons} that `floodway show drops --all`
explains, a `route` one of [the API's](api.md). `floodway_dropped_packets_total` has every reason from the start; where a
reason stands beside a port or a tenant, the series begins with its first packet. No metric has more than {series} series:
what is more is left out, the tenants with the highest numbers first, and counted by `floodway_metrics_omitted_series`.

Hits of single rules are not here: workers count flows and their packets, not rules, and a flow's count goes with its
entry. `floodway show flows` names the rule of each flow that is open.
",
        ports = program::limit::PORTS,
        tenants = program::limit::TENANTS,
        vteps = program::limit::VTEPS,
        reasons = program::DropReason::COUNT,
        series = SERIES_MAX,
    )
}

fn row(metric: &Metric) -> String {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Info => "info",
    };
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let mut row = String::new();
    // A string takes all that is written.
    let _ = writeln!(
        row,
        "| `{}` | {kind} | {} | {} | {} |",
        metric.name,
        metric.unit,
        labels.join(", "),
        metric.help
    );
    row
}
