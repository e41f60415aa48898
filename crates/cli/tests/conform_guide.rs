//! Goal: every command that README.md, `docs/guide` and docs/run.md show runs, and prints what is
//! shown. Method: their blocks, as [`crate::blocks`] runs them. The targets, examples and options
//! that blocks name which are not run must exist.

use std::fs;
use std::path::PathBuf;

use crate::blocks::{root, run_all, wrong_names};

const FILES: [(&str, &str); 1] = [("examples", "examples")];

fn documents() -> Vec<PathBuf> {
    let guide = fs::read_dir(root().join("docs/guide")).expect("there is a guide");
    let mut found: Vec<PathBuf> = guide.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.extend(["README.md", "docs/run.md"].map(|name| root().join(name)));
    found.sort();
    found
}

#[test]
fn commands_run_and_print_what_is_shown() {
    let documents = documents();
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = documents.iter().map(|document| scope.spawn(|| run_all(document, &FILES))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread does not panic")).collect()
    });
    let failed: Vec<String> = results.iter().flat_map(|(failed, _)| failed.clone()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let count: usize = results.iter().map(|(_, count)| count).sum();
    assert!(count >= 9, "only {count} blocks of commands were found");
}

#[test]
fn commands_that_are_not_run_name_what_exists() {
    let wrong: Vec<String> = documents().iter().flat_map(|document| wrong_names(document)).collect();
    assert!(wrong.is_empty(), "what does not exist:\n{}", wrong.join("\n"));
}
