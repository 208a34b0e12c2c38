//! The data plane's tables answer as the program that they were made from: same verdicts, same rules, same places. The
//! program goes through its lists one by one and is the reference.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

// Other tests ask for more of them.
#[allow(dead_code)]
mod model;
#[allow(dead_code)]
mod small;

use std::{net::IpAddr, sync::Arc};

use edge::{Facts, Tables};
use program::{Answers, Flow, Ingress, PortId, Program, RuleListId, Service, TenantId, VtepId};
use proptest::prelude::*;

fn tables(program: &Arc<Program>) -> Tables {
    let facts = vec![Facts { mac: wire::Mac::default() }; program.devices.len()];
    let tables = Tables::build(program.clone(), &facts).unwrap();
    assert_eq!(tables.rules().scanned(), 0);
    tables
}

fn decide_alike(
    program: &Program,
    tables: &Tables,
    peer: IpAddr,
    service: Service,
) -> Result<(), TestCaseError> {
    // One list more than there are.
    for list in (0..=program.rules.list_count() as u32).map(RuleListId) {
        let expected = program.decide(list, peer, service);
        prop_assert_eq!(tables.decide(list, peer, service), expected, "{} {} {:?}", list, peer, service);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every list, address and service of programs in which all edges lie close together.
    #[test]
    fn decisions_of_small_programs(program in small::program()) {
        let program = Arc::new(program);
        let tables = tables(&program);
        for peer in small::addresses() {
            for (service, _) in small::services(peer.is_ipv4()) {
                decide_alike(&program, &tables, peer, service)?;
            }
            for tenant in program.tenants.iter().flatten() {
                prop_assert_eq!(tables.locate(tenant, peer), tenant.locate(peer), "{}", peer);
            }
        }
    }

    /// Whole flows, from every way in.
    #[test]
    fn judgements_of_small_programs(program in small::program(), turn in 0..7usize) {
        let program = Arc::new(program);
        let tables = tables(&program);
        let ways_in = (0..4).map(|port| Ingress::Port(PortId(port))).chain((0..3).map(|vtep| Ingress::Vtep(VtepId(vtep))));
        for (ingress, tenant) in ways_in.flat_map(|ingress| (0..3).map(move |tenant| (ingress, TenantId(tenant)))) {
            for src in small::addresses() {
                for dst in small::addresses() {
                    for (service, src_port) in small::services(src.is_ipv4()).into_iter().skip(turn).step_by(7) {
                        let flow = Flow { tenant, ingress, src, dst, service, src_port };
                        prop_assert_eq!(tables.judge(&flow), program.judge(&flow), "{:?}", flow);
                    }
                }
            }
        }
    }

    /// Policies as files have them, with exceptions, both families and all services.
    #[test]
    fn decisions_of_compiled_policies(world in model::world(), packets in prop::collection::vec(model::packet(), 40)) {
        let parsed = policy::parse(&world.sources()).unwrap();
        let program = Arc::new(compile::compile(&parsed.policy, None).unwrap().program);
        let tables = tables(&program);
        for packet in &packets {
            decide_alike(&program, &tables, packet.peer, packet.service())?;
        }
    }
}
