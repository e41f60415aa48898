//! Small blocks of `malloc` in memory of flash, where the person asks for it.
//!
//! ```text
//!   region:  | slab | slab | slab | ..      64 KiB each, blocks of one size
//!   DRAM:      bits   bits   bits           one for each block, set while it is free
//! ```
//!
//! Nothing of this is in the blocks themselves, so that neither `malloc` nor `free` touches a page
//! that is on flash. Slabs are divided among shards, each with a lock that is held for some tens of
//! instructions, never while memory of flash is touched. A thread allocates from a shard of its
//! own, or of an eighth of the threads. It frees to the shard that has the block's slab.
//!
//! Blocks that the dynamic linker and the C library ask for themselves stay in DRAM (`Callers`). In
//! a child after `fork` they are used before it has memory of flash.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use fulgurite_fault::{Access, PageBuffer};
use fulgurite_sys::{Arena, Backed};

const SLAB: usize = 64 << 10;
/// Memory that is mapped for slabs at a time, if there is that much.
const CHUNK: usize = 4 << 20;
/// The largest small block: two of them are in a slab.
pub const LARGEST: usize = SLAB / 2;
/// Multiples of 16 to 128, then four sizes for each doubling.
const CLASSES: usize = 8 + 4 * 8;

const fn size_of_class(class: usize) -> usize {
    if class < 8 { (class + 1) * 16 } else { (5 + (class - 8) % 4) << (5 + (class - 8) / 4) }
}
const _: () = assert!(size_of_class(7) == 128 && size_of_class(8) == 160 && size_of_class(CLASSES - 1) == LARGEST);

/// The class for `bytes` bytes at a multiple of a power of two, up to a page.
fn class_of(bytes: usize, alignment: usize) -> Option<usize> {
    let wanted = bytes.max(1);
    (0..CLASSES).find(|class| size_of_class(*class) >= wanted && size_of_class(*class).is_multiple_of(alignment))
}

/// Blocks of one size.
struct Slab {
    /// Of its place in the region.
    number: u32,
    class: usize,
    used: u32,
    /// Has free blocks, and is in the list of its class.
    is_listed: bool,
    /// A bit for each block, set while it is free.
    free: Box<[u64]>,
}

impl Slab {
    fn new(number: u32, class: usize) -> Slab {
        let count = SLAB / size_of_class(class);
        let word = |index: usize| match count - index * 64 {
            left @ 0..64 => (1 << left) - 1,
            _ => u64::MAX,
        };
        Slab { number, class, used: 0, is_listed: true, free: (0..count.div_ceil(64)).map(word).collect() }
    }
    fn take(&mut self) -> usize {
        let word = self.free.iter().position(|word| *word != 0).expect("a listed slab has a free block");
        let bit = self.free[word].trailing_zeros() as usize;
        self.free[word] &= self.free[word] - 1;
        self.used += 1;
        word * 64 + bit
    }
    fn is_full(&self) -> bool {
        self.used as usize == SLAB / size_of_class(self.class)
    }
}

/// The small blocks of a shard.
pub struct Small {
    slabs: Vec<Option<Slab>>,
    /// Where there is none among them.
    spare: Vec<u32>,
    /// Slabs with free blocks, by class.
    listed: [Vec<u32>; CLASSES],
    /// Numbers of places without a slab.
    empty: Vec<u32>,
}

const SHARDS: usize = 8;

impl Small {
    const NONE: Small =
        Small { slabs: Vec::new(), spare: Vec::new(), listed: [const { Vec::new() }; CLASSES], empty: Vec::new() };
}

static SMALL: [Mutex<Small>; SHARDS] = [const { Mutex::new(Small::NONE) }; SHARDS];

/// For each place in the region, the slab there: its shard and where it is among those, plus one. 0
/// for none.
static OWNERS: OnceLock<Arena> = OnceLock::new();

/// All small blocks, locked.
pub type Locked = [MutexGuard<'static, Small>; SHARDS];

pub fn lock() -> Locked {
    SMALL.each_ref().map(lock_shard)
}
fn lock_shard(shard: &'static Mutex<Small>) -> MutexGuard<'static, Small> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to serve small blocks, while the program has one thread. False without memory for it.
pub fn begin(buffer: &PageBuffer) -> bool {
    let places = buffer.part_of(buffer.base(), usize::MAX).map_or(0, |(_, bytes)| bytes.div_ceil(SLAB));
    Arena::anonymous(places * size_of::<u64>(), Backed::BasePages).is_ok_and(|owners| OWNERS.set(owners).is_ok())
}

fn owner_word(number: usize) -> Option<&'static AtomicU64> {
    Some(&OWNERS.get()?.words(number * size_of::<u64>(), 1)[0])
}

/// The shard of the slab at a place, and where it is among those.
fn owner_of(number: usize) -> Option<(usize, usize)> {
    let known = owner_word(number)?.load(Ordering::Acquire).checked_sub(1)? as usize;
    Some((known % SHARDS, known / SHARDS))
}
fn set_owner(number: u32, owner: Option<(usize, u32)>) {
    if let Some(word) = owner_word(number as usize) {
        word.store(
            owner.map_or(0, |(shard, index)| u64::from(index) * SHARDS as u64 + shard as u64 + 1),
            Ordering::Release,
        );
    }
}

thread_local! {
    /// The shard that this thread allocates from, once it has.
    static MINE: Cell<Option<usize>> = const { Cell::new(None) };
}

fn mine() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    MINE.get().unwrap_or_else(|| {
        let shard = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
        MINE.set(Some(shard));
        shard
    })
}

/// A block; none where flash is full, or for what is not small.
pub fn take(buffer: &PageBuffer, bytes: usize, alignment: usize) -> Option<*mut c_void> {
    let (class, mine) = (class_of(bytes, alignment)?, mine());
    // Where flash is full, others may have a block.
    (0..SHARDS).find_map(|step| take_from((mine + step) % SHARDS, buffer, class))
}

fn take_from(shard: usize, buffer: &PageBuffer, class: usize) -> Option<*mut c_void> {
    let mut small = lock_shard(&SMALL[shard]);
    let index = match small.listed[class].last() {
        Some(index) => *index,
        None => small.begin(shard, buffer, class)?,
    };
    let slab = small.slabs[index as usize].as_mut().expect("a listed slab is there");
    let (number, block) = (slab.number, slab.take());
    if slab.is_full() {
        slab.is_listed = false;
        small.listed[class].pop();
    }
    Some((buffer.base() + number as usize * SLAB + block * size_of_class(class)) as *mut c_void)
}

/// Bytes of a small block, in use or not; none for others.
pub fn bytes_of(buffer: &PageBuffer, block: *mut c_void) -> Option<usize> {
    let number = (block as usize - buffer.base()) / SLAB;
    let (shard, index) = owner_of(number)?;
    let small = lock_shard(&SMALL[shard]);
    let slab = small.slabs.get(index)?.as_ref().filter(|slab| slab.number as usize == number);
    slab.map(|slab| size_of_class(slab.class))
}

/// What became of a block that was to be freed.
pub enum Freed {
    Done,
    /// It is no block, or free already.
    Wrong,
    /// It is not a small one.
    NotSmall,
}

/// Frees a block of the region.
pub fn free(buffer: &PageBuffer, block: *mut c_void) -> Freed {
    let offset = block as usize - buffer.base();
    let (number, within) = (offset / SLAB, offset % SLAB);
    let Some((shard, index)) = owner_of(number) else { return Freed::NotSmall };
    let mut small = lock_shard(&SMALL[shard]);
    let small = &mut *small;
    let Some(Some(slab)) = small.slabs.get_mut(index) else { return Freed::Wrong };
    if slab.number as usize != number {
        return Freed::Wrong;
    }
    let (class, size) = (slab.class, size_of_class(slab.class));
    let (word, bit) = (within / size / 64, within / size % 64);
    if !within.is_multiple_of(size) || slab.free.get(word).is_none_or(|free| free >> bit & 1 == 1) {
        return Freed::Wrong;
    }
    slab.free[word] |= 1 << bit;
    slab.used -= 1;
    let listed = &mut small.listed[class];
    if !std::mem::replace(&mut slab.is_listed, true) {
        listed.push(index as u32);
    }
    // One stays, so that a block that comes and leaves does not make and end a slab each time.
    if slab.used == 0 && listed.len() > 1 {
        listed.retain(|listed| *listed != index as u32);
        small.slabs[index] = None;
        small.spare.push(index as u32);
        small.empty.push(number as u32);
        set_owner(number as u32, None);
        // It is garbage: nobody writes it to flash.
        let _ = buffer.drop_contents(buffer.base() + number * SLAB, SLAB);
    }
    Freed::Done
}

impl Small {
    /// Begins a slab, and lists it.
    fn begin(&mut self, shard: usize, buffer: &PageBuffer, class: usize) -> Option<u32> {
        if self.empty.is_empty() {
            self.map(buffer, CHUNK).or_else(|| self.map(buffer, SLAB))?;
        }
        let number = self.empty.pop()?;
        let (index, slab) = (self.spare.pop(), Some(Slab::new(number, class)));
        let index = index.unwrap_or(self.slabs.len() as u32);
        match self.slabs.get_mut(index as usize) {
            Some(place) => *place = slab,
            None => self.slabs.push(slab),
        }
        set_owner(number, Some((shard, index)));
        self.listed[class].push(index);
        Some(index)
    }

    /// Maps places for slabs.
    fn map(&mut self, buffer: &PageBuffer, bytes: usize) -> Option<()> {
        let all = bytes + SLAB;
        let start = buffer.map(all, None, Access::ReadWrite).ok()? - buffer.base();
        let (first, end) = (start.next_multiple_of(SLAB), (start + all) / SLAB * SLAB);
        for (from, to) in [(start, first), (end, start + all)] {
            if from < to {
                let _ = buffer.unmap(buffer.base() + from, to - from);
            }
        }
        self.empty.extend((first / SLAB..end / SLAB).rev().map(|number| number as u32));
        Some(())
    }
}

/// The code of the dynamic linker and the C library.
static CALLERS: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// Finds out where the code of the dynamic linker and the C library is, while the program has one
/// thread.
pub fn find_callers() {
    extern "C" fn add(info: *mut libc::dl_phdr_info, _size: libc::size_t, to: *mut c_void) -> c_int {
        // SAFETY: the C library passes a whole description, and on what it was given.
        let (info, to) = unsafe { (&*info, &mut *to.cast::<Vec<Range<usize>>>()) };
        // SAFETY: a name ends in zero, and as many headers follow as are stated.
        let (name, headers) = unsafe {
            let name = if info.dlpi_name.is_null() { c"" } else { std::ffi::CStr::from_ptr(info.dlpi_name) };
            (name.to_bytes(), std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
        };
        let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if file.starts_with(b"libc.so.") || file.starts_with(b"ld-linux") {
            for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0) {
                let start = info.dlpi_addr as usize + header.p_vaddr as usize;
                to.push(start..start + header.p_memsz as usize);
            }
        }
        0
    }
    let mut found: Vec<Range<usize>> = Vec::new();
    // SAFETY: the function takes what it is passed.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    let _ = CALLERS.set(found);
}

/// Whether code at an address is the dynamic linker's or the C library's.
pub fn is_library(caller: usize) -> bool {
    CALLERS.get().is_none_or(|callers| callers.iter().any(|code| code.contains(&caller)))
}
