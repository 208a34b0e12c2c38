//! CPUs of the workers: near the card, left alone by the kernel, and at full speed.

use crate::{
    Machine, Setup,
    finding::{Found, ok, skipped, warn},
    machine::cpus,
};

pub(crate) fn numa(machine: &Machine, setup: &Setup) -> Found {
    let cards = setup.pci();
    let Some((card, node)) = cards.iter().find_map(|card| Some((card, machine.node(card)?))) else {
        return skipped("numa_node of the ports' cards", "no card of the Fabric says its NUMA node");
    };
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    let Some(list) = machine.read(&path) else {
        return skipped(path, "it is not there");
    };
    let local = cpus(&list);
    let seen = format!("{card}: node {node}, CPUs {list}; workers on {:?}", setup.lcores);
    if setup.lcores.is_empty() {
        return skipped(seen, "no --lcores given");
    }
    let far: Vec<_> = setup.lcores.iter().filter(|cpu| !local.contains(cpu)).collect();
    match far.is_empty() {
        true => ok(seen),
        false => warn(
            seen,
            format!("CPUs {far:?} are at another node than the card: each packet crosses between them"),
            format!("start floodwayd with --lcores of {list}"),
        ),
    }
}

pub(crate) fn isolation(machine: &Machine, setup: &Setup) -> Found {
    let path = "/sys/devices/system/cpu/isolated";
    let isolated = machine.read(path).unwrap_or_default();
    let ticking = machine.read("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    let seen = format!("{path}: {}; nohz_full: {}", or_none(&isolated), or_none(&ticking));
    if setup.lcores.is_empty() {
        return skipped(seen, "no --lcores given");
    }
    let alone = cpus(&isolated);
    let shared: Vec<_> =
        setup.lcores.iter().filter(|cpu| !alone.contains(cpu)).map(ToString::to_string).collect();
    match shared.is_empty() {
        true => ok(seen),
        false => warn(
            seen,
            format!(
                "the kernel puts other work on CPU {}: a worker there pauses, and its queues fill",
                shared.join(", ")
            ),
            format!(
                "add isolcpus={0} nohz_full={0} to the kernel's command line, and boot again",
                text(&setup.lcores)
            ),
        ),
    }
}

pub(crate) fn governor(machine: &Machine, setup: &Setup) -> Found {
    let of =
        |cpu: &usize| machine.read(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"));
    let first = vec![0];
    let lcores = if setup.lcores.is_empty() { &first } else { &setup.lcores };
    let all: Vec<_> = lcores.iter().filter_map(|cpu| Some((cpu, of(cpu)?))).collect();
    let seen =
        all.iter().map(|(cpu, governor)| format!("cpu{cpu} {governor}")).collect::<Vec<_>>().join(", ");
    let seen = format!("/sys/devices/system/cpu/*/cpufreq/scaling_governor: {}", or_none(&seen));
    match all.iter().find(|(_, governor)| governor != "performance") {
        _ if all.is_empty() => skipped(seen, "the kernel does not choose the frequency here"),
        Some((cpu, governor)) => warn(
            seen.clone(),
            format!(
                "CPU {cpu} runs by the governor {governor}: a worker starts each burst at a low frequency"
            ),
            "cpupower frequency-set -g performance",
        ),
        None => ok(seen),
    }
}

fn text(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}
