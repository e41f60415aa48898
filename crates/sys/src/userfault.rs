//! Memory whose missing pages this process fills in itself: userfaultfd, and the reserved range of
//! addresses that it watches.
//!
//! ```text
//!            copy_in, move_in                            read: which pages are touched and missing
//!   arena  ------------------------------>  region  ----------------------------------> userfault
//!   (ours) <------------------------------  (the program's)                                 |
//!            move_out (unmaps it there)                <------------- wakes the thread -----+
//! ```
//!
//! Pages are moved out, not copied: `UFFDIO_MOVE` (Linux 6.8) takes a page out of one place, with
//! what it holds, and puts it into the other. No thread can write to a page between its unmapping
//! and the check of its contents. It refuses pages that a device may still write to.
//!
//! Each move interrupts all processors that the program runs on: the page was mapped at its source.
//! A copy to a missing page interrupts none. Pages that are dropped together interrupt them once
//! ([`Region::drop_pages`]). A page that was protected when it was copied in, and still is, was
//! written to neither by the program nor by the kernel, and no device can write to it.
//!
//! Since Linux 6.18 a page may have moved although the call says that the other place is taken
//! (`EEXIST`). That kernel begins anew when the page's entry changes under it: it is touched, or
//! the kernel looks for pages to swap out. It then forgets that the second attempt succeeded, and
//! makes a third. So that error counts only where the page is still in its old place.
//!
//! Invariant: a region is watched from its making to its end, and has no huge pages. It is reached
//! by addresses only, never by references of Rust. So a page that leaves it breaks no promise: the
//! next access finds it missing and waits. In a child after `fork` there is no region, unless it is
//! to be inherited.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::Arena;
use crate::arch::system_call;
use crate::descriptors::above_standard;

const PAGE: usize = 4096;

/// The numbers of `linux/userfaultfd.h` as of Linux 6.18. The headers of a distribution may be
/// older than its kernel.
mod abi {
    pub const API: u64 = 0xAA;
    pub const FEATURE_WRITE_PROTECTION: u64 = 1;
    pub const FEATURE_SIGBUS: u64 = 1 << 7;
    pub const FEATURE_THREAD_ID: u64 = 1 << 8;
    pub const FEATURE_POISON: u64 = 1 << 14;
    pub const FEATURE_MOVE: u64 = 1 << 16;
    pub const REGISTER_MISSING: u64 = 1;
    pub const REGISTER_WP: u64 = 2;
    pub const USER_MODE_ONLY: libc::c_int = 1;
    pub const EVENT_PAGEFAULT: u8 = 0x12;
    pub const FAULT_IS_WRITE: u64 = 1;
    pub const FAULT_IS_PROTECTED: u64 = 2;
    pub const COPY_PROTECTED: u64 = 2;

    const fn number(direction: libc::c_ulong, nr: libc::c_ulong, size: usize) -> libc::c_ulong {
        direction << 30 | (size as libc::c_ulong) << 16 | 0xAA << 8 | nr
    }
    const BOTH: libc::c_ulong = 3;
    const READ: libc::c_ulong = 2;
    /// Of `/dev/userfaultfd`.
    pub const NEW: libc::c_ulong = number(0, 0x00, 0);
    pub const IOC_API: libc::c_ulong = number(BOTH, 0x3F, size_of::<Api>());
    pub const IOC_REGISTER: libc::c_ulong = number(BOTH, 0x00, size_of::<Register>());
    pub const IOC_WAKE: libc::c_ulong = number(READ, 0x02, size_of::<Range>());
    pub const IOC_COPY: libc::c_ulong = number(BOTH, 0x03, size_of::<Move>());
    pub const IOC_MOVE: libc::c_ulong = number(BOTH, 0x05, size_of::<Move>());
    pub const IOC_PROTECT: libc::c_ulong = number(BOTH, 0x06, size_of::<Protect>());
    pub const IOC_POISON: libc::c_ulong = number(BOTH, 0x08, size_of::<Poison>());

    #[repr(C)]
    pub struct Api {
        pub api: u64,
        pub features: u64,
        pub ioctls: u64,
    }
    #[repr(C)]
    pub struct Range {
        pub start: u64,
        pub len: u64,
    }
    #[repr(C)]
    pub struct Register {
        pub range: Range,
        pub mode: u64,
        pub ioctls: u64,
    }
    /// `uffdio_move` and `uffdio_copy`.
    #[repr(C)]
    pub struct Move {
        pub to: u64,
        pub from: u64,
        pub len: u64,
        pub mode: u64,
        pub done: i64,
    }
    #[repr(C)]
    pub struct Protect {
        pub range: Range,
        pub mode: u64,
    }
    #[repr(C)]
    pub struct Poison {
        pub range: Range,
        pub mode: u64,
        pub updated: i64,
    }
    /// `uffd_msg` of a page fault.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Message {
        pub event: u8,
        pub reserved: [u8; 7],
        pub flags: u64,
        pub address: u64,
        pub thread: u64,
    }
    const _: () = assert!(size_of::<Message>() == 32 && size_of::<Move>() == 40);
}

/// What a program may do in a part of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing: any access is a `SIGSEGV`.
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}

impl Access {
    fn flags(self) -> MprotectFlags {
        match self {
            Access::None => MprotectFlags::empty(),
            Access::Read => MprotectFlags::READ,
            Access::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
        }
    }
}

/// The least number of addresses below and above a region that nothing may access, so that no other
/// mapping touches it.
const GUARD: usize = 64 << 10;
/// Bytes whose pages share a table of pages of the kernel.
const TABLE: usize = 512 * PAGE;

/// A reserved range of addresses for programs. See the module.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    mapped: NonNull<u8>,
    mapped_len: usize,
}

// SAFETY: a region is a range of addresses. It has no thread-bound state, and its bytes are never
// reached through it.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes` of addresses, a multiple of 4096, which nothing may access yet. They begin
    /// at a multiple of 2 MiB: only of whole tables does [`Region::unmap_pages`] free them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reserve(bytes: usize) -> io::Result<Region> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mapped_len = bytes.checked_add(2 * GUARD + TABLE).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped_len, ProtFlags::empty(), flags) }?;
        let mapped = NonNull::new(start.cast::<u8>()).expect("mmap never returns null");
        let first = mapped.as_ptr() as usize + GUARD;
        let before = first.next_multiple_of(TABLE) - first + GUARD;
        let base = NonNull::new(mapped.as_ptr().wrapping_add(before)).expect("it is inside the mapping");
        let region = Region { base, len: bytes, mapped, mapped_len };
        // Huge pages would fill missing pages in with zeros.
        region.advise(0, bytes, Advice::LinuxNoHugepage)?;
        region.leave_out_of_cores(0, bytes)?;
        region.inherit(false);
        Ok(region)
    }

    /// Its first address.
    #[must_use]
    pub fn base(&self) -> usize {
        self.base.as_ptr() as usize
    }
    /// Bytes in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The offset of an address in it.
    #[inline]
    #[must_use]
    pub fn offset_of(&self, address: usize) -> Option<usize> {
        address.checked_sub(self.base()).filter(|offset| *offset < self.len)
    }

    /// Sets what the program may do in a range.
    ///
    /// # Errors
    /// The kernel's: each change of access inside a region costs one of the 65,530 mappings.
    ///
    /// # Panics
    /// When the range is not inside the region.
    pub fn allow(&self, offset: usize, len: usize, access: Access) -> io::Result<()> {
        let start = self.range(offset, len);
        // SAFETY: the range is this mapping's, to which no reference exists.
        unsafe { rustix::mm::mprotect(start.cast(), len, access.flags()) }.map_err(Into::into)
    }

    /// Ends the locks (`mlock`) of pages around one, which keep it from moving.
    pub(crate) fn unlock_around(&self, offset: usize) {
        // More than one at a time: each change of a lock inside a region costs a mapping.
        let start = offset / TABLE * TABLE;
        let len = TABLE.min(self.len - start);
        // SAFETY: the range is this mapping's. Its contents do not change.
        let _ = unsafe { rustix::mm::munlock(self.range(start, len).cast(), len) };
    }

    /// Leaves the region out of children of this process, or not. A child that has it must watch it
    /// itself, before anything there touches it.
    pub fn inherit(&self, inherited: bool) {
        // A child's missing pages would read as zeros.
        let advice = if inherited { Advice::LinuxDoFork } else { Advice::LinuxDontFork };
        let _ = self.advise(0, self.len, advice);
    }

    /// Forgets the pages that are mapped in a range: the next access finds them missing. Linux 6.14
    /// also frees the kernel's tables of pages that are in the range as a whole, 2 MiB each.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the range is not inside the region.
    pub fn unmap_pages(&self, offset: usize, len: usize) -> io::Result<()> {
        self.advise(offset, len, Advice::LinuxDontNeed)
    }

    /// Forgets single pages as [`Region::unmap_pages`] does, and interrupts the processors that the
    /// program runs on once for all of them (Linux 6.16; before, once for each). Calls `failed`
    /// with the index of each offset whose page is still there.
    ///
    /// # Panics
    /// When a place is not inside the region.
    pub fn drop_pages(&self, offsets: &[usize], failed: impl FnMut(usize)) {
        crate::dropping::drop_pages(offsets.iter().map(|offset| self.range(*offset, PAGE) as usize), failed);
    }

    /// Maps a part of a file over a range, shared with whatever else has it mapped.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the range is not inside the region.
    pub(crate) fn map_over(&self, file: BorrowedFd<'_>, offset: usize, len: usize, access: Access) -> io::Result<()> {
        let start = self.range(offset, len);
        let protection = ProtFlags::from_bits_retain(access.flags().bits());
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range is this mapping's, to which no reference exists.
        unsafe { rustix::mm::mmap(start.cast(), len, protection, flags, file, offset as u64) }?;
        self.advise(offset, len, Advice::LinuxNoHugepage)?;
        self.leave_out_of_cores(offset, len)?;
        self.advise(offset, len, Advice::LinuxDontFork)
    }

    /// The kernel waits for no page while it writes a core file. What is missing would be zeros
    /// there, next to pages with contents.
    fn leave_out_of_cores(&self, offset: usize, len: usize) -> io::Result<()> {
        self.advise(offset, len, Advice::LinuxDontDump)
    }

    /// Gives the kernel advice that it may be newer than this library's list of.
    pub(crate) fn advise_raw(&self, offset: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
        let start = self.range(offset, len);
        // SAFETY: as for `allow`. The callers' advice hides or shows pages. The kernel is called
        // directly: a library that stands in for `madvise` and `syscall` may call this.
        let result =
            unsafe { system_call(libc::SYS_madvise as usize, [start as usize, len, advice as usize, 0, 0, 0]) };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result as i32)) }
    }

    fn advise(&self, offset: usize, len: usize, advice: Advice) -> io::Result<()> {
        let start = self.range(offset, len);
        // SAFETY: as for `allow`.
        unsafe { rustix::mm::madvise(start.cast(), len, advice) }.map_err(Into::into)
    }

    /// Puts a copy of a page of an arena at a place of the region where nothing is mapped any more,
    /// as private memory: in a child after `fork`, until it has memory of its own there.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When a place is not inside its range.
    pub fn lend(&self, offset: usize, arena: &Arena, from: usize) -> io::Result<()> {
        let (start, from) = (self.range(offset, PAGE), arena.range(from, PAGE));
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: the range is this region's, to which no reference exists. Both are pages.
        unsafe {
            rustix::mm::mmap_anonymous(start.cast(), PAGE, ProtFlags::READ | ProtFlags::WRITE, flags)?;
            crate::arch::copy_opaque(from.as_ptr(), start, PAGE);
        }
        Ok(())
    }

    /// Copies a page that was lent back to an arena.
    ///
    /// # Errors
    /// The kernel's, where nothing can be read.
    ///
    /// # Panics
    /// When a place is not inside its range.
    pub fn copy_back(&self, offset: usize, arena: &Arena, to: usize) -> io::Result<()> {
        let here = libc::iovec { iov_base: arena.range(to, PAGE).as_ptr().cast(), iov_len: PAGE };
        let there = libc::iovec { iov_base: self.range(offset, PAGE).cast(), iov_len: PAGE };
        // SAFETY: the kernel writes a page of the arena, which is reached as opaque copies only.
        let moved = unsafe { libc::process_vm_readv(libc::getpid(), &raw const here, 1, &raw const there, 1, 0) };
        if moved == PAGE as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn range(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "bytes {offset}..+{len} are outside a region of {} bytes",
            self.len
        );
        self.base.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `reserve` and is unmapped once, here.
        let _ = unsafe { rustix::mm::munmap(self.mapped.as_ptr().cast(), self.mapped_len) };
    }
}

/// Why there is no userfaultfd.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserfaultError {
    /// Neither method to make one is available.
    #[error(
        "userfaultfd is refused ({source}); run as root, or give this user the right to open /dev/userfaultfd, \
         or set the sysctl vm.unprivileged_userfaultfd to 1"
    )]
    Refused {
        /// The kernel's error for the last method.
        source: io::Error,
    },
    /// It cannot move pages, or not protect them from writes.
    #[error("this kernel's userfaultfd cannot move and protect pages; Linux 6.8 is the first that can")]
    Old,
    /// It cannot watch the memory.
    #[error("userfaultfd cannot watch this memory: {source}")]
    Watch {
        /// The kernel's word.
        source: io::Error,
    },
}

/// How a userfaultfd was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// By `/dev/userfaultfd`.
    Device,
    /// By the system call.
    Call,
    /// By the system call, for accesses in user mode only.
    UserMode,
}

/// An access that waits in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Its address.
    pub address: usize,
    /// It is to change memory.
    pub is_write: bool,
    /// The page is there, and protected. Else it is missing.
    pub is_protected: bool,
    /// The kernel's number of its thread.
    pub thread: u32,
}

/// Why a page did not move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotMoved {
    /// There is a page at the other end already.
    Exists,
    /// There is none to move.
    Missing,
    /// The kernel, a device or a child process holds it.
    Busy,
    /// The program may not write there, or nothing is mapped there any more.
    Access,
    /// Any other reason, by its number.
    Other(i32),
}

/// One userfaultfd. See the module.
#[derive(Debug)]
pub struct Userfault {
    fd: OwnedFd,
    /// Which pages of this process are there. None where it may not read that: then the place to
    /// which a page is to move is emptied before.
    pagemap: Option<File>,
    origin: Origin,
    is_in_line: bool,
    unlocked: AtomicBool,
}

/// Tries of a call that is to be tried again. The page is then being moved by the kernel itself.
const TRIES: u32 = 1000;

impl Userfault {
    /// Opens one that also serves the kernel's own accesses, so that system calls with addresses of
    /// a region work as they are.
    ///
    /// # Errors
    /// [`UserfaultError`].
    pub fn open() -> Result<Userfault, UserfaultError> {
        Userfault::open_as(false)
    }

    /// Opens one that makes a `SIGBUS` of an access to a missing page, so that its thread can
    /// resolve it. The kernel's own accesses fail. So it needs no right beyond that to the system
    /// call.
    ///
    /// # Errors
    /// [`UserfaultError`].
    pub fn open_in_line() -> Result<Userfault, UserfaultError> {
        Userfault::open_as(true)
    }

    fn open_as(is_in_line: bool) -> Result<Userfault, UserfaultError> {
        let refused = |source| UserfaultError::Refused { source };
        let (fd, origin) = match (by_device(), by_call(0)) {
            (Ok(fd), _) => (fd, Origin::Device),
            (_, Ok(fd)) => (fd, Origin::Call),
            (_, Err(_)) if is_in_line => (by_call(abi::USER_MODE_ONLY).map_err(refused)?, Origin::UserMode),
            (_, Err(source)) => return Err(refused(source)),
        };
        let reported = if is_in_line { abi::FEATURE_SIGBUS } else { abi::FEATURE_THREAD_ID };
        let features = abi::FEATURE_MOVE | abi::FEATURE_POISON | abi::FEATURE_WRITE_PROTECTION | reported;
        let mut api = abi::Api { api: abi::API, features, ioctls: 0 };
        // SAFETY: the call reads and writes the structure that it is given.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), abi::IOC_API, &raw mut api) };
        if result != 0 {
            return Err(UserfaultError::Old);
        }
        // A process that has changed its user may not open it.
        let pagemap = above_standard(|| File::open("/proc/self/pagemap")).ok();
        Ok(Userfault { fd, pagemap, origin, is_in_line, unlocked: AtomicBool::new(false) })
    }

    /// Another one of the same kind: for a child after `fork`.
    ///
    /// # Errors
    /// [`UserfaultError`].
    pub fn again(&self) -> Result<Userfault, UserfaultError> {
        Userfault::open_as(self.is_in_line)
    }
    /// How it was made.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }
    /// Whether accesses to missing pages are signals.
    #[must_use]
    pub fn is_in_line(&self) -> bool {
        self.is_in_line
    }

    /// Watches a region.
    ///
    /// # Errors
    /// [`UserfaultError::Watch`].
    pub fn watch(&self, region: &Region) -> Result<(), UserfaultError> {
        self.register(region.base(), region.len(), abi::REGISTER_MISSING)
    }

    /// As [`Userfault::watch`], and also watches the first writes to pages that are protected
    /// ([`Userfault::copy_in`]).
    ///
    /// # Errors
    /// [`UserfaultError::Watch`].
    pub fn watch_writes(&self, region: &Region) -> Result<(), UserfaultError> {
        self.register(region.base(), region.len(), abi::REGISTER_MISSING | abi::REGISTER_WP)
    }

    /// Lets pages be moved to an arena of base pages. Its own missing pages are zeros, as before.
    ///
    /// # Errors
    /// [`UserfaultError::Watch`].
    pub fn take_back_to(&self, arena: &Arena) -> Result<(), UserfaultError> {
        arena.inherit(false);
        self.register(arena.base().as_ptr() as usize, arena.len(), abi::REGISTER_WP)
    }

    fn register(&self, start: usize, len: usize, mode: u64) -> Result<(), UserfaultError> {
        let range = abi::Range { start: start as u64, len: len as u64 };
        let mut register = abi::Register { range, mode, ioctls: 0 };
        // SAFETY: the call reads and writes the structure that it is given. What it changes of the
        // range is what fills missing pages in.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), abi::IOC_REGISTER, &raw mut register) };
        if result == 0 { Ok(()) } else { Err(UserfaultError::Watch { source: io::Error::last_os_error() }) }
    }

    /// Appends accesses that wait, up to 64, and returns how many. Never blocks.
    pub fn read(&self, into: &mut Vec<Waiting>) -> usize {
        self.read_some::<64>(into)
    }
    /// As [`Userfault::read`], up to `N`: the others are left to other threads.
    pub fn read_some<const N: usize>(&self, into: &mut Vec<Waiting>) -> usize {
        const NONE: abi::Message = abi::Message { event: 0, reserved: [0; 7], flags: 0, address: 0, thread: 0 };
        let mut messages = [NONE; N];
        // SAFETY: the buffer is as long as stated. Any bytes are a message.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), messages.as_mut_ptr().cast(), size_of_val(&messages)) };
        let count = usize::try_from(read).unwrap_or(0) / size_of::<abi::Message>();
        let faults = messages[..count].iter().filter(|message| message.event == abi::EVENT_PAGEFAULT);
        into.extend(faults.map(|message| Waiting {
            address: message.address as usize,
            is_write: message.flags & abi::FAULT_IS_WRITE != 0,
            is_protected: message.flags & abi::FAULT_IS_PROTECTED != 0,
            thread: message.thread as u32,
        }));
        count
    }

    /// Moves a page with its contents from an arena into a region, and wakes what waits for it.
    ///
    /// # Errors
    /// [`NotMoved`].
    ///
    /// # Panics
    /// When a place is not inside its range.
    pub fn move_in(&self, arena: &Arena, from: usize, region: &Region, to: usize) -> Result<(), NotMoved> {
        self.move_page(arena.range(from, PAGE).as_ptr() as usize, region.range(to, PAGE) as usize, region, to)
    }

    /// Moves a page with its contents from a region back to an arena.
    ///
    /// # Errors
    /// [`NotMoved`].
    ///
    /// # Panics
    /// When a place is not inside its range.
    pub fn move_out(&self, region: &Region, from: usize, arena: &Arena, to: usize) -> Result<(), NotMoved> {
        self.move_page(region.range(from, PAGE) as usize, arena.range(to, PAGE).as_ptr() as usize, region, from)
    }

    /// Copies a page from an arena into a region, and wakes what waits for it. `protected`: the
    /// first write to it is a fault, whose end is [`Userfault::unprotect`].
    ///
    /// # Errors
    /// [`NotMoved`].
    ///
    /// # Panics
    /// When a place is not inside its range.
    pub fn copy_in(
        &self,
        arena: &Arena,
        from: usize,
        region: &Region,
        to: usize,
        protected: bool,
    ) -> Result<(), NotMoved> {
        let mode = if protected { abi::COPY_PROTECTED } else { 0 };
        let (from, to) = (arena.range(from, PAGE).as_ptr() as usize, region.range(to, PAGE) as usize);
        self.transfer(abi::IOC_COPY, from, to, mode)
    }

    /// Lets the program write to a page of a region that is protected, and wakes what waits for it.
    ///
    /// # Errors
    /// The kernel's: the page is protected as before.
    ///
    /// # Panics
    /// When the place is not inside the region.
    pub fn unprotect(&self, region: &Region, offset: usize) -> io::Result<()> {
        let range = abi::Range { start: region.range(offset, PAGE) as u64, len: PAGE as u64 };
        let mut protect = abi::Protect { range, mode: 0 };
        for _ in 0..TRIES {
            // SAFETY: the call reads the structure that it is given. What the page holds does not
            // change.
            if unsafe { libc::ioctl(self.fd.as_raw_fd(), abi::IOC_PROTECT, &raw mut protect) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EAGAIN) {
                return Err(error);
            }
            std::thread::yield_now();
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Moves a page, one end of which is at `place` in a region.
    fn move_page(&self, from: usize, to: usize, region: &Region, place: usize) -> Result<(), NotMoved> {
        if self.pagemap.is_none() {
            // A place of a region or an arena, whose page is at another place.
            crate::dropping::drop_pages(std::iter::once(to), drop);
        }
        match self.transfer(abi::IOC_MOVE, from, to, 0) {
            // Pages move only between memory that is locked and memory that is, too. The kernel has
            // the same word for it as for memory that the program may not write to.
            Err(NotMoved::Access) => {
                region.unlock_around(place);
                let result = self.transfer(abi::IOC_MOVE, from, to, 0);
                if result.is_ok() {
                    self.unlocked.store(true, Ordering::Relaxed);
                }
                result
            }
            // Since a fork, the page may be one of another process as well. A copy can move. (A
            // page that the kernel or a device holds is not copied, and stays busy.)
            Err(NotMoved::Busy) => {
                make_own(from);
                self.transfer(abi::IOC_MOVE, from, to, 0)
            }
            result => result,
        }
    }

    /// Whether the program had locked pages of a region, whose locks were ended to move them.
    #[must_use]
    pub fn has_unlocked(&self) -> bool {
        self.unlocked.load(Ordering::Relaxed)
    }

    fn transfer(&self, call: libc::c_ulong, from: usize, to: usize, mode: u64) -> Result<(), NotMoved> {
        for _ in 0..TRIES {
            let mut moved = abi::Move { to: to as u64, from: from as u64, len: PAGE as u64, mode, done: 0 };
            // SAFETY: both ends are a page of this crate's mappings (checked by the callers) that
            // is reached as opaque copies, atomics or by the program's own accesses. To these a
            // page that leaves is one that reads as zeros, or one that they wait for.
            if unsafe { libc::ioctl(self.fd.as_raw_fd(), call, &raw mut moved) } == 0 {
                return Ok(());
            }
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(match errno {
                libc::EAGAIN => {
                    std::thread::yield_now();
                    continue;
                }
                libc::EEXIST if call == abi::IOC_MOVE && !self.is_there(from)? => {
                    // It has moved (see the module), and nobody was woken.
                    self.wake_page(to);
                    return Ok(());
                }
                libc::EEXIST => NotMoved::Exists,
                // The copy says ENOENT where nothing is mapped, and has nothing to miss.
                libc::ENOENT if call == abi::IOC_MOVE => NotMoved::Missing,
                libc::EBUSY => NotMoved::Busy,
                libc::EINVAL | libc::ENOENT => NotMoved::Access,
                other => NotMoved::Other(other),
            });
        }
        Err(NotMoved::Busy)
    }

    /// Whether a page that was to move is still in its old place, after the other place was taken.
    fn is_there(&self, page: usize) -> Result<bool, NotMoved> {
        // Mapped, or in swap.
        const THERE: u64 = 1 << 63 | 1 << 62;
        // The other place was empty.
        let Some(pagemap) = &self.pagemap else { return Ok(false) };
        let mut entry = [0; size_of::<u64>()];
        let looked = pagemap.read_exact_at(&mut entry, (page / PAGE * size_of::<u64>()) as u64);
        looked.map_err(|error| NotMoved::Other(error.raw_os_error().unwrap_or(0)))?;
        Ok(u64::from_ne_bytes(entry) & THERE != 0)
    }

    /// Lets accesses to a page of a region try again.
    ///
    /// # Panics
    /// When the place is not inside the region.
    pub fn wake(&self, region: &Region, offset: usize) {
        self.wake_page(region.range(offset, PAGE) as usize);
    }
    fn wake_page(&self, page: usize) {
        let mut range = abi::Range { start: page as u64, len: PAGE as u64 };
        // SAFETY: the call reads the structure that it is given.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), abi::IOC_WAKE, &raw mut range) };
    }

    /// Ends accesses to a page of a region with a `SIGBUS` from now on.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the place is not inside the region.
    pub fn poison(&self, region: &Region, offset: usize) -> io::Result<()> {
        let range = abi::Range { start: region.range(offset, PAGE) as u64, len: PAGE as u64 };
        let mut poison = abi::Poison { range, mode: 0, updated: 0 };
        // SAFETY: the call reads and writes the structure that it is given. Only the program's
        // accesses to the region are affected.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), abi::IOC_POISON, &raw mut poison) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Makes a page that is there one of this process alone, as a write to it would.
fn make_own(page: usize) {
    // SAFETY: the page is one of a region or an arena (see `move_page`), and its contents do not
    // change.
    let _ = unsafe { rustix::mm::madvise(page as *mut libc::c_void, PAGE, Advice::LinuxPopulateWrite) };
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const FLAGS: libc::c_int = libc::O_CLOEXEC | libc::O_NONBLOCK;

fn by_device() -> io::Result<OwnedFd> {
    let path = CString::new("/dev/userfaultfd").expect("it has no zero byte");
    // SAFETY: the path is a string that ends in zero.
    let device = owned(unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }.into())?;
    // SAFETY: the call takes its flags as a number.
    above_standard(|| owned(unsafe { libc::ioctl(device.as_raw_fd(), abi::NEW, FLAGS) }.into()))
}

fn by_call(mode: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes its flags as a number.
    above_standard(|| owned(unsafe { libc::syscall(libc::SYS_userfaultfd, FLAGS | mode) }))
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests;
