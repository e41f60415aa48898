//! Checkpoints of the index: the words of a shard, as they were at some position of the log.
//!
//! ```text
//! | magic | piece of shard 0 | piece of shard 1 | ..     piece: address 8, words 8, position 8 + 8
//!                |
//!                +--> words of 8 bytes, in the order of their tags
//! ```
//!
//! An opening reads the words, and applies the entries of the log that came after each. A piece is
//! written anew when the log has grown by ten times its length since pieces were written last. So
//! checkpoints cost a tenth of what is appended, however large the index is.

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_records::{SHARD_BITS, TableId, Tag, Word};
use fulgurite_runtime::{AccessError, Records};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::log::AHEAD;
use crate::{ByKind, Heap, Memory, Ptr};

const MAGIC: u64 = u64::from_le_bytes(*b"flgckpt1");
const PIECES: usize = 1 << SHARD_BITS;
const AT: u64 = size_of::<u64>() as u64;
const _: () = assert!(AT as usize + PIECES * size_of::<Piece>() <= SUBPAGE_BYTES);
/// What a piece of a few words counts.
const PIECE_BYTES_MIN: usize = 64;
/// Bytes of the log for each byte of a checkpoint.
const LOG_SHARE: u64 = 10;

/// The checkpoint of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Piece {
    words_at: Address,
    words: u64,
    /// The number of a segment, and the first of its entries that the piece does not have.
    pub segment: u64,
    pub entry: u64,
}

impl Piece {
    fn bytes(&self) -> usize {
        self.words as usize * size_of::<u64>()
    }
    pub fn position(&self) -> (u64, u64) {
        (self.segment, self.entry)
    }
}

/// The pieces of all shards.
#[derive(Debug)]
pub struct Checkpoint {
    at: Address,
    pieces: Vec<Piece>,
    /// What the log has appended for pieces that were not written yet, in bytes of pieces.
    credit: u64,
    /// What the log had appended when that was counted last.
    appended: u64,
}

impl Checkpoint {
    /// Makes an empty one. Returns where it is.
    pub fn create<M: Memory>(memory: &mut M, heap: &Heap) -> Result<(Checkpoint, Address), AccessError> {
        let at = heap.allocate(memory, SUBPAGE_BYTES)?;
        let none = Piece { words_at: Address::NULL, words: 0, segment: 0, entry: 0 };
        memory.write_bytes(at, &MAGIC.to_le_bytes())?;
        memory.write_bytes(at.add(AT), [none; PIECES].as_bytes())?;
        Ok((Checkpoint { at, pieces: vec![none; PIECES], credit: 0, appended: 0 }, at))
    }
    pub fn open<M: Memory>(memory: &mut M, at: Address) -> Result<Checkpoint, AccessError> {
        let mut bytes = vec![0; AT as usize + PIECES * size_of::<Piece>()];
        memory.read_bytes(at, &mut bytes)?;
        let magic = u64::from_le_bytes(*bytes.first_chunk().expect("it has eight bytes"));
        if magic != MAGIC {
            return Err(AccessError::Corrupt { what: "checkpoint of a map", at, expected: MAGIC, got: magic });
        }
        let pieces = bytes[AT as usize..].chunks_exact(size_of::<Piece>());
        let pieces = pieces.map(|bytes| Piece::read_from_bytes(bytes).expect("it is as long as a piece")).collect();
        Ok(Checkpoint { at, pieces, credit: 0, appended: 0 })
    }
    /// What the log has appended before is not for this one.
    pub fn after(self, appended: u64) -> Checkpoint {
        Checkpoint { appended, ..self }
    }
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
    /// The segments before this one are in all pieces.
    pub fn oldest_segment(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.segment).min().unwrap_or(0)
    }
    /// The words of a shard.
    pub fn words<M: Memory>(&self, memory: &mut M, shard: usize) -> Result<Vec<Word>, AccessError> {
        let piece = &self.pieces[shard];
        let mut words = Vec::with_capacity(piece.words as usize);
        let mut bytes = [0; SUBPAGE_BYTES];
        let (mut done, mut pages) = (0, 0_u64);
        while done < piece.bytes() {
            let at = piece.words_at.add(done as u64);
            let here = (piece.bytes() - done).min(SUBPAGE_BYTES - at.subpage_offset());
            if pages.is_multiple_of(AHEAD / 2) {
                let ahead = (1..=AHEAD).map(|page| page * SUBPAGE_BYTES as u64);
                let inside = ahead.take_while(|offset| done as u64 + offset < piece.bytes() as u64);
                inside.for_each(|offset| memory.prefetch(at.add(offset)));
            }
            pages += 1;
            if at.subpage_offset() == 0 {
                memory.read_around(at, &mut bytes)?;
            } else {
                memory.read_bytes(at, &mut bytes[..here])?;
            }
            for bits in bytes[..here].as_chunks().0 {
                let bits = u64::from_le_bytes(*bits);
                let damaged = AccessError::Corrupt { what: "word of a map's index", at, expected: 1, got: bits };
                words.push(Word::from_cold_bits(bits).ok_or(damaged)?);
            }
            done += here;
        }
        Ok(words)
    }

    /// Writes as many pieces as the log has grown for, and all where it `is_behind`. Nothing is
    /// appended meanwhile, and the position is of the next entry.
    pub fn go_on<M: Memory>(
        &mut self,
        memory: &mut M,
        (heap, records, table): (&Heap, &Records, TableId),
        (appended, position, is_behind): (u64, (u64, u32), bool),
    ) -> Result<(), AccessError> {
        self.credit += (appended - self.appended) / LOG_SHARE;
        self.appended = appended;
        for _ in 0..PIECES {
            let oldest = (0..PIECES).min_by_key(|shard| self.pieces[*shard].position()).expect("there are some");
            let words = records.shard(oldest).keys(table).unwrap_or(0);
            let bytes = (words * size_of::<u64>()).max(PIECE_BYTES_MIN) as u64;
            if self.credit < bytes && !is_behind || self.pieces[oldest].position() == (position.0, position.1.into()) {
                break;
            }
            self.write(memory, heap, (records, table), oldest, position)?;
            self.credit = self.credit.saturating_sub(bytes);
        }
        Ok(())
    }
    fn write<M: Memory>(
        &mut self,
        memory: &mut M,
        heap: &Heap,
        (records, table): (&Records, TableId),
        shard: usize,
        (segment, entry): (u64, u32),
    ) -> Result<(), AccessError> {
        let mut words = Vec::new();
        {
            let shard = records.shard(shard);
            let mut from = Some(Tag::FIRST);
            while let Some(tag) = from {
                from = shard.words(table, tag, &mut words);
            }
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.bits().to_le_bytes()).collect();
        let mut piece = Piece { words_at: Address::NULL, words: words.len() as u64, segment, entry: entry.into() };
        if !bytes.is_empty() {
            piece.words_at = heap.allocate(memory, bytes.len())?;
            if bytes.len() >= SUBPAGE_BYTES {
                memory.will_overwrite_all(piece.words_at, (bytes.len() / SUBPAGE_BYTES) as u32);
            }
            memory.write_bytes(piece.words_at, &bytes)?;
        }
        memory.store(Ptr::new(self.at.add(AT + (shard * size_of::<Piece>()) as u64)), piece)?;
        let old = std::mem::replace(&mut self.pieces[shard], piece);
        if !old.words_at.is_null() {
            heap.free(memory, old.words_at, old.bytes())?;
        }
        Ok(())
    }
}
