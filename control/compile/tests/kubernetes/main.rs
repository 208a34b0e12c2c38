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
