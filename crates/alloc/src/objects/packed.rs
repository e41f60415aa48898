//! Pages of the log: objects side by side, and which they are.
//!
//! ```text
//!  0           4       6        8
//!  +-----------+-------+--------+--------------------------------+-----------------+------+
//!  | CRC32C of | count | unused | number, length (4 + 2 B); ..   | objects, packed | ..   |
//!  | all after |       |        |                                |                 |      |
//!  +-----------+-------+--------+--------------------------------+-----------------+------+
//! ```

use fulgurite_format::{SUBPAGE_BYTES, crc32c};

const HEADER: usize = 8;
const ENTRY: usize = 6;

/// The longest object: one takes a page of the log alone.
pub const OBJECT_BYTES_MAX: usize = SUBPAGE_BYTES - HEADER - ENTRY;

/// Bytes of flash that an object takes at worst: its share of a page of its own kind.
pub const fn weight(size: usize) -> u64 {
    let per_page = (SUBPAGE_BYTES - HEADER) / (size + ENTRY);
    (SUBPAGE_BYTES as u64).div_ceil(per_page as u64)
}

/// An object that is to be written: its number and bytes.
pub type Object<'a> = (u32, &'a [u8]);

/// Which objects share a page: the longest first, each page filled up by shorter ones. Objects of
/// one size stay in their order.
pub fn pack<'a>(mut objects: Vec<Object<'a>>) -> Vec<Vec<Object<'a>>> {
    objects.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.len()));
    let room_of = SUBPAGE_BYTES - HEADER;
    let (mut pages, mut left): (Vec<Vec<Object<'a>>>, _) = (Vec::new(), objects);
    while !left.is_empty() {
        let (mut page, mut room) = (Vec::new(), room_of);
        // In one pass, as the sizes descend.
        left.retain(|object| {
            let takes = object.1.len() + ENTRY;
            let fits = takes <= room;
            if fits {
                room -= takes;
                page.push(*object);
            }
            !fits
        });
        assert!(!page.is_empty(), "an object is longer than a page");
        pages.push(page);
    }
    pages
}

/// Writes a page.
///
/// # Panics
/// When the objects do not fit ([`pack`]).
pub fn encode(objects: &[Object<'_>], into: &mut [u8; SUBPAGE_BYTES]) {
    into.fill(0);
    let mut at = HEADER + objects.len() * ENTRY;
    for (index, (number, bytes)) in objects.iter().enumerate() {
        let entry = HEADER + index * ENTRY;
        into[entry..entry + 4].copy_from_slice(&number.to_le_bytes());
        into[entry + 4..entry + 6].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
        into[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    into[4..6].copy_from_slice(&(objects.len() as u16).to_le_bytes());
    let checksum = crc32c(&into[4..]);
    into[..4].copy_from_slice(&checksum.to_le_bytes());
}

fn u16_at(page: &[u8], at: usize) -> usize {
    u16::from_le_bytes(*page[at..].first_chunk().expect("it is inside the page")).into()
}
fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*page[at..].first_chunk().expect("it is inside the page"))
}

/// The objects of a page. None when it is not as it was written.
pub fn decode(page: &[u8; SUBPAGE_BYTES]) -> Option<impl Iterator<Item = Object<'_>>> {
    let count = u16_at(page, 4);
    let start = HEADER + count * ENTRY;
    if start > SUBPAGE_BYTES || u32_at(page, 0) != crc32c(&page[4..]) {
        return None;
    }
    let lengths = (0..count).map(|index| u16_at(page, HEADER + index * ENTRY + 4));
    if start + lengths.sum::<usize>() > SUBPAGE_BYTES {
        return None;
    }
    let mut at = start;
    Some((0..count).map(move |index| {
        let entry = HEADER + index * ENTRY;
        let (number, length) = (u32_at(page, entry), u16_at(page, entry + 4));
        at += length;
        (number, &page[at - length..at])
    }))
}

#[cfg(test)]
mod tests {
    use fulgurite_testkit::Random;

    use super::*;

    #[test]
    fn what_is_packed_comes_back_in_few_pages() {
        let mut random = Random::seeded("packed", 4);
        for _ in 0..50 {
            let sizes: Vec<usize> = (0..1 + random.below(4)).map(|_| 1 + random.below(OBJECT_BYTES_MAX)).collect();
            let all: Vec<Vec<u8>> =
                (0..random.below(300)).map(|number| vec![number as u8; sizes[random.below(sizes.len())]]).collect();
            let objects: Vec<Object<'_>> =
                all.iter().enumerate().map(|(number, bytes)| (number as u32, bytes.as_slice())).collect();
            let weight: u64 = objects.iter().map(|(_, bytes)| super::weight(bytes.len())).sum();
            let pages = pack(objects.clone());
            assert!(pages.len() as u64 <= weight.div_ceil(SUBPAGE_BYTES as u64) + sizes.len() as u64);
            let mut found = Vec::new();
            for objects in &pages {
                let mut page = [1; SUBPAGE_BYTES];
                encode(objects, &mut page);
                let read: Vec<(u32, Vec<u8>)> =
                    decode(&page).unwrap().map(|(number, bytes)| (number, bytes.to_vec())).collect();
                assert!(read.iter().map(|(n, b)| (*n, b.as_slice())).eq(objects.iter().copied()));
                found.extend(read);
                let at = random.below(SUBPAGE_BYTES);
                page[at] ^= 1 << random.below(8u32);
                assert!(decode(&page).is_none(), "a changed bit shows");
            }
            found.sort_unstable();
            assert!(found.iter().map(|(n, b)| (*n, b.as_slice())).eq(objects));
        }
    }
    #[test]
    fn any_bytes_are_no_page() {
        let mut random = Random::seeded("packed", 5);
        for _ in 0..1000 {
            let mut page = [0; SUBPAGE_BYTES];
            page.iter_mut().for_each(|byte| *byte = random.below(256u32) as u8);
            // With a checksum that is right.
            let checksum = crc32c(&page[4..]);
            page[..4].copy_from_slice(&checksum.to_le_bytes());
            if let Some(objects) = decode(&page) {
                assert!(objects.count() <= SUBPAGE_BYTES / ENTRY);
            }
        }
        assert!(decode(&[0; SUBPAGE_BYTES]).is_none());
        assert_eq!((weight(OBJECT_BYTES_MAX), weight(128), weight(1)), (4096, 137, 8));
    }
}
