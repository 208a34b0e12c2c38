//! Records of SAI, as the tests of DASH write them: attributes are an array of names and values in turn.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::{
    Direction, Position,
    read::{Report, quote, word},
    yaml::Node,
};

use super::{
    super::{
        conditions::{Family, Parts, Range},
        dash::{Addresses, Group, Rule},
        first_match::Outcome,
        json::digits,
    },
    Object, Reader, STAGE_MAX, elements, items, number, prefix, range, text,
};

const FAMILIES: [(&str, Family); 2] =
    [("SAI_IP_ADDR_FAMILY_IPV4", Family::V4), ("SAI_IP_ADDR_FAMILY_IPV6", Family::V6)];

/// The second is whether a denial ends the search.
const ACTIONS: [(&str, (Outcome, bool)); 4] = [
    ("SAI_DASH_ACL_RULE_ACTION_PERMIT", (Outcome::Permit, true)),
    ("SAI_DASH_ACL_RULE_ACTION_PERMIT_AND_CONTINUE", (Outcome::Continue, false)),
    ("SAI_DASH_ACL_RULE_ACTION_DENY", (Outcome::Deny, true)),
    ("SAI_DASH_ACL_RULE_ACTION_DENY_AND_CONTINUE", (Outcome::Deny, false)),
];

/// Values by the names of their attributes.
type Attributes<'n> = BTreeMap<&'n str, &'n Node>;

impl Reader<'_, '_> {
    pub(super) fn sai(&mut self, record: Object, kind: &Node) {
        let Some(kind_name) = text(kind, "a type of object", self.report) else { return };
        if let Some(operation) = record.get("op") {
            self.operation(operation, "create");
        }
        let short = kind_name.strip_prefix("SAI_OBJECT_TYPE_").unwrap_or(kind_name);
        if !["DASH_ACL_GROUP", "DASH_ACL_RULE", "ENI"].contains(&short) {
            return self.ignore(record.at, kind_name);
        }
        let name = record.required("name", "a record", self.report);
        let Some((at, name)) = name.and_then(|node| Some((node.at, text(node, "a name", self.report)?)))
        else {
            return;
        };
        let Some(attributes) = attributes(record, self.report) else { return };
        if !self.is_first(short, name, at) {
            return;
        }
        match short {
            "DASH_ACL_GROUP" => self.sai_group(at, name, &attributes),
            "DASH_ACL_RULE" => self.sai_rule(at, name, &attributes),
            _ => self.sai_eni(at, name, &attributes),
        }
    }

    fn sai_group(&mut self, at: Position, name: &str, attributes: &Attributes) {
        let Some(node) = attributes.get("SAI_DASH_ACL_GROUP_ATTR_IP_ADDR_FAMILY") else {
            self.report.error(at, "an ACL group has no `SAI_DASH_ACL_GROUP_ATTR_IP_ADDR_FAMILY`");
            return;
        };
        let family = word(node, "an address family", &FAMILIES, self.report);
        self.acls.groups.extend(family.map(|family| (name.to_string(), Group { at, family })));
    }

    fn sai_rule(&mut self, at: Position, name: &str, attributes: &Attributes) {
        const PREFIX: &str = "SAI_DASH_ACL_RULE_ATTR_";
        const KNOWN: [&str; 9] = [
            "PRIORITY",
            "ACTION",
            "DASH_ACL_GROUP_ID",
            "SIP",
            "DIP",
            "PROTOCOL",
            "SRC_PORT",
            "DST_PORT",
            "COUNTER_ID",
        ];
        let report = &mut *self.report;
        let get = |name: &str| attributes.get(format!("{PREFIX}{name}").as_str()).copied();
        let (Some(priority), Some(action), Some(group)) =
            (get("PRIORITY"), get("ACTION"), get("DASH_ACL_GROUP_ID"))
        else {
            report.error(
                at,
                "an ACL rule has a priority, an action and an ACL group; one of them is not there",
            );
            return;
        };
        let priority = number(priority, "a priority", 0..=u32::MAX, report);
        let action = word(action, "an action", &ACTIONS, report);
        let group = text(group, "an ACL group", report).map(|id| (group.at, referred(id).to_string()));
        let nets = |node: Option<&Node>, report: &mut Report| Addresses {
            nets: node.map(|node| counted_prefixes(node, report)),
            tags: None,
        };
        let (src, dst) = (nets(get("SIP"), report), nets(get("DIP"), report));
        let protocols = get("PROTOCOL").and_then(|node| counted_protocols(node, report));
        let src_ports = get("SRC_PORT").and_then(|node| counted_ranges(node, report));
        let dst_ports = get("DST_PORT").and_then(|node| counted_ranges(node, report));
        let is_known = |name: &&str| name.strip_prefix(PREFIX).is_some_and(|name| KNOWN.contains(&name));
        let others = attributes.keys().filter(|name| !is_known(name)).map(ToString::to_string).collect();
        if get("COUNTER_ID").is_some() {
            report.warning(at, "floodway counts each rule by itself; the counter is left out");
        }
        let (Some(priority), Some((outcome, is_last)), Some(group)) = (priority, action, group) else {
            return;
        };
        self.acls.rules.push(Rule {
            at,
            group,
            id: name.into(),
            priority,
            outcome,
            src,
            dst,
            protocols,
            src_ports,
            dst_ports,
            others,
        });
        if (outcome, is_last) == (Outcome::Deny, false) {
            self.warn_of_soft_deny(at);
        }
    }

    fn sai_eni(&mut self, at: Position, name: &str, attributes: &Attributes) {
        let eni = self.acls.enis.entry(name.into()).or_default();
        eni.at = Some(at);
        if let Some(node) = attributes.get("SAI_ENI_ATTR_VNET_ID") {
            let vnet = text(node, "a VNet", self.report);
            eni.vnet = vnet.map(|vnet| (node.at, referred(vnet).to_string()));
        }
        for (attribute, node) in attributes {
            let Some((direction, family, stage)) = stage_of(attribute) else { continue };
            let Some(group) = text(node, "an ACL group", self.report) else { continue };
            if !matches!(group, "" | "0" | "oid:0x0" | "SAI_NULL_OBJECT_ID") {
                self.bind(name, (direction, Some(family), stage), at, (node.at, referred(group).into()));
            }
        }
    }
}

fn attributes<'n>(record: Object<'n>, report: &mut Report) -> Option<Attributes<'n>> {
    let node = record.required("attributes", "a record", report)?;
    let list = elements(node, "attributes", report);
    let mut attributes = Attributes::new();
    for pair in list.chunks(2) {
        let [name, value] = pair else {
            report.error(node.at, "attributes are names and values in turn; the last one has no value");
            return None;
        };
        let name_text = text(name, "the name of an attribute", report)?;
        if attributes.insert(name_text, value).is_some() {
            report.error(name.at, format!("attribute {} is given twice", quote(name_text)));
            return None;
        }
    }
    Some(attributes)
}

/// `$name` is the object of that name.
fn referred(text: &str) -> &str {
    text.strip_prefix('$').unwrap_or(text)
}

/// `SAI_ENI_ATTR_INBOUND_V4_STAGE1_DASH_ACL_GROUP_ID`.
fn stage_of(attribute: &str) -> Option<(Direction, Family, u32)> {
    let rest = attribute.strip_prefix("SAI_ENI_ATTR_")?.strip_suffix("_DASH_ACL_GROUP_ID")?;
    let (direction, rest) = match rest.split_once('_')? {
        ("INBOUND", rest) => (Direction::Ingress, rest),
        ("OUTBOUND", rest) => (Direction::Egress, rest),
        _ => return None,
    };
    let (family, stage) = match rest.split_once("_STAGE")? {
        ("V4", stage) => (Family::V4, stage),
        ("V6", stage) => (Family::V6, stage),
        _ => return None,
    };
    digits(stage).filter(|stage| (1..=STAGE_MAX).contains(stage)).map(|stage| (direction, family, stage))
}

/// What follows `2:` when that many items do, as SAI writes lists.
fn without_count(text: &str) -> Option<&str> {
    let (count, rest) = text.split_once(':')?;
    let count = usize::try_from(digits(count)?).ok()?;
    (rest.split(',').count() == count).then_some(rest)
}

fn counted_prefixes(node: &Node, report: &mut Report) -> Vec<(Position, IpNet)> {
    let Some(list) = items(node, "prefixes", report) else { return vec![] };
    let is_prefix = |text: &str| text.parse::<IpNet>().is_ok() || text.parse::<std::net::IpAddr>().is_ok();
    let whole = text(node, "prefixes", &mut Report::new(&[])).unwrap_or_default();
    let counted = without_count(whole).filter(|rest| rest.split(',').all(|item| is_prefix(item.trim())));
    let list: Vec<(Position, &str)> = match counted {
        Some(_) if list.iter().all(|(_, item)| is_prefix(item)) => {
            report.error(node.at, format!("{} may be a list with or without its length", quote(whole)));
            return vec![];
        }
        Some(rest) => rest.split(',').map(|item| (node.at, item.trim())).collect(),
        None => list,
    };
    list.into_iter().filter_map(|(at, text)| Some((at, prefix(at, text, None, report)?))).collect()
}

fn counted_protocols(node: &Node, report: &mut Report) -> Parts<u8> {
    let list = text(node, "protocols", report)?;
    let list = without_count(list).unwrap_or(list);
    let protocols: Option<Vec<u8>> = list.split(',').map(|item| item.trim().parse().ok()).collect();
    if protocols.is_none() {
        report.error(node.at, format!("expected numbers of IP protocols, found {}", quote(list)));
    }
    protocols
}

/// `1:80,90` is one range, as SAI writes it; `80-90,443` are two.
fn counted_ranges(node: &Node, report: &mut Report) -> Parts<Range> {
    let list = text(node, "ports", report)?;
    let list = match list.strip_prefix("1:").and_then(|range| range.split_once(',')) {
        Some((first, last)) => vec![format!("{first}-{last}")],
        None => list.split(',').map(|item| item.trim().to_string()).collect(),
    };
    Some(list.iter().filter_map(|item| range(node.at, item, report)).collect())
}
