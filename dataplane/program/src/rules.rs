//! Rules and how they are asked. This is the reference: whatever else decides a packet must agree with it.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;

use crate::RuleId;

/// UDP destination port of RoCEv2 (InfiniBand annex A17).
const ROCE_PORT: u16 = 4791;

/// What a rule, or the default, says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Forward.
    Accept,
    /// Drop and count.
    Deny,
    /// Go on with the rules of the next tier.
    Pass,
}

/// Whose rules: asked in this order. Within a tier the first rule that matches counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Tier {
    /// The operator's, before any tenant's.
    Admin,
    /// The tenant's own.
    #[default]
    Tenant,
    /// The operator's, for what the tenant has not decided.
    Baseline,
    /// What holds when no policy has decided, other than the default to deny.
    Default,
}

impl Tier {
    /// The name in files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "Admin",
            Self::Tenant => "Tenant",
            Self::Baseline => "Baseline",
            Self::Default => "Default",
        }
    }
}

/// A verdict and the rule that gave it; `None` is the default at the end of each list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Who said so.
    pub rule: Option<RuleId>,
}

impl Decision {
    /// First of these rules, earlier tiers first, that matches; one that passes on leads to the rules of the next tiers,
    /// and the default at the end is to deny.
    ///
    /// A later fragment may or may not be what a rule with ports passes on. Then both ways are asked, and it is accepted
    /// only when both accept: what passes as a fragment would pass whole, whatever its ports.
    pub fn among<'r>(
        rules: impl IntoIterator<Item = (RuleId, &'r Rule)>,
        peer: IpAddr,
        service: Service,
    ) -> Self {
        let mut asking = Asking::default();
        for (id, rule) in rules {
            if !asking.is_done_with(rule.tier)
                && rule.matches(peer, service)
                && let Some(decision) = asking.hear(id, rule, service)
            {
                return decision;
            }
        }
        Self::DEFAULT
    }

    /// What holds when no rule has decided.
    pub const DEFAULT: Self = Self { verdict: Verdict::Deny, rule: None };
}

/// A list that is being asked: what the rules that match, heard one after the other, come to. [`Decision::among`] finds
/// them by looking at all; whoever finds them faster hears them here all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asking {
    /// Rules up to this tier are done.
    left: Option<Tier>,
    /// A fragment may belong to what this tier has passed on.
    perhaps_left: Option<Tier>,
    /// By a tier that has perhaps been left before.
    accepted: Option<RuleId>,
}

impl Asking {
    /// True when rules of that tier have no more to say.
    pub fn is_done_with(&self, tier: Tier) -> bool {
        self.left.is_some_and(|left| tier <= left)
    }

    /// Hears the next rule that matches, of a tier that is not done with; the decision, when it is one.
    pub fn hear(&mut self, id: RuleId, rule: &Rule, service: Service) -> Option<Decision> {
        match rule.verdict {
            Verdict::Deny => return Some(Decision { verdict: Verdict::Deny, rule: Some(id) }),
            Verdict::Pass if rule.is_certain(service) => self.left = Some(rule.tier),
            Verdict::Pass => self.perhaps_left = Some(rule.tier),
            Verdict::Accept if self.perhaps_left == Some(rule.tier) => {
                self.accepted = self.accepted.or(Some(id));
                self.left = Some(rule.tier);
            }
            Verdict::Accept => {
                return Some(Decision { verdict: Verdict::Accept, rule: self.accepted.or(Some(id)) });
            }
        }
        None
    }
}

/// Where a rule was written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// Name of the file as the user gave it.
    pub source: Arc<str>,
    /// Line, from 1.
    pub line: u32,
}

/// One rule. Its conditions are all to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Where it stands in the order; a list of rules never goes back to an earlier tier.
    pub tier: Tier,
    /// What it says of the packets that it matches.
    pub verdict: Verdict,
    /// The far side lies in one of these. `None` matches every address; an empty list matches none.
    pub peers: Option<Vec<PeerBlock>>,
    /// The packet is one of these; empty matches all.
    pub services: Vec<ServiceMatch>,
    /// The first packet of each flow that it decides is logged.
    pub log: bool,
    /// Where it was written.
    pub origin: Origin,
}

/// A prefix without some of its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerBlock {
    /// The addresses meant.
    pub net: IpNet,
    /// Parts of `net` that are not meant; no other block is affected.
    pub except: Vec<IpNet>,
}

/// An inclusive range of TCP, UDP or SCTP destination ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    /// Lowest.
    pub first: u16,
    /// Highest.
    pub last: u16,
}

impl PortRange {
    /// Every port.
    pub const ALL: Self = Self { first: 0, last: u16::MAX };

    const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// An inclusive range of destination queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpRange {
    /// Lowest.
    pub first: u32,
    /// Highest, at most 0xffffff.
    pub last: u32,
}

/// What kind of packets a rule means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceMatch {
    /// TCP to these ports.
    Tcp(PortRange),
    /// UDP to these ports; RoCEv2 is UDP to port 4791.
    Udp(PortRange),
    /// SCTP to these ports.
    Sctp(PortRange),
    /// ICMP, of this type and code when given.
    Icmp(Option<u8>, Option<u8>),
    /// ICMPv6, of this type and code when given.
    Icmpv6(Option<u8>, Option<u8>),
    /// RoCEv2 to these queue pairs.
    Roce(QpRange),
    /// Any packet of this IP protocol, whatever its ports.
    Protocol(u8),
}

/// The condition of a rule that a packet does not meet. Later ones come closer to a match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mismatch {
    /// The far side is in none of the blocks.
    Peer,
    /// The far side is in a block, but in this exception of it.
    Excepted(IpNet),
    /// Another protocol.
    Protocol,
    /// Another destination port.
    Port,
    /// Another ICMP type or code.
    IcmpType,
    /// Another queue pair.
    QueuePair,
    /// A later fragment does not show what a rule that accepts asks for.
    Fragment,
}

/// What of a packet's transport a rule looks at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// TCP to this port.
    Tcp(u16),
    /// UDP to this port, which is not that of RoCEv2.
    Udp(u16),
    /// SCTP to this port.
    Sctp(u16),
    /// ICMP type and code.
    Icmp(u8, u8),
    /// ICMPv6 type and code.
    Icmpv6(u8, u8),
    /// RoCEv2 to this queue pair.
    Roce(u32),
    /// A later fragment, or a protocol of which no more is known, such as the other family's ICMP: the IP protocol.
    Opaque(u8),
}

impl Service {
    /// The IP protocol number.
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Tcp(_) => 6,
            Self::Udp(_) | Self::Roce(_) => 17,
            Self::Sctp(_) => 132,
            Self::Icmp(..) => 1,
            Self::Icmpv6(..) => 58,
            Self::Opaque(protocol) => protocol,
        }
    }

    /// How lists of flows, explanations and examples spell it, with the source port where there is one: `tcp 40000 > 443`,
    /// `icmp type 8 code 0`, `rocev2 qp 0x11`, `protocol 47`.
    pub fn text(self, src_port: u16) -> String {
        match self {
            Self::Tcp(port) => format!("tcp {src_port} > {port}"),
            Self::Udp(port) => format!("udp {src_port} > {port}"),
            Self::Sctp(port) => format!("sctp {src_port} > {port}"),
            Self::Icmp(kind, code) => format!("icmp type {kind} code {code}"),
            Self::Icmpv6(kind, code) => format!("icmpv6 type {kind} code {code}"),
            Self::Roce(qp) => format!("rocev2 qp {qp:#x}"),
            Self::Opaque(protocol) => format!("protocol {protocol}"),
        }
    }

    /// True when packets of that address's family can be this: ICMP is IPv4's, ICMPv6 is IPv6's. Between addresses of
    /// the other family either is a protocol of which no more is known.
    pub const fn fits(self, address: IpAddr) -> bool {
        match self {
            Self::Icmp(..) => address.is_ipv4(),
            Self::Icmpv6(..) => address.is_ipv6(),
            _ => true,
        }
    }
}

impl Rule {
    /// True when the rule speaks of a packet with that far side and service.
    ///
    /// A later fragment ([`Service::Opaque`] of a protocol with ports) has no ports to look at: a rule that accepts
    /// matches it only when it asks for none, a rule that denies or passes on matches it whenever the protocol fits. So
    /// a fragment never passes a rule by leaving out what the rule looks at. Whether a rule that passes on really
    /// speaks of a fragment is [`Self::is_certain`].
    pub fn matches(&self, peer: IpAddr, service: Service) -> bool {
        self.mismatch(peer, service).is_none()
    }

    /// True when a match does not hang on ports, types or queue pairs that the packet does not show.
    pub fn is_certain(&self, service: Service) -> bool {
        let fits = |wanted: &ServiceMatch| wanted.mismatch(service, Verdict::Accept).is_none();
        self.services.is_empty() || self.services.iter().any(fits)
    }

    /// Why the rule does not speak of such a packet; `None` when it does. The far side is looked at first; of several
    /// services the one that comes closest tells.
    #[inline]
    pub fn mismatch(&self, peer: IpAddr, service: Service) -> Option<Mismatch> {
        self.mismatch_of_peer(peer).or_else(|| self.mismatch_of_service(service))
    }

    fn mismatch_of_peer(&self, peer: IpAddr) -> Option<Mismatch> {
        let peers = self.peers.as_ref()?;
        if peers.iter().any(|block| block.contains(peer)) {
            return None;
        }
        let excepted = |block: &PeerBlock| {
            let except = block.except.iter().find(|except| except.contains(&peer));
            except.filter(|_| block.net.contains(&peer)).copied()
        };
        Some(peers.iter().find_map(excepted).map_or(Mismatch::Peer, Mismatch::Excepted))
    }

    fn mismatch_of_service(&self, service: Service) -> Option<Mismatch> {
        let mut closest = None;
        for wanted in &self.services {
            let mismatch = wanted.mismatch(service, self.verdict)?;
            closest = closest.max(Some(mismatch));
        }
        closest
    }
}

impl PeerBlock {
    /// True when the address is in the block and in none of its exceptions.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.net.contains(&address) && !self.except.iter().any(|except| except.contains(&address))
    }
}

impl ServiceMatch {
    /// True when a rule of that verdict which asks for this speaks of such a packet, whoever its far side is: see
    /// [`Rule::matches`].
    pub fn matches(self, service: Service, verdict: Verdict) -> bool {
        self.mismatch(service, verdict).is_none()
    }

    fn mismatch(self, service: Service, verdict: Verdict) -> Option<Mismatch> {
        let (holds, otherwise) = match (self, service) {
            (Self::Tcp(range), Service::Tcp(port))
            | (Self::Udp(range), Service::Udp(port))
            | (Self::Sctp(range), Service::Sctp(port)) => (range.contains(port), Mismatch::Port),
            (Self::Udp(range), Service::Roce(_)) => (range.contains(ROCE_PORT), Mismatch::Port),
            (Self::Roce(range), Service::Roce(qp)) => {
                (range.first <= qp && qp <= range.last, Mismatch::QueuePair)
            }
            (Self::Icmp(kind, code), Service::Icmp(k, c))
            | (Self::Icmpv6(kind, code), Service::Icmpv6(k, c)) => {
                (is_or_any(kind, k) && is_or_any(code, c), Mismatch::IcmpType)
            }
            (Self::Protocol(protocol), any) => (protocol == any.protocol(), Mismatch::Protocol),
            (partly, Service::Opaque(protocol)) if partly.protocol() == protocol => {
                (verdict != Verdict::Accept || partly.is_whole_protocol(), Mismatch::Fragment)
            }
            _ => (false, Mismatch::Protocol),
        };
        if holds { None } else { Some(otherwise) }
    }

    /// The IP protocol number.
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Tcp(_) => 6,
            Self::Udp(_) | Self::Roce(_) => 17,
            Self::Sctp(_) => 132,
            Self::Icmp(..) => 1,
            Self::Icmpv6(..) => 58,
            Self::Protocol(protocol) => protocol,
        }
    }

    const fn is_whole_protocol(self) -> bool {
        match self {
            Self::Tcp(range) | Self::Udp(range) | Self::Sctp(range) => {
                range.first == 0 && range.last == u16::MAX
            }
            Self::Icmp(kind, code) | Self::Icmpv6(kind, code) => kind.is_none() && code.is_none(),
            Self::Roce(_) => false,
            Self::Protocol(_) => true,
        }
    }
}

fn is_or_any(wanted: Option<u8>, seen: u8) -> bool {
    wanted.is_none_or(|wanted| wanted == seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verdict: Verdict, peers: &[(&str, &[&str])], services: &[ServiceMatch]) -> Rule {
        let block = |(net, except): &(&str, &[&str])| PeerBlock {
            net: net.parse().unwrap(),
            except: except.iter().map(|text| text.parse().unwrap()).collect(),
        };
        Rule {
            tier: Tier::Tenant,
            verdict,
            peers: Some(peers.iter().map(block).collect()),
            services: services.to_vec(),
            log: false,
            origin: Origin::default(),
        }
    }

    #[test]
    fn except_takes_out_of_its_own_block_only() {
        let rule = rule(Verdict::Accept, &[("10.0.0.0/8", &["10.0.3.0/24"]), ("10.0.3.209/32", &[])], &[]);
        assert!(rule.matches("10.1.0.1".parse().unwrap(), Service::Tcp(80)));
        assert!(!rule.matches("10.0.3.1".parse().unwrap(), Service::Tcp(80)));
        assert!(rule.matches("10.0.3.209".parse().unwrap(), Service::Tcp(80)));
    }

    #[test]
    fn no_peers_means_every_peer_and_an_empty_list_means_none() {
        let mut rule = rule(Verdict::Accept, &[], &[]);
        assert!(!rule.matches("10.1.0.1".parse().unwrap(), Service::Tcp(80)));
        rule.peers = None;
        assert!(rule.matches("10.1.0.1".parse().unwrap(), Service::Tcp(80)));
        assert!(rule.matches("fd00::1".parse().unwrap(), Service::Tcp(80)));
    }

    #[test]
    fn a_fragment_does_not_slip_past_ports() {
        let peer = "10.0.0.1".parse().unwrap();
        let some = ServiceMatch::Udp(PortRange { first: 7001, last: 7001 });
        let all = ServiceMatch::Udp(PortRange::ALL);
        let net: &[(&str, &[&str])] = &[("0.0.0.0/0", &[])];
        assert!(!rule(Verdict::Accept, net, &[some]).matches(peer, Service::Opaque(17)));
        assert!(rule(Verdict::Accept, net, &[all]).matches(peer, Service::Opaque(17)));
        assert!(rule(Verdict::Deny, net, &[some]).matches(peer, Service::Opaque(17)));
        assert!(!rule(Verdict::Deny, net, &[some]).matches(peer, Service::Opaque(6)));
    }

    #[test]
    fn roce_is_udp_to_its_port_and_has_queue_pairs() {
        let peer = "10.0.0.1".parse().unwrap();
        let net: &[(&str, &[&str])] = &[("0.0.0.0/0", &[])];
        let udp = |first, last| ServiceMatch::Udp(PortRange { first, last });
        assert!(rule(Verdict::Accept, net, &[udp(4791, 4791)]).matches(peer, Service::Roce(7)));
        assert!(!rule(Verdict::Accept, net, &[udp(4792, 9999)]).matches(peer, Service::Roce(7)));
        let qps = ServiceMatch::Roce(QpRange { first: 16, last: 31 });
        assert!(rule(Verdict::Accept, net, &[qps]).matches(peer, Service::Roce(31)));
        assert!(!rule(Verdict::Accept, net, &[qps]).matches(peer, Service::Roce(32)));
        assert!(!rule(Verdict::Accept, net, &[qps]).matches(peer, Service::Udp(4791)));
    }
}
