//! The demo: one list of expectations, checked in one of two worlds.
//!
//! - [`namespaces`]: floodwayd over DPDK as it is shipped; the tenants, their remote hosts and the fabric are the kernel's,
//!   in network namespaces.
//! - [`memory`]: the same pipeline and policy on memory ports, in virtual time, with smoltcp's hosts. It needs neither
//!   root nor DPDK.

mod checks;
mod counts;
pub mod memory;
pub mod namespaces;
mod policy_edits;
mod roce;
mod swap;
mod table;
pub mod world;

use std::path::{Path, PathBuf};

use self::{
    checks::{CHECKS, Seen},
    roce::Replay,
    swap::Swap,
    table::Row,
    world::World,
};

/// Where a demo finds what it shows.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The policy directory.
    pub policy: PathBuf,
    /// Folder of the built programs.
    pub programs: PathBuf,
    /// Folder for what it writes.
    pub scratch: PathBuf,
}

impl Paths {
    /// Those of this checkout: the policy, and programs beside the running one. Names are relative where they can be, for
    /// diagnostics repeat them.
    pub fn new(scratch: &Path) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let policy = Path::new("deploy/policies/demo");
        let policy = if policy.is_dir() { policy.into() } else { root.join(policy) };
        let program = std::env::current_exe().unwrap_or_default();
        let folder = program.parent().unwrap_or(Path::new("")).to_path_buf();
        // A test's program stands one folder below.
        let programs = if folder.ends_with("deps") { folder.join("..") } else { folder };
        Self { policy, programs, scratch: scratch.into() }
    }

    /// A built program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }
}

/// A demo under way: the world, and what one check leaves for the next.
struct Demo<'w> {
    world: &'w mut dyn World,
    paths: Paths,
    roce: Option<Replay>,
    swap: Option<Swap>,
}

/// Checks every expectation, says so as it goes, and prints the table; true when all that was seen is as expected.
pub fn run(world: &mut dyn World, paths: &Paths) -> bool {
    println!("\n{}\n", world.describe());
    let mut demo = Demo { world, paths: paths.clone(), roce: None, swap: None };
    let mut rows = Vec::new();
    for (number, check) in CHECKS.iter().enumerate() {
        if demo.world.interrupted() {
            println!("\ninterrupted: cleaning up");
            return false;
        }
        println!("[{:2}/{}] {}", number + 1, CHECKS.len(), check.expectation);
        let seen = (check.run)(&mut demo).unwrap_or_else(|error| Seen { text: error, as_expected: false });
        println!("        {} {}", if seen.as_expected { "ok:" } else { "DIFFERS:" }, seen.text);
        rows.push(Row { expectation: check.expectation, seen });
    }
    println!("\n{}", table::render(&rows));
    rows.iter().all(|row| row.seen.as_expected)
}
