//! Publication of a value to workers, by quiescent states (QSBR).
//!
//! The publisher swaps one pointer. Each reader notes, in a cache line of its own, the epoch of the value it loaded
//! last; a value that was replaced is freed, by the publisher, once every reader that is online has noted a later
//! epoch. Loading the next value is what says that the one before is no longer in use: the borrow checker sees to it,
//! since a loaded `&T` borrows the [`Reader`] until then.
//!
//! (McKenney and Slingwine, "Read-copy update", PDCS 1998; the form with per-reader epochs as in liburcu's QSBR flavour.)

use crate::sync::{Arc, AtomicPtr, AtomicU64, Mutex, Ordering, fence};
use crossbeam_utils::CachePadded;
use std::ptr;

/// The number of a published value: the first is 1, each next one more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Epoch(pub u64);

/// Names a reader; never used again after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct ReaderId(pub u64);

/// Noted by a reader that holds no value.
const OFFLINE: u64 = u64::MAX;
/// Noted by a reader that was dropped.
const GONE: u64 = u64::MAX - 1;

struct Version<T> {
    epoch: u64,
    value: T,
}

/// What publisher and readers share; whoever is last frees it.
struct Core<T> {
    /// Never null; made by `Box::into_raw`.
    current: AtomicPtr<Version<T>>,
    /// What the publisher had not yet reclaimed when it was dropped.
    orphans: Mutex<Vec<*mut Version<T>>>,
}

// SAFETY: a `T` is read through `&T` by several threads at once (Sync) and dropped by another than made it (Send); the
// raw pointers are to heap memory that the protocol below hands from thread to thread.
unsafe impl<T: Send + Sync> Send for Core<T> {}
// SAFETY: as for Send; all of its fields are atomics or behind a mutex.
unsafe impl<T: Send + Sync> Sync for Core<T> {}

impl<T> Drop for Core<T> {
    fn drop(&mut self) {
        let orphans = std::mem::take(&mut *self.orphans.lock().unwrap_or_else(|poison| poison.into_inner()));
        let current = self.current.load(Ordering::Relaxed);
        for version in orphans.into_iter().chain([current]) {
            // SAFETY: each was made by `Box::into_raw` and is in one place only, `current` or `orphans`. The last Arc
            // is being dropped, so there is no publisher and no reader, and no `&T` that borrows one.
            drop(unsafe { Box::from_raw(version) });
        }
    }
}

/// One reader's note: the epoch that it loaded last, or [`OFFLINE`] or [`GONE`]. Only the reader writes it.
struct Note {
    id: ReaderId,
    epoch: CachePadded<AtomicU64>,
}

/// The side that replaces the value. Behind a mutex if several threads publish.
pub struct Publisher<T> {
    core: Arc<Core<T>>,
    notes: Vec<Arc<Note>>,
    /// Replaced values with their epochs, oldest first.
    retired: Vec<*mut Version<T>>,
    epoch: u64,
    next_id: u64,
}

// SAFETY: `retired` owns its versions; they hold a `T`, which is Send, and `&T`s of other threads, which is Sync.
unsafe impl<T: Send + Sync> Send for Publisher<T> {}
// SAFETY: through `&Publisher` one can only read: the notes (atomics), and the current `T`, which is Sync.
unsafe impl<T: Send + Sync> Sync for Publisher<T> {}

impl<T> Publisher<T> {
    /// Publishes the first value, as epoch 1.
    #[allow(clippy::boxed_local)] // a program arrives boxed, and moves beside its epoch: one pointer to follow, not two
    pub fn new(initial: Box<T>) -> Self {
        let version = Box::into_raw(Box::new(Version { epoch: 1, value: *initial }));
        let core = Core { current: AtomicPtr::new(version), orphans: Mutex::new(Vec::new()) };
        Self { core: Arc::new(core), notes: Vec::new(), retired: Vec::new(), epoch: 1, next_id: 0 }
    }

    /// Registers a reader. It is offline until its first [`Reader::load`], and unregistered when it is dropped.
    pub fn reader(&mut self) -> Reader<T> {
        self.forget_gone();
        let note =
            Arc::new(Note { id: ReaderId(self.next_id), epoch: CachePadded::new(AtomicU64::new(OFFLINE)) });
        self.next_id += 1;
        self.notes.push(Arc::clone(&note));
        Reader { core: Arc::clone(&self.core), note, held: ptr::null_mut(), epoch: 0 }
    }

    /// Replaces the value for every load from now on; the one before waits for [`Publisher::reclaim`].
    ///
    /// While a reader is stuck each publication adds to what waits: whoever must bound that looks at
    /// [`Publisher::waiting`] first, and refuses.
    #[allow(clippy::boxed_local)] // as in `new`
    pub fn publish(&mut self, value: Box<T>) -> Epoch {
        self.epoch += 1;
        let version = Box::into_raw(Box::new(Version { epoch: self.epoch, value: *value }));
        self.retired.push(self.core.current.swap(version, Ordering::AcqRel));
        Epoch(self.epoch)
    }

    /// The epoch published last.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// The value published last.
    pub fn current(&self) -> &T {
        // SAFETY: `current` is valid, and only `publish` and `drop` retire it, which need `&mut self`.
        unsafe { &(*self.core.current.load(Ordering::Acquire)).value }
    }

    /// The lowest epoch that an online reader has loaded; what was published last when none is online. An epoch up to
    /// this is in force everywhere. A reader that is just coming online counts with what it loaded last (0: nothing).
    pub fn acknowledged(&self) -> Epoch {
        // Pairs with the fence in `Reader::come_online`: either this scan sees the reader online, or the reader's load
        // sees what was published before this scan.
        fence(Ordering::SeqCst);
        let online =
            self.notes.iter().map(|note| note.epoch.load(Ordering::Acquire)).filter(|&noted| noted < GONE);
        Epoch(online.min().unwrap_or(self.epoch))
    }

    /// Frees the replaced values that no reader can see any more, here and now; returns how many.
    pub fn reclaim(&mut self) -> usize {
        let acknowledged = self.acknowledged().0;
        self.forget_gone();
        // SAFETY: what is in `retired` has not been freed.
        let seen = |&version: &*mut Version<T>| unsafe { (*version).epoch } >= acknowledged;
        let free = self.retired.iter().position(seen).unwrap_or(self.retired.len());
        for version in self.retired.drain(..free) {
            // SAFETY: made by `Box::into_raw` and in `retired` only. It was replaced before the scan, and each reader
            // was then offline (its next load sees a later value) or had noted a later epoch, by a release store after
            // its last use of this version.
            drop(unsafe { Box::from_raw(version) });
        }
        free
    }

    /// Replaced values that are not freed yet.
    pub fn waiting(&self) -> usize {
        self.retired.len()
    }

    /// Each registered reader with the epoch it loaded last, `None` when it is offline: names the one that is stuck.
    pub fn readers(&self) -> Vec<(ReaderId, Option<Epoch>)> {
        let noted = self.notes.iter().map(|note| (note.id, note.epoch.load(Ordering::Acquire)));
        let registered = noted.filter(|&(_, epoch)| epoch != GONE);
        registered.map(|(id, epoch)| (id, (epoch != OFFLINE).then_some(Epoch(epoch)))).collect()
    }

    fn forget_gone(&mut self) {
        self.notes.retain(|note| note.epoch.load(Ordering::Acquire) != GONE);
    }
}

impl<T> Drop for Publisher<T> {
    /// Readers keep what they have: what cannot be freed now is freed by whoever is last.
    fn drop(&mut self) {
        self.reclaim();
        let mut orphans = self.core.orphans.lock().unwrap_or_else(|poison| poison.into_inner());
        orphans.append(&mut self.retired);
    }
}

/// The side of one worker. It may move to another thread, but not be used by two:
///
/// ```compile_fail,E0277
/// fn share<T: Sync>(_: T) {}
/// share(quiescent::Publisher::new(Box::new(1)).reader());
/// ```
pub struct Reader<T> {
    core: Arc<Core<T>>,
    note: Arc<Note>,
    /// The version loaded last; null while offline.
    held: *mut Version<T>,
    /// Its epoch; kept while offline.
    epoch: u64,
}

// SAFETY: it may run, and be the last to drop, a `T` on another thread (Send) while others read it (Sync).
// It is not Sync: `held` is a raw pointer.
unsafe impl<T: Send + Sync> Send for Reader<T> {}

impl<T> Reader<T> {
    /// The value published last, and a notice that the one loaded before is no longer used.
    ///
    /// One acquire load; a store, to this reader's own cache line, only when the value has changed. What was loaded
    /// cannot be kept beyond that:
    ///
    /// ```compile_fail,E0499
    /// let mut publisher = quiescent::Publisher::new(Box::new(1));
    /// let mut reader = publisher.reader();
    /// let before = reader.load();
    /// reader.load();
    /// assert_eq!(*before, 1);
    /// ```
    #[inline(always)]
    pub fn load(&mut self) -> &T {
        self.load_with_epoch().0
    }

    /// As [`Reader::load`], with the value's epoch, so that a change is seen without comparing values.
    #[inline(always)]
    pub fn load_with_epoch(&mut self) -> (&T, Epoch) {
        if self.held.is_null() {
            self.come_online();
        }
        let current = self.core.current.load(Ordering::Acquire);
        if current != self.held {
            self.note_loaded(current);
        }
        // SAFETY: `current` was published and is not freed before this reader notes a later epoch or goes offline,
        // both of which need `&mut self`, which the result borrows.
        (unsafe { &(*current).value }, Epoch(self.epoch))
    }

    /// Says that this reader holds nothing and will not hold the publisher up until its next [`Reader::load`].
    pub fn offline(&mut self) {
        self.held = ptr::null_mut();
        self.note.epoch.store(OFFLINE, Ordering::Release);
    }

    /// Which reader of its publisher it is.
    pub fn id(&self) -> ReaderId {
        self.note.id
    }

    /// The epoch loaded last.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// Notes what it loaded last, or nothing (0), which no later version precedes: until the next note nothing is freed
    /// that the coming load might return.
    #[cold]
    fn come_online(&mut self) {
        self.note.epoch.store(self.epoch, Ordering::Relaxed);
        // Pairs with the fence in `Publisher::acknowledged`.
        fence(Ordering::SeqCst);
    }

    #[cold]
    fn note_loaded(&mut self, current: *mut Version<T>) {
        self.held = current;
        // SAFETY: as in `load`; the note still says an epoch not later than this version's.
        self.epoch = unsafe { (*current).epoch };
        self.note.epoch.store(self.epoch, Ordering::Release);
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.note.epoch.store(GONE, Ordering::Release);
    }
}
