//! From EAL's start to its end, which a process has once: so this is one test, without a harness.

use std::{
    env,
    path::Path,
    process::{Command, ExitCode},
};

use arrayvec::ArrayVec;
use dpdk::{Eal, EalBuilder, EthDev, InitError, Mbuf, Mempool, PoolConfig, PortConfig};

/// Ordinary pages, so that hugepages or their lack change nothing; with files of its own, unlike in-memory.
fn builder(prefix: &str) -> EalBuilder {
    Eal::builder().no_pci().no_huge(64).file_prefix(prefix)
}

/// As this test starts itself to be a second process, it must tell which one it is.
const SECOND: &str = "FLOODWAY_DPDK_SECOND_PROCESS";

fn main() -> ExitCode {
    if let Ok(prefix) = env::var(SECOND) {
        let error = builder(&prefix).init().err().map(|error| error.to_string());
        println!("{}", error.unwrap_or_else(|| "it started".into()));
        return ExitCode::SUCCESS;
    }
    mistakes_do_not_use_up_the_start();
    let prefix = format!("fw-lifecycle-{}", std::process::id());
    let affinity = allowed_cpus();
    let eal = builder(&prefix).init().expect("EAL");
    assert_eq!(allowed_cpus(), affinity, "this thread and its children may run where they might before");
    let socket = eal
        .startup_log()
        .split_once("Multi-process socket ")
        .expect("a log")
        .1
        .lines()
        .next()
        .expect("a path");
    let socket = Path::new(socket).to_path_buf();
    assert!(matches!(builder(&prefix).init(), Err(InitError::StartedBefore)));
    a_second_process_is_told_so(&prefix);

    let pool = Mempool::new(&eal, &PoolConfig::new("lifecycle", 1023)).expect("a pool");
    let device = EthDev::open(&eal, "net_null0").expect("a device");
    let mut port = device.start(&PortConfig::new(1, pool.clone())).expect("a port");
    let mut rx = port.take_rx(0).expect("a queue");
    // EAL's handle goes first; what depends on it keeps it running.
    drop(eal);
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    assert_eq!(rx.receive(&mut burst), 32, "the thread that started EAL is its main lcore");
    drop((port, rx));
    assert_eq!(pool.level().in_use, 32);
    drop(burst);
    assert_eq!(pool.level().in_use, 0);
    assert!(socket.exists(), "EAL runs: {}", socket.display());
    drop(pool);
    assert!(!socket.exists(), "EAL has ended and cleaned up");
    assert!(matches!(builder(&prefix).init(), Err(InitError::StartedBefore)), "it does not start again");
    // EAL leaves its lock file and maps in its directory, for processes that might still attach.
    std::fs::remove_dir_all(socket.parent().expect("a directory")).expect("removed");
    println!("lifecycle: ok");
    ExitCode::SUCCESS
}

fn mistakes_do_not_use_up_the_start() {
    assert!(matches!(Eal::builder().in_memory().no_huge(64).init(), Err(InitError::Arguments(_))));
    assert!(matches!(builder("a").lcores([1023]).init(), Err(InitError::NoSuchCpu { cpu: 1023, .. })));
}

fn a_second_process_is_told_so(prefix: &str) {
    let program = env::current_exe().expect("its own path");
    let output = Command::new(program).env(SECOND, prefix).output().expect("a second process");
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = format!(
        "another DPDK process runs with the file prefix \"{prefix}\": stop it, choose another prefix, or start in-memory\n"
    );
    assert_eq!(said, expected);
}

fn allowed_cpus() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
    status.lines().find(|line| line.starts_with("Cpus_allowed:")).expect("a line").to_string()
}
