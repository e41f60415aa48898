//! The C library's allocator, as far as this one stands in for it: large blocks are mappings of the
//! page buffer, and all others are blocks of the allocator that comes next.
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

use libc::size_t;

use crate::early;
use crate::errno::fail;
use crate::objects;
use crate::run::{Run, run, run_of_any};
use crate::small::{self, Freed};

const PAGE: usize = 4096;

/// Large blocks: their addresses, and their bytes in whole pages.
static BLOCKS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Looks for the next allocator's functions, while the program has one thread.
pub fn look_up() {
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

/// How many threads are looking up a function. The look-up frees the text of an earlier one that
/// failed.
static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);

/// Forgets the look-ups of threads that a child does not have.
pub fn forget_look_ups() {
    LOOK_UPS.store(0, Ordering::Relaxed);
}

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
        self.find().unwrap_or_else(|| std::process::abort())
    }
    /// Its address, if there is such a function now.
    pub fn find(&self) -> Option<usize> {
        let known = self.address.load(Ordering::Relaxed);
        if known != 0 {
            return Some(known);
        }
        LOOK_UPS.fetch_add(1, Ordering::Relaxed);
        // Some are there for older programs only, under the version that these know.
        let versions = [None, Some(c"GLIBC_2.2.5"), Some(c"GLIBC_2.4")];
        let found = versions.into_iter().find_map(|version| {
            // SAFETY: the names end in zero.
            let found = unsafe {
                match version {
                    Some(version) => libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()),
                    None => libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()),
                }
            };
            (!found.is_null()).then_some(found as usize)
        });
        LOOK_UPS.fetch_sub(1, Ordering::Relaxed);
        self.address.store(found.unwrap_or(0), Ordering::Relaxed);
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

/// The run, if a block of `bytes` bytes is to be large.
#[inline]
fn large(bytes: usize) -> Option<&'static Run> {
    run().filter(|run| run.has_malloc && (bytes >= run.threshold || run.has_small && bytes > small::LARGEST))
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
        Some(all) => (bytes.next_multiple_of(PAGE), run.map(all)),
        None => (0, Err(libc::ENOMEM)),
    };
    match mapped {
        Ok(start) => {
            let address = start.next_multiple_of(alignment.max(PAGE));
            let (head, tail) = (address - start, (start + beyond) - address);
            // What is before and behind the block is untouched. Where it stays mapped, it is not
            // used.
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
    found.unwrap_or_else(|| end_of(block))
}

fn end_of(block: *mut c_void) -> ! {
    if let Some(run) = run_of_any() {
        run.notices.report(&format!("{block:p} is freed or resized, and is no block, or no more"));
    }
    std::process::abort()
}

fn give_back(block: *mut c_void) {
    if let Some(run) = run() {
        // SAFETY: the location is this thread's own. `free` keeps it.
        let errno = unsafe { *libc::__errno_location() };
        match small::free(&run.buffer, block) {
            Freed::Done => {
                fail(errno);
                return;
            }
            Freed::Wrong => end_of(block),
            Freed::NotSmall => {}
        }
    } else if run_of_any().is_some_and(|run| small::bytes_of(&run.buffer, block).is_some()) {
        return;
    }
    let bytes = bytes_of(block);
    if let Some(run) = run() {
        blocks().remove(&(block as usize));
        // SAFETY: the location is this thread's own. `free` keeps it.
        let errno = unsafe { *libc::__errno_location() };
        let _ = run.buffer.unmap(block as usize, bytes);
        fail(errno);
    }
}

/// An object for a block, if code at `caller` is to have one; null where there is no room.
#[inline]
fn object(bytes: usize, alignment: usize, caller: usize) -> Option<*mut c_void> {
    if !objects::any() || small::is_library(caller) {
        return None;
    }
    let block = objects::take(bytes, alignment)?;
    if block.is_null() {
        if let Some(run) = run() {
            run.no_objects();
        }
        fail(libc::ENOMEM);
    }
    Some(block)
}

/// Bytes of an object.
///
/// # Panics
/// Ends the process when there is no such object, as the C library does.
fn bytes_of_object(block: *mut c_void) -> usize {
    objects::bytes_of(block).unwrap_or_else(|| end_of(block))
}

fn give_object_back(block: *mut c_void) {
    // SAFETY: the location is this thread's own. `free` keeps it.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the program frees it.
    if unsafe { objects::free(block) }.is_err() {
        end_of(block);
    }
    fail(errno);
}

/// A small block in memory of flash, if code at `caller` is to have one; null where flash is full.
#[inline]
fn small(bytes: usize, alignment: usize, caller: usize) -> Option<*mut c_void> {
    let run = run().filter(|run| run.has_small && bytes <= small::LARGEST && alignment <= PAGE)?;
    if small::is_library(caller) {
        return None;
    }
    let block = if run.ensure_own_memory() {
        let block = small::take(&run.buffer, bytes, alignment);
        if block.is_none() {
            run.warn_of_full();
        }
        block
    } else {
        None
    };
    Some(block.unwrap_or_else(|| {
        fail(libc::ENOMEM);
        null_mut()
    }))
}

/// Defines a function of the C library that passes the address of its caller on, as one argument
/// more.
macro_rules! with_caller {
    ($name:ident, ($($argument:ident: $type:ty),*) -> $result:ty, $register:literal, $to:ident) => {
        /// # Safety
        /// As the C library's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // The address to return to is on top of the stack.
            std::arch::naked_asm!(concat!("mov ", $register, ", [rsp]"), "jmp {to}", to = sym $to)
        }
    };
}

with_caller!(malloc, (bytes: size_t) -> *mut c_void, "rsi", malloc_for);
with_caller!(calloc, (count: size_t, bytes: size_t) -> *mut c_void, "rdx", calloc_for);
with_caller!(realloc, (block: *mut c_void, bytes: size_t) -> *mut c_void, "rdx", realloc_for);

/// # Safety
/// As `malloc`.
unsafe extern "C" fn malloc_for(bytes: size_t, caller: usize) -> *mut c_void {
    if let Some(block) = early::take(bytes).or_else(|| object(bytes, 1, caller)).or_else(|| small(bytes, 1, caller)) {
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
    } else if objects::is_one(block) {
        give_object_back(block);
    } else if early::bytes_of(block).is_none() && LOOK_UPS.load(Ordering::Relaxed) == 0 {
        // SAFETY: the caller's contract.
        unsafe { next_free(block) };
    }
    // A block that is freed during a look-up is lost: `free` itself may be what is being looked up.
}

/// # Safety
/// As `calloc`.
unsafe extern "C" fn calloc_for(count: size_t, bytes: size_t, caller: usize) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else {
        // SAFETY: the caller's contract.
        return unsafe { next_calloc(count, bytes) };
    };
    // A new object reads as zeros.
    if let Some(block) = early::take(all).or_else(|| object(all, 1, caller)) {
        return block;
    }
    if let Some(block) = small(all, 1, caller) {
        if !block.is_null() {
            // SAFETY: the block is new, and of `all` bytes.
            unsafe { block.cast::<u8>().write_bytes(0, all) };
        }
        return block;
    }
    match large(all) {
        Some(run) => take(run, PAGE, all),
        // SAFETY: the caller's contract.
        None => unsafe { next_calloc(count, bytes) },
    }
}

/// # Safety
/// As `realloc`.
unsafe extern "C" fn realloc_for(block: *mut c_void, bytes: size_t, caller: usize) -> *mut c_void {
    if block.is_null() {
        // SAFETY: the caller's contract.
        return unsafe { malloc_for(bytes, caller) };
    }
    if early::bytes_of(block).is_some() {
        // SAFETY: the block is one of those, and the new one of these bytes.
        return unsafe { early::copy(block, malloc_for(bytes, caller), bytes) };
    }
    let is_object = objects::is_one(block);
    let was_ours = is_object || is_large(block);
    if was_ours && bytes == 0 {
        // SAFETY: the caller's contract.
        unsafe { free(block) };
        return null_mut();
    }
    let old_small = match is_object {
        true => Some(bytes_of_object(block)),
        false => run_of_any().filter(|_| was_ours).and_then(|run| small::bytes_of(&run.buffer, block)),
    };
    if let Some(old) = old_small
        && bytes <= old
        && bytes > old / 2
    {
        return block;
    }
    if was_ours
        && old_small.is_none()
        && let Some(run) = large(bytes)
    {
        let old = bytes_of(block);
        // First: once it has moved, the old place may be another block's.
        blocks().remove(&(block as usize));
        let (result, address, now) =
            match crate::functions::remap(run, block as usize, old, bytes, libc::MREMAP_MAYMOVE, None) {
                Ok(address) => (address as *mut c_void, address, bytes.next_multiple_of(PAGE)),
                // Whatever the pages say: that many bytes cannot be had.
                Err(_) => {
                    fail(libc::ENOMEM);
                    (null_mut(), block as usize, old)
                }
            };
        blocks().insert(address, now);
        return result;
    }
    let stays = !was_ours && large(bytes).is_none();
    if stays {
        // A block of the next allocator's stays there: its user may be the C library.
        // SAFETY: the caller's contract.
        return unsafe { next_realloc(block, bytes) };
    }
    // From one allocator to the other.
    // SAFETY: the caller's contract. The new block is of `bytes`, and the old one of its usable
    // size.
    unsafe {
        let new = malloc_for(bytes, caller);
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
    if alignment.is_power_of_two()
        && let Some(block) = object(bytes, alignment, 0).or_else(|| small(bytes, alignment, 0))
    {
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
    if is_valid && let Some(block) = object(bytes, alignment, 0).or_else(|| small(bytes, alignment, 0)) {
        if block.is_null() {
            return libc::ENOMEM;
        }
        // SAFETY: the caller gives a place for a pointer.
        unsafe { to.write(block) };
        return 0;
    }
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
        let small = run_of_any().and_then(|run| small::bytes_of(&run.buffer, block));
        return small.unwrap_or_else(|| bytes_of(block));
    }
    if objects::is_one(block) {
        return bytes_of_object(block);
    }
    if let Some(bytes) = early::bytes_of(block) {
        return bytes;
    }
    // SAFETY: the caller's contract.
    unsafe { next_usable_size(block) }
}
