//! Compiled lists of rules: shared from program to program, and scanned when they are too large.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::net::IpAddr;
use std::sync::Arc;

use edge::{Facts, Tables};
use program::{
    Answers, Origin, PeerBlock, PortRange, Program, Rule, RuleListId, RuleSet, Service, ServiceMatch,
    TenantId, Tier, Verdict,
};

fn tables(sets: &[Arc<RuleSet>], known: Option<&Tables>) -> Tables {
    let mut program = Program::default();
    for (tenant, set) in (0..).zip(sets) {
        program.rules.push(TenantId(tenant), set.clone());
    }
    let program = Arc::new(program);
    let facts: &[Facts] = &[];
    match known {
        Some(known) => Tables::build_knowing(program, facts, known.rules()),
        None => Tables::build(program, facts),
    }
    .unwrap()
}

fn rule(verdict: Verdict, peers: Option<Vec<PeerBlock>>, services: Vec<ServiceMatch>) -> Rule {
    Rule { tier: Tier::Tenant, verdict, peers, services, log: false, origin: Origin::default() }
}

/// One list that accepts TCP to that port alone.
fn accepting(port: u16) -> Arc<RuleSet> {
    let ports = PortRange { first: port, last: port };
    let rule = rule(Verdict::Accept, None, vec![ServiceMatch::Tcp(ports)]);
    Arc::new(RuleSet { rules: vec![rule], lists: vec![vec![0]] })
}

fn accepts(tables: &Tables, list: u32, peer: &str, service: Service) -> bool {
    let peer: IpAddr = peer.parse().unwrap();
    let decision = tables.decide(RuleListId(list), peer, service);
    assert_eq!(decision, tables.program.decide(RuleListId(list), peer, service), "{peer} {service:?}");
    decision.verdict == Verdict::Accept
}

#[test]
fn what_stays_the_same_is_compiled_once() {
    let (red, blue, green) = (accepting(80), accepting(81), accepting(82));
    let first = tables(&[red.clone(), blue.clone()], None);
    // Blue moves up, red comes back as another allocation, green is new.
    let second = tables(&[blue, accepting(80), green], Some(&first));
    assert_eq!((second.rules().shared_with(first.rules()), second.rules().scanned()), (1, 0));
    for (list, port) in [(0, 81), (1, 80), (2, 82)] {
        for asked in 79..84 {
            assert_eq!(
                accepts(&second, list, "10.0.0.1", Service::Tcp(asked)),
                asked == port,
                "{list} {asked}"
            );
        }
    }
    assert!(!accepts(&second, 3, "10.0.0.1", Service::Tcp(80)), "no such list");
}

/// An exception of one address costs 128 prefixes: 10,000 of them are more than a classifier takes.
#[test]
fn a_list_that_is_too_large_is_scanned_and_counted() {
    let except =
        |host: u128| PeerBlock { net: "::/0".parse().unwrap(), except: vec![IpAddr::V6(host.into()).into()] };
    let huge = rule(Verdict::Deny, Some((0..10_000).map(except).collect()), vec![ServiceMatch::Protocol(6)]);
    let all = rule(Verdict::Accept, None, vec![]);
    let set = RuleSet { rules: vec![huge, all], lists: vec![vec![0, 1], vec![1]] };
    let tables = tables(&[Arc::new(set)], None);
    assert_eq!(tables.rules().scanned(), 1);
    for (list, service, accepted) in
        [(0, Service::Tcp(1), false), (0, Service::Udp(1), true), (1, Service::Tcp(1), true)]
    {
        assert_eq!(accepts(&tables, list, "fd00::1", service), accepted, "{list} {service:?}");
    }
}

/// 10,000 rules in one list, each for its own host and port: the right one of them says it.
#[test]
fn every_rule_of_a_long_list_is_found() {
    let one = |number: u32| {
        let host = IpAddr::from((0x0a00_0000 + number * 3).to_be_bytes());
        let (first, last) = (number as u16, number as u16 + 1);
        let peers = vec![PeerBlock { net: host.into(), except: vec![] }];
        rule(Verdict::Accept, Some(peers), vec![ServiceMatch::Sctp(PortRange { first, last })])
    };
    let set = RuleSet { rules: (0..10_000).map(one).collect(), lists: vec![(0..10_000).collect()] };
    let tables = tables(&[Arc::new(set)], None);
    for number in 0..10_000_u32 {
        let ask = |host: u32, port: u16| {
            let peer = IpAddr::from((0x0a00_0000 + host).to_be_bytes());
            tables.decide(RuleListId(0), peer, Service::Sctp(port)).rule.map(|rule| rule.0)
        };
        let port = number as u16;
        assert_eq!((ask(number * 3, port), ask(number * 3, port + 1)), (Some(number), Some(number)));
        assert_eq!((ask(number * 3 + 1, port), ask(number * 3, port + 2)), (None, None));
    }
}
