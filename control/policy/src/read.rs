//! Nodes to typed values. Reading goes on after an error, so that one run tells everything that is wrong.
//!
//! A type says how it is read with [`Read`]; a map is read through [`Fields`], which knows the names that were asked
//! for and reports the others.

use std::{collections::BTreeMap, net::IpAddr, ops::RangeInclusive, str::FromStr, sync::Arc};

use arrayvec::ArrayVec;
use ipnet::IpNet;
use wire::Mac;

use crate::{
    Diagnostic, Diagnostics, Place, Position, Severity, Spanned,
    suggest::{did_you_mean, nearest},
    yaml::{Key, Node, Value},
};

/// Collects diagnostics and turns positions into file names.
pub(crate) struct Report<'a> {
    sources: &'a [Arc<str>],
    pub diagnostics: Diagnostics,
    /// Errors so far, for telling whether a part was read without one.
    pub errors: usize,
}

/// The diagnostic that is being written; it is handed in when dropped.
pub(crate) struct Entry<'a, 's> {
    report: &'a mut Report<'s>,
    diagnostic: Option<Diagnostic>,
}

impl<'a> Report<'a> {
    pub fn new(sources: &'a [Arc<str>]) -> Self {
        Self { sources, diagnostics: Diagnostics::default(), errors: 0 }
    }

    pub fn error(&mut self, at: Position, message: impl Into<String>) -> Entry<'_, 'a> {
        self.errors += 1;
        self.entry(Severity::Error, at, message)
    }

    pub fn warning(&mut self, at: Position, message: impl Into<String>) -> Entry<'_, 'a> {
        self.entry(Severity::Warning, at, message)
    }

    /// An error of which no file is to blame.
    pub fn nowhere(&mut self, message: impl Into<String>) {
        self.errors += 1;
        self.diagnostics.push(Diagnostic::new(Severity::Error, Place::NOWHERE, message));
    }

    /// Takes what some part of the work says, and gives it out as well.
    pub fn part(&mut self, work: impl FnOnce(&mut Report)) -> Diagnostics {
        let mut part = Report::new(self.sources);
        work(&mut part);
        self.errors += part.errors;
        part.diagnostics.list.iter().cloned().for_each(|diagnostic| self.diagnostics.push(diagnostic));
        part.diagnostics
    }

    fn entry(&mut self, severity: Severity, at: Position, message: impl Into<String>) -> Entry<'_, 'a> {
        let diagnostic = Diagnostic::new(severity, place(self.sources, at), message);
        Entry { report: self, diagnostic: Some(diagnostic) }
    }
}

impl Entry<'_, '_> {
    pub fn help(self, help: impl Into<String>) -> Self {
        self.edit(|diagnostic| diagnostic.with_help(help))
    }

    /// As [`Self::help`] when there is something to say.
    pub fn help_if(self, help: Option<String>) -> Self {
        match help {
            Some(help) => self.help(help),
            None => self,
        }
    }

    pub fn related(self, at: Position, message: impl Into<String>) -> Self {
        let sources = self.report.sources;
        self.edit(|diagnostic| diagnostic.with_related(place(sources, at), message))
    }

    fn edit(mut self, change: impl FnOnce(Diagnostic) -> Diagnostic) -> Self {
        self.diagnostic = self.diagnostic.take().map(change);
        self
    }
}

impl Drop for Entry<'_, '_> {
    fn drop(&mut self) {
        if let Some(diagnostic) = self.diagnostic.take() {
            self.report.diagnostics.push(diagnostic);
        }
    }
}

fn place(sources: &[Arc<str>], at: Position) -> Place<'_> {
    let source = sources.get(at.source as usize).map_or("", |name| name);
    Place { source, line: at.line, column: at.column }
}

/// A type that can be read from a node. `None` means that the reason has been reported.
pub(crate) trait Read: Sized {
    fn read(node: &Node, report: &mut Report) -> Option<Self>;
}

/// The fields of one map, by name.
pub(crate) struct Fields<'n, 'r, 's> {
    what: &'static str,
    at: Position,
    entries: &'n [(Key, Node)],
    asked: ArrayVec<&'static str, FIELDS_MAX>,
    /// Reported by [`Self::misplaced`].
    misplaced: Vec<&'static str>,
    /// Required, and not there.
    missing: Vec<&'static str>,
    errors_before: usize,
    pub report: &'r mut Report<'s>,
}

/// Names that are asked for in one map, at most: it is read by code that asks for each by its name.
const FIELDS_MAX: usize = 16;

impl<'n, 'r, 's> Fields<'n, 'r, 's> {
    /// `what` names the map in messages: "a rule", "the uplink".
    pub fn of(node: &'n Node, what: &'static str, report: &'r mut Report<'s>) -> Option<Self> {
        match &node.value {
            Value::Map(entries) => Some(Self {
                what,
                at: node.at,
                entries,
                asked: ArrayVec::new(),
                misplaced: vec![],
                missing: vec![],
                errors_before: report.errors,
                report,
            }),
            _ => unexpected(node, &format!("{what} with fields"), report),
        }
    }

    /// The node of a field.
    pub fn node(&mut self, name: &'static str) -> Option<&'n Node> {
        self.ask(name);
        self.entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node)
    }

    /// The node of a field that may be `null`, which is as if it were absent: Kubernetes has it so.
    pub fn given(&mut self, name: &'static str) -> Option<&'n Node> {
        self.node(name).filter(|node| !node.is_null())
    }

    /// Fields that may be there and say nothing.
    pub fn ignore(&mut self, names: &[&'static str]) {
        names.iter().for_each(|name| self.ask(name));
    }

    fn ask(&mut self, name: &'static str) {
        if !self.asked.contains(&name) {
            self.asked.push(name);
        }
    }

    /// The node of a field that must be there.
    pub fn required_node(&mut self, name: &'static str) -> Option<&'n Node> {
        let node = self.node(name);
        if node.is_none() {
            self.missing.push(name);
        }
        node
    }

    /// A field that must be there.
    pub fn required<T: Read>(&mut self, name: &'static str) -> Option<T> {
        T::read(self.required_node(name)?, self.report)
    }

    /// A field that may be absent.
    pub fn optional<T: Read>(&mut self, name: &'static str) -> Option<T> {
        T::read(self.node(name)?, self.report)
    }

    /// A list that may be absent; then it is empty.
    pub fn list<T: Read>(&mut self, name: &'static str) -> Vec<T> {
        self.optional(name).unwrap_or_default()
    }

    /// A whole number that must be there.
    pub fn required_number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u32>,
    ) -> Option<Spanned<u32>> {
        number(self.required_node(name)?, range, self.report)
    }

    /// A whole number that may be absent.
    pub fn number(&mut self, name: &'static str, range: RangeInclusive<u32>) -> Option<Spanned<u32>> {
        number(self.node(name)?, range, self.report)
    }

    /// A field that belongs elsewhere: reports it with `help` if it is there and nobody has asked for it.
    pub fn misplaced(&mut self, name: &'static str, help: &str) {
        let found = self.entries.iter().find(|(key, _)| key.text == name && !self.asked.contains(&name));
        if let Some((key, _)) = found {
            self.report.error(key.at, format!("{} has no field `{name}`", self.what)).help(help);
            self.misplaced.push(name);
        }
    }

    /// Where the map starts.
    pub const fn at(&self) -> Position {
        self.at
    }

    /// Reports the fields that are missing and those that nobody asked for. To be called when all have been asked for.
    /// True when nothing in the map was wrong.
    pub fn finish(self) -> bool {
        let Self { what, at, entries, asked, misplaced, mut missing, errors_before, report } = self;
        let is_known = |name: &str| asked.contains(&name) || misplaced.contains(&name);
        if missing.is_empty() && entries.iter().all(|(key, _)| is_known(&key.text)) {
            return report.errors == errors_before;
        }
        let is_absent = |name: &&'static str| !entries.iter().any(|(key, _)| key.text == *name);
        let absent: Vec<&str> = asked.iter().copied().filter(is_absent).collect();
        for (key, value) in entries.iter().filter(|(key, _)| !is_known(&key.text)) {
            if report.diagnostics.is_full() {
                report.error(key.at, format!("unknown field {} in {what}", quote(&key.text)));
                continue;
            }
            let meant = nearest(&key.text, absent.iter().copied());
            // A mistyped name is one mistake, not two.
            missing.retain(|name| Some(*name) != meant);
            let help = match meant {
                Some(name) => format!("did you mean `{name}`?"),
                // As in `{device: dpdk:net_tap0,iface=red0}`.
                None if value.value == Value::Null => {
                    "a comma in `{}` ends a value: put quotes around it".into()
                }
                None => one_of(&asked),
            };
            report.error(key.at, format!("unknown field {} in {what}", quote(&key.text))).help(help);
        }
        for name in missing {
            report.error(at, format!("{what} has no field `{name}`"));
        }
        report.errors == errors_before
    }
}

/// "it takes `a`, `b` and `c`".
fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => "it takes no fields".into(),
        Some((only, [])) => format!("it takes {only}"),
        Some((last, others)) => format!("it takes {} and {last}", others.join(", ")),
    }
}

/// Text from a file, short and printable.
pub(crate) fn quote(text: &str) -> String {
    const LENGTH_MAX: usize = 48;
    let mut short: String = text.chars().take(LENGTH_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(LENGTH_MAX).is_some() {
        short += "...";
    }
    format!("`{short}`")
}

/// Reports a node that is not what was expected.
pub(crate) fn unexpected<T>(node: &Node, expected: &str, report: &mut Report) -> Option<T> {
    let (found, help) = match &node.value {
        Value::Broken => return None,
        Value::Null => ("nothing".into(), Some("give a value, or remove the field")),
        Value::Plain(text) => (quote(text), None),
        Value::Quoted(text) => (format!("the text {}", quote(text)), None),
        Value::List(_) => ("a list".into(), None),
        Value::Map(_) => ("a map of fields".into(), None),
    };
    report.error(node.at, format!("expected {expected}, found {found}")).help_if(help.map(Into::into));
    None
}

/// A whole number in plain decimal digits.
pub(crate) fn number(node: &Node, range: RangeInclusive<u32>, report: &mut Report) -> Option<Spanned<u32>> {
    let (low, high) = (range.start(), range.end());
    // Written only when something is wrong: most numbers of a file are right.
    let expected = || format!("a number from {low} to {high}");
    let (Value::Plain(text) | Value::Quoted(text)) = &node.value else {
        return unexpected(node, &expected(), report);
    };
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = text.trim_start_matches('0');
    if is_decimal && matches!(node.value, Value::Quoted(_)) {
        report
            .error(node.at, format!("expected {}, found the text {}", expected(), quote(text)))
            .help("remove the quotes");
        return None;
    }
    if is_decimal && text.len() > 1 && text.starts_with('0') {
        let help = format!(
            "write {}: a leading zero means octal to some readers",
            if digits.is_empty() { "0" } else { digits }
        );
        report.error(node.at, format!("expected {}, found {}", expected(), quote(text))).help(help);
        return None;
    }
    match text.parse() {
        Ok(value) if is_decimal && range.contains(&value) => Some(Spanned { value, at: node.at }),
        _ => unexpected(node, &expected(), report),
    }
}

/// The text of a scalar, whether quoted or not.
pub(crate) fn text<'n>(node: &'n Node, expected: &str, report: &mut Report) -> Option<&'n str> {
    scalar(node).or_else(|| unexpected(node, expected, report))
}

/// As [`text`], without any complaint.
pub(crate) fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Plain(text) | Value::Quoted(text) => Some(text),
        _ => None,
    }
}

/// One of some words.
pub(crate) fn word<T: Copy>(
    node: &Node,
    what: &str,
    words: &[(&'static str, T)],
    report: &mut Report,
) -> Option<T> {
    let found = scalar(node).and_then(|text| words.iter().find(|(name, _)| *name == text));
    if let Some((_, value)) = found {
        return Some(*value);
    }
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let expected = format!("{what} ({})", names.join(", "));
    let text = text(node, &expected, report)?;
    let help = did_you_mean(text, names);
    report.error(node.at, format!("expected {expected}, found {}", quote(text))).help_if(help);
    None
}

/// Text that a standard type parses.
fn parsed<T: FromStr>(node: &Node, expected: &str, report: &mut Report) -> Option<T> {
    match text(node, expected, report)?.parse() {
        Ok(value) => Some(value),
        Err(_) => unexpected(node, expected, report),
    }
}

impl<T: Read> Read for Spanned<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        Some(Self { value: T::read(node, report)?, at: node.at })
    }
}

/// Items that cannot be read are reported and left out.
impl<T: Read> Read for Vec<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::List(items) => Some(items.iter().filter_map(|item| T::read(item, report)).collect()),
            Value::Null => {
                report
                    .error(node.at, "expected a list, found nothing")
                    .help("write `[]` for an empty list, or remove the field");
                None
            }
            _ => unexpected(node, "a list", report),
        }
    }
}

impl Read for bool {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Plain(text) if text == "true" => Some(true),
            Value::Plain(text) if text == "false" => Some(false),
            _ => unexpected(node, "`true` or `false`", report),
        }
    }
}

impl Read for String {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        text(node, "text", report).map(Into::into)
    }
}

impl Read for BTreeMap<String, String> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            return unexpected(node, "a map of labels", report);
        };
        let pairs =
            entries.iter().filter_map(|(key, value)| Some((key.text.clone(), Read::read(value, report)?)));
        Some(pairs.collect())
    }
}

impl Read for Mac {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mac: Self = parsed(node, "a MAC address such as 02:00:00:00:00:01", report)?;
        if mac.is_zero() || mac.is_multicast() {
            let why = if mac.is_zero() { "zero" } else { "a group address" };
            report.error(node.at, format!("MAC address {mac} is {why}; no single host has it"));
            return None;
        }
        Some(mac)
    }
}

/// An address of one host: not loopback, group, broadcast, unspecified or IPv4 written as IPv6.
impl Read for IpAddr {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        const EXPECTED: &str = "an IPv4 or IPv6 address";
        let text = text(node, EXPECTED, report)?;
        if let Ok(net) = text.parse::<IpNet>() {
            let message = format!("expected {EXPECTED} without a prefix length, found {}", quote(text));
            report.error(node.at, message).help(format!("write {}", net.addr()));
            return None;
        }
        let address = parsed(node, EXPECTED, report)?;
        match not_a_host(address) {
            None => Some(address),
            Some(why) => {
                report.error(node.at, format!("address {address} is {why}; no single host has it"));
                None
            }
        }
    }
}

/// Why no host can have the address.
pub(crate) fn not_a_host(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("unspecified"),
        _ if address.is_loopback() => Some("a loopback address"),
        _ if address.is_multicast() => Some("a group address"),
        IpAddr::V4(v4) if v4.octets()[0] >= 240 => Some("reserved or broadcast"),
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("in 0.0.0.0/8"),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("IPv4 written as IPv6"),
        _ => None,
    }
}

/// A prefix in CIDR notation; bits beyond its length are an error, as they hide what was meant.
impl Read for IpNet {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        const EXPECTED: &str = "a prefix such as 10.0.0.0/24 or fd00::/64";
        let text = text(node, EXPECTED, report)?;
        if let Ok(address) = text.parse::<IpAddr>() {
            let host = Self::from(address);
            report
                .error(node.at, format!("expected {EXPECTED}, found {}", quote(text)))
                .help(format!("write {host} for this one address"));
            return None;
        }
        let net: Self = parsed(node, EXPECTED, report)?;
        if net != net.trunc() {
            report.error(node.at, format!("prefix {net} has host bits set")).help(format!(
                "write {}, or {} for this one address",
                net.trunc(),
                Self::from(net.addr())
            ));
            return None;
        }
        Some(net)
    }
}
