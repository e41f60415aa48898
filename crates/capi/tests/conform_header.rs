//! Goal: the header that is checked in is the one that the sources make, and C and C++ take it with
//! all warnings. Method: cbindgen makes it again, and the texts are compared. UPDATE=1 writes it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Sources of the interface, in the order of the header.
const SOURCES: [&str; 15] = [
    "status",
    "failure",
    "options",
    "pool",
    "context",
    "blobs",
    "u64_blobs",
    "region",
    "heap",
    "root",
    "job",
    "statistics",
    "allocator",
    "objects",
    "permanent",
];

fn made() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml can be read");
    let builder = SOURCES.iter().fold(cbindgen::Builder::new().with_config(config), |builder, name| {
        builder.with_src(root.join("src").join(name).with_extension("rs"))
    });
    let mut header = Vec::new();
    builder.generate().expect("cbindgen reads the sources").write(&mut header);
    String::from_utf8(header).expect("a header is text")
}

#[test]
fn the_header_is_what_the_sources_make() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/fulgurite.h");
    let made = made();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let shown = fs::read_to_string(&path).unwrap_or_default();
    let differs = made.lines().zip(shown.lines()).position(|(made, shown)| made != shown);
    assert!(made == shown, "{} is out of date (first at line {differs:?}); run the test with UPDATE=1", path.display());
}

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
