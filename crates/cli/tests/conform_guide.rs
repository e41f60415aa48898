//! Goal: every command that README.md and `docs/guide` show runs, and prints what is shown. Method:
//! the `sh` and `console` blocks of a document run in order, in one directory of their own, by bash
//! with the built program on its path. Lines of a `console` block that begin with `$` are commands.
//! Its other lines must be printed, with anything in place of `..`. A comment above a block says
//! which programs it needs, or why it is not run. The targets and examples that those blocks name
//! must exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runs::{FULGURITE, text};

/// What is above a block, in a comment.
#[derive(Debug, PartialEq, Eq)]
enum Condition {
    None,
    /// These programs, or modules of Python.
    Needs(Vec<String>),
    NotRun(String),
}

struct Block {
    line: usize,
    condition: Condition,
    is_console: bool,
    lines: Vec<String>,
}

impl Block {
    /// The commands, and what they should print.
    fn parts(&self) -> (String, Vec<&str>) {
        let (mut commands, mut printed, mut goes_on) = (String::new(), Vec::new(), !self.is_console);
        for line in &self.lines {
            let command = line.strip_prefix("$ ").or(goes_on.then_some(line.as_str()));
            let Some(command) = command else {
                printed.push(line.as_str());
                continue;
            };
            goes_on = !self.is_console || command.ends_with('\\');
            commands += &format!("{command}\n");
        }
        (commands, printed)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn documents() -> Vec<PathBuf> {
    let guide = fs::read_dir(root().join("docs/guide")).expect("there is a guide");
    let mut found: Vec<PathBuf> = guide.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.push(root().join("README.md"));
    found.sort();
    found
}

fn blocks(document: &str) -> Vec<Block> {
    let lines: Vec<&str> = document.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_console = *line == "```console";
        if !is_console && *line != "```sh" {
            continue;
        }
        let above = lines[..at].iter().rev().find(|line| !line.is_empty()).unwrap_or(&"");
        let comment = above.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")).unwrap_or_default();
        let condition = match comment.split_once(": ") {
            Some(("needs", list)) => Condition::Needs(list.split(", ").map(str::to_owned).collect()),
            Some(("not run", reason)) => Condition::NotRun(reason.to_owned()),
            _ => Condition::None,
        };
        let lines = lines[at + 1..].iter().take_while(|line| **line != "```").map(|line| line.to_string()).collect();
        found.push(Block { line: at + 1, condition, is_console, lines });
    }
    found
}

fn bash(directory: &Path, script: &str) -> (bool, String) {
    let programs = Path::new(FULGURITE).parent().expect("it is in a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["120", "bash", "-euo", "pipefail", "-c", script])
        .current_dir(directory)
        .env("PATH", format!("{}:{path}", programs.display()))
        .output()
        .expect("bash starts");
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn has(directory: &Path, what: &str) -> bool {
    bash(directory, &format!("command -v {what} || python3 -c 'import {what}'")).0
}

/// Whether the parts of the line between each `..` are in a printed line, in this order.
fn is_printed(shown: &str, printed: &str) -> bool {
    printed.lines().any(|line| {
        let mut rest = Some(line);
        shown
            .split("..")
            .for_each(|part| rest = rest.and_then(|rest| rest.split_once(part.trim())).map(|(_, rest)| rest));
        rest.is_some()
    })
}

/// Runs the blocks of a document. Returns what failed, and how many were run.
fn run_all(document: &Path) -> (Vec<String>, usize) {
    let (mut failed, mut count) = (Vec::new(), 0);
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), directory.path().join("examples")).unwrap();
    for block in blocks(&fs::read_to_string(document).unwrap()) {
        let at = format!("{}:{}", document.display(), block.line);
        let lacks = match &block.condition {
            Condition::NotRun(_) => continue,
            Condition::Needs(list) => list.iter().find(|what| !has(directory.path(), what)),
            Condition::None => None,
        };
        if let Some(what) = lacks {
            println!("SKIPPED: {at} needs {what}, which is not installed");
            continue;
        }
        let (commands, shown) = block.parts();
        // What runs in the background ends with the block, whatever fails.
        let ends = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT";
        let (is_good, printed) = bash(directory.path(), &format!("{ends}\n{commands}"));
        count += 1;
        if !is_good {
            failed.push(format!("{at} fails: {commands}{printed}"));
        }
        let missing = shown.iter().find(|line| is_good && !is_printed(line, &printed));
        failed.extend(missing.map(|line| format!("{at} does not print \"{line}\": {commands}{printed}")));
    }
    (failed, count)
}

#[test]
fn commands_run_and_print_what_is_shown() {
    let documents = documents();
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = documents.iter().map(|document| scope.spawn(|| run_all(document))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread does not panic")).collect()
    });
    let failed: Vec<String> = results.iter().flat_map(|(failed, _)| failed.clone()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let count: usize = results.iter().map(|(_, count)| count).sum();
    assert!(count >= 8, "only {count} blocks of commands were found");
}

#[test]
fn commands_that_are_not_run_name_what_exists() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut wrong = Vec::new();
    for document in documents() {
        for block in blocks(&fs::read_to_string(&document).unwrap()) {
            if !matches!(block.condition, Condition::NotRun(_)) {
                continue;
            }
            for line in &block.lines {
                let words: Vec<&str> = line.split_whitespace().take_while(|word| *word != "#").collect();
                let pairs = words.windows(2).filter(|pair| !match pair {
                    ["make", target] => makefile.lines().any(|line| line.starts_with(&format!("{target}:"))),
                    ["--example", name] => root().join(format!("crates/fulgurite/examples/{name}.rs")).exists(),
                    _ => true,
                });
                wrong.extend(pairs.map(|pair| format!("{}:{}: {pair:?}", document.display(), block.line)));
            }
        }
    }
    assert!(wrong.is_empty(), "targets and examples that do not exist:\n{}", wrong.join("\n"));
}

#[test]
fn blocks_are_read_as_they_are_meant() {
    let found = blocks(
        "<!-- needs: a, b -->\n```console\n$ x \\\n  y\nz 1 .. 2\n$ w\n```\n\n<!-- not run: c -->\n\n```sh\nq\n```\n",
    );
    assert_eq!(found[0].parts(), ("x \\\n  y\nw\n".to_owned(), vec!["z 1 .. 2"]));
    assert_eq!(found[0].condition, Condition::Needs(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!((found[1].parts().0.as_str(), found[1].line), ("q\n", 11));
    assert_eq!(found[1].condition, Condition::NotRun("c".to_owned()));
    assert!(is_printed("z 1 .. 2", "other\nz 1 and 2\n") && !is_printed("z 1 .. 2", "z 1\n2\n"));
}
