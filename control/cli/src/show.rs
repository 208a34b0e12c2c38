//! `floodway show`: each answer of the daemon as a table.

use agent::{
    api::{self, Drop, DropPlace, Flows, ProgramSummary, QueuePairs, Rules},
    client::{Client, ClientError},
};
use program::{
    DropCount, FlowRecord, NeighbourReport, PortReport, QueuePairRecord, QueuePairSide, Report, TenantReport,
    WorkerReport,
};
use serde::Serialize;

use crate::{
    arguments::{Output, What},
    check::{plural, summary},
    lifecycle::standing,
    outcome::Outcome,
    table::{list, number, render, text},
};

pub(crate) fn run(client: &Client, what: What, output: Output) -> Outcome {
    shown(client, what, output).unwrap_or_else(|error| Outcome::daemon(output, error, &[]))
}

fn shown(client: &Client, what: What, output: Output) -> Result<Outcome, ClientError> {
    Ok(match what {
        What::Status => {
            let (program, report) = (client.program()?, client.report()?);
            let status = Status { program, policy: client.status()?, report };
            Outcome::answer(output, &status, self::status)
        }
        What::Tenants => Outcome::answer(output, &client.tenants()?, |t| tenants(t)),
        What::Ports => Outcome::answer(output, &client.ports()?, |p| ports(p)),
        What::Drops { all } => {
            let mut drops = client.drops()?;
            drops.retain(|drop| all || drop.packets > 0);
            Outcome::answer(output, &drops, |d| self::drops(d))
        }
        What::Flows { limit } => {
            let answer = client.flows(limit)?;
            Outcome::answer(output, &answer, flows).with_note(output, &cut(answer.truncated, limit))
        }
        What::Qps { limit } => {
            let answer = client.queue_pairs(limit)?;
            Outcome::answer(output, &answer, qps).with_note(output, &cut(answer.truncated, limit))
        }
        What::Rules { limit } => {
            let answer = client.rules(limit)?;
            Outcome::answer(output, &answer, rules).with_note(output, &cut(answer.truncated, limit))
        }
        What::Neighbours => Outcome::answer(output, &client.neighbours()?, |n| neighbours(n)),
        What::Workers => Outcome::answer(output, &client.report()?.workers, |w| workers(w)),
        What::Metrics => Outcome::answer(output, &client.metrics()?, String::clone),
    })
}

fn cut(truncated: bool, limit: usize) -> String {
    if truncated { format!("floodway: there are more than {limit}; see --limit\n") } else { String::new() }
}

/// The answer of `show status` for programs.
#[derive(Serialize)]
struct Status {
    program: ProgramSummary,
    /// What `GET /v1/status` says.
    policy: api::Status,
    report: Report,
}

fn status(status: &Status) -> String {
    let Status { program, policy, report } = status;
    let behind = report.workers.iter().filter(|worker| worker.generation != report.generation).count();
    let workers = match behind {
        0 => format!("{}, all on generation {}", plural(report.workers.len(), "worker"), report.generation),
        _ => format!(
            "{}, {behind} not on generation {}",
            plural(report.workers.len(), "worker"),
            report.generation
        ),
    };
    let total = |count: fn(&WorkerReport) -> u64| report.workers.iter().map(count).sum::<u64>();
    let scanned = report.workers.iter().map(|worker| worker.scanned_lists).max().unwrap_or(0);
    let program_line = match program.generation {
        0 => "the empty program, which drops everything".into(),
        generation => format!("generation {generation}, digest {}", program.digest),
    };
    let mut lines = vec![("program", program_line)];
    lines.extend(standing(policy));
    lines.extend([
        ("content", summary(program.counts)),
        ("uplink", program.uplink.clone().unwrap_or_default()),
        ("workers", workers),
        ("flows", format!("{} of {}", total(|w| w.flows), total(|w| w.flow_capacity))),
        ("hits", total(|w| w.hits).to_string()),
        ("misses", total(|w| w.misses).to_string()),
        ("uncached", total(|w| w.uncached).to_string()),
        // In rings between workers and waiting in one. The figures of the workers are not of one moment.
        (
            "held",
            (total(|w| w.held) + total(|w| w.handed_over))
                .saturating_sub(total(|w| w.taken_over))
                .to_string(),
        ),
        ("scanned", plural(scanned as usize, "rule list")),
        ("qps", format!("{} of {}", total(|w| w.queue_pairs), total(|w| w.queue_pair_capacity))),
        ("untracked", total(|w| w.untracked).to_string()),
    ]);
    let line = |(name, value): &(&str, String)| {
        format!("{name:10}{}\n", if value.is_empty() { "-" } else { value.as_str() })
    };
    lines.iter().map(line).collect()
}

fn tenants(tenants: &[TenantReport]) -> String {
    let columns = [
        text("TENANT"),
        number("VNI"),
        number("PORTS-RX"),
        number("PORTS-TX"),
        number("FABRIC-RX"),
        number("FABRIC-TX"),
        number("DROPS"),
        number("LOGGED"),
        number("UNLOGGED"),
        number("FLOWS"),
        number("GAVE-WAY"),
        number("REFUSED"),
        number("QPS"),
    ];
    let row = |tenant: &TenantReport| {
        vec![
            tenant.name.clone(),
            tenant.vni.to_string(),
            tenant.ports.rx_packets.to_string(),
            tenant.ports.tx_packets.to_string(),
            tenant.fabric.rx_packets.to_string(),
            tenant.fabric.tx_packets.to_string(),
            dropped(&tenant.drops),
            tenant.log.written.to_string(),
            (tenant.log.suppressed + tenant.log.lost).to_string(),
            tenant.room.flows.to_string(),
            (tenant.room.evicted + tenant.room.displaced).to_string(),
            tenant.room.refused.to_string(),
            tenant.room.queue_pairs.to_string(),
        ]
    };
    render(&columns, tenants.iter().map(row))
}

fn ports(ports: &[PortReport]) -> String {
    let columns = [
        text("PORT"),
        text("TENANT"),
        text("DEVICE"),
        number("RX-PACKETS"),
        number("RX-BYTES"),
        number("TX-PACKETS"),
        number("TX-BYTES"),
        number("ORIGINATED"),
        number("DROPS"),
    ];
    let row = |port: &PortReport| {
        vec![
            port.name.clone(),
            port.tenant.clone(),
            port.device.clone(),
            port.traffic.rx_packets.to_string(),
            port.traffic.rx_bytes.to_string(),
            port.traffic.tx_packets.to_string(),
            port.traffic.tx_bytes.to_string(),
            port.originated.to_string(),
            dropped(&port.drops),
        ]
    };
    render(&columns, ports.iter().map(row))
}

fn dropped(drops: &[DropCount]) -> String {
    drops.iter().map(|drop| drop.packets).sum::<u64>().to_string()
}

fn drops(drops: &[Drop]) -> String {
    let columns = [text("REASON"), number("PACKETS"), text("WHERE"), text("MEANING")];
    let row = |drop: &Drop| {
        let place = |kind: &str, at: &DropPlace| format!("{kind}:{}={}", at.name, at.packets);
        let ports = drop.ports.iter().map(|at| place("port", at));
        let places: Vec<_> = ports.chain(drop.tenants.iter().map(|at| place("tenant", at))).collect();
        vec![drop.reason.clone(), drop.packets.to_string(), list(&places), drop.meaning.clone()]
    };
    render(&columns, drops.iter().map(row))
}

fn flows(answer: &Flows) -> String {
    let columns = [
        text("TENANT"),
        text("FROM"),
        text("TO"),
        text("SRC"),
        text("DST"),
        text("SERVICE"),
        text("VERDICT"),
        text("STAGE"),
        text("RULE"),
        number("PACKETS"),
        number("BYTES"),
    ];
    let row = |flow: &FlowRecord| {
        vec![
            flow.tenant.clone(),
            flow.from.clone(),
            flow.to.clone(),
            flow.src.to_string(),
            flow.dst.to_string(),
            flow.service.clone(),
            flow.verdict.clone(),
            flow.stage.clone(),
            flow.rule.clone(),
            flow.packets.to_string(),
            flow.bytes.to_string(),
        ]
    };
    render(&columns, answer.flows.iter().map(row))
}

fn qps(answer: &QueuePairs) -> String {
    let columns = [
        text("TENANT"),
        text("TYPE"),
        text("STATE"),
        text("SRC"),
        text("SRC-QP"),
        text("DST"),
        text("DST-QP"),
        number("PACKETS"),
        number("BYTES"),
        number("PSN"),
        number("GAPS"),
        number("RETRIES"),
        number("NAKS"),
        number("RNR"),
        number("CNPS"),
        number("ORDER"),
    ];
    let qp = |side: &QueuePairSide| side.qp.map_or_else(|| "-".into(), |qp| format!("{qp:#x}"));
    // One line for what each side sends.
    let row = |pair: &QueuePairRecord, from: &QueuePairSide, to: &QueuePairSide| {
        vec![
            pair.tenant.clone(),
            pair.service.clone(),
            pair.state.clone(),
            from.address.to_string(),
            qp(from),
            to.address.to_string(),
            qp(to),
            from.packets.to_string(),
            from.bytes.to_string(),
            from.request_psn.map_or_else(|| "-".into(), |psn| psn.to_string()),
            from.gaps.to_string(),
            from.retries.to_string(),
            from.naks.sum().to_string(),
            from.rnr_naks.to_string(),
            from.cnps.to_string(),
            from.out_of_order.to_string(),
        ]
    };
    let rows = answer
        .qps
        .iter()
        .flat_map(|pair| [row(pair, &pair.opener, &pair.peer), row(pair, &pair.peer, &pair.opener)]);
    render(&columns, rows)
}

fn rules(answer: &Rules) -> String {
    let columns = [
        text("RULE"),
        text("VERDICT"),
        text("EGRESS-OF"),
        text("INGRESS-OF"),
        text("SERVICES"),
        text("PEERS"),
    ];
    let rows = answer.rules.iter().map(|rule| {
        let peers = rule.peers.as_deref().map_or_else(
            || "any".into(),
            |peers| match peers {
                [] => "none".into(),
                peers => list(peers),
            },
        );
        let services = if rule.services.is_empty() { "any".into() } else { list(&rule.services) };
        vec![
            rule.origin.clone(),
            format!("{}{}", rule.verdict, if rule.log { ", log" } else { "" }),
            list(&rule.egress),
            list(&rule.ingress),
            services,
            peers,
        ]
    });
    render(&columns, rows)
}

fn neighbours(neighbours: &[NeighbourReport]) -> String {
    let mac = |mac: &str| if mac.is_empty() { "unresolved".into() } else { mac.to_owned() };
    let row = |neighbour: &NeighbourReport| vec![neighbour.address.to_string(), mac(&neighbour.mac)];
    render(&[text("ADDRESS"), text("MAC")], neighbours.iter().map(row))
}

fn workers(workers: &[WorkerReport]) -> String {
    let columns = [
        number("WORKER"),
        number("GENERATION"),
        number("POLLS"),
        number("IDLE-POLLS"),
        number("FLOWS"),
        number("FLOW-CAPACITY"),
        number("HITS"),
        number("MISSES"),
        number("UNCACHED"),
        number("TAKEN-OVER"),
        number("HANDED-OVER"),
        number("HELD"),
        number("DATAGRAMS"),
        number("UNFINISHED"),
        number("SCANNED-LISTS"),
    ];
    let row = |worker: &WorkerReport| {
        [
            u64::from(worker.worker),
            u64::from(worker.generation),
            worker.polls,
            worker.idle_polls,
            worker.flows,
            worker.flow_capacity,
            worker.hits,
            worker.misses,
            worker.uncached,
            worker.taken_over,
            worker.handed_over,
            worker.held,
            worker.datagrams,
            worker.unfinished,
            worker.scanned_lists,
        ]
        .iter()
        .map(ToString::to_string)
        .collect()
    };
    render(&columns, workers.iter().map(row))
}
