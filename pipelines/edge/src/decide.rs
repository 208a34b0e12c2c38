//! What the program says of a flow, from its key alone: the slow path's answer, which the flow table then remembers.
//!
//! A pure function of tables and key: the data plane, a re-decision after a swap, and a listing of flows with their
//! rules all ask here.

use std::net::IpAddr;

use program::{Decision, DropReason, Place, PortId, Program, RuleId, Tenant, TenantId, Verdict};
use tables::flow::FlowKey;
use wire::Mac;

use crate::Tables;
use crate::action::{Action, Target};
use crate::key::{self, Ingress};

/// An allowed flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Where to.
    pub target: Target,
    /// The receiver's MAC.
    pub dst_mac: Mac,
    /// The rule that said so.
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

impl Allowed {
    /// The entry's action.
    pub fn action(&self, tables: &Tables, key: &FlowKey) -> Action {
        Action::forward(tables.generation(), self.target, self.dst_mac, key::entropy(key))
    }
}

/// Judges a flow as the one that opens it: source, destination, rules. Replies are the flow table's matter.
pub fn decide(tables: &Tables, key: &FlowKey) -> Result<Allowed, Refused> {
    let program = &*tables.program;
    let tenant = program.tenant(TenantId(key.tenant)).ok_or(DropReason::NoTenant)?;
    let (src, dst) = (key::src(key), key::dst(key));
    if is_martian(src) || src == dst {
        return Err(DropReason::Martian.into());
    }
    check_source(program, tenant, key::ingress(key), src)?;
    if is_rogue_dhcp(key) {
        return Err(DropReason::RogueDhcp.into());
    }
    let (place, dst_mac) = tenant.locate(dst).ok_or(DropReason::NoRoute)?;
    let mut rule = None;
    if let Ingress::Port(from) = key::ingress(key) {
        let port = program.port(from).ok_or(DropReason::NoTenant)?;
        rule = ask(program.decide(port.egress, dst, key::service(key)))?;
    }
    let target = match place {
        Place::Port(to) => {
            if key::ingress(key) == Ingress::Port(to) {
                return Err(DropReason::NoRoute.into());
            }
            let port = program.port(to).ok_or(DropReason::NoRoute)?;
            rule = ask(program.decide(port.ingress, src, key::service(key)))?;
            Target::Port(to)
        }
        Place::Vtep(vtep) => {
            if matches!(key::ingress(key), Ingress::Vtep(_)) {
                // Never from tunnel to tunnel: this box is no transit.
                return Err(DropReason::NoRoute.into());
            }
            Target::Tunnel(tables.tunnel_to(tenant.id, vtep).ok_or(DropReason::NoRoute)?)
        }
    };
    Ok(Allowed { target, dst_mac, rule })
}

/// The key of the flow that this one would answer, as its opener's packets have it; `None` where there is none.
pub fn opener(tables: &Tables, key: &FlowKey) -> Option<FlowKey> {
    let tenant = tables.program.tenant(TenantId(key.tenant))?;
    let ingress = match tenant.locate(key::dst(key))?.0 {
        Place::Port(port) => Ingress::Port(port),
        Place::Vtep(vtep) => Ingress::Vtep(vtep),
    };
    key::mirror(key, ingress)
}

/// Where a reply goes: as [`decide`] says, but for the rules, which its opener has passed.
pub fn deliver_reply(tables: &Tables, key: &FlowKey) -> Result<Allowed, Refused> {
    let program = &*tables.program;
    let tenant = program.tenant(TenantId(key.tenant)).ok_or(DropReason::NoTenant)?;
    check_source(program, tenant, key::ingress(key), key::src(key))?;
    let (place, dst_mac) = tenant.locate(key::dst(key)).ok_or(DropReason::NoRoute)?;
    let target = match place {
        Place::Port(to) => Target::Port(to),
        Place::Vtep(vtep) => Target::Tunnel(tables.tunnel_to(tenant.id, vtep).ok_or(DropReason::NoRoute)?),
    };
    Ok(Allowed { target, dst_mac, rule: None })
}

/// True when a port may send from that address.
pub fn owns(program: &Program, port: PortId, address: IpAddr) -> bool {
    program.port(port).is_some_and(|port| port.addresses.contains(&address))
}

/// True when that tunnel endpoint is where the address lives.
pub fn is_behind(tenant: &Tenant, ingress: Ingress, address: IpAddr) -> bool {
    let place = tenant.locate(address).map(|(place, _)| place);
    match ingress {
        Ingress::Port(port) => place == Some(Place::Port(port)),
        Ingress::Vtep(vtep) => place == Some(Place::Vtep(vtep)),
    }
}

fn check_source(program: &Program, tenant: &Tenant, ingress: Ingress, src: IpAddr) -> Result<(), Refused> {
    let genuine = match ingress {
        Ingress::Port(port) => owns(program, port, src),
        Ingress::Vtep(_) => is_behind(tenant, ingress, src),
    };
    if genuine { Ok(()) } else { Err(DropReason::SpoofedAddress.into()) }
}

fn ask(decision: Decision) -> Result<Option<RuleId>, Refused> {
    match (decision.verdict, decision.rule) {
        (Verdict::Accept, rule) => Ok(rule),
        (Verdict::Deny, Some(_)) => Err(Refused { reason: DropReason::PolicyDeny, rule: decision.rule }),
        (Verdict::Deny, None) => Err(DropReason::PolicyDefault.into()),
    }
}

/// Sources that no packet on a wire may have (RFC 1122, section 3.2.1.3; RFC 4291, section 2.7).
fn is_martian(src: IpAddr) -> bool {
    match src {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_multicast(),
    }
}

/// A DHCP server's answer from a tenant's port (RFC 2131, section 4.1; RFC 8415, section 7.2).
fn is_rogue_dhcp(key: &FlowKey) -> bool {
    let from_port = matches!(key::ingress(key), Ingress::Port(_));
    let ports = (key::src_port(key), key.l4 as u16);
    from_port && key.protocol == 17 && matches!(ports, (67, 68) | (547, 546))
}

/// True when a tenant's host speaks to its gateway, which is floodway itself.
pub fn is_for_gateway(tables: &Tables, key: &FlowKey) -> bool {
    let tenant = tables.program.tenant(TenantId(key.tenant));
    matches!(key::ingress(key), Ingress::Port(_))
        && tenant.is_some_and(|tenant| tenant.gateways.contains(&key::dst(key)))
}

/// True when an ICMP error came in where the packet that it quotes went out.
pub fn came_back(tables: &Tables, error: &FlowKey, quoted: &FlowKey) -> bool {
    let tenant = tables.program.tenant(TenantId(error.tenant));
    tenant.is_some_and(|tenant| is_behind(tenant, key::ingress(error), key::dst(quoted)))
}

/// Completes the key of a quoted packet: it came in where its source lives.
pub fn place_sender(tables: &Tables, quoted: &FlowKey) -> Option<FlowKey> {
    let tenant = tables.program.tenant(TenantId(quoted.tenant))?;
    let ingress = match tenant.locate(key::src(quoted))?.0 {
        Place::Port(port) => Ingress::Port(port),
        Place::Vtep(vtep) => Ingress::Vtep(vtep),
    };
    Some(key::entering(quoted, ingress))
}
