//! Network security groups of NVIDIA's Infra Controller (NICo), in the form of its REST API, or of its core
//! (NVIDIA/bare-metal-manager-core, `crates/api-model/src/network_security_group`).
//!
//! The lowest priority that matches decides; what matches nothing is denied. A card carries them out without state, but
//! for egress rules of a group with stateful egress that ask for a destination port of TCP or UDP over IPv4: replies to
//! these are accepted after all ingress rules (`crates/agent/templates/nvue_startup_etv.conf`). floodway lets through
//! replies to everything that it accepts. So a rule is taken over only as far as the source lets replies to it through, too.

use std::{cmp::Ordering, collections::BTreeMap};

use ipnet::IpNet;

use crate::{
    Direction, Name, Position,
    read::{Report, quote},
    yaml::{Node, Value},
};

use super::{
    UNFOLDED_RULES_MAX,
    conditions::{Conditions, Cut, Family, Parts, Range},
    first_match::{Outcome, StageRule, TooMuch},
    json::{Object, boolean, elements, number, prefix, range, text},
    names::Names,
    native::{ICMP, ICMPV6, NativePolicy, NativePorts, TCP, Translator, UDP},
};

const PRIORITY_MAX: u32 = 60_000;

/// Fields of a rule that are read, in both forms.
const RULE_FIELDS: [&str; 19] = [
    "id",
    "name",
    "direction",
    "ipv6",
    "protocol",
    "action",
    "priority",
    "sourcePrefix",
    "destinationPrefix",
    "sourcePortRange",
    "destinationPortRange",
    "src_prefix",
    "dst_prefix",
    "src_net",
    "dst_net",
    "src_port_start",
    "src_port_end",
    "dst_port_start",
    "dst_port_end",
];

struct Rule {
    at: Position,
    name: String,
    direction: Direction,
    family: Family,
    priority: u32,
    outcome: Outcome,
    when: Conditions,
    /// The card lets replies to it through.
    is_stateful: bool,
}

pub(super) fn policies(trees: &[Node], tenant: Option<Name>, report: &mut Report) -> Vec<NativePolicy> {
    let (mut tenants, mut names, mut policies) = (Names::default(), Names::default(), Vec::new());
    let (mut translator, mut seen) = (Translator::new(false), BTreeMap::new());
    for group in groups(trees, report) {
        let Some(id) = group.get("id").or_else(|| group.get("name")) else {
            report.error(group.at, "a network security group has no `id` and no `name`");
            continue;
        };
        let Some(id) = text(id, "an id", report) else { continue };
        if let Some(first) = seen.insert(id, group.at) {
            let message = format!("network security group {} is given twice", quote(id));
            report.error(group.at, message).related(first, "it is given here first");
            continue;
        }
        let whose = match (&tenant, whose(group, report)) {
            (Some(tenant), _) => Some(tenant.clone()),
            (None, Some((at, whose))) => tenants.give("", whose, at, report),
            (None, None) => {
                let message = format!("nothing says whose network security group {} is", quote(id));
                report.error(group.at, message).help("give `--tenant`");
                None
            }
        };
        let called = called(group, report).unwrap_or(id);
        let Some(whose) = whose else { continue };
        let Some(name) = names.give(&whose, called, group.at, report) else { continue };
        let Some(rules) = rules(group, report) else { continue };
        let lists = lists(&rules, &mut translator, report);
        let Ok([egress, ingress]) = lists else {
            report
                .error(group.at, format!("network security group {} has too many rules", quote(called)))
                .help(format!("at most {UNFOLDED_RULES_MAX} in a direction"));
            return vec![];
        };
        policies.push(NativePolicy {
            tenant: whose,
            of: (group.at, format!("network security group {called}")),
            ports: NativePorts::Label(format!("network-security-group/{name}")),
            name,
            egress,
            ingress,
        });
    }
    policies
}

/// A group, an array of groups, or an object that holds such an array.
fn groups<'n>(trees: &'n [Node], report: &mut Report) -> Vec<Object<'n>> {
    const WHAT: &str = "a network security group";
    let mut groups = Vec::new();
    for tree in trees {
        let nodes = match &tree.value {
            Value::List(nodes) => nodes.as_slice(),
            _ => {
                let Some(root) = Object::of(tree, WHAT, report) else { continue };
                match root.get("network_security_groups") {
                    Some(list) => elements(list, "network security groups", report),
                    None => std::slice::from_ref(tree),
                }
            }
        };
        groups.extend(nodes.iter().filter_map(|node| Object::of(node, WHAT, report)));
    }
    groups
}

fn whose<'n>(group: Object<'n>, report: &mut Report) -> Option<(Position, &'n str)> {
    let node = group.get("tenantId").or_else(|| group.get("tenant_organization_id"))?;
    Some((node.at, text(node, "a tenant", report)?))
}

/// Its name, which the core has in `metadata`.
fn called<'n>(group: Object<'n>, report: &mut Report) -> Option<&'n str> {
    let metadata = group.get("metadata").and_then(|node| Object::of(node, "metadata", report));
    let node = group.get("name").or_else(|| metadata.as_ref()?.get("name"))?;
    text(node, "a name", report).filter(|name| !name.is_empty())
}

/// The rules of a group, which the core has in `attributes`, in the order in which they are asked. `None` when one
/// cannot be read.
fn rules(group: Object, report: &mut Report) -> Option<Vec<Rule>> {
    let inner = match group.get("attributes") {
        Some(node) => Object::of(node, "attributes", report)?,
        None => group,
    };
    let is_stateful = match inner.get("statefulEgress").or_else(|| inner.get("stateful_egress")) {
        Some(node) => boolean(node, "whether egress is stateful", report)?,
        None => false,
    };
    let nodes = inner.get("rules").map_or(&[][..], |node| elements(node, "rules", report));
    let rules: Vec<Option<Rule>> = nodes.iter().map(|node| Rule::read(node, is_stateful, report)).collect();
    let mut rules: Vec<Rule> = rules.into_iter().collect::<Option<_>>()?;
    rules.sort_by(|a, b| a.order(b));
    for pair in rules.windows(2) {
        let [a, b] = pair else { continue };
        let key = |rule: &Rule| (rule.direction, rule.family, rule.priority);
        if key(a) == key(b) && a.outcome != b.outcome {
            report
                .warning(b.at, format!("rule {} has the priority of another one", b.name))
                .help("the one that denies is asked first; give them different priorities")
                .related(a.at, "the other");
        }
    }
    Some(rules)
}

/// Native rules for egress and for ingress.
fn lists(
    rules: &[Rule],
    translator: &mut Translator,
    report: &mut Report,
) -> Result<[Vec<super::native::NativeRule>; 2], TooMuch> {
    let mut lists = [vec![], vec![]];
    for (list, direction) in lists.iter_mut().zip([Direction::Egress, Direction::Ingress]) {
        for family in Family::BOTH {
            let of = |is_own: bool| {
                let its =
                    move |rule: &&Rule| rule.family == family && (rule.direction == direction) == is_own;
                rules.iter().filter(its)
            };
            let mut stage = Vec::new();
            for rule in of(true) {
                let of_rule = |rule: &Rule| Some((rule.at, rule.name.clone()));
                let mut outcome = rule.outcome;
                if outcome == Outcome::Permit {
                    match rule.unanswered(of(false), &mut translator.budget, report)? {
                        Some(unanswered) => stage.extend(unanswered.into_iter().map(|(by, when)| {
                            StageRule { of: of_rule(by), outcome: Outcome::Deny, log: false, when }
                        })),
                        // Left out, it could be accepted by a later rule that keeps state.
                        None => outcome = Outcome::Deny,
                    }
                }
                stage.push(StageRule { of: of_rule(rule), outcome, log: false, when: rule.when.clone() });
            }
            list.extend(translator.list(&[stage], family, report)?);
        }
    }
    Ok(lists)
}

impl Rule {
    fn read(node: &Node, has_stateful_egress: bool, report: &mut Report) -> Option<Self> {
        const WHAT: &str = "a rule";
        let rule = Object::of(node, WHAT, report)?;
        let directions = [("INGRESS", Direction::Ingress), ("EGRESS", Direction::Egress)];
        let direction = choice(rule.required("direction", WHAT, report)?, "a direction", &directions, report);
        let actions = [("PERMIT", Outcome::Permit), ("DENY", Outcome::Deny)];
        let outcome = choice(rule.required("action", WHAT, report)?, "an action", &actions, report);
        let protocols = [
            ("ANY", None),
            ("ICMP", Some(ICMP)),
            ("ICMP6", Some(ICMPV6)),
            ("TCP", Some(TCP)),
            ("UDP", Some(UDP)),
        ];
        let protocol = choice(rule.required("protocol", WHAT, report)?, "a protocol", &protocols, report);
        let priority = rule.required("priority", WHAT, report)?;
        let priority = number(priority, "a priority", 0..=PRIORITY_MAX, report);
        let src = net(rule, ["sourcePrefix", "src_prefix", "src_net"], report);
        let dst = net(rule, ["destinationPrefix", "dst_prefix", "dst_net"], report);
        let src_ports = ports(rule, "sourcePortRange", ["src_port_start", "src_port_end"], report);
        let dst_ports = ports(rule, "destinationPortRange", ["dst_port_start", "dst_port_end"], report);
        let (direction, outcome, protocol, priority) = (direction?, outcome?, protocol?, priority?);
        let (src, dst, src_ports, dst_ports) = (src?, dst?, src_ports?, dst_ports?);
        let family = Family::of(src);
        if Family::of(dst) != family {
            report.error(
                rule.at,
                format!("the source of a rule is {} and its destination is not", family.name()),
            );
            return None;
        }
        let has_ports = src_ports.is_some() || dst_ports.is_some();
        if has_ports && !matches!(protocol, Some(TCP | UDP)) {
            report.error(rule.at, "ports need the protocol TCP or UDP");
            return None;
        }
        let is_stateful = has_stateful_egress
            && direction == Direction::Egress
            && family == Family::V4
            && dst_ports.is_some()
            && src_ports.is_none();
        let (far, own) = match direction {
            Direction::Egress => (dst, src),
            Direction::Ingress => (src, dst),
        };
        let when = Conditions {
            far: Some(vec![far]),
            own: Some(vec![own]),
            protocols: protocol.map(|protocol| vec![protocol]),
            src_ports: src_ports.map(|range| vec![range]),
            dst_ports: dst_ports.map(|range| vec![range]),
            others: rule.unknown(&RULE_FIELDS).map(|key| key.text.clone()).collect(),
            ..Conditions::default()
        };
        let name = rule.get("name").or_else(|| rule.get("id")).and_then(|node| text(node, "a name", report));
        let name = name.unwrap_or("without name").into();
        let when = when.simplified(family);
        Some(Self { at: rule.at, name, direction, family, priority, outcome, when, is_stateful })
    }

    /// Lower priority first; the card leaves the order of equals open, and the one that denies comes first here.
    fn order(&self, other: &Self) -> Ordering {
        let key = |rule: &Self| (rule.direction, rule.family, rule.priority, rule.outcome, rule.at);
        key(self).cmp(&key(other))
    }

    /// What it accepts although the rules of the other direction deny the replies, and which of them do; it is said.
    /// `None` when they do not let the rest of the replies through: then it is to deny.
    fn unanswered<'r>(
        &self,
        others: impl Iterator<Item = &'r Self>,
        budget: &mut usize,
        report: &mut Report,
    ) -> Result<Option<Vec<(&'r Self, Conditions)>>, TooMuch> {
        const HELP: &str = "floodway keeps state, and would let them through";
        let replies = Conditions {
            src_ports: self.when.dst_ports.clone(),
            dst_ports: self.when.src_ports.clone(),
            ..self.when.clone()
        };
        let (mut unanswered, mut is_answered) = (Vec::new(), self.is_stateful);
        for other in others {
            *budget = budget.checked_sub(1).ok_or(TooMuch)?;
            if other.outcome == Outcome::Permit && covers(&other.when, &replies) {
                is_answered = true;
                break;
            }
            let both = other.when.and(&replies, budget).ok_or(TooMuch)?;
            if other.outcome == Outcome::Deny && !both.is_nothing() {
                // Of all requests that it may deny replies to: it asks for their source port, which no rule can.
                let requests = Conditions {
                    far: other.when.far.clone(),
                    protocols: other.when.protocols.clone(),
                    dst_ports: other.when.src_ports.clone(),
                    ..Conditions::default()
                };
                unanswered.push((other, requests.and(&self.when, budget).ok_or(TooMuch)?));
            }
        }
        if !is_answered {
            let message =
                format!("rule {}: replies to what it accepts are not let through; it denies", self.name);
            report.warning(self.at, message).help(HELP);
            return Ok(None);
        }
        if let Some((by, _)) = unanswered.first() {
            let message =
                format!("rule {}: replies to some of what it accepts are denied, and so is this", self.name);
            report.warning(self.at, message).help(HELP).related(by.at, "this rule denies them");
        }
        Ok(Some(unanswered))
    }
}

/// True when everything that fulfils `inner` fulfils `outer`.
fn covers(outer: &Conditions, inner: &Conditions) -> bool {
    fn is_in<T: Cut>(outer: &Parts<T>, inner: &Parts<T>) -> bool {
        match (outer, inner) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(outer), Some(inner)) => {
                inner.iter().all(|part| outer.iter().any(|whole| whole.cut(*part) == Some(*part)))
            }
        }
    }
    is_in(&outer.far, &inner.far)
        && is_in(&outer.own, &inner.own)
        && is_in(&outer.protocols, &inner.protocols)
        && is_in(&outer.src_ports, &inner.src_ports)
        && is_in(&outer.dst_ports, &inner.dst_ports)
        && outer.others.is_empty()
}

/// A word in any case, alone or after the name of its list: `tcp`, `NSG_RULE_PROTO_TCP`.
fn choice<T: Copy>(node: &Node, what: &str, words: &[(&str, T)], report: &mut Report) -> Option<T> {
    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let expected = format!("{what} ({})", all.join(", "));
    let given = text(node, &expected, report)?;
    let word = given.to_ascii_uppercase();
    let word = word.rsplit('_').next().unwrap_or_default();
    let found = words.iter().find(|(known, _)| *known == word).map(|(_, value)| *value);
    if found.is_none() {
        report.error(node.at, format!("expected {expected}, found {}", quote(given)));
    }
    found
}

/// A prefix, which the core may have in an object: `{"Prefix": "10.0.0.0/8"}`.
fn net(rule: Object, names: [&str; 3], report: &mut Report) -> Option<IpNet> {
    let Some(node) = names.into_iter().find_map(|name| rule.get(name)) else {
        report.error(rule.at, format!("a rule has no `{}`", names[0]));
        return None;
    };
    let node = match &node.value {
        Value::Map(_) => Object::of(node, "a prefix", report)?.required("Prefix", "a prefix", report)?,
        _ => node,
    };
    prefix(node.at, text(node, "a prefix", report)?, None, report)
}

/// A range in one field, or its ends in two. `None` inside is every port.
fn ports(rule: Object, whole: &str, ends: [&str; 2], report: &mut Report) -> Option<Option<Range>> {
    if let Some(node) = rule.get(whole) {
        return range(node.at, text(node, "a range of ports", report)?, report).map(Some);
    }
    let [first, last] = ends.map(|end| rule.get(end));
    match (first, last) {
        (None, None) => Some(None),
        (Some(first), Some(last)) => {
            let both = format!("{}-{}", text(first, "a port", report)?, text(last, "a port", report)?);
            range(first.at, &both, report).map(Some)
        }
        (Some(one), None) | (None, Some(one)) => {
            report.error(one.at, format!("a range of ports has `{}` and `{}`", ends[0], ends[1]));
            None
        }
    }
}
