//! `verify` against an oracle that asks the program about a representative of every kind of packet, one by one.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

mod small;

use std::net::IpAddr;

use compile::verify::{Answer, Expect, Prover, Question};
use program::{
    DropReason, Flow, Ingress, Origin, Place, PortId, Program, Rule, Service, Tier, Verdict, VtepId,
};
use proptest::prelude::*;

/// Every flow of the question's sender that a packet can have, up to what no rule and no statement tells apart.
fn flows(program: &Program, question: &Question) -> Vec<Flow> {
    let own = |port: &&program::Port| port.tenant == question.from.tenant;
    let ports = program.ports.iter().flatten().filter(own).map(|port| Ingress::Port(port.id));
    let ways_in: Vec<Ingress> = ports.chain((0..3).map(|vtep| Ingress::Vtep(VtepId(vtep)))).collect();
    let mut flows = Vec::new();
    for ingress in ways_in {
        for src in small::addresses() {
            for dst in small::addresses().into_iter().filter(|dst| dst.is_ipv4() == src.is_ipv4()) {
                let flow = |(service, src_port)| Flow {
                    tenant: question.from.tenant,
                    ingress,
                    src,
                    dst,
                    service,
                    src_port,
                };
                // A source that is refused is refused whatever the service.
                let probe = program.judge(&flow((Service::Opaque(99), 0)));
                if !matches!(probe, Err(refused) if is_guard(refused.reason)) {
                    flows.extend(small::services(src.is_ipv4()).into_iter().map(flow));
                }
            }
        }
    }
    flows
}

fn is_guard(reason: DropReason) -> bool {
    matches!(reason, DropReason::SpoofedAddress | DropReason::Martian | DropReason::RogueDhcp)
}

fn is_meant(services: &Option<Vec<program::ServiceMatch>>, expect: Expect, flow: &Flow) -> bool {
    let Some(services) = services else { return true };
    let verdict = if expect == Expect::Allow { Verdict::Accept } else { Verdict::Deny };
    let rule = Rule {
        tier: Tier::Tenant,
        verdict,
        peers: None,
        services: services.clone(),
        log: false,
        origin: Origin::default(),
    };
    !services.is_empty() && rule.matches(flow.src, flow.service)
}

fn holds(blocks: &Option<Vec<program::PeerBlock>>, address: IpAddr) -> bool {
    blocks.as_ref().is_none_or(|blocks| blocks.iter().any(|block| block.contains(address)))
}

fn has(ports: &Option<Vec<PortId>>, port: Option<PortId>) -> bool {
    ports.as_ref().is_none_or(|ports| port.is_some_and(|port| ports.contains(&port)))
}

/// The sender's side of the question.
fn is_sent(question: &Question, flow: &Flow) -> bool {
    let port = match flow.ingress {
        Ingress::Port(port) => Some(port),
        Ingress::Vtep(_) => None,
    };
    has(&question.from.ports, port)
        && holds(&question.from.blocks, flow.src)
        && is_meant(&question.services, question.expect, flow)
}

/// The receiver's side of it.
fn is_received(program: &Program, question: &Question, flow: &Flow) -> bool {
    let (from, to) = (question.from.tenant, &question.to);
    let place = flow.choose(program.tenant(from).unwrap().locate(flow.dst)).map(|hop| hop.place);
    let is_transit = matches!((flow.ingress, place), (Ingress::Vtep(_), Some(Place::Vtep(_))))
        || place.is_some_and(|place| Ingress::from(place) == flow.ingress);
    let port = match place {
        Some(Place::Port(port)) => Some(port),
        _ => None,
    };
    let is_there = match place {
        _ if from == to.tenant => place.is_some() || to.blocks.is_some(),
        Some(Place::Port(port)) => program.port(port).is_some_and(|port| port.tenant == to.tenant),
        Some(Place::Vtep(_)) => program.tenant(from).unwrap().vni == program.tenant(to.tenant).unwrap().vni,
        None => false,
    };
    is_there && !is_transit && has(&to.ports, port) && holds(&to.blocks, flow.dst)
}

#[derive(PartialEq, Debug)]
enum Expected {
    True,
    Vacuous,
    False,
}

fn oracle(program: &Program, question: &Question) -> Expected {
    let is_refused_early =
        |flow: &Flow| matches!(program.judge(flow), Err(refused) if is_guard(refused.reason));
    let flows = flows(program, question);
    let sent: Vec<&Flow> =
        flows.iter().filter(|flow| is_sent(question, flow) && !is_refused_early(flow)).collect();
    let received: Vec<&&Flow> = sent.iter().filter(|flow| is_received(program, question, flow)).collect();
    let contradicts = |flow: &&&Flow| program.judge(flow).is_ok() == (question.expect == Expect::Deny);
    let could_receive = |flow: &&Flow| {
        question.to.ports.as_ref().is_none_or(|ports| !ports.is_empty())
            && small::addresses()
                .into_iter()
                .any(|address| address.is_ipv4() == flow.src.is_ipv4() && holds(&question.to.blocks, address))
    };
    let is_vacuous = match question.from.tenant == question.to.tenant {
        true => received.is_empty(),
        false => !sent.iter().any(could_receive),
    };
    if received.iter().any(contradicts) {
        Expected::False
    } else if is_vacuous {
        Expected::Vacuous
    } else {
        Expected::True
    }
}

fn agree(program: &Program, question: &Question, prover: &mut Prover) -> Result<Expected, TestCaseError> {
    let expected = oracle(program, question);
    match prover.answer(question) {
        Answer::Proven => prop_assert_eq!(&expected, &Expected::True),
        Answer::Vacuous => prop_assert_eq!(&expected, &Expected::Vacuous),
        Answer::False(example) => {
            prop_assert_eq!(&expected, &Expected::False);
            let flow = &example.flow;
            prop_assert_eq!(program.judge(flow), example.judged);
            prop_assert_eq!(example.judged.is_ok(), question.expect == Expect::Deny);
            prop_assert!(is_sent(question, flow) && is_received(program, question, flow), "{:?}", flow);
        }
        Answer::Undecided(why) => prop_assert!(false, "{}", why),
    }
    Ok(expected)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn answers_are_those_of_the_oracle(
        program in small::program(),
        questions in prop::collection::vec(small::question(), 4),
    ) {
        let mut prover = Prover::new(&program);
        for question in &questions {
            agree(&program, question, &mut prover)?;
        }
    }
}

/// The generators would be no evidence if nearly all questions had one answer.
#[test]
fn every_answer_is_common() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut counts = [0; 4];
    for _ in 0..600 {
        let program = small::program().new_tree(&mut runner).unwrap().current();
        let question = small::question().new_tree(&mut runner).unwrap().current();
        let mut prover = Prover::new(&program);
        let kind = match (agree(&program, &question, &mut prover).unwrap(), question.expect) {
            (Expected::Vacuous, _) => 0,
            (Expected::True, _) => 1,
            (Expected::False, Expect::Deny) => 2,
            (Expected::False, Expect::Allow) => 3,
        };
        counts[kind] += 1;
    }
    assert!(counts.iter().all(|count| *count >= 15), "vacuous, true, false deny, false allow: {counts:?}");
}
