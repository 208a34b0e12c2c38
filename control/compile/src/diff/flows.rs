//! Open flows that another program would judge otherwise.

use std::net::IpAddr;

use program::{DropReason, Flow, FlowRecord, Ingress, PortId, Program, Service, VtepId};
use serde::{Deserialize, Serialize};

use crate::explain::{Packet, mirror, reversed};

/// Most flows that are listed.
pub const FLOW_CHANGES_MAX: usize = 1000;

/// What becomes of the flows that are open.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlowChanges {
    /// Entries that were looked at.
    pub judged: usize,
    /// Entries that could not be judged.
    pub unjudged: usize,
    /// Entries that would change their verdict.
    pub changed: usize,
    /// The first of them.
    pub list: Vec<FlowChange>,
    /// True when there are more entries than were looked at.
    pub is_cut: bool,
}

/// An open flow that would be judged otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowChange {
    /// Whose it is.
    pub tenant: String,
    /// Where it comes in.
    pub from: String,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// As `show flows` has it.
    pub service: String,
    /// Packets so far.
    pub packets: u64,
    /// Verdict now.
    pub before: String,
    /// Verdict then: `accept`, `accept (reply)` or a drop reason.
    pub after: String,
}

/// Judges flow entries by the program that is to come.
pub fn flows(new: &Program, records: &[FlowRecord], is_cut: bool) -> FlowChanges {
    let mut changes = FlowChanges { is_cut, ..FlowChanges::default() };
    for record in records {
        let Some(after) = judge(new, record) else {
            changes.unjudged += 1;
            continue;
        };
        changes.judged += 1;
        if record.verdict.starts_with("accept") == after.starts_with("accept") {
            continue;
        }
        changes.changed += 1;
        if changes.list.len() < FLOW_CHANGES_MAX {
            changes.list.push(FlowChange {
                tenant: record.tenant.clone(),
                from: record.from.clone(),
                src: record.src,
                dst: record.dst,
                service: record.service.clone(),
                packets: record.packets,
                before: record.verdict.clone(),
                after,
            });
        }
    }
    changes
}

/// What the program says of an entry; `None` when its words cannot be read.
fn judge(program: &Program, record: &FlowRecord) -> Option<String> {
    let (service, src_port) = service_of(&record.service)?;
    let Some(tenant) = program.tenants.iter().flatten().find(|tenant| tenant.name == record.tenant) else {
        return Some(DropReason::NoTenant.name().into());
    };
    let named = |vtep: &Option<program::Vtep>| vtep.as_ref().is_some_and(|vtep| vtep.name == record.from);
    let port = program.devices.iter().position(|device| device.name == record.from);
    let ingress = match (port, program.vteps.iter().position(named)) {
        (Some(port), _) => Ingress::Port(PortId(port as u16)),
        (None, Some(vtep)) => Ingress::Vtep(VtepId(vtep as u16)),
        (None, None) => return Some(DropReason::UnknownVtep.name().into()),
    };
    let flow = Flow { tenant: tenant.id, ingress, src: record.src, dst: record.dst, service, src_port };
    let refused = match program.judge(&flow) {
        Ok(_) => return Some("accept".into()),
        Err(refused) => refused.reason,
    };
    let by_rules = matches!(refused, DropReason::PolicyDeny | DropReason::PolicyDefault);
    let is_reply = record.verdict == "accept (reply)";
    let opener = match service_of(&record.answers) {
        // The pair of a reply of RoCEv2 knows which queue pair it answers.
        Some((service, _)) => reversed(program, &flow, service, 0),
        None => mirror(program, &Packet::default_of(flow)),
    };
    let stays = by_rules && is_reply && opener.is_some_and(|opener| program.judge(&opener).is_ok());
    Some(if stays && program.way(&flow).is_ok() { "accept (reply)".into() } else { refused.name().into() })
}

/// What the words of `show flows` say: the service and the source port.
pub fn service_of(text: &str) -> Option<(Service, u16)> {
    let words: Vec<&str> = text.split(' ').collect();
    // That it is of fragments is for who looks for the entry.
    let words = words.strip_suffix(&["fragment"]).unwrap_or(&words);
    Some(match *words {
        ["tcp", src, ">", dst] => (Service::Tcp(dst.parse().ok()?), src.parse().ok()?),
        ["udp", src, ">", dst] => (Service::Udp(dst.parse().ok()?), src.parse().ok()?),
        ["sctp", src, ">", dst] => (Service::Sctp(dst.parse().ok()?), src.parse().ok()?),
        ["icmp", "type", kind, "code", code, ..] => {
            (Service::Icmp(kind.parse().ok()?, code.parse().ok()?), 0)
        }
        ["icmpv6", "type", kind, "code", code, ..] => {
            (Service::Icmpv6(kind.parse().ok()?, code.parse().ok()?), 0)
        }
        ["rocev2", "qp", qp] => (Service::Roce(u32::from_str_radix(qp.strip_prefix("0x")?, 16).ok()?), 0),
        ["protocol", protocol] => (Service::Opaque(protocol.parse().ok()?), 0),
        _ => return None,
    })
}
