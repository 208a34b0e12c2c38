//! What the program says of a flow: the one answer that the data plane, `explain`, `plan` and `verify` all give.

use std::net::IpAddr;

use wire::Mac;

use crate::{
    Decision, DropReason, Hop, Place, PortId, Program, RuleId, RuleListId, Service, Tenant, TenantId,
    Verdict, VtepId,
};

/// Where a packet comes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ingress {
    /// A tenant's port.
    Port(PortId),
    /// A tunnel from that endpoint.
    Vtep(VtepId),
}

impl From<Place> for Ingress {
    fn from(place: Place) -> Self {
        match place {
            Place::Port(port) => Self::Port(port),
            Place::Vtep(vtep) => Self::Vtep(vtep),
        }
    }
}

/// What is judged: a flow in the direction of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Whose it is: by the port, or by the tunnel's VNI.
    pub tenant: TenantId,
    /// Where it comes in.
    pub ingress: Ingress,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// What rules look at.
    pub service: Service,
    /// TCP, UDP or SCTP source port; zero for others.
    pub src_port: u16,
}

/// A flow's way, before any rule is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Where it goes.
    pub place: Place,
    /// The receiver's MAC.
    pub dst_mac: Mac,
    /// Rules of the sending port, asked about the destination; `None` when it is not here.
    pub egress: Option<RuleListId>,
    /// Rules of the receiving port, asked about the source; `None` when it is not here.
    pub ingress: Option<RuleListId>,
}

/// An allowed flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Where it goes.
    pub place: Place,
    /// The receiver's MAC.
    pub dst_mac: Mac,
    /// The last rule that said so.
    pub rule: Option<RuleId>,
}

/// A refused flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub reason: DropReason,
    /// The rule that said so, if it was one.
    pub rule: Option<RuleId>,
}

impl From<DropReason> for Refused {
    fn from(reason: DropReason) -> Self {
        Self { reason, rule: None }
    }
}

/// Who answers what the judge asks: the program itself, which goes through its lists one by one and is the reference, or
/// what a data plane has made of it to be fast, which must say the same.
pub trait Answers {
    /// The program that is asked.
    fn program(&self) -> &Program;

    /// Where packets of a tenant of this program to `address` may go: as [`Tenant::locate`].
    fn locate<'a>(&'a self, tenant: &'a Tenant, address: IpAddr) -> &'a [Hop];

    /// What the rules of a list say: as [`Program::decide`].
    fn decide(&self, list: RuleListId, peer: IpAddr, service: Service) -> Decision;

    /// Judges a flow as the one that opens it: source, destination, rules of both ends as far as they are here.
    /// Replies are the flow table's matter.
    fn judge(&self, flow: &Flow) -> Result<Allowed, Refused> {
        let way = self.way(flow)?;
        let egress = way.egress.map(|list| ask(self.decide(list, flow.dst, flow.service))).transpose()?;
        let ingress = way.ingress.map(|list| ask(self.decide(list, flow.src, flow.service))).transpose()?;
        Ok(Allowed { place: way.place, dst_mac: way.dst_mac, rule: ingress.or(egress).flatten() })
    }

    /// The rule that asks for a flow to be logged: the one that refuses it, or of those that accept it the sender's, then the
    /// receiver's. `None` when none of them does, or no rule decides.
    fn logged(&self, flow: &Flow) -> Option<RuleId> {
        let way = self.way(flow).ok()?;
        let egress = way.egress.map(|list| self.decide(list, flow.dst, flow.service));
        let ingress = way.ingress.map(|list| self.decide(list, flow.src, flow.service));
        let asked = [egress, ingress].into_iter().flatten();
        let refusal = asked.clone().find(|decision| decision.verdict != Verdict::Accept);
        let deciding = asked.filter(|decision| refusal.is_none_or(|refusal| refusal == *decision));
        let mut rules = deciding.filter_map(|decision| decision.rule);
        rules.find(|id| self.program().rules.rule(*id).is_some_and(|rule| rule.log))
    }

    /// The way of a flow whose addresses are what they claim to be.
    fn way(&self, flow: &Flow) -> Result<Way, DropReason> {
        let program = self.program();
        let tenant = program.tenant(flow.tenant).ok_or(DropReason::NoTenant)?;
        if is_martian(flow.src) || flow.src == flow.dst {
            return Err(DropReason::Martian);
        }
        if !self.is_genuine(tenant, flow.ingress, flow.src) {
            return Err(DropReason::SpoofedAddress);
        }
        if flow.is_rogue_dhcp() {
            return Err(DropReason::RogueDhcp);
        }
        let hop = flow.choose(self.locate(tenant, flow.dst)).ok_or(DropReason::NoRoute)?;
        let Hop { place, mac: dst_mac } = *hop;
        let egress = match flow.ingress {
            Ingress::Port(port) => Some(program.port(port).ok_or(DropReason::NoTenant)?.egress),
            Ingress::Vtep(_) => None,
        };
        let ingress = match place {
            // Not back out of the port that it came in by, and never from tunnel to tunnel: this box is no transit.
            _ if flow.ingress == Ingress::from(place) => return Err(DropReason::NoRoute),
            Place::Vtep(_) if egress.is_none() => return Err(DropReason::NoRoute),
            Place::Vtep(_) => None,
            Place::Port(port) => Some(program.port(port).ok_or(DropReason::NoRoute)?.ingress),
        };
        Ok(Way { place, dst_mac, egress, ingress })
    }

    /// True when a packet that comes in there may have that source address.
    fn is_genuine(&self, tenant: &Tenant, ingress: Ingress, src: IpAddr) -> bool {
        match ingress {
            Ingress::Port(port) => self.program().owns(port, src),
            Ingress::Vtep(_) => self.is_behind(tenant, ingress, src),
        }
    }

    /// True when that is where the address lives; behind each of several hops it does.
    fn is_behind(&self, tenant: &Tenant, ingress: Ingress, address: IpAddr) -> bool {
        self.locate(tenant, address).iter().any(|hop| Ingress::from(hop.place) == ingress)
    }
}

impl Answers for Program {
    fn program(&self) -> &Program {
        self
    }

    fn locate<'a>(&'a self, tenant: &'a Tenant, address: IpAddr) -> &'a [Hop] {
        tenant.locate(address)
    }

    fn decide(&self, list: RuleListId, peer: IpAddr, service: Service) -> Decision {
        Self::decide(self, list, peer, service)
    }
}

impl Program {
    /// [`Answers::judge`] of the program itself.
    pub fn judge(&self, flow: &Flow) -> Result<Allowed, Refused> {
        Answers::judge(self, flow)
    }

    /// [`Answers::way`] of the program itself.
    pub fn way(&self, flow: &Flow) -> Result<Way, DropReason> {
        Answers::way(self, flow)
    }

    /// True when a port may send from that address.
    pub fn owns(&self, port: PortId, address: IpAddr) -> bool {
        self.port(port).is_some_and(|port| port.addresses.contains(&address))
    }
}

impl Flow {
    /// A DHCP server's answer from a tenant's port (RFC 2131, section 4.1; RFC 8415, section 7.2).
    fn is_rogue_dhcp(&self) -> bool {
        let Service::Udp(dst_port) = self.service else { return false };
        matches!(self.ingress, Ingress::Port(_)) && matches!((self.src_port, dst_port), (67, 68) | (547, 546))
    }
}

fn ask(decision: Decision) -> Result<Option<RuleId>, Refused> {
    match (decision.verdict, decision.rule) {
        (Verdict::Accept, rule) => Ok(rule),
        (Verdict::Deny | Verdict::Pass, Some(_)) => {
            Err(Refused { reason: DropReason::PolicyDeny, rule: decision.rule })
        }
        (Verdict::Deny | Verdict::Pass, None) => Err(DropReason::PolicyDefault.into()),
    }
}

/// Sources that no packet on a wire may have (RFC 1122, section 3.2.1.3; RFC 4291, section 2.7).
fn is_martian(src: IpAddr) -> bool {
    match src {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_multicast(),
    }
}
