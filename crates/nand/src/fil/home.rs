//! Writes on their way to their homes, and extents that begin anew.

use super::Fil;
use super::config::PER_PAGE_MAX;
use super::program::{Program, purpose};
use super::request::FlashStatus;
use crate::fil::log::Pending;
use crate::geometry::{Block, NandPage};
use crate::nand::NandOp;
use crate::slots::NONE;

/// What is held for a home that cannot be programmed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub extent: u32,
    /// The first flash page of the home, by its number in the pool.
    pub first: u32,
    /// Its flash pages that are here, a bit each.
    pub present: u8,
    /// Of these, those that were given to the log.
    pub logged: u8,
    /// Their waiters.
    pub requests: [u32; PER_PAGE_MAX],
    pub reclaim: bool,
}

impl Fil {
    pub(super) fn write(&mut self, number: u32, flash_page: u32, reclaim: bool) {
        self.counters.writes += 1;
        let home = self.layout.home(flash_page);
        if home.extent < self.config.fixed_extents {
            self.set_used(flash_page);
            return self.pend(flash_page, number, self.now);
        }
        let mut page = home.page;
        if self.is_used(flash_page) {
            self.begin(home.extent);
            // A block may have been replaced.
            page = self.layout.home(flash_page).page;
        }
        self.set_used(flash_page);
        let g = self.layout.geometry;
        let (block, index) = (g.block_of(page), g.index_of(page));
        let next = self.nand.next_page(block);
        if index < next {
            self.counters.late += 1;
            return self.pend(flash_page, number, self.now);
        }
        let slots = self.layout.slots_of(home.index);
        let first = flash_page - home.slot;
        if slots == 1 && index == next {
            let mut requests = [NONE; PER_PAGE_MAX];
            requests[0] = self.ends_later(number);
            let held = Held { extent: home.extent, first, present: 1, logged: 0, requests, reclaim };
            self.program_home(page, &held, 0, self.epoch());
        } else {
            self.hold(page, flash_page, home.extent, number, reclaim);
            let full = u8::MAX >> (8 - slots);
            if index > next || self.held[&page.0].present != full {
                return self.relieve();
            }
        }
        self.program_complete(block);
    }
    pub(super) fn set_used(&mut self, flash_page: u32) {
        self.used[flash_page as usize / 64] |= 1 << (flash_page % 64);
    }
    /// Forgets that flash pages were written, whole words at a time where it can.
    fn clear_used(&mut self, pages: std::ops::Range<u32>) {
        let mut at = pages.start;
        while at < pages.end {
            let end = pages.end.min((at / 64 + 1) * 64);
            let bits = u64::MAX >> (64 - (end - at)) << (at % 64);
            self.used[at as usize / 64] &= !bits;
            at = end;
        }
    }
    /// A write is in the buffer: if that is all its request waits for, it ends. Returns the waiters
    /// for the program.
    fn ends_later(&mut self, number: u32) -> u32 {
        if self.config.cached_writes {
            self.finish(number, FlashStatus::Ok, false);
            NONE
        } else {
            number
        }
    }
    /// A write that has no home, or none any more, goes to the log.
    fn pend(&mut self, flash_page: u32, number: u32, due: u64) {
        let request = self.ends_later(number);
        let generation = self.generations[self.extent_of(flash_page)];
        let at = self.pending.partition_point(|pending| pending.due <= due);
        self.pending.insert(at, Pending { due, flash_page, request, generation, homeless: true });
    }
    /// Holds a write until its home can be programmed.
    fn hold(&mut self, page: NandPage, flash_page: u32, extent: u32, number: u32, reclaim: bool) {
        let request = self.ends_later(number);
        let slot = flash_page % self.layout.extent_pages % self.layout.per_page;
        let empty = Held {
            extent,
            first: flash_page - slot,
            present: 0,
            logged: 0,
            requests: [NONE; PER_PAGE_MAX],
            reclaim: false,
        };
        let held = self.held.entry(page.0).or_insert(empty);
        if held.present == 0 {
            self.order.push_back(page.0);
        }
        held.present |= 1 << slot;
        held.requests[slot as usize] = request;
        held.reclaim |= reclaim;
        self.held_pages += 1;
        self.exceptions[extent as usize] += 1;
        let (due, generation) = (self.now + self.config.hold_ns, self.generations[extent as usize]);
        self.pending.push_back(Pending { due, flash_page, request: NONE, generation, homeless: false });
    }
    /// Programs homes of a block that are complete, while they are next.
    fn program_complete(&mut self, block: Block) {
        let g = self.layout.geometry;
        loop {
            let next = self.nand.next_page(block);
            if next == g.pages_per_block() || self.held.is_empty() {
                return;
            }
            let page = g.page(block, next);
            let Some(held) = self.held.get(&page.0) else { return };
            let full = u8::MAX >> (8 - self.layout.slots_of(held.first % self.layout.extent_pages));
            if held.present != full {
                return;
            }
            self.program_held(page, self.epoch());
        }
    }
    /// Programs what is held for a home, and leaves the rest of it empty.
    fn program_held(&mut self, page: NandPage, epoch: u64) {
        match self.held.remove(&page.0) {
            Some(held) => {
                let present = held.present.count_ones();
                self.held_pages -= present;
                self.exceptions[held.extent as usize] -= present;
                let slots = self.layout.slots_of(held.first % self.layout.extent_pages);
                self.program_home(page, &held, slots - present, epoch);
            }
            None => {
                self.counters.home_programs += 1;
                self.counters.padded += u64::from(self.layout.per_page);
                let program = Program { home: true, epoch, ..Program::default() };
                self.program(page, program, false);
            }
        }
    }
    fn program_home(&mut self, page: NandPage, held: &Held, padded: u32, epoch: u64) {
        self.counters.home_programs += 1;
        self.counters.padded += u64::from(padded);
        let mut pages = [NONE; PER_PAGE_MAX];
        for (slot, at) in pages.iter_mut().enumerate() {
            if held.present & (1 << slot) != 0 {
                *at = held.first + slot as u32;
            }
        }
        let generations = [self.generations[held.extent as usize]; PER_PAGE_MAX];
        let requests = held.requests;
        self.program(
            page,
            Program { pages, requests, home: true, epoch, generations, ..Program::default() },
            held.reclaim,
        );
    }
    /// What is held too much is programmed, the oldest first, and homes before it are padded.
    fn relieve(&mut self) {
        while self.held_pages > self.config.buffer_pages {
            let oldest = self.order.pop_front().expect("what is held is in order");
            if self.held.contains_key(&oldest) {
                self.force(NandPage(oldest), self.epoch());
            }
        }
        // What was programmed is forgotten now and then.
        if self.order.len() > 64 + 4 * self.held.len() {
            let held = &self.held;
            self.order.retain(|home| held.contains_key(home));
        }
    }
    /// Programs a home that is held, and all before it in its block, with what there is. The flush
    /// of `epoch` waits for them. Later ones do in any case, as flushes end in their order.
    pub(super) fn force(&mut self, page: NandPage, epoch: u64) {
        let g = self.layout.geometry;
        let block = g.block_of(page);
        for index in self.nand.next_page(block)..=g.index_of(page) {
            self.program_held(g.page(block, index), epoch);
        }
        self.program_complete(block);
    }

    /// An extent is used from its beginning: what is in it is gone.
    pub(super) fn begin(&mut self, extent: u32) {
        self.counters.extents_begun += 1;
        let first = extent * self.layout.extent_pages;
        if self.exceptions[extent as usize] > 0 {
            let mut gone = Vec::new();
            self.held.retain(|_, held| {
                let stays = held.extent != extent;
                if !stays {
                    gone.push(*held);
                }
                stays
            });
            for held in gone {
                self.held_pages -= held.present.count_ones();
                // A remaining waiter's data will never be read.
                for request in held.requests.into_iter().filter(|request| *request != NONE) {
                    self.finish(request, FlashStatus::Ok, false);
                }
            }
            for flash_page in first..first + self.layout.extent_pages {
                if self.is_used(flash_page) {
                    self.log.forget(flash_page);
                }
            }
            self.exceptions[extent as usize] = 0;
        }
        self.clear_used(first..first + self.layout.extent_pages);
        self.generations[extent as usize] = self.generations[extent as usize].wrapping_add(1);
        for column in 0..self.layout.width {
            let mut block = self.layout.block(extent, column);
            if self.nand.is_bad(block) && self.layout.replace(extent, column) {
                self.counters.replaced_blocks += 1;
                block = self.layout.block(extent, column);
            }
            if self.nand.next_page(block) > 0 {
                self.operate(purpose::ERASE, NandOp::Erase { block }, true);
            }
        }
    }
    /// What was programmed at home is not needed in the log.
    pub(super) fn home_programmed(&mut self, program: &Program) {
        for page in program.pages.into_iter().filter(|page| *page != NONE) {
            let extent = self.extent_of(page);
            if self.exceptions[extent] > 0
                && self.generations[extent] == program.generations[0]
                && self.log.forget(page)
            {
                self.exceptions[extent] -= 1;
            }
        }
    }
    /// A home failed. Waiters get an error. Acknowledged data stays in the log, or is written
    /// there.
    pub(super) fn home_failed(&mut self, program: &Program) {
        for (page, request) in program.pages.into_iter().zip(program.requests).filter(|(page, _)| *page != NONE) {
            if request != NONE {
                self.finish(request, FlashStatus::WriteFailed, false);
                continue;
            }
            let extent = self.extent_of(page);
            if self.generations[extent] != program.generations[0] {
                continue;
            }
            self.counters.late += 1;
            if self.log.find(page).is_none() {
                let mut again = Program { epoch: program.epoch, tries: program.tries + 1, ..Program::default() };
                (again.pages[0], again.homeless) = (page, 1);
                again.generations = program.generations;
                self.log_program(again);
            }
        }
    }
}
