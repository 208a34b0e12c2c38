//! `floodway doctor` on made trees: exit codes, both forms, and a refused policy directory.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const FABRIC: &str = "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {name: box}
spec:
  ports:
    - {name: uplink0, device: \"DEVICE\", mtu: 1600}
  uplink: {port: uplink0, addresses: [192.0.2.1/24]}
";

/// A tree of files and a policy directory beside it.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new(device: &str) -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        scene.write("p/fabric.yaml", &FABRIC.replace("DEVICE", device));
        scene.write("root/run/systemd/timesync/synchronized", "");
        scene
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodway"));
        command.arg("doctor").arg("--root").arg(self.path("root")).arg("--policy").arg(self.path("p"));
        command.args(arguments).output().unwrap()
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_exit_code_is_that_of_the_worst() {
    let scene = Scene::new("memory:");
    let code = |scene: &Scene| scene.run(&[]).status.code();
    assert_eq!(code(&scene), Some(0), "{}", stdout(&scene.run(&[])));
    scene.write("root/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    assert_eq!(code(&scene), Some(9));
    scene.write("p/fabric.yaml", &FABRIC.replace("DEVICE", "dpdk:net_null0"));
    assert_eq!(code(&scene), Some(10));
    scene.write("p/fabric.yaml", "kind: Fabirc\n");
    assert_eq!(code(&scene), Some(1));
}

#[test]
fn what_is_wrong_is_said_with_the_command() {
    let scene = Scene::new("dpdk:net_null0");
    let text = stdout(&scene.run(&[]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "fail     hugepages       /sys/kernel/mm/hugepages: none");
    assert_eq!(lines[1].trim(), "no hugepage is reserved; packet buffers need 69 MiB");
    assert_eq!(lines[2].trim(), "fix: sysctl -w vm.nr_hugepages=35");
    assert!(lines.last().unwrap().contains("2 fail"), "{text}");
}

#[test]
fn programs_get_the_same() {
    let scene = Scene::new("dpdk:net_null0");
    let output = scene.run(&["--output", "json"]);
    assert!(output.stderr.is_empty());
    let examined: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(examined["verdict"], "fail");
    let findings = examined["findings"].as_array().unwrap();
    assert_eq!(findings.len(), doctor::names().count());
    assert_eq!(findings[0]["fix"], "sysctl -w vm.nr_hugepages=35");
    assert_eq!(findings[0]["verdict"], "fail");
}

/// On whatever machine the test runs: it ends, and says something of each check.
#[test]
fn this_machine_is_examined() {
    let output = Command::new(env!("CARGO_BIN_EXE_floodway"))
        .args(["--socket", "/nonexistent/s", "doctor"])
        .output()
        .unwrap();
    assert!(matches!(output.status.code(), Some(9 | 10)), "{output:?}");
    let text = stdout(&output);
    assert!(doctor::names().all(|name| text.contains(name)), "{text}");
    assert!(text.contains("no floodwayd answers on /nonexistent/s"), "{text}");
}
