//! The log: some blocks of each plane, whose pages of NAND take flash pages from anywhere.
//!
//! Each plane has a block that is being filled. Planes take turns. A block in which nothing counts
//! any more is *free*, and erased when it is used again. The last free block is kept for moves:
//! when few are left, what still counts in the block where that is least is moved, one block at a
//! time. What finds no room meanwhile waits.
//!
//! Invariants: of a flash page at most one copy in the log counts. A block is erased only when
//! nothing in it counts, and what was moved out of it is programmed: a power cut, or a program that
//! fails, finds one of the two.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::Fil;
use super::config::{FLASH_PAGE_BYTES, PER_PAGE_MAX, StateError};
use super::program::{Program, purpose};
use super::request::FlashStatus;
use crate::geometry::{Block, Geometry, NandPage};
use crate::nand::{Nand, NandOp};
use crate::slots::NONE;

/// Times that something is tried in the log before it is given up.
const TRIES: u32 = 4;

/// Something that is to go to the log when it is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub due: u64,
    pub flash_page: u32,
    /// The waiters for pages without a home. Held pages know their own.
    pub request: u32,
    pub generation: u32,
    /// It has no home that could be programmed.
    pub homeless: bool,
}

#[derive(Clone, Copy, Debug)]
struct LogBlock {
    block: Block,
    /// Flash pages in it that count.
    live: u32,
    /// It was moved, and something in it could not be read.
    stuck: bool,
}

/// What is being moved.
#[derive(Debug, Default)]
struct Moves {
    /// The block.
    from: Option<usize>,
    /// Reads under way.
    reads: u32,
    /// What was read and not yet programmed.
    program: Program,
    count: usize,
    /// Programs of what was read that have not ended: until then the block they come from is not
    /// erased.
    programs: u32,
}

/// Where everything in the log is.
#[derive(Debug)]
pub(super) struct Log {
    geometry: Geometry,
    per_plane: usize,
    blocks: Vec<LogBlock>,
    /// Of each plane, which of its blocks is being filled.
    active: Vec<usize>,
    /// Flash pages in the log, each as a page of NAND times the flash pages of one, plus which of
    /// them.
    places: HashMap<u32, u32, FixedState>,
    /// What was programmed in each place of each block.
    contents: Vec<u32>,
    /// The plane that is filled next.
    cursor: u32,
    moves: Moves,
    /// What waits for room.
    stalled: VecDeque<Program>,
}

impl Log {
    pub fn new(geometry: Geometry, blocks: Vec<Vec<Block>>) -> Log {
        let per_plane = blocks[0].len();
        let blocks: Vec<LogBlock> =
            blocks.into_iter().flatten().map(|block| LogBlock { block, live: 0, stuck: false }).collect();
        let slots = (geometry.pages_per_block() * geometry.flash_pages_per_page()) as usize;
        Log {
            geometry,
            per_plane,
            active: vec![0; geometry.planes() as usize],
            places: HashMap::with_capacity_and_hasher(1024, FixedState::default()),
            contents: vec![NONE; blocks.len() * slots],
            cursor: 0,
            blocks,
            moves: Moves::default(),
            stalled: VecDeque::new(),
        }
    }
    pub fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<LogBlock>()
            + self.active.capacity() * 8
            + self.contents.capacity() * 4
            + self.places.capacity() * 9
    }
    /// Programs that wait for room.
    pub fn waiting(&self) -> usize {
        self.stalled.len()
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
        let at = self.at(self.geometry.block_of(page));
        self.blocks[at].live -= 1;
        true
    }
    /// Puts flash pages in a page of NAND. `new` is called with those that were not in the log.
    fn put(&mut self, page: NandPage, pages: &[u32; PER_PAGE_MAX], mut new: impl FnMut(u32)) {
        let per_page = self.geometry.flash_pages_per_page();
        let at = self.at(self.geometry.block_of(page));
        let first = at * self.slots() + (self.geometry.index_of(page) * per_page) as usize;
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
    /// What was to be moved out of a block cannot be, and counts where it was.
    fn stays(&mut self, from: usize, program: &Program) {
        self.blocks[from].stuck = true;
        let (slots, per_page) = (self.slots(), self.geometry.flash_pages_per_page());
        let first = self.geometry.page(self.blocks[from].block, 0).0 * per_page;
        // Else nothing was put anywhere.
        for page in program.pages.into_iter().filter(|page| *page != NONE && program.log_page != NONE) {
            let contents = &self.contents[from * slots..][..slots];
            // The last one, where it was written several times.
            if let Some(slot) = contents.iter().rposition(|at| *at == page) {
                self.forget(page);
                self.places.insert(page, first + slot as u32);
                self.blocks[from].live += 1;
            }
        }
    }
    /// Flash pages of a block.
    fn slots(&self) -> usize {
        (self.geometry.pages_per_block() * self.geometry.flash_pages_per_page()) as usize
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
        assert!(self.stalled.is_empty() || self.moves.from.is_some(), "what waits for room will get it");
        assert!(
            self.moves.programs == 0 || self.moves.from.is_some(),
            "what is moved is where it was until it is programmed"
        );
    }
    /// Whether a block is one of the log's.
    pub fn has(&self, block: Block) -> bool {
        let plane = self.geometry.plane_of(block).0 as usize * self.per_plane;
        self.blocks[plane..plane + self.per_plane].iter().any(|b| b.block == block)
    }
    /// Its blocks, plane by plane.
    pub fn blocks_by_plane(&self) -> Vec<Block> {
        self.blocks.iter().map(|at| at.block).collect()
    }
    /// Saves the blocks as words.
    pub fn save_blocks(&self, words: &mut Vec<u32>) {
        words.extend(self.blocks.iter().map(|at| at.block.0));
    }
    /// The inverse, of a log in which nothing is. `take` judges a block of a plane.
    pub fn restore_blocks(
        &mut self,
        mut next: impl FnMut() -> Result<u32, StateError>,
        mut take: impl FnMut(u32, u32) -> Result<Block, StateError>,
    ) -> Result<(), StateError> {
        for (index, at) in self.blocks.iter_mut().enumerate() {
            at.block = take(next()?, (index / self.per_plane) as u32)?;
        }
        Ok(())
    }
    /// How far it has come, as words.
    pub fn save(&self, words: &mut Vec<u32>) {
        words.extend(self.active.iter().map(|at| *at as u32));
        words.push(self.cursor);
    }
    /// The inverse, of a log in which nothing is.
    pub fn restore(&mut self, mut next: impl FnMut() -> Result<u32, StateError>) -> Result<(), StateError> {
        for active in &mut self.active {
            *active = next()? as usize;
            if *active >= self.per_plane {
                return Err(StateError::Nonsense("the block of the log that is filled"));
            }
        }
        self.cursor = next()?;
        let there = self.cursor < self.geometry.planes();
        if there { Ok(()) } else { Err(StateError::Nonsense("the plane of the log that is next")) }
    }
    fn is_active(&self, at: usize) -> bool {
        self.active[at / self.per_plane] == at % self.per_plane
    }
    fn has_room(&self, at: usize, nand: &Nand) -> bool {
        let block = self.blocks[at].block;
        nand.next_page(block) < self.geometry.pages_per_block() && !nand.is_bad(block)
    }
    /// Whether a block may be erased and filled again.
    fn is_free(&self, at: usize, nand: &Nand) -> bool {
        let b = &self.blocks[at];
        let filled = !self.is_active(at) || !self.has_room(at, nand);
        b.live == 0 && filled && self.moves.from != Some(at) && !nand.is_bad(b.block)
    }
    fn free(&self, nand: &Nand) -> usize {
        (0..self.blocks.len()).filter(|at| self.is_free(*at, nand)).count()
    }
    /// A page of NAND that can be programmed next, and the block to erase before. None where there
    /// is no room.
    fn room(&mut self, nand: &Nand, is_move: bool) -> Option<(NandPage, Option<Block>)> {
        let planes = self.geometry.planes();
        // Counted only when a block is to be opened.
        let mut may_open = None;
        for _ in 0..planes {
            let plane = self.cursor as usize;
            self.cursor = (self.cursor + 1) % planes;
            let first = plane * self.per_plane;
            let active = first + self.active[plane];
            if self.has_room(active, nand) {
                let block = self.blocks[active].block;
                return Some((self.geometry.page(block, nand.next_page(block)), None));
            }
            if !*may_open.get_or_insert_with(|| is_move || self.free(nand) > 1) {
                continue;
            }
            if let Some(at) = (first..first + self.per_plane).find(|at| self.is_free(*at, nand)) {
                self.active[plane] = at - first;
                self.blocks[at].stuck = false;
                let block = self.blocks[at].block;
                return Some((self.geometry.page(block, 0), (nand.next_page(block) > 0).then_some(block)));
            }
        }
        None
    }
    /// The block that should be emptied: the one in which the least counts, if that gains anything.
    fn victim(&self, nand: &Nand) -> Option<usize> {
        let (per_page, pages) = (self.geometry.flash_pages_per_page(), self.geometry.pages_per_block());
        let full = (0..self.blocks.len()).filter(|at| !self.has_room(*at, nand));
        let worth = full.filter(|at| {
            let b = &self.blocks[*at];
            b.live > 0 && !b.stuck && (nand.is_bad(b.block) || b.live.div_ceil(per_page) < pages)
        });
        worth.min_by_key(|at| self.blocks[*at].live)
    }
    /// Blocks below which what counts is moved.
    fn few(&self) -> usize {
        1 + self.geometry.planes() as usize / 4
    }
}

impl Fil {
    /// What waits for the log and is due by then is written there, as many flash pages to a page of
    /// NAND as it has. The last one is filled with what is due later.
    pub(super) fn log_pending(&mut self, due: u64) {
        let mut program = Program { epoch: self.epoch(), ..Program::default() };
        let mut count = 0;
        while self.pending.front().is_some_and(|pending| pending.due <= due || count > 0) {
            let pending = self.pending.pop_front().expect("seen above");
            let Some(request) = self.still_pending(&pending) else { continue };
            (program.pages[count], program.requests[count]) = (pending.flash_page, request);
            program.generations[count] = pending.generation;
            program.homeless |= u8::from(pending.homeless) << count;
            count += 1;
            if count == self.layout.per_page as usize {
                let next = Program { epoch: self.epoch(), ..Program::default() };
                self.log_program(std::mem::replace(&mut program, next));
                count = 0;
            }
        }
        if count > 0 {
            self.log_program(program);
        }
    }
    /// Whether something must still go to the log, and its waiters.
    fn still_pending(&mut self, pending: &Pending) -> Option<u32> {
        let page = pending.flash_page;
        if self.generations[self.extent_of(page)] != pending.generation {
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
    /// Programs flash pages in the log, now or when there is room.
    pub(super) fn log_program(&mut self, mut program: Program) {
        for slot in 0..PER_PAGE_MAX {
            let page = program.pages[slot];
            // Its extent may have begun anew meanwhile.
            if page != NONE && self.generations[self.extent_of(page)] != program.generations[slot] {
                program.pages[slot] = NONE;
                let request = std::mem::replace(&mut program.requests[slot], NONE);
                if request != NONE {
                    self.finish(request, FlashStatus::Ok, false);
                }
            }
        }
        if program.moves && program.log_page != NONE {
            // What was written again since is newer where it is.
            let log = &self.log;
            let newer = |page: u32| log.find(page).is_none_or(|(at, _)| at.0 != program.log_page);
            program.pages.iter_mut().filter(|page| **page != NONE && newer(**page)).for_each(|page| *page = NONE);
        }
        if program.pages == [NONE; PER_PAGE_MAX] {
            self.log.moves.programs -= u32::from(program.moves);
            return;
        }
        let room = if program.tries < TRIES { self.log.room(&self.nand, program.moves) } else { None };
        let Some((page, erase)) = room else {
            let waits =
                program.tries < TRIES && !program.moves && (self.log.moves.from.is_some() || self.begin_moves());
            if waits {
                self.epoch_mut(program.epoch).outstanding += 1;
                self.log.stalled.push_back(program);
            } else {
                self.log_is_full(&program);
            }
            return;
        };
        if let Some(block) = erase {
            self.operate(purpose::ERASE, NandOp::Erase { block }, true);
        }
        self.counters.log_programs += 1;
        self.counters.logged += program.pages.into_iter().filter(|page| *page != NONE).count() as u64;
        let (exceptions, extent_pages) = (&mut self.exceptions, self.layout.extent_pages);
        self.log.put(page, &program.pages, |flash_page| exceptions[(flash_page / extent_pages) as usize] += 1);
        program.log_page = page.0;
        self.program(page, program, program.moves);
        let g = self.layout.geometry;
        if g.index_of(page) + 1 == g.pages_per_block() && self.log.moves.from.is_none() {
            self.replace_bad_log_blocks();
            if self.log.free(&self.nand) <= self.log.few() {
                self.begin_moves();
            }
        }
    }
    /// A page of the log was programmed. What was programmed at home while it waited does not count
    /// here.
    pub(super) fn log_programmed(&mut self, program: &Program) {
        if program.moves {
            self.log.moves.programs -= 1;
            return;
        }
        for (slot, page) in program.pages.into_iter().enumerate().filter(|(_, page)| *page != NONE) {
            if program.homeless & (1 << slot) != 0 {
                continue;
            }
            let home = self.layout.home(page);
            if !self.held.contains_key(&home.page.0) && self.log.forget(page) {
                self.exceptions[home.extent as usize] -= 1;
            }
        }
    }
    /// Nothing more fits: what is held is programmed at home, whatever is missing there. What has
    /// no home is not written.
    fn log_is_full(&mut self, program: &Program) {
        if let (true, Some(from)) = (program.moves, self.log.moves.from) {
            // It stays as it is, rather than being tried for ever.
            self.log.stays(from, program);
            self.log.moves.programs -= 1;
            return;
        }
        let mut homes = [NONE; PER_PAGE_MAX];
        for (slot, (page, request)) in program.pages.into_iter().zip(program.requests).enumerate() {
            if page == NONE {
                continue;
            }
            let (home, homeless) = (self.layout.home(page), program.homeless & (1 << slot) != 0);
            match self.held.get_mut(&home.page.0) {
                Some(held) if !homeless => {
                    held.requests[home.slot as usize] = request;
                    homes[slot] = home.page.0;
                }
                _ if request != NONE => self.finish(request, FlashStatus::WriteFailed, false),
                _ if homeless => self.lose(program.epoch),
                _ => self.wait_for_home(page, program.epoch),
            }
        }
        // Once all their waiters are known: several may have the same home.
        for home in homes.into_iter().filter(|home| *home != NONE) {
            if self.held.contains_key(&home) {
                self.force(NandPage(home), program.epoch);
            }
        }
    }
    /// What waited for room was programmed at home since, or is being: a flush that waits for the
    /// former waits for the latter.
    fn wait_for_home(&mut self, page: u32, epoch: u64) {
        let generation = self.generations[self.extent_of(page)];
        let home =
            |p: &&mut Program| p.home && p.epoch > epoch && p.pages.contains(&page) && p.generations[0] == generation;
        let Some(program) = self.programs.all_mut().find(home) else { return };
        let later = std::mem::replace(&mut program.epoch, epoch);
        self.epoch_mut(later).outstanding -= 1;
        self.epoch_mut(epoch).outstanding += 1;
    }
    /// A page of NAND of the log failed, so what was to be stored there is tried elsewhere.
    pub(super) fn log_failed(&mut self, program: &Program) {
        self.log_program(Program { tries: program.tries + 1, ..*program });
    }

    /// Moves what counts in the block where the least does, so that it is free. Returns whether
    /// there is any.
    fn begin_moves(&mut self) -> bool {
        let Some(from) = self.log.victim(&self.nand) else { return false };
        let (g, per_page, slots) = (self.layout.geometry, self.layout.per_page, self.log.slots());
        let block = self.log.blocks[from].block;
        self.log.moves = Moves { from: Some(from), ..Moves::default() };
        for slot in 0..slots {
            let flash_page = self.log.contents[from * slots + slot];
            let place = g.page(block, 0).0 * per_page + slot as u32;
            if flash_page == NONE || self.log.places.get(&flash_page) != Some(&place) {
                continue;
            }
            let mut moved = Program::default();
            (moved.pages[0], moved.pages[1]) = (flash_page, place);
            let Some(number) = self.programs.take(moved) else { break };
            self.counters.log_moves += 1;
            self.log.moves.reads += 1;
            let page = NandPage(place / per_page);
            let op = NandOp::Read { page, offset: place % per_page * FLASH_PAGE_BYTES, bytes: FLASH_PAGE_BYTES };
            if !self.operate(purpose::MOVE | u64::from(number), op, true) {
                self.moved(number, false);
            }
        }
        true
    }
    /// Something of the log was read, to be moved. What cannot be read stays where it is.
    pub(super) fn moved(&mut self, number: u32, well: bool) {
        let [flash_page, place, ..] = self.programs[number].pages;
        self.programs.give_back(number);
        let moves = &mut self.log.moves;
        moves.reads -= 1;
        if self.log.places.get(&flash_page) == Some(&place) {
            if well {
                let generation = self.generations[(flash_page / self.layout.extent_pages) as usize];
                moves.program.pages[moves.count] = flash_page;
                moves.program.generations[moves.count] = generation;
                moves.count += 1;
            } else if let Some(from) = moves.from {
                self.log.blocks[from].stuck = true;
            }
        }
        let last = self.log.moves.reads == 0;
        if self.log.moves.count == self.layout.per_page as usize || (last && self.log.moves.count > 0) {
            let epoch = self.epoch();
            let Moves { program, count, .. } = &mut self.log.moves;
            *count = 0;
            let mut program = std::mem::take(program);
            (program.epoch, program.moves) = (epoch, true);
            // What was written again since it was read is newer where it is.
            let from = self.log.moves.from.expect("a block is being moved");
            let block = self.log.blocks[from].block;
            for page in program.pages.iter_mut().filter(|page| **page != NONE) {
                let here = self.log.find(*page).is_some_and(|(at, _)| self.layout.geometry.block_of(at) == block);
                if !here {
                    *page = NONE;
                }
            }
            if program.pages.iter().any(|page| *page != NONE) {
                self.log.moves.programs += 1;
                self.log_program(program);
            }
        }
        self.settle_moves();
    }
    /// Ends the moves once all was read, and what was read is programmed.
    pub(super) fn settle_moves(&mut self) {
        let moves = &self.log.moves;
        if moves.from.is_some() && moves.reads == 0 && moves.count == 0 && moves.programs == 0 {
            self.end_moves();
        }
    }
    /// All of a block was moved: it is free, and what waited goes on.
    fn end_moves(&mut self) {
        self.log.moves.from = None;
        self.replace_bad_log_blocks();
        let mut stalled = std::mem::take(&mut self.log.stalled);
        for program in stalled.drain(..) {
            self.log_program(program);
            self.epoch_mut(program.epoch).outstanding -= 1;
        }
        // Most often nothing waits again, and the memory is kept.
        if self.log.stalled.is_empty() {
            self.log.stalled = stalled;
        }
        self.end_flushes();
    }
    fn replace_bad_log_blocks(&mut self) {
        for at in 0..self.log.blocks.len() {
            let LogBlock { block, live, .. } = self.log.blocks[at];
            if live == 0
                && self.nand.is_bad(block)
                && let Some(spare) = self.layout.take_spare(self.layout.geometry.plane_of(block))
            {
                self.counters.replaced_blocks += 1;
                self.log.blocks[at] = LogBlock { block: spare, live: 0, stuck: false };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fil::{FilConfig, FlashDone, FlashOp, FlashRequest};
    use crate::geometry::Parts;
    use crate::profile::Profile;

    /// Four planes with few and short blocks, whose writes end in the buffer.
    fn tiny(endurance: u32) -> Fil {
        let mut profile = Profile::built_in("mlc").unwrap();
        profile.geometry = Geometry::new(Parts {
            channels: 2,
            packages_per_channel: 1,
            dies_per_package: 1,
            planes_per_die: 2,
            blocks_per_plane: 12,
            pages_per_block: 4,
            page_bytes: 16_384,
        })
        .unwrap();
        profile.wear.factory_bad = 0.0;
        (profile.wear.endurance, profile.wear.failure) = (endurance, endurance);
        (profile.ecc.bit_errors_fresh, profile.ecc.bit_errors_worn) = (0.0, 0.0);
        let config = FilConfig {
            cached_writes: true,
            hold_ns: 1_000_000_000,
            buffer_pages: 16,
            extent_pages: 64,
            ..FilConfig::default()
        };
        Fil::new(profile, config).unwrap()
    }
    fn ask(fil: &mut Fil, op: FlashOp, flash_page: u32) {
        let now = fil.now_ns();
        fil.submit(now, FlashRequest { tag: op as u64, op, flash_page, reclaim: false }).unwrap();
    }
    /// The end of the next flush. All between is checked.
    fn flushed(fil: &mut Fil) -> FlashDone {
        let mut done = Vec::new();
        loop {
            fil.check();
            let next = fil.next_event_ns().expect("the flush ends");
            fil.advance(next, &mut done);
            if let Some(flush) = done.iter().find(|done| done.tag == FlashOp::Flush as u64) {
                return *flush;
            }
        }
    }

    #[test]
    fn a_flush_fails_when_what_was_taken_has_no_place() {
        let mut fil = tiny(10);
        let mut failed = 0;
        for round in 0..1500 {
            let nand = *fil.nand().counters();
            ask(&mut fil, FlashOp::Write, round % 8);
            ask(&mut fil, FlashOp::Flush, 0);
            let well = |fil: &Fil| fil.nand().counters().programs - fil.nand().counters().program_failures;
            match flushed(&mut fil).status {
                FlashStatus::Ok => assert!(
                    well(&fil) > nand.programs - nand.program_failures,
                    "round {round}: a flush ended well, and nothing was programmed"
                ),
                FlashStatus::WriteFailed => failed += 1,
                other => panic!("{other:?}"),
            }
        }
        // Nothing was written in between: there is nothing more to tell.
        assert!(failed > 100 && failed < 1500, "{failed} of 1500 rounds failed, with a log that wears out");
        assert_eq!(fil.counters().write_failures, failed);
        ask(&mut fil, FlashOp::Flush, 0);
        assert_eq!(flushed(&mut fil).status, FlashStatus::Ok);
    }

    #[test]
    fn what_is_moved_stays_until_it_is_programmed() {
        for endurance in [1_000_000, 100] {
            let mut fil = tiny(endurance);
            let (mut seen, mut failing) = (0, 0);
            let mut random = crate::random::Random::of(5, 0);
            let mut done = Vec::new();
            for round in 0..1000_u64 {
                // Some pages stay among others that are written again and again, so that there is
                // something to move.
                let page = if round < 48 { round } else { random.next() % 24 } as u32;
                ask(&mut fil, FlashOp::Write, page);
                ask(&mut fil, FlashOp::Flush, 0);
                while let Some(next) = fil.next_event_ns() {
                    let moving = fil.log.moves.from.map(|at| fil.log.blocks[at].block);
                    let failures = fil.nand().counters().program_failures;
                    fil.advance(next, &mut done);
                    fil.check();
                    let moves = fil.programs.all_mut().filter(|p| p.moves && p.log_page != NONE).count() as u32;
                    assert_eq!(fil.log.moves.programs, moves, "all moves under way are counted");
                    if let (true, Some(from)) = (moves > 0, moving) {
                        seen += 1;
                        failing += u32::from(fil.nand().counters().program_failures > failures);
                        assert!(fil.nand().next_page(from) > 0, "{from:?} was erased while it is moved");
                    }
                }
                // What was written is somewhere, or its failure was reported.
                if fil.counters().write_failures == 0 {
                    let written = if round < 48 { round + 1 } else { 48 } as u32;
                    (0..written).for_each(|page| assert!(fil.log.find(page).is_some(), "{page} is gone"));
                }
                done.clear();
            }
            assert!(seen > 100, "{seen} programs of moves");
            println!("{seen} programs of moves, {failing} other failures");
        }
    }

    #[test]
    fn a_flush_waits_for_what_found_no_room_and_goes_home() {
        for at_home in [false, true] {
            let mut fil = tiny(1000);
            let first = fil.extent_pages();
            ask(&mut fil, FlashOp::Write, first + 1);
            // As when it had waited for room: it was given to the log in this epoch, and there is
            // none.
            let epoch = fil.epoch();
            let home = fil.layout.home(first + 1);
            fil.held.get_mut(&home.page.0).unwrap().logged |= 1 << home.slot;
            let mut program = Program { epoch, tries: TRIES, ..Program::default() };
            (program.pages[0], program.generations[0]) = (first + 1, fil.generations[home.extent as usize]);
            fil.epoch_mut(epoch).outstanding += 1;
            fil.log.stalled.push_back(program);
            ask(&mut fil, FlashOp::Flush, 0);
            if at_home {
                // What was missing of its home came meanwhile, behind the flush.
                [0, 2, 3].into_iter().for_each(|slot| ask(&mut fil, FlashOp::Write, first + slot));
            }
            let begin = fil.now_ns();
            fil.end_moves();
            let end = flushed(&mut fil);
            assert_eq!(end.status, FlashStatus::Ok);
            let program_ns = fil.nand().profile().timing.program_ns;
            assert!(end.done_ns >= begin + program_ns, "the flush ended {} ns on", end.done_ns - begin);
            assert_eq!(fil.nand().counters().programs, 1);
        }
    }
}
