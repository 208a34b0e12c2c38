//! The channel of commands to a worker, of events from it, and of packets between workers: a bounded single-producer single-consumer ring.
//!
//! This is [`rtrb`], as it is: it is wait-free on both sides, allocates once, keeps each side's position on a cache line
//! of its own and remembers the other side's, so that a worker that polls an empty ring reads one line that nobody
//! writes. `push` on a full ring fails at once and hands the value back; the sender decides. Either side sees with
//! `is_abandoned` that the other has gone.

pub use rtrb::chunks::ChunkError;
pub use rtrb::{Consumer, PopError, Producer, PushError, RingBuffer};
