//! Pages that containers do not use any more, given back to the pool before a sync.
//!
//! A heap finds its empty pages and lends them. They leave DRAM, are deleted in the pool, and are
//! the heap's again, as free memory. No state is named meanwhile, so each has all of it or nothing.
//! The data is dead in the pool when no kept token sees it. A page that is used again is made anew.

use fulgurite_memory::Region;
use fulgurite_runtime::{Runtime, StateHeld};

use crate::Error;
use crate::registry::Registry;
use crate::store::{Store, pages_of};

/// Gives the empty pages of all heaps of which enough was freed back to a pool of this process.
/// Where that fails, they stay free memory of their heaps, and the pool keeps what lay there.
pub(crate) fn give_back(runtime: &Runtime, pool: &Store, named: &Registry) -> Result<(), Error> {
    // Over a device each page claims places, and what is deleted can be replayed only after a sync.
    let Store::Here(_) = pool else { return Ok(()) };
    for heap in named.heaps().into_iter().filter(|heap| heap.has_to_give()) {
        let held = runtime.hold_state()?;
        let its = heap.clone();
        let regions = runtime.run(move |m| its.take_empty(m))?;
        let deleted = delete(runtime, pool, &held, &regions);
        heap.put_back(&regions);
        deleted?;
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
        let _section = m.write_section()?;
        Ok(all.into_iter().try_for_each(|region| pool.delete_pages(pages_of(region))))
    })??;
    Ok(())
}
