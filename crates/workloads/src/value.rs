//! Values of any length that say what they are: key, version, check, and bytes that follow from
//! both.
//!
//! ```text
//! | key 8 | version 8 | check 8 | words: a function of key, version, length and place |
//! ```
//!
//! Invariant: [`version_of`] finds a value whole only when all of its bytes were made by one call
//! of [`fill`], with this key and length.

use crate::mix;

/// The shortest value.
pub const VALUE_BYTES_MIN: usize = 24;

/// What the words of a value follow from.
fn first(key: u64, version: u64, len: usize) -> u64 {
    mix(mix(key ^ version.rotate_left(32)).wrapping_add(len as u64))
}

/// The word at a place.
#[inline(always)]
fn word(first: u64, place: usize) -> u64 {
    first.wrapping_mul(2 * place as u64 + 1)
}

/// Makes a value of the length of `into`.
///
/// # Panics
/// When that is less than [`VALUE_BYTES_MIN`].
pub fn fill(into: &mut [u8], key: u64, version: u64) {
    assert!(into.len() >= VALUE_BYTES_MIN, "a value has at least {VALUE_BYTES_MIN} bytes");
    let first = first(key, version, into.len());
    let (head, body) = into.split_at_mut(VALUE_BYTES_MIN);
    for (to, word) in head.chunks_exact_mut(8).zip([key, version, first]) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let mut words = body.chunks_exact_mut(8);
    let mut place = 1;
    for to in &mut words {
        to.copy_from_slice(&word(first, place).to_le_bytes());
        place += 1;
    }
    let rest = words.into_remainder();
    rest.copy_from_slice(&word(first, place).to_le_bytes()[..rest.len()]);
}

/// The version of a value of `key`. None when it is another key's, torn or damaged.
#[must_use]
pub fn version_of(value: &[u8], key: u64) -> Option<u64> {
    let (head, body) = value.split_at_checked(VALUE_BYTES_MIN)?;
    let field = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let version = field(8);
    let first = first(key, version, value.len());
    let words = body.chunks_exact(8);
    let rest = words.remainder();
    let last = word(first, 1 + body.len() / 8).to_le_bytes();
    // Without a branch for each word.
    let mut wrong = (field(0) ^ key) | (field(16) ^ first) | u64::from(rest != &last[..rest.len()]);
    for (at, bytes) in words.enumerate() {
        wrong |= word(first, at + 1) ^ u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    (wrong == 0).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_other_byte_is_seen() {
        for len in [24, 25, 31, 32, 40, 128, 900, 1000] {
            let mut value = vec![0; len];
            fill(&mut value, 7, 3);
            assert_eq!(version_of(&value, 7), Some(3), "{len} bytes");
            assert_eq!(version_of(&value, 8), None);
            assert_eq!(version_of(&value[..len - 1], 7), None);
            for at in 0..len {
                value[at] ^= 1;
                assert_eq!(version_of(&value, 7), None, "{len} bytes, another one at {at}");
                value[at] ^= 1;
            }
        }
    }
    #[test]
    fn halves_of_two_versions_are_torn() {
        let (mut one, mut two) = ([0; 900], [0; 900]);
        fill(&mut one, 7, 3);
        fill(&mut two, 7, 4);
        one[450..].copy_from_slice(&two[450..]);
        assert_eq!(version_of(&one, 7), None);
    }
}
