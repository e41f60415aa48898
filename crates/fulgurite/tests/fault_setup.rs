//! Goal: whatever the kernel refuses while a memory is set up or changed is a typed error, or
//! something that works without it. There is never a panic or a hang, nothing leaks, and the next
//! start succeeds. Method: every call that sets something up is made to fail, one after the other,
//! until a run has none left. Such calls map arenas (frames, tables, stacks, buffers of media),
//! make memfds, eventfds and rings, register with them, and start threads. They fail at the start
//! of each kind of medium, and while a pool runs (budget down and up, a reader of a token, a sync).
//! File descriptors and threads are counted after each, mapped memory after each round.
//!
//! What scales with the pool or the budget is in such mappings, or reserves its memory and says
//! when there is none. Small allocations are Rust's: where there is no memory for them the process
//! ends, as everywhere in Rust.

use fulgurite_testkit as trials;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fulgurite::{Array, Error, Fulgurite, Medium};
use fulgurite_sys::planted;

/// No start makes more set-up calls.
const CALLS_MAX: u64 = 500;
/// The least that each arena takes of the addresses, so that it can be aligned.
const ARENA_BYTES: u64 = 2 << 20;
/// Nothing takes longer, on any machine.
const PATIENCE: Duration = Duration::from_secs(10);

static PANICS: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Memory,
    Emulated,
    File,
    FileOnDevice,
    Pool,
    PoolOnDevice,
}

fn start(kind: Kind, path: &Path) -> Result<Fulgurite, Error> {
    let (bytes, path) = (4 << 20, path.to_owned());
    let medium = match kind {
        Kind::Memory => Medium::memory(bytes),
        Kind::Emulated => Medium::emulated(bytes),
        // What an earlier try has made is used.
        Kind::File | Kind::FileOnDevice if path.exists() => Medium::file(path),
        Kind::File | Kind::FileOnDevice => Medium::new_file(path, bytes),
        Kind::Pool | Kind::PoolOnDevice if path.exists() => Medium::pool(path),
        Kind::Pool | Kind::PoolOnDevice => Medium::new_pool(path, bytes),
    };
    let builder = Fulgurite::builder(medium).dram("4M").workers(2).with(|runtime| runtime.fibers(8).dram_max(8 << 20));
    let on_device = matches!(kind, Kind::FileOnDevice | Kind::PoolOnDevice);
    if on_device { builder.on_device(None).start() } else { builder.start() }
}
/// It does what it should.
fn use_it(memory: &Fulgurite, number: u64) {
    const LEN: u64 = 64 * 512;
    let region = memory.region(Array::<u64>::bytes_needed(LEN)).expect("there is room");
    let array = memory.run(move |m| Array::create(m, region, LEN, |i| number + i)).expect("it can be written");
    let right = memory.run(move |m| {
        let mut right = 0;
        for i in (0..LEN).step_by(511) {
            right += u64::from(array.get(m, i)? == number + i);
        }
        Ok(right)
    });
    assert_eq!(right.expect("it can be read"), LEN.div_ceil(511));
}

/// File descriptors and threads of this process. io_uring's are the kernel's, which lets them go
/// when it likes.
fn held() -> (usize, usize) {
    let entries = |of: &str| std::fs::read_dir(format!("/proc/self/{of}")).expect("there is /proc").flatten();
    let ours = entries("task").filter(|task| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| !name.starts_with("iou-"))
    });
    (entries("fd").count(), ours.count())
}
/// Bytes of writable memory that was mapped, and belongs to no file.
fn mapped() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there is /proc");
    let sizes = maps.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (range, may) = (words.next()?, words.next()?);
        let (from, to) = range.split_once('-')?;
        let bytes = u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?;
        (may.starts_with("rw") && words.nth(3).is_none_or(|path| path.starts_with("/memfd"))).then_some(bytes)
    });
    sizes.sum()
}
/// Threads that were joined or let go may take a moment to leave.
fn assert_nothing_is_held(before: (usize, usize), what: &str) {
    let begun = Instant::now();
    while held() != before {
        assert!(
            begun.elapsed() < PATIENCE,
            "{what}: {:?} before and {:?} after, of descriptors and threads",
            before,
            held()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
fn assert_no_panic(what: &str) {
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{what}: a thread panicked");
}
fn assert_says_something(error: &Error, what: &str) {
    assert!(error.to_string().len() > 10, "{what}: {error:?}");
}

/// Makes each set-up call of a start fail. Returns how many there were.
fn each_call_of_a_start(kind: Kind, directory: &Path) -> u64 {
    let path = directory.join("flash");
    for number in 1..CALLS_MAX {
        let what = format!("{kind:?}, set-up call {number}");
        let _ = std::fs::remove_file(&path);
        let before = held();
        let begun = Instant::now();
        planted::fail_set_up(number);
        let started = start(kind, &path);
        let calls = planted::clear();
        match started {
            Err(error) => {
                assert!(calls >= number, "{what}: {error}, and no call has failed");
                assert_says_something(&error, &what);
            }
            Ok(memory) => use_it(&memory, number << 32),
        }
        assert_no_panic(&what);
        assert!(begun.elapsed() < PATIENCE, "{what}: it took {:?}", begun.elapsed());
        assert_nothing_is_held(before, &what);
        if number % 16 == 1 {
            let again = start(kind, &path).unwrap_or_else(|error| panic!("{what}: the next start: {error}"));
            use_it(&again, number << 40);
            drop(again);
            assert_nothing_is_held(before, &what);
        }
        if calls < number {
            return calls;
        }
    }
    panic!("{kind:?}: more than {CALLS_MAX} set-up calls")
}

/// Fails each set-up call that is made while a pool runs.
fn each_call_of_a_running_pool(kind: Kind, directory: &Path) -> u64 {
    let path = directory.join("running");
    let memory = start(kind, &path).expect("nothing fails yet");
    use_it(&memory, 1);
    memory.sync().expect("nothing fails yet");
    let before = held();
    for number in 1..CALLS_MAX {
        let what = format!("{kind:?} that runs, set-up call {number}");
        let begun = Instant::now();
        planted::fail_set_up(number);
        memory.set_dram(3 << 20).expect("the budget is large enough");
        memory.set_dram(8 << 20).expect("the budget is not too large");
        let token = memory.sync();
        let token = token.unwrap_or_else(|error| panic!("{what}: a sync sets nothing up: {error}"));
        let reader = memory.open_token(token, 4 << 20);
        // The workers have done what they were asked to.
        drop(memory.statistics());
        let calls = planted::clear();
        match reader {
            Err(error) => {
                assert!(calls >= number, "{what}: {error}, and no call has failed");
                assert_says_something(&error, &what);
            }
            Ok(reader) => assert!(reader.roots().expect("it can be read").is_empty()),
        }
        assert_no_panic(&what);
        assert!(begun.elapsed() < PATIENCE, "{what}: it took {:?}", begun.elapsed());
        assert_nothing_is_held(before, &what);
        if calls < number {
            use_it(&memory, 2);
            return calls;
        }
    }
    panic!("{kind:?}: more than {CALLS_MAX} set-up calls")
}

/// One test, as what is planted is the process's.
#[test]
fn what_cannot_be_set_up_is_an_error() {
    let own = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        own(info);
    }));
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let mut calls = 0;
    for kind in [Kind::Memory, Kind::Emulated, Kind::File, Kind::FileOnDevice, Kind::Pool, Kind::PoolOnDevice] {
        let path = directory.path().join("flash");
        let complete = || {
            let memory = start(kind, &path).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            use_it(&memory, 7);
            drop(memory);
            mapped()
        };
        let first = each_call_of_a_start(kind, directory.path());
        // Once for what the C library keeps: stacks of threads that have ended, and its own arenas.
        let before = complete();
        assert_eq!(each_call_of_a_start(kind, directory.path()), first, "the same start makes the same calls");
        let after = complete();
        std::fs::remove_file(&path).ok();
        println!("{kind:?}: {first} set-up calls; {before} bytes were mapped before, {after} after");
        assert!(after < before + ARENA_BYTES, "{kind:?}: {before} bytes were mapped before, {after} after");
        assert!(first >= 5, "{kind:?}: {first}");
        calls += first;
    }
    trials::figure(5, "set-up calls at a start that each failed", calls);
    let mut calls = 0;
    for kind in [Kind::Pool, Kind::PoolOnDevice] {
        calls += each_call_of_a_running_pool(kind, directory.path());
        std::fs::remove_file(directory.path().join("running")).expect("it was there");
    }
    assert!(calls > 0);
    trials::figure(5, "set-up calls of a running pool that each failed", calls);
}
