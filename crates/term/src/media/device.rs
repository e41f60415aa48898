//! The medium behind a device's firmware: judged before anything is created, then opened.
//!
//! Invariant: [`Plan::of`] creates and changes nothing. After it, [`Plan::open`] fails only by the
//! kernel's word, or in a race.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use fulgurite_backing::{Base, NandBase, NandHistory, OpenBase};
use fulgurite_device::{Device, DeviceConfig};
use fulgurite_flash::{DEPTH_MAX, FileConfig, FileMode, Flash, Layered, NandFlash};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_nand::{Fil, FilConfig, Profile};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::affinity;

use super::contents::{self, Contents};
use super::file_identity;
use super::nand::{self, NandSpec, Scaling};
use super::wear;
use super::{NandChoice, nand_choice, open_base};
use crate::bad_input::{OrBadInput, bad_input};
use crate::checks;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use fulgurite_store::random_id;

/// What is below the firmware.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Below {
    /// The data alone.
    Nothing,
    /// The store, over a model of NAND.
    Nand(NandChoice),
    /// The store, over the data.
    Store,
}

impl Below {
    /// Reads one: `none`, the name of a profile, or else a path.
    pub fn parse(text: &str) -> Result<Below, String> {
        if text == "none" { Ok(Below::Nothing) } else { nand_choice(text).map(Below::Nand) }
    }
    /// What is below when `--store` is given next to `--nand`.
    ///
    /// # Errors
    /// `BadInput` where both say something.
    pub fn instead_of(self, nand: &Below) -> Result<Below> {
        if *nand != Below::Nothing {
            bad_input!("--nand {nand} has a store of its own; leave --store out");
        }
        Ok(self)
    }
}

impl std::fmt::Display for Below {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Below::Nothing => f.write_str("none"),
            Below::Nand(nand) => nand.fmt(f),
            Below::Store => f.write_str("store"),
        }
    }
}

impl Behind {
    /// Starts a device over it.
    ///
    /// # Errors
    /// [`Device::start`]'s.
    pub fn start(self, config: DeviceConfig) -> Result<Arc<Device>> {
        Ok(Arc::new(match self {
            Behind::Flat(flash) => Device::start(flash, config)?,
            Behind::Store(store, _) => Device::start_store(*store, config)?,
        }))
    }
    /// The NAND, if that is what is below.
    pub fn nand(&self) -> Option<Arc<NandFlash>> {
        match self {
            Behind::Flat(_) => None,
            Behind::Store(_, nand) => nand.clone(),
        }
    }
}

/// What a device is made of.
pub enum Behind {
    /// This alone: its sectors are the medium's.
    Flat(Arc<dyn Flash>),
    /// A store, and the NAND that it is over, if it is.
    Store(Box<Layered<Pool>>, Option<Arc<NandFlash>>),
}

/// Planes of a built-in profile: as many as the emulated device has.
const PLANES: u32 = 256;
/// Flash pages of the NAND for each of the device, in quarters: reclaim needs room.
const QUARTERS: u64 = 5;
/// The number of flash pages in addition to that.
const PAGES_MORE: u64 = 1 << 14;

/// Minimum DRAM for queue pairs, and for the queues of a store and a buffer on the medium.
const QUEUES_BYTES: u64 = 2 << 20;
/// Minimum DRAM of a store for older states (`StoreConfig::history_bytes`).
const HISTORY_BYTES_MIN: u64 = 512 << 10;

/// What is to be opened.
#[derive(Debug)]
pub struct Plan {
    bytes: u64,
    data: Option<(PathBuf, FileMode)>,
    nand: Option<(Profile, FilConfig)>,
    /// A store is over the data, without NAND.
    over_data: bool,
    /// The file of the NAND's wear, where the data are kept.
    wear: Option<PathBuf>,
    /// What else is there, in the file of the data or of the wear, is used up.
    force: bool,
}

/// Where a device's data are kept, and how worn its NAND is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept<'p> {
    /// The data; none: nowhere.
    pub data: Option<&'p Path>,
    /// The wear; none: next to the data.
    pub wear: Option<&'p Path>,
    /// Also where they hold something else. A store that is there is used as it is nevertheless.
    pub force: bool,
}

impl Plan {
    /// Judges it. Nothing is created.
    ///
    /// # Errors
    /// `BadInput`.
    pub fn of(below: &Below, size: Option<u64>, kept: Kept<'_>, machine: &Machine) -> Result<Plan> {
        let profile = match below {
            Below::Nothing | Below::Store => None,
            Below::Nand(nand) => Some((nand, super::nand_profile(nand)?)),
        };
        if let Some(size) = size {
            if !size.is_multiple_of(SUBPAGE_BYTES as u64) {
                bad_input!("--size {size} is no multiple of 4096; choose for example 8G");
            }
            if size / SUBPAGE_BYTES as u64 >= u64::from(u32::MAX) {
                bad_input!("--size {} is more than a device can have; choose less than 16T", format_bytes(size));
            }
        }
        if let Some((nand, profile)) = profile {
            let planes = matches!(nand, NandChoice::BuiltIn(_)).then_some(PLANES);
            let scaling = Scaling { planes, pages_per_block: None };
            return Plan::of_nand(nand, profile, scaling, size, kept, machine);
        }
        if kept.wear.is_some() {
            bad_input!("--wear is of NAND, and there is none; add --nand, for example --nand mlc, or leave it out");
        }
        let over_data = *below == Below::Store;
        let (bytes, data) = match (kept.data, size) {
            (None, None) => bad_input!("a device without --data needs --size; write for example --size 8G"),
            (None, Some(size)) => {
                memory(size, machine)?;
                (size, None)
            }
            (Some(path), size) => {
                let (bytes, mode) = file(path, size)?;
                if matches!(mode, FileMode::Existing { .. }) && !over_data && !kept.force {
                    contents::is_no_store(path)?;
                }
                (bytes, Some((path.to_owned(), mode)))
            }
        };
        let plan = Plan { bytes, data, nand: None, over_data, wear: None, force: kept.force };
        if over_data {
            geometry_over_data(bytes)?;
            plan.makes()?;
        }
        Ok(plan)
    }
    /// Judges what its store is to keep.
    ///
    /// # Errors
    /// `BadInput` where there is none.
    pub fn store(&self, keep_tokens: u32, keep_age: Option<Duration>) -> Result<StoreConfig> {
        if self.nand.is_none() && !self.over_data && (keep_tokens != 1 || keep_age.is_some()) {
            bad_input!("--keep-tokens and --keep-age are a store's; add --store or --nand, or leave them out");
        }
        let mut config = StoreConfig::default();
        config.keep_tokens = keep_tokens as usize;
        // A program that lives when the device dies finds its own again.
        config.temporary_stays = true;
        config.keep_age = keep_age.map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        Ok(config)
    }
    /// Judges a budget for the firmware's DRAM, `other` of which is for buffers. Half of the rest
    /// is for older states of the store, half for queue pairs.
    ///
    /// # Errors
    /// `BadInput` where it is too little.
    pub fn keep_to(&self, budget: u64, store: &mut StoreConfig, other: u64) -> Result<()> {
        let geometry = match &self.nand {
            Some((profile, config)) => Some(geometry(self.bytes, &Fil::new(*profile, *config)?)?),
            None if self.over_data => Some(geometry_over_data(self.bytes)?),
            None => None,
        };
        // The least that a store can be bounded by.
        let mut least = *store;
        least.history_bytes = 0;
        let tables = geometry.map_or(0, |geometry| Pool::dram_needed(geometry, least) as u64);
        let needed = tables + other + QUEUES_BYTES;
        if budget < needed {
            bad_input!(
                "--dram {} is too little: a device of {} needs at least {}, {} of it for its store's tables and buffers, {} for --write-cache and \
                 --boot, {} for queues; give more, or choose less --size",
                format_bytes(budget),
                format_bytes(self.bytes),
                format_bytes(needed),
                format_bytes(tables),
                format_bytes(other),
                format_bytes(QUEUES_BYTES)
            );
        }
        if geometry.is_some() {
            store.history_bytes = usize::try_from(HISTORY_BYTES_MIN + (budget - needed) / 2).unwrap_or(usize::MAX - 1);
        }
        Ok(())
    }
    /// The plan of a store over NAND, kept nowhere: its geometry is scaled to the size.
    ///
    /// # Errors
    /// `BadInput`.
    pub fn scaled(name: &str, profile: &str, scaling: Scaling, bytes: u64, machine: &Machine) -> Result<Plan> {
        Plan::of_nand(&name, profile.to_owned(), scaling, Some(bytes), Kept::default(), machine)
    }
    /// The plan of a device over NAND, whose geometry decides what `data` must be.
    fn of_nand(
        nand: &dyn std::fmt::Display,
        profile: String,
        scaling: Scaling,
        size: Option<u64>,
        kept: Kept<'_>,
        machine: &Machine,
    ) -> Result<Plan> {
        let Some(bytes) = size else { bad_input!("a device over NAND needs --size; write for example --size 8G") };
        let pages = bytes / SUBPAGE_BYTES as u64 * QUARTERS / 4 + PAGES_MORE;
        let Ok(pages) = u32::try_from(pages) else {
            bad_input!("--size {} is more than a device over NAND can have; choose less than 12T", format_bytes(bytes))
        };
        let spec = NandSpec { storage: PathBuf::new(), profile, scaling };
        // What is not scaled is a device as it is; no more of it is made than the size takes.
        let fitted = match spec.scaling.planes {
            Some(_) => nand::fitted(&spec, pages, None),
            None => Profile::parse(&spec.profile).map_err(Into::into).and_then(|p| nand::part_of(p, pages)),
        };
        let (profile, config) = fitted.or_bad_input(|error| format!("--nand {nand}: {error}"))?;
        let fil = Fil::new(profile, config)?;
        geometry(bytes, &fil)?;
        let flash_bytes = u64::from(fil.flash_pages()) * SUBPAGE_BYTES as u64;
        let wear = worn(kept)?;
        let data = match kept.data {
            None => {
                memory(flash_bytes, machine)?;
                None
            }
            Some(path) => {
                let (found, mode) = file(path, Some(flash_bytes))?;
                debug_assert_eq!(found, flash_bytes);
                Some((path.to_owned(), mode))
            }
        };
        let plan = Plan { bytes, data, nand: Some((profile, config)), over_data: false, wear, force: kept.force };
        plan.makes()?;
        Ok(plan)
    }
    /// Judges a write buffer of `bytes` bytes for it; returns its sectors.
    ///
    /// # Errors
    /// `BadInput`.
    pub fn write_cache(&self, bytes: u64) -> Result<u32> {
        let most = (DEPTH_MAX * SUBPAGE_BYTES) as u64;
        if self.nand.is_some() || self.over_data {
            bad_input!(
                "--write-cache is for a device without a store (--nand, --store): what a store has not synced is in no state of it, and its log takes \
                 writes as they come; leave it out"
            );
        }
        if bytes == 0 || !bytes.is_multiple_of(SUBPAGE_BYTES as u64) || bytes > most.min(self.bytes) {
            bad_input!(
                "--write-cache {bytes} must be a multiple of 4096, up to {}; write for example 64M",
                format_bytes(most.min(self.bytes))
            );
        }
        Ok((bytes / SUBPAGE_BYTES as u64) as u32)
    }
    /// The file that keeps the wear, where there is NAND and its data are kept.
    pub fn worn(&self) -> Option<&Path> {
        self.wear.as_deref()
    }
    /// Whether a completed write survives this process. A store keeps the state of the last flush.
    pub fn keeps_writes(&self) -> bool {
        self.data.is_some() && self.nand.is_none() && !self.over_data
    }
    /// Whether nothing does, flushed or not.
    pub fn forgets(&self) -> bool {
        self.data.is_none()
    }
    /// Whether only the processor moves its data, so that it may use other processes' frames. The
    /// kernel may still move data of a file after its process has ended.
    pub fn moves_by_cpu(&self) -> bool {
        self.data.is_none()
    }
    /// Opens it. A missing file is made first, and a missing store, which keeps what `keeps` says.
    ///
    /// # Errors
    /// The medium's; `BadInput` where the file holds another device.
    pub fn open(&self, keeps: StoreConfig, interrupt: &Interrupt) -> Result<Behind> {
        if self.over_data {
            return self.open_over_data(keeps, interrupt);
        }
        let Some((profile, config)) = self.nand else {
            let laid = open_base(&self.flat(self.bytes), interrupt)?;
            laid.finish()?;
            return Ok(Behind::Flat(laid.flash));
        };
        let fil = Fil::new(profile, config)?;
        let geometry = geometry(self.bytes, &fil)?;
        let old = !self.makes()?;
        let history = if old {
            let state = self.wear.as_ref().map_or(Ok(None), |path| wear::read(path))?;
            if let (Some(path), Some(state)) = (&self.wear, &state)
                && let Err(error) = Fil::new(profile, config)?.restore(state)
            {
                bad_input!(
                    "the NAND's state in {} cannot be used: {error}; or remove that file, and its wear begins anew",
                    path.display()
                );
            }
            NandHistory::Used(state)
        } else {
            NandHistory::New
        };
        let cells = self.flat(u64::from(fil.flash_pages()) * SUBPAGE_BYTES as u64);
        let base = Base::Nand(Box::new(NandBase { cells, profile, config, history }));
        let laid = open_base(&base, interrupt)?;
        if !old {
            make(&laid.flash, geometry)?;
        }
        laid.finish()?;
        let OpenBase { flash: below, nand, .. } = laid;
        let store = match Pool::open(below, keeps) {
            Ok((store, _)) => store,
            Err(error) if old => bad_input!(
                "--data holds no device over NAND that can be used: {error}; name another path, and one is made there"
            ),
            Err(error) => return Err(error.into()),
        };
        let (found, asked) = (store.geometry(), geometry);
        if (found.extent_pages, found.subpages) != (asked.extent_pages, asked.subpages) {
            bad_input!(
                "--data holds a device of {} with extents of {}, and {} with extents of {} are asked for; use the --size and \
                 --nand that it was made with, or name another path",
                format_bytes(u64::from(found.subpages) << 12),
                format_bytes(u64::from(found.extent_pages) << 12),
                format_bytes(u64::from(asked.subpages) << 12),
                format_bytes(u64::from(asked.extent_pages) << 12)
            );
        }
        Ok(Behind::Store(Box::new(store.into_flash()), nand))
    }
    /// A store without NAND. Its geometry is its own.
    fn open_over_data(&self, keeps: StoreConfig, interrupt: &Interrupt) -> Result<Behind> {
        let old = !self.makes()?;
        let laid = open_base(&self.flat(self.bytes), interrupt)?;
        if !old {
            make(&laid.flash, geometry_over_data(self.bytes)?)?;
        }
        laid.finish()?;
        match Pool::open(laid.flash, keeps) {
            Ok((store, _)) => Ok(Behind::Store(Box::new(store.into_flash()), None)),
            Err(error) if old => {
                bad_input!("--data holds no pool that can be used: {error}; `fulgurite pool check` says more")
            }
            Err(error) => Err(error.into()),
        }
    }
    /// Whether to make a store rather than open one. A new store has its wear written at once, so
    /// without a store the file of the wear belongs to another device.
    ///
    /// # Errors
    /// `BadInput` where something else would be lost.
    fn makes(&self) -> Result<bool> {
        let found = match &self.data {
            Some((path, FileMode::Existing { .. })) => Some((path, Contents::at(path)?)),
            _ => None,
        };
        match found {
            Some((_, Contents::Store)) => return Ok(false),
            Some((path, Contents::Other(what))) if !self.force => {
                let none = if self.over_data { "pool that can be served" } else { "device over NAND" };
                bad_input!(
                    "--data {} holds no {none}, but {what}; name another path, where one is made, or add --force, and what is there is \
                     gone",
                    path.display()
                );
            }
            _ => {}
        }
        if let Some(wear) = self.wear.as_ref().filter(|_| !self.force)
            && let Some(what) = wear::found_at(wear)?
        {
            bad_input!(
                "a device is to be made, and the file of its NAND's state (--wear), {}, exists already: it is {what}; move it away, \
                 choose another path, or add --force, and it is replaced",
                wear.display()
            );
        }
        Ok(true)
    }
    fn flat(&self, bytes: u64) -> Base {
        match &self.data {
            Some((path, mode)) => Base::File(FileConfig { mode: *mode, ..FileConfig::existing(path) }),
            None => Base::memory((bytes / SUBPAGE_BYTES as u64) as u32),
        }
    }
}

/// Makes a store.
fn make(below: &Arc<dyn Flash>, geometry: Geometry) -> Result<()> {
    let made = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Pool::format(below, geometry, random_id()?, made)?)
}

/// The store over data of `bytes` bytes.
fn geometry_over_data(bytes: u64) -> Result<Geometry> {
    let pages = (bytes / SUBPAGE_BYTES as u64) as u32;
    Geometry::usual(pages)
        .or_bad_input(|error| format!("a store over {}: {error}; choose more --size", format_bytes(bytes)))
}

/// The store of a device of `bytes` bytes.
fn geometry(bytes: u64, fil: &Fil) -> Result<Geometry> {
    let subpages = (bytes / SUBPAGE_BYTES as u64) as u32;
    Geometry::new(fil.flash_pages(), fil.extent_pages(), Some(subpages))
        .or_bad_input(|error| format!("--size {} over this NAND: {error}", format_bytes(bytes)))
}

/// The file of the wear of NAND whose data are kept.
fn worn(kept: Kept<'_>) -> Result<Option<PathBuf>> {
    let Some(data) = kept.data else {
        if kept.wear.is_some() {
            bad_input!("--wear is of NAND that is kept; add --data FILE, or leave it out");
        }
        return Ok(None);
    };
    let is_device = std::fs::metadata(data).is_ok_and(|found| found.file_type().is_block_device());
    let wear = match kept.wear {
        None if is_device => bad_input!(
            "--data {} is a block device, next to which no file is kept; add --wear FILE, for how worn the NAND is",
            data.display()
        ),
        None => wear::path_of(data),
        Some(wear) => {
            let parent = checks::parent_of(wear);
            if !parent.is_dir() {
                bad_input!("--wear {}: the directory {} does not exist", wear.display(), parent.display());
            }
            wear.to_owned()
        }
    };
    file_identity::apart_from_wear(&wear, &[("--data", data)])?;
    if std::fs::symlink_metadata(&wear).is_ok_and(|found| !found.is_file()) {
        bad_input!("--wear {} must be a file of its own; choose another path", wear.display());
    }
    // What a program left there that was killed while it wrote is no loss.
    let begun = wear::begun_at(&wear);
    if !kept.force
        && let Some(what) = wear::found_at(&begun)?.filter(|what| *what != wear::STATE)
    {
        bad_input!(
            "the NAND's state is written to {} before that takes the place of {} (--wear), and it is {what}; move it away, choose another \
             path for --wear, or add --force, and it is gone",
            begun.display(),
            wear.display()
        );
    }
    Ok(Some(wear))
}

/// The machine's memory holds what a device without a file comes to write: all of its flash.
fn memory(flash_bytes: u64, machine: &Machine) -> Result<()> {
    // A tenth is left for everybody else.
    if flash_bytes > machine.available_bytes / 10 * 9 {
        bad_input!(
            "the device's flash takes {} of memory, and {} is available; choose less --size, or keep it in a file (--data)",
            format_bytes(flash_bytes),
            format_bytes(machine.available_bytes)
        );
    }
    Ok(())
}

/// The file of a device: how many bytes of it, and whether it is to be made.
fn file(path: &Path, size: Option<u64>) -> Result<(u64, FileMode)> {
    let shown = path.display();
    if matches!(std::fs::symlink_metadata(path), Err(e) if e.kind() == std::io::ErrorKind::NotFound) {
        let Some(size) = size else {
            bad_input!("--data {shown} does not exist; add --size to make it, or name an existing file")
        };
        let parent = checks::parent_of(path);
        if !parent.is_dir() {
            bad_input!("--data {shown}: the directory {} does not exist", parent.display());
        }
        if rustix::fs::access(&parent, rustix::fs::Access::WRITE_OK).is_err() {
            bad_input!("--data {shown} cannot be created: no right to write in {}", parent.display());
        }
        checks::space("--data", &parent, size)?;
        return Ok((size, FileMode::CreateAside { bytes: size }));
    }
    // Judged, opened and locked as for writing, then released.
    let found = fulgurite_flash::claim(path).or_bad_input(|e| format!("--data {e}"))?.bytes()?;
    let bytes = size.unwrap_or(found);
    if found < bytes {
        let (found, bytes) = (format_bytes(found), format_bytes(bytes));
        bad_input!("--data {shown} has {found}, and --size asks for {bytes}; make it larger, or ask for less");
    }
    if bytes == 0 || !bytes.is_multiple_of(SUBPAGE_BYTES as u64) {
        bad_input!("--data {shown} has {bytes} bytes, no whole number of sectors of 4 KiB; add --size");
    }
    Ok((bytes, FileMode::Existing { bytes: Some(bytes) }))
}

/// The core of the firmware: the one that is asked for, else the last, where the host has another.
///
/// # Errors
/// `BadInput` for a core that this process may not use.
pub fn core(asked: Option<usize>) -> Result<Option<usize>> {
    let cores = affinity::cores();
    match asked {
        Some(core) if !cores.contains(&core) => {
            let all: Vec<String> = cores.iter().map(ToString::to_string).collect();
            bad_input!("--core {core} is none that this process may use; choose one of {}", all.join(", "))
        }
        Some(core) => Ok(Some(core)),
        None => Ok(cores.last().copied().filter(|_| cores.len() > 1)),
    }
}
