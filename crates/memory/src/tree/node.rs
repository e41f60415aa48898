//! How inner nodes, and leaves of plain values, are laid out in memory, and searching them.
//!
//! ```text
//!  0        8        16                 keys                values
//! +--------+--------+------------------+-------------------+---------------------------------+
//! | head   | next   | samples          | keys              | values (leaf), children (inner) |
//! +--------+--------+------------------+-------------------+---------------------------------+
//!  head: tag 32 bits, level 8 (a leaf has 0), unused 8, count of keys 16
//! ```
//!
//! Sample `j` repeats key `16 * (j + 1)`. A search reads the samples first and then 16 keys. That
//! touches two places of two cache lines each, where halving 255 keys would touch five or six
//! lines.
//!
//! Invariants: keys ascend strictly. The samples agree with the keys. An inner node with `n` keys
//! has `n + 1` children, and child `i` holds the keys from key `i - 1` (inclusive) to key `i`
//! (exclusive). A node is inside one subpage.
//!
//! Functions here take whatever bytes they find. An accepted head keeps every offset inside the
//! node, even while another worker changes it. Validating the node's latch tells whether the answer
//! means anything.

use std::hint::select_unpredictable;

use crate::{Address, Plain, View, ViewMut};

/// Bytes before the samples.
const HEADER_BYTES: usize = 16;
/// Where the address of the next leaf is.
pub(crate) const NEXT: usize = 8;
/// Keys for each sample.
const STRIDE: usize = 16;
/// "B+TR": a node that does not start with it is none.
const TAG: u64 = 0x422B_5452_0000_0000;

/// The first word of a node, of whatever kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub level: u8,
    pub count: usize,
}

impl Head {
    #[inline(always)]
    pub fn to_bits(self) -> u64 {
        TAG | u64::from(self.level) << 24 | self.count as u64
    }
    #[inline(always)]
    pub fn from_bits(bits: u64) -> Option<Head> {
        let head = Head { level: (bits >> 24) as u8, count: bits as u16 as usize };
        (head.to_bits() == bits).then_some(head)
    }
    /// The head of the node in `view`, unless those bytes are no node.
    #[inline(always)]
    pub fn of(view: &View<'_>) -> Option<Head> {
        Head::from_bits(view.load(0))
    }
}

/// Where keys and values are in a kind of node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The most keys it holds.
    pub capacity: usize,
    keys: usize,
    values: usize,
    /// Values beyond one for each key: one in inner nodes.
    extra: usize,
}

impl Shape {
    /// As many keys as fit into `node_bytes`, or `None` if fewer than three do.
    pub fn new(node_bytes: usize, value_bytes: usize, extra: usize) -> Option<Shape> {
        let room = node_bytes.checked_sub(HEADER_BYTES + extra * value_bytes)?;
        (3..=room / (8 + value_bytes)).rev().find_map(|capacity| {
            let keys = HEADER_BYTES + 8 * ((capacity - 1) / STRIDE);
            let values = keys + 8 * capacity;
            let end = values + (capacity + extra) * value_bytes;
            (end <= node_bytes).then_some(Shape { capacity, keys, values, extra })
        })
    }

    #[inline(always)]
    pub fn key(&self, view: &View<'_>, index: usize) -> u64 {
        view.load(self.keys + 8 * index)
    }
    #[inline(always)]
    pub fn value<V: Plain>(&self, view: &View<'_>, index: usize) -> V {
        view.load(self.values + size_of::<V>() * index)
    }

    /// How many of the `count` keys are less than `key`.
    #[inline(always)]
    pub fn keys_below(&self, view: &View<'_>, count: usize, key: u64) -> usize {
        self.rank(view, count, |k| k < key)
    }
    /// How many of the `count` keys are `key` or less.
    #[inline(always)]
    pub fn keys_up_to(&self, view: &View<'_>, count: usize, key: u64) -> usize {
        self.rank(view, count, |k| k <= key)
    }
    #[inline(always)]
    fn rank(&self, view: &View<'_>, count: usize, before: impl Fn(u64) -> bool) -> usize {
        let start = STRIDE * partition(view, HEADER_BYTES, count.saturating_sub(1) / STRIDE, &before);
        start + partition(view, self.keys + 8 * start, (count - start).min(STRIDE), &before)
    }

    #[inline]
    pub fn set_value<V: Plain>(&self, view: &ViewMut<'_>, index: usize, value: V) {
        view.store(self.values + size_of::<V>() * index, value);
    }
    /// Puts a key and its value at `index` of a leaf with `count` of them, fewer than its capacity.
    pub fn insert<V: Plain>(&self, view: &ViewMut<'_>, count: usize, index: usize, key: u64, value: V) {
        assert!(index <= count && count < self.capacity, "key {index} of {count} put into {}", self.capacity);
        for i in (index..count).rev() {
            view.store(self.keys + 8 * (i + 1), self.key(view, i));
            self.set_value::<V>(view, i + 1, self.value(view, i));
        }
        view.store(self.keys + 8 * index, key);
        self.set_value(view, index, value);
        self.finish(view, Head { level: 0, count: count + 1 }, index);
    }
    /// Takes the key at `index` and its value out of a leaf that has `count` of them.
    pub fn remove<V: Plain>(&self, view: &ViewMut<'_>, count: usize, index: usize) {
        assert!(index < count && count <= self.capacity, "key {index} of {count} taken out of {}", self.capacity);
        for i in index + 1..count {
            view.store(self.keys + 8 * (i - 1), self.key(view, i));
            self.set_value::<V>(view, i - 1, self.value(view, i));
        }
        self.finish(view, Head { level: 0, count: count - 1 }, index);
    }
    /// Makes the samples agree with the keys from `changed` on, and writes the head.
    fn finish(&self, view: &ViewMut<'_>, head: Head, changed: usize) {
        for sample in changed.saturating_sub(1) / STRIDE..head.count.saturating_sub(1) / STRIDE {
            let key = self.key(view, STRIDE * (sample + 1));
            view.store(HEADER_BYTES + 8 * sample, key);
        }
        view.store(0, head.to_bits());
    }
}

/// How many of the `len` keys at `at` satisfy `before`, when those that do come first. No branches
/// on keys.
#[inline(always)]
pub(crate) fn partition(view: &View<'_>, at: usize, mut len: usize, before: impl Fn(u64) -> bool) -> usize {
    if len == 0 {
        return 0;
    }
    let mut base = 0;
    while len > 1 {
        let middle = base + len / 2;
        base = select_unpredictable(before(view.load(at + 8 * middle)), middle, base);
        len -= len / 2;
    }
    base + usize::from(before(view.load(at + 8 * base)))
}

/// The address of the leaf after this one, whatever kind of leaf it is.
#[inline(always)]
pub(crate) fn next(view: &View<'_>) -> Address {
    Address::from_bits(view.load(NEXT))
}

/// A node taken apart in DRAM, for the changes that are rare: splits, merges, loading, checking.
#[derive(Clone, Debug)]
pub(crate) struct Image<T> {
    pub level: u8,
    pub next: Address,
    pub keys: Vec<u64>,
    /// Values of a leaf, or the children of an inner node, one more than keys.
    pub values: Vec<T>,
}

impl<T: Plain> Image<T> {
    pub fn read(shape: &Shape, view: &View<'_>, head: Head) -> Self {
        Image {
            level: head.level,
            next: next(view),
            keys: (0..head.count).map(|i| shape.key(view, i)).collect(),
            values: (0..head.count + shape.extra).map(|i| shape.value(view, i)).collect(),
        }
    }
    pub fn head(&self) -> Head {
        Head { level: self.level, count: self.keys.len() }
    }
    /// Writes the node into `bytes`, which are as many as a node has.
    ///
    /// # Panics
    /// When it holds more than the shape allows, or not as many values as keys ask for.
    pub fn write(&self, shape: &Shape, bytes: &mut [u8]) {
        assert!(self.keys.len() <= shape.capacity && self.values.len() == self.keys.len() + shape.extra);
        let mut put = |at: usize, from: &[u8]| bytes[at..at + from.len()].copy_from_slice(from);
        put(0, &self.head().to_bits().to_ne_bytes());
        put(NEXT, &self.next.bits().to_ne_bytes());
        for (i, key) in self.keys.iter().enumerate() {
            put(shape.keys + 8 * i, &key.to_ne_bytes());
            if i % STRIDE == 0 && i > 0 {
                put(HEADER_BYTES + 8 * (i / STRIDE - 1), &key.to_ne_bytes());
            }
        }
        for (i, value) in self.values.iter().enumerate() {
            put(shape.values + size_of::<T>() * i, value.as_bytes());
        }
    }
    pub fn to_bytes(&self, shape: &Shape, node_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; node_bytes];
        self.write(shape, &mut bytes);
        bytes
    }
    /// Whether the samples in `view` agree with the keys.
    pub fn samples_agree(&self, view: &View<'_>) -> bool {
        let samples = self.keys.iter().skip(STRIDE).step_by(STRIDE).enumerate();
        samples.into_iter().all(|(j, &key)| view.load::<u64>(HEADER_BYTES + 8 * j) == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    #[test]
    fn shapes_fill_their_node() {
        let leaf = Shape::new(4096, 8, 0).unwrap();
        assert_eq!((leaf.capacity, leaf.keys, leaf.values), (247, 16 + 15 * 8, 136 + 247 * 8));
        assert_eq!(Shape::new(4096, 8, 1).unwrap().capacity, 247);
        assert_eq!(Shape::new(64, 8, 0).unwrap().capacity, 3);
        assert!(Shape::new(4096, 2000, 0).is_none() && Shape::new(8, 8, 1).is_none());
    }
    #[test]
    fn garbage_is_no_head() {
        for bits in [0, u64::MAX, 1 << 40, TAG | 1 << 20] {
            assert_eq!(Head::from_bits(bits), None, "{bits:x}");
        }
        let head = Head { level: 7, count: 65535 };
        assert_eq!(Head::from_bits(head.to_bits()), Some(head));
    }
    #[test]
    fn search_insert_and_remove_agree_with_a_vector() {
        let shape = Shape::new(1024, 4, 0).unwrap();
        let mut memory = [0u64; 128];
        // SAFETY: the array outlives the view and is not touched otherwise.
        let view = unsafe { ViewMut::from_raw(NonNull::from(&mut memory).cast(), 1024) };
        let (mut model, mut random) = (Vec::<(u64, u32)>::new(), fulgurite_testkit::Random(7));
        for step in 0..4000 {
            let key = random.below(200_u64);
            let (below, up_to) = (model.partition_point(|m| m.0 < key), model.partition_point(|m| m.0 <= key));
            assert_eq!(shape.keys_below(&view, model.len(), key), below);
            assert_eq!(shape.keys_up_to(&view, model.len(), key), up_to);
            if up_to > below {
                shape.remove::<u32>(&view, model.len(), below);
                model.remove(below);
            } else if model.len() < shape.capacity {
                shape.insert(&view, model.len(), below, key, step);
                model.insert(below, (key, step));
            }
            let image = Image::<u32>::read(&shape, &view, Head { level: 0, count: model.len() });
            assert!(image.samples_agree(&view));
            assert!(image.keys.iter().copied().zip(image.values.iter().copied()).eq(model.iter().copied()));
        }
    }
}
