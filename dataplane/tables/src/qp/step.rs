//! Opcodes as steps of a message, one table for all of them.

use super::Service;
use wire::roce::opcode;

/// What a packet is to its pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Sent by a requester: SEND, WRITE, READ request, atomic.
    Request,
    /// Sent by a responder: READ response, acknowledgement.
    Response,
    /// A congestion notification, which is outside of all sequences.
    Notification,
    /// Nothing that a connected queue pair takes.
    Stray,
}

/// What an opcode does to the order of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub role: Role,
    /// The [`Progress`] that it needs.
    pub needs: Progress,
    /// The progress that it leaves.
    pub leaves: Progress,
    /// Bits of the byte behind the BTH that say "not acknowledged"; none where that byte is no syndrome.
    pub negative: u8,
}

/// How far the messages of one direction have got: the service in the upper four bits, so that a packet of another
/// service never fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub(super) struct Progress(u8);

impl Progress {
    /// Nothing is known: whatever comes fits.
    pub(super) const UNKNOWN: Self = Self(0xff);

    const BETWEEN: u8 = 0;
    const IN_SEND: u8 = 1;
    const IN_WRITE: u8 = 2;
    const IN_READ: u8 = 3;
    /// Between messages, and the last was a READ: it takes as many PSNs as its response has packets.
    const AFTER_READ: u8 = 4;

    const fn of(service: Service, stage: u8) -> Self {
        Self((service as u8) << 4 | stage)
    }

    /// Between two messages.
    pub(super) const fn between(service: Service) -> Self {
        Self::of(service, Self::BETWEEN)
    }

    /// A jump ahead from here is no gap.
    pub(super) const fn may_jump(self) -> bool {
        self.0 & 0x0f == Self::AFTER_READ
    }

    /// The same, with a READ's end taken for what it is.
    pub(super) const fn settled(self) -> Self {
        if self.may_jump() { Self(self.0 & 0xf0) } else { self }
    }

    /// True for two of the same service, or if one is unknown.
    pub(super) fn is_of_service_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & 0xf0 == 0 || self == Self::UNKNOWN || other == Self::UNKNOWN
    }

    /// In the middle of a READ's response.
    pub(super) const fn is_in_read(self) -> bool {
        self.0 & 0x0f == Self::IN_READ
    }
}

/// The service that an opcode belongs to; `None` for what no connected queue pair takes, a CNP among it.
pub(super) const fn service_of(code: u8) -> Option<Service> {
    match code & 0xe0 {
        opcode::RC => Some(Service::Rc),
        opcode::UC => Some(Service::Uc),
        opcode::XRC => Some(Service::Xrc),
        _ => None,
    }
}

const STRAY: Step =
    Step { role: Role::Stray, needs: Progress::UNKNOWN, leaves: Progress::UNKNOWN, negative: 0 };

/// The step of each opcode.
pub(super) static STEPS: [Step; 256] = {
    let mut table = [STRAY; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = step(code as u8);
        code += 1;
    }
    table
};

const fn step(code: u8) -> Step {
    use Progress as P;
    if code == opcode::CNP {
        return Step { role: Role::Notification, ..STRAY };
    }
    let (Some(service), Some(headers)) = (service_of(code), wire::roce::headers(code)) else { return STRAY };
    let (role, needs, leaves) = match code & 0x1f {
        opcode::SEND_FIRST => (Role::Request, P::BETWEEN, P::IN_SEND),
        opcode::SEND_MIDDLE => (Role::Request, P::IN_SEND, P::IN_SEND),
        opcode::SEND_LAST | opcode::SEND_LAST_IMM | opcode::SEND_LAST_INVALIDATE => {
            (Role::Request, P::IN_SEND, P::BETWEEN)
        }
        opcode::WRITE_FIRST => (Role::Request, P::BETWEEN, P::IN_WRITE),
        opcode::WRITE_MIDDLE => (Role::Request, P::IN_WRITE, P::IN_WRITE),
        opcode::WRITE_LAST | opcode::WRITE_LAST_IMM => (Role::Request, P::IN_WRITE, P::BETWEEN),
        opcode::READ_REQUEST => (Role::Request, P::BETWEEN, P::AFTER_READ),
        opcode::READ_RESPONSE_FIRST => (Role::Response, P::BETWEEN, P::IN_READ),
        opcode::READ_RESPONSE_MIDDLE => (Role::Response, P::IN_READ, P::IN_READ),
        opcode::READ_RESPONSE_LAST => (Role::Response, P::IN_READ, P::BETWEEN),
        opcode::READ_RESPONSE_ONLY | opcode::ACKNOWLEDGE | opcode::ATOMIC_ACKNOWLEDGE => {
            (Role::Response, P::BETWEEN, P::BETWEEN)
        }
        _ => (Role::Request, P::BETWEEN, P::BETWEEN),
    };
    Step {
        role,
        needs: P::of(service, needs),
        leaves: P::of(service, leaves),
        negative: if headers.contains(wire::roce::Headers::AETH) { 0xe0 } else { 0 },
    }
}
