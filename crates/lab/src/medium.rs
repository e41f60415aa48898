//! The flash of a benchmark that measures in its own process: a file, an emulated device, a model
//! of NAND, memory, or another process's device.
//!
//! Everything is checked before anything is made. A file that was made is removed at the end, by
//! the helper process where the program cannot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use fulgurite_backing::{Base, NandBase, NandHistory};
use fulgurite_flash::{EmulatedConfig, FileConfig, FileMode, Flash, PartOfFlash};
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_nand::{Fil, FilConfig, Profile};
use fulgurite_sys::{Arena, Backed, affinity};

use crate::values::FlashChoice;
use fulgurite_harness::checks::{self, FlashPath, Wanted};
use fulgurite_harness::child::pool;
use fulgurite_harness::privileged::Helper;
use fulgurite_term::bad_input::{OrBadInput, base_error};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::machine::Machine;
use fulgurite_term::media::NandChoice;
use fulgurite_term::media::nand::{NandSpec, Scaling};
use fulgurite_term::media::open_base;

/// Planes of a built-in profile of NAND: AstriFlash's, as many as the emulated device has.
const PLANES: u32 = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// A pool of this process, with `extent_pages` flash pages in an extent.
    Pool { extent_pages: u32 },
    /// Flat data. NAND then has a device before it, whose firmware has a store.
    Data,
}

pub struct CheckedMedium {
    choice: FlashChoice,
    share_frames: bool,
    create: bool,
    bytes: u64,
    holds: Holds,
    nand: Option<(Profile, FilConfig)>,
    planes: Option<usize>,
}

pub struct TestBed {
    on: On,
    device_core: Option<usize>,
    made: Option<PathBuf>,
    _helper: Option<Helper>,
}

enum On {
    File(PathBuf),
    Held(Arc<dyn Flash>),
    Device { socket: PathBuf, share_frames: bool },
}

impl CheckedMedium {
    /// Checks a medium for `bytes` bytes, with `other` bytes of other memory. Nothing is made yet.
    pub fn new(wanted: Wanted<'_>, holds: Holds, bytes: u64, other: u64, machine: &Machine) -> Result<CheckedMedium> {
        let create = checks::flash(wanted, 1, bytes)? == Some(FlashPath::New);
        let mut nand = None;
        let in_memory = match wanted.flash {
            FlashChoice::File(_) | FlashChoice::Device(_) => 0,
            FlashChoice::Emulated | FlashChoice::Memory => bytes,
            FlashChoice::Nand(choice) => {
                let (profile, config) = fitted(choice, holds, bytes)?;
                nand = Some((profile, config));
                u64::from(Fil::new(profile, config)?.flash_pages()) * SUBPAGE_BYTES as u64
            }
        };
        checks::memory(in_memory.saturating_add(other), bytes, machine)?;
        let (choice, share_frames) = (wanted.flash.clone(), wanted.share_frames);
        Ok(CheckedMedium { choice, share_frames, create, bytes, holds, nand, planes: None })
    }
    /// Sets the number of planes that an emulated device is to have.
    pub fn planes(self, planes: usize) -> CheckedMedium {
        CheckedMedium { planes: Some(planes), ..self }
    }
    /// Makes it: a file is written in full once.
    pub fn make(self, interrupt: &Interrupt) -> Result<TestBed> {
        let subpages = (self.bytes / SUBPAGE_BYTES as u64) as u32;
        let cores = affinity::cores();
        // The thread that plays a device has its own core, where there is one.
        let core = cores.last().copied().filter(|_| cores.len() > 1);
        let mut medium = TestBed { on: On::File(PathBuf::new()), device_core: None, made: None, _helper: None };
        medium.on = match self.choice {
            FlashChoice::Memory => On::Held(open_base(&Base::memory(subpages), interrupt)?.flash),
            FlashChoice::Emulated => {
                let mut config = EmulatedConfig { core, ..EmulatedConfig::new(subpages) };
                config.planes = self.planes.unwrap_or(config.planes);
                medium.device_core = core;
                On::Held(open_base(&Base::Emulated(config), interrupt)?.flash)
            }
            FlashChoice::Nand(_) => {
                let (profile, config) = self.nand.context("NAND was not judged")?;
                let fil = Fil::new(profile, config)?;
                let cells = Base::memory(fil.flash_pages());
                let nand = NandBase { cells, profile, config, history: NandHistory::New };
                let nand = open_base(&Base::Nand(Box::new(nand)), interrupt)?.flash;
                match self.holds {
                    Holds::Pool { .. } => On::Held(nand),
                    Holds::Data => {
                        medium.device_core = core;
                        let room = (pool::flash_pages(self.bytes), self.bytes);
                        let store = pool::made(&nand, room, false, fil.extent_pages())?;
                        On::Held(fulgurite_backing::on_device(store, core)?)
                    }
                }
            }
            FlashChoice::Device(socket) => On::Device { socket, share_frames: self.share_frames },
            FlashChoice::File(path) => {
                if self.create {
                    let mut helper = Helper::start()?;
                    checks::nothing_there(&path)?;
                    helper.adopt(&path)?;
                    medium._helper = Some(helper);
                    open_base(&Base::File(FileConfig::create(&path, self.bytes)), interrupt)?;
                    medium.made = Some(path.clone());
                }
                On::File(path)
            }
        };
        Ok(medium)
    }
}

/// Memory of `subpages` subpages, all of which is there before anything is timed.
pub fn touched_memory(subpages: u32) -> Result<Arc<dyn Flash>> {
    let storage = Arena::anonymous(subpages as usize * SUBPAGE_BYTES, Backed::BasePages)?;
    storage.zero(0, storage.len());
    Ok(Base::Memory { subpages, storage: Some(Arc::new(storage)) }.open()?.flash)
}

/// The profile of the NAND, and the configuration that holds `bytes` bytes.
fn fitted(choice: &NandChoice, holds: Holds, bytes: u64) -> Result<(Profile, FilConfig)> {
    let spec = NandSpec {
        storage: PathBuf::new(),
        profile: fulgurite_term::media::nand_profile(choice)?,
        scaling: Scaling { planes: matches!(choice, NandChoice::BuiltIn(_)).then_some(PLANES), pages_per_block: None },
    };
    let (pages, extent_pages) = match holds {
        Holds::Pool { extent_pages } => ((bytes / SUBPAGE_BYTES as u64) as u32, Some(extent_pages)),
        Holds::Data => (pool::flash_pages(bytes), None),
    };
    fulgurite_term::media::nand::fitted(&spec, pages, extent_pages)
        .or_bad_input(|error| format!("--flash nand:{choice}: {error}"))
}

impl TestBed {
    /// Opens its first bytes: a file as for a pool, another process's device for this one alone.
    pub fn open(&self, bytes: u64) -> Result<Arc<dyn Flash>> {
        match &self.on {
            On::Held(flash) => Ok(flash.clone()),
            On::File(path) => {
                let mode = FileMode::Existing { bytes: Some(bytes) };
                let base = Base::File(FileConfig { mode, ..FileConfig::existing(path) });
                Ok(base.open().map_err(base_error)?.flash)
            }
            On::Device { socket, share_frames } => {
                let base = Base::Served { socket: socket.clone(), share_frames: *share_frames, alone: true };
                let device = base.open()?.flash;
                let subpages = (bytes / SUBPAGE_BYTES as u64) as u32;
                let part = PartOfFlash::new(device, 0, subpages);
                Ok(Arc::new(part.context("the device has become smaller than it was")?))
            }
        }
    }
    pub fn path(&self) -> Option<&Path> {
        match &self.on {
            On::File(path) => Some(path),
            On::Held(_) | On::Device { .. } => None,
        }
    }
    /// The core of the thread that plays a device in this process, where it has its own.
    pub fn device_core(&self) -> Option<usize> {
        self.device_core
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = std::fs::remove_file(path);
        }
    }
}
