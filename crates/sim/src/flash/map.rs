//! Where logical pages are stored on NAND: a map of pages that is in DRAM as a whole, and reclaim
//! within each plane.
//!
//! ```text
//!   logical page l  -->  plane l mod planes, slot l / planes  -->  a page of that plane
//! ```
//!
//! Neighbours are on different channels, then on different dies. A write is appended to its plane's
//! open block. When a plane runs out of erased blocks, it moves the living pages of the block that
//! has fewest to another open block, and erases that block (greedy; AstriFlash section V-A:
//! "plane-blocking"). The commands are sent to the plane in one piece, so all later requests for it
//! wait behind them.
//!
//! Until a first write nothing but the order of filling is known, and no table is kept.
//!
//! Invariants ([`Map::check`]): each slot has one page, which names it. A block has as many living
//! pages as its count says. Erased blocks are beyond `RESERVE`.

use std::collections::VecDeque;

use fulgurite_nand::{Geometry, Nand, NandOp, NandPage, Plane};

use crate::random::Random;

/// Erased blocks that a plane keeps: one that is written next, and one that reclaim moves pages to.
const RESERVE: usize = 2;
/// Blocks of a plane that can hold nothing that a write must find: open ones, and erased ones.
const SPARE_BLOCKS: u32 = RESERVE as u32 + 2;
const NONE: u32 = u32::MAX;

/// What reclaim has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reclaimed {
    /// Pages that were asked to be written.
    pub written: u64,
    /// Pages that were moved.
    pub moved: u64,
    /// Blocks that were erased.
    pub erased: u64,
}

impl Reclaimed {
    /// Pages written to NAND for each that was asked for. None without any.
    pub fn amplification(&self) -> Option<f64> {
        (self.written > 0).then(|| (self.written + self.moved) as f64 / self.written as f64)
    }
    /// What a reader has to know where pages were written and nothing was reclaimed: writes are
    /// faster than they are in the steady state. `remedy` is what the system can do about it.
    pub(crate) fn warning(self, remedy: &str) -> Option<String> {
        let missing = self.written > 0 && self.erased == 0;
        missing.then(|| format!("pages were written and no block was reclaimed: {remedy}"))
    }
}

#[derive(Clone, Debug)]
struct PlaneMap {
    /// By slot: the page in the plane.
    places: Vec<u32>,
    /// By page in the plane: the slot, or none.
    slots: Vec<u32>,
    /// By block: pages that live.
    living: Vec<u32>,
    erased: VecDeque<u32>,
    /// The block that writes go to, and its next page.
    open: (u32, u32),
    /// The open block and its next page, for what reclaim moves.
    moving: (u32, u32),
}

/// The map of a device.
#[derive(Clone, Debug)]
pub struct Map {
    geometry: Geometry,
    /// Slots of each plane.
    slots: u32,
    planes: Vec<Option<PlaneMap>>,
    reclaimed: Reclaimed,
}

impl Map {
    /// A map of a device on which `filled` of one can be written. All of it holds something.
    ///
    /// # Errors
    /// When too little is spare to reclaim anything: how much can be filled.
    pub fn new(geometry: Geometry, filled: f64) -> Result<Map, f64> {
        let pages = u64::from(geometry.blocks_per_plane()) * u64::from(geometry.pages_per_block());
        let slots = (pages as f64 * filled) as u64;
        let spare = geometry.blocks_per_plane().saturating_sub(SPARE_BLOCKS);
        let most = u64::from(spare) * u64::from(geometry.pages_per_block());
        if slots == 0 || slots > most {
            return Err(most as f64 / pages as f64);
        }
        Ok(Map {
            geometry,
            slots: slots as u32,
            planes: vec![None; geometry.planes() as usize],
            reclaimed: Reclaimed::default(),
        })
    }
    /// How many logical pages there are.
    pub fn pages(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.geometry.planes())
    }
    /// What reclaim has done.
    pub fn reclaimed(&self) -> Reclaimed {
        self.reclaimed
    }
    /// Forgets what reclaim has done.
    pub fn measure_from_here(&mut self) {
        self.reclaimed = Reclaimed::default();
    }

    fn at(&self, logical: u64) -> (u32, u32) {
        let planes = u64::from(self.geometry.planes());
        ((logical % planes) as u32, (logical / planes) as u32)
    }
    fn nand_page(geometry: Geometry, plane: u32, page: u32) -> NandPage {
        let pages = geometry.pages_per_block();
        geometry.page(geometry.block(Plane(plane), page / pages), page % pages)
    }
    /// Where a logical page is stored.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn place(&self, logical: u64) -> NandPage {
        assert!(logical < self.pages(), "logical page {logical} of {}", self.pages());
        let (plane, slot) = self.at(logical);
        let page = self.planes[plane as usize].as_ref().map_or(slot, |map| map.places[slot as usize]);
        Map::nand_page(self.geometry, plane, page)
    }
    /// Gives a logical page a new place. `commands` gets what reclaim has to do first, in order,
    /// and then the program.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn write(&mut self, logical: u64, commands: &mut Vec<NandOp>) {
        assert!(logical < self.pages(), "logical page {logical} of {}", self.pages());
        let (plane, slot) = self.at(logical);
        let (geometry, slots) = (self.geometry, self.slots);
        let map = self.planes[plane as usize].get_or_insert_with(|| PlaneMap::filled(geometry, slots));
        map.forget(geometry, slot);
        if map.open.1 == geometry.pages_per_block() {
            map.open = (map.erased.pop_front().expect("reclaim keeps some erased"), 0);
            while map.erased.len() < RESERVE {
                map.reclaim(geometry, plane, commands, &mut self.reclaimed);
            }
        }
        let page = map.put(geometry, slot, false);
        self.reclaimed.written += 1;
        commands.push(NandOp::Program { page: Map::nand_page(geometry, plane, page) });
    }
    /// Overwrites pages at random, without taking time, until each has been written `times` over on
    /// average. Where a device has been used for long, reclaim finds what it finds then.
    pub fn age(&mut self, times: u64, random: &mut Random) {
        let mut commands = Vec::new();
        for _ in 0..times * self.pages() {
            commands.clear();
            self.write(random.below(self.pages()), &mut commands);
        }
        self.measure_from_here();
    }
    /// Tells the device what is programmed.
    pub fn settle(&self, nand: &mut Nand) {
        let pages = self.geometry.pages_per_block();
        for (plane, map) in self.planes.iter().enumerate() {
            for block in 0..self.geometry.blocks_per_plane() {
                let programmed = match map {
                    None => self.slots.saturating_sub(block * pages).min(pages),
                    Some(map) => map.programmed(block, pages),
                };
                nand.assume_programmed(self.geometry.block(Plane(plane as u32), block), programmed);
            }
        }
    }
    /// Asserts the invariants. Takes time in proportion to the device.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        for map in self.planes.iter().flatten() {
            for (slot, page) in map.places.iter().enumerate() {
                assert_eq!(map.slots[*page as usize] as usize, slot, "a page does not name its slot");
            }
            let pages = self.geometry.pages_per_block() as usize;
            for (block, living) in map.living.iter().enumerate() {
                let of = &map.slots[block * pages..(block + 1) * pages];
                let found = of.iter().filter(|slot| **slot != NONE).count();
                assert_eq!(found, *living as usize, "block {block} has another count");
                assert!(found == 0 || !map.erased.contains(&(block as u32)), "an erased block has living pages");
            }
            assert!(map.erased.len() >= RESERVE - 1, "too few erased blocks");
        }
    }
}

impl PlaneMap {
    /// Filled from the first page on.
    fn filled(geometry: Geometry, slots: u32) -> PlaneMap {
        let (pages, blocks) = (geometry.pages_per_block(), geometry.blocks_per_plane());
        let mut of = vec![NONE; (pages * blocks) as usize];
        (0..slots).for_each(|slot| of[slot as usize] = slot);
        let first = slots.div_ceil(pages);
        let mut erased: VecDeque<u32> = (first..blocks).collect();
        let open = if slots.is_multiple_of(pages) {
            (erased.pop_front().expect("some are spare"), 0)
        } else {
            (slots / pages, slots % pages)
        };
        let moving = (erased.pop_front().expect("some are spare"), 0);
        let living = (0..blocks).map(|block| slots.saturating_sub(block * pages).min(pages)).collect();
        PlaneMap { places: (0..slots).collect(), slots: of, living, erased, open, moving }
    }
    fn programmed(&self, block: u32, pages: u32) -> u32 {
        match block {
            _ if block == self.open.0 => self.open.1,
            _ if block == self.moving.0 => self.moving.1,
            _ if self.erased.contains(&block) => 0,
            _ => pages,
        }
    }
    fn forget(&mut self, geometry: Geometry, slot: u32) {
        let page = self.places[slot as usize];
        self.slots[page as usize] = NONE;
        self.living[(page / geometry.pages_per_block()) as usize] -= 1;
    }
    /// The next page of an open block, which is now a slot's.
    fn put(&mut self, geometry: Geometry, slot: u32, moves: bool) -> u32 {
        let open = if moves { &mut self.moving } else { &mut self.open };
        let page = open.0 * geometry.pages_per_block() + open.1;
        open.1 += 1;
        self.living[open.0 as usize] += 1;
        self.slots[page as usize] = slot;
        self.places[slot as usize] = page;
        page
    }
    /// Moves the living pages of one block, and erases it.
    fn reclaim(&mut self, geometry: Geometry, plane: u32, commands: &mut Vec<NandOp>, done: &mut Reclaimed) {
        let pages = geometry.pages_per_block();
        let closed = |block: &u32| *block != self.open.0 && *block != self.moving.0 && !self.erased.contains(block);
        let victim = (0..geometry.blocks_per_plane())
            .filter(closed)
            .min_by_key(|block| self.living[*block as usize])
            .expect("a device has more blocks than are open or erased");
        for page in victim * pages..(victim + 1) * pages {
            let slot = self.slots[page as usize];
            if slot == NONE {
                continue;
            }
            self.forget(geometry, slot);
            if self.moving.1 == pages {
                self.moving = (self.erased.pop_front().expect("reclaim keeps some erased"), 0);
            }
            let to = self.put(geometry, slot, true);
            let bytes = geometry.page_bytes();
            commands.push(NandOp::Read { page: Map::nand_page(geometry, plane, page), offset: 0, bytes });
            commands.push(NandOp::Program { page: Map::nand_page(geometry, plane, to) });
            done.moved += 1;
        }
        commands.push(NandOp::Erase { block: geometry.block(Plane(plane), victim) });
        self.erased.push_back(victim);
        done.erased += 1;
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_nand::Parts;

    use super::*;

    fn geometry() -> Geometry {
        let parts = Parts {
            channels: 2,
            packages_per_channel: 1,
            dies_per_package: 1,
            planes_per_die: 1,
            blocks_per_plane: 20,
            pages_per_block: 8,
            page_bytes: 4096,
        };
        Geometry::new(parts).unwrap()
    }

    #[test]
    fn what_is_written_is_where_the_map_says() {
        let (geometry, mut random) = (geometry(), Random::new(1, 0));
        let mut map = Map::new(geometry, 0.7).unwrap();
        let mut holds = std::collections::BTreeMap::new();
        (0..map.pages()).for_each(|logical| {
            holds.insert(map.place(logical), logical);
        });
        let mut commands = Vec::new();
        for number in 0..5000 {
            let logical = random.below(map.pages());
            commands.clear();
            map.write(logical, &mut commands);
            let mut moved = None;
            for command in &commands {
                match command {
                    NandOp::Read { page, .. } => moved = holds.get(page).copied(),
                    NandOp::Program { page } => {
                        holds.insert(*page, moved.take().unwrap_or(logical));
                    }
                    NandOp::Erase { block } => {
                        holds.retain(|page, _| geometry.block_of(*page) != *block);
                    }
                }
            }
            assert_eq!(holds.get(&map.place(logical)), Some(&logical), "after {number}");
            if number % 500 == 0 {
                map.check();
                for logical in 0..map.pages() {
                    assert_eq!(holds.get(&map.place(logical)), Some(&logical));
                }
            }
        }
        let reclaimed = map.reclaimed();
        assert!(reclaimed.moved > 100 && reclaimed.amplification().unwrap() > 1.1, "{reclaimed:?}");
    }
    #[test]
    fn a_full_device_is_refused() {
        assert_eq!(Map::new(geometry(), 1.0).unwrap_err(), 0.8);
        assert!(Map::new(geometry(), 0.8).is_ok() && Map::new(geometry(), 0.0).is_err());
    }
    #[test]
    fn more_spare_blocks_mean_fewer_moves() {
        let amplification = |filled| {
            let mut map = Map::new(geometry(), filled).unwrap();
            let mut random = Random::new(2, 0);
            map.age(4, &mut random);
            let mut commands = Vec::new();
            (0..4000).for_each(|_| map.write(random.below(map.pages()), &mut commands));
            map.reclaimed().amplification().unwrap()
        };
        let (full, half) = (amplification(0.8), amplification(0.5));
        assert!(full > 1.5 && half < 1.3, "{full} {half}");
    }
}
