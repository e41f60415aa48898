//! The object allocator: pools and arrays of objects, each in a page of its own.

use std::alloc::Layout as Shape;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use allocator_api2::alloc::AllocError;
use fulgurite_backing::{Kept, Opened};
use fulgurite_fault::Fingerprints;
use fulgurite_flash::{Flash, FlashError};
use fulgurite_format::{SUBPAGE_BYTES, SUBPAGE_SHIFT, format_bytes};
use fulgurite_objects::Cache;
use fulgurite_sys::faults::{self, HandlerStack, Signal};
use fulgurite_sys::userfault::{Access, Origin};
use fulgurite_sys::{Arena, Backed, Clock, Notifier, Region, Userfault, signals};

use super::buffer::Buffer;
use super::kept::{self, Found, KeptPool};
use super::log::Log;
use super::numbers::{CHUNK, NOBODY, NoNumber, Numbers};
use super::packed::{self, OBJECT_BYTES_MAX};
use super::pager::{self, Pager, Shard, Shards, Switched};
use super::places::Places;
use super::queue::{BlockingQueue, QueuePool};
use super::records;
use super::settings::{self, LOG_FRAMES, Layout, Mode, ObjectSettings, QUEUES};
use super::statistics::{ObjectSummary, Statistics};
use super::writer::{LogWriter, Wanted, Writer};
use super::{OBJECT_STRIDE, lock};
use crate::{BadSize, FreeError, StartError};

/// Writes of all that is dirty, in search of a number.
const TRIES: usize = 8;
/// The part of the DRAM for what the last state has and programs do not. When it is short, states
/// are named that were not requested.
const HISTORY_SHARE: u64 = 8;
/// Threads that resolve faults in compatible mode.
const HANDLERS: usize = 4;
/// Threads that resolve faults of fibers in in-line mode, and so the reads for them at a time: half
/// of the queues.
const SERVERS: usize = QUEUES / 2;

/// Memory in flash by the object. Threads use it by plain loads and stores. See [`ObjectSettings`].
///
/// ```no_run
/// use fulgurite_alloc::{ObjectAllocator, ObjectSettings};
/// use fulgurite_backing::Medium;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flash = Medium::new_file("flash", "16G");
/// let objects = ObjectAllocator::start(&ObjectSettings::new(flash, 1 << 30, 100_000_000))?;
/// let array = objects.array(100_000_000, 128).ok_or("the flash has no room")?;
/// let at = array.at(99_999_999).cast::<u64>();
/// // SAFETY: the array is this function's alone, and an object has room for it.
/// unsafe { at.write(7) };
/// # Ok(())
/// # }
/// ```
///
/// An object must not be used by a child after `fork`, and its contents are gone with the process.
/// Over a pool, what is permanent stays ([`ObjectAllocator::set_permanent`]):
/// ```no_run
/// use fulgurite_alloc::{ObjectAllocator, ObjectSettings};
/// use fulgurite_backing::Medium;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Medium::pool_or_new("counters.pool", "1G");
/// let objects = ObjectAllocator::start(&ObjectSettings::new(pool, 64 << 20, 1_000_000))?;
/// let counters = objects.array_named_or_new("counters", 1_000_000, 128)?;
/// let at = counters.at(7).cast::<u64>();
/// // SAFETY: the array is this function's alone, and an object has room for it.
/// unsafe { at.write(at.read() + 1) };
/// objects.sync()?; // each run counts one more
/// # Ok(())
/// # }
/// ```
pub struct ObjectAllocator {
    pub(super) pager: Pager,
    layout: Layout,
    described: String,
}

impl ObjectAllocator {
    /// Starts an allocator. It lives as long as the process, as its objects may be used anywhere.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(settings: &ObjectSettings) -> Result<&'static ObjectAllocator, StartError> {
        let of_medium = fulgurite_backing::Settings {
            dram_bytes: settings.dram_bytes,
            keep_tokens: settings.keep_tokens,
            keep_age: settings.keep_age,
            history_share: Some(HISTORY_SHARE),
            ..Default::default()
        };
        let mut medium = settings.medium.clone();
        if medium.is_kept() {
            if settings.objects_max == 0 {
                return Err(StartError::NoObjects);
            }
            medium = medium.objects_alone(records::addresses(settings.chunks()), records::MAGIC);
        }
        let opened = medium.begin(&of_medium)?;
        let made = ObjectAllocator::over_opened(&opened, settings)?;
        opened.finish()?;
        Ok(made)
    }

    /// Opens an allocator over a medium that is open, instead of the medium of the settings. A pool
    /// packs objects, and is this allocator's alone. It keeps the states that it was opened to
    /// keep.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn over_opened(opened: &Opened, settings: &ObjectSettings) -> Result<&'static ObjectAllocator, StartError> {
        let pool = match &opened.kept {
            None => return ObjectAllocator::over(&*opened.flash, settings),
            Some(Kept::There(_)) => return Err(StartError::OfDevice),
            Some(Kept::Here(pool)) => pool,
        };
        let flash = &*opened.flash;
        let mut queues = (0..QUEUES).map(|_| BlockingQueue::new(flash, 1)).collect::<Result<Vec<_>, _>>()?;
        queues.push(BlockingQueue::new(flash, LOG_FRAMES)?);
        let found = kept::load(pool, queues.last_mut().expect("it was pushed"))?;
        let chunks = settings.chunks().max(found.chunks());
        let there = records::chunks_in(pool.geometry().subpages);
        if chunks > there {
            return Err(StartError::FewAddresses { objects: u64::from(there) * u64::from(CHUNK) });
        }
        let layout = Layout::new(settings, (chunks, 0), &queues, flash.traits().dram_bytes as u64)?;
        let numbers = Numbers::new(chunks, records::weight, kept::room(pool)?);
        let made =
            ObjectAllocator::make(flash, settings, layout, Parts { queues, numbers, kept: Some((opened, found)) })?;
        made.begin(Writer::Pool)?;
        Ok(made)
    }

    /// Opens an allocator over flash that is open, instead of the medium of the settings. Its
    /// contents are overwritten.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn over(flash: &dyn Flash, settings: &ObjectSettings) -> Result<&'static ObjectAllocator, StartError> {
        let mut queues = (0..QUEUES).map(|_| BlockingQueue::new(flash, 1)).collect::<Result<Vec<_>, _>>()?;
        let extents = settings::extents(flash.subpages())?;
        let queue = BlockingQueue::new(flash, LOG_FRAMES)?;
        queues.push(queue);
        let parts = (settings.chunks(), extents);
        let layout = Layout::new(settings, parts, &queues, flash.traits().dram_bytes as u64)?;
        let queue = queues.pop().expect("it was pushed");
        let numbers = Numbers::new(layout.chunks, packed::weight, Log::room(extents));
        let made = ObjectAllocator::make(flash, settings, layout, Parts { queues, numbers, kept: None })?;
        made.begin(Writer::Log(LogWriter { log: Log::new(extents), queue }))?;
        Ok(made)
    }

    fn make(
        flash: &dyn Flash,
        settings: &ObjectSettings,
        layout: Layout,
        parts: Parts<'_>,
    ) -> Result<&'static ObjectAllocator, StartError> {
        let cannot = |what| move |source| StartError::System { what, source };
        let Parts { queues, mut numbers, kept } = parts;
        let userfault = match settings.mode {
            Mode::Compatible => Userfault::open(),
            Mode::InLine => Userfault::open_in_line(),
        }
        .map_err(fulgurite_fault::Error::from)?;
        let bytes = (u64::from(layout.chunks) * u64::from(CHUNK)) << SUBPAGE_SHIFT;
        let region = Region::reserve(bytes as usize).map_err(cannot("reserve addresses"))?;
        userfault.watch(&region).map_err(fulgurite_fault::Error::from)?;
        region.allow(0, region.len(), Access::ReadWrite).map_err(cannot("reserve addresses"))?;
        let frames = Arc::new(Arena::anonymous(layout.pages as usize * SUBPAGE_BYTES, Backed::BasePages)?);
        userfault.take_back_to(&frames).map_err(fulgurite_fault::Error::from)?;
        let chunks = (layout.chunks as usize).div_ceil(layout.shards);
        let shard = |_| Shard { cache: Cache::new(layout.shard_bytes), places: Places::new(chunks), is_writing: false };
        let before = (0..layout.pages).map(|_| Default::default()).collect();
        let shards = Shards::new((0..layout.shards).map(shard).collect());
        let kept = match kept {
            Some((opened, found)) => Some(KeptPool::open(opened, found, &mut numbers, &shards, settings.syncs_itself)?),
            None => None,
        };
        let pager = Pager {
            mode: settings.mode,
            userfault,
            region,
            frames,
            fingerprints: Fingerprints::new().map_err(cannot("read random bytes"))?,
            before,
            buffer: Mutex::new(Buffer::new(layout.pages)),
            changed: Condvar::new(),
            table_left: Condvar::new(),
            numbers: Mutex::new(numbers),
            shards,
            queues: QueuePool::new(queues),
            kept,
            wanted: Wanted::default(),
            statistics: Statistics::default(),
            on_overrun: settings.on_overrun,
            clock: Clock::get(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(FlashError::Closed),
            poisoned: Mutex::new(BTreeSet::new()),
            switched: Switched::new(),
        };
        let described = format!(
            "object per page by {}, {}; {} for pages, {} for objects; {}",
            match pager.userfault.origin() {
                Origin::Device => "/dev/userfaultfd",
                Origin::Call => "userfaultfd",
                Origin::UserMode => "userfaultfd for user mode only",
            },
            match settings.mode {
                Mode::Compatible => "handler threads (compatible mode)",
                Mode::InLine => "in the thread that faults (in-line mode)",
            },
            format_bytes(u64::from(layout.pages) << SUBPAGE_SHIFT),
            format_bytes((layout.shard_bytes * layout.shards) as u64),
            flash.describe()
        );
        Ok(Box::leak(Box::new(ObjectAllocator { pager, layout, described })))
    }

    fn begin(&'static self, writer: Writer) -> Result<(), StartError> {
        let cannot = |what| move |source| StartError::System { what, source };
        signals::start_for_good(c"fulgurite-log", move || writer.run(&self.pager)).map_err(cannot("start a thread"))?;
        let frees_tables = move || pager::free_tables(&self.pager);
        signals::start_for_good(c"fulgurite", frees_tables).map_err(cannot("start a thread"))?;
        match self.pager.mode {
            Mode::InLine => {
                faults::handle_by(Signal::Bus, pager::handle_fault, HandlerStack::Own)
                    .map_err(cannot("handle SIGBUS"))?;
                if !pager::register(&self.pager) {
                    return Err(StartError::TooMany);
                }
                for _ in 0..SERVERS {
                    let serves = move || pager::serve(&self.pager);
                    signals::start_for_good(c"fulgurite", serves).map_err(cannot("start a thread"))?;
                }
            }
            Mode::Compatible => {
                for _ in 0..HANDLERS {
                    let notifier = Notifier::new().map_err(cannot("make an eventfd"))?;
                    let handles = move || pager::handle(&self.pager, &notifier);
                    signals::start_for_good(c"fulgurite", handles).map_err(cannot("start a thread"))?;
                }
            }
        }
        Ok(())
    }

    /// A pool of objects of `bytes` bytes each: 1 to [`OBJECT_BYTES_MAX`].
    ///
    /// # Errors
    /// [`BadSize`].
    pub fn pool(&'static self, bytes: usize) -> Result<ObjectPool, BadSize> {
        if !(1..=OBJECT_BYTES_MAX).contains(&bytes) {
            return Err(BadSize(bytes));
        }
        Ok(self.pool_of(NOBODY, bytes as u16))
    }
    pub(super) fn pool_of(&'static self, owner: u32, size: u16) -> ObjectPool {
        ObjectPool { allocator: self, owner, size }
    }

    /// An array of `count` objects, 1 or more, of `bytes` bytes each, which read as zeros. Their
    /// distance is [`OBJECT_STRIDE`]. None when the flash or the numbers have no room, and for a
    /// size that no object has.
    #[must_use]
    pub fn array(&self, count: u32, bytes: usize) -> Option<ObjectArray> {
        if count == 0 || !(1..=OBJECT_BYTES_MAX).contains(&bytes) {
            return None;
        }
        let first = self.take(|numbers, is_clear| numbers.take_array(bytes as u16, count, is_clear))?;
        for number in first..first + count {
            self.unpoison(number);
        }
        Some(self.array_of(first, count, bytes))
    }
    pub(super) fn array_of(&self, first: u32, count: u32, bytes: usize) -> ObjectArray {
        let first = NonNull::new(self.pager.address(first) as *mut u8).expect("no region begins at 0");
        ObjectArray { first, count, bytes }
    }

    /// Takes numbers. Where there are none, frees may not have reached the log. Another batch may
    /// be on its way there as soon as one has arrived.
    fn take(&self, take: impl Fn(&mut Numbers, &dyn Fn(u32) -> bool) -> Result<u32, NoNumber>) -> Option<u32> {
        let is_clear = |chunk| self.pager.shards.is_clear(chunk);
        let first = take(&mut lock(&self.pager.numbers), &is_clear);
        match first {
            Ok(number) => Some(number),
            Err(NoNumber::Flash) => None,
            Err(NoNumber::Numbers) => (0..TRIES).find_map(|_| {
                if !lock(&self.pager.numbers).has_free() {
                    return None;
                }
                // What could not be written is not clear, and others may be.
                let _ = self.pager.wanted.all();
                take(&mut lock(&self.pager.numbers), &is_clear).ok()
            }),
        }
    }

    fn unpoison(&self, number: u32) {
        let mut poisoned = lock(&self.pager.poisoned);
        if !poisoned.is_empty() && poisoned.remove(&number) {
            let _ = self.pager.region.unmap_pages((number as usize) << SUBPAGE_SHIFT, SUBPAGE_BYTES);
        }
    }

    pub(super) fn number_of(&self, object: NonNull<u8>) -> Result<u32, FreeError> {
        let address = object.as_ptr() as usize;
        let number = self.pager.number(address).ok_or(FreeError::Foreign(address))?;
        if address.is_multiple_of(SUBPAGE_BYTES) { Ok(number) } else { Err(FreeError::NotABlock(address)) }
    }

    /// Bytes that an object has.
    ///
    /// # Errors
    /// [`FreeError`] when it is no object in use.
    pub fn size_of(&self, object: NonNull<u8>) -> Result<usize, FreeError> {
        let number = self.number_of(object)?;
        lock(&self.pager.numbers).size_of(number).ok_or(FreeError::NotABlock(object.as_ptr() as usize))
    }

    /// Frees an object of a pool, or one of an array, from any thread. What it held is garbage to
    /// the log.
    ///
    /// # Errors
    /// [`FreeError`] when it is no object in use: nothing was freed.
    ///
    /// # Safety
    /// Nothing may use the object any more.
    pub unsafe fn free(&self, object: NonNull<u8>) -> Result<(), FreeError> {
        self.size_of(object)?;
        self.free_number(self.number_of(object)?)
    }

    fn free_number(&self, number: u32) -> Result<(), FreeError> {
        let address = self.pager.address(number);
        // Its number is handed out again only when nothing is known of it.
        if self.pager.forget(number).is_err() {
            return Err(FreeError::Flash(address));
        }
        if lock(&self.pager.numbers).give(number) { Ok(()) } else { Err(FreeError::NotABlock(address)) }
    }

    /// Frees the objects of an array that were not freed one by one. A permanent array loses its
    /// name first: a state has all of it, or nothing.
    ///
    /// # Errors
    /// [`FreeError`] when no array in use begins there. [`FreeError::Flash`] when the flash cannot
    /// be written: the objects before that one are free, and the array has no name.
    ///
    /// # Safety
    /// Nothing may use the array any more.
    pub unsafe fn free_array(&self, first: NonNull<u8>) -> Result<(), FreeError> {
        let number = self.number_of(first)?;
        let none = FreeError::NotABlock(first.as_ptr() as usize);
        let count = lock(&self.pager.numbers).array_at(number).ok_or(none)?;
        self.unname(number);
        for number in number..number + count {
            let is_used = lock(&self.pager.numbers).size_of(number).is_some();
            if is_used {
                self.free_number(number)?;
            }
        }
        Ok(())
    }

    /// Writes all objects whose changes have left the page buffer, and waits. Then most of the
    /// object cache may be evicted.
    pub fn write_back(&self) {
        // What failed is tried again, and waits in DRAM until then.
        let _ = self.pager.wanted.all();
    }

    /// Whether an address is in the memory of this allocator.
    #[must_use]
    pub fn contains(&self, address: *const u8) -> bool {
        self.pager.number(address as usize).is_some()
    }
    /// How page faults are resolved and how the DRAM is divided, as a text for people.
    #[must_use]
    pub fn describe(&self) -> &str {
        &self.described
    }
    /// What it has done so far.
    #[must_use]
    pub fn summary(&self) -> ObjectSummary {
        ObjectSummary {
            objects: lock(&self.pager.numbers).count(),
            pages: self.layout.pages,
            cache_bytes: (self.layout.shard_bytes * self.layout.shards) as u64,
            own_syncs: self.pager.kept.as_ref().map_or(0, |kept| kept.own_syncs.load(Ordering::Relaxed)),
            ..self.pager.statistics.summary()
        }
    }
    /// Checks the invariants.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        lock(&self.pager.numbers).check();
        for shard in 0..self.pager.shards.len() {
            if let Err(broken) = self.pager.shards.at(shard).cache.check() {
                panic!("shard {shard}: {broken}");
            }
        }
    }
}

/// What depends on what is below.
struct Parts<'o> {
    queues: Vec<BlockingQueue>,
    numbers: Numbers,
    kept: Option<(&'o Opened, Found)>,
}

impl std::fmt::Debug for ObjectAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectAllocator").field("summary", &self.summary()).finish_non_exhaustive()
    }
}

/// Objects of one size, allocated one by one. It is an allocator for a collection that allocates
/// one object at a time: a list, a tree, a box.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPool {
    pub(super) allocator: &'static ObjectAllocator,
    /// Whose objects have chunks of their own.
    pub(super) owner: u32,
    pub(super) size: u16,
}

impl ObjectPool {
    /// Allocates an object, which reads as zeros and begins a page. None when the flash or the
    /// numbers have no room.
    #[must_use]
    pub fn allocate(&self) -> Option<NonNull<u8>> {
        let number = self.allocator.take(|numbers, is_clear| numbers.take(self.owner, self.size, is_clear))?;
        self.allocator.unpoison(number);
        NonNull::new(self.allocator.pager.address(number) as *mut u8)
    }
    /// Bytes of its objects.
    #[must_use]
    pub fn object_bytes(&self) -> usize {
        self.size.into()
    }
}

// SAFETY: an object is a page of the region that only its holder knows until it is freed. The
// allocator lives as long as the process.
unsafe impl allocator_api2::alloc::Allocator for ObjectPool {
    fn allocate(&self, layout: Shape) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() > self.size.into() || layout.align() > SUBPAGE_BYTES {
            return Err(AllocError);
        }
        let at = ObjectPool::allocate(self).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(at, self.size.into()))
    }
    fn allocate_zeroed(&self, layout: Shape) -> Result<NonNull<[u8]>, AllocError> {
        allocator_api2::alloc::Allocator::allocate(self, layout)
    }
    unsafe fn deallocate(&self, object: NonNull<u8>, _: Shape) {
        // SAFETY: the caller's contract.
        let freed = unsafe { self.allocator.free(object) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

/// Objects side by side, a page apart. It does not free itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectArray {
    first: NonNull<u8>,
    count: u32,
    bytes: usize,
}

impl ObjectArray {
    /// Where an object begins.
    ///
    /// # Panics
    /// When the array has fewer objects.
    #[inline]
    #[must_use]
    pub fn at(&self, index: u32) -> NonNull<u8> {
        assert!(index < self.count, "object {index} of an array of {}", self.count);
        // SAFETY: the objects of an array are side by side in one mapping.
        unsafe { self.first.add(index as usize * OBJECT_STRIDE) }
    }
    /// The first object: for [`ObjectAllocator::free_array`].
    #[must_use]
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }
    /// How many objects it has.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.count
    }
    /// Whether it has none. An array that was allocated has some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Bytes of each.
    #[must_use]
    pub fn object_bytes(&self) -> usize {
        self.bytes
    }
}

// SAFETY: an array is an address and two numbers.
unsafe impl Send for ObjectArray {}
// SAFETY: as above.
unsafe impl Sync for ObjectArray {}
