//! Pools: pages, permissions, and what can go wrong with one.

/// A controller of pages, by its number.
///
/// ```
/// use fulgurite::pool::{Controller, Permissions};
/// use fulgurite::{Error, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pages.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let pages = memory.alloc_on(Controller::LOCAL, 1, Permissions::DEFAULT)?;
/// // Addresses carry the number of the controller that is meant by that.
/// assert_eq!(Controller(pages.base.controller()), Controller::FIRST);
/// let elsewhere = memory.alloc_on(Controller(7), 1, Permissions::DEFAULT);
/// assert!(matches!(elsewhere, Err(Error::NoController { there: [Controller::FIRST], .. })));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_format::Controller;
pub use fulgurite_format::PAGE_BYTES;

/// What a sync did, and what it cost.
///
/// ```
/// use fulgurite::pool::Synced;
/// use fulgurite::{Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let users = memory.named("users").hash_map::<u64, u64>(1000)?;
/// memory.run(|m| users.insert(m, &1, 10))?;
/// let synced: Synced = memory.sync_report()?;
/// assert_eq!(memory.tokens()?, [synced.token]);
/// println!("{} subpages in {:?}, writers held {:?}", synced.subpages, synced.took, synced.gate);
/// assert!(synced.subpages > 0 && synced.gate <= synced.took);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_runtime::Synced;

/// Why the files that a pool spans cannot be put together.
///
/// ```
/// use std::path::PathBuf;
///
/// use fulgurite::pool::MemberError;
/// use fulgurite::{Error, Fulgurite, Medium};
/// # use std::sync::Arc;
/// # use fulgurite::media::{FileConfig, FileFlash, Flash};
/// # use fulgurite_store::{Geometry, Members, Pool, random_id};
///
/// /// Which file is not where it was.
/// fn missing(pool: &PathBuf) -> Result<Option<PathBuf>, Error> {
///     match Fulgurite::builder(Medium::pool(pool)).dram("8M").start() {
///         Ok(_) => Ok(None),
///         Err(Error::Members { source: MemberError::Missing { path, .. }, .. }) => Ok(Some(path)),
///         Err(error) => Err(error),
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let [first, second] = ["one.pool", "two.pool"].map(|name| directory.path().join(name));
/// # let member = |path: &PathBuf| -> Result<_, Box<dyn std::error::Error>> {
/// #     let flash = FileFlash::open(&FileConfig::create(path, 8 << 20))?;
/// #     Ok((path.clone(), Arc::new(flash) as Arc<dyn Flash>))
/// # };
/// # let (id, ids) = (random_id()?, [random_id()?, random_id()?]);
/// # let flash = Members::create(vec![member(&first)?, member(&second)?], &ids, 32, id)?.flash();
/// # Pool::format(&flash, Geometry::new(flash.subpages(), 32, None)?, id, 0)?;
/// # drop(flash);
/// // A pool over two files, made by `fulgurite pool create`.
/// assert_eq!(missing(&first)?, None);
/// std::fs::rename(&second, second.with_extension("away"))?;
/// assert_eq!(missing(&first)?, Some(second));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_store::MemberError;
pub use fulgurite_store::Permissions;

/// A pool as a medium of its own, for programs that build the [`Runtime`](crate::runtime::Runtime)
/// by themselves. [`Fulgurite`](crate::Fulgurite) opens one from a
/// [`Medium`](crate::Medium::pool). Geometry and settings are in the layer `fulgurite-store`.
///
/// ```
/// use std::sync::Arc;
///
/// use fulgurite::Memory;
/// use fulgurite::media::{Flash, MemoryFlash};
/// use fulgurite::pool::{Geometry, Pool, StoreConfig, random_id};
/// use fulgurite::runtime::Runtime;
/// use fulgurite::views::Ptr;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096)?);
/// Pool::format(&medium, Geometry::usual(medium.subpages())?, random_id()?, 0)?;
/// let (pool, _) = Pool::open(medium, StoreConfig::default())?;
/// let runtime = Runtime::builder(Arc::new(pool.into_flash())).dram(16 << 20).build()?;
/// let counter = Ptr::<u64>::new(runtime.reserve_shared(4096)?);
/// runtime.run(|m| m.store(counter, 1))?;
/// let one = runtime.sync()?.token;
/// runtime.run(|m| m.store(counter, 2))?;
/// runtime.roll_back(one)?;
/// assert_eq!(runtime.run(|m| m.load(counter))?, 1);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_store::Pool;

/// Why a pool refused something, or could not be made or opened.
///
/// ```
/// use fulgurite::pool::PoolError;
/// use fulgurite::{Error, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let medium = Medium::new_pool(&path, "16M");
/// let memory = Fulgurite::builder(medium).dram("8M").keep_tokens(2).start()?;
/// let (before, after) = (memory.sync()?, memory.sync()?);
/// memory.pin_token(after, true)?;
/// match memory.roll_back(before) {
///     // Somebody wants that state kept. Nothing has changed.
///     Err(Error::Pool(PoolError::TokenPinned { pinned, .. })) => memory.pin_token(pinned, false)?,
///     other => panic!("a pinned token is not dropped: {other:?}"),
/// }
/// memory.roll_back(before)?;
/// assert_eq!(memory.tokens()?, [before]);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_store::PoolError;

/// What opening a [`Pool`] had to read, and what was lost.
///
/// ```
/// use std::sync::Arc;
///
/// use fulgurite::media::{Flash, MemoryFlash};
/// use fulgurite::pool::{Geometry, Pool, RecoverReport, StoreConfig, random_id};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096)?);
/// Pool::format(&medium, Geometry::usual(medium.subpages())?, random_id()?, 0)?;
/// let (pool, _) = Pool::open(medium.clone(), StoreConfig::default())?;
/// let token = pool.sync()?;
/// drop(pool);
///
/// let report: RecoverReport = Pool::open(medium, StoreConfig::default())?.1;
/// assert_eq!((report.token, report.torn, report.lost), (token, None, None));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_store::RecoverReport;

/// Why a pool cannot have another size.
///
/// ```
/// use fulgurite::pool::{PoolError, ResizeError};
/// use fulgurite::{Error, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "32M")).dram("8M").start()?;
/// let Err(Error::Pool(PoolError::Resize(error))) = memory.set_size("16M") else {
///     panic!("an open pool does not shrink");
/// };
/// assert!(matches!(error, ResizeError::Smaller(bytes) if bytes == 32 << 20));
/// assert!(error.to_string().ends_with("use `fulgurite pool resize`"));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_store::ResizeError;

/// How a [`Pool`] is laid out on its medium. [`Pool`] has an example.
pub use fulgurite_store::Geometry;
/// How a [`Pool`] is opened. [`Pool`] has an example.
pub use fulgurite_store::StoreConfig;
pub use fulgurite_store::random_id;
