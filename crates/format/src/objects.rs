//! Objects: contents of subpages that are shorter than a subpage, packed several to a flash page.
//!
//! An object is the first bytes of a subpage, up to all of them. Behind them the subpage reads as
//! zeros. A flash page of objects is nothing but their bytes, each at a multiple of
//! [`OBJECT_ALIGNMENT`]: where an object begins, how long it is and its checksum are in every
//! reference to it, as for a subpage.
//!
//! ```text
//! record 12    status 1, flash page 4, n 1, n times: subpage 4, length 2, offset / 16 1, CRC32C 4
//! record 13    flash page 4, n 1, n times: subpage 4, old flash page 4, old offset / 16 1,
//!              new offset / 16 1
//! ```
//!
//! An object of no bytes was freed: it has no place, and reads as zeros.

use crate::SUBPAGE_BYTES;
use crate::entry::Status;
use crate::metadata::{Malformed, Reader};

/// Objects begin at multiples of this number of bytes, so that an offset is a byte.
pub const OBJECT_ALIGNMENT: usize = 16;
/// The most objects of a record. With this number it is not larger than other records.
pub const OBJECTS_MAX: usize = 10;
/// Words of four bytes that an object takes in a checkpoint.
pub const WORDS_OF_AN_OBJECT: u32 = 3;

/// Where an object is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ObjectLocation {
    /// The flash page.
    pub flash_page: u32,
    /// Its first byte there, a multiple of [`OBJECT_ALIGNMENT`].
    pub offset: u16,
    /// Its bytes, up to a subpage's. 0: it was freed.
    pub length: u16,
}

impl ObjectLocation {
    /// The location of an object that was freed.
    pub const FREED: ObjectLocation = ObjectLocation { flash_page: 0, offset: 0, length: 0 };

    /// Whether it is inside its flash page, at a multiple of the alignment.
    pub const fn is_sane(self) -> bool {
        self.offset as usize + self.length as usize <= SUBPAGE_BYTES
            && (self.offset as usize).is_multiple_of(OBJECT_ALIGNMENT)
            && (self.length > 0 || (self.flash_page == 0 && self.offset == 0))
    }
    /// The units of [`OBJECT_ALIGNMENT`] bytes that it takes.
    pub const fn units(self) -> u32 {
        (self.length as usize).div_ceil(OBJECT_ALIGNMENT) as u32
    }
    /// Its bytes in its flash page.
    pub const fn range(self) -> std::ops::Range<usize> {
        self.offset as usize..self.offset as usize + self.length as usize
    }
    /// As a checkpoint has it, with its checksum.
    pub const fn words(self, checksum: u32) -> [u32; WORDS_OF_AN_OBJECT as usize] {
        [self.flash_page, self.offset as u32 | ((self.length as u32) << 16), checksum]
    }
    /// From the words of a checkpoint, with its checksum.
    #[must_use]
    pub const fn of_words(words: [u32; WORDS_OF_AN_OBJECT as usize]) -> (ObjectLocation, u32) {
        let place = ObjectLocation { flash_page: words[0], offset: words[1] as u16, length: (words[1] >> 16) as u16 };
        (place, words[2])
    }
}

/// An object that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectWritten {
    /// Whose content it is.
    pub subpage: u32,
    /// Its bytes. 0: it is freed.
    pub length: u16,
    /// Where it begins in the flash page.
    pub offset: u16,
    /// CRC32C of its bytes.
    pub checksum: u32,
}

/// An object that has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectMoved {
    /// Whose content it is.
    pub subpage: u32,
    /// The flash page in which it was.
    pub from: u32,
    /// Where it began there.
    pub from_offset: u16,
    /// Where it begins now.
    pub offset: u16,
}

/// A few of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Few<T> {
    items: [T; OBJECTS_MAX],
    len: u8,
}

impl<T: Copy> Few<T> {
    fn push(&mut self, item: T) {
        self.items[usize::from(self.len)] = item;
        self.len += 1;
    }
    fn as_slice(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
    fn decode(r: &mut Reader<'_>, one: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>) -> Result<Few<T>, Malformed>
    where
        T: Default,
    {
        let count = r.u8()?;
        if count == 0 || usize::from(count) > OBJECTS_MAX {
            return Err(Malformed);
        }
        let mut few = Few::default();
        for _ in 0..count {
            few.push(one(r)?);
        }
        Ok(few)
    }
}

fn units(offset: u16) -> u8 {
    (usize::from(offset) / OBJECT_ALIGNMENT) as u8
}
fn offset(r: &mut Reader<'_>) -> Result<u16, Malformed> {
    Ok(u16::from(r.u8()?) * OBJECT_ALIGNMENT as u16)
}
fn length(r: &mut Reader<'_>) -> Result<u16, Malformed> {
    Ok(u16::from_le_bytes(r.bytes()?))
}

/// New versions of some objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectsWritten {
    /// Status of their pages.
    pub status: Status,
    /// The flash page that holds all of them. 0 where all are freed.
    pub flash_page: u32,
    objects: Few<ObjectWritten>,
}

impl ObjectsWritten {
    /// None yet.
    pub fn new(flash_page: u32, status: Status) -> ObjectsWritten {
        ObjectsWritten { status, flash_page, objects: Few::default() }
    }
    /// Appends one.
    ///
    /// # Panics
    /// When there are [`OBJECTS_MAX`].
    pub fn push(&mut self, object: ObjectWritten) {
        self.objects.push(object);
    }
    /// All of them.
    pub fn as_slice(&self) -> &[ObjectWritten] {
        self.objects.as_slice()
    }
    /// Where one of them is stored.
    pub fn location(&self, object: &ObjectWritten) -> ObjectLocation {
        if object.length == 0 && object.offset == 0 {
            return ObjectLocation::FREED;
        }
        ObjectLocation { flash_page: self.flash_page, offset: object.offset, length: object.length }
    }
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.push(self.status.bits());
        into.extend_from_slice(&self.flash_page.to_le_bytes());
        into.push(self.objects.len);
        for object in self.as_slice() {
            into.extend_from_slice(&object.subpage.to_le_bytes());
            into.extend_from_slice(&object.length.to_le_bytes());
            into.push(units(object.offset));
            into.extend_from_slice(&object.checksum.to_le_bytes());
        }
    }
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<ObjectsWritten, Malformed> {
        let status = Status::from_bits(r.u8()?).ok_or(Malformed)?;
        let flash_page = r.u32()?;
        let one = |r: &mut Reader<'_>| {
            Ok(ObjectWritten { subpage: r.u32()?, length: length(r)?, offset: offset(r)?, checksum: r.u32()? })
        };
        Ok(ObjectsWritten { status, flash_page, objects: Few::decode(r, one)? })
    }
}

/// Some objects have moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectsMoved {
    /// The flash page that holds them now.
    pub flash_page: u32,
    objects: Few<ObjectMoved>,
}

impl ObjectsMoved {
    /// None yet.
    pub fn new(flash_page: u32) -> ObjectsMoved {
        ObjectsMoved { flash_page, objects: Few::default() }
    }
    /// Appends one.
    ///
    /// # Panics
    /// When there are [`OBJECTS_MAX`].
    pub fn push(&mut self, object: ObjectMoved) {
        self.objects.push(object);
    }
    /// All of them.
    pub fn as_slice(&self) -> &[ObjectMoved] {
        self.objects.as_slice()
    }
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.flash_page.to_le_bytes());
        into.push(self.objects.len);
        for object in self.as_slice() {
            into.extend_from_slice(&object.subpage.to_le_bytes());
            into.extend_from_slice(&object.from.to_le_bytes());
            into.extend_from_slice(&[units(object.from_offset), units(object.offset)]);
        }
    }
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<ObjectsMoved, Malformed> {
        let flash_page = r.u32()?;
        let one = |r: &mut Reader<'_>| {
            Ok(ObjectMoved { subpage: r.u32()?, from: r.u32()?, from_offset: offset(r)?, offset: offset(r)? })
        };
        Ok(ObjectsMoved { flash_page, objects: Few::decode(r, one)? })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_freed_object_has_no_location_and_an_empty_one_has_one() {
        let objects = ObjectsWritten::new(9, Status::ALLOCATED);
        let place = |length, offset| objects.location(&ObjectWritten { subpage: 1, length, offset, checksum: 0 });
        assert_eq!(place(0, 0), ObjectLocation::FREED);
        assert_eq!(place(0, 16), ObjectLocation { flash_page: 9, offset: 16, length: 0 });
        assert_eq!(place(5, 0), ObjectLocation { flash_page: 9, offset: 0, length: 5 });
    }
    fn offsets() -> impl Strategy<Value = u16> {
        any::<u8>().prop_map(|units| u16::from(units) * 16)
    }
    pub fn written() -> impl Strategy<Value = ObjectsWritten> {
        let one = (any::<u32>(), 0..=4096u16, offsets(), any::<u32>())
            .prop_map(|(subpage, length, offset, checksum)| ObjectWritten { subpage, length, offset, checksum });
        (any::<u32>(), 0..64u8, proptest::collection::vec(one, 1..=OBJECTS_MAX)).prop_map(|(page, bits, objects)| {
            let mut all = ObjectsWritten::new(page, Status::from_bits(bits).unwrap());
            objects.into_iter().for_each(|object| all.push(object));
            all
        })
    }
    pub fn moved() -> impl Strategy<Value = ObjectsMoved> {
        let one = (any::<u32>(), any::<u32>(), offsets(), offsets())
            .prop_map(|(subpage, from, from_offset, offset)| ObjectMoved { subpage, from, from_offset, offset });
        (any::<u32>(), proptest::collection::vec(one, 1..=OBJECTS_MAX)).prop_map(|(page, objects)| {
            let mut all = ObjectsMoved::new(page);
            objects.into_iter().for_each(|object| all.push(object));
            all
        })
    }

    #[test]
    fn places_come_back_from_a_checkpoint() {
        let place = ObjectLocation { flash_page: 7, offset: 4080, length: 16 };
        assert_eq!(ObjectLocation::of_words(place.words(9)), (place, 9));
        let whole = ObjectLocation { flash_page: u32::MAX, offset: 0, length: 4096 };
        assert_eq!(ObjectLocation::of_words(whole.words(0)), (whole, 0));
        assert_eq!((whole.units(), place.units(), ObjectLocation::FREED.units()), (256, 1, 0));
    }
    #[test]
    fn a_place_is_inside_its_flash_page() {
        let place = |offset, length| ObjectLocation { flash_page: 3, offset, length };
        assert!(place(0, 4096).is_sane() && place(4080, 16).is_sane() && ObjectLocation::FREED.is_sane());
        assert!(!place(4080, 17).is_sane() && !place(8, 1).is_sane() && !place(0, 0).is_sane());
        assert!(!place(16, 4096).is_sane() && !place(65_520, 65_535).is_sane());
    }
}
