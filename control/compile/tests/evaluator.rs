//! The compiled program decides every packet as the documents say. The documents are made from a small model, which a
//! slow evaluator asks directly: it shares no code with the parser, the compile step or the program.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

mod model;

use model::{Packet, Side, World, packet, world};
use policy::Source;
use program::{Program, Verdict};
use proptest::prelude::*;

fn compile(world: &World) -> (Program, Vec<Source>) {
    let sources = world.sources();
    let parsed = policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources)));
    (compile::compile(&parsed.policy, None).unwrap().program, sources)
}

fn check(world: &World, program: &Program, packet: &Packet) -> Result<(), TestCaseError> {
    for (tenant_index, tenant) in world.tenants.iter().enumerate() {
        for (port_index, _) in tenant.ports.iter().enumerate() {
            let name = model::port_name(tenant_index, port_index);
            let port =
                program.ports.iter().flatten().find(|port| program.port_name(port.id) == name).unwrap();
            for (side, list) in [(Side::Egress, port.egress), (Side::Ingress, port.ingress)] {
                let decision = program.decide(list, packet.peer, packet.service());
                let expected = world.decide(tenant_index, port_index, side, packet);
                let origin = decision.rule.map(|rule| program.origin(rule));
                let is_accepted = decision.verdict == Verdict::Accept;
                prop_assert_eq!((is_accepted, origin), expected, "{} {:?} {:?}", name, side, packet);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn program_decides_as_the_documents_say(world in world(), packets in prop::collection::vec(packet(), 40)) {
        let (program, _) = compile(&world);
        for packet in &packets {
            check(&world, &program, packet)?;
        }
    }

    #[test]
    fn compiling_is_deterministic_and_blind_to_the_order_of_files(world in world(), by in 0..7usize) {
        let (program, mut sources) = compile(&world);
        let by = by % sources.len();
        sources.rotate_left(by);
        let again = policy::parse(&sources).unwrap();
        prop_assert_eq!(compile::compile(&again.policy, None).unwrap().program, program);
    }
}
