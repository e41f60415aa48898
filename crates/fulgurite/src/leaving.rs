//! Containers that are removed although their pool cannot let go of all of it before a sync.
//!
//! What a deletion makes old is remembered until a sync, in DRAM that is bounded
//! ([`Pool::pages_to_delete`]). So a large container loses its name at once, its pages in parts:
//!
//! ```text
//! its name leaves, last pages -> sync -> those before -> sync -> ... -> first pages, its addresses
//! ```
//!
//! No state is named within a part. So each state has the whole container, or one that is leaving.
//! Removal goes on after each sync, also in a later process. The first page is removed last,
//! because it tells which ranges of addresses there are.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_format::{Address, PAGE_BYTES, RootEntry};
use fulgurite_memory::{Directory, Region};
use fulgurite_runtime::{Context, Runtime, StateHeld};
use fulgurite_store::{Pool, PoolError};

use crate::Error;
use crate::registry::Registry;
use crate::store::{NotDeleted, Store, is_for_room, pages_of};

/// What is left to be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// Less than before.
    Less,
    /// As much as before: there was no room.
    Same,
}

/// The ranges of a container: its region, and those that it was given since.
fn ranges_of(held: &StateHeld<'_>, root: &RootEntry) -> Result<Vec<Region>, Error> {
    let first = Region { base: root.address, bytes: root.bytes };
    let root = root.clone();
    let mut ranges = held.run(move |m| fulgurite_memory::further_ranges(m, &root))?;
    ranges.insert(0, first);
    Ok(ranges)
}

/// Removes the entry of a container without pages, and gives its addresses back.
fn let_go(m: &mut Context, directory: &Directory, name: &str, further: &[Region]) -> Result<(), Error> {
    let removed = directory.remove(m, name).map(drop);
    let given_back = further.iter().try_for_each(|range| directory.give_back(m, *range));
    Ok(removed.and(given_back)?)
}

/// Removes the container under a root, which nobody uses any more. Where there is not room for all
/// of it, the container is leaving from now on.
///
/// # Errors
/// [`Error::Pool`] where there is no room for any of it, or a page is read-only. [`Error::Sync`]
/// when jobs have some of it pinned. Nothing is removed then. [`Error::Access`] or [`Error::Root`]
/// when the directory cannot be written, as in [`crate::Named::remove`].
pub(crate) fn remove(pool: &Store, named: &Registry, held: &StateHeld<'_>, root: &RootEntry) -> Result<Left, Error> {
    let ranges = ranges_of(held, root)?;
    // What is under way goes first, so that nothing of it is written when the pages are gone.
    ranges.iter().try_for_each(|range| held.take_out(range.base, range.bytes, true))?;
    let (its, directory, name, all) = (pool.clone(), named.directory.clone(), root.name.clone(), ranges.clone());
    let left: Result<Option<RootEntry>, Error> = held.run(move |m| {
        // The pages go first, all of them or none, as that may be refused. Its data is dead when
        // no token sees it. No sync is made meanwhile for which to wait.
        let _section = m.write_section_now()?;
        let pages: Vec<Range<u32>> = all.iter().copied().map(pages_of).collect();
        let Err(NotDeleted { error, some }) = its.delete_all(&pages) else {
            return Ok(let_go(m, &directory, &name, &all[1..]).map(|()| None));
        };
        let may_go_on = match &its {
            Store::Here(pool) => some || is_for_room(&error) && pool.pages_to_delete() > 0,
            Store::There(_) => false,
        };
        if may_go_on {
            return Ok(directory.leave(m, &name).map(Some).map_err(Error::from));
        }
        // Where some are gone, so is the container.
        let gone = if some { let_go(m, &directory, &name, &all[1..]) } else { Ok(()) };
        Ok(Err(gone.err().unwrap_or_else(|| error.into())))
    })?;
    match (left?, pool) {
        (Some(root), Store::Here(here)) => {
            named.leaving.store(true, Ordering::Release);
            // What fails now goes on after the next sync.
            Ok(go_on_with(here, named, held, &root).unwrap_or(Left::Same))
        }
        _ => {
            ranges.iter().try_for_each(|range| held.take_out(range.base, range.bytes, false))?;
            Ok(Left::Nothing)
        }
    }
}

/// Goes on with what is leaving, as far as there is room.
///
/// # Errors
/// What the pool or the directory says. What is leaving goes on at the next call.
pub(crate) fn go_on(runtime: &Runtime, pool: &Store, named: &Registry) -> Result<Left, Error> {
    let Store::Here(pool) = pool else { return Ok(Left::Nothing) };
    if !named.leaving.load(Ordering::Acquire) {
        return Ok(Left::Nothing);
    }
    let held = runtime.hold_state()?;
    let directory = named.directory.clone();
    let leaving = held.run(move |m| Ok(directory.leaving(m)))??;
    named.leaving.store(!leaving.is_empty(), Ordering::Release);
    let mut result = Ok(Left::Nothing);
    for root in &leaving {
        // One that cannot be read does not keep the others.
        match go_on_with(pool, named, &held, root) {
            Ok(Left::Nothing) => {}
            Ok(left) => return result.and(Ok(left)),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

/// Deletes the last of the pages that there are of one that is leaving.
fn go_on_with(pool: &Arc<Pool>, named: &Registry, held: &StateHeld<'_>, root: &RootEntry) -> Result<Left, Error> {
    let ranges = ranges_of(held, root)?;
    // Writers have as much.
    let mut room = pool.pages_to_delete().div_ceil(2) as usize;
    while room > 0 {
        let (part, is_all) = last_pages(pool, &ranges, room);
        for span in spans(&ranges, &part, is_all) {
            held.take_out(span.base, span.bytes, false)?;
        }
        let (its, directory, name, further) =
            (pool.clone(), named.directory.clone(), root.name.clone(), ranges[1..].to_vec());
        let left: Result<Left, Error> = held.run(move |m| {
            let _section = m.write_section_now()?;
            Ok(match delete(&its, &part) {
                Ok(()) if is_all => let_go(m, &directory, &name, &further).map(|()| Left::Nothing),
                Ok(()) => Ok(Left::Less),
                Err(error) if is_for_room(&error) => Ok(Left::Same),
                Err(error) => Err(error.into()),
            })
        })?;
        match left? {
            Left::Same => room /= 2,
            left => {
                if left == Left::Nothing {
                    ranges.iter().try_for_each(|range| held.take_out(range.base, range.bytes, false))?;
                }
                return Ok(left);
            }
        }
    }
    Ok(Left::Same)
}

/// The last pages that there are in these ranges, at most `most`, ascending. Also whether these are
/// all.
fn last_pages(pool: &Pool, ranges: &[Region], most: usize) -> (Vec<u32>, bool) {
    let pages = ranges.iter().rev().flat_map(|range| pages_of(*range).rev());
    let inside = |page: &u32| *page < pool.geometry().pages();
    let there = pages.filter(|page| inside(page) && pool.permissions(*page).is_some());
    let mut part: Vec<u32> = there.take(most.saturating_add(1)).collect();
    let is_all = part.len() <= most;
    part.truncate(most);
    part.sort_unstable();
    (part, is_all)
}

/// What is to be taken out of DRAM for some pages: from the first to the last in each range.
fn spans(ranges: &[Region], part: &[u32], is_all: bool) -> Vec<Region> {
    if is_all {
        return ranges.to_vec();
    }
    let page = PAGE_BYTES as u64;
    let span = |range: &Region| {
        let pages = pages_of(*range);
        let inside = || part.iter().copied().filter(|page| pages.contains(page));
        let (first, last) = (u64::from(inside().min()?), u64::from(inside().max()?));
        Some(Region { base: Address::from_linear(first * page), bytes: (last + 1 - first) * page })
    };
    ranges.iter().filter_map(span).collect()
}

/// Deletes ascending pages.
fn delete(pool: &Pool, pages: &[u32]) -> Result<(), PoolError> {
    let runs: Vec<Range<u32>> =
        pages.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[0] + run.len() as u32).collect();
    pool.delete_all(&runs)
}
