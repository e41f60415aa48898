//! Goal: every answer of the prefetcher is the one that its rules give: what a run is, which stream
//! moves, how far, when the window changes, and when it is tried again after it was off.
//! Method: a model that applies the rules to plain lists (all expectations ever made, all outcomes,
//! streams with the time of their last move), and random calls on both side by side: several
//! readers in order, of which some stop. Random subpages. First touches and evictions of what was
//! prefetched, and outcomes of subpages that never were. Answers and windows are compared after
//! each call.

use std::ops::Range;

use fulgurite_format::SubpageIndex;
use fulgurite_policy::{PrefetchPolicy, Prefetcher};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const STREAMS: usize = 32;
const UNUSED_MAX: u32 = 512;
const OUTCOMES: usize = 16;
const TRIAL_GAPS: Range<u32> = 32..4_096;

/// Where the expectation of a subpage is stored: of two in one slot, only the later one is known.
fn place(subpage: u32) -> u64 {
    u64::from(subpage).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56
}

/// A run of misses makes a subpage likely.
struct Expectation {
    subpage: u32,
    /// Misses in a row before it. None once it has come true.
    run: Option<u32>,
}

#[derive(Clone)]
struct Stream {
    /// The latest two batches: what was prefetched and is not forgotten.
    before: Range<u32>,
    latest: Range<u32>,
    next_batch: u32,
    moved: usize,
}

struct Model {
    policy: PrefetchPolicy,
    window: u32,
    expectations: Vec<Expectation>,
    streams: Vec<Option<Stream>>,
    moves: usize,
    unused: u32,
    /// Outcomes since the window was judged: true is used.
    outcomes: Vec<bool>,
    /// Would-be streams to let pass before a trial, and how many the next time.
    until_trial: u32,
    trial_gap: u32,
}

impl Model {
    fn new(policy: PrefetchPolicy) -> Model {
        Model {
            policy,
            window: match policy {
                PrefetchPolicy::Off => 0,
                PrefetchPolicy::Fixed(window) | PrefetchPolicy::Next(window) => window.into(),
                PrefetchPolicy::Adaptive => 4,
            },
            expectations: Vec::new(),
            streams: vec![None; STREAMS],
            moves: 0,
            unused: 0,
            outcomes: Vec::new(),
            until_trial: TRIAL_GAPS.start,
            trial_gap: TRIAL_GAPS.start,
        }
    }

    fn adaptive(&self) -> bool {
        self.policy == PrefetchPolicy::Adaptive
    }

    fn missed(&mut self, here: u32) -> Option<Range<u32>> {
        if self.policy == PrefetchPolicy::Off || here == u32::MAX {
            return None;
        }
        if let PrefetchPolicy::Next(window) = self.policy {
            let range = here + 1..(here + 1).saturating_add(window.into());
            return (!range.is_empty()).then_some(range);
        }
        let known = self.expectations.iter_mut().rfind(|e| place(e.subpage) == place(here));
        let before = known.filter(|e| e.subpage == here).and_then(|e| e.run.take());
        let run = before.map_or(1, |before| (before + 1).min(3));
        self.expectations.push(Expectation { subpage: here + 1, run: Some(run) });
        if run < 3 { None } else { self.follow(here) }
    }

    /// The third miss in a row, or a later one.
    fn follow(&mut self, here: u32) -> Option<Range<u32>> {
        if self.window == 0 {
            self.until_trial -= 1;
            if self.until_trial > 0 {
                return None;
            }
            self.window = 2;
            self.outcomes.clear();
        }
        let ended_here = self.streams.iter().position(|s| s.as_ref().is_some_and(|s| s.latest.end == here));
        // A free slot, else the slot of the stream that has not moved for longest.
        let at = ended_here.unwrap_or_else(|| {
            let age = |at: &usize| self.streams[*at].as_ref().map_or(0, |s| s.moved);
            (0..STREAMS).min_by_key(age).unwrap()
        });
        let next_batch = match (self.adaptive(), ended_here) {
            (true, None) => 2,
            (true, Some(at)) => self.streams[at].as_ref().unwrap().next_batch,
            (false, _) => self.window,
        };
        let nothing = here + 1..here + 1;
        let fresh = Stream { before: nothing.clone(), latest: nothing, next_batch, moved: 0 };
        self.extend(at, fresh)
    }

    /// Moves a stream on by a batch. It stays in its place only if it can.
    fn extend(&mut self, at: usize, stream: Stream) -> Option<Range<u32>> {
        let start = stream.latest.end;
        let batch = stream.next_batch.min(self.window).min(u32::MAX - start);
        if self.adaptive() && self.unused + batch > UNUSED_MAX {
            self.unused -= 1;
            return None;
        }
        if batch == 0 {
            return None;
        }
        let latest = start..start + batch;
        self.moves += 1;
        self.unused += batch;
        let next_batch = if self.adaptive() { (2 * stream.next_batch).min(16) } else { stream.next_batch };
        self.streams[at] =
            Some(Stream { before: stream.latest, latest: latest.clone(), next_batch, moved: self.moves });
        self.expectations.push(Expectation { subpage: latest.end, run: Some(2) });
        Some(latest)
    }

    fn used(&mut self, here: u32) -> Option<Range<u32>> {
        self.outcome(true);
        let holds = |s: &Stream| s.before.contains(&here) || s.latest.contains(&here);
        let at = self.streams.iter().position(|s| s.as_ref().is_some_and(holds))?;
        let stream = self.streams[at].clone().unwrap();
        if self.window == 0 || !stream.latest.contains(&here) { None } else { self.extend(at, stream) }
    }

    fn wasted(&mut self) {
        self.outcome(false);
    }

    fn outcome(&mut self, used: bool) {
        self.unused = self.unused.saturating_sub(1);
        self.outcomes.push(used);
        if self.outcomes.len() < OUTCOMES {
            return;
        }
        let used = self.outcomes.iter().filter(|used| **used).count();
        let wasted = self.outcomes.len() - used;
        self.outcomes.clear();
        if !self.adaptive() || self.window == 0 {
            return;
        }
        if wasted > OUTCOMES / 2 {
            self.window /= 2;
            if self.window == 0 {
                self.until_trial = self.trial_gap;
                self.trial_gap = (2 * self.trial_gap).min(TRIAL_GAPS.end);
            }
        } else if wasted * 5 <= OUTCOMES {
            self.window = (2 * self.window).min(16);
            self.trial_gap = TRIAL_GAPS.start;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A reader reads the next `count` subpages. What was prefetched for it is used, the rest is
    /// missed.
    Read { reader: usize, count: u32 },
    /// It goes on somewhere else.
    Jump { reader: usize, to: u32 },
    /// A miss anywhere.
    Miss(u32),
    /// What was prefetched first (of what is unused) is evicted.
    Evict { count: usize },
    /// Outcomes of subpages that were never prefetched: a driver may be wrong.
    Odd { subpage: u32, used: bool },
}

const READERS: usize = 40;

fn subpage() -> impl Strategy<Value = u32> {
    prop_oneof![4 => any::<u32>(), 2 => 0_u32..64, 1 => (0_u32..40).prop_map(|back| u32::MAX - back)]
}

/// `patience`: how often what was prefetched is read rather than evicted, of 8.
fn step(patience: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        2 * patience => (0..READERS, 1_u32..12).prop_map(|(reader, count)| Step::Read { reader, count }),
        2 => (0..READERS, subpage()).prop_map(|(reader, to)| Step::Jump { reader, to }),
        2 => (0..READERS, 1_u32..5).prop_map(|(reader, count)| Step::Read { reader, count }),
        1 => subpage().prop_map(Step::Miss),
        9 - patience => (1_usize..24).prop_map(|count| Step::Evict { count }),
        1 => (subpage(), any::<bool>()).prop_map(|(subpage, used)| Step::Odd { subpage, used }),
    ]
}

/// Both, and what was prefetched and not used.
struct Pair {
    prefetcher: Prefetcher,
    model: Model,
    unused: Vec<u32>,
}

impl Pair {
    fn compare(&mut self, found: Option<Range<u32>>, expected: Option<Range<u32>>) -> Result<(), TestCaseError> {
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(u32::from(self.prefetcher.window()), self.model.window);
        self.prefetcher.check();
        self.unused.extend(found.into_iter().flatten());
        Ok(())
    }
    fn touch(&mut self, subpage: u32) -> Result<(), TestCaseError> {
        if let Some(at) = self.unused.iter().position(|s| *s == subpage) {
            self.unused.remove(at);
            return self.used(subpage);
        }
        let (found, expected) = (self.prefetcher.missed(SubpageIndex(subpage)), self.model.missed(subpage));
        self.compare(found, expected)
    }
    fn used(&mut self, subpage: u32) -> Result<(), TestCaseError> {
        let (found, expected) = (self.prefetcher.used(SubpageIndex(subpage)), self.model.used(subpage));
        self.compare(found, expected)
    }
    fn wasted(&mut self, subpage: u32) -> Result<(), TestCaseError> {
        self.prefetcher.wasted(SubpageIndex(subpage));
        self.model.wasted();
        self.compare(None, None)
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn as_the_rules_say(
        policy in prop_oneof![
            5 => Just(PrefetchPolicy::Adaptive),
            2 => (1_u8..17).prop_map(PrefetchPolicy::Fixed),
            2 => (1_u8..17).prop_map(PrefetchPolicy::Next),
            1 => Just(PrefetchPolicy::Off),
        ],
        // Phases in which prefetch pays, and others in which it does not.
        phases in prop::collection::vec((1_u32..9).prop_flat_map(|patience| prop::collection::vec(step(patience), 1..600)), 1..5),
    ) {
        let mut pair = Pair { prefetcher: Prefetcher::new(policy), model: Model::new(policy), unused: Vec::new() };
        let mut readers: Vec<u32> = (0..READERS as u32).map(|i| i << 20).collect();
        for step in phases.into_iter().flatten() {
            match step {
                Step::Read { reader, count } => {
                    for _ in 0..count {
                        pair.touch(readers[reader])?;
                        readers[reader] = readers[reader].saturating_add(1);
                    }
                }
                Step::Jump { reader, to } => readers[reader] = to,
                Step::Miss(subpage) => pair.touch(subpage)?,
                Step::Evict { count } => {
                    for _ in 0..count.min(pair.unused.len()) {
                        let oldest = pair.unused.remove(0);
                        pair.wasted(oldest)?;
                    }
                }
                Step::Odd { subpage, used: true } => pair.used(subpage)?,
                Step::Odd { subpage, used: false } => pair.wasted(subpage)?,
            }
        }
    }
}

/// The model's own trial: the random calls must reach the rules that are rare.
#[test]
fn trials_and_full_tables_are_reached() {
    let mut pair = Pair {
        prefetcher: Prefetcher::new(PrefetchPolicy::Adaptive),
        model: Model::new(PrefetchPolicy::Adaptive),
        unused: Vec::new(),
    };
    let run = |pair: &mut Pair, start: u32, evict: bool| {
        (start..start + 3).for_each(|s| pair.touch(s).unwrap());
        while evict && !pair.unused.is_empty() {
            let oldest = pair.unused.remove(0);
            pair.wasted(oldest).unwrap();
        }
        u32::from(pair.model.window == 0)
    };
    // Nothing is used: off, and trials that fail, ever more rarely.
    let off: u32 = (0..20_000).map(|i| run(&mut pair, i * 64, true)).sum();
    assert!(off > 15_000 && pair.model.trial_gap == TRIAL_GAPS.end, "{off}");
    // It pays again.
    (0..200_000).for_each(|s| pair.touch((1 << 30) + s).unwrap());
    assert_eq!(pair.model.window, 16);
    // Evictions are not reported: full, and the count decreases by itself.
    (0..5_000).for_each(|i| assert_eq!(run(&mut pair, (1 << 31) + i * 64, false), 0));
    assert!(pair.model.unused > UNUSED_MAX - 16, "{}", pair.model.unused);
}
