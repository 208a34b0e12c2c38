//! What a match means for the packets of one port, direction and family: alternatives, of which each is a set of
//! conditions that are all to hold.
//!
//! `!` does not touch what a field presupposes: `!(tcp.dst == 80)` is TCP to another port, as OVN has it (it turns the
//! comparison around before it adds that the packet is TCP). `!tcp` is everything else.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use ipnet::IpNet;

use crate::{
    Direction,
    import::{
        conditions::{Conditions, Family, Range, outside},
        first_match::TooMuch,
        native::{ICMP, ICMPV6, SCTP, TCP, UDP},
    },
    read::quote,
};

use super::expression::{Comparison, Expression, Refused, Test, Value};

/// Alternatives of one match.
pub(super) const CLAUSES_MAX: usize = 1024;

/// What names in a match stand for.
pub(super) struct Names<'n> {
    /// Numbers of ports by name.
    pub ports: BTreeMap<&'n str, usize>,
    /// Ports of a group by its name.
    pub groups: BTreeMap<&'n str, Rc<BTreeSet<usize>>>,
    pub address_sets: BTreeMap<&'n str, Vec<IpNet>>,
    /// Of each port, by its number.
    pub addresses: Vec<Vec<IpNet>>,
}

impl Names<'_> {
    /// What `$name` stands for: an address set, or the addresses of a group's ports (`$group_ip4`, `$group_ip6`).
    fn address_set<'a>(&'a self, name: &str) -> Option<Box<dyn Iterator<Item = IpNet> + 'a>> {
        if let Some(set) = self.address_sets.get(name) {
            return Some(Box::new(set.iter().copied()));
        }
        let (name, family) = [("_ip4", Family::V4), ("_ip6", Family::V6)]
            .into_iter()
            .find_map(|(suffix, family)| Some((name.strip_suffix(suffix)?, family)))?;
        let addresses = self.groups.get(name)?.iter().flat_map(|port| &self.addresses[*port]).copied();
        Some(Box::new(addresses.filter(move |net| Family::of(*net) == family)))
    }
}

/// A match whose names are resolved.
#[derive(Debug)]
pub(super) enum Formula {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Is(bool),
    /// The packet is of a port in one of these.
    Port(Vec<Rc<BTreeSet<usize>>>),
    Family(Family),
    Protocol(Vec<Range>),
    /// The source or destination is in one of these.
    Nets(End, Family, Vec<IpNet>),
    /// The source or destination port of this protocol.
    Ports(End, u8, Vec<Range>),
    /// Type and code.
    IcmpType(Family, Vec<Range>),
    IcmpCode(Family, Vec<Range>),
    /// Native rules have no words for it.
    Unknown(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Source,
    Destination,
}

/// The packets that a match is asked about.
#[derive(Clone, Copy)]
pub(super) struct Packets {
    pub port: usize,
    pub direction: Direction,
    pub family: Family,
}

const PROTOCOLS: [(&str, u8); 3] = [("tcp", TCP), ("udp", UDP), ("sctp", SCTP)];

/// Resolves the names of a match. Addresses that it holds are taken from `budget`.
pub(super) fn resolve(
    expression: &Expression,
    direction: Direction,
    names: &Names,
    budget: &mut usize,
) -> Result<Formula, Refused> {
    let mut each = |parts: &[Expression]| -> Result<Vec<Formula>, Refused> {
        parts.iter().map(|part| resolve(part, direction, names, budget)).collect()
    };
    Ok(match expression {
        Expression::All(parts) => Formula::All(each(parts)?),
        Expression::Any(parts) => Formula::Any(each(parts)?),
        Expression::Not(inner) => Formula::Not(resolve(inner, direction, names, budget)?.into()),
        Expression::Is(is) => Formula::Is(*is),
        Expression::Flag(_, name) => flag(name),
        Expression::Test(test) => test_of(test, direction, names, budget)?,
    })
}

fn flag(name: &str) -> Formula {
    let protocol = |number: u8| Formula::Protocol(vec![one(number.into())]);
    let icmp = |family, number| Formula::All(vec![Formula::Family(family), protocol(number)]);
    let (icmp4, icmp6) = (icmp(Family::V4, ICMP), icmp(Family::V6, ICMPV6));
    match name {
        "ip" => Formula::Is(true),
        "ip4" => Formula::Family(Family::V4),
        "ip6" => Formula::Family(Family::V6),
        // Rules decide IP packets only.
        "arp" | "rarp" => Formula::Is(false),
        "icmp4" => icmp4,
        "icmp6" => icmp6,
        "icmp" => Formula::Any(vec![icmp4, icmp6]),
        name => match PROTOCOLS.iter().find(|(known, _)| *known == name) {
            Some((_, number)) => protocol(*number),
            None => Formula::Unknown(name.into()),
        },
    }
}

const fn one(number: u16) -> Range {
    Range { first: number, last: number }
}

fn test_of(test: &Test, direction: Direction, names: &Names, budget: &mut usize) -> Result<Formula, Refused> {
    let field = test.field.as_str();
    let formula = match field {
        "inport" | "outport" => ports_of_switch(test, direction, names)?,
        "ip4.src" => nets(test, End::Source, Family::V4, names, budget)?,
        "ip4.dst" => nets(test, End::Destination, Family::V4, names, budget)?,
        "ip6.src" => nets(test, End::Source, Family::V6, names, budget)?,
        "ip6.dst" => nets(test, End::Destination, Family::V6, names, budget)?,
        "ip.proto" => Formula::Protocol(ranges(test, Range::BYTES)?),
        "icmp4.type" => Formula::IcmpType(Family::V4, ranges(test, Range::BYTES)?),
        "icmp4.code" => Formula::IcmpCode(Family::V4, ranges(test, Range::BYTES)?),
        "icmp6.type" => Formula::IcmpType(Family::V6, ranges(test, Range::BYTES)?),
        "icmp6.code" => Formula::IcmpCode(Family::V6, ranges(test, Range::BYTES)?),
        _ => {
            let ends = [(".src", End::Source), (".dst", End::Destination)];
            let known = PROTOCOLS.iter().find_map(|(name, protocol)| {
                let rest = field.strip_prefix(name)?;
                ends.iter().find(|(end, _)| *end == rest).map(|(_, end)| (*end, *protocol))
            });
            match known {
                Some((end, protocol)) => Formula::Ports(end, protocol, ranges(test, Range::ALL)?),
                None => Formula::Unknown(field.into()),
            }
        }
    };
    Ok(match (test.comparison, formula) {
        // `!=` is the negation of `==`, for several values too: none of them.
        (Comparison::Unequal, formula) => Formula::Not(formula.into()),
        (_, formula) => formula,
    })
}

fn refused(at: usize, message: String) -> Refused {
    Refused { at, message, help: None }
}

/// `inport` from a port and `outport` to it: the port that the rules are of.
fn ports_of_switch(test: &Test, direction: Direction, names: &Names) -> Result<Formula, Refused> {
    let own = match direction {
        Direction::Egress => "inport",
        Direction::Ingress => "outport",
    };
    if test.field != own {
        return Ok(Formula::Unknown(test.field.clone()));
    }
    let mut ports = Vec::new();
    for (at, value) in &test.values {
        match value {
            // A port that is not there is none of those that are.
            Value::Text(name) => {
                ports.extend(names.ports.get(name.as_str()).map(|port| Rc::new(BTreeSet::from([*port]))));
            }
            Value::PortGroup(name) => {
                let group = names.groups.get(name.as_str()).cloned();
                ports.push(
                    group.ok_or_else(|| refused(*at, format!("there is no port group {}", quote(name))))?,
                );
            }
            _ => {
                let message = "expected the name of a port in quotes, or `@` and a port group";
                return Err(refused(*at, message.into()));
            }
        }
    }
    Ok(Formula::Port(ports))
}

fn nets(
    test: &Test,
    end: End,
    family: Family,
    names: &Names,
    budget: &mut usize,
) -> Result<Formula, Refused> {
    if !matches!(test.comparison, Comparison::Equal | Comparison::Unequal) {
        return Ok(Formula::Unknown(test.field.clone()));
    }
    let mut nets: Vec<IpNet> = Vec::new();
    for (at, value) in &test.values {
        match value {
            Value::Net(net) if Family::of(*net) == family => {
                if *net != net.trunc() {
                    return Err(refused(
                        *at,
                        format!("prefix {net} has host bits set; write {}", net.trunc()),
                    ));
                }
                nets.push(*net);
            }
            Value::AddressSet(name) => {
                let set = names.address_set(name);
                for net in
                    set.ok_or_else(|| refused(*at, format!("there is no address set {}", quote(name))))?
                {
                    *budget = budget.checked_sub(1).ok_or_else(|| {
                        refused(*at, "the address sets of all matches hold too much".into())
                    })?;
                    nets.extend((Family::of(net) == family).then_some(net));
                }
            }
            _ => {
                return Err(refused(
                    *at,
                    format!("expected an {} address, a prefix or `$` and an address set", family.name()),
                ));
            }
        }
    }
    nets.sort_unstable();
    nets.dedup();
    Ok(Formula::Nets(end, family, nets))
}

/// The numbers that are equal to one of the values, or below or above the only one.
fn ranges(test: &Test, all: Range) -> Result<Vec<Range>, Refused> {
    let mut ranges = Vec::new();
    for (at, value) in &test.values {
        let number = match value {
            Value::Number(number) => u16::try_from(*number).ok().filter(|number| *number <= all.last),
            _ => None,
        };
        let Some(number) = number else {
            return Err(refused(*at, format!("expected a number up to {}", all.last)));
        };
        let (first, last) = match test.comparison {
            Comparison::Equal | Comparison::Unequal => (Some(number), Some(number)),
            Comparison::Below => (Some(0), number.checked_sub(1)),
            Comparison::AtMost => (Some(0), Some(number)),
            Comparison::Above => (number.checked_add(1).filter(|first| *first <= all.last), Some(all.last)),
            Comparison::AtLeast => (Some(number), Some(all.last)),
        };
        ranges.extend(first.zip(last).map(|(first, last)| Range { first, last }));
    }
    Ok(ranges)
}

impl Formula {
    /// Ports that it names one by one, which therefore differ from others in the same groups.
    pub fn named(expression: &Expression, names: &Names, found: &mut BTreeSet<usize>) {
        match expression {
            Expression::All(parts) | Expression::Any(parts) => {
                parts.iter().for_each(|part| Self::named(part, names, found));
            }
            Expression::Not(inner) => Self::named(inner, names, found),
            Expression::Is(_) | Expression::Flag(..) => {}
            Expression::Test(test) => found.extend(test.values.iter().filter_map(|(_, value)| match value {
                Value::Text(name) => names.ports.get(name.as_str()),
                _ => None,
            })),
        }
    }

    /// The alternatives. What they cost is taken from `budget`.
    pub fn clauses(
        &self,
        is_negated: bool,
        packets: Packets,
        budget: &mut usize,
    ) -> Result<Vec<Conditions>, TooMuch> {
        let constant = |is: bool| if is == is_negated { vec![] } else { vec![Conditions::default()] };
        *budget = budget.checked_sub(1).ok_or(TooMuch)?;
        let clauses = match (self, is_negated) {
            (Self::All(parts), false) | (Self::Any(parts), true) => {
                return all(parts, is_negated, packets, budget);
            }
            (Self::Any(parts), false) | (Self::All(parts), true) => {
                let mut clauses = Vec::new();
                for part in parts {
                    clauses.extend(part.clauses(is_negated, packets, budget)?);
                    if clauses.len() > CLAUSES_MAX {
                        return Err(TooMuch);
                    }
                }
                return Ok(clauses);
            }
            (Self::Not(inner), _) => return inner.clauses(!is_negated, packets, budget),
            (Self::Is(is), _) => constant(*is),
            (Self::Port(ports), _) => constant(ports.iter().any(|some| some.contains(&packets.port))),
            (Self::Family(family), _) => constant(*family == packets.family),
            (Self::Nets(_, family, _) | Self::IcmpType(family, _) | Self::IcmpCode(family, _), _)
                if *family != packets.family =>
            {
                vec![]
            }
            (atom, _) => vec![atom.conditions(is_negated, packets, budget)?],
        };
        Ok(clauses)
    }

    /// Of a comparison of a field that the packets have.
    fn conditions(
        &self,
        is_negated: bool,
        packets: Packets,
        budget: &mut usize,
    ) -> Result<Conditions, TooMuch> {
        let but =
            |ranges: &[Range], all: Range| if is_negated { all.without(ranges) } else { ranges.to_vec() };
        let mut when = Conditions::default();
        match self {
            Self::Protocol(ranges) => {
                let numbers =
                    but(ranges, Range::BYTES).into_iter().flat_map(|range| range.first..=range.last);
                when.protocols = Some(numbers.filter_map(|number| u8::try_from(number).ok()).collect());
            }
            Self::Nets(end, family, nets) => {
                let bits = family.all().max_prefix_len();
                let cost = if is_negated { nets.len() * usize::from(bits) } else { nets.len() };
                *budget = budget.checked_sub(cost).ok_or(TooMuch)?;
                let nets = if is_negated { outside(family.all(), nets) } else { nets.clone() };
                match (packets.direction, end) {
                    (Direction::Egress, End::Source) | (Direction::Ingress, End::Destination) => {
                        when.own = Some(nets);
                    }
                    _ => when.far = Some(nets),
                }
            }
            Self::Ports(end, protocol, ranges) => {
                when.protocols = Some(vec![*protocol]);
                let ranges = Some(but(ranges, Range::ALL));
                match end {
                    End::Source => when.src_ports = ranges,
                    End::Destination => when.dst_ports = ranges,
                }
            }
            Self::IcmpType(family, ranges) => {
                when.protocols = Some(vec![icmp_of(*family)]);
                when.icmp_types = Some(but(ranges, Range::BYTES));
            }
            Self::IcmpCode(family, ranges) => {
                when.protocols = Some(vec![icmp_of(*family)]);
                when.icmp_codes = Some(but(ranges, Range::BYTES));
            }
            Self::Unknown(name) => when.others.push(name.clone()),
            // These are no comparisons: `clauses` has dealt with them.
            Self::All(_) | Self::Any(_) | Self::Not(_) | Self::Is(_) | Self::Port(_) | Self::Family(_) => {}
        }
        Ok(when.simplified(packets.family))
    }
}

const fn icmp_of(family: Family) -> u8 {
    match family {
        Family::V4 => ICMP,
        Family::V6 => ICMPV6,
    }
}

/// Every alternative of a part together with every one of the others.
fn all(
    parts: &[Formula],
    is_negated: bool,
    packets: Packets,
    budget: &mut usize,
) -> Result<Vec<Conditions>, TooMuch> {
    let mut clauses = vec![Conditions::default()];
    for part in parts {
        let others = part.clauses(is_negated, packets, budget)?;
        let mut both = Vec::new();
        for (clause, other) in
            clauses.iter().flat_map(|clause| others.iter().map(move |other| (clause, other)))
        {
            *budget = budget.checked_sub(1 + clause.others.len()).ok_or(TooMuch)?;
            let when = clause.and(other, budget).ok_or(TooMuch)?;
            if !when.is_nothing() {
                both.push(when);
            }
            if both.len() > CLAUSES_MAX {
                return Err(TooMuch);
            }
        }
        clauses = both;
    }
    Ok(clauses)
}
