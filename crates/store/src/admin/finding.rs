//! What a check finds, and how flash pages are read past the pool.

use std::sync::Arc;

use fulgurite_flash::{Flash, FlashError, Mover};
use fulgurite_format::SUBPAGE_BYTES;

use super::error::AdminError;
use super::{Step, Watch, report};

/// What is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// A token that was promised.
    Lost,
    /// A copy of the superblock.
    Superblock,
    /// A copy of what a member says of all members.
    Member,
    /// A copy of an anchor.
    Anchor,
    /// A page of the journal or of a checkpoint that the pool can be opened without.
    Journal,
    /// A summary of an extent.
    Summary,
    /// The tables against each other.
    Tables,
    /// What programs read.
    Data,
    /// What only tokens keep.
    OlderData,
    /// The pool cannot be opened.
    Pool,
}

impl Damage {
    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Damage::Lost => "lost",
            Damage::Superblock => "superblock",
            Damage::Member => "member",
            Damage::Anchor => "anchor",
            Damage::Journal => "journal",
            Damage::Summary => "summary",
            Damage::Tables => "tables",
            Damage::Data => "data",
            Damage::OlderData => "older-data",
            Damage::Pool => "pool",
        }
    }
}

/// One thing that is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it is.
    pub kind: Damage,
    /// Where it is stored; of a member's list, in the member.
    pub flash_page: Option<u32>,
    /// The subpage, when data is damaged.
    pub subpage: Option<u32>,
    /// Its first byte in the data.
    pub first_byte: Option<u64>,
    /// It was given up by a repair before.
    pub given_up: bool,
    /// In words.
    pub sentence: String,
}

impl Finding {
    pub(super) fn at(kind: Damage, flash_page: u32, sentence: String) -> Finding {
        Finding { kind, flash_page: Some(flash_page), subpage: None, first_byte: None, given_up: false, sentence }
    }
    /// Why a pool cannot be opened, in words.
    #[must_use]
    pub fn of_pool(sentence: String) -> Finding {
        Finding::of_all(Damage::Pool, sentence)
    }
    pub(super) fn of_all(kind: Damage, sentence: String) -> Finding {
        Finding { flash_page: None, ..Finding::at(kind, 0, sentence) }
    }
    pub(super) fn of_data(kind: Damage, place: u32, subpage: u32, given_up: bool, sentence: String) -> Finding {
        let first_byte = Some(u64::from(subpage) * SUBPAGE_BYTES as u64);
        Finding { subpage: Some(subpage), first_byte, given_up, ..Finding::at(kind, place, sentence) }
    }
}

/// The places of the two copies of the superblock.
pub(super) const SUPERBLOCKS: [u32; 2] = [0, 1];

/// Reads flash pages past the pool, and calls `each` with every one of them.
pub(super) fn read_raw(
    medium: &Arc<dyn Flash>,
    step: Step,
    places: &[u32],
    watch: Watch<'_>,
    mut each: impl FnMut(u32, Result<&[u8], FlashError>),
) -> Result<(), AdminError> {
    let mut done = 0;
    Mover::new(&**medium)?.read(places.iter().copied(), |(place, content)| {
        each(place, content);
        done += 1;
        report(watch, step, done, places.len() as u64)
    })
}
