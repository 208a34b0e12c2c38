//! Sequences of messages, packets and clock steps on the table and on a list of pairs: they must agree after each.

use super::super::*;
use super::{address, hosts};
use packet::Nanos;
use proptest::prelude::*;
use wire::roce::cm::{self, Kind, Message, Offer};
use wire::roce::opcode;

const CAPACITY: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    Say { src: u8, dst: u8, message: Message },
    Packet { src: u8, dst: u8, qp: u32, packet: Packet, strict: bool },
    Expire,
    Clock { step_ms: i64 },
    Quota(usize),
}

fn ends() -> impl Strategy<Value = (u8, u8)> {
    prop::sample::select(vec![(1, 2), (2, 1), (1, 2), (2, 1), (1, 3), (3, 1), (3, 2)])
}

/// Few numbers, so that they meet; PSNs close together in three places, one of them where they go round.
fn psn() -> impl Strategy<Value = u32> {
    (prop::sample::select(vec![100, 100, 100, 0xff_fffe, 0x80_0000]), 0..5_u32)
        .prop_map(|(at, by)| (at + by) & 0xff_ffff)
}

fn message() -> impl Strategy<Value = Message> {
    let offer = || (0..4_u32, psn()).prop_map(|(qp, psn)| Offer { qp, psn });
    let service =
        prop::sample::select(vec![cm::Service::Rc, cm::Service::Rc, cm::Service::Uc, cm::Service::Rd]);
    let kind = prop_oneof![
        4 => (offer(), service).prop_map(|(offer, service)| Kind::Request { offer, service }),
        4 => offer().prop_map(Kind::Reply),
        2 => Just(Kind::Ready),
        1 => Just(Kind::Reject),
        1 => Just(Kind::MoreTime),
        2 => (0..4_u32).prop_map(|remote_qp| Kind::Disconnect { remote_qp }),
        1 => Just(Kind::Disconnected),
        1 => Just(Kind::Path),
        1 => Just(Kind::Resolve),
        1 => Just(Kind::Resolved),
    ];
    (0..3_u32, 0..3_u32, kind).prop_map(|(local_id, remote_id, kind)| Message { local_id, remote_id, kind })
}

fn traffic() -> impl Strategy<Value = Packet> {
    let opcodes = prop_oneof![
        6 => 0..0x18_u8,
        2 => Just(opcode::ACKNOWLEDGE),
        2 => Just(opcode::SEND_ONLY),
        1 => Just(opcode::CNP),
        1 => Just(opcode::UC | opcode::SEND_FIRST),
        1 => any::<u8>(),
    ];
    let syndrome = prop_oneof![3 => Just(0), 1 => any::<u8>()];
    let packet = |(opcode, psn, syndrome, has_becn)| Packet { opcode, psn, syndrome, has_becn, bytes: 64 };
    (opcodes, psn(), syndrome, any::<bool>()).prop_map(packet)
}

fn op() -> impl Strategy<Value = Op> {
    let step_ms = prop_oneof![4 => 0..5_000_i64, 1 => -20_000..400_000_i64, 1 => Just(8_000_000_i64)];
    prop_oneof![
        6 => (ends(), message()).prop_map(|((src, dst), message)| Op::Say { src, dst, message }),
        12 => (ends(), 0..4_u32, traffic(), prop::bool::weighted(0.2))
            .prop_map(|((src, dst), qp, packet, strict)| Op::Packet { src, dst, qp, packet, strict }),
        1 => Just(Op::Expire),
        2 => step_ms.prop_map(|step_ms| Op::Clock { step_ms }),
        1 => (0..CAPACITY + 2).prop_map(Op::Quota),
    ]
}

/// What one side has sent: the last packet of each sequence, and its number.
#[derive(Clone, Debug, Default)]
struct Side {
    qp: Option<u32>,
    id: Option<u32>,
    /// The last request's opcode; `None` before the first of a connection whose first PSN is known.
    request: Option<Option<u8>>,
    next: u32,
    response: Option<(u8, u32)>,
    service: Option<u8>,
    seen: u64,
    counts: Counts,
    naks: u32,
}

#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    hosts: [u8; 2],
    state: State,
    service: Service,
    sides: [Side; 2],
    heard: u64,
    first: u32,
    bucket: u32,
}

/// What of a message is not finished by this opcode.
fn begun(opcode: u8) -> &'static str {
    match opcode & 0x1f {
        opcode::SEND_FIRST | opcode::SEND_MIDDLE => "send",
        opcode::WRITE_FIRST | opcode::WRITE_MIDDLE => "write",
        opcode::READ_RESPONSE_FIRST | opcode::READ_RESPONSE_MIDDLE => "read",
        _ => "",
    }
}

/// What must have begun before this opcode.
fn goes_on(opcode: u8) -> &'static str {
    match opcode & 0x1f {
        1..=3 | 0x16 => "send",
        7..=9 => "write",
        0x0e | 0x0f => "read",
        _ => "",
    }
}

impl Side {
    /// The other side has said which PSN comes first.
    fn begin(&mut self, psn: u32, service: Service) {
        (self.request, self.next) = (Some(None), psn);
        self.service = Some(if service == Service::Uc { opcode::UC } else { opcode::RC });
    }

    fn record(&mut self, packet: &Packet, strict: bool, now: u64) -> Result<Note, Refusal> {
        let ahead = (packet.psn + (1 << 24) - self.next) % (1 << 24);
        let same_service = self.service.is_none_or(|service| service == packet.opcode & 0xe0);
        let note = if packet.is_request() {
            match self.request {
                None => Note::Nothing,
                Some(_) if !same_service => Note::OutOfOrder,
                Some(last) if ahead == 0 => {
                    let right = last.map_or("", begun) == goes_on(packet.opcode);
                    if right { Note::Nothing } else { Note::OutOfOrder }
                }
                Some(Some(last)) if ahead < 1 << 23 && last & 0x1f == opcode::READ_REQUEST => Note::Nothing,
                Some(_) if ahead < 1 << 23 => Note::Gap,
                Some(_) => Note::Retry,
            }
        } else if packet.is_response() {
            let has_aeth = packet.opcode & 0x1f != opcode::READ_RESPONSE_MIDDLE;
            match packet.syndrome >> 5 & 3 {
                1 if has_aeth && packet.syndrome < 0x80 => Note::RnrNak,
                2 | 3 if has_aeth => Note::Nak,
                _ if has_aeth && packet.syndrome >= 0x20 => Note::Nak,
                _ => match self.response {
                    Some((last, psn)) if packet.psn == (psn + 1) % (1 << 24) => {
                        let same = last & 0xe0 == packet.opcode & 0xe0;
                        let right = begun(last) == goes_on(packet.opcode) && same;
                        if right { Note::Nothing } else { Note::OutOfOrder }
                    }
                    _ => Note::Nothing,
                },
            }
        } else if packet.opcode == opcode::CNP && packet.has_becn {
            Note::Cnp
        } else {
            Note::OutOfOrder
        };
        match note {
            Note::OutOfOrder => self.counts.out_of_order += 1,
            Note::Gap => self.counts.gaps += 1,
            Note::Retry => self.counts.retries += 1,
            Note::Cnp => self.counts.cnps += 1,
            Note::Nak | Note::RnrNak => self.naks += 1,
            Note::Nothing => {}
        }
        if note == Note::OutOfOrder && strict {
            return Err(Refusal::OutOfOrder);
        }
        if packet.is_request() {
            (self.request, self.next) = (Some(Some(packet.opcode)), (packet.psn + 1) % (1 << 24));
            self.service = Some(packet.opcode & 0xe0);
        } else if packet.is_response() {
            self.response = Some((packet.opcode, packet.psn));
        }
        self.counts.packets += 1;
        self.counts.bytes += u64::from(packet.bytes);
        self.seen = self.seen.max(now);
        Ok(note)
    }
}

struct List {
    entries: Vec<Entry>,
    quota: usize,
    now: u64,
    number: u64,
}

impl List {
    fn learned(&self) -> usize {
        self.entries.iter().filter(|entry| entry.state.is_learned()).count()
    }

    fn add(&mut self, src: u8, dst: u8, state: State, service: Service) -> Result<usize, Full> {
        let too_many = state.is_learned() && self.learned() >= self.quota.div_ceil(2);
        if self.entries.len() >= self.quota || too_many {
            return Err(Full::Quota);
        }
        if self.entries.len() >= CAPACITY {
            return Err(Full::Table);
        }
        let sides = [Side::default(), Side::default()];
        let (number, heard) = (self.number, self.now);
        self.number += 1;
        self.entries.push(Entry {
            number,
            hosts: [src, dst],
            state,
            service,
            sides,
            heard,
            first: 0,
            bucket: 0,
        });
        Ok(self.entries.len() - 1)
    }

    /// The pair that carries packets from `src` to that queue pair of `dst`, and the sender's side.
    fn find(&self, src: u8, dst: u8, qp: u32) -> Option<(usize, usize)> {
        let all = self.entries.iter().enumerate().flat_map(|(index, _)| [(index, 0), (index, 1)]);
        let mut right = all.filter(|&(index, side)| {
            let entry = &self.entries[index];
            let between = entry.hosts[side] == src && entry.hosts[side ^ 1] == dst;
            between && entry.sides[side ^ 1].qp == Some(qp) && entry.state.carries()
        });
        let found = right.next();
        assert_eq!(right.next(), None, "a queue pair is connected once to the same host");
        found
    }

    fn answer(&mut self, src: u8, dst: u8, qp: u32, psn: u32) -> Option<(usize, usize)> {
        let fits = |entry: &&mut Entry| {
            let length = (entry.sides[0].next + (1 << 24) - entry.first) % (1 << 24);
            let at = (psn + (1 << 24) - entry.first) % (1 << 24);
            let near = (psn >> 16).abs_diff(entry.bucket) % 0xff <= 1;
            let half = entry.state == State::Half && entry.service != Service::Uc;
            half && entry.hosts == [dst, src] && length < 1 << 23 && at < length && near
        };
        let right: Vec<usize> =
            self.entries.iter_mut().enumerate().filter(|(_, entry)| fits(entry)).map(|(at, _)| at).collect();
        let [index] = right[..] else { return None };
        self.entries[index].state = State::Paired;
        self.entries[index].sides[0].qp = Some(qp);
        Some((index, 1))
    }

    /// The pair that a message is about, and its sender's side.
    fn named(&self, src: u8, dst: u8, message: &Message) -> Vec<(usize, usize)> {
        let all = self.entries.iter().enumerate().flat_map(|(index, _)| [(index, 0), (index, 1)]);
        let right = all.filter(|&(index, side)| {
            let entry = &self.entries[index];
            let (own, other) = (entry.sides[side].id, entry.sides[side ^ 1].id);
            let is_datagrams = entry.service == Service::Ud;
            let about = match message.kind {
                Kind::Request { .. } | Kind::Resolve => false,
                Kind::Resolved => is_datagrams && other == Some(message.remote_id),
                Kind::Reject if message.remote_id == 0 => own == Some(message.local_id),
                Kind::Reject if message.local_id == 0 => other == Some(message.remote_id),
                _ => {
                    let own_agrees = own.is_none() || own == Some(message.local_id);
                    !is_datagrams && other == Some(message.remote_id) && own_agrees
                }
            };
            about && entry.hosts[side] == src && entry.hosts[side ^ 1] == dst
        });
        right.collect()
    }

    fn end_pairs_of(&mut self, host: u8, qp: u32, but: Option<u64>) {
        self.entries.retain(|entry| {
            let uses = |side: usize| entry.hosts[side] == host && entry.sides[side].qp == Some(qp);
            but == Some(entry.number) || entry.state == State::Closing || !(uses(0) || uses(1))
        });
    }

    fn hear(&mut self, src: u8, dst: u8, message: &Message, about: Option<(usize, usize)>) -> Heard {
        let (offer, service) = match message.kind {
            Kind::Request { service: cm::Service::Rd, .. } => return Heard::Unrelated,
            Kind::Request { offer, service: cm::Service::Uc } => (Some(offer), Service::Uc),
            Kind::Request { offer, .. } => (Some(offer), Service::Rc),
            Kind::Resolve => (None, Service::Ud),
            _ => {
                return about.map_or(Heard::Unrelated, |(index, side)| self.hear_about(index, side, message));
            }
        };
        let qp = offer.map(|offer| offer.qp);
        let same = |entry: &Entry| entry.hosts == [src, dst] && entry.sides[0].id == Some(message.local_id);
        if let Some(index) = self.entries.iter().position(same) {
            let entry = &mut self.entries[index];
            if (entry.sides[0].qp, entry.service) == (qp, service) {
                entry.heard = entry.heard.max(self.now);
                return Heard::Known;
            }
            self.entries.remove(index);
        }
        if let Some(qp) = qp {
            self.end_pairs_of(src, qp, None);
        }
        let index = match self.add(src, dst, State::Requested, service) {
            Ok(index) => index,
            Err(full) => return Heard::Full(full),
        };
        let sides = &mut self.entries[index].sides;
        (sides[0].id, sides[0].qp) = (Some(message.local_id), qp);
        if let Some(offer) = offer {
            sides[1].begin(offer.psn, service);
        }
        Heard::Requested
    }

    fn hear_about(&mut self, index: usize, side: usize, message: &Message) -> Heard {
        let entry = &mut self.entries[index];
        match (message.kind, entry.state, side) {
            (Kind::Reply(offer), State::Requested | State::Replied, 1) => {
                let same = entry.sides[1].id == Some(message.local_id) && entry.sides[1].qp == Some(offer.qp);
                if same || entry.service == Service::Ud {
                    entry.heard = entry.heard.max(self.now);
                    return Heard::Known;
                }
                (entry.sides[1].qp, entry.sides[1].id) = (Some(offer.qp), Some(message.local_id));
                entry.sides[0].begin(offer.psn, entry.service);
                (entry.state, entry.heard) = (State::Replied, entry.heard.max(self.now));
                let (hosts, qp, number) = (entry.hosts, entry.sides[0].qp, entry.number);
                self.end_pairs_of(hosts[1], offer.qp, Some(number));
                self.end_pairs_of(hosts[0], qp.expect("a request's"), Some(number));
                return Heard::Connected { opener: qp.expect("a request's"), responder: offer.qp };
            }
            (Kind::Ready, State::Replied, 0) => entry.state = State::Open,
            (Kind::Reject, State::Requested | State::Replied, _)
            | (Kind::Disconnected, State::Closing, _)
            | (Kind::Resolved, ..) => {
                self.entries.remove(index);
                return Heard::Released;
            }
            (Kind::Disconnect { remote_qp }, State::Replied | State::Open, _)
                if entry.sides[side ^ 1].qp == Some(remote_qp) =>
            {
                (entry.state, entry.heard) = (State::Closing, entry.heard.max(self.now));
                return Heard::Released;
            }
            _ => {}
        }
        entry.heard = entry.heard.max(self.now);
        Heard::Known
    }

    fn expire(&mut self) {
        let now = self.now;
        self.entries.retain(|entry| {
            let seen = entry.heard.max(entry.sides[0].seen).max(entry.sides[1].seen);
            let secs = match entry.state {
                State::Requested | State::Replied => 60,
                State::Open => 7_440,
                State::Closing => 10,
                State::Half | State::Paired => 300,
            };
            now.saturating_sub(seen) < secs * 1_000_000_000
        });
        for entry in self.entries.iter_mut().filter(|entry| entry.state == State::Half) {
            let next = entry.sides[0].next;
            if (next + (1 << 24) - entry.first) % (1 << 24) > 1 << 16 {
                entry.first = (next + (1 << 24) - (1 << 16)) % (1 << 24);
            }
            entry.bucket = next >> 16;
        }
    }
}

struct Both {
    table: QpTable,
    list: List,
}

impl Both {
    fn apply(&mut self, op: &Op) {
        let now = Nanos(self.list.now);
        match op {
            Op::Say { src, dst, message } => {
                let about = self.list.named(*src, *dst, message);
                // Names may be ambiguous: the table takes any of the pairs that fit, and the list follows.
                if about.len() > 1 {
                    return;
                }
                let about = about.first().copied();
                let hosts = hosts(*src, *dst);
                assert_eq!(self.table.is_answer(&hosts, message), about.is_some_and(|(_, side)| side == 1));
                let expected = self.list.hear(*src, *dst, message, about);
                assert_eq!(self.table.hear(&hosts, message, now), expected);
            }
            Op::Packet { src, dst, qp, packet, strict } => self.packet(*src, *dst, *qp, packet, *strict),
            Op::Expire => {
                self.table.expire(now, usize::MAX);
                self.list.expire();
            }
            Op::Clock { step_ms } => self.list.now = self.list.now.saturating_add_signed(step_ms * 1_000_000),
            Op::Quota(pairs) => {
                self.table.set_quota(0, *pairs);
                self.list.quota = *pairs;
            }
        }
    }

    /// As the pipeline does with a packet that rules allow.
    fn packet(&mut self, src: u8, dst: u8, qp: u32, packet: &Packet, strict: bool) {
        let (hosts, now) = (hosts(src, dst), Nanos(self.list.now));
        let found = self.table.find(&hosts, qp);
        let mut expected = self.list.find(src, dst, qp);
        assert_eq!(found.map(|found| usize::from(!found.is_opener)), expected.map(|(_, side)| side));
        let mut link = found.map(|found| found.link);
        if found.is_none() && packet.is_request() {
            let service = if packet.opcode & 0xe0 == opcode::UC { Service::Uc } else { Service::Rc };
            let service = if packet.opcode & 0xe0 == opcode::XRC { Service::Xrc } else { service };
            let added = self.list.add(src, dst, State::Half, service);
            let opened = self.table.open(&hosts, qp, packet, now);
            assert_eq!(opened.map(|_| ()), added.map(|_| ()));
            let Ok(index) = added else { return };
            let entry = &mut self.list.entries[index];
            (entry.first, entry.bucket, entry.sides[0].next) = (packet.psn, packet.psn >> 16, packet.psn);
            entry.sides[1].qp = Some(qp);
            (link, expected) = (opened.ok(), Some((index, 0)));
        } else if found.is_none() && packet.is_response() {
            expected = self.list.answer(src, dst, qp, packet.psn);
            link = self.table.answer(&hosts, qp, packet);
            assert_eq!(link.is_some(), expected.is_some());
        }
        let (Some(link), Some((index, side))) = (link, expected) else { return };
        let outcome = self.table.record(link, packet, false, strict, now);
        assert_eq!(outcome, self.list.entries[index].sides[side].record(packet, strict, self.list.now));
    }

    fn check(&self) {
        assert_eq!(self.table.len(), self.list.entries.len());
        assert_eq!(self.table.in_use(0), self.list.entries.len());
        let listed = |pair: [[u8; 16]; 2], state: State, sides: [(Option<u32>, Counts, u32); 2]| {
            format!("{pair:?} {state:?} {sides:?}")
        };
        let mut ours: Vec<String> = Vec::new();
        for (_, view) in self.table.iter(0, usize::MAX) {
            let naks = |naks: Naks| naks.rnr + naks.reserved + naks.by_code.iter().sum::<u32>();
            let sides = view.sides.map(|side| (side.qp, side.counts, naks(side.naks)));
            ours.push(listed(view.pair.addresses, view.pair.state, sides));
        }
        let theirs = self.list.entries.iter().map(|entry| {
            let sides = entry.sides.each_ref().map(|side| (side.qp, side.counts, side.naks));
            listed(entry.hosts.map(address), entry.state, sides)
        });
        let mut theirs: Vec<String> = theirs.collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    #[test]
    fn agrees_with_a_list(ops in prop::collection::vec(op(), 1..200)) {
        let list = List { entries: Vec::new(), quota: usize::MAX, now: 1 << 40, number: 0 };
        let mut both = Both { table: QpTable::new(CAPACITY, 1, 3), list };
        for op in &ops {
            both.apply(op);
            both.check();
        }
        both.list.now = u64::MAX;
        both.apply(&Op::Expire);
        prop_assert!(both.table.is_empty());
    }
}
