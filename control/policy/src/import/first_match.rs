//! Stages of rules to one list of which the first rule that matches decides.
//!
//! A packet comes to each stage in turn. The first rule of a stage that matches decides it, or sends it to the next
//! stage; what matches no rule of a stage is denied; what comes past the last stage is accepted.

use crate::{Position, import::UNFOLDED_RULES_MAX};

use super::conditions::Conditions;

/// Rules, prefixes, ports and protocols that all lists of an import may unfold to together.
pub(super) const PARTS_MAX: usize = 1 << 22;

/// What becomes of a packet that a rule of a stage matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Outcome {
    Deny,
    /// The next stage decides.
    Continue,
    Permit,
}

/// A rule of a stage.
#[derive(Clone, Debug)]
pub(super) struct StageRule {
    /// Where it is in the source and how that calls it; `None` when it stands for what no rule says.
    pub of: Option<(Position, String)>,
    pub outcome: Outcome,
    pub log: bool,
    pub when: Conditions,
}

/// A rule of the list.
#[derive(Clone, Debug)]
pub(super) struct Unfolded {
    pub is_accept: bool,
    pub log: bool,
    pub when: Conditions,
    /// The rules that say so together, one of each stage.
    pub of: Vec<(Position, String)>,
}

/// The stages unfold to too much.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

/// One list that decides as the stages do. What matches none of its rules is denied. What it costs is taken from
/// `budget`, which is [`PARTS_MAX`] at first.
pub(super) fn unfold(stages: &[Vec<StageRule>], budget: &mut usize) -> Result<Vec<Unfolded>, TooMuch> {
    let mut list = vec![Unfolded { is_accept: true, log: false, when: Conditions::default(), of: vec![] }];
    for stage in stages.iter().rev() {
        list = before(stage, &list, budget)?;
    }
    Ok(list)
}

/// The list of a stage and of what comes after it.
fn before(stage: &[StageRule], after: &[Unfolded], budget: &mut usize) -> Result<Vec<Unfolded>, TooMuch> {
    let mut list: Vec<Unfolded> = Vec::new();
    for rule in stage.iter().filter(|rule| !rule.when.is_nothing()) {
        let own = |is_accept| Unfolded {
            is_accept,
            log: rule.log,
            when: rule.when.clone(),
            of: rule.of.iter().cloned().collect(),
        };
        match rule.outcome {
            Outcome::Permit => list.push(own(true)),
            Outcome::Deny => list.push(own(false)),
            Outcome::Continue => {
                for next in after {
                    let when = rule.when.and(&next.when, budget).ok_or(TooMuch)?;
                    if !when.is_nothing() {
                        let of = own(true).of.into_iter().chain(next.of.iter().cloned()).collect();
                        let log = rule.log || next.log;
                        list.push(Unfolded { is_accept: next.is_accept, log, when, of });
                    }
                }
                if !after.last().is_some_and(|last| last.when.is_all()) {
                    list.push(own(false));
                }
            }
        }
        if list.len() > UNFOLDED_RULES_MAX {
            return Err(TooMuch);
        }
        if rule.when.is_all() {
            break;
        }
    }
    *budget = budget.checked_sub(list.len()).ok_or(TooMuch)?;
    Ok(list)
}
