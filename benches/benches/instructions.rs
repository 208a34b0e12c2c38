//! How many instructions the hot path takes: a gate, since they do not depend on what else a machine does.
//!
//! Each measurement is of 1,024 packets. The limits are what was counted when they were last set, and a twentieth more: whoever goes
//! beyond one says why and sets it anew. Needs valgrind and gungraun's runner (`.ci/test` has both).
#![allow(missing_docs)] // gungraun makes public items of its benchmarks

use std::hint::black_box;
use std::sync::Arc;

use benches::scene;
use benches::stage::{HOST, Stage, UPLINK, answers, opened, sent_by_host};
use benches::traffic::{Traffic, Transport};
use edge::Limits;
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};

const PACKETS: u32 = 1024;

const fn traffic(transport: Transport) -> Traffic {
    Traffic { flows: PACKETS, frame_len: 60, transport }
}

/// A pipeline that knows no flow and has `rules` rules.
fn stage(rules: u32) -> Stage {
    let limits = Limits { flows: 4 * PACKETS as usize, ..Limits::default() };
    Stage::new(Arc::new(scene::program(rules).expect("a policy that compiles")), limits, PACKETS as usize)
}

/// Every packet's flow is known, and so is that of its answers.
fn known(transport: Transport) -> Stage {
    opened(stage(0), traffic(transport), 0..PACKETS)
}

fn from_host(transport: Transport) -> Stage {
    known(transport).with(HOST, sent_by_host(traffic(transport)))
}

fn from_fabric(transport: Transport) -> Stage {
    known(transport).with(UPLINK, answers(traffic(transport)))
}

/// No packet's flow is known.
fn unknown(rules: u32, transport: Transport) -> Stage {
    stage(rules).with(HOST, sent_by_host(traffic(transport)))
}

fn at_most(per_packet: u64) -> LibraryBenchmarkConfig {
    let limit = per_packet * u64::from(PACKETS) * 21 / 20;
    let callgrind = Callgrind::default().hard_limits([(EventKind::Ir, limit)]).clone();
    LibraryBenchmarkConfig::default().tool(callgrind).clone()
}

#[library_benchmark]
#[bench::udp(args = (Transport::Udp), setup = from_host, config = at_most(745))]
#[bench::tcp(args = (Transport::Tcp), setup = from_host, config = at_most(873))]
#[bench::roce(args = (Transport::Roce), setup = from_host, config = at_most(867))]
#[bench::udp_from_fabric(args = (Transport::Udp), setup = from_fabric, config = at_most(891))]
#[bench::tcp_from_fabric(args = (Transport::Tcp), setup = from_fabric, config = at_most(1020))]
fn hit(stage: Stage) -> Stage {
    run(stage)
}

#[library_benchmark]
#[bench::udp(args = (0, Transport::Udp), setup = unknown, config = at_most(2983))]
#[bench::rules_10_000(args = (10_000, Transport::Udp), setup = unknown, config = at_most(3256))]
#[bench::roce(args = (0, Transport::Roce), setup = unknown, config = at_most(3657))]
fn miss(stage: Stage) -> Stage {
    run(stage)
}

fn run(mut stage: Stage) -> Stage {
    black_box(&mut stage).run();
    stage
}

library_benchmark_group!(name = pipeline, benchmarks = [hit, miss]);
main!(library_benchmark_groups = pipeline);
