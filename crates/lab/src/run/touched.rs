//! The program that touches its memory: plain memory of its own, threads of its own. It knows
//! nothing of flash, and `run` starts it under each configuration.
//!
//! Word 0 of a page is the page's own number, mixed, and how often it was added to. The others are
//! a function of their place. So each read shows whether the page is the right one, and in the end
//! the sum tells whether an addition was lost.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fulgurite_workloads::{Random, mix};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::contest::Outcome;
use fulgurite_harness::own_process;

/// What it is asked to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Take this amount of memory, and write to all of it.
    Fill { bytes: u64 },
    /// Touch pages at random, from several threads.
    Touch { threads: u32, writes: bool, time_ns: u64, seed: u64 },
    /// Check all of it.
    Check,
}

/// Words of 8 bytes of a page.
const WORDS: usize = 512;
/// More additions than there can be.
const ADDITIONS_MAX: u64 = 1 << 44;

/// Serves until its input closes.
pub fn run() -> std::process::ExitCode {
    let mut memory = Memory::default();
    own_process::serve(|order: serde_json::Result<Order>| -> own_process::Answer {
        let order = order.map_err(|error| format!("no order: {error}"))?;
        let answer = match order {
            Order::Fill { bytes } => {
                memory = Memory::filled(bytes);
                Ok(Outcome::default())
            }
            Order::Touch { threads, writes, time_ns, seed } => {
                memory.touch(threads, writes, Duration::from_nanos(time_ns), seed)
            }
            Order::Check => memory.check(),
        };
        let answer = answer.and_then(|outcome| Ok(serde_json::to_value(outcome)?));
        answer.map_err(|error| format!("{error:#}"))
    });
    std::process::ExitCode::SUCCESS
}

#[derive(Default)]
struct Memory {
    words: Vec<AtomicU64>,
    additions: u64,
}

/// What a word holds before anything is added.
fn first(word: usize) -> u64 {
    // `mix(0)` is 0, and a page that was lost reads as zeros.
    mix((word / WORDS) as u64 + 1) ^ (word % WORDS) as u64
}

impl Memory {
    fn filled(bytes: u64) -> Memory {
        let count = bytes as usize / (8 * WORDS) * WORDS;
        Memory { words: (0..count).map(|word| AtomicU64::new(first(word))).collect(), additions: 0 }
    }

    fn touch(&mut self, threads: u32, writes: bool, time: Duration, seed: u64) -> Result<Outcome> {
        let pages = self.words.len() / WORDS;
        ensure!(pages > 0, "there is no memory yet");
        let begun = Instant::now();
        let words = &self.words;
        let ended = thread::scope(|scope| -> Result<Vec<(Histogram<u64>, u64, Duration)>> {
            let one = |number: u32| {
                let random = Random::new(seed, number.into());
                thread::Builder::new()
                    .stack_size(256 << 10)
                    .spawn_scoped(scope, move || touch_by_chance(words, pages as u64, writes, begun, time, random))
            };
            let running = (0..threads).map(one).collect::<std::io::Result<Vec<_>>>()?;
            let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().ok().context("a thread panicked")?;
            running.into_iter().map(join).collect()
        })?;
        let mut all = histogram()?;
        let (mut wrong, mut elapsed) = (0, Duration::ZERO);
        for (latency, wrongs, end) in ended {
            all.add(&latency)?;
            (wrong, elapsed) = (wrong + wrongs, elapsed.max(end));
        }
        if writes {
            self.additions += all.len();
        }
        let latency = all.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
        Ok(Outcome { operations: all.len(), elapsed_ns: elapsed.as_nanos() as u64, latency, wrong })
    }

    fn check(&self) -> Result<Outcome> {
        let (mut found, mut wrong) = (0u64, 0);
        for (place, word) in self.words.iter().enumerate() {
            let more = word.load(Ordering::Relaxed).wrapping_sub(first(place));
            if place % WORDS == 0 {
                found = found.wrapping_add(more);
            } else {
                wrong += u64::from(more != 0);
            }
        }
        if found != self.additions {
            bail!("{found} additions are in memory, and {} were made", self.additions);
        }
        Ok(Outcome { operations: self.words.len() as u64, wrong, ..Outcome::default() })
    }
}

/// To 1 part in 100, so that it is small compared with the memory under test.
fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 120_000_000_000, 2)?)
}

fn touch_by_chance(
    words: &[AtomicU64],
    pages: u64,
    writes: bool,
    begun: Instant,
    time: Duration,
    mut random: Random,
) -> Result<(Histogram<u64>, u64, Duration)> {
    let (mut latency, mut wrong) = (histogram()?, 0);
    let mut before = begun.elapsed();
    while before < time {
        let place = random.below(pages) as usize * WORDS;
        let word = &words[place];
        let found = if writes { word.fetch_add(1, Ordering::Relaxed) } else { word.load(Ordering::Relaxed) };
        wrong += u64::from(black_box(found).wrapping_sub(first(place)) > ADDITIONS_MAX);
        let now = begun.elapsed();
        latency.saturating_record(((now - before).as_nanos() as u64).max(1));
        before = now;
    }
    Ok((latency, wrong, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_are_counted_and_a_wrong_word_is_seen() {
        let mut memory = Memory::filled(64 * 4096);
        let time = Duration::from_millis(20);
        let read = memory.touch(2, false, time, 1).unwrap();
        let written = memory.touch(2, true, time, 2).unwrap();
        assert!(read.operations > 10 && written.operations > 10 && read.elapsed_ns >= 20_000_000, "{read:?}");
        assert_eq!((read.wrong, written.wrong), (0, 0));
        assert_eq!(read.latency.iter().map(|(_, count)| count).sum::<u64>(), read.operations);
        assert_eq!(memory.check().unwrap().wrong, 0);
        memory.words[WORDS + 3].fetch_add(1, Ordering::Relaxed);
        assert_eq!(memory.check().unwrap().wrong, 1);
        memory.words[0].store(7, Ordering::Relaxed);
        assert!(memory.touch(1, false, time, 3).unwrap().wrong > 0);
        assert!(memory.check().is_err(), "an addition too many");
    }
}
