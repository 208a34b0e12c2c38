//! Why a packet gets its verdict: each rule that is asked, the way that it goes, and what its answers meet.
//!
//! The verdict is that of [`Program::judge`] and of the same checks around it that the data plane makes, in its order;
//! `tests/tests/explain.rs` holds the two together. What only a running data plane knows is named, not guessed:
//! whether a flow is open, whether a next hop has answered, the uplink's own MAC.

mod frame;
mod live;
mod question;
mod quoted;
mod spelling;
mod words;

use std::{collections::BTreeSet, net::IpAddr};

use program::{
    DropReason, Flow, Hop, Ingress, Place, Port, Program, Rule, RuleId, RuleListId, Service, ServiceMatch,
    Tier, UnknownQp, Verdict,
};
use wire::{Fragment, Mac};

pub use frame::Arrival;
pub use live::{Concern, FLOWS_SHOWN_MAX, Live, live};
pub use question::{Question, QuestionError};
pub use quoted::Quote;
pub use spelling::{peer_text, service_text};
pub(crate) use words::verdict as verdict_text;
pub use words::{
    Explanation, Headers, Quoted, Reason, Replies, RuleList, RuleSeen, Side, Tunnel, Verdict as Outcome, Way,
    WayHop,
};

/// Most rules of one list that an explanation shows; the one that decides is always among them.
pub const RULES_SHOWN_MAX: usize = 1000;

/// ICMP types that are errors about another packet (RFC 792), as the data plane takes them.
const ICMP_ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
const ICMP_REDIRECT: u8 = 5;
/// Queue pairs have 24 bits.
const QP_MAX: u32 = 0xff_ffff;

/// A packet of a tenant, as its headers say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// What rules look at.
    pub flow: Flow,
    /// A later fragment gets the verdict of its first, whatever the rules say of it alone.
    pub fragment: Fragment,
    /// Of an echo, when a frame tells.
    pub identifier: Option<u16>,
    /// What only a frame tells; without it all is as it should be.
    pub link: Option<Link>,
    /// What an ICMP error quotes, when there is a frame; `Some(None)` when that cannot be read.
    pub quote: Option<Option<Quote>>,
}

impl Packet {
    /// A whole packet of the flow, of which no frame is known.
    pub const fn default_of(flow: Flow) -> Self {
        Self { flow, fragment: Fragment::None, identifier: None, link: None, quote: None }
    }
}

/// What of a frame matters besides its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Destination MAC.
    pub dst_mac: Mac,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Length of the IP packet, in bytes.
    pub ip_len: u16,
}

/// Explains a packet of a tenant, as the one that opens its flow.
pub fn explain(program: &Program, packet: &Packet) -> Explanation {
    let mut explanation = Explanation { headers: Some(headers(packet)), ..start(program, &packet.flow) };
    match fate(program, packet, &mut explanation) {
        Ok(outcome) => explanation.verdict = outcome,
        Err(reason) => explanation.refuse(reason),
    }
    explanation
}

/// Explains a frame that a port receives: a tenant's, or the uplink's with a tunnel's headers around it.
pub fn explain_frame(program: &Program, port: program::PortId, frame: &[u8]) -> Explanation {
    let Arrival { tenant, from, outcome } = frame::arrive(program, port, frame);
    let place = Explanation {
        from: from.map_or_else(|| program.port_name(port).into(), |from| name(program, from)),
        tenant: tenant.and_then(|id| program.tenant(id)).map(|tenant| tenant.name.clone()),
        vni: tenant.and_then(|id| program.tenant(id)).map(|tenant| tenant.vni.0),
        ..Explanation::default()
    };
    match outcome {
        Ok(frame::Content::Packet(packet)) => explain(program, &packet),
        Ok(frame::Content::Neighbour) => Explanation { verdict: Outcome::Neighbour, ..place },
        Ok(frame::Content::Local) => Explanation { verdict: Outcome::Local, ..place },
        Err(reason) => {
            let mut refused = place;
            refused.refuse(reason);
            refused
        }
    }
}

fn start(program: &Program, flow: &Flow) -> Explanation {
    let tenant = program.tenant(flow.tenant);
    Explanation {
        tenant: tenant.map(|tenant| tenant.name.clone()),
        vni: tenant.map(|tenant| tenant.vni.0),
        from: name(program, flow.ingress),
        ..Explanation::default()
    }
}

fn headers(packet: &Packet) -> Headers {
    let Flow { src, dst, service, src_port, .. } = packet.flow;
    let is_fragment = packet.fragment != Fragment::None;
    Headers { src, dst, service: service.text(src_port), identifier: packet.identifier, is_fragment }
}

/// In the order of the data plane: what it does not look up, the gateway, the program, and the way out.
fn fate(program: &Program, packet: &Packet, told: &mut Explanation) -> Result<Outcome, DropReason> {
    let flow = &packet.flow;
    let tenant = program.tenant(flow.tenant).ok_or(DropReason::NoTenant)?;
    if let Some(outcome) = unasked(program, packet, told)? {
        return Ok(outcome);
    }
    if let (Ingress::Port(port), true) = (flow.ingress, tenant.gateways.contains(&flow.dst)) {
        return gateway(program, port, tenant.gateway_mac, packet);
    }
    told.lists = ask(program, flow);
    let judged = program.judge(flow);
    told.rule = match &judged {
        Ok(allowed) => allowed.rule,
        Err(refused) => refused.rule,
    }
    .map(|rule| program.origin(rule));
    if packet.fragment == Fragment::Later {
        program.way(flow)?;
        // Where it goes if its first does; whether it fits there is asked then.
        let _ = deliver(program, packet, told);
        return Ok(Outcome::Follows);
    }
    let mirror = mirror(program, packet);
    if let Err(refused) = judged {
        let by_rules = matches!(refused.reason, DropReason::PolicyDeny | DropReason::PolicyDefault);
        told.passes_as_answer = by_rules && !is_echo_request(flow.service) && is_open_to(program, mirror);
        told.passes_as_answer |= by_rules && may_answer_roce(program, packet);
        return Err(refused.reason);
    }
    told.needs_queue_pair = matches!(flow.service, Service::Roce(qp) if qp > wire::roce::cm::QP)
        && tenant.roce.unknown_qp == UnknownQp::Deny;
    told.replies = Some(replies(program, packet, mirror));
    deliver(program, packet, told)
}

/// ICMP errors, neighbour discovery and groups, for which rules are not asked.
fn unasked(
    program: &Program,
    packet: &Packet,
    told: &mut Explanation,
) -> Result<Option<Outcome>, DropReason> {
    let is_later = matches!(packet.flow.service, Service::Opaque(_));
    let is_group = packet.link.is_some_and(|link| link.dst_mac.0[0] & 1 != 0);
    let is_error = match packet.flow.service {
        Service::Icmp(ICMP_REDIRECT, _) => return Err(DropReason::RouterAdvertisement),
        Service::Icmp(kind, _) => ICMP_ERRORS.contains(&kind),
        Service::Icmpv6(kind, _) if wire::icmpv6::is_neighbour_discovery(kind) => {
            return Ok(Some(Outcome::Neighbour));
        }
        Service::Icmpv6(kind, _) => (1..=127).contains(&kind),
        _ => false,
    };
    if is_group {
        return Err(DropReason::Group);
    }
    if !is_error || is_later {
        return Ok(None);
    }
    program.way(&packet.flow)?;
    if let Some(quote) = packet.quote {
        let quoted = quoted::explain(program, packet, quote);
        let may_pass = quoted.may_be_open;
        told.quoted = Some(quoted);
        if !may_pass {
            return Err(DropReason::UnrelatedIcmpError);
        }
    }
    // Whether it fits and may travel on is looked at when it may pass.
    told.reason = deliver(program, packet, told).err().map(reason);
    Ok(Some(Outcome::ByState))
}

/// The gateway that floodway plays answers echo requests, and nothing else.
fn gateway(
    program: &Program,
    port: program::PortId,
    mac: Mac,
    packet: &Packet,
) -> Result<Outcome, DropReason> {
    if !program.owns(port, packet.flow.src) {
        return Err(DropReason::SpoofedAddress);
    }
    if packet.link.is_some_and(|link| link.dst_mac != mac) {
        return Err(DropReason::UnknownDestinationMac);
    }
    let is_request = matches!(packet.flow.service, Service::Icmp(8, 0) | Service::Icmpv6(128, 0));
    if is_request && packet.fragment == Fragment::None {
        Ok(Outcome::Answered)
    } else {
        Err(DropReason::NoService)
    }
}

/// Where an allowed packet goes, and whether it fits there and may travel on.
fn deliver(program: &Program, packet: &Packet, told: &mut Explanation) -> Result<Outcome, DropReason> {
    let way = program.way(&packet.flow)?;
    let tenant = program.tenant(packet.flow.tenant).ok_or(DropReason::NoTenant)?;
    let (mtu_bytes, tunnel) = match way.place {
        Place::Port(port) => (program.port(port).ok_or(DropReason::NoRoute)?.mtu, None),
        Place::Vtep(vtep) => {
            let (mtu, tunnel) = tunnel(program, tenant, vtep).ok_or(DropReason::NoRoute)?;
            (mtu, Some(tunnel))
        }
    };
    let to = name(program, way.place.into());
    let hops = candidates(program, tenant.locate(packet.flow.dst));
    told.way = Some(Way { to, dst_mac: way.dst_mac.to_string(), hops, mtu_bytes, tunnel });
    let Some(link) = packet.link else { return Ok(Outcome::Forwarded) };
    if link.ip_len > mtu_bytes {
        return Err(DropReason::TooBig);
    }
    match link.dst_mac {
        mac if mac == tenant.gateway_mac && link.hop_limit <= 1 => Err(DropReason::TtlExpired),
        mac if mac == tenant.gateway_mac || mac == way.dst_mac => Ok(Outcome::Forwarded),
        _ => Err(DropReason::UnknownDestinationMac),
    }
}

/// The hops among which a flow's is chosen; none when there is no choice.
fn candidates(program: &Program, hops: &[Hop]) -> Vec<WayHop> {
    let candidate = |hop: &Hop| WayHop { to: name(program, hop.place.into()), dst_mac: hop.mac.to_string() };
    if hops.len() > 1 { hops.iter().map(candidate).collect() } else { Vec::new() }
}

/// Headers of the tunnel to an endpoint, and the largest inner IP packet that it carries.
fn tunnel(program: &Program, tenant: &program::Tenant, vtep: program::VtepId) -> Option<(u16, Tunnel)> {
    let (remote, uplink) = (program.vtep(vtep)?, program.uplink.as_ref()?);
    let is_family = |address: &IpAddr| address.is_ipv4() == remote.address.is_ipv4();
    let src = uplink.addresses.iter().map(ipnet::IpNet::addr).find(is_family)?;
    let addresses = match (src, remote.address) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            wire::vxlan::Addresses::V4 { src: src.octets(), dst: dst.octets() }
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            wire::vxlan::Addresses::V6 { src: src.octets(), dst: dst.octets() }
        }
        _ => return None,
    };
    let vni = wire::vxlan::Vni::new(tenant.vni.0)?;
    let outer = wire::vxlan::Outer::new(Mac::default(), Mac::default(), addresses, vni);
    let overhead = wire::vxlan::Template::new(&outer).overhead() as u16;
    let device = program.devices.get(usize::from(uplink.port.0))?;
    let shown = Tunnel {
        vni: tenant.vni.0,
        src,
        dst: remote.address,
        dst_port: wire::vxlan::PORT,
        next_hop: remote.next_hop,
        next_hop_mac: remote.mac.map(|mac| mac.to_string()),
        uplink: device.name.clone(),
    };
    Some((device.mtu.saturating_sub(overhead), shown))
}

/// The rules of the sending and of the receiving port, as far as they are asked: the second list is not when the first
/// says no.
fn ask(program: &Program, flow: &Flow) -> Vec<RuleList> {
    let Ok(way) = program.way(flow) else { return Vec::new() };
    let mut lists = Vec::new();
    if let (Some(list), Ingress::Port(port)) = (way.egress, flow.ingress) {
        lists.push(walk(program, list, program.port(port), Side::Egress, flow.dst, flow.service));
    }
    let is_open = lists.iter().all(|list| list.accepts);
    if let (Some(list), Place::Port(port), true) = (way.ingress, way.place, is_open) {
        lists.push(walk(program, list, program.port(port), Side::Ingress, flow.src, flow.service));
    }
    lists
}

fn walk(
    program: &Program,
    list: RuleListId,
    port: Option<&Port>,
    side: Side,
    peer: IpAddr,
    service: Service,
) -> RuleList {
    let decision = program.decide(list, peer, service);
    let asked = asked(program, list, peer, service);
    let end = decision.rule.and_then(|hit| asked.iter().position(|rule| *rule == hit));
    let looked_at = end.map_or(asked.len(), |end| end + 1);
    // The last ones are kept: the one that decides is the last.
    let omitted = looked_at.saturating_sub(RULES_SHOWN_MAX);
    let see = |rule: &RuleId| seen(program, *rule, peer, service);
    RuleList {
        port: port.map_or("?", |port| program.port_name(port.id)).into(),
        side,
        peer,
        omitted,
        rules: asked[omitted..looked_at].iter().filter_map(see).collect(),
        accepts: decision.verdict == Verdict::Accept,
        is_default: decision.rule.is_none(),
    }
}

/// The rules of a list that a packet meets: those that a tier has passed over, once it passed the packet on, are not.
fn asked(program: &Program, list: RuleListId, peer: IpAddr, service: Service) -> Vec<RuleId> {
    let mut left: Option<Tier> = None;
    let meets = |(_, rule): &(RuleId, Option<&Rule>)| {
        let Some(rule) = rule else { return false };
        let is_met = left.is_none_or(|left| rule.tier > left);
        if is_met && rule.verdict == Verdict::Pass && rule.matches(peer, service) && rule.is_certain(service)
        {
            left = Some(rule.tier);
        }
        is_met
    };
    program.rules.list(list).filter(meets).map(|(id, _)| id).collect()
}

fn seen(program: &Program, id: RuleId, peer: IpAddr, service: Service) -> Option<RuleSeen> {
    let rule = program.rule(id)?;
    let mismatch = rule.mismatch(peer, service);
    Some(RuleSeen {
        origin: program.origin(id),
        verdict: words::verdict(rule.verdict).into(),
        matches: mismatch.is_none(),
        mismatch: mismatch.map(|mismatch| words::mismatch(mismatch).into()),
        why: words::why(rule, mismatch, peer, service),
    })
}

/// What becomes of the answers to an allowed packet.
fn replies(program: &Program, packet: &Packet, mirror: Option<Flow>) -> Replies {
    let is_answer = !is_echo_request(packet.flow.service) && is_open_to(program, mirror);
    let passes = mirror.is_some_and(|mirror| program.way(&mirror).is_ok());
    Replies {
        by_state: passes && !is_echo_reply(packet.flow.service),
        why: words::replies(packet, mirror.is_some(), passes, is_answer).into(),
    }
}

/// True when the rules allow that flow to be opened.
fn is_open_to(program: &Program, flow: Option<Flow>) -> bool {
    flow.is_some_and(|flow| program.judge(&flow).is_ok())
}

/// The flow of the packets in the other direction; `None` where it cannot be told from headers: RoCEv2, whose other queue
/// pair is not in the packet, later fragments, ICMP that is no echo, and where the destination is nowhere.
pub(crate) fn mirror(program: &Program, packet: &Packet) -> Option<Flow> {
    let flow = &packet.flow;
    if packet.fragment == Fragment::Later {
        return None;
    }
    let (service, src_port) = match flow.service {
        Service::Tcp(port) => (Service::Tcp(flow.src_port), port),
        // What would come back is RoCEv2, which has flows of its own.
        Service::Udp(_) if flow.src_port == wire::roce::PORT => return None,
        Service::Udp(port) => (Service::Udp(flow.src_port), port),
        Service::Sctp(port) => (Service::Sctp(flow.src_port), port),
        Service::Icmp(8, code) => (Service::Icmp(0, code), 0),
        Service::Icmp(0, code) => (Service::Icmp(8, code), 0),
        Service::Icmpv6(128, code) => (Service::Icmpv6(129, code), 0),
        Service::Icmpv6(129, code) => (Service::Icmpv6(128, code), 0),
        Service::Opaque(protocol) => (Service::Opaque(protocol), 0),
        Service::Icmp(..) | Service::Icmpv6(..) | Service::Roce(_) => return None,
    };
    reversed(program, flow, service, src_port)
}

/// A flow from the receiver of `flow` to its sender; `None` where the receiver is nowhere. Behind several hops it comes from
/// the one that `flow` takes.
pub(crate) fn reversed(program: &Program, flow: &Flow, service: Service, src_port: u16) -> Option<Flow> {
    let hop = flow.choose(program.tenant(flow.tenant)?.locate(flow.dst))?;
    let ingress = Ingress::from(hop.place);
    Some(Flow { tenant: flow.tenant, ingress, src: flow.dst, dst: flow.src, service, src_port })
}

/// True when the receiver may open RoCEv2 to some queue pair of the sender's: then what is refused may be its answer.
/// Every queue pair at which a rule that is asked begins or ends is tried, so that none is left out.
fn may_answer_roce(program: &Program, packet: &Packet) -> bool {
    let Service::Roce(own) = packet.flow.service else { return false };
    let opens = |qp| is_open_to(program, reversed(program, &packet.flow, Service::Roce(qp), 0));
    let is_fragment = packet.fragment != Fragment::None;
    if is_fragment || own <= wire::roce::cm::QP {
        return !is_fragment && opens(own);
    }
    let back = reversed(program, &packet.flow, packet.flow.service, 0);
    let Some(way) = back.and_then(|back| program.way(&back).ok()) else { return false };
    let lists = [way.egress, way.ingress].into_iter().flatten();
    let asked = lists.flat_map(|list| program.rules.list(list)).filter_map(|(_, rule)| rule);
    let edges = asked.flat_map(|rule| &rule.services).filter_map(|service| match service {
        ServiceMatch::Roce(range) => Some([range.first, range.last.saturating_add(1)]),
        _ => None,
    });
    let edges: BTreeSet<u32> = edges.flatten().chain([wire::roce::cm::QP + 1]).collect();
    edges.into_iter().filter(|qp| (wire::roce::cm::QP + 1..=QP_MAX).contains(qp)).any(opens)
}

fn is_echo_request(service: Service) -> bool {
    matches!(service, Service::Icmp(8, _) | Service::Icmpv6(128, _))
}

fn is_echo_reply(service: Service) -> bool {
    matches!(service, Service::Icmp(0, _) | Service::Icmpv6(129, _))
}

/// The name of a port or of a tunnel endpoint.
pub(crate) fn place_name(program: &Program, place: Place) -> String {
    name(program, place.into())
}

/// The name of a port or of a tunnel endpoint.
fn name(program: &Program, ingress: Ingress) -> String {
    match ingress {
        Ingress::Port(port) => program.port_name(port).into(),
        Ingress::Vtep(vtep) => program.vtep(vtep).map_or("?", |vtep| &vtep.name).into(),
    }
}

impl Explanation {
    fn refuse(&mut self, reason: DropReason) {
        self.verdict = Outcome::Dropped;
        self.reason = Some(self::reason(reason));
    }
}

fn reason(reason: DropReason) -> Reason {
    Reason { name: reason.name().into(), meaning: reason.meaning().trim().into() }
}
