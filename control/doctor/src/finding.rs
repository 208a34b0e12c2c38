//! What a check has to say.

use serde::Serialize;

/// How it is, from best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It could not be looked at, or nothing here hangs on it.
    Skipped,
    /// As it should be.
    Ok,
    /// It runs, but slower or less safely than it could.
    Warn,
    /// floodway does not start or loses packets.
    Fail,
}

impl Verdict {
    /// As it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The answer of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Which.
    pub check: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was looked at, and what was there.
    pub seen: String,
    /// What is wrong, or why it was skipped; empty when all is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// The command that puts it right, or how to look by hand; empty when there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

/// A finding that does not know its check yet.
pub(crate) struct Found(Verdict, String, String, String);

impl Found {
    pub(crate) fn of(self, check: &'static str) -> Finding {
        let Self(verdict, seen, problem, fix) = self;
        Finding { check, verdict, seen, problem, fix }
    }
}

pub(crate) fn ok(seen: impl Into<String>) -> Found {
    Found(Verdict::Ok, seen.into(), String::new(), String::new())
}

pub(crate) fn warn(seen: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Found {
    Found(Verdict::Warn, seen.into(), problem.into(), fix.into())
}

pub(crate) fn fail(seen: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Found {
    Found(Verdict::Fail, seen.into(), problem.into(), fix.into())
}

pub(crate) fn skipped(seen: impl Into<String>, why: impl Into<String>) -> Found {
    Found(Verdict::Skipped, seen.into(), why.into(), String::new())
}

pub(crate) fn skipped_but(seen: impl Into<String>, why: impl Into<String>, how: impl Into<String>) -> Found {
    Found(Verdict::Skipped, seen.into(), why.into(), how.into())
}
