//! What systemd hears from the built daemon, on a socket of the test's own.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use agent::client::Client;
use nix::{
    sys::{ptrace, signal, wait},
    unistd::Pid,
};

/// A slow machine is no fault.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the unit would give as WatchdogSec; a beat is due after a quarter of it.
const WATCHDOG: Duration = Duration::from_secs(2);

const FABRIC: &str = "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: box}
spec:
  ports:
    - {name: uplink0, device: \"memory:\", mtu: 1600}
  uplink: {port: uplink0, addresses: [192.0.2.1/24]}
";

struct Scene {
    folder: tempfile::TempDir,
    systemd: UnixDatagram,
    child: Child,
}

impl Scene {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("p");
        fs::create_dir(&policy).unwrap();
        fs::write(policy.join("fabric.yaml"), FABRIC).unwrap();
        let systemd = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_floodwayd"))
            .arg("--policy")
            .arg(&policy)
            .arg("--socket")
            .arg(folder.path().join("s"))
            // The longest sleep of an idle worker: it is progress all the same.
            .args(["--workers", "3", "--idle-sleep-us", "10000", "--flows", "1024", "--buffers", "4096"])
            .env("NOTIFY_SOCKET", folder.path().join("notify"))
            .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string())
            .env_remove("WATCHDOG_PID")
            .env_remove("FLOODWAY_STATE")
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { folder, systemd, child }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("s")
    }

    /// The next message; `None` when none comes in `time`.
    fn next(&self, time: Duration) -> Option<String> {
        self.systemd.set_read_timeout(Some(time)).unwrap();
        let mut bytes = [0; 4096];
        let len = self.systemd.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..len].to_vec()).unwrap())
    }

    #[track_caller]
    fn wait_for(&self, wanted: &str) -> String {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(message) = self.next(PATIENCE).filter(|message| message.contains(wanted)) {
                return message;
            }
        }
        panic!("no {wanted}");
    }

    /// A worker's thread.
    fn thread(&self, name: &str) -> Pid {
        let tasks = format!("/proc/{}/task", self.child.id());
        let named = |task: &Path| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name);
        let mut tasks = fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path());
        let task = tasks.find(|task| named(task)).unwrap();
        Pid::from_raw(task.file_name().unwrap().to_str().unwrap().parse().unwrap())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ready_is_said_when_all_workers_run_the_program_and_the_api_answers() {
    let mut scene = Scene::start();
    assert_eq!(scene.next(PATIENCE).unwrap(), "READY=1\n");
    let client = Client::new(scene.socket());
    let report = client.report().unwrap();
    assert_eq!(report.workers.len(), 3);
    assert!(report.workers.iter().all(|worker| worker.generation == report.generation && worker.polls > 0));
    assert_eq!(scene.wait_for("STATUS="), "STATUS=generation 1, 3 workers\n");
    scene.wait_for("WATCHDOG=1");
    signal::kill(Pid::from_raw(scene.child.id() as i32), signal::Signal::SIGTERM).unwrap();
    scene.wait_for("STOPPING=1");
    assert!(scene.child.wait().unwrap().success());
}

/// The worker is stopped as a debugger does it; the others, the API and the thread that tells go on.
#[test]
fn a_worker_that_stands_gives_no_beat() {
    let scene = Scene::start();
    scene.wait_for("WATCHDOG=1");
    let worker = scene.thread("worker-1");
    if let Err(error) = ptrace::attach(worker) {
        eprintln!("skipped: a thread cannot be stopped here: {error}");
        return;
    }
    wait::waitpid(worker, Some(wait::WaitPidFlag::__WALL)).unwrap();
    // It may have polled for the beat that is due next; after that one there is none.
    let start = Instant::now();
    let mut beats = 0;
    let mut is_named = false;
    while start.elapsed() < WATCHDOG * 2 {
        let Some(message) = scene.next(Duration::from_millis(100)) else { continue };
        beats += u32::from(message.contains("WATCHDOG=1"));
        is_named |= message == "STATUS=worker 1 does not poll\n";
    }
    let client = Client::new(scene.socket());
    let (before, after) = (client.report().unwrap(), {
        std::thread::park_timeout(Duration::from_millis(500));
        client.report().unwrap()
    });
    ptrace::detach(worker, None).unwrap();
    assert!(beats <= 1 && is_named, "{beats} beats, named: {is_named}");
    let moved: Vec<bool> = before
        .workers
        .iter()
        .zip(&after.workers)
        .map(|(before, after)| before.polls != after.polls)
        .collect();
    assert_eq!(moved, [true, false, true]);
    scene.wait_for("WATCHDOG=1");
}

/// The unit is one that systemd takes. What it names is not installed here, which is no fault of the unit.
#[test]
fn systemd_takes_the_unit() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd/floodwayd.service");
    let text = fs::read_to_string(&unit).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("floodwayd.service");
    // Of the command line only that the program is there can be verified: it is this one.
    fs::write(&copy, text.replace("/usr/sbin/floodwayd", env!("CARGO_BIN_EXE_floodwayd"))).unwrap();
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&copy).output() else {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let of_the_unit: Vec<_> = said.lines().filter(|line| line.contains("floodwayd")).collect();
    assert!(output.status.success() && of_the_unit.is_empty(), "{said}");
    // And it is able to find fault.
    fs::write(&copy, text.replace("Type=notify", "Type=notifi").replace("/usr/sbin/floodwayd", "/bin/true"))
        .unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&copy).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("notifi"), "{output:?}");
}

/// The options of the unit's command line are those of the daemon.
#[test]
fn the_daemon_takes_the_options_of_the_unit() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd/floodwayd.service");
    let text = fs::read_to_string(unit).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/sbin/floodwayd ")).unwrap();
    let options: Vec<&str> = line.split(' ').filter(|word| !word.starts_with('$')).collect();
    let output =
        Command::new(env!("CARGO_BIN_EXE_floodwayd")).args(options).arg("--no-such-option").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("unexpected argument '--no-such-option'"), "{said}");
}
