//! The built daemon over memory ports: killed, restarted with broken files, with damaged state, and watching.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use agent::{
    api::{ApplyRequest, ConfirmRequest, Outcome, PolicyStatus, SourceText, Status},
    client::Client,
};

const PATIENCE: Duration = Duration::from_secs(30);

const FABRIC: &str = "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: box}
spec:
  ports:
    - {name: uplink0, device: \"memory:\", mtu: 1600}
    - {name: red0, device: \"memory:\", mtu: 1500}
  uplink: {port: uplink0, addresses: [192.0.2.1/24]}
";

fn tenant(vni: u32) -> String {
    format!(
        "apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {{name: red}}
spec:
  vni: {vni}
  gateway: {{addresses: [10.1.0.1]}}
  ports:
    - {{port: red0, mac: 02:00:00:00:0a:10, addresses: [10.1.0.10]}}
"
    )
}

/// A policy directory, a state directory and a socket.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        fs::create_dir(scene.path("p")).unwrap();
        fs::write(scene.path("p/fabric.yaml"), FABRIC).unwrap();
        scene.write(1);
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, vni: u32) {
        fs::write(self.path("p/red.yaml"), tenant(vni)).unwrap();
    }

    fn break_policy(&self) {
        fs::write(self.path("p/red.yaml"), tenant(0)).unwrap();
    }

    fn sources(&self, vni: u32) -> Vec<SourceText> {
        let source = |name: &str, text: String| SourceText { name: name.into(), text };
        vec![source("fabric.yaml", FABRIC.into()), source("red.yaml", tenant(vni))]
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodwayd"));
        command.arg("--policy").arg(self.path("p")).arg("--socket").arg(self.path("s"));
        command.args(["--idle-sleep-us", "1000", "--flows", "1024", "--buffers", "1024"]).args(arguments);
        command.stderr(Stdio::piped()).env_remove("FLOODWAY_STATE").env_remove("FLOODWAY_LOG");
        command
    }

    fn with_state(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.arg("--state").arg(self.path("state"));
        command
    }
}

struct Daemon {
    child: Option<Child>,
    client: Client,
}

impl Daemon {
    /// Returns when it answers.
    fn start(scene: &Scene, arguments: &[&str]) -> Self {
        let child = scene.with_state(arguments).spawn().unwrap();
        let daemon = Self { child: Some(child), client: Client::new(scene.path("s")) };
        daemon.wait_for(|status| status.running.is_some());
        daemon
    }

    /// Returns once the status is as wanted.
    #[track_caller]
    fn wait_for(&self, is_wanted: impl Fn(&Status) -> bool) -> Status {
        let start = Instant::now();
        loop {
            let status = self.client.status();
            if let Some(status) = status.as_ref().ok().filter(|status| is_wanted(status)) {
                return status.clone();
            }
            assert!(start.elapsed() < PATIENCE, "{status:?}");
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn assert_runs(&self, vni: u32) {
        assert_eq!(self.client.program().unwrap().tenants[0].vni, vni);
        let report = self.client.report().unwrap();
        assert!(report.workers.iter().all(|worker| worker.generation == report.generation), "{report:?}");
    }

    /// As by the kernel for want of memory: it cannot tidy up.
    fn kill(mut self) -> String {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        said(&child.wait_with_output().unwrap())
    }

    /// As by systemd; it has to end well.
    fn end(mut self) -> String {
        let child = self.child.take().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn cut(path: &Path, len: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn a_broken_directory_is_no_end_when_something_ran() {
    let scene = Scene::new();
    Daemon::start(&scene, &[]).kill();
    scene.break_policy();
    let daemon = Daemon::start(&scene, &[]);
    daemon.assert_runs(1);
    let status = daemon.client.status().unwrap();
    assert_eq!((status.policy, status.running.unwrap().generation), (PolicyStatus::LastGood, 2));
    let refused = status.refused.unwrap();
    assert!(
        refused.error.ends_with(" is refused; starting with the last good policy, generation 1"),
        "{refused:?}"
    );
    assert_eq!((refused.diagnostics.list[0].line, refused.diagnostics.list[0].column), (5, 8));
    let log = daemon.end();
    assert!(
        log.contains("red.yaml:5:8: error: ") && log.contains("starting with the last good policy"),
        "{log}"
    );
    assert!(log.contains("every packet is accounted for"), "{log}");
    // Again, without a directory at all: the same program, under the same number.
    fs::remove_dir_all(scene.path("p")).unwrap();
    let daemon = Daemon::start(&scene, &[]);
    daemon.assert_runs(1);
    assert_eq!(daemon.client.history().unwrap().generations.len(), 2);
}

#[test]
fn a_broken_directory_is_the_end_when_nothing_ran() {
    let scene = Scene::new();
    scene.break_policy();
    for mut command in [scene.command(&[]), scene.with_state(&[])] {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = said(&output);
        assert!(said.contains("is refused\n") && said.contains("red.yaml:5:8: error: "), "{said}");
    }
}

#[test]
fn a_daemon_that_is_killed_unconfirmed_comes_back_with_what_was_good() {
    let scene = Scene::new();
    let daemon = Daemon::start(&scene, &[]);
    let request = |vni, confirm_s| ApplyRequest {
        sources: scene.sources(vni),
        expect_generation: None,
        confirm_s,
        unproven: false,
    };
    daemon.client.apply(&request(2, Some(3600))).unwrap();
    daemon.assert_runs(2);
    scene.write(2);
    daemon.kill();
    // Nor does the watch take for a change what was there at the start.
    let daemon = Daemon::start(&scene, &["--watch"]);
    let status = daemon.wait_for(|status| status.watch.as_ref().is_some_and(|watch| watch.reads > 0));
    daemon.assert_runs(1);
    assert_eq!(status.policy, PolicyStatus::LastGood);
    daemon.client.apply(&request(2, Some(3600))).unwrap();
    assert_eq!(daemon.client.confirm(&ConfirmRequest { generation: None }).unwrap().generation, 4);
    daemon.kill();
    let daemon = Daemon::start(&scene, &[]);
    daemon.assert_runs(2);
    assert_eq!(daemon.client.status().unwrap().policy, PolicyStatus::Current);
    let outcomes: Vec<_> =
        daemon.client.history().unwrap().generations.iter().map(|entry| entry.outcome).collect();
    assert_eq!(outcomes, [Outcome::Confirmed, Outcome::Unconfirmed, Outcome::Confirmed, Outcome::Confirmed]);
}

#[test]
fn damaged_state_is_a_warning() {
    let scene = Scene::new();
    Daemon::start(&scene, &[]).end();
    let (last_good, generation) = (scene.path("state/last-good"), scene.path("state/generation-1"));
    cut(&last_good, fs::metadata(&last_good).unwrap().len() / 2);
    // The directory is good: it is started with, and last-good is whole again.
    let log = Daemon::start(&scene, &[]).end();
    assert!(!log.contains("panicked"), "{log}");
    cut(&last_good, 10);
    scene.break_policy();
    let daemon = Daemon::start(&scene, &[]);
    daemon.assert_runs(1);
    let log = daemon.end();
    assert!(log.contains("last-good is damaged (it has no first line) and is not used"), "{log}");
    // Nothing of it is left: as if nothing had ever run.
    fs::remove_file(scene.path("state/generation-2")).unwrap();
    cut(&last_good, 0);
    cut(&generation, 100);
    let output = scene.with_state(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains("generation-1 is damaged (its length is wrong) and is not used"), "{said}");
    assert!(said.contains("red.yaml:5:8: error: ") && !said.contains("panicked"), "{said}");
}

#[test]
fn a_state_directory_has_one_daemon() {
    let scene = Scene::new();
    let daemon = Daemon::start(&scene, &[]);
    let output = scene.with_state(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("another floodwayd keeps its state in "), "{}", said(&output));
    daemon.assert_runs(1);
}

#[test]
fn what_is_written_into_the_directory_runs() {
    let scene = Scene::new();
    let daemon = Daemon::start(&scene, &["--watch"]);
    daemon.wait_for(|status| status.watch.as_ref().is_some_and(|watch| watch.polling.is_none()));
    for generation in 2..5 {
        scene.write(generation);
        daemon.wait_for(|status| {
            status.running.as_ref().is_some_and(|running| running.generation == generation)
        });
        daemon.assert_runs(generation);
    }
    scene.break_policy();
    daemon.wait_for(|status| status.refused.is_some());
    daemon.assert_runs(4);
    daemon.kill();
    let daemon = Daemon::start(&scene, &["--watch"]);
    daemon.assert_runs(4);
    scene.write(9);
    daemon.wait_for(|status| status.policy == PolicyStatus::Current);
    daemon.assert_runs(9);
}

/// A user namespace in which nobody may have an inotify instance.
#[test]
fn without_inotify_it_looks_and_says_so() {
    let scene = Scene::new();
    let deaf = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"";
    let namespace = ["-Ur", "sh", "-c", deaf, "sh"];
    let can = Command::new("unshare").args(namespace).arg("true").status();
    if !can.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no user namespace with limits of its own");
        return;
    }
    let plain = scene.with_state(&["--watch"]);
    let mut command = Command::new("unshare");
    command.args(namespace).arg(plain.get_program()).args(plain.get_args()).stderr(Stdio::piped());
    let daemon = Daemon { child: Some(command.spawn().unwrap()), client: Client::new(scene.path("s")) };
    let status = daemon.wait_for(|status| status.watch.is_some());
    assert_eq!(status.watch.unwrap().polling.as_deref(), Some("too many open files"));
    scene.write(2);
    daemon.wait_for(|status| status.running.as_ref().is_some_and(|running| running.generation == 2));
    daemon.assert_runs(2);
    let log = daemon.end();
    assert!(log.contains("inotify is of no use (too many open files): looking every 2s instead"), "{log}");
}

/// A capture of one frame: a TCP segment from the host of red0 to its remote, to this port.
fn capture(port: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0x0a, 0x20, 2, 0, 0, 0, 0x0a, 0x10, 8, 0];
    frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 1, 0, 10, 10, 1, 0, 20]);
    frame.extend([0x9c, 0x40]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
    // The file's header: magic, version 2.4, no zone, 65535 bytes, Ethernet. A packet's: no time, captured and whole length.
    let mut file: Vec<u8> = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 1].map(u32::to_be_bytes).concat();
    file.extend([0, 0, frame.len() as u32, frame.len() as u32].map(u32::to_be_bytes).concat());
    file.extend(frame);
    file
}

#[test]
fn a_rule_with_log_writes_a_line_for_a_flow() {
    let scene = Scene::new();
    let capture_file = scene.path("in.pcap");
    fs::write(&capture_file, capture(9999)).unwrap();
    let fabric = FABRIC.replace(
        "name: red0, device: \"memory:\"",
        &format!("name: red0, device: \"pcap:rx={}\"", capture_file.display()),
    );
    fs::write(scene.path("p/fabric.yaml"), fabric + "  vteps: [{name: far, address: 192.0.2.2}]\n").unwrap();
    let remote = "  remotes: [{vtep: far, mac: 02:00:00:00:0a:20, addresses: [10.1.0.20]}]\n";
    let rule = "---\napiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {name: p}\nspec:\n  tenant: red\n  egress:\n    - {action: Deny, log: true, services: [{protocol: TCP, port: 9999}]}\n";
    fs::write(scene.path("p/red.yaml"), tenant(1) + remote + rule).unwrap();
    let daemon = Daemon::start(&scene, &[]);
    let start = Instant::now();
    let log = loop {
        let log = daemon.client.tenants().unwrap()[0].log;
        if log.written > 0 {
            break log;
        }
        assert!(start.elapsed() < PATIENCE, "{log:?}");
        std::thread::park_timeout(Duration::from_millis(10));
    };
    assert_eq!((log.written, log.suppressed, log.lost), (1, 0, 0));
    let said = daemon.end();
    let file = scene.path("p/red.yaml");
    let line = format!(
        "flow tenant=\"red\" from=\"red0\" to=\"far\" src=10.1.0.10 dst=10.1.0.20 service=\"tcp 40000 > 9999\" verdict=\"policy-deny\" rule=\"{}:17\"",
        file.display()
    );
    assert!(said.contains(&line), "no {line} in\n{said}");
}
