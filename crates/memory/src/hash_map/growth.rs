//! Growth by linear hashing (Litwin, "Linear Hashing: A New Tool for File and Table Addressing",
//! VLDB 1980): one bucket is split at a time, by an insert that finds the map full.
//!
//! ```text
//! region: | header: buckets, entries | bucket 0 | bucket 1 | .. | buckets - 1 | room to grow |
//! ```
//!
//! Beyond its region, a map whose heap grows takes segments from that. Segment k has the buckets
//! from `most` << k to twice as many, and its address follows the counts in the header.
//!
//! With `n` buckets, 2^L <= n < 2^(L+1), a key is in the bucket that its hash names by L + 1 bits,
//! or by L if there is none yet. So bucket n - 2^L is split next, into itself and bucket n.
//!
//! A split changes what the map holds at one store. Under the latches of both buckets it copies the
//! entries that move to bucket n, which nobody reads, and then writes n + 1 to the header. What it
//! copied is left over in the old bucket, where nobody searches for it, and is cleared afterwards.
//! An access that fails before that store has changed nothing. One that fails after it leaves
//! entries behind that take slots until the bucket is split again or written anew.
//!
//! A remove that finds the map half as full merges the last bucket into the one that it was split
//! off. It does so by the same steps: left-over entries are cleared there, the last bucket's are
//! added, where nobody looks for them, and then n - 1 is written. A segment without buckets is the
//! heap's again. So a map of few entries has few buckets, and each operation does bounded work.
//!
//! A reader asks for the count within its read. The bucket that it names then stays right, or the
//! version of its latch changes.

use std::sync::atomic::Ordering;

use fulgurite_format::{Address, Plain, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;
use zerocopy::IntoBytes;

use super::{ENTRIES, HashMap, NEXT, TAGS};
use crate::hash::KeyHash;
use crate::optimistic::Planned;
use crate::{Apart, ByKind, Exclusive, Heap, Latch, Memory, Ptr, Region, optimistic};
use std::sync::Arc;

/// Set in the number of buckets of a root whose map grows.
pub(super) const GROWS: u64 = 1 << 63;
/// The number of entries has not been read from the header.
pub(super) const UNKNOWN: i64 = i64::MIN / 2;
/// Segments beyond the region: 2^36 times as many buckets.
pub(super) const SEGMENTS: usize = 36;
/// The most bytes of a segment: as long as the heap's largest objects.
const SEGMENT_MAX: u64 = 16 << 30;
/// A merged bucket has at most this number of times its slots, and as many entries more. With
/// random hashes that does not happen.
const MERGED_MOST: usize = 4;
/// Buckets that a map has at first.
const FIRST: u64 = 1;

/// A bucket is being split or merged until this is dropped.
struct Splitting<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Splitting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The bucket of `n` that is named by these bits of a hash.
#[inline(always)]
fn linear(bits: u64, n: u64) -> u64 {
    let mask = u64::MAX >> n.leading_zeros();
    let bucket = bits & mask;
    if bucket < n { bucket } else { bucket & (mask >> 1) }
}

impl<K: KeyHash + Eq, V: Plain, L: Latch> HashMap<K, V, L> {
    /// Bytes of region for a map that grows up to `capacity` entries. Only what is used is written.
    pub const fn bytes_to_grow(capacity: u64) -> u64 {
        Self::bytes_needed(capacity).saturating_add(SUBPAGE_BYTES as u64)
    }

    /// Makes an empty map that grows with its entries, a bucket at a time, up to the buckets of
    /// `capacity` entries at the front of `region`. It is as [`HashMap::create`] else.
    ///
    /// # Errors
    /// As [`HashMap::create`], of [`HashMap::bytes_to_grow`].
    pub fn create_growing<M: Memory>(
        memory: &mut M,
        region: Region,
        heap: Arc<Heap>,
        capacity: u64,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        heap.memory().check(memory.id())?;
        let requested = Self::bytes_to_grow(capacity);
        if requested > region.bytes {
            return Err(AccessError::NoSpace { requested, free: region.bytes });
        }
        let most = Self::buckets_for(capacity);
        let root = super::HashMapRoot {
            region: Region::new(region.base, requested),
            buckets: most | GROWS,
            key_bytes: size_of::<K>() as u32,
            value_bytes: size_of::<V>() as u32,
        };
        let map = Self::open(root, heap, latch_count)?;
        for bucket in 0..FIRST {
            memory.view_mut(map.bucket_at(bucket), Self::BLOCK_BYTES)?.copy_from(0, &vec![0; Self::BLOCK_BYTES]);
        }
        memory.store(map.header(), [FIRST, 0])?;
        Ok(map)
    }

    #[inline(always)]
    pub(super) fn grows(&self) -> bool {
        self.root.buckets & GROWS != 0
    }
    /// How many buckets there are, and entries at the last split.
    fn header(&self) -> Ptr<[u64; 2]> {
        Ptr::new(self.root.region.base)
    }
    /// How many buckets there are now.
    ///
    /// # Errors
    /// What the memory says; [`AccessError::Corrupt`].
    pub fn buckets<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        self.memory.check(memory.id())?;
        self.count(memory)
    }
    #[inline(always)]
    pub(super) fn count<M: Memory>(&self, memory: &mut M) -> Result<u64, AccessError> {
        if !self.grows() {
            return Ok(self.root.buckets);
        }
        match memory.load(Ptr::<u64>::new(self.root.region.base)) {
            Ok(count) if count > 0 && count <= self.most() => Ok(count),
            other => self.count_beyond(memory, other),
        }
    }
    /// Buckets that its region has room for.
    #[inline(always)]
    fn most(&self) -> u64 {
        self.root.buckets & !GROWS
    }
    /// The number of buckets where some are beyond the region. Their segments are known then.
    #[cold]
    fn count_beyond<M: Memory>(&self, memory: &mut M, count: Result<u64, AccessError>) -> Result<u64, AccessError> {
        let Ok(count) = count else { return self.no_count(count) };
        if count == 0 || (count - 1) / self.most() >= 1 << SEGMENTS {
            return self.no_count(Ok(count));
        }
        for segment in 0..=Self::segment_of(count - 1, self.most()) {
            if self.growth.segments[segment].load(Ordering::Acquire) == 0 {
                let at: Address = memory.load(self.segment(segment))?;
                if !self.heap.contains(at, self.segment_bytes(segment)) || at.subpage_offset() != 0 {
                    return self.no_count(Ok(count));
                }
                // Not over what a split has noted meanwhile.
                let known = &self.growth.segments[segment];
                let _ = known.compare_exchange(0, at.bits(), Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        Ok(count)
    }
    /// The segment of a bucket beyond the region.
    fn segment_of(bucket: u64, most: u64) -> usize {
        (bucket / most).ilog2() as usize
    }
    /// Where the header stores the address of a segment.
    fn segment(&self, segment: usize) -> Ptr<Address> {
        Ptr::new(self.root.region.base.add(16 + 8 * segment as u64))
    }
    fn segment_bytes(&self, segment: usize) -> u64 {
        let buckets = self.most().saturating_mul(1 << segment);
        buckets.div_ceil(Self::PER_SUBPAGE).saturating_mul(SUBPAGE_BYTES as u64)
    }
    /// The address of a bucket beyond the region, whose segment is known.
    #[cold]
    pub(super) fn bucket_beyond(&self, bucket: u64) -> Address {
        let segment = Self::segment_of(bucket, self.most());
        let at = Address::from_bits(self.growth.segments[segment].load(Ordering::Acquire));
        let inside = bucket - (self.most() << segment);
        let (subpage, block) = (inside / Self::PER_SUBPAGE, inside % Self::PER_SUBPAGE);
        at.add(subpage * SUBPAGE_BYTES as u64 + block * Self::BLOCK_BYTES as u64)
    }
    /// Makes sure that the next bucket has a place. False: there is none.
    fn make_place<M: Memory>(&self, memory: &mut M, bucket: u64) -> Result<bool, AccessError> {
        if bucket < self.most() {
            return Ok(true);
        }
        let segment = Self::segment_of(bucket, self.most());
        if bucket > self.most() << segment {
            return Ok(true);
        }
        let bytes = self.segment_bytes(segment);
        if !self.heap.grows() || segment >= SEGMENTS || bytes > SEGMENT_MAX {
            return Ok(false);
        }
        // Of an earlier try that failed before the bucket was there.
        let ready = self.growth.ready.load(Ordering::Relaxed);
        if ready != 0 {
            self.growth.segments[segment].store(ready, Ordering::Release);
            return Ok(true);
        }
        let at = match self.heap.allocate(memory, bytes as usize) {
            Ok(at) => at,
            // Chains get longer.
            Err(AccessError::NoSpace { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        if let Err(error) = memory.store(self.segment(segment), at) {
            let _ = self.heap.free(memory, at, bytes as usize);
            return Err(error);
        }
        // Over what a slow reader may have noted of a segment that was there before.
        self.growth.segments[segment].store(at.bits(), Ordering::Release);
        self.growth.ready.store(at.bits(), Ordering::Relaxed);
        Ok(true)
    }
    /// Why there is no number of buckets.
    #[cold]
    fn no_count(&self, wrong: Result<u64, AccessError>) -> Result<u64, AccessError> {
        // A map that was removed says so. No latch is asked, because the caller may hold it.
        if self.heap.is_gone() {
            return Err(AccessError::Poisoned);
        }
        let (at, expected, got) = (self.root.region.base, self.most(), wrong?);
        Err(AccessError::Corrupt { what: "hash map (number of buckets)", at, expected, got })
    }
    /// The bucket of a hash, of `count` buckets.
    #[inline(always)]
    pub(super) fn home(&self, hash: u64, count: u64) -> u64 {
        if self.grows() {
            // The tag has the seven low bits.
            linear(hash >> 7, count)
        } else {
            ((u128::from(hash) * u128::from(count)) >> 64) as u64
        }
    }
    /// Whether an entry with this hash, found in `bucket`, was moved from there by a split.
    pub(super) fn is_left_over(&self, hash: u64, bucket: u64, count: u64) -> bool {
        // It was there when there were no more buckets than this one.
        self.grows() && self.home(hash, count) != bucket && linear(hash >> 7, bucket + 1) == bucket
    }

    /// Whether `bucket` is not, or no longer, the bucket of a hash.
    #[inline(always)]
    fn has_moved<M: Memory>(&self, memory: &mut M, hash: u64, bucket: u64) -> Result<bool, AccessError> {
        Ok(self.grows() && self.home(hash, self.count(memory)?) != bucket)
    }
    /// What `read` saw of the bucket of a hash.
    #[inline(always)]
    pub(super) fn read_bucket<M: Memory, R>(
        &self,
        memory: &mut M,
        hash: u64,
        mut read: impl FnMut(&mut M, u64, &dyn Fn() -> bool) -> Result<R, AccessError>,
    ) -> Result<R, AccessError> {
        self.memory.check(memory.id())?;
        loop {
            let bucket = self.home(hash, self.count(memory)?);
            let seen = optimistic::read(self.latch(bucket), memory, |memory, still| {
                if self.has_moved(memory, hash, bucket)? {
                    return Ok(None);
                }
                read(memory, bucket, still).map(Some)
            })?;
            if let Some(seen) = seen {
                return Ok(seen);
            }
        }
    }

    /// What `read` plans to change in the bucket of a hash, and the bucket's latch. With it held,
    /// the bucket is neither split nor merged.
    #[inline(always)]
    pub(super) fn plan<M: Memory, T>(
        &self,
        memory: &mut M,
        hash: u64,
        mut read: impl FnMut(&mut M, u64, &dyn Fn() -> bool) -> Result<Option<T>, AccessError>,
    ) -> Result<Planned<'_, T, L, M>, AccessError> {
        loop {
            let bucket = self.home(hash, self.count(memory)?);
            let mut moved = false;
            let planned = optimistic::plan(self.latch(bucket), memory, |memory, still| {
                moved = self.has_moved(memory, hash, bucket)?;
                if moved { Ok(None) } else { read(memory, bucket, still) }
            })?;
            if !moved {
                return Ok(planned);
            }
        }
    }

    /// The entries that lay in `bucket` when there were `first`: in it, in what was split off it
    /// since, or in what it was merged into, each once.
    pub(super) fn group_entries<M: Memory>(
        &self,
        memory: &mut M,
        bucket: u64,
        first: u64,
        into: &mut Vec<(K, V)>,
    ) -> Result<(), AccessError> {
        if !self.grows() {
            return self.bucket_entries(memory, bucket, into);
        }
        let mut some = Vec::new();
        loop {
            into.clear();
            let merges = self.growth.merges.load(Ordering::Acquire);
            let count = self.count(memory)?;
            // Buckets split off it differ in the bits above those that name it.
            let half = 1 << first.ilog2();
            let step = if bucket < half && bucket + half >= first { half } else { 2 * half };
            let into_one = linear(bucket, count);
            let parts = if bucket < count { bucket..count } else { into_one..into_one + 1 };
            for part in parts.step_by(step as usize) {
                self.bucket_entries(memory, part, &mut some)?;
                let its = |hash: u64| self.home(hash, count) == part && self.home(hash, first) == bucket;
                into.extend(some.drain(..).filter(|(key, _)| its(key.key_hash())));
            }
            // Nothing of the group has moved meanwhile.
            let now = self.count(memory)?;
            let stays = match bucket < count {
                true => (count..now).all(|part| linear(part, first) != bucket),
                false => linear(bucket, now) == into_one,
            };
            if stays && now >= count && self.growth.merges.load(Ordering::Acquire) == merges {
                return Ok(());
            }
        }
    }

    /// Splits a bucket if the map is full for its buckets, and merges one if it is sparse. What
    /// fails here is the next caller's.
    #[inline]
    pub(super) fn adjust<M: Memory>(&self, memory: &mut M) {
        if self.grows() {
            let _ = memory.apart(self);
        }
    }

    /// The latches of two buckets, in their order.
    #[allow(clippy::type_complexity, reason = "the pair is dropped, and nothing else")]
    fn lock_both<M: Memory>(
        &self,
        memory: &mut M,
        (one, other): (u64, u64),
    ) -> Result<(Exclusive<'_, L, M>, Option<Exclusive<'_, L, M>>), AccessError> {
        let (a, b) = (self.latches.index(one), self.latches.index(other));
        let held = self.latches.get(a.min(b)).lock(memory)?;
        Ok((held, if a == b { None } else { Some(self.latches.get(a.max(b)).lock(memory)?) }))
    }
    /// Moves part of bucket `count - 2^L` to bucket `count`. See the top of the file.
    fn split<M: Memory>(&self, memory: &mut M, count: u64) -> Result<(), AccessError> {
        let (old, new) = (linear(count, count), count);
        // Brings the chain in before a reader has to wait for it.
        self.walk(memory, old, &|| true, |_, _, _| ())?;
        let held = self.lock_both(memory, (old, new))?;
        let moves = |hash: u64| self.home(hash, count) == old && self.home(hash, count + 1) == new;
        let (mut entries, mut stay) = (Vec::new(), Vec::new());
        self.walk(memory, old, &|| true, |view, at, tags| {
            let mut rest = tags;
            for slot in Self::used_slots(tags) {
                let key: K = view.load(Self::entry(slot));
                let hash = key.key_hash();
                if moves(hash) {
                    entries.push((hash, key, view.load::<V>(Self::entry(slot) + Self::VALUE_AT)));
                }
                if self.home(hash, count + 1) != old {
                    rest &= !(0xFF << (8 * slot));
                }
            }
            stay.push((at, tags, rest));
        })?;
        let mut blocks = vec![self.bucket_at(new)];
        let written = self.write_chain(memory, &entries, &mut blocks).and_then(|()| {
            let len = self.growth.len.load(Ordering::Relaxed).max(0) as u64;
            memory.store(self.header(), [count + 1, len])
        });
        if let Err(error) = written {
            drop(held);
            blocks.into_iter().skip(1).for_each(|block| self.free_block(memory, block));
            return Err(error);
        }
        // From here on the map is right, whatever fails.
        self.growth.ready.store(0, Ordering::Relaxed);
        let emptied = self.clear_moved(memory, &stay);
        drop(held);
        emptied.into_iter().for_each(|block| self.free_block(memory, block));
        Ok(())
    }

    /// Moves what the last bucket has to the one that it was split off. See the top of the file.
    fn merge<M: Memory>(&self, memory: &mut M, count: u64) -> Result<(), AccessError> {
        let last = count - 1;
        let old = linear(last, last);
        // Made for the bucket that would have come next.
        let ready = self.growth.ready.swap(0, Ordering::Relaxed);
        if ready != 0 {
            self.free_segment(memory, Self::segment_of(count, self.most()));
        }
        for bucket in [old, last] {
            self.walk(memory, bucket, &|| true, |_, _, _| ())?;
        }
        let held = self.lock_both(memory, (old, last))?;
        // What a split or a merge that failed has left over would count then.
        let chain = self.own_slots(memory, old, count)?;
        let emptied = self.clear_moved(memory, &chain);
        let chain = self.own_slots(memory, old, count);
        let is_clear = chain.as_ref().is_ok_and(|chain| chain.iter().all(|(_, tags, own)| tags == own));
        let merged = if is_clear { self.move_into(memory, &chain?, last, count) } else { chain.map(|_| None) };
        drop(held);
        emptied.into_iter().for_each(|block| self.free_block(memory, block));
        let Some(blocks) = merged? else { return Ok(()) };
        blocks.into_iter().for_each(|block| self.free_block(memory, block));
        if last >= self.most() {
            let segment = Self::segment_of(last, self.most());
            if last == self.most() << segment {
                self.free_segment(memory, segment);
            }
        }
        Ok(())
    }
    /// Gives a segment without buckets back to the heap.
    fn free_segment<M: Memory>(&self, memory: &mut M, segment: usize) {
        let at = Address::from_bits(self.growth.segments[segment].swap(0, Ordering::AcqRel));
        let freed = self.heap.free(memory, at, self.segment_bytes(segment) as usize);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
    /// The blocks of a bucket's chain: their tags, and the tags of entries that are its own.
    fn own_slots<M: Memory>(
        &self,
        memory: &mut M,
        bucket: u64,
        count: u64,
    ) -> Result<Vec<(Address, u64, u64)>, AccessError> {
        let mut blocks = Vec::new();
        self.walk(memory, bucket, &|| true, |view, at, tags| {
            let mut own = tags;
            for slot in Self::used_slots(tags) {
                if self.home(view.load::<K>(Self::entry(slot)).key_hash(), count) != bucket {
                    own &= !(0xFF << (8 * slot));
                }
            }
            blocks.push((at, tags, own));
        })?;
        Ok(blocks)
    }
    /// Adds the entries of the last bucket to a chain that has none of them, and gives that bucket
    /// up. Returns the blocks of its chain. None where there are too many entries: the map has more
    /// than was counted.
    fn move_into<M: Memory>(
        &self,
        memory: &mut M,
        chain: &[(Address, u64, u64)],
        last: u64,
        count: u64,
    ) -> Result<Option<Vec<Address>>, AccessError> {
        let (mut entries, mut blocks) = (Vec::new(), Vec::new());
        self.walk(memory, last, &|| true, |view, at, tags| {
            blocks.push(at);
            for slot in Self::used_slots(tags) {
                let key: K = view.load(Self::entry(slot));
                let hash = key.key_hash();
                if self.home(hash, count) == last {
                    entries.push((hash, key, view.load::<V>(Self::entry(slot) + Self::VALUE_AT)));
                }
            }
        })?;
        let there: usize = chain.iter().map(|(_, tags, _)| Self::used_slots(*tags).count()).sum();
        if there + entries.len() > MERGED_MOST * (Self::SLOTS + 1) {
            self.growth.len.fetch_max((count * Self::SLOTS as u64 / 2) as i64, Ordering::Relaxed);
            return Ok(None);
        }
        let mut left = entries.as_slice();
        for (at, tags, _) in chain {
            let free = !tags & Self::ALL_SLOTS;
            if free == 0 || left.is_empty() {
                continue;
            }
            let view = memory.view_mut(*at, Self::BLOCK_BYTES)?;
            let mut all = *tags;
            for slot in (0..Self::SLOTS).filter(|slot| free & (0x80 << (8 * slot)) != 0) {
                let Some(((hash, key, value), others)) = left.split_first() else { break };
                view.store(Self::entry(slot), *key);
                view.store(Self::entry(slot) + Self::VALUE_AT, *value);
                all |= Self::tag(*hash) << (8 * slot);
                left = others;
            }
            view.store(TAGS, all);
        }
        let mut more = Vec::new();
        if !left.is_empty() {
            more.push(self.heap.allocate(memory, Self::BLOCK_BYTES)?);
            let end = chain.last().expect("a bucket has a block").0.add(NEXT as u64);
            let written = self.write_chain(memory, left, &mut more);
            if let Err(error) = written.and_then(|()| memory.store(Ptr::new(end), more[0])) {
                more.into_iter().for_each(|block| self.free_block(memory, block));
                return Err(error);
            }
        }
        let len = self.growth.len.load(Ordering::Relaxed).max(0) as u64;
        memory.store(self.header(), [last, len])?;
        // Release, under the latches: a reader of either bucket from now on sees it.
        self.growth.merges.fetch_add(1, Ordering::Release);
        Ok(Some(blocks.split_off(1)))
    }

    /// Writes entries to a new chain, whose first block is the only one in `blocks`. Those that are
    /// allocated are added there.
    fn write_chain<M: Memory>(
        &self,
        memory: &mut M,
        entries: &[(u64, K, V)],
        blocks: &mut Vec<Address>,
    ) -> Result<(), AccessError> {
        for _ in 1..entries.len().div_ceil(Self::SLOTS) {
            blocks.push(self.heap.allocate(memory, Self::BLOCK_BYTES)?);
        }
        let mut parts = entries.chunks(Self::SLOTS);
        for (i, block) in blocks.iter().enumerate() {
            let (mut bytes, mut tags) = (vec![0; Self::BLOCK_BYTES], 0u64);
            for (slot, (hash, key, value)) in parts.next().unwrap_or_default().iter().enumerate() {
                let at = Self::entry(slot);
                bytes[at..at + size_of::<K>()].copy_from_slice(key.as_bytes());
                bytes[at + Self::VALUE_AT..][..size_of::<V>()].copy_from_slice(value.as_bytes());
                tags |= Self::tag(*hash) << (8 * slot);
            }
            let next = blocks.get(i + 1).copied().unwrap_or(Address::NULL);
            bytes[TAGS..TAGS + 8].copy_from_slice(tags.as_bytes());
            bytes[NEXT..ENTRIES].copy_from_slice(next.as_bytes());
            memory.view_mut(*block, Self::BLOCK_BYTES)?.copy_from(0, &bytes);
        }
        Ok(())
    }

    /// Clears what was moved from the blocks of a chain: their addresses, their tags, and the tags
    /// that stay. Returns the blocks that are not in the chain any more.
    fn clear_moved<M: Memory>(&self, memory: &mut M, chain: &[(Address, u64, u64)]) -> Vec<Address> {
        let mut emptied = Vec::new();
        let mut before = chain[0].0;
        for (i, &(at, tags, rest)) in chain.iter().enumerate() {
            if i > 0 && rest == 0 {
                let next = chain.get(i + 1).map_or(Address::NULL, |(next, ..)| *next);
                if memory.store(Ptr::new(before.add(NEXT as u64)), next).is_err() {
                    return emptied;
                }
                emptied.push(at);
                continue;
            }
            if rest != tags && memory.store(Ptr::new(at.add(TAGS as u64)), rest).is_err() {
                return emptied;
            }
            before = at;
        }
        emptied
    }

    /// Saves the number of entries, for a sync. The buckets follow it.
    ///
    /// # Errors
    /// What the memory says.
    pub fn save<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        self.memory.check(memory.id())?;
        let len = self.growth.len.load(Ordering::Relaxed);
        if !self.grows() || self.heap.is_gone() || len < UNKNOWN / 2 {
            return Ok(());
        }
        let saved: Ptr<u64> = Ptr::new(self.root.region.base.add(8));
        let len = len.max(0) as u64;
        if memory.load(saved)? == len { Ok(()) } else { memory.store(saved, len) }
    }
    /// After a roll back, or when it is gone.
    pub(crate) fn disturb(&self, gone: bool) {
        self.latches.disturb(gone);
        self.growth.len.store(UNKNOWN, Ordering::Relaxed);
        self.growth.segments.iter().for_each(|segment| segment.store(0, Ordering::Release));
        self.growth.ready.store(0, Ordering::Relaxed);
        self.growth.merges.fetch_add(1, Ordering::Release);
    }
}

impl<K: KeyHash + Eq, V: Plain, L: Latch> Apart for HashMap<K, V, L> {
    fn run<M: Memory>(&self, memory: &mut M) -> Result<(), AccessError> {
        let growth = &self.growth;
        let mut len = growth.len.load(Ordering::Relaxed);
        if len < UNKNOWN / 2 {
            let [_, saved] = memory.load(self.header())?;
            // What was counted since it became unknown is kept.
            let _ =
                growth.len.compare_exchange(len, len - UNKNOWN + saved as i64, Ordering::Relaxed, Ordering::Relaxed);
            len = growth.len.load(Ordering::Relaxed);
        }
        let count = self.count(memory)?;
        let is_full = len.saturating_mul(4) >= (count * Self::SLOTS as u64 * 3) as i64;
        let is_sparse = |count| count > FIRST && len.saturating_mul(8) < (count * Self::SLOTS as u64 * 3) as i64;
        let has_place = count != self.most() || self.heap.grows();
        let is_due = (is_full && has_place) || is_sparse(count);
        if !is_due || growth.splitting.swap(true, Ordering::Acquire) {
            return Ok(());
        }
        let _splitting = Splitting(&growth.splitting);
        let _section = memory.write_section()?;
        let mut count = self.count(memory)?;
        if is_full {
            return if self.make_place(memory, count)? { self.split(memory, count) } else { Ok(()) };
        }
        // Enough that removes of all entries leave one bucket.
        for _ in 0..8usize.div_ceil(Self::SLOTS * 3) {
            if !is_sparse(count) {
                break;
            }
            self.merge(memory, count)?;
            count = self.count(memory)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bucket_changes_with_each_that_comes() {
        for n in 1..200u64 {
            let old = linear(n, n);
            for bits in 0..2000u64 {
                let (before, after) = (linear(bits, n), linear(bits, n + 1));
                assert!(before < n && (after == before || (before == old && after == n)), "{bits} of {n}");
            }
        }
    }
}
