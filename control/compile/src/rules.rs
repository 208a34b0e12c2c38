//! Rules, and the ordered lists of them that ports ask.
//!
//! A port's list has the operator's Admin policies, then the tenant's TenantPolicies by priority, then its
//! NetworkPolicies, whose order does not matter, then the operator's Baseline policies. What Kubernetes says without a
//! rule is a rule here: that a NetworkPolicy closes what it selects, and that the pods that none selects are open.

use std::collections::BTreeMap;

use policy::{
    Action, ClusterNetworkPolicy, ClusterTier, Diagnostics, Direction, NetworkPolicy, Policy, Position,
    Protocol, Service, Tenant, TenantPolicy, TenantPort,
};
use program::{
    Origin, PeerBlock, PortRange, Program, QpRange, Rule, RuleId, RuleListId, ServiceMatch, Tier, Verdict,
    limit,
};

use crate::{
    error,
    hosts::{Hosts, Tags},
};

/// Egress and ingress list of each tenant port, by the port's name.
pub(crate) type PortLists<'a> = BTreeMap<&'a str, (RuleListId, RuleListId)>;

/// Most prefixes and exceptions of all rules together, once labels and names are resolved: a rule of a few bytes can
/// mean every address of a tenant.
const BLOCKS_MAX: usize = 1 << 22;

/// The tables under construction.
pub(crate) struct Rules<'a> {
    rules: Vec<Rule>,
    lists: Vec<Vec<RuleId>>,
    /// So that ports with the same rules share one list.
    known: BTreeMap<Vec<RuleId>, RuleListId>,
    of_ports: PortLists<'a>,
    /// What is left of [`BLOCKS_MAX`].
    blocks_left: usize,
    /// The first rule for which there was no room.
    refused: Option<(Position, String)>,
}

impl<'a> Rules<'a> {
    pub fn of(policy: &'a Policy, errors: &mut Diagnostics) -> Self {
        let mut tables = Self {
            rules: vec![],
            lists: vec![],
            known: BTreeMap::new(),
            of_ports: BTreeMap::new(),
            blocks_left: BLOCKS_MAX,
            refused: None,
        };
        let tags: Tags = policy.tags.iter().map(|tag| (&**tag.name, &tag.prefixes[..])).collect();
        for tenant in &policy.tenants {
            tables.add_tenant(&Documents::of(policy, tenant), &Hosts::of(tenant, &tags));
        }
        if let Some((at, message)) = tables.refused.take() {
            errors.push(error(policy.place(at), message));
        }
        tables
    }

    pub fn into_program(self, program: &mut Program) -> PortLists<'a> {
        program.rules = self.rules;
        program.rule_lists = self.lists;
        self.of_ports
    }

    fn add_tenant(&mut self, documents: &Documents<'a>, hosts: &Hosts) {
        let [egress, ingress] =
            [Direction::Egress, Direction::Ingress].map(|direction| self.blocks(documents, hosts, direction));
        for port in &documents.tenant.ports {
            let lists = (self.port_list(&egress, hosts, port), self.port_list(&ingress, hosts, port));
            self.of_ports.insert(&port.port.value, lists);
        }
    }

    /// The rules of one direction, in order.
    fn blocks(&mut self, documents: &Documents<'a>, hosts: &Hosts, direction: Direction) -> Blocks<'a> {
        let cluster = |tier| documents.clusters.iter().filter(move |policy| policy.tier == tier);
        let mut order = Vec::new();
        for policy in cluster(ClusterTier::Admin) {
            let slots = self.slots(Tier::Admin, policy.rules(direction), hosts, direction);
            order.push(Block { owner: Owner::Cluster(policy), slots });
        }
        for policy in documents.policies {
            let slots = self.slots(Tier::Tenant, policy.rules(direction), hosts, direction);
            order.push(Block { owner: Owner::Tenant(policy), slots });
        }
        let mut closing = Vec::new();
        for policy in documents.networks {
            let Some(rules) = policy.rules(direction) else { continue };
            let slots = self.slots(Tier::Tenant, rules, hosts, direction);
            order.push(Block { owner: Owner::Network(policy), slots });
            closing.push((policy, self.add_final(Tier::Tenant, Verdict::Deny, policy.name.at)));
        }
        let mut baseline = Vec::new();
        for policy in cluster(ClusterTier::Baseline) {
            let slots = self.slots(Tier::Baseline, policy.rules(direction), hosts, direction);
            baseline.push(Block { owner: Owner::Cluster(policy), slots });
        }
        let first = documents.networks.first();
        let open = first.and_then(|policy| self.add_final(Tier::Default, Verdict::Accept, policy.name.at));
        Blocks { order, closing, baseline, open }
    }

    fn port_list(&mut self, blocks: &Blocks<'a>, hosts: &Hosts, port: &TenantPort) -> RuleListId {
        let mine = |block: &&Block| block.owner.selects(hosts.tenant, port);
        let mut list = Vec::new();
        for block in blocks.order.iter().filter(mine) {
            self.push_slots(block, hosts, port, &mut list);
        }
        let closing = blocks.closing.iter().find(|(policy, _)| policy.pods.selects(&port.labels));
        list.extend(closing.and_then(|(_, rule)| *rule));
        for block in blocks.baseline.iter().filter(mine) {
            self.push_slots(block, hosts, port, &mut list);
        }
        let is_covered = |block: &Block| matches!(block.owner, Owner::Tenant(_)) && mine(&block);
        if closing.is_none() && !blocks.order.iter().any(is_covered) {
            list.extend(blocks.open);
        }
        self.list(list)
    }

    fn push_slots(&mut self, block: &Block, hosts: &Hosts, port: &TenantPort, list: &mut Vec<RuleId>) {
        for slot in &block.slots {
            match slot {
                Slot::Rule(id) => list.push(*id),
                Slot::ByPort(tier, rule) => list.extend(self.add_for_port(*tier, rule, hosts, port)),
            }
        }
    }

    /// Rules that all ports share, and those that are another one for each port.
    fn slots(
        &mut self,
        tier: Tier,
        rules: &'a [policy::Rule],
        hosts: &Hosts,
        direction: Direction,
    ) -> Vec<Slot<'a>> {
        let mut slots = Vec::new();
        for rule in rules {
            let services = rule.services.as_deref().unwrap_or_default();
            if !services.iter().any(|service| matches!(service, Service::Named(..))) {
                slots.extend(self.add_rule(tier, rule, services, hosts).map(Slot::Rule));
            } else if direction == Direction::Ingress {
                slots.push(Slot::ByPort(tier, rule));
            } else {
                slots.extend(self.add_rule(tier, rule, services, hosts).map(Slot::Rule));
                slots.extend(self.add_named_egress(tier, rule, services, hosts).into_iter().map(Slot::Rule));
            }
        }
        slots
    }

    /// `None` for a rule without services, which no packet can match and for which the program has no word, and for
    /// one that there is no room for.
    fn add_rule(
        &mut self,
        tier: Tier,
        rule: &policy::Rule,
        services: &[Service],
        hosts: &Hosts,
    ) -> Option<RuleId> {
        let services: Vec<ServiceMatch> = services.iter().filter_map(service_match).collect();
        let count = rule.peers.iter().flatten().map(|peer| hosts.count(peer)).sum();
        if (rule.services.is_some() && services.is_empty()) || !self.has_room(rule.at, count) {
            return None;
        }
        let peers = rule.peers.as_ref();
        let peers = peers.map(|peers| peers.iter().flat_map(|peer| hosts.blocks(peer)).collect());
        Some(self.push(Rule {
            tier,
            verdict: verdict(rule.action),
            peers,
            services,
            log: rule.log,
            origin: origin(rule.at),
        }))
    }

    /// The rule as one port hears it: a name means what this port calls so.
    fn add_for_port(
        &mut self,
        tier: Tier,
        rule: &policy::Rule,
        hosts: &Hosts,
        port: &TenantPort,
    ) -> Option<RuleId> {
        let named = |service: &Service| match service {
            Service::Named(protocol, name) => resolve(*protocol, name, &port.named_ports),
            other => vec![other.clone()],
        };
        let services: Vec<Service> = rule.services.iter().flatten().flat_map(named).collect();
        self.add_rule(tier, rule, &services, hosts)
    }

    /// Rules for the named ports of an egress rule: one for each destination that has such a name.
    fn add_named_egress(
        &mut self,
        tier: Tier,
        rule: &policy::Rule,
        services: &[Service],
        hosts: &Hosts,
    ) -> Vec<RuleId> {
        let peers = rule.peers.as_ref();
        let blocks: Option<Vec<PeerBlock>> =
            peers.map(|peers| peers.iter().flat_map(|peer| hosts.blocks(peer)).collect());
        let is_peer = |address: &std::net::IpAddr| {
            blocks.as_ref().is_none_or(|blocks| blocks.iter().any(|block| block.contains(*address)))
        };
        let mut added = Vec::new();
        for pod in hosts.tenant.pods() {
            let named = services.iter().filter_map(|service| match service {
                Service::Named(protocol, name) => Some(resolve(*protocol, name, pod.named_ports)),
                _ => None,
            });
            let services: Vec<ServiceMatch> = named.flatten().filter_map(|one| service_match(&one)).collect();
            let addresses = pod.addresses.iter().map(|address| address.value).filter(is_peer);
            let peers: Vec<PeerBlock> =
                addresses.map(|one| PeerBlock { net: one.into(), except: vec![] }).collect();
            if services.is_empty() || peers.is_empty() || !self.has_room(rule.at, peers.len()) {
                continue;
            }
            let (verdict, origin) = (verdict(rule.action), origin(rule.at));
            let peers = Some(peers);
            added.push(self.push(Rule { tier, verdict, peers, services, log: rule.log, origin }));
        }
        added
    }

    /// A rule for all packets.
    fn add_final(&mut self, tier: Tier, verdict: Verdict, at: Position) -> Option<RuleId> {
        if !self.has_room(at, 0) {
            return None;
        }
        let rule = Rule { tier, verdict, peers: None, services: vec![], log: false, origin: origin(at) };
        Some(self.push(rule))
    }

    fn push(&mut self, rule: Rule) -> RuleId {
        // There are fewer rules than limit::RULES.
        let id = RuleId(self.rules.len() as u32);
        self.rules.push(rule);
        id
    }

    /// Takes what a rule needs from what is left.
    fn has_room(&mut self, at: Position, blocks: usize) -> bool {
        if self.refused.is_some() {
            return false;
        }
        let message = if self.rules.len() == limit::RULES {
            format!("more than {} rules", limit::RULES)
        } else if blocks > self.blocks_left {
            format!("the peers of all rules come to more than {BLOCKS_MAX} prefixes")
        } else {
            self.blocks_left -= blocks;
            return true;
        };
        self.refused = Some((at, message));
        false
    }

    fn list(&mut self, rules: Vec<RuleId>) -> RuleListId {
        if let Some(id) = self.known.get(&rules) {
            return *id;
        }
        // Two for each port at most.
        let id = RuleListId(self.lists.len() as u32);
        self.lists.push(rules.clone());
        self.known.insert(rules, id);
        id
    }
}

/// The documents that speak of one tenant, each in its order.
struct Documents<'a> {
    tenant: &'a Tenant,
    policies: &'a [TenantPolicy],
    networks: &'a [NetworkPolicy],
    clusters: Vec<&'a ClusterNetworkPolicy>,
}

impl<'a> Documents<'a> {
    fn of(policy: &'a Policy, tenant: &'a Tenant) -> Self {
        let name = &tenant.name.value;
        let clusters = policy.cluster_policies.iter();
        Self {
            tenant,
            policies: own(&policy.policies, |policy| policy.tenant.value.cmp(name)),
            networks: own(&policy.network_policies, |policy| policy.tenant.value.cmp(name)),
            clusters: clusters.filter(|policy| policy.tenants.selects(&tenant.labels)).collect(),
        }
    }
}

/// The part of a sorted list that compares equal.
fn own<T>(list: &[T], compare: impl Fn(&T) -> std::cmp::Ordering) -> &[T] {
    let start = list.partition_point(|item| compare(item).is_lt());
    let end = list.partition_point(|item| compare(item).is_le());
    &list[start..end]
}

/// The rules of a tenant in one direction, before they are told apart by port.
struct Blocks<'a> {
    /// Admin and the tenant's own.
    order: Vec<Block<'a>>,
    /// For each NetworkPolicy the rule that closes what it selects.
    closing: Vec<(&'a NetworkPolicy, Option<RuleId>)>,
    /// After the tenant's own.
    baseline: Vec<Block<'a>>,
    /// For ports that nothing closes.
    open: Option<RuleId>,
}

/// The rules of one document in one direction.
struct Block<'a> {
    owner: Owner<'a>,
    slots: Vec<Slot<'a>>,
}

enum Slot<'a> {
    Rule(RuleId),
    /// It names ports, which are others on each host.
    ByPort(Tier, &'a policy::Rule),
}

enum Owner<'a> {
    Tenant(&'a TenantPolicy),
    Network(&'a NetworkPolicy),
    Cluster(&'a ClusterNetworkPolicy),
}

impl Owner<'_> {
    fn selects(&self, tenant: &Tenant, port: &TenantPort) -> bool {
        match self {
            Self::Tenant(policy) => policy.ports.selects(&port.port, &port.labels),
            Self::Network(policy) => policy.pods.selects(&port.labels),
            Self::Cluster(policy) => policy.selects(&tenant.labels, &port.labels),
        }
    }
}

fn resolve(protocol: Option<Protocol>, name: &str, named: &[policy::NamedPort]) -> Vec<Service> {
    let fits = |own: &&policy::NamedPort| {
        own.name.value == name && protocol.is_none_or(|protocol| protocol == own.protocol)
    };
    named.iter().filter(fits).map(|own| Service::Ports(own.protocol, own.port, own.port)).collect()
}

const fn verdict(action: Action) -> Verdict {
    match action {
        Action::Accept => Verdict::Accept,
        Action::Deny => Verdict::Deny,
        Action::Pass => Verdict::Pass,
    }
}

const fn origin(at: Position) -> Origin {
    Origin { source: at.source, line: at.line }
}

/// `None` for a name, which means something on each destination only.
pub(crate) const fn service_match(service: &Service) -> Option<ServiceMatch> {
    Some(match *service {
        Service::Ports(Protocol::Tcp, first, last) => ServiceMatch::Tcp(PortRange { first, last }),
        Service::Ports(Protocol::Udp, first, last) => ServiceMatch::Udp(PortRange { first, last }),
        Service::Ports(Protocol::Sctp, first, last) => ServiceMatch::Sctp(PortRange { first, last }),
        Service::Icmp(kind, code) => ServiceMatch::Icmp(kind, code),
        Service::Icmpv6(kind, code) => ServiceMatch::Icmpv6(kind, code),
        Service::Roce(first, last) => ServiceMatch::Roce(QpRange { first, last }),
        Service::Number(number) => ServiceMatch::Protocol(number),
        Service::Named(..) => return None,
    })
}
