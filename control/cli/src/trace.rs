//! `floodway trace` and `floodway capture`: packets as the workers saw them, in words, as JSON, or as a capture file.

use std::{fmt::Write, path::Path};

use agent::client::{Client, ClientError};
use program::{TraceOutcome, TraceReport, TraceRequest, TracedFrame, TracedPacket, TracedStep};

use crate::{
    arguments::{At, Output, TraceArguments},
    outcome::Outcome,
    pcapng,
};

/// `floodway trace`.
pub(crate) fn run(client: &Client, wanted: TraceArguments, write: Option<&Path>, output: Output) -> Outcome {
    let report = match collect(client, &wanted.request(None)) {
        Ok(report) => report,
        Err(error) => return refused(output, error),
    };
    if let Some(path) = write
        && let Err(error) = pcapng::write(path, &report.packets, None)
    {
        return Outcome::unwritable_file(output, error);
    }
    let note = note(&report);
    Outcome::answer(output, &report, words).with_note(output, &note)
}

/// `floodway capture`.
pub(crate) fn capture(
    client: &Client,
    wanted: TraceArguments,
    at: At,
    snap: u16,
    write: &Path,
    output: Output,
) -> Outcome {
    let mut request = wanted.request(Some(at));
    request.snap = snap;
    let report = match collect(client, &request) {
        Ok(report) => report,
        Err(error) => return refused(output, error),
    };
    match pcapng::write(write, &report.packets, Some(at)) {
        Ok(frames) => Outcome::good(format!("{frames} frames in {}\n", write.display()))
            .with_note(output, &note(&report)),
        Err(error) => Outcome::unwritable_file(output, error),
    }
}

/// Waits until the trace has ended. When the daemon goes meanwhile, what came is not shown.
fn collect(client: &Client, request: &TraceRequest) -> Result<TraceReport, ClientError> {
    let trace = client.begin_trace(request)?.trace;
    let mut all = TraceReport::default();
    while !all.ended {
        let TraceReport { packets, untraced, ended } = client.traced(trace)?;
        all.packets.extend(packets);
        (all.untraced, all.ended) = (untraced, ended);
    }
    Ok(all)
}

fn refused(output: Output, error: ClientError) -> Outcome {
    match error {
        // The daemon does not know what is asked for.
        ClientError::Refused { status: 400, error } => Outcome::usage(output, error),
        error => Outcome::daemon(output, error, &[]),
    }
}

fn note(report: &TraceReport) -> String {
    match report.untraced {
        0 => String::new(),
        count => {
            format!("floodway: {count} packets were forwarded without a look, as the trace's room was full\n")
        }
    }
}

impl TraceArguments {
    fn request(self, at: Option<At>) -> TraceRequest {
        let Self { tenant, from, to, port, protocol, qp, drops, reason, count, timeout } = self;
        let outcome = match at {
            Some(At::Sent) => TraceOutcome::Sent,
            Some(At::Dropped) => TraceOutcome::Dropped,
            Some(At::Received) | None if drops => TraceOutcome::Dropped,
            Some(At::Received) | None => TraceOutcome::Any,
        };
        TraceRequest {
            tenant,
            from,
            to,
            port,
            protocol,
            qp,
            outcome,
            reason,
            count,
            timeout_ms: timeout.saturating_mul(1000),
            by: format!("process {}", std::process::id()),
            ..TraceRequest::default()
        }
    }
}

fn words(report: &TraceReport) -> String {
    if report.packets.is_empty() {
        return "no packet came\n".into();
    }
    report.packets.iter().enumerate().map(|(index, packet)| paragraph(index + 1, packet)).collect()
}

/// One packet: a line for each stage.
fn paragraph(number: usize, packet: &TracedPacket) -> String {
    let mut text = format!(
        "packet {number}  {}  worker {}  generation {}\n",
        time(packet.at_unix_ns),
        packet.worker,
        packet.generation
    );
    for (stage, what) in stages(packet) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {stage:<11} {what}");
    }
    text + "\n"
}

/// What each stage made of a packet, in order.
pub(crate) fn stages(packet: &TracedPacket) -> Vec<(&'static str, String)> {
    let received = format!("{}, {} bytes", packet.port, packet.received.length);
    let tenant = if packet.tenant.is_empty() { "no tenant" } else { &packet.tenant };
    let flow = packet.flow.as_ref().map_or_else(String::new, |flow| {
        format!(", from {}: {} > {} {}", flow.from, flow.src, flow.dst, flow.service)
    });
    let mut stages =
        vec![("received", received), ("classified", format!("{}, {tenant}{flow}", packet.class))];
    stages.extend(packet.lookup.as_ref().map(|lookup| {
        let found = if lookup.hit { "hit" } else { "miss" };
        let entry = lookup.entry.as_ref().map_or_else(String::new, |entry| {
            let reply = if entry.reply { ", reply" } else { "" };
            let stage = if entry.stage.is_empty() { String::new() } else { format!(", {}", entry.stage) };
            format!(", slot {} of generation {}{reply}{stage}", entry.slot, entry.generation)
        });
        ("flow", format!("{found}{entry}"))
    }));
    stages.extend(packet.decision.as_ref().map(|decision| {
        let rule = if decision.rule.is_empty() { String::new() } else { format!(" by {}", decision.rule) };
        ("decided", format!("{}{rule}", decision.verdict))
    }));
    stages.extend(packet.steps.iter().map(step));
    if packet.steps_omitted > 0 {
        stages.push(("omitted", format!("{} steps more", packet.steps_omitted)));
    }
    stages
}

fn step(step: &TracedStep) -> (&'static str, String) {
    match step {
        TracedStep::Dropped { reason, meaning, account } => {
            ("dropped", format!("{reason}, counted at {account}: {meaning}"))
        }
        TracedStep::Originated { port } => ("originated", format!("an answer for {port}")),
        TracedStep::Sent { port, tunnel, frame } => {
            let length = frame.as_ref().map_or_else(String::new, |frame| format!(", {} bytes", frame.length));
            let tunnel = if tunnel.is_empty() { String::new() } else { format!(", tunnel to {tunnel}") };
            ("sent", format!("{port}{length}{tunnel}"))
        }
        TracedStep::HandedOver { worker, port } => ("handed over", format!("to worker {worker}, for {port}")),
        TracedStep::Held => ("held", "until the first fragment comes".into()),
    }
}

/// The time of day in UTC, to the nanosecond.
fn time(unix_ns: u64) -> String {
    let (second, ns) = (unix_ns / 1_000_000_000 % 86_400, unix_ns % 1_000_000_000);
    format!("{:02}:{:02}:{:02}.{ns:09}", second / 3600, second / 60 % 60, second % 60)
}

/// The bytes of a frame; `None` when they are no hexadecimal digits, which no daemon sends.
pub(crate) fn bytes(frame: &TracedFrame) -> Option<Vec<u8>> {
    let digits = frame.bytes.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}
