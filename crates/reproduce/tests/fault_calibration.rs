//! Goal: everything wrong with a calibration is an error that names its line. Method: texts with
//! one fault each, and the error that each must give.

use std::collections::BTreeSet;

use fulgurite_reproduce::calibration::{Calibration, Values, moves_as};
use fulgurite_reproduce::units::Dimension;

const GOOD: &str = "\
[flash]
read = { value = 50, unit = \"us\", kind = \"text\", source = \"section II\" }
[flash.planes]
count = { value = [8, 64], unit = \"chips\", kind = \"fitted(A14.share)\", source = \"so that it fits\" }
";

fn refused(text: &str) -> String {
    Calibration::read("x.toml", text).unwrap_err().to_string()
}
/// With the second line replaced.
fn with(line: &str) -> String {
    GOOD.lines().enumerate().map(|(i, old)| format!("{}\n", if i == 1 { line } else { old })).collect()
}

#[test]
fn what_is_right_is_read() {
    let calibration = Calibration::read("x.toml", GOOD).unwrap();
    let values = Values::new(&calibration);
    assert_eq!(values.time("flash.read").unwrap().as_us(), 50.0);
    assert_eq!(values.numbers("flash.planes.count", Dimension::Count).unwrap(), [8.0, 64.0]);
    calibration.all_read(&values.read().names).unwrap();
    let leaf = &calibration.leaves()["flash.planes.count"];
    assert!(leaf.kind.is_fitted_to("A14", "share") && !leaf.kind.is_fitted_to("A14", "gap"));
    assert_eq!(leaf.line, 4);
    let printed = calibration.print();
    assert_eq!(Calibration::read("x.toml", &printed).unwrap().hash(), calibration.hash(), "{printed}");
}
#[test]
fn each_fault_is_named_with_its_line() {
    let faults = [
        ("read = 50", "x.toml:2: flash.read is not a value"),
        (
            "read = { value = 50, unit = \"us\", kind = \"text\", source = \"s\", note = 1 }",
            "x.toml:2: flash.read has the unknown key \"note\"",
        ),
        ("read = { value = 50, kind = \"text\", source = \"s\" }", "x.toml:2: flash.read has no unit"),
        ("read = { value = 50, unit = \"us\", kind = \"text\" }", "x.toml:2: flash.read has no source"),
        ("read = { value = 50, unit = \"us\", kind = \"text\", source = \" \" }", "x.toml:2: flash.read has no source"),
        ("read = { value = 50, unit = \"us\", source = \"s\" }", "x.toml:2: flash.read has no kind"),
        ("read = { unit = \"us\", kind = \"text\", source = \"s\" }", "x.toml:2: flash.read has no value"),
        (
            "read = { value = 50, unit = \"uss\", kind = \"text\", source = \"s\" }",
            "x.toml:2: flash.read has the unknown unit \"uss\"; did you mean us?",
        ),
        (
            "read = { value = 50, unit = \"us\", kind = \"guess\", source = \"s\" }",
            "x.toml:2: flash.read has the unknown kind \"guess\"",
        ),
        (
            "read = { value = 50, unit = \"us\", kind = \"fitted()\", source = \"s\" }",
            "x.toml:2: flash.read has the unknown kind \"fitted()\"",
        ),
        (
            "read = { value = \"50\", unit = \"us\", kind = \"text\", source = \"s\" }",
            "x.toml:2: value of flash.read is \"50\", and not a finite number",
        ),
        (
            "read = { value = nan, unit = \"us\", kind = \"text\", source = \"s\" }",
            "x.toml:2: value of flash.read is nan",
        ),
        (
            "read = { value = 50, unit = 3, kind = \"text\", source = \"s\" }",
            "x.toml:2: unit of flash.read is 3, and not text",
        ),
        ("read = {", "x.toml:3: missing key"),
    ];
    for (line, expected) in faults {
        let told = refused(&with(line));
        assert!(told.starts_with(expected), "{line}: {told}");
    }
    let twice = refused(&format!("{GOOD}[flash]\n"));
    assert!(twice.starts_with("x.toml:5: "), "{twice}");
}
#[test]
fn what_is_read_wrongly_is_named() {
    let calibration = Calibration::read("x.toml", GOOD).unwrap();
    let values = Values::new(&calibration);
    let told =
        |error: Result<_, fulgurite_reproduce::CalibrationError>| error.map(|_: f64| ()).unwrap_err().to_string();
    assert_eq!(told(values.bytes("flash.reed")), "x.toml: there is no flash.reed; did you mean flash.read?");
    assert_eq!(told(values.bytes("flash.read")), "x.toml:2: flash.read is in us, and a size is needed");
    assert!(told(values.number("flash.planes.count", Dimension::Count)).contains("2 numbers"));
    let negative = with("read = { value = -50, unit = \"us\", kind = \"text\", source = \"s\" }");
    let negative = Calibration::read("x.toml", &negative).unwrap();
    assert!(Values::new(&negative).time("flash.read").unwrap_err().to_string().contains("x.toml:2: flash.read is -50"));
    // The first that was not read.
    let told = calibration.all_read(&BTreeSet::from(["flash.read".to_owned()])).unwrap_err().to_string();
    assert_eq!(told, "x.toml:4: no check reads flash.planes.count");
}
#[test]
fn a_value_changes_the_hash_and_its_source_does_not() {
    let hash = |text: &str| Calibration::read("x.toml", text).unwrap().hash();
    assert_ne!(hash(GOOD), hash(&GOOD.replace("50", "51")));
    assert_ne!(hash(GOOD), hash(&GOOD.replace("\"us\"", "\"ms\"")));
    assert_eq!(hash(GOOD), hash(&GOOD.replace("section II", "section III")));
}
#[test]
fn the_same_value_of_all_workloads_moves_together() {
    let leaf = |value: u32| format!("{{ value = {value}, unit = \"blocks\", kind = \"chosen\", source = \"s\" }}");
    let [five, ten] = [5, 10].map(leaf);
    let text =
        format!("[workloads.a]\nown = {five}\nblocks = {five}\n[workloads.b]\nown = {ten}\n[other]\nown = {ten}\n");
    let calibration = Calibration::read("x.toml", &text).unwrap();
    let names = ["workloads.a.own", "workloads.b.own", "workloads.a.blocks", "other.own"];
    let of = |moved: Option<(&str, f64)>| {
        let values = Values::of(&calibration, moved);
        names.map(|name| values.number(name, Dimension::Count).unwrap())
    };
    assert_eq!(
        names.map(|name| moves_as(name).into_owned())[1..],
        ["workloads.each.own", "workloads.each.blocks", "other.own"]
    );
    assert_eq!(of(None), [5.0, 10.0, 5.0, 10.0]);
    assert_eq!(of(Some(("workloads.each.own", 2.0))), [10.0, 20.0, 5.0, 10.0]);
    assert_eq!(of(Some(("other.own", 0.5))), [5.0, 10.0, 5.0, 5.0]);
    // It moves with the others, and not alone.
    assert_eq!(of(Some(("workloads.a.own", 2.0))), of(None));
}
#[test]
fn whole_counts_that_stay_the_same_do_not_move() {
    let leaf = |name: &str, value: &str, unit: &str| {
        format!("{name} = {{ value = {value}, unit = \"{unit}\", kind = \"chosen\", source = \"s\" }}\n")
    };
    let text = leaf("a", "2", "ways") + &leaf("b", "4", "ways") + &leaf("c", "2", "ways") + &leaf("d", "2", "us");
    let calibration = Calibration::read("x.toml", &text).unwrap();
    let values = Values::new(&calibration);
    assert_eq!((values.count("a"), values.counts("b")), (Ok(2), Ok(vec![4])));
    // One that was read as a number once is no whole count.
    assert_eq!((values.count("c"), values.number("c", Dimension::Count)), (Ok(2), Ok(2.0)));
    values.time("d").unwrap();
    let (read, sees) = (values.read(), ["a", "b", "c", "d"]);
    let sees = sees.map(|name| read.sees(name, &calibration.leaves()[name], 1.2));
    assert_eq!(sees, [false, true, true, true]);
    assert!(!Values::new(&calibration).read().sees("b", &calibration.leaves()["b"], 1.2), "it was not read");
}
