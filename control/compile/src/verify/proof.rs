//! Questions and their answers.

use std::{collections::HashMap, rc::Rc};

use program::{DropReason, Flow, Ingress, Place, Program, RuleListId, Service, Tenant, TenantId, Verdict};

use super::{
    Answer, CounterExample, End, Expect, Question, Undecided,
    address::Family,
    reach::{Reach, ways_in},
    services,
    set::Set,
    walk::{Budget, Decided},
};

/// Regions of walked lists that are kept for the next question.
const KEPT_REGIONS_MAX: usize = 1 << 20;

/// The source port of examples that have one: the first ephemeral one (RFC 6335, section 6).
const SOURCE_PORT: u16 = 49_152;

/// Answers questions about one program; what it worked out for one serves the next.
pub struct Prover<'p> {
    program: &'p Program,
    lists: HashMap<(RuleListId, Family), Rc<Decided>>,
    kept_regions: usize,
}

/// Packets that take one way: every combination of the three sets is one of them.
struct Passage {
    family: Family,
    ingress: Ingress,
    gates: Gates,
    src: Set<u128>,
    dst: Set<u128>,
    services: Set<u32>,
}

/// Who is asked on the way.
#[derive(Clone, Copy)]
enum Gates {
    /// There is no way.
    Closed,
    /// These lists, as far as they are here.
    Rules { egress: Option<RuleListId>, ingress: Option<RuleListId> },
}

impl<'p> Prover<'p> {
    /// For questions about `program`.
    pub fn new(program: &'p Program) -> Self {
        Self { program, lists: HashMap::new(), kept_regions: 0 }
    }

    /// The answer, true of all packets.
    pub fn answer(&mut self, question: &Question) -> Answer {
        self.decide(question, &mut Budget::whole()).unwrap_or_else(Answer::Undecided)
    }

    fn decide(&mut self, question: &Question, budget: &mut Budget) -> Result<Answer, Undecided> {
        let tenant = |id: TenantId| self.program.tenant(id).ok_or(Undecided::NoTenant);
        let (from, to) = (tenant(question.from.tenant)?, tenant(question.to.tenant)?);
        let mut is_vacuous = true;
        for family in Family::ALL {
            let services = meant(question, family);
            let reach = Reach::of(from, family, budget)?;
            for (ingress, src) in ways_in(self.program, from, &reach, family) {
                let src = restricted(src, &question.from, ingress, family);
                if src.is_empty() || services.is_empty() {
                    continue;
                }
                // Between tenants there should be no way: it is enough that somebody could send, and somebody receive.
                is_vacuous &= from.id == to.id || is_nobody(&question.to, family);
                for (exit, dst) in self.exits(question, from, to, &reach, family) {
                    let Some(gates) = self.gates(ingress, exit) else { continue };
                    for (src, dst) in apart(&src, &dst) {
                        let services = services.clone();
                        let passage = Passage { family, ingress, gates, src, dst, services };
                        is_vacuous = false;
                        if let Some(flow) = self.contradiction(question, &passage, budget)? {
                            return self.confirmed(question, flow).map(Answer::False);
                        }
                    }
                }
            }
        }
        Ok(if is_vacuous { Answer::Vacuous } else { Answer::Proven })
    }

    /// Where the packets in question go, and with which destinations. `None` is nowhere.
    fn exits(
        &self,
        question: &Question,
        from: &Tenant,
        to: &Tenant,
        reach: &Reach,
        family: Family,
    ) -> Vec<(Option<Place>, Set<u128>)> {
        let end = &question.to;
        let places = reach.places.iter().filter(|(place, _)| self.belongs(*place, from, to));
        let exits = places
            .map(|(place, dst)| (Some(*place), restricted(dst.clone(), end, Ingress::from(*place), family)));
        // Only who names addresses can mean one that nobody has.
        let nowhere = (from.id == to.id && end.ports.is_none() && end.blocks.is_some())
            .then(|| (None, within(&reach.nowhere, end, family)));
        exits.chain(nowhere).filter(|(_, dst)| !dst.is_empty()).collect()
    }

    /// True when what `from` sends there comes out at `to`.
    fn belongs(&self, place: Place, from: &Tenant, to: &Tenant) -> bool {
        if from.id == to.id {
            return true;
        }
        match place {
            Place::Port(port) => self.program.port(port).is_some_and(|port| port.tenant == to.id),
            // Tunnels carry the sender's VNI.
            Place::Vtep(_) => from.vni == to.vni,
        }
    }

    /// `None` for packets that are not in question: they never come here, or this box is no transit for them.
    fn gates(&self, ingress: Ingress, exit: Option<Place>) -> Option<Gates> {
        let egress = match ingress {
            Ingress::Port(port) => Some(self.program.port(port)?.egress),
            Ingress::Vtep(_) => None,
        };
        Some(match exit {
            None => Gates::Closed,
            Some(place) if ingress == Ingress::from(place) => return None,
            Some(Place::Vtep(_)) if egress.is_none() => return None,
            Some(Place::Vtep(_)) => Gates::Rules { egress, ingress: None },
            Some(Place::Port(port)) => match self.program.port(port) {
                Some(port) => Gates::Rules { egress, ingress: Some(port.ingress) },
                None => Gates::Closed,
            },
        })
    }

    /// A packet of the passage that makes the statement false.
    fn contradiction(
        &mut self,
        question: &Question,
        passage: &Passage,
        budget: &mut Budget,
    ) -> Result<Option<Flow>, Undecided> {
        let Passage { family, src, dst, services, .. } = passage;
        let found = match (question.expect, passage.gates) {
            (Expect::Deny, Gates::Closed) => None,
            (Expect::Allow, Gates::Closed) => src.first().zip(dst.first()).zip(services.first()),
            (expect, Gates::Rules { egress, ingress }) => {
                let egress = egress.map(|list| self.walked(list, *family)).transpose()?;
                let ingress = ingress.map(|list| self.walked(list, *family)).transpose()?;
                match expect {
                    Expect::Deny => let_through(passage, egress.as_deref(), ingress.as_deref(), budget)?,
                    Expect::Allow => held_back(passage, egress.as_deref(), ingress.as_deref(), budget)?,
                }
            }
        };
        Ok(found.map(|((src, dst), service)| {
            let service = services::service(service);
            Flow {
                tenant: question.from.tenant,
                ingress: passage.ingress,
                src: family.address(src),
                dst: family.address(dst),
                service,
                src_port: match service {
                    Service::Tcp(_) | Service::Udp(_) | Service::Sctp(_) => SOURCE_PORT,
                    _ => 0,
                },
            }
        }))
    }

    /// The list's verdicts, walked once.
    fn walked(&mut self, list: RuleListId, family: Family) -> Result<Rc<Decided>, Undecided> {
        if let Some(known) = self.lists.get(&(list, family)) {
            return Ok(known.clone());
        }
        let decided = Rc::new(Decided::by(self.program, list, family, &mut Budget::whole())?);
        if self.kept_regions > KEPT_REGIONS_MAX {
            self.lists.clear();
            self.kept_regions = 0;
        }
        self.kept_regions += decided.regions();
        self.lists.insert((list, family), decided.clone());
        Ok(decided)
    }

    /// The program's own word on the packet.
    fn confirmed(&self, question: &Question, flow: Flow) -> Result<CounterExample, Undecided> {
        let judged = self.program.judge(&flow);
        let is_so = match (question.expect, &judged) {
            (Expect::Deny, Ok(_)) => true,
            (Expect::Allow, Err(refused)) => matches!(
                refused.reason,
                DropReason::NoRoute | DropReason::PolicyDeny | DropReason::PolicyDefault
            ),
            _ => false,
        };
        if is_so { Ok(CounterExample { flow, judged }) } else { Err(Undecided::Disagrees(Box::new(flow))) }
    }
}

/// Source and destination, and service.
type Point = ((u128, u128), u32);

/// A packet of the passage that both ends accept.
fn let_through(
    passage: &Passage,
    egress: Option<&Decided>,
    ingress: Option<&Decided>,
    budget: &mut Budget,
) -> Result<Option<Point>, Undecided> {
    let Passage { src, dst, services, .. } = passage;
    let mut accepted = services.clone();
    for (list, peers) in [(egress, dst), (ingress, src)] {
        if let Some(list) = list {
            accepted = accepted.intersect(&list.accepted_of_some(peers, budget)?);
        }
    }
    let Some(service) = accepted.first() else { return Ok(None) };
    let peer = |list: Option<&Decided>, peers: &Set<u128>| {
        list.map_or_else(|| peers.first(), |list| list.peer(peers, service, true))
    };
    Ok(peer(ingress, src).zip(peer(egress, dst)).map(|ends| (ends, service)))
}

/// A packet of the passage that one of the ends refuses.
fn held_back(
    passage: &Passage,
    egress: Option<&Decided>,
    ingress: Option<&Decided>,
    budget: &mut Budget,
) -> Result<Option<Point>, Undecided> {
    let Passage { src, dst, services, .. } = passage;
    for (list, peers) in [(egress, dst), (ingress, src)] {
        let Some(list) = list else { continue };
        let refused = services.intersect(&list.refused_of_some(peers, budget)?);
        let Some(service) = refused.first() else { continue };
        let only =
            Set::of_spans(list.peer(peers, service, false).map(|peer| (peer, peer)).into_iter().collect());
        let (src, dst) = if std::ptr::eq(peers, dst) { (src, &only) } else { (&only, dst) };
        return Ok(src.first().zip(dst.first()).map(|ends| (ends, service)));
    }
    Ok(None)
}

/// The services in question that a packet of the family can have.
fn meant(question: &Question, family: Family) -> Set<u32> {
    let possible = services::possible(family);
    let verdict = match question.expect {
        Expect::Allow => Verdict::Accept,
        Expect::Deny => Verdict::Deny,
    };
    match question.services.as_deref() {
        None => possible,
        Some([]) => Set::empty(),
        Some(matches) => services::meant(matches, verdict).intersect(&possible),
    }
}

/// The addresses at `ingress` that the end means.
fn restricted(addresses: Set<u128>, end: &End, ingress: Ingress, family: Family) -> Set<u128> {
    let is_meant = end.ports.as_ref().is_none_or(|ports| match ingress {
        Ingress::Port(port) => ports.contains(&port),
        Ingress::Vtep(_) => false,
    });
    if is_meant { within(&addresses, end, family) } else { Set::empty() }
}

fn within(addresses: &Set<u128>, end: &End, family: Family) -> Set<u128> {
    match &end.blocks {
        None => addresses.clone(),
        Some(blocks) => addresses.intersect(&family.blocks(blocks)),
    }
}

/// True when no host can be meant.
fn is_nobody(end: &End, family: Family) -> bool {
    let has_no_port = end.ports.as_ref().is_some_and(Vec::is_empty);
    has_no_port || end.blocks.as_ref().is_some_and(|blocks| family.blocks(blocks).is_empty())
}

/// Pairs of sets that together hold every pair of a source and another address as destination.
///
/// The two sets have nothing in common unless a port owns addresses that live elsewhere: few single addresses.
fn apart(src: &Set<u128>, dst: &Set<u128>) -> Vec<(Set<u128>, Set<u128>)> {
    let common = src.intersect(dst);
    let points = common.spans().iter().flat_map(|&(first, last)| first..=last);
    let singles = points.map(|point| {
        let only = Set::span(point, point);
        (only.clone(), dst.minus(&only))
    });
    let others = (src.minus(&common), dst.clone());
    singles.chain([others]).filter(|(src, dst)| !src.is_empty() && !dst.is_empty()).collect()
}
