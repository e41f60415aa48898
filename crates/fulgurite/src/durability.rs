//! What is promised of a pool.

use std::time::Duration;

/// What a crash or a power failure leaves of a pool.
///
/// By default, the state of the last [`Fulgurite::sync`](crate::Fulgurite::sync) or a later one,
/// whole. That is [`Durability::Lazy`] without a time: a thread syncs only when a limit would stop
/// writers. Such a sync makes a token, and drops the oldest beyond
/// [`Builder::keep_tokens`](crate::Builder::keep_tokens). A state to return to is pinned
/// ([`Fulgurite::pin_token`](crate::Fulgurite::pin_token)).
///
/// ```
/// use std::time::Duration;
///
/// use fulgurite::{Durability, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("sessions.pool");
/// let durability = Durability::each(Duration::from_secs(1));
/// let medium = Medium::new_pool(path, "16M");
/// let memory = Fulgurite::builder(medium).dram("8M").durability(durability).start()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing is promised, and no token is made: the pool may be empty. It costs least. What is
    /// overwritten is dead at once, so a pool that has no space left is full of what is needed, and
    /// the access that finds no place fails.
    Cache,
    /// A thread syncs by itself, about every `every` or `bytes`, whichever comes first. A program
    /// that stops in good order loses nothing. When writes fill the space between two syncs, it
    /// syncs earlier, and writers wait for that. A write section too large for a whole pool's room
    /// keeps that sync waiting. After two seconds its next change is refused
    /// ([`crate::AccessError::PoolFull`]). Room for the sync is left, as with [`Durability::Sync`].
    Lazy {
        /// The time between two syncs, at least a millisecond; without the time that a sync itself
        /// takes. A sync that fails, as the medium does for some time or has no space, is made
        /// again after a second, until the medium has lost what it had promised.
        every: Duration,
        /// Bytes changed after which it syncs earlier: what was written back to the pool since the
        /// last sync, and what differs from it in DRAM, whole subpages. They are counted every 20
        /// ms, and less often where the DRAM is so large that counting would take more than a
        /// hundredth of a core. Subpages that a job has pinned do not count until they are written.
        bytes: u64,
    },
    /// The last state whose [`Fulgurite::sync`](crate::Fulgurite::sync) returned, and none of
    /// another moment: nothing else syncs. A writer that exceeds the pool's room between two syncs
    /// gets an error, and should sync more often. Room is left for a sync of all that differs in
    /// DRAM. Only the change of one subpage more is refused, so that readers continue and the sync
    /// can be made. A pin counts as a change.
    Sync,
}

impl Default for Durability {
    fn default() -> Durability {
        Durability::Lazy { every: Duration::MAX, bytes: u64::MAX }
    }
}

impl Durability {
    /// A sync each time that this has passed, however much was changed:
    /// `Durability::each(Duration::from_secs(1))`.
    #[must_use]
    pub fn each(every: Duration) -> Durability {
        Durability::Lazy { every, bytes: u64::MAX }
    }

    /// What it asks of a store.
    pub(crate) fn of_store(self) -> fulgurite_store::Durability {
        match self {
            Durability::Cache => fulgurite_store::Durability::Cache,
            Durability::Lazy { .. } | Durability::Sync => fulgurite_store::Durability::Sync,
        }
    }
}
