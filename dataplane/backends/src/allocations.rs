//! An allocator that counts, for the tests that prove that packets allocate nothing.
//!
//! A test binary declares `#[global_allocator] static ALLOCATOR: CountingAllocator = CountingAllocator;` and compares
//! [`on_this_thread`] before and after. The count is the thread's own, for the test harness allocates on others when
//! it likes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    // Without a destructor and const, so that counting never allocates by itself.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Allocations and reallocations of the calling thread since its start; zero for ever when [`CountingAllocator`] is
/// not the global allocator.
pub fn on_this_thread() -> u64 {
    COUNT.get()
}

fn count_one() {
    COUNT.set(COUNT.get() + 1);
}

/// The system's allocator, counting.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract of `GlobalAlloc`.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_one();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`, and `pointer` came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, and `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
