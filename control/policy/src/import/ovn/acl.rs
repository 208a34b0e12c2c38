//! One row of the table `ACL`.

use std::collections::BTreeSet;

use crate::{
    Direction, Position,
    import::{
        first_match::Outcome,
        json::{boolean, number, text},
    },
    read::{Report, word},
};

use super::{
    clauses::{self, Formula},
    expression,
    tables::Row,
};

/// Highest tier.
pub(super) const TIER_MAX: u32 = 3;
const PRIORITY_MAX: u32 = 32_767;

/// Columns of an ACL that are read, or that change no verdict.
const ACL_COLUMNS: [&str; 15] = [
    "_uuid",
    "name",
    "priority",
    "direction",
    "match",
    "action",
    "log",
    "severity",
    "meter",
    "label",
    "tier",
    "options",
    "external_ids",
    "sample_new",
    "sample_est",
];

/// An ACL.
pub(super) struct Acl<'n> {
    pub at: Position,
    pub name: String,
    pub direction: Direction,
    pub action: Action,
    /// [`AFTER_LB`], or one more than its tier.
    pub stage: u32,
    pub priority: u32,
    pub log: bool,
    pub others: Vec<String>,
    pub formula: Formula,
    /// The order of equals.
    pub uuid: &'n str,
}

/// What becomes of a packet that it matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Allow,
    AllowRelated,
    AllowStateless,
    Drop,
    Reject,
    Pass,
}

/// The stage of what is asked after load balancing. It can only deny here, so it comes first.
pub(super) const AFTER_LB: u32 = 0;

impl Action {
    const WORDS: [(&'static str, Self); 6] = [
        ("allow", Self::Allow),
        ("allow-related", Self::AllowRelated),
        ("allow-stateless", Self::AllowStateless),
        ("drop", Self::Drop),
        ("reject", Self::Reject),
        ("pass", Self::Pass),
    ];

    /// Where no state is kept, replies to what is accepted do not pass by themselves, and floodway would let them
    /// through. So it is denied: left out, it could be accepted by another ACL.
    pub const fn outcome(self, has_state: bool) -> Outcome {
        match self {
            Self::Allow | Self::AllowRelated if has_state => Outcome::Permit,
            Self::Pass => Outcome::Continue,
            _ => Outcome::Deny,
        }
    }
}

impl<'n> Acl<'n> {
    pub fn read(
        row: &Row<'n>,
        uuid: &'n str,
        names: &clauses::Names,
        named: &mut BTreeSet<usize>,
        budget: &mut usize,
        report: &mut Report,
    ) -> Option<Self> {
        let directions = [("from-lport", Direction::Egress), ("to-lport", Direction::Ingress)];
        let direction = row.required("direction", report);
        let direction = direction.and_then(|node| word(node, "a direction", &directions, report));
        let action = row.required("action", report);
        let action = action.and_then(|node| word(node, "an action", &Action::WORDS, report));
        let priority = row.required("priority", report);
        let priority = priority.and_then(|node| number(node, "a priority", 0..=PRIORITY_MAX, report));
        let tier = match row.get("tier") {
            None => Some(0),
            Some(node) => number(node, "a tier", 0..=TIER_MAX, report),
        };
        let log = row.get("log").and_then(|node| boolean(node, "`log`", report)).unwrap_or(false);
        let node = row.required("match", report)?;
        let (direction, action, priority, tier) = (direction?, action?, priority?, tier?);
        let expression = expression::parse(text(node, "a match", report)?);
        let formula = expression.and_then(|expression| {
            Formula::named(&expression, names, named);
            clauses::resolve(&expression, direction, names, budget)
        });
        let formula = match formula {
            Ok(formula) => formula,
            Err(refused) => {
                let message = format!("the match, at character {}: {}", refused.at, refused.message);
                report.error(node.at, message).help_if(refused.help.map(String::from));
                return None;
            }
        };
        let name = row.get("name").and_then(|node| text(node, "a name", report));
        let name = format!("ACL {}", name.unwrap_or(uuid.get(..8).unwrap_or(uuid)));
        let mut acl = Self {
            at: node.at,
            name,
            direction,
            action,
            stage: tier + 1,
            priority,
            log,
            others: vec![],
            formula,
            uuid,
        };
        acl.read_others(row, report);
        acl.warn(row, report);
        Some(acl)
    }

    /// What else narrows it.
    fn read_others(&mut self, row: &Row, report: &mut Report) {
        let columns = row.columns().filter(|(column, _)| !ACL_COLUMNS.contains(column));
        self.others.extend(columns.map(|(column, _)| column.to_string()));
        for (key, value) in row.pairs("options", report) {
            let is_set = text(value, "an option", report) != Some("false");
            match key {
                "apply-after-lb" if is_set => {
                    self.stage = AFTER_LB;
                    // Denying there denies here, too. Accepting there says nothing about what comes before.
                    if matches!(self.action, Action::Drop | Action::Reject) {
                        continue;
                    }
                    self.others.push(key.into());
                }
                "apply-after-lb" | "persist-established" | "log-related" => {}
                _ => self.others.push(key.into()),
            }
        }
    }

    /// What it does beyond a verdict.
    fn warn(&self, row: &Row, report: &mut Report) {
        let name = &self.name;
        match self.action {
            Action::Reject => {
                let message =
                    format!("{name} rejects: floodway drops, and sends neither a reset nor an ICMP error");
                report.warning(self.at, message);
            }
            Action::AllowStateless => {
                report
                    .warning(self.at, format!("{name} is allow-stateless; it denies"))
                    .help("floodway keeps state, and would let through replies that the ACL does not");
            }
            _ => {}
        }
        let told: Vec<&str> = ["severity", "meter"]
            .into_iter()
            .filter(|column| self.log && row.get(column).is_some())
            .collect();
        if !told.is_empty() {
            report.warning(self.at, format!("{name}: its log is without {}", told.join(" and ")));
        }
    }
}
