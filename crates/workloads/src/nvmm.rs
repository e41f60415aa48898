//! The two benchmarks by which NVMM's paper asks how far a memory tolerates slow flash (its
//! "Latency Sensitivity"): GUPS and MMAP.
//!
//! * **GUPS** (giga-updates per second): a table larger than DRAM, whose words are updated at
//!   random: read, exclusive-or, write. A share of the requests can only read the words
//!   (`Params::gets`).
//! * **MMAP**: a file larger than DRAM in memory, read at random places, as a file is, with no
//!   regard for where a word begins.
//!
//! Places are uniform unless a Zipf exponent is asked for: no word of the table is more popular
//! than another.
//!
//! Invariants, under any interleaving and after any error: a word of the table is the one that was
//! built there, exclusive-or the updates that named it, whose order does not matter. The halves of
//! an update are equal, so that the word of another place, or half of a write, is found (`check`).
//! The file stays as it was built.

use fulgurite_memory::{AccessError, Address, Array, Latch, LatchTable, Memory, Region, SUBPAGE_BYTES};

use crate::keys::{Random, ZipfKeys, mix};
use crate::rows::{Rows, load, pin, store};
use crate::{Params, Site, Workload, WorkloadError, header};

/// Latches, shared by hash, held while a word that is at hand is changed.
const LATCH_COUNT: usize = 4096;
/// Bytes that a read of the file takes.
const READ_BYTES: usize = 8;

/// The word that is built at a place.
fn word_of(place: u64) -> u64 {
    mix(place ^ 0x6775_7073 << 32)
}

/// An update whose halves are equal.
fn update_of(random: u64) -> u64 {
    let half = random >> 32;
    half << 32 | half
}

#[derive(Debug)]
struct Table {
    words: Array<u64>,
    keys: ZipfKeys,
}

impl Table {
    fn build<M: Memory>(memory: &mut M, name: &'static str, mut site: Site<'_>) -> Result<(), WorkloadError> {
        let (at, data) = site.split(name, SUBPAGE_BYTES as u64)?;
        let count = data.bytes / size_of::<u64>() as u64;
        Array::create(memory, data, count, |place| {
            site.tick(place, count);
            word_of(place)
        })?;
        site.finish(memory, name, at, count)
    }
    fn open<M: Memory>(
        memory: &mut M,
        name: &'static str,
        region: Region,
        params: &Params,
    ) -> Result<Table, WorkloadError> {
        let count: u64 = header::read(memory, name, region)?;
        let words = Array::open(header::data(region), count)?;
        Ok(Table { words, keys: ZipfKeys::new(name, count, params.zipf)? })
    }
    /// A number of all words. `is_one` says whether a word can be what became of the one that was
    /// built there.
    fn check<M: Memory>(
        &self,
        memory: &mut M,
        name: &'static str,
        is_one: impl Fn(u64, u64) -> bool,
    ) -> Result<u64, WorkloadError> {
        let mut sum = 0u64;
        for place in 0..self.keys.count() {
            let word = self.words.get(memory, place)?;
            if !is_one(word, word_of(place)) {
                let what = format!("word {place} is {word:016x}, which no updates make of {:016x}", word_of(place));
                return Err(WorkloadError::Inconsistent { workload: name, what });
            }
            sum = sum.wrapping_add(mix(word.wrapping_add(mix(place))));
        }
        Ok(sum)
    }
}

/// GUPS, open.
#[derive(Debug)]
pub struct Gups<L> {
    table: Table,
    latches: LatchTable<L>,
    gets: u64,
}

/// An update of one word, or a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpdateWord {
    /// Which.
    pub place: u64,
    /// What it is combined with. `None` for a read.
    pub update: Option<u64>,
}

impl<L: Latch> Workload for Gups<L> {
    const NAME: &'static str = "gups";
    const PINS: u32 = 1;
    const GETS: Option<u32> = Some(0);
    type Request = UpdateWord;

    fn build<M: Memory>(memory: &mut M, site: Site<'_>) -> Result<(), WorkloadError> {
        Table::build(memory, Self::NAME, site)
    }
    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let table = Table::open(memory, Self::NAME, region, params)?;
        Ok(Gups { table, latches: LatchTable::new(LATCH_COUNT), gets: params.gets::<Self>() })
    }
    #[inline]
    fn request(&self, seed: u64, number: u64) -> UpdateWord {
        let mut random = Random::new(seed, number);
        let (place, update) = (self.table.keys.sample(&mut random), update_of(random.next()));
        // A share that is all or nothing draws no number, which the measured loop would pay for.
        let reads = self.gets == 100 || self.gets > 0 && random.percent(self.gets);
        UpdateWord { place, update: (!reads).then_some(update) }
    }
    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &UpdateWord) -> Result<u64, AccessError> {
        let Some(update) = request.update else { return self.table.words.get(memory, request.place) };
        let word = self.table.words.checked(request.place)?;
        // The subpage first, the latch only then: no job waits for flash while holding one.
        let pin = pin(memory, word)?;
        let _held = self.latches.of(request.place).lock(memory)?;
        let old = load(&pin, word);
        store(&pin, word, old ^ update);
        Ok(old)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let update = |change: u64| change >> 32 == change & u64::from(u32::MAX);
        self.table.check(memory, Self::NAME, |word, built| word == built || self.gets < 100 && update(word ^ built))
    }
    #[inline]
    fn answer_is_fixed(&self, _: &UpdateWord) -> bool {
        self.gets == 100
    }
    fn dram_bytes(&self) -> u64 {
        self.latches.bytes() as u64
    }
}

/// The file of MMAP, open. It is the bytes of a table's words.
#[derive(Debug)]
pub struct MmapBench<L> {
    table: Table,
    base: Address,
    keys: ZipfKeys,
    latch: std::marker::PhantomData<fn() -> L>,
}

impl<L: Latch> Workload for MmapBench<L> {
    const NAME: &'static str = "mmap-bench";
    const PINS: u32 = 0;
    type Request = u64;

    fn build<M: Memory>(memory: &mut M, site: Site<'_>) -> Result<(), WorkloadError> {
        Table::build(memory, Self::NAME, site)
    }
    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let table = Table::open(memory, Self::NAME, region, params)?;
        // Wherever a read of `READ_BYTES` can begin.
        let places = table.words.len() * size_of::<u64>() as u64 - READ_BYTES as u64 + 1;
        let keys = ZipfKeys::new(Self::NAME, places, params.zipf)?;
        Ok(MmapBench { table, base: header::data(region).base, keys, latch: std::marker::PhantomData })
    }
    #[inline]
    fn request(&self, seed: u64, number: u64) -> u64 {
        self.keys.sample(&mut Random::new(seed, number))
    }
    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, offset: &u64) -> Result<u64, AccessError> {
        let mut read = [0; READ_BYTES];
        memory.read_bytes(self.base.add(*offset), &mut read)?;
        Ok(u64::from_le_bytes(read))
    }
    #[inline]
    fn answer_is_fixed(&self, _: &u64) -> bool {
        true
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        self.table.check(memory, Self::NAME, |word, built| word == built)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_memory::{NoLatch, PlainMemory};
    use fulgurite_sys::Backed;

    fn built<W: Workload>(gets: Option<u32>) -> (PlainMemory, W) {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 1 << 16);
        let params = Params { bytes: 1 << 16, zipf: 0.0, seed: 1, gets, ..Params::default() };
        W::build(&mut memory, Site::new(region, &params, &mut |_| ())).unwrap();
        let workload = W::open(&mut memory, region, &params).unwrap();
        (memory, workload)
    }

    #[test]
    fn damage_is_found() {
        let (mut memory, gups) = built::<Gups<NoLatch>>(None);
        let untouched = gups.check(&mut memory).unwrap();
        for number in 0..1000 {
            gups.execute(&mut memory, &gups.request(1, number)).unwrap();
        }
        assert_ne!(gups.check(&mut memory).unwrap(), untouched);
        let words = gups.table.words;
        let (one, other) = (words.get(&mut memory, 3).unwrap(), words.get(&mut memory, 4).unwrap());
        for bad in [other, one ^ 1, one & u64::from(u32::MAX), one >> 8] {
            words.set(&mut memory, 3, bad).unwrap();
            assert!(matches!(gups.check(&mut memory), Err(WorkloadError::Inconsistent { .. })), "{bad:x}");
        }
        words.set(&mut memory, 3, one).unwrap();
        gups.check(&mut memory).unwrap();
    }
    #[test]
    fn an_update_twice_is_none() {
        let (mut memory, gups) = built::<Gups<NoLatch>>(None);
        let before = gups.check(&mut memory).unwrap();
        for number in 0..2000 {
            gups.execute(&mut memory, &gups.request(7, number)).unwrap();
        }
        assert_ne!(gups.check(&mut memory).unwrap(), before);
        for number in (0..2000).rev() {
            gups.execute(&mut memory, &gups.request(7, number)).unwrap();
        }
        assert_eq!(gups.check(&mut memory).unwrap(), before);
    }
    #[test]
    fn what_is_read_is_what_is_there() {
        let (mut memory, reads) = built::<Gups<NoLatch>>(Some(100));
        let (mut file, bench) = built::<MmapBench<NoLatch>>(None);
        let mut crossed = false;
        for number in 0..20_000 {
            let read = reads.request(1, number);
            assert_eq!(reads.execute(&mut memory, &read), Ok(word_of(read.place)));
            let offset = bench.request(1, number);
            crossed |= offset % SUBPAGE_BYTES as u64 > (SUBPAGE_BYTES - READ_BYTES) as u64;
            let (word, bits) = (offset / 8, (offset % 8) as u32 * 8);
            let both = u128::from(word_of(word)) | u128::from(word_of(word + 1)) << 64;
            assert_eq!(bench.execute(&mut file, &offset), Ok((both >> bits) as u64), "at {offset}");
        }
        assert!(crossed, "some reads cross from one subpage to the next");
        reads.table.words.set(&mut memory, 9, 9).unwrap();
        bench.table.words.set(&mut file, 9, 9).unwrap();
        assert!(reads.check(&mut memory).is_err() && bench.check(&mut file).is_err());
    }
}
