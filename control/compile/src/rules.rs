//! Rules, and the ordered lists of them that ports ask.

use std::collections::BTreeMap;

use policy::{
    Action, Diagnostics, Direction, Labels, Peer, Policy, Position, Protocol, Remote, Service, Tenant,
    TenantPolicy, TenantPort, has_labels,
};
use program::{
    Origin, PeerBlock, PortRange, Program, QpRange, Rule, RuleId, RuleListId, ServiceMatch, Verdict, limit,
};

use crate::error;

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
        let mut policies = &policy.policies[..];
        // Tenants and policies are both sorted by the tenant's name.
        for tenant in &policy.tenants {
            let own = policies.partition_point(|policy| *policy.tenant <= *tenant.name);
            tables.add_tenant(tenant, &policies[..own]);
            policies = &policies[own..];
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

    fn add_tenant(&mut self, tenant: &'a Tenant, policies: &[TenantPolicy]) {
        let hosts = Hosts::of(tenant);
        let numbered: Vec<Numbered> = policies.iter().map(|policy| self.add_policy(&hosts, policy)).collect();
        for port in &tenant.ports {
            let selected = |numbered: &&Numbered| numbered.policy.ports.selects(&port.port, &port.labels);
            let mine: Vec<&Numbered> = numbered.iter().filter(selected).collect();
            let egress = self.list(mine.iter().flat_map(|numbered| numbered.egress.clone()));
            let ingress = self.list(mine.iter().flat_map(|numbered| numbered.ingress.clone()));
            self.of_ports.insert(&port.port.value, (egress, ingress));
        }
    }

    fn add_policy<'p>(&mut self, hosts: &Hosts, policy: &'p TenantPolicy) -> Numbered<'p> {
        let mut add = |direction| -> Vec<RuleId> {
            policy.rules(direction).iter().filter_map(|rule| self.add_rule(hosts, rule)).collect()
        };
        Numbered { policy, egress: add(Direction::Egress), ingress: add(Direction::Ingress) }
    }

    /// `None` for a rule without services, which no packet can match and for which the program has no word, and for
    /// one that there is no room for.
    fn add_rule(&mut self, hosts: &Hosts, rule: &policy::Rule) -> Option<RuleId> {
        let services = rule.services.as_deref();
        if services.is_some_and(<[Service]>::is_empty) || !self.has_room(hosts, rule) {
            return None;
        }
        // There are fewer rules than limit::RULES.
        let id = RuleId(self.rules.len() as u32);
        let peers = rule.peers.as_ref();
        self.rules.push(Rule {
            verdict: match rule.action {
                Action::Accept => Verdict::Accept,
                Action::Deny => Verdict::Deny,
            },
            peers: peers.map(|peers| peers.iter().flat_map(|peer| hosts.blocks(peer)).collect()),
            services: services.unwrap_or_default().iter().map(|service| service_match(*service)).collect(),
            origin: Origin { source: rule.at.source, line: rule.at.line },
        });
        Some(id)
    }

    /// Takes what the rule needs from what is left.
    fn has_room(&mut self, hosts: &Hosts, rule: &policy::Rule) -> bool {
        if self.refused.is_some() {
            return false;
        }
        let blocks: usize = rule.peers.iter().flatten().map(|peer| hosts.count(peer)).sum();
        let message = if self.rules.len() == limit::RULES {
            format!("more than {} rules", limit::RULES)
        } else if blocks > self.blocks_left {
            format!("the peers of all rules come to more than {BLOCKS_MAX} prefixes")
        } else {
            self.blocks_left -= blocks;
            return true;
        };
        self.refused = Some((rule.at, message));
        false
    }

    fn list(&mut self, rules: impl Iterator<Item = RuleId>) -> RuleListId {
        let rules: Vec<RuleId> = rules.collect();
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

/// A policy and the ids of its rules.
struct Numbered<'a> {
    policy: &'a TenantPolicy,
    egress: Vec<RuleId>,
    ingress: Vec<RuleId>,
}

/// What the rules of a tenant can name.
pub(crate) struct Hosts<'a> {
    tenant: &'a Tenant,
    remotes: BTreeMap<&'a str, &'a Remote>,
}

impl<'a> Hosts<'a> {
    pub fn of(tenant: &'a Tenant) -> Self {
        let named = |remote: &'a Remote| remote.name.as_ref().map(|name| (&***name, remote));
        Self { tenant, remotes: tenant.remotes.iter().filter_map(named).collect() }
    }

    /// The addresses that a peer means.
    pub fn blocks(&self, peer: &Peer) -> Vec<PeerBlock> {
        let whole = |net| PeerBlock { net, except: Vec::new() };
        match peer {
            Peer::IpBlock { cidr, except } => {
                vec![PeerBlock { net: cidr.value, except: except.iter().map(|part| part.value).collect() }]
            }
            Peer::Ports(labels) => {
                let addresses = self.ports(labels).flat_map(|port| &port.addresses);
                addresses.map(|address| whole(address.value.into())).collect()
            }
            Peer::Remote(name) => {
                let Some(remote) = self.remotes.get(&*name.value) else { return Vec::new() };
                let hosts = remote.addresses.iter().map(|address| address.value.into());
                hosts.chain(remote.prefixes.iter().map(|prefix| prefix.value)).map(whole).collect()
            }
        }
    }

    /// How many prefixes and exceptions [`Self::blocks`] gives.
    fn count(&self, peer: &Peer) -> usize {
        match peer {
            Peer::IpBlock { except, .. } => 1 + except.len(),
            Peer::Ports(labels) => self.ports(labels).map(|port| port.addresses.len()).sum(),
            Peer::Remote(name) => self
                .remotes
                .get(&*name.value)
                .map_or(0, |remote| remote.addresses.len() + remote.prefixes.len()),
        }
    }

    fn ports(&self, labels: &'a Labels) -> impl Iterator<Item = &'a TenantPort> {
        self.tenant.ports.iter().filter(move |port| has_labels(&port.labels, labels))
    }
}

pub(crate) const fn service_match(service: Service) -> ServiceMatch {
    match service {
        Service::Ports(Protocol::Tcp, first, last) => ServiceMatch::Tcp(PortRange { first, last }),
        Service::Ports(Protocol::Udp, first, last) => ServiceMatch::Udp(PortRange { first, last }),
        Service::Ports(Protocol::Sctp, first, last) => ServiceMatch::Sctp(PortRange { first, last }),
        Service::Icmp(kind, code) => ServiceMatch::Icmp(kind, code),
        Service::Icmpv6(kind, code) => ServiceMatch::Icmpv6(kind, code),
        Service::Roce(first, last) => ServiceMatch::Roce(QpRange { first, last }),
        Service::Number(number) => ServiceMatch::Protocol(number),
    }
}
