//! The computation, the same with all methods: after some computing, an update of a single word
//! among pages that change from one checkpoint to the next.
//!
//! Two numbers that do not depend on the order of updates identify its state: their count, and the
//! sum of all words, each with its own weight. The second follows from an image, and the
//! computation knows both at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::Clock;
use fulgurite_workloads::{Random, mix};

pub const WORDS: u64 = SUBPAGE_BYTES as u64 / 8;

/// The computation. Each turn ends with a checkpoint, but for one more turn after the last
/// checkpoint, so that this differs from the final memory.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Of words and of their first contents.
    pub seed: u64,
    pub pages: u64,
    pub dirty_pages: u64,
    pub updates: u64,
    /// Checkpoints that fall due, one at the end of each turn but the last.
    pub checkpoints: u64,
    /// Of [`fulgurite_harness::child::added_work`], before each update.
    pub iterations: u64,
}

impl Job {
    pub fn bytes(&self) -> usize {
        self.pages as usize * SUBPAGE_BYTES
    }
    /// Which word an update changes: a word of one of the pages of its turn.
    pub fn word(&self, update: u64) -> u64 {
        let turn = update / self.updates;
        let mut random = Random::new(self.seed, update);
        let among = random.below(self.dirty_pages);
        let page = Random::new(self.seed ^ turn.rotate_left(32), among).below(self.pages);
        page * WORDS + random.below(WORDS)
    }
    pub fn all_updates(&self) -> u64 {
        self.updates * (self.checkpoints + 1)
    }
    /// Whether a checkpoint falls due when `done` updates are done.
    pub fn is_due(&self, done: u64) -> bool {
        done.is_multiple_of(self.updates) && (1..=self.checkpoints).contains(&(done / self.updates))
    }
    /// What a page holds before the first update: nothing that a medium could leave out.
    pub fn fill(&self, page: u64, bytes: &mut [u8]) {
        for (word, bytes) in (page * WORDS..).zip(bytes.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&mix(self.seed ^ mix(word)).to_le_bytes());
        }
    }
    pub fn first(&self) -> State {
        let mut sum = Sum::default();
        let mut bytes = [0; SUBPAGE_BYTES];
        for page in 0..self.pages {
            self.fill(page, &mut bytes);
            sum.add(page, &bytes);
        }
        State { updates: 0, hash: sum.hash }
    }
}

/// What a word counts for in a state's hash.
fn weight(word: u64) -> u64 {
    mix(!word)
}

/// What the memory comes to at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub updates: u64,
    pub hash: u64,
}

/// The hash of an image, whose pages may come in any order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub hash: u64,
}

impl Sum {
    pub fn add(&mut self, page: u64, bytes: &[u8]) {
        for (word, bytes) in (page * WORDS..).zip(bytes.chunks_exact(8)) {
            let value = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            self.hash = self.hash.wrapping_add(value.wrapping_mul(weight(word)));
        }
    }
}

/// The state of a running computation: one thread writes it, and others read it at rests.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<(AtomicU64, AtomicU64)>);

impl Progress {
    pub fn from(state: State) -> Progress {
        let progress = Progress::default();
        progress.set(state);
        progress
    }
    pub fn set(&self, state: State) {
        self.0.0.store(state.updates, Ordering::Release);
        self.0.1.store(state.hash, Ordering::Release);
    }
    /// A word was incremented. Returns how many were, with this.
    #[inline]
    pub fn count(&self, word: u64) -> u64 {
        // One writer: no need of an atomic addition.
        let updates = self.0.0.load(Ordering::Relaxed) + 1;
        self.0.1.store(self.0.1.load(Ordering::Relaxed).wrapping_add(weight(word)), Ordering::Relaxed);
        self.0.0.store(updates, Ordering::Release);
        updates
    }
    pub fn state(&self) -> State {
        State { updates: self.0.0.load(Ordering::Acquire), hash: self.0.1.load(Ordering::Acquire) }
    }
}

/// The times between two updates, by the computation's own clock.
#[derive(Debug)]
pub struct Gaps {
    clock: Clock,
    begun_ns: u64,
    last_ns: u64,
    updates: u64,
    /// The longest of each turn.
    pub longest_ns: Vec<u64>,
}

impl Gaps {
    pub fn new(job: &Job) -> Gaps {
        let clock = Clock::get();
        let now = clock.now_ns();
        let longest_ns = vec![0; job.checkpoints as usize + 1];
        Gaps { clock, begun_ns: now, last_ns: now, updates: job.updates, longest_ns }
    }
    /// Notes that `updates` updates are done, the last one just now.
    #[inline]
    pub fn done(&mut self, updates: u64) {
        let now = self.clock.now_ns();
        let gap = now - self.last_ns;
        self.last_ns = now;
        let turn = ((updates - 1) / self.updates) as usize;
        self.longest_ns[turn] = self.longest_ns[turn].max(gap);
    }
    /// From the beginning to the last update.
    pub fn seconds(&self) -> f64 {
        (self.last_ns - self.begun_ns) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job = Job { seed: 7, pages: 16, dirty_pages: 4, updates: 100, checkpoints: 2, iterations: 0 };

    #[test]
    fn a_state_is_what_its_image_comes_to() {
        let mut image = vec![0; JOB.bytes()];
        for (page, bytes) in image.chunks_exact_mut(SUBPAGE_BYTES).enumerate() {
            JOB.fill(page as u64, bytes);
        }
        let of = |image: &[u8]| {
            let mut sum = Sum::default();
            // From behind: the order is nobody's affair.
            for (page, bytes) in image.chunks_exact(SUBPAGE_BYTES).enumerate().rev() {
                sum.add(page as u64, bytes);
            }
            sum.hash
        };
        let progress = Progress::from(JOB.first());
        assert_eq!(of(&image), progress.state().hash);
        for update in 0..JOB.all_updates() {
            let word = JOB.word(update);
            let at = word as usize * 8;
            let value = u64::from_le_bytes(image[at..at + 8].try_into().unwrap()).wrapping_add(1);
            image[at..at + 8].copy_from_slice(&value.to_le_bytes());
            assert_eq!(progress.count(word), update + 1);
            assert_eq!(of(&image), progress.state().hash, "update {update}");
        }
        // What is a word further on is not the same.
        image.rotate_right(8);
        assert_ne!(of(&image), progress.state().hash);
    }
    #[test]
    fn the_last_turn_has_no_checkpoint() {
        let due: Vec<u64> = (0..=JOB.all_updates()).filter(|done| JOB.is_due(*done)).collect();
        assert_eq!(due, [100, 200]);
    }
    #[test]
    fn gaps_are_of_the_turn_that_they_end_in() {
        let mut gaps = Gaps::new(&JOB);
        for done in 1..=JOB.all_updates() {
            if done == 101 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            gaps.done(done);
        }
        assert!(gaps.longest_ns[1] >= 20_000_000, "{:?}", gaps.longest_ns);
        assert!(gaps.seconds() >= 0.02);
    }
}
