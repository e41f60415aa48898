//! The log's thread: writes objects in the order in which they became dirty, and cleans extents.
//! Over a pool it hands them to the store, which has no need of a log.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use fulgurite_flash::{FlashError, Op};
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_objects::{Batch, Pressure};

use super::lock;
use super::log::{EXTENT_PAGES, Log, Purpose};
use super::packed::{self, Object};
use super::pager::Pager;
use super::queue::BlockingQueue;
use super::settings::LOG_FRAMES;
use super::statistics::count;

/// Objects and bytes of a batch.
const BATCH_OBJECTS: usize = 1024;
const BATCH_BYTES: usize = 128 << 10;
/// After how long a log that could not be written is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// Failures in a row after which accesses fail that would need its room.
const FAILURES: u32 = 5;

/// What is wanted of the log's thread.
#[derive(Debug, Default)]
pub struct Wanted {
    state: Mutex<State>,
    wake: Condvar,
    /// All that was dirty when it was asked has been written, or could not be.
    settled: Condvar,
}

#[derive(Clone, Copy, Default, Debug)]
struct State {
    batches: bool,
    /// Rounds that write everything: asked for, and ended.
    asked: u64,
    ended: u64,
    /// Why the last one that ended did not write everything.
    failed: Option<FlashError>,
}

impl Wanted {
    /// There are objects to be written.
    pub fn batches(&self) {
        let mut state = lock(&self.state);
        if !std::mem::replace(&mut state.batches, true) {
            self.wake.notify_one();
        }
    }
    /// Writes all that is dirty now, and waits.
    ///
    /// # Errors
    /// When some of it could not be written.
    pub fn all(&self) -> Result<(), FlashError> {
        let mut state = lock(&self.state);
        state.asked += 1;
        let mine = state.asked;
        self.wake.notify_one();
        while state.ended < mine {
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failed.map_or(Ok(()), Err)
    }
    /// Sleeps until something is wanted, or is to be tried again. Returns the round that is to
    /// write everything, if any.
    fn wait(&self, again: bool) -> Option<u64> {
        let mut state = lock(&self.state);
        while !again && !state.batches && state.asked == state.ended {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.batches = false;
        (state.asked > state.ended).then_some(state.asked)
    }
    fn end(&self, round: u64, failed: Option<FlashError>) {
        let mut state = lock(&self.state);
        (state.ended, state.failed) = (round, failed);
        self.settled.notify_all();
    }
}

/// The thread's own: see the module.
pub enum Writer {
    /// A log.
    Log(LogWriter),
    /// The pool of the pager.
    Pool,
}

/// A log, and the queue that it is written through.
pub struct LogWriter {
    pub log: Log,
    pub queue: BlockingQueue,
}

impl Writer {
    /// Its life.
    pub fn run(mut self, pager: &Pager) -> ! {
        let (mut batch, mut failures) = (Batch::new(), 0);
        loop {
            let round = pager.wanted.wait(failures > 0);
            let least = if round.is_some() { Pressure::None } else { Pressure::Write };
            let mut result = Ok(());
            for at in 0..pager.shards.len() {
                result = self.write_shard(pager, at, least, &mut batch);
                if result.is_err() {
                    break;
                }
            }
            failures = if result.is_err() { failures + 1 } else { 0 };
            pager.fails(result.err().filter(|_| failures >= FAILURES));
            if let Some(round) = round {
                pager.wanted.end(round, result.err());
            }
            if failures > 0 {
                std::thread::sleep(AGAIN);
            }
        }
    }

    /// Writes batches of a shard while its pressure is this or more, or all that is dirty now.
    fn write_shard(&mut self, pager: &Pager, at: usize, least: Pressure, batch: &mut Batch) -> Result<(), FlashError> {
        let mut left = pager.shards.at(at).cache.unwritten();
        loop {
            if let Writer::Log(log) = self {
                log.clean(pager)?;
            }
            *batch = Batch::new();
            {
                let mut shard = pager.shards.at(at);
                if shard.cache.pressure() < least || left == 0 {
                    return Ok(());
                }
                shard.cache.begin_write(BATCH_OBJECTS, BATCH_BYTES, batch);
                shard.is_writing = true;
            }
            left = if batch.is_empty() { 0 } else { left.saturating_sub(batch.len()) };
            let result = match (&mut *self, &pager.kept) {
                (Writer::Log(log), _) => log.write_batch(pager, batch),
                (Writer::Pool, Some(kept)) => kept.write_batch(pager, batch),
                (Writer::Pool, None) => unreachable!("a pager over a pool has it"),
            };
            let mut shard = pager.shards.at(at);
            shard.cache.end_write(&batch.numbers(), result.is_ok());
            shard.is_writing = false;
            drop(shard);
            pager.shards.notify(at);
            result?;
        }
    }
}

impl LogWriter {
    fn write_batch(&mut self, pager: &Pager, batch: &Batch) -> Result<(), FlashError> {
        let all = batch.objects();
        let (freed, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, bytes)| bytes.is_empty());
        let pages = packed::pack(kept);
        let places = self.write(pager, &pages, Purpose::New)?;
        for (objects, place) in pages.iter().zip(places) {
            for (number, bytes) in objects {
                self.place(pager, *number, bytes.len(), place);
            }
        }
        for (number, _) in freed {
            self.unplace(pager, number);
        }
        Ok(())
    }

    /// Writes pages, and returns where. What could not be written is garbage.
    fn write(&mut self, pager: &Pager, pages: &[Vec<Object<'_>>], purpose: Purpose) -> Result<Vec<u32>, FlashError> {
        let mut places = Vec::with_capacity(pages.len());
        for _ in pages {
            places.push(self.log.take(purpose).ok_or(FlashError::NoSpace)?);
        }
        let mut page = [0; SUBPAGE_BYTES];
        for (pages, places) in pages.chunks(LOG_FRAMES).zip(places.chunks(LOG_FRAMES)) {
            for (frame, objects) in pages.iter().enumerate() {
                packed::encode(objects, &mut page);
                self.queue.set_page(frame, &page);
            }
            let ended = self.queue.transfer(Op::Write, places)?;
            if let Some(error) = ended.iter().find_map(|result| result.err()) {
                count(&pager.statistics.errors, 1);
                return Err(error);
            }
            count(&pager.statistics.log_pages, places.len() as u64);
        }
        Ok(places)
    }

    fn place(&mut self, pager: &Pager, number: u32, size: usize, page: u32) {
        let (mut shard, chunk, index) = pager.shards.of(number);
        let before = shard.places.get(chunk, index);
        shard.places.set(chunk, index, size, page);
        drop(shard);
        self.log.mark_live(page, packed::weight(size));
        if let Some(before) = before {
            self.log.mark_dead(before, packed::weight(size));
        }
    }
    fn unplace(&mut self, pager: &Pager, number: u32) {
        let (mut shard, chunk, index) = pager.shards.of(number);
        let (size, before) = (shard.places.size(chunk), shard.places.get(chunk, index));
        shard.places.clear(chunk, index);
        drop(shard);
        if let (Some(size), Some(before)) = (size, before) {
            self.log.mark_dead(before, packed::weight(size));
        }
    }

    /// Cleans extents until there is enough that is free.
    fn clean(&mut self, pager: &Pager) -> Result<(), FlashError> {
        while self.log.is_low() {
            let Some(victim) = self.log.victim() else { return Ok(()) };
            self.clean_one(pager, victim)?;
        }
        Ok(())
    }

    /// Moves what lives in an extent. What is dirty in the cache as well is let go.
    fn clean_one(&mut self, pager: &Pager, extent: u32) -> Result<(), FlashError> {
        let all: Vec<u32> = (extent * EXTENT_PAGES..(extent + 1) * EXTENT_PAGES).collect();
        let ended = self.queue.transfer(Op::Read, &all)?.to_vec();
        let mut live: Vec<(u32, u32, Vec<u8>)> = Vec::new();
        for (frame, (page, ended)) in all.iter().zip(ended).enumerate() {
            let read = self.queue.page(frame);
            let Some(objects) = ended.ok().and_then(|()| packed::decode(&read)) else {
                // A page whose write failed has nothing that lives.
                continue;
            };
            for (number, bytes) in objects {
                let (mut shard, chunk, index) = pager.shards.of(number);
                if shard.places.get(chunk, index) != Some(*page) {
                    continue;
                }
                if shard.cache.is_dirty(number) {
                    shard.places.clear(chunk, index);
                    drop(shard);
                    self.log.mark_dead(*page, packed::weight(bytes.len()));
                } else {
                    drop(shard);
                    live.push((number, *page, bytes.to_vec()));
                }
            }
        }
        count(&pager.statistics.moved, live.len() as u64);
        let pages = packed::pack(live.iter().map(|(number, _, bytes)| (*number, bytes.as_slice())).collect());
        let places = self.write(pager, &pages, Purpose::Moved)?;
        for (objects, place) in pages.iter().zip(places) {
            for (number, bytes) in objects {
                self.place(pager, *number, bytes.len(), place);
            }
        }
        if self.log.is_full(extent) {
            // Some of what lives in it could not be read.
            count(&pager.statistics.errors, 1);
            self.log.lose(extent);
        }
        Ok(())
    }
}
