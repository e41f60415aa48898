//! Goal: `fulgurite pool info`, `tokens`, `pin`, `unpin` and `rollback` treat a served device's
//! store like a pool in a file, also after a kill, the first two also while a program uses it. The
//! others are refused by name, with a remedy. Method: a process serves a small store, and a program
//! over it (`Medium::device_pool`) names states with a value in each. The command line changes
//! them, and the program reads.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fulgurite::{Durability, Error, Fulgurite, Medium, Memory};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fulgurite");
/// The pool that `fulgurite pool` is given.
const POOL: &str = "device:dev.sock";

/// A store that is served in a directory. Killed when dropped.
struct Served(Child);

impl Served {
    fn start(directory: &Path, words: &[&str]) -> Served {
        let mut command = Command::new(PROGRAM);
        command.args(["device", "serve", "--socket", "dev.sock", "--size", "16M"]).args(words);
        let mut child = command.current_dir(directory).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("dev.sock: "), "{line}");
        Served(child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pool(directory: &Path, words: &[&str]) -> Output {
    Command::new(PROGRAM).arg("pool").args(words).current_dir(directory).output().expect("the program starts")
}
/// What it says when it ends with this code.
fn ends(directory: &Path, code: i32, words: &[&str]) -> String {
    let output = pool(directory, words);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    assert!(!said.contains("panicked"), "{words:?}: {said}");
    said
}
fn json(directory: &Path, words: &[&str]) -> Value {
    serde_json::from_str(&ends(directory, 0, words)).expect("JSON")
}
/// Each token, and whether it is pinned.
fn tokens(directory: &Path) -> Vec<(u64, bool)> {
    let json = json(directory, &["tokens", POOL, "--json"]);
    let tokens = json["tokens"].as_array().unwrap();
    tokens.iter().map(|t| (t["token"].as_u64().unwrap(), t["pinned"].as_bool().unwrap())).collect()
}
/// A program over it, which may have to wait for the last one to go.
fn program(directory: &Path) -> Fulgurite {
    let begun = Instant::now();
    loop {
        let medium = Medium::device_pool(directory.join("dev.sock"));
        let builder = Fulgurite::builder(medium).durability(Durability::Sync).dram("8M");
        match builder.with(|runtime| runtime.fibers(8)).start() {
            Ok(memory) => return memory,
            Err(error @ (Error::Device(_) | Error::Open(_))) => {
                assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
fn value(memory: &Fulgurite) -> u64 {
    let at = memory.named("value").value(0u64).unwrap();
    memory.run(move |m| m.load(at)).unwrap()
}
fn name(memory: &Fulgurite, value: u64) -> u64 {
    let at = memory.named("value").value(0u64).unwrap();
    memory.run(move |m| m.store(at, value)).unwrap();
    memory.sync().unwrap()
}

#[test]
fn the_tokens_of_a_served_store_are_listed_pinned_and_returned_to() {
    let scratch = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let directory = scratch.path();
    let words = ["--data", "data", "--store", "--keep-tokens", "4"];
    let mut served = Served::start(directory, &words);
    let named: Vec<u64> = {
        let memory = program(directory);
        let named = (1..=3).map(|n| name(&memory, n)).collect();
        // Next to the program: reading disturbs no other program, and changes nothing.
        let before = memory.tokens().unwrap();
        let listed: Vec<u64> = tokens(directory).into_iter().map(|(token, _)| token).collect();
        assert_eq!(listed, before);
        let info = json(directory, &["info", POOL, "--json"]);
        assert_eq!(info["path"], POOL);
        let device = Command::new(PROGRAM)
            .args(["device", "info", "--socket", "dev.sock", "--json"])
            .current_dir(directory)
            .output()
            .expect("the program starts");
        let device: Value = serde_json::from_slice(&device.stdout).expect("JSON");
        assert_eq!(info["data_bytes"], device["bytes"]);
        assert!(info["live_bytes"].as_u64().unwrap() > 0 && info["size_bytes"].as_u64() >= info["data_bytes"].as_u64());
        assert_eq!(info["tokens"].as_array().unwrap().len(), before.len());
        let said = ends(directory, 0, &["info", POOL]);
        assert!(said.contains(&format!("the state of token {}", before.last().unwrap())), "{said}");
        assert!(!said.contains("made") && said.contains("extents"), "{said}");
        // To change something is.
        for words in [&["pin", POOL, "1"][..], &["rollback", POOL, "1", "--yes"]] {
            let said = ends(directory, 2, words);
            assert!(said.contains("in use by another program"), "{said}");
        }
        assert_eq!((memory.tokens().unwrap(), value(&memory)), (before, 3));
        named
    };
    let [first, second, third] = named[..] else { panic!("{named:?}") };
    let kept = tokens(directory);
    assert!(named.iter().all(|token| kept.contains(&(*token, false))), "{kept:?}");
    let missing = format!("{}", third + 1000);
    for words in [&["pin", POOL, &missing][..], &["rollback", POOL, &missing, "--yes"]] {
        let said = ends(directory, 2, words);
        assert!(said.contains(&format!("no token {missing}; kept are")), "{said}");
    }
    let (first_word, second_word) = (first.to_string(), second.to_string());
    assert!(ends(directory, 0, &["pin", POOL, &second_word]).contains("is pinned"));
    assert!(ends(directory, 0, &["pin", POOL, &second_word]).contains("is pinned already"));
    assert!(ends(directory, 2, &["rollback", POOL, &first_word, "--yes"]).contains("unpin them first"));
    assert!(ends(directory, 2, &["rollback", POOL, &second_word]).contains("add --yes"));
    assert_eq!(tokens(directory).len(), kept.len(), "nothing was named, and nothing dropped");
    // A pin is there after a kill of the device.
    drop(served);
    served = Served::start(directory, &words);
    assert!(tokens(directory).contains(&(second, true)));
    assert!(ends(directory, 0, &["rollback", POOL, &second_word, "--yes"]).contains("holds the state"));
    assert_eq!(tokens(directory).last(), Some(&(second, true)));
    assert!(ends(directory, 0, &["rollback", POOL, &second_word]).contains("is the newest"));
    assert!(ends(directory, 0, &["unpin", POOL, &second_word]).contains("is not pinned"));
    // And so is the state that was returned to.
    drop(served);
    served = Served::start(directory, &words);
    assert_eq!(tokens(directory).last(), Some(&(second, false)));
    let memory = program(directory);
    assert_eq!(value(&memory), 2);
    drop((memory, served));
}

#[test]
fn what_is_not_for_a_served_device_is_refused_with_what_to_do_instead() {
    let scratch = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let directory = scratch.path();
    let left = |directory: &Path| directory.read_dir().unwrap().count();
    for (words, parts) in [
        (&["create", POOL, "--size", "16M"][..], &["pool create", "device serve", "--store"][..]),
        (&["check", POOL], &["pool check", "--data"]),
        (&["check", POOL, "--repair", "--force"], &["pool check", "--data"]),
        (&["compact", POOL], &["pool compact", "--keep-tokens"]),
        (&["resize", POOL, "--size", "32M"], &["pool resize", "--store"]),
        (&["add-member", POOL, "b.pool", "--size", "16M"], &["pool add-member", "is no member"]),
        (&["add-member", "a.pool", POOL], &["pool add-member", "is no member"]),
        (&["export", POOL, "out"], &["pool export", "--nbd"]),
        (&["import", POOL, "in"], &["pool import", "--nbd"]),
        (&["info", POOL, "--maps", "maps.svg"], &["--maps is for pools in files"]),
        (&["info", POOL, "--endurance", "3000"], &["--endurance is for pools in files"]),
        (&["tokens", "device:"], &["names no socket"]),
        (&["tokens", POOL, "--member", "b.pool"], &["--member is for pools in files"]),
    ] {
        let said = ends(directory, 2, words);
        assert!(parts.iter().all(|part| said.contains(part)), "{words:?}: {said}");
        assert_eq!(left(directory), 0, "{words:?}");
    }
    // Nobody is there; something else is; a device that keeps no states is.
    assert!(ends(directory, 2, &["tokens", POOL]).contains("dev.sock"));
    std::fs::write(directory.join("file"), "no socket").unwrap();
    assert!(ends(directory, 2, &["info", "device:file"]).contains("choose the path of a socket"));
    let _served = Served::start(directory, &[]);
    for words in [&["tokens", POOL][..], &["info", POOL], &["pin", POOL, "1"], &["rollback", POOL, "1", "--yes"]] {
        assert!(ends(directory, 2, words).contains("keeps no states"), "{words:?}");
    }
    let said = ends(directory, 2, &["tokens", POOL, "--json", "dev.sock"]);
    assert!(said.contains("is the pool itself") || said.contains("--json"), "{said}");
}
