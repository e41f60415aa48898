//! Objects: contents of up to 4096 bytes that are cached by themselves and written packed, next to
//! the frames and under the same cap.
//!
//! ```text
//!   get ---> shard: lock, copy, unlock                        DRAM only
//!    | miss
//!    +-----> fetch into a frame of its own, copy, enter        one read for all that want it
//!   put ---> shard, dirty --- pressure, or a sync ---> batch ---> pool, packed ---> clean
//! ```
//!
//! Invariants:
//! * A shard's lock is never held across a switch of fibers. The store's lock may be taken inside.
//! * Between the cut of a sync and the naming of its token no batch begins but the sync's own. So a
//!   token has all objects that were changed before its cut, and no later content.
//! * An object's subpage is never in a frame that others find.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use fulgurite_flash::{Flash, FlashError, Objects as Packs};
use fulgurite_objects::{Batch, CACHE_BYTES_MAX, CACHE_BYTES_MIN, Cache, Pressure, Ticket};
use parking_lot::Mutex;

/// Shards, where there is enough memory: more than workers, so that two seldom want the same.
const SHARDS: usize = 64;
/// Bytes of a shard that there is enough memory for.
const SHARD_BYTES: usize = 1 << 20;
/// The most bytes of a shard.
const SHARD_BYTES_MAX: usize = 64 << 20;
/// Shards of a cache whose size changes. They change one after the other.
const SHARDS_MOVING_MIN: usize = 16;
/// The least bytes of such a cache.
pub(crate) const MOVING_BYTES_MIN: u64 = (SHARDS_MOVING_MIN * CACHE_BYTES_MIN) as u64;
/// Objects and bytes of a batch: 32 flash pages of them.
const BATCH_OBJECTS: usize = 1024;
const BATCH_BYTES: usize = 128 << 10;
/// Batches under way at a time.
const BATCHES: usize = 4;
/// Batches of a sync under way at a time. The sync waits for them.
const BATCHES_OF_SYNC: usize = 16;

/// Words that fibers wait at for reads of others, by number.
const ARRIVALS: usize = 256;

/// A bug on purpose: what the tests must find.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlantedInObjects {
    /// Hold: batches of jobs begin between the cut of a sync and its token.
    NotHeld,
    /// Hold: a sync does not write what was changed before its cut.
    LeftOut,
}

impl PlantedInObjects {
    /// All of them.
    pub const ALL: [PlantedInObjects; 2] = [PlantedInObjects::NotHeld, PlantedInObjects::LeftOut];
}

/// The object cache of all workers.
pub(crate) struct Objects {
    shards: Box<[CachePadded<Mutex<Cache>>]>,
    /// How many reads have ended: of objects whose numbers have the same remainder.
    arrivals: Box<[AtomicU64]>,
    under_way: Mutex<Vec<UnderWay>>,
    /// A sync is between its cut and its token.
    held: AtomicBool,
    planted: Option<PlantedInObjects>,
}

/// A batch that the pool has not recorded yet.
struct UnderWay {
    number: u64,
    shard: usize,
    objects: Vec<u32>,
}

/// What a look-up found.
pub(crate) enum Found<R> {
    Here(R),
    /// It has another length, which is this.
    OtherLength(usize),
    /// It is to be read from flash, by this name.
    Miss(Ticket),
    /// It is being read. That has ended when [`Objects::arrivals`] is not this any more.
    Joined(u64),
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// It is made. The pressure says whether a batch should be written.
    Done(Pressure),
    /// Nothing is changed before a batch was written.
    Wait,
    /// The pool has no room for one more change.
    Refused(FlashError),
}

/// Whether a medium packs objects.
pub(crate) fn packs(flash: &dyn Flash) -> bool {
    flash.backing().is_some_and(|backing| backing.objects().is_some())
}

/// The object cache of a runtime with `bytes` bytes for it. `least` and `most` are other sizes that
/// it may take.
pub(crate) fn cache_of(flash: &dyn Flash, bytes: u64, least: u64, most: u64) -> Option<Objects> {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    (bytes > 0 && packs(flash)).then(|| Objects::new(size(bytes), shards_of(size(bytes), size(least), size(most))))
}

/// Shards of a cache of `bytes` bytes, which may shrink and grow.
fn shards_of(bytes: usize, least: usize, most: usize) -> usize {
    let wanted = (bytes / SHARD_BYTES).clamp(1, SHARDS).max(most.div_ceil(SHARD_BYTES_MAX));
    if least == most { wanted } else { wanted.max(SHARDS_MOVING_MIN).min(least / CACHE_BYTES_MIN) }
}

impl Objects {
    /// A cache of `count` shards that takes `bytes` bytes, [`CACHE_BYTES_MIN`] or more for each
    /// shard.
    pub fn new(bytes: usize, count: usize) -> Objects {
        let shard = |_| CachePadded::new(Mutex::new(Cache::new(bytes / count)));
        Objects {
            shards: (0..count).map(shard).collect(),
            arrivals: (0..ARRIVALS).map(|_| AtomicU64::new(0)).collect(),
            under_way: Mutex::new(Vec::new()),
            held: AtomicBool::new(false),
            planted: None,
        }
    }
    /// Plants a bug.
    pub fn plant(mut self, bug: Option<PlantedInObjects>) -> Objects {
        self.planted = bug;
        self
    }
    pub fn has(&self, bug: PlantedInObjects) -> bool {
        self.planted == Some(bug)
    }
    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }
    /// DRAM that it takes.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes() as u64).sum()
    }
    /// What resizing a shard takes in addition to the larger of both sizes, on the way to
    /// `bytes_of_all` bytes for all.
    pub fn resize_bytes(&self, bytes_of_all: u64) -> u64 {
        let larger = self.bytes().max(bytes_of_all) / self.shards.len() as u64;
        Cache::resize_bytes(larger as usize) as u64
    }
    /// Misses of objects that had left a short time ago.
    pub fn returned(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().counts().returned).sum()
    }
    /// With how many bytes more they would have been hits.
    pub fn remembered_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().remembered_bytes() as u64).sum()
    }
    /// Gives a shard its part of `bytes_of_all` bytes. False when more waits to be written than
    /// fits.
    pub fn resize_shard(&self, at: usize, bytes_of_all: u64) -> bool {
        let bytes = (bytes_of_all / self.shards.len() as u64) as usize;
        self.shards[at].lock().resize(bytes.clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX)).is_ok()
    }

    /// The most changes that a sync may have to write.
    pub fn changes_max(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().unwritten_max() as u64).sum()
    }

    #[inline]
    fn of(&self, number: u32) -> usize {
        // Neighbours are in different shards, and the cache spreads by other bits.
        number as usize % self.shards.len()
    }
    /// What `read` makes of an object of this length.
    #[inline]
    pub fn get<R>(&self, number: u32, len: usize, read: impl FnOnce(&[u8]) -> R) -> Found<R> {
        let mut shard = self.shards[self.of(number)].lock();
        let found = shard.get(number, |bytes| if bytes.len() == len { Ok(read(bytes)) } else { Err(bytes.len()) });
        match found {
            Some(Ok(result)) => Found::Here(result),
            // A reader with an outdated length may have brought it in.
            Some(Err(got)) if !shard.drop_clean(number) => Found::OtherLength(got),
            _ if shard.is_being_read(number) => Found::Joined(self.arrivals(number).load(Ordering::Relaxed)),
            _ => Found::Miss(shard.begin_read(number)),
        }
    }
    /// What a fiber that has joined a read waits at.
    pub fn arrivals(&self, number: u32) -> &AtomicU64 {
        &self.arrivals[number as usize % ARRIVALS]
    }
    /// That read has ended. Returns whether what it found is what flash has. The caller wakes those
    /// that have joined it.
    pub fn end_read(&self, number: u32, ticket: Ticket, bytes: Option<&[u8]>) -> bool {
        let is_so = self.shards[self.of(number)].lock().end_read(number, ticket, bytes);
        self.arrivals(number).fetch_add(1, Ordering::Relaxed);
        is_so
    }
    /// Changes an object. `claim` is asked when it was as in the pool: each object takes a place
    /// there by itself, because its old content has to be remembered by itself.
    pub fn put(&self, number: u32, bytes: &[u8], claim: impl FnOnce() -> Result<(), FlashError>) -> Put {
        let mut shard = self.shards[self.of(number)].lock();
        if shard.pressure() == Pressure::Wait {
            return Put::Wait;
        }
        if !shard.is_dirty(number)
            && let Err(error) = claim()
        {
            return Put::Refused(error);
        }
        if shard.put(number, bytes).is_err() {
            return Put::Wait;
        }
        Put::Done(shard.pressure())
    }
    /// Whether nothing of the shard of this object is changed before a batch was written.
    pub fn has_to_wait(&self, number: u32) -> bool {
        self.shards[self.of(number)].lock().pressure() == Pressure::Wait
    }
    /// Frees an object, which nothing leads to any more. Cannot fail: where there is no room to
    /// note it, here or in the pool, its content stays in the pool until its number is used again.
    /// Returns how much waits to be written.
    pub fn free(&self, number: u32, claim: impl FnOnce() -> Result<(), FlashError>) -> Pressure {
        let mut shard = self.shards[self.of(number)].lock();
        if shard.is_dirty(number) || claim().is_ok() {
            let _ = shard.put(number, &[]);
        }
        shard.pressure()
    }

    /// Begins to write a batch of the shard of this object, if it may.
    ///
    /// # Errors
    /// When the pool takes none.
    pub fn write_shard_of(&self, number: u32, pool: &dyn Packs) -> Result<(), FlashError> {
        self.write_shard(self.of(number), pool)
    }
    /// Begins to write a batch of a shard, if it may.
    ///
    /// # Errors
    /// As [`Objects::write_shard_of`].
    pub fn write_shard(&self, at: usize, pool: &dyn Packs) -> Result<(), FlashError> {
        self.end_batches(pool)?;
        let held = self.held.load(Ordering::Acquire) && !self.has(PlantedInObjects::NotHeld);
        if held || self.under_way.lock().len() >= BATCHES {
            return Ok(());
        }
        self.begin_batch(at, pool).map(drop)
    }
    /// Begins a batch of a shard. Returns how many objects it has.
    fn begin_batch(&self, at: usize, pool: &dyn Packs) -> Result<usize, FlashError> {
        let mut batch = Batch::new();
        // Batches of a shard begin in the order in which their objects were taken.
        let mut under_way = self.under_way.lock();
        self.shards[at].lock().begin_write(BATCH_OBJECTS, BATCH_BYTES, &mut batch);
        if batch.is_empty() {
            return Ok(0);
        }
        let mut objects = batch.numbers();
        let begun = pool.begin_write(&batch.objects());
        let taken = begun.map_or(0, |(taken, _)| taken);
        let rest = objects.split_off(taken);
        if !rest.is_empty() {
            self.shards[at].lock().end_write(&rest, false);
        }
        let (_, number) = begun?;
        if taken > 0 {
            under_way.push(UnderWay { number, shard: at, objects });
        }
        Ok(taken)
    }
    /// Checks which batches have ended.
    ///
    /// # Errors
    /// Of the first that failed. Its objects are dirty as before.
    fn end_batches(&self, pool: &dyn Packs) -> Result<(), FlashError> {
        let Some(mut under_way) = self.under_way.try_lock() else { return Ok(()) };
        let mut result = Ok(());
        // In their order, as the pool records them.
        while let Some(first) = under_way.first()
            && let Some(ended) = pool.written(first.number)
        {
            let UnderWay { shard, objects, .. } = under_way.remove(0);
            self.shards[shard].lock().end_write(&objects, ended.is_ok());
            result = result.and(ended);
        }
        result
    }

    /// Objects that differ from the pool.
    pub fn changes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().unwritten() as u64).sum()
    }
    /// Writes what is dirty now, and waits: all of it, where nothing changes meanwhile. `pause`
    /// while nothing ends, with an error when that has taken too long.
    ///
    /// # Errors
    /// The pool's errors, and the errors of `pause`.
    pub fn write_all(
        &self,
        pool: &dyn Packs,
        mut pause: impl FnMut(usize) -> Result<(), FlashError>,
    ) -> Result<(), FlashError> {
        if self.has(PlantedInObjects::LeftOut) {
            return Ok(());
        }
        let mut left: Vec<usize> = self.shards.iter().map(|shard| shard.lock().unwritten()).collect();
        loop {
            self.end_batches(pool)?;
            for (at, left) in left.iter_mut().enumerate() {
                while *left > 0 && self.under_way.lock().len() < BATCHES_OF_SYNC {
                    let taken = self.begin_batch(at, pool)?;
                    if taken == 0 {
                        break;
                    }
                    *left = left.saturating_sub(taken);
                }
                // Others may have written it meanwhile.
                if *left > 0 && self.shards[at].lock().unwritten() == 0 {
                    *left = 0;
                }
            }
            let waits = self.under_way.lock().len() + left.iter().sum::<usize>();
            if waits == 0 {
                return Ok(());
            }
            pause(waits)?;
        }
    }
    /// Waits until no batch is under way.
    ///
    /// # Errors
    /// As [`Objects::write_all`].
    pub fn settle(
        &self,
        pool: &dyn Packs,
        mut pause: impl FnMut(usize) -> Result<(), FlashError>,
    ) -> Result<(), FlashError> {
        loop {
            // One that failed has changed nothing.
            let _ = self.end_batches(pool);
            match self.under_way.lock().len() {
                0 => return Ok(()),
                waits => pause(waits)?,
            }
        }
    }
    /// Nothing begins but a sync's own batches, or again.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }
    /// Forgets everything. No batch is under way.
    pub fn forget(&self) {
        self.under_way.lock().clear();
        for shard in &self.shards {
            shard.lock().forget();
        }
    }
    /// Forgets the objects of some subpages.
    pub fn forget_range(&self, subpages: &std::ops::Range<u32>) {
        self.shards.iter().for_each(|shard| shard.lock().forget_range(subpages));
    }
}
