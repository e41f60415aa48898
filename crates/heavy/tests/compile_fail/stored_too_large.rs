//! A record that is larger than a subpage.

use fulgurite_memory::Stored;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Stored)]
#[stored(name = "shop.Page/1", crate = "fulgurite_memory")]
#[repr(C)]
struct Page {
    words: [u64; 513],
}

fn main() {}
