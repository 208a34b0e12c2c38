//! Proves what is true of all packets, and gives one that shows it when something is not. `docs/verify.md` is the user's
//! view.
//!
//! Nothing is sampled. The packets of a question fall into passages: a way in, a place to go, sources, destinations and
//! services as sets. For each passage the rule lists of both ends say, as sets too, what they let through. That is
//! exact because an egress list looks at destination and service only, an ingress list at source and service only. The
//! sets follow [`program::Program::judge`], and each counter-example is put to it before it is given out.

mod address;
mod example;
mod isolation;
mod proof;
mod reach;
mod resolve;
mod services;
mod set;
mod unproven;
mod walk;

use program::{Allowed, Flow, PeerBlock, PortId, Refused, ServiceMatch, TenantId};

pub use example::{Example, Judged};
pub use isolation::{BROKEN_MAX, Broken, Fact, Isolation, isolation};
pub use policy::Expect;
pub use proof::Prover;
pub use resolve::questions;
pub use unproven::unproven;

/// Most regions that one proof looks at; a question that needs more gets [`Undecided::TooComplex`].
pub const REGIONS_MAX: u64 = walk::Budget::REGIONS_MAX;

/// What must be true of all packets from one end to another.
///
/// Packets are meant as they open a flow; replies of allowed flows are the flow table's matter. Left out are packets
/// that no rule is asked about: martian and spoofed sources, answers of DHCP servers from a port, what stays behind the
/// port or tunnel endpoint that it came from, and what would go from tunnel to tunnel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// What must become of each packet.
    pub expect: Expect,
    /// Who sends.
    pub from: End,
    /// Who is meant to receive. Of another tenant: where the packets come out, whatever their destination.
    pub to: End,
    /// What the packets are, as a rule of that verdict means it (see [`program::Rule::matches`]); `None` is any.
    pub services: Option<Vec<ServiceMatch>>,
}

/// Some hosts of a tenant: both conditions are to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Whose.
    pub tenant: TenantId,
    /// At one of these ports; `None` is anywhere.
    pub ports: Option<Vec<PortId>>,
    /// With an address in one of these blocks; `None` is every address that lives somewhere.
    pub blocks: Option<Vec<PeerBlock>>,
}

impl End {
    /// All hosts of a tenant.
    pub const fn all(tenant: TenantId) -> Self {
        Self { tenant, ports: None, blocks: None }
    }
}

/// What was found out about a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// True of every packet.
    Proven,
    /// There is no such packet.
    Vacuous,
    /// Not true of this packet.
    False(CounterExample),
    /// Not found out.
    Undecided(Undecided),
}

/// A packet, and what [`program::Program::judge`] says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterExample {
    /// The packet's flow.
    pub flow: Flow,
    /// What becomes of it.
    pub judged: Result<Allowed, Refused>,
}

/// Why there is no answer. It never means that something is true.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Undecided {
    /// The rules cut the packets into too many pieces.
    #[error("too complex: more than {REGIONS_MAX} regions")]
    TooComplex,
    /// A list names a rule that is not there, or goes back to an earlier tier.
    #[error("a rule list names a rule that the program does not have, or goes back to an earlier tier")]
    BrokenList,
    /// The question is about a tenant that is not there.
    #[error("the program has no such tenant")]
    NoTenant,
    /// The sets say otherwise than the program: a defect of floodway.
    #[error("the proof and the program disagree about {0:?}; please report it")]
    Disagrees(Box<Flow>),
}
