#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

mod conversations;
mod sctp;
mod tcp;
