//! A stream of pages of metadata through extents: each page names the extent in which the stream goes on, carries a number and
//! the checksum of the page before, so that no page of another time or place can pass for the next.

use fulgurite_format::{Header, Kind, NO_EXTENT, PageBuffer, PoolId, StreamPosition};

use crate::geometry::Geometry;

/// Writes a stream.
#[derive(Clone, Debug)]
pub struct Stream {
    geometry: Geometry,
    pool: PoolId,
    kind: Kind,
    at: StreamPosition,
    next_extent: u32,
}

impl Stream {
    /// A stream that begins, or goes on, at a position, and after that extent in `next_extent`.
    pub fn new(geometry: Geometry, pool: PoolId, kind: Kind, at: StreamPosition, next_extent: u32) -> Stream {
        Stream { geometry, pool, kind, at, next_extent }
    }
    /// Where the next page goes.
    pub fn position(&self) -> StreamPosition {
        self.at
    }
    /// The extent in which it goes on.
    pub fn next_extent(&self) -> u32 {
        self.next_extent
    }
    /// Whether the extent in which it goes on is still to be named, before the next page is sealed.
    pub fn wants_extent(&self) -> bool {
        self.next_extent == NO_EXTENT
    }
    /// Names it.
    pub fn go_on_in(&mut self, extent: u32) {
        self.next_extent = extent;
    }
    /// Makes the next page of a payload, behind so many others of the same commit. Returns it and its place.
    pub fn seal(&mut self, payload: &[u8], epoch: u64, commit_offset: u16) -> (u32, PageBuffer) {
        let place = self.geometry.first_of(self.at.extent) + self.at.index;
        let header = Header {
            kind: self.kind,
            used: payload.len(),
            commit_offset,
            pool: self.pool,
            place,
            next_extent: self.next_extent,
            sequence: self.at.sequence,
            epoch,
            before: self.at.before,
        };
        let (page, checksum) = header.page(payload);
        self.at.before = checksum;
        self.at.sequence += 1;
        self.at.index += 1;
        if self.at.index == self.geometry.extent_pages {
            self.at.extent = self.next_extent;
            self.at.index = 0;
            self.next_extent = NO_EXTENT;
        }
        (place, page)
    }
}

/// Whether a page is the one of a stream that belongs at a position; if so, its payload, its epoch, its checksum and the extent
/// in which the stream goes on. Tests plant a bug by `believe`.
pub fn expect(
    page: &PageBuffer,
    (geometry, pool, kind): (Geometry, PoolId, Kind),
    at: StreamPosition,
    believe: bool,
) -> Option<(&[u8], Header, u32)> {
    let (header, checksum, payload) = if believe { Header::open_unchecked(page) } else { Header::open(page) }.ok()?;
    let right = header.kind == kind
        && header.pool == pool
        && header.place == geometry.first_of(at.extent) + at.index
        && header.sequence == at.sequence
        && header.before == at.before;
    right.then_some((payload, header, checksum))
}
