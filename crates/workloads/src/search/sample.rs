//! Queries: what a request asks for, and the sample of them that is drawn from the text when the index is built.
//!
//! A query is two or three words that stand near each other at a random place of a random document, so that it has an answer
//! and words are asked for about as they occur; words that almost every document has, or only one, are left out. The sample
//! lies at the end of the index and is loaded into DRAM when it is opened (counted in `dram_bytes`): a user's query comes from
//! the network, so reading it must not cost flash accesses. Requests pick from it by Zipf's law, in an order that has
//! nothing to do with where documents lie.

use fulgurite_memory::{Memory, Region};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::Document;
use super::word::{Word, WordTable, for_each_word, mix};
use crate::WorkloadError;

/// Words of a query at most.
pub(super) const QUERY_WORDS: usize = 3;
/// Queries in the sample: with their popularity, just under 1 MiB of DRAM.
pub(super) const QUERIES_MAX: usize = 12 * 1024;
/// Bytes of text from which a query's words are taken: about a paragraph.
const WINDOW_BYTES: usize = 512;
/// Places tried before a query takes what it gets.
const TRIES: u64 = 16;
/// A word that more than one document in so many has is too common to be asked for,
const COMMON_SHARE: u64 = 8;
/// and so is one that more than this many have: 32 blocks of postings, so that a query reads a hundred or so at most.
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

/// A number below `limit` that depends on all of `random`.
pub(super) fn below(random: u64, limit: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

/// Draws the sample. `documents` and their texts lie in the region; `words` and `df` (by number) are the index's.
pub(super) fn draw_queries<M: Memory>(
    memory: &mut M,
    region: Region,
    documents: &[Document],
    words: &WordTable,
    df: &[u32],
    seed: u64,
) -> Result<Vec<Query>, WorkloadError> {
    let common = (documents.len() as u64 / COMMON_SHARE).clamp(8, COMMON_MAX);
    let mut queries = Vec::with_capacity(QUERIES_MAX);
    let mut window = [0; WINDOW_BYTES];
    for number in 0..QUERIES_MAX as u64 {
        let mut best = Query::default();
        for attempt in 0..TRIES {
            let random = mix(mix(seed, number), attempt);
            let wanted = 2 + (random & 1) as usize;
            let document = documents[below(random, documents.len() as u64) as usize];
            let last = u64::from(document.text_bytes).saturating_sub(WINDOW_BYTES as u64 / 2).max(1);
            let start = below(mix(random, 1), last);
            let len = WINDOW_BYTES.min((u64::from(document.text_bytes) - start) as usize);
            let text_at = region.base.add(document.place + u64::from(document.path_bytes));
            memory.read_bytes(text_at.add(start), &mut window[..len])?;
            let found = eligible(&window[..len], start == 0, |word| {
                let df = words.find(word).map_or(0, |n| u64::from(df[n as usize]));
                // The last tries take any word: a small corpus has no others.
                df > 0 && (attempt >= TRIES / 2 || (2..=common).contains(&df))
            });
            let mut query = Query::default();
            for pick in 0..wanted as u64 * 2 {
                if query.words().len() < wanted && !found.is_empty() {
                    query.push(found[below(mix(random, 2 + pick), found.len() as u64) as usize]);
                }
            }
            if query.words().len() > best.words().len() {
                best = query;
            }
            if best.words().len() >= wanted {
                break;
            }
        }
        if !best.words().is_empty() {
            queries.push(best);
        }
    }
    if queries.is_empty() {
        // No place tried had a word (a few words in a sea of blanks): ask for the first there is.
        let mut query = Query::default();
        words.words().iter().take(1).for_each(|w| query.push(*w));
        queries.push(query);
    }
    Ok(queries)
}

/// The words that lie whole in the window and that `accept` takes.
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
    fn words_cut_by_the_window_are_not_taken() {
        let names = |window: &[u8], start| eligible(window, start, |_| true).len();
        assert_eq!(names(b"cut whole words cu", false), 2);
        assert_eq!(names(b"first whole words cu", true), 3);
        assert_eq!(names("\u{e4}".as_bytes()[1..].into(), false), 0);
    }
}
