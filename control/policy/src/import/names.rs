//! Names of the source to names that a native document may have.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Name, Position,
    limit::NAME_BYTES_MAX,
    read::{Report, quote},
};

/// In lower case, with one `-` for each run of other characters, cut to the length of a name.
pub(super) fn native(text: &str) -> Option<Name> {
    let mut name = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' | '.' => name.push(c),
            _ if name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(NAME_BYTES_MAX);
    Name::known(name.trim_matches(['-', '.']))
}

/// Native names of things of one kind, each of which is to have its own.
#[derive(Default)]
pub(super) struct Names {
    /// What has the name, and where.
    given: BTreeMap<(String, Name), (String, Position)>,
    /// What got none, which is said once.
    refused: BTreeSet<(String, String)>,
}

impl Names {
    /// The name of the thing that the source calls `text`, within `scope`. Two that would get the same one are an error.
    pub fn give(&mut self, scope: &str, text: &str, at: Position, report: &mut Report) -> Option<Name> {
        let is_refused = self.refused.contains(&(scope.into(), text.into()));
        let Some(name) = native(text).filter(|_| !is_refused) else {
            if self.refused.insert((scope.into(), text.into())) {
                let message = format!("{} has no letter or digit that a name could be made of", quote(text));
                report.error(at, message);
            }
            return None;
        };
        let (first, first_at) =
            self.given.entry((scope.into(), name.clone())).or_insert_with(|| (text.into(), at));
        if first != text {
            report
                .error(at, format!("{} and {} would both be called {name}", quote(first), quote(text)))
                .help("rename one of them")
                .related(*first_at, "the other");
            self.refused.insert((scope.into(), text.into()));
            return None;
        }
        Some(name)
    }
}
