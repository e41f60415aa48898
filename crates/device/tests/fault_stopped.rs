//! Goal: a device whose process is stopped (SIGSTOP) is not dead. Where data are copied its host
//! gets a time-out. Where the device has the frames, its host waits, because the device could still
//! write to them. When the device continues nothing is torn or lost, and late answers are not
//! mistaken. A device that is killed while it is stopped has died.
//! Method: this program starts itself as a device, and stops it by SIGSTOP under requests.

use crate::common;
use crate::process;

use std::time::{Duration, Instant};

use common::*;
use fulgurite_device::HostConfig;
use fulgurite_flash::{FlashError, Op};
use process::*;

#[test]
fn a_stopped_process_is_a_time_out_and_goes_on_when_it_continues() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), Over::File);
    let flash = process.flash(Some(Duration::from_millis(50)));
    let frames = arena(2);
    let mut queue = Driver::new(&flash, &frames, 2);
    fill(&frames, 0, 5);
    // The first commands may meet a process that is still busy with its start.
    while queue.one(Op::Write, 7, 0) == Err(FlashError::TimedOut) {}
    let mut queue = Driver::new(&flash, &frames, 2);
    let mut commands = flash.commands(2, 2).unwrap();
    let stopped = process.stop();
    let begun = Instant::now();
    assert_eq!(queue.one(Op::Read, 7, 1), Err(FlashError::TimedOut));
    assert_eq!(queue.one(Op::Write, 8, 0), Err(FlashError::TimedOut));
    assert_eq!(commands.read(7, &mut [0; 4096]), Err(FlashError::TimedOut));
    // The driver's clock is the processor's counter, whose rate was measured once.
    assert!(begun.elapsed() >= Duration::from_millis(25));
    assert!(flash.host_counters().timed_out > 0);
    drop(stopped);
    while queue.one(Op::Read, 7, 1) == Err(FlashError::TimedOut) {}
    assert_eq!(stamp_of(&frames, 1), Some(5));
    // The queue pairs are the same as before: nothing was opened anew, and late answers were not
    // mistaken.
    let mut bytes = [0; 4096];
    while commands.read(7, &mut bytes) == Err(FlashError::TimedOut) {}
    frames.write(4096, &bytes);
    assert_eq!((stamp_of(&frames, 1), flash.host_counters().relinked), (Some(5), 0));
}

/// How long a host waits for a device that died.
const REATTACH: Duration = Duration::from_millis(20);

/// Polls for this long, and for several times its patience; returns what was reported meanwhile.
fn tells_while_stopped(queue: &mut Driver) -> usize {
    let (begun, mut reported) = (Instant::now(), Vec::new());
    while begun.elapsed() < 10 * REATTACH {
        queue.queue.wait(Some(Duration::from_millis(5)));
        queue.queue.poll(&mut reported);
    }
    reported.len()
}

/// No time-out ends requests whose frames the device has, or that are copied and have none.
#[test]
fn requests_wait_for_a_stopped_device_and_end_well_when_it_goes_on() {
    for over in [Over::Memory, Over::File] {
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(directory.path(), over);
        let timeout = (over == Over::Memory).then_some(REATTACH);
        let flash = process.flash_with(HostConfig { timeout, reattach: REATTACH, ..host(8 << 20) });
        let frames = process.frames(8);
        let mut queue = Driver::new(&flash, &frames, 8);
        for round in 1..4u64 {
            for sector in 0..4 {
                fill(&frames, sector, round * 100 + u64::from(sector));
                queue.one(Op::Write, sector, sector).unwrap();
            }
            let stopped = process.stop();
            let reads: Vec<u64> = (0..4).map(|sector| queue.submit(Op::Read, sector, 4 + sector)).collect();
            let writes: Vec<u64> = (0..4)
                .map(|sector| {
                    fill(&frames, sector, round * 100 + 50 + u64::from(sector));
                    queue.submit(Op::Write, 8 + sector, sector)
                })
                .collect();
            queue.queue.flush().unwrap();
            assert_eq!(tells_while_stopped(&mut queue), 0, "{over:?}: a device that is stopped has ended something");
            drop(stopped);
            let ended = queue.finish_all();
            assert!(reads.iter().chain(&writes).all(|tag| ended[tag] == Ok(())), "{over:?}: {ended:?}");
            for sector in 0..4 {
                assert_eq!(stamp_of(&frames, 4 + sector), Some(round * 100 + u64::from(sector)), "{over:?}");
                queue.one(Op::Read, 8 + sector, 4 + sector).unwrap();
                assert_eq!(stamp_of(&frames, 4 + sector), Some(round * 100 + 50 + u64::from(sector)), "{over:?}");
            }
        }
        let counters = flash.host_counters();
        assert_eq!((counters.relinked, counters.timed_out, counters.broken), (0, 0, 0), "{over:?}: it is the same one");
        assert_eq!(counters.with_frames > 0, over == Over::Memory);
    }
}

/// What it had goes to the next device, and nothing of it is written after that.
#[test]
fn a_device_that_is_killed_while_it_is_stopped_is_one_that_died() {
    for over in [Over::Memory, Over::File, Over::Store] {
        let directory = tempfile::tempdir().unwrap();
        let mut process = Process::start(directory.path(), over);
        let flash = process.flash(None);
        let frames = process.frames(4);
        let mut queue = Driver::new(&flash, &frames, 4);
        fill(&frames, 0, 1);
        queue.one(Op::Write, 7, 0).unwrap();
        let stopped = process.stop();
        let read = queue.submit(Op::Read, 7, 1);
        fill(&frames, 2, 2);
        let write = queue.submit(Op::Write, 8, 2);
        queue.queue.flush().unwrap();
        assert_eq!(tells_while_stopped(&mut queue), 0, "{over:?}");
        process.kill_and_start();
        // There is nothing to go on with.
        std::mem::forget(stopped);
        let ended = queue.finish_all();
        assert_eq!((ended[&read], ended[&write]), (Ok(()), Ok(())), "{over:?}");
        assert_eq!(stamp_of(&frames, 1), Some(1), "{over:?}");
        queue.one(Op::Read, 8, 3).unwrap();
        assert_eq!((stamp_of(&frames, 3), flash.host_counters().relinked), (Some(2), 1), "{over:?}");
    }
}
