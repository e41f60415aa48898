//! Goal: the figures in the documents are the figures of the kept results, which the same command
//! made. Method: the tables of `docs/figures-archive.md` and the charts of `docs/charts` are made
//! from `docs/results/*.json` and must equal what is there
//! (`UPDATE=1 cargo test -p fulgurite-house conform_figures::` writes them). Each number of the
//! table of claims in `docs/figures.md` is in the table of its command, and each of README.md in
//! the table of claims. The table of the calibration is compared cell by cell.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::figures;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Rows of the table between two marks, cell by cell, without the head.
fn rows_between(text: &str, mark: &str) -> Vec<Vec<String>> {
    let begin = text.find(&format!("<!-- {mark}: begin")).unwrap_or_else(|| panic!("{mark} does not begin"));
    let end = text.find(&format!("<!-- {mark}: end")).unwrap_or_else(|| panic!("{mark} does not end"));
    let rows = text[begin..end].lines().filter(|l| l.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// A number as it is written, and by how much it may be off.
#[derive(Clone, Copy, Debug)]
struct Written {
    value: f64,
    rounding: f64,
}

impl Written {
    fn is(self, value: f64) -> bool {
        // Half a unit of the last place, and a little for numbers that were rounded twice.
        (self.value - value).abs() <= self.rounding * 0.6
    }
}

/// All numbers in a text; a comma between three digits groups thousands.
fn numbers(text: &str) -> Vec<Written> {
    let grouped: Vec<char> = text.chars().collect();
    let digit = |at: usize| grouped.get(at).is_some_and(char::is_ascii_digit);
    let thousands = |at: usize| at > 0 && digit(at - 1) && (1..=3).all(|i| digit(at + i)) && !digit(at + 4);
    let mut plain = String::new();
    for (at, c) in grouped.iter().enumerate() {
        match c {
            ',' if thousands(at) => {}
            '0'..='9' => plain.push(*c),
            '.' if digit(at + 1) && at > 0 && digit(at - 1) => plain.push('.'),
            _ => plain.push(' '),
        }
    }
    let one = |word: &str| {
        let decimals = word.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        Some(Written { value: word.parse().ok()?, rounding: 0.1_f64.powi(decimals as i32) })
    };
    plain.split_whitespace().filter_map(one).collect()
}

/// The kept results by their names.
fn results() -> BTreeMap<String, Value> {
    let mut results = BTreeMap::new();
    for entry in fs::read_dir(root().join("docs/results")).expect("there are kept results") {
        let path = entry.expect("a directory can be read").path();
        if path.extension().is_some_and(|e| e == "json") {
            let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            let result = serde_json::from_str(&read(&path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            results.insert(name, result);
        }
    }
    results
}

/// The marks around the block of a result.
fn marks(name: &str) -> (String, String) {
    (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->\n"))
}

#[test]
fn tables_show_the_kept_results() {
    let path = root().join("docs/figures-archive.md");
    let shown = read(&path);
    let mut made = shown.clone();
    for (name, result) in results() {
        let (begin, end) = marks(&name);
        let at =
            made.find(&begin).unwrap_or_else(|| panic!("docs/figures-archive.md has no place for {name}: {begin}"));
        let to =
            at + made[at..].find(&end).unwrap_or_else(|| panic!("docs/figures-archive.md does not end {name}: {end}"));
        let has_drawing = root().join(format!("docs/results/{name}.svg")).exists();
        made.replace_range(at + begin.len()..to, &figures::render(&name, &result, has_drawing));
    }
    if made == shown {
        return;
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, made).expect("docs/figures-archive.md can be written");
        return;
    }
    let differ = made.lines().zip(shown.lines()).find(|(made, shown)| made != shown);
    panic!(
        "docs/figures-archive.md is not of the kept results: {differ:?}\nUPDATE=1 cargo test -p fulgurite-house conform_figures::"
    );
}

#[test]
fn the_claims_say_what_the_tables_say() {
    let archive = read(&root().join("docs/figures-archive.md"));
    let mut blocks = BTreeMap::new();
    for (name, result) in results() {
        let (begin, end) = marks(&name);
        let block = archive.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).map(|(block, _)| block);
        let block = block.unwrap_or_else(|| panic!("docs/figures-archive.md has no {name}"));
        blocks.insert(figures::command(&result), numbers(block));
    }
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for row in rows_between(&read(&root().join("docs/figures.md")), "claims") {
        let command = figures::without_outputs(row[row.len() - 1].trim_matches('`'));
        let Some(block) = blocks.get(&command) else {
            wrong.push(format!("no file of docs/results was made by `{command}`"));
            continue;
        };
        // The first cell says what it is, the last the command.
        for cell in &row[1..row.len() - 1] {
            for written in numbers(cell) {
                compared += 1;
                if !block.iter().any(|b| written.is(b.value)) {
                    wrong.push(format!("{}: {} is not among what `{command}` has found", row[0], written.value));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 20, "the table of claims in docs/figures.md was not found: {compared} numbers");
}

#[test]
fn the_readme_says_what_the_claims_say() {
    let claims = rows_between(&read(&root().join("docs/figures.md")), "claims");
    let claimed: Vec<Written> = claims.iter().flatten().flat_map(|cell| numbers(cell)).collect();
    let readme = read(&root().join("README.md"));
    let (_, after) = readme.split_once("<!-- figures: begin -->").expect("README.md has figures");
    let (figures, _) = after.split_once("<!-- figures: end -->").expect("its figures end");
    let shown: Vec<Written> = numbers(figures).into_iter().filter(|number| number.rounding < 1.0).collect();
    let wrong: Vec<f64> = shown.iter().map(|n| n.value).filter(|&n| !claimed.iter().any(|c| c.is(n))).collect();
    assert!(wrong.is_empty(), "numbers of README.md that docs/figures.md does not claim: {wrong:?}");
    assert!(shown.len() >= 6, "the figures of README.md were not found: {shown:?}");
}

#[test]
fn charts_show_the_kept_results() {
    let directory = root().join("docs/charts");
    let page = read(&root().join("docs/figures.md"));
    let charts = figures::charts::all(&results());
    let mut wrong = Vec::new();
    for (name, svg) in &charts {
        let path = directory.join(format!("{name}.svg"));
        if fs::read_to_string(&path).is_ok_and(|kept| kept == *svg) {
        } else if std::env::var_os("UPDATE").is_some() {
            fs::create_dir_all(&directory).expect("a directory for charts");
            fs::write(&path, svg).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        } else {
            wrong.push(format!("docs/charts/{name}.svg is not of the kept results (UPDATE=1 writes it)"));
        }
        if !page.contains(&format!("(charts/{name}.svg)")) {
            wrong.push(format!("docs/figures.md does not show charts/{name}.svg"));
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name} has a bar without a number");
    }
    for entry in fs::read_dir(&directory).expect("there are charts") {
        let name = entry.expect("a directory can be read").file_name().to_string_lossy().into_owned();
        if !charts.iter().any(|(chart, _)| name == format!("{chart}.svg")) {
            wrong.push(format!("docs/charts/{name} is made from no result"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_calibration_is_the_kept_one() {
    let result: Value = serde_json::from_str(&read(&root().join("docs/results/live-10us.json"))).expect("JSON");
    let text = read(&root().join("docs/results/calibration.md"));
    let rows: Vec<&Value> =
        result["rows"].as_array().expect("rows").iter().filter(|r| r["config"] == "fulgurite").collect();
    let table = rows_between(&text, "calibration");
    assert_eq!(table.len(), rows.len(), "docs/results/calibration.md has a line for each workload");
    for (cells, row) in table.iter().zip(rows) {
        let number = |of: &Value, key: &str| of[key].as_f64().unwrap_or_else(|| panic!("{key} is no number"));
        let calibration = &row["calibration"];
        let (own, added) = (number(calibration, "own_work_ns"), number(calibration, "added_work_ns"));
        let expected = [
            number(calibration, "zipf"),
            own / 1000.0,
            added / 1000.0,
            own / (own + added) * 100.0,
            number(row, "misses_per_op"),
            number(row, "work_us_per_miss"),
        ];
        assert_eq!(cells[0], row["workload"], "the order is that of the file");
        for (cell, expected) in cells[1..].iter().zip(expected) {
            let written = numbers(cell);
            assert!(written.len() == 1 && written[0].is(expected), "{}: {cell} is {expected} in the file", cells[0]);
        }
    }
}

#[test]
fn numbers_are_read_as_they_are_written() {
    let values = |text: &str| numbers(text).iter().map(|n| n.value).collect::<Vec<_>>();
    assert_eq!(values("93.0, 95.6, 92.9%: 95.7% on average"), [93.0, 95.6, 92.9, 95.7]);
    assert_eq!(values("67,475 a second; 1.2 ns; (aim: 75), 57."), [67_475.0, 1.2, 75.0, 57.0]);
    assert!(numbers("93.0")[0].is(93.04) && !numbers("93.0")[0].is(93.1) && numbers("147")[0].is(147.0));
}
