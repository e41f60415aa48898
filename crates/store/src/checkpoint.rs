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

use std::collections::BTreeMap;

use fulgurite_format::{
    Anchor, History, Malformed, PAYLOAD_BYTES, PageBuffer, PageEntry, Reader, Status, StreamPosition,
};

use crate::geometry::SUBPAGES_PER_PAGE;
use crate::state::{Leaf, Piece, Seen, State, leaf_of};
use crate::stream::Stream;

const FIXED_BYTES: usize = 16;
/// Pages whose tables are prefetched. Most were untouched since the last checkpoint, and each has
/// lines of its own in the map.
const AHEAD: u32 = 8;
/// Pieces that are read ahead where leaves are wanted in the order of their pages.
pub const PIECES_AHEAD: usize = 8;

/// Versions of a page, newest first, each with the checksums of what it holds.
type Versions = Vec<(PageEntry, Vec<u32>)>;

/// Writes a checkpoint.
#[derive(Debug)]
pub struct CheckpointWriter {
    pub stream: Stream,
    /// Extents that hold it.
    pub extents: Vec<u32>,
    /// Pages in flight.
    pub in_flight: usize,
    /// A page could not be written: no more are made, and it never takes effect.
    pub failed: bool,
    anchor: Anchor,
    cursor: u32,
    /// Versions of the page at the cursor that did not fit, and the stamp under which they were
    /// taken.
    rest: Option<(u64, Versions)>,
    complete: bool,
    /// Where its pieces are.
    pub pieces: Vec<Piece>,
    /// What was read of the checkpoint in effect, for pages whose leaves are on flash alone.
    pub sources: Sources,
    /// Pages of the piece that is made, of which it has all.
    whole: Vec<u32>,
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
            pieces: Vec::new(),
            sources: Sources::default(),
            whole: Vec::new(),
            entries: Vec::new(),
        }
    }
    /// Whether its last page was made.
    pub fn is_complete(&self) -> bool {
        self.complete
    }
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
    ///
    /// # Errors
    /// A page whose leaf has to be read first, into [`CheckpointWriter::sources`].
    pub fn next_page(&mut self, state: &mut State, now: u64) -> Result<(u32, PageBuffer), u32> {
        let mut payload = Vec::with_capacity(PAYLOAD_BYTES);
        payload.resize(FIXED_BYTES, 0);
        let first = self.cursor;
        let mut stamp = now;
        self.whole.clear();
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
                let before = payload.len();
                let versions = if state.is_out(self.cursor) {
                    let Some(leaf) = self.sources.leaf(state.piece_of(self.cursor), self.cursor) else {
                        return Err(std::mem::replace(&mut self.cursor, first));
                    };
                    state.history_out(self.cursor, leaf)
                } else if state.append_history(self.cursor, PAYLOAD_BYTES, &mut self.entries, &mut payload) {
                    if state.is_paged() && payload.len() == before {
                        self.whole.push(self.cursor);
                    }
                    self.cursor += 1;
                    continue;
                } else {
                    state.history_of(self.cursor)
                };
                if !versions.is_empty() {
                    let bytes = History::FIXED_BYTES
                        + versions.iter().map(|(_, sums)| History::version_bytes(sums.len())).sum::<usize>();
                    let whole = payload.len() + bytes <= PAYLOAD_BYTES;
                    if !whole && payload.len() > FIXED_BYTES {
                        break;
                    }
                    if state.is_paged() && leaf_of(&versions).is_some() {
                        self.whole.push(self.cursor);
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
        let (place, page) = self.stream.seal(&payload, state.next_token(), 0);
        if state.is_paged() {
            self.pieces.push(Piece { first, place, checksum: self.stream.position().before });
            self.whole.iter().for_each(|page| state.note_in_piece(*page));
            self.sources.forget_before(self.cursor);
        }
        Ok((place, page))
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

/// Pieces of the checkpoint in effect that are being read, or were, one behind the other.
#[derive(Debug, Default)]
pub struct Sources {
    /// By their first page. None: it is being read.
    pieces: BTreeMap<u32, Option<Vec<(u32, Leaf)>>>,
}

impl Sources {
    /// The leaf of a page, from its piece.
    pub fn leaf(&self, piece: Option<Piece>, page: u32) -> Option<&Leaf> {
        let leaves = self.pieces.get(&piece?.first)?.as_ref()?;
        leaves.binary_search_by_key(&page, |(page, _)| *page).ok().map(|at| &leaves[at].1)
    }
    /// Whether a piece is here and lacks this page, whose leaf it should have.
    pub fn lacks(&self, piece: Piece, page: u32) -> bool {
        self.pieces.get(&piece.first).is_some_and(Option::is_some) && self.leaf(Some(piece), page).is_none()
    }
    /// Whether this piece is asked for the first time.
    pub fn ask(&mut self, piece: Piece) -> bool {
        let asked = self.pieces.contains_key(&piece.first);
        if !asked {
            self.pieces.insert(piece.first, None);
        }
        !asked
    }
    /// It was read, and has these leaves; none when it could not be.
    pub fn read(&mut self, first: u32, leaves: Option<Vec<(u32, Leaf)>>) {
        match (self.pieces.get_mut(&first), leaves) {
            (Some(piece), Some(leaves)) => *piece = Some(leaves),
            _ => _ = self.pieces.remove(&first),
        }
    }
    /// Forgets pieces of which nothing is needed from this page on.
    pub fn forget_before(&mut self, page: u32) {
        while let Some(first) = self.pieces.range(..=page).next().map(|(first, _)| *first) {
            let next = self.pieces.range(first + 1..).next().map(|(first, _)| *first);
            let read = self.pieces[&first].as_ref();
            let done = read.is_some_and(|leaves| leaves.last().is_none_or(|(last, _)| *last < page));
            if !done || next.is_none() {
                break;
            }
            self.pieces.remove(&first);
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
    /// The first page that a payload is about.
    pub fn begins(&self, payload: &[u8]) -> u32 {
        payload.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
    }
    /// Takes the payload of the next page.
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
    /// Ends it. Returns which pages have which records. Their number may differ from the pool's,
    /// which got another size since. Its last checksum proves that no piece is missing.
    ///
    /// # Errors
    /// When what it says last makes no sense.
    pub fn end(mut self, state: &mut State) -> Result<Stamps, Malformed> {
        self.close(state)?;
        Ok(self.stamps)
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_format::{Checksums, FlashPage, Header, Kind, NO_EXTENT, PoolId, Record};

    use super::*;
    use crate::geometry::Geometry;
    use crate::state::{Unseen, Version};
    use crate::tokens::Tokens;

    const G: Geometry = Geometry { extent_pages: 64, extents: 40, subpages: 64, objects: false };

    fn write(state: &mut State, page: u32, subpages: &[u32], first: u64) {
        for subpage in subpages {
            let mut checksums = Checksums::EMPTY;
            checksums.push(first as u32 + subpage);
            // Backward, so that each needs an entry of its own.
            let start = FlashPage(first + 64 - 2 * u64::from(*subpage));
            let record = Record::Write { page, start, valid: 1 << subpage, status: Status::ALLOCATED, checksums };
            state.apply(&record, &Unseen).unwrap();
        }
        let token = state.next_token();
        state.apply(&Record::Token { token }, &Unseen).unwrap();
    }
    /// A version: when it was written, and what it holds, each with its place and checksum.
    type VersionContent = (u64, Vec<(u32, u32, Option<u32>)>);
    fn versions(state: &State, page: u32) -> Vec<VersionContent> {
        let held = |v: &Version| v.held().map(|h| (h.subpage, h.place, state.checksum(page, h))).collect();
        state.versions_of(page).iter().map(|v| (v.time, held(v))).collect()
    }
    fn writer() -> CheckpointWriter {
        let at = StreamPosition { extent: 5, ..StreamPosition::default() };
        CheckpointWriter::new(Stream::new(G, PoolId([7; 16]), Kind::Checkpoint, at, NO_EXTENT), Anchor::default())
    }
    fn payloads(writer: &mut CheckpointWriter, state: &mut State) -> Vec<Vec<u8>> {
        let mut payloads = Vec::new();
        while !writer.is_complete() {
            let (place, page) = writer.next_page(state, 100 + payloads.len() as u64).unwrap();
            assert_eq!(place, 5 * 64 + payloads.len() as u32);
            payloads.push(Header::open(&page).unwrap().2.to_vec());
        }
        payloads
    }
    /// A piece of these pages, with a version of each of these.
    fn piece(first: u32, end: u32, pages: &[(u32, u32)]) -> Vec<u8> {
        let mut payload = 9u64.to_le_bytes().to_vec();
        payload.extend(first.to_le_bytes());
        payload.extend(end.to_le_bytes());
        for (page, place) in pages {
            let start = FlashPage(u64::from(*place));
            let entry = PageEntry::new(start, fulgurite_format::EntryIndex::NONE, 1, 1, Status::ALLOCATED);
            History { page: *page, versions: vec![(entry, vec![3])] }.encode(&mut payload);
        }
        payload
    }

    #[test]
    fn histories_that_fill_several_pages_come_back_whole() {
        let mut state = State::new(G, u32::MAX);
        write(&mut state, 0, &[1], 200);
        // Some 19 bytes for each of 16 entries: 40 states are three flash pages.
        (0..40).for_each(|i| write(&mut state, 1, &(0..16).collect::<Vec<_>>(), 300 + 40 * i));
        write(&mut state, 3, &[0, 2], 2100);
        let mut writer = writer();
        let payloads = payloads(&mut writer, &mut state);
        assert!(payloads.len() > 3 && payloads.iter().all(|payload| payload.len() <= PAYLOAD_BYTES));
        assert_eq!(writer.anchor().checkpoint_pages, payloads.len() as u64);
        let pieces: Vec<(u64, u32, u32)> = payloads
            .iter()
            .map(|payload| {
                let mut r = Reader(payload);
                (r.u64().unwrap(), r.u32().unwrap(), r.u32().unwrap())
            })
            .collect();
        // Page 0 alone, because 1 does not fit behind it. Its rest is as old as its beginning. Then
        // the others.
        let rest = payloads.len() - 2;
        assert_eq!((pieces[0], pieces[1]), ((100, 0, 1), (101, 1, 2)));
        assert!(pieces[2..rest].iter().all(|piece| *piece == (101, 1, 2)), "{pieces:?}");
        assert_eq!(pieces[rest + 1], (100 + rest as u64 + 1, 2, 4));
        let mut read = State::new(G, u32::MAX);
        read.set_tokens(state.next_token(), Tokens::new(state.tokens().as_slice().to_vec()));
        let mut reader = CheckpointReader::default();
        payloads.iter().for_each(|payload| reader.read(payload, &mut read).unwrap());
        let mut stamps = reader.end(&mut read).unwrap();
        (0..4).for_each(|page| assert_eq!(versions(&read, page), versions(&state, page), "page {page}"));
        assert_eq!((read.audit(), read.live_total()), (Vec::<String>::new(), state.live_total()));
        // What was recorded before a piece was made is in it.
        for (page, stamp) in [(0, 100), (1, 101), (2, pieces[rest + 1].0), (3, pieces[rest + 1].0)] {
            stamps.at = stamp - 1;
            assert!(stamps.contains(page), "page {page}");
            stamps.at = stamp;
            assert!(!stamps.contains(page), "page {page}");
        }
    }
    #[test]
    fn it_is_written_when_all_of_it_is() {
        let mut writer = writer();
        assert!(!writer.is_complete() && !writer.is_written());
        payloads(&mut writer, &mut State::new(G, u32::MAX));
        writer.in_flight = 1;
        assert!(writer.is_complete() && !writer.is_written());
        writer.in_flight = 0;
        assert!(writer.is_written());
        writer.failed = true;
        assert!(!writer.is_written());
        writer.finish(17);
        writer.move_journal(StreamPosition { extent: 9, ..StreamPosition::default() }, 11);
        let anchor = writer.anchor();
        assert_eq!((anchor.journal_end, anchor.journal.extent, anchor.journal_next), (17, 9, 11));
        assert!(anchor.checkpoint_checksum != 0 && anchor.checkpoint_checksum == writer.stream.position().before);
    }
    #[test]
    fn what_makes_no_sense_is_refused() {
        let read = |pieces: &[Vec<u8>]| {
            let (mut state, mut reader) = (State::new(G, u32::MAX), CheckpointReader::default());
            pieces.iter().try_for_each(|piece| reader.read(piece, &mut state)).and_then(|()| reader.end(&mut state))
        };
        let end = G.flash_pages();
        assert!(read(&[piece(0, 2, &[(1, 200)]), piece(2, 4, &[(3, 201)])]).is_ok());
        // A pool of another size had more pages, of which nothing was left, or fewer.
        assert!(read(&[piece(0, 9, &[(1, 200)]), piece(9, 12, &[])]).is_ok());
        for wrong in [
            vec![piece(1, 2, &[(1, 200)])],
            vec![piece(0, 2, &[(1, 200)]), piece(3, 4, &[(3, 201)])],
            vec![piece(0, 2, &[]), piece(2, 1, &[])],
            vec![piece(0, 1, &[(1, 200)])],
            vec![piece(0, 2, &[]), piece(2, 4, &[(1, 200)])],
            vec![piece(0, 9, &[(4, 200)])],
            vec![piece(0, 4, &[(0, end)])],
            vec![piece(0, 4, &[(0, end), (1, 200)])],
            vec![piece(0, 4, &[])[..15].to_vec()],
        ] {
            assert!(read(&wrong).is_err(), "{wrong:?}");
        }
        assert!(read(&[piece(0, 4, &[(0, end - 1)])]).is_ok());
    }
}
