//! The caches on the chip, the mesh between their tiles, and the coherence of the L1s.
//!
//! ```text
//!   core --> L1 --> home tile: directory --> LLC --> a controller at a corner
//!                        |
//!                        +--> the owner forwards the block to the core
//!                        +--> holders drop the block, and acknowledge that to the core
//! ```
//!
//! A block's home is the tile that its address names. An L1 that does not have the block asks
//! there, and so does a core that writes to a block which others may have, too. The directory
//! answers in `directory` cycles, and what follows depends on the block's state (MESI):
//!
//! | state | a load | a store |
//! |---|---|---|
//! | in no other L1 | LLC, or DRAM. The core has it for itself | as a load |
//! | alone in another one | it forwards it, and both share it | it forwards it and drops it |
//! | in several, shared | LLC, or DRAM | also waits for the furthest acknowledgement |
//!
//! An owner is asked whether it has written or not, as its home cannot know. What it has written
//! goes to the LLC when it is shared. A core that shares a block has no data to wait for when it
//! writes, only acknowledgements. A request that concerns others waits at the block's home until
//! the holder that was last has the block. The LLC has what DRAM sends when the core has it, and
//! what an owner has written when that has come back.
//!
//! An L1 makes place for a block when the home or DRAM answers. An access of the same core to a
//! block that is still on its way hits there, and ends when the block has come (a secondary miss).
//!
//! The LLC is not inclusive: what it drops stays in L1s. What an L1 drops takes links, and no time
//! of a core. Its home is notified without time. Messages wait for links ([`Mesh`]).
//!
//! Other cores and the LLC act at the time when the home has a request, in the order of those
//! times. What an L1 finds for itself is not put in order with other cores until its core next asks
//! a home.

use super::directory::{Directory, EntryIndex};
use super::mesh::Mesh;
use super::sram::Sram;
use super::system::CoreParts;
use super::work::BLOCK;
use crate::planted::Planted;
use crate::stages::{Split, Stages};
use crate::time::Time;

const STAGES: [&str; 5] = ["way to its home", "directory", "until its holder has it", "holders", "DRAM"];

/// Bytes of a message without data: an address, and what is asked or answered.
const MESSAGE: u64 = 8;
/// Bytes of one with a block.
const DATA: u64 = MESSAGE + BLOCK;

/// What an L1 says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L1LookUp {
    /// The core has the block then.
    Has(Time),
    /// The home of the block knows its holders then. [`Chip::asks`] is due.
    Home(Time),
}

/// What the answers of a block's home and of other cores come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The core has the block then.
    Has(Time),
    /// The LLC does not have it. [`Chip::comes`] is due when DRAM is asked.
    Leaves {
        /// It says so then.
        at: Time,
        /// The last acknowledgement is at the core.
        acknowledged: Time,
    },
}

/// What other cores' acts come to.
#[derive(Clone, Copy, Debug)]
struct Acted {
    /// The holder that was last has the block.
    begins: Time,
    /// The last answer is at the core.
    answered: Time,
    /// The core has the block. None: the LLC does not have it.
    has: Option<Time>,
}

/// An access that has left the chip.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// When the home had finished its lookup.
    home: Time,
    /// When other cores began to act, and when the last one's answer is at the core.
    acted: Option<(Time, Time)>,
}

/// How often other cores had to act.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coherence {
    /// Blocks that their owner sent to another core.
    pub forwards: u64,
    /// Copies that a core dropped because another one writes.
    pub invalidations: u64,
}

/// The caches of all cores.
#[derive(Debug)]
pub struct Chip {
    mesh: Mesh,
    l1_time: Time,
    lookup: Time,
    llc_time: Time,
    /// Each block with the time at which its core has it.
    l1s: Vec<Sram<Time>>,
    /// Each block with the time at which its tile has it.
    llc: Sram<Time>,
    directory: Directory,
    counted: Coherence,
    stages: Stages<5>,
    /// What the path to the home took of each core's last access that went there.
    went: Vec<Time>,
    /// What each core waits for, if it has left the chip.
    left: Vec<Option<Left>>,
    planted: Planted,
}

impl Chip {
    /// Empty caches of `cores` cores. With `explain`, percentiles of [`Chip::stages`] are split.
    pub fn new(parts: &CoreParts, cores: u32, explain: bool, planted: Planted) -> Chip {
        let blocks = parts.l1.0 / BLOCK;
        let l1: Sram<Time> = Sram::new(blocks, parts.l1.1);
        Chip {
            mesh: Mesh::new(parts, cores, planted),
            l1_time: parts.cycle * parts.l1.2,
            lookup: parts.cycle * parts.directory,
            llc_time: parts.cycle * parts.llc.2,
            llc: Sram::new(parts.llc.0 * u64::from(cores) / BLOCK, parts.llc.1),
            directory: Directory::new(cores, l1.entries() * u64::from(cores)),
            l1s: vec![l1; cores as usize],
            counted: Coherence::default(),
            stages: Stages::new(STAGES, explain),
            went: vec![Time::ZERO; cores as usize],
            left: vec![None; cores as usize],
            planted,
        }
    }
    /// The tile of a block's directory and LLC.
    pub fn home(&self, block: u64) -> u32 {
        (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % self.mesh.tiles().0
    }
    /// The home of a block asks a controller at a tile, at `at`. Returns when it is there.
    pub fn goes_to_memory(&mut self, block: u64, corner: u32, at: Time) -> Time {
        self.mesh.sends(self.home(block), corner, MESSAGE, at)
    }
    /// A controller at a tile sends a block to a core at `at`. Returns when it is there.
    pub fn comes_from_memory(&mut self, corner: u32, core: u32, at: Time) -> Time {
        self.mesh.sends(corner, core, DATA, at)
    }
    /// A controller at a tile sends a core the signal of a miss at `at`. Returns when it is there.
    pub fn signals(&mut self, corner: u32, core: u32, at: Time) -> Time {
        self.mesh.sends(corner, core, MESSAGE, at)
    }
    /// The time from one tile to another of a message that waits for no link.
    pub fn path_time(&self, a: u32, b: u32) -> Time {
        self.mesh.path_time(a, b)
    }
    /// The share of their time that links are busy, of this time since the counts were cleared.
    /// What L1s drop counts as if all of it were written. None: there is one tile.
    pub fn links_busy(&self, span: Time) -> Option<f64> {
        self.mesh.busy(span)
    }
    /// What a message waits for links on average, in nanoseconds. None: there was no message.
    pub fn links_wait_ns(&self) -> Option<f64> {
        self.mesh.wait_ns()
    }
    /// The tile of a controller: they are at the corners.
    pub fn corner(&self, controller: u32) -> u32 {
        let (tiles, row) = self.mesh.tiles();
        let last = tiles.saturating_sub(1);
        match controller % 4 {
            0 => 0,
            1 => (row - 1).min(last),
            2 => last - last % row,
            _ => last,
        }
    }

    /// A core's access begins at `at`.
    pub fn look_up(&mut self, core: u32, block: u64, writes: bool, at: Time) -> L1LookUp {
        let at = at + self.l1_time;
        if let Some(ready) = self.l1s[core as usize].find(block).copied()
            && (!writes || self.directory.write(core, block))
        {
            return L1LookUp::Has(at.max(ready));
        }
        let there = self.mesh.sends(core, self.home(block), MESSAGE, at);
        self.went[core as usize] = there - at;
        L1LookUp::Home(there + self.lookup)
    }
    /// The home of a block has finished its lookup at `at`. None: other cores have to act, and
    /// [`Chip::asks`] asks them.
    pub fn answers(&mut self, core: u32, block: u64, writes: bool, at: Time) -> Option<Asked> {
        let entry = self.directory.find(block);
        match self.concerned(entry, core, writes) {
            Some(_) => None,
            None => Some(self.serves(core, block, entry, writes, at)),
        }
    }
    /// The place of a block, if other cores have to act before a core may have it.
    fn concerned(&self, entry: Option<EntryIndex>, core: u32, writes: bool) -> Option<EntryIndex> {
        entry.filter(|entry| self.directory.concerns_others(*entry, core, writes))
    }
    /// The home of a block has finished its lookup at `at`, and asks no other core.
    fn serves(&mut self, core: u32, block: u64, entry: Option<EntryIndex>, writes: bool, at: Time) -> Asked {
        let home = self.home(block);
        let has = if entry.is_some_and(|entry| self.directory.holds(entry, core)) {
            self.mesh.sends(home, core, MESSAGE, at)
        } else if let Some(there) = self.llc.find(block).copied() {
            self.mesh.sends(home, core, DATA, there.max(at + self.llc_time))
        } else {
            self.left[core as usize] = Some(Left { home: at, acted: None });
            return Asked::Leaves { at: at + self.llc_time, acknowledged: Time::ZERO };
        };
        Asked::Has(self.fill(core, block, entry, writes, has))
    }
    /// A core has a block from `has` on. Returns when it has it: a block that it shares may be on
    /// its way to it already.
    fn fill(&mut self, core: u32, block: u64, entry: Option<EntryIndex>, writes: bool, has: Time) -> Time {
        let l1 = &mut self.l1s[core as usize];
        let has = match l1.find(block) {
            Some(comes) => {
                *comes = (*comes).max(has);
                *comes
            }
            None => {
                if let Some(victim) = l1.put(block, has) {
                    self.mesh.sends(core, self.home(victim), DATA, has);
                    self.directory.drop(core, victim);
                }
                has
            }
        };
        self.directory.add(entry, core, block, writes, has);
        has
    }

    /// The home of a block has finished its lookup at `now`. It asks the cores that have it, or the
    /// LLC.
    pub fn asks(&mut self, core: u32, block: u64, writes: bool, now: Time) -> Asked {
        let entry = self.directory.find(block);
        let Some(concerned) = self.concerned(entry, core, writes) else {
            return self.serves(core, block, entry, writes, now);
        };
        let Acted { begins, answered, has } = self.others_act(core, block, concerned, writes, now);
        match has {
            Some(has) => {
                let has = self.fill(core, block, entry, writes, has);
                self.record(core, has, [begins - now, has - begins, Time::ZERO]);
                Asked::Has(has)
            }
            None => {
                self.directory.ends(concerned);
                self.left[core as usize] = Some(Left { home: now, acted: Some((begins, answered)) });
                Asked::Leaves { at: begins + self.llc_time, acknowledged: answered }
            }
        }
    }
    fn record(&mut self, core: u32, end: Time, [wait, holders, dram]: [Time; 3]) {
        self.stages.record(end, [self.went[core as usize], self.lookup, wait, holders, dram]);
    }
    /// Other cores have to act, and are asked at `now`. Where the core gets no block by that, the
    /// entry may have no holder.
    fn others_act(&mut self, core: u32, block: u64, entry: EntryIndex, writes: bool, now: Time) -> Acted {
        let home = self.home(block);
        let begins = now.max(self.directory.ready(entry));
        let owner = self.directory.owner(entry, core);
        let Chip { mesh, directory, l1_time, planted, .. } = &mut *self;
        // When a holder has been notified, and has finished its lookup.
        let notified = |mesh: &mut Mesh, other: u32| mesh.sends(home, other, MESSAGE, begins) + *l1_time;
        // What an owner has written is sent home, too.
        let (answered, looked) = match owner {
            Some(owner) => {
                let looked = notified(mesh, owner);
                (mesh.sends(owner, core, DATA, looked), looked)
            }
            None => {
                let acknowledged = |other| {
                    let looked = notified(mesh, other);
                    mesh.sends(other, core, MESSAGE, looked)
                };
                let last = directory.others(entry, core).map(acknowledged).max().unwrap_or(begins);
                (if *planted == Planted::FreeAcknowledgement { begins } else { last }, begins)
            }
        };
        self.counted.forwards += u64::from(owner.is_some());
        if writes {
            self.invalidate(core, block, entry);
        } else if self.directory.share(entry)
            && let Some(owner) = owner
        {
            let written = self.mesh.sends(owner, home, DATA, looked);
            match self.llc.find(block) {
                Some(there) => *there = (*there).max(written),
                None => _ = self.llc.put(block, written),
            }
        }
        let there = self.directory.holds(entry, core);
        let has = match owner {
            Some(_) => Some(answered),
            None if there => Some(answered.max(self.mesh.sends(home, core, MESSAGE, begins))),
            None => self.llc.find(block).copied().map(|comes| {
                let data = comes.max(begins + self.llc_time);
                answered.max(self.mesh.sends(home, core, DATA, data))
            }),
        };
        Acted { begins, answered, has }
    }
    /// All other cores drop a block.
    fn invalidate(&mut self, core: u32, block: u64, entry: EntryIndex) {
        let Chip { directory, l1s, counted, planted, .. } = self;
        directory.take_from_others(entry, core, |other| {
            counted.invalidations += 1;
            if *planted != Planted::ForgottenInvalidation {
                l1s[other as usize].remove(block);
            }
        });
    }
    /// DRAM was asked for a block at `now`, and the core has it at `at`. Returns when the core may
    /// use it: another one may have been faster.
    pub fn comes(&mut self, core: u32, block: u64, writes: bool, now: Time, at: Time) -> Time {
        let left = self.left[core as usize].take();
        if self.llc.find(block).is_none() {
            self.llc.put(block, at);
        }
        let entry = self.directory.find(block);
        let again = self.concerned(entry, core, writes).map(|concerned| {
            // They give it, or the LLC does.
            let Acted { begins, answered, has } = self.others_act(core, block, concerned, writes, now);
            (begins, has.unwrap_or(answered))
        });
        let has = self.fill(core, block, entry, writes, again.map_or(at, |(_, then)| then.max(at)));
        let Some(Left { home, acted }) = left else { return has };
        if acted.is_some() || again.is_some() {
            // What others did at first counts until DRAM was asked, if they have to act again.
            let first = acted.map(|(begins, answered)| match again {
                Some(_) => (begins - home, answered.min(now).since(begins)),
                None => (begins - home, answered - begins),
            });
            let then = again.map(|(begins, then)| (begins - now, then - begins));
            let acts = || first.into_iter().chain(then);
            let (wait, holders) = (acts().map(|act| act.0).sum::<Time>(), acts().map(|act| act.1).sum::<Time>());
            self.record(core, has, [wait, holders, has - home - wait - holders]);
        }
        has
    }
    /// The page of an access that has left the chip is not in DRAM. Its time counts as a miss.
    pub fn lacks(&mut self, core: u32) {
        self.left[core as usize] = None;
    }

    /// How often other cores had to act since the counts were cleared.
    pub fn counted(&self) -> Coherence {
        self.counted
    }
    /// What the time is spent on of accesses for which other cores had to act, after their own L1.
    /// Accesses whose page is not in DRAM are not among them.
    pub fn stages(&self) -> Option<Split> {
        self.stages.split()
    }
    /// Forgets counts and stages.
    pub fn clear(&mut self) {
        self.counted = Coherence::default();
        self.mesh.clear();
        self.stages.clear();
    }
    /// Checks that the directory knows what the L1s have.
    ///
    /// # Panics
    /// When it does not.
    pub fn check(&self) {
        self.directory.check(&self.l1s);
        self.mesh.check();
    }
}
