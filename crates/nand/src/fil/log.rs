//! The log: some blocks of each plane, whose pages of NAND take flash pages from anywhere.
//!
//! Invariants: of a flash page at most one copy in the log counts; a block is erased only when nothing in it counts.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::{FLASH_PAGE_BYTES, Fil, FlashStatus, PER_PAGE_MAX, Program, purpose};
use crate::geometry::{Block, Geometry, NandPage, Plane};
use crate::nand::{Nand, NandOp};
use crate::slots::NONE;

/// Times that something is tried in the log before it is given up.
const TRIES: u32 = 4;

/// Something that is to go to the log when it is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub due: u64,
    pub flash_page: u32,
    /// Who waits, of what has no home. What is held knows that itself.
    pub request: u32,
    pub generation: u32,
    pub tries: u32,
    /// It has no home that could be programmed.
    pub homeless: bool,
}

#[derive(Clone, Copy, Debug)]
struct LogBlock {
    block: Block,
    /// Flash pages in it that count.
    live: u32,
    /// What counts in it is being moved.
    moving: bool,
}

/// Where everything in the log is.
#[derive(Debug)]
pub(super) struct Log {
    geometry: Geometry,
    per_plane: usize,
    blocks: Vec<LogBlock>,
    /// Of each plane, which of its blocks is being filled.
    active: Vec<usize>,
    /// Flash pages in the log, each as a page of NAND times the flash pages of one, plus which of them.
    places: HashMap<u32, u32, FixedState>,
    /// What was programmed in each place of each block.
    contents: Vec<u32>,
    /// The plane that is filled next.
    cursor: u32,
}

impl Log {
    pub fn new(geometry: Geometry, blocks: Vec<Vec<Block>>) -> Log {
        let per_plane = blocks[0].len();
        let blocks: Vec<LogBlock> =
            blocks.into_iter().flatten().map(|block| LogBlock { block, live: 0, moving: false }).collect();
        let slots = (geometry.pages_per_block() * geometry.flash_pages_per_page()) as usize;
        Log {
            geometry,
            per_plane,
            active: vec![0; geometry.planes() as usize],
            places: HashMap::with_capacity_and_hasher(1024, FixedState::default()),
            contents: vec![NONE; blocks.len() * slots],
            cursor: 0,
            blocks,
        }
    }
    pub fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<LogBlock>()
            + self.active.capacity() * 8
            + self.contents.capacity() * 4
            + self.places.capacity() * 9
    }
    /// Flash pages that are in the log.
    pub fn pages(&self) -> impl Iterator<Item = u32> {
        self.places.keys().copied()
    }
    /// Where a flash page is, if it is here: the page of NAND, and which flash page of it.
    pub fn find(&self, flash_page: u32) -> Option<(NandPage, u32)> {
        let per_page = self.geometry.flash_pages_per_page();
        self.places.get(&flash_page).map(|place| (NandPage(place / per_page), place % per_page))
    }
    fn at(&self, block: Block) -> usize {
        let plane = self.geometry.plane_of(block).0 as usize * self.per_plane;
        let blocks = &self.blocks[plane..plane + self.per_plane];
        plane + blocks.iter().position(|b| b.block == block).expect("a block of the log")
    }
    /// A flash page that is here does not count any more. Returns whether it was here.
    pub fn forget(&mut self, flash_page: u32) -> bool {
        let Some(place) = self.places.remove(&flash_page) else { return false };
        let page = NandPage(place / self.geometry.flash_pages_per_page());
        // A block that failed may have been replaced.
        let block = self.geometry.block_of(page);
        let plane = self.geometry.plane_of(block).0 as usize * self.per_plane;
        if let Some(b) = self.blocks[plane..plane + self.per_plane].iter_mut().find(|b| b.block == block) {
            b.live -= 1;
        }
        true
    }
    /// Puts flash pages in a page of NAND; `new` is told those that were not in the log.
    fn put(&mut self, page: NandPage, pages: &[u32; PER_PAGE_MAX], mut new: impl FnMut(u32)) {
        let per_page = self.geometry.flash_pages_per_page();
        let at = self.at(self.geometry.block_of(page));
        let slots = (self.geometry.pages_per_block() * per_page) as usize;
        let first = at * slots + (self.geometry.index_of(page) * per_page) as usize;
        for (slot, flash_page) in pages.iter().enumerate().take(per_page as usize) {
            self.contents[first + slot] = *flash_page;
            if *flash_page != NONE {
                // One that is there twice counts once.
                if !self.forget(*flash_page) {
                    new(*flash_page);
                }
                self.places.insert(*flash_page, page.0 * per_page + slot as u32);
                self.blocks[at].live += 1;
            }
        }
    }
    pub fn check(&self) {
        let mut live = vec![0; self.blocks.len()];
        for place in self.places.values() {
            let page = NandPage(place / self.geometry.flash_pages_per_page());
            live[self.at(self.geometry.block_of(page))] += 1;
        }
        for (block, live) in self.blocks.iter().zip(live) {
            assert_eq!(block.live, live, "what counts in {:?} of the log", block.block);
        }
    }
    /// A page of NAND that can be programmed next, and the block to erase before; none where the log is full.
    fn room(&mut self, nand: &Nand) -> Option<(NandPage, Option<Block>)> {
        let (planes, pages) = (self.geometry.planes(), self.geometry.pages_per_block());
        for _ in 0..planes {
            let plane = self.cursor;
            self.cursor = (self.cursor + 1) % planes;
            let first = plane as usize * self.per_plane;
            let active = self.blocks[first + self.active[plane as usize]].block;
            let next = nand.next_page(active);
            if next < pages && !nand.is_bad(active) {
                return Some((self.geometry.page(active, next), None));
            }
            let mine = &self.blocks[first..first + self.per_plane];
            if let Some(empty) = mine.iter().position(|b| b.live == 0 && !nand.is_bad(b.block)) {
                self.active[plane as usize] = empty;
                let block = mine[empty].block;
                self.blocks[first + empty].moving = false;
                return Some((self.geometry.page(block, 0), (nand.next_page(block) > 0).then_some(block)));
            }
        }
        None
    }
    /// The block of a plane that should be emptied, as there is none to go on in: the one in which the least counts.
    fn victim(&self, plane: Plane, nand: &Nand) -> Option<usize> {
        let first = plane.0 as usize * self.per_plane;
        let mine = first..first + self.per_plane;
        let usable = |b: &LogBlock| !nand.is_bad(b.block);
        let room =
            |b: &LogBlock| usable(b) && (b.live == 0 || nand.next_page(b.block) < self.geometry.pages_per_block());
        if self.blocks[mine.clone()].iter().any(|b| room(b) || b.moving) {
            return None;
        }
        mine.filter(|at| usable(&self.blocks[*at])).min_by_key(|at| self.blocks[*at].live)
    }
}

impl Fil {
    /// What waits for the log and is due by then goes there, as many flash pages to a page of NAND as it has; the last one is filled with
    /// what is due later.
    pub(super) fn log_pending(&mut self, due: u64) {
        let mut program = Program { epoch: self.epoch(), ..Program::default() };
        let mut count = 0;
        while self.pending.front().is_some_and(|pending| pending.due <= due || count > 0) {
            let pending = self.pending.pop_front().expect("seen above");
            let Some(request) = self.still_pending(&pending) else { continue };
            (program.pages[count], program.requests[count]) = (pending.flash_page, request);
            program.tries = program.tries.max(pending.tries);
            count += 1;
            if count == self.layout.per_page as usize {
                self.log_program(std::mem::replace(
                    &mut program,
                    Program { epoch: self.epoch(), ..Program::default() },
                ));
                count = 0;
            }
        }
        if count > 0 {
            self.log_program(program);
        }
    }
    /// Whether something must still go to the log, and who waits for it.
    fn still_pending(&mut self, pending: &Pending) -> Option<u32> {
        let page = pending.flash_page;
        let extent = (page / self.layout.extent_pages) as usize;
        if self.generations[extent] != pending.generation {
            if pending.request != NONE {
                self.finish(pending.request, FlashStatus::Ok, false);
            }
            return None;
        }
        if pending.homeless {
            return Some(pending.request);
        }
        let home = self.layout.home(page);
        let held = self.held.get_mut(&home.page.0)?;
        let bit = 1 << home.slot;
        if held.present & bit == 0 || held.logged & bit != 0 {
            return None;
        }
        held.logged |= bit;
        Some(std::mem::replace(&mut held.requests[home.slot as usize], NONE))
    }
    /// Programs flash pages in the log.
    pub(super) fn log_program(&mut self, program: Program) {
        let room = if program.tries < TRIES { self.log.room(&self.nand) } else { None };
        let Some((page, erase)) = room else { return self.log_is_full(&program) };
        if let Some(block) = erase {
            self.to_nand(purpose::ERASE, NandOp::Erase { block }, true);
        }
        self.counters.log_programs += 1;
        self.counters.logged += program.pages.into_iter().filter(|page| *page != NONE).count() as u64;
        let (exceptions, extent_pages) = (&mut self.exceptions, self.layout.extent_pages);
        self.log.put(page, &program.pages, |flash_page| exceptions[(flash_page / extent_pages) as usize] += 1);
        self.program(page, program, false);
        let plane = self.layout.geometry.plane_of(self.layout.geometry.block_of(page));
        if self.layout.geometry.index_of(page) + 1 == self.layout.geometry.pages_per_block() {
            self.move_out(plane);
        }
    }
    /// Nothing more fits: what is held is programmed at home, whatever is missing there; what has no home is not written.
    fn log_is_full(&mut self, program: &Program) {
        for (page, request) in program.pages.into_iter().zip(program.requests).filter(|(page, _)| *page != NONE) {
            let home = self.layout.home(page);
            if let Some(held) = self.held.get_mut(&home.page.0).filter(|held| held.first + home.slot == page) {
                held.requests[home.slot as usize] = request;
                held.logged &= !(1 << home.slot);
                self.force(home.page);
            } else if request != NONE {
                self.finish(request, FlashStatus::WriteFailed, false);
            }
        }
    }
    /// A page of NAND of the log failed: what was to lie there is tried elsewhere.
    pub(super) fn log_failed(&mut self, program: &Program) {
        let mut again = Program { epoch: program.epoch, tries: program.tries + 1, ..Program::default() };
        again.pages = program.pages;
        again.requests = program.requests;
        self.log_program(again);
    }
    /// Moves what counts in the block of the log in a plane that is due, so that it can be erased.
    fn move_out(&mut self, plane: Plane) {
        self.replace_bad_log_blocks(plane);
        let Some(at) = self.log.victim(plane, &self.nand) else { return };
        self.log.blocks[at].moving = true;
        let (g, per_page) = (self.layout.geometry, self.layout.per_page);
        let slots = (g.pages_per_block() * per_page) as usize;
        let block = self.log.blocks[at].block;
        for slot in 0..slots {
            let flash_page = self.log.contents[at * slots + slot];
            let place = g.page(block, 0).0 * per_page + slot as u32;
            if flash_page == NONE || self.log.places.get(&flash_page) != Some(&place) {
                continue;
            }
            let mut moved = Program::default();
            (moved.pages[0], moved.pages[1]) = (flash_page, place);
            let Some(number) = self.programs.take(moved) else { return };
            self.counters.log_moves += 1;
            let page = NandPage(place / per_page);
            let op = NandOp::Read { page, offset: place % per_page * FLASH_PAGE_BYTES, bytes: FLASH_PAGE_BYTES };
            if !self.to_nand(purpose::MOVE | u64::from(number), op, true) {
                self.programs.give_back(number);
            }
        }
    }
    fn replace_bad_log_blocks(&mut self, plane: Plane) {
        let first = plane.0 as usize * self.log.per_plane;
        for at in first..first + self.log.per_plane {
            let LogBlock { block, live, .. } = self.log.blocks[at];
            if live == 0
                && self.nand.is_bad(block)
                && let Some(spare) = self.layout.take_spare(plane)
            {
                self.counters.replaced_blocks += 1;
                self.log.blocks[at] = LogBlock { block: spare, live: 0, moving: false };
            }
        }
    }
    /// Something of the log was read, to be moved. What cannot be read stays where it is, as does all else in its block.
    pub(super) fn moved(&mut self, number: u32, well: bool) {
        let [flash_page, place, ..] = self.programs[number].pages;
        self.programs.give_back(number);
        if well && self.log.places.get(&flash_page) == Some(&place) {
            let generation = self.generations[(flash_page / self.layout.extent_pages) as usize];
            let (due, request) = (self.now, NONE);
            let at = self.pending.partition_point(|pending| pending.due <= due);
            self.pending.insert(at, Pending { due, flash_page, request, generation, tries: 0, homeless: true });
        }
    }
}
