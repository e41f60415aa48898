//! This library's own memory. It never comes from the program's allocator: the handler thread would
//! wait for a lock whose holder waits for the handler thread.
//!
//! Sizes of powers of two have lists of free blocks, which are cut from chunks that the kernel
//! maps. Larger ones are mappings of their own. Chunks are never given back: what this library
//! allocates is made once, or is small.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_sys::signals;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The smallest block: room for the pointer to the next free one.
const SHIFT_LEAST: u32 = 4;
/// The largest block of a list.
const SHIFT_MOST: u32 = 16;
const LISTS: usize = (SHIFT_MOST - SHIFT_LEAST + 1) as usize;
const CHUNK: usize = 256 << 10;

/// The allocator. See the module.
pub struct OwnMemory {
    locked: AtomicBool,
    lists: std::cell::UnsafeCell<Lists>,
}

struct Lists {
    /// The first free block of each size; each holds a pointer to the next.
    free: [*mut u8; LISTS],
    /// What is left of the newest chunk.
    at: usize,
    end: usize,
}

// SAFETY: the lists are reached by the thread that holds the lock only.
unsafe impl Sync for OwnMemory {}

impl OwnMemory {
    pub const fn new() -> OwnMemory {
        let lists = Lists { free: [null_mut(); LISTS], at: 0, end: 0 };
        OwnMemory { locked: AtomicBool::new(false), lists: std::cell::UnsafeCell::new(lists) }
    }

    /// Takes the lock. Until [`OwnMemory::unlock`], nothing is allocated or freed.
    pub fn lock(&self) {
        // A few instructions at a time, so there is nothing to sleep for. The holder may lose its
        // processor, however.
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
    }
    /// Gives the lock back.
    pub fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }
    fn with<T>(&self, f: impl FnOnce(&mut Lists) -> T) -> T {
        // A handler of the program that interrupts this may fault, and what resolves that
        // allocates.
        signals::with_all_blocked(|| {
            self.lock();
            // SAFETY: this thread holds the lock until after the last use.
            let result = f(unsafe { &mut *self.lists.get() });
            self.unlock();
            result
        })
    }
}

/// The list for a layout: a block is aligned to its size.
fn list_of(layout: Layout) -> Option<u32> {
    let size = layout.size().max(layout.align()).max(1 << SHIFT_LEAST);
    let shift = size.next_power_of_two().trailing_zeros();
    (shift <= SHIFT_MOST).then_some(shift)
}

fn map(bytes: usize) -> *mut u8 {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }
        .map_or(null_mut(), <*mut _>::cast)
}

impl Lists {
    fn take(&mut self, shift: u32) -> *mut u8 {
        let head = &mut self.free[(shift - SHIFT_LEAST) as usize];
        if !head.is_null() {
            let block = *head;
            // SAFETY: a block in a list holds a pointer to the next, or null, and nobody else uses
            // it.
            *head = unsafe { block.cast::<*mut u8>().read() };
            return block;
        }
        let size = 1usize << shift;
        let start = self.at.next_multiple_of(size);
        if self.at == 0 || start + size > self.end {
            let chunk = map(CHUNK + size);
            if chunk.is_null() {
                return null_mut();
            }
            (self.at, self.end) = (chunk as usize, chunk as usize + CHUNK + size);
            return self.take(shift);
        }
        self.at = start + size;
        start as *mut u8
    }
    fn give_back(&mut self, block: *mut u8, shift: u32) {
        let head = &mut self.free[(shift - SHIFT_LEAST) as usize];
        // SAFETY: the block is free, at least as large as a pointer, and aligned to its size.
        unsafe { block.cast::<*mut u8>().write(*head) };
        *head = block;
    }
}

// SAFETY: a block is of its layout's size at least, aligned to its size, and in one place only: a
// list, the chunk's rest, or the caller's hands. Larger ones are mappings, aligned to pages.
unsafe impl GlobalAlloc for OwnMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match list_of(layout) {
            Some(shift) => self.with(|lists| lists.take(shift)),
            None if layout.align() <= 4096 => map(layout.size()),
            // Nothing in this tree asks for more than a page's alignment.
            None => null_mut(),
        }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match list_of(layout) {
            Some(shift) => self.with(|lists| lists.give_back(block, shift)),
            None => {
                // SAFETY: a large block is a mapping of this size, which its owner gives up.
                let _ = unsafe { munmap(block.cast(), layout.size()) };
            }
        }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller's.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() && list_of(layout).is_some() {
            // SAFETY: the block is of this size. A mapping is zero already.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }
}
