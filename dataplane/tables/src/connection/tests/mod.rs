//! Connections, state by state, against what the RFCs say.

mod conversations;
mod sctp;
mod tcp;
