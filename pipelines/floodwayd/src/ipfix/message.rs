//! IPFIX messages (RFC 7011, section 3): a header, and sets of templates or of records.

use super::elements::{ELEMENTS, Element, Family, Flow, Registry};

const VERSION: u16 = 10;
const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;
/// The set of templates (section 3.3.2).
const TEMPLATE_SET: u16 = 2;
/// Numbers of the two templates: from 256 on they are the exporter's to choose (section 3.4.1).
const TEMPLATE_V4: u16 = 256;
const TEMPLATE_V6: u16 = 257;
/// An element of an enterprise (section 3.2).
const ENTERPRISE_BIT: u16 = 0x8000;

/// Writes messages of one transport session.
pub struct Messages {
    domain: u32,
    enterprise: u32,
    bytes_max: usize,
    /// Data records of this session so far, those of the unfinished message not among them, modulo 2^32 (section 3.1).
    sequence: u32,
    /// Room for the header, and the sets behind it.
    message: Vec<u8>,
    /// Records in it.
    records: u32,
    /// The set that is being written, and where it begins.
    set: Option<(u16, usize)>,
}

impl Messages {
    pub fn new(domain: u32, enterprise: u32, bytes_max: usize) -> Self {
        Self { domain, enterprise, bytes_max, sequence: 0, message: Vec::new(), records: 0, set: None }
    }

    /// A message of both templates. It counts no data record.
    pub fn templates(&self, now_s: u64) -> Vec<u8> {
        let mut message = vec![0; HEADER_BYTES + SET_HEADER_BYTES];
        for (number, family) in [(TEMPLATE_V4, Family::V4), (TEMPLATE_V6, Family::V6)] {
            message.extend(number.to_be_bytes());
            message.extend((elements(family).count() as u16).to_be_bytes());
            for Element { registry, number, len, .. } in elements(family) {
                match registry {
                    Registry::Iana => message.extend([number.to_be_bytes(), len.to_be_bytes()].concat()),
                    Registry::Ours => {
                        message.extend([(number | ENTERPRISE_BIT).to_be_bytes(), len.to_be_bytes()].concat());
                        message.extend(self.enterprise.to_be_bytes());
                    }
                }
            }
        }
        let len = message.len() - HEADER_BYTES;
        fill_set_header(&mut message[HEADER_BYTES..], TEMPLATE_SET, len);
        self.fill_header(&mut message, now_s);
        message
    }

    /// Adds a record; gives the message before it when that has no more room.
    pub fn push(&mut self, flow: &Flow<'_>, now_s: u64) -> Option<Vec<u8>> {
        let family = Family::of(flow.src);
        let template = if family == Family::V4 { TEMPLATE_V4 } else { TEMPLATE_V6 };
        let mut record = Vec::with_capacity(128);
        elements(family).for_each(|element| (element.write)(flow, &mut record));
        let full = (self.message.len() + SET_HEADER_BYTES + record.len() > self.bytes_max)
            .then(|| self.finish(now_s))
            .flatten();
        if self.message.is_empty() {
            self.message.resize(HEADER_BYTES, 0);
        }
        if self.set.is_none_or(|(current, _)| current != template) {
            self.close_set();
            self.set = Some((template, self.message.len()));
            self.message.resize(self.message.len() + SET_HEADER_BYTES, 0);
        }
        self.message.extend(record);
        self.records += 1;
        full
    }

    /// The message as far as it is, unless it has no record.
    pub fn finish(&mut self, now_s: u64) -> Option<Vec<u8>> {
        if self.records == 0 {
            return None;
        }
        self.close_set();
        let mut message = std::mem::take(&mut self.message);
        self.fill_header(&mut message, now_s);
        self.sequence = self.sequence.wrapping_add(self.records);
        self.records = 0;
        Some(message)
    }

    fn close_set(&mut self) {
        if let Some((template, at)) = self.set.take() {
            let len = self.message.len() - at;
            fill_set_header(&mut self.message[at..], template, len);
        }
    }

    fn fill_header(&self, message: &mut [u8], now_s: u64) {
        let len = message.len() as u16;
        message[..2].copy_from_slice(&VERSION.to_be_bytes());
        message[2..4].copy_from_slice(&len.to_be_bytes());
        // Seconds of 32 bits until 2106 (section 5.1).
        message[4..8].copy_from_slice(&(now_s as u32).to_be_bytes());
        message[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        message[12..16].copy_from_slice(&self.domain.to_be_bytes());
    }
}

/// The length counts the header (section 3.3.2).
fn fill_set_header(set: &mut [u8], number: u16, len: usize) {
    set[..2].copy_from_slice(&number.to_be_bytes());
    set[2..4].copy_from_slice(&(len as u16).to_be_bytes());
}

/// Those of one template.
fn elements(family: Family) -> impl Iterator<Item = &'static Element> {
    ELEMENTS.iter().filter(move |element| element.family == family || element.family == Family::Both)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use netflow_parser::variable_versions::ipfix::FlowSetBody;
    use netflow_parser::{IpfixField, NetflowPacket, NetflowParser};
    use program::DropReason;

    use super::super::elements::VARIABLE;
    use super::*;

    fn flow(src: &str, dst: &str) -> Flow<'static> {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        Flow {
            src: address(src),
            dst: address(dst),
            protocol: 6,
            ports: (40_000, 443),
            icmp: (0, 0),
            packets: 3,
            bytes: 180,
            read_ms: 1_796_169_600_123,
            interface: 2,
            vni: 100,
            dropped: Some(DropReason::PolicyDeny),
            queue_pair: None,
            tenant: "red",
        }
    }

    fn messages(sequence: u32) -> Messages {
        Messages { sequence, ..Messages::new(7, 32_473, 512) }
    }

    /// Written by hand from RFC 7011, figures B to N, and the IANA registry.
    #[test]
    fn a_record_is_these_bytes() {
        let mut messages = messages(9);
        assert_eq!(messages.push(&flow("10.1.0.10", "10.1.0.20"), 0), None);
        let message = messages.finish(0x6b0f_5c00).unwrap();
        let mut expected = vec![0, 10, 0, 100, 0x6b, 0x0f, 0x5c, 0, 0, 0, 0, 9, 0, 0, 0, 7];
        expected.extend([1, 0, 0, 84]);
        expected.extend([10, 1, 0, 10, 10, 1, 0, 20, 6, 0x9c, 0x40, 1, 0xbb, 0, 0]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 138, 0, 0, 0, 0, 0, 0, 0, 180]);
        expected.extend(1_796_169_600_123_u64.to_be_bytes());
        expected.extend([0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 100, 129, 0xff, 0xff, 0xff, 0xff]);
        expected.extend(b"\x0bpolicy-deny\x03red");
        assert_eq!(message, expected);
        assert_eq!(messages.finish(0), None);
    }

    #[test]
    fn an_independent_collector_reads_both_families_of_one_message() {
        let (mut messages, mut collector) = (messages(0), NetflowParser::default());
        assert!(collector.parse_bytes(&messages.templates(1)).error.is_none());
        for (src, dst) in [("10.1.0.10", "10.1.0.20"), ("2001:db8::1", "2001:db8::2")] {
            assert_eq!(messages.push(&flow(src, dst), 1), None);
        }
        let parsed = collector.parse_bytes(&messages.finish(1).unwrap());
        assert!(parsed.error.is_none(), "{:?}", parsed.error);
        let NetflowPacket::IPFix(packet) = &parsed.packets[0] else { panic!("{parsed:?}") };
        let data = packet.flowsets.iter().map(|set| match &set.body {
            FlowSetBody::Data(data) => data.fields.clone(),
            other => panic!("{other:?}"),
        });
        let records: Vec<_> = data.collect();
        let sources = [8, 27].map(|number| IpfixField::new(number, None));
        for (records, source) in records.iter().zip(sources) {
            assert_eq!(records.len(), 1);
            assert!(records[0].iter().any(|(field, _)| *field == source), "{records:?}");
        }
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn the_sequence_counts_data_records_and_wraps() {
        let mut messages = messages(u32::MAX - 1);
        let sequence = |message: &[u8]| u32::from_be_bytes(message[8..12].try_into().unwrap());
        let (mut numbers, mut counts) = (Vec::new(), Vec::new());
        let mut before = 0;
        for pushed in 0..14 {
            if let Some(message) = messages.push(&flow("10.1.0.10", "10.1.0.20"), 0) {
                assert!(message.len() <= 512, "{}", message.len());
                numbers.push(sequence(&message));
                counts.push(pushed - before);
                before = pushed;
                // Templates count nothing, whenever they are sent.
                assert_eq!(sequence(&messages.templates(0)), (u32::MAX - 1).wrapping_add(pushed));
            }
        }
        numbers.push(sequence(&messages.finish(0).unwrap()));
        assert_eq!(counts, [6, 6]);
        assert_eq!(numbers, [u32::MAX - 1, 4, 10]);
    }

    #[test]
    fn the_largest_record_and_the_templates_fit_the_smallest_message() {
        let name = "t".repeat(300);
        let largest = Flow { tenant: &name, ..flow("2001:db8::1", "2001:db8::2") };
        let mut messages = messages(0);
        assert_eq!(messages.push(&largest, 0), None);
        assert!(messages.push(&largest, 0).unwrap().len() <= 512);
        assert!(messages.templates(0).len() <= 512);
    }

    /// docs/ipfix.md has these elements, in this order.
    #[test]
    fn elements_are_documented() {
        let docs = include_str!("../../../../docs/ipfix.md");
        let rows =
            docs.lines().filter(|line| line.starts_with("| `") && line.contains("` | ")).filter_map(|line| {
                let cells: Vec<_> = line.split('|').map(str::trim).collect();
                (cells.len() == 7).then(|| cells[1..5].join(" "))
            });
        let written = |element: &Element| {
            let registry = if element.registry == Registry::Iana { "IANA" } else { "own" };
            let len = if element.len == VARIABLE { "variable".to_owned() } else { element.len.to_string() };
            format!("`{}` {registry} {} {len}", element.name, element.number)
        };
        assert_eq!(rows.collect::<Vec<_>>(), ELEMENTS.iter().map(written).collect::<Vec<_>>());
    }
}
