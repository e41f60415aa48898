//! The store: a state machine. Requests to the flash come out of [`Store::next_io`], their ends go
//! into [`Store::done`].
//!
//! Programs' data does not pass through here. Its mover asks for places ([`Store::place`]), writes,
//! and reports the ends of its writes ([`Store::written`]).
//!
//! A commit makes a state durable: a flush (the data), the pages of the journal, a flush. A journal
//! page is never written before the data that it names is durable. The order of the records does
//! the rest:
//!
//! * A token is a record. Recovery returns to the last one that it finds, so unsynced changes are
//!   gone whole.
//! * An extent is reused only after a commit has made durable the record that took away its last
//!   live flash page.
//! * A checkpoint is made piece by piece among records. Each piece says up to which record it is.
//!   An anchor, written after a commit of all these records, makes it part of the recoverable
//!   state.

mod commit;
mod config;
mod counters;
mod elsewhere;
mod failing;
mod info;
mod keeping;
mod leaves;
mod objects;
mod reclaim;
mod repair;
mod request;
mod resize;
mod retention;
mod wanted;
mod wear;

pub use config::{Durability, StoreConfig};
pub use counters::StoreCounters;
pub use info::{ExtentUses, StoreInfo};
pub use keeping::overwritten_max;
pub use objects::{OBJECTS_AT_ONCE, ObjectBatch};
pub use repair::LOST_MAGIC;
pub use request::{Io, IoId, Outcome, WriteError};
pub use resize::{ResizeError, Shrink, superblock_pages, superblock_repairs};

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use fulgurite_flash::FlashError;
use fulgurite_format::{
    Anchor, Checksums, Header, Kind, NO_EXTENT, Owner, PAYLOAD_BYTES, PageBuffer, PageEntry, PoolId, Record, Status,
    StreamPosition,
};
use fulgurite_policy::Heat;
use fulgurite_sys::arch::prefetch;

use crate::checkpoint::CheckpointWriter;
use crate::extents::{Extents, Filled, Victims, Writer};
use crate::geometry::{ANCHOR_EXTENTS, FIRST_EXTENT, Geometry, METADATA_RESERVE, RECLAIM_RESERVE, SUBPAGES_PER_PAGE};
use crate::map::Map;
use crate::planted::Planted;
use crate::reclaim::Reclaim;
use crate::state::{Held, State, Unseen, entries_of};
use crate::stream;
use crate::table::TableFull;
use keeping::{Clock, DroppedTokens, bounded};
use objects::log::{ObjectLog, status_when_written};
use request::{ObjectPurpose, Purpose};

const N: u32 = SUBPAGES_PER_PAGE;
/// Pages of a checkpoint in flight.
const CHECKPOINT_DEPTH: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Data,
    Journal,
    JournalFlush,
    Anchor,
    AnchorFlush,
    /// Not a commit: the page that proves that the one before was durable.
    Witness,
}

#[derive(Debug)]
struct Commit {
    phase: Phase,
    /// Requests in flight.
    pending: usize,
    /// Pages of the journal, and how many of them were sent.
    pages: Vec<(u32, PageBuffer)>,
    sent: usize,
    /// The first page that was sent and not written; `usize::MAX` for an anchor.
    failed: Option<(usize, FlashError)>,
    /// There were pages of the journal.
    promises: bool,
    /// The journal is durable up to here afterwards.
    end: u64,
    /// The newest token in it.
    token: Option<u64>,
    /// The tokens that there are after it.
    tokens: Vec<u64>,
    /// A checkpoint that may take effect afterwards.
    checkpoint: bool,
}

#[derive(Debug)]
pub(crate) struct Journal {
    pub stream: stream::Stream,
    /// Payload of the page that is being filled.
    pub current: Vec<u8>,
    /// The next token at the beginning of that page.
    pub next_token: u64,
    pub sealed: Vec<(u32, PageBuffer)>,
    /// The extents since the last checkpoint, each with its first page's number.
    pub extents: VecDeque<(u32, u64)>,
    /// Extents that were taken, and are named before others.
    pub named: VecDeque<u32>,
    /// Where the last checkpoint begins to be of use.
    pub since: u64,
}

#[derive(Debug)]
pub(crate) struct Anchors {
    /// Which of the two extents.
    pub extent: usize,
    pub index: u32,
    pub sequence: u64,
    /// The extent that holds the anchor in effect.
    pub in_effect: usize,
    /// Pairs of flash pages that failed one after the other.
    pub failed: u32,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    pool: PoolId,
    config: StoreConfig,
    pub(crate) state: State,
    pub(crate) extents: Extents,
    heat: Heat,
    journal: Journal,
    anchors: Anchors,
    commit: Option<Commit>,
    commit_wanted: bool,
    witness_wanted: bool,
    durable_token: u64,
    /// The tokens that a crash would leave.
    durable_tokens: Vec<u64>,
    checkpoint: Option<CheckpointWriter>,
    /// Extents of the checkpoint in effect, and its pages.
    last_checkpoint: (Vec<u32>, u64),
    reclaim: Option<Reclaim>,
    /// What writes and reclaims objects, in a pool that has them.
    objects: Option<Box<ObjectLog>>,
    /// What is being reclaimed is so to level wear.
    levelling: bool,
    in_flight: HashMap<IoId, Purpose, FixedState>,
    outbox: VecDeque<(IoId, Io)>,
    next_id: u64,
    poisoned: Option<FlashError>,
    /// Flash pages that failed, of which it is not known yet that it was not the whole device.
    suspects: Vec<u32>,
    /// Checkpoints that failed one after the other.
    failed_checkpoints: u32,
    uncommitted: u64,
    /// The most checksums of what only tokens see.
    old_limit: usize,
    /// Places given to programs whose writes have not ended.
    placed: u64,
    /// The count of reclaimed extents when programs last found no place, if none was given since.
    starved_since: Option<u64>,
    /// When space was last checked, in subpages written since the last token, and when it must be
    /// checked again.
    space_checked: (u64, u64),
    clock: Clock,
    gone: DroppedTokens,
    counters: StoreCounters,
    /// While the pool shrinks: the extent that was to be emptied last, and whether a checkpoint
    /// began after all was moved.
    given_up: Option<u32>,
    shrunk: bool,
    /// What is needed of leaves that are on flash alone.
    wanted: wanted::Wanted,
    /// Kept for their memory.
    entries: Vec<PageEntry>,
    bytes: Vec<u8>,
}

/// What recovery hands over.
pub(crate) struct Recovered {
    pub state: State,
    pub journal: Journal,
    pub anchors: Anchors,
    pub checkpoint: (Vec<u32>, u64),
}

impl Store {
    /// The pages that make a pool: written and flushed, they are an empty one.
    #[must_use]
    pub fn format(geometry: Geometry, pool: PoolId, made: u64) -> Vec<(u32, PageBuffer)> {
        let page = |kind, place, sequence, payload: &[u8]| {
            let header = Header { sequence, ..Header::new(kind, pool, place) };
            (place, header.page(payload).0)
        };
        let mut anchor = Vec::new();
        let journal = StreamPosition { extent: FIRST_EXTENT, index: 0, sequence: 1, before: 0 };
        Anchor { next_token: 1, journal, journal_next: NO_EXTENT, journal_end: 1, ..Anchor::default() }
            .encode(&mut anchor);
        let place = geometry.first_of(ANCHOR_EXTENTS[0]);
        let [first, second] = superblock_pages(pool, &geometry.superblock(made));
        vec![
            page(Kind::Anchor, place, 1, &anchor),
            page(Kind::Anchor, place + 1, 1, &anchor),
            second,
            // The first copy comes last: without it there is no pool.
            first,
        ]
    }

    pub(crate) fn from_recovered(pool: PoolId, config: StoreConfig, recovered: Recovered) -> Store {
        let Recovered { state, journal, anchors, checkpoint } = recovered;
        let metadata: Vec<u32> = journal.extents.iter().map(|(e, _)| *e).chain(checkpoint.0.iter().copied()).collect();
        let extents = Extents::recovered(state.geometry(), &metadata, state.wear(), |e| state.live(e));
        let durable_token = state.tokens().newest().unwrap_or(0);
        let durable_tokens = state.tokens().to_vec();
        let clock = Clock::after(state.tokens().times().last());
        // A small pool must not fill with its journal.
        let few = u64::from(state.geometry().flash_pages() / 64).max(state.geometry().extent_pages.into());
        let config = StoreConfig { checkpoint_after: config.checkpoint_after.min(few), ..config };
        let (config, old_limit) = bounded(config, state.geometry());
        let mut state = state;
        state.set_table_limit(config.table_limit);
        if config.victims == Victims::LongestChains {
            state.count_chains();
        }
        state.set_table_indices(config.table_indices);
        let state_geometry = state.geometry();
        Store {
            pool,
            config,
            heat: Heat::new(state.geometry().subpages),
            state,
            extents,
            journal,
            anchors,
            commit: None,
            commit_wanted: false,
            witness_wanted: false,
            durable_token,
            durable_tokens,
            checkpoint: None,
            last_checkpoint: checkpoint,
            reclaim: None,
            objects: ObjectLog::of(state_geometry),
            levelling: false,
            in_flight: HashMap::default(),
            outbox: VecDeque::new(),
            next_id: 0,
            poisoned: None,
            suspects: Vec::new(),
            failed_checkpoints: 0,
            gone: DroppedTokens::default(),
            uncommitted: 0,
            old_limit,
            placed: 0,
            starved_since: None,
            space_checked: (0, 0),
            clock,
            counters: StoreCounters::default(),
            given_up: None,
            shrunk: false,
            wanted: wanted::Wanted::default(),
            entries: Vec::new(),
            bytes: Vec::with_capacity(Record::BYTES_MAX),
        }
    }

    /// Its geometry.
    pub fn geometry(&self) -> Geometry {
        self.state.geometry()
    }
    /// Its identity.
    pub fn pool(&self) -> PoolId {
        self.pool
    }
    /// Its state, to be read.
    pub fn state(&self) -> &State {
        &self.state
    }
    /// Where subpages are stored; may be read by any thread at any time.
    pub fn map(&self) -> std::sync::Arc<Map> {
        self.state.map().clone()
    }
    /// Subpages written since the last token.
    pub fn uncommitted(&self) -> u64 {
        self.uncommitted
    }
    /// Why it takes no more changes, if so.
    pub fn poisoned(&self) -> Option<FlashError> {
        self.poisoned
    }

    fn check(&self) -> Result<(), WriteError> {
        self.poisoned.map_or(Ok(()), |e| Err(WriteError::Poisoned(e)))
    }
    fn poison(&mut self, error: FlashError) {
        self.poisoned.get_or_insert(error);
        self.outbox.clear();
    }

    // ---- data ----

    /// Free extents that programs' writes leave alone.
    fn reserve(&self) -> u32 {
        // Objects are copied to an extent of their own.
        let objects = 2 * u32::from(self.objects.is_some());
        RECLAIM_RESERVE + METADATA_RESERVE + self.checkpoint_extents() + objects
    }
    fn checkpoint_extents(&self) -> u32 {
        self.checkpoint_extents_of(self.state.table().versions().into())
    }
    fn checkpoint_extents_of(&self, versions: u64) -> u32 {
        let geometry = self.geometry();
        let mut bytes = u64::from(geometry.pages()) * 90 + versions * 40;
        if geometry.promises_more() {
            // At worst each subpage is of another page.
            let flash = u64::from(geometry.flash_pages());
            bytes = u64::from(geometry.pages()).min(flash) * 26 + flash * 4 + versions * 40;
        }
        let bytes = if self.objects.is_some() { self.checkpoint_bytes_of_objects() } else { bytes };
        (bytes / PAYLOAD_BYTES as u64 / u64::from(self.geometry().extent_pages)) as u32 + 1
    }

    /// Gives places to subpages about to be written. Ascending subpages get neighbouring places and
    /// less metadata. `places` gets a place for each of the first subpages, as many as there are
    /// places for. The others ask again after [`Store::done`] or [`Store::written`]. A place is in
    /// flight until [`Store::written`] or [`Store::not_written`].
    ///
    /// # Errors
    /// When there is no space and none will come without a sync; when the pool is poisoned.
    pub fn place(&mut self, subpages: &[u32], places: &mut Vec<u32>) -> Result<(), WriteError> {
        self.check()?;
        let subpages = match self.admit(subpages.len())? {
            0 if !subpages.is_empty() => return Ok(()),
            count => &subpages[..count],
        };
        if self.config.durability == Durability::Cache && !self.state.tokens().as_slice().is_empty() {
            self.forget_tokens()?;
        }
        let subpages = match self.admit_leaves(subpages.iter().copied())? {
            0 if !subpages.is_empty() => return Ok(()),
            count => &subpages[..count],
        };
        let subpages = match self.fitting(subpages) {
            // Writes under way may turn out to take less than they might.
            0 if !subpages.is_empty() && self.placed > 0 => return Ok(()),
            0 if !subpages.is_empty() => return Err(WriteError::NoSpace { uncommitted: self.uncommitted }),
            count => &subpages[..count],
        };
        let before = places.len();
        let reserve = self.reserve();
        subpages
            .iter()
            .filter_map(|s| self.heat.counter_byte(*s))
            .for_each(|counter| prefetch(std::ptr::from_ref(counter)));
        // Each place takes one flash page, also where it opens an extent.
        for subpage in subpages.iter().take(self.extents.room_for_programs(reserve)) {
            let degree = crate::extents::degree_of_batch(self.heat.degree(*subpage), subpages.len());
            let given = self.extents.give(Writer::Program, degree, reserve, self.state.wear());
            let Some(place) = given else { break };
            if self.heat.counter_byte(*subpage).is_some() || self.state.is_written(*subpage) {
                self.heat.touch(*subpage);
            } else {
                self.heat.touch_first(*subpage);
            }
            self.placed += 1;
            self.pin_placed(place, *subpage);
            places.push(place);
        }
        self.note_filled();
        if places.len() > before {
            self.starved_since = None;
        } else if !subpages.is_empty() {
            // Where failed flash pages eat up its gain, reclaim may move live data forever.
            let since = *self.starved_since.get_or_insert(self.counters.reclaimed);
            let in_vain = self.counters.reclaimed - since > u64::from(2 * self.geometry().extents);
            // Writes under way replace older data: before they end, a gain cannot be ruled out.
            if in_vain || (!self.space_will_come() && self.placed == 0) {
                return Err(WriteError::NoSpace { uncommitted: self.uncommitted });
            }
        }
        Ok(())
    }

    /// Whether waiting gives space.
    fn space_will_come(&mut self) -> bool {
        if self.extents.emptied() > 0 {
            self.commit_wanted = true;
        }
        // A checkpoint frees the journal before it. A reclaim that waits for room brings none.
        self.commit.is_some()
            || self.commit_wanted
            || self.checkpoint.is_some()
            || self.extents.held() > 0
            || match &self.reclaim {
                // Since the last check, extents may have come free.
                Some(reclaim) => reclaim.is_moving() || self.has_room_for_copies(),
                None => match self.objects.as_ref().and_then(|objects| objects.reclaim_moves()) {
                    Some(moves) => moves || self.has_room_for_copies(),
                    None => self.start_reclaim(),
                },
            }
    }
    /// Whether reclaim may take an extent for what it moves.
    fn has_room_for_copies(&self) -> bool {
        self.extents.free() > METADATA_RESERVE + self.checkpoint_extents()
    }

    /// Subpages were written: (subpage, place, CRC32C of the content). They are the current content
    /// from now on. Of two concurrent writes of one subpage, either is.
    ///
    /// # Errors
    /// When they cannot be recorded; their older content stays.
    pub fn written(&mut self, writes: &mut [(u32, u32, u32)]) -> Result<(), WriteError> {
        self.placed = self.placed.saturating_sub(writes.len() as u64);
        self.check()?;
        if self.state.is_paged() {
            // Before anything can go, they have changed.
            writes.iter().for_each(|(_, place, _)| self.unpin_placed(*place));
        }
        writes.iter().for_each(|(subpage, ..)| self.state.prefetch_for_write(*subpage));
        writes.sort_unstable_by_key(|w| w.0);
        let mut different = 0;
        for i in 0..writes.len() {
            if different > 0 && writes[different - 1].0 == writes[i].0 {
                self.extents.settled(writes[different - 1].1, None);
                different -= 1;
            }
            writes[different] = writes[i];
            different += 1;
        }
        let writes = &writes[..different];
        let mut result = Ok(());
        for same_page in writes.chunk_by(|a, b| a.0 / N == b.0 / N) {
            let page = same_page[0].0 / N;
            let status = status_when_written(self.state.status(page));
            let mut subpages = [Held::NONE; N as usize];
            for (held, (subpage, place, checksum)) in subpages.iter_mut().zip(same_page) {
                *held = Held { subpage: subpage % N, place: *place };
                self.extents.settled(*place, Some(Owner { subpage: *subpage, checksum: *checksum }));
            }
            let mut entries = std::mem::take(&mut self.entries);
            entries.clear();
            entries_of(&subpages[..same_page.len()], self.state.next_token() as u32, status, &mut entries);
            let mut rest = same_page;
            for entry in &entries {
                // Entries take the subpages in order, as many as they hold.
                let (its, others) = rest.split_at(entry.valid().count_ones() as usize);
                rest = others;
                let mut checksums = Checksums::EMPTY;
                its.iter().for_each(|(.., checksum)| checksums.push(*checksum));
                let (start, valid, status) = (entry.start(), entry.valid(), entry.status());
                if let Err(e) = self.record(Record::Write { page, start, valid, status, checksums }) {
                    result = Err(e);
                }
            }
            self.entries = entries;
            self.counters.written += same_page.len() as u64;
            self.uncommitted += same_page.len() as u64;
        }
        self.note_filled();
        self.condemn();
        result
    }

    /// Allocates a page, changes its permissions, or deletes it.
    pub fn set_status(&mut self, page: u32, status: Status) -> Result<(), WriteError> {
        self.set_statuses(&[page], status)
    }
    /// Whether there is room for such a change of all these pages, whose leaves may be out.
    pub(crate) fn may_set_statuses(&mut self, pages: &[u32], status: Status) -> Result<(), WriteError> {
        self.check()?;
        self.admit_statuses(pages, status)
    }
    /// Sets the status of many pages: if there is no room for all of them, none is changed.
    pub fn set_statuses(&mut self, pages: &[u32], status: Status) -> Result<(), WriteError> {
        // Whether or not it is done, because no leaf leaves before its end.
        self.let_go_of_leaves();
        self.check()?;
        self.admit_statuses(pages, status)?;
        pages.iter().try_for_each(|page| self.record(Record::Status { page: *page, status }))
    }

    // ---- roll back ----

    /// Makes the state of a token the present one again, without newer ones. Returns whether there
    /// is such a token. Durable once [`Store::is_quiet`].
    pub fn roll_back(&mut self, to: u64) -> Result<bool, WriteError> {
        self.check()?;
        let known = self.state.tokens().contains(to);
        if known {
            self.record(Record::RollBack { token: to })?;
            self.gone.rolled_back(to, self.state.next_token());
            self.durable_token = self.durable_token.min(to);
            self.durable_tokens.retain(|token| *token <= to);
            if let Some(commit) = &mut self.commit {
                commit.token = commit.token.map(|token| token.min(to));
                commit.tokens.retain(|token| *token <= to);
            }
            (self.uncommitted, self.space_checked) = (0, (0, 0));
            self.commit_wanted = true;
        }
        Ok(known)
    }
    /// Goes back to the newest token, or to the empty pool: what recovery does first.
    pub(crate) fn roll_back_unsynced(&mut self) -> Result<(), WriteError> {
        let token = self.state.tokens().newest().unwrap_or(0);
        self.record(Record::RollBack { token })?;
        if self.config.durability == Durability::Cache {
            self.forget_tokens()?;
        }
        Ok(())
    }
    /// Makes the journal durable as it is, without a token.
    pub fn commit(&mut self) {
        self.commit_wanted = true;
    }
    /// Begins a checkpoint, so that the next opening has little to replay.
    pub fn begin_checkpoint(&mut self) {
        self.start_checkpoint();
    }
    /// Begins to reclaim an extent without need, if that gains any and there is room for its live
    /// data. Returns whether it does.
    pub fn begin_reclaim(&mut self) -> bool {
        self.extents.free() > self.reserve() && self.start_reclaim()
    }
    /// Whether nothing is under way and nothing waits.
    pub fn is_quiet(&self) -> bool {
        self.poisoned.is_some()
            || (self.commit.is_none()
                && !self.commit_wanted
                && !self.witness_wanted
                && self.checkpoint.is_none()
                && self.reclaim.as_ref().is_none_or(|reclaim| !reclaim.is_moving() && !self.has_room_for_copies())
                && self.objects.as_ref().is_none_or(|objects| objects.is_quiet())
                && self.is_quiet_about_leaves()
                && self.outbox.is_empty()
                && self.in_flight.is_empty())
    }

    // ---- the journal ----

    fn record(&mut self, record: Record) -> Result<(), WriteError> {
        // Only new versions need room: in a full table tokens can still be made and dropped, and
        // reclaim continues.
        let (limit, indices) = match &record {
            Record::Write { valid, .. } => (2 * N, 1 + valid.count_ones()),
            Record::Status { .. } => (2 * N, 1 + N),
            Record::Objects(written) => (0, 2 * written.as_slice().len() as u32),
            _ => (0, 0),
        };
        if self.state.table().room() < limit || self.state.room_for() < indices {
            return Err(TableFull.into());
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        record.encode(&mut bytes);
        let recorded = self.record_bytes(&record, &bytes);
        self.bytes = bytes;
        recorded?;
        self.note_emptied();
        self.note_fills()?;
        if self.journal.sealed.len() >= self.config.commit_after {
            self.commit_wanted = true;
        }
        Ok(())
    }
    fn record_bytes(&mut self, record: &Record, bytes: &[u8]) -> Result<(), WriteError> {
        if self.journal.current.len() + bytes.len() > PAYLOAD_BYTES {
            self.seal();
            self.check()?;
        }
        self.state.apply(record, &Unseen)?;
        if !(self.config.planted == Some(Planted::ForgetDrop) && matches!(record, Record::Drop { .. })) {
            self.journal.current.extend_from_slice(bytes);
        }
        Ok(())
    }
    fn note_emptied(&mut self) {
        let until = self.last_record();
        for extent in self.state.take_emptied() {
            if self.config.planted == Some(Planted::ReuseEarly) {
                self.extents.note_empty(extent, 0);
                self.extents.durable(1, self.state.wear());
            }
            self.extents.note_empty(extent, until);
        }
    }
    /// The page of the journal that the last record is in.
    fn last_record(&self) -> u64 {
        self.journal.stream.position().sequence - u64::from(self.journal.current.is_empty())
    }
    /// Names the extent in which the journal goes on behind its current one.
    fn name_next_extent(&mut self) {
        if self.journal.stream.wants_extent() {
            let named = self.journal.named.pop_front();
            let Some(extent) = named.or_else(|| self.extents.take_for_metadata(self.state.wear())) else {
                self.poison(FlashError::NoSpace);
                return;
            };
            let first = self.journal.stream.position().sequence
                + u64::from(self.geometry().extent_pages - self.journal.stream.position().index);
            self.journal.stream.go_on_in(extent);
            self.journal.extents.push_back((extent, first));
        }
    }
    /// Ends the page of the journal that is being filled.
    fn seal(&mut self) {
        self.name_next_extent();
        if self.poisoned.is_some() {
            return;
        }
        // What is sealed now and not yet on its way is one commit.
        let offset = self.journal.sealed.len().try_into().unwrap_or(u16::MAX);
        let page = self.journal.stream.seal(&self.journal.current, self.journal.next_token, offset);
        self.journal.sealed.push(page);
        self.journal.current.clear();
        self.journal.next_token = self.state.next_token();
    }

    // ---- requests ----

    fn send(&mut self, purpose: Purpose, io: Io) {
        let id = IoId(self.next_id);
        self.next_id += 1;
        if matches!(io, Io::Write { .. }) && !matches!(purpose, Purpose::Objects(_)) {
            self.counters.metadata += 1;
        }
        self.in_flight.insert(id, purpose);
        self.outbox.push_back((id, io));
    }
    /// The next request to the flash, if there is one.
    pub fn next_io(&mut self) -> Option<(IoId, Io)> {
        if self.outbox.is_empty() && self.poisoned.is_none() {
            self.advance();
        }
        self.outbox.pop_front()
    }
    /// A request has ended.
    pub fn done(&mut self, id: IoId, outcome: Outcome) {
        let Some(purpose) = self.in_flight.remove(&id) else { return };
        if self.poisoned.is_some() {
            // Nothing follows from anything any more.
            return;
        }
        match (purpose, outcome) {
            (Purpose::Commit, Outcome::Failed(e)) => self.poison(e),
            (Purpose::Commit, _) => self.commit_done(),
            (Purpose::Journal { at }, outcome) => self.journal_done(at, &outcome),
            (Purpose::Anchor { place }, outcome) => self.anchor_done(place, &outcome),
            (Purpose::Checkpoint { place }, outcome) => self.checkpoint_done(place, &outcome),
            (Purpose::Summary { place }, outcome) => {
                // Without a summary an extent is reclaimed by a walk through the page table.
                if let Outcome::Failed(e) = outcome {
                    self.suspect(place, e);
                }
                self.extents.end_summary(self.geometry().extent_of(place), self.state.wear());
            }
            (Purpose::ReclaimRead, outcome) => self.reclaim_read(outcome),
            (Purpose::Lost { subpage, from, to }, outcome) => self.marked_lost(subpage, from, to, &outcome),
            (Purpose::ReclaimCopy { from, to }, outcome) => self.reclaim_copied(from, to, outcome),
            (Purpose::Objects(purpose), outcome) => self.objects_done(purpose, outcome),
            (Purpose::Leaves(piece), outcome) => self.leaves_read(piece, outcome),
            (Purpose::Source(piece), outcome) => self.source_read(piece, outcome),
        }
    }

    fn advance(&mut self) {
        self.advance_commit();
        self.advance_leaves();
        if self.objects.is_some() {
            self.advance_objects();
        }
        self.advance_reclaim();
        self.advance_checkpoint();
    }

    /// Summaries of extents that are full.
    fn note_filled(&mut self) {
        while let Some(Filled { extent, owners }) = self.extents.take_filled() {
            if self.state.live(extent) == 0 {
                self.extents.note_empty(extent, self.last_record());
                continue;
            }
            if self.poisoned.is_some() {
                continue;
            }
            let geometry = self.geometry();
            let first = geometry.first_of(extent) + geometry.data_pages();
            for (index, owners) in (0..).zip(owners.chunks(Owner::PER_PAGE)) {
                self.write_summary(first + index, index, owners);
            }
        }
    }

    /// Writes this page of an extent's summary, unless its flash page has failed: then a walk finds
    /// the owners.
    fn write_summary(&mut self, place: u32, index: u32, owners: &[Owner]) {
        if self.state.wear().contains(place) {
            return;
        }
        let page = summary_page(self.pool, place, index, self.state.next_token(), owners);
        self.extents.begin_summary(self.geometry().extent_of(place));
        self.send(Purpose::Summary { place }, Io::Write { place, page });
    }
}

/// The page of an extent's summary with this number, for this place.
#[must_use]
pub fn summary_page(pool: PoolId, place: u32, index: u32, next_token: u64, owners: &[Owner]) -> PageBuffer {
    let mut payload = Vec::with_capacity(PAYLOAD_BYTES);
    owners.iter().for_each(|owner| owner.encode(&mut payload));
    let header = Header { sequence: index.into(), next_token, ..Header::new(Kind::Summary, pool, place) };
    header.page(&payload).0
}

/// Names a point in the journal: a page and how much of its payload is filled.
pub(crate) const fn stamp(page: u64, filled: usize) -> u64 {
    (page << 12) | filled as u64
}

#[cfg(test)]
mod tests;
