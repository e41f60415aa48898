//! Objects in the world: batches of them, some under way, and what must be read of each.
//!
//! The number of an object says its length and is the seed of its bytes. What of a batch under way
//! is recorded already is seen in the map, as a batch is recorded flash page by flash page.

use fulgurite_format::{ObjectLocation, crc32c};
use fulgurite_store::{Geometry, Located, Store, WriteError};

use super::{Content, World};

const OBJECT: u64 = 1 << 63;

/// Whether a content is an object.
pub fn is_object(number: u64) -> bool {
    number & OBJECT != 0
}
/// How many bytes an object has.
pub fn length_of(number: u64) -> usize {
    (number >> 40 & 0x1FFF) as usize
}
/// The bytes of an object.
pub fn object_bytes(number: u64) -> Vec<u8> {
    super::Random(number).bytes(length_of(number))
}
fn number_of(counter: u64, length: usize) -> u64 {
    OBJECT | (length as u64) << 40 | counter
}

/// Whether what is stored at a place is this object; false where its checksum shows damage.
pub fn compare(
    store: &Store,
    page: impl Fn(u32) -> Option<Content>,
    found: Located,
    number: u64,
) -> Result<bool, String> {
    let bytes = object_bytes(number);
    let Some(at) = store.state().objects().get(found.place) else {
        return Err(format!("{found:?} is no object"));
    };
    if usize::from(at.length) != bytes.len() || (!bytes.is_empty() && found.checksum != crc32c(&bytes)) {
        return Err(format!("{at:?}, {found:?}: another object than {} bytes", bytes.len()));
    }
    if at == ObjectLocation::FREED {
        return Ok(true);
    }
    Ok(matches!(page(at.flash_page), Some(Content::Metadata(page)) if page[at.range()] == bytes[..]))
}

/// A batch that is under way.
#[derive(Clone, Debug)]
pub struct Outstanding {
    number: u64,
    objects: Vec<(u32, u64)>,
}

/// A tiny pool of objects: extents of 8 flash pages.
pub fn tiny_objects(extents: u32, subpages: u32) -> Geometry {
    Geometry::with_objects(extents * 8, 8, subpages).unwrap()
}

impl World {
    /// A length: of all sizes, most of them small.
    pub fn length(&mut self) -> usize {
        match self.random.below(12) {
            0 => 0,
            1 => 1 + self.random.below(16) as usize,
            2 => 2049 + self.random.below(200) as usize,
            3 => 4096 - self.random.below(20) as usize,
            4 | 5 => 1024,
            6 => 1 + self.random.below(4096) as usize,
            _ => 64 + self.random.below(200) as usize,
        }
    }
    /// Hands over `count` objects of random subpages below `most`; what finds no room in spite of
    /// all turns is not written.
    pub fn write_objects(&mut self, count: u32, most: u32) {
        let batch: Vec<(u32, usize)> = (0..count).map(|_| (self.random.below(most), self.length())).collect();
        self.write_these_objects(&batch);
    }
    pub fn write_these_objects(&mut self, batch: &[(u32, usize)]) {
        let mut numbers = Vec::new();
        for (subpage, length) in batch {
            numbers.push((*subpage, number_of(self.next_number, *length)));
            self.next_number += 1;
        }
        let mut rest = &numbers[..];
        let mut turns = 0;
        while !rest.is_empty() {
            let bytes: Vec<Vec<u8>> = rest.iter().map(|(_, number)| object_bytes(*number)).collect();
            let objects: Vec<(u32, &[u8])> = rest.iter().zip(&bytes).map(|((s, _), b)| (*s, &b[..])).collect();
            match self.store.write_objects(&objects) {
                Ok(batch) => {
                    let (taken, others) = rest.split_at(batch.taken);
                    rest = others;
                    if !taken.is_empty() {
                        self.outstanding.push(Outstanding { number: batch.number, objects: taken.to_vec() });
                    }
                }
                Err(WriteError::NoSpace { .. }) => {
                    self.full += 1;
                    break;
                }
                Err(_) => {
                    self.refused += 1;
                    break;
                }
            }
            if !rest.is_empty() {
                self.turn();
                turns += 1;
                assert!(turns < 100_000, "writers wait for ever: {:?}", self.store.info());
            }
        }
        self.note_objects();
    }
    /// What follows a change, at random: turns, a sync once in `sync_one_in`, reclaim, a roll back.
    pub fn go_on(&mut self, sync_one_in: u32) {
        for _ in 0..self.random.below(12) {
            self.turn();
        }
        if self.random.one_in(sync_one_in) {
            let _ = self.try_sync();
        }
        if self.random.one_in(20) {
            self.store.begin_reclaim();
        }
        if self.random.one_in(40) {
            let tokens: Vec<u64> = self.store.state().tokens().to_vec();
            if !tokens.is_empty() {
                let which = self.random.below(tokens.len() as u32) as usize;
                self.roll_back(tokens[which]);
                self.note_objects();
                self.check();
            }
        }
    }
    /// Checks what of the batches under way is recorded.
    pub fn note_objects(&mut self) {
        let map = self.store.map();
        let mut outstanding = std::mem::take(&mut self.outstanding);
        for batch in &outstanding {
            for (subpage, number) in &batch.objects {
                let Some(located) = map.get(*subpage) else { continue };
                let Some(at) = self.store.state().objects().get(located.place) else { continue };
                let bytes = object_bytes(*number);
                let is_it = usize::from(at.length) == bytes.len()
                    && located.checksum == if bytes.is_empty() { 0 } else { crc32c(&bytes) };
                if is_it {
                    self.now.insert(*subpage, *number);
                }
            }
        }
        outstanding.retain(|batch| match self.store.take_batch(batch.number) {
            None => true,
            Some(Ok(())) => false,
            Some(Err(WriteError::NoSpace { .. })) => {
                self.full += 1;
                false
            }
            Some(Err(_)) => {
                self.refused += 1;
                false
            }
        });
        self.outstanding = outstanding;
    }
    /// Batches that are under way.
    pub fn batches(&self) -> usize {
        self.outstanding.len()
    }
}
