//! What the program says of a flow, from its key alone: the slow path's answer, which the flow table then remembers.
//!
//! A pure function of tables and key: the data plane, a re-decision after a swap, and a listing of flows with their
//! rules all ask here.

use program::{Answers, DropReason, Ingress, Place, Refused, RuleId, TenantId};
use tables::flow::FlowKey;
use wire::Mac;

use crate::Tables;
use crate::action::{Action, Target};
use crate::key;

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

impl Allowed {
    /// The entry's action.
    pub fn action(&self, tables: &Tables, key: &FlowKey) -> Action {
        Action::forward(tables.generation(), self.target, self.dst_mac, key::entropy(key))
    }
}

/// Judges a flow as the one that opens it, as [`program::Program::judge`]. Replies are the flow table's matter.
pub fn decide(tables: &Tables, key: &FlowKey) -> Result<Allowed, Refused> {
    let allowed = tables.judge(&key::flow(key))?;
    Ok(Allowed { target: target(tables, key, allowed.place)?, dst_mac: allowed.dst_mac, rule: allowed.rule })
}

fn target(tables: &Tables, key: &FlowKey, place: Place) -> Result<Target, DropReason> {
    match place {
        Place::Port(port) => Ok(Target::Port(port)),
        Place::Vtep(vtep) => {
            let tunnel = tables.tunnel_to(TenantId(key.tenant), vtep);
            tunnel.map(Target::Tunnel).ok_or(DropReason::NoRoute)
        }
    }
}

/// The key of the flow that this one would answer, as its opener's packets have it; `None` where there is none: an echo
/// request answers nothing.
pub fn opener(tables: &Tables, key: &FlowKey) -> Option<FlowKey> {
    if key::is_echo_request(key) { None } else { reverse(tables, key) }
}

/// The key of the same flow's packets in the other direction; `None` where that cannot be told.
pub fn reverse(tables: &Tables, key: &FlowKey) -> Option<FlowKey> {
    let tenant = tables.program.tenant(TenantId(key.tenant))?;
    let ingress = Ingress::from(tables.locate(tenant, key::dst(key))?.0);
    key::mirror(key, ingress)
}

/// Where a reply goes: as [`decide`] says, but for the rules, which its opener has passed.
pub fn deliver_reply(tables: &Tables, key: &FlowKey) -> Result<Allowed, Refused> {
    let way = tables.way(&key::flow(key))?;
    Ok(Allowed { target: target(tables, key, way.place)?, dst_mac: way.dst_mac, rule: None })
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
    tenant.is_some_and(|tenant| tables.is_behind(tenant, key::ingress(error), key::dst(quoted)))
}

/// Completes the key of a quoted packet: it came in where its source lives.
pub fn place_sender(tables: &Tables, quoted: &FlowKey) -> Option<FlowKey> {
    let tenant = tables.program.tenant(TenantId(quoted.tenant))?;
    let ingress = Ingress::from(tables.locate(tenant, key::src(quoted))?.0);
    Some(key::entering(quoted, ingress))
}
