//! Any bytes as what happens to the whole pipeline: see [`scenarios::storm`].
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| scenarios::storm::run(input));
