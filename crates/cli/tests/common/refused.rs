//! Shared by the tests of bad input: the program in a directory, and its refusal before anything is
//! created.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program there.
pub fn run(directory: &Path, words: &[&str]) -> Output {
    Command::new(crate::PROGRAM)
        .args(words)
        .current_dir(directory)
        .env("TMPDIR", directory)
        .output()
        .expect("the program starts")
}

/// What is there, by name.
pub fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        directory.read_dir().unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Refused with code 2 and a message that has all of `parts`, and nothing was created.
pub fn refused(directory: &Path, words: &[&str], parts: &[&str]) -> Output {
    let before = entries(directory);
    let output = run(directory, words);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {message}");
    for part in parts {
        assert!(message.contains(part), "{words:?}: the message lacks \"{part}\": {message}");
    }
    assert_eq!(entries(directory), before, "{words:?} created something");
    output
}
