//! Kind `ClusterNetworkPolicy` of policy.networking.k8s.io/v1alpha2: what the operator says of all tenants.

use crate::{
    Action, Direction, Labels, Name, Peer, Protocol, Rule, Selector, Service, Spanned,
    kinds::{
        kubernetes::{Metadata, prefixes},
        network_policy::is_port_name,
    },
    read::{Fields, Read, Report, number, quote, text, word},
    yaml::{Node, Value},
};

/// Highest `priority` of the kind.
const PRIORITY_MAX: u32 = 1000;

/// Rules of the operator, before or after those of tenants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterNetworkPolicy {
    /// Its name.
    pub name: Spanned<Name>,
    /// Before or after the tenants' own.
    pub tier: ClusterTier,
    /// Lower is asked first; the name decides between equals.
    pub priority: u16,
    /// Tenants that it speaks of.
    pub tenants: Selector,
    /// Pods of these tenants that it speaks of.
    pub pods: Selector,
    /// Rules for what the pods send, in order.
    pub egress: Vec<Rule>,
    /// Rules for what the pods are sent, in order.
    pub ingress: Vec<Rule>,
}

/// Where the rules of the operator stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClusterTier {
    /// Before the tenants' own.
    Admin,
    /// For what the tenants' own do not decide.
    Baseline,
}

impl ClusterNetworkPolicy {
    /// The rules of one direction.
    pub fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    /// True when it speaks of a pod with `labels` of a tenant with `tenant_labels`.
    pub fn selects(&self, tenant_labels: &Labels, labels: &Labels) -> bool {
        self.tenants.selects(tenant_labels) && self.pods.selects(labels)
    }

    pub(crate) fn read(metadata: Metadata, spec: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(spec, "the spec of a ClusterNetworkPolicy", report)?;
        let tier = fields.required("tier");
        let priority = fields.required_number("priority", 0..=PRIORITY_MAX);
        let subject: Option<Subject> = fields.required("subject");
        let egress: Option<Vec<EgressRule>> =
            fields.given("egress").and_then(|node| Read::read(node, fields.report));
        let ingress: Option<Vec<IngressRule>> =
            fields.given("ingress").and_then(|node| Read::read(node, fields.report));
        fields.finish();
        let Subject { tenants, pods } = subject?;
        Some(Self {
            name: metadata.name,
            tier: tier?,
            priority: u16::try_from(*priority?).ok()?,
            tenants,
            pods,
            egress: egress.unwrap_or_default().into_iter().map(|rule| rule.0).collect(),
            ingress: ingress.unwrap_or_default().into_iter().map(|rule| rule.0).collect(),
        })
    }
}

impl Read for ClusterTier {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        word(node, "a tier", &[("Admin", Self::Admin), ("Baseline", Self::Baseline)], report)
    }
}

/// Pods of tenants.
struct Subject {
    tenants: Selector,
    pods: Selector,
}

impl Read for Subject {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "the subject", report)?;
        let namespaces = fields.given("namespaces");
        let pods = fields.given("pods");
        let at = fields.at();
        fields.finish();
        match (namespaces, pods) {
            (Some(node), None) => {
                Selector::read(node, report).map(|tenants| Self { tenants, pods: Selector::default() })
            }
            (None, Some(node)) => Self::read_pods(node, report),
            _ => {
                report.error(at, "the subject is exactly one of `namespaces` and `pods`");
                None
            }
        }
    }
}

impl Subject {
    fn read_pods(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "`pods`", report)?;
        let tenants = match fields.node("namespaceSelector") {
            Some(node) => Selector::read(node, fields.report),
            None => Some(Selector::default()),
        };
        let pods = fields.required("podSelector");
        let is_whole = fields.finish();
        Some(Self { tenants: tenants?, pods: pods? }).filter(|_| is_whole)
    }
}

struct EgressRule(Rule);
struct IngressRule(Rule);

impl Read for EgressRule {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "an egress rule", report)?;
        fields.misplaced("from", "an egress rule names its peers in `to`");
        read_rule(fields, "to", Direction::Egress).map(Self)
    }
}

impl Read for IngressRule {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "an ingress rule", report)?;
        fields.misplaced("to", "an ingress rule names its peers in `from`");
        read_rule(fields, "from", Direction::Ingress).map(Self)
    }
}

fn read_rule(mut fields: Fields, peers: &'static str, direction: Direction) -> Option<Rule> {
    fields.ignore(&["name"]);
    let action: Option<Action> = fields.required("action");
    let nodes = fields.required_node(peers);
    let services: Option<Vec<ProtocolMatch>> =
        fields.given("protocols").and_then(|node| Read::read(node, fields.report));
    fields
        .misplaced("ports", "this version has them in `protocols: [{tcp: {destinationPort: {number: 80}}}]`");
    let at = fields.at();
    let peers = nodes.and_then(|node| read_peers(node, direction, action, fields.report));
    fields.finish().then_some(Rule {
        at,
        action: action?,
        peers: Some(peers?),
        services: services.map(|services| services.into_iter().map(|service| service.0).collect()),
        log: false,
    })
}

fn read_peers(
    node: &Node,
    direction: Direction,
    action: Option<Action>,
    report: &mut Report,
) -> Option<Vec<Peer>> {
    let Value::List(items) = &node.value else {
        return crate::read::unexpected(node, "a list of peers", report);
    };
    if items.is_empty() {
        report.error(node.at, "the list of peers is empty: nobody is meant");
    }
    Some(items.iter().filter_map(|item| read_peer(item, direction, action, report)).flatten().collect())
}

/// The peers that one item means; `None` when it could not be read.
fn read_peer(
    node: &Node,
    direction: Direction,
    action: Option<Action>,
    report: &mut Report,
) -> Option<Vec<Peer>> {
    let mut fields = Fields::of(node, "a peer", report)?;
    let mut names = vec!["namespaces", "pods"];
    if direction == Direction::Egress {
        names.extend(["networks", "nodes", "domainNames"]);
    }
    let given: Vec<(&str, &Node)> =
        names.iter().filter_map(|name| Some((*name, fields.given(name)?))).collect();
    let at = fields.at();
    if !fields.finish() {
        return None;
    }
    let [(name, node)] = given[..] else {
        report.error(at, format!("a peer is exactly one of {}", names.join(", ")));
        return None;
    };
    match name {
        "namespaces" => {
            let tenants = Some(Selector::read(node, report)?);
            Some(vec![Peer::Pods { at, tenants, pods: Selector::default() }])
        }
        "pods" => {
            let Subject { tenants, pods } = Subject::read_pods(node, report)?;
            Some(vec![Peer::Pods { at, tenants: Some(tenants), pods }])
        }
        "networks" => {
            let nets = prefixes(node, report).into_iter();
            Some(nets.map(|cidr| Peer::IpBlock { cidr, except: vec![] }).collect())
        }
        "nodes" => {
            Selector::read(node, report)?;
            report.warning(at, "a tenant's network has no nodes in it: the peer is nobody");
            Some(vec![])
        }
        _ if action == Some(Action::Accept) => {
            report.warning(at, "names are not resolved: the peer is nobody");
            Some(vec![])
        }
        _ => {
            report.error(at, "`domainNames` can only be accepted, neither denied nor passed on");
            None
        }
    }
}

struct ProtocolMatch(Service);

impl Read for ProtocolMatch {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "a protocol", report)?;
        let tcp = fields.given("tcp").map(|node| (Protocol::Tcp, node));
        let udp = fields.given("udp").map(|node| (Protocol::Udp, node));
        let sctp = fields.given("sctp").map(|node| (Protocol::Sctp, node));
        let named = fields.given("destinationNamedPort");
        let at = fields.at();
        if !fields.finish() {
            return None;
        }
        let numbered: Vec<(Protocol, &Node)> = [tcp, udp, sctp].into_iter().flatten().collect();
        match (&numbered[..], named) {
            ([(protocol, node)], None) => {
                let (first, last) = read_destination(node, report)?;
                Some(Self(Service::Ports(*protocol, first, last)))
            }
            ([], Some(node)) => {
                let name = text(node, "a port's name", report)?;
                if !is_port_name(name) {
                    report.error(node.at, format!("{} cannot be a port's name", quote(name)));
                    return None;
                }
                Some(Self(Service::Named(None, name.into())))
            }
            _ => {
                report.error(at, "a protocol is exactly one of `tcp`, `udp`, `sctp`, `destinationNamedPort`");
                None
            }
        }
    }
}

/// The range of destination ports; all when none is given.
fn read_destination(node: &Node, report: &mut Report) -> Option<(u16, u16)> {
    let mut fields = Fields::of(node, "a protocol's match", report)?;
    let port = fields.given("destinationPort");
    if !fields.finish() {
        return None;
    }
    let Some(port) = port else { return Some((0, u16::MAX)) };
    let mut fields = Fields::of(port, "a destination port", report)?;
    let number_node = fields.given("number");
    let range = fields.given("range");
    if !fields.finish() {
        return None;
    }
    let bounds = 1..=u32::from(u16::MAX);
    match (number_node, range) {
        (Some(node), None) => {
            let port = u16::try_from(*number(node, bounds, report)?).ok()?;
            Some((port, port))
        }
        (None, Some(range)) => read_range(range, report),
        _ => {
            report.error(port.at, "a destination port is exactly one of `number` and `range`");
            None
        }
    }
}

fn read_range(node: &Node, report: &mut Report) -> Option<(u16, u16)> {
    let mut fields = Fields::of(node, "a range of ports", report)?;
    let start = fields.required_number("start", 1..=u16::MAX.into());
    let end = fields.required_number("end", 1..=u16::MAX.into());
    fields.finish();
    let (start, end) = (start?, end?);
    if *end < *start {
        report
            .error(end.at, format!("the range ends at {}, below its start {}", end.value, start.value))
            .related(start.at, "its start");
        return None;
    }
    Some((u16::try_from(*start).ok()?, u16::try_from(*end).ok()?))
}
