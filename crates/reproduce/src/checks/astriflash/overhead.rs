//! What a miss costs a core, from its parts.
//!
//! The parts that cores and caches will simulate are `chosen` values until then: cold L1 blocks,
//! and the tags that each access to the DRAM cache reads first.

use fulgurite_sim::Time;

use crate::check::{CheckError, Inputs};
use crate::models::Planted;
use crate::units::Dimension;

/// A miss's parts.
#[derive(Clone, Copy, Debug)]
pub struct MissCost {
    /// Until the controller has found that the tags do not match.
    pub detection: Time,
    /// The flush of the reorder buffer: its work is done again, and the pipeline fills.
    pub flush: Time,
    /// L1 blocks and TLB entries that are gone.
    pub cold: Time,
    /// Tags read before the data of each access between two misses.
    pub tags: Time,
    /// The threads' switch.
    pub switch: Time,
}

impl MissCost {
    /// Of AstriFlash.
    pub fn read(inputs: &Inputs<'_>) -> Result<MissCost, CheckError> {
        let clock = "core.clock";
        let cycle = Time((1e12 / inputs.number(clock, Dimension::Frequency)? + 0.5) as u64);
        let cas = inputs.cycles("cache.cas", clock)?;
        let column = cas * ((inputs.bytes("cache.tag_column")? / 8.0) as u64);
        // Commands open the row and the column, and one sends the response.
        let detection = inputs.cycles("cache.ras", clock)? + column + inputs.cycles("cache.command", clock)? * 3;
        let again = inputs.count("core.reorder_buffer")? as f64 / inputs.number("core.per_cycle", Dimension::Count)?;
        let flush = inputs.cycles("core.front_end", clock)? + Time((again * cycle.0 as f64) as u64);
        // To the LLC's tile and back: on a 4 x 4 mesh two tiles are 2.5 hops apart on average.
        let hops = Time(inputs.cycles("mesh.hop", clock)?.0 * 5);
        let refill = inputs.cycles("llc.latency", clock)? + hops;
        let share = |count: &str, overlap: &str| -> Result<f64, CheckError> {
            Ok(inputs.count(count)? as f64 / inputs.number(overlap, Dimension::Count)?)
        };
        let cold = Time((refill.0 as f64 * share("miss.cold_lines", "miss.overlap")?) as u64);
        let tags = Time((column.0 as f64 * share("miss.dram_accesses", "miss.dram_overlap")?) as u64);
        let (flush, tags) = match inputs.planted {
            Some(Planted::NoFlush) => (Time::ZERO, tags),
            Some(Planted::NoTags) => (flush, Time::ZERO),
            _ => (flush, tags),
        };
        Ok(MissCost { detection, flush, cold, tags, switch: inputs.time("miss.switch")? })
    }
    /// All parts.
    pub fn parts(&self) -> [Time; 5] {
        [self.detection, self.flush, self.cold, self.tags, self.switch]
    }
    /// What the core loses without the switch.
    pub fn without_switch(&self) -> Time {
        self.detection + self.flush + self.cold + self.tags
    }
}
