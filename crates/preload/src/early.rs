//! Blocks for the C library while no allocator can be asked: in a child whose allocator still holds
//! the locks of the fork, a thread is started, for which the C library allocates.
//!
//! They are in a piece of memory of this library, and are never used again.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 64 << 10;
/// Before each block stands its size.
const HEAD: usize = 16;

#[repr(align(16))]
struct Memory(UnsafeCell<[u8; BYTES]>);

// SAFETY: each byte belongs to one block, and each block to its caller.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread gets such blocks.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
}

/// Calls `f`, in which this thread is given such blocks.
pub fn with(f: impl FnOnce()) {
    IS_ON.set(true);
    f();
    IS_ON.set(false);
}

/// Whether this thread is in [`with`].
pub fn is_on() -> bool {
    IS_ON.get()
}

/// A block of zeros, if this thread is to be given such ones and there is room.
#[inline]
pub fn take(bytes: usize) -> Option<*mut c_void> {
    if !is_on() {
        return None;
    }
    let size = HEAD + bytes.checked_next_multiple_of(HEAD)?;
    let at = USED.fetch_add(size, Ordering::Relaxed);
    if size > BYTES || at > BYTES - size {
        return None;
    }
    // SAFETY: the bytes from `at` on are inside, aligned, and nobody else's.
    unsafe {
        let start = MEMORY.0.get().cast::<u8>().add(at);
        start.cast::<usize>().write(bytes);
        Some(start.add(HEAD).cast())
    }
}

/// Bytes of such a block.
#[inline]
pub fn bytes_of(block: *mut c_void) -> Option<usize> {
    let start = MEMORY.0.get() as usize;
    let is_inside = (start..start + BYTES).contains(&(block as usize));
    // SAFETY: a block inside has its size before it.
    is_inside.then(|| unsafe { block.cast::<u8>().sub(HEAD).cast::<usize>().read() })
}

/// As `realloc` for such a block.
///
/// # Safety
/// The block is such a one, and `new` is null or a block of `bytes`.
pub unsafe fn copy(block: *mut c_void, new: *mut c_void, bytes: usize) -> *mut c_void {
    if new.is_null() {
        return null_mut();
    }
    let old = bytes_of(block).unwrap_or(0);
    // SAFETY: both are of as many bytes, and different blocks.
    unsafe { std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old.min(bytes)) };
    new
}
