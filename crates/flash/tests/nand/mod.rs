//! Small NAND devices for tests.

use std::sync::Arc;

use fulgurite_flash::{Flash, MemoryFlash, NandFlash};
use fulgurite_nand::{FilConfig, Geometry, Parts, Profile};

/// Extents of [`device`], and their flash pages.
pub const EXTENTS: u32 = 10;
pub const EXTENT_PAGES: u32 = 20;

/// 4 planes of 13 blocks, of which each keeps 3 for the log and to spare.
pub const PARTS: Parts = Parts {
    channels: 2,
    packages_per_channel: 1,
    dies_per_package: 1,
    planes_per_die: 2,
    blocks_per_plane: 13,
    pages_per_block: 8,
    page_bytes: 4096,
};

/// SLC of 4 planes of 13 blocks of 8 pages, all good, in times that a test can wait for.
pub fn small() -> Profile {
    let mut profile = Profile::built_in("slc").unwrap();
    profile.geometry = Geometry::new(PARTS).unwrap();
    profile.wear.factory_bad = 0.0;
    (profile.timing.read_ns, profile.timing.program_ns, profile.timing.erase_ns) = (20_000, 40_000, 100_000);
    profile
}

pub fn config() -> FilConfig {
    FilConfig { extent_pages: EXTENT_PAGES, ..FilConfig::default() }
}

/// A device of 10 extents of 20 flash pages over memory that is larger than it.
pub fn device(profile: Profile) -> (NandFlash, Arc<MemoryFlash>) {
    let memory = Arc::new(MemoryFlash::new(EXTENTS * EXTENT_PAGES + 50).unwrap());
    let within: Arc<dyn Flash> = memory.clone();
    let flash = NandFlash::new(within, profile, config()).unwrap();
    assert_eq!((flash.subpages(), flash.extent_pages()), (EXTENTS * EXTENT_PAGES, EXTENT_PAGES));
    (flash, memory)
}
