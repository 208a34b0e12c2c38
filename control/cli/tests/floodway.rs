//! The built binary: exact output and exit codes, with files and a daemon that is played by the agent's fake.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../agent/tests/fake/mod.rs"]
mod fake;

use std::{
    fs::{self, File},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Output, Stdio},
};

use fake::{FABRIC, Server, tenant};

const FLOODWAY: &str = env!("CARGO_BIN_EXE_floodway");

/// A directory of its own with `p/fabric.yaml` and `p/red.yaml`.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        fs::create_dir(files.0.path().join("p")).unwrap();
        files.write("fabric.yaml", FABRIC);
        files.write("red.yaml", tenant(9999));
        files
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.0.path().join("p").join(name), text).unwrap();
    }

    /// The fabric and the tenant with a mistake each, and an excerpt of both as it is to be printed.
    fn spoil(&self) -> &'static str {
        self.write("fabric.yaml", FABRIC.replace("mtu: 1500", "mtuu: 1500"));
        self.write("red.yaml", tenant(9999).replace("protocol: TCP", "protocol: TPC"));
        "\
p/fabric.yaml:8:39: error: unknown field `mtuu` in a port
 8 |     - {name: red0, device: \"memory:\", mtuu: 1500}
   |                                       ^
"
    }

    /// Runs `floodway` beside `p`, with an environment of its own.
    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(FLOODWAY);
        command.args(arguments).current_dir(self.0.path()).env_remove("FLOODWAY_SOCKET");
        command
    }
}

#[track_caller]
fn assert_ends(output: &Output, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout);
    assert_eq!(output.status.code(), Some(code));
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn check_takes_good_files() {
    let files = Files::new();
    assert_ends(&files.run(&["check", "p"]), 0, "ok: 1 tenant, 1 port, 3 rules\n", "");
    let answer = json(&files.run(&["check", "p", "--output", "json"]));
    assert_eq!(answer["counts"], serde_json::json!({"tenants": 1, "ports": 1, "rules": 3}));
    assert_eq!(answer["digest"].as_str().unwrap().len(), 16);
}

#[test]
fn check_refuses_bad_files_with_all_that_is_wrong() {
    let files = Files::new();
    let fabric = files.spoil();
    let output = files.run(&["check", "p/"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with(fabric), "{stderr}");
    assert!(stderr.contains("\np/red.yaml:27:29: error: "), "{stderr}");
    assert!(stderr.ends_with("\nfloodway: the policy files are refused\n"), "{stderr}");
    assert!(output.stdout.is_empty());
    assert_eq!(output.status.code(), Some(1));

    let output = files.run(&["check", "p", "--output", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let answer = json(&output);
    let first = &answer["diagnostics"]["list"][0];
    assert_eq!(
        (&first["source"], &first["line"], &first["column"]),
        (&"p/fabric.yaml".into(), &8.into(), &39.into())
    );
    assert_eq!(answer["error"], "the policy files are refused");
}

#[test]
fn directories_that_cannot_be_read_are_refused() {
    let files = Files::new();
    fs::create_dir(files.0.path().join("empty")).unwrap();
    for (directory, sentence) in [
        ("none", "cannot read the directory none: no such file or directory"),
        ("p/red.yaml", "p/red.yaml is not a directory; give the directory that holds the policy files"),
        ("empty", "empty holds no policy file: nothing in it ends in .yaml, .yml or .json"),
    ] {
        for command in ["check", "apply"] {
            let output = files.run(&[command, directory]);
            assert_ends(&output, 1, "", &format!("floodway: {sentence}\n"));
            let output = files.run(&[command, directory, "-o", "json"]);
            assert_eq!((json(&output)["error"].as_str(), output.status.code()), (Some(sentence), Some(1)));
        }
    }
}

#[test]
fn wrong_usage_has_its_code() {
    let files = Files::new();
    for arguments in [
        &["frob"][..],
        &[],
        &["check"],
        &["check", "p", "q"],
        &["show", "flows", "--limit", "0"],
        &["show", "rules", "--limit", "65537"],
        &["check", "p", "--output", "xml"],
        &["apply", "p", "--expect-generation", "-1"],
    ] {
        let output = files.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    assert_eq!(files.run(&["--help"]).status.code(), Some(0));
}

#[test]
fn no_daemon_has_its_code() {
    let files = Files::new();
    for arguments in [&["apply", "p"][..], &["show", "status"], &["show", "drops", "--all"]] {
        let output = files.command(arguments).env("FLOODWAY_SOCKET", "s").output().unwrap();
        assert_ends(&output, 3, "", "floodway: no floodwayd answers on s; start it, or give its --socket\n");
        // What is given on the command line comes first.
        let output =
            files.command(arguments).args(["--socket", "t"]).env("FLOODWAY_SOCKET", "s").output().unwrap();
        assert_ends(&output, 3, "", "floodway: no floodwayd answers on t; start it, or give its --socket\n");
    }
}

/// Needs root, to become somebody else.
#[test]
fn somebody_else_gets_no_permission() {
    let server = Server::start();
    let public = tempfile::tempdir().unwrap();
    fs::set_permissions(public.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(server.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = public.path().join("floodway");
    fs::copy(FLOODWAY, &copy).unwrap();
    let nobody = 65_534;
    let socket = server.socket.to_str().unwrap();
    let output = Command::new(copy)
        .args(["--socket", socket, "show", "status"])
        .current_dir("/")
        .gid(nobody)
        .uid(nobody)
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: only root can become somebody else");
            return;
        }
        output => output.unwrap(),
    };
    let sentence =
        format!("no permission to connect to {socket}; run as the user of floodwayd, usually root");
    assert_ends(&output, 3, "", &format!("floodway: {sentence}\n"));
}

#[test]
fn apply_says_what_it_did() {
    let (files, server) = (Files::new(), Server::start());
    let socket = server.socket.to_str().unwrap();
    let apply = |more: &[&str]| files.run(&[&["apply", "p", "--socket", socket][..], more].concat());
    let said = "applied: generation 1 with 1 tenant, 1 port, 3 rules; every worker runs it after 37 us\n";
    assert_ends(&apply(&[]), 0, said, "");
    assert_ends(&apply(&[]), 0, "unchanged: generation 1 with 1 tenant, 1 port, 3 rules runs already\n", "");
    let answer = json(&apply(&["--output", "json"]));
    assert_eq!((&answer["changed"], &answer["generation"]), (&false.into(), &1.into()));

    let conflict = "floodway: generation 1 runs, not 7 as expected; nothing was changed\n";
    assert_ends(&apply(&["--expect-generation", "7"]), 3, "", conflict);

    files.write("red.yaml", tenant(9998));
    server.plane.set_stuck(&[0, 1]);
    let stuck = "floodway: generation 2 is published, but after 1000 ms these workers do not run it: 0, 1\n";
    assert_ends(&apply(&["--expect-generation", "1"]), 4, "", stuck);
    let output = apply(&["--output", "json"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(json(&output)["workers"], serde_json::json!([0, 1]));
    assert_eq!(server.plane.generations(), [1, 2]);
}

#[test]
fn apply_prints_the_daemons_diagnostics_like_check() {
    let (files, server) = (Files::new(), Server::start());
    let fabric = files.spoil();
    let socket = server.socket.to_str().unwrap();
    let output = files.run(&["apply", "p", "--socket", socket]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with(fabric), "{stderr}");
    assert!(stderr.ends_with("the running program stays\n"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
    assert!(server.plane.generations().is_empty());
}

#[test]
fn files_that_are_no_utf8_are_diagnosed_by_both() {
    let (files, server) = (Files::new(), Server::start());
    files.write("red.yaml", b"kind: \xff\n");
    let socket = server.socket.to_str().unwrap();
    for command in ["check", "apply"] {
        let output = files.run(&[command, "p", "--socket", socket]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("p/red.yaml:1:7: error: "), "{stderr}");
        assert_eq!(output.status.code(), Some(1));
    }
    assert!(server.plane.generations().is_empty());
}

fn show(server: &Server, arguments: &[&str]) -> Output {
    let files = Files::new();
    let socket = server.socket.to_str().unwrap();
    files.run(&[&["show", "--socket", socket][..], arguments].concat())
}

fn applied() -> Server {
    let server = Server::start();
    server.client().apply(&fake::apply(9999)).unwrap();
    server
}

#[test]
fn show_status_sums_up() {
    let server = applied();
    let digest = server.client().program().unwrap().digest;
    let expected = format!(
        "\
program   generation 1, digest {digest}
content   1 tenant, 1 port, 3 rules
uplink    uplink0
workers   2 workers, all on generation 1
flows     6 of 131072
hits      180
misses    20
uncached  0
held      4
scanned   0 rule lists
qps       2 of 32768
untracked 0
"
    );
    // When it was applied is another time at each run.
    let output = show(&server, &["status"]);
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    let (policy, others): (Vec<&str>, Vec<&str>) = lines.lines().partition(|line| line.starts_with("policy"));
    assert_eq!(others.join("\n") + "\n", expected);
    let [policy] = policy[..] else { panic!("{lines}") };
    assert!(
        policy.starts_with("policy    current, by apply at 20") && policy.ends_with("Z, confirmed"),
        "{policy}"
    );
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    server.plane.set_stuck(&[1]);
    let output = show(&server, &["status"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("workers   2 workers, 1 not on generation 1\n"));
    let empty = show(&Server::start(), &["status"]);
    let stdout = String::from_utf8_lossy(&empty.stdout);
    assert!(stdout.starts_with("program   the empty program, which drops everything\n"), "{stdout}");
}

#[test]
fn show_prints_plain_tables() {
    let server = applied();
    let tables: [(&[&str], &str); 6] = [
        (
            &["tenants"],
            "\
TENANT  VNI  PORTS-RX  PORTS-TX  FABRIC-RX  FABRIC-TX  DROPS  LOGGED  UNLOGGED  FLOWS  GAVE-WAY  REFUSED  QPS
red     100         7         5          7          5      6       3         3      9         9        6    8
",
        ),
        (
            &["ports"],
            "\
PORT     TENANT  DEVICE   RX-PACKETS  RX-BYTES  TX-PACKETS  TX-BYTES  ORIGINATED  DROPS
uplink0  -       memory:           7       700           5       500           0      4
red0     red     memory:           7       700           5       500           1      2
",
        ),
        (
            &["drops"],
            "\
REASON       PACKETS  WHERE                                    MEANING
spoofed-mac        3  port:uplink0=1,port:red0=2,tenant:red=2  The source MAC is not the port's.
policy-deny        4  tenant:red=4                             A rule denies it.
unknown-vni        3  port:uplink0=3                           A VNI that no tenant has.
",
        ),
        (
            &["rules"],
            "\
RULE           VERDICT  EGRESS-OF  INGRESS-OF  SERVICES  PEERS
p/red.yaml:26  deny     red0       -           tcp/9999  any
p/red.yaml:28  accept   red0       -           any       any
p/red.yaml:30  accept   -          red0        any       10.1.0.20/32
",
        ),
        (&["neighbours"], "ADDRESS    MAC\n192.0.2.2  unresolved\n"),
        (
            &["workers"],
            "\
WORKER  GENERATION  POLLS  IDLE-POLLS  FLOWS  FLOW-CAPACITY  HITS  MISSES  UNCACHED  TAKEN-OVER  HANDED-OVER  HELD  DATAGRAMS  UNFINISHED  SCANNED-LISTS
     0           1   1000         250      3          65536    90      10         0          30           32     0          0           0              0
     1           1   1000         250      3          65536    90      10         0          30           32     0          0           0              0
",
        ),
    ];
    for (arguments, expected) in tables {
        assert_ends(&show(&server, arguments), 0, expected, "");
    }
}

#[test]
fn show_flows_says_when_there_are_more() {
    let server = applied();
    let expected = "\
TENANT  FROM  TO      SRC        DST        SERVICE           VERDICT  STAGE  RULE           PACKETS  BYTES
red     red0  fabric  10.1.0.10  10.1.0.20  tcp 40000 > 5201  accept   open   p/red.yaml:31        9    900
";
    let output = show(&server, &["flows", "--limit", "1"]);
    assert_ends(&output, 0, expected, "floodway: there are more than 1; see --limit\n");
    let output = show(&server, &["flows"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 4);
    assert!(output.stderr.is_empty());
}

#[test]
fn show_qps_has_a_line_for_each_side() {
    let server = applied();
    let expected = "\
TENANT  TYPE  STATE  SRC        SRC-QP  DST        DST-QP  PACKETS  BYTES      PSN  GAPS  RETRIES  NAKS  RNR  CNPS  ORDER
red     rc    open   10.1.0.10  0x139   10.1.0.20  0x169        12  12000  7010278     1        2     5    4     3      0
red     rc    open   10.1.0.20  0x169   10.1.0.10  0x139         9   9000  7010278     1        2     5    4     3      0
";
    assert_ends(&show(&server, &["qps"]), 0, expected, "");
    let output = show(&server, &["qps", "--output", "json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["qps"][0]["peer"]["naks"]["psn_sequence"], 5);
}

#[test]
fn show_drops_lists_all_reasons_when_asked() {
    let server = applied();
    let output = show(&server, &["drops", "--all"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.lines().count(), 1 + program::DropReason::COUNT);
    for reason in program::DropReason::ALL {
        let line = stdout.lines().find(|line| line.split(' ').next() == Some(reason.name())).unwrap();
        assert!(line.ends_with(reason.meaning().trim()), "{line}");
    }
}

#[test]
fn show_gives_json_as_the_api_does() {
    let server = applied();
    let report = serde_json::to_value(agent::DataPlane::report(&*server.plane)).unwrap();
    let shown = |what: &str| json(&show(&server, &[what, "--output", "json"]));
    assert_eq!(shown("status")["report"], report);
    for what in ["tenants", "ports", "neighbours", "workers"] {
        assert_eq!(shown(what), report[what], "{what}");
    }
    assert_eq!(shown("drops").as_array().unwrap().len(), 3);
    assert_eq!(shown("flows")["flows"].as_array().unwrap().len(), 3);
    assert_eq!(shown("rules")["truncated"], false);
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    let files = Files::new();
    for arguments in [&["check", "p"][..], &["man"], &["completion", "bash"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = files.command(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        assert_ends(&output.wait_with_output().unwrap(), 0, "", "");

        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = files.command(arguments).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("floodway: cannot write the output: "), "{stderr}");
        assert_eq!(output.status.code(), Some(5));
    }
}

/// A refusal keeps its code when nobody reads what it says.
#[test]
fn a_closed_stderr_changes_no_code() {
    let files = Files::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = files.command(&["check", "none"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn completion_and_man_name_every_command() {
    let files = Files::new();
    for arguments in [&["completion", "bash"][..], &["completion", "zsh"], &["completion", "fish"], &["man"]]
    {
        let output = files.run(arguments);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0));
        assert!(
            ["check", "apply", "show", "plan", "explain", "schema"]
                .iter()
                .all(|command| stdout.contains(command)),
            "{arguments:?}"
        );
    }
}

/// The policies that are shipped are good.
#[test]
fn shipped_policies_pass() {
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/policies");
    for directory in fs::read_dir(policies).unwrap() {
        let output = Command::new(FLOODWAY).arg("check").arg(directory.unwrap().path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
