//! The whole pipeline as it runs in the daemon: parse, look-up, rules, state, fragments and queue pairs of two tenants with
//! the same addresses, by one worker or several, while time jumps and policies change.
//!
//! After each step every packet that came and went is counted, every table keeps its bound, and what leaves a port is of the tenant that the step was about: by port, by VNI, and by the marks in what
//! tenants say. In the end everything that was held is gone, and nothing was lost: received + originated = sent + dropped.

mod frames;
mod policies;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use crate::crew::{Card, Crew};
use crate::rig::Rig;
use edge::{FragmentBounds, Limits};
use engine::{Account, Gauge};
use frames::{Bytes, Sent};
use packet::Nanos;
use program::{PortId, TenantId};

const LIMITS: Limits = Limits {
    flows: 64,
    fragments: FragmentBounds { datagrams: 8, waiting: 6, waiting_per_tenant: 4 },
    queue_pairs: 16,
};
const BUFFERS: usize = 96;
const PORTS: [&str; 4] = ["uplink0", "red0", "blue0", "red1"];
/// A rig whose clock has come here is used no more.
const END_OF_TIME: Nanos = Nanos(1 << 61);
/// Frames that are remembered, to be quoted, cut or sent anew.
const REMEMBERED: usize = 16;

/// Goes through everything that these bytes say.
///
/// # Panics
/// When something is lost, kept, or at another tenant's.
pub fn run(input: &[u8]) {
    let mut bytes = Bytes(input);
    let mut scene = Scene::new(&mut bytes);
    while !bytes.0.is_empty() {
        scene.step(&mut bytes);
    }
    scene.end();
}

thread_local! {
    /// Rigs by their crews. One takes longer to make than a storm, and after a storm all is forgotten.
    static IDLE: RefCell<HashMap<u8, Rig>> = RefCell::default();
}

/// What a rig has received and sent on all ports.
fn traffic(rig: &Rig) -> (u64, u64) {
    let ports = (0..PORTS.len()).map(|port| rig.ledger.traffic(Account::Port(PortId(port as u16))));
    ports.fold((0, 0), |sum, one| (sum.0 + one.rx_packets, sum.1 + one.tx_packets))
}

struct Scene {
    crew: u8,
    rig: Rig,
    recent: VecDeque<Sent>,
    /// The tenant of the frames that the workers have not seen yet.
    pending: Option<Option<TenantId>>,
    /// What the rig had received and sent before, and what was seen of both since.
    before: (u64, u64),
    received: u64,
    sent: u64,
    /// As far as time has ever come.
    latest: Nanos,
}

impl Scene {
    fn new(bytes: &mut Bytes) -> Self {
        let crew = bytes.byte() & 15;
        let mut rig = IDLE.with_borrow_mut(|idle| idle.remove(&crew)).unwrap_or_else(|| {
            let card = [Card::OneQueue, Card::Lopsided, Card::Symmetric][usize::from(crew >> 2) % 3];
            let several = Crew { workers: u16::from(crew & 3), card, ring_depth: 4, ..Crew::ONE };
            let crew = if several.workers < 2 { Crew::ONE } else { several };
            Rig::running(policies::program(0, 1), LIMITS, crew, BUFFERS)
        });
        let generation = rig.program().generation.0 + 1;
        rig.publish(policies::program(0, generation));
        let (before, latest) = (traffic(&rig), rig.now);
        Self { crew, rig, recent: VecDeque::new(), pending: None, before, received: 0, sent: 0, latest }
    }

    fn step(&mut self, bytes: &mut Bytes) {
        match bytes.byte() {
            kind @ 0..0xe0 => {
                let Some(sent) = frames::next(kind, bytes, &self.recent) else { return };
                self.send(&sent, kind & 0x80 != 0);
                self.recent.push_front(sent);
                self.recent.truncate(REMEMBERED);
            }
            0xe0..0xf4 => self.jump(bytes.byte(), bytes.byte()),
            _ => {
                self.settle();
                let generation = self.rig.program().generation.0 + 1;
                self.rig.publish(policies::program(bytes.byte(), generation));
                self.settle();
            }
        }
    }

    /// Puts a frame on its port; the workers see it at once, or in one burst with the next of the same tenant.
    fn send(&mut self, sent: &Sent, waits: bool) {
        let tenant = self.tenant_of(sent);
        if self.tenants().any(|other| {
            Some(other.0) != tenant.map(|tenant| tenant.0) && frames::is_marked(&sent.frame, other.1)
        }) {
            return;
        }
        if self.pending.is_some_and(|pending| pending != tenant.map(|tenant| tenant.0)) {
            self.settle();
        }
        self.rig.send(sent.port, &sent.frame);
        self.received += 1;
        self.pending = Some(tenant.map(|tenant| tenant.0));
        if !waits || self.rig.pool.level().free < BUFFERS / 2 {
            self.settle();
        }
    }

    /// Milliseconds or minutes, ahead or back.
    fn jump(&mut self, unit: u8, count: u8) {
        self.settle();
        let nanos = u64::from(count) << [16, 20, 24, 28, 32, 36, 40, 44][usize::from(unit & 7)];
        let now = self.rig.now.0;
        self.rig.now =
            Nanos(if unit & 0x80 == 0 { now.saturating_add(nanos) } else { now.saturating_sub(nanos) });
        self.settle();
    }

    fn settle(&mut self) {
        self.rig.settle();
        self.latest = self.latest.max(self.rig.now);
        let tenant = self.pending.take().flatten();
        let strangers: Vec<u8> =
            self.tenants().filter(|(id, _)| Some(*id) != tenant).map(|(_, vni)| vni).collect();
        for (index, port) in PORTS.into_iter().enumerate() {
            for frame in self.rig.take(port) {
                self.sent += 1;
                // The uplink has what this box says for itself, too.
                let is_own = index == 0 && frames::vni(&frame).is_none();
                assert!(is_own || self.owner(index, &frame) == tenant, "{port}: {frame:02x?}");
                assert!(!strangers.iter().any(|vni| frames::is_marked(&frame, *vni)), "{port}: {frame:02x?}");
            }
        }
        self.check();
    }

    fn check(&self) {
        let (received, sent) = traffic(&self.rig);
        assert_eq!((received - self.before.0, sent - self.before.1), (self.received, self.sent));
        let workers = self.rig.workers();
        assert!(self.rig.held() <= workers * LIMITS.fragments.waiting);
        assert!(
            self.rig.ledger.gauge(Gauge::Flows) as usize <= workers * LIMITS.flows.next_multiple_of(1 << 7)
        );
        assert!(self.rig.ledger.gauge(Gauge::QueuePairs) as usize <= workers * LIMITS.queue_pairs);
    }

    /// Long after everything: all is forgotten, and all buffers are back.
    fn end(mut self) {
        self.settle();
        self.rig.now = self.latest + Nanos::from_secs(8_000);
        for _ in 0..8 {
            self.rig.now = self.rig.now + Nanos::from_secs(1);
            self.settle();
        }
        // What was lost on the way is lost here too; the sum of all counters takes longer than most steps.
        self.rig.assert_balanced();
        let left = [Gauge::Flows, Gauge::QueuePairs].map(|gauge| self.rig.ledger.gauge(gauge));
        assert_eq!((self.rig.held(), left), (0, [0, 0]));
        if self.rig.now < END_OF_TIME {
            IDLE.with_borrow_mut(|idle| idle.insert(self.crew, self.rig));
        }
    }

    /// Tenants of the running program, with their marks.
    fn tenants(&self) -> impl Iterator<Item = (TenantId, u8)> {
        let tenants = self.rig.program().tenants.iter().flatten();
        tenants.map(|tenant| (tenant.id, tenant.vni.0 as u8))
    }

    /// The tenant that a frame comes from, by its port or its VNI.
    fn tenant_of(&self, sent: &Sent) -> Option<(TenantId, u8)> {
        let index = PORTS.iter().position(|port| *port == sent.port)?;
        let id = self.owner(index, &sent.frame)?;
        self.tenants().find(|tenant| tenant.0 == id)
    }

    /// The tenant of a frame at a port; at the uplink of what is in a tunnel.
    fn owner(&self, port: usize, frame: &[u8]) -> Option<TenantId> {
        if port != 0 {
            return self.rig.program().port(PortId(port as u16)).map(|port| port.tenant);
        }
        let vni = frames::vni(frame)?;
        let tenants = self.rig.program().tenants.iter().flatten();
        tenants.filter(|tenant| tenant.vni.0 == vni).map(|tenant| tenant.id).next()
    }
}
