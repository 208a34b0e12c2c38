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
