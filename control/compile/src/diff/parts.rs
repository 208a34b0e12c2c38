//! Tenants, ports, hosts and rules that come, go or change. Things are told apart by their names, not by their ids;
//! rules by what they say, not by where they stand.

use std::collections::{BTreeMap, BTreeSet};

use program::{Hop, Program, Rule, RuleId, RuleListId, Tenant, limit};
use serde::{Deserialize, Serialize};

use super::{Capacity, shared::Shared};
use crate::{
    explain::{Side, peer_text, place_name, service_text, verdict_text},
    ids::ByKey,
};

/// What happens to a thing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It was not there.
    Added,
    /// It is not there any more.
    Removed,
    /// It is another.
    Changed,
}

/// Something that changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// What happens to it.
    pub change: Change,
    /// `vni`, `gateway`, `quota`, `roce`, `port`, `host`, `route`, `rule`, `order`, `device`, `uplink` or `vtep`.
    pub kind: String,
    /// Its name, address, or `file:line`.
    pub name: String,
    /// What it was; empty when it is added.
    pub before: String,
    /// What it becomes; empty when it is removed.
    pub after: String,
}

/// A tenant that changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TenantChange {
    /// Its name.
    pub tenant: String,
    /// What happens to it.
    pub change: Change,
    /// What of it.
    pub parts: Vec<Part>,
    /// What it takes of tables.
    #[serde(default)]
    pub capacity: Vec<Capacity>,
}

/// Facts of one kind, by name.
type Facts = BTreeMap<(&'static str, String), String>;

pub(super) fn fabric(old: &Program, new: &Program) -> Vec<Part> {
    compare(&fabric_facts(old), &fabric_facts(new))
}

fn fabric_facts(program: &Program) -> Facts {
    let mut facts = Facts::new();
    for device in &program.devices {
        facts.insert(("device", device.name.clone()), format!("{} mtu {}", device.device, device.mtu));
    }
    if let Some(uplink) = &program.uplink {
        let list = |values: Vec<String>| values.join(",");
        let addresses = list(uplink.addresses.iter().map(ToString::to_string).collect());
        let gateways = list(uplink.gateways.iter().map(ToString::to_string).collect());
        let text = format!("{addresses} gateways [{gateways}] dscp {:?}", uplink.dscp);
        facts.insert(("uplink", program.port_name(uplink.port).into()), text.to_lowercase());
    }
    for vtep in program.vteps.iter().flatten() {
        let mac = vtep.mac.map_or(String::new(), |mac| format!(" mac {mac}"));
        facts.insert(("vtep", vtep.name.clone()), format!("{} via {}{mac}", vtep.address, vtep.next_hop));
    }
    facts
}

/// Tenants that change, and how many had their rules compared.
pub(super) fn tenants(old: &Program, new: &Program, shared: &Shared) -> (Vec<TenantChange>, usize) {
    let (before, after) = (by_name(old), by_name(new));
    let all: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let compared = all.iter().filter(|name| !shared.has_tenant(name)).count();
    let change = |name: &str| {
        let places = [&before, &after].map(|tenants| tenants.get(name).copied());
        tenant([old, new], places, name, shared)
    };
    (all.into_iter().filter_map(change).collect(), compared)
}

fn by_name(program: &Program) -> ByKey<&str, usize> {
    let tenants = program.tenants.iter().enumerate();
    tenants.filter_map(|(index, tenant)| Some((tenant.as_ref()?.name.as_str(), index))).collect()
}

fn tenant(
    [old, new]: [&Program; 2],
    [before, after]: [Option<usize>; 2],
    name: &str,
    shared: &Shared,
) -> Option<TenantChange> {
    let change = match (before, after) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        _ => Change::Changed,
    };
    let texts_of = |program: &Program, tenant: &Tenant| match shared.has_tenant(name) {
        true => Lists::new(),
        false => rules(program, tenant),
    };
    let of = |program: &Program, index: Option<usize>| {
        let tenant = index.and_then(|index| program.tenants[index].as_ref());
        tenant.map(|tenant| (tenant_facts(program, tenant), texts_of(program, tenant))).unwrap_or_default()
    };
    let ((old_facts, old_rules), (new_facts, new_rules)) = (of(old, before), of(new, after));
    let mut parts = compare(&old_facts, &new_facts);
    compare_rules(&old_rules, &new_rules, &mut parts);
    let capacity = || capacity([(old, before), (new, after)]);
    (!parts.is_empty() || change != Change::Changed).then(|| TenantChange {
        tenant: name.into(),
        change,
        parts,
        capacity: capacity(),
    })
}

/// What a tenant takes of tables that are bounded for all, or for each.
fn capacity(sides: [(&Program, Option<usize>); 2]) -> Vec<Capacity> {
    let counts = sides.map(|(program, index)| {
        let Some(tenant) = index.and_then(|index| program.tenants[index].as_ref()) else { return [0; 5] };
        let ports = || program.ports.iter().flatten().filter(|port| port.tenant == tenant.id);
        let lists: BTreeSet<_> = ports().flat_map(|port| [port.egress, port.ingress]).collect();
        let ids = |list: RuleListId| program.rules.list(list).map(|(id, _)| id);
        let rules: BTreeSet<RuleId> = lists.into_iter().flat_map(ids).collect();
        let (hosts, routes) = (tenant.endpoints.len(), tenant.routes.len());
        [ports().count(), rules.len(), hosts, routes, tenant.flow_quota as usize]
    });
    let tables = [
        ("ports", Some(policy::limit::TENANT_PORTS_MAX)),
        ("rules", Some(limit::RULES)),
        ("hosts", None),
        ("routes", None),
        ("flow quota", Some(policy::FLOW_QUOTA_MAX as usize)),
    ];
    let row = |(index, (table, bound)): (usize, (&str, Option<usize>))| Capacity {
        table: table.into(),
        before: counts[0][index],
        after: counts[1][index],
        bound,
    };
    tables.into_iter().enumerate().map(row).collect()
}

fn tenant_facts(program: &Program, tenant: &Tenant) -> Facts {
    let mut facts = Facts::new();
    facts.insert(("vni", String::new()), tenant.vni.to_string());
    let quota = format!(
        "{} flows, {} fragmented datagrams, {} queue pairs",
        tenant.flow_quota, tenant.fragment_quota, tenant.queue_pair_quota
    );
    facts.insert(("quota", String::new()), quota);
    let program::Roce { learn, unknown_qp, order } = tenant.roce;
    facts.insert(
        ("roce", String::new()),
        format!("learn {learn:?}, unknown queue pairs {unknown_qp:?}, order {order:?}"),
    );
    let program::Connections { mid_stream, windows } = tenant.connections;
    facts.insert(("connections", String::new()), format!("mid-stream {mid_stream:?}, windows {windows:?}"));
    let gateways: Vec<String> = tenant.gateways.iter().map(ToString::to_string).collect();
    facts.insert(("gateway", String::new()), format!("{} mac {}", gateways.join(","), tenant.gateway_mac));
    for port in program.ports.iter().flatten().filter(|port| port.tenant == tenant.id) {
        let text = format!("mac {} mtu {}", port.mac, port.mtu);
        facts.insert(("port", program.port_name(port.id).into()), text);
    }
    for host in &tenant.endpoints {
        let text = format!("at {}", hops_text(program, &[host.hop]));
        facts.insert(("host", host.address.to_string()), text);
    }
    for route in &tenant.routes {
        facts.insert(("route", route.prefix.to_string()), format!("at {}", hops_text(program, &route.hops)));
    }
    facts
}

/// Each hop's place and MAC.
pub(super) fn hops_text(program: &Program, hops: &[Hop]) -> String {
    let text = |hop: &Hop| format!("{} mac {}", place_name(program, hop.place), hop.mac);
    hops.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn compare(old: &Facts, new: &Facts) -> Vec<Part> {
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let part = |key: &(&'static str, String)| {
        let (before, after) = (old.get(key), new.get(key));
        let change = match (before, after) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            (before, after) if before == after => return None,
            _ => Change::Changed,
        };
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let (kind, name) = (key.0.to_owned(), key.1.clone());
        Some(Part { change, kind, name, before: text(before), after: text(after) })
    };
    keys.into_iter().filter_map(part).collect()
}

/// The lists of one port and side: where each rule stands, and what it says.
type Lists = BTreeMap<(String, Side), Vec<(String, String)>>;

fn rules(program: &Program, tenant: &Tenant) -> Lists {
    let mut lists = Lists::new();
    for port in program.ports.iter().flatten().filter(|port| port.tenant == tenant.id) {
        for (side, list) in [(Side::Egress, port.egress), (Side::Ingress, port.ingress)] {
            lists.insert((program.port_name(port.id).into(), side), texts(program, list, side));
        }
    }
    lists
}

fn texts(program: &Program, list: RuleListId, side: Side) -> Vec<(String, String)> {
    let text = |(id, rule): (RuleId, Option<&Rule>)| Some((program.origin(id), rule_text(rule?, side)));
    program.rules.list(list).filter_map(text).collect()
}

fn rule_text(rule: &Rule, side: Side) -> String {
    let services: Vec<String> = rule.services.iter().copied().map(service_text).collect();
    let services = if services.is_empty() { "any".into() } else { services.join(",") };
    let peers = match &rule.peers {
        None => "any".into(),
        Some(peers) if peers.is_empty() => "nobody".into(),
        Some(peers) => peers.iter().map(peer_text).collect::<Vec<_>>().join(", "),
    };
    let word = if side == Side::Egress { "to" } else { "from" };
    let log = if rule.log { " log" } else { "" };
    format!("{} {} {services} {word} {peers}{log}", side.name(), verdict_text(rule.verdict))
}

/// A rule that many ports ask is one change. Where only the order differs, the list is named.
fn compare_rules(old: &Lists, new: &Lists, parts: &mut Vec<Part>) {
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let (mut added, mut removed) = (BTreeMap::new(), BTreeMap::new());
    let mut orders = Vec::new();
    for key in keys {
        let of = |lists: &Lists| lists.get(key).cloned().unwrap_or_default();
        let (before, after) = (of(old), of(new));
        let (gone, come) = (missing(&before, &after), missing(&after, &before));
        let says = |list: &[(String, String)]| list.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>();
        if gone.is_empty() && come.is_empty() && says(&before) != says(&after) {
            orders.push(Part {
                change: Change::Changed,
                kind: "order".into(),
                name: format!("{} of {}", key.1.name(), key.0),
                before: String::new(),
                after: String::new(),
            });
        }
        removed.extend(gone);
        added.extend(come);
    }
    let part = |change, name: String, before: String, after: String| Part {
        change,
        kind: "rule".into(),
        name,
        before,
        after,
    };
    parts.extend(removed.into_iter().map(|(at, text)| part(Change::Removed, at, text, String::new())));
    parts.extend(added.into_iter().map(|(at, text)| part(Change::Added, at, String::new(), text)));
    parts.extend(orders);
}

/// Rules of `list` that `other` does not have as often.
fn missing(list: &[(String, String)], other: &[(String, String)]) -> Vec<(String, String)> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    other.iter().for_each(|(_, text)| *left.entry(text).or_default() += 1);
    let is_missing = |(_, text): &&(String, String)| match left.get_mut(text.as_str()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    list.iter().filter(is_missing).cloned().collect()
}
