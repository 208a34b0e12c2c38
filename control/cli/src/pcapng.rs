//! Traced packets as a pcapng file: an interface for each port, nanoseconds, and what was decided as each packet's comment.

use std::{borrow::Cow, fs::File, io::BufWriter, path::Path, time::Duration};

use pcap_file::{
    DataLink, PcapError,
    pcapng::{
        PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
        },
    },
};
use program::{TRACE_SNAP_MAX, TracedFrame, TracedPacket, TracedStep};

use crate::{
    arguments::At,
    trace::{bytes, stages},
};

/// Ten to the power of minus nine: `if_tsresol` of draft-ietf-opsawg-pcapng, section 4.2.
const NANOSECONDS: u8 = 9;

/// Writes the frames of one place, or of all; how many there are.
///
/// # Errors
/// A sentence, when the file cannot be written.
pub(crate) fn write(path: &Path, packets: &[TracedPacket], at: Option<At>) -> Result<usize, String> {
    let frames: Vec<Frame> = packets.iter().flat_map(|packet| frames(packet, at)).collect();
    let written = File::create(path).map_err(PcapError::IoError).and_then(|file| put(file, &frames));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(frames.len())
}

struct Frame<'a> {
    port: &'a str,
    at_unix_ns: u64,
    frame: &'a TracedFrame,
    comment: String,
}

fn frames(packet: &TracedPacket, at: Option<At>) -> Vec<Frame<'_>> {
    let story: Vec<String> =
        stages(packet).into_iter().map(|(stage, what)| format!("{stage}: {what}")).collect();
    let frame = |port, frame, place: &str| Frame {
        port,
        at_unix_ns: packet.at_unix_ns,
        frame,
        comment: format!("as {place}\n{}", story.join("\n")),
    };
    let received = (at != Some(At::Sent)).then(|| frame(&packet.port, &packet.received, "received"));
    let sent = packet.steps.iter().filter_map(|step| match step {
        TracedStep::Sent { port, frame: Some(bytes), .. } => Some(frame(port, bytes, "sent")),
        _ => None,
    });
    let sent = sent.filter(|_| matches!(at, None | Some(At::Sent)));
    received.into_iter().chain(sent).collect()
}

fn put(file: File, frames: &[Frame<'_>]) -> Result<(), PcapError> {
    let mut writer = PcapNgWriter::new(BufWriter::new(file))?;
    let mut ports: Vec<&str> = frames.iter().map(|frame| frame.port).collect();
    ports.sort_unstable();
    ports.dedup();
    for port in &ports {
        writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: TRACE_SNAP_MAX.into(),
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(*port)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        })?;
    }
    for Frame { port, at_unix_ns, frame, comment } in frames {
        let interface_id = ports.binary_search(port).unwrap_or_default() as u32;
        writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_nanos(*at_unix_ns),
            original_len: frame.length,
            data: Cow::Owned(bytes(frame).unwrap_or_default()),
            options: vec![EnhancedPacketOption::Comment(Cow::Borrowed(comment))],
        })?;
    }
    std::io::Write::flush(writer.get_mut()).map_err(PcapError::IoError)
}
