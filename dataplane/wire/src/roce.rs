//! RoCEv2 (InfiniBand Architecture Specification volume 1, annex A17) and its transport headers (chapter 9).
//!
//! On the wire: UDP with destination port [`PORT`], [`Bth`], the extension headers that the opcode names
//! ([`headers`]), payload, 0 to 3 bytes of padding, 4 bytes of ICRC.

pub mod cm;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32, U64},
};

/// UDP destination port of RoCEv2.
pub const PORT: u16 = 4791;
/// Length of [`Bth`], bytes.
pub const BTH_LEN: usize = 12;
/// Length of the invariant CRC behind the packet, bytes.
pub const ICRC_LEN: usize = 4;
/// Bytes of reserved payload a CNP carries (annex A17, section 9.3).
pub const CNP_RESERVED_LEN: usize = 16;

/// Base transport header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Bth {
    /// Transport (upper 3 bits) and operation (lower 5): see [`opcode`].
    pub opcode: u8,
    /// Solicited event (1 bit), migration request (1), pad count (2), transport version (4).
    pub flags: u8,
    /// Partition key.
    pub p_key: U16,
    /// FECN (1 bit), BECN (1), reserved (6), destination QP (24).
    pub ecn_dest_qp: U32,
    /// Acknowledge request (1 bit), reserved (7), packet sequence number (24).
    pub ack_psn: U32,
}

impl Bth {
    /// Bytes of padding between payload and ICRC, 0 to 3.
    pub const fn pad_count(&self) -> usize {
        (self.flags >> 4 & 3) as usize
    }

    /// Transport header version: 0 is the only one there is.
    pub const fn version(&self) -> u8 {
        self.flags & 0x0f
    }

    /// Destination queue pair, 24 bits.
    pub fn dest_qp(&self) -> u32 {
        self.ecn_dest_qp.get() & 0x00ff_ffff
    }

    /// Packet sequence number, 24 bits.
    pub fn psn(&self) -> u32 {
        self.ack_psn.get() & 0x00ff_ffff
    }

    /// The receiver shall acknowledge this packet.
    pub fn ack_requested(&self) -> bool {
        self.ack_psn.get() >> 31 != 0
    }

    /// Forward congestion notification.
    pub fn fecn(&self) -> bool {
        self.ecn_dest_qp.get() >> 31 != 0
    }

    /// Backward congestion notification.
    pub fn becn(&self) -> bool {
        self.ecn_dest_qp.get() >> 30 & 1 != 0
    }

    /// A congestion notification packet: the opcode and the BECN bit. The opcode alone is no CNP: such a
    /// packet is forwarded like one with an unknown opcode and changes nobody's rate.
    pub fn is_cnp(&self) -> bool {
        self.opcode == opcode::CNP && self.becn()
    }
}

/// RDMA extended transport header: where a WRITE or READ goes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Reth {
    /// Virtual address.
    pub address: U64,
    /// Remote key.
    pub r_key: U32,
    /// Length of the whole transfer, bytes.
    pub dma_len: U32,
}

/// Acknowledge extended transport header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Aeth {
    /// Syndrome (8 bits), message sequence number (24).
    pub syndrome_msn: U32,
}

/// What the syndrome of an [`Aeth`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// Acknowledged; the encoded end-to-end credit count, 31 for "none given".
    Ack(u8),
    /// Receiver not ready; the encoded time to wait.
    RnrNak(u8),
    /// Refused: 0 PSN sequence error, 1 invalid request, 2 remote access, 3 remote operational error,
    /// 4 invalid RD request.
    Nak(u8),
    /// Reserved encodings.
    Reserved(u8),
}

impl Aeth {
    /// The syndrome, decoded.
    pub fn syndrome(&self) -> Syndrome {
        let byte = (self.syndrome_msn.get() >> 24) as u8;
        let value = byte & 0x1f;
        match byte >> 5 {
            0 => Syndrome::Ack(value),
            1 => Syndrome::RnrNak(value),
            3 if value <= 4 => Syndrome::Nak(value),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// Message sequence number, 24 bits.
    pub fn msn(&self) -> u32 {
        self.syndrome_msn.get() & 0x00ff_ffff
    }
}

/// Atomic extended transport header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct AtomicEth {
    /// Virtual address.
    pub address: U64,
    /// Remote key.
    pub r_key: U32,
    /// Value to swap in or to add.
    pub swap_add: U64,
    /// Value to compare with.
    pub compare: U64,
}

/// Datagram extended transport header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Deth {
    /// Queue key.
    pub q_key: U32,
    /// Reserved (8 bits), source QP (24).
    pub src_qp: U32,
}

impl Deth {
    /// Source queue pair, 24 bits.
    pub fn src_qp(&self) -> u32 {
        self.src_qp.get() & 0x00ff_ffff
    }
}

/// Immediate data.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct ImmDt {
    /// What the sender gave.
    pub data: U32,
}

/// Opcodes: transport in the upper three bits, operation in the lower five.
pub mod opcode {
    /// Reliable connection.
    pub const RC: u8 = 0x00;
    /// Unreliable connection.
    pub const UC: u8 = 0x20;
    /// Reliable datagram.
    pub const RD: u8 = 0x40;
    /// Unreliable datagram.
    pub const UD: u8 = 0x60;
    /// Congestion notification packet (annex A17).
    pub const CNP: u8 = 0x81;
    /// Extended reliable connection (annex A14).
    pub const XRC: u8 = 0xa0;

    /// SEND, first packet of a message.
    pub const SEND_FIRST: u8 = 0x00;
    /// SEND, middle packet.
    pub const SEND_MIDDLE: u8 = 0x01;
    /// SEND, last packet.
    pub const SEND_LAST: u8 = 0x02;
    /// SEND, last packet, with immediate data.
    pub const SEND_LAST_IMM: u8 = 0x03;
    /// SEND, only packet.
    pub const SEND_ONLY: u8 = 0x04;
    /// SEND, only packet, with immediate data.
    pub const SEND_ONLY_IMM: u8 = 0x05;
    /// WRITE, first packet.
    pub const WRITE_FIRST: u8 = 0x06;
    /// WRITE, middle packet.
    pub const WRITE_MIDDLE: u8 = 0x07;
    /// WRITE, last packet.
    pub const WRITE_LAST: u8 = 0x08;
    /// WRITE, last packet, with immediate data.
    pub const WRITE_LAST_IMM: u8 = 0x09;
    /// WRITE, only packet.
    pub const WRITE_ONLY: u8 = 0x0a;
    /// WRITE, only packet, with immediate data.
    pub const WRITE_ONLY_IMM: u8 = 0x0b;
    /// READ request.
    pub const READ_REQUEST: u8 = 0x0c;
    /// READ response, first packet.
    pub const READ_RESPONSE_FIRST: u8 = 0x0d;
    /// READ response, middle packet.
    pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
    /// READ response, last packet.
    pub const READ_RESPONSE_LAST: u8 = 0x0f;
    /// READ response, only packet.
    pub const READ_RESPONSE_ONLY: u8 = 0x10;
    /// Acknowledge.
    pub const ACKNOWLEDGE: u8 = 0x11;
    /// Acknowledge of an atomic operation.
    pub const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    /// Compare and swap.
    pub const COMPARE_SWAP: u8 = 0x13;
    /// Fetch and add.
    pub const FETCH_ADD: u8 = 0x14;
    /// Resynchronise (RD).
    pub const RESYNC: u8 = 0x15;
    /// SEND, last packet, with invalidate.
    pub const SEND_LAST_INVALIDATE: u8 = 0x16;
    /// SEND, only packet, with invalidate.
    pub const SEND_ONLY_INVALIDATE: u8 = 0x17;
}

/// The extension headers behind a [`Bth`], as bits in wire order, and their lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers(u8);

impl Headers {
    /// None.
    pub const NONE: Self = Self(0);
    /// Reliable datagram extended transport header, 4 bytes.
    pub const RDETH: Self = Self(0x01);
    /// [`Deth`], 8 bytes.
    pub const DETH: Self = Self(0x02);
    /// [`Reth`], 16 bytes.
    pub const RETH: Self = Self(0x04);
    /// [`AtomicEth`], 28 bytes.
    pub const ATOMIC: Self = Self(0x08);
    /// [`Aeth`], 4 bytes.
    pub const AETH: Self = Self(0x10);
    /// Original value of an atomic operation, 8 bytes.
    pub const ATOMIC_ACK: Self = Self(0x20);
    /// [`ImmDt`] or the remote key to invalidate, 4 bytes.
    pub const IMM: Self = Self(0x40);
    /// XRC extended transport header, 4 bytes (annex A14).
    pub const XRCETH: Self = Self(0x80);

    const LENGTHS: [(Self, usize); 8] = [
        (Self::RDETH, 4),
        (Self::XRCETH, 4),
        (Self::DETH, 8),
        (Self::RETH, 16),
        (Self::ATOMIC, 28),
        (Self::AETH, 4),
        (Self::ATOMIC_ACK, 8),
        (Self::IMM, 4),
    ];

    /// Both sets.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if every header of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Length of all the headers in the set, bytes.
    pub const fn len(self) -> usize {
        let (mut sum, mut i) = (0, 0);
        while i < Self::LENGTHS.len() {
            if self.contains(Self::LENGTHS[i].0) {
                sum += Self::LENGTHS[i].1;
            }
            i += 1;
        }
        sum
    }

    /// True if there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Offset of `header` from the end of the [`Bth`], bytes; `None` if it is not in the set.
    pub const fn offset_of(self, header: Self) -> Option<usize> {
        let (mut sum, mut i) = (0, 0);
        while i < Self::LENGTHS.len() {
            if Self::LENGTHS[i].0.0 == header.0 {
                return if self.contains(header) { Some(sum) } else { None };
            }
            if self.contains(Self::LENGTHS[i].0) {
                sum += Self::LENGTHS[i].1;
            }
            i += 1;
        }
        None
    }
}

/// Which extension headers `opcode` carries (volume 1, table 38); `None` for a reserved opcode, behind whose
/// [`Bth`] nothing may be read.
pub const fn headers(opcode: u8) -> Option<Headers> {
    if opcode == opcode::CNP {
        return Some(Headers::NONE);
    }
    let operation = opcode & 0x1f;
    let Some(own) = operation_headers(operation) else { return None };
    match opcode & 0xe0 {
        opcode::RC if operation != opcode::RESYNC => Some(own),
        opcode::XRC if operation != opcode::RESYNC => {
            Some(if requests(operation) { own.with(Headers::XRCETH) } else { own })
        }
        opcode::UC if operation <= opcode::WRITE_ONLY_IMM => Some(own),
        opcode::RD if operation <= opcode::RESYNC => {
            let own = own.with(Headers::RDETH);
            Some(if requests(operation) { own.with(Headers::DETH) } else { own })
        }
        opcode::UD if operation == opcode::SEND_ONLY || operation == opcode::SEND_ONLY_IMM => {
            Some(own.with(Headers::DETH))
        }
        _ => None,
    }
}

/// True for what a requester sends, false for responses and acknowledges.
const fn requests(operation: u8) -> bool {
    operation < opcode::READ_RESPONSE_FIRST || operation > opcode::ATOMIC_ACKNOWLEDGE
}

const fn operation_headers(operation: u8) -> Option<Headers> {
    Some(match operation {
        opcode::SEND_LAST_IMM
        | opcode::SEND_ONLY_IMM
        | opcode::WRITE_LAST_IMM
        | opcode::SEND_LAST_INVALIDATE
        | opcode::SEND_ONLY_INVALIDATE => Headers::IMM,
        opcode::WRITE_FIRST | opcode::WRITE_ONLY | opcode::READ_REQUEST => Headers::RETH,
        opcode::WRITE_ONLY_IMM => Headers::RETH.with(Headers::IMM),
        opcode::READ_RESPONSE_FIRST
        | opcode::READ_RESPONSE_LAST
        | opcode::READ_RESPONSE_ONLY
        | opcode::ACKNOWLEDGE => Headers::AETH,
        opcode::ATOMIC_ACKNOWLEDGE => Headers::AETH.with(Headers::ATOMIC_ACK),
        opcode::COMPARE_SWAP | opcode::FETCH_ADD => Headers::ATOMIC,
        0..=opcode::SEND_ONLY_INVALIDATE => Headers::NONE,
        _ => return None,
    })
}

/// Length of `opcode`'s headers, [`Bth`] and extension headers and what a CNP reserves, bytes; of an unknown
/// opcode that of the [`Bth`] alone.
pub const fn headers_len(opcode: u8) -> usize {
    LENGTHS[opcode as usize] as usize
}

/// [`headers_len`] for each opcode: one load in the hot path.
static LENGTHS: [u8; 256] = {
    let mut table = [BTH_LEN as u8; 256];
    let mut opcode = 0;
    while opcode < 256 {
        if let Some(headers) = headers(opcode as u8) {
            table[opcode] += headers.len() as u8;
        }
        opcode += 1;
    }
    table[opcode::CNP as usize] += CNP_RESERVED_LEN as u8;
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opcodes_carry() {
        for (opcode, len) in [
            (0x00, Some(0)),
            (0x05, Some(4)),
            (0x06, Some(16)),
            (0x0b, Some(20)),
            (0x0e, Some(0)),
            (0x11, Some(4)),
            (0x12, Some(12)),
            (0x13, Some(28)),
            (0x15, None),
            (0x17, Some(4)),
            (0x18, None),
            (0x2a, Some(16)),
            (0x2c, None),
            (0x4c, Some(4 + 8 + 16)),
            (0x51, Some(4 + 4)),
            (0x64, Some(8)),
            (0x65, Some(12)),
            (0x66, None),
            (0x81, Some(0)),
            (0xa4, Some(4)),
            (0xff, None),
        ] {
            assert_eq!(headers(opcode).map(Headers::len), len, "opcode {opcode:#04x}");
        }
        assert_eq!(headers_len(opcode::CNP), 28);
        assert_eq!(headers_len(0xff), 12);
    }

    #[test]
    fn offsets_follow_the_wire() {
        let write_imm = headers(opcode::WRITE_ONLY_IMM).unwrap();
        assert_eq!(write_imm.offset_of(Headers::RETH), Some(0));
        assert_eq!(write_imm.offset_of(Headers::IMM), Some(16));
        assert_eq!(write_imm.offset_of(Headers::AETH), None);
    }

    #[test]
    fn syndromes() {
        let of = |byte: u32| Aeth { syndrome_msn: U32::new(byte << 24 | 7) }.syndrome();
        assert_eq!(of(0x1f), Syndrome::Ack(31));
        assert_eq!(of(0x2c), Syndrome::RnrNak(12));
        assert_eq!(of(0x60), Syndrome::Nak(0));
        assert_eq!(of(0x65), Syndrome::Reserved(0x65));
        assert_eq!(of(0x40), Syndrome::Reserved(0x40));
    }
}
