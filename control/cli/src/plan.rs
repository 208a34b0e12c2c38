//! `floodway plan`: what files would change, against the running program or another directory.

use std::{fmt::Write, path::Path};

use agent::{api::CheckRequest, client::Client};
use compile::diff::{Capacity, Change, Class, Move, PEERS_SHOWN_MAX, Part, Plan};

use crate::{
    apply::texts,
    arguments::Output,
    check::plural,
    outcome::Outcome,
    table::{number, render, text},
};

pub(crate) fn run(client: &Client, directory: &Path, against: Option<&Path>, output: Output) -> Outcome {
    let sources = match agent::files::read_directory(directory) {
        Ok(sources) => sources,
        Err(error) => return Outcome::files(output, &error),
    };
    let plan = match (against, texts(&sources)) {
        // The parser says where they are no UTF-8.
        (Some(_), _) | (_, None) => match against.map_or(Ok(None), compile_directory_of(output)) {
            Ok(old) => match agent::compile_sources(&sources, old.as_ref()) {
                Ok(compiled) => {
                    let mut plan = compile::diff::diff(&old.unwrap_or_default(), &compiled.program);
                    (plan.recompiled, plan.warnings) = (compiled.recompiled, compiled.warnings);
                    plan
                }
                Err(diagnostics) => return Outcome::policy(output, diagnostics, &sources),
            },
            Err(outcome) => return outcome,
        },
        (None, Some(sources_as_text)) => match client.plan(&CheckRequest { sources: sources_as_text }) {
            Ok(plan) => plan,
            Err(error) => return Outcome::daemon(output, error, &sources),
        },
    };
    let is_changed = plan.changed;
    let outcome = Outcome::answer(output, &plan, words).with_note(output, &plan.warnings.render(&sources));
    if is_changed { outcome.with_changes() } else { outcome }
}

/// The program of the other directory.
fn compile_directory_of(output: Output) -> impl FnOnce(&Path) -> Result<Option<program::Program>, Outcome> {
    move |directory| {
        let sources =
            agent::files::read_directory(directory).map_err(|error| Outcome::files(output, &error))?;
        match agent::compile_sources(&sources, None) {
            Ok(compiled) => Ok(Some(compiled.program)),
            Err(diagnostics) => Err(Outcome::policy(output, diagnostics, &sources)),
        }
    }
}

fn words(plan: &Plan) -> String {
    if !plan.changed {
        return "no change\n".into();
    }
    let mut out = String::new();
    if !plan.fabric.is_empty() {
        out.push_str("fabric\n");
        out.extend(plan.fabric.iter().map(part));
    }
    for tenant in &plan.tenants {
        // A String takes all that is written.
        let _ = writeln!(out, "{} tenant {}", sign(tenant.change), tenant.tenant);
        out.extend(tenant.parts.iter().map(part));
        out.push_str(&used(&tenant.capacity));
    }
    out.push('\n');
    out.push_str(&capacity(plan));
    out.push_str(&moves(plan));
    out.push_str(&classes(plan));
    out.push_str(&flows(plan));
    out
}

fn part(part: &Part) -> String {
    let Part { change, kind, name, before, after } = part;
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    let value = match (before.is_empty(), after.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!(": {before}"),
        (true, false) => format!(": {after}"),
        (false, false) => format!(": {before} -> {after}"),
    };
    format!("  {} {kind}{name}{value}\n", sign(*change))
}

const fn sign(change: Change) -> &'static str {
    match change {
        Change::Added => "+",
        Change::Removed => "-",
        Change::Changed => "~",
    }
}

fn capacity(plan: &Plan) -> String {
    let columns = [text("TABLE"), number("BEFORE"), number("AFTER"), number("BOUND")];
    let row =
        |row: &Capacity| vec![row.table.clone(), row.before.to_string(), row.after.to_string(), bound(row)];
    render(&columns, plan.capacity.iter().map(row))
}

fn bound(row: &Capacity) -> String {
    row.bound.map_or_else(|| "-".into(), |bound| bound.to_string())
}

/// What a tenant takes, on one line: `  = rules 2 -> 3 of 1048576, hosts 2`.
fn used(capacity: &[Capacity]) -> String {
    let one = |row: &Capacity| {
        let Capacity { table, before, after, bound } = row;
        let change = if before == after { String::new() } else { format!("{before} -> ") };
        let bound = bound.map_or(String::new(), |bound| format!(" of {bound}"));
        format!("{table} {change}{after}{bound}")
    };
    let all: Vec<String> = capacity.iter().map(one).collect();
    if all.is_empty() { String::new() } else { format!("  = {}\n", all.join(", ")) }
}

fn moves(plan: &Plan) -> String {
    let list = &plan.moves.list;
    if list.is_empty() && !plan.moves.is_cut {
        return String::new();
    }
    let cut = if plan.moves.is_cut { " at least: the comparison was cut" } else { "" };
    let count = match list.len() {
        1 => "1 group of addresses".into(),
        count => format!("{count} groups of addresses"),
    };
    let head = format!("\npackets to {} would go elsewhere{cut}\n", count);
    let columns = [text("TENANT"), text("BEFORE"), text("AFTER"), text("ADDRESSES")];
    let row =
        |one: &Move| vec![one.tenant.clone(), one.before.clone(), one.after.clone(), short(&one.addresses)];
    head + &render(&columns, list.iter().map(row))
}

fn classes(plan: &Plan) -> String {
    let list = &plan.classes.list;
    let cut = if plan.classes.is_cut { " at least: the comparison was cut" } else { "" };
    let head = match list.len() {
        0 if cut.is_empty() => return "\nno packet would be judged otherwise by rules\n".into(),
        1 => format!("\n1 class of packets would be judged otherwise by rules{cut}\n"),
        count => format!("\n{count} classes of packets would be judged otherwise by rules{cut}\n"),
    };
    let columns = [
        text("TENANT"),
        text("PORT"),
        text("SIDE"),
        text("BEFORE"),
        text("AFTER"),
        text("SERVICES"),
        text("PEERS"),
        text("EXAMPLE"),
    ];
    head + &render(&columns, list.iter().map(class))
}

fn class(class: &Class) -> Vec<String> {
    let example = &class.example;
    let ends = match (&example.before, &example.after) {
        (None, None) => " (no host)".into(),
        (before, after) => {
            let word = |end: &Option<String>| end.clone().unwrap_or_else(|| "-".into());
            format!(" ({} -> {})", word(before), word(after))
        }
    };
    vec![
        class.tenant.clone(),
        class.port.clone(),
        class.side.name().into(),
        class.before.clone(),
        class.after.clone(),
        short(&class.services),
        short(&class.peers),
        format!("{} {}{ends}", example.peer, example.service),
    ]
}

fn short<T: ToString>(elements: &[T]) -> String {
    let shown: Vec<String> = elements.iter().take(PEERS_SHOWN_MAX).map(ToString::to_string).collect();
    match elements.len().saturating_sub(PEERS_SHOWN_MAX) {
        0 => shown.join(","),
        more => format!("{} and {more} more", shown.join(",")),
    }
}

fn flows(plan: &Plan) -> String {
    let flows = &plan.flows;
    let all = if flows.is_cut { "at least " } else { "" };
    let mut out = format!(
        "\n{all}{} of {} would be judged otherwise\n",
        flows.changed,
        plural(flows.judged, "open flow")
    );
    if flows.unjudged > 0 {
        let _ = writeln!(out, "{} more cannot be judged", flows.unjudged);
    }
    if flows.list.is_empty() {
        return out;
    }
    let columns = [
        text("TENANT"),
        text("FROM"),
        text("SRC"),
        text("DST"),
        text("SERVICE"),
        text("BEFORE"),
        text("AFTER"),
        number("PACKETS"),
    ];
    let row = |flow: &compile::diff::FlowChange| {
        vec![
            flow.tenant.clone(),
            flow.from.clone(),
            flow.src.to_string(),
            flow.dst.to_string(),
            flow.service.clone(),
            flow.before.clone(),
            flow.after.clone(),
            flow.packets.to_string(),
        ]
    };
    out + &render(&columns, flows.list.iter().map(row))
}
