//! Classes of sizes: what a small object is rounded up to.

use fulgurite_format::SUBPAGE_BYTES;

/// Bytes of a slot of each class, ascending: steps of 16 bytes, then four to an octave, then what
/// divides a page with less than 16 bytes lost for each slot. All are multiples of 16.
pub const CLASSES: [usize; 23] =
    [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 672, 816, 1024, 1360, 2048, 4096];

/// The class of an object, unless it needs pages of its own. `alignment` is a power of two.
pub fn class_of(bytes: usize, alignment: usize) -> Option<usize> {
    // Slots begin at multiples of their size in a page, which is aligned to itself.
    let fits = |size: &usize| *size >= bytes && size.is_multiple_of(alignment);
    CLASSES.iter().position(fits)
}

/// Slots in a page.
pub fn per_page(class: usize) -> usize {
    SUBPAGE_BYTES / CLASSES[class]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_lost_and_all_is_aligned() {
        assert!(CLASSES.is_sorted() && CLASSES.iter().all(|size| size.is_multiple_of(16)));
        for (class, size) in CLASSES.iter().enumerate() {
            assert!(SUBPAGE_BYTES - per_page(class) * size <= SUBPAGE_BYTES / 8, "{size}");
        }
        for bytes in 0..=SUBPAGE_BYTES {
            for alignment in [1, 8, 16, 32, 64, 128, 512, 4096] {
                let class = class_of(bytes, alignment).expect("a page has room");
                assert!(CLASSES[class] >= bytes && CLASSES[class].is_multiple_of(alignment));
                assert!(class == 0 || alignment > 16 || CLASSES[class - 1] < bytes, "{bytes} of {}", CLASSES[class]);
            }
        }
        assert_eq!((class_of(4097, 1), class_of(1, 8192)), (None, None));
    }
}
