//! Rules' conditions in few letters: `10.0.0.0/8 except 10.1.0.0/16`, `tcp/5201`, `roce/qp 0x10-0x1f`.

use program::{PeerBlock, PortRange, QpRange, ServiceMatch};

/// Queue pair numbers have 24 bits.
const QP_MAX: u32 = 0xff_ffff;

/// A prefix with its exceptions.
pub fn peer_text(block: &PeerBlock) -> String {
    let except: Vec<String> = block.except.iter().map(ToString::to_string).collect();
    match except.is_empty() {
        true => block.net.to_string(),
        false => format!("{} except {}", block.net, except.join(" ")),
    }
}

/// A kind of packets.
pub fn service_text(service: ServiceMatch) -> String {
    let icmp = |name: &str, kind: Option<u8>, code: Option<u8>| match (kind, code) {
        (None, _) => name.to_owned(),
        (Some(kind), None) => format!("{name}/{kind}"),
        (Some(kind), Some(code)) => format!("{name}/{kind}/{code}"),
    };
    match service {
        ServiceMatch::Tcp(range) => ports("tcp", range),
        ServiceMatch::Udp(range) => ports("udp", range),
        ServiceMatch::Sctp(range) => ports("sctp", range),
        ServiceMatch::Icmp(kind, code) => icmp("icmp", kind, code),
        ServiceMatch::Icmpv6(kind, code) => icmp("icmpv6", kind, code),
        ServiceMatch::Roce(QpRange { first: 0, last: QP_MAX }) => "roce".into(),
        ServiceMatch::Roce(QpRange { first, last }) if first == last => format!("roce/qp {first:#x}"),
        ServiceMatch::Roce(QpRange { first, last }) => format!("roce/qp {first:#x}-{last:#x}"),
        ServiceMatch::Protocol(protocol) => format!("protocol {protocol}"),
    }
}

fn ports(name: &str, range: PortRange) -> String {
    match range {
        PortRange::ALL => name.into(),
        PortRange { first, last } if first == last => format!("{name}/{first}"),
        PortRange { first, last } => format!("{name}/{first}-{last}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn services_are_spelled_shortly() {
        let range = |first, last| PortRange { first, last };
        for (match_, expected) in [
            (ServiceMatch::Tcp(PortRange::ALL), "tcp"),
            (ServiceMatch::Udp(range(53, 53)), "udp/53"),
            (ServiceMatch::Sctp(range(1, 65_535)), "sctp/1-65535"),
            (ServiceMatch::Icmp(None, None), "icmp"),
            (ServiceMatch::Icmp(Some(3), None), "icmp/3"),
            (ServiceMatch::Icmpv6(Some(1), Some(4)), "icmpv6/1/4"),
            (ServiceMatch::Roce(QpRange { first: 0, last: QP_MAX }), "roce"),
            (ServiceMatch::Roce(QpRange { first: 0, last: 15 }), "roce/qp 0x0-0xf"),
            (ServiceMatch::Roce(QpRange { first: 17, last: 17 }), "roce/qp 0x11"),
            (ServiceMatch::Protocol(47), "protocol 47"),
        ] {
            assert_eq!(service_text(match_), expected);
        }
    }

    #[test]
    fn peers_are_spelled_with_their_exceptions() {
        let net = |text: &str| text.parse().unwrap();
        let whole = PeerBlock { net: net("10.0.0.0/8"), except: vec![] };
        assert_eq!(peer_text(&whole), "10.0.0.0/8");
        let holed = PeerBlock { except: vec![net("10.1.0.0/16"), net("10.2.0.0/16")], ..whole };
        assert_eq!(peer_text(&holed), "10.0.0.0/8 except 10.1.0.0/16 10.2.0.0/16");
    }
}
