//! `pool check`: reads everything that is needed, and names what is damaged.
//!
//! Looked at are both copies of the superblock; what recovery reads (anchors, checkpoint, journal); the tables against each other;
//! all metadata pages that were written ([`super::metadata`]); the current content of every subpage through the pool, and what only tokens
//! keep past it; what the members of a pool of several files say of each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use fulgurite_flash::{Flash, FlashError, Layer};
use fulgurite_format::{Header, Kind, PageBuffer, SUBPAGE_BYTES, Superblock, crc32c, format_bytes};
use fulgurite_store::{
    Driver, LOST_MAGIC, LivePage, Pool, ReadPages, RecoverError, RecoverReport, superblock, superblock_repairs,
};
use serde::Serialize;

use super::args::CheckArgs;
use super::open::{self, Opened, name_of, pool_error};
use super::{metadata, repair};
use fulgurite_bench::bad_input;
use fulgurite_bench::interrupt::Interrupt;
use fulgurite_bench::values::Output;
use fulgurite_bench::{checks, progress, report};
use fulgurite_flash::Mover;

/// What is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Damage {
    /// A token that was promised.
    Lost,
    /// A copy of the superblock.
    Superblock,
    /// A copy of what a member says of all members.
    Member,
    /// A copy of an anchor.
    Anchor,
    /// A page of the journal or of a checkpoint that the pool can be opened without.
    Journal,
    /// A summary of an extent.
    Summary,
    /// The tables against each other.
    Tables,
    /// What programs read.
    Data,
    /// What only tokens keep.
    OlderData,
    /// The pool cannot be opened.
    Pool,
}

/// One thing that is damaged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: Damage,
    /// Where it lies; of a member's list, in the member.
    pub flash_page: Option<u32>,
    /// Of data: the subpage, and its first byte in the data.
    pub subpage: Option<u32>,
    pub first_byte: Option<u64>,
    /// It was given up by a repair before.
    pub given_up: bool,
    /// In words.
    pub sentence: String,
}

impl Finding {
    pub fn at(kind: Damage, flash_page: u32, sentence: String) -> Finding {
        Finding { kind, flash_page: Some(flash_page), subpage: None, first_byte: None, given_up: false, sentence }
    }
    fn of_all(kind: Damage, sentence: String) -> Finding {
        Finding { flash_page: None, ..Finding::at(kind, 0, sentence) }
    }
    fn of_data(kind: Damage, place: u32, subpage: u32, given_up: bool, sentence: String) -> Finding {
        let first_byte = Some(u64::from(subpage) * SUBPAGE_BYTES as u64);
        Finding { subpage: Some(subpage), first_byte, given_up, ..Finding::at(kind, place, sentence) }
    }
}

/// What a check found, in JSON.
#[derive(Debug, Serialize)]
struct Checked {
    path: String,
    id: Option<String>,
    sound: bool,
    /// The token whose state it is that was looked at; 0 for the empty pool. None: it cannot be opened.
    token: Option<u64>,
    /// The journal ends in part of a page: what was synced last may be lost.
    torn: bool,
    live_bytes: Option<u64>,
    damaged: Vec<Finding>,
    /// What is no damage, or may be none.
    notes: Vec<String>,
    repaired: Vec<String>,
}

/// The places of the two copies of the superblock.
pub const SUPERBLOCKS: [u32; 2] = [0, 1];

/// Says which subpage cannot be read, and where it lies.
pub fn damaged_subpage(layer: &Pool, subpage: u32, error: FlashError) -> String {
    let place = layer.locate(subpage).map_or(0, |place| place.flash_page);
    let first = u64::from(subpage) * SUBPAGE_BYTES as u64;
    let last = first + SUBPAGE_BYTES as u64 - 1;
    let why = match error {
        FlashError::Corrupt => "its checksum does not match its content".to_owned(),
        error => error.to_string(),
    };
    let object = layer.locate_object(subpage).map(|object| object.at).filter(|at| at.flash_page == place);
    let what = match object {
        Some(at) if at.range().len() < SUBPAGE_BYTES => {
            format!("an object of {} bytes at byte {} of flash page {place}", at.length, at.offset)
        }
        _ => format!("on flash page {place}"),
    };
    format!("damaged: subpage {subpage} (bytes {first} to {last} of the data), {what}: {why}")
}

/// The copies of the superblock that are not what they should be, each with what it should be.
fn superblock_damage(medium: &Arc<dyn Flash>) -> Result<Vec<(u32, PageBuffer, String)>> {
    let mut driver = Driver::new(&**medium, 4)?;
    let repairs = superblock_repairs(&mut driver);
    let why = |place: u32, driver: &mut Driver| match driver.read(place, 0) {
        Err(e) => e.to_string(),
        Ok(page) => match Header::open(&page) {
            Err(e) => e.to_string(),
            Ok((header, ..)) if header.kind != Kind::Superblock || header.place != place => {
                "another page of metadata is there".to_owned()
            }
            Ok((.., payload)) if Superblock::decode(payload).is_err() => "its content is invalid".to_owned(),
            Ok(_) => "it says something else than the other one".to_owned(),
        },
    };
    let damage = repairs.into_iter().map(|(place, right)| {
        let why = why(place, &mut driver);
        (place, right, format!("damaged: copy {place} of the superblock, on flash page {place}: {why}"))
    });
    Ok(damage.collect())
}

/// Reads flash pages past the pool; `each` is told of them.
pub fn read_raw(
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

/// Whether a page, or an object, stands for what a repair gave up. Of a short object the magic is cut.
fn is_lost(content: &[u8]) -> bool {
    let marked = content.len().min(LOST_MAGIC.len());
    marked > 0 && content[..marked] == LOST_MAGIC[..marked]
}

/// What a check finds.
struct Found {
    damaged: Vec<Finding>,
    notes: Vec<String>,
}

/// Everything that is damaged.
fn damage(opened: &Opened, interrupt: &Interrupt) -> Result<Found> {
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
    // What tokens keep, and which extents are full for certain: their last flash page for data is needed.
    let mut kept: Vec<LivePage> = Vec::new();
    let mut full = BTreeSet::new();
    for page in 0..geometry.pages() {
        let before = kept.len();
        layer.live_pages(page, &mut kept);
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
    let (broken, notes) = metadata::damaged(opened, &full, interrupt)?;
    damage.extend(broken);
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
    let mut driver = Driver::new(&**medium, 4)?;
    for (subpage, error) in bad {
        let place = layer.locate(subpage).map_or(0, |place| place.flash_page);
        let range = layer.locate_object(subpage).map_or(0..SUBPAGE_BYTES, |object| object.at.range());
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
    read_raw(medium, "reading what tokens keep", &places, interrupt, |place, content| {
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

/// That the journal ends in part of a page.
fn torn(report: &RecoverReport) -> Option<String> {
    report.torn.map(|place| {
        format!(
            "note: the journal ends in part of a page, on flash page {place}: a crash came in the middle of a commit, or this page \
             was damaged before anything followed it; the state is that of token {}",
            report.token
        )
    })
}

/// Where sentences and JSON go.
struct Said<'a> {
    json: Option<&'a Output>,
    repaired: Vec<String>,
}

impl Said<'_> {
    fn say(&self, sentence: &str) -> Result<()> {
        match self.json {
            Some(_) => Ok(()),
            None => report::write_stdout(format!("{sentence}\n").as_bytes()),
        }
    }
    fn repaired(&mut self, sentence: String) -> Result<()> {
        self.say(&sentence)?;
        self.repaired.push(sentence);
        Ok(())
    }
}

/// Mends the superblock, then all else; says what it does. One lock is over all of it: what is written is for what was found.
fn mend(args: &CheckArgs, said: &mut Said<'_>, interrupt: &Interrupt) -> Result<()> {
    let path = &args.pool.path;
    let mut medium = open::medium(&args.pool)?;
    let copies = superblock_damage(&medium.flash)?;
    if copies.is_empty() {
        said.say("both copies of the superblock are whole: there is nothing to repair")?;
    }
    for (place, right, sentence) in copies {
        said.say(&sentence)?;
        Driver::new(&*medium.flash, 4)?.write_all(vec![(place, right)])?;
        said.repaired(format!("repaired: copy {place} of the superblock"))?;
    }
    if args.accept_loss {
        let mut config = open::config(None);
        config.accept_loss = true;
        let opened = medium.open(path, config)?;
        match opened.report.lost {
            Some(loss) => said.repaired(format!("accepted: {loss}"))?,
            None => said.say("nothing that was promised is lost: there is nothing to accept")?,
        }
        medium = opened.into_medium();
    }
    let looked = medium.inspect(path, None)?;
    let found = damage(&looked, interrupt)?.damaged;
    let found: Vec<Finding> = found.into_iter().filter(|finding| !finding.given_up).collect();
    found.iter().try_for_each(|finding| said.say(&finding.sentence))?;
    if !found.is_empty() {
        for sentence in repair::repair(path, looked.into_medium(), &found, interrupt)? {
            said.repaired(sentence)?;
        }
    }
    Ok(())
}

/// `pool check`.
pub fn run(args: &CheckArgs) -> Result<()> {
    let (path, shown) = (&args.pool.path, args.pool.path.display());
    if args.repair && !args.force {
        bad_input!("--repair writes to {shown}; add --force if that is meant");
    }
    if let Some(Output::File(file)) = &args.json {
        checks::writable("--json", file)?;
        if file.exists() && file.canonicalize().ok() == path.canonicalize().ok() {
            bad_input!("--json {} is the pool itself; name another file", file.display());
        }
    }
    {
        let medium = open::medium(&args.pool)?;
        match superblock(&mut Driver::new(&*medium.flash, 4)?) {
            Ok(_) => {}
            // A pool all the same, of which much is lost.
            Err(e @ RecoverError::Truncated { .. }) => bail!("damaged: {}", pool_error(path, e.into())),
            Err(e) => return Err(pool_error(path, e.into())),
        }
    }
    let interrupt = Interrupt::catch()?;
    let mut said = Said { json: args.json.as_ref(), repaired: Vec::new() };
    let mended = if args.repair { mend(args, &mut said, &interrupt) } else { Ok(()) };
    // What was mended is looked at like anything else.
    let (mut found, mut notes, mut opens, mut seen) = (Vec::new(), Vec::new(), Ok(()), None);
    let medium = open::medium(&args.pool)?;
    let copies = superblock_damage(&medium.flash)?;
    found.extend(copies.into_iter().map(|(at, _, sentence)| Finding::at(Damage::Superblock, at, sentence)));
    match medium.inspect(path, None) {
        Ok(opened) => {
            found.extend(opened.report.lost.map(|loss| Finding::of_all(Damage::Lost, format!("lost: {loss}"))));
            let all = damage(&opened, &interrupt)?;
            found.extend(all.damaged);
            notes.extend(torn(&opened.report).into_iter().chain(all.notes));
            let live_bytes = opened.pool().info().live * SUBPAGE_BYTES as u64;
            seen = Some((name_of(opened.pool().id()), live_bytes, opened.report));
        }
        Err(error) => {
            found.push(Finding::of_all(Damage::Pool, format!("damaged: {error:#}")));
            opens = Err(error);
        }
    }
    notes.iter().try_for_each(|note| said.say(note))?;
    found.iter().filter(|finding| finding.kind != Damage::Pool).try_for_each(|finding| said.say(&finding.sentence))?;
    let count = found.len();
    if let Some(output) = &args.json {
        let (repaired, sound) = (said.repaired, found.is_empty());
        let checked = Checked {
            path: shown.to_string(),
            id: seen.as_ref().map(|(id, ..)| id.clone()),
            sound,
            token: seen.as_ref().map(|(.., report)| report.token),
            torn: seen.as_ref().is_some_and(|(.., report)| report.torn.is_some()),
            live_bytes: seen.as_ref().map(|(_, live, _)| *live),
            damaged: found,
            notes,
            repaired,
        };
        let json = serde_json::to_string_pretty(&checked)? + "\n";
        match output {
            Output::Stdout => report::write_stdout(json.as_bytes())?,
            Output::File(file) => report::write_file(file, json.as_bytes())?,
        }
    }
    opens?;
    mended.context("not everything could be repaired")?;
    if count > 0 {
        bail!("{shown}: {count} damaged {}, named above", if count == 1 { "thing" } else { "things" });
    }
    if let (None, Some((id, live, _))) = (&args.json, &seen) {
        let live = format_bytes(*live);
        report::write_stdout(format!("{shown} is whole: pool {id}, {live} of data read\n").as_bytes())?;
    }
    Ok(())
}
