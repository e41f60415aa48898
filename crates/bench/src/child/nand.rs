//! A device of our own for a run: firmware with the store over the NAND model.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use fulgurite_backing::{Base, NandBase, Past};
use fulgurite_device::DeviceFlash;
use fulgurite_flash::{Flash, NandFlash, PartOfFlash};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_nand::{Fil, FilConfig, Geometry as NandGeometry, Profile};
use fulgurite_sys::Arena;

use super::handle::open_shared;
use super::nand_counts::NandShape;
use super::pool;
use super::protocol::{NandSpec, PoolSpec};

/// A store wants so many extents at the least, to have some to choose from when it reclaims one.
const EXTENTS_MIN: u32 = 128;
/// A scaled device grows in these steps until the flash interface layer leaves enough of it.
const SIXTEENTHS: std::ops::Range<u64> = 17..33;

/// That of the device that a run gets.
pub fn shape(spec: &NandSpec, pages: u32) -> Result<NandShape> {
    let (profile, _) = fitted(spec, pages, None)?;
    let parts = profile.geometry.parts();
    let block_bytes = u64::from(parts.pages_per_block) * parts.page_bytes;
    let (planes, block_pages) = (profile.geometry.planes(), parts.pages_per_block);
    Ok(NandShape { planes, block_pages, block_bytes, erase_ns: profile.timing.erase_ns })
}

/// The NAND of a run: a profile, scaled to the size or as it is. `extent_pages` fixes the extents.
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

/// Cuts a device of more than twice so many flash pages down: as many planes, with fewer blocks.
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
pub fn flash_pages(spec: &NandSpec, pages: u32) -> Result<u32> {
    let (profile, config) = fitted(spec, pages, None)?;
    Ok(Fil::new(profile, config)?.flash_pages())
}

/// DRAM of the model of that device.
pub fn model_bytes(spec: &NandSpec, pages: u32) -> Result<u64> {
    let (profile, config) = fitted(spec, pages, None)?;
    Ok(Fil::new(profile, config)?.bytes() as u64)
}

/// Opens the device at a socket, or a part of it. Data are copied, or frames are shared.
///
/// # Errors
/// When nobody listens there, or it has less room than so many subpages.
pub fn attached(socket: &Path, frames: bool, part: Option<(u32, u32)>, subpages: u32) -> Result<Arc<dyn Flash>> {
    let base = Base::Served { socket: socket.to_owned(), share_frames: frames, alone: false };
    let mut device = base.open()?.flash;
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
    pub device: Arc<DeviceFlash>,
    pub nand: Arc<NandFlash>,
}

/// NAND over memory that is there, as large as so many flash pages need.
pub fn flash(spec: &NandSpec, flash_pages: u32) -> Result<Arc<NandFlash>> {
    let (profile, config) = fitted(spec, flash_pages, None)?;
    let storage = Arc::new(Arena::shared(open_shared(&spec.storage)?)?);
    let pages = u32::try_from(storage.len() / SUBPAGE_BYTES).context("more memory than a flash can have")?;
    let cells = Base::Memory { subpages: pages, storage: Some(storage) };
    let laid = Base::Nand(Box::new(NandBase { cells, profile, config, past: Past::New })).open()?;
    laid.nand.context("NAND was opened as something else")
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
