//! What the data plane tells: plain values that the API hands out and `floodway show` prints.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Everything at one moment, read from the workers' counter blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Generation that was published last.
    pub generation: u32,
    /// Hash of its documents.
    pub digest: String,
    /// One entry each, in order of their numbers.
    pub workers: Vec<WorkerReport>,
    /// One entry each, in order of their numbers.
    pub ports: Vec<PortReport>,
    /// One entry each, in order of their numbers.
    pub tenants: Vec<TenantReport>,
    /// The uplink's next hops.
    pub neighbours: Vec<NeighbourReport>,
    /// Packet buffers of all workers.
    #[serde(default)]
    pub pool: PoolReport,
}

/// The pool that packet buffers come from. Figures of one moment while packets come and go: near, not exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolReport {
    /// All there are.
    pub buffers: u64,
    /// Those that nobody holds: neither a worker nor the rings of a port.
    pub free: u64,
}

/// One worker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its number.
    pub worker: u32,
    /// The generation that it runs.
    pub generation: u32,
    /// Polls so far.
    pub polls: u64,
    /// Polls so far that moved no packet.
    pub idle_polls: u64,
    /// Flow entries in use.
    pub flows: u64,
    /// Flow entries at most.
    pub flow_capacity: u64,
    /// Packets that found their flow entry.
    pub hits: u64,
    /// Packets that went to the rules.
    pub misses: u64,
    /// Flows that were forwarded without an entry, since the table or the tenant's quota was full.
    pub uncached: u64,
    /// Packets taken over from other workers, to be judged or sent here.
    pub taken_over: u64,
    /// Packets handed over to other workers. Together the workers have handed over more than they have taken over by what
    /// is in rings between them.
    pub handed_over: u64,
    /// Packets that are held: fragments that wait for the first of their datagram.
    pub held: u64,
    /// Datagrams of which some fragments have come and others not.
    pub datagrams: u64,
    /// Datagrams so far whose other fragments did not come in time.
    pub unfinished: u64,
    /// Lists of rules that misses go through one rule after the other, since they are too large to be compiled.
    pub scanned_lists: u64,
    /// Queue pairs known.
    #[serde(default)]
    pub queue_pairs: u64,
    /// Queue pairs known at most.
    #[serde(default)]
    pub queue_pair_capacity: u64,
    /// Queue pairs that were not tracked, since the table or the tenant's quota was full.
    #[serde(default)]
    pub untracked: u64,
}

/// Packets and bytes, both ways. Bytes are those of Ethernet frames without FCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
}

/// One count of one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DropCount {
    /// [`crate::DropReason::name`].
    pub reason: String,
    /// Packets.
    pub packets: u64,
}

/// One port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PortReport {
    /// The name in policy files.
    pub name: String,
    /// What was opened.
    pub device: String,
    /// The tenant that it serves; empty for the uplink.
    pub tenant: String,
    /// What came and went.
    pub traffic: Traffic,
    /// Packets that floodway made itself and sent here (neighbour requests, ICMP errors); part of `traffic`.
    pub originated: u64,
    /// Packets that came from here and were dropped before a tenant was known or on its way to one.
    pub drops: Vec<DropCount>,
}

/// One tenant.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TenantReport {
    /// The name in policy files.
    pub name: String,
    /// The segment on the fabric.
    pub vni: u32,
    /// What came out of and went into tunnels: inner frames.
    pub fabric: Traffic,
    /// What came from and went to the tenant's ports.
    pub ports: Traffic,
    /// Packets dropped, of ports and tunnels together.
    pub drops: Vec<DropCount>,
    /// Log lines of its flows.
    #[serde(default)]
    pub log: LogCount,
    /// What it has of the tables, in all workers.
    #[serde(default)]
    pub room: RoomCount,
}

/// What a tenant has of flow tables and queue pairs, and what became of flows when there was no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RoomCount {
    /// Flow entries in use.
    pub flows: u64,
    /// Flows so far that gave way to others of the tenant, since it was at its quota.
    pub evicted: u64,
    /// Flows so far that gave way to another tenant's, since the table was full and this tenant had most.
    pub displaced: u64,
    /// Flows so far that found no room.
    pub refused: u64,
    /// Queue pairs known.
    pub queue_pairs: u64,
}

/// Log lines that rules of a tenant asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LogCount {
    /// Handed over to be written.
    pub written: u64,
    /// Left out, since the tenant had as many as it may.
    pub suppressed: u64,
    /// Left out, since lines were written more slowly than they came.
    pub lost: u64,
}

/// A next hop on the uplink.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NeighbourReport {
    /// Its address.
    pub address: IpAddr,
    /// Its MAC; empty while it has not answered.
    pub mac: String,
}

/// One flow entry of one worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowRecord {
    /// The tenant's name.
    pub tenant: String,
    /// Port or tunnel endpoint that the flow comes from.
    pub from: String,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Protocol and ports, identifier or queue pair, as text.
    pub service: String,
    /// Of a reply of RoCEv2: the service of the flow that it answers; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answers: String,
    /// `accept`, or the reason why not.
    pub verdict: String,
    /// Of an allowed TCP or SCTP flow how far its connection is: `opening`, `open`, `half-closed`, `closing` or `closed`;
    /// else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// `file:line` of the rule; empty for the default and for replies.
    pub rule: String,
    /// Port or tunnel endpoint that the flow goes to.
    pub to: String,
    /// Packets so far.
    pub packets: u64,
    /// Bytes so far.
    pub bytes: u64,
}

/// Two queue pairs that talk to each other, as one worker knows them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueuePairRecord {
    /// The tenant's name.
    pub tenant: String,
    /// `rc`, `uc`, `xrc`; `ud` while the queue pair of a service of datagrams is asked for.
    pub service: String,
    /// `requested`, `replied`, `open` or `closing` as the connection manager has it; `half` or `paired` when learned from
    /// traffic.
    pub state: String,
    /// The side that sent the REQ, or the first request that was seen.
    pub opener: QueuePairSide,
    /// The other side.
    pub peer: QueuePairSide,
}

/// One side, and what it has sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueuePairSide {
    /// Its host.
    pub address: IpAddr,
    /// Its queue pair; `null` while it is not known.
    pub qp: Option<u32>,
    /// PSN of its last request; of a connection without one, the PSN before its first.
    pub request_psn: Option<u32>,
    /// PSN of its last response.
    pub response_psn: Option<u32>,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Times that the PSN of its requests jumped ahead.
    pub gaps: u32,
    /// Times that the PSN of its requests went back: it sent again.
    pub retries: u32,
    /// Packets whose opcode did not follow that of the packet before them.
    pub out_of_order: u32,
    /// Congestion notifications.
    pub cnps: u32,
    /// "Receiver not ready".
    pub rnr_naks: u32,
    /// Other negative acknowledgements.
    pub naks: NakCounts,
}

/// Negative acknowledgements by syndrome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NakCounts {
    /// PSN sequence error.
    pub psn_sequence: u32,
    /// Invalid request.
    pub invalid_request: u32,
    /// Remote access error.
    pub remote_access: u32,
    /// Remote operational error.
    pub remote_operational: u32,
    /// Invalid RD request.
    pub invalid_rd: u32,
    /// Reserved encodings.
    pub reserved: u32,
}

impl NakCounts {
    /// All of them.
    pub const fn sum(&self) -> u64 {
        let Self { psn_sequence, invalid_request, remote_access, remote_operational, invalid_rd, reserved } =
            *self;
        psn_sequence as u64
            + invalid_request as u64
            + remote_access as u64
            + remote_operational as u64
            + invalid_rd as u64
            + reserved as u64
    }
}
