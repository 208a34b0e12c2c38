//! Kind `NetworkPolicy` of networking.k8s.io/v1: namespace is tenant, pod is port.

use crate::{
    Action, Direction, Name, Peer, Protocol, Rule, Selector, Service, Spanned,
    kinds::{
        kubernetes::{Cidr, Metadata, prefixes},
        tenant_policy::check_except,
    },
    read::{Fields, Read, Report, number, unexpected, word},
    yaml::{Node, Value},
};

/// What some pods of a tenant may send or be sent. In a direction that it lists it closes the pods to all else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkPolicy {
    /// Its name, unique within the tenant.
    pub name: Spanned<Name>,
    /// Whose it is: `metadata.namespace`.
    pub tenant: Spanned<Name>,
    /// The pods that it speaks of.
    pub pods: Selector,
    /// What they may send; `None` when it says nothing of that.
    pub egress: Option<Vec<Rule>>,
    /// What they may be sent; `None` when it says nothing of that.
    pub ingress: Option<Vec<Rule>>,
}

impl NetworkPolicy {
    /// The rules of one direction; `None` when it says nothing of that direction.
    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Egress => self.egress.as_deref(),
            Direction::Ingress => self.ingress.as_deref(),
        }
    }

    pub(crate) fn read(metadata: Metadata, spec: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(spec, "the spec of a NetworkPolicy", report)?;
        let pods = match fields.node("podSelector") {
            Some(node) => Selector::read(node, fields.report),
            None => Some(Selector::default()),
        };
        let types = fields.given("policyTypes");
        let types: Vec<Direction> =
            types.and_then(|node| Read::read(node, fields.report)).unwrap_or_default();
        let egress = fields.given("egress").and_then(|node| rules::<EgressRule>(node, fields.report));
        let ingress = fields.given("ingress").and_then(|node| rules::<IngressRule>(node, fields.report));
        let at = fields.at();
        fields.finish();
        let listed = |direction| types.contains(&direction);
        let has_egress = if types.is_empty() {
            egress.as_ref().is_some_and(|rules: &Vec<Rule>| !rules.is_empty())
        } else {
            listed(Direction::Egress)
        };
        let has_ingress = types.is_empty() || listed(Direction::Ingress);
        for (name, is_in_force, rules) in
            [("egress", has_egress, &egress), ("ingress", has_ingress, &ingress)]
        {
            if !is_in_force && rules.as_ref().is_some_and(|rules| !rules.is_empty()) {
                report
                    .warning(at, format!("`policyTypes` leaves out the rules of `{name}`: they say nothing"));
            }
        }
        Some(Self {
            name: metadata.name,
            tenant: metadata.namespace,
            pods: pods?,
            egress: has_egress.then(|| egress.unwrap_or_default()),
            ingress: has_ingress.then(|| ingress.unwrap_or_default()),
        })
    }
}

impl Read for Direction {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        word(node, "a policy type", &[("Egress", Self::Egress), ("Ingress", Self::Ingress)], report)
    }
}

struct EgressRule(Rule);
struct IngressRule(Rule);

fn rules<T: Read + Into<Rule>>(node: &Node, report: &mut Report) -> Option<Vec<Rule>> {
    let rules: Vec<T> = Read::read(node, report)?;
    Some(rules.into_iter().map(Into::into).collect())
}

impl From<EgressRule> for Rule {
    fn from(rule: EgressRule) -> Self {
        rule.0
    }
}

impl From<IngressRule> for Rule {
    fn from(rule: IngressRule) -> Self {
        rule.0
    }
}

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

/// An absent or empty list means everything, unlike in a TenantPolicy.
fn read_rule(mut fields: Fields, peers: &'static str) -> Option<Rule> {
    let peers = fields.given(peers).map(|node| (has_items(node), Read::read(node, fields.report)));
    let ports = fields.given("ports").map(|node| (has_items(node), Read::read(node, fields.report)));
    let at = fields.at();
    let is_whole = fields.finish();
    is_whole.then(|| Rule {
        at,
        action: Action::Accept,
        peers: given_items(peers)
            .map(|peers: Vec<PolicyPeer>| peers.into_iter().map(|peer| peer.0).collect()),
        services: given_items(ports).map(|ports: Vec<Port>| ports.into_iter().map(|port| port.0).collect()),
        log: false,
    })
}

fn has_items(node: &Node) -> bool {
    matches!(&node.value, Value::List(items) if !items.is_empty())
}

fn given_items<T>(list: Option<(bool, Option<T>)>) -> Option<T> {
    list.filter(|(has_items, _)| *has_items).and_then(|(_, list)| list)
}

struct PolicyPeer(Peer);

impl Read for PolicyPeer {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a peer", report)?;
        let block = fields.given("ipBlock");
        let namespaces = fields.given("namespaceSelector");
        let pods = fields.given("podSelector");
        let at = fields.at();
        fields.finish();
        if let (Some(block), None, None) = (block, namespaces, pods) {
            return read_block(block, report).map(Self);
        }
        if block.is_some() || (namespaces.is_none() && pods.is_none()) {
            report.error(at, "a peer is an `ipBlock`, or a `podSelector`, a `namespaceSelector` or both");
            return None;
        }
        let tenants = match namespaces {
            Some(node) => Some(Selector::read(node, report)?),
            None => None,
        };
        let pods = pods.map_or(Some(Selector::default()), |node| Selector::read(node, report))?;
        Some(Self(Peer::Pods { at, tenants, pods }))
    }
}

fn read_block(node: &Node, report: &mut Report) -> Option<Peer> {
    let mut fields = Fields::of(node, "an ipBlock", report)?;
    let cidr: Option<Spanned<Cidr>> = fields.required("cidr");
    let except = fields.given("except").map(|node| prefixes(node, fields.report)).unwrap_or_default();
    let is_whole = fields.finish();
    let cidr = cidr?;
    let cidr = Spanned { value: cidr.value.0, at: cidr.at };
    check_except(cidr, &except, report);
    is_whole.then_some(Peer::IpBlock { cidr, except })
}

struct Port(Service);

impl Read for Port {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a port", report)?;
        let protocol = fields.given("protocol").map(|node| Protocol::read(node, fields.report));
        let first = fields.given("port");
        let last = fields.given("endPort");
        let is_whole = fields.finish();
        let protocol = protocol.unwrap_or(Some(Protocol::Tcp))?;
        let service = match (first, last) {
            (None, None) => Some(Service::Ports(protocol, 0, u16::MAX)),
            (None, Some(last)) => {
                report.error(last.at, "`endPort` needs `port`, the first of the range");
                None
            }
            (Some(first), None) => read_port(protocol, first, report),
            (Some(first), Some(last)) => read_range(protocol, first, last, report),
        };
        service.filter(|_| is_whole).map(Self)
    }
}

/// A number, or the name of a port of the destination.
fn read_port(protocol: Protocol, node: &Node, report: &mut Report) -> Option<Service> {
    match &node.value {
        Value::Plain(text) | Value::Quoted(text) if is_port_name(text) => {
            Some(Service::Named(Some(protocol), text.clone()))
        }
        Value::Plain(_) | Value::Quoted(_) => {
            let port = u16::try_from(*number(node, 1..=u16::MAX.into(), report)?).ok()?;
            Some(Service::Ports(protocol, port, port))
        }
        _ => unexpected(node, "a port's number or name", report),
    }
}

fn read_range(protocol: Protocol, first: &Node, last: &Node, report: &mut Report) -> Option<Service> {
    let range = 1..=u32::from(u16::MAX);
    let first = number(first, range.clone(), report)?;
    let last = number(last, range, report)?;
    if *last < *first {
        report
            .error(last.at, format!("endPort {} is below port {}", last.value, first.value))
            .related(first.at, "the first port of the range");
        return None;
    }
    Some(Service::Ports(protocol, u16::try_from(*first).ok()?, u16::try_from(*last).ok()?))
}

/// Up to 15 letters, digits and `-`, with a letter among them (RFC 6335, section 5.1).
pub(crate) fn is_port_name(text: &str) -> bool {
    const BYTES_MAX: usize = 15;
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= BYTES_MAX
        && text.bytes().all(is_inner)
        && text.bytes().any(|byte| byte.is_ascii_lowercase())
        && !text.starts_with('-')
        && !text.ends_with('-')
}
