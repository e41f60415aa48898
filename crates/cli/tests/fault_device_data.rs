//! Goal: `device serve` refuses data that it cannot serve as asked, by name and with code 2, and
//! leaves them as they were: another size or geometry, too small, foreign, in use, not a file of
//! its owner's alone. `--force` overwrites foreign data and wear. What it was killed while it made
//! is made by the next start. Method: a device over NAND is made, written to and killed, so that a
//! start must recover. Then the program runs with each mistake. The message and every byte in the
//! directory are compared. Files that begin with zeros hold something behind them. And data are
//! made by processes that are killed at random moments.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
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

/// Refused with code 2 and a message with all of `parts`. Nothing is created, changed or removed.
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

/// Serves it, has it do something, and kills it. Its socket is removed as well.
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

/// A file of its owner's alone, of zeros that were never written.
fn blank(path: &Path, bytes: u64) -> std::fs::File {
    let file = std::fs::File::create(path).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
    file.set_len(bytes).unwrap();
    file
}

/// What a device holds in its first MiB.
fn first(flash: &DeviceFlash) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    flash.commands(4, 64).unwrap().read(0, &mut bytes).unwrap();
    bytes
}

const STORE: &[&str] = &["--store"];
const NAND: &[&str] = &["--size", "1M", "--nand", "slc"];
/// Enough for it.
const NAND_BYTES: u64 = 112 << 20;

#[test]
fn what_begins_with_zeros_and_holds_something_is_not_taken_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let cases: [(u64, &[u8], &str); 5] = [
        (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
        (0x8001, b"CD001", "an ISO-9660 file system"),
        (0x3fd8, b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02", "a part of a ZFS pool"),
        // The sectors of a flat image whose first ones nobody has written.
        (9000, b"x", "data of an unknown kind"),
        (7 << 20, &[7; 4096], "data of an unknown kind (at byte 7340032)"),
    ];
    for (at, bytes, says) in cases {
        blank(&directory.join("data"), 8 << 20).write_all_at(bytes, at).unwrap();
        refused(directory, &[STORE, &["--data", "data"]].concat(), &["--data data", says, "--force"]);
    }
    // This holds over NAND, too, which wants a larger one.
    let (at, bytes, says) = cases[4];
    blank(&directory.join("data"), NAND_BYTES).write_all_at(bytes, at).unwrap();
    refused(directory, &[NAND, &["--data", "data"]].concat(), &["--data data", says, "--force"]);
    std::fs::remove_file(directory.join("data")).unwrap();
    // Only the first file of a pool that spans several begins with its superblock.
    let mut create = Command::new(env!("CARGO_BIN_EXE_fulgurite"));
    create.args(["pool", "create", "one", "two", "--size", "16M"]).current_dir(directory);
    assert!(create.output().unwrap().status.success());
    for member in ["one", "two"] {
        let words = [STORE, &["--data", member]].concat();
        refused(directory, &words, &[&format!("--data {member}"), "one file of several that a pool spans", "--force"]);
    }
}

/// With `--force` what is there is gone, but for a store: that is served, and holds what it held.
#[test]
fn force_uses_up_what_is_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    for (below, name, bytes) in [(STORE, "store", 8 << 20), (NAND, "nand", NAND_BYTES)] {
        blank(&directory.join(name), bytes).write_all_at(b"CD001", 0x8001).unwrap();
        let plain = [below, &["--data", name]].concat();
        let forced = [&plain[..], &["--force"]].concat();
        refused(directory, &plain, &["an ISO-9660 file system"]);
        serve(directory, &forced, |flash| {
            let mut commands = flash.commands(4, 64).unwrap();
            commands.write(0, &vec![4; 1 << 20]).unwrap();
            commands.sync().unwrap();
        });
        for words in [&plain, &forced] {
            serve(directory, words, |flash| assert!(first(flash) == vec![4; 1 << 20], "{words:?}"));
        }
    }
}

#[test]
fn the_file_of_the_wear_is_its_own_and_takes_the_place_of_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let at = |name: &str| directory.join(name);
    let with = |words: &[&str], parts: &[&str]| {
        for force in [&[][..], &["--force"]] {
            refused(directory, &[NAND, words, force].concat(), parts);
        }
    };
    // One file, however its path is written, whether it is there or not.
    let absolute = at("n.img").to_str().unwrap().to_owned();
    std::fs::create_dir(at("inner")).unwrap();
    for wear in ["n.img", "./n.img", "inner/../n.img", absolute.as_str()] {
        with(&["--data", "n.img", "--wear", wear], &["--data n.img", "a file of its own"]);
    }
    with(&["--data", "n.new", "--wear", "n"], &["--data n.new", "before it is renamed"]);
    blank(&at("there"), 1 << 20);
    with(&["--data", "there", "--wear", "./there"], &["--data there", "a file of its own"]);
    std::fs::remove_file(at("there")).unwrap();
    std::fs::write(at("loader"), "an image").unwrap();
    let booted = [NAND, &["--data", "n.img", "--boot", "./loader", "--wear", "loader", "--force"]].concat();
    refused(directory, &booted, &["--boot ./loader", "a file of its own"]);
    with(&["--data", "n.img", "--wear", "./dev.sock"], &["--socket dev.sock", "a file of its own"]);
    with(&["--data", "n.img", "--nbd", "./nbd", "--wear", "nbd"], &["--nbd ./nbd", "a file of its own"]);
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../nand/profiles/mlc.toml");
    std::fs::copy(profile, at("mine.toml")).unwrap();
    let of_file = ["--size", "1M", "--nand", "mine.toml", "--data", "n.img", "--wear", "./mine.toml", "--force"];
    refused(directory, &of_file, &["--nand mine.toml", "a file of its own"]);
    // What is there and is nothing of the device that is to be made.
    let kept = |words: &[&str], parts: &[&str]| refused(directory, &[NAND, words].concat(), parts);
    let else_than = "something else than the state of a NAND device";
    kept(&["--data", "n.img", "--wear", "loader"], &["loader", else_than, "--force"]);
    for name in ["n.img.nand", "n.img.nand.new"] {
        std::fs::write(at(name), "precious").unwrap();
        kept(&["--data", "n.img"], &[name, else_than, "--force"]);
        std::fs::remove_file(at(name)).unwrap();
    }
    let words = [NAND, &["--data", "n.img", "--wear", "loader", "--force"]].concat();
    serve(directory, &words, |_| {
        let begun = Instant::now();
        while !std::fs::read(at("loader")).unwrap().starts_with(b"FULGNAND") {
            assert!(begun.elapsed() < Duration::from_secs(60), "the wear is not written");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    // Nor is the state of another device.
    kept(&["--data", "m.img", "--wear", "loader"], &["loader", "it is the state of a NAND device", "--force"]);
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

#[test]
fn a_device_that_is_killed_while_its_data_are_made_is_served_later() {
    let program = env!("CARGO_BIN_EXE_fulgurite");
    let kinds = ["--size 4M", "--size 4M --nand slc", "--size 16M --store"];
    let kills = kinds.map(|kind| {
        let directory = tempfile::tempdir_in(Path::new(program).parent().unwrap()).unwrap();
        fulgurite_testkit::kill_makers(kind, directory.path(), |directory| {
            // It prints a line when it serves.
            let script = format!("exec $0 device serve --socket dev.sock --data data/data.img {kind} >marks/made");
            let mut child = Command::new("sh");
            child.args(["-c", &script, program]).current_dir(directory);
            child
        })
    });
    fulgurite_testkit::figure(26, "kills of makers of device data", kills.iter().sum());
}
