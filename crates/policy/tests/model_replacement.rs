//! Goal: every replacement policy evicts exactly what its description says, never loses or invents
//! a frame, and stays bounded, whatever the order of calls and however few frames there are.
//! Method: random calls on the policy and on a naive model of it (plain vectors, linear searches)
//! side by side. The ghost of S3-FIFO is exact up to a window of eight subpages, so that is where
//! its model is compared. Above, the policy is compared with the set of frames alone.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use fulgurite_format::{LocalFrame, SubpageIndex};
use fulgurite_policy::{
    AnyReplacement, ColdCursor, FrameView, Hits, MissCount, Replacement, ReplacementPolicy, miss_ratio, miss_ratio_with,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// Marks and pins of the frames.
#[derive(Clone, Default)]
struct Frames {
    referenced: Vec<bool>,
    pinned: Vec<bool>,
}

impl FrameView for Frames {
    fn take_referenced(&mut self, frame: LocalFrame) -> bool {
        std::mem::take(&mut self.referenced[frame.index()])
    }
    fn evictable(&mut self, frame: LocalFrame) -> bool {
        !self.pinned[frame.index()]
    }
}

/// What the policies are, written for reading.
enum Model {
    Clock {
        present: Vec<bool>,
        touched: Vec<bool>,
        hand: usize,
    },
    Lru {
        newest_first: Vec<u32>,
    },
    S3Fifo(S3Model),
    /// Newest first: frame and set. Then crowded sets, the one that was so first last.
    Sets {
        ways: usize,
        capacity: usize,
        newest_first: Vec<(u32, u32)>,
        crowded: Vec<u32>,
    },
}

#[derive(Default)]
struct S3Model {
    /// Newest at the front: frame, subpage, count.
    fresh: VecDeque<(u32, u32, u8)>,
    small: VecDeque<(u32, u32, u8)>,
    main: VecDeque<(u32, u32, u8)>,
    /// Oldest at the front. A subpage taken out leaves its place.
    ghost: VecDeque<Option<u32>>,
    ghost_window: usize,
}

impl S3Model {
    fn forget(&mut self, subpage: u32) -> bool {
        let found = self.ghost.iter_mut().find(|g| **g == Some(subpage));
        found.map(|place| *place = None).is_some()
    }

    fn settle(&mut self, view: &mut Frames) {
        if let Some(oldest) = self.fresh.pop_back() {
            view.take_referenced(LocalFrame(oldest.0));
            self.small.push_front(oldest);
        }
    }

    fn small_victim(&mut self, view: &mut Frames) -> Option<u32> {
        for _ in 0..self.fresh.len() + self.small.len() {
            if self.small.is_empty() {
                self.settle(view);
            }
            let (frame, subpage, count) = self.small.pop_back()?;
            if view.take_referenced(LocalFrame(frame)) || count >= 2 {
                self.main.push_front((frame, subpage, 0));
            } else if view.evictable(LocalFrame(frame)) {
                self.forget(subpage);
                self.ghost.push_back(Some(subpage));
                if self.ghost.len() > self.ghost_window {
                    self.ghost.pop_front();
                }
                return Some(frame);
            } else {
                self.fresh.push_front((frame, subpage, count));
            }
        }
        None
    }

    fn main_victim(&mut self, view: &mut Frames) -> Option<u32> {
        for _ in 0..4 * self.main.len() {
            let (frame, subpage, mut count) = self.main.pop_back()?;
            if view.take_referenced(LocalFrame(frame)) {
                count = (count + 1).min(3);
            }
            if count == 0 && view.evictable(LocalFrame(frame)) {
                return Some(frame);
            }
            self.main.push_front((frame, subpage, count.saturating_sub(1)));
        }
        None
    }
}

impl Model {
    fn new(policy: ReplacementPolicy, capacity: usize) -> Self {
        match policy {
            ReplacementPolicy::Clock => {
                Model::Clock { present: vec![false; capacity], touched: vec![false; capacity], hand: 0 }
            }
            ReplacementPolicy::Lru => Model::Lru { newest_first: Vec::new() },
            ReplacementPolicy::SetAssociative(ways) => {
                Model::Sets { ways: ways.count(), capacity, newest_first: Vec::new(), crowded: Vec::new() }
            }
            ReplacementPolicy::S3Fifo => {
                Model::S3Fifo(S3Model { ghost_window: capacity - capacity / 10, ..S3Model::default() })
            }
        }
    }

    /// The set of a subpage, as the policy has it.
    fn set(ways: usize, capacity: usize, subpage: u32) -> u32 {
        let hash = u64::from(subpage) * 0x9E37_79B9 % (1 << 32);
        (hash * (capacity / ways).max(1) as u64 / (1 << 32)) as u32
    }

    /// The victim of a list: of one set, or of all.
    fn scan(newest_first: &mut Vec<(u32, u32)>, set: Option<u32>, view: &mut Frames) -> Option<(u32, u32)> {
        let of = |entry: &(u32, u32)| set.is_none_or(|set| entry.1 == set);
        for _ in 0..2 * newest_first.iter().filter(|entry| of(entry)).count() {
            let at = newest_first.iter().rposition(of)?;
            let entry = newest_first.remove(at);
            if !view.take_referenced(LocalFrame(entry.0)) && view.evictable(LocalFrame(entry.0)) {
                return Some(entry);
            }
            newest_first.insert(0, entry);
        }
        None
    }

    /// Whether sets are crowded, after a change of one.
    fn crowd(ways: usize, newest_first: &[(u32, u32)], crowded: &mut Vec<u32>, set: u32) {
        let many = newest_first.iter().filter(|entry| entry.1 == set).count() > ways;
        match crowded.iter().position(|other| *other == set) {
            Some(at) if !many => drop(crowded.remove(at)),
            None if many => crowded.insert(0, set),
            _ => {}
        }
    }

    fn inserted(&mut self, frame: u32, subpage: u32, again: bool) {
        match self {
            Model::Sets { ways, capacity, newest_first, crowded } => {
                let set = Model::set(*ways, *capacity, subpage);
                newest_first.insert(0, (frame, set));
                Model::crowd(*ways, newest_first, crowded, set);
            }
            Model::Clock { present, touched, .. } => {
                present[frame as usize] = true;
                touched[frame as usize] = again;
            }
            Model::Lru { newest_first } => newest_first.insert(0, frame),
            Model::S3Fifo(s) => match (s.forget(subpage), again) {
                (_, true) => s.main.push_front((frame, subpage, 1)),
                (true, false) => s.main.push_front((frame, subpage, 0)),
                (false, false) => s.fresh.push_front((frame, subpage, 0)),
            },
        }
    }

    fn touched(&mut self, frame: u32) {
        match self {
            Model::Clock { touched, .. } => touched[frame as usize] = true,
            Model::Sets { newest_first, .. } => {
                let at = newest_first.iter().position(|entry| entry.0 == frame).expect("it is there");
                let entry = newest_first.remove(at);
                newest_first.insert(0, entry);
            }
            Model::Lru { newest_first } => {
                newest_first.retain(|f| *f != frame);
                newest_first.insert(0, frame);
            }
            Model::S3Fifo(s) => {
                for slot in s.fresh.iter_mut().chain(&mut s.small).chain(&mut s.main) {
                    if slot.0 == frame {
                        slot.2 = (slot.2 + 1).min(3);
                    }
                }
            }
        }
    }

    fn removed(&mut self, frame: u32) {
        match self {
            Model::Clock { present, touched, .. } => {
                (present[frame as usize], touched[frame as usize]) = (false, false);
            }
            Model::Lru { newest_first } => newest_first.retain(|f| *f != frame),
            Model::Sets { ways, newest_first, crowded, .. } => {
                let at = newest_first.iter().position(|entry| entry.0 == frame).expect("it is there");
                let (_, set) = newest_first.remove(at);
                Model::crowd(*ways, newest_first, crowded, set);
            }
            Model::S3Fifo(s) => {
                for queue in [&mut s.fresh, &mut s.small, &mut s.main] {
                    queue.retain(|slot| slot.0 != frame);
                }
            }
        }
    }

    fn victim(&mut self, view: &mut Frames) -> Option<u32> {
        match self {
            Model::Clock { present, touched, hand } => {
                for _ in 0..2 * present.iter().filter(|p| **p).count() {
                    while !present[*hand] {
                        *hand = (*hand + 1) % present.len();
                    }
                    let at = *hand;
                    *hand = (*hand + 1) % present.len();
                    let used = view.take_referenced(LocalFrame(at as u32)) | std::mem::take(&mut touched[at]);
                    if !used && view.evictable(LocalFrame(at as u32)) {
                        present[at] = false;
                        return Some(at as u32);
                    }
                }
                None
            }
            Model::Lru { newest_first } => {
                for _ in 0..2 * newest_first.len() {
                    let frame = newest_first.pop()?;
                    if !view.take_referenced(LocalFrame(frame)) && view.evictable(LocalFrame(frame)) {
                        return Some(frame);
                    }
                    newest_first.insert(0, frame);
                }
                None
            }
            Model::Sets { ways, newest_first, crowded, .. } => {
                for _ in 0..crowded.len() {
                    let set = *crowded.last().expect("one is crowded");
                    if let Some((frame, set)) = Model::scan(newest_first, Some(set), view) {
                        Model::crowd(*ways, newest_first, crowded, set);
                        return Some(frame);
                    }
                    crowded.pop();
                    crowded.insert(0, set);
                }
                let (frame, set) = Model::scan(newest_first, None, view)?;
                Model::crowd(*ways, newest_first, crowded, set);
                Some(frame)
            }
            Model::S3Fifo(s) => {
                while s.fresh.len() > s.small.len() + 1 {
                    s.settle(view);
                }
                let len = s.fresh.len() + s.small.len() + s.main.len();
                let main_first = s.fresh.len() + s.small.len() < (len / 10).max(1);
                let first = if main_first { s.main_victim(view) } else { None };
                first.or_else(|| s.small_victim(view)).or_else(|| s.main_victim(view))
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A miss on this subpage, into the first free frame, if there is one.
    Insert(u32),
    /// A known hit, or a mark, or a change of pin, on the n-th frame if it is in the policy.
    Touch(usize),
    Mark(usize),
    Pin(usize),
    Victim,
    /// A victim that turns out to be in use.
    Reinstate,
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u32..24).prop_map(Step::Insert),
        4 => any::<usize>().prop_map(Step::Touch),
        4 => any::<usize>().prop_map(Step::Mark),
        2 => any::<usize>().prop_map(Step::Pin),
        5 => Just(Step::Victim),
        1 => Just(Step::Reinstate),
        1 => any::<usize>().prop_map(Step::Remove),
    ]
}

/// Runs the steps on the policy, and on its model if `exact`.
fn run(policy: ReplacementPolicy, capacity: usize, exact: bool, steps: &[Step]) {
    let mut replacement = AnyReplacement::new(policy, capacity);
    let mut model = Model::new(policy, capacity);
    let mut contents: Vec<Option<u32>> = vec![None; capacity];
    let mut view = Frames { referenced: vec![false; capacity], pinned: vec![false; capacity] };
    let bytes = replacement.bytes();
    for step in steps {
        match *step {
            Step::Insert(subpage) => {
                // As in a cache: a subpage is in one frame at most.
                let free = contents.iter().position(Option::is_none);
                if let (Some(frame), false) = (free, contents.contains(&Some(subpage))) {
                    contents[frame] = Some(subpage);
                    view.pinned[frame] = false;
                    replacement.inserted(LocalFrame(frame as u32), SubpageIndex(subpage));
                    model.inserted(frame as u32, subpage, false);
                }
            }
            Step::Touch(n) if contents[n % capacity].is_some() => {
                replacement.touched(LocalFrame((n % capacity) as u32));
                model.touched((n % capacity) as u32);
            }
            Step::Remove(n) if contents[n % capacity].take().is_some() => {
                replacement.removed(LocalFrame((n % capacity) as u32));
                model.removed((n % capacity) as u32);
            }
            Step::Mark(n) => view.referenced[n % capacity] = true,
            Step::Pin(n) => view.pinned[n % capacity] ^= true,
            Step::Touch(_) | Step::Remove(_) => {}
            Step::Victim | Step::Reinstate => {
                let mut view_of_model = view.clone();
                let victim = replacement.victim(&mut view);
                if exact {
                    assert_eq!(victim.map(|f| f.0), model.victim(&mut view_of_model), "victim of {policy}");
                    assert_eq!(view.referenced, view_of_model.referenced, "marks taken by {policy}");
                }
                match victim {
                    Some(frame) => {
                        assert!(!view.pinned[frame.index()], "a pinned frame was evicted");
                        let subpage = contents[frame.index()].take().expect("a victim was in the policy");
                        if matches!(step, Step::Reinstate) {
                            contents[frame.index()] = Some(subpage);
                            replacement.reinstated(frame, SubpageIndex(subpage));
                            model.inserted(frame.0, subpage, true);
                        }
                    }
                    None => {
                        let evictable = (0..capacity).any(|f| contents[f].is_some() && !view.pinned[f]);
                        assert!(!evictable, "{policy} found no victim though there is one");
                    }
                }
            }
        }
        replacement.check();
        assert_eq!(replacement.len(), contents.iter().flatten().count());
        assert_eq!(replacement.bytes(), bytes, "{policy} stays bounded");
    }
    // All that is left comes out, each frame once.
    view.pinned.fill(false);
    while let Some(frame) = replacement.victim(&mut view) {
        assert!(contents[frame.index()].take().is_some(), "frame {} came out twice", frame.0);
    }
    assert!(contents.iter().all(Option::is_none), "{policy} lost a frame");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 192,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn few_frames_as_the_model(
        policy in prop::sample::select(&ReplacementPolicy::ALL[..]),
        capacity in 1_usize..=8,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        run(policy, capacity, true, &steps);
    }

    #[test]
    fn many_frames_as_the_model_and_s3_fifo_loses_none(
        policy in prop::sample::select(&ReplacementPolicy::ALL[..]),
        capacity in 9_usize..=130,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        run(policy, capacity, policy != ReplacementPolicy::S3Fifo, &steps);
    }
}

/// A stream of keys with Zipf popularity (exponent 1), scattered, from a fixed seed.
fn zipf(keys: usize, count: usize, seed: u64) -> impl Iterator<Item = u64> + Clone {
    let mut sums: Vec<f64> = Vec::with_capacity(keys);
    for rank in 1..=keys {
        sums.push(sums.last().unwrap_or(&0.0) + 1.0 / rank as f64);
    }
    let sums = std::rc::Rc::new(sums);
    let mut random = fulgurite_testkit::Random(seed);
    (0..count).map(move |_| {
        let at = (random.next() >> 11) as f64 / (1_u64 << 53) as f64 * sums[sums.len() - 1];
        (sums.partition_point(|s| *s < at) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

#[test]
fn miss_ratios_on_a_zipf_stream_are_sane() {
    let seed = 42;
    println!("seed {seed}");
    let (keys, count) = (20_000, 200_000);
    // The best that any policy without foresight can do on independent draws: hold the most popular
    // keys.
    let ideal = |capacity: usize| {
        let sum = |n: usize| (1..=n).map(|r| 1.0 / r as f64).sum::<f64>();
        1.0 - sum(capacity) / sum(keys)
    };
    for (capacity, hits) in [200, 600, 2_000].into_iter().flat_map(|c| [(c, Hits::Known), (c, Hits::Marked)]) {
        let miss = |policy| miss_ratio_with(policy, capacity, hits, zipf(keys, count, seed)).ratio();
        let [clock, s3_fifo, lru, four, eight, sixty_four] = ReplacementPolicy::ALL.map(miss);
        let best = ideal(capacity);
        println!("{capacity} of {keys}, {hits:?}: ideal {best:.3} clock {clock:.3} s3-fifo {s3_fifo:.3} lru {lru:.3}");
        println!("sets of 4 {four:.3}, of 8 {eight:.3}, of 64 {sixty_four:.3}");
        for ratio in [clock, s3_fifo, lru, four, eight, sixty_four] {
            assert!(ratio > best - 0.01 && ratio < best * 1.6, "{ratio} compared with {best}");
        }
        assert!(four > eight && eight > sixty_four, "more ways, fewer misses");
        assert!((sixty_four - lru).abs() < 0.01, "sets of 64 are nearly one");
        assert!(s3_fifo < lru && s3_fifo < clock && clock < lru + 0.01, "on Zipf, frequency beats recency");
    }
}

#[test]
fn s3_fifo_keeps_its_working_set_through_a_scan() {
    // 80 subpages in use, each several times, then a scan of 1000 that are never used again, over
    // and over.
    let keys = || {
        (0..20_u64).flat_map(|round| {
            let hot = (0..400_u64).map(|i| i % 80);
            hot.chain((0..1000).map(move |i| 1_000 + round * 1_000 + i))
        })
    };
    let MissCount { misses: s3_fifo, .. } = miss_ratio(ReplacementPolicy::S3Fifo, 100, keys());
    let MissCount { misses: lru, .. } = miss_ratio(ReplacementPolicy::Lru, 100, keys());
    assert_eq!(lru, 20 * 1080, "LRU starts again after every scan");
    assert!(s3_fifo < 20 * 1000 + 400, "{s3_fifo} misses, 20000 of which are the scan's");
}

#[test]
fn frames_in_use_hide_nobody() {
    for policy in ReplacementPolicy::ALL {
        for capacity in [1_usize, 2, 80] {
            // All but one in use, whichever that one is. Then all in use.
            for free in 0..capacity {
                let mut replacement = AnyReplacement::new(policy, capacity);
                let mut view = Frames { referenced: vec![true; capacity], pinned: vec![true; capacity] };
                (0..capacity as u32).for_each(|f| replacement.inserted(LocalFrame(f), SubpageIndex(f)));
                assert_eq!(replacement.victim(&mut view), None, "{policy}, {capacity} frames");
                view.pinned[free] = false;
                assert_eq!(replacement.victim(&mut view), Some(LocalFrame(free as u32)), "{policy}, {capacity} frames");
                assert_eq!(replacement.victim(&mut view), None, "{policy}, {capacity} frames");
                replacement.check();
            }
        }
    }
}

/// At most `frames` frames, in at most `steps` steps, and where to continue.
fn coldest(
    replacement: &AnyReplacement,
    from: ColdCursor,
    steps: usize,
    frames: usize,
) -> (Vec<LocalFrame>, ColdCursor) {
    let mut reported = Vec::new();
    let next = replacement.coldest(from, steps, &mut |frame| {
        reported.push(frame);
        if reported.len() == frames { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    (reported, next)
}

#[test]
fn a_cursor_holds_while_the_policy_changes() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    for policy in ReplacementPolicy::ALL {
        let mut state = fulgurite_testkit::Random(seed);
        let mut next = |limit: u64| state.below(limit);
        for _ in 0..100 {
            let capacity = 1 + next(40) as usize;
            let mut replacement = AnyReplacement::new(policy, capacity);
            let mut inside = vec![false; capacity];
            let mut view = Frames { referenced: vec![false; capacity], pinned: vec![false; capacity] };
            let mut at = ColdCursor::START;
            for _ in 0..300 {
                let frame = LocalFrame(next(capacity as u64) as u32);
                match next(3) {
                    0 if inside[frame.index()] => {
                        replacement.removed(frame);
                        inside[frame.index()] = false;
                    }
                    1 => {
                        if let Some(victim) = replacement.victim(&mut view) {
                            inside[victim.index()] = false;
                        }
                    }
                    _ if !inside[frame.index()] => {
                        replacement.inserted(frame, SubpageIndex(next(100) as u32));
                        inside[frame.index()] = true;
                    }
                    _ => {}
                }
                let (reported, go_on) = coldest(&replacement, at, 1 + next(5) as usize, usize::MAX);
                assert!(reported.iter().all(|f| inside[f.index()]), "{policy}, seed {seed}");
                at = go_on;
                // And it always comes to an end.
                let mut steps = 0;
                let mut end = at;
                while end != ColdCursor::START {
                    end = coldest(&replacement, end, 3, usize::MAX).1;
                    steps += 1;
                    assert!(steps <= 3 * capacity + 3, "{policy}, seed {seed}: no end");
                }
            }
        }
    }
}

#[test]
fn the_coldest_are_reported_in_the_order_in_which_they_would_be_evicted() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    for policy in ReplacementPolicy::ALL {
        let mut state = fulgurite_testkit::Random(seed);
        let mut next = |limit: u64| state.below(limit);
        for _ in 0..200 {
            let capacity = 1 + next(90) as usize;
            let mut replacement = AnyReplacement::new(policy, capacity);
            let mut inside = vec![false; capacity];
            let mut view = Frames { referenced: vec![false; capacity], pinned: vec![false; capacity] };
            for _ in 0..next(400) {
                let frame = LocalFrame(next(capacity as u64) as u32);
                match next(4) {
                    0 if inside[frame.index()] => replacement.removed(frame),
                    1 => {
                        if let Some(victim) = replacement.victim(&mut view) {
                            inside[victim.index()] = false;
                        }
                        continue;
                    }
                    2 if inside[frame.index()] => {
                        view.referenced[frame.index()] = true;
                        continue;
                    }
                    _ if inside[frame.index()] => continue,
                    _ => replacement.inserted(frame, SubpageIndex(next(1000) as u32)),
                }
                inside[frame.index()] ^= true;
            }
            view.referenced.fill(false);
            let (reported, end) = coldest(&replacement, ColdCursor::START, usize::MAX, usize::MAX);
            assert_eq!(end, ColdCursor::START, "{policy}, seed {seed}");
            assert_eq!(reported.len(), replacement.len(), "{policy}, seed {seed}");
            let mut sorted = reported.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert!(
                sorted.len() == reported.len() && sorted.iter().all(|f| inside[f.index()]),
                "{policy}, seed {seed}"
            );
            // The listing in pieces: by the callback's leave, and by steps, of which some find
            // nothing.
            let (few, _) = coldest(&replacement, ColdCursor::START, usize::MAX, 3);
            assert_eq!(few, reported[..reported.len().min(3)], "{policy}, seed {seed}");
            for (steps, frames) in [(usize::MAX, 3), (1, usize::MAX), (7, usize::MAX), (7, 2)] {
                let (mut at, mut pieces) = (ColdCursor::START, Vec::new());
                for _ in 0..4 * capacity + 8 {
                    let (piece, next) = coldest(&replacement, at, steps, frames);
                    assert!(piece.len() <= steps.min(frames));
                    pieces.extend(piece);
                    at = next;
                    if at == ColdCursor::START {
                        break;
                    }
                }
                assert_eq!(pieces, reported, "{policy}, {steps} steps, {frames} frames, seed {seed}");
            }
            // With no marks the others have no reason for another order. S3-FIFO remembers earlier
            // visits, and crowded sets come first.
            let plain = matches!(policy, ReplacementPolicy::Clock | ReplacementPolicy::Lru);
            if plain {
                let order = Vec::from_iter(std::iter::from_fn(|| replacement.victim(&mut view)));
                assert_eq!(order, reported, "{policy}, seed {seed}");
            }
        }
    }
}
