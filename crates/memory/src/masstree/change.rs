//! Changing the trie: inserting, updating, removing.

use super::border::{CAPACITY, set_value};
use super::{
    Address, BORDER_BYTES, BorderImage, Entry, KeyPosition, LAYER, Masstree, RECORD, RECORD_SUFFIX, SUFFIX,
    SUFFIX_BYTES, slice_of,
};
use crate::latch::harmless;
use crate::tree::structure::Node;
use crate::tree::{Seen, Stop, again};
use crate::{AccessError, Latch, Memory, Ptr, WriteSet};

/// What was allocated for a change that is not made yet: address and bytes.
type Allocated = Vec<(Address, usize)>;

impl<L: Latch> Masstree<L> {
    /// Sets the value of `key` and returns the one that it had.
    ///
    /// # Errors
    /// As [`Masstree::get`], and as [`crate::Heap::allocate`]. The trie holds what it held before.
    pub fn insert<M: Memory>(&self, memory: &mut M, key: &[u8], value: u64) -> Result<Option<u64>, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        again(|| {
            let position = self.find(memory, key, usize::MAX)?;
            let Some(entry) = position.entry else {
                return self.add(memory, key, value, &position).map(|()| None);
            };
            if self.is_key(memory, key, &position, entry)? {
                self.change_value(memory, &position, entry, |_| value).map(Some)
            } else {
                self.add_layer(memory, key, value, &position, entry).map(|()| None)
            }
        })
    }

    /// Changes the value of `key` in place, and returns whether there was one. `change` is called
    /// at most once, under the latch of the border node. A panic in it changes nothing.
    ///
    /// # Errors
    /// As [`Masstree::get`]; nothing was changed.
    pub fn update<M: Memory>(
        &self,
        memory: &mut M,
        key: &[u8],
        change: impl FnOnce(&mut u64),
    ) -> Result<bool, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let mut change = Some(change);
        again(|| {
            let position = self.find(memory, key, usize::MAX)?;
            match position.entry {
                Some(entry) if self.is_key(memory, key, &position, entry)? => {
                    self.change_value(memory, &position, entry, |mut value| {
                        change.take().expect("nothing starts again after the change")(&mut value);
                        value
                    })?;
                    Ok(true)
                }
                _ => {
                    self.nodes.validate(&position.border)?;
                    Ok(false)
                }
            }
        })
    }

    /// Removes `key` and returns its value. Nearly empty border nodes are merged with a neighbour,
    /// and empty layers removed.
    ///
    /// # Errors
    /// As [`Masstree::get`]; nothing was removed.
    pub fn remove<M: Memory>(&self, memory: &mut M, key: &[u8]) -> Result<Option<u64>, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        let removed = again(|| {
            let position = self.find(memory, key, usize::MAX)?;
            let entry = match position.entry {
                Some(entry) if self.is_key(memory, key, &position, entry)? => entry,
                _ => {
                    self.nodes.validate(&position.border)?;
                    return Ok(None);
                }
            };
            let mut value = entry.value;
            if entry.kind == RECORD {
                value = self.load(memory, &position, Ptr::new(Address::from_bits(entry.value)))?;
            }
            let mut image = self.border(memory, &position.border)?;
            image.entries.remove(position.index);
            self.replace(memory, &position.border, &image)?;
            Ok(Some((value, entry, position, image.entries.len())))
        })?;
        let Some((value, entry, position, left)) = removed else { return Ok(None) };
        if entry.kind == RECORD {
            self.free_record(memory, entry.value, key.len() - 8 * position.depth - 8);
        }
        self.tidy(memory, key, position.depth, position.root.at, left);
        Ok(Some(value))
    }

    /// Merges the border node of `key` in the layer at `depth`, which has `left` entries, with a
    /// neighbour. Removes the layer if it is empty, and so on upwards. It only saves space: a
    /// failure here is the next caller's.
    fn tidy<M: Memory>(&self, memory: &mut M, key: &[u8], depth: usize, root: Address, left: usize) {
        let (mut depth, mut root, mut left) = (depth, root, left);
        while left <= CAPACITY / 4 {
            self.nodes.merge_around(memory, root, slice_of(&key[8 * depth..]).0);
            if depth == 0 {
                return;
            }
            depth -= 1;
            match again(|| self.remove_empty_layer(memory, key, depth)) {
                Ok(Some((above, entries))) => (root, left) = (above, entries),
                Ok(None) | Err(_) => return,
            }
        }
    }
    /// Removes the entry for the layer below `depth` if that is empty. Returns the root of the
    /// layer at `depth`, and how many entries are left in the border node.
    fn remove_empty_layer<M: Memory>(
        &self,
        memory: &mut M,
        key: &[u8],
        depth: usize,
    ) -> Result<Option<(Address, usize)>, Stop> {
        let position = self.find(memory, key, depth)?;
        let Some(entry) = position.entry.filter(|e| e.kind == LAYER && position.depth == depth) else {
            return Ok(None);
        };
        let below = self.nodes.begin(memory, Address::from_bits(entry.value))?;
        self.nodes.validate(&position.border)?;
        let (_, head) = self.nodes.view_root(memory, &below)?;
        if head.level > 0 || head.count > 0 {
            return Ok(None);
        }
        let mut image = self.border(memory, &position.border)?;
        image.entries.remove(position.index);
        let mut writes = WriteSet::new();
        writes.write_bytes(position.border.at, &image.to_bytes());
        self.nodes.commit(memory, writes, [&position.border, &below])?;
        self.nodes.free(memory, below.at, 0);
        Ok(Some((position.root.at, image.entries.len())))
    }

    /// Replaces the value of an entry, in the border node or its record, and returns the old one.
    fn change_value<M: Memory>(
        &self,
        memory: &mut M,
        position: &KeyPosition,
        entry: Entry,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<u64, Stop> {
        let held = self.nodes.hold(memory, [&position.border])?;
        if entry.kind == RECORD {
            let (record, bytes) = Ptr::<u64>::new(Address::from_bits(entry.value)).checked()?;
            let record = memory.view_mut(record, bytes)?;
            let old = record.load(0);
            let (new, _held) = harmless(held, || change(old));
            record.store(0, new);
            return Ok(old);
        }
        let node = memory.view_mut(position.border.at, BORDER_BYTES)?;
        let (new, _held) = harmless(held, || change(entry.value));
        set_value(&node, position.index, new);
        Ok(entry.value)
    }

    /// Puts a new entry into the border node of `position`, or splits it if it is full.
    fn add<M: Memory>(&self, memory: &mut M, key: &[u8], value: u64, position: &KeyPosition) -> Result<(), Stop> {
        let rest = &key[8 * position.depth..];
        let (slice, rank) = slice_of(rest);
        if position.count == CAPACITY {
            self.nodes.validate(&position.border)?;
            self.nodes.split_towards(memory, position.root, slice)?;
            return Err(Stop::Changed);
        }
        let mut image = self.border(memory, &position.border)?;
        let mut allocated = Allocated::new();
        if rank < SUFFIX {
            image.entries.insert(position.index, Entry::plain(slice, rank, value));
        } else if image.has_room_for(rest.len() - 8) {
            image.insert_with_suffix(position.index, slice, value, &rest[8..]);
        } else {
            let record = self.write_record(memory, value, &rest[8..], &mut allocated)?;
            image.entries.insert(position.index, Entry::plain(slice, RECORD, record.bits()));
        }
        self.replace(memory, &position.border, &image).inspect_err(|_| self.free_all(memory, &allocated))
    }

    /// Puts a layer where an entry has the key's slice but goes on differently, with both keys.
    fn add_layer<M: Memory>(
        &self,
        memory: &mut M,
        key: &[u8],
        value: u64,
        position: &KeyPosition,
        entry: Entry,
    ) -> Result<(), Stop> {
        let (old_suffix, old_value) = self.suffix_and_value(memory, position, entry)?;
        let mut image = self.border(memory, &position.border)?;
        let mut allocated = Allocated::new();
        let done = self
            .write_layer(memory, (&old_suffix, old_value), (&key[8 * position.depth + 8..], value), &mut allocated)
            .map_err(Stop::Failed)
            .and_then(|layer| {
                image.entries[position.index] = Entry::plain(entry.slice, LAYER, layer.bits());
                self.replace(memory, &position.border, &image)
            });
        if done.is_err() {
            self.free_all(memory, &allocated);
        } else if entry.kind == RECORD {
            self.free_record(memory, entry.value, old_suffix.len());
        }
        done
    }

    /// The suffix and the value of an entry at `position`.
    pub(super) fn suffix_and_value<M: Memory>(
        &self,
        memory: &mut M,
        position: &KeyPosition,
        entry: Entry,
    ) -> Result<(Vec<u8>, u64), Stop> {
        let mut suffix = Vec::new();
        let value = self.append_suffix(memory, &position.border, entry, &mut suffix)?;
        Ok((suffix, value))
    }
    /// Appends what an entry's key has after its slice to `key`, and returns the value. Validated.
    pub(super) fn append_suffix<M: Memory>(
        &self,
        memory: &mut M,
        border: &Seen,
        entry: Entry,
        key: &mut Vec<u8>,
    ) -> Result<u64, Stop> {
        if entry.kind == RECORD {
            let record = Address::from_bits(entry.value);
            let blame = |error| self.nodes.blame(border, error);
            let [value, length]: [u64; 2] = memory.load(Ptr::new(record)).map_err(blame)?;
            // Before anything is allocated for it.
            self.nodes.validate(border)?;
            let space = self.nodes.heap.bytes();
            if length > space {
                let (what, at) = ("record of a key (length)", record);
                return Err(Stop::Failed(AccessError::Corrupt { what, at, expected: space, got: length }));
            }
            let before = key.len();
            key.resize(before + length as usize, 0);
            let read = memory.read_bytes(record.add(RECORD_SUFFIX), &mut key[before..]);
            let read = read.map_err(blame).and_then(|()| self.nodes.validate(border));
            return read.map(|()| value).inspect_err(|_| key.truncate(before));
        }
        let (view, _) = self.nodes.view_leaf(memory, border)?;
        let mut buffer = [0; SUFFIX_BYTES];
        let suffix = entry.suffix(&view, &mut buffer);
        self.nodes.validate(border)?;
        key.extend_from_slice(suffix);
        Ok(entry.value)
    }

    /// Writes an unreachable layer with two different keys, and layers below it while they share
    /// slices.
    fn write_layer<M: Memory>(
        &self,
        memory: &mut M,
        a: (&[u8], u64),
        b: (&[u8], u64),
        allocated: &mut Allocated,
    ) -> Result<Address, AccessError> {
        // How many slices both have in common and go on after.
        let mut shared = 0;
        let slices = |depth: usize| (slice_of(&a.0[8 * depth..]), slice_of(&b.0[8 * depth..]));
        while slices(shared).0 == slices(shared).1 {
            shared += 1;
        }
        let mut image = BorderImage::empty();
        for (key, value) in [a, b] {
            let rest = &key[8 * shared..];
            let (slice, rank) = slice_of(rest);
            let before = |e: &Entry| (e.slice, e.rank()) < (slice, rank);
            let index = image.entries.partition_point(before);
            if rank < SUFFIX {
                image.entries.insert(index, Entry::plain(slice, rank, value));
            } else if image.has_room_for(rest.len() - 8) {
                image.insert_with_suffix(index, slice, value, &rest[8..]);
            } else {
                let record = self.write_record(memory, value, &rest[8..], allocated)?;
                image.entries.insert(index, Entry::plain(slice, RECORD, record.bits()));
            }
        }
        let mut root = self.nodes.write_new(memory, &Node::Leaf(image))?;
        allocated.push((root, BORDER_BYTES));
        for depth in (0..shared).rev() {
            let mut image = BorderImage::empty();
            image.entries.push(Entry::plain(slices(depth).0.0, LAYER, root.bits()));
            root = self.nodes.write_new(memory, &Node::Leaf(image))?;
            allocated.push((root, BORDER_BYTES));
        }
        Ok(root)
    }
    fn write_record<M: Memory>(
        &self,
        memory: &mut M,
        value: u64,
        suffix: &[u8],
        allocated: &mut Allocated,
    ) -> Result<Address, AccessError> {
        let bytes = RECORD_SUFFIX as usize + suffix.len();
        let record = self.nodes.heap.allocate(memory, bytes)?;
        let written = memory
            .store(Ptr::new(record), [value, suffix.len() as u64])
            .and_then(|()| memory.write_bytes(record.add(RECORD_SUFFIX), suffix));
        written.inspect_err(|_| self.free_record(memory, record.bits(), suffix.len()))?;
        allocated.push((record, bytes));
        Ok(record)
    }
    fn free_record<M: Memory>(&self, memory: &mut M, record: u64, suffix: usize) {
        self.free_all(memory, &[(Address::from_bits(record), RECORD_SUFFIX as usize + suffix)]);
    }
    /// Frees what nobody can reach. What cannot be freed is lost, and nothing else.
    fn free_all<M: Memory>(&self, memory: &mut M, allocated: &[(Address, usize)]) {
        for &(at, bytes) in allocated {
            let _ = self.nodes.heap.free(memory, at, bytes);
        }
    }

    /// The border node taken apart, as it was seen.
    pub(super) fn border<M: Memory>(&self, memory: &mut M, border: &Seen) -> Result<BorderImage, Stop> {
        match self.nodes.node(memory, border, Some(0))? {
            Node::Leaf(image) => Ok(image),
            Node::Inner(_) => Err(Stop::Changed),
        }
    }
    /// Writes a border node whole, if it is still as it was seen.
    fn replace<M: Memory>(&self, memory: &mut M, border: &Seen, image: &BorderImage) -> Result<(), Stop> {
        let bytes = image.to_bytes();
        let _held = self.nodes.hold(memory, [border])?;
        memory.view_mut(border.at, BORDER_BYTES)?.copy_from(0, &bytes);
        Ok(())
    }
}
