//! Any bytes as management datagrams and packets of three hosts: the parser reads within bounds, and the table keeps
//! its own.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::Nanos;
use tables::qp::{Hosts, Link, Packet, QpTable};
use wire::roce::cm;

const CAPACITY: usize = 16;

fuzz_target!(|steps: Vec<(u8, u8, u32, Vec<u8>)>| {
    let mut table = QpTable::new(CAPACITY, 2, 1);
    table.set_quota(0, 12);
    let (mut now, mut links) = (Nanos(1 << 40), Vec::<Link>::new());
    for (kind, ends, number, bytes) in steps {
        let address = |host: u8| [host & 3; 16];
        let tenant = u16::from(ends >> 6);
        let hosts = Hosts { tenant, is_ipv6: ends & 32 != 0, src: address(ends), dst: address(ends >> 2) };
        match kind % 4 {
            0 => {
                // A datagram is never as long as the fuzzer's bytes by chance.
                let mut datagram = vec![1, 7, 2, 3];
                datagram.resize(16, 0);
                datagram.extend([0, 0x10 + (kind >> 4)]);
                datagram.extend(bytes);
                datagram.resize(cm::MAD_LEN, 0);
                let message = cm::parse(&datagram);
                if let Some(message) = message {
                    let is_answer = table.is_answer(&hosts, &message);
                    let heard = table.hear(&hosts, &message, now);
                    assert!(!is_answer || !matches!(heard, tables::qp::Heard::Unrelated));
                }
            }
            1 | 2 => {
                let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
                let psn = u32::from_be_bytes([0, at(0), at(1), at(2)]);
                let packet = Packet { opcode: at(3), psn, syndrome: at(4), has_becn: kind & 1 != 0, bytes: 64 };
                let qp = number & 7;
                let known = table.find(&hosts, qp).map(|found| found.link);
                let link = match known {
                    None if packet.is_response() => table.answer(&hosts, qp, &packet),
                    None if packet.is_request() => table.open(&hosts, qp, &packet, now).ok(),
                    known => known,
                };
                links.extend(link);
            }
            _ => {
                now = Nanos(u64::from(number) << 10);
                table.expire(now, usize::from(ends));
            }
        }
        for link in links.iter().rev().take(4) {
            let packet = Packet { opcode: kind, psn: number & 0xff_ffff, syndrome: ends, has_becn: true, bytes: 64 };
            let alive = table.follow(*link).is_some();
            assert_eq!(table.record(*link, &packet, false, false, now).is_ok(), alive);
        }
        assert!(table.len() <= CAPACITY && table.in_use(0) <= 12);
        assert_eq!(table.iter(0, usize::MAX).count(), table.len());
    }
});
