//! The C library's allocator, as far as this one stands in for it: large blocks are mappings of the
//! page buffer, and all others are those of the allocator that comes next.
//!
//! A program with an allocator of its own (jemalloc, tcmalloc, mimalloc) keeps it for all blocks:
//! it has more functions than these, and gets its memory by `mmap`.
//!
//! A large block begins on a page. A child after `fork` that got no memory of flash cannot use one,
//! and freeing it there does nothing.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulgurite_fault::Access;
use libc::size_t;

use crate::early;
use crate::functions::fail;
use crate::run::{Run, run, run_of_any};

const PAGE: usize = 4096;

/// Large blocks: their addresses, and their bytes in whole pages.
static BLOCKS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Looks for the next allocator's functions, while the program has one thread.
pub fn look() {
    // SAFETY: a null pointer may be freed and asked for its size. The other blocks are freed here.
    unsafe {
        next_free(null_mut());
        next_usable_size(null_mut());
        let mut aligned = null_mut();
        next_posix_memalign(&raw mut aligned, 64, 64);
        let block = next_realloc(next_malloc(16), 32);
        for block in [block, next_calloc(1, 1), next_memalign(64, 64), aligned] {
            next_free(block);
        }
    }
}

/// Whether a program has an allocator of its own.
pub fn is_replaced() -> bool {
    [c"mallctl", c"tc_malloc", c"mi_malloc"].iter().any(|name| {
        // SAFETY: the name ends in zero.
        !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
    })
}

/// How many threads look for a function. The look frees the text of an earlier one that failed.
static LOOKS: AtomicUsize = AtomicUsize::new(0);

/// A function of the next allocator, looked for once.
pub struct Next {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicUsize::new(0) }
    }
    /// Its address, which is never null: without an allocator there is no program.
    pub fn address(&self) -> usize {
        let known = self.address.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        LOOKS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the name ends in zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        LOOKS.fetch_sub(1, Ordering::Relaxed);
        if found == 0 {
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Defines the call of a function of the next library that has one.
macro_rules! next {
    ($name:ident, $symbol:literal, ($($argument:ident: $type:ty),*) -> $result:ty) => {
        /// # Safety
        /// As the C library's function.
        unsafe fn $name($($argument: $type),*) -> $result {
            static NEXT: $crate::allocator::Next = $crate::allocator::Next::new($symbol);
            // SAFETY: the C library's function of this name has this type.
            let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(NEXT.address()) };
            // SAFETY: the caller's contract.
            unsafe { function($($argument),*) }
        }
    };
}

pub(crate) use next;

next!(next_malloc, c"malloc", (bytes: size_t) -> *mut c_void);
next!(next_free, c"free", (block: *mut c_void) -> ());
next!(next_calloc, c"calloc", (count: size_t, bytes: size_t) -> *mut c_void);
next!(next_realloc, c"realloc", (block: *mut c_void, bytes: size_t) -> *mut c_void);
next!(next_memalign, c"memalign", (alignment: size_t, bytes: size_t) -> *mut c_void);
next!(next_posix_memalign, c"posix_memalign", (to: *mut *mut c_void, alignment: size_t, bytes: size_t) -> c_int);
next!(next_usable_size, c"malloc_usable_size", (block: *mut c_void) -> size_t);

/// The run, if a block of so many bytes is to be large.
#[inline]
fn large(bytes: usize) -> Option<&'static Run> {
    run().filter(|run| run.has_malloc && bytes >= run.threshold)
}

/// The large blocks, locked.
pub type Blocks = MutexGuard<'static, BTreeMap<usize, usize>>;

pub fn blocks() -> Blocks {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A large block of zeros that begins at a multiple of a power of two; null, with `errno`, when
/// flash is full.
fn take(run: &Run, alignment: usize, bytes: usize) -> *mut c_void {
    let beyond = alignment.saturating_sub(PAGE);
    let (length, mapped) = match bytes.checked_add(beyond).filter(|all| *all <= isize::MAX as usize) {
        Some(all) => (bytes.next_multiple_of(PAGE), run.buffer.map(all, None, Access::ReadWrite)),
        None => (0, Err(libc::ENOMEM)),
    };
    match mapped {
        Ok(start) => {
            let address = start.next_multiple_of(alignment.max(PAGE));
            let (head, tail) = (address - start, (start + beyond) - address);
            // What lies before and behind is untouched. Where it stays mapped, it is not used.
            if head > 0 {
                let _ = run.buffer.unmap(start, head);
            }
            if tail > 0 {
                let _ = run.buffer.unmap(address + length, tail);
            }
            blocks().insert(address, length);
            address as *mut c_void
        }
        Err(_) => {
            run.is_full();
            fail(libc::ENOMEM);
            null_mut()
        }
    }
}

/// Whether a block is large. Also in a child, which has none but may name it.
#[inline]
fn is_large(block: *mut c_void) -> bool {
    run_of_any().is_some_and(|run| run.has_malloc && run.buffer.contains(block as usize))
}

/// Bytes of a large block.
///
/// # Panics
/// Ends the process when there is no such block, as the C library does.
fn bytes_of(block: *mut c_void) -> usize {
    let found = blocks().get(&(block as usize)).copied();
    found.unwrap_or_else(|| {
        if let Some(run) = run_of_any() {
            run.told.tell(&format!("{block:p} is freed or resized, and is no block, or no more"));
        }
        std::process::abort()
    })
}

fn give_back(block: *mut c_void) {
    let bytes = bytes_of(block);
    if let Some(run) = run() {
        blocks().remove(&(block as usize));
        // SAFETY: the location is this thread's own. `free` keeps it.
        let errno = unsafe { *libc::__errno_location() };
        let _ = run.buffer.unmap(block as usize, bytes);
        fail(errno);
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: size_t) -> *mut c_void {
    if let Some(block) = early::take(bytes) {
        return block;
    }
    match large(bytes) {
        Some(run) => take(run, PAGE, bytes),
        // SAFETY: the caller's contract.
        None => unsafe { next_malloc(bytes) },
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if is_large(block) {
        give_back(block);
    } else if early::bytes_of(block).is_some() {
    } else if LOOKS.load(Ordering::Relaxed) == 0 {
        // SAFETY: the caller's contract.
        unsafe { next_free(block) };
    }
    // A block that is freed during a look is lost: `free` itself may be what is looked for.
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, bytes: size_t) -> *mut c_void {
    if let Some(block) = count.checked_mul(bytes).and_then(early::take) {
        return block;
    }
    match count.checked_mul(bytes).and_then(|all| Some((large(all)?, all))) {
        Some((run, all)) => take(run, PAGE, all),
        // SAFETY: the caller's contract.
        None => unsafe { next_calloc(count, bytes) },
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void {
    if early::bytes_of(block).is_some() {
        // SAFETY: the block is one of those, and the new one of these bytes.
        return unsafe { early::copy(block, malloc(bytes), bytes) };
    }
    let was_large = is_large(block);
    if !was_large && (block.is_null() || large(bytes).is_none()) {
        // SAFETY: the caller's contract.
        return unsafe { if block.is_null() { malloc(bytes) } else { next_realloc(block, bytes) } };
    }
    if was_large && bytes == 0 {
        give_back(block);
        return null_mut();
    }
    if was_large && let Some(run) = large(bytes) {
        let old = bytes_of(block);
        // First: once it has moved, the old place may be another block's.
        blocks().remove(&(block as usize));
        let (result, address, now) =
            match crate::functions::remap(run, block as usize, old, bytes, libc::MREMAP_MAYMOVE, None) {
                Ok(address) => (address as *mut c_void, address, bytes.next_multiple_of(PAGE)),
                Err(errno) => {
                    fail(errno);
                    (null_mut(), block as usize, old)
                }
            };
        blocks().insert(address, now);
        return result;
    }
    // From one allocator to the other.
    // SAFETY: the caller's contract. The new block is of `bytes`, and the old one of its usable
    // size.
    unsafe {
        let new = malloc(bytes);
        if !new.is_null() {
            let old_bytes = malloc_usable_size(block);
            std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old_bytes.min(bytes));
            free(block);
        }
        new
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(alignment: size_t, bytes: size_t) -> *mut c_void {
    // Blocks of that kind are aligned to 16 bytes.
    if let Some(block) = (alignment <= 16).then(|| early::take(bytes)).flatten() {
        return block;
    }
    match large(bytes).filter(|_| alignment.is_power_of_two()) {
        Some(run) => take(run, alignment, bytes),
        // SAFETY: the caller's contract.
        None => unsafe { next_memalign(alignment, bytes) },
    }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: size_t, bytes: size_t) -> *mut c_void {
    // SAFETY: the caller's contract. glibc's are the same.
    unsafe { memalign(alignment, bytes) }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: size_t, bytes: size_t) -> c_int {
    let is_valid = alignment.is_power_of_two() && alignment >= size_of::<usize>();
    let Some(run) = large(bytes).filter(|_| is_valid) else {
        // SAFETY: the caller's contract.
        return unsafe { next_posix_memalign(to, alignment, bytes) };
    };
    let block = take(run, alignment, bytes);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller gives a place for a pointer.
    unsafe { to.write(block) };
    0
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> size_t {
    if is_large(block) {
        return bytes_of(block);
    }
    if let Some(bytes) = early::bytes_of(block) {
        return bytes;
    }
    // SAFETY: the caller's contract.
    unsafe { next_usable_size(block) }
}
