//! Leaves of the B+-tree: keys and plain values.

use std::fmt;
use std::marker::PhantomData;

use crate::tree::Leaf;
use crate::tree::check::{Breach, check_keys};
use crate::tree::node::{Head, Image, Shape};
use crate::tree::structure::cutting_place;
use crate::{Address, Plain, View};

/// Leaves with values `V`.
pub(super) struct PlainLeaf<V> {
    pub shape: Shape,
    pub value: PhantomData<fn() -> V>,
}

impl<V> fmt::Debug for PlainLeaf<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shape.fmt(f)
    }
}

impl<V: Plain> Leaf for PlainLeaf<V> {
    type Image = Image<V>;

    #[inline(always)]
    fn capacity(&self) -> usize {
        self.shape.capacity
    }
    fn read(&self, view: &View<'_>, head: Head) -> Image<V> {
        Image::read(&self.shape, view, head)
    }
    fn write(&self, image: &Image<V>, bytes: &mut [u8]) {
        image.write(&self.shape, bytes);
    }
    fn next(image: &Image<V>) -> Address {
        image.next
    }
    fn link(image: &mut Image<V>, next: Address) {
        image.next = next;
    }
    fn cut(mut left: Image<V>, key: u64) -> (Image<V>, u64, Image<V>) {
        let at = cutting_place(&left.keys, key);
        let (keys, values) = (left.keys.split_off(at), left.values.split_off(at));
        let right = Image { level: 0, next: left.next, keys, values };
        (left, right.keys[0], right)
    }
    fn join(&self, mut left: Image<V>, right: Image<V>) -> Option<Image<V>> {
        let either_empty = left.keys.is_empty() || right.keys.is_empty();
        left.keys.extend(right.keys);
        left.values.extend(right.values);
        left.next = right.next;
        let most = if either_empty { self.shape.capacity } else { self.shape.capacity * 3 / 4 };
        (left.keys.len() <= most).then_some(left)
    }
    fn check(&self, view: &View<'_>, image: &Image<V>, bounds: (u64, u64)) -> Result<(), Breach> {
        check_keys(&image.keys, bounds)?;
        if image.samples_agree(view) { Ok(()) } else { Err(("B+-tree leaf (samples)", 1, 0)) }
    }
}
