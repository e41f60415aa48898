//! Goal: a device's register *room* is believed exactly: claims stay within it. A device with a
//! store never says more than its store has when the end of a write is seen. Nonsense in it costs
//! refusals or grants, and neither a panic nor a hang.
//! Method: a firmware with a store that is turned by hand, by two regions, at random; a device
//! played by the test whose register is written at random while claims, writes, syncs and roll
//! backs come in any order. Seeds are printed.

use crate::common;
use crate::fuzz;
use crate::hand;

use std::sync::Arc;

use common::{Random, arena, request, trials};
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::Notifier;
use fuzz::fuzz;
use hand::Woken;
use hand::played::*;

const DEPTH: usize = 8;
const BUFFER: u32 = 16;

/// One queue pair of the firmware, of a region of its own.
struct Pair {
    region: Arc<Region>,
    submissions: Producer<SUBMISSION_WORDS>,
    completions: Consumer<COMPLETION_WORDS>,
    under_way: Vec<(u16, Opcode)>,
}

fn history(seed: u64) {
    let mut random = Random(seed);
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(2048).unwrap());
    let geometry = Geometry::new(2048, 32, Some(1024)).unwrap();
    Pool::format(&medium, geometry, PoolId([7; 16]), 0).unwrap();
    let mut config = StoreConfig::default();
    config.keep_tokens = 2;
    let store = Pool::open(medium, config).unwrap().0.into_flash();
    let pool = store.layer().clone();
    let config = FirmwareConfig { flushes_itself: false, ..FirmwareConfig::default() };
    let backend = Arc::new(Backend::new(Arc::new(store), config, 1).with_pool(pool.clone()));
    assert!(backend.features().has(Features::ROOM));
    let wake = Arc::new(Notifier::new().unwrap());
    let mut firmware = Firmware::new(backend.clone(), &wake).unwrap();
    let mut pairs: Vec<Pair> = (0..2)
        .map(|_| {
            let region = Arc::new(Region::create(backend.capability(1, DEPTH, BUFFER), false).unwrap());
            firmware.add(backend.open_port(&region, 0, None, &wake, Arc::new(Woken::default())).unwrap());
            // Before anything was done.
            assert_eq!(region.room(), Some(pool.info().room));
            let (submissions, completions) = region.host_ends(0);
            Pair { region, submissions, completions, under_way: Vec::new() }
        })
        .collect();
    let (mut token, mut ended_jobs, mut written) = (0, 0, 0);
    // Jobs have a thread of their own, which the machine may keep waiting.
    for step in 0.. {
        if step >= 4000 && ended_jobs > 20 {
            break;
        }
        assert!(step < 4_000_000, "seed {seed}: {ended_jobs} jobs ended");
        let what = format!("seed {seed}, step {step}");
        let jobs = pairs.iter().flat_map(|pair| &pair.under_way).filter(|(_, opcode)| !is_data(*opcode)).count();
        let pair = &mut pairs[random.below(2) as usize];
        if let Some(id) = (0..DEPTH as u16).find(|id| !pair.under_way.iter().any(|(of, _)| of == id)) {
            let (opcode, sector, count, argument) = match random.below(40) {
                // One at a time, so that the user of the store is known.
                0 if jobs == 0 => (Opcode::Sync, 0, 0, 0),
                1 if jobs == 0 => (Opcode::Delete, random.below(64) * 16, 16, 0),
                2 if jobs == 0 => (Opcode::RollBack, 0, 0, token),
                3 if jobs == 0 => (Opcode::Pin, 0, 0, token),
                4 if jobs == 0 => (Opcode::Unpin, 0, 0, token),
                5 | 6 => (Opcode::Read, random.below(1024), 1, 0),
                _ => (Opcode::Write, random.below(1020), 1 + random.below(2) as u32, 0),
            };
            let buffer = u32::from(id) * 2;
            pair.submissions
                .push(Command { id, opcode: opcode as u8, flags: 0, sector, count, buffer, argument }.pack());
            pair.under_way.push((id, opcode));
        }
        firmware.turn();
        let no_job = !pairs.iter().flat_map(|pair| &pair.under_way).any(|(_, opcode)| !is_data(*opcode));
        let there = pool.info().room;
        let said: Vec<u64> = pairs.iter().filter_map(|pair| pair.region.room()).collect();
        let mut job_ended = false;
        for pair in &mut pairs {
            while let Some(entry) = pair.completions.pop() {
                let ended = Ended::unpack(entry.unwrap());
                let at = pair.under_way.iter().position(|(id, _)| *id == ended.id).unwrap();
                let (_, opcode) = pair.under_way.swap_remove(at);
                written += u64::from(opcode == Opcode::Write && ended.status == Status::SUCCESS);
                if !is_data(opcode) {
                    (ended_jobs, job_ended) = (ended_jobs + 1, true);
                    if opcode == Opcode::Sync && ended.status == Status::SUCCESS {
                        token = ended.result;
                    }
                }
            }
        }
        // What a job does meanwhile comes in between. After its end all regions say what it has
        // left, or what a later one of the same turn did.
        if job_ended {
            assert_eq!(said, [there; 2], "{what}");
        } else if no_job {
            assert!(said.iter().min() <= Some(&there), "{what}: {said:?} said, {there} there");
        }
    }
    assert!(written > 200, "seed {seed}: {written} writes");
}

fn is_data(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Read | Opcode::Write)
}

#[test]
fn a_device_says_what_room_its_store_has_before_the_end_of_a_write_is_seen() {
    trials::each_seed(1, 5, history);
}

/// One whose program names the states.
struct Named(Arc<Played>);

impl Link for Named {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        self.0.open(want)
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn sectors(&self) -> u32 {
        self.0.sectors()
    }
    fn features(&self) -> Features {
        self.0.features()
    }
    fn counters(&self) -> DeviceCounters {
        self.0.counters()
    }
    fn names_states(&self) -> bool {
        true
    }
}

const STORE: Features = Features(Features::TOKENS.0 | Features::PAGES.0 | Features::KEEPS_WRITES.0);

struct Host {
    flash: DeviceFlash,
    queue: Box<dyn Queue>,
    region: Arc<Region>,
    ends: (Consumer<SUBMISSION_WORDS>, Producer<COMPLETION_WORDS>),
}

impl Host {
    fn of(features: Features) -> Host {
        let device = played_with(features);
        let config = HostConfig { copies: true, ..HostConfig::default() };
        let flash = DeviceFlash::over(Arc::new(Named(device.clone())), config);
        let queue = flash.open_queue(arena(DEPTH as u32), DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
        let region = device.opened.lock().unwrap()[0].clone();
        let ends = region.device_ends(0);
        Host { flash, queue, region, ends }
    }
    /// One write, which the device says has ended so.
    fn write(&mut self, sector: u32, status: Status) {
        self.queue.submit(request(1, Op::Write, sector, 0)).unwrap();
        self.queue.flush().unwrap();
        let words = self.ends.0.pop().unwrap().unwrap();
        self.ends.1.push(Ended { id: Command::unpack(words).id, status, result: 0 }.pack());
        let mut found = Vec::new();
        assert_eq!(self.queue.poll(&mut found), 1);
        assert_eq!(found[0].result, status.to_result());
    }
    /// Claims until a claim is refused, at most `most` times.
    fn claims(&self, most: u64) -> u64 {
        (0..most).take_while(|_| self.flash.begin_change(0, false).is_ok()).count() as u64
    }
}

#[test]
fn whoever_changes_something_gets_no_more_than_the_device_says() {
    let mut host = Host::of(STORE.with(Features::ROOM, true));
    let versions = |host: &Host, begins: bool| {
        let versions = host.flash.versions().unwrap();
        if begins { versions.sync_begins() } else { versions.sync_ended(true) }
    };
    host.region.set_room(1000);
    assert!(!host.flash.asks() && host.flash.begin_change(0, false).is_ok(), "nobody has said what differs");
    assert!(host.flash.leave_for_sync(100) && !host.flash.asks());
    // It is seen in time that there is not much left.
    let mut room = 1000;
    while !host.flash.asks() {
        room -= 1;
        host.region.set_room(room);
        host.write(room as u32 % 100, Status::SUCCESS);
    }
    assert!((300..400).contains(&room), "{room}");
    host.flash.versions().unwrap().counting_begins();
    host.flash.versions().unwrap().counted(0);
    host.region.set_room(200);
    let first = host.claims(1000);
    assert!((100..200).contains(&first), "{first} of 200, of which some are kept for a sync");
    // A write that has ended has its place, so the device reports that much less room, and no more
    // can be had.
    for n in 0..10 {
        host.region.set_room(200 - n - 1);
        host.write(n as u32, Status::SUCCESS);
        assert_eq!(host.claims(10), 0);
    }
    // One that failed has none.
    host.write(50, Status::NO_SPACE);
    assert_eq!(host.claims(10), 0);
    // What a sync changes is granted in any case, and the room that it makes is for all.
    assert!(host.flash.begin_change(0, true).is_ok());
    versions(&host, true);
    for n in 0..first as u32 {
        host.write(n % 100, Status::SUCCESS);
    }
    host.region.set_room(200);
    versions(&host, false);
    let again = host.claims(1000);
    assert!((100..200).contains(&again), "{again}");
    assert_eq!(host.flash.versions().unwrap().uncommitted().map(|n| n > again), Some(true));
    // Pages that are deleted could take what is left.
    let refused = host.flash.delete_pages(0..1);
    assert!(matches!(refused, Err(VersionError::Flash(FlashError::NoSpace))), "{refused:?}");
}

#[test]
fn a_host_of_a_device_that_says_no_room_does_without() {
    let host = Host::of(STORE);
    host.region.set_room(0);
    assert!(!host.flash.leave_for_sync(100) && !host.flash.asks());
    assert_eq!(host.claims(1000), 1000);
}

fn nonsense(seed: u64) -> u64 {
    const STEPS: u64 = 20_000;
    let mut random = Random(seed);
    let mut host = Host::of(STORE.with(Features::ROOM, true));
    let (mut granted, mut refused) = (0, 0);
    for step in 0..STEPS {
        match random.below(16) {
            0..=2 => {
                let said = match random.below(6) {
                    0 => 0,
                    1 => u64::MAX - random.below(2),
                    2 => random.next(),
                    3 => 1 << random.below(64),
                    _ => random.below(1000),
                };
                host.region.set_room(said);
            }
            3..=9 => match host.flash.begin_change(0, random.one_in(8)) {
                Ok(()) => granted += 1,
                Err(error) => {
                    assert_eq!(error, FlashError::NoSpace);
                    refused += 1;
                }
            },
            10 | 11 => {
                let status = if random.one_in(4) { Status::NO_SPACE } else { Status::SUCCESS };
                host.write(random.below(100) as u32, status);
            }
            12 => host.flash.versions().unwrap().sync_begins(),
            13 => host.flash.versions().unwrap().sync_ended(random.one_in(2)),
            14 => {
                host.flash.versions().unwrap().counting_begins();
                host.flash.versions().unwrap().counted(random.below(200));
            }
            _ if step % 64 == 0 => {
                host.flash.leave_for_sync(random.below(300));
                host.flash.set_syncs_for_writers(random.one_in(2));
            }
            _ => {
                let _ = (host.flash.asks(), host.flash.wants_sync(), host.flash.versions().unwrap().uncommitted());
            }
        }
    }
    assert!(granted > 0 && refused > 0, "seed {seed}: {granted} granted, {refused} refused");
    STEPS
}

#[test]
fn nonsense_in_the_register_costs_refusals_and_no_more() {
    fuzz("steps of a host whose device says nonsense of its room", nonsense);
}
