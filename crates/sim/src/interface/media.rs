//! The device's NAND, behind either interface: where the data of commands is, and what they ask of
//! it.

use fulgurite_nand::{Command, Done, Nand, NandOp};

use super::system::InterfaceSystem;
use crate::flash::Map;
use crate::planted::Planted;
use crate::random::Random;
use crate::report::RunError;
use crate::time::Time;

/// Marks NAND commands of reclaim.
const RECLAIM: u64 = u64::MAX;

/// NAND, its map, and the place of the next command.
pub struct Media {
    nand: Nand,
    map: Map,
    ops: Vec<NandOp>,
    done: Vec<Done>,
    page_bytes: u64,
    /// The byte that is asked for next: files are read and written from their beginning.
    cursor: u64,
    /// Of commands that are anywhere.
    random: Option<Random>,
    swapped: bool,
    began: Option<Time>,
    /// Picojoules until the measurement began.
    before_pj: u64,
    /// Picojoules of a joule.
    unit: f64,
}

impl Media {
    /// The media of a system, with data everywhere.
    pub fn new(system: &InterfaceSystem, seed: u64) -> Result<Media, RunError> {
        let map = Map::new(system.nand.geometry, system.filled).map_err(|_| RunError::Nothing)?;
        let page_bytes = u64::from(system.nand.geometry.page_bytes());
        let pages = system.request.div_ceil(page_bytes) + 2;
        let reclaim = if system.writes { 1 << 20 } else { 0 };
        // Cached writes leave more to the NAND than there are threads: what the buffer holds.
        let cached = system.buffer_sectors() as usize;
        let mut nand = Nand::new(system.nand, (u64::from(system.threads) * pages) as usize + cached + reclaim, 0);
        map.settle(&mut nand);
        Ok(Media {
            nand,
            map,
            ops: Vec::new(),
            done: Vec::new(),
            page_bytes,
            cursor: 0,
            random: system.random.then(|| Random::new(seed, 0)),
            swapped: system.planted == Planted::SwappedOperations,
            began: None,
            before_pj: 0,
            unit: if system.planted == Planted::WrongUnit { 1e9 } else { 1e12 },
        })
    }
    /// What a reader has to know.
    pub fn warning(&self) -> Option<String> {
        self.map.reclaimed().warning("run longer")
    }
    /// The first byte of the next command, which has `bytes` bytes.
    pub fn begin(&mut self, bytes: u64) -> u64 {
        let capacity = self.map.pages() * self.page_bytes;
        if let Some(random) = &mut self.random {
            self.cursor = random.below((capacity / bytes).max(1)) * bytes;
        }
        if self.cursor + bytes > capacity {
            self.cursor = 0;
        }
        let begin = self.cursor;
        self.cursor += bytes;
        begin
    }
    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }
    /// The end of the page of a byte.
    pub fn page_end(&self, byte: u64) -> u64 {
        (byte / self.page_bytes + 1) * self.page_bytes
    }
    /// The bytes of each page of a range: the first one, and the one after the last.
    pub fn pages(&self, begin: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (page, end) = (self.page_bytes, begin + bytes);
        (begin / page..=(end - 1) / page).map(move |at| (begin.max(at * page), end.min((at + 1) * page)))
    }
    /// Asks the NAND for bytes of one page. The answer has the tag.
    pub fn ask(&mut self, now: Time, writes: bool, (from, to): (u64, u64), tag: u64) {
        self.began.get_or_insert(now);
        let page = from / self.page_bytes;
        self.ops.clear();
        if writes != self.swapped {
            self.map.write(page, &mut self.ops);
        } else {
            let (offset, bytes) = ((from % self.page_bytes) as u32, (to - from) as u32);
            self.ops.push(NandOp::Read { page: self.map.place(page), offset, bytes });
        }
        let own = self.ops.len() - 1;
        for (turn, op) in self.ops.iter().enumerate() {
            let tag = if turn == own { tag } else { RECLAIM };
            let command = Command { tag, op: *op, reclaim: turn < own };
            let taken = self.nand.submit(now.0.div_ceil(1000), command);
            taken.unwrap_or_else(|error| panic!("the map or the size of the table is wrong: {error}"));
        }
    }
    /// Whether the NAND has something to do before `next`.
    pub fn is_first(&self, next: Option<Time>) -> bool {
        let device = self.nand.next_event_ns();
        device.is_some_and(|device| next.is_none_or(|at| device * 1000 < at.0))
    }
    /// Goes on to the NAND's next answers before `next`: their tags and times.
    pub fn advance(&mut self, next: Option<Time>, answers: &mut Vec<(u64, Time)>) {
        answers.clear();
        self.done.clear();
        self.nand.advance_to_next(next.map_or(u64::MAX, |at| at.0.div_ceil(1000) - 1), &mut self.done);
        let own = self.done.iter().filter(|done| done.tag != RECLAIM);
        answers.extend(own.map(|done| (done.tag, Time::ns(done.done_ns))));
    }
    /// The measurement begins.
    pub fn measure(&mut self) {
        self.before_pj = self.nand.counters().energy_pj();
    }
    /// Joules that the NAND has taken in the measurement.
    pub fn energy_j(&self) -> f64 {
        (self.nand.counters().energy_pj() - self.before_pj) as f64 / self.unit
    }
    /// When the NAND was first asked for something.
    pub fn began(&self) -> Option<Time> {
        self.began
    }
}
