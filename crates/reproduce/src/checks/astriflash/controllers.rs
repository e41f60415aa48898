//! A7: cycles of the controllers of the DRAM cache, by the simulator's state machines.

use fulgurite_sim::Time;
use fulgurite_sim::memory::{CacheShape, DramCache, DramTiming, Looked};

use crate::check::{CheckError, Finding, Inputs};
use crate::units::Dimension;

/// A few sets are enough for one access at a time.
const SETS: u32 = 64;

pub fn run(inputs: &Inputs<'_>) -> Result<Vec<Finding>, CheckError> {
    let clock = "core.clock";
    let cycle = inputs.number(clock, Dimension::Frequency)?;
    let cycles = |time: Time| time.as_s() * cycle;
    let ways = inputs.count("cache.ways")? as u32;
    let shape = CacheShape {
        sets: SETS,
        ways,
        page_bytes: inputs.bytes("cache.page")? as u64,
        status_entries: (inputs.bytes("cache.row")? / inputs.bytes("cache.tag")?) as u32,
        banks: SETS,
        timing: DramTiming {
            command: inputs.cycles("cache.command", clock)?,
            open: inputs.cycles("cache.ras", clock)?,
            close: Time::ZERO,
            column: inputs.cycles("cache.cas", clock)?,
            refresh_every: Time::ZERO,
            refresh: Time::ZERO,
        },
        backside_command: inputs.cycles("cache.backside", clock)?,
    };
    let mut cache = DramCache::new(shape);
    cache.tags().fill(std::iter::once(5));
    let no_answer = |what: &str| CheckError::NoAnswer(what.to_owned());
    let Looked::Hit(hit) = cache.look(Time::ZERO, 5, false) else {
        return Err(no_answer("a page that is there was not found"));
    };
    let (at, other) = (Time::us(10), 6);
    let Looked::Miss(missed) = cache.look(at, other, false) else {
        return Err(no_answer("a page that is not there was found"));
    };
    let Some((asked, _)) = cache.miss(missed, other) else {
        return Err(no_answer("the backside did not ask for a page"));
    };
    // The same page again, and then more of its set than there are ways.
    let again = cache.miss(asked, other).is_none() && cache.counters().duplicates == 1;
    let more = (1..=ways).filter(|turn| cache.miss(Time::us(20), other + turn * SETS).is_some()).count();
    let mut retry = Vec::new();
    cache.arrive(Time::us(60), other, &mut retry);
    let resumed = retry == [other + ways * SETS] && cache.miss(Time::us(70), retry[0]).is_some();
    let waits = more == ways as usize - 1 && resumed;
    Ok(vec![
        Finding::exact(
            "hit",
            "55 + 8 x 3 + 8 x 3 + 1 cycles",
            104.0,
            cycles(hit),
            "cycles",
            "frontside: row, tag column, data, one command",
        ),
        Finding::exact(
            "miss-signal",
            "55 + 8 x 3 + 3 cycles",
            82.0,
            cycles(missed - at),
            "cycles",
            "frontside: row, tag column, commands to open, to the backside and to the core",
        ),
        Finding::exact(
            "flash-asked",
            "3 + 1 + 55 + 8 x 3 + 2 x 3 cycles",
            89.0,
            cycles(asked - missed),
            "cycles",
            "backside: look-up in the miss status row, new entry, request",
        ),
        Finding::trend(
            "duplicates",
            "a pending miss is not asked for again",
            again,
            (cache.counters().duplicates as f64, "duplicates"),
            "the miss status row has the page",
        ),
        Finding::trend(
            "full",
            "without a free place the backside waits for a flash request to finish",
            waits,
            (cache.counters().full as f64, "waits"),
            "all ways of the set were coming; the miss went on when one had come",
        ),
    ])
}
