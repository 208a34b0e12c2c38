//! A packet of host0 as sources without ports of SCTP and without states see it.

use std::net::IpAddr;

use program::Service;

#[derive(Clone, Debug)]
pub struct Packet {
    pub is_egress: bool,
    pub peer: IpAddr,
    pub protocol: u8,
    pub src_port: u16,
    pub dst_port: u16,
}

impl Packet {
    pub fn service(&self) -> Service {
        match self.protocol {
            6 => Service::Tcp(self.dst_port),
            // Port 4791 is RoCEv2, to whatever queue pair.
            17 if self.dst_port == 4791 => Service::Roce(17),
            17 => Service::Udp(self.dst_port),
            1 => Service::Icmp(8, 0),
            58 => Service::Icmpv6(128, 0),
            other => Service::Opaque(other),
        }
    }

    pub fn reply(&self) -> Self {
        Self { is_egress: !self.is_egress, src_port: self.dst_port, dst_port: self.src_port, ..self.clone() }
    }

    /// Source and destination.
    pub fn ends(&self) -> (IpAddr, IpAddr) {
        let own = if self.peer.is_ipv4() { "10.1.0.10" } else { "fd00::10" }.parse().unwrap();
        if self.is_egress { (own, self.peer) } else { (self.peer, own) }
    }
}
