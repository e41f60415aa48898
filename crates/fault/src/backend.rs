//! The backends that find missing pages and fill them in, tried in this order:
//!
//! | backend | needs | a page goes to the program by | and comes back by |
//! |---|---|---|---|
//! | userfaultfd, compatible | the right to it, and Linux 6.8 | a copy | dropping or moving it |
//! | userfaultfd, in-line | the system call, and Linux 6.8 | a copy | dropping or moving it |
//! | guard markers | Linux 6.15 | a copy to a file, then shown | hidden, then a copy |
//! | protection | a mapping for each lone page | as guard markers | as guard markers |
//!
//! With all but the first, the kernel's own accesses to missing pages fail (`EFAULT`). So addresses
//! that are passed to it are made resident before ([`crate::PageBuffer::hold`]).

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::faults::Signal;
use fulgurite_sys::userfault::{self, NotMoved, Waiting};
use fulgurite_sys::{Arena, HiddenFile, Hiding, Region, Userfault};

use crate::Access;
use crate::error::{Error, cannot};
use crate::settings::Wanted;

/// See the module.
#[derive(Debug)]
pub enum FaultBackend {
    /// userfaultfd, which serves the kernel or makes signals.
    Userfault(Userfault),
    /// A file whose missing pages are hidden.
    Hidden(HiddenFile),
}

/// Where a page is that was given to the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Installed {
    /// There, and no more in its frame.
    Moved,
    /// There, and what its frame has is of no use any more.
    Left,
    /// There, read only, and in its frame.
    Copied,
}

impl FaultBackend {
    /// The best backend that this process may take of those that are wanted. Also says why it is
    /// not the best of all.
    pub fn choose(region: &Region, wanted: Wanted) -> Result<(FaultBackend, Option<String>), Error> {
        let mut refused = None;
        if let Wanted::Any | Wanted::Compatible = wanted {
            match (Userfault::open(), wanted) {
                (Ok(userfault), _) => return Ok((FaultBackend::watch(userfault, region)?, None)),
                (Err(error), Wanted::Compatible) => return Err(error.into()),
                (Err(error), _) => refused = Some(error.to_string()),
            }
        }
        if let Wanted::Any | Wanted::InLine = wanted {
            match Userfault::open_in_line() {
                Ok(userfault) => return Ok((FaultBackend::watch(userfault, region)?, refused)),
                Err(error) => refused = Some(error.to_string()),
            }
        }
        let hiding = if wanted == Wanted::Protection { Some(Hiding::Protection) } else { None };
        Ok((FaultBackend::Hidden(HiddenFile::back(region, hiding).map_err(cannot("map memory of a file"))?), refused))
    }

    fn watch(userfault: Userfault, region: &Region) -> Result<FaultBackend, Error> {
        userfault.watch_writes(region)?;
        Ok(FaultBackend::Userfault(userfault))
    }

    /// This backend in a child. There, `taken` pages have been given to the program, and it may do
    /// with them what `limited` says, or read and write.
    pub fn again(
        &self,
        region: &Region,
        taken: &[(usize, usize)],
        limited: &[(usize, usize, Access)],
    ) -> Result<FaultBackend, Error> {
        match self {
            FaultBackend::Userfault(userfault) => FaultBackend::watch(userfault.again()?, region),
            FaultBackend::Hidden(file) => {
                let file = HiddenFile::back(region, Some(file.hiding())).map_err(cannot("map memory of a file"))?;
                let backend = FaultBackend::Hidden(file);
                let read_write = taken.iter().map(|(start, pages)| (*start, *pages, Access::ReadWrite));
                for (start, pages, access) in read_write.chain(limited.iter().copied()) {
                    let (offset, len) = (start * SUBPAGE_BYTES, pages * SUBPAGE_BYTES);
                    backend.begin(region, offset, len, access).map_err(cannot("map memory of a file"))?;
                }
                Ok(backend)
            }
        }
    }

    /// Lets pages come back to an arena.
    pub fn take_back_to(&self, arena: &Arena) -> Result<(), Error> {
        match self {
            FaultBackend::Userfault(userfault) => Ok(userfault.take_back_to(arena)?),
            FaultBackend::Hidden(_) => {
                arena.inherit(false);
                Ok(())
            }
        }
    }

    /// The kernel's own accesses to missing pages fail, and threads resolve their faults
    /// themselves.
    pub fn is_in_line(&self) -> bool {
        match self {
            FaultBackend::Userfault(userfault) => userfault.is_in_line(),
            FaultBackend::Hidden(_) => true,
        }
    }
    /// The signal of an access to a missing page.
    pub fn signal(&self) -> Signal {
        match self {
            FaultBackend::Userfault(_) => Signal::Bus,
            FaultBackend::Hidden(_) => Signal::Segmentation,
        }
    }
    /// The region is memory of a file, of which a child cannot have a copy.
    pub fn is_hidden(&self) -> bool {
        matches!(self, FaultBackend::Hidden(_))
    }
    /// Each lone page may take mappings, whose number in a process is limited.
    pub fn takes_mappings(&self) -> bool {
        matches!(self, FaultBackend::Hidden(file) if file.hiding() == Hiding::Protection)
    }

    /// Whether pages can be protected from writes when they are given to the program.
    pub fn protects(&self) -> bool {
        matches!(self, FaultBackend::Userfault(_))
    }
    /// Lets the program write to a page that is protected, and wakes what waits for that.
    pub fn unprotect(&self, region: &Region, offset: usize) -> std::io::Result<()> {
        match self {
            FaultBackend::Userfault(userfault) => userfault.unprotect(region, offset),
            FaultBackend::Hidden(_) => Ok(()),
        }
    }

    /// Appends accesses that wait in the kernel.
    pub fn read(&self, into: &mut Vec<Waiting>) -> usize {
        match self {
            FaultBackend::Userfault(userfault) => userfault.read(into),
            FaultBackend::Hidden(_) => 0,
        }
    }
    /// Lets accesses to a page that wait in the kernel try again.
    pub fn wake(&self, region: &Region, offset: usize) {
        if let FaultBackend::Userfault(userfault) = self {
            userfault.wake(region, offset);
        }
    }
    /// Ends accesses to a page with a `SIGBUS`. Where threads resolve their faults, each of them is
    /// notified.
    pub fn poison(&self, region: &Region, offset: usize) {
        if let FaultBackend::Userfault(userfault) = self
            && userfault.poison(region, offset).is_ok()
        {
            userfault.wake(region, offset);
        }
    }
    /// Whether locks of the program were ended to move its pages.
    pub fn has_unlocked(&self) -> bool {
        matches!(self, FaultBackend::Userfault(userfault) if userfault.has_unlocked())
    }

    /// Begins with pages that are all missing: the program may do this with them.
    pub fn begin(&self, region: &Region, offset: usize, len: usize, access: Access) -> std::io::Result<()> {
        match self {
            FaultBackend::Userfault(_) => region.allow(offset, len, access),
            FaultBackend::Hidden(file) => {
                file.hide(region, offset, len)?;
                self.allow(region, offset, len, access)
            }
        }
    }
    /// Changes what the program may do with pages. With protection, all of them are missing.
    pub fn allow(&self, region: &Region, offset: usize, len: usize, access: Access) -> std::io::Result<()> {
        if self.takes_mappings() { Ok(()) } else { region.allow(offset, len, access) }
    }
    /// Forgets pages with what they hold: the next access finds them missing.
    pub fn forget(&self, region: &Region, offset: usize, len: usize) -> std::io::Result<()> {
        match self {
            FaultBackend::Userfault(_) => region.unmap_pages(offset, len),
            FaultBackend::Hidden(file) => {
                file.hide(region, offset, len)?;
                file.discard(offset, len)
            }
        }
    }

    /// Gives the program the page at `from` in the arena, at `to` in the region, and wakes what
    /// waits for it in the kernel. `protected`: the program's first write to it is a fault.
    pub fn give(
        &self,
        arena: &Arena,
        from: usize,
        region: &Region,
        to: usize,
        access: Access,
        protected: bool,
    ) -> Result<Installed, NotMoved> {
        match self {
            FaultBackend::Userfault(userfault) => match access {
                Access::None => Err(NotMoved::Access),
                Access::Read => userfault.copy_in(arena, from, region, to, false).map(|()| Installed::Copied),
                Access::ReadWrite => userfault.copy_in(arena, from, region, to, protected).map(|()| Installed::Left),
            },
            FaultBackend::Hidden(file) => {
                let shown = file
                    .write(arena, from, to)
                    .and_then(|()| file.show(region, to, SUBPAGE_BYTES, access))
                    .inspect_err(|_| drop(file.discard(to, SUBPAGE_BYTES)));
                shown.map_err(not_moved)?;
                // Never twice in DRAM for longer than this.
                arena.discard(from, SUBPAGE_BYTES);
                Ok(Installed::Moved)
            }
        }
    }

    /// Takes the page at `from` in the region back to `to` in the arena.
    pub fn take(&self, region: &Region, from: usize, arena: &Arena, to: usize) -> Result<(), NotMoved> {
        match self {
            FaultBackend::Userfault(userfault) => match userfault.move_out(region, from, arena, to) {
                Err(NotMoved::Exists) => {
                    // A read of the frame has made a page of zeros there.
                    arena.discard(to, SUBPAGE_BYTES);
                    userfault.move_out(region, from, arena, to)
                }
                result => result,
            },
            FaultBackend::Hidden(file) => {
                file.hide(region, from, SUBPAGE_BYTES).map_err(not_moved)?;
                file.read(from, arena, to).map_err(not_moved)?;
                let _ = file.discard(from, SUBPAGE_BYTES);
                Ok(())
            }
        }
    }
}

fn not_moved(error: std::io::Error) -> NotMoved {
    NotMoved::Other(error.raw_os_error().unwrap_or(0))
}

impl std::fmt::Display for FaultBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FaultBackend::Userfault(userfault) => match (userfault.is_in_line(), userfault.origin()) {
                (false, userfault::Origin::Device) => {
                    "userfaultfd by /dev/userfaultfd, which also serves system calls; a handler thread (compatible \
                     mode); pages are copied in, and dropped or moved out"
                }
                (false, _) => {
                    "userfaultfd by its system call, which also serves system calls; a handler thread (compatible \
                     mode); pages are copied in, and dropped or moved out"
                }
                (true, userfault::Origin::UserMode) => {
                    "userfaultfd for user mode only, found by SIGBUS; threads resolve their own faults (in-line mode), \
                     and system calls are wrapped; pages are copied in, and dropped or moved out"
                }
                (true, _) => {
                    "userfaultfd, found by SIGBUS; threads resolve their own faults (in-line mode), and system calls \
                     are wrapped; pages are copied in, and dropped or moved out"
                }
            },
            FaultBackend::Hidden(file) => match file.hiding() {
                Hiding::Guards => {
                    "guard pages on memory of a file, found by SIGSEGV; threads resolve their own faults (in-line \
                     mode), and system calls are wrapped; pages are copied"
                }
                Hiding::Protection => {
                    "pages without access on memory of a file, found by SIGSEGV; threads resolve their own faults \
                     (in-line mode), and system calls are wrapped; pages are copied"
                }
            },
        })
    }
}
