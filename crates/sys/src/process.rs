//! Which process this is: a child after `fork` has its parent's memory, and none of its threads.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arch::system_call;
use crate::{Arena, Backed};

const PAGE: usize = 4096;

/// The process that made this. To ask for it costs a load and a compare. A child of `vfork` has its
/// parent's memory and counts as its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

/// The page that `fork` wipes holds the number of this process, or 0 before it has one. None where
/// the kernel has no such pages (before Linux 4.14): then it is the kernel's number.
static PAGE_OF: OnceLock<Option<Arena>> = OnceLock::new();
/// Numbers given out, in this process and those before it.
static GIVEN: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// This process.
    #[must_use]
    pub fn current() -> Process {
        let Some(number) = number() else { return Process(std::process::id().into()) };
        let now = number.load(Ordering::Relaxed);
        if now != 0 {
            return Process(now);
        }
        let new = GIVEN.fetch_add(1, Ordering::Relaxed) + 1;
        match number.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Process(new),
            Err(given) => Process(given),
        }
    }

    /// Whether this is the process that made it, and not a child.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        match number() {
            Some(number) => number.load(Ordering::Relaxed) == self.0,
            None => self.0 == u64::from(std::process::id()),
        }
    }
}

#[inline]
fn number() -> Option<&'static AtomicU64> {
    PAGE_OF.get_or_init(|| wiped_by_forks().ok()).as_ref().map(|page| &page.words(0, 1)[0])
}

/// A page of zeros that is one again in a child after `fork`.
///
/// # Errors
/// When the kernel has no memory, or no such memory (before Linux 4.14).
pub(crate) fn wiped_by_forks() -> io::Result<Arena> {
    const WIPE_ON_FORK: usize = 18;
    let arena = Arena::anonymous(PAGE, Backed::BasePages).map_err(io::Error::other)?;
    let page = arena.base().as_ptr() as usize;
    // SAFETY: the page is the arena's. The kernel is called directly, as a library that intercepts
    // `madvise` may ask for this.
    let result = unsafe { system_call(libc::SYS_madvise as usize, [page, PAGE, WIPE_ON_FORK, 0, 0, 0]) };
    if result == 0 { Ok(arena) } else { Err(io::Error::from_raw_os_error(-result as i32)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_another_process_and_so_is_its_child() {
        let here = Process::current();
        assert!(here.is_current() && here == Process::current());
        // SAFETY: the children call nothing that a lock of another thread could hold up.
        let status = unsafe {
            match libc::fork() {
                0 => {
                    let is_child = !here.is_current();
                    let child = Process::current();
                    let new = child.is_current() && child != here;
                    let grandchild = libc::fork();
                    if grandchild == 0 {
                        libc::_exit(i32::from(child.is_current() || here.is_current()));
                    }
                    let mut status = 0;
                    libc::waitpid(grandchild, &raw mut status, 0);
                    libc::_exit(i32::from(!(is_child && new && status == 0)));
                }
                child => {
                    let mut status = 0;
                    libc::waitpid(child, &raw mut status, 0);
                    status
                }
            }
        };
        assert!(status == 0 && here.is_current());
    }
}
