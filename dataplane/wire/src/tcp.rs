//! TCP (RFC 9293).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32},
};

/// Length of a header without options, bytes.
pub const HEADER_LEN: usize = 20;

/// Bits of [`Tcp::flags`].
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// ECN echo (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

/// A TCP header without its options.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Tcp {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Sequence number.
    pub sequence: U32,
    /// Acknowledgement number.
    pub acknowledgement: U32,
    /// Data offset (upper half, units of 4 bytes), reserved bits and AE (RFC 9768).
    pub data_offset: u8,
    /// [`flag`]s.
    pub flags: u8,
    /// Window, unscaled.
    pub window: U16,
    /// Checksum over pseudo header, header and data.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

impl Tcp {
    /// Header length by the data offset field, bytes: 0 to 60, not checked.
    pub const fn header_len(&self) -> usize {
        (self.data_offset >> 4) as usize * 4
    }
}
