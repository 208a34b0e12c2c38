//! Tables of OVSDB as JSON, as `ovn-nbctl --format=json list TABLE` and `ovsdb-client dump` print them: an object with
//! `headings` and `data`. Cells are atoms, `["uuid", X]`, `["set", [...]]` or `["map", [[K, V], ...]]` (RFC 7047, 5.1).

use std::collections::BTreeMap;

use crate::{
    Position,
    import::json::{Object, elements, text},
    read::{Report, quote},
    yaml::{Node, Value},
};

/// Tables that are read, and columns that tell each from those below it where no `caption` does.
const TABLES: [(&str, &[&str]); 6] = [
    ("ACL", &["match", "direction", "log"]),
    ("Logical_Switch_Port", &["addresses", "port_security"]),
    ("Logical_Switch", &["acls", "ports", "qos_rules"]),
    ("Port_Group", &["acls", "ports"]),
    ("Address_Set", &["addresses"]),
    ("NB_Global", &["nb_cfg"]),
];

/// A row.
pub(super) struct Row<'n> {
    pub at: Position,
    cells: BTreeMap<&'n str, &'n Node>,
}

/// Everything that the files hold.
#[derive(Default)]
pub(super) struct Tables<'n> {
    rows: BTreeMap<&'static str, Vec<Row<'n>>>,
    /// Table and UUID of each row.
    seen: BTreeMap<(&'static str, &'n str), Position>,
    /// Something cannot be read: what is missing may be in it.
    is_broken: bool,
}

impl<'n> Tables<'n> {
    /// Each file is a table, or an array of tables.
    pub fn read(trees: &'n [Node], report: &mut Report) -> Self {
        let mut tables = Self::default();
        for tree in trees {
            match &tree.value {
                Value::List(several) => several.iter().for_each(|one| tables.read_table(one, report)),
                _ => tables.read_table(tree, report),
            }
        }
        tables.is_broken = report.errors > 0;
        tables
    }

    fn read_table(&mut self, node: &'n Node, report: &mut Report) {
        const WHAT: &str = "a table with `headings` and `data`";
        let Some(table) = Object::of(node, WHAT, report) else { return };
        let (headings, data) =
            (table.required("headings", WHAT, report), table.required("data", WHAT, report));
        let (Some(headings), Some(data)) = (headings, data) else { return };
        let headings: Option<Vec<&str>> = elements(headings, "headings", report)
            .iter()
            .map(|heading| text(heading, "the name of a column", report))
            .collect();
        let Some(headings) = headings else { return };
        let caption = table.get("caption").and_then(|node| text(node, "a caption", report));
        let caption = caption.map(|caption| caption.strip_suffix(" table").unwrap_or(caption));
        let is_it = |(name, columns): &&(&'static str, &[&str])| match caption {
            Some(caption) => caption == *name,
            None => columns.iter().all(|column| headings.contains(column)),
        };
        let Some((name, _)) = TABLES.iter().find(is_it) else {
            let what = caption.map_or("this table".into(), |caption| format!("table {}", quote(caption)));
            report.warning(node.at, format!("{what} says nothing that is imported"));
            return;
        };
        let rows = self.rows.entry(name).or_default();
        for row in elements(data, "rows", report) {
            let cells = elements(row, "a row", report);
            if cells.len() != headings.len() {
                let message =
                    format!("a row of {name} has {} cells for {} columns", cells.len(), headings.len());
                report.error(row.at, message);
                continue;
            }
            let cells: BTreeMap<&str, &Node> = headings.iter().copied().zip(cells).collect();
            let uuid = cells.get("_uuid").and_then(|node| quoted(tagged(node, "uuid")?));
            if let Some(first) = uuid.and_then(|uuid| self.seen.insert((name, uuid), row.at)) {
                report
                    .error(row.at, format!("a row of {name} is given twice"))
                    .related(first, "it is given here first");
                continue;
            }
            rows.push(Row { at: row.at, cells });
        }
    }

    /// The rows of a table; that it is not there is an error.
    pub fn required(&self, name: &'static str, report: &mut Report) -> &[Row<'n>] {
        if !self.is_broken && !self.rows.contains_key(name) {
            report.nowhere(format!(
                "there is no table {name}: add what `ovn-nbctl --format=json list {name}` prints"
            ));
        }
        self.optional(name)
    }

    /// The rows of a table, if it is there.
    pub fn optional(&self, name: &str) -> &[Row<'n>] {
        self.rows.get(name).map_or(&[], Vec::as_slice)
    }
}

impl<'n> Row<'n> {
    /// The columns whose cells are there and not empty.
    pub fn columns(&self) -> impl Iterator<Item = (&'n str, &'n Node)> {
        let is_empty = |node: &Node| match (tagged(node, "set"), tagged(node, "map"), &node.value) {
            (Some(Node { value: Value::List(items), .. }), ..) => items.is_empty(),
            (_, Some(Node { value: Value::List(items), .. }), _) => items.is_empty(),
            (.., Value::Quoted(text)) => text.is_empty(),
            (.., Value::Null) => true,
            _ => false,
        };
        self.cells.iter().map(|(name, node)| (*name, *node)).filter(move |(_, node)| !is_empty(node))
    }

    /// A cell that is not empty.
    pub fn get(&self, column: &str) -> Option<&'n Node> {
        self.columns().find(|(name, _)| *name == column).map(|(_, node)| node)
    }

    /// The only atom of a cell that must be there.
    pub fn required(&self, column: &str, report: &mut Report) -> Option<&'n Node> {
        let node = self.get(column);
        if node.is_none() {
            report.error(self.at, format!("this row has no `{column}`"));
        }
        node
    }

    /// Its `_uuid`.
    pub fn uuid(&self, report: &mut Report) -> Option<&'n str> {
        uuid(self.required("_uuid", report)?, report)
    }

    /// Its `name`, or its `_uuid` where it has none.
    pub fn name(&self, report: &mut Report) -> Option<&'n str> {
        match self.get("name") {
            Some(node) => text(atoms(node).first()?, "a name", report),
            None => self.uuid(report),
        }
    }

    /// The UUIDs of a cell that may be empty, each with its place.
    pub fn uuids(&self, column: &str, report: &mut Report) -> Vec<(Position, &'n str)> {
        let nodes = self.get(column).map_or(vec![], atoms);
        nodes.into_iter().filter_map(|node| Some((node.at, uuid(node, report)?))).collect()
    }

    /// The texts of a cell that may be empty, each with its place.
    pub fn texts(&self, column: &str, report: &mut Report) -> Vec<(Position, &'n str)> {
        let nodes = self.get(column).map_or(vec![], atoms);
        nodes.into_iter().filter_map(|node| Some((node.at, text(node, "a text", report)?))).collect()
    }

    /// The pairs of a map that may be empty.
    pub fn pairs(&self, column: &str, report: &mut Report) -> Vec<(&'n str, &'n Node)> {
        let Some(pairs) = self.get(column) else { return vec![] };
        let Some(pairs) = tagged(pairs, "map") else {
            report.error(pairs.at, format!("expected `{column}` as [\"map\", [[key, value], ...]]"));
            return vec![];
        };
        let nodes = elements(pairs, "pairs", report).iter();
        let pair = |node: &'n Node| match elements(node, "a pair", report) {
            [key, value] => Some((text(key, "a key", report)?, value)),
            _ => None,
        };
        nodes.filter_map(pair).collect()
    }
}

fn quoted(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Quoted(text) => Some(text),
        _ => None,
    }
}

/// What follows the tag in an array of two.
fn tagged<'n>(node: &'n Node, tag: &str) -> Option<&'n Node> {
    match &node.value {
        Value::List(items) => match items.as_slice() {
            [Node { value: Value::Quoted(first), .. }, second] if first == tag => Some(second),
            _ => None,
        },
        _ => None,
    }
}

/// The elements of a set; one element stands without it.
fn atoms(node: &Node) -> Vec<&Node> {
    match tagged(node, "set") {
        Some(Node { value: Value::List(items), .. }) => items.iter().collect(),
        _ => vec![node],
    }
}

fn uuid<'n>(node: &'n Node, report: &mut Report) -> Option<&'n str> {
    let found = tagged(node, "uuid").and_then(|node| text(node, "a UUID", report));
    if found.is_none() {
        report.error(node.at, "expected [\"uuid\", \"...\"]");
    }
    found
}
