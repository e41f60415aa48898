//! A ring of fixed entries from one producer to one consumer, without indices in shared memory.
//!
//! ```text
//! entry = WORDS words; the top bit of the last word is the phase:
//!
//!   lap 0   [ 1 | 1 | 1 | 0 | 0 | 0 ]     written with 1; 0 is "not yet"
//!                     ^ consumer polls here
//!   lap 1   [ 0 | 0 | 1 | 1 | 1 | 1 ]     written with 0; 1 is "not yet"
//! ```
//!
//! An index line would be one more cache line to move for every batch. So the consumer polls the
//! next entry instead: an empty one is a load of a line that it has, and a transfer brings up to
//! eight words.
//!
//! Invariant, upheld by the owner of both ends: never more entries than the ring was made for are
//! written and not yet taken. A queue keeps it by bounding its requests in flight, as entries are
//! taken in order and before their requests complete. Breaking it loses entries and is not unsafe.

use crate::primitive::{Arc, AtomicU64, Ordering};

const LINE_WORDS: usize = 8;
const PHASE: u64 = 1 << 63;

/// One cache line.
#[repr(align(64))]
struct Line([AtomicU64; LINE_WORDS]);

/// Away from what either side's other memory changes: both poll it for every entry.
#[repr(align(128))]
struct Ring {
    lines: Box<[Line]>,
    /// Binary logarithm of the number of entries.
    shift: u32,
}

impl Ring {
    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.lines[index / LINE_WORDS].0[index % LINE_WORDS]
    }
    /// The phase that marks the entry at `position` as written.
    #[inline(always)]
    fn phase(&self, position: u64) -> u64 {
        if (position >> self.shift) & 1 == 0 { PHASE } else { 0 }
    }
    #[inline(always)]
    fn entry(&self, position: u64) -> usize {
        (position & ((1 << self.shift) - 1)) as usize
    }
}

/// The writing end.
pub struct Producer<const WORDS: usize> {
    ring: Arc<Ring>,
    position: u64,
}

/// The reading end.
pub struct Consumer<const WORDS: usize> {
    ring: Arc<Ring>,
    position: u64,
}

/// Makes a ring of at least `entries` entries of `WORDS` words.
///
/// # Panics
/// When `WORDS` is not 1, 2, 4 or 8.
#[must_use]
pub fn ring<const WORDS: usize>(entries: usize) -> (Producer<WORDS>, Consumer<WORDS>) {
    assert!(WORDS.is_power_of_two() && WORDS <= LINE_WORDS, "an entry does not straddle cache lines");
    let entries = entries.max(1).next_power_of_two();
    let lines = (entries * WORDS).div_ceil(LINE_WORDS);
    let lines = (0..lines).map(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
    let ring = Arc::new(Ring { lines, shift: entries.trailing_zeros() });
    (Producer { ring: ring.clone(), position: 0 }, Consumer { ring, position: 0 })
}

impl<const WORDS: usize> Producer<WORDS> {
    /// Writes an entry. The top bit of its last word is not kept.
    #[inline]
    pub fn push(&mut self, entry: [u64; WORDS]) {
        let first = self.ring.entry(self.position) * WORDS;
        for (i, &word) in entry[..WORDS - 1].iter().enumerate() {
            self.ring.word(first + i).store(word, Ordering::Relaxed);
        }
        let last = (entry[WORDS - 1] & !PHASE) | self.ring.phase(self.position);
        // Publishes the words above and the data that was moved for a completion.
        self.ring.word(first + WORDS - 1).store(last, Ordering::Release);
        self.position += 1;
    }
    /// Entries that fit.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        1 << self.ring.shift
    }
    /// Memory of the ring, both ends together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ring.lines.len() * size_of::<Line>()
    }
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// Takes the next entry, if it was written; the top bit of its last word is 0.
    #[inline]
    pub fn pop(&mut self) -> Option<[u64; WORDS]> {
        let first = self.ring.entry(self.position) * WORDS;
        let last = self.ring.word(first + WORDS - 1).load(Ordering::Acquire);
        if last & PHASE != self.ring.phase(self.position) {
            return None;
        }
        let mut entry = [last & !PHASE; WORDS];
        for (i, word) in entry[..WORDS - 1].iter_mut().enumerate() {
            *word = self.ring.word(first + i).load(Ordering::Relaxed);
        }
        self.position += 1;
        Some(entry)
    }
    /// Starts to fetch the line of the next entry.
    #[inline]
    pub fn fetch(&self) {
        let word = self.ring.word(self.ring.entry(self.position) * WORDS);
        fulgurite_sys::arch::prefetch(std::ptr::from_ref(word).cast());
    }
    /// Whether [`Consumer::pop`] would return an entry.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> bool {
        let last = self.ring.entry(self.position) * WORDS + WORDS - 1;
        self.ring.word(last).load(Ordering::Acquire) & PHASE == self.ring.phase(self.position)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_order_over_many_laps() {
        for capacity in [1, 2, 4, 16] {
            let (mut producer, mut consumer) = ring::<2>(capacity);
            assert_eq!(producer.capacity(), capacity);
            for n in 0..100u64 {
                let batch = n % capacity as u64 + 1;
                assert!(!consumer.ready() && consumer.pop().is_none());
                for i in 0..batch {
                    producer.push([n * 100 + i, u64::MAX]);
                }
                for i in 0..batch {
                    assert!(consumer.ready());
                    assert_eq!(consumer.pop(), Some([n * 100 + i, u64::MAX >> 1]));
                }
            }
        }
    }
    #[test]
    fn the_smallest_size_is_one() {
        assert_eq!(ring::<1>(0).0.capacity(), 1);
        assert_eq!(ring::<8>(3).0.capacity(), 4);
    }
}
