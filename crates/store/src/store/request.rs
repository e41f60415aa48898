//! What a store asks of the flash, its answers, and what the store reports to writers.

use fulgurite_flash::FlashError;
use fulgurite_format::PageBuffer;

use crate::state::Piece;
use crate::table::TableFull;

/// A request to the flash, on the store's own behalf.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants name the fields")]
pub enum Io {
    /// Write a page of metadata.
    Write { place: u32, page: PageBuffer },
    /// Read a page of metadata.
    Read { place: u32 },
    /// Read a flash page and write it elsewhere.
    Copy { from: u32, to: u32 },
    /// Make durable what has been written.
    Flush,
}

/// Names a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IoId(pub u64);

/// How a request ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A write or a flush succeeded.
    Done,
    /// A read succeeded.
    Read(PageBuffer),
    /// A copy succeeded; the CRC32C of what was copied.
    Copied(u32),
    /// A copy was read, and could not be written.
    NotWritten(FlashError),
    /// It failed; in the case of a copy, the reading failed.
    Failed(FlashError),
}

/// What one of the store's own requests was for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Commit,
    Journal {
        at: usize,
    },
    Anchor {
        place: u32,
    },
    Checkpoint {
        place: u32,
    },
    Summary {
        place: u32,
    },
    ReclaimRead,
    ReclaimCopy {
        from: u32,
        to: u32,
    },
    Lost {
        subpage: u32,
        from: u32,
        to: u32,
    },
    Objects(ObjectPurpose),
    /// A piece of the checkpoint in effect, for leaves that are wanted.
    Leaves(Piece),
    /// A piece of the checkpoint in effect, for the next checkpoint.
    Source(Piece),
}

/// Nothing more can be written for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum WriteError {
    #[error(
        "the pool has no space left ({uncommitted} subpages are written and not yet synced); sync, drop tokens, or make it larger"
    )]
    NoSpace {
        /// Subpages written since the last token, whose older versions must be kept.
        uncommitted: u64,
    },
    /// The page table has no entry left.
    #[error(transparent)]
    Table(#[from] TableFull),
    /// A token that is pinned, or being read, is so old that times could not be compared any more.
    #[error(
        "token {0} is pinned or being read, and too old to be kept any longer; unpin it, close its reader, or roll back to it"
    )]
    TokenTooOld(u64),
    #[error("the pool was made without objects; write whole subpages, or make a pool of objects")]
    NoObjects,
    #[error(
        "subpage {subpage} cannot have an object of {bytes} bytes; an object has up to 4096, in a subpage of the pool"
    )]
    NotAnObject {
        subpage: u32,
        /// The bytes of the object.
        bytes: usize,
    },
    #[error("objects could not be written, because {0}; their older contents stay")]
    Flash(FlashError),
    /// The locations of some objects are on flash alone.
    #[error("the locations of objects could not be read, because {0}; their older contents stay")]
    Leaf(FlashError),
    #[error("the pool takes no more changes, because {0}")]
    Poisoned(FlashError),
}

/// What a request for objects is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ObjectPurpose {
    /// A flash page of programs' objects, by its number.
    Write(u64),
    /// A page of a summary of the extent that is reclaimed.
    Summary,
    /// A piece of the checkpoint in effect, which says where some of them are stored.
    Owners(Piece),
    /// A flash page from which objects are copied.
    Source(u32),
    /// A flash page that objects are moved to.
    Move(u32),
}

/// Whether an error is about the flash page: EIO, ENODATA, EBADMSG, EILSEQ and EREMOTEIO are what
/// the kernel's block layer makes of errors of the medium (`blk_errors` in block/blk-core.c),
/// besides a checksum that is wrong.
pub(super) fn is_of_the_page(error: FlashError) -> bool {
    matches!(error, FlashError::Corrupt | FlashError::Short | FlashError::Io(5 | 61 | 74 | 84 | 121))
}
/// Whether a write may succeed elsewhere, or later: also EINTR, EAGAIN and EBUSY.
pub(super) fn may_be_repeated(error: FlashError) -> bool {
    is_of_the_page(error) || matches!(error, FlashError::Io(4 | 11 | 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_is_about() {
        for (error, of_the_page, repeated) in [
            (FlashError::Corrupt, true, true),
            (FlashError::Short, true, true),
            (FlashError::Io(5), true, true),
            (FlashError::Io(121), true, true),
            (FlashError::Io(4), false, true),
            (FlashError::Io(16), false, true),
            (FlashError::Io(19), false, false),
            (FlashError::NoSpace, false, false),
        ] {
            assert_eq!((is_of_the_page(error), may_be_repeated(error)), (of_the_page, repeated), "{error:?}");
        }
    }
}
