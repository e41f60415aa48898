//! Queries: what a request asks for, and the sample of passages that they are drawn from.
//!
//! A query is two or three words that stand near each other at a random place of a random document,
//! so that it has an answer and words are asked for about as they occur. Words that very many
//! documents have, or only one, are left out. When the index is built, passages of the text are
//! drawn and some words of each are kept at the end of the index. They are loaded into DRAM when it
//! is opened (counted in `dram_bytes`): a user's query comes from the network, so reading it must
//! not cost flash accesses. A request picks a passage by Zipf's law, in an order that has nothing
//! to do with where documents are stored, and two or three of its words: about a million different
//! queries.

use fulgurite_memory::{Memory, Region};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::Document;
use super::word::{Word, WordTable, for_each_word, mix};
use crate::WorkloadError;

/// Words of a query at most.
pub(super) const QUERY_WORDS: usize = 3;
/// Passages in the sample: with their popularity, just under 1 MiB of DRAM.
pub(super) const PASSAGES_MAX: usize = 12 * 1024;
/// Bytes of a passage as it is kept: about eight words.
const PASSAGE_BYTES: usize = 72;
/// Words of a passage at most, and how many end the search for a better one.
const PASSAGE_WORDS: usize = 8;
const PASSAGE_WORDS_ENOUGH: usize = 6;
/// Bytes of text from which a passage's words are taken: about a paragraph.
const WINDOW_BYTES: usize = 512;
/// Places tried before a passage takes what it gets.
const TRIES: u64 = 16;
/// A word that more than one in this number of documents has is too common to be asked for,
const COMMON_SHARE: u64 = 8;
/// and so is one that more than this many have: 32 blocks of postings, so that a query reads a
/// hundred or so at most.
const COMMON_MAX: u64 = 4096;

/// A query, as a request carries it: the words themselves, fewer filled up with empty ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Query([Word; QUERY_WORDS]);

impl Query {
    /// The words.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[Word] {
        let count = self.0.iter().position(Word::is_empty).unwrap_or(QUERY_WORDS);
        &self.0[..count]
    }
    fn push(&mut self, word: Word) {
        let count = self.words().len();
        if count < QUERY_WORDS && !self.words().contains(&word) {
            self.0[count] = word;
        }
    }
}

/// Words that stand near each other in the text: each its length, a byte, and its bytes, without
/// gaps. Then zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub(super) struct Passage([u8; PASSAGE_BYTES]);

impl Passage {
    /// As many of the words as fit.
    fn of(words: &[Word]) -> Passage {
        let mut bytes = [0; PASSAGE_BYTES];
        let mut at = 0;
        for word in words.iter().take(PASSAGE_WORDS).map(Word::as_bytes) {
            if at + 1 + word.len() <= PASSAGE_BYTES {
                bytes[at] = word.len() as u8;
                bytes[at + 1..at + 1 + word.len()].copy_from_slice(word);
                at += 1 + word.len();
            }
        }
        Passage(bytes)
    }
    /// Its words, and how many. Those that cannot be words end it.
    fn words(&self) -> ([Word; PASSAGE_WORDS], usize) {
        let mut words = [Word::default(); PASSAGE_WORDS];
        let (mut at, mut count) = (0, 0);
        while count < PASSAGE_WORDS && at < PASSAGE_BYTES && self.0[at] != 0 {
            let len = usize::from(self.0[at]);
            let Some(word) = self.0.get(at + 1..at + 1 + len).and_then(Word::from_bytes) else { break };
            words[count] = word;
            (at, count) = (at + 1 + len, count + 1);
        }
        (words, count)
    }
    /// Two or three of its words, or all when it has fewer.
    pub(super) fn query(&self, random: u64) -> Query {
        let (mut words, count) = self.words();
        let wanted = (2 + (random & 1) as usize).min(count);
        let mut query = Query::default();
        for taken in 0..wanted {
            let left = (count - taken) as u64;
            words.swap(taken, taken + below(mix(random, taken as u64), left) as usize);
            query.push(words[taken]);
        }
        query
    }
}

/// A number below `limit` that depends on all of `random`.
pub(super) fn below(random: u64, limit: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

/// Draws the sample. `documents` and their texts are in the region. `words` and `df` (by number)
/// are the index's.
pub(super) fn draw_passages<M: Memory>(
    memory: &mut M,
    region: Region,
    documents: &[Document],
    words: &WordTable,
    df: &[u32],
    seed: u64,
) -> Result<Vec<Passage>, WorkloadError> {
    let common = (documents.len() as u64 / COMMON_SHARE).clamp(8, COMMON_MAX);
    let mut passages = Vec::with_capacity(PASSAGES_MAX);
    let mut window = [0; WINDOW_BYTES];
    for number in 0..PASSAGES_MAX as u64 {
        let mut best: Vec<Word> = Vec::new();
        for attempt in 0..TRIES {
            let random = mix(mix(seed, number), attempt);
            let document = documents[below(random, documents.len() as u64) as usize];
            let last = u64::from(document.text_bytes).saturating_sub(WINDOW_BYTES as u64 / 2).max(1);
            let start = below(mix(random, 1), last);
            let len = WINDOW_BYTES.min((u64::from(document.text_bytes) - start) as usize);
            let text_at = region.base.add(document.place + u64::from(document.path_bytes));
            memory.read_bytes(text_at.add(start), &mut window[..len])?;
            let mut found = eligible(&window[..len], start == 0, |word| {
                let df = words.find(word).map_or(0, |n| u64::from(df[n as usize]));
                // The last tries take any word: a small corpus has no others.
                df > 0 && (attempt >= TRIES / 2 || (2..=common).contains(&df))
            });
            found.sort_unstable();
            found.dedup();
            for taken in 0..found.len().min(PASSAGE_WORDS) {
                let left = (found.len() - taken) as u64;
                found.swap(taken, taken + below(mix(random, 2 + taken as u64), left) as usize);
            }
            if found.len() > best.len() {
                best = found;
            }
            // A small corpus may have no more than two or three such words at a place. Enough for a
            // query.
            if best.len() >= PASSAGE_WORDS_ENOUGH || (attempt >= TRIES / 2 - 1 && best.len() >= QUERY_WORDS) {
                break;
            }
        }
        if !best.is_empty() {
            passages.push(Passage::of(&best));
        }
    }
    if passages.is_empty() {
        // No place tried had a word (a few words in a sea of blanks): ask for the first there is.
        passages.push(Passage::of(&words.words()[..1]));
    }
    Ok(passages)
}

/// The words that are wholly in the window and that `accept` takes.
fn eligible(window: &[u8], from_the_start: bool, mut accept: impl FnMut(&Word) -> bool) -> Vec<Word> {
    // A window may begin and end inside a word, or inside a character.
    let blank = |b: &u8| b.is_ascii_whitespace();
    let start = if from_the_start { Some(0) } else { window.iter().position(blank) };
    let Some(start) = start else { return Vec::new() };
    let end = window.iter().rposition(blank).unwrap_or(0);
    let whole = if start < end { &window[start..end] } else { window };
    let mut words = Vec::new();
    for chunk in whole.utf8_chunks() {
        for_each_word(chunk.valid(), |word, _| {
            if accept(word) {
                words.push(*word);
            }
        });
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_each_word_once_and_three_at_most() {
        let mut query = Query::default();
        assert!(query.words().is_empty());
        for name in ["two", "two", "one", "six", "ten"] {
            query.push(Word::from_bytes(name.as_bytes()).unwrap());
        }
        assert_eq!(query.words().iter().map(Word::as_bytes).collect::<Vec<_>>(), [b"two", b"one", b"six"]);
    }
    #[test]
    fn a_passage_gives_queries_of_its_words() {
        let words: Vec<Word> = (0..9).map(|i| Word::from_bytes(format!("w{i}").as_bytes()).unwrap()).collect();
        for count in [0, 1, 2, 3, 8, 9] {
            let passage = Passage::of(&words[..count]);
            let mut queries = std::collections::HashSet::new();
            for random in 0..4000 {
                let query = passage.query(mix(random, 1));
                let len = query.words().len();
                assert!(len <= count && len <= 3 && (len >= 2 || len == count));
                assert!(query.words().iter().all(|w| words[..count.min(PASSAGE_WORDS)].contains(w)));
                let mut sorted = query.words().to_vec();
                sorted.sort_unstable();
                queries.insert(sorted);
            }
            // Of eight words: 28 pairs and 56 triples.
            assert_eq!(queries.len(), [1, 1, 1, 4, 0, 0, 0, 0, 84, 84][count]);
        }
        let long = Word::from_bytes(&[b'x'; 24]).unwrap();
        assert_eq!(Passage::of(&[long; 4]).words().1, 2);
        assert_eq!(Passage([0xFF; PASSAGE_BYTES]).query(1), Query::default());
    }
    #[test]
    fn words_cut_by_the_window_are_not_taken() {
        let names = |window: &[u8], start| eligible(window, start, |_| true).len();
        assert_eq!(names(b"cut whole words cu", false), 2);
        assert_eq!(names(b"first whole words cu", true), 3);
        assert_eq!(names("\u{e4}".as_bytes()[1..].into(), false), 0);
    }
}
