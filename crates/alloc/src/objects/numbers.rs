//! Numbers of objects: which are handed out, and of which size. Decisions only.
//!
//! An object's number is that of its page in the region. Numbers come in chunks of 1024, each of
//! one size: of a pool's objects, or of an array.

use std::collections::{BTreeMap, BTreeSet};

use super::packed;

/// Numbers of a chunk.
pub const CHUNK: u32 = 1024;
const WORDS: usize = CHUNK as usize / 64;

/// What the objects of a chunk are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Free,
    /// Of a pool: a number that comes free is handed out again.
    Pool,
    /// Of an array, which begins at this number.
    Array(u32),
}

#[derive(Clone, Debug)]
struct Chunk {
    kind: Kind,
    /// Bytes of each object.
    size: u16,
    taken: u16,
    bits: Option<Box<[u64; WORDS]>>,
}

/// Why there is no object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoNumber {
    /// There are as many as there may be.
    Numbers,
    /// The flash has no room for its bytes.
    Flash,
}

/// See the module.
#[derive(Debug)]
pub struct Numbers {
    chunks: Vec<Chunk>,
    /// Chunks that are free.
    free: BTreeSet<u32>,
    /// Of each size, chunks of pools with a free number.
    open: BTreeMap<u16, BTreeSet<u32>>,
    /// Arrays and how many objects each has, by their first number.
    arrays: BTreeMap<u32, u32>,
    /// Bytes of flash that all objects may take at worst, and those that are handed out.
    room: u64,
    used: u64,
    count: u32,
    /// Chunks from here on were never handed out: nothing is known of their objects.
    begun: u32,
}

/// DRAM of a chunk here, at the most.
pub const BYTES_PER_CHUNK: usize = size_of::<Chunk>() + WORDS * 8 + 3 * 24;

fn word_of(number: u32) -> (usize, u32) {
    ((number % CHUNK) as usize / 64, number % 64)
}

impl Numbers {
    /// Numbers of so many chunks, for objects that take so many bytes of flash.
    pub fn new(chunks: u32, room: u64) -> Numbers {
        let chunk = Chunk { kind: Kind::Free, size: 0, taken: 0, bits: None };
        Numbers {
            chunks: vec![chunk; chunks as usize],
            free: (0..chunks).collect(),
            open: BTreeMap::new(),
            arrays: BTreeMap::new(),
            room,
            used: 0,
            count: 0,
            begun: 0,
        }
    }

    /// Objects that are handed out.
    pub fn count(&self) -> u32 {
        self.count
    }
    /// Bytes of flash that they take at worst.
    #[cfg(test)]
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    fn chunk(&self, number: u32) -> Option<&Chunk> {
        self.chunks.get((number / CHUNK) as usize)
    }
    /// The size of an object that is handed out.
    pub fn size_of(&self, number: u32) -> Option<usize> {
        let chunk = self.chunk(number)?;
        let (word, bit) = word_of(number);
        (chunk.bits.as_ref()?[word] >> bit & 1 == 1).then_some(chunk.size.into())
    }
    fn begin(&mut self, at: u32, kind: Kind, size: u16) {
        self.free.remove(&at);
        self.begun = self.begun.max(at + 1);
        self.chunks[at as usize] = Chunk { kind, size, taken: 0, bits: Some(Box::new([0; WORDS])) };
    }
    fn end(&mut self, at: u32) {
        self.chunks[at as usize] = Chunk { kind: Kind::Free, size: 0, taken: 0, bits: None };
        self.free.insert(at);
    }
    fn claim(&mut self, size: u16, count: u32) -> Result<(), NoNumber> {
        let bytes = packed::weight(size.into()) * u64::from(count);
        if self.used + bytes > self.room {
            return Err(NoNumber::Flash);
        }
        self.used += bytes;
        self.count += count;
        Ok(())
    }

    /// Whether chunks are free, clear or not.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes the lowest free number of a size. `is_clear` says whether nothing is known any more of
    /// the objects that a chunk had.
    pub fn take(&mut self, size: u16, is_clear: impl Fn(u32) -> bool) -> Result<u32, NoNumber> {
        let at = match self.open.get(&size).and_then(BTreeSet::first) {
            Some(at) => *at,
            None => {
                let at =
                    self.free.iter().copied().find(|at| *at >= self.begun || is_clear(*at)).ok_or(NoNumber::Numbers)?;
                self.claim(size, 0)?;
                self.begin(at, Kind::Pool, size);
                self.open.entry(size).or_default().insert(at);
                at
            }
        };
        self.claim(size, 1)?;
        let chunk = &mut self.chunks[at as usize];
        let bits = chunk.bits.as_mut().expect("a chunk of a pool has bits");
        let word = bits.iter().position(|word| *word != u64::MAX).expect("an open chunk has a free number");
        let bit = bits[word].trailing_ones();
        bits[word] |= 1 << bit;
        chunk.taken += 1;
        if u32::from(chunk.taken) == CHUNK {
            self.close(size, at);
        }
        Ok(at * CHUNK + word as u32 * 64 + bit)
    }

    fn close(&mut self, size: u16, at: u32) {
        if let Some(open) = self.open.get_mut(&size) {
            open.remove(&at);
            if open.is_empty() {
                self.open.remove(&size);
            }
        }
    }

    /// Takes numbers side by side, one or more, and returns the first.
    pub fn take_array(&mut self, size: u16, count: u32, is_clear: impl Fn(u32) -> bool) -> Result<u32, NoNumber> {
        let chunks = count.div_ceil(CHUNK);
        let (mut first, mut found) = (0, 0);
        for at in self.free.iter().copied().filter(|at| *at >= self.begun || is_clear(*at)) {
            if found == 0 || at != first + found {
                (first, found) = (at, 0);
            }
            found += 1;
            if found == chunks {
                break;
            }
        }
        if found < chunks {
            return Err(NoNumber::Numbers);
        }
        self.claim(size, count)?;
        let number = first * CHUNK;
        for at in first..first + chunks {
            self.begin(at, Kind::Array(number), size);
            let taken = (count - (at - first) * CHUNK).min(CHUNK);
            let chunk = &mut self.chunks[at as usize];
            chunk.taken = taken as u16;
            let bits = chunk.bits.as_mut().expect("it was made just now");
            for (word, bits) in bits.iter_mut().enumerate() {
                *bits = match (taken as usize).saturating_sub(word * 64) {
                    64.. => u64::MAX,
                    some => (1 << some) - 1,
                };
            }
        }
        self.arrays.insert(number, count);
        Ok(number)
    }

    /// How many objects an array has, if one begins at this number.
    pub fn array_at(&self, number: u32) -> Option<u32> {
        self.arrays.get(&number).copied()
    }

    /// Gives a number back. False when it is not handed out.
    pub fn give(&mut self, number: u32) -> bool {
        let Some(size) = self.size_of(number) else { return false };
        let (at, (word, bit)) = (number / CHUNK, word_of(number));
        let chunk = &mut self.chunks[at as usize];
        chunk.bits.as_mut().expect("it was looked at")[word] &= !(1 << bit);
        chunk.taken -= 1;
        let (kind, is_empty) = (chunk.kind, chunk.taken == 0);
        self.used -= packed::weight(size);
        self.count -= 1;
        match kind {
            Kind::Pool if is_empty => {
                self.close(size as u16, at);
                self.end(at);
            }
            Kind::Pool => {
                self.open.entry(size as u16).or_default().insert(at);
            }
            Kind::Array(first) => {
                let chunks = self.arrays[&first].div_ceil(CHUNK);
                let all = first / CHUNK..first / CHUNK + chunks;
                // Its numbers are not handed out one by one.
                if all.clone().all(|at| self.chunks[at as usize].taken == 0) {
                    self.arrays.remove(&first);
                    all.for_each(|at| self.end(at));
                }
            }
            Kind::Free => unreachable!("a number of it was handed out"),
        }
        true
    }

    /// Checks the invariants.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        let (mut used, mut count) = (0, 0);
        for (at, chunk) in self.chunks.iter().enumerate() {
            let taken = chunk.bits.as_ref().map_or(0, |bits| bits.iter().map(|word| word.count_ones()).sum());
            assert_eq!(taken, u32::from(chunk.taken), "chunk {at}");
            used += u64::from(taken) * packed::weight(chunk.size.into());
            count += taken;
            let is_open = self.open.get(&chunk.size).is_some_and(|open| open.contains(&(at as u32)));
            assert_eq!(is_open, chunk.kind == Kind::Pool && taken < CHUNK, "chunk {at}");
            assert_eq!(self.free.contains(&(at as u32)), chunk.kind == Kind::Free, "chunk {at}");
        }
        assert_eq!((used, count), (self.used, self.count));
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_testkit::Random;

    use super::*;

    #[test]
    fn as_a_map_of_numbers_says() {
        let mut random = Random::seeded("numbers", 9);
        for _ in 0..10 {
            let (mut numbers, mut model) = (Numbers::new(8, 3 << 20), BTreeMap::new());
            let mut arrays = Vec::new();
            // What was never handed out is clear, whatever is said.
            assert_eq!(numbers.take(16, |_| false), Ok(0));
            assert_eq!(numbers.take_array(16, 7 * CHUNK, |_| false), Ok(CHUNK));
            assert!((0..8 * CHUNK).filter(|number| numbers.give(*number)).count() as u32 == 7 * CHUNK + 1);
            assert!(numbers.has_free() && numbers.take(16, |_| false) == Err(NoNumber::Numbers));
            for step in 0..6000 {
                let size = [16, 100, 128, 4000][random.below(4)];
                match random.below(20) {
                    0..=11 => match numbers.take(size, |_| true) {
                        Ok(number) => assert!(number < 8 * CHUNK && model.insert(number, size).is_none()),
                        Err(NoNumber::Flash) => assert!(numbers.used_bytes() + packed::weight(size.into()) > 3 << 20),
                        Err(NoNumber::Numbers) => {}
                    },
                    12 => {
                        let count = 1 + random.below(2500) as u32;
                        if let Ok(first) = numbers.take_array(size, count, |at| at != 3) {
                            assert!((first..first + count).all(|number| model.insert(number, size).is_none()));
                            assert!(!(first..first + count).contains(&(3 * CHUNK)), "that chunk is not clear");
                            assert_eq!(numbers.array_at(first), Some(count));
                            arrays.push((first, count));
                        }
                    }
                    13 if !arrays.is_empty() => {
                        let (first, count) = arrays.swap_remove(random.below(arrays.len()));
                        for number in first..first + count {
                            assert_eq!(numbers.give(number), model.remove(&number).is_some());
                        }
                        assert_eq!(numbers.array_at(first), None);
                    }
                    _ => {
                        let number = random.below(8 * CHUNK);
                        let in_array = arrays.iter().any(|(first, count)| (*first..first + count).contains(&number));
                        if !in_array || random.below(8) == 0 && !arrays.iter().any(|(_, count)| *count == 1) {
                            assert_eq!(numbers.size_of(number), model.get(&number).map(|size| *size as usize));
                            assert_eq!(numbers.give(number), model.remove(&number).is_some());
                        }
                    }
                }
                if step % 500 == 0 {
                    arrays.retain(|(first, _)| numbers.array_at(*first).is_some());
                    numbers.check();
                    assert_eq!(numbers.count() as usize, model.len());
                }
            }
        }
    }
}
