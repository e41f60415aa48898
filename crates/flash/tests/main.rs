//! All tests of this crate but those under loom, as one program, whose tests run in processes of
//! their own.

use fulgurite_testkit::suite;

/// What all files use.
mod common {
    pub use fulgurite_testkit::media::*;
    pub use fulgurite_testkit::{Random, seed};
}

mod nand;

mod conform_decorators;
mod conform_layered;
mod conform_media;
mod conform_nand;
mod fault_media;
mod fault_merged_writes;
mod fault_nand;
mod fault_paths;
mod fault_rights;
mod regression_ended_holder;
