//! The table: datagrams by identity, their ages by tenant, and who gives way when it is full.

use super::order::{Links, NONE, Order};
use super::pieces::Pieces;
use super::{Bounds, LIFETIME, Loss, Piece};
use crate::flow::{FlowKey, Secret};
use packet::Nanos;

/// What becomes of a later fragment.
#[derive(Debug)]
pub enum Later<'t, Q> {
    /// Its first fragment was of this flow, whose verdict it gets.
    Follows(FlowKey),
    /// Its first has not come: it is to wait here.
    Waits(&'t mut Q),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// For its first fragment.
    Waiting,
    /// The first was of this flow.
    Open(FlowKey),
    /// Nothing of it passes any more.
    Spoilt(Loss),
}

struct Datagram<Q> {
    id: FlowKey,
    state: State,
    pieces: Pieces,
    since: Nanos,
    /// What waits, and how many.
    queue: Q,
    waiting: u16,
    /// The next in its bucket; of a free one, the next free one.
    next: u32,
    is_live: bool,
}

/// What a tenant has in the table: datagrams whose fragments wait, and all others.
#[derive(Clone)]
struct Tenant {
    quota: usize,
    waiting: Order,
    others: Order,
}

/// Datagrams of which some fragments have come. `Q` is a queue of fragments that wait, kept by the caller: the table only
/// says in which one, and gives it back when they wait no longer.
///
/// Where a call may let go of other datagrams, their queues go to `gone`, with the reason.
pub struct Datagrams<Q> {
    secret: Secret,
    bounds: Bounds,
    /// Heads of the chains of datagrams with one hash.
    buckets: Box<[u32]>,
    datagrams: Box<[Datagram<Q>]>,
    links: Box<[Links]>,
    tenants: Box<[Tenant]>,
    /// By tenant: datagrams, and fragments that wait. Apart from the rest, since the largest of them is looked for.
    datagrams_of: Box<[u16]>,
    waiting_of: Box<[u16]>,
    /// Tenants from here on never had a quota.
    tenants_known: usize,
    free: u32,
    /// Datagrams from here on were never used.
    fresh: usize,
    len: usize,
    waiting: usize,
    /// The next datagram that `expire` looks at.
    hand: usize,
}

impl<Q: Default> Datagrams<Q> {
    /// A table for tenants that are numbered from 0. All memory is taken now. `seed` must be unknown to whoever sends
    /// packets. No tenant has a quota at first.
    pub fn new(bounds: Bounds, tenants: usize, seed: u64) -> Self {
        let most = usize::from(u16::MAX);
        let bounds = Bounds {
            datagrams: bounds.datagrams.clamp(1, most),
            waiting: bounds.waiting.min(most),
            waiting_per_tenant: bounds.waiting_per_tenant.min(bounds.waiting).min(most),
        };
        let tenant = Tenant { quota: 0, waiting: Order::EMPTY, others: Order::EMPTY };
        let last = bounds.datagrams as u32 - 1;
        Self {
            secret: Secret::new(seed),
            buckets: vec![NONE; bounds.datagrams.next_power_of_two()].into_boxed_slice(),
            datagrams: (0..=last)
                .map(|number| Datagram::free(if number < last { number + 1 } else { NONE }))
                .collect(),
            links: vec![Links::NONE; bounds.datagrams].into_boxed_slice(),
            tenants: vec![tenant; tenants].into_boxed_slice(),
            datagrams_of: vec![0; tenants].into_boxed_slice(),
            waiting_of: vec![0; tenants].into_boxed_slice(),
            bounds,
            tenants_known: 0,
            free: 0,
            fresh: 0,
            len: 0,
            waiting: 0,
            hand: 0,
        }
    }

    /// Datagrams in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fragments that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Datagrams of a tenant; zero when there is no such tenant.
    pub fn in_use(&self, tenant: u16) -> usize {
        self.datagrams_of.get(usize::from(tenant)).map_or(0, |count| usize::from(*count))
    }

    /// Sets how many datagrams a tenant may have; none when there is no such tenant. Those beyond it stay until they end.
    pub fn set_quota(&mut self, tenant: u16, datagrams: usize) {
        if let Some(found) = self.tenants.get_mut(usize::from(tenant)) {
            found.quota = datagrams;
            self.tenants_known = self.tenants_known.max(usize::from(tenant) + 1);
        }
    }

    /// A first fragment, of `flow`: takes the queue of those that waited for it, which are to follow it.
    ///
    /// # Errors
    /// When it is not to be sent on; the same [`Loss`] went with what waited, if anything did.
    pub fn first(
        &mut self,
        id: &FlowKey,
        piece: Piece,
        flow: &FlowKey,
        now: Nanos,
        gone: &mut impl FnMut(Q, Loss),
    ) -> Result<Q, Loss> {
        let number = self.enter(id, now, gone)?;
        if let State::Open(known) = self.at(number).state
            && known != *flow
        {
            return Err(self.spoil(number, Loss::Overlap, gone));
        }
        self.add(number, piece, gone)?;
        let queue = self.take_queue(number);
        self.set_state(number, State::Open(*flow));
        self.remove_if_whole(number);
        Ok(queue)
    }

    /// A later fragment.
    ///
    /// # Errors
    /// As [`Datagrams::first`].
    pub fn later(
        &mut self,
        id: &FlowKey,
        piece: Piece,
        now: Nanos,
        gone: &mut impl FnMut(Q, Loss),
    ) -> Result<Later<'_, Q>, Loss> {
        let number = self.enter(id, now, gone)?;
        self.add(number, piece, gone)?;
        if let State::Open(flow) = self.at(number).state {
            self.remove_if_whole(number);
            return Ok(Later::Follows(flow));
        }
        self.make_room_to_wait(number, gone)?;
        self.waiting += 1;
        self.waiting_of[usize::from(id.tenant)] += 1;
        let datagram = &mut self.datagrams[number as usize];
        datagram.waiting += 1;
        Ok(Later::Waits(&mut datagram.queue))
    }

    /// Looks at the next `budget` datagrams, going round, and lets go of those whose time is over; returns how many. One
    /// that seems to come from the future, since the clock went back, has its lifetime from now on.
    pub fn expire(&mut self, now: Nanos, budget: usize, gone: &mut impl FnMut(Q, Loss)) -> usize {
        let before = self.len;
        if self.len == 0 {
            return 0;
        }
        for _ in 0..budget.min(self.fresh) {
            let number = self.hand;
            self.hand = (self.hand + 1) % self.fresh;
            let datagram = &mut self.datagrams[number];
            datagram.since = datagram.since.min(now);
            if datagram.is_live && datagram.is_over(now) {
                self.let_go(number as u32, Loss::Timeout, gone);
            }
        }
        before - self.len
    }

    /// The datagram of that identity, new if it is not there or its time is over; an error when it is spoilt.
    fn enter(&mut self, id: &FlowKey, now: Nanos, gone: &mut impl FnMut(Q, Loss)) -> Result<u32, Loss> {
        if let Some(number) = self.find(id) {
            match self.at(number).state {
                _ if self.at(number).is_over(now) => self.let_go(number, Loss::Timeout, gone),
                State::Spoilt(loss) => return Err(loss),
                _ => return Ok(number),
            }
        }
        self.make_room(usize::from(id.tenant), gone)?;
        Ok(self.insert(id, now))
    }

    fn find(&self, id: &FlowKey) -> Option<u32> {
        let mut number = self.buckets[self.bucket(id)];
        while let Some(datagram) = self.datagrams.get(number as usize) {
            if datagram.id == *id {
                return Some(number);
            }
            number = datagram.next;
        }
        None
    }

    fn bucket(&self, id: &FlowKey) -> usize {
        self.secret.hash(id).0 as usize & (self.buckets.len() - 1)
    }

    fn at(&self, number: u32) -> &Datagram<Q> {
        &self.datagrams[number as usize]
    }

    /// Adds a piece, or refuses it; one that does not fit spoils the datagram.
    fn add(&mut self, number: u32, piece: Piece, gone: &mut impl FnMut(Q, Loss)) -> Result<(), Loss> {
        self.datagrams[number as usize].pieces.add(piece).map_err(|loss| match loss {
            Loss::Duplicate => loss,
            _ => self.spoil(number, loss, gone),
        })
    }

    /// Lets the oldest datagram go of the tenant if it is at its quota, of the one that has most if the table is full.
    fn make_room(&mut self, tenant: usize, gone: &mut impl FnMut(Q, Loss)) -> Result<(), Loss> {
        let quota = self.tenants.get(tenant).map_or(0, |tenant| tenant.quota);
        if quota == 0 {
            return Err(Loss::Limit);
        }
        let loser = match self.free {
            _ if usize::from(self.datagrams_of[tenant]) >= quota => tenant,
            NONE => largest(&self.datagrams_of[..self.tenants_known]),
            _ => return Ok(()),
        };
        let oldest = self.oldest(loser);
        self.let_go(oldest, Loss::Limit, gone);
        Ok(())
    }

    /// Room for one more fragment of that datagram to wait. When the datagram itself would have to go, nothing of it
    /// passes any more.
    fn make_room_to_wait(&mut self, number: u32, gone: &mut impl FnMut(Q, Loss)) -> Result<(), Loss> {
        let tenant = usize::from(self.at(number).id.tenant);
        let loser = match usize::from(self.waiting_of[tenant]) {
            own if own >= self.bounds.waiting_per_tenant => tenant,
            _ if self.waiting >= self.bounds.waiting => largest(&self.waiting_of[..self.tenants_known]),
            _ => return Ok(()),
        };
        match self.tenants[loser].waiting.oldest {
            oldest if oldest != number && self.waiting_of[loser] > 0 => {
                self.let_go(oldest, Loss::Limit, gone);
                Ok(())
            }
            _ => Err(self.spoil(number, Loss::Limit, gone)),
        }
    }

    /// The oldest datagram of a tenant that has one.
    fn oldest(&self, tenant: usize) -> u32 {
        let Tenant { waiting, others, .. } = &self.tenants[tenant];
        let age =
            |number: u32| self.datagrams.get(number as usize).map_or(Nanos::NEVER, |datagram| datagram.since);
        if others.oldest == NONE || age(waiting.oldest) < age(others.oldest) {
            waiting.oldest
        } else {
            others.oldest
        }
    }

    /// A new datagram; there is room.
    fn insert(&mut self, id: &FlowKey, now: Nanos) -> u32 {
        let (number, bucket, tenant) = (self.free, self.bucket(id), usize::from(id.tenant));
        let datagram = &mut self.datagrams[number as usize];
        self.free = datagram.next;
        self.fresh = self.fresh.max(number as usize + 1);
        datagram.id = *id;
        datagram.state = State::Waiting;
        datagram.pieces = Pieces::NONE;
        datagram.since = now;
        datagram.next = core::mem::replace(&mut self.buckets[bucket], number);
        datagram.is_live = true;
        self.tenants[tenant].waiting.push(number, &mut self.links);
        self.datagrams_of[tenant] += 1;
        self.len += 1;
        number
    }

    fn set_state(&mut self, number: u32, state: State) {
        let datagram = &mut self.datagrams[number as usize];
        let tenant = &mut self.tenants[usize::from(datagram.id.tenant)];
        if datagram.state == State::Waiting && state != State::Waiting {
            tenant.waiting.remove(number, &mut self.links);
            tenant.others.push(number, &mut self.links);
        }
        datagram.state = state;
    }

    /// From now on nothing of the datagram passes; what waited is gone.
    fn spoil(&mut self, number: u32, loss: Loss, gone: &mut impl FnMut(Q, Loss)) -> Loss {
        if self.at(number).waiting > 0 {
            gone(self.take_queue(number), loss);
        }
        self.set_state(number, State::Spoilt(loss));
        loss
    }

    fn let_go(&mut self, number: u32, loss: Loss, gone: &mut impl FnMut(Q, Loss)) {
        if self.at(number).waiting > 0 {
            gone(self.take_queue(number), loss);
        }
        self.remove(number);
    }

    fn remove_if_whole(&mut self, number: u32) {
        if self.at(number).pieces.is_whole() {
            self.remove(number);
        }
    }

    /// Frees a datagram for which nothing waits.
    fn remove(&mut self, number: u32) {
        self.unchain(number);
        let datagram = &mut self.datagrams[number as usize];
        let tenant = usize::from(datagram.id.tenant);
        let lists = &mut self.tenants[tenant];
        let list = if datagram.state == State::Waiting { &mut lists.waiting } else { &mut lists.others };
        list.remove(number, &mut self.links);
        datagram.is_live = false;
        datagram.next = core::mem::replace(&mut self.free, number);
        self.datagrams_of[tenant] -= 1;
        self.len -= 1;
    }

    /// Takes a datagram out of its bucket's chain.
    fn unchain(&mut self, number: u32) {
        let next = self.at(number).next;
        let bucket = self.bucket(&self.at(number).id);
        let mut link = &mut self.buckets[bucket];
        while *link != number {
            link = &mut self.datagrams[*link as usize].next;
        }
        *link = next;
    }

    fn take_queue(&mut self, number: u32) -> Q {
        let datagram = &mut self.datagrams[number as usize];
        let waited = core::mem::take(&mut datagram.waiting);
        self.waiting -= usize::from(waited);
        self.waiting_of[usize::from(datagram.id.tenant)] -= waited;
        core::mem::take(&mut datagram.queue)
    }
}

impl<Q: Default> Datagram<Q> {
    fn free(next: u32) -> Self {
        Self {
            id: FlowKey::default(),
            state: State::Waiting,
            pieces: Pieces::NONE,
            since: Nanos(0),
            queue: Q::default(),
            waiting: 0,
            next,
            is_live: false,
        }
    }

    fn is_over(&self, now: Nanos) -> bool {
        now.since(self.since) >= LIFETIME
    }
}

/// The tenant with the highest count, the first of several.
fn largest(counts: &[u16]) -> usize {
    let most = counts.iter().copied().max();
    counts.iter().position(|count| Some(*count) == most).unwrap_or(0)
}
