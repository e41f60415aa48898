//! The state of a token, read while the live pool goes on.

use std::sync::Arc;

use fulgurite_flash::Flash;
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_memory::{AccessError, Container, Directory, Memory, Ptr, RootEntry, Rooted, Stored};
use fulgurite_runtime::{Context, Runtime};

use crate::Error;

/// The state of a token: a memory of its own, with one worker, over the live pool. The token is
/// kept while this lives.
///
/// It is for reading. A job's writes stay in its DRAM or fail, and never reach the pool.
///
/// ```
/// use fulgurite::latches::NoLatch;
/// use fulgurite::{Fulgurite, HashMap, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let pool = Medium::new_pool(&path, "16M");
/// let memory = Fulgurite::builder(pool).dram("8M").keep_tokens(2).start()?;
/// let users = memory.named("users").hash_map::<u64, u64>(1000)?;
/// memory.run(|m| users.insert(m, &1, 10))?;
/// let before = memory.sync()?;
/// memory.run(|m| users.insert(m, &1, 11))?;
/// let then = memory.open_token(before, 8 << 20)?;
/// let old = then.container::<HashMap<u64, u64, NoLatch>>("users")?;
/// assert_eq!(then.run(move |m| old.get(m, &1))?, Some(10));
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    runtime: Runtime,
    directory: Arc<Directory>,
    token: u64,
}

impl Reader {
    /// Of the state of a token, as a medium that keeps the token for as long as it lives.
    pub(crate) fn open(flash: Arc<dyn Flash>, token: u64, dram_bytes: u64) -> Result<Reader, Error> {
        let bytes = u64::from(flash.subpages()) * SUBPAGE_BYTES as u64;
        let runtime = Runtime::builder(flash).dram(dram_bytes).existing(bytes).build()?;
        let directory = runtime.run(move |m| Ok(Directory::open_read_only(m, bytes)))??;
        Ok(Reader { runtime, directory: Arc::new(directory), token })
    }

    /// The token.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Runs `code` on the worker and waits for it. It may borrow from its caller.
    ///
    /// # Errors
    /// What `code` returned.
    ///
    /// # Panics
    /// As `code`, and inside a job.
    pub fn run<'env, T: Send + 'env>(
        &self,
        code: impl FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'env,
    ) -> Result<T, AccessError> {
        self.runtime.run(code)
    }

    /// The container of this name in this state. One worker reads and nothing writes, so
    /// [`NoLatch`](crate::latches::NoLatch) will do.
    ///
    /// # Errors
    /// [`Error::Root`] when there is none, or one of another type.
    pub fn container<C: Container + Send + Sync + 'static>(&self, name: &str) -> Result<Arc<Rooted<C>>, Error> {
        let (directory, name) = (self.directory.clone(), name.to_owned());
        Ok(self.runtime.run(move |m| Ok(Rooted::open(m, &directory, &name, 1)))?.map(Arc::new)?)
    }

    /// The value that has this name in this state.
    ///
    /// # Errors
    /// [`Error::Root`] when there is none, or one of another type.
    pub fn value<T: Stored + Send>(&self, name: &str) -> Result<T, Error> {
        let (directory, name) = (self.directory.clone(), name.to_owned());
        let value = self.runtime.run(move |m| {
            let root: Result<Ptr<T>, _> = directory.root(m, &name);
            match root {
                Ok(at) => m.load(at).map(Ok),
                Err(error) => Ok(Err(error)),
            }
        })?;
        Ok(value?)
    }

    /// All that has a name in this state, in no order.
    ///
    /// # Errors
    /// What the medium says.
    pub fn roots(&self) -> Result<Vec<RootEntry>, Error> {
        let directory = self.directory.clone();
        Ok(self.runtime.run(move |m| Ok(directory.roots(m)))??)
    }
}
