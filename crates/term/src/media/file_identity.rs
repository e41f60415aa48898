//! Which paths of a command line are of the same file, however they are written.
//!
//! Invariant: nothing is opened, created or changed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::wear;
use crate::bad_input::bad_input;
use crate::checks;

/// What a path is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileIdentity {
    /// What is there.
    File {
        /// Its file system.
        device: u64,
        /// Its number there.
        inode: u64,
    },
    /// What may be made there: its name in a directory, by the path of that without links.
    Name(PathBuf),
}

impl FileIdentity {
    /// The place of a path, whose links are followed.
    pub fn of(path: &Path) -> FileIdentity {
        if let Ok(found) = std::fs::metadata(path) {
            return FileIdentity::File { device: found.dev(), inode: found.ino() };
        }
        let parent = checks::parent_of(path);
        FileIdentity::Name(parent.canonicalize().unwrap_or(parent).join(path.file_name().unwrap_or_default()))
    }
}

/// The file of a NAND's state is replaced again and again. No other named file may be there, or at
/// its temporary name.
///
/// # Errors
/// `BadInput`.
pub fn apart_from_wear(state: &Path, others: &[(&str, &Path)]) -> Result<()> {
    let (there, begun) = (FileIdentity::of(state), FileIdentity::of(&wear::begun_at(state)));
    for (option, other) in others {
        let (place, other, state) = (FileIdentity::of(other), other.display(), state.display());
        if place == there {
            bad_input!(
                "{option} {other} is where the NAND's state is kept (--wear {state}), which must be a file of its own; choose another path"
            );
        }
        if place == begun {
            bad_input!(
                "{option} {other} is where the NAND's state is written before it is renamed (--wear {state}), which must be a file of its \
                 own; choose another path"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_however_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("inner")).unwrap();
        std::os::unix::fs::symlink("inner", at("link")).unwrap();
        // Before it exists, and after.
        for exists in [false, true] {
            if exists {
                std::fs::write(at("inner/state"), "").unwrap();
                std::fs::write(at("inner/state.new"), "").unwrap();
            }
            let ways = ["inner/state", "./inner/state", "inner/../inner/state", "link/state", "link/./state"];
            for way in ways {
                assert_eq!(FileIdentity::of(&at(way)), FileIdentity::of(&at("inner/state")), "{way}");
                assert_ne!(FileIdentity::of(&at(way)), FileIdentity::of(&at("state")), "{way}");
                for (other, says) in [("", "is kept"), (".new", "before it is renamed")] {
                    let other = at(&format!("{way}{other}"));
                    let error = apart_from_wear(&at("inner/state"), &[("--boot", &other)]).unwrap_err().to_string();
                    assert!(error.contains(says) && error.contains("--boot"), "{error}");
                }
            }
        }
        std::os::unix::fs::symlink("inner/state", at("also")).unwrap();
        assert_eq!(FileIdentity::of(&at("also")), FileIdentity::of(&at("inner/state")));
        apart_from_wear(&at("inner/state"), &[("--boot", &at("state")), ("--data", &at("inner/state.ne"))]).unwrap();
    }
}
