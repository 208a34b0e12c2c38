//! Which packets a trace is of.

use engine::{Event, Journal};
use ipnet::IpNet;
use program::{
    DropReason, Program, TRACE_COUNT_MAX, TRACE_SNAP_MAX, TRACE_TIMEOUT_MAX_MS, TenantId, TraceOutcome,
    TraceRequest,
};
use wire::L3;

use super::{Seen, is_roce};
use crate::key;

/// Asked in the worker, of a packet's lane and of what became of it. Everything that is set has to fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    tenant: Option<TenantId>,
    from: Option<IpNet>,
    to: Option<IpNet>,
    port: Option<u16>,
    protocol: Option<Protocol>,
    qp: Option<u32>,
    outcome: TraceOutcome,
    reason: Option<DropReason>,
}

#[derive(Clone, Copy, Debug)]
enum Protocol {
    /// Of UDP without RoCEv2.
    Number(u8),
    Roce,
}

/// Why there is no such trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FilterError {
    /// No tenant has the name.
    #[error("there is no tenant `{0}`")]
    Tenant(String),
    /// No protocol has the name.
    #[error("`{0}` is no protocol: tcp, udp, sctp, icmp, icmpv6, rocev2, or a number from 0 to 255")]
    Protocol(String),
    /// No drop reason has the name.
    #[error("`{0}` is no drop reason; `floodway show drops --all` lists them")]
    Reason(String),
    /// A drop reason is asked for, and packets that were sent.
    #[error("a drop reason is asked for, and with it only packets that were dropped can be traced")]
    Contradiction,
    /// A queue pair has 24 bits.
    #[error("{0:#x} is no queue pair: it has more than 24 bits")]
    QueuePair(u32),
    /// A number is out of its bounds.
    #[error("{what} is from 1 to {most}, not {given}")]
    OutOfBounds {
        /// Of what.
        what: &'static str,
        /// Its largest value.
        most: u32,
        /// What was asked for.
        given: u32,
    },
}

impl Filter {
    /// The filter of a request, in ids of the running program.
    ///
    /// # Errors
    /// A name that is not there, or a number out of bounds.
    pub fn new(request: &TraceRequest, program: &Program) -> Result<Self, FilterError> {
        within("count", request.count, TRACE_COUNT_MAX)?;
        within("timeoutMs", request.timeout_ms, TRACE_TIMEOUT_MAX_MS)?;
        within("snap", request.snap.into(), TRACE_SNAP_MAX.into())?;
        let tenant = request.tenant.as_ref().map(|name| {
            let tenant = program.tenants.iter().flatten().find(|tenant| tenant.name == *name);
            tenant.map(|tenant| tenant.id).ok_or_else(|| FilterError::Tenant(name.clone()))
        });
        let reason = request.reason.as_ref().map(|name| {
            let reason = DropReason::ALL.iter().find(|reason| reason.name() == name);
            reason.copied().ok_or_else(|| FilterError::Reason(name.clone()))
        });
        if reason.is_some() && request.outcome == TraceOutcome::Sent {
            return Err(FilterError::Contradiction);
        }
        if let Some(qp) = request.qp.filter(|qp| *qp > 0xff_ffff) {
            return Err(FilterError::QueuePair(qp));
        }
        Ok(Self {
            tenant: tenant.transpose()?,
            from: request.from,
            to: request.to,
            port: request.port,
            protocol: request.protocol.as_deref().map(protocol).transpose()?,
            qp: request.qp,
            outcome: if reason.is_some() { TraceOutcome::Dropped } else { request.outcome },
            reason: reason.transpose()?,
        })
    }

    /// What can be told before the packet is judged. What cannot be read fits no filter that asks for it.
    pub(super) fn wants(&self, seen: &Seen) -> bool {
        let Self { tenant, from, to, port, protocol, qp, .. } = self;
        let (key, parsed) = (seen.key.as_ref(), &seen.parsed);
        let is_ip = matches!(parsed.l3, L3::Ipv4 | L3::Ipv6);
        tenant.is_none_or(|tenant| seen.tenant == Some(tenant))
            && from.is_none_or(|net| key.is_some_and(|key| net.contains(&key::src(key))))
            && to.is_none_or(|net| key.is_some_and(|key| net.contains(&key::dst(key))))
            && port.is_none_or(|port| has_ports(seen) && [parsed.src_port, parsed.dst_port].contains(&port))
            && qp.is_none_or(|qp| is_roce(parsed) && parsed.dest_qp == qp)
            && protocol.is_none_or(|protocol| match protocol {
                Protocol::Roce => is_roce(parsed),
                Protocol::Number(number) => is_ip && !is_roce(parsed) && parsed.protocol == number,
            })
    }

    /// What has to become of it.
    pub(super) fn wants_outcome(&self, journal: &Journal) -> bool {
        let is_wanted = |event: &Event| match (self.outcome, event) {
            (TraceOutcome::Sent, Event::Sent { .. }) => true,
            (TraceOutcome::Dropped, Event::Dropped { reason, .. }) => {
                self.reason.is_none_or(|wanted| wanted == *reason)
            }
            _ => false,
        };
        self.outcome == TraceOutcome::Any || journal.events.iter().any(is_wanted)
    }
}

/// Zero is a port too, and stands for none where there are no ports.
fn has_ports(seen: &Seen) -> bool {
    use wire::L4::{Roce, Sctp, Tcp, Udp};
    matches!(seen.parsed.l4, Tcp | Udp | Sctp | Roce)
}

fn within(what: &'static str, given: u32, most: u32) -> Result<(), FilterError> {
    if (1..=most).contains(&given) { Ok(()) } else { Err(FilterError::OutOfBounds { what, most, given }) }
}

fn protocol(name: &str) -> Result<Protocol, FilterError> {
    Ok(Protocol::Number(match name {
        "tcp" => 6,
        "udp" => 17,
        "sctp" => 132,
        "icmp" => 1,
        "icmpv6" => 58,
        "rocev2" | "roce" => return Ok(Protocol::Roce),
        number => number.parse().map_err(|_| FilterError::Protocol(name.to_owned()))?,
    }))
}
