//! Containers under a root: what a later run needs to find them again, and what makes them right
//! again after a roll back.
//!
//! ```text
//! region: | header, a subpage: heap's region, at 24 that of its objects with a check, at 64 the
//!           container's root, at 2048 notes of values in parts | heap | further data |
//! ```
//!
//! In flash memory a container is its root and what that leads to. In DRAM it has latches, and its
//! heap's free lists. The heap's state is saved at every sync and read again after a roll back,
//! which also makes readers read again.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use fulgurite_format::{Address, Plain, RootEntry, SUBPAGE_BYTES, TypePart};
use fulgurite_runtime::{AccessError, Context, Durable};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::blobs::NOTES_BYTES;
use crate::heap::{RECORD_AT, RECORD_BYTES};
use crate::{
    Array, ArrayRoot, BPlusTree, BPlusTreeRoot, BlobIndex, BlobMap, Directory, HashMap, HashMapRoot, Heap, KeyHash,
    Latch, Masstree, MasstreeRoot, Memory, Ptr, Region, RootError, Stored,
};

/// Where in its region a container's root is.
const ROOT_AT: u64 = 64;
/// Where it says which part of it is objects.
const OBJECTS_AT: u64 = 24;
/// Where notes of values that are written in parts are.
const NOTES_AT: u64 = 2048;
const _: () = assert!(NOTES_AT as usize + NOTES_BYTES <= SUBPAGE_BYTES);
const _: () = assert!(RECORD_AT as usize + RECORD_BYTES <= NOTES_AT as usize);
const SUBPAGE: u64 = SUBPAGE_BYTES as u64;

/// The part of a container's region that is objects. Versions before it left what was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct ObjectsRecord {
    region: Region,
    check: u64,
}

impl ObjectsRecord {
    fn of(region: Region) -> ObjectsRecord {
        let check = crate::hash_bytes(&[region.base.bits().to_le_bytes(), region.bytes.to_le_bytes()].concat());
        ObjectsRecord { region, check: check ^ u64::from_le_bytes(*b"objects1") }
    }
    /// The region, if this is a record of one inside the container's.
    fn region(self, container: Region) -> Option<Region> {
        let Region { base, bytes } = self.region;
        let is_one = bytes > 0 && base.subpage_offset() == 0 && container.contains(base, bytes);
        (is_one && self == ObjectsRecord::of(self.region)).then_some(self.region)
    }
}

/// The ranges of addresses that a container under a root has in addition to its region.
///
/// # Errors
/// What the memory says.
pub fn further_ranges<M: Memory>(memory: &mut M, entry: &RootEntry) -> Result<Vec<Region>, AccessError> {
    crate::heap::ranges_of(memory, entry.address)
}

/// A container that a root can name.
pub trait Container: Sized {
    /// Its heap gets more addresses when it is full, so that nodes may be in several ranges. False
    /// where all have to be in the first one.
    const GROWS: bool = true;

    /// What is stored, to open it again: at most 192 bytes.
    type Root: Plain + PartialEq + Debug + Send + Sync;
    /// Its kind and what it holds, as roots keep it.
    fn type_name() -> String;
    /// What it holds: elements, or keys and values.
    fn parts() -> [TypePart; 2];
    /// What to store, to open it again. Never changes.
    fn root_record(&self) -> Self::Root;
    /// Opens the container with this root, whose nodes are in `heap`.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when the root is not of such a container; what the memory says.
    fn open_root<M: Memory>(
        memory: &mut M,
        root: Self::Root,
        heap: &Arc<Heap>,
        latch_count: usize,
    ) -> Result<Self, AccessError>;
    /// Saves what it counts in DRAM, for a sync.
    ///
    /// # Errors
    /// What the memory says.
    fn save<M: Memory>(&self, _memory: &mut M) -> Result<(), AccessError> {
        Ok(())
    }
    /// After a roll back, while nothing changes it: readers read again. With `gone`, users get
    /// [`AccessError::Poisoned`].
    fn disturb(&self, gone: bool);
    /// Makes what it knows in DRAM again, after a roll back and [`Container::disturb`]. Nothing
    /// changes it meanwhile, and it may be read.
    ///
    /// # Errors
    /// What the memory says; it cannot be used then.
    fn reload<M: Memory>(&self, _memory: &mut M) -> Result<(), AccessError> {
        Ok(())
    }
    /// Where it has objects, which are opened with it.
    fn objects(&self) -> Option<Region> {
        None
    }
    /// Where it keeps notes of what is written in parts, if it writes anything so.
    fn keep_notes(&mut self, _at: Address) {}
    /// Opens the objects in this region, after the container.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when there are none; what the memory says.
    fn open_objects<M: Memory>(&mut self, _: &mut M, objects: Region) -> Result<(), AccessError> {
        let (what, at) = ("objects of a container without any", objects.base);
        Err(AccessError::Corrupt { what, at, expected: 0, got: objects.bytes })
    }
}

/// Just a heap.
impl Container for () {
    type Root = u64;
    fn type_name() -> String {
        "heap".into()
    }
    fn parts() -> [TypePart; 2] {
        [TypePart::default(); 2]
    }
    fn root_record(&self) -> u64 {
        0
    }
    fn open_root<M: Memory>(_: &mut M, _: u64, _: &Arc<Heap>, _: usize) -> Result<(), AccessError> {
        Ok(())
    }
    fn disturb(&self, _: bool) {}
}

/// An array has no latch. After a roll back its handle reads what is there now, so ask for it
/// again.
impl<T: Stored> Container for Array<T> {
    type Root = ArrayRoot;
    fn type_name() -> String {
        format!("array of {}", T::type_name())
    }
    fn parts() -> [TypePart; 2] {
        [TypePart::of::<T>(), TypePart::default()]
    }
    fn root_record(&self) -> ArrayRoot {
        self.root()
    }
    fn open_root<M: Memory>(memory: &mut M, root: ArrayRoot, _: &Arc<Heap>, _: usize) -> Result<Self, AccessError> {
        Ok(Array::open_root(root)?.of(memory.id()))
    }
    fn disturb(&self, _: bool) {}
}

impl<K: KeyHash + Eq + Stored, V: Stored, L: Latch> Container for HashMap<K, V, L> {
    type Root = HashMapRoot;
    fn type_name() -> String {
        format!("hash map of {} to {}", K::type_name(), V::type_name())
    }
    fn parts() -> [TypePart; 2] {
        [TypePart::of::<K>(), TypePart::of::<V>()]
    }
    fn root_record(&self) -> HashMapRoot {
        self.root()
    }
    fn open_root<M: Memory>(
        _: &mut M,
        root: HashMapRoot,
        heap: &Arc<Heap>,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        HashMap::open(root, heap.clone(), latch_count)
    }
    fn save<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        HashMap::save(self, memory)
    }
    fn disturb(&self, gone: bool) {
        HashMap::disturb(self, gone);
    }
}

impl<V: Stored, L: Latch> Container for BPlusTree<V, L> {
    type Root = BPlusTreeRoot;
    fn type_name() -> String {
        format!("B+-tree of {}", V::type_name())
    }
    fn parts() -> [TypePart; 2] {
        [TypePart::of::<V>(), TypePart::default()]
    }
    fn root_record(&self) -> BPlusTreeRoot {
        self.root()
    }
    fn open_root<M: Memory>(
        memory: &mut M,
        root: BPlusTreeRoot,
        heap: &Arc<Heap>,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        BPlusTree::open(memory, heap.clone(), root, latch_count)
    }
    fn disturb(&self, gone: bool) {
        BPlusTree::disturb(self, gone);
    }
}

impl<L: Latch> Container for Masstree<L> {
    type Root = MasstreeRoot;
    fn type_name() -> String {
        "trie of byte strings to u64".into()
    }
    fn parts() -> [TypePart; 2] {
        [TypePart::default(); 2]
    }
    fn root_record(&self) -> MasstreeRoot {
        self.root()
    }
    fn open_root<M: Memory>(
        memory: &mut M,
        root: MasstreeRoot,
        heap: &Arc<Heap>,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        Masstree::open(memory, heap.clone(), root, latch_count)
    }
    fn disturb(&self, gone: bool) {
        Masstree::disturb(self, gone);
    }
}

/// An index of blobs that a root can name.
pub trait NamedIndex: BlobIndex + Container {
    /// What its keys are.
    fn keys_name() -> String;
}

impl<K: KeyHash + Eq + Stored, L: Latch> NamedIndex for HashMap<K, u64, L> {
    fn keys_name() -> String {
        K::type_name()
    }
}

impl<L: Latch> NamedIndex for Masstree<L> {
    fn keys_name() -> String {
        "byte strings".into()
    }
}

impl<I: NamedIndex> Container for BlobMap<I> {
    type Root = I::Root;
    fn type_name() -> String {
        format!("blobs by {}", I::keys_name())
    }
    fn parts() -> [TypePart; 2] {
        [I::parts()[0], TypePart::default()]
    }
    fn root_record(&self) -> I::Root {
        self.index().root_record()
    }
    fn open_root<M: Memory>(
        memory: &mut M,
        root: I::Root,
        heap: &Arc<Heap>,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        Ok(Self::over(I::open_root(memory, root, heap, latch_count)?, heap.clone(), latch_count))
    }
    fn save<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.index().save(memory)
    }
    fn disturb(&self, gone: bool) {
        self.index().disturb(gone);
        BlobMap::disturb(self, gone);
    }
    fn keep_notes(&mut self, at: Address) {
        BlobMap::keep_notes(self, at);
    }
    fn objects(&self) -> Option<Region> {
        BlobMap::objects(self)
    }
    fn open_objects<M: Memory>(&mut self, memory: &mut M, objects: Region) -> Result<(), AccessError> {
        BlobMap::open_objects(self, memory, objects)
    }
}

/// A container under a root, with its heap. Open each once in a process, because its latches and
/// its heap's state order its users.
#[derive(Debug)]
pub struct Rooted<C: Container> {
    container: C,
    heap: Arc<Heap>,
    entry: RootEntry,
}

impl<C: Container> Deref for Rooted<C> {
    type Target = C;
    fn deref(&self) -> &C {
        &self.container
    }
}

/// The parts of a container's region: the heap's, and the rest.
fn rooms(region: Region, heap_bytes: u64) -> (Region, Region) {
    region.split(SUBPAGE).1.split(heap_bytes)
}

impl<C: Container> Rooted<C> {
    /// The least bytes of a heap.
    pub const HEAP_BYTES_MIN: u64 = Heap::HEADER_BYTES + SUBPAGE;

    /// Makes a heap of `heap_bytes` and whatever `make` makes, in a region of `directory` with
    /// `data_bytes` next to the heap, and names it. One write section: a named state has all of it
    /// or nothing.
    ///
    /// # Errors
    /// [`RootError`]: the name is taken or invalid, or the directory or the space is full. What
    /// `make` returned. The space is given back then.
    pub fn create<M: Memory>(
        memory: &mut M,
        directory: &Directory,
        name: &str,
        (heap_bytes, data_bytes): (u64, u64),
        make: impl FnOnce(&mut M, &Arc<Heap>, Region) -> Result<C, AccessError>,
    ) -> Result<Self, RootError> {
        let _section = memory.write_section()?;
        directory.is_free(memory, name, &C::type_name())?;
        let round = |bytes: u64| bytes.max(Self::HEAP_BYTES_MIN).checked_next_multiple_of(SUBPAGE).unwrap_or(u64::MAX);
        let heap_bytes = round(heap_bytes);
        let region = directory.reserve(memory, heap_bytes.saturating_add(data_bytes).saturating_add(SUBPAGE))?;
        let made = Self::create_in(memory, directory, name, region, heap_bytes, make);
        if made.is_err() {
            // Only what cannot be given back is lost. The first error is the one to return.
            let _ = directory.give_back(memory, region);
        }
        made
    }

    fn create_in<M: Memory>(
        memory: &mut M,
        directory: &Directory,
        name: &str,
        region: Region,
        heap_bytes: u64,
        make: impl FnOnce(&mut M, &Arc<Heap>, Region) -> Result<C, AccessError>,
    ) -> Result<Self, RootError> {
        const { assert!(size_of::<C::Root>() as u64 <= RECORD_AT - ROOT_AT, "a root has at most 192 bytes") };
        let (heap_region, data) = rooms(region, heap_bytes);
        let heap = Arc::new(Heap::create(memory, heap_region)?);
        crate::heap::clear_ranges(memory, region.base)?;
        let mut container = make(memory, &heap, data)?;
        memory.write_bytes(region.base.add(NOTES_AT), &[0; NOTES_BYTES])?;
        container.keep_notes(region.base.add(NOTES_AT));
        memory.store(Ptr::new(region.base), heap_region)?;
        let objects = container.objects().map_or(ObjectsRecord::of(Region::new(region.base, 0)), ObjectsRecord::of);
        memory.store(Ptr::new(region.base.add(OBJECTS_AT)), objects)?;
        memory.store(Ptr::new(region.base.add(ROOT_AT)), container.root_record())?;
        let entry = RootEntry {
            name: name.to_owned(),
            type_name: C::type_name(),
            parts: C::parts(),
            address: region.base,
            bytes: region.bytes,
        };
        directory.add(memory, &entry)?;
        Ok(Rooted { container, heap, entry })
    }

    /// Opens the container that has this name.
    ///
    /// # Errors
    /// [`RootError`]: no such name, or one of another type; what the memory says.
    pub fn open<M: Memory>(
        memory: &mut M,
        directory: &Directory,
        name: &str,
        latch_count: usize,
    ) -> Result<Self, RootError> {
        let entry = directory.find_as(memory, name, &C::type_name(), C::parts())?;
        let (heap_region, root) = Self::read_header(memory, &entry)?;
        let ranges = further_ranges(memory, &entry)?;
        let heap = Arc::new(Heap::open_grown(memory, heap_region, ranges)?);
        let mut container = C::open_root(memory, root, &heap, latch_count)?;
        let objects: ObjectsRecord = memory.load(Ptr::new(entry.address.add(OBJECTS_AT)))?;
        if let Some(objects) = objects.region(Region::new(entry.address, entry.bytes)) {
            container.open_objects(memory, objects)?;
        }
        container.keep_notes(entry.address.add(NOTES_AT));
        Ok(Rooted { container, heap, entry })
    }

    fn read_header<M: Memory>(memory: &mut M, entry: &RootEntry) -> Result<(Region, C::Root), AccessError> {
        let region = Region::new(entry.address, entry.bytes);
        let heap: Region = memory.load(Ptr::new(entry.address))?;
        let root = memory.load(Ptr::new(entry.address.add(ROOT_AT)))?;
        let (first, inside) = (entry.address.add(SUBPAGE), region.contains(heap.base, heap.bytes));
        if heap.base != first || !inside || !heap.bytes.is_multiple_of(SUBPAGE) {
            let (what, at) = ("header of a container", entry.address);
            return Err(AccessError::Corrupt { what, at, expected: first.bits(), got: heap.base.bits() });
        }
        Ok((heap, root))
    }

    /// From now on its heap gets more addresses of the directory when it is full, each time as many
    /// as it has, unless [`Container::GROWS`] is false. Removing the container gives back all of
    /// them ([`further_ranges`]).
    pub fn grow_in(&self, directory: &Arc<Directory>) {
        if C::GROWS {
            self.heap.grow_on(crate::heap::Grounds { directory: directory.clone(), header: self.entry.address });
        }
    }
    /// Its heap.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }
    /// What the directory says of it.
    pub fn entry(&self) -> &RootEntry {
        &self.entry
    }
    /// Its address.
    pub fn address(&self) -> Address {
        self.entry.address
    }

    /// Saves its state, and its heap's, for a sync.
    ///
    /// # Errors
    /// As [`Heap::save`].
    pub fn save<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.container.save(memory)?;
        self.heap.save(memory)
    }

    /// At a roll back, before jobs go on: a read of the state before notices it, and reads again.
    pub fn disturb(&self) {
        self.container.disturb(false);
    }
    /// Restores the state in DRAM after a roll back. False: the state has no such container, or
    /// another one of this name, and users get [`AccessError::Poisoned`] from now on.
    ///
    /// # Errors
    /// What the memory says; the container cannot be used then either.
    pub fn reload<M: Memory>(&self, memory: &mut M, directory: &Directory) -> Result<bool, RootError> {
        let result = self.still_there(memory, directory);
        let there = matches!(result, Ok(true));
        if !there {
            self.abandon();
        }
        self.container.disturb(!there);
        if there && let Err(error) = self.container.reload(memory) {
            self.abandon();
            return Err(error.into());
        }
        result
    }
    fn still_there<M: Memory>(&self, memory: &mut M, directory: &Directory) -> Result<bool, RootError> {
        match directory.find(memory, &self.entry.name) {
            Ok(entry) if entry == self.entry => {}
            Ok(_) | Err(RootError::Unknown { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        let (heap, root) = Self::read_header(memory, &self.entry)?;
        if heap != self.heap.region() || root != self.container.root_record() {
            return Ok(false);
        }
        self.heap.reload_under(memory, Some(self.entry.address))?;
        Ok(true)
    }
    /// Its root was removed: users get [`AccessError::Poisoned`] from now on.
    pub fn abandon(&self) {
        self.heap.abandon();
        self.container.disturb(true);
    }
}

/// A program's own heap, kept by `Runtime::keep`: every sync saves its state, and a roll back reads
/// it again. After a roll back that removed it, allocations fail. A damaged one fails no sync.
impl Durable for Heap {
    fn save(&self, context: &mut Context) -> Result<(), AccessError> {
        match Heap::save(self, context) {
            Err(error) if error.is_damage() => Ok(()),
            saved => saved,
        }
    }
    fn reload(&self, context: &mut Context) -> Result<(), AccessError> {
        match Heap::reload(self, context) {
            Err(error) if error.is_damage() => Ok(()),
            reloaded => reloaded,
        }
    }
}
