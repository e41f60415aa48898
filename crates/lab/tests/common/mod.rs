//! What the tests of the program's leavings look for.

use std::path::PathBuf;

/// Cgroups that the helper with this process id has made.
pub fn groups_of(pid: impl std::fmt::Display) -> Vec<PathBuf> {
    let prefix = format!("fulgurite-{pid}-");
    let named = |root: &str| -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
        let ours = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix));
        entries.flatten().map(|e| e.path()).filter(ours).collect()
    };
    ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].into_iter().flat_map(named).collect()
}
