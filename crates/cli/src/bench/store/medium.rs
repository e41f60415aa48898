//! What is timed lies on this: a file that is made and removed, one that was named, an emulated device, or memory.
//!
//! Everything is judged before anything is made. A file that was made goes at the end, however the program ends: the helper
//! process removes it where the program cannot.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use fulgurite_flash::{EmulatedConfig, EmulatedFlash, FileConfig, FileFlash, FileMode, Flash, MemoryFlash, NandFlash};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Geometry, Pool};
use fulgurite_sys::affinity;

use crate::args::StoreArgs;
use crate::bad_input::bad_input;
use crate::checks::{self, FlashPath};
use crate::child;
use crate::child::protocol::{NandSpec, Scaling};
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::pool::open::{benchmark_id, open_error};
use crate::privileged::Helper;
use crate::progress;
use crate::values::{FlashChoice, NandChoice};

/// Extents of a pool under measurement are of 2 MiB, of less where it would have fewer of them than this.
const EXTENTS_MIN: u32 = 128;
/// Flash pages of an extent at most, and at least.
const EXTENT_PAGES: (u32, u32) = (512, 32);
/// Planes of a built-in profile of NAND: AstriFlash's, as many as the emulated device has.
const PLANES: u32 = 256;

/// What was asked for, judged.
pub struct Judged {
    choice: FlashChoice,
    /// The file must be made.
    create: bool,
    bytes: u64,
}

/// A medium to measure on.
pub struct Medium {
    on: On,
    /// Removed at the end.
    made: Option<PathBuf>,
    _helper: Option<Helper>,
}

enum On {
    File(PathBuf),
    Held(Arc<dyn Flash>),
}

/// Where nobody says what to measure on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Otherwise {
    /// An emulated device.
    Emulated,
    /// A file in the scratch directory.
    File,
}

impl Judged {
    /// Judges what `args` ask for, to hold so many bytes; nothing is made yet.
    ///
    /// # Errors
    /// [`crate::bad_input::BadInput`].
    pub fn new(args: &StoreArgs, otherwise: Otherwise, bytes: u64, machine: &Machine) -> Result<Judged> {
        let scratch = checks::scratch_directory(args.scratch.as_deref(), args.flash.as_ref())?;
        let (choice, mut create) = match (&args.flash, otherwise) {
            (Some(choice), _) => (choice.clone(), args.create),
            (None, Otherwise::Emulated) => (FlashChoice::Emulated, false),
            (None, Otherwise::File) => {
                (FlashChoice::File(scratch.join(format!("fulgurite-store-{}.flash", std::process::id()))), true)
            }
        };
        match &choice {
            FlashChoice::File(path) => {
                create = checks::flash_path(path, create, args.force, bytes, 1)? == FlashPath::New
            }
            _ if args.create => bad_input!("--create needs --flash FILE"),
            FlashChoice::Device(_) => bad_input!(
                "a device has a store of its own, and this measures a store; name what it is to lie on: emulated, memory, \
                 nand:PROFILE, or a file"
            ),
            FlashChoice::Nand(nand) => {
                checks::nand_profile(nand)?;
                checks::memory(bytes, bytes, machine)?;
            }
            _ => checks::memory(bytes, bytes, machine)?,
        }
        Ok(Judged { choice, create, bytes })
    }
    /// Makes it: a file is written in full once.
    ///
    /// # Errors
    /// When it cannot be made; [`crate::interrupt::Interrupted`].
    pub fn make(self, interrupt: &Interrupt) -> Result<Medium> {
        let subpages = (self.bytes / SUBPAGE_BYTES as u64) as u32;
        let mut medium = Medium { on: On::File(PathBuf::new()), made: None, _helper: None };
        medium.on = match self.choice {
            FlashChoice::Memory => On::Held(Arc::new(MemoryFlash::new(subpages)?)),
            FlashChoice::Emulated => {
                let cores = affinity::cores();
                // On a core of its own, where there is one.
                let core = cores.last().copied().filter(|_| cores.len() > 1);
                let flash = EmulatedFlash::new(EmulatedConfig { core, ..EmulatedConfig::new(subpages) })?;
                if core.is_some() {
                    affinity::pin_to(&cores[..1])?;
                }
                On::Held(Arc::new(flash))
            }
            FlashChoice::Nand(choice) => {
                let spec = NandSpec {
                    storage: PathBuf::new(),
                    profile: checks::nand_profile(&choice)?,
                    scaling: Scaling {
                        planes: matches!(choice, NandChoice::BuiltIn(_)).then_some(PLANES),
                        pages_per_block: None,
                    },
                };
                let extent_pages = geometry(self.bytes)?.extent_pages;
                let (profile, config) = child::nand::fitted(&spec, subpages, Some(extent_pages))?;
                let cells = fulgurite_nand::Fil::new(profile, config)?.flash_pages();
                On::Held(Arc::new(NandFlash::new(Arc::new(MemoryFlash::new(cells)?), profile, config)?))
            }
            FlashChoice::Device(_) => unreachable!("refused when it was judged"),
            FlashChoice::File(path) => {
                if self.create {
                    let mut helper = Helper::start()?;
                    checks::nothing_there(&path)?;
                    helper.adopt(&path)?;
                    medium._helper = Some(helper);
                    let bar = progress::share(&format!("writing {}", path.display()));
                    let created =
                        FileFlash::open_with_progress(&FileConfig::create(&path, self.bytes), &mut |done, all| {
                            progress::set_share(&bar, done as f64 / all as f64);
                            if interrupt.asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                        });
                    bar.finish_and_clear();
                    created.map_err(open_error)?;
                    medium.made = Some(path.clone());
                }
                On::File(path)
            }
        };
        Ok(medium)
    }
}

impl Medium {
    /// Opens its first so many bytes; a file as whoever opens a pool does.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn open(&self, bytes: u64) -> Result<Arc<dyn Flash>> {
        match &self.on {
            On::Held(flash) => Ok(flash.clone()),
            On::File(path) => {
                let mode = FileMode::Existing { bytes: Some(bytes) };
                Ok(Arc::new(FileFlash::open(&FileConfig { mode, ..FileConfig::existing(path) }).map_err(open_error)?))
            }
        }
    }
    /// The file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match &self.on {
            On::File(path) => Some(path),
            On::Held(_) => None,
        }
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The geometry of a pool of so many bytes.
///
/// # Errors
/// [`crate::bad_input::BadInput`] when there is none.
pub fn geometry(bytes: u64) -> Result<Geometry> {
    let Ok(pages) = u32::try_from(bytes / SUBPAGE_BYTES as u64) else {
        bad_input!("--size {} is more than a pool can have: 16 TiB", format_bytes(bytes));
    };
    let mut extent = EXTENT_PAGES.0;
    while extent > EXTENT_PAGES.1 && pages / extent < EXTENTS_MIN {
        extent /= 2;
    }
    match Geometry::new(pages, extent, None) {
        Ok(geometry) => Ok(geometry),
        Err(e) => bad_input!("--size {}: {e}", format_bytes(bytes)),
    }
}

/// Subpages that fill a pool to so many percent of what is not reserve.
pub fn subpages_at(geometry: Geometry, percent: f64) -> u32 {
    let extents = geometry.extents - geometry.fixed_extents() - geometry.reserved_extents();
    let subpages = f64::from(extents * geometry.data_pages()) * percent / 100.0;
    (subpages as u32).min(geometry.subpages)
}

/// Makes a pool of a medium, whatever a pool before it has left there.
///
/// # Errors
/// When the medium fails.
pub fn format(flash: &Arc<dyn Flash>, geometry: Geometry) -> Result<()> {
    Ok(Pool::format(flash, geometry, benchmark_id()?, 0)?)
}
