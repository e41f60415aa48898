//! Which objects are stored together: those overwritten about as often, as with subpages
//! ([`crate::extents`]).
//!
//! Programs and reclaim have an extent each for hot and cold objects. The hot ones empty by
//! themselves, and reclaim seldom touches the cold ones. Two kinds are enough, because each more
//! kind leaves half a flash page of each batch unused. `examples/objects.rs`, at 80% full and Zipf
//! 0.99, writes 14% fewer flash pages, about as many with undivided small batches, and 1% more with
//! uniform overwrites.
//!
//! Invariant: programs never fill reclaim's extents, which could leave it nowhere to copy to.

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_policy::Heat;

use crate::extents::{Writer, has_few};
use crate::geometry::Geometry;

/// Extents that are open at the same time.
pub(super) const STREAMS: usize = 4;
/// The degree of heat from which a program's write is hot: a small part of overwrites, and soon
/// overwritten again.
const HOT_WRITTEN: usize = 4;
/// The degree for reclaim's copies, which have outlived an extent, so that few are still hot. With
/// one degree less, equal objects would be divided at random.
const HOT_COPIED: usize = 3;
/// Flash pages of objects from which on a batch is divided.
const DIVIDED_FROM: usize = 8;

/// An open extent: whose, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stream {
    pub writer: Writer,
    pub hot: bool,
}

impl Stream {
    /// For what a writer does not distinguish by heat.
    pub const fn cold(writer: Writer) -> Stream {
        Stream { writer, hot: false }
    }
    /// Its number, below [`STREAMS`].
    pub const fn index(self) -> usize {
        2 * self.writer as usize + self.hot as usize
    }
    /// The other one of the same writer.
    pub const fn other(self) -> Stream {
        Stream { hot: !self.hot, ..self }
    }
}

/// Extents that are open at the same time in a pool: where there are few, one for each writer.
pub(super) fn open_at_most(geometry: Geometry) -> u32 {
    if has_few(geometry) { 2 } else { STREAMS as u32 }
}

/// How a writer divides what it writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Division<'h> {
    heat: &'h Heat,
    writer: Writer,
    /// The degree from which on something is hot.
    from: usize,
}

impl<'h> Division<'h> {
    pub fn of_batch(heat: &'h Heat, geometry: Geometry, bytes: usize) -> Division<'h> {
        let divided = !has_few(geometry) && bytes >= DIVIDED_FROM * SUBPAGE_BYTES;
        Division { heat, writer: Writer::Program, from: if divided { HOT_WRITTEN } else { Heat::DEGREES } }
    }
    /// The division of what is copied from an extent.
    pub fn of_copies(heat: &'h Heat, geometry: Geometry) -> Division<'h> {
        Division { heat, writer: Writer::Reclaim, from: if has_few(geometry) { Heat::DEGREES } else { HOT_COPIED } }
    }
    /// The stream to which the object of a subpage is written.
    pub fn stream(&self, subpage: u32) -> Stream {
        Stream { writer: self.writer, hot: self.heat.degree(subpage) >= self.from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_and_cold_are_divided_in_large_pools_and_batches() {
        let few = Geometry { extent_pages: 8, extents: 100, subpages: 64, objects: true };
        let many = Geometry { extents: 200, ..few };
        assert_eq!((open_at_most(few), open_at_most(many)), (2, 4));
        let (program, reclaim) = (Stream::cold(Writer::Program), Stream::cold(Writer::Reclaim));
        let all = [program, program.other(), reclaim, reclaim.other()];
        assert_eq!(all.map(Stream::index), [0, 1, 2, 3]);
        assert_eq!(all.map(|stream| stream.other().other()), all);
        let mut heat = Heat::new(1000);
        // Behind those that fade meanwhile.
        for (subpage, touched) in [(901, 1), (902, 2), (903, 4), (904, 8)] {
            (0..touched).for_each(|_| heat.touch(subpage));
        }
        let subpages = [900, 901, 902, 903, 904];
        assert_eq!(subpages.map(|subpage| heat.degree(subpage)), [0, 1, 2, 3, 4]);
        let hot = |division: Division| subpages.map(|subpage| division.stream(subpage).hot);
        let (none, divided) = ([false; 5], 8 * SUBPAGE_BYTES);
        assert_eq!(hot(Division::of_batch(&heat, many, divided)), [false, false, false, false, true]);
        assert_eq!(hot(Division::of_batch(&heat, many, divided - 1)), none);
        assert_eq!(hot(Division::of_batch(&heat, few, divided)), none);
        assert_eq!(hot(Division::of_copies(&heat, many)), [false, false, false, true, true]);
        assert_eq!(hot(Division::of_copies(&heat, few)), none);
        assert_eq!(Division::of_copies(&heat, many).stream(0).writer, Writer::Reclaim);
        assert_eq!(Division::of_batch(&heat, many, 0).stream(0).writer, Writer::Program);
    }
}
