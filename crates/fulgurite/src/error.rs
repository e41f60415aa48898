//! Anything that can go wrong while a memory is set up or used.

use std::fmt;

use fulgurite_device::SocketError;
use fulgurite_format::{Controller, PAGE_BYTES};
use fulgurite_memory::{AccessError, RootError};
use fulgurite_runtime::{BuildError, JobError, SubmitError, SyncError};
use fulgurite_store::{MemberError, PoolError};

/// Anything that can go wrong while a memory is set up or used.
///
/// ```
/// use fulgurite::{Error, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // One type for a function that sets up, runs jobs and syncs.
/// fn count(path: &std::path::Path) -> Result<u64, Error> {
///     let memory = Fulgurite::builder(Medium::pool(path)).dram("8M").start()?;
///     let users = memory.named("users").hash_map::<u64, u64>(1000)?;
///     Ok(memory.run(|m| users.len(m))?)
/// }
/// let error = count("/no/such.pool".as_ref()).unwrap_err();
/// assert!(error.to_string().contains("/no/such.pool"), "{error}");
/// # Ok(())
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// A size that cannot be read.
    #[error(transparent)]
    Unit(#[from] fulgurite_format::ParseUnitError),
    /// The medium cannot be opened.
    #[error(transparent)]
    Open(#[from] fulgurite_flash::OpenError),
    /// There is no device at a socket, or it cannot be used.
    #[error(transparent)]
    Device(#[from] SocketError),
    /// The runtime cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An access failed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A job was not accepted.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// There is no pool there, or it cannot be opened.
    #[error("{}: {source}", .path.display())]
    OpenPool { path: std::path::PathBuf, source: PoolError },
    /// The files or devices that a pool spans cannot be put together.
    #[error(
        "{} is one of several files or devices of a pool: {source} (`--member` is an option of `fulgurite pool`; a command that changes the \
         pool, pin or unpin, writes down where each of them is)", .path.display()
    )]
    Members { path: std::path::PathBuf, source: MemberError },
    /// The pool has no such token, or takes no changes.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A pool of this size cannot be made.
    #[error(transparent)]
    Geometry(#[from] fulgurite_store::GeometryError),
    /// No random numbers can be had for the identity of a pool.
    #[error("cannot read random numbers from /dev/urandom: {0}")]
    Random(std::io::Error),
    /// A root cannot be had or made.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A state could not be named, or made again.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// The medium keeps nothing.
    #[error("{what} needs a pool; start with Medium::pool_or_new, or with another pool")]
    NoPool { what: &'static str },
    /// There is no such controller.
    #[error("there is no controller {controller}; there are {} (0 and 0xFFFFF mean the local one)", list(.there))]
    NoController { controller: Controller, there: &'static [Controller] },
    /// A setting has no meaning for this medium.
    #[error("{setting} has no effect on {medium}: {remedy}")]
    NotHonoured {
        /// The setting, as the builder or the medium calls it.
        setting: &'static str,
        medium: &'static str,
        remedy: &'static str,
    },
    /// The durability that was chosen keeps nothing.
    #[error("with Durability::Cache no state outlives the process, so none can be named; choose Lazy or Sync")]
    OnlyCache,
    /// A job gave no result.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A job cannot wait for another one, whose worker it may occupy.
    #[error("a job cannot start a {what} and wait for it; use Transactions::run with the job's own context")]
    InsideJob { what: &'static str },
    /// A root is in use as something else in this process.
    #[error("root \"{name}\" is open in this process as another type of handle; open it in one way")]
    OpenOtherwise { name: String },
    /// The thread that syncs cannot be started.
    #[error("the thread that syncs cannot be started: {0}")]
    Thread(std::io::Error),
}

/// The message, because that is what `main` prints when it returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<fulgurite_backing::Error> for Error {
    fn from(error: fulgurite_backing::Error) -> Error {
        use fulgurite_backing::Error as Backing;
        match error {
            Backing::Unit(error) => Error::Unit(error),
            Backing::NotHonoured { setting, medium, remedy } => Error::NotHonoured { setting, medium, remedy },
            Backing::Open(error) => Error::Open(error),
            Backing::Device(error) => Error::Device(error),
            Backing::Pool { path, source } => Error::OpenPool { path, source },
            Backing::Members { path, source } => Error::Members { path, source },
            Backing::Geometry(error) => Error::Geometry(error),
            Backing::Random(error) => Error::Random(error),
            Backing::Format(error) => Error::Pool(error),
        }
    }
}

fn list(controllers: &[Controller]) -> String {
    controllers.iter().map(Controller::to_string).collect::<Vec<_>>().join(", ")
}

/// An error of the directory, where only errors of accesses can be returned.
pub(crate) fn access_error(error: RootError) -> AccessError {
    match error {
        RootError::Access(error) => error,
        RootError::NoSpace { pages, free } => {
            let page = PAGE_BYTES as u64;
            AccessError::NoSpace { requested: pages.saturating_mul(page), free: u64::from(free) * page }
        }
        RootError::Damaged { at, .. } => AccessError::Corrupt { what: "directory of roots", at, expected: 1, got: 0 },
        _ => AccessError::Poisoned,
    }
}
