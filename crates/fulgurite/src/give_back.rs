//! Pages that containers do not use any more, given back to the pool before a sync.
//!
//! A heap finds its empty pages and lends them. They leave DRAM, are deleted in the pool, and are
//! the heap's again, as free memory. No state is named meanwhile, so each has all of it or nothing.
//! The data is dead in the pool when no kept token sees it. A page that is used again is made anew.
//!
//! No sync begins meanwhile. So the search has a limit of time, and ends for a sync that is wanted
//! or waits. A heap with more free objects than can be walked in that time keeps its pages. A heap
//! with few is walked in any case, however busy the machine is.
//!
//! What a deletion makes old is remembered until a sync. Pages are deleted in parts, as far as
//! there is room for that. The next search goes on with the rest. A heap lists objects of other
//! pages anew, by a job of the runtime's own, which is never refused a place. So the room for that
//! is reserved before, and without it nothing is taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_format::PAGE_BYTES;
use fulgurite_memory::{Address, Heap, Region};
use fulgurite_runtime::{Runtime, StateHeld};
use fulgurite_store::Pool;

use crate::Error;
use crate::registry::Registry;
use crate::store::{Store, is_for_room, pages_of};

/// Pages that are deleted at a time: 64 MiB.
const AT_ONCE: u32 = 1 << 10;

/// How long it waits for pins on them. No sync begins meanwhile.
const PIN_PATIENCE: Duration = Duration::from_millis(250);

/// Before it was asked this often whether to go on, a search does not end for want of time. Each
/// time it has walked 1,024 batches of free objects, some 50 ms where each has to be read.
const ASKED_LEAST: u32 = 16;

/// How long a search may take, and what ends it before.
pub(crate) struct Limit {
    begun: Instant,
    most: Duration,
    /// How long it goes on in any case.
    least: Duration,
    /// Writers have as much room as deletions take.
    with_writers: bool,
    unless: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Limit {
    /// Of this much time from now on.
    pub fn of(most: Duration) -> Limit {
        let (begun, least, unless) = (Instant::now(), Duration::ZERO, Box::new(|| false));
        Limit { begun, most, least, with_writers: false, unless }
    }
    /// Writers go on before the next sync. Deletions leave them half of the room.
    pub fn with_writers(self) -> Limit {
        Limit { with_writers: true, ..self }
    }
    /// It does not end before this time for a sync that waits.
    pub fn at_least(self, least: Duration) -> Limit {
        Limit { least, ..self }
    }
    /// It also ends when this says so.
    pub fn unless(self, is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Limit {
        Limit { unless: Box::new(is_wanted), ..self }
    }
    fn left(&self) -> Duration {
        self.most.saturating_sub(self.begun.elapsed())
    }
    /// Whether no sync waits for the end.
    fn lets(&self, pool: &Pool) -> bool {
        self.begun.elapsed() < self.least || !(self.unless)() && !pool.wants_sync()
    }
    /// Pages that may be deleted before the next sync at most, and 0 where there is no room. That
    /// sync has to save what the heaps have then, and its room stays.
    fn pages(&self, pool: &Pool) -> u32 {
        let pages = pool.pages_to_delete();
        if self.with_writers { pages.div_ceil(2) } else { pages }
    }
}

/// Pages that a heap has lent. It has them again when this is dropped, however a job ends.
struct Lent {
    heap: Arc<Heap>,
    regions: Vec<Region>,
    /// From here on there was no room to delete them.
    left: Option<Address>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        match self.left {
            None => self.heap.put_back(&self.regions),
            Some(left) => self.heap.put_back_left(&self.regions, left),
        }
    }
}

/// Room for changes, until it is dropped: what was changed has claimed its place by then.
struct Reserved<'p> {
    pool: &'p Pool,
    changes: u64,
    refused: bool,
}

impl Reserved<'_> {
    fn take(&mut self, changes: u64) -> bool {
        self.refused = !self.pool.reserve_changes(changes);
        self.changes = if self.refused { 0 } else { changes };
        !self.refused
    }
}
impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.pool.release_changes(self.changes);
    }
}

/// Gives the empty pages of all heaps of which enough was freed back to a pool of this process.
/// Where that fails, they stay free memory of their heaps, and the pool keeps their data. Returns
/// whether it ended for a sync before it had walked all.
pub(crate) fn give_back(runtime: &Runtime, pool: &Store, named: &Registry, limit: &Limit) -> Result<bool, Error> {
    // Over a device each page claims places, and what is deleted can be replayed only after a sync.
    let Store::Here(pool) = pool else { return Ok(false) };
    let mut room = limit.pages(pool);
    for heap in named.heaps().into_iter().filter(|heap| heap.look_for_freed()) {
        // A walk that takes what the first has found takes as long again.
        let (since, most) = (Instant::now(), limit.left() / 2);
        if !limit.lets(pool) {
            return Ok(true);
        }
        // Without room, what it finds could not be given back.
        if most.is_zero() || room == 0 {
            break;
        }
        let held = runtime.hold_state()?;
        let (its, mut asked) = (heap.clone(), 0);
        let mut reserved = Reserved { pool, changes: 0, refused: false };
        let found = held.run(|m| {
            let _section = m.write_section_now()?;
            let goes_on = || {
                asked += 1;
                (asked <= ASKED_LEAST || since.elapsed() < most) && limit.lets(pool)
            };
            let found = its.take_empty_while(m, goes_on, |changes| reserved.take(changes))?;
            Ok(found.map(|regions| Lent { heap: its, regions, left: None }))
        })?;
        // Another heap may list less anew.
        if reserved.refused {
            continue;
        }
        // What was listed has claimed its places. Deletions may use what is left.
        drop(reserved);
        let Some(mut lent) = found else {
            let is_late = since.elapsed() >= most;
            // Another search of this length would not find more. A shorter one may have failed for
            // want of time.
            if is_late && most >= limit.most / 4 {
                heap.note_freed();
            }
            return Ok(!is_late);
        };
        lent.left = delete(pool, &held, &lent.regions, (limit, &mut room))?;
        // Before a state may be named.
        drop(lent);
        drop(held);
    }
    Ok(false)
}

/// Deletes pages, a part at a time, as far as there is room for it. Returns the first that stays.
fn delete(
    pool: &Arc<Pool>,
    held: &StateHeld<'_>,
    regions: &[Region],
    (limit, room): (&Limit, &mut u32),
) -> Result<Option<Address>, Error> {
    let (mut left, mut most, mut is_first) = (regions.to_vec(), AT_ONCE, true);
    while let Some(next) = left.first().map(|region| region.base) {
        let count = most.min(*room);
        if count == 0 || !is_first && !limit.lets(pool) {
            return Ok(Some(next));
        }
        is_first = false;
        let (part, rest) = first_pages(&left, u64::from(count));
        held.drop_changes(part.iter().map(|region| (region.base, region.bytes)), PIN_PATIENCE)?;
        let (its, pages) = (pool.clone(), part.iter().copied().map(pages_of).collect::<Vec<_>>());
        let deleted = held.run(move |m| {
            let _section = m.write_section_now()?;
            Ok(its.delete_all(&pages))
        })?;
        match deleted {
            Ok(()) => {
                *room -= part.iter().map(|region| pages_of(*region).len() as u32).sum::<u32>();
                left = rest;
            }
            Err(error) if is_for_room(&error) => most = count / 2,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The first pages of some regions, at most `pages`, and what is behind them.
fn first_pages(regions: &[Region], pages: u64) -> (Vec<Region>, Vec<Region>) {
    let (mut part, mut rest, mut room) = (Vec::new(), Vec::new(), pages.saturating_mul(PAGE_BYTES as u64));
    for region in regions {
        let (front, behind) = region.split(region.bytes.min(room));
        room -= front.bytes;
        part.extend((front.bytes > 0).then_some(front));
        rest.extend((behind.bytes > 0).then_some(behind));
    }
    (part, rest)
}
