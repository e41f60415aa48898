//! Goal: `make soak` can reach what it is to reach. Method: each aim of `scripts/figures` has a
//! test that reports it, found by its words, and `scripts/soak` has a line for its row and the
//! crate of that test.

use crate::tree::{files, none};

/// Whether a text has a string that begins with these words, or would with its arguments.
fn says(text: &str, words: &str) -> bool {
    text.split('"').skip(1).step_by(2).any(|string| match string.split_once('{') {
        Some((until, _)) if until.len() < words.len() => until.contains(' ') && words.starts_with(until),
        _ => string.starts_with(words),
    })
}

#[test]
fn each_aim_has_a_test_that_reports_it_and_that_soak_runs() {
    let files = files();
    let text = |path: &str| &files.iter().find(|file| file.path == path).expect("the script exists").text;
    let soaked: Vec<Vec<&str>> = text("scripts/soak").lines().map(|line| line.split(' ').collect()).collect();
    let (mut offenders, mut count) = (Vec::new(), 0);
    for line in text("scripts/figures").lines() {
        let [row, words, _, _, _] = line.split('|').collect::<Vec<_>>()[..] else { continue };
        if row.parse::<u32>().is_err() {
            continue;
        }
        count += 1;
        let reporting = files.iter().filter(|file| file.is(".rs") && says(&file.text, words));
        let packages: Vec<String> = reporting
            .map(|file| match file.path.split('/').nth(1) {
                Some("fulgurite") | None => "fulgurite".to_owned(),
                Some(name) => format!("fulgurite-{name}"),
            })
            .collect();
        let runs = |package: &String| soaked.iter().any(|line| line[0] == row && line.contains(&package.as_str()));
        if packages.is_empty() {
            offenders.push(format!("row {row}: no test reports \"{words}\""));
        } else if !packages.iter().any(runs) {
            offenders.push(format!("row {row}: scripts/soak runs no test that reports \"{words}\""));
        }
    }
    assert!(count > 40, "{count} aims were found");
    none("aims that nothing reaches", &offenders);
}
