//! Goal: the house's rules hold in every file, also in the one written last. Method: read every
//! text file of the tree and look for what the rules exclude: files that are too long, unsafe code
//! without its reason, work left open, files that do not say what they hold, tests without goal and
//! method, questions that change something, paths of one machine, figures without the command that
//! makes them, documents that name functions or files that are gone, links that lead nowhere. Each
//! test lists all offenders at once.

use std::path::Path;

use crate::tree::{File, files, none};

/// From here on a file is asked which second idea moved in; beyond the second number the test
/// fails.
const LONG_LINES: usize = 600;
const TOO_LONG_LINES: usize = 900;

#[test]
fn no_file_is_too_long() {
    let mut offenders = Vec::new();
    for file in files().iter().filter(|f| f.is(".rs")) {
        let lines = file.text.lines().count();
        if lines > TOO_LONG_LINES {
            offenders.push(format!("{}: {lines} lines", file.path));
        } else if lines > LONG_LINES {
            println!("{}: {lines} lines: which second idea moved in?", file.path);
        }
    }
    none("files of more than 900 lines", &offenders);
}

#[test]
fn every_unsafe_block_has_its_reason() {
    let mut offenders = Vec::new();
    for file in files().iter().filter(|f| f.is(".rs")) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let code = line.trim();
            let at = code.find("unsafe {").or_else(|| code.find("unsafe impl"));
            // Not in a comment, nor inside quotes.
            if code.starts_with("//") || at.is_none_or(|at| code[..at].matches('"').count() % 2 == 1) {
                continue;
            }
            // Within three lines above, or in the comment that ends there.
            let mut top = i.saturating_sub(3);
            while top > 0 && lines[top].trim().starts_with("//") && !lines[top].contains("SAFETY:") {
                top -= 1;
            }
            if !lines[top..=i].iter().any(|l| l.contains("// SAFETY:")) {
                offenders.push(format!("{}:{}: {code}", file.path, i + 1));
            }
        }
    }
    none("unsafe code without `// SAFETY:` close above", &offenders);
}

#[test]
fn no_work_is_left_open() {
    // In pieces, so that this file does not offend.
    let words = [["TO", "DO"], ["FIX", "ME"], ["todo", "!("], ["unimplemented", "!("], ["dbg", "!("], ["XX", "X "]];
    let words = words.map(|w| w.concat());
    let mut offenders = Vec::new();
    for file in files() {
        for (i, line) in file.text.lines().enumerate() {
            if words.iter().any(|w| line.contains(w.as_str())) {
                offenders.push(format!("{}:{}: {}", file.path, i + 1, line.trim()));
            }
        }
    }
    none("work left open", &offenders);
}

#[test]
fn every_file_says_what_it_holds() {
    let offenders: Vec<String> = files()
        .into_iter()
        .filter(|f| f.is(".rs") && !f.text.starts_with("//!"))
        .map(|f| format!("{} does not begin with `//!`", f.path))
        .collect();
    none("files that do not say what they hold", &offenders);
}

#[test]
fn every_test_says_its_goal_and_method() {
    let kinds = ["crash_", "fault_", "model_", "conform_", "regression_", "loom_", "compile_fail"];
    let mut offenders = Vec::new();
    // What is deeper is material that tests share.
    let is_a_test =
        // A file in `src` is a part of what it tests. The program itself says the same in each
        // crate.
        |f: &&File| {
            let directly = f.path.split_once("/tests/").is_some_and(|(_, rest)| !rest.contains('/'));
            f.is(".rs") && !f.path.contains("/src/") && directly && f.name() != "main.rs"
        };
    for file in files().iter().filter(is_a_test) {
        if !kinds.iter().any(|k| file.name().starts_with(k)) {
            offenders.push(format!("{}: its name begins with none of {kinds:?}", file.path));
        }
        let head: String = file.text.lines().take_while(|l| l.starts_with("//!")).collect();
        if !head.starts_with("//! Goal:") || !head.contains("Method:") {
            offenders.push(format!("{} does not open with Goal and Method", file.path));
        }
    }
    none("tests that do not say what they are for", &offenders);
}

/// The function that begins in the first of these lines, up to its end.
fn function_of(lines: &[&str]) -> String {
    let indent = lines[0].len() - lines[0].trim_start().len();
    let mut text = String::new();
    for line in lines {
        text += line;
        let is_foot = line.len() > indent && line[indent..].starts_with('}');
        let is_short = text.len() == line.len() && line.ends_with('}');
        if is_foot || is_short || line.ends_with(';') && !text.contains('{') {
            break;
        }
    }
    text
}

/// What makes a function more than a question. None if nothing does.
fn changes_something(function: &str) -> Option<&'static str> {
    let (signature, body) = function.split_at(function.find('{').unwrap_or(function.len()));
    let changes = [".store(", ".swap(", ".fetch_", ".compare_exchange"];
    // Memory is read by a unique reference.
    let taken = signature.split(": &mut ").skip(1);
    if signature.contains("&mut self") {
        Some("takes `&mut self`")
    } else if taken.into_iter().any(|of| !of.starts_with("M,") && !of.starts_with("M)")) {
        Some("takes a `&mut`")
    } else if !signature.contains("->") {
        Some("returns nothing")
    } else {
        changes.iter().any(|change| body.contains(change)).then_some("stores to an atomic")
    }
}

#[test]
fn no_question_changes_anything() {
    let questions = ["is_", "has_", "was_", "are_", "were_", "have_", "had_"];
    let mut offenders = Vec::new();
    for file in files().iter().filter(|f| f.is(".rs")) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let Some((qualifiers, name)) = line.split_once("fn ") else { continue };
            let is_test =
                i > 0 && ["#[test]", "#[should_panic"].iter().any(|a| lines[i - 1].trim_start().starts_with(a));
            let is_code = qualifiers.split_whitespace().all(|word| word.starts_with("pub") || word == "const");
            if is_code && !is_test && questions.iter().any(|question| name.starts_with(question)) {
                let why = changes_something(&function_of(&lines[i..]));
                let name = name.split(['(', '<']).next().unwrap_or(name);
                offenders.extend(why.map(|why| format!("{}:{}: `{name}` {why}", file.path, i + 1)));
            }
        }
    }
    none("functions that are named as questions and change something", &offenders);
}

/// Cargo looks for no programs of tests here (`autotests = false`), so a file that nothing names
/// would never run.
#[test]
fn every_test_is_in_a_program() {
    let files = files();
    let text = |path: String| files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    let mut offenders = Vec::new();
    let mut seen = 0;
    for file in files.iter().filter(|f| f.is(".rs") && !f.path.contains("/src/") && f.name() != "main.rs") {
        let Some((of, name)) = file.path.split_once("/tests/") else { continue };
        if name.contains('/') {
            continue;
        }
        let name = name.trim_end_matches(".rs");
        let program = text(format!("{of}/tests/main.rs")).lines().any(|line| line == format!("mod {name};"));
        if !program {
            offenders.push(format!("{}: {of}/tests/main.rs does not name it", file.path));
        }
        seen += 1;
    }
    assert!(seen > 100, "only {seen} files of tests were found");
    for manifest in files.iter().filter(|f| f.name() == "Cargo.toml" && f.text.contains("\ntest = false")) {
        let sources = manifest.path.replace("Cargo.toml", "src/");
        let tested = files.iter().filter(|f| f.path.starts_with(&sources) && f.text.contains("#[test]"));
        offenders.extend(tested.map(|f| format!("{}: no test of its crate's sources is built", f.path)));
    }
    none("tests that are in no program", &offenders);
}

#[test]
fn no_path_of_one_machine() {
    let places = ["/tmp/", "/home/", "/root/"];
    let mut offenders = Vec::new();
    for file in
        files().iter().filter(|f| !f.is_test() && !f.path.starts_with("scripts/") && !f.path.starts_with(".ci/"))
    {
        for (i, line) in file.product_lines() {
            // A kept result names its command, which must work elsewhere too; every system has its
            // own under /usr.
            let elsewhere = |word: &str| !word.starts_with('/') || word.starts_with("/usr/");
            let absolute = line.contains("\"command\":") && !line.split_whitespace().all(elsewhere);
            if absolute || places.iter().any(|p| line.contains(p)) {
                offenders.push(format!("{}:{i}: {}", file.path, line.trim()));
            }
        }
    }
    none("paths of one machine", &offenders);
}

/// Whether a line states a measurement: a number with a unit of time or rate, or a share.
fn states_a_figure(line: &str) -> bool {
    let units = ["ns", "µs", "us", "ms", "ops/s", "requests/s", "%"];
    let words = line.split(|c: char| c.is_whitespace() || "|,;()".contains(c));
    let mut words = words.map(|w| w.trim_end_matches(['.', ':'])).peekable();
    while let Some(word) = words.next() {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = &word[digits.len()..];
        let number = !digits.is_empty() && digits.starts_with(|c: char| c.is_ascii_digit());
        if number && (units.contains(&unit) || unit.is_empty() && words.peek().is_some_and(|w| units.contains(w))) {
            return true;
        }
    }
    false
}

#[test]
fn every_figure_names_its_command() {
    assert!(
        states_a_figure("| hit | 1.5 ns |")
            && states_a_figure("at 95% of")
            && states_a_figure("in 12 ns.")
            && !states_a_figure("4 KiB, 2 files")
    );
    let mut offenders = Vec::new();
    for file in files().iter().filter(|f| ["README.md", "docs/figures.md"].contains(&f.path.as_str())) {
        let mut code = false;
        let lines: Vec<&str> = file.text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            code ^= line.starts_with("```");
            // A command stands in the same paragraph or table row.
            let row = line.starts_with('|');
            let names = |l: &str| {
                ["`fulgurite ", "`fulgurite-lab ", "`fulgurite-demo", "`make ", "`cargo "].iter().any(|c| l.contains(c))
            };
            let paragraph = || {
                let above = lines[..i].iter().rev().take_while(|l| !l.trim().is_empty());
                let below = lines[i..].iter().take_while(|l| !l.trim().is_empty());
                above.chain(below).any(|l| names(l))
            };
            if !code && states_a_figure(line) && !(names(line) || !row && paragraph()) {
                offenders.push(format!("{}:{}: {line}", file.path, i + 1));
            }
        }
    }
    none("figures without the command that makes them", &offenders);
}

#[test]
fn documents_name_what_exists() {
    let files = files();
    let code: String = files.iter().filter(|f| f.is(".rs")).map(|f| f.text.as_str()).collect();
    let mut offenders = Vec::new();
    for file in files.iter().filter(|f| f.is(".md")) {
        for (i, line) in file.text.lines().enumerate() {
            for quoted in line.split('`').skip(1).step_by(2) {
                let gone = if let Some(call) = quoted.strip_suffix("()") {
                    let name = call.rsplit("::").next().unwrap_or(call);
                    !code.contains(&format!("fn {name}(")) && !code.contains(&format!("fn {name}<"))
                } else if quoted.ends_with(".rs") || quoted.ends_with(".md") {
                    !files.iter().any(|f| f.path == quoted || f.path.ends_with(&format!("/{quoted}")))
                } else {
                    false
                };
                if gone {
                    offenders.push(format!("{}:{}: {quoted}", file.path, i + 1));
                }
            }
        }
    }
    none("functions and files that documents name and that do not exist", &offenders);
}

/// What a heading is called in a link.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_of_documents_lead_somewhere() {
    let files = files();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let headings = |path: &str| -> Option<Vec<String>> {
        let file = files.iter().find(|f| f.path == path)?;
        Some(file.text.lines().filter(|line| line.starts_with('#')).map(anchor).collect())
    };
    let (mut offenders, mut count) = (Vec::new(), 0);
    for file in files.iter().filter(|f| f.is(".md")) {
        let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let targets = file.text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for target in targets.map(|(target, _)| target).filter(|target| !target.contains("://")) {
            let (path, wanted) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
            let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
            for part in path.split('/') {
                if part == ".." {
                    parts.pop();
                } else {
                    parts.push(part);
                }
            }
            let path = if path.is_empty() { file.path.clone() } else { parts.join("/") };
            let lacks = |wanted: &str| headings(&path).is_some_and(|there| !there.contains(&wanted.to_owned()));
            if !root.join(&path).exists() || wanted.is_some_and(lacks) {
                offenders.push(format!("{}: {target}", file.path));
            }
            count += 1;
        }
    }
    assert!(count > 50, "only {count} links were found");
    none("links that lead nowhere", &offenders);
}
