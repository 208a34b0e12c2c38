//! What the parser must say of each hand-made frame: `facts.tsv`, one line per frame, beside the corpus's own
//! expectation of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod corpus;

use std::fmt::Write;
use wire::{Flags, Fragment, L3, L4, parse};

/// One line that says what the parser found, or why it refused.
fn summary(frame: &[u8]) -> String {
    let parsed = match parse(frame) {
        Ok(parsed) => parsed,
        Err(cause) => return cause.name().to_owned(),
    };
    let mut line = String::new();
    for tag in parsed.vlan.tags() {
        write!(line, "{:04x}:{}:{} ", tag.tpid, tag.pcp(), tag.vid()).unwrap();
    }
    match parsed.l3 {
        L3::Other => write!(line, "other {:04x}", parsed.ether_type),
        L3::Arp => write!(line, "arp"),
        L3::Ipv4 => write!(line, "ipv4 {}", parsed.protocol),
        L3::Ipv6 => write!(line, "ipv6 {}", parsed.protocol),
    }
    .unwrap();
    match parsed.l4 {
        L4::None => Ok(()),
        L4::Unknown => write!(line, " unknown"),
        L4::Icmp | L4::Icmpv6 => write!(line, " icmp {}", parsed.icmp(frame).unwrap().kind),
        L4::Tcp => write!(line, " tcp {}>{}", parsed.src_port, parsed.dst_port),
        L4::Udp => write!(line, " udp {}>{}", parsed.src_port, parsed.dst_port),
        L4::Sctp => write!(line, " sctp {}>{}", parsed.src_port, parsed.dst_port),
        L4::Roce => {
            let bth = parsed.bth(frame).unwrap();
            write!(line, " roce {:02x} qp {:x}", bth.opcode, parsed.dest_qp).unwrap();
            match parsed.roce_payload(frame) {
                Some(payload) => write!(line, " payload {}", payload.len()),
                None => Ok(()),
            }
        }
    }
    .unwrap();
    write!(line, " {}+{}..{}", parsed.l3_offset, parsed.l4_offset - parsed.l3_offset, parsed.end).unwrap();
    match parsed.fragment {
        Fragment::None => {}
        Fragment::First => line.push_str(" first"),
        Fragment::Later => line.push_str(" later"),
    }
    for (flag, name) in [
        (Flags::IPV4_OPTIONS, " options"),
        (Flags::EXTENSIONS, " extensions"),
        (Flags::SOURCE_ROUTE, " source-route"),
        (Flags::DF, " df"),
        (Flags::ROUTING, " routing"),
        (Flags::ROUTING_TYPE0, " type0"),
        (Flags::ATOMIC_FRAGMENT, " atomic"),
        (Flags::MANY_TAGS, " many-tags"),
    ] {
        if parsed.flags.contains(flag) {
            line.push_str(name);
        }
    }
    line
}

#[test]
fn facts() {
    let Some(dir) = corpus::dir() else { return };
    let mut wrong = String::new();
    let mut seen = 0;
    for line in include_str!("facts.tsv").lines().skip(1) {
        let fields: Vec<_> = line.split('\t').collect();
        let [capture, row, _, expected] = fields[..] else { panic!("four columns: {line}") };
        let frames = corpus::made(&dir, capture);
        let found = summary(&frames[row.parse::<usize>().unwrap() - 1]);
        if found != expected {
            writeln!(wrong, "{capture} {row}: found {found:?}, expected {expected:?}").unwrap();
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(seen > 150, "{seen} facts");
}
