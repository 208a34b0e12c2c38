//! Every frame of every capture into every port: as it is, readdressed so that it gets past the first checks, tunnelled,
//! and each of these cut. No panic, nothing lost, nothing at another tenant's.

use scenarios::corpus;
use scenarios::policies::{FABRIC, TENANTS};
use scenarios::rig::{Rig, port_mac};
use scenarios::scene::{BLUE, RED, RED_GATEWAY, RED6, from_fabric, with};

const OPEN: &str = r#"
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: open}
spec: {tenant: red, egress: [{action: Accept}], ingress: [{action: Accept}]}
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: open}
spec: {tenant: blue, egress: [{action: Accept}], ingress: [{action: Accept}]}
"#;

/// SplitMix64: the same cuts in every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// The VNI of what leaves on the uplink; `None` for what this box says on the underlay itself.
fn vni(frame: &[u8]) -> Option<u32> {
    let is_tunnel =
        frame.get(12..14) == Some(&[8, 0][..]) && frame.get(36..38) == Some(&4789_u16.to_be_bytes()[..]);
    is_tunnel.then(|| u32::from_be_bytes([0, frame[46], frame[47], frame[48]]))
}

/// With the MACs and, if it is IP with nothing before the header, the addresses of red's host and its peer.
fn readdressed(frame: &[u8], inwards: bool) -> Vec<u8> {
    let mut out = frame.to_vec();
    let (src, dst) = if inwards { (RED.dst_mac, RED.src_mac) } else { (RED.src_mac, RED_GATEWAY) };
    if out.len() >= 14 {
        out[..6].copy_from_slice(&dst.0);
        out[6..12].copy_from_slice(&src.0);
    }
    let (from, to) = if inwards { (RED.dst, RED.src) } else { (RED.src, RED.dst) };
    if out.len() >= 34 && out[12..14] == [8, 0] {
        out[26..30].copy_from_slice(&from);
        out[30..34].copy_from_slice(&to);
    }
    let (from, to) = if inwards { (RED6.dst, RED6.src) } else { (RED6.src, RED6.dst) };
    if out.len() >= 54 && out[12..14] == [0x86, 0xdd] {
        out[22..38].copy_from_slice(&from.octets());
        out[38..54].copy_from_slice(&to.octets());
    }
    out
}

/// Sends a frame, whole and cut, and looks at where it comes out.
fn sweep(rig: &mut Rig, seeded: &mut Seeded, port: &str, frame: &[u8], tunnelled: bool) {
    for len in [frame.len(), seeded.below(frame.len()), seeded.below(frame.len().min(90))] {
        let cut = if tunnelled { from_fabric(100, &frame[..len]) } else { frame[..len].to_vec() };
        rig.send(port, &cut);
    }
    rig.settle();
    let own_vni = match port {
        "blue0" => 200,
        _ => 100,
    };
    for out in rig.take("uplink0") {
        assert!(vni(&out).is_none_or(|vni| vni == own_vni), "left {port} in another tenant's tunnel");
    }
    let (red, blue) = (rig.take("red0").len() + rig.take("red1").len(), rig.take("blue0").len());
    let stranger = if port == "blue0" { red } else { blue };
    assert_eq!(stranger, 0, "left {port} by another tenant's port");
}

#[test]
fn every_frame_into_every_port() {
    let Some(dir) = corpus::dir() else { return };
    let mut rig = with(&[FABRIC, TENANTS, OPEN]);
    let mut seeded = Seeded(1);
    let mut frames_seen = 0;
    for (name, frames) in corpus::every_capture(&dir) {
        // Longer ones do not fit a buffer, and the rig's tunnel has fifty bytes of its own.
        for frame in frames.iter().filter(|frame| frame.len() <= 1900).take(400) {
            for port in ["red0", "red1", "blue0"] {
                sweep(&mut rig, &mut seeded, port, frame, false);
            }
            sweep(&mut rig, &mut seeded, "uplink0", frame, false);
            let mut to_us = frame.clone();
            if to_us.len() >= 34 {
                to_us[..6].copy_from_slice(&port_mac(0).0);
                to_us[26..34].copy_from_slice(&[192, 0, 2, 2, 192, 0, 2, 1]);
            }
            sweep(&mut rig, &mut seeded, "uplink0", &to_us, false);
            sweep(&mut rig, &mut seeded, "red0", &readdressed(frame, false), false);
            sweep(&mut rig, &mut seeded, "uplink0", &readdressed(frame, true), true);
            frames_seen += 1;
        }
        assert_eq!(rig.ledger.held(), rig.held() as i64, "{name}");
        rig.assert_balanced();
    }
    assert!(frames_seen > 1000, "{frames_seen} frames");
    assert!(rig.traffic("red0").tx_packets > 500, "readdressed frames do get through");
    assert_eq!(BLUE.src, RED.src, "the tenants' addresses are the same");
}
