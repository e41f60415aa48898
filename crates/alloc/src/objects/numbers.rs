//! Numbers of objects: which are handed out, and of which size. Decisions only.
//!
//! An object's number is the number of its page in the region. Numbers come in chunks of 1024, each
//! of one size: of a pool's objects, or of an array. Pools of one size share chunks unless they
//! have a name, and with it an *owner*. A chunk is permanent as a whole, because flash keeps what
//! is known of it in one record.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Numbers of a chunk.
pub const CHUNK: u32 = 1024;
/// Words of the bits of a chunk.
pub const WORDS: usize = CHUNK as usize / 64;
/// The owner of chunks of pools without a name.
pub const NOBODY: u32 = 0;

/// What the objects of a chunk are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// There are none.
    Free,
    /// It belongs to a pool of this owner: a number that comes free is handed out again.
    Pool(u32),
    /// It belongs to an array, which begins at this number.
    Array(u32),
}

#[derive(Clone, Debug)]
struct Chunk {
    kind: Kind,
    /// Bytes of each object.
    size: u16,
    taken: u16,
    /// It outlives the process.
    permanent: bool,
    bits: Option<Box<[u64; WORDS]>>,
}

const FREE: Chunk = Chunk { kind: Kind::Free, size: 0, taken: 0, permanent: false, bits: None };

/// What flash keeps of a chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// What its objects are.
    pub kind: Kind,
    /// Bytes of each.
    pub size: u16,
    /// The numbers that are handed out, the lowest bit first.
    pub bits: [u64; WORDS],
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
    /// Chunks of pools with a free number, for each owner and size.
    open: BTreeMap<(u32, u16), BTreeSet<u32>>,
    /// Owners whose objects are permanent.
    permanent: BTreeSet<u32>,
    last_owner: u32,
    /// Permanent chunks that have changed, and others that were permanent, since they were taken
    /// ([`Numbers::take_changed`]).
    changed: BTreeSet<u32>,
    /// Arrays and how many objects each has, by their first number.
    arrays: BTreeMap<u32, u32>,
    /// What an object of a given number of bytes takes of flash at worst, what all may take, and
    /// what the ones that are handed out take.
    weight: fn(usize) -> u64,
    room: u64,
    used: u64,
    count: u32,
    /// Chunks from here on were never handed out: nothing is known of their objects.
    begun: u32,
}

/// The most DRAM that a chunk takes here.
pub const BYTES_PER_CHUNK: usize = size_of::<Chunk>() + WORDS * 8 + 3 * 24;

fn word_of(number: u32) -> (usize, u32) {
    ((number % CHUNK) as usize / 64, number % 64)
}

impl Numbers {
    /// Numbers of `chunks` chunks, for objects that may take `room` bytes of flash in all, each as
    /// much as its weight says.
    pub fn new(chunks: u32, weight: fn(usize) -> u64, room: u64) -> Numbers {
        Numbers {
            chunks: vec![FREE; chunks as usize],
            free: (0..chunks).collect(),
            open: BTreeMap::new(),
            permanent: BTreeSet::new(),
            last_owner: NOBODY,
            changed: BTreeSet::new(),
            arrays: BTreeMap::new(),
            weight,
            room,
            used: 0,
            count: 0,
            begun: 0,
        }
    }

    /// Chunks that there are.
    pub fn chunks(&self) -> u32 {
        self.chunks.len() as u32
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
        let permanent = matches!(kind, Kind::Pool(owner) if self.permanent.contains(&owner));
        self.chunks[at as usize] = Chunk { kind, size, permanent, bits: Some(Box::new([0; WORDS])), ..FREE };
    }
    fn end(&mut self, at: u32) {
        self.chunks[at as usize] = FREE;
        self.free.insert(at);
    }
    /// The record of a chunk is not as it is now.
    fn note(&mut self, at: u32) {
        if self.chunks[at as usize].permanent {
            self.changed.insert(at);
        }
    }
    fn claim(&mut self, size: u16, count: u32) -> Result<(), NoNumber> {
        let bytes = (self.weight)(size.into()) * u64::from(count);
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

    /// Takes the lowest free number of an owner and size. `is_clear` says whether nothing is known
    /// any more of the objects that a chunk had.
    pub fn take(&mut self, owner: u32, size: u16, is_clear: impl Fn(u32) -> bool) -> Result<u32, NoNumber> {
        let at = match self.open.get(&(owner, size)).and_then(BTreeSet::first) {
            Some(at) => *at,
            None => {
                let at =
                    self.free.iter().copied().find(|at| *at >= self.begun || is_clear(*at)).ok_or(NoNumber::Numbers)?;
                self.claim(size, 0)?;
                self.begin(at, Kind::Pool(owner), size);
                self.open.entry((owner, size)).or_default().insert(at);
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
            self.close((owner, size), at);
        }
        self.note(at);
        Ok(at * CHUNK + word as u32 * 64 + bit)
    }

    fn close(&mut self, of: (u32, u16), at: u32) {
        if let Some(open) = self.open.get_mut(&of) {
            open.remove(&at);
            if open.is_empty() {
                self.open.remove(&of);
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
        self.note(at);
        let chunk = &mut self.chunks[at as usize];
        chunk.bits.as_mut().expect("it was checked")[word] &= !(1 << bit);
        chunk.taken -= 1;
        let (kind, is_empty) = (chunk.kind, chunk.taken == 0);
        self.used -= (self.weight)(size);
        self.count -= 1;
        match kind {
            Kind::Pool(owner) if is_empty => {
                self.close((owner, size as u16), at);
                self.end(at);
            }
            Kind::Pool(owner) => {
                self.open.entry((owner, size as u16)).or_default().insert(at);
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

    // ---- permanent ----

    /// Bytes of each object of a chunk that is handed out, by any number of it.
    pub fn chunk_size(&self, number: u32) -> Option<u16> {
        self.chunk(number).filter(|chunk| chunk.kind != Kind::Free).map(|chunk| chunk.size)
    }
    /// Whether an object outlives the process.
    pub fn is_permanent(&self, number: u32) -> bool {
        self.chunk(number).is_some_and(|chunk| chunk.permanent)
    }
    /// The pool of an object that is handed out, unless it is of an array.
    pub fn owner_of(&self, number: u32) -> Option<u32> {
        self.size_of(number)?;
        match self.chunk(number)?.kind {
            Kind::Pool(owner) => Some(owner),
            Kind::Array(_) | Kind::Free => None,
        }
    }
    /// An owner that no pool has had.
    pub fn make_owner(&mut self) -> u32 {
        self.last_owner += 1;
        self.last_owner
    }
    /// All objects of an owner are permanent from now on, or no more. Returns its chunks.
    pub fn set_owner_permanent(&mut self, owner: u32, permanent: bool) -> Vec<u32> {
        if permanent {
            self.permanent.insert(owner);
        } else {
            self.permanent.remove(&owner);
        }
        let chunks = self.chunks_of(Kind::Pool(owner));
        chunks.iter().for_each(|at| self.set_permanent(*at, permanent));
        chunks
    }
    /// Makes an array permanent or temporary. Returns its chunks, or nothing when none begins at
    /// this number.
    pub fn set_array_permanent(&mut self, first: u32, permanent: bool) -> Option<Range<u32>> {
        let chunks = first / CHUNK..first / CHUNK + self.array_at(first)?.div_ceil(CHUNK);
        chunks.clone().for_each(|at| self.set_permanent(at, permanent));
        Some(chunks)
    }
    fn set_permanent(&mut self, at: u32, permanent: bool) {
        self.note(at);
        self.chunks[at as usize].permanent = permanent;
        self.note(at);
    }
    fn chunks_of(&self, kind: Kind) -> Vec<u32> {
        (0..).zip(&self.chunks).filter(|(_, chunk)| chunk.kind == kind).map(|(at, _)| at).collect()
    }
    /// Objects of an owner that are handed out, ascending.
    pub fn objects_of(&self, owner: u32) -> Vec<u32> {
        let chunks = self.chunks_of(Kind::Pool(owner)).into_iter();
        chunks.flat_map(|at| at * CHUNK..(at + 1) * CHUNK).filter(|number| self.size_of(*number).is_some()).collect()
    }
    /// Chunks whose records are not as they are now, since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }
    /// These were not recorded.
    pub fn give_changed_back(&mut self, changed: BTreeSet<u32>) {
        self.changed.extend(changed);
    }
    /// What flash is to keep of a chunk; nothing of one that is not permanent.
    pub fn record(&self, at: u32) -> Option<Record> {
        let chunk = &self.chunks[at as usize];
        let bits = **chunk.bits.as_ref().filter(|_| chunk.permanent)?;
        Some(Record { kind: chunk.kind, size: chunk.size, bits })
    }
    /// A chunk is as its record says. None was handed out so far, and `restore_arrays` follows.
    pub fn restore(&mut self, at: u32, record: &Record) {
        let taken: u32 = record.bits.iter().map(|word| word.count_ones()).sum();
        if let Kind::Pool(owner) = record.kind {
            self.permanent.insert(owner);
            self.last_owner = self.last_owner.max(owner);
            if taken < CHUNK {
                self.open.entry((owner, record.size)).or_default().insert(at);
            }
        }
        self.begin(at, record.kind, record.size);
        let bits = Some(Box::new(record.bits));
        self.chunks[at as usize] =
            Chunk { kind: record.kind, size: record.size, taken: taken as u16, permanent: true, bits };
        self.used += (self.weight)(record.size.into()) * u64::from(taken);
        self.count += taken;
    }
    /// The owner of a pool of which there may be no chunk.
    pub fn restore_owner(&mut self, owner: u32) {
        self.permanent.insert(owner);
        self.last_owner = self.last_owner.max(owner);
    }
    /// An array, whose chunks were restored. False, and nothing has changed, when they are not its.
    pub fn restore_array(&mut self, first: u32, count: u32, size: u16) -> bool {
        let end = u64::from(first / CHUNK) + u64::from(count.div_ceil(CHUNK));
        let is_whole = first.is_multiple_of(CHUNK) && count > 0 && end <= self.chunks.len() as u64;
        let is_its = |chunk: &Chunk| chunk.kind == Kind::Array(first) && chunk.size == size;
        if !is_whole || !self.chunks[(first / CHUNK) as usize..end as usize].iter().all(is_its) {
            return false;
        }
        self.arrays.insert(first, count);
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
            used += u64::from(taken) * (self.weight)(chunk.size.into());
            count += taken;
            let owner = if let Kind::Pool(owner) = chunk.kind { Some(owner) } else { None };
            let open = owner.and_then(|owner| self.open.get(&(owner, chunk.size)));
            let is_open = open.is_some_and(|open| open.contains(&(at as u32)));
            assert_eq!(is_open, owner.is_some() && taken < CHUNK, "chunk {at}");
            assert!(!chunk.permanent || chunk.kind != Kind::Free, "chunk {at}");
            assert_eq!(self.free.contains(&(at as u32)), chunk.kind == Kind::Free, "chunk {at}");
        }
        assert_eq!((used, count), (self.used, self.count));
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_testkit::Random;

    use super::*;
    use crate::objects::packed;

    #[test]
    fn as_a_map_of_numbers_says() {
        let mut random = Random::seeded("numbers", 9);
        for _ in 0..10 {
            let (mut numbers, mut model) = (Numbers::new(8, packed::weight, 3 << 20), BTreeMap::new());
            let mut arrays = Vec::new();
            // What was never handed out is clear, whatever is said.
            assert_eq!(numbers.take(NOBODY, 16, |_| false), Ok(0));
            assert_eq!(numbers.take_array(16, 7 * CHUNK, |_| false), Ok(CHUNK));
            assert!((0..8 * CHUNK).filter(|number| numbers.give(*number)).count() as u32 == 7 * CHUNK + 1);
            assert!(numbers.has_free() && numbers.take(NOBODY, 16, |_| false) == Err(NoNumber::Numbers));
            for step in 0..6000 {
                let size = [16, 100, 128, 4000][random.below(4)];
                match random.below(20) {
                    0..=11 => match numbers.take(NOBODY, size, |_| true) {
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

    /// What flash keeps is what there is, whatever came before and comes then.
    #[test]
    fn records_bring_back_what_is_permanent() {
        let mut random = Random::seeded("records", 3);
        for _ in 0..10 {
            let mut numbers = Numbers::new(12, packed::weight, 40 << 20);
            let (mut records, mut arrays) = (BTreeMap::new(), Vec::new());
            let owners = [numbers.make_owner(), numbers.make_owner()];
            numbers.set_owner_permanent(owners[0], true);
            for _ in 0..4000 {
                match random.below(40) {
                    0 => {
                        let count = 1 + random.below(1500) as u32;
                        if let Ok(first) = numbers.take_array(100, count, |_| true) {
                            let permanent = random.below(2) == 0;
                            numbers.set_array_permanent(first, permanent).unwrap();
                            arrays.push((first, count, permanent));
                        }
                    }
                    1 if !arrays.is_empty() => {
                        let (first, count, _) = arrays.swap_remove(random.below(arrays.len()));
                        assert!((first..first + count).all(|number| numbers.give(number)));
                    }
                    2 => {
                        for at in numbers.take_changed() {
                            match numbers.record(at) {
                                Some(record) => _ = records.insert(at, record),
                                None => _ = records.remove(&at),
                            }
                        }
                    }
                    3 => _ = numbers.set_owner_permanent(owners[1], random.below(2) == 0),
                    4..=9 => {
                        let all = numbers.objects_of(owners[random.below(2)]);
                        if !all.is_empty() {
                            assert!(numbers.give(all[random.below(all.len())]));
                        }
                    }
                    _ => _ = numbers.take([NOBODY, owners[0], owners[1]][random.below(3)], 64, |_| true),
                }
            }
            for at in numbers.take_changed() {
                match numbers.record(at) {
                    Some(record) => _ = records.insert(at, record),
                    None => _ = records.remove(&at),
                }
            }
            let mut again = Numbers::new(12, packed::weight, 40 << 20);
            again.restore_owner(owners[0]);
            records.iter().for_each(|(at, record)| again.restore(*at, record));
            for (first, count, permanent) in arrays {
                assert!(!again.restore_array(first, count, 99), "of another size");
                assert_eq!(again.restore_array(first, count, 100), permanent);
            }
            again.check();
            for number in 0..12 * CHUNK {
                let wanted = numbers.size_of(number).filter(|_| numbers.is_permanent(number));
                assert_eq!(again.size_of(number), wanted, "object {number}");
            }
            assert_eq!(again.objects_of(owners[0]), numbers.objects_of(owners[0]));
            assert!(again.make_owner() > owners[0]);
        }
    }
}
