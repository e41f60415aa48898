//! `pool check`: reads everything that is needed, and names what is damaged.
//!
//! Looked at are both copies of the superblock; what recovery reads (anchors, checkpoint, journal); the tables against each other;
//! all metadata pages that were written; the current content of every subpage through the pool, and what only tokens keep past it.
//! A page of metadata counts as damaged when it begins as one and its checksum does not match.

use std::sync::Arc;

use anyhow::{Result, bail};
use fulgurite_flash::{Flash, FlashError, Layer};
use fulgurite_format::{Header, NotMetadata, PageBuffer, SUBPAGE_BYTES, crc32c, format_bytes, zero_page};
use fulgurite_store::{Driver, Geometry, LivePage, Pool, ReadPages, RecoverError, superblock};

use super::args::CheckArgs;
use super::mover::Mover;
use super::open::{self, Medium, Opened, name_of, pool_error};
use crate::bad_input::bad_input;
use crate::interrupt::Interrupt;
use crate::{pages, progress};

/// The places of the two copies of the superblock.
const COPIES: [u32; 2] = [0, 1];

/// Says which subpage cannot be read, and where it lies.
pub fn damaged_subpage(layer: &Pool, subpage: u32, error: FlashError) -> String {
    let place = layer.locate(subpage).map_or(0, |place| place.flash_page);
    let first = u64::from(subpage) * SUBPAGE_BYTES as u64;
    let last = first + SUBPAGE_BYTES as u64 - 1;
    let why = match error {
        FlashError::Corrupt => "its checksum does not match its content".to_owned(),
        error => error.to_string(),
    };
    format!("damaged: subpage {subpage} (bytes {first} to {last} of the data), on flash page {place}: {why}")
}

/// The copies of the superblock that are not what they should be, each with what it should be.
fn superblock_damage(medium: &Arc<dyn Flash>) -> Result<Vec<(u32, PageBuffer, String)>> {
    let mut driver = Driver::new(&**medium, 4)?;
    let copies = COPIES.map(|place| driver.read(place, 0));
    let usable = |place: u32, copy: &Result<PageBuffer, FlashError>| {
        let (header, ..) = Header::open(copy.as_ref().ok()?).ok()?;
        (header.place == place).then_some(header)
    };
    let whole = COPIES.into_iter().zip(&copies).find_map(|(place, copy)| Some((copy, usable(place, copy)?)));
    let Some((Ok(whole), header)) = whole else { return Ok(Vec::new()) };
    let mut damage = Vec::new();
    for (place, copy) in COPIES.into_iter().zip(&copies) {
        let mut right = whole.clone();
        Header { place, ..header }.seal(&mut right);
        let why = match copy {
            Err(e) => e.to_string(),
            Ok(page) if *page == right => continue,
            Ok(page) => match Header::open(page) {
                Err(e) => e.to_string(),
                Ok(_) => "it says something else than the other one".to_owned(),
            },
        };
        damage.push((place, right, format!("damaged: copy {place} of the superblock, on flash page {place}: {why}")));
    }
    Ok(damage)
}

/// Reads flash pages past the pool; `each` is told of them.
fn read_raw(
    medium: &Arc<dyn Flash>,
    what: &str,
    places: &[u32],
    interrupt: &Interrupt,
    mut each: impl FnMut(u32, Result<&[u8], FlashError>),
) -> Result<()> {
    let bar = progress::share(what);
    let mut done = 0;
    Mover::new(&**medium)?.read(places.iter().copied(), |(place, content)| {
        each(place, content);
        done += 1;
        progress::set_share(&bar, f64::from(done) / places.len() as f64);
        interrupt.check()
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// Whether this was a page of metadata, and is none now.
fn is_broken(content: &[u8]) -> bool {
    let mut page = zero_page();
    page.copy_from_slice(content);
    Header::open(&page) == Err(NotMetadata::Checksum)
}

/// The pages in which metadata may lie, each with what it would be.
fn metadata_pages(pool: &Pool, g: Geometry) -> Vec<(u32, String)> {
    let uses = pool.uses();
    let mut pages = Vec::new();
    let whole = |extent: u32| g.first_of(extent)..g.first_of(extent) + g.extent_pages;
    for extent in &uses.fixed {
        let anchors = whole(*extent).filter(|place| !COPIES.contains(place));
        pages.extend(anchors.map(|place| (place, "an anchor, from which the pool is opened".to_owned())));
    }
    for extent in &uses.metadata {
        pages.extend(whole(*extent).map(|place| (place, "a page of the journal or of a checkpoint".to_owned())));
    }
    for extent in &uses.data {
        let summary = whole(*extent).skip(g.data_pages() as usize);
        let what = format!("the summary of extent {extent}; no data is lost by it");
        pages.extend(summary.map(|place| (place, what.clone())));
    }
    pages
}

/// Everything that is damaged, in sentences.
fn damage(opened: &Opened, interrupt: &Interrupt) -> Result<Vec<String>> {
    let (layer, medium) = (opened.flash.layer(), &opened.medium);
    let geometry = opened.pool().geometry();
    let mut damage: Vec<String> =
        opened.pool().audit().into_iter().map(|sentence| format!("damaged: the tables: {sentence}")).collect();
    // Metadata.
    let metadata = metadata_pages(layer, geometry);
    let places: Vec<u32> = metadata.iter().map(|(place, _)| *place).collect();
    let mut broken = Vec::new();
    read_raw(medium, "reading metadata", &places, interrupt, |place, content| match content {
        Ok(content) if is_broken(content) => broken.push((place, "its checksum does not match its content".to_owned())),
        Ok(_) => {}
        Err(error) => broken.push((place, error.to_string())),
    })?;
    broken.sort_unstable();
    for (place, why) in broken {
        let what = metadata.iter().find(|(at, _)| *at == place).map_or("", |(_, what)| what.as_str());
        damage.push(format!("damaged: metadata on flash page {place} ({what}): {why}"));
    }
    // What programs read.
    let written: Vec<u32> = (0..geometry.subpages).filter(|s| layer.locate(*s).is_some()).collect();
    let bar = progress::share("reading data");
    let mut bad = Vec::new();
    let mut done = 0;
    Mover::new(&opened.flash)?.read(written.iter().copied(), |(subpage, content)| {
        if let Err(error) = content {
            bad.push((subpage, error));
        }
        done += 1;
        progress::set_share(&bar, f64::from(done) / written.len() as f64);
        interrupt.check()
    })?;
    bar.finish_and_clear();
    bad.sort_unstable_by_key(|(subpage, _)| *subpage);
    damage.extend(bad.into_iter().map(|(subpage, error)| damaged_subpage(layer, subpage, error)));
    // What tokens keep.
    let mut kept: Vec<LivePage> = Vec::new();
    for page in 0..geometry.pages() {
        let before = kept.len();
        layer.live_pages(page, &mut kept);
        let mut at = before;
        while at < kept.len() {
            if kept[at].current {
                kept.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
    kept.sort_unstable_by_key(|live| live.place);
    let places: Vec<u32> = kept.iter().map(|live| live.place).collect();
    let mut bad = Vec::new();
    read_raw(medium, "reading what tokens keep", &places, interrupt, |place, content| {
        let live = kept[kept.binary_search_by_key(&place, |live| live.place).expect("one of them")];
        let why = match content {
            Ok(content) if crc32c(content) == live.checksum => return,
            Ok(_) => "its checksum does not match its content".to_owned(),
            Err(error) => error.to_string(),
        };
        bad.push((live.subpage, live.place, why));
    })?;
    bad.sort_unstable();
    damage.extend(bad.into_iter().map(|(subpage, place, why)| {
        format!("damaged: an older version of subpage {subpage} that a token keeps, on flash page {place}: {why}")
    }));
    Ok(damage)
}

/// `pool check`.
pub fn run(args: &CheckArgs) -> Result<()> {
    let (path, shown) = (&args.pool.path, args.pool.path.display());
    if args.repair && !args.force {
        bad_input!("--repair writes to {shown}; add --force if that is meant");
    }
    let Medium { flash: medium, .. } = open::medium(&args.pool)?;
    match superblock(&mut Driver::new(&*medium, 4)?) {
        Ok(_) => {}
        // A pool all the same, of which much is lost.
        Err(e @ RecoverError::Truncated { .. }) => bail!("damaged: {}", pool_error(path, e.into())),
        Err(e) => return Err(pool_error(path, e.into())),
    }
    let interrupt = Interrupt::catch()?;
    let mut copies = superblock_damage(&medium)?;
    for (.., sentence) in &copies {
        say(sentence)?;
    }
    if args.repair {
        if copies.is_empty() {
            say("both copies of the superblock are whole: there is nothing to repair")?;
        }
        for (place, right, _) in std::mem::take(&mut copies) {
            Driver::new(&*medium, 4)?.write_all(vec![(place, right)])?;
            say(&format!("repaired: copy {place} of the superblock"))?;
        }
    }
    drop(medium);
    let opened = open::to_look_at(&args.pool, None)?;
    let damage = damage(&opened, &interrupt)?;
    damage.iter().try_for_each(|sentence| say(sentence))?;
    let count = copies.len() + damage.len();
    if count > 0 {
        bail!("{shown}: {count} damaged {}, named above", if count == 1 { "thing" } else { "things" });
    }
    let live = format_bytes(opened.pool().info().live * SUBPAGE_BYTES as u64);
    say(&format!("{shown} is whole: pool {}, {live} of data read", name_of(opened.pool().id())))
}

fn say(sentence: &str) -> Result<()> {
    pages::write_stdout(format!("{sentence}\n").as_bytes())
}
