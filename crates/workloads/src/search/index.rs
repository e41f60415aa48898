//! The index as readers see it: words looked up, lists walked, documents and their texts read,
//! through any memory.
//!
//! Invariants: nothing here allocates or panics, whatever the region holds. What cannot be is
//! [`AccessError::Corrupt`]. A block of postings is one access, decoded into a buffer on the stack.

use fulgurite_memory::{AccessError, Address, Memory, Ptr, Region, SUBPAGE_BYTES};

use super::layout::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BLOCK_POSTINGS, BUCKET_HEADER_BYTES, BUCKET_SLOT_BYTES, BlockHeader,
    DOCUMENT_BYTES, Document, ENTRY_BYTES_MAX, Entry, Header, ListHeader, Posting, SKIP_BYTES, SkipEntry,
    encode_inline, tag, weight,
};
use super::word::Word;

/// Where an index is, and its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index {
    pub region: Region,
    pub header: Header,
}

#[cold]
pub(super) fn corrupt(what: &'static str, at: Address, expected: u64, got: u64) -> AccessError {
    AccessError::Corrupt { what, at, expected, got }
}

impl Index {
    /// The address of a place.
    #[inline]
    pub(super) fn at(&self, place: u64) -> Address {
        self.region.base.add(place)
    }

    /// The dictionary's entry of the word, whose hash is `hash`.
    pub(super) fn entry<M: Memory>(&self, memory: &mut M, word: &Word) -> Result<Option<Entry>, AccessError> {
        let hash = word.hash();
        for bucket in self.header.home_bucket(hash)..self.header.buckets {
            let at = self.at(self.header.dictionary_at + bucket * SUBPAGE_BYTES as u64);
            let view = memory.view(at, SUBPAGE_BYTES)?;
            let count = usize::from(view.load::<u16>(0));
            let slots_end = BUCKET_HEADER_BYTES + count * BUCKET_SLOT_BYTES;
            if slots_end > SUBPAGE_BYTES {
                return Err(corrupt("dictionary bucket", at, SUBPAGE_BYTES as u64, slots_end as u64));
            }
            for slot in (BUCKET_HEADER_BYTES..slots_end).step_by(BUCKET_SLOT_BYTES) {
                let slot: u32 = view.load(slot);
                if slot as u16 != tag(hash) {
                    continue;
                }
                let offset = (slot >> 16) as usize % SUBPAGE_BYTES;
                let mut bytes = [0; ENTRY_BYTES_MAX];
                let len = bytes.len().min(SUBPAGE_BYTES - offset);
                view.copy_to(offset, &mut bytes[..len]);
                match Entry::decode(&bytes[..len]) {
                    Some(entry) if entry.word == *word => return Ok(Some(entry)),
                    Some(_) => {}
                    None => return Err(corrupt("dictionary entry", at.add(offset as u64), 1, 0)),
                }
            }
            if view.load::<u16>(2) == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// A row of the document table.
    pub(super) fn document<M: Memory>(&self, memory: &mut M, number: u32) -> Result<Document, AccessError> {
        let at = self.at(self.header.documents_at + u64::from(number) * DOCUMENT_BYTES);
        if u64::from(number) >= self.header.documents {
            return Err(corrupt("document number", at, self.header.documents, u64::from(number)));
        }
        let document: Document = memory.load(Ptr::new(at))?;
        let bytes = u64::from(document.path_bytes) + u64::from(document.text_bytes);
        let room = self.header.postings_at.saturating_sub(document.place);
        if document.place < self.header.texts_at || bytes > room {
            return Err(corrupt("document row", at, room, bytes));
        }
        Ok(document)
    }

    /// Copies the text from byte `start` on, as far as it goes, to the front of `into`. Returns how
    /// much.
    pub(super) fn text<M: Memory>(
        &self,
        memory: &mut M,
        document: &Document,
        start: u32,
        into: &mut [u8],
    ) -> Result<usize, AccessError> {
        let Some(room) = document.text_bytes.checked_sub(start) else {
            return Err(corrupt("offset in a text", self.at(document.place), document.text_bytes.into(), start.into()));
        };
        let len = into.len().min(room as usize);
        let at = self.at(document.place + u64::from(document.path_bytes) + u64::from(start));
        memory.read_bytes(at, &mut into[..len])?;
        Ok(len)
    }
}

/// A place in a word's list.
pub(super) struct Cursor {
    /// How much the word says, in 1024ths.
    pub weight: u32,
    /// The most that any posting of the list has.
    pub max_impact: u32,
    /// The region's first byte, from which places count.
    base: Address,
    /// Skip entries, when there are several blocks.
    skips: Address,
    blocks: u32,
    /// The next block that may be wanted.
    next_block: u32,
    block: BlockHeader,
    /// Which posting of the block. The block's count when none is loaded.
    at: usize,
    documents: [u32; BLOCK_POSTINGS],
    raw: [u8; BLOCK_BYTES_MAX],
}

impl Cursor {
    pub(super) fn new() -> Cursor {
        Cursor {
            weight: 0,
            max_impact: 0,
            base: Address::NULL,
            skips: Address::NULL,
            blocks: 0,
            next_block: 0,
            block: BlockHeader { bytes: 0, impacts_at: 0, count: 0 },
            at: 0,
            documents: [0; BLOCK_POSTINGS],
            raw: [0; BLOCK_BYTES_MAX],
        }
    }

    /// Stands it before the first posting of the entry's list.
    pub(super) fn open<M: Memory>(&mut self, memory: &mut M, index: &Index, entry: &Entry) -> Result<(), AccessError> {
        self.weight = weight(entry.df, index.header.documents);
        (self.base, self.at) = (index.region.base, 0);
        let at = index.at(entry.list);
        if entry.df as usize > BLOCK_POSTINGS {
            let header: ListHeader = memory.load(Ptr::new(at))?;
            let blocks = entry.df.div_ceil(BLOCK_POSTINGS as u32);
            if header.blocks != blocks || !at.subpage_offset().is_multiple_of(SKIP_BYTES) {
                return Err(corrupt("postings list", at, blocks.into(), header.blocks.into()));
            }
            if header.max_impact > u8::MAX.into() {
                return Err(corrupt("highest impact of a postings list", at, u8::MAX.into(), header.max_impact.into()));
            }
            (self.blocks, self.next_block, self.max_impact) = (blocks, 0, header.max_impact);
            self.skips = at.add(SKIP_BYTES as u64);
            self.block.count = 0;
            return Ok(());
        }
        (self.blocks, self.next_block) = (1, 1);
        if entry.df == 1 {
            let posting = Posting::from_inline(entry.list);
            self.block = encode_inline(posting, &mut self.raw);
            self.documents[0] = posting.document;
        } else {
            self.load(memory, at)?;
        }
        self.max_impact = self.block.impacts(&self.raw).iter().copied().max().unwrap_or(0).into();
        if self.block.count != entry.df as usize {
            return Err(corrupt("postings count", at, entry.df.into(), self.block.count as u64));
        }
        Ok(())
    }

    /// Moves to the first posting whose document is `document` or later, in a block that has an
    /// impact of `min_impact` or more (blocks that do not are passed over, unread), and returns its
    /// document. `None` past the end. `blocks_left` counts the blocks that may still be read, with
    /// none left, the list ends here.
    pub(super) fn seek<M: Memory>(
        &mut self,
        memory: &mut M,
        document: u32,
        min_impact: u32,
        blocks_left: &mut u32,
    ) -> Result<Option<u32>, AccessError> {
        if self.block.count == 0 || self.documents[self.block.count - 1] < document {
            let Some((number, skip)) = self.find_block(memory, document, min_impact)? else { return Ok(None) };
            if *blocks_left == 0 {
                return Ok(None);
            }
            *blocks_left -= 1;
            let block_at = self.base.add(skip.place);
            self.load(memory, block_at)?;
            let last = self.documents[self.block.count - 1];
            if last != skip.last_document {
                return Err(corrupt("last document of a block", block_at, skip.last_document.into(), last.into()));
            }
            self.next_block = number + 1;
            self.at = 0;
        }
        let rest = &self.documents[self.at..self.block.count];
        if rest[0] < document {
            self.at += rest.partition_point(|&d| d < document);
        }
        Ok(Some(self.documents[self.at]))
    }

    /// The impact of the posting it stands at.
    pub(super) fn impact(&self) -> u32 {
        self.block.impacts(&self.raw)[self.at].into()
    }
    /// Where the word first occurs in the document of the posting it stands at.
    pub(super) fn first(&self) -> Option<u32> {
        self.block.first(&self.raw, self.at)
    }

    /// Brings a block in and decodes its documents: one access.
    fn load<M: Memory>(&mut self, memory: &mut M, at: Address) -> Result<(), AccessError> {
        let room = SUBPAGE_BYTES - at.subpage_offset();
        let view = memory.view(at, room)?;
        let mut head = [0; BLOCK_HEADER_BYTES];
        // A half-decoded block must not be taken for one by a caller that continues after an error.
        self.block.count = 0;
        let fits = |block: &BlockHeader| block.bytes <= room;
        if room < head.len() {
            return Err(corrupt("postings block", at, head.len() as u64, room as u64));
        }
        view.copy_to(0, &mut head);
        let Some(block) = BlockHeader::decode(head).filter(fits) else {
            return Err(corrupt(
                "postings block",
                at,
                BLOCK_BYTES_MAX as u64,
                u16::from_le_bytes([head[0], head[1]]).into(),
            ));
        };
        view.copy_to(0, &mut self.raw[..block.bytes]);
        if block.documents(&self.raw, &mut self.documents).is_none() {
            return Err(corrupt("documents of a postings block", at, block.count as u64, 0));
        }
        self.block = block;
        Ok(())
    }

    /// The first block from here on that reaches `document` and has `min_impact`, and its number.
    fn find_block<M: Memory>(
        &self,
        memory: &mut M,
        document: u32,
        min_impact: u32,
    ) -> Result<Option<(u32, SkipEntry)>, AccessError> {
        let mut number = self.next_block;
        while number < self.blocks {
            // As many entries as one subpage holds.
            let at = self.skips.add(u64::from(number) * SKIP_BYTES as u64);
            let here = ((SUBPAGE_BYTES - at.subpage_offset()) / SKIP_BYTES).min((self.blocks - number) as usize);
            let view = memory.view(at, here * SKIP_BYTES)?;
            let last = |i: usize| view.load::<u32>(i * SKIP_BYTES);
            if last(here - 1) >= document {
                // Those that end before the document are `low` or fewer.
                let (mut low, mut high) = (0, here - 1);
                while low < high {
                    let middle = (low + high) / 2;
                    if last(middle) < document { low = middle + 1 } else { high = middle }
                }
                for i in low..here {
                    let skip: SkipEntry = view.load(i * SKIP_BYTES);
                    if skip.max_impact >= min_impact {
                        return Ok(Some((number + i as u32, skip)));
                    }
                }
            }
            number += here as u32;
        }
        Ok(None)
    }
}
