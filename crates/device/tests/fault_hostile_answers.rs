//! Goal: answers that break the protocol are typed errors, and keep no caller waiting.
//! Method: a device played by the test, one way to mislead its host at a time.

use crate::common;
use crate::hand;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{arena, fill, request};
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_sys::Notifier;
use hand::played::*;

/// Nothing waits so long on any machine.
const FOREVER: Duration = Duration::from_secs(60);

fn with_tokens() -> Arc<Played> {
    played_with(Features::KEEPS_WRITES.with(Features::PAGES, true).with(Features::TOKENS, true))
}

/// Ends one command with this result, when it comes.
fn end_next(submissions: &mut Consumer<4>, completions: &mut Producer<2>, result: u64) -> Command {
    let begun = Instant::now();
    loop {
        if let Some(entry) = submissions.pop() {
            let command = Command::unpack(entry.unwrap());
            completions.push(Ended { id: command.id, status: Status::SUCCESS, result }.pack());
            return command;
        }
        assert!(begun.elapsed() < FOREVER, "nothing is asked for");
        std::thread::yield_now();
    }
}

/// Waits for a region that is opened.
fn opened(device: &Played, which: usize) -> Arc<Region> {
    let begun = Instant::now();
    loop {
        if let Some(region) = device.opened.lock().unwrap().get(which) {
            return region.clone();
        }
        assert!(begun.elapsed() < FOREVER, "no queue pair is opened");
        std::thread::yield_now();
    }
}

/// A returned device names states until their numbers pass its predecessor's. Without growth it
/// never gets there.
#[test]
fn who_names_states_by_numbers_that_do_not_grow_is_not_asked_for_ever() {
    let device = with_tokens();
    let config = HostConfig { copies: true, reattach: Duration::from_secs(20), ..HostConfig::default() };
    let flash = Arc::new(DeviceFlash::over(device.clone(), config));
    let (names, named) = std::sync::mpsc::channel();
    let name = |flash: &Arc<DeviceFlash>| {
        let (names, flash) = (names.clone(), flash.clone());
        std::thread::spawn(move || names.send(flash.versions().unwrap().name_state()).unwrap());
    };
    name(&flash);
    let region = opened(&device, 0);
    let (mut submissions, mut completions) = region.device_ends(0);
    end_next(&mut submissions, &mut completions, 1000);
    assert_eq!(named.recv_timeout(FOREVER).unwrap(), Ok(1000));
    // It returns as another one, with lower numbers: as long as they grow, it is asked once more.
    device.instance.store(2, Ordering::Relaxed);
    completions.push(Ended { id: NO_ID, status: Status::DAMAGED_ENTRY, result: 0 }.pack());
    name(&flash);
    let region = opened(&device, 1);
    let (mut submissions, mut completions) = region.device_ends(0);
    for token in [7, 8, 999] {
        assert_eq!(end_next(&mut submissions, &mut completions, token).opcode, Opcode::Name as u8);
    }
    end_next(&mut submissions, &mut completions, 999);
    let begun = Instant::now();
    let reported = loop {
        if let Ok(reported) = named.try_recv() {
            break reported;
        }
        assert!(begun.elapsed() < FOREVER, "it is never reported");
        // It would be asked again and again.
        if let Some(entry) = submissions.pop() {
            let command = Command::unpack(entry.unwrap());
            completions.push(Ended { id: command.id, status: Status::SUCCESS, result: 999 }.pack());
        }
        assert!(submissions_taken(&mut completions) < 1000, "it is asked without end");
    };
    assert_eq!(reported, Err(FlashError::Io(71).into()));
    // And goes on, where they are beyond.
    name(&flash);
    end_next(&mut submissions, &mut completions, 1001);
    assert_eq!(named.recv_timeout(FOREVER).unwrap(), Ok(1001));
}

fn submissions_taken(completions: &mut Producer<2>) -> u64 {
    completions.position()
}

/// Nothing is asked of a device of another size, and no copy is written there.
#[test]
fn a_device_of_another_size_is_not_taken_for_the_one_that_died() {
    let device = played_with(Features::default());
    let config = HostConfig { copies: true, reattach: Duration::ZERO, ..HostConfig::default() };
    let flash = DeviceFlash::over(device.clone(), config);
    let frames = arena(1);
    let mut queue = flash.open_queue(frames.clone(), 1, Arc::new(Notifier::new().unwrap())).unwrap();
    let region = opened(&device, 0);
    let (mut submissions, mut completions) = region.device_ends(0);
    fill(&frames, 0, 5);
    queue.submit(request(1, Op::Write, 9, 0)).unwrap();
    queue.flush().unwrap();
    end_next(&mut submissions, &mut completions, 0);
    let mut found = Vec::new();
    assert_eq!(queue.poll(&mut found), 1);
    device.instance.store(2, Ordering::Relaxed);
    for sectors in [99, 101] {
        device.said_sectors.store(sectors, Ordering::Relaxed);
        let refused = |error: OpenError| assert!(error.to_string().contains("another size"), "{error}");
        refused(flash.commands(1, 1).unwrap_err());
        refused(flash.open_queue(frames.clone(), 1, Arc::new(Notifier::new().unwrap())).err().unwrap());
    }
    let restoring = device.restoring.lock().unwrap();
    assert!(restoring.iter().all(|restores| !restores), "copies were on their way to it");
}

/// Of sectors that no device of this size has, success is nothing that could be kept.
#[test]
fn a_write_beyond_the_end_that_is_acknowledged_is_not_kept() {
    let device = played_with(Features::default());
    let flash = DeviceFlash::over(device.clone(), HostConfig { copies: true, ..HostConfig::default() });
    let mut commands = flash.commands(2, 8).unwrap();
    let region = opened(&device, 0);
    let (mut submissions, mut completions) = region.device_ends(0);
    for sector in [u64::from(u32::MAX), u64::from(u32::MAX) - 1, u64::MAX, u64::MAX - 3, 100, 97] {
        let id = commands.begin(Opcode::Write, sector, 4, Some(&[7; 4 * SECTOR_BYTES])).unwrap();
        end_next(&mut submissions, &mut completions, 0);
        let done = commands.wait().unwrap();
        assert_eq!((done.id, done.status), (id, Status::SUCCESS));
        commands.release(id);
    }
    assert_eq!(commands.free_sectors(), 8);
}

/// A device that only says what cannot be believed is left, also without a time-out.
#[test]
fn a_device_that_says_only_nonsense_is_given_up() {
    let device = played();
    let flash = DeviceFlash::over(device.clone(), HostConfig { copies: true, ..HostConfig::default() });
    let mut queue = flash.open_queue(arena(1), 1, Arc::new(Notifier::new().unwrap())).unwrap();
    queue.submit(request(7, Op::Read, 0, 0)).unwrap();
    queue.flush().unwrap();
    let (begun, mut found, mut ends) = (Instant::now(), Vec::new(), Vec::new());
    while found.is_empty() {
        assert!(begun.elapsed() < FOREVER, "{:?}", flash.host_counters());
        let regions = device.opened.lock().unwrap().clone();
        ends.extend(regions[ends.len()..].iter().map(|region| region.device_ends(0).1));
        // Each poll finds something, so that it never looks for anything else.
        let (_, newest) = ends.split_at_mut(regions.len() - 1);
        newest[0].push(Ended { id: 500, status: Status::SUCCESS, result: 0 }.pack());
        queue.poll(&mut found);
    }
    assert_eq!(found, [Completion { tag: 7, result: Err(FlashError::Closed), checksum: 0 }]);
    // By commands, too.
    let mut commands = flash.commands(1, 1).unwrap();
    let region = device.opened.lock().unwrap().last().unwrap().clone();
    let (_, mut completions) = region.device_ends(0);
    commands.begin(Opcode::Read, 0, 1, None).unwrap();
    for _ in 0..100 {
        completions.push(Ended { id: 500, status: Status::SUCCESS, result: 0 }.pack());
        assert_eq!(commands.poll(), None);
    }
    assert_eq!(commands.wait(), Err(FlashError::Closed));
}

/// As long as others end, each poll finds something: the one that hangs is a time-out nevertheless.
#[test]
fn one_that_hangs_is_a_time_out_however_much_the_others_bring() {
    let device = played();
    let config = HostConfig { copies: true, timeout: Some(Duration::from_millis(20)), ..HostConfig::default() };
    let flash = DeviceFlash::over(device.clone(), config);
    let mut queue = flash.open_queue(arena(2), 2, Arc::new(Notifier::new().unwrap())).unwrap();
    let region = opened(&device, 0);
    let (mut submissions, mut completions) = region.device_ends(0);
    queue.submit(request(0, Op::Read, 0, 0)).unwrap();
    queue.flush().unwrap();
    let hangs = Command::unpack(submissions.pop().unwrap().unwrap());
    let begun = Instant::now();
    for tag in 1.. {
        assert!(begun.elapsed() < FOREVER, "{tag} others have ended");
        queue.submit(request(tag, Op::Read, 5, 1)).unwrap();
        queue.flush().unwrap();
        let command = Command::unpack(submissions.pop().unwrap().unwrap());
        completions.push(Ended { id: command.id, status: Status::SUCCESS, result: 0 }.pack());
        let mut found = Vec::new();
        queue.poll(&mut found);
        if let Some(late) = found.iter().find(|completion| completion.tag == 0) {
            assert_eq!(late.result, Err(FlashError::TimedOut));
            break;
        }
    }
    // What it says in the end is nobody's.
    completions.push(Ended { id: hangs.id, status: Status::SUCCESS, result: 0 }.pack());
    let mut found = Vec::new();
    queue.poll(&mut found);
    assert!(found.iter().all(|completion| completion.tag != 0));
    drop(queue);
}
