//! What is handed out: a row for each finding, and their counts.

use std::fmt;

use fulgurite_sim::Fnv;
use serde::{Deserialize, Serialize};

/// What became of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Predicted: in its band, and no value was fitted to it.
    Pass,
    /// In its band, and a fitted value names it.
    Calibrated,
    /// A statement about an order or a shape holds.
    Trend,
    /// Its interval straddles the band.
    Undecided,
    /// In its band, and out of it when a value that is not in the text moves by 20%.
    Fragile,
    /// Out of its band.
    Fail,
}

impl Verdict {
    /// In the order of the summary.
    pub const ALL: [Verdict; 6] =
        [Verdict::Pass, Verdict::Calibrated, Verdict::Trend, Verdict::Undecided, Verdict::Fragile, Verdict::Fail];
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Pass => "PASS",
            Verdict::Calibrated => "CALIBRATED",
            Verdict::Trend => "TREND",
            Verdict::Undecided => "UNDECIDED",
            Verdict::Fragile => "FRAGILE",
            Verdict::Fail => "FAIL",
        })
    }
}

/// One finding next to its paper's number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The check: `A5`.
    pub check: String,
    /// The finding within it.
    pub finding: String,
    /// What the check is about.
    pub about: String,
    /// Whose number.
    pub paper: String,
    /// As the paper has it.
    pub stated: String,
    /// What came out, the mean of all seeds. Null where the check has no answer.
    pub ours: Option<f64>,
    /// Half of the 95% interval over the seeds. Null without random numbers.
    pub half_width: Option<f64>,
    /// The unit of the number found here.
    pub unit: String,
    /// The band that it must be within. Null for a statement, and an open end is null.
    pub band: Option<(Option<f64>, Option<f64>)>,
    /// What became of it.
    pub verdict: Verdict,
    /// Which mechanism gives it.
    pub mechanism: String,
    /// The values that were fitted to it.
    pub fitted: Vec<String>,
    /// The values that flip it when they move by 20%.
    pub flips: Vec<String>,
    /// Why there is no answer.
    pub error: Option<String>,
    /// Other numbers of the same runs.
    pub also: Vec<(String, f64)>,
    /// This number as measured on the runtime, from a kept result.
    pub live: Option<String>,
    /// The hash of the calibration.
    pub calibration: String,
}

impl Row {
    /// `A5.load-at-slo`.
    pub fn name(&self) -> String {
        if self.finding.is_empty() { self.check.clone() } else { format!("{}.{}", self.check, self.finding) }
    }
    /// Ours with its interval and unit.
    pub fn ours_shown(&self) -> String {
        let Some(ours) = self.ours else { return "none".to_owned() };
        let half = self.half_width.map_or(String::new(), |half| format!(" ± {}", number(half)));
        format!("{}{half} {}", number(ours), self.unit)
    }
    /// The band.
    pub fn band_shown(&self) -> String {
        match self.band {
            None => "holds".to_owned(),
            Some((Some(low), Some(high))) => format!("{} .. {}", number(low), number(high)),
            Some((Some(low), None)) => format!("at least {}", number(low)),
            Some((None, Some(high))) => format!("at most {}", number(high)),
            Some((None, None)) => "any".to_owned(),
        }
    }
    /// The mechanism, and all that has to be said about it, in a line.
    pub fn explanation(&self) -> String {
        let mut text = self.mechanism.clone();
        if let Some(error) = &self.error {
            text += error;
        }
        let mut add = |words: String| {
            text += if text.is_empty() { "" } else { "; " };
            text += &words;
        };
        for (name, value) in &self.also {
            add(format!("{name}: {}", number(*value)));
        }
        if !self.fitted.is_empty() {
            add(format!("fitted: {}", self.fitted.join(", ")));
        }
        if !self.flips.is_empty() {
            add(format!("flips with {}", self.flips.join(", ")));
        }
        text
    }
}

/// Four significant digits, without zeros at the end.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 999.95 => 0,
        v if v >= 99.995 => 1,
        v if v >= 9.9995 => 2,
        v if v >= 0.1 => 3,
        _ => 5,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A calibration that was used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Used {
    /// Whose.
    pub paper: String,
    /// Its file.
    pub file: String,
    /// Its hash.
    pub hash: String,
    /// Values by kind.
    pub kinds: Vec<(String, usize)>,
}

/// All rows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The command that makes it.
    pub command: String,
    /// The version of the program.
    pub version: String,
    /// The seeds of each simulated check.
    pub seeds: Vec<u64>,
    /// The calibrations.
    pub calibrations: Vec<Used>,
    /// The findings.
    pub rows: Vec<Row>,
    /// How many there are of each verdict.
    pub summary: Vec<(Verdict, usize)>,
}

impl Report {
    /// How many there are of a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
    /// The counts in a line.
    pub fn summary_line(&self) -> String {
        let counts: Vec<String> = self.summary.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
        let mut checks: Vec<&str> = self.rows.iter().map(|row| row.check.as_str()).collect();
        checks.dedup();
        let counted = |count: usize, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (rows, checks) = (counted(self.rows.len(), "finding"), counted(checks.len(), "check"));
        format!("{rows} of {checks}: {}", counts.join(", "))
    }

    /// A hash of what was found: FNV-1a, 64 bits, over all rows without what is live.
    pub fn hash(&self) -> String {
        let mut hash = Fnv::default();
        for row in &self.rows {
            let row = Row { live: None, ..row.clone() };
            // Numbers of any bits, the same for the same bits.
            hash.add(format!("{row:?}").as_bytes());
        }
        hash.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_no_zeros_at_the_end() {
        let shown = [0.855_123, 60.0, 436.25, 1234.5, 0.000_977, 9.9999, 0.0].map(number);
        assert_eq!(shown, ["0.855", "60", "436.2", "1234", "0.00098", "10", "0"]);
    }
}
