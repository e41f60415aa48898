//! How often records were written to pages, so that what was read before is known to be old.

use crate::word::{LogPage, Tag};

/// Counters. A put is taken for one of another key once in as many.
const STAMPS: usize = 256;

/// A count of writes of a tag to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(u32);

/// Counts of writes, by tag and page. Several share a counter, so a count that is unchanged proves
/// that there was none, and one that has changed may be another's.
#[derive(Debug)]
pub struct Stamps(Box<[u32; STAMPS]>);

impl Stamps {
    pub const BYTES: usize = size_of::<[u32; STAMPS]>();

    pub fn new() -> Stamps {
        Stamps(Box::new([0; STAMPS]))
    }
    fn index(tag: Tag, page: LogPage) -> usize {
        let wide = u64::from(tag.number()) << 32 | u64::from(page.number());
        (wide.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - STAMPS.ilog2())) as usize
    }
    pub fn get(&self, tag: Tag, page: LogPage) -> Stamp {
        Stamp(self.0[Stamps::index(tag, page)])
    }
    /// A record of this tag is in this page from now on.
    pub fn count(&mut self, tag: Tag, page: LogPage) {
        let stamp = &mut self.0[Stamps::index(tag, page)];
        *stamp = stamp.wrapping_add(1);
    }
    /// Everything may have changed.
    pub fn count_all(&mut self) {
        self.0.iter_mut().for_each(|stamp| *stamp = stamp.wrapping_add(1));
    }
}
