//! Which parts of one datagram have been seen.

use super::Loss;

/// Most fragments of one datagram: 65,535 bytes over links of 1,100 bytes and more.
pub const PIECES_MAX: usize = 64;

/// What one fragment holds of its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where its data starts in that of the datagram, in bytes.
    pub offset: u16,
    /// How much data it has, in bytes.
    pub len: u16,
    /// More fragments follow; the one without them says how long the datagram is.
    pub more: bool,
}

/// From the first byte to one past the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Span {
    start: u16,
    end: u16,
}

/// The pieces of one datagram, in order of their places, none of which overlap.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    spans: [Span; PIECES_MAX],
    count: u8,
    /// Bytes in all spans.
    covered: u16,
    /// Where the datagram ends, once its last piece was seen.
    end: Option<u16>,
}

impl Pieces {
    pub const NONE: Self =
        Self { spans: [Span { start: 0, end: 0 }; PIECES_MAX], count: 0, covered: 0, end: None };

    /// Adds a piece, or says why it does not fit to the others; then nothing is changed.
    pub fn add(&mut self, piece: Piece) -> Result<(), Loss> {
        let start = piece.offset;
        let end = start.checked_add(piece.len).filter(|end| *end > start).ok_or(Loss::Overlap)?;
        let count = usize::from(self.count);
        let at = self.spans[..count].partition_point(|span| span.start < start);
        let ends_there = !piece.more;
        if at < count && self.spans[at] == (Span { start, end }) && ends_there == (self.end == Some(end)) {
            return Err(Loss::Duplicate);
        }
        let reaches_into_next = at < count && self.spans[at].start < end;
        let is_reached_into = at > 0 && self.spans[at - 1].end > start;
        if reaches_into_next || is_reached_into || self.contradicts(end, ends_there) {
            return Err(Loss::Overlap);
        }
        if count == PIECES_MAX {
            return Err(Loss::Limit);
        }
        self.spans.copy_within(at..count, at + 1);
        self.spans[at] = Span { start, end };
        self.count += 1;
        self.covered += end - start;
        if ends_there {
            self.end = Some(end);
        }
        Ok(())
    }

    /// True when every byte of the datagram was seen.
    pub fn is_whole(&self) -> bool {
        self.end == Some(self.covered)
    }

    /// True when a piece that ends there, as the last or not, cannot belong to a datagram of these pieces' length.
    fn contradicts(&self, end: u16, ends_there: bool) -> bool {
        match self.end {
            Some(whole) => end > whole || ends_there != (end == whole),
            None => ends_there && self.spans[..usize::from(self.count)].iter().any(|span| span.end > end),
        }
    }
}
