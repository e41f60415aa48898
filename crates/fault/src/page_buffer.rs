//! The page buffer as the program's threads use it: mappings in one region.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};

use fulgurite_cache::{Cache, Setup, Shape, Shared};
use fulgurite_flash::{Flash, ForkedFlash};
use fulgurite_format::{SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_policy::{PrefetchPolicy, ReplacementPolicy};
use fulgurite_sys::userfault::{Access, Way};
use fulgurite_sys::{Clock, Notifier, Region, Userfault, signals};

use crate::budget::{Budget, FRAMES_LEAST};
use crate::command::{Command, Commands, lock};
use crate::error::{Error, cannot};
use crate::fingerprint::Fingerprints;
use crate::mapped::{self, Mapped};
use crate::pager::{Figures, Pager, WAITS};
use crate::settings::Settings;
use crate::space::Space;
use crate::statistics::{Statistics, Summary};
use crate::told::Told;

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
    pub(crate) space: Mutex<Space>,
    /// Held while a mapping is changed, and by a thread that forks: the child finds none half
    /// changed.
    pub(crate) changes: RwLock<()>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) described: String,
    pub(crate) door: Arc<Door>,
    pub(crate) flash: Arc<ForkedFlash>,
    pub(crate) told: Arc<Told>,
}

/// Where the handler thread works, and waits while a thread forks.
#[derive(Default)]
pub struct Door {
    /// Taken away by a child.
    pub pager: Mutex<Option<Box<Pager>>>,
    /// A thread wants to fork.
    pub forks: AtomicBool,
    /// Notified when all is ready for it, and when it is over.
    pub turns: Condvar,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("forks", &self.forks).finish_non_exhaustive()
    }
}

impl Door {
    /// The handler thread's life.
    fn handle(&self) -> ! {
        let mut pager = lock(&self.pager);
        loop {
            let forks = self.forks.load(Ordering::Acquire);
            let now = pager.as_mut().expect("only a child takes it away");
            if !forks {
                if !now.turn() {
                    now.sleep();
                }
                continue;
            }
            // Here, because no other thread may use the queue.
            if now.ready.is_none() {
                now.wind_down();
                self.turns.notify_all();
            }
            pager = self.turns.wait(pager).unwrap_or_else(PoisonError::into_inner);
        }
    }
    /// Starts the handler thread.
    pub fn start(self: &Arc<Door>) -> Result<(), Error> {
        let door = self.clone();
        // The program's signal handlers may touch its memory, for which this thread would wait.
        let started = signals::start_for_good(c"fulgurite", move || door.handle());
        started.map_err(cannot("start the thread that handles faults"))
    }
}

impl PageBuffer {
    /// Makes one, and starts its handler thread.
    ///
    /// # Errors
    /// [`Error`].
    pub fn start(settings: &Settings) -> Result<PageBuffer, Error> {
        let buffer = PageBuffer::prepare(settings)?;
        buffer.door.start()?;
        Ok(buffer)
    }

    fn prepare(settings: &Settings) -> Result<PageBuffer, Error> {
        let forked = Arc::new(ForkedFlash::new(settings.opened.flash.clone(), settings.dram_bytes)?);
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
        let (userfault, way) = Userfault::open()?;
        let userfault = Arc::new(userfault);
        let region = Region::reserve((subpages as usize) << SUBPAGE_SHIFT).map_err(cannot("reserve addresses"))?;
        userfault.watch(&region)?;
        let region = Arc::new(region);
        let shape = Shape { subpages, existing: 0, caches: 1, frames_max: most, moved: true };
        let shared = Arc::new(Shared::new(flash.clone(), shape, None)?);
        userfault.take_back_to(shared.frames.arena())?;
        let notifier = notifier(&userfault)?;
        let queue = flash.open_queue(shared.frames.arena().clone(), DEPTH, notifier.clone())?;
        let setup = Setup {
            id: 0,
            depth: DEPTH,
            waiters: WAITS,
            replacement: ReplacementPolicy::default(),
            prefetch: PrefetchPolicy::Adaptive,
            device_timeout_ns: TIMEOUT_NS,
        };
        let fingerprints = Fingerprints::new().map_err(cannot("read random bytes"))?;
        let users = Mapped::new(userfault.clone(), region.clone(), fingerprints, most);
        let mut cache = Cache::new(shared, queue, users, setup);
        cache.set_frames(budget.frames(used, 0, FRAMES_LEAST.min(most), most));
        let (commands, told) = (Arc::new(Commands::new(notifier)), settings.told.clone());
        let how = match way {
            Way::Device => "userfaultfd by /dev/userfaultfd",
            Way::Call => "userfaultfd by its system call",
        };
        let described = format!(
            "{how}, which also serves system calls; a handler thread (compatible mode); pages are moved, and compared \
             by fingerprints; {}",
            flash.describe()
        );
        let (statistics, door) = (Arc::new(Statistics::new(settings.dram_bytes)), Arc::new(Door::default()));
        let pager = Pager::new(
            cache,
            forked.clone(),
            Clock::get(),
            userfault,
            region.clone(),
            commands.clone(),
            statistics.clone(),
            budget,
            told.clone(),
            Figures::new(settings.json, settings.stats_ms),
        );
        *lock(&door.pager) = Some(Box::new(pager));
        let space = Mutex::new(Space::new(subpages as usize));
        let changes = RwLock::new(());
        Ok(PageBuffer { region, space, changes, commands, statistics, described, door, flash: forked, told })
    }

    /// Which way was taken, for people.
    #[must_use]
    pub fn describe(&self) -> &str {
        &self.described
    }
    /// What it has done so far.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }
    /// What it has done, with a last look at the memory of the process.
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
        let taken = {
            let mut space = lock(&self.space);
            match wanted {
                None => space.take(pages),
                Some(start) => space.take_at(start, pages).then_some(start),
            }
        };
        let Some(start) = taken else {
            self.flash.unmap(pages as u64);
            return Err(NO_MEMORY);
        };
        if let Err(errno) = self.allow(start, pages, access) {
            self.give_back(start, pages);
            return Err(errno);
        }
        lock(&self.space).set_access(start, pages, access);
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
        {
            let mut space = lock(&self.space);
            let more = pages - space.taken_of(start, pages).iter().map(|(_, length)| length).sum::<usize>();
            if !self.flash.map(more as u64) {
                return Err(NO_MEMORY);
            }
            space.give_back(start, pages);
            assert!(space.take_at(start, pages), "what was given back is free");
            space.set_access(start, pages, access);
        }
        self.allow(start, pages, Access::None)?;
        self.commands.ask(Command::Drop(start as u32..(start + pages) as u32))?;
        self.allow(start, pages, access)
    }

    /// Unmaps what is mapped of a range of the region.
    ///
    /// # Errors
    /// A number of the system.
    pub fn unmap(&self, address: usize, len: usize) -> Result<(), i32> {
        let (start, pages) = self.place(address, len)?;
        let _change = self.change();
        let taken = lock(&self.space).taken_of(start, pages);
        for (start, pages) in taken {
            // First, so that no access begins a read of what is dropped.
            self.allow(start, pages, Access::None)?;
            self.commands.ask(Command::Drop(start as u32..(start + pages) as u32))?;
            self.give_back(start, pages);
        }
        Ok(())
    }

    /// Gives back pages all of which are taken.
    fn give_back(&self, start: usize, pages: usize) {
        lock(&self.space).give_back(start, pages);
        self.flash.unmap(pages as u64);
    }

    fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn allow(&self, start: usize, pages: usize, access: Access) -> Result<(), i32> {
        let allowed = self.region.allow(start << SUBPAGE_SHIFT, pages << SUBPAGE_SHIFT, access);
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
    /// mapped before the first page that is not.
    pub fn protect(&self, address: usize, len: usize, access: Access) -> Result<(), i32> {
        let (start, pages) = self.place(address, len)?;
        let _change = self.change();
        let taken = lock(&self.space).taken_of(start, pages);
        let mapped = taken.first().filter(|(first, _)| *first == start).map_or(0, |(_, length)| *length);
        if mapped > 0 {
            self.commands.ask(Command::Protect(start as u32..(start + mapped) as u32, access))?;
            lock(&self.space).set_access(start, mapped, access);
        }
        if mapped == pages { Ok(()) } else { Err(NO_MEMORY) }
    }

    /// The parts of a range of the region that are not for reading and writing: addresses, lengths
    /// and what the program may do there.
    #[must_use]
    pub fn limited_of(&self, address: usize, len: usize) -> Vec<(usize, usize, Access)> {
        let Ok((start, pages)) = self.place(address, len) else { return Vec::new() };
        let runs = lock(&self.space).limited_of(start, pages);
        let bytes = |pages: usize| pages << SUBPAGE_SHIFT;
        runs.into_iter()
            .map(|(first, pages, access)| (self.region.base() + bytes(first), bytes(pages), access))
            .collect()
    }

    /// Whether all of a range is mapped.
    #[must_use]
    pub fn is_mapped(&self, address: usize, len: usize) -> bool {
        self.place(address, len).is_ok_and(|(start, pages)| lock(&self.space).is_taken(start, pages))
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
pub fn notifier(userfault: &Userfault) -> Result<Arc<Notifier>, Error> {
    Notifier::beside(std::os::fd::AsFd::as_fd(userfault)).map(Arc::new).map_err(cannot("make an eventfd"))
}

/// Pages of so many bytes; none of no bytes, or too many.
fn pages(len: usize) -> Option<usize> {
    Some(len.checked_next_multiple_of(SUBPAGE_BYTES)? >> SUBPAGE_SHIFT).filter(|pages| *pages > 0)
}

/// DRAM of all that is kept beside the pages of frames, at the most.
fn tables_bytes(subpages: u32, frames: u32) -> u64 {
    let per_frame = fulgurite_cache::BYTES_PER_FRAME
        + fulgurite_cache::frames::META_BYTES
        + fulgurite_policy::bytes_per_frame(ReplacementPolicy::default())
        + mapped::BYTES_PER_FRAME
        // A page table's entry at each of two places.
        + 16;
    fulgurite_cache::table::bytes(subpages.into()) + u64::from(frames) * per_frame as u64
}
