//! A figure of several rounds.

use serde::{Deserialize, Serialize};

/// Of several rounds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Middle value.
    pub median: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

impl Spread {
    /// Of these values; none when there are none.
    pub fn of_any(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) };
        Some(Spread { median, min, max })
    }
    /// Of these values; zeros when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        Spread::of_any(values).unwrap_or_default()
    }
    /// This spread in percent, for a spread of shares.
    pub fn percent(self) -> Spread {
        Spread { median: self.median * 100.0, min: self.min * 100.0, max: self.max * 100.0 }
    }
    /// Lowest and highest, as they are shown.
    pub fn range(self, show: impl Fn(f64) -> String) -> String {
        format!("({}-{})", show(self.min), show(self.max))
    }
}
