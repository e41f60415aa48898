//! Where the texts disagree with themselves, and what the checks take. The report has it above the
//! table of each paper.

use crate::paper::Paper;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disagreement {
    /// Whose text.
    pub paper: Paper,
    /// The checks that it concerns.
    pub checks: &'static str,
    /// What the text says.
    pub text: &'static str,
    /// What the checks take.
    pub taken: &'static str,
}

const fn of(paper: Paper, checks: &'static str, text: &'static str, taken: &'static str) -> Disagreement {
    Disagreement { paper, checks, text, taken }
}

/// All of them.
pub const ALL: [Disagreement; 10] = [
    of(
        Paper::AstriFlash,
        "A1, A4, A5, A6",
        "Misses of 3% mean one in 4.3 µs for each core. Section II-C has one in 10 µs.",
        "A1 takes the 3%, as an upper bound. A4 to A6 take 10 µs.",
    ),
    of(
        Paper::AstriFlash,
        "A6, A11",
        "256 GB at 4 GB a plane are 64 planes. At 50 µs each they serve 1.28 M reads/s, and 16 cores need 1.6.",
        "The 50 µs are end to end, and more planes read at once.",
    ),
    of(
        Paper::AstriFlash,
        "A6, A7, A8",
        "A row of 16 KB holds four pages of 4 KB, and then no tags.",
        "Tags lie beside the row.",
    ),
    of(
        Paper::AstriFlash,
        "A6, A13",
        "The paper has the Cortex-A76 and 3 points of load. The slides have the A57 and 5%.",
        "A6 has the A76. The band of A13.gap is of the paper's 3 points, and ends at 5.",
    ),
    of(
        Paper::AstriFlash,
        "A5",
        "Within ~20% of DRAM-only is 14% below its maximum, or 3% below it at the same objective.",
        "A5.load-at-slo is of the maximum, and has the other number beside it.",
    ),
    of(
        Paper::SsdAlloc,
        "B1",
        "The parts of a miss add up to 1.036 µs, and the combined time is 0.833.",
        "All of them are maxima. B1.combined is a statement, that the sum is above the combined maximum.",
    ),
    of(
        Paper::Nvmm,
        "D15",
        "A thousand devices scale one device's days to 5.2 and 8.2 years. The text has about half of that.",
        "The factor that it does not name is what is written for each page. D15 takes what our store writes.",
    ),
    of(
        Paper::Nvmm,
        "D5, D6, D8 to D14",
        "The table has MLC's read at 50 µs, and the sweeps at 75.",
        "D5, D6 and D10's technologies are of the table. D8, D9, D11 to D14 and D10's Light mix take 75 µs.",
    ),
    of(
        Paper::Nvmm,
        "D13",
        "The software's time is called relatively constant, and grows by 27 µs from SLC to MLC.",
        "D13.constant is a statement, that it grows less than the latency does.",
    ),
    of(
        Paper::Nvmm,
        "D6 to D14",
        "The final text stands beside an older draft, with other numbers.",
        "D8, D9, D11, D12, D13 and D14 are of the draft, D6, D7 and D10 of the final text.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    #[test]
    fn checks_of_the_draft_are_named() {
        let (drafts, _) = ALL[9].taken.split_once(" are of the draft").unwrap();
        let named: Vec<&str> = drafts.split([',', ' ']).filter(|word| word.starts_with('D')).collect();
        let drafts = checks::nvmm::CHECKS.iter().filter(|check| check.about.ends_with("draft)"));
        assert_eq!(named, drafts.map(|check| check.id).collect::<Vec<_>>());
    }
    #[test]
    fn each_is_of_checks_that_there_are() {
        for told in ALL {
            for id in told.checks.split(", ").flat_map(|part| part.split(" to ")) {
                let there = checks::all().any(|check| check.id == id && check.paper == told.paper);
                assert!(there, "{id} in {told:?}");
            }
        }
    }
}
