//! A device of our own for a run: firmware with the journaled store over the NAND model, on a core beside the worker's.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use fulgurite_device::DeviceFlash;
use fulgurite_flash::{Flash, MemoryFlash, NandFlash, NandReport, PartOfFlash};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_nand::{Fil, FilConfig, Geometry as NandGeometry, Profile};
use fulgurite_sys::Arena;
use serde::{Deserialize, Serialize};

use super::handle::open_shared;
use super::pool;
use super::protocol::{NandSpec, PoolSpec};
use crate::report::table;

/// A store wants so many extents at the least, to have some to choose from when it reclaims one.
const EXTENTS_MIN: u32 = 128;
/// A scaled device is made larger by so much at a time, until what the flash interface layer leaves of it is enough.
const SIXTEENTHS: std::ops::Range<u64> = 17..33;

/// What NAND did in a run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NandCounts {
    /// Pages of NAND read.
    pub reads: u64,
    /// Flash pages read.
    pub page_reads: u64,
    /// Of these, those that needed no NAND: they were in the buffer of what is not programmed yet, or nothing was there.
    pub buffered_reads: u64,
    /// Of those that reached NAND, the store's own: what it reclaims, and its tables.
    pub own_reads: u64,
    /// Flash pages written.
    pub page_writes: u64,
    /// Reads of the host that found an erase, or a request of the store's own, of their plane before them.
    pub blocked_by_reclaim: u64,
    /// Pages of NAND programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Flash pages that those programs had room for.
    pub room: u64,
    /// Of these, those that stayed empty.
    pub padded: u64,
    /// Flash pages that went to the log of the flash interface layer.
    pub logged: u64,
    /// Energy of all of it, in nanojoules.
    pub energy_nj: u64,
    /// Operations that broke a rule of NAND: an error of ours.
    pub violations: u64,
}

impl NandCounts {
    /// What was done by then.
    pub fn of(report: &NandReport) -> NandCounts {
        let (fil, nand) = (&report.fil, &report.nand);
        let per_page = u64::from(report.flash_pages_per_page);
        let logged_room = fil.log_programs * per_page;
        NandCounts {
            reads: nand.reads,
            page_reads: fil.reads,
            buffered_reads: fil.buffer_reads + fil.empty_reads,
            own_reads: fil.reclaim_reads,
            page_writes: fil.writes,
            blocked_by_reclaim: fil.reads_blocked_by_reclaim - fil.reclaim_reads_blocked,
            programs: nand.programs,
            erases: nand.erases,
            room: fil.home_programs * per_page + logged_room,
            padded: fil.padded + logged_room.saturating_sub(fil.logged),
            logged: fil.logged,
            energy_nj: nand.energy_pj() / 1000,
            violations: nand.violations,
        }
    }
    /// What was done since.
    pub fn since(self, before: NandCounts) -> NandCounts {
        NandCounts {
            reads: self.reads - before.reads,
            own_reads: self.own_reads - before.own_reads,
            page_reads: self.page_reads - before.page_reads,
            buffered_reads: self.buffered_reads - before.buffered_reads,
            page_writes: self.page_writes - before.page_writes,
            blocked_by_reclaim: self.blocked_by_reclaim - before.blocked_by_reclaim,
            programs: self.programs - before.programs,
            erases: self.erases - before.erases,
            room: self.room - before.room,
            padded: self.padded.saturating_sub(before.padded),
            logged: self.logged - before.logged,
            energy_nj: self.energy_nj - before.energy_nj,
            violations: self.violations - before.violations,
        }
    }
    /// Of the host's reads, the share that found an erase, or work of the store's own, of their plane before them; none without reads.
    pub fn blocked_share(self) -> Option<f64> {
        let asked = self.asked_of_nand();
        (asked > 0).then(|| self.blocked_by_reclaim as f64 / asked as f64)
    }
    /// Reads of the host that reached NAND.
    fn asked_of_nand(self) -> u64 {
        self.page_reads.saturating_sub(self.buffered_reads + self.own_reads)
    }
    /// For people.
    pub fn sentence(self) -> String {
        let share = |of: u64, all: u64| table::percent(of as f64 / all.max(1) as f64);
        format!(
            "{} of {} reads of flash pages from NAND found an erase, or work of the store's own, of their plane before them; the store \
             itself read {} there; {} programs ({} of their room stayed empty), {} erases, {:.1} µJ a request to it",
            table::percent(self.blocked_share().unwrap_or(0.0)),
            table::number(self.asked_of_nand() as f64),
            table::number(self.own_reads as f64),
            table::number(self.programs as f64),
            share(self.padded, self.room),
            table::number(self.erases as f64),
            self.energy_nj as f64 / 1000.0 / (self.page_reads + self.page_writes).max(1) as f64
        )
    }
    /// The same of two runs.
    pub fn and(self, other: NandCounts) -> NandCounts {
        NandCounts {
            reads: self.reads + other.reads,
            own_reads: self.own_reads + other.own_reads,
            page_reads: self.page_reads + other.page_reads,
            buffered_reads: self.buffered_reads + other.buffered_reads,
            page_writes: self.page_writes + other.page_writes,
            blocked_by_reclaim: self.blocked_by_reclaim + other.blocked_by_reclaim,
            programs: self.programs + other.programs,
            erases: self.erases + other.erases,
            room: self.room + other.room,
            padded: self.padded + other.padded,
            logged: self.logged + other.logged,
            energy_nj: self.energy_nj + other.energy_nj,
            violations: self.violations + other.violations,
        }
    }
}

/// The geometry of a run's NAND.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct NandShape {
    /// Planes: fewer than were asked for where there is little data.
    pub planes: u32,
    /// Pages of a block.
    pub block_pages: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Nanoseconds that an erase takes.
    pub erase_ns: u64,
}

impl NandShape {
    /// The share of the time of all planes that so many erases take.
    pub fn erasing(self, erases: u64, elapsed_ns: u64) -> f64 {
        (erases * self.erase_ns) as f64 / (f64::from(self.planes) * elapsed_ns as f64).max(1.0)
    }
}

/// That of the device that a run gets.
///
/// # Errors
/// As [`fitted`].
pub fn shape(spec: &NandSpec, pages: u32) -> Result<NandShape> {
    let (profile, _) = fitted(spec, pages, None)?;
    let parts = profile.geometry.parts();
    let block_bytes = u64::from(parts.pages_per_block) * parts.page_bytes;
    let (planes, block_pages) = (profile.geometry.planes(), parts.pages_per_block);
    Ok(NandShape { planes, block_pages, block_bytes, erase_ns: profile.timing.erase_ns })
}

/// The NAND of a run: a profile whose device is made as large as is needed, or taken as it is. Extents have so many flash pages, where
/// that is said.
///
/// # Errors
/// When it has too little room.
pub fn fitted(spec: &NandSpec, pages: u32, extent_pages: Option<u32>) -> Result<(Profile, FilConfig)> {
    let mut profile = Profile::parse(&spec.profile)?;
    if let Some(most) = spec.scaling.pages_per_block {
        let mut parts = profile.geometry.parts();
        parts.pages_per_block = parts.pages_per_block.min(most);
        profile.geometry = NandGeometry::new(parts)?;
    }
    let needed = u64::from(pages) * SUBPAGE_BYTES as u64;
    let Some(mut planes) = spec.scaling.planes else { return divided(profile, pages, extent_pages) };
    loop {
        let of = |bytes: u64| divided(profile.scaled(bytes, planes)?, pages, extent_pages);
        let mut tried = SIXTEENTHS.map(|sixteenths| of(needed * sixteenths / 16));
        let last = match tried.find(Result::is_ok) {
            Some(fitted) => return fitted,
            None => of(needed * SIXTEENTHS.end / 16),
        };
        // Little data does not fill so many planes with blocks of that size.
        if planes == 1 {
            return last;
        }
        planes = (planes / 2).max(1);
    }
}

/// As much of a device as has room for so many flash pages, where it has more than twice as much: as many planes, with fewer blocks.
///
/// # Errors
/// When it has too little room.
pub fn part_of(profile: Profile, pages: u32) -> Result<(Profile, FilConfig)> {
    let (whole, config) = divided(profile, pages, None)?;
    let has = Fil::new(whole, config)?.flash_pages();
    if has / 2 <= pages {
        return Ok((whole, config));
    }
    let mut parts = whole.geometry.parts();
    let most = parts.blocks_per_plane;
    // What the model keeps for itself is not in proportion.
    parts.blocks_per_plane = (u64::from(most) * u64::from(pages) / u64::from(has)).max(1) as u32;
    while parts.blocks_per_plane < most {
        let geometry = NandGeometry::new(parts)?;
        if let Ok(fitted) = divided(Profile { geometry, ..whole }, pages, None) {
            return Ok(fitted);
        }
        parts.blocks_per_plane += parts.blocks_per_plane.div_ceil(32);
    }
    Ok((whole, config))
}

/// The same of a device of a given size.
fn divided(profile: Profile, pages: u32, extent_pages: Option<u32>) -> Result<(Profile, FilConfig)> {
    let needed = u64::from(pages) * SUBPAGE_BYTES as u64;
    let planes = profile.geometry.planes();
    let per_block = u64::from(profile.geometry.pages_per_block() * profile.geometry.flash_pages_per_page());
    let mut widths = (1..=planes).filter(|width| planes.is_multiple_of(*width));
    let width = match extent_pages {
        // As wide as it must be.
        Some(pages) => widths.find(|width| u64::from(*width) * per_block >= u64::from(pages)).unwrap_or(planes),
        // As wide as leaves the store enough extents: a write goes to many planes at a time.
        None => widths
            .rfind(|width| u64::from(*width) * per_block * u64::from(EXTENTS_MIN) <= u64::from(pages))
            .unwrap_or(1),
    };
    let config =
        FilConfig { planes_per_extent: width, extent_pages: extent_pages.unwrap_or(0), ..FilConfig::default() };
    let fil = Fil::new(profile, config)?;
    if fil.flash_pages() < pages {
        bail!(
            "the NAND has room for {}, and the data with what a store needs beside takes {}; take one with more \
             blocks_per_plane, or choose less --data",
            format_bytes(u64::from(fil.flash_pages()) << 12),
            format_bytes(needed)
        );
    }
    Ok((profile, config))
}

/// Flash pages of the device that a run gets.
///
/// # Errors
/// As [`fitted`].
pub fn flash_pages(spec: &NandSpec, pages: u32) -> Result<u32> {
    let (profile, config) = fitted(spec, pages, None)?;
    Ok(Fil::new(profile, config)?.flash_pages())
}

/// DRAM of the model of that device.
///
/// # Errors
/// As [`fitted`].
pub fn model_bytes(spec: &NandSpec, pages: u32) -> Result<u64> {
    let (profile, config) = fitted(spec, pages, None)?;
    Ok(Fil::new(profile, config)?.bytes() as u64)
}

/// The device that listens at a socket, or a part of it. Data are copied, or the runtime's frames are handed to it.
///
/// # Errors
/// When nobody listens there, or it has less room than so many subpages.
pub fn attached(socket: &Path, frames: bool, part: Option<(u32, u32)>, subpages: u32) -> Result<Arc<dyn Flash>> {
    let mut device: Arc<dyn Flash> = fulgurite_backing::beside_others(socket, frames)?;
    if let Some((first, count)) = part {
        let part = PartOfFlash::new(device, first, count);
        device = Arc::new(part.context("the device has become smaller than it was")?);
    }
    if device.subpages() < subpages {
        bail!(
            "the device at {} has {} for each configuration, and the data with what a pool needs beside takes {}; serve a larger one, or \
             choose less --data",
            socket.display(),
            format_bytes(u64::from(device.subpages()) << 12),
            format_bytes(u64::from(subpages) << 12)
        );
    }
    Ok(device)
}

/// A device that was filled: the driver that the runtime sees, and the NAND under it.
pub struct Made {
    /// The host's side.
    pub device: Arc<DeviceFlash>,
    /// The NAND.
    pub nand: Arc<NandFlash>,
}

/// NAND over memory that is there, as large as so many flash pages need.
///
/// # Errors
/// When it cannot be made.
pub fn flash(spec: &NandSpec, flash_pages: u32) -> Result<Arc<NandFlash>> {
    let (profile, config) = fitted(spec, flash_pages, None)?;
    let storage = Arc::new(Arena::shared(open_shared(&spec.storage)?)?);
    let pages = u32::try_from(storage.len() / SUBPAGE_BYTES).context("more memory than a flash can have")?;
    let cells: Arc<dyn Flash> = Arc::new(MemoryFlash::over(storage, pages)?);
    Ok(Arc::new(NandFlash::new(cells, profile, config)?))
}

/// Makes a device over it, with the data in it.
///
/// # Errors
/// When it cannot be made, or its data not be written.
pub fn made(spec: &NandSpec, pool: &PoolSpec, region_bytes: u64, core: Option<usize>) -> Result<Made> {
    let nand = flash(spec, pool.flash_pages)?;
    let below: Arc<dyn Flash> = nand.clone();
    let store = pool::filled(&below, pool, region_bytes, nand.extent_pages())?;
    Ok(Made { device: fulgurite_backing::on_device(store, core)?, nand })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_they_are_said_to_be_of() {
        let mut report = NandReport { flash_pages_per_page: 4, ..NandReport::default() };
        (report.fil.reads, report.fil.buffer_reads, report.fil.empty_reads) = (1000, 700, 100);
        (report.fil.writes, report.fil.reads_blocked_by_reclaim) = (1000, 50);
        (report.fil.reclaim_reads, report.fil.reclaim_reads_blocked) = (40, 10);
        (report.fil.home_programs, report.fil.padded) = (200, 80);
        (report.fil.log_programs, report.fil.logged) = (50, 80);
        (report.nand.reads, report.nand.programs) = (200, 250);
        report.nand.program_pj = 4_000_000_000;
        let counts = NandCounts::of(&report);
        let share = |of: f64| table::percent(of);
        let sentence = counts.sentence();
        // 50 of the 200 that reached NAND, less the store's own 10 of 40; 80 and 200 - 80 of the 4 x 250 flash pages of the programs; 4 mJ for 2,000 requests.
        assert!(sentence.starts_with(&format!("{} of 160 reads", share(0.25))), "{sentence}");
        assert!(sentence.contains(&format!("250 programs ({} of their room", share(0.2))), "{sentence}");
        assert!(sentence.ends_with(" 2.0 µJ a request to it"), "{sentence}");
        assert_eq!(counts.and(counts).since(counts), counts);
    }
}
