//! How DRAM moves between page frames and objects while jobs run. [`Share`] decides, and workers
//! do, at their scheduling points.
//!
//! ```text
//!  idle --- objects should have more, or less ---> frames: fewer, so that objects have room
//!   ^                                                 |  all workers have given the memory back
//!   +--- frames get what is left <--- shards: one after the other takes its new size <---+
//! ```
//!
//! Invariants:
//! * Frames and shards together never take more than the budget. While a shard is resized it takes
//!   a little more than the larger of both sizes, so frames give that much before.
//! * A step that does not come to its end (frames are pinned, objects cannot be written) is given
//!   up. Then what each side has at that time counts.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_policy::{Marginal, Share};

use crate::mailbox::Message;
use crate::objects::Objects;
use crate::shared::Shared;

/// Between two questions whether DRAM should move.
const ASK_NS: u64 = 100_000_000;
/// Time between two checks of a step that is under way.
pub(crate) const STEP_NS: u64 = 500_000;
/// After which a step is given up.
const GIVE_UP_NS: u64 = 2_000_000_000;
/// Parts of the DRAM that moves: one of them at a time.
const STEPS: u64 = 32;
/// What each side keeps of it: an eighth.
pub(crate) const LEAST: u64 = 8;

/// What a worker says of its frames.
#[derive(Default)]
pub(crate) struct OfWorker {
    /// Subpages that came back a short time after they were evicted, in all.
    pub returned: AtomicU64,
    /// How many frames more would have had them.
    pub remembered: AtomicU64,
    /// Its frames, when it has no more memory than these take. Otherwise all ones.
    pub frames: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    /// Workers give memory back, until each has this number of frames.
    Frames {
        frames: u32,
        to: u64,
        until_ns: u64,
    },
    /// Shards are resized from the next one on.
    Shards {
        next: usize,
        to: u64,
        until_ns: u64,
    },
}

/// See the top of the file. Behind a lock that workers only try to take.
#[derive(Debug)]
pub(crate) struct Split {
    share: Share,
    phase: Phase,
    next_ns: u64,
    /// What had returned to frames and to objects at the last question.
    seen: (u64, u64),
}

impl Split {
    /// For `bytes` bytes of frames and objects together.
    pub fn new(bytes: u64) -> Split {
        Split { share: Share::new(bytes / STEPS), phase: Phase::Idle, next_ns: 0, seen: (0, 0) }
    }

    /// Goes on, if it is time.
    pub fn step(&mut self, shared: &Shared, objects: &Objects, now_ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + STEP_NS;
        match self.phase {
            Phase::Idle => {
                self.next_ns = now_ns + ASK_NS;
                let now = objects.bytes();
                let to = self.ask(shared, objects, now);
                if to != now {
                    self.begin(shared, objects, to, now_ns);
                }
            }
            Phase::Frames { frames, to, until_ns } => {
                if shared.of_workers.iter().all(|worker| worker.frames.load(Ordering::Acquire) <= frames) {
                    self.phase = Phase::Shards { next: 0, to, until_ns: now_ns + GIVE_UP_NS };
                } else if now_ns > until_ns {
                    self.end(shared, objects);
                }
            }
            Phase::Shards { next, to, until_ns } => {
                if objects.resize_shard(next, to) || now_ns > until_ns {
                    if next + 1 == objects.shards() || now_ns > until_ns {
                        return self.end(shared, objects);
                    }
                    self.phase = Phase::Shards { next: next + 1, to, until_ns };
                } else if let Some(pool) = shared.flash.backing().and_then(|backing| backing.objects()) {
                    // More waits to be written than the shard may have at its new size. An error of
                    // the batch is for those that wait for it.
                    let _ = objects.write_shard(next, pool);
                }
            }
        }
    }

    /// How many bytes objects should have.
    fn ask(&mut self, shared: &Shared, objects: &Objects, now: u64) -> u64 {
        let sum = |each: &dyn Fn(&OfWorker) -> u64| shared.of_workers.iter().map(|worker| each(worker)).sum::<u64>();
        let returned = (sum(&|worker| worker.returned.load(Ordering::Relaxed)), objects.returned());
        let frames = Marginal {
            missed: returned.0.saturating_sub(self.seen.0),
            bytes: sum(&|worker| worker.remembered.load(Ordering::Relaxed)) * SUBPAGE_BYTES as u64,
        };
        let of_objects = Marginal { missed: returned.1.saturating_sub(self.seen.1), bytes: objects.remembered_bytes() };
        self.seen = returned;
        let bounds = bounds(shared);
        let wanted = self.share.decide(now, &bounds, frames, of_objects);
        // Shards are of one size, so a few bytes are left over.
        if wanted.abs_diff(now) < objects.shards() as u64 * 4096 { now } else { wanted }
    }

    /// Begins to give objects `to` bytes.
    fn begin(&mut self, shared: &Shared, objects: &Objects, to: u64, now_ns: u64) {
        let frames = shared.frames_per_worker_with(objects.bytes().max(to) + objects.resize_bytes(to));
        shared.mailboxes.iter().for_each(|mailbox| mailbox.send(Message::SetFrames(frames)));
        self.phase = Phase::Frames { frames, to, until_ns: now_ns + GIVE_UP_NS };
    }
    /// Gives frames what objects do not have.
    fn end(&mut self, shared: &Shared, objects: &Objects) {
        self.phase = Phase::Idle;
        shared.objects_bytes.store(objects.bytes(), Ordering::Relaxed);
        let frames = shared.frames_per_worker();
        shared.mailboxes.iter().for_each(|mailbox| mailbox.send(Message::SetFrames(frames)));
    }
    /// The budget has changed: what objects have too much is taken before anything else.
    pub fn budget_changed(&mut self, shared: &Shared, objects: &Objects, now_ns: u64) {
        self.end(shared, objects);
        let (now, bounds) = (objects.bytes(), bounds(shared));
        if now > *bounds.end() {
            self.begin(shared, objects, *bounds.end(), now_ns);
            self.next_ns = now_ns;
        }
    }
}

/// Least and most bytes of objects.
fn bounds(shared: &Shared) -> RangeInclusive<u64> {
    let both = shared.frames_and_objects();
    let most = both - both / LEAST;
    shared.layout.objects_least.min(most)..=most
}
