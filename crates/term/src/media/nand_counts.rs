//! What NAND did in a run, and what it was.

use fulgurite_flash::NandReport;
use serde::{Deserialize, Serialize};

use crate::report::table;

/// What NAND did in a run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NandCounts {
    /// Pages of NAND read.
    pub reads: u64,
    /// Flash pages read.
    pub page_reads: u64,
    /// Of these, those that needed no NAND: still in the write buffer, or never written.
    pub buffered_reads: u64,
    /// Of those that reached NAND, the store's own: what it reclaims, and its tables.
    pub own_reads: u64,
    /// Flash pages written.
    pub page_writes: u64,
    /// Reads of the host that waited for an erase, or for the store's own work, on their plane.
    pub blocked_by_reclaim: u64,
    /// Pages of NAND programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Flash pages that those programs had room for.
    pub room: u64,
    /// Of these, those that stayed empty.
    pub padded: u64,
    /// Flash pages that went to the log of the flash interface layer.
    pub logged: u64,
    /// Energy of all of it, in nanojoules.
    pub energy_nj: u64,
    /// Operations that broke a rule of NAND: an error of Fulgurite's.
    pub violations: u64,
}

impl NandCounts {
    /// What was done by then.
    pub fn of(report: &NandReport) -> NandCounts {
        let (fil, nand) = (&report.fil, &report.nand);
        let per_page = u64::from(report.flash_pages_per_page);
        let logged_room = fil.log_programs * per_page;
        NandCounts {
            reads: nand.reads,
            page_reads: fil.reads,
            buffered_reads: fil.buffer_reads + fil.empty_reads,
            own_reads: fil.reclaim_reads,
            page_writes: fil.writes,
            blocked_by_reclaim: fil.reads_blocked_by_reclaim - fil.reclaim_reads_blocked,
            programs: nand.programs,
            erases: nand.erases,
            room: fil.home_programs * per_page + logged_room,
            padded: fil.padded + logged_room.saturating_sub(fil.logged),
            logged: fil.logged,
            energy_nj: nand.energy_pj() / 1000,
            violations: nand.violations,
        }
    }
    /// What was done since.
    pub fn since(self, before: NandCounts) -> NandCounts {
        self.with(before, u64::saturating_sub)
    }
    /// Of the host's reads, the share that found an erase, or work of the store's own, of their
    /// plane before them; none without reads.
    pub fn blocked_share(self) -> Option<f64> {
        let asked = self.asked_of_nand();
        (asked > 0).then(|| self.blocked_by_reclaim as f64 / asked as f64)
    }
    /// Reads of the host that reached NAND.
    fn asked_of_nand(self) -> u64 {
        self.page_reads.saturating_sub(self.buffered_reads + self.own_reads)
    }
    /// For people.
    pub fn sentence(self) -> String {
        let share = |of: u64, all: u64| table::percent(of as f64 / all.max(1) as f64);
        format!(
            "{} of {} reads of flash pages from NAND found an erase, or work of the store's own, of their plane before them; the store \
             itself read {} there; {} programs ({} of their room stayed empty), {} erases, {:.1} µJ a request to it",
            table::percent(self.blocked_share().unwrap_or(0.0)),
            table::number(self.asked_of_nand() as f64),
            table::number(self.own_reads as f64),
            table::number(self.programs as f64),
            share(self.padded, self.room),
            table::number(self.erases as f64),
            self.energy_nj as f64 / 1000.0 / (self.page_reads + self.page_writes).max(1) as f64
        )
    }
    /// The counts of two runs together.
    pub fn and(self, other: NandCounts) -> NandCounts {
        self.with(other, |one, other| one + other)
    }
    /// Each of both, put together.
    fn with(self, other: NandCounts, of: fn(u64, u64) -> u64) -> NandCounts {
        NandCounts {
            reads: of(self.reads, other.reads),
            page_reads: of(self.page_reads, other.page_reads),
            buffered_reads: of(self.buffered_reads, other.buffered_reads),
            own_reads: of(self.own_reads, other.own_reads),
            page_writes: of(self.page_writes, other.page_writes),
            blocked_by_reclaim: of(self.blocked_by_reclaim, other.blocked_by_reclaim),
            programs: of(self.programs, other.programs),
            erases: of(self.erases, other.erases),
            room: of(self.room, other.room),
            padded: of(self.padded, other.padded),
            logged: of(self.logged, other.logged),
            energy_nj: of(self.energy_nj, other.energy_nj),
            violations: of(self.violations, other.violations),
        }
    }
}

/// The geometry of a run's NAND.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct NandShape {
    /// Planes: fewer than were asked for where there is little data.
    pub planes: u32,
    /// Pages of a block.
    pub block_pages: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Nanoseconds that an erase takes.
    pub erase_ns: u64,
}

impl NandShape {
    /// The share of the time of all planes that `erases` erases take.
    pub fn erasing(self, erases: u64, elapsed_ns: u64) -> f64 {
        (erases * self.erase_ns) as f64 / (f64::from(self.planes) * elapsed_ns as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_they_are_said_to_be_of() {
        let mut report = NandReport { flash_pages_per_page: 4, ..NandReport::default() };
        (report.fil.reads, report.fil.buffer_reads, report.fil.empty_reads) = (1000, 700, 100);
        (report.fil.writes, report.fil.reads_blocked_by_reclaim) = (1000, 50);
        (report.fil.reclaim_reads, report.fil.reclaim_reads_blocked) = (40, 10);
        (report.fil.home_programs, report.fil.padded) = (200, 80);
        (report.fil.log_programs, report.fil.logged) = (50, 80);
        (report.nand.reads, report.nand.programs) = (200, 250);
        report.nand.program_pj = 4_000_000_000;
        let counts = NandCounts::of(&report);
        let share = |of: f64| table::percent(of);
        let sentence = counts.sentence();
        // 50 of the 200 that reached NAND, less the store's own 10 of 40; 80 and 200 - 80 of the 4
        // x 250 flash pages of the programs; 4 mJ for 2,000 requests.
        assert!(sentence.starts_with(&format!("{} of 160 reads", share(0.25))), "{sentence}");
        assert!(sentence.contains(&format!("250 programs ({} of their room", share(0.2))), "{sentence}");
        assert!(sentence.ends_with(" 2.0 µJ a request to it"), "{sentence}");
        assert_eq!(counts.and(counts).since(counts), counts);
    }
}
