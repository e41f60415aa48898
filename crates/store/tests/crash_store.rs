//! Goal: a crash at any point loses nothing that was acknowledged, and brings nothing back
//! partially. Method: keep a log of all that was written to the flash and of what was promised.
//! Make what the flash may hold after each write (every subset of what was under way, whole or
//! torn). Open it, and compare with the content of the token.

use crate::world;

use std::time::Instant;

use fulgurite_store::Planted;
use world::attacks::{self, first_seed, runs};
use world::trials::figure;

fn done(what: &str, images: u64, since: Instant) {
    println!("{what}: {images} images, 0 violations, {:.1} s", since.elapsed().as_secs_f64());
}

#[test]
fn every_short_sequence_and_every_subset() {
    let (since, seed) = (Instant::now(), first_seed());
    let images: u64 = (seed..seed + runs(5)).map(|s| attacks::enumerate(None, s, 1..=3).unwrap()).sum();
    done("crash enumeration", images, since);
    assert!(images >= 20_000 || runs(5) < 5, "{images} are too few");
    figure(1, "images of crashes at every write of short workloads", images);
}

#[test]
fn torn_pages_of_metadata() {
    let (since, seed) = (Instant::now(), first_seed());
    let images: u64 = (seed..seed + runs(60)).map(|s| attacks::torn(None, s).unwrap()).sum();
    done("torn writes", images, since);
    assert!(images >= 5_000 || runs(60) < 60, "{images} are too few");
    figure(3, "images with torn pages", images);
}

#[test]
fn long_runs() {
    let (since, seed) = (Instant::now(), first_seed());
    let images: u64 = (seed..seed + runs(40)).map(|s| attacks::random_crashes(None, s).unwrap()).sum();
    let deep: u64 = (seed..seed + runs(40) / 8).map(|s| attacks::deep_crashes(None, s).unwrap()).sum();
    done("random crashes", images + deep, since);
    figure(2, "crashes and recoveries of long workloads", images + deep);
}

/// Whether one of the tests finds a planted bug, and which.
fn caught(planted: Planted) -> Option<String> {
    type Attack = (&'static str, fn(Planted, u64) -> Result<u64, String>);
    let attacks: [Attack; 5] = [
        ("crash enumeration", |p, s| attacks::enumerate(Some(p), s, 1..=2)),
        ("torn writes", |p, s| attacks::torn(Some(p), s)),
        ("random crashes", |p, s| attacks::random_crashes(Some(p), s)),
        ("crashes of deep histories", |p, s| attacks::deep_crashes(Some(p), s)),
        ("damage", |p, s| {
            let mut world = attacks::quiet_run(Some(p), s);
            let config = world.config;
            attacks::flip_some(&attacks::left_by(&mut world), config, s, 2_000).map(|met| met.images)
        }),
    ];
    for seed in 0..10 {
        for (name, attack) in &attacks {
            // A planted bug may also meet an assertion of the store.
            match std::panic::catch_unwind(|| attack(planted, seed)) {
                Ok(Ok(_)) => {}
                Ok(Err(e)) => return Some(format!("{name}: {}", e.lines().next().unwrap_or_default())),
                Err(_) => return Some(format!("{name}: an assertion")),
            }
        }
    }
    None
}

#[test]
fn planted_bugs_are_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let results: Vec<_> = Planted::ALL.into_iter().map(|planted| (planted, caught(planted))).collect();
    std::panic::set_hook(hook);
    let found = results.iter().filter(|(_, caught)| caught.is_some()).count();
    for (planted, caught) in &results {
        println!("{planted:?}: {}", caught.as_deref().unwrap_or("NOT FOUND"));
    }
    println!("canaries: {found} of {} found", Planted::ALL.len());
    assert_eq!(found, Planted::ALL.len());
    figure(21, "planted bugs found", found as u64);
}
