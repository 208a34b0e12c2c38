//! Lists of rules in the form in which misses are decided, made once for each set of rules that programs share.
//!
//! What the classifier finds is heard by [`Asking`], as what a scan finds is: there is one place that knows what verdicts
//! and tiers do. Misses alone come here, and what they learn is remembered for their own flow, to the last bit that was
//! looked at: an entry of the flow table is never wider than the question was.

use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use ipnet::IpNet;
use program::{
    Asking, Decision, PeerBlock, Program, Rule, RuleId, RuleListId, RuleSet, Service, ServiceMatch, Verdict,
};
use tables::classifier::{self, Classifier, Key, PAIRS_MAX, Span, TooLarge};
use tables::prefix::{Address, Prefix};

/// Most bytes of all compiled lists of a program together.
pub const MEMORY_MAX: usize = 1 << 30;

/// The rules of a program, compiled. Cheap to clone.
#[derive(Clone, Default)]
pub struct Rules {
    sets: Vec<(Arc<RuleSet>, Arc<[List]>)>,
}

impl Rules {
    /// Compiles the rules of a program. Sets that `known` has are taken from there. A list that is too large, or for which
    /// [`MEMORY_MAX`] has no room left, is scanned.
    pub(crate) fn compile(program: &Program, known: &Self) -> Self {
        let mut at: HashMap<*const RuleSet, &Arc<[List]>, FixedState> = HashMap::default();
        at.extend(known.sets.iter().map(|(set, lists)| (Arc::as_ptr(set), lists)));
        let mut room = MEMORY_MAX;
        let mut compiled = |set: &Arc<RuleSet>| {
            if let Some(lists) = at.get(&Arc::as_ptr(set)) {
                room = room.saturating_sub(lists.iter().map(List::memory_bytes).sum());
                return Arc::clone(lists);
            }
            set.lists.iter().map(|list| List::compile(set, list, &mut room)).collect()
        };
        let sets = program.rules.placed().iter().map(|placed| (placed.set.clone(), compiled(&placed.set)));
        Self { sets: sets.collect() }
    }

    /// As [`Program::decide`] of the program that they were compiled from.
    pub(crate) fn decide(
        &self,
        program: &Program,
        list: RuleListId,
        peer: IpAddr,
        service: Service,
    ) -> Decision {
        let placed = program.rules.placed();
        let Some(index) = placed.partition_point(|placed| placed.first_list <= list).checked_sub(1) else {
            return Decision::DEFAULT;
        };
        let (placed, number) = (&placed[index], (list.0 - placed[index].first_list.0) as usize);
        match self.sets.get(index).and_then(|(_, lists)| lists.get(number)) {
            Some(List::Compiled(compiled)) => {
                compiled.decide(&placed.set, &placed.set.lists[number], placed.first_rule, peer, service)
            }
            Some(List::Scanned) => program.decide(list, peer, service),
            None => Decision::DEFAULT,
        }
    }

    /// Lists that were not compiled, and are asked one rule after the other.
    pub fn scanned(&self) -> usize {
        self.sets.iter().flat_map(|(_, lists)| &**lists).filter(|list| matches!(list, List::Scanned)).count()
    }

    /// How many sets are the same compiled ones as in `other`.
    pub fn shared_with(&self, other: &Self) -> usize {
        let has = |lists: &Arc<[List]>| other.sets.iter().any(|(_, known)| Arc::ptr_eq(known, lists));
        self.sets.iter().filter(|(_, lists)| has(lists)).count()
    }
}

/// One list.
enum List {
    Compiled(Box<Compiled>),
    /// It was too large.
    Scanned,
}

struct Compiled {
    four: Classifier<u32>,
    six: Classifier<u128>,
}

impl List {
    fn compile(set: &RuleSet, list: &[u32], room: &mut usize) -> Self {
        let compile =
            || Ok::<_, TooLarge>(Compiled { four: classifier(set, list)?, six: classifier(set, list)? });
        let Ok(compiled) = compile() else { return Self::Scanned };
        match room.checked_sub(compiled.memory_bytes()) {
            Some(left) => {
                *room = left;
                Self::Compiled(compiled.into())
            }
            None => Self::Scanned,
        }
    }

    fn memory_bytes(&self) -> usize {
        if let Self::Compiled(compiled) = self { compiled.memory_bytes() } else { 0 }
    }
}

impl Compiled {
    fn decide(&self, set: &RuleSet, list: &[u32], first: RuleId, peer: IpAddr, service: Service) -> Decision {
        let rule = |position: u32| {
            let index = list[position as usize];
            (RuleId(first.0 + index), set.rules.get(index as usize))
        };
        let (protocol, value) = question(service);
        let mut asking = Asking::default();
        let mut from = 0;
        while let Some(position) = self.first(peer, protocol, value, from) {
            from = position + 1;
            let (id, Some(rule)) = rule(position) else { continue };
            if asking.is_done_with(rule.tier) {
                // A list never goes back to an earlier tier.
                let done = |index: &u32| {
                    set.rules.get(*index as usize).is_none_or(|rule| asking.is_done_with(rule.tier))
                };
                from = list.partition_point(done) as u32;
            } else if let Some(decision) = asking.hear(id, rule, service) {
                return decision;
            }
        }
        Decision::DEFAULT
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.four.memory_bytes() + self.six.memory_bytes()
    }

    fn first(&self, peer: IpAddr, protocol: u8, value: u32, from: u32) -> Option<u32> {
        match peer {
            IpAddr::V4(peer) => {
                self.four.first(&Key { dst: peer.into(), protocol, value, ..Key::default() }, from)
            }
            IpAddr::V6(peer) => {
                self.six.first(&Key { dst: peer.into(), protocol, value, ..Key::default() }, from)
            }
        }
    }
}

/// A family's addresses as rules have them.
trait Family: Address {
    /// `None` for a prefix of the other family.
    fn prefix(net: IpNet) -> Option<Prefix<Self>>;
}

impl Family for u32 {
    fn prefix(net: IpNet) -> Option<Prefix<Self>> {
        if let IpNet::V4(net) = net { Some(Prefix::new(net.addr().into(), net.prefix_len())) } else { None }
    }
}

impl Family for u128 {
    fn prefix(net: IpNet) -> Option<Prefix<Self>> {
        if let IpNet::V6(net) = net { Some(Prefix::new(net.addr().into(), net.prefix_len())) } else { None }
    }
}

fn classifier<A: Family>(set: &RuleSet, list: &[u32]) -> Result<Classifier<A>, TooLarge> {
    let mut pairs_left = PAIRS_MAX;
    let mut rules = Vec::with_capacity(list.len());
    for index in list {
        let Some(rule) = set.rules.get(*index as usize) else {
            rules.push(classifier::Rule { pairs: vec![], services: vec![] });
            continue;
        };
        let pairs = peers::<A>(rule, pairs_left).ok_or(TooLarge::Pairs)?;
        pairs_left -= pairs.len();
        rules.push(classifier::Rule { pairs, services: services(rule) });
    }
    Classifier::build(&rules)
}

/// The far sides of a rule as the classifier's destinations; `None` when they are more than `most`.
fn peers<A: Family>(rule: &Rule, most: usize) -> Option<Vec<(Prefix<A>, Prefix<A>)>> {
    let Some(blocks) = &rule.peers else { return Some(vec![(Prefix::all(), Prefix::all())]) };
    let mut parts = Vec::new();
    for PeerBlock { net, except } in blocks {
        let Some(net) = A::prefix(*net) else { continue };
        let except: Vec<Prefix<A>> = except.iter().filter_map(|net| A::prefix(*net)).collect();
        net.without(&except, &mut parts);
        if parts.len() > most {
            return None;
        }
    }
    Some(parts.into_iter().map(|part| (Prefix::all(), part)).collect())
}

/// Beside the protocol a service is one number: a port, an ICMP type and code, or one of these.
mod number {
    /// A later fragment, or a protocol of which no more is known.
    pub(super) const OPAQUE: u32 = 1 << 24;
    /// RoCEv2, with the queue pair in the lower 24 bits.
    pub(super) const ROCE: u32 = 2 << 24;
    /// The highest queue pair.
    pub(super) const QP_MAX: u32 = (1 << 24) - 1;
}

/// What a packet shows: its protocol and number.
const fn question(service: Service) -> (u8, u32) {
    let number = match service {
        Service::Tcp(port) | Service::Udp(port) | Service::Sctp(port) => port as u32,
        Service::Icmp(kind, code) | Service::Icmpv6(kind, code) => (kind as u32) << 8 | code as u32,
        Service::Roce(qp) => number::ROCE | qp & number::QP_MAX,
        Service::Opaque(_) => number::OPAQUE,
    };
    (service.protocol(), number)
}

/// The services that a rule matches: as [`Rule::matches`] has it.
fn services(rule: &Rule) -> Vec<classifier::Service> {
    if rule.services.is_empty() {
        return vec![classifier::Service::ANY];
    }
    let mut services = Vec::new();
    for &wanted in &rule.services {
        add_service(wanted, &mut services);
        // What a rule that looks at ports says of a packet that shows none, it says itself.
        if wanted.matches(Service::Opaque(wanted.protocol()), rule.verdict) {
            services.push(service(wanted, number::OPAQUE, number::OPAQUE));
        }
    }
    services
}

fn add_service(wanted: ServiceMatch, services: &mut Vec<classifier::Service>) {
    let mut add = |first, last| services.push(service(wanted, first, last));
    match wanted {
        ServiceMatch::Tcp(ports) | ServiceMatch::Sctp(ports) => add(ports.first.into(), ports.last.into()),
        ServiceMatch::Udp(ports) => {
            add(ports.first.into(), ports.last.into());
            if wanted.matches(Service::Roce(0), Verdict::Accept) {
                add(number::ROCE, number::ROCE | number::QP_MAX);
            }
        }
        ServiceMatch::Roce(qps) => {
            add(number::ROCE.saturating_add(qps.first), number::ROCE | qps.last.min(number::QP_MAX));
        }
        ServiceMatch::Icmp(kind, code) | ServiceMatch::Icmpv6(kind, code) => {
            for kind in kind.map_or(0..=u8::MAX, |kind| kind..=kind) {
                let (first, last) = code.map_or((0, u8::MAX), |code| (code, code));
                add(u32::from(kind) << 8 | u32::from(first), u32::from(kind) << 8 | u32::from(last));
            }
        }
        ServiceMatch::Protocol(_) => add(0, u32::MAX),
    }
}

const fn service(wanted: ServiceMatch, first: u32, last: u32) -> classifier::Service {
    let protocol = wanted.protocol();
    classifier::Service { protocol, mask: 0xff, src_ports: Span::<u16>::ALL, values: Span { first, last } }
}
