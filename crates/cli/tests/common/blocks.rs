//! The blocks of commands in a document: the `sh` and `console` blocks run in order, in one
//! directory of their own, by bash with the built programs on its path. Lines of a `console` block
//! that begin with `$` are commands. Its other lines must be printed, with anything in place of
//! `..`. A comment above a block says which programs it needs, what is run in place of a server
//! that does not end or a size that takes minutes (`run with: SHOWN -> RUN, ..`), or why it is not
//! run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the comment above a block says of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Condition {
    /// These programs, or modules of Python.
    needs: Vec<String>,
    is_not_run: bool,
    /// Words, and those that take their places where it is run.
    instead: Vec<(String, String)>,
}

impl Condition {
    /// From what is above a block from the last comment on, which may be anything.
    fn of(above: &str) -> Condition {
        let mut condition = Condition::default();
        let comment = above.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")).unwrap_or_default();
        for (kind, list) in comment.split("; ").filter_map(|clause| clause.split_once(": ")) {
            let items = list.split(", ");
            match kind {
                "needs" => condition.needs = items.map(str::to_owned).collect(),
                "not run" => condition.is_not_run = true,
                "run with" => {
                    let pair = |item: &str| {
                        let (shown, run) = item.split_once(" -> ").unwrap_or_else(|| panic!("no \" -> \" in {item}"));
                        (shown.to_owned(), run.to_owned())
                    };
                    condition.instead = items.map(pair).collect();
                }
                _ => {}
            }
        }
        condition
    }
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

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn blocks(document: &str) -> Vec<Block> {
    let lines: Vec<&str> = document.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_console = *line == "```console";
        if !is_console && *line != "```sh" {
            continue;
        }
        // The comment may take several lines.
        let above = || lines[..at].iter().rev().skip_while(|line| line.is_empty());
        let length = above().position(|line| line.starts_with("<!-- ")).map_or(0, |first| first + 1);
        let comment: Vec<&str> = above().take(length).copied().collect();
        let comment = comment.into_iter().rev().collect::<Vec<_>>().join(" ");
        let condition = Condition::of(&comment);
        let lines: Vec<&str> = lines[at + 1..].iter().take_while(|line| **line != "```").copied().collect();
        let mut text = lines.join("\n");
        for (shown, run) in &condition.instead {
            assert!(text.contains(shown.as_str()), "the block in line {} has no \"{shown}\"", at + 1);
            text = text.replace(shown.as_str(), run);
        }
        let lines = text.lines().map(str::to_owned).collect();
        found.push(Block { line: at + 1, condition, is_console, lines });
    }
    found
}

fn bash(directory: &Path, script: &str) -> (bool, String) {
    let programs = Path::new(crate::PROGRAM).parent().expect("it is in a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["120", "bash", "-euo", "pipefail", "-c", script])
        .current_dir(directory)
        .env("PATH", format!("{}:{path}", programs.display()))
        .output()
        .expect("bash starts");
    (output.status.success(), String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned())
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

/// Runs the blocks of a document, next to these files of the tree, each under a name. Returns what
/// failed, and how many were run.
pub fn run_all(document: &Path, files: &[(&str, &str)]) -> (Vec<String>, usize) {
    let (mut failed, mut count) = (Vec::new(), 0);
    let directory = tempfile::tempdir().unwrap();
    for (file, name) in files {
        std::os::unix::fs::symlink(root().join(file), directory.path().join(name)).unwrap();
    }
    for block in blocks(&fs::read_to_string(document).unwrap()) {
        let at = format!("{}:{}", document.display(), block.line);
        if block.condition.is_not_run {
            continue;
        }
        if let Some(what) = block.condition.needs.iter().find(|what| !has(directory.path(), what)) {
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

/// What a document's commands name that does not exist, of those that are not run: targets of make,
/// examples, and options of the programs.
pub fn wrong_names(document: &Path) -> Vec<String> {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut wrong = Vec::new();
    for block in blocks(&fs::read_to_string(document).unwrap()) {
        if !block.condition.is_not_run {
            continue;
        }
        for line in &block.lines {
            let words = line.strip_prefix("$ ").unwrap_or(line).split_whitespace();
            let words: Vec<&str> = words.take_while(|word| !["#", "--"].contains(word)).collect();
            let is_there = |pair: &&[&str]| match pair {
                ["make", target] => makefile.lines().any(|line| line.starts_with(&format!("{target}:"))),
                ["--example", name] => crates().any(|at| at.join(format!("examples/{name}.rs")).exists()),
                _ => true,
            };
            let pairs = words.windows(2).filter(|pair| !is_there(pair)).map(|pair| pair.join(" "));
            let options = lacking_options(&words).into_iter().map(|option| format!("{line}: {option}"));
            let at = format!("{}:{}", document.display(), block.line);
            wrong.extend(pairs.chain(options).map(|what| format!("{at}: {what}")));
        }
    }
    wrong
}
fn crates() -> impl Iterator<Item = PathBuf> {
    fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path())
}
/// The options that the help of this crate's command does not have.
fn lacking_options<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let program = Path::new(crate::PROGRAM);
    if words.first().map(Path::new) != program.file_name().map(Path::new) {
        return Vec::new();
    }
    let commands = words[1..].iter().take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()));
    let output = Command::new(program).args(commands).arg("--help").output().expect("it starts");
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let has = |option: &str| help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == option);
    words.iter().copied().filter(|word| word.starts_with("--") && !has(word)).collect()
}

#[test]
fn blocks_are_read_as_they_are_meant() {
    let found = blocks(
        "<!-- needs: a, b;\nrun with: w 5 -> w 1 -->\n```console\n$ x \\\n  y\nz 1 .. 2\n$ w 5\n```\n\n<!-- not run: c -->\n\n```sh\nq\n```\n",
    );
    assert_eq!(found[0].parts(), ("x \\\n  y\nw 1\n".to_owned(), vec!["z 1 .. 2"]));
    assert_eq!(found[0].condition.needs, ["a", "b"]);
    assert_eq!((found[1].parts().0.as_str(), found[1].line), ("q\n", 12));
    assert!(found[1].condition.is_not_run && !found[0].condition.is_not_run);
    assert!(is_printed("z 1 .. 2", "other\nz 1 and 2\n") && !is_printed("z 1 .. 2", "z 1\n2\n"));
}
