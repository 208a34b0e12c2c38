//! The daemon's ear: reads policy directories, serves the HTTP/JSON API on a unix socket and metrics over TCP, and speaks
//! the API as a client.
//!
//! The daemon gives a [`DataPlane`]; [`bind`] takes the socket and [`Listening::serve`] answers on the calling thread
//! until a [`Shutdown`] is triggered. The only crate with tokio, and no other crate sees it. `docs/api.md` is the
//! user's view.
#![forbid(unsafe_code)]

pub mod api;
pub mod client;
pub mod files;
pub mod metrics;

mod applier;
mod apply;
mod history;
mod history_files;
mod keeper;
mod plane;
mod questions;
mod recompile;
mod routes;
mod serve;
mod shutdown;
mod socket;
mod start;
mod views;
mod watch;
mod watch_ears;

pub use apply::{counts, digest};
pub use history_files::StateError;
pub use plane::{DataPlane, PublishError, Published, TraceError};
pub use recompile::{Recompiler, compile_sources};
pub use serve::{Listening, ServeError, bind, serve};
pub use shutdown::Shutdown;
pub use socket::BindError;
pub use start::{GENERATIONS_KEPT_DEFAULT, Lifecycle, Start, StartError};

/// Where the daemon answers unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/floodway/floodwayd.sock";

#[cfg(test)]
extern crate self as agent;
#[cfg(test)]
#[path = "../tests/fake/mod.rs"]
mod fake;
