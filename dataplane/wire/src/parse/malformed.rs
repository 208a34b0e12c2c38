//! Why a frame is refused.

use core::fmt;

macro_rules! causes {
    ($($(#[doc = $doc:expr])+ $variant:ident = $name:literal,)+) => {
        /// Why a frame is refused: one variant per cause.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Malformed {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Malformed {
            /// Every cause, in the order of their values 0, 1, 2 ...: an index for counters.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Name for counters and logs, in kebab case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

causes! {
    /// The frame is shorter than an Ethernet header.
    FrameShort = "frame-short",
    /// The frame is longer than 65,535 bytes.
    FrameLong = "frame-long",
    /// The frame ends inside a VLAN tag or before the EtherType behind it.
    VlanCut = "vlan-cut",
    /// The frame ends inside an ARP packet.
    ArpCut = "arp-cut",
    /// ARP with types or address lengths other than those of IPv4 on Ethernet.
    ArpFormat = "arp-format",
    /// The frame ends inside the IPv4 header.
    Ipv4Cut = "ipv4-cut",
    /// EtherType IPv4, but the version field is not 4.
    Ipv4Version = "ipv4-version",
    /// The header length field is below 5 or leads past the total length.
    Ipv4HeaderLen = "ipv4-header-len",
    /// The total length leads past the end of the frame or is below 20.
    Ipv4TotalLen = "ipv4-total-len",
    /// An option has length 0 or 1, or leads past the header.
    Ipv4Option = "ipv4-option",
    /// The frame ends inside the IPv6 header.
    Ipv6Cut = "ipv6-cut",
    /// EtherType IPv6, but the version field is not 6.
    Ipv6Version = "ipv6-version",
    /// The payload length leads past the end of the frame.
    Ipv6PayloadLen = "ipv6-payload-len",
    /// A jumbo payload option (RFC 2675), or the payload length 0 that announces one.
    JumboPayload = "jumbo-payload",
    /// An extension header leads past the payload.
    ExtensionCut = "extension-cut",
    /// More than [`MAX_EXTENSION_HEADERS`](crate::ipv6::MAX_EXTENSION_HEADERS) extension headers.
    ExtensionChainLong = "extension-chain-long",
    /// Hop-by-hop options that do not follow the IPv6 header at once (RFC 8200, section 4.1).
    HopByHopNotFirst = "hop-by-hop-not-first",
    /// A second fragment header.
    FragmentTwice = "fragment-twice",
    /// An option leads past its extension header.
    ExtensionOption = "extension-option",
    /// An unknown hop-by-hop option that says a node must discard the packet (RFC 8200, section 4.2).
    OptionDiscard = "option-discard",
    /// An authentication header of fewer than 12 bytes (RFC 4302, section 2).
    AhLen = "ah-len",
    /// A fragment that carries no data.
    FragmentEmpty = "fragment-empty",
    /// A fragment, not the last, whose data is no multiple of 8 bytes.
    FragmentUnaligned = "fragment-unaligned",
    /// A fragment that ends past the longest datagram, 65,535 bytes.
    FragmentBeyond = "fragment-beyond",
    /// A first fragment without the whole L4 header, or a TCP fragment at offset 8 (RFC 1858, RFC 7112).
    FragmentTiny = "fragment-tiny",
    /// The IP payload ends inside the TCP header.
    TcpCut = "tcp-cut",
    /// The data offset is below 5 or leads past the IP payload.
    TcpDataOffset = "tcp-data-offset",
    /// The IP payload ends inside the UDP header.
    UdpCut = "udp-cut",
    /// The UDP length is below 8 or leads past the IP payload.
    UdpLen = "udp-len",
    /// The IP payload ends inside the ICMP or ICMPv6 header (8 bytes).
    IcmpCut = "icmp-cut",
    /// The IP payload ends inside the SCTP common header.
    SctpCut = "sctp-cut",
    /// The UDP payload ends inside the BTH.
    BthCut = "bth-cut",
    /// The BTH's transport version is not 0.
    BthVersion = "bth-version",
    /// The UDP payload ends inside the headers that the opcode carries, or has no room for the ICRC.
    RoceCut = "roce-cut",
    /// The pad count is more than the payload.
    RocePad = "roce-pad",
    /// A neighbour discovery message ends inside its fixed part.
    NdCut = "nd-cut",
    /// A neighbour discovery option has length 0 or leads past the message.
    NdOption = "nd-option",
    /// The packet that an ICMP error quotes is cut in its IP header, or is no IP packet.
    QuoteCut = "quote-cut",
    /// A packet to VXLAN's port that ends inside the VXLAN header.
    VxlanCut = "vxlan-cut",
    /// A fragment to VXLAN's port: not read without reassembly.
    VxlanFragment = "vxlan-fragment",
    /// A VXLAN header whose I flag is clear (RFC 7348, section 5).
    VxlanFlags = "vxlan-flags",
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_indexes_and_names_are_distinct() {
        for (index, cause) in Malformed::ALL.iter().enumerate() {
            assert_eq!(*cause as usize, index);
            assert!(cause.name().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            assert!(Malformed::ALL[..index].iter().all(|other| other.name() != cause.name()));
        }
    }
}
