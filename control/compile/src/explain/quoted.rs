//! What an ICMP error quotes, and what the error's verdict hangs on: it passes when the flow that it quotes is open, went to
//! where the error comes from, and came from whom the error is for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use program::{Answers, Flow, Hop, Ingress, Program, Service, Tenant};
use wire::{L3, L4, Parsed};

use super::{Packet, RuleList, ask, is_echo_request, is_open_to, mirror, name, words::Quoted};

/// The packet that an error quotes, as far as the data plane reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quote {
    src: IpAddr,
    dst: IpAddr,
    service: Service,
    src_port: u16,
    identifier: Option<u16>,
}

/// Reads the quote of an error; `None` when it is too short to say whose it is.
pub(super) fn read(frame: &[u8], parsed: &Parsed) -> Option<Quote> {
    let quoted = parsed.quoted(frame).ok()??;
    let (src, dst): (IpAddr, IpAddr) = match (quoted.ipv4(frame), quoted.ipv6(frame)) {
        (Some(header), _) => (Ipv4Addr::from(header.src).into(), Ipv4Addr::from(header.dst).into()),
        (None, header) => {
            let header = header?;
            (Ipv6Addr::from(header.src).into(), Ipv6Addr::from(header.dst).into())
        }
    };
    let (kind, code) = quoted.icmp;
    // Of a quote without ports they are zero.
    let service = match (quoted.l4, quoted.protocol, quoted.l3) {
        (L4::Roce, ..) => Service::Roce(quoted.dest_qp?),
        (_, 6, _) => Service::Tcp(quoted.dst_port),
        (_, 17, _) => Service::Udp(quoted.dst_port),
        (_, 132, _) => Service::Sctp(quoted.dst_port),
        (_, 1, L3::Ipv4) => Service::Icmp(kind, code),
        (_, 58, L3::Ipv6) => Service::Icmpv6(kind, code),
        (_, protocol, _) => Service::Opaque(protocol),
    };
    let has_ports = matches!(quoted.l4, L4::Tcp | L4::Udp | L4::Sctp);
    let src_port = if has_ports { quoted.src_port } else { 0 };
    Some(Quote {
        src,
        dst,
        service,
        src_port,
        identifier: super::frame::identifier(service, quoted.src_port),
    })
}

/// The flow that the quote is of, in the direction of its packets, and the one that it would answer.
struct Quotation {
    flow: Flow,
    opener: Option<Flow>,
}

fn quotation(program: &Program, error: &Packet, quote: &Quote) -> Result<Quotation, &'static str> {
    let tenant: &Tenant = program.tenant(error.flow.tenant).ok_or("the tenant is gone")?;
    if quote.src != error.flow.dst {
        return Err("the error is not for whom the quoted packet came from");
    }
    if !program.is_behind(tenant, error.flow.ingress, quote.dst) {
        return Err("the quoted packet did not go to where the error comes from");
    }
    let hops = tenant.locate(quote.src);
    let Hop { place, .. } = hops.first().ok_or("nobody has the quoted packet's source address")?;
    let Quote { src, dst, service, src_port, .. } = *quote;
    let flow =
        Flow { tenant: error.flow.tenant, ingress: Ingress::from(*place), src, dst, service, src_port };
    let packet = Packet { flow, ..Packet::default_of(flow) };
    let opener = if is_echo_request(service) { None } else { mirror(program, &packet) };
    Ok(Quotation { flow, opener })
}

/// What is to be said of the quote of an error.
pub(super) fn explain(program: &Program, error: &Packet, quote: Option<Quote>) -> Quoted {
    let Some(quote) = quote else {
        let why = "it quotes too little to say of which flow it is".into();
        return Quoted { why, ..Quoted::default() };
    };
    let headers = super::words::Headers {
        src: quote.src,
        dst: quote.dst,
        service: quote.service.text(quote.src_port),
        identifier: quote.identifier,
        is_fragment: false,
    };
    let said = Quoted { headers: Some(headers), ..Quoted::default() };
    match quotation(program, error, &quote) {
        Err(why) => Quoted { why: format!("{why}: it passes never"), ..said },
        Ok(Quotation { flow, opener }) => {
            let (is_allowed, is_answer) = (program.judge(&flow).is_ok(), is_open_to(program, opener));
            let why = match (is_allowed, is_answer) {
                (true, false) => "rules allow the quoted flow: the error passes while it is open",
                (true, true) => {
                    "rules allow the quoted flow, and the one that it may answer: the error passes while that is open"
                }
                (false, true) => {
                    "the quoted flow may answer one that rules allow: the error passes while that one is open"
                }
                (false, false) => {
                    "rules refuse the quoted flow, and there is none that it may answer: it passes never"
                }
            };
            let lists: Vec<RuleList> = ask(program, &flow);
            let from = Some(name(program, flow.ingress));
            Quoted { from, may_be_open: is_allowed || is_answer, why: why.into(), lists, ..said }
        }
    }
}
