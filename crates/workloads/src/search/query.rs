//! Answering: intersects the words' lists, ranks by BM25, and cuts snippets from the texts.
//!
//! The rarest word leads. The others skip to its documents. A block of the lead's list is not even
//! read when its best impact, with the best of all others, cannot reach the ten best so far. This
//! changes no result (block-max pruning, Ding and Suel, "Faster top-k document retrieval using
//! block-max indexes", SIGIR 2011). What bounds the work of a query is [`BLOCKS_MAX`]: after that
//! many blocks it answers with the best found. Equal scores are ordered by document.
//!
//! Invariant: no heap allocation, and less than 16 KiB of stack, for requests. [`Index::find`]
//! depends only on the region.

use fulgurite_memory::{AccessError, Memory};

use super::index::{Cursor, Index, corrupt};
use super::layout::Entry;
use super::sample::Query;
use super::word::{Word, hash_bytes, mix};

/// Documents that an answer names at most.
pub(super) const TOP: usize = 10;
/// And of how many of them a request reads a snippet.
const SNIPPETS: usize = 3;
/// Bytes of a snippet at most.
pub(super) const SNIPPET_BYTES: usize = 160;
/// Bytes of a snippet before the word that it shows.
const SNIPPET_BEFORE: u32 = 48;
/// Blocks of long lists that one query reads at most: 32,768 postings, well under a millisecond of
/// work.
pub(super) const BLOCKS_MAX: u32 = 256;

/// A document that has all the words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranked {
    pub document: u32,
    /// Sum of weight (1024ths) times impact (255ths).
    pub score: u32,
    /// Where the query's rarest word first occurs in it.
    pub first: u32,
}

/// The best documents, best first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ranking {
    best: [Ranked; TOP],
    count: usize,
}

impl Ranking {
    /// Best first. Equal scores by document.
    pub(super) fn as_slice(&self) -> &[Ranked] {
        &self.best[..self.count]
    }
    /// Scores must pass this to enter.
    fn threshold(&self) -> u32 {
        if self.count == TOP { self.best[TOP - 1].score } else { 0 }
    }
    /// Enters a document that comes after all that have been entered, and whose score passes the
    /// threshold.
    fn enter(&mut self, ranked: Ranked) {
        let place = self.as_slice().partition_point(|r| r.score >= ranked.score);
        self.count = TOP.min(self.count + 1);
        self.best[place..self.count].rotate_right(1);
        self.best[place] = ranked;
    }
}

impl Index {
    /// The best documents that have all of the words, of which there are at most `W`.
    pub(super) fn find<M: Memory, const W: usize>(
        &self,
        memory: &mut M,
        words: &[Word],
    ) -> Result<Ranking, AccessError> {
        let mut ranking = Ranking::default();
        let mut entries: [Option<Entry>; W] = [None; W];
        for (entry, word) in entries.iter_mut().zip(words) {
            *entry = self.entry(memory, word)?;
            if entry.is_none() {
                return Ok(ranking);
            }
        }
        entries.sort_unstable_by_key(|e| e.map_or((u32::MAX, Word::default()), |e| (e.df, e.word)));
        let mut cursors: [Cursor; W] = std::array::from_fn(|_| Cursor::new());
        let count = words.len().min(W);
        for (cursor, entry) in cursors.iter_mut().zip(entries.iter().flatten()) {
            cursor.open(memory, self, entry)?;
        }
        let Some((lead, others)) = cursors[..count].split_first_mut() else { return Ok(ranking) };
        let others_best = others.iter().map(|c| c.weight * c.max_impact).sum();
        let mut blocks_left = BLOCKS_MAX;
        let mut from = 0;
        'documents: loop {
            let needed = (ranking.threshold() + 1).saturating_sub(others_best).div_ceil(lead.weight);
            let Some(document) = lead.seek(memory, from, needed, &mut blocks_left)? else { break };
            let mut score = lead.weight * lead.impact();
            for other in &mut *others {
                match other.seek(memory, document, 0, &mut blocks_left)? {
                    None => break 'documents,
                    Some(found) if found > document => {
                        from = found;
                        continue 'documents;
                    }
                    Some(_) => score += other.weight * other.impact(),
                }
            }
            if score > ranking.threshold() {
                let Some(first) = lead.first() else {
                    return Err(corrupt("first occurrences", self.region.base, u64::from(document), 0));
                };
                ranking.enter(Ranked { document, score, first });
            }
            let Some(next) = document.checked_add(1) else { break };
            from = next;
        }
        Ok(ranking)
    }

    /// Copies the text around the rarest word's first occurrence. Returns how much.
    pub(super) fn snippet<M: Memory>(
        &self,
        memory: &mut M,
        ranked: &Ranked,
        into: &mut [u8; SNIPPET_BYTES],
    ) -> Result<usize, AccessError> {
        let document = self.document(memory, ranked.document)?;
        self.text(memory, &document, ranked.first.saturating_sub(SNIPPET_BEFORE), into)
    }

    /// Answers a request: a hash of the documents, scores and snippets.
    pub(super) fn execute<M: Memory>(&self, memory: &mut M, query: &Query) -> Result<u64, AccessError> {
        let ranking = self.find::<M, { super::sample::QUERY_WORDS }>(memory, query.words())?;
        let mut hash = ranking.as_slice().len() as u64;
        for ranked in ranking.as_slice() {
            hash = mix(hash, u64::from(ranked.document) << 32 | u64::from(ranked.score));
        }
        let mut snippet = [0; SNIPPET_BYTES];
        for ranked in ranking.as_slice().iter().take(SNIPPETS) {
            let len = self.snippet(memory, ranked, &mut snippet)?;
            hash = mix(hash, hash_bytes(&snippet[..len]));
        }
        Ok(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranking_keeps_the_best_in_order() {
        let mut ranking = Ranking::default();
        let mut all = Vec::new();
        for document in 0..200u32 {
            let score = 1 + (mix(u64::from(document), 5) % 40) as u32;
            all.push((std::cmp::Reverse(score), document));
            if score > ranking.threshold() {
                ranking.enter(Ranked { document, score, first: 0 });
            }
            all.sort_unstable();
            let expected: Vec<_> = all.iter().take(TOP).map(|&(s, d)| (s.0, d)).collect();
            let got: Vec<_> = ranking.as_slice().iter().map(|r| (r.score, r.document)).collect();
            assert_eq!(got, expected);
        }
    }
}
