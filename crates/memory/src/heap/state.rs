//! What the heap knows of each class, in DRAM and as its header on flash keeps it.

use std::collections::VecDeque;
use std::sync::Mutex;

use fulgurite_format::{Address, PAGE_BYTES, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::size_class::CLASSES;
use crate::{Region, VersionLatch};

const SUBPAGE: u64 = SUBPAGE_BYTES as u64;

/// The first 64 bytes of the region; the records of the classes follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: u64,
    pub(super) classes: u32,
    pub(super) clean: u32,
    pub(super) region: Region,
    /// Nothing at or above this many bytes into the region was ever handed out.
    pub(super) mark: u64,
    /// Bytes that a crash left in use without saying by which class.
    pub(super) unaccounted: u64,
    pub(super) reserved: [u64; 2],
}
const _: () = assert!(size_of::<Header>() == 64);

/// What `save` keeps of a class.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ClassRecord {
    pub(super) head: Address,
    pub(super) listed: u64,
    pub(super) next: Address,
    pub(super) end: Address,
    pub(super) cut: u64,
}
pub(super) const RECORDS_FIRST: usize = (SUBPAGE_BYTES - size_of::<Header>()) / size_of::<ClassRecord>();
const _: () = assert!((CLASSES - RECORDS_FIRST) * size_of::<ClassRecord>() <= SUBPAGE_BYTES);

#[derive(Default, Debug)]
pub(super) struct ClassState {
    /// Free, the one freed last at the back.
    pub(super) cached: VecDeque<Address>,
    /// First batch in flash.
    pub(super) head: Address,
    /// Objects in batches, their heads included.
    pub(super) listed: u64,
    /// Free objects on their way from the cache to a batch.
    pub(super) moving: u64,
    /// The rest of the current slab.
    pub(super) next: Address,
    pub(super) end: Address,
    /// Objects ever cut from slabs, less those that were given to another class.
    pub(super) cut: u64,
}

impl ClassState {
    /// Cuts an object from the current slab.
    pub(super) fn cut(&mut self, size: u64) -> Option<Address> {
        if self.next == self.end {
            return None;
        }
        let at = self.next;
        self.cut += 1;
        self.next = Self::behind(at, size);
        Some(at)
    }
    /// Where the object behind the one at `at` begins.
    fn behind(at: Address, size: u64) -> Address {
        let next = at.add(size);
        // The tail of a subpage that holds no whole object stays unused.
        let holds_none = size < SUBPAGE && next.subpage_offset() as u64 + size > SUBPAGE;
        if holds_none { next.add(SUBPAGE - next.subpage_offset() as u64) } else { next }
    }
    /// Gives the object back to the current slab that was cut from it last. Returns whether it was.
    pub(super) fn undo_cut(&mut self, at: Address, size: u64) -> bool {
        let page = PAGE_BYTES as u64;
        let in_slab = !self.end.is_null() && at.linear() / page == (self.end.linear() - 1) / page;
        let is_last = in_slab && Self::behind(at, size) == self.next;
        if is_last {
            self.next = at;
            self.cut -= 1;
        }
        is_last
    }
    pub(super) fn in_use(&self) -> u64 {
        self.cut - self.cached.len() as u64 - self.listed - self.moving
    }
}

#[derive(Debug, Default)]
pub(super) struct Class {
    pub(super) state: Mutex<ClassState>,
    /// Orders the accesses of this class. Taken before the supply's, and in ascending order of
    /// classes.
    pub(super) turn: VersionLatch,
}
