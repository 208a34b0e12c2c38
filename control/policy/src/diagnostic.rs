//! What is wrong, where, and what to do about it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{Source, yaml};

/// Most diagnostics that are kept; more are counted only, so that a hostile file costs bounded memory.
pub const DIAGNOSTICS_MAX: usize = 1000;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The documents are refused.
    Error,
    /// The documents are taken; somebody should look.
    Warning,
}

/// A second place that a diagnostic speaks of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Related {
    /// File name as the user gave it.
    pub source: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is there.
    pub message: String,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// File name as the user gave it; empty when no file is to blame.
    pub source: String,
    /// Line, from 1; zero only when no file is to blame.
    pub line: u32,
    /// Column in characters, from 1; zero only when no file is to blame.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The other place, when two contradict each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related: Option<Related>,
}

impl Diagnostic {
    /// A diagnostic without help and without a second place.
    pub fn new(severity: Severity, place: Place<'_>, message: impl Into<String>) -> Self {
        Self {
            severity,
            source: place.source.into(),
            line: place.line,
            column: place.column,
            message: message.into(),
            help: None,
            related: None,
        }
    }

    /// Says what to do.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Points to the other place.
    pub fn with_related(mut self, place: Place<'_>, message: impl Into<String>) -> Self {
        let Place { source, line, column } = place;
        self.related = Some(Related { source: source.into(), line, column, message: message.into() });
        self
    }
}

/// A place in a file, by the file's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'a> {
    /// File name as the user gave it.
    pub source: &'a str,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Place<'_> {
    /// No file is to blame.
    pub const NOWHERE: Self = Self { source: "", line: 0, column: 0 };
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_head(f)?;
        self.write_tail(f)
    }
}

impl Diagnostic {
    fn write_head(&self, f: &mut impl fmt::Write) -> fmt::Result {
        if !self.source.is_empty() {
            write!(f, "{}:{}:{}: ", self.source, self.line, self.column)?;
        }
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}", self.message)
    }

    fn write_tail(&self, f: &mut impl fmt::Write) -> fmt::Result {
        if let Some(Related { source, line, column, message }) = &self.related {
            write!(f, "\n  note: {source}:{line}:{column}: {message}")?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong, sorted by file, line and column.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Diagnostics {
    /// The first [`DIAGNOSTICS_MAX`] that were found.
    pub list: Vec<Diagnostic>,
    /// How many more there were.
    #[serde(default)]
    pub omitted: usize,
}

impl Diagnostics {
    /// Adds one, or counts it when there are too many already.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if self.list.len() < DIAGNOSTICS_MAX {
            self.list.push(diagnostic);
            return;
        }
        self.omitted += 1;
        // An error is never lost to a heap of warnings.
        if diagnostic.severity == Severity::Error && !self.has_errors() {
            self.list[DIAGNOSTICS_MAX - 1] = diagnostic;
        }
    }

    /// True when what comes now is counted only: its help need not be worked out.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= DIAGNOSTICS_MAX
    }

    /// True when the documents are to be refused.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// True when there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The same diagnostics in the order of files, lines and columns.
    pub fn sorted(mut self) -> Self {
        self.list.sort_by(|a, b| {
            (&a.source, a.line, a.column, a.severity, &a.message)
                .cmp(&(&b.source, b.line, b.column, b.severity, &b.message))
        });
        self
    }

    /// As [`fmt::Display`], each diagnostic followed by its line of the file with a caret below the column.
    pub fn render(&self, sources: &[Source]) -> String {
        let texts: BTreeMap<&str, String> =
            sources.iter().map(|source| (source.name.as_str(), yaml::readable(&source.bytes))).collect();
        let mut out = String::new();
        for diagnostic in &self.list {
            let line = texts.get(diagnostic.source.as_str()).and_then(|text| line_of(text, diagnostic.line));
            // Writing to a string cannot fail.
            let _ = diagnostic.write_head(&mut out);
            if let Some(line) = line {
                out += &excerpt(line, diagnostic.line, diagnostic.column);
            }
            let _ = diagnostic.write_tail(&mut out);
            out.push('\n');
        }
        out + &self.omission()
    }

    fn omission(&self) -> String {
        match self.omitted {
            0 => String::new(),
            omitted => format!("and {omitted} more\n"),
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.iter().try_for_each(|diagnostic| writeln!(f, "{diagnostic}"))?;
        f.write_str(&self.omission())
    }
}

impl std::error::Error for Diagnostics {}

fn line_of(text: &str, line: u32) -> Option<&str> {
    text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)
}

/// The line and a caret, cut to a window around the column so that a file of one long line stays readable.
fn excerpt(line: &str, number: u32, column: u32) -> String {
    const WINDOW: usize = 100;
    let column = column.saturating_sub(1) as usize;
    let skipped = column.saturating_sub(WINDOW / 2);
    let shown: String = line.chars().skip(skipped).take(WINDOW).map(printable).collect();
    let gutter = number.to_string();
    let empty = " ".repeat(gutter.len());
    format!("\n {gutter} | {shown}\n {empty} | {}^", " ".repeat(column - skipped))
}

fn printable(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}
