//! Policy files: YAML text to typed documents with positions, and everything that is wrong with them at once.
//!
//! [`parse`] reads, checks each document and then all of them together. What it gives out is sound: every name that is
//! used exists, no address is owned twice, every endpoint can be reached. `docs/policy.md` is the user's view.
//!
//! No I/O: the caller brings the bytes.
#![forbid(unsafe_code)]

mod check;
mod diagnostic;
mod digest;
mod documents;
mod import;
mod kinds;
mod name;
mod position;
mod read;
mod reader;
mod suggest;
mod yaml;

use std::sync::Arc;

pub use diagnostic::{DIAGNOSTICS_MAX, Diagnostic, Diagnostics, Place, Related, Severity};
pub use digest::digest;
pub use import::{Format, IMPORTED_MARK, Imported, ImportedFile, UNFOLDED_RULES_MAX, import};
pub use kinds::{
    Action, ClusterNetworkPolicy, ClusterTier, Direction, Dscp, End, Expect, FLOW_QUOTA_DEFAULT,
    FLOW_QUOTA_MAX, FRAGMENT_QUOTA_DEFAULT, FRAGMENT_QUOTA_MAX, Fabric, FabricPort, Gateway, Hosts,
    InterfaceAddress, Labels, Learn, MTU_BYTES_MAX, MTU_BYTES_MIN, NAMESPACE_LABEL, NamedPort, NetworkPolicy,
    Operator, Order, Peer, Pod, PortSelector, PrefixTag, Protocol, QUEUE_PAIR_QUOTA_DEFAULT,
    QUEUE_PAIR_QUOTA_MAX, Remote, Requirement, Roce, Rule, Selector, Service, Statement, Tenant,
    TenantPolicy, TenantPort, UnknownQp, Uplink, Vtep, default_gateway_mac, has_labels,
};
pub use name::Name;
pub use position::{Position, Spanned};
pub use reader::{Reader, Task};

/// The `apiVersion` of floodway's own documents.
pub const API_VERSION: &str = "floodway.dev/v1alpha1";

/// Bounds on what is read; what exceeds them is refused with a diagnostic.
pub mod limit {
    /// Files of one policy.
    pub const FILES_MAX: usize = 4096;
    /// Bytes of one file.
    pub const FILE_BYTES_MAX: usize = 8 << 20;
    /// Bytes of all files together.
    pub const TOTAL_BYTES_MAX: usize = 64 << 20;
    /// Documents of one file.
    pub const DOCUMENTS_MAX: usize = 10_000;
    /// Values (scalars, lists, maps and names of fields) of one file.
    pub const NODES_MAX: usize = 1 << 20;
    /// Lists and maps inside each other.
    pub const DEPTH_MAX: usize = 32;
    /// Ports of one tenant: no card has more.
    pub const TENANT_PORTS_MAX: usize = 512;
    /// Peers and services that are compared with each other in search of shadowed rules.
    pub const SHADOW_COMPARISONS_MAX: usize = 1 << 24;
    /// Bytes of a name.
    pub const NAME_BYTES_MAX: usize = 63;
}

/// One file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The name as the user gave it; diagnostics repeat it.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// All documents of a policy directory, read and checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Names of the files, sorted.
    pub files: Vec<Arc<str>>,
    /// Names of files by [`Position::source`]; a [`Reader`] has some here of files that it read before.
    pub sources: Vec<Arc<str>>,
    /// See [`digest`].
    pub digest: u64,
    /// The card.
    pub fabric: Arc<Fabric>,
    /// Sorted by name.
    pub tenants: Vec<Arc<Tenant>>,
    /// Sorted by tenant, priority and name: the order in which they are asked.
    pub policies: Vec<Arc<TenantPolicy>>,
    /// Sorted by tenant and name.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
    /// Sorted by tier, priority and name: the order in which they are asked.
    pub cluster_policies: Vec<Arc<ClusterNetworkPolicy>>,
    /// Sorted by name.
    pub tags: Vec<Arc<PrefixTag>>,
    /// Sorted by file and line. The program does not depend on them.
    pub statements: Vec<Arc<Statement>>,
}

/// A policy, and what somebody should look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// The policy.
    pub policy: Policy,
    /// Warnings only.
    pub warnings: Diagnostics,
}

/// Reads all files of a policy directory. The order of `sources` does not matter.
///
/// # Errors
/// Every diagnostic, warnings among them, when at least one is an error.
pub fn parse(sources: &[Source]) -> Result<Parsed, Diagnostics> {
    parse_with_statements(sources, &[])
}

/// As [`parse`], with the statements of another directory, which may hold nothing else.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_statements(sources: &[Source], statements: &[Source]) -> Result<Parsed, Diagnostics> {
    reader::parse(sources, statements)
}

impl Policy {
    /// A position by the name of its file, for diagnostics.
    pub fn place(&self, at: Position) -> Place<'_> {
        let source = self.sources.get(at.source as usize).map_or("", |name| name);
        Place { source, line: at.line, column: at.column }
    }

    /// The tenant of that name.
    pub fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().map(|tenant| &**tenant).find(|tenant| &**tenant.name == name)
    }
}
