//! Goal: what a user with only the terminal must know is there, by name: a job that never gives its
//! core back, and one that ran out of stack. All others continue. Method: this binary starts itself
//! as a child whose standard error is read. The child's job keeps its core until it is notified
//! that the report was seen, so nothing depends on how long things take. The job's handle tells how
//! it ended.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use fulgurite_flash::MemoryFlash;
use fulgurite_runtime::{Context, JobError, JobOptions, Next, Runtime, Service};

/// Which of its parts the child plays.
const PART: &str = "FULGURITE_TEST_PART";

fn runtime() -> Runtime {
    let flash = Arc::new(MemoryFlash::new(256).unwrap());
    Runtime::builder(flash).dram(16 << 20).fibers(4).run_limit(Duration::from_millis(5)).build().unwrap()
}

fn goes_on(runtime: &Runtime) {
    assert_eq!(runtime.submit_with(&JobOptions::new().name("another"), |_| 7).unwrap().wait(), Ok(7));
}

#[inline(never)]
fn overflow(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { overflow(depth + 1) + room[(depth % 64) as usize] }
}

/// One request, which keeps its core until it is notified.
struct Reads {
    done: Cell<bool>,
}
impl Service for Reads {
    fn next(&self) -> Next {
        if self.done.get() { Next::Finished } else { Next::Ready }
    }
    fn run(&self, _: &mut Context) {
        self.done.set(true);
        assert_eq!(std::io::stdin().read(&mut [0]).unwrap(), 1);
    }
    fn name(&self) -> &'static str {
        "the service"
    }
}

/// Nothing to do, and a stack too small to say so.
struct Deep {
    armed: Arc<AtomicBool>,
}
impl Service for Deep {
    fn next(&self) -> Next {
        if self.armed.load(Ordering::Relaxed) {
            std::hint::black_box(overflow(0));
        }
        Next::At(u64::MAX)
    }
    fn run(&self, _: &mut Context) {}
}

/// Runs only as the child of the tests below.
#[test]
#[ignore = "started by the other tests, which read what it prints"]
fn child() {
    let Ok(part) = std::env::var(PART) else { return };
    let runtime = runtime();
    match part.as_str() {
        "keeps its core" => {
            let options = JobOptions::new().name("one that never yields");
            let reported = runtime.submit_with(&options, |_| std::io::stdin().read(&mut [0]).unwrap());
            assert_eq!(reported.unwrap().wait(), Ok(1));
        }
        "keeps its core after another" => {
            let begun = Arc::new(AtomicBool::new(false));
            let has_begun = begun.clone();
            let reported = runtime
                .submit_with(&JobOptions::new().name("the first"), move |m| {
                    while !has_begun.load(Ordering::Relaxed) {
                        m.yield_now().unwrap();
                    }
                    std::io::stdin().read(&mut [0]).unwrap()
                })
                .unwrap();
            let second = runtime.submit_with(&JobOptions::new().name("the second"), move |m| {
                begun.store(true, Ordering::Relaxed);
                m.sleep(Duration::from_millis(1))
            });
            assert_eq!(reported.wait(), Ok(1));
            assert_eq!(second.unwrap().wait(), Ok(Ok(())));
        }
        "serves" => {
            goes_on(&runtime);
            runtime.serve(|_| Reads { done: Cell::new(false) }).unwrap();
        }
        "overflows while it is asked" => {
            // The end of a job, on whose fiber the service is asked.
            let armed = Arc::new(AtomicBool::new(false));
            let (its, arms) = (armed.clone(), armed);
            std::thread::scope(|scope| {
                let served = scope.spawn(|| runtime.serve(move |_| Deep { armed: its.clone() }));
                let job = runtime.submit_with(&JobOptions::new().name("the last"), move |m| {
                    m.sleep(Duration::from_millis(50)).unwrap();
                    arms.store(true, Ordering::Relaxed);
                });
                assert_eq!(job.unwrap().wait(), Ok(()));
                let error = served.join().unwrap().unwrap_err();
                assert!(error.to_string().contains("to say what is next, it overflowed"), "{error}");
            });
        }
        "overflows" => {
            let job = runtime.submit_with(&JobOptions::new().name("one without end"), |_| overflow(0)).unwrap();
            let error = job.wait().unwrap_err();
            assert!(matches!(error, JobError::StackOverflow { name: "one without end", .. }), "{error:?}");
            assert!(error.to_string().contains("\"one without end\" overflowed its stack"), "{error}");
        }
        "panics" => {
            let job = runtime.submit_with(&JobOptions::new().name("one that gives up"), |_| panic!("enough")).unwrap();
            let error: JobError = job.wait().map(|(): ()| ()).unwrap_err();
            assert_eq!(error.to_string(), "job \"one that gives up\" panicked: enough");
        }
        other => panic!("no such part: {other}"),
    }
    goes_on(&runtime);
}

/// Starts the child, waits for a line of its standard error that has all of `words`, lets it go on,
/// and returns the line.
fn report(part: &str, words: &[&str]) -> String {
    let mut child = fulgurite_testkit::again(module_path!(), "child")
        .env(PART, part)
        .env("RUST_BACKTRACE", "0")
        // Of what was on a stack that overflowed nothing is dropped: under AddressSanitizer, no
        // leak of the child's is news.
        .env("ASAN_OPTIONS", "handle_segv=0:detect_leaks=0")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (line, lines) = mpsc::channel();
    let reader =
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(|text| drop(line.send(text))));
    let mut seen = Vec::new();
    let found = loop {
        match lines.recv_timeout(Duration::from_secs(60)) {
            Ok(text) if words.iter().all(|word| text.contains(word)) => break Some(text),
            Ok(text) => seen.push(text),
            Err(_) => break None,
        }
    };
    // The job that keeps its core ends; nobody else listens, or is there still.
    let _ = child.stdin.take().unwrap().write_all(b".");
    if found.is_none() {
        let _ = child.kill();
    }
    let status = child.wait().unwrap();
    reader.join().unwrap();
    let found =
        found.unwrap_or_else(|| panic!("{part}: no line has all of {words:?}; there were:\n{}", seen.join("\n")));
    assert!(status.success(), "{part}: {status}; {found}");
    found
}

#[test]
fn a_job_that_never_yields_is_reported_by_name() {
    let line = report("keeps its core", &["fulgurite: ", "job \"one that never yields\"", "worker 0"]);
    assert!(line.contains("yield_now"), "it says what to do: {line}");
}

#[test]
fn who_keeps_the_core_is_named_and_not_who_began_last() {
    report("keeps its core after another", &["fulgurite: ", "job \"the first\"", "worker 0"]);
    report("serves", &["fulgurite: ", "job \"the service\"", "worker 0"]);
}

#[test]
fn a_job_that_overflows_is_reported_by_name() {
    report("overflows", &["fulgurite: ", "job \"one without end\"", "overflowed its stack", "worker 0"]);
}

#[test]
fn a_service_that_overflows_while_it_is_asked_ends() {
    report("overflows while it is asked", &["fulgurite: ", "overflowed its stack", "worker 0"]);
}

#[test]
fn a_job_that_panics_is_reported_with_its_words() {
    // Rust's own report names the worker's thread and the place; the job's name is in its error,
    // which the child checks.
    report("panics", &["fulgurite-0", "panicked at", "conform_reports.rs"]);
}
