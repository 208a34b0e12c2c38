//! The compiled program decides as Kubernetes documents say. The documents are made from a small model, which a slow
//! evaluator asks directly, in the words of the API: it shares no code with the parser, the compile step or the program.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

mod model;
mod text;

use model::{Packet, World, packet, world};
use program::{Program, Service, Verdict};
use proptest::prelude::*;

fn compile(world: &World) -> Program {
    let sources = text::sources(world);
    let parsed = policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources)));
    compile::compile(&parsed.policy, None).unwrap().program
}

fn is_accepted(program: &Program, packet: &Packet, service: Service) -> bool {
    let name = text::port_name(packet.tenant, packet.pod);
    let port = program.ports.iter().flatten().find(|port| program.port_name(port.id) == name).unwrap();
    let list = if packet.is_egress { port.egress } else { port.ingress };
    program.decide(list, packet.peer, service).verdict == Verdict::Accept
}

/// Tiers that are said to decide nothing: tenant, whether of egress, and the tier's name.
fn unreached(program: &Program) -> Vec<(String, bool, &'static str)> {
    let name = |id| program.tenant(id).unwrap().name.clone();
    let found = compile::unreached(program).into_iter();
    found.map(|one| (name(one.tenant), one.side == compile::explain::Side::Egress, one.tier.name())).collect()
}

/// The property on tiers below is about something.
#[test]
fn some_worlds_have_tiers_that_decide_nothing() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut found = std::collections::BTreeMap::<&str, usize>::new();
    for _ in 0..256 {
        let world = world().new_tree(&mut runner).unwrap().current();
        unreached(&compile(&world)).into_iter().for_each(|(.., tier)| *found.entry(tier).or_default() += 1);
    }
    let of = |tier| found.get(tier).copied().unwrap_or(0);
    assert!(of("Tenant") >= 3 && of("Baseline") > 20, "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn program_decides_as_the_documents_say(world in world(), packets in prop::collection::vec(packet(), 60)) {
        let program = compile(&world);
        for packet in packets {
            let packet = packet.within(&world);
            let expected = world.is_accepted(&packet);
            prop_assert_eq!(is_accepted(&program, &packet, packet.service()), expected, "{:?}", packet);
        }
    }

    #[test]
    fn a_tier_that_is_said_to_decide_nothing_does_not(world in world(), packets in prop::collection::vec(packet(), 60)) {
        let unreached = unreached(&compile(&world));
        for packet in packets {
            let packet = packet.within(&world);
            let (tier, _) = world.decided(&packet);
            let told = (format!("t{}", packet.tenant), packet.is_egress, tier);
            prop_assert!(!unreached.contains(&told), "{:?} decides {:?}", told, packet);
        }
    }

    /// What passes as a later fragment would pass whole, to whatever port.
    #[test]
    fn a_fragment_slips_past_no_rule(world in world(), packets in prop::collection::vec(packet(), 60)) {
        let program = compile(&world);
        for packet in packets {
            let packet = packet.within(&world);
            if is_accepted(&program, &packet, Service::Opaque(packet.protocol)) {
                for port in model::PORTS {
                    let whole = Packet { port, ..packet.clone() };
                    prop_assert!(is_accepted(&program, &whole, whole.service()), "{:?}", whole);
                }
            }
        }
    }
}
