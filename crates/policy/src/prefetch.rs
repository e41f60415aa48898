//! Sequential prefetch: which subpages to read before they are requested.
//!
//! A miss on the subpage after an earlier miss continues a run, and the third of a run makes a
//! *stream*. Earlier misses are remembered in a direct-mapped table by the subpage they make
//! likely, so that any number of interleaved runs is found and a random miss costs one load and one
//! store. A stream reads ahead in batches of up to a window: when the reader first touches the
//! latest batch, the next one is requested, so at most two are unused.
//!
//! Adaptive: each stream starts small and doubles up to a common window. The common window doubles
//! while at most a fifth of what was prefetched is evicted unused, halves when more than half is,
//! and is off below 1. While off, now and then a stream is tried again, ever more rarely as trials
//! fail. What is prefetched and neither used nor evicted is bounded too, so that streams that break
//! off harm little before the first eviction shows it.
//!
//! Invariants ([`Prefetcher::check`]): the window is at most 16. Sizes are fixed.
//!
//! Not here: which of the subpages are resident already or exist at all (the driver cuts the ranges
//! down), strides other than one, and backward runs.

use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use fulgurite_format::SubpageIndex;

use crate::name::UnknownName;

/// The largest window, in subpages (NVMM's page segments to a page of 64 KiB).
pub const WINDOW_MAX: u8 = 16;
/// Consecutive misses that make a stream. Two are often one object across a boundary.
const STREAM_AT: u32 = 3;
/// Slots for expected subpages: 2 KiB, and a run survives about as many misses of others.
const EXPECTED_BITS: u32 = 8;
/// Streams followed at a time.
const STREAMS: usize = 32;
/// Adaptive: the common window to begin with, a stream's first batch, and the window of a trial.
const WINDOW_FIRST: u8 = 4;
const BATCH_FIRST: u8 = 2;
const WINDOW_TRIAL: u8 = 2;
/// Adaptive: outcomes (used or wasted) between two changes of the window.
const OUTCOMES: u32 = 16;
/// Adaptive: the most that are prefetched and neither used nor evicted.
const UNUSED_MAX: u32 = 512;
/// Adaptive: while off, the first trial comes after this many would-be streams. Each failure
/// doubles it, up to the last.
const TRIAL_GAP_FIRST: u32 = 32;
const TRIAL_GAP_MAX: u32 = 4096;

/// How far to read ahead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PrefetchPolicy {
    /// Never.
    Off,
    /// Always this many subpages (1 to 16), ahead of a sequential run.
    Fixed(u8),
    /// The next N (1 to 16) after any miss, sequential or not (NVMM, "DRAM Cache and Prefetching").
    Next(u8),
    /// As far as it pays.
    #[default]
    Adaptive,
}

impl fmt::Display for PrefetchPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefetchPolicy::Off => f.pad("off"),
            PrefetchPolicy::Fixed(window) => fmt::Display::fmt(window, f),
            PrefetchPolicy::Next(window) => f.pad(&format!("next-{window}")),
            PrefetchPolicy::Adaptive => f.pad("adaptive"),
        }
    }
}

impl FromStr for PrefetchPolicy {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "off" => Ok(PrefetchPolicy::Off),
            "adaptive" => Ok(PrefetchPolicy::Adaptive),
            _ => match (text.strip_prefix("next-"), text.strip_prefix("next-").unwrap_or(text).parse()) {
                (None, Ok(window @ 1..=WINDOW_MAX)) => Ok(PrefetchPolicy::Fixed(window)),
                (Some(_), Ok(window @ 1..=WINDOW_MAX)) => Ok(PrefetchPolicy::Next(window)),
                _ => Err(UnknownName {
                    what: "prefetch policy",
                    got: text.to_owned(),
                    expected: "off, adaptive, a window of 1 to 16 subpages, or next-1 to next-16",
                }),
            },
        }
    }
}

/// A subpage that a run of misses makes likely.
#[derive(Clone, Copy)]
struct Expected {
    subpage: u32,
    /// Consecutive misses before it. 0: the slot is empty.
    run: u32,
}

#[derive(Clone, Copy)]
struct Stream {
    /// First subpage prefetched and not yet forgotten: the start of the last batch but one.
    from: u32,
    /// A first touch at or after it requests the next batch: the start of the last batch.
    trigger: u32,
    /// One past the last subpage prefetched.
    end: u32,
    /// Size of the next batch.
    batch: u8,
    /// When it last moved. The longest still one makes room. 0: not in use.
    moved: u32,
}

/// Recognises sequential misses. See the module.
pub struct Prefetcher {
    policy: PrefetchPolicy,
    window: u8,
    expected: Box<[Expected; 1 << EXPECTED_BITS]>,
    streams: [Stream; STREAMS],
    moves: u32,
    /// Prefetched and neither used nor evicted.
    unused: u32,
    /// Outcomes since the window was last judged.
    used: u32,
    wasted: u32,
    /// Would-be streams until the next trial, while off, and how many next time.
    trial_in: u32,
    trial_gap: u32,
}

impl Prefetcher {
    /// No stream known yet.
    ///
    /// # Panics
    /// If a fixed window is not 1 to 16.
    pub fn new(policy: PrefetchPolicy) -> Self {
        let window = match policy {
            PrefetchPolicy::Off => 0,
            PrefetchPolicy::Fixed(window) | PrefetchPolicy::Next(window) => {
                assert!((1..=WINDOW_MAX).contains(&window), "a prefetch window is 1 to 16 subpages, not {window}");
                window
            }
            PrefetchPolicy::Adaptive => WINDOW_FIRST,
        };
        Prefetcher {
            policy,
            window,
            expected: Box::new([Expected { subpage: 0, run: 0 }; 1 << EXPECTED_BITS]),
            streams: [Stream { from: 0, trigger: 0, end: 0, batch: 0, moved: 0 }; STREAMS],
            moves: 0,
            unused: 0,
            used: 0,
            wasted: 0,
            trial_in: TRIAL_GAP_FIRST,
            trial_gap: TRIAL_GAP_FIRST,
        }
    }

    /// Streams side by side at equal distances must not meet in one slot, so this is not the low
    /// bits.
    #[inline(always)]
    fn slot(subpage: u32) -> usize {
        (u64::from(subpage).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - EXPECTED_BITS)) as usize
    }

    #[inline(always)]
    fn expect(&mut self, subpage: u32, run: u32) {
        self.expected[Self::slot(subpage)] = Expected { subpage, run };
    }

    /// A miss on `subpage`: what to fetch as well. A miss that joins a prefetch under way is a
    /// [`Prefetcher::used`] instead.
    #[inline]
    pub fn missed(&mut self, subpage: SubpageIndex) -> Option<Range<u32>> {
        if self.policy == PrefetchPolicy::Off {
            return None;
        }
        let here = subpage.0;
        let after = here.checked_add(1)?;
        if let PrefetchPolicy::Next(window) = self.policy {
            let range = after..after.saturating_add(u32::from(window));
            self.unused += range.len() as u32;
            return (!range.is_empty()).then_some(range);
        }
        let expected = &mut self.expected[Self::slot(here)];
        if expected.subpage != here || expected.run == 0 {
            self.expect(after, 1);
            return None;
        }
        let run = expected.run + 1;
        expected.run = 0;
        self.expect(after, run.min(STREAM_AT));
        if run < STREAM_AT { None } else { self.follow(here, after) }
    }

    /// A run is long enough at `here`: starts a stream there, or moves on the one that ended there.
    fn follow(&mut self, here: u32, after: u32) -> Option<Range<u32>> {
        if self.window == 0 && !self.try_again() {
            return None;
        }
        let known = self.streams.iter().position(|s| s.moved != 0 && s.end == here);
        let at = known.unwrap_or_else(|| {
            let oldest = self.streams.iter().enumerate().min_by_key(|(_, s)| s.moved);
            oldest.map_or(0, |(at, _)| at)
        });
        let batch = match (self.policy, known) {
            (PrefetchPolicy::Adaptive, None) => BATCH_FIRST,
            (PrefetchPolicy::Adaptive, Some(_)) => self.streams[at].batch,
            _ => self.window,
        };
        let before = self.streams[at];
        self.streams[at] = Stream { from: after, trigger: after, end: after, batch, moved: 0 };
        let range = self.extend(at);
        if range.is_none() {
            // Nothing was begun: the stream that would have made room goes on.
            self.streams[at] = before;
        }
        range
    }

    /// The next batch of a stream.
    fn extend(&mut self, at: usize) -> Option<Range<u32>> {
        let adaptive = self.policy == PrefetchPolicy::Adaptive;
        let stream = &mut self.streams[at];
        let batch = u32::from(stream.batch.min(self.window)).min(u32::MAX - stream.end);
        if adaptive && self.unused + batch > UNUSED_MAX {
            // Drivers may drop a prefetch without a word, so the count comes down by itself,
            // slowly.
            self.unused -= 1;
            return None;
        }
        if batch == 0 {
            return None;
        }
        let range = stream.end..stream.end + batch;
        if adaptive {
            stream.batch = stream.batch.saturating_mul(2).min(WINDOW_MAX);
        }
        self.moves = self.moves.checked_add(1).unwrap_or_else(|| {
            // Once in 2^32 moves all streams count as equally old.
            self.streams.iter_mut().for_each(|s| s.moved = s.moved.min(1));
            2
        });
        let stream = &mut self.streams[at];
        (stream.from, stream.trigger, stream.end, stream.moved) = (stream.trigger, range.start, range.end, self.moves);
        self.unused += batch;
        self.expect(range.end, STREAM_AT - 1);
        Some(range)
    }

    /// The first touch of a prefetched subpage (also one that is still on its way): what to fetch
    /// to stay ahead.
    #[inline]
    pub fn used(&mut self, subpage: SubpageIndex) -> Option<Range<u32>> {
        self.unused = self.unused.saturating_sub(1);
        self.used += 1;
        self.adapt_window();
        let here = subpage.0;
        let at = self.streams.iter().position(|s| s.moved != 0 && (s.from..s.end).contains(&here))?;
        if here < self.streams[at].trigger || self.window == 0 { None } else { self.extend(at) }
    }

    /// A prefetched subpage was evicted, or dropped before it was read, and was never touched.
    #[inline]
    pub fn wasted(&mut self, _subpage: SubpageIndex) {
        self.unused = self.unused.saturating_sub(1);
        self.wasted += 1;
        self.adapt_window();
    }

    /// After enough outcomes: widens or narrows the window.
    #[inline]
    fn adapt_window(&mut self) {
        if self.used + self.wasted < OUTCOMES {
            return;
        }
        if self.policy == PrefetchPolicy::Adaptive && self.window > 0 {
            if self.wasted > self.used {
                self.window /= 2;
                if self.window == 0 {
                    self.trial_in = self.trial_gap;
                    self.trial_gap = (self.trial_gap * 2).min(TRIAL_GAP_MAX);
                }
            } else if self.wasted * 4 <= self.used {
                self.window = (self.window * 2).min(WINDOW_MAX);
                self.trial_gap = TRIAL_GAP_FIRST;
            }
        }
        (self.used, self.wasted) = (0, 0);
    }

    /// While off: counts a would-be stream, and says whether it is time to try one.
    fn try_again(&mut self) -> bool {
        self.trial_in -= 1;
        if self.trial_in > 0 {
            return false;
        }
        self.window = WINDOW_TRIAL;
        (self.used, self.wasted) = (0, 0);
        true
    }

    /// Subpages a stream reads ahead at most, now. 0 is off.
    #[inline]
    pub fn window(&self) -> u8 {
        self.window
    }

    /// Bytes of DRAM it uses.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.expected)
    }

    /// Asserts the invariants.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        assert!(self.window <= WINDOW_MAX);
        if let PrefetchPolicy::Fixed(window) | PrefetchPolicy::Next(window) = self.policy {
            assert_eq!(self.window, window, "a fixed window does not change");
        }
        assert!(self.policy != PrefetchPolicy::Off || self.window == 0);
        assert!(self.window > 0 || self.policy == PrefetchPolicy::Off || self.trial_in > 0, "a trial will come");
        for stream in self.streams.iter().filter(|s| s.moved != 0) {
            assert!(stream.from <= stream.trigger && stream.trigger <= stream.end && stream.moved <= self.moves);
        }
    }
}
