//! A test that starts its own program once more, to be stopped, killed or kept from its rights.

use std::ffi::OsString;
use std::fs::{create_dir_all, read_dir, remove_dir_all};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::trials::{runs, seed};

/// Arguments for this program: one test of the module that `module_path!()` names.
pub fn arguments(module: &str, test: &str) -> [String; 5] {
    let within = module.split_once("::").map_or(String::new(), |(_, within)| format!("{within}::"));
    [
        format!("{within}{test}"),
        "--exact".into(),
        "--include-ignored".into(),
        "--nocapture".into(),
        "--test-threads=1".into(),
    ]
}

/// This program once more, to run one test of the module that `module_path!()` names.
pub fn again(module: &str, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a process knows its program"));
    command.args(arguments(module, test));
    command
}

/// What a child does that [`kill_after`] kills: syncs again and again, and says what had been
/// counted before.
pub fn sync_and_report(done: &[AtomicU64], pause: Duration, mut sync: impl FnMut()) -> ! {
    loop {
        let counts: Vec<String> = done.iter().map(|count| count.load(Ordering::SeqCst).to_string()).collect();
        sync();
        println!("\nsynced {}", counts.join(" "));
        std::thread::sleep(pause);
    }
}

/// Starts a child, and kills it `time` after it has first printed `synced` and `numbers` numbers.
/// Other lines are passed to `other`. Returns the numbers that it printed last.
///
/// # Panics
/// When the child has not synced within a minute, or ends by itself.
pub fn kill_after(child: &mut Command, numbers: usize, time: Duration, mut other: impl FnMut(&str) + Send) -> Vec<u64> {
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a child starts");
    let output = child.stdout.take().expect("it is piped");
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut last = vec![0; numbers];
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Some(counts) = line.strip_prefix("synced ") else {
                    other(&line);
                    continue;
                };
                let counts: Result<Vec<u64>, _> = counts.split(' ').map(str::parse).collect();
                // The last line may be cut off.
                if let Some(counts) = counts.ok().filter(|counts| counts.len() == numbers) {
                    last = counts;
                    let _ = ready.send(());
                }
            }
            last
        });
        // A slow machine has its time, too: the child is killed after it has begun.
        let has_synced = is_ready.recv_timeout(Duration::from_secs(60));
        std::thread::sleep(time);
        let has_ended = child.try_wait().expect("it is ours").is_some();
        // Before anything panics: the reader ends with the child.
        child.kill().expect("it can be killed");
        child.wait().expect("it has ended");
        assert!(has_synced.is_ok(), "the child has not synced once");
        assert!(!has_ended, "the child ended by itself");
        reader.join().expect("the reader does not panic")
    })
}

/// Waits in short steps until this is so.
///
/// # Panics
/// When it is not after a minute.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not after a minute");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Kills processes that make a pool, or a file, at random moments. After each, a further process
/// must make it, or find it. `start` gives the process for a directory, in whose `data` it makes
/// everything, and leaves nothing unfinished in the end. A process may say by files that it begins
/// and is done: `marks/begun`, and `marks/made` once that has a byte. Where it does not, it has
/// begun when there is anything in `data`, and is done when it ends. Returns the number of kills.
///
/// # Panics
/// When a process that is not killed fails, or takes longer than a minute.
pub fn kill_makers(what: &str, root: &Path, start: impl Fn(&Path) -> Command) -> u64 {
    let mut random = Random(seed());
    let mut longest = Duration::ZERO;
    let rounds = runs(40);
    for round in 0..rounds {
        let directory = root.join(round.to_string());
        let (data, marks) = (directory.join("data"), directory.join("marks"));
        create_dir_all(&data).expect("a directory is made");
        create_dir_all(&marks).expect("a directory is made");
        let left = || -> Vec<_> { read_dir(&data).expect("it is there").flatten().map(|e| e.file_name()).collect() };
        let spawn = || start(&directory).stdout(Stdio::null()).spawn().expect("it starts");
        let is_made = |child: &mut Child| match child.try_wait().expect("it is ours") {
            Some(ended) => {
                assert!(ended.success(), "{what}, round {round}, with {:?} there: {ended}", left());
                true
            }
            None => std::fs::metadata(marks.join("made")).is_ok_and(|made| made.len() > 0),
        };

        let mut child = spawn();
        until(what, || marks.join("begun").exists() || !left().is_empty() || is_made(&mut child));
        let begun = Instant::now();
        // The first one goes on until all is made, which says how long that takes.
        if round == 0 {
            until(what, || is_made(&mut child));
            longest = begun.elapsed();
        }
        let wait = longest.mul_f64(random.below(1200) as f64 / 1000.0);
        until(what, || round == 0 || begun.elapsed() >= wait);
        child.kill().expect("it can be killed");
        child.wait().expect("it has ended");

        remove_dir_all(&marks).expect("nobody writes there");
        create_dir_all(&marks).expect("a directory is made");
        println!("{what}, round {round}, killed after {wait:?} of {longest:?}: {:?}", left());
        let mut child = spawn();
        until(what, || is_made(&mut child));
        child.kill().expect("it can be killed, or has ended");
        child.wait().expect("it has ended");
        let is_whole = |name: &OsString| !name.as_encoded_bytes().ends_with(b".unfinished");
        assert!(left().iter().all(is_whole), "{what}, round {round}: {:?}", left());
        remove_dir_all(&directory).expect("nobody writes there");
    }
    rounds
}

#[test]
fn a_test_is_named_from_its_program_on() {
    assert_eq!(arguments("all::crash_kill", "writer")[0], "crash_kill::writer");
    assert_eq!(arguments("all", "writer")[0], "writer");
}
