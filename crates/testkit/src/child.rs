//! A test that starts its own program once more, to be stopped, killed or kept from its rights.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

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

#[test]
fn a_test_is_named_from_its_program_on() {
    assert_eq!(arguments("all::crash_kill", "writer")[0], "crash_kill::writer");
    assert_eq!(arguments("all", "writer")[0], "writer");
}
