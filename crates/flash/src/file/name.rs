//! The name of an open file: whether the file is still what the next program will find there.
//!
//! A deleted file goes on to take writes and flushes, and is gone when it is closed, as does one
//! whose name another file has taken. A moved file is found by its new name.
//!
//! Not asked of block devices, nor where a file system did not count the link at the opening.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fulgurite_sys::DirectFile;

/// The name by which a file was opened, and what it led to.
#[derive(Debug)]
pub(super) struct Name {
    /// Absolute, and the file that it led to; none where it is not asked for.
    known: Option<(PathBuf, (u64, u64))>,
}

impl Name {
    /// Of a file that was just opened by this path.
    pub(super) fn of(file: &DirectFile, path: &Path) -> Name {
        let known = || {
            let metadata = file.metadata().ok().filter(|m| !m.file_type().is_block_device() && m.nlink() == 1)?;
            // The process may change its directory.
            Some((std::path::absolute(path).ok()?, (metadata.dev(), metadata.ino())))
        };
        Name { known: known() }
    }
    /// Whether no name leads to the file, or its name leads to another one.
    pub(super) fn is_lost(&self, file: &DirectFile) -> bool {
        let Some((path, opened)) = &self.known else { return false };
        if file.metadata().is_ok_and(|m| m.nlink() == 0) {
            return true;
        }
        fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) != *opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_lost_with_its_name_and_not_when_it_is_moved() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let create = |name: &str| {
            let file = DirectFile::create(&at(name)).unwrap();
            let name = Name::of(&file, &at(name));
            (file, name)
        };
        let (file, name) = create("deleted");
        assert!(!name.is_lost(&file));
        fs::remove_file(at("deleted")).unwrap();
        assert!(name.is_lost(&file));
        let (file, name) = create("replaced");
        fs::write(at("other"), b"x").unwrap();
        fs::rename(at("other"), at("replaced")).unwrap();
        assert!(name.is_lost(&file));
        let (file, name) = create("moved");
        fs::rename(at("moved"), at("elsewhere")).unwrap();
        assert!(!name.is_lost(&file), "it is found by its new name");
        fs::write(at("moved"), b"x").unwrap();
        assert!(name.is_lost(&file), "another file has its name");
    }
}
