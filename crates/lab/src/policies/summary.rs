//! Which policy misses least, over all streams and sizes.

use serde::Serialize;

use fulgurite_policy::ReplacementPolicy;

use super::{POLICIES, Row};
use fulgurite_term::report::table;

/// How one policy does, over all streams and sizes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Standing {
    pub policy: &'static str,
    pub hits: &'static str,
    pub points: usize,
    /// Mean of the miss ratios.
    pub mean_miss_ratio: f64,
    /// Misses as a multiple of the fewest at the same point: geometric mean, 1 is best.
    pub misses_over_least: f64,
    /// Points at which no other has fewer misses.
    pub best_at: usize,
}

pub fn standings(rows: &[Row], hits: &'static str) -> Vec<Standing> {
    let of = |policy: &'static str| rows.iter().filter(move |r| r.hits == hits && r.policy == policy);
    let least = |row: &Row| {
        let same = rows.iter().filter(|r| r.hits == hits && r.stream == row.stream && r.share == row.share);
        same.map(|r| r.misses).min().unwrap_or(0).max(1) as f64
    };
    let standing = |policy: &ReplacementPolicy| {
        let policy = policy.name();
        let points = of(policy).count();
        let mean = |value: &dyn Fn(&Row) -> f64| of(policy).map(value).sum::<f64>() / points.max(1) as f64;
        Standing {
            policy,
            hits,
            points,
            mean_miss_ratio: mean(&|r| r.miss_ratio),
            misses_over_least: mean(&|r| (r.misses.max(1) as f64 / least(r)).ln()).exp(),
            best_at: of(policy).filter(|r| r.misses as f64 <= least(r)).count(),
        }
    };
    let mut all: Vec<Standing> = POLICIES.iter().map(standing).filter(|s| s.points > 0).collect();
    all.sort_by(|a, b| a.misses_over_least.total_cmp(&b.misses_over_least));
    all
}

/// What they say, a line for each method by which policies hear of hits.
pub fn sentences(standings: &[Standing]) -> String {
    let mut lines = Vec::new();
    for hits in ["marked", "known"] {
        let mut these = standings.iter().filter(|s| s.hits == hits && s.points > 0);
        let Some(best) = these.next() else { continue };
        let others = these.map(|s| {
            let more = table::percent(s.misses_over_least / best.misses_over_least - 1.0);
            format!(
                "{} {more} more (mean miss ratio {}, best at {})",
                s.policy,
                table::percent(s.mean_miss_ratio),
                s.best_at
            )
        });
        lines.push(format!(
            "Hits {hits}: {} misses least on average (mean miss ratio {}, best at {} of {} points); {}",
            best.policy,
            table::percent(best.mean_miss_ratio),
            best.best_at,
            best.points,
            others.collect::<Vec<_>>().join("; ")
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_comes_first() {
        let row = |policy, misses| Row {
            stream: "s".to_owned(),
            share: 1.0,
            frames: 1,
            distinct: 100,
            accesses: 1000,
            policy,
            hits: "marked",
            misses,
            miss_ratio: misses as f64 / 1000.0,
        };
        let all = standings(&[row("clock", 110), row("s3-fifo", 100), row("lru", 120)], "marked");
        assert_eq!(all.iter().map(|s| s.policy).collect::<Vec<_>>(), ["s3-fifo", "clock", "lru"]);
        assert_eq!((all[0].best_at, all[1].best_at, all[0].misses_over_least), (1, 0, 1.0));
        assert!(sentences(&all).contains("s3-fifo misses least") && sentences(&all).contains("clock 10.0% more"));
    }
}
