//! Goal: the header has every function, and C and C++ take it with all warnings. Method: compilers.
//! `make test-full` compares it with what the sources make (`crates/heavy`).

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn every_function_is_in_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(root.join("include/fulgurite.h")).unwrap();
    let mut count = 0;
    for entry in fs::read_dir(root.join("src")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for rest in text.split("extern \"C\" fn fulgurite_").skip(1) {
            let name = rest.split('(').next().unwrap();
            assert!(header.contains(&format!("fulgurite_{name}(")), "fulgurite_{name} is not in the header");
            count += 1;
        }
    }
    assert!(count > 40, "only {count} functions were found");
}

#[test]
fn compilers_take_the_header() {
    let directory = tempfile::tempdir().unwrap();
    for (compiler, standard, file, header) in [
        ("cc", "-std=c99", "a.c", "fulgurite.h"),
        ("c++", "-std=c++11", "a.cpp", "fulgurite.h"),
        ("c++", "-std=c++17", "b.cpp", "fulgurite.hpp"),
    ] {
        let source = directory.path().join(file);
        fs::write(&source, format!("#include <{header}>\n")).unwrap();
        let output = Command::new(compiler)
            .args([standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
            .arg(&source)
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}; scripts/with-tools installs it"));
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
