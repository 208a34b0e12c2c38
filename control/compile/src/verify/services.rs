//! Services on a line, so that a set of them is a set of spans.

use program::{PortRange, QpRange, Service, ServiceMatch, Verdict};

use super::{address::Family, set::Set};

/// UDP destination port of RoCEv2 (InfiniBand annex A17): such a packet is [`Service::Roce`], never [`Service::Udp`].
const ROCE_PORT: u16 = 4791;
const QP_MAX: u32 = 0xff_ffff;

// Where each kind starts on the line.
const TCP: u32 = 0;
const UDP: u32 = TCP + 0x1_0000;
const SCTP: u32 = UDP + 0x1_0000;
const ICMP: u32 = SCTP + 0x1_0000;
const ICMPV6: u32 = ICMP + 0x1_0000;
const OPAQUE: u32 = ICMPV6 + 0x1_0000;
const ROCE: u32 = OPAQUE + 0x100;

/// The service's point.
#[cfg(test)]
pub(crate) const fn point(service: Service) -> u32 {
    match service {
        Service::Tcp(port) => TCP + port as u32,
        Service::Udp(port) => UDP + port as u32,
        Service::Sctp(port) => SCTP + port as u32,
        Service::Icmp(kind, code) => ICMP + (kind as u32) * 0x100 + code as u32,
        Service::Icmpv6(kind, code) => ICMPV6 + (kind as u32) * 0x100 + code as u32,
        Service::Opaque(protocol) => OPAQUE + protocol as u32,
        Service::Roce(qp) => ROCE + qp,
    }
}

/// The service of a point.
pub(crate) const fn service(point: u32) -> Service {
    let [kind, code] = (point as u16).to_be_bytes();
    match point {
        TCP..UDP => Service::Tcp(point as u16),
        UDP..SCTP => Service::Udp(point as u16),
        SCTP..ICMP => Service::Sctp(point as u16),
        ICMP..ICMPV6 => Service::Icmp(kind, code),
        ICMPV6..OPAQUE => Service::Icmpv6(kind, code),
        OPAQUE..ROCE => Service::Opaque(code),
        ROCE.. => Service::Roce(point - ROCE),
    }
}

/// What a packet of that family can be, as the data plane reads it. The other family's ICMP is not looked into: it is
/// [`Service::Opaque`].
pub(crate) fn possible(family: Family) -> Set<u32> {
    let own_icmp = match family {
        Family::V4 => (ICMP, ICMPV6 - 1),
        Family::V6 => (ICMPV6, OPAQUE - 1),
    };
    let udp = UDP + ROCE_PORT as u32;
    Set::of_spans(vec![
        (TCP, UDP - 1),
        (UDP, udp - 1),
        (udp + 1, SCTP - 1),
        (SCTP, ICMP - 1),
        own_icmp,
        (OPAQUE, ROCE + QP_MAX),
    ])
}

/// The services that a rule of that verdict means, as [`program::Rule::matches`] has it. Of no matches at all a rule means
/// every service, and so does this.
pub(crate) fn meant(matches: &[ServiceMatch], verdict: Verdict) -> Set<u32> {
    if matches.is_empty() {
        return Set::span(0, ROCE + QP_MAX);
    }
    Set::of_spans(matches.iter().flat_map(|one| spans(*one, verdict)).collect())
}

type Spans = Vec<(u32, u32)>;

fn spans(service: ServiceMatch, verdict: Verdict) -> Spans {
    let (protocol, mut spans, is_whole) = match service {
        ServiceMatch::Tcp(range) => (6, ports(TCP, range), range == PortRange::ALL),
        ServiceMatch::Sctp(range) => (132, ports(SCTP, range), range == PortRange::ALL),
        ServiceMatch::Udp(range) => (17, udp(range), range == PortRange::ALL),
        ServiceMatch::Icmp(kind, code) => (1, icmp(ICMP, kind, code), kind.is_none() && code.is_none()),
        ServiceMatch::Icmpv6(kind, code) => (58, icmp(ICMPV6, kind, code), kind.is_none() && code.is_none()),
        ServiceMatch::Roce(range) => (17, queue_pairs(range), false),
        ServiceMatch::Protocol(number) => (number, whole(number), true),
    };
    // A later fragment has nothing to look at but the protocol.
    if is_whole || verdict != Verdict::Accept {
        spans.push((OPAQUE + u32::from(protocol), OPAQUE + u32::from(protocol)));
    }
    spans
}

fn ports(start: u32, range: PortRange) -> Spans {
    let span = (start + u32::from(range.first), start + u32::from(range.last));
    if range.first <= range.last { vec![span] } else { vec![] }
}

fn udp(range: PortRange) -> Spans {
    let mut spans = ports(UDP, range);
    if range.first <= ROCE_PORT && ROCE_PORT <= range.last {
        spans.push((ROCE, ROCE + QP_MAX));
    }
    spans
}

fn queue_pairs(range: QpRange) -> Spans {
    let last = range.last.min(QP_MAX);
    if range.first <= last { vec![(ROCE + range.first, ROCE + last)] } else { vec![] }
}

fn icmp(start: u32, kind: Option<u8>, code: Option<u8>) -> Spans {
    let (first_kind, last_kind) = kind.map_or((0, u8::MAX), |kind| (kind, kind));
    let (first, last) = code.map_or((0, u8::MAX), |code| (code, code));
    let of = |kind: u8| start + u32::from(kind) * 0x100;
    (first_kind..=last_kind).map(|kind| (of(kind) + u32::from(first), of(kind) + u32::from(last))).collect()
}

/// Everything of an IP protocol but its later fragments.
fn whole(protocol: u8) -> Spans {
    match protocol {
        1 => vec![(ICMP, ICMPV6 - 1)],
        6 => vec![(TCP, UDP - 1)],
        17 => vec![(UDP, SCTP - 1), (ROCE, ROCE + QP_MAX)],
        58 => vec![(ICMPV6, OPAQUE - 1)],
        132 => vec![(SCTP, ICMP - 1)],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use program::Rule;
    use proptest::prelude::*;

    use super::*;

    fn any_match() -> impl Strategy<Value = ServiceMatch> {
        let port = prop_oneof![Just(0u16), Just(80), Just(4790), Just(4791), Just(4792), Just(u16::MAX)];
        let range = (port.clone(), port).prop_map(|(first, last)| PortRange { first, last });
        let qp = prop_oneof![Just(0u32), Just(16), Just(QP_MAX)];
        let qps = (qp.clone(), qp).prop_map(|(first, last)| QpRange { first, last });
        let byte = || prop::option::of(prop_oneof![Just(0u8), Just(8), Just(255)]);
        prop_oneof![
            range.clone().prop_map(ServiceMatch::Tcp),
            range.clone().prop_map(ServiceMatch::Udp),
            range.prop_map(ServiceMatch::Sctp),
            (byte(), byte()).prop_map(|(kind, code)| ServiceMatch::Icmp(kind, code)),
            (byte(), byte()).prop_map(|(kind, code)| ServiceMatch::Icmpv6(kind, code)),
            qps.prop_map(ServiceMatch::Roce),
            prop::sample::select(vec![0u8, 1, 6, 17, 50, 58, 132]).prop_map(ServiceMatch::Protocol),
        ]
    }

    fn services() -> Vec<Service> {
        let ports = [0, 1, 79, 80, 81, 4789, 4790, 4791, 4792, 4793, 65534, 65535];
        let bytes = [0, 1, 7, 8, 9, 254, 255];
        let kinds = || bytes.iter().flat_map(|kind| bytes.iter().map(move |code| (*kind, *code)));
        let mut all: Vec<Service> =
            ports.iter().flat_map(|port| [Service::Tcp(*port), Service::Sctp(*port)]).collect();
        all.extend(ports.iter().filter(|port| **port != ROCE_PORT).map(|port| Service::Udp(*port)));
        all.extend(kinds().flat_map(|(kind, code)| [Service::Icmp(kind, code), Service::Icmpv6(kind, code)]));
        all.extend([0, 1, 15, 16, 17, QP_MAX - 1, QP_MAX].map(Service::Roce));
        all.extend((0..=255).map(Service::Opaque));
        all
    }

    proptest! {
        #[test]
        fn a_set_holds_what_the_rule_matches(
            matches in prop::collection::vec(any_match(), 0..4),
            verdict in prop::sample::select(vec![Verdict::Accept, Verdict::Deny, Verdict::Pass]),
        ) {
            let set = meant(&matches, verdict);
            let (tier, origin) = Default::default();
            let rule = Rule { tier, verdict, peers: None, services: matches, log: false, origin };
            for one in services() {
                let is_matched = rule.matches(IpAddr::V4(Ipv4Addr::LOCALHOST), one);
                prop_assert_eq!(set.contains(point(one)), is_matched, "{:?}", one);
            }
        }
    }

    #[test]
    fn each_service_has_its_point_and_no_packet_is_udp_to_the_port_of_roce() {
        for one in services() {
            assert_eq!(service(point(one)), one);
            let is_in = |family| possible(family).contains(point(one));
            match one {
                Service::Icmp(..) => assert!(is_in(Family::V4) && !is_in(Family::V6)),
                Service::Icmpv6(..) => assert!(is_in(Family::V6) && !is_in(Family::V4)),
                _ => assert!(is_in(Family::V4) && is_in(Family::V6), "{one:?}"),
            }
            for (family, address) in [(Family::V4, "10.0.0.1"), (Family::V6, "fd00::1")] {
                assert_eq!(is_in(family), one.fits(address.parse().unwrap()), "{one:?}");
            }
        }
        assert!(!possible(Family::V4).contains(point(Service::Udp(ROCE_PORT))));
        assert!(!possible(Family::V6).contains(point(Service::Roce(QP_MAX)) + 1));
    }
}
