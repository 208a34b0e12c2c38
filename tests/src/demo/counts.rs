//! Reading floodway's counters.

use program::{DropCount, DropReason, Report};

use super::world::Tenant;

/// Packets of that tenant dropped for that reason.
pub fn dropped(report: &Report, tenant: Tenant, reason: DropReason) -> u64 {
    let tenant = report.tenants.iter().find(|other| other.name == tenant.name());
    tenant.map_or(0, |tenant| of_reason(&tenant.drops, reason.name()))
}

/// Packets dropped, each once: a port's drops are part of its tenant's.
pub fn dropped_in_all(report: &Report) -> u64 {
    let ports = report.ports.iter().filter(|port| port.tenant.is_empty()).flat_map(|port| &port.drops);
    let tenants = report.tenants.iter().flat_map(|tenant| &tenant.drops);
    ports.chain(tenants).map(|drop| drop.packets).sum()
}

/// Packets received by a port.
pub fn received(report: &Report, port: &str) -> u64 {
    report.ports.iter().find(|other| other.name == port).map_or(0, |port| port.traffic.rx_packets)
}

/// `reason +packets` for each reason of which there are more in `after`.
pub fn reasons(before: &Report, after: &Report) -> Vec<String> {
    let count = |report: &Report, reason: &str| {
        report.tenants.iter().map(|tenant| of_reason(&tenant.drops, reason)).sum::<u64>()
    };
    let risen = DropReason::ALL
        .iter()
        .map(|reason| (reason.name(), count(after, reason.name()) - count(before, reason.name())));
    risen.filter(|(_, more)| *more > 0).map(|(name, more)| format!("{name} +{more}")).collect()
}

/// Packets of all ports: received and made here, sent, dropped.
pub fn balance(report: &Report) -> (u64, u64, u64) {
    let ports = || report.ports.iter();
    let taken = ports().map(|port| port.traffic.rx_packets + port.originated).sum();
    let left = ports().map(|port| port.traffic.tx_packets).sum();
    (taken, left, dropped_in_all(report))
}

fn of_reason(drops: &[DropCount], reason: &str) -> u64 {
    drops.iter().filter(|drop| drop.reason == reason).map(|drop| drop.packets).sum()
}
