//! A helper's record on disk, written before each thing is made, so that `fulgurite cleanup` finds
//! all of it.
//!
//! One file per helper, in a directory of the user's: `/run/fulgurite` for root, else a private one
//! below the temporary directory. Invariant: a record counts only if it is this user's, and its
//! helper has ended.

mod cgroup;
pub mod swap;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use cgroup::Hierarchy;

/// All that one helper has made or changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The helper's process.
    pub pid: u32,
    /// When it started, in clock ticks since boot: a process id alone may be used again.
    pub started: u64,
    /// Names of cgroups.
    pub cgroups: Vec<String>,
    /// Swap files.
    pub swap: Vec<PathBuf>,
    /// Other files, by absolute paths: the cleanup may run elsewhere.
    pub files: Vec<PathBuf>,
    /// `vm.page-cluster` as it was found, once it was changed.
    pub page_cluster: Option<u32>,
    /// Whether zswap was on, and was turned off.
    #[serde(default)]
    pub zswap_was_on: bool,
}

/// The kernel's setting of read-ahead from swap.
pub const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
/// The kernel's switch of the compressed cache in front of swap.
pub const ZSWAP: &str = "/sys/module/zswap/parameters/enabled";

fn directory() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        "/run/fulgurite".into()
    } else {
        std::env::temp_dir().join(format!("fulgurite-{}", user.as_raw()))
    }
}

/// Ticks since boot at which a process started; none when there is no such process.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc_pid_stat(5): the name may hold anything. `starttime` is the 20th field after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

impl Record {
    /// An empty one of this process.
    pub fn mine() -> Record {
        let pid = std::process::id();
        Record { pid, started: started(pid).unwrap_or(0), ..Record::default() }
    }
    fn path(&self) -> PathBuf {
        directory().join(format!("helper-{}.json", self.pid))
    }
    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    /// The kernel's, or when the directory belongs to somebody else.
    pub fn save(&self) -> io::Result<()> {
        match self.try_save() {
            // Another helper that ended just now took the directory with it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.try_save(),
            result => result,
        }
    }
    fn try_save(&self) -> io::Result<()> {
        let directory = directory();
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => owned(&directory)?,
        }
        let next = self.path().with_extension("new");
        fs::write(&next, serde_json::to_vec(self)?)?;
        fs::rename(next, self.path())
    }
    /// Whether the helper still runs.
    pub fn alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }
    /// Removes everything recorded, then the record. Goes on after an error.
    pub fn remove_all(&self) -> Removed {
        let mut all = Removed::default();
        let mut note = |what: String, result: io::Result<bool>| match result {
            Ok(true) => all.removed.push(what),
            Ok(false) => {}
            Err(e) => all.failed.push(format!("{what} could not be removed: {e}")),
        };
        let hierarchy = fs::read_to_string("/proc/mounts").ok().and_then(|mounts| Hierarchy::in_mounts(&mounts));
        // Groups first: with their processes gone, nothing has to be read back from swap.
        if let Some(hierarchy) = hierarchy {
            for name in self.cgroups.iter().filter(|name| name.starts_with("fulgurite-")) {
                note(format!("cgroup {name}"), hierarchy.remove(name));
            }
        }
        for path in &self.swap {
            note(format!("swap file {}", path.display()), swap::remove(path));
        }
        for path in &self.files {
            note(path.display().to_string(), swap::remove_file(path));
        }
        if let Some(value) = self.page_cluster {
            note(format!("our setting of {PAGE_CLUSTER}"), fs::write(PAGE_CLUSTER, value.to_string()).map(|()| true));
        }
        if self.zswap_was_on {
            note(format!("our setting of {ZSWAP}"), fs::write(ZSWAP, "Y").map(|()| true));
        }
        if all.failed.is_empty() {
            let _ = fs::remove_file(self.path());
            // It is removed when it is empty; else another helper has its record there.
            let _ = fs::remove_dir(directory());
        }
        all
    }
}

/// What became of what was recorded, a sentence each.
#[derive(Debug, Default)]
pub struct Removed {
    /// It was there, and is not any more.
    pub removed: Vec<String>,
    /// It could not be removed.
    pub failed: Vec<String>,
}

/// Whether a directory is a real one of this user.
fn owned(directory: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    if metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!("{} belongs to another user; remove it", directory.display())))
}

/// Records of helpers, running and ended.
fn records() -> Vec<Record> {
    let directory = directory();
    if owned(&directory).is_err() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(&directory) else { return Vec::new() };
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        if path.extension()? == "json" { serde_json::from_slice(&fs::read(path).ok()?).ok() } else { None }
    };
    entries.filter_map(read).collect()
}

/// What `fulgurite cleanup` did.
#[derive(Debug, Default)]
pub struct Cleaned {
    /// What was there, and is not any more.
    pub removed: Vec<String>,
    /// Sentences about what is in use by a run that goes on.
    pub in_use: Vec<String>,
    /// Sentences about what could not be removed.
    pub failed: Vec<String>,
}

/// Removes what ended helpers have left. What a running helper has made is not touched.
pub fn clean() -> Cleaned {
    let mut cleaned = Cleaned::default();
    let (alive, ended): (Vec<Record>, Vec<Record>) = records().into_iter().partition(Record::alive);
    for record in &alive {
        cleaned.in_use.push(format!("helper {} is running; what it has made is left alone", record.pid));
    }
    for record in &ended {
        let Removed { removed, failed } = record.remove_all();
        cleaned.removed.extend(removed);
        cleaned.failed.extend(failed);
    }
    // Groups without a record: whose helper has ended, by the process id in their name.
    let hierarchy = fs::read_to_string("/proc/mounts").ok().and_then(|mounts| Hierarchy::in_mounts(&mounts));
    if let Some(hierarchy) = hierarchy {
        for name in hierarchy.ours() {
            let pid: Option<u32> = name.split('-').nth(1).and_then(|pid| pid.parse().ok());
            if pid.is_none_or(|pid| started(pid).is_some()) {
                continue;
            }
            match hierarchy.remove(&name) {
                Ok(_) => cleaned.removed.push(format!("cgroup {name}")),
                Err(e) => cleaned.failed.push(format!("cgroup {name} could not be removed: {e}")),
            }
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let mut record = Record::mine();
        assert!(record.alive());
        record.started += 1;
        assert!(!record.alive());
    }
    #[test]
    fn files_of_a_record_go_and_absent_ones_are_fine() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("a");
        fs::write(&file, "x").unwrap();
        let record = Record { files: vec![file.clone(), scratch.path().join("b")], ..Record::default() };
        let Removed { removed, failed } = record.remove_all();
        assert_eq!((removed, failed), (vec![file.display().to_string()], vec![]), "only what was there was removed");
        assert!(!file.exists());
    }
}
