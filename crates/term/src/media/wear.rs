//! The file of what outlives the program of a NAND: wear, failed blocks and their places, the
//! position of its log.
//!
//! Invariant: the file is whole: it is written under another name, synced, and renamed. A kill
//! leaves the last one, up to [`EVERY`] old.
//!
//! Not here: the format, and whether a state is of this device (`fulgurite_nand::Fil::restore`).

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use fulgurite_nand::{BLOCKS_MAX, STATE_MAGIC};

use crate::bad_input::bad_input;

/// How often it is written while a device is served.
pub const EVERY: Duration = Duration::from_secs(10);
/// More than any device's takes: 12 bytes for each block, and some for planes and the key.
const BYTES_MAX: u64 = 256 << 20;
const _: () = assert!(16 * BLOCKS_MAX as u64 <= BYTES_MAX);

/// What a file is that may be the state of a NAND device.
pub const STATE: &str = "the state of a NAND device";

/// Where it is for a data file, when nobody says otherwise.
pub fn path_of(data: &Path) -> PathBuf {
    let mut path = data.as_os_str().to_owned();
    path.push(".nand");
    PathBuf::from(path)
}

/// Where it is written before it has its name.
pub fn begun_at(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".new");
    PathBuf::from(path)
}

/// What is at a path that would be replaced: [`STATE`], whole or not, something else, or nothing.
///
/// # Errors
/// What the kernel says.
pub fn found_at(path: &Path) -> Result<Option<&'static str>> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found.with_context(|| format!("{} cannot be checked", path.display()))?,
    };
    if !found.is_file() {
        return Ok(Some("no regular file"));
    }
    let mut begins = Vec::new();
    File::open(path)
        .and_then(|file| file.take(STATE_MAGIC.len() as u64).read_to_end(&mut begins))
        .with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(Some(if STATE_MAGIC.starts_with(&begins) { STATE } else { "something else than the state of a NAND device" }))
}

/// What it holds; none where there is none.
///
/// # Errors
/// `BadInput` for what is no regular file, or too long; what the kernel says.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        Ok(found) if !found.is_file() => bad_input!("{} is no regular file; move it away", path.display()),
        Ok(found) if found.len() > BYTES_MAX => {
            bad_input!("{} is no state of a NAND device: it is too long; move it away", path.display())
        }
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
    file.take(BYTES_MAX).read_to_end(&mut bytes).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(Some(bytes))
}

/// Replaces it.
///
/// # Errors
/// What the kernel says; it is as it was then.
pub fn write(path: &Path, state: &[u8]) -> Result<()> {
    let new = begun_at(path);
    let replaced = (|| {
        // What a program left that was killed meanwhile is removed; no link is followed.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(state)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()
    })();
    replaced.with_context(|| format!("the NAND's state cannot be kept in {}", path.display()))
}

/// Says when it cannot be written, and that once until it could be.
#[derive(Debug, Default)]
pub struct Keeper {
    failed: bool,
}

impl Keeper {
    /// Notes whether it was written, and returns what to say. The next interval tries again.
    pub fn tried(&mut self, result: Result<()>) -> Option<String> {
        let was = std::mem::replace(&mut self.failed, result.is_err());
        result
            .err()
            .filter(|_| !was)
            .map(|error| format!("fulgurite: {error:#}; the device continues, and retries every {} s", EVERY.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_kept_is_said_once() {
        let mut keeper = Keeper::default();
        let full = || Err(anyhow::anyhow!("no space"));
        assert_eq!(keeper.tried(Ok(())), None);
        assert!(keeper.tried(full()).unwrap().contains("no space; the device continues"));
        assert_eq!(keeper.tried(full()), None);
        assert_eq!(keeper.tried(Ok(())), None);
        assert!(keeper.tried(full()).is_some());
    }
    #[test]
    fn what_is_written_is_read_and_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let data = path_of(&directory.path().join("flash.img"));
        assert_eq!(read(&data).unwrap(), None);
        std::fs::write(directory.path().join("flash.img.nand.new"), "left over").unwrap();
        for state in [&b"one"[..], b"another"] {
            write(&data, state).unwrap();
            assert_eq!(read(&data).unwrap().as_deref(), Some(state));
        }
        assert!(!directory.path().join("flash.img.nand.new").exists());
        // What is there before is checked, and then replaced.
        assert_eq!(begun_at(&data), directory.path().join("flash.img.nand.new"));
        for (holds, is) in [
            (&b"a letter"[..], "something else than the state of a NAND device"),
            (b"FULGNAND...", STATE),
            (b"FUL", STATE),
            (b"", STATE),
        ] {
            std::fs::write(&data, holds).unwrap();
            assert_eq!(found_at(&data).unwrap(), Some(is));
        }
        std::fs::remove_file(&data).unwrap();
        assert_eq!(found_at(&data).unwrap(), None);
        std::fs::create_dir(&data).unwrap();
        assert_eq!(found_at(&data).unwrap(), Some("no regular file"));
        assert!(read(&data).unwrap_err().to_string().contains("no regular file"));
        assert!(write(&data, b"x").is_err());
    }
}
