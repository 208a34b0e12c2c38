//! `floodway verify`: proves the statements of files about all packets, and that tenants are apart, without a daemon.

use std::{fmt::Write, path::Path};

use compile::verify::{self, Answer, Broken, Example, Expect, Fact, Isolation, Prover, Question, Undecided};
use policy::{Diagnostics, Parsed, Policy, Source, Statement};
use program::Program;
use serde::Serialize;

use crate::{arguments::Output, check::plural, outcome::Outcome};

/// The answer for programs.
#[derive(Serialize)]
struct Verified {
    /// True when isolation and every statement are proven; vacuous ones count as such.
    proven: bool,
    isolation: IsolationView,
    statements: Vec<StatementView>,
    warnings: Diagnostics,
}

#[derive(Serialize)]
struct IsolationView {
    verdict: Verdict,
    /// What it rests on.
    facts: Vec<&'static str>,
    broken: Vec<BrokenView>,
    /// Broken facts that are not listed.
    omitted: usize,
}

#[derive(Serialize)]
struct BrokenView {
    fact: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<Example>,
}

#[derive(Serialize)]
struct StatementView {
    name: String,
    source: String,
    line: u32,
    column: u32,
    expect: &'static str,
    verdict: Verdict,
    /// Why it is undecided.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Of which it is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<Example>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Proven,
    Vacuous,
    False,
    Undecided,
}

pub(crate) fn run(directory: &Path, statements: Option<&Path>, output: Output) -> Outcome {
    let read = agent::files::read_directory;
    let (sources, more) = match (read(directory), statements.map(read).transpose()) {
        (Ok(sources), Ok(more)) => (sources, more.unwrap_or_default()),
        (Err(error), _) | (_, Err(error)) => return Outcome::files(output, &error),
    };
    let verified = compiled(&sources, &more).map(|(parsed, program)| verified(parsed, &program));
    let all = [sources, more].concat();
    match verified {
        Err(diagnostics) => Outcome::policy(output, diagnostics, &all),
        Ok(verified) => {
            let outcome =
                Outcome::answer(output, &verified, text).with_note(output, &verified.warnings.render(&all));
            if verified.proven { outcome } else { outcome.unproven() }
        }
    }
}

fn compiled(sources: &[Source], statements: &[Source]) -> Result<(Parsed, Program), Diagnostics> {
    let parsed = policy::parse_with_statements(sources, statements)?;
    let compiled = compile::compile(&parsed.policy, None)?;
    Ok((parsed, compiled.program))
}

fn verified(parsed: Parsed, program: &Program) -> Verified {
    let isolation = isolation(verify::isolation(program), program);
    let mut prover = Prover::new(program);
    let questions = verify::questions(&parsed.policy, program);
    let answer = |(statement, question): &(&Statement, Question)| {
        answered(&parsed.policy, program, statement, prover.answer(question))
    };
    let statements: Vec<StatementView> = questions.iter().map(answer).collect();
    let is_good = |verdict| matches!(verdict, Verdict::Proven | Verdict::Vacuous);
    let proven = is_good(isolation.verdict) && statements.iter().all(|statement| is_good(statement.verdict));
    Verified { proven, isolation, statements, warnings: parsed.warnings }
}

fn isolation(found: Isolation, program: &Program) -> IsolationView {
    let verdict = if found.is_proven() { Verdict::Proven } else { Verdict::False };
    let view = |Broken { fact, message, example }: Broken| BrokenView {
        fact: fact.name(),
        message,
        packet: example.map(|example| example.named(program)),
    };
    IsolationView {
        verdict,
        facts: Fact::ALL.map(Fact::name).to_vec(),
        broken: found.broken.into_iter().map(view).collect(),
        omitted: found.omitted,
    }
}

fn answered(policy: &Policy, program: &Program, statement: &Statement, answer: Answer) -> StatementView {
    let place = policy.place(statement.name.at);
    let undecided = |why: &Undecided| why.to_string();
    let (verdict, reason, packet) = match &answer {
        Answer::Proven => (Verdict::Proven, None, None),
        Answer::Vacuous => (Verdict::Vacuous, None, None),
        Answer::False(example) => (Verdict::False, None, Some(example.named(program))),
        Answer::Undecided(why) => (Verdict::Undecided, Some(undecided(why)), None),
    };
    StatementView {
        name: statement.name.to_string(),
        source: place.source.into(),
        line: place.line,
        column: place.column,
        expect: match statement.expect {
            Expect::Allow => "allow",
            Expect::Deny => "deny",
        },
        verdict,
        reason,
        packet,
    }
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Vacuous => "vacuous",
            Self::False => "FALSE",
            Self::Undecided => "UNDECIDED",
        }
    }
}

/// A line for each statement; below it, why it is not proven.
fn text(verified: &Verified) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_isolation(&mut out, &verified.isolation);
    for statement in &verified.statements {
        let _ = write_statement(&mut out, statement);
    }
    let count = |verdict| verified.statements.iter().filter(|one| one.verdict == verdict).count();
    let all = plural(verified.statements.len(), "statement");
    let parts = [Verdict::Proven, Verdict::Vacuous, Verdict::False, Verdict::Undecided]
        .map(|verdict| (count(verdict), verdict.word().to_lowercase()))
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"));
    let parts: Vec<String> = parts.collect();
    let colon = if parts.is_empty() { "" } else { ": " };
    out + &format!("{all}{colon}{}\n", parts.join(", "))
}

fn write_isolation(out: &mut String, isolation: &IsolationView) -> std::fmt::Result {
    let facts = isolation.facts.join(", ");
    writeln!(out, "{:9} tenants are apart ({facts})", isolation.verdict.word())?;
    for BrokenView { fact, message, packet } in &isolation.broken {
        writeln!(out, "{:9}   {fact}: {message}", "")?;
        packet.iter().try_for_each(|packet| write_packet(out, packet))?;
    }
    match isolation.omitted {
        0 => Ok(()),
        omitted => writeln!(out, "{:9}   and {omitted} more", ""),
    }
}

fn write_statement(out: &mut String, statement: &StatementView) -> std::fmt::Result {
    let StatementView { name, source, line, expect, verdict, reason, packet, .. } = statement;
    writeln!(out, "{:9} {name} ({expect}, {source}:{line})", verdict.word())?;
    if *verdict == Verdict::Vacuous {
        writeln!(out, "{:9}   it speaks of no packet", "")?;
    }
    reason.iter().try_for_each(|reason| writeln!(out, "{:9}   {reason}", ""))?;
    packet.iter().try_for_each(|packet| write_packet(out, packet))
}

fn write_packet(out: &mut String, packet: &Example) -> std::fmt::Result {
    writeln!(out, "{:9}   packet: {}", "", packet.packet())?;
    writeln!(out, "{:9}   {}", "", packet.judged)
}
