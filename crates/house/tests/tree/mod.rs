//! The text files of the tree, for tests that read them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

pub struct File {
    /// Relative to the root of the tree.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn is(&self, extension: &str) -> bool {
        self.path.ends_with(extension)
    }
    pub fn is_test(&self) -> bool {
        self.path.contains("/tests/")
    }
    /// The lines with their numbers, up to the unit tests at the foot of a source file.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let foot = |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        self.text.lines().enumerate().take_while(move |(_, line)| !foot(line)).map(|(i, line)| (i + 1, line))
    }
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

fn walk(root: &Path, directory: &Path, into: &mut Vec<File>) {
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.expect("a directory can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), ".git" | "target" | ".venv") {
                walk(root, &path, into);
            }
            continue;
        }
        let wanted = [".rs", ".md", ".toml", ".sh", ".json"].iter().any(|e| name.ends_with(e))
            || name == "Makefile"
            || directory.file_name().is_some_and(|d| d == "scripts" || d == ".ci");
        if let (true, Ok(text)) = (wanted, fs::read_to_string(&path)) {
            let path = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            into.push(File { path, text });
        }
    }
}

/// All text files of the tree, in order.
pub fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists");
    let mut found = Vec::new();
    walk(&root, &PathBuf::from(&root), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.iter().any(|f| f.path == "README.md"), "the tree was not found");
    found
}

pub fn none(what: &str, offenders: &[String]) {
    assert!(offenders.is_empty(), "{what}:\n  {}", offenders.join("\n  "));
}
