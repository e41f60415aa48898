//! Opens a medium: settings are checked first, then the kind of medium, then what it keeps, then
//! the transport.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fulgurite_device::DeviceFlash;
use fulgurite_flash::{EmulatedConfig, FileConfig, FileFlash, Flash, OpenError};
use fulgurite_format::{PoolId, SUBPAGE_BYTES};
use fulgurite_store::{Driver, Durability, Geometry, GeometryError, Pool, PoolError, Store, StoreConfig, superblock};

use crate::files::Files;
use crate::medium::{Medium, MediumKind};
use crate::{Base, Error, OpenBase, devices};

/// What is asked of a medium. None: it was not asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// What survives in a pool.
    pub durability: Option<Durability>,
    /// How many of the newest tokens a pool keeps.
    pub keep_tokens: Option<usize>,
    /// How old a token may become.
    pub keep_age: Option<Duration>,
    /// Bytes that older tokens leave free.
    pub keep_space: Option<u64>,
    /// A device of this process is before the medium, on a core if one is named. A pool's store
    /// runs in it.
    pub on_device: Option<Option<usize>>,
    /// Bytes up to which a pool grows while it is open.
    pub growing: Option<u64>,
    /// The part of the budget that may hold what tokens remember, as its reciprocal. Without,
    /// [`HISTORY_SHARE`].
    pub history_share: Option<u64>,
    /// The budget of everything, of which a pool's history and a device's copies are parts.
    pub dram_bytes: u64,
}

/// A store below a cache.
#[derive(Clone, Debug)]
pub enum Kept {
    /// In this process.
    Here(Arc<Pool>),
    /// In a device of another process.
    There(Arc<DeviceFlash>),
}

/// A medium that was opened.
#[derive(Clone)]
pub struct Opened {
    /// The medium.
    pub flash: Arc<dyn Flash>,
    /// The store, where it is one.
    pub kept: Option<Kept>,
    /// The files or devices that hold a pool of this process.
    pub files: Option<Arc<Files>>,
    /// Extents up to which the pool grows by itself; 0: it does not.
    pub grows_to: u32,
    /// The file of a flat medium.
    created: Option<Arc<FileFlash>>,
    /// How its store divides a budget.
    store: Option<StoreShare>,
}

/// What a pool's store takes of a budget.
#[derive(Clone, Copy)]
struct StoreShare {
    geometry: Geometry,
    config: StoreConfig,
    history_share: Option<u64>,
}

impl StoreShare {
    /// The store's settings with such a budget: part of it from the start, so that what tokens
    /// remember cannot grow beyond it, as the oldest go first.
    fn of(self, dram_bytes: u64) -> StoreConfig {
        let mut config = self.config;
        let history = dram_bytes / self.history_share.unwrap_or(HISTORY_SHARE).max(1);
        config.history_bytes = usize::try_from(history).unwrap_or(usize::MAX - 1);
        config.leaf_bytes = leaf_bytes(self.geometry, config, dram_bytes);
        config
    }
}

/// Makes a file of this size, all written, whose name is removed before the first write. It is gone
/// when the process ends, however and whenever it does.
///
/// # Errors
/// [`Error::Open`], before anything is created.
pub fn nameless_file(path: &Path, bytes: u64) -> Result<Opened, Error> {
    Ok(Opened::flat(Base::File(FileConfig::create_nameless(path, bytes)).open()?.flash))
}

impl Opened {
    /// Flat flash that is open.
    #[must_use]
    pub fn flat(flash: Arc<dyn Flash>) -> Opened {
        Opened { flash, kept: None, files: None, grows_to: 0, created: None, store: None }
    }
    /// DRAM that its store may come to with such a budget.
    #[must_use]
    pub fn store_bytes(&self, dram_bytes: u64) -> u64 {
        self.store.map_or(0, |store| Store::dram_needed(store.geometry, store.of(dram_bytes)) as u64)
    }
    /// Gives what was created its name. Before that, a program that is killed has made nothing.
    ///
    /// # Errors
    /// What the kernel says, and that something else has the name by now.
    pub fn finish(&self) -> Result<(), Error> {
        self.created.iter().try_for_each(|file| file.finish())?;
        self.files.iter().try_for_each(|files| files.finish())
    }
}

/// The part of the DRAM budget that may hold what tokens remember, unless another was asked for.
pub const HISTORY_SHARE: u64 = 16;

impl Medium {
    /// Refuses settings that it cannot honour.
    ///
    /// # Errors
    /// [`Error::NotHonoured`] for the first of them; [`Error::Unit`] when a size cannot be read.
    pub fn check_settings(&self, settings: &Settings) -> Result<(), Error> {
        let served = matches!(self.kind, MediumKind::Served { .. });
        let Settings {
            durability,
            keep_tokens,
            keep_age,
            keep_space,
            on_device,
            growing,
            history_share: _,
            dram_bytes: _,
        } = *settings;
        let keeps = [
            ("durability", durability.is_some()),
            ("keep_tokens", keep_tokens.is_some()),
            ("keep_age", keep_age.is_some()),
            ("keep_space", keep_space.is_some()),
            ("growing", growing.is_some()),
        ];
        let refused = |setting, remedy| Err(Error::NotHonoured { setting, medium: self.name(), remedy });
        if !self.kept {
            if let Some((setting, _)) = keeps.into_iter().find(|(_, is_set)| *is_set) {
                return refused(setting, "it keeps nothing; leave the setting out, or use a pool");
            }
        } else if served {
            if durability == Some(Durability::Cache) {
                return refused("Durability::Cache", "a device's store always keeps its states; choose Lazy or Sync");
            }
            if let Some((setting, _)) = keeps.into_iter().skip(1).find(|(_, is_set)| *is_set) {
                return refused(setting, "the device decides that; set it with fulgurite device serve");
            }
        }
        if served && on_device.is_some() {
            return refused("on_device", "it is a device already; leave the setting out");
        }
        if self.objects > 0 && (served || !self.kept) {
            return refused("objects", "only the pools of this program pack objects; use Medium::pool_or_new");
        }
        if self.share_frames && !served {
            return refused("share_frames", "it is no device of another process; leave the setting out");
        }
        match &self.kind {
            MediumKind::Memory { size }
            | MediumKind::Emulated { size }
            | MediumKind::File { create: Some(size), .. }
            | MediumKind::FileOrNew { size, .. } => {
                size.bytes()?;
            }
            MediumKind::File { create: None, .. } | MediumKind::Served { .. } => {}
        }
        Ok(())
    }

    /// Opens it. A file that is created for what cannot be opened is removed again.
    ///
    /// # Errors
    /// As [`Medium::check_settings`], before anything is touched; what the medium says.
    pub fn open(&self, settings: &Settings) -> Result<Opened, Error> {
        let opened = self.begin(settings)?;
        opened.finish()?;
        Ok(opened)
    }

    /// As [`Medium::open`], for callers that may still fail: a file that it creates has its name
    /// only after [`Opened::finish`], and is removed when all of the medium is dropped before.
    ///
    /// # Errors
    /// As [`Medium::open`].
    pub fn begin(&self, settings: &Settings) -> Result<Opened, Error> {
        self.check_settings(settings)?;
        let base = match &self.kind {
            MediumKind::Served { socket } if self.kept => {
                let flash = devices::names_states(socket, self.share_frames, settings.dram_bytes)?;
                return Ok(Opened { kept: Some(Kept::There(flash.clone())), ..Opened::flat(flash) });
            }
            MediumKind::Served { socket } => {
                Base::Served { socket: socket.clone(), share_frames: self.share_frames, alone: true }
            }
            MediumKind::File { path, create: Some(size) } if self.kept => {
                return open_pool(self, path, self.make_pool(path, size.bytes()?, settings)?, settings);
            }
            MediumKind::FileOrNew { path, size } => {
                let made = if is_there(path)? { None } else { Some(self.make_pool(path, size.bytes()?, settings)) };
                let on = match made {
                    // Another process has made it meanwhile.
                    None | Some(Err(Error::Open(OpenError::Exists { .. }))) => Files::of_pool(path)?,
                    Some(made) => made?,
                };
                return open_pool(self, path, on, settings);
            }
            MediumKind::File { path, create: None } if self.kept => {
                return open_pool(self, path, Files::of_pool(path)?, settings);
            }
            MediumKind::File { path, create: Some(size) } => Base::File(FileConfig::create_aside(path, size.bytes()?)),
            MediumKind::File { path, create: None } => Base::File(FileConfig::existing(path)),
            MediumKind::Emulated { size } => Base::Emulated(EmulatedConfig::new(subpages(size.bytes()?))),
            MediumKind::Memory { size } => Base::memory(subpages(size.bytes()?)),
        };
        let OpenBase { flash, file, .. } = base.open()?;
        let flash = match settings.on_device {
            Some(core) => devices::flat_on_device(flash, core)?,
            None => flash,
        };
        Ok(Opened { created: file, ..Opened::flat(flash) })
    }

    /// Makes a pool in a file that is created.
    fn make_pool(&self, path: &Path, bytes: u64, settings: &Settings) -> Result<Files, Error> {
        // Judged before anything is created.
        let geometry = match settings.growing {
            Some(limit) => {
                let extent_pages = Geometry::growing_extent_pages(subpages(bytes), subpages(limit));
                Geometry::growing(subpages(bytes), extent_pages, subpages(limit))
            }
            None => Geometry::usual(subpages(bytes)),
        };
        let mut geometry = geometry.map_err(|error| match error {
            // As it was asked for, which may be less than a subpage.
            GeometryError::TooSmall { needed, .. } => GeometryError::TooSmall { found: bytes, needed },
            error => error,
        })?;
        if self.objects > 0 {
            let addressed = self.addressed(geometry.subpages);
            geometry = Geometry::with_objects(subpages(bytes), geometry.extent_pages, addressed)?;
        }
        let id = PoolId(fulgurite_sys::random_bytes().map_err(Error::Random)?);
        let OpenBase { flash, file, .. } = Base::File(FileConfig::create_aside(path, bytes)).open()?;
        make(&flash, geometry, id)?;
        Ok(Files::one(path, file.expect("a file was created")))
    }
    /// Addresses of a pool of objects that would have `data` addresses for other data.
    fn addressed(&self, data: u32) -> u32 {
        let objects = u32::try_from(self.objects).unwrap_or(u32::MAX);
        if self.alone.is_some() { objects } else { data.saturating_add(objects) }
    }
}

fn subpages(bytes: u64) -> u32 {
    u32::try_from(bytes / SUBPAGE_BYTES as u64).unwrap_or(u32::MAX)
}

/// Whether anything has this name.
fn is_there(path: &Path) -> Result<bool, Error> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(source) => Err(OpenError::Path { what: "look at", path: path.into(), source }.into()),
    }
}

fn make(file: &Arc<dyn Flash>, geometry: Geometry, id: PoolId) -> Result<(), Error> {
    // A clock before 1970 says when it was made wrongly, and nothing else.
    let made = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    Pool::format(file, geometry, id, made).map_err(Error::Format)
}

fn geometry_of(on: &Files) -> Result<Geometry, PoolError> {
    let mut driver = Driver::new(&*on.flash(), 4)?;
    Ok(superblock(&mut driver)?.1)
}

/// The most DRAM that the locations of objects may take in a pool of this geometry
/// ([`StoreConfig::leaf_bytes`]). They may take half of the budget, the cache's 33 bits for each
/// subpage included. If the pool could need more, some of the locations are on flash.
#[must_use]
pub fn leaf_bytes(geometry: Geometry, config: StoreConfig, dram_bytes: u64) -> usize {
    let words = u64::from(geometry.subpages) * 33 / 8;
    let bytes = (dram_bytes / 2).saturating_sub(words);
    Store::leaf_bytes_within(geometry, config, usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Makes a pool one that packs objects, with addresses for the medium's objects.
fn packs_objects(
    medium: &Medium,
    path: &Path,
    on: &Files,
    mut config: StoreConfig,
    dram_bytes: u64,
) -> Result<(), Error> {
    let error = |source| Error::Pool { path: path.into(), source };
    let now = geometry_of(on).map_err(error)?;
    config.leaf_bytes = leaf_bytes(now, config, dram_bytes);
    // For a pool that packs them already, it is not known how many addresses are for data.
    let data = if now.objects { Geometry::usual(now.flash_pages())?.subpages } else { now.subpages };
    let addressed = now.subpages.max(medium.addressed(data));
    let wanted = Geometry::with_objects(now.flash_pages(), now.extent_pages, addressed)?;
    if wanted != now {
        let (pool, _) = Pool::open(on.flash(), config).map_err(error)?;
        if let Some(begins) = medium.alone {
            let mut first = [0; SUBPAGE_BYTES];
            let length = pool.read_object(0, &mut first).map_err(error)?;
            let is_empty = length == 0 && pool.info().live == 0;
            if !is_empty && !first[..length].starts_with(begins) {
                return Ok(());
            }
        }
        pool.resize(wanted, &mut || true).map_err(error)?;
    }
    Ok(())
}

/// Gives a pool addresses for as much data as it may grow to. Returns to how many extents that is.
fn may_grow(
    medium: &Medium,
    path: &Path,
    on: &Files,
    mut config: StoreConfig,
    (limit, dram_bytes): (u64, u64),
) -> Result<u32, Error> {
    let error = |source| Error::Pool { path: path.into(), source };
    let now = geometry_of(on).map_err(error)?;
    let limit = subpages(limit);
    let extents = (limit / now.extent_pages).max(now.extents);
    on.may_grow(extents, now.extent_pages)?;
    let mut wanted = Geometry::growing(now.flash_pages(), now.extent_pages, limit)?;
    if now.objects {
        // Judged as large as it may become.
        let addressed = now.subpages.max(medium.addressed(wanted.subpages));
        let large = Geometry::with_objects(extents * now.extent_pages, now.extent_pages, addressed)?;
        wanted = Geometry { extents: now.extents, ..large };
    }
    if wanted.subpages > now.subpages {
        config.leaf_bytes = leaf_bytes(wanted, config, dram_bytes);
        let (pool, _) = Pool::open(on.flash(), config).map_err(error)?;
        pool.resize(wanted, &mut || true).map_err(error)?;
    }
    Ok(extents)
}

fn open_pool(medium: &Medium, path: &Path, on: Files, settings: &Settings) -> Result<Opened, Error> {
    let mut config = StoreConfig::default();
    config.durability = settings.durability.unwrap_or(Durability::Sync);
    config.keep_tokens = settings.keep_tokens.unwrap_or(1).max(1);
    config.keep_age = settings.keep_age.map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    config.keep_bytes = settings.keep_space.unwrap_or(0);
    let history_share = settings.history_share;
    let share = |geometry| StoreShare { geometry, config, history_share };
    let with_history = share(geometry_of(&on).map_err(|source| Error::Pool { path: path.into(), source })?);
    let config_now = with_history.of(settings.dram_bytes);
    if medium.objects > 0 {
        packs_objects(medium, path, &on, config_now, settings.dram_bytes)?;
    }
    let limit = settings.growing.map(|limit| (limit, settings.dram_bytes));
    let grows_to = limit.map_or(Ok(0), |limit| may_grow(medium, path, &on, config_now, limit))?;
    let geometry = geometry_of(&on).map_err(|source| Error::Pool { path: path.into(), source })?;
    // With what it needs when it has grown.
    let large = Geometry { extents: geometry.extents.max(grows_to), ..geometry };
    let (store, config) = (Some(share(large)), share(large).of(settings.dram_bytes));
    let (pool, _) = Pool::open(on.flash(), config).map_err(|source| Error::Pool { path: path.into(), source })?;
    let flash = pool.into_flash();
    let (kept, files) = (Some(Kept::Here(flash.layer().clone())), Some(Arc::new(on)));
    Ok(match settings.on_device {
        Some(core) => Opened { flash: devices::on_device(flash, core)?, kept, files, grows_to, created: None, store },
        None => Opened { flash: Arc::new(flash), kept, files, grows_to, created: None, store },
    })
}
