//! The built binary's `explain` and `plan`, against directories and against a daemon that is played by the agent's fake.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../agent/tests/fake/mod.rs"]
mod fake;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use fake::{FABRIC, Server, tenant};

/// A directory of its own with policy directories in it.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.policy("p", &tenant(9999));
        files
    }

    fn policy(&self, name: &str, red: &str) {
        let directory = self.0.path().join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("fabric.yaml"), FABRIC).unwrap();
        fs::write(directory.join("red.yaml"), red).unwrap();
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn run(&self, arguments: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_floodway"))
            .args(arguments.split(' '))
            .current_dir(self.0.path())
            .env_remove("FLOODWAY_SOCKET")
            .output()
            .unwrap()
    }
}

#[track_caller]
fn assert_ends(output: &Output, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout);
    assert_eq!(output.status.code(), Some(code));
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

const DENIED: &str = "\
dropped: policy-deny by p/red.yaml:26. A rule denies it.
tenant   red (VNI 100)
from     red0
packet   10.1.0.10 > 10.1.0.20, tcp 49152 > 9999
state    passes as an answer while the far side has the flow open

egress rules of red0, about 10.1.0.20: denied
RULE          VERDICT  MATCHES  WHY
p/red.yaml:26  deny     yes      matches: any peer, tcp/9999
";

const ALLOWED: &str = "\
forwarded by p/red.yaml:28
tenant   red (VNI 100)
from     red0
packet   10.1.0.10 > 10.1.0.20, tcp 7 > 80
to       fabric (MAC 02:00:00:00:0a:20): VXLAN 192.0.2.1 > 192.0.2.2 port 4789, VNI 100, out of uplink0 via 192.0.2.2
mtu      1550 bytes
replies  by state: answers pass while this flow is open; if it is itself an answer, rules judge its other direction

egress rules of red0, about 10.1.0.20: accepted
RULE          VERDICT  MATCHES  WHY
p/red.yaml:26  deny     no       port: tcp/80 is not in tcp/9999
p/red.yaml:28  accept   yes      matches: any peer, any packet
";

/// As the table has it: columns are as wide as what is in them.
fn squeezed(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn explain_goes_through_the_rules() {
    let (files, server) = (Files::new(), Server::start());
    server.client().apply(&fake::apply(9999)).unwrap();
    let running = format!("--socket {}", server.socket.display());
    let unopened = "now does not pass: the flow that it would answer is not open";
    for whom in ["--policy p", running.as_str()] {
        for (packet, expected, now) in [
            ("--from red0 --dst 10.1.0.20 --protocol tcp --dport 9999", DENIED, unopened),
            (
                "--port red0 --tenant red --dst 10.1.0.20 --protocol TCP --dport 80 --sport 7",
                ALLOWED,
                "now passes: rules allow it: it would open a flow",
            ),
        ] {
            let output = files.run(&format!("explain {packet} {whom}"));
            let said = squeezed(&String::from_utf8_lossy(&output.stdout));
            // Only a daemon has a flow table.
            let is_now = |line: &&str| line.starts_with("now ");
            let (nows, others): (Vec<&str>, Vec<&str>) = said.lines().partition(is_now);
            assert_eq!(others.join("\n"), squeezed(expected));
            assert_eq!(nows, if whom == running { vec![now] } else { vec![] });
            assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
            let answer = json(&files.run(&format!("explain {packet} {whom} --output json")));
            assert_eq!(answer["tenant"], "red");
            assert_eq!(answer["lists"][0]["rules"][0]["origin"], "p/red.yaml:26");
        }
    }
}

#[test]
fn explain_refuses_questions_that_nobody_can_answer() {
    let (files, server) = (Files::new(), Server::start());
    server.client().apply(&fake::apply(9999)).unwrap();
    let running = format!("--socket {}", server.socket.display());
    for (packet, sentence) in [
        (
            "--from red9 --dst 10.1.0.20 --protocol tcp --dport 1",
            "the program has no port and no tunnel endpoint `red9`",
        ),
        (
            "--from fabric --dst 10.1.0.10 --protocol icmp",
            "`fabric` is a tunnel endpoint: say of which tenant the packet is",
        ),
        ("--from red0 --tenant blue --dst 10.1.0.20 --protocol icmp", "the program has no tenant `blue`"),
        ("--from red0 --dst 10.1.0.20 --protocol tcp", "the destination port is missing"),
        (
            "--from red0 --dst 10.1.0.20 --protocol icmp --dport 1",
            "a destination port is not a field of icmp",
        ),
        (
            "--from red0 --dst fd00::20 --protocol icmpv6",
            "the source address is missing, and `red0` has none of that family",
        ),
        (
            "--from red0 --dst 10.1.0.20 --protocol rocev2 --qp 16777216",
            "a queue pair is a number from 0 to 16777215",
        ),
        (
            "--from uplink0 --dst 10.1.0.20 --protocol icmp",
            "`uplink0` is the uplink: name a tunnel endpoint, or give a whole frame",
        ),
    ] {
        for whom in ["--policy p", running.as_str()] {
            let output = files.run(&format!("explain {packet} {whom}"));
            assert_ends(&output, 2, "", &format!("floodway: {sentence}\n"));
        }
    }
    for usage in [
        "--from red0 --protocol tcp",
        "--dst 10.1.0.20 --protocol tcp",
        "--from red0 --pcap x --dst 10.1.0.1",
    ] {
        assert_eq!(files.run(&format!("explain {usage} --policy p")).status.code(), Some(2));
    }
    assert_eq!(
        files.run("explain --from red0 --dst 10.1.0.20 --protocol icmp --socket none").status.code(),
        Some(3)
    );
    assert_eq!(
        files.run("explain --from red0 --dst 10.1.0.20 --protocol icmp --policy none").status.code(),
        Some(1)
    );
}

/// A ping from red0 to 10.1.0.20.
fn ping() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0x0a, 0x20, 2, 0, 0, 0, 0x0a, 0x10, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 1, 0, 10, 10, 1, 0, 20]);
    frame.extend([8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    frame
}

/// A pcap file (draft-ietf-opsawg-pcap) of a link type.
fn pcap(linktype: u32, frames: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, linktype] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        let len = frame.len() as u32;
        [0, 0, len, len].iter().for_each(|word: &u32| file.extend(word.to_le_bytes()));
        file.extend(*frame);
    }
    file
}

/// The sum over 16-bit words that makes them add up (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// The host says that nobody listens at the UDP port which a packet from the remote went to; the packet is quoted.
fn unreachable(quoted_source: u8) -> Vec<u8> {
    let mut quote = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, quoted_source, 10, 1, 0, 10];
    quote.extend([0x13, 0x88, 0, 53, 0, 8, 0, 0]);
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(quote);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    let mut frame = vec![2, 0, 0, 0, 0x0a, 0x20, 2, 0, 0, 0, 0x0a, 0x10, 8, 0];
    frame.extend([0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 10, 1, 0, 10, 10, 1, 0, 20]);
    frame.extend(message);
    frame
}

#[test]
fn explain_looks_into_what_an_icmp_error_quotes() {
    let (files, server) = (Files::new(), Server::start());
    server.client().apply(&fake::apply(9999)).unwrap();
    files.write("a.pcap", &pcap(1, &[&unreachable(20), &unreachable(21)]));
    let said = |frame: u8, whom: &str| {
        let output = files.run(&format!("explain --port red0 --pcap a.pcap --frame {frame} {whom}"));
        squeezed(&String::from_utf8_lossy(&output.stdout))
    };
    let running = format!("--socket {}", server.socket.display());
    let text = said(1, &running);
    for line in [
        "packet 10.1.0.10 > 10.1.0.20, icmp type 3 code 3",
        "now does not pass: the flow that it quotes is not open",
        "quotes 10.1.0.20 > 10.1.0.10, udp 5000 > 53 from fabric: rules allow the quoted flow, and the one that it may answer: the error passes while that is open",
        "ingress rules of red0, about 10.1.0.20: accepted",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    assert!(text.starts_with("by state: "), "{text}");
    let stranger = said(2, "--policy p");
    assert!(stranger.starts_with("dropped: unrelated-icmp-error."), "{stranger}");
    let quotes = "quotes 10.1.0.21 > 10.1.0.10, udp 5000 > 53: the error is not for whom the quoted packet came from: it passes never";
    assert!(stranger.lines().any(|line| line == quotes), "{stranger}");
}

#[test]
fn explain_reads_a_frame_of_a_capture() {
    let files = Files::new();
    let mut spoofed = ping();
    spoofed[11] = 0x11;
    let whole = pcap(1, &[&ping(), &spoofed]);
    files.write("a.pcap", &whole);
    let explain = |more: &str| files.run(&format!("explain --policy p --port red0 --output json {more}"));
    let first = json(&explain("--pcap a.pcap"));
    assert_eq!(
        (&first["verdict"], &first["headers"]["service"]),
        (&"forwarded".into(), &"icmp type 8 code 0".into())
    );
    let second = json(&explain("--pcap a.pcap --frame 2"));
    assert_eq!((&second["verdict"], &second["reason"]["name"]), (&"dropped".into(), &"spoofed-mac".into()));

    files.write("cut.pcap", &whole[..whole.len() - 3]);
    files.write("b.pcap", &pcap(101, &[&ping()]));
    files.write("c.pcap", b"no capture at all, but long enough to be one");
    for (more, sentence) in [
        ("--pcap a.pcap --frame 3", "a.pcap has 2 frames, not 3"),
        (
            "--pcap cut.pcap --frame 2",
            "cut.pcap is damaged after frame 1, or has a block of more than 1048576 bytes there",
        ),
        ("--pcap b.pcap", "frame 1 of b.pcap is of link type 101, not Ethernet (1)"),
        ("--pcap c.pcap", "c.pcap is no capture: neither pcap nor pcapng"),
    ] {
        let output = explain(more);
        assert_eq!((json(&output)["error"].as_str(), output.status.code()), (Some(sentence), Some(2)));
    }
    assert_eq!(explain("--pcap a.pcap --frame 0").status.code(), Some(2));
}

#[test]
fn plan_says_what_would_change() {
    let (files, server) = (Files::new(), Server::start());
    files.policy("q", &tenant(9998));
    server.client().apply(&fake::apply(9999)).unwrap();
    let running = format!("--socket {}", server.socket.display());
    assert_ends(&files.run(&format!("plan p {running}")), 0, "no change\n", "");
    assert_ends(&files.run("plan p --against p"), 0, "no change\n", "");
    for whom in ["--against p", running.as_str()] {
        let output = files.run(&format!("plan q {whom}"));
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(6), "{stdout}");
        for line in [
            "~ tenant red",
            "- rule p/red.yaml:26: egress deny tcp/9999 to any",
            "+ rule q/red.yaml:26: egress deny tcp/9998 to any",
            "rules 3 3 1048576",
            "2 classes of packets would be judged otherwise by rules",
            "red red0 egress deny accept tcp/9999 0.0.0.0/0,::/0 10.1.0.20 tcp 0 > 9999 (policy-deny -> accept)",
            "red red0 egress accept deny tcp/9998 0.0.0.0/0,::/0 10.1.0.20 tcp 0 > 9998 (accept -> policy-deny)",
        ] {
            assert!(squeezed(&stdout).lines().any(|found| found.trim() == line), "{line} in\n{stdout}");
        }
        // Only a daemon knows how many flows are open.
        let flows = if whom == running { ", flows 3 of 65536" } else { "" };
        let used = format!(
            "= ports 1 of 512, rules 3 of 1048576, hosts 2, routes 0, flow quota 65536 of 16777216{flows}"
        );
        assert!(squeezed(&stdout).lines().any(|found| found.trim() == used), "{used} in\n{stdout}");
        let answer = json(&files.run(&format!("plan q {whom} -o json")));
        assert_eq!(
            (&answer["changed"], answer["classes"]["list"].as_array().unwrap().len()),
            (&true.into(), 2)
        );
    }
    // The fake's three flows go to port 5201.
    let strict = tenant(9999).replace("    - action: Accept\n  ingress", "  ingress");
    files.policy("r", &strict);
    let answer = json(&files.run(&format!("plan r {running} -o json")));
    assert_eq!((&answer["flows"]["judged"], &answer["flows"]["changed"]), (&3.into(), &3.into()));
    assert_eq!(answer["flows"]["list"][0]["after"], "policy-default");
}

#[test]
fn plan_refuses_what_check_refuses() {
    let (files, server) = (Files::new(), Server::start());
    files.policy("bad", &tenant(9999).replace("vni: 100", "vni: 0"));
    for arguments in ["plan bad --against p", "plan p --against bad", "plan none --against p"] {
        assert_eq!(files.run(arguments).status.code(), Some(1), "{arguments}");
    }
    let output = files.run(&format!("plan bad --socket {}", server.socket.display()));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("bad/red.yaml:6:8: error: "));
    assert_eq!(files.run("plan p --socket none").status.code(), Some(3));
}
