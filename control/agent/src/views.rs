//! A program and a report as the API shows them.

use std::collections::BTreeMap;

use program::{
    DropCount, DropReason, PeerBlock, PortRange, Program, QpRange, Report, Rule, RuleId, RuleListId,
    ServiceMatch, Verdict,
};

use crate::{
    api::{Drop, DropPlace, PortSummary, ProgramSummary, RuleEntry, Rules, TenantSummary},
    apply::{counts, digest},
};

/// Queue pair numbers have 24 bits.
const QP_MAX: u32 = 0xff_ffff;

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
    let entry = |(index, rule): (usize, &Rule)| RuleEntry {
        origin: program.origin(RuleId(index as u32)),
        verdict: verdict(rule.verdict).into(),
        peers: rule.peers.as_ref().map(|peers| peers.iter().map(peer).collect()),
        services: rule.services.iter().copied().map(service).collect(),
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
        let rules = program.rule_lists.get(list(port).0 as usize).map_or(&[][..], Vec::as_slice);
        for rule in rules {
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

fn peer(block: &PeerBlock) -> String {
    let except: Vec<String> = block.except.iter().map(ToString::to_string).collect();
    match except.is_empty() {
        true => block.net.to_string(),
        false => format!("{} except {}", block.net, except.join(" ")),
    }
}

fn service(service: ServiceMatch) -> String {
    let icmp = |name: &str, kind: Option<u8>, code: Option<u8>| match (kind, code) {
        (None, _) => name.to_owned(),
        (Some(kind), None) => format!("{name}/{kind}"),
        (Some(kind), Some(code)) => format!("{name}/{kind}/{code}"),
    };
    match service {
        ServiceMatch::Tcp(range) => ports("tcp", range),
        ServiceMatch::Udp(range) => ports("udp", range),
        ServiceMatch::Sctp(range) => ports("sctp", range),
        ServiceMatch::Icmp(kind, code) => icmp("icmp", kind, code),
        ServiceMatch::Icmpv6(kind, code) => icmp("icmpv6", kind, code),
        ServiceMatch::Roce(QpRange { first: 0, last: QP_MAX }) => "roce".into(),
        ServiceMatch::Roce(QpRange { first, last }) if first == last => format!("roce/qp {first:#x}"),
        ServiceMatch::Roce(QpRange { first, last }) => format!("roce/qp {first:#x}-{last:#x}"),
        ServiceMatch::Protocol(protocol) => format!("protocol {protocol}"),
    }
}

fn ports(name: &str, range: PortRange) -> String {
    match range {
        PortRange::ALL => name.into(),
        PortRange { first, last } if first == last => format!("{name}/{first}"),
        PortRange { first, last } => format!("{name}/{first}-{last}"),
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

    #[test]
    fn services_are_spelled_shortly() {
        let range = |first, last| PortRange { first, last };
        for (match_, expected) in [
            (ServiceMatch::Tcp(PortRange::ALL), "tcp"),
            (ServiceMatch::Udp(range(53, 53)), "udp/53"),
            (ServiceMatch::Sctp(range(1, 65_535)), "sctp/1-65535"),
            (ServiceMatch::Icmp(None, None), "icmp"),
            (ServiceMatch::Icmp(Some(3), None), "icmp/3"),
            (ServiceMatch::Icmpv6(Some(1), Some(4)), "icmpv6/1/4"),
            (ServiceMatch::Roce(QpRange { first: 0, last: QP_MAX }), "roce"),
            (ServiceMatch::Roce(QpRange { first: 0, last: 15 }), "roce/qp 0x0-0xf"),
            (ServiceMatch::Roce(QpRange { first: 17, last: 17 }), "roce/qp 0x11"),
            (ServiceMatch::Protocol(47), "protocol 47"),
        ] {
            assert_eq!(service(match_), expected);
        }
    }

    #[test]
    fn peers_are_spelled_with_their_exceptions() {
        let net = |text: &str| text.parse().unwrap();
        let whole = PeerBlock { net: net("10.0.0.0/8"), except: vec![] };
        assert_eq!(peer(&whole), "10.0.0.0/8");
        let holed = PeerBlock { except: vec![net("10.1.0.0/16"), net("10.2.0.0/16")], ..whole };
        assert_eq!(peer(&holed), "10.0.0.0/8 except 10.1.0.0/16 10.2.0.0/16");
    }

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
        let program = Program {
            tenants: vec![None],
            ports: vec![None, Some(port)],
            rules: vec![Rule {
                tier: program::Tier::Tenant,
                verdict: Verdict::Deny,
                peers: None,
                services: vec![],
                origin: program::Origin { source: 3, line: 1 },
            }],
            rule_lists: vec![vec![RuleId(0), RuleId(5)]],
            ..Program::default()
        };
        let summary = super::program(&program);
        assert!(summary.tenants.is_empty());
        assert_eq!((summary.ports[0].name.as_str(), summary.ports[0].tenant.as_str()), ("?", "?"));
        let rules = rules(&program, 10).rules;
        assert_eq!((rules[0].origin.as_str(), &rules[0].egress[..]), ("?:1", &[][..]));
        assert_eq!(rules[0].ingress, ["?"]);
    }
}
