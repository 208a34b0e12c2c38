//! Single rules of one pair.

use super::super::*;
use super::{hosts, packet, reply, request};
use packet::Nanos;
use wire::roce::cm::{Kind, Message};
use wire::roce::opcode;

const NOW: Nanos = Nanos::from_secs(10);

/// Host 1 has connected its queue pair 17 to 34 of host 2. Its requests begin at PSN 100, the other's at 200: each side is
/// told by the other.
fn connected() -> (QpTable, Link, Link) {
    let mut table = QpTable::new(8, 1, 7);
    assert_eq!(table.hear(&hosts(1, 2), &request(5, 17, 200), NOW), Heard::Requested);
    assert_eq!(
        table.hear(&hosts(2, 1), &reply(6, 5, 34, 100), NOW),
        Heard::Connected { opener: 17, responder: 34 }
    );
    let there = table.find(&hosts(1, 2), 34).unwrap();
    let back = table.find(&hosts(2, 1), 17).unwrap();
    assert_eq!((there.is_opener, back.is_opener, back.opened_qp), (true, false, Some(34)));
    (table, there.link, back.link)
}

/// Opcodes and PSNs one after the other, and what is noted of each.
fn noted(packets: &[(u8, u32)]) -> Vec<Note> {
    let (mut table, link, _) = connected();
    let note =
        |&(opcode, psn): &(u8, u32)| table.record(link, &packet(opcode, psn), false, false, NOW).unwrap();
    packets.iter().map(note).collect()
}

#[test]
fn messages_in_order() {
    use Note::{Gap, Nothing, OutOfOrder, Retry};
    for (packets, expected) in [
        (
            &[(opcode::SEND_FIRST, 100), (opcode::SEND_MIDDLE, 101), (opcode::SEND_LAST, 102)][..],
            &[Nothing; 3][..],
        ),
        (&[(opcode::WRITE_FIRST, 100), (opcode::SEND_LAST, 101)], &[Nothing, OutOfOrder]),
        (&[(opcode::SEND_MIDDLE, 100)], &[OutOfOrder]),
        (&[(opcode::SEND_FIRST, 100), (opcode::SEND_ONLY, 101)], &[Nothing, OutOfOrder]),
        (&[(opcode::SEND_ONLY, 100), (opcode::SEND_ONLY, 102)], &[Nothing, Gap]),
        (&[(opcode::SEND_ONLY, 100), (opcode::SEND_ONLY, 100)], &[Nothing, Retry]),
        // A retry that begins in the middle of a message, and goes on from there.
        (
            &[
                (opcode::WRITE_FIRST, 100),
                (opcode::WRITE_MIDDLE, 101),
                (opcode::WRITE_LAST, 102),
                (opcode::WRITE_MIDDLE, 101),
                (opcode::WRITE_LAST, 102),
                (opcode::SEND_ONLY, 103),
            ],
            &[Nothing, Nothing, Nothing, Retry, Nothing, Nothing],
        ),
        // A READ takes as many PSNs as its response has packets.
        (
            &[
                (opcode::READ_REQUEST, 100),
                (opcode::SEND_ONLY, 164),
                (opcode::READ_REQUEST, 165),
                (opcode::FETCH_ADD, 166),
            ],
            &[Nothing; 4],
        ),
        (&[(opcode::UC | opcode::SEND_ONLY, 100)], &[OutOfOrder]),
        (&[(opcode::UD | opcode::SEND_ONLY, 100), (0x1f, 100)], &[OutOfOrder, OutOfOrder]),
    ] {
        assert_eq!(noted(packets), expected, "{packets:x?}");
    }
}

#[test]
fn psns_go_round() {
    let (mut table, ..) = connected();
    table.hear(&hosts(1, 2), &request(7, 18, 0), NOW);
    table.hear(&hosts(2, 1), &reply(8, 7, 35, 0xff_ffff), NOW);
    let link = table.find(&hosts(1, 2), 35).unwrap().link;
    let mut note = |opcode, psn| table.record(link, &packet(opcode, psn), false, false, NOW).unwrap();
    assert_eq!(note(opcode::SEND_ONLY, 0xff_ffff), Note::Nothing);
    assert_eq!(note(opcode::SEND_ONLY, 0), Note::Nothing);
    assert_eq!(note(opcode::SEND_ONLY, 0xff_fffe), Note::Retry);
    assert_eq!(note(opcode::SEND_ONLY, 3), Note::Gap);
    // Exactly half of the numbers ahead is behind.
    assert_eq!(note(opcode::SEND_ONLY, 4 + (1 << 23)), Note::Retry);
    assert_eq!(note(opcode::SEND_ONLY, 4), Note::Gap);
}

#[test]
fn responses_and_what_they_refuse() {
    let (mut table, _, back) = connected();
    let mut note = |opcode, psn, syndrome| {
        let packet = Packet { syndrome, ..packet(opcode, psn) };
        table.record(back, &packet, true, false, NOW)
    };
    assert_eq!(note(opcode::READ_RESPONSE_FIRST, 100, 0), Ok(Note::Nothing));
    assert_eq!(note(opcode::READ_RESPONSE_MIDDLE, 101, 0x61), Ok(Note::Nothing), "payload, no syndrome");
    assert_eq!(note(opcode::ACKNOWLEDGE, 102, 0x1f), Ok(Note::OutOfOrder));
    assert_eq!(note(opcode::ACKNOWLEDGE, 110, 0x1f), Ok(Note::Nothing), "coalesced");
    assert_eq!(note(opcode::READ_RESPONSE_FIRST, 111, 0), Ok(Note::Nothing));
    assert_eq!(note(opcode::ACKNOWLEDGE, 112, 0x60), Ok(Note::Nak), "ends the response");
    assert_eq!(note(opcode::ACKNOWLEDGE, 112, 0x21), Ok(Note::RnrNak));
    assert_eq!(note(opcode::ACKNOWLEDGE, 112, 0x64), Ok(Note::Nak));
    assert_eq!(note(opcode::ACKNOWLEDGE, 112, 0x7f), Ok(Note::Nak));
    assert_eq!(note(opcode::CNP, 0, 0), Ok(Note::Cnp));
    for stray in [opcode::SEND_ONLY, opcode::UD | opcode::SEND_ONLY, 0x1f] {
        assert_eq!(note(stray, 200, 0), Err(Refusal::NotAnAnswer));
    }
    let (_, view) = table.iter(0, 8).next().unwrap();
    let side = view.sides[1];
    assert_eq!(side.naks, Naks { rnr: 1, by_code: [1, 0, 0, 0, 1], reserved: 1 });
    assert_eq!((side.counts.packets, side.counts.cnps, side.counts.out_of_order), (10, 1, 1));
    assert_eq!((side.qp, side.response_psn, side.request_psn), (Some(34), Some(112), Some(199)));
}

#[test]
fn a_strict_order_does_not_move_with_what_it_refuses() {
    let (mut table, link, _) = connected();
    let mut record = |opcode, psn| table.record(link, &packet(opcode, psn), false, true, NOW);
    assert_eq!(record(opcode::SEND_FIRST, 100), Ok(Note::Nothing));
    assert_eq!(record(opcode::WRITE_LAST, 101), Err(Refusal::OutOfOrder));
    assert_eq!(record(opcode::SEND_LAST, 101), Ok(Note::Nothing));
}

#[test]
fn a_release_ends_it_for_data_at_once() {
    let (mut table, there, back) = connected();
    let say = |local_id, remote_id, kind| Message { local_id, remote_id, kind };
    let release = say(5, 6, Kind::Disconnect { remote_qp: 34 });
    for (src, dst, message) in [
        (3, 2, release),
        (1, 3, release),
        (1, 2, say(5, 6, Kind::Disconnect { remote_qp: 33 })),
        (1, 2, say(5, 9, Kind::Disconnect { remote_qp: 34 })),
        (2, 1, release),
    ] {
        let heard = table.hear(&hosts(src, dst), &message, NOW);
        assert!(matches!(heard, Heard::Unrelated | Heard::Known), "{src} {dst} {message:?}");
        assert!(table.follow(there).is_some());
    }
    assert_eq!(table.hear(&hosts(1, 2), &release, NOW), Heard::Released);
    for link in [there, back] {
        assert_eq!(
            table.record(link, &packet(opcode::SEND_ONLY, 100), false, false, NOW),
            Err(Refusal::Stale)
        );
    }
    assert_eq!((table.find(&hosts(1, 2), 34), table.find(&hosts(2, 1), 17)), (None, None));
    let answer = say(6, 5, Kind::Disconnected);
    assert!(table.is_answer(&hosts(2, 1), &answer));
    assert_eq!(table.hear(&hosts(2, 1), &answer, NOW), Heard::Released);
    assert!(table.is_empty() && !table.is_answer(&hosts(2, 1), &answer));
}

#[test]
fn a_queue_pair_that_is_offered_anew_is_another_pairs() {
    let (mut table, there, back) = connected();
    table.hear(&hosts(1, 3), &request(9, 17, 0), NOW);
    assert!(table.follow(there).is_none() && table.follow(back).is_none());
    assert_eq!(table.len(), 1);
}

#[test]
fn both_connect_at_once_to_the_same_queue_pairs() {
    // Peers: both send a REQ, one of them then takes the passive part with the queue pair that it had offered.
    let mut table = QpTable::new(8, 1, 7);
    table.hear(&hosts(1, 2), &request(5, 17, 100), NOW);
    table.hear(&hosts(2, 1), &request(6, 34, 200), NOW);
    assert_eq!(table.len(), 2);
    assert_eq!(
        table.hear(&hosts(2, 1), &reply(6, 5, 34, 100), NOW),
        Heard::Connected { opener: 17, responder: 34 }
    );
    assert_eq!(table.len(), 1);
    assert!(table.find(&hosts(1, 2), 34).unwrap().is_opener);
}

#[test]
fn traffic_tells_both_queue_pairs_by_the_psn() {
    let mut table = QpTable::new(8, 1, 7);
    let mut links = Vec::new();
    for (qp, psn) in [(34, 0xff_fffe), (35, 500)] {
        let request = packet(opcode::SEND_ONLY, psn);
        let link = table.open(&hosts(1, 2), qp, &request, NOW).unwrap();
        for ahead in 0..4 {
            table.record(link, &packet(opcode::SEND_ONLY, psn + ahead), false, false, NOW).unwrap();
        }
        links.push(link);
    }
    let ack = |psn| packet(opcode::ACKNOWLEDGE, psn);
    for wrong in [0xff_fffd, 2, 499, 504] {
        assert_eq!(table.answer(&hosts(2, 1), 17, &ack(wrong)), None);
    }
    assert_eq!(table.answer(&hosts(3, 1), 17, &ack(501)), None, "another host");
    let back = table.answer(&hosts(2, 1), 17, &ack(1)).unwrap();
    assert_eq!(table.answer(&hosts(2, 1), 18, &ack(1)), None, "that one is complete");
    assert_eq!(table.find(&hosts(2, 1), 17).unwrap().link, back);
    assert_eq!(table.follow(back).unwrap().opened_qp, Some(34));
    assert_eq!(table.follow(links[1]).unwrap().state, State::Half);
    // Two halves that both fit: neither.
    let request = packet(opcode::SEND_ONLY, 502);
    let link = table.open(&hosts(1, 2), 36, &request, NOW).unwrap();
    table.record(link, &request, false, false, NOW).unwrap();
    assert_eq!(table.answer(&hosts(2, 1), 18, &ack(502)), None);
    assert!(table.answer(&hosts(2, 1), 18, &ack(501)).is_some());
}

#[test]
fn a_half_is_found_by_where_its_requests_have_got() {
    let mut table = QpTable::new(8, 1, 7);
    let link = table.open(&hosts(1, 2), 34, &packet(opcode::SEND_ONLY, 0), NOW).unwrap();
    for psn in 0..300_000 {
        table.record(link, &packet(opcode::SEND_ONLY, psn), false, false, NOW).unwrap();
    }
    table.expire(NOW, 8);
    let ack = |psn| packet(opcode::ACKNOWLEDGE, psn);
    assert_eq!(table.answer(&hosts(2, 1), 17, &ack(100)), None, "long answered");
    assert!(table.answer(&hosts(2, 1), 17, &ack(299_000)).is_some());
}

#[test]
fn a_tenant_fills_its_own_share_and_traffic_half_of_it() {
    let mut table = QpTable::new(64, 2, 7);
    assert!(table.set_quota(0, 8) && table.set_quota(1, 8) && !table.set_quota(2, 8));
    let open = |table: &mut QpTable, tenant, qp| {
        let hosts = Hosts { tenant, ..hosts(1, 2) };
        table.open(&hosts, qp, &packet(opcode::SEND_ONLY, qp << 8), NOW).map(|_| ())
    };
    for qp in 0..4 {
        assert_eq!(open(&mut table, 0, qp), Ok(()));
    }
    assert_eq!(open(&mut table, 0, 4), Err(Full::Quota));
    for id in 0..4 {
        assert_eq!(table.hear(&hosts(1, 2), &request(id, 100 + id, 0), NOW), Heard::Requested);
    }
    assert_eq!(table.hear(&hosts(1, 2), &request(4, 104, 0), NOW), Heard::Full(Full::Quota));
    assert_eq!(
        (table.in_use(0), open(&mut table, 1, 0), open(&mut table, 7, 0)),
        (8, Ok(()), Err(Full::Quota))
    );
    // Idle for long enough, and there is room again.
    table.expire(NOW + Nanos::from_secs(300), 64);
    assert_eq!((table.in_use(0), table.in_use(1), table.len()), (0, 0, 0));
    assert_eq!(open(&mut table, 0, 4), Ok(()));
}
