//! Allocators: memory in flash for programs that change only their allocation calls.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use fulgurite_alloc::{Allocator, FreeError, Mode, PermissionError, Permissions, StartError};
use fulgurite_fault::Error as FaultError;

use crate::argument::{self, OfProcess, give};
use crate::failure::{Failure, guard};
use crate::options::fulgurite_options;
use crate::region::{FULGURITE_MAY_READ, FULGURITE_MAY_WRITE};
use crate::status::fulgurite_status::{self, *};

/// The alignment of blocks whose alignment is not given, which suits any type of C.
const ALIGNMENT: usize = 16;

/// Memory in flash that is used by plain loads and stores. Any thread may allocate, and free what
/// others have allocated. It lives as long as the process. A child after fork() must not touch its
/// blocks, and calls with the handle fail there with FULGURITE_FORKED.
pub struct fulgurite_allocator(OfProcess<&'static Allocator>);

/// What an allocator has handed out, and what its pages have met. Later versions add members at the
/// end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fulgurite_allocator_statistics {
    /// Bytes of blocks, as rounded up.
    pub used_bytes: u64,
    /// Bytes of the pages that hold them.
    pub mapped_bytes: u64,
    /// Accesses that found their page missing.
    pub faults: u64,
    /// Of these, how many read flash.
    pub reads: u64,
    /// Pages that left DRAM unchanged.
    pub evicted_clean: u64,
    /// Pages that left DRAM and were written.
    pub evicted_dirty: u64,
    /// Reads and writes of flash that failed.
    pub errors: u64,
    /// How long threads waited for pages, all together, in nanoseconds.
    pub waited_ns: u64,
    /// The most memory that the process had when it was measured, in bytes.
    pub peak_bytes: u64,
    /// Of the faults, how many a worker waited for: a job touched a page, and the other jobs of its
    /// worker waited as well.
    pub faults_of_workers: u64,
}

pub(crate) fn of_start(error: StartError) -> Failure {
    let message = error.to_string();
    match error {
        StartError::Medium(error) => Failure::from(fulgurite::Error::from(error)),
        StartError::Pool(error) => Failure::from(fulgurite::Error::from(error)),
        StartError::Damaged { .. } => Failure::new(FULGURITE_CORRUPT, message),
        StartError::PageBuffer(FaultError::TooSmall { .. })
        | StartError::TooSmall { .. }
        | StartError::SmallFlash { .. }
        | StartError::NotFlat
        | StartError::NoObjects => Failure::new(FULGURITE_BAD_OPTION, message),
        StartError::PageBuffer(FaultError::Userfault(_)) => Failure::new(FULGURITE_NOT_PERMITTED, message),
        StartError::PageBuffer(FaultError::Memory(_)) | StartError::Memory(_) => {
            Failure::new(FULGURITE_NO_MEMORY, message)
        }
        _ => Failure::new(FULGURITE_CANNOT_OPEN, message),
    }
}
pub(crate) fn of_free(error: FreeError) -> Failure {
    Failure::new(FULGURITE_INVALID_ARGUMENT, error.to_string())
}
pub(crate) fn no_room(bytes: usize) -> Failure {
    let message = format!("the flash has no room for {bytes} bytes; free something, or choose more flash");
    Failure::new(FULGURITE_NO_SPACE, message)
}

/// Starts an allocator over flash of the medium and size that the options name. Its contents are
/// overwritten. A file that it creates loses its name at once, and is gone with the process. The
/// DRAM budget is a cap on all memory of the process, with what it has elsewhere.
///
/// Fails with FULGURITE_BAD_OPTION, also for a pool or too little DRAM, with FULGURITE_CANNOT_OPEN,
/// and with FULGURITE_NOT_PERMITTED where the machine lets this process handle no faults
/// (userfaultfd). Then `*allocator` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_allocator_start(
    options: *const fulgurite_options,
    allocator: *mut *mut fulgurite_allocator,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    unsafe { start(Mode::Compatible, options, allocator) }
}

/// As fulgurite_allocator_start(), and the thread that touches a missing page fills it in by
/// itself, by a handler of SIGBUS. That costs less, and needs no right to userfaultfd: where it is
/// refused, the signal is SIGSEGV. The program's own handlers of these are called for its own
/// faults, if they were set before. A system call that is given a missing page fails with EFAULT.
///
/// Fails as fulgurite_allocator_start(), but for FULGURITE_NOT_PERMITTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_allocator_start_in_line(
    options: *const fulgurite_options,
    allocator: *mut *mut fulgurite_allocator,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    unsafe { start(Mode::InLine, options, allocator) }
}

/// # Safety
/// The contract of the module `lib`.
unsafe fn start(
    mode: Mode,
    options: *const fulgurite_options,
    allocator: *mut *mut fulgurite_allocator,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (options, allocator) =
            unsafe { (argument::handle(options, "options"), argument::out(allocator, "allocator")?) };
        allocator.write(null_mut());
        let options = options?;
        let chosen = options.medium()?;
        if chosen.keeps {
            let message = "blocks end with the process, so they need no pool; call fulgurite_options_flat(), or fulgurite_objects_start()";
            return Err(Failure::new(FULGURITE_BAD_OPTION, message));
        }
        let started = Allocator::start_in(mode, chosen.medium, options.dram_bytes()?).map_err(of_start);
        if let Some(path) = chosen.creates {
            // It may not have come to that.
            let _ = std::fs::remove_file(path);
        }
        allocator.write(give(fulgurite_allocator(OfProcess::new(started?))));
        Ok(())
    })
}

/// A call that returns a block, or NULL with a message.
pub(crate) fn block(call: impl FnOnce() -> Result<NonNull<u8>, Failure>) -> *mut c_void {
    let mut block = null_mut();
    // NULL says that it failed.
    let _ = guard(|| {
        block = call()?.as_ptr().cast();
        Ok(())
    });
    block
}

fn layout(bytes: usize, alignment: usize) -> Result<Layout, Failure> {
    Layout::from_size_align(bytes, alignment).map_err(|_| {
        let message =
            format!("{bytes} bytes aligned to {alignment} cannot be; choose a power of two, and less than 8 EiB");
        Failure::new(FULGURITE_INVALID_ARGUMENT, message)
    })
}

/// Allocates a block of `bytes`, aligned to 16, with any contents. A block of 0 bytes has an
/// address of its own, too.
///
/// Returns NULL when the flash has no room, with a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_malloc(allocator: *mut fulgurite_allocator, bytes: usize) -> *mut c_void {
    // SAFETY: the contract of the module `lib`.
    unsafe { fulgurite_aligned_alloc(allocator, ALIGNMENT, bytes) }
}

/// Allocates a block of `count` times `bytes` zeros, aligned to 16.
///
/// Returns NULL when the flash has no room or the product is no size, with a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_calloc(
    allocator: *mut fulgurite_allocator,
    count: usize,
    bytes: usize,
) -> *mut c_void {
    block(|| {
        // SAFETY: the contract of the module `lib`.
        let allocator = unsafe { argument::handle(allocator, "allocator") }?.0.get()?;
        let too_many = || Failure::new(FULGURITE_OUT_OF_RANGE, format!("{count} times {bytes} bytes are no size"));
        let bytes = count.checked_mul(bytes).ok_or_else(too_many)?;
        allocator.allocate_zeroed(layout(bytes, ALIGNMENT)?).ok_or_else(|| no_room(bytes))
    })
}

/// Allocates a block of `bytes`, aligned to a power of two, with any contents.
///
/// Returns NULL when the flash has no room, or `alignment` is no power of two, with a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_aligned_alloc(
    allocator: *mut fulgurite_allocator,
    alignment: usize,
    bytes: usize,
) -> *mut c_void {
    block(|| {
        // SAFETY: the contract of the module `lib`.
        let allocator = unsafe { argument::handle(allocator, "allocator") }?.0.get()?;
        allocator.allocate(layout(bytes, alignment)?).ok_or_else(|| no_room(bytes))
    })
}

/// Resizes a block, which may move, with the contents that fit. The block is aligned to 16. NULL as
/// the block allocates one.
///
/// Returns NULL when the flash has no room, or there is no such block in use, with a message. The
/// block is as it was then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_realloc(
    allocator: *mut fulgurite_allocator,
    old: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    block(|| {
        // SAFETY: the contract of the module `lib`.
        let allocator = unsafe { argument::handle(allocator, "allocator") }?.0.get()?;
        let layout = layout(bytes, ALIGNMENT)?;
        let resized = match NonNull::new(old.cast()) {
            None => allocator.allocate(layout),
            // SAFETY: the program gives its block up.
            Some(old) => unsafe { allocator.resize(old, layout) }.map_err(of_free)?,
        };
        resized.ok_or_else(|| no_room(bytes))
    })
}

/// Frees a block, from any thread. NULL is none.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when no block in use begins there. Nothing is freed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_free(allocator: *mut fulgurite_allocator, old: *mut c_void) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let allocator = unsafe { argument::handle(allocator, "allocator") }?.0.get()?;
        let Some(old) = NonNull::new(old.cast()) else { return Ok(()) };
        // SAFETY: the program gives its block up.
        unsafe { allocator.free(old) }.map_err(of_free)
    })
}

/// Stores in `*bytes` how many bytes a block has, which may be more than were asked for.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when no block in use begins there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_usable_size(
    allocator: *mut fulgurite_allocator,
    old: *const c_void,
    bytes: *mut usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (allocator, bytes) =
            unsafe { (argument::handle(allocator, "allocator")?.0.get()?, argument::out(bytes, "bytes")?) };
        let none = || Failure::new(FULGURITE_INVALID_ARGUMENT, "the block is NULL");
        let old = NonNull::new(old.cast_mut().cast()).ok_or_else(none)?;
        bytes.write(allocator.usable_size(old).map_err(of_free)?);
        Ok(())
    })
}

/// Cuts a block in two: one of `first_bytes`, a multiple of 4096, and one of the rest. Each is a
/// block by itself from then on. Only blocks of more than 4096 bytes are of whole pages.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when no block of more whole pages begins there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_split(
    allocator: *mut fulgurite_allocator,
    old: *mut c_void,
    first_bytes: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let allocator = unsafe { argument::handle(allocator, "allocator") }?.0.get()?;
        allocator.split(some(old)?, first_bytes).map_err(of_free)
    })
}

/// Makes one block of two blocks of whole pages. The second begins where the first ends.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when they are not such blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_join(
    allocator: *mut fulgurite_allocator,
    first: *mut c_void,
    second: *mut c_void,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let allocator = unsafe { argument::handle(allocator, "allocator") }?.0.get()?;
        allocator.join(some(first)?, some(second)?).map_err(of_free)
    })
}

/// Drops what whole pages of a block hold. They read as zeros afterwards, and take neither DRAM nor
/// flash. `at` and `bytes` are multiples of 4096.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when these are not whole pages of one block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_discard(
    allocator: *mut fulgurite_allocator,
    at: *mut c_void,
    bytes: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let allocator = unsafe { argument::handle(allocator, "allocator") }?.0.get()?;
        // SAFETY: the program gives up what is there.
        unsafe { allocator.discard(some(at)?, bytes) }.map_err(of_free)
    })
}

/// Pages outlive the program. A bit in addition to FULGURITE_MAY_READ and FULGURITE_MAY_WRITE.
pub const FULGURITE_PERMANENT: u32 = 4;

/// Changes what may be done with whole pages of one block: `at` and `bytes` are multiples of 4096,
/// and the block is one of whole pages. `permissions` is a sum of FULGURITE_MAY_READ and
/// FULGURITE_MAY_WRITE, as of fulgurite_region_set_permissions(). What they do not allow is a
/// SIGSEGV. They hold until others are set or the block is freed. A block of which some may not be
/// read must not be resized.
///
/// Fails with FULGURITE_NO_POOL for FULGURITE_PERMANENT: a block is known by its address, and that
/// is another one in the next run. fulgurite_object_array_set_permanent() makes objects permanent.
/// Fails with FULGURITE_INVALID_ARGUMENT for other bits, for writing without reading, and for what
/// are no whole pages of one block, and with FULGURITE_NO_MEMORY when the process has too many
/// mappings. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_allocator_set_permissions(
    allocator: *mut fulgurite_allocator,
    at: *mut c_void,
    bytes: usize,
    permissions: u32,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let allocator = unsafe { argument::handle(allocator, "allocator") }?.0.get()?;
        if permissions & !(FULGURITE_MAY_READ | FULGURITE_MAY_WRITE | FULGURITE_PERMANENT) != 0 {
            let message =
                format!("{permissions:#x} has bits that are no permissions; add FULGURITE_MAY_READ and its relatives");
            return Err(Failure::new(FULGURITE_INVALID_ARGUMENT, message));
        }
        let has = |bit| permissions & bit != 0;
        let wanted = Permissions {
            read: has(FULGURITE_MAY_READ),
            write: has(FULGURITE_MAY_WRITE),
            permanent: has(FULGURITE_PERMANENT),
        };
        allocator.set_permissions(some(at)?, bytes, wanted).map_err(|error| {
            let status = match error {
                PermissionError::Permanent => FULGURITE_NO_POOL,
                PermissionError::Refused(_) => FULGURITE_NO_MEMORY,
                _ => FULGURITE_INVALID_ARGUMENT,
            };
            Failure::new(status, error.to_string())
        })
    })
}

fn some(block: *mut c_void) -> Result<NonNull<u8>, Failure> {
    let none = || Failure::new(FULGURITE_INVALID_ARGUMENT, "the block is NULL; pass one that was allocated");
    NonNull::new(block.cast()).ok_or_else(none)
}

/// Returns whether an address is in the memory of an allocator, in use or not. A child after fork()
/// has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_owns(allocator: *const fulgurite_allocator, address: *const c_void) -> bool {
    // SAFETY: the contract of the module `lib`.
    let allocator = unsafe { argument::handle(allocator, "allocator") }.and_then(|allocator| allocator.0.get());
    allocator.is_ok_and(|allocator| allocator.contains(address.cast()))
}

/// Stores what an allocator has handed out, and what its pages have met. `size` is
/// sizeof(fulgurite_allocator_statistics), as of the program's header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_allocator_get_statistics(
    allocator: *mut fulgurite_allocator,
    statistics: *mut fulgurite_allocator_statistics,
    size: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let allocator = unsafe { argument::handle(allocator, "allocator") }?.0.get()?;
        let (usage, summary) = (allocator.usage(), allocator.summary());
        let told = fulgurite_allocator_statistics {
            used_bytes: usage.used_bytes as u64,
            mapped_bytes: usage.mapped_bytes as u64,
            faults: summary.faults,
            reads: summary.reads,
            evicted_clean: summary.evicted_clean,
            evicted_dirty: summary.evicted_dirty,
            errors: summary.errors,
            waited_ns: u64::try_from(summary.waited.as_nanos()).unwrap_or(u64::MAX),
            peak_bytes: summary.peak_bytes,
            faults_of_workers: summary.faults_of_workers,
        };
        // SAFETY: as above. The structure has numbers only, and no padding.
        unsafe { argument::copy_out(&told, statistics, size, "statistics") }
    })
}
