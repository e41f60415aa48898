//! A7: cycles of the controllers of the DRAM cache, by the simulator's state machines.

use fulgurite_sim::Time;
use fulgurite_sim::memory::{CacheShape, Controller, ControllerTiming, DramCache, DramTiming, LookUp, Wanted};

use super::cores::buffers;
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

/// A few sets are enough for one access at a time.
const SETS: u32 = 64;

pub fn run(inputs: &Inputs<'_>) -> Found {
    let clock = "core.clock";
    let cycle = inputs.number(clock, Dimension::Frequency)?;
    let cycles = |time: Time| time.as_s() * cycle;
    let ways = inputs.count("cache.ways")? as u32;
    let (queue, evict_pages) = buffers(inputs)?;
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
        queue,
        evict_pages,
    };
    let mut cache = DramCache::new(shape);
    cache.tags().fill(std::iter::once(5));
    let no_answer = |what: &str| CheckError::NoAnswer(what.to_owned());
    let LookUp::Hit(hit) = cache.look_up(Time::ZERO, 5, false) else {
        return Err(no_answer("a page that is there was not found"));
    };
    let (at, other) = (Time::us(10), 6);
    let LookUp::Miss(missed) = cache.look_up(at, other, false) else {
        return Err(no_answer("a page that is not there was found"));
    };
    let Some((asked, _)) = cache.miss(missed, other) else {
        return Err(no_answer("the backside did not ask for a page"));
    };
    // That page again, and then more of its set than there are ways.
    let again = cache.miss(asked, other).is_none() && cache.counters().duplicates == 1;
    let more = (1..=ways).filter(|turn| cache.miss(Time::us(20), other + turn * SETS).is_some()).count();
    let mut retry = Vec::new();
    cache.arrive(Time::us(60), other, &mut retry);
    let resumed = retry == [other + ways * SETS] && cache.miss(Time::us(70), retry[0]).is_some();
    let waits = more == ways as usize - 1 && resumed;
    Ok(vec![
        Finding::of("hit", "55 + 8 x 3 + 8 x 3 + 1 cycles")
            .exact(104.0, cycles(hit), "cycles")
            .by("frontside: row, tag column, data, one command"),
        Finding::of("miss-signal", "55 + 8 x 3 + 3 cycles")
            .exact(82.0, cycles(missed - at), "cycles")
            .by("frontside: row, tag column, commands to open, to the backside and to the core"),
        Finding::of("flash-asked", "3 + 1 + 55 + 8 x 3 + 2 x 3 cycles")
            .exact(89.0, cycles(asked - missed), "cycles")
            .by("backside: look-up in the miss status row, new entry, request"),
        Finding::of("duplicates", "a pending miss is not asked for again")
            .trend(again, cache.counters().duplicates as f64, "duplicates")
            .by("the miss status row has the page"),
        buffer(shape)?,
        stall(shape),
        open_rows(inputs, shape, cycles)?,
        Finding::of("full", "without a free place the backside waits for a flash request to finish")
            .trend(waits, cache.counters().full as f64, "waits")
            .by("all ways of the set were coming; the miss went on when one had come"),
    ])
}

/// Bytes of a column.
const COLUMN_BYTES: f64 = 8.0;

/// Blocks of two rows of a bank that are asked for in turns. Blocks of the open row come first
/// (FR-FCFS), so that each row is opened once. With a queue of one, each block opens its row.
fn open_rows(inputs: &Inputs<'_>, shape: CacheShape, cycles: impl Fn(Time) -> f64) -> Result<Finding, CheckError> {
    let columns = inputs.bytes("l1.block")? / COLUMN_BYTES;
    let DramTiming { open, close, column, refresh_every, refresh, .. } = shape.timing;
    // The first data of a column comes with its command, as in the cycles of table I.
    let burst = column * columns as u64;
    let timing = ControllerTiming { open, column: Time::ZERO, burst, close, active: open, refresh_every, refresh };
    let blocks = shape.queue;
    let last = |depth: u32| {
        let mut controller = Controller::new(timing, 1, depth as usize);
        let (mut now, mut done, mut asked) = (Time::ZERO, Vec::new(), 0);
        while asked < blocks || !controller.is_empty() {
            while asked < blocks && controller.has_room() {
                controller.push(Wanted { bank: 0, row: asked % 2, tag: asked });
                asked += 1;
            }
            let next = controller.advance(now, &mut done);
            now = if next == Time(u64::MAX) { now } else { next };
        }
        done.iter().map(|(_, at)| *at).max().unwrap_or_default()
    };
    let (ras, cas) = (inputs.number("cache.ras", Dimension::Cycles)?, inputs.number("cache.cas", Dimension::Cycles)?);
    let expected = 2.0 * ras + f64::from(blocks) * columns * cas;
    Ok(Finding::of("open-rows-first", "FR-FCFS")
        .exact(expected, cycles(last(blocks)), "cycles")
        .by("a queue full of blocks of two rows of a bank, in turns: two rows are opened, and the blocks moved")
        .also("cycles with a queue of one, in which each block opens its row", cycles(last(1))))
}

/// A victim with changes goes to the evict buffer, and the miss goes on. Once the buffer is full, a
/// miss waits for the flash to have one.
fn buffer(shape: CacheShape) -> Result<Finding, CheckError> {
    let pages = shape.evict_pages;
    // When flash is asked after the miss, with a victim that was changed or not.
    let asked_after = |writes: bool| -> Option<Time> {
        let mut cache = DramCache::new(shape);
        cache.tags().fill((0..shape.ways).map(|way| way * SETS));
        (0..shape.ways).for_each(|way| _ = cache.look_up(Time::ZERO, way * SETS, writes));
        let LookUp::Miss(at) = cache.look_up(Time::us(10), shape.ways * SETS, false) else { return None };
        cache.miss(at, shape.ways * SETS).map(|(asked, _)| asked - at)
    };
    let (Some(clean), Some(dirty)) = (asked_after(false), asked_after(true)) else {
        return Err(CheckError::no_answer("the backside did not ask for a page"));
    };
    // Each miss of another set has a changed victim. They come one after the other.
    let mut cache = DramCache::new(CacheShape { sets: pages + 1, status_entries: 8 * (pages + 1), ..shape });
    let sets = pages + 1;
    cache.tags().fill(0..shape.ways * sets);
    (0..shape.ways * sets).for_each(|page| _ = cache.look_up(Time::ZERO, page, true));
    let mut ask = |set: u32| cache.miss(Time::us(100 + u64::from(set)), shape.ways * sets + set).is_some();
    let (taken, one_more) = ((0..pages).filter(|set| ask(*set)).count() as u32, ask(pages));
    let mut retry = Vec::new();
    cache.written(&mut retry);
    let resumed = retry == [shape.ways * sets + pages] && cache.miss(Time::us(1000), retry[0]).is_some();
    Ok(Finding::of(
        "evict-buffer",
        "a dirty victim is copied to the evict buffer and written back off the critical path",
    )
    .trend(
        clean == dirty && taken == pages && !one_more && resumed,
        f64::from(taken),
        "dirty victims until a miss waited",
    )
    .by("flash is asked as early with a dirty victim as with a clean one; the miss after a full buffer went on when \
         flash had one of its pages"))
}

/// Misses that come together fill the backside's queue.
fn stall(shape: CacheShape) -> Finding {
    // The end of a hit behind `misses` misses, less the end of a hit alone.
    let late = |misses: u32| {
        // Rows of other banks, so that none waits for another's. The status row's number is prime.
        // So it is never in the first bank, where the hit is.
        let banks = misses + 2;
        let mut cache = DramCache::new(CacheShape { sets: banks, banks, status_entries: 8 * banks, ..shape });
        cache.tags().fill(std::iter::once(0));
        for page in 1..=misses {
            if let LookUp::Miss(at) = cache.look_up(Time::us(10), page, false) {
                cache.miss(at, page);
            }
        }
        let stalls = cache.counters().stalls;
        match cache.look_up(Time::us(10), 0, false) {
            LookUp::Hit(at) => (stalls, at),
            LookUp::Miss(at) => (stalls, at),
        }
    };
    let ((none, alone), (few, few_end), (stalls, behind)) = (late(0), late(shape.queue / 2), late(4 * shape.queue));
    Finding::of("full-queue", "a full queue of the backside stalls the frontside")
        .trend(
            none == 0 && few == 0 && few_end == alone && stalls > 0 && behind > alone,
            (behind - alone).as_ns(),
            "ns later, a hit behind four times as many misses as the queue has places",
        )
        .by("a miss is answered once the queue has it, and the frontside stands still until then")
}
