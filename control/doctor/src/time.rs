//! Clocks: a worker reads the processor's counter once for each burst, and logs have to agree with other machines'.

use crate::{
    Machine, Setup,
    finding::{Found, fail, ok, skipped, warn},
};

/// Flags without which the counter changes its rate or stops (Intel SDM volume 3, section 18.17).
const STEADY: [&str; 2] = ["constant_tsc", "nonstop_tsc"];

pub(crate) fn clocksource(machine: &Machine, _: &Setup) -> Found {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let Some(current) = machine.read(&format!("{folder}/current_clocksource")) else {
        return skipped(folder, "this kernel does not say its clock source");
    };
    let seen = format!("{folder}/current_clocksource: {current}");
    let available = machine.read(&format!("{folder}/available_clocksource")).unwrap_or_default();
    let best =
        ["tsc", "arch_sys_counter"].into_iter().find(|best| available.split(' ').any(|one| one == *best));
    match best {
        _ if matches!(current.as_str(), "tsc" | "arch_sys_counter") => ok(seen),
        Some(best) => warn(
            seen,
            format!(
                "each reading of the clock is a call into the kernel, or to the hypervisor; {best} is there"
            ),
            format!("echo {best} > {folder}/current_clocksource"),
        ),
        None => warn(
            seen,
            format!("the kernel has taken the processor's counter for unsteady: of {available} none is"),
            "dmesg | grep -i -e tsc -e clocksource   # says why; a firmware update is the usual cure",
        ),
    }
}

pub(crate) fn tsc(machine: &Machine, _: &Setup) -> Found {
    let Some(info) = machine.read("/proc/cpuinfo") else {
        return skipped("/proc/cpuinfo", "it is not there");
    };
    let Some(flags) = info.lines().find(|line| line.starts_with("flags")) else {
        // Arm's generic timer has one rate for all cores and never stops (Arm ARM, D11.1).
        return match info.contains("CPU architecture") || info.contains("Features") {
            true => ok("/proc/cpuinfo: Arm, whose generic timer is steady by its architecture"),
            false => skipped("/proc/cpuinfo: no flags", "neither x86 nor Arm"),
        };
    };
    let missing: Vec<_> =
        STEADY.into_iter().filter(|flag| !flags.split_whitespace().any(|one| one == *flag)).collect();
    match missing.is_empty() {
        true => ok(format!("/proc/cpuinfo: {}", STEADY.join(", "))),
        false => fail(
            format!("/proc/cpuinfo: no {}", missing.join(", no ")),
            "the counter that workers take the time from changes its rate or stops: timeouts are wrong",
            "switch on the invariant TSC: on a virtual machine the host has to pass it on (QEMU: -cpu host,+invtsc)",
        ),
    }
}

pub(crate) fn sync(machine: &Machine, _: &Setup) -> Found {
    let hardware: Vec<_> = machine.list("/sys/class/ptp");
    let hardware =
        if hardware.is_empty() { String::new() } else { format!("; PTP clocks {}", hardware.join(", ")) };
    let marker = "/run/systemd/timesync/synchronized";
    if machine.exists(marker) {
        return ok(format!("{marker}{hardware}"));
    }
    // The last column of chronyc's CSV is the leap status (chronyc(1), tracking).
    if let Some(said) = machine.command("chronyc", &["-c", "tracking"]) {
        let leap = said.trim().rsplit(',').next().unwrap_or_default();
        let seen = format!("chronyc tracking: {leap}{hardware}");
        return match leap {
            "Normal" | "Insert second" | "Delete second" => ok(seen),
            _ => warn(seen, "chrony has found no time yet", "chronyc sources   # which answer?"),
        };
    }
    if let Some(said) = machine.command("timedatectl", &["show", "-p", "NTPSynchronized", "--value"])
        && said.trim() == "yes"
    {
        return ok(format!("timedatectl: NTPSynchronized{hardware}"));
    }
    warn(
        format!("{marker}, chronyc, timedatectl: none says so{hardware}"),
        "the time of day may be wrong: logs, history and flow records cannot be put beside those of other machines",
        "apt-get install chrony && systemctl enable --now chrony",
    )
}
