//! Records of flows and queue pairs on request, a few per poll, so that listing a full table never holds up a packet.

use quiescent::ring::{self, Consumer, Producer};

/// Records copied in one poll.
const RECORDS_PER_POLL: usize = 32;

/// What is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Flow entries.
    Flows,
    /// Queue pairs.
    QueuePairs,
}

/// Ask a worker for what it remembers.
pub struct DumpRequest<R> {
    requests: Producer<Subject>,
    replies: Consumer<Dumped<R>>,
}

/// One step of an answer.
pub enum Dumped<R> {
    /// One of them.
    Record(R),
    /// There are no more.
    End,
}

/// The worker's end.
pub struct Dump<R> {
    requests: Consumer<Subject>,
    replies: Producer<Dumped<R>>,
    position: Option<(Subject, usize)>,
}

impl<R> Dump<R> {
    /// Both ends; the answer waits in a ring of `depth` records.
    pub fn new(depth: usize) -> (Self, DumpRequest<R>) {
        let (ask, requests) = ring::RingBuffer::new(1);
        let (replies, answers) = ring::RingBuffer::new(depth.max(RECORDS_PER_POLL + 1));
        (Self { requests, replies, position: None }, DumpRequest { requests: ask, replies: answers })
    }

    /// Goes on with the answer, as far as the ring has room.
    pub(crate) fn advance(
        &mut self,
        dump: impl FnOnce(Subject, usize, usize, &mut dyn FnMut(R)) -> Option<usize>,
    ) {
        if self.position.is_none() {
            self.position = self.requests.pop().ok().map(|subject| (subject, 0));
        }
        let Some((subject, from)) = self.position else { return };
        if self.replies.slots() <= RECORDS_PER_POLL {
            return;
        }
        let next = dump(subject, from, RECORDS_PER_POLL, &mut |record| {
            // There is room: the slots were counted above.
            let _ = self.replies.push(Dumped::Record(record));
        });
        self.position = next.map(|next| (subject, next));
        if self.position.is_none() {
            let _ = self.replies.push(Dumped::End);
        }
    }
}

impl<R> DumpRequest<R> {
    /// Starts an answer from the table's beginning. Whatever is left of an earlier one is to be read first.
    pub fn ask(&mut self, subject: Subject) {
        let _ = self.requests.push(subject);
    }

    /// The next step of the answer, if it is there yet.
    pub fn answer(&mut self) -> Option<Dumped<R>> {
        self.replies.pop().ok()
    }
}
