//! A counter-example as it is handed out.

use program::{Allowed, Flow, Ingress, Place, Program, Refused, Service};
use serde::Serialize;

use super::CounterExample;

/// A packet, and what the program says of it, in the names of the files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Example {
    /// Whose.
    pub tenant: String,
    /// `port:red0`, or `vtep:fabric` for a packet out of a tunnel.
    pub ingress: String,
    /// Source address.
    pub src: String,
    /// Destination address.
    pub dst: String,
    /// Protocol and ports, type and code, or queue pair.
    pub service: String,
    /// What becomes of it.
    pub judged: Judged,
}

/// What becomes of an [`Example`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Judged {
    /// It is let through.
    Accept {
        /// As [`Example::ingress`].
        egress: String,
        /// `file:line`.
        rule: Option<String>,
    },
    /// It is dropped.
    Deny {
        /// Name of the drop reason.
        reason: &'static str,
        /// `file:line`.
        rule: Option<String>,
    },
}

impl CounterExample {
    /// In the names of the program that it is of.
    pub fn named(&self, program: &Program) -> Example {
        let Self { flow, judged } = self;
        let origin = |rule: &Option<_>| rule.map(|rule| program.origin(rule));
        let ingress = match flow.ingress {
            Ingress::Port(port) => Place::Port(port),
            Ingress::Vtep(vtep) => Place::Vtep(vtep),
        };
        Example {
            tenant: program.tenant(flow.tenant).map_or("?", |tenant| &tenant.name).into(),
            ingress: place(program, ingress),
            src: flow.src.to_string(),
            dst: flow.dst.to_string(),
            service: service(flow),
            judged: match judged {
                Ok(Allowed { place: exit, rule, .. }) => {
                    Judged::Accept { egress: place(program, *exit), rule: origin(rule) }
                }
                Err(Refused { reason, rule }) => Judged::Deny { reason: reason.name(), rule: origin(rule) },
            },
        }
    }
}

fn place(program: &Program, place: Place) -> String {
    match place {
        Place::Port(port) => format!("port:{}", program.port_name(port)),
        Place::Vtep(vtep) => format!("vtep:{}", program.vtep(vtep).map_or("?", |vtep| &vtep.name)),
    }
}

/// Of some protocols the data plane knows more, unless it sees a later fragment.
fn service(flow: &Flow) -> String {
    let is_fragment = match flow.service {
        Service::Opaque(protocol @ (1 | 58)) => (protocol == 1) == flow.src.is_ipv4(),
        Service::Opaque(protocol) => matches!(protocol, 6 | 17 | 132),
        _ => false,
    };
    let text = flow.service.text(flow.src_port);
    if is_fragment { format!("later fragment of {text}") } else { text }
}

impl Example {
    /// `tenant red, port:red0, 10.1.0.10 > 10.1.0.20, tcp 49152 > 5201`.
    pub fn packet(&self) -> String {
        let Self { tenant, ingress, src, dst, service, .. } = self;
        format!("tenant {tenant}, {ingress}, {src} > {dst}, {service}")
    }
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by = |rule: &Option<String>| rule.as_ref().map_or(String::new(), |rule| format!(" by {rule}"));
        match self {
            Self::Accept { egress, rule } => write!(f, "accepted{} to {egress}", by(rule)),
            Self::Deny { reason, rule } => write!(f, "denied{}: {reason}", by(rule)),
        }
    }
}
