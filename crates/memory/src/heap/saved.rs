//! The heap's state in its header: saved at each sync, read when the heap is opened, and read again
//! after a roll back.

use std::sync::atomic::Ordering;

use fulgurite_runtime::AccessError;

use super::size_class::CLASSES;
use super::state::{ClassRecord, ClassState, Header, RECORDS_FIRST};
use super::{HEADER_BYTES, Heap, SUBPAGE, Supply, hold, ranges_of};
use crate::{Address, Memory, Ptr, Region, WriteSet};

const MAGIC: u64 = u64::from_le_bytes(*b"flgheap1");

/// What a header says.
struct Saved {
    header: Header,
    /// One for each class; none when the last user did not save.
    classes: Vec<ClassRecord>,
}

impl Heap {
    /// Opens the heap that `create` and `save` left in `region`.
    ///
    /// After a crash before `save`, everything that may have been handed out counts as in use. Free
    /// space is lost, and nothing is handed out twice.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when there is no such heap; what the memory says.
    pub fn open<M: Memory>(memory: &mut M, region: Region) -> Result<Heap, AccessError> {
        Heap::open_grown(memory, region, Vec::new())
    }
    /// Opens a heap that was given further ranges since it was created.
    pub(crate) fn open_grown<M: Memory>(
        memory: &mut M,
        region: Region,
        more: Vec<Region>,
    ) -> Result<Heap, AccessError> {
        if region.bytes < HEADER_BYTES + SUBPAGE {
            return Err(AccessError::NoSpace { requested: HEADER_BYTES + SUBPAGE, free: region.bytes });
        }
        let heap = Heap::over(memory.id(), region, HEADER_BYTES, 0, false);
        heap.parts.set_more(more);
        let saved = heap.read_saved(memory)?;
        heap.install(saved);
        Ok(heap)
    }

    /// Restores the state in DRAM from the header after a roll back. Nothing may be allocated or
    /// freed meanwhile.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when the heap is gone: it neither allocates nor frees then. It does
    /// neither after the memory's errors.
    pub fn reload<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.reload_under(memory, None)
    }
    /// Restores the heap of a container with this header, which has its ranges.
    pub(crate) fn reload_under<M: Memory>(&self, memory: &mut M, header: Option<Address>) -> Result<(), AccessError> {
        self.memory.check(memory.id())?;
        let ranges = header.map_or(Ok(Vec::new()), |header| ranges_of(memory, header));
        let saved = ranges.and_then(|ranges| {
            self.parts.set_more(ranges);
            self.read_saved(memory)
        });
        match saved {
            Ok(saved) => {
                self.install(saved);
                Ok(())
            }
            Err(error) => {
                self.abandon();
                Err(error)
            }
        }
    }

    /// The heap is no more: nothing can be allocated or freed.
    pub(crate) fn abandon(&self) {
        self.gone.store(true, Ordering::Release);
        self.clean.store(true, Ordering::Release);
        self.lent.store(false, Ordering::Release);
        for class in &self.classes {
            *hold(&class.state) = ClassState::default();
        }
        let mut supply = hold(&self.supply);
        *supply = Supply { next: self.bytes(), mark: self.bytes(), unaccounted: 0, rests: Vec::new() };
    }

    /// What the header says.
    fn read_saved<M: Memory>(&self, memory: &mut M) -> Result<Saved, AccessError> {
        let (region, bytes) = (self.region(), self.bytes());
        let corrupt = |expected, got| Err(AccessError::Corrupt { what: "heap header", at: region.base, expected, got });
        let header = memory.load(Ptr::<Header>::new(region.base))?;
        if header.magic != MAGIC {
            return corrupt(MAGIC, header.magic);
        }
        if header.classes as usize != CLASSES {
            return corrupt(CLASSES as u64, header.classes.into());
        }
        if header.region != region {
            return corrupt(region.bytes, header.region.bytes);
        }
        if header.mark < HEADER_BYTES || header.mark > bytes || !header.mark.is_multiple_of(SUBPAGE) {
            return corrupt(bytes, header.mark);
        }
        let mut saved = Saved { header, classes: Vec::new() };
        if header.clean != 1 {
            return Ok(saved);
        }
        for class in 0..CLASSES {
            let record = memory.load(self.record(class))?;
            let slab_ok = record.next == record.end
                || (record.next.bits() < record.end.bits()
                    && self.is_object(class, record.next)
                    && self.contains(record.next, record.end.bits() - record.next.bits()));
            if !slab_ok || record.listed > record.cut || record.head.is_null() != (record.listed == 0) {
                let at = self.record(class).address();
                return Err(AccessError::Corrupt { what: "heap class", at, expected: record.cut, got: record.listed });
            }
            saved.classes.push(record);
        }
        Ok(saved)
    }

    fn install(&self, saved: Saved) {
        let clean = saved.header.clean == 1;
        for (i, class) in self.classes.iter().enumerate() {
            let mut state = hold(&class.state);
            *state = ClassState::default();
            if let Some(record) = saved.classes.get(i) {
                (state.head, state.listed) = (record.head, record.listed);
                (state.next, state.end, state.cut) = (record.next, record.end, record.cut);
            }
        }
        let mut supply = hold(&self.supply);
        let mark = saved.header.mark;
        // Without the classes' records, all that may have been handed out counts as in use.
        let unaccounted = if clean { saved.header.unaccounted } else { mark - HEADER_BYTES };
        *supply = Supply { next: mark, mark, unaccounted, rests: Vec::new() };
        drop(supply);
        self.note_freed();
        self.missed.store(false, Ordering::Relaxed);
        self.clean.store(clean, Ordering::Release);
    }

    /// Writes all state to the header, so that `open` and `reload` continue from here. Writes
    /// nothing if nothing changed. Nothing may be allocated or freed meanwhile.
    ///
    /// # Errors
    /// The memory's errors. The heap is then as before, and the header still says that it was not
    /// saved. A state may be named without it ([`AccessError::is_damage`]). Opening it counts
    /// everything as in use that may have been handed out.
    pub fn save<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let unchanged = self.clean.load(Ordering::Acquire) && !self.missed.load(Ordering::Relaxed);
        if unchanged || self.gone.load(Ordering::Acquire) {
            return Ok(());
        }
        self.note_change(memory)?;
        for class in 0..CLASSES {
            while !hold(&self.classes[class].state).cached.is_empty() {
                self.spill(memory, class, 0)?;
            }
        }
        let mut set = WriteSet::new();
        for class in 0..CLASSES {
            let state = hold(&self.classes[class].state);
            let record = ClassRecord {
                head: state.head,
                listed: state.listed,
                next: state.next,
                end: state.end,
                cut: state.cut,
            };
            set.store(self.record(class), record)?;
        }
        let (mark, unaccounted) = {
            let supply = hold(&self.supply);
            (supply.next, supply.unaccounted)
        };
        set.store(Ptr::new(self.region().base), self.header(1, mark, unaccounted))?;
        set.commit(memory)?;
        hold(&self.supply).mark = mark;
        self.missed.store(false, Ordering::Relaxed);
        self.clean.store(true, Ordering::Release);
        Ok(())
    }

    pub(super) fn header(&self, clean: u32, mark: u64, unaccounted: u64) -> Header {
        let (classes, region) = (CLASSES as u32, self.region());
        Header { magic: MAGIC, classes, clean, region, mark, unaccounted, reserved: [0; 2] }
    }
    pub(super) fn record(&self, class: usize) -> Ptr<ClassRecord> {
        let first = Ptr::<ClassRecord>::new(self.region().base.add(size_of::<Header>() as u64));
        let second = Ptr::<ClassRecord>::new(self.region().base.add(SUBPAGE));
        if class < RECORDS_FIRST { first.offset(class as u64) } else { second.offset((class - RECORDS_FIRST) as u64) }
    }
}
