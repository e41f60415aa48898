//! Goal: the act in which memory survives kills programs, finds all that they saved, reports it,
//! and leaves nothing behind. It notices a state that is called saved too early. Method: run it
//! over a small text in an empty directory, and read its JSON, lines and report. Then the same with
//! the planted fault. The act prints its seed.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the act in a directory that holds some text, with a seed.
fn act(directory: &Path, seed: u32, planted: bool) -> (Output, Value, String) {
    let text = directory.join("text");
    std::fs::create_dir(&text).unwrap();
    for file in 0..40u64 {
        let words: String = (0..4000).map(|i| format!("word{} ", (i * i + file * 31) % 29_989)).collect();
        std::fs::write(text.join(format!("{file}.txt")), words).unwrap();
    }
    let mut command = Command::new(crate::PROGRAM);
    command.args(["--act", "survive", "--quick", "--input", "text", "--dir", ".", "--json", "out.json"]);
    command.args(["--report", "out.html", "--seed", &seed.to_string()]).current_dir(directory);
    if planted {
        command.env("FULGURITE_PLANT_EARLY_ACKNOWLEDGEMENT", "1");
    }
    let output = command.output().expect("the program starts");
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(directory.join("out.json")).unwrap_or_else(|e| panic!("no JSON ({e}): {told}"));
    let mut left: Vec<_> =
        directory.read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["out.html", "out.json", "text"], "seed {seed}: {told}");
    (output, serde_json::from_str(&json).expect("JSON"), told)
}

#[test]
fn what_was_saved_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let (output, json, told) = act(directory.path(), 1, false);
    assert!(output.status.success(), "{told}");
    let survived = &json["survive"];
    assert!(survived["failure"].is_null() && survived["interrupted"] == false, "{survived}");
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {of}"));
    let kills = survived["kills"].as_array().expect("kills");
    assert_eq!(kills.len(), 3);
    for kill in kills {
        // Either the last state that was acknowledged, or the one that was being saved.
        let (found, acknowledged) = (number(kill, "found"), number(kill, "acknowledged"));
        assert!(found == acknowledged || found > acknowledged && kill["was_saving"] == true, "{kill}");
        assert!(kill["open_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{kill}");
        assert!(number(kill, "words") >= number(kill, "distinct_words"), "{kill}");
    }
    // Nothing is lost between lives.
    assert!(kills.windows(2).all(|two| number(&two[1], "pieces") >= number(&two[0], "pieces")), "{survived}");
    assert!(number(&kills[0], "pieces") > 0, "{survived}");
    let older = &survived["older"];
    for key in ["pieces", "words"] {
        assert_eq!(number(older, key), number(&kills[0], key), "{survived}");
    }
    assert!(number(older, "beside") > number(older, "token"), "{older}");
    assert!(told.contains("Killed 3 times: nothing that was saved was lost"), "{told}");
    let report = std::fs::read_to_string(directory.path().join("out.html")).expect("the report was written");
    assert!(report.contains("Memory that survives") && report.contains("kills without a loss"), "{report}");
}

#[test]
fn a_state_that_is_acknowledged_too_early_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (output, json, told) = act(directory.path(), 1, true);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let failure = json["survive"]["failure"].as_str().unwrap_or_else(|| panic!("no failure in {json}: {told}"));
    assert!(failure.contains("was reported as saved"), "{failure}");
    assert!(told.contains("Memory did not survive"), "{told}");
}
