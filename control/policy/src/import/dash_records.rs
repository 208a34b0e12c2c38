//! Records of DASH: tables of SONiC's APP_DB, as `{"DASH_ACL_RULE_TABLE:group:rule": {...}}`, alone or in an array, and
//! records of SAI, as `{"type": "SAI_OBJECT_TYPE_DASH_ACL_RULE", "name": ..., "attributes": [...]}` in an array.

use std::collections::BTreeMap;

use crate::{
    Direction, Position,
    read::{Report, quote, word},
    suggest::did_you_mean,
    yaml::{Key, Node, Value},
};

use super::{
    conditions::{Family, Parts},
    dash::{Acls, Addresses, Eni, Group, Rule, Tag},
    first_match::Outcome,
    json::{Object, boolean, elements, items, number, prefix, range, text},
};

mod sai;

/// Stages of ACLs that an ENI has.
const STAGE_MAX: u32 = 5;

const ACTIONS: [(&str, bool); 5] =
    [("allow", true), ("deny", false), ("permit", true), ("ACTION_PERMIT", true), ("ACTION_DENY", false)];

const FAMILIES: [(&str, Family); 6] = [
    ("ipv4", Family::V4),
    ("ipv6", Family::V6),
    ("IP_VERSION_IPV4", Family::V4),
    ("IP_VERSION_IPV6", Family::V6),
    ("IPv4", Family::V4),
    ("IPv6", Family::V6),
];

pub(super) fn read(trees: &[Node], report: &mut Report) -> Acls {
    let mut reader =
        Reader { acls: Acls::default(), places: BTreeMap::new(), ignored: BTreeMap::new(), report };
    trees.iter().for_each(|tree| reader.file(tree));
    let Reader { acls, ignored, report, .. } = reader;
    for ((_, table), (at, count)) in ignored {
        let records = if count == 1 { "1 record".into() } else { format!("{count} records") };
        report.warning(at, format!("{records} of {} left out: only ACLs are imported", quote(&table)));
    }
    acls
}

struct Reader<'r, 's> {
    acls: Acls,
    /// Where each record stands, by its whole key.
    places: BTreeMap<(String, String), Position>,
    /// What is not read, by file and table: where it first is, and how often.
    ignored: BTreeMap<(u32, String), (Position, usize)>,
    report: &'r mut Report<'s>,
}

impl Reader<'_, '_> {
    fn file(&mut self, tree: &Node) {
        if let Value::List(records) = &tree.value {
            for record in records {
                let Some(object) = Object::of(record, "a record", self.report) else { continue };
                match object.get("type") {
                    Some(kind) => self.sai(object, kind),
                    None => self.tables(object),
                }
            }
        } else if let Some(object) = Object::of(tree, "the tables, or an array of records,", self.report) {
            self.tables(object);
        }
    }

    fn tables(&mut self, object: Object) {
        for (key, value) in object.members {
            match key.text.split_once([':', '|']) {
                Some((table, id)) => self.record(table, id, key, value),
                None if key.text == "OP" => self.operation(value, "SET"),
                None => match &value.value {
                    Value::Map(records) => {
                        records.iter().for_each(|(id, value)| self.record(&key.text, &id.text, id, value));
                    }
                    _ => self.not_a_table(key),
                },
            }
        }
    }

    fn not_a_table(&mut self, key: &Key) {
        let help = did_you_mean(&key.text, ["DASH_ACL_RULE_TABLE", "DASH_ACL_GROUP_TABLE", "OP"]);
        self.report.error(key.at, format!("{} is no table", quote(&key.text))).help_if(help);
    }

    fn operation(&mut self, node: &Node, expected: &str) {
        if text(node, "an operation", self.report).is_some_and(|operation| operation != expected) {
            self.report
                .error(node.at, format!("only the operation {expected} is read"))
                .help("import a dump of the whole state, not a list of changes");
        }
    }

    fn record(&mut self, table: &str, id: &str, key: &Key, value: &Node) {
        let name = table.strip_suffix("_TABLE").unwrap_or(table);
        let known =
            ["DASH_ACL_IN", "DASH_ACL_OUT", "DASH_ACL_GROUP", "DASH_ACL_RULE", "DASH_PREFIX_TAG", "DASH_ENI"];
        if !known.contains(&name) {
            return self.ignore(key.at, table);
        }
        let Some(object) = Object::of(value, "a record", self.report) else { return };
        if !self.is_first(name, id, key.at) {
            return;
        }
        match name {
            "DASH_ACL_IN" => self.binding(Direction::Ingress, id, key.at, object),
            "DASH_ACL_OUT" => self.binding(Direction::Egress, id, key.at, object),
            "DASH_ACL_GROUP" => self.group(id, key.at, object),
            "DASH_ACL_RULE" => self.rule(id, key.at, object),
            "DASH_PREFIX_TAG" => self.tag(id, key.at, object),
            _ => self.eni(id, key.at, object),
        }
    }

    fn ignore(&mut self, at: Position, table: &str) {
        self.ignored.entry((at.source, table.into())).or_insert((at, 0)).1 += 1;
    }

    /// False when the record was there before, which is reported.
    fn is_first(&mut self, table: &str, id: &str, at: Position) -> bool {
        let key = (table.to_string(), id.to_string());
        if let Some(first) = self.places.get(&key) {
            self.report
                .error(at, format!("{table} {} is given twice", quote(id)))
                .related(*first, "it is given here first");
            return false;
        }
        self.places.insert(key, at);
        true
    }

    /// `eni:stage` to a group, or to one of each family.
    fn binding(&mut self, direction: Direction, id: &str, at: Position, object: Object) {
        let parts = id.rsplit_once([':', '|']);
        let stage =
            parts.and_then(|(_, stage)| stage.parse().ok()).filter(|stage| (1..=STAGE_MAX).contains(stage));
        let (Some((eni, _)), Some(stage)) = (parts, stage) else {
            let message = format!("{} is no ENI and stage such as `eni0:1`, up to {STAGE_MAX}", quote(id));
            self.report.error(at, message);
            return;
        };
        let families = [
            ("acl_group_id", None),
            ("v4_acl_group_id", Some(Family::V4)),
            ("v6_acl_group_id", Some(Family::V6)),
        ];
        for key in object.unknown(&families.map(|(name, _)| name)) {
            self.unknown_field(key);
        }
        for (field, family) in families {
            let group =
                object.get(field).and_then(|node| Some((node.at, text(node, "an ACL group", self.report)?)));
            if let Some((group_at, group)) = group.filter(|(_, group)| !group.is_empty()) {
                self.bind(eni, (direction, family, stage), at, (group_at, group.into()));
            }
        }
    }

    fn bind(
        &mut self,
        eni: &str,
        stage: (Direction, Option<Family>, u32),
        at: Position,
        group: (Position, String),
    ) {
        let eni = self.acls.enis.entry(eni.into()).or_default();
        eni.at.get_or_insert(at);
        eni.stages.insert(stage, group);
    }

    fn unknown_field(&mut self, key: &Key) {
        self.report.warning(key.at, format!("field {} says nothing that is imported", quote(&key.text)));
    }

    fn group(&mut self, id: &str, at: Position, object: Object) {
        let version = object.required("ip_version", "an ACL group", self.report);
        let family = version.and_then(|node| word(node, "an IP version", &FAMILIES, self.report));
        object.unknown(&["ip_version", "guid"]).for_each(|key| self.unknown_field(key));
        // Without its family it is no group; that is an error, so nothing is written.
        self.acls.groups.extend(family.map(|family| (id.into(), Group { at, family })));
    }

    fn rule(&mut self, id: &str, at: Position, object: Object) {
        const WHAT: &str = "an ACL rule";
        const KNOWN: [&str; 12] = [
            "priority",
            "action",
            "terminating",
            "protocol",
            "protocols",
            "src_tag",
            "dst_tag",
            "src_addr",
            "dst_addr",
            "src_port",
            "dst_port",
            "guid",
        ];
        let Some((group, id)) = id.split_once([':', '|']) else {
            self.report.error(at, format!("{} is no group and rule such as `group0:rule0`", quote(id)));
            return;
        };
        let report = &mut *self.report;
        let priority = object.required("priority", WHAT, report);
        let priority = priority.and_then(|node| number(node, "a priority", 0..=u32::MAX, report));
        let action = object.required("action", WHAT, report);
        let is_permit = action.and_then(|node| word(node, "an action", &ACTIONS, report));
        let terminating = object.required("terminating", WHAT, report);
        let is_last = terminating.and_then(|node| boolean(node, "`terminating`", report));
        let src = addresses(&object, "src_addr", "src_tag", report);
        let dst = addresses(&object, "dst_addr", "dst_tag", report);
        let protocols = object.get("protocol").or_else(|| object.get("protocols"));
        let protocols = protocols.map(|node| read_protocols(node, report));
        let src_ports = object.get("src_port").map(|node| ranges(node, report));
        let dst_ports = object.get("dst_port").map(|node| ranges(node, report));
        let (Some(priority), Some(is_permit), Some(is_last)) = (priority, is_permit, is_last) else { return };
        self.acls.rules.push(Rule {
            at,
            group: (at, group.into()),
            id: id.into(),
            priority,
            outcome: outcome(is_permit, is_last),
            src,
            dst,
            protocols: protocols.flatten(),
            src_ports: src_ports.flatten(),
            dst_ports: dst_ports.flatten(),
            others: object.unknown(&KNOWN).map(|key| key.text.clone()).collect(),
        });
        if (is_permit, is_last) == (false, false) {
            self.warn_of_soft_deny(at);
        }
    }

    /// In the behavioural model no later stage takes a denial back.
    fn warn_of_soft_deny(&mut self, at: Position) {
        self.report
            .warning(at, "this rule denies and does not terminate; it is read as one that denies")
            .help("as in the behavioural model, no later stage lets through what it denied");
    }

    fn tag(&mut self, id: &str, at: Position, object: Object) {
        let version =
            object.get("ip_version").map(|node| word(node, "an IP version", &FAMILIES, self.report));
        object.unknown(&["ip_version", "prefix_list"]).for_each(|key| self.unknown_field(key));
        let nets = match object.get("prefix_list") {
            None => vec![],
            // A tag may be empty: it is nobody.
            Some(Node { value: Value::List(items), .. }) if items.is_empty() => vec![],
            Some(Node { value: Value::Quoted(text), .. }) if text.is_empty() => vec![],
            Some(node) => {
                let items = items(node, "prefixes", self.report).unwrap_or_default();
                items
                    .iter()
                    .filter_map(|(at, text)| prefix(*at, text, version.flatten(), self.report))
                    .collect()
            }
        };
        self.acls.tags.insert(id.into(), Tag { at, nets });
    }

    fn eni(&mut self, id: &str, at: Position, object: Object) {
        let vnet =
            object.get("vnet").and_then(|node| Some((node.at, text(node, "a VNet", self.report)?.into())));
        let eni: &mut Eni = self.acls.enis.entry(id.into()).or_default();
        eni.at = Some(at);
        eni.vnet = vnet;
    }
}

const fn outcome(is_permit: bool, is_last: bool) -> Outcome {
    match (is_permit, is_last) {
        (true, true) => Outcome::Permit,
        (true, false) => Outcome::Continue,
        (false, _) => Outcome::Deny,
    }
}

fn addresses(object: &Object, nets: &str, tags: &str, report: &mut Report) -> Addresses {
    let nets = object.get(nets).map(|node| {
        let items = items(node, "prefixes", report).unwrap_or_default();
        items.into_iter().filter_map(|(at, text)| Some((at, prefix(at, text, None, report)?))).collect()
    });
    let tags = object.get(tags).map(|node| {
        let items = items(node, "prefix tags", report).unwrap_or_default();
        items.into_iter().map(|(at, name)| (at, name.to_string())).collect()
    });
    Addresses { nets, tags }
}

fn read_protocols(node: &Node, report: &mut Report) -> Parts<u8> {
    let items = items(node, "protocols", report)?;
    let protocol = |(at, text): &(Position, &str)| {
        let number = text.parse().ok();
        if number.is_none() {
            report.error(*at, format!("expected the number of an IP protocol, found {}", quote(text)));
        }
        number
    };
    Some(items.iter().filter_map(protocol).collect())
}

fn ranges(node: &Node, report: &mut Report) -> Parts<super::conditions::Range> {
    let items = items(node, "ports", report)?;
    Some(items.iter().filter_map(|(at, text)| range(*at, text, report)).collect())
}
