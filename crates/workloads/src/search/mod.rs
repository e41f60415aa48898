//! Search: an inverted index built from the real files under a directory, served with queries drawn
//! from their text.
//!
//! The index holds the texts themselves (once), so that snippets come from flash memory, and for
//! each word a compressed list of the documents that have it, and a dictionary. It is built in one
//! pass, read only afterwards, and stored in one [`Region`], in the layout that `layout` draws. A
//! request ([`Query`]) looks up two or three words, intersects their lists, ranks by BM25 and reads
//! the snippets of the three best. Since nothing changes, requests need no latch: [`Search`] is
//! generic over one only to be used like the other workloads.
//!
//! It does not rank by where words stand to each other, does not stem, and takes no update: a new
//! corpus is a new index.

mod build;
mod check;
mod corpus;
mod index;
mod layout;
mod query;
mod sample;
mod word;

use std::ffi::OsString;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use fulgurite_memory::{AccessError, Latch, Memory, Ptr, Region};
use zerocopy::{FromZeros, IntoBytes};

use self::index::{Index, corrupt};
use self::layout::{Header, MAGIC, PART_MAX, WEIGHT_ONE};
use self::query::SNIPPET_BYTES;
use self::sample::{PASSAGES_MAX, Passage};
use self::word::mix;
use crate::{Params, Site, Workload, WorkloadError};

pub use self::corpus::{Corpus, CorpusError, CorpusFile, ENOUGH_TEXT_BYTES, FILE_BYTES_MAX, Skipped};
pub use self::sample::Query;
pub use self::word::{NUMBER_BYTES_MAX, WORD_BYTES_MAX, Word, for_each_word};

/// Words that [`Search::answer`] looks for at most.
pub const ANSWER_WORDS: usize = 8;
/// Bytes of the longest path that is believed.
const PATH_BYTES_MAX: u32 = 1 << 16;

fn unusable(what: String) -> WorkloadError {
    WorkloadError::Unusable { workload: "search", what }
}
fn inconsistent(what: String) -> WorkloadError {
    WorkloadError::Inconsistent { workload: "search", what }
}

/// One document of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The file it was, when the index was built.
    pub path: PathBuf,
    /// Its BM25 score.
    pub score: f32,
    /// The text around the first occurrence of the rarest word, on one line.
    pub snippet: String,
}

/// What an index holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSummary {
    /// Bytes of the region in use: texts, lists, dictionary, tables.
    pub index_bytes: u64,
    /// Of which texts.
    pub text_bytes: u64,
    /// Documents.
    pub documents: u64,
    /// Distinct words.
    pub words: u64,
    /// (word, document) pairs.
    pub postings: u64,
}

/// The search workload, opened: where the index is, and the sample that queries are drawn from.
#[derive(Debug)]
pub struct Search<L> {
    index: Index,
    passages: Box<[Passage]>,
    /// By rank: the share of requests, in 2^64ths, for this passage and all before it.
    popularity: Box<[u64]>,
    latch: PhantomData<fn() -> L>,
}

impl<L: Latch> Search<L> {
    /// Builds the index of `corpus`, which needs [`Search::bytes_needed`] bytes at most. `seed`
    /// draws the passages that requests are made of. `progress` is called now and then with the
    /// share done, 0 to 1.
    ///
    /// # Errors
    /// When the region is too small, no file of the corpus is text any more, or an access fails.
    pub fn build_from<M: Memory>(
        memory: &mut M,
        region: Region,
        corpus: &Corpus,
        seed: u64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        build::build(memory, region, corpus, seed, progress)
    }

    /// What the index holds.
    #[must_use]
    pub fn summary(&self) -> IndexSummary {
        let Header { used_bytes, text_bytes, documents, words, postings, .. } = self.index.header;
        IndexSummary { index_bytes: used_bytes, text_bytes, documents, words, postings }
    }

    /// Answers what a person typed: the ten best documents that have all the words, best first.
    /// Words that no document has are left out, and all after the eighth.
    ///
    /// # Errors
    /// Whatever the memory says.
    pub fn answer<M: Memory>(&self, memory: &mut M, typed: &str) -> Result<Vec<Hit>, AccessError> {
        let mut asked: Vec<Word> = Vec::new();
        for_each_word(typed, |word, _| {
            if !asked.contains(word) {
                asked.push(*word);
            }
        });
        let mut words = Vec::new();
        for word in asked {
            if words.len() < ANSWER_WORDS && self.index.entry(memory, &word)?.is_some() {
                words.push(word);
            }
        }
        let ranking = self.index.find::<M, ANSWER_WORDS>(memory, &words)?;
        let mut hits = Vec::new();
        for ranked in ranking.as_slice() {
            let document = self.index.document(memory, ranked.document)?;
            if document.path_bytes > PATH_BYTES_MAX {
                let at = self.index.at(document.place);
                return Err(corrupt("path", at, PATH_BYTES_MAX.into(), document.path_bytes.into()));
            }
            let mut path = vec![0; document.path_bytes as usize];
            memory.read_bytes(self.index.at(document.place), &mut path)?;
            let mut bytes = [0; SNIPPET_BYTES];
            let len = self.index.snippet(memory, ranked, &mut bytes)?;
            hits.push(Hit {
                path: PathBuf::from(OsString::from_vec(path)),
                score: (f64::from(ranked.score) / WEIGHT_ONE / 255.0 * PART_MAX) as f32,
                snippet: one_line(&bytes[..len]),
            });
        }
        Ok(hits)
    }
}

/// The whole characters of a piece of text, blanks and control characters run together to one
/// blank.
fn one_line(bytes: &[u8]) -> String {
    let mut line = String::new();
    for c in bytes.utf8_chunks().flat_map(|chunk| chunk.valid().chars()) {
        let blank = c.is_whitespace() || c.is_control();
        if !blank {
            line.push(c);
        } else if !line.is_empty() && !line.ends_with(' ') {
            line.push(' ');
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Cumulative shares of Zipf's law over `count` ranks, in 2^64ths. 0 is uniform.
fn zipf_shares(count: usize, exponent: f64) -> Box<[u64]> {
    let shares: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect();
    let total: f64 = shares.iter().sum();
    let mut sum = 0.0;
    let cumulate = |share: &f64| {
        sum += share;
        // The cast saturates, so the last is all there is.
        (sum / total * 2f64.powi(64)) as u64
    };
    shares.iter().map(cumulate).collect()
}

impl<L: Latch> Workload for Search<L> {
    const NAME: &'static str = "search";
    const PINS: u32 = 0;
    type Request = Query;

    /// Scans `params.input`, or this machine's text where there is none, and indexes as much of it
    /// as fits in `params.bytes` and the region. To get the corpus first, use [`Corpus::scan`] and
    /// [`Search::build_from`].
    fn build<M: Memory>(memory: &mut M, mut site: Site<'_>) -> Result<(), WorkloadError> {
        let Params { bytes, seed, input, .. } = site.params;
        let room = site.region.bytes.min(*bytes);
        site.part(0.0, 0.4);
        // An index is never smaller than its text.
        let mut scanned = |_: u64, bytes: u64| site.advance((bytes as f64 / room.max(1) as f64).min(1.0));
        let mut corpus = match input {
            Some(dir) => Corpus::scan(dir, room, &mut scanned),
            None => Corpus::of_this_machine(room, &mut scanned),
        }
        .map_err(|e| unusable(e.to_string()))?;
        while !corpus.files().is_empty() && Self::bytes_needed(&corpus) > room {
            let share = room as f64 / Self::bytes_needed(&corpus) as f64;
            corpus.truncate(((corpus.text_bytes() as f64 * share) as u64).min(corpus.text_bytes() - 1));
        }
        if corpus.files().is_empty() {
            let what = format!("{room} bytes hold no index of the text under {}; ask for more", corpus.dir().display());
            return Err(unusable(what));
        }
        site.part(0.4, 1.0);
        Self::build_from(memory, site.region, &corpus, *seed, &mut |share| site.advance(share))
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        if !(params.zipf >= 0.0 && params.zipf.is_finite()) {
            return Err(unusable(format!("{} is no Zipf exponent; give 0 (uniform) or more", params.zipf)));
        }
        let header: Header = memory.load(Ptr::new(region.base))?;
        let no_index = || unusable("there is no search index in this region; build one first".to_owned());
        if header.magic != MAGIC || header.checksum != header.checksum() || header.used_bytes > region.bytes {
            return Err(no_index());
        }
        if header.passages == 0 || header.passages > PASSAGES_MAX as u64 {
            return Err(no_index());
        }
        let index = Index { region, header };
        let mut passages = vec![Passage::new_zeroed(); header.passages as usize].into_boxed_slice();
        memory.read_bytes(index.at(header.passages_at), passages.as_mut_bytes())?;
        let popularity = zipf_shares(passages.len(), params.zipf);
        Ok(Search { index, passages, popularity, latch: PhantomData })
    }

    fn request(&self, seed: u64, number: u64) -> Query {
        let random = mix(seed, number);
        let rank = self.popularity.partition_point(|&share| share <= random);
        self.passages[rank.min(self.passages.len() - 1)].query(mix(random, number))
    }

    fn execute<M: Memory>(&self, memory: &mut M, request: &Query) -> Result<u64, AccessError> {
        self.index.execute(memory, request)
    }

    #[inline]
    fn answer_is_fixed(&self, _: &Query) -> bool {
        true
    }

    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        check::check(&self.index, memory)
    }

    fn dram_bytes(&self) -> u64 {
        (size_of_val(&*self.passages) + size_of_val(&*self.popularity)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_law_and_end_at_all() {
        for exponent in [0.0, 0.99, 3.0] {
            let shares = zipf_shares(1000, exponent);
            assert!(shares.windows(2).all(|w| w[0] <= w[1]));
            assert!(shares[999] > u64::MAX - (1 << 20));
            let ratio = shares[0] as f64 / (shares[1] - shares[0]) as f64;
            assert!((ratio - 2f64.powf(exponent)).abs() < 1e-6, "{ratio}");
        }
    }
    #[test]
    fn snippets_are_one_line_of_whole_characters() {
        assert_eq!(one_line(b"  a\n\n b\t\xE2\x82 c\x07 "), "a b c");
        assert_eq!(one_line(b" \n"), "");
    }
}
