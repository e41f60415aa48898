//! This library's own memory. It never comes from the program's allocator: the handler thread would
//! wait for a lock whose holder waits for the handler thread.
//!
//! Sizes of powers of two have lists of free blocks, which are cut from chunks that the kernel
//! maps. Larger ones are mappings of their own. Chunks are never given back: what this library
//! allocates is made once, or is small.
//!
//! Where the kernel maps no more (`ulimit -v`, too many mappings), blocks come from a reserve,
//! which was mapped before. What the program asks for is refused then ([`OwnMemory::ensure_room`]).
//! The reserve is for what cannot be refused: handling faults, and giving memory back.

use std::alloc::{GlobalAlloc, Layout};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_sys::signals;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The smallest block: room for the pointer to the next free one.
const SHIFT_LEAST: u32 = 4;
/// The largest block of a list.
const SHIFT_MOST: u32 = 16;
/// The largest block of a list that the reserve has. Larger ones are refused without the kernel.
const SHIFT_RESERVE: u32 = 20;
const LISTS: usize = (SHIFT_RESERVE - SHIFT_LEAST + 1) as usize;
const CHUNK: usize = 256 << 10;
/// Addresses of the reserve, which take no memory until they are used. A batch of the log of
/// objects, which is the most that is in use at a time, takes less than a megabyte.
const RESERVE: usize = 8 << 20;

/// The allocator. See the module.
pub struct OwnMemory {
    locked: AtomicBool,
    /// The kernel mapped no more when it was last asked.
    is_short: AtomicBool,
    lists: std::cell::UnsafeCell<Lists>,
}

struct Lists {
    /// The first free block of each size; each holds a pointer to the next.
    free: [*mut u8; LISTS],
    /// What is left of the newest chunk.
    at: usize,
    end: usize,
    /// The reserve, and what is left of it.
    reserve: Range<usize>,
    left: usize,
}

// SAFETY: the lists are reached by the thread that holds the lock only.
unsafe impl Sync for OwnMemory {}

impl OwnMemory {
    pub const fn new() -> OwnMemory {
        let lists = Lists { free: [null_mut(); LISTS], at: 0, end: 0, reserve: 0..0, left: 0 };
        let (locked, is_short) = (AtomicBool::new(false), AtomicBool::new(false));
        OwnMemory { locked, is_short, lists: std::cell::UnsafeCell::new(lists) }
    }

    /// Maps the reserve, once.
    pub fn reserve(&self) {
        self.with(|lists| {
            if lists.reserve.is_empty() {
                let start = map(RESERVE) as usize;
                (lists.reserve, lists.left) = (start..start + if start == 0 { 0 } else { RESERVE }, start);
            }
        });
    }
    /// Whether the kernel maps memory for this library. Where it did not, it is asked again.
    pub fn ensure_room(&self) -> bool {
        !self.is_short.load(Ordering::Relaxed)
            || self.with(|lists| {
                let has = lists.begin_chunk(0);
                self.is_short.store(!has, Ordering::Relaxed);
                has
            })
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

/// The power of two for a layout: a block is aligned to its size.
fn shift_of(layout: Layout) -> u32 {
    layout.size().max(layout.align()).max(1 << SHIFT_LEAST).next_power_of_two().trailing_zeros()
}
/// The list for a layout.
fn list_of(layout: Layout) -> Option<u32> {
    Some(shift_of(layout)).filter(|shift| *shift <= SHIFT_MOST)
}

fn map(bytes: usize) -> *mut u8 {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }
        .map_or(null_mut(), <*mut _>::cast)
}

impl Lists {
    fn take(&mut self, shift: u32, is_short: &AtomicBool) -> *mut u8 {
        if let Some(block) = self.take_free(shift) {
            return block;
        }
        let size = 1usize << shift;
        let start = self.at.next_multiple_of(size);
        if self.at == 0 || start + size > self.end {
            if !self.begin_chunk(size) {
                is_short.store(true, Ordering::Relaxed);
                return self.cut_reserve(size);
            }
            return self.take(shift, is_short);
        }
        self.at = start + size;
        start as *mut u8
    }
    fn take_free(&mut self, shift: u32) -> Option<*mut u8> {
        let head = &mut self.free[(shift - SHIFT_LEAST) as usize];
        if head.is_null() {
            return None;
        }
        let block = *head;
        // SAFETY: a block in a list holds a pointer to the next, or null, and nobody else uses it.
        *head = unsafe { block.cast::<*mut u8>().read() };
        Some(block)
    }
    /// Begins a chunk with room for a block of this size at least. False where the kernel maps
    /// none.
    fn begin_chunk(&mut self, size: usize) -> bool {
        let chunk = map(CHUNK + size);
        if !chunk.is_null() {
            (self.at, self.end) = (chunk as usize, chunk as usize + CHUNK + size);
        }
        !chunk.is_null()
    }

    /// Cuts a block from the reserve; null when that has no room.
    fn cut_reserve(&mut self, size: usize) -> *mut u8 {
        let start = self.left.next_multiple_of(size);
        if start + size > self.reserve.end {
            return null_mut();
        }
        self.left = start + size;
        start as *mut u8
    }
    /// A large block from the reserve; null when that has no room.
    fn take_reserved(&mut self, layout: Layout, is_short: &AtomicBool) -> *mut u8 {
        is_short.store(true, Ordering::Relaxed);
        match shift_of(layout) {
            shift if shift > SHIFT_RESERVE => null_mut(),
            shift => self.take_free(shift).unwrap_or_else(|| self.cut_reserve(1 << shift)),
        }
    }
    /// Gives a large block back, if it is one of the reserve.
    fn give_reserved_back(&mut self, block: *mut u8, layout: Layout) -> bool {
        let is_reserved = self.reserve.contains(&(block as usize));
        if is_reserved {
            self.give_back(block, shift_of(layout));
        }
        is_reserved
    }
    fn give_back(&mut self, block: *mut u8, shift: u32) {
        let head = &mut self.free[(shift - SHIFT_LEAST) as usize];
        // SAFETY: the block is free, at least as large as a pointer, and aligned to its size.
        unsafe { block.cast::<*mut u8>().write(*head) };
        *head = block;
    }
}

// SAFETY: a block is of its layout's size at least, aligned to its size, and in one place only: a
// list, the rest of a chunk or of the reserve, or the caller's hands. Larger ones are mappings,
// aligned to pages, or of the reserve.
unsafe impl GlobalAlloc for OwnMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match list_of(layout) {
            Some(shift) => self.with(|lists| lists.take(shift, &self.is_short)),
            None if layout.align() <= 4096 => match map(layout.size()) {
                block if block.is_null() => self.with(|lists| lists.take_reserved(layout, &self.is_short)),
                block => block,
            },
            // Nothing in this tree asks for more than a page's alignment.
            None => null_mut(),
        }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match list_of(layout) {
            Some(shift) => self.with(|lists| lists.give_back(block, shift)),
            None if self.with(|lists| lists.give_reserved_back(block, layout)) => {}
            None => {
                // SAFETY: a large block is a mapping of this size, which its owner gives up.
                let _ = unsafe { munmap(block.cast(), layout.size()) };
            }
        }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller's.
        let block = unsafe { self.alloc(layout) };
        // A mapping is zero already, but not a block of the reserve.
        let is_mapping = list_of(layout).is_none() && !self.with(|lists| lists.reserve.contains(&(block as usize)));
        if !block.is_null() && !is_mapping {
            // SAFETY: the block is of this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }
}
