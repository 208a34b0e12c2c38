//! Connections, state by state, against what the RFCs say.

#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

mod conversations;
mod sctp;
mod tcp;
