//! A program and a report as the API shows them.

use std::collections::BTreeMap;

use compile::explain::{peer_text, service_text};
use program::{DropCount, DropReason, Program, Report, Rule, RuleId, RuleListId, Verdict};

use crate::{
    api::{Drop, DropPlace, PortSummary, ProgramSummary, RuleEntry, Rules, TenantSummary},
    apply::{counts, digest},
};

pub(crate) fn program(program: &Program) -> ProgramSummary {
    let tenant = |tenant: &program::Tenant| TenantSummary {
        name: tenant.name.clone(),
        vni: tenant.vni.0,
        endpoints: tenant.endpoints.len(),
    };
    let port = |port: &program::Port| PortSummary {
        name: program.port_name(port.id).into(),
        tenant: program.tenant(port.tenant).map_or("?", |tenant| &tenant.name).into(),
        mac: port.mac.to_string(),
        addresses: port.addresses.clone(),
    };
    ProgramSummary {
        generation: program.generation.0,
        digest: digest(program),
        sources: program.sources.clone(),
        counts: counts(program),
        tenants: program.tenants.iter().flatten().map(tenant).collect(),
        ports: program.ports.iter().flatten().map(port).collect(),
        uplink: program.uplink.as_ref().map(|uplink| program.port_name(uplink.port).into()),
    }
}

/// The first `limit` rules.
pub(crate) fn rules(program: &Program, limit: usize) -> Rules {
    let egress = askers(program, limit, |port| port.egress);
    let ingress = askers(program, limit, |port| port.ingress);
    let named = |ports: &[Vec<usize>], rule: usize| {
        ports[rule]
            .iter()
            .map(|&port| program.devices.get(port).map_or("?", |device| &device.name).to_owned())
            .collect()
    };
    let entry = |(index, (id, rule)): (usize, (RuleId, &Rule))| RuleEntry {
        origin: program.origin(id),
        verdict: verdict(rule.verdict).into(),
        peers: rule.peers.as_ref().map(|peers| peers.iter().map(peer_text).collect()),
        services: rule.services.iter().copied().map(service_text).collect(),
        log: rule.log,
        egress: named(&egress, index),
        ingress: named(&ingress, index),
    };
    Rules {
        rules: program.rules.iter().take(limit).enumerate().map(entry).collect(),
        truncated: program.rules.len() > limit,
    }
}

/// For each of the first `limit` rules the indices of the ports whose list holds it.
fn askers(program: &Program, limit: usize, list: impl Fn(&program::Port) -> RuleListId) -> Vec<Vec<usize>> {
    let mut askers = vec![Vec::new(); program.rules.len().min(limit)];
    for port in program.ports.iter().flatten() {
        for (rule, _) in program.rules.list(list(port)) {
            if let Some(ports) = askers.get_mut(rule.0 as usize) {
                ports.push(usize::from(port.id.0));
            }
        }
    }
    askers
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accept => "accept",
        Verdict::Deny => "deny",
        Verdict::Pass => "pass",
    }
}

/// Every drop reason, in the order of their numbers, with its counts that are not zero.
///
/// A tenant's count holds those of its ports, so the total is that of the tenants and of the ports without one.
pub(crate) fn drops(report: &Report) -> Vec<Drop> {
    let without_tenant = report.ports.iter().filter(|port| port.tenant.is_empty()).map(|port| &port.drops);
    let mut packets: BTreeMap<&str, u64> = BTreeMap::new();
    for count in without_tenant.chain(report.tenants.iter().map(|tenant| &tenant.drops)).flatten() {
        *packets.entry(count.reason.as_str()).or_default() += count.packets;
    }
    let ports = report.ports.iter().map(|port| (port.name.as_str(), port.drops.as_slice()));
    let tenants = report.tenants.iter().map(|tenant| (tenant.name.as_str(), tenant.drops.as_slice()));
    let (mut ports, mut tenants) = (by_reason(ports), by_reason(tenants));
    let drop = |reason: &DropReason| Drop {
        reason: reason.name().into(),
        meaning: reason.meaning().trim().into(),
        packets: packets.get(reason.name()).copied().unwrap_or_default(),
        ports: ports.remove(reason.name()).unwrap_or_default(),
        tenants: tenants.remove(reason.name()).unwrap_or_default(),
    };
    DropReason::ALL.iter().map(drop).collect()
}

fn by_reason<'a>(
    places: impl Iterator<Item = (&'a str, &'a [DropCount])>,
) -> BTreeMap<&'a str, Vec<DropPlace>> {
    let mut reasons: BTreeMap<&str, Vec<DropPlace>> = BTreeMap::new();
    for (name, counts) in places {
        for count in counts.iter().filter(|count| count.packets > 0) {
            let place = DropPlace { name: name.into(), packets: count.packets };
            reasons.entry(count.reason.as_str()).or_default().push(place);
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holes are skipped, and ids that lead nowhere do no harm.
    #[test]
    fn a_program_with_holes_is_shown() {
        let port = program::Port {
            id: program::PortId(1),
            tenant: program::TenantId(9),
            mac: Default::default(),
            addresses: vec![],
            mtu: 1500,
            egress: RuleListId(7),
            ingress: RuleListId(0),
        };
        let mut program =
            Program { tenants: vec![None], ports: vec![None, Some(port)], ..Program::default() };
        let rule = Rule {
            tier: program::Tier::Tenant,
            verdict: Verdict::Deny,
            peers: None,
            services: vec![],
            log: false,
            origin: program::Origin { source: "a".into(), line: 1 },
        };
        let set = program::RuleSet { rules: vec![rule], lists: vec![vec![0, 5]] };
        program.rules.push(program::TenantId(0), set.into());
        let summary = super::program(&program);
        assert!(summary.tenants.is_empty());
        assert_eq!((summary.ports[0].name.as_str(), summary.ports[0].tenant.as_str()), ("?", "?"));
        let rules = rules(&program, 10).rules;
        assert_eq!((rules[0].origin.as_str(), &rules[0].egress[..]), ("a:1", &[][..]));
        assert_eq!(rules[0].ingress, ["?"]);
    }
}
