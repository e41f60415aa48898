//! Goal: the C header that is checked in is the one that the sources make. Method: cbindgen makes
//! it again, and the texts are compared. UPDATE=1 writes it.

use std::fs;
use std::path::Path;

const CAPI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi");
/// Sources of the interface, in the order of the header.
const SOURCES: [&str; 16] = [
    "status",
    "failure",
    "options",
    "pool",
    "context",
    "map",
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
    let root = Path::new(CAPI);
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
    let path = Path::new(CAPI).join("include/fulgurite.h");
    let made = made();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let shown = fs::read_to_string(&path).unwrap_or_default();
    let differs = made.lines().zip(shown.lines()).position(|(made, shown)| made != shown);
    assert!(made == shown, "{} is out of date (first at line {differs:?}); run the test with UPDATE=1", path.display());
}
