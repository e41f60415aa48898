//! A checkpoint: the histories of all pages, piece by piece, while the state goes on changing.
//!
//! A page of a checkpoint holds, behind its header:
//!
//! ```text
//! offset  bytes
//!      0      8  stamp: the piece has all records before this point of the journal
//!      8      4  first page that it is about
//!     12      4  the page behind the last one
//!     16         histories of those of them that are not empty
//! ```

use fulgurite_format::{
    Anchor, History, Malformed, PAYLOAD_BYTES, PageBuffer, PageEntry, Reader, Status, StreamPosition,
};

use crate::geometry::SUBPAGES_PER_PAGE;
use crate::state::{Seen, State};
use crate::stream::Stream;

const FIXED_BYTES: usize = 16;
/// Pages whose tables begin to be loaded ahead of their turn: nobody has looked at most of them since the last checkpoint, and each has
/// lines of its own in the map.
const AHEAD: u32 = 8;

/// Versions of a page, newest first, each with the checksums of what it holds.
type Versions = Vec<(PageEntry, Vec<u32>)>;

/// Writes a checkpoint.
#[derive(Debug)]
pub struct CheckpointWriter {
    pub stream: Stream,
    /// Extents that it lies in.
    pub extents: Vec<u32>,
    /// Pages in flight.
    pub in_flight: usize,
    /// A page could not be written: no more are made, and it never takes effect.
    pub failed: bool,
    anchor: Anchor,
    cursor: u32,
    /// Versions of the page at the cursor that did not fit, and the stamp under which they were taken.
    rest: Option<(u64, Versions)>,
    complete: bool,
    /// Kept for their memory.
    entries: Vec<PageEntry>,
}

impl CheckpointWriter {
    /// A checkpoint that begins where the stream is. The anchor says when that was.
    pub fn new(stream: Stream, anchor: Anchor) -> CheckpointWriter {
        let extents = vec![stream.position().extent];
        CheckpointWriter {
            stream,
            extents,
            in_flight: 0,
            failed: false,
            anchor,
            cursor: 0,
            rest: None,
            complete: false,
            entries: Vec::new(),
        }
    }
    /// Whether its last page was made.
    pub fn is_complete(&self) -> bool {
        self.complete
    }
    /// Whether all of it was written.
    pub fn is_written(&self) -> bool {
        self.complete && self.in_flight == 0 && !self.failed
    }
    /// All pages were made, and the journal is durable up to here: the checkpoint takes effect.
    pub fn finish(&mut self, journal_end: u64) {
        self.anchor.journal_end = journal_end;
        self.anchor.checkpoint_checksum = self.stream.position().before;
    }
    /// The journal behind it begins elsewhere.
    pub fn move_journal(&mut self, at: StreamPosition, next_extent: u32) {
        (self.anchor.journal, self.anchor.journal_next) = (at, next_extent);
    }
    /// The anchor that puts it into effect.
    pub fn anchor(&self) -> &Anchor {
        &self.anchor
    }
    /// Makes the next page.
    pub fn next_page(&mut self, state: &State, now: u64) -> (u32, PageBuffer) {
        let mut payload = Vec::with_capacity(PAYLOAD_BYTES);
        payload.resize(FIXED_BYTES, 0);
        let first = self.cursor;
        let mut stamp = now;
        if let Some((taken, versions)) = self.rest.take() {
            // The rest of a page is as old as its beginning, and alone in its piece.
            stamp = taken;
            self.put(&mut payload, versions, taken);
            if self.rest.is_none() {
                self.cursor += 1;
            }
        } else {
            let pages = state.geometry().pages();
            while self.cursor < pages && self.rest.is_none() {
                if self.cursor + AHEAD < pages {
                    state.prefetch_page(self.cursor + AHEAD);
                }
                if state.append_history(self.cursor, PAYLOAD_BYTES, &mut self.entries, &mut payload) {
                    self.cursor += 1;
                    continue;
                }
                let versions = state.history_of(self.cursor);
                if !versions.is_empty() {
                    let bytes = History::FIXED_BYTES
                        + versions.iter().map(|(_, sums)| History::version_bytes(sums.len())).sum::<usize>();
                    let whole = payload.len() + bytes <= PAYLOAD_BYTES;
                    if !whole && payload.len() > FIXED_BYTES {
                        break;
                    }
                    self.put(&mut payload, versions, now);
                }
                if self.rest.is_none() {
                    self.cursor += 1;
                }
            }
        }
        let end = self.cursor.max(first + u32::from(self.rest.is_some()));
        payload[..8].copy_from_slice(&stamp.to_le_bytes());
        payload[8..12].copy_from_slice(&first.to_le_bytes());
        payload[12..16].copy_from_slice(&end.to_le_bytes());
        self.complete = self.cursor == state.geometry().pages() && self.rest.is_none();
        self.anchor.checkpoint_pages += 1;
        self.stream.seal(&payload, state.epoch(), 0)
    }
    /// Appends as many versions of the page at the cursor as fit; the others become the rest.
    fn put(&mut self, payload: &mut Vec<u8>, mut versions: Versions, taken: u64) {
        let mut room = PAYLOAD_BYTES - payload.len() - History::FIXED_BYTES;
        let fits = versions
            .iter()
            .take_while(|(_, sums)| {
                let bytes = History::version_bytes(sums.len());
                let fits = bytes <= room;
                room -= if fits { bytes } else { 0 };
                fits
            })
            .count();
        let rest = versions.split_off(fits);
        History { page: self.cursor, versions }.encode(payload);
        if !rest.is_empty() {
            self.rest = Some((taken, rest));
        }
    }
}

/// Which pages have which records already, by their pieces of a checkpoint.
#[derive(Debug, Default)]
pub struct Stamps {
    /// (first page, stamp), ascending.
    pieces: Vec<(u32, u64)>,
    /// The record that is being replayed.
    pub at: u64,
}

impl Stamps {
    /// A planted bug.
    pub fn forget_all_but_the_last(&mut self) {
        let last = self.pieces.last().map_or(0, |(_, stamp)| *stamp);
        self.pieces.iter_mut().for_each(|(_, stamp)| *stamp = last);
    }
    fn stamp(&self, page: u32) -> u64 {
        let after = self.pieces.partition_point(|(first, _)| *first <= page);
        after.checked_sub(1).map_or(0, |at| self.pieces[at].1)
    }
}
impl Seen for Stamps {
    fn contains(&self, page: u32) -> bool {
        self.at < self.stamp(page)
    }
}

/// Reads a checkpoint, page by page.
#[derive(Debug, Default)]
pub struct CheckpointReader {
    /// What was read so far.
    pub stamps: Stamps,
    next: u32,
    open: Option<History>,
}

impl CheckpointReader {
    /// Takes the payload of the next page.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn read(&mut self, payload: &[u8], state: &mut State) -> Result<(), Malformed> {
        let mut r = Reader(payload);
        let (stamp, first, end) = (r.u64()?, r.u32()?, r.u32()?);
        // What a pool of another size had behind its end was empty.
        if first > self.next || end < first {
            return Err(Malformed);
        }
        if self.stamps.pieces.last().is_none_or(|(last, _)| *last < first) {
            self.stamps.pieces.push((first, stamp));
        }
        while !r.is_empty() {
            let history = History::decode(&mut r, SUBPAGES_PER_PAGE)?;
            if !(first..end.min(state.geometry().pages())).contains(&history.page) {
                return Err(Malformed);
            }
            match &mut self.open {
                Some(open) if open.page == history.page => open.versions.extend(history.versions),
                _ => {
                    self.close(state)?;
                    self.open = Some(history);
                }
            }
        }
        self.next = end;
        Ok(())
    }
    fn close(&mut self, state: &mut State) -> Result<(), Malformed> {
        if let Some(history) = self.open.take() {
            let pages = state.geometry().flash_pages();
            let inside = |(e, words): &(PageEntry, Vec<u32>)| {
                if e.status().has(Status::OBJECTS) {
                    return state.are_sane(*e, words);
                }
                crate::state::held(*e).all(|h| h.place < pages)
            };
            if !history.versions.iter().all(inside) {
                return Err(Malformed);
            }
            state.load(history.page, &history.versions).map_err(|_| Malformed)?;
        }
        Ok(())
    }
    /// Ends it. Returns which pages have which records. It may be about fewer pages than there are, or more: the pool's size has changed
    /// since. That no piece of it is missing is known by its last checksum.
    ///
    /// # Errors
    /// When what it says last makes no sense.
    pub fn end(mut self, state: &mut State) -> Result<Stamps, Malformed> {
        self.close(state)?;
        Ok(self.stamps)
    }
}
