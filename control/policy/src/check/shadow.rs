//! Rules that decide nothing, since one earlier rule of the same list matches all that they match.
//!
//! Only one rule is held against another, by what is written: two that cover a third between them are not seen, nor
//! is a prefix that happens to hold a port's address.

use ipnet::IpNet;

use crate::{Peer, Protocol, Rule, Selector, Service, limit::SHADOW_COMPARISONS_MAX, read::Report};

/// UDP destination port of RoCEv2 (InfiniBand annex A17).
const ROCE_PORT: u16 = 4791;

/// Looks for shadowed rules until it has compared [`SHADOW_COMPARISONS_MAX`] peers and services.
pub(super) struct Shadows {
    comparisons_left: usize,
    has_given_up: bool,
}

impl Shadows {
    pub const fn new() -> Self {
        Self { comparisons_left: SHADOW_COMPARISONS_MAX, has_given_up: false }
    }

    /// What is left to compare. What took less than is left says the same whenever that is so.
    pub const fn comparisons_left(&self) -> usize {
        self.comparisons_left
    }

    /// Takes what was compared before.
    pub const fn spend(&mut self, comparisons: usize) {
        self.comparisons_left = self.comparisons_left.saturating_sub(comparisons);
    }

    pub fn look_for(&mut self, rules: &[Rule], report: &mut Report) {
        let decides_all = |rule: &Rule| rule.peers.is_none() && rule.services.is_none();
        let last = rules.iter().position(decides_all);
        if let Some((last, rule)) = last.and_then(|last| Some((last, rules.get(last + 1)?))) {
            report
                .warning(rule.at, "no packet comes to this rule, nor to those below it")
                .related(rules[last].at, "this rule decides every packet");
        }
        let reached = &rules[..last.map_or(rules.len(), |last| last + 1)];
        for (index, rule) in reached.iter().enumerate().filter(|(_, rule)| !matches_nothing(rule)) {
            if self.comparisons_left == 0 {
                return self.give_up(rule, report);
            }
            let shadow = reached[..index]
                .iter()
                .find(|earlier| self.can_compare(earlier, rule) && covers(earlier, rule));
            if let Some(earlier) = shadow {
                report
                    .warning(rule.at, "no packet comes to this rule")
                    .related(earlier.at, "this rule decides all that it matches");
            }
        }
    }

    /// Says once that there is too much to compare.
    fn give_up(&mut self, rule: &Rule, report: &mut Report) {
        if !std::mem::replace(&mut self.has_given_up, true) {
            let message = format!(
                "rules from here on are not searched for shadowed ones: that takes more than {SHADOW_COMPARISONS_MAX} comparisons"
            );
            report.warning(rule.at, message);
        }
    }

    /// Takes what the comparison costs from what is left.
    fn can_compare(&mut self, a: &Rule, b: &Rule) -> bool {
        let len = |rule: &Rule| {
            (rule.peers.as_ref().map_or(1, Vec::len), rule.services.as_ref().map_or(1, Vec::len))
        };
        let ((a_peers, a_services), (b_peers, b_services)) = (len(a), len(b));
        let cost = 1 + a_peers.saturating_mul(b_peers).saturating_add(a_services.saturating_mul(b_services));
        self.comparisons_left = self.comparisons_left.saturating_sub(cost);
        self.comparisons_left > 0
    }
}

fn matches_nothing(rule: &Rule) -> bool {
    rule.peers.as_ref().is_some_and(Vec::is_empty) || rule.services.as_ref().is_some_and(Vec::is_empty)
}

fn covers(a: &Rule, b: &Rule) -> bool {
    // Ports differ more often than peers do, and take less to compare.
    all_covered(a.services.as_deref(), b.services.as_deref(), covers_service)
        && all_covered(a.peers.as_deref(), b.peers.as_deref(), covers_peer)
}

/// `None` is everything.
fn all_covered<T>(a: Option<&[T]>, b: Option<&[T]>, covers: fn(&T, &T) -> bool) -> bool {
    match (a, b) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(a), Some(b)) => b.iter().all(|b| a.iter().any(|a| covers(a, b))),
    }
}

fn covers_peer(a: &Peer, b: &Peer) -> bool {
    match (a, b) {
        (Peer::IpBlock { cidr: a, except: a_except }, Peer::IpBlock { cidr: b, except: b_except }) => {
            let is_left = |part: &IpNet| !b.contains(part) && !part.contains(&b.value);
            let is_out_of_both = |part: &IpNet| b_except.iter().any(|other| other.value.contains(part));
            a.contains(&b.value)
                && a_except.iter().all(|part| is_left(&part.value) || is_out_of_both(&part.value))
        }
        (Peer::Ports(a), Peer::Ports(b)) => crate::has_labels(b, a),
        (Peer::Remote(a), Peer::Remote(b))
        | (Peer::Tag(a), Peer::Tag(b))
        | (Peer::Tenant(a), Peer::Tenant(b)) => a.value == b.value,
        (Peer::Pods { tenants: a, pods: a_pods, .. }, Peer::Pods { tenants: b, pods: b_pods, .. }) => {
            let is_same_tenant = a == b || a.as_ref().is_none_or(is_empty);
            is_same_tenant && (a_pods == b_pods || is_empty(a_pods))
        }
        _ => false,
    }
}

fn is_empty(selector: &Selector) -> bool {
    *selector == Selector::default()
}

fn covers_service(a: &Service, b: &Service) -> bool {
    let holds = |a: &Option<u8>, b: &Option<u8>| a.is_none() || a == b;
    match (a, b) {
        (Service::Number(number), any) => protocol(any) == Some(*number),
        (Service::Ports(a, first, last), Service::Ports(b, b_first, b_last)) => {
            a == b && first <= b_first && b_last <= last
        }
        (Service::Ports(Protocol::Udp, first, last), Service::Roce(..)) => {
            (*first..=*last).contains(&ROCE_PORT)
        }
        (Service::Roce(first, last), Service::Roce(b_first, b_last)) => first <= b_first && b_last <= last,
        (Service::Icmp(kind, code), Service::Icmp(b_kind, b_code))
        | (Service::Icmpv6(kind, code), Service::Icmpv6(b_kind, b_code)) => {
            holds(kind, b_kind) && holds(code, b_code)
        }
        (Service::Named(..), Service::Named(..)) => a == b,
        _ => false,
    }
}

/// The IP protocol, unless it hangs on a name.
const fn protocol(service: &Service) -> Option<u8> {
    match service {
        Service::Ports(Protocol::Tcp, ..) => Some(6),
        Service::Ports(Protocol::Udp, ..) | Service::Roce(..) => Some(17),
        Service::Ports(Protocol::Sctp, ..) => Some(132),
        Service::Icmp(..) => Some(1),
        Service::Icmpv6(..) => Some(58),
        Service::Number(number) => Some(*number),
        Service::Named(..) => None,
    }
}
