//! Goal: the programs that README.md and `docs/guide` show compile, run, and do what is said of
//! them. Method: each Rust block names the source that it is, or a part of, and must equal it
//! (`UPDATE=1` writes whole programs anew). Each source runs twice over one directory, and the
//! first program is killed in between. The lists of errors and of words are compared with the
//! sources.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use fulgurite_testkit as trials;

use crate::guide;
use crate::tree::{File, files, none};

type Program = fn() -> Result<(), Box<dyn std::error::Error>>;

const SOURCES: &str = "crates/fulgurite/tests/guide/";
const FIRST: &str = "crates/fulgurite/examples/first.rs";
/// The programs of [`SOURCES`], with what they print at last.
const PROGRAMS: [(&str, Program, &str); 5] = [
    ("backup", guide::backup::main, "is in accounts.csv"),
    ("counters", || Ok(guide::counters::main()?), "0 left"),
    ("growing", || Ok(guide::growing::main()?), "32 MiB of values in a pool of "),
    ("index", || Ok(guide::index::main()?), "3200 keys found"),
    ("sessions", || Ok(guide::sessions::main()?), "session 42: ada, countess of Lovelace; read page 7"),
];
const NAME: &str = "FULGURITE_GUIDE_PROGRAM";

fn is_guide(file: &&File) -> bool {
    file.path == "README.md" || file.path.starts_with("docs/guide/")
}

/// The Rust blocks of a document: the line of each, the source that the comment above it names, and
/// its text.
fn blocks(document: &str) -> Vec<(usize, Option<String>, Vec<String>)> {
    let lines: Vec<&str> = document.lines().collect();
    let begins = (0..lines.len()).filter(|&at| lines[at].starts_with("```rust"));
    let block = |at: usize| {
        let above = lines[..at].iter().rev().find(|line| !line.is_empty());
        let named = above.and_then(|line| line.strip_prefix("<!-- ")?.strip_suffix(" -->"));
        let text = lines[at + 1..].iter().take_while(|line| !line.starts_with("```")).map(|line| line.to_string());
        (at + 1, named.map(str::to_owned), text.collect())
    };
    begins.map(block).collect()
}

/// A source as a document shows it: without its head, and with a `main` as programs have it.
fn shown(source: &str) -> Vec<String> {
    let lines = source.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
    lines
        .map(|line| line.strip_prefix("pub ").or(line.strip_prefix("pub(crate) ")).unwrap_or(line).to_owned())
        .collect()
}

/// Whether the lines are a part of the source, however far they are indented.
fn is_part(lines: &[String], source: &[String]) -> bool {
    let trimmed = |lines: &[String]| lines.iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let (lines, source) = (trimmed(lines), trimmed(source));
    !lines.is_empty() && source.windows(lines.len()).any(|window| window == lines)
}

#[test]
fn programs_of_the_documents_are_the_ones_that_run() {
    let all = files();
    let (mut offenders, mut whole) = (Vec::new(), Vec::new());
    for file in all.iter().filter(is_guide) {
        for (line, named, text) in blocks(&file.text) {
            let at = format!("{}:{line}", file.path);
            let Some(source) = named.as_ref().and_then(|path| all.iter().find(|f| f.path == *path)) else {
                offenders.push(format!("{at}: no comment above names the source of this program ({named:?})"));
                continue;
            };
            let source_text = shown(&source.text);
            if text.iter().any(|line| line.starts_with("fn main")) {
                whole.push(source.path.clone());
                if text != source_text && std::env::var_os("UPDATE").is_some() {
                    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&file.path);
                    let now = std::fs::read_to_string(&path).expect("it was read before");
                    let new = now
                        .replace(&format!("\n{}\n```", text.join("\n")), &format!("\n{}\n```", source_text.join("\n")));
                    std::fs::write(&path, new).expect("a document can be written");
                } else if text != source_text {
                    offenders.push(format!("{at}: differs from {} (UPDATE=1 writes it)", source.path));
                }
            } else if !is_part(&text, &source_text) {
                offenders.push(format!("{at}: is no part of {}", source.path));
            }
        }
    }
    for file in all.iter().filter(|f| f.path == FIRST || f.path.starts_with(SOURCES) && !f.path.ends_with("/mod.rs")) {
        let name = file.path.strip_prefix(SOURCES).and_then(|path| path.strip_suffix(".rs"));
        if !whole.contains(&file.path) {
            offenders.push(format!("{}: no document shows it", file.path));
        }
        if name.is_some_and(|name| PROGRAMS.iter().all(|(program, ..)| *program != name)) {
            offenders.push(format!("{}: no test runs it", file.path));
        }
    }
    none("programs in documents", &offenders);
}

/// A program of the guide, in the directory of the process: what the tests below start.
#[test]
#[ignore = "the other tests start it"]
fn program() {
    let name = std::env::var(NAME).expect("the test names a program");
    if name == "first" {
        return guide::first::main().expect("it runs until it is killed");
    }
    let (_, main, _) = PROGRAMS.iter().find(|(program, ..)| *program == name).expect("there is one");
    main().unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn each_program_runs_and_runs_again() {
    for (name, _, last) in PROGRAMS {
        let directory = tempfile::tempdir().expect("a directory");
        for run in 1..=2 {
            let mut command = trials::again(module_path!(), "program");
            let output = command.env(NAME, name).current_dir(&directory).output().expect("it starts");
            let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{name}, run {run}: {printed}{errors}");
            assert!(printed.contains(last), "{name}, run {run} does not print \"{last}\": {printed}");
        }
    }
}

#[test]
fn the_first_program_continues_after_a_kill() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut durable = 0;
    for run in 1..=3 {
        let mut command = trials::again(module_path!(), "program");
        command.env(NAME, "first").current_dir(&directory).stdout(Stdio::piped());
        let mut program = command.spawn().expect("it starts");
        let lines = BufReader::new(program.stdout.take().expect("it is piped")).lines();
        // The name of the test precedes the first line.
        let number = |line: &str, before: &str, after: &str| -> Option<u64> {
            line.split_once(before)?.1.strip_suffix(after)?.parse().ok()
        };
        let (mut had, mut counted) = (None, Vec::new());
        for line in lines.map_while(Result::ok).take(20) {
            had = had.or(number(&line, "page 7 had ", " visits"));
            counted.extend(number(&line, "visit ", " is durable"));
        }
        program.kill().expect("it can be killed");
        program.wait().expect("it has ended");
        let had = had.unwrap_or_else(|| panic!("run {run} has not started to count"));
        assert!(had >= durable, "run {run} found {had} visits of {durable}");
        durable = *counted.last().unwrap_or_else(|| panic!("run {run} has not counted"));
    }
    assert!(durable >= 15, "{durable} visits after three runs of at least five");
}

/// The variants of an error, from its source.
fn variants(source: &str, name: &str) -> Vec<String> {
    let body = source.split_once(&format!("pub enum {name} {{\n")).unwrap_or_else(|| panic!("{name} is no enum")).1;
    let lines = body.lines().take_while(|line| *line != "}");
    let named = lines.filter_map(|line| line.strip_prefix("    ").filter(|l| l.starts_with(char::is_uppercase)));
    named.map(|line| line.chars().take_while(|c| c.is_alphanumeric()).collect()).collect()
}

#[test]
fn every_error_has_its_cause_and_action() {
    let all = files();
    let text = |path: &str| &all.iter().find(|f| f.path == path).unwrap_or_else(|| panic!("{path} is gone")).text;
    let document = text("docs/guide/errors.md");
    let (mut missing, mut named) = (Vec::new(), Vec::new());
    for (path, name) in [
        ("crates/fulgurite/src/error.rs", "Error"),
        ("crates/runtime/src/error.rs", "AccessError"),
        ("crates/runtime/src/error.rs", "SyncError"),
        ("crates/runtime/src/job.rs", "JobError"),
        ("crates/runtime/src/job.rs", "SubmitError"),
        ("crates/runtime/src/config.rs", "BuildError"),
        ("crates/memory/src/directory.rs", "RootError"),
        ("crates/flash/src/error.rs", "FlashError"),
        ("crates/flash/src/error.rs", "OpenError"),
        ("crates/device/src/socket/mod.rs", "SocketError"),
        ("crates/store/src/pool.rs", "PoolError"),
        ("crates/store/src/recover.rs", "RecoverError"),
        ("crates/store/src/members.rs", "MemberError"),
        ("crates/store/src/geometry.rs", "GeometryError"),
    ] {
        let found = variants(text(path), name);
        assert!(found.len() >= 2, "the variants of {name} were not found in {path}");
        for variant in found {
            let quoted = format!("`{name}::{variant}`");
            if !document.lines().any(|line| line.starts_with(&format!("| {quoted} |"))) {
                missing.push(format!("{quoted} ({path})"));
            }
            named.push(quoted);
        }
    }
    let rows = document.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    let gone =
        rows.map(|(error, _)| error).filter(|error| error.contains("Error::") && !named.iter().any(|n| n == error));
    missing.extend(gone.map(|error| format!("{error}, which is no error any more")));
    none("errors without a row in docs/guide/errors.md", &missing);
}
