//! Policies swapped under traffic: each packet meets one program whole, and what stays allowed is never cut. (B058)

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::Gauge;
use packet::{Buf, Nanos};
use program::DropReason;
use scenarios::frames::untunnel;
use scenarios::policies::{FABRIC, TENANTS};
use scenarios::rig::Rig;
use scenarios::scene::{BLUE, RED, from_fabric, with};

/// TCP ports of red's that edits open and close; port 5201 is always open.
const PORTS: std::ops::Range<u16> = 1000..1024;

fn rules(open: &HashSet<u16>) -> String {
    let mut ports: Vec<&u16> = open.iter().collect();
    ports.sort();
    let services: Vec<String> = ports.iter().map(|port| format!("{{protocol: TCP, port: {port}}}")).collect();
    format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: rules}}\n\
         spec: {{tenant: red, egress: [{{action: Accept, services: [{{protocol: TCP, port: 5201}}]}}, \
         {{action: Accept, services: [{}]}}]}}\n",
        services.join(", ")
    )
}

fn request(port: u16) -> Vec<u8> {
    RED.tcp((40_000, port), "A", b"request")
}

fn reply(port: u16) -> Vec<u8> {
    from_fabric(100, &RED.reversed().tcp((port, 40_000), "A", b"reply"))
}

/// SplitMix64.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The ports of all requests that have left, and of all replies that have come in.
fn seen(sent: &[Vec<u8>], rig: &Rig) -> (HashSet<u16>, HashSet<u16>) {
    let port_at = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let out = sent.iter().map(|frame| port_at(&untunnel(frame).inner, 36)).collect();
    (out, rig.take("red0").iter().map(|frame| port_at(frame, 34)).collect())
}

/// Edits around red's rules, which change no verdict of red's towards its peer: other hosts move, come and go, lines and
/// rule numbers shift, quotas change, and blue is opened and closed.
#[derive(Clone, Copy, Default)]
struct Around {
    far_moved: bool,
    stranger: bool,
    comment: bool,
    quota: bool,
    blue_closed: bool,
    baseline: bool,
}

impl Around {
    fn flip(&mut self, which: u64) {
        let flags = [
            &mut self.far_moved,
            &mut self.stranger,
            &mut self.comment,
            &mut self.quota,
            &mut self.blue_closed,
            &mut self.baseline,
        ];
        if let Some(flag) = flags.into_iter().nth(which as usize) {
            *flag = !*flag;
        }
    }

    fn texts(self, rules: String) -> [String; 3] {
        let mut tenants = TENANTS.to_owned();
        if self.far_moved {
            tenants = tenants.replace("{name: far, vtep: other,", "{name: far, vtep: fabric,");
        }
        if self.stranger {
            let stranger = "{name: new, vtep: other, mac: \"02:00:00:00:0a:40\", addresses: [10.1.0.40]}";
            tenants = tenants.replace("    - {name: far,", &format!("    - {stranger}\n    - {{name: far,"));
        }
        if self.quota {
            tenants = tenants.replace("  vni: 100\n", "  vni: 100\n  quota: {flows: 1000}\n");
        }
        let blue = if self.blue_closed { "Deny" } else { "Accept" };
        let mut rules = format!(
            "{}{rules}---\napiVersion: floodway.dev/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: blue}}\nspec: {{tenant: blue, egress: [{{action: {blue}}}]}}\n",
            if self.comment { "# one line more\n" } else { "" }
        );
        if self.baseline {
            rules += "---\napiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: base}\nspec: {tier: Baseline, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}\n";
        }
        [FABRIC.to_owned(), tenants, rules]
    }
}

/// Blue's packet to where red's requests go, on a connection of its own.
fn blue_request() -> Vec<u8> {
    BLUE.tcp((41_000, 443), "A", b"of blue")
}

#[test]
fn a_thousand_edits_under_traffic_give_no_wrong_verdict() {
    let (mut seeded, mut open, mut around) = (Seeded(7), HashSet::from([1000]), Around::default());
    let texts = |around: Around, open: &HashSet<u16>| around.texts(rules(open));
    let first = texts(around, &open);
    let mut rig = with(&first.each_ref().map(String::as_str));
    let mut opened: HashSet<u16> = HashSet::new();
    let generation = rig.ledger.gauge(Gauge::Generation);
    let (mut received, mut blue_cut) = (0, 0);
    for edit in 0..1000 {
        for port in PORTS.chain([5201]) {
            rig.send("uplink0", &reply(port));
            rig.send("red0", &request(port));
        }
        rig.send("blue0", &blue_request());
        rig.poll();
        let of_blue = |frame: &Vec<u8>| untunnel(frame).vni == 200;
        let (blue, red): (Vec<_>, Vec<_>) = rig.take("uplink0").into_iter().partition(of_blue);
        assert_eq!(
            blue.len(),
            usize::from(!around.blue_closed),
            "edit {edit}: blue's own rules, and no others"
        );
        blue_cut += usize::from(around.blue_closed);
        let (requests, replies) = seen(&red, &rig);
        received += 2 * (PORTS.len() as u64 + 1) + 1;
        let mut allowed = open.clone();
        allowed.insert(5201);
        assert_eq!(requests, allowed, "edit {edit}: requests that a rule allows, and no other");
        // The uplink is asked first: replies to what was open before this poll, and still is.
        let expected: HashSet<u16> = opened.intersection(&allowed).copied().collect();
        assert_eq!(replies, expected, "edit {edit}: replies to what is open, and no other");
        opened = allowed;
        for _ in 0..=seeded.next() % 3 {
            let port = PORTS.start + (seeded.next() % PORTS.len() as u64) as u16;
            if !open.remove(&port) {
                open.insert(port);
            }
        }
        around.flip(seeded.next() % 12);
        let texts = texts(around, &open);
        rig.apply(&texts.each_ref().map(String::as_str));
        // Nothing is held between two polls, and every buffer is back: a leak would show at the edit that makes it.
        rig.assert_balanced();
    }
    rig.poll();
    assert_eq!(rig.ledger.gauge(Gauge::Generation), generation + 1000);
    let of = |port| rig.traffic(port);
    assert!(of("red0").rx_packets + of("blue0").rx_packets + of("uplink0").rx_packets >= received);
    assert!(blue_cut > 100 && blue_cut < 900, "blue was closed in {blue_cut} of the edits");
    assert!(rig.dropped(DropReason::PolicyDefault) > 10_000, "the denied flows went on all the while");
    rig.assert_balanced();
}

#[test]
fn a_policy_that_is_deleted_and_created_again_is_what_its_file_says() {
    let policy = |port: u16| rules(&HashSet::from([port]));
    let passes = |rig: &mut Rig, port: u16| rig.pass("red0", &request(port), "uplink0").len() == 1;
    let mut rig = with(&[FABRIC, TENANTS, &policy(1000)]);
    assert!(passes(&mut rig, 1000) && !passes(&mut rig, 1001));
    rig.apply(&[FABRIC, TENANTS]);
    assert!(!passes(&mut rig, 1000) && !passes(&mut rig, 5201), "nothing of it is left");
    // Under the same name: not what the first one said, and not what open flows remember.
    rig.apply(&[FABRIC, TENANTS, &policy(1001)]);
    assert!(!passes(&mut rig, 1000) && passes(&mut rig, 1001));
    rig.apply(&[FABRIC, TENANTS, &policy(1000)]);
    assert!(passes(&mut rig, 1000) && !passes(&mut rig, 1001));
    rig.assert_balanced();
}

#[test]
fn a_burst_never_meets_two_programs() {
    // Of these two ports one program allows the one, the next the other.
    let (first, second) = (rules(&HashSet::from([1000])), rules(&HashSet::from([1001])));
    let mut rig = with(&[FABRIC, TENANTS, &first]);
    let mut now = rig.now;
    let (worker, wires, mut editor) = rig.split();
    let (uplink, red) = (&wires[0], &wires[1]);
    let (done, polls) = (AtomicBool::new(false), AtomicU64::new(0));
    let counts = std::thread::scope(|scope| {
        let polling = scope.spawn(|| {
            let frames = [request(1000), request(1001), request(5201)];
            let mut counts = [0_u64; 3];
            while !done.load(Ordering::Acquire) {
                for frame in frames.iter().chain(frames.iter().rev()) {
                    red.send(frame).expect("room for six frames");
                }
                now = now + Nanos::from_micros(1);
                worker.poll(now);
                polls.fetch_add(1, Ordering::Release);
                let mut passed = [0; 3];
                while let Some(buf) = uplink.receive() {
                    let index = frames.iter().position(|frame| buf.bytes().ends_with(&frame[34..]));
                    passed[index.expect("one of the three")] += 1;
                }
                assert!(passed == [2, 0, 2] || passed == [0, 2, 2], "a mix of two programs: {passed:?}");
                counts.iter_mut().zip(passed).for_each(|(count, passed)| *count += passed);
            }
            counts
        });
        for edit in 0..1000 {
            editor.apply(&[FABRIC, TENANTS, if edit % 2 == 0 { &second } else { &first }]);
            // Each program sees a whole poll at least; a worker that has given up is joined below.
            let before = polls.load(Ordering::Acquire);
            while polls.load(Ordering::Acquire) < before + 2 && !polling.is_finished() {
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Release);
        polling.join().expect("no burst met two programs")
    });
    rig.now = now;
    rig.settle();
    assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    rig.assert_balanced();
}
