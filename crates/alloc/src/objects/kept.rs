//! A pool below the object cache, in place of a log: its store has the objects, and those that are
//! permanent outlive the process.
//!
//! Each object is one of the store, at a subpage of its own ([`super::records`]). So the store
//! packs, reclaims and recovers, and its tokens name states. An object that is not permanent is in
//! a temporary page, which the store drops when the pool is opened again. What is known of
//! permanent ones (chunks of numbers, names) is written before a state is named.
//!
//! Invariants:
//! * Before an object is written, the page of the store that holds it is permanent if and only if
//!   its chunk is. [`KeptPool::pages`] is locked while either changes.
//! * In no state that is named has a permanent chunk a temporary page. The reverse does no harm.
//! * Locks are taken in this order: names, pages, numbers, shards.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fulgurite_backing::{Kept, Opened};
use fulgurite_flash::{FlashError, Op};
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_objects::Batch;
use fulgurite_store::{Geometry, Permissions, Pool, PoolError, SUBPAGES_PER_PAGE, WriteError};
use fulgurite_sys::Process;

use super::lock;
use super::names::{Entry, Names};
use super::numbers::{CHUNK, Kind, Numbers, Record};
use super::pager::{Pager, Shards};
use super::queue::BlockingQueue;
use super::records::{self, BYTES_MAX, Header, NAMES_MAX, PAGES_PER_CHUNK, Target};
use super::settings::LOG_FRAMES;
use super::statistics::count;
use crate::StartError;

/// Objects that are written at a time while a pool is opened, and records.
const AT_ONCE: usize = 1024;

/// Pages of the store that are as their chunk is: a bit for each, and how that was.
#[derive(Clone, Copy, Default, Debug)]
struct Pages {
    right: u64,
    permanent: bool,
}
const _: () = assert!(PAGES_PER_CHUNK == u64::BITS);

/// See the module.
pub struct KeptPool {
    pool: Arc<Pool>,
    /// May write to the pool. Its children must not.
    pub process: Process,
    /// What was opened is held as long as the process lives.
    _opened: Opened,
    pub names: Mutex<Names>,
    pages: Mutex<Vec<Pages>>,
    /// It names states where room is short.
    syncs_itself: bool,
    /// How often it did.
    pub own_syncs: AtomicU64,
    /// How often arrays were made permanent. It changes while [`KeptPool::names`] is locked.
    pub made_permanent: AtomicU64,
}

/// What a pool held when it was opened.
pub struct Found {
    /// Chunks whose numbers are handed out.
    pub records: BTreeMap<u32, Record>,
    names: Names,
    /// Chunks whose record leads nowhere.
    stale: BTreeSet<u32>,
}

impl Found {
    /// Chunks that there have to be.
    pub fn chunks(&self) -> u32 {
        let last = self.records.last_key_value().map(|(last, _)| *last).max(self.stale.last().copied());
        last.map_or(0, |last| last + 1)
    }
}

/// Whether a sync may make room for it.
fn is_for_room(error: &PoolError) -> bool {
    match error {
        PoolError::Write(error) => matches!(error, WriteError::NoSpace { .. } | WriteError::Table(_)),
        PoolError::Flash(error) => *error == FlashError::NoSpace,
        _ => false,
    }
}
/// A pool's error as a `FlashError`.
pub fn flash_error(error: PoolError) -> FlashError {
    match error {
        PoolError::Flash(error) => error,
        PoolError::Write(error) => error.into(),
        // What is no trouble of the flash cannot come: the store was opened for changes.
        _ => FlashError::Closed,
    }
}

/// Reads what a pool has: nothing, so that it gets a header, or permanent objects.
///
/// # Errors
/// [`StartError`] when it has anything else.
pub fn load(pool: &Pool, queue: &mut BlockingQueue) -> Result<Found, StartError> {
    let geometry = pool.geometry();
    if !geometry.objects || u64::from(geometry.subpages) < records::addresses(0) {
        return Err(StartError::NotOfObjects);
    }
    let mut header = [0; SUBPAGE_BYTES];
    let length = pool.read_object(records::HEADER, &mut header)?;
    match records::judge_header(&header[..length]) {
        Header::Own => {}
        Header::Newer(version) => return Err(StartError::Newer { version }),
        Header::Foreign if length == 0 && pool.info().live == 0 && pool.info().objects == 0 => {
            pool.write_objects(&[(records::HEADER, &records::header())])?;
            pool.sync()?;
        }
        Header::Foreign => return Err(StartError::NotOfObjects),
    }
    let mut names = Names::default();
    let slots: Vec<u32> = (0..NAMES_MAX).collect();
    read_all(pool, queue, &slots, records::of_name, |slot, bytes| {
        let (name, size, named) = records::decode_name(bytes).ok_or(StartError::Damaged { what: "name", at: slot })?;
        let is_new = names.restore(slot, name, size, named);
        if is_new { Ok(()) } else { Err(StartError::Damaged { what: "name", at: slot }) }
    })?;
    let (mut all, mut stale) = (BTreeMap::new(), BTreeSet::new());
    let (mut owners, mut arrays) = (BTreeMap::new(), BTreeMap::new());
    for (_, entry) in names.all() {
        match entry.target {
            Target::Pool { owner, .. } => _ = owners.insert(owner, entry.size),
            Target::Array { first, count } => {
                let from = first / CHUNK;
                _ = arrays.insert(first, (from..from.saturating_add(count.div_ceil(CHUNK)), entry.size));
            }
        }
    }
    let chunks: Vec<u32> = (0..records::chunks_in(geometry.subpages)).collect();
    read_all(pool, queue, &chunks, records::of_chunk, |at, bytes| {
        let record = records::decode_chunk(bytes).ok_or(StartError::Damaged { what: "record", at })?;
        let size = match record.kind {
            Kind::Pool(owner) => owners.get(&owner).copied(),
            Kind::Array(first) => arrays.get(&first).filter(|(of, _)| of.contains(&at)).map(|(_, size)| *size),
            Kind::Free => None,
        };
        if size == Some(record.size) {
            all.insert(at, record);
        } else {
            stale.insert(at);
        }
        Ok(())
    })?;
    Ok(Found { records: all, names, stale })
}

/// Reads the first bytes of what is stored at the subpages of these, if anything is.
fn read_all(
    pool: &Pool,
    queue: &mut BlockingQueue,
    all: &[u32],
    subpage: fn(u32) -> u32,
    mut take: impl FnMut(u32, &[u8; BYTES_MAX]) -> Result<(), StartError>,
) -> Result<(), StartError> {
    let mut there = Vec::new();
    for at in all {
        if is_there(pool, subpage(*at))? {
            there.push(*at);
        }
    }
    for part in there.chunks(LOG_FRAMES) {
        let subpages: Vec<u32> = part.iter().map(|at| subpage(*at)).collect();
        let ended = queue.transfer(Op::Read, &subpages).map_err(PoolError::from)?.to_vec();
        for (frame, (at, ended)) in part.iter().zip(ended).enumerate() {
            ended.map_err(PoolError::from)?;
            take(*at, queue.page(frame).first_chunk().expect("a page has more"))?;
        }
    }
    Ok(())
}
fn is_there(pool: &Pool, subpage: u32) -> Result<bool, PoolError> {
    Ok(pool.locate_object(subpage)?.is_some_and(|object| object.at.length > 0))
}

/// Bytes of flash that objects may take at worst. Half of what the pool has room for: all of them
/// may change between two syncs, and the last state has them as they were.
pub fn room(pool: &Pool) -> Result<u64, StartError> {
    let usual = Geometry::usual(pool.geometry().flash_pages()).map_err(fulgurite_backing::Error::from)?;
    Ok(u64::from(usual.subpages) * SUBPAGE_BYTES as u64 / 2)
}

/// Hands the numbers out that are permanent, and removes what is left of others.
fn restore(pool: &Pool, found: Found, numbers: &mut Numbers, shards: &Shards) -> Result<Names, StartError> {
    let Found { records, names, stale } = found;
    for (at, record) in &records {
        numbers.restore(*at, record);
    }
    for (_, entry) in names.all() {
        match entry.target {
            Target::Pool { owner, .. } => numbers.restore_owner(owner),
            Target::Array { first, count } if numbers.restore_array(first, count, entry.size) => {}
            Target::Array { first, .. } => return Err(StartError::Damaged { what: "array", at: first }),
        }
    }
    numbers.give_changed_back(stale);
    let mut garbage: Vec<(u32, &[u8])> = Vec::new();
    for chunk in 0..records::chunks_in(pool.geometry().subpages) {
        if !records.contains_key(&chunk) {
            let pages = records::first_page(chunk)..records::first_page(chunk) + PAGES_PER_CHUNK;
            with_room(pool, || pool.delete_pages(pages.clone()))?;
            continue;
        }
        for number in chunk * CHUNK..(chunk + 1) * CHUNK {
            match numbers.size_of(number) {
                Some(size) => {
                    let (mut shard, at, index) = shards.of(number);
                    shard.places.set(at, index, size, 0);
                }
                // Freed while a state was named.
                None if is_there(pool, records::of_object(number))? => {
                    garbage.push((records::of_object(number), &[]));
                }
                None => {}
            }
        }
    }
    for part in garbage.chunks(AT_ONCE) {
        with_room(pool, || pool.write_objects(part))?;
    }
    Ok(names)
}
/// Nothing is lost by a sync then: what is removed is not permanent.
fn with_room(pool: &Pool, change: impl Fn() -> Result<(), PoolError>) -> Result<(), PoolError> {
    match change() {
        Err(error) if is_for_room(&error) => {
            pool.sync()?;
            change()
        }
        changed => changed,
    }
}

impl KeptPool {
    /// Over a pool of which this was found. Hands the numbers out that are permanent.
    ///
    /// # Errors
    /// [`StartError::Damaged`] when names and records disagree, and the pool's.
    pub fn open(
        opened: &Opened,
        found: Found,
        numbers: &mut Numbers,
        shards: &Shards,
        syncs_itself: bool,
    ) -> Result<KeptPool, StartError> {
        let Some(Kept::Here(pool)) = &opened.kept else { return Err(StartError::OfDevice) };
        let chunks = numbers.chunks();
        let names = restore(pool, found, numbers, shards)?;
        Ok(KeptPool {
            pool: pool.clone(),
            process: Process::current(),
            _opened: opened.clone(),
            names: Mutex::new(names),
            pages: Mutex::new(vec![Pages::default(); chunks as usize]),
            syncs_itself,
            own_syncs: AtomicU64::new(0),
            made_permanent: AtomicU64::new(0),
        })
    }

    /// Writes a batch, of which the objects without bytes were freed.
    ///
    /// # Errors
    /// The flash's, or that it has no room.
    pub fn write_batch(&self, pager: &Pager, batch: &Batch) -> Result<(), FlashError> {
        let all = batch.objects();
        let kept = all.iter().filter(|(_, bytes)| !bytes.is_empty()).map(|(number, _)| *number);
        let mut pages: Vec<u32> = kept.map(|number| number / SUBPAGES_PER_PAGE).collect();
        pages.sort_unstable();
        pages.dedup();
        let objects: Vec<(u32, &[u8])> =
            all.iter().map(|(number, bytes)| (records::of_object(*number), *bytes)).collect();
        let write = || {
            self.prepare(pager, &pages)?;
            self.pool.write_objects(&objects)
        };
        let written = match write() {
            Err(error) if self.syncs_itself && is_for_room(&error) => {
                self.name_state(pager, &mut lock(&self.names)).and_then(|_| {
                    self.own_syncs.fetch_add(1, Ordering::Relaxed);
                    write()
                })
            }
            written => written,
        };
        if let Err(error) = written {
            count(&pager.statistics.errors, 1);
            return Err(flash_error(error));
        }
        count(&pager.statistics.log_pages, batch.bytes().div_ceil(SUBPAGE_BYTES) as u64);
        let mut emptied = BTreeSet::new();
        for (number, bytes) in all {
            let (mut shard, chunk, index) = pager.shards.of(number);
            if bytes.is_empty() {
                shard.places.clear(chunk, index);
                if shard.places.is_clear(chunk) {
                    emptied.insert(number / CHUNK);
                }
            } else {
                shard.places.set(chunk, index, bytes.len(), 0);
                emptied.remove(&(number / CHUNK));
            }
        }
        emptied.into_iter().for_each(|chunk| self.clear(chunk));
        Ok(())
    }
    /// No object of a chunk has bytes: neither have its pages, nor slots.
    fn clear(&self, chunk: u32) {
        let mut pages = lock(&self.pages);
        pages[chunk as usize] = Pages::default();
        // Where there is no room for that, they stay, and are as empty.
        let _ = self.pool.delete_pages(records::first_page(chunk)..records::first_page(chunk) + PAGES_PER_CHUNK);
    }
    /// Makes pages of the store as permanent as their chunks are. Those are counted without the
    /// pages between the chunks.
    fn prepare(&self, pager: &Pager, wanted: &[u32]) -> Result<(), PoolError> {
        let mut pages = lock(&self.pages);
        for part in wanted.chunk_by(|a, b| a / PAGES_PER_CHUNK == b / PAGES_PER_CHUNK) {
            let chunk = part[0] / PAGES_PER_CHUNK;
            let permanent = lock(&pager.numbers).is_permanent(chunk * CHUNK);
            let known = &mut pages[chunk as usize];
            if known.permanent != permanent {
                *known = Pages { right: 0, permanent };
            }
            for page in part.iter().map(|page| page % PAGES_PER_CHUNK) {
                if known.right >> page & 1 == 1 {
                    continue;
                }
                let at = records::first_page(chunk) + page;
                // A page that does not exist becomes a permanent one when it is written to.
                if self.pool.permissions(at).map_or(!permanent, |now| now.permanent != permanent) {
                    self.pool.set_permissions(at..at + 1, Permissions { permanent, ..Permissions::DEFAULT })?;
                }
                known.right |= 1 << page;
            }
        }
        Ok(())
    }

    /// Makes the pages of chunks permanent that are in use, and then has `set` say so of the chunks
    /// in the numbers. The store drops temporary pages, so the other order would lose them where a
    /// state is named in between.
    ///
    /// # Errors
    /// The pool's. `set` was not called.
    pub fn make_permanent(
        &self,
        pager: &Pager,
        names: &mut Names,
        chunks: Range<u32>,
        set: impl FnOnce(&mut Numbers),
    ) -> Result<(), PoolError> {
        let mut pages = lock(&self.pages);
        for chunk in chunks.clone() {
            if let Err(error) = self.set_pages_or_sync(pager, names, &mut pages, chunk) {
                for chunk in chunks.start..=chunk {
                    // What stays permanent has no record, so the next opening drops it as well.
                    let _ = self.set_pages(&mut pages, chunk, false);
                }
                return Err(error);
            }
        }
        set(&mut lock(&pager.numbers));
        self.made_permanent.fetch_add(1, Ordering::Release);
        Ok(())
    }
    fn set_pages_or_sync(
        &self,
        pager: &Pager,
        names: &mut Names,
        pages: &mut [Pages],
        chunk: u32,
    ) -> Result<(), PoolError> {
        match self.set_pages(pages, chunk, true) {
            Err(error) if self.syncs_itself && is_for_room(&error) => {
                self.name_state(pager, names)?;
                self.own_syncs.fetch_add(1, Ordering::Relaxed);
                self.set_pages(pages, chunk, true)
            }
            set => set,
        }
    }
    /// Makes the chunks temporary that `set` returns, with their pages. That does not fail, because
    /// what stays permanent has no record, and the next opening drops it as well.
    pub fn make_temporary(&self, pager: &Pager, set: impl FnOnce(&mut Numbers) -> Vec<u32>) {
        let mut pages = lock(&self.pages);
        let chunks = set(&mut lock(&pager.numbers));
        for chunk in chunks {
            if self.set_pages(&mut pages, chunk, false).is_err_and(|error| !is_for_room(&error)) {
                count(&pager.statistics.errors, 1);
            }
        }
    }
    /// Makes the pages that a chunk has permanent or temporary.
    fn set_pages(&self, pages: &mut [Pages], chunk: u32, permanent: bool) -> Result<(), PoolError> {
        // Before objects are written, their pages are checked again, as are pages that do not exist
        // yet.
        pages[chunk as usize] = Pages { right: 0, permanent };
        let first = records::first_page(chunk);
        let now = self.pool.permissions_of(first..first + PAGES_PER_CHUNK);
        let others = (first..).zip(now).filter(|(_, now)| now.is_some_and(|now| now.permanent != permanent));
        let others: Vec<u32> = others.map(|(page, _)| page).collect();
        for run in others.chunk_by(|a, b| a + 1 == *b) {
            let permissions = Permissions { permanent, ..Permissions::DEFAULT };
            self.pool.set_permissions(run[0]..run[0] + run.len() as u32, permissions)?;
        }
        Ok(())
    }

    /// Names the state of all that was written, with what is known of permanent objects, and waits
    /// until it is durable. Returns the token.
    ///
    /// # Errors
    /// The pool's.
    pub fn name_state(&self, pager: &Pager, names: &mut Names) -> Result<u64, PoolError> {
        match self.write_records(pager, names) {
            Err(error) if self.syncs_itself && is_for_room(&error) => {
                self.pool.sync()?;
                self.write_records(pager, names)?;
            }
            written => written?,
        }
        self.pool.sync()
    }
    fn write_records(&self, pager: &Pager, names: &mut Names) -> Result<(), PoolError> {
        write_changed(names, &pager.numbers, |all| write_all(&self.pool, &all))
    }
}

/// Writes what has changed of names and records. Where a write fails, a state may be named that has
/// only what came before. So in each such state a name leads to chunks that have their records:
/// first the names go that lead nowhere now, then records change, then names come.
fn write_changed(
    names: &mut Names,
    numbers: &Mutex<Numbers>,
    mut write: impl FnMut(Vec<(u32, Vec<u8>)>) -> Result<(), PoolError>,
) -> Result<(), PoolError> {
    // All of one moment: an array may be freed meanwhile.
    let (chunks, of_chunks) = {
        let mut numbers = lock(numbers);
        forget_gone(names, &numbers);
        let chunks = numbers.take_changed();
        let record = |at: &u32| numbers.record(*at).as_ref().map(records::encode_chunk).unwrap_or_default();
        let of_chunks = chunks.iter().map(|at| (records::of_chunk(*at), record(at))).collect();
        (chunks, of_chunks)
    };
    let (gone, changed) = (names.take_gone(), names.take_changed());
    let encode = |(slot, (name, entry)): (&u32, &(String, Entry))| {
        (records::of_name(*slot), records::encode_name(name, entry.size, entry.target))
    };
    let cleared = write(gone.iter().map(|slot| (records::of_name(*slot), Vec::new())).collect());
    if cleared.is_err() {
        names.give_gone_back(gone);
    }
    let written = cleared.and_then(|()| write(of_chunks)).and_then(|()| write(changed.iter().map(encode).collect()));
    if written.is_err() {
        lock(numbers).give_changed_back(chunks);
        names.give_changed_back(changed.into_keys());
    }
    written
}
/// Writes these to their subpages, and removes those without bytes.
fn write_all(pool: &Pool, all: &[(u32, Vec<u8>)]) -> Result<(), PoolError> {
    for part in all.chunks(AT_ONCE) {
        let mut objects: Vec<(u32, &[u8])> = Vec::new();
        for (subpage, bytes) in part {
            // What flash has not need not be removed.
            if !bytes.is_empty() || is_there(pool, *subpage)? {
                objects.push((*subpage, bytes));
            }
        }
        pool.write_objects(&objects)?;
    }
    Ok(())
}

/// Removes the names of arrays that were freed.
pub fn forget_gone(names: &mut Names, numbers: &Numbers) {
    let is_gone = |named| match named {
        Target::Array { first, count } => numbers.array_at(first) != Some(count) || !numbers.is_permanent(first),
        Target::Pool { .. } => false,
    };
    let gone: Vec<String> =
        names.all().filter(|(_, entry)| is_gone(entry.target)).map(|(name, _)| name.to_owned()).collect();
    gone.iter().for_each(|name| names.remove(name));
}

#[cfg(test)]
mod tests {
    use fulgurite_flash::{Flash, MemoryFlash};
    use fulgurite_format::PoolId;
    use fulgurite_objects::{CACHE_BYTES_MIN, Cache};
    use fulgurite_store::{Durability, StoreConfig};

    use super::super::pager::Shard;
    use super::super::places::Places;
    use super::*;

    const CHUNKS: u32 = 12;

    /// The last one keeps it open.
    fn open(medium: &Arc<dyn Flash>) -> (Arc<Pool>, BlockingQueue, impl Flash + use<>) {
        let mut config = StoreConfig::default();
        config.durability = Durability::Sync;
        let store = Pool::open(medium.clone(), config).unwrap().0.into_flash();
        (store.layer().clone(), BlockingQueue::new(&store, LOG_FRAMES).unwrap(), store)
    }
    /// What the next process finds: its names, and of each how many objects it has.
    fn found(medium: &Arc<dyn Flash>) -> BTreeMap<String, u32> {
        let (pool, mut queue, _store) = open(medium);
        let found = load(&pool, &mut queue).unwrap();
        let mut numbers = Numbers::new(CHUNKS, records::weight, u64::MAX);
        let cache = Cache::new(CACHE_BYTES_MIN);
        let shards = Shards::new(vec![Shard { cache, places: Places::new(CHUNKS as usize), is_writing: false }]);
        let names = restore(&pool, found, &mut numbers, &shards).unwrap();
        numbers.check();
        let objects = |entry: Entry| match entry.target {
            Target::Array { first, count } => {
                assert_eq!(numbers.array_at(first), Some(count));
                (first..first + count).filter(|number| numbers.size_of(*number) == Some(entry.size.into())).count()
            }
            Target::Pool { owner, .. } => numbers.objects_of(owner).len(),
        };
        names.all().map(|(name, entry)| (name.to_owned(), objects(entry) as u32)).collect()
    }

    /// Names and numbers of a process.
    struct Process {
        names: Names,
        numbers: Mutex<Numbers>,
        pools: [u32; 2],
    }
    impl Process {
        fn array(&mut self, name: &str, count: u32, size: u16) -> u32 {
            let mut numbers = lock(&self.numbers);
            let first = numbers.take_array(size, count, |_| true).unwrap();
            numbers.set_array_permanent(first, true).unwrap();
            assert!(self.names.set(name, size, Target::Array { first, count }));
            first
        }
        fn pool(&mut self, name: &str, at: usize, objects: u32) {
            let mut numbers = lock(&self.numbers);
            self.pools[at] = numbers.make_owner();
            let owner = self.pools[at];
            numbers.set_owner_permanent(owner, true);
            assert!(self.names.set(name, 64, Target::Pool { owner, root: None }));
            let mut root = None;
            for _ in 0..objects {
                root = numbers.take(owner, 64, |_| true).ok();
            }
            assert!(self.names.set(name, 64, Target::Pool { owner, root }));
        }
        fn free(&mut self, first: u32, count: u32) {
            let mut numbers = lock(&self.numbers);
            assert!((first..first + count).all(|number| numbers.give(number)));
        }
        /// Names a state. Of its writes of names and records, the first `writes` succeed. Returns
        /// whether all did.
        fn name_state(&mut self, pool: &Pool, mut writes: usize) -> bool {
            let written = write_changed(&mut self.names, &self.numbers, |all| {
                for one in all.chunks(1) {
                    writes = writes.checked_sub(1).ok_or(PoolError::Flash(FlashError::NoSpace))?;
                    write_all(pool, one)?;
                }
                Ok(())
            });
            pool.sync().unwrap();
            written.is_ok()
        }
    }

    /// Arrays and pools are made, removed and moved, and take each other's locations. All are in a
    /// named state, and so are the first `writes` writes of the changes since then. `goes_on`: the
    /// process names another state then.
    fn after(writes: usize, goes_on: bool) -> (Arc<dyn Flash>, bool) {
        let geometry = Geometry::with_objects(4096, 64, records::addresses(CHUNKS) as u32).unwrap();
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry.flash_pages()).unwrap());
        Pool::format(&medium, geometry, PoolId([7; 16]), 0).unwrap();
        let numbers = Mutex::new(Numbers::new(CHUNKS, records::weight, u64::MAX));
        let mut process = Process { names: Names::default(), numbers, pools: [0; 2] };
        let (pool, mut queue, _store) = open(&medium);
        load(&pool, &mut queue).unwrap();
        let [gone, moved] = [process.array("gone", 2000, 64), process.array("moved", 1500, 32)];
        process.array("stays", 1100, 16);
        process.pool("pool", 0, 20);
        process.pool("temporary", 1, 10);
        assert!(process.name_state(&pool, usize::MAX));

        process.free(gone, 2000);
        process.free(moved, 1500);
        forget_gone(&mut process.names, &lock(&process.numbers));
        // In the slot and in the chunks of those that were freed, and in others.
        process.array("new", 1100, 128);
        process.array("moved", 3000, 8);
        process.names.remove("temporary");
        lock(&process.numbers).set_owner_permanent(process.pools[1], false);
        process.pool("temporary", 1, 30);
        let (owner, root) = (process.pools[0], lock(&process.numbers).take(process.pools[0], 64, |_| true).ok());
        assert!(process.names.set("pool", 64, Target::Pool { owner, root }));
        let ended = process.name_state(&pool, writes);
        assert!(!goes_on || process.name_state(&pool, usize::MAX));
        (medium, ended)
    }

    #[test]
    fn a_state_with_a_part_of_the_changes_opens() {
        let named = |all: &[(&str, u32)]| all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let before: BTreeMap<String, u32> =
            named(&[("gone", 2000), ("moved", 1500), ("pool", 20), ("stays", 1100), ("temporary", 10)]);
        let now: BTreeMap<String, u32> =
            named(&[("moved", 3000), ("new", 1100), ("pool", 21), ("stays", 1100), ("temporary", 30)]);
        assert_eq!(found(&after(0, false).0), before);
        for writes in 0.. {
            let (medium, ended) = after(writes, false);
            let part = found(&medium);
            for (name, count) in &part {
                let counts = [before.get(name), now.get(name)];
                assert!(counts.contains(&Some(count)), "{writes} writes: {part:?}");
            }
            assert!(part.contains_key("stays") && part.contains_key("pool"), "{writes} writes: {part:?}");
            assert_eq!(found(&after(writes, true).0), now, "{writes} writes");
            if ended {
                assert!(writes > 8 && part == now, "{writes} writes");
                break;
            }
        }
    }
}
