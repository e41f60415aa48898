//! The comparison with other stores: what each serves, what it takes, and the two rows that have no
//! peer.

use serde_json::{Value, json};

use super::{Table, bytes, cell, distinct, number, percent, rows, spread, text};

pub fn tables(result: &Value) -> Vec<Table> {
    let rows = rows(result);
    let mut tables: Vec<Table> = Vec::new();
    let part = |row: &Value| text(row, "part").to_owned();
    let served = |row: &&Value| matches!(text(row, "part"), "values" | "bank");
    for title in distinct(rows.iter().filter(served).map(title)) {
        tables.push(throughput(&title, rows.iter().filter(|row| served(row) && title == self::title(row))));
    }
    let of_part = |name: &str| rows.iter().filter(|row| part(row) == name).collect::<Vec<_>>();
    let (small, hits) = (of_part("small"), of_part("hits"));
    if !small.is_empty() {
        tables.push(objects(&small, &result["simulated_hit_ratio"]));
    }
    if !hits.is_empty() {
        tables.push(gets(&hits, &result["hit_beyond_boxes_ns"]));
    }
    let stores = result["stores"].as_array().expect("a comparison has stores");
    for name in distinct(stores.iter().map(part)) {
        tables.push(cost(&name, stores.iter().filter(|one| part(one) == name), rows));
    }
    tables
}

/// What the rows of one table have in common.
fn title(row: &Value) -> String {
    let (part, clients) = (text(row, "part"), row["clients"].as_u64().expect("a number of clients"));
    let clients = if clients == 1 { "1 client".into() } else { format!("{clients} clients") };
    match part {
        "bank" => format!("bank, {clients}"),
        _ => format!("{part}, {clients}, {}% gets", row["gets"]),
    }
}

/// The store, and what its clients are where it has both kinds.
fn name(row: &Value) -> String {
    match (text(row, "store"), row["fibers"] == true) {
        ("fulgurite", true) => "fulgurite, fibers".into(),
        ("fulgurite", false) => "fulgurite, threads".into(),
        (store, _) => store.into(),
    }
}

fn throughput<'r>(title: &str, rows: impl Iterator<Item = &'r Value>) -> Table {
    let head = [title, "a second", "times the best peer", "p50, µs", "p99, µs", "p99.9, µs", "CPU, µs"];
    let mut table = Table::new(head);
    for row in rows {
        let us = |key: &str| cell(&row[key], 1.0);
        table.row([
            name(row),
            spread(&row["ops_per_s"], 1.0),
            spread(&row["of_best_peer"], 1.0),
            us("p50_us"),
            us("p99_us"),
            us("p999_us"),
            us("cpu_us_per_op"),
        ]);
    }
    table
}

fn objects(rows: &[&Value], simulated: &Value) -> Table {
    let head = [
        "objects of 128 B",
        "gets, %",
        "a second",
        "gets without a read, %",
        "written for each byte put",
        "p50, µs",
        "p99, µs",
    ];
    let mut table = Table::new(head);
    for row in rows {
        let pages = text(row, "store") == "fulgurite-pages";
        table.row([
            if pages { "in frames of 4 KiB".into() } else { "as objects".to_owned() },
            cell(&row["gets"], 1.0),
            spread(&row["ops_per_s"], 1.0),
            percent(&row["hit_ratio"]),
            cell(&row["written_per_byte_put"], 1.0),
            cell(&row["p50_us"], 1.0),
            cell(&row["p99_us"], 1.0),
        ]);
    }
    let none = || "-".to_owned();
    table.row(["as objects, simulated".into(), "100".into(), none(), percent(simulated), none(), none(), none()]);
    table
}

fn gets(rows: &[&Value], beyond: &Value) -> Table {
    let mut table = Table::new(["a get of a cached value of 128 B", "ns", "cached, %"]);
    for row in rows {
        let rate = row["ops_per_s"]["median"].as_f64();
        table.row([
            text(row, "store").to_owned(),
            rate.map_or_else(|| "-".into(), |rate| number(1e9 / rate)),
            percent(&row["hit_ratio"]),
        ]);
    }
    table.row(["beyond a HashMap of boxes".to_owned(), spread(beyond, 1.0), "-".into()]);
    table
}

fn cost<'r>(part: &str, stores: impl Iterator<Item = &'r Value>, rows: &[Value]) -> Table {
    let head = [
        format!("{part}: what stores take"),
        "load, s".into(),
        "written by it".into(),
        "on flash".into(),
        "at the end".into(),
        "written for each byte put".into(),
        "peak of memory".into(),
        "keys lost".into(),
    ];
    let mut table = Table::new(head);
    let size = |value: &Value| if value.is_null() { "-".into() } else { bytes(value) };
    for one in stores {
        let of = rows.iter().filter(|row| row["part"] == part && row["store"] == one["store"]);
        let mut written: Vec<f64> = of.filter_map(|row| row["written_per_byte_put"].as_f64()).collect();
        written.sort_by(f64::total_cmp);
        table.row([
            text(one, "store").to_owned(),
            cell(&one["load_s"], 1.0),
            size(&one["load_written_bytes"]),
            size(&one["flash_bytes"]),
            size(&one["flash_bytes_after"]),
            written.get(written.len() / 2).map_or_else(|| "-".into(), |median| number(*median)),
            size(&one["peak_bytes"]),
            cell(&one["lost"], 1.0),
        ]);
    }
    table
}

#[test]
fn each_part_has_its_tables() {
    let of = |median: f64| json!({ "median": median, "min": median, "max": median });
    let row = |part: &str, store: &str, more: Value| {
        let mut row = json!({ "part": part, "store": store, "fibers": store == "fulgurite", "clients": 32, "gets": 50,
            "ops_per_s": of(2e6), "of_best_peer": of(2.0), "p50_us": 9.0, "p99_us": 80.0, "p999_us": 300.0,
            "cpu_us_per_op": 4.0, "written_per_byte_put": 1.5, "hit_ratio": 0.75 });
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    let mut result = json!({ "rows": [
        row("values", "fulgurite", json!({})), row("values", "redb", json!({ "of_best_peer": of(1.0) })),
        row("values", "redb", json!({ "clients": 1 })), row("bank", "redb", json!({})),
        row("small", "fulgurite-pages", json!({})), row("hits", "boxes", json!({ "hit_ratio": null })),
    ], "stores": [{ "part": "values", "store": "redb", "load_s": 12.5, "load_written_bytes": 3u64 << 30,
        "flash_bytes": 2u64 << 30, "flash_bytes_after": null, "peak_bytes": 300 << 20, "lost": 0 }],
        "simulated_hit_ratio": 0.7, "hit_beyond_boxes_ns": of(120.0) });
    let found: Vec<String> = tables(&result).iter().map(Table::text).collect();
    let expected = [
        "| values, 32 clients, 50% gets | a second |",
        "| values, 1 client, 50% gets |",
        "| bank, 32 clients |",
        "| objects of 128 B |",
        "| a get of a cached value of 128 B |",
        "| values: what stores take |",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (table, begin) in found.iter().zip(expected) {
        assert!(table.starts_with(begin), "{begin}: {table}");
    }
    assert!(
        found[0].contains("| fulgurite, fibers | 2,000,000 (2,000,000 to 2,000,000) | 2.00 (2.00 to 2.00) | 9.00 |")
    );
    assert!(found[3].contains("| in frames of 4 KiB | 50.0 |") && found[3].contains("| 70.0 |"), "{}", found[3]);
    assert!(found[4].contains("| boxes | 500 | - |") && found[4].contains("| 120 (120 to 120) |"), "{}", found[4]);
    assert!(found[5].contains("| redb | 12.5 | 3 GiB | 2 GiB | - | 1.50 | 300 MiB | 0 |"), "{}", found[5]);
    // A part that was not run has none.
    result["rows"].as_array_mut().unwrap().truncate(2);
    assert_eq!(tables(&result).len(), 2);
}
