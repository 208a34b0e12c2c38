//! RoCEv2 as adapters send it: data by opcode and PSN, and the connection manager's messages, ICRC filled in.

use wire::roce::{cm::attribute, headers, opcode};

use crate::frames::Ends;

/// A frame to `qp` with the extension headers that the opcode names, all zeros but for `syndrome` in an AETH.
///
/// # Panics
/// When the opcode's headers cannot be told.
pub fn data(ends: Ends, qp: u32, opcode: u8, psn: u32, syndrome: u8) -> Vec<u8> {
    let mut body = vec![0; headers(opcode).expect("a known opcode").len() + 16];
    body[0] = syndrome;
    frame(ends, qp, opcode, psn, &body)
}

/// A frame whose syndrome is "acknowledged, no credit count".
pub fn acknowledge(ends: Ends, qp: u32, psn: u32) -> Vec<u8> {
    frame(ends, qp, opcode::ACKNOWLEDGE, psn, &[0x1f, 0, 0, 1])
}

/// A congestion notification.
pub fn notification(ends: Ends, qp: u32) -> Vec<u8> {
    let mut bytes = vec![opcode::CNP, 0, 0xff, 0xff, 0x40];
    bytes.extend_from_slice(&qp.to_be_bytes()[1..]);
    bytes.extend_from_slice(&[0; 4 + 16]);
    sealed(ends, bytes)
}

/// The connection manager's REQ: name and queue pair of the sender, and the PSN that the receiver shall begin with.
pub fn request(ends: Ends, id: u32, qp: u32, psn: u32) -> Vec<u8> {
    let mut body = [0; 232];
    body[..4].copy_from_slice(&id.to_be_bytes());
    body[32..36].copy_from_slice(&(qp << 8 | 1).to_be_bytes());
    body[40..44].copy_from_slice(&[0, 0, 0, 0xb0]);
    body[44..48].copy_from_slice(&(psn << 8 | 0xb7).to_be_bytes());
    message(ends, attribute::REQ, &body)
}

/// Its REP.
pub fn reply(ends: Ends, id: u32, to: u32, qp: u32, psn: u32) -> Vec<u8> {
    let mut body = named(id, to);
    body[12..16].copy_from_slice(&(qp << 8).to_be_bytes());
    body[20..24].copy_from_slice(&(psn << 8).to_be_bytes());
    message(ends, attribute::REP, &body)
}

/// Its DREQ, which names the receiver's queue pair.
pub fn release(ends: Ends, id: u32, to: u32, remote_qp: u32) -> Vec<u8> {
    let mut body = named(id, to);
    body[8..12].copy_from_slice(&(remote_qp << 8).to_be_bytes());
    message(ends, attribute::DREQ, &body)
}

/// One of the messages that carry both names and nothing more that matters: RTU, MRA, REJ, DREP.
pub fn plain(ends: Ends, attribute: u16, id: u32, to: u32) -> Vec<u8> {
    message(ends, attribute, &named(id, to))
}

fn named(id: u32, to: u32) -> [u8; 232] {
    let mut body = [0; 232];
    body[..4].copy_from_slice(&id.to_be_bytes());
    body[4..8].copy_from_slice(&to.to_be_bytes());
    body
}

fn message(ends: Ends, attribute: u16, body: &[u8; 232]) -> Vec<u8> {
    // DETH: the queue key of management, source queue pair 1. MAD: versions 1, 7, 2, method 3.
    let mut bytes = vec![0x80, 1, 0, 0, 0, 0, 0, 1, 1, 7, 2, 3];
    bytes.extend_from_slice(&[0; 12]);
    bytes.extend_from_slice(&attribute.to_be_bytes());
    bytes.extend_from_slice(&[0; 6]);
    bytes.extend_from_slice(body);
    frame(ends, 1, opcode::UD | opcode::SEND_ONLY, 0, &bytes)
}

fn frame(ends: Ends, qp: u32, opcode: u8, psn: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![opcode, 0, 0xff, 0xff, 0];
    bytes.extend_from_slice(&qp.to_be_bytes()[1..]);
    bytes.extend_from_slice(&psn.to_be_bytes());
    bytes.extend_from_slice(body);
    sealed(ends, bytes)
}

fn sealed(ends: Ends, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(&[0; 4]);
    let mut frame = ends.udp((49_152, wire::roce::PORT), &bytes);
    let parsed = wire::parse(&frame).expect("a right frame");
    assert!(wire::icrc::fill(&mut frame, &parsed), "RoCEv2");
    frame
}
