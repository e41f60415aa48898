//! Hits: guarded loads compared with the same raw loads, in one job on one core, in turns.
//!
//! The data is resident and in the first cache: a word in each of 256 subpages, on lines of all
//! sets. Independent loads overlap, as in most programs. A chain waits for each load, and shows the
//! latency of a guard.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use fulgurite_backing::Base;
use fulgurite_memory::{AccessError, Address, Memory, PlainMemory, Ptr};
use fulgurite_runtime::Runtime;
use fulgurite_sys::Backed;

use fulgurite_harness::Spread;

const SUBPAGES: u64 = 256;
const DRAM_BYTES: u64 = 32 << 20;
/// Turns of each loop in a round; the median turn counts, so that an interruption does not.
const TURNS: usize = 15;

/// Raw and guarded memory with the same contents.
pub struct Hits {
    raw: PlainMemory,
    runtime: Runtime,
}

/// Nanoseconds a load.
#[derive(Clone, Copy, Debug)]
pub struct HitCosts {
    pub raw: f64,
    pub guarded: f64,
    pub chained_raw: f64,
    pub chained_guarded: f64,
}

fn word_of(subpage: u64) -> Ptr<u64> {
    Ptr::new(Address::from_linear(subpage * 4096 + subpage % 64 * 64))
}

/// Each word holds the address of another: one ring through all of them.
fn fill<M: Memory>(memory: &mut M) -> Result<(), AccessError> {
    for subpage in 0..SUBPAGES {
        memory.store(word_of(subpage), word_of((subpage + 97) % SUBPAGES).address().bits())?;
    }
    Ok(())
}

#[inline(never)]
fn independent<M: Memory>(memory: &mut M, loads: u64) -> Result<f64, AccessError> {
    let start = Instant::now();
    let (mut state, mut sum) = (1u64, 0u64);
    for _ in 0..loads {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sum = sum.wrapping_add(memory.load(word_of((state >> 33) % SUBPAGES))?);
    }
    black_box(sum);
    Ok(start.elapsed().as_nanos() as f64 / loads as f64)
}

#[inline(never)]
fn chained<M: Memory>(memory: &mut M, loads: u64) -> Result<f64, AccessError> {
    let start = Instant::now();
    let mut at = word_of(0);
    for _ in 0..loads {
        at = Ptr::new(Address::from_bits(memory.load(at)?));
    }
    black_box(at);
    Ok(start.elapsed().as_nanos() as f64 / loads as f64)
}

impl Hits {
    /// Starts a runtime on `core` and fills both memories.
    ///
    /// # Errors
    /// When there is no memory, or the core cannot be had.
    pub fn start(core: usize) -> Result<Hits> {
        let mut raw = PlainMemory::new(Backed::HugePages)?;
        fill(&mut raw)?;
        let flash = Base::memory((DRAM_BYTES >> 12) as u32).open()?.flash;
        let runtime = Runtime::builder(flash).dram(DRAM_BYTES).cores(&[core]).build()?;
        runtime.run(fill)?;
        Ok(Hits { raw, runtime })
    }

    /// One round: all four loops in turns, `loads` each time.
    pub fn round(&self, loads: u64) -> Result<HitCosts> {
        let mut raw = self.raw.clone();
        let turns = self.runtime.run(move |guarded| {
            let mut turns: [Vec<f64>; 4] = Default::default();
            for _ in 0..TURNS {
                turns[0].push(independent(&mut raw, loads)?);
                turns[1].push(independent(guarded, loads)?);
                turns[2].push(chained(&mut raw, loads)?);
                turns[3].push(chained(guarded, loads)?);
            }
            Ok(turns)
        })?;
        let [raw, guarded, chained_raw, chained_guarded] = turns.map(|t| Spread::of(t).median);
        Ok(HitCosts { raw, guarded, chained_raw, chained_guarded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_form_one_ring() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        fill(&mut memory).unwrap();
        let (mut at, mut steps) = (word_of(0), 0);
        loop {
            at = Ptr::new(Address::from_bits(memory.load(at).unwrap()));
            steps += 1;
            if at.address() == word_of(0).address() {
                break;
            }
        }
        assert_eq!(steps, SUBPAGES);
    }
    #[test]
    fn loops_run_on_both_memories() {
        let hits = Hits::start(fulgurite_sys::affinity::cores()[0]).unwrap();
        let costs = hits.round(1000).unwrap();
        assert!(costs.raw > 0.0 && costs.guarded > 0.0 && costs.chained_raw > 0.0 && costs.chained_guarded > 0.0);
    }
}
