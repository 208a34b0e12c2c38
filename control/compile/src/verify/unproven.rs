//! What of a policy is not proven, as diagnostics: for whoever applies it.

use policy::{Diagnostic, Diagnostics, Place, Policy, Severity};
use program::Program;

use super::{Answer, Expect, Prover, isolation, questions};

/// One error for each statement that is false or could not be decided, at its place and with a packet that shows it, and
/// one for each thing that keeps tenants from being apart. Empty when all is proven.
pub fn unproven(policy: &Policy, program: &Program) -> Diagnostics {
    let mut found = Diagnostics::default();
    for broken in isolation(program).broken {
        let packet = broken.example.map(|example| example.named(program).packet());
        let message = format!("tenants are not apart ({}): {}", broken.fact.name(), broken.message);
        let error = Diagnostic::new(Severity::Error, Place::NOWHERE, message);
        found.push(
            packet.into_iter().fold(error, |error, packet| error.with_help(format!("packet: {packet}"))),
        );
    }
    let mut prover = Prover::new(program);
    for (statement, question) in questions(policy, program) {
        let expect = match statement.expect {
            Expect::Allow => "allow",
            Expect::Deny => "deny",
        };
        let message = match prover.answer(&question) {
            Answer::Proven | Answer::Vacuous => continue,
            Answer::False(example) => {
                let example = example.named(program);
                let (packet, judged) = (example.packet(), &example.judged);
                format!(
                    "statement {} ({expect}) is false of a packet: {packet}; {judged}",
                    statement.name.value
                )
            }
            Answer::Undecided(why) => {
                format!("statement {} ({expect}) is undecided: {why}", statement.name.value)
            }
        };
        found.push(Diagnostic::new(Severity::Error, policy.place(statement.name.at), message));
    }
    found.sorted()
}
