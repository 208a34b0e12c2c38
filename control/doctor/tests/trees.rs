//! Made folders of a BlueField-like machine: on a good one nothing is wrong, and each check finds what it is there for.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{collections::BTreeSet, fs, net::IpAddr, os::unix::fs::symlink};

use agent::api::{PolicyStatus, Status};
use doctor::{Daemon, Finding, Machine, Setup, Verdict, examine, names};
use program::{Device, DropCount, Port, PortReport, Program, Report, Traffic, Uplink, Vtep, WorkerReport};

const CARD: &str = "/sys/bus/pci/devices/0000:03:00.0";

/// Files of a machine, and what floodwayd is to be started with there.
struct Scene {
    tree: tempfile::TempDir,
    setup: Setup,
}

impl Scene {
    fn good() -> Self {
        let scene = Self { tree: tempfile::tempdir().unwrap(), setup: setup() };
        for (path, text) in GOOD {
            scene.write(path, text);
        }
        scene.link(&format!("{CARD}/driver"), "../../bus/pci/drivers/mlx5_core");
        for netdev in ["p0", "pf0hpf", "pf0vf0"] {
            scene.link(&format!("/sys/class/net/{netdev}/device"), "../../devices/pci/0000:03:00.0");
        }
        for queue in 0..8 {
            scene.write(&format!("/sys/class/net/p0/queues/rx-{queue}/rps_cpus"), "0");
        }
        scene
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.tree.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let _ = fs::remove_file(self.path(path));
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        symlink(target, self.path(path)).unwrap();
    }

    fn remove(&self, path: &str) {
        match self.path(path).is_dir() {
            true => fs::remove_dir_all(self.path(path)).unwrap(),
            false => fs::remove_file(self.path(path)).unwrap(),
        }
    }

    fn program(&mut self) -> &mut Program {
        self.setup.program.as_mut().unwrap()
    }

    fn daemon(&mut self) -> &mut Daemon {
        self.setup.daemon.as_mut().unwrap().as_mut().unwrap()
    }

    /// Makes the Fabric's card one of another vendor, which is handed over by VFIO.
    fn foreign(&mut self) {
        self.write(&format!("{CARD}/vendor"), "0x8086");
        self.link(&format!("{CARD}/driver"), "../../bus/pci/drivers/vfio-pci");
        self.write("/sys/module/vfio_pci/refcnt", "1");
    }

    fn examine(&self) -> Vec<Finding> {
        examine(&Machine::at(self.tree.path()), &self.setup)
    }

    #[track_caller]
    fn finding(&self, check: &str) -> Finding {
        self.examine().into_iter().find(|finding| finding.check == check).unwrap()
    }
}

const GOOD: &[(&str, &str)] = &[
    ("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "2048"),
    ("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "2000"),
    ("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "2048"),
    ("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "2000"),
    ("/sys/devices/system/node/node0/cpulist", "0-7"),
    ("/proc/mounts", "none /dev/hugepages hugetlbfs rw 0 0"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ("/sys/kernel/iommu_groups/0/type", "DMA"),
    ("/proc/cmdline", "root=/dev/nvme0n1 isolcpus=4-7 nohz_full=4-7"),
    ("/proc/cpuinfo", "processor : 0\nflags\t: fpu tsc constant_tsc nonstop_tsc\n"),
    ("/usr/lib/aarch64-linux-gnu/librte_eal.so.23", ""),
    ("/usr/lib/aarch64-linux-gnu/pkgconfig/libdpdk.pc", "Name: DPDK\nVersion: 22.11.11\n"),
    ("/usr/lib/aarch64-linux-gnu/dpdk/pmds-23.0/librte_net_mlx5.so", ""),
    ("/sys/bus/pci/devices/0000:03:00.0/vendor", "0x15b3"),
    ("/sys/bus/pci/devices/0000:03:00.0/device", "0xa2dc"),
    ("/sys/bus/pci/devices/0000:03:00.0/numa_node", "0"),
    ("/sys/bus/pci/devices/0000:03:00.0/infiniband/mlx5_0/node_type", "1: CA"),
    ("/sys/class/infiniband/mlx5_0/fw_ver", "32.41.1000"),
    ("/sys/class/net/p0/phys_port_name", "p0"),
    ("/sys/class/net/p0/phys_switch_id", "98039b7f1a20"),
    ("/sys/class/net/p0/mtu", "9216"),
    ("/sys/class/net/p0/ecn/roce_np/enable/3", "1"),
    ("/sys/class/net/p0/ecn/roce_rp/enable/3", "1"),
    ("/sys/class/net/pf0hpf/phys_port_name", "pf0"),
    ("/sys/class/net/pf0hpf/phys_switch_id", "98039b7f1a20"),
    ("/sys/class/net/pf0vf0/phys_port_name", "pf0vf0"),
    ("/sys/class/net/pf0vf0/phys_switch_id", "98039b7f1a20"),
    ("/sys/class/net/pf0vf0/mtu", "9000"),
    ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
    ("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet"),
    ("/run/systemd/timesync/synchronized", ""),
    ("/sys/devices/system/cpu/isolated", "4-7"),
    ("/sys/devices/system/cpu/nohz_full", "4-7"),
    ("/sys/devices/system/cpu/cpu4/cpufreq/scaling_governor", "performance"),
    ("/sys/devices/system/cpu/cpu5/cpufreq/scaling_governor", "performance"),
];

fn setup() -> Setup {
    let device =
        |name: &str, arguments: &str, mtu| Device { name: name.into(), device: arguments.into(), mtu };
    let vtep = Vtep {
        name: "far".into(),
        address: IpAddr::from([203, 0, 113, 12]),
        next_hop: IpAddr::from([198, 51, 100, 10]),
        mac: None,
    };
    let port = Port {
        id: program::PortId(1),
        tenant: program::TenantId(0),
        mac: "02:00:00:00:01:01".parse().unwrap(),
        addresses: Vec::new(),
        mtu: 9000,
        egress: program::RuleListId(0),
        ingress: program::RuleListId(0),
    };
    let program = Program {
        devices: vec![
            device("p0", "dpdk:0000:03:00.0,dv_flow_en=2", 9216),
            device("pf0vf0", "dpdk:0000:03:00.0,dv_flow_en=2,representor=vf0", 9000),
        ],
        uplink: Some(Uplink {
            port: program::PortId(0),
            addresses: Vec::new(),
            gateways: Vec::new(),
            dscp: program::DscpMode::Copy,
        }),
        vteps: vec![Some(vtep)],
        ports: vec![None, Some(port)],
        ..Program::default()
    };
    let worker = |worker, polls| WorkerReport { worker, polls, generation: 3, ..WorkerReport::default() };
    let report = |polls| Report {
        generation: 3,
        digest: String::new(),
        workers: vec![worker(0, polls), worker(1, polls + 5)],
        ports: vec![PortReport {
            name: "p0".into(),
            device: "dpdk:0000:03:00.0".into(),
            tenant: String::new(),
            traffic: Traffic::default(),
            originated: 0,
            drops: vec![DropCount { reason: "policy-deny".into(), packets: 7 }],
        }],
        tenants: Vec::new(),
        neighbours: Vec::new(),
        pool: program::PoolReport::default(),
    };
    let status = Status {
        policy: PolicyStatus::Current,
        running: None,
        unconfirmed: None,
        refused: None,
        state: None,
        watch: None,
    };
    let daemon = Daemon { status, before: report(1000), after: report(2000) };
    Setup {
        program: Some(program),
        lcores: vec![4, 5],
        buffers: 32_768,
        hugetlbfs: true,
        daemon: Some(Ok(daemon)),
    }
}

fn drop_of(scene: &mut Scene, reason: &str) {
    scene.daemon().after.ports[0].drops.push(DropCount { reason: reason.into(), packets: 1 });
}

type Harm = fn(&mut Scene);

/// A check, what it says, what the machine suffers, and a part of the command that puts it right.
const HARMS: &[(&str, Verdict, Harm, &str)] = &[
    ("hugepages", Verdict::Fail, |s| s.remove("/sys/kernel/mm/hugepages"), "sysctl -w vm.nr_hugepages=166"),
    (
        "hugepages",
        Verdict::Fail,
        |s| {
            s.setup.daemon = None;
            s.write("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3");
        },
        "vm.nr_hugepages=166",
    ),
    (
        "hugepages-numa",
        Verdict::Warn,
        |s| s.write("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "9"),
        "echo 166 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
    ),
    ("hugetlbfs", Verdict::Fail, |s| s.write("/proc/mounts", "proc /proc proc rw 0 0"), "mount -t hugetlbfs"),
    (
        "thp",
        Verdict::Warn,
        |s| s.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"),
        "echo madvise",
    ),
    (
        "iommu",
        Verdict::Fail,
        |s| {
            s.foreign();
            s.remove("/sys/kernel/iommu_groups");
        },
        "IOMMU",
    ),
    (
        "iommu",
        Verdict::Warn,
        |s| {
            s.foreign();
            s.remove("/sys/kernel/iommu_groups");
            s.write("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
            s.write("/proc/cpuinfo", "vendor_id : GenuineIntel");
        },
        "intel_iommu=on",
    ),
    (
        "vfio",
        Verdict::Fail,
        |s| {
            s.foreign();
            s.remove("/sys/module/vfio_pci");
        },
        "modprobe vfio-pci",
    ),
    (
        "vfio",
        Verdict::Fail,
        |s| {
            s.foreign();
            s.link(&format!("{CARD}/driver"), "../../bus/pci/drivers/ice");
        },
        "dpdk-devbind.py --bind=vfio-pci 0000:03:00.0",
    ),
    (
        "libdpdk",
        Verdict::Fail,
        |s| s.remove("/usr/lib/aarch64-linux-gnu/librte_eal.so.23"),
        "apt-get install",
    ),
    ("mlx5-pmd", Verdict::Fail, |s| s.remove("/usr/lib/aarch64-linux-gnu/dpdk"), "librte-net-mlx5"),
    ("devices", Verdict::Fail, |s| s.remove(CARD), "lspci -D"),
    ("devices", Verdict::Fail, |s| s.remove(&format!("{CARD}/driver")), "modprobe mlx5_core"),
    ("firmware", Verdict::Fail, |s| s.remove(&format!("{CARD}/infiniband")), "modprobe mlx5_ib"),
    (
        "switchdev",
        Verdict::Fail,
        |s| {
            for netdev in ["p0", "pf0hpf", "pf0vf0"] {
                s.remove(&format!("/sys/class/net/{netdev}/phys_switch_id"));
            }
        },
        "devlink dev eswitch set pci/0000:03:00.0 mode switchdev",
    ),
    ("representors", Verdict::Fail, |s| s.remove("/sys/class/net/pf0vf0"), "sriov_numvfs"),
    ("mtu", Verdict::Fail, |s| s.write("/sys/class/net/p0/mtu", "1500"), "ip link set p0 mtu 9216"),
    ("mtu", Verdict::Warn, |s| s.program().devices[0].mtu = 9049, "mtu: 9050"),
    (
        "mtu",
        Verdict::Warn,
        |s| {
            s.program().devices[0].mtu = 9069;
            s.program().vteps[0].as_mut().unwrap().address = "2001:db8::1".parse().unwrap();
        },
        "mtu: 9070",
    ),
    ("rss", Verdict::Warn, |s| s.setup.lcores = (0..9).collect(), "ethtool -L p0 combined 9"),
    (
        "clocksource",
        Verdict::Warn,
        |s| s.write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
        "echo tsc",
    ),
    ("tsc", Verdict::Fail, |s| s.write("/proc/cpuinfo", "flags : fpu tsc constant_tsc"), "invtsc"),
    ("time-sync", Verdict::Warn, |s| s.remove("/run/systemd/timesync"), "chrony"),
    ("numa", Verdict::Warn, |s| s.setup.lcores = vec![4, 8], "--lcores of 0-7"),
    ("isolation", Verdict::Warn, |s| s.write("/sys/devices/system/cpu/isolated", "5"), "isolcpus=4,5"),
    (
        "governor",
        Verdict::Warn,
        |s| s.write("/sys/devices/system/cpu/cpu5/cpufreq/scaling_governor", "powersave"),
        "cpupower",
    ),
    (
        "ecn-roce",
        Verdict::Warn,
        |s| s.write("/sys/class/net/p0/ecn/roce_rp/enable/3", "0"),
        "roce_rp/enable/3",
    ),
    ("ecn-tunnel", Verdict::Warn, |s| drop_of(s, "illegal-ecn"), "tcpdump"),
    (
        "daemon",
        Verdict::Warn,
        |s| s.setup.daemon = Some(Err("no floodwayd answers".into())),
        "systemctl start",
    ),
    ("workers", Verdict::Fail, |s| s.daemon().after.workers[1].polls = 1005, "restart"),
    ("workers", Verdict::Fail, |s| s.daemon().after.workers[0].generation = 2, "restart"),
    ("policy", Verdict::Fail, |s| s.daemon().status.policy = PolicyStatus::LastGood, "floodway history"),
    ("losses", Verdict::Warn, |s| drop_of(s, "hand-over-full"), "floodway show drops"),
];

/// What only a second machine can say.
const NEVER: &str = "ecn-end-to-end";

#[test]
fn on_a_good_machine_nothing_is_wrong() {
    for finding in Scene::good().examine() {
        let wanted = match finding.check {
            "vfio" | NEVER => Verdict::Skipped,
            _ => Verdict::Ok,
        };
        assert_eq!(finding.verdict, wanted, "{finding:?}");
        assert_eq!(finding.problem.is_empty(), wanted == Verdict::Ok, "{finding:?}");
    }
    let mut scene = Scene::good();
    scene.foreign();
    assert_eq!(scene.finding("vfio").verdict, Verdict::Ok, "{:?}", scene.finding("vfio"));
}

#[test]
fn each_harm_is_found_with_a_command_against_it() {
    for (check, verdict, harm, fix) in HARMS {
        let mut scene = Scene::good();
        harm(&mut scene);
        let finding = scene.finding(check);
        assert_eq!(finding.verdict, *verdict, "{finding:?}");
        assert!(finding.fix.contains(fix) && !finding.problem.is_empty(), "no {fix} in {finding:?}");
    }
}

#[test]
fn there_is_a_harm_for_each_check() {
    let harmed: BTreeSet<_> = HARMS.iter().map(|(check, ..)| *check).chain([NEVER]).collect();
    assert_eq!(harmed, names().collect());
}

/// Nothing is there: nothing panics, nothing that was not seen is called good, and each finding says what was looked at.
#[test]
fn an_empty_tree_is_no_good_machine() {
    let tree = tempfile::tempdir().unwrap();
    for setup in [Setup::default(), setup()] {
        for finding in examine(&Machine::at(tree.path()), &Setup { daemon: None, ..setup }) {
            assert_ne!(finding.verdict, Verdict::Ok, "{finding:?}");
            assert!(!finding.seen.is_empty() && !finding.problem.is_empty(), "{finding:?}");
        }
    }
}

/// Commands have the last word where they are there.
#[test]
fn commands_say_more_than_files() {
    let scene = Scene::good();
    let legacy = Machine::at(scene.tree.path()).with_commands(|name, arguments| match (name, arguments) {
        ("devlink", ["dev", "eswitch", "show", device]) => {
            Some(format!("{device}: mode legacy inline-mode none encap-mode basic\n"))
        }
        ("ethtool", ["-l", name]) => Some(format!(
            "Channel parameters for {name}:\nPre-set maximums:\nRX:\t\tn/a\nCombined:\t1\nCurrent hardware settings:\nCombined:\t8\n"
        )),
        _ => None,
    });
    let findings = examine(&legacy, &scene.setup);
    let verdict = |check: &str| findings.iter().find(|finding| finding.check == check).unwrap().verdict;
    assert_eq!((verdict("switchdev"), verdict("rss")), (Verdict::Fail, Verdict::Warn));
}

/// docs/doctor.md has a line for each check, in their order.
#[test]
fn each_check_is_documented() {
    let docs = include_str!("../../../docs/doctor.md");
    let (_, table) = docs.split_once("| Check |").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<Vec<_>>(), names().collect::<Vec<_>>());
}
