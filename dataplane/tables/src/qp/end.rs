//! One side of a pair as its packets change it: one cache line.

use super::step::{Progress, Role, STEPS, Step};
use super::{Service, table::NONE};
use packet::Nanos;
use wire::roce::{Aeth, Syndrome};

const PSN_MASK: u32 = 0x00ff_ffff;
/// PSNs ahead by less than this are ahead, the others behind (volume 1, section 9.7.1).
const PSN_HALF: u32 = 1 << 23;

/// What of a packet matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Its opcode.
    pub opcode: u8,
    /// Its PSN, 24 bits.
    pub psn: u32,
    /// The byte behind the BTH: the syndrome where there is an AETH.
    pub syndrome: u8,
    /// BECN is set: without it the opcode of a CNP is none.
    pub has_becn: bool,
    /// Length of the frame, bytes.
    pub bytes: u32,
}

impl Packet {
    /// A request of a connected service: what may open a pair.
    pub fn is_request(&self) -> bool {
        self.role() == Role::Request
    }

    /// A response of a connected service: what may complete a pair.
    pub fn is_response(&self) -> bool {
        self.role() == Role::Response
    }

    /// A congestion notification.
    pub fn is_notification(&self) -> bool {
        self.role() == Role::Notification
    }

    /// What only ever answers: a response or a notification.
    pub fn is_answer(&self) -> bool {
        self.is_response() || self.is_notification()
    }

    fn role(&self) -> Role {
        match STEPS[usize::from(self.opcode)].role {
            Role::Notification if !self.has_becn => Role::Stray,
            role => role,
        }
    }

    fn syndrome(&self) -> Syndrome {
        Aeth { syndrome_msn: (u32::from(self.syndrome) << 24).into() }.syndrome()
    }
}

/// What was noted about a packet that passed: one thing at most, the first of those that apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// Nothing: it is the one that was expected.
    Nothing,
    /// Its opcode does not follow that of the packet before it.
    OutOfOrder,
    /// Its PSN has gone back: the requester sends again from there.
    Retry,
    /// Its PSN has jumped ahead: packets are missing.
    Gap,
    /// A negative acknowledgement but for RNR.
    Nak,
    /// "Receiver not ready".
    RnrNak,
    /// A congestion notification.
    Cnp,
}

/// Why a packet does not pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The link is to a pair that has ended: find another, or none.
    Stale,
    /// Not a response or notification, and only those may pass.
    NotAnAnswer,
    /// Its opcode does not follow that of the packet before it, and the order is enforced.
    OutOfOrder,
}

/// What one side has sent, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Times that the PSN of requests jumped ahead.
    pub gaps: u32,
    /// Times that the PSN of requests went back.
    pub retries: u32,
    /// Packets whose opcode did not follow that of the packet before them.
    pub out_of_order: u32,
    /// Congestion notifications.
    pub cnps: u32,
}

/// One side of a pair: what it sends.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct End {
    /// Whose this is: see [`super::Link`].
    pub serial: u32,
    /// Its queue pair; [`NONE`] while unknown.
    pub qp: u32,
    /// The next PSN of its requests.
    request_psn: u32,
    /// The PSN behind that of its last response.
    response_psn: u32,
    requests: Progress,
    responses: Progress,
    pub last_seen: Nanos,
    pub counts: Counts,
}

const _: () = assert!(size_of::<End>() == 64 && align_of::<End>() == 64);

impl End {
    pub(super) fn new(serial: u32) -> Self {
        Self {
            serial,
            qp: NONE,
            request_psn: 0,
            response_psn: 0,
            requests: Progress::UNKNOWN,
            responses: Progress::UNKNOWN,
            last_seen: Nanos(0),
            counts: Counts::default(),
        }
    }

    /// Its first request will have this PSN.
    pub(super) fn starts_at(&mut self, psn: u32, service: Service) {
        (self.request_psn, self.requests) = (psn & PSN_MASK, Progress::between(service));
    }

    /// Its first request that is seen has this PSN; it may be in the middle of a message.
    pub(super) fn joins_at(&mut self, psn: u32) {
        self.request_psn = psn & PSN_MASK;
    }

    /// PSN of its last request and of its last response, as far as there were any.
    pub(super) fn last_psns(&self) -> (Option<u32>, Option<u32>) {
        let last =
            |progress, next: u32| (progress != Progress::UNKNOWN).then(|| next.wrapping_sub(1) & PSN_MASK);
        (last(self.requests, self.request_psn), last(self.responses, self.response_psn))
    }

    /// The next PSN of its requests.
    pub(super) fn next_psn(&self) -> u32 {
        self.request_psn
    }

    /// Takes in a packet that this side sends.
    #[inline(always)]
    pub(super) fn record(&mut self, packet: &Packet, now: Nanos, strict: bool) -> Result<Note, Refusal> {
        let step = &STEPS[usize::from(packet.opcode)];
        let expected = match step.role {
            Role::Request => self.requests == step.needs && self.request_psn == packet.psn,
            // Acknowledgements are coalesced: between READ responses any PSN will do.
            Role::Response => {
                self.responses == step.needs
                    && (self.response_psn == packet.psn || !step.needs.is_in_read())
                    && packet.syndrome & step.negative == 0
            }
            Role::Notification | Role::Stray => false,
        };
        let note = if expected {
            self.advance(step, packet.psn);
            Note::Nothing
        } else {
            self.unexpected(step, packet, strict)?
        };
        self.counts.packets += 1;
        self.counts.bytes += u64::from(packet.bytes);
        self.last_seen = self.last_seen.max(now);
        Ok(note)
    }

    #[inline(always)]
    fn advance(&mut self, step: &Step, psn: u32) {
        let next = (psn + 1) & PSN_MASK;
        match step.role {
            Role::Request => (self.requests, self.request_psn) = (step.leaves, next),
            Role::Response => (self.responses, self.response_psn) = (step.leaves, next),
            Role::Notification | Role::Stray => {}
        }
    }

    /// Anything but the next packet of a message in good order.
    #[cold]
    fn unexpected(&mut self, step: &Step, packet: &Packet, strict: bool) -> Result<Note, Refusal> {
        let note = match step.role {
            Role::Request => self.note_request(step, packet),
            Role::Response => self.note_response(step, packet),
            Role::Notification if packet.has_becn => Note::Cnp,
            Role::Notification | Role::Stray => Note::OutOfOrder,
        };
        match note {
            Note::OutOfOrder => self.counts.out_of_order += 1,
            Note::Retry => self.counts.retries += 1,
            Note::Gap => self.counts.gaps += 1,
            Note::Cnp => self.counts.cnps += 1,
            Note::Nothing | Note::Nak | Note::RnrNak => {}
        }
        if strict && note == Note::OutOfOrder {
            // The receiver will not see it, so nothing has moved.
            return Err(Refusal::OutOfOrder);
        }
        self.advance(step, packet.psn);
        Ok(note)
    }

    /// An opcode can only be wrong right behind the packet before it: after a jump, whatever comes is where the message
    /// goes on.
    fn note_request(&self, step: &Step, packet: &Packet) -> Note {
        if self.requests == Progress::UNKNOWN {
            return Note::Nothing;
        }
        if !self.requests.is_of_service_of(step.needs) {
            return Note::OutOfOrder;
        }
        match packet.psn.wrapping_sub(self.request_psn) & PSN_MASK {
            0 if self.requests.settled() == step.needs => Note::Nothing,
            0 => Note::OutOfOrder,
            ahead if ahead < PSN_HALF && self.requests.may_jump() => Note::Nothing,
            ahead if ahead < PSN_HALF => Note::Gap,
            _ => Note::Retry,
        }
    }

    fn note_response(&self, step: &Step, packet: &Packet) -> Note {
        let negative = match packet.syndrome() {
            _ if step.negative == 0 => None,
            Syndrome::Ack(_) => None,
            Syndrome::RnrNak(_) => Some(Note::RnrNak),
            Syndrome::Nak(_) | Syndrome::Reserved(_) => Some(Note::Nak),
        };
        let follows = self.responses != Progress::UNKNOWN && packet.psn == self.response_psn;
        match negative {
            // It may end a READ's response anywhere.
            Some(note) => note,
            None if follows && self.responses != step.needs => Note::OutOfOrder,
            None => Note::Nothing,
        }
    }
}

/// True when `psn` is one of those from `first` to the one before `next`, which may be at most half of all.
pub(super) fn is_within(psn: u32, first: u32, next: u32) -> bool {
    let length = next.wrapping_sub(first) & PSN_MASK;
    length < PSN_HALF && psn.wrapping_sub(first) & PSN_MASK < length
}

/// The PSN from which on requests are taken for unanswered: `first`, but not more than `most` before `next`.
pub(super) fn first_within(first: u32, next: u32, most: u32) -> u32 {
    let length = next.wrapping_sub(first) & PSN_MASK;
    if length <= most { first } else { next.wrapping_sub(most) & PSN_MASK }
}
