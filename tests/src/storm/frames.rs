//! What hosts and the fabric send: right frames of every kind that has state, said in a few bytes; the same with bytes
//! changed; and bytes without any form.

use std::collections::VecDeque;

use crate::frames::{Ends, tunnel};
use crate::frames6::Ends6;
use crate::scene::{BLUE, RED, RED_GATEWAY, RED_LOCAL, RED6, outer};
use crate::{cuts, verbs};
use wire::vxlan;

/// The fuzzer's bytes; zeros behind them.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// A frame and the port that it comes in by.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) port: &'static str,
    pub(super) frame: Vec<u8>,
    /// Before a tunnel was put around it.
    inner: Vec<u8>,
}

/// Whether it holds what that VNI's tenant says: eight bytes, as many as the shortest fragment carries.
pub(super) fn is_marked(frame: &[u8], vni: u8) -> bool {
    frame.windows(8).any(|window| window.iter().all(|byte| *byte == vni))
}

/// The VNI of a frame in a tunnel.
pub(super) fn vni(frame: &[u8]) -> Option<u32> {
    let parsed = wire::parse(frame).ok()?;
    if parsed.l4 != wire::L4::Udp || parsed.dst_port != vxlan::PORT {
        return None;
    }
    Some(vxlan::decap(frame, &parsed).ok()?.vni.get())
}

/// The next frame; `None` when there is nothing to make it of.
pub(super) fn next(kind: u8, bytes: &mut Bytes, recent: &VecDeque<Sent>) -> Option<Sent> {
    let way = Way::read(bytes.byte());
    let inner = match kind % 16 {
        0 if way.is_v6 => way.ends6().udp(ports(bytes), &way.words(bytes)),
        0 => way.ends.udp(ports(bytes), &way.words(bytes)),
        1..=3 => tcp(&way, bytes),
        4 if bytes.byte() & 1 == 0 => way.ends.ping(u16::from(bytes.byte() & 3), bytes.number() & 7, 64),
        4 => way.ends.pong(u16::from(bytes.byte() & 3), bytes.number() & 7),
        5 => {
            let about = recent.get(usize::from(bytes.byte() & 7)).filter(|about| about.inner.len() > 34)?;
            if way.is_v6 { way.ends6().unreachable(&about.inner) } else { way.ends.unreachable(&about.inner) }
        }
        6..=8 => fragment(&way, bytes),
        9 => verbs::data(
            way.ends,
            u32::from(bytes.byte() & 7),
            opcode(bytes.byte()),
            u32::from(bytes.byte()),
            bytes.byte(),
        ),
        10 => management(&way, bytes),
        11 => sctp(&way, bytes),
        12 => return Some(changed(recent.get(usize::from(bytes.byte() & 7))?, bytes)),
        13 => return Some(raw(bytes)),
        14 if way.is_v6 => way.ends6().solicit(if bytes.byte() & 1 == 0 { RED6.dst } else { RED6.src }),
        14 => way.ends.arp_request([10, 1, 0, bytes.byte()]),
        _ => recent.get(usize::from(bytes.byte() & 15))?.inner.clone(),
    };
    Some(way.send(inner))
}

/// Who sends to whom, and through what.
struct Way {
    ends: Ends,
    is_answer: bool,
    is_v6: bool,
    vni: u32,
    from: &'static str,
}

impl Way {
    fn read(byte: u8) -> Self {
        let far = Ends { dst_mac: RED_GATEWAY, dst: [10, 9, 0, 1], ..RED };
        let (ends, vni, port) =
            [(RED, 100, "red0"), (BLUE, 200, "blue0"), (RED_LOCAL, 100, "red0"), (far, 100, "red0")]
                [usize::from(byte & 3)];
        let is_answer = byte & 4 != 0;
        let from = match (is_answer, byte & 3) {
            (false, _) => port,
            (true, 2) => "red1",
            (true, _) => "uplink0",
        };
        // Now and then by the other's tunnel.
        let vni = if byte & 0x70 == 0x70 { 300 - vni } else { vni };
        Self {
            ends: if is_answer { ends.reversed() } else { ends },
            is_answer,
            is_v6: byte & 8 != 0,
            vni,
            from,
        }
    }

    fn ends6(&self) -> Ends6 {
        if self.is_answer { RED6.reversed() } else { RED6 }
    }

    /// Bytes that show whose they are.
    fn words(&self, bytes: &mut Bytes) -> Vec<u8> {
        vec![self.vni as u8; usize::from(bytes.byte()) * 7]
    }

    fn send(self, inner: Vec<u8>) -> Sent {
        let frame = if self.from == "uplink0" {
            tunnel(outer(), self.vni as u8 & 3, self.vni, &inner)
        } else {
            inner.clone()
        };
        Sent { port: self.from, frame, inner }
    }
}

fn ports(bytes: &mut Bytes) -> (u16, u16) {
    let byte = bytes.byte();
    // Few, so that both sides meet; the allowed ones among them.
    let port = |bits: u8| [5201, 80, 7, 8][usize::from(bits & 3)];
    (port(byte), port(byte >> 2))
}

fn tcp(way: &Way, bytes: &mut Bytes) -> Vec<u8> {
    let flags = bytes.byte();
    let mut frame = if way.is_v6 {
        way.ends6().syn(ports(bytes))
    } else {
        way.ends.tcp(ports(bytes), "S", &vec![way.vni as u8; usize::from(flags >> 6) * 40])
    };
    let tcp = if way.is_v6 { 54 } else { 34 };
    let (sequence, acknowledged) = (u32::from(bytes.number() & 0x3ff), u32::from(bytes.number() & 0x3ff));
    frame[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
    frame[tcp + 8..tcp + 12].copy_from_slice(&acknowledged.to_be_bytes());
    frame[tcp + 13] = flags & 0x3f;
    let parsed = wire::parse(&frame).expect("a right frame");
    assert!(wire::checksum::fill_l4(&mut frame, &parsed));
    frame
}

fn fragment(way: &Way, bytes: &mut Bytes) -> Vec<u8> {
    let kind = bytes.byte();
    let words = vec![way.vni as u8; 200];
    let whole = match (kind >> 4 & 3, way.is_v6) {
        (0, true) => way.ends6().udp(ports(bytes), &words),
        (1, true) => way.ends6().ping(1, 1, 64),
        (0, false) => way.ends.udp(ports(bytes), &words),
        (1, false) => way.ends.ping(1, 1, 64),
        (2, _) => way.ends.roce(9, u32::from(kind >> 6), &words),
        _ => way.ends.tcp(ports(bytes), "A", &words),
    };
    let (offset, len) = (usize::from(bytes.byte() & 31) * 8, usize::from(bytes.byte() & 31) * 8);
    let start = if whole[12] == 8 { 34 } else { 54 };
    let data = if offset == 0 { &whole[start..whole.len().min(start + len)] } else { &words[..len.min(200)] };
    cuts::fragment_of(&whole, u32::from(kind & 3), offset, kind & 4 == 0, data)
}

fn management(way: &Way, bytes: &mut Bytes) -> Vec<u8> {
    use wire::roce::cm::attribute;
    let (id, to, qp) =
        (u32::from(bytes.byte() & 3), u32::from(bytes.byte() & 3), u32::from(bytes.byte() & 7));
    match bytes.byte() % 6 {
        0 => verbs::request(way.ends, id, qp, 1),
        1 => verbs::reply(way.ends, id, to, qp, 1),
        2 => verbs::release(way.ends, id, to, qp),
        3 => verbs::plain(way.ends, attribute::RTU, id, to),
        4 => verbs::plain(way.ends, attribute::REJ, id, to),
        _ => verbs::notification(way.ends, qp),
    }
}

/// One whose headers have a known length.
fn opcode(byte: u8) -> u8 {
    if wire::roce::headers(byte).is_some() { byte } else { wire::roce::opcode::ACKNOWLEDGE }
}

fn sctp(way: &Way, bytes: &mut Bytes) -> Vec<u8> {
    let mut data = vec![0, 7, 0, 7, 0, 0, 0, bytes.byte() & 3, 0, 0, 0, 0];
    // INIT, INIT ACK, ABORT, SHUTDOWN, DATA and whatever else, with a tag of its own.
    data.extend_from_slice(&[bytes.byte() & 15, 0, 0, 20, 0, 0, 0, bytes.byte() & 3]);
    data.resize(32, 0);
    let mut frame = cuts::fragment_of(&way.ends.udp((7, 7), &[0; 8]), 0, 0, false, &data);
    frame[23] = 132;
    assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
    frame
}

/// A frame of before with bytes changed, and its checksums right again more often than not.
fn changed(sent: &Sent, bytes: &mut Bytes) -> Sent {
    let mut sent = sent.clone();
    let how = bytes.byte();
    for _ in 0..how & 7 {
        let at = usize::from(bytes.byte()) % sent.frame.len().max(1);
        let value = bytes.byte();
        if let Some(byte) = sent.frame.get_mut(at) {
            *byte = value;
        }
    }
    if how & 8 != 0 {
        sent.frame.truncate(usize::from(bytes.byte()));
    }
    if how & 0x30 != 0 && sent.frame.len() > 14 && sent.frame[12] == 8 {
        // Wrong where the header is too short for it, which is as well.
        let _ = wire::checksum::fill_ipv4_header(&mut sent.frame[14..]);
    }
    sent
}

fn raw(bytes: &mut Bytes) -> Sent {
    let port = super::PORTS[usize::from(bytes.byte() & 3)];
    let len = usize::from(bytes.byte());
    let frame = bytes.take(len).to_vec();
    Sent { port, inner: frame.clone(), frame }
}
