//! How a tenant's RoCEv2 is treated beyond its rules.

use crate::{
    read::{Fields, Read, Report, word},
    yaml::Node,
};

/// What a tenant asks for its RoCEv2; rules are asked first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Roce {
    /// How queue pairs become known.
    pub learn: Learn,
    /// What becomes of a packet that rules allow and that belongs to no known queue pair.
    pub unknown_qp: UnknownQp,
    /// What becomes of a packet whose opcode does not follow that of the packet before it.
    pub order: Order,
}

/// How queue pairs become known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Learn {
    /// From the connection manager's messages, and from requests that rules allow.
    #[default]
    Traffic,
    /// From the connection manager's messages alone.
    ConnectionManager,
}

/// What becomes of a packet to an unknown queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnknownQp {
    /// Rules suffice.
    #[default]
    Accept,
    /// It is dropped.
    Deny,
}

/// What becomes of a packet out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// It is counted.
    #[default]
    Count,
    /// It is counted and dropped.
    Drop,
}

impl Read for Roce {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "the settings of RoCEv2", report)?;
        let learn = fields.optional("learn").unwrap_or_default();
        let unknown_qp = fields.optional("unknownQp").unwrap_or_default();
        let order = fields.optional("order").unwrap_or_default();
        fields.finish();
        Some(Self { learn, unknown_qp, order })
    }
}

impl Read for Learn {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let words = [("Traffic", Self::Traffic), ("ConnectionManager", Self::ConnectionManager)];
        word(node, "a way to learn queue pairs", &words, report)
    }
}

impl Read for UnknownQp {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        word(
            node,
            "a verdict for unknown queue pairs",
            &[("Accept", Self::Accept), ("Deny", Self::Deny)],
            report,
        )
    }
}

impl Read for Order {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        word(node, "what to do out of order", &[("Count", Self::Count), ("Drop", Self::Drop)], report)
    }
}
