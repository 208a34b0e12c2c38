//! The table against a list that is searched from end to end, and single rules by hand.

mod model;
mod order;

use super::{Hosts, Packet};
use wire::roce::cm::{Kind, Message, Offer, Service};

/// A host of the tests by its number.
fn address(host: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[10, 0, 0, host]);
    address
}

fn hosts(src: u8, dst: u8) -> Hosts {
    Hosts { tenant: 0, is_ipv6: false, src: address(src), dst: address(dst) }
}

fn packet(opcode: u8, psn: u32) -> Packet {
    Packet { opcode, psn: psn & 0xff_ffff, syndrome: 0, has_becn: true, bytes: 100 }
}

fn request(id: u32, qp: u32, psn: u32) -> Message {
    let kind = Kind::Request { offer: Offer { qp, psn }, service: Service::Rc };
    Message { local_id: id, remote_id: 0, kind }
}

fn reply(id: u32, to: u32, qp: u32, psn: u32) -> Message {
    Message { local_id: id, remote_id: to, kind: Kind::Reply(Offer { qp, psn }) }
}
