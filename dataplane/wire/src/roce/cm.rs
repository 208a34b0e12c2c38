//! The connection manager's messages (InfiniBand Architecture Specification volume 1, chapter 12): how two hosts tell
//! each other their queue pairs before the first byte of data.
//!
//! On the wire: a UD SEND only from QP 1 to QP 1 whose payload is one management datagram of [`MAD_LEN`] bytes, [`Mad`]
//! and the message that its attribute names. [`message`] reads what says who is connected to whom; the rest (path
//! records, credits, private data) is left alone.

use super::{Deth, Headers, opcode};
use crate::{Fragment, Parsed};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32, U64},
};

/// The queue pair of the general services interface.
pub const QP: u32 = 1;
/// Its queue key (volume 1, section 10.2.5).
pub const Q_KEY: u32 = 0x8001_0000;
/// Length of a management datagram, bytes.
pub const MAD_LEN: usize = 256;

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const SEND: u8 = 3;

/// Attributes: which message it is (volume 1, table 105).
pub mod attribute {
    /// Request for communication.
    pub const REQ: u16 = 0x10;
    /// Message receipt acknowledgement: asks for more time.
    pub const MRA: u16 = 0x11;
    /// Reject.
    pub const REJ: u16 = 0x12;
    /// Reply to a request for communication.
    pub const REP: u16 = 0x13;
    /// Ready to use.
    pub const RTU: u16 = 0x14;
    /// Request for communication release.
    pub const DREQ: u16 = 0x15;
    /// Reply to a request for communication release.
    pub const DREP: u16 = 0x16;
    /// Service id resolution request.
    pub const SIDR_REQ: u16 = 0x17;
    /// Service id resolution response.
    pub const SIDR_REP: u16 = 0x18;
    /// Load alternate path.
    pub const LAP: u16 = 0x19;
    /// Alternate path response.
    pub const APR: u16 = 0x1a;
}

/// Header of a management datagram (volume 1, section 13.4.2).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Mad {
    /// 1.
    pub base_version: u8,
    /// 7 for the connection manager.
    pub class: u8,
    /// 2 for the connection manager.
    pub class_version: u8,
    /// 3, send, for each of the connection manager's messages.
    pub method: u8,
    /// Zero.
    pub status: U16,
    /// Zero.
    pub class_specific: U16,
    /// The same in all messages of one exchange.
    pub transaction: U64,
    /// See [`attribute`].
    pub attribute: U16,
    /// Zero.
    pub reserved: U16,
    /// Zero.
    pub modifier: U32,
}

/// Start of a REQ (volume 1, table 106), up to its starting PSN.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Request {
    /// The sender's name for the connection.
    pub local_id: U32,
    /// Zero.
    pub reserved: U32,
    /// What is asked for.
    pub service: U64,
    /// The sender's adapter.
    pub local_guid: U64,
    /// Zero.
    pub reserved_too: U32,
    /// Queue key, for datagrams.
    pub local_q_key: U32,
    /// The sender's queue pair (24 bits), responder resources (8).
    pub qp_resources: U32,
    /// End-to-end context (24 bits), initiator depth (8).
    pub context_depth: U32,
    /// Remote end-to-end context (24 bits), response timeout (5), transport service (2), flow control (1).
    pub service_type: U32,
    /// PSN that the receiver's first request shall have (24 bits), response timeout (5), retries (3).
    pub psn_retries: U32,
    /// Partition key.
    pub p_key: U16,
    /// Path MTU (4 bits), flags (4).
    pub mtu: u8,
    /// Retries (4 bits), shared receive queue (1), extended transport (3).
    pub extended: u8,
}

/// Start of a REP (volume 1, table 110).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Reply {
    /// The sender's name for the connection.
    pub local_id: U32,
    /// The receiver's name for it: that of the REQ.
    pub remote_id: U32,
    /// Queue key, for datagrams.
    pub local_q_key: U32,
    /// The sender's queue pair (24 bits), reserved (8).
    pub qp: U32,
    /// End-to-end context (24 bits), reserved (8).
    pub context: U32,
    /// PSN that the receiver's first request shall have (24 bits), reserved (8).
    pub psn: U32,
}

/// Both names of a connection: with these every message but REQ and the SIDR ones begins.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Ids {
    /// The sender's name for the connection.
    pub local_id: U32,
    /// The receiver's name for it; zero in a REJ of a message that it did not understand.
    pub remote_id: U32,
    /// DREQ: the receiver's queue pair (24 bits). REJ: message rejected (2), length (7 of 8), reason (16).
    pub more: U32,
}

/// What a connection carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Extended reliable connection (annex A14).
    Xrc,
}

/// One side's queue pair, as it is offered in a REQ or a REP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The sender's queue pair, 24 bits.
    pub qp: u32,
    /// PSN that the receiver's first request to it shall have, 24 bits.
    pub psn: u32,
}

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// REQ: the sender wants a connection.
    Request {
        /// From this queue pair.
        offer: Offer,
        /// Of this kind.
        service: Service,
    },
    /// REP: the sender agrees, with this queue pair.
    Reply(Offer),
    /// RTU: the sender has seen the REP and begins.
    Ready,
    /// REJ: there will be no connection.
    Reject,
    /// MRA: the answer takes longer.
    MoreTime,
    /// DREQ: the connection ends; names the receiver's queue pair.
    Disconnect {
        /// 24 bits.
        remote_qp: u32,
    },
    /// DREP: it has ended.
    Disconnected,
    /// LAP or APR: about another path for the same queue pairs.
    Path,
    /// SIDR request: asks for the queue pair of a service of datagrams. `local_id` is the request's.
    Resolve,
    /// SIDR response. `remote_id` is the request's.
    Resolved,
}

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The sender's name for the connection; zero where the message has none.
    pub local_id: u32,
    /// The receiver's name for the connection; zero where the message has none.
    pub remote_id: u32,
    /// What it says.
    pub kind: Kind,
}

/// The message in a frame; `None` when it carries none: another queue pair or opcode, a wrong queue key, a fragment, a
/// datagram of another class or length, an attribute that is not the connection manager's. The ICRC is not looked at.
pub fn message(frame: &[u8], parsed: &Parsed) -> Option<Message> {
    let bth = parsed.bth(frame)?;
    let whole = parsed.fragment == Fragment::None && bth.opcode == opcode::UD | opcode::SEND_ONLY;
    let deth: &Deth = parsed.roce_header(frame, Headers::DETH)?;
    if !whole || bth.dest_qp() != QP || deth.src_qp() != QP || deth.q_key.get() != Q_KEY {
        return None;
    }
    parse(parsed.roce_payload(frame)?)
}

/// The message in a management datagram; `None` as for [`message`].
pub fn parse(datagram: &[u8]) -> Option<Message> {
    let (mad, body) = Mad::ref_from_prefix(datagram).ok()?;
    let version = [mad.base_version, mad.class, mad.class_version, mad.method];
    if datagram.len() != MAD_LEN || version != [BASE_VERSION, CLASS, CLASS_VERSION, SEND] {
        return None;
    }
    let (ids, _) = Ids::ref_from_prefix(body).ok()?;
    let (local_id, remote_id) = (ids.local_id.get(), ids.remote_id.get());
    let kind = match mad.attribute.get() {
        attribute::REQ => {
            let (request, _) = Request::ref_from_prefix(body).ok()?;
            let kind = Kind::Request { offer: request.offer(), service: request.service() };
            return Some(Message { local_id, remote_id: 0, kind });
        }
        attribute::SIDR_REQ => return Some(Message { local_id, remote_id: 0, kind: Kind::Resolve }),
        attribute::SIDR_REP => {
            return Some(Message { local_id: 0, remote_id: local_id, kind: Kind::Resolved });
        }
        attribute::REP => Kind::Reply(Reply::ref_from_prefix(body).ok()?.0.offer()),
        attribute::RTU => Kind::Ready,
        attribute::REJ => Kind::Reject,
        attribute::MRA => Kind::MoreTime,
        attribute::DREQ => Kind::Disconnect { remote_qp: ids.more.get() >> 8 },
        attribute::DREP => Kind::Disconnected,
        attribute::LAP | attribute::APR => Kind::Path,
        _ => return None,
    };
    Some(Message { local_id, remote_id, kind })
}

impl Request {
    /// The sender's queue pair.
    pub fn offer(&self) -> Offer {
        Offer { qp: self.qp_resources.get() >> 8, psn: self.psn_retries.get() >> 8 }
    }

    /// The kind of connection. The encoding 3 means what the extended transport field says, which knows XRC alone.
    pub fn service(&self) -> Service {
        match self.service_type.get() >> 1 & 3 {
            0 => Service::Rc,
            1 => Service::Uc,
            2 => Service::Rd,
            _ => Service::Xrc,
        }
    }
}

impl Reply {
    /// The sender's queue pair.
    pub fn offer(&self) -> Offer {
        Offer { qp: self.qp.get() >> 8, psn: self.psn.get() >> 8 }
    }
}
