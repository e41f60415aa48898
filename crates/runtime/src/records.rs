//! The records of maps in DRAM, for all maps of a memory: shards of an index and its cache.
//!
//! A shard's lock is never held across an access, nor across a switch of fibers.

use crossbeam_utils::CachePadded;
use fulgurite_records::{CACHE_BYTES_MIN, Counts, KeyHash, NoDram, SHARD_BITS, Shard, TableId};
use parking_lot::{Mutex, MutexGuard};

/// How much of a shard's DRAM its index may take: four fifths.
fn index_bytes_max(shard_bytes: usize) -> usize {
    shard_bytes / 5 * 4
}
/// The least DRAM of a shard.
const SHARD_BYTES_MIN: usize = 16 << 10;

/// See the head of this file.
pub struct Records {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// DRAM of a shard, its index included.
    shard_bytes: usize,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").field("shard_bytes", &self.shard_bytes).finish_non_exhaustive()
    }
}

impl Records {
    /// How many shards there are.
    pub const SHARDS: usize = 1 << SHARD_BITS;
    /// The least DRAM of all.
    pub const BYTES_MIN: u64 = (Records::SHARDS * SHARD_BYTES_MIN) as u64;

    /// Empty, with `bytes` bytes of DRAM, of which the index may take four fifths.
    pub fn new(bytes: u64) -> Records {
        let shard_bytes = usize::try_from(bytes).unwrap_or(usize::MAX) / Records::SHARDS;
        let shard_bytes = shard_bytes.max(SHARD_BYTES_MIN);
        let index_max = index_bytes_max(shard_bytes);
        let shard = || CachePadded::new(Mutex::new(Shard::new(Records::cache_bytes_of(shard_bytes, 0), index_max)));
        Records { shards: (0..Records::SHARDS).map(|_| shard()).collect(), shard_bytes }
    }
    /// What the cache of a shard may take, whose index takes as much.
    fn cache_bytes_of(shard_bytes: usize, index_bytes: usize) -> usize {
        let other = size_of::<Shard>() + 4096;
        shard_bytes.saturating_sub(index_bytes + other).max(CACHE_BYTES_MIN)
    }

    /// The shard of a key.
    #[inline]
    pub fn of(&self, hash: KeyHash) -> MutexGuard<'_, Shard> {
        self.shards[hash.shard(SHARD_BITS)].lock()
    }
    /// A shard by its number.
    pub fn shard(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.shards[at].lock()
    }
    /// Gives the cache of a shard what its index leaves. Called after keys were added.
    pub fn balance(&self, shard: &mut Shard) {
        let wanted = Records::cache_bytes_of(self.shard_bytes, shard.index_bytes());
        let step = (shard.cache_bytes() / 16).max(4096);
        if shard.cache_bytes() > wanted || shard.cache_bytes() + step < wanted {
            // A step below, so that the next keys need not do it again.
            shard.resize(wanted.saturating_sub(step / 2).max(CACHE_BYTES_MIN));
        }
    }

    /// Adds an empty table to all shards.
    ///
    /// # Errors
    /// [`NoDram`], and no shard has it.
    pub fn add_table(&self, table: TableId) -> Result<(), NoDram> {
        for shard in &self.shards {
            if let Err(error) = shard.lock().add_table(table) {
                self.drop_table(table);
                return Err(error);
            }
        }
        Ok(())
    }
    /// Drops a table with all that is cached of it.
    pub fn drop_table(&self, table: TableId) {
        for shard in &self.shards {
            shard.lock().drop_table(table);
        }
    }
    /// Keys of a table.
    pub fn keys(&self, table: TableId) -> u64 {
        self.shards.iter().filter_map(|shard| shard.lock().keys(table)).map(|keys| keys as u64).sum()
    }
    /// DRAM that it takes.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes() as u64).sum()
    }
    /// What all shards have counted, and DRAM of the index and of cached records.
    pub fn counts(&self) -> (Counts, u64, u64) {
        let (mut counts, mut index, mut cached) = (Counts::default(), 0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            counts.add(shard.counts());
            index += shard.index_bytes() as u64;
            cached += shard.cache_bytes() as u64;
        }
        (counts, index, cached)
    }
}
