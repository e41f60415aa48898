//! Erase blocks: what is programmed in each, how often it was erased, when it wears out, and how
//! many bits are read wrong.
//!
//! A block's limit is drawn when the device is made, from a logarithmic normal distribution about
//! the profile's `failure`. (NVMM: "Pages within a flash device obey a distribution curve with
//! respect to their write lifetimes". Here it is by block, because blocks are erased and retired.)
//! At its limit a block fails: half of them when they are erased, the others at a program. A failed
//! block fails for ever.
//!
//! The share of wrong bits grows with each erase, evenly in its logarithm: from the fresh block's
//! to that at the rated endurance, and on beyond it, until pages have more of them than are
//! corrected. That is how parts wear out: the endurance that is rated is what leaves hardly any
//! page uncorrectable (JEDEC JESD218: less than one of 10^15 bits). Blocks can still be programmed
//! and erased well beyond it, with ever more errors (Grupp et al., "Characterizing Flash Memory",
//! MICRO 2009, Boboila and Desnoyers, "Write Endurance in Flash Drives", FAST 2010).
//!
//! Which bits of a codeword are wrong is a property of the page until its block is erased: how many
//! is drawn from the seed, the page and the erases, so that nothing is kept for it. Only a
//! [`PASSING`] share is drawn at each read, so that a page with many more wrong bits than are
//! corrected cannot be read by trying again. Retention and read disturbance are not modelled.
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
    /// The page that is programmed next: as of the requests that were taken, not of those that have
    /// ended.
    next: u32,
    erases: u32,
    limit: u32,
    health: Health,
    /// Wrong bits that are expected in a codeword.
    wrong_bits: f32,
}

/// The share of wrong bits that are another time right: noise of the read itself, for cells whose
/// voltage is next to the threshold. Chosen here. What wears out, leaks or is disturbed is wrong at
/// each read.
const PASSING: f64 = 0.05;

/// All blocks of a device.
#[derive(Debug)]
pub(crate) struct Blocks {
    geometry: Geometry,
    ecc: Ecc,
    states: Vec<State>,
    seed: u64,
    rated: u32,
    errors: Random,
    /// The probability that no bit of a codeword is wrong, for numbers of wrong bits that are
    /// expected, which stay the same between two erases of a block.
    none: Box<[(f32, f64); NONE_KEPT]>,
}

/// How many of these are kept, each at a place that its bits say: the exponential is a third of
/// what a read costs otherwise.
const NONE_KEPT: usize = 256;

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
            seed,
            rated: profile.wear.endurance,
            errors: Random::of(seed, u64::MAX),
            none: Box::new([(0.0, 1.0); NONE_KEPT]),
        }
    }
    pub fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>() + size_of_val(&*self.none)
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
    pub fn wrong_bits(&self, block: Block) -> f32 {
        self.of(block).wrong_bits
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
    /// `pages` pages of it were programmed before this model was made.
    pub fn assume(&mut self, block: Block, pages: u32) {
        self.states[block.0 as usize].next = pages;
    }
    /// It was erased so often before this model was made, and has failed or not.
    pub fn assume_worn(&mut self, block: Block, erases: u32, failed: bool) {
        let (ecc, rated) = (self.ecc, self.rated);
        let state = &mut self.states[block.0 as usize];
        state.erases = erases;
        state.wrong_bits = wrong_bits(&ecc, erases, rated);
        if failed && state.health == Health::Good {
            state.health = Health::GrownBad;
        }
    }
    /// It is erased. Returns whether that succeeded.
    pub fn erase(&mut self, block: Block) -> bool {
        let (ecc, rated) = (self.ecc, self.rated);
        let state = &mut self.states[block.0 as usize];
        if state.health != Health::Good {
            return false;
        }
        state.erases += 1;
        state.wrong_bits = wrong_bits(&ecc, state.erases, rated);
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
    /// e^-wrong_bits.
    fn none(&mut self, wrong_bits: f32) -> f64 {
        let kept = &mut self.none[wrong_bits.to_bits().wrapping_mul(0x9e37_79b9) as usize >> 24];
        if kept.0.to_bits() != wrong_bits.to_bits() {
            *kept = (wrong_bits, libm::exp(-f64::from(wrong_bits)));
        }
        kept.1
    }
    /// Reads `bytes` bytes of a page.
    pub fn read(&mut self, page: NandPage, offset: u32, bytes: u32) -> Correction {
        let State { wrong_bits, erases, .. } = *self.of(self.geometry.block_of(page));
        if wrong_bits == 0.0 {
            return Correction::Corrected(0);
        }
        let size = self.ecc.codeword_bytes;
        // The wrong bits of the page itself, and of this read.
        let own = (f64::from(wrong_bits) * (1.0 - PASSING)) as f32;
        let passing = (f64::from(wrong_bits) * PASSING) as f32;
        let (none_own, none_passing) = (self.none(own), self.none(passing));
        let written = self.seed.rotate_left(32) ^ (u64::from(erases) << 32 | u64::from(page.0));
        let mut corrected = 0;
        for codeword in offset / size..(offset + bytes).div_ceil(size) {
            let wrong = Random::of(written, u64::from(codeword) + 1).poisson(f64::from(own), none_own)
                + self.errors.poisson(f64::from(passing), none_passing);
            if wrong > self.ecc.corrects {
                return Correction::Uncorrectable;
            }
            corrected += wrong;
        }
        Correction::Corrected(corrected)
    }
}

/// Half of the blocks fail when they are erased, the others when they are programmed: by a bit of a
/// number that is random.
fn fails_when_erased(limit: u32) -> bool {
    limit & 1 == 0
}

fn limit(wear: &Wear, random: &mut Random) -> u32 {
    let factor = libm::exp(wear.spread * random.normal());
    (f64::from(wear.failure) * factor).round().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// Wrong bits that are expected in a codeword after this many erases, of a rated endurance. At most
/// half of the bits are wrong.
fn wrong_bits(ecc: &Ecc, erases: u32, rated: u32) -> f32 {
    let bits = f64::from(ecc.codeword_bytes) * 8.0;
    if ecc.bit_errors_fresh <= 0.0 {
        return ((ecc.bit_errors_worn * f64::from(erases) / f64::from(rated)).min(0.5) * bits) as f32;
    }
    let growth = libm::pow(ecc.bit_errors_worn / ecc.bit_errors_fresh, f64::from(erases) / f64::from(rated));
    ((ecc.bit_errors_fresh * growth).min(0.5) * bits) as f32
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
        let at = |share: f64| f64::from(limits[(limits.len() as f64 * share) as usize]) / 6000.0;
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
        assert!(wrong_bits(&ecc, 9000, 1000) < 4097.0);
    }
    #[test]
    fn pages_are_uncorrectable_past_the_endurance_and_none_is_within_it() {
        for name in Profile::built_in_names() {
            let profile = Profile::built_in(name).unwrap();
            let g = profile.geometry;
            let mut blocks = Blocks::new(&profile, 11);
            // The share of 2 Ki pages that cannot be read after this percentage of the endurance,
            // and never can when tried again.
            let mut lost = |percent: u64| {
                let erases = (u64::from(profile.wear.endurance) * percent / 100) as u32;
                let (mut lost, mut back, count) = (0, 0, 2048);
                for i in 0..count {
                    let block = Block(i / 8);
                    let state = &mut blocks.states[block.0 as usize];
                    (state.erases, state.wrong_bits) =
                        (erases, wrong_bits(&profile.ecc, erases, profile.wear.endurance));
                    let page = g.page(block, i % 8);
                    if blocks.read(page, 0, g.page_bytes()) == Correction::Uncorrectable {
                        lost += 1;
                        let again = |_: u32| blocks.read(page, 0, g.page_bytes()) == Correction::Uncorrectable;
                        back += u32::from(!(0..20).all(again));
                    }
                }
                (f64::from(lost) / f64::from(count), f64::from(back) / f64::from(count))
            };
            for percent in [0, 50, 90, 100] {
                assert_eq!(lost(percent).0, 0.0, "{name} at {percent}% of its endurance");
            }
            let shares = [120, 140, 160, 180, 200].map(&mut lost);
            println!("{name}: uncorrectable pages, and those that 20 tries bring back: {shares:?}");
            assert!(shares.is_sorted_by(|a, b| a.0 <= b.0), "{name}: {shares:?}");
            assert!(shares[4].0 > 0.5, "{name}: {shares:?}");
            // A block fails for good at twice the endurance, about: there is time for that.
            assert!(profile.wear.failure >= 2 * profile.wear.endurance, "{name}");
        }
    }
    #[test]
    fn what_is_wrong_in_a_page_stays_so_until_its_block_is_erased() {
        let mut profile = Profile::built_in("mlc").unwrap();
        // 33 wrong bits of 40 are expected in a codeword: of some pages one of 16 has more.
        (profile.ecc.bit_errors_fresh, profile.ecc.bit_errors_worn) = (3.2e-3, 3.2e-3);
        let bits = |blocks: &mut Blocks, page| match blocks.read(page, 0, 4096) {
            Correction::Corrected(bits) => bits,
            Correction::Uncorrectable => 4 * 41,
        };
        let mut blocks = Blocks::new(&profile, 7);
        let (mut within, mut between) = (0.0, 0.0);
        let count = 2000;
        for i in 0..count {
            let page = profile.geometry.page(Block(i), 0);
            let (first, again) = (f64::from(bits(&mut blocks, page)), f64::from(bits(&mut blocks, page)));
            blocks.states[i as usize].erases += 1;
            let erased = f64::from(bits(&mut blocks, page));
            within += (first - again).powi(2) / f64::from(count);
            between += (first - erased).powi(2) / f64::from(count);
        }
        assert!(within < 0.4 * between, "from read to read {within}, from erase to erase {between}");
    }
}
