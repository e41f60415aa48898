//! The check: the index says of the texts exactly what the texts say.
//!
//! Two walks, each front to back, so that it is fast through a small cache too. The first reads
//! every document and counts its words anew. The second reads the dictionary and every list. Both
//! sum up the same hash of (word, document, impact, first occurrence), and the sums and counts must
//! be equal. Besides, each list's order, counts and skip entries are checked, and that each word is
//! found where readers look for it.

use fulgurite_memory::{Memory, Ptr, SUBPAGE_BYTES};

use super::inconsistent;
use super::index::{Cursor, Index};
use super::layout::{
    BLOCK_POSTINGS, BUCKET_HEADER_BYTES, BUCKET_SLOT_BYTES, Entry, ListHeader, SKIP_BYTES, SkipEntry, impact, tag,
};
use super::word::{DocumentWords, hash_bytes, mix};
use crate::WorkloadError;

/// What a walk has seen. Equal for both when the index is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    postings: u64,
    /// Of all postings, in whatever order.
    sum: u64,
}

impl Seen {
    fn add(&mut self, word: u64, document: u32, impact: u8, first: u32) {
        let place = mix(u64::from(document) << 32 | u64::from(first), impact.into());
        self.postings += 1;
        self.sum = self.sum.wrapping_add(mix(word, place));
    }
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), WorkloadError> {
    if holds { Ok(()) } else { Err(inconsistent(what())) }
}

/// Checks everything. Returns a number that stands for all that the index holds.
pub(super) fn check<M: Memory>(index: &Index, memory: &mut M) -> Result<u64, WorkloadError> {
    let texts = check_texts(index, memory)?;
    let lists = check_lists(index, memory)?;
    require(texts == lists, || format!("the texts have {texts:?}, the lists {lists:?}"))?;
    require(texts.postings == index.header.postings, || {
        format!("{} postings, not {}", texts.postings, index.header.postings)
    })?;
    Ok(mix(texts.sum, index.header.checksum))
}

fn check_texts<M: Memory>(index: &Index, memory: &mut M) -> Result<Seen, WorkloadError> {
    let mut seen = Seen::default();
    let (mut text, mut words) = (Vec::new(), DocumentWords::default());
    let (mut text_bytes, mut expected_place) = (0, index.header.texts_at);
    for number in 0..index.header.documents as u32 {
        let document = index.document(memory, number)?;
        require(document.place == expected_place, || {
            format!("document {number} is at {}, not at {expected_place}", document.place)
        })?;
        expected_place += u64::from(document.path_bytes) + u64::from(document.text_bytes);
        text_bytes += u64::from(document.text_bytes);
        text.resize(document.text_bytes as usize, 0);
        index.text(memory, &document, 0, &mut text)?;
        let hash = hash_bytes(&text);
        require(hash == document.hash, || {
            format!("the text of document {number} has hash {hash:x}, not {:x}", document.hash)
        })?;
        let Ok(text) = std::str::from_utf8(&text) else {
            return Err(inconsistent(format!("document {number} is not UTF-8")));
        };
        words.count(text);
        require(words.total() == document.words, || {
            format!("document {number} has {} words, not {}", words.total(), document.words)
        })?;
        for (word, found) in words.iter() {
            let impact = impact(found.count.min(super::build::COUNT_MAX), document.words, index.header.average_words);
            seen.add(word.hash(), number, impact, found.first);
        }
    }
    require(text_bytes == index.header.text_bytes, || {
        format!("{text_bytes} bytes of text, not {}", index.header.text_bytes)
    })?;
    Ok(seen)
}

fn check_lists<M: Memory>(index: &Index, memory: &mut M) -> Result<Seen, WorkloadError> {
    let mut seen = Seen::default();
    let mut words = 0;
    let mut bucket = vec![0; SUBPAGE_BYTES];
    // The first bucket from which on all overflow, up to the one before this: words here belong no
    // earlier.
    let mut reachable_from = 0;
    for number in 0..index.header.buckets {
        let at = index.at(index.header.dictionary_at + number * SUBPAGE_BYTES as u64);
        memory.read_bytes(at, &mut bucket)?;
        let field = |at: usize| u16::from_le_bytes([bucket[at], bucket[at + 1]]);
        let count = usize::from(field(0));
        require(BUCKET_HEADER_BYTES + count * BUCKET_SLOT_BYTES <= SUBPAGE_BYTES, || {
            format!("bucket {number} claims {count} words")
        })?;
        for slot in 0..count {
            let slot = BUCKET_HEADER_BYTES + slot * BUCKET_SLOT_BYTES;
            let entry = bucket.get(usize::from(field(slot + 2))..).and_then(Entry::decode);
            let Some(entry) = entry else {
                return Err(inconsistent(format!("no entry at slot {slot} of bucket {number}")));
            };
            let hash = entry.word.hash();
            let home = index.header.home_bucket(hash);
            require(field(slot) == tag(hash) && (reachable_from..=number).contains(&home), || {
                format!("{:?} is in bucket {number}, where nobody finds it", entry.word)
            })?;
            words += 1;
            check_list(index, memory, &entry, hash, &mut seen)?;
        }
        if field(2) == 0 {
            reachable_from = number + 1;
        }
    }
    require(words == index.header.words, || format!("{words} words, not {}", index.header.words))?;
    Ok(seen)
}

/// Walks one list to its end.
fn check_list<M: Memory>(
    index: &Index,
    memory: &mut M,
    entry: &Entry,
    hash: u64,
    seen: &mut Seen,
) -> Result<(), WorkloadError> {
    let mut cursor = Cursor::new();
    cursor.open(memory, index, entry)?;
    let (mut from, mut count, mut highest) = (0, 0, 0);
    let mut block_highest = Vec::new();
    let mut blocks_left = u32::MAX;
    while let Some(document) = cursor.seek(memory, from, 0, &mut blocks_left)? {
        let Some(first) = cursor.first() else {
            return Err(inconsistent(format!("{:?} has no first occurrence in document {document}", entry.word)));
        };
        require(u64::from(document) < index.header.documents, || {
            format!("{:?} is in document {document}", entry.word)
        })?;
        seen.add(hash, document, cursor.impact() as u8, first);
        highest = highest.max(cursor.impact());
        if (count as usize).is_multiple_of(BLOCK_POSTINGS) {
            block_highest.push(0);
        }
        if let Some(block) = block_highest.last_mut() {
            *block = cursor.impact().max(*block);
        }
        count += 1;
        from = document + 1;
    }
    require(count == entry.df, || format!("{:?} is in {count} documents, not {}", entry.word, entry.df))?;
    require(highest == cursor.max_impact, || format!("{:?} has impacts up to {highest}", entry.word))?;
    if entry.df as usize > BLOCK_POSTINGS {
        let header: ListHeader = memory.load(Ptr::new(index.at(entry.list)))?;
        for (block, &highest) in block_highest.iter().enumerate().take(header.blocks as usize) {
            let at = index.at(entry.list + (SKIP_BYTES * (1 + block)) as u64);
            let skip: SkipEntry = memory.load(Ptr::new(at))?;
            require(skip.max_impact == highest, || {
                format!("block {block} of {:?} has impacts up to {highest}", entry.word)
            })?;
        }
    }
    Ok(())
}
