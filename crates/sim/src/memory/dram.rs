//! Banks of DRAM: which row is open in each, and from when it is free.
//!
//! | access | takes |
//! |---|---|
//! | to the open row | command, columns |
//! | to a bank without an open row | command, open, columns |
//! | to another row than the open one | command, close, open, columns |
//!
//! Refresh closes all rows, and takes all banks of a controller for its time.

use crate::planted::Planted;
use crate::time::Time;

/// How long the steps of an access take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DramTiming {
    /// A command of the controller.
    pub command: Time,
    /// Opening a row (RAS).
    pub open: Time,
    /// Closing one.
    pub close: Time,
    /// Each 8 bytes of the open row (CAS).
    pub column: Time,
    /// From one refresh to the next. Zero: there is none.
    pub refresh_every: Time,
    /// What one takes.
    pub refresh: Time,
}

impl DramTiming {
    /// `bytes` bytes of an open row.
    pub fn columns(&self, bytes: u64) -> Time {
        self.column * bytes.div_ceil(8)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Bank {
    /// The open row and one, or zero.
    open: u32,
    free: Time,
    /// Refreshes until its last access.
    refreshes: u64,
}

/// The banks of a controller.
#[derive(Clone, Debug)]
pub struct Banks {
    timing: DramTiming,
    banks: Vec<Bank>,
    /// Accesses to the open row, without one, and to another.
    met: [u64; 3],
    /// A bug, for the tests of the suite.
    pub planted: Planted,
}

impl Banks {
    /// `banks` banks, all closed.
    pub fn new(timing: DramTiming, banks: u32) -> Banks {
        Banks { timing, banks: vec![Bank::default(); banks as usize], met: [0; 3], planted: Planted::None }
    }
    /// Opens a row at a time or when its bank is free, and takes the bank for `then` longer.
    /// Returns when the row is open.
    pub fn open(&mut self, now: Time, row: u32, then: Time) -> Time {
        let timing = self.timing;
        let count = self.banks.len() as u32;
        let (bank, row) = (&mut self.banks[(row % count) as usize], row / count + 1);
        let mut begin = now.max(bank.free);
        if timing.refresh_every > Time::ZERO {
            let refreshes = begin.0 / timing.refresh_every.0;
            let within = Time(begin.0 % timing.refresh_every.0);
            if refreshes > 0 && within < timing.refresh {
                begin += timing.refresh - within;
            }
            if refreshes != bank.refreshes {
                (bank.open, bank.refreshes) = (0, refreshes);
            }
        }
        let (met, opening) = match bank.open {
            open if open == row => (0, Time::ZERO),
            0 => (1, timing.open),
            _ if self.planted == Planted::FreeConflict => (2, timing.open),
            _ => (2, timing.close + timing.open),
        };
        self.met[met] += 1;
        let opened = begin + timing.command + opening;
        (bank.open, bank.free) = (row, opened + then);
        opened
    }
    /// Accesses that met their row open, none open, and another.
    pub fn met(&self) -> [u64; 3] {
        self.met
    }
    /// How long the steps take.
    pub fn timing(&self) -> DramTiming {
        self.timing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: DramTiming = DramTiming {
        command: Time::ns(1),
        open: Time::ns(20),
        close: Time::ns(10),
        column: Time::ns(2),
        refresh_every: Time::us(8),
        refresh: Time::ns(300),
    };

    #[test]
    fn a_conflict_closes_the_open_row_first() {
        let conflict = |planted| {
            let mut banks = Banks::new(TIMING, 4);
            banks.planted = planted;
            banks.open(Time::ns(1000), 5, Time::ZERO);
            banks.open(Time::ns(2000), 9, Time::ZERO) - Time::ns(2000)
        };
        assert_eq!(conflict(Planted::None), Time::ns(1 + 10 + 20));
        assert_eq!(conflict(Planted::FreeConflict), Time::ns(1 + 20), "FreeConflict was not found");
    }
    #[test]
    fn rows_hit_miss_and_conflict() {
        let mut banks = Banks::new(TIMING, 4);
        let line = TIMING.columns(64);
        assert_eq!(line, Time::ns(16));
        let mut take = |now: u64, row| banks.open(Time::ns(now), row, line) + line - Time::ns(now);
        assert_eq!(take(1000, 5), Time::ns(1 + 20 + 16), "a bank without an open row");
        assert_eq!(take(2000, 5), Time::ns(1 + 16), "the open row");
        assert_eq!(take(3000, 9), Time::ns(1 + 10 + 20 + 16), "another row of the bank");
        assert_eq!(take(3000, 9), Time::ns(47 + 17), "behind it");
        assert_eq!(take(3000, 10), Time::ns(37), "another bank, in parallel");
        // The refresh at 8 µs closes rows and takes the banks.
        assert_eq!(take(8100, 9), Time::ns(200 + 37));
        assert_eq!(take(9000, 9), Time::ns(17));
        assert_eq!(banks.met(), [3, 3, 1]);
    }
}
