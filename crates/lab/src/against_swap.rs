//! The drawing of programs that run on several kinds of memory: throughput as a multiple of swap's.

use fulgurite_harness::Spread;
use fulgurite_term::report::charts::{Bar, Bars, stack};
use fulgurite_term::report::distinct;
use fulgurite_term::report::table::number;

/// One bar.
pub struct Ran {
    /// The program and its requests.
    pub what: String,
    pub config: String,
    pub ops_per_s: Spread,
    pub ratio_to_swap: Option<Spread>,
}

/// Throughput compared with swap's, or by itself where there is none.
pub fn plot(all: &[Ran]) -> String {
    let groups = distinct(all.iter().map(|one| one.what.clone()));
    let series = distinct(all.iter().map(|one| one.config.clone()));
    let is_beside = all.iter().any(|one| one.ratio_to_swap.is_some());
    let bar = |group: &String, config: &String| {
        let one = all.iter().find(|one| one.what == *group && one.config == *config)?;
        let tip = format!("{group}, {config}: {} a second", number(one.ops_per_s.median));
        let Spread { median, min, max } = if is_beside { one.ratio_to_swap? } else { one.ops_per_s };
        Some(Bar { value: median, spread: Some((min, max)), tip })
    };
    let (title, unit) = match is_beside {
        true => ("Throughput as a multiple of swap", "x os-swap"),
        false => ("Throughput", "requests/s"),
    };
    stack(&[Bars {
        title: title.to_owned(),
        subtitle: "the same DRAM; lines: lowest and highest round".to_owned(),
        unit: unit.to_owned(),
        bars: groups.iter().map(|group| series.iter().map(|config| bar(group, config)).collect()).collect(),
        groups,
        series,
        mark: is_beside.then(|| (1.0, "os-swap".to_owned())),
    }
    .draw()])
}
