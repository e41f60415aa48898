//! Small blocks of `malloc` as objects, where the user asks for it (`--objects`): each is in a page
//! of its own, and only its bytes take DRAM and flash (SSDAlloc's object-per-page).
//!
//! ```text
//!  malloc(bytes): bytes below the least    --> the next allocator, or a slab (small)
//!                 up to OBJECT_BYTES_MAX   --> an object
//!                 above                    --> the next allocator, a slab, or a mapping
//! ```
//!
//! A program with an allocator of its own has objects as well. It must not pass them to functions
//! of that allocator that are no functions of the C library.
//!
//! A child after `fork` has none of them: their addresses are not mapped there.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use fulgurite_alloc::{FreeError, OBJECT_BYTES_MAX, ObjectAllocator, ObjectSettings, ObjectSummary, StartError};
use fulgurite_backing::Medium;
use fulgurite_fault::{Notices, Settings};
use fulgurite_flash::PartOfFlash;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};

/// Sizes are multiples of this: fewer pools, each with chunks of its own.
const STEP: usize = 16;
/// Objects have one part in this many of the DRAM and of the flash.
const SHARE: u64 = 2;
/// Tables have at most one part in this many of the objects' DRAM.
const TABLES: u64 = 4;
/// DRAM of an object in tables, with its part of a chunk's.
const TABLE_BYTES: u64 = 4;

/// The objects of a run.
pub struct Objects {
    allocator: &'static ObjectAllocator,
    /// The smallest block that is an object.
    least: usize,
}

/// Set once, and never dropped.
static OBJECTS: AtomicPtr<Objects> = AtomicPtr::new(null_mut());
/// This process is a child of the one that has them.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

#[inline]
fn objects() -> Option<&'static Objects> {
    // SAFETY: what is set is whole, and lives as long as the process.
    unsafe { OBJECTS.load(Ordering::Acquire).as_ref() }
}

/// Begins to serve objects of `least` bytes and more, from a half of the flash and the DRAM of
/// these settings, which are left with the rest of the flash. Returns a description.
///
/// # Errors
/// [`StartError`].
pub fn begin(settings: &mut Settings, least: usize) -> Result<String, StartError> {
    let whole = settings.opened.flash.clone();
    let own = (u64::from(whole.subpages()) / SHARE) as u32;
    let rest = whole.subpages() - own;
    let part = |first, count| PartOfFlash::new(whole.clone(), first, count).expect("both parts are inside");
    let dram_bytes = settings.dram_bytes / SHARE;
    let most = (dram_bytes / TABLES / TABLE_BYTES).min(u64::from(own) * SUBPAGE_BYTES as u64 / least as u64);
    // The flash is open already.
    let unused = Medium::memory(SUBPAGE_BYTES as u64);
    let of_objects = ObjectSettings::new(unused, dram_bytes, most.clamp(1, 1 << 31) as u32);
    let allocator = ObjectAllocator::over(&part(rest, own), &of_objects)?;
    settings.opened.flash = std::sync::Arc::new(part(0, rest));
    OBJECTS.store(Box::into_raw(Box::new(Objects { allocator, least })), Ordering::Release);
    Ok(format!("small blocks from {least} bytes on are objects: {}", allocator.describe()))
}

/// Whether there are any.
pub fn any() -> bool {
    objects().is_some()
}

/// Notes that this process is a child, which has none.
pub fn mark_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Tells what they have done, if there are any in this process: for people, or as a line of JSON.
pub fn report(notices: &Notices, json: bool) {
    let Some(objects) = objects().filter(|_| !IS_CHILD.load(Ordering::Relaxed)) else { return };
    let summary = objects.allocator.summary();
    match json {
        true => notices.report_line(&to_json(&summary)),
        false => notices.report(&shown(&summary)),
    }
}

fn shown(summary: &ObjectSummary) -> String {
    format!(
        "{} objects, {} faults, {:.1}% of them without a read of flash, {} written",
        summary.objects,
        summary.faults,
        100.0 * summary.hit_ratio(),
        format_bytes(summary.bytes_written)
    )
}

fn to_json(summary: &ObjectSummary) -> String {
    format!(
        "{{\"pid\": {}, \"objects\": {}, \"object_faults\": {}, \"object_reads\": {}, \"object_bytes_written\": {}, \
         \"object_errors\": {}}}",
        std::process::id(),
        summary.objects,
        summary.faults,
        summary.reads,
        summary.bytes_written,
        summary.errors
    )
}

/// Whether a block is an object, of this process or of its parent.
#[inline]
pub fn is_one(block: *mut c_void) -> bool {
    objects().is_some_and(|objects| objects.allocator.contains(block.cast()))
}

/// Whether a range has objects in it.
pub fn are_in(address: usize, len: usize) -> bool {
    let ends = [address, address.saturating_add(len.saturating_sub(1))];
    len > 0 && ends.into_iter().any(|end| is_one(end as *mut c_void))
}

/// An object for a block of `bytes` bytes, if it is to be one; null where there is no room.
#[inline]
pub fn take(bytes: usize, alignment: usize) -> Option<*mut c_void> {
    let objects = objects()?;
    if bytes < objects.least
        || bytes > OBJECT_BYTES_MAX
        || alignment > SUBPAGE_BYTES
        || IS_CHILD.load(Ordering::Relaxed)
    {
        return None;
    }
    let size = bytes.next_multiple_of(STEP).min(OBJECT_BYTES_MAX);
    let pool = objects.allocator.pool(size).expect("the size is an object's");
    Some(pool.allocate().map_or(null_mut(), |object| object.as_ptr().cast()))
}

/// Bytes of an object; none where it is no object in use.
pub fn bytes_of(object: *mut c_void) -> Option<usize> {
    objects()?.allocator.size_of(NonNull::new(object.cast())?).ok()
}

/// Frees an object. In a child, nothing happens.
///
/// # Errors
/// When it is no object in use.
///
/// # Safety
/// Nothing uses it any more.
pub unsafe fn free(object: *mut c_void) -> Result<(), FreeError> {
    let (Some(objects), Some(object)) = (objects(), NonNull::new(object.cast())) else { return Ok(()) };
    if IS_CHILD.load(Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    match unsafe { objects.allocator.free(object) } {
        // It stays in use: the flash failed, which its users will learn from their own accesses.
        Err(FreeError::Flash(_)) => Ok(()),
        result => result,
    }
}
