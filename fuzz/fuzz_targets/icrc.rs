//! The ICRC of any bytes, as a packet and as a frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{L3, icrc, parse};

fuzz_target!(|input: (u16, &[u8])| {
    let (l4_offset, frame) = input;
    let _ = icrc::compute(frame, l4_offset.into());
    let Ok(parsed) = parse(frame) else { return };
    let mut copy = frame.to_vec();
    if !icrc::fill(&mut copy, &parsed) {
        assert_eq!(icrc::verify(frame, &parsed), icrc::Check::Unknown);
        return;
    }
    assert_eq!(icrc::verify(&copy, &parsed), icrc::Check::Right);
    let l3 = usize::from(parsed.l3_offset);
    let l4 = usize::from(parsed.l4_offset);
    let free = if parsed.l3 == L3::Ipv4 { [1, 8, 10, 11] } else { [1, 2, 3, 7] };
    for at in free.map(|at| l3 + at).into_iter().chain([l4 + 6, l4 + 7, l4 + 12]) {
        copy[at] = !copy[at];
    }
    assert_eq!(icrc::verify(&copy, &parsed), icrc::Check::Right);
    copy[l4] ^= 1;
    assert_eq!(icrc::verify(&copy, &parsed), icrc::Check::Wrong);
});
