//! Ways to lose data, each tried many times. They return what they counted, or a sentence about the
//! first violation.

use std::collections::HashMap;
use std::rc::Rc;

use fulgurite_format::{HEADER_BYTES, Header, Kind};
use fulgurite_store::{Geometry, Planted, RecoverError, StoreConfig};

use super::images::{Found, Image, Moment, Promise, open, open_whole};
use super::{Content, Random, World, quick_checkpoints, tiny};

/// How much to do.
use super::trials;
pub use super::trials::runs;
/// The first seed: of the environment, or 0.
pub fn first_seed() -> u64 {
    trials::first_seed(0)
}
/// Says how to come back to a violation.
pub fn replay(seed: u64, what: &str) -> String {
    format!("{what}\nseed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1")
}

/// What a program may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    WriteOne,
    WriteSeveral,
    Sync,
    RollBack,
    Delete,
    Commit,
    Checkpoint,
}
pub const STEPS: [Step; 7] =
    [Step::WriteOne, Step::WriteSeveral, Step::Sync, Step::RollBack, Step::Delete, Step::Commit, Step::Checkpoint];

/// Does one step.
pub fn step(world: &mut World, step: Step) {
    let subpages = world.store.geometry().subpages;
    match step {
        Step::WriteOne => {
            let subpage = world.random.below(4);
            world.write_these(&[subpage]);
        }
        Step::WriteSeveral => {
            let first = world.random.below(subpages - 5);
            world.write_these(&[first, first + 1, first + 4]);
        }
        Step::Sync => {
            let _ = world.try_sync();
        }
        Step::RollBack => {
            let tokens: Vec<u64> = world.store.state().tokens().to_vec();
            if !tokens.is_empty() && world.store.poisoned().is_none() {
                let which = world.random.below(tokens.len() as u32) as usize;
                world.roll_back(tokens[which]);
            }
        }
        Step::Delete => world.delete(0),
        Step::Commit => world.store.commit(),
        Step::Checkpoint => world.store.begin_checkpoint(),
    }
}

pub fn config(planted: Option<Planted>, seed: u64) -> StoreConfig {
    let mut config = quick_checkpoints();
    config.keep_tokens = 1 + (seed % 3) as usize;
    config.planted = planted;
    config
}

/// A tiny pool with a log, and some history: a few tokens, a deletion, and most of an extent of
/// journal.
fn prepared(planted: Option<Planted>, seed: u64, history: u32) -> World {
    let mut world = World::new(tiny(32), config(planted, seed), seed);
    world.flash.log = Some(Vec::new());
    for i in 0..history {
        step(&mut world, if i % 3 == 2 { Step::WriteSeveral } else { Step::WriteOne });
        if i % 2 == 1 {
            step(&mut world, Step::Sync);
            world.settle();
        }
    }
    world
}

/// Goes through all events of a log; calls `look` after each write, and whenever something is
/// promised.
pub fn each_moment(
    world: &mut World,
    from: usize,
    mut look: impl FnMut(&Moment, bool) -> Result<(), String>,
) -> Result<(), String> {
    let log = world.flash.log.take().expect("a log is kept");
    let mut moment = Moment { pages: world.flash.pages, ..Moment::default() };
    let empty = World::new(world.store.geometry(), StoreConfig::default(), 0);
    moment.durable = empty.flash.places().into_iter().map(|p| (p, empty.flash.content(p).unwrap().clone())).collect();
    for (i, event) in log.iter().enumerate() {
        let before = moment.promise.acknowledged;
        let write = moment.step(event);
        if i >= from && (write || moment.promise.acknowledged != before) {
            look(&moment, write)?;
        }
    }
    look(&moment, false)
}

/// Every sequence of up to three steps; a crash after every write; every subset of up to 8 writes
/// under way, samples of more. Returns the number of images checked.
pub fn enumerate(planted: Option<Planted>, seed: u64, lengths: std::ops::RangeInclusive<u32>) -> Result<u64, String> {
    let mut images = 0;
    for length in lengths {
        for number in 0..7u64.pow(length) {
            let steps: Vec<Step> = (0..length).map(|i| STEPS[(number / 7u64.pow(i) % 7) as usize]).collect();
            let pace = number.wrapping_add(seed) % 3;
            let mut world = prepared(planted, seed + number, [0, 5, 12][(number + seed) as usize / 3 % 3]);
            let from = world.flash.log.as_ref().map_or(0, Vec::len);
            for s in &steps {
                step(&mut world, *s);
                match pace {
                    0 => {}
                    1 => {
                        for _ in 0..world.random.below(5) {
                            world.turn();
                        }
                    }
                    _ => world.settle(),
                }
            }
            world.settle();
            let config = world.config;
            let mut random = Random(seed + number);
            let looked = each_moment(&mut world, from, |moment, write| {
                let count = moment.cached.len();
                let mut look = |chosen: u64| {
                    images += 1;
                    let arrived = moment.cached.iter().enumerate().filter(|(i, _)| chosen >> i & 1 == 1);
                    let image = moment.image(arrived.map(|(_, w)| w.clone()));
                    open_whole(&image, config, &moment.promise).map(|_| ())
                };
                // What was said of the subsets without the newest write was said when the others
                // were under way.
                let newest = if write { 1u64 << (count - 1) } else { 0 };
                match (write, count) {
                    (false, _) => look(0),
                    (true, ..=8) => (0..newest).try_for_each(|others| look(others | newest)),
                    _ => (0..24).try_for_each(|_| look(random.next() & (newest - 1) | newest)),
                }
            });
            looked.map_err(|e| replay(seed, &format!("{steps:?} at pace {pace}: {e}")))?;
        }
    }
    Ok(images)
}

/// A random run: its world, with a log.
pub fn random_run(planted: Option<Planted>, seed: u64, steps: u32) -> World {
    let mut world = World::new(tiny(16 * (2 + seed as u32 % 4)), config(planted, seed), seed);
    world.flash.log = Some(Vec::new());
    for _ in 0..steps {
        let count = 1 + world.random.below(5);
        match world.random.below(24) {
            0 => step(&mut world, Step::RollBack),
            1 => step(&mut world, Step::Delete),
            2 => step(&mut world, Step::Checkpoint),
            3..8 => step(&mut world, Step::Sync),
            _ => world.write(count),
        }
        for _ in 0..world.random.below(9) {
            world.turn();
        }
    }
    world
}

/// A run with long histories: hundreds of tokens, so that a checkpoint takes many pages and the
/// state changes while it is made.
pub fn deep_run(planted: Option<Planted>, seed: u64) -> World {
    let mut config = config(planted, seed);
    config.keep_tokens = 400;
    config.checkpoint_after = 40;
    let mut world = World::new(Geometry::new(3840, 8, Some(64)).unwrap(), config, seed);
    world.flash.log = Some(Vec::new());
    for i in 0..600 {
        match world.random.below(300) {
            0 if i > 200 => step(&mut world, Step::RollBack),
            1 => step(&mut world, Step::Delete),
            _ => {}
        }
        let count = 1 + world.random.below(12);
        world.write(count);
        step(&mut world, Step::Sync);
        if i % 50 > 30 {
            step(&mut world, Step::Checkpoint);
        }
        for _ in 0..world.random.below(12) {
            world.turn();
        }
    }
    world
}
/// Crashes of such runs.
pub fn deep_crashes(planted: Option<Planted>, seed: u64) -> Result<u64, String> {
    crashes(deep_run(planted, seed), seed, 200)
}

/// Crashes at random moments of random runs; random parts of what was under way have arrived.
pub fn random_crashes(planted: Option<Planted>, seed: u64) -> Result<u64, String> {
    crashes(random_run(planted, seed, 150), seed, 8)
}
fn crashes(mut world: World, seed: u64, one_in: u32) -> Result<u64, String> {
    let (config, mut images, mut random) = (world.config, 0, Random(seed));
    each_moment(&mut world, 0, |moment, _| {
        if !random.one_in(one_in) {
            return Ok(());
        }
        images += 1;
        let kind = random.below(4);
        let arrived: Vec<_> =
            moment.cached.iter().filter(|_| kind == 0 || kind != 1 && random.one_in(2)).cloned().collect();
        open_whole(&moment.image(arrived), config, &moment.promise).map(|_| ())
    })
    .map_err(|e| replay(seed, &e))?;
    Ok(images)
}

/// Crashes that tear pages of metadata at 512 bytes, 1 or 2 KiB.
pub fn torn(planted: Option<Planted>, seed: u64) -> Result<u64, String> {
    let mut world = random_run(planted, seed, 60);
    let (config, mut images, mut random) = (world.config, 0, Random(seed));
    each_moment(&mut world, 0, |moment, _| {
        let metadata = moment.cached.iter().any(|(_, c)| matches!(c, Content::Metadata(_)));
        if !metadata {
            return Ok(());
        }
        for unit in [512, 1024, 2048] {
            if !random.one_in(4) {
                continue;
            }
            let mut image = moment.image([]);
            for (place, content) in &moment.cached {
                let Content::Metadata(new) = content else {
                    if random.one_in(2) {
                        let torn = if random.one_in(2) { Content::Torn } else { content.clone() };
                        image.over.insert(*place, torn);
                    }
                    continue;
                };
                let mut page = image.bytes(*place);
                for (old, new) in page.chunks_exact_mut(unit).zip(new.chunks_exact(unit)) {
                    if random.one_in(2) {
                        old.copy_from_slice(new);
                    }
                }
                image.over.insert(*place, Content::Metadata(Rc::new(page)));
            }
            images += 1;
            open_whole(&image, config, &moment.promise)?;
        }
        Ok(())
    })
    .map_err(|e| replay(seed, &e))?;
    Ok(images)
}

/// How images with damage were met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Met {
    pub images: u64,
    /// Nothing of the damage was left.
    pub whole: u64,
    /// The checksums show the damage.
    pub damaged: u64,
    /// An error reported it.
    pub refused: u64,
    /// The newest commit was lost with its page of the journal.
    pub older: u64,
}

/// Opens an image in which the content of these places is not what was written there.
fn open_damaged(
    image: &Image<'_>,
    config: StoreConfig,
    promise: &Promise,
    before: &HashMap<u32, Option<Content>>,
    met: &mut Met,
) -> Result<(), String> {
    met.images += 1;
    match open(image, config, promise)? {
        Err(RecoverError::Write(e)) => return Err(format!("a sound journal was refused: {e}")),
        Err(_) => met.refused += 1,
        Ok((token, found)) => {
            match found {
                Found::Whole => met.whole += 1,
                Found::Damaged(_) => met.damaged += 1,
            }
            if token < promise.acknowledged {
                // When the newest commit was damaged, and only then, the loss cannot be known.
                let lost = before.values().flatten().filter_map(|c| match c {
                    Content::Metadata(page) => Header::open(page).ok().map(|(h, ..)| h),
                    _ => None,
                });
                let Some(lost) = lost.filter(|h| h.kind == Kind::Journal).map(|h| h.sequence).max() else {
                    return Err(format!("token {} was promised, {token} came back", promise.acknowledged));
                };
                for place in image.places() {
                    let page = image.bytes(place);
                    let Ok((h, ..)) = Header::open(&page) else { continue };
                    if h.kind == Kind::Journal && h.place == place && h.sequence - u64::from(h.commit_offset) > lost {
                        return Err(format!("token {token} came back, and page {} was there", h.sequence));
                    }
                }
                met.older += 1;
            }
        }
    }
    Ok(())
}

/// A run that has ended quietly, with records behind the newest checkpoint.
pub fn quiet_run(planted: Option<Planted>, seed: u64) -> World {
    let mut world = random_run(planted, seed, 80);
    world.settle();
    for _ in 0..3 {
        step(&mut world, Step::WriteOne);
        step(&mut world, Step::Sync);
        world.settle();
    }
    world
}
/// What such a run left.
pub fn left_by(world: &mut World) -> Moment {
    let mut last = None;
    each_moment(world, usize::MAX, |moment, _| {
        last = Some(moment.clone());
        Ok(())
    })
    .expect("nothing to say");
    let mut moment = last.expect("the last moment");
    moment.durable.extend(moment.cached.drain(..));
    moment
}

/// Every bit of these places, one after the other.
pub fn flip_all(moment: &Moment, config: StoreConfig, place: u32) -> Result<Met, String> {
    let mut met = Met::default();
    let Some(Content::Metadata(page)) = moment.durable.get(&place) else { return Err("no metadata there".into()) };
    let before = HashMap::from([(place, moment.durable.get(&place).cloned())]);
    let used = HEADER_BYTES + Header::open(page).map_or(0, |(h, ..)| h.used);
    // Of the zeros behind what is used, all in the first superblock; elsewhere one in seven, unless
    // there is time.
    let every = if place == 0 || trials::is_full() { 1 } else { 7 };
    for bit in (0..used * 8).chain((used * 8..page.len() * 8).step_by(every)) {
        let mut flipped = page.clone();
        Rc::make_mut(&mut flipped)[bit / 8] ^= 1 << (bit % 8);
        let image = moment.image([(place, Content::Metadata(flipped))]);
        open_damaged(&image, config, &moment.promise, &before, &mut met).map_err(|e| format!("bit {bit}: {e}"))?;
    }
    Ok(met)
}

/// One bit anywhere.
pub fn flip_some(moment: &Moment, config: StoreConfig, seed: u64, count: u64) -> Result<Met, String> {
    let (mut met, mut random) = (Met::default(), Random(seed));
    let mut places: Vec<u32> = moment.durable.keys().copied().collect();
    places.sort_unstable();
    for _ in 0..count {
        let place = places[random.below(places.len() as u32) as usize];
        let bit = random.below(4096 * 8) as usize;
        let flipped = match &moment.durable[&place] {
            Content::Metadata(page) => {
                let mut page = page.clone();
                Rc::make_mut(&mut page)[bit / 8] ^= 1 << (bit % 8);
                Content::Metadata(page)
            }
            _ => Content::Torn,
        };
        let before = HashMap::from([(place, moment.durable.get(&place).cloned())]);
        let image = moment.image([(place, flipped)]);
        open_damaged(&image, config, &moment.promise, &before, &mut met)
            .map_err(|e| replay(seed, &format!("bit {bit} of flash page {place}: {e}")))?;
    }
    Ok(met)
}

/// Writes that were lost, went elsewhere, or went elsewhere too; content of an earlier time.
pub fn misplaced(planted: Option<Planted>, seed: u64, count: u64) -> Result<Met, String> {
    let mut world = quiet_run(planted, seed);
    let config = world.config;
    let mut earlier: HashMap<u32, Vec<Content>> = HashMap::new();
    for event in world.flash.log.as_ref().expect("a log is kept") {
        if let super::images::Event::Write(place, content) = event {
            earlier.entry(*place).or_default().push(content.clone());
        }
    }
    let moment = left_by(&mut world);
    let (mut met, mut random) = (Met::default(), Random(seed));
    let mut places: Vec<u32> = earlier.keys().copied().collect();
    places.sort_unstable();
    for _ in 0..count {
        let place = places[random.below(places.len() as u32) as usize];
        let other = places[random.below(places.len() as u32) as usize];
        let old = |random: &mut Random, place: u32| {
            let all = &earlier[&place];
            let which = random.below(all.len() as u32) as usize;
            if which + 1 == all.len() { Content::Torn } else { all[which].clone() }
        };
        let written = moment.durable[&place].clone();
        let changes = match random.below(4) {
            // Lost, or stale.
            0 | 1 => vec![(place, old(&mut random, place))],
            // Elsewhere.
            2 => vec![(place, old(&mut random, place)), (other, written)],
            // Twice.
            _ => vec![(other, written)],
        };
        let before = changes.iter().map(|(p, _)| (*p, moment.durable.get(p).cloned())).collect();
        let what = format!("{:?}", changes.iter().map(|(p, _)| p).collect::<Vec<_>>());
        let image = moment.image(changes);
        open_damaged(&image, config, &moment.promise, &before, &mut met)
            .map_err(|e| replay(seed, &format!("flash pages {what}: {e}")))?;
    }
    Ok(met)
}
