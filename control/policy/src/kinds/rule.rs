//! What all policies are made of: rules, their peers and their services.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::{
    Name, Position, Selector, Spanned,
    read::{Read, Report, word},
    yaml::Node,
};

/// Labels of a port, or labels that a port must have.
pub type Labels = BTreeMap<String, String>;

/// Which way a packet goes, as the port's host sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the host.
    Egress,
    /// To the host.
    Ingress,
}

/// One rule. Its conditions are all to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Where it was written.
    pub at: Position,
    /// What becomes of packets that it matches.
    pub action: Action,
    /// The far side is one of these. `None` is anybody; an empty list is nobody.
    pub peers: Option<Vec<Peer>>,
    /// The packet is one of these. `None` is any packet; an empty list is none.
    pub services: Option<Vec<Service>>,
    /// The first packet of each flow that it decides is logged.
    pub log: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Forward.
    Accept,
    /// Drop and count.
    Deny,
    /// Go on with the next tier.
    Pass,
}

/// A far side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A prefix without some of its parts.
    IpBlock {
        /// The addresses meant.
        cidr: Spanned<IpNet>,
        /// Parts of it that are not meant; other peers are not affected.
        except: Vec<Spanned<IpNet>>,
    },
    /// The addresses of the tenant's ports that have all these labels.
    Ports(Spanned<Labels>),
    /// The addresses and prefixes of the tenant's remote host of that name.
    Remote(Spanned<Name>),
    /// The prefixes of the PrefixTag of that name.
    Tag(Spanned<Name>),
    /// Everything of that tenant. Only a rule's own tenant can be reached: another one is nobody.
    Tenant(Spanned<Name>),
    /// The addresses of pods: ports, and remotes that have labels.
    Pods {
        /// Where it was written.
        at: Position,
        /// Their tenant has these labels; `None` is the rule's own. Another tenant cannot be reached: it is nobody.
        tenants: Option<Selector>,
        /// They have these labels.
        pods: Selector,
    },
}

/// A kind of packets. Ranges are inclusive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Service {
    /// A protocol with ports, to these destination ports.
    Ports(Protocol, u16, u16),
    /// ICMP, of this type and code when given.
    Icmp(Option<u8>, Option<u8>),
    /// ICMPv6, of this type and code when given.
    Icmpv6(Option<u8>, Option<u8>),
    /// RoCEv2 to these queue pairs.
    Roce(u32, u32),
    /// Everything of this IP protocol.
    Number(u8),
    /// The destination's named ports of this name, and of this protocol when given.
    Named(Option<Protocol>, String),
}

/// A protocol with ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP; RoCEv2 is UDP to port 4791.
    Udp,
    /// SCTP.
    Sctp,
}

/// True when `labels` holds all of `wanted`.
pub fn has_labels(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Read for Action {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let words = [("Accept", Self::Accept), ("Deny", Self::Deny), ("Pass", Self::Pass)];
        word(node, "an action", &words, report)
    }
}

/// The protocols with ports, as they are written.
pub(crate) const WITH_PORTS: [(&str, Protocol); 3] =
    [("TCP", Protocol::Tcp), ("UDP", Protocol::Udp), ("SCTP", Protocol::Sctp)];

impl Read for Protocol {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        word(node, "a protocol with ports", &WITH_PORTS, report)
    }
}
