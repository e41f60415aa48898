//! Capacity that is left while flash pages wear out.
//!
//! The pages that live share what is written, so they wear alike. A page ends when it was written
//! as often as it endures. Endurance follows Weibull's distribution, whose shape says how far pages
//! differ.

use fulgurite_sim::Random;

/// Pages of different endurance.
#[derive(Clone, Debug)]
pub struct Wear {
    /// Writes that each page endures, in units of the scale, ascending.
    endurance: Vec<f64>,
    /// Writes go to pages that have ended, too.
    shared_by_all: bool,
}

impl Wear {
    /// `pages` pages. `shared_by_all`: a bug, for tests.
    pub fn new(pages: u32, shape: f64, seed: u64, shared_by_all: bool) -> Wear {
        let mut random = Random::new(seed, 4);
        let draw = |_| libm::pow(-libm::log(1.0 - random.unit()), 1.0 / shape);
        let mut endurance: Vec<f64> = (0..pages).map(draw).collect();
        endurance.sort_by(f64::total_cmp);
        Wear { endurance, shared_by_all }
    }
    /// Writes to all pages together until this share of them has ended, for each page and in units
    /// of the scale.
    pub fn until(&self, ended: f64) -> f64 {
        let count = self.endurance.len();
        let last = ((ended * count as f64) as usize).clamp(1, count) - 1;
        // Each page that lives was written this number of times.
        let each = self.endurance[last];
        if self.shared_by_all {
            return each;
        }
        self.endurance.iter().map(|most| most.min(each)).sum::<f64>() / count as f64
    }
    /// The share of pages that live once this much was written to each on average: points of a
    /// curve.
    pub fn curve(&self, points: u32) -> Vec<(f64, f64)> {
        let share = |point: u32| f64::from(point) / f64::from(points);
        (1..=points).map(|point| (self.until(share(point)), 1.0 - share(point))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_forms_of_the_exponential_distribution() {
        // Shape 1: half have ended at ln 2, when each was written 1/2 on average, all at 1.
        let wear = Wear::new(200_000, 1.0, 1, false);
        assert!((wear.until(0.5) - 0.5).abs() < 0.01 && (wear.until(1.0) - 1.0).abs() < 0.01);
    }
    #[test]
    fn pages_that_are_alike_end_at_once() {
        let wear = Wear::new(10_000, 50.0, 1, false);
        assert!(wear.until(1.0) / wear.until(0.5) < 1.05);
        let curve = wear.curve(10);
        assert!(curve.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 > pair[1].1));
    }
}
