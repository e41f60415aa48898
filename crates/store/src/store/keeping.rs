//! How long what can be dropped is kept: the pool's time, dropped tokens, and the division of the
//! bound for DRAM.

use std::collections::VecDeque;
use std::ops::Range;

use fulgurite_format::SUBPAGE_BYTES;

use super::config::StoreConfig;
use crate::geometry::Geometry;
use crate::objects::{OLDER_SLOT_BYTES, SLOT_PIECE_BYTES};
use crate::state::OLD_BUCKET_BYTES;
use crate::tokens::TokenTime;

/// The least [`StoreConfig::history_bytes`]: the journal pages of two small commits and some
/// versions.
const HISTORY_MIN: usize = 512 << 10;
/// The part of it for pages of a checkpoint and of summaries that wait to be sent, and for the
/// batch that reaches a limit.
const SLACK: usize = 32 * SUBPAGE_BYTES;

/// The pool's own time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Clock {
    pub age: u64,
    /// What the clock said last. None when the pool was never given the time.
    last: Option<u64>,
    /// The pool is given the time in this life.
    runs: bool,
}

impl Clock {
    /// Goes on behind the newest token of which the time is known.
    pub(super) fn after(newest: Option<&TokenTime>) -> Clock {
        Clock { age: newest.map_or(0, |t| t.age), last: newest.map(|t| t.clock), runs: false }
    }
    pub fn tick(&mut self, clock: u64) {
        self.age = self.age.saturating_add(clock.saturating_sub(self.last.unwrap_or(clock)));
        (self.last, self.runs) = (Some(clock), true);
    }
    /// The pool's time, and the clock's. None when the pool is not given the time.
    pub fn now(&self) -> Option<(u64, u64)> {
        self.last.filter(|_| self.runs).map(|clock| (self.age, clock))
    }
}

/// The latest roll backs. A waiter for a token returns long before this number of others roll back
/// behind it.
const ROLL_BACKS: usize = 64;

/// Which tokens were named in this life of the pool and no longer exist, because the pool was
/// rolled back to before them.
#[derive(Clone, Debug, Default)]
pub(super) struct DroppedTokens(VecDeque<Range<u64>>);

impl DroppedTokens {
    /// Tokens above this one and below `next_token`, which is not named yet.
    pub(super) fn rolled_back(&mut self, to: u64, next_token: u64) {
        self.0.retain(|gone| gone.start <= to);
        if self.0.len() == ROLL_BACKS {
            self.0.pop_front();
        }
        self.0.push_back(to + 1..next_token);
    }
    pub fn contains(&self, token: u64) -> bool {
        self.0.iter().any(|gone| gone.contains(&token))
    }
}

/// Divides the bound for DRAM: the journal's share by `commit_after`, the table's by its limit, and
/// the checksums' as a number of them.
pub(super) fn bounded(config: StoreConfig, geometry: Geometry) -> (StoreConfig, usize) {
    if config.history_bytes == usize::MAX {
        return (config, usize::MAX);
    }
    let bytes = config.history_bytes.max(HISTORY_MIN);
    // A quarter: pages that wait, twice as many while a commit is under way, the same in that, and
    // once more on their way.
    let divided = bytes - SLACK;
    let commit_after = config.commit_after.min(divided / 4 / (6 * SUBPAGE_BYTES)).max(2);
    // Half of the rest is for entries; their memory grows by an eighth.
    let half = (divided - divided / 4) / 2;
    let entries = half / 9 * 8 / 16;
    let table_limit = config.table_limit.min(geometry.pages().saturating_add(entries.try_into().unwrap_or(u32::MAX)));
    // And half for checksums: a power of two of buckets, and while they grow the ones before, too.
    // The table takes seven in eight, and only when it is less than half full of these does it
    // clear its gaps instead of growing (hashbrown, `reserve_rehash`). An object has a slot
    // besides, of which there may be a piece more than are used.
    let (piece, slots) = if geometry.objects { (SLOT_PIECE_BYTES, OLDER_SLOT_BYTES) } else { (0, 0) };
    let buckets = ((half - piece) * 2 / (3 * OLD_BUCKET_BYTES + slots) + 1).next_power_of_two() / 2;
    (StoreConfig { history_bytes: bytes, commit_after, table_limit, ..config }, buckets / 16 * 7)
}

/// How many subpages may be overwritten between two syncs before DRAM for their older contents is
/// full ([`StoreConfig::history_bytes`]), when no other token keeps any. There is room for at least
/// this number.
#[must_use]
pub fn overwritten_max(geometry: Geometry, history_bytes: usize) -> u64 {
    let (config, checksums) = bounded(StoreConfig { history_bytes, ..StoreConfig::default() }, geometry);
    // An entry for each version, and one for what it hides.
    let entries = config.table_limit.saturating_sub(geometry.pages()) / 2;
    u64::from(entries).min(checksums as u64)
}
