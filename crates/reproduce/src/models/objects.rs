//! SSDAlloc's objects and pages: what is found in DRAM, and what reaches the flash.
//!
//! An object cache holds the objects that are used. A page cache holds whole pages for their sake.
//! Both have the same bytes, and replacement is `policy::S3Fifo`. What is evicted and was changed
//! is written: a page in place (swap), a page to a log, or an object to a log.
//!
//! What the log itself writes for each byte is counted by `store`, as it is: objects packed into
//! flash pages, reclaimed and moved ([`written_for_each_byte`]). Nothing is timed there: its
//! requests are answered at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use fulgurite_flash::FlashError;
use fulgurite_format::{LocalFrame, PAYLOAD_BYTES, PageBuffer, PoolId, SUBPAGE_BYTES, SubpageIndex, zero_page};
use fulgurite_policy::{AnyReplacement, Replacement, ReplacementPolicy};
use fulgurite_sim::Random;
use fulgurite_store::{Geometry, Io, Outcome, ReadPages, Store, StoreConfig, recover};

use super::Always;

/// A program over objects.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Program {
    /// How many objects.
    pub objects: u32,
    /// Objects on a page.
    pub on_a_page: u32,
    /// The share of all bytes that DRAM holds.
    pub in_dram: f64,
    /// The share of accesses that write.
    pub writes: f64,
    /// Accesses that are measured, after as many to fill the cache.
    pub accesses: u64,
    /// Zipf's exponent over the objects, which lie anywhere. 0: uniform.
    pub skew: f64,
    /// Of the addresses.
    pub seed: u64,
}

/// Misses and writes for each access.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Traffic {
    /// Reads of the flash.
    pub misses: f64,
    /// Entries that were evicted and had changed.
    pub written: f64,
}

/// Ranks by Zipf's law, by the inverse of the continuous distribution.
fn zipf(random: &mut Random, count: u32, skew: f64) -> u32 {
    let (unit, count) = (random.unit(), f64::from(count));
    let rank = if skew == 0.0 {
        unit * count
    } else if (skew - 1.0).abs() < 1e-6 {
        libm::pow(count + 1.0, unit) - 1.0
    } else {
        let most = libm::pow(count + 1.0, 1.0 - skew);
        libm::pow(1.0 + unit * (most - 1.0), 1.0 / (1.0 - skew)) - 1.0
    };
    (rank as u32).min(count as u32 - 1)
}

impl Program {
    /// Runs it over a cache of objects, or of pages.
    pub fn traffic(&self, of_objects: bool) -> Traffic {
        let frames = (f64::from(self.objects) * self.in_dram) as u32;
        let frames = if of_objects { frames } else { frames / self.on_a_page }.max(1);
        let mut replacement = AnyReplacement::new(ReplacementPolicy::S3Fifo, frames as usize);
        let entries = if of_objects { self.objects } else { self.objects / self.on_a_page };
        let mut places: Vec<Option<LocalFrame>> = vec![None; entries as usize];
        let mut held: Vec<(u32, bool)> = Vec::new();
        let mut random = Random::new(self.seed, 6);
        let (mut misses, mut written) = (0_u64, 0_u64);
        for access in 0..2 * self.accesses {
            let counts = u64::from(access >= self.accesses);
            let rank = zipf(&mut random, self.objects, self.skew);
            // Popular objects lie anywhere: a bijection, as the multiplier is odd and the count a
            // power of two.
            let object = rank.wrapping_mul(0x9E37_79B1) & (self.objects - 1);
            let writes = random.unit() < self.writes;
            let entry = if of_objects { object } else { object / self.on_a_page };
            if let Some(frame) = places[entry as usize] {
                replacement.touched(frame);
                held[frame.index()].1 |= writes;
                continue;
            }
            misses += counts;
            let frame = if (held.len() as u32) < frames {
                held.push((entry, writes));
                LocalFrame(held.len() as u32 - 1)
            } else {
                let frame = replacement.victim(&mut Always).expect("every frame may be evicted");
                let (old, changed) = std::mem::replace(&mut held[frame.index()], (entry, writes));
                places[old as usize] = None;
                written += counts * u64::from(changed);
                frame
            };
            replacement.inserted(frame, SubpageIndex(entry));
            places[entry as usize] = Some(frame);
        }
        let each = |count: u64| count as f64 / self.accesses as f64;
        Traffic { misses: each(misses), written: each(written) }
    }
}

/// Flash of which only metadata is kept.
struct Metadata {
    pages: HashMap<u32, PageBuffer>,
    flash_pages: u32,
}

impl ReadPages for Metadata {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, FlashError> {
        Ok(self.pages.get(&place).cloned().unwrap_or_else(zero_page))
    }
    fn flash_pages(&self) -> u32 {
        self.flash_pages
    }
}

impl Metadata {
    fn serve(&mut self, store: &mut Store) -> Result<(), String> {
        while let Some((id, io)) = store.next_io() {
            let outcome = match io {
                Io::Write { place, page } => {
                    self.pages.insert(place, page);
                    Outcome::Done
                }
                Io::Read { place } => Outcome::Read(self.read(place, 0).map_err(|error| error.to_string())?),
                Io::Copy { .. } => Outcome::Copied(0),
                Io::Flush => Outcome::Done,
            };
            store.done(id, outcome);
        }
        store.poisoned().map_or(Ok(()), |error| Err(error.to_string()))
    }
}

/// Flash pages of an extent of a small pool.
const EXTENT_PAGES: u32 = 64;
/// Objects that are written at a time.
const BATCH: usize = 128;

/// What was asked for, and what came of it: the same for the same.
type Counted = BTreeMap<(usize, bool, u64), Result<f64, String>>;

/// Flash pages of the pool, and the seed of what is overwritten.
const POOL: (u32, u64) = (1 << 11, 1);

/// Bytes that reach the flash for each byte that changes, with data and metadata, when a pool that
/// is `full` of objects is overwritten at random. `packed`: several to a flash page. Counted once
/// for each argument.
///
/// # Errors
/// What the store says.
pub fn written_for_each_byte(bytes: usize, packed: bool, full: f64) -> Result<f64, String> {
    static COUNTED: Mutex<Counted> = Mutex::new(BTreeMap::new());
    let key = (bytes, packed, full.to_bits());
    if let Some(counted) = COUNTED.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return counted.clone();
    }
    let counted = count(bytes, packed, full);
    COUNTED.lock().unwrap_or_else(PoisonError::into_inner).insert(key, counted.clone());
    counted
}

fn count(bytes: usize, packed: bool, full: f64) -> Result<f64, String> {
    let (flash_pages, seed) = POOL;
    let (geometry, count) = pool(flash_pages, bytes, packed, full)?;
    let mut flash = Metadata { pages: HashMap::new(), flash_pages };
    flash.pages.extend(Store::format(geometry, PoolId(*b"a pool to count."), 0));
    let (mut store, _) = recover(&mut flash, StoreConfig::default()).map_err(|error| error.to_string())?;
    let mut random = Random::new(seed, 7);
    let sync_every = (count / 200).max(1);
    let mut unsynced = 0;
    let mut batch: Vec<u32> = Vec::with_capacity(BATCH);
    let writes = 4 * u64::from(count);
    let mut before = store.counters();
    for i in 0..u64::from(count) + writes {
        if i == u64::from(count) + writes / 2 {
            before = store.counters();
        }
        let fills = i < u64::from(count);
        batch.push(if fills { i as u32 } else { random.below(u64::from(count)) as u32 });
        if batch.len() < BATCH && i + 1 != u64::from(count) + writes {
            continue;
        }
        batch.sort_unstable();
        batch.dedup();
        write(&mut store, &mut flash, &batch, bytes, packed, i)?;
        unsynced += batch.len() as u32;
        batch.clear();
        if unsynced >= sync_every {
            unsynced = 0;
            store.sync().map_err(|error| error.to_string())?;
            flash.serve(&mut store)?;
        }
    }
    let after = store.counters();
    let (data, changed) = if packed {
        let pages = |c: fulgurite_store::StoreCounters| c.object_pages + c.object_pages_copied;
        (pages(after) - pages(before), after.object_bytes - before.object_bytes)
    } else {
        let written = after.written - before.written;
        (written + after.copied - before.copied, written * bytes as u64)
    };
    let metadata = after.metadata - before.metadata;
    Ok((data + metadata) as f64 * SUBPAGE_BYTES as f64 / changed as f64)
}

fn write(
    store: &mut Store,
    flash: &mut Metadata,
    batch: &[u32],
    bytes: usize,
    packed: bool,
    round: u64,
) -> Result<(), String> {
    let mut content = vec![0; batch.len() * bytes];
    for (object, into) in batch.iter().zip(content.chunks_exact_mut(bytes)) {
        // Other bytes each time, so that nothing can be told to be the same.
        let word = (round << 32 | u64::from(*object)).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        into.iter_mut().zip(word.iter().cycle()).for_each(|(byte, from)| *byte = *from);
    }
    let objects: Vec<(u32, &[u8])> = batch.iter().copied().zip(content.chunks_exact(bytes)).collect();
    let (mut rest, mut places) = (&objects[..], Vec::new());
    while !rest.is_empty() {
        let taken = if packed {
            let batch = store.write_objects(rest).map_err(|error| error.to_string())?;
            flash.serve(store)?;
            if batch.taken > 0 && store.take_batch(batch.number) != Some(Ok(())) {
                return Err("a batch that was answered has not ended well".to_owned());
            }
            batch.taken
        } else {
            places.clear();
            let subpages: Vec<u32> = rest.iter().map(|(subpage, _)| *subpage).collect();
            store.place(&subpages, &mut places).map_err(|error| error.to_string())?;
            let mut written: Vec<_> = subpages.iter().zip(&places).map(|(s, place)| (*s, *place, 0)).collect();
            store.written(&mut written).map_err(|error| error.to_string())?;
            flash.serve(store)?;
            places.len()
        };
        rest = &rest[taken..];
    }
    Ok(())
}

/// A pool for objects of a size, and how many of them make it full enough.
fn pool(flash_pages: u32, bytes: usize, packed: bool, full: f64) -> Result<(Geometry, u32), String> {
    let failed = |error: fulgurite_store::GeometryError| error.to_string();
    if !packed {
        let geometry = Geometry::new(flash_pages, EXTENT_PAGES, None).map_err(failed)?;
        let extents = geometry.extents - geometry.fixed_extents() - geometry.reserved_extents();
        let subpages = f64::from(extents * geometry.data_pages()) * full;
        return Ok((geometry, (subpages as u32).min(geometry.subpages)));
    }
    let geometry = Geometry::with_objects(flash_pages, EXTENT_PAGES, 16).map_err(failed)?;
    let mut count = 16;
    for _ in 0..32 {
        // Two checkpoints, and a journal twice as long as one, which follow the number of objects.
        let checkpoint = f64::from(count) * 13.5 / PAYLOAD_BYTES as f64 / f64::from(EXTENT_PAGES) + 1.0;
        let reserved = f64::from(geometry.fixed_extents() + geometry.reserved_extents()) + 4.0 * checkpoint;
        let extents = (f64::from(geometry.extents) - reserved).max(1.0);
        let in_a_page = (SUBPAGE_BYTES / bytes) as f64;
        count = (extents * f64::from(geometry.data_pages()) * full * in_a_page) as u32;
    }
    Ok((Geometry::with_objects(flash_pages, EXTENT_PAGES, count).map_err(failed)?, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        objects: 1 << 16,
        on_a_page: 32,
        in_dram: 1.0 / 16.0,
        writes: 0.5,
        accesses: 200_000,
        skew: 0.0,
        seed: 1,
    };

    #[test]
    fn uniform_accesses_miss_alike() {
        let [objects, pages] = [true, false].map(|of_objects| PROGRAM.traffic(of_objects));
        for traffic in [objects, pages] {
            assert!((traffic.misses - 15.0 / 16.0).abs() < 0.01, "{traffic:?}");
            // Half of the accesses write, and some entries are used more than once.
            assert!((0.46..0.56).contains(&traffic.written), "{traffic:?}");
        }
    }
    #[test]
    fn objects_spare_dram_what_is_beside_them() {
        let skewed = Program { skew: 0.99, ..PROGRAM };
        assert!(skewed.traffic(true).misses < 0.7 * skewed.traffic(false).misses);
    }
    #[test]
    fn packed_objects_write_a_little_more_than_themselves() {
        let packed = written_for_each_byte(128, true, 0.5).unwrap();
        let alone = written_for_each_byte(128, false, 0.5).unwrap();
        assert!(packed < 5.0 && alone > 32.0, "{packed} {alone}");
    }
}
