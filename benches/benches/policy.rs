//! The compile step at the size of its aim, 1,000 tenants with 100 rules each: from files in memory to a program.

use std::{hint::black_box, time::Duration};

use benches::directory::{self, Size};
use compile::Compiler;
use criterion::{Criterion, criterion_group, criterion_main};
use policy::{Reader, Source};
use program::Program;

const SIZE: Size = Size { tenants: 1000, rules: 100 };
const SEED: u64 = 1;
/// The tenant that changes; the first file is the Fabric's.
const CHANGING: usize = 500;

/// What a daemon keeps.
struct Daemon {
    sources: Vec<Source>,
    changes: usize,
    reader: Reader,
    compiler: Compiler,
    running: Option<Program>,
}

impl Daemon {
    fn new(sources: &[Source]) -> Self {
        let (reader, compiler) = Default::default();
        let mut daemon = Self { sources: sources.to_vec(), changes: 0, reader, compiler, running: None };
        assert_eq!(daemon.apply(), SIZE.tenants);
        daemon
    }

    /// Another port in one rule of one tenant.
    fn edit(&mut self) {
        self.changes += 1;
        self.sources[1 + CHANGING] = directory::tenant(CHANGING, SIZE.rules, SEED, self.changes);
    }

    /// Says how many tenants were compiled.
    fn apply(&mut self) -> usize {
        let parsed = self.reader.parse(&self.sources).expect("the directory is good");
        let compiled = self.compiler.compile(&parsed.policy, self.running.as_ref()).expect("it fits");
        self.running = Some(compiled.program);
        compiled.recompiled
    }
}

fn policy(criterion: &mut Criterion) {
    let sources = directory::sources(SIZE, SEED);
    memory(&sources);
    let parsed = policy::parse(&sources).expect("the directory is good");
    let mut daemon = Daemon::new(&sources);
    let mut group = criterion.benchmark_group("policy");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_secs(5));
    group.bench_function("check", |bencher| bencher.iter(|| policy::parse(black_box(&sources))));
    group.bench_function("compile", |bencher| {
        bencher.iter(|| compile::compile(black_box(&parsed.policy), None));
    });
    group.bench_function("no change", |bencher| bencher.iter(|| assert_eq!(daemon.apply(), 0)));
    group.bench_function("one tenant", |bencher| {
        bencher.iter(|| {
            daemon.edit();
            assert_eq!(daemon.apply(), 1);
        });
    });
    group.finish();
}

/// Bytes that are allocated at once at most, and what is still held in the end.
fn memory(sources: &[Source]) {
    let bytes: usize = sources.iter().map(|source| source.bytes.len()).sum();
    println!("{} files of {} kB", sources.len(), bytes / 1000);
    let mut parsed = None;
    let mut program = None;
    let mut daemon = None;
    report("check", || parsed = policy::parse(sources).ok());
    report("compile", || {
        program = parsed.as_ref().and_then(|parsed| compile::compile(&parsed.policy, None).ok())
    });
    report("all that a daemon keeps", || daemon = Some(Daemon::new(sources)));
    report("one tenant", || {
        daemon.as_mut().map(|daemon| {
            daemon.edit();
            daemon.apply()
        });
    });
}

fn report(what: &str, work: impl FnOnce()) {
    let counted = allocation_counter::measure(work);
    let (peak, held) = (counted.bytes_max / 1000, counted.bytes_current / 1000);
    println!("{what}: {peak} kB at most, {held} kB held, {} allocations", counted.count_total);
}

criterion_group!(benches, policy);
criterion_main!(benches);
