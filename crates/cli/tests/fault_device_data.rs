//! Goal: `device serve` refuses data that it cannot serve as it is asked to, by name and with code 2, and leaves them as they were: of another
//! size or geometry, too small, of something else, in use, and what is no file of its owner's alone.
//! Method: a device over NAND is made, written to and killed, so that a start has something to recover; then the program is run with each
//! mistake. The message is looked at, and that every byte in the directory is as it was.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_device::{DeviceFlash, HostConfig, SocketLink};

/// Everything in a directory: what it is, and what is in it.
fn all_of(directory: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let entries = directory.read_dir().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let found = entry.path().symlink_metadata().unwrap();
        let bytes = if found.is_file() { std::fs::read(entry.path()).unwrap() } else { Vec::new() };
        (entry.file_name().to_string_lossy().into_owned(), (found.permissions().mode(), bytes))
    });
    entries.collect()
}

/// Refused with code 2 and a message that has all of `parts`; nothing is created, changed or removed.
fn refused(directory: &Path, words: &[&str], parts: &[&str]) {
    let before = all_of(directory);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fulgurite"));
    command.args(["device", "serve", "--socket", "dev.sock"]).args(words).current_dir(directory);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that is not refused serves without end.
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {message}");
    for part in parts {
        assert!(message.contains(part), "{words:?}: the message lacks \"{part}\": {message}");
    }
    let after = all_of(directory);
    let names = |all: &BTreeMap<String, (u32, Vec<u8>)>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before), "{words:?}");
    for (name, was) in &before {
        assert!(after[name] == *was, "{words:?} has changed {name}; it said: {message}");
    }
}

/// Serves it, has it do something, and kills it. Its socket goes as well.
fn serve(directory: &Path, words: &[&str], work: impl FnOnce(&DeviceFlash)) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fulgurite"));
    command.args(["device", "serve", "--socket", "dev.sock"]).args(words).current_dir(directory);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("dev.sock: "), "{line}");
    let link = Arc::new(SocketLink::connect(&directory.join("dev.sock"), false).unwrap());
    work(&DeviceFlash::over(link, HostConfig { copies: true, ..HostConfig::default() }));
    // Its wear is there by now.
    child.kill().unwrap();
    child.wait().unwrap();
    let _ = std::fs::remove_file(directory.join("dev.sock"));
}

#[test]
fn data_of_a_device_over_nand_of_another_size_or_geometry_are_refused_and_stay_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let at = |name: &str| directory.join(name);
    let made = ["--size", "4M", "--nand", "slc", "--data", "data.img"];
    serve(directory, &made, |flash| {
        let mut commands = flash.commands(4, 64).unwrap();
        for round in 0..4u8 {
            commands.write(0, &vec![round + 1; 1 << 20]).unwrap();
            commands.sync().unwrap();
        }
        // Beyond the last state: recovery has something to pass over.
        commands.write(100, &vec![9; 1 << 20]).unwrap();
    });
    let wear = std::fs::read(at("data.img.nand")).unwrap();
    let with = |size: &str, nand: &str, parts: &[&str]| {
        refused(directory, &["--size", size, "--nand", nand, "--data", "data.img"], parts);
    };
    for kept in [true, false] {
        if !kept {
            std::fs::remove_file(at("data.img.nand")).unwrap();
        }
        with("8G", "slc", &["--data data.img", "make it larger"]);
        for nand in ["mlc", "tlc"] {
            with("4M", nand, &["--data data.img"]);
        }
        // By the state of the NAND, where there is one, and by the store else.
        let part = if kept { "data.img.nand" } else { "--data" };
        for size in ["2M", "3M"] {
            with(size, "slc", &[part]);
        }
        let flat: &[&str] = &["--data", "data.img"];
        refused(directory, flat, &["--data data.img", "--force"]);
        refused(directory, &["--data", "data.img", "--size", "1M"], &["--data data.img", "--force"]);
    }
    std::fs::write(at("data.img.nand"), &wear).unwrap();
    // As it was made it goes on, with its last state.
    serve(directory, &made, |flash| {
        let mut bytes = vec![0; 1 << 20];
        flash.commands(4, 64).unwrap().read(0, &mut bytes).unwrap();
        assert!(bytes[..100 << 12].iter().all(|byte| *byte == 4), "what was synced is there");
    });
}

#[test]
fn a_store_is_not_served_as_another_size_or_as_what_it_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let made = ["--size", "8M", "--store", "--data", "data.img"];
    serve(directory, &made, |flash| {
        let mut commands = flash.commands(4, 64).unwrap();
        commands.write(0, &vec![4; 1 << 20]).unwrap();
        commands.sync().unwrap();
        commands.write(100, &vec![9; 1 << 20]).unwrap();
    });
    let store =
        |size: &str, parts: &[&str]| refused(directory, &["--size", size, "--store", "--data", "data.img"], parts);
    store("4M", &["--data"]);
    store("16M", &["--data data.img", "make it larger"]);
    refused(directory, &["--data", "data.img"], &["--data data.img is a pool", "--force"]);
    refused(directory, &["--size", "1M", "--nand", "slc", "--data", "data.img"], &["--data"]);
    serve(directory, &["--store", "--data", "data.img"], |flash| {
        let mut bytes = vec![0; 1 << 20];
        flash.commands(4, 64).unwrap().read(0, &mut bytes).unwrap();
        assert!(bytes[..100 << 12].iter().all(|byte| *byte == 4), "what was synced is there");
    });
}

#[test]
fn what_is_no_file_of_its_owner_s_alone_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let at = |name: &str| directory.join(name);
    let make = |name: &str, bytes: u64| {
        let file = std::fs::File::create(at(name)).unwrap();
        file.set_len(bytes).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    make("file", 1 << 20);
    symlink("file", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    make("first", 1 << 20);
    std::fs::hard_link(at("first"), at("second")).unwrap();
    make("empty", 0);
    make("odd", 5000);
    make("locked", 1 << 20);
    std::fs::create_dir(at("directory")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _locked = fulgurite_flash::claim(&at("locked")).unwrap();
    let cases: [(&str, &[&str]); 9] = [
        ("link", &["link"]),
        ("dangling", &["link"]),
        ("first", &["hard links"]),
        ("second", &["hard links"]),
        ("empty", &["empty"]),
        ("odd", &["5000"]),
        ("locked", &["in use"]),
        ("directory", &["directory"]),
        ("fifo", &["FIFO"]),
    ];
    for (name, parts) in cases {
        for more in [&[][..], &["--store"], &["--force"]] {
            refused(directory, &[&["--data", name], more].concat(), &[&["--data", name], parts].concat());
        }
    }
    for nand in ["none", "slc"] {
        refused(directory, &["--size", "2G", "--nand", nand, "--data", "file"], &["--data file", "make it larger"]);
    }
}
