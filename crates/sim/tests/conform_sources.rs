//! Goal: the simulator cannot hold what it should find, and gives the same bytes everywhere.
//! Method: read its sources for the papers' results, for the platform's transcendental functions,
//! and for clocks, files and threads. The functions are also looked for in the sources of `nand`,
//! of the checks and of the workloads. The papers' results stand in the checks on purpose.

use std::fs;
use std::path::{Path, PathBuf};

/// Results of the papers that a model must not contain. Numbers that any program has (50, 10, 95)
/// would be found everywhere, so these are the ones with digits of their own.
const RESULTS: [&str; 22] = [
    "366.7", "436", "432.2", "95.8", "66.8", "3.8", "88.75", "88_750", "88750", "38_901", "38901", "85_361", "85361",
    "162_149", "46_460", "73_399", "54.43", "45.27", "1.58", "0.855", "0.885", "5.5",
];
/// Whose last digit is the platform's, or the optimiser's.
const PLATFORM: [&str; 14] = [
    ".ln()",
    ".ln_1p()",
    ".log2()",
    ".log10()",
    ".log(",
    ".exp()",
    ".exp2()",
    ".exp_m1()",
    ".powf(",
    ".powi(",
    ".sin()",
    ".cos()",
    ".tan()",
    ".mul_add(",
];
const OUTSIDE: [&str; 6] = ["std::time", "std::fs", "std::env", "std::thread", "std::net", "std::process"];

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The lines of code of a crate, without comments and unit tests.
fn code(krate: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate).join("src"), &mut files);
    let mut lines = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let product = text.lines().map(str::trim).take_while(|line| *line != "mod tests {");
        let code = product.filter(|line| !line.starts_with("//"));
        lines.extend(code.map(|line| (path.display().to_string(), line.to_owned())));
    }
    assert!(lines.len() > 300, "{krate} was not found");
    lines
}

/// Whether a number stands in a line by itself, and not within a longer one.
fn has_number(line: &str, number: &str) -> bool {
    let within = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_');
    line.match_indices(number).any(|(at, found)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + found.len()..].chars().next());
        !within(before) && !within(after)
    })
}

fn found(krate: &str, has: impl Fn(&str) -> bool) -> Vec<String> {
    code(krate).into_iter().filter(|(_, line)| has(line)).map(|(path, line)| format!("{path}: {line}")).collect()
}

#[test]
fn no_result_of_a_paper_is_in_the_simulator() {
    let offenders = found("sim", |line| RESULTS.iter().any(|number| has_number(line, number)));
    assert!(offenders.is_empty(), "{}", offenders.join("\n"));
}
#[test]
fn functions_are_those_of_a_library() {
    for krate in ["nand", "sim", "reproduce"] {
        let offenders = found(krate, |line| PLATFORM.iter().any(|call| line.contains(call)));
        assert!(offenders.is_empty(), "{}", offenders.join("\n"));
    }
    // What executed workloads draw. The search over text is not executed.
    let drawn =
        |(path, line): &(String, String)| !path.contains("search") && PLATFORM.iter().any(|call| line.contains(call));
    let offenders: Vec<_> = code("workloads").into_iter().filter(drawn).collect();
    assert!(offenders.is_empty(), "{offenders:?}");
}
#[test]
fn the_simulator_knows_no_world() {
    let offenders = found("sim", |line| OUTSIDE.iter().any(|word| line.contains(word)));
    assert!(offenders.is_empty(), "{}", offenders.join("\n"));
}
#[test]
fn numbers_are_distinguished_from_parts_of_others() {
    assert!(has_number("rate * 436.0", "436.0") && has_number("[95.8, 1.0]", "95.8"));
    assert!(!has_number("1436", "436") && !has_number("0.4360", "436") && !has_number("t436", "436"));
}
