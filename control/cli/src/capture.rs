//! One frame out of a capture file, pcap or pcapng, read block by block up to that frame.

use std::{fs::File, path::Path};

use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

/// Largest block of a file that is taken, in bytes.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Frame `number`, from 1.
pub(crate) fn frame(path: &Path, number: u64) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let mut reader = create_reader(BLOCK_BYTES_MAX, file)
        .map_err(|_| format!("{shown} is no capture: neither pcap nor pcapng"))?;
    let mut interfaces = Interfaces::default();
    let mut seen = 0;
    loop {
        let step = match reader.next() {
            Ok((len, block)) => {
                if let Some((linktype, data)) = interfaces.take(&block) {
                    seen += 1;
                    if seen == number {
                        return ethernet(linktype, data)
                            .map_err(|what| format!("frame {number} of {shown} {what}"));
                    }
                }
                Step::Consume(len)
            }
            Err(PcapError::Eof) => return Err(format!("{shown} has {seen} frames, not {number}")),
            Err(PcapError::Incomplete(_)) => Step::Refill,
            Err(_) => Step::Stop,
        };
        match step {
            Step::Consume(len) => reader.consume(len),
            Step::Refill if !reader.reader_exhausted() && reader.refill().is_ok() => {}
            Step::Refill | Step::Stop => {
                return Err(format!(
                    "{shown} is damaged after frame {seen}, or has a block of more than {BLOCK_BYTES_MAX} bytes there"
                ));
            }
        }
    }
}

/// What to do with the reader, once its block is let go.
enum Step {
    Consume(usize),
    Refill,
    Stop,
}

fn ethernet(linktype: Option<Linktype>, data: Option<&[u8]>) -> Result<Vec<u8>, String> {
    match (linktype, data) {
        (Some(Linktype::ETHERNET), Some(data)) => Ok(data.to_vec()),
        (Some(Linktype(other)), Some(_)) => Err(format!("is of link type {other}, not Ethernet (1)")),
        _ => Err("is damaged".into()),
    }
}

/// Link types of the interfaces of a section; a pcap file has one.
#[derive(Default)]
struct Interfaces(Vec<Linktype>);

impl Interfaces {
    /// A block's frame, if it has one.
    fn take<'a>(&mut self, block: &'a PcapBlockOwned) -> Option<(Option<Linktype>, Option<&'a [u8]>)> {
        match block {
            // The upper bits tell of FCS and reserved things (draft-ietf-opsawg-pcap, section 4).
            PcapBlockOwned::LegacyHeader(header) => self.0 = vec![Linktype(header.network.0 & 0xffff)],
            PcapBlockOwned::Legacy(block) => return Some((self.0.first().copied(), Some(block.data))),
            PcapBlockOwned::NG(Block::SectionHeader(_)) => self.0.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => self.0.push(interface.linktype),
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let linktype = self.0.get(packet.if_id as usize).copied();
                return Some((linktype, packet.data.get(..packet.caplen as usize)));
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                let len = packet.data.len().min(packet.origlen as usize);
                return Some((self.0.first().copied(), packet.data.get(..len)));
            }
            PcapBlockOwned::NG(_) => {}
        }
        None
    }
}
