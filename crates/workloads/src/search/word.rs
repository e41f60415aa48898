//! Words: what the index calls a word, how words are hashed, and a table that numbers them.
//!
//! A word is a run of letters and digits, folded to lower case, 2 to [`WORD_BYTES_MAX`] bytes long
//! as UTF-8. Runs that start with a digit count only up to [`NUMBER_BYTES_MAX`] bytes, and longer
//! runs not at all: they are hashes, hex dumps and base64, which no query names and which would be
//! most of the dictionary. There is no stemming and no list of stop words, and text without spaces
//! between words (Chinese, Japanese) is found by whole runs only.
//!
//! Invariant: the hashes here are part of the index's layout. Changing them changes
//! [`super::layout::MAGIC`].

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of the longest word. Three 8-byte loads hash and compare one.
pub const WORD_BYTES_MAX: usize = 24;
/// Bytes of the longest word that starts with a digit: years and small numbers.
pub const NUMBER_BYTES_MAX: usize = 4;

/// A folded word, padded with zeros (no word contains one).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Word([u8; WORD_BYTES_MAX]);

impl Word {
    /// The word with these folded bytes. `None` when they are too many.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Word> {
        let mut word = [0; WORD_BYTES_MAX];
        word.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Word(word))
    }
    /// Without its padding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.0.iter().position(|&b| b == 0).unwrap_or(WORD_BYTES_MAX);
        &self.0[..len]
    }
    /// Whether it is all padding, which no word is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
    /// Its hash, which places it in the dictionary.
    #[inline]
    pub(super) fn hash(&self) -> u64 {
        let part = |i: usize| u64::from_le_bytes(self.0[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        mix(fold(part(0) ^ K[0], K[1]) ^ part(1), part(2))
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// Odd numbers with about as many ones as zeros: fractional digits of square roots of primes (as in
/// SHA-512).
const K: [u64; 4] = [0x6A09_E667_F3BC_C909, 0xBB67_AE85_84CA_A73B, 0x3C6E_F372_FE94_F82B, 0xA54F_F53A_5F1D_36F1];

/// The two halves of a 128-bit product, folded: every bit of `a` reaches every bit of the result.
#[inline(always)]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Mixes two numbers into one. Each goes through two products, because after one product inputs
/// that differ little still give similar outputs.
#[inline(always)]
pub(super) fn mix(a: u64, b: u64) -> u64 {
    fold(fold(a ^ K[0], K[1]) ^ fold(b ^ K[2], K[3]), K[1])
}

/// A hash of any bytes. Tells contents apart, and is not meant to withstand an adversary.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64 ^ K[3];
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        hash = fold(hash ^ u64::from_le_bytes(chunk.try_into().expect("eight bytes")), K[1]).wrapping_add(K[2]);
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    mix(hash, u64::from_le_bytes(last))
}

/// What each ASCII byte folds to. 0 for those that end a word.
const FOLD: [u8; 128] = {
    let mut table = [0; 128];
    let mut b = 0;
    while b < 128 {
        if (b as u8).is_ascii_alphanumeric() {
            table[b] = (b as u8).to_ascii_lowercase();
        }
        b += 1;
    }
    table
};

/// Calls `each` with every word of `text` and the byte at which it starts, in order.
pub fn for_each_word(text: &str, mut each: impl FnMut(&Word, usize)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let mut word = [0; WORD_BYTES_MAX];
        let mut len = 0;
        let mut push = |b: u8| {
            if len < WORD_BYTES_MAX {
                word[len] = b;
            }
            len += 1;
        };
        // How long the character is that ends the word.
        let mut separator = 0;
        while let Some(&b) = bytes.get(at) {
            if b < 0x80 {
                let folded = FOLD[usize::from(b)];
                if folded == 0 {
                    separator = 1;
                    break;
                }
                push(folded);
                at += 1;
            } else {
                let Some(c) = text[at..].chars().next() else { break };
                if !c.is_alphanumeric() {
                    separator = c.len_utf8();
                    break;
                }
                for lower in c.to_lowercase() {
                    lower.encode_utf8(&mut [0; 4]).bytes().for_each(&mut push);
                }
                at += c.len_utf8();
            }
        }
        let limit = if word[0].is_ascii_digit() { NUMBER_BYTES_MAX } else { WORD_BYTES_MAX };
        if (2..=limit).contains(&len) {
            each(&Word(word), start);
        }
        at += separator;
    }
}

/// Takes the hash that a word has.
#[derive(Default)]
pub(super) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a word hashes to one number");
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

impl Hash for Word {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(Word::hash(self));
    }
}

/// Numbers distinct words 0, 1, 2... in the order they come.
#[derive(Default)]
pub(super) struct WordTable {
    numbers: HashMap<Word, u32, BuildHasherDefault<WordHasher>>,
    words: Vec<Word>,
}

impl WordTable {
    pub(super) fn words(&self) -> &[Word] {
        &self.words
    }
    /// The word's number, if it has one.
    pub(super) fn find(&self, word: &Word) -> Option<u32> {
        self.numbers.get(word).copied()
    }
    /// The word's number, and whether it is new.
    #[inline]
    pub(super) fn insert(&mut self, word: &Word) -> (u32, bool) {
        let next = self.words.len() as u32;
        let number = *self.numbers.entry(*word).or_insert(next);
        if number == next {
            self.words.push(*word);
        }
        (number, number == next)
    }
    /// Forgets all words and keeps the memory, unless it is far more than they took.
    pub(super) fn clear(&mut self) {
        // Clearing takes time by capacity: the longest document would slow every shorter one.
        if self.numbers.capacity() / 16 > self.words.len() {
            self.numbers = HashMap::default();
        }
        self.numbers.clear();
        self.words.clear();
    }
}

/// The distinct words of one document, with how often and where first each occurs. Reused from
/// document to document.
#[derive(Default)]
pub(super) struct DocumentWords {
    table: WordTable,
    counts: Vec<Occurrence>,
    total: u32,
}

/// How often and where first a word occurs in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub count: u32,
    /// Byte of the text at which it first starts.
    pub first: u32,
}

impl DocumentWords {
    /// Forgets the last document and counts this one.
    pub(super) fn count(&mut self, text: &str) {
        self.table.clear();
        self.counts.clear();
        self.total = 0;
        for_each_word(text, |word, first| {
            self.total += 1;
            let (number, new) = self.table.insert(word);
            if new {
                self.counts.push(Occurrence { count: 1, first: first as u32 });
            } else {
                self.counts[number as usize].count += 1;
            }
        });
    }
    /// How many words the document has, repeats included.
    pub(super) fn total(&self) -> u32 {
        self.total
    }
    /// Each distinct word once, in the order they first occur.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&Word, Occurrence)> {
        self.table.words.iter().zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(String, usize)> {
        let mut all = Vec::new();
        for_each_word(text, |w, at| all.push((String::from_utf8(w.as_bytes().to_vec()).unwrap(), at)));
        all
    }

    #[test]
    fn words_are_folded_runs_of_letters_and_digits() {
        let found = words("The quick_brown FOX, x 2026 123456 — “Ärger” don't");
        let names: Vec<&str> = found.iter().map(|(w, _)| w.as_str()).collect();
        assert_eq!(names, ["the", "quick", "brown", "fox", "2026", "ärger", "don"]);
        assert_eq!(found[2].1, 10);
    }
    #[test]
    fn long_runs_are_no_words() {
        let limit = "a".repeat(WORD_BYTES_MAX);
        assert_eq!(words(&format!("{limit} {limit}a")).len(), 1);
        assert_eq!(words(&"x".repeat(100_000)), []);
        assert_eq!(words(""), []);
    }
    #[test]
    fn the_table_numbers_words_and_forgets_them() {
        let mut table = WordTable::default();
        let name = |i: u32| Word::from_bytes(format!("w{i}").as_bytes()).unwrap();
        for round in [5000u32, 40, 3, 3000] {
            for pass in 0..2 {
                for i in 0..round {
                    assert_eq!(table.insert(&name(i)), (i, pass == 0));
                }
            }
            assert_eq!(table.find(&name(round)), None);
            assert_eq!(table.find(&name(round - 1)), Some(round - 1));
            table.clear();
            assert_eq!(table.find(&name(0)), None);
        }
    }
    #[test]
    fn contents_have_different_hashes() {
        let texts = ["", "\0", "a", "a\0", "abcdefgh", "abcdefgh\0", "abcdefghabcdefgh"];
        let hashes: std::collections::HashSet<u64> = texts.iter().map(|t| hash_bytes(t.as_bytes())).collect();
        assert_eq!(hashes.len(), texts.len());
    }
}
