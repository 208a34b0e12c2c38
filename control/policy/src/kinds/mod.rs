//! The kinds of documents: for each its type, how it is read, and nothing else.
//!
//! A new kind is a module here (a struct with [`crate::read::Read`]) and a line in `documents.rs`.

mod fabric;
mod statement;
mod tenant;
mod tenant_policy;

pub use fabric::{Dscp, Fabric, FabricPort, InterfaceAddress, MTU_BYTES_MAX, MTU_BYTES_MIN, Uplink, Vtep};
pub(crate) use statement::check as check_statements;
pub use statement::{End, Expect, Hosts, Statement};
pub use tenant::{
    FLOW_QUOTA_DEFAULT, FLOW_QUOTA_MAX, Gateway, Remote, Tenant, TenantPort, default_gateway_mac,
};
pub use tenant_policy::{
    Action, Direction, Labels, Peer, PortSelector, Protocol, Rule, Service, TenantPolicy, has_labels,
};
