//! What the compile step takes of memory, at the size of its aim: beside `policy`, which takes the times.

use benches::{
    daemon::{Daemon, SEED, SIZE},
    directory,
};
use policy::Source;

fn main() {
    memory(&directory::sources(SIZE, SEED));
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
