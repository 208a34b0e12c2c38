//! `floodway trace` and `floodway capture` against the built floodwayd, with a kernel's packets on a TAP port in a network
//! namespace of their own. Needs root.
#![expect(clippy::unwrap_used, reason = "the functions beside the tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError, PcapNGReader};
use program::{TraceReport, TraceRequest, TracedStep};
use scenarios::daemon::{Daemon, programs};
use scenarios::policies::{ONE_TENANT, one_tenant_fabric};
use tempfile::TempDir;

const RULES: &str = r#"apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: red-egress}
spec:
  tenant: red
  egress:
    - action: Accept
      services: [{protocol: UDP, port: 5201}]
"#;
/// Line of the rule, behind the fabric's and the tenant's.
const RULE_LINE: u32 = 25;

/// A daemon in a namespace, and a host that sends to an open and to a closed port all the time.
struct Bench {
    // Before what it needs while it ends.
    daemon: Daemon,
    sender: Child,
    namespace: String,
    folder: TempDir,
}

impl Bench {
    fn start() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: not root");
            return None;
        }
        let namespace = format!("fwtrace{}", std::process::id());
        if !run(Command::new("ip").args(["netns", "add", &namespace])).status.success() {
            println!("skipped: no network namespaces here");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let fabric = one_tenant_fabric("memory:", "tap:fwtrace0");
        fs::write(at("policy.yaml"), format!("{fabric}---\n{ONE_TENANT}{RULES}")).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace]).arg(programs().join("floodwayd"));
        command.arg("--policy").arg(folder.path()).arg("--socket").arg(at("sock"));
        command.args(["--idle-sleep-us", "200", "--flows", "1024", "--buffers", "1024"]);
        let daemon = Daemon::start(command, &at("sock"), &at("log")).unwrap();
        let host = "ip link set fwtrace0 address 02:00:00:00:0a:10 && ip link set fwtrace0 up \
            && ip addr add 10.1.0.10/24 dev fwtrace0 \
            && ip neigh add 10.1.0.20 lladdr 02:00:00:00:0a:20 dev fwtrace0";
        let set = run(Command::new("ip").args(["netns", "exec", &namespace, "sh", "-c", host]));
        assert!(set.status.success(), "{set:?}");
        let send = "while sleep 0.05; do echo hello >/dev/udp/10.1.0.20/5201; echo hello >/dev/udp/10.1.0.20/53; done";
        let sender =
            Command::new("ip").args(["netns", "exec", &namespace, "bash", "-c", send]).spawn().unwrap();
        Some(Self { daemon, sender, namespace, folder })
    }

    fn floodway(&self, arguments: &str) -> (i32, String, String) {
        let mut command = Command::new(programs().join("floodway"));
        command.arg("--socket").arg(self.daemon.socket()).args(arguments.split(' '));
        let Output { status, stdout, stderr } = run(&mut command);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn rule(&self) -> String {
        format!("{}:{RULE_LINE}", self.path("policy.yaml").display())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.sender.kill();
        let _ = self.sender.wait();
        let _ = run(Command::new("ip").args(["netns", "del", &self.namespace]));
    }
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

#[test]
fn traced_shown_and_captured() {
    let Some(bench) = Bench::start() else { return };
    sent_and_dropped_as_json(&bench);
    in_words(&bench);
    one_at_a_time(&bench);
    wrong_questions(&bench);
    captured(&bench);
}

fn sent_and_dropped_as_json(bench: &Bench) {
    let (code, stdout, stderr) =
        bench.floodway("trace --tenant red --port 5201 --count 3 --timeout 60s -o json");
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: TraceReport = serde_json::from_str(&stdout).unwrap();
    assert_eq!((report.packets.len(), report.ended, report.untraced), (3, true, 0));
    for packet in &report.packets {
        assert_eq!((packet.port.as_str(), packet.tenant.as_str()), ("red0", "red"));
        assert_eq!(packet.decision.as_ref().unwrap().rule, bench.rule());
        assert!(
            matches!(&packet.steps[..], [TracedStep::Sent { port, tunnel, .. }] if port == "uplink0" && tunnel == "fabric")
        );
    }
    assert!(report.packets.is_sorted_by_key(|packet| packet.at_unix_ns));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(report.packets[0].at_unix_ns / 1_000_000_000) < 600);
}

fn in_words(bench: &Bench) {
    let (code, stdout, _) = bench.floodway("trace --to 10.1.0.20 --drops --count 1 --timeout 60s");
    assert_eq!(code, 0);
    for line in [
        "  received    red0, 48 bytes\n",
        "  decided     policy-default\n",
        "  dropped     policy-default, counted at red0: ",
        " > 10.1.0.20 udp ",
    ] {
        assert!(stdout.contains(line), "{line} in {stdout}");
    }
    let (code, stdout, _) = bench.floodway("trace --qp 5 --timeout 1s");
    assert_eq!((code, stdout.as_str()), (0, "no packet came\n"));
}

fn one_at_a_time(bench: &Bench) {
    let client = bench.daemon.client();
    let first =
        TraceRequest { qp: Some(5), by: "somebody".into(), timeout_ms: 60_000, ..TraceRequest::default() };
    let trace = client.begin_trace(&first).unwrap().trace;
    let (code, _, stderr) = bench.floodway("trace --timeout 1s");
    assert_eq!(code, 3);
    assert!(stderr.contains("somebody has been tracing for "), "{stderr}");
    assert!(client.traced(trace + 1).is_err() && client.end_trace(trace + 1).is_err());
    assert_eq!(client.end_trace(trace).unwrap().trace, trace);
    assert!(client.traced(trace).unwrap().ended);
    let (code, ..) = bench.floodway("trace --count 1 --timeout 60s");
    assert_eq!(code, 0);
}

fn wrong_questions(bench: &Bench) {
    for (arguments, says) in [
        ("trace --tenant green", "no tenant `green`"),
        ("trace --reason whim", "no drop reason"),
        ("trace --protocol tpc", "no protocol"),
        ("trace --count 0", "1..=10000"),
        ("trace --timeout 11m", "600s"),
        ("capture --at sent --reason policy-deny --write x", "can be traced"),
    ] {
        let (code, _, stderr) = bench.floodway(arguments);
        assert_eq!(code, 2, "{arguments}: {stderr}");
        assert!(stderr.contains(says), "{arguments}: {stderr}");
    }
}

fn captured(bench: &Bench) {
    for (at, filter, port, len, comment) in [
        ("dropped", "--drops", "red0", 48, "dropped: policy-default, counted at red0".to_owned()),
        ("received", "--port 5201", "red0", 48, format!("decided: accept by {}", bench.rule())),
        ("sent", "--port 5201", "uplink0", 98, format!("decided: accept by {}", bench.rule())),
    ] {
        let file = bench.path(at);
        let arguments = format!(
            "capture --at {at} --tenant red --to 10.1.0.20 {filter} --count 2 --timeout 60s --write {}",
            file.display()
        );
        let (code, stdout, stderr) = bench.floodway(&arguments);
        assert_eq!((code, stdout), (0, format!("2 frames in {}\n", file.display())), "{stderr}");
        let (interfaces, frames) = read(&file);
        assert_eq!(interfaces, [(port.to_owned(), 9)]);
        assert_eq!(frames.len(), 2);
        for (data, original, told) in frames {
            assert_eq!((data.len(), original), (len, len), "at {at}");
            assert!(told.contains(&comment), "{comment} in {told}");
        }
        by_tshark(&file, port, &comment);
    }
}

/// Name and the bits of its clock's resolution.
type Interface = (String, u8);
/// Bytes, length on the wire, comment.
type Packet = (Vec<u8>, usize, String);

/// Interfaces (name, resolution) and frames (bytes, original length, comment) of a capture.
fn read(file: &Path) -> (Vec<Interface>, Vec<Packet>) {
    let mut reader = PcapNGReader::new(1 << 20, fs::File::open(file).unwrap()).unwrap();
    let (mut interfaces, mut frames) = (Vec::new(), Vec::new());
    loop {
        let len = match reader.next() {
            Ok((len, PcapBlockOwned::NG(Block::InterfaceDescription(interface)))) => {
                let name = interface.if_name().unwrap().unwrap().to_owned();
                interfaces.push((name, interface.if_tsresol));
                len
            }
            Ok((len, PcapBlockOwned::NG(Block::EnhancedPacket(packet)))) => {
                let comment =
                    packet.options.iter().find(|option| option.code == OptionCode::Comment).unwrap();
                let comment = String::from_utf8(comment.value().to_vec()).unwrap();
                let data = packet.data[..packet.caplen as usize].to_vec();
                frames.push((data, packet.origlen as usize, comment));
                len
            }
            Ok((len, _)) => len,
            Err(PcapError::Eof) => return (interfaces, frames),
            Err(PcapError::Incomplete(_)) => {
                reader.refill().unwrap();
                continue;
            }
            Err(error) => panic!("{error:?}"),
        };
        reader.consume(len);
    }
}

fn by_tshark(file: &Path, port: &str, comment: &str) {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-T", "fields", "-E", "separator=|"]);
    command.args(["-e", "frame.interface_name", "-e", "frame.time_epoch", "-e", "frame.comment"]);
    let Ok(output) = command.output() else {
        println!("skipped: no tshark");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let first = text.lines().next().unwrap_or_default();
    assert!(first.starts_with(&format!("{port}|")), "{text}");
    let fraction = first.split('|').nth(1).and_then(|time| time.split('.').nth(1)).unwrap_or_default();
    assert_eq!(fraction.len(), 9, "nanoseconds in {first}");
    assert!(text.contains(comment), "{comment} in {text}");
}
