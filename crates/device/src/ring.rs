//! A ring of fixed entries in shared memory, from one producer to one consumer, without indices
//! that travel.
//!
//! ```text
//! entry = WORDS words; the last one:   63        62 .. 32       31 .. 0
//!                                      [ phase ][ contents    ][ check ]
//!
//!   lap 0   [ 1 | 1 | 1 | 0 | 0 | 0 ]     written with 1; 0 is "not yet"
//!                     ^ the consumer polls here
//!   lap 1   [ 0 | 0 | 1 | 1 | 1 | 1 ]     written with 0; 1 is "not yet"
//! ```
//!
//! An index line would be one more cache line to move for every batch. The phase bit says that an
//! entry is there, in the line that holds it. The other side may be another process, and may write
//! anything at any time. So each word is loaded once, into a copy that is checked and used. An
//! entry carries a check over its words and its position, which finds a stray store.
//!
//! Memory order: the last word is stored with release and loaded with acquire. So the consumer sees
//! the other words, and all that the producer stored before. `loom_protocol.rs` takes each
//! away and is caught.
//!
//! Invariant, upheld by an honest producer: never more entries than the ring holds are written and
//! not yet taken. A producer that breaks it loses its own entries.

use crate::window::{Ordering, Window};

const PHASE: u64 = 1 << 63;
const CHECK: u64 = 0xFFFF_FFFF;
/// Bits of the last word that an entry may use: 32 to 62.
pub(crate) const LAST_WORD: u64 = !(PHASE | CHECK);

/// An entry whose words are not those that were written: the memory was scribbled over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged {
    /// How many entries were taken before it.
    pub position: u64,
}

/// Entries of a ring for `depth` commands in flight: a power of two that is large enough to keep
/// the two sides off each other's lines.
#[must_use]
pub fn entries_for(depth: usize) -> usize {
    depth.max(16).next_power_of_two()
}

/// A check over an entry and its position: two rounds of multiplication a word. It finds any single
/// changed bit and any two words exchanged. It is there for accidents, not for attackers.
#[inline(always)]
fn check(words: &[u64], last: u64, position: u64) -> u64 {
    // Odd constants from the fractions of the golden ratio and of the square root of 2.
    let mut sum = (position ^ last).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for &word in words {
        sum = (sum ^ (sum >> 32) ^ word).wrapping_mul(0x6A09_E667_F3BC_C909);
    }
    sum >> 32
}

#[derive(Debug)]
struct RingPosition {
    window: Window,
    shift: u32,
    position: u64,
}

impl RingPosition {
    fn new(window: Window, words: usize) -> RingPosition {
        let entries = window.len() / words;
        assert!(entries.is_power_of_two() && entries * words == window.len(), "a ring of {entries} entries");
        RingPosition { window, shift: entries.trailing_zeros(), position: 0 }
    }
    /// The phase that marks the next entry as written.
    #[inline(always)]
    fn phase(&self) -> u64 {
        if (self.position >> self.shift) & 1 == 0 { PHASE } else { 0 }
    }
    #[inline(always)]
    fn entry(&self) -> usize {
        (self.position & ((1 << self.shift) - 1)) as usize
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Producer<const WORDS: usize>(RingPosition);

/// The reading end.
#[derive(Debug)]
pub struct Consumer<const WORDS: usize>(RingPosition);

impl<const WORDS: usize> Producer<WORDS> {
    /// Over words that are zero, or that a producer wrote and no consumer took.
    ///
    /// # Panics
    /// When the words are not a power of two of entries.
    #[must_use]
    pub fn new(window: Window) -> Producer<WORDS> {
        Producer(RingPosition::new(window, WORDS))
    }
    /// Writes an entry. Of its last word, bits 32 to 62 are kept.
    #[inline]
    pub fn push(&mut self, entry: [u64; WORDS]) {
        let ring = &mut self.0;
        let words = ring.window.entry::<WORDS>(ring.entry() * WORDS);
        for i in 0..WORDS - 1 {
            words[i].store(entry[i], Ordering::Relaxed);
        }
        let last = entry[WORDS - 1] & LAST_WORD;
        let check = check(&entry[..WORDS - 1], last, ring.position);
        words[WORDS - 1].store(last | check | ring.phase(), ring.window.release());
        ring.position += 1;
    }
    /// Entries written so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.0.position
    }
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// Over the words of a producer that has not written yet.
    ///
    /// # Panics
    /// When the words are not a power of two of entries.
    #[must_use]
    pub fn new(window: Window) -> Consumer<WORDS> {
        Consumer(RingPosition::new(window, WORDS))
    }
    /// Takes the next entry, if it was written; of its last word, bits 32 to 62.
    ///
    /// # Errors
    /// [`Damaged`] when its words are not those that were written. It is taken nevertheless.
    #[inline]
    pub fn pop(&mut self) -> Option<Result<[u64; WORDS], Damaged>> {
        let ring = &mut self.0;
        let words = ring.window.entry::<WORDS>(ring.entry() * WORDS);
        // Each word is loaded once, so what the other side stores afterwards has no effect.
        let last = words[WORDS - 1].load(ring.window.acquire());
        if last & PHASE != ring.phase() {
            return None;
        }
        let mut entry = [last & LAST_WORD; WORDS];
        for i in 0..WORDS - 1 {
            entry[i] = words[i].load(Ordering::Relaxed);
        }
        let position = ring.position;
        ring.position += 1;
        if last & CHECK == check(&entry[..WORDS - 1], last & LAST_WORD, position) {
            Some(Ok(entry))
        } else {
            Some(Err(Damaged { position }))
        }
    }
    /// Whether [`Consumer::pop`] would return something.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> bool {
        let last = self.0.window.word(self.0.entry() * WORDS + WORDS - 1);
        last.load(self.0.window.acquire()) & PHASE == self.0.phase()
    }
    /// Starts to fetch the line of the next entry.
    #[inline]
    pub fn fetch(&self) {
        self.0.window.prefetch(self.0.entry() * WORDS);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use fulgurite_sys::{Arena, Backed};

    use super::*;

    fn ring<const WORDS: usize>(entries: usize) -> (Producer<WORDS>, Consumer<WORDS>, Window) {
        let arena = Arc::new(Arena::anonymous(entries * WORDS * 8, Backed::BasePages).unwrap());
        let window = Window::new(&arena, 0, entries * WORDS);
        (Producer::new(window.clone()), Consumer::new(window.clone()), window)
    }

    #[test]
    fn entries_come_in_order_over_many_laps() {
        for capacity in [1, 2, 4, 16] {
            let (mut producer, mut consumer, _) = ring::<2>(capacity);
            for n in 0..100u64 {
                let batch = n % capacity as u64 + 1;
                assert!(!consumer.ready() && consumer.pop().is_none());
                for i in 0..batch {
                    producer.push([n * 100 + i, u64::MAX]);
                }
                for i in 0..batch {
                    assert!(consumer.ready());
                    assert_eq!(consumer.pop(), Some(Ok([n * 100 + i, LAST_WORD])));
                }
            }
        }
    }

    #[test]
    fn any_bit_that_changes_is_found() {
        for lap in 0..2 {
            for word in 0..4 {
                for bit in 0..64 {
                    let (mut producer, mut consumer, window) = ring::<4>(1);
                    for _ in 0..lap {
                        producer.push([9; 4]);
                        assert!(consumer.pop().is_some_and(|entry| entry.is_ok()));
                    }
                    producer.push([1, 2, 3, 4 << 32]);
                    window.word(word).fetch_xor(1 << bit, Ordering::Relaxed);
                    // The phase bit alone says "not yet".
                    let expected = (word, bit) != (3, 63);
                    assert_eq!(consumer.pop(), expected.then_some(Err(Damaged { position: lap })));
                }
            }
        }
    }

    #[test]
    fn words_exchanged_or_of_another_lap_are_found() {
        let (mut producer, mut consumer, window) = ring::<4>(2);
        producer.push([1, 2, 3, 0]);
        window.word(0).store(2, Ordering::Relaxed);
        window.word(1).store(1, Ordering::Relaxed);
        assert_eq!(consumer.pop(), Some(Err(Damaged { position: 0 })));
        // A whole entry where it was not written.
        producer.push([1, 2, 3, 0]);
        for i in 0..4 {
            let word = window.word(4 + i).load(Ordering::Relaxed);
            window.word(i).store(if i == 3 { word ^ PHASE } else { word }, Ordering::Relaxed);
        }
        assert!(consumer.pop().is_some_and(|entry| entry.is_ok()));
        assert_eq!(consumer.pop(), Some(Err(Damaged { position: 2 })));
    }
}
