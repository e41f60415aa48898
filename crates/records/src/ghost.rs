//! Keys whose records left the cache a short time ago, as fingerprints of 32 bits.
//!
//! Buckets of 16 fingerprints, newest first: one that enters pushes the oldest of its bucket out.
//! So it is a first-in-first-out queue, but for what chance gives one bucket more than another, of
//! 4 bytes a key, and a search reads one line of the processor's cache.
//!
//! It remembers as many keys as there are records in the cache, which is what S3-FIFO asks for
//! (SOSP '23, section 4.1). Buckets are in the order of fingerprints, so that there can be more or
//! fewer of them in place when the number of records changes.

use fulgurite_sys::Mapping;

use crate::record::TableId;
use crate::word::Tag;

/// Fingerprints of a bucket, which is a line of the processor's cache.
pub const WAYS: usize = 16;

/// What is remembered of a key. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(u32);

impl Fingerprint {
    pub fn of(table: TableId, tag: Tag) -> Fingerprint {
        let wide = u64::from(table.0) << 32 | u64::from(tag.number());
        Fingerprint(((wide.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32).max(1))
    }
}

#[derive(Debug)]
pub struct Ghost {
    slots: Mapping<u32>,
    /// Buckets in use, at least one.
    buckets: usize,
}

impl Ghost {
    /// For at most this many buckets.
    pub fn new(buckets_max: usize) -> Ghost {
        assert!(buckets_max > 0, "a ghost without room");
        Ghost { slots: Mapping::zeroed(buckets_max * WAYS), buckets: 1 }
    }
    /// The most keys that it has room for.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
    /// Keys that it remembers at most now.
    #[cfg(test)]
    fn len_max(&self) -> usize {
        self.buckets * WAYS
    }
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<u32>()
    }
    fn bucket_mut(&mut self, of: u32) -> &mut [u32; WAYS] {
        let bucket = ((u64::from(of) * self.buckets as u64) >> 32) as usize;
        self.slots[bucket * WAYS..].first_chunk_mut().expect("a bucket is inside the table")
    }
    fn push(&mut self, fingerprint: u32) {
        let bucket = self.bucket_mut(fingerprint);
        bucket.copy_within(..WAYS - 1, 1);
        bucket[0] = fingerprint;
    }
    /// A key left, when this many records were cached.
    pub fn remember(&mut self, key: Fingerprint, records: usize) {
        let wanted = records.div_ceil(WAYS).clamp(1, self.slots.len() / WAYS);
        if wanted.abs_diff(self.buckets) > self.buckets / 8 {
            self.rehash(wanted);
        }
        self.push(key.0);
    }
    /// Whether a key left a short time ago, which is forgotten by that.
    pub fn take(&mut self, key: Fingerprint) -> bool {
        let bucket = self.bucket_mut(key.0);
        let Some(at) = bucket.iter().position(|other| *other == key.0) else { return false };
        bucket.copy_within(at + 1.., at);
        bucket[WAYS - 1] = 0;
        true
    }
    /// What another one remembered.
    pub fn take_over(&mut self, old: &Ghost) {
        self.buckets = old.buckets.min(self.slots.len() / WAYS);
        for bucket in old.slots[..old.buckets * WAYS].chunks_exact(WAYS) {
            bucket.iter().rev().filter(|key| **key != 0).for_each(|key| self.push(*key));
        }
    }
    fn rehash(&mut self, buckets: usize) {
        let old = std::mem::replace(&mut self.buckets, buckets);
        // Each moves down when there are fewer buckets, and up when there are more, to a bucket
        // whose own were taken out before.
        for step in 0..old {
            let from = if buckets < old { step } else { old - 1 - step };
            let slots = &mut self.slots[from * WAYS..(from + 1) * WAYS];
            let keys: [u32; WAYS] = *slots.first_chunk().expect("it is as long");
            slots.fill(0);
            keys.iter().rev().filter(|key| **key != 0).for_each(|key| self.push(*key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Fingerprint {
        Fingerprint::of(TableId(3), Tag::new(number).unwrap())
    }

    #[test]
    fn it_remembers_as_many_as_there_are_records() {
        let mut ghost = Ghost::new(1000);
        let (mut seen, records) = (0, 4000);
        for number in 0..100_000 {
            ghost.remember(key(number), records);
            seen += u32::from(number >= 2000 && ghost.take(key(number - 2000)));
        }
        assert!(ghost.len_max().abs_diff(records) <= records / 8, "{}", ghost.len_max());
        assert!(seen > 95_000, "{seen} of those that left 2,000 before");
        let long_ago = (0..100_000 - 3 * records as u32).filter(|number| ghost.take(key(*number))).count();
        assert!(long_ago < 100, "{long_ago} of those that left long before");
    }
    #[test]
    fn what_it_remembers_stays_while_their_number_changes() {
        let mut ghost = Ghost::new(100);
        for number in 0..100 {
            ghost.remember(key(number), 1000);
        }
        for records in [1600, 500, 900, 200, 1500] {
            ghost.remember(key(1000), records);
        }
        let mut other = Ghost::new(200);
        other.take_over(&ghost);
        let seen = (0..100).filter(|number| other.take(key(*number))).count();
        assert!(seen > 90, "{seen} of 100");
        assert!(!other.take(key(5000)) && !other.take(key(0)));
    }
}
