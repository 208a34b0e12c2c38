//! Bodies of requests and answers, as both sides of the socket see them.

use policy::Diagnostics;
use serde::{Deserialize, Serialize};

/// Largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// Flows or rules in one answer unless the request says otherwise.
pub const LIMIT_DEFAULT: usize = 1000;
/// Most flows or rules in one answer.
pub const LIMIT_MAX: usize = 65_536;

/// One policy file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceText {
    /// The name that diagnostics repeat.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// `POST /v1/check`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// All files of the policy directory.
    pub sources: Vec<SourceText>,
}

/// `POST /v1/apply`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyRequest {
    /// All files of the policy directory.
    pub sources: Vec<SourceText>,
    /// Refuse unless this generation runs.
    #[serde(default, rename = "expectGeneration", skip_serializing_if = "Option::is_none")]
    pub expect_generation: Option<u32>,
    /// Roll back after so many seconds, 1 to 3600, unless `POST /v1/confirm` comes before.
    #[serde(default, rename = "confirmSeconds", skip_serializing_if = "Option::is_none")]
    pub confirm_s: Option<u32>,
    /// Take files that state what is not proven; it is then a warning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unproven: bool,
}

/// Answer to `POST /v1/check`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Checked {
    /// False when the files are those that run.
    pub changed: bool,
    /// Hash of the files, 16 hexadecimal digits.
    pub digest: String,
    /// What is in them.
    pub counts: Counts,
    /// What somebody should look at.
    pub warnings: Diagnostics,
}

/// Sizes of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Tenants.
    pub tenants: usize,
    /// Tenant ports, without the uplink.
    pub ports: usize,
    /// Rules.
    pub rules: usize,
}

/// Answer to `POST /v1/apply`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Applied {
    /// False when the files are those that ran already.
    pub changed: bool,
    /// The generation that every worker runs.
    pub generation: u32,
    /// Hash of the files, 16 hexadecimal digits.
    pub digest: String,
    /// From the swap to the last worker's acknowledgement, in microseconds; 0 when nothing changed.
    pub took_us: u64,
    /// What is in them.
    pub counts: Counts,
    /// Tenants whose rules were compiled: the others are as they were.
    #[serde(default)]
    pub recompiled: usize,
    /// What somebody should look at.
    pub warnings: Diagnostics,
}

/// Answer with any status that is not 200.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Refused {
    /// What is wrong, in a sentence.
    pub error: String,
    /// With 422: what is wrong with the files.
    #[serde(default, skip_serializing_if = "Diagnostics::is_empty")]
    pub diagnostics: Diagnostics,
    /// With 409 the generation that runs, with 504 the one that was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// With 504: the workers that do not run it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<u32>,
}

/// Answer to `GET /v1/program`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProgramSummary {
    /// Which program; 0 is the empty one.
    pub generation: u32,
    /// Hash of the files, 16 hexadecimal digits.
    pub digest: String,
    /// File names as the user gave them.
    pub sources: Vec<String>,
    /// Sizes.
    pub counts: Counts,
    /// In the order of their numbers.
    pub tenants: Vec<TenantSummary>,
    /// In the order of their numbers, without the uplink.
    pub ports: Vec<PortSummary>,
    /// Name of the port towards the fabric; absent in the empty program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<String>,
}

/// One tenant of the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TenantSummary {
    /// The name in policy files.
    pub name: String,
    /// The segment on the fabric.
    pub vni: u32,
    /// Hosts, here and elsewhere.
    pub endpoints: usize,
}

/// One tenant port of the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PortSummary {
    /// The name in policy files.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// The only source MAC that it may use.
    pub mac: String,
    /// The only source addresses that it may use.
    pub addresses: Vec<std::net::IpAddr>,
}

/// Answer to `GET /v1/rules`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rules {
    /// In the order of their numbers.
    pub rules: Vec<RuleEntry>,
    /// True when there are more than asked for.
    pub truncated: bool,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleEntry {
    /// `file:line` where it was written.
    pub origin: String,
    /// `accept` or `deny`.
    pub verdict: String,
    /// Prefixes of the far side; absent when it speaks of every address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<Vec<String>>,
    /// Protocols and ports; empty when it speaks of all packets.
    pub services: Vec<String>,
    /// True when flows that it decides are logged.
    #[serde(default)]
    pub log: bool,
    /// Ports for whose outgoing packets it is asked.
    pub egress: Vec<String>,
    /// Ports for whose incoming packets it is asked.
    pub ingress: Vec<String>,
}

/// Answer to `GET /v1/flows`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flows {
    /// In no order.
    pub flows: Vec<program::FlowRecord>,
    /// True when there are more than asked for.
    pub truncated: bool,
}

/// Answer to `GET /v1/qps`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueuePairs {
    /// In no order.
    pub qps: Vec<program::QueuePairRecord>,
    /// True when there are more than asked for.
    pub truncated: bool,
}

/// One drop reason, an element of the answer to `GET /v1/drops`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Drop {
    /// Its name.
    pub reason: String,
    /// What it means, in a sentence.
    pub meaning: String,
    /// Packets of all ports and tenants, each packet once.
    pub packets: u64,
    /// As counted by each port that has any; the tenant that the port serves counts them as well.
    pub ports: Vec<DropPlace>,
    /// As counted by each tenant that has any.
    pub tenants: Vec<DropPlace>,
}

/// Where packets were dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DropPlace {
    /// Name of the port or the tenant.
    pub name: String,
    /// Packets.
    pub packets: u64,
}

/// What made a program the one that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The daemon started with the policy directory.
    Start,
    /// The daemon started, and the policy directory was no good.
    LastGood,
    /// `POST /v1/apply`.
    Apply,
    /// The policy directory changed.
    Watch,
    /// `POST /v1/rollback`, or nobody confirmed in time.
    Rollback,
}

/// What became of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It may be started with again.
    Confirmed,
    /// Nobody has confirmed it yet, or the daemon ended before somebody did.
    Unconfirmed,
    /// Nobody confirmed it in time, or somebody rolled it back before it was confirmed.
    RolledBack,
    /// Some worker did not take it up in time.
    Stuck,
}

/// A program that runs or ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Its number; counts on over restarts when the daemon keeps state.
    pub generation: u32,
    /// Hash of the files, 16 hexadecimal digits.
    pub digest: String,
    /// When it was published: seconds since 1970 by the wall clock.
    pub at_unix_s: u64,
    /// What made it run.
    pub by: By,
    /// What became of it.
    pub outcome: Outcome,
}

/// Answer to `GET /v1/history`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HistoryList {
    /// Oldest first. The last one runs.
    pub generations: Vec<HistoryEntry>,
}

/// `POST /v1/confirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmRequest {
    /// Which; the one that waits when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
}

/// Answer to `POST /v1/confirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Confirmed {
    /// The generation that stays.
    pub generation: u32,
    /// What somebody should look at.
    pub warnings: Diagnostics,
}

/// `POST /v1/rollback`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// To which generation; when left out, to the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
}

/// Answer to `GET /v1/status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// `last-good` while the daemon runs what it ran before it was started with a broken directory, else `current`.
    pub policy: PolicyStatus,
    /// The newest entry of the history; absent when the daemon does not know whence its program is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<HistoryEntry>,
    /// What waits for `POST /v1/confirm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<Unconfirmed>,
    /// What was refused last at the start, by the watch or by a roll-back, until something is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedFiles>,
    /// Where programs are kept; absent without `--state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateStatus>,
    /// Absent without `--watch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchStatus>,
}

/// Whence the running program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyStatus {
    /// From the directory at the start, or from what came after.
    #[default]
    Current,
    /// From the state directory, since the policy directory was no good.
    LastGood,
}

/// A program that is rolled back unless it is confirmed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unconfirmed {
    /// Which.
    pub generation: u32,
    /// So long somebody may confirm it, in milliseconds.
    pub left_ms: u64,
}

/// Files that were not taken without anybody there to be told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RefusedFiles {
    /// When: seconds since 1970 by the wall clock.
    pub at_unix_s: u64,
    /// What is wrong, in a sentence.
    pub error: String,
    /// What is wrong with the files.
    pub diagnostics: Diagnostics,
}

/// Where programs are kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateStatus {
    /// The directory.
    pub directory: String,
    /// Why the newest program is not kept there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How the policy directory is watched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WatchStatus {
    /// The directory.
    pub directory: String,
    /// Why it is looked at every two seconds instead of when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling: Option<String>,
    /// How often its files were read.
    pub reads: u64,
}

/// Answer to `DELETE /v1/trace/<number>`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceEnded {
    /// The trace that has ended.
    pub trace: u64,
}
