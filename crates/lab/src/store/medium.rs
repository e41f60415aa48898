//! The medium of what is timed ([`crate::medium`]). A served device is refused.

use std::sync::Arc;

use anyhow::Result;
use fulgurite_flash::Flash;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Geometry, Pool};
use fulgurite_sys::affinity;

use crate::args::StoreArgs;
use crate::medium::{self, Holds, TestBed};
use crate::values::FlashChoice;
use fulgurite_harness::checks::{self, Wanted};
use fulgurite_harness::child::pool::benchmark_id;
use fulgurite_term::bad_input::{OrBadInput, bad_input};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::machine::Machine;

/// With fewer extents than this, a pool's extents are smaller than 2 MiB.
const EXTENTS_MIN: u32 = 128;
/// Flash pages of an extent at most, and at least.
const EXTENT_PAGES: (u32, u32) = (512, 32);

pub struct CheckedPoolMedium(medium::CheckedMedium);

/// Where nobody says what to measure on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Otherwise {
    Emulated,
    /// A file in the scratch directory.
    File,
}

impl CheckedPoolMedium {
    /// Checks what `args` ask for, to hold `bytes` bytes. Nothing is made yet.
    pub fn new(args: &StoreArgs, otherwise: Otherwise, bytes: u64, machine: &Machine) -> Result<CheckedPoolMedium> {
        let scratch = checks::scratch_directory(args.place.dir.as_deref(), args.on.flash.as_ref())?;
        let (flash, create) = match (&args.on.flash, otherwise) {
            (Some(choice), _) => (choice.clone(), args.on.create),
            (None, Otherwise::Emulated) => (FlashChoice::Emulated, false),
            (None, Otherwise::File) => {
                (FlashChoice::File(scratch.join(format!("fulgurite-store-{}.flash", std::process::id()))), true)
            }
        };
        if matches!(flash, FlashChoice::Device(_)) {
            bad_input!(
                "a device has a store of its own, and this measures a store; name what it is to be on: emulated, memory, \
                 nand:PROFILE, or a file"
            );
        }
        let wanted = Wanted { flash: &flash, create, force: args.on.force, share_frames: args.on.share_frames };
        let holds = Holds::Pool { extent_pages: geometry(bytes)?.extent_pages };
        Ok(CheckedPoolMedium(medium::CheckedMedium::new(wanted, holds, bytes, 0, machine)?))
    }
    /// Makes it. The measuring thread leaves an emulated device its core.
    pub fn make(self, interrupt: &Interrupt) -> Result<TestBed> {
        let medium = self.0.make(interrupt)?;
        if medium.device_core().is_some() {
            affinity::pin_to(&affinity::cores()[..1])?;
        }
        Ok(medium)
    }
}

/// The geometry of a pool of `bytes` bytes.
pub fn geometry(bytes: u64) -> Result<Geometry> {
    let pages = bytes / SUBPAGE_BYTES as u64;
    let mut extent = EXTENT_PAGES.0;
    while extent > EXTENT_PAGES.1 && pages / u64::from(extent) < EXTENTS_MIN.into() {
        extent /= 2;
    }
    geometry_of(bytes, extent)
}

/// The geometry of such a pool, with `extent` flash pages in an extent.
pub fn geometry_of(bytes: u64, extent: u32) -> Result<Geometry> {
    let Ok(pages) = u32::try_from(bytes / SUBPAGE_BYTES as u64) else {
        bad_input!("--size {} is more than a pool can have: 16 TiB", format_bytes(bytes));
    };
    Geometry::new(pages, extent, None).or_bad_input(|e| format!("--size {}: {e}", format_bytes(bytes)))
}

/// Subpages that fill a pool to `percent` percent of what is not reserve.
pub fn subpages_at(geometry: Geometry, percent: f64) -> u32 {
    let extents = geometry.extents - geometry.fixed_extents() - geometry.reserved_extents();
    let subpages = f64::from(extents * geometry.data_pages()) * percent / 100.0;
    (subpages as u32).min(geometry.subpages)
}

/// Makes a pool of a medium, whatever a pool before it has left there.
pub fn format(flash: &Arc<dyn Flash>, geometry: Geometry) -> Result<()> {
    Ok(Pool::format(flash, geometry, benchmark_id()?, 0)?)
}
