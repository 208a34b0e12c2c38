//! What the fuzz target `pipeline` does, of random bytes in every test run: `FLOODWAY_STORMS` says of how many. Inputs that
//! the fuzzer found stand below with what they found.

use scenarios::crew::Seeded;
use scenarios::storm;

/// Unless the environment says otherwise.
const STORMS: u64 = 300;
/// Bytes of one; some fifty steps.
const LEN: usize = 400;

#[test]
fn nothing_is_lost_in_a_storm() {
    let storms = std::env::var("FLOODWAY_STORMS").ok();
    let storms = storms.map_or(STORMS, |text| text.parse().expect("a number of storms"));
    for seed in 0..storms {
        let mut seeded = Seeded(seed);
        let bytes: Vec<u8> = (0..LEN).map(|_| seeded.word() as u8).collect();
        if let Err(panic) = std::panic::catch_unwind(|| storm::run(&bytes)) {
            println!("storm {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
