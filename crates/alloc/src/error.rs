//! Why an allocator cannot be started, or does not free.

use std::io;

use fulgurite_flash::OpenError;
use fulgurite_format::format_bytes;
use fulgurite_store::PoolError;
use fulgurite_sys::ArenaError;

use crate::objects::OBJECT_BYTES_MAX;

/// Why an allocator cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The flash cannot be opened.
    #[error(transparent)]
    Medium(#[from] fulgurite_backing::Error),
    /// There is no page buffer: the machine handles no faults for this process, or the cap is too
    /// small.
    #[error(transparent)]
    PageBuffer(#[from] fulgurite_fault::Error),
    /// A queue to the flash cannot be opened.
    #[error(transparent)]
    Queue(#[from] OpenError),
    /// There is no memory.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// The DRAM is too little for this number of objects.
    #[error(
        "{} of DRAM are too little for objects: their tables take {}; ask for {} or more, for fewer objects, or for a \
         smaller page buffer", format_bytes(*dram), format_bytes(*tables), format_bytes(*least)
    )]
    TooSmall {
        /// What was asked for, in bytes.
        dram: u64,
        /// What tables and buffers take.
        tables: u64,
        /// What would do.
        least: u64,
    },
    /// The flash is too small for a log.
    #[error("the flash is too small for objects; choose {} or more", format_bytes(*least))]
    SmallFlash {
        /// What would do, in bytes.
        least: u64,
    },
    /// No objects were asked for.
    #[error("an allocator for 0 objects has no use; say how many there may be at a time")]
    NoObjects,
    /// Blocks of the memory-page allocator are never permanent.
    #[error("blocks end with the process, and what the pool holds would be overwritten; use a flat medium")]
    NotFlat,
    /// The pool is a device's.
    #[error("permanent objects need a pool of this process, and not of a device; use Medium::pool_or_new")]
    OfDevice,
    /// The pool holds something else, and is not overwritten.
    #[error("the pool holds other data than permanent objects; use a pool of its own for them")]
    NotOfObjects,
    /// A later program has made the pool.
    #[error(
        "the pool's objects were written by a later program, in version {version}; use that program, or one as new"
    )]
    Newer {
        /// The version of its format.
        version: u32,
    },
    /// What is known of permanent objects makes no sense.
    #[error("the {what} {at} of the pool's objects is damaged; roll the pool back, or restore it from a copy")]
    Damaged {
        /// A name, the record of a chunk, or an array.
        what: &'static str,
        /// Its number.
        at: u32,
    },
    /// The pool has too few addresses.
    #[error("the pool has addresses for {objects} objects; start the allocator by its medium, which adds some")]
    FewAddresses {
        /// Their number.
        objects: u64,
    },
    /// The pool cannot be read, or takes no changes.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A process has at most 16 allocators of a kind that resolve faults in line.
    #[error("this process has 16 such allocators in in-line mode already; use one of them, or compatible mode")]
    TooMany,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
}

/// Why an address is not freed or resized.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// It is not of this allocator.
    #[error("{0:#x} is not an address of this allocator; free it where it was allocated")]
    Foreign(usize),
    /// No block that is in use begins there.
    #[error("no block in use begins at {0:#x}; it was freed already, or is inside another block")]
    NotABlock(usize),
    /// The flash cannot be written, and DRAM has no room to note that an object was freed.
    #[error("the object at {0:#x} was not freed: the flash cannot be written; see to it, then free it again")]
    Flash(usize),
}

/// Why pages of a block do not get permissions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PermissionError {
    /// Blocks end with the process.
    #[error(
        "a block is known by its address, which is another one in another process, so it cannot be permanent; use \
         objects under a name (object-per-page), or a region of a pool"
    )]
    Permanent,
    /// The machine has no such pages.
    #[error("pages that may be written may be read on this machine; allow both")]
    WriteOnly,
    /// It is not of this allocator.
    #[error(transparent)]
    Foreign(#[from] FreeError),
    /// Permissions apply to whole pages only.
    #[error("{bytes} bytes at {address:#x} are no whole pages of one block of whole pages; align them to 4096")]
    NotPages {
        /// Where they begin.
        address: usize,
        /// The length of the range.
        bytes: usize,
    },
    /// The kernel does not take them, for example because the process has too many mappings.
    #[error("the kernel does not take the permissions: {0}")]
    Refused(#[source] io::Error),
}

/// A size that no object has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an object has 1 to {OBJECT_BYTES_MAX} bytes, and not {0}; allocate larger blocks in whole pages")]
pub struct BadSize(pub usize);
