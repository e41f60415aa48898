//! Goal: workloads do the same work on a device of Fulgurite's, by profile, as in plain memory. The
//! results name what its NAND did. Several NAND devices get the same requests. An impossible
//! profile or device is refused by name before anything is created. Method: run `live` with
//! `--flash nand:..` at small sizes, and read the JSON. Run it with bad profiles, and check code,
//! message and directory.

use std::path::Path;
use std::process::Command;

use fulgurite_testkit::is_full;
use quick::{bench_and_table, number, rows, whole};

use crate::quick;

const SMALL: [&str; 10] = ["--data", "48M", "--dram", "8M", "--rounds", "2", "--round-time", "20ms", "--planes", "16"];

fn live<'w>(flash: &'w str, more: &[&'w str]) -> Vec<&'w str> {
    [&["live", "--flash", flash], &SMALL[..], more].concat()
}

#[test]
fn workloads_do_the_same_work_on_nand() {
    let directory = tempfile::tempdir().unwrap();
    let all = ["array-swap", "tpcc", "tatp"];
    let some = if is_full() { &all[..] } else { &all[..1] };
    let workloads = some.join(",");
    let words =
        live("nand:slc", &["--workload", &workloads, "--config", "dram-only,fulgurite,flash-sync,fixed-latency"]);
    let (json, drawing, table) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    assert_eq!(rows.len(), some.len() * 4);
    for row in rows {
        let on_nand = ["fulgurite", "flash-sync"].contains(&row["config"].as_str().unwrap());
        let first = rows.iter().find(|other| other["workload"] == row["workload"]).unwrap();
        assert_eq!(row["work_hash"], first["work_hash"], "{row}");
        assert_eq!(row["nand"].is_object(), on_nand, "{row}");
        if on_nand {
            let nand = &row["nand"];
            // Every flash page that the host misses is read, and the store also reads its own
            // pages.
            assert!(number(nand, "page_reads") >= number(row, "device_reads") * 0.5, "{row}");
            assert!(
                number(nand, "blocked_by_reclaim") <= number(nand, "page_reads") - number(nand, "own_reads"),
                "{row}"
            );
            assert!((0.0..=1.0).contains(&number(row, "blocked_by_reclaim_share")), "{row}");
            assert!((0.0..=1.0).contains(&number(row, "erasing_share")), "{row}");
            assert_eq!(number(&row["nand_shape"], "planes"), 16.0, "{row}");
            assert!(number(nand, "reads") > 0.0 && number(nand, "energy_nj") > 0.0, "{row}");
            assert_eq!(number(nand, "violations"), 0.0, "{row}");
            assert!(row["flash"].as_str().unwrap().contains("NAND"), "{row}");
        }
    }
    let written = rows.iter().filter(|row| row["workload"] == "array-swap" && row["nand"].is_object());
    assert!(written.clone().all(|row| number(&row["nand"], "programs") > 0.0));
    assert_eq!(written.count(), 2);
    assert!(table.contains("of their plane before them"), "{table}");
    assert!(table.contains("blocked by reclaim"), "{table}");
}

#[test]
fn nand_is_measured_next_to_nand_with_the_same_requests() {
    let directory = tempfile::tempdir().unwrap();
    let also = ["--also", "nand:mlc,nand:slc/8", "--block-pages", "8"];
    let some = if is_full() { &["tatp", "array-swap"][..] } else { &["tatp"] };
    let workloads = some.join(",");
    let words = live(
        "nand:slc",
        &[&["--workload", &workloads, "--config", "dram-only,resident,fulgurite,fixed-latency"], &also[..]].concat(),
    );
    let (json, drawing, table) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    let rows = rows(&json, "rows");
    // Resident has no NAND: it runs once.
    assert_eq!(rows.len(), some.len() * (4 + 3 + 3), "{rows:?}");
    for workload in some {
        let of: Vec<_> = rows.iter().filter(|row| row["workload"] == *workload).collect();
        assert!(of.iter().all(|row| row["work_hash"] == of[0]["work_hash"]), "{of:?}");
        assert!(of.iter().all(|row| row["calibration"] == of[0]["calibration"]), "{of:?}");
        let nand: Vec<_> = of.iter().filter(|row| row["config"] == "fulgurite").collect();
        let media: Vec<_> = nand.iter().map(|row| row["medium"].as_str().unwrap()).collect();
        assert_eq!(media, ["nand:slc/16", "nand:mlc/16", "nand:slc/8"]);
        let planes: Vec<_> = nand.iter().map(|row| number(&row["nand_shape"], "planes")).collect();
        assert_eq!(planes, [16.0, 16.0, 8.0]);
        // Blocks of 8 pages, of 4 KiB (SLC) and 16 KiB (MLC).
        let blocks: Vec<_> = nand.iter().map(|row| number(&row["nand_shape"], "block_bytes")).collect();
        assert_eq!(blocks, [32768.0, 131072.0, 32768.0]);
    }
    assert_eq!(json["setting"]["also"].as_array().unwrap().len(), 2);
    for part in ["fulgurite nand:mlc/16", "fixed-latency nand:slc/8", "blocked by reclaim"] {
        assert!(table.contains(part), "no \"{part}\" in {table}");
    }
    assert!(drawing.contains("fulgurite nand:slc/8"), "a bar for each");
}

/// The text of a built-in profile, from the sources.
fn profile(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../nand/profiles/{name}.toml"));
    std::fs::read_to_string(path).expect("it is a part of the sources")
}

#[test]
fn a_profile_in_a_file_is_taken_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    // The built-in one under another name: its geometry is not scaled, and is large enough.
    std::fs::write(directory.path().join("mine.toml"), profile("slc")).unwrap();
    let words = live("nand:mine.toml", &["--workload", "tatp", "--config", "dram-only,fulgurite"]);
    let (json, ..) = bench_and_table(directory.path(), &words);
    let rows = rows(&json, "rows");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["work_hash"], rows[1]["work_hash"]);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let text = profile("slc");
    write("unknown.toml", &text.replacen("channels", "chanels", 1));
    write("more.toml", &format!("colour = \"red\"\n{text}"));
    let line = text.lines().find(|line| line.starts_with("read = ")).expect("the profile says how long a read takes");
    write("unit.toml", &text.replacen(line, "read = \"25\"", 1));
    write("none.toml", "");
    std::fs::create_dir(directory.path().join("directory.toml")).unwrap();
    let before = std::fs::read_dir(directory.path()).unwrap().count();
    for (flash, more, parts) in [
        ("nand:", &[][..], &["slc", "mlc"][..]),
        ("nand:mcl", &[], &["did you mean \"mlc\""]),
        ("nand:missing.toml", &[], &["missing.toml", "cannot be read"]),
        ("nand:directory.toml", &[], &["directory.toml", "no regular file"]),
        ("nand:unknown.toml", &[], &["unknown.toml", "chanels"]),
        ("nand:more.toml", &[], &["more.toml", "colour"]),
        ("nand:unit.toml", &[], &["unit.toml", "25"]),
        ("nand:none.toml", &[], &["none.toml", "geometry"]),
        ("nand:slc", &["--create"], &["--create"]),
        ("nand:slc", &["--config", "fulgurite,pool-on-device"], &["fulgurite is a pool in a device"]),
        ("nand:slc", &["--also", "slc"], &["nand:PROFILE"]),
        ("nand:slc", &["--also", "nand:slc/0"], &["1 to 65536"]),
        ("nand:slc", &["--also", "nand:scl"], &["did you mean \"slc\""]),
        ("nand:slc", &["--also", "nand:mlc,nand:unknown.toml"], &["unknown.toml", "chanels"]),
        ("emulated", &["--also", "nand:slc"], &["--also", "--flash nand:PROFILE"]),
        ("device:", &[], &["no socket"]),
        ("device:missing.sock", &[], &["missing.sock"]),
        ("device:directory.toml", &[], &["directory.toml"]),
    ] {
        let output = Command::new(crate::PROGRAM)
            .args(live(flash, more))
            .current_dir(directory.path())
            .env("TMPDIR", directory.path())
            .output()
            .expect("the program starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flash}: {message}");
        for part in parts {
            assert!(message.contains(part), "{flash}: the message lacks \"{part}\": {message}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), before, "{flash} created something");
    }
}

#[test]
fn other_benchmarks_run_on_nand() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["tail", "--workload", "tatp", "--flash", "nand:mlc", "--config", "dram-only,fulgurite"];
    let words = [&words[..], &["--loads", "50", "--data", "64M", "--dram", "8M"]].concat();
    let (json, drawing, _) = bench_and_table(directory.path(), &words);
    whole(&json, &drawing);
    assert_eq!(json["failed"].as_array().map(Vec::len), Some(0), "{}", json["failed"]);
    let store = ["store", "--flash", "nand:slc", "--size", "64M"];
    let (json, drawing, _) = bench_and_table(directory.path(), &store);
    whole(&json, &drawing);
    assert!(json["beside_medium"].to_string().contains("NAND, 256 planes"), "{json}");
}
