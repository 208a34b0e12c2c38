//! Capture files held in memory: classic pcap of either byte order, and pcapng.

use std::{fs::File, io::Read, path::Path};

use pcap_parser::{
    Block, LegacyPcapBlock, Linktype, PcapBlockOwned, PcapError as ParseError, PcapNGSlice, nom,
    parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header,
};

use super::{PcapError, display};

/// Bytes of the largest file that is read.
pub const MAX_FILE: u64 = 1 << 30;

/// The first four bytes of a pcapng file, the same in both byte orders (draft-ietf-opsawg-pcapng, section 4.1).
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The packets of a capture file, in order, all Ethernet.
#[derive(Clone, Debug)]
pub struct Capture {
    file: String,
    bytes: Vec<u8>,
    /// Where each packet ends in `bytes`; it starts where the one before ends.
    ends: Vec<usize>,
    truncated: usize,
}

impl Capture {
    /// Reads all of a file.
    ///
    /// # Errors
    /// With file and packet number; nothing of a damaged file is used.
    pub fn load(path: &Path) -> Result<Self, PcapError> {
        let failed = |source| PcapError::Read { file: display(path), source };
        let mut content = Vec::new();
        // A device or pipe has no length to ask for, so the limit is on what is read.
        let limited = File::open(path).map_err(failed)?.take(MAX_FILE + 1).read_to_end(&mut content);
        if limited.map_err(failed)? as u64 > MAX_FILE {
            return Err(PcapError::TooLarge { file: display(path) });
        }
        Self::parse(&display(path), &content)
    }

    /// Reads the content of a file that errors call `file`.
    ///
    /// # Errors
    /// With file and packet number.
    pub fn parse(file: &str, content: &[u8]) -> Result<Self, PcapError> {
        let mut capture = Self { file: file.into(), bytes: Vec::new(), ends: Vec::new(), truncated: 0 };
        if content.starts_with(&SECTION_HEADER) {
            capture.read_pcapng(content)?;
        } else {
            capture.read_pcap(content)?;
        }
        Ok(capture)
    }

    /// The file's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Packets in it.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when it has no packet.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Packets that were longer on the wire than in the file.
    pub fn truncated(&self) -> usize {
        self.truncated
    }

    /// The packet at `index`, the first being 0.
    pub fn frame(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// All packets in order.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.frame(index))
    }

    /// Checks that every packet fits a buffer of `room` bytes.
    ///
    /// # Errors
    /// With the first packet that does not.
    pub fn check_room(&self, room: usize) -> Result<(), PcapError> {
        match self.frames().enumerate().find(|(_, frame)| frame.len() > room) {
            None => Ok(()),
            Some((index, frame)) => {
                let (file, packet, len) = (self.file.clone(), index + 1, frame.len());
                Err(PcapError::TooLong { file, packet, len, room })
            }
        }
    }

    fn read_pcap(&mut self, content: &[u8]) -> Result<(), PcapError> {
        let (mut rest, header) =
            parse_pcap_header(content).map_err(|_| PcapError::NotACapture { file: self.file.clone() })?;
        // The upper bits tell of FCS and reserved things (draft-ietf-opsawg-pcap, section 4).
        self.check_linktype(Linktype(header.network.0 & 0xffff))?;
        let parse: Parser = if header.is_bigendian() {
            parse_pcap_frame_be
        } else if header.is_modified_format() {
            parse_pcap_frame_modified
        } else {
            parse_pcap_frame
        };
        while !rest.is_empty() {
            let (after, block) = parse(rest).map_err(|_| self.damaged())?;
            self.push(block.data, block.origlen);
            rest = after;
        }
        Ok(())
    }

    fn read_pcapng(&mut self, content: &[u8]) -> Result<(), PcapError> {
        let blocks = PcapNGSlice::from_slice(content).map_err(|_| self.damaged())?;
        // Link type and snapshot length of the section's interfaces; packets name them by index.
        let mut interfaces = Vec::new();
        for block in blocks {
            let PcapBlockOwned::NG(block) = block.map_err(|_| self.damaged())? else { continue };
            match block {
                Block::SectionHeader(_) => interfaces.clear(),
                Block::InterfaceDescription(interface) => {
                    interfaces.push((interface.linktype, interface.snaplen));
                }
                Block::EnhancedPacket(packet) => {
                    let interface = interfaces.get(packet.if_id as usize);
                    self.check_linktype(interface.ok_or_else(|| self.damaged())?.0)?;
                    let data = packet.data.get(..packet.caplen as usize).ok_or_else(|| self.damaged())?;
                    self.push(data, packet.origlen);
                }
                Block::SimplePacket(packet) => {
                    let &(linktype, snaplen) = interfaces.first().ok_or_else(|| self.damaged())?;
                    self.check_linktype(linktype)?;
                    let captured = if snaplen == 0 { packet.origlen } else { packet.origlen.min(snaplen) };
                    let data = packet.data.get(..captured as usize).ok_or_else(|| self.damaged())?;
                    self.push(data, packet.origlen);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, data: &[u8], wire_len: u32) {
        self.bytes.extend_from_slice(data);
        self.ends.push(self.bytes.len());
        self.truncated += usize::from(data.len() < wire_len as usize);
    }

    fn check_linktype(&self, linktype: Linktype) -> Result<(), PcapError> {
        if linktype == Linktype::ETHERNET {
            return Ok(());
        }
        let (file, packet) = (self.file.clone(), self.ends.len() + 1);
        Err(PcapError::NotEthernet { file, packet, linktype: linktype.0 })
    }

    fn damaged(&self) -> PcapError {
        PcapError::Damaged { file: self.file.clone(), packet: self.ends.len() + 1 }
    }
}

type Parser = for<'a> fn(&'a [u8]) -> nom::IResult<&'a [u8], LegacyPcapBlock<'a>, ParseError<&'a [u8]>>;
