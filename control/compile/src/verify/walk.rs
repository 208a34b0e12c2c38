//! What a rule list lets through, over all peers of a family and all services at once.
//!
//! The line of peers is cut into atoms where any rule's prefixes begin or end: all addresses of an atom are alike to the
//! list. Each atom carries the services that no rule has decided yet, and a rule takes its own out of what is left.

use program::{Program, RuleListId, Tier, Verdict};

use super::{Undecided, address::Family, services, set::Set};

/// What is left to spend on one walk or one question, in regions looked at: pairs of an atom and a span of services.
pub(crate) struct Budget(u64);

impl Budget {
    /// Some seconds, and less than a gigabyte.
    pub const REGIONS_MAX: u64 = 1 << 26;

    pub const fn whole() -> Self {
        Self(Self::REGIONS_MAX)
    }

    #[cfg(test)]
    pub const fn of(regions: u64) -> Self {
        Self(regions)
    }

    pub fn spend(&mut self, regions: usize) -> Result<(), Undecided> {
        self.0 = self.0.checked_sub(regions as u64).ok_or(Undecided::TooComplex)?;
        Ok(())
    }
}

/// A list's verdicts, each peer and service of the family in exactly one region.
#[derive(Debug)]
pub(crate) struct Decided {
    /// Every service that a packet of the family can have.
    possible: Set<u32>,
    /// All addresses of the family, in order.
    atoms: Vec<Atom>,
}

/// Neighbouring addresses that the list treats alike.
#[derive(Debug)]
struct Atom {
    first: u128,
    last: u128,
    accepted: Set<u32>,
}

impl Decided {
    /// Walks the list from its first rule to its last.
    pub fn by(
        program: &Program,
        list: RuleListId,
        family: Family,
        budget: &mut Budget,
    ) -> Result<Self, Undecided> {
        let possible = services::possible(family);
        let steps = steps(program, list, family, &possible)?;
        let mut atoms = cut(family, &steps, &possible);
        budget.spend(atoms.len().saturating_mul(possible.spans().len()))?;
        // The proof rests on it that no tier comes back.
        if !steps.is_sorted_by_key(|step| step.tier) {
            return Err(Undecided::BrokenList);
        }
        for step in &steps {
            for &(first, last) in step.peers.spans() {
                let start = atoms.partition_point(|open| open.atom.first < first);
                let touched = atoms[start..].iter_mut().take_while(|open| open.atom.last <= last);
                for open in touched {
                    budget.spend(open.regions())?;
                    open.take(step);
                }
            }
        }
        // What no rule has decided is denied.
        Ok(Self { possible, atoms: merged(atoms.into_iter().map(|open| open.atom)) })
    }

    /// How much room it takes, in regions.
    pub fn regions(&self) -> usize {
        self.atoms.iter().map(|atom| 1 + atom.accepted.spans().len()).sum()
    }

    /// Services that are accepted of at least one of the peers.
    pub fn accepted_of_some(&self, peers: &Set<u128>, budget: &mut Budget) -> Result<Set<u32>, Undecided> {
        self.collect(peers, budget, |atom| atom.accepted.clone())
    }

    /// Services that are refused of at least one of the peers.
    pub fn refused_of_some(&self, peers: &Set<u128>, budget: &mut Budget) -> Result<Set<u32>, Undecided> {
        self.collect(peers, budget, |atom| self.possible.minus(&atom.accepted))
    }

    fn collect(
        &self,
        peers: &Set<u128>,
        budget: &mut Budget,
        services: impl Fn(&Atom) -> Set<u32>,
    ) -> Result<Set<u32>, Undecided> {
        let mut spans = Vec::new();
        for (atom, _) in self.meeting(peers) {
            budget.spend(1 + atom.accepted.spans().len())?;
            spans.extend_from_slice(services(atom).spans());
        }
        Ok(Set::of_spans(spans))
    }

    /// One of the peers of which the service is accepted, or refused.
    pub fn peer(&self, peers: &Set<u128>, service: u32, is_accepted: bool) -> Option<u128> {
        let mut meeting = self.meeting(peers);
        meeting.find(|(atom, _)| atom.accepted.contains(service) == is_accepted).map(|(_, peer)| peer)
    }

    /// Atoms that hold some of the peers, each with its first one.
    fn meeting(&self, peers: &Set<u128>) -> impl Iterator<Item = (&Atom, u128)> {
        peers.spans().iter().flat_map(|&(first, last)| {
            let start = self.atoms.partition_point(|atom| atom.last < first);
            let met = self.atoms[start..].iter().take_while(move |atom| atom.first <= last);
            met.map(move |atom| (atom, atom.first.max(first)))
        })
    }
}

/// A rule as sets.
struct Step {
    tier: Tier,
    verdict: Verdict,
    peers: Set<u128>,
    services: Set<u32>,
    /// Of the services those that certainly are what the rule looks at: not the fragments that may be.
    certain: Set<u32>,
}

/// An atom that is being decided.
struct Open {
    atom: Atom,
    /// The tier whose rules are asked.
    tier: Tier,
    undecided: Set<u32>,
    /// Fragments that may have been passed on by this tier.
    perhaps_passed: Set<u32>,
    /// For the next tier.
    passed: Set<u32>,
}

impl Open {
    /// The one place that knows what the verdicts do: as [`program::Decision::among`], for all services at once.
    fn take(&mut self, step: &Step) {
        if step.tier != self.tier {
            self.tier = step.tier;
            self.undecided = self.undecided.union(&self.passed);
            (self.passed, self.perhaps_passed) = (Set::empty(), Set::empty());
        }
        let hit = self.undecided.intersect(&step.services);
        match step.verdict {
            Verdict::Deny => self.undecided = self.undecided.minus(&hit),
            Verdict::Accept => {
                // What may have been passed on is accepted only if the next tiers accept it too.
                let asked_on = hit.intersect(&self.perhaps_passed);
                self.atom.accepted = self.atom.accepted.union(&hit.minus(&asked_on));
                self.passed = self.passed.union(&asked_on);
                self.undecided = self.undecided.minus(&hit);
            }
            Verdict::Pass => {
                let certain = hit.intersect(&step.certain);
                self.perhaps_passed = self.perhaps_passed.union(&hit.minus(&certain));
                self.passed = self.passed.union(&certain);
                self.undecided = self.undecided.minus(&certain);
            }
        }
    }

    fn regions(&self) -> usize {
        let sets = [&self.undecided, &self.perhaps_passed, &self.passed, &self.atom.accepted];
        1 + sets.iter().map(|set| set.spans().len()).sum::<usize>()
    }
}

fn steps(
    program: &Program,
    list: RuleListId,
    family: Family,
    possible: &Set<u32>,
) -> Result<Vec<Step>, Undecided> {
    // As `Program::decide` has it, a list that is not there has no rules.
    let rules = program.rules.list(list).map(|(_, rule)| rule.ok_or(Undecided::BrokenList));
    let step = |rule: &program::Rule| Step {
        tier: rule.tier,
        verdict: rule.verdict,
        peers: rule.peers.as_ref().map_or_else(|| family.all(), |blocks| family.blocks(blocks)),
        services: services::meant(&rule.services, rule.verdict).intersect(possible),
        certain: services::meant(&rule.services, Verdict::Accept).intersect(possible),
    };
    rules.map(|rule| rule.map(step)).collect()
}

/// All addresses, cut where the peers of any step begin or end.
fn cut(family: Family, steps: &[Step], possible: &Set<u32>) -> Vec<Open> {
    let all = family.all();
    let spans = || all.spans().iter().chain(steps.iter().flat_map(|step| step.peers.spans()));
    let mut firsts: Vec<u128> = spans().map(|(first, _)| *first).collect();
    let mut lasts: Vec<u128> = spans().map(|(_, last)| *last).collect();
    // An atom ends where a span ends, and before one begins; it begins likewise.
    let (before, behind): (Vec<u128>, Vec<u128>) = (
        firsts.iter().filter_map(|first| first.checked_sub(1)).collect(),
        lasts
            .iter()
            .filter(|last| all.contains(**last) && !is_end(&all, **last))
            .map(|last| last + 1)
            .collect(),
    );
    firsts.extend(behind);
    lasts.extend(before);
    for ends in [&mut firsts, &mut lasts] {
        ends.sort_unstable();
        ends.dedup();
    }
    let atom = |(first, last)| Open {
        atom: Atom { first, last, accepted: Set::empty() },
        tier: Tier::Admin,
        undecided: possible.clone(),
        perhaps_passed: Set::empty(),
        passed: Set::empty(),
    };
    firsts.into_iter().zip(lasts).map(atom).collect()
}

fn is_end(all: &Set<u128>, point: u128) -> bool {
    all.spans().last().is_some_and(|(_, last)| *last == point)
}

/// Neighbours with equal verdicts become one.
fn merged(atoms: impl Iterator<Item = Atom>) -> Vec<Atom> {
    let mut merged: Vec<Atom> = Vec::new();
    for atom in atoms {
        match merged.last_mut() {
            Some(open) if open.accepted == atom.accepted => open.last = atom.last,
            _ => merged.push(atom),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use program::{Origin, PeerBlock, PortRange, Rule, RuleSet, ServiceMatch};

    use super::*;

    /// A list that accepts each second address and, of each, a port of its own.
    fn program() -> Program {
        let rule = |index: u32| Rule {
            tier: Tier::Tenant,
            verdict: Verdict::Accept,
            peers: Some(vec![PeerBlock {
                net: std::net::IpAddr::from(std::net::Ipv4Addr::from_bits(index * 2)).into(),
                except: vec![],
            }]),
            services: vec![ServiceMatch::Tcp(PortRange { first: index as u16, last: index as u16 })],
            log: false,
            origin: Origin::default(),
        };
        of_one_list((0..8).map(rule).collect())
    }

    fn of_one_list(rules: Vec<Rule>) -> Program {
        let lists = vec![(0..rules.len() as u32).collect()];
        let mut program = Program::default();
        program.rules.push(program::TenantId(0), RuleSet { rules, lists }.into());
        program
    }

    fn regions_of(budget: &mut Budget) -> Result<usize, Undecided> {
        Decided::by(&program(), RuleListId(0), Family::V4, budget).map(|decided| decided.regions())
    }

    #[test]
    fn a_walk_ends_when_its_budget_does() {
        let mut whole = Budget::whole();
        // 8 accepted addresses of one span each, and 8 gaps.
        assert_eq!(regions_of(&mut whole), Ok(24));
        let used = Budget::REGIONS_MAX - whole.0;
        assert_eq!(regions_of(&mut Budget::of(used)), Ok(24));
        assert_eq!(regions_of(&mut Budget::of(used - 1)), Err(Undecided::TooComplex));
    }

    #[test]
    fn a_fragment_that_is_perhaps_passed_on_needs_both_ways() {
        use program::Service;
        let peer = std::net::IpAddr::from([10, 0, 0, 1]);
        let port_80 = ServiceMatch::Tcp(PortRange { first: 80, last: 80 });
        let rule = |tier, verdict, service| Rule {
            tier,
            verdict,
            peers: None,
            services: vec![service],
            log: false,
            origin: Origin::default(),
        };
        let tcp = ServiceMatch::Protocol(6);
        for own in [Verdict::Accept, Verdict::Deny] {
            for last in [Verdict::Accept, Verdict::Deny] {
                let rules = vec![
                    rule(Tier::Tenant, Verdict::Pass, port_80),
                    rule(Tier::Tenant, own, tcp),
                    rule(Tier::Baseline, last, tcp),
                ];
                let program = of_one_list(rules);
                let decided = Decided::by(&program, RuleListId(0), Family::V4, &mut Budget::whole()).unwrap();
                for service in [Service::Opaque(6), Service::Tcp(80), Service::Tcp(81)] {
                    let expected = program.decide(RuleListId(0), peer, service).verdict == Verdict::Accept;
                    let is_accepted = decided.atoms[0].accepted.contains(services::point(service));
                    assert_eq!(is_accepted, expected, "{own:?} {last:?} {service:?}");
                }
            }
        }
    }

    #[test]
    fn atoms_cover_every_address_once_up_to_both_ends() {
        for family in Family::ALL {
            let all = family.all();
            let (first, last) = all.spans()[0];
            for peers in [Set::span(first, first), Set::span(last, last), all.clone(), Set::empty()] {
                let (services, certain) = (Set::empty(), Set::empty());
                let step = Step { tier: Tier::Tenant, verdict: Verdict::Accept, peers, services, certain };
                let atoms = cut(family, &[step], &Set::empty());
                assert_eq!((atoms[0].atom.first, atoms.last().unwrap().atom.last), (first, last));
                let is_next = |pair: &[Open]| pair[0].atom.last + 1 == pair[1].atom.first;
                assert!(atoms.windows(2).all(is_next));
            }
        }
    }
}
