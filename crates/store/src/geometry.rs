//! How a pool divides into extents, and how much of it programs may fill.

use fulgurite_format::{
    FEATURE_GROWING, FEATURE_OBJECTS, SUBPAGE_BYTES, Superblock, format_bytes, subpages_per_page, summary_pages,
};

/// Subpages in a page.
pub const SUBPAGES_PER_PAGE: u32 = subpages_per_page(SUBPAGE_BYTES);
/// The extents that anchors are written to, in turns.
pub const ANCHOR_EXTENTS: [u32; 2] = [1, 2];
/// Pairs of flash pages in a row of such an extent at which an anchor may fail. No anchor follows
/// after this number of failures.
pub const ANCHOR_PAIRS_WITHOUT: u32 = 8;
/// Flash pages at the beginning of an extent at which the journal may go on there.
pub const FIRST_PLACES: u32 = 4;
/// The first extent, behind the superblock's and the anchors', that may hold anything.
pub const FIRST_EXTENT: u32 = 3;
/// Extents that writers leave to reclaim.
pub const RECLAIM_RESERVE: u32 = 3;
/// Free extents that only journal and checkpoint may take.
pub const METADATA_RESERVE: u32 = 2;
/// Extents beyond that with which reclaim begins, so that writers do not wait for it.
pub const RECLAIM_AHEAD: u32 = 2;
const MIN_EXTENT_PAGES: u32 = 8;
/// Bytes of a checkpoint for each flash page, by which a pool promises room for data.
const PROMISED_BYTES: u64 = 10;
/// Flash pages of an extent unless others are asked for: 2 MiB.
const USUAL_EXTENT_PAGES: u32 = 512;
/// Extents that a pool gets at least, if smaller ones allow it: some are for reclaim and metadata.
const USUAL_EXTENTS: u32 = 128;
/// The most flash pages of a pool of objects. Higher places are slots ([`crate::objects`]).
const OBJECT_FLASH_PAGES_MAX: u32 = (1 << 31) - 1;
/// The most subpages of such a pool: as many as the map has room for.
const OBJECT_SUBPAGES_MAX: u32 = crate::map::PAGES_MAX * SUBPAGES_PER_PAGE;

/// Why a pool cannot have this geometry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum GeometryError {
    #[error("an extent of {0} flash pages cannot be used; choose {MIN_EXTENT_PAGES} to 65536")]
    Extent(u32),
    #[error("{} of flash are too little for a pool; it needs {} at least", format_bytes(*.found), format_bytes(*.needed))]
    TooSmall { found: u64, needed: u64 },
    #[error(
        "a pool of {} cannot hold {} of data: {} are the most; make the pool larger, or ask for less",
        format_bytes(*.pool), format_bytes(*.asked), format_bytes(*.most)
    )]
    TooFull { pool: u64, asked: u64, most: u64 },
    #[error(
        "a pool of objects has 1 to {OBJECT_SUBPAGES_MAX} subpages and less than 8 TiB of flash; choose less, or a pool without objects"
    )]
    Objects,
    #[error(
        "a pool that grows to {} has more addresses than it may: {} are the most; choose a lower limit",
        format_bytes(*.asked), format_bytes(u64::from(OBJECT_SUBPAGES_MAX) * SUBPAGE_BYTES as u64)
    )]
    Growing { asked: u64 },
    #[error("the superblock's geometry is invalid; the pool was made by another program, or is damaged")]
    Superblock,
}

/// The geometry of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Flash pages in an extent, a summary included.
    pub extent_pages: u32,
    /// Extents.
    pub extents: u32,
    /// Subpages that programs may address.
    pub subpages: u32,
    /// It may hold objects, so that it can promise more subpages than it has flash pages.
    pub objects: bool,
}

impl Geometry {
    /// A pool of `flash_pages` flash pages in extents of `extent_pages`, for `subpages` subpages of
    /// data. None: as many as fit.
    pub fn new(flash_pages: u32, extent_pages: u32, subpages: Option<u32>) -> Result<Geometry, GeometryError> {
        Geometry::within(flash_pages, extent_pages, subpages, Geometry::most_with_room)
    }
    /// The geometry with at most as many subpages as `at_most` says.
    fn within(
        flash_pages: u32,
        extent_pages: u32,
        subpages: Option<u32>,
        at_most: fn(&Geometry) -> u32,
    ) -> Result<Geometry, GeometryError> {
        if !(MIN_EXTENT_PAGES..=65_536).contains(&extent_pages) {
            return Err(GeometryError::Extent(extent_pages));
        }
        let bytes = |pages: u32| u64::from(pages) * SUBPAGE_BYTES as u64;
        let extents = flash_pages / extent_pages;
        let mut geometry = Geometry { extent_pages, extents, subpages: 0, objects: false };
        let most = at_most(&geometry);
        if most < SUBPAGES_PER_PAGE {
            let needed = (1..).find(|n| at_most(&Geometry { extents: *n, ..geometry }) >= SUBPAGES_PER_PAGE);
            let needed = bytes(needed.expect("some number is enough") * extent_pages);
            return Err(GeometryError::TooSmall { found: bytes(flash_pages), needed });
        }
        // Whole pages: permissions are a page's.
        let asked = subpages.unwrap_or(most).checked_next_multiple_of(SUBPAGES_PER_PAGE).unwrap_or(u32::MAX);
        if subpages.is_some() && asked > most {
            let (pool, asked, most) = (bytes(flash_pages), bytes(asked), bytes(most));
            return Err(GeometryError::TooFull { pool, asked, most });
        }
        geometry.subpages = asked.min(most);
        Ok(geometry)
    }
    /// The usual extent for `flash_pages` flash pages: 512 (2 MiB), or fewer so that there are 128
    /// extents, down to 8.
    pub fn usual_extent_pages(flash_pages: u32) -> u32 {
        let mut extent = USUAL_EXTENT_PAGES;
        while extent > MIN_EXTENT_PAGES && flash_pages / extent < USUAL_EXTENTS {
            extent /= 2;
        }
        extent
    }
    /// A pool of `flash_pages` flash pages, in usual extents, for as many subpages as fit.
    pub fn usual(flash_pages: u32) -> Result<Geometry, GeometryError> {
        Geometry::new(flash_pages, Geometry::usual_extent_pages(flash_pages), None)
    }
    /// As [`Geometry::new`], for a pool of objects. Many fit in a flash page, so only the address
    /// space bounds the subpages, and live data the writes ([`crate::WriteError::NoSpace`]).
    pub fn with_objects(flash_pages: u32, extent_pages: u32, subpages: u32) -> Result<Geometry, GeometryError> {
        let geometry = Geometry::within(flash_pages, extent_pages, None, Geometry::most_subpages)?;
        if geometry.flash_pages() > OBJECT_FLASH_PAGES_MAX || !(1..=OBJECT_SUBPAGES_MAX).contains(&subpages) {
            return Err(GeometryError::Objects);
        }
        // Whole pages: permissions are a page's.
        let subpages = subpages.next_multiple_of(SUBPAGES_PER_PAGE);
        Ok(Geometry { subpages, objects: true, ..geometry })
    }
    /// A pool that grows while it is open, with addresses for as much data as a pool of `limit`
    /// flash pages has room for, and at first `flash_pages` flash pages. Its room follows from its
    /// present size.
    pub fn growing(flash_pages: u32, extent_pages: u32, limit: u32) -> Result<Geometry, GeometryError> {
        let large = Geometry::new(limit.max(flash_pages), extent_pages, None)?;
        Geometry::with_addresses(flash_pages, extent_pages, large.subpages)
    }
    fn with_addresses(flash_pages: u32, extent_pages: u32, subpages: u32) -> Result<Geometry, GeometryError> {
        let geometry = Geometry::new(flash_pages, extent_pages, None)?;
        if subpages > OBJECT_SUBPAGES_MAX {
            return Err(GeometryError::Growing { asked: u64::from(subpages) * SUBPAGE_BYTES as u64 });
        }
        Ok(Geometry { subpages: subpages.max(geometry.subpages), ..geometry })
    }
    /// Extents for a pool that begins with `flash_pages` flash pages and may grow to `limit`: as
    /// large as the usual ones of its end, but 64 at its beginning.
    pub fn growing_extent_pages(flash_pages: u32, limit: u32) -> u32 {
        let mut extent = Geometry::usual_extent_pages(limit);
        while extent > MIN_EXTENT_PAGES && flash_pages / extent < USUAL_EXTENTS / 2 {
            extent /= 2;
        }
        extent
    }
    /// Whether it has addresses for more than it has room for, because it grows.
    pub fn promises_more(&self) -> bool {
        !self.objects && self.subpages > self.most_subpages()
    }
    /// The geometry that a superblock has.
    pub fn of(superblock: &Superblock) -> Result<Geometry, GeometryError> {
        let pages = superblock.extents.checked_mul(superblock.extent_pages).ok_or(GeometryError::Superblock)?;
        if superblock.subpage_bytes as usize != SUBPAGE_BYTES
            || superblock.features & !(FEATURE_OBJECTS | FEATURE_GROWING) != 0
        {
            return Err(GeometryError::Superblock);
        }
        let geometry = if superblock.features & FEATURE_OBJECTS != 0 {
            Geometry::with_objects(pages, superblock.extent_pages, superblock.subpages)
        } else if superblock.features & FEATURE_GROWING != 0 {
            Geometry::with_addresses(pages, superblock.extent_pages, superblock.subpages)
        } else {
            Geometry::within(pages, superblock.extent_pages, Some(superblock.subpages), Geometry::most_subpages)
        };
        geometry.ok().filter(|g| g.subpages == superblock.subpages && g.subpages > 0).ok_or(GeometryError::Superblock)
    }

    /// The superblock of a pool of this geometry.
    pub fn superblock(&self, made: u64) -> Superblock {
        Superblock {
            extent_pages: self.extent_pages,
            extents: self.extents,
            subpages: self.subpages,
            subpage_bytes: SUBPAGE_BYTES as u32,
            made,
            features: match (self.objects, self.promises_more()) {
                (true, _) => FEATURE_OBJECTS,
                (_, true) => FEATURE_GROWING,
                _ => 0,
            },
        }
    }
    /// Flash pages of an extent that hold data; its summary takes the others.
    pub fn data_pages(&self) -> u32 {
        self.extent_pages - summary_pages(self.extent_pages)
    }
    /// Flash pages that emptying an extent must gain to be worth it.
    pub fn worth(&self) -> u32 {
        (self.data_pages() / 64).max(1)
    }
    /// Flash pages.
    pub fn flash_pages(&self) -> u32 {
        self.extents * self.extent_pages
    }
    /// Pages that programs may address.
    pub fn pages(&self) -> u32 {
        self.subpages / SUBPAGES_PER_PAGE
    }
    /// The extent of a flash page.
    pub fn extent_of(&self, place: u32) -> u32 {
        place / self.extent_pages
    }
    /// The first flash page of an extent.
    pub fn first_of(&self, extent: u32) -> u32 {
        extent * self.extent_pages
    }
    /// Extents of the superblock and the anchors.
    pub fn fixed_extents(&self) -> u32 {
        FIRST_EXTENT
    }
    /// Other extents without programs' data: reclaim begins before fewer are free, and the rest is
    /// journal and checkpoints.
    pub fn reserved_extents(&self) -> u32 {
        let free = RECLAIM_RESERVE + METADATA_RESERVE + RECLAIM_AHEAD + self.extents / 64;
        free + self.checkpoint_extents() + self.metadata_extents()
    }
    /// Extents that metadata may take: the journal between two checkpoints, and two checkpoints.
    pub fn metadata_extents(&self) -> u32 {
        // The journal is twice as long as a checkpoint; there are two of those for a while.
        4 * self.checkpoint_extents() + 2
    }
    fn checkpoint_extents(&self) -> u32 {
        // One version a page: 16 + 64 bytes, with as much again for versions. With more addresses
        // than room, at worst each subpage is of another page.
        self.checkpoint_extents_of(if self.promises_more() { 30 } else { PROMISED_BYTES })
    }
    /// Extents of a checkpoint with `each` bytes for each flash page.
    fn checkpoint_extents_of(&self, each: u64) -> u32 {
        let pages = (u64::from(self.extents) * u64::from(self.extent_pages) * each).div_ceil(4000);
        pages.div_ceil(u64::from(self.extent_pages)) as u32
    }
    /// The most subpages that such a pool may be made with. When all are filled, there is still
    /// room for changes, also while metadata takes all that it may. Only pools of a few extents
    /// have promised more.
    fn most_with_room(&self) -> u32 {
        let kept =
            FIRST_EXTENT + RECLAIM_RESERVE + METADATA_RESERVE + 5 * self.checkpoint_extents_of(PROMISED_BYTES) + 2;
        let data = u64::from(self.extents.saturating_sub(kept)) * u64::from(self.data_pages());
        // In each extent that is not worth emptying, some flash pages are lost.
        let lost = u64::from(self.extents) * u64::from(self.worth() - 1);
        let filled = data.saturating_sub(lost + u64::from(SUBPAGES_PER_PAGE)).min(u64::from(u32::MAX)) as u32;
        self.most_subpages().min(filled.next_multiple_of(SUBPAGES_PER_PAGE))
    }
    /// The most subpages that such a pool may promise. A sixteenth, and the needs of reclaim and
    /// metadata, stay free.
    fn most_subpages(&self) -> u32 {
        let kept = FIRST_EXTENT + RECLAIM_RESERVE + 2 + 4 * self.checkpoint_extents_of(PROMISED_BYTES) + 2;
        let data = u64::from(self.extents.saturating_sub(kept)) * u64::from(self.data_pages());
        let most = (data - data / 16).min(u64::from(u32::MAX));
        (most / u64::from(SUBPAGES_PER_PAGE)) as u32 * SUBPAGES_PER_PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_promises_less_than_it_has() {
        let g = Geometry::new(1 << 18, 512, None).unwrap();
        assert_eq!((g.extents, g.data_pages()), (512, 510));
        assert!(g.subpages > (1 << 18) * 8 / 10 && g.subpages < 1 << 18, "{}", g.subpages);
        assert_eq!(g.subpages % 16, 0);
    }
    #[test]
    fn small_pools_have_small_extents() {
        let of = |bytes: u64| Geometry::usual_extent_pages((bytes / 4096) as u32) * 4096;
        assert_eq!([16 << 30, 256 << 20, (256 << 20) - 4096].map(of), [2 << 20, 2 << 20, 1 << 20]);
        assert_eq!([16 << 20, 1 << 20, 0].map(of), [128 << 10, 32 << 10, 32 << 10]);
        assert_eq!(Geometry::usual(1 << 18), Geometry::new(1 << 18, 512, None));
        assert!(matches!(Geometry::usual(64), Err(GeometryError::TooSmall { .. })));
    }
    #[test]
    fn a_refusal_of_too_small_a_size_says_how_much_is_needed() {
        let Err(GeometryError::TooSmall { needed, .. }) = Geometry::new(64, 8, None) else { panic!("too small") };
        Geometry::new((needed / 4096) as u32, 8, None).unwrap();
        assert!(matches!(Geometry::new(1 << 18, 512, Some(1 << 18)), Err(GeometryError::TooFull { .. })));
        assert_eq!(Geometry::new(1 << 18, 7, None), Err(GeometryError::Extent(7)));
    }
    #[test]
    fn a_pool_of_objects_promises_more_than_it_has() {
        let g = Geometry::with_objects(1 << 14, 64, 1 << 20).unwrap();
        assert_eq!((g.subpages, g.flash_pages(), g.superblock(7).features), (1 << 20, 1 << 14, FEATURE_OBJECTS));
        assert_eq!(Geometry::of(&g.superblock(7)), Ok(g));
        assert_eq!(Geometry::with_objects(1 << 14, 64, OBJECT_SUBPAGES_MAX + 1), Err(GeometryError::Objects));
        let most = Geometry::with_objects(1 << 14, 64, OBJECT_SUBPAGES_MAX - 3).unwrap();
        assert_eq!(most.subpages, OBJECT_SUBPAGES_MAX);
        // Such a map can be made, and takes next to nothing while nothing is written.
        assert!(crate::map::MapWriter::new(most.pages()).map().bytes() < 16 << 20);
        assert_eq!(Geometry::with_objects(u32::MAX, 64, 16), Err(GeometryError::Objects));
    }
    #[test]
    fn superblocks_are_believed_only_if_they_make_sense() {
        let g = Geometry::new(1 << 14, 64, Some(1000)).unwrap();
        let block = Superblock {
            extent_pages: 64,
            extents: g.extents,
            subpages: g.subpages,
            subpage_bytes: 4096,
            made: 0,
            features: 0,
        };
        assert_eq!(Geometry::of(&block), Ok(g));
        for wrong in [
            Superblock { subpages: 0, ..block },
            Superblock { extents: u32::MAX, ..block },
            Superblock { extent_pages: 0, ..block },
            Superblock { features: 4, ..block },
            Superblock { subpages: block.subpages + 1, ..block },
        ] {
            assert_eq!(Geometry::of(&wrong), Err(GeometryError::Superblock), "{wrong:?}");
        }
    }
    /// The promise is part of the format: a pool opens only with a size that this program would
    /// give it.
    #[test]
    fn how_much_is_promised_never_changes() {
        let mb =
            |mb: u32, extent_pages| Geometry::within(mb << 8, extent_pages, None, Geometry::most_subpages).unwrap();
        let numbers = |g: Geometry| (g.extents, g.subpages, g.metadata_extents(), g.reserved_extents(), g.worth());
        assert_eq!(numbers(mb(1024, 512)), (512, 236_192, 10, 27, 7));
        assert_eq!(numbers(mb(64, 512)), (32, 8_592, 6, 14, 7));
        assert_eq!(numbers(mb(16, 8)), (512, 3_232, 10, 27, 1));
        assert_eq!(mb(1024, 512).pages(), 236_192 / 16);
    }
    #[test]
    fn the_smallest_pool_and_the_most_that_one_holds() {
        let bytes = |pages: u64| pages * 4096;
        let smallest = Geometry::new(18 * 8, 8, None).unwrap();
        assert_eq!((smallest.subpages, Geometry::of(&smallest.superblock(1))), (16, Ok(smallest)));
        let (found, needed) = (bytes(18 * 8 - 1), bytes(18 * 8));
        assert_eq!(Geometry::new(18 * 8 - 1, 8, None), Err(GeometryError::TooSmall { found, needed }));
        // Pools that were made before still open: smaller ones, and ones that hold more.
        for (extents, subpages) in [(17, 16), (31, 112)] {
            let before = Geometry { extent_pages: 8, extents, subpages, objects: false };
            assert_eq!(Geometry::of(&before.superblock(1)), Ok(before));
            let now = Geometry::new(8 * extents, 8, None).map_or(0, |g| g.subpages);
            assert!(now < subpages, "{now}");
        }
        let of = |subpages| Geometry::new(1 << 18, 512, Some(subpages)).map(|g| g.subpages);
        assert_eq!((of(236_192), of(236_177), of(236_176)), (Ok(236_192), Ok(236_192), Ok(236_176)));
        let (pool, asked, most) = (1 << 30, bytes(236_208), bytes(236_192));
        assert_eq!(of(236_193), Err(GeometryError::TooFull { pool, asked, most }));
        assert!(Geometry::new(1 << 30, 65_536, None).is_ok() && Geometry::new(1 << 18, 8, None).is_ok());
        assert_eq!(Geometry::new(1 << 30, 65_537, None), Err(GeometryError::Extent(65_537)));
        assert_eq!(Geometry::new(1 << 18, 7, None), Err(GeometryError::Extent(7)));
        assert!(Geometry::with_objects((1 << 31) - 64, 64, 1).is_ok());
        assert_eq!(Geometry::with_objects(1 << 31, 64, 1), Err(GeometryError::Objects));
        assert_eq!(Geometry::with_objects(1 << 14, 64, 0), Err(GeometryError::Objects));
    }
    #[test]
    fn flash_pages_are_numbered_through() {
        let g = Geometry { extent_pages: 8, extents: 20, subpages: 64, objects: false };
        assert_eq!((g.flash_pages(), g.pages(), g.data_pages(), g.fixed_extents()), (160, 4, 7, 3));
        assert_eq!((g.extent_of(39), g.extent_of(40), g.first_of(5)), (4, 5, 40));
        let block = g.superblock(7);
        assert_eq!((block.made, block.subpage_bytes, block.extents), (7, 4096, 20));
        let sound = Geometry::new(1 << 14, 64, None).unwrap().superblock(7);
        assert_eq!(sound.features, 0);
        for wrong in [Superblock { subpage_bytes: 512, ..sound }, Superblock { features: FEATURE_OBJECTS | 4, ..sound }]
        {
            assert_eq!(Geometry::of(&wrong), Err(GeometryError::Superblock), "{wrong:?}");
        }
    }
}
