//! Goal: `pool check` calls what a power failure left whole. It exits with 0 for each image of a
//! power failure, also where pages were torn, in this life of the pool or an earlier one, and also
//! in the middle of a change of its size.
//! Method: random runs of the store over flash that forgets what was not flushed, or keeps whole
//! sectors of it. After each power failure the flash is written to a file as it is, and checked by
//! the program; then the run goes on from it. Moments in the middle of runs with torn pages are
//! checked as well. Seeds are printed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use fulgurite_format::{SUBPAGE_BYTES, zero_page};

use crate::world::attacks::{STEPS, Step, each_moment, first_seed, random_run, replay, runs, step};
use crate::world::images::Image;
use crate::world::{Content, Random, World, bytes_of};

/// Tears what is on its way at sectors of 512 bytes.
fn torn(image: &mut Image<'_>, on_its_way: &[(u32, Content)], random: &mut Random) {
    for (place, content) in on_its_way {
        let mut page = image.bytes(*place);
        let new = match content {
            Content::Metadata(page) => page.clone(),
            Content::Data(number) => Rc::new(bytes_of(*number)),
            Content::Torn => Rc::new(zero_page()),
        };
        let whole = random.below(4);
        for (old, new) in page.chunks_exact_mut(512).zip(new.chunks_exact(512)) {
            if whole == 0 || whole > 1 && random.one_in(2) {
                old.copy_from_slice(new);
            }
        }
        image.over.insert(*place, Content::Metadata(Rc::new(page)));
    }
}

/// Writes an image to a file and has the program check it.
fn check(path: &Path, pages: u32, image: impl IntoIterator<Item = (u32, Content)>) -> Result<(), String> {
    // A new one for each: what a killed program keeps open for a moment is not waited for.
    let _ = std::fs::remove_file(path);
    let file = File::create_new(path).unwrap();
    file.set_len(u64::from(pages) * SUBPAGE_BYTES as u64).unwrap();
    for (place, content) in image {
        let page = match content {
            Content::Metadata(page) => page,
            Content::Data(number) => Rc::new(bytes_of(number)),
            Content::Torn => continue,
        };
        file.write_all_at(&page[..], u64::from(place) * SUBPAGE_BYTES as u64).unwrap();
    }
    drop(file);
    let checked = Command::new(env!("CARGO_BIN_EXE_fulgurite")).args(["pool", "check"]).arg(path).output().unwrap();
    let logged = [checked.stdout, checked.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    match checked.status.code() {
        Some(0) if logged.contains("is whole") => Ok(()),
        code => Err(format!("exit {code:?}: {logged}")),
    }
}

/// What the flash of a world holds.
fn content(world: &World) -> Vec<(u32, Content)> {
    let flash = &world.flash;
    flash.places().into_iter().map(|place| (place, flash.content(place).unwrap().clone())).collect()
}

#[test]
fn each_power_failure_of_a_life_after_the_other_leaves_a_whole_pool() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let (mut images, first) = (0, first_seed());
    for seed in first..first + runs(25) {
        let mut world = random_run(None, seed, 40);
        world.flash.log = None;
        for life in 0..8 {
            for _ in 0..world.random.below(40) {
                // Many writes to a page of the journal, so that it has several sectors.
                let (kind, count) = (world.random.below(6 * STEPS.len() as u32) as usize, 1 + world.random.below(12));
                match STEPS.get(kind) {
                    Some(what) => step(&mut world, *what),
                    None => world.write(count),
                }
                for _ in 0..world.random.below(9) {
                    world.turn();
                }
            }
            // Mostly in the middle of a commit.
            step(&mut world, Step::Sync);
            for _ in 0..world.random.below(12) {
                world.turn();
            }
            let World { flash, random, .. } = &mut world;
            flash.crash_in_sectors(random);
            world.crash().unwrap();
            images += 1;
            let looked = check(&path, world.flash.pages, content(&world));
            looked.unwrap_or_else(|e| panic!("{}", replay(seed, &format!("life {life}: {e}"))));
        }
    }
    println!("{images} images of power failures, one life after the other");
}

#[test]
fn torn_pages_leave_a_whole_pool() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let (mut images, first) = (0, first_seed());
    for seed in first..first + runs(25) {
        let mut world = random_run(None, seed, 80);
        let mut random = Random(seed);
        let looked = each_moment(&mut world, 0, |moment, _| {
            if moment.cached.is_empty() || !random.one_in(40) {
                return Ok(());
            }
            images += 1;
            let mut image = moment.image([]);
            torn(&mut image, &moment.cached, &mut random);
            let all: Vec<_> = image.places().into_iter().map(|at| (at, image.content(at).unwrap().clone())).collect();
            check(&path, moment.pages, all)
        });
        looked.unwrap_or_else(|e| panic!("{}", replay(seed, &e)));
    }
    println!("{images} images with torn pages");
}
