//! Goal: every bad input gets one clear message and exit code 2, before anything is created, and
//! before text is searched for. Method: run the program with each in an empty directory. Check the
//! code, the message and the directory.

use std::path::Path;

use crate::refused as refusal;
use refusal::run;

/// Runs a program that must refuse its input, and checks that it printed nothing but the message.
fn refused_in(directory: &Path, words: &[&str], parts: &[&str]) {
    let output = refusal::refused(directory, words, parts);
    assert!(output.stdout.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
}

fn refused(words: &[&str], parts: &[&str]) {
    refused_in(tempfile::tempdir().unwrap().path(), words, parts);
}

#[test]
fn values() {
    refused(&["--dram", "-3%"], &["above 0%"]);
    refused(&["--dram=9000T"], &["more than this machine has"]);
    refused(&["--config=fulgurit"], &["did you mean \"fulgurite\""]);
    refused(&["--act=serch"], &["did you mean \"search\""]);
    refused(&["--report", "no/such.html"], &["--report", "does not exist"]);
    // A directory in which root has every right, and can make no file all the same.
    refused(&["--report", "/proc/x.html"], &["--report", "cannot be written"]);
    refused(&["--dir=nowhere"], &["--dir nowhere is not a directory"]);
}

/// Each refusal names what was written, and offers what there is.
#[test]
fn flash() {
    refused(&["--flash=./missing"], &["does not exist", "--create"]);
    refused(&["--create"], &["--create needs --flash FILE"]);
    refused(&["--flash=/nope/x"], &["--flash /nope/x does not exist", "--create"]);
    refused(&["--flash=/nope/x", "--create"], &["--flash /nope/x", "the directory /nope does not exist"]);
    refused(&["--act=survive", "--flash=/nope/x"], &["--flash /nope/x", "/nope does not exist", "--dir"]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("small"), vec![0; 1 << 20]).unwrap();
    refused_in(directory.path(), &["--flash=./small"], &["1.0 MiB, too little for an index", "make it larger"]);
    assert!(!String::from_utf8_lossy(&run(directory.path(), &["--flash=./small"]).stderr).contains("--data"));
    let mut create = std::process::Command::new(crate::fulgurite());
    create.args(["pool", "create", "kept.pool", "--size=16M"]).current_dir(directory.path());
    assert!(create.status().unwrap().success());
    refused_in(directory.path(), &["--flash=./kept.pool"], &["is a pool", "--force"]);
}

#[test]
fn text() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir_all(at("empty/inside")).unwrap();
    std::fs::create_dir(at("noise")).unwrap();
    std::fs::write(at("noise/a.bin"), [0u8, 1, 2, 255]).unwrap();
    std::fs::write(at("file"), "words").unwrap();
    for (input, part) in [
        ("nowhere", "does not exist"),
        ("file", "not a directory"),
        ("empty", "no readable text"),
        ("noise", "no readable text"),
    ] {
        refused_in(directory.path(), &["--quick", "--input", input], &["--input", part]);
    }
}

#[test]
fn help_has_examples() {
    let output = run(tempfile::tempdir().unwrap().path(), &["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Examples:"));
}
