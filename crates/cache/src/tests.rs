//! Tests of a cache without a driver, so that its state can be examined between any two steps.

use std::sync::Arc;

use fulgurite_flash::{Flash, MemoryFlash};
use fulgurite_format::{FrameIndex, SUBPAGE_SHIFT, SubpageIndex};
use fulgurite_policy::{AnyReplacement, PrefetchPolicy, Replacement, ReplacementPolicy};
use fulgurite_sys::Notifier;

use crate::cache::{Cache, FrameSources, Held, Setup};
use crate::frames::Frames;
use crate::marks::{CLEAN, DIRTY};
use crate::primitive::Ordering;
use crate::residency::State;
use crate::shared::{Shape, Shared};
use crate::users::Users;

/// Nothing uses frames without a pin.
struct Nobody;

impl Users for Nobody {
    fn take_away(&mut self, _: &Frames, _: impl Iterator<Item = FrameIndex>) -> bool {
        false
    }
    fn holds(&self, _: FrameIndex) -> bool {
        false
    }
}

const FRAMES: u32 = 4096;
const DEPTH: usize = 512;

fn cache() -> Cache<Nobody> {
    let flash: Arc<dyn Flash> = Arc::new(MemoryFlash::new(2 * FRAMES).unwrap());
    let shape = Shape { subpages: 2 * FRAMES, existing: 0, caches: 1, frames_max: FRAMES, moved: false };
    let shared = Arc::new(Shared::new(flash.clone(), shape, None).unwrap());
    let queue = flash.open_queue(shared.frames.arena().clone(), DEPTH, Arc::new(Notifier::new().unwrap())).unwrap();
    let setup = Setup {
        id: 0,
        depth: DEPTH,
        waiters: 4,
        replacement: ReplacementPolicy::S3Fifo,
        prefetch: PrefetchPolicy::Off,
        device_timeout_ns: 1_000_000_000,
    };
    let mut cache = Cache::new(shared, queue, Nobody, setup);
    cache.set_frames(FRAMES);
    cache
}

/// Gives frames to subpages, all of them dirty, until `free` are free.
fn fill(cache: &mut Cache<Nobody>, free: usize) -> Vec<FrameIndex> {
    let mut frames = Vec::new();
    while cache.free.len() > free {
        let (frame, subpage) = (cache.free.pop().unwrap(), frames.len() as u32);
        cache.shared.table.begin(subpage, cache.id).unwrap();
        let local = cache.local(frame);
        cache.held[local.index()] = Held { subpage, linked: true, ..Held::default() };
        cache.replacement.inserted(local, SubpageIndex(subpage));
        cache.shared.table.finish(subpage, cache.id, State::Resident(frame));
        cache.shared.frames.marks(frame).dirty.store(DIRTY, Ordering::Relaxed);
        frames.push(frame);
    }
    frames
}

fn main_len(cache: &Cache<Nobody>) -> usize {
    match &cache.replacement {
        AnyReplacement::S3Fifo(policy) => policy.main_len(),
        _ => panic!("the default is another policy"),
    }
}

#[test]
fn what_a_sync_holds_back_is_not_taken_for_used_again() {
    let mut cache = cache();
    let frames = fill(&mut cache, 8);
    assert_eq!(main_len(&cache), 0);
    cache.shared.cut.begin();
    cache.shared.cut.hold_back();
    for _ in 0..200 {
        cache.evict(64, 1);
    }
    assert_eq!((main_len(&cache), cache.free.len()), (0, 8), "held back, not used again");
    // Deep behind those that are held back, there is one that may go.
    cache.shared.frames.marks(frames[frames.len() - 1]).dirty.store(CLEAN, Ordering::Relaxed);
    for _ in 0..frames.len() / 64 + 2 {
        cache.evict(64, 1);
    }
    assert_eq!((main_len(&cache), cache.free.len()), (0, 9));
    cache.shared.cut.end();
    cache.evict(64, 1);
    assert_eq!(cache.writing, 64);
    cache.replacement.check();
    // The medium's, not this test's.
    while cache.writing > 0 {
        cache.hand_over();
        cache.poll(|_| (), || 1);
    }
    assert_eq!((main_len(&cache), cache.free.len()), (0, 9 + 64));
}

#[test]
fn what_there_is_no_room_to_write_is_not_taken_for_used_again() {
    let mut cache = cache();
    fill(&mut cache, 8);
    let most = cache.requests.len() / 2;
    for _ in 0..most / 64 + 200 {
        cache.evict(64, 1);
    }
    assert_eq!((main_len(&cache), cache.writing, cache.free.len()), (0, most, 8));
    while cache.writing > 0 {
        cache.hand_over();
        cache.poll(|_| (), || 1);
    }
    assert_eq!(cache.free.len(), 8 + most);
}

#[test]
fn dropped_contents_read_as_zero_and_free_their_frames() {
    let mut cache = cache();
    let frames = fill(&mut cache, 8);
    cache.shared.frames.pins(frames[5]).store(1, Ordering::Relaxed);
    cache.evict(64, 1);
    let writing = cache.writing as u64;
    assert!(writing > 0);
    // What is being written and what is pinned stays until it is called again.
    let still = cache.drop_contents(&(0..2 * FRAMES));
    assert_eq!((still.count, still.pinned), (writing + 1, 1));
    assert_eq!(cache.free.len() as u64, u64::from(FRAMES) - writing - 1);
    while cache.writing > 0 {
        cache.hand_over();
        cache.poll(|_| (), || 1);
    }
    cache.shared.frames.pins(frames[5]).store(0, Ordering::Relaxed);
    // What was written meanwhile is absent, and is dropped as well.
    assert_eq!(cache.drop_contents(&(0..2 * FRAMES)).count, 0);
    assert_eq!(cache.free.len(), FRAMES as usize);
    for subpage in 0..2 * FRAMES {
        assert_eq!(crate::residency::decode(cache.shared.table.word(subpage).load(Ordering::Relaxed)), State::Fresh);
        assert!(!cache.shared.table.is_absent(subpage));
    }
    assert_eq!(cache.dirty().count(), 0);
    cache.check();
}

#[test]
fn what_is_pinned_beyond_a_lower_limit_stays_and_nothing_else() {
    let mut cache = cache();
    let frames = fill(&mut cache, 8);
    for frame in &frames {
        cache.shared.frames.marks(*frame).dirty.store(CLEAN, Ordering::Relaxed);
    }
    let pinned = frames.iter().copied().find(|frame| frame.0 > FRAMES / 2 + 100 && frame.0 < FRAMES - 100).unwrap();
    let arena = cache.shared.frames.arena().clone();
    let word = &arena.words(pinned.index() << SUBPAGE_SHIFT, 1)[0];
    word.store(7, Ordering::Relaxed);
    cache.shared.pin(pinned);
    cache.set_frames(FRAMES / 2);
    assert!(cache.could_shrink());
    for _ in 0..200 {
        cache.make_room(FrameSources::None, 1);
    }
    assert!(cache.is_shrinking() && !cache.could_shrink());
    cache.discard_beyond();
    assert_eq!(word.load(Ordering::Relaxed), 7);
    cache.shared.unpin(pinned);
    assert!(cache.could_shrink());
    for _ in 0..4 {
        cache.make_room(FrameSources::None, 1);
    }
    assert!(!cache.is_shrinking() && !cache.could_shrink());
    cache.check();
}
