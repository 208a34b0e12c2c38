//! The built floodwayd, without DPDK: what it says when it cannot start, and what it leaves when it ends.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::{
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    process::Command,
};

use nix::sys::signal::Signal;
use scenarios::daemon::{Daemon, Ended, programs};
use tempfile::TempDir;

/// A folder for one daemon: policy, socket, log.
struct Place {
    folder: TempDir,
}

impl Place {
    /// With a policy that has these devices for the uplink and the one tenant's port.
    fn new(uplink: &str, port: &str) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(place.policy()).unwrap();
        fs::write(place.policy().join("all.yaml"), policy(uplink, port)).unwrap();
        place
    }

    fn policy(&self) -> PathBuf {
        self.folder.path().join("policy")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("run/floodwayd.sock")
    }

    fn start(&self) -> Result<Daemon, Ended> {
        self.start_with(&self.policy(), "log")
    }

    fn start_with(&self, policy: &Path, log: &str) -> Result<Daemon, Ended> {
        let mut command = Command::new(programs().join("floodwayd"));
        command.arg("--policy").arg(policy).arg("--socket").arg(self.socket());
        command.args(["--idle-sleep-us", "200", "--flows", "1024", "--buffers", "1024"]);
        Daemon::start(command, &self.socket(), &self.folder.path().join(log))
    }

    /// What it says on its way out; one sentence on one line, and exit code 1.
    fn refusal(&self) -> String {
        sentence(self.start())
    }
}

fn sentence(started: Result<Daemon, Ended>) -> String {
    let Err(Ended { code, log }) = started else { panic!("it runs") };
    assert_eq!(code, 1, "{log}");
    let said: Vec<&str> = log.lines().filter(|line| line.starts_with("floodwayd: ")).collect();
    assert_eq!(said.len(), 1, "one sentence in:\n{log}");
    assert!(!log.contains("panicked"), "{log}");
    said[0].strip_prefix("floodwayd: ").unwrap().to_owned()
}

fn policy(uplink: &str, port: &str) -> String {
    format!(
        r#"apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {{name: test}}
spec:
  ports:
    - {{name: uplink0, device: "{uplink}", mtu: 1600}}
    - {{name: red0, device: "{port}", mtu: 1500}}
  uplink: {{port: uplink0, addresses: [192.0.2.1/24]}}
  vteps: [{{name: fabric, address: 192.0.2.2}}]
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {{name: red}}
spec:
  vni: 100
  ports: [{{port: red0, mac: "02:00:00:00:0a:10", addresses: [10.1.0.10]}}]
  remotes: [{{name: peer, vtep: fabric, mac: "02:00:00:00:0a:20", addresses: [10.1.0.20]}}]
"#
    )
}

#[test]
fn it_serves_until_sigterm_or_sigint_and_takes_its_socket_along() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let place = Place::new("memory:", "memory:");
        let mut daemon = place.start().unwrap();
        assert!(fs::metadata(place.socket()).unwrap().file_type().is_socket());
        let report = daemon.client().report().unwrap();
        assert_eq!((report.generation, report.workers.len(), report.ports.len()), (1, 1, 2));
        assert_eq!(report.workers[0].generation, 1);
        assert_eq!(daemon.end(signal), Ok(0));
        assert!(!place.socket().exists(), "the socket is left");
        assert!(daemon.log().contains("every packet is accounted for"), "{}", daemon.log());
    }
}

#[test]
fn a_second_daemon_on_the_socket_is_refused_and_the_first_stays() {
    let place = Place::new("memory:", "memory:");
    let mut first = place.start().unwrap();
    let said = sentence(place.start_with(&place.policy(), "second.log"));
    assert_eq!(
        said,
        format!(
            "another floodwayd answers on {}; stop it or choose another --socket",
            place.socket().display()
        )
    );
    assert_eq!(first.client().report().unwrap().generation, 1);
    assert_eq!(first.end(Signal::SIGTERM), Ok(0));
}

#[test]
fn the_socket_of_a_daemon_that_was_killed_is_taken_over() {
    let place = Place::new("memory:", "memory:");
    assert_eq!(place.start().unwrap().end(Signal::SIGKILL), Ok(128 + 9));
    assert!(place.socket().exists(), "nobody could remove it");
    assert_eq!(place.start().unwrap().end(Signal::SIGTERM), Ok(0));
    assert!(!place.socket().exists());
}

#[test]
fn a_broken_policy_is_refused_with_all_errors() {
    let place = Place::new("memory:", "memory:");
    let file = place.policy().join("all.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text
        .replace("mtu: 1600", "mut: 1600")
        .replace("vni: 100", "vni: red")
        .replace("10.1.0.20", "10.1.0.256");
    fs::write(&file, text).unwrap();
    let Err(Ended { code, log }) = place.start() else { panic!("it runs") };
    assert_eq!(code, 1);
    for position in ["6:42: error: unknown field `mut`", "15:8: error:", "17:78: error:"] {
        assert!(log.contains(&format!("{}:{position}", file.display())), "{position} in:\n{log}");
    }
    assert!(log.contains(&format!("the policy in {} is refused", place.policy().display())), "{log}");
    assert!(!place.socket().exists());
}

#[test]
fn a_policy_directory_that_is_missing_or_empty_is_one_sentence() {
    let place = Place::new("memory:", "memory:");
    let missing = place.folder.path().join("nothing-here");
    let said = sentence(place.start_with(&missing, "log"));
    assert!(said.contains("nothing-here") && said.contains("no such file or directory"), "{said}");
    fs::create_dir(&missing).unwrap();
    let said = sentence(place.start_with(&missing, "log"));
    assert!(said.contains("nothing-here") && said.contains("no policy file"), "{said}");
}

#[test]
fn a_port_that_cannot_be_opened_is_one_sentence_that_names_it() {
    let place = Place::new("memory:", "pcap:rx=nothing-here.pcap,tx=out.pcap");
    let said = place.refusal();
    assert!(said.contains(r#"port "red0""#) && said.contains("nothing-here.pcap"), "{said}");
    // It exists and is no TAP; without root, nobody may have it at all.
    let said = Place::new("memory:", "tap:lo").refusal();
    let fix = if nix::unistd::geteuid().is_root() { "choose another name" } else { "run as root" };
    assert!(said.contains(r#"port "red0""#) && said.contains(fix), "{said}");
}

#[test]
fn a_device_that_is_none_is_an_error_of_the_policy() {
    for (device, said) in
        [("tape:red0", "did you mean `tap`?"), ("tap:a-name-that-is-too-long", "1 to 15 characters")]
    {
        let place = Place::new("memory:", device);
        let Err(Ended { code, log }) = place.start() else { panic!("{device} runs") };
        let position = format!("{}:7:28: error", place.policy().join("all.yaml").display());
        assert!(code == 1 && log.contains(&position) && log.contains(said), "{log}");
    }
}

#[test]
fn ports_of_both_kinds_are_refused() {
    let said = Place::new("dpdk:net_null0", "memory:").refusal();
    assert!(said.starts_with(r#"port "uplink0" is a DPDK device and port "red0" is not"#), "{said}");
    let said = Place::new("tap:fw-test", "dpdk:net_null0").refusal();
    assert!(said.starts_with(r#"port "red0" is a DPDK device and port "uplink0" is not"#), "{said}");
}

#[test]
fn a_daemon_without_dpdk_says_how_to_have_it() {
    let said = Place::new("dpdk:net_null0", "dpdk:net_null1").refusal();
    assert!(said.ends_with("this floodwayd was built without DPDK: build it with --features dpdk"), "{said}");
}

#[test]
fn its_tap_interfaces_come_and_go_with_it() {
    if !nix::unistd::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        return println!("skipped: TAP interfaces need root and /dev/net/tun");
    }
    let names = ["u", "r"].map(|letter| format!("fwt{letter}{}", std::process::id()));
    let interfaces = || names.iter().filter(|name| Path::new("/sys/class/net").join(name).exists()).count();
    let place = Place::new(&format!("tap:{}", names[0]), &format!("tap:{}", names[1]));
    let mut daemon = place.start().unwrap();
    assert_eq!(interfaces(), 2);
    assert_eq!(daemon.end(Signal::SIGTERM), Ok(0));
    assert_eq!(interfaces(), 0, "a TAP is left");
}

#[test]
fn wrong_arguments_are_wrong_usage() {
    let output =
        Command::new(programs().join("floodwayd")).args(["--policy", "x", "--flows", "7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("1024..=16777216"));
    let output = Command::new(programs().join("floodwayd")).arg("--help").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("--policy <DIR>"));
}

#[test]
fn a_cpu_that_is_not_there_is_one_sentence() {
    let place = Place::new("memory:", "memory:");
    let mut command = Command::new(programs().join("floodwayd"));
    command.arg("--policy").arg(place.policy()).arg("--socket").arg(place.socket()).args(["--lcore", "1023"]);
    let said = sentence(Daemon::start(command, &place.socket(), &place.folder.path().join("log")));
    assert!(said.contains("CPU 1023") && said.contains("--lcore"), "{said}");
}
