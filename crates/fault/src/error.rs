//! Why a page buffer cannot be made.

use std::io;
use std::path::PathBuf;

use fulgurite_flash::OpenError;
use fulgurite_format::format_bytes;
use fulgurite_sys::{ArenaError, UserfaultError};

/// Why a page buffer cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The flash cannot be opened.
    #[error(transparent)]
    Backing(#[from] fulgurite_backing::Error),
    /// A queue to the flash cannot be opened.
    #[error(transparent)]
    Queue(#[from] OpenError),
    /// Faults cannot be handled.
    #[error(transparent)]
    Userfault(#[from] UserfaultError),
    /// There is no memory for frames and tables.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// The cap leaves too little for frames.
    #[error(
        "a cap of {cap} bytes is too small: this program and the tables for its flash take {taken} bytes already; \
         ask for {least} or more (--dram), or for less flash (--flash-size)"
    )]
    TooSmall {
        /// What was asked for.
        cap: u64,
        /// What is taken.
        taken: u64,
        /// What would do.
        least: u64,
    },
    /// A pool has less room than was asked for.
    #[error(
        "{}: {} are unused, and {} were asked for; ask for less (--flash-size), delete pages or tokens, or make the \
         pool larger (fulgurite pool resize)",
        .path.display(), format_bytes(*.unused), format_bytes(*.asked)
    )]
    PoolTooSmall {
        /// Where it is.
        path: PathBuf,
        /// Bytes that are unused.
        unused: u64,
        /// Bytes that were asked for.
        asked: u64,
    },
    /// This process may not write to all of a file.
    #[error(
        "the flash has a file of {}, and this process may write files of {} only; raise the limit (ulimit -f)",
        format_bytes(*.largest), format_bytes(*.limit)
    )]
    FileLimit {
        /// Bytes of the file.
        largest: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A child after `fork` cannot have the memory of its parent.
    #[error(
        "a child gets no memory of flash: its parent has mapped more than is free, too many processes share it, or \
         its reads and writes do not end; choose more (--flash-size)"
    )]
    NotForked,
    /// Faults that are signals cannot be handled.
    #[error("cannot handle SIGSEGV: {0}")]
    Signals(#[source] io::Error),
    /// The settings cannot be read.
    #[error("{0} is not what `fulgurite run` passes on to its program: start the program by it")]
    Settings(String),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
}

/// What was tried, for a system call's error.
pub(crate) fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}
