//! What the program says of a flow, from its key alone: the slow path's answer, which the flow table then remembers.
//!
//! A pure function of tables and key: the data plane, a re-decision after a swap, and a listing of flows with their
//! rules all ask here.

use program::{Answers, DropReason, Hop, Ingress, Place, Refused, RuleId, TenantId};
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

/// The action of a flow that was decided before: it keeps the hop that it had, by the hop's MAC, as long as that is one
/// of its hops.
pub fn keep_hop(tables: &Tables, key: &FlowKey, action: Action, old: Action) -> Action {
    let hops = hops(tables, key, key::dst(key));
    let kept = hops.iter().find(|hop| hops.len() > 1 && hop.mac == old.dst_mac);
    match (action.target(), kept) {
        (Target::Tunnel(_), Some(hop)) => {
            target(tables, key, hop.place).map_or(action, |target| action.towards(target, hop.mac))
        }
        _ => action,
    }
}

/// The keys of the flow that this one would answer, as its opener's packets have them: one for each hop that they may come
/// from, most often one in all. None where there is no such flow: an echo request answers nothing.
pub fn openers<'t>(tables: &'t Tables, key: &FlowKey) -> impl Iterator<Item = FlowKey> + use<'t> {
    let is_asking = key::is_echo_request(key);
    reverses(tables, key).filter(move |_| !is_asking)
}

/// The keys of the same flow's packets in the other direction, one for each hop that they may come from. None where that
/// direction cannot be told. Rules do not ask for the hop: what they say of one they say of all.
pub fn reverses<'t>(tables: &'t Tables, key: &FlowKey) -> impl Iterator<Item = FlowKey> + use<'t> {
    let key = *key;
    hops(tables, &key, key::dst(&key))
        .iter()
        .filter_map(move |hop| key::mirror(&key, Ingress::from(hop.place)))
}

/// Where an address of the key's tenant may be.
fn hops<'t>(tables: &'t Tables, key: &FlowKey, address: std::net::IpAddr) -> &'t [Hop] {
    tables.program.tenant(TenantId(key.tenant)).map_or(&[], |tenant| tables.locate(tenant, address))
}

/// The key as if its packet had come by the first of the hops that its source is behind: for what several hops bring in
/// parts.
pub fn by_any_hop(tables: &Tables, key: &FlowKey) -> FlowKey {
    let first = hops(tables, key, key::src(key)).first();
    first.map_or(*key, |hop| key::entering(key, Ingress::from(hop.place)))
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

/// Completes the key of a quoted packet: it came in where its source lives, by one of these ways.
pub fn place_sender<'t>(tables: &'t Tables, quoted: &FlowKey) -> impl Iterator<Item = FlowKey> + use<'t> {
    let quoted = *quoted;
    let hops = hops(tables, &quoted, key::src(&quoted));
    hops.iter().map(move |hop| key::entering(&quoted, Ingress::from(hop.place)))
}
