//! The metrics of `GET /metrics`: read when they are asked for, from the report that `GET /v1/report` gives and from what
//! the agent counts itself. Workers are not asked.
//!
//! What there is stands in one table, [`all`], of which `docs/metrics.md` is made.

mod daemon;
mod page;
mod requests;
mod traffic;

use std::{borrow::Cow, sync::Arc};

use program::{Program, Report};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, prometheus_text, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use tokio::time::Instant;

pub use page::markdown;
pub(crate) use requests::{Requests, count};

use crate::{DataPlane, api::Status, applier::Tally, keeper::Keeper};

/// Series of one metric at most: two for each tenant that there may be. What is more is left out, and counted by
/// `floodway_metrics_omitted_series`.
pub const SERIES_MAX: usize = 2 * program::limit::TENANTS;

/// What becomes of a metric's values over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows, from the start of the daemon on; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Always 1: its labels are what it says; its name ends in `_info`.
    Info,
}

/// One metric.
pub struct Metric {
    /// As it is asked for: with the suffix of its unit and of its kind.
    pub name: &'static str,
    /// What becomes of its values over time.
    pub kind: Kind,
    /// `bytes`, `seconds`, or empty for a number of things, which the name says.
    pub unit: &'static str,
    /// What tells its series apart.
    pub labels: &'static [&'static str],
    /// What it means, in a sentence.
    pub help: &'static str,
    read: Read,
}

/// Every metric, in the order in which they are told. The last one says what was left out of those before.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    [traffic::TABLE, daemon::TABLE].into_iter().flatten()
}

type Read = fn(&Snapshot, &mut Rows);
type Names = &'static [&'static str];

impl Metric {
    const fn counter(name: &'static str, labels: Names, help: &'static str, read: Read) -> Self {
        Self { name, kind: Kind::Counter, unit: "", labels, help, read }
    }

    const fn gauge(name: &'static str, labels: Names, help: &'static str, read: Read) -> Self {
        Self { name, kind: Kind::Gauge, unit: "", labels, help, read }
    }

    const fn of_unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// The name without what the encoder adds.
    fn base(&self) -> &'static str {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        };
        let name = self.name.strip_suffix(suffix).unwrap_or(self.name);
        match self.unit {
            "" => name,
            unit => name.strip_suffix(unit).and_then(|name| name.strip_suffix('_')).unwrap_or(name),
        }
    }

    fn unit(&self) -> Option<Unit> {
        match self.unit {
            "" => None,
            "bytes" => Some(Unit::Bytes),
            "seconds" => Some(Unit::Seconds),
            other => Some(Unit::Other(other.into())),
        }
    }
}

/// All that metrics are read from, of one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// What `GET /v1/report` says.
    pub(crate) report: Report,
    /// What runs.
    pub(crate) program: Arc<Program>,
    /// What `GET /v1/status` says; absent before the daemon answers.
    pub(crate) status: Option<Status>,
    /// Since the start of the daemon, by a clock that nobody sets.
    pub(crate) uptime_s: u64,
    pub(crate) tally: Tally,
    pub(crate) requests: Vec<requests::Request>,
    omitted: Vec<(&'static str, u64)>,
}

/// The series of one metric.
#[derive(Debug, Default)]
struct Rows {
    rows: Vec<(Vec<Cow<'static, str>>, u64)>,
    omitted: u64,
}

impl Rows {
    /// One series: the values of its labels, in the order of [`Metric::labels`], and its own.
    fn put<L: Into<Cow<'static, str>>, const N: usize>(&mut self, labels: [L; N], value: u64) {
        if self.rows.len() == SERIES_MAX {
            self.omitted += 1;
        } else {
            self.rows.push((labels.map(Into::into).into(), value));
        }
    }
}

/// Which text is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// OpenMetrics 1.0, as Prometheus asks for.
    OpenMetrics,
    /// The text format of Prometheus before it, for who asks for `text/plain` and not for OpenMetrics.
    Text,
}

impl Form {
    /// By the `Accept` field of a request.
    pub(crate) fn wanted(accept: &str) -> Self {
        let accepts = |kind| accept.to_ascii_lowercase().contains(kind);
        if accepts("text/plain") && !accepts("application/openmetrics-text") {
            Self::Text
        } else {
            Self::OpenMetrics
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Where metrics are read; shared by everybody who answers.
#[derive(Clone)]
pub(crate) struct Source {
    plane: Arc<dyn DataPlane>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) requests: Arc<Requests>,
    started: Instant,
}

impl Source {
    pub(crate) fn new(keeper: Arc<Keeper>) -> Self {
        Self { plane: keeper.plane(), keeper, requests: Arc::default(), started: Instant::now() }
    }

    /// May block, as [`DataPlane::report`].
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            report: self.plane.report(),
            program: self.plane.running(),
            status: Some(self.keeper.status()),
            uptime_s: self.started.elapsed().as_secs(),
            tally: self.keeper.tally(),
            requests: self.requests.all(),
            omitted: Vec::new(),
        }
    }
}

/// The text of all metrics.
pub(crate) fn encode(mut snapshot: Snapshot, form: Form) -> String {
    let mut families = Vec::new();
    for metric in all() {
        let mut rows = Rows::default();
        (metric.read)(&snapshot, &mut rows);
        if rows.omitted > 0 {
            snapshot.omitted.push((metric.name, rows.omitted));
        }
        families.push((metric, rows));
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    let written = match form {
        Form::OpenMetrics => text::encode(&mut text, &registry),
        Form::Text => prometheus_text::encode(&mut text, &registry),
    };
    debug_assert!(written.is_ok(), "a string takes all that is written");
    text
}

struct Families(Vec<(&'static Metric, Rows)>);

impl std::fmt::Debug for Families {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(metric, _)| metric.name)).finish()
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> std::fmt::Result {
        self.0.iter().try_for_each(|(metric, rows)| encode_family(&mut encoder, metric, rows))
    }
}

fn encode_family(encoder: &mut DescriptorEncoder, metric: &Metric, rows: &Rows) -> std::fmt::Result {
    let unit = metric.unit();
    let kind = match metric.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Info => MetricType::Info,
    };
    let mut family = encoder.encode_descriptor(metric.base(), metric.help, unit.as_ref(), kind)?;
    for (values, value) in &rows.rows {
        debug_assert_eq!(values.len(), metric.labels.len(), "{}", metric.name);
        let labels: Vec<(&str, &str)> =
            metric.labels.iter().copied().zip(values.iter().map(|value| &**value)).collect();
        match metric.kind {
            Kind::Info => family.encode_info(&labels)?,
            Kind::Counter => {
                family.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, u64>(value, None)?;
            }
            Kind::Gauge => family.encode_family(&labels)?.encode_gauge(value)?,
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "../tests/exposition/mod.rs"]
mod exposition;

#[cfg(test)]
mod tests {
    use program::{DropCount, TenantReport};

    use super::{exposition::Exposition, *};

    fn tenants(names: impl Iterator<Item = String>) -> Snapshot {
        let drop = |reason: &str, packets| DropCount { reason: reason.into(), packets };
        let tenant = |name| TenantReport {
            name,
            drops: vec![
                drop("martian", 1),
                drop("no-route", 1 << 50),
                drop("group", 3),
                drop("malformed", 0),
            ],
            ..TenantReport::default()
        };
        let report = Report { tenants: names.map(tenant).collect(), ..Report::default() };
        Snapshot { report, ..Snapshot::default() }
    }

    #[test]
    fn what_is_too_much_is_left_out_and_counted() {
        let most = program::limit::TENANTS;
        let exposition =
            Exposition::read(&encode(tenants((0..most).map(|n| format!("t{n}"))), Form::OpenMetrics));
        let series = |family: &str| exposition.families[family].samples.len();
        // Two sides of every tenant that there may be fit; three reasons of each do not.
        assert_eq!(series("floodway_tenant_receive_packets"), 2 * most);
        assert_eq!(series("floodway_tenant_dropped_packets"), SERIES_MAX);
        let omitted = |metric| exposition.value("floodway_metrics_omitted_series", &[metric]);
        assert_eq!(omitted("floodway_tenant_dropped_packets_total"), Some((3 * most - SERIES_MAX) as u64));
        assert_eq!(omitted("floodway_tenant_log_lines_total"), Some((3 * most - SERIES_MAX) as u64));
        assert_eq!(series("floodway_metrics_omitted_series"), 2);
        // Those with the lowest numbers stay, whole.
        let dropped =
            |tenant| exposition.value("floodway_tenant_dropped_packets_total", &[tenant, "no-route"]);
        assert_eq!((dropped("t0"), dropped("t4095")), (Some(1 << 50), None));
    }

    #[test]
    fn no_name_breaks_out_of_its_label() {
        let name = "a\"} 1\n# EOF\n\\n";
        let text = encode(tenants([name.to_owned()].into_iter()), Form::OpenMetrics);
        let exposition = Exposition::read(&text);
        assert_eq!(exposition.value("floodway_tenant_dropped_packets_total", &[name, "group"]), Some(3));
    }

    #[test]
    fn a_daemon_that_runs_nothing_has_sound_metrics() {
        let exposition = Exposition::read(&encode(Snapshot::default(), Form::OpenMetrics));
        assert_eq!(exposition.families.len(), all().count());
        assert_eq!(exposition.value("floodway_generation", &[]), Some(0));
    }
}
