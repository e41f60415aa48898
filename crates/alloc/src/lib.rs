//! Allocators for programs that change only their allocation calls, as in SSDAlloc.
//!
//! | allocator | hands out | caches | addresses |
//! |---|---|---|---|
//! | [`Allocator`] (memory-page) | blocks of any size | pages | of blocks side by side |
//! | [`ObjectAllocator`] (object-per-page) | objects of up to 4082 bytes | objects | a page each |
//!
//! What is handed out ends with the process, but for objects of a pool that were made permanent
//! ([`ObjectAllocator::set_permanent`]).
//!
//! Jobs of a runtime reach such memory by copies, for which other jobs need not wait ([`reach`]).
//! The rest of this page is the memory-page allocator, and the module `objects` has the other one.
//!
//! ```text
//! addresses: | slab of 64 B | a large block | slab of 16 B | free | slab of 64 B | ..   (flash)
//!                  |               |
//! DRAM:      a bit per slot    its length                                  (nothing in the blocks)
//! ```
//!
//! Small objects are slots of slabs, of one size each. No slot straddles a page, so that an object
//! is one fault at most. Larger blocks are whole pages. Slabs and blocks that are free go back to
//! the page buffer, which joins neighbours, and their contents are garbage to the flash.
//!
//! Invariants:
//! * What an allocator knows is in DRAM, outside of its memory: neither allocating nor freeing
//!   touches a page, so neither waits for flash.
//! * No lock is held while a page is touched.
//! * An address is freed only if a block begins there. Anything else is an error, and changes
//!   nothing.
//!
//! It does not decide what stays in DRAM (`cache`, `policy`). It has no caches of threads: each
//! call takes one lock.

mod allocator;
mod blocks;
mod classes;
mod error;
mod objects;
pub mod reach;
mod slab;

pub use allocator::Allocator;
pub use blocks::{Blocks, Source, Usage};
pub use error::{BadSize, FreeError, PermissionError, StartError};
pub use fulgurite_store::Permissions;
pub use fulgurite_sys::faults::SwitchOnFault;
pub use objects::{
    Mode, NAME_BYTES_MAX, NAMES_MAX, NameError, Named, OBJECT_BYTES_MAX, OBJECT_STRIDE, ObjectAllocator, ObjectArray,
    ObjectPool, ObjectSettings, ObjectSummary, ObjectValues, Overrun, SyncError,
};
