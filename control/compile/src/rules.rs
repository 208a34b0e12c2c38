//! Rules, and the ordered lists of them that ports ask.
//!
//! A port's list has the operator's Admin policies, then the tenant's TenantPolicies by priority, then its
//! NetworkPolicies, whose order does not matter, then the operator's Baseline policies. What Kubernetes says without a
//! rule is a rule here: that a NetworkPolicy closes what it selects, and that the pods that none selects are open.

use std::{collections::BTreeMap, mem, sync::Arc};

use policy::{
    Action, ClusterNetworkPolicy, ClusterTier, Diagnostics, Direction, Name, NetworkPolicy, Policy, Position,
    Protocol, Service, Tenant, TenantPolicy, TenantPort,
};
use program::{
    Origin, PeerBlock, PortRange, Program, QpRange, Rule, RuleListId, RuleSet, RuleSets, ServiceMatch,
    TenantId, Tier, Verdict, limit,
};

use crate::{
    documents::{ByTenant, Documents, Inputs},
    error,
    hosts::{Hosts, Tags},
    ids::{ByKey, Ids},
};

/// Egress and ingress list of each tenant port, by the port's name.
pub(crate) type PortLists<'a> = ByKey<&'a str, (RuleListId, RuleListId)>;

/// Most prefixes and exceptions of all rules together, once labels and names are resolved: a rule of a few bytes can
/// mean every address of a tenant.
const BLOCKS_MAX: usize = 1 << 22;

/// The rules of all tenants, and the lists of their ports.
pub(crate) struct Rules<'a> {
    pub sets: RuleSets,
    pub of_ports: PortLists<'a>,
    pub recompiled: usize,
}

/// Tenants as they were compiled, by name.
pub(crate) type Kept = ByKey<Name, (Inputs, OwnRules)>;

impl<'a> Rules<'a> {
    /// The tenants in the order of their names, as far as there is room. A set that is as it was in `previous` is shared
    /// with it.
    pub fn of(
        policy: &'a Policy,
        ids: &Ids<&str, TenantId>,
        previous: &Program,
        kept: &mut Kept,
        errors: &mut Diagnostics,
    ) -> Self {
        let mut before = mem::take(kept);
        let shared: SetsByTenant =
            previous.rules.placed().iter().map(|placed| (placed.tenant, &placed.set)).collect();
        let tags: Tags = policy.tags.iter().map(|tag| (&**tag.name, tag)).collect();
        let mut all = Self { sets: RuleSets::default(), of_ports: ByKey::default(), recompiled: 0 };
        let by_tenant = ByTenant::of(policy);
        let mut room = Room { rules: limit::RULES, blocks: BLOCKS_MAX };
        for tenant in &policy.tenants {
            let name = &tenant.name.value;
            let documents = Documents::of(&by_tenant, tenant);
            let own = before
                .remove(name)
                .filter(|(inputs, own)| inputs.are(policy, &documents, &tags) && own.used.fits(&room));
            let own = own.map(Ok).unwrap_or_else(|| {
                all.recompiled += 1;
                let own = OwnRules::of(policy, &documents, &Hosts::of(tenant, &tags), room)?;
                Ok((Inputs::of(policy, &documents, &tags), own))
            });
            let (inputs, mut own) = match own {
                Ok(own) => own,
                Err(Refused { at, message }) => {
                    errors.push(error(policy.place(at), message));
                    break;
                }
            };
            room = room.less(&own.used);
            let id = ids.get(&&**name);
            own.share(shared.get(&id).copied());
            all.place(tenant, id, &own);
            kept.insert(name.clone(), (inputs, own));
        }
        all
    }

    fn place(&mut self, tenant: &'a Tenant, id: TenantId, own: &OwnRules) {
        let RuleListId(first) = self.sets.push(id, own.set.clone()).first_list;
        for (port, [egress, ingress]) in tenant.ports.iter().zip(&own.of_ports) {
            let lists = (RuleListId(first + egress), RuleListId(first + ingress));
            self.of_ports.insert(&port.port.value, lists);
        }
    }
}

type SetsByTenant<'p> = BTreeMap<TenantId, &'p Arc<RuleSet>>;

/// What is left of the bounds of a program, or what a part of it takes.
#[derive(Clone, Copy, Debug)]
struct Room {
    rules: usize,
    /// Prefixes and exceptions.
    blocks: usize,
}

impl Room {
    const fn fits(&self, room: &Self) -> bool {
        self.rules <= room.rules && self.blocks <= room.blocks
    }

    const fn less(self, used: &Self) -> Self {
        Self { rules: self.rules - used.rules, blocks: self.blocks - used.blocks }
    }
}

/// The first rule for which there is no room.
struct Refused {
    at: Position,
    message: String,
}

/// What the documents of one tenant come to.
#[derive(Debug)]
pub(crate) struct OwnRules {
    set: Arc<RuleSet>,
    /// For each port of the tenant its egress and its ingress list, as indices into the set's.
    of_ports: Vec<[u32; 2]>,
    used: Room,
}

impl OwnRules {
    fn of(policy: &Policy, documents: &Documents, hosts: &Hosts, room: Room) -> Result<Self, Refused> {
        let mut set = SetBuilder {
            sources: &policy.sources,
            set: RuleSet::default(),
            known: BTreeMap::new(),
            room,
            refused: None,
        };
        let of_ports = set.add(documents, hosts);
        match set.refused {
            Some(refused) => Err(refused),
            None => Ok(Self { set: set.set.into(), of_ports, used: room.less(&set.room) }),
        }
    }

    /// Takes the set of the program before when it says the same.
    fn share(&mut self, before: Option<&Arc<RuleSet>>) {
        if let Some(before) = before.filter(|before| **before == self.set) {
            self.set = before.clone();
        }
    }
}

/// A tenant's rules under construction.
struct SetBuilder<'a> {
    sources: &'a [Arc<str>],
    set: RuleSet,
    /// So that ports with the same rules share one list.
    known: BTreeMap<Vec<u32>, u32>,
    room: Room,
    refused: Option<Refused>,
}

impl<'a> SetBuilder<'a> {
    fn add(&mut self, documents: &Documents<'a>, hosts: &Hosts) -> Vec<[u32; 2]> {
        let blocks =
            [Direction::Egress, Direction::Ingress].map(|direction| self.blocks(documents, hosts, direction));
        let lists = |port| blocks.each_ref().map(|blocks| self.port_list(blocks, hosts, port));
        documents.tenant.ports.iter().map(lists).collect()
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
            closing.push((&**policy, self.add_final(Tier::Tenant, Verdict::Deny, policy.name.at)));
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

    fn port_list(&mut self, blocks: &Blocks<'a>, hosts: &Hosts, port: &TenantPort) -> u32 {
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

    fn push_slots(&mut self, block: &Block, hosts: &Hosts, port: &TenantPort, list: &mut Vec<u32>) {
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
    ) -> Option<u32> {
        let services: Vec<ServiceMatch> = services.iter().filter_map(service_match).collect();
        let count = rule.peers.iter().flatten().map(|peer| hosts.count(peer)).sum();
        if (rule.services.is_some() && services.is_empty()) || !self.has_room(rule.at, count) {
            return None;
        }
        let peers = rule.peers.as_ref();
        let peers = peers.map(|peers| peers.iter().flat_map(|peer| hosts.blocks(peer)).collect());
        let (verdict, origin) = (verdict(rule.action), self.origin(rule.at));
        Some(self.push(Rule { tier, verdict, peers, services, log: rule.log, origin }))
    }

    /// The rule as one port hears it: a name means what this port calls so.
    fn add_for_port(
        &mut self,
        tier: Tier,
        rule: &policy::Rule,
        hosts: &Hosts,
        port: &TenantPort,
    ) -> Option<u32> {
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
    ) -> Vec<u32> {
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
            let (verdict, origin) = (verdict(rule.action), self.origin(rule.at));
            let peers = Some(peers);
            added.push(self.push(Rule { tier, verdict, peers, services, log: rule.log, origin }));
        }
        added
    }

    /// A rule for all packets.
    fn add_final(&mut self, tier: Tier, verdict: Verdict, at: Position) -> Option<u32> {
        if !self.has_room(at, 0) {
            return None;
        }
        let origin = self.origin(at);
        Some(self.push(Rule { tier, verdict, peers: None, services: vec![], log: false, origin }))
    }

    fn push(&mut self, rule: Rule) -> u32 {
        self.room.rules -= 1;
        // There are fewer rules than limit::RULES.
        let index = self.set.rules.len() as u32;
        self.set.rules.push(rule);
        index
    }

    /// Takes what the peers of a rule need from what is left, if there is that and a rule more.
    fn has_room(&mut self, at: Position, blocks: usize) -> bool {
        if self.refused.is_some() {
            return false;
        }
        let message = if self.room.rules == 0 {
            format!("more than {} rules", limit::RULES)
        } else if blocks > self.room.blocks {
            format!("the peers of all rules come to more than {BLOCKS_MAX} prefixes")
        } else {
            self.room.blocks -= blocks;
            return true;
        };
        self.refused = Some(Refused { at, message });
        false
    }

    fn list(&mut self, rules: Vec<u32>) -> u32 {
        if let Some(index) = self.known.get(&rules) {
            return *index;
        }
        // Two for each port at most.
        let index = self.set.lists.len() as u32;
        self.set.lists.push(rules.clone());
        self.known.insert(rules, index);
        index
    }

    fn origin(&self, at: Position) -> Origin {
        let source = self.sources.get(at.source as usize).cloned().unwrap_or_default();
        Origin { source, line: at.line }
    }
}

/// The rules of a tenant in one direction, before they are told apart by port.
struct Blocks<'a> {
    /// Admin and the tenant's own.
    order: Vec<Block<'a>>,
    /// For each NetworkPolicy the rule that closes what it selects.
    closing: Vec<(&'a NetworkPolicy, Option<u32>)>,
    /// After the tenant's own.
    baseline: Vec<Block<'a>>,
    /// For ports that nothing closes.
    open: Option<u32>,
}

/// The rules of one document in one direction.
struct Block<'a> {
    owner: Owner<'a>,
    slots: Vec<Slot<'a>>,
}

enum Slot<'a> {
    Rule(u32),
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
