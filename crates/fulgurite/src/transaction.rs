//! Transactions over the data of a memory, from threads that are not workers.

use std::sync::Arc;

use fulgurite_memory::{AccessError, Transactions};
use fulgurite_runtime::{Context, JobOptions};

use crate::{Error, Fulgurite};

/// Pins of a transaction: subpages that it may write.
const PINS: u32 = 32;

/// A transaction under way, in [`Fulgurite::transaction`].
///
/// ```
/// use std::sync::Arc;
///
/// use fulgurite::latches::VersionLatch;
/// use fulgurite::{Error, Fulgurite, HashMap, Medium, Transaction};
///
/// type Accounts = Arc<HashMap<u64, u64, VersionLatch>>;
///
/// /// A part of several transactions.
/// fn pay(t: &mut Transaction<'_>, accounts: &Accounts, to: u64, sum: u64) -> Result<(), Error> {
///     let has = t.get(accounts, &to)?.unwrap_or(0);
///     t.put(accounts, &to, &(has + sum))?;
///     Ok(())
/// }
///
/// # fn main() -> Result<(), Error> {
/// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
/// let accounts = memory.hash_map::<u64, u64>(1000)?;
/// memory.transaction(|t| pay(t, &accounts, 1, 100))?;
/// assert_eq!(memory.run(|m| accounts.get(m, &1))?, Some(100));
/// # Ok(())
/// # }
/// ```
pub type Transaction<'t> = fulgurite_memory::Transaction<'t, Context, Error>;

/// An error of a body, which knows [`Error`] and not [`AccessError`].
struct BodyError<E>(E);

impl<E: From<Error>> From<AccessError> for BodyError<E> {
    fn from(error: AccessError) -> Self {
        BodyError(Error::Access(error).into())
    }
}

impl Fulgurite {
    /// Runs `body` as a transaction on a worker, and waits for it: everything that it reads and
    /// changes through the [`Transaction`], it reads and changes at one moment. It is serializable
    /// with other transactions and with each single operation of the containers. A crash leaves all
    /// of it or nothing, and so does a token.
    ///
    /// `body` runs again when something that it read was changed before it ended. What it returned
    /// is dropped then, so it should have no other effects. It may borrow from its caller. An error
    /// or a panic of `body` leaves everything as it was, and so does a job that is cancelled or
    /// late.
    ///
    /// The first put of a blob takes space. From then on a sync waits until `body` ends, and what
    /// writes waits for that sync. So `body` should compute before it puts.
    ///
    /// ```
    /// use fulgurite::{Error, Fulgurite, Medium};
    ///
    /// #[derive(Debug)]
    /// enum Refusal {
    ///     TooPoor,
    ///     Memory(Error),
    /// }
    /// impl From<Error> for Refusal {
    ///     fn from(error: Error) -> Refusal {
    ///         Refusal::Memory(error)
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("bank.pool");
    /// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
    /// let accounts = memory.named("accounts").hash_map::<u64, u64>(1000)?;
    /// let names = memory.named("names").blobs::<u64>(1000, 1 << 20)?;
    /// memory.transaction(|t| {
    ///     t.put(&accounts, &1, &100)?;
    ///     t.put(&names, &1, b"Ada")?;
    ///     Ok::<_, Error>(())
    /// })?;
    /// let refused = memory.transaction(|t| {
    ///     let has = t.get(&accounts, &1)?.unwrap_or(0);
    ///     t.put(&accounts, &2, &500)?;
    ///     let rest = has.checked_sub(500).ok_or(Refusal::TooPoor)?;
    ///     t.put(&accounts, &1, &rest)?;
    ///     Ok(rest)
    /// });
    /// // Nothing has changed.
    /// assert!(matches!(refused, Err(Refusal::TooPoor)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `body` returned. [`Error::Access`] with [`AccessError::Conflict`] after some 2000 runs,
    /// and with [`AccessError::TooManyPins`] when it writes more than 32 subpages, or
    /// more than there are frames for ([`Fulgurite::transaction_with`] sets that).
    /// [`Error::InsideJob`] inside a job or another transaction. [`Error::Job`] when `body`
    /// panicked. [`Error::Submit`] when it was not started.
    pub fn transaction<'env, R, E>(
        &self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E> + Send + 'env,
    ) -> Result<R, E>
    where
        R: Send + 'env,
        E: From<Error> + Send + 'env,
    {
        // With few frames, a job cannot have as many.
        let pins = u32::try_from(self.runtime.frames() / self.runtime.workers() as u64).unwrap_or(u32::MAX);
        let pins = pins.saturating_sub(1).clamp(4, PINS);
        self.transaction_with(&JobOptions::new().name("transaction").pins(pins), body)
    }

    /// As [`Fulgurite::transaction`], with a name, a priority, a deadline, a bound on pins (one for
    /// each subpage that is written), a worker.
    ///
    /// # Errors
    /// As [`Fulgurite::transaction`].
    pub fn transaction_with<'env, R, E>(
        &self,
        options: &JobOptions,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<R, E> + Send + 'env,
    ) -> Result<R, E>
    where
        R: Send + 'env,
        E: From<Error> + Send + 'env,
    {
        self.job("transaction", options, |m| {
            self.transactions.run_as(m, |t| body(t).map_err(BodyError)).map_err(|BodyError(error)| error)
        })
    }

    /// For transactions inside jobs: [`Transactions::run`] takes a job's context.
    ///
    /// Such a job may outlive this memory. A transaction under way then commits, or ends with
    /// [`AccessError::ShuttingDown`] without a trace. A job that has not begun is refused
    /// ([`crate::JobError::ShutDown`]). What commits after the last sync is not in the pool.
    ///
    /// ```
    /// use fulgurite::{AccessError, Fulgurite, Medium};
    ///
    /// # fn main() -> Result<(), fulgurite::Error> {
    /// let memory = Fulgurite::builder(Medium::memory("64M")).dram("8M").start()?;
    /// let (map, transactions) = (memory.hash_map::<u64, u64>(1000)?, memory.transactions());
    /// let both = memory.run(move |m| {
    ///     map.insert(m, &1, 7)?;
    ///     transactions.run(m, |t| {
    ///         let one = t.get(&map, &1)?;
    ///         t.put(&map, &2, &8)?;
    ///         Ok::<_, AccessError>((one, t.get(&map, &2)?))
    ///     })
    /// })?;
    /// assert_eq!(both, (Some(7), Some(8)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn transactions(&self) -> Arc<Transactions> {
        self.transactions.clone()
    }
}
