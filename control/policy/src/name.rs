//! Names of things in policy files.

use std::{borrow::Borrow, fmt, ops::Deref};

use crate::{
    Position, Spanned,
    limit::NAME_BYTES_MAX,
    read::{Read, Report, quote, text},
    yaml::Node,
};

/// RFC 1123, section 2.1, as the API server of Kubernetes reads it.
const SUBDOMAIN_BYTES_MAX: usize = 253;

/// A name: 1 to 63 lower-case letters, digits, `-` and `.`, with a letter or digit first and last (as Kubernetes has
/// it, RFC 1123). It can stand in a metric, a path and a terminal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(String);

impl Name {
    /// Stands for a name that could not be read.
    pub(crate) fn missing() -> Spanned<Self> {
        Spanned { value: Self(String::new()), at: Position::default() }
    }

    /// A name that is written in the code.
    pub(crate) fn known(text: &str) -> Option<Self> {
        Self::new(text, NAME_BYTES_MAX)
    }

    /// A name of up to 253 bytes, as Kubernetes takes them for most of its objects.
    pub(crate) fn read_subdomain(node: &Node, report: &mut Report) -> Option<Self> {
        Self::read_up_to(node, SUBDOMAIN_BYTES_MAX, report)
    }

    fn read_up_to(node: &Node, bytes_max: usize, report: &mut Report) -> Option<Self> {
        let text = text(node, "a name", report)?;
        let name = Self::new(text, bytes_max);
        if name.is_none() {
            report.error(node.at, format!("{} cannot be a name", quote(text))).help(format!(
                "use 1 to {bytes_max} lower-case letters, digits, `-` and `.`, with a letter or digit first and last"
            ));
        }
        name
    }

    fn new(text: &str, bytes_max: usize) -> Option<Self> {
        let is_inner =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let bytes = text.as_bytes();
        let is_name = bytes.len() <= bytes_max
            && bytes.iter().copied().all(is_inner)
            && is_edge(bytes.first())
            && is_edge(bytes.last());
        is_name.then(|| Self(text.into()))
    }
}

impl Read for Name {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        Self::read_up_to(node, NAME_BYTES_MAX, report)
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
