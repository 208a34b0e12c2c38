//! ACLs of OVN (ovn-nb(5), "ACL TABLE"). Those of a switch and of all port groups with a port on it decide about each
//! port of it: tier by tier, the highest priority that matches; `pass` goes to the next tier, as does what matches
//! nothing; what comes past the last tier is accepted, unless `default_acl_drop` is set.
//!
//! A `match` becomes alternatives ([`clauses`]), and each of these a rule. A part of it that is not understood makes an
//! alternative of an accepting ACL go, and one of a denying ACL wider, whether it is negated or not.

mod acl;
mod clauses;
mod expression;
mod tables;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use crate::{
    Direction, Name, Position,
    read::{Report, quote},
    yaml::Node,
};

use super::{
    UNFOLDED_RULES_MAX,
    conditions::{Conditions, Family},
    first_match::{Outcome, StageRule, TooMuch},
    json::{boolean, prefix},
    names::Names,
    native::{NativePolicy, NativePorts, NativeRule, Translator},
};

use acl::{AFTER_LB, Acl, Action, TIER_MAX};
use clauses::Packets;
use tables::{Row, Tables};

struct Port<'n> {
    at: Position,
    name: &'n str,
    /// A host is behind it: it is no router's, and not disabled.
    is_host: bool,
}

struct Switch<'n> {
    at: Position,
    name: &'n str,
    ports: BTreeSet<usize>,
    acls: BTreeSet<&'n str>,
}

/// All that the files say.
struct Database<'n> {
    ports: Vec<Port<'n>>,
    switches: Vec<Switch<'n>>,
    groups: Vec<Group<'n>>,
    /// Numbers of the groups that each port is in.
    groups_of: Vec<Vec<usize>>,
    /// By UUID; `None` is one that cannot be read, which has been said.
    acls: BTreeMap<&'n str, Option<Acl<'n>>>,
    /// Ports that a match names.
    named: BTreeSet<usize>,
    is_drop_default: bool,
}

struct Group<'n> {
    name: &'n str,
    ports: Rc<BTreeSet<usize>>,
    acls: BTreeSet<&'n str>,
}

pub(super) fn policies(trees: &[Node], tenant: Option<Name>, report: &mut Report) -> Vec<NativePolicy> {
    let mut translator = Translator::new(true);
    let tables = Tables::read(trees, report);
    let database = Database::read(&tables, &mut translator.budget, report);
    database.warn_of_unused(report);
    let (mut tenants, mut names, mut policies) = (Names::default(), Names::default(), Vec::new());
    let mut equals = BTreeSet::new();
    for switch in &database.switches {
        let Some(whose) = tenant.clone().or_else(|| tenants.give("", switch.name, switch.at, report)) else {
            continue;
        };
        let acls = database.acls_of(switch, report);
        if acls.is_empty() {
            report
                .warning(switch.at, format!("switch {} has no ACL", quote(switch.name)))
                .help("OVN lets everything through there; floodway's default denies it");
            continue;
        }
        warn_of_equals(&acls, &mut equals, report);
        let has_state = acls.iter().any(|acl| acl.action == Action::AllowRelated);
        if !has_state {
            let message =
                format!("no ACL of switch {} is allow-related, so it keeps no state", quote(switch.name));
            report.warning(switch.at, message).help(
                "what it accepts is denied: floodway keeps state, and would let through replies that it does not",
            );
        }
        let decider = Decider { switch, acls, has_state };
        for ports in database.alike(switch).into_values() {
            let ports_native =
                ports.iter().filter_map(|port| database.ports[*port].native(&whose, &mut names, report));
            let native: Vec<Name> = ports_native.collect();
            let (Some(first), Some(name)) = (ports.first(), native.first()) else { continue };
            let [egress, ingress] = [Direction::Egress, Direction::Ingress]
                .map(|direction| database.rules(&decider, *first, direction, &mut translator, report));
            let (Ok(egress), Ok(ingress)) = (egress, ingress) else {
                too_much(switch, report);
                return vec![];
            };
            policies.push(NativePolicy {
                tenant: whose.clone(),
                name: name.clone(),
                of: (switch.at, format!("switch {}", switch.name)),
                ports: NativePorts::Named(native),
                egress,
                ingress,
            });
        }
    }
    policies
}

/// OVN leaves the order of equal priorities open. Each ACL is told once, on however many switches it is.
fn warn_of_equals<'n>(acls: &[&Acl<'n>], told: &mut BTreeSet<&'n str>, report: &mut Report) {
    let mut first = BTreeMap::new();
    for acl in acls {
        let other = *first.entry((acl.stage, acl.direction, acl.priority)).or_insert(acl);
        if other.action.outcome(true) != acl.action.outcome(true) && told.insert(acl.uuid) {
            report
                .warning(acl.at, format!("{} has the priority of another one", acl.name))
                .help("the one that lets less through is asked first; give them different priorities")
                .related(other.at, "the other");
        }
    }
}

fn too_much(switch: &Switch, report: &mut Report) {
    let message = format!("the ACLs of switch {} unfold to too many rules", quote(switch.name));
    report.error(switch.at, message).help(format!(
        "at most {UNFOLDED_RULES_MAX} for a port, direction and family, and {} alternatives of a match",
        clauses::CLAUSES_MAX
    ));
}

impl Port<'_> {
    fn native(&self, tenant: &Name, names: &mut Names, report: &mut Report) -> Option<Name> {
        names.give(tenant, self.name, self.at, report)
    }
}

impl<'n> Database<'n> {
    fn read(tables: &Tables<'n>, budget: &mut usize, report: &mut Report) -> Self {
        let (mut ports, mut by_uuid, mut by_name) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut addresses: Vec<Vec<ipnet::IpNet>> = Vec::new();
        for row in tables.required("Logical_Switch_Port", report) {
            let (Some(uuid), Some(name)) = (row.uuid(report), row.name(report)) else { continue };
            by_uuid.insert(uuid, ports.len());
            by_name.insert(name, ports.len());
            addresses.push(addresses_of(row, report));
            ports.push(Port { at: row.at, name, is_host: is_host(row, name, report) });
        }
        let groups = groups(tables, &by_uuid, report);
        let mut address_sets = BTreeMap::new();
        for row in tables.optional("Address_Set") {
            let Some(name) = row.name(report) else { continue };
            let texts = row.texts("addresses", report);
            // Sets of MACs are none of addresses.
            let nets = texts.into_iter().filter(|(_, net)| net.parse::<wire::Mac>().is_err());
            let nets = nets.filter_map(|(at, net)| prefix(at, net, None, report)).collect();
            address_sets.insert(name, nets);
        }
        let of_group = |group: &Group<'n>| (group.name, group.ports.clone());
        let names = clauses::Names {
            ports: by_name,
            groups: groups.iter().map(of_group).collect(),
            address_sets,
            addresses,
        };
        let mut groups_of = vec![vec![]; ports.len()];
        for (index, group) in groups.iter().enumerate() {
            group.ports.iter().for_each(|port| groups_of[*port].push(index));
        }
        let mut database = Self {
            ports,
            groups_of,
            switches: switches(tables, &by_uuid, report),
            groups,
            acls: BTreeMap::new(),
            named: BTreeSet::new(),
            is_drop_default: is_drop_default(tables, report),
        };
        for row in tables.required("ACL", report) {
            let Some(uuid) = row.uuid(report) else { continue };
            let acl = Acl::read(row, uuid, &names, &mut database.named, budget, report);
            database.acls.insert(uuid, acl);
        }
        database
    }

    /// The ACLs that decide on a switch, in the order in which they are asked but for their stage.
    fn acls_of(&self, switch: &Switch<'n>, report: &mut Report) -> Vec<&Acl<'n>> {
        let groups: BTreeSet<usize> =
            switch.ports.iter().flat_map(|port| &self.groups_of[*port]).copied().collect();
        let groups = groups.into_iter().map(|group| &self.groups[group]);
        let uuids: BTreeSet<&str> =
            groups.flat_map(|group| &group.acls).chain(&switch.acls).copied().collect();
        for uuid in uuids.iter().filter(|uuid| !self.acls.contains_key(*uuid)) {
            let message = format!("ACL {} of switch {} is not there", quote(uuid), quote(switch.name));
            report.error(switch.at, message).help("import all of the table ACL");
        }
        let mut acls: Vec<&Acl> =
            uuids.into_iter().filter_map(|uuid| self.acls.get(uuid)?.as_ref()).collect();
        acls.sort_by_key(|acl| (Reverse(acl.priority), acl.action.outcome(true), acl.uuid));
        acls
    }

    /// Ports of hosts on a switch; those about which every ACL says the same are together.
    fn alike(&self, switch: &Switch) -> BTreeMap<(Vec<usize>, Option<usize>), Vec<usize>> {
        let mut alike: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for port in switch.ports.iter().filter(|port| self.ports[**port].is_host) {
            alike
                .entry((self.groups_of[*port].clone(), self.named.get(port).copied()))
                .or_default()
                .push(*port);
        }
        alike
    }

    /// The rules of a port in one direction.
    fn rules(
        &self,
        decider: &Decider,
        port: usize,
        direction: Direction,
        translator: &mut Translator,
        report: &mut Report,
    ) -> Result<Vec<NativeRule>, TooMuch> {
        let mut rules = Vec::new();
        for family in Family::BOTH {
            let packets = Packets { port, direction, family };
            let stages = decider.stages(packets, self.is_drop_default, &mut translator.budget)?;
            rules.extend(translator.list(&stages, family, report)?);
        }
        Ok(rules)
    }

    fn warn_of_unused(&self, report: &mut Report) {
        let of_switches = self.switches.iter().flat_map(|switch| &switch.acls);
        let used: BTreeSet<&str> =
            self.groups.iter().flat_map(|group| &group.acls).chain(of_switches).copied().collect();
        let unused = self.acls.iter().filter(|(uuid, _)| !used.contains(*uuid));
        for acl in unused.filter_map(|(_, acl)| acl.as_ref()) {
            report.warning(acl.at, format!("{} is of no switch and no port group, and left out", acl.name));
        }
    }
}

/// What decides about the ports of one switch.
struct Decider<'d, 'n> {
    switch: &'d Switch<'n>,
    acls: Vec<&'d Acl<'n>>,
    /// Replies pass by themselves: OVN tracks the connections of a switch that has one ACL that is allow-related.
    has_state: bool,
}

impl Decider<'_, '_> {
    fn stages(
        &self,
        packets: Packets,
        is_drop_default: bool,
        budget: &mut usize,
    ) -> Result<Vec<Vec<StageRule>>, TooMuch> {
        let mut stages = Vec::new();
        for stage in AFTER_LB..=TIER_MAX + 1 {
            let mut rules = Vec::new();
            let its = |acl: &&&Acl| acl.stage == stage && acl.direction == packets.direction;
            for acl in self.acls.iter().filter(its) {
                for mut when in acl.formula.clauses(false, packets, budget)? {
                    when.others.extend(acl.others.iter().cloned());
                    let of = Some((acl.at, acl.name.clone()));
                    let outcome = acl.action.outcome(self.has_state);
                    rules.push(StageRule { of, outcome, log: acl.log, when });
                }
            }
            // The default is asked after load balancing too, where there are ACLs.
            let is_default = stage == AFTER_LB && is_drop_default && self.acls.iter().any(|acl| its(&acl));
            rules.push(rest(None, if is_default { Outcome::Deny } else { Outcome::Continue }));
            stages.push(rules);
        }
        let is_accepted = self.has_state && !is_drop_default;
        let last = if is_accepted { Outcome::Permit } else { Outcome::Deny };
        let name = format!("what no ACL of switch {} decides", self.switch.name);
        stages.push(vec![rest(Some((self.switch.at, name)), last)]);
        Ok(stages)
    }
}

/// A rule for every packet.
fn rest(of: Option<(Position, String)>, outcome: Outcome) -> StageRule {
    StageRule { of, outcome, log: false, when: Conditions::default() }
}

/// Addresses of a port: in `addresses` after a MAC, or in `dynamic_addresses`.
fn addresses_of(row: &Row, report: &mut Report) -> Vec<ipnet::IpNet> {
    let mut texts = row.texts("addresses", report);
    texts.extend(row.texts("dynamic_addresses", report));
    let words = texts.into_iter().flat_map(|(_, text)| text.split_ascii_whitespace());
    words.filter_map(|word| word.parse().ok()).map(|address: std::net::IpAddr| address.into()).collect()
}

fn is_host(row: &Row, name: &str, report: &mut Report) -> bool {
    let is_enabled = row.get("enabled").and_then(|node| boolean(node, "`enabled`", report)).unwrap_or(true);
    if !is_enabled {
        report.warning(row.at, format!("port {} is disabled, and left out", quote(name)));
    }
    row.get("type").is_none() && is_enabled
}

fn groups<'n>(tables: &Tables<'n>, ports: &BTreeMap<&str, usize>, report: &mut Report) -> Vec<Group<'n>> {
    let mut groups = Vec::new();
    for row in tables.optional("Port_Group") {
        let Some(name) = row.name(report) else { continue };
        let acls = row.uuids("acls", report).into_iter().map(|(_, uuid)| uuid).collect();
        groups.push(Group { name, ports: members(row, ports, report).into(), acls });
    }
    groups
}

/// Sorted by name.
fn switches<'n>(tables: &Tables<'n>, ports: &BTreeMap<&str, usize>, report: &mut Report) -> Vec<Switch<'n>> {
    let mut switches: Vec<Switch> = Vec::new();
    for row in tables.required("Logical_Switch", report) {
        let Some(name) = row.name(report) else { continue };
        let acls = row.uuids("acls", report).into_iter().map(|(_, uuid)| uuid).collect();
        switches.push(Switch { at: row.at, name, ports: members(row, ports, report), acls });
    }
    let mut seen = BTreeMap::new();
    for switch in &switches {
        for port in &switch.ports {
            if let Some(first) = seen.insert(*port, switch.at) {
                let message = format!("a port of switch {} is of another one, too", quote(switch.name));
                report.error(switch.at, message).related(first, "the other");
            }
        }
    }
    switches.sort_by_key(|switch| (switch.name, switch.at));
    switches
}

fn members(row: &Row, ports: &BTreeMap<&str, usize>, report: &mut Report) -> BTreeSet<usize> {
    let mut members = BTreeSet::new();
    for (at, uuid) in row.uuids("ports", report) {
        match ports.get(uuid) {
            Some(port) => drop(members.insert(*port)),
            None => {
                report
                    .error(at, format!("there is no port {}", quote(uuid)))
                    .help("import all of Logical_Switch_Port");
            }
        }
    }
    members
}

fn is_drop_default(tables: &Tables, report: &mut Report) -> bool {
    let rows = tables.optional("NB_Global");
    let mut options =
        rows.iter().flat_map(|row| row.pairs("options", report)).collect::<Vec<_>>().into_iter();
    let found = options.find(|(key, _)| *key == "default_acl_drop");
    found.is_some_and(|(_, node)| boolean(node, "`default_acl_drop`", report) != Some(false))
}
