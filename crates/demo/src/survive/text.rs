//! The text whose words are counted, in pieces, and the table that certain pieces must make.
//!
//! The counting program gets a copy, so that changing files spoil nothing. Only this process makes
//! these counts, in plain memory.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use fulgurite_workloads::{Corpus, WORD_BYTES_MAX, for_each_word};

use fulgurite_term::bad_input::bad_input;
use fulgurite_term::report::table;

/// A word, padded with zeros.
pub type Key = [u8; WORD_BYTES_MAX];

/// Bytes of a piece, about: what one job counts and enters as a whole.
const PIECE_BYTES: usize = 4 << 10;

/// Calls `each` with every word of a piece.
pub fn words_of(piece: &str, mut each: impl FnMut(Key)) {
    for_each_word(piece, |word, _| {
        let mut key = [0; WORD_BYTES_MAX];
        key[..word.as_bytes().len()].copy_from_slice(word.as_bytes());
        each(key);
    });
}

/// How often each word is in a piece.
pub fn counts_of(piece: &str) -> HashMap<Key, u64> {
    let mut counts = HashMap::new();
    words_of(piece, |key| *counts.entry(key).or_insert(0) += 1);
    counts
}

/// Where pieces end in a text: behind white space, so that no word is cut.
fn ends_of(text: &str, from: usize) -> Vec<u32> {
    let mut ends = Vec::new();
    let mut start = from;
    while start < text.len() {
        let rest = &text.as_bytes()[start..];
        let whole = rest.iter().skip(PIECE_BYTES - 1).position(|b| b.is_ascii_whitespace());
        let end = whole.map_or(text.len(), |at| start + PIECE_BYTES + at);
        ends.push(end as u32);
        start = end;
    }
    ends
}

/// The text, and the counts of its pieces.
pub struct Text {
    text: String,
    ends: Vec<u32>,
    words: Vec<Key>,
    /// Of each piece, the numbers of its words and how often each is there.
    counts: Vec<Vec<(u32, u32)>>,
}

/// What is in a pool: how often each word was counted, and how often each piece.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    pub words: HashMap<Key, u64>,
    pub times: Vec<u64>,
}

impl Contents {
    /// Pieces that were counted, each as often as it was.
    pub fn pieces(&self) -> u64 {
        self.times.iter().sum()
    }
    pub fn counted(&self) -> u64 {
        self.words.values().sum()
    }
}

impl Text {
    /// Up to `bytes` of the corpus and `distinct` different words, from files all over it.
    pub fn of(corpus: &Corpus, bytes: u64, distinct: usize) -> Result<Text> {
        let mut made = Text { text: String::new(), ends: Vec::new(), words: Vec::new(), counts: Vec::new() };
        let mut numbers: HashMap<Key, u32> = HashMap::new();
        let step = usize::try_from(corpus.text_bytes() / bytes.max(1)).unwrap_or(1).max(1);
        for file in corpus.files().iter().step_by(step) {
            // What went away or changed into something else since it was found is left out.
            let Ok(text) = std::fs::read_to_string(&file.path) else { continue };
            let room = (bytes as usize).saturating_sub(made.text.len());
            let from = made.text.len();
            made.text.push_str(&text[..text.floor_char_boundary(room)]);
            made.text.push('\n');
            made.ends.extend(ends_of(&made.text, from));
            while made.counts.len() < made.ends.len() {
                let counts = counts_of(made.piece(made.counts.len()));
                let numbered = counts.into_iter().map(|(key, count)| {
                    let number = *numbers.entry(key).or_insert_with(|| {
                        made.words.push(key);
                        made.words.len() as u32 - 1
                    });
                    (number, count as u32)
                });
                let numbered = numbered.collect();
                made.counts.push(numbered);
            }
            if made.text.len() as u64 >= bytes || made.words.len() >= distinct {
                break;
            }
        }
        if made.words.is_empty() {
            bad_input!("the text under {} can no longer be read; name another directory", corpus.dir().display());
        }
        Ok(made)
    }
    fn piece(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.text[start..self.ends[index] as usize]
    }
    pub fn bytes(&self) -> u64 {
        self.text.len() as u64
    }
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }
    pub fn distinct(&self) -> u64 {
        self.words.len() as u64
    }
    /// A copy in a file without a name, which is gone when nobody has it open any more.
    pub fn copy(&self, directory: &Path) -> Result<File> {
        let what = || format!("a copy of the text cannot be written to {}", directory.display());
        let mut file = tempfile::tempfile_in(directory).with_context(what)?;
        file.write_all(self.text.as_bytes()).with_context(what)?;
        Ok(file)
    }

    /// Whether the words were counted exactly as often as they are in the pieces that were.
    ///
    /// # Errors
    /// A sentence that names the first word that was not.
    pub fn agrees(&self, found: &Contents) -> Result<(), String> {
        let mut counts = vec![0u64; self.words.len()];
        for (pairs, times) in self.counts.iter().zip(&found.times) {
            for &(word, count) in pairs {
                counts[word as usize] += u64::from(count) * times;
            }
        }
        let mut there = 0;
        for (word, count) in self.words.iter().zip(&counts) {
            let has = found.words.get(word).copied();
            if has.unwrap_or(0) != *count {
                let found = has.map_or("not there".to_owned(), |has| {
                    format!("there {} times", table::thousands(has.cast_signed()))
                });
                let is = table::thousands(count.cast_signed());
                return Err(format!(
                    "the word \"{}\" is {found}, and {is} times in the pieces that were counted",
                    String::from_utf8_lossy(word).trim_end_matches('\0')
                ));
            }
            there += usize::from(has.is_some());
        }
        if there != found.words.len() {
            return Err(format!("{} words are there that the text does not have", found.words.len() - there));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> (tempfile::TempDir, Text) {
        let directory = tempfile::tempdir().unwrap();
        for file in 0..3 {
            let words: String = (0..2000).map(|i| format!("word{} ", i * (file + 7) % 997)).collect();
            std::fs::write(directory.path().join(format!("{file}.txt")), words).unwrap();
        }
        let corpus = Corpus::scan(directory.path(), 1 << 20, &mut |_, _| ()).unwrap();
        let text = Text::of(&corpus, 1 << 20, 1 << 20).unwrap();
        (directory, text)
    }

    #[test]
    fn pieces_are_the_text_and_cut_no_word() {
        let (_directory, text) = text();
        let pieces: Vec<&str> = (0..text.ends().len()).map(|i| text.piece(i)).collect();
        assert!(pieces.len() > 6 && pieces.iter().all(|p| !p.is_empty() && p.len() < PIECE_BYTES + 16));
        assert_eq!(pieces.concat(), text.text);
        let mut whole = HashMap::new();
        words_of(&text.text, |key| *whole.entry(key).or_insert(0) += 1);
        let all = Contents { words: whole, times: vec![1; pieces.len()] };
        assert_eq!(text.agrees(&all), Ok(()));
        assert_eq!((all.counted(), all.words.len() as u64), (6000, text.distinct()));
    }
    #[test]
    fn a_word_too_few_too_many_or_from_elsewhere_is_reported() {
        let (_directory, text) = text();
        let mut times = vec![0; text.ends().len()];
        times[1] = 2;
        let words: HashMap<Key, u64> =
            counts_of(text.piece(1)).into_iter().map(|(key, count)| (key, 2 * count)).collect();
        let right = Contents { words, times };
        assert_eq!(text.agrees(&right), Ok(()));
        let any = *right.words.keys().next().unwrap();
        for change in [-1i64, 1] {
            let mut wrong = right.clone();
            *wrong.words.get_mut(&any).unwrap() = right.words[&any].wrapping_add_signed(change);
            assert!(text.agrees(&wrong).unwrap_err().contains("times in the pieces"));
        }
        let mut wrong = right.clone();
        wrong.words.remove(&any);
        assert!(text.agrees(&wrong).unwrap_err().contains("not there"));
        wrong = right;
        wrong.words.insert([b'?'; WORD_BYTES_MAX], 1);
        assert!(text.agrees(&wrong).unwrap_err().contains("1 words are there that the text does not have"));
    }
}
