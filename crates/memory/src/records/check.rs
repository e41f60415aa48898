//! What must hold of a map of records, while nothing changes it.

use std::collections::HashMap;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_records::{Record, SHARD_BITS, Tag};
use fulgurite_runtime::AccessError;

use super::RecordMap;
use super::page::{Page, Part, parts};
use super::segments::address_of;
use crate::{ByKind, Memory};

impl RecordMap {
    /// Checks index, cache and log: each word leads to one record, which has the word's tag, and
    /// segments count the records that are needed. Returns how many keys there are, and segments.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] with what was found; what the memory says.
    pub fn check_all<M: Memory>(&self, memory: &mut M) -> Result<(u64, u64), AccessError> {
        self.check(memory)?;
        let (mut keys, mut words) = (0, Vec::new());
        let mut live: HashMap<u32, u32> = HashMap::new();
        let mut page: Page = [0; SUBPAGE_BYTES];
        for number in 0..1 << SHARD_BITS {
            {
                let shard = self.records.shard(number);
                let found = shard.check();
                assert!(found.is_ok(), "{found:?}");
                let mut from = Some(Tag::FIRST);
                while let Some(tag) = from {
                    from = shard.words(self.table, tag, &mut words);
                }
            }
            for word in words.drain(..) {
                let location = word.location().expect("words for a checkpoint are cold");
                let at = address_of(location.page);
                memory.read_around(at, &mut page)?;
                let has_tag =
                    |bytes: &[u8]| Record::view(bytes).is_ok_and(|record| self.hash(record.key).tag() == word.tag());
                let is_there = parts(&page).any(|part| match part {
                    Part::Whole { at, bytes } => has_tag(&page[at..at + bytes]),
                    Part::Long { .. } => true,
                });
                if !is_there {
                    let (what, expected) = ("page of a record", word.bits());
                    return Err(AccessError::Corrupt { what, at, expected, got: 0 });
                }
                keys += 1;
                *live.entry(self.log.segments(|segments| segments.first_of(location.page))).or_default() += 1;
            }
        }
        self.log.segments(|segments| {
            for (first, segment) in segments.all() {
                let (expected, got) = (live.get(&first).copied().unwrap_or(0), segment.live);
                if expected != got || segment.records < got {
                    let (what, at) = ("records of a segment", segment.address);
                    return Err(AccessError::Corrupt { what, at, expected: expected.into(), got: got.into() });
                }
            }
            Ok((keys, segments.len() as u64))
        })
    }
}
