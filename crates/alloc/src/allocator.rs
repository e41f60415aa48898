//! The memory-page allocator: blocks of a page buffer's memory, for any thread.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use allocator_api2::alloc::AllocError;
use fulgurite_backing::Medium;
use fulgurite_fault::{Access, Fault, FaultOutcome, PageBuffer, Settings, Summary, Wanted};
use fulgurite_store::Permissions;
use fulgurite_sys::faults::{HandlerStack, handle_by};

use crate::blocks::{Block, Blocks, Source, Usage};
use crate::error::{FreeError, PermissionError, StartError};
use crate::objects::Mode;

/// Pages of a page buffer.
struct Pages(PageBuffer);

impl Source for Pages {
    fn map(&self, bytes: usize) -> Option<usize> {
        self.0.map(bytes, None, Access::ReadWrite).ok()
    }
    fn unmap(&self, address: usize, bytes: usize) {
        // It stays mapped where the kernel refuses, and nobody has its address.
        let _ = self.0.unmap(address, bytes);
    }
}

/// An allocator whose memory is in flash, with a cap on the DRAM of the whole process. Threads use
/// it by plain loads and stores, and free what others have allocated.
///
/// It is for collections that take an allocator ([`allocator_api2`]), and for calls in the manner
/// of `malloc`:
/// ```no_run
/// use allocator_api2::vec::Vec;
/// use fulgurite_alloc::Allocator;
/// use fulgurite_backing::Medium;
///
/// # fn main() -> Result<(), fulgurite_alloc::StartError> {
/// // Sixteen times its DRAM.
/// let flash = Allocator::start(Medium::new_file("flash", "16G"), 1 << 30)?;
/// let mut numbers = Vec::new_in(flash);
/// numbers.extend(0..1_000_000_000u64);
/// # Ok(())
/// # }
/// ```
///
/// A block must not be used by a child after `fork`, and its contents are gone with the process.
pub struct Allocator {
    pages: Pages,
    blocks: Mutex<Blocks>,
}

/// Allocators in line.
static IN_LINE: [OnceLock<&'static Allocator>; 16] = [const { OnceLock::new() }; 16];

/// An access found no page.
fn handle_fault(fault: &Fault) -> FaultOutcome {
    let mut outcomes = IN_LINE.iter().map_while(OnceLock::get).map(|allocator| allocator.pages.0.handle_fault(fault));
    outcomes.find(|outcome| *outcome != FaultOutcome::NotMine).unwrap_or(FaultOutcome::NotMine)
}

impl Allocator {
    /// Starts an allocator over a flat medium, whose contents are overwritten. It lives as long as
    /// the process, as its memory may be used anywhere. `dram_bytes` caps all memory of the
    /// process, with what it has outside of this allocator.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(medium: Medium, dram_bytes: u64) -> Result<&'static Allocator, StartError> {
        // A library does not take a program's signals.
        Allocator::start_in(Mode::Compatible, medium, dram_bytes)
    }

    /// As [`Allocator::start`], in a mode. [`Mode::InLine`] needs no right to userfaultfd: where it
    /// is refused, faults are found by pages without access, whose signal is `SIGSEGV`. What is
    /// said of `SIGBUS` holds for that signal then. Jobs of a runtime that touch its memory by
    /// [`crate::reach`] do not hold their workers up, except where the signal is `SIGSEGV`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_in(mode: Mode, medium: Medium, dram_bytes: u64) -> Result<&'static Allocator, StartError> {
        if medium.is_kept() {
            return Err(StartError::NotFlat);
        }
        let settings = fulgurite_backing::Settings { dram_bytes, ..Default::default() };
        let opened = medium.begin(&settings)?;
        let created = opened.clone();
        let backend = match mode {
            Mode::Compatible => Wanted::Compatible,
            Mode::InLine => Wanted::InLine,
        };
        let buffer = PageBuffer::start(&Settings {
            opened,
            dram_bytes,
            backend,
            notices: Arc::default(),
            json: false,
            stats_ms: 0,
        })?;
        let signal = buffer.is_in_line().then(|| buffer.signal());
        let made = Allocator::over(buffer);
        if let Some(signal) = signal {
            if !IN_LINE.iter().any(|place| place.set(made).is_ok()) {
                return Err(StartError::TooMany);
            }
            let handled = handle_by(signal, handle_fault, HandlerStack::Own);
            handled.map_err(|source| StartError::System { what: "handle the signal of faults", source })?;
        }
        created.finish()?;
        Ok(made)
    }

    /// Allocates from a page buffer that nothing else maps.
    pub fn over(buffer: PageBuffer) -> &'static Allocator {
        Box::leak(Box::new(Allocator { pages: Pages(buffer), blocks: Mutex::default() }))
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        // A panic under it would be a defect of `Blocks`, whose maps are whole in any case.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: usize, alignment: usize) -> Option<(NonNull<u8>, Block)> {
        let bytes = Some(bytes).filter(|bytes| *bytes <= isize::MAX as usize)?;
        let block = self.blocks().allocate(&self.pages, bytes, alignment)?;
        Some((NonNull::new(block.address as *mut u8)?, block))
    }

    /// Allocates a block of at least this size at this alignment, with any contents. None when the
    /// flash has no room. A size of 0 has an address of its own, too.
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        Some(self.take(layout.size(), layout.align())?.0)
    }

    /// As [`Allocator::allocate`], and the block reads as zeros.
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (at, block) = self.take(layout.size(), layout.align())?;
        if !block.is_zeroed {
            // SAFETY: the block is mapped, has these bytes, and nobody else knows it yet.
            unsafe { at.write_bytes(0, layout.size()) };
        }
        Some(at)
    }

    /// Bytes that a block has.
    ///
    /// # Errors
    /// [`FreeError`] when it is no block in use.
    pub fn usable_size(&self, block: NonNull<u8>) -> Result<usize, FreeError> {
        self.own(block)?;
        self.blocks().bytes_of(block.as_ptr() as usize)
    }

    /// Frees a block, from any thread.
    ///
    /// # Errors
    /// [`FreeError`] when it is no block in use: nothing was freed.
    ///
    /// # Safety
    /// Nothing may use the block any more.
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<(), FreeError> {
        self.own(block)?;
        let pages = self.blocks().free(block.as_ptr() as usize)?;
        if let Some((address, bytes)) = pages {
            // Without the lock: it waits for the thread that handles faults.
            self.pages.unmap(address, bytes);
        }
        Ok(())
    }

    /// Resizes a block, which may move, with the contents that fit. None, and the block as it was,
    /// when the flash has no room.
    ///
    /// # Errors
    /// [`FreeError`] when it is no block in use.
    ///
    /// # Safety
    /// Nothing may use the block under its old address any more, unless none is returned.
    pub unsafe fn resize(&self, block: NonNull<u8>, layout: Layout) -> Result<Option<NonNull<u8>>, FreeError> {
        let (had, wants) = (self.usable_size(block)?, layout.size());
        let is_aligned = (block.as_ptr() as usize).is_multiple_of(layout.align());
        // What becomes less than half moves, so that pages come free.
        if is_aligned && wants <= had && (wants > had / 2 || had <= 64) {
            return Ok(Some(block));
        }
        let Some((to, _)) = self.take(wants, layout.align()) else { return Ok(None) };
        // SAFETY: both blocks are mapped, have these bytes, and are different. The caller lets
        // nobody use the old one, and nobody else knows the new one.
        unsafe {
            to.copy_from_nonoverlapping(block, had.min(wants));
            self.free(block)?;
        }
        Ok(Some(to))
    }

    /// Cuts a block of whole pages in two, each of which is freed by itself.
    ///
    /// # Errors
    /// [`FreeError`] when no block of whole pages begins there that has more than `first_bytes`, a
    /// multiple of 4096.
    pub fn split(&self, block: NonNull<u8>, first_bytes: usize) -> Result<(), FreeError> {
        self.own(block)?;
        self.blocks().split(block.as_ptr() as usize, first_bytes)
    }
    /// Makes one block of two blocks of whole pages that are neighbours.
    ///
    /// # Errors
    /// [`FreeError`] when they are not.
    pub fn join(&self, first: NonNull<u8>, second: NonNull<u8>) -> Result<(), FreeError> {
        self.own(first)?;
        self.blocks().join(first.as_ptr() as usize, second.as_ptr() as usize)
    }
    /// Drops what whole pages of a block hold: they read as zeros, and take neither DRAM nor flash.
    ///
    /// # Errors
    /// [`FreeError`] when the range is not of whole pages of one block of whole pages.
    ///
    /// # Safety
    /// Nothing may rely on what the pages hold.
    pub unsafe fn discard(&self, at: NonNull<u8>, bytes: usize) -> Result<(), FreeError> {
        self.own(at)?;
        let address = at.as_ptr() as usize;
        let is_whole = (address | bytes).is_multiple_of(fulgurite_format::SUBPAGE_BYTES) && bytes > 0;
        if !is_whole || !self.blocks().has_pages(address, bytes) {
            return Err(FreeError::NotABlock(address));
        }
        self.pages.0.drop_contents(address, bytes).map_err(|_| FreeError::NotABlock(address))
    }

    /// Sets what may be done with whole pages of a block of whole pages: NVMM's `setperms`. A read
    /// or write that they do not allow is a `SIGSEGV`. They hold until others are set, or the block
    /// is freed. A block of which some may not be read must not be resized.
    ///
    /// # Errors
    /// [`PermissionError`]: nothing has changed. No block is permanent, because its address means
    /// nothing in another process, where it may be another block's, and what is handed out is known
    /// in DRAM alone. Permanent are objects under a name ([`crate::ObjectAllocator`]).
    pub fn set_permissions(
        &self,
        at: NonNull<u8>,
        bytes: usize,
        permissions: Permissions,
    ) -> Result<(), PermissionError> {
        if permissions.permanent {
            return Err(PermissionError::Permanent);
        }
        let access = match (permissions.read, permissions.write) {
            (true, true) => Access::ReadWrite,
            (true, false) => Access::Read,
            (false, false) => Access::None,
            (false, true) => return Err(PermissionError::WriteOnly),
        };
        self.own(at)?;
        let address = at.as_ptr() as usize;
        let is_whole = (address | bytes).is_multiple_of(fulgurite_format::SUBPAGE_BYTES) && bytes > 0;
        // Under the lock, so that the block is not freed, and another one gets these permissions.
        let blocks = self.blocks();
        if !is_whole || !blocks.has_pages(address, bytes) {
            return Err(PermissionError::NotPages { address, bytes });
        }
        let set = self.pages.0.protect(address, bytes, access);
        drop(blocks);
        set.map_err(|number| PermissionError::Refused(std::io::Error::from_raw_os_error(number)))
    }

    fn own(&self, block: NonNull<u8>) -> Result<(), FreeError> {
        let address = block.as_ptr() as usize;
        if self.pages.0.contains(address) { Ok(()) } else { Err(FreeError::Foreign(address)) }
    }

    /// Whether an address is in the memory of this allocator.
    pub fn contains(&self, address: *const u8) -> bool {
        self.pages.0.contains(address as usize)
    }

    /// What is handed out.
    pub fn usage(&self) -> Usage {
        self.blocks().usage()
    }

    /// Checks the invariants.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        self.blocks().check();
    }

    /// What its page buffer has done so far.
    pub fn summary(&self) -> Summary {
        self.pages.0.summary()
    }
    /// How page faults are resolved, as a text for people.
    pub fn describe(&self) -> &str {
        self.pages.0.describe()
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("usage", &self.usage()).finish_non_exhaustive()
    }
}

// SAFETY: a block is mapped memory that only its holder knows until it is freed. A shared reference
// does not move what it leads to, and the allocator lives as long as the process.
unsafe impl allocator_api2::alloc::Allocator for Allocator {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let at = Allocator::allocate(self, layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(at, layout.size()))
    }
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let at = Allocator::allocate_zeroed(self, layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(at, layout.size()))
    }
    unsafe fn deallocate(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller's contract.
        let freed = unsafe { self.free(block) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}
