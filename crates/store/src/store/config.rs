//! How a store behaves.

use crate::extents::Victims;
use crate::planted::Planted;
use crate::table::INDICES;

/// What happens to data when the process dies (design: "Durability").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The pool may be empty then. Nothing old is kept, so that overwritten data is dead at once.
    Cache,
    /// The state of the last token is there.
    #[default]
    Sync,
}

/// How a store behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoreConfig {
    /// What survives.
    pub durability: Durability,
    /// Tokens kept in addition to those that are pinned, the newest included; at least 1.
    pub keep_tokens: usize,
    /// Tokens that are older are dropped, unless they are pinned or the newest, in the unit of
    /// [`Store::tick`](crate::Store::tick).
    pub keep_age: u64,
    /// Bytes for new data below which the oldest tokens are dropped, those that are pinned and the
    /// newest excepted; 0 for never.
    pub keep_bytes: u64,
    /// The most subpages that may be written and not synced; then writers get
    /// [`WriteError::NoSpace`](crate::WriteError::NoSpace) until a sync.
    pub uncommitted_max: u64,
    /// The most DRAM in bytes for what tokens remember and for pages of the journal that wait, in
    /// addition to what the pool needs when there is one version of everything. Beyond it the
    /// oldest tokens are dropped as above, and then writers get
    /// [`WriteError::NoSpace`](crate::WriteError::NoSpace) until a sync. A value below 512 KiB
    /// counts as 512 KiB. `usize::MAX`: no bound.
    pub history_bytes: usize,
    /// The most DRAM in bytes for the locations of objects: 16 bytes of each. Beyond it, the
    /// location of an object that the oldest kept token sees is on flash alone until it is asked
    /// for. `usize::MAX`: all of them are in DRAM. So they are in pools without objects, and where
    /// nothing survives ([`Durability::Cache`]).
    pub leaf_bytes: usize,
    /// Which extent is reclaimed next.
    pub victims: Victims,
    /// The most entries of the page table.
    pub table_limit: u32,
    /// The indices that entries of the page table can have at all. Only tests change it: there are
    /// 2^30 - 1.
    #[doc(hidden)]
    pub table_indices: u32,
    /// Pages of the journal that wait in DRAM before they are committed without being asked for.
    pub commit_after: usize,
    /// Pages of the journal after which a checkpoint begins, at least; a journal may grow to twice
    /// the last checkpoint.
    pub checkpoint_after: u64,
    /// Tokens after which versions get younger times
    /// ([`Record::Restamp`](fulgurite_format::Record::Restamp)); a pinned token may be twice as
    /// old. Only tests change it: times of 24 bits are misread when they are 2^23 tokens old.
    #[doc(hidden)]
    pub restamp_after: u64,
    /// How many times more often one extent may be filled than another before the contents of the
    /// other are moved, so that it is filled, too.
    pub wear_spread: u32,
    /// Opens a pool of which something that was promised is lost ([`crate::Loss`]), in the last
    /// state that can be read. What was lost is so for good then.
    pub accept_loss: bool,
    /// Temporary pages stay when the pool is opened. The opener serves several processes, and
    /// deletes the pages of one that has ended ([`crate::Pool::drop_temporary`]).
    pub temporary_stays: bool,
    /// Makes and compares no checksums of data, to measure their cost. Only for an empty pool that
    /// keeps nothing ([`Durability::Cache`]): it is empty when it is opened again, so no data is
    /// without a checksum.
    pub unchecked: bool,
    /// A bug on purpose.
    #[doc(hidden)]
    pub planted: Option<Planted>,
}

impl StoreConfig {
    /// [`StoreConfig::leaf_bytes`] as it applies.
    pub(crate) fn leaf_bytes(&self) -> usize {
        if self.durability == Durability::Cache { usize::MAX } else { self.leaf_bytes }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            durability: Durability::Sync,
            keep_tokens: 1,
            keep_age: u64::MAX,
            keep_bytes: 0,
            uncommitted_max: u64::MAX,
            history_bytes: usize::MAX,
            leaf_bytes: usize::MAX,
            victims: Victims::default(),
            table_limit: u32::MAX,
            table_indices: INDICES,
            commit_after: 64,
            checkpoint_after: 1024,
            restamp_after: 1 << 21,
            wear_spread: 64,
            accept_loss: false,
            temporary_stays: false,
            unchecked: false,
            planted: None,
        }
    }
}
