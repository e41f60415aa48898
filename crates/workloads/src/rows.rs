//! Rows of tables: arrays, one after the other in a region, and rows in subpages that are pinned.

use fulgurite_memory::{AccessError, Array, Memory, Pinned, Plain, Ptr, Region};

use crate::mix;

/// What workloads do with an array of rows.
pub(crate) trait Rows<T>: Sized {
    /// Puts `count` rows at the start of `rest`, and takes them from it.
    ///
    /// # Panics
    /// When `rest` is too small.
    fn take(rest: &mut Region, count: u64) -> Self;
    /// Where row `index` is. An index from flash is passed to [`Rows::checked`] instead.
    ///
    /// # Panics
    /// When there is no such row.
    fn at(&self, index: u64) -> Ptr<T>;
    /// Where row `index` is, if there is one.
    fn checked(&self, index: u64) -> Result<Ptr<T>, AccessError>;
}

impl<T: Plain> Rows<T> for Array<T> {
    fn take(rest: &mut Region, count: u64) -> Self {
        let (own, after) = rest.split(Self::bytes_needed(count));
        *rest = after;
        Array::open(own, count).expect("a region of its size")
    }
    #[inline(always)]
    fn at(&self, index: u64) -> Ptr<T> {
        self.ptr(index).unwrap_or_else(|| panic!("row {index} of {}", self.len()))
    }
    #[inline(always)]
    fn checked(&self, index: u64) -> Result<Ptr<T>, AccessError> {
        self.ptr(index).ok_or_else(|| {
            let at = self.root().region.base;
            AccessError::Corrupt { what: "row number", at, expected: self.len(), got: index }
        })
    }
}

/// A row of words: a sum of what requests add to it, 0 at first, and a payload that follows from
/// its key.
#[inline]
pub(crate) fn row_of<const WORDS: usize>(key: u64) -> [u64; WORDS] {
    std::array::from_fn(|word| if word == 0 { 0 } else { mix(key ^ (word as u64) << 56) })
}
/// Whether a row has the payload of this key.
pub(crate) fn is_of<const WORDS: usize>(row: &[u64; WORDS], key: u64) -> bool {
    row[1..] == row_of::<WORDS>(key)[1..]
}
/// Reads all of the payload.
#[inline(always)]
pub(crate) fn payload<const WORDS: usize>(row: &[u64; WORDS]) -> u64 {
    row[1..].iter().fold(0, |sum, word| sum ^ word)
}
/// Adds to the sum, and returns a word of the payload.
#[inline(always)]
pub(crate) fn increase<const WORDS: usize>(row: &mut [u64; WORDS], weight: u64) -> u64 {
    row[0] = row[0].wrapping_add(weight);
    row[1]
}
/// A number of the row's sum and its key.
pub(crate) fn hash_of<const WORDS: usize>(row: &[u64; WORDS], key: u64) -> u64 {
    mix(mix(key).wrapping_add(row[0]))
}

/// Pins the subpage that holds a row.
#[inline(always)]
pub(crate) fn pin<M: Memory, T>(memory: &mut M, row: Ptr<T>) -> Result<M::Pin, AccessError> {
    memory.pin(row.address())
}
/// Copies a row, or a part of it, out of a subpage that is pinned.
#[inline(always)]
pub(crate) fn load<P: Pinned, T: Plain>(pin: &P, at: Ptr<T>) -> T {
    debug_assert_eq!(pin.address().subpage(), at.address().subpage());
    pin.view(at.address().subpage_offset(), size_of::<T>()).load(0)
}
/// Copies a row, or a part of it, into a subpage that is pinned.
#[inline(always)]
pub(crate) fn store<P: Pinned, T: Plain>(pin: &P, at: Ptr<T>, value: T) {
    debug_assert_eq!(pin.address().subpage(), at.address().subpage());
    pin.view_mut(at.address().subpage_offset(), size_of::<T>()).store(0, value);
}
/// Adds to a sum in a pinned subpage, which does not depend on the order of its parts.
#[inline(always)]
pub(crate) fn add<P: Pinned>(pinned: &P, at: Ptr<u64>, amount: u64) {
    store(pinned, at, load(pinned, at).wrapping_add(amount));
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_memory::Address;

    #[test]
    fn tables_follow_each_other() {
        let mut rest = Region::new(Address::from_linear(8192), 1 << 20);
        let rows = Array::<[u64; 85]>::take(&mut rest, 100);
        let odd = Array::<[u64; 3]>::take(&mut rest, 171);
        assert_eq!(rows.at(6).address().linear(), 8192 + 4096);
        assert_eq!(odd.at(0).address().linear(), 8192 + 17 * 4096);
        assert_eq!(rest.base.linear(), 8192 + 19 * 4096);
        assert!(rows.checked(99).is_ok() && matches!(rows.checked(100), Err(AccessError::Corrupt { .. })));
    }
}
