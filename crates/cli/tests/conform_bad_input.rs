//! Goal: every bad input gets one clear message and exit code 2, before anything is created.
//! Method: run the program with each in an empty directory. Check the code, the message and the
//! directory.

use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use crate::{help, refused as refusal};

/// As `refusal::refused`, and nothing was printed but the message.
fn refused_in(directory: &Path, words: &[&str], parts: &[&str]) {
    let output = refusal::refused(directory, words, parts);
    assert!(output.stdout.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn values_below_zero() {
    let directory = tempfile::tempdir().unwrap();
    refused_in(directory.path(), &["pool", "create", "a.pool", "--size", "-1G"], &["--size", "negative"]);
}

/// One line says where it is.
#[test]
fn what_moved_is_refused_by_its_new_name() {
    let directory = tempfile::tempdir().unwrap();
    for (words, name) in [
        (&["bench", "live", "--quick"][..], "fulgurite-lab live"),
        (&["bench"], "fulgurite-lab"),
        (&["demo", "--quick"], "fulgurite-demo"),
        (&["reproduce", "A5", "--json"], "fulgurite-lab reproduce"),
        (&["sim", "run", "nand-only.toml"], "fulgurite-lab sim"),
        (&["device", "bench", "--quick"], "fulgurite-lab device"),
    ] {
        let output = refusal::refused(directory.path(), words, &[name]);
        assert!(output.stdout.is_empty());
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{words:?}");
    }
}

#[test]
fn devices() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let serve = |words: &[&str], parts: &[&str]| {
        // In whatever order they are judged: all else is well.
        let socket: &[&str] = if words.iter().any(|w| w.starts_with("--socket")) { &[] } else { &["--socket=sock"] };
        refused_in(directory.path(), &[&["device", "serve"], words, socket].concat(), parts);
    };
    serve(&[], &["needs --size"]);
    serve(&["--size=0"], &["--size", "zero"]);
    serve(&["--size=6000"], &["no multiple of 4096"]);
    serve(&["--size=16T"], &["more than a device can have"]);
    serve(&["--size=9T"], &["takes 9.0 TiB of memory", "--data"]);
    serve(&["--size=1M", "--core=100000"], &["--core 100000", "choose one of"]);
    serve(&["--size=1M", "--queues=0"], &["--queues"]);
    serve(&["--size=1M", "--wear=worn"], &["--wear", "add --nand"]);
    serve(&["--size=8M", "--nand=slc", "--wear=worn"], &["--wear", "add --data"]);
    let worn = |wear, parts: &[&str]| serve(&["--size=8M", "--nand=slc", "--data=data", wear], parts);
    worn("--wear=nowhere/worn", &["--wear", "nowhere does not exist"]);
    worn("--wear=.", &["--wear", "a file of its own"]);
    worn("--wear=data", &["--wear", "a file of its own"]);
    let devices = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut blocks = devices.filter(|entry| entry.file_type().is_ok_and(|found| found.is_block_device()));
    if let Some(block) = blocks.next() {
        let data = format!("--data={}", block.path().display());
        serve(&["--size=8M", "--nand=slc", &data], &["is a block device", "add --wear FILE"]);
    }
    serve(&["--size=1M", "--write-cache=6000"], &["--write-cache 6000", "multiple of 4096", "up to 1.0 MiB"]);
    serve(&["--size=1M", "--write-cache=2M"], &["--write-cache", "up to 1.0 MiB"]);
    serve(&["--size=4G", "--write-cache=1G"], &["--write-cache", "up to 64.0 MiB"]);
    serve(&["--size=1M", "--nand=slc", "--write-cache=64K"], &["--write-cache", "without a store"]);
    serve(&["--size=1M", "--boot=./missing"], &["--boot ./missing", "No such file"]);
    serve(&["--size=1M", "--boot=."], &["--boot .", "no regular file"]);
    std::fs::write(at("empty"), "").unwrap();
    serve(&["--size=1M", "--boot=./empty"], &["--boot ./empty is empty"]);
    std::fs::File::create(at("large")).unwrap().set_len((64 << 20) + 1).unwrap();
    serve(&["--size=1M", "--boot=./large"], &["--boot ./large has more than 64.0 MiB"]);
    // The NAND: a slip, a file that is none, what is wrong in it.
    serve(&["--size=1M", "--nand=mcl"], &["no such file or profile", "mlc"]);
    serve(&["--size=1M", "--nand=./missing.toml"], &["./missing.toml cannot be read"]);
    std::fs::write(at("words.toml"), "flash that is fast").unwrap();
    serve(&["--size=1M", "--nand=./words.toml"], &["./words.toml"]);
    std::fs::write(at("keys.toml"), "[geometry]\nchanels = 8\n").unwrap();
    serve(&["--size=1M", "--nand=./keys.toml"], &["./keys.toml", "chanels"]);
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../nand/profiles/mlc.toml");
    let long =
        std::fs::read_to_string(profile).unwrap().replacen("pages_per_block = 256", "pages_per_block = 300000000", 1);
    std::fs::write(at("long.toml"), long).unwrap();
    serve(&["--size=1M", "--nand=./long.toml"], &["./long.toml", "pages_per_block = 300000000", "at most 65536"]);
    serve(&["--nand=slc"], &["needs --size"]);
    std::fs::write(at("other"), "something else").unwrap();
    std::fs::File::options().write(true).open(at("other")).unwrap().set_len(1 << 30).unwrap();
    serve(&["--nand=slc", "--size=4M", "--data=./other"], &["--data", "holds no device over NAND"]);
    serve(&["--nand=slc", "--size=4G", "--data=./other"], &["--data ./other has", "make it larger"]);
    // Places for sockets.
    std::fs::write(at("file"), "precious").unwrap();
    symlink("file", at("link")).unwrap();
    let _taken = std::os::unix::net::UnixListener::bind(at("taken")).unwrap();
    for option in ["--socket", "--nbd"] {
        let place = |place: &str, parts: &[&str]| serve(&["--size=1M", &format!("{option}={place}")], parts);
        place("./file", &[option, "exists and is no socket"]);
        place("./link", &[option, "symbolic link"]);
        place("./taken", &[option, "in use"]);
        place("./no/such/directory", &[option, "the directory ./no/such does not exist"]);
    }
    serve(&["--size=1M", "--nbd=0.0.0.0:10809"], &["--nbd", "can be reached from elsewhere"]);
    serve(&["--size=1M", "--nbd=example.org:10809"], &["--nbd", "no place for an NBD server"]);
    serve(&["--size=1M", "--nbd=sock"], &["name the same path"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let word = format!("--nbd={}", port.local_addr().unwrap());
    serve(&["--size=1M", &word], &["--nbd", "in use"]);
    // What keeps the data.
    serve(&["--data=./missing"], &["--data ./missing does not exist", "--size"]);
    serve(&["--data=./no/such", "--size=1M"], &["--data ./no/such", "does not exist"]);
    serve(&["--data=./link"], &["--data", "symbolic link"]);
    serve(&["--data=."], &["--data", "is a directory"]);
    serve(&["--data=./file"], &["no whole number of sectors"]);
    serve(&["--data=./file", "--size=1M"], &["--data ./file has", "make it larger"]);
    let held = std::fs::File::create(at("held")).unwrap();
    held.set_len(1 << 20).unwrap();
    assert!(rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).is_ok());
    serve(&["--data=./held"], &["--data", "in use by another process"]);
    assert_eq!(std::fs::read(at("file")).unwrap(), b"precious");
}

#[test]
fn help_has_examples_and_ends_well() {
    // The program, run, top, pool and its twelve, device and its three, cleanup, completions, man.
    help::check_examples("fulgurite", 23);
}

#[test]
fn messages_without_a_reader() {
    // Refused by the parser, in its words and in Fulgurite's, by the command, and not at all.
    let cases: [(&[&str], i32); 4] = [
        (&["pool", "create"], 2),
        (&["device", "serve", "--queues=x"], 2),
        (&["pool", "info", "nowhere.pool"], 2),
        (&["completions", "bash"], 0),
    ];
    help::ends_without_a_reader(&cases);
}
