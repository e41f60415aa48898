//! Kernel calls that only benchmarks make, safe to call: swap on and off, a file mapped over an
//! arena's range, and a range brought into memory. It also has one allocator over memory that the
//! kernel pages, or that one of Fulgurite's allocators manages.
//!
//! Invariant: no function of this module can break memory safety. It decides nothing.

use std::alloc::Layout;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use allocator_api2::alloc::AllocError;
use fulgurite_alloc::{Blocks, Source};
use fulgurite_fault::PageBuffer;
use fulgurite_sys::{Arena, Backed, Region};

/// Resident memory of this process, in bytes.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)? * 4096)
}

/// Reads a byte of a region, which may fault. Without a handler of the fault, the process ends.
///
/// # Panics
/// When there is no such byte.
pub fn touch(region: &Region, offset: usize) {
    assert!(offset < region.len(), "byte {offset} of a region of {}", region.len());
    let at = std::ptr::with_exposed_provenance::<u8>(region.base() + offset);
    // SAFETY: the byte is of this region's mapping, whose bytes are of nobody's. Where it may not
    // be read, a signal is sent. What is read is not used.
    unsafe { at.read_volatile() };
}

/// Reads a byte of each of `count` pages of a page buffer, by an odd step over a power of two of
/// them. Each read may fault. Without a handler of the fault, the process ends.
///
/// # Panics
/// When not all of them are mapped.
pub fn touch_pages(buffer: &PageBuffer, base: usize, pages: usize, step: usize) {
    assert!(buffer.is_mapped(base, pages * 4096), "{pages} pages from {base:#x} are not all mapped");
    for page in (0..pages).map(|page| page.wrapping_mul(step) % pages) {
        let at = std::ptr::with_exposed_provenance::<u8>(base + page * 4096);
        // SAFETY: the byte is of this page buffer, and mapped as just checked. What is read is not
        // used.
        unsafe { at.read_volatile() };
    }
}

/// Memory of the kernel's pages, handed out as the memory-page allocator does it.
#[derive(Debug)]
pub struct Mapped {
    arena: Arena,
    blocks: Mutex<Blocks>,
    pages: Pages,
}

/// Pages of an arena that are not handed out.
#[derive(Debug)]
struct Pages {
    base: usize,
    bytes: usize,
    /// Where the next new ones begin, and those that came back, with their lengths.
    free: Mutex<(usize, Vec<(usize, usize)>)>,
}

impl Source for Pages {
    fn map(&self, bytes: usize) -> Option<usize> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, back) = &mut *free;
        if let Some(at) = back.iter().position(|(_, len)| *len == bytes) {
            return Some(back.swap_remove(at).0);
        }
        let at = *next;
        *next = at.checked_add(bytes).filter(|end| *end <= self.bytes)?;
        Some(self.base + at)
    }
    fn unmap(&self, address: usize, bytes: usize) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).1.push((address, bytes));
    }
}

impl Mapped {
    /// Anonymous memory, which the kernel swaps.
    ///
    /// # Errors
    /// The kernel's.
    pub fn anonymous(bytes: u64) -> anyhow::Result<&'static Mapped> {
        Ok(Mapped::over(Arena::anonymous(usize::try_from(bytes)?, Backed::BasePages)?))
    }
    /// A file, which the kernel pages.
    ///
    /// # Errors
    /// The kernel's.
    pub fn file(file: &File, bytes: u64) -> anyhow::Result<&'static Mapped> {
        let arena = Arena::anonymous(usize::try_from(bytes)?, Backed::BasePages)?;
        fulgurite_harness::kernel::map_over(&arena, file, arena.len())?;
        Ok(Mapped::over(arena))
    }
    fn over(arena: Arena) -> &'static Mapped {
        let (base, bytes) = (arena.base().as_ptr().addr(), arena.len());
        let pages = Pages { base, bytes, free: Mutex::default() };
        Box::leak(Box::new(Mapped { arena, blocks: Mutex::default(), pages }))
    }
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let block = self.blocks().allocate(&self.pages, layout.size(), layout.align())?;
        NonNull::new(self.arena.base().as_ptr().with_addr(block.address))
    }
    fn free(&self, at: NonNull<u8>) {
        let freed = self.blocks().free(at.as_ptr().addr());
        if let Ok(Some((address, bytes))) = freed {
            self.pages.unmap(address, bytes);
        }
    }
}

/// Where [`Slab`] allocates.
#[derive(Clone, Copy, Debug)]
pub enum Heap {
    Objects(&'static fulgurite_alloc::ObjectAllocator),
    Pages(&'static fulgurite_alloc::Allocator),
    Mapped(&'static Mapped),
}

static HEAP: OnceLock<Heap> = OnceLock::new();

/// The allocator of this process, as a type without bytes: a box of it is as thin as one of
/// `malloc`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slab;

impl Slab {
    /// From now on it allocates there. False when it does so somewhere already.
    pub fn begin(heap: Heap) -> bool {
        HEAP.set(heap).is_ok()
    }
}

// SAFETY: each of these hands out memory that only its holder knows until it is freed, and lives as
// long as the process. Which of them it is never changes.
unsafe impl allocator_api2::alloc::Allocator for Slab {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let at = match HEAP.get().ok_or(AllocError)? {
            Heap::Objects(objects) => {
                let pool = objects.pool(layout.size().max(1)).map_err(|_| AllocError)?;
                return allocator_api2::alloc::Allocator::allocate(&pool, layout);
            }
            Heap::Pages(pages) => fulgurite_alloc::Allocator::allocate(pages, layout),
            Heap::Mapped(mapped) => mapped.allocate(layout),
        };
        Ok(NonNull::slice_from_raw_parts(at.ok_or(AllocError)?, layout.size()))
    }
    unsafe fn deallocate(&self, at: NonNull<u8>, _: Layout) {
        match HEAP.get() {
            // SAFETY: the caller's contract.
            Some(Heap::Objects(objects)) => drop(unsafe { objects.free(at) }),
            // SAFETY: as above.
            Some(Heap::Pages(pages)) => drop(unsafe { pages.free(at) }),
            Some(Heap::Mapped(mapped)) => mapped.free(at),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_the_kernel_come_back() {
        let mapped = Mapped::anonymous(1 << 20).unwrap();
        let layout = Layout::from_size_align(100_000, 8).unwrap();
        let blocks: Vec<NonNull<u8>> = (0..9).map_while(|_| mapped.allocate(layout)).collect();
        assert_eq!(blocks.len(), 9, "each has 25 pages of 256");
        blocks.iter().for_each(|at| mapped.free(*at));
        assert!(mapped.allocate(layout).is_some_and(|at| blocks.contains(&at)));
        let small = Layout::from_size_align(64, 8).unwrap();
        let at = mapped.allocate(small).expect("there are 31 pages more");
        assert!(!blocks.contains(&at) && mapped.pages.base <= at.as_ptr().addr());
    }
}
