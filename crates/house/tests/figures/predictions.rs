//! `fulgurite-lab sim predict --compare-with`: a table for each configuration, what was predicted
//! and measured down, workloads across.

use serde_json::Value;

use super::{Table, distinct, percent, rows, text};

pub fn tables(result: &Value) -> Vec<Table> {
    let rows = rows(result);
    let configs = distinct(rows.iter().map(|row| text(row, "config").to_owned()));
    let of = |config: &str| rows.iter().filter(|row| text(row, "config") == config).collect::<Vec<_>>();
    configs.iter().map(|config| one(config, &of(config))).collect()
}

/// How both sides were made.
pub fn sources(result: &Value) -> String {
    let of = |side: &str| {
        let side = &result[side];
        format!("on {} by `{}`", text(side, "day"), super::command(side))
    };
    format!("Predicted {}.\nMeasured {}.\n", of("predicted"), of("measured"))
}

fn one(config: &str, rows: &[&Value]) -> Table {
    let head = [format!("{config}, % of plain memory")].into_iter();
    let workloads = rows.iter().map(|row| text(row, "workload").to_owned());
    let mut table = Table::new(head.chain(workloads).chain(["mean".to_owned()]));
    let mean = |of: &[Option<f64>]| {
        let known: Vec<f64> = of.iter().flatten().copied().collect();
        if known.is_empty() { "-".to_owned() } else { format!("{:.1}", known.iter().sum::<f64>() / known.len() as f64) }
    };
    let share = |key: &str| rows.iter().map(|row| Some(row[key].as_f64()? * 100.0)).collect::<Vec<_>>();
    let (predicted, measured) = (share("share_of_dram_only"), share("measured"));
    let written = |of: &[Option<f64>]| {
        of.iter().map(|value| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"))).collect::<Vec<String>>()
    };
    let mut line = |name: &str, cells: Vec<String>, mean: String| {
        table.row([name.to_owned()].into_iter().chain(cells).chain([mean]));
    };
    line("predicted", written(&predicted), mean(&predicted));
    let range = |row: &&Value| {
        let [median, min, max] = ["measured", "measured_min", "measured_max"].map(|key| percent(&row[key]));
        format!("{median} ({min} to {max})")
    };
    line("measured", rows.iter().map(range).collect(), mean(&measured));
    for (name, of) in [("off, points", predicted), ("W / (W + o) off, points", share("simple_share"))] {
        let off: Vec<Option<f64>> =
            of.iter().zip(&measured).map(|(of, measured)| Some((*of)? - (*measured)?)).collect();
        let sizes: Vec<Option<f64>> = off.iter().map(|off| off.map(f64::abs)).collect();
        let signed = off.iter().map(|off| off.map_or_else(|| "-".into(), |off| format!("{off:+.1}"))).collect();
        line(name, signed, mean(&sizes));
    }
    table
}

#[test]
fn what_is_off_is_printed_with_its_sign_and_meant_without() {
    let row = |workload: &str, predicted: f64, simple: Option<f64>| {
        serde_json::json!({
            "workload": workload, "config": "pool", "share_of_dram_only": predicted, "simple_share": simple,
            "measured": 0.5, "measured_min": 0.4, "measured_max": 0.6,
        })
    };
    let result = serde_json::json!({"rows": [row("tatp", 0.53, Some(0.6)), row("silo", 0.49, None)]});
    let [table] = tables(&result).try_into().ok().expect("one configuration");
    let lines: Vec<String> = table.text().lines().skip(2).map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "| predicted | 53.0 | 49.0 | 51.0 |",
            "| measured | 50.0 (40.0 to 60.0) | 50.0 (40.0 to 60.0) | 50.0 |",
            "| off, points | +3.0 | -1.0 | 2.0 |",
            "| W / (W + o) off, points | +10.0 | - | 10.0 |",
        ]
    );
}
