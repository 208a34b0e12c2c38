//! Tiers that decide nothing: whatever a tenant's ports send, or are sent, is decided before.
//!
//! Only what one rule of each family says is seen: one that speaks of every packet from or to every address. Two that do
//! so together are not seen, so that what is told is always true, and not always all.

use std::{collections::BTreeMap, net::IpAddr};

use policy::{Diagnostic, Diagnostics, Policy, Position, Severity};
use program::{Port, Program, Rule, RuleId, Tenant, TenantId, Tier, Verdict};

use crate::explain::Side;

/// Tenants that a warning names before it says how many more there are.
const NAMED_MAX: usize = 3;

/// A tier of a tenant that has rules, of which none decides a packet of that side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Unreached {
    /// Whose.
    pub tenant: TenantId,
    /// What the ports send, or are sent.
    pub side: Side,
    /// Which tier.
    pub tier: Tier,
    /// The first of its rules.
    pub first: RuleId,
    /// A rule of an earlier tier that decides all that would come to it; at another port it may be another one.
    pub decided_by: RuleId,
}

/// Every tier that no port of its tenant reaches, though some port has rules of it. Ports without an address have no
/// packets and are not asked.
pub fn unreached(program: &Program) -> Vec<Unreached> {
    let mut found = Vec::new();
    let mut ports: BTreeMap<TenantId, Vec<&Port>> = BTreeMap::new();
    for port in program.ports.iter().flatten().filter(|port| !port.addresses.is_empty()) {
        ports.entry(port.tenant).or_default().push(port);
    }
    for (tenant, ports) in &ports {
        for side in [Side::Egress, Side::Ingress] {
            for tier in [Tier::Tenant, Tier::Baseline] {
                let asked = ports.iter().map(|port| View { program, port, side });
                let mut views = asked.filter_map(|view| Some((view.first_of(tier)?, view))).peekable();
                let Some((first, _)) = views.peek().cloned() else { continue };
                let deciding: Option<Vec<RuleId>> = views.map(|(_, view)| view.closed_before(tier)).collect();
                let deciding = deciding.and_then(|rules| rules.first().copied());
                found.extend(deciding.map(|decided_by| Unreached {
                    tenant: *tenant,
                    side,
                    tier,
                    first,
                    decided_by,
                }));
            }
        }
    }
    found
}

/// The list of one port and side.
#[derive(Clone)]
struct View<'p> {
    program: &'p Program,
    port: &'p Port,
    side: Side,
}

impl<'p> View<'p> {
    fn rules(&self) -> impl DoubleEndedIterator<Item = (RuleId, &'p Rule)> + use<'p> {
        let list = match self.side {
            Side::Egress => self.port.egress,
            Side::Ingress => self.port.ingress,
        };
        self.program.rules.list(list).filter_map(|(id, rule)| Some((id, rule?)))
    }

    fn first_of(&self, tier: Tier) -> Option<RuleId> {
        // Earlier tiers stand first, so that most lists end before the tier.
        self.rules().next_back().filter(|(_, last)| last.tier >= tier)?;
        self.rules().find(|(_, rule)| rule.tier == tier).map(|(id, _)| id)
    }

    /// The rule that decides what is left of the packets that the port can have, when that is before the tier.
    fn closed_before(&self, tier: Tier) -> Option<RuleId> {
        let families = [true, false].into_iter().filter(|is_v4| self.has_family(*is_v4));
        let closing: Option<Vec<RuleId>> = families.map(|is_v4| self.closing(is_v4, tier)).collect();
        closing?.into_iter().max_by_key(|closing| self.rules().position(|(id, _)| id == *closing))
    }

    /// Both ends of a packet are of one family.
    fn has_family(&self, is_v4: bool) -> bool {
        self.port.addresses.iter().any(|address| address.is_ipv4() == is_v4)
    }

    /// The first rule before `tier` that decides every packet of the family. One that follows a rule of its own tier which
    /// passes on does not: what is passed on never comes to it.
    fn closing(&self, is_v4: bool, tier: Tier) -> Option<RuleId> {
        let mut passing = None;
        for (id, rule) in self.rules().take_while(|(_, rule)| rule.tier < tier) {
            match rule.verdict {
                Verdict::Pass => passing = Some(rule.tier),
                _ if passing != Some(rule.tier) && is_for_all(rule, is_v4) => return Some(id),
                _ => {}
            }
        }
        None
    }
}

/// True when the rule speaks of every packet of the family.
fn is_for_all(rule: &Rule, is_v4: bool) -> bool {
    let is_whole = |block: &program::PeerBlock| {
        let IpAddr::V4(_) = block.net.addr() else { return !is_v4 && block.net.prefix_len() == 0 };
        is_v4 && block.net.prefix_len() == 0
    };
    let has_all = |blocks: &Vec<program::PeerBlock>| {
        blocks.iter().any(|block| is_whole(block) && block.except.is_empty())
    };
    rule.services.is_empty() && rule.peers.as_ref().is_none_or(has_all)
}

/// One warning for each rule that tiers of tenants begin with, and for each that decides before.
pub(crate) fn warnings(policy: &Policy, program: &Program) -> Diagnostics {
    let mut tenants: BTreeMap<(Position, Position, Side, Tier), Vec<&str>> = BTreeMap::new();
    for Unreached { tenant, side, tier, first, decided_by } in unreached(program) {
        let [at, before] = [first, decided_by].map(|rule| position(policy, program, rule));
        let name = program.tenant(tenant).map_or("?", |Tenant { name, .. }| name);
        tenants.entry((at, before, side, tier)).or_default().push(name);
    }
    let mut warnings = Diagnostics::default();
    for ((at, before, side, tier), mut names) in tenants {
        names.sort_unstable();
        let whose = match side {
            Side::Egress => format!("that {} send", named(&names)),
            Side::Ingress => format!("that {} are sent", named(&names)),
        };
        let message =
            format!("no packet {whose} comes to the {} tier, of which this is the first rule", tier.name());
        let warning = Diagnostic::new(Severity::Warning, policy.place(at), message);
        warnings.push(warning.with_related(policy.place(before), "this decides all of them before"));
    }
    warnings
}

fn named(tenants: &[&str]) -> String {
    let more = tenants.len().saturating_sub(NAMED_MAX);
    let shown = tenants[..tenants.len() - more].join(", ");
    match (tenants.len(), more) {
        (1, _) => format!("ports of tenant {shown}"),
        (_, 0) => format!("ports of the tenants {shown}"),
        _ => format!("ports of the tenants {shown} and {more} more"),
    }
}

/// Where a rule was written, with its column.
fn position(policy: &Policy, program: &Program, rule: RuleId) -> Position {
    let origin = program.rules.rule(rule).map_or_else(Default::default, |rule| rule.origin.clone());
    let own = policy.policies.iter().flat_map(|policy| policy.egress.iter().chain(&policy.ingress));
    let clusters =
        policy.cluster_policies.iter().flat_map(|policy| policy.egress.iter().chain(&policy.ingress));
    let networks = policy.network_policies.iter().map(|policy| policy.name.at);
    let mut all = own.chain(clusters).map(|rule| rule.at).chain(networks);
    let source = policy.sources.iter().position(|name| *name == origin.source).unwrap_or_default() as u32;
    let found = all.find(|at| (at.source, at.line) == (source, origin.line));
    found.unwrap_or(Position { source, line: origin.line, column: 1 })
}
