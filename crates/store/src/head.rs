//! What a file or device begins like: a pool, or something that people know by name.
//!
//! Invariant: nothing is written, and no store is opened. What is found is what the first bytes
//! say, whatever follows them.

use fulgurite_flash::OpenError;
use fulgurite_format::{Header, Kind, NotMetadata, PoolId, SUBPAGE_BYTES};
use fulgurite_sys::{Arena, Backed, DirectFile};

use crate::members::member_in;

/// Bytes that contain the signatures of file systems and formats.
const HEAD_BYTES: usize = 72 << 10;

/// What people know by name: where its signature is, by what its tools look for; ZFS by the trailer
/// of a label's boot block, in either order of bytes, or by the list of names behind it
/// (vdev_label.c: VDEV_PAD_SIZE, ZEC_MAGIC).
const KNOWN: [(usize, &[u8], &str); 21] = [
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0x8001, b"CD001", "an ISO-9660 file system"),
    (0x3fd8, b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02", "a part of a ZFS pool"),
    (0x3fd8, b"\x02\x10\xda\x7a\xb1\x0c\x7a\x11", "a part of a ZFS pool"),
    (0x4014, b"\0\0\0\x07version\0", "a part of a ZFS pool"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0x200, b"LABELONE", "a volume of LVM"),
    (0x200, b"EFI PART", "a partition table"),
    (0, b"LUKS\xba\xbe", "an encrypted volume"),
    (0x1fe, b"\x55\xaa", "a boot sector or partition table"),
    (0, b"\x7fELF", "a program"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (0, b"\xfd7zXZ", "an xz archive"),
    (0x101, b"ustar", "a tar archive"),
    (0, b"SQLite format 3", "an SQLite database"),
    (0, b"%PDF", "a PDF document"),
];

/// The beginning of a file or device.
#[derive(Debug)]
pub struct Head {
    /// Bytes of all of it.
    pub bytes: u64,
    /// The first ones, zeros behind its end and where they cannot be read.
    first: Vec<u8>,
}

impl Head {
    /// Reads it.
    ///
    /// # Errors
    /// When its size cannot be found, or there is no memory.
    pub fn of(file: &DirectFile) -> Result<Head, OpenError> {
        let size = |source| OpenError::System { what: "find the size of the file", source };
        let bytes = file.bytes().map_err(size)?;
        let arena = Arena::anonymous(HEAD_BYTES, Backed::BasePages)?;
        let mut done = 0;
        while done < HEAD_BYTES && (done as u64) < bytes {
            match file.read_at(done as u64, &arena, done, HEAD_BYTES - done) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                // A damaged beginning: what follows may still be read.
                Err(_) => done += SUBPAGE_BYTES - done % SUBPAGE_BYTES,
            }
            // Past the page cache, only whole blocks can follow.
            if !done.is_multiple_of(SUBPAGE_BYTES) {
                break;
            }
        }
        let mut first = vec![0; HEAD_BYTES];
        arena.read(0, &mut first);
        Ok(Head { bytes, first })
    }

    /// Which pool begins like this, if one does. One of the two copies of the superblock suffices.
    pub fn pool(&self) -> Option<Result<PoolId, NotMetadata>> {
        let mut found = None;
        for place in [0, 1] {
            let page = self.first[place * SUBPAGE_BYTES..][..SUBPAGE_BYTES].try_into().expect("a page");
            match Header::open(page) {
                Ok((header, ..)) if header.kind == Kind::Superblock && header.place as usize == place => {
                    return Some(Ok(header.pool));
                }
                Ok(_) | Err(NotMetadata::Magic) => {}
                Err(e) => found = found.or(Some(Err(e))),
            }
        }
        // Among several files, only the first begins with a superblock.
        found.or_else(|| member_in(&self.first).map(Ok))
    }
    /// Whether one of several files begins like this, none of which is a pool by itself.
    pub fn of_several(&self) -> bool {
        member_in(&self.first).is_some()
    }
    /// What begins like this, where that is something that people know by name, and no pool.
    pub fn known_as(&self) -> Option<&'static str> {
        let at = |offset: usize, magic: &[u8]| self.first.get(offset..).is_some_and(|rest| rest.starts_with(magic));
        if let Some((.., what)) = KNOWN.iter().find(|(offset, magic, _)| at(*offset, magic)) {
            return Some(what);
        }
        let start = &self.first[..usize::try_from(self.bytes).unwrap_or(usize::MAX).min(512)];
        let text = match std::str::from_utf8(start) {
            Ok(_) => true,
            Err(e) => e.error_len().is_none(),
        };
        let control = |byte: &u8| *byte < 32 && !b"\t\n\r\x0c".contains(byte);
        (!start.is_empty() && text && !start.iter().any(control)).then_some("text")
    }
    /// What it seems to be, when it is no pool.
    pub fn looks_like(&self) -> &'static str {
        match self.known_as() {
            Some(what) => what,
            None if self.bytes == 0 => "nothing: it is empty",
            None if self.first.iter().all(|byte| *byte == 0) => "zeros",
            None => "data of an unknown kind",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_pool_is_named() {
        let look = |bytes: &[u8]| {
            let mut head = Head { bytes: bytes.len() as u64, first: vec![0; HEAD_BYTES] };
            head.first[..bytes.len()].copy_from_slice(bytes);
            assert!(head.pool().is_none());
            head.looks_like()
        };
        assert_eq!(look(b""), "nothing: it is empty");
        assert_eq!(look(&[0; 9000]), "zeros");
        assert_eq!(look("grüße\n".as_bytes()), "text");
        assert_eq!(look(b"\x1f\x8b\x08"), "a gzip archive");
        assert_eq!(look(&[1, 2, 255]), "data of an unknown kind");
    }
}
