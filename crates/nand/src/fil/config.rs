//! How the layer is set up, and why it cannot be, or cannot be what it was.

use crate::geometry::GeometryError;

/// The most flash pages in a page of NAND.
pub(super) const PER_PAGE_MAX: usize = 4;
/// The most flash pages of the log, of all planes: 1 TiB, whose tables take 1 GiB.
pub(super) const LOG_PAGES_MAX: u64 = 1 << 28;
/// Bytes of a flash page.
pub(super) const FLASH_PAGE_BYTES: u32 = 4096;

/// The version of the state that outlives the model.
pub(super) const STATE_VERSION: u32 = 3;

/// How the layer works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilConfig {
    /// Planes over which an extent is spread. It divides the number of planes without rest. 0 for
    /// all of them.
    pub planes_per_extent: u32,
    /// Flash pages of an extent, no more than its blocks hold. What they hold beyond that is not
    /// used. 0 for all of it.
    pub extent_pages: u32,
    /// Extents at the beginning whose flash pages are rewritten in place. The store has one, with
    /// its superblock. Its anchors are written as streams, and their extents used from the
    /// beginning again.
    pub fixed_extents: u32,
    /// Blocks of each plane for the log, 2 at least.
    pub log_blocks: u32,
    /// Blocks of each plane that replace bad ones.
    pub spare_blocks: u32,
    /// Writes end when they are in the buffer. Only a flush makes them durable. Else they end when
    /// they are programmed.
    pub cached_writes: bool,
    /// Flash pages that may be held. At most a third of the log, as all of them may be there at the
    /// same time.
    pub buffer_pages: u32,
    /// How long a write is held back for its neighbours or predecessors before it goes to the log,
    /// in nanoseconds. Where writes are cached it may be long, as only a flush promises anything:
    /// what goes to the log alone costs a whole page of NAND.
    pub hold_ns: u64,
    /// Requests at a time.
    pub depth: usize,
    /// All that is random about the device follows from it.
    pub seed: u64,
}

impl Default for FilConfig {
    fn default() -> Self {
        FilConfig {
            planes_per_extent: 0,
            extent_pages: 0,
            fixed_extents: 1,
            log_blocks: 2,
            spare_blocks: 1,
            cached_writes: false,
            buffer_pages: 1024,
            hold_ns: 50_000,
            depth: 4096,
            seed: 1,
        }
    }
}

/// Why there is no such layer, or a request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilError {
    /// Planes do not divide.
    #[error("an extent across {width} planes does not divide {planes} planes; choose a divisor, or 0 for all")]
    Width {
        /// Asked for.
        width: u32,
        /// There are.
        planes: u32,
    },
    /// Extents do not fit.
    #[error(
        "an extent of {asked} flash pages does not fit its blocks, which hold {whole}; choose at most that, or more planes to an extent"
    )]
    Extent {
        /// Asked for.
        asked: u64,
        /// The blocks of an extent hold.
        whole: u64,
    },
    /// Blocks are too few.
    #[error(
        "a plane has {good} good blocks and {needed} are needed; choose more blocks_per_plane, or fewer log and \
         spare blocks"
    )]
    Blocks {
        /// Good ones of the plane with the fewest.
        good: u32,
        /// Needed at least.
        needed: u32,
    },
    /// The log is too large.
    #[error(
        "its log would have {pages} flash pages, and the model has tables for {LOG_PAGES_MAX}; choose fewer planes, pages_per_block or blocks \
         for the log"
    )]
    Log {
        /// Flash pages of it.
        pages: u64,
    },
    /// Nothing at a time.
    #[error("{0} requests at a time is out of range; choose 1 to 1,000,000")]
    Depth(usize),
    /// The device cannot be.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// As many requests are under way as may be.
    #[error("the request table is full; wait until a request has ended")]
    Full,
    /// No such flash page.
    #[error("flash page {0} does not exist; there are {1}")]
    OutOfRange(u32, u32),
}

/// Why a state is not one of this device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// It is something else.
    #[error("it is no state of a NAND device")]
    Magic,
    /// Of another version.
    #[error(
        "it is of version {found}, and this program reads version {}; use the program that wrote it",
        STATE_VERSION
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// It was changed since it was written, or not written whole.
    #[error("it is damaged: its checksum is {expected:08x}, but its bytes have {got:08x}")]
    Checksum {
        /// It says.
        expected: u32,
        /// Its bytes say.
        got: u32,
    },
    /// Of a device that is divided otherwise.
    #[error("it is of a device of another geometry or division; use the NAND file and the size that it was made with")]
    Geometry,
    /// Its checksum holds, and it says what cannot be.
    #[error("it says what cannot be of {0}")]
    Nonsense(&'static str),
}
