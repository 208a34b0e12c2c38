//! Security groups of OpenStack Networking (API v2, "Security groups" and "Security group rules"), which OVN carries out.
//!
//! A port lets through what any rule of any of its groups accepts, and replies to it; everything else is denied. So
//! rules have no order, and one that is left out opens nothing.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::{
    Action, Direction, Name, Position,
    read::{Report, quote, word},
    yaml::Node,
};

use super::{
    conditions::{Family, Range},
    json::{Object, boolean, digits, elements, items, number, prefix, text},
    names::{Names, native},
    native::{Far, ICMP, ICMPV6, NativePolicy, NativePorts, NativeRule, NativeService, SCTP, TCP, UDP},
};

/// Names of IP protocols that the API takes.
const PROTOCOLS: [(&str, u8); 21] = [
    ("ah", 51),
    ("dccp", 33),
    ("egp", 8),
    ("esp", 50),
    ("gre", 47),
    ("icmp", ICMP),
    ("icmpv6", ICMPV6),
    ("igmp", 2),
    ("ipip", 4),
    ("ipv6-encap", 41),
    ("ipv6-frag", 44),
    ("ipv6-icmp", ICMPV6),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("ipv6-route", 43),
    ("ospf", 89),
    ("pgm", 113),
    ("rsvp", 46),
    ("sctp", SCTP),
    ("tcp", TCP),
    ("udp", UDP),
];

/// Fields of a rule that narrow nothing, beside those that are read.
const RULE_FIELDS: [&str; 19] = [
    "id",
    "security_group_id",
    "direction",
    "ethertype",
    "protocol",
    "port_range_min",
    "port_range_max",
    "remote_ip_prefix",
    "remote_group_id",
    "normalized_cidr",
    "description",
    "project_id",
    "tenant_id",
    "created_at",
    "updated_at",
    "revision_number",
    "standard_attr_id",
    "tags",
    "belongs_to_default_sg",
];

struct Group<'n> {
    at: Position,
    id: &'n str,
    name: &'n str,
    project: Option<(Position, &'n str)>,
    is_stateful: bool,
    rules: Vec<Object<'n>>,
}

struct Port<'n> {
    at: Position,
    name: &'n str,
    groups: Vec<(Position, &'n str)>,
    addresses: Vec<IpNet>,
}

/// All that the files say; `None` for the ports when no file has a list of them.
#[derive(Default)]
struct Groups<'n> {
    groups: Vec<Group<'n>>,
    ports: Option<Vec<Port<'n>>>,
}

pub(super) fn policies(trees: &[Node], tenant: Option<Name>, report: &mut Report) -> Vec<NativePolicy> {
    let groups = Groups::read(trees, report);
    let labels = groups.labels();
    let (mut tenants, mut names, mut port_names) = (Names::default(), Names::default(), Names::default());
    let mut policies = Vec::new();
    for group in &groups.groups {
        let whose = match (&tenant, group.project) {
            (Some(tenant), _) => Some(tenant.clone()),
            (None, Some((at, project))) => tenants.give("", project, at, report),
            (None, None) => {
                let message = format!("nothing says whose security group {} is", quote(group.name));
                report.error(group.at, message).help("give `--tenant`");
                None
            }
        };
        let Some(whose) = whose else { continue };
        let Some(name) = names.give(&whose, &labels[group.id], group.at, report) else { continue };
        let ports = match &groups.ports {
            None => NativePorts::Label(label(&name)),
            Some(ports) => {
                let members = ports.iter().filter(|port| port.groups.iter().any(|(_, id)| *id == group.id));
                NativePorts::Named(
                    members.filter_map(|port| port_names.give(&whose, port.name, port.at, report)).collect(),
                )
            }
        };
        if matches!(&ports, NativePorts::Named(names) if names.is_empty()) {
            let message = format!("security group {} is of no port, and left out", quote(group.name));
            report.warning(group.at, message);
            continue;
        }
        let mut policy = NativePolicy {
            tenant: whose,
            name,
            of: (group.at, format!("security group {}", group.name)),
            ports,
            egress: vec![],
            ingress: vec![],
        };
        groups.fill(group, &labels, &mut policy, report);
        policies.push(policy);
    }
    policies
}

/// What a port has to be labelled with where the source does not say which ports are in the group.
fn label(group: &str) -> String {
    format!("security-group/{group}")
}

impl<'n> Groups<'n> {
    fn read(trees: &'n [Node], report: &mut Report) -> Self {
        let mut all = Self::default();
        let mut loose: Vec<(Option<&'n Node>, Object<'n>)> = Vec::new();
        let mut seen: BTreeMap<(&str, &str), Position> = BTreeMap::new();
        for tree in trees {
            let Some(root) =
                Object::of(tree, "`security_groups`, `security_group_rules` and `ports`", report)
            else {
                continue;
            };
            for (key, node) in root.members {
                match key.text.as_str() {
                    "security_groups" => {
                        for node in elements(node, "security groups", report) {
                            let Some(group) = Group::read(node, &mut seen, report) else { continue };
                            all.groups.push(group);
                        }
                    }
                    "security_group" => all.groups.extend(Group::read(node, &mut seen, report)),
                    "security_group_rules" => {
                        for node in elements(node, "security group rules", report) {
                            let Some(rule) = read_rule(node, &mut seen, report) else { continue };
                            let of = rule.required("security_group_id", "a security group rule", report);
                            loose.push((of, rule));
                        }
                    }
                    "ports" => {
                        let nodes = elements(node, "ports", report);
                        let ports = nodes
                            .iter()
                            .filter_map(|node| Port::read(node, &mut seen, report))
                            .collect::<Vec<_>>();
                        all.ports.get_or_insert_default().extend(ports);
                    }
                    _ => {
                        report.warning(key.at, format!("{} is not imported", quote(&key.text)));
                    }
                }
            }
        }
        for (of, rule) in loose {
            let Some(of) = of else { continue };
            let Some(id) = text(of, "the id of a security group", report) else { continue };
            match all.groups.iter_mut().find(|group| group.id == id) {
                Some(group) => group.rules.push(rule),
                None => no_group(of.at, id, report),
            }
        }
        for (at, id) in all.ports.iter().flatten().flat_map(|port| &port.groups) {
            if !all.groups.iter().any(|group| group.id == *id) {
                no_group(*at, id, report);
            }
        }
        all
    }

    /// What each group is called: its name, with the start of its id where others have the name too.
    fn labels(&self) -> BTreeMap<&'n str, String> {
        let mut counts: BTreeMap<Option<Name>, usize> = BTreeMap::new();
        for group in &self.groups {
            *counts.entry(native(group.name)).or_default() += 1;
        }
        let called = |group: &Group<'n>| match counts.get(&native(group.name)) {
            Some(1) => group.name.to_string(),
            _ => format!("{}-{}", group.name, group.id.chars().take(8).collect::<String>()),
        };
        self.groups.iter().map(|group| (group.id, called(group))).collect()
    }

    fn fill(
        &self,
        group: &Group,
        labels: &BTreeMap<&str, String>,
        policy: &mut NativePolicy,
        report: &mut Report,
    ) {
        if group.rules.is_empty() {
            report.warning(
                group.at,
                format!("security group {} has no rule: it accepts nothing", quote(group.name)),
            );
        }
        if !group.is_stateful {
            report
                .warning(
                    group.at,
                    format!("security group {} is stateless; its rules are left out", quote(group.name)),
                )
                .help("floodway keeps state, so they would let through replies that the group does not");
            return;
        }
        for rule in &group.rules {
            if let Some((direction, rule)) = self.rule(group, *rule, labels, report) {
                match direction {
                    Direction::Egress => policy.egress.push(rule),
                    Direction::Ingress => policy.ingress.push(rule),
                }
            }
        }
    }

    fn rule(
        &self,
        group: &Group,
        rule: Object,
        labels: &BTreeMap<&str, String>,
        report: &mut Report,
    ) -> Option<(Direction, NativeRule)> {
        const WHAT: &str = "a security group rule";
        let directions = [("ingress", Direction::Ingress), ("egress", Direction::Egress)];
        let direction = rule.required("direction", WHAT, report);
        let direction = direction.and_then(|node| word(node, "a direction", &directions, report));
        // The API's own default.
        let families = [("IPv4", Family::V4), ("IPv6", Family::V6)];
        let family = match rule.get("ethertype") {
            None => Some(Family::V4),
            Some(node) => word(node, "an ethertype", &families, report),
        };
        let (direction, family) = (direction?, family?);
        let id = rule.get("id").and_then(|node| text(node, "an id", report)).unwrap_or("without id");
        let unknown: Vec<String> = rule.unknown(&RULE_FIELDS).map(|key| quote(&key.text)).collect();
        if !unknown.is_empty() {
            let message =
                format!("rule {} has {}, which is not known; it is left out", quote(id), unknown.join(", "));
            report.warning(rule.at, message).help("what it does not mean must not be accepted");
            return None;
        }
        let services = services(rule, family, report)?;
        let far = self.far(rule, family, labels, report)?;
        let of = vec![(rule.at, format!("rule {id} of {}", group.name))];
        Some((direction, NativeRule { action: Action::Accept, far, services, log: false, of }))
    }

    /// The far side of a rule. Without one, the rule is left out.
    fn far(
        &self,
        rule: Object,
        family: Family,
        labels: &BTreeMap<&str, String>,
        report: &mut Report,
    ) -> Option<Vec<Far>> {
        match (rule.get("remote_ip_prefix"), rule.get("remote_group_id")) {
            (None, None) => Some(vec![Far::Net(family.all())]),
            (Some(node), None) => {
                let text = text(node, "a prefix", report)?;
                Some(vec![Far::Net(prefix(node.at, text, Some(family), report)?)])
            }
            (None, Some(node)) => self.members(node, family, labels, report),
            (Some(prefix), Some(group)) => {
                report
                    .error(group.at, "a rule has `remote_ip_prefix` or `remote_group_id`, not both")
                    .related(prefix.at, "the other");
                None
            }
        }
    }

    /// The addresses of a group's ports; where no ports are told, those that have its label.
    fn members(
        &self,
        node: &Node,
        family: Family,
        labels: &BTreeMap<&str, String>,
        report: &mut Report,
    ) -> Option<Vec<Far>> {
        let id = text(node, "the id of a security group", report)?;
        let Some(name) = labels.get(id) else {
            no_group(node.at, id, report);
            return None;
        };
        let Some(ports) = &self.ports else {
            report
                .warning(node.at, format!("which ports are in security group {} is not said", quote(name)))
                .help(format!(
                    "the rule means the tenant's ports with the label {}; what is behind a tunnel is not meant. Import \
                     the list of `ports` as well to mean their addresses",
                    label(&native(name)?)
                ));
            return Some(vec![Far::Label(label(&native(name)?))]);
        };
        let members = ports.iter().filter(|port| port.groups.iter().any(|(_, group)| *group == id));
        let nets: BTreeSet<IpNet> = members.flat_map(|port| &port.addresses).copied().collect();
        let nets: Vec<Far> =
            nets.into_iter().filter(|net| Family::of(*net) == family).map(Far::Net).collect();
        if nets.is_empty() {
            let message =
                format!("no port of security group {} has an {} address", quote(name), family.name());
            report.warning(node.at, message).help("the rule accepts nothing, and is left out");
            return None;
        }
        Some(nets)
    }
}

fn no_group(at: Position, id: &str, report: &mut Report) {
    report
        .error(at, format!("there is no security group {}", quote(id)))
        .help("import the file that holds it as well");
}

/// An object with an id that no other one of its kind has.
fn identified<'n>(
    node: &'n Node,
    kind: &'static str,
    seen: &mut BTreeMap<(&'static str, &'n str), Position>,
    report: &mut Report,
) -> Option<(Object<'n>, &'n str)> {
    let object = Object::of(node, kind, report)?;
    let id = text(object.required("id", kind, report)?, "an id", report)?;
    if let Some(first) = seen.insert((kind, id), object.at) {
        report
            .error(object.at, format!("{kind} {} is given twice", quote(id)))
            .related(first, "it is given here first");
        return None;
    }
    Some((object, id))
}

/// Rules of a group may stand without ids.
fn read_rule<'n>(
    node: &'n Node,
    seen: &mut BTreeMap<(&'static str, &'n str), Position>,
    report: &mut Report,
) -> Option<Object<'n>> {
    const KIND: &str = "a security group rule";
    let object = Object::of(node, KIND, report)?;
    match object.get("id") {
        Some(_) => identified(node, KIND, seen, report).map(|(object, _)| object),
        None => Some(object),
    }
}

impl<'n> Group<'n> {
    fn read(
        node: &'n Node,
        seen: &mut BTreeMap<(&'static str, &'n str), Position>,
        report: &mut Report,
    ) -> Option<Self> {
        let (object, id) = identified(node, "a security group", seen, report)?;
        let name =
            object.get("name").and_then(|node| text(node, "a name", report)).filter(|name| !name.is_empty());
        let project = object.get("project_id").or_else(|| object.get("tenant_id"));
        let project = project.and_then(|node| Some((node.at, text(node, "a project", report)?)));
        let is_stateful = match object.get("stateful") {
            None => true,
            Some(node) => boolean(node, "`stateful`", report)?,
        };
        let rules =
            object.get("security_group_rules").map_or(&[][..], |node| elements(node, "rules", report));
        let rules = rules.iter().filter_map(|node| read_rule(node, seen, report)).collect();
        Some(Self { at: object.at, id, name: name.unwrap_or(id), project, is_stateful, rules })
    }
}

impl<'n> Port<'n> {
    fn read(
        node: &'n Node,
        seen: &mut BTreeMap<(&'static str, &'n str), Position>,
        report: &mut Report,
    ) -> Option<Self> {
        let (object, id) = identified(node, "a port", seen, report)?;
        let name =
            object.get("name").and_then(|node| text(node, "a name", report)).filter(|name| !name.is_empty());
        let name = name.unwrap_or(id);
        let groups = match object.get("security_groups") {
            Some(Node { value: crate::yaml::Value::List(ids), .. }) if ids.is_empty() => vec![],
            Some(node) => items(node, "ids of security groups", report)?,
            None => vec![],
        };
        let mut addresses = Vec::new();
        for node in object.get("fixed_ips").map_or(&[][..], |node| elements(node, "fixed_ips", report)) {
            let fixed = Object::of(node, "a fixed IP", report)?;
            let node = fixed.required("ip_address", "a fixed IP", report)?;
            addresses.push(prefix(node.at, text(node, "an address", report)?, None, report)?);
        }
        if let Some(node) = object.get("allowed_address_pairs").filter(|node| !is_empty(node)) {
            report
                .warning(node.at, format!("the allowed address pairs of port {} are left out", quote(name)))
                .help("write further addresses of the host into its Tenant");
        }
        let secured = object
            .get("port_security_enabled")
            .map(|node| (node, boolean(node, "`port_security_enabled`", report)));
        if let Some((node, Some(false))) = secured {
            report
                .warning(
                    node.at,
                    format!("port {} has no port security: Neutron lets everything through", quote(name)),
                )
                .help("floodway's default denies it; write a TenantPolicy that accepts what is meant");
        }
        Some(Self { at: object.at, name, groups, addresses })
    }
}

fn is_empty(node: &Node) -> bool {
    matches!(&node.value, crate::yaml::Value::List(items) if items.is_empty())
}

/// The services of a rule, `None` inside for everything; without any, the rule is left out.
fn services(rule: Object, family: Family, report: &mut Report) -> Option<Option<Vec<NativeService>>> {
    let (min, max) = (rule.get("port_range_min"), rule.get("port_range_max"));
    let bound = |node: Option<&Node>, report: &mut Report| match node {
        None => Some(None),
        Some(node) => {
            number(node, "a number", 0..=u16::MAX.into(), report).map(|number| Some((node.at, number as u16)))
        }
    };
    let (min, max) = (bound(min, report)?, bound(max, report)?);
    let Some(protocol) = protocol(rule, family, report)? else {
        return match min.or(max) {
            None => Some(None),
            Some((at, _)) => {
                report.error(at, "a range of ports needs a `protocol`");
                None
            }
        };
    };
    match (protocol, min, max) {
        (_, None, None) => Some(Some(vec![NativeService::Whole(protocol)])),
        (ICMP | ICMPV6, Some((at, kind)), code) => icmp(protocol, (at, kind), code, report),
        (ICMP | ICMPV6, None, Some((at, _))) => {
            report.error(
                at,
                "a code of ICMP, which is `port_range_max`, needs a type, which is `port_range_min`",
            );
            None
        }
        (TCP | UDP | SCTP, Some((_, first)), Some((at, last))) if last < first => {
            report
                .error(at, format!("the range of ports ends at {last}, below its start {first}"))
                .help(format!("write {last} as `port_range_min` and {first} as `port_range_max`"));
            None
        }
        (TCP | UDP | SCTP, Some((_, 0)), Some((_, u16::MAX))) => {
            Some(Some(vec![NativeService::Whole(protocol)]))
        }
        (TCP | UDP | SCTP, Some((at, first)), Some((_, last))) => ports(protocol, at, first, last, report),
        (TCP | UDP | SCTP, Some((at, _)), None) | (TCP | UDP | SCTP, None, Some((at, _))) => {
            report.error(
                at,
                "a range of ports has `port_range_min` and `port_range_max`; one of them is not there",
            );
            None
        }
        (_, Some((at, _)), _) | (_, _, Some((at, _))) => {
            let message =
                format!("native rules cannot ask for ports of protocol {protocol}; the rule is left out");
            report.warning(at, message);
            None
        }
    }
}

fn icmp(
    protocol: u8,
    (at, kind): (Position, u16),
    code: Option<(Position, u16)>,
    report: &mut Report,
) -> Option<Option<Vec<NativeService>>> {
    let byte = |(at, number): (Position, u16), report: &mut Report| {
        let byte = u8::try_from(number).ok();
        if byte.is_none() {
            report.error(at, format!("{number} is no type or code of ICMP: these go up to 255"));
        }
        byte
    };
    let kind = byte((at, kind), report)?;
    let code = match code {
        None => None,
        Some(code) => Some(byte(code, report)?),
    };
    Some(Some(vec![NativeService::Icmp(protocol, kind, code)]))
}

fn ports(
    protocol: u8,
    at: Position,
    first: u16,
    last: u16,
    report: &mut Report,
) -> Option<Option<Vec<NativeService>>> {
    if first == 0 {
        report.warning(at, "native rules cannot ask for port 0; the rule accepts what is above it");
    }
    let range = Range { first: first.max(1), last };
    // From 0 to 0: nothing is left.
    (last > 0).then(|| Some(vec![NativeService::Ports(protocol, range)]))
}

/// `None` inside is every protocol.
fn protocol(rule: Object, family: Family, report: &mut Report) -> Option<Option<u8>> {
    let Some(node) = rule.get("protocol") else { return Some(None) };
    let name = text(node, "a protocol", report)?.to_lowercase();
    // The API takes 0 for any, too.
    if matches!(name.as_str(), "any" | "0") {
        return Some(None);
    }
    let named = PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let number = named.or_else(|| digits(&name).and_then(|number| u8::try_from(number).ok()));
    match (number, family) {
        // So does the API.
        (Some(ICMP), Family::V6) => Some(Some(ICMPV6)),
        (Some(number), _) => Some(Some(number)),
        (None, _) => {
            report
                .warning(node.at, format!("protocol {} is not known; the rule is left out", quote(&name)))
                .help("write the number of the IP protocol");
            None
        }
    }
}
