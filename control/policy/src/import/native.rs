//! Rules of a first-match list to native rules.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::{Action, Name, Position, read::Report};

use super::{
    conditions::{Conditions, Family, Parts, Range},
    first_match::{PARTS_MAX, StageRule, TooMuch, Unfolded, unfold},
};

/// IP protocol numbers (IANA).
pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
pub(super) const SCTP: u8 = 132;

/// A native rule, to be written.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct NativeRule {
    pub action: Action,
    /// Never empty.
    pub far: Vec<Far>,
    /// `None` is every packet.
    pub services: Option<Vec<NativeService>>,
    pub log: bool,
    /// The rules of the source that say so.
    pub of: Vec<(Position, String)>,
}

/// A peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Far {
    Net(IpNet),
    /// Ports with this label.
    Label(String),
}

/// A service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NativeService {
    Whole(u8),
    /// Of a protocol with ports; never with port 0.
    Ports(u8, Range),
    /// Type and code, of ICMP or ICMPv6.
    Icmp(u8, u8, Option<u8>),
}

/// A policy for some ports of a tenant.
#[derive(Debug)]
pub(super) struct NativePolicy {
    pub tenant: Name,
    pub name: Name,
    /// What it is made of, for the reader.
    pub of: (Position, String),
    pub ports: NativePorts,
    pub egress: Vec<NativeRule>,
    pub ingress: Vec<NativeRule>,
}

/// Whom a policy speaks of.
#[derive(Debug)]
pub(super) enum NativePorts {
    Named(Vec<Name>),
    Label(String),
}

/// Services that one rule may take for types and codes of ICMP.
const ICMP_SERVICES_MAX: usize = 256;

/// Makes native rules and says what they do not say: each thing once, in however many lists the rule is.
pub(super) struct Translator {
    /// Ports of SCTP are its own; in the behavioural model of DASH they are 0.
    has_sctp_ports: bool,
    /// What may still be unfolded.
    pub budget: usize,
    warned: BTreeSet<(Position, String)>,
}

impl Translator {
    pub fn new(has_sctp_ports: bool) -> Self {
        Self { has_sctp_ports, budget: PARTS_MAX, warned: BTreeSet::new() }
    }

    /// The native rules that decide as the stages do, for packets of one family.
    pub fn list(
        &mut self,
        stages: &[Vec<StageRule>],
        family: Family,
        report: &mut Report,
    ) -> Result<Vec<NativeRule>, TooMuch> {
        let list = unfold(stages, &mut self.budget)?;
        Ok(list.iter().filter_map(|rule| self.rule(rule, family, report)).collect())
    }

    /// The native rule, for packets of one family. What it cannot say makes an accepting rule go, and a denying one
    /// deny more: in a list of which the first match decides, neither lets anything through.
    fn rule(&mut self, rule: &Unfolded, family: Family, report: &mut Report) -> Option<NativeRule> {
        let hidden = hidden(&rule.when);
        if !hidden.is_empty() {
            let what = hidden.join(", ");
            self.warn(rule, &format!("native rules cannot ask for {what}"), true, report);
            if rule.is_accept {
                return None;
            }
        }
        let services = self.services(rule, report);
        if services.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let far = rule.when.far.clone().unwrap_or_else(|| vec![family.all()]);
        Some(NativeRule {
            action: if rule.is_accept { Action::Accept } else { Action::Deny },
            far: far.into_iter().map(Far::Net).collect(),
            services,
            log: rule.log,
            of: rule.of.clone(),
        })
    }

    fn services(&mut self, rule: &Unfolded, report: &mut Report) -> Option<Vec<NativeService>> {
        let Unfolded { is_accept, when: Conditions { protocols, dst_ports, .. }, .. } = rule;
        let whole =
            || protocols.as_ref().map(|all| all.iter().map(|one| NativeService::Whole(*one)).collect());
        if rule.when.icmp_types.is_some() || rule.when.icmp_codes.is_some() {
            return icmp(&rule.when).or_else(|| {
                let what =
                    format!("native rules cannot ask for more than {ICMP_SERVICES_MAX} types and codes");
                self.warn(rule, &what, true, report);
                if *is_accept { Some(vec![]) } else { whole() }
            });
        }
        let Some(ranges) = dst_ports else { return whole() };
        if ranges.iter().any(|range| range.first == 0) {
            self.warn(
                rule,
                "native rules cannot ask for port 0, nor for packets that have no port at all",
                false,
                report,
            );
            if !is_accept {
                return whole();
            }
        }
        let mut services = Vec::new();
        for protocol in protocols.as_ref().unwrap_or(&vec![TCP, UDP]) {
            match *protocol {
                TCP | UDP => services.extend(ports(*protocol, ranges)),
                // Where the source takes a port of SCTP for 0 and it is not, a denying rule means it.
                SCTP if self.has_sctp_ports || !is_accept => services.extend(ports(SCTP, ranges)),
                other => self.warn(
                    rule,
                    &format!("only TCP and UDP have ports: of protocol {other} it matches nothing"),
                    false,
                    report,
                ),
            }
        }
        Some(services)
    }

    /// At the first of the rules that is to blame.
    fn warn(&mut self, rule: &Unfolded, what: &str, is_whole: bool, report: &mut Report) {
        let (at, name) = rule.of.first().map_or((Position::default(), ""), |(at, name)| (*at, name));
        let done = match (rule.is_accept, is_whole) {
            (true, true) => "it accepts, and is left out",
            (true, false) => "it accepts only what can be said",
            (false, _) => "it denies, and denies without that condition",
        };
        let message = format!("rule {name}: {what}; {done}");
        if self.warned.insert((at, message.clone())) {
            let related = rule.of.get(1).map(|(at, _)| *at);
            let entry = report.warning(at, message);
            if let Some(related) = related {
                drop(entry.related(related, "together with this rule of the next stage"));
            }
        }
    }
}

/// A service for each type, and for each code of it where codes are asked for. `None` when that is too many.
fn icmp(when: &Conditions) -> Option<Vec<NativeService>> {
    let bytes = |ranges: &Parts<Range>| -> Vec<u8> {
        let all = |range: &Range| (range.first..=range.last).filter_map(|number| u8::try_from(number).ok());
        ranges.iter().flatten().flat_map(all).collect()
    };
    let types = if when.icmp_types.is_some() { bytes(&when.icmp_types) } else { (0..=u8::MAX).collect() };
    let codes: Vec<Option<u8>> = match &when.icmp_codes {
        None => vec![None],
        some => bytes(some).into_iter().map(Some).collect(),
    };
    let protocols = when.protocols.iter().flatten();
    let each = |protocol: &u8| {
        let pairs = types.iter().flat_map(|kind| codes.iter().map(|code| (*kind, *code)));
        pairs.map(|(kind, code)| NativeService::Icmp(*protocol, kind, code)).collect::<Vec<_>>()
    };
    (types.len() * codes.len() <= ICMP_SERVICES_MAX).then(|| protocols.flat_map(each).collect())
}

fn ports(protocol: u8, ranges: &[Range]) -> impl Iterator<Item = NativeService> {
    let named = ranges.iter().filter(|range| range.last > 0);
    named.map(move |range| NativeService::Ports(protocol, Range { first: range.first.max(1), ..*range }))
}

/// Conditions that a native rule has no words for.
fn hidden(when: &Conditions) -> Vec<String> {
    let mut hidden = Vec::new();
    if when.own.is_some() {
        hidden.push("addresses of the port's own host".into());
    }
    if when.src_ports.is_some() {
        hidden.push("source ports".into());
    }
    hidden.extend(when.others.iter().map(|name| crate::read::quote(name)));
    hidden
}
