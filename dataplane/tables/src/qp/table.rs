//! The table: pairs, how they are found, quotas and ageing.

use super::chains::Chains;
use super::end::{Counts, End, Note, Packet, Refusal, first_within, is_within};
use super::pair::{Naks, Pair, Service, State};
use super::step::service_of;
use foldhash::fast::FixedState;
use packet::Nanos;
use std::hash::BuildHasher;
use wire::roce::Aeth;

/// No queue pair has this number, and no pair this index.
pub(super) const NONE: u32 = u32::MAX;
/// Halves between two hosts whose PSNs are alike that a response is compared with.
const CANDIDATES_MAX: usize = 64;
/// Halves are found by the upper bits of their next PSN.
const PSN_SHIFT: u32 = 16;

/// Chain nodes of a pair: each side by its queue pair and by its name, and the pair while it is half.
pub(super) const NODES: u32 = 5;
pub(super) const BY_QP: u32 = 0;
pub(super) const BY_ID: u32 = 2;
const BY_PSN: u32 = 4;

/// Two hosts of a tenant, in the direction of a packet; addresses as in a flow's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Hosts {
    /// Whose they are.
    pub tenant: u16,
    /// The addresses are IPv6.
    pub is_ipv6: bool,
    /// The sender.
    pub src: [u8; 16],
    /// The receiver.
    pub dst: [u8; 16],
}

impl Hosts {
    /// The other direction.
    pub fn reversed(&self) -> Self {
        Self { src: self.dst, dst: self.src, ..*self }
    }
}

/// One side of a pair, for the packets that it sends; what a flow remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    end: u32,
    serial: u32,
}

impl Link {
    /// A link to nothing: always stale.
    pub const NONE: Self = Self { end: NONE, serial: 0 };

    /// As two words; a link to nothing is two zeros.
    pub const fn words(self) -> [u32; 2] {
        [self.end.wrapping_add(1), self.serial]
    }

    /// The link of these words.
    #[inline(always)]
    pub const fn from_words([end, serial]: [u32; 2]) -> Self {
        Self { end: end.wrapping_sub(1), serial }
    }

    /// True for a link to nothing.
    pub fn is_none(self) -> bool {
        self.end == NONE
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::NONE
    }
}

/// The pair that a packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The sender's side.
    pub link: Link,
    /// The sender opened the pair.
    pub is_opener: bool,
    /// How far the pair has got.
    pub state: State,
    /// The receiver of the opener's packets: what rules were asked about. `None` while unknown.
    pub opened_qp: Option<u32>,
}

/// What a connection manager's message did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A pair has begun.
    Requested,
    /// Both queue pairs of a pair are known now.
    Connected {
        /// That of the REQ's sender.
        opener: u32,
        /// That of the REP's sender.
        responder: u32,
    },
    /// A pair has ended or is about to.
    Released,
    /// It is about a pair that is known, and changes nothing.
    Known,
    /// It is about no pair that is known.
    Unrelated,
    /// There is no room for another pair.
    Full(Full),
}

/// Why a pair is not tracked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// The tenant has as many as its quota allows, or learned half of that from traffic.
    Quota,
    /// The table is at its capacity.
    Table,
}

#[derive(Clone, Copy, Default)]
struct Tenant {
    in_use: u32,
    learned: u32,
    quota: u32,
}

/// The queue pairs that one worker knows.
pub struct QpTable {
    pub(super) pairs: Box<[Pair]>,
    /// Two for each pair.
    pub(super) ends: Box<[End]>,
    pub(super) chains: Chains,
    pub(super) hasher: FixedState,
    tenants: Box<[Tenant]>,
    free: Vec<u32>,
    /// Pairs from here on were never used.
    fresh: u32,
    /// The next pair that `expire` looks at.
    hand: u32,
}

impl QpTable {
    /// A table for `capacity` pairs (at least 1, at most 2^24) of `tenants` tenants, numbered from 0. All memory is
    /// taken now, about 320 bytes a pair. `seed` must be unknown to whoever sends packets. No tenant has a quota at
    /// first.
    pub fn new(capacity: usize, tenants: usize, seed: u64) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        let tenant = Tenant { quota: u32::MAX, ..Tenant::default() };
        Self {
            pairs: vec![Pair::free(); capacity].into_boxed_slice(),
            ends: (0..2 * capacity).map(|_| End::new(0)).collect(),
            chains: Chains::new(NODES as usize * capacity),
            hasher: FixedState::with_seed(seed),
            tenants: vec![tenant; tenants.min(1 << 16)].into_boxed_slice(),
            free: Vec::with_capacity(capacity),
            fresh: 0,
            hand: 0,
        }
    }

    /// Pairs in the table.
    pub fn len(&self) -> usize {
        self.fresh as usize - self.free.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most pairs it can hold.
    pub fn capacity(&self) -> usize {
        self.pairs.len()
    }

    /// Sets how many pairs a tenant may have; false when there is no such tenant. Pairs beyond it stay until they end.
    pub fn set_quota(&mut self, tenant: u16, pairs: usize) -> bool {
        let found = self.tenants.get_mut(usize::from(tenant));
        found.map(|tenant| tenant.quota = u32::try_from(pairs).unwrap_or(u32::MAX)).is_some()
    }

    /// Pairs of a tenant in the table; zero when there is no such tenant.
    pub fn in_use(&self, tenant: u16) -> usize {
        self.tenants.get(usize::from(tenant)).map_or(0, |tenant| tenant.in_use as usize)
    }

    /// Takes in a packet that the link's side sends. With `answers_only` all but answers are refused, with `strict` an opcode
    /// that does not follow the one before it; what is refused is not counted among the side's packets.
    #[inline(always)]
    pub fn record(
        &mut self,
        link: Link,
        packet: &Packet,
        answers_only: bool,
        strict: bool,
        now: Nanos,
    ) -> Result<Note, Refusal> {
        let end = self.ends.get_mut(link.end as usize).filter(|end| end.serial == link.serial);
        let Some(end) = end else { return Err(Refusal::Stale) };
        if answers_only && !packet.is_answer() {
            return Err(Refusal::NotAnAnswer);
        }
        let note = end.record(packet, now, strict)?;
        if matches!(note, Note::Nak | Note::RnrNak) {
            self.count_nak(link, packet);
        }
        Ok(note)
    }

    #[cold]
    fn count_nak(&mut self, link: Link, packet: &Packet) {
        let syndrome = Aeth { syndrome_msn: (u32::from(packet.syndrome) << 24).into() }.syndrome();
        self.pairs[link.end as usize / 2].naks[link.end as usize % 2].add(syndrome);
    }

    /// The pair that packets of these hosts to that queue pair belong to.
    pub fn find(&self, hosts: &Hosts, dst_qp: u32) -> Option<Found> {
        let senders = self.owners(*hosts, dst_qp).map(|owner| owner ^ 1);
        senders.filter(|&end| self.is_between(end, hosts)).find_map(|end| self.found(end))
    }

    /// The pair that a link is to.
    pub fn follow(&self, link: Link) -> Option<Found> {
        let end = self.ends.get(link.end as usize)?;
        if end.serial == link.serial { self.found(link.end) } else { None }
    }

    /// Learns half a pair from a request that rules allow: the receiver has that queue pair, whose the sender's is
    /// nobody knows yet. The sender is its opener.
    pub fn open(&mut self, hosts: &Hosts, dst_qp: u32, packet: &Packet, now: Nanos) -> Result<Link, Full> {
        let service = service_of(packet.opcode).unwrap_or(Service::Rc);
        let pair = self.insert(hosts, State::Half, service, now)?;
        self.pairs[pair as usize].first_psn = packet.psn;
        self.ends[2 * pair as usize].joins_at(packet.psn);
        self.set_qp(2 * pair + 1, dst_qp);
        if service != Service::Uc {
            self.link_half(pair);
        }
        Ok(self.link(2 * pair))
    }

    /// Learns the other half from a response: to which of the receiver's halves it is by its PSN. `None` when it is an
    /// answer to none of them, or might be to several.
    pub fn answer(&mut self, hosts: &Hosts, dst_qp: u32, packet: &Packet) -> Option<Link> {
        let pair = self.asked_half(&hosts.reversed(), packet.psn)?;
        self.chains.unlink(pair * NODES + BY_PSN);
        self.pairs[pair as usize].state = State::Paired;
        self.set_qp(2 * pair, dst_qp);
        Some(self.link(2 * pair + 1))
    }

    /// True when [`QpTable::answer`] would find a half for that response.
    pub fn is_asked(&self, hosts: &Hosts, packet: &Packet) -> bool {
        packet.is_response() && self.asked_half(&hosts.reversed(), packet.psn).is_some()
    }

    /// The one half between these hosts of which `psn` may be a request; `None` also when there are several.
    fn asked_half(&self, hosts: &Hosts, psn: u32) -> Option<u32> {
        let (mut asked, mut candidates) = (None, 0);
        let bucket = psn >> PSN_SHIFT;
        for bucket in [bucket.wrapping_sub(1) & 0xff, bucket, (bucket + 1) & 0xff] {
            for node in self.chains.of(self.half_hash(hosts, bucket)) {
                let pair = node / NODES;
                let half = &self.pairs[pair as usize];
                if node % NODES != BY_PSN || half.half_bucket != bucket || !self.is_between(2 * pair, hosts) {
                    continue;
                }
                candidates += 1;
                let next = self.ends[2 * pair as usize].next_psn();
                let fits = is_within(psn, half.first_psn, next);
                if candidates > CANDIDATES_MAX || fits && asked.replace(pair).is_some() {
                    return None;
                }
            }
        }
        asked
    }

    /// The opener's data has come before its RTU.
    pub fn establish(&mut self, link: Link) {
        if let Some(found) = self.follow(link)
            && found.is_opener
            && found.state == State::Replied
        {
            self.pairs[link.end as usize / 2].state = State::Open;
        }
    }

    /// Looks at the next `budget` pairs, going round, and removes those that have been idle for too long; returns how
    /// many.
    pub fn expire(&mut self, now: Nanos, budget: usize) -> usize {
        let mut removed = 0;
        for _ in 0..budget.min(self.fresh as usize) {
            let pair = self.hand;
            self.hand = if pair + 1 < self.fresh { pair + 1 } else { 0 };
            if !self.pairs[pair as usize].is_live {
                continue;
            }
            if now.since(self.last_seen(pair)) >= self.pairs[pair as usize].state.timeout() {
                self.remove(pair);
                removed += 1;
            } else if self.pairs[pair as usize].state == State::Half {
                self.move_half(pair);
            }
        }
        removed
    }

    /// Places that were ever in use: a dump need not look beyond.
    pub fn slots(&self) -> usize {
        self.fresh as usize
    }

    /// The pairs in `count` places from `from` on, for a dump in bounded steps.
    pub fn iter(&self, from: usize, count: usize) -> impl Iterator<Item = (usize, View<'_>)> {
        let used = self.fresh as usize;
        let range = from.min(used)..from.saturating_add(count).min(used);
        range.filter(|&index| self.pairs[index].is_live).map(|index| (index, self.view(index)))
    }

    fn view(&self, index: usize) -> View<'_> {
        let pair = &self.pairs[index];
        let side = |side: usize| {
            let end = &self.ends[2 * index + side];
            let (request_psn, response_psn) = end.last_psns();
            let qp = (end.qp != NONE).then_some(end.qp);
            Side { qp, request_psn, response_psn, counts: end.counts, naks: pair.naks[side] }
        };
        View { pair, sides: [side(0), side(1)], last_seen: self.last_seen(index as u32) }
    }

    /// Sides of the receiver that have that queue pair, towards whomever.
    pub(super) fn owners(&self, hosts: Hosts, qp: u32) -> impl Iterator<Item = u32> {
        let nodes = self.chains.of(self.qp_hash(&hosts, qp));
        nodes.filter_map(|node| self.side(node, BY_QP)).filter(move |&end| {
            let pair = &self.pairs[end as usize / 2];
            self.ends[end as usize].qp == qp
                && (pair.tenant, pair.is_ipv6) == (hosts.tenant, hosts.is_ipv6)
                && pair.addresses[end as usize % 2] == hosts.dst
        })
    }

    /// The side that a node of that kind stands for.
    pub(super) fn side(&self, node: u32, kind: u32) -> Option<u32> {
        let side = (node % NODES).checked_sub(kind).filter(|side| *side < 2)?;
        Some(node / NODES * 2 + side)
    }

    /// True when that side is the sender's and the other the receiver's.
    pub(super) fn is_between(&self, end: u32, hosts: &Hosts) -> bool {
        self.hosts_from(end) == *hosts
    }

    pub(super) fn hosts_from(&self, end: u32) -> Hosts {
        let pair = &self.pairs[end as usize / 2];
        let side = end as usize % 2;
        let (src, dst) = (pair.addresses[side], pair.addresses[side ^ 1]);
        Hosts { tenant: pair.tenant, is_ipv6: pair.is_ipv6, src, dst }
    }

    fn found(&self, end: u32) -> Option<Found> {
        let state = self.pairs[end as usize / 2].state;
        let opened = self.ends[(end | 1) as usize].qp;
        let opened_qp = (opened != NONE).then_some(opened);
        let found = Found { link: self.link(end), is_opener: end.is_multiple_of(2), state, opened_qp };
        state.carries().then_some(found)
    }

    fn link(&self, end: u32) -> Link {
        Link { end, serial: self.ends[end as usize].serial }
    }

    fn last_seen(&self, pair: u32) -> Nanos {
        let ends = &self.ends[2 * pair as usize..2 * pair as usize + 2];
        self.pairs[pair as usize].heard.max(ends[0].last_seen).max(ends[1].last_seen)
    }

    pub(super) fn insert(
        &mut self,
        hosts: &Hosts,
        state: State,
        service: Service,
        now: Nanos,
    ) -> Result<u32, Full> {
        let tenant = self.tenants.get_mut(usize::from(hosts.tenant)).ok_or(Full::Quota)?;
        let learns = state.is_learned();
        if tenant.in_use >= tenant.quota || learns && tenant.learned >= tenant.quota.div_ceil(2) {
            return Err(Full::Quota);
        }
        let pair = match self.free.pop() {
            Some(pair) => pair,
            None if (self.fresh as usize) < self.pairs.len() => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return Err(Full::Table),
        };
        tenant.in_use += 1;
        tenant.learned += u32::from(learns);
        self.pairs[pair as usize] = Pair {
            tenant: hosts.tenant,
            is_ipv6: hosts.is_ipv6,
            state,
            service,
            addresses: [hosts.src, hosts.dst],
            created: now,
            heard: now,
            is_live: true,
            ..Pair::free()
        };
        for end in [2 * pair, 2 * pair + 1] {
            let serial = self.ends[end as usize].serial.wrapping_add(1);
            self.ends[end as usize] = End::new(serial);
        }
        Ok(pair)
    }

    pub(super) fn remove(&mut self, pair: u32) {
        for node in pair * NODES..(pair + 1) * NODES {
            self.chains.unlink(node);
        }
        for end in &mut self.ends[2 * pair as usize..2 * pair as usize + 2] {
            end.serial = end.serial.wrapping_add(1);
            end.qp = NONE;
        }
        let old = &mut self.pairs[pair as usize];
        old.is_live = false;
        let tenant = &mut self.tenants[usize::from(old.tenant)];
        tenant.in_use -= 1;
        tenant.learned -= u32::from(old.state.is_learned());
        self.free.push(pair);
    }

    pub(super) fn set_qp(&mut self, end: u32, qp: u32) {
        self.ends[end as usize].qp = qp;
        let to_it = self.hosts_from(end ^ 1);
        let hash = self.qp_hash(&to_it, qp);
        self.chains.link(end / 2 * NODES + BY_QP + end % 2, hash);
    }

    pub(super) fn set_id(&mut self, end: u32, id: u32) {
        self.pairs[end as usize / 2].ids[end as usize % 2] = Some(id);
        let hash = self.hasher.hash_one((self.hosts_from(end), id, BY_ID));
        self.chains.link(end / 2 * NODES + BY_ID + end % 2, hash);
    }

    /// By the receiver alone, so that all that its queue pair is used for is found.
    fn qp_hash(&self, hosts: &Hosts, qp: u32) -> u64 {
        self.hasher.hash_one((hosts.tenant, hosts.is_ipv6, hosts.dst, qp, BY_QP))
    }

    fn half_hash(&self, hosts: &Hosts, bucket: u32) -> u64 {
        self.hasher.hash_one((*hosts, bucket, BY_PSN))
    }

    fn link_half(&mut self, pair: u32) {
        let bucket = self.ends[2 * pair as usize].next_psn() >> PSN_SHIFT;
        self.pairs[pair as usize].half_bucket = bucket;
        let hash = self.half_hash(&self.hosts_from(2 * pair), bucket);
        self.chains.link(pair * NODES + BY_PSN, hash);
    }

    /// A half whose requests have gone on is found by where they are now, and answered by what is near that.
    fn move_half(&mut self, pair: u32) {
        let next = self.ends[2 * pair as usize].next_psn();
        let half = &mut self.pairs[pair as usize];
        half.first_psn = first_within(half.first_psn, next, 1 << PSN_SHIFT);
        if half.service != Service::Uc && half.half_bucket != next >> PSN_SHIFT {
            self.link_half(pair);
        }
    }
}

/// A pair as it is listed.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What rarely changes.
    pub pair: &'a Pair,
    /// Both sides, the opener's first.
    pub sides: [Side; 2],
    /// When it was last heard of.
    pub last_seen: Nanos,
}

/// What one side has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// Its queue pair, as far as it is known.
    pub qp: Option<u32>,
    /// PSN of its last request.
    pub request_psn: Option<u32>,
    /// PSN of its last response.
    pub response_psn: Option<u32>,
    /// How much.
    pub counts: Counts,
    /// And what it refused.
    pub naks: Naks,
}
