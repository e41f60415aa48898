//! Media, for programs that open one by themselves.

/// Why there is no device at a socket, or why it cannot be used.
///
/// ```
/// use fulgurite::media::SocketError;
/// use fulgurite::{Error, Fulgurite, Medium};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let socket = directory.path().join("flash.socket");
/// let start = || Fulgurite::builder(Medium::device(&socket)).dram("8M").start();
/// // A program may start a device, or try again.
/// let Some(Error::Device(SocketError::Socket { path, .. })) = start().err() else {
///     panic!("nobody serves a device there");
/// };
/// assert_eq!(path, socket);
/// // What is there is something else, and stays as it is.
/// std::fs::write(&socket, "text")?;
/// assert!(matches!(start().err(), Some(Error::Device(SocketError::NotASocket { .. }))));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_device::SocketError;

/// How an emulated device behaves.
///
/// ```
/// use std::time::Duration;
///
/// use fulgurite::media::EmulatedConfig;
///
/// // 64 MiB of a slow medium, which serves eight requests at a time.
/// let slow = EmulatedConfig {
///     read_latency: Duration::from_millis(1),
///     planes: 8,
///     ..EmulatedConfig::new(16_384)
/// };
/// assert_eq!(slow.write_latency, Duration::from_micros(100));
/// ```
pub use fulgurite_flash::EmulatedConfig;

/// A device that a thread of this process plays, with the latencies of flash.
///
/// ```
/// use std::sync::Arc;
/// use std::time::{Duration, Instant};
///
/// use fulgurite::Memory;
/// use fulgurite::media::{EmulatedConfig, EmulatedFlash};
/// use fulgurite::runtime::Runtime;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let latency = Duration::from_millis(2);
/// let config = EmulatedConfig { read_latency: latency, ..EmulatedConfig::new(4096) };
/// let flash = Arc::new(EmulatedFlash::new(config)?);
/// // What is there already is read, and the rest is known to be zeros.
/// let runtime = Runtime::builder(flash).dram(8 << 20).existing(16 << 20).build()?;
/// let at = runtime.reserve_shared(4096)?;
/// let begun = Instant::now();
/// runtime.run(|m| m.read_bytes(at, &mut [0; 8]))?;
/// assert!(begun.elapsed() >= latency);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_flash::EmulatedFlash;

/// Which file or block device to use, and how.
///
/// ```
/// use fulgurite::media::{FileConfig, FileFlash, Flash};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("flash");
/// let made = FileFlash::open(&FileConfig::create(&path, 1 << 20))?;
/// drop(made);
/// // A later run finds it. It does not make what is there.
/// let found = FileFlash::open(&FileConfig::existing(&path))?;
/// assert_eq!(found.subpages(), 256);
/// assert!(FileFlash::open(&FileConfig::create(&path, 1 << 20)).is_err());
/// # Ok(())
/// # }
/// ```
pub use fulgurite_flash::FileConfig;

/// A file or block device as flash: subpage i is its bytes from 4096 i on.
///
/// ```
/// use std::sync::Arc;
///
/// use fulgurite::Memory;
/// use fulgurite::media::{FileConfig, FileFlash};
/// use fulgurite::runtime::Runtime;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("flash");
/// let flash = Arc::new(FileFlash::open(&FileConfig::create(&path, 16 << 20))?);
/// for warning in flash.warnings() {
///     eprintln!("{warning}");
/// }
/// let runtime = Runtime::builder(flash).dram(8 << 20).build()?;
/// let at = runtime.reserve_shared(4096)?;
/// runtime.run(|m| m.write_bytes(at, b"hello"))?;
/// // What is written reaches the file when a frame is needed, or now.
/// runtime.write_back()?;
/// assert!(std::fs::read(&path)?[at.linear() as usize..].starts_with(b"hello"));
/// # Ok(())
/// # }
/// ```
pub use fulgurite_flash::FileFlash;

/// A medium, whichever it is.
///
/// ```
/// use std::error::Error;
/// use std::sync::Arc;
///
/// use fulgurite::media::{EmulatedConfig, EmulatedFlash, Flash, MemoryFlash};
/// use fulgurite::runtime::Runtime;
///
/// # fn main() -> Result<(), Box<dyn Error>> {
/// /// The medium for an experiment, by the number of subpages.
/// fn medium(subpages: u32, has_latency: bool) -> Result<Arc<dyn Flash>, Box<dyn Error>> {
///     Ok(match has_latency {
///         true => Arc::new(EmulatedFlash::new(EmulatedConfig::new(subpages))?),
///         false => Arc::new(MemoryFlash::new(subpages)?),
///     })
/// }
/// let flash = medium(4096, false)?;
/// println!("{}", flash.describe());
/// assert_eq!(flash.subpages(), 4096);
/// let runtime = Runtime::builder(flash).dram(8 << 20).build()?;
/// # drop(runtime);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_flash::Flash;

/// Flash that is plain memory, for tests.
///
/// ```
/// use std::sync::Arc;
///
/// use fulgurite::Memory;
/// use fulgurite::media::MemoryFlash;
/// use fulgurite::runtime::Runtime;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flash = Arc::new(MemoryFlash::new(4096)?);
/// let runtime = Runtime::builder(flash.clone()).dram(8 << 20).build()?;
/// let at = runtime.reserve_shared(4096)?;
/// runtime.run(|m| m.write_bytes(at, b"hello"))?;
/// runtime.write_back()?;
/// // A test may check what reached it.
/// let mut written = [0; 5];
/// flash.storage().read(at.linear() as usize, &mut written);
/// assert_eq!(&written, b"hello");
/// # Ok(())
/// # }
/// ```
pub use fulgurite_flash::MemoryFlash;

/// Why a medium with versions did not do what it was asked for.
/// [`Fulgurite`](crate::Fulgurite) says the same as a [`PoolError`](crate::pool::PoolError).
///
/// ```
/// use fulgurite::media::VersionError;
/// use fulgurite::{Fulgurite, Medium, SyncError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.pool");
/// let memory = Fulgurite::builder(Medium::new_pool(&path, "16M")).dram("8M").start()?;
/// let token = memory.sync()?;
/// let Err(SyncError::Version(error)) = memory.runtime().roll_back(token + 1) else {
///     panic!("there is no such token");
/// };
/// assert_eq!(error, VersionError::NoToken { token: token + 1, kept: vec![token] });
/// // It was refused, so that nothing has changed.
/// assert!(error.is_refusal());
/// # Ok(())
/// # }
/// ```
pub use fulgurite_flash::VersionError;

/// How a file is driven. [`FileMode`] has an example.
pub use fulgurite_flash::FileBackend;
/// Whether the file of a [`FileConfig`] exists.
///
/// ```
/// use fulgurite::media::{FileBackend, FileConfig, FileFlash, FileMode, Flash};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("flash");
/// FileFlash::open(&FileConfig::create(&path, 1 << 20))?;
/// // Half of it, by one thread that reads and writes.
/// let mode = FileMode::Existing { bytes: Some(512 << 10) };
/// let backend = FileBackend::Threads(1);
/// let config = FileConfig { mode, backend, ..FileConfig::existing(&path) };
/// assert_eq!(FileFlash::open(&config)?.subpages(), 128);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_flash::FileMode;

/// What went wrong with a request of flash.
///
/// ```
/// use fulgurite::AccessError;
/// use fulgurite::media::FlashError;
///
/// /// Whether to restore an older state, and not to ask again.
/// fn is_lost(error: &AccessError) -> bool {
///     matches!(error, AccessError::Flash { source: FlashError::Corrupt, .. })
/// }
/// assert!(!is_lost(&AccessError::ShuttingDown));
/// println!("{}", FlashError::Corrupt);
/// ```
pub use fulgurite_flash::FlashError;
/// Why a medium could not be opened.
///
/// ```
/// use fulgurite::media::{FileConfig, FileFlash, MemoryFlash, OpenError};
///
/// assert!(matches!(MemoryFlash::new(0), Err(OpenError::Size { .. })));
/// let missing = FileFlash::open(&FileConfig::existing("/nowhere/flash"));
/// println!("{}", missing.err().expect("there is none"));
/// ```
pub use fulgurite_flash::OpenError;
