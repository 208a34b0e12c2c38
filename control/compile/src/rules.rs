//! Rules, and the ordered lists of them that ports ask.

use std::collections::BTreeMap;

use policy::{
    Action, Diagnostics, Direction, Peer, Policy, Protocol, Service, Tenant, TenantPolicy, has_labels,
};
use program::{
    Origin, PeerBlock, PortRange, Program, QpRange, Rule, RuleId, RuleListId, ServiceMatch, Verdict, limit,
};

use crate::error;

/// Egress and ingress list of each tenant port, by the port's name.
pub(crate) type PortLists<'a> = BTreeMap<&'a str, (RuleListId, RuleListId)>;

pub(crate) fn refuse_too_many(policy: &Policy, errors: &mut Diagnostics) {
    let mut count = 0;
    for policy_of_tenant in &policy.policies {
        count += policy_of_tenant.egress.len() + policy_of_tenant.ingress.len();
        if count > limit::RULES {
            let message = format!("more than {} rules", limit::RULES);
            errors.push(error(policy.place(policy_of_tenant.name.at), message));
            return;
        }
    }
}

/// The tables under construction.
pub(crate) struct Rules<'a> {
    rules: Vec<Rule>,
    lists: Vec<Vec<RuleId>>,
    /// So that ports with the same rules share one list.
    known: BTreeMap<Vec<RuleId>, RuleListId>,
    of_ports: PortLists<'a>,
}

impl<'a> Rules<'a> {
    pub fn of(policy: &'a Policy) -> Self {
        let mut tables =
            Self { rules: vec![], lists: vec![], known: BTreeMap::new(), of_ports: BTreeMap::new() };
        let mut policies = &policy.policies[..];
        // Tenants and policies are both sorted by the tenant's name.
        for tenant in &policy.tenants {
            let own = policies.partition_point(|policy| *policy.tenant <= *tenant.name);
            tables.add_tenant(tenant, &policies[..own]);
            policies = &policies[own..];
        }
        tables
    }

    pub fn into_program(self, program: &mut Program) -> PortLists<'a> {
        program.rules = self.rules;
        program.rule_lists = self.lists;
        self.of_ports
    }

    fn add_tenant(&mut self, tenant: &'a Tenant, policies: &[TenantPolicy]) {
        let numbered: Vec<Numbered> = policies.iter().map(|policy| self.add_policy(tenant, policy)).collect();
        for port in &tenant.ports {
            let selected = |numbered: &&Numbered| numbered.policy.ports.selects(&port.port, &port.labels);
            let mine: Vec<&Numbered> = numbered.iter().filter(selected).collect();
            let egress = self.list(mine.iter().flat_map(|numbered| numbered.egress.clone()));
            let ingress = self.list(mine.iter().flat_map(|numbered| numbered.ingress.clone()));
            self.of_ports.insert(&port.port.value, (egress, ingress));
        }
    }

    fn add_policy<'p>(&mut self, tenant: &Tenant, policy: &'p TenantPolicy) -> Numbered<'p> {
        let mut add = |direction| -> Vec<RuleId> {
            policy.rules(direction).iter().filter_map(|rule| self.add_rule(tenant, rule)).collect()
        };
        Numbered { policy, egress: add(Direction::Egress), ingress: add(Direction::Ingress) }
    }

    /// `None` for a rule that no packet can match by its empty list of services: the program has no word for it.
    fn add_rule(&mut self, tenant: &Tenant, rule: &policy::Rule) -> Option<RuleId> {
        let services = rule.services.as_deref();
        if services.is_some_and(<[Service]>::is_empty) {
            return None;
        }
        // There are fewer rules than limit::RULES.
        let id = RuleId(self.rules.len() as u32);
        self.rules.push(Rule {
            verdict: match rule.action {
                Action::Accept => Verdict::Accept,
                Action::Deny => Verdict::Deny,
            },
            peers: rule
                .peers
                .as_ref()
                .map(|peers| peers.iter().flat_map(|peer| blocks(tenant, peer)).collect()),
            services: services.unwrap_or_default().iter().map(|service| service_match(*service)).collect(),
            origin: Origin { source: rule.at.source, line: rule.at.line },
        });
        Some(id)
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

fn blocks(tenant: &Tenant, peer: &Peer) -> Vec<PeerBlock> {
    let whole = |net| PeerBlock { net, except: Vec::new() };
    match peer {
        Peer::IpBlock { cidr, except } => {
            vec![PeerBlock { net: cidr.value, except: except.iter().map(|part| part.value).collect() }]
        }
        Peer::Ports(labels) => {
            let ports = tenant.ports.iter().filter(|port| has_labels(&port.labels, labels));
            ports.flat_map(|port| &port.addresses).map(|address| whole(address.value.into())).collect()
        }
        Peer::Remote(name) => {
            let Some(remote) = tenant.remote(name) else { return Vec::new() };
            let hosts = remote.addresses.iter().map(|address| address.value.into());
            hosts.chain(remote.prefixes.iter().map(|prefix| prefix.value)).map(whole).collect()
        }
    }
}

const fn service_match(service: Service) -> ServiceMatch {
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
