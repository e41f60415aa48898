//! Options: where a memory is stored and how large it is, collected before it is opened.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use fulgurite::{Builder, Durability, Fulgurite, Medium, Size};

use crate::argument;
use crate::failure::{Failure, guard};
use crate::status::fulgurite_status::{self, *};

/// Bytes of stack of each fiber, unless said otherwise: C callbacks print, format and recurse.
const STACK_BYTES: usize = 128 << 10;
/// Fibers of each worker, unless said otherwise. AstriFlash (V-A) has 32 to 64 a core.
const FIBERS: usize = 32;

enum MediumKind {
    Pool(PathBuf),
    Flat(PathBuf),
    Memory,
    Emulated,
    Device { socket: PathBuf, keeps: bool },
}

/// A medium, as it is to be opened.
pub(crate) struct Chosen {
    pub medium: Medium,
    /// A pool, which outlives the program.
    pub keeps: bool,
    /// The file that opening it creates.
    pub creates: Option<PathBuf>,
}

/// Where a memory is stored, how large it is, and what it promises. Make one, set what is needed,
/// and pass it to fulgurite_open().
pub struct fulgurite_options {
    kind: Option<MediumKind>,
    size: Option<Size>,
    dram: Size,
    durability: Option<Durability>,
    keep_tokens: Option<usize>,
    workers: usize,
    fibers: usize,
    stack_bytes: usize,
    on_device: bool,
    record_cache: Option<Size>,
}

impl fulgurite_options {
    /// The medium that was chosen.
    pub(crate) fn medium(&self) -> Result<Chosen, Failure> {
        let bad = |message: String| Failure::new(FULGURITE_BAD_OPTION, message);
        let Some(kind) = &self.kind else {
            return Err(bad("no medium was chosen; call fulgurite_options_pool() or another of its kind".into()));
        };
        let size = |what: &str| {
            let none = || bad(format!("{what} needs a size; call fulgurite_options_size()"));
            self.size.clone().ok_or_else(none)
        };
        let new_at = |path: &PathBuf| self.size.clone().filter(|_| !path.exists());
        let keeps = matches!(kind, MediumKind::Pool(_) | MediumKind::Device { keeps: true, .. });
        let mut creates = None;
        let medium = match kind {
            MediumKind::Pool(path) | MediumKind::Flat(path) => match (new_at(path), keeps) {
                (Some(size), _) => {
                    creates = Some(path.clone());
                    if keeps { Medium::pool_or_new(path, size) } else { Medium::new_file(path, size) }
                }
                (None, true) => Medium::pool(path),
                (None, false) => Medium::file(path),
            },
            MediumKind::Memory => Medium::memory(size("plain memory")?),
            MediumKind::Emulated => Medium::emulated(size("an emulated device")?),
            MediumKind::Device { socket, keeps: false } => Medium::device(socket),
            MediumKind::Device { socket, keeps: true } => Medium::device_pool(socket),
        };
        Ok(Chosen { medium, keeps, creates })
    }

    /// The DRAM budget.
    pub(crate) fn dram_bytes(&self) -> Result<u64, Failure> {
        self.dram.bytes().map_err(|error| Failure::new(FULGURITE_BAD_OPTION, error.to_string()))
    }

    /// How many tokens a pool of objects keeps, if that was chosen. Refuses what objects cannot
    /// have.
    pub(crate) fn keep_tokens_of_objects(&self) -> Result<Option<usize>, Failure> {
        let refused = |what: &str, remedy: &str| {
            let message = format!("objects have no {what}; leave it out{remedy}");
            Err(Failure::new(FULGURITE_BAD_OPTION, message))
        };
        if self.durability.is_some() {
            return refused("durability of their own", ", or pass FULGURITE_OBJECTS_SYNC_ONLY_WHEN_TOLD");
        }
        if self.on_device {
            return refused("device of this process before their medium", "");
        }
        Ok(self.keep_tokens)
    }

    /// A builder of what was chosen, and whether it keeps a pool.
    pub(crate) fn builder(&self) -> Result<(Builder, bool), Failure> {
        let Chosen { medium, keeps, .. } = self.medium()?;
        let (fibers, stack_bytes) = (self.fibers, self.stack_bytes);
        let mut builder = Fulgurite::builder(medium).dram(self.dram.clone()).workers(self.workers);
        builder = builder.with(move |runtime| runtime.fibers(fibers).stack(stack_bytes));
        if let Some(durability) = self.durability {
            builder = builder.durability(durability);
        }
        if let Some(count) = self.keep_tokens {
            builder = builder.keep_tokens(count);
        }
        if self.on_device {
            builder = builder.on_device(None);
        }
        if let Some(size) = &self.record_cache {
            builder = builder.record_cache(size.clone());
        }
        Ok((builder, keeps))
    }
}

/// Makes options: no medium, 64 MiB of DRAM, one worker of 32 fibers with stacks of 128 KiB, and
/// the default durability of pools. A crash leaves the last state whose fulgurite_sync() returned,
/// or a later one, because a pool syncs by itself before a limit would stop writers.
///
/// Never returns NULL. Free it with fulgurite_options_free().
#[unsafe(no_mangle)]
pub extern "C" fn fulgurite_options_new() -> *mut fulgurite_options {
    argument::give(fulgurite_options {
        kind: None,
        size: None,
        dram: Size::from(64 << 20),
        durability: None,
        keep_tokens: None,
        workers: 1,
        fibers: FIBERS,
        stack_bytes: STACK_BYTES,
        on_device: false,
        record_cache: None,
    })
}

/// Frees options. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_free(options: *mut fulgurite_options) {
    // SAFETY: the contract of the module `lib`. There is nothing to return an error by.
    let _ = guard(|| unsafe { argument::free(options, "options") });
}

/// Sets an option.
///
/// # Safety
/// As the functions of this module.
unsafe fn set(
    options: *mut fulgurite_options,
    change: impl FnOnce(&mut fulgurite_options) -> Result<(), Failure>,
) -> fulgurite_status {
    // SAFETY: the caller's contract.
    guard(|| change(unsafe { argument::handle_mut(options, "options") }?))
}

/// Sets a path.
///
/// # Safety
/// As the functions of this module.
unsafe fn set_medium(
    options: *mut fulgurite_options,
    path: *const c_char,
    kind: impl FnOnce(PathBuf) -> MediumKind,
) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        // SAFETY: the caller's contract.
        let path = unsafe { argument::string(path, "path") }?;
        options.kind = Some(kind(PathBuf::from(OsStr::from_bytes(path))));
        Ok(())
    };
    // SAFETY: the caller's contract.
    unsafe { set(options, change) }
}

fn size_of(text: &str) -> Result<Size, Failure> {
    let size = Size::from(text);
    size.bytes().map_err(|error| Failure::new(FULGURITE_BAD_OPTION, error.to_string()))?;
    Ok(size)
}

/// Chooses a pool, which outlives the program, in a file or on a block device. When there is no
/// such file and a size was set, fulgurite_open() creates it. Any file of a pool that spans several
/// will do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_pool(
    options: *mut fulgurite_options,
    path: *const c_char,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    unsafe { set_medium(options, path, MediumKind::Pool) }
}

/// Chooses a file or block device that is overwritten and keeps nothing. When there is no such file
/// and a size was set, fulgurite_open() creates it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_flat(
    options: *mut fulgurite_options,
    path: *const c_char,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    unsafe { set_medium(options, path, MediumKind::Flat) }
}

/// Chooses a device that another process serves (fulgurite device serve), by its socket. With
/// `keeps` it is the pool of the device's store, else flat memory that keeps nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_device(
    options: *mut fulgurite_options,
    socket: *const c_char,
    keeps: bool,
) -> fulgurite_status {
    // SAFETY: the contract of the module `lib`.
    unsafe { set_medium(options, socket, |socket| MediumKind::Device { socket, keeps }) }
}

/// Chooses plain memory of the size that was set, for tests. It keeps nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_memory(options: *mut fulgurite_options) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.kind = Some(MediumKind::Memory);
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Chooses a device of the size that was set, with the latencies of flash, which a thread of this
/// process plays. It keeps nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_emulated(options: *mut fulgurite_options) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.kind = Some(MediumKind::Emulated);
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Sets the size of what is created, as text: a number with K, M, G or T (powers of 1024). It is a
/// multiple of 64 KiB. Programs get about five sixths of a large pool.
///
/// Fails with FULGURITE_BAD_OPTION when the text is no size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_size(
    options: *mut fulgurite_options,
    size: *const c_char,
) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        // SAFETY: the contract of the module `lib`.
        options.size = Some(size_of(unsafe { argument::text(size, "size") }?)?);
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Sets the size of what is created, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_size_bytes(options: *mut fulgurite_options, bytes: u64) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.size = Some(Size::from(bytes));
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Sets the DRAM budget, as text ("512M"): a hard cap on frames, tables, stacks and rings.
///
/// Fails with FULGURITE_BAD_OPTION when the text is no size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_dram(
    options: *mut fulgurite_options,
    size: *const c_char,
) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        // SAFETY: the contract of the module `lib`.
        options.dram = size_of(unsafe { argument::text(size, "size") }?)?;
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Sets the DRAM budget, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_dram_bytes(options: *mut fulgurite_options, bytes: u64) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.dram = Size::from(bytes);
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Sets how much of the DRAM budget holds the keys and records of maps (fulgurite_map), as text. By
/// default none, and the pool has no maps. At least a mebibyte.
///
/// Fails with FULGURITE_BAD_OPTION when the text is no size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_record_cache(
    options: *mut fulgurite_options,
    size: *const c_char,
) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        // SAFETY: the contract of the module `lib`.
        options.record_cache = Some(size_of(unsafe { argument::text(size, "size") }?)?);
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Sets how much of the DRAM budget holds the keys and records of maps, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_record_cache_bytes(
    options: *mut fulgurite_options,
    bytes: u64,
) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.record_cache = Some(Size::from(bytes));
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Sets how many threads run jobs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_workers(options: *mut fulgurite_options, count: usize) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.workers = count;
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Sets how many jobs each worker runs at once, and the bytes of stack of each. The DRAM budget
/// pays for the stacks. A callback that prints needs some 16 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_fibers(
    options: *mut fulgurite_options,
    count: usize,
    stack_bytes: usize,
) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        (options.fibers, options.stack_bytes) = (count, stack_bytes);
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Promises of a pool the last state whose fulgurite_sync() returned, after a crash or a power
/// failure. Nothing else syncs but fulgurite_close(), so a writer past a limit gets
/// FULGURITE_NO_SPACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_durability_sync(options: *mut fulgurite_options) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.durability = Some(Durability::Sync);
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Has a thread sync a pool by itself, about every `milliseconds` or `bytes` changed, whichever
/// comes first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_durability_lazy(
    options: *mut fulgurite_options,
    milliseconds: u64,
    bytes: u64,
) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.durability = Some(Durability::Lazy { every: Duration::from_millis(milliseconds), bytes });
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Promises nothing of a pool, which may be empty after a crash or a close. It has no tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_durability_cache(options: *mut fulgurite_options) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.durability = Some(Durability::Cache);
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Sets how many of the newest tokens a pool keeps, in addition to pinned ones. By default it is 1,
/// which is the least.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_keep_tokens(
    options: *mut fulgurite_options,
    count: usize,
) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.keep_tokens = Some(count);
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}

/// Puts a device of this process before the medium: a thread that does what the store and the
/// kernel ask for, on a core that it keeps busy while there are requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_options_on_device(options: *mut fulgurite_options) -> fulgurite_status {
    let change = |options: &mut fulgurite_options| {
        options.on_device = true;
        Ok(())
    };
    // SAFETY: the contract of the module `lib`.
    unsafe { set(options, change) }
}
