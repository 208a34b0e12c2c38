//! Sequences of operations on the table and on a map that scans: they must agree after each.

use super::super::{FlowHash, FlowKey, FlowTable, Full, Slot, Timeout};
use super::key;
use packet::Nanos;
use proptest::prelude::*;
use std::collections::HashMap;

const TENANTS: u16 = 3;

#[derive(Clone, Debug)]
enum Op {
    /// Looked up in bulk steps; counted on a hit.
    Packet {
        key: u32,
        bytes: u64,
    },
    Insert {
        key: u32,
        tenant: u16,
        timeout_ms: u32,
    },
    Remove {
        key: u32,
    },
    Quota {
        tenant: u16,
        flows: usize,
    },
    Expire {
        budget: usize,
    },
    /// The clock moves, perhaps backwards.
    Clock {
        step_ms: i64,
    },
}

fn op(keys: u32) -> impl Strategy<Value = Op> {
    let step = prop_oneof![4 => 0..5_i64, 1 => -10..200_i64, 1 => Just(1 << 31), 1 => Just(-5_000_000)];
    prop_oneof![
        6 => (0..keys, any::<u64>()).prop_map(|(key, bytes)| Op::Packet { key, bytes }),
        8 => (0..keys, 0..TENANTS + 1, prop_oneof![0..20_u32, Just(u32::MAX)])
            .prop_map(|(key, tenant, timeout_ms)| Op::Insert { key, tenant, timeout_ms }),
        2 => (0..keys).prop_map(|key| Op::Remove { key }),
        1 => (0..TENANTS + 1, 0..30_usize).prop_map(|(tenant, flows)| Op::Quota { tenant, flows }),
        2 => (0..12_usize).prop_map(|budget| Op::Expire { budget }),
        3 => step.prop_map(|step_ms| Op::Clock { step_ms }),
    ]
}

#[derive(Clone, PartialEq, Debug)]
struct Flow {
    action: [u8; 16],
    tenant: u16,
    last_seen_ns: u64,
    timeout_ms: u32,
    packets: u64,
    bytes: u64,
}

impl Flow {
    /// In 128-bit arithmetic, from the definition: idle for at least the timeout.
    fn is_expired(&self, now_ns: u64) -> bool {
        let idle = i128::from(now_ns) - i128::from(self.last_seen_ns);
        self.timeout_ms != u32::MAX && idle.max(0) >= i128::from(self.timeout_ms) * 1_000_000
    }
}

/// How a model's keys are hashed: as the table does, or so that they crowd into few buckets and tags.
#[derive(Clone, Copy, Debug)]
struct Crowding(u64);

struct Pair {
    table: FlowTable<[u8; 16]>,
    flows: HashMap<u32, Flow>,
    quotas: [usize; TENANTS as usize],
    crowding: Crowding,
    now_ns: u64,
    serial: u64,
}

impl Pair {
    fn new(capacity: usize, crowding: Crowding) -> Self {
        let mut table = FlowTable::new(capacity, usize::from(TENANTS), 42);
        table.expire(Nanos(1 << 32), 0);
        let quotas = [usize::MAX; TENANTS as usize];
        Self { table, flows: HashMap::new(), quotas, crowding, now_ns: 1 << 32, serial: 0 }
    }

    fn hash(&self, key: &FlowKey) -> FlowHash {
        FlowHash(self.table.hash(key).0 & self.crowding.0)
    }

    fn now(&self) -> Nanos {
        Nanos(self.now_ns)
    }

    /// The bulk steps, and that they agree with `find`.
    fn look_up(&self, key: &FlowKey) -> Option<Slot> {
        let hash = self.hash(key);
        self.table.prefetch_bucket(hash);
        let found = self.table.find(hash, key);
        match self.table.candidate(hash) {
            Some(slot) if self.table.confirm(slot, key) => assert_eq!(found, Some(slot)),
            Some(_) => (),
            None => assert_eq!(found, None, "no candidate is a sure miss"),
        }
        found
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Packet { key: number, bytes } => self.packet(number, bytes),
            Op::Insert { key, tenant, timeout_ms } => self.insert(key, tenant, timeout_ms),
            Op::Remove { key: number } => {
                let removed = self.look_up(&key(number)).and_then(|slot| self.table.remove(slot));
                assert_eq!(removed, self.flows.remove(&number).map(|flow| flow.action));
            }
            Op::Quota { tenant, flows } => {
                let known = tenant < TENANTS;
                assert_eq!(self.table.set_quota(tenant, flows), known);
                if known {
                    self.quotas[usize::from(tenant)] = flows;
                }
            }
            Op::Expire { budget } => {
                let before = self.flows.len();
                let removed = self.table.expire(self.now(), budget);
                self.recall();
                assert_eq!(self.forget(), 0, "only what has expired goes");
                assert_eq!(before - self.flows.len(), removed);
                assert!(removed <= budget);
            }
            Op::Clock { step_ms } => {
                self.now_ns = self.now_ns.saturating_add_signed(step_ms * 1_000_000);
                // As a worker's tick tells it.
                assert_eq!(self.table.expire(self.now(), 0), 0);
            }
        }
    }

    /// What a clock that was set back says will have been seen may count as seen now.
    fn recall(&mut self) {
        for (&number, flow) in self.flows.iter_mut().filter(|(_, flow)| flow.last_seen_ns > self.now_ns) {
            let hash = FlowHash(self.table.hash(&key(number)).0 & self.crowding.0);
            let slot = self.table.find(hash, &key(number));
            if slot.is_some_and(|slot| self.table.entry(slot).last_seen.0 == self.now_ns) {
                flow.last_seen_ns = self.now_ns;
            }
        }
    }

    fn packet(&mut self, number: u32, bytes: u64) {
        let slot = self.look_up(&key(number));
        let now_ns = self.now_ns;
        let flow = self.flows.get_mut(&number);
        assert_eq!(slot.is_some(), flow.is_some());
        let (Some(slot), Some(flow)) = (slot, flow) else { return };
        let expired = self.table.entry(slot).is_expired(Nanos(now_ns));
        assert_eq!(expired, flow.is_expired(now_ns), "an expired flow is a miss");
        if !expired {
            self.table.count(slot, Nanos(now_ns), bytes);
            flow.packets += 1;
            flow.bytes = flow.bytes.wrapping_add(bytes);
            flow.last_seen_ns = flow.last_seen_ns.max(now_ns);
        }
    }

    fn insert(&mut self, number: u32, tenant: u16, timeout_ms: u32) {
        self.serial += 1;
        let action = u128::from(self.serial).to_le_bytes();
        let (key, now) = (key(number), self.now());
        let hash = self.hash(&key);
        let evictions = self.evictions();
        let before = self.flows.values().filter(|flow| flow.tenant == tenant).count();
        let outcome = self.table.insert(hash, &key, action, tenant, now, Timeout::from_millis(timeout_ms));
        self.flows.remove(&number);
        if let Ok(slot) = outcome {
            assert_eq!(self.look_up(&key), Some(slot));
            let flow = Flow { action, tenant, last_seen_ns: self.now_ns, timeout_ms, packets: 0, bytes: 0 };
            self.flows.insert(number, flow);
        }
        // Two for the quota, one for the table; of those that have expired some go uncounted.
        let evictions = self.evictions() - evictions;
        assert!(self.forget() as u64 <= evictions && evictions <= 3, "who gave way is counted");
        let of_tenant = self.flows.values().filter(|flow| flow.tenant == tenant).count();
        let quota = self.quotas.get(usize::from(tenant)).copied().unwrap_or(0);
        // What stays for ever is what does not give way here.
        let stays = |flow: &&Flow| flow.timeout_ms == u32::MAX;
        match outcome {
            Ok(_) => assert!(of_tenant <= quota),
            Err(Full::Quota) => {
                assert!(of_tenant >= quota);
                let mut of_tenant = self.flows.values().filter(|flow| flow.tenant == tenant);
                let was_lowered = before > quota;
                assert!(quota == 0 || was_lowered || of_tenant.any(|flow| stays(&flow)));
            }
            Err(Full::Table) => {
                assert_eq!(self.flows.len(), self.table.capacity());
                assert!(self.flows.values().any(|flow| stays(&flow)));
            }
            Err(Full::Bucket) => assert!(self.both_buckets_are_full_of_fresh_flows(hash)),
        }
    }

    fn both_buckets_are_full_of_fresh_flows(&self, hash: FlowHash) -> bool {
        let there: Vec<_> = self.table.sharing_buckets(hash).collect();
        let expected = if self.table.buckets() == 1 { 8 } else { 16 };
        there.len() == expected && there.iter().all(|&slot| !self.table.entry(slot).is_expired(self.now()))
    }

    /// Flows that gave way so far.
    fn evictions(&self) -> u64 {
        let shares = (0..TENANTS).filter_map(|tenant| self.table.share(tenant));
        shares.map(|share| share.evicted + share.displaced).sum()
    }

    /// Drops from the model what the table no longer has; returns how many of those had not expired. Only what is
    /// short-lived gives way.
    fn forget(&mut self) -> usize {
        let there = |number: &u32| self.table.find(self.hash(&key(*number)), &key(*number)).is_some();
        let gone: Vec<u32> = self.flows.keys().copied().filter(|number| !there(number)).collect();
        let mut fresh = 0;
        for number in gone {
            let flow = self.flows.remove(&number).unwrap();
            assert!(flow.timeout_ms != u32::MAX, "{flow:?} was removed, and never gives way");
            fresh += usize::from(!flow.is_expired(self.now_ns));
        }
        fresh
    }

    fn check(&self) {
        assert_eq!(self.table.len(), self.flows.len());
        for tenant in 0..=TENANTS {
            let expected = self.flows.values().filter(|flow| flow.tenant == tenant).count();
            assert_eq!(self.table.in_use(tenant), expected);
        }
        let mut dumped = 0;
        for from in (0..self.table.capacity()).step_by(5) {
            for (slot, entry) in self.table.iter(Slot(from as u32), 5) {
                assert_eq!(self.table.find(self.hash(entry.key()), entry.key()), Some(slot));
                dumped += 1;
            }
        }
        assert_eq!(dumped, self.flows.len());
        for (&number, flow) in &self.flows {
            let entry = self.table.entry(self.look_up(&key(number)).unwrap());
            let have = Flow {
                action: entry.action,
                tenant: entry.tenant(),
                last_seen_ns: entry.last_seen.0,
                timeout_ms: entry.timeout.as_millis(),
                packets: entry.packets,
                bytes: entry.bytes,
            };
            assert_eq!(&have, flow);
        }
        self.table.assert_index_is_sound();
    }
}

/// All of the hash; one home but many other buckets; two buckets and three tags; everything alike.
const CROWDINGS: [Crowding; 4] =
    [Crowding(u64::MAX), Crowding(!0xff_ffff), Crowding(3 << 48 | 1), Crowding(0)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..Default::default() })]

    #[test]
    fn agrees_with_a_map_that_scans(
        capacity in prop_oneof![1..6_usize, 6..40_usize, 40..120_usize],
        crowding in prop::sample::select(&CROWDINGS),
        (ops, often) in (1..160_u32).prop_flat_map(|keys| (prop::collection::vec(op(keys), 1..400), 1..50_usize)),
    ) {
        let mut pair = Pair::new(capacity, crowding);
        for (n, op) in ops.iter().enumerate() {
            pair.apply(op);
            if n % often == 0 {
                pair.check();
            }
        }
        pair.check();
        // In the end all that can expire does, and nothing else; by the clock as it is, whatever it has said before.
        pair.apply(&Op::Clock { step_ms: 0 });
        pair.apply(&Op::Clock { step_ms: -2_000 });
        pair.apply(&Op::Expire { budget: usize::MAX });
        // A second that it may go back unnoticed, the longest timeout, and two ticks.
        pair.apply(&Op::Clock { step_ms: 1_023 });
        pair.apply(&Op::Expire { budget: usize::MAX });
        prop_assert!(pair.flows.values().all(|flow| flow.timeout_ms == u32::MAX));
        pair.check();
    }
}
