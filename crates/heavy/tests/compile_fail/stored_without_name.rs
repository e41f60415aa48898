//! A derive without the name for pools.

use fulgurite_memory::Stored;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Stored)]
#[repr(C)]
struct Order {
    number: u64,
}

fn main() {}
