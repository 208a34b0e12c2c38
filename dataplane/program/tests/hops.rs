//! Which of several hops a flow takes, held to what rendezvous hashing promises.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::{collections::BTreeSet, net::IpAddr};

use program::{Flow, Hop, Ingress, Place, PortId, Service, TenantId, VtepId, limit};
use proptest::prelude::*;
use wire::Mac;

fn hop(last: u8) -> Hop {
    Hop { mac: Mac([2, 0, 0, 0, 0, last]), place: Place::Vtep(VtepId(u16::from(last) % 5)) }
}

fn hops() -> impl Strategy<Value = Vec<Hop>> {
    let lasts = prop::collection::btree_set(any::<u8>(), 1..=limit::HOPS);
    lasts.prop_map(|lasts: BTreeSet<u8>| lasts.into_iter().map(hop).collect::<Vec<_>>()).prop_shuffle()
}

fn address() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let near = |bits: u32| IpAddr::from((0x0a00_0000 | (bits % 7)).to_be_bytes());
    let six = |bits: u128| IpAddr::from(((0xfd << 120) | bits).to_be_bytes());
    prop_oneof![
        any::<(u32, u32)>().prop_map(move |(src, dst)| (near(src), near(dst))),
        any::<(u64, u64)>().prop_map(move |(src, dst)| (six(src.into()), six(dst.into()))),
    ]
}

fn flow() -> impl Strategy<Value = Flow> {
    let service = prop_oneof![
        any::<u16>().prop_map(Service::Tcp),
        any::<u16>().prop_map(Service::Udp),
        any::<u16>().prop_map(Service::Sctp),
        (0..0x0100_0000_u32).prop_map(Service::Roce),
        any::<(u8, u8)>().prop_map(|(kind, code)| Service::Icmp(kind, code)),
        any::<u8>().prop_map(Service::Opaque),
    ];
    (address(), service, any::<u16>()).prop_map(|((src, dst), service, src_port)| Flow {
        tenant: TenantId(0),
        ingress: Ingress::Port(PortId(1)),
        src,
        dst,
        service,
        src_port,
    })
}

/// What goes the other way between the same ports.
fn mirror(flow: &Flow) -> Flow {
    let Flow { src, dst, service, src_port, .. } = *flow;
    let (service, dst_port) = match service {
        Service::Tcp(port) => (Service::Tcp(src_port), port),
        Service::Udp(port) => (Service::Udp(src_port), port),
        Service::Sctp(port) => (Service::Sctp(src_port), port),
        Service::Icmp(..) => (Service::Icmp(0, 0), 0),
        other => (other, src_port),
    };
    Flow { src: dst, dst: src, service, src_port: dst_port, ingress: Ingress::Vtep(VtepId(3)), ..*flow }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The obviously right way: the hop that wins against each of the others alone. So hops that come or go change
    /// nothing between those that stay.
    #[test]
    fn the_hop_is_the_one_that_beats_each_other(hops in hops(), flow in flow()) {
        let chosen = flow.choose(&hops).unwrap();
        let beats = |hop: &Hop| hops.iter().all(|other| flow.choose(&[*other, *hop]) == Some(hop));
        let winners: Vec<&Hop> = hops.iter().filter(|hop| beats(hop)).collect();
        prop_assert_eq!(winners, [chosen]);
    }

    /// A hop that goes takes its own flows along and no others; the order and the way in make no difference, nor does the
    /// direction.
    #[test]
    fn only_the_flows_of_a_hop_that_goes_move(hops in hops(), flow in flow(), gone in any::<prop::sample::Index>()) {
        let chosen = *flow.choose(&hops).unwrap();
        let gone = hops[gone.index(hops.len())];
        let left: Vec<Hop> = hops.iter().copied().filter(|hop| *hop != gone).collect();
        match flow.choose(&left) {
            None => prop_assert_eq!(hops.len(), 1),
            Some(hop) if gone != chosen => prop_assert_eq!(*hop, chosen),
            Some(hop) => prop_assert!(*hop != gone),
        }
        let reversed: Vec<Hop> = hops.iter().rev().copied().collect();
        prop_assert_eq!(flow.choose(&reversed), Some(&chosen));
        prop_assert_eq!(mirror(&flow).choose(&hops), Some(&chosen));
    }
}

/// Flows that differ in one port by one, and hops whose MACs do: within five standard deviations of a fair share, for each
/// hop, and again among the flows of a hop that goes.
#[test]
fn neighbouring_flows_spread_evenly() {
    let flow = |port: u16| Flow {
        tenant: TenantId(0),
        ingress: Ingress::Port(PortId(1)),
        src: "10.1.0.10".parse().unwrap(),
        dst: "10.9.0.7".parse().unwrap(),
        service: Service::Tcp(443),
        src_port: port,
    };
    let is_fair = |count: usize, of: usize, hops: usize| {
        let (of, share) = (of as f64, 1.0 / hops as f64);
        (count as f64 - of * share).abs() <= 5.0 * (of * share * (1.0 - share)).sqrt()
    };
    for count in 2..=limit::HOPS {
        let hops: Vec<Hop> = (0..count as u8).map(hop).collect();
        let taken: Vec<Hop> = (0..16_384).map(|port| *flow(port).choose(&hops).unwrap()).collect();
        for hop in &hops {
            let own = taken.iter().filter(|taken| *taken == hop).count();
            assert!(
                is_fair(own, taken.len(), count),
                "{own} flows of {} at one of {count} hops",
                taken.len()
            );
        }
        let moved = (0..16_384_u16).zip(&taken).filter(|(_, taken)| **taken == hops[0]);
        let moved: Vec<Hop> = moved.map(|(port, _)| *flow(port).choose(&hops[1..]).unwrap()).collect();
        for hop in &hops[1..] {
            let own = moved.iter().filter(|taken| *taken == hop).count();
            assert!(is_fair(own, moved.len(), count - 1), "{own} of {} moved flows at one hop", moved.len());
        }
    }
}
