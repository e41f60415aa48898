//! Dense tables: rows of one size, numbered from zero, none of which straddles a subpage.
//!
//! A subpage holds as many whole rows as fit. What is left at its end is not used. The address of a
//! row is arithmetic, so a table needs no index and no memory of its own.

use std::marker::PhantomData;

use fulgurite_memory::{AccessError, Address, Memory, Pinned, Plain, Ptr, Region, SUBPAGE_BYTES};

/// Where the rows of one table are stored.
#[derive(Debug)]
pub(crate) struct Rows<T> {
    base: Address,
    count: u64,
    row: PhantomData<fn() -> T>,
}

impl<T> Clone for Rows<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Rows<T> {}

impl<T> Rows<T> {
    const PER_SUBPAGE: u64 = {
        assert!(size_of::<T>() <= SUBPAGE_BYTES && size_of::<T>() > 0, "a row is no larger than a subpage");
        (SUBPAGE_BYTES / size_of::<T>()) as u64
    };

    /// How many bytes `count` rows take, whole subpages.
    pub const fn bytes(count: u64) -> u64 {
        count.div_ceil(Self::PER_SUBPAGE) * SUBPAGE_BYTES as u64
    }
    /// Puts `count` rows at the start of `rest`, and takes them from it.
    ///
    /// # Panics
    /// When `rest` is too small.
    pub fn take(rest: &mut Region, count: u64) -> Rows<T> {
        let (mine, after) = rest.split(Self::bytes(count));
        *rest = after;
        Rows { base: mine.base, count, row: PhantomData }
    }
    pub fn count(&self) -> u64 {
        self.count
    }
    /// The address of row `index`. An index from flash is passed to [`Rows::checked`] instead.
    #[inline(always)]
    pub fn at(&self, index: u64) -> Ptr<T> {
        debug_assert!(index < self.count, "row {index} of {}", self.count);
        let (subpage, slot) = (index / Self::PER_SUBPAGE, index % Self::PER_SUBPAGE);
        Ptr::new(self.base.add(subpage * SUBPAGE_BYTES as u64 + slot * size_of::<T>() as u64))
    }
    /// The address of row `index`, if there is one.
    #[inline(always)]
    pub fn checked(&self, index: u64) -> Result<Ptr<T>, AccessError> {
        if index < self.count {
            Ok(self.at(index))
        } else {
            Err(AccessError::Corrupt { what: "row number", at: self.base, expected: self.count, got: index })
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_do_not_straddle_and_do_not_overlap() {
        let mut rest = Region::new(Address::from_linear(8192), 1 << 20);
        let rows = Rows::<[u64; 85]>::take(&mut rest, 100);
        let odd = Rows::<[u64; 3]>::take(&mut rest, 171);
        assert_eq!((rows.count(), Rows::<[u64; 85]>::bytes(100)), (100, 17 * 4096));
        assert_eq!(rows.at(6).address().linear(), 8192 + 4096);
        assert_eq!(odd.at(0).address().linear(), 8192 + 17 * 4096);
        assert_eq!(rest.base.linear(), 8192 + 19 * 4096);
        assert!(rows.checked(99).is_ok() && matches!(rows.checked(100), Err(AccessError::Corrupt { .. })));
        for i in 0..100 {
            assert!(rows.at(i).address().subpage_offset() + 680 <= 4096);
        }
    }
}
