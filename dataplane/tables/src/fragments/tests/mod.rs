//! What a table of datagrams promises, one by one; [`model`] holds all of it against a slow one.

mod model;

use super::*;
use crate::flow::FlowKey;

type Table = Datagrams<Vec<u32>>;

fn id(tenant: u16, number: u32) -> FlowKey {
    FlowKey { tenant, l4: number, src: [7; 16], dst: [9; 16], ..FlowKey::default() }
}

fn flow(port: u32) -> FlowKey {
    FlowKey { l4: port, protocol: 17, ..FlowKey::default() }
}

/// Bytes from `offset` up to `end`; `more` follow.
fn piece(offset: u16, end: u16, more: bool) -> Piece {
    Piece { offset, len: end - offset, more }
}

/// A table of two tenants with quotas of 4 and 8, for `datagrams` in all; and what it let go of.
fn table(datagrams: usize) -> (Table, Vec<(Vec<u32>, Loss)>) {
    let mut table = Table::new(Bounds { datagrams, waiting: 6, waiting_per_tenant: 4 }, 3, 5);
    table.set_quota(0, 4);
    table.set_quota(1, 8);
    (table, Vec::new())
}

/// One later fragment that waits, by name.
fn wait(
    table: &mut Table,
    id: &FlowKey,
    piece: Piece,
    name: u32,
    gone: &mut Vec<(Vec<u32>, Loss)>,
) -> Result<(), Loss> {
    match table.later(id, piece, Nanos(0), &mut |queue, loss| gone.push((queue, loss)))? {
        Later::Waits(queue) => queue.push(name),
        Later::Follows(flow) => panic!("follows {flow:?}"),
    }
    Ok(())
}

#[test]
fn what_waits_follows_its_first_in_order_of_arrival() {
    let (mut table, mut gone) = table(16);
    let id = id(0, 1);
    wait(&mut table, &id, piece(48, 50, false), 3, &mut gone).unwrap();
    wait(&mut table, &id, piece(24, 48, true), 2, &mut gone).unwrap();
    assert_eq!((table.len(), table.waiting()), (1, 2));
    assert_eq!(
        table.first(&id, piece(0, 24, true), &flow(80), Nanos(9), &mut |_, _| panic!()),
        Ok(vec![3, 2])
    );
    assert_eq!((table.len(), table.waiting(), gone), (0, 0, vec![]), "it is complete, and forgotten");
}

#[test]
fn every_way_to_overlap_spoils_the_datagram() {
    let seen = [piece(0, 24, true), piece(48, 72, true), piece(96, 100, false)];
    let bad = [
        ("the end of one", piece(16, 32, true)),
        ("the start of one", piece(40, 56, true)),
        ("inside one", piece(56, 64, true)),
        ("around one", piece(40, 80, true)),
        ("around several", piece(24, 96, true)),
        ("the last in part", piece(88, 104, true)),
        ("a first that is longer", piece(0, 32, true)),
        ("beyond the end", piece(104, 112, true)),
        ("another end", piece(104, 112, false)),
        ("an end before what was seen", piece(72, 80, false)),
        ("more behind the end", piece(96, 100, true)),
        ("nothing at all", Piece { offset: 24, len: 0, more: true }),
        ("beyond all datagrams", Piece { offset: 65_528, len: 8, more: false }),
    ];
    for (what, bad) in bad {
        let (mut table, _) = table(16);
        let id = id(0, 1);
        let none = &mut |_: Vec<u32>, _: Loss| panic!("nothing waits");
        assert_eq!(table.first(&id, seen[0], &flow(80), Nanos(0), none), Ok(vec![]));
        for seen in &seen[1..] {
            assert!(matches!(table.later(&id, *seen, Nanos(0), none), Ok(Later::Follows(_))));
        }
        assert_eq!(table.later(&id, seen[1], Nanos(0), none).unwrap_err(), Loss::Duplicate, "{what}");
        assert_eq!(table.later(&id, bad, Nanos(0), none).unwrap_err(), Loss::Overlap, "{what}");
        assert_eq!(
            table.later(&id, piece(24, 48, true), Nanos(0), none).unwrap_err(),
            Loss::Overlap,
            "{what}"
        );
        assert_eq!(table.first(&id, seen[0], &flow(80), Nanos(0), none), Err(Loss::Overlap), "{what}");
        assert!(
            table.first(&id, seen[0], &flow(80), LIFETIME, none).is_ok(),
            "{what}: until its time is over"
        );
    }
}

#[test]
fn a_first_of_another_flow_is_no_duplicate() {
    let (mut table, _) = table(16);
    let none = &mut |_: Vec<u32>, _: Loss| panic!("nothing waits");
    assert!(table.first(&id(0, 1), piece(0, 24, true), &flow(80), Nanos(0), none).is_ok());
    assert_eq!(table.first(&id(0, 1), piece(0, 24, true), &flow(80), Nanos(0), none), Err(Loss::Duplicate));
    assert_eq!(table.first(&id(0, 1), piece(0, 24, true), &flow(22), Nanos(0), none), Err(Loss::Overlap));
    assert_eq!(table.later(&id(0, 1), piece(24, 48, false), Nanos(0), none).unwrap_err(), Loss::Overlap);
}

#[test]
fn an_identity_may_be_used_again_once_its_datagram_is_complete() {
    let (mut table, _) = table(16);
    let none = &mut |_: Vec<u32>, _: Loss| panic!("nothing waits");
    for port in [80, 81] {
        assert!(table.first(&id(0, 1), piece(0, 24, true), &flow(port), Nanos(0), none).is_ok());
        let last = table.later(&id(0, 1), piece(24, 25, false), Nanos(0), none).unwrap();
        assert!(matches!(last, Later::Follows(known) if known == flow(port)), "{last:?}");
    }
    assert!(table.is_empty());
}

#[test]
fn too_many_pieces_spoil_a_datagram() {
    let (mut table, _) = table(16);
    let none = &mut |_: Vec<u32>, _: Loss| panic!("nothing waits");
    assert!(table.first(&id(0, 1), piece(0, 8, true), &flow(80), Nanos(0), none).is_ok());
    for number in 1..PIECES_MAX as u16 {
        assert!(table.later(&id(0, 1), piece(8 * number, 8 * number + 8, true), Nanos(0), none).is_ok());
    }
    let one_more = piece(8 * PIECES_MAX as u16, 8 * PIECES_MAX as u16 + 1, false);
    assert_eq!(table.later(&id(0, 1), one_more, Nanos(0), none).unwrap_err(), Loss::Limit);
    assert_eq!(table.later(&id(0, 1), piece(0, 8, true), Nanos(0), none).unwrap_err(), Loss::Limit);
}

#[test]
fn at_its_quota_a_tenant_loses_its_oldest() {
    let (mut table, mut gone) = table(16);
    wait(&mut table, &id(1, 99), piece(8, 16, false), 0, &mut gone).unwrap();
    for number in 0..1_000_000 {
        let queue = table.first(&id(0, number), piece(0, 8, true), &flow(80), Nanos(0), &mut |_, _| panic!());
        assert_eq!(queue, Ok(vec![]));
        assert!(table.in_use(0) <= 4);
    }
    assert_eq!((table.len(), table.in_use(1), table.waiting(), gone), (5, 1, 1, vec![]));
    let none = &mut |_: Vec<u32>, _: Loss| panic!("nothing waits");
    assert!(matches!(
        table.later(&id(0, 999_996), piece(8, 9, false), Nanos(0), none),
        Ok(Later::Follows(_))
    ));
    assert!(matches!(table.later(&id(0, 999_995), piece(8, 9, false), Nanos(0), none), Ok(Later::Waits(_))));
    assert_eq!(
        table.later(&id(2, 1), piece(8, 9, false), Nanos(0), none).unwrap_err(),
        Loss::Limit,
        "no quota"
    );
    assert_eq!(
        table.later(&id(3, 1), piece(8, 9, false), Nanos(0), none).unwrap_err(),
        Loss::Limit,
        "no tenant"
    );
}

#[test]
fn when_the_table_is_full_whoever_has_most_loses_its_oldest() {
    let (mut table, mut gone) = table(8);
    let none = &mut |_: Vec<u32>, _: Loss| panic!("nothing waits");
    for number in 0..8 {
        assert!(table.first(&id(1, number), piece(0, 8, true), &flow(80), Nanos(0), none).is_ok());
    }
    for number in 0..4 {
        wait(&mut table, &id(0, number), piece(8, 16, false), number, &mut gone).unwrap();
    }
    assert_eq!((table.in_use(0), table.in_use(1), table.waiting()), (4, 4, 4));
    // Each has its fair share: the one that comes with more loses its own.
    wait(&mut table, &id(0, 4), piece(8, 16, false), 4, &mut gone).unwrap();
    assert_eq!(gone, [(vec![0], Loss::Limit)]);
    assert_eq!((table.in_use(0), table.in_use(1)), (4, 4));
}

#[test]
fn what_waits_is_bounded_by_tenant_and_in_all() {
    let (mut table, mut gone) = table(16);
    // One datagram may not have all: nothing of it passes afterwards.
    for number in 1..=4 {
        wait(&mut table, &id(1, 7), piece(8 * number, 8 * number + 8, true), number.into(), &mut gone)
            .unwrap();
    }
    let fifth = wait(&mut table, &id(1, 7), piece(40, 48, true), 5, &mut gone);
    assert_eq!((fifth, std::mem::take(&mut gone)), (Err(Loss::Limit), vec![(vec![1, 2, 3, 4], Loss::Limit)]));
    // The tenant's own oldest goes first.
    for number in 0..5 {
        wait(&mut table, &id(1, number), piece(8, 16, true), number, &mut gone).unwrap();
    }
    assert_eq!((table.waiting(), std::mem::take(&mut gone)), (4, vec![(vec![0], Loss::Limit)]));
    // Six in all: then the oldest of whoever has most.
    for number in 10..13 {
        wait(&mut table, &id(0, number), piece(8, 16, true), number, &mut gone).unwrap();
    }
    assert_eq!((table.waiting(), gone), (6, vec![(vec![1], Loss::Limit)]));
}

#[test]
fn time_that_jumps_keeps_nothing_for_ever() {
    let (mut table, mut gone) = table(16);
    let hour = Nanos::from_secs(3600);
    let at = |table: &mut Table, number, now| {
        let Later::Waits(queue) =
            table.later(&id(0, number), piece(8, 16, true), now, &mut |_, _| panic!()).unwrap()
        else {
            panic!("it has no first")
        };
        queue.push(number);
    };
    at(&mut table, 1, hour);
    // The clock goes back by an hour, and on from there.
    at(&mut table, 2, Nanos(0));
    let mut sink = |queue, loss| gone.push((queue, loss));
    assert_eq!(table.expire(Nanos(1), 16, &mut sink), 0);
    assert_eq!(table.expire(Nanos(LIFETIME.0), 16, &mut sink), 1, "the second");
    assert_eq!(table.expire(Nanos(LIFETIME.0 + 1), 16, &mut sink), 1, "the first, by its new birthday");
    // And forth by an hour: all is over at once.
    at(&mut table, 3, Nanos(5));
    assert_eq!(table.expire(hour, 16, &mut sink), 1);
    assert_eq!(gone, [2, 1, 3].map(|number| (vec![number], Loss::Timeout)));
    assert_eq!((table.len(), table.waiting()), (0, 0));
}

#[test]
fn a_fragment_after_its_datagrams_time_starts_another() {
    let (mut table, mut gone) = table(16);
    wait(&mut table, &id(0, 1), piece(8, 16, false), 1, &mut gone).unwrap();
    let late = table.first(&id(0, 1), piece(0, 8, true), &flow(80), LIFETIME, &mut |queue, loss| {
        gone.push((queue, loss))
    });
    assert_eq!((late, gone), (Ok(vec![]), vec![(vec![1], Loss::Timeout)]));
    assert_eq!((table.len(), table.waiting()), (1, 0));
}
