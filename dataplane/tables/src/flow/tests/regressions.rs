//! Bugs that other data planes had (numbers of the corpus of bug reports), and the edges of the contract.

use super::super::{FlowTable, Full, Slot, Timeout};
use super::{Table, key};
use packet::Nanos;

const TIMEOUT: Timeout = Timeout::from_millis(10);

fn insert(table: &mut Table, number: u32, tenant: u16, now: Nanos) -> Result<Slot, Full> {
    let key = key(number);
    table.insert(table.hash(&key), &key, [number as u8; 16], tenant, now, TIMEOUT)
}

fn find(table: &Table, number: u32) -> Option<Slot> {
    table.find(table.hash(&key(number)), &key(number))
}

/// B041: a flow that was inserted again vanished; deleted flows left their keys behind.
#[test]
fn b041_a_reinserted_flow_stays_and_removed_ones_leave_nothing() {
    let mut table = Table::new(64, 1, 9);
    insert(&mut table, 1, 0, Nanos(0)).unwrap();
    assert_eq!(table.expire(Nanos::from_millis(13), 64), 1);
    let again = insert(&mut table, 1, 0, Nanos::from_millis(13)).unwrap();
    assert_eq!((table.expire(Nanos::from_millis(22), 64), find(&table, 1)), (0, Some(again)));
    assert!(!table.entry(again).is_expired(Nanos::from_millis(22)));
    table.count(again, Nanos::from_millis(22), 60);
    assert_eq!(table.expire(Nanos::from_millis(31), 64), 0);
}

/// B041 and B112: memory grew with every short flow. Here it cannot, so what must stay flat is what is in use: ten
/// million flows through a table of a thousand, none refused.
#[test]
fn b112_ten_million_short_flows_through_a_small_table() {
    let mut table = Table::new(1_000, 1, 9);
    let mut now = Nanos(0);
    for number in 0..10_000_000 {
        now = now + Nanos::from_micros(20);
        let slot = insert(&mut table, number, 0, now).expect("room: 500 flows are fresh at a time");
        assert!(slot.0 < 1_000);
        table.expire(now, 4);
    }
    assert!(table.len() >= 500 && table.len() == table.in_use(0));
    table.assert_index_is_sound();
    table.expire(now + Nanos::from_millis(13), 10_000);
    assert!(table.is_empty() && table.in_use(0) == 0);
}

/// B042: the packet after a flow's timeout was dropped. It is a miss: decided anew, and then a flow like any other.
#[test]
fn b042_a_packet_of_an_expired_flow_is_a_miss_and_not_a_denial() {
    let mut table = Table::new(8, 1, 9);
    let slot = insert(&mut table, 1, 0, Nanos(0)).unwrap();
    let late = Nanos::from_millis(10);
    let fresh = Nanos(late.0 - 1);
    assert!(!table.entry(slot).is_expired(fresh), "one nanosecond before the boundary it is fresh");
    table.count(slot, fresh, 60);
    let late = Nanos(late.0 - 1) + late;
    assert!(table.entry(slot).is_expired(late), "at the boundary it has expired");
    let slot = insert(&mut table, 1, 0, late).expect("the expired entry is replaced");
    assert!(!table.entry(slot).is_expired(late));
    table.count(slot, late, 60);
    assert_eq!((table.len(), table.entry(slot).packets, table.entry(slot).last_seen), (1, 1, late));
}

/// B042, with the table full of expired flows of which nothing was swept: a new flow takes the place of one.
#[test]
fn b042_expired_flows_make_room() {
    let mut table = Table::new(4, 1, 9);
    for number in 0..4 {
        let key = key(number);
        table.insert(table.hash(&key), &key, [0; 16], 0, Nanos(0), Timeout::from_secs(300)).unwrap();
    }
    assert_eq!(insert(&mut table, 4, 0, Nanos::from_secs(18)), Err(Full::Table), "all are in use");
    assert!(insert(&mut table, 4, 0, Nanos::from_secs(301)).is_ok());
}

/// B113: a 64-bit time was read as 32 bits of it. Around 2^31 and 2^32 ns, and where the clock ends, nothing changes.
#[test]
fn b113_times_near_powers_of_two_are_like_others() {
    for edge in [1 << 31, 1 << 32, 1 << 63, u64::MAX - 20_000_000] {
        for offset in [0, 1, 9_999_999] {
            let mut table = Table::new(8, 1, 9);
            let start = Nanos(edge - offset);
            insert(&mut table, 1, 0, start).unwrap();
            assert_eq!(table.expire(Nanos(start.0 + 9_999_999), 8), 0, "fresh at {start:?}");
            assert_eq!(table.expire(Nanos(start.0.saturating_add(12_100_000)), 8), 1, "expired at {start:?}");
        }
    }
}

/// A clock that steps back, which no clock here should: nothing expires early, and what is lost is only time.
#[test]
fn a_clock_step_back_expires_nothing() {
    let mut table = Table::new(8, 1, 9);
    let start = Nanos::from_secs(100);
    let slot = insert(&mut table, 1, 0, start).unwrap();
    assert_eq!(table.expire(Nanos(0), 8), 0);
    table.count(slot, Nanos::from_secs(1), 60);
    assert_eq!(table.entry(slot).last_seen, start, "the latest time seen stays");
}

#[test]
fn the_longest_timeouts_do_not_wrap() {
    let long = Timeout::from_millis(u32::MAX - 1);
    let mut table = Table::new(8, 1, 9);
    let key = key(1);
    let hash = table.hash(&key);
    table.insert(hash, &key, [0; 16], 0, Nanos(0), long).unwrap();
    let boundary = u64::from(u32::MAX - 1) * 1_000_000;
    assert_eq!(table.expire(Nanos(boundary - 1), 1_000), 0);
    assert_eq!(table.expire(Nanos(boundary + 2_100_000), 8), 1);
    table.insert(hash, &key, [0; 16], 0, Nanos(0), Timeout::from_secs(u32::MAX)).unwrap();
    assert_eq!(table.expire(Nanos::NEVER, 1_000), 0, "too many seconds are for ever");
}

/// One tenant cannot take what another may have: beyond its quota its own flows give way, the one first that would
/// expire first.
#[test]
fn a_tenant_fills_its_own_quota_only() {
    let mut table = Table::new(100, 3, 9);
    assert!(table.set_quota(1, 10) && table.set_quota(2, 5) && !table.set_quota(3, 1));
    assert!((100..105).all(|n| insert(&mut table, n, 2, Nanos(0)).is_ok()));
    for n in 0..50 {
        assert!(insert(&mut table, n, 1, Nanos(u64::from(n) << 20)).is_ok());
    }
    assert!((0..40).all(|n| find(&table, n).is_none()) && (40..50).all(|n| find(&table, n).is_some()));
    assert!((100..105).all(|n| find(&table, n).is_some()));
    assert_eq!(insert(&mut table, 105, 3, Nanos(0)), Err(Full::Quota), "there is no tenant 3");
    let share = *table.share(1).unwrap();
    assert_eq!(
        (share.in_use, share.quota, share.evicted, share.displaced, share.refused),
        (10, 10, 40, 0, 0)
    );
    table.set_quota(1, 4);
    assert_eq!(insert(&mut table, 60, 1, Nanos(50 << 20)), Err(Full::Quota));
    assert_eq!(table.in_use(1), 8, "a lower quota is come to step by step");
    table.set_quota(1, 0);
    assert_eq!((insert(&mut table, 60, 1, Nanos(50 << 20)), table.in_use(1)), (Err(Full::Quota), 6));
}

/// What is in use does not give way to what is new, unless it was on its way out anyway.
#[test]
fn open_flows_in_use_do_not_give_way() {
    let mut table = Table::new(100, 1, 9);
    table.set_quota(0, 10);
    let long = Timeout::from_secs(7_440);
    for number in 0..9 {
        let key = key(number);
        table.insert(table.hash(&key), &key, [0; 16], 0, Nanos(0), long).unwrap();
    }
    // A scan: each probe takes the place of the one before.
    for number in 9..1_000 {
        assert!(insert(&mut table, number, 0, Nanos(u64::from(number))).is_ok());
    }
    assert!((0..9).all(|number| find(&table, number).is_some()));
    let slot = find(&table, 999).unwrap();
    table.set_timeout(slot, long);
    assert_eq!(insert(&mut table, 1_000, 0, Nanos::from_secs(100)), Err(Full::Quota));
    // Idle for a sixteenth of its timeout: who was seen longest ago goes.
    for number in [0, 1, 2, 4, 5, 6, 7, 8, 999] {
        let slot = find(&table, number).unwrap();
        table.count(slot, Nanos::from_secs(400), 60);
    }
    assert!(insert(&mut table, 1_000, 0, Nanos::from_secs(500)).is_ok());
    assert_eq!(find(&table, 3), None);
}

/// A full table takes room from who has most, and says whose flows went.
#[test]
fn in_a_full_table_who_has_most_makes_room() {
    let mut table = Table::new(100, 4, 9);
    for number in 0..100 {
        insert(&mut table, number, if number < 90 { 1 } else { 2 }, Nanos(0)).unwrap();
    }
    for number in 100..130 {
        assert!(insert(&mut table, number, 3, Nanos(0)).is_ok());
    }
    let displaced = [1, 2, 3].map(|tenant| table.share(tenant).unwrap().displaced);
    assert_eq!((displaced, table.in_use(1), table.in_use(2), table.in_use(3)), ([30, 0, 0], 60, 10, 30));
}

/// Whoever is idle goes as fast as the budget allows, and a call never looks at more.
#[test]
fn expiry_keeps_to_its_budget() {
    let mut table = Table::new(100, 1, 9);
    for number in 0..60 {
        insert(&mut table, number, 0, Nanos(0)).unwrap();
    }
    let removed: Vec<usize> = (0..10).map(|_| table.expire(Nanos::from_millis(13), 6)).collect();
    assert_eq!(removed, [6; 10]);
    assert_eq!((table.expire(Nanos::NEVER, usize::MAX), table.len()), (0, 0));
}

#[test]
fn a_slot_is_removed_once() {
    let mut table = Table::new(8, 1, 9);
    let slot = insert(&mut table, 1, 0, Nanos(0)).unwrap();
    assert_eq!(table.remove(slot), Some([1; 16]));
    assert_eq!((table.remove(slot), table.remove(Slot(7)), table.remove(Slot(u32::MAX))), (None, None, None));
    assert_eq!((table.len(), table.in_use(0), find(&table, 1)), (0, 0, None));
}

#[test]
fn the_smallest_and_strangest_sizes_work() {
    let mut table = FlowTable::<[u8; 16]>::new(0, 0, 0);
    assert_eq!((table.capacity(), table.set_quota(0, 1)), (1, false));
    assert_eq!(insert(&mut table, 1, 0, Nanos(0)), Err(Full::Quota));
    let mut table = FlowTable::<[u8; 16]>::new(1, 1, 0);
    assert!(insert(&mut table, 1, 0, Nanos(0)).is_ok());
    assert!(insert(&mut table, 1, 0, Nanos(0)).is_ok(), "the same flow again is no second one");
    assert_eq!(table.share(0).unwrap().evicted, 0);
    assert!(insert(&mut table, 2, 0, Nanos(0)).is_ok());
    assert_eq!(table.share(0).unwrap().evicted, 1);
    assert_eq!(table.iter(Slot(u32::MAX), usize::MAX).count(), 0);
}

/// B115: a clock that leaps forth and back kept the room of what it had seen meanwhile, until it came there again.
#[test]
fn b115_a_clock_that_leaps_forth_and_back() {
    let (start, year) = (Nanos::from_secs(1_000), Nanos::from_secs(365 * 86_400));
    for leap in [Nanos::from_secs(2), Nanos::from_secs(7_200), year] {
        let mut table = Table::new(1_000, 2, 9);
        insert(&mut table, 0, 0, start).unwrap();
        for number in 1..400 {
            insert(&mut table, number, 0, start + leap).unwrap();
        }
        table.expire(start + leap, 64);
        for number in 400..500 {
            insert(&mut table, number, 1, start).unwrap();
        }
        let mut now = start;
        // Each call looks at 16 entries that the clock may have seen in its future, and there are 500 of them.
        for _ in 0..500_usize.div_ceil(16) {
            table.expire(now, 64);
            now = now + Nanos::from_micros(1);
        }
        assert_eq!(table.len(), 499, "all but the one that had expired then are fresh now, after {leap:?}");
        now = now + Nanos::from_millis(13);
        for _ in 0..8 {
            table.expire(now, 64);
        }
        assert!(table.is_empty(), "{} left after {leap:?}", table.len());
        table.assert_index_is_sound();
    }
}

/// A tenant with a backlog that takes many calls holds nobody up.
#[test]
fn a_backlog_of_one_tenant_is_no_others() {
    let mut table = Table::new(4_096, 3, 9);
    for number in 0..4_000 {
        let tenant = if number < 20 { 1 + (number % 2) as u16 } else { 0 };
        insert(&mut table, number, tenant, Nanos(0)).unwrap();
    }
    let late = Nanos::from_millis(13);
    for _ in 0..3 {
        assert_eq!(table.expire(late, 16), 16, "the budget is used");
    }
    assert_eq!((table.in_use(1), table.in_use(2), table.in_use(0)), (0, 0, 3_980 - 28));
    // Alone it has the whole budget.
    assert_eq!((table.expire(late, 1_000), table.in_use(0)), (1_000, 2_952));
}
