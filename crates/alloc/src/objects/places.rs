//! The object table: in which page of the log each object is. Decisions only.
//!
//! Three bytes an object, in chunks that exist where an object was ever written. Where it is in its
//! page, the page says.

use super::numbers::CHUNK;

/// Bytes of an entry: 0, or a page plus one.
const ENTRY: usize = 3;
/// The most pages that the entries can name.
pub const PAGES_MAX: u32 = (1 << (8 * ENTRY)) - 1;
/// DRAM of a chunk.
pub const CHUNK_BYTES: usize = CHUNK as usize * ENTRY;

#[derive(Debug)]
struct Chunk {
    /// Entries that are not 0.
    count: u32,
    /// Bytes of each object.
    size: u16,
    entries: Box<[u8; CHUNK_BYTES]>,
}

/// The places of the chunks of one shard.
#[derive(Debug, Default)]
pub struct Places {
    chunks: Vec<Option<Chunk>>,
}

impl Places {
    /// A table of `chunks` chunks.
    pub fn new(chunks: usize) -> Places {
        Places { chunks: (0..chunks).map(|_| None).collect() }
    }
    /// Whether no object of a chunk is in the log.
    pub fn is_clear(&self, chunk: usize) -> bool {
        self.chunks[chunk].is_none()
    }
    /// The page of an object of a chunk.
    pub fn get(&self, chunk: usize, index: u32) -> Option<u32> {
        let at = index as usize * ENTRY;
        let entry = &self.chunks[chunk].as_ref()?.entries[at..at + ENTRY];
        u32::from_le_bytes([entry[0], entry[1], entry[2], 0]).checked_sub(1)
    }
    /// Bytes of each object of a chunk that is not clear.
    pub fn size(&self, chunk: usize) -> Option<usize> {
        Some(self.chunks[chunk].as_ref()?.size.into())
    }
    /// An object of this size is in this page now.
    pub fn set(&mut self, chunk: usize, index: u32, size: usize, page: u32) {
        if self.chunks[chunk].is_none() {
            self.chunks[chunk] = Some(Chunk { count: 0, size: size as u16, entries: Box::new([0; CHUNK_BYTES]) });
        }
        assert_eq!(self.size(chunk), Some(size), "objects of a chunk have one size");
        self.change(chunk, index, page + 1);
    }
    /// It is in no page of the log.
    pub fn clear(&mut self, chunk: usize, index: u32) {
        if self.get(chunk, index).is_some() {
            self.change(chunk, index, 0);
        }
    }
    fn change(&mut self, chunk: usize, index: u32, word: u32) {
        let before = self.get(chunk, index);
        let Some(found) = &mut self.chunks[chunk] else { return };
        let at = index as usize * ENTRY;
        found.entries[at..at + ENTRY].copy_from_slice(&word.to_le_bytes()[..ENTRY]);
        found.count = found.count + u32::from(word != 0) - u32::from(before.is_some());
        if found.count == 0 {
            self.chunks[chunk] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_and_forgotten() {
        let mut places = Places::new(2);
        places.set(1, 1023, 128, PAGES_MAX - 1);
        places.set(1, 0, 128, 0);
        assert_eq!((places.get(1, 1023), places.get(1, 0), places.get(1, 1)), (Some(PAGES_MAX - 1), Some(0), None));
        places.clear(0, 5);
        assert_eq!((places.get(0, 0), places.size(0), places.size(1)), (None, None, Some(128)));
        assert!(places.is_clear(0) && !places.is_clear(1));
        places.set(1, 0, 128, 7);
        assert_eq!(places.get(1, 0), Some(7));
        places.clear(1, 0);
        places.clear(1, 0);
        assert!(!places.is_clear(1));
        places.clear(1, 1023);
        assert!(places.is_clear(1));
        places.set(1, 3, 64, 9);
    }
}
