//! Transactions over containers: optimistic concurrency control in the manner of Silo (Tu, Zheng,
//! Kohler, Liskov and Madden, SOSP 2013, section 4.4).
//!
//! The body of a transaction runs the ordinary operations of the containers, over a memory that
//! keeps their writes to itself and notes their latches instead of taking them. To commit, it
//!
//! 1. pins the subpages that it will write (the only step that may wait or fail; no latch is held);
//! 2. takes the latches of what it changes, in one order for all (Silo's phase 1), and never waits;
//! 3. validates the versions of the latches under which it read (phase 2), or lets go and runs
//!    again;
//! 4. writes, and lets go of the latches with new versions (phase 3).
//!
//! The version of a record is the version of the latch that its container keeps for it in DRAM. So
//! nothing is added to records, and operations outside of transactions conflict with them like
//! transactions of one operation. An absent key has a latch, too, as has each node of a tree. So a
//! key that appears, also in a range that was read, is a conflict. Elements of arrays have no latch
//! of their own, and get one of [`Transactions`].
//!
//! A body may see data of different moments. Then its run does not count, whatever it returns, and
//! a panic in it does not either.

mod bug;
mod keyed;
mod notes;
mod page;
mod staged;

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fulgurite_runtime::{AccessError, Context, Durable};

pub use bug::Bug;
pub use keyed::{Keyed, Ranged, Transact};
pub(crate) use notes::Change;
pub use notes::Tracker;
pub use staged::Staged;
use staged::Stop;

use crate::MemoryId;
use crate::{ByKind, Latch, LatchTable, Memory, VersionLatch};

/// Latches of the elements of arrays, and of what pointers lead to: 32 KiB of DRAM.
const ELEMENT_LATCHES: usize = 1 << 12;
/// Conflicts after which a transaction waits for its turn among all such.
const PATIENCE: u32 = 8;
/// Runs after which a transaction fails. With the longest pause between them, more than a second.
const RUNS_MAX: u32 = 2000;
/// The longest pause between two runs.
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// What the transactions of one memory share. One for each memory.
///
/// ```
/// use fulgurite_memory::{
///     AccessError, Address, HashMap, Heap, PlainMemory, Region, Transactions, VersionLatch,
/// };
/// use fulgurite_sys::Backed;
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = PlainMemory::new(Backed::BasePages)?;
/// let (heap, buckets) = Region::new(Address::from_linear(1 << 20), 2 << 20).split(1 << 20);
/// let heap = Arc::new(Heap::create(&mut memory, heap)?);
/// let accounts = HashMap::<u64, u64, VersionLatch>::create(&mut memory, buckets, heap, 1000, 64)?;
/// let accounts = Arc::new(accounts);
/// accounts.insert(&mut memory, &1, 100)?;
///
/// let transactions = Transactions::new();
/// let moved = transactions.run(&mut memory, |t| {
///     let (from, to) = (t.get(&accounts, &1)?.unwrap_or(0), t.get(&accounts, &2)?.unwrap_or(0));
///     t.put(&accounts, &1, &(from - 30))?;
///     t.put(&accounts, &2, &(to + 30))?;
///     Ok::<u64, AccessError>(30)
/// })?;
/// let now = (accounts.get(&mut memory, &1)?, accounts.get(&mut memory, &2)?);
/// assert_eq!((moved, now), (30, (Some(70), Some(30))));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Transactions {
    elements: LatchTable<VersionLatch>,
    turn: VersionLatch,
    /// The memory that they belong to, which is the first transaction's.
    memory: OnceLock<MemoryId>,
    bug: Option<Bug>,
}

impl Default for Transactions {
    fn default() -> Self {
        Transactions::new()
    }
}

impl Transactions {
    /// None under way.
    #[must_use]
    pub fn new() -> Transactions {
        Transactions {
            elements: LatchTable::new(ELEMENT_LATCHES),
            turn: VersionLatch::default(),
            memory: OnceLock::new(),
            bug: None,
        }
    }
    /// With a planted bug.
    #[doc(hidden)]
    #[must_use]
    pub fn plant(mut self, bug: Bug) -> Transactions {
        self.bug = Some(bug);
        self
    }
    /// DRAM that its latches use.
    pub fn dram_bytes(&self) -> usize {
        size_of::<Self>() + self.elements.bytes()
    }

    /// Runs `body` as a transaction: what it reads and changes through the [`Transaction`] it reads
    /// and changes at one moment. It is run again when that was not so. Then what it returned is
    /// dropped, so it should have no other effects.
    ///
    /// Nothing has changed after an error or a panic of `body`, nor when the job is cancelled or
    /// its deadline passes before the commit. The commit takes a pin for each subpage that is
    /// written.
    ///
    /// # Errors
    /// What `body` returned. [`AccessError::Conflict`] after some 2000 runs.
    /// [`AccessError::TooManyPins`] when more subpages are written than the job has pins. What the
    /// memory says.
    ///
    /// # Panics
    /// With the panic of `body`.
    pub fn run<M: Memory, R, E: From<AccessError>>(
        &self,
        memory: &mut M,
        body: impl FnMut(&mut Transaction<'_, M>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.run_as(memory, body)
    }

    /// As [`Transactions::run`], with errors of another type from the transaction's operations.
    ///
    /// # Errors
    /// As [`Transactions::run`].
    ///
    /// # Panics
    /// As [`Transactions::run`].
    pub fn run_as<M: Memory, R, E: From<AccessError>, X: From<AccessError>>(
        &self,
        memory: &mut M,
        mut body: impl FnMut(&mut Transaction<'_, M, X>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.memory.get_or_init(|| memory.id()).check(memory.id())?;
        let mut turn = None;
        for runs in 1..=RUNS_MAX {
            let mut transaction = Transaction::begin(self, memory);
            match catch_unwind(AssertUnwindSafe(|| body(&mut transaction))) {
                Ok(Ok(value)) => match transaction.commit() {
                    Ok(()) => return Ok(value),
                    Err(Stop::Failed(error)) => return Err(error.into()),
                    Err(Stop::Conflict) => {}
                },
                Ok(Err(error)) if transaction.counts() => {
                    if self.bug == Some(Bug::ErrorsCommit) {
                        let _ = transaction.commit();
                    }
                    return Err(error);
                }
                Err(panic) if transaction.counts() => {
                    drop(transaction);
                    resume_unwind(panic);
                }
                // What it saw may explain these.
                Ok(Err(_)) => {}
                Err(panic) => forget(panic),
            }
            drop(transaction);
            if runs == PATIENCE {
                turn = Some(self.turn.lock(memory)?);
            }
            if runs == 1 {
                // It may be enough that another fiber ends.
                memory.yield_now()?;
            } else {
                memory.pause(Duration::from_micros(1 << runs.min(20)).min(PAUSE_MAX))?;
            }
        }
        drop(turn);
        Err(AccessError::Conflict { runs: RUNS_MAX }.into())
    }
}

/// Drops what a panic carried. Where that panics in turn, it stays.
fn forget(panic: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(panic))) {
        std::mem::forget(second);
    }
}

fn is_conflict(error: AccessError) -> bool {
    matches!(error, AccessError::Conflict { .. })
}

/// After a roll back, what was read before it is not so any more.
impl Durable for Transactions {
    fn save(&self, _: &mut Context) -> Result<(), AccessError> {
        Ok(())
    }
    fn rolled_back(&self, _: u64) {
        self.elements.disturb(false);
    }
    fn reload(&self, _: &mut Context) -> Result<(), AccessError> {
        Ok(())
    }
}

/// A transaction under way. It sees its own changes, and nobody else does before it commits.
///
/// Its errors are of type `X`. An operation that failed may have been half done, so a transaction
/// with one that changes something does not commit: it fails with that error.
pub struct Transaction<'m, M: Memory, X = AccessError> {
    staged: Staged<'m, M>,
    elements: &'m LatchTable<VersionLatch>,
    /// What its operations have noted latches and heaps of. After `staged`, which goes first.
    kept: Vec<Arc<dyn Any + Send + Sync>>,
    /// Why it cannot commit.
    failed: Option<AccessError>,
    errors: PhantomData<fn() -> X>,
}

impl<'m, M: Memory, X: From<AccessError>> Transaction<'m, M, X> {
    fn begin(shared: &'m Transactions, memory: &'m mut M) -> Self {
        let staged = Staged::over(memory, shared.bug);
        Transaction { staged, elements: &shared.elements, kept: Vec::new(), failed: None, errors: PhantomData }
    }

    /// The value of `key`: an element of an array, a value of a map or a tree, a blob. Of a pointer
    /// the key is `()`.
    ///
    /// # Errors
    /// As of the container. [`AccessError::Poisoned`] when it was removed.
    pub fn get<C: Transact + ?Sized>(&mut self, container: &C, key: &C::Key) -> Result<Option<C::Value>, X> {
        self.keep(container);
        let found = container.get_staged(&mut self.staged, self.elements, key);
        found.map_err(|error| self.note(error, false))
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// As of the container. The transaction will not commit.
    pub fn put<C: Transact + ?Sized>(&mut self, container: &C, key: &C::Key, value: &C::New) -> Result<(), X> {
        self.keep(container);
        let put = container.put_staged(&mut self.staged, self.elements, key, value);
        put.map_err(|error| self.note(error, true))
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As of the container. The transaction will not commit. An array loses no elements, and a
    /// pointer leads to something: [`AccessError::OutOfRange`].
    pub fn remove<C: Transact + ?Sized>(&mut self, container: &C, key: &C::Key) -> Result<bool, X> {
        self.keep(container);
        let removed = container.remove_staged(&mut self.staged, key);
        removed.map_err(|error| self.note(error, true))
    }

    /// Up to `limit` keys from `from` on and their values, ascending. No key comes or goes in that
    /// range before the commit.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    #[allow(clippy::type_complexity, reason = "keys and values")]
    pub fn range<C: Ranged + ?Sized>(
        &mut self,
        container: &C,
        from: &C::Key,
        limit: usize,
    ) -> Result<Vec<(C::Owned, C::Value)>, X> {
        self.keep(container);
        let found = container.range_staged(&mut self.staged, from, limit);
        found.map_err(|error| self.note(error, false))
    }

    fn keep<C: Transact + ?Sized>(&mut self, container: &C) {
        let Some(container) = container.keep() else { return };
        if !self.kept.iter().any(|kept| Arc::ptr_eq(kept, &container)) {
            self.kept.push(container);
        }
    }

    #[cold]
    fn note(&mut self, error: AccessError, changes: bool) -> X {
        if changes || is_conflict(error) {
            self.failed.get_or_insert(error);
        }
        error.into()
    }

    /// Whether what the body made of what it saw counts.
    fn counts(&self) -> bool {
        !self.failed.is_some_and(is_conflict) && self.staged.is_valid()
    }

    fn commit(&mut self) -> Result<(), Stop> {
        match self.failed {
            None => self.staged.commit(),
            Some(error) if self.counts() => Err(Stop::Failed(error)),
            Some(_) => Err(Stop::Conflict),
        }
    }
}
