//! floodwayd over DPDK, its hugepages, and `floodway` beside it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use program::Report;

use super::{Refusal, read};
use crate::{
    daemon::Daemon,
    demo::{
        Paths,
        world::{Answer, Outcome},
    },
};

const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";
const TOTAL_HUGEPAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE_HUGEPAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Where DPDK keeps a folder for each process.
const DPDK_FOLDER: &str = "/run/dpdk";
/// Pages of 2 MiB that are set aside when there are none.
const HUGEPAGES: u64 = 256;
/// Free pages that are enough.
const HUGEPAGES_MIN: u64 = 64;
/// How long the kernel may take to have all pages of a process back.
const FREE_TIMEOUT: Duration = Duration::from_secs(5);

/// floodwayd, from start to end. Dropping it ends it and gives the hugepages back.
pub struct Shown {
    daemon: Daemon,
    floodway: PathBuf,
    file_prefix: String,
    hugepages: Hugepages,
}

/// Hugepages that were set aside for the demo.
struct Hugepages {
    /// What `vm.nr_hugepages` is to be afterwards, if it was changed.
    restore: Option<u64>,
    /// Pages in use that no process had mapped, before floodwayd started.
    orphans_before: u64,
    memory: &'static str,
}

impl Shown {
    /// Starts it and returns when it answers.
    pub fn start(paths: &Paths) -> Result<Self, Refusal> {
        let hugepages = Hugepages::prepare();
        let socket = paths.scratch.join("floodwayd.sock");
        let file_prefix = format!("floodway-demo-{}", std::process::id());
        let options = format!(
            "--idle-sleep-us 50 --flows 16384 --memory {} --file-prefix {file_prefix}",
            hugepages.memory
        );
        println!("- floodwayd --policy {} --socket {} {options}", paths.policy.display(), socket.display());
        let mut command = Command::new(paths.program("floodwayd"));
        command.arg("--policy").arg(&paths.policy).arg("--socket").arg(&socket).args(options.split(' '));
        let daemon =
            Daemon::start(command, &socket, &paths.scratch.join("floodwayd.log")).map_err(|ended| {
                let says =
                    ended.log.lines().rfind(|line| line.starts_with("floodwayd:")).unwrap_or(&ended.log);
                match says.contains("built without DPDK") {
                    true => Refusal::NotHere("floodwayd was built without DPDK".into()),
                    false => Refusal::Failed(format!("floodwayd ended with {}: {says}", ended.code)),
                }
            })?;
        Ok(Self { daemon, floodway: paths.program("floodway"), file_prefix, hugepages })
    }

    /// In words, where its packets are.
    pub fn describe(&self) -> String {
        let memory = match self.hugepages.memory {
            "no-huge" => "ordinary pages, for there are no hugepages: about half as fast",
            _ => "hugepages without files",
        };
        format!("floodwayd (pid {}) runs one worker over DPDK; its memory: {memory}.", self.daemon.pid())
    }

    /// Everything that it has counted.
    pub fn report(&self) -> Outcome<Report> {
        self.daemon.client().report().map_err(|error| error.to_string())
    }

    /// Runs `floodway` against it.
    pub fn floodway(&self, arguments: &[&str]) -> Outcome<Answer> {
        println!("        $ floodway {}", arguments.join(" "));
        let output =
            Command::new(&self.floodway).arg("--socket").arg(self.daemon.socket()).args(arguments).output();
        let output = output.map_err(|error| format!("{}: {error}", self.floodway.display()))?;
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        let code = output.status.code().unwrap_or(-1);
        Ok(Answer { code, text: String::from_utf8_lossy(&text).into_owned() })
    }

    /// Ends it by SIGTERM; its exit code, and the socket if it is still there.
    pub fn stop(&mut self) -> Outcome<(i32, Vec<String>)> {
        let code = self.daemon.end(Signal::SIGTERM)?;
        // Without in-memory DPDK leaves this folder; if there is still something in it, that is told.
        let _ = std::fs::remove_dir(Path::new(DPDK_FOLDER).join(&self.file_prefix));
        let socket = self.daemon.socket();
        let left = socket.exists().then(|| format!("socket {} is left", socket.display()));
        Ok((code, left.into_iter().collect()))
    }

    /// Hugepages, and files of DPDK's, that did not come back.
    pub fn find_leftovers(&self) -> Vec<String> {
        let folders = ["/dev/hugepages", DPDK_FOLDER];
        let entries =
            folders.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&self.file_prefix));
        let mut left: Vec<String> = ours.map(|entry| format!("{} is left", entry.path().display())).collect();
        let before = self.hugepages.orphans_before;
        let start = Instant::now();
        while orphaned_hugepages() > before {
            if start.elapsed() > FREE_TIMEOUT {
                left.push(format!("{} hugepages are in use by nobody, {before} were", orphaned_hugepages()));
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        left
    }
}

impl Hugepages {
    /// Uses those that there are, asks for some when there are none, and does without when there is no other way.
    fn prepare() -> Self {
        let total = number(NR_HUGEPAGES);
        let restore =
            (total == 0 && std::fs::write(NR_HUGEPAGES, HUGEPAGES.to_string()).is_ok()).then_some(0);
        if restore.is_some() {
            println!("- vm.nr_hugepages: {HUGEPAGES}, and 0 again afterwards");
        }
        let free = number(FREE_HUGEPAGES);
        let memory = if free >= HUGEPAGES_MIN { "in-memory" } else { "no-huge" };
        if memory == "no-huge" {
            println!("- {free} hugepages are free, {HUGEPAGES_MIN} are needed: DPDK uses ordinary pages");
        }
        Self { restore, orphans_before: orphaned_hugepages(), memory }
    }
}

impl Drop for Hugepages {
    fn drop(&mut self) {
        if let Some(pages) = self.restore
            && let Err(error) = std::fs::write(NR_HUGEPAGES, pages.to_string())
        {
            eprintln!("cannot set {NR_HUGEPAGES} back to {pages}: {error}");
        }
    }
}

/// Hugepages in use that no process has mapped, such as those of a file that was left. Other programs may come and go.
fn orphaned_hugepages() -> u64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mapped_kib = |line: &str| {
        let is_mapped = line.starts_with("Private_Hugetlb:") || line.starts_with("Shared_Hugetlb:");
        is_mapped.then(|| line.split_whitespace().nth(1)?.parse::<u64>().ok()).flatten()
    };
    let rollups = processes.map(|process| read(&process.path().join("smaps_rollup").to_string_lossy()));
    let mapped: u64 = rollups.map(|rollup| rollup.lines().filter_map(mapped_kib).sum::<u64>() / 2048).sum();
    number(TOTAL_HUGEPAGES).saturating_sub(number(FREE_HUGEPAGES) + mapped)
}

fn number(path: &str) -> u64 {
    read(path).trim().parse().unwrap_or(0)
}
