//! EAL's arguments, and the checks that need no EAL.

use core::mem;
use std::{
    ffi::{CString, c_char},
    fs,
};

use dpdk_sys as sys;

use super::{Capture, Eal, InitError, claim_start, diagnosis};
use crate::Errno;

/// Arguments of EAL; see "EAL parameters" in DPDK's guide for what each does.
#[derive(Clone, Debug, Default)]
pub struct EalBuilder {
    lcores: Vec<usize>,
    lcore_map: Option<String>,
    no_pci: bool,
    in_memory: bool,
    no_huge: bool,
    no_shconf: bool,
    memory_mib: Option<u32>,
    file_prefix: Option<String>,
    vdevs: Vec<String>,
    allowed: Vec<String>,
    log_levels: Vec<String>,
    more: Vec<String>,
}

impl EalBuilder {
    /// `-l`: the CPUs whose lcores EAL makes itself; the first is the main lcore. One is enough when workers register
    /// themselves. Default: CPU of the caller's affinity that has the lowest number.
    pub fn lcores(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.lcores = cpus.into_iter().collect();
        self
    }

    /// `--lcores`: lcores by a map such as `0@1,1@1`; instead of [`EalBuilder::lcores`].
    pub fn lcore_map(mut self, map: impl Into<String>) -> Self {
        self.lcore_map = Some(map.into());
        self
    }

    /// `--no-pci`: leave PCI devices alone.
    pub fn no_pci(mut self) -> Self {
        self.no_pci = true;
        self
    }

    /// `--in-memory`: no file is left behind, no hugetlbfs need be mounted, and any number of such processes may run.
    pub fn in_memory(mut self) -> Self {
        self.in_memory = true;
        self
    }

    /// `--no-huge`: ordinary pages, `memory_mib` of them at most; at half the speed, and for virtual devices only.
    pub fn no_huge(mut self, memory_mib: u32) -> Self {
        self.no_huge = true;
        self.memory_mib = Some(memory_mib);
        self
    }

    /// `--no-shconf`: no files for other processes, so none are left behind; in-memory implies it. A second process of the
    /// same prefix is not noticed then.
    pub fn no_shconf(mut self) -> Self {
        self.no_shconf = true;
        self
    }

    /// `-m`: memory to take at the start, in MiB.
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = Some(mib);
        self
    }

    /// `--file-prefix`: which processes belong together; DPDK's default is `rte`.
    pub fn file_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.file_prefix = Some(prefix.into());
        self
    }

    /// `--vdev`: makes a virtual device at the start. Opening it later ([`crate::EthDev::open`]) tells failures apart better.
    pub fn vdev(mut self, devargs: impl Into<String>) -> Self {
        self.vdevs.push(devargs.into());
        self
    }

    /// `-a`: takes this device and no other that is not listed, such as `0000:03:00.0,representor=vf[0-3]`.
    pub fn allow(mut self, devargs: impl Into<String>) -> Self {
        self.allowed.push(devargs.into());
        self
    }

    /// `--log-level`, such as `pmd.net.mlx5:debug`.
    pub fn log_level(mut self, level: impl Into<String>) -> Self {
        self.log_levels.push(level.into());
        self
    }

    /// Any other argument, as it is.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.more.push(arg.into());
        self
    }

    /// The arguments as `rte_eal_init` gets them, without the program's name.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        match &self.lcore_map {
            Some(map) => arguments.extend(["--lcores".into(), map.clone()]),
            None => arguments
                .extend(["-l".into(), self.cpus().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")]),
        }
        let flags = [
            (self.no_pci, "--no-pci"),
            (self.in_memory, "--in-memory"),
            (self.no_huge, "--no-huge"),
            (self.no_shconf, "--no-shconf"),
        ];
        for (on, flag) in flags {
            arguments.extend(on.then(|| flag.to_string()));
        }
        arguments.extend(self.memory_mib.iter().flat_map(|mib| ["-m".into(), mib.to_string()]));
        for (flag, values) in
            [("--vdev", &self.vdevs), ("-a", &self.allowed), ("--log-level", &self.log_levels)]
        {
            arguments.extend(values.iter().flat_map(|value| [flag.into(), value.clone()]));
        }
        arguments.extend(self.file_prefix.iter().flat_map(|prefix| ["--file-prefix".into(), prefix.clone()]));
        arguments.extend(self.more.iter().cloned());
        arguments
    }

    /// Starts DPDK; the calling thread becomes its main lcore, and keeps the CPU affinity that it has.
    ///
    /// Mistakes that can be seen beforehand do not use up the process's one start.
    pub fn init(self) -> Result<Eal, InitError> {
        self.check()?;
        let arguments: Vec<CString> = ["floodway".to_string()]
            .into_iter()
            .chain(self.arguments())
            .map(|argument| {
                CString::new(argument).map_err(|_| InitError::Arguments("an argument has a zero byte"))
            })
            .collect::<Result<_, _>>()?;
        let capture = Capture::open().map_err(|error| InitError::Other {
            errno: Errno::new(error.raw_os_error().unwrap_or(0)),
            said: "cannot open a file in memory".into(),
        })?;
        claim_start()?;
        // EAL keeps pointers into its arguments, and permutes the array.
        let mut argv: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
        let argc = argv.len() as i32;
        argv.push(core::ptr::null_mut());
        let affinity = affinity();
        // SAFETY: `argv` has `argc` terminated strings, which are never freed, and a null; this is the one call.
        let (code, log) = capture.during(|| unsafe { sys::rte_eal_init(argc, argv.leak().as_mut_ptr()) });
        restore(&affinity);
        if code < 0 {
            return Err(diagnosis::diagnose(
                Errno::last(),
                &log,
                self.file_prefix.as_deref().unwrap_or("rte"),
            ));
        }
        Ok(Eal::started(capture, log))
    }

    fn check(&self) -> Result<(), InitError> {
        if self.in_memory && self.no_huge {
            return Err(InitError::Arguments("in-memory and no-huge exclude each other: choose one"));
        }
        if self.lcore_map.is_some() && !self.lcores.is_empty() {
            return Err(InitError::Arguments("give lcores by list or by map, not both"));
        }
        // EAL answers a wrong list with a page of usage.
        let online = cpus_of(&affinity());
        if let Some(cpu) = self.lcores.iter().find(|cpu| !online.contains(cpu)) {
            return Err(InitError::NoSuchCpu { cpu: *cpu, online });
        }
        if self.no_huge { Ok(()) } else { check_hugepages(self.in_memory) }
    }

    fn cpus(&self) -> impl Iterator<Item = usize> {
        let first = if self.lcores.is_empty() { cpus_of(&affinity()).first().copied() } else { None };
        first.into_iter().chain(self.lcores.iter().copied())
    }
}

/// Counts hugepages of all sizes (`/sys/kernel/mm/hugepages`), and looks for a mount of them if one is needed.
fn check_hugepages(in_memory: bool) -> Result<(), InitError> {
    let sum = |name: &str| -> u64 {
        let sizes = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
        let counts = sizes
            .filter_map(|size| fs::read_to_string(size.path().join(name)).ok()?.trim().parse::<u64>().ok());
        counts.sum()
    };
    match (sum("nr_hugepages"), sum("free_hugepages")) {
        (0, _) => return Err(InitError::NoHugepages),
        (total, 0) => return Err(InitError::HugepagesTaken { total }),
        _ => {}
    }
    let mounted = fs::read_to_string("/proc/mounts")
        .is_ok_and(|mounts| mounts.lines().any(|line| line.split(' ').nth(2) == Some("hugetlbfs")));
    if in_memory || mounted { Ok(()) } else { Err(InitError::NoHugetlbfs) }
}

fn affinity() -> libc::cpu_set_t {
    // SAFETY: an all-zero set is valid, and its size is passed with it.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        set
    }
}

/// EAL pins the thread that starts it, and threads made later would inherit that.
fn restore(affinity: &libc::cpu_set_t) {
    // SAFETY: the set is valid, and its size is passed with it.
    unsafe { libc::sched_setaffinity(0, size_of_val(affinity), affinity) };
}

fn cpus_of(set: &libc::cpu_set_t) -> Vec<usize> {
    // SAFETY: each index is below the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, set) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_eal() {
        let builder = Eal::builder()
            .lcores([1, 0])
            .no_pci()
            .in_memory()
            .file_prefix("fw")
            .memory_mib(64)
            .vdev("net_null0")
            .allow("0000:03:00.0,representor=vf[0-1]")
            .log_level("*:warning")
            .arg("--iova-mode=va");
        let expected = "-l 1,0 --no-pci --in-memory -m 64 --vdev net_null0 -a 0000:03:00.0,representor=vf[0-1] --log-level *:warning --file-prefix fw --iova-mode=va";
        assert_eq!(builder.arguments().join(" "), expected);
    }

    #[test]
    fn contradictions_do_not_reach_eal() {
        assert!(matches!(Eal::builder().in_memory().no_huge(64).init(), Err(InitError::Arguments(_))));
        assert!(matches!(
            Eal::builder().no_huge(64).lcores([0]).lcore_map("0@0").init(),
            Err(InitError::Arguments(_))
        ));
        assert!(matches!(
            Eal::builder().no_huge(64).file_prefix("a\0b").init(),
            Err(InitError::Arguments(_))
        ));
        let Err(InitError::NoSuchCpu { cpu: 1023, online }) =
            Eal::builder().no_huge(64).lcores([1023]).init()
        else {
            panic!("CPU 1023 is not here");
        };
        assert!(!online.is_empty());
    }
}
