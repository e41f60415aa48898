//! The flash behind a cache: pages read and written, by `nand` as it is.
//!
//! Only time matters here, so that a device may have fewer blocks than the space has pages: a page
//! is on the plane of its number, at a place modulo that plane's.

use fulgurite_nand::{Command, Done, Nand, NandOp, Profile};

use crate::flash::{Map, Reclaimed};
use crate::time::Time;

/// Marks what nobody waits for.
const UNWAITED: u64 = u64::MAX;

/// Flash pages.
#[derive(Debug)]
pub struct FlashPages {
    nand: Nand,
    map: Map,
    commands: Vec<NandOp>,
    done: Vec<Done>,
}

impl FlashPages {
    /// A device of a profile, for at most a number of requests at a time. `filled` of its pages are
    /// used.
    ///
    /// # Errors
    /// When too little is spare: how much can be filled.
    pub fn new(profile: Profile, filled: f64, depth: usize, seed: u64) -> Result<FlashPages, f64> {
        let map = Map::new(profile.geometry, filled)?;
        let mut nand = Nand::new(profile, depth, seed);
        map.settle(&mut nand);
        Ok(FlashPages { nand, map, commands: Vec::new(), done: Vec::new() })
    }
    fn submit(&mut self, now: Time, op: NandOp, tag: u64, reclaim: bool) {
        let taken = self.nand.submit(now.0.div_ceil(1000), Command { tag, op, reclaim });
        taken.unwrap_or_else(|error| panic!("the map or the size of the table is wrong: {error}"));
    }
    /// Reads a page. `tag` comes back.
    pub fn read(&mut self, now: Time, page: u32, tag: u64) {
        let bytes = self.nand.geometry().page_bytes();
        let place = self.map.place(u64::from(page) % self.map.pages());
        self.submit(now, NandOp::Read { page: place, offset: 0, bytes }, tag, false);
    }
    /// Writes a page. Nobody waits for it.
    pub fn write(&mut self, now: Time, page: u32) {
        self.write_and_tell(now, page, UNWAITED);
    }
    /// Writes a page. `tag` comes back when it is written.
    pub fn write_and_tell(&mut self, now: Time, page: u32, tag: u64) {
        let mut commands = std::mem::take(&mut self.commands);
        commands.clear();
        self.map.write(u64::from(page) % self.map.pages(), &mut commands);
        let own = commands.len() - 1;
        for (turn, op) in commands.iter().enumerate() {
            self.submit(now, *op, if turn == own { tag } else { UNWAITED }, turn < own);
        }
        self.commands = commands;
    }
    /// When something may be read.
    pub fn next_at(&self) -> Option<Time> {
        self.nand.next_event_ns().map(Time::ns)
    }
    /// Lets the device work until before a time, or until something was read. Appends the tags of
    /// what was, with its time.
    pub fn advance(&mut self, before: Option<Time>, read: &mut Vec<(u64, Time)>) {
        let limit = before.map_or(u64::MAX, |at| at.0.div_ceil(1000).saturating_sub(1));
        self.done.clear();
        self.nand.advance_to_next(limit, &mut self.done);
        let waited = self.done.iter().filter(|done| done.tag != UNWAITED);
        read.extend(waited.map(|done| (done.tag, Time::ns(done.done_ns))));
    }
    /// Joules that the device has taken so far.
    pub fn energy_j(&self) -> f64 {
        self.nand.counters().energy_pj() as f64 / 1e12
    }
    /// Pages that can be used.
    pub fn pages(&self) -> u64 {
        self.map.pages()
    }
    /// What reclaim has done.
    pub fn reclaimed(&self) -> Reclaimed {
        self.map.reclaimed()
    }
}
