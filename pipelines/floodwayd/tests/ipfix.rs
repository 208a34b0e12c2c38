//! What the built daemon exports, read by a collector that is not ours: it is what `show flows` shows.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    net::{IpAddr, UdpSocket},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use agent::client::Client;
use netflow_parser::{
    DataNumber, FieldValue, IpfixField, NetflowPacket, NetflowParser, variable_versions::ipfix::FlowSetBody,
};

const PATIENCE: Duration = Duration::from_secs(60);
const ENTERPRISE: u32 = 32_473;

const TENANT: &str = "apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 4711
  gateway: {addresses: [10.1.0.1]}
  ports:
    - {port: red0, mac: 02:00:00:00:0a:10, addresses: [10.1.0.10]}
  remotes: [{vtep: far, mac: 02:00:00:00:0a:20, addresses: [10.1.0.20]}]
---
apiVersion: floodway.dev/v1alpha1
kind: TenantPolicy
metadata: {name: p}
spec:
  tenant: red
  egress:
    - {action: Deny, services: [{protocol: TCP, port: 9999}]}
    - {action: Accept}
";

/// An IPv4 packet from the host of red0 to its remote, in an Ethernet frame.
fn frame(protocol: u8, l4: &[u8]) -> Vec<u8> {
    let len = 20 + l4.len() as u8;
    let mut frame = vec![2, 0, 0, 0, 0x0a, 0x20, 2, 0, 0, 0, 0x0a, 0x10, 8, 0];
    frame.extend([0x45, 0, 0, len, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 1, 0, 10, 10, 1, 0, 20]);
    frame.extend(l4);
    assert!(wire::checksum::fill_ipv4_header(&mut frame[14..]));
    frame
}

fn tcp(port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    frame(6, &[0x9c, 0x40, high, low, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0])
}

/// An RC SEND of nothing to queue pair 0x1234.
fn roce() -> Vec<u8> {
    let mut l4 = vec![0xc0, 0x01, 0x12, 0xb7, 0, 24, 0, 0];
    l4.extend([4, 0x40, 0xff, 0xff, 0, 0, 0x12, 0x34, 0, 0, 0, 7, 0, 0, 0, 0]);
    frame(17, &l4)
}

fn echo() -> Vec<u8> {
    frame(1, &[8, 0, 0xf7, 0xf5, 0, 7, 0, 3])
}

fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    // The file's header: magic, version 2.4, no zone, 65535 bytes, Ethernet.
    let mut file: Vec<u8> = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 1].map(u32::to_be_bytes).concat();
    for frame in frames {
        file.extend([0, 0, frame.len() as u32, frame.len() as u32].map(u32::to_be_bytes).concat());
        file.extend(frame);
    }
    file
}

struct Daemon {
    child: Child,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn start(collector: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let frames = [tcp(9999), tcp(443), tcp(443), roce(), roce(), roce(), echo()];
        fs::write(path("in.pcap"), capture(&frames)).unwrap();
        fs::create_dir(path("p")).unwrap();
        let fabric = format!(
            "apiVersion: floodway.dev/v1alpha1
kind: Fabric
metadata: {{name: box}}
spec:
  ports:
    - {{name: uplink0, device: \"memory:\", mtu: 1600}}
    - {{name: red0, device: \"pcap:rx={}\", mtu: 1500}}
  uplink: {{port: uplink0, addresses: [192.0.2.1/24]}}
  vteps: [{{name: far, address: 192.0.2.2, mac: 02:00:00:00:0f:02}}]
",
            path("in.pcap").display()
        );
        fs::write(path("p/fabric.yaml"), fabric).unwrap();
        fs::write(path("p/red.yaml"), TENANT).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_floodwayd"))
            .arg("--policy")
            .arg(path("p"))
            .arg("--socket")
            .arg(path("s"))
            .args(["--idle-sleep-us", "1000", "--flows", "1024", "--buffers", "4096"])
            .args(["--ipfix", collector, "--ipfix-active-timeout", "1"])
            .env_remove("FLOODWAY_STATE")
            .env_remove("FLOODWAY_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, client: Client::new(path("s")), _folder: folder }
    }

    fn flows(&self) -> Vec<program::FlowRecord> {
        let start = Instant::now();
        loop {
            match self.client.flows(1000) {
                Ok(flows) if flows.flows.len() >= 4 => return flows.flows,
                other => assert!(start.elapsed() < PATIENCE, "{other:?}"),
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    fn end(&mut self) -> String {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A record as a list of fields.
struct Record(Vec<(IpfixField, FieldValue)>);

impl Record {
    fn value(&self, number: u16, enterprise: Option<u32>) -> &FieldValue {
        let wanted = IpfixField::new(number, enterprise);
        &self.0.iter().find(|(field, _)| *field == wanted).unwrap_or_else(|| panic!("no {number}")).1
    }

    fn number(&self, number: u16) -> u64 {
        match self.value(number, None) {
            FieldValue::ProtocolType(protocol) => u64::from(u8::from(*protocol)),
            FieldValue::DataNumber(DataNumber::U8(value)) => u64::from(*value),
            FieldValue::DataNumber(DataNumber::U16(value)) => u64::from(*value),
            FieldValue::DataNumber(DataNumber::U32(value)) => u64::from(*value),
            FieldValue::DataNumber(DataNumber::U64(value)) => *value,
            value => panic!("{number}: {value:?}"),
        }
    }

    fn address(&self, number: u16) -> IpAddr {
        self.value(number, None).try_into().unwrap()
    }

    /// One of floodway's own, of which the collector knows only the bytes.
    fn own(&self, number: u16) -> Vec<u8> {
        match self.value(number, Some(ENTERPRISE)) {
            FieldValue::Vec(bytes) => bytes.clone(),
            other => panic!("{number}: {other:?}"),
        }
    }

    fn own_text(&self, number: u16) -> String {
        String::from_utf8(self.own(number)).unwrap()
    }

    /// As `show flows` has it.
    fn shown(&self) -> (String, String, String, u64, u64) {
        let qp = u32::from_be_bytes(self.own(1).try_into().unwrap());
        let service = match (self.number(4), qp) {
            (17, qp) if qp != u32::MAX => format!("rocev2 qp {qp:#x}"),
            (6, u32::MAX) => format!("tcp {} > {}", self.number(7), self.number(11)),
            (1, u32::MAX) => format!("icmp {}", self.number(32)),
            other => panic!("{other:?}"),
        };
        let reason = self.own_text(2);
        let verdict = if reason == "-" { "accept".into() } else { reason };
        (self.own_text(3), service, verdict, self.number(2), self.number(352))
    }
}

/// Messages until so many records have come, in the order in which they came.
fn collect(socket: &UdpSocket, wanted: usize) -> (Vec<Record>, Vec<(u32, usize, usize)>) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut collector, mut records, mut messages) = (NetflowParser::default(), Vec::new(), Vec::new());
    while records.len() < wanted {
        assert!(messages.len() < 50, "{messages:?}");
        let mut bytes = [0; 65_536];
        let len = socket.recv(&mut bytes).expect("a message");
        assert!(len <= 512, "{len}");
        let parsed = collector.parse_bytes(&bytes[..len]);
        assert!(parsed.error.is_none(), "{:?}", parsed.error);
        for packet in parsed.packets {
            let NetflowPacket::IPFix(message) = packet else { panic!("no IPFIX: {packet:?}") };
            assert_eq!((message.header.version, usize::from(message.header.length)), (10, len));
            let (mut templates, before) = (0, records.len());
            for set in message.flowsets {
                match set.body {
                    FlowSetBody::Template(_) => templates += 1,
                    FlowSetBody::Templates(all) => templates += all.len(),
                    FlowSetBody::Data(data) => records.extend(data.fields.into_iter().map(Record)),
                    other => panic!("{other:?}"),
                }
            }
            messages.push((message.header.sequence_number, templates, records.len() - before));
        }
    }
    (records, messages)
}

#[test]
fn what_is_exported_is_what_show_flows_shows() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut daemon = Daemon::start(&collector.local_addr().unwrap().to_string());
    let shown = daemon.flows();
    let (records, messages) = collect(&collector, 4);
    let mut exported: Vec<_> = records.iter().map(Record::shown).collect();
    exported.sort();
    let mut expected: Vec<_> = shown
        .iter()
        .map(|flow| {
            let service = flow.service.split(" id ").next().unwrap();
            let service = if flow.service.starts_with("icmp") { "icmp 2048" } else { service };
            (flow.tenant.clone(), service.to_owned(), flow.verdict.clone(), flow.packets, flow.bytes)
        })
        .collect();
    expected.sort();
    assert_eq!(exported, expected);
    let packets: BTreeMap<_, _> =
        exported.iter().map(|(_, service, _, packets, _)| (&**service, *packets)).collect();
    let sent = BTreeMap::from([
        ("icmp 2048", 1),
        ("rocev2 qp 0x1234", 3),
        ("tcp 40000 > 443", 2),
        ("tcp 40000 > 9999", 1),
    ]);
    assert_eq!(packets, sent);
    for record in &records {
        assert_eq!(record.address(8).to_string(), "10.1.0.10");
        assert_eq!(record.address(12).to_string(), "10.1.0.20");
        assert_eq!((record.number(10), record.number(351)), (2, 1 << 56 | 4711));
        assert_eq!(record.number(1), record.number(352) - 14 * record.number(2));
    }
    // Each message says how many records came before it; templates count none.
    let mut sent = 0;
    for (sequence, _, records) in &messages {
        assert_eq!(*sequence as usize, sent, "{messages:?}");
        sent += records;
    }
    assert_eq!((messages[0].1, messages[0].2), (2, 0));
    // Nothing has happened since: the next round is its templates and no record.
    let mut bytes = [0; 65_536];
    for _ in 0..2 {
        let len = collector.recv(&mut bytes).unwrap();
        let (sequence, set) = (&bytes[8..12], &bytes[16..18]);
        assert_eq!((sequence, set), (&[0, 0, 0, 4][..], &[0, 2][..]), "{:?}", &bytes[..len]);
    }
    let log = daemon.end();
    assert!(log.contains("flows were exported records=4") && log.contains("refused=0"), "{log}");
}

/// A port on which nobody listens: the kernel says so of each second datagram or so. Packets do not care.
#[test]
fn a_dead_collector_costs_datagrams_only() {
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut daemon = Daemon::start(&address.to_string());
    daemon.flows();
    let start = Instant::now();
    // Three rounds at least.
    while start.elapsed() < Duration::from_secs(4) {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let report = daemon.client.report().unwrap();
    let port = report.ports.iter().find(|port| port.name == "red0").unwrap();
    let uplink = report.ports.iter().find(|port| port.name == "uplink0").unwrap();
    assert_eq!(port.traffic.rx_packets, 7, "{report:?}");
    let dropped: u64 = port.drops.iter().map(|drop| drop.packets).sum();
    assert_eq!((dropped, uplink.traffic.tx_packets - uplink.originated), (1, 6), "{report:?}");
    let log = daemon.end();
    let refused = log.split("refused=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    assert!(refused.parse::<u64>().unwrap() > 0, "{log}");
    assert_eq!(log.matches("a datagram of flow records is lost").count(), 1, "{log}");
}

#[test]
fn a_collector_without_an_address_ends_the_start() {
    let mut daemon = Daemon::start("no-port");
    let mut said = String::new();
    daemon.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!daemon.child.wait().unwrap().success());
    assert!(said.contains("cannot export flows to no-port"), "{said}");
}
