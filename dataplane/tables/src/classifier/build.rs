//! From rules to tuples, pairs and runs of services: sorting, and no more.

use std::collections::BTreeMap;

use super::{Classifier, Dimension, FREE, Pair, Place, Rule, Service, Tuple, WORDS_MAX, hash, tag};
use crate::classifier::services::Services;
use crate::lpm::Lpm;
use crate::prefix::{Address, Prefix};

/// Most pairs of prefixes of all rules of a classifier.
pub const PAIRS_MAX: usize = 1 << 20;

/// Most services of a classifier, those that pairs share counted once.
pub const SERVICES_MAX: usize = 1 << 21;

/// The rules are more than one classifier takes: ask them one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooLarge {
    /// More than [`PAIRS_MAX`] pairs.
    Pairs,
    /// More than [`SERVICES_MAX`] services.
    Services,
}

impl core::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Pairs => write!(f, "more than {PAIRS_MAX} pairs of prefixes"),
            Self::Services => write!(f, "more than {SERVICES_MAX} services of pairs of prefixes"),
        }
    }
}

impl core::error::Error for TooLarge {}

/// A pair of prefixes of one rule. Sorting brings the rules of a pair together, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Asked<A> {
    src_len: u8,
    dst_len: u8,
    src: A,
    dst: A,
    rule: u32,
}

impl<A: Address> Asked<A> {
    fn lengths(&self) -> (u8, u8) {
        (self.src_len, self.dst_len)
    }

    fn pair(&self) -> (u8, u8, A, A) {
        (self.src_len, self.dst_len, self.src, self.dst)
    }
}

impl<A: Address> Classifier<A> {
    /// The classifier of these rules, each known by its index.
    pub fn build(rules: &[Rule<A>]) -> Result<Self, TooLarge> {
        let asked = sorted(rules)?;
        let tuples = tuples(&asked);
        let number: BTreeMap<(u8, u8), u32> =
            (0..).zip(&tuples).map(|(number, tuple)| ((tuple.src_len, tuple.dst_len), number)).collect();
        let (pairs, services) = pairs(rules, &asked, &number)?;
        let tuples_per_group = tuples.len().div_ceil(WORDS_MAX * 64).max(1);
        let words = tuples.len().div_ceil(tuples_per_group).div_ceil(64);
        let sides = |side: fn(&Asked<A>) -> Prefix<A>| {
            let of = |asked: &Asked<A>| (side(asked), number[&asked.lengths()] as usize / tuples_per_group);
            dimension(asked.iter().map(of).collect(), words)
        };
        let src = sides(|asked| Prefix::new(asked.src, asked.src_len));
        let dst = sides(|asked| Prefix::new(asked.dst, asked.dst_len));
        Ok(Self {
            src,
            dst,
            tuples: tuples.into(),
            words,
            tuples_per_group,
            places: places(&pairs),
            pairs: pairs.into(),
            services,
        })
    }
}

fn sorted<A: Address>(rules: &[Rule<A>]) -> Result<Vec<Asked<A>>, TooLarge> {
    if rules.iter().map(|rule| rule.pairs.len()).sum::<usize>() > PAIRS_MAX {
        return Err(TooLarge::Pairs);
    }
    let of = |(rule, (src, dst)): (u32, &(Prefix<A>, Prefix<A>))| Asked {
        src_len: src.length(),
        dst_len: dst.length(),
        src: src.first(),
        dst: dst.first(),
        rule,
    };
    let numbered = (0..).zip(rules).filter(|(_, rule)| !rule.services.is_empty());
    let asked = numbered.flat_map(|(number, rule)| rule.pairs.iter().map(move |pair| (number, pair)));
    let mut asked: Vec<Asked<A>> = asked.map(of).collect();
    asked.sort_unstable();
    asked.dedup();
    Ok(asked)
}

/// Those with the earliest rules first.
fn tuples<A: Address>(asked: &[Asked<A>]) -> Vec<Tuple> {
    let of = |asked: &[Asked<A>]| Tuple {
        src_len: asked[0].src_len,
        dst_len: asked[0].dst_len,
        earliest: asked.iter().map(|asked| asked.rule).min().unwrap_or(0),
    };
    let mut tuples: Vec<Tuple> = asked.chunk_by(|a, b| a.lengths() == b.lengths()).map(of).collect();
    tuples.sort_by_key(|tuple| (tuple.earliest, tuple.src_len, tuple.dst_len));
    tuples
}

/// Pairs with the same rules share one run of services.
fn pairs<A: Address>(
    rules: &[Rule<A>],
    asked: &[Asked<A>],
    number: &BTreeMap<(u8, u8), u32>,
) -> Result<(Vec<Pair<A>>, Services), TooLarge> {
    let mut services = Services::default();
    let mut known: BTreeMap<Vec<u32>, (u32, u32)> = BTreeMap::new();
    let mut pairs = Vec::new();
    for asked in asked.chunk_by(|a, b| a.pair() == b.pair()) {
        let together: Vec<u32> = asked.iter().map(|asked| asked.rule).collect();
        let (start, len) = match known.get(&together) {
            Some(run) => *run,
            None => {
                let run = add_run(&mut services, rules, &together)?;
                known.insert(together, run);
                run
            }
        };
        let Asked { src, dst, .. } = asked[0];
        pairs.push(Pair { src, dst, tuple: number[&asked[0].lengths()], start, len });
    }
    services.shrink();
    Ok((pairs, services))
}

fn add_run<A>(services: &mut Services, rules: &[Rule<A>], together: &[u32]) -> Result<(u32, u32), TooLarge> {
    let start = services.len();
    for &number in together {
        let asked = &rules[number as usize].services;
        if services.len() + asked.len() > SERVICES_MAX {
            return Err(TooLarge::Services);
        }
        let span = |service: &&Service| {
            service.src_ports.first <= service.src_ports.last && service.values.first <= service.values.last
        };
        asked.iter().filter(span).for_each(|service| services.push(service, number));
    }
    Ok((start as u32, (services.len() - start) as u32))
}

/// Prefixes of one side, each with the group of its tuple.
fn dimension<A: Address>(mut sides: Vec<(Prefix<A>, usize)>, words: usize) -> Dimension<A> {
    sides.sort_unstable();
    sides.dedup();
    let same = || sides.chunk_by(|a, b| a.0 == b.0);
    let prefixes: Vec<Prefix<A>> = same().map(|same| same[0].0).collect();
    let mut sets = vec![0; (prefixes.len() + 1) * words].into_boxed_slice();
    for (set, same) in sets.chunks_exact_mut(words.max(1)).zip(same()) {
        same.iter().for_each(|(_, group)| set[group / 64] |= 1 << (group % 64));
    }
    let lpm = Lpm::build_nested(&prefixes, |number, outer| {
        for word in 0..words {
            let around = outer.map_or(0, |outer| sets[outer as usize * words + word]);
            sets[number as usize * words + word] |= around;
        }
    });
    Dimension { lpm, sets }
}

fn places<A: Address>(pairs: &[Pair<A>]) -> Box<[Place]> {
    let len = (2 * pairs.len() + 1).next_power_of_two();
    let mut places = vec![Place { tag: 0, pair: FREE }; len].into_boxed_slice();
    for (number, pair) in pairs.iter().enumerate() {
        let hash = hash(pair.tuple, pair.src, pair.dst);
        let mut at = hash as usize & (len - 1);
        while places[at].pair != FREE {
            at = (at + 1) & (len - 1);
        }
        places[at] = Place { tag: tag(hash), pair: number as u32 };
    }
    places
}
