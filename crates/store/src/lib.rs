//! The journaled store: NVMM's page table with versions, on a log, over any flash.
//!
//! Holds a state machine ([`Store`]: requests to the flash come out, their ends go in), recovery
//! ([`recover`]), and what drives both over a queue ([`Driver`]); and the administration of pools
//! ([`admin`]). Invariants are said where they are kept: chains in `table`, what is live in
//! `state`, when an extent may be used again in `extents`, what makes a state durable in `store`.
//!
//! It does not move programs' data (the owner of the frames does, to the places that the store
//! gives), knows no clock, and starts no threads.
#![forbid(unsafe_code)]

pub mod admin;
mod chains;
mod changes;
mod checkpoint;
mod chunked;
mod driver;
mod extents;
mod geometry;
mod head;
mod helpers;
mod map;
mod members;
mod objects;
mod pages;
mod planted;
mod pool;
mod primitive;
mod reclaim;
mod recover;
mod state;
mod store;
mod stream;
mod table;
mod tokens;
mod view;
mod wear;

pub use changes::Changes;
pub use driver::{Driver, DriverError};
pub use extents::Victims;
pub use geometry::{Geometry, GeometryError, SUBPAGES_PER_PAGE};
pub use head::Head;
pub use helpers::Helpers;
pub use map::{Find, Located, Map};
pub use members::{MemberError, Members, OpenMember};
pub use objects::{Objects, Slots};
pub use pages::Permissions;
#[doc(hidden)]
pub use planted::Planted;
pub use pool::{LivePage, Object, Pool, PoolError, random_id};
pub use recover::{Loss, ReadPages, RecoverError, RecoverReport, recover, superblock};
pub use state::{LEAF_BYTES, Piece, State};
pub use store::{
    Durability, ExtentUses, Io, IoId, Outcome, Store, StoreConfig, StoreCounters, StoreInfo, WriteError,
    overwritten_max,
};
pub use store::{
    LOST_MAGIC, OBJECTS_AT_ONCE, ObjectBatch, ResizeError, Shrink, summary_page, superblock_pages, superblock_repairs,
};
pub use table::{Table, TableFull};
pub use tokens::{TokenTime, Tokens};
pub use view::View;
pub use wear::{Fills, Wear};
