//! The page buffer: memory for programs that were never written for it. The MMU finds a missing
//! page, and the cache fills it in.
//!
//! ```text
//!  program's threads                          handler thread
//!    map, unmap, protect --- commands ------>   +---------------------------------+
//!    touch a missing page -- userfaultfd ---->  | Pager: waits, measures, answers |
//!         ^                                     |   Cache<Mapped> --> medium      |
//!         +---- page moved in, woken <--------  +---------------------------------+
//! ```
//!
//! Invariants:
//! * A subpage's page is in the region, or in its frame, or nowhere: it is never in two places that
//!   can be written to.
//! * Whether a page was written to is decided after it has left the region, by its fingerprint.
//! * What holds the pager touches no address of the region, has all signals blocked, and waits for
//!   no lock that is held while the region is touched.
//!
//! It has one handler thread. Where there is no userfaultfd (`backend`), faults are signals, and
//! threads resolve their own (`entry`). A child after `fork` gets a page buffer of its own, which
//! begins with all that its parent's holds (`fork`). The allocators and the functions that programs
//! call are in other crates.
#![forbid(unsafe_code)]

mod backend;
mod budget;
mod command;
mod entry;
mod error;
mod fingerprint;
mod fork;
mod mapped;
mod notices;
mod own_reads;
mod page_buffer;
mod pager;
mod published;
mod settings;
mod space;
mod statistics;

pub use error::Error;
pub use fingerprint::{Fingerprint, Fingerprints};
pub use fork::Forking;
pub use fulgurite_sys::faults::{Fault, FaultOutcome, Signal};
pub use fulgurite_sys::userfault::Access;
pub use notices::Notices;
pub use page_buffer::{Held, PageBuffer};
pub use published::Published;
pub use settings::{Below, ENVIRONMENT, RunSettings, Settings, Wanted};
pub use statistics::{Statistics, Summary, WaitOf};
