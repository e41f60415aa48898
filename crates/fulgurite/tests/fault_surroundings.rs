//! Goal: what surrounds a process changes, and no value is lost or wrong: limits of the process
//! that are set before or after the start, another program that changes the file of an open pool, a
//! system clock that jumps either way. What cannot be done is an error, and after it the pool opens
//! with all that was synced. Method: this program once more, under a limit by `ulimit` or
//! `prlimit`, with a clock that a small library shifts by what a file says. Writes into the file of
//! an open pool, whose data do not fit in DRAM.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fulgurite::latches::VersionLatch;
use fulgurite::{Fulgurite, HashMap, Medium, Rooted};
use fulgurite_testkit as testkit;
use testkit::Random;

type Value = [u64; 64];
type Map = Arc<Rooted<HashMap<u64, Value, VersionLatch>>>;

/// Keys whose values are more than DRAM holds, and fewer.
const MANY: u64 = 10_000;
const FEW: u64 = 500;
/// The variable that names the pool to a child.
const POOL: &str = "FULGURITE_TEST_POOL";
/// And the one that names the file with the seconds by which its system clock is ahead.
const AHEAD: &str = "FULGURITE_TEST_AHEAD";

fn value(key: u64, round: u64) -> Value {
    [key.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round); 64]
}
fn open(pool: &Path) -> Result<(Fulgurite, Map), fulgurite::Error> {
    let hour = Duration::from_secs(3600);
    let builder = Fulgurite::builder(Medium::pool_or_new(pool, "64M")).dram("4M").keep_tokens(8).keep_age(hour);
    let memory = builder.start()?;
    let map = memory.named("map").hash_map(MANY)?;
    Ok((memory, map))
}
/// Puts the values of a round under this many keys, and syncs.
fn put(memory: &Fulgurite, map: &Map, keys: u64, round: u64) -> Result<(), fulgurite::Error> {
    memory.run(|m| (0..keys).try_for_each(|key| map.insert(m, &key, value(key, round)).map(drop)))?;
    memory.sync()?;
    Ok(())
}
/// Asserts that each key has a value of one of these rounds.
fn check(pool: &Path, keys: u64, rounds: &[u64]) {
    let (memory, map) = open(pool).unwrap();
    for key in 0..keys {
        let found = memory.run(|m| map.get(m, &key)).unwrap();
        assert!(rounds.iter().any(|round| found == Some(value(key, *round))), "key {key} has no value of {rounds:?}");
    }
}
fn new_pool(at: &Path, keys: u64) -> std::path::PathBuf {
    let pool = at.join("pool");
    let (memory, map) = open(&pool).unwrap();
    put(&memory, &map, keys, 0).unwrap();
    pool
}
/// This program once more, started by a line of bash that ends with `exec "$@"`.
fn under(line: &str, test: &str, pool: &Path) -> Output {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{line}; exec \"$@\""), "bash"]).arg(std::env::current_exe().unwrap());
    command.args(testkit::arguments(module_path!(), test)).env(POOL, pool).output().unwrap()
}
fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The child: opens the pool, puts the values of round 1, and says how far it came.
#[test]
#[ignore = "started by the tests of limits"]
fn opens_and_puts() {
    let Some(pool) = std::env::var_os(POOL) else { return };
    let result = open(pool.as_ref()).and_then(|(memory, map)| {
        if let Some(limit) = std::env::var_os("FULGURITE_TEST_LIMIT") {
            let own = std::process::id().to_string();
            let set = Command::new("prlimit").args(["--pid", &own]).arg(limit).status().unwrap();
            assert!(set.success());
        }
        put(&memory, &map, FEW, 1)
    });
    match result {
        Ok(()) => println!("\nsynced"),
        Err(error) => println!("\nrefused: {error}"),
    }
}

#[test]
fn a_limit_is_an_error_at_most() {
    let directory = tempfile::tempdir().unwrap();
    let (mut refused, mut synced) = (0, 0);
    let before =
        ["ulimit -n 4", "ulimit -n 10", "ulimit -v 100000", "trap '' XFSZ; ulimit -f 0", "ulimit -l 0", "true"];
    let after = ["--nofile=0", "--fsize=0", "--memlock=0"];
    let after = after.map(|limit| format!("trap '' XFSZ; export FULGURITE_TEST_LIMIT={limit}"));
    for line in before.into_iter().map(String::from).chain(after) {
        let at = directory.path().join(line.replace(|c: char| !c.is_alphanumeric(), "-"));
        fs::create_dir(&at).unwrap();
        let pool = new_pool(&at, FEW);
        let output = under(&line, "opens_and_puts", &pool);
        let printed = printed(&output);
        assert!(output.status.success() && !printed.contains("panicked"), "{line}: {:?} {printed}", output.status);
        if printed.contains("\nsynced") {
            synced += 1;
            check(&pool, FEW, &[1]);
        } else {
            let error = printed.split("\nrefused: ").nth(1).unwrap_or_else(|| panic!("{line}: {printed}"));
            assert!(error.lines().next().is_some_and(|error| error.len() > 20), "{line}: {error}");
            refused += 1;
            check(&pool, FEW, &[0, 1]);
        }
    }
    assert!(refused >= 3 && synced >= 3, "{refused} refused, {synced} synced");
    // A program that does not handle the signal is ended by it.
    let pool = new_pool(directory.path(), FEW);
    let output = under("ulimit -f 0", "opens_and_puts", &pool);
    assert!(!output.status.success(), "{}", printed(&output));
    check(&pool, FEW, &[0, 1]);
    testkit::figure(27, "processes under limits", refused + synced + 1);
}

/// Reads all values. Each is right or an error. Returns how many are right and how many errors.
fn right_or_an_error(memory: &Fulgurite, map: &Map) -> (u64, u64) {
    let (mut right, mut errors) = (0, 0);
    for key in 0..MANY {
        match memory.run(|m| map.get(m, &key)) {
            Ok(found) => {
                assert_eq!(found, Some(value(key, 0)), "key {key}");
                right += 1;
            }
            Err(_) => errors += 1,
        }
    }
    (right, errors)
}

#[test]
fn another_program_changes_the_file_of_an_open_pool() {
    let directory = tempfile::tempdir().unwrap();
    let random = &mut Random::seeded("changed file", 27);
    let (mut right, mut errors) = (0, 0);
    for how in ["overwritten", "moved", "cut"] {
        let at = directory.path().join(how);
        fs::create_dir(&at).unwrap();
        let pool = new_pool(&at, MANY);
        let whole = fs::read(&pool).unwrap();
        let (memory, map) = open(&pool).unwrap();
        let file = fs::File::options().write(true).open(&pool).unwrap();
        let pages = whole.len() / 4096;
        match how {
            "overwritten" => (16..pages).step_by(50).for_each(|page| {
                file.write_all_at(&random.bytes(4096), page as u64 * 4096).unwrap();
            }),
            // Pages with valid contents, in other places.
            "moved" => (16..pages - 1).step_by(50).for_each(|page| {
                file.write_all_at(&whole[(page + 1) * 4096..][..4096], page as u64 * 4096).unwrap();
            }),
            _ => file.set_len(whole.len() as u64 / 32).unwrap(),
        }
        let (some, others) = right_or_an_error(&memory, &map);
        assert!(others > 0, "{how}: no read met it");
        (right, errors) = (right + some, errors + others);
        drop((map, memory, file));
        // Once the file is as it was, so is the pool.
        fs::write(&pool, &whole).unwrap();
        check(&pool, MANY, &[0]);
    }
    assert!(right > 0, "all of {errors} reads were refused");
    testkit::figure(27, "reads of changed pages that were refused", errors);
}

/// The child: syncs a round, jumps, and so on, then reads which tokens are left.
#[test]
#[ignore = "started by the test of jumps"]
fn syncs_while_the_clock_jumps() {
    let (Some(pool), Some(ahead)) = (std::env::var_os(POOL), std::env::var_os(AHEAD)) else { return };
    let seconds = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let year = 365 * 24 * 3600;
    let (memory, map) = open(pool.as_ref()).unwrap();
    let mut newest = None;
    for (round, jump) in [0, 10 * year, -10 * year, 0, -40 * year, 100 * year].into_iter().enumerate() {
        let was = i64::try_from(seconds()).unwrap() - fs::read_to_string(&ahead).unwrap().parse::<i64>().unwrap();
        fs::write(&ahead, jump.to_string()).unwrap();
        assert!((i64::try_from(seconds()).unwrap() - was - jump).abs() < 60, "the library shifts the clock");
        // A time limit of a job is no matter of the system's clock.
        let limit = fulgurite::JobOptions::default().deadline(Duration::from_secs(60));
        let first = map.clone();
        memory.submit_with(&limit, move |m| first.get(m, &0)).unwrap().wait().unwrap().unwrap();
        put(&memory, &map, FEW, round as u64 + 1).unwrap();
        let tokens = memory.tokens().unwrap();
        // What was synced just now stays, whatever the clock says.
        assert!(tokens.is_sorted() && tokens.last() > newest.as_ref(), "{jump}: {tokens:?} after {newest:?}");
        newest = tokens.last().copied();
    }
    println!("\nsynced");
}

#[test]
fn a_clock_that_jumps() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        int clock_gettime(clockid_t clock, struct timespec *to) {
            long seconds = 0;
            FILE *file = clock == CLOCK_REALTIME ? fopen(getenv("FULGURITE_TEST_AHEAD"), "r") : NULL;
            if (file) {
                if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
                fclose(file);
            }
            int result = (int)syscall(SYS_clock_gettime, clock, to);
            to->tv_sec += seconds;
            return result;
        }"#;
    let (shift, ahead) = (at.join("shift.so"), at.join("ahead"));
    fs::write(at.join("shift.c"), source).unwrap();
    fs::write(&ahead, "0").unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shift).arg(at.join("shift.c")).status();
    assert!(built.unwrap().success());
    let pool = new_pool(at, FEW);
    let mut child = testkit::again(module_path!(), "syncs_while_the_clock_jumps");
    let output = child.env(POOL, &pool).env(AHEAD, &ahead).env("LD_PRELOAD", &shift).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    assert!(printed(&output).contains("\nsynced"));
    // The pool was last synced a hundred years from now.
    check(&pool, FEW, &[6]);
    testkit::figure(27, "jumps of the clock", 6);
}
