//! Flash files that earlier versions left in a directory when their start was killed: files of
//! today have no name.

use std::fs;
use std::path::{Path, PathBuf};

use fulgurite_flash::{OpenError, claim};
use fulgurite_term::leftovers::Cleaned;

/// Removes files of earlier versions from these directories. A program that still starts has its
/// file locked.
pub fn remove(directories: &[PathBuf], cleaned: &mut Cleaned) {
    for directory in directories {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(e) => {
                cleaned.failed.push(format!("{} cannot be read: {e}", directory.display()));
                continue;
            }
        };
        for path in entries.flatten().map(|entry| entry.path()).filter(|path| is_flash(path)) {
            let shown = path.display();
            match claim(&path).map(|_locked| fs::remove_file(&path)) {
                Ok(Ok(())) => cleaned.removed.push(shown.to_string()),
                Ok(Err(e)) => cleaned.failed.push(format!("{shown} could not be removed: {e}")),
                Err(OpenError::InUse { .. }) => cleaned.in_use.push(format!("{shown} is in use and is left alone")),
                Err(e) => cleaned.failed.push(e.to_string()),
            }
        }
    }
}

/// Whether a file has the name that `fulgurite run` gave its flash.
fn is_flash(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let pid = name.and_then(|name| name.strip_prefix("fulgurite-run-"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_nobody_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["fulgurite-run-12", "fulgurite-run-13", "fulgurite-run-x", "fulgurite-run-"] {
            fs::write(path(name), vec![0; 4096]).unwrap();
        }
        let held = claim(&path("fulgurite-run-13")).unwrap();
        let mut cleaned = Cleaned::default();
        remove(&[directory.path().into(), path("none")], &mut cleaned);
        assert_eq!(cleaned.removed, [path("fulgurite-run-12").display().to_string()]);
        assert!(cleaned.in_use.len() == 1 && cleaned.failed.len() == 1, "{:?}", cleaned.failed);
        assert!(!path("fulgurite-run-12").exists() && path("fulgurite-run-13").exists());
        drop(held);
        remove(&[directory.path().into()], &mut cleaned);
        assert_eq!(cleaned.removed.len(), 2);
        assert!(path("fulgurite-run-x").exists() && path("fulgurite-run-").exists());
    }
}
