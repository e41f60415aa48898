//! The unique index on `Subscriber.sub_nbr`: a hash map from the number to `s_id`.

use fulgurite_memory::{AccessError, Latch, Memory, Region};

use super::schema::{SubNbr, sub_nbr};
use crate::hashed::{Hashed, HashedRoot};
use crate::{Site, WorkloadError};

/// A number as a key: its 15 digits and a zero, in words, which compare faster than bytes.
type Key = [u64; 2];
pub(super) type Index<L> = Hashed<Key, u32, L>;

/// Latches, shared by hash of the bucket. The index is never changed after the load, so few do.
pub(super) const LATCH_COUNT: usize = 64;

fn key_of(number: &SubNbr) -> Key {
    let mut bytes = [0; 16];
    bytes[..15].copy_from_slice(number);
    let (words, _) = bytes.as_chunks::<8>();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
}

pub(super) fn build<L: Latch, M: Memory>(
    memory: &mut M,
    region: Region,
    count: u64,
    site: &mut Site<'_>,
) -> Result<HashedRoot, AccessError> {
    let entries = (0..count).map(|s_id| {
        site.tick(s_id, count);
        (key_of(&sub_nbr(s_id as u32)), s_id as u32)
    });
    Index::<L>::build(memory, region, count, entries)
}

/// Every subscriber, and no other, is found by its number.
pub(super) fn check<L: Latch, M: Memory>(
    index: &Index<L>,
    workload: &'static str,
    memory: &mut M,
    count: u64,
) -> Result<(), WorkloadError> {
    let broken = |what| Err(WorkloadError::Inconsistent { workload, what });
    let len = index.map.check(memory)?;
    if len != count {
        return broken(format!("the index knows {len} of {count} subscribers"));
    }
    let mut wrong = None;
    index.map.for_each(memory, |key, &s_id| {
        if u64::from(s_id) >= count || *key != key_of(&sub_nbr(s_id)) {
            wrong = Some(s_id);
        }
    })?;
    match wrong {
        Some(s_id) => broken(format!("the index finds subscriber {s_id} by a number of another")),
        None => Ok(()),
    }
}
