//! The hash of keys in flash memory. It is part of the format, because a table is found again only
//! by the same hash.
//!
//! Each 8-byte word of the key is folded in by one 64 x 64 -> 128-bit multiplication whose halves
//! are xored, after wyhash (Wang Yi, public domain), with other constants. It does not withstand
//! hostile keys.

use fulgurite_format::Plain;

/// Digits of pi after the point, 64 bits each: nothing up the sleeve.
const PI: [u64; 3] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344, 0xA409_3822_299F_31D0];

/// Mixes two words: every bit of both reaches about half of the bits of the result.
#[inline(always)]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let once = u128::from(a ^ PI[0]) * u128::from(b ^ PI[1]);
    let folded = (once as u64) ^ (once >> 64) as u64;
    let twice = u128::from(folded ^ PI[2]) * u128::from(PI[0] | 1);
    (twice as u64) ^ (twice >> 64) as u64
}

/// The 64-bit hash of some bytes: the same on every machine and in every version of this format.
#[inline]
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut hash = bytes.len() as u64;
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    hash
}

/// Keys of hash tables in flash. For a type of your own: `impl KeyHash for MyKey {}`.
///
/// Equal keys must have equal hashes; the default hashes all bytes of the key.
pub trait KeyHash: Plain {
    /// The hash. Stable as long as tables on flash are to be found again.
    #[inline(always)]
    fn key_hash(&self) -> u64 {
        hash_bytes(self.as_bytes())
    }
}

macro_rules! hashed_by_their_bytes {
    ($($key:ty)*) => { $(impl KeyHash for $key {})* };
}
hashed_by_their_bytes!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize fulgurite_format::Address);
impl<K: KeyHash, const N: usize> KeyHash for [K; N] where [K; N]: Plain {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable() {
        // Tables on flash depend on these values.
        let of = [hash_bytes(&[]), 0u64.key_hash(), 1u64.key_hash(), hash_bytes(b"fulgurite in sand")];
        assert_eq!(of, [0, 0xACF8_7F93_0A9A_3A37, 0x9CE7_101D_D5D0_6161, 0xB275_A048_9F9B_6C11]);
        assert_eq!(0u64.key_hash(), [0u8; 8].key_hash());
        assert_ne!(hash_bytes(&[]), hash_bytes(&[0]));
        assert_ne!([1u8, 0].key_hash(), [1u8].key_hash());
    }
    #[test]
    fn every_bit_of_the_key_matters_to_every_bit_of_the_hash() {
        let mut flips = [[0u32; 64]; 64];
        for trial in 0..1000u64 {
            let key = mix(trial, 77);
            for (from, row) in flips.iter_mut().enumerate() {
                let difference = key.key_hash() ^ (key ^ (1 << from)).key_hash();
                for (to, count) in row.iter_mut().enumerate() {
                    *count += (difference >> to & 1) as u32;
                }
            }
        }
        let all = flips.iter().flatten();
        assert!(all.clone().all(|&count| (400..600).contains(&count)), "{:?} {:?}", all.clone().min(), all.max());
    }
    #[test]
    fn close_keys_spread() {
        // Keys in rows, and keys that differ in high bits only: no bucket of 1024 gets more than a
        // few times its share.
        for shift in [0, 12, 40] {
            let mut buckets = vec![0u32; 1024];
            for key in 0..16_384u64 {
                let hash = (key << shift).key_hash();
                buckets[((u128::from(hash) * 1024) >> 64) as usize] += 1;
            }
            assert!(buckets.iter().all(|&count| count < 50), "shift {shift}: {:?}", buckets.iter().max());
        }
    }
}
