//! The connection manager's messages in captures of real adapters, against what Wireshark's dissector says of them.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod corpus;

use std::process::Command;

use wire::roce::cm::{self, Kind, Message, Offer, Service};
use wire::{icrc, parse};

/// The captures with an exchange in them.
const CAPTURES: [&str; 3] = ["roce_write_ibdump", "roce_read_ibdump", "nvme_rdma_discover_io"];

/// Frame numbers and messages of a capture.
fn messages(dir: &std::path::Path, name: &str) -> Vec<(usize, Message)> {
    let capture = corpus::capture(&dir.join("pcap").join(name).with_extension("pcap"));
    let mut messages = Vec::new();
    for (index, frame) in capture.frames.iter().enumerate() {
        let Ok(parsed) = parse(frame) else { continue };
        let Some(message) = cm::message(frame, &parsed) else { continue };
        assert_eq!(icrc::verify(frame, &parsed), icrc::Check::Right);
        messages.push((index + 1, message));
    }
    messages
}

/// Read off the bytes by hand with the tables of chapter 12, and as tshark 4.0.17 prints them.
#[test]
fn a_connection_from_request_to_release() {
    let Some(dir) = corpus::dir() else { return };
    let (a, b) = (0x73ef_7529, 0xd65b_8b76);
    let offer = |qp, psn| Offer { qp, psn };
    let expected = [
        (4, a, 0, Kind::Request { offer: offer(0x139, 0xf0_45d0), service: Service::Rc }),
        (5, b, a, Kind::Reply(offer(0x169, 0x6a_f7e4))),
        (6, a, b, Kind::Ready),
        (15, a, b, Kind::Disconnect { remote_qp: 0x169 }),
        (16, b, a, Kind::Disconnected),
    ];
    let expected =
        expected.map(|(number, local_id, remote_id, kind)| (number, Message { local_id, remote_id, kind }));
    assert_eq!(messages(&dir, "roce_read_ibdump"), expected);
}

#[test]
fn every_field_is_what_wireshark_reads() {
    let Some(dir) = corpus::dir() else { return };
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: no tshark (apt-get install tshark)");
        return;
    }
    for name in CAPTURES {
        let ours: Vec<String> =
            messages(&dir, name).iter().map(|(number, message)| line(*number, message)).collect();
        assert!(ours.len() >= 3, "{name}: an exchange");
        assert_eq!(ours, theirs(&dir.join("pcap").join(name).with_extension("pcap")), "{name}");
    }
}

/// Frame number, attribute, local id, remote id, queue pair, PSN, service type; empty where there is none.
fn line(number: usize, message: &Message) -> String {
    let (attribute, qp, psn, service) = match message.kind {
        Kind::Request { offer, service } => (0x10, Some(offer.qp), Some(offer.psn), Some(service as u32)),
        Kind::MoreTime => (0x11, None, None, None),
        Kind::Reject => (0x12, None, None, None),
        Kind::Reply(offer) => (0x13, Some(offer.qp), Some(offer.psn), None),
        Kind::Ready => (0x14, None, None, None),
        Kind::Disconnect { remote_qp } => (0x15, Some(remote_qp), None, None),
        Kind::Disconnected => (0x16, None, None, None),
        Kind::Resolve | Kind::Resolved | Kind::Path => (0, None, None, None),
    };
    let field = |value: Option<u32>| value.map_or_else(String::new, |value| value.to_string());
    let remote = (attribute != 0x10).then_some(message.remote_id);
    let fields = [Some(number as u32), Some(attribute), Some(message.local_id), remote, qp, psn, service];
    fields.map(field).join(" ")
}

/// The dissector's names of each field, one for each message that has it.
const FIELDS: [&[&str]; 7] = [
    &["frame.number"],
    &["infiniband.mad.attributeid"],
    &[
        "cm.req",
        "cm.rep",
        "cm.rtu.localcommid",
        "cm.rej.localcommid",
        "cm.dreq.localcommid",
        "cm.drsp.localcommid",
    ],
    &[
        "cm.rep.remotecommid",
        "cm.rtu.remotecommid",
        "cm.rej.remotecommid",
        "cm.dreq.remotecommid",
        "cm.drsp.remotecommid",
    ],
    &["cm.req.localqpn", "cm.rep.localqpn", "cm.req.remoteqpneecn"],
    &["cm.req.startpsn", "cm.rep.startpsn"],
    &["cm.req.transpsvctype"],
];

fn theirs(capture: &std::path::Path) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-Y", "infiniband.mad.attributeid", "-T", "fields"]);
    for name in FIELDS.iter().copied().flatten() {
        let prefix = if name.starts_with("cm.") { "infiniband." } else { "" };
        command.arg("-e").arg(format!("{prefix}{name}"));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(their_line).collect()
}

fn their_line(line: &str) -> String {
    let mut columns = line.split('\t');
    // One column of each group has the value: that of the message.
    let fields = FIELDS.map(|names| columns.by_ref().take(names.len()).collect::<String>());
    let number = |text: String| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap().to_string(),
        None => text,
    };
    fields.map(number).join(" ")
}

#[test]
fn what_is_no_message() {
    let Some(dir) = corpus::dir() else { return };
    let capture = corpus::capture(&dir.join("pcap/roce_read_ibdump.pcap"));
    let frame = &capture.frames[3];
    let is_message = |frame: &[u8]| parse(frame).is_ok_and(|parsed| cm::message(frame, &parsed).is_some());
    assert!(is_message(frame));
    // Opcode, destination QP, queue key, source QP, then each of the datagram's versions, and its attribute.
    for at in [42, 49, 54, 61, 62, 63, 64, 65, 78] {
        let mut other = frame.clone();
        other[at] ^= 0x20;
        assert!(!is_message(&other), "byte {at}");
    }
    let datagram = &frame[62..frame.len() - 4];
    assert!(cm::parse(datagram).is_some());
    for len in 0..datagram.len() {
        assert_eq!(cm::parse(&datagram[..len]), None);
    }
}
