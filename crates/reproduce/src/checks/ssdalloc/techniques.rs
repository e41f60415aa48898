//! B7: the table of techniques, each cell from what the models find of the backend.
//!
//! An application rewritten for flash does what SSDAlloc does, in its own code: it has the same
//! cells but the last.

use super::backends::{Backends, packed, ssds};
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::units::Dimension;

/// Write logging, access below 4 KB, fine-grained reclaim, DRAM not polluted, high performance,
/// ease.
type Cells = [bool; 6];

pub fn run(inputs: &Inputs<'_>) -> Found {
    let in_dram = inputs.bytes("memcached.dram")? / inputs.bytes("memcached.data")?;
    let skew = inputs.share("memcached.skew")?;
    let backends = Backends::of(inputs, in_dram, inputs.share("memcached.writes")?, skew)?;
    let all = ssds(inputs)?;
    let ssd = all.first().ok_or_else(|| CheckError::no_answer("there is no SSD"))?;
    let (page, object) = (inputs.bytes("page.size")?, inputs.bytes("object.size")?);
    let changed = inputs.numbers("programs.modified", Dimension::Count)?;
    let original = inputs.numbers("programs.lines", Dimension::Count)?;
    // Few lines, in the allocation of memory alone.
    let easy = original.iter().zip(&changed).all(|(all, changed)| changed / all < 0.05);
    let (swap, logged, objects) = (backends.swap(ssd)?, backends.logged_swap(ssd)?, backends.objects(ssd)?);
    let pages = backends.pages(ssd)?;
    // A log makes a write cheaper than one in place.
    let is_log = |rate: f64| rate > swap.rate;
    let small = packed(inputs)? * object < page;
    let fast = |of_raw: f64| of_raw > 0.5;
    let swap_cells: Cells = [is_log(swap.rate), false, false, false, fast(swap.of_raw), true];
    let logged_cells: Cells = [is_log(logged.rate), false, false, false, fast(logged.of_raw), true];
    let objects_cells: Cells =
        [is_log(objects.rate), small, small, objects.misses < pages.misses, fast(objects.of_raw), easy];
    let rewritten =
        Cells::from([objects_cells[0], objects_cells[1], objects_cells[2], objects_cells[3], objects_cells[4], false]);
    let count = |cells: Cells| cells.into_iter().filter(|cell| *cell).count();
    let counts = [swap_cells, logged_cells, rewritten, objects_cells].map(count);
    let stated = inputs.numbers("techniques.ticks", Dimension::Count)?;
    let same = stated.iter().zip(counts).filter(|(stated, ours)| **stated == *ours as f64).count();
    Ok(vec![
        Finding::of("cells", "SSD swap 1, with a log 2, rewritten 5, SSDAlloc 6 of six")
            .within(same as f64, "of four rows agree", (4.0, 4.0))
            .by("each cell from the models: bytes written, bytes of a miss, misses, share of raw reads, lines changed")
            .also("swap", counts[0] as f64)
            .also("logged swap", counts[1] as f64)
            .also("SSDAlloc", counts[3] as f64),
        Finding::of("options", "objects or 4 KB pages, a pool or a coalescing allocator")
            .trend(
                small && objects.written < logged.written,
                logged.written / objects.written,
                "times the bytes written, pages",
            )
            .by("log-structured objects beside log-structured pages"),
    ])
}
