//! Opening: superblock, newest anchor, its checkpoint, the journal behind it, then back to the last
//! token.

use std::collections::VecDeque;

use fulgurite_flash::FlashError;
use fulgurite_format::{
    Anchor, Header, Kind, NO_EXTENT, NotMetadata, PageBuffer, PoolId, Reader, Record, StreamPosition, Superblock,
};

use crate::checkpoint::CheckpointReader;
use crate::geometry::{
    ANCHOR_EXTENTS, ANCHOR_PAIRS_WITHOUT, FIRST_EXTENT, FIRST_PLACES, Geometry, GeometryError, SUBPAGES_PER_PAGE,
};
use crate::planted::Planted;
use crate::state::{LEAF_BYTES, Piece, Seen, State, Unseen};
use crate::store::{Anchors, Journal, Recovered, Store, StoreConfig, WriteError, stamp};
use crate::stream::{Stream, expect};
use crate::tokens::Tokens;

/// Tokens, and numbers of pages in a stream and of anchors, are below this. No pool reaches half of
/// 64 bits, so additions to a number below this cannot overflow.
const NUMBERS: u64 = u64::MAX / 2;

/// Why a pool cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum RecoverError {
    #[error("this is no pool: {0}")]
    NotAPool(NotMetadata),
    /// Its superblock says what cannot be.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error(
        "the pool has {needed} flash pages, and the flash {found}: part of it is missing; supply all of it, or \
         restore it from a copy"
    )]
    Truncated { needed: u32, found: u32 },
    #[error("no anchor of the pool can be read: flash pages {0} and following are damaged; restore it from a copy")]
    NoAnchor(u32),
    #[error("flash page {0} of the checkpoint is damaged; restore the pool from a copy")]
    Checkpoint(u32),
    #[error("flash page {0} of the journal holds invalid records; restore the pool from a copy")]
    Journal(u32),
    /// Promised data cannot be read any more. The state before it can:
    /// [`StoreConfig::accept_loss`].
    #[error(transparent)]
    Lost(#[from] Loss),
    #[error(
        "flash page {place} was written by a later program, in version {version} of the format; use that program, or one as new"
    )]
    Newer { place: u32, version: u16 },
    #[error(
        "the newest anchor of the pool is invalid: it was written by a defective program; restore the pool from a copy"
    )]
    Anchor,
    #[error("flash page {place} cannot be read: {error}")]
    Flash { place: u32, error: FlashError },
    /// What recovery writes first cannot be recorded.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What a pool has promised and lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "flash page {place} of the journal cannot be read any more{}: {} lost; {} can be opened if that is accepted, or \
     restore the pool from a copy",
    if *.seen > 0 { format!(", and it was durable, as page {seen} of the journal was written after it", seen = .seen) } else { String::new() },
    lost_tokens(*.token, *.newest),
    if *.token == 0 { "the empty pool".to_owned() } else { format!("the state of token {}", .token) }
)]
#[non_exhaustive]
pub struct Loss {
    /// The flash page where the journal breaks off.
    pub place: u32,
    /// The number of the journal page that proves that it was durable. 0 if none does, but it
    /// cannot be read.
    pub seen: u64,
    /// The newest token before it, whose state can still be opened; 0 for the empty pool.
    pub token: u64,
    /// All newer tokens up to this one are lost, as far as is known. [`Loss::token`] if none is
    /// known to be.
    pub newest: u64,
}

fn lost_tokens(token: u64, newest: u64) -> String {
    match newest.saturating_sub(token) {
        0 => "what was written since then may be".to_owned(),
        1 => format!("token {newest} is"),
        _ => format!("tokens {} to {newest} are", token + 1),
    }
}

/// Reads flash pages: perhaps only the first of several neighbours, or the others may follow.
pub trait ReadPages {
    /// Reads one. Those up to `place + ahead` will probably be asked for next.
    fn read(&mut self, place: u32, ahead: u32) -> Result<PageBuffer, FlashError>;
    /// Flash pages there are.
    fn flash_pages(&self) -> u32;
}

/// What recovery found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RecoverReport {
    /// The token whose state was restored; 0 for the empty pool.
    pub token: u64,
    /// Pages of the checkpoint read.
    pub checkpoint_pages: u64,
    /// Pages of the journal read.
    pub journal_pages: u64,
    /// Records replayed.
    pub records: u64,
    /// A flash page where the journal ends in part of a page. A crash cut off an unpromised commit,
    /// or the page was damaged before anything followed it. The two cannot be distinguished.
    pub torn: Option<u32>,
    /// What was lost, and accepted. Such a pool needs a checkpoint before anything else is durable,
    /// which [`crate::Pool::open`] makes.
    pub lost: Option<Loss>,
}

fn read(flash: &mut dyn ReadPages, place: u32, ahead: u32) -> Result<PageBuffer, RecoverError> {
    flash.read(place, ahead).map_err(|error| RecoverError::Flash { place, error })
}

/// Reads the superblock: which pool, and its geometry.
///
/// # Errors
/// When there is none, or it cannot be used.
pub fn superblock(flash: &mut dyn ReadPages) -> Result<(PoolId, Geometry, Superblock), RecoverError> {
    let mut worst = NotMetadata::Magic;
    let pages = [0, 1].map(|place| flash.read(place, 1 - place));
    // A later program may have come no further than to one of them.
    let newer =
        pages.iter().flatten().find_map(|page| Header::open(page).err().filter(|e| matches!(e, NotMetadata::Newer(_))));
    if let Some(newer) = newer {
        return Err(RecoverError::NotAPool(newer));
    }
    for (place, page) in (0..).zip(pages) {
        let page = match page {
            Ok(page) => page,
            Err(_) if place == 0 => continue,
            Err(error) => return Err(RecoverError::Flash { place, error }),
        };
        let opened = match Header::open(&page) {
            Ok((header, _, payload)) if header.kind == Kind::Superblock && header.place == place => {
                Superblock::decode(payload).map(|block| (header.pool, block)).map_err(|_| NotMetadata::Header)
            }
            Ok(_) => Err(NotMetadata::Header),
            Err(e) => Err(e),
        };
        match opened {
            Ok((pool, block)) => {
                let geometry = Geometry::of(&block)?;
                if geometry.flash_pages() > flash.flash_pages() {
                    let (needed, found) = (geometry.flash_pages(), flash.flash_pages());
                    return Err(RecoverError::Truncated { needed, found });
                }
                return Ok((pool, geometry, block));
            }
            // What a first copy says of itself is reported, unless the second can be used.
            Err(e) if worst == NotMetadata::Magic => worst = e,
            Err(_) => {}
        }
    }
    Err(RecoverError::NotAPool(worst))
}

/// The newest anchor, and where the next one is written.
fn anchor(flash: &mut dyn ReadPages, pool: PoolId, g: Geometry) -> Result<(Anchor, Anchors), RecoverError> {
    let mut best: Option<(u64, Anchor, Anchors)> = None;
    for (turn, extent) in ANCHOR_EXTENTS.into_iter().enumerate() {
        let mut invalid = 0;
        for index in 0..g.extent_pages {
            let place = g.first_of(extent) + index;
            let page = flash.read(place, g.extent_pages - index - 1);
            if let Ok(page) = &page {
                refuse_newer(page, pool, place)?;
            }
            let opened =
                page.as_ref().ok().and_then(|p| Header::open(p).ok()).filter(|(h, ..)| {
                    h.kind == Kind::Anchor && h.pool == pool && h.place == place && h.sequence < NUMBERS
                });
            let Some((anchor, header)) = opened.and_then(|(h, _, p)| Some((Anchor::decode(p).ok()?, h))) else {
                // Both copies of one may be torn, damaged, or failed. Behind as many as may be,
                // there is nothing.
                invalid += 1;
                if invalid == 2 * ANCHOR_PAIRS_WITHOUT {
                    break;
                }
                continue;
            };
            invalid = 0;
            if best.as_ref().is_none_or(|(sequence, ..)| *sequence < header.sequence) {
                let (index, sequence) = ((index & !1) + 2, header.sequence + 1);
                let next = Anchors { extent: turn, index, sequence, in_effect: turn, failed: 0 };
                best = Some((header.sequence, anchor, next));
            }
        }
    }
    let (_, anchor, next) = best.ok_or(RecoverError::NoAnchor(g.first_of(ANCHOR_EXTENTS[0])))?;
    Ok((anchor, next))
}

/// What a later program has written is not for this one to read, nor to go on behind.
fn refuse_newer(page: &PageBuffer, pool: PoolId, place: u32) -> Result<(), RecoverError> {
    Header::newer(page, pool, place).map_or(Ok(()), |version| Err(RecoverError::Newer { place, version }))
}

/// Whether what a record names exists.
fn is_sane(record: &Record, state: &State) -> bool {
    let g = state.geometry();
    let place_ok = |place: u64| place < u64::from(g.flash_pages());
    // Behind the superblock and the anchors, which reclaim would overwrite.
    let data_ok = |place: u64| place >= u64::from(g.first_of(FIRST_EXTENT)) && place_ok(place);
    match record {
        Record::Write { page, start, valid, status, .. } => {
            let entry =
                fulgurite_format::PageEntry::new(*start, fulgurite_format::EntryIndex::NONE, *valid, 0, *status);
            *page < g.pages() && place_ok(start.0) && crate::state::held(entry).all(|h| data_ok(h.place.into()))
        }
        Record::Status { page, .. } => *page < g.pages(),
        Record::Move { page, from, to, subpages, .. } => {
            *page < g.pages()
                && *subpages != 0
                && data_ok(from.0)
                && data_ok(to.0)
                && place_ok(to.0 + u64::from(subpages.count_ones()) - 1)
        }
        Record::Bad { place } => place_ok(place.0),
        Record::Wear { extent, fills } => u64::from(*extent) + fills.as_slice().len() as u64 <= u64::from(g.extents),
        Record::Token { token } => {
            let newer = state.tokens().newest().is_none_or(|newest| newest < *token);
            *token == state.next_token() && newer && !state.tokens().is_full()
        }
        Record::Objects(written) => state.may_write(written),
        Record::MoveObjects(moved) => state.may_move(moved),
        _ => true,
    }
}

/// Opens a pool.
///
/// # Errors
/// When it is none, or what must be readable is not.
pub fn recover(flash: &mut dyn ReadPages, config: StoreConfig) -> Result<(Store, RecoverReport), RecoverError> {
    let (pool, g, _) = superblock(flash)?;
    let (anchor, anchors) = anchor(flash, pool, g)?;
    let mut report = RecoverReport::default();
    // What the pool holds is read whatever the limit is: it holds for what is written from now on.
    let mut state = State::new(g, u32::MAX);
    state.planted = config.planted;
    state.page_leaves(config.leaf_bytes());
    let believe = config.planted == Some(Planted::NoChecksum);
    let mut used = Vec::new();
    let exists = |at: StreamPosition| (FIRST_EXTENT..g.extents).contains(&at.extent) && at.index < g.extent_pages;
    let numbers = [anchor.next_token, anchor.journal.sequence, anchor.journal_end];
    let past = anchor.tokens.last().is_none_or(|token| token.token < anchor.next_token);
    if numbers.iter().any(|number| *number >= NUMBERS) || !past || !exists(anchor.journal) {
        return Err(RecoverError::Anchor);
    }
    // The checkpoint.
    let mut reader = CheckpointReader::default();
    let mut at = anchor.checkpoint;
    let mut pieces = Vec::new();
    // What may be on flash alone is what the oldest of them sees.
    state.set_tokens(anchor.next_token, Tokens::new(anchor.tokens.clone()));
    for _ in 0..anchor.checkpoint_pages {
        if !exists(at) || at.sequence == u64::MAX {
            return Err(RecoverError::Anchor);
        }
        let place = g.first_of(at.extent) + at.index;
        let broken = RecoverError::Checkpoint(place);
        if at.index == 0 {
            used.push(at.extent);
        }
        let page = read(flash, place, g.extent_pages - at.index - 1)?;
        refuse_newer(&page, pool, place)?;
        let (payload, header, checksum) = expect(&page, (g, pool, Kind::Checkpoint), at, believe).ok_or(broken)?;
        // Times in the piece count from when it was made.
        state.set_next_token(header.next_token);
        if state.is_paged() {
            pieces.push(Piece { first: reader.begins(payload), place, checksum });
        }
        reader.read(payload, &mut state).map_err(|_| broken)?;
        at = next_position(at, header, checksum, g);
        report.checkpoint_pages += 1;
    }
    if anchor.checkpoint_pages > 0 && at.before != anchor.checkpoint_checksum {
        return Err(RecoverError::Checkpoint(g.first_of(anchor.checkpoint.extent) + anchor.checkpoint.index));
    }
    let mut stamps =
        reader.end(&mut state).map_err(|_| RecoverError::Checkpoint(g.first_of(anchor.checkpoint.extent)))?;
    if config.planted == Some(Planted::IgnoreStamps) {
        stamps.forget_all_but_the_last();
    }
    state.set_next_token(anchor.next_token);
    state.use_pieces(pieces);
    // The journal.
    let mut at = anchor.journal;
    let mut extents = VecDeque::from([(at.extent, at.sequence.saturating_sub(at.index.into()))]);
    let mut next_extent = anchor.journal_next;
    let mut unreadable;
    let mut first = FirstPages::default();
    let mut records = Vec::new();
    loop {
        let mut page = None;
        (unreadable, report.torn) = (false, None);
        // Where the journal breaks off inside an extent, it continues in the next one, because a
        // page failed, or in a later life of the pool. Then the old place does not count.
        let on = if at.index > 0 { StreamPosition { extent: next_extent, index: 0, ..at } } else { at };
        if exists(on) {
            first.read(flash, (g, pool), on.extent, believe)?;
            page = first.find(on).map(|(index, read)| (StreamPosition { index, ..on }, read));
            page = page.filter(|(found, read)| expect(read, (g, pool, Kind::Journal), *found, believe).is_some());
        }
        for candidate in if page.is_some() { Vec::new() } else { vec![at, on] } {
            if !exists(candidate) {
                continue;
            }
            let place = g.first_of(candidate.extent) + candidate.index;
            let read = match read(flash, place, g.extent_pages - candidate.index - 1) {
                Err(_) if config.accept_loss => {
                    unreadable |= candidate == at;
                    continue;
                }
                read => read?,
            };
            refuse_newer(&read, pool, place)?;
            if expect(&read, (g, pool, Kind::Journal), candidate, believe).is_some() {
                page = Some((candidate, read));
                break;
            }
            if Header::open(&read) == Err(NotMetadata::Checksum) {
                report.torn = Some(place);
            }
        }
        let Some((position, page)) = page else { break };
        let place = g.first_of(position.extent) + position.index;
        let (payload, header, checksum) =
            expect(&page, (g, pool, Kind::Journal), position, believe).expect("seen above");
        if position.extent != extents.back().expect("the first").0 {
            extents.push_back((position.extent, position.sequence));
        }
        // All is decoded before any is replayed: the pages that it names are prefetched meanwhile.
        let mut r = Reader(payload);
        while !r.is_empty() {
            let filled = payload.len() - r.0.len();
            let record = Record::decode(&mut r).map_err(|_| RecoverError::Journal(place))?;
            if let Record::Write { page, .. } | Record::Status { page, .. } | Record::Move { page, .. } = record
                && page < g.pages()
            {
                state.prefetch_page(page);
            }
            records.push((filled, record));
        }
        for (filled, record) in records.drain(..) {
            stamps.at = stamp(position.sequence, filled);
            for _ in 0..if config.planted == Some(Planted::ReplayTwice) { 2 } else { 1 } {
                bring_in(flash, pool, &mut state, &record, &stamps)?;
                if !is_sane(&record, &state) {
                    return Err(RecoverError::Journal(place));
                }
                state.apply(&record, &stamps).map_err(|e| RecoverError::Write(e.into()))?;
            }
            report.records += 1;
        }
        report.journal_pages += 1;
        next_extent = header.next_extent;
        at = next_position(position, header, checksum, g);
    }
    // Where part of a page is; else where the next one belongs.
    let damaged = report.torn.unwrap_or(g.first_of(at.extent.min(g.extents - 1)) + at.index);
    let token = state.tokens().newest().unwrap_or(0);
    let mut loss = None;
    if let Some((seen, newest)) = written_after(flash, (g, pool), at, next_extent)? {
        loss = Some(Loss { place: damaged, seen, token, newest: token.max(newest) });
    } else if at.sequence < anchor.journal_end {
        let newest = anchor.tokens.last().map_or(token, |t| token.max(t.token));
        loss = Some(Loss { place: damaged, seen: anchor.journal_end, token, newest });
    } else if unreadable {
        loss = Some(Loss { place: damaged, seen: 0, token, newest: token });
    }
    report.lost = loss;
    if let Some(loss) = loss.filter(|_| !config.accept_loss) {
        return Err(loss.into());
    }
    state.set_table_limit(config.table_limit);
    // Where the journal continues. The rest of a broken-off extent is left alone, because NAND
    // cannot write it twice.
    if at.index > 0 {
        at = StreamPosition { extent: next_extent, index: 0, ..at };
    }
    if let Some(loss) = loss {
        // Pages behind the break must not pass for later ones of new writes. So numbers begin far
        // behind theirs, in an extent that holds nothing. No anchor leads there yet.
        let taken = |e: u32| used.contains(&e) || extents.iter().any(|(j, _)| *j == e) || state.live(e) > 0;
        let free = (FIRST_EXTENT..g.extents).find(|e| !taken(*e) && state.wear().in_extent(*e) == 0);
        // No pool comes to such numbers by itself.
        let sequence = at.sequence.max(anchor.journal_end).max(loss.seen).checked_add(1 << 32);
        let sequence = sequence.filter(|sequence| *sequence < NUMBERS).ok_or(RecoverError::Journal(damaged))?;
        at = StreamPosition { extent: free.unwrap_or(at.extent), index: 0, sequence, before: 0 };
    }
    if !exists(at) {
        return Err(RecoverError::Journal(damaged));
    }
    if state.tokens().newest().is_none() {
        // All goes back to the empty pool.
        bring_in(flash, pool, &mut state, &Record::RollBack { token: 0 }, &Unseen)?;
    }
    state.prune_everything().map_err(|e| RecoverError::Write(e.into()))?;
    let _ = state.take_emptied();
    if extents.back().expect("the first").0 != at.extent {
        extents.push_back((at.extent, at.sequence));
    }
    // Each extent has one use, and nothing is needed where the journal continues. Otherwise this
    // mixes several pools' lives, and new writes would destroy data.
    let mut metadata: Vec<u32> = used.iter().copied().chain(extents.iter().map(|(extent, _)| *extent)).collect();
    metadata.sort_unstable();
    if metadata.windows(2).any(|two| two[0] == two[1]) || state.live(at.extent) > 0 {
        return Err(RecoverError::Journal(damaged));
    }
    let stream = Stream::new(g, pool, Kind::Journal, at, NO_EXTENT);
    let journal = Journal {
        stream,
        current: Vec::new(),
        next_token: state.next_token(),
        sealed: Vec::new(),
        extents,
        named: VecDeque::new(),
        since: anchor.journal.sequence,
    };
    report.token = state.tokens().newest().unwrap_or(0);
    let mut store = Store::from_recovered(
        pool,
        config,
        Recovered { state, journal, anchors, checkpoint: (used, anchor.checkpoint_pages) },
    );
    store.roll_back_unsynced()?;
    Ok((store, report))
}

/// Brings in the leaves that a record changes, where they are on flash alone.
fn bring_in(
    flash: &mut dyn ReadPages,
    pool: PoolId,
    state: &mut State,
    record: &Record,
    seen: &impl Seen,
) -> Result<(), RecoverError> {
    if state.out_count() == 0 {
        return Ok(());
    }
    let all = state.geometry().pages();
    let mut pages: Vec<u32> = match record {
        Record::Write { page, .. } | Record::Status { page, .. } | Record::Move { page, .. } => vec![*page],
        Record::Objects(written) => {
            written.as_slice().iter().map(|object| object.subpage / SUBPAGES_PER_PAGE).collect()
        }
        Record::MoveObjects(moved) => {
            moved.as_slice().iter().map(|object| object.subpage / SUBPAGES_PER_PAGE).collect()
        }
        // It does not come to that while a token is kept that sees what is out.
        Record::RollBack { token } => (0..all).filter(|page| state.is_behind(*page, *token)).collect(),
        _ => return Ok(()),
    };
    pages.retain(|page| *page < all && !seen.contains(*page));
    let mut open: Option<(Piece, Vec<(u32, crate::state::Leaf)>)> = None;
    // All of a record stay until it is applied, those that are here already included. Otherwise
    // one would go to make room for another.
    pages.iter().for_each(|page| state.pin_leaf(*page));
    let out: Vec<u32> = pages.iter().copied().filter(|page| state.is_out(*page)).collect();
    for page in &out {
        let piece = state.piece_of(*page).expect("what is out is in a piece");
        let broken = RecoverError::Checkpoint(piece.place);
        if open.as_ref().is_none_or(|(of, _)| *of != piece) {
            let content = read(flash, piece.place, 0)?;
            open = Some((piece, piece.open(pool, &content).map_err(|_| broken)?));
        }
        let (_, leaves) = open.as_ref().expect("opened above");
        let (_, leaf) = leaves.iter().find(|(of, _)| of == page).ok_or(broken)?;
        state.make_leaf_room(LEAF_BYTES);
        state.bring_in(*page, leaf).map_err(|_| broken)?;
    }
    pages.iter().for_each(|page| state.unpin_leaf(*page));
    Ok(())
}

/// The first pages of the extent in which the journal goes on, or may.
#[derive(Default)]
struct FirstPages {
    extent: Option<u32>,
    /// Each with its number in its stream and the checksum of the page before. None for other
    /// pages.
    pages: Vec<Option<(u64, u32, PageBuffer)>>,
}

impl FirstPages {
    fn read(
        &mut self,
        flash: &mut dyn ReadPages,
        (g, pool): (Geometry, PoolId),
        extent: u32,
        believe: bool,
    ) -> Result<(), RecoverError> {
        if self.extent == Some(extent) {
            return Ok(());
        }
        self.extent = Some(extent);
        let page = |index: u32| {
            // What cannot be read is not there.
            let place = g.first_of(extent) + index;
            let Ok(page) = flash.read(place, FIRST_PLACES - 1 - index) else { return Ok(None) };
            refuse_newer(&page, pool, place)?;
            let opened = if believe { Header::open_unchecked(&page) } else { Header::open(&page) };
            Ok(opened.ok().map(|(header, ..)| (header.sequence, header.before)).map(|(s, b)| (s, b, page)))
        };
        self.pages = (0..FIRST_PLACES).map(page).collect::<Result<_, RecoverError>>()?;
        Ok(())
    }
    /// The last one that belongs at a position, and its index: a failed page was written again
    /// behind its place.
    fn find(&self, at: StreamPosition) -> Option<(u32, PageBuffer)> {
        let belongs = |page: &Option<(u64, u32, PageBuffer)>| {
            page.as_ref().is_some_and(|(sequence, before, _)| (*sequence, *before) == (at.sequence, at.before))
        };
        let index = self.pages.iter().rposition(belongs)?;
        self.pages[index].as_ref().map(|(.., page)| (index as u32, page.clone()))
    }
}

/// Searches behind the end of the journal for a page that was written after the missing page was
/// durable. A crash leaves none. All pages of a commit are written at once, and the next commit's
/// pages only when they are durable. So a page of a commit that begins behind the end proves
/// damage, whichever life of the pool wrote it. Returns the highest such number, and the newest
/// token in the pages behind the end.
fn written_after(
    flash: &mut dyn ReadPages,
    (g, pool): (Geometry, PoolId),
    end: StreamPosition,
    next: u32,
) -> Result<Option<(u64, u64)>, RecoverError> {
    let mut to_read = vec![end.extent, next];
    let mut seen_extents = Vec::new();
    let (mut proof, mut newest) = (None, 0);
    while let Some(extent) = to_read.pop() {
        if !(FIRST_EXTENT..g.extents).contains(&extent) || seen_extents.contains(&extent) {
            continue;
        }
        seen_extents.push(extent);
        for index in 0..g.extent_pages {
            let place = g.first_of(extent) + index;
            // What cannot be read proves nothing.
            let Ok(page) = flash.read(place, g.extent_pages - index - 1) else { continue };
            refuse_newer(&page, pool, place)?;
            let Ok((header, _, payload)) = Header::open(&page) else { continue };
            let later = header.kind == Kind::Journal
                && header.pool == pool
                && header.place == place
                && header.sequence > end.sequence;
            if !later {
                continue;
            }
            let begins = header.sequence.saturating_sub(header.commit_offset.into());
            if header.commit_offset != u16::MAX && begins > end.sequence {
                proof = proof.max(Some(header.sequence));
            }
            newest = newest.max(header.next_token.saturating_sub(1));
            let mut records = Reader(payload);
            while let Ok(record) = Record::decode(&mut records) {
                if let Record::Token { token } = record {
                    newest = newest.max(token);
                }
            }
            // Of the commit that seems to have been under way, or a later one: what follows it is
            // further on.
            to_read.push(header.next_extent);
        }
    }
    Ok(proof.map(|seen| (seen, newest)))
}

fn next_position(at: StreamPosition, header: Header, checksum: u32, g: Geometry) -> StreamPosition {
    let (extent, index) =
        if at.index + 1 == g.extent_pages { (header.next_extent, 0) } else { (at.extent, at.index + 1) };
    StreamPosition { extent, index, sequence: at.sequence + 1, before: checksum }
}

#[cfg(test)]
mod tests {
    use fulgurite_format::{Checksums, FlashPage, Status};

    use super::*;

    /// 320 flash pages, ten pages.
    const G: Geometry = Geometry { extent_pages: 8, extents: 40, subpages: 160, objects: false };

    #[test]
    fn records_name_only_what_there_is() {
        let mut state = State::new(G, u32::MAX);
        let sane = |record: Record| is_sane(&record, &State::new(G, u32::MAX));
        let write = |page, start, valid, status| {
            let start = FlashPage(start);
            sane(Record::Write { page, start, valid, status, checksums: Checksums::EMPTY })
        };
        let (plain, packed) = (Status::ALLOCATED, Status::ALLOCATED.with(Status::PACKED));
        assert!(write(9, 319, 1, plain) && !write(10, 40, 1, plain) && !write(9, 320, 1, plain));
        // At their distance the last of sixteen is fifteen behind the start. When they are
        // contiguous, there are as many as exist.
        assert!(write(0, 304, 0x8000, plain) && !write(0, 305, 0x8000, plain));
        assert!(write(0, 319, 0x8000, packed) && write(0, 318, 0x8001, packed) && !write(0, 319, 0x8001, packed));
        let first = u64::from(G.first_of(FIRST_EXTENT));
        assert!(write(0, first, 1, plain) && !write(0, first - 1, 1, plain) && write(0, first - 1, 2, plain));
        let status = |page| sane(Record::Status { page, status: plain });
        assert!(status(9) && !status(10));
        let moved =
            |page, subpages, from, to| sane(Record::Move { page, subpages, from: FlashPage(from), to: FlashPage(to) });
        assert!(moved(9, 1, 319, 319) && !moved(10, 1, 40, 40) && !moved(9, 0, 40, 40));
        assert!(!moved(9, 1, 320, 40) && !moved(9, 1, 40, 320));
        assert!(moved(9, 0b101, 40, 318) && !moved(9, 0b101, 40, 319));
        assert!(moved(9, 1, first, first) && !moved(9, 1, first - 1, 40) && !moved(9, 1, 40, first - 1));
        let bad = |place| sane(Record::Bad { place: FlashPage(place) });
        assert!(bad(0) && bad(319) && !bad(320));
        let wear = |extent, count| {
            let mut fills = Checksums::EMPTY;
            (0..count).for_each(|n| fills.push(n));
            sane(Record::Wear { extent, fills })
        };
        assert!(wear(0, 2) && wear(38, 2) && !wear(39, 2) && wear(39, 1) && wear(40, 0) && !wear(u32::MAX, 1));
        // Only the next token can come, and none comes twice.
        assert!(is_sane(&Record::Token { token: 1 }, &state));
        assert!(!is_sane(&Record::Token { token: 0 }, &state) && !is_sane(&Record::Token { token: 2 }, &state));
        state.apply(&Record::Token { token: 1 }, &Unseen).unwrap();
        assert!(is_sane(&Record::Token { token: 2 }, &state) && !is_sane(&Record::Token { token: 1 }, &state));
        let newest = state.tokens().clone();
        state.set_tokens(1, newest);
        assert!(!is_sane(&Record::Token { token: 1 }, &state));
        let mut full = State::new(G, u32::MAX);
        (1..=fulgurite_format::TOKENS_MAX as u64).for_each(|token| {
            assert!(is_sane(&Record::Token { token }, &full));
            full.apply(&Record::Token { token }, &Unseen).unwrap();
        });
        assert!(!is_sane(&Record::Token { token: full.next_token() }, &full));
        // What names neither a place nor a page can always be.
        assert!(sane(Record::Drop { token: 99 }) && sane(Record::RollBack { token: 99 }));
    }
    #[test]
    fn an_extent_of_a_stream_ends_with_its_last_page() {
        let header = Header { next_extent: 20, sequence: 7, ..Header::new(Kind::Journal, PoolId([1; 16]), 0) };
        let at = |extent, index, sequence, before| StreamPosition { extent, index, sequence, before };
        assert_eq!(next_position(at(5, 6, 7, 1), header, 99, G), at(5, 7, 8, 99));
        assert_eq!(next_position(at(5, 7, 7, 1), header, 99, G), at(20, 0, 8, 99));
    }
}
