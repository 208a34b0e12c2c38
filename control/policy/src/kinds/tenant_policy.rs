//! Kind `TenantPolicy`: what a tenant's ports may send and be sent.

use ipnet::IpNet;

use crate::{
    Action, Direction, Labels, Name, Peer, Protocol, Rule, Service, Spanned, has_labels,
    read::{Fields, Read, Report, number, quote, scalar, text, unexpected},
    suggest::did_you_mean,
    yaml::{Node, Value},
};

/// What `priority` is unless given.
const PRIORITY_DEFAULT: u16 = 1000;
/// A queue pair number has 24 bits (InfiniBand, BTH).
const QUEUE_PAIR_MAX: u32 = 0xff_ffff;

/// An ordered list of rules for some ports of one tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantPolicy {
    /// Its name, unique within the tenant.
    pub name: Spanned<Name>,
    /// Whose it is.
    pub tenant: Spanned<Name>,
    /// Lower is asked first; the name decides between equals.
    pub priority: u16,
    /// The ports that it speaks of.
    pub ports: PortSelector,
    /// Rules for what the ports send, in order.
    pub egress: Vec<Rule>,
    /// Rules for what the ports are sent, in order.
    pub ingress: Vec<Rule>,
}

/// Ports of one tenant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PortSelector {
    /// All.
    #[default]
    All,
    /// Those of these names.
    Named(Vec<Spanned<Name>>),
    /// Those that have all these labels.
    Labelled(Spanned<Labels>),
}

impl TenantPolicy {
    /// The rules of one direction.
    pub fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    pub(crate) fn read(name: Spanned<Name>, spec: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(spec, "the spec of a TenantPolicy", report)?;
        let tenant = fields.required("tenant");
        let priority = fields.number("priority", 0..=u16::MAX.into());
        let ports = fields.optional("ports").unwrap_or_default();
        let egress: Vec<EgressRule> = fields.list("egress");
        let ingress: Vec<IngressRule> = fields.list("ingress");
        fields.finish();
        Some(Self {
            name,
            tenant: tenant?,
            priority: priority.and_then(|number| u16::try_from(*number).ok()).unwrap_or(PRIORITY_DEFAULT),
            ports,
            egress: egress.into_iter().map(|rule| rule.0).collect(),
            ingress: ingress.into_iter().map(|rule| rule.0).collect(),
        })
    }
}

impl PortSelector {
    /// True when it means a port of that name and those labels.
    pub fn selects(&self, name: &str, labels: &Labels) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|own| &***own == name),
            Self::Labelled(wanted) => has_labels(labels, wanted),
        }
    }
}

impl Read for PortSelector {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match node.value {
            Value::List(_) => Read::read(node, report).map(Self::Named),
            Value::Map(_) => read_match_labels(node, report).map(Self::Labelled),
            _ => unexpected(node, "a list of port names, or a map with `matchLabels`", report),
        }
    }
}

fn read_match_labels(node: &Node, report: &mut Report) -> Option<Spanned<Labels>> {
    let mut fields = Fields::of(node, "a port selector", report)?;
    let labels = fields.required("matchLabels");
    fields.finish();
    labels
}

struct EgressRule(Rule);
struct IngressRule(Rule);

impl Read for EgressRule {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "an egress rule", report)?;
        fields.misplaced("from", "an egress rule names its peers in `to`");
        read_rule(fields, "to").map(Self)
    }
}

impl Read for IngressRule {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "an ingress rule", report)?;
        fields.misplaced("to", "an ingress rule names its peers in `from`");
        read_rule(fields, "from").map(Self)
    }
}

fn read_rule(mut fields: Fields, peers: &'static str) -> Option<Rule> {
    let action = fields.required("action");
    warn_of_empty(&mut fields, peers, "nobody is meant; leave the field out to mean anybody");
    let peers = fields.optional(peers);
    warn_of_empty(&mut fields, "services", "no packet is meant; leave the field out to mean all");
    let services = fields.optional("services");
    fields.misplaced("ports", "ports are part of a service: `services: [{protocol: TCP, port: 80}]`");
    let log: Option<Spanned<bool>> = fields.optional("log");
    if let (Some(Spanned { value: true, at }), Some(Action::Pass)) = (log, action) {
        fields.report.warning(at, "`log` says nothing here: a rule that passes on decides no flow");
    }
    let log = log.is_some_and(|log| log.value);
    let at = fields.at();
    // Without what could not be read, the rule would say something else.
    fields.finish().then_some(Rule { at, action: action?, peers, services, log })
}

/// Other policy languages take an empty list for everything.
pub(super) fn warn_of_empty(fields: &mut Fields, name: &'static str, meaning: &str) {
    match fields.node(name) {
        Some(Node { at, value: Value::List(items) }) if items.is_empty() => {
            fields.report.warning(*at, format!("`{name}` is an empty list: {meaning}"));
        }
        _ => {}
    }
}

impl Read for Peer {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a peer", report)?;
        let block = fields.node("ipBlock");
        let ports = fields.node("ports");
        let names = [fields.node("remote"), fields.node("tag"), fields.node("tenant")];
        let at = fields.at();
        fields.finish();
        match (block, ports, names) {
            (Some(block), None, [None, None, None]) => read_block(block, report),
            (None, Some(ports), [None, None, None]) => read_match_labels(ports, report).map(Self::Ports),
            (None, None, [Some(remote), None, None]) => Read::read(remote, report).map(Self::Remote),
            (None, None, [None, Some(tag), None]) => Read::read(tag, report).map(Self::Tag),
            (None, None, [None, None, Some(tenant)]) => Read::read(tenant, report).map(Self::Tenant),
            _ => {
                report.error(at, "a peer is exactly one of `ipBlock`, `ports`, `remote`, `tag` and `tenant`");
                None
            }
        }
    }
}

pub(super) fn read_block(node: &Node, report: &mut Report) -> Option<Peer> {
    let mut fields = Fields::of(node, "an ipBlock", report)?;
    let cidr: Option<Spanned<IpNet>> = fields.required("cidr");
    let except: Vec<Spanned<IpNet>> = fields.list("except");
    fields.finish();
    let cidr = cidr?;
    check_except(cidr, &except, report);
    Some(Peer::IpBlock { cidr, except })
}

/// Exceptions lie inside their block.
pub(super) fn check_except(cidr: Spanned<IpNet>, except: &[Spanned<IpNet>], report: &mut Report) {
    for part in except.iter().filter(|part| !cidr.contains(&part.value)) {
        report
            .error(part.at, format!("except {} is not inside {}", part.value, cidr.value))
            .related(cidr.at, "the block that it is an exception of");
    }
}

/// The protocol of a service as written.
#[derive(Clone, Copy)]
enum Spoken {
    Ports(Protocol),
    Icmp,
    Icmpv6,
    Roce,
    Number(u8),
}

const PROTOCOLS: [(&str, Spoken); 6] = [
    ("TCP", Spoken::Ports(Protocol::Tcp)),
    ("UDP", Spoken::Ports(Protocol::Udp)),
    ("SCTP", Spoken::Ports(Protocol::Sctp)),
    ("ICMP", Spoken::Icmp),
    ("ICMPv6", Spoken::Icmpv6),
    ("RoCEv2", Spoken::Roce),
];

impl Read for Spoken {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if matches!(&node.value, Value::Plain(text) if is_number(text)) {
            return number(node, 0..=255, report).map(|value| Self::Number(*value as u8));
        }
        let found = scalar(node).and_then(|text| PROTOCOLS.iter().find(|(name, _)| *name == text));
        if let Some((_, spoken)) = found {
            return Some(*spoken);
        }
        let names = PROTOCOLS.map(|(name, _)| name);
        let expected = format!("a protocol ({}, or a number from 0 to 255)", names.join(", "));
        let text = text(node, &expected, report)?;
        let help = did_you_mean(text, names);
        report.error(node.at, format!("expected {expected}, found {}", quote(text))).help_if(help);
        None
    }
}

impl Read for Service {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a service", report)?;
        let protocol = fields.required("protocol");
        let service = match protocol {
            Some(Spoken::Ports(protocol)) => {
                read_port_range(&mut fields).map(|(a, b)| Self::Ports(protocol, a, b))
            }
            Some(Spoken::Icmp) => read_icmp(&mut fields).map(|(kind, code)| Self::Icmp(kind, code)),
            Some(Spoken::Icmpv6) => read_icmp(&mut fields).map(|(kind, code)| Self::Icmpv6(kind, code)),
            Some(Spoken::Roce) => read_queue_pairs(&mut fields).map(|(first, last)| Self::Roce(first, last)),
            Some(Spoken::Number(number)) => Some(Self::Number(number)),
            // Without its protocol it is unknown which of its fields are wrong.
            None => {
                let _ =
                    ["port", "endPort", "type", "code", "queuePairs"].map(|name| fields.node(name).is_some());
                None
            }
        };
        for name in ["port", "endPort"] {
            fields.misplaced(name, "only TCP, UDP and SCTP have ports");
        }
        for name in ["type", "code"] {
            fields.misplaced(name, "only ICMP and ICMPv6 have types and codes");
        }
        fields.misplaced("queuePairs", "only RoCEv2 has queue pairs");
        fields.misplaced(
            "opcodeClass",
            "flows are keyed by queue pair, not by packet: a rule cannot tell opcodes apart",
        );
        let is_whole = fields.finish();
        service.filter(|_| is_whole)
    }
}

fn read_port_range(fields: &mut Fields) -> Option<(u16, u16)> {
    let range = 1..=u32::from(u16::MAX);
    let first = fields.number("port", range.clone());
    let last = fields.number("endPort", range);
    match (first, last) {
        (None, None) => Some((0, u16::MAX)),
        (None, Some(last)) => {
            fields.report.error(last.at, "`endPort` needs `port`, the first of the range");
            None
        }
        (Some(first), Some(last)) if *last < *first => {
            fields
                .report
                .error(last.at, format!("endPort {} is below port {}", last.value, first.value))
                .related(first.at, "the first port of the range");
            None
        }
        (Some(first), last) => {
            Some((u16::try_from(*first).ok()?, u16::try_from(*last.unwrap_or(first)).ok()?))
        }
    }
}

fn read_icmp(fields: &mut Fields) -> Option<(Option<u8>, Option<u8>)> {
    let kind = fields.number("type", 0..=255);
    let code = fields.number("code", 0..=255);
    if let (None, Some(code)) = (kind, code) {
        fields.report.error(code.at, "`code` needs `type`: a code means nothing by itself");
        return None;
    }
    let byte = |number: Option<Spanned<u32>>| number.and_then(|number| u8::try_from(*number).ok());
    Some((byte(kind), byte(code)))
}

fn read_queue_pairs(fields: &mut Fields) -> Option<(u32, u32)> {
    let Some(node) = fields.node("queuePairs") else { return Some((0, QUEUE_PAIR_MAX)) };
    let expected = format!("a queue pair or a range such as 16-31, up to {QUEUE_PAIR_MAX}");
    let text = text(node, &expected, fields.report)?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (parse_queue_pair(first), parse_queue_pair(last)) {
        (Some(first), Some(last)) if first <= last => Some((first, last)),
        (Some(first), Some(last)) => {
            fields
                .report
                .error(node.at, format!("the range of queue pairs ends at {last}, below its start {first}"));
            None
        }
        _ => unexpected(node, &expected, fields.report),
    }
}

fn parse_queue_pair(text: &str) -> Option<u32> {
    let is_decimal =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|number| is_decimal && *number <= QUEUE_PAIR_MAX)
}
