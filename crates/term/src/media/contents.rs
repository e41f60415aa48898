//! What the file or block device of a device's data holds: a store, nothing, or something of value.
//!
//! Invariants: nothing is written. Nothing means zeros, or an unfinished store, at the beginning,
//! which has signatures, and at `SAMPLES` places behind it. In a regular file these are written
//! places, where the file system can tell. A device with data only between the places is taken for
//! empty.

use std::path::Path;

use anyhow::{Context, Result};
use fulgurite_flash::claim;
use fulgurite_format::{Header, Kind, PoolId, SUBPAGE_BYTES};
use fulgurite_store::Head;
use fulgurite_sys::{Arena, Backed, DirectFile};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::wear;
use crate::bad_input::bad_input;

/// Places that are sampled behind the beginning, evenly spread; the last one is the end.
const SAMPLES: u64 = 64;
/// Bytes of each, and of the beginning: [`Head::of`]'s, and a page for an end within one.
const SAMPLE_BYTES: usize = (72 << 10) + SUBPAGE_BYTES;

/// What is where a store is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Nothing, or what a store has written that was not whole yet.
    Nothing,
    /// A store, all of it, as it seems.
    Store,
    Other(String),
}

impl Contents {
    /// Reads what exists at a path.
    ///
    /// # Errors
    /// `BadInput` where it cannot be taken for this program; what the kernel says.
    pub fn at(path: &Path) -> Result<Contents> {
        let file = claimed(path)?;
        let head = Head::of(&file)?;
        let other = |what: &str| Ok(Contents::Other(what.to_owned()));
        match head.pool() {
            Some(Ok(_)) if head.of_several() => return other("one file of several that a pool spans"),
            Some(Ok(_)) => return Ok(Contents::Store),
            Some(Err(_)) => return other("a pool that is damaged, or of a later program"),
            None => {}
        }
        if let Some(known) = head.known_as() {
            return other(known);
        }
        Ok(match written(&file, head.bytes).with_context(|| format!("{} cannot be read", path.display()))? {
            None => Contents::Nothing,
            Some(at) => Contents::Other(format!("data of an unknown kind (at byte {at})")),
        })
    }
}

fn claimed(path: &Path) -> Result<DirectFile> {
    match claim(path) {
        Ok(file) => Ok(file),
        Err(e) => bad_input!("--data {e}"),
    }
}

/// The first byte found in pages that are neither zeros nor of a store that was not whole yet.
fn written(file: &DirectFile, bytes: u64) -> Result<Option<u64>> {
    let arena = Arena::anonymous(SAMPLE_BYTES, Backed::BasePages)?;
    let last = bytes.saturating_sub((SAMPLE_BYTES - SUBPAGE_BYTES) as u64);
    let of_pages = |at: u64| at - at % SUBPAGE_BYTES as u64;
    for sample in 0..=SAMPLES {
        let at = (u128::from(last) * u128::from(sample) / u128::from(SAMPLES)) as u64;
        let at = match seek(file, SeekFrom::Data(at)) {
            Ok(at) => of_pages(at),
            // From here to the end nothing was written.
            Err(Errno::NXIO) => break,
            // A block device, or a file system that cannot tell.
            Err(_) => of_pages(at),
        };
        let read = fill(file, at, &arena).with_context(|| format!("at byte {at}"))?;
        let mut sample = vec![0; read];
        arena.read(0, &mut sample);
        for (page, place) in sample.chunks(SUBPAGE_BYTES).zip(at / SUBPAGE_BYTES as u64..) {
            if let Some(byte) = page.iter().position(|byte| *byte != 0)
                && !begun(page, place)
            {
                return Ok(Some(place * SUBPAGE_BYTES as u64 + byte as u64));
            }
        }
    }
    Ok(None)
}

/// Reads until the arena is full or the file ends. No unreadable page counts as zeros.
fn fill(file: &DirectFile, at: u64, arena: &Arena) -> std::io::Result<usize> {
    let mut done = 0;
    while done < arena.len() {
        match file.read_at(at + done as u64, arena, done, arena.len() - done) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        // Past the page cache only whole pages can follow: this was the end.
        if !done.is_multiple_of(SUBPAGE_BYTES) {
            break;
        }
    }
    Ok(done)
}

/// Whether a page is a store's first anchor, which is written before its superblock.
fn begun(page: &[u8], place: u64) -> bool {
    let Ok(page) = <&[u8; SUBPAGE_BYTES]>::try_from(page) else { return false };
    let of_first = |header: &Header| (header.kind, header.sequence, header.next_token) == (Kind::Anchor, 1, 1);
    Header::open(page).is_ok_and(|(header, ..)| of_first(&header) && u64::from(header.place) == place)
}

/// An existing file for plain data must not be a store, whose structure every write would destroy.
pub fn is_no_store(path: &Path) -> Result<()> {
    let shown = path.display();
    let state = wear::path_of(path);
    if std::fs::symlink_metadata(&state).is_ok() {
        bad_input!(
            "--data {shown} is of a device over NAND ({} is next to it); serve it with its --nand and --size, or add --force: what is \
             written then destroys what that device holds",
            state.display()
        );
    }
    let head = Head::of(&claimed(path)?)?;
    if head.pool().is_some_and(|pool| !pool.is_ok_and(of_a_benchmark)) {
        bad_input!("--data {shown} is a pool; name another path, or add --force: writes then destroy that pool");
    }
    Ok(())
}

/// The first half of a benchmark's pool names. The rest, and other names, is random.
pub const OF_A_BENCHMARK: [u8; 8] = *b"of bench";

/// Whether a benchmark has made this pool, so that nobody misses it.
pub fn of_a_benchmark(pool: PoolId) -> bool {
    pool.0.starts_with(&OF_A_BENCHMARK)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use fulgurite_store::{Geometry, Store};

    use super::*;

    const BYTES: u64 = 16 << 20;

    /// A file of zeros, whose zeros are written or not, with this in it.
    fn file(written: bool, bytes: u64, parts: &[(u64, &[u8])]) -> Contents {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let file = File::create_new(&path).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        if written {
            file.write_all_at(&vec![0; bytes as usize], 0).unwrap();
        }
        file.set_len(bytes).unwrap();
        parts.iter().for_each(|(at, what)| file.write_all_at(what, *at).unwrap());
        drop(file);
        Contents::at(&path).unwrap()
    }
    fn other(parts: &[(u64, &[u8])], says: &str) {
        for written in [false, true] {
            match file(written, BYTES, parts) {
                Contents::Other(what) => assert!(what.contains(says), "{what}, not {says}"),
                found => panic!("{says}: {found:?}"),
            }
        }
    }

    #[test]
    fn zeros_are_nothing() {
        for bytes in [4096, 5000, 72 << 10, (72 << 10) + 1, (1 << 20) + 4095, BYTES] {
            for written in [false, true] {
                assert_eq!(file(written, bytes, &[]), Contents::Nothing, "{bytes}");
            }
        }
    }
    #[test]
    fn what_begins_later_is_not_nothing() {
        other(&[(0x1_0040, b"_BHRfS_M")], "btrfs");
        other(&[(0x8001, b"CD001")], "ISO-9660");
        other(&[(0x3fd8, b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02")], "ZFS");
        other(&[(0x3fd8, b"\x02\x10\xda\x7a\xb1\x0c\x7a\x11")], "ZFS");
        other(&[(0x4010, b"\0\0\0\x20\0\0\0\x07version\0")], "ZFS");
        // The last byte of what is read of the beginning, one behind it, the very last one.
        for at in [9000, (72 << 10) - 1, 72 << 10, BYTES - 1] {
            other(&[(at, b"x")], &format!("at byte {at}"));
        }
        // What fills a part of it, wherever that begins.
        let part = vec![7; BYTES as usize / 32];
        for at in [100 << 10, 5 << 20, 13 << 20, BYTES - part.len() as u64] {
            other(&[(at, &part)], "at byte");
        }
    }
    /// Where the file system tells what was written (tmpfs, ext4, xfs), one page anywhere suffices.
    #[test]
    fn a_page_in_a_sparse_file_is_found() {
        for page in [20u64, 777, 3000, BYTES / 4096 - 40] {
            let found = file(false, BYTES, &[(page * 4096 + 5, b"x")]);
            assert_eq!(found, Contents::Other(format!("data of an unknown kind (at byte {})", page * 4096 + 5)));
        }
    }
    /// An unfinished store is nothing, one superblock makes a store, used anchors are neither.
    #[test]
    fn what_a_store_writes_first_is_nothing_yet() {
        let geometry = Geometry::new((BYTES / 4096) as u32, 16, None).unwrap();
        let pages = Store::format(geometry, fulgurite_store::random_id().unwrap(), 0);
        let parts: Vec<(u64, &[u8])> =
            pages.iter().map(|(place, page)| (u64::from(*place) * 4096, &page[..])).collect();
        for written in [false, true] {
            for count in 0..=parts.len() {
                let expected = if count < 3 { Contents::Nothing } else { Contents::Store };
                assert_eq!(file(written, BYTES, &parts[..count]), expected, "{count} pages");
            }
        }
        // In another place it is a copy of something.
        other(&[(parts[0].0 + 4096 * 2, parts[0].1)], "unknown kind");
    }
}
