//! Goal: a worker that has nothing to do costs next to nothing, and what is dirty is written ahead
//! nevertheless. Method: checks of frames are counted. Many sleeps with nothing to write must not
//! check all cold frames each time: a round is begun at most once in a while, whatever the number
//! of sleeps. Then there are a few writes, and nothing asks for a write-back: they reach flash.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_flash::MemoryFlash;
use fulgurite_format::Address;
use fulgurite_policy::ReplacementPolicy;
use fulgurite_runtime::{Counts, Runtime};

const SUBPAGES: u64 = 4096;
/// How long no round is begun after one that found nothing, as `evict` has it.
const REST: Duration = Duration::from_millis(50);

fn runtime(policy: ReplacementPolicy) -> Runtime {
    let flash = Arc::new(MemoryFlash::new(SUBPAGES as u32).unwrap());
    let builder = Runtime::builder(flash).dram(40 << 20).fibers(4).replacement(policy);
    // All has contents on flash: what comes in from there is not marked as used again, and so is
    // cold.
    builder.existing(SUBPAGES * 4096).prefetch("off".parse().unwrap()).build().unwrap()
}

fn counts(runtime: &Runtime) -> Counts {
    runtime.statistics().total().counts
}

/// Until the worker has slept once more.
fn slept(runtime: &Runtime) {
    let before = counts(runtime).sleeps;
    while counts(runtime).sleeps == before {
        std::thread::yield_now();
    }
}

#[test]
fn sleeps_do_not_check_all_frames() {
    for policy in ReplacementPolicy::ALL {
        let runtime = runtime(policy);
        let begun = Instant::now();
        // All of it resident, nothing of it dirty.
        runtime.run(|m| (0..SUBPAGES).try_for_each(|n| m.access(Address::from_linear(n * 4096)).map(drop))).unwrap();
        // Past the rest after the round over no frames at all.
        std::thread::sleep(2 * REST);
        let frames = counts(&runtime).frames;
        assert!(frames >= SUBPAGES, "{frames} frames: all of it is resident");
        let before = counts(&runtime);
        for _ in 0..400 {
            runtime.run(|_| Ok(())).unwrap();
            slept(&runtime);
        }
        let after = counts(&runtime);
        let (looks, sleeps) = (after.looks_ahead, after.sleeps - before.sleeps);
        let rounds = 2 + (begun.elapsed().as_nanos() / REST.as_nanos()) as u64;
        println!("{policy}: {looks} looks, {sleeps} sleeps, at most {rounds} rounds");
        assert!(sleeps >= 400);
        assert!(looks >= SUBPAGES / 8, "no round was ever made: the test tests nothing");
        assert!(looks <= rounds * (frames / 4 + 128), "{policy}: {looks} looks in at most {rounds} rounds");
        assert!(looks < 400 * SUBPAGES / 8, "{policy}: {looks} looks for {sleeps} sleeps");
    }
}

#[test]
fn what_is_written_is_written_ahead_though_the_last_round_found_nothing() {
    for policy in ReplacementPolicy::ALL {
        let runtime = runtime(policy);
        runtime.run(|_| Ok(())).unwrap();
        slept(&runtime);
        for round in 1..=3 {
            // Just after a round that found nothing, which is when none is begun.
            runtime.run(move |m| m.access_mut(Address::from_linear(round * 4096)).map(drop)).unwrap();
            let begun = Instant::now();
            // Asking wakes the worker; it must not need that.
            std::thread::sleep(4 * REST);
            while counts(&runtime).written_ahead < round {
                assert!(begun.elapsed() < Duration::from_secs(20), "{policy}: nothing is written ahead");
                std::thread::sleep(REST);
            }
        }
    }
}
