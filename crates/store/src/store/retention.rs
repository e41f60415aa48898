//! Tokens: made, kept, dropped. [`StoreConfig`] limits their number, age, space and DRAM. The
//! newest and the pinned stay.
//!
//! The store has no clock, and time comes in as numbers ([`Store::tick`]). The pool's own time adds
//! up how far the clock advanced between two of them. A clock set back adds nothing, so no token is
//! dropped early by it, and none is kept forever.

use fulgurite_flash::Shortage;
use fulgurite_format::{Record, SUBPAGE_BYTES, Status};
use fulgurite_policy::Heat;

use super::ObjectLog;
use super::keeping::bounded;
use super::{N, Store, StoreConfig, WriteError};
use crate::extents::{Extents, Victims};
use crate::geometry::{Geometry, RECLAIM_AHEAD};
use crate::state::{LEAVES_MIN, State, WHOLE_BYTES};
use crate::table::TableFull;

/// What a reclaim examines, twice while that grows, and the journal page being filled.
fn scratch_bytes(geometry: Geometry) -> usize {
    2 * geometry.extent_pages as usize * size_of::<(u32, u32)>() + SUBPAGE_BYTES
}

/// The least DRAM for the locations of objects in a pool of this geometry, because what is known of
/// contiguous whole subpages always stays.
pub(super) fn least_leaf_bytes(geometry: Geometry) -> usize {
    geometry.flash_pages().div_ceil(N) as usize * WHOLE_BYTES + LEAVES_MIN
}

impl Store {
    /// Sets the time, in any unit, by any clock. The next sync drops tokens that are too old.
    pub fn tick(&mut self, clock: u64) {
        self.clock.tick(clock);
    }

    /// How many of `count` subpages may get places now. None while something must end first.
    pub(super) fn admit(&mut self, count: usize) -> Result<usize, WriteError> {
        let uncommitted = self.uncommitted + self.placed;
        let allowed = self.config.uncommitted_max.saturating_sub(uncommitted).min(count as u64) as usize;
        if allowed == 0 && count > 0 {
            return if self.placed > 0 { Ok(0) } else { Err(WriteError::NoSpace { uncommitted }) };
        }
        self.drop_for_space()?;
        let is_bounded = self.config.history_bytes != usize::MAX;
        if is_bounded && self.journal.sealed.len() >= 2 * self.config.commit_after {
            self.commit_wanted = true;
            return Ok(0);
        }
        let mut allowed = allowed;
        loop {
            // At worst each write is one more version of a page, and older versions of it fall
            // apart.
            let table_room = self.state.table().room() >= (N + 1) * (allowed as u32 + 1)
                && self.indices_for_writes() >= allowed as u64;
            let checksum_room = self.old_limit.saturating_sub(self.state.old_count() + self.placed as usize);
            if table_room && allowed <= checksum_room {
                return Ok(allowed);
            }
            if is_bounded && self.drop_oldest()? {
                continue;
            }
            if is_bounded && allowed > 1 {
                allowed /= 2;
                continue;
            }
            return match (table_room, self.placed) {
                (true, 1..) => Ok(0),
                (true, 0) => Err(WriteError::NoSpace { uncommitted }),
                (false, _) => Err(TableFull.into()),
            };
        }
    }
    /// Whether these pages may get another status. A deletion makes what they hold old.
    pub(super) fn admit_statuses(&mut self, pages: &[u32], status: Status) -> Result<(), WriteError> {
        let deletes = status.has(Status::DELETED);
        let old = |page: &u32| if deletes { self.state.old_when_deleted(*page) } else { 0 };
        let checksums: u64 = pages.iter().map(|page| u64::from(old(page))).sum();
        // A version more of each page that has one; and at worst its old places fall apart.
        let used = pages.iter().filter(|page| self.state.is_used(**page));
        let entries: u64 = used.map(|page| u64::from(1 + 2 * old(page))).sum();
        let is_bounded = self.config.history_bytes != usize::MAX;
        loop {
            let checksum_room = self.old_limit.saturating_sub(self.state.old_count() + self.placed as usize) as u64;
            let table_room = u64::from(self.state.table().room().saturating_sub(2 * N));
            let indices = u64::from(self.state.room_for().saturating_sub(2 * N));
            let table_room = table_room.min(indices.saturating_sub(checksums));
            if checksums <= checksum_room && entries <= table_room {
                return Ok(());
            }
            if is_bounded && self.drop_oldest()? {
                continue;
            }
            return Err(match entries <= table_room {
                true => WriteError::NoSpace { uncommitted: self.uncommitted + self.placed },
                false => TableFull.into(),
            });
        }
    }
    /// How many subpage writes the page table's indices have room for, whatever they and those
    /// under way make old.
    pub(super) fn indices_for_writes(&self) -> u64 {
        // A version, what it hides, and that older places next to that fall apart.
        (u64::from(self.state.room_for()).saturating_sub(u64::from(2 * N)) / 4).saturating_sub(self.placed)
    }
    /// Drops the oldest token that is not pinned and not the newest. Returns whether there was one.
    pub(super) fn drop_oldest(&mut self) -> Result<bool, WriteError> {
        let Some(token) = self.state.tokens().superfluous(1).first().copied() else { return Ok(false) };
        self.record(Record::Drop { token })?;
        self.commit_wanted = true;
        Ok(true)
    }
    /// Flash pages for data that hold nothing that is needed.
    pub(super) fn unneeded(&self) -> u64 {
        let all = u64::from(self.extents.for_data()) * u64::from(self.geometry().data_pages());
        all.saturating_sub(self.state.live_total())
    }
    /// How many subpages can certainly be written before a sync, in any number of versions. It
    /// reads a few counters, because each unlock of a device's store asks.
    pub(crate) fn room_for_changes(&self) -> u64 {
        self.room_after(0)
    }
    /// The room after `older` more subpages became older versions, by deletions or changes of
    /// status. These take entries, checksums and a longer checkpoint, but no flash page for data.
    pub(crate) fn room_after(&self, older: u64) -> u64 {
        self.space_after(older).min(self.history_after(older)).min(self.leaf_room_after(older))
    }
    /// The room after these pages were deleted, but for leaves. Where a leaf is not here, its page
    /// counts in full.
    pub(crate) fn room_after_deleting(&self, pages: &[u32]) -> u64 {
        let used = pages.iter().filter(|page| self.state.is_used(**page));
        // A version more of each, and what it held.
        let older = used.map(|page| 1 + u64::from(self.state.old_when_deleted(*page))).sum();
        self.space_after(older).min(self.history_after(older))
    }
    /// For how many pages that are deleted what they made old can be remembered.
    pub(crate) fn room_for_deletions(&self) -> u64 {
        // One leaf of each page changes.
        (self.history_after(0) / u64::from(N)).min(self.leaf_room_after(0))
    }
    /// What there is least of.
    pub(crate) fn shortage(&self) -> Shortage {
        let bytes = self.config.history_bytes;
        if self.state.is_paged() && self.leaf_room_after(0) <= self.space_after(0).min(self.history_after(0)) {
            return Shortage::Leaves { bytes: self.state.leaf_budget() as u64 };
        }
        match bytes != usize::MAX && self.history_after(0) <= self.space_after(0) {
            true => Shortage::History { bytes: bytes as u64 },
            false => self.shortage_of_space(),
        }
    }
    /// What has the flash pages that are missing.
    fn shortage_of_space(&self) -> Shortage {
        let older = self.state.old_count() as u64;
        let unsynced = older.min(self.uncommitted);
        let all = u64::from(self.extents.for_data()) * u64::from(self.geometry().data_pages());
        // Little would be gained by letting go of either.
        let little = (all / 32).min(match self.room_left_by_new_data() {
            0 => u64::MAX,
            left => left / 4,
        });
        if unsynced.max(older - unsynced) < little && self.config.uncommitted_max == u64::MAX {
            return Shortage::Space;
        }
        if unsynced >= older - unsynced { Shortage::Unsynced } else { Shortage::Tokens }
    }
    /// For how many subpages there are flash pages now.
    pub(super) fn room_in_space(&self) -> u64 {
        self.space_after(0)
    }
    /// For how many subpages there are flash pages.
    fn space_after(&self, older: u64) -> u64 {
        let allowed = self.config.uncommitted_max.saturating_sub(self.uncommitted + self.placed);
        let geometry = self.geometry();
        // Journal and checkpoints may come to take what they may, and are longer for each version.
        let unneeded = self.unneeded();
        let metadata = geometry.metadata_extents().saturating_sub(self.extents.metadata());
        let versions = u64::from(self.state.table().versions());
        let longer = self.checkpoint_extents_of(versions + unneeded + 2 * older) - self.checkpoint_extents_of(versions);
        let kept = u64::from(self.reserve() + metadata + longer) * u64::from(geometry.data_pages());
        // In each extent that is not worth emptying, some flash pages are lost.
        let for_data = u64::from(self.extents.for_data());
        // Where addresses do not bound the data, a sixteenth stays free, as in other pools.
        let free = if geometry.promises_more() { for_data * u64::from(geometry.data_pages()) / 16 } else { 0 };
        let lost = for_data * u64::from(geometry.worth() - 1) + free;
        let allowed = allowed.min(self.whole_subpages_allowed());
        allowed.min(unneeded.saturating_sub(kept + lost + self.placed))
    }
    /// For how many subpages what they make old can be remembered.
    fn history_after(&self, older: u64) -> u64 {
        let checksums = self.old_limit.saturating_sub(self.state.old_count()) as u64;
        let versions = u64::from(self.room_for_versions());
        let taken = self.placed + older;
        checksums.saturating_sub(taken).min(versions.saturating_sub(taken))
    }
    /// How many subpages can certainly be written, by the table's entries. A write makes one for
    /// its version and one for what it hides, which tokens need. Reclaim may give each of these an
    /// entry of its own.
    fn room_for_versions(&self) -> u32 {
        let room = self.state.table().room();
        // Until then reclaim may move all that only tokens see.
        let moved = u32::try_from(self.state.old_count()).unwrap_or(u32::MAX);
        let indices = self.state.room_for().saturating_sub(moved).saturating_sub(2 * N) / 4;
        if self.config.history_bytes == usize::MAX {
            // As in `admit`.
            return (room / (N + 1)).min(indices);
        }
        let fall_apart = u32::try_from(self.state.old_count()).unwrap_or(u32::MAX);
        (room.saturating_sub(fall_apart).saturating_sub(4 * (N + 1)) / 2).min(indices)
    }
    /// Whether space, or DRAM for history, ends in fewer than `subpages` writes, and a sync would
    /// make room. A pool that is always that full uses half of its space beyond the data as the
    /// bound.
    pub(crate) fn check_for_shortage(&mut self, subpages: u64) -> bool {
        let remembered = subpages.min(self.old_limit as u64 / 2).min(u64::from(self.config.table_limit) / 4);
        let checksums = (self.old_limit - self.state.old_count().min(self.old_limit)) as u64;
        // A sync lets go of no more than was written since the last one.
        if self.uncommitted > remembered / 4
            && (checksums < remembered || u64::from(self.state.table().room()) < remembered + u64::from(N * N))
        {
            return true;
        }
        if self.is_short_of_leaves(subpages) {
            return true;
        }
        // The other shortage is looked for only after as many writes as there was room for.
        if (self.space_checked.0..self.space_checked.1).contains(&self.uncommitted) {
            return false;
        }
        let data_pages = u64::from(self.geometry().data_pages());
        let kept = u64::from(self.reserve() + RECLAIM_AHEAD) * data_pages;
        let spare = u64::from(self.extents.for_data()) * data_pages;
        let data = match self.geometry().promises_more() {
            true => self.state.live_total().saturating_sub(self.state.old_count() as u64),
            false => self.geometry().subpages.into(),
        };
        let spare = spare.saturating_sub(kept + data);
        let wanted = subpages.min(spare / 2);
        let room = self.unneeded().saturating_sub(kept);
        let until = if room < wanted { wanted / 4 + 1 } else { (room - wanted).max(wanted / 8) + self.uncommitted };
        self.space_checked = (self.uncommitted, until);
        self.uncommitted > wanted / 4 && room < wanted
    }
    fn drop_for_space(&mut self) -> Result<(), WriteError> {
        if self.config.keep_bytes == 0 || self.state.tokens().as_slice().len() < 2 {
            return Ok(());
        }
        while self.unneeded() * (SUBPAGE_BYTES as u64) < self.config.keep_bytes && self.drop_oldest()? {}
        Ok(())
    }
    fn drop_aged(&mut self) -> Result<(), WriteError> {
        let Some((now, _)) = self.clock.now() else { return Ok(()) };
        let candidates = self.state.tokens().superfluous(1);
        let times = self.state.tokens().times();
        let is_aged = |token: &u64| {
            // One of unknown time is as old as the next one of which it is known, at least.
            let at = times.partition_point(|t| t.token < *token);
            times.get(at).is_some_and(|t| now.saturating_sub(t.age) > self.config.keep_age)
        };
        let aged: Vec<u64> = candidates.into_iter().filter(is_aged).collect();
        aged.into_iter().try_for_each(|token| self.record(Record::Drop { token }))
    }

    pub(super) fn dram_bytes(&self) -> usize {
        let objects = self.objects.as_ref().map_or(0, |log| log.bytes());
        let tables = self.heat.bytes() + self.state.bytes() - self.state.history_bytes();
        self.fixed_bytes() + tables + objects + self.history_bytes()
    }
    /// The DRAM that it may come to: tables with all written and scattered, and the bound for
    /// history, or its present size without one.
    pub(super) fn dram_bytes_max(&self) -> usize {
        let bound = self.config.history_bytes;
        let history = if bound == usize::MAX { self.history_bytes() } else { bound };
        let objects = self.objects.as_ref().map_or(0, |log| log.bytes_max());
        self.fixed_bytes() + self.heat.bytes_max() + self.state.bytes_max() + objects + history
    }
    fn fixed_bytes(&self) -> usize {
        Extents::bytes(self.geometry()) + scratch_bytes(self.geometry())
    }
    /// DRAM that a store of this geometry may come to
    /// ([`StoreInfo::dram_bytes_max`](crate::StoreInfo::dram_bytes_max)) without bad flash pages
    /// and, if history has no bound, without older versions.
    #[must_use]
    pub fn dram_needed(geometry: Geometry, config: StoreConfig) -> usize {
        let config = bounded(config, geometry).0;
        let mut state = State::new(geometry, config.table_limit);
        state.page_leaves(config.leaf_bytes());
        if config.victims == Victims::LongestChains {
            state.count_chains();
        }
        let history = if config.history_bytes == usize::MAX { 0 } else { config.history_bytes };
        let heat = Heat::new(geometry.subpages).bytes_max();
        let objects = ObjectLog::of(geometry).map_or(0, |log| log.bytes_max());
        let extents = Extents::bytes(geometry) + scratch_bytes(geometry);
        extents + heat + state.bytes_max() + objects + history
    }
    /// The DRAM for the locations of objects (`StoreConfig::leaf_bytes`) with which a store of this
    /// geometry takes at most about `bytes` bytes. `usize::MAX` if it takes no more with all of
    /// them in DRAM.
    #[must_use]
    pub fn leaf_bytes_within(geometry: Geometry, config: StoreConfig, bytes: usize) -> usize {
        let needed = |leaf_bytes| Store::dram_needed(geometry, StoreConfig { leaf_bytes, ..config });
        if !geometry.objects || needed(usize::MAX) <= bytes {
            return usize::MAX;
        }
        // What came once as a block is no slot later, nor the other way round.
        (bytes.saturating_sub(needed(0)) / 8 * 5).max(least_leaf_bytes(geometry))
    }
    /// DRAM for history and waiting journal pages, which [`StoreConfig::history_bytes`] bounds.
    pub fn history_bytes(&self) -> usize {
        let committing = self.commit.as_ref().map_or(0, |c| c.pages.len());
        let sent = self.outbox.iter().filter(|(_, io)| matches!(io, super::Io::Write { .. })).count();
        self.state.history_bytes() + (self.journal.sealed.len() + committing + sent) * SUBPAGE_BYTES
    }

    /// Names the state with the next token, without writes not yet reported as ended. The token
    /// holds once [`Store::durable_token`] has reached it.
    pub fn sync(&mut self) -> Result<u64, WriteError> {
        self.check()?;
        let token = self.state.next_token();
        let keep = self.config.keep_tokens.max(1);
        if self.state.tokens().is_full() && self.state.tokens().superfluous(keep).is_empty() {
            return Err(TableFull.into());
        }
        let period = self.config.restamp_after.max(1);
        if let Some(oldest) = self.state.tokens().oldest_pinned().filter(|oldest| token - oldest > 2 * period) {
            return Err(WriteError::TokenTooOld(oldest));
        }
        if token.is_multiple_of(period) {
            self.record(Record::Restamp { token })?;
        }
        if self.state.tokens().is_full() {
            // A crash may come between this record and the next: there is never one token too many
            // for an anchor.
            for old in self.state.tokens().superfluous(keep) {
                self.record(Record::Drop { token: old })?;
            }
        }
        self.record(Record::Token { token })?;
        if let Some((age, clock)) = self.clock.now() {
            self.record(Record::Time { token, age, clock })?;
        }
        for old in self.state.tokens().superfluous(keep) {
            self.record(Record::Drop { token: old })?;
        }
        self.drop_aged()?;
        self.drop_for_space()?;
        (self.uncommitted, self.space_checked) = (0, (0, 0));
        self.commit_wanted = true;
        Ok(token)
    }
    /// The newest token that is durable; 0 for none.
    pub fn durable_token(&self) -> u64 {
        self.durable_token
    }
    /// The tokens that a crash would leave, ascending: without a named one that is not yet durable,
    /// but with those that it is to replace.
    pub fn durable_tokens(&self) -> &[u64] {
        &self.durable_tokens
    }
    /// Whether a roll back removed a named token: it will never be durable.
    pub fn is_gone(&self, token: u64) -> bool {
        let is_behind =
            token < self.state.next_token() && self.state.tokens().newest().is_none_or(|newest| newest < token);
        // 0 is what a store says that keeps nothing.
        token > 0 && (is_behind || self.gone.contains(token))
    }
    /// Drops all tokens that are not read. Overwritten data is then dead at once, and a crash
    /// leaves an empty pool.
    pub fn forget_tokens(&mut self) -> Result<(), WriteError> {
        self.check()?;
        let tokens = self.state.tokens();
        let all: Vec<u64> = tokens.as_slice().iter().map(|t| t.token).filter(|token| !tokens.is_read(*token)).collect();
        all.into_iter().try_for_each(|token| self.record(Record::Drop { token }))
    }
    /// Drops the tokens that are neither pinned nor read, but for the newest `keep`. Returns how
    /// many. Durable once [`Store::is_quiet`].
    pub fn drop_tokens(&mut self, keep: usize) -> Result<usize, WriteError> {
        self.check()?;
        let old = self.state.tokens().superfluous(keep.max(1));
        for token in &old {
            self.record(Record::Drop { token: *token })?;
            self.commit_wanted = true;
        }
        Ok(old.len())
    }
    /// Keeps a token whatever the policy says, or no more. Returns whether there is such a token.
    pub fn pin(&mut self, token: u64, pinned: bool) -> Result<bool, WriteError> {
        self.check()?;
        let known = self.state.tokens().contains(token);
        if known {
            self.record(Record::Pin { token, pinned })?;
            self.commit_wanted = true;
        }
        Ok(known)
    }
    /// One more reader of a token's state, which stays until [`Store::end_read`]. Returns whether
    /// there is such a token. In DRAM alone: the next opening finds it kept as before.
    pub fn begin_read(&mut self, token: u64) -> bool {
        self.state.begin_read(token)
    }
    /// One reader less.
    pub fn end_read(&mut self, token: u64) {
        self.state.end_read(token);
    }
    /// Records again when tokens were made, which is at the beginning of the journal behind a
    /// checkpoint.
    pub(super) fn record_times(&mut self) -> Result<(), WriteError> {
        let times = self.state.tokens().times().to_vec();
        times.into_iter().try_for_each(|t| self.record(Record::Time { token: t.token, age: t.age, clock: t.clock }))
    }
}
