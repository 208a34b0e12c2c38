//! floodway's classifier and DPDK's `rte_acl` on the same rules and the same headers, in turn, on one core; prints the
//! table of docs/benchmarks.md.
//!
//! Cycles are those of the time stamp counter, in bursts of 32. A sample is one pass through the trace, less than a
//! millisecond, so that most samples are not interrupted; the median and the least of all samples are told. An update is one
//! rule taken out and put back: both classifiers build anew for each of the two.

use std::path::PathBuf;
use std::process::ExitCode;

use benches::classbench::{FiveTuple, Header, read_set, read_trace};
use clap::Parser;
use dpdk::{Acl, AclKey, AclRule, Eal};
use tables::classifier::{Classifier, Key, Rule, Service, Span};
use tables::prefix::Prefix;

#[derive(Parser)]
struct Args {
    /// Folder of the rule sets and their traces.
    #[arg(long)]
    sets: PathBuf,
    /// Rounds; the classifiers take turns in each.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Samples of each classifier in a round.
    #[arg(long, default_value_t = 20)]
    passes: usize,
    /// Samples of updates.
    #[arg(long, default_value_t = 3)]
    updates: usize,
    /// CPU to run on.
    #[arg(long, default_value_t = 1)]
    cpu: usize,
    /// Names of sets.
    #[arg(default_values = ["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k"])]
    names: Vec<String>,
}

const BURST: usize = 32;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("classifier: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let eal = Eal::builder().lcores([args.cpu]).no_pci().no_huge(2048).log_level("error").init();
    let eal = eal.map_err(|error| error.to_string())?;
    println!(
        "| set | classifier | cycles per lookup: median | min | update, ms: median | min | bytes a rule |"
    );
    println!("|---|---|---|---|---|---|---|");
    args.names.iter().try_for_each(|name| measure(args, &eal, name))
}

fn measure(args: &Args, eal: &Eal, name: &str) -> Result<(), String> {
    let rules = read_set(&args.sets.join(name))?;
    let headers = read_trace(&args.sets.join(format!("{name}.trace")))?;
    let headers = &headers[..headers.len() / BURST * BURST];
    let ms = 1e3 / dpdk::tsc_hz(eal) as f64;
    let ours = Ours::build(&rules)?;
    let theirs = Theirs::build(eal, name, &rules)?;
    let (keys, acl_keys): (Vec<_>, Vec<_>) =
        headers.iter().map(|header| (key(header), acl_key(header))).unzip();
    check(headers, &ours.look_up(&keys), "floodway")?;
    check(headers, &theirs.look_up(&acl_keys), "rte_acl")?;
    let lookups = headers.len() as f64;
    let mut cycles = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        cycles[0].extend((0..args.passes).map(|_| ticks(|| ours.pass(&keys)) / lookups));
        cycles[1].extend((0..args.passes).map(|_| ticks(|| theirs.pass(&acl_keys)) / lookups));
    }
    let mut updates = [Vec::new(), Vec::new()];
    for sample in 0..args.updates {
        let mut without = rules.clone();
        without.remove(rules.len() * (sample + 1) / (args.updates + 2));
        let both = [&without, &rules];
        updates[0].push(ticks(|| both.map(|rules| Ours::build(rules).is_ok())) * ms);
        updates[1].push(ticks(|| both.map(|rules| Theirs::build(eal, "update", rules).is_ok())) * ms);
    }
    let bytes = ours.0.memory_bytes() as f64 / rules.len() as f64;
    print(name, "floodway", &mut cycles[0], &mut updates[0], &format!("{bytes:.0}"));
    print(name, "rte_acl", &mut cycles[1], &mut updates[1], "");
    let shape = ours.0.shape();
    eprintln!("{name}: {} rules, {shape:?}", rules.len());
    Ok(())
}

fn print(set: &str, name: &str, cycles: &mut [f64], updates: &mut [f64], bytes: &str) {
    let [(cycle, least_cycle), (update, least_update)] = [cycles, updates].map(|values| {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        (at(values.len() / 2), at(0))
    });
    println!(
        "| {set} | {name} | {cycle:.0} | {least_cycle:.0} | {update:.2} | {least_update:.2} | {bytes} |"
    );
}

struct Ours(Classifier<u32>);

impl Ours {
    fn build(rules: &[FiveTuple]) -> Result<Self, String> {
        let rules: Vec<Rule<u32>> = rules.iter().map(rule).collect();
        Classifier::build(&rules).map(Self).map_err(|error| error.to_string())
    }

    fn look_up(&self, keys: &[Key<u32>]) -> Vec<Option<u32>> {
        let mut found = vec![None; keys.len()];
        self.0.first_of(keys, &mut found);
        found
    }

    fn pass(&self, keys: &[Key<u32>]) {
        let mut found = [None; BURST];
        for keys in keys.chunks_exact(BURST) {
            self.0.first_of(keys, &mut found);
            std::hint::black_box(&found);
        }
    }
}

struct Theirs(Acl);

impl Theirs {
    fn build(eal: &Eal, name: &str, rules: &[FiveTuple]) -> Result<Self, String> {
        let rules: Vec<AclRule> = rules.iter().map(acl_rule).collect();
        Acl::build(eal, name, &rules).map(Self).map_err(|error| format!("rte_acl: {error}"))
    }

    fn look_up(&self, keys: &[AclKey]) -> Vec<Option<u32>> {
        let mut found = vec![0; keys.len()];
        for (keys, found) in keys.chunks(BURST).zip(found.chunks_mut(BURST)) {
            self.0.classify(keys, found);
        }
        found.into_iter().map(|number| number.checked_sub(1)).collect()
    }

    fn pass(&self, keys: &[AclKey]) {
        let mut found = [0; BURST];
        for keys in keys.chunks_exact(BURST) {
            self.0.classify(keys, &mut found);
            std::hint::black_box(&found);
        }
    }
}

/// Both give every header its first match, or there is nothing to compare.
fn check(headers: &[Header], found: &[Option<u32>], name: &str) -> Result<(), String> {
    let wrong = headers.iter().zip(found).filter(|(header, found)| header.expected != **found).count();
    if wrong == 0 { Ok(()) } else { Err(format!("{name} gives {wrong} headers another rule than the trace")) }
}

/// Ticks of the time stamp counter that the work takes.
fn ticks<T>(work: impl FnOnce() -> T) -> f64 {
    let before = dpdk::tsc();
    std::hint::black_box(work());
    (dpdk::tsc() - before) as f64
}

fn rule(rule: &FiveTuple) -> Rule<u32> {
    let service = Service {
        protocol: rule.protocol.0,
        mask: rule.protocol.1,
        src_ports: Span { first: rule.src_ports.0, last: rule.src_ports.1 },
        values: Span { first: rule.dst_ports.0.into(), last: rule.dst_ports.1.into() },
    };
    let pair = (Prefix::new(rule.src.0, rule.src.1), Prefix::new(rule.dst.0, rule.dst.1));
    Rule { pairs: vec![pair], services: vec![service] }
}

fn acl_rule(rule: &FiveTuple) -> AclRule {
    let FiveTuple { src, dst, src_ports, dst_ports, protocol } = *rule;
    AclRule { protocol, src, dst, src_ports, dst_ports }
}

fn key(header: &Header) -> Key<u32> {
    let Header { src, dst, src_port, protocol, .. } = *header;
    Key { src, dst, value: header.dst_port.into(), src_port, protocol }
}

fn acl_key(header: &Header) -> AclKey {
    AclKey {
        protocol: header.protocol,
        zero: [0; 3],
        src: header.src.to_be_bytes(),
        dst: header.dst.to_be_bytes(),
        src_port: header.src_port.to_be_bytes(),
        dst_port: header.dst_port.to_be_bytes(),
    }
}
