//! Judges a path, then opens or creates what is there. Every refusal precedes every change.

use std::fs::{self, FileType, Metadata};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::{Arena, Backed, Clock, DirectFile, endings, rename_new};

use super::holders;
use super::medium::OpenFile;
use crate::OpenError;

/// Written at a time while a file is filled.
const CHUNK_BYTES: usize = 1 << 20;
/// How long the hold of a process that runs on is waited for: it may be about to let go.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// How long to wait for a lock that no running process has: the kernel lets go of it in time. With
/// busy cores that took more than half a second.
const ENDING_PATIENCE: Duration = Duration::from_secs(10);
/// How often the processes are checked meanwhile.
const CHECK: Duration = Duration::from_millis(100);
/// How often progress is reported.
const PROGRESS_BYTES: u64 = 8 << 20;

/// Opens what exists; returns its subpages.
pub(super) fn existing(path: &Path, wanted: Option<u64>) -> Result<(DirectFile, u32), OpenError> {
    if let Some(wanted) = wanted {
        subpages(wanted)?;
    }
    let file = claim(path)?;
    let found = size(&file, path)?;
    match wanted {
        Some(needed) if needed > found => Err(OpenError::TooSmall { path: path.into(), needed, found }),
        Some(wanted) => Ok((file, subpages(wanted)?)),
        None => Ok((file, subpages(found)?)),
    }
}

/// Opens what exists to be read while another process writes to it; returns its subpages.
pub(super) fn check(path: &Path, wanted: Option<u64>) -> Result<(DirectFile, u32), OpenError> {
    let metadata = fs::symlink_metadata(path).map_err(|e| path_error("check", path, e))?;
    judge_kind(path, &metadata)?;
    let file = DirectFile::open_to_check(path).map_err(|e| path_error("open", path, e))?;
    let found = size(&file, path)?;
    let wanted = wanted.unwrap_or(found - found % SUBPAGE_BYTES as u64);
    match wanted > found {
        true => Err(OpenError::TooSmall { path: path.into(), needed: wanted, found }),
        false => Ok((file, subpages(wanted)?)),
    }
}

/// Judges what exists at a path, opens it, and takes it for the caller alone. Nothing is written.
/// Every writer to a path of the user's goes through this. A block device must be neither mounted
/// nor in use. A file must be this user's own, without another name, and neither locked nor, as far
/// as the kernel says, open elsewhere.
///
/// # Errors
/// [`OpenError`]. [`OpenError::InUse`] comes after half a second, and after ten while no running
/// process has the path open. The kernel closes a killed process's ring in the background (60 to 90
/// ms measured at depth 64, and seconds where all cores are busy).
pub fn claim(path: &Path) -> Result<DirectFile, OpenError> {
    // Another process lets go in real time.
    let clock = Clock::get();
    let begun_ns = clock.now_ns();
    let mut look_after = LOCK_PATIENCE;
    loop {
        let result = claim_now(path);
        let waited = Duration::from_nanos(clock.now_ns() - begun_ns);
        let in_use = matches!(result, Err(OpenError::InUse { .. }));
        if !in_use || waited >= ENDING_PATIENCE {
            return result.map_err(|error| if in_use { used_by(path) } else { error });
        }
        if waited >= look_after {
            // A thread of this process may be about to close it.
            if holders::is_held(path) && !endings::are_under_way() {
                return Err(used_by(path));
            }
            look_after = waited + CHECK;
        }
        clock.sleep(Duration::from_millis(10));
    }
}

/// The error for a path that somebody uses.
fn used_by(path: &Path) -> OpenError {
    OpenError::InUse { path: path.into(), here: holders::is_held_here(path) }
}

fn claim_now(path: &Path) -> Result<DirectFile, OpenError> {
    let metadata = fs::symlink_metadata(path).map_err(|e| path_error("check", path, e))?;
    judge_kind(path, &metadata)?;
    let is_device = metadata.file_type().is_block_device();
    // Root may write to a read-only file, but it was made read-only on purpose.
    if !is_device && metadata.mode() & 0o222 == 0 {
        return Err(OpenError::Denied { path: path.into(), source: io::ErrorKind::PermissionDenied.into() });
    }
    let file = if is_device { DirectFile::open_device(path) } else { DirectFile::open(path) };
    let file = file.map_err(|e| path_error("open", path, e))?;
    // This is judged again, because what was opened may not be what was checked.
    let metadata = file.metadata().map_err(|e| path_error("check", path, e))?;
    judge_kind(path, &metadata)?;
    if is_device != metadata.file_type().is_block_device() {
        return Err(wrong_kind(path, "path that changes while it is opened"));
    }
    if !is_device && metadata.nlink() > 1 {
        return Err(wrong_kind(path, "file with several hard links, and others might change it under us"));
    }
    // Its owner could read and change what we store: in a directory open to all, that is a trap.
    if !is_device && !file.is_ours().map_err(|e| path_error("check", path, e))? {
        return Err(wrong_kind(path, "file of another user"));
    }
    size(&file, path)?;
    lock(&file, path)?;
    if !is_device && file.open_elsewhere() {
        return Err(OpenError::InUse { path: path.into(), here: false });
    }
    Ok(file)
}

/// Bytes in a file or device.
fn size(file: &DirectFile, path: &Path) -> Result<u64, OpenError> {
    file.bytes().map_err(|e| match e.kind() {
        // Files of /proc that are windows and store nothing.
        io::ErrorKind::InvalidInput | io::ErrorKind::NotSeekable => wrong_kind(path, "file without a size"),
        _ => path_error("find the size of", path, e),
    })
}

/// Creates a file of `bytes`, all written; removes it again if that fails. One that is not to keep
/// a name has none from before its first byte on.
pub(super) fn create(
    path: &Path,
    bytes: u64,
    keeps_name: bool,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<(DirectFile, u32), OpenError> {
    let subpages = subpages(bytes)?;
    if fs::symlink_metadata(path).is_ok() {
        return Err(OpenError::Exists { path: path.into() });
    }
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let parent_metadata = fs::metadata(parent).map_err(|e| path_error("check", parent, e))?;
    if !parent_metadata.is_dir() {
        return Err(OpenError::Path {
            what: "create a file in",
            path: parent.into(),
            source: io::ErrorKind::NotADirectory.into(),
        });
    }
    let free = DirectFile::free_bytes(parent).map_err(|e| path_error("find the free space of", parent, e))?;
    if free < bytes {
        return Err(OpenError::NoSpace { path: path.into(), needed: bytes, free: Some(free) });
    }
    may_write(path, bytes)?;
    let file = DirectFile::create(path).map_err(|e| path_error("create", path, e))?;
    let unfinished = Some(Unfinished(Some(path.into())));
    lock(&file, path)?;
    // Without its name it is gone however the process ends: writing it all takes seconds.
    let unfinished = unfinished.filter(|_| keeps_name);
    let zeros = Arena::anonymous(CHUNK_BYTES, Backed::HugePages)?;
    let (mut done, mut reported) = (0, 0);
    while done < bytes {
        let len = (bytes - done).min(CHUNK_BYTES as u64) as usize;
        match file.write_at(done, &zeros, 0, len) {
            Ok(n) if n >= SUBPAGE_BYTES => done += (n / SUBPAGE_BYTES * SUBPAGE_BYTES) as u64,
            Ok(_) => return Err(path_error("write", path, io::ErrorKind::WriteZero.into())),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                let free = free_when_full(parent);
                return Err(OpenError::NoSpace { path: path.into(), needed: bytes, free });
            }
            Err(e) => return Err(path_error("write", path, e)),
        }
        if done - reported >= PROGRESS_BYTES || done == bytes {
            reported = done;
            if progress(done, bytes).is_break() {
                return Err(OpenError::Stopped { path: path.into() });
            }
        }
    }
    file.sync_all().map_err(|e| path_error("flush", path, e))?;
    if let Some(unfinished) = unfinished {
        // The name is durable when its directory is.
        fs::File::open(parent).and_then(|d| d.sync_all()).map_err(|e| path_error("flush", parent, e))?;
        unfinished.keep();
    }
    Ok((file, subpages))
}

/// Refuses more than this process may write to a file (`ulimit -f`). The kernel would end it.
fn may_write(path: &Path, bytes: u64) -> Result<(), OpenError> {
    match DirectFile::limit_bytes() {
        Some(limit) if limit < bytes => Err(OpenError::Limit { path: path.into(), needed: bytes, limit }),
        _ => Ok(()),
    }
}

/// The name of a file that is not finished.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    name.into()
}

/// As [`create`], under the name for what is not finished. What is left there is removed first,
/// unless another process is at it.
pub(super) fn create_aside(
    path: &Path,
    bytes: u64,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<(DirectFile, u32), OpenError> {
    subpages(bytes)?;
    let unfinished = unfinished(path);
    loop {
        if exists(path)? {
            return Err(OpenError::Exists { path: path.into() });
        }
        if exists(&unfinished)? {
            let left = claim(&unfinished)
                .and_then(|_left| fs::remove_file(&unfinished).map_err(|e| path_error("remove", &unfinished, e)));
            match left {
                Ok(()) => {}
                // The other one has finished it, or given it up.
                Err(OpenError::Missing { .. }) => continue,
                Err(_) if exists(path)? => continue,
                Err(error) => return Err(error),
            }
        }
        match create(&unfinished, bytes, true, progress) {
            // Another process was faster.
            Err(OpenError::Exists { .. }) => {}
            created => return created,
        }
    }
}

/// Gives a file its name, durably.
pub(super) fn finish(unfinished: &Path, path: &Path) -> Result<(), OpenError> {
    if !rename_new(unfinished, path).map_err(|e| path_error("rename", unfinished, e))? {
        return Err(OpenError::Exists { path: path.into() });
    }
    let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    fs::File::open(parent).and_then(|d| d.sync_all()).map_err(|e| path_error("flush", parent, e))
}

/// Whether anything has this name.
fn exists(path: &Path) -> Result<bool, OpenError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(path_error("check", path, e)),
    }
}

/// Refuses more than a block device has now.
pub(super) fn may_grow(path: &Path, medium: &OpenFile, bytes: u64) -> Result<(), OpenError> {
    match most_bytes(path, medium)? {
        Some(has) if has < bytes => Err(OpenError::FixedSize { path: path.into(), bytes: has }),
        _ => Ok(()),
    }
}

/// The size of a block device now. None for a file.
pub(super) fn most_bytes(path: &Path, medium: &OpenFile) -> Result<Option<u64>, OpenError> {
    let is_file = medium.file.metadata().map_err(|e| path_error("check", path, e))?.is_file();
    if is_file { Ok(None) } else { Ok(Some(size(&medium.file, path)?)) }
}

/// Makes the file of an open medium larger.
pub(super) fn grow(path: &Path, medium: &OpenFile, bytes: u64) -> Result<(), OpenError> {
    let subpages = subpages(bytes)?;
    if most_bytes(path, medium)?.is_none() {
        may_write(path, bytes)?;
    }
    let failed = |e| path_error("make larger", path, e);
    medium.file.extend(bytes).map_err(|e| match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
            let free = free_when_full(parent);
            OpenError::NoSpace { path: path.into(), needed: bytes, free }
        }
        _ => failed(e),
    })?;
    if subpages > medium.subpages() {
        medium.grow_to(subpages);
    }
    Ok(())
}

/// Bytes that are free at `path`, of which a write has just found too few. None where the file
/// system does not say.
fn free_when_full(path: &Path) -> Option<u64> {
    DirectFile::free_bytes(path).ok().filter(|free| *free != u64::MAX)
}

/// Takes the file for us alone.
fn lock(file: &DirectFile, path: &Path) -> Result<(), OpenError> {
    match file.lock() {
        Ok(true) => Ok(()),
        Ok(false) => Err(OpenError::InUse { path: path.into(), here: false }),
        Err(e) => Err(path_error("lock", path, e)),
    }
}

/// Removes a file that is not finished.
struct Unfinished(Option<PathBuf>);
impl Unfinished {
    fn keep(mut self) {
        self.0 = None;
    }
}
impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Subpages in `bytes` bytes.
fn subpages(bytes: u64) -> Result<u32, OpenError> {
    if bytes == 0 {
        return Err(OpenError::Size { bytes });
    }
    if !bytes.is_multiple_of(SUBPAGE_BYTES as u64) {
        return Err(OpenError::NotAMultiple { bytes });
    }
    u32::try_from(bytes / SUBPAGE_BYTES as u64).map_err(|_| OpenError::Size { bytes })
}

fn judge_kind(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_block_device() { Ok(()) } else { Err(wrong_kind(path, name(kind))) }
}

fn name(kind: FileType) -> &'static str {
    match kind {
        k if k.is_symlink() => "symbolic link (name what it points to)",
        k if k.is_dir() => "directory",
        k if k.is_fifo() => "FIFO",
        k if k.is_socket() => "socket",
        k if k.is_char_device() => "character device",
        _ => "file of an unknown kind",
    }
}

fn wrong_kind(path: &Path, kind: &'static str) -> OpenError {
    OpenError::WrongKind { path: path.into(), kind }
}

/// The typed error for what the kernel said about a path.
fn path_error(what: &'static str, path: &Path, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path },
        io::ErrorKind::AlreadyExists => OpenError::Exists { path },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => OpenError::Denied { path, source },
        io::ErrorKind::ResourceBusy => OpenError::InUse { path, here: false },
        io::ErrorKind::IsADirectory => wrong_kind(&path, "directory"),
        _ => OpenError::Path { what, path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_in_a_full_file_system_is_none_where_it_does_not_say() {
        assert_eq!(free_when_full(Path::new("/proc")), None);
        assert!(free_when_full(Path::new("/")).is_some_and(|free| free > 0));
    }
}
