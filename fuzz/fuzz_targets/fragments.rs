//! Any frames, one behind another, through the parser and the table of datagrams: nothing is lost, nothing is kept for
//! ever, and whoever puts together what was sent on meets no two fragments that overlap.
//!
//! The input is a list of frames, each behind two bytes: how many milliseconds pass before it, and its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::Nanos;
use tables::flow::FlowKey;
use tables::fragments::{Bounds, Datagrams, LIFETIME, Later, Loss, Piece};
use wire::{Fragment, L3, parse};

const BOUNDS: Bounds = Bounds { datagrams: 8, waiting: 6, waiting_per_tenant: 4 };

/// What was sent on of a datagram since its first.
type Sent = Vec<(FlowKey, Vec<Piece>)>;

fuzz_target!(|input: &[u8]| {
    let mut table = Datagrams::<Vec<Piece>>::new(BOUNDS, 2, 7);
    table.set_quota(0, 5);
    table.set_quota(1, 5);
    let (mut now, mut taken, mut passed, mut lost, mut sent) = (Nanos(0), 0, 0, 0, Sent::new());
    let mut rest = input;
    while let [millis, len, more @ ..] = rest {
        let (frame, behind) = more.split_at((*len as usize).min(more.len()));
        rest = behind;
        now = now + Nanos::from_millis(u64::from(*millis));
        let Some((id, piece, is_first)) = read(frame) else { continue };
        taken += 1;
        let mut dropped = 0;
        let mut gone = |queue: Vec<Piece>, _: Loss| dropped += queue.len();
        if is_first {
            let flow = FlowKey { l4: u32::from(piece.len), ..FlowKey::default() };
            if let Ok(queue) = table.first(&id, piece, &flow, now, &mut gone) {
                passed += 1 + queue.len();
                // A first begins a datagram.
                sent.retain(|(old, _)| *old != id);
                sent.push((id, queue));
                send(&mut sent, id, piece);
            } else {
                lost += 1;
            }
        } else {
            match table.later(&id, piece, now, &mut gone) {
                Ok(Later::Follows(_)) => {
                    passed += 1;
                    send(&mut sent, id, piece);
                }
                Ok(Later::Waits(queue)) => queue.push(piece),
                Err(_) => lost += 1,
            }
        }
        lost += dropped;
        assert_eq!(taken, passed + lost + table.waiting());
        assert!(table.len() <= BOUNDS.datagrams && table.waiting() <= BOUNDS.waiting);
    }
    let mut dropped = 0;
    table.expire(now + LIFETIME, BOUNDS.datagrams, &mut |queue, _| dropped += queue.len());
    assert_eq!((table.len(), table.waiting(), taken), (0, 0, passed + lost + dropped));
});

/// The datagram's identity as the pipeline has it but for the ingress; the tenant is a bit of the source MAC.
fn read(frame: &[u8]) -> Option<(FlowKey, Piece, bool)> {
    let parsed = parse(frame).ok()?;
    let part = parsed.part(frame)?;
    let mut id = FlowKey { l4: part.id, tenant: u16::from(frame[11] & 1), ..FlowKey::default() };
    if let Some(header) = parsed.ipv4(frame) {
        id.src[..4].copy_from_slice(&header.src);
        id.dst[..4].copy_from_slice(&header.dst);
        id.protocol = header.protocol;
    } else {
        let header = parsed.ipv6(frame)?;
        (id.src, id.dst, id.kind) = (header.src, header.dst, 1);
    }
    assert!(matches!(parsed.l3, L3::Ipv4 | L3::Ipv6) && usize::from(part.len) <= frame.len());
    let piece = Piece { offset: part.offset, len: part.len, more: part.more };
    assert_eq!(parsed.fragment == Fragment::First, piece.offset == 0);
    Some((id, piece, parsed.fragment == Fragment::First))
}

fn send(sent: &mut Sent, id: FlowKey, piece: Piece) {
    let span = |piece: &Piece| u32::from(piece.offset)..u32::from(piece.offset) + u32::from(piece.len);
    if !sent.iter().any(|(old, _)| *old == id) {
        sent.push((id, Vec::new()));
    }
    let pieces = sent.iter_mut().find(|(old, _)| *old == id).map(|(_, pieces)| pieces).expect("put there");
    let new = span(&piece);
    assert!(pieces.iter().map(span).all(|old| old.end <= new.start || new.end <= old.start), "{pieces:?} {piece:?}");
    pieces.push(piece);
}
