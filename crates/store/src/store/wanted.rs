//! What is needed of leaves that are on flash alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use fulgurite_flash::FlashError;

/// What is needed of leaves.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub pages: BTreeSet<u32>,
    /// Flash pages of pieces that are being read.
    pub reading: BTreeSet<u32>,
    /// Pages whose piece could not be read, until the error was returned to a caller.
    pub failed: BTreeMap<u32, FlashError>,
    /// Places given to programs, each with the page whose leaf stays meanwhile.
    pub placed: HashMap<u32, u32, FixedState>,
    /// Pages that stay until their status was set.
    pub statuses: Vec<u32>,
    /// How many checkpoints there were when one was made for want of room, if none was found since.
    pub asked: Option<u64>,
    /// How often the checkpoint could not read a piece, by its flash page, since it last could.
    pub tries: BTreeMap<u32, u32>,
    /// Where the journal was when a checkpoint was given up because the medium did not read, and
    /// what that said.
    pub put_off: Option<(u64, FlashError)>,
}
