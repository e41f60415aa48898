//! Mends what is there twice or can be made again, leaves behind what is not needed, and gives up
//! what cannot be read. Nothing that can still be read is written over.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_format::{Header, Kind, Owner, PageBuffer, zero_page};

use super::check::{WrongCopy, damage, superblock_damage};
use super::error::AdminError;
use super::files::{OpenedPool, PoolFiles};
use super::finding::{Damage, Finding, read_raw};
use super::metadata::broken;
use super::{Step, Watch, report};
use crate::driver::Driver;
use crate::recover::ReadPages;
use crate::store::{StoreConfig, summary_page};

/// What a repair reports while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RepairEvent {
    /// This is damaged, or there is nothing to be done.
    Found(String),
    /// This was written.
    Done(String),
}

/// The pages of the summaries of these extents, made of the page table.
fn summaries(opened: &OpenedPool, extents: &BTreeSet<u32>) -> Vec<(u32, PageBuffer)> {
    let (pool, g) = (opened.pool(), opened.pool().geometry());
    let mut owners: BTreeMap<u32, Vec<Owner>> =
        extents.iter().map(|extent| (*extent, vec![Owner::NONE; g.data_pages() as usize])).collect();
    let mut live = Vec::new();
    for page in 0..g.pages() {
        live.clear();
        pool.live_pages(page, &mut live).expect("all tables are in DRAM here");
        for l in &live {
            if l.object.is_some() {
                // A walk finds the owners of objects where their extent has no summary.
                if let Some(owners) = owners.get_mut(&g.extent_of(l.place)) {
                    owners.clear();
                }
            } else if let Some(owners) = owners.get_mut(&g.extent_of(l.place)) {
                let index = (l.place - g.first_of(g.extent_of(l.place))) as usize;
                owners[index] = Owner { subpage: l.subpage, checksum: l.checksum };
            }
        }
    }
    let mut pages = Vec::new();
    for (extent, owners) in owners {
        let first = g.first_of(extent) + g.data_pages();
        if owners.is_empty() {
            pages.extend((first..g.first_of(extent) + g.extent_pages).map(|place| (place, zero_page())));
        }
        for (place, owners) in (first..).zip(owners.chunks(Owner::PER_PAGE)) {
            pages.push((place, summary_page(pool.id(), place, place - first, 0, owners)));
        }
    }
    pages
}

/// A copy of an anchor, made from its twin; zeros if that cannot be used either, which is an anchor
/// that does not count.
fn anchor(driver: &mut Driver, opened: &OpenedPool, place: u32) -> (PageBuffer, bool) {
    let first = opened.pool().geometry().first_of(opened.pool().geometry().extent_of(place));
    // The two copies of one are at an even number and the next.
    let other = first + ((place - first) ^ 1);
    let twin = driver.read(other, 0).ok().and_then(|page| {
        let (header, _, payload) = Header::open(&page).ok()?;
        let is_one = header.kind == Kind::Anchor && header.place == other && header.pool == opened.pool().id();
        is_one.then(|| Header { place, ..header }.page(payload).0)
    });
    twin.map_or_else(|| (zero_page(), false), |page| (page, true))
}

/// Repairs what was found on a medium, which was locked since. Returns what was done, in sentences.
fn mend(files: PoolFiles, config: StoreConfig, found: &[Finding], watch: Watch<'_>) -> Result<Vec<String>, AdminError> {
    let path = files.path.clone();
    // The lists of members are written by this.
    let opened = files.open(config)?;
    let error = |source| AdminError::Pool { path: path.clone(), source };
    let mut done = Vec::new();
    let places = |kind: Damage| found.iter().filter(move |f| f.kind == kind).filter_map(|f| f.flash_page);
    done.extend(places(Damage::Member).map(|place| format!("repaired: the list of members on flash page {place}")));
    let mut driver = Driver::new(&*opened.medium, 4)?;
    for place in places(Damage::Anchor) {
        let (page, from_twin) = anchor(&mut driver, &opened, place);
        driver.write_all(vec![(place, page)])?;
        let how =
            if from_twin { "written again from its other copy" } else { "removed, with its other copy an older one" };
        done.push(format!("repaired: the anchor on flash page {place}, {how}"));
    }
    // What cannot be read, before anything is copied.
    for finding in found.iter().filter(|f| matches!(f.kind, Damage::Data | Damage::OlderData)) {
        report(watch, Step::Data, 0, 1)?;
        let (Some(subpage), Some(place)) = (finding.subpage, finding.flash_page) else { continue };
        if opened.pool().mark_lost(subpage, place).map_err(error)? {
            let what = if finding.kind == Damage::Data { "subpage" } else { "an older version of subpage" };
            let first = finding.first_byte.unwrap_or(0);
            done.push(format!(
                "lost: {what} {subpage} (bytes {first} to {} of the data): reads of it fail",
                first + 4095
            ));
        }
    }
    // A new checkpoint, twice: then no anchor that counts leads to what was there before.
    for _ in 0..2 {
        opened.pool().checkpoint().map_err(error)?;
    }
    let extents: BTreeSet<u32> =
        places(Damage::Summary).map(|place| opened.pool().geometry().extent_of(place)).collect();
    let in_use: BTreeSet<u32> = opened.pool().uses().data.into_iter().collect();
    let extents: BTreeSet<u32> = extents.intersection(&in_use).copied().collect();
    driver.write_all(summaries(&opened, &extents))?;
    done.extend(extents.iter().map(|extent| format!("repaired: the summary of extent {extent}")));
    // What is still broken in the extents of the journal is before its beginning.
    let journal: Vec<u32> = places(Damage::Journal).collect();
    let mut left = Vec::new();
    read_raw(&opened.medium, Step::Metadata, &journal, watch, |place, content| {
        if content.is_ok_and(|content| broken(content).is_some()) {
            left.push(place);
        }
    })?;
    driver.write_all(left.into_iter().map(|place| (place, zero_page())).collect())?;
    done.extend(
        journal.iter().map(|place| format!("repaired: flash page {place} is behind a new checkpoint, and not needed")),
    );
    Ok(done)
}

/// Mends the superblock, then all else. `on_event` is called with what is found and done. One lock
/// is held over all of it, because what is written is for what was found. `accept_loss`: also opens
/// a pool of which something that was promised is lost, for good.
///
/// # Errors
/// When something could not be repaired. What was reported to `on_event` is done.
pub fn repair(
    mut files: PoolFiles,
    config: StoreConfig,
    accept_loss: bool,
    watch: Watch<'_>,
    on_event: &mut dyn FnMut(RepairEvent),
) -> Result<(), AdminError> {
    let copies = superblock_damage(&files.flash)?;
    if copies.is_empty() {
        on_event(RepairEvent::Found("both copies of the superblock are whole: there is nothing to repair".to_owned()));
    }
    for WrongCopy { place, right, sentence, .. } in copies {
        on_event(RepairEvent::Found(format!("damaged: {sentence}")));
        Driver::new(&*files.flash, 4)?.write_all(vec![(place, right)])?;
        on_event(RepairEvent::Done(format!("repaired: copy {place} of the superblock")));
    }
    if accept_loss {
        let opened = files.open(StoreConfig { accept_loss: true, ..config })?;
        on_event(match opened.report.lost {
            Some(loss) => RepairEvent::Done(format!("accepted: {loss}")),
            None => RepairEvent::Found("nothing that was promised is lost: there is nothing to accept".to_owned()),
        });
        files = opened.into_files();
    }
    let looked = files.inspect(config, None)?;
    let found = damage(&looked, watch)?.damaged;
    let found: Vec<Finding> = found.into_iter().filter(|finding| !finding.given_up).collect();
    found.iter().for_each(|finding| on_event(RepairEvent::Found(finding.sentence.clone())));
    if !found.is_empty() {
        mend(looked.into_files(), config, &found, watch)?
            .into_iter()
            .for_each(|done| on_event(RepairEvent::Done(done)));
    }
    Ok(())
}
