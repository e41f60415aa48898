//! Size classes of the heap: which object sizes there are.
//!
//! Invariant: `class_bytes` ascends strictly, and `class_of(bytes)` is the first class that is
//! large enough.

use fulgurite_format::SUBPAGE_BYTES;

const SUBPAGE: u64 = SUBPAGE_BYTES as u64;

/// Sizes above 512 bytes: as many as fit a subpage 7, 6, .. 1 times.
const COARSE: [u64; 7] = [584, 680, 816, 1024, 1360, 2048, 4096];
const SMALL_CLASSES: usize = 16 + 8 + 8 + COARSE.len();
pub(super) const SUBPAGE_CLASS: usize = SMALL_CLASSES - 1;
/// Classes of 2 to 16 subpages, one each; then eight to an octave, up to 2^22 subpages.
const LARGE_CLASSES: usize = 15 + 18 * 8;
pub(super) const CLASSES: usize = SMALL_CLASSES + LARGE_CLASSES;
/// The largest object: 16 GiB. Larger things are regions.
const LARGEST_SUBPAGES: u64 = 1 << 22;

/// The class for objects of `bytes`.
#[inline]
pub(super) fn class_of(bytes: usize) -> Option<usize> {
    Some(match bytes {
        0..=8 => 0,
        9..=128 => bytes.div_ceil(8) - 1,
        129..=256 => 16 + (bytes - 128).div_ceil(16) - 1,
        257..=512 => 24 + (bytes - 256).div_ceil(32) - 1,
        513..=SUBPAGE_BYTES => 32 + COARSE.iter().position(|&size| bytes as u64 <= size)?,
        _ => {
            let subpages = (bytes as u64).div_ceil(SUBPAGE);
            if subpages > LARGEST_SUBPAGES {
                return None;
            }
            if subpages <= 16 {
                SMALL_CLASSES + subpages as usize - 2
            } else {
                let octave = (subpages - 1).ilog2() as usize;
                let step = 1u64 << (octave - 3);
                SMALL_CLASSES + 15 + (octave - 4) * 8 + (subpages - (1 << octave)).div_ceil(step) as usize - 1
            }
        }
    })
}

/// The size of the objects of a class.
#[inline]
pub(super) fn class_bytes(class: usize) -> u64 {
    match class {
        0..16 => 8 * (class as u64 + 1),
        16..24 => 128 + 16 * (class as u64 - 15),
        24..32 => 256 + 32 * (class as u64 - 23),
        32..SMALL_CLASSES => COARSE[class - 32],
        _ => {
            let large = class - SMALL_CLASSES;
            let subpages = if large < 15 {
                large as u64 + 2
            } else {
                let (octave, step) = ((large - 15) / 8 + 4, (large - 15) % 8);
                (1 << octave) + ((step as u64 + 1) << (octave - 3))
            };
            subpages * SUBPAGE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_gets_the_first_class_that_is_large_enough() {
        let sizes: Vec<u64> = (0..CLASSES).map(class_bytes).collect();
        assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
        assert_eq!((sizes[0], sizes[SUBPAGE_CLASS], sizes[CLASSES - 1]), (8, SUBPAGE, LARGEST_SUBPAGES * SUBPAGE));
        let around = sizes.iter().flat_map(|&size| [size - 1, size, size + 1]);
        for bytes in (0..20_000).chain(around) {
            let want = sizes.iter().position(|&size| bytes <= size);
            assert_eq!(class_of(bytes as usize), want, "{bytes}");
        }
        assert_eq!(class_of(usize::MAX), None);
    }
    #[test]
    fn little_is_lost_inside_an_object() {
        for bytes in (57u64..=512).chain(4097 * 8..200_000) {
            let size = class_bytes(class_of(bytes as usize).unwrap());
            let unit = if bytes <= 512 { 1 } else { SUBPAGE };
            assert!((size - bytes.next_multiple_of(unit)) * 8 <= size, "{bytes} -> {size}");
        }
    }
}
