//! What reaches the flash for each byte that changes, by `store` as it is: objects packed into
//! flash pages, or a page for each, with metadata, reclaim and what it moves.
//!
//! Nothing is timed here: its requests are answered at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use fulgurite_flash::FlashError;
use fulgurite_format::{PAYLOAD_BYTES, PageBuffer, PoolId, SUBPAGE_BYTES, zero_page};
use fulgurite_sim::Random;
use fulgurite_store::{Geometry, Io, Outcome, ReadPages, Store, StoreConfig, recover};

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
        // Other bytes each time, so that nothing can be recognised as unchanged.
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

    #[test]
    fn packed_objects_write_a_little_more_than_themselves() {
        let packed = written_for_each_byte(128, true, 0.5).unwrap();
        let alone = written_for_each_byte(128, false, 0.5).unwrap();
        assert!(packed < 5.0 && alone > 32.0, "{packed} {alone}");
    }
}
