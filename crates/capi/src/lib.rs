//! The C interface: pools, containers, jobs and statistics behind a C ABI, for programs in C, C++
//! and whatever else calls C. `include/fulgurite.h` is made of these sources by cbindgen, so the
//! comments of what is public here are written for readers of C.
//!
//! Invariants:
//! * No panic leaves a function. It becomes `FULGURITE_PANICKED`.
//! * A pointer is checked for NULL and alignment before its use, a length for its range, text for
//!   its encoding. A number from C is never taken as an enumeration.
//! * A function that fails has changed nothing of what its pointers name, but for the buffer that
//!   it was to fill.
//! * What a job borrows of its caller is not used after the call has returned.
//!
//! The contract of every function: each pointer is NULL, or leads to what its type and its length
//! say, for as long as the call lasts. A handle comes from this library, and has not been freed or
//! closed. It decides nothing and keeps nothing of its own: the crate `fulgurite` does.
#![allow(non_camel_case_types, reason = "the names are C's, and the same in both languages")]
#![allow(clippy::missing_safety_doc, reason = "the contract of every function is this module's")]

mod allocator;
mod argument;
mod blob_calls;
mod blobs;
mod context;
mod failure;
mod heap;
mod job;
mod map;
mod objects;
mod open;
mod options;
mod permanent;
mod pool;
mod region;
mod root;
mod statistics;
mod status;
mod u64_blobs;
mod watched_root;

pub use allocator::*;
pub use blobs::*;
pub use context::*;
pub use failure::*;
pub use heap::*;
pub use job::*;
pub use map::*;
pub use objects::*;
pub use options::*;
pub use permanent::*;
pub use pool::*;
pub use region::*;
pub use root::*;
pub use statistics::*;
pub use status::*;
pub use u64_blobs::*;
