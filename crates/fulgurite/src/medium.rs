//! Where the data lies: what can be chosen, and how it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fulgurite_device::{DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, SocketLink};
use fulgurite_flash::{EmulatedConfig, EmulatedFlash, FileConfig, FileFlash, Flash, MemoryFlash, OpenError};
use fulgurite_format::{PoolId, SUBPAGE_BYTES};
use fulgurite_store::{Driver, Geometry, MemberError, Members, Pool, PoolError, StoreConfig, superblock};

use crate::store::Store;
use crate::{Durability, Error};

/// How long a device of another process may be away, or leave a request without an answer, before requests fail.
const DEVICE_AWAY: Duration = Duration::from_secs(30);

/// Where the data lies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Medium {
    /// A pool that was made before: journaled, with the state of its last token. One that spans several files or devices is opened by any of
    /// them and needs all of them: the others are found beside the one that is named, if they were in its directory, or where they were
    /// last ([`Error::Members`]).
    Pool {
        /// Its file or block device, or any of those that it spans.
        path: PathBuf,
    },
    /// A pool in a file that is created for this, of so many bytes, written once in full. What the journal and reclaim need is
    /// part of it: programs get about five sixths of a large one.
    NewPool {
        /// Where.
        path: PathBuf,
        /// How large; a multiple of 64 KiB.
        bytes: u64,
    },
    /// A file that is created for this, of so many bytes, written once in full. It keeps nothing.
    NewFile {
        /// Where.
        path: PathBuf,
        /// How large; a multiple of 64 KiB.
        bytes: u64,
    },
    /// A file or block device whose contents are overwritten. It keeps nothing.
    File {
        /// Which.
        path: PathBuf,
    },
    /// A device played by a thread on another core, with the latencies of flash.
    Emulated {
        /// How large.
        bytes: u64,
    },
    /// A device of another process (`fulgurite device serve`), which this program has for itself as long as it runs. Its contents are
    /// overwritten, and it keeps nothing. While the device is away, for half a minute at the most, requests wait, and what it had not
    /// flushed is written again when it is back.
    Device {
        /// The socket that it listens at.
        socket: PathBuf,
        /// Hands this program's frames over, so that nothing is copied. Whoever asks for that trusts the device's process with them as it
        /// trusts its own, and a request has no time-out then.
        share_frames: bool,
    },
    /// The store of a device of another process (`fulgurite device serve` with `--nand`), which this program has for itself as long as it
    /// runs, as a pool: with what is in it, names, tokens, sync and roll back. The device's firmware runs the store, and this process none.
    ///
    /// What [`crate::Fulgurite::sync`] has named survives a kill of this program, of the device, and of both. What it has not is gone when this
    /// program ends in whatever way: the device goes back to the newest token before it lets anybody else in. When the device alone dies,
    /// requests wait for half a minute at the most; what was written since the last sync is written again when it is back, for up to 8 MiB of
    /// it, or a quarter of the DRAM budget, which pays for these copies. Where more was written, or pages were deleted or got other permissions since,
    /// every request ends with `Poisoned` instead, and the program is to be started again, at its last sync. Temporary pages stay when the device alone
    /// dies, and go with this program.
    ///
    /// Not as over a pool of this process: how many tokens are kept, and how long, is the device's affair, and so `keep_tokens` and `keep_age` are
    /// refused, as is [`Durability::Cache`] ([`Error::OverDevice`]). Room for a sync is kept as there: who would change more between two syncs
    /// than the device has room for is told [`crate::AccessError::PoolFull`] (with [`Durability::Lazy`] it waits for the sync, up to two seconds), and nobody else. A device of
    /// an older version does not say what room it has. Then any access that needs a frame may be told, and the sync may find no room
    /// either: the program is to be started again, at its last sync.
    DevicePool {
        /// The socket that it listens at.
        socket: PathBuf,
        /// As with [`Medium::Device`].
        share_frames: bool,
    },
    /// Plain memory, for tests.
    Memory {
        /// How large.
        bytes: u64,
    },
}

/// What a pool is to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    pub durability: Durability,
    pub tokens: usize,
    pub age: Option<Duration>,
    /// Bytes that older tokens leave free.
    pub space: u64,
    /// Of everything.
    pub dram_bytes: u64,
    /// A device of this process is before the medium, on a core if one is named; a pool's store runs in it.
    pub on_device: Option<Option<usize>>,
}

impl Keep {
    /// What a device's store keeps is its own affair.
    fn is_left_to_a_device(&self) -> Result<(), Error> {
        let what = match self {
            Keep { durability: Durability::Cache, .. } => "Durability::Cache",
            Keep { tokens: 2.., .. } => "keep_tokens",
            Keep { age: Some(_), .. } => "keep_age",
            _ => return Ok(()),
        };
        Err(Error::OverDevice { what })
    }
}

/// The driver of a device of another process.
fn host_of_another() -> HostConfig {
    HostConfig::of_another_process(DEVICE_AWAY)
}

/// The part of the DRAM budget that holds copies of what was written to a device's store and not named yet, at the most.
const COPIES_SHARE: u64 = 4;

/// The part of the DRAM budget that may hold what tokens remember.
const HISTORY_SHARE: u64 = 16;

/// A medium that was opened.
pub(crate) struct Opened {
    pub flash: Arc<dyn Flash>,
    /// The store, where it is one.
    pub store: Option<Store>,
}

impl Medium {
    pub(crate) fn open(&self, keep: Keep) -> Result<Opened, Error> {
        let subpages = |bytes: u64| u32::try_from(bytes / SUBPAGE_BYTES as u64).unwrap_or(u32::MAX);
        let flat = |flash: Arc<dyn Flash>| {
            let Some(core) = keep.on_device else { return Ok(Opened { flash, store: None }) };
            let flash = DeviceFlash::start(flash, device(core), HostConfig::default())?;
            Ok(Opened { flash: Arc::new(flash), store: None })
        };
        match self {
            Medium::NewFile { path, bytes } => flat(Arc::new(FileFlash::open(&FileConfig::create(path, *bytes))?)),
            Medium::File { path } => flat(Arc::new(FileFlash::open(&FileConfig::existing(path))?)),
            Medium::Emulated { bytes } => flat(Arc::new(EmulatedFlash::new(EmulatedConfig::new(subpages(*bytes)))?)),
            Medium::Device { socket, share_frames } => {
                let link = SocketLink::connect(socket, *share_frames)?.alone();
                let flash = Arc::new(DeviceFlash::over(Arc::new(link), host_of_another()));
                Ok(Opened { flash, store: None })
            }
            Medium::DevicePool { socket, share_frames } => {
                keep.is_left_to_a_device()?;
                let link = SocketLink::connect(socket, *share_frames)?.names_states()?;
                let copies = usize::try_from(keep.dram_bytes / COPIES_SHARE).unwrap_or(usize::MAX);
                let host = host_of_another();
                let host = HostConfig { unflushed_bytes: host.unflushed_bytes.min(copies), ..host };
                let flash = Arc::new(DeviceFlash::over(Arc::new(link), host));
                // Before there are any queues, and for as long as this lives.
                flash.begin()?;
                Ok(Opened { flash: flash.clone(), store: Some(Store::There(flash)) })
            }
            Medium::Memory { bytes } => flat(Arc::new(MemoryFlash::new(subpages(*bytes))?)),
            Medium::NewPool { path, bytes } => {
                // Judged before anything is created.
                let geometry = Geometry::usual(subpages(*bytes))?;
                let id = fulgurite_store::random_id().map_err(Error::Random)?;
                let file: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::create(path, *bytes))?);
                make(&file, geometry, id).inspect_err(|_| remove(path))?;
                open_pool(path, file, keep)
            }
            Medium::Pool { path } => open_pool(path, all_of_pool(path)?, keep),
        }
    }
}

fn make(file: &Arc<dyn Flash>, geometry: Geometry, id: PoolId) -> Result<(), Error> {
    // A clock before 1970 says when it was made wrongly, and nothing else.
    let made = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    Ok(Pool::format(file, geometry, id, made)?)
}

/// A file that was created for a pool that could not be made.
fn remove(path: &Path) {
    // Whoever tries again is told that it is there.
    let _ = std::fs::remove_file(path);
}

/// What a pool lies on: its file or device, or all those that it spans, of which `path` is any. They say from then on that the pool is
/// changed, so that a copy of one that was made before is known as old.
fn all_of_pool(path: &Path) -> Result<Arc<dyn Flash>, Error> {
    let mut open = |path: &Path| -> Result<Arc<dyn Flash>, OpenError> {
        Ok(Arc::new(FileFlash::open(&FileConfig::existing(path))?))
    };
    let error = |source| Error::Members { path: path.into(), source };
    let flash = open(path)?;
    let Some(mut members) = Members::find((path, &flash), &[], &mut open).map_err(error)? else { return Ok(flash) };
    let flash: Arc<dyn Flash> = members.flash();
    let first = Driver::new(&*flash, 4).map_err(PoolError::from);
    let first = first.and_then(|mut driver| Ok(superblock(&mut driver)?));
    let (id, ..) = first.map_err(|source| Error::OpenPool { path: path.into(), source })?;
    if id != members.pool() {
        return Err(error(MemberError::OfAnotherPool { path: path.into() }));
    }
    members.begin_changes().map_err(error)?;
    Ok(flash)
}

fn open_pool(path: &Path, file: Arc<dyn Flash>, keep: Keep) -> Result<Opened, Error> {
    let mut config = StoreConfig::default();
    config.durability = match keep.durability {
        Durability::Cache => fulgurite_store::Durability::Cache,
        Durability::Lazy { .. } | Durability::Sync => fulgurite_store::Durability::Sync,
    };
    config.keep_tokens = keep.tokens.max(1);
    config.keep_age = keep.age.map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    config.keep_bytes = keep.space;
    // Part of the budget from the start, so that what tokens remember cannot grow beyond it: the oldest go first.
    config.history_bytes = usize::try_from(keep.dram_bytes / HISTORY_SHARE).unwrap_or(usize::MAX - 1);
    let (pool, _) = Pool::open(file, config).map_err(|source| Error::OpenPool { path: path.into(), source })?;
    let store = pool.into_flash();
    let pool = Some(Store::Here(store.layer().clone()));
    let Some(core) = keep.on_device else { return Ok(Opened { flash: Arc::new(store), store: pool }) };
    let flash = DeviceFlash::start_store(store, device(core), HostConfig::default())?;
    Ok(Opened { flash: Arc::new(flash), store: pool })
}

/// A device of this process, on a core if one is named.
fn device(core: Option<usize>) -> DeviceConfig {
    // The one host there is asks before each access.
    let firmware = FirmwareConfig { heeds_permissions: false, flushes_itself: false, ..FirmwareConfig::default() };
    DeviceConfig { core, firmware, ..DeviceConfig::default() }
}
