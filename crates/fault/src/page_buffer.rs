//! The page buffer as the program's threads use it: mappings in one region.

use std::sync::{Arc, Mutex};

use fulgurite_cache::{Cache, Setup, Shape, Shared};
use fulgurite_format::{SUBPAGE_BYTES, SUBPAGE_SHIFT};
use fulgurite_policy::{PrefetchPolicy, ReplacementPolicy};
use fulgurite_sys::userfault::{Access, Way};
use fulgurite_sys::{Clock, Notifier, Region, Userfault, signals};

use crate::budget::{Budget, FRAMES_LEAST};
use crate::command::{Command, Commands, lock};
use crate::error::{Error, cannot};
use crate::fingerprint::Fingerprints;
use crate::mapped::{self, Mapped};
use crate::pager::{Pager, WAITS};
use crate::settings::Settings;
use crate::space::Space;
use crate::statistics::Statistics;

/// Requests in flight.
const DEPTH: usize = 128;
/// After how long a request that the medium does not answer is an error.
const TIMEOUT_NS: u64 = 30_000_000_000;
const NO_MEMORY: i32 = 12;
const INVALID: i32 = 22;

/// See the module. It lives as long as the process: its threads may be anywhere in it.
#[derive(Debug)]
pub struct PageBuffer {
    region: Arc<Region>,
    space: Mutex<Space>,
    commands: Arc<Commands>,
    statistics: Arc<Statistics>,
    described: String,
}

impl PageBuffer {
    /// Makes one, and starts its handler thread.
    ///
    /// # Errors
    /// [`Error`].
    pub fn start(settings: &Settings) -> Result<PageBuffer, Error> {
        let (buffer, pager) = PageBuffer::prepare(settings)?;
        // The program's signal handlers may touch its memory, for which this thread would wait.
        let started = signals::start_for_good(c"fulgurite", move || pager.run());
        started.map_err(cannot("start the thread that handles faults"))?;
        Ok(buffer)
    }

    fn prepare(settings: &Settings) -> Result<(PageBuffer, Pager), Error> {
        let flash = &settings.opened.flash;
        let mut budget = Budget::new(settings.dram_bytes).map_err(cannot("measure this process"))?;
        let used = budget.used().map_err(cannot("measure this process"))?;
        let subpages = flash.subpages();
        let most = u32::try_from(settings.dram_bytes / SUBPAGE_BYTES as u64).unwrap_or(u32::MAX).min(subpages);
        let taken = used + tables_bytes(subpages, most);
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
        let notifier = Notifier::beside(std::os::fd::AsFd::as_fd(&*userfault)).map_err(cannot("make an eventfd"))?;
        let notifier = Arc::new(notifier);
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
        cache.set_frames(budget.frames(0, FRAMES_LEAST.min(most), most));
        let commands = Arc::new(Commands::new(notifier));
        let statistics = Arc::new(Statistics::default());
        let how = match way {
            Way::Device => "userfaultfd by /dev/userfaultfd",
            Way::Call => "userfaultfd by its system call",
        };
        let described = format!(
            "{how}, which also serves system calls; a handler thread (compatible mode); pages are moved, and compared \
             by fingerprints; {}",
            flash.describe()
        );
        let pager =
            Pager::new(cache, Clock::get(), userfault, region.clone(), commands.clone(), statistics.clone(), budget);
        let space = Mutex::new(Space::new(subpages as usize));
        Ok((PageBuffer { region, space, commands, statistics, described }, pager))
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
    /// Whether an address is in the region.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        self.region.offset_of(address).is_some()
    }
    /// Whether the range `address..+len` touches the region.
    #[must_use]
    pub fn touches(&self, address: usize, len: usize) -> bool {
        let end = self.region.base() + self.region.len();
        address < end && address.saturating_add(len) > self.region.base()
    }

    /// Maps `len` bytes that read as zero, and returns their address. `at`: there, or nowhere.
    ///
    /// # Errors
    /// A number of the system: `ENOMEM` where no place is that large.
    pub fn map(&self, len: usize, at: Option<usize>, access: Access) -> Result<usize, i32> {
        let pages = pages(len).ok_or(INVALID)?;
        let start = {
            let mut space = lock(&self.space);
            match at {
                None => space.take(pages).ok_or(NO_MEMORY)?,
                Some(address) => {
                    let start = self.region.offset_of(address).ok_or(INVALID)? >> SUBPAGE_SHIFT;
                    if !space.take_at(start, pages) {
                        return Err(NO_MEMORY);
                    }
                    start
                }
            }
        };
        if let Err(error) = self.region.allow(start << SUBPAGE_SHIFT, pages << SUBPAGE_SHIFT, access) {
            lock(&self.space).give_back(start, pages);
            return Err(error.raw_os_error().unwrap_or(NO_MEMORY));
        }
        Ok(self.region.base() + (start << SUBPAGE_SHIFT))
    }

    /// Unmaps what is mapped of a range of the region.
    ///
    /// # Errors
    /// A number of the system.
    pub fn unmap(&self, address: usize, len: usize) -> Result<(), i32> {
        let (start, pages) = self.place(address, len)?;
        // First, so that no access begins a read of what is dropped.
        let allowed = self.region.allow(start << SUBPAGE_SHIFT, pages << SUBPAGE_SHIFT, Access::None);
        allowed.map_err(|error| error.raw_os_error().unwrap_or(NO_MEMORY))?;
        self.drop_contents(address, len)?;
        lock(&self.space).give_back(start, pages);
        Ok(())
    }

    /// Drops the contents of a range of the region, which reads as zero afterwards.
    ///
    /// # Errors
    /// A number of the system: `ENOMEM` where not all of it is mapped.
    pub fn drop_contents(&self, address: usize, len: usize) -> Result<(), i32> {
        let (start, pages) = self.place(address, len)?;
        self.commands.ask(Command::Drop(start as u32..(start + pages) as u32))
    }

    /// Sets what the program may do in a range of the region.
    ///
    /// # Errors
    /// A number of the system: `ENOMEM` where not all of it is mapped.
    pub fn protect(&self, address: usize, len: usize, access: Access) -> Result<(), i32> {
        let (start, pages) = self.place(address, len)?;
        if !lock(&self.space).is_taken(start, pages) {
            return Err(NO_MEMORY);
        }
        self.commands.ask(Command::Protect(start as u32..(start + pages) as u32, access))
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
