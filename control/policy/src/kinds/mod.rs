//! The kinds of documents: for each its type, how it is read, and nothing else.
//!
//! A new kind is a module here (a struct with [`crate::read::Read`]) and a line in `documents.rs`.

mod cluster_network_policy;
mod fabric;
mod kubernetes;
mod network_policy;
mod prefix_tag;
mod roce;
mod rule;
mod selector;
mod statement;
mod tenant;
mod tenant_policy;

pub(crate) use kubernetes::Metadata;

pub use cluster_network_policy::{ClusterNetworkPolicy, ClusterTier};
pub use network_policy::NetworkPolicy;
pub use prefix_tag::PrefixTag;
pub use roce::{Learn, Order, Roce, UnknownQp};
pub use rule::{Action, Direction, Labels, Peer, Protocol, Rule, Service, has_labels};
pub use selector::{Operator, Requirement, Selector};

pub use fabric::{Dscp, Fabric, FabricPort, InterfaceAddress, MTU_BYTES_MAX, MTU_BYTES_MIN, Uplink, Vtep};
pub(crate) use statement::check as check_statements;
pub use statement::{End, Expect, Hosts, Statement};
pub use tenant::{
    FLOW_QUOTA_DEFAULT, FLOW_QUOTA_MAX, FRAGMENT_QUOTA_DEFAULT, FRAGMENT_QUOTA_MAX, Gateway, NAMESPACE_LABEL,
    NamedPort, Pod, QUEUE_PAIR_QUOTA_DEFAULT, QUEUE_PAIR_QUOTA_MAX, Remote, Tenant, TenantPort,
    default_gateway_mac,
};
pub use tenant_policy::{PortSelector, TenantPolicy};
