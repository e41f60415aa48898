//! Goal: a device served as a block device keeps flushed data over kill -9, is its owner's alone,
//! and leaves no socket. Its host repeats unflushed writes, or says that they are lost. It keeps to
//! its DRAM budget. Method: run the program in an empty directory, kill it, and speak to its NBD
//! socket. A device with a budget is written to, flushed, attached to until it refuses, and asked
//! for its state.

use std::io::{BufRead, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_device::{DeviceFlash, HostConfig, SocketLink};
use fulgurite_flash::{Flash, FlashError, Op, Queue, Request};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Geometry, Store};
use fulgurite_sys::{Arena, Backed, Notifier};
use serde_json::Value;
use served::Served;

use crate::refused::{refused, run};
use crate::served;

/// The end of a command: its error, and the data of a read.
fn call(stream: &mut UnixStream, command: u16, offset: u64, length: u32, payload: &[u8]) -> (u32, Vec<u8>) {
    let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
    request.extend([0, 0]);
    request.extend(command.to_be_bytes());
    request.extend(7u64.to_be_bytes());
    request.extend(offset.to_be_bytes());
    request.extend(length.to_be_bytes());
    request.extend(payload);
    stream.write_all(&request).unwrap();
    let mut head = [0; 16];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..4], 0x6744_6698u32.to_be_bytes());
    let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
    let mut data = vec![0; if command == 0 && error == 0 { length as usize } else { 0 }];
    stream.read_exact(&mut data).unwrap();
    (error, data)
}

/// Connects to the export; its size.
fn connect(path: &Path) -> (UnixStream, u64) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert!(greeting.starts_with(b"NBDMAGICIHAVEOPT"));
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    let mut export = [0; 10];
    stream.read_exact(&mut export).unwrap();
    (stream, u64::from_be_bytes(export[..8].try_into().unwrap()))
}

#[test]
fn what_was_flushed_survives_the_device() {
    flushed_survives(None, &[]);
}

#[test]
fn what_was_flushed_survives_a_device_over_nand() {
    flushed_survives(Some("slc"), &[]);
}

/// Writes that complete in DRAM are in the file after a flush nevertheless.
#[test]
fn what_was_flushed_survives_a_device_with_a_write_buffer() {
    flushed_survives(None, &["--write-cache", "64K"]);
}

/// Data are copied unless frames are asked to be shared; a device that may not have them says so.
/// An image comes back as it was, filled up to whole sectors; of a device without one, a sentence.
#[test]
fn of_a_large_nand_no_more_is_made_than_the_size_takes() {
    let directory = tempfile::tempdir().unwrap();
    // Of 128 GiB and more, all of which a device would come to write.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../nand/profiles/mlc.toml");
    let mut served = Served::start(directory.path(), &["--size", "64M", "--data", "data.img", "--nand", file]);
    served.signal(rustix::process::Signal::INT);
    assert!(served.child.wait().unwrap().success());
    let bytes = std::fs::metadata(directory.path().join("data.img")).unwrap().len();
    assert!((80 << 20..512 << 20).contains(&bytes), "{bytes}");
}

#[test]
fn a_served_device_says_how_it_stands() {
    let directory = tempfile::tempdir().unwrap();
    let info = |more: &[&str]| {
        let words = [&["device", "info", "--socket", "dev.sock"], more].concat();
        Command::new(env!("CARGO_BIN_EXE_fulgurite")).args(words).current_dir(directory.path()).output().unwrap()
    };
    let logged = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let nobody = logged(&info(&[]));
    for part in ["cannot connect to dev.sock", "is it served there? `fulgurite device serve --socket dev.sock`"] {
        assert!(nobody.contains(part), "no \"{part}\" in {nobody}");
    }
    let _served = Served::start(directory.path(), &["--size", "4M", "--data", "data.img"]);
    let looked = || -> serde_json::Value {
        let output = info(&["--json"]);
        assert!(output.status.success(), "{}", logged(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let before = looked();
    assert_eq!((&before["bytes"], &before["sectors_written"]), (&(4 << 20).into(), &0.into()));
    let link = Arc::new(SocketLink::connect(&directory.path().join("dev.sock"), false).unwrap());
    let flash = DeviceFlash::over(link, HostConfig::default());
    flash.commands(1, 4).unwrap().write(0, &[7; 3 * SUBPAGE_BYTES]).unwrap();
    assert_eq!(looked()["sectors_written"], 3);
    let output = info(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("size       4.0 MiB") && text.contains("written    3 sectors"), "{text}");
}

#[test]
fn an_image_is_read_from_the_boot_region() {
    let directory = tempfile::tempdir().unwrap();
    let mut image: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(directory.path().join("loader.img"), &image).unwrap();
    let boot = || {
        Command::new(env!("CARGO_BIN_EXE_fulgurite"))
            .args(["device", "boot", "--socket", "dev.sock"])
            .current_dir(directory.path())
            .output()
            .unwrap()
    };
    let logged = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let served = Served::start(directory.path(), &["--size", "4M", "--nand", "slc", "--boot", "loader.img"]);
    let output = boot();
    assert!(output.status.success(), "{}", logged(&output));
    image.resize(8192, 0);
    assert!(output.stdout == image, "{} bytes", output.stdout.len());
    drop(served);
    let _served = Served::start(directory.path(), &["--size", "4M"]);
    let output = boot();
    assert!(!output.status.success() && logged(&output).contains("no boot region"), "{}", logged(&output));
}

/// A store gives up whole pages of 64 KiB that a client trims, which can be written again. Plain
/// memory is not asked to.
#[test]
fn a_store_gives_up_what_is_trimmed() {
    let (read, write, trim, flush) = (0, 1, 4, 3);
    let directory = tempfile::tempdir().unwrap();
    let serve = |nand| Served::start(directory.path(), &["--size", "4M", "--nbd", "nbd.sock", "--nand", nand]);
    let served = serve("slc");
    let (mut stream, _) = connect(&directory.path().join("nbd.sock"));
    let mut expected = vec![7u8; 256 << 10];
    assert_eq!(call(&mut stream, write, 0, 256 << 10, &expected).0, 0);
    assert_eq!(call(&mut stream, trim, 60 << 10, 100 << 10, b"").0, 0);
    expected[64 << 10..128 << 10].fill(0);
    assert_eq!(call(&mut stream, read, 0, 256 << 10, b""), (0, expected.clone()));
    assert_eq!(call(&mut stream, write, 70_000, 3, b"new").0, 0);
    expected[70_000..70_003].copy_from_slice(b"new");
    assert_eq!(call(&mut stream, flush, 0, 0, b"").0, 0);
    assert_eq!(call(&mut stream, read, 0, 256 << 10, b""), (0, expected));
    assert_eq!(call(&mut stream, trim, 4 << 20, 4096, b"").0, 28, "there is no such place");
    drop(served);
    let _served = serve("none");
    let (mut stream, _) = connect(&directory.path().join("nbd.sock"));
    assert_eq!(call(&mut stream, trim, 0, 4096, b"").0, 95, "not supported");
}

/// The file next to the data is used, and refused by name if it is another device's, newer or
/// damaged.
fn wear_survives(directory: &Path, words: &[&str]) {
    let file = directory.join("data.img.nand");
    let state = std::fs::read(&file).unwrap();
    let with = |at: usize, byte: u8| {
        let mut changed = state.clone();
        changed[at] = byte;
        changed
    };
    let last = state.len() - 1;
    let cases = [
        (with(8, 9), "it is of version 9"),
        (with(last, state[last] ^ 1), "it is damaged"),
        (state[..100].to_vec(), "it is damaged"),
        (b"something else".to_vec(), "no state of a NAND device"),
    ];
    for (bytes, part) in cases {
        std::fs::write(&file, bytes).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
            .args(["device", "serve", "--socket", "dev.sock"])
            .args(words)
            .current_dir(directory)
            .output()
            .unwrap();
        let logged = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{logged}");
        assert!(logged.contains("data.img.nand") && logged.contains(part), "{logged}");
    }
    // As it was. Data is not served without its NAND by mistake, with or without that file.
    let refused = |part: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
            .args(["device", "serve", "--socket", "dev.sock", "--data", "data.img"])
            .current_dir(directory)
            .output()
            .unwrap();
        let logged = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{logged}");
        assert!(logged.contains(part) && logged.contains("--force"), "{logged}");
    };
    std::fs::remove_file(&file).unwrap();
    refused("is a pool");
    std::fs::write(&file, &state).unwrap();
    refused("data.img.nand");
    // The device goes on, and has worn no less at the end.
    let mut served = Served::start(directory, words);
    served.signal(rustix::process::Signal::INT);
    assert!(served.child.wait().unwrap().success());
    assert_eq!(std::fs::read(&file).unwrap().len(), state.len());
    std::fs::remove_file(&file).unwrap();
}

fn flushed_survives(nand: Option<&str>, more: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let nbd = directory.path().join("nbd.sock");
    let words = ["--size", "4M", "--data", "data.img", "--nbd", "nbd.sock", "--nand", nand.unwrap_or("none")];
    let words = [&words, more].concat();
    let (read, write, flush) = (0, 1, 3);
    let mut expected = vec![0u8; 4 << 20];
    for round in 0..3u8 {
        // After kill -9 its sockets are still there, and no obstacle.
        let mut served =
            Served::start(directory.path(), if round == 0 || nand.is_some() { &words } else { &words[2..] });
        let mut line = String::new();
        served.logged.read_line(&mut line).unwrap();
        assert_eq!(line, "NBD: nbd+unix:///fulgurite?socket=nbd.sock\n");
        assert_eq!(std::fs::metadata(&nbd).unwrap().permissions().mode() & 0o777, 0o600);
        let (mut stream, bytes) = connect(&nbd);
        assert_eq!(bytes, 4 << 20);
        assert_eq!(call(&mut stream, read, 0, 4 << 20, b""), (0, expected.clone()));
        let at = 1000 + usize::from(round) * 777_777;
        let data = vec![round + 1; 100_000];
        assert_eq!(call(&mut stream, write, at as u64, 100_000, &data).0, 0);
        assert_eq!(call(&mut stream, flush, 0, 0, b"").0, 0);
        expected[at..at + 100_000].copy_from_slice(&data);
        if round < 2 {
            served.signal(rustix::process::Signal::KILL);
            served.child.wait().unwrap();
            continue;
        }
        // Asked to end, it says what it has done, and takes its sockets along.
        served.signal(rustix::process::Signal::INT);
        let mut rest = String::new();
        served.logged.read_to_string(&mut rest).unwrap();
        assert!(served.child.wait().unwrap().success());
        assert!(rest.contains("flushes 1;") && rest.contains("NBD: clients 1"), "{rest}");
        assert_eq!(rest.contains("NAND: "), nand.is_some(), "{rest}");
        if nand.is_some() {
            wear_survives(directory.path(), &words);
        }
    }
    // The store has an order of its own.
    if nand.is_none() {
        assert_eq!(std::fs::read(directory.path().join("data.img")).unwrap(), expected);
    }
    let left: Vec<_> = directory.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["data.img"]);
}

/// One request, to its end.
fn one(queue: &mut dyn Queue, op: Op, subpage: u32) -> Result<(), FlashError> {
    queue.submit(Request { tag: 1, op, subpage: SubpageIndex(subpage), frame: FrameIndex(0) }).unwrap();
    let (mut found, begun) = (Vec::new(), Instant::now());
    while found.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{op:?} does not end");
        queue.wait(Some(Duration::from_millis(10)));
        queue.poll(&mut found);
    }
    found[0].result
}

/// A store under NAND, or a write buffer, loses unflushed writes with its process. Its host has
/// copies of them, or says that it has none.
#[test]
fn what_was_not_flushed_is_not_passed_over_in_silence() {
    for device in [["--nand", "slc"], ["--write-cache", "64K"]] {
        not_flushed(&[&["--size", "4M", "--data", "data.img"], &device[..]].concat());
    }
}

fn not_flushed(words: &[&str]) {
    for (copies, expected) in [(1 << 20, Ok(())), (0, Err(FlashError::Poisoned))] {
        let directory = tempfile::tempdir().unwrap();
        let served = Served::start(directory.path(), words);
        let link = Arc::new(SocketLink::connect(&directory.path().join("dev.sock"), false).unwrap());
        let reattach = Duration::from_secs(30);
        let flash = DeviceFlash::over(link, HostConfig { reattach, unflushed_bytes: copies, ..HostConfig::default() });
        let frames = Arc::new(Arena::anonymous(SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let mut queue = flash.open_queue(frames.clone(), 2, Arc::new(Notifier::new().unwrap())).unwrap();
        for value in [1u8, 2] {
            frames.write(0, &[value; SUBPAGE_BYTES]);
            one(&mut *queue, Op::Write, 5).unwrap();
            if value == 1 {
                one(&mut *queue, Op::Flush, 0).unwrap();
            }
        }
        // Kill -9, as it is dropped.
        drop(served);
        let _served = Served::start(directory.path(), words);
        assert_eq!(one(&mut *queue, Op::Read, 5), expected, "{copies} bytes of copies");
        if expected.is_ok() {
            let mut data = [0; SUBPAGE_BYTES];
            frames.read(0, &mut data);
            assert!(data.iter().all(|byte| *byte == 2), "{} of an older write", data[0]);
        }
    }
}

/// An empty file becomes a device over NAND, as a missing one does: its maker may have been killed
/// early. Other contents are refused. The wear may be kept elsewhere.
#[test]
fn a_blank_file_becomes_a_device_over_nand() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let run = |data: &str, more: &[&str]| {
        let words = [&["--size", "4M", "--nand", "slc", "--data", data], more].concat();
        let mut served = Served::start(directory.path(), &words);
        served.signal(rustix::process::Signal::INT);
        assert!(served.child.wait().unwrap().success(), "{data}");
    };
    run("new.img", &[]);
    let bytes = std::fs::metadata(at("new.img")).unwrap().len();
    let blank = |name: &str| {
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(at(name)).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        file.set_len(bytes).unwrap();
        file
    };
    blank("blank.img");
    // What a store has there before its superblock: its first anchor, twice.
    let geometry = Geometry::new((bytes / 4096) as u32, 512, None).unwrap();
    let half = blank("half.img");
    for (place, page) in &Store::format(geometry, PoolId([7; 16]), 0)[..2] {
        std::os::unix::fs::FileExt::write_all_at(&half, &page[..], u64::from(*place) << 12).unwrap();
    }
    drop(half);
    for data in ["blank.img", "half.img"] {
        run(data, &[]);
        assert!(at(&format!("{data}.nand")).exists());
        run(data, &[]);
    }
    blank("apart.img");
    run("apart.img", &["--wear", "apart.worn"]);
    assert!(at("apart.worn").exists() && !at("apart.img.nand").exists());
    run("apart.img", &["--wear", "apart.worn"]);
    std::os::unix::fs::FileExt::write_at(&blank("other.img"), b"something", 0).unwrap();
    run("other.img", &["--force"]);
    run("other.img", &["--force"]);
    run("other.img", &[]);
    std::fs::remove_file(at("other.img")).unwrap();
    std::fs::remove_file(at("other.img.nand")).unwrap();
    std::os::unix::fs::FileExt::write_at(&blank("other.img"), b"something", 0).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(["device", "serve", "--socket", "dev.sock", "--size", "4M", "--nand", "slc", "--data", "other.img"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let logged = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{logged}");
    assert!(logged.contains("holds no device over NAND"), "{logged}");
}

/// A count of bytes.
fn bytes(of: &Value, key: &str) -> f64 {
    of[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {of}"))
}

/// How the device stands: DRAM in use, what it may come to, its budget.
fn dram(directory: &Path) -> (f64, f64, f64) {
    let output = run(directory, &["device", "info", "--socket", "dev.sock", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    (bytes(&info, "dram_taken_bytes"), bytes(&info, "dram_bytes"), bytes(&info, "dram_budget_bytes"))
}

/// Sixteen entirely different states exceed their part of the budget, so the oldest go. Queue pairs
/// are opened until one is refused. Once they are closed there is room again.
#[test]
fn a_served_device_keeps_to_its_budget_of_dram() {
    let directory = tempfile::tempdir().unwrap();
    // A budget of DRAM that the store does not fit into, and nothing was made.
    for below in [&["--store"][..], &["--nand", "slc"], &["--write-cache", "4M"]] {
        let words =
            [&["device", "serve", "--socket", "s", "--size", "64M", "--data", "d", "--dram", "2M"], below].concat();
        refused(directory.path(), &words, &["--dram 2.0 MiB is too little", "64.0 MiB needs at least", "give more"]);
    }
    let words = ["--size", "96M", "--store", "--keep-tokens", "16", "--dram", "5M"];
    let mut served = Served::start(directory.path(), &words);
    let budget = f64::from(5 << 20);
    let keeps = || {
        let (taken, most, bound) = dram(directory.path());
        assert!(0.0 < taken && taken <= most && most <= bound && bound == budget, "{taken} {most} {bound}");
        taken
    };
    let empty = keeps();
    let host = || {
        let link = SocketLink::connect(&directory.path().join("dev.sock"), false).unwrap();
        DeviceFlash::over(Arc::new(link), HostConfig::default())
    };
    let flash = host();
    let mut commands = flash.commands(4, 64).unwrap();
    let (mut largest, mut tokens) = (0.0f64, 0);
    for state in 0..20u8 {
        for first in (0..4096).step_by(64) {
            commands.write(first, &[state; 64 * SUBPAGE_BYTES]).unwrap();
        }
        commands.sync().unwrap();
        tokens = commands.tokens().unwrap().len();
        largest = largest.max(keeps());
    }
    assert!(largest > empty, "{largest} {empty}");
    assert!(
        (1..16).contains(&tokens),
        "{tokens} states of 4,096 subpages each are kept, whose checksums alone take more"
    );
    let mut newest = vec![0; 64 * SUBPAGE_BYTES];
    commands.read(0, &mut newest).unwrap();
    assert!(newest.iter().all(|byte| *byte == 19));
    let mut pairs = Vec::new();
    let refusal = loop {
        match flash.commands(4, 64) {
            Ok(pair) => pairs.push(pair),
            Err(error) => break format!("{:#}", anyhow::Error::new(error)),
        }
        keeps();
        assert!(pairs.len() < 64, "there is no end of queue pairs");
    };
    assert!(refusal.contains("of the device's DRAM") && refusal.contains("--dram"), "{refusal}");
    pairs.clear();
    let begun = Instant::now();
    while let Err(error) = flash.commands(4, 64) {
        assert!(begun.elapsed() < Duration::from_secs(20), "no room again: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop((commands, flash));
    served.signal(rustix::process::Signal::INT);
    assert!(served.child.wait().unwrap().success());
    let mut logged = String::new();
    served.logged.read_to_string(&mut logged).unwrap();
    assert!(logged.contains("commands"), "{logged}");
}
