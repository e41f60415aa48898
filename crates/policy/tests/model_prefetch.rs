//! Goal: prefetch finds sequential streams however they are interleaved, is silent on random
//! access, stays ahead of its reader, and turns itself off when what it fetches is not used.
//! Method: a small cache in the test (what was prefetched and not yet touched, evicted first in
//! first out) around the prefetcher, fed with streams and with random subpages from fixed seeds.
//! That every answer is the one that the rules give is in `model_prefetch_rules.rs`.

use std::collections::{HashSet, VecDeque};

use fulgurite_format::SubpageIndex;
use fulgurite_policy::{PrefetchPolicy, Prefetcher};
use fulgurite_testkit::Random;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

struct Cache {
    prefetcher: Prefetcher,
    /// Prefetched and not touched, oldest first.
    unused: VecDeque<u32>,
    limit: usize,
    touched: HashSet<u32>,
    misses: u64,
    fetched: u64,
    wasted: u64,
}

impl Cache {
    fn new(policy: PrefetchPolicy, limit: usize) -> Self {
        let (unused, touched) = (VecDeque::new(), HashSet::new());
        let prefetcher = Prefetcher::new(policy);
        Cache { prefetcher, unused, limit, touched, misses: 0, fetched: 0, wasted: 0 }
    }

    fn touch(&mut self, subpage: u32) {
        let ahead = if let Some(at) = self.unused.iter().position(|s| *s == subpage) {
            self.unused.remove(at);
            self.prefetcher.used(SubpageIndex(subpage))
        } else if self.touched.contains(&subpage) {
            None
        } else {
            self.misses += 1;
            self.prefetcher.missed(SubpageIndex(subpage))
        };
        self.touched.insert(subpage);
        for fetch in ahead.into_iter().flatten() {
            if !self.touched.contains(&fetch) && !self.unused.contains(&fetch) {
                self.fetched += 1;
                self.unused.push_back(fetch);
            }
        }
        while self.unused.len() > self.limit {
            let old = self.unused.pop_front().unwrap();
            self.wasted += 1;
            assert_eq!(self.prefetcher.wasted(SubpageIndex(old)), ());
        }
        self.prefetcher.check();
    }
}

const POLICIES: [PrefetchPolicy; 4] =
    [PrefetchPolicy::Adaptive, PrefetchPolicy::Fixed(1), PrefetchPolicy::Fixed(5), PrefetchPolicy::Fixed(16)];

#[test]
fn one_stream_misses_only_at_its_start() {
    for policy in POLICIES {
        let mut cache = Cache::new(policy, 1_000);
        (1_000..3_000).for_each(|s| cache.touch(s));
        assert_eq!(cache.misses, 3, "{policy}");
        assert!(cache.fetched <= 1_997 + 32 && cache.wasted == 0, "{policy} fetched {}", cache.fetched);
    }
    let mut cache = Cache::new(PrefetchPolicy::Adaptive, 1_000);
    (0..500).for_each(|s| cache.touch(s));
    assert_eq!(cache.prefetcher.window(), 16, "it pays, so the window is wide open");
}

#[test]
fn interleaved_streams_are_found() {
    // 24 fibers, each reading its own part in order, at equal distances (a power of two: the worst
    // for a table by low bits), their turns at random, and random misses among them.
    let seed = 7;
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut at: Vec<u32> = (0..24).map(|fiber| fiber << 16).collect();
    let mut cache = Cache::new(PrefetchPolicy::Adaptive, 4_000);
    let mut noise = 0;
    for _ in 0..24_000 {
        let fiber = random.below(at.len());
        cache.touch(at[fiber]);
        at[fiber] += 1;
        if random.one_in(8) {
            cache.touch((1 << 31) | random.next() as u32 >> 1);
            noise += 1;
        }
    }
    let missed = cache.misses - noise;
    assert!(missed < 24 * 40, "{missed} of 24000 sequential reads missed");
    assert!(cache.wasted == 0);
}

#[test]
fn random_access_leads_to_nothing() {
    for policy in POLICIES {
        let seed = 11;
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut cache = Cache::new(policy, 100);
        (0..20_000).for_each(|_| cache.touch(random.below(10_000_000)));
        assert_eq!(cache.fetched, 0, "{policy}");
    }
}

/// Runs of four subpages at random places: every run looks like a stream, and is over as soon as it
/// does.
fn short_runs(cache: &mut Cache, runs: usize, random: &mut Random) {
    for _ in 0..runs {
        let start = random.below(100_000_000) * 32;
        (start..start + 3).for_each(|s| cache.touch(s));
    }
}

#[test]
fn turns_off_when_it_does_not_pay_and_on_again_when_it_does() {
    let seed = 13;
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut cache = Cache::new(PrefetchPolicy::Adaptive, 200);
    short_runs(&mut cache, 1_000, &mut random);
    assert_eq!(cache.prefetcher.window(), 0);
    let before = cache.fetched;
    short_runs(&mut cache, 20_000, &mut random);
    let after = cache.fetched - before;
    assert!(after < 1_000, "{after} subpages fetched for nothing in 20000 runs: trials get rarer");
    // Real streams: found again by a trial, at the latest after as many of their misses as the
    // longest gap.
    (0..20_000).for_each(|s| cache.touch(s));
    assert_eq!(cache.prefetcher.window(), 16);
    let mut fixed = Cache::new(PrefetchPolicy::Fixed(8), 200);
    short_runs(&mut fixed, 1_000, &mut random);
    assert_eq!(fixed.fetched, 8_000, "a fixed window stays fixed");
}

#[test]
fn streams_that_break_off_are_bounded_before_any_eviction_shows_it() {
    let seed = 17;
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut cache = Cache::new(PrefetchPolicy::Adaptive, usize::MAX);
    short_runs(&mut cache, 2_000, &mut random);
    assert!(cache.fetched <= 2_000, "{}", cache.fetched);
    let known = cache.fetched;
    short_runs(&mut cache, 200, &mut random);
    assert!(cache.fetched - known <= 200, "a driver that never reports gets one in each run at most");
}

#[test]
fn the_end_of_the_space_is_the_end() {
    for policy in POLICIES {
        let mut cache = Cache::new(policy, 100);
        (u32::MAX - 100..=u32::MAX).for_each(|s| cache.touch(s));
        assert!(cache.misses <= 5, "{policy}: {} misses", cache.misses);
    }
}

#[test]
fn the_next_ones_come_after_any_miss() {
    let mut cache = Cache::new(PrefetchPolicy::Next(4), 1_000);
    // No two of them in a row, and each brings four.
    (0..50).for_each(|s| cache.touch(s * 100));
    assert_eq!((cache.misses, cache.fetched), (50, 200));
    // What was brought hits, and brings nothing more.
    (0..50).for_each(|s| cache.touch(s * 100 + 3));
    assert_eq!((cache.misses, cache.fetched), (50, 200));
}

#[test]
fn off_is_off_and_names_parse_as_printed() {
    let mut cache = Cache::new(PrefetchPolicy::Off, 10);
    (0..100).for_each(|s| cache.touch(s));
    assert_eq!((cache.fetched, cache.prefetcher.window()), (0, 0));
    let next = [PrefetchPolicy::Next(1), PrefetchPolicy::Next(16)];
    let fixed = [PrefetchPolicy::Fixed(1), PrefetchPolicy::Fixed(16)];
    for policy in [PrefetchPolicy::Off, PrefetchPolicy::Adaptive].into_iter().chain(fixed).chain(next) {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    for bad in ["0", "17", "-1", "on", "", "300", "next-", "next-0", "next-17", "next"] {
        let error = bad.parse::<PrefetchPolicy>().unwrap_err();
        assert!(error.to_string().contains("1 to 16"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_calls_in_any_order_give_ranges_ahead_of_the_reader(
        policy in prop::sample::select(&POLICIES[..]),
        calls in prop::collection::vec((0_u8..4, 0_u32..40, any::<bool>()), 1..2_000),
    ) {
        let mut prefetcher = Prefetcher::new(policy);
        for (which, near, high) in calls {
            let subpage = SubpageIndex(if high { u32::MAX - near } else { near });
            let range = match which {
                0 | 1 => prefetcher.missed(subpage),
                2 => prefetcher.used(subpage),
                _ => {
                    prefetcher.wasted(subpage);
                    None
                }
            };
            prefetcher.check();
            if let Some(range) = range {
                prop_assert!(range.start > subpage.0 && range.start < range.end && range.len() <= 16);
            }
        }
    }
}
