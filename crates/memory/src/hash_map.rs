//! Hash map in flash memory: an array of buckets, each a block of a few entries, with chained
//! blocks from the heap.
//!
//! ```text
//! block: | tags: a byte for each slot, 0 = free | next block | key, value | key, value | ... |
//! ```
//!
//! A block never straddles a subpage, so most look-ups are one access. Tags (seven bits of the
//! hash, and one for "in use") tell which slots to compare. Blocks have up to eight slots and about
//! 500 bytes, or at least four slots of larger entries.
//!
//! Invariants (`check` verifies them):
//! * An entry's key hashes to its bucket, its tag is the key's, and no key is there twice. Entries
//!   that a split or a merge has left over do not count.
//! * Tags beyond the last slot are 0; a chained block has an entry.
//! * An entry stays where it is until it is removed, or its bucket is split or merged.
//!
//! Readers are optimistic. A writer holds the bucket's latch, one of a [`LatchTable`]. Beyond its
//! capacity, chains get longer. Iteration has no order.
//!
//! A map is made with all of its buckets ([`HashMap::create`]) or grows up to them
//! ([`HashMap::create_growing`]; see `growth`).

use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

mod growth;

use fulgurite_format::{Address, Plain, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::MemoryId;
use crate::hash::KeyHash;
use crate::latch::harmless;
use crate::{ByKind, Heap, Latch, LatchTable, Memory, Ptr, Region, View, ViewMut, WriteSet, optimistic};

/// Blocks of a chain that are followed at most: far more than an honest chain has.
const CHAIN_LIMIT: u64 = 1 << 24;
/// Offsets in a block.
const TAGS: usize = 0;
const NEXT: usize = 8;
const ENTRIES: usize = 16;

/// What a program stores to find its map again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct HashMapRoot {
    /// Where the buckets are.
    pub region: Region,
    /// How many there are, or may come to be, with the top bit set.
    pub buckets: u64,
    /// Size of a key, to notice when the wrong type is opened.
    pub key_bytes: u32,
    /// Size of a value.
    pub value_bytes: u32,
}

/// A map from `K` to `V` in flash memory.
#[derive(Debug)]
pub struct HashMap<K, V, L> {
    root: HashMapRoot,
    memory: MemoryId,
    heap: Arc<Heap>,
    latches: LatchTable<L>,
    growth: Growth,
    entries: PhantomData<fn() -> (K, V)>,
}

/// What a map that grows knows in DRAM.
#[derive(Debug)]
struct Growth {
    /// Entries, or [`growth::UNKNOWN`].
    len: AtomicI64,
    /// A bucket is being split or merged.
    splitting: AtomicBool,
    /// How many were merged, and how often all was rolled back.
    merges: AtomicU64,
    /// A segment whose first bucket is not there yet; 0: none.
    ready: AtomicU64,
    /// Where the segments of buckets beyond the region are; 0: not read yet. Apart, so that a map
    /// that is moved takes little of a fiber's stack.
    segments: Box<[AtomicU64; growth::SEGMENTS]>,
}

/// Where in a block an entry is.
#[derive(Clone, Copy)]
struct EntryAddress {
    block: Address,
    slot: usize,
}

/// What a search along a chain found.
struct Scan {
    found: Option<EntryAddress>,
    /// First free slot.
    free: Option<EntryAddress>,
    /// The block that points to the found one's, or the last of the chain.
    before: Address,
    /// The found one's block: its tags and its next.
    tags: u64,
    next: Address,
}

const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;

/// The high bit of every byte of `word` that is zero, and no other bit.
#[inline(always)]
const fn zero_bytes(word: u64) -> u64 {
    const LOW_SEVEN: u64 = 0x7F * EVERY_BYTE;
    !(((word & LOW_SEVEN) + LOW_SEVEN) | word | LOW_SEVEN)
}

impl<K: KeyHash + Eq, V: Plain, L: Latch> HashMap<K, V, L> {
    const VALUE_AT: usize = size_of::<K>().next_multiple_of(align_of::<V>());
    const STRIDE: usize = {
        let align = if align_of::<K>() > align_of::<V>() { align_of::<K>() } else { align_of::<V>() };
        assert!(align <= 8, "keys and values are aligned to at most 8 bytes");
        (Self::VALUE_AT + size_of::<V>()).next_multiple_of(align)
    };
    /// Entries in a block.
    pub const SLOTS: usize = {
        let stride = if Self::STRIDE == 0 { 1 } else { Self::STRIDE };
        let whole = (SUBPAGE_BYTES - ENTRIES) / stride;
        assert!(whole > 0, "an entry and 16 bytes fit a subpage");
        let few = if whole < 4 { whole } else { 4 };
        // Two cache lines for small entries, else about 500 bytes.
        let some = (if stride <= 16 { 112 } else { 496 }) / stride;
        let slots = if some < few { few } else { some };
        if slots > 8 { 8 } else { slots }
    };
    const BLOCK_BYTES: usize = (ENTRIES + Self::SLOTS * Self::STRIDE).next_multiple_of(8);
    const PER_SUBPAGE: u64 = (SUBPAGE_BYTES / Self::BLOCK_BYTES) as u64;
    /// The high bit of the tag of every slot there is.
    const ALL_SLOTS: u64 = (0x80 * EVERY_BYTE) >> (8 * (8 - Self::SLOTS));
    /// Pins that an operation may take.
    pub const PINS: u32 = 2;

    const fn buckets_for(capacity: u64) -> u64 {
        // Three quarters full at capacity: about one bucket in six has overflowed then (Poisson).
        let buckets = capacity.saturating_mul(4).div_ceil(Self::SLOTS as u64 * 3);
        if buckets == 0 { 1 } else { buckets }
    }

    /// Bytes of region for the buckets of `capacity` entries. Overflow blocks come from the heap:
    /// about a fifth more at capacity.
    pub const fn bytes_needed(capacity: u64) -> u64 {
        Self::buckets_for(capacity).div_ceil(Self::PER_SUBPAGE).saturating_mul(SUBPAGE_BYTES as u64)
    }

    /// Makes an empty map for `capacity` entries, with its buckets at the front of `region` and
    /// `latch_count` latches (8 bytes each, rounded up to a power of two).
    ///
    /// # Errors
    /// [`AccessError::NoSpace`] when the region is smaller than [`HashMap::bytes_needed`], and the
    /// memory's errors.
    pub fn create<M: Memory>(
        memory: &mut M,
        region: Region,
        heap: Arc<Heap>,
        capacity: u64,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        heap.memory().check(memory.id())?;
        let requested = Self::bytes_needed(capacity);
        if requested > region.bytes {
            return Err(AccessError::NoSpace { requested, free: region.bytes });
        }
        for offset in (0..requested).step_by(SUBPAGE_BYTES) {
            memory.view_mut(region.base.add(offset), SUBPAGE_BYTES)?.copy_from(0, &[0; SUBPAGE_BYTES]);
        }
        let root = HashMapRoot {
            region: Region::new(region.base, requested),
            buckets: Self::buckets_for(capacity),
            key_bytes: size_of::<K>() as u32,
            value_bytes: size_of::<V>() as u32,
        };
        Self::open(root, heap, latch_count)
    }

    /// Opens the map with this root. Accesses nothing.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when the root is of another type of map, or none.
    pub fn open(root: HashMapRoot, heap: Arc<Heap>, latch_count: usize) -> Result<Self, AccessError> {
        let corrupt = |what, expected, got| Err(AccessError::Corrupt { what, at: root.region.base, expected, got });
        let sizes = (size_of::<K>() as u64) << 32 | size_of::<V>() as u64;
        let found = u64::from(root.key_bytes) << 32 | u64::from(root.value_bytes);
        if sizes != found {
            return corrupt("hash map key and value sizes", sizes, found);
        }
        let (buckets, header) = (root.buckets & !growth::GROWS, u64::from(root.buckets & growth::GROWS != 0));
        let bytes = (buckets.div_ceil(Self::PER_SUBPAGE) + header).saturating_mul(SUBPAGE_BYTES as u64);
        if buckets == 0 || bytes > root.region.bytes || root.region.base.subpage_offset() != 0 {
            return corrupt("hash map root", bytes, root.region.bytes);
        }
        let growth = Growth {
            len: AtomicI64::new(growth::UNKNOWN),
            splitting: AtomicBool::new(false),
            merges: AtomicU64::new(0),
            ready: AtomicU64::new(0),
            segments: Box::new([const { AtomicU64::new(0) }; growth::SEGMENTS]),
        };
        Ok(HashMap {
            root,
            memory: heap.memory(),
            heap,
            latches: LatchTable::new(latch_count.max(1)),
            growth,
            entries: PhantomData,
        })
    }

    /// As [`HashMap::create`], filled with `entries`; of equal keys the last one stays.
    ///
    /// # Errors
    /// As [`HashMap::create`] and [`HashMap::insert`]. Blocks taken from the heap are not given
    /// back.
    pub fn bulk<M: Memory>(
        memory: &mut M,
        region: Region,
        heap: Arc<Heap>,
        capacity: u64,
        latch_count: usize,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, AccessError> {
        let map = Self::create(memory, region, heap, capacity, latch_count)?;
        for (key, value) in entries {
            map.insert(memory, &key, value)?;
        }
        Ok(map)
    }

    /// What to store, to open the map again.
    pub fn root(&self) -> HashMapRoot {
        self.root
    }
    /// DRAM that it uses, without the heap.
    pub fn dram_bytes(&self) -> usize {
        size_of::<Self>() + self.latches.bytes()
    }

    #[inline(always)]
    fn bucket_at(&self, bucket: u64) -> Address {
        if bucket >= self.root.buckets & !growth::GROWS {
            return self.bucket_beyond(bucket);
        }
        let (subpage, inside) = (bucket / Self::PER_SUBPAGE + u64::from(self.grows()), bucket % Self::PER_SUBPAGE);
        self.root.region.base.add(subpage * SUBPAGE_BYTES as u64 + inside * Self::BLOCK_BYTES as u64)
    }
    #[inline(always)]
    fn latch(&self, bucket: u64) -> &L {
        self.latches.of(bucket)
    }
    /// Seven low bits of the hash (the bucket uses the high ones), and "in use".
    #[inline(always)]
    const fn tag(hash: u64) -> u64 {
        (hash & 0x7F) | 0x80
    }
    #[inline(always)]
    const fn entry(slot: usize) -> usize {
        ENTRIES + slot * Self::STRIDE
    }

    /// A chained block's address, if it can be one.
    #[inline]
    fn chained(&self, next: Address) -> Result<Address, AccessError> {
        if next.bits().is_multiple_of(8) && self.heap.contains(next, Self::BLOCK_BYTES as u64) {
            return Ok(next);
        }
        let expected = self.heap.region().base.bits();
        Err(AccessError::Corrupt { what: "hash map chain", at: next, expected, got: next.bits() })
    }

    /// Looks for `key` and hands its entry to `found`.
    #[inline(always)]
    fn find<M: Memory, R>(
        &self,
        memory: &mut M,
        key: &K,
        (hash, bucket): (u64, u64),
        still: &dyn Fn() -> bool,
        found: impl FnOnce(View<'_>, EntryAddress) -> R,
    ) -> Result<Option<R>, AccessError> {
        let tags_wanted = Self::tag(hash) * EVERY_BYTE;
        let mut at = self.bucket_at(bucket);
        let mut blocks = 0u64;
        loop {
            let view = memory.view(at, Self::BLOCK_BYTES)?;
            let mut hits = zero_bytes(view.load::<u64>(TAGS) ^ tags_wanted) & Self::ALL_SLOTS;
            while hits != 0 {
                let slot = hits.trailing_zeros() as usize / 8;
                if view.load::<K>(Self::entry(slot)) == *key {
                    return Ok(Some(found(view, EntryAddress { block: at, slot })));
                }
                hits &= hits - 1;
            }
            let next = view.load::<Address>(NEXT);
            if next.is_null() {
                return Ok(None);
            }
            at = self.chained(next)?;
            blocks += 1;
            if blocks.is_multiple_of(64) && (blocks > CHAIN_LIMIT || !still()) {
                return Err(AccessError::Corrupt { what: "hash map chain", at, expected: CHAIN_LIMIT, got: blocks });
            }
        }
    }

    /// Looks for `key` and for where it could be put.
    fn scan<M: Memory>(
        &self,
        memory: &mut M,
        key: &K,
        (hash, bucket): (u64, u64),
        still: &dyn Fn() -> bool,
    ) -> Result<Scan, AccessError> {
        let tags_wanted = Self::tag(hash) * EVERY_BYTE;
        let mut at = self.bucket_at(bucket);
        let mut scan = Scan { found: None, free: None, before: at, tags: 0, next: Address::NULL };
        let mut blocks = 0u64;
        loop {
            let view = memory.view(at, Self::BLOCK_BYTES)?;
            let tags = view.load::<u64>(TAGS);
            let next = view.load::<Address>(NEXT);
            let mut hits = zero_bytes(tags ^ tags_wanted) & Self::ALL_SLOTS;
            while hits != 0 {
                let slot = hits.trailing_zeros() as usize / 8;
                if view.load::<K>(Self::entry(slot)) == *key {
                    scan.found = Some(EntryAddress { block: at, slot });
                    (scan.tags, scan.next) = (tags, next);
                    return Ok(scan);
                }
                hits &= hits - 1;
            }
            let free = zero_bytes(tags) & Self::ALL_SLOTS;
            if scan.free.is_none() && free != 0 {
                scan.free = Some(EntryAddress { block: at, slot: free.trailing_zeros() as usize / 8 });
            }
            scan.before = at;
            if next.is_null() {
                return Ok(scan);
            }
            at = self.chained(next)?;
            blocks += 1;
            if blocks.is_multiple_of(64) && (blocks > CHAIN_LIMIT || !still()) {
                return Err(AccessError::Corrupt { what: "hash map chain", at, expected: CHAIN_LIMIT, got: blocks });
            }
        }
    }

    /// The value of `key`.
    #[inline]
    pub fn get<M: Memory>(&self, memory: &mut M, key: &K) -> Result<Option<V>, AccessError> {
        let hash = key.key_hash();
        self.read_bucket(memory, hash, |memory, bucket, still| {
            self.find(memory, key, (hash, bucket), still, |view, entry| {
                view.load::<V>(Self::entry(entry.slot) + Self::VALUE_AT)
            })
        })
    }

    /// Whether `key` is there.
    pub fn contains_key<M: Memory>(&self, memory: &mut M, key: &K) -> Result<bool, AccessError> {
        let hash = key.key_hash();
        self.read_bucket(memory, hash, |memory, bucket, still| {
            Ok(self.find(memory, key, (hash, bucket), still, |_, _| ())?.is_some())
        })
    }

    /// Changes the value of `key` in place, and returns what `change` returns, or `None` without
    /// the key. `change` is called at most once. A panic in it changes nothing.
    ///
    /// # Errors
    /// What the memory says; nothing was changed and `change` not called then.
    #[inline]
    pub fn update<M: Memory, R>(
        &self,
        memory: &mut M,
        key: &K,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>, AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let hash = key.key_hash();
        let plan = self.plan(memory, hash, |memory, bucket, still| {
            self.find(memory, key, (hash, bucket), still, |_, entry| entry)
        })?;
        let Some((entry, held)) = plan else { return Ok(None) };
        let view = memory.view_mut(entry.block, Self::BLOCK_BYTES)?;
        let at = Self::entry(entry.slot) + Self::VALUE_AT;
        let mut value = view.load::<V>(at);
        let (result, _held) = harmless(held, || change(&mut value));
        view.store(at, value);
        Ok(Some(result))
    }

    /// Sets the value of `key`, and returns the one it had.
    ///
    /// # Errors
    /// [`AccessError::NoSpace`] when the heap is full, and the memory's errors. Nothing was changed
    /// then.
    pub fn insert<M: Memory>(&self, memory: &mut M, key: &K, value: V) -> Result<Option<V>, AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let hash = key.key_hash();
        self.adjust(memory);
        // A block for the chain is taken from the heap before the latch is, not under it.
        let mut fresh = None;
        let inserted = loop {
            let plan = self.plan(memory, hash, |memory, bucket, still| {
                let scan = self.scan(memory, key, (hash, bucket), still)?;
                let possible = scan.found.is_some() || scan.free.is_some() || fresh.is_some();
                Ok(possible.then_some(scan))
            });
            match plan {
                Ok(Some((scan, _held))) => break self.insert_at(memory, &scan, key, hash, value, &mut fresh),
                Ok(None) => match self.heap.allocate(memory, Self::BLOCK_BYTES) {
                    Ok(block) => fresh = Some(block),
                    Err(error) => break Err(error),
                },
                Err(error) => break Err(error),
            }
        };
        if let Some(unused) = fresh {
            self.free_block(memory, unused);
        }
        if self.grows() && matches!(inserted, Ok(None)) {
            memory.add(&self.growth.len, 1);
        }
        inserted
    }

    /// The writes of `insert`, under the latch. Takes the fresh block if it is needed.
    fn insert_at<M: Memory>(
        &self,
        memory: &mut M,
        scan: &Scan,
        key: &K,
        hash: u64,
        value: V,
        fresh: &mut Option<Address>,
    ) -> Result<Option<V>, AccessError> {
        if let Some(entry) = scan.found {
            let view = memory.view_mut(entry.block, Self::BLOCK_BYTES)?;
            let at = Self::entry(entry.slot) + Self::VALUE_AT;
            let old = view.load::<V>(at);
            view.store(at, value);
            return Ok(Some(old));
        }
        if let Some(entry) = scan.free {
            let view = memory.view_mut(entry.block, Self::BLOCK_BYTES)?;
            view.store(Self::entry(entry.slot), *key);
            view.store(Self::entry(entry.slot) + Self::VALUE_AT, value);
            Self::change_tags(&view, |tags| tags | Self::tag(hash) << (8 * entry.slot));
            return Ok(None);
        }
        let block = fresh.expect("a plan without a place has a fresh block");
        let mut set = WriteSet::new();
        set.write_bytes(block, [Self::tag(hash), Address::NULL.bits()].as_bytes());
        set.write_bytes(block.add(Self::entry(0) as u64), key.as_bytes());
        set.write_bytes(block.add((Self::entry(0) + Self::VALUE_AT) as u64), value.as_bytes());
        set.store(Ptr::new(scan.before.add(NEXT as u64)), block)?;
        set.commit(memory)?;
        *fresh = None;
        Ok(None)
    }

    #[inline(always)]
    fn change_tags(view: &ViewMut<'_>, change: impl FnOnce(u64) -> u64) {
        view.store(TAGS, change(view.load::<u64>(TAGS)));
    }

    /// Removes `key`, and returns the value it had.
    ///
    /// # Errors
    /// What the memory says; nothing was changed then.
    pub fn remove<M: Memory>(&self, memory: &mut M, key: &K) -> Result<Option<V>, AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let hash = key.key_hash();
        let plan = self.plan(memory, hash, |memory, bucket, still| {
            let scan = self.scan(memory, key, (hash, bucket), still)?;
            let Some(entry) = scan.found else { return Ok(None) };
            let at = entry.block.add((Self::entry(entry.slot) + Self::VALUE_AT) as u64);
            let value = memory.view(at, size_of::<V>())?.load::<V>(0);
            Ok(Some((scan, entry, value, bucket)))
        })?;
        let Some(((scan, entry, value, bucket), held)) = plan else { return Ok(None) };
        let rest = scan.tags & !(0xFF << (8 * entry.slot));
        if rest != 0 || entry.block == self.bucket_at(bucket) {
            let view = memory.view_mut(entry.block, Self::BLOCK_BYTES)?;
            Self::change_tags(&view, |_| rest);
            drop(held);
        } else {
            // The block's last entry: unlink it, which is one store.
            memory.store(Ptr::new(scan.before.add(NEXT as u64)), scan.next)?;
            drop(held);
            self.free_block(memory, entry.block);
        }
        if self.grows() {
            memory.add(&self.growth.len, -1);
            self.adjust(memory);
        }
        Ok(Some(value))
    }

    fn free_block<M: Memory>(&self, memory: &mut M, block: Address) {
        let freed = self.heap.free(memory, block, Self::BLOCK_BYTES);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    /// Shows the blocks of a bucket's chain and their tags, while `still`.
    fn walk<M: Memory>(
        &self,
        memory: &mut M,
        bucket: u64,
        still: &dyn Fn() -> bool,
        mut each: impl FnMut(View<'_>, Address, u64),
    ) -> Result<(), AccessError> {
        let mut at = self.bucket_at(bucket);
        let mut blocks = 0u64;
        loop {
            let view = memory.view(at, Self::BLOCK_BYTES)?;
            let (tags, next) = (view.load::<u64>(TAGS), view.load::<Address>(NEXT));
            each(view, at, tags);
            if next.is_null() {
                return Ok(());
            }
            at = self.chained(next)?;
            blocks += 1;
            if blocks.is_multiple_of(64) && (blocks > CHAIN_LIMIT || !still()) {
                return Err(AccessError::Corrupt { what: "hash map chain", at, expected: CHAIN_LIMIT, got: blocks });
            }
        }
    }
    /// The slots of a block that hold something, by its tags.
    fn used_slots(tags: u64) -> impl Iterator<Item = usize> {
        let mut used = !zero_bytes(tags) & Self::ALL_SLOTS;
        std::iter::from_fn(move || {
            let slot = (used != 0).then(|| used.trailing_zeros() as usize / 8);
            used &= used.wrapping_sub(1);
            slot
        })
    }

    /// The entries of one bucket, in one state.
    fn bucket_entries<M: Memory>(
        &self,
        memory: &mut M,
        bucket: u64,
        into: &mut Vec<(K, V)>,
    ) -> Result<(), AccessError> {
        optimistic::read(self.latch(bucket), memory, |memory, still| {
            into.clear();
            if self.grows() && bucket >= self.count(memory)? {
                // It was merged into another one.
                return Ok(());
            }
            self.walk(memory, bucket, still, |view, _, tags| {
                for slot in Self::used_slots(tags) {
                    into.push((view.load(Self::entry(slot)), view.load(Self::entry(slot) + Self::VALUE_AT)));
                }
            })
        })
    }

    /// Calls `each` with every entry, in no order and without a latch. Each bucket is seen in one
    /// state. Others may change meanwhile.
    pub fn for_each<M: Memory>(&self, memory: &mut M, mut each: impl FnMut(&K, &V)) -> Result<(), AccessError> {
        self.memory.check(memory.id())?;
        let (mut entries, first) = (Vec::new(), self.count(memory)?);
        for bucket in 0..first {
            self.group_entries(memory, bucket, first, &mut entries)?;
            for (key, value) in &entries {
                each(key, value);
            }
        }
        Ok(())
    }

    /// How many entries: walks all buckets.
    pub fn len<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        let mut len = 0;
        self.for_each(memory, |_, _| len += 1)?;
        Ok(len)
    }

    /// Walks everything, checks the invariants, and returns the number of entries. Nothing may
    /// change the map meanwhile.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] with what was found; what the memory says.
    pub fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        self.memory.check(memory.id())?;
        let mut len = 0;
        let mut keys: Vec<K> = Vec::new();
        let count = self.count(memory)?;
        for bucket in 0..count {
            let mut at = self.bucket_at(bucket);
            keys.clear();
            for block in 0u64.. {
                let corrupt = |what, expected, got| Err(AccessError::Corrupt { what, at, expected, got });
                let view = memory.view(at, Self::BLOCK_BYTES)?;
                let tags = view.load::<u64>(TAGS);
                if tags & !(Self::ALL_SLOTS | (Self::ALL_SLOTS - (Self::ALL_SLOTS >> 7))) != 0 {
                    return corrupt("hash map tags beyond the slots", 0, tags);
                }
                if block > 0 && tags == 0 {
                    return corrupt("hash map chained block without entries", 1, 0);
                }
                for slot in 0..Self::SLOTS {
                    let tag = tags >> (8 * slot) & 0xFF;
                    if tag == 0 {
                        continue;
                    }
                    let key = view.load::<K>(Self::entry(slot));
                    let hash = key.key_hash();
                    if Self::tag(hash) != tag {
                        return corrupt("hash map tag", Self::tag(hash), tag);
                    }
                    let home = self.home(hash, count);
                    if self.is_left_over(hash, bucket, count) {
                        continue;
                    }
                    if home != bucket {
                        return corrupt("hash map entry in the wrong bucket", home, bucket);
                    }
                    if keys.contains(&key) {
                        return corrupt("hash map key that is there twice", 1, 2);
                    }
                    keys.push(key);
                    len += 1;
                }
                let next = view.load::<Address>(NEXT);
                if next.is_null() {
                    break;
                }
                if block > CHAIN_LIMIT {
                    return corrupt("hash map chain", CHAIN_LIMIT, block);
                }
                at = self.chained(next)?;
            }
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoLatch;

    #[test]
    fn zero_bytes_are_exact() {
        // The usual shorter formula reports 0x01 above a zero byte. A stale key in a free slot
        // would then be found.
        for word in [0x0000_0000_0000_0100u64, 0x8001_0080_7F00_FF01, 0, u64::MAX, 0x0100_0100_0100_0100] {
            for (byte, value) in word.to_le_bytes().into_iter().enumerate() {
                let flag = zero_bytes(word) >> (8 * byte) & 0xFF;
                assert_eq!(flag, if value == 0 { 0x80 } else { 0 }, "{word:x} byte {byte}");
            }
        }
    }
    #[test]
    fn blocks_are_of_sensible_sizes() {
        type Map<V> = HashMap<u64, V, NoLatch>;
        let sizes = [
            (Map::<u64>::SLOTS, Map::<u64>::BLOCK_BYTES),
            (Map::<[u64; 7]>::SLOTS, Map::<[u64; 7]>::BLOCK_BYTES),
            (Map::<[u64; 31]>::SLOTS, Map::<[u64; 31]>::BLOCK_BYTES),
            (Map::<[u64; 509]>::SLOTS, Map::<[u64; 509]>::BLOCK_BYTES),
            (HashMap::<u32, u32, NoLatch>::SLOTS, HashMap::<u32, u32, NoLatch>::BLOCK_BYTES),
        ];
        assert_eq!(sizes, [(7, 128), (7, 464), (4, 1040), (1, 4096), (8, 80)]);
    }
}
