//! Objects: memory in flash by the object, each in a page of its own.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use fulgurite_alloc::{BadSize, Mode, OBJECT_BYTES_MAX, ObjectAllocator, ObjectSettings, Overrun};

use crate::allocator::{block, no_room, of_free, of_start};
use crate::argument::{self, OfProcess, give};
use crate::failure::{Failure, guard};
use crate::options::fulgurite_options;
use crate::status::fulgurite_status::{self, *};

/// The distance of two objects of an array, in bytes.
pub const FULGURITE_OBJECT_STRIDE: usize = 4096;
/// The longest object, in bytes.
pub const FULGURITE_OBJECT_BYTES_MAX: usize = 4082;
const _: () = assert!(FULGURITE_OBJECT_STRIDE == fulgurite_alloc::OBJECT_STRIDE);
const _: () = assert!(FULGURITE_OBJECT_BYTES_MAX == OBJECT_BYTES_MAX);

/// Objects in flash that are used by plain loads and stores: SSDAlloc's object-per-page allocation.
/// Each begins a page of addresses, and only its own bytes take DRAM and flash. Any thread may
/// allocate, and free what others have allocated. It lives as long as the process. A child after
/// fork() must not touch its objects, and calls with the handle fail there with FULGURITE_FORKED.
pub struct fulgurite_objects(pub(crate) OfProcess<&'static ObjectAllocator>);

/// Fills in missing pages in the thread that touches them, in a handler of SIGBUS. A fault costs a
/// fifth. But a system call that is given an object without a page fails with EFAULT, a handler of
/// a signal must touch no object, and threads must not block SIGBUS.
pub const FULGURITE_OBJECTS_IN_LINE: u32 = 1;
/// Looks for writes past the end of an object whenever its page leaves DRAM, and ends the process
/// by abort() with a message when there was one.
pub const FULGURITE_OBJECTS_CHECK_OVERRUNS: u32 = 2;
/// Makes no state of a pool durable but by fulgurite_objects_sync(). Accesses that would need more
/// room before it get SIGBUS then, and so few changes may be left that a sync finds no room.
pub const FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD: u32 = 4;
const FLAGS: u32 = FULGURITE_OBJECTS_IN_LINE | FULGURITE_OBJECTS_CHECK_OVERRUNS | FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD;

/// What objects have met. Later versions add members at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fulgurite_objects_statistics {
    /// Objects that are handed out.
    pub objects: u64,
    /// Accesses that found their object without a page.
    pub faults: u64,
    /// Of these, how many read flash.
    pub reads: u64,
    /// Pages that left DRAM with their object unchanged.
    pub left_clean: u64,
    /// Pages that left DRAM with their object changed.
    pub left_dirty: u64,
    /// Bytes written to flash.
    pub bytes_written: u64,
    /// Reads and writes of flash that failed.
    pub errors: u64,
    /// How long threads waited for objects, all together, in nanoseconds.
    pub waited_ns: u64,
    /// Of the faults, how many a worker waited for: a job touched an object, and the other jobs of
    /// its worker waited as well.
    pub faults_of_workers: u64,
    /// States of a pool that the library made durable by itself, because room was short.
    pub own_syncs: u64,
    /// Of the faults, how many a job waited for while other jobs of its worker ran
    /// (fulgurite_copy()).
    pub faults_switched: u64,
}

fn abort_on(overrun: Overrun) {
    eprintln!("fulgurite: {overrun}");
    std::process::abort();
}

fn of_size(error: BadSize) -> Failure {
    Failure::new(FULGURITE_INVALID_ARGUMENT, error.to_string())
}

/// Starts an allocator of at most `objects_max` objects over flash of the medium and size that the
/// options name. Contents of a flat medium are overwritten. A flat file that it creates loses its
/// name at once, and is gone with the process. In a pool, which has nothing else in it, objects can
/// be permanent (fulgurite_object_array_set_permanent(), fulgurite_object_pool_named()). Those that
/// are not are gone when the pool is opened again. The DRAM budget is for the objects alone: the
/// program's other memory is not counted. `flags` is 0, or a sum of FULGURITE_OBJECTS_IN_LINE,
/// FULGURITE_OBJECTS_CHECK_OVERRUNS and FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD. Of the options, a
/// pool's count of tokens holds as well. Options of workers and fibers have no effect here.
///
/// Fails with FULGURITE_BAD_OPTION, also for too little DRAM or flash, a durability, a device of
/// this process, or a count of tokens without a pool. Fails with FULGURITE_INVALID_ARGUMENT for
/// other flags, with FULGURITE_CANNOT_OPEN, also for a pool that has other data, with
/// FULGURITE_CORRUPT when what is known of permanent objects is damaged, and with
/// FULGURITE_NOT_PERMITTED where the machine lets this process handle no faults (userfaultfd). Then
/// `*objects` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_objects_start(
    options: *const fulgurite_options,
    objects_max: u32,
    flags: u32,
    objects: *mut *mut fulgurite_objects,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (options, objects) = unsafe { (argument::handle(options, "options"), argument::out(objects, "objects")?) };
        objects.write(null_mut());
        let options = options?;
        if flags & !FLAGS != 0 {
            let message = format!("{flags:#x} has flags that there are not; see FULGURITE_OBJECTS_ in the header");
            return Err(Failure::new(FULGURITE_INVALID_ARGUMENT, message));
        }
        let (chosen, keep_tokens) = (options.medium()?, options.keep_tokens_of_objects()?);
        let mut settings = ObjectSettings::new(chosen.medium, options.dram_bytes()?, objects_max);
        settings.keep_tokens = keep_tokens;
        if flags & FULGURITE_OBJECTS_IN_LINE != 0 {
            settings.mode = Mode::InLine;
        }
        if flags & FULGURITE_OBJECTS_CHECK_OVERRUNS != 0 {
            settings.on_overrun = Some(abort_on);
        }
        settings.syncs_itself = flags & FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD == 0;
        let started = ObjectAllocator::start(&settings).map_err(of_start);
        if let Some(path) = chosen.creates.filter(|_| !chosen.keeps) {
            // It may not have come to that.
            let _ = std::fs::remove_file(path);
        }
        objects.write(give(fulgurite_objects(OfProcess::new(started?))));
        Ok(())
    })
}

/// Allocates an object of `bytes`, 1 to FULGURITE_OBJECT_BYTES_MAX, which reads as zeros and begins
/// a page. Objects of one size form a pool.
///
/// Returns NULL when the flash has no room, there are as many objects as there may be, or no object
/// has that size, with a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_alloc(objects: *mut fulgurite_objects, bytes: usize) -> *mut c_void {
    block(|| {
        // SAFETY: the contract of the module `lib`.
        let objects = unsafe { argument::handle(objects, "objects") }?.0.get()?;
        objects.pool(bytes).map_err(of_size)?.allocate().ok_or_else(|| no_room(bytes))
    })
}

/// Allocates an array of `count` objects of `bytes` each, which read as zeros. The object `i`
/// begins `i * FULGURITE_OBJECT_STRIDE` bytes behind the first.
///
/// Returns NULL as fulgurite_object_alloc() does, and for a count of 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_array_alloc(
    objects: *mut fulgurite_objects,
    count: u32,
    bytes: usize,
) -> *mut c_void {
    block(|| {
        // SAFETY: the contract of the module `lib`.
        let objects = unsafe { argument::handle(objects, "objects") }?.0.get()?;
        objects.pool(bytes).map_err(of_size)?;
        if count == 0 {
            return Err(Failure::new(FULGURITE_INVALID_ARGUMENT, "an array has 1 object or more, and not 0"));
        }
        let array = objects.array(count, bytes).ok_or_else(|| no_room(bytes.saturating_mul(count as usize)))?;
        Ok(array.first())
    })
}

/// Frees an object, from any thread: one by itself, or one of an array. NULL is none.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when no object in use begins there. Nothing is freed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_free(
    objects: *mut fulgurite_objects,
    object: *mut c_void,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let objects = unsafe { argument::handle(objects, "objects") }?.0.get()?;
        let Some(object) = NonNull::new(object.cast()) else { return Ok(()) };
        // SAFETY: the program gives its object up.
        unsafe { objects.free(object) }.map_err(of_free)
    })
}

/// Frees the objects of an array that were not freed one by one. A permanent array loses its name
/// first. NULL is none.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when no array in use begins there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_array_free(
    objects: *mut fulgurite_objects,
    array: *mut c_void,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let objects = unsafe { argument::handle(objects, "objects") }?.0.get()?;
        let Some(first) = NonNull::new(array.cast()) else { return Ok(()) };
        // SAFETY: the program gives its array up.
        unsafe { objects.free_array(first) }.map_err(of_free)
    })
}

/// Stores in `*bytes` how many bytes an object has.
///
/// Fails with FULGURITE_INVALID_ARGUMENT when no object in use begins there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_object_size(
    objects: *mut fulgurite_objects,
    object: *const c_void,
    bytes: *mut usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (objects, bytes) =
            unsafe { (argument::handle(objects, "objects")?.0.get()?, argument::out(bytes, "bytes")?) };
        let none = || Failure::new(FULGURITE_INVALID_ARGUMENT, "the object is NULL");
        let object = NonNull::new(object.cast_mut().cast()).ok_or_else(none)?;
        bytes.write(objects.size_of(object).map_err(of_free)?);
        Ok(())
    })
}

/// Stores what objects have met. `size` is sizeof(fulgurite_objects_statistics), as of the
/// program's header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_objects_get_statistics(
    objects: *mut fulgurite_objects,
    statistics: *mut fulgurite_objects_statistics,
    size: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let objects = unsafe { argument::handle(objects, "objects") }?.0.get()?;
        let summary = objects.summary();
        let told = fulgurite_objects_statistics {
            objects: summary.objects.into(),
            faults: summary.faults,
            reads: summary.reads,
            left_clean: summary.left_clean,
            left_dirty: summary.left_dirty,
            bytes_written: summary.bytes_written,
            errors: summary.errors,
            waited_ns: u64::try_from(summary.waited.as_nanos()).unwrap_or(u64::MAX),
            faults_of_workers: summary.faults_of_workers,
            own_syncs: summary.own_syncs,
            faults_switched: summary.faults_switched,
        };
        // SAFETY: as above. The structure has numbers only, and no padding.
        unsafe { argument::copy_out(&told, statistics, size, "statistics") }
    })
}
