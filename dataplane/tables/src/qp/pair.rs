//! What is known of a pair and rarely changes.

use packet::Nanos;
use wire::roce::Syndrome;
use wire::roce::cm;

/// What a pair carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Extended reliable connection.
    Xrc = 2,
    /// Datagrams: no pair, but a question for the queue pair of a service, until it is answered.
    Ud = 3,
}

impl Service {
    /// The services of connections; reliable datagrams are no pair.
    pub(super) fn of(service: cm::Service) -> Option<Self> {
        match service {
            cm::Service::Rc => Some(Self::Rc),
            cm::Service::Uc => Some(Self::Uc),
            cm::Service::Xrc => Some(Self::Xrc),
            cm::Service::Rd => None,
        }
    }
}

/// How far a pair has got.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// A REQ or a SIDR request has passed.
    Requested,
    /// A REP has passed: both queue pairs are known.
    Replied,
    /// The connection is open: a RTU has passed, or the opener's data.
    Open,
    /// A DREQ has passed. Nothing but its answer belongs to the pair any more.
    Closing,
    /// Learned from traffic: only the queue pair of the side that was sent to is known.
    Half,
    /// Learned from traffic: both are known.
    Paired,
}

impl State {
    /// The name in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Replied => "replied",
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Half => "half",
            Self::Paired => "paired",
        }
    }

    /// True when it was learned from traffic, so that nobody has agreed to anything.
    pub const fn is_learned(self) -> bool {
        matches!(self, Self::Half | Self::Paired)
    }

    /// True when data belongs to it.
    pub const fn carries(self) -> bool {
        matches!(self, Self::Replied | Self::Open | Self::Half | Self::Paired)
    }

    /// How long it may be idle. A connection may rest as long as one of TCP (RFC 5382, REQ-5); a peer that is silent
    /// while opening has given up after the longest series of retries that the common stacks make.
    pub(super) const fn timeout(self) -> Nanos {
        Nanos::from_secs(match self {
            Self::Requested | Self::Replied => 60,
            Self::Open => 7_440,
            Self::Closing => 10,
            Self::Half | Self::Paired => 300,
        })
    }
}

/// Negative acknowledgements that one side has sent, by syndrome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Naks {
    /// Receiver not ready.
    pub rnr: u32,
    /// PSN sequence error, invalid request, remote access error, remote operational error, invalid RD request.
    pub by_code: [u32; 5],
    /// Reserved encodings.
    pub reserved: u32,
}

impl Naks {
    pub(super) fn add(&mut self, syndrome: Syndrome) {
        match syndrome {
            Syndrome::Ack(_) => {}
            Syndrome::RnrNak(_) => self.rnr += 1,
            Syndrome::Nak(code) => match self.by_code.get_mut(usize::from(code)) {
                Some(count) => *count += 1,
                None => self.reserved += 1,
            },
            Syndrome::Reserved(_) => self.reserved += 1,
        }
    }
}

/// A pair. Side 0 opened it: it sent the REQ, or the first request that was seen.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Whose it is.
    pub tenant: u16,
    /// The addresses are IPv6.
    pub is_ipv6: bool,
    /// How far it has got.
    pub state: State,
    /// What it carries.
    pub service: Service,
    /// Addresses of both sides, as in a flow's key.
    pub addresses: [[u8; 16]; 2],
    /// Negative acknowledgements of both sides.
    pub naks: [Naks; 2],
    /// When it was first seen.
    pub created: Nanos,
    /// The connection manager's names for it; only of sides whose message has been seen.
    pub(super) ids: [Option<u32>; 2],
    /// When the connection manager spoke of it last.
    pub(super) heard: Nanos,
    /// PSN of the first request that was seen, of a pair learned from traffic.
    pub(super) first_psn: u32,
    /// Under which bits of a PSN a half is found.
    pub(super) half_bucket: u32,
    pub(super) is_live: bool,
}

impl Pair {
    pub(super) fn free() -> Self {
        Self {
            tenant: 0,
            is_ipv6: false,
            state: State::Requested,
            service: Service::Rc,
            addresses: [[0; 16]; 2],
            naks: [Naks::default(); 2],
            created: Nanos(0),
            ids: [None; 2],
            heard: Nanos(0),
            first_psn: 0,
            half_bucket: 0,
            is_live: false,
        }
    }
}
