//! Policy to program: a pure function. The same policy after the same program gives the same program, bit by bit.
//!
//! Ids outlive programs, since flow entries and counters carry them: see [`compile`].
#![forbid(unsafe_code)]

pub mod diff;
pub mod explain;

mod documents;
mod hosts;
mod ids;
mod rules;
mod topology;
mod unreached;
pub mod verify;

pub use unreached::{Unreached, unreached};

use policy::{Diagnostic, Diagnostics, Place, Policy, Severity};
use program::{Generation, Program};

use crate::rules::Rules;

/// A program, and what somebody should look at.
#[derive(Clone, PartialEq, Debug)]
pub struct Compiled {
    /// The program.
    pub program: Program,
    /// Warnings only.
    pub warnings: Diagnostics,
    /// How many tenants' rules were compiled: the others were as a [`Compiler`] had them.
    pub recompiled: usize,
}

/// Compiles one policy after the other, and only those tenants whose documents, or what these name, have changed.
///
/// It keeps the documents and rules of the policy that it was given last, and nothing of those before.
#[derive(Default, Debug)]
pub struct Compiler {
    kept: rules::Kept,
}

/// Compiles a policy to the program that follows `previous`.
///
/// - A tenant keeps the id that its name had in `previous`, a tunnel endpoint the id that its address had. A new one
///   gets the next index that was never used; what is gone leaves a hole, and a name that comes back is new.
/// - A port's id is its place in the Fabric's list. Devices are opened at start, so their list must stay as it is.
/// - The rules of a tenant that are as they were in `previous` are shared with it: see [`program::PlacedSet::set`].
/// - The generation is one above that of `previous`, or 1.
///
/// # Errors
/// The devices differ from those of `previous`, or a bound of [`program::limit`] is exceeded.
pub fn compile(policy: &Policy, previous: Option<&Program>) -> Result<Compiled, Diagnostics> {
    Compiler::default().compile(policy, previous)
}

impl Compiler {
    /// As [`compile`], and with the same result but for [`Compiled::recompiled`].
    ///
    /// # Errors
    /// As [`compile`].
    pub fn compile(&mut self, policy: &Policy, previous: Option<&Program>) -> Result<Compiled, Diagnostics> {
        let nothing = Program::default();
        let previous = previous.unwrap_or(&nothing);
        let mut errors = Diagnostics::default();
        let devices = topology::devices(policy, previous, &mut errors);
        let vteps = ids::vteps(policy, previous, &mut errors);
        let tenants = ids::tenants(policy, previous, &mut errors);
        let rules = Rules::of(policy, &tenants, previous, &mut self.kept, &mut errors);
        if errors.has_errors() {
            return Err(errors.sorted());
        }
        let program = Program {
            generation: Generation(previous.generation.0.wrapping_add(1).max(1)),
            digest: policy.digest,
            devices,
            uplink: Some(topology::uplink(policy)),
            vteps: topology::vteps(policy, &vteps),
            tenants: topology::tenants(policy, &tenants, &vteps),
            ports: topology::ports(policy, &tenants, &rules.of_ports),
            rules: rules.sets,
            sources: policy.files.iter().map(|name| name.to_string()).collect(),
        };
        let warnings = unreached::warnings(policy, &program);
        Ok(Compiled { program, warnings, recompiled: rules.recompiled })
    }
}

fn error(place: Place<'_>, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Severity::Error, place, message)
}
