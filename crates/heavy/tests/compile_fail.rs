//! Goal: what the guard forbids does not compile: views that outlive the next access, pins and
//! contexts that leave their fiber, references into owned regions across an access, and values in
//! flash that are not plain data. Method: one small program for each, with the compiler's message
//! in a file next to it (`TRYBUILD=overwrite` writes them anew).

#[test]
fn the_guard_holds() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
