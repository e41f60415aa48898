//! The page buffer as the program's threads use it: mappings in one region.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use fulgurite_cache::{Cache, Setup, Shape, Shared};
use fulgurite_flash::{Flash, ForkedFlash, Queue, QueueUser};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_policy::{PrefetchPolicy, ReplacementPolicy};
use fulgurite_sys::faults::{Fault, FaultOutcome, Signal};
use fulgurite_sys::userfault::Access;
use fulgurite_sys::{Arena, ForkMark, Gate, Notifier, Region, signals};

use crate::backend::FaultBackend;
use crate::budget::{Budget, FRAMES_LEAST};
use crate::command::{Command, Commands, lock};
use crate::entry::{FaultEntry, Program};
use crate::error::{Error, cannot};
use crate::fingerprint::Fingerprints;
use crate::mapped::{self, Mapped};
use crate::notices::Notices;
use crate::own_reads::{Divided, OWN_QUEUES, OwnReads};
use crate::pager::{Figures, Pager, Parts, WAITS};
use crate::settings::Settings;
use crate::space::{Run, Space};
use crate::statistics::{Statistics, Summary};

/// Requests in flight.
pub const DEPTH: usize = 128;
/// After how long a request that the medium does not answer is an error.
const TIMEOUT_NS: u64 = 30_000_000_000;
const NO_MEMORY: i32 = 12;
const INVALID: i32 = 22;

/// See the module. It lives as long as the process: its threads may be anywhere in it.
#[derive(Debug)]
pub struct PageBuffer {
    pub(crate) region: Arc<Region>,
    pub(crate) backend: Arc<FaultBackend>,
    pub(crate) space: Arc<Mutex<Space>>,
    /// Held while a mapping is changed, and by a thread that forks: the child finds none half
    /// changed.
    pub(crate) changes: RwLock<()>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) described: String,
    pub(crate) entry: Arc<FaultEntry>,
    pub(crate) flash: Arc<ForkedFlash>,
    pub(crate) notices: Arc<Notices>,
    /// Tells a child, until it has a page buffer of its own.
    pub(crate) mark: ForkMark,
    /// Pages that such a child may need before.
    pub(crate) lent: Mutex<Vec<Lent>>,
    pub(crate) arena: Arc<Arena>,
}

/// A page in its frame, for a child that touches it before it has memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    pub subpage: u32,
    pub frame: FrameIndex,
    pub is_used: bool,
}

impl PageBuffer {
    /// Makes one, and starts its handler thread.
    ///
    /// # Errors
    /// [`Error`].
    pub fn start(settings: &Settings) -> Result<PageBuffer, Error> {
        let buffer = PageBuffer::prepare(settings)?;
        buffer.entry.start()?;
        Ok(buffer)
    }

    fn prepare(settings: &Settings) -> Result<PageBuffer, Error> {
        let below = settings.opened.flash.clone();
        let forked = Arc::new(ForkedFlash::new(below, settings.dram_bytes)?);
        let flash: Arc<dyn Flash> = Arc::new(forked.clone());
        let mut budget = Budget::new(settings.dram_bytes).map_err(cannot("measure this process"))?;
        let used = budget.used().map_err(cannot("measure this process"))?;
        let subpages = flash.subpages();
        let most = u32::try_from(settings.dram_bytes / SUBPAGE_BYTES as u64).unwrap_or(u32::MAX).min(subpages);
        let taken = used + flash.traits().dram_bytes as u64 + tables_bytes(subpages, most);
        let least = taken + budget.margin() + u64::from(FRAMES_LEAST) * SUBPAGE_BYTES as u64;
        if settings.dram_bytes < least {
            return Err(Error::TooSmall { cap: settings.dram_bytes, taken, least });
        }
        let region = Region::reserve((subpages as usize) << SUBPAGE_SHIFT).map_err(cannot("reserve addresses"))?;
        let (backend, refused) = FaultBackend::choose(&region, settings.backend)?;
        let (region, backend) = (Arc::new(region), Arc::new(backend));
        let most = if backend.takes_mappings() { most.min(frames_by_mappings()?) } else { most };
        let shape = Shape { subpages, existing: 0, caches: 1, frames_max: most, moved: true };
        let shared = Arc::new(Shared::new(flash.clone(), shape, None)?);
        let arena = shared.frames.arena().clone();
        backend.take_back_to(&arena)?;
        let notifier = notifier(&backend)?;
        let (queue, own) = open_queues(&flash, &backend, arena, notifier.clone())?;
        let setup = Setup {
            id: 0,
            depth: DEPTH,
            waiters: WAITS,
            replacement: ReplacementPolicy::default(),
            prefetch: PrefetchPolicy::Adaptive,
            device_timeout_ns: TIMEOUT_NS,
        };
        let fingerprints = Fingerprints::new().map_err(cannot("read random bytes"))?;
        let users = Mapped::new(backend.clone(), region.clone(), fingerprints, most);
        let mut cache = Cache::new(shared, queue, users, setup);
        cache.set_frames(budget.frames(used, 0, FRAMES_LEAST.min(most), most));
        let (commands, notices) = (Arc::new(Commands::new(notifier.clone())), settings.notices.clone());
        let refused = refused.map_or_else(String::new, |why| format!("{why}; so "));
        let described = format!("{refused}{backend}, and compared by fingerprints; {}", flash.describe());
        let parts = Parts {
            flash: forked,
            backend,
            space: Arc::new(Mutex::new(Space::new(subpages as usize))),
            region,
            commands,
            statistics: Arc::new(Statistics::new(settings.dram_bytes)),
            budget,
            notices,
            figures: Figures::new(settings.json, settings.stats_ms),
            own,
        };
        PageBuffer::around(Pager::new(cache, parts), notifier, described)
    }

    /// Makes one that has a pager, without its handler thread.
    pub(crate) fn around(pager: Pager, notifier: Arc<Notifier>, described: String) -> Result<PageBuffer, Error> {
        let mark = ForkMark::new().map_err(cannot("map a page that forks wipe"))?;
        let parts = &pager.parts;
        Ok(PageBuffer {
            region: parts.region.clone(),
            backend: parts.backend.clone(),
            space: parts.space.clone(),
            changes: RwLock::new(()),
            commands: parts.commands.clone(),
            statistics: parts.statistics.clone(),
            described,
            flash: parts.flash.clone(),
            notices: parts.notices.clone(),
            mark,
            lent: Mutex::default(),
            arena: pager.cache.shared().frames.arena().clone(),
            entry: entry(pager, notifier),
        })
    }

    /// Watches for the end of the program: its threads of [`fulgurite_sys::threads::mark`] would
    /// keep the process alive. When only they are left, the handler thread calls `ended` with how
    /// the first thread of the process ended, a word as of `waitpid`.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn watch_for_the_end(&self, ended: fn(i32)) -> Result<(), Error> {
        let program = Program::new(ended).map_err(cannot("watch the threads of this process"))?;
        let _ = self.entry.program.set(program);
        Ok(())
    }
    /// Which backend was taken, for people.
    #[must_use]
    pub fn describe(&self) -> &str {
        &self.described
    }
    /// Whether faults are signals, for which [`PageBuffer::handle_fault`] is to be asked, and
    /// addresses that are passed to the kernel have to be made resident ([`PageBuffer::hold`]).
    #[must_use]
    pub fn is_in_line(&self) -> bool {
        self.entry.is_in_line
    }
    /// The signal of such a fault.
    #[must_use]
    pub fn signal(&self) -> Signal {
        self.backend.signal()
    }
    /// Handles a fault of this thread, all of whose signals are blocked: resolves it, if it is of
    /// the region.
    #[must_use]
    pub fn handle_fault(&self, fault: &Fault) -> FaultOutcome {
        match self.region.offset_of(fault.address).map(|offset| (offset >> SUBPAGE_SHIFT) as u32) {
            Some(subpage) if self.mark.is_child() => self.lend(subpage),
            Some(subpage) => self.entry.handle_fault(subpage, fault),
            None => FaultOutcome::NotMine,
        }
    }
    /// In a child that has no page buffer yet.
    fn lend(&self, subpage: u32) -> FaultOutcome {
        let mut lent = lock(&self.lent);
        let Some(lent) = lent.iter_mut().find(|lent| lent.subpage == subpage) else { return FaultOutcome::NotMine };
        let (offset, from) = ((subpage as usize) << SUBPAGE_SHIFT, lent.frame.index() << SUBPAGE_SHIFT);
        lent.is_used = self.region.lend(offset, &self.arena, from).is_ok();
        if lent.is_used { FaultOutcome::Again } else { FaultOutcome::NotMine }
    }
    /// Makes all pages of a range resident that the program may use, and keeps them so until
    /// [`PageBuffer::let_go`]. Returns the range of what is held: it ends at the first page that
    /// cannot be.
    pub fn hold(&self, address: usize, len: usize) -> Held {
        let Some((from, len)) = self.part_of(address, len) else { return Held(0..0) };
        let first = (from - self.region.base()) >> SUBPAGE_SHIFT;
        let end = (from - self.region.base() + len).div_ceil(SUBPAGE_BYTES);
        let range = first as u32..end as u32;
        signals::with_all_blocked(|| {
            let failed = range.clone().find(|subpage| !self.entry.hold(*subpage));
            Held(range.start..failed.unwrap_or(range.end))
        })
    }
    /// Ends a hold.
    pub fn let_go(&self, held: Held) {
        if !held.0.is_empty() {
            signals::with_all_blocked(|| self.entry.let_go(held.0));
        }
    }
    /// The most pages that one thread should hold at a time.
    #[must_use]
    pub fn hold_most(&self) -> usize {
        HOLD_MOST
    }
    /// What it has done so far.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }
    /// What it has done, after a last check of the memory of the process.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut summary = self.statistics.summary();
        let looked = Budget::new(summary.cap_bytes).and_then(|mut budget| budget.used().map(|_| budget.peak()));
        summary.peak_bytes = summary.peak_bytes.max(looked.unwrap_or(0));
        summary
    }
    /// The first address of the region.
    #[inline]
    #[must_use]
    pub fn base(&self) -> usize {
        self.region.base()
    }
    /// Whether an address is in the region.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        self.region.offset_of(address).is_some()
    }
    /// The part of `address..+len` that is in the region, as an address and a length.
    #[must_use]
    pub fn part_of(&self, address: usize, len: usize) -> Option<(usize, usize)> {
        let (start, end) = (self.region.base(), self.region.base() + self.region.len());
        let (from, to) = (address.max(start), address.saturating_add(len).min(end));
        (from < to).then(|| (from, to - from))
    }

    /// Maps `len` bytes that read as zero, and returns their address. `at`: there, or nowhere.
    ///
    /// # Errors
    /// A number of the system: `ENOMEM` where no place is that large.
    pub fn map(&self, len: usize, at: Option<usize>, access: Access) -> Result<usize, i32> {
        let pages = pages(len).ok_or(INVALID)?;
        let _change = self.change();
        let wanted = match at {
            None => None,
            Some(address) => Some(self.region.offset_of(address).ok_or(INVALID)? >> SUBPAGE_SHIFT),
        };
        // Children may have mapped what this process has not.
        if !self.flash.map(pages as u64) {
            return Err(NO_MEMORY);
        }
        let taken = self.with_space(|space| match wanted {
            None => space.take(pages),
            Some(start) => space.take_at(start, pages).then_some(start),
        });
        let Some(start) = taken else {
            self.flash.unmap(pages as u64);
            return Err(NO_MEMORY);
        };
        self.with_space(|space| space.set_access(start, pages, access));
        if let Err(errno) = self.begin(start, pages, access) {
            self.give_back(start, pages);
            return Err(errno);
        }
        Ok(self.region.base() + (start << SUBPAGE_SHIFT))
    }

    /// Maps all of a range of the region anew, whatever was there: it reads as zero. At no time is
    /// a part of it free for others.
    ///
    /// # Errors
    /// A number of the system.
    pub fn replace(&self, address: usize, len: usize, access: Access) -> Result<(), i32> {
        let (start, pages) = self.place(address, len)?;
        let _change = self.change();
        self.with_space(|space| {
            let more = pages - space.taken_of(start, pages).iter().map(|(_, length)| length).sum::<usize>();
            if !self.flash.map(more as u64) {
                return Err(NO_MEMORY);
            }
            space.give_back(start, pages);
            assert!(space.take_at(start, pages), "what was given back is free");
            space.set_access(start, pages, Access::None);
            Ok(())
        })?;
        self.allow(start, pages, Access::None)?;
        self.commands.ask(Command::Drop(start as u32..(start + pages) as u32))?;
        self.with_space(|space| space.set_access(start, pages, access));
        self.begin(start, pages, access)
    }

    /// Unmaps what is mapped of a range of the region.
    ///
    /// # Errors
    /// A number of the system.
    pub fn unmap(&self, address: usize, len: usize) -> Result<(), i32> {
        let (start, pages) = self.place(address, len)?;
        let _change = self.change();
        let taken = self.with_space(|space| space.taken_of(start, pages));
        for (start, pages) in taken {
            // First, so that no access begins a read of what is dropped.
            self.with_space(|space| space.set_access(start, pages, Access::None));
            self.allow(start, pages, Access::None)?;
            self.commands.ask(Command::Drop(start as u32..(start + pages) as u32))?;
            self.give_back(start, pages);
        }
        Ok(())
    }

    /// Reads the addresses with all signals blocked: a handler of the program that interrupts this
    /// may fault, and its fault handler reads them as well.
    fn with_space<T>(&self, f: impl FnOnce(&mut Space) -> T) -> T {
        signals::with_all_blocked(|| f(&mut lock(&self.space)))
    }

    /// Gives back pages all of which are taken.
    fn give_back(&self, start: usize, pages: usize) {
        self.with_space(|space| space.give_back(start, pages));
        self.flash.unmap(pages as u64);
    }

    fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, start: usize, pages: usize, access: Access) -> Result<(), i32> {
        let begun = self.backend.begin(&self.region, start << SUBPAGE_SHIFT, pages << SUBPAGE_SHIFT, access);
        begun.map_err(|error| error.raw_os_error().unwrap_or(NO_MEMORY))
    }
    fn allow(&self, start: usize, pages: usize, access: Access) -> Result<(), i32> {
        let allowed = self.backend.allow(&self.region, start << SUBPAGE_SHIFT, pages << SUBPAGE_SHIFT, access);
        allowed.map_err(|error| error.raw_os_error().unwrap_or(NO_MEMORY))
    }

    /// Drops the contents of a range of the region, which reads as zero afterwards.
    ///
    /// # Errors
    /// A number of the system.
    pub fn drop_contents(&self, address: usize, len: usize) -> Result<(), i32> {
        let (start, pages) = self.place(address, len)?;
        let _change = self.change();
        self.commands.ask(Command::Drop(start as u32..(start + pages) as u32))
    }

    /// Sets what the program may do in a range of the region.
    ///
    /// # Errors
    /// A number of the system: `ENOMEM` where not all of it is mapped. It then holds for what is
    /// mapped before the first page that is not. Where the kernel takes no more mappings, what may
    /// be done is as before.
    pub fn protect(&self, address: usize, len: usize, access: Access) -> Result<(), i32> {
        let (start, pages) = self.place(address, len)?;
        let _change = self.change();
        let taken = self.with_space(|space| space.taken_of(start, pages));
        let mapped = taken.first().filter(|(first, _)| *first == start).map_or(0, |(_, length)| *length);
        if mapped > 0 {
            let before = self.with_space(|space| space.limited_of(start, mapped));
            let asked = self.commands.ask(Command::Protect(start as u32..(start + mapped) as u32, access));
            if let Err(errno) = asked {
                self.restore(start, mapped, &before);
                return Err(errno);
            }
        }
        if mapped == pages { Ok(()) } else { Err(NO_MEMORY) }
    }

    /// Sets what could be done in pages before the kernel refused to change it. It may have changed
    /// a part of them.
    fn restore(&self, start: usize, pages: usize, limited: &[Run]) {
        self.with_space(|space| {
            space.set_access(start, pages, Access::ReadWrite);
            limited.iter().for_each(|(first, pages, access)| space.set_access(*first, *pages, *access));
        });
        let mut at = start;
        let end = (start + pages, 0, Access::ReadWrite);
        for &(first, pages, access) in limited.iter().chain([&end]) {
            // As it was before, this takes no more mappings than there were.
            let _ = self.allow(at, first - at, Access::ReadWrite);
            let _ = self.allow(first, pages, access);
            at = first + pages;
        }
    }

    /// The parts of a range of the region that are not for reading and writing: addresses, lengths
    /// and what the program may do there.
    #[must_use]
    pub fn limited_of(&self, address: usize, len: usize) -> Vec<(usize, usize, Access)> {
        let Ok((start, pages)) = self.place(address, len) else { return Vec::new() };
        let runs = self.with_space(|space| space.limited_of(start, pages));
        let bytes = |pages: usize| pages << SUBPAGE_SHIFT;
        runs.into_iter()
            .map(|(first, pages, access)| (self.region.base() + bytes(first), bytes(pages), access))
            .collect()
    }

    /// Whether all of a range is mapped.
    #[must_use]
    pub fn is_mapped(&self, address: usize, len: usize) -> bool {
        self.place(address, len).is_ok_and(|(start, pages)| self.with_space(|space| space.is_taken(start, pages)))
    }

    fn place(&self, address: usize, len: usize) -> Result<(usize, usize), i32> {
        let offset = self.region.offset_of(address).filter(|offset| offset.is_multiple_of(SUBPAGE_BYTES));
        let (offset, pages) = (offset.ok_or(INVALID)?, pages(len).ok_or(INVALID)?);
        if pages > (self.region.len() - offset) >> SUBPAGE_SHIFT {
            return Err(INVALID);
        }
        Ok((offset >> SUBPAGE_SHIFT, pages))
    }
}

/// What wakes a handler thread: faults and notifications.
pub fn notifier(backend: &FaultBackend) -> Result<Arc<Notifier>, Error> {
    let made = match backend {
        FaultBackend::Userfault(userfault) if !backend.is_in_line() => {
            Notifier::with_other(std::os::fd::AsFd::as_fd(userfault))
        }
        _ => Notifier::new(),
    };
    made.map(Arc::new).map_err(cannot("make an eventfd"))
}

/// The cache's queue, and the queues of threads that resolve their own faults. Threads of queues
/// take no signals, as the handler thread.
pub fn open_queues(
    flash: &Arc<dyn Flash>,
    backend: &FaultBackend,
    arena: Arc<Arena>,
    notifier: Arc<Notifier>,
) -> Result<(Box<dyn Queue>, Arc<OwnReads>), Error> {
    signals::with_all_blocked(|| {
        let open = |user, depth| flash.open_queue_for(user, arena.clone(), depth, notifier.clone());
        if !backend.is_in_line() {
            return Ok((open(QueueUser::OneThread, DEPTH)?, Arc::default()));
        }
        let count = if flash.traits().serves_callers { OWN_QUEUES } else { 0 };
        let own = (0..count).map(|_| open(QueueUser::Caller, 1)).collect::<Result<_, _>>()?;
        let own = Arc::new(OwnReads::new(own));
        let inner = open(QueueUser::AnyThread, DEPTH)?;
        Ok((Box::new(Divided { inner, own: own.clone() }) as Box<dyn Queue>, own))
    })
}

/// Where faults come in.
fn entry(mut pager: Pager, notifier: Arc<Notifier>) -> Arc<FaultEntry> {
    let is_in_line = pager.parts.backend.is_in_line();
    let (gates, notifies) = (pager.gates().clone(), is_in_line && pager.cache.notify_each());
    let own = pager.parts.own.clone();
    let (pager, forks, turns) = (Mutex::new(Some(Box::new(pager))), AtomicBool::new(false), Condvar::new());
    let (has_begun, program) = (Gate::new(), OnceLock::new());
    Arc::new(FaultEntry { pager, forks, turns, gates, notifier, is_in_line, notifies, own, has_begun, program })
}

/// How many frames may have pages, where each of them may take two mappings.
fn frames_by_mappings() -> Result<u32, Error> {
    let read = |path| std::fs::read_to_string(path).map_err(cannot("count the mappings of this process"));
    let most: usize = read("/proc/sys/vm/max_map_count")?.trim().parse().unwrap_or(MAPPINGS);
    let now = read("/proc/self/maps")?.lines().count();
    Ok((most.saturating_sub(now + MAPPINGS_LEFT) / 2).max(FRAMES_LEAST as usize) as u32)
}
/// Mappings of a process, where the kernel does not say it.
const MAPPINGS: usize = 65_530;
/// Mappings that are left for the program.
const MAPPINGS_LEFT: usize = 8192;
/// Pages that a thread holds at a time: a small part of the fewest frames.
const HOLD_MOST: usize = 32;

/// Pages that are resident and stay so.
#[derive(Debug)]
#[must_use = "what is held has to be let go"]
pub struct Held(std::ops::Range<u32>);

impl Held {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Pages in `len` bytes; none of no bytes, or too many.
fn pages(len: usize) -> Option<usize> {
    Some(len.checked_next_multiple_of(SUBPAGE_BYTES)? >> SUBPAGE_SHIFT).filter(|pages| *pages > 0)
}

/// The most DRAM that is taken by all that is kept in addition to the pages of frames.
fn tables_bytes(subpages: u32, frames: u32) -> u64 {
    let per_frame = fulgurite_cache::BYTES_PER_FRAME
        + fulgurite_cache::frames::META_BYTES
        + fulgurite_policy::bytes_per_frame(ReplacementPolicy::default())
        + mapped::BYTES_PER_FRAME
        // A page table's entry at each of two places.
        + 16;
    fulgurite_cache::table::bytes(subpages.into()) + u64::from(frames) * per_frame as u64
}
