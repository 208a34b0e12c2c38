//! A writer of classic pcap files (draft-ietf-opsawg-pcap), little-endian.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::Path,
};

use packet::Nanos;

use super::{PcapError, display};

/// Bytes that are gathered before they are written.
const BUFFERED: usize = 64 * 1024;

/// The snapshot length in the header: what libpcap calls its maximum.
const SNAPLEN: u32 = 262_144;

/// What the fraction of a second in a time stamp counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// Magic number a1b2c3d4.
    Microseconds,
    /// Magic number a1b23c4d.
    Nanoseconds,
}

/// An open capture file. What it could not write is counted, and cut off: the file always ends with a whole packet.
#[derive(Debug)]
pub struct CaptureWriter {
    file: File,
    precision: Precision,
    buffer: Vec<u8>,
    /// Packets in `buffer`.
    buffered: usize,
    /// Bytes of the file that are whole packets.
    written: u64,
}

impl CaptureWriter {
    /// Creates or empties a file, and writes the header.
    ///
    /// # Errors
    /// With the file's name.
    pub fn create(path: &Path, precision: Precision) -> Result<Self, PcapError> {
        let failed = |source| PcapError::Create { file: display(path), source };
        let mut file = File::create(path).map_err(failed)?;
        let header = header(precision);
        file.write_all(&header).map_err(failed)?;
        let buffer = Vec::with_capacity(BUFFERED);
        Ok(Self { file, precision, buffer, buffered: 0, written: header.len() as u64 })
    }

    /// Appends a packet, captured at `at` after 1970; of one longer than 262144 bytes, its front. Returns how many
    /// packets (of those buffered before) were lost to a write error.
    #[must_use]
    pub fn write(&mut self, at: Nanos, frame: &[u8]) -> usize {
        let data = &frame[..frame.len().min(SNAPLEN as usize)];
        let full = self.buffer.len() + RECORD_HEADER + data.len() > BUFFERED;
        let lost = if full { self.flush() } else { 0 };
        let fraction_ns = (at.0 % 1_000_000_000) as u32;
        let fraction = match self.precision {
            Precision::Microseconds => fraction_ns / 1_000,
            Precision::Nanoseconds => fraction_ns,
        };
        // Seconds wrap in 2106, as the format does.
        let seconds = (at.0 / 1_000_000_000) as u32;
        for field in [seconds, fraction, data.len() as u32, frame.len() as u32] {
            self.buffer.extend_from_slice(&field.to_le_bytes());
        }
        self.buffer.extend_from_slice(data);
        self.buffered += 1;
        lost
    }

    /// Writes what is buffered; returns how many packets were lost to a write error.
    #[must_use]
    pub fn flush(&mut self) -> usize {
        let result = self.file.write_all(&self.buffer);
        let lost = match result {
            Ok(()) => {
                self.written += self.buffer.len() as u64;
                0
            }
            Err(_) => {
                // A packet may be half written. When even the cut fails (a pipe), nobody is left to tell.
                let _ = self.cut();
                self.buffered
            }
        };
        self.buffer.clear();
        self.buffered = 0;
        lost
    }

    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.written)?;
        self.file.seek(SeekFrom::Start(self.written)).map(drop)
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        // Whoever counts has flushed before.
        let _ = self.flush();
    }
}

const RECORD_HEADER: usize = 16;

fn header(precision: Precision) -> [u8; 24] {
    let magic: u32 = match precision {
        Precision::Microseconds => 0xa1b2_c3d4,
        Precision::Nanoseconds => 0xa1b2_3c4d,
    };
    let mut header = [0; 24];
    header[..4].copy_from_slice(&magic.to_le_bytes());
    header[4] = 2; // version 2.4
    header[6] = 4;
    header[16..20].copy_from_slice(&SNAPLEN.to_le_bytes());
    header[20] = 1; // LINKTYPE_ETHERNET
    header
}
