//! The swap file: preallocated, private, with a header of our own, preferred over other swap space.
//!
//! ```text
//! 0         1024     1028        1032        1036              4086          4096
//! | unused  | version| last page | bad pages | uuid, label, .. | SWAPSPACE2  |
//! ```

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use fulgurite_sys::swap;

/// The first page of a swap file (mkswap(8), include/linux/swap.h, `union swap_header`).
fn header(pages: u32) -> [u8; 4096] {
    let mut page = [0; 4096];
    page[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    page[1028..1032].copy_from_slice(&(pages - 1).to_ne_bytes());
    page[4086..].copy_from_slice(b"SWAPSPACE2");
    page
}

/// Creates a swap file that does not exist yet.
///
/// # Errors
/// The kernel's. A file that was half made is removed.
pub fn create(path: &Path, bytes: u64) -> io::Result<()> {
    let pages = u32::try_from(bytes.div_ceil(4096) + 1).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let made = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, u64::from(pages) * 4096)
        .map_err(io::Error::from)
        .and_then(|()| file.write_all_at(&header(pages), 0))
        .and_then(|()| file.sync_all());
    if made.is_err() {
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Whether the kernel swaps to this file now.
pub fn active(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let list = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    list.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(|used| Path::new(used) == path)
}

/// Takes the file out of use if it is in use, and removes it. A file that does not exist is fine.
pub fn remove(path: &Path) -> io::Result<bool> {
    if active(path) {
        swap::off(path)?;
    }
    remove_file(path)
}

/// Removes a file; says whether it was there.
pub fn remove_file(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        result => result.map(|()| true),
    }
}

/// Whether a file in this directory could be swapped to, as far as can be said without trying.
pub fn missing(scratch: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a swap file needs root".to_owned());
    }
    let Ok(stat) = rustix::fs::statfs(scratch) else {
        return Some(format!("{} is not a directory for a swap file", scratch.display()));
    };
    // statfs(2): tmpfs, overlayfs. Neither maps files to blocks, so the kernel cannot swap to them.
    match stat.f_type as u64 & 0xffff_ffff {
        0x0102_1994 | 0x794c_7630 => Some(format!(
            "{} is on a file system that cannot hold a swap file; name another with --dir",
            scratch.display()
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_private_and_never_replaces_another() {
        use std::os::unix::fs::MetadataExt;
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("fulgurite-test.swap");
        create(&path, 1 << 20).unwrap();
        let metadata = path.metadata().unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.len()), (0o600, (1 << 20) + 4096));
        assert!(create(&path, 1 << 20).is_err() && !active(&path));
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }
    #[test]
    fn the_header_is_what_mkswap_writes() {
        let page = header(256);
        assert_eq!((page[1024], page[1028], &page[4086..]), (1, 255, b"SWAPSPACE2".as_slice()));
    }
}
