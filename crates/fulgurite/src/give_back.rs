//! Pages that containers do not use any more, given back to the pool before a sync.
//!
//! A heap finds its empty pages and lends them. They leave DRAM, are deleted in the pool, and are
//! the heap's again, as free memory. No state is named meanwhile, so each has all of it or nothing.
//! The data is dead in the pool when no kept token sees it. A page that is used again is made anew.
//!
//! No sync begins meanwhile. So the search has a limit of time, and ends for a sync that is wanted
//! or waits. A heap with more free objects than can be looked at in that time keeps its pages. One
//! of few is looked at in any case, however busy the machine is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_memory::{Heap, Region};
use fulgurite_runtime::{Runtime, StateHeld};

use crate::Error;
use crate::registry::Registry;
use crate::store::{Store, pages_of};

/// Before so many questions whether to go on, a search does not end for want of time. They are of
/// 1,024 batches of free objects, some 50 ms where each has to be read.
const ASKED_LEAST: u32 = 16;

/// How long a search may take, and what ends it before.
pub(crate) struct Limit {
    begun: Instant,
    most: Duration,
    unless: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Limit {
    /// Of so much time from now on.
    pub fn of(most: Duration) -> Limit {
        Limit { begun: Instant::now(), most, unless: Box::new(|| false) }
    }
    /// It also ends when this says so.
    pub fn unless(self, is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Limit {
        Limit { unless: Box::new(is_wanted), ..self }
    }
    fn left(&self) -> Duration {
        self.most.saturating_sub(self.begun.elapsed())
    }
    /// Whether no sync waits for the end.
    fn lets(&self, pool: &Store) -> bool {
        !(self.unless)() && !pool.wants_sync()
    }
}

/// Pages that a heap has lent. It has them again when this is dropped, however a job ends.
struct Lent {
    heap: Arc<Heap>,
    regions: Vec<Region>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.heap.put_back(&self.regions);
    }
}

/// Gives the empty pages of all heaps of which enough was freed back to a pool of this process.
/// Where that fails, they stay free memory of their heaps, and the pool keeps what lay there.
pub(crate) fn give_back(runtime: &Runtime, pool: &Store, named: &Registry, limit: &Limit) -> Result<(), Error> {
    // Over a device each page claims places, and what is deleted can be replayed only after a sync.
    let Store::Here(_) = pool else { return Ok(()) };
    for heap in named.heaps().into_iter().filter(|heap| heap.has_to_give()) {
        // A walk that takes what the first has found takes as long again.
        let (since, most) = (Instant::now(), limit.left() / 2);
        if most.is_zero() || !limit.lets(pool) {
            break;
        }
        let held = runtime.hold_state()?;
        let (its, mut asked) = (heap.clone(), 0);
        let found = runtime.run(move |m| {
            let _section = m.write_section_now()?;
            let goes_on = || {
                asked += 1;
                (asked <= ASKED_LEAST || since.elapsed() < most) && limit.lets(pool)
            };
            let found = its.take_empty_while(m, goes_on)?;
            Ok(found.map(|regions| Lent { heap: its, regions }))
        })?;
        let Some(lent) = found else {
            // Another search of so much time would not find more. One of less may have failed for
            // that.
            if since.elapsed() >= most && most >= limit.most / 4 {
                heap.note_freed();
            }
            break;
        };
        delete(runtime, pool, &held, &lent.regions)?;
        // Before a state may be named.
        drop(lent);
        drop(held);
    }
    Ok(())
}

fn delete(runtime: &Runtime, pool: &Store, held: &StateHeld<'_>, regions: &[Region]) -> Result<(), Error> {
    if regions.is_empty() {
        return Ok(());
    }
    held.drop_changes(regions.iter().map(|region| (region.base, region.bytes)))?;
    let (pool, all) = (pool.clone(), regions.to_vec());
    runtime.run(move |m| {
        let _section = m.write_section_now()?;
        Ok(all.into_iter().try_for_each(|region| pool.delete_pages(pages_of(region))))
    })??;
    Ok(())
}
