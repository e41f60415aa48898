//! What can go wrong: at the opening of a medium or queue, at a submission, and with one request.

use std::io;
use std::path::PathBuf;

use fulgurite_format::format_bytes;

/// Why one request failed. Small, so that it fits in a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FlashError {
    /// The kernel or device reported an error (its errno).
    #[error("the flash reported \"{}\"; {}", io::Error::from_raw_os_error(*.0), remedy(*.0))]
    Io(i32),
    /// Fewer bytes than a subpage came, and no more after asking again: the file was cut under us.
    #[error("the flash gave less than a whole subpage; was the file truncated?")]
    Short,
    /// The subpage is past the end of the medium, or the frame past the end of the arena.
    #[error("the request is outside the flash or the frames; grow the flash, or ask for less")]
    OutOfRange,
    /// The medium did not answer in time, as its caller judges.
    #[error("the flash did not answer in time; check the device, then reopen")]
    TimedOut,
    /// A flush failed earlier, which the kernel reports once, so that nothing later can be trusted
    /// to be durable. Or a device in another process died with unflushed writes. Or a thread
    /// panicked in a change of the pool.
    #[error(
        "an earlier flush failed, the device died with writes that no flush had covered, or a thread panicked in the \
         midst of a change; nothing more is written: reopen to recover the durable state"
    )]
    Poisoned,
    /// There is no space for new versions, and none will come without a sync.
    #[error("the pool has no space left; sync, drop tokens, or make it larger")]
    NoSpace,
    /// What was read is not what was written: its checksum is wrong, also when read again.
    #[error("the flash gave other data than was written; that data is lost, restore it from an older token or a copy")]
    Corrupt,
    /// The medium was closed, or the device that it is on is away.
    #[error(
        "the flash was closed, or its device has gone, while requests were under way; start the device again if it has, then try again"
    )]
    Closed,
    /// The state that is read is gone: a device was away, and has let go of its token meanwhile.
    #[error(
        "the token that is read is gone: its device was away, and no longer keeps it; open a token that is still kept"
    )]
    NoToken,
    /// The file of the medium was deleted or replaced: what is written to it is lost when it is
    /// closed.
    #[error(
        "the file was deleted or replaced while it was open, and nothing more is written to it; copy out what is needed \
         before this program ends, then open the file that is to be used"
    )]
    Unlinked,
}

/// The remedy for an errno. Only errors of the kernel's block layer are in the kernel's log.
fn remedy(errno: i32) -> &'static str {
    match errno {
        // EIO, ENXIO, ENODEV, ENODATA, EBADMSG, EILSEQ, EREMOTEIO: `blk_errors` in
        // block/blk-core.c.
        5 | 6 | 19 | 61 | 74 | 84 | 121 => "see dmesg, and check the device before going on",
        // EACCES, EPERM.
        1 | 13 => {
            "a page of it may not be written, or a filter of system calls (seccomp) denies it; change the permissions or \
             the filter first"
        }
        // EEXIST.
        17 => "what was to be allocated is there already; take other pages",
        // ENOSPC, EDQUOT.
        28 | 122 => "its file system is full; free some space there",
        // EROFS.
        30 => "it may only be read; open it for changes",
        // EPROTO.
        71 => "the device breaks its protocol; start it anew, in the version of this program",
        // EOPNOTSUPP.
        95 => "the device cannot do that; use one that can, or do without",
        _ => "check what it is stored on, then try again",
    }
}

/// The queue has as many requests in flight as it is deep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the queue is full; poll for completions first")]
pub struct QueueFull;

/// Why a medium or a queue could not be opened. Nothing was changed, unless the variant says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No queue can be this deep.
    #[error("a queue cannot have a depth of {depth}; choose 1 to {}", crate::DEPTH_MAX)]
    Depth {
        /// What was asked for.
        depth: usize,
    },
    /// A medium of no subpages, or of more than 2^32 - 1.
    #[error("flash of {bytes} bytes cannot be used; choose a multiple of 4 KiB from 4 KiB to 16 TiB")]
    Size {
        /// What was asked for or found.
        bytes: u64,
    },
    /// The size is not a whole number of subpages.
    #[error("flash of {bytes} bytes does not divide into subpages of 4 KiB; choose a multiple of 4096")]
    NotAMultiple {
        /// What was asked for or found.
        bytes: u64,
    },
    /// NAND cannot be divided so.
    #[error(transparent)]
    Nand(#[from] fulgurite_nand::FilError),
    /// An emulated device needs a plane.
    #[error("an emulated device needs at least one plane")]
    NoPlanes,
    /// The storage given is smaller than the medium.
    #[error("storage of {} is too small for {subpages} subpages of 4 KiB", format_bytes(*.bytes as u64))]
    Storage {
        /// What is there.
        bytes: usize,
        /// What is needed.
        subpages: u32,
    },
    /// Frames and storage must be different memory.
    #[error("the frames are the storage of the flash itself; give the queue an arena of its own")]
    SameArena,
    /// Memory for storage or rings.
    #[error(transparent)]
    Memory(#[from] fulgurite_sys::ArenaError),
    /// A thread, a core, a ring or a file descriptor.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
    /// There is no such file.
    #[error("{} does not exist; check the path, or create it first", path.display())]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// A file to be created exists.
    #[error("{} exists and is not overwritten; open it as it is, name another path, or delete it", path.display())]
    Exists {
        /// The path as given.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is a {kind}; flash needs a regular file or a block device", path.display())]
    WrongKind {
        /// The path as given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// No right to read and write it.
    #[error("{} cannot be read and written: {source}; change its permissions, or choose another path", path.display())]
    Denied {
        /// The path as given.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// Another process, or another medium of this one, has it open.
    #[error("{} is in use {}", path.display(), if *.here {
        "by this process already; close it there first, or choose another path"
    } else {
        "by another process; stop that one, or choose another path"
    })]
    InUse {
        /// The path as given.
        path: PathBuf,
        /// This process has it open.
        here: bool,
    },
    /// The file is smaller than what was asked for.
    #[error("{} has {}, and {} are needed; name a larger one, or ask for less", path.display(), format_bytes(*.found), format_bytes(*.needed))]
    TooSmall {
        /// The path as given.
        path: PathBuf,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// Somebody stopped the creation; what had been written has been removed.
    #[error("the creation of {} was stopped; nothing is left of it", path.display())]
    Stopped {
        /// The path as given.
        path: PathBuf,
    },
    /// The file system is too full for a file of this size.
    #[error(
        "{} needs {} and its file system has {}; free some, or ask for less",
        path.display(), format_bytes(*.needed),
        free.map_or("no more".to_owned(), |free| format!("{} free", format_bytes(free)))
    )]
    NoSpace {
        /// The path as given.
        path: PathBuf,
        /// Bytes that the file needs.
        needed: u64,
        /// Bytes that the file system has for this user. None where it does not say.
        free: Option<u64>,
    },
    /// This process may not write a file of this size.
    #[error(
        "{} needs {}, and this process may write files of {} only; raise the limit (ulimit -f), or ask for less",
        path.display(), format_bytes(*.needed), format_bytes(*.limit)
    )]
    Limit {
        /// The path as given.
        path: PathBuf,
        /// Bytes that the file needs.
        needed: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A block device cannot be made larger from here.
    #[error(
        "{} is a block device, and has {}; make the device larger first, or add a member to the pool",
        path.display(), format_bytes(*.bytes)
    )]
    FixedSize {
        /// The path as given.
        path: PathBuf,
        /// Bytes that the device has now.
        bytes: u64,
    },
    /// Any other error about a path. A file that was being created has been removed again.
    #[error("cannot {what} {}: {source}", path.display())]
    Path {
        /// What was tried.
        what: &'static str,
        /// The path as given.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_cause() {
        assert!(FlashError::Io(5).to_string().contains("Input/output error"));
        assert!(FlashError::Io(5).to_string().contains("dmesg"));
        // What no kernel has said is not in its log.
        for errno in [2, 11, 13, 17, 28, 30, 71, 95] {
            assert!(!FlashError::Io(errno).to_string().contains("dmesg"), "{errno}");
        }
        let gone = FlashError::NoToken.to_string();
        assert!(gone.contains("token") && gone.contains("device was away"), "{gone}");
    }
}
