//! The table against a slow model: datagrams in a plain list, each with one entry a byte.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const TENANTS: u16 = 3;
const BOUNDS: Bounds = Bounds { datagrams: 6, waiting: 5, waiting_per_tenant: 3 };

#[derive(Clone, Debug)]
enum Step {
    First { tenant: u16, id: u32, piece: Piece, port: u32 },
    Later { tenant: u16, id: u32, piece: Piece },
    Expire,
    Quota { tenant: u16, datagrams: usize },
    Pass(i64),
}

/// What a call made of a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Fate {
    Sent(Vec<u32>),
    Follows(FlowKey),
    Waits,
    Refused(Loss),
}

struct Datagram {
    id: FlowKey,
    since: u64,
    /// By byte, the number of the piece that it came in.
    bytes: BTreeMap<u16, usize>,
    pieces: Vec<Piece>,
    /// `None` while its first has not come.
    verdict: Option<Result<FlowKey, Loss>>,
    queue: Vec<u32>,
    /// When it came to be, and when it no longer waited, in calls.
    place: u64,
}

#[derive(Default)]
struct Model {
    datagrams: Vec<Datagram>,
    quotas: [usize; TENANTS as usize],
    gone: Vec<(Vec<u32>, Loss)>,
    calls: u64,
}

impl Datagram {
    fn end(&self) -> Option<u16> {
        self.pieces.iter().find(|piece| !piece.more).map(|piece| piece.offset + piece.len)
    }

    fn add(&mut self, piece: Piece) -> Result<(), Loss> {
        if self.pieces.contains(&piece) {
            return Err(Loss::Duplicate);
        }
        let range = piece.offset..piece.offset + piece.len;
        let seen_up_to = self.bytes.keys().next_back().map_or(0, |last| last + 1);
        let wrong_end = match self.end() {
            Some(end) => range.end > end || (range.end == end) == piece.more,
            None => !piece.more && seen_up_to > range.end,
        };
        if range.is_empty() || range.clone().any(|byte| self.bytes.contains_key(&byte)) || wrong_end {
            return Err(Loss::Overlap);
        }
        self.bytes.extend(range.map(|byte| (byte, self.pieces.len())));
        self.pieces.push(piece);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.end().is_some_and(|end| (0..end).all(|byte| self.bytes.contains_key(&byte)))
    }
}

impl Model {
    fn of(&self, tenant: u16) -> impl Iterator<Item = &Datagram> {
        self.datagrams.iter().filter(move |datagram| datagram.id.tenant == tenant)
    }

    fn waiting_of(&self, tenant: u16) -> usize {
        self.of(tenant).map(|datagram| datagram.queue.len()).sum()
    }

    fn waiting(&self) -> usize {
        (0..TENANTS).map(|tenant| self.waiting_of(tenant)).sum()
    }

    /// The tenant with the highest count, the first of several.
    fn largest(&self, count: impl Fn(u16) -> usize) -> u16 {
        (0..TENANTS).rev().max_by_key(|tenant| count(*tenant)).unwrap()
    }

    fn let_go(&mut self, id: FlowKey, loss: Loss) {
        let at = self.datagrams.iter().position(|datagram| datagram.id == id).unwrap();
        let queue = self.datagrams.remove(at).queue;
        if !queue.is_empty() {
            self.gone.push((queue, loss));
        }
    }

    fn oldest(&self, tenant: u16, waits: bool) -> Option<&Datagram> {
        self.of(tenant)
            .filter(|datagram| datagram.verdict.is_none() == waits)
            .min_by_key(|datagram| datagram.place)
    }

    /// The index of a datagram, which is made if need be.
    fn enter(&mut self, id: FlowKey, now: u64) -> Result<usize, Loss> {
        if let Some(at) = self.datagrams.iter().position(|datagram| datagram.id == id) {
            let datagram = &self.datagrams[at];
            if now.saturating_sub(datagram.since) < LIFETIME.0 {
                return match datagram.verdict {
                    Some(Err(loss)) => Err(loss),
                    _ => Ok(at),
                };
            }
            self.let_go(id, Loss::Timeout);
        }
        let quota = self.quotas.get(usize::from(id.tenant)).copied().unwrap_or(0);
        if quota == 0 {
            return Err(Loss::Limit);
        }
        let loser = match () {
            () if self.of(id.tenant).count() >= quota => Some(id.tenant),
            () if self.datagrams.len() == BOUNDS.datagrams => {
                Some(self.largest(|tenant| self.of(tenant).count()))
            }
            () => None,
        };
        if let Some(loser) = loser {
            let (waits, others) = (self.oldest(loser, true), self.oldest(loser, false));
            let oldest = match (waits, others) {
                (Some(waits), Some(others)) if waits.since >= others.since => others.id,
                (Some(waits), _) => waits.id,
                (None, others) => others.unwrap().id,
            };
            self.let_go(oldest, Loss::Limit);
        }
        let (bytes, pieces, queue) = (BTreeMap::new(), Vec::new(), Vec::new());
        self.datagrams.push(Datagram {
            id,
            since: now,
            bytes,
            pieces,
            verdict: None,
            queue,
            place: self.calls,
        });
        Ok(self.datagrams.len() - 1)
    }

    fn spoil(&mut self, at: usize, loss: Loss) -> Loss {
        let datagram = &mut self.datagrams[at];
        if datagram.verdict.is_none() {
            datagram.place = self.calls;
        }
        datagram.verdict = Some(Err(loss));
        let queue = std::mem::take(&mut datagram.queue);
        if !queue.is_empty() {
            self.gone.push((queue, loss));
        }
        loss
    }

    fn add(&mut self, at: usize, piece: Piece) -> Result<(), Loss> {
        match self.datagrams[at].add(piece) {
            Err(Loss::Overlap) => Err(self.spoil(at, Loss::Overlap)),
            other => other,
        }
    }

    fn first(&mut self, id: FlowKey, piece: Piece, flow: FlowKey, now: u64) -> Result<Fate, Loss> {
        let at = self.enter(id, now)?;
        if matches!(self.datagrams[at].verdict, Some(Ok(known)) if known != flow) {
            return Err(self.spoil(at, Loss::Overlap));
        }
        self.add(at, piece)?;
        let place = self.calls;
        let datagram = &mut self.datagrams[at];
        if datagram.verdict.is_none() {
            datagram.place = place;
        }
        datagram.verdict = Some(Ok(flow));
        let queue = std::mem::take(&mut datagram.queue);
        if datagram.is_whole() {
            self.let_go(id, Loss::Limit);
        }
        Ok(Fate::Sent(queue))
    }

    fn later(&mut self, id: FlowKey, piece: Piece, name: u32, now: u64) -> Result<Fate, Loss> {
        let at = self.enter(id, now)?;
        self.add(at, piece)?;
        if let Some(Ok(flow)) = self.datagrams[at].verdict {
            if self.datagrams[at].is_whole() {
                self.let_go(id, Loss::Limit);
            }
            return Ok(Fate::Follows(flow));
        }
        let loser = match () {
            () if self.waiting_of(id.tenant) >= BOUNDS.waiting_per_tenant => Some(id.tenant),
            () if self.waiting() >= BOUNDS.waiting => Some(self.largest(|tenant| self.waiting_of(tenant))),
            () => None,
        };
        if let Some(loser) = loser {
            let oldest = self.oldest(loser, true).unwrap().id;
            if oldest == id {
                return Err(self.spoil(at, Loss::Limit));
            }
            self.let_go(oldest, Loss::Limit);
        }
        let datagram = self.datagrams.iter_mut().find(|datagram| datagram.id == id).unwrap();
        datagram.queue.push(name);
        Ok(Fate::Waits)
    }

    fn expire(&mut self, now: u64) {
        self.datagrams.iter_mut().for_each(|datagram| datagram.since = datagram.since.min(now));
        let over = |datagram: &&Datagram| now - datagram.since >= LIFETIME.0;
        let over: Vec<FlowKey> = self.datagrams.iter().filter(over).map(|datagram| datagram.id).collect();
        over.into_iter().for_each(|id| self.let_go(id, Loss::Timeout));
    }
}

fn fate(result: Result<Fate, Loss>) -> Fate {
    result.unwrap_or_else(Fate::Refused)
}

/// Plays one step on both; what they say must be the same.
fn play(table: &mut Table, model: &mut Model, step: &Step, now: u64, name: u32) -> Result<(), TestCaseError> {
    let mut gone = Vec::new();
    let mut sink = |queue, loss| gone.push((queue, loss));
    model.calls += 1;
    model.gone.clear();
    match *step {
        Step::First { tenant, id: number, piece, port } => {
            let (id, flow) = (id(tenant, number), flow(port));
            let seen = table.first(&id, piece, &flow, Nanos(now), &mut sink).map(Fate::Sent);
            prop_assert_eq!(fate(seen), fate(model.first(id, piece, flow, now)), "{:?}", step);
        }
        Step::Later { tenant, id: number, piece } => {
            let id = id(tenant, number);
            let seen = table.later(&id, piece, Nanos(now), &mut sink).map(|later| match later {
                Later::Follows(flow) => Fate::Follows(flow),
                Later::Waits(queue) => {
                    queue.push(name);
                    Fate::Waits
                }
            });
            prop_assert_eq!(fate(seen), fate(model.later(id, piece, name, now)), "{:?}", step);
        }
        Step::Expire => {
            table.expire(Nanos(now), BOUNDS.datagrams, &mut sink);
            model.expire(now);
            gone.sort_by_key(|(queue, _)| queue.clone());
            model.gone.sort_by_key(|(queue, _)| queue.clone());
        }
        Step::Quota { tenant, datagrams } => {
            table.set_quota(tenant, datagrams);
            model.quotas[usize::from(tenant)] = datagrams;
        }
        Step::Pass(_) => {}
    }
    prop_assert_eq!(&gone, &model.gone, "{:?}", step);
    prop_assert_eq!((table.len(), table.waiting()), (model.datagrams.len(), model.waiting()));
    for tenant in 0..TENANTS {
        prop_assert_eq!(table.in_use(tenant), model.of(tenant).count());
    }
    Ok(())
}

/// Mostly pieces of a datagram of 40 bytes; sometimes any.
fn pieces() -> impl Strategy<Value = Piece> {
    let fitting = prop_oneof![
        Just(piece(8, 16, true)),
        Just(piece(16, 24, true)),
        Just(piece(16, 32, true)),
        Just(piece(24, 32, true)),
        Just(piece(32, 40, false)),
    ];
    let any = (0..7_u16, 0..20_u16, any::<bool>()).prop_map(|(eights, len, more)| Piece {
        offset: 8 * eights,
        len,
        more,
    });
    prop_oneof![5 => fitting, 1 => any]
}

fn step() -> impl Strategy<Value = Step> {
    let tenant = || 0..TENANTS + 1;
    let first = prop_oneof![5 => Just(piece(0, 8, true)), 1 => Just(piece(0, 16, true))];
    prop_oneof![
        6 => (tenant(), 0..4_u32, first, 80..82_u32)
            .prop_map(|(tenant, id, piece, port)| Step::First { tenant, id, piece, port }),
        12 => (tenant(), 0..4_u32, pieces()).prop_map(|(tenant, id, piece)| Step::Later { tenant, id, piece }),
        2 => Just(Step::Expire),
        1 => (0..TENANTS, 0..5_usize).prop_map(|(tenant, datagrams)| Step::Quota { tenant, datagrams }),
        2 => prop_oneof![0..1_500_000_000_i64, -3_000_000_000..0_i64, any::<i64>()].prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..Default::default() })]

    #[test]
    fn agrees_with_the_model(steps in prop::collection::vec(step(), 1..120), start in 0..1_u64 << 40) {
        let mut table = Table::new(BOUNDS, usize::from(TENANTS), 1);
        let mut model = Model::default();
        let mut now = start;
        for tenant in 0..TENANTS {
            play(&mut table, &mut model, &Step::Quota { tenant, datagrams: 4 }, now, 0)?;
        }
        for (name, step) in (0..).zip(&steps) {
            if let Step::Pass(span) = step {
                now = now.saturating_add_signed(*span);
            }
            play(&mut table, &mut model, step, now, name)?;
        }
    }
}
