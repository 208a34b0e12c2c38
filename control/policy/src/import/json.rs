//! Foreign files: strict JSON, read to trees of nodes with positions, and the values that they hold.

use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde::de::IgnoredAny;

use crate::{
    Position, Source,
    limit::{FILE_BYTES_MAX, FILES_MAX, TOTAL_BYTES_MAX},
    read::{Report, quote, unexpected},
    yaml::{self, Key, Node, Value},
};

use super::conditions::{Family, Range};

/// The root of each file that can be read.
pub(super) fn trees(files: &[&Source], report: &mut Report) -> Vec<Node> {
    let bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
    if files.len() > FILES_MAX || bytes > TOTAL_BYTES_MAX {
        report.nowhere(format!(
            "there are {} files of {bytes} bytes; at most {FILES_MAX} of {TOTAL_BYTES_MAX} bytes are read",
            files.len()
        ));
        return vec![];
    }
    // There are fewer files than FILES_MAX.
    files.iter().enumerate().filter_map(|(index, file)| tree(index as u32, &file.bytes, report)).collect()
}

fn tree(source: u32, bytes: &[u8], report: &mut Report) -> Option<Node> {
    let start = Position { source, line: 1, column: 1 };
    let body = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.len() > FILE_BYTES_MAX {
        report.error(start, format!("the file has {} bytes; at most {FILE_BYTES_MAX} are read", bytes.len()));
        return None;
    }
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(body) {
        report.error(end_of_syntax(source, body, &error), format!("not JSON: {}", reason(&error)));
        return None;
    }
    // JSON is YAML, and its strings hold no tabs; YAML does not take them as indentation.
    let body: Vec<u8> = body.iter().map(|byte| if *byte == b'\t' { b' ' } else { *byte }).collect();
    yaml::documents(source, &body, report).into_iter().flatten().next()
}

/// Where the syntax breaks. The parser counts bytes; a column past the line's end is its end.
fn end_of_syntax(source: u32, body: &[u8], error: &serde_json::Error) -> Position {
    let line = error.line().max(1);
    let text = body.split(|byte| *byte == b'\n').nth(line - 1).unwrap_or_default();
    let before = &text[..error.column().saturating_sub(1).min(text.len())];
    let column = String::from_utf8_lossy(before).chars().count() + 1;
    Position {
        source,
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: u32::try_from(column).unwrap_or(u32::MAX),
    }
}

/// The message without the place, which is told apart.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(reason, _)| reason.into())
}

/// An object: its members in the order of the file.
#[derive(Clone, Copy)]
pub(super) struct Object<'n> {
    pub at: Position,
    pub members: &'n [(Key, Node)],
}

impl<'n> Object<'n> {
    pub fn of(node: &'n Node, what: &str, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Map(members) => Some(Self { at: node.at, members }),
            _ => unexpected(node, &format!("{what} as an object"), report),
        }
    }

    /// The value of a member that is there and not `null`.
    pub fn get(&self, name: &str) -> Option<&'n Node> {
        self.members
            .iter()
            .find(|(key, _)| key.text == name)
            .map(|(_, node)| node)
            .filter(|node| !node.is_null())
    }

    /// As [`Self::get`]; that it is not there is an error.
    pub fn required(&self, name: &str, what: &str, report: &mut Report) -> Option<&'n Node> {
        let node = self.get(name);
        if node.is_none() {
            report.error(self.at, format!("{what} has no `{name}`"));
        }
        node
    }

    /// The members that are none of `known` and say something.
    pub fn unknown(&self, known: &[&str]) -> impl Iterator<Item = &'n Key> {
        self.members
            .iter()
            .filter(|(key, value)| !known.contains(&key.text.as_str()) && !value.is_null())
            .map(|(key, _)| key)
    }
}

/// Elements of an array.
pub(super) fn elements<'n>(node: &'n Node, what: &str, report: &mut Report) -> &'n [Node] {
    match &node.value {
        Value::List(elements) => elements,
        _ => {
            unexpected::<()>(node, &format!("{what} as an array"), report);
            &[]
        }
    }
}

/// A string, or a number or boolean as it is written.
pub(super) fn text<'n>(node: &'n Node, expected: &str, report: &mut Report) -> Option<&'n str> {
    crate::read::text(node, expected, report)
}

/// A whole number, as a number or in a string.
pub(super) fn number(
    node: &Node,
    what: &str,
    range: RangeInclusive<u32>,
    report: &mut Report,
) -> Option<u32> {
    let expected = format!("{what} from {} to {}", range.start(), range.end());
    let text = text(node, &expected, report)?;
    let number = digits(text).filter(|number| range.contains(number));
    if number.is_none() {
        unexpected::<()>(node, &expected, report);
    }
    number
}

/// Plain decimal digits.
pub(super) fn digits(text: &str) -> Option<u32> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
}

pub(super) fn boolean(node: &Node, what: &str, report: &mut Report) -> Option<bool> {
    let expected = format!("{what} (true or false)");
    match text(node, &expected, report)? {
        "true" | "True" => Some(true),
        "false" | "False" => Some(false),
        _ => unexpected(node, &expected, report),
    }
}

/// A list in one string, separated by commas, or an array; each item with its place. An empty one is an error: whether it
/// means all or nothing is told apart by no format.
pub(super) fn items<'n>(node: &'n Node, what: &str, report: &mut Report) -> Option<Vec<(Position, &'n str)>> {
    let items: Vec<(Position, &str)> = match &node.value {
        Value::List(elements) => {
            let read = |element: &'n Node| Some((element.at, text(element, what, report)?.trim()));
            elements.iter().map(read).collect::<Option<_>>()?
        }
        _ => text(node, what, report)?.split(',').map(|item| (node.at, item.trim())).collect(),
    };
    if items.iter().all(|(_, item)| item.is_empty()) {
        report
            .error(node.at, format!("expected {what}, found an empty list"))
            .help("remove the field to mean all");
        return None;
    }
    Some(items)
}

/// A prefix of that family, or an address, which is a prefix of its own.
pub(super) fn prefix(at: Position, text: &str, family: Option<Family>, report: &mut Report) -> Option<IpNet> {
    let net = text
        .parse::<IpNet>()
        .ok()
        .or_else(|| text.parse().ok().map(|address: std::net::IpAddr| address.into()));
    let Some(net) = net else {
        report
            .error(at, format!("expected a prefix such as 10.0.0.0/24 or fd00::/64, found {}", quote(text)));
        return None;
    };
    if net != net.trunc() {
        report.error(at, format!("prefix {net} has host bits set")).help(format!(
            "write {}, or {} for this one address",
            net.trunc(),
            IpNet::from(net.addr())
        ));
        return None;
    }
    match family {
        Some(family) if family != Family::of(net) => {
            report.error(at, format!("prefix {net} is not {}", family.name()));
            None
        }
        _ => Some(net),
    }
}

/// A number such as `80`, or a range such as `80-90`.
pub(super) fn range(at: Position, text: &str, report: &mut Report) -> Option<Range> {
    let port = |text: &str| digits(text.trim()).and_then(|port| u16::try_from(port).ok());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Some(Range { first, last }),
        (Some(first), Some(last)) => {
            report
                .error(at, format!("the range of ports ends at {last}, below its start {first}"))
                .help(format!("write {last}-{first}"));
            None
        }
        _ => {
            report.error(
                at,
                format!("expected a port or a range such as 80-90, up to 65535, found {}", quote(text)),
            );
            None
        }
    }
}
