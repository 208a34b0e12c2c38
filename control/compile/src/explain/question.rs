//! A packet as somebody asks about it, in the names of the policy files.

use std::net::IpAddr;

use program::{Flow, Ingress, PortId, Program, Service, TenantId, VtepId};
use serde::{Deserialize, Serialize};

use super::{Explanation, Packet, explain, explain_frame};

/// Queue pair numbers have 24 bits.
const QP_MAX: u32 = 0xff_ffff;

/// Headers of a packet, or a frame, and where it comes in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Question {
    /// Port or tunnel endpoint; for a frame a port, the uplink among them.
    pub from: String,
    /// Whose packet it is; needed from a tunnel endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Source address; the port's first of the destination's family when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<IpAddr>,
    /// Destination address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<IpAddr>,
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, `rocev2`, or the number of an IP protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// TCP, UDP or SCTP source port; 49152 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_port: Option<u16>,
    /// TCP, UDP or SCTP destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst_port: Option<u16>,
    /// ICMP type; an echo request when left out.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<u8>,
    /// ICMP code; 0 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// Destination queue pair of RoCEv2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_pair: Option<u32>,
    /// A whole frame in hexadecimal digits, instead of all that stands above but `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
}

/// What is wrong with a question.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuestionError {
    /// No such port or endpoint.
    #[error("the program has no port and no tunnel endpoint `{0}`")]
    From(String),
    /// No such port.
    #[error("the program has no port `{0}`")]
    Port(String),
    /// A tunnel carries packets of any tenant.
    #[error("`{0}` is a tunnel endpoint: say of which tenant the packet is")]
    WhoseTunnel(String),
    /// No such tenant.
    #[error("the program has no tenant `{0}`")]
    Tenant(String),
    /// The port is another tenant's, or nobody's.
    #[error("the port `{port}` is not one of tenant `{tenant}`")]
    NotTheirs {
        /// The port.
        port: String,
        /// The tenant.
        tenant: String,
    },
    /// A port without a tenant has no packets to be judged.
    #[error("the port `{0}` serves no tenant: everything that it receives is dropped (no-tenant)")]
    Unused(String),
    /// The uplink receives tunnels.
    #[error("`{0}` is the uplink: name a tunnel endpoint, or give a whole frame")]
    Uplink(String),
    /// Something is needed.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Something does not go with the protocol.
    #[error("{field} is not a field of {protocol}")]
    Misplaced {
        /// What was given.
        field: &'static str,
        /// The protocol.
        protocol: String,
    },
    /// Not a protocol.
    #[error("`{0}` is no protocol: tcp, udp, sctp, icmp, icmpv6, rocev2, or a number from 0 to 255")]
    Protocol(String),
    /// More than 24 bits.
    #[error("a queue pair is a number from 0 to 16777215")]
    QueuePair,
    /// One IPv4, one IPv6.
    #[error("source and destination are not of one family")]
    Families,
    /// The port has no address to send from.
    #[error("the source address is missing, and `{0}` has none of that family")]
    NoSource(String),
    /// Not pairs of digits.
    #[error("the frame is not in hexadecimal digits, two a byte")]
    Hex,
}

impl Question {
    /// Explains what is asked about.
    ///
    /// # Errors
    /// See [`QuestionError`].
    pub fn answer(&self, program: &Program) -> Result<Explanation, QuestionError> {
        let Some(frame) = &self.frame else { return Ok(explain(program, &self.packet(program)?)) };
        let fields = [
            ("tenant", self.tenant.is_some()),
            ("src", self.src.is_some()),
            ("dst", self.dst.is_some()),
            ("protocol", self.protocol.is_some()),
            ("source port", self.src_port.is_some()),
            ("destination port", self.dst_port.is_some()),
            ("type", self.kind.is_some()),
            ("code", self.code.is_some()),
            ("queue pair", self.queue_pair.is_some()),
        ];
        if let Some((field, _)) = fields.iter().find(|(_, is_given)| *is_given) {
            return Err(QuestionError::Misplaced { field, protocol: "a question about a frame".into() });
        }
        let port = port(program, &self.from).ok_or_else(|| QuestionError::Port(self.from.clone()))?;
        Ok(explain_frame(program, port, &bytes(frame).ok_or(QuestionError::Hex)?))
    }

    fn packet(&self, program: &Program) -> Result<Packet, QuestionError> {
        if self.from.is_empty() {
            return Err(QuestionError::Missing("where the packet comes in"));
        }
        let (tenant, ingress) = self.place(program)?;
        let dst = self.dst.ok_or(QuestionError::Missing("the destination address"))?;
        let src = match self.src {
            Some(src) => src,
            None => self.own_address(program, ingress, dst)?,
        };
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(QuestionError::Families);
        }
        let (service, src_port) = self.service(dst)?;
        let flow = Flow { tenant, ingress, src, dst, service, src_port };
        Ok(Packet::default_of(flow))
    }

    fn place(&self, program: &Program) -> Result<(TenantId, Ingress), QuestionError> {
        let from = || self.from.clone();
        let named = |name: &String| {
            let mut tenants = program.tenants.iter().flatten();
            let found = tenants.find(|tenant| tenant.name == *name).map(|tenant| tenant.id);
            found.ok_or_else(|| QuestionError::Tenant(name.clone()))
        };
        let wanted = self.tenant.as_ref().map(named).transpose()?;
        if let Some(id) = port(program, &self.from) {
            if program.uplink.as_ref().is_some_and(|uplink| uplink.port == id) {
                return Err(QuestionError::Uplink(from()));
            }
            let tenant = program.port(id).ok_or_else(|| QuestionError::Unused(from()))?.tenant;
            return match (wanted, &self.tenant) {
                (Some(other), Some(name)) if other != tenant => {
                    Err(QuestionError::NotTheirs { port: from(), tenant: name.clone() })
                }
                _ => Ok((tenant, Ingress::Port(id))),
            };
        }
        let is_it = |vtep: &Option<program::Vtep>| vtep.as_ref().is_some_and(|vtep| vtep.name == self.from);
        let vtep = program.vteps.iter().position(is_it).ok_or_else(|| QuestionError::From(from()))?;
        let tenant = wanted.ok_or_else(|| QuestionError::WhoseTunnel(from()))?;
        Ok((tenant, Ingress::Vtep(VtepId(vtep as u16))))
    }

    fn own_address(&self, program: &Program, ingress: Ingress, dst: IpAddr) -> Result<IpAddr, QuestionError> {
        let Ingress::Port(port) = ingress else { return Err(QuestionError::Missing("the source address")) };
        let own = program.port(port).map_or(&[][..], |port| &port.addresses);
        let found = own.iter().copied().find(|address| address.is_ipv4() == dst.is_ipv4());
        found.ok_or_else(|| QuestionError::NoSource(self.from.clone()))
    }

    /// What rules look at, and the source port. Every field that was given must have been used.
    fn service(&self, dst: IpAddr) -> Result<(Service, u16), QuestionError> {
        let protocol = self.protocol.as_ref().ok_or(QuestionError::Missing("the protocol"))?;
        let word = protocol.to_ascii_lowercase();
        let port = || self.dst_port.ok_or(QuestionError::Missing("the destination port"));
        let (kind, code) = (self.kind, self.code.unwrap_or(0));
        let service = match word.as_str() {
            "tcp" | "6" => Service::Tcp(port()?),
            "udp" | "17" => match (port()?, self.queue_pair) {
                (wire::roce::PORT, _) => Service::Roce(self.queue_pair()?),
                (port, _) => Service::Udp(port),
            },
            "sctp" | "132" => Service::Sctp(port()?),
            "icmp" | "1" => Service::Icmp(kind.unwrap_or(8), code),
            "icmpv6" | "58" => Service::Icmpv6(kind.unwrap_or(128), code),
            "rocev2" | "roce" => Service::Roce(self.queue_pair()?),
            number => {
                let number = number.parse().map_err(|_| QuestionError::Protocol(protocol.clone()))?;
                Service::Opaque(number)
            }
        };
        // The other family's ICMP has no type and code that anybody reads.
        let service = if service.fits(dst) { service } else { Service::Opaque(service.protocol()) };
        let has_ports = matches!(service, Service::Tcp(_) | Service::Udp(_) | Service::Sctp(_));
        let is_roce = matches!(service, Service::Roce(_));
        let is_icmp = matches!(service, Service::Icmp(..) | Service::Icmpv6(..));
        let fields = [
            ("a source port", self.src_port.is_some(), has_ports || is_roce),
            (
                "a destination port",
                self.dst_port.is_some(),
                has_ports || is_roce && self.dst_port == Some(wire::roce::PORT),
            ),
            ("a type", kind.is_some(), is_icmp),
            ("a code", self.code.is_some(), is_icmp),
            ("a queue pair", self.queue_pair.is_some(), is_roce),
        ];
        match fields.iter().find(|(_, is_given, fits)| *is_given && !fits) {
            Some((field, ..)) => Err(QuestionError::Misplaced { field, protocol: protocol.clone() }),
            None if has_ports => Ok((service, self.src_port.unwrap_or(49_152))),
            None => Ok((service, 0)),
        }
    }

    fn queue_pair(&self) -> Result<u32, QuestionError> {
        let queue_pair = self.queue_pair.ok_or(QuestionError::Missing("the queue pair"))?;
        if queue_pair <= QP_MAX { Ok(queue_pair) } else { Err(QuestionError::QueuePair) }
    }
}

fn port(program: &Program, name: &str) -> Option<PortId> {
    let index = program.devices.iter().position(|device| device.name == name)?;
    Some(PortId(index as u16))
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let digits: Vec<u8> = hex.as_bytes().iter().map(digit).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
