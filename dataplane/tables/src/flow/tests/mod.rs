//! The table against a slow model, the hash's statistics, and known bugs of others.

mod hash;
mod model;
mod regressions;

use super::{FlowKey, FlowTable};

type Table = FlowTable<[u8; 16]>;

/// A TCP flow over IPv4; equal numbers make equal keys.
fn key(number: u32) -> FlowKey {
    let mut key = FlowKey { l4: 40_000 << 16 | 443, tenant: 1, protocol: 6, ..FlowKey::default() };
    key.src[..4].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
    key.dst[..4].copy_from_slice(&[10, 255, 0, 1]);
    key
}
