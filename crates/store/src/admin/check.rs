//! Reads everything of a pool that is needed, and names what is damaged.
//!
//! It checks both copies of the superblock, and what recovery reads: anchors, checkpoint and
//! journal. It checks the tables against each other, and all metadata pages that were written
//! ([`super::metadata`]). It reads the current content of every subpage through the pool, and what
//! only tokens keep past it, and compares what the members of a pool of several files say of each
//! other. Nothing is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use fulgurite_flash::{Flash, FlashError, Layer, Mover};
use fulgurite_format::{Header, Kind, PageBuffer, PoolId, SUBPAGE_BYTES, Superblock, crc32c};

use super::error::AdminError;
use super::files::{OpenedPool, PoolFiles};
use super::finding::{Damage, Finding, read_raw};
use super::{Step, Watch, metadata, report};
use crate::driver::Driver;
use crate::pool::{LivePage, Pool};
use crate::recover::{ReadPages, RecoverReport};
use crate::store::{LOST_MAGIC, StoreConfig, superblock_repairs};

/// Says which subpage cannot be read, and where it is stored.
#[must_use]
pub fn damaged_subpage(layer: &Pool, subpage: u32, error: FlashError) -> String {
    let place = layer.locate(subpage).place().map_or(0, |place| place.flash_page);
    let first = u64::from(subpage) * SUBPAGE_BYTES as u64;
    let last = first + SUBPAGE_BYTES as u64 - 1;
    let why = match error {
        FlashError::Corrupt => "its checksum does not match its content".to_owned(),
        error => error.to_string(),
    };
    let object =
        layer.locate_object(subpage).ok().flatten().map(|object| object.at).filter(|at| at.flash_page == place);
    let what = match object {
        Some(at) if at.range().len() < SUBPAGE_BYTES => {
            format!("an object of {} bytes at byte {} of flash page {place}", at.length, at.offset)
        }
        _ => format!("on flash page {place}"),
    };
    format!("damaged: subpage {subpage} (bytes {first} to {last} of the data), {what}: {why}")
}

/// A copy of the superblock that is not what it should be.
pub(super) struct WrongCopy {
    pub place: u32,
    /// What it should be.
    pub right: PageBuffer,
    /// A power failure may have left it so, while the pool got another size. The next program that
    /// opens the pool for changes writes it anew.
    may_be_cut_off: bool,
    /// Where it is, and what is wrong with it.
    pub sentence: String,
}

/// The copies of the superblock that are not what they should be.
pub(super) fn superblock_damage(medium: &Arc<dyn Flash>) -> Result<Vec<WrongCopy>, AdminError> {
    let mut driver = Driver::new(&**medium, 4)?;
    let repairs = superblock_repairs(&mut driver);
    let why = |place: u32, driver: &mut Driver| match driver.read(place, 0) {
        Err(e) => (false, e.to_string()),
        Ok(page) => match Header::open(&page) {
            Err(e) => (metadata::cut_off(&page[..]), e.to_string()),
            Ok((header, ..)) if header.kind != Kind::Superblock || header.place != place => {
                (false, "another page of metadata is there".to_owned())
            }
            Ok((.., payload)) if Superblock::decode(payload).is_err() => (false, "its content is invalid".to_owned()),
            Ok(_) => (true, "it says something else than the other one".to_owned()),
        },
    };
    let wrong = repairs.into_iter().map(|(place, right)| {
        let (may_be_cut_off, why) = why(place, &mut driver);
        let sentence = format!("copy {place} of the superblock, on flash page {place}: {why}");
        WrongCopy { place, right, may_be_cut_off, sentence }
    });
    Ok(wrong.collect())
}

/// Whether a page, or an object, stands for what a repair gave up. Of a short object the magic is
/// cut.
fn is_lost(content: &[u8]) -> bool {
    let marked = content.len().min(LOST_MAGIC.len());
    marked > 0 && content[..marked] == LOST_MAGIC[..marked]
}

/// What a check finds.
pub(super) struct Found {
    pub damaged: Vec<Finding>,
    pub notes: Vec<String>,
}

/// Everything that is damaged.
pub(super) fn damage(opened: &OpenedPool, watch: Watch<'_>) -> Result<Found, AdminError> {
    let (layer, medium) = (opened.flash.layer(), &opened.medium);
    let geometry = opened.pool().geometry();
    let tables = |sentence| Finding::of_all(Damage::Tables, format!("damaged: the tables: {sentence}"));
    let mut damage: Vec<Finding> = opened.pool().audit().into_iter().map(tables).collect();
    for (position, place) in opened.members.iter().flat_map(|members| members.damaged()) {
        let path = opened.members.iter().flat_map(|members| members.paths()).nth(*position as usize);
        let path = path.map_or_else(String::new, |path| path.display().to_string());
        let sentence = format!("damaged: a copy of the list of members in {path}, on its flash page {place}");
        damage.push(Finding::at(Damage::Member, *place, sentence));
    }
    // What tokens keep, and which extents are full for certain: their last flash page for data is
    // needed.
    let mut kept: Vec<LivePage> = Vec::new();
    let mut full = BTreeSet::new();
    for page in 0..geometry.pages() {
        let before = kept.len();
        layer.live_pages(page, &mut kept).map_err(|source| AdminError::Pool { path: opened.path.clone(), source })?;
        let mut at = before;
        while at < kept.len() {
            let extent = geometry.extent_of(kept[at].place);
            if kept[at].place - geometry.first_of(extent) + 1 == geometry.data_pages() {
                full.insert(extent);
            }
            if kept[at].current {
                kept.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
    let (broken, notes) = metadata::damaged(opened, &full, watch)?;
    damage.extend(broken);
    // What programs read.
    let written: Vec<u32> = (0..geometry.subpages).filter(|s| layer.locate(*s).place().is_some()).collect();
    let mut bad = Vec::new();
    let mut done = 0;
    Mover::new(&opened.flash)?.read(written.iter().copied(), |(subpage, content)| {
        if let Err(error) = content {
            bad.push((subpage, error));
        }
        done += 1;
        report(watch, Step::Data, done, written.len() as u64)
    })?;
    bad.sort_unstable_by_key(|(subpage, _)| *subpage);
    let mut driver = Driver::new(&**medium, 4)?;
    for (subpage, error) in bad {
        let place = layer.locate(subpage).place().map_or(0, |place| place.flash_page);
        let object = layer.locate_object(subpage).ok().flatten();
        let range = object.map_or(0..SUBPAGE_BYTES, |object| object.at.range());
        let given_up = driver.read(place, 0).is_ok_and(|page| is_lost(&page[range]));
        let mut sentence = damaged_subpage(layer, subpage, error);
        if given_up {
            sentence += " (it was given up by a repair; write it again)";
        }
        damage.push(Finding::of_data(Damage::Data, place, subpage, given_up, sentence));
    }
    // What tokens keep.
    kept.sort_unstable_by_key(|live| live.place);
    let mut places: Vec<u32> = kept.iter().map(|live| live.place).collect();
    places.dedup();
    let mut bad = Vec::new();
    read_raw(medium, Step::OlderData, &places, watch, |place, content| {
        // Several objects may share a flash page.
        let first = kept.partition_point(|live| live.place < place);
        for live in kept[first..].iter().take_while(|live| live.place == place) {
            let (why, given_up) = match content {
                Ok(content) if crc32c(live.of(content)) == live.checksum => continue,
                Ok(content) => ("its checksum does not match its content".to_owned(), is_lost(live.of(content))),
                Err(error) => (error.to_string(), false),
            };
            bad.push((live.subpage, live.place, given_up, why));
        }
    })?;
    bad.sort_unstable();
    damage.extend(bad.into_iter().map(|(subpage, place, given_up, why)| {
        let what = format!("an older version of subpage {subpage} that a token keeps, on flash page {place}");
        let more = if given_up { " (it was given up by a repair)" } else { "" };
        Finding::of_data(Damage::OlderData, place, subpage, given_up, format!("damaged: {what}: {why}{more}"))
    }));
    Ok(Found { damaged: damage, notes })
}

/// A note that the journal ends in part of a page.
fn torn(report: &RecoverReport) -> Option<String> {
    report.torn.map(|place| {
        format!(
            "note: the journal ends in part of a page, on flash page {place}: a crash came in the middle of a commit, or this page \
             was damaged before anything followed it; the pool has the state of token {}",
            report.token
        )
    })
}

/// What a check found.
#[derive(Debug)]
pub struct Check {
    /// All that is damaged.
    pub damaged: Vec<Finding>,
    /// What is no damage, or may be none, in sentences.
    pub notes: Vec<String>,
    /// The pool whose state was read; or why it cannot be opened.
    pub seen: Result<Seen, AdminError>,
}

/// The state that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The id of this pool.
    pub id: PoolId,
    /// Bytes that are needed, older versions included.
    pub live_bytes: u64,
    /// The state of this token; 0 for the empty pool.
    pub token: u64,
    /// The journal ends in part of a page: what was synced last may be lost.
    pub is_torn: bool,
}

/// Checks a pool. `elsewhere`: members that are not where they were.
///
/// # Errors
/// When there is no pool, nothing can be read at all, or the watch says stop. A pool that is there
/// and cannot be opened is in
/// [`Check::seen`].
pub fn check(files: PoolFiles, config: StoreConfig, watch: Watch<'_>) -> Result<Check, AdminError> {
    let (mut damaged, mut notes) = (Vec::new(), Vec::new());
    for WrongCopy { place, may_be_cut_off, sentence, .. } in superblock_damage(&files.flash)? {
        if may_be_cut_off {
            notes.push(format!(
                "note: {sentence}; a crash came while the pool got another size, or it was damaged, and the next program that changes the \
                 pool writes it anew"
            ));
        } else {
            damaged.push(Finding::at(Damage::Superblock, place, format!("damaged: {sentence}")));
        }
    }
    let seen = files.inspect(config, None).map(|opened| (damage(&opened, watch), opened));
    let seen = match seen {
        Ok((all, opened)) => {
            damaged.extend(opened.report.lost.map(|loss| Finding::of_all(Damage::Lost, format!("lost: {loss}"))));
            let all = all?;
            damaged.extend(all.damaged);
            notes.extend(torn(&opened.report).into_iter().chain(all.notes));
            Ok(Seen {
                id: opened.pool().id(),
                live_bytes: opened.pool().info().live * SUBPAGE_BYTES as u64,
                token: opened.report.token,
                is_torn: opened.report.torn.is_some(),
            })
        }
        Err(error) => Err(error),
    };
    Ok(Check { damaged, notes, seen })
}
