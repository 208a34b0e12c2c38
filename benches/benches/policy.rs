//! The compile step at the size of its aim, 1,000 tenants with 100 rules each: from files in memory to a program. What it
//! takes of memory is `policy_memory`, since counting allocations takes time.

use std::{hint::black_box, thread, time::Duration};

use benches::{
    daemon::{Daemon, SEED, SIZE},
    directory,
};
use criterion::{Criterion, criterion_group, criterion_main};
use policy::{Diagnostics, Parsed, Reader, Source};

fn policy(criterion: &mut Criterion) {
    let sources = directory::sources(SIZE, SEED);
    let parsed = policy::parse(&sources).expect("the directory is good");
    let mut daemon = Daemon::new(&sources);
    let mut group = criterion.benchmark_group("policy");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_secs(5));
    group.bench_function("check", |bencher| bencher.iter(|| policy::parse(black_box(&sources))));
    group.bench_function("check, two threads", |bencher| bencher.iter(|| check_on(2, black_box(&sources))));
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

/// Reads from the start as the daemon and the command line do, on so many threads.
fn check_on(threads: usize, sources: &[Source]) -> Result<Parsed, Diagnostics> {
    Reader::default().parse_by(sources, &[], |files| {
        let share = files.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            for files in files.chunks_mut(share) {
                scope.spawn(|| files.iter_mut().for_each(|file| file.run()));
            }
        });
    })
}

criterion_group!(benches, policy);
criterion_main!(benches);
