//! The tests of this crate, in one program: each file is linked once.

mod conform_allocator;
mod conform_objects;
mod conform_permanent;
mod conform_two_doors;
mod conform_waits;
mod crash_permanent;
mod fault_objects;
