//! A stream of pages of metadata through extents. Each page has the extent in which the stream
//! continues, a number, and the checksum of the page before. So no page of another time or place
//! can pass for the next.

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
    /// Where the next page is written.
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
    /// Makes the next page of a payload, `commit_offset` pages behind the first of the same commit.
    /// Returns it and its place.
    pub fn seal(&mut self, payload: &[u8], next_token: u64, commit_offset: u16) -> (u32, PageBuffer) {
        let place = self.geometry.first_of(self.at.extent) + self.at.index;
        let header = Header {
            kind: self.kind,
            used: payload.len(),
            commit_offset,
            pool: self.pool,
            place,
            next_extent: self.next_extent,
            sequence: self.at.sequence,
            next_token,
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

/// Whether a page is the one of a stream at a position. If so, its payload, next token, checksum
/// and the extent in which the stream continues. `believe` plants a bug for tests.
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

#[cfg(test)]
mod tests {
    use super::*;

    const G: Geometry = Geometry { extent_pages: 8, extents: 40, subpages: 64, objects: false };
    const POOL: PoolId = PoolId([7; 16]);

    #[test]
    fn a_stream_goes_on_where_it_said_and_each_page_is_known_by_the_one_before() {
        let at = StreamPosition { extent: 5, index: 6, sequence: 100, before: 77 };
        let mut stream = Stream::new(G, POOL, Kind::Journal, at, NO_EXTENT);
        assert!(stream.wants_extent());
        stream.go_on_in(9);
        assert!(!stream.wants_extent() && stream.next_extent() == 9);
        let mut at = stream.position();
        for (place, index, extent) in [(46, 7, 5), (47, 0, 9), (72, 1, 9), (73, 2, 9)] {
            let (written, page) = stream.seal(b"some", 3, 2);
            assert_eq!(written, place);
            let (payload, header, checksum) = expect(&page, (G, POOL, Kind::Journal), at, false).unwrap();
            assert_eq!((payload, header.next_token, header.commit_offset, header.used), (&b"some"[..], 3, 2, 4));
            for wrong in [
                StreamPosition { extent: at.extent + 1, ..at },
                StreamPosition { index: at.index + 1, ..at },
                StreamPosition { sequence: at.sequence + 1, ..at },
                StreamPosition { before: at.before ^ 1, ..at },
            ] {
                assert!(expect(&page, (G, POOL, Kind::Journal), wrong, false).is_none(), "{wrong:?}");
            }
            assert!(expect(&page, (G, PoolId([8; 16]), Kind::Journal), at, false).is_none());
            assert!(expect(&page, (G, POOL, Kind::Checkpoint), at, false).is_none());
            let mut damaged = page.clone();
            damaged[4095] ^= 1;
            assert!(expect(&damaged, (G, POOL, Kind::Journal), at, false).is_none());
            let next = StreamPosition { extent, index, sequence: at.sequence + 1, before: checksum };
            assert_eq!(stream.position(), next);
            at = next;
        }
        // Behind the extent it named, it has named none.
        assert!(stream.wants_extent());
    }
}
