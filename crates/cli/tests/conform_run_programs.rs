//! Goal: programs that people use run under `fulgurite run` in a quarter of the DRAM that they
//! take, and say what they say without Fulgurite. Method: each runs twice with the same input, and
//! output and exit code are compared. Without Fulgurite, the kernel says how much DRAM it takes at
//! most. The cap must hold. `make test-full` runs all of them, and `make test` those that are fast.
//! What is not installed is said.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fulgurite_testkit::{Random, is_full};

use crate::runs::{FULGURITE, TIMES, output_and_peak};

struct Program {
    words: Vec<String>,
    input: Vec<u8>,
    /// MiB of DRAM.
    dram: u32,
    /// Its small blocks go to flash.
    small: bool,
    /// MiB of flash.
    flash: u32,
    /// It holds [`TIMES`] its DRAM.
    large: bool,
    /// How faults are handled.
    mode: &'static str,
}

fn program(words: &[&str], input: impl Into<Vec<u8>>) -> Program {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Program { words, input: input.into(), dram: 24, small: false, flash: 512, large: true, mode: "any" }
}

/// Lines of a number and its place, in no order, of `bytes` bytes or a few more.
fn lines(count: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::seeded("run_programs", 1);
    let width = bytes.saturating_sub(18);
    (0..count).flat_map(|line| format!("{:016x} {line:<width$}\n", random.below(u64::MAX)).into_bytes()).collect()
}

/// SQL that makes `rows` rows of about 340 bytes and an index on them, and asks.
fn sql(rows: u64) -> String {
    format!(
        "create table t(a integer primary key, b text);
         with recursive c(x) as (select 1 union all select x + 1 from c where x < {rows})
           insert into t select x, printf('%0300d', x * 7919 % 1000003) from c;
         create index i on t(b);
         delete from t where a % 7 = 3;
         select count(*), sum(length(b)), min(b), max(b) from t;
         select sum(a) from t where b > printf('%0300d', 500000);"
    )
}

/// Arrays, a child that reads them all while its parent changes them, and a pool of processes.
const PYTHON: &str = "
import array, hashlib, multiprocessing, os, subprocess
arrays = [array.array('q', range(i, i + 512000)) for i in range(40)]
def digest():
    found = hashlib.md5()
    for one in arrays: found.update(one.tobytes())
    return found.hexdigest()
def total(i): return sum(arrays[i])
print(digest())
print(subprocess.run(['echo', 'one'], capture_output=True, text=True).stdout, os.popen('echo two').read())
reads, writes = os.pipe()
child = os.fork()
if child == 0:
    os.write(writes, digest().encode())
    os._exit(0)
for one in arrays: one[0] = 7
print(os.read(reads, 100).decode(), os.waitpid(child, 0)[1], digest())
with multiprocessing.get_context('fork').Pool(3) as pool: print(sum(pool.map(total, range(40))))
";

/// 288 MiB of numbers, sorted, multiplied and added.
const NUMPY: &str = "
import numpy
numbers = numpy.arange(37_800_000, dtype=numpy.int64) * 7919 % 1000003
print(numbers.sum(), numbers.argmax())
numbers.sort()
print(numbers[::1_000_000], (numbers[1:] >= numbers[:-1]).all())
square = numpy.arange(1_000_000, dtype=numpy.float64).reshape(1000, 1000) % 97
print((square @ square).sum())
";

/// An index for nearest neighbours over 256 MiB of vectors. Each cluster of them is asked for some.
const USEARCH: &str = "
import hashlib, numpy
from usearch.index import Index
clusters, each, dims = 400, 100, 1680
index = Index(ndim=dims, metric='l2sq', dtype='f32', connectivity=8, expansion_add=16, expansion_search=16)
centres = numpy.random.default_rng(7).standard_normal((clusters, dims), dtype=numpy.float32) * 4
def batch(cluster):
    noise = numpy.random.default_rng(cluster).standard_normal((each, dims), dtype=numpy.float32)
    return centres[cluster] + noise
for cluster in range(clusters):
    index.add(numpy.arange(each, dtype=numpy.uint64) + cluster * each, batch(cluster), threads=1)
found = hashlib.md5()
for cluster in range(clusters):
    nearest = index.search(batch(cluster)[:4], 3, threads=1)
    found.update(nearest.keys.tobytes())
    found.update(nearest.distances.tobytes())
print(len(index) * dims * 4 >> 20, 'MiB', found.hexdigest())
";

/// What shells do with descriptors and children.
const SHELL: &str = "
exec 3>three; echo three >&3; exec 3>&-
for i in 1 2 3; do (echo sub $i; exit $i) || echo ended $?; done
seq 1 20000 | sort -rn | head -3
x=$(cat three); echo \"$x\" | tr a-z A-Z; wait; exit 5
";

fn python() -> Option<String> {
    // The program itself: a script that starts it would have it as a child.
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|path| !path.is_empty())
}

fn programs_that_sort() -> Vec<Program> {
    // It reads lines at random, once they are half sorted. So these are few and long, or take long.
    let few = Program { dram: 10, flash: 128, ..program(&["sort", "-S", "60M", "--parallel=2"], lines(7_000, 6_000)) };
    let many = Program { dram: 12, ..program(&["sort", "-S", "200M", "--parallel=2"], lines(600_000, 0)) };
    let sort = if is_full() { many } else { few };
    let (rows, dram, flash) = if is_full() { (160_000, 24, 512) } else { (45_000, 13, 128) };
    let sqlite = Program { small: true, dram, flash, ..program(&["sqlite3", ":memory:"], sql(rows)) };
    vec![sort, sqlite]
}

fn programs_with_threads_and_children(classes: &Path) -> Vec<Program> {
    let mut all = vec![Program { large: false, ..program(&["bash", "-c", SHELL], "") }];
    if !is_full() {
        return all;
    }
    if let Some(python) = python() {
        for mode in ["any", "in-line"] {
            // It has handlers of the signals of faults.
            let words: [&str; 5] = [&python, "-X", "faulthandler", "-c", PYTHON];
            // Its children may change all of it as well.
            all.push(Program { dram: 40, mode, flash: 1024, ..program(&words, "") });
        }
        for (library, source, dram) in [("numpy", NUMPY, 72), ("usearch.index", USEARCH, 64)] {
            let imports = Command::new(&python).args(["-c", &format!("import {library}")]).output().unwrap();
            if imports.status.success() {
                all.push(Program { dram, flash: 1280, ..program(&[&python, "-c", source], "") });
            } else {
                println!("SKIPPED: no {library}; pip install numpy usearch");
            }
        }
    }
    all.extend(java(classes));
    all
}

/// A program of Java in each mode. It has handlers of the signals of faults, and its own heap stays
/// in DRAM.
fn java(classes: &Path) -> Vec<Program> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/Faults.java");
    match Command::new("javac").arg("-d").arg(classes).arg(&source).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("SKIPPED: no javac ({error}); apt-get install default-jdk-headless");
            return Vec::new();
        }
    }
    let place = classes.to_str().unwrap();
    let heap = ["-Xmx24m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=400m"];
    let words = [&["java"], &heap[..], &["-cp", place, "Faults", "200"]].concat();
    let modes = ["compatible", "in-line"].into_iter();
    modes.map(|mode| Program { dram: 160, mode, large: false, ..program(&words, "") }).collect()
}

#[test]
fn programs_that_sort_say_what_they_say_without_us() {
    say_what_they_say_without_us(programs_that_sort());
}

#[test]
fn programs_with_threads_and_children_say_what_they_say_without_us() {
    let classes = tempfile::tempdir().unwrap();
    say_what_they_say_without_us(programs_with_threads_and_children(classes.path()));
}

fn say_what_they_say_without_us(programs: Vec<Program>) {
    for Program { words, input, dram, small, flash: flash_mib, large, mode } in programs {
        let directory = tempfile::tempdir().unwrap();
        let (name, arguments) = words.split_first().unwrap();
        if Command::new(name).arg("--version").output().is_err() {
            println!("SKIPPED: no {name}; apt-get install {name}");
            continue;
        }
        let mut without = Command::new(name);
        without.args(arguments).current_dir(&directory);
        let (expected, held) = output_and_peak(&mut without, &input);
        let cap = u64::from(dram) << 20;
        assert!(!large || held >= TIMES * cap, "{words:?} holds {held} bytes, and {cap} are the cap");

        let flash: PathBuf = directory.path().join("flash");
        let mut command = Command::new(FULGURITE);
        command.args(["run", "--dram", &format!("{dram}M"), "--flash-size", &format!("{flash_mib}M")]);
        command.args(["--json", "--flash"]).arg(&flash);
        command.args((mode != "any").then_some(["--mode", mode]).into_iter().flatten());
        command.args(small.then_some("--small-blocks")).arg("--").args(&words);
        let (output, _) = output_and_peak(command.current_dir(&directory), &input);
        let logged = String::from_utf8_lossy(&output.stderr);
        if logged.contains("userfaultfd is refused") {
            println!("SKIPPED: {logged}");
            return;
        }
        let shown = |output: &Output| String::from_utf8_lossy(&output.stdout).chars().take(2000).collect::<String>();
        let same = expected.stdout == output.stdout && expected.status == output.status;
        assert!(same, "{words:?}: {:?}\n{}\nnot\n{}\n{logged}", output.status, shown(&output), shown(&expected));
        let summary = logged.lines().rev().find(|line| line.starts_with('{'));
        let summary = summary.unwrap_or_else(|| panic!("{words:?}: no summary: {logged}"));
        let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
        assert!(summary["peak_bytes"].as_u64() <= summary["cap_bytes"].as_u64(), "{words:?}: {logged}");
        // Of four times its DRAM, three quarters have left it at least once.
        let written = summary["bytes_written"].as_u64();
        assert!(!large || written > Some((TIMES - 1) * cap), "{words:?}: {logged}");
        println!("{name} holds {:.1} times its cap: {summary}", held as f64 / cap as f64);
    }
}
