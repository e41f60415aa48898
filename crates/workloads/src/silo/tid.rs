//! Transaction identifiers: the version of a record (Tu, Zheng, Kohler, Liskov and Madden, "Speedy
//! Transactions in Multicore In-Memory Databases", SOSP 2013, section 4.2).
//!
//! ```text
//!  63                    32 31                     0
//! +------------------------+------------------------+
//! | epoch                  | sequence               |
//! +------------------------+------------------------+
//! ```
//!
//! Silo's three status bits are not here: the lock is a latch in DRAM, and records are neither
//! absent nor kept in old versions.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Which transaction wrote a record last. Grows with each. All zero is no transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Tid(u64);

const SEQUENCE_BITS: u32 = 32;

impl Tid {
    /// Number `sequence` of an epoch.
    #[must_use]
    pub const fn new(epoch: u32, sequence: u32) -> Tid {
        Tid((epoch as u64) << SEQUENCE_BITS | sequence as u64)
    }
    /// The epoch in which the transaction committed.
    #[must_use]
    pub const fn epoch(self) -> u32 {
        (self.0 >> SEQUENCE_BITS) as u32
    }
    /// Its number in the epoch. Two transactions that share no record may have the same.
    #[must_use]
    pub const fn sequence(self) -> u32 {
        self.0 as u32
    }
    /// The least identifier that is larger than this one and belongs to `epoch` or a later one.
    #[inline]
    #[must_use]
    pub fn after(self, epoch: u32) -> Tid {
        Tid((self.0 + 1).max((epoch as u64) << SEQUENCE_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_grow() {
        assert_eq!(Tid::new(3, 7).after(3), Tid::new(3, 8));
        assert_eq!(Tid::new(3, 7).after(5), Tid::new(5, 0));
        assert_eq!(Tid::new(3, u32::MAX).after(3), Tid::new(4, 0));
        assert_eq!((Tid::new(9, 4).epoch(), Tid::new(9, 4).sequence()), (9, 4));
        assert!(Tid::default() < Tid::default().after(0));
    }
}
