//! Goal: a program that was never written for it runs under `fulgurite run` with four times the
//! memory of its cap, its answers are the same as without Fulgurite, and the cap holds. Method: a C
//! program whose words are a function of their place, and Debian's redis-server, each in a memory
//! cgroup of just the cap where the machine lets this test make one. What is missing (a C compiler,
//! redis, a userfaultfd) is said. Programs that cannot be run so are refused in a sentence.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fulgurite_testkit::is_full;

use crate::runs::{Group, TIMES, cannot, command, compiled, output_and_peak, peak_of_summary, resident_peak, text};

#[test]
fn threads_find_what_they_wrote_in_four_times_the_cap() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "touch") else { return };
    let flash = directory.path().join("flash");
    fs::create_dir(&flash).unwrap();
    let (program, flash) = (program.to_str().unwrap(), flash.to_str().unwrap());
    let cap = 32 << 20;
    let group = Group::new("touch", cap);
    let words = ["--dram", "32M", "--flash", flash, "--flash-size", "160M", "--explain", "--", program, "128"];
    let output = command(group.as_ref(), &words).output().unwrap();
    if cannot(&output) {
        return;
    }
    let logged = text(&output.stderr);
    assert!(output.status.success(), "{:?}: {logged}", output.status);
    let without = Command::new(program).arg("128").output().unwrap();
    assert_eq!(text(&output.stdout), text(&without.stdout));
    assert_eq!(text(&output.stdout), "32768 pages, 0 wrong\n");
    assert!(logged.contains("compatible mode") && logged.contains("written"), "{logged}");
    assert!(peak_of_summary(&logged) <= cap, "{logged}");
    if let Some(group) = &group {
        println!("peak of the cgroup: {} of {} bytes", group.peak(), cap);
    }
    assert_eq!(fs::read_dir(flash).unwrap().count(), 0, "the flash is gone");
    // What it does not know it closes, but not ours.
    let words = ["--dram", "32M", "--flash", flash, "--flash-size", "80M", "--", program, "64", "close"];
    let output = command(None, &words).output().unwrap();
    let logged = text(&output.stderr);
    assert_eq!(text(&output.stdout), "16384 pages, 0 wrong\n", "{logged}");
    // Without a handler of faults, each page would be touched once, and stay.
    let faults = logged.split(" faults").next().and_then(|before| before.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(faults.is_some_and(|faults| faults > 2 * 16384), "{logged}");
}

#[test]
fn figures_are_reported_as_lines_of_json() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "touch") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let words = ["--dram", "32M", "--flash", flash, "--stats", "50ms", "--json", "--", program, "64"];
    let output = command(None, &words).output().unwrap();
    if cannot(&output) {
        return;
    }
    let logged = text(&output.stderr);
    let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    let lines: Vec<serde_json::Value> = logged.lines().map(parsed).collect();
    let last = lines.last().unwrap_or_else(|| panic!("no summary: {logged}"));
    let number = |name: &str| last[name].as_f64().unwrap_or_else(|| panic!("{name}: {logged}"));
    assert!(lines.len() > 2, "from time to time, and at the end: {logged}");
    assert!(lines.is_sorted_by_key(|line| line["faults"].as_u64()), "{logged}");
    assert!(number("pid") > 1.0 && lines.iter().all(|line| line["pid"] == last["pid"]), "{logged}");
    assert!(number("peak_bytes") <= number("cap_bytes") && number("cap_bytes") == f64::from(32 << 20), "{logged}");
    assert!(number("bytes_written") > 1e6 && number("waited_s") > 0.0 && number("errors") == 0.0, "{logged}");
    assert!((0.0..1.0).contains(&number("hit_ratio")), "{logged}");
    assert!((number("reads") / number("faults") - (1.0 - number("hit_ratio"))).abs() < 1e-3, "{logged}");
}

#[test]
fn ranges_are_what_the_kernel_makes_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "ranges") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let without = Command::new(program).output().unwrap();
    for (mode, how) in [("compatible", "run"), ("compatible", "run raw"), ("in-line", "run raw")] {
        let options = ["--dram", "16M", "--flash", flash, "--flash-size", "64M", "--threshold", "4K", "--mode", mode];
        let words: Vec<&str> = options.into_iter().chain(["--", program]).chain(how.split(' ')).collect();
        let output = command(None, &words).output().unwrap();
        if cannot(&output) {
            continue;
        }
        let logged = text(&output.stderr);
        assert_eq!(text(&output.stdout), text(&without.stdout), "{mode}, {how}: {logged}");
        assert!(mode == "in-line" || logged.contains("its locks are ended"), "{mode}, {how}: {logged}");
    }
}

#[test]
fn children_of_a_program_with_threads_do_not_hang() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "forks") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let words = ["--dram", "24M", "--flash", flash, "--flash-size", "64M", "--", program, "80", "free"];
    let output = command(None, &words).output().unwrap();
    if !cannot(&output) {
        assert_eq!(text(&output.stdout), "80 children, 0 failed, 0 wrong\n", "{}", text(&output.stderr));
        let program = compiled(directory.path(), "forkers").expect("there is a compiler");
        let words = ["--dram", "20M", "--flash", flash, "--flash-size", "128M", "--small-blocks", "--"];
        let output = command(None, &[&words[..], &[program.to_str().unwrap()]].concat()).output().unwrap();
        assert_eq!(text(&output.stdout), "0 failed\n", "{}", text(&output.stderr));
    }
}

#[test]
fn forks_and_children_do_not_wait_for_calls_that_block() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "blocked") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    for mode in ["auto", "in-line"] {
        let words = ["--dram", "20M", "--flash", flash, "--flash-size", "160M", "--mode", mode, "--", program];
        let output = command(None, &words).output().unwrap();
        if !cannot(&output) {
            assert_eq!(
                text(&output.stdout),
                "0 wrong, quick\n",
                "{mode}: {:?} {}",
                output.status,
                text(&output.stderr)
            );
        }
    }
}

#[test]
fn children_start_threads_while_threads_of_their_parent_start_others() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "starts") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let words = ["--dram", "20M", "--flash", flash, "--flash-size", "64M", "--mode", "in-line", "--", program, "60"];
    let output = command(None, &words).output().unwrap();
    if !cannot(&output) {
        assert_eq!(text(&output.stdout), "60 children, 0 failed\n", "{}", text(&output.stderr));
    }
}

#[test]
fn children_that_fork_at_once_do_not_hang() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "parents") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let words = ["--dram", "20M", "--flash", flash, "--flash-size", "96M", "--mode", "in-line", "--", program, "4"];
    let output = command(None, &words).output().unwrap();
    if !cannot(&output) {
        assert_eq!(text(&output.stdout), "4 children, 0 failed\n", "{:?} {}", output.status, text(&output.stderr));
    }
}

#[test]
fn forks_come_while_threads_read_pages_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "readers") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    for mode in ["auto", "in-line"] {
        let words = ["--dram", "20M", "--flash", flash, "--flash-size", "96M", "--mode", mode, "--", program, "12"];
        let output = command(None, &words).output().unwrap();
        if !cannot(&output) {
            let expected = "12 children, 0 failed, 0 wrong, 0 odd\n";
            assert_eq!(text(&output.stdout), expected, "{mode}: {:?} {}", output.status, text(&output.stderr));
        }
    }
}

#[test]
fn children_find_what_was_there_at_the_fork() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "forks") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let words = ["--dram", "20M", "--flash", flash, "--flash-size", "96M", "--", program, "12"];
    let output = command(None, &words).output().unwrap();
    if cannot(&output) {
        return;
    }
    assert_eq!(text(&output.stdout), "12 children, 0 failed, 0 wrong\n", "{}", text(&output.stderr));
    // Without room for what the child could change.
    let words = ["--dram", "20M", "--flash", flash, "--flash-size", "18M", "--", program, "1"];
    let output = command(None, &words).output().unwrap();
    let logged = text(&output.stderr);
    assert!(output.status.code() == Some(2) && logged.contains("fork: Cannot allocate memory"), "{logged}");
    assert!(logged.contains("the flash has no room for that"), "{logged}");
}

#[test]
fn a_cap_that_other_memory_passes_is_reported_and_nobody_has_to_listen() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "outgrows") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let words = ["--dram", "24M", "--flash", flash, "--flash-size", "64M", "--", program, "64"];
    let output = command(None, &words).output().unwrap();
    if cannot(&output) {
        return;
    }
    let logged = text(&output.stderr);
    assert_eq!(text(&output.stdout), "16384 blocks, 0 wrong\n", "{logged}");
    assert!(logged.contains("the cap of 24.0 MiB is passed") && logged.contains("OVER THE CAP"), "{logged}");
    // The standard error output is a pipe that nobody reads any more.
    let mut command = command(None, &words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert!(child.wait().unwrap().success() && stdout == "16384 blocks, 0 wrong\n", "{stdout}");
}

#[test]
fn large_blocks_of_malloc_go_to_flash() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "blocks") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let cap = 32 << 20;
    let group = Group::new("blocks", cap);
    let words = ["--dram", "32M", "--flash", flash, "--flash-size", "320M", "--explain", "--", program];
    let output = command(group.as_ref(), &words).output().unwrap();
    if cannot(&output) {
        return;
    }
    let logged = text(&output.stderr);
    assert!(output.status.success(), "{:?}: {}{logged}", output.status, text(&output.stdout));
    assert!(logged.contains("large blocks of malloc"), "{logged}");
    assert!(peak_of_summary(&logged) <= cap, "{logged}");
    let without = Command::new(program).output().unwrap();
    assert_eq!(text(&output.stdout), text(&without.stdout));
    // More than there is: as much as the C library says.
    let words = ["--dram", "32M", "--flash", flash, "--flash-size", "64M", "--small-blocks", "--", program];
    let output = command(None, &words).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), "no memory\n"));
}

#[test]
fn small_blocks_go_to_flash_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "outgrows") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let cap = 16 << 20;
    let group = Group::new("small", cap);
    let options = ["--dram", "16M", "--flash", flash, "--flash-size", "96M", "--small-blocks", "--explain", "--"];
    let output = command(group.as_ref(), &[&options[..], &[program, "48"]].concat()).output().unwrap();
    if cannot(&output) {
        return;
    }
    let logged = text(&output.stderr);
    assert_eq!(text(&output.stdout), "12288 blocks, 0 wrong\n", "{logged}");
    assert!(logged.contains("run: blocks of malloc") && peak_of_summary(&logged) <= cap, "{logged}");
    // A block that is freed twice ends the program, as by the C library.
    let output = command(None, &[&options[..], &[program, "1", "twice"]].concat()).output().unwrap();
    let logged = text(&output.stderr);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("256 blocks, 0 wrong\n", None), "{logged}");
    assert!(logged.contains("is no block, or no more"), "{logged}");
    if let Some(program) = compiled(directory.path(), "maps") {
        // Its nodes are used at random. In little time, fewer of them have longer values.
        let (mib, changes, longest) = if is_full() { (16, "400000", "90") } else { (10, "17500", "4000") };
        let (cap, dram, program) = (mib << 20, format!("{mib}M"), program.to_str().unwrap());
        let words = ["--dram", &dram, "--flash", flash, "--flash-size", "320M", "--small-blocks", "--", program];
        let output = command(None, &[&words[..], &[changes, longest]].concat()).output().unwrap();
        let (without, held) = output_and_peak(Command::new(program).args([changes, longest]), &[]);
        let logged = text(&output.stderr);
        assert_eq!(text(&output.stdout), text(&without.stdout), "{logged}");
        assert!(text(&without.stdout).ends_with("0 and 0 wrong, 0\n"));
        assert!(peak_of_summary(&logged) <= cap, "{logged}");
        assert!(held >= TIMES * cap, "{held} bytes are held, and {cap} are the cap");
    }
}

#[test]
fn small_blocks_are_objects_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "objects") else { return };
    let (program, flash) = (program.to_str().unwrap(), directory.path().to_str().unwrap());
    let (cap, mib) = (24 << 20, if is_full() { "96" } else { "16" });
    let group = Group::new("objects", cap);
    let options = ["--dram", "24M", "--flash", flash, "--flash-size", "512M", "--explain", "--objects"];
    let objects = [&options[..], &["--", program, mib, "twice"]].concat();
    let output = command(group.as_ref(), &objects).output().unwrap();
    if cannot(&output) {
        return;
    }
    let (without, logged) = (Command::new(program).arg(mib).output().unwrap(), text(&output.stderr));
    // A child would not have them, and fork says so.
    let expected = text(&without.stdout).replace("fork: a child", "fork: Cannot allocate memory");
    assert_eq!(text(&output.stdout), expected, "{:?}: {logged}", output.status);
    assert!(expected.contains(" 0 wrong\n") && expected.ends_with("system: 7\n"), "{expected}");
    assert!(logged.contains("small blocks from 128 bytes on are objects: object per page"), "{logged}");
    assert!(logged.contains("run it without --objects") && logged.contains("is no block, or no more"), "{logged}");
    assert_eq!(output.status.code(), None, "a block that is freed twice ends the program: {logged}");

    // With small slabs in addition, the figures, and from another size on.
    let options = ["--dram", "24M", "--flash", flash, "--objects", "64", "--small-blocks", "--json", "--"];
    let output = command(group.as_ref(), &[&options[..], &[program, mib]].concat()).output().unwrap();
    let logged = text(&output.stderr);
    assert_eq!(text(&output.stdout), expected, "{:?}: {logged}", output.status);
    let parsed = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok();
    let lines = Vec::from_iter(logged.lines().filter_map(parsed));
    let number = |line: usize, name: &str| lines[line][name].as_f64().unwrap_or_else(|| panic!("{name}: {logged}"));
    assert!(number(0, "peak_bytes") <= cap as f64, "{logged}");
    assert!(number(1, "object_faults") > 2e4 && number(1, "object_errors") == 0.0, "{logged}");
    assert!(number(1, "object_bytes_written") > 1e6 && number(1, "object_reads") > 1e3, "{logged}");

    // Flash that is full: malloc returns null.
    let options = ["--dram", "24M", "--flash", flash, "--flash-size", "16M", "--objects", "--"];
    let output = command(None, &[&options[..], &[program, mib]].concat()).output().unwrap();
    let logged = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), "no memory\n"), "{logged}");
    assert!(logged.contains("no room for another object"), "{logged}");
}

#[test]
fn what_cannot_run_so_is_refused_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("taken"), "a file").unwrap();
    fs::write(at("text"), "hello").unwrap();
    let mut refused = vec![
        (vec!["--dram", "64M", "--flash", ".", "--", "/no/such/program"], "no such program"),
        (vec!["--dram", "64M", "--flash", ".", "--"], "required"),
        (vec!["--dram", "64M", "--", "true"], "--flash"),
        (vec!["--dram", "much", "--flash", ".", "--", "true"], "much"),
        (vec!["--dram", "64M", "--flash", ".", "--flash-size", "1000T", "--", "true"], "less than 16T"),
        (vec!["--dram", "64M", "--flash", ".", "--objects", "5000", "--", "true"], "choose 1 to 4082"),
        (vec!["--dram", "64M", "--flash", ".", "--objects", "--mode", "in-line", "--", "true"], "--mode compatible"),
    ];
    if Command::new("go").arg("version").output().is_ok() {
        refused.push((vec!["--dram", "64M", "--flash", ".", "--", "go", "version"], "written in Go"));
    }
    let taken = at("taken");
    refused.push((vec!["--dram", "64M", "--flash", &taken, "--", "true"], "it exists"));
    let elf = at("static");
    if compiled(directory.path(), "touch").is_some() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/touch.c");
        let mut built = Command::new("cc");
        built.args(["-static", "-pthread", "-o", &elf]).arg(source);
        if built.output().unwrap().status.success() {
            refused.push((vec!["--dram", "64M", "--flash", ".", "--", &elf], "linked statically"));
        }
    }
    for (words, reason) in refused {
        let output = command(None, &words).current_dir(&directory).output().unwrap();
        let logged = text(&output.stderr);
        assert!(output.status.code() == Some(2) && logged.contains(reason), "{words:?}: {:?}: {logged}", output.status);
    }
    // The program would not even begin.
    let words = ["--dram", "1M", "--flash", ".", "--", "echo", "begun"];
    let output = command(None, &words).current_dir(&directory).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("too small"), "{}", text(&output.stderr));
}

/// A redis server, stopped when dropped.
struct Redis {
    child: Child,
    port: u16,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Redis {
    fn start(mut command: Command, directory: &Path) -> Redis {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (port_text, directory) = (port.to_string(), directory.to_str().unwrap());
        let words = ["--port", &port_text, "--save", "", "--appendonly", "no", "--enable-debug-command", "local"];
        let words = words.into_iter().chain(["--dir", directory, "--rdbcompression", "no"]);
        let child = command.args(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Redis { child, port }
    }
    fn connect(&mut self) -> Option<Connection> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) && self.child.try_wait().unwrap().is_none() {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                // A disk that is throttled takes minutes for what does not fit.
                stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
                return Some(Connection { reader: BufReader::new(stream) });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }
    /// Ends by itself, and returns what it reported.
    fn end(mut self, connection: &mut Connection) -> String {
        connection.send(&[b"SHUTDOWN", b"NOSAVE"]);
        let status = self.child.wait().unwrap();
        let mut logged = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut logged).unwrap();
        assert!(status.success(), "{status}: {logged}");
        logged
    }
}

struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    fn send(&mut self, words: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(*word);
            bytes.extend(b"\r\n");
        }
        self.reader.get_mut().write_all(&bytes).unwrap();
    }
    /// A reply of one line, or of bytes.
    fn reply(&mut self) -> Vec<u8> {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        match line.trim_end().strip_prefix('$') {
            Some(length) => {
                let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
                self.reader.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                bytes
            }
            None => line.trim_end().as_bytes().to_vec(),
        }
    }
    fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.send(words);
        self.reply()
    }
}

/// What a server is given.
struct Data {
    keys: u32,
    value_bytes: usize,
    /// The cap in MiB, and the least multiple of it that they are, with redis' own bytes.
    cap_mib: u64,
    times: u64,
}

impl Data {
    fn value(&self, key: u32, round: u32) -> Vec<u8> {
        let seed = (u64::from(key) << 32 | u64::from(round)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..self.value_bytes as u64).map(|i| (seed.rotate_left((i % 61) as u32) >> 7 ^ i) as u8).collect()
    }

    /// Sets all keys, changes one in five, and reads some. Returns redis' digest of all its data.
    fn load(&self, connection: &mut Connection) -> String {
        let mut set = |keys: &mut dyn Iterator<Item = u32>, round: u32| {
            let keys = Vec::from_iter(keys);
            for some in keys.chunks(16) {
                for &key in some {
                    connection.send(&[b"SET", format!("key:{key}").as_bytes(), &self.value(key, round)]);
                }
                for _ in some {
                    assert_eq!(connection.reply(), b"+OK");
                }
            }
        };
        set(&mut (0..self.keys), 0);
        set(&mut (0..self.keys).step_by(5), 1);
        for key in (0..self.keys).step_by(37) {
            let expected = self.value(key, u32::from(key % 5 == 0));
            assert!(connection.ask(&[b"GET", format!("key:{key}").as_bytes()]) == expected, "key {key}");
        }
        text(&connection.ask(&[b"DEBUG", b"DIGEST"]))
    }
}

/// A redis under `fulgurite run` that has the data, and the digest that it has without us, too.
/// None where this machine cannot.
fn loaded(
    data: &Data,
    group: Option<&Group>,
    directory: &Path,
    options: &[&str],
) -> Option<(String, Redis, Connection)> {
    if Command::new("redis-server").arg("--version").output().is_err() {
        println!("SKIPPED: no redis-server; apt-get install redis-server");
        return None;
    }
    let (cap, dram) = (data.cap_mib << 20, format!("{}M", data.cap_mib));
    let mut redis = Redis::start(Command::new("redis-server"), directory);
    let mut connection = redis.connect().expect("redis runs without us");
    let expected = data.load(&mut connection);
    let held = resident_peak(redis.child.id());
    assert!(held >= data.times * cap, "{held} bytes are held, and {cap} are the cap");
    redis.end(&mut connection);

    let words = ["--dram", &dram, "--flash", directory.to_str().unwrap(), "--flash-size", "512M"];
    let words = [&words, options, &["--", "redis-server"]].concat();
    let mut redis = Redis::start(command(group, &words), directory);
    let Some(mut connection) = redis.connect() else {
        let mut stderr = Vec::new();
        let status = redis.child.wait().unwrap();
        redis.child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        let output = Output { status, stdout: Vec::new(), stderr };
        assert!(cannot(&output), "{}", text(&output.stderr));
        return None;
    };
    assert_eq!(data.load(&mut connection), expected);
    Some((expected, redis, connection))
}

#[test]
fn redis_holds_four_times_its_cap() {
    let directory = tempfile::tempdir().unwrap();
    let (cap_mib, keys) = if is_full() { (36, 28_000) } else { (20, 16_000) };
    let (cap, data) = (cap_mib << 20, Data { keys, value_bytes: 5_000, cap_mib, times: 4 });
    let group = Group::new("redis", cap);
    let Some((expected, redis, mut connection)) = loaded(&data, group.as_ref(), directory.path(), &[]) else { return };
    // What is saved is the state of this moment, whatever is written meanwhile.
    assert_eq!(text(&connection.ask(&[b"BGSAVE"])), "+Background saving started");
    let (mut written, begun) = (0, Instant::now());
    loop {
        for key in written..written + 50 {
            connection.send(&[b"SET", format!("key:{}", key % data.keys).as_bytes(), &data.value(key % data.keys, 2)]);
        }
        (0..50).for_each(|_| assert_eq!(connection.reply(), b"+OK"));
        written += 50;
        let info = text(&connection.ask(&[b"INFO", b"persistence"]));
        if info.contains("rdb_bgsave_in_progress:0") {
            assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{info}");
    }
    println!("{written} values were written during {:?} of BGSAVE", begun.elapsed());
    assert!(written >= 500, "the save was too fast to say anything");
    let logged = redis.end(&mut connection);
    assert!(peak_of_summary(&logged) <= cap, "{logged}");
    if let Some(group) = &group {
        println!("peak of the cgroup: {} of {} bytes; {logged}", group.peak(), cap);
    }
    let mut saved = Redis::start(Command::new("redis-server"), directory.path());
    let mut connection = saved.connect().expect("redis runs without us");
    // It answers before it has read its file.
    while connection.ask(&[b"PING"]) != b"+PONG" {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(text(&connection.ask(&[b"DEBUG", b"DIGEST"])), expected);
    saved.end(&mut connection);
}

#[test]
fn redis_holds_its_values_as_objects() {
    let directory = tempfile::tempdir().unwrap();
    let (keys, times) = if is_full() { (130_000, 4) } else { (30_000, 1) };
    let data = Data { keys, value_bytes: 1_000, cap_mib: 36, times };
    let cap = data.cap_mib << 20;
    let group = Group::new("redis-objects", cap);
    let words = ["--objects"];
    let Some((_, redis, mut connection)) = loaded(&data, group.as_ref(), directory.path(), &words) else { return };
    // It has an allocator of its own, and its values are objects nevertheless. A child would not
    // have them.
    assert!(text(&connection.ask(&[b"BGSAVE"])).starts_with("-ERR"));
    let logged = redis.end(&mut connection);
    assert!(peak_of_summary(&logged) <= cap, "{logged}");
    let objects = logged.lines().find(|line| line.contains(" objects, ")).unwrap_or_else(|| panic!("{logged}"));
    let count = objects.split(" objects").next().and_then(|before| before.rsplit(' ').next()?.parse::<u32>().ok());
    assert!(count.is_some_and(|count| count >= data.keys), "{logged}");
}
