//! An explanation as it is handed out, and its sentences.

use std::net::IpAddr;

use program::{Mismatch, Rule, Service};
use serde::{Deserialize, Serialize};

use super::{Live, Packet, is_echo_reply, is_echo_request, peer_text, service_text};

/// Elements of a rule that a sentence names before it says "and so many more".
const NAMED_MAX: usize = 4;

/// Why a packet gets its verdict.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// What becomes of it.
    pub verdict: Verdict,
    /// Why it is dropped; of an ICMP error why it is even when the flow that it quotes is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// `file:line` of the rule that decides; absent for the default and where no rule is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whose it is; absent when that cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The tenant's segment on the fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// Port or tunnel endpoint that it comes from.
    pub from: String,
    /// Its headers; absent when it is no IP packet of a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
    /// The rules that are asked, in order.
    pub lists: Vec<RuleList>,
    /// Where it goes, or would go if something else did not stop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<Way>,
    /// What its answers meet; only of a packet that rules allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replies: Option<Replies>,
    /// True when rules refuse it, but it passes as an answer while somebody has the flow open the other way.
    #[serde(default)]
    pub passes_as_answer: bool,
    /// True when the tenant denies unknown queue pairs, so that it passes only while its queue pair is a known one's.
    #[serde(default)]
    pub needs_queue_pair: bool,
    /// What an ICMP error quotes, when a frame was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quoted: Option<Quoted>,
    /// What the flow table says; only of a running data plane, and only where it has a say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
}

/// The packet that an ICMP error quotes, as the one that opens its flow.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quoted {
    /// Its headers; absent when too little of them is quoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
    /// Port or tunnel endpoint that it came from; absent when the error cannot be about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// True when rules allow its flow or the one that it may answer: the error passes while that is open.
    pub may_be_open: bool,
    /// Why, in a sentence.
    pub why: String,
    /// The rules that its flow is asked, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<RuleList>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is sent on.
    Forwarded,
    /// It is dropped and counted.
    #[default]
    Dropped,
    /// The gateway that floodway plays answers it.
    Answered,
    /// An ICMP error: it passes when the flow that it quotes is open.
    ByState,
    /// A later fragment: it gets the verdict of its first. The rules are those that it meets alone, without ports.
    Follows,
    /// ARP or neighbour discovery of a tenant: floodway takes it in and answers itself.
    Neighbour,
    /// From the fabric for this box itself, and no tunnel.
    Local,
}

/// A drop reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// Its name.
    pub name: String,
    /// What it means, in a sentence.
    pub meaning: String,
}

/// What of a packet rules look at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Headers {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Protocol and ports, type and code, or queue pair.
    pub service: String,
    /// Identifier of an echo, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<u16>,
    /// True for a fragment, first or later.
    pub is_fragment: bool,
}

/// Which of a port's two lists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// For what the port sends; the peer is the destination.
    Egress,
    /// For what the port is sent; the peer is the source.
    Ingress,
}

impl Side {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        }
    }
}

/// The rules of one port that are asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleList {
    /// Whose rules.
    pub port: String,
    /// For which way.
    pub side: Side,
    /// The far side, as the rules see it.
    pub peer: IpAddr,
    /// Rules before those shown that did not match either.
    pub omitted: usize,
    /// Up to the one that decides, in order.
    pub rules: Vec<RuleSeen>,
    /// What the list says.
    pub accepts: bool,
    /// True when no rule matches, so that the default decides, which is to deny.
    pub is_default: bool,
}

/// A rule that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleSeen {
    /// `file:line`.
    pub origin: String,
    /// `accept` or `deny`.
    pub verdict: String,
    /// Whether it speaks of the packet.
    pub matches: bool,
    /// Which condition does not hold: `peer`, `except`, `protocol`, `port`, `icmp-type`, `queue-pair` or `fragment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<String>,
    /// The same in a sentence.
    pub why: String,
}

/// Where a packet goes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Way {
    /// Port or tunnel endpoint.
    pub to: String,
    /// The receiver's MAC.
    pub dst_mac: String,
    /// The hops of its route when there are several, of which it takes this one: by the hash of the flow. An open flow
    /// that has another one keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<WayHop>,
    /// Largest IP packet that goes there.
    pub mtu_bytes: u16,
    /// The tunnel, when it leaves by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
}

/// One of the hops of a route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WayHop {
    /// The tunnel endpoint.
    pub to: String,
    /// The receiver's MAC.
    pub dst_mac: String,
}

/// The headers around a packet that leaves by a tunnel. The UDP source port is the data plane's hash of the flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tunnel {
    /// The tenant's segment.
    pub vni: u32,
    /// Outer source address.
    pub src: IpAddr,
    /// Outer destination address.
    pub dst: IpAddr,
    /// Outer UDP destination port.
    pub dst_port: u16,
    /// Who is to carry it on.
    pub next_hop: IpAddr,
    /// Its MAC when the files give it; else it is resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_mac: Option<String>,
    /// The port that it leaves by.
    pub uplink: String,
}

/// What the answers to a packet meet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Replies {
    /// True when they pass without a rule of their own.
    pub by_state: bool,
    /// Why, in a sentence.
    pub why: String,
}

pub(crate) const fn verdict(verdict: program::Verdict) -> &'static str {
    match verdict {
        program::Verdict::Accept => "accept",
        program::Verdict::Deny => "deny",
        program::Verdict::Pass => "pass",
    }
}

pub(super) const fn mismatch(mismatch: Mismatch) -> &'static str {
    match mismatch {
        Mismatch::Peer => "peer",
        Mismatch::Excepted(_) => "except",
        Mismatch::Protocol => "protocol",
        Mismatch::Port => "port",
        Mismatch::IcmpType => "icmp-type",
        Mismatch::QueuePair => "queue-pair",
        Mismatch::Fragment => "fragment",
    }
}

/// Why a rule matches, or which condition does not hold.
pub(super) fn why(rule: &Rule, mismatch: Option<Mismatch>, peer: IpAddr, service: Service) -> String {
    let peers = || named(rule.peers.as_deref().unwrap_or(&[]).iter().map(peer_text));
    let services = || named(rule.services.iter().copied().map(service_text));
    match mismatch {
        None => {
            let peer = match &rule.peers {
                None => "any peer".into(),
                Some(_) => format!("{peer} is in {}", peers()),
            };
            let wanted = if rule.services.is_empty() { "any packet".into() } else { services() };
            format!("matches: {peer}, {wanted}")
        }
        Some(Mismatch::Peer) if rule.peers.as_ref().is_some_and(Vec::is_empty) => {
            "peer: the rule speaks of nobody".into()
        }
        Some(Mismatch::Peer) => format!("peer: {peer} is not in {}", peers()),
        Some(Mismatch::Excepted(except)) => format!("except: {peer} is in the exception {except}"),
        Some(Mismatch::Protocol) => format!("protocol: {} is not {}", name(service), services()),
        Some(Mismatch::Port) => format!("port: {} is not in {}", name(service), services()),
        Some(Mismatch::IcmpType) => format!("icmp-type: {} is not {}", name(service), services()),
        Some(Mismatch::QueuePair) => format!("queue-pair: {} is not in {}", name(service), services()),
        Some(Mismatch::Fragment) => {
            format!("fragment: a later fragment does not show what {} asks for", services())
        }
    }
}

fn named(elements: impl ExactSizeIterator<Item = String>) -> String {
    let more = elements.len().saturating_sub(NAMED_MAX);
    let shown: Vec<String> = elements.take(NAMED_MAX).collect();
    match more {
        0 => shown.join(", "),
        _ => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A packet's service in the spelling of rules.
fn name(service: Service) -> String {
    match service {
        Service::Tcp(port) => format!("tcp/{port}"),
        Service::Udp(port) => format!("udp/{port}"),
        Service::Sctp(port) => format!("sctp/{port}"),
        Service::Icmp(kind, code) => format!("icmp/{kind}/{code}"),
        Service::Icmpv6(kind, code) => format!("icmpv6/{kind}/{code}"),
        Service::Roce(qp) => format!("roce/qp {qp:#x}"),
        Service::Opaque(protocol) => format!("protocol {protocol}"),
    }
}

pub(super) fn replies(packet: &Packet, has_mirror: bool, passes: bool, is_answer: bool) -> &'static str {
    match packet.flow.service {
        Service::Roce(_) => {
            "answers pass while both queue pairs are known to belong together, whatever rules say of them"
        }
        service if is_echo_reply(service) => "an echo reply has no answer",
        Service::Icmp(..) | Service::Icmpv6(..) if !is_echo_request(packet.flow.service) => {
            "this message has no answer that is told by state"
        }
        _ if !has_mirror => "its answers cannot be told from other packets: they are judged by rules",
        _ if !passes => "an answer could not come in from there: it would be dropped whatever rules say",
        _ if is_answer => {
            "answers pass while this flow is open; if it is itself an answer, rules judge its other direction"
        }
        _ => "answers pass while this flow is open, whatever rules say of them",
    }
}
