//! Counters of one worker, that others read while it counts.
//!
//! A block is `rows` by `columns` cells of 64 bits; every row begins a cache line. Only the worker writes, so adding is
//! a plain load and store, without a lock prefix.
//!
//! What a reader may see: each cell whole (never half of an addition), and never going back, but cells of different
//! moments. Sums over cells may thus be off by what the worker did during the read: at most a few bursts. Cells wrap
//! at 2^64.

use crate::sync::{Arc, AtomicU64, Ordering};
use std::cell::Cell;
use std::marker::PhantomData;

const CELLS: usize = 8;

/// One cache line of cells.
#[repr(align(64))]
struct Line([AtomicU64; CELLS]);

struct Block {
    rows: usize,
    columns: usize,
    /// Cells from the start of one row to the start of the next.
    stride: usize,
    /// The rows, and one line more for what was counted out of range.
    lines: Box<[Line]>,
}

impl Block {
    #[inline(always)]
    fn position(&self, row: usize, column: usize) -> Option<usize> {
        (row < self.rows && column < self.columns).then(|| row * self.stride + column)
    }

    #[inline(always)]
    fn cell(&self, at: usize) -> &AtomicU64 {
        &self.lines[at / CELLS].0[at % CELLS]
    }

    fn overflow(&self) -> usize {
        self.rows * self.stride
    }
}

/// Makes the two sides of a block of counters.
pub struct Counters;

impl Counters {
    /// A block of `rows` by `columns` zeros.
    ///
    /// # Panics
    /// When it is larger than the address space.
    #[allow(clippy::new_ret_no_self)] // the two sides are the point
    pub fn new(rows: usize, columns: usize) -> (Writer, Arc<Reader>) {
        let stride = columns.next_multiple_of(CELLS);
        let lines = rows.checked_mul(stride / CELLS).expect("a block of counters that fits in memory") + 1;
        let lines = (0..lines).map(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
        let block = Arc::new(Block { rows, columns, stride, lines });
        (Writer { block: Arc::clone(&block), alone: PhantomData }, Arc::new(Reader { block }))
    }
}

/// The worker's side: it may move to another thread, and there is only one.
pub struct Writer {
    block: Arc<Block>,
    alone: PhantomData<Cell<()>>,
}

impl Writer {
    /// Adds `n` to a cell. Out of range is a mistake of the caller: counted in [`Reader::overflow`], and a panic in
    /// debug builds.
    #[inline(always)]
    pub fn add(&self, row: usize, column: usize, n: u64) {
        let at = self.block.position(row, column);
        debug_assert!(at.is_some(), "no counter at row {row}, column {column}");
        let cell = self.block.cell(at.unwrap_or_else(|| self.block.overflow()));
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Replaces a cell: for levels rather than counts. Out of range as [`Writer::add`].
    #[inline(always)]
    pub fn set(&self, row: usize, column: usize, value: u64) {
        let at = self.block.position(row, column);
        debug_assert!(at.is_some(), "no counter at row {row}, column {column}");
        let cell = self.block.cell(at.unwrap_or_else(|| self.block.overflow()));
        cell.store(value, Ordering::Relaxed);
    }
}

/// Anybody's side.
pub struct Reader {
    block: Arc<Block>,
}

impl Reader {
    /// Rows of the block.
    pub fn rows(&self) -> usize {
        self.block.rows
    }

    /// Columns of the block.
    pub fn columns(&self) -> usize {
        self.block.columns
    }

    /// One cell; zero out of range.
    pub fn get(&self, row: usize, column: usize) -> u64 {
        self.block.position(row, column).map_or(0, |at| self.block.cell(at).load(Ordering::Relaxed))
    }

    /// The first cells of a row, as many as `into` has room for; zeros out of range.
    pub fn row_into(&self, row: usize, into: &mut [u64]) {
        for (column, value) in into.iter_mut().enumerate() {
            *value = self.get(row, column);
        }
    }

    /// What was added out of range: not zero means a mistake in the writer.
    pub fn overflow(&self) -> u64 {
        self.block.cell(self.block.overflow()).load(Ordering::Relaxed)
    }
}
