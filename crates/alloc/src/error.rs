//! Why an allocator cannot be started, or does not free.

use std::io;

use fulgurite_flash::OpenError;
use fulgurite_format::format_bytes;
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
    /// The DRAM is too little for so many objects.
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
    #[error("no block in use begins at {0:#x}; it was freed already, or lies inside another block")]
    NotABlock(usize),
    /// The flash cannot be written, and DRAM has no room to note that an object was freed.
    #[error("the object at {0:#x} was not freed: the flash cannot be written; see to it, then free it again")]
    Flash(usize),
}

/// A size that no object has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an object has 1 to {OBJECT_BYTES_MAX} bytes, and not {0}; allocate larger blocks in whole pages")]
pub struct BadSize(pub usize);
