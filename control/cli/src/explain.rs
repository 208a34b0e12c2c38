//! `floodway explain`: why a packet gets its verdict, from the running program or from a directory.

use std::{fmt::Write, path::Path};

use agent::client::{Client, ClientError};
use compile::explain::{Explanation, Outcome as Verdict, Question, RuleList, Way};

use crate::{
    arguments::{Output, PacketArguments},
    capture,
    outcome::Outcome,
    table::{render, text},
};

pub(crate) fn run(
    client: &Client,
    packet: PacketArguments,
    policy: Option<&Path>,
    output: Output,
) -> Outcome {
    let question = match question(packet) {
        Ok(question) => question,
        Err(error) => return Outcome::usage(output, error),
    };
    match policy {
        None => match client.explain(&question) {
            Ok(explanation) => Outcome::answer(output, &explanation, words),
            // The daemon does not know what is asked about.
            Err(ClientError::Refused { status: 400, error }) => Outcome::usage(output, error),
            Err(error) => Outcome::daemon(output, error, &[]),
        },
        Some(directory) => {
            let sources = match agent::files::read_directory(directory) {
                Ok(sources) => sources,
                Err(error) => return Outcome::files(output, &error),
            };
            let compiled = match agent::compile_sources(&sources, None) {
                Ok(compiled) => compiled,
                Err(diagnostics) => return Outcome::policy(output, diagnostics, &sources),
            };
            match question.answer(&compiled.program) {
                Ok(explanation) => Outcome::answer(output, &explanation, words),
                Err(error) => Outcome::usage(output, error.to_string()),
            }
        }
    }
}

fn question(packet: PacketArguments) -> Result<Question, String> {
    let PacketArguments { from, tenant, src, dst, protocol, sport, dport, kind, code, qp, pcap, frame } =
        packet;
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let frame = pcap.map(|path| capture::frame(&path, frame.unwrap_or(1))).transpose()?.map(hex);
    Ok(Question {
        from,
        tenant,
        src,
        dst,
        protocol,
        src_port: sport,
        dst_port: dport,
        kind,
        code,
        queue_pair: qp,
        frame,
    })
}

fn words(explanation: &Explanation) -> String {
    let mut out = format!("{}\n", verdict(explanation));
    let mut line = |name: &str, value: String| {
        // A String takes all that is written.
        let _ = writeln!(out, "{name:9}{value}");
    };
    if let (Some(tenant), Some(vni)) = (&explanation.tenant, explanation.vni) {
        line("tenant", format!("{tenant} (VNI {vni})"));
    }
    line("from", explanation.from.clone());
    if let Some(headers) = &explanation.headers {
        let fragment = if headers.is_fragment { ", a fragment" } else { "" };
        line("packet", format!("{} > {}, {}{fragment}", headers.src, headers.dst, headers.service));
    }
    if let Some(way) = &explanation.way {
        line("to", self::way(way));
        if !way.hops.is_empty() {
            let hops: Vec<String> =
                way.hops.iter().map(|hop| format!("{} (MAC {})", hop.to, hop.dst_mac)).collect();
            line(
                "hops",
                format!("{}: chosen by the flow's hash; an open flow keeps its hop", hops.join(", ")),
            );
        }
        line("mtu", format!("{} bytes", way.mtu_bytes));
    }
    if let Some(replies) = &explanation.replies {
        line(
            "replies",
            format!("{}: {}", if replies.by_state { "by state" } else { "by rules" }, replies.why),
        );
    }
    if explanation.passes_as_answer {
        line("state", "passes as an answer while the far side has the flow open".into());
    }
    if explanation.needs_queue_pair {
        line(
            "pair",
            "its queue pair must be a known one: the tenant denies unknown ones (roce.unknownQp)".into(),
        );
    }
    if let Some(live) = &explanation.live {
        let passes = if live.passes { "passes" } else { "does not pass" };
        line("now", format!("{passes}: {}", live.why));
        live.flows.iter().for_each(|flow| line("", entry(flow)));
    }
    if let Some(quoted) = &explanation.quoted {
        let headers = quoted.headers.as_ref();
        let packet = headers.map_or(String::new(), |quoted| {
            let from = quoted_from(explanation);
            format!("{} > {}, {}{from}: ", quoted.src, quoted.dst, quoted.service)
        });
        line("quotes", format!("{packet}{}", quoted.why));
        quoted.lists.iter().for_each(|list| out.push_str(&rules(list)));
    }
    explanation.lists.iter().for_each(|list| out.push_str(&rules(list)));
    out
}

fn quoted_from(explanation: &Explanation) -> String {
    let from = explanation.quoted.as_ref().and_then(|quoted| quoted.from.as_ref());
    from.map_or(String::new(), |from| format!(" from {from}"))
}

/// An entry of the flow table.
fn entry(flow: &program::FlowRecord) -> String {
    let program::FlowRecord { from, src, dst, service, verdict, packets, .. } = flow;
    format!("{from}: {src} > {dst}, {service}: {verdict}, {packets} packets")
}

fn verdict(explanation: &Explanation) -> String {
    let rule = explanation.rule.as_ref().map_or(String::new(), |rule| format!(" by {rule}"));
    match (explanation.verdict, &explanation.reason) {
        (Verdict::Dropped, Some(reason)) => format!("dropped: {}{rule}. {}", reason.name, reason.meaning),
        (Verdict::Dropped, None) => "dropped".into(),
        (Verdict::Forwarded, _) => format!("forwarded{rule}"),
        (Verdict::Answered, _) => "answered: the gateway, which is floodway, replies".into(),
        (Verdict::ByState, reason) => {
            let dropped = reason.as_ref().map_or(String::new(), |reason| {
                format!("; even then it is dropped: {}. {}", reason.name, reason.meaning)
            });
            format!(
                "by state: an ICMP error passes when the flow that it quotes is open, else unrelated-icmp-error{dropped}"
            )
        }
        (Verdict::Follows, _) => {
            "follows: a later fragment gets the verdict of its first, and waits 2 s for it, else fragment-timeout".into()
        }
        (Verdict::Neighbour, _) => "neighbour: floodway takes it in, and answers itself what asks".into(),
        (Verdict::Local, _) => "local: it is for this box itself, and no tunnel".into(),
    }
}

fn way(way: &Way) -> String {
    match &way.tunnel {
        None => format!("{} (MAC {})", way.to, way.dst_mac),
        Some(tunnel) => {
            let mac = tunnel.next_hop_mac.as_ref().map_or(String::new(), |mac| format!(" ({mac})"));
            format!(
                "{} (MAC {}): VXLAN {} > {} port {}, VNI {}, out of {} via {}{mac}",
                way.to,
                way.dst_mac,
                tunnel.src,
                tunnel.dst,
                tunnel.dst_port,
                tunnel.vni,
                tunnel.uplink,
                tunnel.next_hop
            )
        }
    }
}

fn rules(list: &RuleList) -> String {
    let end = match (list.is_default, list.accepts) {
        (true, _) => "no rule matches: denied",
        (false, true) => "accepted",
        (false, false) => "denied",
    };
    let head = format!("\n{} rules of {}, about {}: {end}\n", list.side.name(), list.port, list.peer);
    let omitted = match list.omitted {
        0 => String::new(),
        count => format!("({count} rules before these do not match either)\n"),
    };
    if list.rules.is_empty() {
        return head;
    }
    let columns = [text("RULE"), text("VERDICT"), text("MATCHES"), text("WHY")];
    let row = |rule: &compile::explain::RuleSeen| {
        let matches = if rule.matches { "yes" } else { "no" };
        vec![rule.origin.clone(), rule.verdict.clone(), matches.into(), rule.why.clone()]
    };
    head + &omitted + &render(&columns, list.rules.iter().map(row))
}
