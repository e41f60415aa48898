//! Memory cgroups, version 1 and 2: make, limit, join, read, remove.
//!
//! Invariant: only groups whose name starts with the helper's prefix are ever changed or removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A mounted hierarchy with the memory controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hierarchy {
    /// 1 or 2.
    pub version: u32,
    /// Where it is mounted.
    pub root: PathBuf,
}

/// How long to wait until the processes of a group have ended and it can be removed.
const REMOVE_PATIENCE: Duration = Duration::from_secs(20);

impl Hierarchy {
    /// Finds the memory controller in the list of mounts (the text of `/proc/mounts`).
    pub fn in_mounts(mounts: &str) -> Option<Hierarchy> {
        let fields = |line: &str| -> Option<(PathBuf, String, String)> {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?.into(), words.next()?.to_owned(), words.next()?.to_owned()))
        };
        let all: Vec<_> = mounts.lines().filter_map(fields).collect();
        let v1 = all.iter().find(|(_, kind, options)| kind == "cgroup" && options.split(',').any(|o| o == "memory"));
        if let Some((root, ..)) = v1 {
            return Some(Hierarchy { version: 1, root: root.clone() });
        }
        let has_memory = |root: &Path| {
            fs::read_to_string(root.join("cgroup.controllers"))
                .is_ok_and(|c| c.split_whitespace().any(|c| c == "memory"))
        };
        let v2 = all.iter().find(|(root, kind, _)| kind == "cgroup2" && has_memory(root));
        v2.map(|(root, ..)| Hierarchy { version: 2, root: root.clone() })
    }

    /// This machine's hierarchy, where this process may make groups in it, else what is missing.
    pub fn usable() -> Result<Hierarchy, String> {
        let mounts = fs::read_to_string("/proc/mounts").map_err(|e| format!("/proc/mounts cannot be read ({e})"))?;
        let Some(found) = Hierarchy::in_mounts(&mounts) else {
            return Err("no memory cgroup controller is mounted".to_owned());
        };
        if found.version == 2 {
            let enabled = fs::read_to_string(found.root.join("cgroup.subtree_control")).unwrap_or_default();
            if !enabled.split_whitespace().any(|c| c == "memory") {
                found.write(Path::new("cgroup.subtree_control"), "+memory").map_err(|e| {
                    format!("the memory controller cannot be enabled for new cgroups ({e}); run as root")
                })?;
            }
        }
        let trial = format!("fulgurite-{}-trial", std::process::id());
        fs::create_dir(found.root.join(&trial))
            .and_then(|()| fs::remove_dir(found.root.join(&trial)))
            .map_err(|e| format!("a memory cgroup cannot be made in {} ({e}); run as root", found.root.display()))?;
        Ok(found)
    }

    fn write(&self, file: &Path, value: &str) -> io::Result<()> {
        // Control files exist already, and a truncating open is refused by some.
        use std::io::Write;
        fs::OpenOptions::new().write(true).open(self.root.join(file))?.write_all(value.as_bytes())
    }

    /// Makes a group. With `no_swap`, what it uses of memory and swap together is limited.
    pub fn make(&self, name: &str, limit_bytes: u64, no_swap: bool) -> io::Result<()> {
        let group = Path::new(name);
        fs::create_dir(self.root.join(group))?;
        let limit = limit_bytes.to_string();
        if self.version == 1 {
            self.write(&group.join("memory.limit_in_bytes"), &limit)?;
            let both = group.join("memory.memsw.limit_in_bytes");
            // Absent in kernels without swap accounting.
            if no_swap && self.root.join(&both).exists() {
                self.write(&both, &limit)?;
            }
        } else {
            self.write(&group.join("memory.max"), &limit)?;
            let swap = group.join("memory.swap.max");
            if no_swap && self.root.join(&swap).exists() {
                self.write(&swap, "0")?;
            }
        }
        Ok(())
    }

    /// Takes a group's limits away; what it has in swap it may bring back.
    pub fn lift(&self, name: &str) -> io::Result<()> {
        let group = Path::new(name);
        // The limit of memory and swap together first: it may not be below the other.
        let (files, none) = match self.version {
            1 => (["memory.memsw.limit_in_bytes", "memory.limit_in_bytes"], "-1"),
            _ => (["memory.swap.max", "memory.max"], "max"),
        };
        for file in files.map(|file| group.join(file)) {
            // Absent in kernels without swap accounting.
            if self.root.join(&file).exists() {
                self.write(&file, none)?;
            }
        }
        Ok(())
    }

    /// Puts a process into a group.
    pub fn join(&self, name: &str, pid: u32) -> io::Result<()> {
        self.write(&Path::new(name).join("cgroup.procs"), &pid.to_string())
    }

    /// Highest use in bytes, and how many processes were killed for want of memory.
    pub fn peak(&self, name: &str) -> io::Result<(u64, u64)> {
        let group = self.root.join(name);
        let (peak, events) = match self.version {
            1 => ("memory.max_usage_in_bytes", "memory.oom_control"),
            _ => ("memory.peak", "memory.events"),
        };
        let number = |text: String| text.trim().parse().map_err(io::Error::other);
        let bytes = number(fs::read_to_string(group.join(peak))?)?;
        let events = fs::read_to_string(group.join(events)).unwrap_or_default();
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        Ok((bytes, killed.unwrap_or(0)))
    }

    /// Ends all processes of a group, and removes it. A missing group is fine.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        assert!(name.starts_with("fulgurite-"), "only our own groups are removed, not {name}");
        let group = self.root.join(name);
        let end = Instant::now() + REMOVE_PATIENCE;
        loop {
            for pid in members(&group) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            match fs::remove_dir(&group) {
                Ok(()) => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(e) if Instant::now() >= end => return Err(e),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Names of the groups that any helper has made.
    pub fn ours(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Vec::new() };
        let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        entries.filter_map(name).filter(|n| n.starts_with("fulgurite-")).collect()
    }
}

fn members(group: &Path) -> Vec<rustix::process::Pid> {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    list.lines().filter_map(|line| rustix::process::Pid::from_raw(line.trim().parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_found_next_to_2() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = Hierarchy::in_mounts(mounts).unwrap();
        assert_eq!((found.version, found.root), (1, "/sys/fs/cgroup/memory".into()));
    }
    #[test]
    fn version_2_needs_the_controller() {
        let root = tempfile::tempdir().unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", root.path().display());
        assert_eq!(Hierarchy::in_mounts(&mounts), None);
        fs::write(root.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        assert_eq!(Hierarchy::in_mounts(&mounts).unwrap().version, 2);
    }
    #[test]
    fn version_2_files_are_written_and_read() {
        let root = tempfile::tempdir().unwrap();
        let cgroups = Hierarchy { version: 2, root: root.path().to_owned() };
        // A plain directory stands in: `make` creates the group, whose files the kernel would add.
        assert!(cgroups.make("fulgurite-1-a", 1 << 20, true).is_err());
        for file in ["memory.max", "memory.swap.max", "cgroup.procs"] {
            fs::write(root.path().join("fulgurite-1-a").join(file), "").unwrap();
        }
        fs::write(root.path().join("fulgurite-1-a/memory.peak"), "4096\n").unwrap();
        fs::write(root.path().join("fulgurite-1-a/memory.events"), "low 0\noom 2\noom_kill 1\n").unwrap();
        cgroups.join("fulgurite-1-a", 0).unwrap();
        cgroups.lift("fulgurite-1-a").unwrap();
        assert_eq!(fs::read_to_string(root.path().join("fulgurite-1-a/memory.max")).unwrap(), "max");
        assert_eq!(cgroups.peak("fulgurite-1-a").unwrap(), (4096, 1));
        assert_eq!(cgroups.ours(), ["fulgurite-1-a"]);
    }
}
