//! Metrics of the data plane: drops, ports, tenants, workers, next hops, buffers. All from the report.

use std::borrow::Cow;

use program::{DropCount, PortReport, Tenant, TenantReport, Traffic, WorkerReport};

use super::{Metric, Rows, Snapshot};
use crate::views;

const PORT: &[&str] = &["port", "tenant"];
const SIDE: &[&str] = &["tenant", "side"];
const TENANT: &[&str] = &["tenant"];
const WORKER: &[&str] = &["worker"];

/// In the order in which they are told.
pub(super) const TABLE: &[Metric] = &[
    Metric::counter(
        "floodway_dropped_packets_total",
        &["reason"],
        "Packets that went no further, by the reason; each packet once.",
        |s, rows| views::drops(&s.report).into_iter().for_each(|drop| rows.put([drop.reason], drop.packets)),
    ),
    Metric::gauge(
        "floodway_held_packets",
        &[],
        "Packets that are neither sent nor dropped: fragments that wait, and what is in rings between workers.",
        |s, rows| {
            let sum = |count: fn(&WorkerReport) -> u64| s.report.workers.iter().map(count).sum::<u64>();
            // The figures of the workers are not of one moment.
            let held = (sum(|w| w.held) + sum(|w| w.handed_over)).saturating_sub(sum(|w| w.taken_over));
            rows.put([""; 0], held);
        },
    ),
    // Ports.
    Metric::counter(
        "floodway_port_receive_packets_total",
        PORT,
        "Packets that a port received.",
        |s, rows| {
            ports(s, rows, |port| port.traffic.rx_packets);
        },
    ),
    Metric::counter("floodway_port_receive_bytes_total", PORT, "Bytes that a port received.", |s, rows| {
        ports(s, rows, |port| port.traffic.rx_bytes);
    })
    .of_unit("bytes"),
    Metric::counter("floodway_port_transmit_packets_total", PORT, "Packets that a port sent.", |s, rows| {
        ports(s, rows, |port| port.traffic.tx_packets);
    }),
    Metric::counter("floodway_port_transmit_bytes_total", PORT, "Bytes that a port sent.", |s, rows| {
        ports(s, rows, |port| port.traffic.tx_bytes);
    })
    .of_unit("bytes"),
    Metric::counter(
        "floodway_port_originated_packets_total",
        PORT,
        "Packets that floodway made itself and sent to a port (neighbour requests, ICMP errors); sent packets hold them.",
        |s, rows| ports(s, rows, |port| port.originated),
    ),
    Metric::counter(
        "floodway_port_dropped_packets_total",
        &["port", "tenant", "reason"],
        "Packets that came from a port and went no further, before a tenant was known or on their way to one.",
        |s, rows| {
            for port in &s.report.ports {
                dropped(&port.drops, |reason, packets| {
                    rows.put([port.name.clone(), port.tenant.clone(), reason], packets);
                });
            }
        },
    ),
    // Tenants.
    Metric::counter(
        "floodway_tenant_receive_packets_total",
        SIDE,
        "Packets that came from a tenant's ports (side `ports`) or out of its tunnels (side `fabric`).",
        |s, rows| sides(s, rows, |traffic| traffic.rx_packets),
    ),
    Metric::counter(
        "floodway_tenant_receive_bytes_total",
        SIDE,
        "Bytes that came from a tenant's ports, or of inner frames out of its tunnels.",
        |s, rows| sides(s, rows, |traffic| traffic.rx_bytes),
    )
    .of_unit("bytes"),
    Metric::counter(
        "floodway_tenant_transmit_packets_total",
        SIDE,
        "Packets that went to a tenant's ports or into its tunnels.",
        |s, rows| sides(s, rows, |traffic| traffic.tx_packets),
    ),
    Metric::counter(
        "floodway_tenant_transmit_bytes_total",
        SIDE,
        "Bytes that went to a tenant's ports, or of inner frames into its tunnels.",
        |s, rows| sides(s, rows, |traffic| traffic.tx_bytes),
    )
    .of_unit("bytes"),
    Metric::counter(
        "floodway_tenant_dropped_packets_total",
        &["tenant", "reason"],
        "Packets of a tenant that went no further, those of its ports among them.",
        |s, rows| {
            for tenant in &s.report.tenants {
                dropped(&tenant.drops, |reason, packets| rows.put([tenant.name.clone(), reason], packets));
            }
        },
    ),
    Metric::gauge("floodway_tenant_flows", TENANT, "Flow entries of a tenant.", |s, rows| {
        tenants(s, rows, |tenant| tenant.room.flows);
    }),
    Metric::gauge("floodway_tenant_flow_quota", TENANT, "Flow entries that a tenant may have.", |s, rows| {
        quotas(s, rows, |tenant| tenant.flow_quota);
    }),
    Metric::counter(
        "floodway_tenant_flows_evicted_total",
        TENANT,
        "Flows of a tenant that gave way to others of its own, since it was at its quota.",
        |s, rows| tenants(s, rows, |tenant| tenant.room.evicted),
    ),
    Metric::counter(
        "floodway_tenant_flows_displaced_total",
        TENANT,
        "Flows of a tenant that gave way to another tenant's, since the table was full and this tenant had most.",
        |s, rows| tenants(s, rows, |tenant| tenant.room.displaced),
    ),
    Metric::counter(
        "floodway_tenant_flows_refused_total",
        TENANT,
        "Flows of a tenant that found no room.",
        |s, rows| tenants(s, rows, |tenant| tenant.room.refused),
    ),
    Metric::gauge(
        "floodway_tenant_queue_pairs",
        TENANT,
        "Queue pairs of a tenant that are known.",
        |s, rows| {
            tenants(s, rows, |tenant| tenant.room.queue_pairs);
        },
    ),
    Metric::gauge(
        "floodway_tenant_queue_pair_quota",
        TENANT,
        "Queue pairs of a tenant that may be known.",
        |s, rows| quotas(s, rows, |tenant| tenant.queue_pair_quota),
    ),
    Metric::counter(
        "floodway_tenant_log_lines_total",
        &["tenant", "outcome"],
        "Log lines that a tenant's rules asked for: `written`, `suppressed` (it had as many as it may) or `lost` (lines \
         were written more slowly than they came).",
        |s, rows| {
            for tenant in &s.report.tenants {
                let log = tenant.log;
                for (outcome, lines) in
                    [("written", log.written), ("suppressed", log.suppressed), ("lost", log.lost)]
                {
                    rows.put([tenant.name.clone(), outcome.to_owned()], lines);
                }
            }
        },
    ),
    // Workers.
    Metric::gauge("floodway_worker_generation", WORKER, "The generation that a worker runs.", |s, rows| {
        workers(s, rows, |worker| worker.generation.into());
    }),
    Metric::counter("floodway_worker_polls_total", WORKER, "Polls of a worker.", |s, rows| {
        workers(s, rows, |worker| worker.polls);
    }),
    Metric::counter("floodway_worker_idle_polls_total", WORKER, "Polls that moved no packet.", |s, rows| {
        workers(s, rows, |worker| worker.idle_polls);
    }),
    Metric::gauge("floodway_worker_flows", WORKER, "Flow entries of a worker.", |s, rows| {
        workers(s, rows, |worker| worker.flows);
    }),
    Metric::gauge(
        "floodway_worker_flow_capacity",
        WORKER,
        "Flow entries that a worker has room for.",
        |s, rows| {
            workers(s, rows, |worker| worker.flow_capacity);
        },
    ),
    Metric::counter(
        "floodway_worker_flow_hits_total",
        WORKER,
        "Packets that found their flow entry.",
        |s, rows| {
            workers(s, rows, |worker| worker.hits);
        },
    ),
    Metric::counter(
        "floodway_worker_flow_misses_total",
        WORKER,
        "Packets that went to the rules.",
        |s, rows| {
            workers(s, rows, |worker| worker.misses);
        },
    ),
    Metric::counter(
        "floodway_worker_uncached_flows_total",
        WORKER,
        "Flows that were forwarded without an entry, since the table or the tenant's quota was full.",
        |s, rows| workers(s, rows, |worker| worker.uncached),
    ),
    Metric::counter(
        "floodway_worker_taken_over_packets_total",
        WORKER,
        "Packets taken over from other workers.",
        |s, rows| workers(s, rows, |worker| worker.taken_over),
    ),
    Metric::counter(
        "floodway_worker_handed_over_packets_total",
        WORKER,
        "Packets handed over to other workers.",
        |s, rows| workers(s, rows, |worker| worker.handed_over),
    ),
    Metric::gauge(
        "floodway_worker_held_fragments",
        WORKER,
        "Fragments that wait for the first of their datagram.",
        |s, rows| workers(s, rows, |worker| worker.held),
    ),
    Metric::gauge(
        "floodway_worker_datagrams",
        WORKER,
        "Datagrams of which some fragments have come and others not.",
        |s, rows| workers(s, rows, |worker| worker.datagrams),
    ),
    Metric::counter(
        "floodway_worker_unfinished_datagrams_total",
        WORKER,
        "Datagrams whose other fragments did not come in time.",
        |s, rows| workers(s, rows, |worker| worker.unfinished),
    ),
    Metric::gauge(
        "floodway_worker_scanned_lists",
        WORKER,
        "Lists of rules that misses go through one rule after the other, since they are too large to be compiled.",
        |s, rows| workers(s, rows, |worker| worker.scanned_lists),
    ),
    Metric::gauge("floodway_worker_queue_pairs", WORKER, "Queue pairs that a worker knows.", |s, rows| {
        workers(s, rows, |worker| worker.queue_pairs);
    }),
    Metric::gauge(
        "floodway_worker_queue_pair_capacity",
        WORKER,
        "Queue pairs that a worker has room for.",
        |s, rows| workers(s, rows, |worker| worker.queue_pair_capacity),
    ),
    Metric::counter(
        "floodway_worker_untracked_queue_pairs_total",
        WORKER,
        "Queue pairs that were not tracked, since the table or the tenant's quota was full.",
        |s, rows| workers(s, rows, |worker| worker.untracked),
    ),
    // What they share.
    Metric::gauge("floodway_pool_buffers", &[], "Packet buffers of all workers.", |s, rows| {
        rows.put([""; 0], s.report.pool.buffers);
    }),
    Metric::gauge(
        "floodway_pool_free_buffers",
        &[],
        "Packet buffers that neither a worker nor the rings of a port hold.",
        |s, rows| rows.put([""; 0], s.report.pool.free),
    ),
    Metric::gauge(
        "floodway_neighbour_resolved",
        &["address"],
        "1 when the MAC of a next hop on the uplink is known, else 0.",
        |s, rows| {
            for neighbour in &s.report.neighbours {
                rows.put([neighbour.address.to_string()], u64::from(!neighbour.mac.is_empty()));
            }
        },
    ),
];

fn dropped(drops: &[DropCount], mut put: impl FnMut(String, u64)) {
    let drops = drops.iter().filter(|drop| drop.packets > 0);
    drops.for_each(|drop| put(drop.reason.clone(), drop.packets));
}

fn ports(snapshot: &Snapshot, rows: &mut Rows, value: fn(&PortReport) -> u64) {
    for port in &snapshot.report.ports {
        rows.put([port.name.clone(), port.tenant.clone()], value(port));
    }
}

fn sides(snapshot: &Snapshot, rows: &mut Rows, value: fn(&Traffic) -> u64) {
    for tenant in &snapshot.report.tenants {
        for (side, traffic) in [("ports", &tenant.ports), ("fabric", &tenant.fabric)] {
            rows.put([Cow::Owned(tenant.name.clone()), Cow::Borrowed(side)], value(traffic));
        }
    }
}

fn tenants(snapshot: &Snapshot, rows: &mut Rows, value: fn(&TenantReport) -> u64) {
    snapshot.report.tenants.iter().for_each(|tenant| rows.put([tenant.name.clone()], value(tenant)));
}

fn quotas(snapshot: &Snapshot, rows: &mut Rows, value: fn(&Tenant) -> u32) {
    let tenants = snapshot.program.tenants.iter().flatten();
    tenants.for_each(|tenant| rows.put([tenant.name.clone()], value(tenant).into()));
}

fn workers(snapshot: &Snapshot, rows: &mut Rows, value: fn(&WorkerReport) -> u64) {
    snapshot.report.workers.iter().for_each(|worker| rows.put([worker.worker.to_string()], value(worker)));
}
