//! Building: reads a corpus once and writes the index into its region, front to back, each subpage
//! once.
//!
//! While it runs it needs, in DRAM, about 20 bytes for each (word, document) pair and 100 for each
//! distinct word: for source code and manuals less than half as much as the text. Files that
//! changed since the corpus was scanned are indexed as they are now, or left out when they are no
//! longer text. Invariant: the header is written last.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

use fulgurite_memory::{Memory, Region, SUBPAGE_BYTES};
use zerocopy::IntoBytes;

use super::corpus::{Corpus, read_text};
use super::layout::{
    BLOCK_HEADER_BYTES, BLOCK_POSTINGS, BUCKET_HEADER_BYTES, BUCKET_SLOT_BYTES, DOCUMENT_BYTES, DOCUMENTS_MAX,
    Document, ENTRY_BYTES_MAX, Entry, Header, ListHeader, MAGIC, Posting, SkipEntry, encode_block, home_bucket, impact,
    tag,
};
use super::sample::{PASSAGES_MAX, Passage, draw_passages};
use super::word::{DocumentWords, WordTable, hash_bytes};
use super::{Search, unusable};
use crate::WorkloadError;

/// How full dictionary buckets are on average: at 0.85 of about 130 entries few overflow.
const BUCKET_FILL: f64 = 0.85;
const PAGE: u64 = SUBPAGE_BYTES as u64;

/// Bytes of region that an index of the corpus needs, from above. Texts and tables are counted
/// exactly. Postings and dictionary are counted as if every number and word were as long as it can
/// be, with what blocks leave free at the end of subpages.
fn bytes_needed(corpus: &Corpus) -> u64 {
    let files = corpus.files();
    let leb_bytes = |largest: u64| u64::from(largest.max(1).ilog2() / 7 + 1);
    let documents = files.len() as u64 * DOCUMENT_BYTES;
    let texts: u64 = files.iter().map(|f| u64::from(f.bytes) + f.path.as_os_str().len() as u64).sum();
    let pairs: u64 = files.iter().map(|f| u64::from(f.distinct_words)).sum();
    // The sketch is within a few percent. There cannot be more words than pairs.
    let words = (corpus.distinct_words() + corpus.distinct_words() / 16 + 64).min(pairs);
    let firsts: u64 = files.iter().map(|f| u64::from(f.distinct_words) * leb_bytes(f.bytes.into())).sum();
    let blocks = words.min(pairs / 2) + pairs / BLOCK_POSTINGS as u64;
    let postings = firsts + pairs * (1 + leb_bytes(files.len() as u64)) + blocks * BLOCK_HEADER_BYTES as u64;
    // A tenth: full blocks are about 600 bytes, and half of one stays free in each subpage. Skip
    // entries are far fewer.
    let postings = postings + postings / 10;
    let dictionary = ((BUCKET_SLOT_BYTES + ENTRY_BYTES_MAX) as f64 * words as f64 / BUCKET_FILL) as u64;
    let passages = (PASSAGES_MAX * size_of::<Passage>()) as u64;
    [PAGE, documents, texts, postings, dictionary, passages].iter().map(|b| b.next_multiple_of(PAGE) + PAGE).sum()
}

/// Occurrences in one document are counted no further: BM25 grows by less than a 255th after that.
pub(super) const COUNT_MAX: u32 = (1 << 14) - 1;

/// A word in a document, as counted: document 27 bits, count 14, first 23.
#[derive(Clone, Copy, Default)]
struct Pair(u64);

impl Pair {
    fn new(document: usize, count: u32, first: u32) -> Pair {
        Pair((document as u64) << 37 | u64::from(count.min(COUNT_MAX)) << 23 | u64::from(first))
    }
    fn posting(self, documents: &[Document], average_words: u64) -> Posting {
        let (document, count) = ((self.0 >> 37) as u32, (self.0 >> 23) as u32 & COUNT_MAX);
        Posting {
            document,
            impact: impact(count, documents[document as usize].words, average_words),
            first: self.0 as u32 & 0x7F_FFFF,
        }
    }
}

/// What reading the corpus leaves in DRAM.
#[derive(Default)]
struct Gathered {
    documents: Vec<Document>,
    text_bytes: u64,
    words: WordTable,
    /// By word: how many documents have it.
    df: Vec<u32>,
    /// All pairs, in the order of documents: the word's number, and the rest.
    pair_words: Vec<u32>,
    pairs: Vec<Pair>,
}

/// Builds the index of `corpus`. See [`Search::build_from`].
pub(super) fn build<M: Memory>(
    memory: &mut M,
    region: Region,
    corpus: &Corpus,
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<(), WorkloadError> {
    let needed = bytes_needed(corpus);
    if corpus.files().len() > DOCUMENTS_MAX {
        return Err(unusable(format!("more than {DOCUMENTS_MAX} files; index a smaller directory")));
    }
    // An index that was here stops being one before its parts go.
    memory.write_bytes(region.base, &[0; size_of::<Header>()])?;
    let documents_at = PAGE;
    let texts_at = (documents_at + corpus.files().len() as u64 * DOCUMENT_BYTES).next_multiple_of(PAGE);

    let mut texts = Writer::new(memory, region, texts_at, needed);
    let gathered = gather(&mut texts, corpus, &mut |share| progress(share * 0.7))?;
    let postings_at = texts.finish()?;
    if gathered.documents.is_empty() {
        return Err(unusable(
            "no file of the corpus is text any more, or the region holds none; scan again".to_owned(),
        ));
    }
    let average_words = {
        let total: u64 = gathered.documents.iter().map(|d| u64::from(d.words)).sum();
        let count = gathered.documents.len() as u64;
        ((total + count / 2) / count).max(1)
    };
    let mut documents = Writer::new(memory, region, documents_at, needed);
    gathered.documents.iter().try_for_each(|d| documents.write(d.as_bytes()))?;
    documents.finish()?;

    let Gathered { documents, text_bytes, words, df, pair_words, pairs } = gathered;
    let (starts, pairs) = group_by_word(&df, pair_words, pairs);
    progress(0.75);
    let mut postings = Writer::new(memory, region, postings_at, needed);
    let mut lists = Vec::with_capacity(df.len());
    let mut list = Vec::new();
    for range in starts.windows(2) {
        list.clear();
        list.extend(pairs[range[0]..range[1]].iter().map(|p| p.posting(&documents, average_words)));
        lists.push(write_list(&mut postings, &list)?);
        if lists.len().is_multiple_of(65_536) {
            progress(0.75 + 0.15 * range[1] as f64 / pairs.len() as f64);
        }
    }
    let dictionary_at = postings.finish()?;
    let mut dictionary = Writer::new(memory, region, dictionary_at, needed);
    let (home_buckets, buckets) = write_dictionary(&mut dictionary, &words, &df, &lists)?;
    let passages_at = dictionary.finish()?;
    progress(0.95);

    let passages = draw_passages(memory, region, &documents, &words, &df, seed)?;
    let mut writer = Writer::new(memory, region, passages_at, needed);
    passages.iter().try_for_each(|p| writer.write(p.as_bytes()))?;
    let used_bytes = writer.finish()?;

    let mut header = Header {
        magic: MAGIC,
        checksum: 0,
        documents: documents.len() as u64,
        documents_at,
        texts_at,
        postings_at,
        dictionary_at,
        home_buckets,
        buckets,
        passages_at,
        passages: passages.len() as u64,
        used_bytes,
        words: df.len() as u64,
        postings: pairs.len() as u64,
        text_bytes,
        average_words,
    };
    header.checksum = header.checksum();
    memory.write_bytes(region.base, header.as_bytes())?;
    progress(1.0);
    Ok(())
}

/// Reads the files, writes paths and texts, and counts words.
fn gather<M: Memory>(
    texts: &mut Writer<'_, M>,
    corpus: &Corpus,
    progress: &mut dyn FnMut(f64),
) -> Result<Gathered, WorkloadError> {
    let mut all = Gathered::default();
    let (mut text, mut counted) = (String::new(), DocumentWords::default());
    let mut contents = HashSet::new();
    let mut seen_bytes = 0u64;
    for (i, file) in corpus.files().iter().enumerate() {
        seen_bytes += u64::from(file.bytes);
        if i.is_multiple_of(64) {
            progress(seen_bytes as f64 / corpus.text_bytes().max(1) as f64);
        }
        // A file that has vanished or is no longer text is not part of the corpus any more.
        if !matches!(read_text(&file.path, &mut text), Ok(true)) {
            continue;
        }
        let hash = hash_bytes(text.as_bytes());
        counted.count(&text);
        if counted.total() == 0 || !contents.insert((hash, text.len())) {
            continue;
        }
        let number = all.documents.len();
        for (word, found) in counted.iter() {
            let (id, new) = all.words.insert(word);
            if new {
                all.df.push(0);
            }
            all.df[id as usize] += 1;
            all.pair_words.push(id);
            all.pairs.push(Pair::new(number, found.count, found.first));
        }
        let path = file.path.as_os_str().as_bytes();
        all.documents.push(Document {
            place: texts.place(),
            hash,
            text_bytes: text.len() as u32,
            words: counted.total(),
            path_bytes: path.len() as u32,
            reserved: 0,
        });
        all.text_bytes += text.len() as u64;
        texts.write(path)?;
        texts.write(text.as_bytes())?;
    }
    Ok(all)
}

/// Pairs by word, each word's in the order of documents (a counting sort), and where each word's
/// start.
fn group_by_word(df: &[u32], pair_words: Vec<u32>, pairs: Vec<Pair>) -> (Vec<usize>, Vec<Pair>) {
    let mut starts = Vec::with_capacity(df.len() + 1);
    let mut total = 0usize;
    for &count in df {
        starts.push(total);
        total += count as usize;
    }
    assert_eq!(total, pairs.len(), "every pair counts once");
    let mut next = starts.clone();
    starts.push(total);
    let mut grouped = vec![Pair::default(); total];
    for (&word, &pair) in pair_words.iter().zip(&pairs) {
        grouped[next[word as usize]] = pair;
        next[word as usize] += 1;
    }
    (starts, grouped)
}

/// Writes a word's postings and returns what its entry says of them.
fn write_list<M: Memory>(writer: &mut Writer<'_, M>, postings: &[Posting]) -> Result<u64, WorkloadError> {
    if let [one] = postings {
        return Ok(one.to_inline());
    }
    let mut block = Vec::new();
    if postings.len() <= BLOCK_POSTINGS {
        encode_block(postings, &mut block);
        return writer.write_whole(&block);
    }
    let max_impact = |of: &[Posting]| of.iter().map(|p| u32::from(p.impact)).max().unwrap_or(0);
    let mut skips = Vec::new();
    for part in postings.chunks(BLOCK_POSTINGS) {
        block.clear();
        encode_block(part, &mut block);
        skips.push(SkipEntry {
            last_document: part[part.len() - 1].document,
            max_impact: max_impact(part),
            place: writer.write_whole(&block)?,
        });
    }
    writer.align(size_of::<SkipEntry>() as u64)?;
    let place = writer.place();
    let header = ListHeader { blocks: skips.len() as u32, max_impact: max_impact(postings), reserved: 0 };
    writer.write(header.as_bytes())?;
    skips.iter().try_for_each(|skip| writer.write(skip.as_bytes()))?;
    Ok(place)
}

/// Writes the dictionary. Returns how many buckets words belong in, and how many there are.
fn write_dictionary<M: Memory>(
    writer: &mut Writer<'_, M>,
    words: &WordTable,
    df: &[u32],
    lists: &[u64],
) -> Result<(u64, u64), WorkloadError> {
    let size = |number: u32| BUCKET_SLOT_BYTES + Entry::bytes(&words.words()[number as usize]);
    let total: usize = (0..df.len() as u32).map(size).sum();
    let room = SUBPAGE_BYTES - BUCKET_HEADER_BYTES;
    let home_buckets = ((total as f64 / (room as f64 * BUCKET_FILL)).ceil() as u64).max(1);
    let hash = |number: u32| words.words()[number as usize].hash();
    // Stable by home, so that the same corpus gives the same bytes.
    let mut order: Vec<(u32, u32)> =
        (0..df.len() as u32).map(|n| (home_bucket(hash(n), home_buckets) as u32, n)).collect();
    order.sort_unstable();
    let mut waiting = std::collections::VecDeque::new();
    let mut next = order.into_iter().peekable();
    let mut buckets = 0;
    while buckets < home_buckets || !waiting.is_empty() {
        while let Some((_, number)) = next.next_if(|&(home, _)| u64::from(home) == buckets) {
            waiting.push_back(number);
        }
        let mut taken = Vec::new();
        let mut used = 0;
        while let Some(&number) = waiting.front()
            && used + size(number) <= room
        {
            used += size(number);
            taken.push(number);
            waiting.pop_front();
        }
        let mut bucket = [0u8; SUBPAGE_BYTES];
        bucket[..2].copy_from_slice(&(taken.len() as u16).to_le_bytes());
        bucket[2..4].copy_from_slice(&u16::from(!waiting.is_empty()).to_le_bytes());
        let mut at = BUCKET_HEADER_BYTES + taken.len() * BUCKET_SLOT_BYTES;
        for (i, &number) in taken.iter().enumerate() {
            let slot = &mut bucket[BUCKET_HEADER_BYTES + i * BUCKET_SLOT_BYTES..];
            slot[..2].copy_from_slice(&tag(hash(number)).to_le_bytes());
            slot[2..4].copy_from_slice(&(at as u16).to_le_bytes());
            let word = words.words()[number as usize];
            Entry { df: df[number as usize], list: lists[number as usize], word }.encode(&mut bucket[at..]);
            at += Entry::bytes(&word);
        }
        writer.write(&bucket)?;
        buckets += 1;
    }
    Ok((home_buckets, buckets))
}

/// Writes a region front to back, a subpage at a time.
struct Writer<'m, M> {
    memory: &'m mut M,
    region: Region,
    /// Where the buffer will be written: the start of a subpage.
    at: u64,
    buffer: Vec<u8>,
    /// What the whole index needs, for the message.
    needed: u64,
}

impl<'m, M: Memory> Writer<'m, M> {
    /// Writes from `at`, the start of a subpage.
    fn new(memory: &'m mut M, region: Region, at: u64, needed: u64) -> Self {
        assert!(at.is_multiple_of(PAGE), "sections start with a subpage");
        Writer { memory, region, at, buffer: Vec::with_capacity(SUBPAGE_BYTES), needed }
    }
    /// Where the next byte will be written.
    fn place(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }
    fn flush(&mut self) -> Result<(), WorkloadError> {
        if self.at + PAGE > self.region.bytes {
            let (has, needs) = (self.region.bytes, self.needed.max(self.region.bytes + PAGE));
            return Err(unusable(format!("the index needs {needs} bytes and has {has}; give it more, or less text")));
        }
        self.memory.write_bytes(self.region.base.add(self.at), &self.buffer)?;
        self.at += PAGE;
        self.buffer.clear();
        Ok(())
    }
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), WorkloadError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(SUBPAGE_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == SUBPAGE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }
    /// Writes bytes that may not straddle. Returns where.
    fn write_whole(&mut self, bytes: &[u8]) -> Result<u64, WorkloadError> {
        if self.buffer.len() + bytes.len() > SUBPAGE_BYTES {
            self.align(PAGE)?;
        }
        let place = self.place();
        self.write(bytes)?;
        Ok(place)
    }
    fn align(&mut self, to: u64) -> Result<(), WorkloadError> {
        let gap = self.place().next_multiple_of(to) - self.place();
        let zeros = [0u8; SUBPAGE_BYTES];
        self.write(&zeros[..gap as usize])
    }
    /// Writes what is left. Returns the start of the next subpage.
    fn finish(mut self) -> Result<u64, WorkloadError> {
        if !self.buffer.is_empty() {
            self.align(PAGE)?;
        }
        Ok(self.at)
    }
}

impl<L> Search<L> {
    /// Bytes of region that an index of `corpus` needs, from above (about 1.2 times the text, where
    /// files are many and small).
    #[must_use]
    pub fn bytes_needed(corpus: &Corpus) -> u64 {
        bytes_needed(corpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::index::{Cursor, Index};
    use crate::search::word::{Word, mix};
    use fulgurite_memory::{Address, PlainMemory};
    use fulgurite_sys::Backed;
    use zerocopy::FromZeros;

    /// A list of this many postings with random gaps and impacts, written, and the index around it.
    fn written(memory: &mut PlainMemory, count: u32) -> (Index, Entry, Vec<Posting>) {
        let region = Region::new(Address::from_linear(3 << 12), 64 << 20);
        let mut document = 0;
        let mut posting = |i: u32| {
            let random = mix(u64::from(i), 11);
            document += 1 + (random % 200) as u32 * u32::from(i.is_multiple_of(300));
            Posting { document, impact: 1 + ((random >> 32) % u64::from(1 + i / 128 % 255)) as u8, first: i }
        };
        let postings: Vec<Posting> = (0..count).map(&mut posting).collect();
        let mut writer = Writer::new(memory, region, PAGE, 0);
        writer.write(&[7; 1000]).unwrap();
        let list = write_list(&mut writer, &postings).unwrap();
        writer.finish().unwrap();
        let header = Header { documents: u64::from(document) + 1, ..Header::new_zeroed() };
        (Index { region, header }, Entry { df: count, list, word: Word::default() }, postings)
    }

    #[test]
    fn cursors_find_every_posting_of_lists_of_any_length() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        // Skip entries of one, and of several, subpages: 256 entries are one.
        for count in [1u32, 2, 128, 129, 256, 5000, 128 * 255, 128 * 600 + 1] {
            let (index, entry, postings) = written(&mut memory, count);
            let mut cursor = Cursor::new();
            let last = postings[postings.len() - 1].document;
            for stride in [1, 2, 100, 1000, 30_000] {
                cursor.open(&mut memory, &index, &entry).unwrap();
                assert_eq!(cursor.max_impact, postings.iter().map(|p| u32::from(p.impact)).max().unwrap());
                for from in (0..last + 2).step_by(stride) {
                    let expected = postings.get(postings.partition_point(|p| p.document < from));
                    let found = cursor.seek(&mut memory, from, 0, &mut 1).unwrap();
                    assert_eq!(found, expected.map(|p| p.document), "{count} postings, from {from} by {stride}");
                    if let Some(posting) = expected {
                        assert_eq!((cursor.impact(), cursor.first()), (posting.impact.into(), Some(posting.first)));
                    }
                }
            }
        }
    }
    #[test]
    fn cursors_pass_over_blocks_without_the_impact_and_stop_at_the_bound() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let (index, entry, postings) = written(&mut memory, 128 * 600 + 1);
        let mut cursor = Cursor::new();
        for needed in [1, 100, 200, 250, 256] {
            cursor.open(&mut memory, &index, &entry).unwrap();
            let (mut from, mut blocks_left, mut seen) = (0, u32::MAX, Vec::new());
            while let Some(document) = cursor.seek(&mut memory, from, needed, &mut blocks_left).unwrap() {
                seen.push(document);
                from = document + 1;
            }
            let reaches = |block: &&[Posting]| block.iter().any(|p| u32::from(p.impact) >= needed);
            let blocks: Vec<_> = postings.chunks(BLOCK_POSTINGS).filter(reaches).collect();
            let expected: Vec<u32> = blocks.concat().iter().map(|p| p.document).collect();
            assert_eq!(seen, expected, "impact {needed}");
            assert_eq!(u32::MAX - blocks_left, blocks.len() as u32);
        }
        cursor.open(&mut memory, &index, &entry).unwrap();
        let mut blocks_left = 1;
        assert_eq!(cursor.seek(&mut memory, postings[0].document, 0, &mut blocks_left), Ok(Some(postings[0].document)));
        assert_eq!(cursor.seek(&mut memory, postings[200].document, 0, &mut blocks_left), Ok(None));
    }
}
