//! What a demo needs of the world that it runs in, and the words for it.

use std::path::Path;

use program::{FlowRecord, Report};
use wire::Mac;

use crate::frames::Ends;

/// What went wrong, in a sentence.
pub type Outcome<T> = Result<T, String>;

/// The tenants of `deploy/policies/demo`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tenant {
    /// VNI 100.
    Red,
    /// VNI 200, with the same addresses.
    Blue,
}

/// Address of each tenant's host on the box.
pub const HOST: [u8; 4] = [10, 1, 0, 10];
/// Address of each tenant's remote host.
pub const REMOTE: [u8; 4] = [10, 1, 0, 20];
/// Address of each tenant's gateway, which floodway answers for.
pub const GATEWAY: [u8; 4] = [10, 1, 0, 1];
/// The box's tunnel endpoint.
pub const VTEP: [u8; 4] = [192, 0, 2, 1];
/// The fabric's tunnel endpoint.
pub const FABRIC_VTEP: [u8; 4] = [192, 0, 2, 2];
/// TCP port of the bulk transfers, which the policy accepts.
pub const BULK_PORT: u16 = 5201;

impl Tenant {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Red, Self::Blue];

    /// The name in the policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Red => "red",
            Self::Blue => "blue",
        }
    }

    /// The name of its port in the policy.
    pub fn port(self) -> &'static str {
        match self {
            Self::Red => "red0",
            Self::Blue => "blue0",
        }
    }

    /// Its network identifier.
    pub fn vni(self) -> u32 {
        match self {
            Self::Red => 100,
            Self::Blue => 200,
        }
    }

    /// Byte that its pings are filled with.
    pub fn pattern(self) -> u8 {
        match self {
            Self::Red => 0xaa,
            Self::Blue => 0xbb,
        }
    }

    /// MAC of its host on the box.
    pub fn mac(self) -> Mac {
        Mac([2, 0, 0, 0, self.letter(), 0x10])
    }

    /// MAC of its remote host.
    pub fn remote_mac(self) -> Mac {
        Mac([2, 0, 0, 0, self.letter(), 0x20])
    }

    /// From its host to its remote host.
    pub fn ends(self) -> Ends {
        Ends { src_mac: self.mac(), dst_mac: self.remote_mac(), src: HOST, dst: REMOTE }
    }

    fn letter(self) -> u8 {
        match self {
            Self::Red => 0x0a,
            Self::Blue => 0x0b,
        }
    }
}

/// Where frames are seen, whichever way they go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The tenant's host on the box.
    Host(Tenant),
    /// The tenant's remote host.
    Remote(Tenant),
    /// The far side of the uplink: frames in their tunnels.
    Fabric,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Host(Tenant::Red),
        Self::Host(Tenant::Blue),
        Self::Remote(Tenant::Red),
        Self::Remote(Tenant::Blue),
        Self::Fabric,
    ];
}

/// A bulk transfer over TCP that is through.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// What the receiver got, in megabits per second.
    pub rate_mbps: f64,
    /// How much, in bytes.
    pub bytes: u64,
    /// What else there is to say.
    pub note: String,
}

/// The answer to a policy directory.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The exit code of `floodway apply`.
    pub code: i32,
    /// What it says.
    pub text: String,
}

/// Two tenants, their remote hosts, and floodway between them.
///
/// Counters are exact when a call returns: whatever it has sent is through or dropped.
pub trait World {
    /// One line about it.
    fn describe(&self) -> String;

    /// Sends `count` pings from a tenant's host, filled with `pattern`; returns how many were answered.
    fn ping(&mut self, tenant: Tenant, target: [u8; 4], count: u16, pattern: u8) -> Outcome<u16>;

    /// Starts a bulk transfer from a tenant's host to its remote; returns while it runs.
    fn start_bulk(&mut self, tenant: Tenant) -> Outcome<()>;

    /// Sees the running bulk transfer to its end.
    fn finish_bulk(&mut self) -> Outcome<Bulk>;

    /// Tries for a good second to connect over TCP; true when it worked.
    fn connect(&mut self, tenant: Tenant, port: u16) -> Outcome<bool>;

    /// Sends frames from a tenant's host past its stack; returns when floodway has received them all.
    fn inject(&mut self, tenant: Tenant, frames: &[Vec<u8>]) -> Outcome<()>;

    /// Begins to keep the frames that are seen there; forgets those kept before.
    fn listen(&mut self, places: &[Place]) -> Outcome<()>;

    /// The frames kept, both ways; ends to keep them.
    fn heard(&mut self, place: Place) -> Outcome<Vec<Vec<u8>>>;

    /// Everything that floodway has counted.
    fn report(&mut self) -> Outcome<Report>;

    /// floodway's flows.
    fn flows(&mut self) -> Outcome<Vec<FlowRecord>>;

    /// Hands a policy directory to floodway.
    fn apply(&mut self, directory: &Path) -> Outcome<Answer>;

    /// Ends floodwayd by SIGTERM and takes everything down; returns its exit code and what was left behind.
    fn stop(&mut self) -> Outcome<(i32, Vec<String>)>;

    /// True when the user wants it to end.
    fn interrupted(&self) -> bool;
}
