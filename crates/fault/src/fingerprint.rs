//! Fingerprints: whether a page has changed, decided by 16 bytes.
//!
//! The function is NH (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC", CRYPTO 1999, section
//! 4) over words of 64 bits. For any two pages that were chosen without knowledge of the key, the
//! probability of equal fingerprints is at most 2^-64. The key is random, and is made once a
//! process.
//!
//! A checksum without a key would not do: a program that stores what others send it could be sent a
//! change that leaves the checksum as it is, and that change would be lost.

use std::io;
use std::sync::atomic::Ordering;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::{Arena, random_bytes};

const WORDS: usize = SUBPAGE_BYTES / 8;

/// What a page held.
pub type Fingerprint = u128;

/// The key.
#[derive(Debug)]
pub struct Fingerprints {
    key: Box<[u64]>,
    /// Of a page of zeros.
    zeros: Fingerprint,
}

impl Fingerprints {
    /// A new key.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn new() -> io::Result<Fingerprints> {
        let bytes: Box<[u8; SUBPAGE_BYTES]> = Box::new(random_bytes()?);
        let key = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        let mut made = Fingerprints { key: key.collect(), zeros: 0 };
        made.zeros = made.of_words((0..WORDS).map(|_| 0));
        Ok(made)
    }

    /// The fingerprint of `words` words, at most a page of them, at an offset of an arena.
    #[must_use]
    pub fn of_part(&self, arena: &Arena, offset: usize, words: usize) -> Fingerprint {
        self.of_words(arena.words(offset, words).iter().map(|word| word.load(Ordering::Relaxed)))
    }
    /// Of the page at an offset of an arena.
    #[must_use]
    pub fn of(&self, arena: &Arena, offset: usize) -> Fingerprint {
        self.of_words(arena.words(offset, WORDS).iter().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Of a page of zeros.
    #[must_use]
    pub fn of_zeros(&self) -> Fingerprint {
        self.zeros
    }

    #[inline(always)]
    fn of_words(&self, mut words: impl Iterator<Item = u64>) -> Fingerprint {
        let mut sum = 0u128;
        for key in self.key.chunks_exact(2) {
            // A part of an odd number of words goes on with zeros.
            let Some(one) = words.next() else { break };
            let other = words.next().unwrap_or(0);
            let product = u128::from(one.wrapping_add(key[0])) * u128::from(other.wrapping_add(key[1]));
            sum = sum.wrapping_add(product);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_sys::Backed;

    use super::*;

    #[test]
    fn every_changed_bit_shows_and_no_key_is_like_another() {
        let arena = Arena::anonymous(2 * SUBPAGE_BYTES, Backed::BasePages).unwrap();
        let fingerprints = Fingerprints::new().unwrap();
        assert_eq!(fingerprints.of(&arena, SUBPAGE_BYTES), fingerprints.of_zeros());
        for bit in 0..SUBPAGE_BYTES * 8 {
            arena.write(SUBPAGE_BYTES + bit / 8, &[1 << (bit % 8)]);
            assert_ne!(fingerprints.of(&arena, SUBPAGE_BYTES), fingerprints.of_zeros(), "bit {bit}");
            arena.write(SUBPAGE_BYTES + bit / 8, &[0]);
        }
        assert_eq!(fingerprints.of(&arena, SUBPAGE_BYTES), fingerprints.of_zeros());
        // Two words that change places.
        arena.write(0, &[1]);
        let one = fingerprints.of(&arena, 0);
        arena.write(0, &[0]);
        arena.write(8, &[1]);
        assert_ne!(fingerprints.of(&arena, 0), one);
        assert_ne!(Fingerprints::new().unwrap().of_zeros(), fingerprints.of_zeros());
    }
}
