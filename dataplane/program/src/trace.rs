//! What to trace, and packets that were traced, in names: the contract between whoever asks and the workers.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Most packets of one trace.
pub const TRACE_COUNT_MAX: u32 = 10_000;
/// Longest time that one trace waits for its packets, in milliseconds.
pub const TRACE_TIMEOUT_MAX_MS: u32 = 600_000;
/// Most bytes of a frame that a trace keeps.
pub const TRACE_SNAP_MAX: u16 = 256;

/// Which packets are traced, how many, and how long they are waited for. What is left out asks for nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceRequest {
    /// The tenant's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The source address, of the inner packet where there is a tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<IpNet>,
    /// The destination address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<IpNet>,
    /// Source or destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, `rocev2`, or the number of an IP protocol. RoCEv2 is no `udp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Destination queue pair of RoCEv2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qp: Option<u32>,
    /// What becomes of it.
    pub outcome: TraceOutcome,
    /// The name of a drop reason; only packets that were dropped for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ends after so many packets, 1 to [`TRACE_COUNT_MAX`].
    pub count: u32,
    /// Ends after so many milliseconds, 1 to [`TRACE_TIMEOUT_MAX_MS`].
    #[serde(rename = "timeoutMs")]
    pub timeout_ms: u32,
    /// Keeps so many bytes of each frame, at most [`TRACE_SNAP_MAX`].
    pub snap: u16,
    /// Who asks, for whoever asks next.
    pub by: String,
}

impl Default for TraceRequest {
    fn default() -> Self {
        Self {
            tenant: None,
            from: None,
            to: None,
            port: None,
            protocol: None,
            qp: None,
            outcome: TraceOutcome::Any,
            reason: None,
            count: 50,
            timeout_ms: 10_000,
            snap: TRACE_SNAP_MAX,
            by: String::new(),
        }
    }
}

/// What has to become of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceOutcome {
    /// Whatever.
    #[default]
    Any,
    /// A frame left for it, its own or an answer.
    Sent,
    /// A packet was dropped with it.
    Dropped,
}

/// A trace that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceStarted {
    /// Its number.
    pub trace: u64,
}

/// Packets of a trace since the last look.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TraceReport {
    /// In the order of each worker.
    pub packets: Vec<TracedPacket>,
    /// Packets that no worker looked at since the trace began, as its room was full. They were forwarded like any other.
    pub untraced: u64,
    /// No packet comes any more.
    pub ended: bool,
}

/// The beginning of a frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedFrame {
    /// Bytes of the whole frame, without FCS.
    pub length: u32,
    /// The first bytes, two hexadecimal digits each.
    pub bytes: String,
}

/// One packet, from where it was received to what became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedPacket {
    /// When it was judged: nanoseconds since 1970. All packets of one poll have one time. Times of one worker are exact to
    /// each other; all of them may be late by the time in which it took up the trace, a millisecond.
    pub at_unix_ns: u64,
    /// The worker that judged it.
    pub worker: u32,
    /// The program that judged it.
    pub generation: u32,
    /// The port that it came from.
    pub port: String,
    /// As it came, before anything was changed.
    pub received: TracedFrame,
    /// The tenant's name; empty when it is nobody's.
    pub tenant: String,
    /// `flow`, `fragment`, `control` (ARP, neighbour discovery, ICMP errors, groups), `underlay` (for this box itself) or
    /// `refused` (dropped by its headers alone).
    pub class: String,
    /// Who speaks to whom; absent when that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<TracedFlow>,
    /// What the flow table knew; absent for what it does not decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookup: Option<TracedLookup>,
    /// What the program says of the flow; absent for what rules do not decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<TracedDecision>,
    /// What became of it, in order.
    pub steps: Vec<TracedStep>,
    /// Steps that are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps_omitted: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The key of a packet in words: of the inner packet where there is a tunnel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedFlow {
    /// Port or tunnel endpoint that it comes from.
    pub from: String,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Protocol and ports, identifier or queue pair, as text.
    pub service: String,
}

/// What the flow table knew of a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedLookup {
    /// An entry was there and was followed; else the rules were asked.
    pub hit: bool,
    /// The entry afterwards; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<TracedEntry>,
}

/// An entry of the flow table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedEntry {
    /// Its place in the worker's table.
    pub slot: u32,
    /// The program that decided it.
    pub generation: u32,
    /// It is there as the answer to another flow.
    pub reply: bool,
    /// How far its connection is; empty where there is none to follow.
    pub stage: String,
}

/// What the program says of a flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedDecision {
    /// `accept`, `accept (reply)`, or the name of a drop reason.
    pub verdict: String,
    /// `file:line` of the rule; empty where none decided.
    pub rule: String,
}

/// One thing that became of a packet, or of another that it set free.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum TracedStep {
    /// Dropped.
    Dropped {
        /// The name of the drop reason.
        reason: String,
        /// What it means.
        meaning: String,
        /// The port, or the tenant's side towards the fabric, that is charged.
        account: String,
    },
    /// The worker made a packet itself, which the next step tells of.
    Originated {
        /// The port that it is for.
        port: String,
    },
    /// The port has taken a frame.
    Sent {
        /// The port.
        port: String,
        /// The tunnel endpoint that it goes to; empty outside of a tunnel.
        tunnel: String,
        /// As it left; absent where there was no room for its bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        frame: Option<TracedFrame>,
    },
    /// Another worker sends it.
    HandedOver {
        /// Its number.
        worker: u32,
        /// The port.
        port: String,
    },
    /// Kept until the first fragment of its datagram comes.
    Held,
}
