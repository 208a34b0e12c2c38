//! `floodway verify`: proves the statements of files about all packets, and that tenants are apart, without a daemon.

use std::{fmt::Write, path::Path};

use compile::verify::{
    self, Answer, Broken, CounterExample, Expect, Fact, Isolation, Prover, Question, Undecided,
};
use policy::{Diagnostics, Parsed, Policy, Source, Statement};
use program::{Allowed, Flow, Ingress, Place, Program, Refused, Service};
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
    packet: Option<Packet>,
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
    packet: Option<Packet>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Proven,
    Vacuous,
    False,
    Undecided,
}

/// A counter-example.
#[derive(Serialize)]
struct Packet {
    tenant: String,
    /// `port:red0`, or `vtep:fabric` for a packet out of a tunnel.
    ingress: String,
    src: String,
    dst: String,
    service: String,
    judged: Judged,
}

#[derive(Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
enum Judged {
    Accept {
        egress: String,
        /// `file:line`.
        rule: Option<String>,
    },
    Deny {
        /// Name of the drop reason.
        reason: &'static str,
        rule: Option<String>,
    },
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
        packet: example.map(|example| packet(program, &example)),
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
        Answer::False(example) => (Verdict::False, None, Some(packet(program, example))),
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

fn packet(program: &Program, CounterExample { flow, judged }: &CounterExample) -> Packet {
    let origin = |rule: &Option<_>| rule.map(|rule| program.origin(rule));
    Packet {
        tenant: program.tenant(flow.tenant).map_or("?", |tenant| &tenant.name).into(),
        ingress: place(
            program,
            match flow.ingress {
                Ingress::Port(port) => Place::Port(port),
                Ingress::Vtep(vtep) => Place::Vtep(vtep),
            },
        ),
        src: flow.src.to_string(),
        dst: flow.dst.to_string(),
        service: service(flow),
        judged: match judged {
            Ok(Allowed { place: exit, rule, .. }) => {
                Judged::Accept { egress: place(program, *exit), rule: origin(rule) }
            }
            Err(Refused { reason, rule }) => Judged::Deny { reason: reason.name(), rule: origin(rule) },
        },
    }
}

fn place(program: &Program, place: Place) -> String {
    match place {
        Place::Port(port) => format!("port:{}", program.port_name(port)),
        Place::Vtep(vtep) => format!("vtep:{}", program.vtep(vtep).map_or("?", |vtep| &vtep.name)),
    }
}

fn service(flow: &Flow) -> String {
    let from = flow.src_port;
    match flow.service {
        Service::Tcp(port) => format!("tcp {from} -> {port}"),
        Service::Udp(port) => format!("udp {from} -> {port}"),
        Service::Sctp(port) => format!("sctp {from} -> {port}"),
        Service::Icmp(kind, code) => format!("icmp type {kind} code {code}"),
        Service::Icmpv6(kind, code) => format!("icmpv6 type {kind} code {code}"),
        Service::Roce(qp) => format!("rocev2 qp {qp:#x}"),
        // Of these protocols the data plane knows more, unless it sees a later fragment.
        Service::Opaque(protocol @ (1 | 6 | 17 | 58 | 132)) => {
            format!("later fragment of protocol {protocol}")
        }
        Service::Opaque(protocol) => format!("protocol {protocol}"),
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

fn write_packet(out: &mut String, packet: &Packet) -> std::fmt::Result {
    let Packet { tenant, ingress, src, dst, service, judged } = packet;
    writeln!(out, "{:9}   packet: tenant {tenant}, {ingress}, {src} -> {dst}, {service}", "")?;
    let by = |rule: &Option<String>| rule.as_ref().map_or(String::new(), |rule| format!(" by {rule}"));
    match judged {
        Judged::Accept { egress, rule } => writeln!(out, "{:9}   accepted{} to {egress}", "", by(rule)),
        Judged::Deny { reason, rule } => writeln!(out, "{:9}   denied{}: {reason}", "", by(rule)),
    }
}
