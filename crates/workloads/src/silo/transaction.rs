//! Transactions: optimistic concurrency control in the manner of Silo (SOSP 2013, section 4.4).
//!
//! A transaction reads records without holding anything and keeps its writes to itself. To commit,
//! it
//!
//! 1. pins what it will write (the only step that may wait for flash or fail; nothing is held);
//! 2. holds the latches of what it will write, in one order for all (Silo's phase 1), and notes the
//!    epoch;
//! 3. asks whether what it read is still so (phase 2), or else lets go and is run again;
//! 4. writes, under an identifier larger than all that it met, and lets go (phase 3).
//!
//! What differs from Silo, and why: the lock bit of a record is a latch in DRAM, found by hash of
//! the record's address, because latches never live in flash memory. Its version also says whether
//! a record may have changed since it was read, so that validation touches no record, and so no
//! flash. Two records may share a latch. Then a change of one may make a reader of the other run
//! again, which is rare and harmless. The identifiers in the records decide where latches cannot:
//! for records that the transaction itself holds. Without a log there is no order of a worker's
//! commits to keep, and identifiers are not larger than the worker's last one unless they met it.
//!
//! A run that meets conflicts again and again waits for its turn among all such runs, so that one
//! of them always gets ahead.
//!
//! Records are not created or deleted, and nothing is scanned: no phantoms can appear that would
//! have to be found.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use fulgurite_memory::{AccessError, Address, Exclusive, Latch, LatchTable, Memory, Pinned, Plain, Ptr, SUBPAGE_BYTES};

use super::Tid;

/// Most records that a transaction may write.
pub const WRITES_MAX: usize = 24;
/// Commits of a thread between two advances of the epoch (Silo advances every 40 ms, nothing here
/// has a clock).
const COMMITS_PER_EPOCH: u32 = 4096;
/// Transactions that are expected to be under way at once.
const TRANSACTIONS: usize = 64;
/// What the buffers of a transaction of [`WRITES_MAX`] writes take, about.
const BUFFER_BYTES: usize = 4096;
/// Conflicts after which a run waits for its turn.
const PATIENCE: u64 = 12;

/// A record: its last writer, and its row. Rows need an alignment of at most 8, and must leave no
/// padding at their end.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Record<T> {
    /// Its writer.
    pub tid: Tid,
    /// What.
    pub row: T,
}

impl<T: Plain> Record<T> {
    const WHOLE: () = assert!(
        align_of::<T>() <= 8 && size_of::<Self>() == size_of::<T>() + 8 && size_of::<Self>() <= SUBPAGE_BYTES,
        "rows are multiples of 8 bytes and fit into a subpage"
    );

    /// The address of the row of the record at `at`.
    #[must_use]
    pub fn row(at: Ptr<Self>) -> Ptr<T> {
        at.field(8)
    }
    /// Writes a record that no transaction can see yet.
    ///
    /// # Errors
    /// As [`fulgurite_memory::RawMemory::view_mut`].
    pub fn create<M: Memory>(memory: &mut M, at: Ptr<Self>, tid: Tid, row: T) -> Result<(), AccessError> {
        let () = Self::WHOLE;
        let view = memory.view_mut(at.address(), size_of::<Self>())?;
        view.store(0, tid);
        view.store(8, row);
        Ok(())
    }
}

/// Why a run of a transaction ended without a commit. It has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// What it read has changed, or may have: run it again.
    Conflict,
    /// An access failed.
    Access(AccessError),
}

impl From<AccessError> for Stop {
    fn from(error: AccessError) -> Self {
        Stop::Access(error)
    }
}

/// What transactions share: the latches of records, and the epoch.
#[derive(Debug)]
pub struct Silo<L> {
    latches: LatchTable<L>,
    epoch: AtomicU32,
    /// Where the epoch is kept in flash memory, so that identifiers grow over restarts.
    epoch_at: Ptr<u32>,
    epoch_latch: L,
    turn: L,
}

impl<L: Latch> Silo<L> {
    /// Continues in the epoch that is stored at `epoch_at` (the first is 1), with `latch_count`
    /// latches of 8 bytes.
    ///
    /// # Errors
    /// As [`Memory::load`].
    pub fn open<M: Memory>(memory: &mut M, epoch_at: Ptr<u32>, latch_count: usize) -> Result<Self, AccessError> {
        let epoch = AtomicU32::new(memory.load(epoch_at)?);
        let latches = LatchTable::new(latch_count);
        Ok(Silo { latches, epoch, epoch_at, epoch_latch: L::default(), turn: L::default() })
    }
    /// The current epoch.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }
    /// DRAM that it uses, with the buffers of as many transactions as a worker has under way by
    /// default.
    #[must_use]
    pub fn dram_bytes(&self) -> u64 {
        (self.latches.bytes() + TRANSACTIONS * BUFFER_BYTES) as u64
    }

    /// Begins the next epoch.
    ///
    /// # Errors
    /// As [`Memory::store`]. The epoch stays then.
    #[cold]
    pub fn advance_epoch<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        let _section = memory.write_section()?;
        let _held = self.epoch_latch.lock(memory)?;
        let next = self.epoch().saturating_add(1);
        // First in flash memory: no identifier is of an epoch that a restart would not know.
        memory.store(self.epoch_at, next)?;
        self.epoch.store(next, Ordering::Release);
        Ok(())
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin(&self) -> Transaction<'_, L> {
        Transaction { silo: self, scratch: POOL.with_borrow_mut(Vec::pop).unwrap_or_default() }
    }

    /// Runs `body` as a transaction and commits it, again and again until nothing conflicts. `body`
    /// may see records of different moments, but then its run does not commit.
    ///
    /// # Errors
    /// What `body` or the commit met. Nothing was changed. Between two runs,
    /// [`yield_now`](fulgurite_memory::RawMemory::yield_now) ends a job that was cancelled or late.
    #[inline]
    pub fn run<M: Memory, R>(
        &self,
        memory: &mut M,
        mut body: impl FnMut(&mut Transaction<'_, L>, &mut M) -> Result<R, Stop>,
    ) -> Result<R, AccessError> {
        if COMMITS.get() >= COMMITS_PER_EPOCH {
            self.advance_epoch(memory)?;
            COMMITS.set(0);
        }
        let mut conflicts = 0u64;
        let mut _turn = None;
        loop {
            // What the body changes in indexes belongs to the transaction too.
            let section = memory.write_section()?;
            let mut transaction = self.begin();
            let result = body(&mut transaction, memory);
            let committed = result.and_then(|result| transaction.commit(memory).map(|_| result));
            drop(section);
            match committed {
                Ok(result) => return Ok(result),
                Err(Stop::Access(error)) => return Err(error),
                Err(Stop::Conflict) => (),
            }
            conflicts += 1;
            if conflicts == PATIENCE {
                _turn = Some(self.turn.lock(memory)?);
            }
            memory.yield_now()?;
        }
    }
}

thread_local! {
    /// Buffers of transactions that have ended: as many as a thread has had under way at once.
    static POOL: RefCell<Vec<Scratch>> = const { RefCell::new(Vec::new()) };
    /// Commits of this thread since it last advanced an epoch.
    static COMMITS: Cell<u32> = const { Cell::new(0) };
}

/// What a transaction has read and will write.
#[derive(Default, Debug)]
struct Scratch {
    reads: Vec<Read>,
    records: Vec<Written>,
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
}

/// A record that was read.
#[derive(Clone, Copy, Debug)]
struct Read {
    record: Address,
    latch: usize,
    version: u64,
    tid: Tid,
}

/// A record that will be written.
#[derive(Clone, Copy, Debug)]
struct Written {
    record: Address,
    latch: usize,
    /// The latch's version when the record was read, if it was: if it is still the same, nobody
    /// else has changed it.
    version: Option<u64>,
}

/// Bytes of a record that will be written.
#[derive(Clone, Copy, Debug)]
struct Piece {
    record: u32,
    /// Where in the record, its identifier included.
    offset: u32,
    start: u32,
    len: u32,
}

/// A latch that the commit holds.
struct Held<'s, L: Latch, M: Memory> {
    latch: usize,
    /// The version that it had until it was taken, if that is known.
    since: Option<u64>,
    _latch: Exclusive<'s, L, M>,
}

/// A transaction under way. Dropped, it has changed nothing.
#[derive(Debug)]
pub struct Transaction<'s, L: Latch> {
    silo: &'s Silo<L>,
    scratch: Scratch,
}

impl<L: Latch> Drop for Transaction<'_, L> {
    fn drop(&mut self) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.reads.clear();
        scratch.records.clear();
        scratch.pieces.clear();
        scratch.bytes.clear();
        // A thread that ends has no pool any more.
        let _ = POOL.try_with(|pool| pool.borrow_mut().push(scratch));
    }
}

impl<L: Latch> Transaction<'_, L> {
    /// Reads a row, as it was at one moment, with what this transaction has written to it.
    ///
    /// # Errors
    /// What the access met.
    #[inline]
    pub fn read<M: Memory, T: Plain>(&mut self, memory: &mut M, record: Ptr<Record<T>>) -> Result<T, Stop> {
        let () = Record::<T>::WHOLE;
        self.read_part(memory, record, 0)
    }

    /// Reads a part of a row, `offset` bytes in.
    ///
    /// # Errors
    /// What the access met.
    ///
    /// # Panics
    /// When the part is not inside the row, or not aligned.
    #[inline]
    pub fn read_part<M: Memory, T: Plain, U: Plain>(
        &mut self,
        memory: &mut M,
        record: Ptr<Record<T>>,
        offset: usize,
    ) -> Result<U, Stop> {
        let at = record.address();
        let latch = self.silo.latches.index(at.bits());
        let (version, tid, mut part) = loop {
            let version = self.silo.latches.get(latch).read_begin(memory)?;
            let view = memory.view(at, size_of::<Record<T>>())?;
            let (tid, part) = (view.load::<Tid>(0), view.load::<U>(8 + offset));
            if self.silo.latches.get(latch).read_validate(version) {
                break (version, tid, part);
            }
        };
        self.scratch.reads.push(Read { record: at, latch, version, tid });
        if !self.scratch.records.is_empty() {
            self.overlay(at, 8 + offset, &mut part);
        }
        Ok(part)
    }

    /// Puts what was written to a record over what was read from it, `offset` bytes in.
    fn overlay<U: Plain>(&self, record: Address, offset: usize, part: &mut U) {
        let Some(index) = self.scratch.records.iter().position(|written| written.record == record) else { return };
        let mut bytes = [0u8; SUBPAGE_BYTES];
        let bytes = &mut bytes[..size_of::<U>()];
        bytes.copy_from_slice(part.as_bytes());
        for piece in self.scratch.pieces.iter().filter(|piece| piece.record as usize == index) {
            let (from, to) = (piece.offset as usize, (piece.offset + piece.len) as usize);
            let (low, high) = (from.max(offset), to.min(offset + bytes.len()));
            if low < high {
                let source = piece.start as usize + (low - from);
                bytes[low - offset..high - offset].copy_from_slice(&self.scratch.bytes[source..source + high - low]);
            }
        }
        *part = U::read_from_bytes(bytes).expect("as many bytes as it has");
    }

    /// Writes a row, once the transaction commits.
    ///
    /// # Panics
    /// When the transaction writes more than [`WRITES_MAX`] records.
    #[inline]
    pub fn write<T: Plain>(&mut self, record: Ptr<Record<T>>, row: &T) {
        let () = Record::<T>::WHOLE;
        self.write_part(record, 0, row);
    }

    /// Writes a part of a row, `offset` bytes in, once the transaction commits.
    ///
    /// # Panics
    /// When the part is not inside the row, or the transaction writes more than [`WRITES_MAX`]
    /// records.
    #[inline]
    pub fn write_part<T: Plain, U: Plain>(&mut self, record: Ptr<Record<T>>, offset: usize, part: &U) {
        assert!(offset + size_of::<U>() <= size_of::<T>(), "{offset} bytes in, a part is outside of its row");
        let at = record.address();
        let scratch = &mut self.scratch;
        let index = scratch.records.iter().position(|written| written.record == at).unwrap_or_else(|| {
            assert!(scratch.records.len() < WRITES_MAX, "a transaction writes at most {WRITES_MAX} records");
            // What is written has most often just been read.
            let read = scratch.reads.iter().rev().find(|read| read.record == at);
            let latch = read.map_or_else(|| self.silo.latches.index(at.bits()), |read| read.latch);
            scratch.records.push(Written { record: at, latch, version: read.map(|read| read.version) });
            scratch.records.len() - 1
        });
        let (start, len) = (scratch.bytes.len() as u32, size_of::<U>() as u32);
        scratch.pieces.push(Piece { record: index as u32, offset: 8 + offset as u32, start, len });
        scratch.bytes.extend_from_slice(part.as_bytes());
    }

    /// Forgets what was to be written. What was read is still validated by the commit.
    pub fn roll_back(&mut self) {
        self.scratch.records.clear();
        self.scratch.pieces.clear();
        self.scratch.bytes.clear();
    }

    /// Commits: everything was read and is written at one moment. Returns the transaction's
    /// identifier.
    ///
    /// # Errors
    /// [`Stop::Conflict`] when that is not so. What an access met. Nothing was written then.
    pub fn commit<M: Memory>(mut self, memory: &mut M) -> Result<Tid, Stop> {
        let silo = self.silo;
        let Scratch { reads, records, pieces, bytes } = &mut self.scratch;
        if records.is_empty() {
            let same = reads.iter().all(|read| silo.latches.get(read.latch).read_validate(read.version));
            let last = reads.iter().map(|read| read.tid).max().unwrap_or_default();
            return if same { Ok(last) } else { Err(Stop::Conflict) };
        }

        let mut pins = [const { None::<M::Pin> }; WRITES_MAX];
        for (written, pin) in records.iter().zip(&mut pins) {
            *pin = Some(memory.pin(written.record)?);
        }
        let pin_of = |index: usize| pins[index].as_ref().expect("as many pins as records");

        let mut order = [0u8; WRITES_MAX];
        let order = &mut order[..records.len()];
        order.iter_mut().enumerate().for_each(|(i, place)| *place = i as u8);
        order.sort_unstable_by_key(|&i| records[i as usize].latch);
        let mut held = [const { None::<Held<'_, L, M>> }; WRITES_MAX];
        let mut held_count = 0;
        for &i in &*order {
            let Written { latch, version, .. } = records[i as usize];
            if held_count > 0 && held[held_count - 1].as_ref().is_some_and(|last| last.latch == latch) {
                continue;
            }
            let unchanged = version.and_then(|version| silo.latches.get(latch).upgrade(memory, version));
            held[held_count] = Some(match unchanged {
                Some(guard) => Held { latch, since: version, _latch: guard },
                None => Held { latch, since: None, _latch: silo.latches.get(latch).lock(memory)? },
            });
            held_count += 1;
        }
        let held = &held[..held_count];

        // The latches are held before anything is validated, for all to see: of two transactions
        // that each wrote what the other read, at least one finds out.
        fence(Ordering::SeqCst);
        let epoch = silo.epoch();
        let mut last = Tid::default();
        for read in &*reads {
            last = last.max(read.tid);
            if silo.latches.get(read.latch).read_validate(read.version) {
                continue;
            }
            let own = held.binary_search_by_key(&read.latch, |held| held.as_ref().map_or(usize::MAX, |h| h.latch));
            // It is held, or has been held.
            let Some(own) = own.ok().and_then(|own| held[own].as_ref()) else { return Err(Stop::Conflict) };
            if own.since == Some(read.version) {
                continue;
            }
            let tid = match records.iter().position(|written| written.record == read.record) {
                Some(index) => pin_of(index).view(read.record.subpage_offset(), 8).load::<Tid>(0),
                None => memory.load(Ptr::new(read.record))?,
            };
            if tid != read.tid {
                return Err(Stop::Conflict);
            }
        }
        for (index, written) in records.iter().enumerate() {
            if written.version.is_none() {
                last = last.max(pin_of(index).view(written.record.subpage_offset(), 8).load(0));
            }
        }

        // Nothing below can fail.
        let tid = last.after(epoch);
        for (index, written) in records.iter().enumerate() {
            pin_of(index).view_mut(written.record.subpage_offset(), 8).store(0, tid);
        }
        for piece in &*pieces {
            let record = piece.record as usize;
            let at = records[record].record.subpage_offset() + piece.offset as usize;
            let (start, len) = (piece.start as usize, piece.len as usize);
            pin_of(record).view_mut(at, len).copy_from(0, &bytes[start..start + len]);
        }
        COMMITS.set(COMMITS.get() + 1);
        Ok(tid)
    }
}
