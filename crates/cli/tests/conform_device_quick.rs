//! Goal: `device bench` ends at small sizes over memory, over NAND and in another process, with
//! every figure, way, goal and shape. That process ends with the program, also by kill -9. A device
//! served as a block device keeps flushed data over kill -9, is its owner's alone, and leaves no
//! socket. Its host repeats unflushed writes, or says that they are lost. Method: run the program
//! in an empty directory, read its JSON and drawing, kill it and look for its child, and speak to
//! its NBD socket. Nothing that depends on the machine's speed is compared.

use std::io::{BufRead, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_device::{DeviceFlash, HostConfig, SocketLink};
use fulgurite_flash::{Flash, FlashError, Op, Queue, Request};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Geometry, Store};
use fulgurite_sys::{Arena, Backed, Notifier};
use quick::{bench_and_table, number, rows, whole};
use serde_json::Value;
use served::Served;

use crate::quick;
use crate::served;

/// A spread's parts are in order, and can be; its median.
fn spread(of: &Value, key: &str) -> f64 {
    let (min, median, max) = (number(&of[key], "min"), number(&of[key], "median"), number(&of[key], "max"));
    assert!(min <= median && median <= max, "{key} of {of}");
    median
}

#[test]
fn the_papers_figures() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["device", "bench", "--rounds", "1", "--size", "8M", "--dir", "."];
    let (json, drawing, table) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    for row in rows {
        for key in ["us", "bytes_per_s", "chunks_per_s", "host_cpu_ns"] {
            assert!(spread(row, key) > 0.0, "{key} of {row}");
        }
        assert!(number(row, "chunks") > 0.0);
        // A chunk's time and the throughput say the same.
        let product = spread(row, "us") * spread(row, "bytes_per_s") / 1e6;
        assert!((0.99..1.01).contains(&(product / number(row, "chunk_bytes"))), "{row}");
        // What is productive is a part of all, where it is told apart at all.
        if !row["host_productive_ns"].is_null() {
            assert!(spread(row, "host_productive_ns") <= spread(row, "host_cpu_ns"), "{row}");
        }
        assert!(spread(row, "other_cpu_ns") >= 0.0, "{row}");
    }
    let of = |figure: &str, way: &str| rows.iter().filter(|r| r["figure"] == figure && r["way"] == way).count();
    for (figure, ways, count) in [
        (
            "interface",
            &[
                "copy",
                "device-bypassed",
                "copy-near",
                "device-bypassed-near",
                "device",
                "process-bypassed",
                "process",
                "file",
                "nbd",
            ][..],
            8,
        ),
        (
            "depth",
            &[
                "device-bypassed",
                "device",
                "device-computing",
                "device-copies",
                "process-bypassed",
                "process",
                "process-copies",
                "file",
                "file-asleep",
                "file-computing",
                "nbd",
            ],
            6,
        ),
        ("buffer", &["device", "nand", "nand-dma"], 24),
        ("chunk", &["device", "nand", "file", "nbd"], 32),
    ] {
        for way in ways {
            assert_eq!(of(figure, way), count, "{figure} {way}");
        }
    }
    // Only devices have an overhead over copies, and the paper's words stand where they apply.
    let added: Vec<&Value> = rows.iter().filter(|r| !r["overhead_us"].is_null()).collect();
    assert_eq!(added.len(), 5 * 8);
    assert!(added.iter().all(|r| spread(r, "overhead_share") < 1.0));
    assert_eq!(rows.iter().filter(|r| !r["paper"].is_null()).count(), 6);
    let computing = |r: &&Value| r["way"].as_str().unwrap().ends_with("-computing");
    let polled = |r: &&Value| r["figure"] == "depth" && r["way"] != "nbd" && !computing(r);
    assert!(rows.iter().filter(polled).all(|r| !r["host_productive_ns"].is_null()));
    assert_eq!(json["setting"]["goals"].as_array().unwrap().len(), 9);
    let shapes = json["setting"]["shapes"].as_array().unwrap();
    assert_eq!(shapes.len(), 7 + 7 + 3, "{shapes:?}");
    for medium in ["device", "nand"] {
        assert_eq!(shapes.iter().filter(|shape| shape["medium"] == medium).count(), 7);
    }
    // NAND was read and written, and no rule of it was broken.
    let did = &json["setting"]["nand_did"];
    assert!(number(did, "reads") > 0.0 && number(did, "programs") > 0.0, "{did}");
    assert_eq!(number(did, "violations"), 0.0, "{did}");
    for part in [
        "Protocol: reads",
        "66.8%",
        "436 MB/s",
        "at depth 32",
        "in another process",
        "at least 1,000,000: ",
        "4 KiB reads at depth 32, the data moved, frames shared, in this process: ",
        "4 KiB reads at depth 32, the data moved, with copies through the data buffer, in another process: ",
        "productive",
    ] {
        assert!(table.contains(part), "no \"{part}\" in {table}");
    }
    let left: Vec<_> = directory.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "out.json" || name == "out.svg"), "{left:?}");
}

#[test]
fn one_figure_alone_and_without_nand() {
    let directory = tempfile::tempdir().unwrap();
    let words =
        ["device", "bench", "--rounds", "2", "--size", "8M", "--dir", ".", "--figure", "buffer", "--nand", "none"];
    let (json, drawing, _) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    assert!(rows.iter().all(|row| row["figure"] == "buffer" && row["way"] == "device" && row["rounds"] == 2));
    assert_eq!((rows.len(), json["setting"]["shapes"].as_array().unwrap().len()), (24, 3));
    assert!(json["setting"]["nand_did"].is_null());
}

#[test]
fn the_device_in_another_process_ends_with_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["device", "bench", "--size", "8M", "--dir", ".", "--figure", "depth", "--rounds", "1000"];
    let mut program = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(words)
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    // Its child is there when its sockets are.
    let files = || directory.path().read_dir().unwrap().map(|e| e.unwrap().path());
    let there = || files().any(|files| files.join("memory.sock").exists());
    let begun = std::time::Instant::now();
    while !there() {
        assert!(begun.elapsed().as_secs() < 60 && program.try_wait().unwrap().is_none(), "it did not begin");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let children = format!("/proc/{0}/task/{0}/children", program.id());
    let child = std::fs::read_to_string(children).unwrap().split_whitespace().next().map(str::to_owned);
    program.kill().unwrap();
    program.wait().unwrap();
    let child = child.expect("the program has a child");
    // An ended process may stay a zombie until its new parent looks.
    let lives = || {
        let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    while lives() {
        assert!(begun.elapsed().as_secs() < 120, "the device's process lives on");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

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

/// Writes that complete in DRAM are in the file after a flush all the same.
#[test]
fn what_was_flushed_survives_a_device_with_a_write_buffer() {
    flushed_survives(None, &["--write-cache", "64K"]);
}

/// Data are copied unless frames are asked to be shared; a device that may not have them says so.
#[test]
fn workloads_run_on_a_device_in_another_process_which_may_have_the_frames() {
    let directory = tempfile::tempdir().unwrap();
    let live = |more: &[&'static str]| {
        let words =
            ["bench", "live", "--flash", "device:dev.sock", "--workload", "tatp", "--data", "48M", "--dram", "8M"];
        let rest = ["--config", "dram-only,fulgurite", "--rounds", "1", "--round-time", "20ms"];
        [&words[..], &rest, more].concat()
    };
    for shared in [false, true] {
        let _served = Served::start(directory.path(), &["--size", "128M"]);
        let (json, ..) = bench_and_table(directory.path(), &live(if shared { &["--share-frames"] } else { &[] }));
        let rows = rows(&json, "rows");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["work_hash"], rows[1]["work_hash"], "{json}");
        let flash = rows[1]["flash"].as_str().unwrap();
        assert_eq!(flash.contains("which has the frames"), shared, "{flash}");
        assert!(number(&rows[1], "device_reads") > 0.0, "{json}");
    }
    // The kernel could still write to frames of a file's device that has died.
    let _served = Served::start(directory.path(), &["--size", "128M", "--data", "data"]);
    for (words, part) in [
        (live(&["--share-frames"]), "takes no frames"),
        (vec!["bench", "live", "--flash", "memory", "--share-frames"], "--share-frames needs --flash device:SOCKET"),
    ] {
        let refused = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
            .args(&words)
            .current_dir(directory.path())
            .output()
            .expect("the program starts");
        let message = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains(part), "{message}");
    }
}

/// All default configurations, each on a part of the device, or on none. Parts that are too small
/// say how much they need.
#[test]
fn benchmarks_run_on_a_device_in_another_process_by_default() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("text")).unwrap();
    for file in 0..40u32 {
        let text: String = (0..2000u32).map(|i| format!("word{} ", i * i % (file + 50))).collect();
        std::fs::write(directory.path().join(format!("text/{file}.txt")), text).unwrap();
    }
    const FLASH: [&str; 2] = ["--flash", "device:dev.sock"];
    let live = ["bench", "live", "--workload", "array-swap,tatp", "--data", "24M", "--dram", "8M"];
    const SHORT: [&str; 4] = ["--rounds", "1", "--round-time", "20ms"];
    let live = [&live[..], &SHORT, &FLASH].concat();
    let tail = [&["bench", "tail", "--data", "24M", "--dram", "8M", "--loads", "50"][..], &FLASH].concat();
    let demo = ["demo", "--input", "text", "--dram", "4M", "--act", "search", "--report", "demo.html"];
    let demo = [&demo[..], &FLASH].concat();
    let _served = Served::start(directory.path(), &["--size", "200M"]);
    for words in [&live, &tail, &demo] {
        let (json, ..) = bench_and_table(directory.path(), words);
        assert_eq!(json["failed"].as_array().map(Vec::len), Some(0), "{words:?}: {}", json["failed"]);
        let on_device = json.to_string().matches("at dev.sock").count();
        assert!(on_device > 0 || words[1] == "tail", "{words:?}: nothing ran on the device: {json}");
    }
    // Four of these are on it: neither dram-only nor fixed-latency is.
    let refused = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(["bench", "live", "--workload", "tatp", "--data", "64M", "--dram", "8M"])
        .args(["--config", "dram-only,fulgurite,fifo,flash-sync,fixed-latency,priority-aging"])
        .args(FLASH)
        .current_dir(directory.path())
        .output()
        .expect("the program starts");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    for part in ["for each of 4 configurations", "take 256.0 MiB", "serve a larger one"] {
        assert!(message.contains(part), "the message lacks \"{part}\": {message}");
    }
}

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
    let told = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let nobody = told(&info(&[]));
    for part in ["cannot connect to dev.sock", "is it served there? `fulgurite device serve --socket dev.sock`"] {
        assert!(nobody.contains(part), "no \"{part}\" in {nobody}");
    }
    let _served = Served::start(directory.path(), &["--size", "4M", "--data", "data.img"]);
    let looked = || -> serde_json::Value {
        let output = info(&["--json"]);
        assert!(output.status.success(), "{}", told(&output));
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
    let told = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let served = Served::start(directory.path(), &["--size", "4M", "--nand", "slc", "--boot", "loader.img"]);
    let output = boot();
    assert!(output.status.success(), "{}", told(&output));
    image.resize(8192, 0);
    assert!(output.stdout == image, "{} bytes", output.stdout.len());
    drop(served);
    let _served = Served::start(directory.path(), &["--size", "4M"]);
    let output = boot();
    assert!(!output.status.success() && told(&output).contains("no boot region"), "{}", told(&output));
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

/// The file beside the data is used, and refused by name if it is another device's, newer or
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
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("data.img.nand") && told.contains(part), "{told}");
    }
    // As it was. Data is not served without its NAND by mistake, with or without that file.
    let refused = |part: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
            .args(["device", "serve", "--socket", "dev.sock", "--data", "data.img"])
            .current_dir(directory)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(part) && told.contains("--force"), "{told}");
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
        served.told.read_line(&mut line).unwrap();
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
        served.told.read_to_string(&mut rest).unwrap();
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
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("holds no device over NAND"), "{told}");
}
