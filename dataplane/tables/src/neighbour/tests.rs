//! The map against a slow model that keeps whole histories, and known bugs of others.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

fn ip(number: u32) -> IpAddr {
    if number.is_multiple_of(3) {
        IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(number)))
    } else {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
    }
}

fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

fn seconds(count: u64) -> Nanos {
    Nanos::from_secs(count)
}

fn one() -> Neighbours {
    let mut map = Neighbours::new(1);
    map.register(ip(1)).unwrap();
    map
}

/// All that is due, and no more than could be.
fn drain(map: &mut Neighbours, now: Nanos) -> Vec<Solicit> {
    let most = map.len() + 1;
    core::iter::from_fn(|| map.due(now)).take(most).collect()
}

/// B120: one ARP request per packet to an unresolved next hop. A million polls a second ask once a second.
#[test]
fn b120_an_unresolved_next_hop_is_asked_once_a_second() {
    let mut map = one();
    let mut asked = 0;
    for tick in 0..2_000_000 {
        assert_eq!(map.lookup(ip(1)), None);
        asked += drain(&mut map, Nanos::from_micros(tick * 2)).len();
    }
    assert_eq!(asked, 4, "at 0, 1, 2 and 3 s");
}

/// B120, with a driver that is late: what was missed is not made up for.
#[test]
fn b120_a_pause_is_followed_by_one_request() {
    let mut map = one();
    assert_eq!(drain(&mut map, seconds(0)).len(), 1);
    assert_eq!(drain(&mut map, seconds(600)), [Solicit { ip: ip(1), to: None }]);
    assert_eq!(drain(&mut map, Nanos(601 * SECOND - 1)), []);
    assert_eq!(drain(&mut map, seconds(601)).len(), 1);
}

/// B114: an entry expired although its neighbour was heard every 0.7 of the age limit.
#[test]
fn b114_a_neighbour_heard_in_time_is_never_asked_and_never_goes() {
    let mut map = one();
    for round in 0..10_000 {
        let now = Nanos(round * REFRESH.0 * 7 / 10);
        map.learn(ip(1), mac(1), now);
        assert_eq!(drain(&mut map, Nanos(now.0 + REFRESH.0 - 1)), []);
        assert_eq!(map.lookup(ip(1)), Some(mac(1)));
    }
}

/// B114: nor one that is silent but answers the last of its requests, just before it would be forgotten.
#[test]
fn b114_a_neighbour_that_answers_at_all_never_goes() {
    let mut map = one();
    let mut now = seconds(5);
    map.learn(ip(1), mac(1), now);
    assert_eq!(drain(&mut map, now), []);
    for _ in 0..1_000 {
        now = now + REFRESH;
        for to in [Some(mac(1)), Some(mac(1)), None] {
            assert!(map.next_deadline() <= now);
            assert_eq!(drain(&mut map, now), [Solicit { ip: ip(1), to }]);
            now = now + RETRY;
        }
        now = Nanos(now.0 - 1);
        assert_eq!((drain(&mut map, now), map.lookup(ip(1))), (vec![], Some(mac(1))));
        assert_eq!((map.learn(ip(1), mac(1), now), drain(&mut map, now)), (Learned::Confirmed, vec![]));
    }
}

#[test]
fn three_unanswered_requests_and_it_is_forgotten() {
    let mut map = one();
    map.learn(ip(1), mac(1), seconds(0));
    for second in 30..33 {
        assert_eq!(drain(&mut map, seconds(second)).len(), 1);
        assert_eq!(map.lookup(ip(1)), Some(mac(1)), "at {second} s");
    }
    assert_eq!(drain(&mut map, seconds(33)), [Solicit { ip: ip(1), to: None }]);
    assert_eq!(map.lookup(ip(1)), None);
    assert_eq!(map.learn(ip(1), mac(2), seconds(34)), Learned::Resolved);
    assert_eq!((drain(&mut map, seconds(34)), map.next_deadline()), (vec![], seconds(64)));
}

#[test]
fn only_registered_addresses_and_possible_macs_are_learned() {
    let mut map = one();
    assert_eq!(map.learn(ip(2), mac(2), seconds(0)), Learned::Unregistered);
    assert_eq!(map.learn(ip(1), Mac::BROADCAST, seconds(0)), Learned::BadMac);
    assert_eq!(map.learn(ip(1), Mac([0; 6]), seconds(0)), Learned::BadMac);
    assert_eq!((map.lookup(ip(1)), map.lookup(ip(2)), map.len()), (None, None, 1));
    assert_eq!(map.learn(ip(1), mac(1), seconds(0)), Learned::Resolved);
    assert_eq!(map.learn(ip(1), mac(2), seconds(0)), Learned::Changed);
    assert_eq!((map.register(ip(2)), map.register(ip(1))), (Err(TooMany), Ok(())));
    assert_eq!(map.lookup(ip(1)), Some(mac(2)), "registered again, it stays as it was");
}

/// An address of the one family whose bits are those of the other is another address.
#[test]
fn families_do_not_mix() {
    let (four, six) = (IpAddr::V4(Ipv4Addr::from_bits(7)), IpAddr::V6(Ipv6Addr::from_bits(7)));
    let mut map = Neighbours::new(2);
    map.register(four).unwrap();
    map.learn(four, mac(4), seconds(0));
    assert_eq!((map.lookup(four), map.lookup(six)), (Some(mac(4)), None));
}

#[test]
fn an_empty_map_has_nothing_to_do() {
    let mut map = Neighbours::new(0);
    assert_eq!(
        (map.register(ip(1)), map.due(Nanos::NEVER), map.next_deadline()),
        (Err(TooMany), None, Nanos::NEVER)
    );
    assert!(map.is_empty() && !map.unregister(ip(1)) && map.lookup(ip(1)).is_none());
}

/// B112: registering and forgetting a million addresses leaves the map as it was.
#[test]
fn b112_a_million_addresses_come_and_go() {
    let mut map = Neighbours::new(16);
    for number in 0..1_000_000_u32 {
        assert_eq!(number.checked_sub(16).map(|old| map.unregister(ip(old))), (number >= 16).then_some(true));
        assert_eq!(map.register(ip(number)), Ok(()));
        assert_eq!(map.learn(ip(number), mac(1), seconds(0)), Learned::Resolved);
    }
    assert!((999_984..1_000_000).all(|number| map.lookup(ip(number)) == Some(mac(1))));
    assert_eq!(map.len(), 16);
}

/// What is known of an address: everything that happened since it was registered.
#[derive(Default, Debug)]
struct History {
    mac: Option<Mac>,
    heard_ns: i128,
    asked_ns: Vec<i128>,
}

impl History {
    /// The rules once more, from the list of requests since it was last heard.
    fn is_due(&self, now_ns: i128) -> bool {
        match (self.asked_ns.last(), self.mac) {
            (Some(last), _) => now_ns - last >= i128::from(SECOND),
            (None, Some(_)) => now_ns - self.heard_ns >= 30 * i128::from(SECOND),
            (None, None) => true,
        }
    }

    fn ask(&mut self, now_ns: i128) -> Option<Mac> {
        if self.asked_ns.len() >= 3 {
            self.mac = None;
        }
        self.asked_ns.push(now_ns);
        if self.asked_ns.len() < 3 { self.mac } else { None }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Register(u32),
    Unregister(u32),
    Learn(u32, u8),
    Due,
    Clock(i64),
}

fn op() -> impl Strategy<Value = Op> {
    let step = prop_oneof![3 => 0..1_500_000_000_i64, 1 => 0..40_000_000_000_i64, 1 => -2_000_000_000..0_i64];
    prop_oneof![
        2 => (0..24_u32).prop_map(Op::Register),
        1 => (0..24_u32).prop_map(Op::Unregister),
        2 => (0..24_u32, 0..4_u8).prop_map(|(number, mac)| Op::Learn(number, mac)),
        4 => Just(Op::Due),
        4 => step.prop_map(Op::Clock),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn agrees_with_a_model_of_histories(capacity in 0..20_usize, ops in prop::collection::vec(op(), 1..200)) {
        let mut map = Neighbours::new(capacity);
        let mut model: BTreeMap<IpAddr, History> = BTreeMap::new();
        let mut now = seconds(100);
        for op in ops {
            match op {
                Op::Register(number) => {
                    let room = model.len() < capacity || model.contains_key(&ip(number));
                    prop_assert_eq!(map.register(ip(number)).is_ok(), room);
                    if room {
                        model.entry(ip(number)).or_default();
                    }
                }
                Op::Unregister(number) => {
                    prop_assert_eq!(map.unregister(ip(number)), model.remove(&ip(number)).is_some());
                }
                Op::Learn(number, n) => {
                    let expected = model.get_mut(&ip(number)).map_or(Learned::Unregistered, |history| {
                        history.heard_ns = history.heard_ns.max(now.0.into());
                        history.asked_ns.clear();
                        match history.mac.replace(mac(n)) {
                            None => Learned::Resolved,
                            Some(before) if before == mac(n) => Learned::Confirmed,
                            Some(_) => Learned::Changed,
                        }
                    });
                    prop_assert_eq!(map.learn(ip(number), mac(n), now), expected);
                }
                Op::Due => {
                    let may_wait = map.next_deadline() > now;
                    let mut solicits = drain(&mut map, now);
                    solicits.sort_by_key(|solicit| solicit.ip);
                    let due = model.iter_mut().filter(|(_, history)| history.is_due(now.0.into()));
                    let expected: Vec<_> =
                        due.map(|(&ip, history)| Solicit { ip, to: history.ask(now.0.into()) }).collect();
                    prop_assert!(!may_wait || expected.is_empty(), "the deadline was too late");
                    prop_assert_eq!(solicits, expected);
                    prop_assert!(map.next_deadline() > now, "nothing is left to do now");
                }
                Op::Clock(step) => now = Nanos(now.0.saturating_add_signed(step)),
            }
            let known: BTreeMap<_, _> = map.iter().collect();
            let expected: BTreeMap<_, _> = model.iter().map(|(&ip, history)| (ip, history.mac)).collect();
            prop_assert_eq!(known, expected);
            prop_assert!((0..24).all(|n| map.lookup(ip(n)) == model.get(&ip(n)).and_then(|history| history.mac)));
            prop_assert_eq!(map.len(), model.len());
        }
    }
}
