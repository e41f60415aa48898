//! Goal: a decorator passes on everything that it does not change on purpose: traits, permissions,
//! room, states with names, trims, the user and the switches of a queue.
//! Method: a medium whose every answer is unusual, and which notes what reaches it; each decorator
//! over it, and what is to be seen through it written down field by field.

use crate::{common, nand};

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use fulgurite_flash::*;
use fulgurite_format::SubpageIndex;
use fulgurite_sys::{Arena, Clock, Notifier};

/// What has reached a medium.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Received {
    opened: Vec<QueueUser>,
    switched: Vec<Switches>,
    frames: Vec<Range<u32>>,
    trimmed: Vec<(u32, u32)>,
    polls_announced: u32,
}

/// Memory that answers as no medium does, and notes what reaches it.
struct Odd {
    inner: MemoryFlash,
    received: Arc<Mutex<Received>>,
}

const SUBPAGES: u32 = 256;
const ODD: Traits = Traits {
    dram_bytes: 1001,
    shares_frames: true,
    patience: Duration::from_millis(1002),
    gathers: 13,
    holds_writes: 14,
    trims: true,
    serves_callers: true,
    tuning: Tuning { submit_batch: 15, spin: Duration::from_micros(1016) },
};
const USERS: [QueueUser; 3] = [QueueUser::OneThread, QueueUser::AnyThread, QueueUser::Caller];
/// May be read, and not written.
const READ_ONLY: u32 = 21;

fn odd(subpages: u32) -> (Odd, Arc<Mutex<Received>>) {
    let received = Arc::<Mutex<Received>>::default();
    (Odd { inner: MemoryFlash::new(subpages).unwrap(), received: received.clone() }, received)
}

// SAFETY: its queues are memory's, which keeps the contract itself.
unsafe impl FrameContract for Odd {}

impl Flash for Odd {
    fn subpages(&self) -> u32 {
        self.inner.subpages()
    }
    fn describe(&self) -> String {
        "odd".to_owned()
    }
    fn traits(&self) -> Traits {
        ODD
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        10_000 + frames as usize
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        self.received.lock().unwrap().opened.push(user);
        Ok(Box::new(OddQueue { inner: self.inner.open_queue(frames, depth, wake)?, received: self.received.clone() }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        self.received.lock().unwrap().trimmed.push((first.0, count));
        Ok(())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        Some(self)
    }
    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }
}

impl Backing for Odd {
    fn may(&self, subpage: u32, write: bool) -> bool {
        !write || subpage != READ_ONLY
    }
    fn asks(&self) -> bool {
        true
    }
    fn begin_change(&self, _: u32, for_sync: bool) -> Result<(), FlashError> {
        if for_sync { Ok(()) } else { Err(FlashError::NoSpace) }
    }
    fn waits_for_room(&self) -> bool {
        true
    }
    fn versions(&self) -> Option<&dyn Versions> {
        Some(self)
    }
    fn objects(&self) -> Option<&dyn Objects> {
        None
    }
}

impl Versions for Odd {
    fn name_state(&self) -> Result<u64, VersionError> {
        Ok(77)
    }
    fn wait_durable(&self, _: u64) -> Result<(), VersionError> {
        Ok(())
    }
    fn can_roll_back(&self, _: u64) -> Result<(), VersionError> {
        Ok(())
    }
    fn roll_back(&self, _: u64) -> Result<(), VersionError> {
        Ok(())
    }
    fn tokens(&self) -> Vec<u64> {
        vec![77]
    }
}

struct OddQueue {
    inner: Box<dyn Queue>,
    received: Arc<Mutex<Received>>,
}

impl Queue for OddQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        self.inner.submit(request)
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        self.inner.flush()
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.inner.poll(completions)
    }
    fn will_poll(&self) {
        self.received.lock().unwrap().polls_announced += 1;
    }
    fn switch(&mut self, to: Switches) -> Switches {
        self.received.lock().unwrap().switched.push(to);
        to
    }
    fn use_frames(&mut self, frames: Range<u32>) {
        self.received.lock().unwrap().frames.push(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        self.inner.wait(timeout);
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

/// Subpage i is stored at flash page i.
struct Straight(Arc<dyn Flash>, Clock);

impl Layer for Straight {
    fn medium(&self) -> &Arc<dyn Flash> {
        &self.0
    }
    fn subpages(&self) -> u32 {
        self.0.subpages()
    }
    fn describe(&self) -> String {
        "straight".to_owned()
    }
    fn dram_bytes(&self) -> usize {
        7 + self.0.traits().dram_bytes
    }
    fn locate(&self, subpage: u32) -> Location {
        Location::At(FlashAddress::whole(subpage, 0))
    }
    fn place(&self, subpages: &[u32], places: &mut Vec<u32>) -> Result<(), FlashError> {
        places.extend(subpages);
        Ok(())
    }
    fn written(&self, writes: &mut Vec<Written>) -> Result<(), FlashError> {
        writes.clear();
        Ok(())
    }
    fn not_written(&self, _: u32, _: FlashError) -> bool {
        false
    }
    fn unreadable(&self, _: u32, _: FlashError) {}
    fn checks(&self) -> bool {
        false
    }
    fn work(&self) -> bool {
        false
    }
    fn clock(&self) -> &Clock {
        &self.1
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.0.backing()
    }
    fn begin_flush(&self) -> Result<u64, FlashError> {
        Ok(0)
    }
    fn is_flushed(&self, _: u64) -> Result<bool, FlashError> {
        Ok(true)
    }
}

/// What is to be seen through a decorator.
struct Seen {
    /// How many media are within.
    media: usize,
    /// The first subpage is this one within.
    moved_by: u32,
    traits: Traits,
    /// The switches that reach media when all are set, and the switches that are heeded then.
    switched: Switches,
    heeded: Switches,
    trims: Vec<(u32, u32)>,
    has_backing: bool,
    has_versions: bool,
}

const ALL: Switches =
    Switches { gather_reads: true, checksums: true, hold_writes: true, own_work: true, notifies: true };

impl Default for Seen {
    /// Everything.
    fn default() -> Seen {
        Seen {
            media: 1,
            moved_by: 0,
            traits: ODD,
            switched: ALL,
            heeded: ALL,
            trims: vec![(8, 3)],
            has_backing: true,
            has_versions: true,
        }
    }
}

fn check(flash: &dyn Flash, received: &[Arc<Mutex<Received>>], seen: &Seen) {
    let name = flash.describe();
    assert_eq!(flash.traits(), seen.traits, "{name}");
    assert_eq!(flash.staging_bytes(5), seen.media * 10_005, "{name}");
    assert_eq!(flash.backing().is_some(), seen.has_backing, "{name}");
    if let Some(backing) = flash.backing() {
        let at = READ_ONLY - seen.moved_by;
        assert_eq!(
            [at - 1, at, at + 1].map(|s| (backing.may(s, false), backing.may(s, true))),
            [(true, true), (true, false), (true, true)]
        );
        assert!(backing.asks() && backing.waits_for_room(), "{name}");
        assert_eq!((backing.begin_change(0, true), backing.begin_change(0, false)), (Ok(()), Err(FlashError::NoSpace)));
    }
    assert_eq!(flash.versions().map(Versions::tokens), seen.has_versions.then(|| vec![77]), "{name}");
    assert_eq!(flash.trim(SubpageIndex(8), 3), Ok(()));
    for user in USERS {
        let mut queue = flash.open_queue_for(user, arena(4), 2, Arc::new(Notifier::new().unwrap())).unwrap();
        received.iter().for_each(|received| received.lock().unwrap().switched.clear());
        assert_eq!(queue.switch(ALL), seen.heeded, "{name}");
        assert_eq!(queue.switch(Switches::default()), Switches::default(), "{name}");
        queue.use_frames(1..3);
        queue.will_poll();
    }
    let trims: Vec<_> = received.iter().flat_map(|received| received.lock().unwrap().trimmed.clone()).collect();
    assert_eq!(trims, seen.trims, "{name}");
    for received in received {
        let received = received.lock().unwrap();
        assert_eq!(received.opened, USERS, "{name}");
        assert_eq!(received.switched, [seen.switched, Switches::default()], "{name}");
        assert_eq!((&received.frames[..], received.polls_announced), (&[1..3, 1..3, 1..3][..], 3), "{name}");
    }
}

#[test]
fn faults_hide_nothing() {
    let (medium, received) = odd(SUBPAGES);
    check(&FaultyFlash::new(medium, FaultPlan::default()), &[received], &Seen::default());
}

#[test]
fn a_part_has_no_states_of_its_own() {
    let (medium, received) = odd(SUBPAGES);
    let part = PartOfFlash::new(Arc::new(medium), 10, 100).unwrap();
    check(&part, &[received], &Seen { moved_by: 10, trims: vec![(18, 3)], has_versions: false, ..Seen::default() });
}

#[test]
fn a_stripe_has_the_traits_of_all_members() {
    let members: Vec<_> = (0..3).map(|_| odd(SUBPAGES)).collect();
    let received: Vec<_> = members.iter().map(|(_, received)| received.clone()).collect();
    let mut layout = StripeLayout::new(5);
    layout.push(10, (0..3).map(|member| Column { member, first: 0 }).collect());
    let members = members.into_iter().map(|(medium, _)| Arc::new(medium) as Arc<dyn Flash>).collect();
    let seen = Seen {
        media: 3,
        traits: Traits { dram_bytes: 3 * ODD.dram_bytes, ..ODD },
        // Subpages 8 and 9 are of the second extent, 10 of the third.
        trims: vec![(3, 2), (0, 1)],
        has_backing: false,
        has_versions: false,
        ..Seen::default()
    };
    check(&StripedFlash::new(members, layout), &received, &seen);
}

#[test]
fn nand_changes_only_what_it_models() {
    let (medium, received) = odd(SUBPAGES);
    let flash = NandFlash::new(Arc::new(medium), nand::small(), nand::config()).unwrap();
    let traits = Traits { trims: false, ..ODD };
    check(&flash, &[received], &Seen { traits, trims: Vec::new(), ..Seen::default() });
}

#[test]
fn a_layer_holds_writes_and_compares_checksums_itself() {
    let (medium, received) = odd(SUBPAGES);
    let flash = Layered::new(Arc::new(Straight(Arc::new(medium), Clock::get())));
    let seen = Seen {
        traits: Traits { dram_bytes: 1008, holds_writes: ODD.gathers, trims: false, ..ODD },
        switched: Switches { hold_writes: false, checksums: false, ..ALL },
        // Writes that wait for a place, and its own work, end without a notice.
        heeded: Switches { checksums: false, notifies: false, ..ALL },
        trims: Vec::new(),
        ..Seen::default()
    };
    check(&flash, &[received], &seen);
}
