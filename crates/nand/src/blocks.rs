//! Erase blocks: what is programmed in each, how often it was erased, when it wears out, and how many bits are read wrong.
//!
//! A block's limit is drawn when the device is made, from a logarithmic normal distribution about the profile's endurance (NVMM: "Pages
//! within a flash device obey a distribution curve with respect to their write lifetimes"; here by block, which is what is erased and
//! retired). At its limit a block fails: half of them when they are erased, the others at a program. A failed block fails for ever.
//!
//! The share of wrong bits grows with each erase from the fresh block's to the worn one's, evenly in its logarithm. Retention, read
//! disturbance and differences between pages are not modelled.
//!
//! Invariant: pages of a block are programmed from the first to the last without leaving one out.

use crate::geometry::{Block, Geometry, NandPage};
use crate::profile::{Ecc, Profile, Wear};
use crate::random::Random;

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Health {
    Good,
    FactoryBad,
    GrownBad,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// The page that is programmed next: as of the requests that were taken, not of those that have ended.
    next: u32,
    erases: u32,
    limit: u32,
    health: Health,
    /// Wrong bits that are expected in a codeword.
    wrong_bits: f32,
}

/// All blocks of a device.
#[derive(Debug)]
pub(crate) struct Blocks {
    geometry: Geometry,
    ecc: Ecc,
    states: Vec<State>,
    errors: Random,
}

/// How reading some codewords went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Correction {
    Corrected(u32),
    Uncorrectable,
}

impl Blocks {
    pub fn new(profile: &Profile, seed: u64) -> Blocks {
        let fresh = wrong_bits(&profile.ecc, 0, 1);
        let states = (0..profile.geometry.blocks()).map(|block| {
            let mut random = Random::of(seed, u64::from(block));
            let health = if random.unit() < profile.wear.factory_bad { Health::FactoryBad } else { Health::Good };
            State { next: 0, erases: 0, limit: limit(&profile.wear, &mut random), health, wrong_bits: fresh }
        });
        Blocks {
            geometry: profile.geometry,
            ecc: profile.ecc,
            states: states.collect(),
            errors: Random::of(seed, u64::MAX),
        }
    }
    pub fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>()
    }
    fn of(&self, block: Block) -> &State {
        &self.states[block.0 as usize]
    }
    pub fn next(&self, block: Block) -> u32 {
        self.of(block).next
    }
    pub fn erases(&self, block: Block) -> u32 {
        self.of(block).erases
    }
    pub fn limit(&self, block: Block) -> u32 {
        self.of(block).limit
    }
    pub fn is_bad(&self, block: Block) -> bool {
        self.of(block).health != Health::Good
    }
    pub fn is_factory_bad(&self, block: Block) -> bool {
        self.of(block).health == Health::FactoryBad
    }
    /// A request to erase it was taken: what is asked for afterwards finds it empty.
    pub fn will_erase(&mut self, block: Block) {
        self.states[block.0 as usize].next = 0;
    }
    /// A request to program its next page was taken.
    pub fn will_program(&mut self, block: Block) {
        self.states[block.0 as usize].next += 1;
    }
    /// So many pages of it were programmed before this model was made.
    pub fn assume(&mut self, block: Block, pages: u32) {
        self.states[block.0 as usize].next = pages;
    }
    /// It was erased so often before this model was made, and has failed or not.
    pub fn assume_worn(&mut self, block: Block, erases: u32, failed: bool) {
        let ecc = self.ecc;
        let state = &mut self.states[block.0 as usize];
        state.erases = erases;
        // Beyond its limit it is worn, and not more.
        state.wrong_bits = wrong_bits(&ecc, erases.min(state.limit), state.limit);
        if failed && state.health == Health::Good {
            state.health = Health::GrownBad;
        }
    }
    /// It is erased. Returns whether that succeeded.
    pub fn erase(&mut self, block: Block) -> bool {
        let ecc = self.ecc;
        let state = &mut self.states[block.0 as usize];
        if state.health != Health::Good {
            return false;
        }
        state.erases += 1;
        state.wrong_bits = wrong_bits(&ecc, state.erases, state.limit);
        if state.erases >= state.limit && fails_when_erased(state.limit) {
            state.health = Health::GrownBad;
        }
        state.health == Health::Good
    }
    /// A page of it is programmed. Returns whether that succeeded.
    pub fn program(&mut self, page: NandPage) -> bool {
        let block = self.geometry.block_of(page);
        let state = &mut self.states[block.0 as usize];
        if state.health == Health::Good && state.erases >= state.limit {
            state.health = Health::GrownBad;
        }
        state.health == Health::Good
    }
    /// So many bytes of it are read.
    pub fn read(&mut self, block: Block, offset: u32, bytes: u32) -> Correction {
        let expected = f64::from(self.of(block).wrong_bits);
        if expected == 0.0 {
            return Correction::Corrected(0);
        }
        let size = self.ecc.codeword_bytes;
        let codewords = (offset + bytes).div_ceil(size) - offset / size;
        let none = (-expected).exp();
        let mut corrected = 0;
        for _ in 0..codewords {
            let wrong = self.errors.poisson(expected, none);
            if wrong > self.ecc.corrects {
                return Correction::Uncorrectable;
            }
            corrected += wrong;
        }
        Correction::Corrected(corrected)
    }
}

/// Half of the blocks fail when they are erased, the others when they are programmed: by a bit of a number that is random.
fn fails_when_erased(limit: u32) -> bool {
    limit & 1 == 0
}

fn limit(wear: &Wear, random: &mut Random) -> u32 {
    let factor = (wear.spread * random.normal()).exp();
    (f64::from(wear.endurance) * factor).round().clamp(1.0, f64::from(u32::MAX)) as u32
}

fn wrong_bits(ecc: &Ecc, erases: u32, limit: u32) -> f32 {
    let bits = f64::from(ecc.codeword_bytes) * 8.0;
    if ecc.bit_errors_fresh <= 0.0 {
        return (ecc.bit_errors_worn * bits * f64::from(erases) / f64::from(limit)) as f32;
    }
    let growth = (ecc.bit_errors_worn / ecc.bit_errors_fresh).powf(f64::from(erases) / f64::from(limit));
    (ecc.bit_errors_fresh * growth * bits) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_spread_about_the_endurance() {
        let mut profile = Profile::built_in("mlc").unwrap();
        profile.wear.spread = 0.1;
        let blocks = Blocks::new(&profile, 3);
        let mut limits: Vec<u32> = blocks.states.iter().map(|s| s.limit).collect();
        limits.sort_unstable();
        let at = |share: f64| f64::from(limits[(limits.len() as f64 * share) as usize]) / 3000.0;
        // The quantiles of a logarithmic normal distribution: e^(0.1 x -1.645), 1, e^(0.1 x 1.645).
        for (share, expected) in [(0.05, 0.848), (0.5, 1.0), (0.95, 1.179)] {
            assert!((at(share) - expected).abs() < 0.01, "{share}: {}", at(share));
        }
        let bad = blocks.states.iter().filter(|s| s.health == Health::FactoryBad).count() as f64;
        let share = bad / blocks.states.len() as f64;
        assert!((share / profile.wear.factory_bad - 1.0).abs() < 0.1, "{share}");
    }
    #[test]
    fn bits_go_wrong_more_often_in_worn_blocks() {
        let ecc = Ecc { codeword_bytes: 1024, corrects: 40, bit_errors_fresh: 1e-7, bit_errors_worn: 1e-3 };
        assert!((wrong_bits(&ecc, 0, 1000) / 8.192e-4 - 1.0).abs() < 1e-3);
        assert!((wrong_bits(&ecc, 500, 1000) / 8.192e-2 - 1.0).abs() < 1e-3);
        assert!((wrong_bits(&ecc, 1000, 1000) / 8.192 - 1.0).abs() < 1e-3);
    }
}
