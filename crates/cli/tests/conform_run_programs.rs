//! Goal: programs that people use run under `fulgurite run` in less DRAM than they take, and say
//! what they say without. Method: each runs twice with the same input, and output and exit code are
//! compared. The cap must hold. `make test-full` runs all of them with more data, and `make test`
//! those that are fast. What is not installed is said.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fulgurite_testkit::{Random, is_full, share};

const FULGURITE: &str = env!("CARGO_BIN_EXE_fulgurite");

struct Program {
    words: Vec<String>,
    input: Vec<u8>,
    /// MiB of DRAM.
    dram: u32,
    /// Its small blocks go to flash.
    small: bool,
    /// MiB of flash.
    flash: u32,
    /// It holds more than its DRAM, so that pages have to leave it. In a full run it is four times
    /// as much.
    large: bool,
    /// How faults are handled.
    mode: &'static str,
}

fn program(words: &[&str], input: impl Into<Vec<u8>>) -> Program {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Program { words, input: input.into(), dram: 24, small: false, flash: 512, large: true, mode: "any" }
}

fn run(mut command: Command, input: &[u8], directory: &Path) -> Output {
    let command = command.current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A program may end before it has read all.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

/// Lines of a number and its place, in no order.
fn lines(count: u64) -> Vec<u8> {
    let mut random = Random::seeded("run_programs", 1);
    (0..count).flat_map(|line| format!("{:016x} {line}\n", random.below(u64::MAX)).into_bytes()).collect()
}

/// SQL that makes so many rows of about 340 bytes and an index on them, and asks.
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

fn programs() -> Vec<Program> {
    let sort = program(&["sort", "-S", "200M", "--parallel=2"], lines(share(2_000_000).max(400_000)));
    let bash = Program { large: false, ..program(&["bash", "-c", SHELL], "") };
    let mut all = vec![sort, bash];
    if !is_full() {
        return all;
    }
    all.push(Program { small: true, ..program(&["sqlite3", ":memory:"], sql(160_000)) });
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
    all
}

#[test]
fn programs_say_what_they_say_without_us() {
    for Program { words, input, dram, small, flash: flash_mib, large, mode } in programs() {
        let directory = tempfile::tempdir().unwrap();
        let (name, arguments) = words.split_first().unwrap();
        if Command::new(name).arg("--version").output().is_err() {
            println!("SKIPPED: no {name}; apt-get install {name}");
            continue;
        }
        let mut without = Command::new(name);
        without.args(arguments);
        let expected = run(without, &input, directory.path());

        let flash: PathBuf = directory.path().join("flash");
        let mut command = Command::new(FULGURITE);
        command.args(["run", "--dram", &format!("{dram}M"), "--flash-size", &format!("{flash_mib}M")]);
        command.args(["--json", "--flash"]).arg(&flash);
        command.args((mode != "any").then_some(["--mode", mode]).into_iter().flatten());
        command.args(small.then_some("--small-blocks")).arg("--").args(&words);
        let output = run(command, &input, directory.path());
        let told = String::from_utf8_lossy(&output.stderr);
        if told.contains("userfaultfd is refused") {
            println!("SKIPPED: {told}");
            return;
        }
        let shown = |output: &Output| String::from_utf8_lossy(&output.stdout).chars().take(2000).collect::<String>();
        let same = expected.stdout == output.stdout && expected.status == output.status;
        assert!(same, "{words:?}: {:?}\n{}\nnot\n{}\n{told}", output.status, shown(&output), shown(&expected));
        let summary = told.lines().rev().find(|line| line.starts_with('{'));
        let summary = summary.unwrap_or_else(|| panic!("{words:?}: no summary: {told}"));
        let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
        assert!(summary["peak_bytes"].as_u64() <= summary["cap_bytes"].as_u64(), "{words:?}: {told}");
        // Of four times its DRAM, three quarters have left it at least once.
        let least = if is_full() { 3 * (u64::from(dram) << 20) } else { 1 << 20 };
        assert!(!large || summary["bytes_written"].as_u64() > Some(least), "{words:?}: {told}");
        println!("{name}: {summary}");
    }
}
