//! The NAND of a device: a profile, scaled to the size that is asked for.

use std::path::PathBuf;

use anyhow::{Result, bail};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_nand::{Fil, FilConfig, Geometry as NandGeometry, Profile};
use serde::{Deserialize, Serialize};

use super::nand_counts::NandShape;

/// The NAND of a device, and the memory that plays it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NandSpec {
    /// Where that memory is found.
    pub storage: PathBuf,
    /// The text of the profile.
    pub profile: String,
    /// How it is scaled.
    pub scaling: Scaling,
}

/// How the geometry of a NAND profile is scaled to what a run needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Scaling {
    /// This number of planes, with as many blocks as it takes; none takes the profile as it is.
    pub planes: Option<u32>,
    /// Maximum pages of a block. None: the profile's, or as many as leave a plane enough blocks.
    pub pages_per_block: Option<u32>,
}

/// A store wants at least this many extents, to have some to choose from when it reclaims one.
const EXTENTS_MIN: u32 = 128;
/// A scaled device grows in these steps until the flash interface layer leaves enough of it.
const SIXTEENTHS: std::ops::Range<u64> = 17..33;

/// The shape of the device that a run gets.
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
        // Little data does not fill this many planes with blocks of that size.
        if planes == 1 {
            return last;
        }
        planes = (planes / 2).max(1);
    }
}

/// Cuts a device of more than twice `pages` flash pages down: as many planes, with fewer blocks.
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

/// Divides a device of a given size.
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
            "the NAND has room for {}, and the data with what a store needs in addition takes {}; take one with more \
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
