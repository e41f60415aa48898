//! A trie of B+-trees in flash memory: byte-string keys of any length, u64 values, in byte order.
//!
//! After Mao, Kohler, Morris: "Cache Craftiness for Fast Multicore Key-Value Storage", EuroSys
//! 2012. Each layer is a tree over eight bytes of the key. A key's rest stays with its entry, in
//! the border node or in a record of its own. Only when two keys share the slice is a layer made
//! below. Readers validate without latches, and writers latch what they change (see the module
//! `tree`).
//!
//! Unlike there, nodes have no permutation word: a subpage is written back whole, however little
//! changed, and readers validate anyway. Border nodes (512 bytes) and inner nodes (448) have
//! different sizes, so the heap keeps them in different subpages. The inner nodes, 4% of the whole,
//! then stay in DRAM together.
//!
//! Invariants (see [`Masstree::check`]): its trees keep their own. The root of a layer never moves.
//! A change is one commit to one border node or record, or to a node and its parent, so an error
//! leaves the trie as it was. An empty layer is removed, and one with a single key stays.

mod border;
mod change;
mod check;
mod scan;

use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::heap::Heap;
use crate::tree::node::Shape;
use crate::tree::structure::Node;
use crate::tree::{Nodes, Seen, Stop, again};
use crate::{AccessError, Address, Latch, LatchTable, Memory, Ptr};
use border::{BORDER_BYTES, Border, BorderImage, Entry, LAYER, RECORD, SUFFIX, SUFFIX_BYTES, position, slice_of};
pub use check::MasstreeShape;

/// Bytes of an inner node: another size class of the heap than border nodes.
const INNER_BYTES: usize = 448;
/// Where a record has the length of its suffix, after the value.
const RECORD_LENGTH: u64 = 8;
/// Where a record's suffix starts.
const RECORD_SUFFIX: u64 = 16;

/// Where a trie is stored: what has to be stored to open it again. Never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct MasstreeRoot {
    /// The root of the first layer.
    pub root: Address,
}

/// An ordered map from byte strings to `u64`. Share it between workers in an `Arc`, because its
/// latches order them.
///
/// ```
/// use fulgurite_memory::{Address, Heap, Latch, Masstree, PlainMemory, Region, VersionLatch};
/// use fulgurite_sys::Backed;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = PlainMemory::new(Backed::BasePages)?;
/// let heap = Heap::create(&mut memory, Region::new(Address::from_linear(1 << 20), 1 << 20))?;
/// let words = Masstree::<VersionLatch>::create(&mut memory, heap.into(), 64)?;
/// words.insert(&mut memory, b"flash", 1)?;
/// assert_eq!(words.insert(&mut memory, b"flash", 2)?, Some(1));
/// assert_eq!(words.get(&mut memory, b"flash")?, Some(2));
/// assert_eq!(words.get(&mut memory, b"fla")?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Masstree<L> {
    nodes: Nodes<Border, L>,
    root: MasstreeRoot,
}

/// Where a key is, or would be put.
struct KeyPosition {
    /// How many layers are above.
    depth: usize,
    /// The root of its layer.
    root: Seen,
    border: Seen,
    /// Entries of the border node, and how many come before.
    count: usize,
    index: usize,
    /// The entry for the key's slice and rank, if there is one.
    entry: Option<Entry>,
    /// Whether the entry has its suffix in the node and it is the key's.
    same_suffix: bool,
}

impl<L: Latch> Masstree<L> {
    /// An empty trie, whose nodes share `latch_count` latches (8 bytes of DRAM each).
    ///
    /// # Errors
    /// As [`Heap::allocate`] and [`view`](crate::RawMemory::view).
    ///
    /// # Panics
    /// When `latch_count` is zero.
    pub fn create<M: Memory>(memory: &mut M, heap: Arc<Heap>, latch_count: usize) -> Result<Self, AccessError> {
        let mut trie = Self::over(heap, MasstreeRoot { root: Address::NULL }, latch_count);
        trie.root.root = trie.nodes.write_new(memory, &Node::Leaf(BorderImage::empty()))?;
        Ok(trie)
    }

    /// The trie that was stored as `root`.
    ///
    /// # Errors
    /// [`AccessError::Corrupt`] when there is none; else as [`view`](crate::RawMemory::view).
    ///
    /// # Panics
    /// When `latch_count` is zero.
    pub fn open<M: Memory>(
        memory: &mut M,
        heap: Arc<Heap>,
        root: MasstreeRoot,
        latch_count: usize,
    ) -> Result<Self, AccessError> {
        heap.memory().check(memory.id())?;
        let trie = Self::over(heap, root, latch_count);
        again(|| {
            let seen = trie.nodes.begin(memory, root.root)?;
            trie.nodes.view_root(memory, &seen)?;
            Ok(())
        })?;
        Ok(trie)
    }

    fn over(heap: Arc<Heap>, root: MasstreeRoot, latch_count: usize) -> Self {
        let inner = Shape::new(INNER_BYTES, size_of::<Address>(), 1).expect("an inner node holds more than three keys");
        let latches = LatchTable::new(latch_count);
        let nodes = Nodes {
            memory: heap.memory(),
            heap,
            latches,
            leaf: Border,
            leaf_bytes: BORDER_BYTES,
            inner,
            inner_bytes: INNER_BYTES,
        };
        Masstree { nodes, root }
    }

    /// What to store in order to open the trie again.
    pub fn root(&self) -> MasstreeRoot {
        self.root
    }
    pub(crate) fn disturb(&self, gone: bool) {
        self.nodes.latches.disturb(gone);
    }
    /// DRAM that its latches use.
    pub fn dram_bytes(&self) -> usize {
        self.nodes.latches.bytes()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`view`](crate::RawMemory::view), [`AccessError::Poisoned`], or [`AccessError::Corrupt`].
    #[inline]
    pub fn get<M: Memory>(&self, memory: &mut M, key: &[u8]) -> Result<Option<u64>, AccessError> {
        self.nodes.memory.check(memory.id())?;
        again(|| {
            let position = self.find(memory, key, usize::MAX)?;
            let value = match position.entry {
                None => None,
                Some(entry) if entry.kind < SUFFIX => Some(entry.value),
                Some(entry) if entry.kind == SUFFIX => position.same_suffix.then_some(entry.value),
                Some(entry) => {
                    let same = self.is_suffix_of_record(memory, &position, entry, &key[8 * position.depth + 8..])?;
                    if same {
                        Some(self.load(memory, &position, Ptr::new(Address::from_bits(entry.value)))?)
                    } else {
                        None
                    }
                }
            };
            self.nodes.validate(&position.border)?;
            Ok(value)
        })
    }

    /// Walks down to the border node of `key`, through at most `layers` layers. Its entry is never
    /// one for a layer, unless those were too few. The caller validates it, as seen at `border`.
    #[inline(always)]
    fn find<M: Memory>(&self, memory: &mut M, key: &[u8], layers: usize) -> Result<KeyPosition, Stop> {
        let mut root = self.nodes.begin(memory, self.root.root)?;
        let mut depth = 0;
        loop {
            let rest = &key[8 * depth..];
            let (slice, rank) = slice_of(rest);
            let border = self.nodes.find_leaf(memory, root, slice)?;
            let (view, head) = self.nodes.view_leaf(memory, &border)?;
            let (count, index) = (head.count, position(&view, head.count, slice, rank));
            let entry = (index < count).then(|| Entry::read(&view, index));
            let entry = entry.filter(|e| e.slice == slice && e.rank() == rank);
            match entry {
                Some(entry) if entry.kind == LAYER && depth < layers => {
                    let below = self.nodes.begin(memory, Address::from_bits(entry.value))?;
                    self.nodes.validate(&border)?;
                    (root, depth) = (below, depth + 1);
                }
                Some(entry) if entry.kind > LAYER => {
                    let (expected, got) = (u64::from(LAYER), u64::from(entry.kind));
                    let error = AccessError::Corrupt { what: "border node (kind)", at: border.at, expected, got };
                    return Err(self.nodes.blame(&border, error));
                }
                _ => {
                    let same_suffix = entry.is_some_and(|entry| {
                        entry.kind == SUFFIX && entry.suffix(&view, &mut [0; SUFFIX_BYTES]) == &rest[8..]
                    });
                    return Ok(KeyPosition { depth, root, border, count, index, entry, same_suffix });
                }
            }
        }
    }

    /// Loads from the record of an entry at `position`.
    fn load<M: Memory>(&self, memory: &mut M, position: &KeyPosition, at: Ptr<u64>) -> Result<u64, Stop> {
        memory.load(at).map_err(|error| self.nodes.blame(&position.border, error))
    }
    /// Whether the record of an entry has this suffix.
    fn is_suffix_of_record<M: Memory>(
        &self,
        memory: &mut M,
        position: &KeyPosition,
        entry: Entry,
        suffix: &[u8],
    ) -> Result<bool, Stop> {
        let record = Address::from_bits(entry.value);
        if self.load(memory, position, Ptr::new(record.add(RECORD_LENGTH)))? != suffix.len() as u64 {
            return Ok(false);
        }
        let mut buffer = [0; 256];
        for (i, part) in suffix.chunks(buffer.len()).enumerate() {
            let got = &mut buffer[..part.len()];
            let at = record.add(RECORD_SUFFIX + 256 * i as u64);
            memory.read_bytes(at, got).map_err(|error| self.nodes.blame(&position.border, error))?;
            if got != part {
                return Ok(false);
            }
        }
        Ok(true)
    }
    /// Whether the entry found is the key's own, and not of another one with the same slice.
    fn is_key<M: Memory>(
        &self,
        memory: &mut M,
        key: &[u8],
        position: &KeyPosition,
        entry: Entry,
    ) -> Result<bool, Stop> {
        match entry.kind {
            SUFFIX => Ok(position.same_suffix),
            RECORD => self.is_suffix_of_record(memory, position, entry, &key[8 * position.depth + 8..]),
            kind => Ok(kind < SUFFIX),
        }
    }
}
