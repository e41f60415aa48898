//! A memory controller that serves what its open rows have first (FR-FCFS: Rixner et al., 2000).
//!
//! ```text
//!   queue, oldest first --> a request whose row is open and ready --> column command --> data bus
//!                     \---> the oldest one of each other bank ------> close, open
//! ```
//!
//! A bank opens a row for its oldest request while no request for its open row waits. Row commands
//! of different banks overlap. Column commands are as far apart as the data bus needs.
//!
//! | timing | from | to |
//! |---|---|---|
//! | `open` (tRCD) | opening a row | its first column command |
//! | `column` (tCL) | a column command | its first data |
//! | `burst` (BL/2) | the first data | the last, and the next column command |
//! | `close` (tRP) | closing a row | opening another |
//! | `active` (tRAS) | opening a row | closing it |
//! | `refresh_every`, `refresh` (tREFI, tRFC) | | all rows closed, all banks taken |
//!
//! Invariants ([`Controller::check`]): each queued request is for one bank, no bank is opened twice
//! at a time, and the data bus carries one burst at a time.

use std::collections::VecDeque;

use crate::time::Time;

/// The times of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerTiming {
    /// tRCD.
    pub open: Time,
    /// tCL.
    pub column: Time,
    /// BL/2.
    pub burst: Time,
    /// tRP.
    pub close: Time,
    /// tRAS.
    pub active: Time,
    /// tREFI. Zero: there is no refresh.
    pub refresh_every: Time,
    /// tRFC.
    pub refresh: Time,
}

/// A request: which row of which bank, and the caller's own number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The bank.
    pub bank: u32,
    /// The row of the bank.
    pub row: u32,
    /// Given back with the data.
    pub tag: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Bank {
    row: u32,
    /// When the row can be read, and when it can be closed.
    ready: Time,
    closable: Time,
    /// Queued requests, and how many of these are for the open row.
    queued: u32,
    hits: u32,
}

/// How requests met their banks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Met {
    /// Their row was open.
    pub hits: u64,
    /// No row was open.
    pub closed: u64,
    /// Another row was open.
    pub conflicts: u64,
    /// Refreshes.
    pub refreshes: u64,
}

/// A controller.
#[derive(Clone, Debug)]
pub struct Controller {
    timing: ControllerTiming,
    banks: Vec<Bank>,
    queue: VecDeque<(Wanted, bool)>,
    depth: usize,
    /// When the next column command may come, and the next refresh is due.
    column_free: Time,
    refresh_at: Time,
    met: Met,
}

impl Controller {
    /// `banks` banks, all closed, and a queue of `depth` requests.
    pub fn new(timing: ControllerTiming, banks: u32, depth: usize) -> Controller {
        let bank = Bank { row: NONE, ready: Time::ZERO, closable: Time::ZERO, queued: 0, hits: 0 };
        Controller {
            timing,
            banks: vec![bank; banks as usize],
            queue: VecDeque::with_capacity(depth),
            depth,
            column_free: Time::ZERO,
            refresh_at: if timing.refresh_every > Time::ZERO { timing.refresh_every } else { Time(u64::MAX) },
            met: Met::default(),
        }
    }
    /// Whether it takes one more request.
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.depth
    }
    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    /// How requests met their banks.
    pub fn met(&self) -> Met {
        self.met
    }
    /// Takes a request.
    ///
    /// # Panics
    /// If there is no such bank, or no room.
    pub fn push(&mut self, wanted: Wanted) {
        assert!(self.has_room(), "the queue is full");
        let bank = &mut self.banks[wanted.bank as usize];
        bank.queued += 1;
        bank.hits += u32::from(bank.row == wanted.row);
        // False: what it meets is counted when its bank is opened for it.
        self.queue.push_back((wanted, bank.row == wanted.row));
    }
    /// Does what can be done at a time. Returns when to call it again: [`Time`]'s largest where
    /// nothing waits. `done` gets tags with the time of their last data.
    pub fn advance(&mut self, now: Time, done: &mut Vec<(u32, Time)>) -> Time {
        if now >= self.refresh_at {
            self.refresh(now);
        }
        let mut next = Time(u64::MAX);
        // Column commands, the oldest of the open rows first.
        while self.column_free <= now {
            let ready = |(wanted, _): &(Wanted, bool)| {
                let bank = &self.banks[wanted.bank as usize];
                bank.row == wanted.row && bank.ready <= now
            };
            let Some(at) = self.queue.iter().position(ready) else { break };
            let (wanted, hit) = self.queue.remove(at).expect("it is there");
            self.met.hits += u64::from(hit);
            let bank = &mut self.banks[wanted.bank as usize];
            bank.queued -= 1;
            bank.hits -= 1;
            self.column_free = now + self.timing.burst;
            bank.closable = bank.closable.max(now + self.timing.burst);
            done.push((wanted.tag, now + self.timing.column + self.timing.burst));
        }
        if self.queue.is_empty() {
            return next;
        }
        // Rows that somebody wants, where nobody wants the open one.
        for at in 0..self.queue.len() {
            let (wanted, _) = self.queue[at];
            let bank = &self.banks[wanted.bank as usize];
            if bank.row == wanted.row {
                next = next.min(bank.ready.max(self.column_free));
            } else if bank.hits == 0 {
                let closed = bank.row == NONE;
                let begins = if closed { bank.ready } else { bank.closable };
                if begins > now {
                    next = next.min(begins);
                    continue;
                }
                self.open(now, wanted, closed);
                let bank = &self.banks[wanted.bank as usize];
                next = next.min(bank.ready.max(self.column_free));
            }
        }
        next.max(Time(now.0 + 1)).min(self.refresh_at)
    }
    fn open(&mut self, now: Time, wanted: Wanted, closed: bool) {
        let Controller { timing, banks, queue, met, .. } = self;
        let bank = &mut banks[wanted.bank as usize];
        let opens = if closed { now } else { now + timing.close };
        met.closed += u64::from(closed);
        met.conflicts += u64::from(!closed);
        (bank.row, bank.ready, bank.closable) = (wanted.row, opens + timing.open, opens + timing.active);
        let mut first = true;
        bank.hits = 0;
        for (other, hit) in queue.iter_mut() {
            if (other.bank, other.row) == (wanted.bank, wanted.row) {
                // The first one has been counted as what it met.
                *hit = !std::mem::take(&mut first);
                bank.hits += 1;
            }
        }
    }
    /// All rows are closed, and the banks are taken.
    fn refresh(&mut self, now: Time) {
        // Those that passed while nothing happened leave the banks closed, too.
        let passed = (now - self.refresh_at).0 / self.timing.refresh_every.0;
        let begins = self.refresh_at + self.timing.refresh_every * passed;
        self.met.refreshes += passed + 1;
        self.refresh_at = begins + self.timing.refresh_every;
        for bank in &mut self.banks {
            // An open row is closed first.
            let open = bank.row != NONE && passed == 0;
            let free = if open { bank.closable.max(begins) + self.timing.close } else { begins };
            (bank.row, bank.hits) = (NONE, 0);
            bank.ready = bank.ready.max(free + self.timing.refresh);
        }
        self.queue.iter_mut().for_each(|(_, hit)| *hit = false);
    }
    /// Asserts the invariants. Takes time in proportion to queue and banks.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        for (number, bank) in self.banks.iter().enumerate() {
            let of = |(wanted, _): &&(Wanted, bool)| wanted.bank as usize == number;
            assert_eq!(self.queue.iter().filter(of).count(), bank.queued as usize, "bank {number}");
            let hits = self.queue.iter().filter(of).filter(|(wanted, _)| wanted.row == bank.row).count();
            assert_eq!(hits, bank.hits as usize, "hits of bank {number}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const TIMING: ControllerTiming = ControllerTiming {
        open: Time::ns(15),
        column: Time::ns(14),
        burst: Time::ns(4),
        close: Time::ns(13),
        active: Time::ns(30),
        refresh_every: Time::ZERO,
        refresh: Time::ZERO,
    };

    fn wanted(bank: u32, row: u32, tag: u32) -> Wanted {
        Wanted { bank, row, tag }
    }
    /// Until all that waits has its data.
    fn run(controller: &mut Controller, from: Time) -> Vec<(u32, Time)> {
        let (mut now, mut done) = (from, Vec::new());
        while !controller.is_empty() {
            now = controller.advance(now, &mut done);
            controller.check();
        }
        done
    }

    #[test]
    fn rows_hit_miss_and_conflict() {
        let mut controller = Controller::new(TIMING, 4, 16);
        let mut take = |now: u64, row| {
            controller.push(wanted(0, row, 0));
            run(&mut controller, Time::ns(now))[0].1 - Time::ns(now)
        };
        assert_eq!(take(0, 5), Time::ns(15 + 14 + 4), "closed");
        assert_eq!(take(100, 5), Time::ns(14 + 4), "hit");
        assert_eq!(take(200, 6), Time::ns(13 + 15 + 14 + 4), "conflict");
        assert_eq!(take(235, 7), Time::ns(8 + 13 + 15 + 14 + 4), "a row is open for at least tRAS");
        assert_eq!(controller.met(), Met { hits: 1, closed: 1, conflicts: 2, refreshes: 0 });
    }
    #[test]
    fn open_rows_come_first_and_banks_overlap() {
        let mut controller = Controller::new(TIMING, 4, 16);
        for (bank, row, tag) in [(0, 1, 0), (0, 2, 1), (0, 1, 2), (1, 1, 3)] {
            controller.push(wanted(bank, row, tag));
        }
        let done = run(&mut controller, Time::ZERO);
        assert_eq!(done.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [0, 2, 3, 1]);
        // Two bursts of bank 0's open row, then bank 1's, which was opened meanwhile.
        assert_eq!(done[2].1, Time::ns(15 + 4 + 4 + 14 + 4));
        // First come, first served, would have needed two conflicts.
        assert_eq!(controller.met(), Met { hits: 1, closed: 2, conflicts: 1, refreshes: 0 });
    }
    #[test]
    fn a_refresh_closes_all_rows() {
        let timing = ControllerTiming { refresh_every: Time::us(8), refresh: Time::ns(300), ..TIMING };
        let mut controller = Controller::new(timing, 2, 4);
        controller.push(wanted(0, 1, 0));
        run(&mut controller, Time::ZERO);
        controller.push(wanted(0, 1, 1));
        let done = run(&mut controller, Time::ns(8100));
        assert_eq!(done[0].1, Time::ns(8000 + 13 + 300 + 15 + 14 + 4));
        controller.push(wanted(0, 1, 2));
        assert_eq!(run(&mut controller, Time::us(100))[0].1, Time::us(100) + Time::ns(15 + 14 + 4));
        assert_eq!(controller.met().refreshes, 12);
    }
    #[test]
    fn nothing_is_lost_and_the_bus_carries_one_at_a_time() {
        let timing = ControllerTiming { refresh_every: Time::us(4), refresh: Time::ns(200), ..TIMING };
        let mut controller = Controller::new(timing, 8, 32);
        let (mut random, mut now, mut done, mut pushed) = (Random::new(1, 0), Time::ZERO, Vec::new(), 0);
        while pushed < 5000 || !controller.is_empty() {
            if pushed < 5000 && controller.has_room() && random.below(2) == 0 {
                controller.push(wanted(random.below(8) as u32, random.below(6) as u32, pushed));
                pushed += 1;
            }
            let next = controller.advance(now, &mut done);
            controller.check();
            now = next.min(now + Time::ns(random.below(20) + 1));
        }
        let mut tags: Vec<u32> = done.iter().map(|(tag, _)| *tag).collect();
        tags.sort_unstable();
        assert!(tags.iter().copied().eq(0..5000));
        assert!(done.windows(2).all(|pair| pair[1].1 >= pair[0].1 + TIMING.burst));
        let met = controller.met();
        // A refresh may close a row before the request that it was opened for.
        assert!(met.hits > 500 && met.hits + met.closed + met.conflicts >= 5000, "{met:?}");
    }
}
