//! The compiled program as plain data: the contract between the control plane, which writes it, and the data plane,
//! which runs it. `check`, `explain`, `show` and the workers all read the same structures.
//!
//! A [`Program`] is immutable and whole: a worker runs one generation or another, never a mix.
#![forbid(unsafe_code)]

mod drops;
mod flow;
mod hops;
mod ids;
mod report;
mod rule_sets;
mod rules;
mod topology;
mod trace;

pub use drops::DropReason;
pub use flow::{Allowed, Answers, Flow, Ingress, Refused, Way};
pub use hops::Hop;
pub use ids::{Generation, PortId, RuleId, RuleListId, TenantId, Vni, VtepId};
pub use report::{
    DropCount, FlowRecord, LogCount, NakCounts, NeighbourReport, PoolReport, PortReport, QueuePairRecord,
    QueuePairSide, Report, RoomCount, TenantReport, Traffic, WorkerReport,
};
pub use rule_sets::{PlacedSet, RuleSet, RuleSets};
pub use rules::{
    Asking, Decision, Mismatch, Origin, PeerBlock, PortRange, QpRange, Rule, Service, ServiceMatch, Tier,
    Verdict,
};
pub use topology::{
    Connections, Device, DscpMode, Endpoint, Learn, MidStream, Order, Place, Port, Roce, Route, Tenant,
    UnknownQp, Uplink, Vtep, Windows,
};

pub use trace::{
    TRACE_COUNT_MAX, TRACE_SNAP_MAX, TRACE_TIMEOUT_MAX_MS, TraceOutcome, TraceReport, TraceRequest,
    TraceStarted, TracedDecision, TracedEntry, TracedFlow, TracedFrame, TracedLookup, TracedPacket,
    TracedStep,
};

/// Bounds of one program; `check` refuses files that exceed them.
pub mod limit {
    /// Ports of one card, the uplink among them.
    pub const PORTS: usize = 512;
    /// Tenants over the lifetime of a daemon: an id is not used again for another name.
    pub const TENANTS: usize = 4096;
    /// Remote tunnel endpoints.
    pub const VTEPS: usize = 4096;
    /// Hops of one route: as many entries a miss may have to look for, in place of one.
    pub const HOPS: usize = 16;
    /// Rules of all tenants together.
    pub const RULES: usize = 1 << 20;
}

/// Everything that the workers need to know, compiled from one policy directory.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// Counts up with each accepted change; zero is the empty program that drops everything.
    pub generation: Generation,
    /// Hash of the documents that it was compiled from (FNV-1a 64 over their canonical text).
    pub digest: u64,
    /// The devices that the daemon opens; the index is the [`PortId`].
    pub devices: Vec<Device>,
    /// The port towards the fabric; `None` only in the empty program.
    pub uplink: Option<Uplink>,
    /// Remote tunnel endpoints; the index is the [`VtepId`]. An entry that is no longer configured stays as a hole.
    pub vteps: Vec<Option<Vtep>>,
    /// The index is the [`TenantId`]. An entry that is no longer configured stays as a hole.
    pub tenants: Vec<Option<Tenant>>,
    /// Tenant ports; the index is the [`PortId`], with holes where a device serves no tenant.
    pub ports: Vec<Option<Port>>,
    /// Each rule once, and the lists in which they are asked.
    pub rules: RuleSets,
    /// Names of the files as the user gave them, sorted.
    pub sources: Vec<String>,
}

impl Program {
    /// The tenant of that id, unless it is a hole.
    pub fn tenant(&self, id: TenantId) -> Option<&Tenant> {
        self.tenants.get(usize::from(id.0))?.as_ref()
    }

    /// The tenant port of that id; `None` for the uplink and for ports without a tenant.
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.get(usize::from(id.0))?.as_ref()
    }

    /// The remote tunnel endpoint of that id, unless it is a hole.
    pub fn vtep(&self, id: VtepId) -> Option<&Vtep> {
        self.vteps.get(usize::from(id.0))?.as_ref()
    }

    /// The name of a device, or `?` for an id that is not in use.
    pub fn port_name(&self, id: PortId) -> &str {
        self.devices.get(usize::from(id.0)).map_or("?", |device| &device.name)
    }

    /// The rule of that id.
    pub fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.rules.rule(id)
    }

    /// What the rules of a list say: see [`Decision::among`].
    ///
    /// `peer` is the far side as the policy sees it: the destination for an egress list, the source for an
    /// ingress list.
    pub fn decide(&self, list: RuleListId, peer: std::net::IpAddr, service: Service) -> Decision {
        let rules = self.rules.list(list).filter_map(|(id, rule)| Some((id, rule?)));
        Decision::among(rules, peer, service)
    }

    /// `file:line` of a rule.
    pub fn origin(&self, id: RuleId) -> String {
        let Some(Rule { origin, .. }) = self.rule(id) else { return "?".into() };
        format!("{}:{}", origin.source, origin.line)
    }
}
