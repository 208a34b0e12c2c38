//! What a daemon keeps from one version of the files to the next, at the size of the compile step's aim.

use compile::Compiler;
use policy::{Reader, Source};
use program::Program;

use crate::directory::{self, Size};

/// 1,000 tenants with 100 rules each.
pub const SIZE: Size = Size { tenants: 1000, rules: 100 };
/// Of the files.
pub const SEED: u64 = 1;
/// The tenant that changes; the first file is the Fabric's.
const CHANGING: usize = 500;

/// What a daemon keeps.
#[derive(Debug)]
pub struct Daemon {
    sources: Vec<Source>,
    changes: usize,
    reader: Reader,
    compiler: Compiler,
    running: Option<Program>,
}

impl Daemon {
    /// After its first apply.
    pub fn new(sources: &[Source]) -> Self {
        let (reader, compiler) = Default::default();
        let mut daemon = Self { sources: sources.to_vec(), changes: 0, reader, compiler, running: None };
        assert_eq!(daemon.apply(), SIZE.tenants);
        daemon
    }

    /// Another port in one rule of one tenant.
    pub fn edit(&mut self) {
        self.changes += 1;
        self.sources[1 + CHANGING] = directory::tenant(CHANGING, SIZE.rules, SEED, self.changes);
    }

    /// Says how many tenants were compiled.
    pub fn apply(&mut self) -> usize {
        let parsed = self.reader.parse(&self.sources).expect("the directory is good");
        let compiled = self.compiler.compile(&parsed.policy, self.running.as_ref()).expect("it fits");
        self.running = Some(compiled.program);
        compiled.recompiled
    }
}
