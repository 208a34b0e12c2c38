//! Where a program keeps its rules: one set for each tenant, which programs share for as long as it stays the same.

use std::sync::Arc;

use crate::{Rule, RuleId, RuleListId, TenantId};

/// The rules of one tenant, and the lists of them that its ports ask.
///
/// It refers to nothing outside itself, so that what happens to other tenants leaves it as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleSet {
    /// Each rule once.
    pub rules: Vec<Rule>,
    /// For each list the rules in the order in which they are asked, earlier tiers first, as indices into `rules`.
    pub lists: Vec<Vec<u32>>,
}

/// The rules of all tenants. Their ids count through all sets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleSets {
    placed: Vec<PlacedSet>,
}

/// A set and where its ids begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedSet {
    /// Whose it is.
    pub tenant: TenantId,
    /// The id of its first rule, if it has one.
    pub first_rule: RuleId,
    /// The id of its first list, if it has one.
    pub first_list: RuleListId,
    /// What is in it. The same allocation in two programs is the same rules in the same lists: what was made of them
    /// for one can be used for the other.
    pub set: Arc<RuleSet>,
}

impl RuleSets {
    /// Adds the rules of a tenant, and says where they are.
    pub fn push(&mut self, tenant: TenantId, set: Arc<RuleSet>) -> &PlacedSet {
        // limit::RULES bounds rules, and there are at most two lists for each port.
        let (first_rule, first_list) = (RuleId(self.len() as u32), RuleListId(self.list_count() as u32));
        self.placed.push(PlacedSet { tenant, first_rule, first_list, set });
        &self.placed[self.placed.len() - 1]
    }

    /// All sets, in the order of their ids.
    pub fn placed(&self) -> &[PlacedSet] {
        &self.placed
    }

    /// How many rules there are: their ids are below that.
    pub fn len(&self) -> usize {
        self.placed.last().map_or(0, |last| last.first_rule.0 as usize + last.set.rules.len())
    }

    /// True when there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many lists there are: their ids are below that.
    pub fn list_count(&self) -> usize {
        self.placed.last().map_or(0, |last| last.first_list.0 as usize + last.set.lists.len())
    }

    /// All rules, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (RuleId, &Rule)> {
        let rules = self.placed.iter().flat_map(|placed| &placed.set.rules);
        (0..).map(RuleId).zip(rules)
    }

    /// The rule of that id.
    pub fn rule(&self, id: RuleId) -> Option<&Rule> {
        let after = self.placed.partition_point(|placed| placed.first_rule <= id);
        let placed = self.placed.get(after.checked_sub(1)?)?;
        placed.set.rules.get((id.0 - placed.first_rule.0) as usize)
    }

    /// The rules of that list in the order in which they are asked; none for an id that is not in use, and `None` in place
    /// of a rule that the list names and the set does not have.
    pub fn list(
        &self,
        id: RuleListId,
    ) -> impl ExactSizeIterator<Item = (RuleId, Option<&Rule>)> + DoubleEndedIterator {
        let after = self.placed.partition_point(|placed| placed.first_list <= id);
        let placed = after.checked_sub(1).map(|index| &self.placed[index]);
        let list = placed.and_then(|placed| placed.set.lists.get((id.0 - placed.first_list.0) as usize));
        let (first, rules) = placed.map_or((0, &[][..]), |placed| (placed.first_rule.0, &placed.set.rules));
        let indices = list.map_or(&[][..], Vec::as_slice);
        indices.iter().map(move |index| (RuleId(first + index), rules.get(*index as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Origin, Tier, Verdict};

    /// A set of so many rules, each told by its line, with these lists.
    fn set(lines: &[u32], lists: &[&[u32]]) -> Arc<RuleSet> {
        let rule = |line: &u32| Rule {
            tier: Tier::Tenant,
            verdict: Verdict::Deny,
            peers: None,
            services: vec![],
            log: false,
            origin: Origin { source: "a".into(), line: *line },
        };
        let lists = lists.iter().map(|list| list.to_vec()).collect();
        Arc::new(RuleSet { rules: lines.iter().map(rule).collect(), lists })
    }

    /// Sets without rules or lists stand between those that have some.
    #[test]
    fn ids_count_through_all_sets() {
        let mut sets = RuleSets::default();
        assert!(sets.is_empty());
        let all: [(&[u32], &[&[u32]]); 5] = [
            (&[], &[]),
            (&[10, 11], &[&[], &[1, 0]]),
            (&[], &[&[]]),
            (&[20], &[]),
            (&[30, 31, 32], &[&[2, 7], &[0]]),
        ];
        let mut firsts = vec![];
        for (tenant, (lines, lists)) in (0..).zip(all) {
            let placed = sets.push(TenantId(tenant), set(lines, lists));
            firsts.push((placed.first_rule.0, placed.first_list.0));
        }
        assert_eq!(firsts, [(0, 0), (0, 0), (2, 2), (2, 3), (3, 3)]);
        assert_eq!((sets.len(), sets.list_count()), (6, 5));
        let line = |rule: Option<&Rule>| rule.map(|rule| rule.origin.line);
        let lines: Vec<_> = (0..7).map(|id| line(sets.rule(RuleId(id)))).collect();
        assert_eq!(lines, [Some(10), Some(11), Some(20), Some(30), Some(31), Some(32), None]);
        assert!(
            sets.iter()
                .map(|(id, rule)| (id, Some(rule)))
                .eq((0..6).map(RuleId).map(|id| (id, sets.rule(id))))
        );
        let list = |id| sets.list(RuleListId(id)).map(|(id, rule)| (id.0, line(rule))).collect::<Vec<_>>();
        let expected = [
            vec![],
            vec![(1, Some(11)), (0, Some(10))],
            vec![],
            vec![(5, Some(32)), (10, None)],
            vec![(3, Some(30))],
            vec![],
        ];
        assert_eq!([0, 1, 2, 3, 4, 5].map(list), expected);
    }
}
