//! Why a packet went no further: one name each, for counters, `show`, traces and explanations.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a packet was neither sent on nor is still held.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $variant,)+ }

        impl DropReason {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in counters and messages.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ }
            }
        }
    };
}

reasons! {
    /// The frame is cut, or its headers contradict each other.
    Malformed = "malformed",
    /// Neither IPv4, IPv6 nor ARP.
    UnsupportedEtherType = "unsupported-ethertype",
    /// A VLAN tag with an id on a port or in a tunnel that has no VLANs.
    UnexpectedVlan = "unexpected-vlan",
    /// The source MAC is not the port's.
    SpoofedMac = "spoofed-mac",
    /// The source address is not one of the port's, or not one behind that tunnel endpoint.
    SpoofedAddress = "spoofed-address",
    /// An address that no packet may have: loopback, group or broadcast source, or source equal to destination.
    Martian = "martian",
    /// An ARP packet that claims an address or a MAC of somebody else.
    SpoofedArp = "spoofed-arp",
    /// A neighbour discovery packet that claims an address of somebody else, or that came from beyond the link.
    SpoofedNd = "spoofed-nd",
    /// A router advertisement or redirect from a port that is no router.
    RouterAdvertisement = "router-advertisement",
    /// A DHCP server's message from a tenant's port.
    RogueDhcp = "rogue-dhcp",
    /// An ARP or neighbour solicitation for an address that nobody has.
    UnknownNeighbour = "unknown-neighbour",
    /// ARP or neighbour discovery that was taken in and needs no answer.
    NeighbourHeard = "neighbour-heard",
    /// Broadcast or multicast, which is not flooded.
    Group = "group",
    /// The destination MAC is neither the gateway's nor that of the destination address.
    UnknownDestinationMac = "unknown-destination-mac",
    /// No host and no route of the tenant has the destination address.
    NoRoute = "no-route",
    /// A rule denies it.
    PolicyDeny = "policy-deny",
    /// No rule allows it.
    PolicyDefault = "policy-default",
    /// A TCP segment outside the windows of its connection, or an acknowledgement of what was never sent.
    TcpWindow = "tcp-window",
    /// A TCP segment of no connection that is known, where none is picked up in its middle, or with flags that exclude each other.
    NoConnection = "no-connection",
    /// An SCTP packet without the verification tag of its association.
    SctpTag = "sctp-tag",
    /// An ICMP echo reply to no request of late.
    UnaskedEchoReply = "unasked-echo-reply",
    /// RoCEv2 that rules allow to a queue pair that nobody is known to have, where the tenant denies that.
    UnknownQueuePair = "unknown-queue-pair",
    /// A RoCEv2 opcode that does not follow the one before it, where the tenant drops such.
    RoceOrder = "roce-order",
    /// An ICMP error that quotes no flow of this tenant, or what was not sent.
    UnrelatedIcmpError = "unrelated-icmp-error",
    /// IPv4 source route options, or an IPv6 routing header of type 0.
    SourceRoute = "source-route",
    /// The hop limit ran out at the gateway.
    TtlExpired = "ttl-expired",
    /// Larger than the way ahead can carry.
    TooBig = "too-big",
    /// No headroom for the outer header, or no buffer to copy into.
    NoBuffer = "no-buffer",
    /// The next hop on the uplink has not answered yet.
    UnresolvedNextHop = "unresolved-next-hop",
    /// The transmit queue is full.
    TxFull = "tx-full",
    /// The ring to the worker that it belongs to is full.
    HandOverFull = "hand-over-full",
    /// From the fabric, and neither a tunnel to this box nor for its own address.
    NotForUs = "not-for-us",
    /// From the fabric to this box, and not a tunnel: no such service.
    NoService = "no-service",
    /// A fragment of an outer packet: tunnels are not reassembled.
    OuterFragment = "outer-fragment",
    /// The outer UDP checksum is given and wrong (RFC 7348, section 4.1).
    OuterChecksum = "outer-checksum",
    /// Fragments of its datagram overlap or contradict each other (RFC 1858; RFC 5722).
    FragmentOverlap = "fragment-overlap",
    /// A fragment that was seen before.
    FragmentDuplicate = "fragment-duplicate",
    /// A later fragment whose first did not come in time.
    FragmentTimeout = "fragment-timeout",
    /// A fragment for which the tenant has no room, or one too many of its datagram.
    FragmentLimit = "fragment-limit",
    /// An ICMP error or neighbour discovery in fragments (RFC 6980, section 5).
    FragmentedControl = "fragmented-control",
    /// A VXLAN header without the I flag (RFC 7348, section 5).
    VxlanFlags = "vxlan-flags",
    /// A VNI that no tenant has.
    UnknownVni = "unknown-vni",
    /// A tunnel from an address that is not a known endpoint.
    UnknownVtep = "unknown-vtep",
    /// CE on the outer header of a packet that cannot carry it (RFC 6040, section 4.2).
    IllegalEcn = "illegal-ecn",
    /// The port serves no tenant in the running program.
    NoTenant = "no-tenant",
    /// Held when the daemon ended.
    Shutdown = "shutdown",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_numbered_in_order() {
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            assert!(DropReason::ALL[index + 1..].iter().all(|other| other.name() != reason.name()));
            assert!(reason.meaning().trim().ends_with('.'), "{}", reason.name());
        }
    }
}
