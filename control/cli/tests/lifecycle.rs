//! The built binary: confirm, rollback and history, against a daemon that is played by the agent's fake.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../agent/tests/fake/mod.rs"]
mod fake;

use std::{
    fs,
    process::{Command, Output},
};

use agent::{Start, api::Outcome};
use fake::{FABRIC, Server, tenant};

/// A directory `p` that a daemon was started with.
struct Scene {
    files: tempfile::TempDir,
    server: Server,
}

impl Scene {
    fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        let policy = files.path().join("p");
        fs::create_dir(&policy).unwrap();
        fs::write(policy.join("fabric.yaml"), FABRIC).unwrap();
        fs::write(policy.join("red.yaml"), tenant(1)).unwrap();
        let start = Start { policy, state: None, watch: false, generations_kept: 16 };
        Self { files, server: Server::start_from(&start) }
    }

    fn write(&self, denied_port: u16) {
        fs::write(self.files.path().join("p/red.yaml"), tenant(denied_port)).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodway"));
        command.args(arguments).arg("--socket").arg(&self.server.socket).current_dir(self.files.path());
        command.output().unwrap()
    }
}

#[track_caller]
fn assert_ends(output: &Output, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout);
    assert_eq!(output.status.code(), Some(code));
}

const COUNTS: &str = "1 tenant, 1 port, 3 rules";

#[test]
fn an_apply_waits_to_be_confirmed() {
    let scene = Scene::new();
    scene.write(2);
    let applied = format!("applied: generation 2 with {COUNTS}; every worker runs it after 37 us\n");
    let note = "floodway: rolls back in 300 s unless `floodway confirm` comes before\n";
    assert_ends(&scene.run(&["apply", "p", "--confirm", "5m"]), 0, &applied, note);
    scene.write(3);
    let output = scene.run(&["apply", "p"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("floodway: generation 2 waits "), "{said}");
    assert!(
        said.ends_with(
            " s more to be confirmed: `floodway confirm` keeps it, `floodway rollback` ends it; nothing was changed\n"
        ),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(3));
    let output = scene.run(&["history"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("floodway: generation 2 is rolled back in 2"), "{said}");
    let wrong = "floodway: generation 2 waits to be confirmed, not 7\n";
    assert_ends(&scene.run(&["confirm", "7"]), 3, "", wrong);
    assert_ends(&scene.run(&["confirm"]), 0, "confirmed: generation 2 stays\n", "");
    assert_ends(&scene.run(&["confirm"]), 3, "", "floodway: nothing waits to be confirmed\n");
    assert!(scene.run(&["apply", "p"]).status.success());
}

#[test]
fn a_rollback_publishes_what_ran_before() {
    let scene = Scene::new();
    let nothing = "floodway: no generation with other files is kept; nothing was changed\n";
    assert_ends(&scene.run(&["rollback"]), 3, "", nothing);
    scene.write(2);
    assert!(scene.run(&["apply", "p"]).status.success());
    let applied = |generation| {
        format!("applied: generation {generation} with {COUNTS}; every worker runs it after 37 us\n")
    };
    assert_ends(&scene.run(&["rollback"]), 0, &applied(3), "");
    assert_ends(&scene.run(&["rollback", "2"]), 0, &applied(4), "");
    let unknown =
        "floodway: no way back to generation 9: it is not kept; kept are 1, 2, 3, 4; nothing was changed\n";
    assert_ends(&scene.run(&["rollback", "9"]), 3, "", unknown);

    scene.write(5);
    assert!(scene.run(&["apply", "p", "--confirm", "1h"]).status.success());
    assert_ends(&scene.run(&["rollback"]), 0, &applied(6), "");
    let output = scene.run(&["history"]);
    let table = String::from_utf8_lossy(&output.stdout);
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<_> = table.lines().map(columns).collect();
    assert_eq!(lines[0], ["GENERATION", "DIGEST", "WHEN", "BY", "OUTCOME"]);
    let shown: Vec<_> = lines[1..].iter().map(|line| [&line[0][..], &line[3], &line[4]]).collect();
    assert_eq!(
        shown,
        [
            ["6", "rollback", "confirmed"],
            ["5", "apply", "rolled-back"],
            ["4", "rollback", "confirmed"],
            ["3", "rollback", "confirmed"],
            ["2", "apply", "confirmed"],
            ["1", "start", "confirmed"],
        ]
    );
    // Generations with the same files have the same digest.
    assert_eq!((&lines[1][1], &lines[3][1]), (&lines[5][1], &lines[5][1]));
    assert!(lines[1..].iter().all(|line| line[2].len() == 20 && line[2].ends_with('Z')), "{table}");

    let output = scene.run(&["history", "--output", "json"]);
    let list: agent::api::HistoryList = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list.generations[4].outcome, Outcome::RolledBack);
}

#[test]
fn files_that_state_what_is_false_are_applied_only_when_it_is_meant() {
    let scene = Scene::new();
    scene.write(22);
    let shut = "apiVersion: floodway.dev/v1alpha1\nkind: Statement\nmetadata: {name: shut}\nspec:\n  expect: deny\n  from: {tenant: red, ports: [red0]}\n  to: {}\n  services: [{protocol: TCP, port: 23}]\n";
    fs::write(scene.files.path().join("p/shut.yaml"), shut).unwrap();
    let output = scene.run(&["apply", "p"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("p/shut.yaml:3:18: error: statement shut (deny) is false of a packet: tenant red, port:red0, 10.1.0.10 > 10.1.0.20, tcp 49152 > 23; accepted by p/red.yaml:28 to vtep:fabric\n 3 | metadata: {name: shut}"),
        "{said}"
    );
    assert!(said.ends_with("since what they state is not proven; the running program stays\n"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    let output = scene.run(&["apply", "p", "--unproven"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("warning: statement shut (deny) is false"));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("applied: generation 2 "));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_status_shows_what_waits() {
    let scene = Scene::new();
    scene.write(2);
    assert!(scene.run(&["apply", "p", "--confirm", "1h"]).status.success());
    let output = scene.run(&["show", "status"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("policy ").starts_with("policy    current, by apply at 20"), "{text}");
    assert!(line("policy ").ends_with("Z, unconfirmed"), "{text}");
    assert!(line("waits ").starts_with("waits     generation 2, 3"), "{text}");
    assert!(line("waits ").ends_with(" s more to be confirmed"), "{text}");
}

#[test]
fn times_out_of_bounds_are_wrong_usage() {
    let scene = Scene::new();
    for time in ["0", "0s", "2h", "soon", "-5s", ""] {
        assert_eq!(scene.run(&["apply", "p", &format!("--confirm={time}")]).status.code(), Some(2), "{time}");
    }
}
