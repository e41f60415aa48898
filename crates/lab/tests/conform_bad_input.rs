//! Goal: every bad input gets one clear message and exit code 2, before anything is created.
//! Method: run the program with each in an empty directory. Check the code, the message and the
//! directory.

use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;

use refusal::run;

use crate::{help, refused as refusal};

/// Runs a program that must refuse its input, and checks that it printed nothing but the message.
fn refused_in(directory: &Path, words: &[&str], parts: &[&str]) {
    let output = refusal::refused(directory, words, parts);
    assert!(output.stdout.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
}

fn refused(words: &[&str], parts: &[&str]) {
    refused_in(tempfile::tempdir().unwrap().path(), words, parts);
}

#[test]
fn sizes() {
    for (size, part) in [
        ("0", "zero"),
        ("-64M", "negative"),
        ("99999999999T", "too large"),
        ("many", "does not start with a number"),
        ("64X", "unknown unit"),
        ("", "does not start with a number"),
    ] {
        for option in ["--dram", "--data"] {
            let word = format!("{option}={size}");
            refused(&["live", "--quick", &word], &[option, part]);
        }
    }
    refused(&["live", "--dram=0%"], &["above 0%"]);
    refused(&["live", "--dram=101%"], &["at most 100%"]);
    refused(&["live", "--dram=1e-300%"], &["at least"]);
    refused(&["live", "--data=1000"], &["less than one subpage"]);
}

#[test]
fn counts_and_times() {
    for option in ["--rounds=0", "--fibers=0", "--planes=0", "--workers=0", "--rounds=-1", "--seed=x"] {
        refused(&["live", option], &[option.split('=').next().unwrap()]);
    }
    refused(&["live", "--miss-every=0"], &["time of zero"]);
    refused(&["live", "--miss-every=-10us"], &["negative"]);
    refused(&["live", "--miss-every=10"], &["\"10\" has no unit", "10us"]);
    refused(&["live", "--miss-every=10us", "--work=0"], &["cannot be used with"]);
    refused(&["live", "--quick", "--workload=gups", "--mix=0,95,95"], &["--mix names 95 twice"]);
    refused(&["live", "--quick", "--workload=tatp,rbt", "--mix=95"], &["--mix", "blobs and gups, not of tatp, rbt"]);
    refused(&["live", "--zipf=5"], &["0 (uniform) to 4"]);
    refused(&["tail", "--loads=0"], &["above 0%"]);
}

/// As they are written without much thought: after a space.
#[test]
fn values_below_zero() {
    for (option, value, part) in [
        ("--data", "-5", "\"-5\" is negative"),
        ("--dram", "-3%", "above 0%"),
        ("--dram", "-64M", "negative"),
        ("--zipf", "-1", "0 (uniform) to 4"),
        ("--miss-every", "-1us", "negative"),
        ("--workers", "-1", "1..=4096"),
        ("--seed", "-1", "write a whole number, 0 or more"),
    ] {
        refused(&["live", "--quick", option, value], &[option, value, part]);
    }
    // A value that is missing is missing, whatever follows.
    refused(&["live", "--data", "--dram", "1G"], &["a value is required for '--data <SIZE>'"]);
    refused(&["live", "--quick", "-5"], &["unexpected argument '-5'"]);
}

#[test]
fn machine() {
    refused(&["live", "--quick", "--dram=9000T"], &["more than this machine has"]);
    refused(&["live", "--quick", "--data=9000T"], &["memory at once"]);
    refused(&["live", "--quick", "--dram=64K"], &["too little", "tables"]);
    refused(&["live", "--quick", "--dram=8M", "--fibers=4000"], &["too little", "--fibers"]);
    refused(&["live", "--quick", "--workers=4096"], &["more than the", "cores"]);
    refused(&["live", "--quick", "--dir=nowhere"], &["--dir", "not a directory"]);
    two_workers_run_next_to_one();
}

/// Each refusal names what was written, and offers what there is.
#[test]
fn what_was_given_is_what_is_named() {
    refused(&["live", "--data=4K"], &["--dram 3%, which is 0 B, is too little", "choose more --data"]);
    refused(&["live", "--quick", "--dram=3%%"], &["\"3%\" is not a number"]);
}

/// Several workers also run with one at the same time, so the data is there twice.
fn two_workers_run_next_to_one() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return eprintln!("SKIPPED: two workers need two cores");
    }
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let available: u64 = available.trim().trim_end_matches(" kB").parse().unwrap();
    // The image, twice DRAM and twice the flash: five times a quarter of all memory. One worker
    // would need three.
    let data = format!("--data={}K", available / 4);
    let words = ["live", "--config=fulgurite", "--workload=hash-table", "--workers=2", "--dram=10%", &data];
    refused(&words, &["memory at once", "--data"]);
}

#[test]
fn names() {
    refused(&["live", "--workload=tattp"], &["no workload \"tattp\"", "did you mean \"tatp\"", "masstree"]);
    refused(&["live", "--workload=tatp,nope"], &["no workload \"nope\""]);
    refused(&["live", "--config=fulgurit"], &["no configuration \"fulgurit\"", "did you mean \"fulgurite\""]);
    refused(&["live", "--flash=emulate"], &["did you mean \"emulated\""]);
    refused(&["tail", "--workload=tapt"], &["did you mean \"tatp\""]);
    refused(&["tail", "--config=os-swap"], &["fulgurite-lab live"]);
    refused(&["micro", "--config=swich"], &["no measure \"swich\"", "did you mean \"switch\""]);
    refused(&["store", "--victims=greed"], &["no choice of victims", "did you mean \"greedy\""]);
    for words in [&["tail", "--workload=all"][..], &["live", "--config="]] {
        let directory = tempfile::tempdir().unwrap();
        let message = String::from_utf8_lossy(&run(directory.path(), words).stderr).into_owned();
        assert!(message.contains("All of them") && !message.contains("did you mean"), "{message}");
    }
    refused(&["lve"], &["lve"]);
    refused(&["live", "--workload=search"], &["--input DIR"]);
}

#[test]
fn stores() {
    let store = |words: &[&str], parts: &[&str]| refused(&[&["store", "--quick"], words].concat(), parts);
    store(&["--recovery", "--sync"], &["--recovery", "cannot be used with", "--sync"]);
    store(&["--recovery", "--size=8K"], &["--size", "too little for a pool"]);
    store(&["--recovery", "--size=64T"], &["more than a pool can have"]);
    store(&["--sync", "--size=9M"], &["--size", "too little"]);
    store(&["--rounds=0"], &["--rounds"]);
    store(&["--create"], &["--create", "--flash"]);
    store(&["--flash=memory", "--create"], &["--create needs --flash FILE"]);
    for mode in ["--recovery", "--sync"] {
        store(&[mode, "--dir=nowhere"], &["--dir", "not a directory"]);
        store(&[mode, "--flash=./missing"], &["does not exist", "--create"]);
        store(&[mode, "--flash=emulate"], &["did you mean \"emulated\""]);
        store(&[mode, "--flash=memory", "--size=9T"], &["memory at once"]);
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("small"), vec![1; 1 << 20]).unwrap();
        let words = ["store", "--quick", mode, "--flash=./small"];
        refused_in(directory.path(), &words, &["small", "make it larger"]);
        let words = ["store", "--quick", mode, "--flash=./small", "--create"];
        refused_in(directory.path(), &words, &["exists and is not overwritten"]);
    }
}

#[test]
fn devices() {
    let bench = |words: &[&str], parts: &[&str]| refused(&[&["device", "--quick"], words].concat(), parts);
    bench(&["--figure=deph"], &["deph", "depth"]);
    bench(&["--dir=nowhere"], &["--dir nowhere is not a directory; create it"]);
    bench(&["--rounds=0"], &["--rounds"]);
    bench(&["--plot=plot.png"], &[".svg"]);
}

#[test]
fn results() {
    refused(&["live", "--quick", "--json", "no/such/file.json"], &["--json", "does not exist"]);
    refused(&["live", "--quick", "--plot", "plot.png"], &[".svg"]);
    refused(&["live", "--quick", "--plot", "no/such.svg"], &["--plot", "does not exist"]);
    // A directory in which root has every right, and can make no file all the same.
    refused(&["micro", "--json", "/proc/x.json"], &["--json", "cannot be written"]);
    refused(&["man", "nowhere"], &["not a directory"]);
}

#[test]
fn flash_paths() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let live = |path: &str, parts: &[&str]| {
        let word = format!("--flash={path}");
        refused_in(directory.path(), &["live", "--quick", "--data=16M", "--dram=8M", &word], parts);
    };
    live("./missing", &["does not exist", "--create"]);
    std::fs::create_dir(at("folder")).unwrap();
    live("./folder", &["is a directory"]);
    std::fs::write(at("small"), vec![0; 4096]).unwrap();
    live("./small", &["are needed", "--data"]);
    symlink("small", at("link")).unwrap();
    live("./link", &["symbolic link"]);
    symlink("nowhere", at("dangling")).unwrap();
    live("./dangling", &["symbolic link"]);
    let large = std::fs::File::create(at("large")).unwrap();
    large.set_len(64 << 20).unwrap();
    let held = rustix::fs::flock(&large, rustix::fs::FlockOperation::LockExclusive);
    assert!(held.is_ok());
    live("./large", &["in use by another process"]);
    drop(large);
    std::fs::set_permissions(at("large"), std::fs::Permissions::from_mode(0o444)).unwrap();
    live("./large", &["change its permissions"]);
    std::fs::set_permissions(at("large"), std::fs::Permissions::from_mode(0o600)).unwrap();
    // Somebody writes to it and has no lock. Not every file system can say so.
    let writer = std::fs::OpenOptions::new().write(true).open(at("large")).unwrap();
    if fulgurite_sys::DirectFile::open(&at("large")).unwrap().open_elsewhere() {
        live("./large", &["in use by another process"]);
    } else {
        eprintln!("SKIPPED: a file that somebody writes to: no leases here");
    }
    drop(writer);
    std::fs::hard_link(at("large"), at("twin")).unwrap();
    live("./large", &["several hard links"]);
    std::fs::remove_file(at("twin")).unwrap();
    // Only root may give a file away.
    if std::os::unix::fs::chown(at("large"), Some(12_345), None).is_ok() {
        live("./large", &["file of another user"]);
    } else {
        eprintln!("SKIPPED: a file of another user needs root");
    }
    // What people know by name is not used up unless they say so.
    std::fs::write(at("notes"), "what was said\n".repeat(1000)).unwrap();
    live("./notes", &["holds text", "--force"]);
    let mut create = std::process::Command::new(crate::fulgurite());
    create.args(["pool", "create", "kept.pool", "--size=16M"]).current_dir(directory.path());
    assert!(create.status().unwrap().success());
    let kept = std::fs::read(at("kept.pool")).unwrap();
    live("./kept.pool", &["is a pool", "--force"]);
    for command in [&["store", "--quick"][..], &["tail", "--quick"]] {
        refused_in(directory.path(), &[command, &["--flash=./kept.pool"]].concat(), &["is a pool", "--force"]);
    }
    assert!(std::fs::read(at("kept.pool")).unwrap() == kept, "the pool was changed");
    live("/proc/self/mem", &["file without a size"]);
    let null = std::fs::metadata("/dev/null").unwrap();
    assert!(null.file_type().is_char_device());
    live("/dev/null", &["character device", "a regular file or a block device"]);
    let create = |path: &str, parts: &[&str]| {
        let word = format!("--flash={path}");
        let words = ["live", "--quick", "--data=16M", "--dram=8M", "--create", &word];
        refused_in(directory.path(), &words, parts);
    };
    create("./small", &["exists and is not overwritten"]);
    create("./no/such/file", &["does not exist"]);
    refused(&["live", "--quick", "--create"], &["not provided", "--flash <"]);
}

#[test]
fn traces() {
    let directory = tempfile::tempdir().unwrap();
    refused_in(directory.path(), &["policies", "--quick", "--traces", "nowhere"], &["--traces", "not a directory"]);
}

#[test]
fn help_has_examples_and_ends_well() {
    // The program, eight benchmarks, device, peers, reproduce, sim and its six, completions, man.
    help::check_examples("fulgurite-lab", 21);
}

#[test]
fn messages_without_a_reader() {
    let systems = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems");
    let nand = systems.join("nand-only.toml").display().to_string();
    let fast = ["sim", "run", &nand, "--set", "requests.count=2000", "--speed"];
    // Refused by the parser, in its words and in Fulgurite's, by the command, and not at all.
    let cases: [(&[&str], i32); 4] =
        [(&["sim", "run"], 2), (&["live", "--rounds=x"], 2), (&["sim", "run", "nowhere.toml"], 2), (&fast, 0)];
    help::ends_without_a_reader(&cases);
}
